"""The one owner of compiled and NumPy code: operations that have a kernel, and what can be done without one.

`Backend` does them in NumPy, or says by a capability that it cannot; `CompiledBackend` calls the kernels. `backend`
returns the one that is in use. No other module asks which kernels are selected. Another device would be one more
subclass: it overrides the operations that it has, such as `c_transform`, and inherits the others.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, pairwise
from types import ModuleType
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import splu

from . import native
from .double_double import DoubleDouble

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_BLOCK = 2_000_000  # entries of the blocks of a matrix that NumPy sorts: some tens of megabytes with their copies
_DISTANCES = 4_000_000  # on graphs that are computed at once
_PAIRS = 1_000  # of nodes whose distances one call finds: Ctrl-C waits for it


class TransformedCost(Protocol):
    """What a cost offers, so that a backend can work with it; see `gibbsot.costs.Cost`."""

    shape: tuple[int, int]

    def operand(self) -> tuple[str, Any] | None:
        """Return the kind of its kernel and the kernel's first argument, or None if there is no kernel."""

    def matrix(self, rows: Any = None, columns: Any = None) -> NDArray[np.floating]:
        """Return some rows or columns of its matrix."""

    def _transform_one(self, x: NDArray[np.floating], by_rows: bool) -> NDArray[np.floating]:
        """Return one c-transform in NumPy."""


class StopFlag:
    """A flag that ends the work of kernels; without kernels nothing looks at it."""

    def set(self) -> None:
        """End the work."""

    def watch(self) -> None:
        """Let the kernels of this thread look at the flag."""


class _SparseFactors:
    """Factors of symmetric matrices by SuperLU: see `Backend.sparse_factors`."""

    def __init__(self, begin: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        self._pattern, self._shape = (rows, begin), (len(begin) - 1, len(begin) - 1)
        self._factors: Any = None

    def factorise(self, values: Array, diagonal: Array) -> bool:
        """Factorise a matrix; tell whether it is definite."""
        upper = sparse.csc_array((values, *self._pattern), shape=self._shape)
        matrix = (upper + upper.T + sparse.diags_array(diagonal)).tocsc()
        try:
            self._factors = splu(
                matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True, "Equil": False}
            )
        except RuntimeError:
            return False
        return bool((self._factors.U.diagonal() > 0).all())

    def solve(self, x: Array) -> None:
        """Replace a right-hand side by the solution."""
        x[:] = self._factors.solve(x)


_DOUBLE = np.dtype(np.float64)  # compared faster than the type


