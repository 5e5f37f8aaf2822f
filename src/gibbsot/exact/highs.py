"""Transport on a list of arcs by SciPy's HiGHS, for backends without a network simplex."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from ..core.backend import backend
from ..io.budget import Budget
from .repair import coupling_near, supplies
from .simplex import ArcProblem, staircase

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_ARC_BYTES = 400
_TIME_LIMIT = 1  # the status of SciPy
_TOLERANCE = 1e-10  # the smallest that HiGHS takes
_REPEATS = 12  # linear programs, each of which resolves ten digits more than the one before
_MOST = 10**6  # the largest number in a program for a difference, so that HiGHS resolves the small ones
_ULP = float(np.finfo(np.float64).eps)


def arc_problem(p: Array, q: Array, budget: Budget | None = None) -> ArcProblem | HighsProblem:
    """Return a transport problem on a list of arcs that grows, for the backend in use.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Positive weights.
    budget : Budget, optional
        Its time and memory.

    Returns
    -------
    ArcProblem or HighsProblem

    Examples
    --------
    >>> problem = arc_problem(np.array([1.0]), np.array([1.0]))
    >>> problem.add(np.array([0]), np.array([0]), np.array([3.0]))
    >>> problem.start(np.zeros(1), np.zeros(1), artificial=10.0)
    >>> problem.optimise(), problem.value
    (True, 3.0)
    """
    return (ArcProblem if backend().has_simplex else HighsProblem)(p, q, budget)


class HighsProblem:
    """A transport problem on a list of arcs that grows, with the methods of `simplex.ArcProblem`.

    Every call of `optimise` solves a linear program. Rows and columns have artificial arcs from and to one more node,
    so that the program is feasible on any list of arcs. Its solution becomes a spanning tree with exact flows and
    potentials. HiGHS neglects masses and reduced costs below 1e-10: if these leave a negative flow or reduced cost, a
    program for the difference to the tree magnifies them [1]_. What remains after some programs leaves a gap.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Positive weights.
    budget : Budget, optional
        Its time and memory.

    References
    ----------
    .. [1] A. Gleixner, D. Steffy and K. Wolter, "Iterative refinement for linear programming", INFORMS Journal on
       Computing, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> problem = HighsProblem(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    >>> problem.add(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([1.0, 0.0, 1.0]))
    >>> problem.start(np.zeros(2), np.zeros(2), artificial=10.0)
    >>> problem.optimise()
    True
    >>> problem.exact_plan()[2]
    array([0.5, 0.5])
    """

    def __init__(self, p: Array, q: Array, budget: Budget | None = None) -> None:
        self.p, self.q, self._budget = p, q, budget or Budget()
        self._i, self._j, self._cost = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        self._tree: _Tree | None = None
        self.pivots = 0  # how often the basis has changed

    @property
    def value(self) -> float:
        """Cost of the present plan, in double precision; infinite before there is one."""
        if self._tree is None:
            return np.inf
        _, _, arc, flow = self.basis()
        return float(self._cost[arc[arc >= 0]] @ flow[arc >= 0])

    def add(self, i: Indices, j: Indices, cost: NDArray[np.floating]) -> None:
        """Add arcs from rows i to columns j."""
        self._i, self._j = np.concatenate([self._i, i]), np.concatenate([self._j, j])
        self._cost = np.concatenate([self._cost, cost])

    def can_add(self, count: int) -> bool:
        """Tell whether the memory of the budget allows a number of additional arcs; otherwise the budget ends."""
        return self._budget.fits(_ARC_BYTES * (len(self._cost) + count))

    def start(
        self, f: Array, g: Array, artificial: float, basis: Indices | None = None, tops: Indices | None = None
    ) -> None:
        """Set the potentials that reduced costs refer to, the reduced cost of artificial arcs, and a first basis.

        A linear program has no use for a first basis, nor for the nodes `tops` from which its trees hang.
        """
        self._f, self._g, self._artificial = f.copy(), g.copy(), artificial
        if basis is not None:
            network = self._network()
            preferred = np.zeros(len(network.tail))
            preferred[basis] = 1.0
            self._tree = _Tree(*network, preferred, self._given())

    def raise_artificial(self, factor: float = 4.0) -> float:
        """Make artificial arcs more expensive; return their reduced cost."""
        self._artificial *= factor
        return self._artificial

    @property
    def carried(self) -> bool:
        """Whether the arcs carry all mass, in exact arithmetic."""
        if self._tree is None:
            return False
        every = zip(self._tree.flows, self._tree.arcs.tolist(), strict=True)
        return all(flow >= 0 and (flow == 0 or arc < len(self._cost)) for flow, arc in every)

    def optimise(self, tolerance: float = 0.0, enough: float = -np.inf) -> bool:
        """Solve linear programs; return False if it is certain that the arcs do not carry all mass, or time is up.

        A value that would be enough does not end a program early.
        """
        tail, head, cost, supply = self._network()
        y, unit, grain = self._given(), 0.0, sum(x for x in supply if x > 0)
        reduced, supplied, flows = cost - y[tail] + y[head], np.array([x / grain for x in supply]), np.zeros(len(tail))
        before = frozenset(() if self._tree is None else self._tree.arcs.tolist())
        self._tree = None
        for _ in range(_REPEATS):
            unit = unit or float(np.abs(reduced).max()) or 1.0
            found = self._solve(tail, head, np.minimum(reduced / unit, _MOST), supplied, -flows)
            if found is None:
                return self._tree is not None
            y = y + unit * found[1]
            tree = self._tree = _Tree(tail, head, cost, supply, flows + found[0], y)
            self.pivots += before != (before := frozenset(tree.arcs.tolist()))
            y, reduced, least = tree.y, cost - tree.y[tail] + tree.y[head], min(tree.flows)
            reduced[tree.arcs] = 0.0  # but for rounding
            terms = np.abs(cost) + np.abs(y[tail]) + np.abs(y[head])
            violation = float(-reduced.min(where=reduced < -np.maximum(tolerance, 8 * _ULP * terms), initial=0.0))
            if least >= 0 and violation == 0:
                return self.carried
            # the program for the difference, in units of what is violated
            grain, unit = -least if least < 0 else grain, violation or unit
            supplied, flows = np.zeros(len(supply)), np.zeros(len(tail))
            flows[tree.arcs] = [x / grain if x < _MOST * grain else _MOST for x in tree.flows]
        return True

    def _network(self) -> _Network:
        """Return all arcs, artificial ones included, and what the nodes supply."""
        m1, m2 = len(self.p), len(self.q)
        root = np.full(m1 + m2, m1 + m2)
        tail = np.concatenate([self._i, np.arange(m1), root[:m2]])
        head = np.concatenate([m1 + self._j, root[:m1], m1 + np.arange(m2)])
        cost = np.concatenate([self._cost, self._artificial + self._f, self._artificial + self._g])
        sent, received = supplies(self.p, self.q)
        return _Network(tail, head, cost, [*sent, *(-x for x in received), 0])

    def _given(self) -> Array:
        """Return the potentials given, as numbers of nodes: an arc from a to b has reduced cost c - y_a + y_b."""
        return np.concatenate([self._f, -self._g, [0.0]])

    def _solve(
        self, tail: Indices, head: Indices, cost: Array, supplied: Array, least: Array
    ) -> tuple[Array, Array] | None:
        """Return flows and potentials of HiGHS, or None if time or the range of its numbers did not suffice."""
        from scipy.optimize import linprog  # slow to import

        n = len(supplied) - 1
        signs, arcs = np.repeat([1.0, -1.0], len(tail)), np.tile(np.arange(len(tail)), 2)
        balance = sparse.csr_array((signs, (np.concatenate([tail, head]), arcs)), shape=(n + 1, len(tail)))
        found = linprog(
            cost,
            A_eq=balance[:n],  # that of the artificial node follows from these
            b_eq=supplied[:n],
            bounds=np.column_stack([least, np.full(len(least), np.inf)]),
            method="highs",
            options={
                "primal_feasibility_tolerance": _TOLERANCE,
                "dual_feasibility_tolerance": _TOLERANCE,
                "time_limit": self._budget.seconds,
            },
        )
        if found.status == _TIME_LIMIT or (found.x is None and self._tree is not None):
            return None
        if found.x is None:
            raise RuntimeError(f"HiGHS did not solve a transport problem: {found.message}")
        return found.x, np.append(found.eqlin.marginals, 0.0)

    def potentials(self) -> tuple[Array, Array]:
        """Return the potentials f and g of the last solution, or those given if there is none."""
        if self._tree is None:
            return self._f, self._g
        y = self._tree.y
        return y[: len(self.p)].copy(), -y[len(self.p) : -1]

    def basis(self) -> tuple[Indices, Indices, Indices, Array]:
        """Return the arcs of the basis: rows, columns (-1 for the root), numbers (-1: artificial) and flows."""
        assert self._tree is not None, "a basis there is after `optimise`, or a start from one"
        arcs, own = self._tree.arcs, self._tree.arcs < len(self._cost)
        flows = np.array([x / self._tree.total for x in self._tree.flows])
        (m1, root), (tail, head, _, _) = (len(self.p), len(self.p) + len(self.q)), self._network()
        i, j = (np.where(x[arcs] < root, x[arcs] - first, -1) for x, first in ((tail, 0), (head, m1)))
        return i, j, np.where(own, arcs, -1), flows

    def exact_plan(self) -> tuple[Indices, Indices, Array]:
        """Return rows, columns and masses of a plan: that of the arcs, and the rest by the north-west corner rule."""
        if self._tree is None:
            i, j, share = staircase(self.p, self.q)
            return i[share > 0], j[share > 0], share[share > 0]
        flows, arcs = np.array(self._tree.flows, object), self._tree.arcs
        used = np.flatnonzero(flows != 0)
        kept = used[(flows[used] > 0) & (arcs[used] < len(self._cost))]
        mass = (flows[kept] / self._tree.total).astype(np.float64)
        plan = self._i[arcs[kept]], self._j[arcs[kept]], mass
        if len(kept) == len(used):
            return plan
        costs = dict(zip(zip(self._i.tolist(), self._j.tolist(), strict=True), self._cost.tolist(), strict=True))
        return coupling_near(self.p, self.q, plan, costs=costs)


class _Network(NamedTuple):
    """Arcs with their costs, and what the nodes supply: rows, columns, and the node of artificial arcs."""

    tail: Indices
    head: Indices
    cost: Array
    supply: list[int]


class _Tree:
    """A spanning tree of the nodes, with exact flows of its arcs, which may be negative, and its potentials.

    It has the arcs that carry mass, then those of least reduced cost under the potentials y.
    """

    def __init__(self, tail: Indices, head: Indices, cost: Array, supply: list[int], mass: Array, y: Array) -> None:
        n, self.total = len(supply), sum(x for x in supply if x > 0)
        preferred = np.lexsort((np.abs(cost - y[tail] + y[head]), -mass * (mass > _TOLERANCE)))
        rank = np.empty(len(tail))
        rank[preferred] = 1 + np.arange(len(tail))
        chosen = csgraph.minimum_spanning_tree(_graph(rank, tail, head, n)).data.astype(np.int64)
        basis = preferred[chosen - 1]
        graph = _graph(basis + 1, tail[basis], head[basis], n)
        top = supply.index(max(supply))  # a row, not the artificial node, whose costs would round potentials
        order, parents = csgraph.breadth_first_order(graph, top, directed=False)
        children, parent = order[1:], parents[order[1:]]
        both = (graph + graph.T).tocsr()
        self.arcs = np.asarray(both[children, parent]).ravel().astype(np.int64) - 1
        signs = np.where(tail[self.arcs] == children, 1, -1)
        edges = list(zip(children.tolist(), parent.tolist(), signs.tolist(), strict=True))
        net, self.flows = supply.copy(), list[int]()
        for child, above, sign in reversed(edges):
            net[above] += net[child]
            self.flows.append(sign * net[child])
        self.flows.reverse()
        self.y = y.copy()
        for (child, above, _), c in zip(edges, (signs * cost[self.arcs]).tolist(), strict=True):
            self.y[child] = self.y[above] + c


def _graph(values: NDArray[Any], tail: Indices, head: Indices, n: int) -> sparse.csr_array:
    """Return a graph of n nodes with 32-bit indices, which `csgraph` of SciPy before 1.15 asks for."""
    return sparse.csr_array((values, (tail.astype(np.int32), head.astype(np.int32))), shape=(n, n))
