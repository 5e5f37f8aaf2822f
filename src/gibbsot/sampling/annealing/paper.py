"""The authors' own rules for a model: as the paper prints them, and as their published program has them.

They are those of ``WassersteinNMF(algorithm="paper")`` and ``WassersteinNMF(algorithm="d2suite")``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..schedules import epoch_decay
from .adaptive import ModelCooling, ModelState

STEP = 2.0  # gamma, relative to the mean cost, of components and memberships
TAU = 5  # of the mixing test

# Of the authors' program (https://github.com/bobye/d2suite, wm3.hpp, d2_sa.hpp, test_orl.cpp), not in the paper:
BATCH = 20  # measures whose chains are tested together, and after which the components are updated
RATIO = 3.0  # of the membership's step to gamma: the gamma of Krichene et al. (2015), which is another one
RESTART = 20  # epochs after which the acceleration of the memberships starts again
RISE = 1e-3  # chains of a batch go on until the sum of V(z) rises by no more than this share of it in tau sweeps
_NOISE = 0.2  # that a point of mean weight has at the first temperature, relative to the mean cost


def initial_temperature(mean_cost: float, m_bar: float) -> float:
    """Return the first temperature for NMF, of which the paper says nothing.

    It is that at which T / q, the mean of the noise of h at a point of weight q, is a fifth of the mean cost.

    Parameters
    ----------
    mean_cost : float
        The mean cost between points.
    m_bar : float
        The mean number of points of the data's measures.

    Returns
    -------
    float
    """
    return _NOISE * mean_cost / m_bar


@dataclass(frozen=True)
class EpochDecay(ModelCooling):
    r"""The paper's cooling: T falls by one factor every epoch, not below T_min, and steps stay as they are.

    .. math:: T \leftarrow T \left(1 - \sqrt{1 / (m + \bar m)}\right)

    Exact evaluations record the best model, on which nothing else depends.

    Attributes
    ----------
    m : int
        The number of points of the model's measures.
    m_bar : float
        The mean number of points of the data's measures.
    """

    m: int = 1
    m_bar: float = 1.0

    def after_epoch(self, state: ModelState, change: float, estimate: float) -> ModelState:
        return replace(state, T=max(epoch_decay(state.T, self.m, self.m_bar), state.T_min))

    def update(self, state: ModelState, value: float, estimate: float, tol: float) -> ModelState:
        return replace(state, worse=False)


@dataclass(frozen=True)
class ConditionalDecay(EpochDecay):
    """The cooling of the authors' program: that of the paper, only while V(z) exceeds a fraction of the exact cost.

    A model that moves faster than its chains mix has a V(z) below its cost: the temperature then waits for the chains.
    The program solves the problems of all measures every twenty epochs. Here it is those of the sample: their cost,
    times the ratio of the V(z) of all measures to that of the sample, stands for the cost of all. The program's second
    rule, a cap on the temperature every twenty epochs, is not used.

    Attributes
    ----------
    fraction : float
        The fraction of the exact cost.
    period : int
        The number of epochs between exact evaluations.
    """

    fraction: float = 0.9
    period: int = 20

    def due(self, state: ModelState, epoch: int) -> bool:
        return epoch % self.period == 1

    def after_epoch(self, state: ModelState, change: float, estimate: float) -> ModelState:
        state = replace(state, estimate=estimate)
        return super().after_epoch(state, change, estimate) if estimate > self.fraction * state.objective else state

    def update(self, state: ModelState, value: float, estimate: float, tol: float) -> ModelState:
        objective = value * (state.estimate / estimate if min(state.estimate, estimate) > 0 else 1.0)
        return replace(super().update(state, value, estimate, tol), objective=objective)
