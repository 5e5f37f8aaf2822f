"""Online learning of `WassersteinNMF.partial_fit`: one batch of a stream after the other.

The memberships of a batch are found in the present components, as `mixture_coordinates` with ``gap=None`` does but in
fewer steps. Then the components take a few steps with the mean gradient of the batch. The length of a step is
proportional to the square root of the batch's share of all that has been seen. So with the b-th of equal batches it
falls as ``b**-0.5``, the usual rate of stochastic mirror descent. The model is the mean of what the steps came to, with
more weight on the last batches, as in a fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ... import costs
from ...core import validation
from ...costs import Units
from ...distributed import fixed_point
from ...distributed.fixed_point import Precision
from ...distributed.shard import Array, EpochSums, add
from ...oracle import evaluation
from ...oracle.chains import TargetChains
from ...oracle.mirror_descent import logarithms, mirror_step
from ...sampling import temperature
from ...sampling.annealing.adaptive import SavedState
from ...sampling.annealing.staged import Stage
from ..mixtures import STEP, descend, factors, least_squares
from .gradients import gradients

_STAGES = (Stage(20, 1.0), Stage(10, 0.3))  # of the memberships
_LEARNING = Stage(5, 0.3)  # of the components, with the memberships
_LENGTH = 0.015  # factor of their steps, which are relative to the mean cost of the last measures
_LEAST_COST = 0.0075  # that counts for them, relative to the mean cost between bins: gradients vanish more slowly
_MEMORY = 5000.0  # the weight over which the mean cost is taken


@dataclass(frozen=True)
class StreamState(SavedState):
    """What a stream carries from batch to batch, besides the components.

    Attributes
    ----------
    weight : float
        The sum of the weights of all measures so far.
    value : float
        The mean of V(z) over the last measures, in units of the cost.
    unit : float
        The temperature for a mean cost of one.
    """

    weight: float
    value: float
    unit: float


class Portion:
    """Measures of a stream, with their chains and memberships.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, m)
        Validated rows.
    sample_weight : array of shape (n,), optional
        The weights of the rows.
    units : Units
        The cost between bins, in single precision.
    batch_size : int
        The number of measures that are computed together; results are bit-identical for every number.
    first_id : int
        The id of the first measure's chain.
    **options
        ``tau``, ``rng`` and ``n_jobs`` of the oracle.
    """

    def __init__(
        self, X: Any, sample_weight: ArrayLike | None, units: Units, batch_size: int, first_id: int, **options: Any
    ) -> None:
        weights = np.ones(X.shape[0])
        if sample_weight is not None:
            weights = validation.sample_weight(sample_weight, len(weights))
        rows = np.flatnonzero((validation.masses(X) > 0) & (weights > 0))
        if not len(rows):
            raise ValueError("sample_weight: is zero for every measure with mass; expected a positive one")
        self.weights, self.units, self.precision = weights[rows], units, Precision.of(units.cost, len(rows))
        self.weight = float(self.weights.sum())
        self._blocks = [slice(start, start + batch_size) for start in range(0, len(rows), batch_size)]
        ids = first_id + np.arange(len(rows))
        self._oracles = [TargetChains(units.cost, X[rows[block]], ids=ids[block], **options) for block in self._blocks]

    def __len__(self) -> int:
        return len(self.weights)

    def targets(self, most: int) -> sparse.csr_array:
        """Return the normalised measures, or a sample of them."""
        rows = sparse.vstack([oracle.targets for oracle in self._oracles], format="csr")
        return rows[evaluation.sample(len(self), most)]

    def start(self, D: NDArray[np.int32]) -> None:
        """Set the memberships to those of least squares."""
        found = factors(D)
        self.log_W = np.concatenate([logarithms(least_squares(oracle.targets, found)) for oracle in self._oracles])

    def initial_temperature(self, D: NDArray[np.int32]) -> tuple[float, float]:
        """Return the mean cost of a sample in the present memberships, and its initial temperature."""
        indices, found = evaluation.sample(len(self)), []
        for block, oracle in zip(self._blocks, self._oracles, strict=True):
            rows = indices[(indices >= block.start) & (indices < block.stop)]
            if len(rows):
                P = fixed_point.mixtures(np.exp(self.log_W[rows]), D)
                found.append(np.stack(evaluation.initial_temperatures(oracle, P, rows - block.start)))
        value, T = np.concatenate(found, axis=1).mean(axis=1).tolist()
        return value, T

    def descend(self, D: NDArray[np.int32], value: float, T: float) -> None:
        """Improve the memberships in fixed components."""
        for block, oracle in zip(self._blocks, self._oracles, strict=True):
            self.log_W[block] = descend(oracle, D, self.log_W[block], value, T, stages=_STAGES)

    def step(self, D: NDArray[np.int32], step: float, T: float) -> tuple[Array, float]:
        """Take a step with the memberships; return the mean gradient for the components, and the mean of V(z)."""
        largest, every = float(self.weights.max()), list[EpochSums]()
        for block, oracle in zip(self._blocks, self._oracles, strict=True):
            W, share = np.exp(self.log_W[block]), self.weights[block] / largest
            found, sums, _ = gradients(oracle, W, D, T, self.precision, share)
            every.append(sums)
            self.log_W[block] = mirror_step(self.log_W[block], found, step)
        mean, total = largest / self.weight, add(every)
        return total.gradient.times(mean * len(D)), total.value.value * mean


def first_state(batch: Portion, D: Array, initial_temperature: float | None) -> StreamState:
    """Return the state before the first batch of a stream.

    Parameters
    ----------
    batch : Portion
        The first batch.
    D : array of shape (K, m)
        Components.
    initial_temperature : float, optional
        The temperature of the first batch, in the units of the user.

    Returns
    -------
    StreamState
    """
    cost, quantised = batch.units.cost, fixed_point.components(D)
    batch.start(quantised)
    value, T = batch.initial_temperature(quantised)
    if initial_temperature is not None:
        T = initial_temperature / batch.units.unit
    value = max(value, evaluation.WEIGHT_THRESHOLD * costs.mean_cost(cost))
    return StreamState(0.0, value, T / value)


def learn(batch: Portion, log_D: Array, state: StreamState, step_size: float) -> tuple[Array, StreamState]:
    """Return the logarithms of the components, and the state of the stream, after a batch.

    Parameters
    ----------
    batch : Portion
        The batch.
    log_D : array of shape (K, m)
        Logarithms of the components.
    state : StreamState
        The state before the batch.
    step_size : float
        The step of the components.

    Returns
    -------
    array of shape (K, m), StreamState
    """
    cost, D = batch.units.cost, np.exp(log_D)
    scale = costs.mean_cost(cost)
    T, mean, weight = max(state.unit * state.value, temperature.minimum(cost)), 0.0, state.weight + batch.weight
    batch.start(fixed_point.components(D))
    batch.descend(fixed_point.components(D), state.value, T)
    n_steps, factor = _LEARNING
    step = _LENGTH * step_size / max(state.value, _LEAST_COST * scale) * np.sqrt(batch.weight / weight)
    for _ in range(n_steps):
        gradient, mean = batch.step(fixed_point.components(np.exp(log_D)), factor * STEP / state.value, factor * T)
        log_D = mirror_step(log_D, gradient, step)
    share = batch.weight / min(weight, _MEMORY + batch.weight)
    value = max(state.value + share * (mean - state.value), evaluation.WEIGHT_THRESHOLD * scale)
    return log_D, replace(state, weight=weight, value=value)
