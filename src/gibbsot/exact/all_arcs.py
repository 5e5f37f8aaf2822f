"""Exact optima on all arcs of a matrix, for one problem or a batch.

The simplex in double precision proves nearly all of them. `proved` takes a closer look at the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core import native
from ..core.backend import backend
from ..core.double_double import DoubleDouble
from ..costs import Cost, DenseCost
from ..io.budget import Budget
from .annealed import feasible
from .certificate import concluded, for_cost
from .easy_plan import with_easy_plan
from .far_costs import solve_capped
from .method import Batch, Method
from .refinement import MatrixScreen, refined
from .simplex import Basis, DenseSolutions, lowered, solve_dense
from .solution import INFEASIBLE, Solution, plan_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_SHARED_ENTRIES = 9_000_000  # of the largest matrix that the problems of a batch share


class AllArcs(Method):
    """Augmenting paths or the network simplex on all arcs between the points that have weight."""

    name = "all arcs"
    about = "augmenting paths for uniform weights, else the network simplex, on the matrix between points with weight"
    suits = "small problems, and all costs up to 8,192 x 8,192 points that no other method suits"
    most = 2**26

    def accepts(self, cost: Cost) -> bool:
        """Accept every cost, with compiled kernels."""
        return backend().has_simplex

    def memory(self, cost: Cost) -> float:
        """Return the bytes of the points, and of the matrix if it is not stored already."""
        return 200.0 * sum(cost.shape) + cost.matrix_memory()

    def seconds(self, points: float, pairs: float) -> float:
        """Return about how long a problem takes."""
        return 0.8 * (pairs / 9e6) ** 1.2

    def solve(self, batch: Batch, which: list[int]) -> list[Solution]:
        """Solve problems on one matrix, or each on its own, where the whole matrix is too large."""
        cost = batch.cost
        if cost.shape[0] * cost.shape[1] <= _SHARED_ENTRIES:
            return _on_one_matrix(batch, which)
        return batch.each(lambda b: _on_supports(*batch.weights(b), cost, batch.budget, batch.gap), which)


def _on_one_matrix(batch: Batch, which: list[int]) -> list[Solution]:
    """Solve problems on all arcs of one matrix."""
    p, q = batch.problem.given
    if len(which) < len(batch.problem):
        p, q = p[which], q[which]
    cost, budget, gap = batch.cost, batch.budget, batch.gap
    C, before = cost.stored(), batch.warm_start
    basis = None if before is None else _bases([before[b] for b in which], sum(cost.shape))
    threads, near = native.threads(batch.n_jobs), (cost.accuracy(), cost.underflow())
    inexact = near[1] > 0 or cost.rounding() > 0

    def solved(p: Array, q: Array, basis: Basis | None, which: list[int]) -> list[Solution]:
        answers = solve_dense(C, p, q, True, threads, basis, budget, *near)
        if "infeasible" in answers.status:
            raise ValueError(f"{INFEASIBLE} (problem {which[answers.status.index('infeasible')]})")
        found = []
        for b, state in enumerate(answers.status):
            closer = inexact or state != "optimal"
            found.append(proved(answers, b, cost, gap, budget) if closer else answers[b])
        return found

    if not budget.reports:
        return solved(p, q, basis, which)
    found: list[Solution] = []
    step = max(8 * threads, len(which) // 50)
    for start in range(0, len(which), step):
        some = slice(start, start + step)
        own = None if basis is None else (basis[0][some], basis[1][some])
        found += solved(p[some], q[some], own, which[some])
        budget.report("%d of %d problems", len(found), len(which))
    return found


def _bases(solutions: list[Solution], most: int) -> Basis:
    """Return the arcs of the solutions' bases as rows, filled up with -1."""
    i, j = np.full((2, len(solutions), most), -1, np.int32)
    for b, solution in enumerate(solutions):
        rows, columns = solution.basis
        i[b, : len(rows)], j[b, : len(rows)] = rows[:most], columns[:most]
    return i, j


def _on_supports(p: Array, q: Array, cost: Cost, budget: Budget, gap: float) -> Solution:
    """Solve one problem on all arcs between the points that have weight, where the whole matrix is too large."""
    rows, columns = np.flatnonzero(p), np.flatnonzero(q)
    near, every = (cost.accuracy(), cost.underflow()), (len(rows), len(columns)) == cost.shape
    C = cost.stored() if every else cost.matrix(rows, columns)
    answers = solve_dense(C, p[rows], q[columns], True, 1, None, budget, *near)
    if answers.status[0] == "infeasible":
        raise ValueError(INFEASIBLE)
    if every:
        return proved(answers, 0, cost, gap, budget)
    found = proved(answers, 0, cost, gap, budget, (rows, columns))
    f = np.full(len(p), -np.inf)
    f[rows] = found.f
    U, L = feasible(cost, f, p, q)
    arcs = found.plan.tocoo()
    plan = sparse.csr_array(sparse.coo_array((arcs.data, (rows[arcs.row], columns[arcs.col])), cost.shape))
    return Solution.of(found.certificate, found.status, U, -L, plan)


