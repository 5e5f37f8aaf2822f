"""Transport on a list of arcs by SciPy's HiGHS, for installations without compiled kernels."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from ..io.budget import Budget
from .repair import coupling_near, supplies
from .simplex import staircase

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_ARC_BYTES = 400
_TIME_LIMIT = 1  # the status of SciPy
_TOLERANCE = 1e-10  # the smallest that HiGHS takes
_ULP = float(np.finfo(np.float64).eps)


class HighsProblem:
    """A transport problem on a list of arcs that grows, with the methods of `network_simplex.ArcProblem`.

    Every call of `optimise` solves a linear program. Rows and columns have artificial arcs from and to one more node,
    so that the program is feasible on any list of arcs. HiGHS neglects masses and reduced costs below 1e-10, so its
    solution becomes a basis whose flows are integers, and some pivots make it exact.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Positive weights.
    budget : Budget, optional
        Its time and memory.

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

    def add(self, i: Indices, j: Indices, cost: NDArray[np.floating]) -> None:
        """Add arcs from rows i to columns j."""
        self._i, self._j = np.concatenate([self._i, i]), np.concatenate([self._j, j])
        self._cost = np.concatenate([self._cost, cost])

    def can_add(self, count: int) -> bool:
        """Tell whether the memory of the budget allows so many more arcs; otherwise the budget ends."""
        return self._budget.fits(_ARC_BYTES * (len(self._cost) + count))

    def start(self, f: Array, g: Array, artificial: float) -> None:
        """Set the potentials that reduced costs refer to, and the reduced cost of artificial arcs."""
        self._f, self._g, self._artificial = f.copy(), g.copy(), artificial

    def raise_artificial(self, factor: float = 4.0) -> float:
        """Make artificial arcs more expensive; return their reduced cost."""
        self._artificial *= factor
        return self._artificial

    def optimise(self, tolerance: float = 0.0) -> bool:
        """Solve the linear program; return whether the arcs carry all mass."""
        m1, m2 = len(self.p), len(self.q)
        rows, columns = np.arange(m1), m1 + np.arange(m2)
        root = np.full(m1 + m2, m1 + m2)
        tail, head = np.concatenate([self._i, rows, root[:m2]]), np.concatenate([m1 + self._j, root[:m1], columns])
        costs = np.concatenate([self._cost, self._artificial + self._f, self._artificial + self._g])
        y = np.concatenate([self._f, -self._g, [0.0]])
        self._tree = None
        found = self._solve(tail, head, costs - y[tail] + y[head])
        if found is None:
            return False
        mass, duals = found
        sent, received = supplies(self.p, self.q)
        self._tree = _Tree(tail, head, costs, [*sent, *(-x for x in received), 0], mass, y + duals)
        self._tree.optimise(tolerance)
        return not any(self._tree.flow[v] for v in self._tree.order[1:] if self._tree.arc[v] >= len(self._cost))

    def _solve(self, tail: Indices, head: Indices, reduced: Array) -> tuple[Array, Array] | None:
        """Return masses and potentials of HiGHS, or None if the time of the budget did not suffice."""
        from scipy.optimize import linprog  # slow to import

        n = len(self.p) + len(self.q)
        unit = float(np.abs(reduced).max()) or 1.0
        signs, arcs = np.repeat([1.0, -1.0], len(tail)), np.tile(np.arange(len(tail)), 2)
        balance = sparse.csr_array((signs, (np.concatenate([tail, head]), arcs)), shape=(n + 1, len(tail)))
        found = linprog(
            reduced / unit,
            A_eq=balance[:n],  # that of the artificial node follows from these
            b_eq=np.concatenate([self.p / self.p.sum(), -self.q / self.q.sum()]),
            method="highs",
            options={
                "primal_feasibility_tolerance": _TOLERANCE,
                "dual_feasibility_tolerance": _TOLERANCE,
                "time_limit": self._budget.seconds,
            },
        )
        if found.status == _TIME_LIMIT:
            return None
        if found.x is None:
            raise RuntimeError(f"HiGHS did not solve a transport problem: {found.message}")
        return found.x, np.append(unit * found.eqlin.marginals, 0.0)

    def potentials(self) -> tuple[Array, Array]:
        """Return the potentials f and g of the last solution, or those given if there is none."""
        if self._tree is None:
            return self._f, self._g
        y = self._tree.y
        return y[: len(self.p)].copy(), -y[len(self.p) : -1]

    def exact_plan(self) -> tuple[Indices, Indices, Array]:
        """Return rows, columns and masses of a plan: that of the arcs, and the rest by the north-west corner rule."""
        if self._tree is None:
            i, j, share = staircase(self.p, self.q)
            return i[share > 0], j[share > 0], share[share > 0]
        tree, n = self._tree, len(self._cost)
        total = sum(x for x in tree.supply if x > 0)
        used = [v for v in tree.order[1:] if tree.flow[v] > 0]
        arc = np.array([tree.arc[v] for v in used], np.int64)
        mass = np.array([float(Fraction(tree.flow[v], total)) for v in used], np.float64)
        own = arc < n
        plan = self._i[arc[own]], self._j[arc[own]], mass[own]
        return plan if own.all() else coupling_near(self.p, self.q, plan)


