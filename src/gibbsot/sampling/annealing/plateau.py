"""Cooling when the objective stops falling: that of `WassersteinBarycenter` and `WassersteinClassifier`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from .adaptive import SavedState


class Trend(Enum):
    """What the last observations of an objective show.

    Attributes
    ----------
    FALLING
        It still falls, or there are too few observations to say.
    STALLED
        It falls by less than the tolerance.
    RISING
        It rises: steps are too long.
    """

    FALLING = 0
    STALLED = 1
    RISING = 2


@dataclass(frozen=True)
class PlateauState(SavedState):
    """Temperature, step and last observations of a descent.

    Attributes
    ----------
    T : float
        The temperature of the next epoch.
    T_min : float
        The lowest temperature.
    gap : float
        The difference of objective and lower bound at the last stall; infinite before.
    step : float
        The factor of the next step.
    past : tuple of float
        The last objectives since the last cooling.
    observed : int
        The number of observations since the last cooling.
    stalls : int
        The number of coolings.
    finished : bool
        Whether the fit ends.
    """

    T: float
    T_min: float = 0.0
    gap: float = np.inf
    step: float = 1.0
    past: tuple[float, ...] = ()
    observed: int = 0
    stalls: int = 0
    finished: bool = False


@dataclass(frozen=True)
class PlateauCooling:
    """Cool and damp when the mean objective of a window no longer improves on that of the window before.

    Attributes
    ----------
    window : int
        The number of epochs over which objectives are averaged, as single ones are noisy.
    stride : int
        The number of epochs between comparisons.
    cooling, damping : float
        The factors of temperature and step at a stall.
    relative : bool
        Whether the tolerance is relative to the objective; otherwise it is an absolute difference.
    rise : float, optional
        An objective above this times that of the window before means steps that are too long: they are damped, and
        the temperature stays.
    max_stalls : int, optional
        The number of stalls after which the fit ends.
    shrinkage : float
        The fit ends at a stall where the difference of objective and lower bound, an upper limit of the bias of V(z),
        is more than this times that of the stall before: the last cooling has not gained what it should have. The
        temperature alone does not tell it: the bias of chains that have mixed is 1 T to 55 T, by the cost and the
        number of points (see *Temperature* in the documentation's concepts), and that of chains that lag is negative.
    """

    window: int = 5
    stride: int = 1
    cooling: float = 0.5
    damping: float = 0.5
    relative: bool = False
    rise: float | None = None
    max_stalls: int | None = None
    shrinkage: float = 0.8

    def init(self, T: float, T_min: float = 0.0) -> PlateauState:
        """Return the state at the start of a descent (see `PlateauState`)."""
        return PlateauState(T, T_min)

    def observe(self, state: PlateauState, value: float) -> PlateauState:
        """Return the state that knows the objective of an epoch."""
        past = (*state.past, value)[-2 * self.window :]
        return replace(state, past=past, observed=state.observed + 1)

    def due(self, state: PlateauState) -> bool:
        """Tell whether windows are to be compared after this epoch."""
        return state.observed % self.stride == 0

    def level(self, state: PlateauState) -> float:
        """Return the mean objective of the last window."""
        return float(np.mean(state.past[-self.window :]))

    def trend(self, state: PlateauState, tol: float, gain: float = -np.inf) -> Trend:
        """Compare the last window with the one before.

        Parameters
        ----------
        state : PlateauState
        tol : float
            The improvement below which the objective has stalled.
        gain : float
            Another improvement that counts as well, such as that of a lower bound.

        Returns
        -------
        Trend
        """
        if len(state.past) < 2 * self.window:
            return Trend.FALLING
        before, level = float(np.mean(state.past[: self.window])), self.level(state)
        if self.rise is not None and level > self.rise * before:
            return Trend.RISING
        stalled = max(gain, before - level) <= tol * (abs(level) if self.relative else 1.0)
        return Trend.STALLED if stalled else Trend.FALLING

    def update(
        self, state: PlateauState, trend: Trend, chains_follow: bool = True, lower: float = -np.inf
    ) -> PlateauState:
        """Return the state after a comparison of windows.

        Parameters
        ----------
        state : PlateauState
        trend : Trend
        chains_follow : bool
            Whether the chains follow the model; if they lag at a stall, the step is damped and the temperature stays.
        lower : float
            A lower bound of the objective, where there is one.

        Returns
        -------
        PlateauState
        """
        if trend is Trend.FALLING:
            return state
        if trend is Trend.RISING:
            return replace(state, step=self.damping * state.step)
        gap = self.level(state) - lower
        if state.T_min >= state.T or gap > self.shrinkage * state.gap:
            return replace(state, finished=True)
        T = max(self.cooling * state.T, state.T_min) if chains_follow else state.T
        step, stalls = self.damping * state.step, state.stalls + 1
        return PlateauState(T, state.T_min, gap, step, stalls=stalls, finished=stalls == self.max_stalls)
