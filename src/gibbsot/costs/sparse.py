"""Costs with few allowed pairs, which alone are stored."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from ..core import validation
from .base import Array, Cost, Counts, frozen
from .network import Network


class SparseCost(Cost):
    """A cost given for some pairs; all others are forbidden.

    Exact solvers work on the stored pairs alone, and so does their proof.

    Parameters
    ----------
    matrix : sparse matrix of shape (m1, m2)
        The costs of the allowed pairs. Stored zeros are costs; infinite ones are left out.
    dtype : {float32, float64}, optional
        By default that of the matrix if it is one of the two, else float64.

    Attributes
    ----------
    pairs : scipy.sparse.csr_array of shape (m1, m2)
        The costs.
    shape, dtype, finite, depth, work
        As of `Cost`.

    Raises
    ------
    ValueError
        If the matrix is empty, or a cost is NaN or beyond the range of the precision.

    Examples
    --------
    >>> from gibbsot import SparseCost, solve
    >>> from scipy import sparse
    >>> pairs = sparse.coo_array(([0.0, 5.0, 1.0], ([0, 0, 1], [0, 1, 1])))
    >>> SparseCost(pairs).matrix()
    array([[ 0.,  5.],
           [inf,  1.]])
    >>> solve([3, 1], [2, 2], SparseCost(pairs)).value
    6.0
    """

    named_by = "pairs"

    depth = 1

    def __init__(self, matrix: Any, dtype: DTypeLike | None = None) -> None:
        if not sparse.issparse(matrix):
            raise TypeError(
                f"matrix: expected a sparse matrix of costs, got {type(matrix).__name__}; DenseCost takes an array"
            )
        if len(matrix.shape) != 2 or 0 in matrix.shape:
            raise ValueError(f"matrix: expected rows and columns, got shape {matrix.shape}")
        stored = validation.sparse_rows(matrix, "matrix")
        self.dtype = validation.precision(dtype, stored.data)
        if np.isnan(stored.data).any() or (stored.data == -np.inf).any():
            bad = np.flatnonzero(np.isnan(stored.data) | (stored.data == -np.inf))[0]
            row = int(np.searchsorted(stored.indptr, bad, "right")) - 1
            raise ValueError(
                f"matrix: the cost of row {row} and column {stored.indices[bad]} is {stored.data[bad]}; "
                "expected numbers"
            )
        if np.isinf(stored.data).any():
            arcs = stored.tocoo()
            kept = np.isfinite(arcs.data)
            stored = sparse.csr_array(
                sparse.coo_array((arcs.data[kept], (arcs.row[kept], arcs.col[kept])), shape=stored.shape)
            )
        largest = float(np.abs(stored.data).max(initial=0.0))
        validation.check_range(largest, "matrix", self.dtype)
        parts = (stored.data.astype(self.dtype), stored.indices.copy(), stored.indptr.copy())
        self.pairs = sparse.csr_array(tuple(map(frozen, parts)), stored.shape)
        self.shape = stored.shape[0], stored.shape[1]
        self.finite, self.work = self.pairs.nnz == self.shape[0] * self.shape[1], 2 * self.pairs.nnz + sum(self.shape)

    def __repr__(self) -> str:
        precision = "" if self.dtype == np.float64 else f", dtype={self.dtype.name!r}"
        return f"SparseCost(<{self.pairs.nnz:,} pairs of {self.shape[0]:,} x {self.shape[1]:,}>{precision})"

    def arrays(self) -> dict[str, NDArray[Any]]:
        pairs = self.pairs
        return {"pairs": pairs.data, "indices": pairs.indices, "indptr": pairs.indptr, "shape": np.array(self.shape)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        shape = np.ravel(arrays["shape"]).tolist()
        parts = (np.ravel(arrays[name]) for name in ("pairs", "indices", "indptr"))
        return cls(sparse.csr_array(tuple(parts), shape=(int(shape[0]), int(shape[1]))))

    def astype(self, dtype: DTypeLike) -> SparseCost:
        return self if self.dtype == np.dtype(dtype) else SparseCost(self.pairs, dtype)

    def operand(self) -> None:
        return None

    @cached_property
    def _by_columns(self) -> sparse.csr_array:
        """The costs by columns."""
        return sparse.csr_array(self.pairs.T)

    @cached_property
    def _row_of(self) -> NDArray[np.int64]:
        """The row of each pair."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.pairs.indptr))

    def network(self) -> Network:
        return self._network

    @cached_property
    def _network(self) -> Network:
        """A link for each pair: rows are nodes, and so are columns."""
        (m1, m2), pairs = self.shape, self.pairs
        ends = self._row_of.astype(np.int32), (m1 + pairs.indices).astype(np.int32)
        costs = pairs.data.astype(np.float64)
        nodes = np.arange(m1 + m2, dtype=np.int32)
        return Network(m1 + m2, *ends, costs, np.full(len(costs), np.inf), nodes[:m1], nodes[m1:])

    def _transform_one(self, x: Array, by_rows: bool) -> Array:
        pairs = self.pairs if by_rows else self._by_columns
        out = np.full(pairs.shape[0], np.inf, self.dtype)
        some = np.flatnonzero(np.diff(pairs.indptr))
        if len(some):
            out[some] = np.minimum.reduceat(pairs.data + x[pairs.indices], pairs.indptr[some])
        return out

    def _nearest(
        self, x: Array, k: int, by_rows: bool, below: NDArray[np.float64] | None, threads: int
    ) -> tuple[NDArray[np.int64], Array]:
        pairs = self.pairs if by_rows else self._by_columns
        sums, own = pairs.data + x[pairs.indices], np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
        order = np.lexsort((sums, own))
        place = np.arange(len(order)) - pairs.indptr[own]  # of each sum among those of its row
        kept = (place < k) & (sums[order] < np.inf)
        if below is not None:
            kept &= sums[order] < below[own]
        found = np.full((pairs.shape[0], k), -1, np.int64)
        least = np.full(found.shape, np.inf, self.dtype)
        found[own[kept], place[kept]] = pairs.indices[order[kept]]
        least[own[kept], place[kept]] = sums[order[kept]]
        return found, least

    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]:
        weights = p[:, self._row_of].astype(np.float64) * q[:, self.pairs.indices]
        total = weights.sum(axis=1)
        return np.asarray((weights @ self.pairs.data.astype(np.float64)) / np.where(total > 0, total, 1.0))

    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        i, j = np.broadcast_arrays(i, j)
        m2 = self.shape[1]
        keys, wanted = self._row_of * m2 + self.pairs.indices, i.ravel().astype(np.int64) * m2 + j.ravel()
        found = np.full(wanted.shape, np.inf, self.dtype)
        if len(keys):
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            stored = keys[place] == wanted
            found[stored] = self.pairs.data[place[stored]]
        return found.reshape(i.shape)[()]

    def subset(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> SparseCost:
        return SparseCost(self.pairs[rows][:, columns], self.dtype)

    def forbidden(self) -> Counts:
        m1, m2 = self.shape
        rows, columns = np.diff(self.pairs.indptr), np.bincount(self.pairs.indices, minlength=m2)
        return (m2 - rows).astype(np.int64), (m1 - columns).astype(np.int64)

    def matrix(self, rows: NDArray[np.intp] | None = None, columns: NDArray[np.intp] | None = None) -> Array:
        if rows is not None or columns is not None:
            return super().matrix(rows, columns)
        costs = np.full(self.shape, np.inf, self.dtype)
        costs[self._row_of, self.pairs.indices] = self.pairs.data
        return costs

    def spread(self) -> float:
        costs = self.pairs.data.astype(np.float64)
        return float(costs.max() - costs.min()) if len(costs) else 0.0

    def least(self) -> float:
        return float(self.pairs.data.min()) if self.pairs.nnz else 0.0

    def sweep_memory(self) -> float:
        return 24.0 * self.pairs.nnz

    def operand_memory(self) -> float:
        return 0.0
