"""Cooling in stages: by the theory's bound for `solve`, and by fixed factors for `mixture_coordinates`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..schedules import Adaptive

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StagedState:
    """Temperatures of a batch of problems.

    Attributes
    ----------
    T : array of shape (n,)
        The temperatures of the current stage.
    points : array of int, shape (n,)
        The number of points with weight, of both measures.
    n_sweeps : int
        The number of sweeps of all stages together.
    """

    T: Array
    points: NDArray[np.intp]
    n_sweeps: int


@dataclass(frozen=True)
class StagedCooling:
    r"""Stages of one length, each at eta times calT(z) of the state that the stage before has reached.

    .. math:: T \leftarrow \min\left(T, \max\left(\eta \, \mathcal T(z),
        \frac{6 \, V(z)}{m \sqrt{\mathrm{sweeps}}}\right)\right)

    The constants were chosen by the errors on digits, faces, random images, point clouds and random matrices.

    Attributes
    ----------
    eta : float
        The fraction of the bound.
    span : float
        There are enough stages to cool by this times the square root of the number of sweeps, the most that problems
        were found to need.
    final : float
        The last ``m T / V(z)`` times the square root of the number of sweeps: there both what the temperature adds to
        V(z) and what the chain lags behind are small.
    max_fall : float
        The bound counts as at least this fraction of T, as it is estimated from one sweep and noisy.
    burn_in : int
        A divisor: one sweep in ``burn_in`` of a stage, the first ones, is left out of the mean of V(z), as it depends
        on the stage before.
    hold : int
        A divisor: one sweep in ``hold`` of the last stage is done under the mixing test.
    """

    eta: float = Adaptive.eta
    span: float = 30.0
    final: float = 6.0
    max_fall: float = 0.5
    burn_in: int = 3
    hold: int = 4

    def init(self, scale: Array, points: NDArray[np.intp], n_sweeps: int, T: Array | None = None) -> StagedState:
        """Return the state at the first temperature.

        By default that is about the lower end of calT, -A / C(z, 0), of the pair of the nearest points raised to the
        mean cost: A is then ``-scale``, and ``C(z, 0) = sum_j q_j / p_i(j)`` would be m1 if the arcs (i(j), j) carried
        an optimal plan. Twice that is safe.

        Parameters
        ----------
        scale : array of shape (n,)
            How far W may be above the bound by the nearest points.
        points : array of int, shape (n,)
            The number of points with weight, of both measures.
        n_sweeps : int
            The number of sweeps of all stages together.
        T : array of shape (n,), optional
            The first temperatures, of a warm start.

        Returns
        -------
        StagedState
        """
        return StagedState(scale / points if T is None else T, points, n_sweeps)

    def lengths(self, n_sweeps: int) -> tuple[list[int], int]:
        """Return the number of sweeps of each stage, and of those under the mixing test at the end."""
        stages = 1 + int(np.ceil(np.log(self.span * np.sqrt(n_sweeps)) / -np.log(self.eta)))
        ends = np.linspace(0, n_sweeps, max(1, min(stages, n_sweeps // 2)) + 1).round().astype(int)
        *others, last = np.diff(ends).tolist()
        hold = last // self.hold
        return [*others, last - hold], hold

    def level(self, history: Array) -> Array:
        """Return the mean of V(z) of a stage, without its first sweeps."""
        return np.asarray(history[:, history.shape[1] // self.burn_in :].mean(axis=1))

    def update(self, state: StagedState, bound: Array, value: Array) -> StagedState:
        """Return the state of the next stage.

        Parameters
        ----------
        state : StagedState
        bound : array of shape (n,)
            The estimate of calT(z).
        value : array of shape (n,)
            V(z) less the bound by the nearest points.

        Returns
        -------
        StagedState
        """
        lowest = self.final / np.sqrt(state.n_sweeps) * value / state.points
        proposed = self.eta * np.maximum(bound, self.max_fall * state.T)
        return replace(state, T=np.minimum(state.T, np.maximum(proposed, lowest)))


class Stage(NamedTuple):
    """One stage of `CoolingStages`.

    Attributes
    ----------
    n_steps : int
        The number of steps.
    factor : float
        The factor of both the temperature and the step.
    """

    n_steps: int
    factor: float


@dataclass(frozen=True)
class CoolingStages:
    """Fixed stages of temperature and step; in the first, steps grow as long as gradients agree.

    Attributes
    ----------
    stages : tuple of Stage
        The number of steps, and the factor of temperature and step, of each stage.
    agreement : float
        The cosine between successive gradients above which the step grows.
    growth, step_max : float
        The factor by which it grows, and the largest it can become.
    """

    stages: tuple[Stage, ...] = (Stage(30, 1.0), Stage(20, 0.3), Stage(20, 0.1), Stage(20, 0.03))
    agreement: float = 0.9
    growth: float = 1.2
    step_max: float = 20.0

    def grow(self, step: Array, cosine: Array) -> Array:
        """Return the steps for cosines between successive gradients: one again where the direction has turned."""
        step = np.where(cosine > self.agreement, np.minimum(self.growth * step, self.step_max), step)
        return np.where(cosine < 0, 1.0, step)