class Backend:
    """The operations in NumPy.

    Attributes
    ----------
    name : str
        What ``GIBBSOT_KERNEL`` calls it.
    has_simplex : bool
        Whether there is a network simplex: `solve_dense`, `solve_points`, `solve_matrices`, `complete_dense`,
        `arc_simplex`. Without it exact problems but those on the line are solved by SciPy's HiGHS on few arcs.
    has_kd_trees : bool
        Whether there are `kd_tree`, `median_cells` and `match_points`.

    Examples
    --------
    >>> numpy = Backend()
    >>> numpy.extremes(np.array([[3.0, 1.0]]))
    (1.0, 3.0)
    >>> numpy.has_simplex
    False
    """

    name = "numpy"
    has_simplex = False
    has_kd_trees = False

    # --- checks of input -----------------------------------------------------------------------------------------

    def extremes(self, x: NDArray[np.floating]) -> tuple[float, float]:
        """Return the least and the largest entry of an array that is not empty, NaN if there is one."""
        return float(np.minimum.reduce(x, axis=None)), float(np.maximum.reduce(x, axis=None))

    def sum_rows(self, x: NDArray[np.floating]) -> tuple[Array, float, float]:
        """Return the sums of the rows of a matrix, inf where finite entries overflow, and its `extremes`."""
        with np.errstate(over="ignore", invalid="ignore"):
            return x.sum(axis=1, dtype=np.float64), *self.extremes(x)

    # --- costs ---------------------------------------------------------------------------------------------------

    def c_transform(
        self,
        cost: TransformedCost,
        x: NDArray[np.floating],
        by_rows: bool,
        out: NDArray[np.floating],
        threads: int,
    ) -> None:
        """Write the minimum of ``M_ij + x_j`` over j (by rows) or of ``M_ij + x_i`` over i, of each row x of a batch.

        Parameters
        ----------
        cost : Cost
            The cost.
        x : array of shape (n, m2) by rows, else (n, m1)
            What is added; of the cost's precision and contiguous.
        by_rows : bool
            Whether there is one minimum for each row of M.
        out : array of shape (n, m1) by rows, else (n, m2)
            The minima.
        threads : int
            Threads over the batch.
        """
        for one, row in zip(x, out, strict=True):
            row[:] = cost._transform_one(one, by_rows)

    def nearest(self, cost: TransformedCost, x: NDArray[np.floating], by_rows: bool, out: Indices) -> None:
        """Write where the k least ``M_ij + x_j`` of each row i are (by rows), or the least ``M_ij + x_i`` of each j.

        Parameters
        ----------
        cost : Cost
            The cost.
        x : array of shape (m2,) by rows, else (m1,)
            What is added.
        by_rows : bool
            Whether each row of M is searched, or each column.
        out : array of int64, shape (m1, k) by rows, else (m2, k)
            The indices in the order of their sums; -1 where a sum is infinite.
        """
        self._search(cost, x, by_rows, out)

    def _search(
        self, cost: TransformedCost, x: NDArray[np.floating], by_rows: bool, out: Indices
    ) -> NDArray[np.floating]:
        """Write what `nearest` does, and return the sums: infinite where there is no index."""
        least, step = np.empty(out.shape, x.dtype), max(1, _BLOCK // len(x))
        for start in range(0, len(out), step):
            own = np.arange(start, min(start + step, len(out)))
            sums = (cost.matrix(rows=own) if by_rows else cost.matrix(columns=own).T) + x
            order = np.argsort(sums, axis=1, kind="stable")[:, : out.shape[1]]
            least[own] = np.take_along_axis(sums, order, axis=1)
            out[own] = np.where(least[own] < np.inf, order, -1)
        return least

    def nearest_products(
        self,
        products: NDArray[np.floating],
        *,
        s: NDArray[np.floating],
        t: NDArray[np.floating],
        x: NDArray[np.floating],
        first: int,
        cancelled: float,
        root: bool,
        sums: NDArray[np.floating],
        found: Indices,
        near: NDArray[np.uint8],
    ) -> None:
        """Offer the sums of costs and x of a tile to lists of the least ones of each row.

        Parameters
        ----------
        products : array of shape (n, m)
            ``-2 <x_i, y_j>``.
        s, t : arrays of shape (n,) and (m,)
            Squared lengths.
        x : array of shape (m,)
            What is added.
        first : int
            The number of the first column.
        cancelled : float
            Squared distances below this share of ``s_i + t_j`` have lost digits: these pairs are left out.
        root : bool
            Whether costs are plain distances.
        sums : array of shape (n, k)
            The least sums so far in ascending order.
        found : array of int64, shape (n, k)
            Where they are.
        near : array of uint8, shape (n,)
            Rows of which a pair was left out get a one.
        """
        costs = products + s[:, None]
        costs += t
        left_out = costs < cancelled * (s[:, None] + t)
        near[left_out.any(axis=1)] = 1
        if root:
            costs = np.sqrt(np.maximum(costs, 0))
        costs[left_out] = np.inf
        every = np.concatenate([sums, costs + x], axis=1)
        k = sums.shape[1]
        order = np.argsort(every, axis=1, kind="stable")[:, :k]
        sums[:] = np.take_along_axis(every, order, axis=1)
        where = np.concatenate([found, np.broadcast_to(first + np.arange(len(t)), costs.shape)], axis=1)
        found[:] = np.take_along_axis(where, order, axis=1)

    def graph_nearest(
        self, cost: TransformedCost, x: NDArray[np.floating], k: int, by_rows: bool
    ) -> tuple[Indices, NDArray[np.floating]]:
        """Return where the k least sums of a cost on a graph and x are, for each row or column, and the sums.

        Parameters
        ----------
        cost : GraphCost
            The cost.
        x : array of shape (m2,) by rows, else (m1,)
            What is added.
        k : int
            The number of points.
        by_rows : bool
            Whether each row of M is searched, or each column.
        """
        found = np.empty((cost.shape[0 if by_rows else 1], k), np.int64)
        sums = self._search(cost, x, by_rows, found)
        return found, sums

    def graph_distances(
        self, graph: sparse.csr_array, source: NDArray[np.integer], target: NDArray[np.integer]
    ) -> Array:
        """Return the lengths of shortest paths between pairs of nodes, infinite where there is none.

        Parameters
        ----------
        graph : scipy.sparse.csr_array of shape (n, n)
            The lengths of the arcs, in double precision.
        source, target : arrays of int, shape (k,)
            The pairs, sorted by their sources.
        """
        found = np.empty(len(source))
        nodes, starts = np.unique(source, return_index=True)
        starts, step = np.append(starts, len(source)), max(1, _DISTANCES // graph.shape[0])
        for first in range(0, len(nodes), step):
            some = nodes[first : first + step]
            part = slice(starts[first], starts[min(first + step, len(nodes))])
            rows = np.searchsorted(some, source[part])
            found[part] = csgraph.dijkstra(graph, indices=some)[rows, target[part]]
        return found

    def means(
        self, columns: NDArray[np.floating], p: NDArray[np.floating], q: NDArray[np.floating], threads: int
    ) -> Array:
        """Return the mean of the finite costs under each product of weights.

        Parameters
        ----------
        columns : array of shape (m2, at least m1)
            The columns of the matrix of costs, which may be padded.
        p, q : arrays of shape (n, m1) and (n, m2)
            Weights.
        threads : int
            Threads over the problems.
        """
        out, Mt = np.empty(len(p)), columns[:, : p.shape[1]]
        for b, (source, target) in enumerate(zip(p.astype(np.float64), q.astype(np.float64), strict=True)):
            kept = np.flatnonzero(target)
            weight = target[kept, None] * source
            finite = np.isfinite(Mt[kept])
            out[b] = (weight * np.where(finite, Mt[kept], 0)).sum() / (weight * finite).sum()
        return out

    def kd_tree(self, points: NDArray[np.floating]) -> Any:
        """Return a k-d tree of points in one to four dimensions, as `costs.kdtree.SearchedPoints` uses it."""
        self._lacks_kd_trees()

    def median_cells(self, points: NDArray[np.floating], most: int, label: Indices) -> int:
        """Write the cell of each point, with at most a given number of points; return the number of cells."""
        self._lacks_kd_trees()

    def match_points(self, X: Array, Y: Array, **arguments: Any) -> float:
        """Match points in the plane, as ``native/matching.hpp`` says; return how far potentials violate a pair."""
        self._lacks("matching of points", "solve with penalties on a sparse cost instead")

    def _lacks_kd_trees(self) -> NoReturn:
        """Raise an error about searches in space."""
        self._lacks("k-d trees", "c-transforms and arcs of least reduced cost come from the matrix instead")

    # --- the sampler ---------------------------------------------------------------------------------------------

    def has_chains(self, cost: TransformedCost) -> bool:
        """Tell whether `sweeps` and `mixture_sweeps` run chains of this cost; else the sampler does it by steps."""
        return False

    def sweeps(self, cost: TransformedCost, **arguments: Any) -> None:
        """Advance chains, as ``native/sweep.hpp`` says; `sampling.sampler.step` is the specification."""
        self._lacks("chains", "use `sampling.sampler.step`")

    def mixture_sweeps(self, cost: TransformedCost, **arguments: Any) -> None:
        """Advance chains whose models are mixtures, as ``native/mixtures.hpp`` says; see `sampling.mixtures`."""
        self._lacks("chains", "use `sampling.sampler.step`")

    # --- exact optima --------------------------------------------------------------------------------------------

    def staircase(self, p: Array, q: Array) -> tuple[Indices, Indices, Array]:
        """Return rows, columns and shares of the plan of the north-west corner rule, in exact arithmetic.

        It has one cell for each row and column but one, in the order of a path; some cells may have no mass.
        """
        P, Q = (sum(map(Fraction, x.tolist())) for x in (p, q))
        steps = [(x * Q, 0) for x in accumulate(map(Fraction, p[:-1].tolist()))]
        steps += [(x * P, 1) for x in accumulate(map(Fraction, q[:-1].tolist()))]
        steps.sort()
        kinds = np.array([kind for _, kind in steps], np.int64)
        i, j = (np.concatenate([[0], np.cumsum(kinds == side)]) for side in (0, 1))
        ends = [Fraction(0), *(x for x, _ in steps), P * Q]
        return i, j, np.array([float((b - a) / (P * Q)) for a, b in pairwise(ends)])

    def solve_dense(self, *arguments: Any) -> None:
        """Solve problems on all arcs of a matrix, as ``native/bind_exact.cpp`` says."""
        self._lacks_simplex()

    def assign(self, C: NDArray[np.float32], seconds: float, stop: Any) -> tuple[Array, Array] | None:
        """Return potentials of an assignment at least cost, or None, as ``native/bind_exact.cpp`` says."""
        return None

    def auction(self, p: Array, q: Array, prices: Array, k: int) -> Any:
        """Return prices by bids, as ``native/auction.hpp`` says, from lists of k columns for each row."""
        self._lacks("bids", "start from annealed potentials instead")

    def solve_points(self, X: Array, Y: Array, metric: str, **arguments: Any) -> None:
        """Solve packed problems between points, as ``native/bind_packed.cpp`` says."""
        self._lacks_simplex()

    def solve_matrices(self, C: Array, **arguments: Any) -> None:
        """Solve packed problems with matrices, as ``native/bind_packed.cpp`` says."""
        self._lacks_simplex()

    def bound_line(
        self, x: Array, y: Array, p: Array, q: Array, power: float, accuracy: float
    ) -> tuple[float, float, float, bool]:
        """Return the cost of the monotone plan on the line, its bounds, and whether they are proved.

        Parameters
        ----------
        x, y : arrays of shape (m1,) and (m2,)
            The points.
        p, q : arrays of the same shapes, or empty
            Valid weights; empty for points that have all the same.
        power : float
            The power of the distance, at least 1.
        accuracy : float
            The relative error of a cost.
        """
        return 0.0, 0.0, 0.0, False

    def solve_lines(self, x: Array, y: Array, *, numbers: Array, **arguments: Any) -> None:
        """Bound the costs of monotone plans on the line, as ``native/bind_packed.cpp`` says; here it proves none."""
        numbers[:] = 1.0

    def inner(self, x: Array, y: Array) -> tuple[float, float, float, int, int] | None:
        """Return ``<x, y>``, or the sum of x if y is empty, as two doubles; None without kernels.

        They are followed by the sum of the absolute terms, the number of those that are not zero, and the power of two
        that all of these sums are to be multiplied by.
        """
        return None

    def scale_bounds(self, weights: Array, bounds: Array) -> bool:
        """Multiply bounds by the sums of weights, rounded outwards; return False where that is left to integers."""
        return False

    def complete_dense(self, C: Array, **arguments: Any) -> None:
        """Write the potentials of points without weight, from those that `solve_dense` wrote."""
        self._lacks_simplex()

    def arc_simplex(self, p: Array, q: Array) -> Any:
        """Return a network simplex on a list of arcs that grows, as `exact.simplex.ArcProblem` uses it."""
        self._lacks_simplex()

    def network_simplex(self, *arguments: Any) -> Any:
        """Return a network simplex on the links of a network, as `exact.graph.NetworkProblem` uses it."""
        self._lacks_simplex()

    def sparse_factors(self, begin: NDArray[np.int64], rows: NDArray[np.int32]) -> Any:
        """Return factors of symmetric matrices, whose columns have these rows above the diagonal, in this order.

        ``factorise(values, diagonal)`` tells whether the matrix is definite; ``solve(x)`` replaces x by the solution.
        """
        return _SparseFactors(begin, rows)

    def follow_forest(
        self, i: NDArray[np.int64], j: NDArray[np.int64], costs: Array, weight: Array, *, f: Array, g: Array
    ) -> None:
        """Write potentials with twice the digits that make the arcs of a forest tight.

        In every tree the row of the weighted median of f keeps its potential.
        """
        m1 = len(weight)
        y = np.concatenate([f, g], axis=1)
        links: list[list[tuple[int, int]]] = [[] for _ in range(y.shape[1])]
        for arc, (tail, head) in enumerate(zip(i.tolist(), (m1 + j).tolist(), strict=True)):
            links[tail].append((head, arc))
            links[head].append((tail, arc))

        def walk(top: int) -> dict[int, tuple[int, int]]:
            """Return the nodes of a tree, parents first, each with its parent and the arc to it."""
            order, found = [top], {top: (-1, -1)}
            for above in order:
                fresh = {v: (above, arc) for v, arc in links[above] if v not in found}
                found |= fresh
                order += fresh
            return found

        seen: set[int] = set()
        for first in range(m1):
            if first in seen:
                continue
            rows = np.array([v for v in walk(first) if v < m1])
            rows = rows[np.lexsort((rows, f[0, rows]))]
            before = np.cumsum(weight[rows])
            tree = walk(int(rows[min(np.searchsorted(before, before[-1] / 2), len(rows) - 1)]))
            seen |= tree.keys()
            for v, (above, arc) in tree.items():
                if arc >= 0:
                    y[:, v] = DoubleDouble(*costs[:, arc]).minus(DoubleDouble(*y[:, above]))
        f[:], g[:] = y[:, :m1], y[:, m1:]

    def _lacks_simplex(self) -> NoReturn:
        """Raise an error about the exact engine."""
        self._lacks("network simplex", "solve on the arcs with SciPy's HiGHS instead")

    def _lacks(self, what: str, instead: str) -> NoReturn:
        """Raise an error about an operation that a capability tells to be missing."""
        raise RuntimeError(f"the backend {self.name!r} has no {what}, which the compiled kernels have; {instead}")

    # --- threads -------------------------------------------------------------------------------------------------

    def stop_flag(self) -> Any:
        """Return a flag with the methods of `StopFlag`, which ends what the kernels do in threads that watch it."""
        return StopFlag()


class CompiledBackend(Backend):
    """The operations by compiled kernels, and in NumPy those that the kernels lack for a cost or a precision.

    Parameters
    ----------
    name : str
        The instruction set.
    module : module
        The kernels.
    """

    has_simplex = True
    has_kd_trees = True

    def __init__(self, name: str, module: ModuleType) -> None:
        self.name, self._module = name, module

    def extremes(self, x: NDArray[np.floating]) -> tuple[float, float]:
        if x.dtype != _DOUBLE or x.ndim != 2 or not x.flags.c_contiguous:
            return super().extremes(x)
        low, high = self._module.extremes(x)
        return low, high

    def sum_rows(self, x: NDArray[np.floating]) -> tuple[Array, float, float]:
        if x.dtype != _DOUBLE or not x.flags.c_contiguous:
            return super().sum_rows(x)
        sums = np.empty(len(x))
        low, high = self._module.sum_rows(x, sums)
        return sums, low, high

    def c_transform(
        self,
        cost: TransformedCost,
        x: NDArray[np.floating],
        by_rows: bool,
        out: NDArray[np.floating],
        threads: int,
    ) -> None:
        found = cost.operand()
        if found is None:
            super().c_transform(cost, x, by_rows, out, threads)
        else:
            transform = getattr(self._module, f"c_transform_{found[0]}")
            transform(found[1], by_rows=by_rows, x=x, out=out, n_threads=threads)

    def nearest(self, cost: TransformedCost, x: NDArray[np.floating], by_rows: bool, out: Indices) -> None:
        found = cost.operand()
        if found is None:
            super().nearest(cost, x, by_rows, out)
        else:
            getattr(self._module, f"nearest_{found[0]}")(found[1], by_rows=by_rows, x=x, out=out)

    def nearest_products(self, products: NDArray[np.floating], **arguments: Any) -> None:
        self._module.nearest_products(products, **arguments)

    def means(
        self, columns: NDArray[np.floating], p: NDArray[np.floating], q: NDArray[np.floating], threads: int
    ) -> Array:
        out = np.empty(len(p))
        self._module.means_dense(columns, p=p, q=q, out=out, n_threads=threads)
        return out

    def kd_tree(self, points: NDArray[np.floating]) -> Any:
        return getattr(self._module, f"KdTree{points.shape[1]}")(points)

    def match_points(self, X: Array, Y: Array, **arguments: Any) -> float:
        return float(self._module.match_points(X, Y, **arguments))

    def has_chains(self, cost: TransformedCost) -> bool:
        return cost.operand() is not None

    def sweeps(self, cost: TransformedCost, **arguments: Any) -> None:
        self._run("run", cost, arguments)

    def mixture_sweeps(self, cost: TransformedCost, **arguments: Any) -> None:
        self._run("run_mixtures", cost, arguments)

    def _run(self, what: str, cost: TransformedCost, arguments: dict[str, Any]) -> None:
        """Call the kernel of a cost that `has_chains`."""
        kind, operand = cost.operand() or self._lacks("chains of this cost", "use `sampling.sampler.step`")
        getattr(self._module, f"{what}_{kind}")(operand, **arguments)

    def staircase(self, p: Array, q: Array) -> tuple[Indices, Indices, Array]:
        n = len(p) + len(q) - 1
        i, j, share = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
        self._module.line_path(p=p, q=q, i=i, j=j, share=share)
        return i, j, share

    def solve_dense(self, *arguments: Any) -> None:
        self._module.solve_dense(*arguments)

    def assign(self, C: NDArray[np.float32], seconds: float, stop: Any) -> tuple[Array, Array] | None:
        f, g = np.empty((2, len(C)))
        return (f, g) if self._module.assign(C, seconds, stop, f, g) else None

    def auction(self, p: Array, q: Array, prices: Array, k: int) -> Any:
        return self._module.Auction(p, q, prices, k)

    def solve_points(self, X: Array, Y: Array, metric: str, **arguments: Any) -> None:
        self._module.solve_points(X, Y, metric, **arguments)

    def solve_matrices(self, C: Array, **arguments: Any) -> None:
        self._module.solve_matrices(C, **arguments)

    def bound_line(
        self, x: Array, y: Array, p: Array, q: Array, power: float, accuracy: float
    ) -> tuple[float, float, float, bool]:
        value, lower, upper, proved = self._module.bound_line(x, y, p, q, power, accuracy)
        return value, lower, upper, proved

    def solve_lines(self, x: Array, y: Array, **arguments: Any) -> None:
        self._module.solve_lines(x, y, **arguments)

    def inner(self, x: Array, y: Array) -> tuple[float, float, float, int, int] | None:
        high, low, absolute, terms, exponent = self._module.inner(x, y)
        return high, low, absolute, terms, exponent

    def scale_bounds(self, weights: Array, bounds: Array) -> bool:
        return bool(self._module.scale_bounds(weights, bounds))

    def complete_dense(self, C: Array, **arguments: Any) -> None:
        self._module.complete_dense(C, **arguments)

    def arc_simplex(self, p: Array, q: Array) -> Any:
        return self._module.ArcSimplex(p, q)

    def network_simplex(self, *arguments: Any) -> Any:
        return self._module.NetworkSimplex(*arguments)

    def graph_nearest(
        self, cost: TransformedCost, x: NDArray[np.floating], k: int, by_rows: bool
    ) -> tuple[Indices, NDArray[np.floating]]:
        graph = (cost.operand() or self._lacks("graph", "give the cost an operand"))[1]
        size = len(graph[-2 if by_rows else -1])
        found, sums = np.empty((size, k), np.int64), np.empty((size, k), x.dtype)
        self._module.nearest_graph(graph, by_rows=by_rows, x=x, found=found, sums=sums)
        return found, sums

    def graph_distances(
        self, graph: sparse.csr_array, source: NDArray[np.integer], target: NDArray[np.integer]
    ) -> Array:
        starts, heads = graph.indptr.astype(np.int64), graph.indices.astype(np.int32)
        source, target, found = source.astype(np.int64), target.astype(np.int64), np.empty(len(source))
        for first in range(0, len(source), _PAIRS):  # between parts Python sees Ctrl-C
            part = slice(first, first + _PAIRS)
            self._module.distances_graph(starts, heads, graph.data, source[part], target[part], found[part])
        return found

    def sparse_factors(self, begin: NDArray[np.int64], rows: NDArray[np.int32]) -> Any:
        return self._module.SparseFactors(begin, rows)

    def follow_forest(
        self, i: NDArray[np.int64], j: NDArray[np.int64], costs: Array, weight: Array, *, f: Array, g: Array
    ) -> None:
        self._module.follow_forest(i, j, costs, weight, f=f, g=g)

    def stop_flag(self) -> Any:
        return self._module.StopFlag()

    def median_cells(self, points: NDArray[np.floating], most: int, label: Indices) -> int:
        return int(self._module.median_cells(points, most=most, label=label))


_made: dict[str, Backend] = {"numpy": Backend()}


def backend() -> Backend:
    """Return the backend that is in use: that of the kernels which `native.name` names.

    Returns
    -------
    Backend

    Examples
    --------
    >>> backend().name in native.available()
    True
    """
    found = _made.get(native._name)  # a small problem asks several times: this is the only call
    if found is None:
        name = native.name()
        found = _made[name] = _made.get(name) or CompiledBackend(name, native.load(name))
    return found
