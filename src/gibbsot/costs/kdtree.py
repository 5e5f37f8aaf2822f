"""Distances of points in one to four dimensions: k-d trees, cells, and squares that are too small for doubles."""

from __future__ import annotations

import math
import threading
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.backend import backend

Array = NDArray[np.floating]
Indices = NDArray[np.int64]

MOST_DIMENSIONS = 4  # of k-d trees
_SMALL = 2.0**-480  # the squares of smaller numbers have lost digits
_CELL = 4  # points of a cell
_WIDE = 1000.0  # times the usual width: cells that hold everything
_TOGETHER = 1 << 16  # points whose lists are in memory at once
_CACHED = 32_768  # coordinates that are looked at at once


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
    room = np.empty(min(_CACHED, max(X.size, Y.size)))
    for z in (X,) if Y is X else (X, Y):
        flat = z.reshape(-1)
        for start in range(0, len(flat), _CACHED):
            some = flat[start : start + _CACHED]
            size = np.abs(some, out=room[: len(some)])
            if np.minimum.reduce(size) < 2.0**-400 and ((size > 0) & (size < 2.0**-400)).any():
                return _lost(X.shape[1], squared)
    return 0.0


def _lost(d: int, squared: bool) -> float:
    """Return how far distances in d dimensions may be off whose squares are too small."""
    return d * 5e-324 if squared else d * 2.0**-536


class SearchedPoints:
    """Points in one to four dimensions with their k-d tree, which is built when it is first used.

    `PointCost` searches with those of both sides; costs between the same points share them.

    Parameters
    ----------
    points : array of shape (m, d)

    Attributes
    ----------
    points : array of shape (m, d)
        The parameter.
    order : array of int32
        An order in which neighbours in space have neighbouring numbers.
    """

    def __init__(self, points: Array) -> None:
        self.points, self._lock = points, threading.Lock()

    @cached_property
    def _tree(self) -> Any:
        return backend().kd_tree(self.points)

    @cached_property
    def order(self) -> NDArray[np.int32]:
        order = np.empty(len(self.points), np.int32)
        self._tree.order(order)
        return order

    def least(
        self, of: SearchedPoints, h: Array, k: int, metric: str, below: Array | None = None, threads: int = 1
    ) -> tuple[Indices, Array]:
        """Return which of these points have the k least sums of h and the distance to other points, and the sums.

        Parameters
        ----------
        of : SearchedPoints
            The other points; each has a row of the results.
        h : array of shape (m,)
            A potential of these points.
        k : int
            The number of points.
        metric : {"sqeuclidean", "euclidean", "cityblock", "chebyshev"}
            The distance.
        below : array, optional
            Only smaller sums count.
        threads : int
            Threads over the other points.

        Returns
        -------
        found, sums : arrays of shape (n, k)
        """
        found, sums = np.empty((len(of.points), k), np.int64), np.empty((len(of.points), k))
        bound, order = np.empty(0) if below is None else below, of.order
        tree = self._tree  # once: another thread may build a second one at the same time
        with self._lock:  # a tree holds h while it answers
            tree.set_h(np.ascontiguousarray(h, np.float64), threads)
            tree.nearest(
                of.points, queries=order, bound=bound, metric=metric, n_threads=threads, indices=found, values=sums
            )
        return found, sums

    def below(
        self, of: SearchedPoints, h: Array, k: int, metric: str, bound: NDArray[np.float64], threads: int = 1
    ) -> tuple[Indices, Indices]:
        """Return the pairs of other points and of these whose sums are below bounds, without a list of each point.

        Parameters
        ----------
        of, h, k, metric, threads
            As of `least`.
        bound : array of shape (n,)
            Only smaller sums count.

        Returns
        -------
        others, these : arrays of int64
        """
        tree, order, others, these = self._tree, of.order, list[Indices](), list[Indices]()
        with self._lock:
            tree.set_h(np.ascontiguousarray(h, np.float64), threads)
            for start in range(0, len(order), _TOGETHER):
                some = order[start : start + _TOGETHER]
                found, sums = np.empty((len(some), k), np.int64), np.empty((len(some), k))
                tree.nearest(
                    of.points[some], queries=np.arange(len(some), dtype=np.int32), bound=bound[some], metric=metric,
                    n_threads=threads, indices=found, values=sums,
                )  # fmt: skip
                i, place = np.nonzero(found >= 0)
                others.append(some[i].astype(np.int64))
                these.append(found[i, place])
        return np.concatenate(others), np.concatenate(these)


def joined(x: Array, a: NDArray[np.float64], smallest: int) -> tuple[Array, NDArray[np.float64], Indices]:
    """Return the weighted centroids and the weights of cells of neighbouring points, and the cell of each point.

    Parameters
    ----------
    x : array of shape (m, d)
        Points.
    a : array of shape (m,)
        Positive weights.
    smallest : int
        No more points than this are not joined.
    """
    if len(x) <= smallest:
        return x, a, np.arange(len(x))
    label = np.empty(len(x), np.int64)
    cells = _without_wide(x, label, backend().median_cells(x, _CELL, label))
    weight = np.asarray(np.bincount(label, a, cells), np.float64)
    share, divisor = a, weight
    if sum(math.frexp(float(np.abs(z).max()))[1] for z in (x, weight)) > 1020:  # products may overflow
        share, divisor = a / weight[label], np.ones(cells)
    centroid = np.stack([np.bincount(label, share * c, cells) / divisor for c in x.T], axis=1)
    order = SearchedPoints(centroid).order
    number = np.empty(cells, np.int64)
    number[order] = np.arange(cells)
    return centroid[order], weight[order], number[label]


def _without_wide(x: Array, label: Indices, cells: int) -> int:
    """Make cells of their own of the points of cells that are far wider than most; return the number of cells.

    A cell that joins an outlier to other points has its centre where there is none, and its potentials mislead.
    """
    order = np.argsort(label, kind="stable")
    starts = np.searchsorted(label[order], np.arange(cells))
    width = (np.maximum.reduceat(x[order], starts) - np.minimum.reduceat(x[order], starts)).max(axis=1)
    wide = width > _WIDE * np.median(width)
    if not wide.any():
        return cells
    single = wide[label]
    label[single] = cells + np.arange(np.count_nonzero(single))
    _, label[:] = np.unique(label, return_inverse=True)
    return int(label.max()) + 1
