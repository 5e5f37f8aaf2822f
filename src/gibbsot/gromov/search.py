"""What clouds and matrices share: the interface of a search, and lower bounds."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..costs import DenseCost
from ..exact.methods import optima
from ..io.budget import Budget
from .measures import Features, Measures

Array = NDArray[np.float64]

NEGLIGIBLE = 1e-14  # of the scale of the objective: a smaller decrease is rounding

_EPS = float(np.finfo(np.float64).eps)
_SORTED = 250_000  # distances that are sorted for the second lower bound; more are counted in bins
_BINS, _BLOCK = 65536, 2_000_000  # of distances, and how many are computed at once
_QUANTILES = 2000  # equal parts of the mass in the third lower bound, where weights are not uniform


class Found(NamedTuple):
    """What was found from a start: done if it is a local optimum."""

    value: float
    plan: sparse.csr_array
    steps: int
    done: bool


class Search:
    """A problem between points with weight, in units in which its numbers are about one.

    Attributes
    ----------
    measures : Measures
        The weights.
    alpha : float
        The share of the distances in the objective.
    features : Features or None
        What features add.
    unit : float
        The objective of the arguments is this times that of the search.
    moments : pair of float
        The means of the squared distances, which are squared Euclidean ones for clouds, inside X and Y.
    """

    measures: Measures
    alpha: float
    features: Features | None
    unit: float
    moments: tuple[float, float]

    def starts(self, count: int | None, noise: np.random.Generator, budget: Budget) -> list[Any]:
        """Return `count` starts, or all that the method has by default."""
        raise NotImplementedError

    def started(self, plan: sparse.csr_array) -> Any:
        """Return the start that a plan is."""
        raise NotImplementedError

    def descend(self, start: Any, most: int, budget: Budget) -> Found:
        """Return what at most `most` steps from a start find."""
        raise NotImplementedError

    def eccentricities(self) -> tuple[Array, Array]:
        """Return the root mean squares of the distances of every point, inside X and Y."""
        raise NotImplementedError

    def distances(self, side: int, rows: slice) -> Array:
        """Return some rows of the distances inside X or Y."""
        raise NotImplementedError

    def widest(self, side: int) -> tuple[float, float]:
        """Return bounds of all distances inside X or Y."""
        raise NotImplementedError

    def scale(self, plan: sparse.csr_array) -> float:
        """Return the sum of the absolute terms of the objective of a plan."""
        return self.alpha * sum(self.moments) + (0.0 if self.features is None else self.features.size(plan))

    def lower_bound(self, third: bool, budget: Budget) -> float:
        """Return a lower bound of the objective, rounded downwards."""
        weights = self.measures.p, self.measures.q
        found = self._rounded_down(_on_line(*self.eccentricities(), *weights))
        if not budget.spent:
            found = max(found, self._second())
        if third and not budget.spent:
            return max(self._with_features(found, budget), self._third(budget))
        return self._with_features(found, budget)

    def _with_features(self, own: float, budget: Budget) -> float:
        """Return a bound of the objective from one of the distances' part: features alone have an optimum, too."""
        if self.features is None:
            return own
        features = optima(self.measures.problem(self.features.cost), budget=budget)[0].lower
        return self.alpha * own + self.features.share * features

    def _rounded_down(self, square: float, apart: float = 0.0) -> float:
        """Return a lower bound of the square of a norm of a difference, whose terms are off by so much and rounding."""
        roots = sum(map(math.sqrt, self.moments))
        root = math.sqrt(square) - apart - 4 * max(self.measures.shape) * _EPS * roots
        return max(root, 0.0) ** 2 * (1 - 8 * _EPS)

    def _second(self) -> float:
        """Return the second lower bound: transport on the line between all distances inside X and inside Y."""
        p, q = self.measures.p, self.measures.q
        if max(len(p), len(q)) ** 2 <= _SORTED:
            x, y = (self.distances(side, slice(None)).ravel() for side in (0, 1))
            return self._rounded_down(_on_line(x, y, np.outer(p, p).ravel(), np.outer(q, q).ravel()))
        (x, a, apart), (y, b, other) = self._binned(0, p), self._binned(1, q)
        return self._rounded_down(_on_line(x, y, a, b), apart + other)

    def _binned(self, side: int, weight: Array) -> tuple[Array, Array, float]:
        """Return centres and masses of bins of all distances, and half the width of a bin."""
        low, high = self.widest(side)
        width = (high - low) / _BINS or 1.0
        mass, step = np.zeros(_BINS + 1), max(1, _BLOCK // len(weight))
        uniform = bool((weight == weight[0]).all())
        for begin in range(0, len(weight), step):
            rows = slice(begin, begin + step)
            block = self.distances(side, rows)
            block -= low
            block *= 1 / width
            number = block.astype(np.int32).ravel()
            shares = None if uniform else np.outer(weight[rows], weight).ravel()
            mass += np.bincount(number, shares, _BINS + 1) * (weight[0] ** 2 if uniform else 1.0)
        centres = np.linspace(low, high, _BINS + 1) + width / 2
        return centres, mass / float(mass.sum()), width / 2

    def _third(self, budget: Budget) -> float:
        """Return the third lower bound: transport whose costs are those of the distances from two points.

        Quantile functions are averaged over equal parts of the mass, which makes their distance no larger.
        """
        p, q = self.measures.p, self.measures.q
        uniform = len(p) == len(q) and bool((p == p[0]).all() and (q == q[0]).all())
        parts = len(p) if uniform else _QUANTILES
        first, second = (_quantiles(self.distances(k, slice(None)), w, parts) for k, w in ((0, p), (1, q)))
        squares = (first**2).mean(axis=1)[:, None] + (second**2).mean(axis=1) - 2 / parts * (first @ second.T)
        rounding = 8 * parts * _EPS * float(squares.max(initial=0.0) + sum(self.moments))
        costs = self.alpha * np.maximum(squares - rounding, 0.0)
        if self.features is not None:
            costs += self.features.all()
        return optima(self.measures.problem(DenseCost(costs)), budget=budget)[0].lower


def _on_line(x: Array, y: Array, p: Array, q: Array) -> float:
    """Return the transport cost between weighted points on the line with squared distances; weights have sum one."""
    if len(p) == len(q) and (p == p[0]).all() and (q == q[0]).all():
        return float(((np.sort(x) - np.sort(y)) ** 2).mean())
    first, second = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    ends = [np.cumsum(weight[order]) for weight, order in ((p, first), (q, second))]
    for end in ends:
        end /= end[-1]
    every = np.sort(np.concatenate(ends))
    i, j = (np.searchsorted(end, every) for end in ends)
    return float(np.diff(every, prepend=0.0) @ (x[first][i] - y[second][j]) ** 2)


def _quantiles(rows: Array, weight: Array, parts: int) -> Array:
    """Return the means of the quantile functions of rows over equal parts of the mass."""
    order = np.argsort(rows, axis=1, kind="stable")
    grid, found = np.linspace(0, 1, parts + 1), np.empty((len(rows), parts))
    for row, own, out in zip(rows, order, found, strict=True):
        mass = np.concatenate([[0.0], np.cumsum(weight[own])])
        integral = np.concatenate([[0.0], np.cumsum(weight[own] * row[own])])
        out[:] = np.diff(np.interp(grid, mass / mass[-1], integral)) * parts
    return found


def power_of_two(x: float) -> float:
    """Return a power of two near x, so that units change no digits; 1 for zero."""
    return math.ldexp(1.0, math.frexp(x)[1]) if x else 1.0
