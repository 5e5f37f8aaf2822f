"""Exact optima of transport problems, with certified bounds.

Small problems are solved on all arcs by `network_simplex.solve_dense`, distances of points by `multiscale` and `line`,
other costs on grids by `pyramid`, and all others by `crossover` from annealed potentials. `methods` makes the choice.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core import native
from ..core.costs import Cost, DenseCost, GridCost, PointCost
from ..core.costs.base import Geometry
from ..core.problems import Problem
from .crossover import crossover, feasible
from .line import solve_line
from .multiscale import solve_points
from .network_simplex import solve_dense
from .pyramid import solve_pyramid
from .solution import INFEASIBLE, Solution

Array = NDArray[np.float64]

# pairs of points with weight, up to which all arcs are used
_STORED_PAIRS, _OTHER_PAIRS, _DISTANCE_PAIRS, _LINE_PAIRS = 9_000_000, 500_000, 160_000, 25_000
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
    pairs = np.count_nonzero(problem.p, axis=1) * np.count_nonzero(problem.q, axis=1)
    most, other = _STORED_PAIRS if isinstance(problem.cost, DenseCost | PointCost) else _OTHER_PAIRS, "crossover"
    if native.kernels() is None:
        most = -1
    elif pairs.max() > _LINE_PAIRS and (geometry := problem.cost.geometry()) is not None:
        line = geometry.X.shape[1] == 1
        most, other = min(most, _LINE_PAIRS if line else _DISTANCE_PAIRS), "line" if line else "multiscale"
    elif isinstance(problem.cost, GridCost):
        other = "pyramid"
    return ["all arcs" if k <= most else other for k in pairs.tolist()]


def cross(
    problem: Problem,
    U: NDArray[np.floating] | None,
    max_rounds: int = 30,
    n_jobs: int | None = None,
    chosen: list[str] | None = None,
) -> list[Solution]:
    """Solve each problem of a batch exactly, in threads, by the method that `methods` names.

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1), or None
        Potentials, from which problems cross over; None if no problem does.
    max_rounds : int
        As for `crossover`. With one round all problems are solved only on the arcs that U suggests.
    n_jobs : int, optional
        Threads over the problems.
    chosen : list of str, optional
        What `methods` returned, if it is known.

    Returns
    -------
    list of Solution

    Raises
    ------
    ValueError
        If infinite costs forbid every plan of a problem.
    """
    cost = problem.cost.astype(np.float64)  # one copy for all problems
    if max_rounds == 1:
        chosen = ["crossover"] * len(problem)
    chosen = methods(problem) if chosen is None else chosen
    found: dict[int, Solution] = {}
    direct = [b for b, method in enumerate(chosen) if method == "all arcs"]
    if direct and cost.shape[0] * cost.shape[1] <= _SHARED_ENTRIES:
        found = _all_arcs_of_batch(problem, cost, direct, native.threads(n_jobs))
    geometry = problem.cost.geometry() if {"line", "multiscale"} & set(chosen) else None

    def work(b: int) -> Solution:
        p, q = problem.p[b], problem.q[b]
        try:
            if chosen[b] == "all arcs":
                return _all_arcs_of_supports(p, q, cost)
            if chosen[b] in ("line", "multiscale") and geometry is not None:
                return _of_points(p, q, geometry)
            if chosen[b] == "pyramid" and isinstance(cost, GridCost):
                return solve_pyramid(p, q, cost)
            if U is None:
                raise RuntimeError("a crossover needs potentials")
            return crossover(p, q, cost, U[b], max_rounds=max_rounds)
        except ValueError as error:
            raise ValueError(f"{error} (problem {b})") from None

    others = [b for b in range(len(problem)) if b not in found]
    if others:
        module = native.kernels()
        stop = None if module is None else module.StopFlag()  # ends the kernels' work in the pool
        with ThreadPoolExecutor(native.threads(n_jobs), initializer=stop and stop.watch) as pool:
            try:
                found.update(zip(others, pool.map(work, others), strict=True))
            except BaseException:
                if stop is not None:
                    stop.set()
                pool.shutdown(cancel_futures=True)
                raise
    return [found[b] for b in range(len(problem))]


def _all_arcs_of_batch(problem: Problem, cost: Cost, which: list[int], threads: int) -> dict[int, Solution]:
    """Solve problems on all arcs of one matrix."""
    C = (
        cost.matrix()
        if isinstance(cost, DenseCost)
        else _matrix(cost, np.arange(cost.shape[0]), np.arange(cost.shape[1]))
    )
    answers = solve_dense(C, problem.p[which], problem.q[which], threads=threads)
    if "infeasible" in answers.status:
        raise ValueError(f"{INFEASIBLE} (problem {which[answers.status.index('infeasible')]})")
    return {b: answers[k] for k, b in enumerate(which)}


def _of_points(p: Array, q: Array, geometry: Geometry) -> Solution:
    """Solve one problem whose costs are distances of points."""
    X, Y, power = geometry
    if X.shape[1] == 1:
        return solve_line(X[:, 0], Y[:, 0], p, q, power)
    return solve_points(X, Y, p, q, squared=power == 2)


def _all_arcs_of_supports(p: Array, q: Array, cost: Cost) -> Solution:
    """Solve one problem on all arcs between the points that have weight, where the whole matrix is too large."""
    rows, columns = np.flatnonzero(p), np.flatnonzero(q)
    answer = solve_dense(_matrix(cost, rows, columns), p[rows], q[columns])
    if answer.status[0] == "infeasible":
        raise ValueError(INFEASIBLE)
    g = np.full(len(p), -np.inf)
    g[rows] = answer.f[0]
    U, L = feasible(cost, g)
    i, j, mass = answer.arcs()
    plan = sparse.csr_array(sparse.coo_array((mass, (rows[i], columns[j])), cost.shape))
    found = answer[0]
    return Solution(found.value, found.lower, found.upper, found.status, U, -L, plan)


def _matrix(cost: Cost, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Array:
    """Return the costs between some rows and columns."""
    return np.ascontiguousarray(cost.at(rows[:, None], columns))
