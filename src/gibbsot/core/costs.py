r"""Costs: what one can take a (min, +) product with.

Everything the sampler asks of a cost matrix ``M`` is

.. math:: \min_j (M_{ij} + h_j) \qquad\text{and}\qquad \max_i (g_i - M_{ij}),

so a cost is an object with the two products ``row_min`` and ``col_max``; a grid gives them without its matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.spatial.distance import cdist

from . import native, validation

Array = NDArray[np.floating]


class Cost(ABC):
    """A cost between ``shape[0]`` points of one measure and ``shape[1]`` points of the other.

    Attributes
    ----------
    shape : pair of int
        Number of rows (points of p) and of columns (points of q).
    dtype : numpy.dtype
        float32 or float64: the precision of all that is computed with this cost.
    finite : bool
        Whether no pair is forbidden by an infinite cost.
    depth : int
        Number of additions behind one entry of a product; rounding errors grow with it.
    work : int
        Number of additions in one sweep of the sampler.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    finite: bool
    depth: int
    work: int

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shape[0]:,} x {self.shape[1]:,}, {self.dtype}>"

    def row_min(self, h: ArrayLike, n_jobs: int | None = None) -> Array:
        """Return ``min_j (M_ij + h_j)`` for each row i, for one h or a batch of them.

        Parameters
        ----------
        h : array of shape (m2,) or (n, m2)
            ``inf`` leaves a column out.
        n_jobs : int, optional
            Threads over the batch.
        """
        return self._product(h, True, n_jobs)

    def col_max(self, g: ArrayLike, n_jobs: int | None = None) -> Array:
        """Return ``max_i (g_i - M_ij)`` for each column j, for one g or a batch of them.

        Parameters
        ----------
        g : array of shape (m1,) or (n, m1)
            ``-inf`` leaves a row out.
        n_jobs : int, optional
            Threads over the batch.
        """
        return -self._product(-np.asarray(g, self.dtype), False, n_jobs)

    def row_nearest(self, h: ArrayLike, k: int = 1) -> NDArray[np.int64]:
        """Return, for each row, the k columns with the smallest ``M_ij + h_j``, nearest first, for one h.

        Parameters
        ----------
        h : array of shape (m2,)
            ``inf`` leaves a column out.
        k : int
            How many; -1 stands where there are fewer that have a finite sum.

        Returns
        -------
        array of shape (m1, k)
        """
        return self._nearest(h, True, k)

    def col_nearest(self, g: ArrayLike, k: int = 1) -> NDArray[np.int64]:
        """Return, for each column, the k rows with the largest ``g_i - M_ij``, nearest first, for one g.

        Parameters
        ----------
        g : array of shape (m1,)
            ``-inf`` leaves a row out.
        k : int
            How many; -1 stands where there are fewer that have a finite difference.

        Returns
        -------
        array of shape (m2, k)
        """
        return self._nearest(-np.asarray(g, self.dtype), False, k)

    def mean(self, p: ArrayLike, q: ArrayLike, n_jobs: int | None = None) -> NDArray[np.float64]:
        r"""Return the mean of the finite costs under independent p and q, for each problem of a batch.

        .. math:: \sum_{ij} p_i q_j M_{ij} \Big/ \sum_{ij} p_i q_j

        Parameters
        ----------
        p, q : arrays of shape (n, m1) and (n, m2)
        n_jobs : int, optional
            Threads over the batch.
        """
        p = np.ascontiguousarray(p, self.dtype)
        q = np.ascontiguousarray(q, self.dtype)
        if p.ndim != 2 or q.ndim != 2 or len(p) != len(q) or (p.shape[1], q.shape[1]) != self.shape:
            m1, m2 = self.shape
            raise ValueError(f"p, q: expected shapes (n, {m1}) and (n, {m2}), got {p.shape} and {q.shape}")
        return self._mean(p, q, native.threads(n_jobs))

    def _product(self, x: ArrayLike, by_rows: bool, n_jobs: int | None) -> Array:
        x = np.asarray(x, self.dtype)
        name, size = ("h", self.shape[1]) if by_rows else ("g", self.shape[0])
        if x.ndim not in (1, 2) or x.shape[-1] != size:
            raise ValueError(f"{name}: expected shape ({size},) or (n, {size}), got {x.shape}")
        batch = np.ascontiguousarray(np.atleast_2d(x))
        threads = native.threads(n_jobs)
        kernels = native.kernels()
        out = np.empty((len(batch), self.shape[0 if by_rows else 1]), self.dtype)
        if kernels is None:
            for b, row in enumerate(batch):
                out[b] = self._least(row, by_rows)
        else:
            kind, operand = self.operand()
            transform = getattr(kernels, f"c_transform_{kind}")
            transform(operand, by_rows=by_rows, x=batch, out=out, n_threads=threads)
        return out.reshape(*x.shape[:-1], out.shape[1])

    def _nearest(self, x: ArrayLike, by_rows: bool, k: int) -> NDArray[np.int64]:
        x = np.ascontiguousarray(x, self.dtype)
        count, size = self.shape if by_rows else self.shape[::-1]
        if x.shape != (size,):
            raise ValueError(f"{'h' if by_rows else 'g'}: expected shape ({size},), got {x.shape}")
        if not 1 <= k <= size:
            raise ValueError(f"k: expected a number from 1 to {size}, got {k}")
        out = np.empty((count, k), np.int64)
        kernels = native.kernels()
        if kernels is not None:
            kind, operand = self.operand()
            getattr(kernels, f"nearest_{kind}")(operand, by_rows=by_rows, x=x, out=out)
            return out
        places = np.arange(size)
        chunk = max(1, 2_000_000 // size)
        for start in range(0, count, chunk):
            own = np.arange(start, min(start + chunk, count))[:, None]
            sums = (self.at(own, places) if by_rows else self.at(places, own)) + x
            order = np.argsort(sums, axis=1, kind="stable")[:, :k]
            out[start : start + chunk] = np.where(np.take_along_axis(sums, order, axis=1) < np.inf, order, -1)
        return out

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """Return the arrays that define the cost, for a file; `from_arrays` makes it again."""

    @abstractmethod
    def operand(self) -> tuple[str, Any]:
        """Return the kind of kernel for this cost and what to give it."""

    @abstractmethod
    def _least(self, x: Array, by_rows: bool) -> Array:
        """Minimum of M_ij + x over j (by rows) or over i, in NumPy: the specification."""

    @abstractmethod
    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]: ...

    @abstractmethod
    def astype(self, dtype: DTypeLike) -> Cost:
        """Return the same cost in another precision, or itself."""

    @abstractmethod
    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        """Return the costs ``M[i, j]`` of pairs of points."""

    @abstractmethod
    def spread(self) -> float:
        """Return how far the finite costs lie apart, or a bound of it; centred potentials are no larger."""

    @abstractmethod
    def matrix(self) -> Array:
        """Return the matrix of costs: for tests and small problems."""


