"""Proofs where double precision does not suffice: potentials with twice the digits.

Potentials follow the tree of a basis as unevaluated sums of two doubles. A search in double precision lists the pairs
whose reduced cost may be negative, and only these are evaluated again. Where an arc is violated, the simplex goes on
with the reduced costs as costs. These are small where it matters, so that double precision is enough for them, whatever
the size of the costs (iterative refinement of a linear programme, [1]_). In the end the potentials of rows are lowered
by what violations and rounding may amount to, and give a lower bound.

References
----------
.. [1] A. M. Gleixner, D. E. Steffy, K. Wolter, *Iterative refinement for linear programming*, INFORMS Journal on
   Computing 28, 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from ..core.backend import backend
from ..core.double_double import DoubleDouble
from ..costs import Cost
from ..io.budget import Budget
from .certificate import OPTIMAL_GAP, Certificate, exact_sum, plan_bounds, weighted_median
from .highs import arc_problem

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_DOUBLE = 2.0**-49  # what double precision leaves open, relative to the terms: 16 units
_DOUBLED = 2.0**-98  # the same for sums of two doubles
_ENOUGH = 0.05  # of the gap: what violations may cost before they are repaired
_BEYOND = 2.0**48  # times the value: arcs without flow of such costs leave too few digits even in double-double
_LIGHT = 2.0**-10  # columns with so much less weight than a row have their potential lowered in its place
_ARCS = 16  # violated arcs that a row or a column brings in
_ROUNDS = 60
_EXACT_PAIRS = 20_000  # that are evaluated without rounding
_PAIRS = 6_000_000  # that are evaluated again
_BLOCK = 4_000_000  # entries of a matrix that are looked at at once


class Near(NamedTuple):
    """Pairs whose reduced cost may be negative, and what bounds the potentials of rows that have too many.

    Attributes
    ----------
    i, j : arrays of shape (n,)
    limit : array of shape (m1,)
        A row is feasible if its potential is at most this, too; infinite where all its pairs are listed.
    """

    i: Indices
    j: Indices
    limit: Array


class Screen(Protocol):
    """All pairs of a problem, as a search in double precision sees them."""

    shape: tuple[int, int]

    def exact(self, i: Indices, j: Indices) -> tuple[DoubleDouble, Array]:
        """Return costs of pairs with twice the digits, and the sums of their absolute terms."""

    def near(self, f: Array, g: Array) -> Near:
        """Return all pairs with ``c_ij < f_i + g_j``, and perhaps some more."""


class MatrixScreen:
    """A matrix of costs, which are exact numbers or the rounded values of others.

    Parameters
    ----------
    C : array of shape (m1, m2)
    exact : callable, optional
        Costs of pairs with twice the digits, and the sums of their absolute terms, where the matrix is rounded.
    rounding : float
        How far the matrix may be from these.
    """

    def __init__(
        self,
        C: Array,
        exact: Callable[[Indices, Indices], tuple[DoubleDouble, Array]] | None = None,
        rounding: float = 0.0,
    ) -> None:
        self.C, self._exact, self._rounding = C, exact, rounding
        self.shape = C.shape[0], C.shape[1]

    def exact(self, i: Indices, j: Indices) -> tuple[DoubleDouble, Array]:
        """Return the costs of pairs."""
        if self._exact is not None:
            return self._exact(i, j)
        costs = self.C[i, j]
        return DoubleDouble.of(costs), np.abs(costs)

    def near(self, f: Array, g: Array) -> Near:
        """Return the pairs whose reduced cost is not clearly positive."""
        m1, m2 = self.shape
        high_f, high_g = _raised(f) + 2 * self._rounding, _raised(g)
        step, found = max(1, _BLOCK // m2), []
        for start in range(0, m1, step):
            rows = slice(start, min(start + step, m1))
            i, j = np.nonzero(self.C[rows] - high_g < high_f[rows, None])
            found.append((i + start, j))
        i, j = (np.concatenate(side) for side in zip(*found, strict=True))
        return Near(i, j, np.full(m1, np.inf))


class CostScreen:
    """Any cost between the points that have weight.

    Parameters
    ----------
    cost : Cost
    rows, columns : arrays of int, optional
        The points that have weight; all by default.
    threads : int
        Threads of a search.
    """

    def __init__(
        self,
        cost: Cost,
        rows: NDArray[np.intp] | None = None,
        columns: NDArray[np.intp] | None = None,
        threads: int = 1,
    ) -> None:
        self.cost, self._threads = cost, threads
        self.rows, self.columns = (
            np.arange(m) if some is None else some for m, some in zip(cost.shape, (rows, columns), strict=True)
        )
        self.shape = len(self.rows), len(self.columns)
        self.share = max(_DOUBLE, 8 * (cost.depth + 1) * 2.0**-52)  # searches may add up in another order
        self._number = np.full(cost.shape[1] + 1, -1, np.int64)  # the last for what was not found
        self._number[self.columns] = np.arange(len(self.columns))

    def exact(self, i: Indices, j: Indices) -> tuple[DoubleDouble, Array]:
        """Return the costs of pairs."""
        high, low, size = self.cost.at_exact(self.rows[i], self.columns[j])
        return DoubleDouble(high, low), size

    def near(self, f: Array, g: Array) -> Near:
        """Return the pairs whose reduced cost is not clearly positive."""
        share = self.share
        high, h = np.full(self.cost.shape[0], -np.inf), np.full(self.cost.shape[1], np.inf)
        high[self.rows], h[self.columns] = _raised(f, share) + 2 * self.cost.rounding(), -_raised(g, share)

        def search(k: int) -> Indices:
            found = self.cost.nearest(h, min(k, self.cost.shape[1]), below=high, n_jobs=self._threads)[0]
            return self._number[found[self.rows]]

        def least() -> Array:
            return np.asarray(self.cost.row_min(h)[self.rows] - 2 * self.cost.rounding(), np.float64)

        return _searched(search, least, self.shape, share)


def _raised(x: Array, share: float = _DOUBLE) -> Array:
    """Return potentials that are larger by what double precision leaves open."""
    return np.asarray(x + share * np.abs(x))


def _searched(
    search: Callable[[int], Indices], least: Callable[[], Array], shape: tuple[int, int], share: float = _DOUBLE
) -> Near:
    """Return the pairs that searches find, with more pairs of a row as long as there are any."""
    m1, m2 = shape
    k, limit = min(8, m2), np.full(m1, np.inf)
    J = search(k)
    full = np.count_nonzero(J >= 0, axis=1) >= k
    while k < m2 and m1 * k < _PAIRS and full.any():
        k = min(4 * k, m2)
        J = search(k)
        full = np.count_nonzero(J >= 0, axis=1) >= k
    if k < m2 and full.any():
        sums = least()[full]
        limit[full] = sums - share * np.abs(sums)
    i = np.repeat(np.arange(m1), J.shape[1])[(J >= 0).ravel()]
    return Near(i, J[J >= 0], limit)


@dataclass(frozen=True)
class Refined:
    """A plan and potentials, with what they prove.

    Attributes
    ----------
    certificate : Certificate
    i, j, mass : arrays of shape (n,)
        The plan.
    f, g : arrays of shape (m1,) and (m2,)
        The potentials, rounded to doubles: feasible only up to that.
    basis : pair of arrays
        Rows and columns of the arcs of the basis.
    """

    certificate: Certificate
    i: Indices
    j: Indices
    mass: Array
    f: Array
    g: Array
    basis: tuple[Indices, Indices]


def refined(
    screen: Screen,
    p: Array,
    q: Array,
    arcs: tuple[Indices, Indices],
    potentials: tuple[Array, Array],
    gap: float = 0.0,
    budget: Budget | None = None,
    least: float = -np.inf,
) -> Refined:
    """Prove a basis optimal, or go on until it is.

    Parameters
    ----------
    screen : Screen
        The costs.
    p, q : arrays of shape (m1,) and (m2,)
        Positive weights.
    arcs : pair of arrays of int
        Rows and columns of the arcs of a basis that carry all mass; they contain no cycle.
    potentials : pair of arrays of shape (m1,) and (m2,)
        Potentials of the basis, as far as they are known.
    gap : float
        The relative gap that is enough.
    budget : Budget, optional
        Its time and memory.
    least : float
        A lower bound of W that is known otherwise.

    Returns
    -------
    Refined
    """
    return _Refinement(screen, p, q, max(gap, OPTIMAL_GAP), budget or Budget(), least).solve(arcs, *potentials)


class _Refinement:
    """The rounds of a refinement: potentials of the tree, violated arcs, pivots on reduced costs."""

    def __init__(self, screen: Screen, p: Array, q: Array, gap: float, budget: Budget, least: float) -> None:
        self.screen, self.p, self.q, self.gap, self.budget, self.least = screen, p, q, gap, budget, least
        self.m1, self.m2 = screen.shape
        self.share, self.share_q = p / p.sum(), q / q.sum()

    def solve(self, arcs: tuple[Indices, Indices], f: Array, g: Array) -> Refined:
        """Go on until the gap is closed, nothing is violated, or the budget is spent."""
        self.i, self.j = (np.asarray(x, np.int64) for x in arcs)
        self.high, self.size = self.screen.exact(self.i, self.j)
        middle = weighted_median(f, self.p)  # the roots of the trees keep their potentials
        self.f, self.g = DoubleDouble.of(f - middle), DoubleDouble.of(g + middle)
        self._start(np.arange(len(self.i)), np.empty(0, np.int64), 0.0)
        best: Refined | None = None
        cut = False
        for rounds in range(_ROUNDS):
            tree = self._plan()
            if not rounds:
                tree = np.arange(len(self.i))  # all, before the simplex may have left out some
            tree = self._follow(tree, cut)
            found, fresh, grain = self._prove()
            if best is None or found.certificate.gap < best.certificate.gap:
                best = found
            if best.certificate.gap <= self.gap or self.budget.spent:
                break
            if not cut and grain > _ENOUGH * self.gap * found.certificate.scale:
                cut = True
                self.f, self.g = (DoubleDouble.of(np.zeros(m)) for m in (self.m1, self.m2))
                tree = self._follow(tree, cut)
                _, fresh, _ = self._prove()
            if not self._pivot(tree, fresh) and rounds:
                break
        assert best is not None
        return best

    def _tops(self, i: Indices, j: Indices) -> Indices:
        """Return a node of each tree from which it is strongly feasible, if there is one.

        Arcs without flow lead towards the root. So no row of the part that has the root, where parts are connected by
        flow, is the tail of such an arc.
        """
        rest = np.setdiff1d(i * self.m2 + j, self._carrying())
        n, (a, b) = self.m1 + self.m2, np.divmod(self._carrying(), self.m2)
        links = sparse.coo_array((np.ones(len(a)), (a.astype(np.int32), (self.m1 + b).astype(np.int32))), (n, n))
        count, part = csgraph.connected_components(links, directed=False)
        led = np.zeros(count, bool)
        led[part[rest // self.m2]] = True
        _, first = np.unique(part[: self.m1], return_index=True)
        return np.asarray(first[~led[part[first]]], np.int64)

    def _carrying(self) -> Indices:
        """Return the arcs of the plan."""
        return np.asarray(self.plan[0] * self.m2 + self.plan[1])

    def _start(self, tree: Indices, tops: Indices, artificial: float) -> None:
        """Start a simplex whose costs are the reduced costs, from the arcs of a basis."""
        reduced = self._reduced(self.i, self.j, self.high).rounded()
        reduced[tree] = 0.0  # but for rounding
        self.engine = arc_problem(self.p, self.q, self.budget)
        self.engine.add(self.i, self.j, reduced)
        zero = np.zeros(self.m1), np.zeros(self.m2)
        self.engine.start(*zero, max(artificial, 1e-300), basis=tree, tops=tops)

    def _reduced(self, i: Indices, j: Indices, costs: DoubleDouble) -> DoubleDouble:
        """Return reduced costs of arcs."""
        return costs.minus(self.f.at(i)).minus(self.g.at(j))

    def _plan(self) -> Indices:
        """Set plan and its bound, and return the arcs of the basis."""
        _, _, arc, _ = self.engine.basis()
        self.plan = self.engine.exact_plan()
        costs, size = self.screen.exact(*self.plan[:2])
        # a cost is a double, or the sum of some that was rounded and may have cancelled
        rounding = 0.0 if not costs.low.any() else 2 * _DOUBLED * float(self.plan[2] @ size)
        self.upper = plan_bounds(self.plan[2], costs.rounded(), 1).widened(0.0, above=rounding)
        return arc[arc >= 0]

    def _follow(self, tree: Indices, cut: bool) -> Indices:
        """Set potentials that make the arcs of the tree tight, from one row of each of its parts; return these arcs."""
        if cut:
            used = np.isin(self.i[tree] * self.m2 + self.j[tree], self._carrying())
            tree = tree[used | (self.size[tree] <= _BEYOND * self.upper.scale)]
        f, g, costs = np.array(self.f), np.array(self.g), np.stack(self.high.at(tree))
        backend().follow_forest(self.i[tree], self.j[tree], costs, self.share, f=f, g=g)
        self.f, self.g = DoubleDouble(*f), DoubleDouble(*g)
        return tree

    def _prove(self) -> tuple[Refined, tuple[Indices, Indices], float]:
        """Return what plan and potentials prove, the violated arcs, and what rounding alone costs."""
        near = self.screen.near(self.f.high, self.g.high)
        costs, size = self.screen.exact(near.i, near.j)
        reduced = self._reduced(near.i, near.j, costs)
        error = _DOUBLED * (size + np.abs(self.f.high[near.i]) + np.abs(self.g.high[near.j]))
        value = reduced.rounded()
        rounding, excess = error, (error - value) * (1 + 2.0**-40)
        if float(self.share[near.i] @ rounding) > _ENOUGH * self.gap * self.upper.scale:
            sure = self._surely_feasible(near, costs, np.abs(value) <= error)
            rounding, excess = np.where(sure, 0.0, rounding), np.where(sure, 0.0, excess)
        less, less_g, grain = np.zeros(self.m1), np.zeros(self.m2), np.zeros(self.m1)
        light = self.share_q[near.j] < _LIGHT * self.share[near.i]  # there it costs less
        np.maximum.at(less, near.i[~light], excess[~light])
        np.maximum.at(less_g, near.j[light], excess[light])
        np.maximum.at(grain, near.i[~light], rounding[~light])
        f, g = self.f.minus(DoubleDouble.of(less)), self.g.minus(DoubleDouble.of(less_g))
        over = f.high >= near.limit
        f.set(np.flatnonzero(over), DoubleDouble.of(near.limit[over]))
        rows = exact_sum((self.p, f.high), (self.p, f.low)) / exact_sum((self.p, np.ones(self.m1)))
        columns = exact_sum((self.q, g.high), (self.q, g.low)) / exact_sum((self.q, np.ones(self.m2)))
        found = replace(self.upper, lower=(rows + columns).lower).at_least(self.least)
        _, _, arc, _ = self.engine.basis()
        basis = self.i[arc[arc >= 0]], self.j[arc[arc >= 0]]
        violated = value < -error
        fresh = _most_violated(near.i[violated], near.j[violated], value[violated], self.m1, self.m2)
        answer = Refined(found, *self.plan, f.rounded(), g.rounded(), basis)
        return answer, fresh, float(self.share @ grain)

    def _surely_feasible(self, near: Near, costs: DoubleDouble, open_: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of some pairs are feasible without any rounding: nothing need be lowered for them."""
        found = np.zeros(len(near.i), bool)
        some = np.flatnonzero(open_ & (costs.low == 0))  # these costs are doubles
        i, j = near.i[some], near.j[some]
        terms = np.stack([costs.high[some], -self.f.high[i], -self.f.low[i], -self.g.high[j], -self.g.low[j]], axis=1)
        if len(some) <= _EXACT_PAIRS and np.abs(terms).max(initial=0.0) < 2.0**1000:
            found[some] = [math.fsum(row) >= 0 for row in terms.tolist()]
        return found

    def _pivot(self, tree: Indices, fresh: tuple[Indices, Indices]) -> bool:
        """Add violated arcs and go on with the simplex; return whether the basis has changed."""
        key = self.i * self.m2 + self.j
        new = ~np.isin(fresh[0] * self.m2 + fresh[1], key)
        i, j = fresh[0][new], fresh[1][new]
        if not self.engine.can_add(len(i)):
            return False
        costs, size = self.screen.exact(i, j)
        self.i, self.j = np.concatenate([self.i, i]), np.concatenate([self.j, j])
        self.high = DoubleDouble(*(np.concatenate(pair) for pair in zip(self.high, costs, strict=True)))
        self.size = np.concatenate([self.size, size])
        reduced = self._reduced(self.i, self.j, self.high).rounded()
        artificial = 4 * float(-reduced.min(initial=0.0))
        self._start(tree, self._tops(self.i[tree], self.j[tree]), artificial)
        before = self.engine.pivots
        carried = self.engine.optimise()
        for _ in range(60):
            if carried or self.budget.spent:
                break
            self.engine.raise_artificial(8.0)
            carried = self.engine.optimise()
        f, g = self.engine.potentials()
        self.f, self.g = self.f.plus(DoubleDouble.of(f)), self.g.plus(DoubleDouble.of(g))
        return self.engine.pivots > before


def _most_violated(i: Indices, j: Indices, reduced: Array, m1: int, m2: int) -> tuple[Indices, Indices]:
    """Return the arcs of least reduced cost of each row and of each column."""
    order = np.argsort(reduced, kind="stable")
    i, j = i[order], j[order]
    kept = (_rank(i, m1) < _ARCS) | (_rank(j, m2) < _ARCS)
    return i[kept], j[kept]


def _rank(group: Indices, n: int) -> Indices:
    """Return the place of each entry among those of its group, in their order."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(n))
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - starts[group[order]]
    return rank
