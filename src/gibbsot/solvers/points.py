"""Distances of points in one to three dimensions by k-d trees: c-transforms and nearest arcs without a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .network_simplex import kernels

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Points:
    """Squared or plain Euclidean distances between points in one to three dimensions, by k-d trees.

    Parameters
    ----------
    X, Y : arrays of shape (m1, d) and (m2, d)
    squared : bool

    Examples
    --------
    >>> import numpy as np
    >>> points = Points(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 2.0]]))
    >>> points.rows(np.array([0.0, -4.0]), 2)
    array([[1, 0]])
    """

    def __init__(self, X: Array, Y: Array, squared: bool = True) -> None:
        self.X, self.Y, self.squared = np.ascontiguousarray(X), np.ascontiguousarray(Y), squared
        self.shape = len(X), len(Y)
        make = getattr(kernels(), f"KdTree{X.shape[1]}")
        self._tree_x, self._tree_y = make(self.X), make(self.Y)
        self.order_x, self.order_y = np.empty(len(X), np.int32), np.empty(len(Y), np.int32)
        self._tree_x.order(self.order_x)
        self._tree_y.order(self.order_y)

    def at(self, i: Indices, j: Indices) -> Array:
        squares = np.zeros(np.broadcast(i, j).shape)
        for a in range(self.X.shape[1]):
            squares += (self.X[i, a] - self.Y[j, a]) ** 2
        return squares if self.squared else np.sqrt(squares)

    def rows(self, h: Array, k: int, bound: Array | None = None) -> Indices:
        return self._query(self._tree_y, self.X, self.order_x, h, k, bound)[0]

    def columns(self, h: Array, k: int, bound: Array | None = None) -> Indices:
        return self._query(self._tree_x, self.Y, self.order_y, h, k, bound)[0]

    def row_min(self, h: Array) -> Array:
        """Return ``min_j c_ij + h_j``: the c-transform of -h."""
        return self._query(self._tree_y, self.X, self.order_x, h, 1, None)[1][:, 0]

    def column_min(self, h: Array) -> Array:
        """Return ``min_i c_ij + h_i``: the c-transform of -h."""
        return self._query(self._tree_x, self.Y, self.order_y, h, 1, None)[1][:, 0]

    def _query(
        self, tree: Any, x: Array, order: NDArray[np.int32], h: Array, k: int, bound: Array | None
    ) -> tuple[Indices, Array]:
        tree.set_h(np.ascontiguousarray(h))
        indices, values = np.empty((len(x), k), np.int64), np.empty((len(x), k))
        bound = np.empty(0) if bound is None else bound
        tree.nearest(x, queries=order, bound=bound, squared=self.squared, indices=indices, values=values)
        return indices, values
