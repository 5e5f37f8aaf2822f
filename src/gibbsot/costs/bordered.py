"""A cost with more points on either side, for mass that may be left over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..core import validation
from .base import Array, Coarser, Cost, Exact

if TYPE_CHECKING:
    from typing import Self


class BorderedCost(Cost):
    """Another cost with more rows and columns, which are the last; all of them have the same costs.

    Parameters
    ----------
    inner : Cost
        The other cost.
    outer : float
        The cost to the new points of either side.
    corner : float
        The cost between two new points.
    extra : pair of int
        The numbers of new rows and columns, at least one each.

    Attributes
    ----------
    inner, outer, corner, extra
        The parameters.
    shape, dtype, finite, depth, work
        As of `Cost`.

    Examples
    --------
    >>> from gibbsot import PointCost
    >>> BorderedCost(PointCost([0.0, 2.0]), 1.0, np.inf).matrix()
    array([[ 0.,  4.,  1.],
           [ 4.,  0.,  1.],
           [ 1.,  1., inf]])
    """

    def __init__(self, inner: Cost, outer: float, corner: float, extra: tuple[int, int] = (1, 1)) -> None:
        validation.check_range(abs(outer), "penalty", inner.dtype)
        self.inner, self.outer, self.corner, self.extra = inner, float(inner.dtype.type(outer)), corner, extra
        self.shape = inner.shape[0] + extra[0], inner.shape[1] + extra[1]
        self.dtype, self.depth, self.work = inner.dtype, inner.depth, inner.work + 2 * sum(self.shape)
        self.finite, self.bounded_search = inner.finite and bool(np.isfinite(corner)), inner.bounded_search

    def __repr__(self) -> str:
        more = "" if self.extra == (1, 1) else f", extra={self.extra}"
        return f"BorderedCost({self.inner!r}, outer={self.outer}, corner={self.corner}{more})"

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**self.inner.arrays(), "border": np.array([self.outer, self.corner, *self.extra])}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        from .conversion import from_arrays  # which knows all costs

        inner = {name: x for name, x in arrays.items() if name != "border"}
        outer, corner, *extra = arrays["border"].tolist()
        return cls(from_arrays(inner), outer, corner, (int(extra[0]), int(extra[1])) if extra else (1, 1))

    def astype(self, dtype: DTypeLike) -> BorderedCost:
        if self.dtype == np.dtype(dtype):
            return self
        return BorderedCost(self.inner.astype(dtype), self.outer, self.corner, self.extra)

    def operand(self) -> None:
        return None

    def _transform_one(self, x: Array, by_rows: bool) -> Array:
        out = np.empty((1, self.shape[0 if by_rows else 1]), self.dtype)
        self._transform_batch(x[None], by_rows, out, 1)
        return out[0]

    def _transform_batch(self, batch: Array, by_rows: bool, out: Array, threads: int) -> None:
        m, n = self.inner.shape[:: -1 if by_rows else 1]
        inside = np.empty((len(batch), n), self.dtype)
        self.inner._transform_batch(np.ascontiguousarray(batch[:, :m]), by_rows, inside, threads)
        least = batch[:, m:].min(axis=1, initial=np.inf, keepdims=True)
        out[:, :n] = np.minimum(inside, least + self.outer)
        out[:, n:] = np.minimum(batch[:, :m].min(axis=1, keepdims=True) + self.outer, least + self.corner)

    def _nearest(
        self, x: Array, k: int, by_rows: bool, below: NDArray[np.float64] | None, threads: int
    ) -> tuple[NDArray[np.int64], Array]:
        """Find k points of the inner cost, and all new ones: these make sure that there is a plan."""
        m, n = self.inner.shape[:: -1 if by_rows else 1]
        new = self.extra[1 if by_rows else 0]
        found = np.full((self.shape[0 if by_rows else 1], min(k, m) + new), -1, np.int64)
        sums = np.full(found.shape, np.inf, self.dtype)
        inside = None if below is None else below[:n]
        found[:n, new:], sums[:n, new:] = self.inner._nearest(
            np.ascontiguousarray(x[:m]), min(k, m), by_rows, inside, threads
        )
        if n < len(found):  # new points have the same cost to all others
            least = np.argsort(x[:m], kind="stable")[: min(k, m)]
            values = np.broadcast_to(x[least] + self.outer, (len(found) - n, len(least)))
            kept = np.isfinite(values) if below is None else values < below[n:, None]
            found[n:, new:], sums[n:, new:] = np.where(kept, least, -1), np.where(kept, values, np.inf)
        for column in range(new):
            values = np.full(len(found), x[m + column] + self.outer, self.dtype)
            values[n:] = x[m + column] + self.corner
            kept = np.isfinite(values) if below is None else values < below
            found[:, column], sums[:, column] = np.where(kept, m + column, -1), np.where(kept, values, np.inf)
        order = np.argsort(sums, axis=1, kind="stable")
        return np.take_along_axis(found, order, axis=1), np.take_along_axis(sums, order, axis=1)

    @property
    def searchable(self) -> bool:
        return self.inner.searchable

    def by_trees(self) -> BorderedCost | None:
        inner = self.inner.by_trees()
        return None if inner is None else self._around(inner, self.extra)

    def _around(self, inner: Cost, extra: tuple[int, int]) -> BorderedCost:
        """Return the same border of another cost."""
        return BorderedCost(inner, self.outer, self.corner, extra)

    def order(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        inside = self.inner.order()
        rows, columns = (np.append(x, np.arange(len(x), m)) for x, m in zip(inside, self.shape, strict=True))
        return rows, columns

    def subset(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> BorderedCost:
        inside = [x[x < m] for x, m in zip((rows, columns), self.inner.shape, strict=True)]
        extra = len(rows) - len(inside[0]), len(columns) - len(inside[1])
        return self._around(self.inner.subset(inside[0], inside[1]), extra)

    def coarsen(self, p: NDArray[np.float64], q: NDArray[np.float64], smallest: int) -> Coarser | None:
        m1, m2 = self.inner.shape
        found = self.inner.coarsen(p[:m1], q[:m2], smallest)
        if found is None:
            return None
        # new points are cells of their own
        rows, columns = (
            np.append(cells, len(w) + np.arange(new))
            for cells, w, new in zip(found[4:], found[2:4], self.extra, strict=True)
        )
        cost, between = self._around(found.cost, self.extra), self._around(found.between, self.extra)
        return Coarser(cost, between, np.append(found.p, p[m1:]), np.append(found.q, q[m2:]), rows, columns)

    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]:
        (m1, m2), finite = self.inner.shape, np.isfinite(self.corner)
        inside = self.inner.mean(p[:, :m1], q[:, :m2], threads)
        parts = p[:, :m1].sum(axis=1), p[:, m1:].sum(axis=1), q[:, :m2].sum(axis=1), q[:, m2:].sum(axis=1)
        sides = parts[0] * parts[3] + parts[1] * parts[2]
        corner = parts[1] * parts[3] * finite
        total = parts[0] * parts[2] * inside + sides * self.outer + corner * (self.corner if finite else 0.0)
        return np.asarray(total / (parts[0] * parts[2] + sides + corner), np.float64)

    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        i, j = np.broadcast_arrays(i, j)
        row, column = i >= self.inner.shape[0], j >= self.inner.shape[1]
        inside = self.inner.at(np.where(row, 0, i), np.where(column, 0, j))
        costs = np.where(row & column, self.corner, np.where(row | column, self.outer, inside))
        return np.asarray(costs, self.dtype)

    def matrix(self, rows: NDArray[np.intp] | None = None, columns: NDArray[np.intp] | None = None) -> Array:
        if rows is not None or columns is not None:
            return super().matrix(rows, columns)
        m1, m2 = self.inner.shape
        costs = np.full(self.shape, self.outer, self.dtype)
        costs[:m1, :m2], costs[m1:, m2:] = self.inner.matrix(), self.corner
        return costs

    def at_exact(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> Exact:
        i, j = np.broadcast_arrays(i, j)
        inside = (i < self.inner.shape[0]) & (j < self.inner.shape[1])
        costs = np.asarray(self.at(i, j), np.float64)
        high, low, size = costs, np.zeros_like(costs), np.abs(costs)
        high[inside], low[inside], size[inside] = self.inner.at_exact(i[inside], j[inside])
        return high, low, size

    def rounding(self) -> float:
        if min(self.outer, self.corner) >= 0:
            return self.inner.rounding()
        # beside negative costs a relative error is none of the value
        return self.inner.rounding() + self.inner.accuracy() * (abs(self.inner.least()) + self.inner.spread())

    def accuracy(self) -> float:
        return self.inner.accuracy() if min(self.outer, self.corner) >= 0 else 0.0

    def underflow(self) -> float:
        return self.inner.underflow()

    def vanishing(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> float:
        inside = (i < self.inner.shape[0]) & (j < self.inner.shape[1])
        return self.inner.vanishing(i[inside], j[inside])

    def spread(self) -> float:
        others = [self.outer, *([self.corner] if np.isfinite(self.corner) else [])]
        least = self.inner.least()
        return float(max(least + self.inner.spread(), *others) - min(least, *others))

    def least(self) -> float:
        return min(self.inner.least(), self.outer, self.corner)
