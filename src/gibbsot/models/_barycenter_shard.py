"""The measures of a barycenter in shards, and the lower bound that their potentials prove."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.costs import Cost
from ..distributed import fixed_point
from ..distributed.shard import Array, EpochSums, Indices, Shard, command, precision, query
from ..distributed.shards import Shards
from ..solvers.solution import Solution

_LARGEST = 8  # bound of the potentials in the ascent of the lower bound, as a multiple of the spread of the costs
FINE = _LARGEST * 2.0 ** (fixed_point.COMPONENT_BITS - 53)  # of the quantum of values: sums in double precision


class Sizes(NamedTuple):
    """The number of measures, the sum of their weights in quanta, and the size of their supports."""

    n: int
    mass: int
    support: int


class _Potentials(NamedTuple):
    """The weighted sum of potentials in two parts: in quanta, and the remainder in quanta of ``2**-bits``."""

    high: NDArray[np.int64]
    low: NDArray[np.int64]


class BarycenterShard(Shard[Array]):
    """Measures, their weights, their chains, and running means of their potentials; a model is one measure p."""

    @query
    def has_mass(self) -> NDArray[np.bool_]:
        """Return which rows have mass."""
        mask = np.zeros(self._metadata.n_rows, bool)
        mask[self.rows] = True
        return mask

    @command
    def set_weights(self, weights: Array | None, cost: Cost) -> None:
        """Set the weights of the measures, at most one, and the cost in double precision."""
        own = np.ones(len(self)) if weights is None else weights
        self.weights = fixed_point.quantise(own[:, None], 2.0**-self.bits)
        self.cost, self.largest = cost, _LARGEST * cost.spread()
        self.potentials: NDArray[Any] = np.zeros((len(self), cost.shape[0]), np.float32)

    @query
    def sizes(self) -> Sizes:
        """Return the number of measures, their total weight and the size of their supports."""
        return Sizes(len(self), int(self.weights.sum()), self.support_size())

    @query
    def mean(self) -> NDArray[np.int64]:
        """Return the weighted sum of the measures, of shape (1, m), in products of two quanta."""
        if not len(self):
            return np.zeros((1, self._metadata.n_columns), np.int64)
        targets = fixed_point.quantise(self.oracle.targets.toarray(), 2.0**-self.bits)
        return fixed_point.product(self.weights, targets, self.bits)

    @command
    def epoch(self, p: Array, temperature: float, memory: float) -> EpochSums:
        """Advance the chains for the model p, and the running means of potentials, which keep a share `memory`."""
        if not len(self):
            return EpochSums(np.zeros((1, len(p)), np.int64), 0, 0)
        values, U, info = self.oracle(p, temperature)
        self.potentials = (memory * self.potentials + (1 - memory) * U).astype(U.dtype)
        gradient = fixed_point.product(self.weights, fixed_point.quantise(U, self.quantum), self.bits)
        value = _weighted_sum(self.weights, fixed_point.quantise(values, self.value_quantum))
        return EpochSums(gradient, value, int(info.sweeps.sum()))

    @command
    def exact_epoch(self, p: Array, temperature: float, memory: float) -> EpochSums:
        """Do as `epoch` with exact potentials; the value is in fine quanta."""
        if not len(self):
            return EpochSums(np.zeros((1, len(p)), np.int64), 0, 0)
        optima = self.oracle.exact(p, temperature)
        U = np.stack([optimum.f - p @ optimum.f for optimum in optima])
        self.potentials = memory * self.potentials + (1 - memory) * U
        gradient = fixed_point.product(self.weights, fixed_point.quantise(U, self.quantum), self.bits)
        return EpochSums(gradient, self._objective(optima), 0)

    @query
    def ascended(self) -> Array:
        """Return the potentials L of the last ascent."""
        return np.asarray(self.L, np.float64) if len(self) else np.empty((0, self._metadata.n_columns))

    @command
    def ascend(self, mean: Array | None) -> _Potentials:
        """Subtract the mean from the potentials and apply two c-transforms; return the weighted sum of the potentials.

        Without a mean, the ascent of the lower bound starts from the running means of the potentials.
        """
        if mean is None:
            self.U: NDArray[Any] = self.potentials.astype(np.float64)
        elif len(self):
            self.L = self.cost.col_max(np.clip(self.U - mean, -self.largest, self.largest), self.oracle.n_jobs)
            self.U = self.cost.row_min(self.L, self.oracle.n_jobs)
        quantum = _LARGEST * self.quantum
        high = fixed_point.quantise(self.U, quantum)
        low = fixed_point.quantise(self.U - high * quantum, quantum * 2.0**-self.bits)
        return _Potentials(*(fixed_point.product(self.weights, x, self.bits) for x in (high, low)))

    @query
    def target_cost(self) -> int:
        """Return the weighted sum of ``<x, L>``, plus what rounding could add to a bound, in fine quanta."""
        if not len(self):
            return 0
        largest = np.abs(self.U).max(axis=1) + np.abs(self.L).max(axis=1)
        slack = (2 * self.cost.depth + 2) * np.finfo(np.float64).eps * largest
        values = np.asarray(self.oracle.targets.multiply(self.L).sum(axis=1)).ravel()
        return _weighted_sum(self.weights, np.ceil((values + slack) / (FINE * self.value_quantum)))

    @query
    def objective(self, p: Array, temperature: float) -> int:
        """Return the weighted sum of the costs of optimal plans, in the user's precision, in fine quanta."""
        if not len(self):
            return 0
        return self._objective(self.oracle.exact(p, temperature))

    def _objective(self, optima: list[Solution]) -> int:
        """Return the weighted sum of the costs of plans, in fine quanta."""
        plans = [sparse.coo_array(optimum.plan) for optimum in optima]
        values = np.array([(plan.data * self.cost.at(plan.row, plan.col)).sum() for plan in plans])
        return _weighted_sum(self.weights, fixed_point.quantise(values, FINE * self.value_quantum))

    def models(self, rows: Indices, model: Array) -> Array:
        return np.tile(model, (len(rows), 1))


