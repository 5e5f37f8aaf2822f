"""Exact optima from coarse to fine, without a cost matrix.

Points are joined to cells, the coarse problem is solved exactly, and its potentials are carried to the fine points,
where `arcs.GrowingArcs` starts from them. Every level is solved exactly.

For a certified gap the solution of a coarse level is tried on the finest one: a c-transform carries its potentials,
and the mass between two cells is spread over their points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..costs import Cost
from ..costs.base import Coarser
from ..io.budget import Budget
from .arcs import GrowingArcs
from .certificate import PROVED, Certificate, below, bounds, concluded, enough, weighted_median
from .far_costs import solve_capped
from .highs import HighsProblem
from .method import Batch, Method
from .refinement import CostScreen, refined
from .repair import Arcs, coupling_near
from .simplex import ArcProblem, solve_dense, staircase
from .solution import Solution, plan_of

Array = NDArray[Any]
Indices = NDArray[np.int64]

Engine = ArcProblem | HighsProblem

_SMALLEST = 256  # points per side that the simplex on all arcs solves
_NEIGHBOURS = 8  # arcs of least reduced cost that every point brings in
_CLEARLY = 0.25  # of the way from the bound of a coarser level to its value, by which a warm start must be better
_ROUNDS = 100  # of a level; if they run out, the bounds show what is left open
_ULP = float(np.finfo(np.float64).eps)
_UNNOTICED = 1e-9  # of a weight, or of the value: errors of a plan that a gap was asked for, or that time cut short


class CoarseToFine(Method):
    """Potentials of a coarser problem choose the arcs."""

    name = "coarse to fine"
    about = "potentials of a coarser problem choose arcs; k-d trees search for more; no matrix"
    suits = "Euclidean (plain or squared), city-block and Chebyshev distances in one to four dimensions; grids too"
    least = 160_000

    def accepts(self, cost: Cost) -> bool:
        """Accept costs that k-d trees can search."""
        return cost.searchable

    def memory(self, cost: Cost) -> float:
        """Return the bytes of the points: levels, trees and arcs."""
        return 1000.0 * sum(cost.shape)

    def seconds(self, points: float, pairs: float) -> float:
        """Return about how long a problem takes."""
        return 10 * (points / 65536) ** 1.4

    def solve(self, batch: Batch, which: list[int]) -> list[Solution]:
        """Solve problems one by one."""
        cost = batch.cost.by_trees()
        assert cost is not None
        return batch.each(
            lambda b: solve_from_coarse(*batch.weights(b), cost, batch.gap, batch.budget, batch.start(b)), which
        )


def solve_from_coarse(
    p: Array, q: Array, cost: Cost, gap: float = 0.0, budget: Budget | None = None, f: Array | None = None
) -> Solution:
    """Solve one problem whose cost k-d trees search, exactly or to a certified gap.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Non-negative weights, normalised or not.
    cost : Cost
        The cost, as `Cost.by_trees` returns it.
    gap : float
        Stop as soon as ``upper - lower <= gap * <plan, |M|>``; 0 for the optimum.
    budget : Budget, optional
        Its time, memory and threads. When it is spent, the last level that was solved gives plan and potentials.
    f : array of shape (m1,), optional
        Potentials of a similar problem. The finest level starts from them, unless they are no better than a coarser
        level's.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import PointCost
    >>> X, ones = np.random.default_rng(0).random((1000, 2)), np.ones(1000)
    >>> answer = solve_from_coarse(ones, ones, PointCost(X, X + [0.1, 0.0]).by_trees())
    >>> answer.status, round(answer.upper, 12)
    ('optimal', 0.01)
    """
    return _Levels(p, q, cost, gap, budget or Budget()).solve(f)


class Level(NamedTuple):
    """A cost and weights; `coarser` is the next level, which the coarsest one has not."""

    cost: Cost
    a: Array
    b: Array
    coarser: Coarser | None

    def carried(self, g: Array, threads: int = 1) -> Array:
        """Return a potential of the rows from a potential of the columns of the next coarser level."""
        assert self.coarser is not None
        return self.coarser.between.row_min(-g, threads)

    def closed(self, f: Array, threads: int, neighbours: int = _NEIGHBOURS) -> _Start:
        """Return the feasible potentials that c-transforms make of a potential of the rows, and the bound they give."""
        g = -self.cost.col_max(f, threads)
        near, sums = self.cost.nearest(-g, min(neighbours, len(g)), n_jobs=threads)
        f = np.ascontiguousarray(sums[:, 0])
        return _Start(f, g, dual_value(self.a, self.b, f, g), near)


def levels_of(cost: Cost, a: Array, b: Array) -> list[Level]:
    """Return a problem and ever coarser ones, down to one that the simplex on all arcs solves."""
    found = list[Level]()
    while (coarser := cost.coarsen(a, b, _SMALLEST)) is not None:
        found.append(Level(cost, a, b, coarser))
        cost, a, b = coarser.cost, coarser.p, coarser.q
    return [*found, Level(cost, a, b, None)]


@dataclass
class _Start:
    """Feasible potentials from which a level is solved, their bound, and the columns of least reduced cost of rows."""

    f: Array
    g: Array
    bound: float
    near: Indices | None

    def taken(self) -> Indices | None:
        """Return the columns, and forget them: those of a million points take 64 MB."""
        near, self.near = self.near, None
        return near


class _Solved(NamedTuple):
    """Potentials of a level, the value of its plan, the plan and the problem on its arcs when needed, and rounds."""

    f: Array
    g: Array
    value: float
    plan: Callable[[], Arcs]
    problem: Callable[[], Engine] | None
    rounds: int

    def kept(self) -> _Solved:
        """Return the same without the problem, whose arcs and basis take as much as ten plans."""
        arcs = self.plan()
        return self._replace(plan=lambda: arcs, problem=None)


class PointsSolution(Solution):
    """A solution whose potentials of points without weight are computed when first used.

    Parameters
    ----------
    found : Certificate
    status : str
    plan : scipy.sparse.csr_array
    rounds : int
        As of `Solution`.
    known : tuple
        Rows and columns that have weight, their potentials before these are lowered by `below`, and the cost.
    """

    def __init__(
        self, found: Certificate, status: str, plan: sparse.csr_array, rounds: int, known: tuple[Any, ...]
    ) -> None:
        vars(self).update(
            value=found.value, lower=found.lower, upper=found.upper, scale=found.scale, reason=found.reason,
            status=status, plan=plan, rounds=rounds, _known=known,
        )  # fmt: skip

    @property
    def f(self) -> Array:
        """Potentials of the rows."""
        return self._potentials[0]

    @property
    def g(self) -> Array:
        """Potentials of the columns."""
        return self._potentials[1]

    @cached_property
    def _potentials(self) -> tuple[Array, Array]:
        """Potentials of all points: c-transforms, less what rounding may have added."""
        rows, columns, f, g, cost = self._known
        all_f, all_g = (np.full(m, -np.inf) for m in self.plan.shape)
        all_f[rows], all_g[columns] = f, g
        if (len(rows), len(columns)) != self.plan.shape:
            all_g = -cost.col_max(all_f)
            all_g[columns] = g
            all_f = cost.row_min(-all_g)
            all_f[rows] = f
        return below(all_f, all_g, cost.depth, cost.underflow())

    _known: tuple[Any, ...]


class _Levels:
    """The levels of a problem, and what their solutions prove about it."""

    def __init__(self, p: Array, q: Array, cost: Cost, gap: float, budget: Budget) -> None:
        self.p, self.q, self.whole, self.gap, self.budget = p, q, cost, gap, budget
        self.rows, self.columns = np.flatnonzero(p), np.flatnonzero(q)
        order = cost.subset(self.rows, self.columns).order()
        self.rows, self.columns = self.rows[order[0]], self.columns[order[1]]
        self.cost = cost.subset(self.rows, self.columns)
        self.levels = levels_of(self.cost, p[self.rows], q[self.columns])

    def solve(self, f: Array | None = None) -> Solution:
        """Solve from the coarsest level to the finest, or until the gap is reached or the budget is spent.

        The finest level starts from a potential f of the rows if that is nearer to the optimum.
        """
        solved, far = _solve_all_arcs(self.levels[-1])
        for n in range(len(self.levels) - 2, -1, -1):
            if self.budget.spent:
                return self._of_level(n + 1, solved)
            solved = coarse = solved.kept()
            start = self._carried(n, solved)
            # a bound that is good at this level may be good at the finest
            if self.gap and coarse.value <= enough(start.bound, self.gap):
                answer = self._of_level(n + 1, coarse)
                if answer.status in PROVED:
                    return answer
            if f is not None and n == 0:
                start = self._nearer(f[self.rows], start, coarse.value)
            solved = self._grown(self.levels[n], start, self.gap if n == 0 else 0.0, far)
            assert solved.problem is not None
            if self.budget.spent and not solved.problem().carried:
                return self._of_level(n + 1, coarse)
        assert solved.problem is not None
        problem = solved.problem()
        if not problem.carried:
            return self._solution(*self._coupling(*problem.exact_plan()), solved.f, solved.rounds)
        answer = self._solution(problem.exact_plan(), 0.0, solved.f, solved.rounds)
        return answer if answer.status in PROVED or self.budget.spent else self._with_more_digits(solved)

    def _grown(self, level: Level, start: _Start, gap: float, far: float) -> _Solved:
        """Solve a level from potentials: the nearer to optimal, the faster.

        With a gap it ends when the value is that close to the bound of the start, whose potentials then are returned,
        or to that of the simplex. When the budget is spent, the better of the potentials of the start and those of the
        simplex are returned.
        """
        growing = GrowingArcs(level.cost, level.a, level.b, _NEIGHBOURS, self.budget)
        growing.start(start.f, start.g, start.taken(), some_plan=False, far=far)
        best, growing.enough = start.f, enough(start.bound, gap) if gap else -np.inf
        problem = growing.problem
        for rounds in growing.rounds(_ROUNDS):
            if gap and growing.carried and not self.budget.spent:
                value = -np.inf
                if problem.value > growing.enough:
                    closed = -level.cost.col_max(growing.f, self.budget.threads)
                    value = enough(dual_value(level.a, level.b, growing.f, closed), gap)
                best, growing.enough = (growing.f, value) if value > growing.enough else (best, growing.enough)
                if problem.value <= growing.enough:
                    return _Solved(best, growing.g, problem.value, problem.exact_plan, lambda: problem, rounds)
        f, g = growing.f, growing.g
        self.budget.report("%d x %d points, %d arcs, %d rounds", *level.cost.shape, growing.count, rounds)
        if self.budget.spent:
            g = -level.cost.col_max(f, self.budget.threads)
            if dual_value(level.a, level.b, f, g) <= start.bound:
                f, g = start.f, start.g
        return _Solved(f, g, problem.value, problem.exact_plan, lambda: problem, rounds)

    def _with_more_digits(self, solved: _Solved) -> Solution:
        """Return the solution that potentials with twice the digits prove."""
        assert solved.problem is not None
        level, problem = self.levels[0], solved.problem()
        i, j, arc, _ = problem.basis()
        own, screen = arc >= 0, CostScreen(level.cost, threads=self.budget.threads)
        least = self.cost.least()
        found = refined(screen, level.a, level.b, (i[own], j[own]), problem.potentials(), self.gap, self.budget, least)
        self.budget.report("potentials with twice the digits, gap %.1e", found.certificate.gap)
        return self._solution((found.i, found.j, found.mass), 0.0, found.f, solved.rounds, found.certificate)

    def _carried(self, n: int, coarse: _Solved) -> _Start:
        """Return a start of level n from the potentials of the next coarser level.

        Where mass moves by less than the size of a cell, as between images of noise, coarse potentials are too large: a
        share of them gives a larger bound.
        """
        level, threads = self.levels[n], self.budget.threads
        f = level.carried(coarse.g, threads)
        found = level.closed(f, threads)
        if found.bound < coarse.value / 2:
            best = max((0.75, 0.5, 0.0), key=lambda share: level.closed(share * f, threads, 1).bound)
            found = max(found, level.closed(best * f, threads), key=attrgetter("bound"))
        return found

    def _nearer(self, f: Array, start: _Start, value: float) -> _Start:
        """Return the start of the finest level that a potential of the rows gives, or the one from a coarser level.

        Potentials of a similar problem are slower than those of a coarser level, unless they are clearly better: about
        a third of the way from a coarser level's bound to its value is the way to the optimum.
        """
        if not np.isfinite(f).all():
            return start
        warm = self.levels[0].closed(f, self.budget.threads)
        return warm if warm.bound >= start.bound + _CLEARLY * max(value - start.bound, 0.0) else start

    def _of_level(self, n: int, solved: _Solved) -> Solution:
        """Return what the solution of level n proves about the finest level."""
        f, g, threads = solved.f, solved.g, self.budget.threads
        for finer in range(n - 1, -1, -1):
            level = self.levels[finer]
            f = level.carried(g, threads)
            if finer:
                g = -level.cost.col_max(f, threads)
        return self._solution(*self._coupling(*self._spread(n, solved.plan())), f)

    def _spread(self, n: int, plan: Arcs) -> Arcs:
        """Return a plan of the finest level from that of level n.

        The points of a cell share the arcs of their cell in the order of both, on each side; the parts of an arc on the
        two sides then meet in their order.
        """
        cells = [np.arange(m) for m in self.cost.shape]
        for level in self.levels[:n]:
            if level.coarser is not None:
                cells = [level.coarser.rows[cells[0]], level.coarser.columns[cells[1]]]
        i, j, mass = plan
        parts = []
        for ends, cell, weight in ((i, cells[0], self.levels[0].a), (j, cells[1], self.levels[0].b)):
            arcs, points = np.argsort(ends, kind="stable"), np.argsort(cell, kind="stable")
            point, arc, share = _meet(weight[points], mass[arcs])
            order = np.argsort(arcs[arc], kind="stable")
            parts.append((points[point[order]], share[order]))
        (row, left), (column, right) = parts
        i, j, mass = _meet(left, right)
        return row[i], column[j], mass

    def _coupling(self, i: Indices, j: Indices, mass: Array) -> tuple[Arcs, float]:
        """Return an exact coupling near a plan of the finest level, without forbidden arcs.

        Masses that are differences are off by some units in the last place of the largest ones. Where that matters
        neither for any point nor for the value, the plan stays as it is, and the second result is how much more than
        it some coupling may cost: what a point lacks or has too much moves by at most the largest cost.
        """
        level, wrong = self.levels[0], 0.0
        inner = self.cost.inner_shape
        close = inner == self.cost.shape
        for ends, weight in ((i, level.a), (j, level.b)) if close else ():
            share, terms = weight / weight.sum(), np.bincount(ends, minlength=len(weight))
            off = np.abs(np.bincount(ends, mass, len(weight)) - share) + (terms + 64) * _ULP * share
            wrong, close = wrong + float(off.sum()), close and bool((off <= _UNNOTICED * share).all())
        if close:
            excess = 1.01 * wrong * self.cost.spread()
            if excess <= _UNNOTICED * float(mass @ self.cost.at(i, j)):
                return (i, j, mass), excess
        return coupling_near(level.a, level.b, (i, j, mass), None if self.cost.finite else inner), 0.0

    def _solution(
        self, arcs: Arcs, excess: float, f: Array, rounds: int = 0, proof: Certificate | None = None
    ) -> Solution:
        """Return what a plan of the finest level and a potential of its rows prove, or another proof for the costs.

        Some coupling costs at most so much more than the plan.
        Costs are computed to within a few units in the last place. For points of a grid these may be those of the axes.
        """
        i, j, mass = arcs
        level, cost, threads = self.levels[0], self.cost, self.budget.threads
        g = -cost.col_max(f - weighted_median(f, level.a), threads)
        f = cost.row_min(-g, threads)
        costs = cost.at(i, j)
        above, below_all, least = cost.vanishing(i, j), cost.underflow(), cost.least()
        if proof is None:
            found = bounds(level.a, level.b, *below(f, g, cost.depth, below_all), mass, costs, cost.depth)
            found = found.widened(0.0, above + excess).at_least(least)
        else:
            found = proof.widened((cost.depth + 3) * _ULP / 2, above, below_all)
        found, state = concluded(found, gap=self.gap, spent=self.budget.spent)
        plan = plan_of(self.rows[i], self.columns[j], mass, costs, self.p, self.q)
        return PointsSolution(found, state, plan, rounds, (self.rows, self.columns, f, g, self.whole))


def _meet(p: Array, q: Array) -> Arcs:
    """Return rows, columns and masses of the monotone plan between weights in their order."""
    i, j, share = staircase(p, q)
    kept = share > 0
    return i[kept], j[kept], share[kept]


def dual_value(p: Array, q: Array, f: Array, g: Array) -> float:
    """Return ``<p, f> / sum(p) + <q, g> / sum(q)``."""
    return float((p / p.sum()) @ f + (q / q.sum()) @ g)  # sums of large weights and potentials would overflow


def _solve_all_arcs(level: Level) -> tuple[_Solved, float]:
    """Solve a small problem; return also which costs are far."""
    C = np.asarray(level.cost.matrix(), np.float64)
    answer = solve_dense(C, level.a, level.b)
    capped = solve_capped(answer)
    answer = capped or answer
    most = float(answer.problem()[0].max(where=np.isfinite(C), initial=0.0))
    f, g = answer.f[0], answer.g[0]
    i, j = (x[x >= 0].astype(np.int64) for x in answer.basis)

    def problem() -> ArcProblem:
        """Return the problem on the arcs of the basis, without those that were lowered."""
        near = C[i, j] <= most
        own = ArcProblem(level.a, level.b)
        own.add(i[near], j[near], C[i, j][near])
        own.start(f, g, max(most, float(np.abs(C[i, j][near]).max(initial=0.0)), 1e-300))
        own.optimise()
        return own

    far = np.inf if capped is None else most
    return _Solved(f, g, answer.value.item(), lambda: problem().exact_plan(), problem, 1), far
