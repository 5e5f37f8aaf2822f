"""Exact optima of transport problems, with certified bounds.

Small problems are solved on all arcs by `network_simplex.solve_dense`, distances of points by `multiscale` and `line`,
other costs on grids by `pyramid`, and all others by `crossover` from annealed potentials. `methods` makes the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core import native
from ..costs import BorderedCost, DenseCost, GridCost, PointCost, single
from ..costs.base import Geometry
from ..costs.points import MATRIX_BYTES
from ..costs.problems import Problem
from ..io.budget import Budget
from ..sampling.gibbs import GibbsSolver
from ..sampling.schedules import Adaptive
from .all_arcs import solve_batch_on_all_arcs, solve_supports_on_all_arcs
from .annealed import crossover, effort
from .coarse_to_fine import solve_points
from .line import solve_line
from .pyramid import solve_pyramid
from .solution import Solution

Array = NDArray[np.float64]
T = TypeVar("T")

_LIGHTEST = 2.0**-100  # weights for the cooling before a crossover
_ETA = 0.3  # of the cooling before a crossover, which needs no precise estimate
# pairs of points with weight, up to which all arcs are used
STORED_PAIRS, _OTHER_PAIRS, DISTANCE_PAIRS, _LINE_PAIRS = 9_000_000, 500_000, 160_000, 25_000
KEPT_BYTES = 48  # of a point of each problem: weights as they are given and normalised, potentials, basis, plan
_SHARED_ENTRIES = 9_000_000  # of the largest matrix that the problems of a batch share


def methods(problem: Problem) -> list[str]:
    """Return how each problem is solved exactly; only the kind of cost and the number k of pairs with weight decide.

    ============== ====================================================================================================
    "all arcs"     k <= 9,000,000 for matrices and 500,000 for other costs; if the costs are distances (squared or
                   plain Euclidean, in one to three dimensions) k <= 160,000, and 25,000 on the line
    "line"         larger problems on the line, with a convex power of the distance
    "multiscale"   larger problems with squared or plain Euclidean distances
    "pyramid"      larger problems on grids with other costs
    "crossover"    all others, and all without compiled kernels: these need annealed potentials
    ============== ====================================================================================================

    Parameters
    ----------
    problem : Problem
        The problems.

    Returns
    -------
    list of str

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost, problem
    >>> ones = np.ones(32 * 32)
    >>> methods(problem(ones, ones, GridCost((32, 32)))), methods(problem(ones, ones, GridCost((32, 32), power=1)))
    (['multiscale'], ['pyramid'])
    """
    m1, m2 = problem.cost.shape
    if m1 * m2 <= min(_LINE_PAIRS, STORED_PAIRS, _OTHER_PAIRS) and native.kernels() is not None:
        return ["all arcs"] * len(problem)
    pairs = np.prod([np.count_nonzero(x, axis=1) for x in problem.given], axis=0)
    most, other = STORED_PAIRS if isinstance(problem.cost, DenseCost | PointCost) else _OTHER_PAIRS, "crossover"
    if native.kernels() is None:
        most = -1
    elif isinstance(problem.cost, BorderedCost):
        geometry = problem.cost.inner.geometry()
        squared_or_plain = geometry is not None and geometry.power in (1, 2)
        by_trees = squared_or_plain and problem.cost.common_outer is not None  # k-d trees have one cost for the border
        most, other = DISTANCE_PAIRS, "multiscale" if by_trees else "crossover"
    elif pairs.max() > _LINE_PAIRS and (geometry := problem.cost.geometry()) is not None:
        line = geometry.X.shape[1] == 1
        most, other = min(most, _LINE_PAIRS if line else DISTANCE_PAIRS), "line" if line else "multiscale"
    elif isinstance(problem.cost, GridCost):
        other = "pyramid"
    return ["all arcs" if k <= most else other for k in pairs.tolist()]


def memory_needed(problem: Problem, n_jobs: int | None = None) -> float:
    """Return an estimate of the bytes that exact solutions need beyond the cost and the measures.

    A thousand per point for distances, from coarse to fine; a matrix of costs where all arcs are used and it is not
    stored already; the matrices of the sampler before a crossover; and the measures and solutions of all problems.
    The numbers were measured: no allocation of more than a megabyte is left out.

    Parameters
    ----------
    problem : Problem
        The problems.
    n_jobs : int, optional
        Threads over the problems.

    Returns
    -------
    float

    Examples
    --------
    >>> from gibbsot import GridCost, problem
    >>> import numpy as np
    >>> ones = np.ones(512 * 512)
    >>> f"{memory_needed(problem(ones, ones, GridCost((512, 512)))):.1e}"
    '5.5e+08'
    """
    points, pairs = float(sum(problem.cost.shape)), float(problem.cost.shape[0]) * problem.cost.shape[1]
    if isinstance(problem.cost, DenseCost):  # bytes per entry: copies in other precisions, and a transposed one
        all_arcs, matrix = (0, 12) if problem.cost.dtype == np.float64 else (12, 16)
    else:
        all_arcs, matrix = 18, 16
    sampled = isinstance(problem.cost, GridCost) or pairs * problem.cost.dtype.itemsize > MATRIX_BYTES
    needed = {
        "all arcs": 200 * points + all_arcs * pairs,
        "line": 300 * points,
        "multiscale": 1000 * points,
        "pyramid": 1500 * points,
        "crossover": 1500 * points + (0.0 if sampled else matrix * pairs),
    }
    at_once = min(native.threads(n_jobs), len(problem)) * max(needed[method] for method in set(methods(problem)))
    return at_once + KEPT_BYTES * points * len(problem)


def cross(
    problem: Problem,
    U: NDArray[np.floating] | None = None,
    max_rounds: int = 30,
    n_jobs: int | None = None,
    gap: float = 0.0,
    warm_start: list[Solution] | None = None,
    budget: Budget | None = None,
) -> list[Solution]:
    """Solve each problem of a batch exactly, in threads, by the method that `methods` names.

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1), optional
        Potentials from which problems cross over; by default those of annealed chains.
    max_rounds : int
        As for `crossover`. With one round all problems are solved only on the arcs that U suggests.
    n_jobs : int, optional
        Threads over the problems.
    gap : float
        Stop as soon as the certified relative gap is at most this; 0 for the optimum.
    warm_start : list of Solution, optional
        Solutions of problems with the same points and other weights or costs: problems that are solved on all arcs
        start from their bases.
    budget : Budget, optional
        Its time and memory; solutions then may have the status "budget spent". Its threads are those inside a problem.

    Returns
    -------
    list of Solution

    Raises
    ------
    ValueError
        If infinite costs forbid every plan of a problem.
    """
    budget = budget or Budget(threads=max(1, native.threads(n_jobs) // len(problem)))
    chosen = ["crossover"] * len(problem) if max_rounds == 1 else methods(problem)
    for method in sorted(set(chosen)) if budget.reports else ():
        budget.report("%d problems of %d x %d points by %s", chosen.count(method), *problem.cost.shape, method)
    cost = problem.cost.astype(np.float64)  # one copy for all problems
    found: dict[int, Solution] = {}
    direct = [b for b, method in enumerate(chosen) if method == "all arcs"]
    if direct and cost.shape[0] * cost.shape[1] <= _SHARED_ENTRIES:
        answers = solve_batch_on_all_arcs(problem, cost, direct, n_jobs, warm_start, budget, gap)
        if len(direct) == len(problem):
            return answers
        found = dict(zip(direct, answers, strict=True))
    others = [b for b in range(len(problem)) if b not in found]
    outer = cost.common_outer if isinstance(cost, BorderedCost) else None
    border = (outer, cost.corner) if isinstance(cost, BorderedCost) and outer is not None else None
    points = cost.inner if isinstance(cost, BorderedCost) else cost
    geometry = points.geometry() if {"line", "multiscale"} & set(chosen) else None
    annealed = {b: U[b] for b in others} if U is not None else _annealed(problem, chosen, n_jobs, budget)

    def work(b: int) -> Solution:
        p, q = problem.given[0][b], problem.given[1][b]
        try:
            if chosen[b] == "all arcs":
                return solve_supports_on_all_arcs(p, q, cost, budget, gap)
            if chosen[b] in ("line", "multiscale") and geometry is not None:
                return _of_points(p, q, geometry, gap, budget, border)
            if chosen[b] == "pyramid" and isinstance(cost, GridCost):
                return solve_pyramid(p, q, cost, gap, budget)
            return crossover(p, q, cost, annealed[b], max_rounds=max_rounds, gap=gap, budget=budget)
        except ValueError as error:
            raise ValueError(f"{error} (problem {b})") from None

    found.update(zip(others, in_threads(work, others, n_jobs), strict=True))
    return [found[b] for b in range(len(problem))]


def in_threads(
    work: Callable[[int], T], items: Iterable[int], n_jobs: int | None, budget: Budget | None = None
) -> list[T]:
    """Return the results of some work in threads; an error or Ctrl-C ends what is queued and what the kernels do.

    It stops the budget, too, which the work may look at. One thread is the caller's: inside another call's threads the
    kernels then see that one's end.
    """
    if native.threads(n_jobs) == 1:
        return [work(item) for item in items]
    module = native.kernels()
    stop = None if module is None else module.StopFlag()
    with ThreadPoolExecutor(native.threads(n_jobs), initializer=stop and stop.watch) as pool:
        try:
            return list(pool.map(work, items))
        except BaseException:
            if stop is not None:
                stop.set()
            if budget is not None:
                budget.stop()
            pool.shutdown(cancel_futures=True)
            raise


def _annealed(
    problem: Problem, chosen: list[str], n_jobs: int | None, budget: Budget
) -> dict[int, NDArray[np.floating]]:
    """Return potentials of annealed chains for the problems that cross over."""
    which = [b for b, method in enumerate(chosen) if method == "crossover"]
    if not which:
        return {}
    # a weight that would vanish in single precision takes part, as its point may be the only one that others reach
    sides = zip(problem.given, (problem.p, problem.q), strict=True)
    p, q = (np.where(given[which] > 0, np.maximum(w[which], _LIGHTEST), 0) for given, w in sides)
    problem = Problem(p, q, problem.cost)
    solver = GibbsSolver(effort(problem.cost)[0], Adaptive(_ETA), ids=which, n_jobs=n_jobs, budget=budget)
    # single precision suffices to find the arcs
    U = solver(problem.with_cost(single(problem.cost))).info.U
    return dict(zip(which, np.where(np.isfinite(U), U, 0), strict=True))  # points without weight


def _of_points(
    p: Array, q: Array, geometry: Geometry, gap: float, budget: Budget, border: tuple[float, float] | None
) -> Solution:
    """Solve one problem whose costs are distances of points."""
    X, Y, power = geometry
    if X.shape[1] == 1 and border is None:
        return solve_line(X[:, 0], Y[:, 0], p, q, power)
    return solve_points(X, Y, p, q, squared=power == 2, gap=gap, budget=budget, border=border)
