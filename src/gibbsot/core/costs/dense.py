"""Costs that are stored as a matrix: given, or between points."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.spatial.distance import cdist

from .. import native, validation
from .base import Array, Cost, Geometry, frozen, spread_of


class DenseCost(Cost):
    """A cost given as a matrix.

    Parameters
    ----------
    M : array of shape (m1, m2)
        The costs; ``inf`` forbids a pair. Every row and every column has a finite cost.
    dtype : {float32, float64}, optional
        By default that of ``M`` if it is one of the two, else float64.

    Attributes
    ----------
    shape, dtype, finite, depth, work
        As of `Cost`.

    Examples
    --------
    >>> import numpy as np
    >>> cost = DenseCost([[0, 1, 4], [1, 0, 1]])
    >>> cost.row_min([0, 0, -3])
    array([ 0., -2.])
    >>> cost.col_max([0, 2])
    array([1., 2., 1.])
    """

    depth = 1

    def __init__(self, M: ArrayLike, dtype: DTypeLike | None = None) -> None:
        matrix = validation.real(M, "M")
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise ValueError(f"M: expected a matrix with rows and columns, got shape {matrix.shape}")
        self.dtype = validation.precision(dtype, matrix)
        self.shape = (matrix.shape[0], matrix.shape[1])
        self._store(matrix.T)

    def _store(self, columns: Array) -> None:
        """Check the costs and keep a padded, read-only copy of the columns."""
        validation.check_costs(columns.T, "M", self.dtype)
        self.finite = bool(np.isfinite(columns).all())
        self.work = 2 * columns.size
        lanes = 64 // self.dtype.itemsize
        # by columns, as a sweep reads them, each padded to whole cache lines
        stored = native.aligned((self.shape[1], -(-self.shape[0] // lanes) * lanes), self.dtype)
        stored[:, : self.shape[0]] = columns
        stored[:, self.shape[0] :] = np.inf
        self._columns = frozen(stored)

    def arrays(self) -> dict[str, Array]:
        return {"M": self.matrix()}

    def operand(self) -> tuple[str, Any]:
        return "dense", self._columns

    def _transform_one(self, x: Array, by_rows: bool) -> Array:
        Mt = self._columns[:, : self.shape[0]]
        if not by_rows:
            return (Mt + x).min(axis=1)
        kept = np.flatnonzero(x < np.inf)
        return (Mt[kept] + x[kept, None]).min(axis=0, initial=np.inf)

    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]:
        out = np.empty(len(p))
        kernels = native.kernels()
        if kernels is not None:
            kernels.means_dense(self._columns, p=p, q=q, out=out, n_threads=threads)
            return out
        Mt = self._columns[:, : self.shape[0]]
        for b, (source, target) in enumerate(zip(p.astype(np.float64), q.astype(np.float64), strict=True)):
            kept = np.flatnonzero(target)
            weight = target[kept, None] * source
            finite = np.isfinite(Mt[kept])
            out[b] = (weight * np.where(finite, Mt[kept], 0)).sum() / (weight * finite).sum()
        return out

    def astype(self, dtype: DTypeLike) -> DenseCost:
        if self.dtype == np.dtype(dtype):
            return self
        other = copy(self)  # of the same class, such as PointCost
        other.dtype = np.dtype(dtype)
        other.__dict__.pop("_geometry", None)  # of the costs before they were rounded
        other._store(self._columns[:, : self.shape[0]])
        return other

    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        return self._columns[np.asarray(j), np.asarray(i)]

    def spread(self) -> float:
        return spread_of(self._columns[:, : self.shape[0]])

    def matrix(self) -> Array:
        return self._columns[:, : self.shape[0]].T.copy()


class PointCost(DenseCost):
    """The cost between two point clouds.

    Parameters
    ----------
    X : array of shape (m1, d) or (m1,)
        Points of the first measure; a vector stands for points on the line.
    Y : array of shape (m2, d) or (m2,), optional
        Points of the second measure, by default those of the first.
    metric : str
        A metric of :func:`scipy.spatial.distance.cdist`, the squared Euclidean distance by default.
    dtype : {float32, float64}, optional
        By default that of ``X`` if it is one of the two, else float64.

    Attributes
    ----------
    shape, dtype, finite, depth, work
        As of `Cost`.

    Examples
    --------
    >>> PointCost([0.0, 1.0, 3.0]).matrix()
    array([[0., 1., 9.],
           [1., 0., 4.],
           [9., 4., 0.]])
    """

    def __init__(
        self, X: ArrayLike, Y: ArrayLike | None = None, metric: str = "sqeuclidean", dtype: DTypeLike | None = None
    ) -> None:
        first = validation.points(X, "X")
        second = first if Y is None else validation.points(Y, "Y")
        if first.shape[1] != second.shape[1]:
            raise ValueError(f"Y: expected points with {first.shape[1]} coordinates as in X, got {second.shape[1]}")
        precision = validation.precision(dtype, first)
        try:
            M = cdist(first, second, metric)
        except ValueError as error:
            raise ValueError(
                f"metric: {metric!r} is not one that scipy.spatial.distance.cdist takes ({error})"
            ) from None
        super().__init__(M, precision)
        power = {"sqeuclidean": 2.0, "euclidean": 1.0}.get(metric) if isinstance(metric, str) else None
        if power is not None and first.shape[1] <= 3 and self.dtype == np.float64:
            X, Y = (frozen(np.array(x, np.float64, order="C")) for x in (first, second))
            self._geometry = Geometry(X, Y, power)

    _geometry: Geometry | None = None

    def geometry(self) -> Geometry | None:
        return self._geometry


def coulomb(x: ArrayLike, y: ArrayLike | None = None, dtype: DTypeLike | None = None) -> DenseCost:
    r"""Return the Coulomb cost between points, infinite where two points coincide.

    .. math:: M_{ij} = 1 / \lVert x_i - y_j \rVert

    Parameters
    ----------
    x : array of shape (m1, d) or (m1,)
        Points of the first measure.
    y : array of shape (m2, d) or (m2,), optional
        Points of the second measure, by default those of the first.
    dtype : {float32, float64}, optional
        By default that of ``x`` if it is one of the two, else float64.

    Returns
    -------
    DenseCost

    Examples
    --------
    >>> coulomb([0.0, 0.5, 1.0]).matrix()
    array([[inf,  2.,  1.],
           [ 2., inf,  2.],
           [ 1.,  2., inf]])
    """
    first = validation.points(x, "x")
    second = first if y is None else validation.points(y, "y")
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"y: expected points with {first.shape[1]} coordinates as in x, got {second.shape[1]}")
    with np.errstate(divide="ignore"):
        return DenseCost(1 / cdist(first, second), validation.precision(dtype, first))