def proved(
    answers: DenseSolutions, b: int, cost: Cost, gap: float = 0.0, budget: Budget | None = None,
    points: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None,
) -> Solution:  # fmt: skip
    """Return the solution of problem b, after a closer look where its first proof does not suffice.

    Parameters
    ----------
    answers : DenseSolutions
        Solutions on all arcs of a matrix.
    b : int
        The problem.
    cost : Cost
        The cost; the matrix may have its rounded entries.
    gap : float
        The relative gap that is enough.
    budget : Budget, optional
        Its time and memory.
    points : pair of arrays of int, optional
        The rows and columns of the cost that the matrix has, if not all.

    Returns
    -------
    Solution
    """
    solution, rounding = answers[b], cost.rounding()
    if solution.status == "budget spent" and np.isinf(solution.upper):
        C, p, q = answers.problem(b)
        forbidden = np.isinf(C)
        counts, errors = (forbidden.sum(axis=1), forbidden.sum(axis=0)), (cost.accuracy(), cost.underflow() + rounding)
        return with_easy_plan(solution, p, q, counts, lambda i, j: C[i, j], gap, *errors)
    tiny = solution.upper < cost.underflow() * 2.0**60  # squares may have vanished
    if solution.optimal and not rounding and not tiny:
        return solution
    budget, found = budget or Budget(), solution.certificate
    i, j, _ = answers.arcs(b)
    if rounding:
        found = replace(found, lower=found.lower - 2 * rounding, upper=found.upper + 2 * rounding)
    elif tiny:
        found = for_cost(found, cost, *_named(points, i, j))
    found, state = concluded(found, gap=gap, spent=solution.status == "budget spent")
    if state == "gap open":
        again = None if rounding or tiny else solve_capped(answers, b, budget, cost.accuracy(), cost.underflow())
        if again is not None and again[0].optimal:
            return Solution.of(again[0].certificate, "optimal", again.f[0], again.g[0], again.plan())
        return _refined(answers, b, cost, gap, budget, points)
    return Solution.of(found, state, solution.f - 2 * rounding, solution.g, solution.plan)


def _named(
    points: tuple[NDArray[np.intp], NDArray[np.intp]] | None, i: NDArray[np.integer], j: NDArray[np.integer]
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Return the rows and columns of a cost that those of a matrix are."""
    return (i, j) if points is None else (points[0][i], points[1][j])


def _refined(
    answers: DenseSolutions, b: int, cost: Cost, gap: float, budget: Budget,
    points: tuple[NDArray[np.intp], NDArray[np.intp]] | None,
) -> Solution:  # fmt: skip
    """Return the solution of problem b that potentials with twice the digits prove."""
    C, p, q = answers.problem(b)
    rows, columns = np.flatnonzero(p), np.flatnonzero(q)
    numbers = [np.cumsum(x > 0) - 1 for x in (p, q)]
    part = C if len(rows) == len(p) and len(columns) == len(q) else C[np.ix_(rows, columns)]
    rounding = cost.rounding()

    def exact(i: Indices, j: Indices) -> tuple[DoubleDouble, Array]:
        high, low, size = cost.at_exact(*_named(points, rows[i], columns[j]))
        return DoubleDouble(high, low), size

    screen = MatrixScreen(part, exact, rounding) if rounding else MatrixScreen(part)
    start = tuple(number[x[b][x[b] >= 0]] for number, x in zip(numbers, answers.basis, strict=True))
    potentials = answers.f[b][rows], answers.g[b][columns]
    least = float(part.min()) - rounding
    found = refined(screen, p[rows], q[columns], (start[0], start[1]), potentials, gap, budget, least)
    i, j = rows[found.i], columns[found.j]
    proof = for_cost(found.certificate, cost, *_named(points, i, j))
    f = np.full(len(p), -np.inf)
    f[rows] = found.f
    U, L = feasible(DenseCost(C), f, p, q)
    # feasible for the costs behind the matrix
    near, less = (cost.accuracy(), cost.underflow()), 2 * rounding
    U, L = lowered(U, *near), -lowered(-L, *near)
    plan = plan_of(i, j, found.mass, C[i, j], p, q)
    return Solution.of(*concluded(proof, gap=gap, spent=budget.spent), U - less, -L, plan)
