"""Distances of points in one to three dimensions by k-d trees: c-transforms and nearest arcs without a matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import native

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


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
