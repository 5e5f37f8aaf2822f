"""Distances of points in one to three dimensions by k-d trees: c-transforms and nearest arcs without a matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core import native

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_SMALL = 2.0**-480  # the squares of smaller numbers have lost digits


def vanishing(
    X: NDArray[np.floating], Y: NDArray[np.floating], squared: bool, i: NDArray[np.integer], j: NDArray[np.integer]
) -> float:
    """Return how much larger than computed the distances of pairs may be because squares were too small for doubles.

    Examples
    --------
    >>> import numpy as np
    >>> x, one = np.array([[0.0], [1.0]]), np.array([1])
    >>> vanishing(x, np.array([[1e-170], [0.0]]), True, one, one), vanishing(x, x, True, one, one)
    (0.0, 0.0)
    >>> vanishing(x, np.array([[1e-170], [0.0]]), True, 0 * one, 0 * one)
    5e-324
    """
    apart = np.abs(X[i] - Y[j])
    return _lost(X.shape[1], squared) if ((apart > 0) & (apart < _SMALL)).any() else 0.0


def underflow(X: NDArray[np.floating], Y: NDArray[np.floating], squared: bool) -> float:
    """Return how far distances of points may be off, beyond a relative error, because squares are too small.

    Coordinates of at least 2^-400 differ by nothing or by 2^-452 at least, whose square keeps all digits.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0, 1.0]])
    >>> underflow(x, x, True), underflow(x, 1e-150 * x, True)
    (0.0, 1e-323)
    """
    for z in (X,) if Y is X else (X, Y):
        size = np.abs(z)
        if size.min(initial=1.0) < 2.0**-400 and ((size > 0) & (size < 2.0**-400)).any():
            return _lost(X.shape[1], squared)
    return 0.0


def _lost(d: int, squared: bool) -> float:
    """Return how far distances in d dimensions may be off whose squares are too small."""
    return d * 5e-324 if squared else d * 2.0**-536


class Points:
    """Squared or plain Euclidean distances between points in one to three dimensions, by k-d trees.

    Parameters
    ----------
    X, Y : arrays of shape (m1, d) and (m2, d)
    squared : bool
    threads : int
        Threads of a query; the answers do not depend on them.

    Examples
    --------
    >>> import numpy as np
    >>> points = Points(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 2.0]]))
    >>> points.rows(np.array([0.0, -4.0]), 2)
    array([[1, 0]])
    """

    def __init__(self, X: Array, Y: Array, squared: bool = True, threads: int = 1) -> None:
        self.X, self.Y, self.squared, self.threads = np.ascontiguousarray(X), np.ascontiguousarray(Y), squared, threads
        self.shape = len(X), len(Y)
        make = getattr(native.kernels(), f"KdTree{X.shape[1]}")
        self._tree_x, self._tree_y = make(self.X), make(self.Y)
        self.order_x, self.order_y = np.empty(len(X), np.int32), np.empty(len(Y), np.int32)
        self._tree_x.order(self.order_x)
        self._tree_y.order(self.order_y)

    def at(self, i: Indices, j: Indices) -> Array:
        """Return the distances of pairs of points."""
        squares = np.zeros(np.broadcast(i, j).shape)
        for a in range(self.X.shape[1]):
            squares += (self.X[i, a] - self.Y[j, a]) ** 2
        return squares if self.squared else np.sqrt(squares)

    def rows(self, h: Array, k: int, bound: Array | None = None) -> Indices:
        """Return the k columns of least ``c_ij + h_j`` of each row; -1 where fewer are below the row's bound."""
        return self.least(h, k, True, bound)[0]

    def columns(self, h: Array, k: int, bound: Array | None = None) -> Indices:
        """Return the k rows of least ``c_ij + h_i`` of each column; -1 where fewer are below the column's bound."""
        return self.least(h, k, False, bound)[0]

    def row_min(self, h: Array) -> Array:
        """Return ``min_j c_ij + h_j``: the c-transform of -h."""
        return self.least(h, 1, True)[1][:, 0]

    def rows_and_min(self, h: Array, k: int) -> tuple[Indices, Array]:
        """Return both `rows` and `row_min`, from one search."""
        found, sums = self.least(h, k, True)
        return found, sums[:, 0].copy()

    def column_min(self, h: Array) -> Array:
        """Return ``min_i c_ij + h_i``: the c-transform of -h."""
        return self.least(h, 1, False)[1][:, 0]

    def least(self, h: Array, k: int, by_rows: bool, bound: Array | None = None) -> tuple[Indices, Array]:
        """Return where the k least sums of costs and h are, for each row or column, and the sums.

        A tree holds h while it answers: not for two threads at once.
        """
        tree, x, order = (self._tree_y, self.X, self.order_x) if by_rows else (self._tree_x, self.Y, self.order_y)
        tree.set_h(np.ascontiguousarray(h, np.float64))
        indices, values = np.empty((len(x), k), np.int64), np.empty((len(x), k))
        bound = np.empty(0) if bound is None else bound
        tree.nearest(
            x, queries=order, bound=bound, squared=self.squared, n_threads=self.threads, indices=indices, values=values
        )
        return indices, values


