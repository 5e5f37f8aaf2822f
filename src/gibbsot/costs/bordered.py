"""A cost with more points on either side, for mass that may be left over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..core import validation
from .base import Array, Coarser, Cost, Counts, Exact
from .network import Network

if TYPE_CHECKING:
    from typing import Self


class BorderedCost(Cost):
    """Another cost with more rows and columns, which are the last. All new rows are alike, and so are all new columns.

    Parameters
    ----------
    inner : Cost
        The other cost.
    outer : float, or pair of floats or arrays of shape (m1,) and (m2,)
        The costs of the rows of the other cost to the new columns, and of its columns to the new rows; a number for
        all. At least 0.
    corner : float
        The cost between two new points, at least 0.
    extra : pair of int
        The numbers of new rows and columns, at least one each.

    Attributes
    ----------
    inner, corner, extra
        The parameters.
    outer : pair of arrays of shape (m1,) and (m2,)
        The costs to the new points.
    shape, dtype, finite, depth, work
        As of `Cost`.

    Examples
    --------
    >>> from gibbsot import PointCost
    >>> BorderedCost(PointCost([0.0, 2.0]), 1.0, np.inf).matrix()
    array([[ 0.,  4.,  1.],
           [ 4.,  0.,  1.],
           [ 1.,  1., inf]])
    >>> BorderedCost(PointCost([0.0, 2.0]), ([1.0, 3.0], 2.0), 0.0).matrix()
    array([[0., 4., 1.],
           [4., 0., 3.],
           [2., 2., 0.]])
    """

    named_by = "border"

    def __init__(
        self, inner: Cost, outer: float | tuple[ArrayLike, ArrayLike], corner: float, extra: tuple[int, int] = (1, 1)
    ) -> None:
        sides = outer if isinstance(outer, tuple) else (outer, outer)
        largest = max(float(np.max(x)) for x in sides)
        validation.check_range(max(largest, inner.spread()), "penalty", inner.dtype)
        rows, columns = (np.full(m, x, inner.dtype) for x, m in zip(sides, inner.shape, strict=True))
        self.inner, self.outer, self.corner, self.extra = inner, (rows, columns), corner, extra
        self.shape = inner.shape[0] + extra[0], inner.shape[1] + extra[1]
        self.dtype, self.depth, self.work = inner.dtype, inner.depth, inner.work + 2 * sum(self.shape)
        self.finite, self.bounded_search = inner.finite and bool(np.isfinite(corner)), inner.bounded_search

    def __repr__(self) -> str:
        more = "" if self.extra == (1, 1) else f", extra={self.extra}"
        outer = "of each point" if self.common_outer is None else self.common_outer
        return f"BorderedCost({self.inner!r}, outer={outer}, corner={self.corner}{more})"

    @property
    def inner_shape(self) -> tuple[int, int]:
        return self.inner.shape

    def forbidden(self) -> Counts:
        """Count the pairs of two new points, and those of the other cost where it has counts."""
        inside = self.inner.forbidden() or tuple(np.zeros(m, np.int64) for m in self.inner.shape)
        new = (0, 0) if np.isfinite(self.corner) else self.extra
        rows, columns = (
            np.append(x, np.full(own, others)) for x, own, others in zip(inside, self.extra, new[::-1], strict=True)
        )
        return rows, columns

    def network(self) -> Network | None:
        """Return the other cost's network with a node for each point, linked to that network and to the new points.

        Nothing passes through these nodes, as costs to the new points are not shortest paths. All new rows share one
        node, and so do all new columns.
        """
        inside = self.inner.network()
        if inside is None:
            return None
        (m1, m2), n = self.inner.shape, inside.nodes
        own_rows, own_columns = (k + np.arange(m, dtype=np.int32) for k, m in ((n, m1), (n + m1, m2)))
        row, column = (np.full(m, n + m1 + m2 + k, np.int32) for k, m in ((0, m2), (1, m1)))
        tail = np.concatenate([inside.tail, own_rows, inside.columns, own_rows, row, row[:1]])
        head = np.concatenate([inside.head, inside.rows, own_columns, column, own_columns, column[:1]])
        forward = np.concatenate([inside.forward, np.zeros(m1 + m2), *self.outer, [self.corner]]).astype(np.float64)
        backward = np.concatenate([inside.backward, np.full(len(tail) - len(inside.tail), np.inf)])
        rows, columns = (
            np.concatenate([own, np.repeat(new[:1], extra)])
            for own, new, extra in zip((own_rows, own_columns), (row, column), self.extra, strict=True)
        )
        kept = np.isfinite(forward) | np.isfinite(backward)
        tail, head, forward, backward = tail[kept], head[kept], forward[kept], backward[kept]
        nodes, more = n + m1 + m2 + 2, (inside.accuracy, inside.closed_form)
        return Network(nodes, tail, head, forward, backward, rows, columns, *more)

    @property
    def common_outer(self) -> float | None:
        """The cost to the new points, if it is the same for all points."""
        first = self.outer[0][0]
        return float(first) if all((x == first).all() for x in self.outer) else None

    def arrays(self) -> dict[str, NDArray[Any]]:
        rows, columns = self.outer
        border = np.array([self.corner, *self.extra])
        inner = {f"inner_{name}": x for name, x in self.inner.arrays().items()}
        return {**inner, "border": border, "border_rows": rows, "border_columns": columns}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        from .conversion import from_arrays  # which knows all costs

        inner = {name.removeprefix("inner_"): x for name, x in arrays.items() if name.startswith("inner_")}
        corner, *extra = arrays["border"].tolist()
        outer = arrays["border_rows"], arrays["border_columns"]
        return cls(from_arrays(inner), outer, corner, (int(extra[0]), int(extra[1])))

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
        own, others = self.outer if by_rows else self.outer[::-1]
        least = batch[:, m:].min(axis=1, initial=np.inf, keepdims=True)
        out[:, :n] = np.minimum(inside, least + own)
        out[:, n:] = np.minimum((batch[:, :m] + others).min(axis=1, keepdims=True), least + self.corner)

    def _nearest(
        self, x: Array, k: int, by_rows: bool, below: NDArray[np.float64] | None, threads: int
    ) -> tuple[NDArray[np.int64], Array]:
        """Find k points of the inner cost, and all new ones: these make sure that there is a plan."""
        m, n = self.inner.shape[:: -1 if by_rows else 1]
        new, (own, others) = self.extra[1 if by_rows else 0], self.outer if by_rows else self.outer[::-1]
        found = np.full((self.shape[0 if by_rows else 1], min(k, m) + new), -1, np.int64)
        sums = np.full(found.shape, np.inf, self.dtype)
        inside = None if below is None else below[:n]
        found[:n, new:], sums[:n, new:] = self.inner._nearest(
            np.ascontiguousarray(x[:m]), min(k, m), by_rows, inside, threads
        )
        if n < len(found):  # all new points have the same costs
            outside = x[:m] + others
            least = np.lexsort((x[:m], outside))[: min(k, m)]
            values = np.broadcast_to(outside[least], (len(found) - n, len(least)))
            kept = np.isfinite(values) if below is None else values < below[n:, None]
            found[n:, new:], sums[n:, new:] = np.where(kept, least, -1), np.where(kept, values, np.inf)
        for column in range(new):
            values = np.full(len(found), x[m + column] + self.corner, self.dtype)
            values[:n] = x[m + column] + own
            kept = np.isfinite(values) if below is None else values < below
            found[:, column], sums[:, column] = np.where(kept, m + column, -1), np.where(kept, values, np.inf)
        order = np.argsort(sums, axis=1, kind="stable")
        return np.take_along_axis(found, order, axis=1), np.take_along_axis(sums, order, axis=1)

    @property
    def searchable(self) -> bool:
        return self.common_outer is not None and self.inner.searchable  # cells of points have one cost to new ones

    def by_trees(self) -> BorderedCost | None:
        inner = self.inner.by_trees() if self.searchable else None
        return None if inner is None else BorderedCost(inner, self.outer, self.corner, self.extra)

    def order(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        inside = self.inner.order()
        rows, columns = (np.append(x, np.arange(len(x), m)) for x, m in zip(inside, self.shape, strict=True))
        return rows, columns

    def subset(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> BorderedCost:
        inside = [x[x < m] for x, m in zip((rows, columns), self.inner.shape, strict=True)]
        extra = len(rows) - len(inside[0]), len(columns) - len(inside[1])
        outer = self.outer[0][inside[0]], self.outer[1][inside[1]]
        return BorderedCost(self.inner.subset(inside[0], inside[1]), outer, self.corner, extra)

    def coarsen(self, p: NDArray[np.float64], q: NDArray[np.float64], smallest: int) -> Coarser | None:
        (m1, m2), outer = self.inner.shape, self.common_outer
        found = None if outer is None else self.inner.coarsen(p[:m1], q[:m2], smallest)
        if found is None or outer is None:
            return None
        # new points are cells of their own
        rows, columns = (
            np.append(cells, len(w) + np.arange(new))
            for cells, w, new in zip(found[4:], found[2:4], self.extra, strict=True)
        )
        cost, between = (BorderedCost(inner, outer, self.corner, self.extra) for inner in found[:2])
        return Coarser(cost, between, np.append(found.p, p[m1:]), np.append(found.q, q[m2:]), rows, columns)

    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]:
        (m1, m2), finite = self.inner.shape, np.isfinite(self.corner)
        inside = self.inner.mean(p[:, :m1], q[:, :m2], threads)
        parts = p[:, :m1].sum(axis=1), p[:, m1:].sum(axis=1), q[:, :m2].sum(axis=1), q[:, m2:].sum(axis=1)
        outer = (p[:, :m1] @ self.outer[0]) * parts[3] + parts[1] * (q[:, :m2] @ self.outer[1])
        corner = parts[1] * parts[3] * finite
        total = parts[0] * parts[2] * inside + outer + corner * (self.corner if finite else 0.0)
        return np.asarray(total / (parts[0] * (parts[2] + parts[3]) + parts[1] * parts[2] + corner), np.float64)

    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        i, j = np.broadcast_arrays(i, j)
        row, column = i >= self.inner.shape[0], j >= self.inner.shape[1]
        own, others = np.where(row, 0, i), np.where(column, 0, j)
        outer = np.where(column, self.outer[0][own], self.outer[1][others])
        costs = np.where(row | column, outer, self.inner.at(own, others))
        return np.asarray(np.where(row & column, self.corner, costs), self.dtype)

    def matrix(self, rows: NDArray[np.intp] | None = None, columns: NDArray[np.intp] | None = None) -> Array:
        if rows is not None or columns is not None:
            return super().matrix(rows, columns)
        m1, m2 = self.inner.shape
        costs = np.full(self.shape, self.corner, self.dtype)
        costs[:m1, :m2], costs[:m1, m2:], costs[m1:, :m2] = self.inner.matrix(), self.outer[0][:, None], self.outer[1]
        return costs

    def matrix_memory(self) -> float:
        return 8.0 * self.shape[0] * self.shape[1] + self.inner.matrix_memory()

    def at_exact(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> Exact:
        i, j = np.broadcast_arrays(i, j)
        inside = (i < self.inner.shape[0]) & (j < self.inner.shape[1])
        costs = np.asarray(self.at(i, j), np.float64)
        high, low, size = costs, np.zeros_like(costs), np.abs(costs)
        high[inside], low[inside], size[inside] = self.inner.at_exact(i[inside], j[inside])
        return high, low, size

    def rounding(self) -> float:
        return self.inner.rounding()

    def accuracy(self) -> float:
        return self.inner.accuracy()

    def underflow(self) -> float:
        return self.inner.underflow()

    def vanishing(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> float:
        inside = (i < self.inner.shape[0]) & (j < self.inner.shape[1])
        return self.inner.vanishing(i[inside], j[inside])

    def spread(self) -> float:
        others = [*self._outer_range(), *([self.corner] if np.isfinite(self.corner) else [])]
        least = self.inner.least()
        return float(max(least + self.inner.spread(), *others) - min(least, *others))

    def least(self) -> float:
        return min(self.inner.least(), self._outer_range()[0], self.corner)

    def _outer_range(self) -> tuple[float, float]:
        """Return the least and the largest cost to the new points."""
        return min(float(x.min()) for x in self.outer), max(float(x.max()) for x in self.outer)
