"""The measures of a barycenter in shards, and the bounds that their potentials prove."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost, from_arrays
from ...costs.problems import Problem
from ...distributed import fixed_point
from ...distributed.fixed_point import Fixed, Precision
from ...distributed.shard import Array, ChainShard, EpochSums, Indices, command, query
from ...distributed.shards import Shards
from ...exact import certificate
from ...exact.methods import optima
from ...exact.solution import Solution
from ...io import npz, schemas

if TYPE_CHECKING:
    from typing import Self

_LARGEST = 8  # bound of the potentials in the ascent of the lower bound, as a multiple of the spread of the costs
_FINE = _LARGEST * 2.0 ** (fixed_point.COMPONENT_BITS - 53)  # of the quantum of values: sums in double precision


class Sizes(NamedTuple):
    """The number of measures, the sum of their weights, rounded and exactly, and the size of their supports."""

    n: int
    mass: Fixed
    total: Fraction
    support: int


class _Potentials(NamedTuple):
    """The weighted sum of potentials in two parts, of which the second has the remainder of the first."""

    high: Fixed
    low: Fixed


class _Exact(NamedTuple):
    """The weighted sums of exact costs, rounded up, of exact potentials U, and of ``<x, L>``."""

    value: Fraction
    U: _Potentials
    target_cost: Fixed


class BarycenterShard(ChainShard[Array]):
    """Measures, their weights, their chains, and running means of their potentials; a model is one measure p."""

    saved = (*ChainShard.saved, "lambdas", "potentials")
    schema = schemas.BARYCENTER_SHARD

    @command
    def set_weights(self, weights: Array | None) -> None:
        """Set the weights of the measures, at most one."""
        self.lambdas: NDArray[Any] = np.ones(len(self)) if weights is None else weights
        self.potentials: NDArray[Any] = np.zeros((len(self), self._metadata.n_columns), np.float32)

    @property
    def weights(self) -> Fixed:
        """The weights, rounded down: as no cost is negative, what they prove holds for the weights given."""
        quantum = self.precision.weight
        return Fixed(np.floor(self.lambdas[:, None] / quantum), quantum)

    @command
    def set_cost(self, cost: Cost) -> None:
        """Set the cost in double precision."""
        self.cost, self.largest = cost, _LARGEST * cost.spread()

    @query
    def sizes(self) -> Sizes:
        """Return the number of measures, their total weight and the size of their supports."""
        total = sum(map(Fraction, self.lambdas.tolist()), Fraction(0))
        return Sizes(len(self), self.weights.sum(), total, self.support_size())

    @query
    def mean(self) -> Fixed:
        """Return the weighted sum of the measures, of shape (1, m)."""
        rows = self.oracle.targets.toarray() if len(self) else np.empty((0, self._metadata.n_columns))
        return fixed_point.product(self.weights, Fixed.of(rows, self.precision.weight), self.bits)

    @command
    def epoch(self, p: Array, temperature: float, memory: float) -> EpochSums:
        """Advance the chains for the model p, and the running means of potentials, which keep a share `memory`."""
        precision = self.precision
        if not len(self):
            return EpochSums(precision.no_gradient((1, len(p))), _weighted_sum(self.weights, precision.value, []), 0)
        values, U, info = self.oracle(p, temperature)
        self.potentials = (memory * self.potentials + (1 - memory) * U).astype(U.dtype)
        gradient = fixed_point.product(self.weights, Fixed.of(U, precision.potential), self.bits)
        value = _weighted_sum(self.weights, precision.value, Fixed.of(values, precision.value).integers.tolist())
        return EpochSums(gradient, value, int(info.sweeps.sum()))

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
            self.U, self.L = self._transforms(self.U - mean)
        return self._sum(self.U)

    @query
    def target_cost(self) -> Fixed:
        """Return the weighted sum of ``<x, L>``, plus what rounding could add to a bound."""
        return self._target_cost(self.U if len(self) else (), self.L if len(self) else ())

    @query
    def objective(self, p: Array) -> Fraction:
        """Return the weighted sum of the costs of optimal plans, rounded up."""
        return self._objective(self._optima(p))

    @query
    def exact(self, p: Array) -> _Exact:
        """Return the exact objective of the model p, and its cut: what optimal potentials prove for all models."""
        optima = self._optima(p)
        if not optima:
            return _Exact(Fraction(0), self._sum(np.empty((0, len(p)))), self._target_cost((), ()))
        U, L = self._transforms(np.stack([optimum.f for optimum in optima]))
        return _Exact(self._objective(optima), self._sum(U), self._target_cost(U, L))

    def _optima(self, p: Array) -> list[Solution]:
        """Return the exact optima of the model p, whose weights need not be normalised."""
        if not len(self):
            return []
        P = np.tile(p.astype(np.float64), (len(self), 1))
        problem = Problem.checked(P, self.oracle.targets.toarray(), self.cost, np.ones(len(self)))
        return optima(problem, n_jobs=self.oracle.n_jobs)

    def _objective(self, optima: list[Solution]) -> Fraction:
        """Return the weighted sum of upper bounds of costs."""
        uppers = (Fraction(optimum.upper) for optimum in optima)
        return sum((Fraction(w) * u for w, u in zip(self.lambdas.tolist(), uppers, strict=True)), Fraction(0))

    def _transforms(self, U: Array) -> tuple[Array, Array]:
        """Return potentials U and L of all measures, by two c-transforms of given ones."""
        L = self.cost.col_max(np.clip(U, -self.largest, self.largest), self.oracle.n_jobs)
        return np.asarray(self.cost.row_min(L, self.oracle.n_jobs)), np.asarray(L)

    def _sum(self, U: Array) -> _Potentials:
        """Return the weighted sum of potentials."""
        high = Fixed.of(U, _LARGEST * self.quantum)
        low = Fixed.of(U - high.value, high.quantum * self.precision.weight)
        return _Potentials(*(fixed_point.product(self.weights, x, self.bits) for x in (high, low)))

    def _target_cost(self, U: Iterable[Array], L: Iterable[Array]) -> Fixed:
        """Return the weighted sum of ``<x, L>``, plus what rounding could add to a bound."""
        values = []
        for i, (u, v) in enumerate(zip(U, L, strict=True)):
            own = slice(*self.oracle.targets.indptr[i : i + 2])
            x, y = self.oracle.targets.data[own], v[self.oracle.targets.indices[own]]
            # c-transforms of both sides, rounded
            size = Fraction(float(np.abs(u).max())) + Fraction(float(np.abs(v).max()))
            slack = (2 * self.cost.depth + 2) * Fraction(1, 2**52) * size
            mean = certificate.mean(x, y)
            values.append(mean.value + mean.error + slack)
        quantum = _FINE * self.value_quantum
        return _weighted_sum(self.weights, quantum, [math.ceil(value / Fraction(quantum)) for value in values])

    def _state(self) -> dict[str, Any]:
        cost = self.cost.arrays() if hasattr(self, "cost") else {}
        return super()._state() | {f"cost_{name}": x for name, x in cost.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the shard whose state `arrays` returned, with its cost: commands after a checkpoint need it."""
        shard = super().from_arrays(arrays)
        if cost := npz.with_prefix(arrays, "cost_"):
            shard.set_cost(from_arrays(cost))
        return shard

    def models(self, rows: Indices, model: Array) -> Array:
        return np.tile(model, (len(rows), 1))