class BorderedPoints:
    """Distances with more rows and columns, as `Points`: for mass that may be left over.

    All rows and columns have the new arcs among those of least sums.

    Parameters
    ----------
    points : Points
    outer : float
        The cost to the new points.
    corner : float
        The cost between two of them.
    extra : pair of int
        The numbers of new rows and columns, at least one each.
    """

    def __init__(self, points: Points, outer: float, corner: float, extra: tuple[int, int] = (1, 1)) -> None:
        self._points, self._outer, self._corner = points, outer, corner
        self.X, self.Y, self.squared, self.threads = points.X, points.Y, points.squared, points.threads
        self.shape = points.shape[0] + extra[0], points.shape[1] + extra[1]
        self.order_x, self.order_y = (
            np.concatenate([order, np.arange(len(order), m, dtype=np.int32)])
            for order, m in zip((points.order_x, points.order_y), self.shape, strict=True)
        )

    def at(self, i: Indices, j: Indices) -> Array:
        """Return the costs of pairs of points."""
        row, column = i >= self._points.shape[0], j >= self._points.shape[1]
        inside = self._points.at(np.where(row, 0, i), np.where(column, 0, j))
        return np.where(row & column, self._corner, np.where(row | column, self._outer, inside))

    def rows(self, h: Array, k: int, bound: Array | None = None) -> Indices:
        """Return the columns of least sums of each row, and the new columns, as `Points.rows`.

        New rows have new columns only: see `of_new_rows`.
        """
        m = self._points.shape[1]
        inside = self._points.rows(h[:m], min(k, m), None if bound is None else bound[: self._points.shape[0]])
        return self._and_new(inside, h, m, bound, self.shape[0])

    def columns(self, h: Array, k: int, bound: Array | None = None) -> Indices:
        """Return the rows of least sums of each column, and the new rows, as `Points.columns`."""
        m = self._points.shape[0]
        inside = self._points.columns(h[:m], min(k, m), None if bound is None else bound[: self._points.shape[1]])
        return self._and_new(inside, h, m, bound, self.shape[1])

    def _and_new(self, inside: Indices, h: Array, m: int, bound: Array | None, n: int) -> Indices:
        """Return what was found among m points, and for all n points the new points, as far as the bound allows."""
        found = np.full((n, inside.shape[1] + len(h) - m), -1, np.int64)
        found[: len(inside), : inside.shape[1]] = inside
        for column, k in enumerate(range(m, len(h)), inside.shape[1]):
            new = np.full(n, self._outer + h[k])
            new[len(inside) :] = self._corner + h[k]
            found[:, column] = np.where(np.isfinite(new) if bound is None else new < bound, k, -1)
        return found

    def of_new_rows(self, h: Array, bound: Array) -> tuple[Indices, Indices]:
        """Return all pairs of new rows and columns of points whose ``c_ij + h_j`` is below the bound of the row."""
        m1, m2 = self._points.shape
        i, j = np.nonzero(self._outer + h[:m2] < bound[m1:, None])
        return i + m1, j

    def rows_and_min(self, h: Array, k: int) -> tuple[Indices, Array]:
        """Return both `rows` and `row_min`, from one search."""
        m = self._points.shape[1]
        inside, sums = self._points.rows_and_min(h[:m], min(k, m))
        return self._and_new(inside, h, m, None, self.shape[0]), self._least(sums, h, m, self.shape[0])

    def row_min(self, h: Array) -> Array:
        """Return ``min_j c_ij + h_j``."""
        m = self._points.shape[1]
        return self._least(self._points.row_min(h[:m]), h, m, self.shape[0])

    def column_min(self, h: Array) -> Array:
        """Return ``min_i c_ij + h_i``."""
        m = self._points.shape[0]
        return self._least(self._points.column_min(h[:m]), h, m, self.shape[1])

    def _least(self, inside: Array, h: Array, m: int, n: int) -> Array:
        """Return the least sums of all n points, from those among m points."""
        new = h[m:].min(initial=np.inf)
        last = np.full(n - len(inside), min(h[:m].min() + self._outer, new + self._corner))
        return np.concatenate([np.minimum(inside, new + self._outer), last])
