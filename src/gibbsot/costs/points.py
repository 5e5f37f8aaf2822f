"""Costs between points: distances that are computed when they are needed."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from functools import cached_property, reduce
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.spatial.distance import cdist

from ..core import labels, native, validation
from ..core.backend import backend
from .base import MATRIX_BYTES as MATRIX_BYTES
from .base import Array, Coarser, Cost, Geometry, Positions, frozen
from .dense import DenseCost, padded_columns
from .kdtree import MOST_DIMENSIONS, SearchedPoints, joined, underflow, vanishing

# Pairs above which k-d trees answer c-transforms: there one is about as fast as with a matrix, which need not be made.
TREE_PAIRS = 4_000_000

_BLOCK = 2_000_000  # entries of the blocks that are computed one after another
_PRODUCTS = 16  # coordinates from which Euclidean distances come from products of matrices
_FAST = 1 << 18  # entries that stay in the cache
_TILE = 256  # rows of such a tile of products
_CANCELLED = 1 / 8  # of the sum of squared lengths: squared distances below it are computed from the coordinates
_ASKED = 32  # points of each side that tell where their middle is
_CENTRED = 0.25  # of squared lengths: that of the way to the middle beyond which points are centred
_MANY = 0.1  # of all pairs: if more are near, all are computed from the coordinates
_POWERS = {"sqeuclidean": 2.0, "euclidean": 1.0}
NORMS = {"sqeuclidean": 2.0, "euclidean": 2.0, "cityblock": 1.0, "chebyshev": np.inf}


class PointCost(Cost):
    """The cost between two point clouds.

    The cost stores the points. In one to four dimensions, k-d trees answer the c-transforms and searches of large
    problems with squared and plain Euclidean, city-block and Chebyshev distances. A matrix is made when an operation
    needs it that is faster with one, such as the sweeps of the sampler, and if it takes at most 512 MB; otherwise
    distances are computed in blocks.

    The costs are the distances between the points as given: ``dtype`` is the precision of computations with them.

    Parameters
    ----------
    X : array of shape (m1, d) or (m1,)
        Points of the first measure; a vector stands for points on the line. A DataFrame or Series of pandas keeps its
        labels.
    Y : array of shape (m2, d) or (m2,), optional
        Points of the second measure, by default those of the first.
    metric : str
        A metric of :func:`scipy.spatial.distance.cdist`, the squared Euclidean distance by default.
    dtype : {float32, float64}, optional
        By default that of ``X`` if it is one of the two, else float64.

    Attributes
    ----------
    X, Y : arrays of float64, shape (m1, d) and (m2, d)
        The points, read-only.
    metric : str
        The metric.
    shape, dtype, finite, depth, work
        As of `Cost`.

    Examples
    --------
    >>> from gibbsot import PointCost
    >>> PointCost([0.0, 1.0, 3.0]).matrix()
    array([[0., 1., 9.],
           [1., 0., 4.],
           [9., 4., 0.]])
    """

    named_by = "X"
    finite = True

    _dense: DenseCost | None = None
    _single: PointCost | None = None
    _underflow: float | None = None
    _searched = False
    _options: Mapping[str, Array] = MappingProxyType({})

    def __init__(
        self, X: ArrayLike, Y: ArrayLike | None = None, metric: str = "sqeuclidean", dtype: DTypeLike | None = None
    ) -> None:
        first, ends = validation.points_and_extremes(X, "X")
        second, others = (first, ends) if Y is None else validation.points_and_extremes(Y, "Y")
        if first.shape[1] != second.shape[1]:
            raise ValueError(f"Y: expected points with {first.shape[1]} coordinates as in X, got {second.shape[1]}")
        if not isinstance(metric, str):
            raise TypeError(f"metric: expected the name of a metric, got {metric!r}; DenseCost takes any matrix")
        self.dtype = validation.precision(dtype, first)
        self.metric = metric
        # copies, as the arrays of the caller stay writeable
        self.X = frozen(np.array(first, np.float64, order="C"))
        self.Y = self.X if second is first else frozen(np.array(second, np.float64, order="C"))
        self._prepare(max(-ends[0], ends[1], -others[0], others[1]))
        self._check(max(ends[1] - others[0], others[1] - ends[0]))
        if type(X) is not np.ndarray or (Y is not None and type(Y) is not np.ndarray):
            names = labels.of_rows(X)
            self._labelled((names, names if Y is None else labels.of_rows(Y)))

    def _prepare(self, largest: float = 0.0) -> None:
        """Set what follows from the points, of which this is the largest coordinate, and the metric."""
        on_line = self.X.shape[1] == 1 and self.metric in ("cityblock", "chebyshev")  # distances, as the Euclidean one
        self._power, self._norm = _POWERS.get("euclidean" if on_line else self.metric), NORMS.get(self.metric)
        self.shape = len(self.X), len(self.Y)
        self.work = 2 * self.shape[0] * self.shape[1]
        # In double precision: difference, square, d - 1 additions and the square root, with the difference counted
        # twice, and the addition of a potential. In single precision distances are rounded once, from double.
        # Products are used where those of coordinates neither overflow nor vanish.
        self._by_products = self._power is not None and self.X.shape[1] >= _PRODUCTS and 1e-100 < largest < 1e100
        self.depth = self.X.shape[1] + 3 if self.dtype == np.float64 else 2
        if self._by_products and self.dtype == np.float64:
            self.depth = math.ceil(self.accuracy() * 2.0**52) + 3
        self._lock = threading.Lock()

    def _check(self, width: float) -> None:
        """Refuse unknown metrics, and distances out of range, in a time that is linear in the number of points.

        No two coordinates on different sides differ by more than the width.
        """
        if self._norm is not None and self.X.shape[1] == 1:  # arrays of one number take as long as a small problem
            size = width if self._norm != 2 else width * width if self._power == 2 else math.sqrt(width * width)
            validation.check_range(max(size, 5e-324 if width > 0 else 0.0), "X, Y", self.dtype)
            return
        if self._norm is not None:
            # one distance and a bound of all, where these are in range, are faster than the widths of many axes
            with np.errstate(over="ignore"):
                some = self._diameter(self.X[0] - self.Y[0]), self._diameter(np.full(self.X.shape[1], width))
            if validation.in_range(min(some), self.dtype) and validation.in_range(max(some), self.dtype):
                return
            widths = self._widths()
            least = 5e-324 if widths.any() else 0.0  # squares may vanish
            validation.check_range(max(self._diameter(widths), least), "X, Y", self.dtype)
            return
        try:
            self._options = _options(self.metric, self.X, self.Y)
            pairs = (self.X[:1], self.Y), (self.X, self.Y[:1])
            blocks = [cdist(*pair, self.metric, **self._options) for pair in pairs]
        except ValueError as error:
            raise ValueError(
                f"metric: {self.metric!r} is not one that scipy.spatial.distance.cdist takes ({error})"
            ) from None
        for block in blocks:
            _check_block(block, self.metric, self.dtype)
        validation.check_range(max(float(np.abs(block).max()) for block in blocks), "X, Y", self.dtype)

    def __repr__(self) -> str:
        counts = f"{self.shape[0]:,} points" if self.Y is self.X else f"{self.shape[0]:,} and {self.shape[1]:,} points"
        d = self.X.shape[1]
        precision = "" if self.dtype == np.float64 else f", dtype={self.dtype.name!r}"
        return f"PointCost(<{counts} in {d} dimension{'s' * (d > 1)}>, metric={self.metric!r}{precision})"

    @property
    def geometric(self) -> bool:
        """Whether the costs are plain or squared Euclidean distances."""
        return self._power is not None

    def symmetric(self) -> bool:
        return self.Y is self.X or np.array_equal(self.X, self.Y)

    def positions(self) -> Positions | None:
        norm = NORMS.get(self.metric)
        if norm is None:
            return None
        X = np.asarray(self.X, np.float64)  # for type checkers; it is one already
        Y = X if self.Y is self.X else np.asarray(self.Y, np.float64)
        return Positions(X, Y, norm, 2.0 if self.metric == "sqeuclidean" else 1.0)

    def geometry(self) -> Geometry | None:
        if self._power is None or self.X.shape[1] > MOST_DIMENSIONS:
            return None
        return Geometry(self.X, self.Y, self._power)

    def arrays(self) -> dict[str, NDArray[Any]]:
        points = {"X": self.X} if self.Y is self.X else {"X": self.X, "Y": self.Y}
        return points | {"metric": np.array(self.metric), "dtype": np.array(self.dtype.name)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        return cls(arrays["X"], arrays.get("Y"), str(arrays["metric"]), str(arrays["dtype"]))

    def astype(self, dtype: DTypeLike) -> PointCost:
        if dtype is self.dtype or self.dtype == np.dtype(dtype):
            return self
        Y = None if self.Y is self.X else self.Y
        if np.dtype(dtype) != np.float32:
            return PointCost(self.X, Y, self.metric, dtype)._labelled(self.labels)
        with self._lock:  # kept, because it may have a matrix
            if self._single is None:
                self._single = PointCost(self.X, Y, self.metric, dtype)._labelled(self.labels)
            return self._single

    def rescaled(self, shift: float, root: float) -> Cost | None:
        if self._norm is not None:
            side = root if self.metric == "sqeuclidean" else root**2
            return PointCost(self.X / side, None if self.Y is self.X else self.Y / side, self.metric, self.dtype)
        return None if 8 * self.shape[0] * self.shape[1] > MATRIX_BYTES else super().rescaled(shift, root)

    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        i, j = np.asarray(i), np.asarray(j)
        if i.ndim == 2 and i.shape[1] == 1 and j.ndim == 1:
            return self.matrix(i[:, 0], j)
        if self._norm is None:
            return self._pairs(*np.broadcast_arrays(i, j))
        if self._norm != 2:
            join = np.add if self._norm == 1 else np.maximum
            parts = (np.abs(x[i] - y[j]) for x, y in zip(self.X.T, self.Y.T, strict=True))
            return np.asarray(reduce(join, parts)).astype(self.dtype, copy=False)[()]
        squares = np.zeros(np.broadcast_shapes(i.shape, j.shape))
        for x, y in zip(self.X.T, self.Y.T, strict=True):
            squares += (x[i] - y[j]) ** 2
        return (squares if self._power == 2 else np.sqrt(squares)).astype(self.dtype, copy=False)[()]

    def _pairs(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> Array:
        """Return the costs of pairs, row by row."""
        found = np.empty(i.shape, self.dtype)
        if found.size == 0:
            return found
        flat, order = found.reshape(-1), np.argsort(i, axis=None, kind="stable")
        rows, starts = np.unique(i.reshape(-1)[order], return_index=True)
        for row, pairs in zip(rows, np.split(order, starts[1:]), strict=True):
            flat[pairs] = self.matrix(np.array([row]), j.reshape(-1)[pairs])[0]
        return found[()]

    def matrix(self, rows: NDArray[np.intp] | None = None, columns: NDArray[np.intp] | None = None) -> Array:
        if self._by_products:
            return self._products(rows, columns).astype(self.dtype, copy=False)
        X, Y = self.X if rows is None else self.X[rows], self.Y if columns is None else self.Y[columns]
        block = cdist(X, Y, self.metric, **self._options)
        if self._norm is None:
            _check_block(block, self.metric, self.dtype)
        return block.astype(self.dtype, copy=False)

    def _products(self, rows: NDArray[np.intp] | None, columns: NDArray[np.intp] | None) -> NDArray[np.float64]:
        """Return distances from products of points, and from the coordinates where squared lengths cancel."""
        (X, s), (Y, t) = self._centred
        X, s = (X, s) if rows is None else (X[rows], s[rows])
        Y, t = (Y, t) if columns is None else (Y[columns], t[columns])
        C, step = np.empty((len(X), len(Y))), max(128, _FAST // max(1, len(Y)))
        for start in range(0, len(X), step):
            some = slice(start, start + step)
            block = np.matmul(X[some], Y.T, out=C[some])
            block *= -2
            block += s[some, None]
            block += t
            if block.min(initial=np.inf) < _CANCELLED * (s[some].max() + t.max(initial=0.0)):
                own = np.arange(len(self.X))[some] if rows is None else rows[some]
                self._near_pairs(block, block < _CANCELLED * (s[some, None] + t), own, columns)
            if self._power == 1:
                np.sqrt(block, out=block)
        return C

    def _least_sums(
        self, x: Array, k: int, by_rows: bool, rows: NDArray[np.intp] | None = None, dtype: DTypeLike = np.float64
    ) -> tuple[NDArray[np.int64], Array]:
        """Return where the k least sums of costs and x are, and the sums, from tiles of products.

        Sums in single precision are close to those of the costs, and in no other sense right.
        """
        (X, s), (Y, t) = self._centred if by_rows else self._centred[::-1]
        if rows is not None:
            X, s = X[rows], s[rows]
        X, s, t, x = (np.asarray(z, dtype) for z in (X, s, t, x))
        minus, n = np.ascontiguousarray((-2 * Y.T).astype(dtype, copy=False)), len(Y)
        found, sums = np.full((len(X), k), -1, np.int64), np.full((len(X), k), np.inf, dtype)
        near, tile = np.zeros(len(X), np.uint8), np.empty(_FAST, dtype)
        for start in range(0, len(X), _TILE):
            some = slice(start, start + _TILE)
            width = _FAST // len(s[some])
            for first in range(0, n, width):
                others = slice(first, first + width)
                shape = len(s[some]), len(t[others])
                products = np.matmul(X[some], minus[:, others], out=tile[: shape[0] * shape[1]].reshape(shape))
                backend().nearest_products(
                    products, s=s[some], t=t[others], x=x[others], first=first, cancelled=_CANCELLED,
                    root=self._power == 1, sums=sums[some], found=found[some], near=near[some],
                )  # fmt: skip
        left, step = np.flatnonzero(near), max(1, _BLOCK // n)
        for start in range(0, len(left), step):
            here = left[start : start + step]
            own = here if rows is None else rows[here]
            costs = (self.matrix(own) if by_rows else self.matrix(None, own).T) + x
            order = np.argpartition(costs, k - 1, axis=1)[:, :k]
            least = np.take_along_axis(costs, order, axis=1)
            ranks = np.lexsort((order, least), axis=1)
            sums[here], found[here] = (np.take_along_axis(z, ranks, axis=1) for z in (least, order))
        return np.where(sums < np.inf, found, -1), sums

    def _near_pairs(
        self, block: Array, near: NDArray[np.bool_], rows: NDArray[np.intp], columns: NDArray[np.intp] | None
    ) -> None:
        """Write the squared distances of near pairs."""
        Y = self.Y if columns is None else self.Y[columns]
        if np.count_nonzero(near) > _MANY * near.size:
            block[:] = cdist(self.X[rows], Y, "sqeuclidean")
            return
        i, j = np.nonzero(near)
        step = max(1, _FAST // Y.shape[1])
        for k in range(0, len(i), step):
            difference = self.X[rows[i[k : k + step]]] - Y[j[k : k + step]]
            block[i[k : k + step], j[k : k + step]] = np.einsum("kd,kd->k", difference, difference)

    @cached_property
    def _centred(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Both sides and their squared lengths, around their middle if most of the lengths is the way to it.

        Centred points have fewer distances that are small beside their lengths. Some points tell where it is about.
        """
        sides: tuple[Array, ...] = (self.X,) if self.Y is self.X else (self.X, self.Y)
        some = np.concatenate([z[:: -(-len(z) // _ASKED)] for z in sides])
        middle = some.mean(axis=0)
        if middle @ middle > _CENTRED * np.einsum("kd,kd->k", some, some).mean():
            middle = self.X.mean(axis=0) / 2 + self.Y.mean(axis=0) / 2
            sides = tuple(z - middle for z in sides)
        found = [(z, np.einsum("kd,kd->k", z, z)) for z in sides]
        return found[0], found[-1]

    def accuracy(self) -> float:
        # rounded operations, of half a unit in the last place each: a difference counts twice in its square, which is
        # rounded, and so are d - 1 sums; a square root halves these errors and adds its own. The last factor covers
        # terms of second order. Of other metrics the costs are what SciPy computes.
        d = self.X.shape[1]
        if self._by_products:
            # Coordinates are rounded once at most, sums of d products are off by d roundings of |x||y| or of a squared
            # length, and three more follow: with |x||y| <= (s + t) / 2, at most 2 (d + 6) roundings of the sum s + t of
            # squared lengths, which is at most 8 times the squared distance
            operations = 2 * (d + 6) / _CANCELLED
            operations = operations if self._power == 2 else operations / 2 + 2
        elif self._power is not None:
            operations = d + 2 if self._power == 2 else d / 2 + 2
        else:
            operations = {"cityblock": d, "chebyshev": 1}.get(self.metric, 0)
        return operations * 2.0**-53 * (1 + 2.0**-20)

    def underflow(self) -> float:
        if self._underflow is None:
            self._underflow = 0.0 if self._power is None else underflow(self.X, self.Y, self._power == 2)
        return self._underflow

    def vanishing(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> float:
        return 0.0 if self._power is None else vanishing(self.X, self.Y, self._power == 2, i, j)

    def spread(self) -> float:
        if self._norm is None:
            ends = [(block.min(), block.max()) for _, block in self._blocks()]
            return float(max(high for _, high in ends)) - float(min(low for low, _ in ends))
        return self._diameter(self._widths())

    def _diameter(self, widths: NDArray[np.float64]) -> float:
        """Return the cost between points that are so far apart along each axis."""
        if self._norm != 2:
            return float(np.linalg.norm(widths, self._norm))
        with np.errstate(over="ignore", under="ignore"):
            squares = float((widths * widths).sum())
        return squares if self._power == 2 else squares**0.5

    def least(self) -> float:
        if self._norm is not None:
            return 0.0
        return min(float(block.min()) for _, block in self._blocks())

    def _widths(self) -> NDArray[np.float64]:
        """Return how far apart points of X and Y are at most along each axis."""
        with np.errstate(over="ignore"):
            return np.maximum(self.X.max(axis=0) - self.Y.min(axis=0), self.Y.max(axis=0) - self.X.min(axis=0))

    def operand(self) -> tuple[str, Any] | None:
        if self._fits():
            return self._matrix().operand()
        return None if self._power is None else ("points", (self.X, self.Y, self._power == 2))

    def _fits(self) -> bool:
        """Return whether the matrix may be stored."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize <= MATRIX_BYTES

    def _matrix(self) -> DenseCost:
        """Return the cost with a matrix, which is made once."""
        with self._lock:
            if self._dense is None:
                stored = padded_columns(self.shape, self.dtype)
                step = max(1, _BLOCK // self.shape[0])
                for start in range(0, self.shape[1], step):
                    columns = np.arange(start, min(start + step, self.shape[1]))
                    stored[columns, : self.shape[0]] = self.matrix(columns=columns).T
                self._dense = DenseCost.of_columns(stored, self.shape[0])
            return self._dense

    def _blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield the costs of some rows after another."""
        step = max(1, _BLOCK // self.shape[1])
        for start in range(0, self.shape[0], step):
            rows = slice(start, min(start + step, self.shape[0]))
            yield rows, self.matrix(rows=np.arange(rows.start, rows.stop))

    def _transform_one(self, x: Array, by_rows: bool) -> Array:
        if self._fits():
            return self._matrix()._transform_one(x, by_rows)
        if by_rows:
            return np.concatenate([(block + x).min(axis=1) for _, block in self._blocks()])
        least = np.full(self.shape[1], np.inf, self.dtype)
        for rows, block in self._blocks():
            np.minimum(least, (block + x[rows, None]).min(axis=0), out=least)
        return least

    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]:
        if self._fits():
            return self._matrix()._mean(p, q, threads)
        p, q = (w / w.sum(axis=1, keepdims=True) for w in (p.astype(np.float64), q.astype(np.float64)))
        if self._power == 2:  # both variances and the squared distance of the means
            centres = p @ self.X, q @ self.Y
            apart = ((centres[0] - centres[1]) ** 2).sum(axis=1)
            return apart + _variances(p, self.X, centres[0]) + _variances(q, self.Y, centres[1])
        total = np.zeros(len(p))
        for rows, block in self._blocks():
            total += (p[:, rows] @ block * q).sum(axis=1)
        return total

    def _transform(self, x: ArrayLike, by_rows: bool, n_jobs: int | None) -> Array:
        if self._searched and np.ndim(x) == 1:  # levels of an exact solve ask for many, with few steps around each
            return self._query(np.asarray(x, self.dtype), by_rows, 1, native.threads(n_jobs))[1][:, 0]
        return super()._transform(x, by_rows, n_jobs)

    def _transform_batch(self, batch: Array, by_rows: bool, out: Array, threads: int) -> None:
        if not self._has_tree():
            if self.has_lists:
                for x, row in zip(batch, out, strict=True):
                    row[:] = self._least_sums(x, 1, by_rows)[1][:, 0]
                return
            super()._transform_batch(batch, by_rows, out, threads)
            return
        for x, row in zip(batch, out, strict=True):
            row[:] = self._query(x, by_rows, 1, threads)[1][:, 0]

    def _nearest(
        self, x: Array, k: int, by_rows: bool, below: NDArray[np.float64] | None, threads: int
    ) -> tuple[NDArray[np.int64], Array]:
        if self._searched or self._has_tree():
            return self._query(x, by_rows, k, threads, below)
        if self.has_lists:
            found, sums = self._least_sums(x, k, by_rows)
            if below is not None:
                kept = sums < below[:, None]
                found, sums = np.where(kept, found, -1), np.where(kept, sums, np.inf)
            return found, sums.astype(self.dtype, copy=False)
        if self._fits():
            return self._matrix()._nearest(x, k, by_rows, below, threads)
        return super()._nearest(x, k, by_rows, below, threads)

    def below(self, x: ArrayLike, bound: ArrayLike, k: int, n_jobs: int | None = None) -> tuple[NDArray[np.int64], ...]:
        if not self._searched:
            return super().below(x, bound, k, n_jobs)
        own, others = self._sides
        return others.below(own, np.asarray(x), k, self.metric, np.asarray(bound), native.threads(n_jobs))

    @property
    def has_lists(self) -> bool:
        return self._by_products and not self._fits()

    def listed(
        self, rows: NDArray[np.intp], x: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        return self._least_sums(x, k, True, rows, np.float32)

    def search_memory(self) -> float:
        # centred copies, in single precision too, and one of them transposed
        return 32.0 * self.X.shape[1] * sum(self.shape) + 40.0 * _BLOCK if self.has_lists else 0.0

    def _has_tree(self) -> bool:
        """Return whether k-d trees answer c-transforms."""
        return self._searched or (self.shape[0] * self.shape[1] > TREE_PAIRS and self.searchable)

    def _query(
        self, x: Array, by_rows: bool, k: int, threads: int = 1, below: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.int64], Array]:
        """Return where the k least sums of costs and x are, and the sums."""
        own, others = self._sides if by_rows else self._sides[::-1]
        return others.least(own, x, k, self.metric, below, threads)

    @cached_property
    def _sides(self) -> tuple[SearchedPoints, SearchedPoints]:
        """Both sides with their k-d trees, of which there is one if the points are the same."""
        first = SearchedPoints(self.X)
        return first, first if self.Y is self.X else SearchedPoints(self.Y)

    @property
    def searchable(self) -> bool:
        return self._norm is not None and self.X.shape[1] <= MOST_DIMENSIONS and backend().has_kd_trees

    @property
    def on_line(self) -> bool:
        return self._power is not None and self.X.shape[1] == 1

    def by_trees(self) -> PointCost | None:
        if self._searched:
            return self
        return None if not self.searchable else PointCost.searched(self.X, self.Y, self.metric)

    @classmethod
    def searched(cls, X: Array, Y: Array, metric: str) -> PointCost:
        """Return the cost between points that have been checked, which k-d trees search at every size.

        Parameters
        ----------
        X, Y : arrays of shape (m1, d) and (m2, d)
            The points, in one to four dimensions; they are not copied.
        metric : {"sqeuclidean", "euclidean", "cityblock", "chebyshev"}
            The distance.

        Returns
        -------
        PointCost
        """
        first = SearchedPoints(np.ascontiguousarray(X, np.float64))
        return cls._between(first, first if Y is X else SearchedPoints(np.ascontiguousarray(Y, np.float64)), metric)

    @classmethod
    def _between(cls, first: SearchedPoints, second: SearchedPoints, metric: str) -> PointCost:
        """Return the cost between points whose k-d trees may be known."""
        cost = cls.__new__(cls)
        cost.X, cost.Y = first.points, second.points
        cost.metric, cost.dtype = metric, np.dtype(np.float64)
        cost._prepare()
        cost._searched = cost.bounded_search = True
        vars(cost)["_sides"] = first, second
        return cost

    def order(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        first, second = self._sides
        return first.order.astype(np.intp), second.order.astype(np.intp)

    def subset(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> PointCost:
        X = self.X[rows]
        Y = X if self.Y is self.X and np.array_equal(rows, columns) else self.Y[columns]
        return PointCost.searched(X, Y, self.metric)

    def coarsen(self, p: NDArray[np.float64], q: NDArray[np.float64], smallest: int) -> Coarser | None:
        if max(self.shape) <= smallest or not self._searched:
            return None
        (X, a, rows), (Y, b, columns) = joined(self.X, p, smallest), joined(self.Y, q, smallest)
        coarse = PointCost.searched(X, Y, self.metric)
        between = PointCost._between(self._sides[0], coarse._sides[1], self.metric)
        return Coarser(coarse, between, a, b, rows, columns)


def _options(metric: str, X: Array, Y: Array) -> dict[str, Array]:
    """Return the arguments of metrics that depend on all points, as cdist computes them."""
    if metric.lower() not in ("seuclidean", "mahalanobis"):
        return {}
    points = np.concatenate([X, Y])
    if metric.lower() == "seuclidean":
        return {"V": np.var(points, axis=0, ddof=1)}
    if len(points) <= X.shape[1]:
        raise ValueError(f"{len(points)} points have no covariance in {X.shape[1]} dimensions that can be inverted")
    return {"VI": np.linalg.inv(np.atleast_2d(np.cov(points.T))).T.copy()}


def _check_block(block: Array, metric: str, dtype: np.dtype[Any]) -> None:
    """Refuse distances that are NaN or too large."""
    limit = validation.largest_cost(dtype)
    if not (np.abs(block) <= limit).all():
        raise ValueError(f"metric: {metric!r} gives NaN or costs beyond {limit:.3g}; expected costs in this range")


def _variances(weights: Array, points: Array, centres: Array) -> NDArray[np.float64]:
    """Return the mean squared distance of weighted points to their centre, for each row of weights."""
    return np.array([w @ ((points - c) ** 2).sum(axis=1) for w, c in zip(weights, centres, strict=True)])