def _weighted_sum(weights: Fixed, quantum: float, values: list[Any]) -> Fixed:
    """Return the sum of products with numbers in quanta, in integers that cannot overflow."""
    terms = zip(weights.integers.ravel().tolist(), values, strict=True)
    return Fixed(sum(int(w) * int(v) for w, v in terms), weights.quantum * quantum)


class Objective:
    r"""The objective of a barycenter, and the lower bounds that potentials prove, over the measures of all shards.

    .. math::

        \sum_i \lambda_i W(p, x_i) \ge \min_a \sum_i \lambda_i U_{ia} - \sum_i \lambda_i \langle x_i, L_i \rangle,
        \qquad L_{ij} = \max_a (U_{ia} - M_{aj})

    for every measure p and any potentials U of the measures, by the duality of each W. What rounding could add to a
    bound is subtracted.

    Parameters
    ----------
    shards : Shards of BarycenterShard
        The measures, their weights lambda and their mean potentials.
    cost : Cost
        The cost, in the precision of the chains.

    Attributes
    ----------
    sizes : Sizes
        Those of all shards.
    precision : Precision
        That of the sums.
    """

    def __init__(self, shards: Shards[BarycenterShard], cost: Cost) -> None:
        self.shards, self.sizes = shards, shards.reduce(BarycenterShard.sizes)
        self.precision = Precision.of(cost, self.sizes.n)

    def lower_bound(self, rounds: int = 50) -> float:
        """Return a lower bound of the objective of every measure, from the running means of the potentials.

        It is better the flatter the mean of the potentials is. So every round subtracts the mean from them, which
        lowers L, and replaces U by the c-transform of this L; the bound never falls.
        """
        U = self._mean(self.shards.reduce(BarycenterShard.ascend, None))
        for _ in range(rounds):
            U = self._mean(self.shards.reduce(BarycenterShard.ascend, U))
        return float(self._cut(U, self.shards.reduce(BarycenterShard.target_cost)).min())

    def value(self, p: Array) -> float:
        """Return the exact objective of p, rounded up; its weights need not be normalised."""
        return self._upper(self.shards.reduce(BarycenterShard.objective, p))

    def exact(self, p: Array) -> tuple[float, Array]:
        """Return the exact objective of p, and its cut: numbers whose mean under any measure is below its objective."""
        found = self.shards.reduce(BarycenterShard.exact, p)
        return self._upper(found.value), self._cut(self._mean(found.U), found.target_cost)

    def _upper(self, total: Fraction) -> float:
        return certificate.rounded_up(total / self.sizes.total)

    def _mean(self, total: _Potentials) -> Array:
        """Return the mean of potentials."""
        return np.asarray((total.high[0].value + total.low[0].value) / self.sizes.mass.value)

    def _cut(self, U: Array, target_cost: Fixed) -> Array:
        """Return the mean of U less the cost of the targets, and less what rounding could add.

        The means are those of weights that were rounded down. As no cost is negative, they hold for those given, in
        proportion to the sums of both.
        """
        low = _LARGEST * self.precision.potential * self.precision.weight  # the quantum of the remainders
        cost = target_cost.value / self.sizes.mass.value
        rounding = low + 8 * np.finfo(np.float64).eps * (float(np.abs(U).max()) + abs(cost))
        share = self.sizes.mass.value / float(self.sizes.total)
        cut = share * (U - cost - rounding)
        return np.asarray(cut - 4 * np.finfo(np.float64).eps * np.abs(cut))