def _graph(values: NDArray[Any], tail: Indices, head: Indices, n: int) -> sparse.csr_array:
    """Return a graph of n nodes with 32-bit indices, which `csgraph` of SciPy before 1.15 asks for."""
    return sparse.csr_array((values, (tail.astype(np.int32), head.astype(np.int32))), shape=(n, n))


class _Tree:
    """A spanning tree of the nodes, with the flow of each node's arc to its parent as an integer.

    It has the arcs that carry mass, then those of least reduced cost under the potentials y.
    """

    def __init__(self, tail: Indices, head: Indices, cost: Array, supply: list[int], mass: Array, y: Array) -> None:
        self.tail, self.head, self.cost, self.supply = tail, head, cost, supply
        reduced = np.abs(cost - y[tail] + y[head])
        rank = np.empty(len(tail))
        rank[np.lexsort((reduced, -mass * (mass > _TOLERANCE)))] = 1 + np.arange(len(tail))
        n = len(supply)
        graph = _graph(rank, tail, head, n)
        position = np.argsort(rank)
        self.basis = set(position[csgraph.minimum_spanning_tree(graph).data.astype(np.int64) - 1].tolist())
        self._update()

    def optimise(self, tolerance: float) -> None:
        """Make flows non-negative by dual pivots, and then reduced costs by primal pivots.

        Primal pivots are limited in number: reduced costs that remain negative leave a gap, and the plan is feasible.
        """
        for _ in range(100 * len(self.supply)):
            negative = [v for v in self.order[1:] if self.flow[v] < 0]
            if not negative:
                break
            self._dual_pivot(min(negative, key=lambda v: self.flow[v]))
        else:
            raise RuntimeError("dual pivots do not end in a transport problem without compiled kernels")
        for _ in range(20 * len(self.supply)):
            reduced = self.cost - self.y[self.tail] + self.y[self.head]
            terms = np.abs(self.cost) + np.abs(self.y[self.tail]) + np.abs(self.y[self.head])
            reduced[(reduced >= -tolerance) | (reduced >= -8 * _ULP * terms)] = 0
            entering = int(reduced.argmin())
            if reduced[entering] == 0:
                return
            self._primal_pivot(entering)

    def _update(self) -> None:
        """Set order, parents, flows and potentials from the arcs of the basis."""
        n, arcs = len(self.supply), np.fromiter(self.basis, np.int64)
        graph = _graph(arcs + 1, self.tail[arcs], self.head[arcs], n)
        order, parents = csgraph.breadth_first_order(graph, n - 1, directed=False)
        both = (graph + graph.T).tocsr()
        children = order[1:]
        found = np.asarray(both[children, parents[children]]).ravel() - 1
        self.order, self.parent = order.tolist(), parents.tolist()
        self.arc = dict(zip(children.tolist(), found.astype(np.int64).tolist(), strict=True))
        self.up = {v: bool(self.tail[k] == v) for v, k in self.arc.items()}
        net = self.supply.copy()
        self.flow: dict[int, int] = {}
        for v in self.order[:0:-1]:
            net[self.parent[v]] += net[v]
            self.flow[v] = net[v] if self.up[v] else -net[v]
        self.y = np.zeros(n)
        for v in self.order[1:]:
            cost = self.cost[self.arc[v]]
            self.y[v] = self.y[self.parent[v]] + (cost if self.up[v] else -cost)

    def _dual_pivot(self, v: int) -> None:
        """Replace the arc of v, whose flow is negative, by the cheapest that leads the other way."""
        below = np.zeros(len(self.supply), np.bool_)
        below[v] = True
        for w in self.order[self.order.index(v) + 1 :]:
            below[w] = below[self.parent[w]]
        inside, outside = (self.head, self.tail) if self.up[v] else (self.tail, self.head)
        crossing = np.flatnonzero(below[inside] & ~below[outside])
        reduced = self.cost[crossing] - self.y[self.tail[crossing]] + self.y[self.head[crossing]]
        self.basis.remove(self.arc[v])
        self.basis.add(int(crossing[reduced.argmin()]))
        self._update()

    def _primal_pivot(self, entering: int) -> None:
        """Push flow around the cycle of an arc until another is empty, which leaves."""
        paths = []
        for v in (int(self.tail[entering]), int(self.head[entering])):
            path = [v]
            while path[-1] != self.order[0]:
                path.append(self.parent[path[-1]])
            paths.append(path)
        first, second = paths
        while first and second and first[-1] == second[-1]:
            first.pop()
            second.pop()
        falling = [v for v in first if self.up[v]] + [v for v in second if not self.up[v]]
        leaving = min(falling, key=lambda v: (self.flow[v], self.arc[v]))
        self.basis.remove(self.arc[leaving])
        self.basis.add(entering)
        self._update()
