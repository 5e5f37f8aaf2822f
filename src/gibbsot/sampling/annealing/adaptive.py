"""Cooling of a model whose exact cost is evaluated on a sample from time to time: that of `WassersteinNMF`.

A model that changes faster than its chains mix follows outdated gradients, and V(z) falls below W. Exact evaluations
show it: steps are damped where the chains lag, the temperature falls where the model has stalled, and the best model is
restored where it became worse.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..temperature import INITIAL_BIAS

Array = NDArray[np.float64]
Self = TypeVar("Self", bound="SavedState")

MEMORY = 3  # exponent of the averages of models


def newest_share(weight: float, total: float, memory: float = MEMORY) -> float:
    """Return the share of the newest model in the polynomial-decay average of Shamir and Zhang (2013).

    Parameters
    ----------
    weight, total : float
        The weights of the newest model and of all models.
    memory : float
        The exponent: the k-th of equal models has a share ``(memory + 1) / (memory + k)``.

    Returns
    -------
    float
    """
    return min((memory + 1) * weight / (memory * weight + total), 1.0)


@dataclass(frozen=True)
class SavedState:
    """What files can hold, a state or a policy's constants: every field is a number, a flag or a tuple of numbers."""

    def to_arrays(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    @classmethod
    def from_arrays(cls: type[Self], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the state whose fields are given."""
        values = (np.asarray(arrays[entry.name]).tolist() for entry in fields(cls))
        return cls(*(tuple(value) if isinstance(value, list) else value for value in values))


@dataclass(frozen=True)
class ModelState(SavedState):
    """Temperature, step and record of a model during a fit.

    Attributes
    ----------
    T : float
        The temperature of the next epoch.
    T_min : float
        The lowest temperature.
    bias : float
        The relative bias ``(V(z) - W) / W`` that chains that have mixed should show.
    unit : float
        The temperature for a relative bias of one and a cost of one.
    step : float
        The factor of the next step.
    step_max : float
        The largest factor that is allowed from now on.
    best : float
        The exact cost of the best model, over the sample.
    least_gradient : float
        The smallest gradient so far.
    evaluated : int
        The epoch of the last exact evaluation.
    worse : bool
        Whether the best model is to be restored after that evaluation.
    past : tuple of float
        Exact costs since the last cooling.
    levels : tuple of float
        The best cost at each cooling.
    finished : bool
        Whether cooling no longer improves the model.
    averaged : int
        The number of epochs in the mean model.
    estimate, objective : float
        V(z) of the last epoch, and the exact cost at the last evaluation, both over all measures, for policies that
        compare them; 0 before.
    least_estimate : float
        The least V(z) of an epoch.
    """

    T: float
    T_min: float
    bias: float = INITIAL_BIAS
    unit: float = 1.0
    step: float = 1.0
    step_max: float = 2.0
    best: float = np.inf
    least_gradient: float = np.inf
    evaluated: int = 0
    worse: bool = False
    past: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()
    finished: bool = False
    averaged: int = 0
    estimate: float = 0.0
    objective: float = 0.0
    least_estimate: float = np.inf


@dataclass(frozen=True)
class ModelCooling(SavedState, ABC):
    """What cooling policies of models share: the record of the best model and when to evaluate exactly.

    Attributes
    ----------
    spacing : pair of int
        The least and the largest number of epochs between exact evaluations: an evaluation costs as much as some
        epochs, so a long run has fewer of them.
    spacing_growth : int
        Between the two, the number is the last evaluation's epoch divided by this.
    spacing_worse : int
        The number after the best model was restored, as the damped step may still be too long.
    patience : int
        The number of coolings that must have gained less than the tolerance before the fit ends.
    first_step : float
        The factor of the first step.
    """

    spacing: tuple[int, int] = (10, 40)
    spacing_growth: int = 8
    spacing_worse: int = 3
    patience: int = 2
    first_step: float = 1.0

    def init(self, value: float, T: float, T_min: float, initial_temperature: float | None = None) -> ModelState:
        """Return the state at the start of a fit.

        Parameters
        ----------
        value, T : float
            The mean cost of a sample of problems, and of the temperatures at which their chains show the initial
            relative bias.
        T_min : float
            The lowest temperature.
        initial_temperature : float, optional
            The first temperature; by default T.

        Returns
        -------
        ModelState
        """
        T = max(T, T_min)
        unit = T / (INITIAL_BIAS * value) if value > 0 else 1.0
        state = ModelState(T, T_min, unit=unit, step=self.first_step)
        if initial_temperature is None:
            return state
        return replace(state, T=initial_temperature, bias=state.bias * (initial_temperature / T))

    def due(self, state: ModelState, epoch: int) -> bool:
        """Tell whether the model is to be evaluated exactly after an epoch."""
        regular = np.clip(state.evaluated // self.spacing_growth, *self.spacing)
        return bool(epoch >= state.evaluated + (self.spacing_worse if state.worse else regular))

    def record(self, state: ModelState, value: float) -> tuple[ModelState, bool]:
        """Return the state that knows a model's exact cost, and whether that model is the best so far."""
        past = state.past or (value,)
        return replace(state, past=past, best=min(state.best, value)), value < state.best

    def converged(self, state: ModelState, tol: float) -> bool:
        """Tell whether the last coolings together gained less than a fraction ``tol`` of the cost."""
        if len(state.levels) <= self.patience:
            return False
        return state.levels[-1 - self.patience] - state.best <= tol * state.best

    def resume(self, state: ModelState, tol: float) -> ModelState:
        """Return the state of a fit that is resumed: not finished if the tolerance is now lower than its last gain."""
        return replace(state, finished=state.finished and self.converged(state, tol))

    def share(self, state: ModelState) -> float:
        """Return the share of the next epoch's model in the mean model, which is the one that is evaluated."""
        return 1.0

    def lag(self, epoch: int) -> float:
        """Return the lag of the mixing test after a number of epochs, relative to tau."""
        return 1.0

    def limit(self, change: float, value: float, variance: float) -> float:
        """Return a factor of the step of the components.

        Parameters
        ----------
        change : float
            The standard deviation of the changes of logarithms of weights by the whole step.
        value, variance : float
            The means of V(z) and of the components' variances: half the mean cost between two points of one.

        Returns
        -------
        float
        """
        return 1.0

    @abstractmethod
    def after_epoch(self, state: ModelState, change: float, estimate: float) -> ModelState:
        """Return the state after an epoch.

        Parameters
        ----------
        state : ModelState
        change : float
            By how much steps of the components would have changed logarithms of weights without a limit, on average.
        estimate : float
            V(z), over all measures.

        Returns
        -------
        ModelState
        """

    @abstractmethod
    def update(self, state: ModelState, value: float, estimate: float, tol: float) -> ModelState:
        """Return the state after an exact evaluation, which has been recorded.

        Parameters
        ----------
        state : ModelState
        value, estimate : float
            The exact cost of the model, and V(z), over the sample.
        tol : float
            The relative gain of two coolings below which the fit ends.

        Returns
        -------
        ModelState
            If it is ``worse``, the best model is to be restored.
        """


@dataclass(frozen=True)
class AdaptiveCooling(ModelCooling):
    """Cooling by exact evaluations of the mean model: T is proportional to the relative bias and to the best cost.

    Attributes
    ----------
    lag_ratio, follow_ratio : float
        Chains that show less than the first fraction of the expected relative bias lag behind the model; those that
        show more than the second follow it, and longer steps are tried. In between steps stay as they are.
    damping, growth : float
        The factors of the step then.
    short_step : float
        Before the first cooling, chains that lag at steps below this get a higher temperature instead: still shorter
        steps would make the fit slow from the start.
    cooling : float
        The factor of the relative bias at a stall.
    stall : float
        The relative gain for each evaluation below which the model has stalled.
    window : int
        The number of evaluations over which the gain is measured, as one of them is noisy.
    max_final_bias : float
        The fit ends only below this relative bias: a larger one may hide what could still be gained.
    rise : float
        A model with more than this times the best cost is replaced by the best one.
    soaring : float
        When V(z) rises to this times its least value before the first evaluation, the model is evaluated at once: it
        may be running away from its chains.
    memory : int
        The mean model is the polynomial-decay average of Shamir and Zhang (2013) with this exponent: in epoch k the new
        model has a share ``(memory + 1) / (memory + k)``. It has less of the chains' noise than the last model.
    gradient_growth, large_change : float
        Steps are damped when the gradient grows by this factor over its smallest value while logarithms of weights
        change by more than the second: the model oscillates.
    largest_change : float
        A step that would change logarithms of weights by more than this is shortened to it: chains do not follow a
        model that changes more in one epoch, and V(z) then rises to a multiple.
    largest_shift : float
        The same for steps that would shift components by more than this fraction of V(z). If logarithms of weights
        change by d times the standardised position, the mean moves by d standard deviations, at the cost of ``d**2``
        variances. Where measures differ little, as noise does, this is less than the change above.
    early : pair of int and float
        The number of first epochs, in which the model moves far, and the lag of the mixing test in them, relative to
        tau: gradients need not be as good then.
    """

    first_step: float = 2.0
    lag_ratio: float = 0.25
    follow_ratio: float = 0.5
    damping: float = 0.6
    growth: float = 1.6
    short_step: float = 0.25
    early: tuple[int, float] = (4, 0.5)
    cooling: float = 0.7
    stall: float = 0.003
    window: int = 3
    max_final_bias: float = 0.1
    rise: float = 1.05
    soaring: float = 2.5
    gradient_growth: float = 1.5
    large_change: float = 0.04
    largest_change: float = 0.1
    largest_shift: float = 0.1
    memory: int = MEMORY

    def limit(self, change: float, value: float, variance: float) -> float:
        largest = self.largest_change
        if self.largest_shift * value < largest**2 * variance:
            largest = math.sqrt(max(self.largest_shift * value, 0.0) / variance)
        return 1.0 if change <= largest else largest / change

    def lag(self, epoch: int) -> float:
        epochs, factor = self.early
        return factor if epoch < epochs else 1.0

    def share(self, state: ModelState) -> float:
        return newest_share(1, state.averaged + 1, self.memory)

    def after_epoch(self, state: ModelState, change: float, estimate: float) -> ModelState:
        gradient, step, least = change / state.step, state.step, state.least_gradient
        if change > self.large_change and gradient > self.gradient_growth * least:
            step, least = self.damping * step, gradient
        state = replace(state, step=step, least_gradient=min(least, gradient), averaged=state.averaged + 1)
        return replace(state, estimate=estimate, least_estimate=min(state.least_estimate, estimate))

    def due(self, state: ModelState, epoch: int) -> bool:
        soars = not state.past and 0 < self.soaring * state.least_estimate < state.estimate
        return soars or super().due(state, epoch)

    def update(self, state: ModelState, value: float, estimate: float, tol: float) -> ModelState:
        observed = estimate / value - 1 if value > 0 else state.bias
        state = self._adapt_step(replace(state, worse=value > self.rise * state.best), observed)
        past, levels = (*state.past, state.best if state.worse else value), (*state.levels, state.best)
        state = replace(state, past=past)
        if len(past) > self.window and past[-1 - self.window] - past[-1] <= self.stall * self.window * past[-1]:
            state = replace(state, bias=state.bias * self.cooling, past=past[-1:], levels=levels)
            state = replace(state, finished=self.converged(state, tol) and observed < self.max_final_bias)
        return replace(state, T=max(state.unit * state.bias * state.best, state.T_min))

    def _adapt_step(self, state: ModelState, observed: float) -> ModelState:
        """Damp the step where the model became worse or the chains lag; lengthen it where they follow."""
        damped = state.step * self.damping
        if state.worse:
            return replace(state, step=damped, step_max=damped, averaged=0)
        if observed < self.lag_ratio * state.bias:
            if state.step > self.short_step or state.levels:
                return replace(state, step=damped)
            return replace(state, bias=state.bias / self.cooling)
        if observed > self.follow_ratio * state.bias:
            return replace(state, step=min(state.step_max, state.step * self.growth))
        return state
