"""The paper's own rules for a model: those of ``WassersteinNMF(algorithm="paper")``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..schedules import epoch_decay
from .adaptive import ModelCooling, ModelState

STEP = 2.0  # gamma, relative to the mean cost, of components and memberships
TAU = 5  # of the mixing test
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

    def after_epoch(self, state: ModelState, change: float) -> ModelState:
        return replace(state, T=max(epoch_decay(state.T, self.m, self.m_bar), state.T_min))

    def update(self, state: ModelState, value: float, estimate: float, tol: float) -> ModelState:
        return replace(state, worse=False)
