"""Descent to a barycenter with the gradients of warm-started chains."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import costs
from ...core import validation
from ...costs import Units
from ...distributed.shard import Sample
from ...io import npz
from ...oracle import evaluation
from ...oracle.mirror_descent import logarithms, mirror_step
from ...sampling import temperature
from ...sampling.annealing.plateau import PlateauCooling, PlateauState, Trend
from .. import _base
from .._loop import Epoch
from .shard import BarycenterShard, Objective

_INITIAL = 0.2  # factor of the initial temperature of other models: chains follow one measure easily
_MEMORY = 0.9  # of the running means of models and potentials, which vary less than the last ones
_COOLING = PlateauCooling(window=10, stride=10, cooling=0.5, damping=0.85, relative=True, rise=1.05)
_ASCENT = 3  # rounds of the ascent of the lower bound every ten epochs


class Descent:
    """Mirror descent from the mean of the measures, one epoch after the other.

    Parameters
    ----------
    model : WassersteinBarycenter
        Its ``step_size``, ``temperature`` and ``tol`` are used.
    objective : Objective
        The measures.
    units : Units
        The cost in the precision of the chains.
    saved : dict of str to array, optional
        The state that `arrays` returned, from which the descent is resumed.

    Attributes
    ----------
    done : int
        The number of epochs.
    log_p, average : arrays of shape (m,)
        Logarithms of the present weights, and the running mean of the weights.
    lower : float
        The lower bound, in units of the cost.
    control : PlateauState
        Temperature and step.
    """

    def __init__(self, model: Any, objective: Objective, units: Units, saved: dict[str, Any] | None = None) -> None:
        self.model, self.objective, self.units = model, objective, units
        if saved is None:
            self._start()
        else:
            self.log_p, self.average = saved["log_p"], saved["average"]
            self.done, self.lower = int(saved["done"]), float(saved["lower"])
            self.control = PlateauState.from_arrays(npz.with_prefix(saved, "control_"))

    def _start(self) -> None:
        """Start from the mean of the measures, at the initial temperature."""
        cost, sizes, shards = self.units.cost, self.objective.sizes, self.objective.shards
        m = cost.shape[0]
        mean = shards.reduce(BarycenterShard.mean).value / sizes.mass.value
        self.average = _base.smooth(mean, np.full(m, 1 / m))[0]
        self.log_p, self.done, self.lower = logarithms(self.average), 0, -np.inf
        T, T_min = validation.initial_temperature(self.model.temperature), temperature.minimum(cost)
        if T is None:
            sample = Sample(evaluation.sample(sizes.n), self.average)
            _, temperatures = shards.reduce(BarycenterShard.initial_temperatures, sample)
            T = max(_INITIAL * float(temperatures.mean()), T_min) * self.units.unit
        self.control = _COOLING.init(T / self.units.unit, T_min)

    def arrays(self) -> dict[str, Any]:
        """Return the state, for a file."""
        state = {name: getattr(self, name) for name in ("log_p", "average", "done", "lower")}
        return state | {f"control_{name}": value for name, value in self.control.to_arrays().items()}

    def epoch(self) -> tuple[Epoch, str]:
        """Run one epoch; return its record and a note."""
        sizes, T, step = self.objective.sizes, self.control.T, self.control.step
        self.done += 1
        memory = min(_MEMORY, (self.done - 1) / (self.done + 1))
        sums = self.objective.shards.reduce(BarycenterShard.epoch, np.exp(self.log_p), T, memory)
        gradient = sums.gradient[0].over(sizes.mass.value)
        length = step * float(self.model.step_size) / costs.mean_cost(self.units.cost)
        self.log_p = mirror_step(self.log_p, gradient, length)
        self.average = memory * self.average + (1 - memory) * np.exp(self.log_p)
        estimate = sums.value.value / sizes.mass.value
        self.control = _COOLING.observe(self.control, estimate)
        due = _COOLING.due(self.control)
        if due:
            self._cool(self.improve_bound(_ASCENT))
        cost, T = self.units.value(estimate), T * self.units.unit
        lower = self.units.lower(self.lower) if due else np.nan
        return Epoch(cost, lower, np.nan, T, step, sums.sweeps / sizes.n), f"cost {cost:.3g}, T {T:.1e}"

    def _cool(self, gain: float) -> None:
        """Cool, or shorten the steps, if the cost has stalled or rises; the gain is that of the lower bound."""
        trend = _COOLING.trend(self.control, self.model.tol, gain)
        self.control = _COOLING.update(self.control, trend, lower=self.lower)
        if trend is not Trend.FALLING and not self.control.finished:  # from the average, as the model itself oscillates
            self.log_p = logarithms(self.average)

    def improve_bound(self, rounds: int) -> float:
        """Improve the lower bound by the mean potentials; return the gain."""
        old = self.lower
        self.lower = max(old, self.objective.lower_bound(rounds))
        return self.lower - old