def _weighted_sum(weights: Array, values: Array) -> int:
    """Return the sum of products of quantised numbers, in integers that cannot overflow."""
    return sum(int(w) * int(v) for w, v in zip(weights.ravel().tolist(), values.tolist(), strict=True))


def lower_bound(shards: Shards[BarycenterShard], cost: Cost, rounds: int = 50) -> float:
    r"""Return a lower bound of the objective of every measure p, for any potentials U of the measures.

    .. math::

        \sum_i \lambda_i W(p, x_i) \ge \min_a \sum_i \lambda_i U_{ia} - \sum_i \lambda_i \langle x_i, L_i \rangle,
        \qquad L_{ij} = \max_a (U_{ia} - M_{aj})

    by the duality of each W. The bound is better the flatter the mean of the potentials is. So every round subtracts
    the mean from them, which lowers L, and replaces U by the c-transform of this L; the bound never falls. What
    rounding could add to it is subtracted.

    Parameters
    ----------
    shards : Shards of BarycenterShard
        The measures, their weights lambda and their mean potentials.
    cost : Cost
        The cost, in the precision of the chains.
    rounds : int
        The number of rounds.

    Returns
    -------
    float
        The bound.
    """
    sizes = shards.reduce(BarycenterShard.sizes)
    bits, quantum, value_quantum = precision(cost, sizes.n)
    high, low = _LARGEST * quantum, _LARGEST * quantum * 2.0**-bits

    def mean(sums: _Potentials) -> Array:
        return np.asarray((sums.high[0] * high + sums.low[0] * low) / sizes.mass)

    U = mean(shards.reduce(BarycenterShard.ascend, None))
    for _ in range(rounds):
        U = mean(shards.reduce(BarycenterShard.ascend, U))
    rounding = low + 4 * np.finfo(np.float64).eps * float(np.abs(U).max())
    total = shards.reduce(BarycenterShard.target_cost)
    return float(U.min() - total * (FINE * value_quantum) / sizes.mass - rounding)
