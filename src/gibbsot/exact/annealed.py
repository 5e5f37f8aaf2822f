"""Crossover: exact optima from potentials that are nearly optimal: annealed ones, or those of bids or an assignment.

The arcs of an optimal plan have small reduced costs ``M_ij - U_i + L_j`` under such potentials: from these
`arcs.GrowingArcs` starts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..core.backend import backend
from ..costs import Cost, Units, in_units, single
from ..costs.problems import Problem
from ..io.budget import Budget
from ..sampling.gibbs import Gibbs
from ..sampling.schedules import Adaptive
from . import bids
from .arcs import GrowingArcs
from .certificate import (
    PROVED,
    ROUNDS,
    below,
    bounds,
    concluded,
    for_cost,
    weighted_median,
)
from .easy_plan import with_easy_plan
from .method import Batch, Method
from .refinement import CostScreen, refined
from .solution import INFEASIBLE, Solution, plan_of

Array = NDArray[np.float64]

_LIGHTEST = 2.0**-100  # weights for the cooling before a crossover
_ASSIGNED = 2**24, 2**29  # pairs of the matrices in single precision from which assignments start: up to 2 GB
_BLOCK = 2_000_000  # entries that are converted at once
_ETA = 0.3  # of the cooling before a crossover, which needs no precise estimate


class Crossover(Method):
    """Potentials of annealed chains, of bids, or of an assignment in single precision, choose the arcs."""

    name = "crossover"
    about = "potentials choose arcs: in many dimensions those of bids or of an assignment, else annealed ones"
    suits = "everything else that is large, and without compiled kernels all problems off the line"

    def accepts(self, cost: Cost) -> bool:
        """Accept every cost."""
        return True

    def memory(self, cost: Cost) -> float:
        """Return the bytes of the points, and what the sampler or an assignment needs."""
        lists = bids.memory(cost) if cost.has_lists else 0.0
        start = max(cost.sweep_memory(), lists, 4.1 * _assigned_pairs(cost))
        return 1500.0 * sum(cost.shape) + cost.search_memory() + start

    def seconds(self, points: float, pairs: float) -> float:
        """Return about how long a problem takes."""
        return 2.4 * (pairs / 25e6) ** 1.3

    def solve(self, batch: Batch, which: list[int]) -> list[Solution]:
        """Find potentials to start from, annealed ones for all problems together, and solve one by one."""
        U = {b: f for b in which if (f := batch.start(b)) is not None}
        for start in (_assigned, _bid):
            U |= {b: f for b in which if b not in U and (f := start(batch, b)) is not None}
        if new := [b for b in which if b not in U]:
            U |= _annealed(batch, new)

        def one(b: int) -> Solution:
            return crossover(
                *batch.weights(b), batch.cost, U[b], max_rounds=batch.max_rounds, gap=batch.gap, budget=batch.budget
            )

        return batch.each(one, which)


def _assigned_pairs(cost: Cost) -> int:
    """Return how many pairs a matrix has from which an assignment starts; 0 if there is none."""
    pairs = cost.shape[0] * cost.shape[1]
    in_range = _ASSIGNED[0] < pairs <= _ASSIGNED[1]
    return pairs if in_range and cost.shape[0] == cost.shape[1] and cost.work > 0.2 * pairs else 0


def _assigned(batch: Batch, b: int) -> Array | None:
    """Return potentials of an assignment at least cost, from costs in single precision; None if that is not possible.

    All weights are equal on both sides. The potentials choose arcs; their costs in double precision decide.
    """
    p, q = batch.weights(b)
    cost, pairs = batch.cost, _assigned_pairs(batch.cost)
    if not pairs or p.min() < p.max() or q.min() < q.max() or 4.1 * pairs > batch.budget.max_memory:
        return None
    C, step = np.empty(cost.shape, np.float32), max(1, _BLOCK // cost.shape[1])
    for start in range(0, len(C), step):
        rows = np.arange(start, min(start + step, len(C)))
        C[rows] = cost.matrix(rows)
        if batch.budget.spent:
            return None
    batch.budget.report("assignment of %d points in single precision", len(C))
    found = backend().assign(C, batch.budget.seconds, batch.budget.flag)
    return None if found is None else found[0]


def _bid(batch: Batch, b: int) -> Array | None:
    """Return potentials from bids, None where they are slow or not possible."""
    if not (batch.cost.has_lists and backend().has_simplex) or batch.budget.spent:
        return None
    return bids.potentials(*batch.weights(b), batch.cost, batch.budget)


def _annealed(batch: Batch, which: list[int]) -> dict[int, Array]:
    """Return potentials of annealed chains."""
    # a weight that would vanish in single precision takes part, as its point may be the only one that others reach
    sides = zip(batch.problem.given, (batch.problem.p, batch.problem.q), strict=True)
    p, q = (np.where(given[which] > 0, np.maximum(w[which], _LIGHTEST), 0) for given, w in sides)
    problem = Problem.normalised(p, q, batch.problem.cost)
    method = Gibbs(n_sweeps=effort(problem.cost)[0], schedule=Adaptive(_ETA))
    # single precision suffices to find the arcs; costs beyond its range are scaled, as the noise would overflow
    cost = single(problem.cost)
    units = Units(cost, 0.0, 1.0) if cost.dtype == np.float32 else in_units(cost).single()
    chains = problem.with_cost(units.cost)
    U = method.sample(chains, ids=which, n_jobs=batch.n_jobs, budget=batch.budget).info.U.astype(np.float64)
    with np.errstate(over="ignore"):
        U = units.shift + units.unit * U
    return dict(zip(which, np.where(np.isfinite(U), U, 0), strict=True))  # points without weight, or hardly any


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
    return _Crossover(p, q, cost, neighbours, budget or Budget()).solve(np.asarray(U, np.float64), max_rounds, gap)


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


class _Crossover:
    """A crossover, and what its plans and potentials prove."""

    def __init__(self, p: Array, q: Array, cost: Cost, neighbours: int, budget: Budget) -> None:
        self.p, self.q, self.cost, self.budget = p, q, cost, budget
        self.growing = GrowingArcs(cost, p, q, neighbours, budget)
        self.least = cost.least()

    def solve(self, U: Array, max_rounds: int, gap: float) -> Solution:
        """Add violated arcs until there is none."""
        growing, first = self.growing, np.where(self.p > 0, U, -np.inf)
        g = np.where(self.q > 0, -self.cost.col_max(first), -np.inf)
        if not self.cost.finite:
            reached = np.isfinite(g[growing.columns]).all()
            if not (reached and np.isfinite(self.cost.row_min(-g)[growing.rows]).all()):
                raise ValueError(INFEASIBLE)
        growing.start(first, g)
        for rounds in growing.rounds(max_rounds):
            potentials = feasible(self.cost, growing.f, self.p, self.q)
            self.budget.report("%d x %d points, %d arcs, round %d", *self.cost.shape, growing.count, rounds)
            if growing.carried and not self.budget.spent:
                answer = self._solution(*potentials, rounds, gap)
                if answer.status in PROVED:
                    return answer
        if self.budget.spent:
            return self._ended(potentials, first, rounds, gap)
        if growing.settled:
            if not growing.carried:
                raise ValueError(INFEASIBLE)
            return self._refined(gap, rounds)
        if not growing.carried:
            growing.force()
        return self._solution(*potentials, rounds, gap, ROUNDS)

    def _ended(self, potentials: tuple[Array, Array], first: Array, rounds: int, gap: float) -> Solution:
        """Return what is proved when the budget is spent, with the better of two pairs of potentials."""
        pairs = potentials, feasible(self.cost, first, self.p, self.q)
        found = [self._solution(*pair, rounds, gap) for pair in pairs]
        best = max(found, key=lambda solution: solution.lower)
        if np.isinf(best.upper) and (forbidden := self.cost.forbidden()) is not None:
            best = with_easy_plan(best, self.p, self.q, forbidden, self.cost.at, gap)
        return best

    def _refined(self, gap: float, rounds: int) -> Solution:
        """Return the solution that potentials with twice the digits prove."""
        rows, columns, problem = self.growing.rows, self.growing.columns, self.growing.problem
        i, j, arc, _ = problem.basis()
        own, screen = arc >= 0, CostScreen(self.cost, rows, columns)
        start = (i[own], j[own]), problem.potentials()
        found = refined(screen, problem.p, problem.q, *start, gap, self.budget, self.least)
        g = np.full(self.cost.shape[0], -np.inf)
        g[rows] = found.f
        U, L = feasible(self.cost, g, self.p, self.q)
        arcs = rows[found.i], columns[found.j]
        plan = plan_of(*arcs, found.mass, self.cost.at(*arcs), self.p, self.q)
        proof = for_cost(found.certificate, self.cost, *arcs)
        return Solution.of(*concluded(proof, gap=gap, spent=self.budget.spent), U, -L, plan, rounds)

    def _solution(self, U: Array, L: Array, rounds: int, gap: float, reason: str = "") -> Solution:
        """Return the plan of the basis with bounds rounded outwards."""
        i, j, mass = self.growing.problem.exact_plan()
        i, j = self.growing.rows[i], self.growing.columns[j]
        costs = self.cost.at(i, j)
        plan = plan_of(i, j, mass, costs, self.p, self.q)
        found = bounds(self.p, self.q, U, -L, mass, costs, self.cost.depth)
        vanished = self.cost.vanishing(i, j) if self.cost.underflow() else 0.0
        found = found.widened(0.0, vanished + self.cost.rounding()).at_least(self.least)
        found = replace(found, reason=found.reason or reason)
        return Solution.of(*concluded(found, gap=gap, spent=self.budget.spent), U, -L, plan, rounds)