class DenseCost(Cost):
    """A cost given as a matrix.

    Parameters
    ----------
    M : array of shape (m1, m2)
        The costs; ``inf`` forbids a pair. Every row and every column has a finite cost.
    dtype : {float32, float64}, optional
        By default that of ``M`` if it is one of the two, else float64.

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
        validation.check_costs(columns.T, "M", self.dtype)
        self.finite = bool(np.isfinite(columns).all())
        self.work = 2 * columns.size
        lanes = 64 // self.dtype.itemsize
        # by columns, each padded to whole cache lines: the order in which a sweep reads them
        self._columns = native.aligned((self.shape[1], -(-self.shape[0] // lanes) * lanes), self.dtype)
        self._columns[:, : self.shape[0]] = columns
        self._columns[:, self.shape[0] :] = np.inf

    def arrays(self) -> dict[str, Array]:
        return {"M": self.matrix()}

    def operand(self) -> tuple[str, Any]:
        return "dense", self._columns

    def _least(self, x: Array, by_rows: bool) -> Array:
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
        other = copy(self)
        other.dtype = np.dtype(dtype)
        other._store(self._columns[:, : self.shape[0]])
        return other

    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        return self._columns[np.asarray(j), np.asarray(i)]

    def spread(self) -> float:
        return _spread(self._columns[:, : self.shape[0]])

    def matrix(self) -> Array:
        return self._columns[:, : self.shape[0]].T.copy()


class PointCost(DenseCost):
    """The cost between two clouds of points.

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


