"""Costs on graphs: shortest paths, which are never stored for all pairs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from ..core import validation
from ..core.backend import backend
from .base import Array, Cost, frozen
from .network import Network

_BLOCK = 4_000_000  # distances that are computed at once
_SAMPLE = 64  # rows whose distances give the mean cost of a large graph


class GraphCost(Cost):
    r"""The length of the shortest path between nodes of a weighted graph.

    A c-transform is one run of Dijkstra's algorithm with the potentials as starting values, so that the matrix of all
    distances is never formed. Exact solvers move mass along the edges: see ``network``. Measures are weights of the
    nodes.

    Parameters
    ----------
    graph : sparse matrix of shape (n, n)
        The lengths of the edges, from rows to columns, as for `scipy.sparse.csgraph`; for a graph of networkx
        ``networkx.to_scipy_sparse_array(graph)``. Stored zeros are edges of length zero, infinite lengths none.
    directed : bool
        If not, an edge leads both ways, and of two lengths between a pair of nodes the lesser counts.
    dtype : {float32, float64}, optional
        The precision of computations; by default that of the lengths if it is one of the two, else float64.

    Attributes
    ----------
    graph : scipy.sparse.csr_array of shape (n, n)
        The lengths in double precision; both directions of every edge are stored if the graph is not directed. Loops
        and infinite lengths are left out.
    directed : bool
        The parameter.
    shape, dtype, finite, depth, work
        As of `Cost`; ``depth`` counts the edges of a path.

    Raises
    ------
    ValueError
        If the matrix is not square or has no nodes, or if a length is negative, NaN or beyond the range of the
        precision.

    Examples
    --------
    >>> from gibbsot import GraphCost, solve
    >>> from scipy import sparse
    >>> road = GraphCost(sparse.csr_array([[0, 2.0, 0], [0, 0, 3.0], [0, 0, 0]]), directed=False)
    >>> road.row_min([0.0, 9.0, 9.0])
    array([0., 2., 5.])
    >>> result = solve([1, 0, 1], [0, 2, 0], road)
    >>> result.value, result.flow.toarray().tolist()
    (5.0, [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    """

    named_by = "lengths"
    graph: sparse.csr_array
    directed: bool
    _rows: NDArray[np.int32]
    _columns: NDArray[np.int32]

    def __init__(self, graph: Any, directed: bool = True, dtype: DTypeLike | None = None) -> None:
        if not sparse.issparse(graph):
            raise TypeError(
                f"graph: expected a sparse matrix of lengths, got {type(graph).__name__}; for networkx it is "
                "networkx.to_scipy_sparse_array(graph)"
            )
        if len(graph.shape) != 2 or graph.shape[0] != graph.shape[1] or graph.shape[0] == 0:
            raise ValueError(f"graph: expected a square matrix with at least one node, got shape {graph.shape}")
        stored = validation.sparse_rows(graph, "graph")
        precision, lengths = validation.precision(dtype, stored.data), stored.data.astype(np.float64)
        if np.isnan(lengths).any() or (lengths < 0).any():
            bad = np.flatnonzero(np.isnan(lengths) | (lengths < 0))[0]
            start = int(np.searchsorted(stored.indptr, bad, "right")) - 1
            raise ValueError(
                f"graph: the edge from {start} to {stored.indices[bad]} has length {lengths[bad]}; expected lengths of "
                "at least 0"
            )
        arcs = stored.tocoo()
        tail, head, kept = arcs.row.astype(np.int64), arcs.col.astype(np.int64), arcs.row != arcs.col
        kept &= np.isfinite(lengths)
        tail, head, lengths = tail[kept], head[kept], lengths[kept]
        directed = validation.flag(directed, "directed")
        if not directed:
            tail, head = np.concatenate([tail, head]), np.concatenate([head, tail])
            lengths = np.concatenate([lengths, lengths])
            order = np.lexsort((lengths, head, tail))
            first = np.diff(tail[order] * stored.shape[0] + head[order], prepend=-1) > 0
            tail, head, lengths = (x[order][first] for x in (tail, head, lengths))
        n = stored.shape[0]
        every = np.arange(n, dtype=np.int32)
        made = sparse.csr_array((lengths, head, np.searchsorted(tail, np.arange(n + 1))), (n, n))
        self._set(made, directed, precision, every, every)
        validation.check_range(max(self.spread(), float(lengths.max(initial=0.0))), "graph", self.dtype)

    def _set(
        self, graph: sparse.csr_array, directed: bool, dtype: np.dtype[Any], rows: NDArray[np.int32],
        columns: NDArray[np.int32],
    ) -> None:  # fmt: skip
        """Set the attributes from arrays that have been checked."""
        for array in (graph.data, graph.indices, graph.indptr, rows, columns):
            frozen(array)
        self.graph, self.directed, self.dtype = graph, directed, dtype
        self._rows, self._columns, self.shape = rows, columns, (len(rows), len(columns))
        edges, n = graph.nnz, graph.shape[0]
        self.work = 2 * (edges + n * max(1, n.bit_length()))

    def _of(self, **changed: Any) -> GraphCost:
        """Return the same cost with some attributes changed."""
        made = GraphCost.__new__(GraphCost)
        given = {
            "graph": self.graph, "directed": self.directed, "dtype": self.dtype, "rows": self._rows,
            "columns": self._columns,
        }  # fmt: skip
        made._set(**(given | changed))
        shared = ("_pieces", "depth", "_widest", "_reversed")
        vars(made).update({name: x for name, x in vars(self).items() if name in shared})
        return made

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        count = self.graph.nnz if self.directed else self.graph.nnz // 2
        text = f"{kind} graph of {self.graph.shape[0]:,} nodes and {count:,} edges"
        if self.shape != self.graph.shape:
            text += f", {self.shape[0]:,} x {self.shape[1]:,} of them"
        precision = "" if self.dtype == np.float64 else f", dtype={self.dtype.name!r}"
        return f"GraphCost(<{text}>{precision})"

    @cached_property
    def _pieces(self) -> int:
        """The number of parts between which there are pairs without a path."""
        kind = "strong" if self.directed else "weak"
        return int(csgraph.connected_components(self.graph, self.directed, kind, return_labels=False))

    @property
    def finite(self) -> bool:  # type: ignore[override]
        """Whether there is a path between all pairs of nodes."""
        return self._pieces == 1

    @cached_property
    def depth(self) -> int:  # type: ignore[override]
        """A bound of the edges of a shortest path."""
        lengths, most = self.graph.data, self.graph.shape[0] - 1
        least = float(lengths.min(initial=np.inf))
        if least > 0 and self.spread() / least < most:
            most = int(self.spread() / least * (1 + 1e-9))
        return max(1, most)

    def symmetric(self) -> bool:
        return not self.directed and np.array_equal(self._rows, self._columns)

    def arrays(self) -> dict[str, NDArray[Any]]:
        graph = self.graph
        return {
            "lengths": graph.data, "heads": graph.indices, "starts": graph.indptr, "rows": self._rows,
            "columns": self._columns, "directed": np.array(self.directed), "dtype": np.array(self.dtype.name),
        }  # fmt: skip

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        starts = np.ravel(arrays["starts"])
        n = len(starts) - 1
        # a file may say anything: the constructor checks it all
        graph = sparse.csr_array((np.ravel(arrays["lengths"]), np.ravel(arrays["heads"]), starts), shape=(n, n))
        made = cls(graph, bool(arrays["directed"]), str(arrays["dtype"]))
        ends = [np.ravel(arrays[name]).astype(np.int64) for name in ("rows", "columns")]
        for name, nodes in zip(("rows", "columns"), ends, strict=True):
            if len(nodes) == 0 or nodes.min() < 0 or nodes.max() >= n:
                raise ValueError(f"{name}: expected nodes from 0 to {n - 1}")
        made._rows, made._columns = (frozen(nodes.astype(np.int32)) for nodes in ends)
        made.shape = len(made._rows), len(made._columns)
        return made

    def astype(self, dtype: DTypeLike) -> GraphCost:
        if self.dtype == np.dtype(dtype):
            return self
        validation.check_range(max(self.spread(), float(self.graph.data.max(initial=0.0))), "graph", np.dtype(dtype))
        return self._of(dtype=np.dtype(dtype))

    def rescaled(self, shift: float, root: float) -> GraphCost:
        assert shift == 0
        graph = self.graph
        lengths = sparse.csr_array((graph.data / root**2, graph.indices, graph.indptr), graph.shape)
        made = GraphCost.__new__(GraphCost)
        made._set(lengths, self.directed, self.dtype, self._rows, self._columns)
        return made

    def subset(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> GraphCost:
        return self._of(rows=self._rows[rows], columns=self._columns[columns])

    def network(self) -> Network:
        return self._network

    @cached_property
    def _network(self) -> Network:
        """The links, made once."""
        return Network.of(self.graph, self._rows, self._columns)

    @cached_property
    def _reversed(self) -> sparse.csr_array:
        """The arcs in the other direction."""
        return self.graph if not self.directed else sparse.csr_array(self.graph.T)

    def operand(self) -> tuple[str, Any]:
        return "graph", self._operand

    @cached_property
    def _operand(self) -> tuple[NDArray[Any], ...]:
        """What the compiled kernel reads."""
        return (*self._links(self.graph), *self._links(self._reversed), self._rows, self._columns)

    def _links(self, graph: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.int32], Array]:
        """Return starts, heads and lengths of the arcs of a graph."""
        lengths = frozen(graph.data.astype(self.dtype))
        return frozen(graph.indptr.astype(np.int64)), frozen(graph.indices.astype(np.int32)), lengths

    def _transform_one(self, x: Array, by_rows: bool) -> Array:
        """Lower the values along all arcs until none changes: the result of Dijkstra's algorithm, bit by bit."""
        starts, heads, lengths = self._links(self.graph if by_rows else self._reversed)
        sources, points = (self._columns, self._rows) if by_rows else (self._rows, self._columns)
        least = np.full(self.graph.shape[0], np.inf, self.dtype)
        np.minimum.at(least, sources, x)
        tails = np.flatnonzero(np.diff(starts))
        while len(tails):
            lower = np.minimum(least[tails], np.minimum.reduceat(least[heads] + lengths, starts[tails]))
            if np.array_equal(lower, least[tails]):
                break
            least[tails] = lower
        return least[points]

    def _nearest(
        self, x: Array, k: int, by_rows: bool, below: NDArray[np.float64] | None, threads: int
    ) -> tuple[NDArray[np.int64], Array]:
        found, sums = backend().graph_nearest(self, x, k, by_rows)
        if below is not None:
            kept = sums < below[:, None]
            found, sums = np.where(kept, found, -1), np.where(kept, sums, np.inf)
        return found, sums

    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]:
        """Return the mean over all pairs, or of a large graph over some rows that stand for p."""
        p, q = (w / w.sum(axis=1, keepdims=True) for w in (p.astype(np.float64), q.astype(np.float64)))
        total = np.empty(len(p))
        for b, (source, target) in enumerate(zip(p, q, strict=True)):
            rows, weight = np.flatnonzero(source), source[source > 0]
            if len(rows) > _SAMPLE:
                middles = (np.arange(_SAMPLE) + 0.5) / _SAMPLE
                picked = np.searchsorted(np.cumsum(weight), middles * weight.sum())
                rows, weight = rows[np.minimum(picked, len(rows) - 1)], np.full(_SAMPLE, 1 / _SAMPLE)
            costs = self.matrix(rows).astype(np.float64)
            finite = np.isfinite(costs)
            weights = weight[:, None] * target
            total[b] = (weights * np.where(finite, costs, 0.0)).sum() / (weights * finite).sum()
        return total

    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        i, j = np.asarray(i), np.asarray(j)
        if i.ndim == 2 and i.shape[1] == 1 and j.ndim == 1:
            return self.matrix(i[:, 0], j)
        i, j = np.broadcast_arrays(i, j)
        own, other = self._rows[i.ravel()], self._columns[j.ravel()]
        graph, found, apart = self.graph, np.zeros(i.size), np.flatnonzero(own != other)
        if len(np.unique(other[apart])) < len(np.unique(own[apart])):  # the other way round there are fewer runs
            graph, own, other = self._reversed, other, own
        order = apart[np.argsort(own[apart], kind="stable")]
        found[order] = backend().graph_distances(graph, own[order], other[order])
        return found.reshape(i.shape).astype(self.dtype, copy=False)[()]

    def matrix(self, rows: NDArray[np.intp] | None = None, columns: NDArray[np.intp] | None = None) -> Array:
        own = self._rows if rows is None else self._rows[rows]
        other = self._columns if columns is None else self._columns[columns]
        if len(other) < len(own):
            return self._distances(self._reversed, other, own).T.copy()
        return self._distances(self.graph, own, other)

    def _distances(self, graph: sparse.csr_array, own: NDArray[np.int32], other: NDArray[np.int32]) -> Array:
        """Return the distances from some nodes to others."""
        found, step = np.empty((len(own), len(other)), self.dtype), max(1, _BLOCK // graph.shape[0])
        for start in range(0, len(own), step):
            found[start : start + step] = csgraph.dijkstra(graph, indices=own[start : start + step])[:, other]
        return found

    def accuracy(self) -> float:
        return self.depth * 2.0**-53

    def spread(self) -> float:
        return self._widest

    @cached_property
    def _widest(self) -> float:
        """A bound of the finite distances."""
        lengths, n = self.graph.data, self.graph.shape[0]
        if not len(lengths):
            return 0.0
        bound = min(float(lengths.sum()), (n - 1) * float(lengths.max()))
        if self._pieces == 1:  # from any node to the first and from there to any
            way = float(csgraph.dijkstra(self.graph, indices=0).max())
            back = float(csgraph.dijkstra(self._reversed, indices=0).max()) if self.directed else way
            bound = min(bound, (way + back) * (1 + n * 2.0**-50))
        return bound

    def least(self) -> float:
        return 0.0

    def sweep_memory(self) -> float:
        return 16.0 * (self.graph.nnz + sum(self.shape))

    def matrix_memory(self) -> float:
        return 26.0 * self.shape[0] * self.shape[1]
