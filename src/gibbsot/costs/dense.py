"""Costs that are stored as a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.spatial.distance import cdist

from ..core import labels, native, validation
from ..core.backend import backend
from .base import Array, Cost, Counts, frozen, spread_of


class DenseCost(Cost):
    """A cost given as a matrix.

    Parameters
    ----------
    M : array of shape (m1, m2)
        The costs; ``inf`` forbids a pair. Every row and every column has a finite cost. A DataFrame of pandas keeps its
        labels.
    dtype : {float32, float64}, optional
        By default that of ``M`` if it is one of the two, else float64.

    Attributes
    ----------
    shape, dtype, finite, depth, work
        As of `Cost`.

    Examples
    --------
    >>> from gibbsot import DenseCost
    >>> import numpy as np
    >>> cost = DenseCost([[0, 1, 4], [1, 0, 1]])
    >>> cost.row_min([0, 0, -3])
    array([ 0., -2.])
    >>> cost.col_max([0, 2])
    array([1., 2., 1.])
    """

    named_by = "M"

    depth = 1

    def __init__(self, M: ArrayLike, dtype: DTypeLike | None = None) -> None:
        matrix = validation.real(M, "M")
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise ValueError(f"M: expected a matrix with rows and columns, got shape {matrix.shape}")
        self.dtype = validation.precision(dtype, matrix)
        self.finite = validation.check_costs(matrix, "M", self.dtype)
        self.shape, self.work = (matrix.shape[0], matrix.shape[1]), 2 * matrix.size
        self._rows: Array | None = frozen(np.array(matrix, self.dtype, order="C"))
        if type(M) is not np.ndarray:
            self._labelled((labels.of_rows(M), labels.of_columns(M)))

    @classmethod
    def of_columns(cls, stored: Array, rows: int) -> DenseCost:
        """Return the cost of columns that are known to be finite.

        Parameters
        ----------
        stored : array of shape (m2, padded m1)
            The columns, in an array that `padded_columns` made.
        rows : int
            The number m1 of rows.

        Returns
        -------
        DenseCost
        """
        cost = cls.__new__(cls)
        cost.dtype, cost.finite, cost.shape = stored.dtype, True, (rows, len(stored))
        cost.work, cost._rows = 2 * rows * len(stored), None
        vars(cost)["_columns"] = frozen(stored)
        return cost

    @cached_property
    def _columns(self) -> Array:
        """The columns, as c-transforms and sweeps read them; the rows are not kept beside them."""
        rows = self._rows
        if rows is None:  # another thread has just made the columns
            return vars(self)["_columns"]
        stored = padded_columns((rows.shape[0], rows.shape[1]), self.dtype)
        stored[:, : len(rows)] = rows.T
        vars(self)["_columns"] = frozen(stored)
        self._rows = None
        return stored

    def __repr__(self) -> str:
        precision = "" if self.dtype == np.float64 else f", dtype={self.dtype.name!r}"
        return f"DenseCost(<matrix of {self.shape[0]:,} x {self.shape[1]:,}>{precision})"

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"M": self.matrix()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> DenseCost:
        return cls(arrays["M"])

    def operand(self) -> tuple[str, Any]:
        return "dense", self._columns

    def _transform_one(self, x: Array, by_rows: bool) -> Array:
        Mt = self._columns[:, : self.shape[0]]
        if not by_rows:
            return (Mt + x).min(axis=1)
        kept = np.flatnonzero(x < np.inf)
        return (Mt[kept] + x[kept, None]).min(axis=0, initial=np.inf)

    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]:
        return backend().means(self._columns, p, q, threads)

    def astype(self, dtype: DTypeLike) -> DenseCost:
        return self if self.dtype == np.dtype(dtype) else DenseCost(self.matrix(), dtype)._labelled(self.labels)

    def subset(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> DenseCost:
        return DenseCost(self.matrix(rows, columns))

    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        return self.stored()[np.asarray(i), np.asarray(j)]

    @property
    def has_matrix(self) -> bool:
        return True

    def forbidden(self) -> Counts:
        forbidden = np.isinf(self.stored())
        return forbidden.sum(axis=1), forbidden.sum(axis=0)

    def symmetric(self) -> bool:
        M = self.stored()
        return self.shape[0] == self.shape[1] and np.array_equal(M, M.T)

    def spread(self) -> float:
        return spread_of(self.stored())

    def least(self) -> float:
        return self._least

    @cached_property
    def _least(self) -> float:
        """The least cost."""
        return float(self.stored().min())

    def matrix(self, rows: NDArray[np.intp] | None = None, columns: NDArray[np.intp] | None = None) -> Array:
        M = self.stored()
        if rows is None and columns is None:
            return M.copy()
        M = M if rows is None else M[rows]
        return M if columns is None else M[:, columns]

    def matrix_memory(self) -> float:
        return 0.0 if self.dtype == np.float64 else 12.0 * self.shape[0] * self.shape[1]

    def operand_memory(self) -> float:
        return float(self.shape[0]) * self.shape[1] * self.dtype.itemsize

    def sweep_memory(self) -> float:  # copies in other precisions, a transposed one, and what is freed late
        return (16.0 if self.dtype == np.float64 else 20.0) * self.shape[0] * self.shape[1]

    def stored(self) -> Array:
        rows = self._rows
        return self._columns[:, : self.shape[0]].T if rows is None else rows


def padded_columns(shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """Return an array for the columns of a matrix, as sweeps read them: each padded by ``inf`` to whole cache lines."""
    lanes = 64 // dtype.itemsize
    stored = native.aligned((shape[1], -(-shape[0] // lanes) * lanes), dtype)
    stored[:, shape[0] :] = np.inf
    return stored


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
    >>> from gibbsot import coulomb
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