class GridCost(Cost):
    r"""A cost on a grid in one to three dimensions that is a sum over the axes.

    .. math:: M_{xy} = \sum_a |s_a (x_a - y_a)|^p

    The products split into one small product an axis, so a sweep over m points costs ``2 m (n_1 + ... + n_d)``
    additions and the m x m matrix is never formed. A measure on the grid is a vector of m weights in C order, that is,
    ``image.ravel()``.

    Parameters
    ----------
    shape : tuple of int
        Sides of the grid, one to three; may be left out when ``matrices`` is given.
    power : float
        The power p, at least 1.
    spacing : float or sequence of float, optional
        Distance of neighbours, one for all axes or one an axis; by default one over the longest side, so that the cost
        does not depend on the resolution.
    matrices : sequence of arrays, optional
        The cost of each axis instead, rows for p and columns for q; ``inf`` forbids a move. They may be rectangular:
        then p and q live on grids of different sides.
    dtype : {float32, float64}, optional
        float64 by default, or that of the matrices if they are all float32.

    Examples
    --------
    >>> import numpy as np
    >>> cost = GridCost((2, 3), spacing=1.0)
    >>> cost.row_min(np.zeros(6)).reshape(2, 3)
    array([[0., 0., 0.],
           [0., 0., 0.]])
    >>> float(cost.at(0, 5))
    5.0
    """

    def __init__(
        self,
        shape: int | Sequence[int] | None = None,
        power: float = 2,
        spacing: float | Sequence[float] | None = None,
        matrices: Sequence[ArrayLike] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        if matrices is None:
            if shape is None:
                raise ValueError("shape: expected the sides of the grid, or matrices instead")
            sides = validation.sides(shape)
            axes = [_axis_cost(n, power, s) for n, s in zip(sides, validation.spacings(spacing, sides), strict=True)]
        else:
            axes = [validation.real(matrix, f"matrices[{a}]") for a, matrix in enumerate(matrices)]
            if not 1 <= len(axes) <= 3:
                raise ValueError(f"matrices: expected one to three axes, got {len(axes)}")
            for a, axis in enumerate(axes):
                if axis.ndim != 2 or 0 in axis.shape:
                    raise ValueError(f"matrices[{a}]: expected a matrix with rows and columns, got shape {axis.shape}")
            if shape is not None and validation.sides(shape) != tuple(len(axis) for axis in axes):
                raise ValueError(f"shape: {shape} differs from the rows of matrices, {tuple(len(a) for a in axes)}")
        self.dtype = validation.precision(dtype, *(axes if matrices is not None else ()))
        for a, axis in enumerate(axes):
            validation.check_costs(axis, "power, spacing" if matrices is None else f"matrices[{a}]", self.dtype)
        self.axes: list[Array] = [np.ascontiguousarray(axis, self.dtype) for axis in axes]
        self.row_shape = tuple(len(axis) for axis in axes)
        self.col_shape = tuple(axis.shape[1] for axis in axes)
        self.shape = (int(np.prod(self.row_shape)), int(np.prod(self.col_shape)))
        self.finite = all(np.isfinite(axis).all() for axis in axes)
        self.depth = len(axes)
        self.work = sum(self.row_shape) * self.shape[0] + sum(self.col_shape) * self.shape[1]

    def arrays(self) -> dict[str, Array]:
        return {f"axis{a}": axis for a, axis in enumerate(self.axes)}

    def operand(self) -> tuple[str, Any]:
        return "grid", self.axes

    def _least(self, x: Array, by_rows: bool) -> Array:
        values = x.reshape(self.col_shape if by_rows else self.row_shape)
        for a, axis in reversed(list(enumerate(self.axes))):
            values = np.moveaxis(values, a, -1)
            # a row of the axis at a time: no more memory than the grid itself
            least = [(values + costs).min(axis=-1) for costs in (axis if by_rows else axis.T)]
            values = np.moveaxis(np.stack(least, axis=-1), -1, a)
        return values.ravel()

    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]:
        total = np.zeros(len(p))
        for a, axis in enumerate(self.axes):
            finite = np.isfinite(axis)
            costs = np.where(finite, axis, 0).astype(np.float64)
            rows, columns = _marginal(p, self.row_shape, a), _marginal(q, self.col_shape, a)
            for b in range(len(p)):
                weight = rows[b, :, None] * columns[b]
                total[b] += (weight * costs).sum() / (weight * finite).sum()
        return total

    def astype(self, dtype: DTypeLike) -> GridCost:
        return self if self.dtype == np.dtype(dtype) else GridCost(matrices=self.axes, dtype=dtype)

    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        i, j = np.asarray(i), np.asarray(j)
        # flattened: NumPy 2.4 gets the indices of a long column wrong
        rows = (r.reshape(i.shape) for r in np.unravel_index(i.ravel(), self.row_shape))
        columns = (c.reshape(j.shape) for c in np.unravel_index(j.ravel(), self.col_shape))
        return sum((axis[r, c] for axis, r, c in zip(self.axes, rows, columns, strict=True)), np.zeros((), self.dtype))

    def spread(self) -> float:
        return sum(map(_spread, self.axes))

    def matrix(self) -> Array:
        return self.at(np.arange(self.shape[0])[:, None], np.arange(self.shape[1]))


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


