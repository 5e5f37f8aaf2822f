"""Crossover: exact optima from annealed potentials.

The arcs of an optimal plan have small reduced costs ``M_ij - U_i + L_j`` under annealed potentials. A network simplex
solves the problem on the arcs of smallest reduced cost, c-transforms of its potentials find the violated arcs, these
are added, and the simplex resumes from its basis, until no arc is violated. Then plan and potentials are optimal for
the whole problem.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..core import native
from ..costs import BorderedCost, Cost, DenseCost
from ..io.budget import Budget
from .certificate import (
    NEGLIGIBLE_VIOLATION,
    NO_PLAN,
    ROUNDING,
    ROUNDS,
    SPENT,
    below,
    bounds,
    for_cost,
    weighted_median,
)
from .easy_plan import forbidden_pairs, with_easy_plan
from .highs import HighsProblem
from .refinement import CostScreen, refined
from .simplex import ArcProblem, staircase
from .solution import INFEASIBLE, Solution, plan_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_ULP = float(np.finfo(np.float64).eps)


def effort(cost: Cost) -> tuple[int, int]:
    """Return the number of sweeps and of arcs per point with which a crossover is fastest.

    For a dense matrix, where a sweep is expensive, few sweeps and many arcs; on a grid many sweeps and few arcs.

    Parameters
    ----------
    cost : Cost
        The cost.

    Returns
    -------
    sweeps, neighbours : int

    Examples
    --------
    >>> from gibbsot import GridCost
    >>> effort(GridCost((56, 46)))
    (1030, 8)
    """
    if cost.work > 0.2 * cost.shape[0] * cost.shape[1]:
        return 100, 20
    return int(np.clip(0.2 * sum(cost.shape), 250, 4000)), 8


def crossover(
    p: Array,
    q: Array,
    cost: Cost,
    U: NDArray[np.floating],
    neighbours: int | None = None,
    max_rounds: int = 30,
    gap: float = 0.0,
    budget: Budget | None = None,
) -> Solution:
    """Solve one problem exactly on arcs that potentials suggest.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Weights, normalised or not.
    cost : Cost
        The cost, of shape (m1, m2).
    U : array of shape (m1,)
        Potentials; the closer to optimal, the faster.
    neighbours : int, optional
        The number of arcs that a point adds, at first and whenever one of its arcs is violated; by default that of
        `effort`.
    max_rounds : int
        The largest number of rounds. Plan and potentials are feasible also if it is reached.
    gap : float
        Stop as soon as the certified relative gap is at most this; 0 for the optimum.
    budget : Budget, optional
        Its time and memory, after which plan and potentials are still feasible.

    Returns
    -------
    Solution

    Raises
    ------
    ValueError
        If infinite costs forbid every plan.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import PointCost
    >>> result = crossover(np.array([0.5, 0.5]), np.array([0.25, 0.75]), PointCost([0.0, 1.0]), np.zeros(2))
    >>> result.value, result.optimal
    (0.25, True)
    """
    cost = cost.astype(np.float64)
    if neighbours is None:
        _, neighbours = effort(cost)
    return _Rounds(p, q, cost, neighbours, budget or Budget()).solve(np.asarray(U, np.float64), max_rounds, gap)


def feasible(cost: Cost, g: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """Return potentials that are feasible for all pairs, from one of the rows that have weight.

    Points without weight come last: their potentials may be large, and must not round those of the others.
    """
    kept, used = p > 0, q > 0
    L = cost.col_max(np.where(kept, g - weighted_median(g[kept], p[kept]), -np.inf))
    U = np.where(kept, cost.row_min(np.where(used, L, np.inf)), 0)
    errors = cost.depth, cost.underflow()
    U, minus_L = below(U - 2 * cost.depth * cost.rounding(), np.where(used, -L, 0), *errors)
    if kept.all() and used.all():
        return U, -minus_L
    others = cost.col_max(np.where(kept, U, -np.inf))
    others[~np.isfinite(others)] = np.abs(U[kept]).max()  # no point with weight has a finite cost to this one
    others = -below(U, -others - 2 * cost.depth * cost.rounding(), *errors)[1]
    all_L = np.where(used, -minus_L, others)
    return np.where(kept, U, below(cost.row_min(all_L) - 2 * cost.depth * cost.rounding(), all_L, *errors)[0]), all_L


class _Rounds:
    """The rounds of a crossover."""

    def __init__(self, p: Array, q: Array, cost: Cost, neighbours: int, budget: Budget) -> None:
        self.p, self.q, self.cost, self.neighbours, self.budget = p, q, cost, neighbours, budget
        self.rows, self.columns = np.flatnonzero(p), np.flatnonzero(q)
        self.a, self.b = p[self.rows], q[self.columns]
        self.least = cost.least()
        self.row_index, self.column_index = np.cumsum(p > 0) - 1, np.cumsum(q > 0) - 1

    def solve(self, U: Array, max_rounds: int, gap: float) -> Solution:
        """Add violated arcs until there is none."""
        g = np.where(self.p > 0, U, -np.inf)
        h = np.where(self.q > 0, self.cost.col_max(g), np.inf)
        if not self.cost.finite:
            reached = np.isfinite(h[self.columns]).all() and np.isfinite(self.cost.row_min(h)[self.rows]).all()
            if not reached:
                raise ValueError(INFEASIBLE)
        near = self._near_arcs(g, h, self.rows, self.columns)
        i, j, _ = staircase(self.a, self.b)
        corners = self.rows[i] * self.cost.shape[1] + self.columns[j]
        possible = self._start(_sorted(near, np.sort(corners)), g, h)  # if the staircase is allowed, a plan exists
        first = g.copy()
        for rounds in range(1, max_rounds + 1):
            self.carried = self.engine.optimise(self._tolerance())
            while (
                not self.carried
                and (possible or rounds == max_rounds)
                and not self.budget.spent
                and self._raise_artificial()
            ):
                self.carried = self.engine.optimise(self._tolerance())
            f, minus_h = self.engine.potentials()
            g[self.rows], h[self.columns] = f, -minus_h
            potentials = feasible(self.cost, g, self.p, self.q)
            self.budget.report("%d x %d points, %d arcs, round %d", *self.cost.shape, len(self.arcs), rounds)
            if self.budget.spent:
                return self._ended(potentials, first, rounds)
            if self.carried:
                answer = self._solution(*potentials, rounds)
                if answer.optimal:
                    return answer
                if answer.gap <= gap:
                    return replace(answer, status="gap reached")
            fresh = self._violated(g, h)
            if len(fresh) and not self.engine.can_add(len(fresh)):
                return self._ended(potentials, first, rounds)
            if len(fresh):
                self._add(fresh)
                continue
            if not self.carried and self._raise_artificial():
                continue
            if not self.carried:
                raise ValueError(INFEASIBLE)
            if not isinstance(self.engine, ArcProblem):
                return replace(answer, reason=ROUNDING)
            return self._refined(self.engine, gap, rounds)
        if not self.carried:
            self._force(corners, g, h)
        answer = self._solution(*potentials, rounds)
        return answer if answer.optimal else replace(answer, reason=ROUNDS)

    def _ended(self, potentials: tuple[Array, Array], first: Array, rounds: int) -> Solution:
        """Return what is proved when the budget is spent, with the better of two pairs of potentials."""
        found = [self._solution(*pair, rounds) for pair in (potentials, feasible(self.cost, first, self.p, self.q))]
        best = max(found, key=lambda solution: solution.lower)
        if np.isinf(best.upper) and isinstance(self.cost, DenseCost | BorderedCost):
            best = with_easy_plan(best, self.p, self.q, forbidden_pairs(self.cost), self.cost.at)
        if best.optimal:
            return best
        return replace(best, status="budget spent", reason=SPENT if np.isfinite(best.upper) else NO_PLAN)

    def _start(self, arcs: Indices, g: Array, h: Array) -> bool:
        """Start a simplex on those arcs that are not forbidden; return whether all are."""
        i, j = np.divmod(arcs, self.cost.shape[1])
        costs = self.cost.at(i, j)
        allowed = np.isfinite(costs)
        self.arcs, i, j, costs = arcs[allowed], i[allowed], j[allowed], costs[allowed]
        f, minus_h = g[self.rows], -h[self.columns]
        reduced = costs - g[i] + h[j]
        self.scale = float(np.abs(costs).max() + np.ptp(f) + np.ptp(minus_h))
        self.artificial = max(2 * float(reduced.max()), _ULP * self.scale, 1e-300)
        self.engine = (HighsProblem if native.kernels() is None else ArcProblem)(self.a, self.b, self.budget)
        self.engine.add(self.row_index[i], self.column_index[j], costs)
        self.engine.start(f, minus_h, self.artificial)
        return bool(allowed.all())

    def _add(self, arcs: Indices) -> None:
        """Add arcs that have finite costs."""
        i, j = np.divmod(arcs, self.cost.shape[1])
        costs = self.cost.at(i, j)
        self.engine.add(self.row_index[i], self.column_index[j], costs)
        self.arcs = _sorted(self.arcs, arcs)
        self.scale = max(self.scale, float(np.abs(costs).max()))

    def _refined(self, engine: ArcProblem, gap: float, rounds: int) -> Solution:
        """Return the solution that potentials with twice the digits prove."""
        i, j, arc, _ = engine.basis()
        own, screen = arc >= 0, CostScreen(self.cost, self.rows, self.columns)
        start = (i[own], j[own]), engine.potentials()
        found = refined(screen, self.a, self.b, *start, gap, self.budget, self.least)
        g = np.full(self.cost.shape[0], -np.inf)
        g[self.rows] = found.f
        U, L = feasible(self.cost, g, self.p, self.q)
        arcs = self.rows[found.i], self.columns[found.j]
        plan = plan_of(*arcs, found.mass, self.cost.at(*arcs), self.p, self.q)
        proof = for_cost(found.certificate, self.cost, *arcs)
        state = proof.status(gap=gap, spent=self.budget.spent)
        return Solution.of(proof, state, U, -L, plan, rounds)

    def _raise_artificial(self) -> bool:
        """Make artificial arcs more expensive; return False if they are so already that an optimal plan needs them.

        Arcs that are far more expensive than those so far may have to join before there is a plan.
        """
        dear = self.artificial / (16 * (len(self.a) + len(self.b)))
        if dear > max(self.scale, 1e-300) and dear > abs(self.least) + self.cost.spread():
            return False
        self.artificial = self.engine.raise_artificial(8.0)
        return True

    def _tolerance(self) -> float:
        """Return what violations may be without any effect on the value, at most rounding errors."""
        rounding = 4 * _ULP * self.scale
        return (
            min(rounding, NEGLIGIBLE_VIOLATION * abs(self.engine.value))
            if isinstance(self.engine, ArcProblem)
            else rounding
        )

    def _force(self, corners: Indices, g: Array, h: Array) -> None:
        """Solve with forbidden arcs, which cost more than any detour."""
        i, j = np.divmod(corners, self.cost.shape[1])
        forbidden = ~np.isfinite(self.cost.at(i, j))
        self._start(self.arcs, g - np.median(g[self.rows]), h - np.median(h[self.columns]))
        price = np.full(np.count_nonzero(forbidden), 2 * len(self.arcs) * max(self.scale, 1e-300))
        self.engine.add(self.row_index[i[forbidden]], self.column_index[j[forbidden]], price)
        self.scale = float(price.max())
        while not self.engine.optimise() and not self.budget.spent and self._raise_artificial():
            pass

    def _violated(self, g: Array, h: Array) -> Indices:
        """Return the arcs of least reduced cost of the points that have a violated arc, without those that exist."""
        share, limit = 8 * (self.cost.depth + 1) * _ULP, 4 * self._tolerance() + 2 * self.cost.rounding()
        f, least = g[self.rows], np.where(np.isfinite(h), h + share * np.abs(h), h)
        most = np.where(np.isfinite(g), g - share * np.abs(g), g)
        short = self.cost.row_min(least)[self.rows] - f < -share * np.abs(f) - limit
        over = self.cost.col_max(most)[self.columns] > least[self.columns] + limit
        near = self._near_arcs(g, h, self.rows[short], self.columns[over])
        return np.setdiff1d(near, self.arcs, assume_unique=True)

    def _near_arcs(self, g: Array, h: Array, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Indices:
        """Return the arcs of least reduced cost ``M_ij - g_i + h_j`` of some rows and columns, as ``i m2 + j``."""
        m1, m2 = self.cost.shape
        found = [np.empty(0, np.int64)]
        if len(rows):
            J = self.cost.row_nearest(h, min(self.neighbours, m2))[rows]
            found.append((rows[:, None] * m2 + J)[J >= 0])
        if len(columns):
            I = self.cost.col_nearest(g, min(self.neighbours, m1))[columns]  # noqa: E741
            found.append((I * m2 + columns[:, None])[I >= 0])
        return _sorted(*found)

    def _solution(self, U: Array, L: Array, rounds: int) -> Solution:
        """Return the plan of the basis with bounds rounded outwards."""
        i, j, mass = self.engine.exact_plan()
        i, j = self.rows[i], self.columns[j]
        costs = self.cost.at(i, j)
        plan = plan_of(i, j, mass, costs, self.p, self.q)
        found = bounds(self.p, self.q, U, -L, mass, costs, self.cost.depth)
        vanished = self.cost.vanishing(i, j) if self.cost.underflow() else 0.0
        found = found.widened(0.0, vanished + self.cost.rounding()).at_least(self.least)
        return Solution.of(found, found.status(), U, -L, plan, rounds)


def _sorted(*arcs: Indices) -> Indices:
    """Return the union of arcs, sorted."""
    every = np.sort(np.concatenate(arcs))
    return every[np.diff(every, prepend=-1) > 0]
