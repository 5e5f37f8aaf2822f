"""Descent to a barycenter with the gradients of warm-started chains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..core import costs, validation
from ..core.costs import Units
from ..distributed.shard import Array, Sample, precision
from ..distributed.shards import Shards
from ..sampling import temperature
from ..sampling.annealing.plateau import PlateauCooling, Trend
from ..solvers import evaluation
from ..solvers.mirror_descent import logarithms, mirror_step
from . import _base
from ._barycenter_shard import FINE, BarycenterShard, Sizes, lower_bound
from ._loop import Epoch

_INITIAL = 0.2  # factor of the initial temperature of other models: chains follow one measure easily
MEMORY = 0.9  # of the running means of models and potentials, which vary less than the last ones
_COOLING = PlateauCooling(window=10, stride=10, cooling=0.5, damping=0.85, relative=True, rise=1.05, final_bias=0.02)
_ASCENT = 3  # rounds of the ascent of the lower bound every ten epochs


class Descent:
    """Mirror descent from the mean of the measures."""

    def __init__(self, model: Any, shards: Shards[BarycenterShard], units: Units, sizes: Sizes) -> None:
        cost = units.cost
        self.model, self.shards, self.units, self.sizes, self.lower = model, shards, units, sizes, -np.inf
        self.precision = precision(cost, self.sizes.n)
        m = cost.shape[0]
        mean = shards.reduce(BarycenterShard.mean) / (self.sizes.mass * 2.0**self.precision.bits)
        self.average = _base.smooth(mean, np.full(m, 1 / m))[0]
        T, T_min = validation.initial_temperature(model.temperature), temperature.minimum(cost)
        if T is None:
            sample = Sample(evaluation.sample(self.sizes.n), self.average)
            _, temperatures = shards.reduce(BarycenterShard.initial_temperatures, sample)
            T = max(_INITIAL * float(temperatures.mean()), T_min) * units.unit
        self.state = _COOLING.init(T / units.unit, T_min, m + self.sizes.support / self.sizes.n)

    def epochs(self) -> Iterator[tuple[Epoch, str]]:
        """Run epochs until the cooling has finished."""
        log_p, scale = logarithms(self.average), costs.mean_cost(self.units.cost)
        _, quantum, value_quantum = self.precision
        for epoch in range(1, self.model.max_epochs + 1):
            T, step = self.state.T, self.state.step
            memory = min(MEMORY, (epoch - 1) / (epoch + 1))
            sums = self.shards.reduce(BarycenterShard.epoch, np.exp(log_p), T, memory)
            gradient = sums.gradient[0] * (quantum / self.sizes.mass)
            log_p = mirror_step(log_p, gradient, step * float(self.model.step_size) / scale)
            self.average = memory * self.average + (1 - memory) * np.exp(log_p)
            estimate = sums.value * value_quantum / self.sizes.mass
            self.state = _COOLING.observe(self.state, estimate)
            due = _COOLING.due(self.state)
            gain = self.improve_bound(_ASCENT) if due else 0.0
            cost, T = self.units.value(estimate), T * self.units.unit
            lower = self.units.lower(self.lower) if due else np.nan
            record = Epoch(cost, lower, np.nan, T, step, sums.sweeps / self.sizes.n)
            yield record, f"cost {cost:.3g}, T {T:.1e}"
            trend = _COOLING.trend(self.state, self.model.tol, gain) if due else Trend.FALLING
            self.state = _COOLING.update(self.state, trend)
            if self.state.finished:
                return
            if trend is not Trend.FALLING:  # from the average, as the model itself oscillates
                log_p = logarithms(self.average)

    def improve_bound(self, rounds: int) -> float:
        """Improve the lower bound by the mean potentials; return the gain."""
        old = self.lower
        self.lower = max(old, lower_bound(self.shards, self.units.cost, rounds))
        return self.lower - old

    def objective(self, p: Array) -> float:
        """Return the exact objective of p."""
        total = self.shards.reduce(BarycenterShard.objective, p, self.state.T)
        return total * (FINE * self.precision.value) / self.sizes.mass

    def exact(self, p: Array, memory: float) -> tuple[float, Array]:
        """Return the exact objective of p and its gradient."""
        sums = self.shards.reduce(BarycenterShard.exact_epoch, p, self.state.T, memory)
        value = sums.value * (FINE * self.precision.value) / self.sizes.mass
        return value, sums.gradient[0] * (self.precision.potential / self.sizes.mass)