def as_cost(cost: Cost | ArrayLike) -> Cost:
    """Return the cost itself, or a matrix as a DenseCost."""
    if isinstance(cost, Cost):
        return cost
    try:
        return DenseCost(cost)
    except (TypeError, ValueError) as error:
        raise type(error)(f"cost: {str(error).removeprefix('M: ')}") from None


def from_arrays(arrays: Mapping[str, Array]) -> Cost:
    """Return the cost that `Cost.arrays` described.

    Examples
    --------
    >>> from_arrays(GridCost((2, 3)).arrays()).shape
    (6, 6)
    """
    if "M" in arrays:
        return DenseCost(arrays["M"])
    return GridCost(matrices=[arrays[f"axis{a}"] for a in range(max(1, len(arrays)))])


def single(cost: Cost) -> Cost:
    """Return the cost in single precision, which is enough for gradients, if it fits in."""
    try:
        return cost.astype(np.float32)
    except ValueError:
        return cost


def mean_cost(cost: Cost) -> float:
    """Return the mean of all costs, the unit of steps."""
    p, q = (np.full((1, m), 1 / m) for m in cost.shape)
    return float(cost.mean(p, q)[0]) or 1.0


def _axis_cost(n: int, power: float, spacing: float) -> Array:
    if not 1 <= validation.number(power, "power") < np.inf:
        raise ValueError(f"power: expected a number of at least 1, got {power!r}")
    x = np.arange(n) * spacing
    return np.abs(x[:, None] - x) ** power


def _spread(costs: Array) -> float:
    finite = costs[np.isfinite(costs)].astype(np.float64)
    return float(finite.max() - finite.min())


def _marginal(weights: Array, shape: tuple[int, ...], axis: int) -> NDArray[np.float64]:
    # rows of the same length summed one by one: the same bits whatever the batch
    batch = weights.reshape(-1, *shape).astype(np.float64)
    rows = np.moveaxis(batch, axis + 1, 1).reshape(len(batch) * shape[axis], -1)
    return np.ascontiguousarray(rows).sum(axis=1).reshape(len(batch), shape[axis])
