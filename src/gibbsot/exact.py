"""Exact optima by crossover.

Annealed potentials tell which arcs an optimal plan can use: those with a small reduced cost ``M_ij - U_i + L_j``. A
network simplex solves the problem on these few arcs, its potentials are checked against every arc by (min, +) products,
the violated arcs join, and so on until none is violated. Then plan and potentials are optimal for the whole problem.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from . import kernels
from .costs import Cost
from .measures import Problem

_ROUNDING = 2e-10  # of the simplex's potentials, relative to their size
_PIVOTS = 1_000_000_000


class Crossover(NamedTuple):
    """The outcome of a crossover for one problem.

    Attributes
    ----------
    value : float
        The cost of the plan; infinite where it uses a forbidden arc.
    U, L : arrays of shape (m1,) and (m2,)
        Potentials that are feasible for every arc.
    plan : scipy.sparse.csr_array of shape (m1, m2)
        A coupling of p and q, a vertex: at most m1 + m2 - 1 entries.
    optimal : bool
        Whether no arc was violated at the end, and plan and potentials have one value.
    rounds : int
        How often the simplex was run.
    """

    value: float
    U: NDArray[np.floating]
    L: NDArray[np.floating]
    plan: sparse.csr_array
    optimal: bool
    rounds: int


def effort(cost: Cost) -> tuple[int, int]:
    """Return how many sweeps to anneal and how many arcs a point to take so that an exact solution comes soonest.

    Where a sweep is dear, as with a dense matrix, few sweeps and many arcs; on a grid good potentials are cheap.

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
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    cost: Cost,
    U: NDArray[np.floating],
    neighbours: int | None = None,
    max_rounds: int = 30,
) -> Crossover:
    """Solve one problem exactly from annealed potentials.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Weights that sum to one.
    cost : Cost
    U : array of shape (m1,)
        Potentials, the nearer to optimal the faster; any will do.
    neighbours : int, optional
        How many arcs each point brings in, at first and whenever one of its arcs is violated; that of `effort` by
        default.
    max_rounds : int
        Give up after so many rounds; plan and potentials are feasible all the same.

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
    rows, columns = np.flatnonzero(p), np.flatnonzero(q)
    row_places, column_places = np.cumsum(p > 0) - 1, np.cumsum(q > 0) - 1
    g = np.where(p > 0, np.asarray(U, np.float64), -np.inf)
    h = np.where(q > 0, cost.col_max(g), np.inf)
    corner_i, corner_j, _ = _staircase(p, q)  # whatever the other arcs are, with these a plan exists
    corner = corner_i * cost.shape[1] + corner_j
    arcs = _sorted(_near_arcs(cost, g, h, rows, columns, neighbours), corner)
    for rounds in range(1, max_rounds + 1):
        i, j = np.divmod(arcs, cost.shape[1])
        costs = cost.at(i, j)
        at, to = row_places[i], column_places[j]
        # from reduced costs the simplex goes on where the potentials are, instead of from nothing
        shift = h[j] - g[i]
        mass, allowed = np.zeros(len(arcs)), np.isfinite(costs)
        dearest = np.abs(costs[allowed]).max(initial=0.0)
        mass[allowed], u, v, solved = _simplex(p[rows], q[columns], (costs + shift)[allowed], at[allowed], to[allowed])
        if not solved and not allowed.all():
            # dearer than any way around: an optimal plan uses a forbidden arc only where it must
            priced = np.where(allowed, costs, 2 * len(arcs) * max(dearest, 1.0))
            mass, u, v, solved = _simplex(p[rows], q[columns], priced + shift, at, to)
        g[rows] += u
        h[columns] -= v
        # the price of an artificial or a forbidden arc may be in the potentials, but it is no measure of them
        size = np.abs(g[rows]).max() + np.abs(h[columns]).max()
        rounding = _ROUNDING * min(size, 100 * dearest)
        bad_rows = rows[cost.row_min(h)[rows] < g[rows] - rounding]
        bad_columns = columns[cost.col_max(g)[columns] > h[columns] + rounding]
        wider = _sorted(arcs, _near_arcs(cost, g, h, bad_rows, bad_columns, neighbours))
        # feasible for every arc, and without those prices
        L = cost.col_max(g)
        h = np.where(q > 0, L, np.inf)
        U = cost.row_min(h)
        g = np.where(p > 0, U, -np.inf)
        finished = solved and len(wider) == len(arcs)
        if finished or not solved or rounds == max_rounds:
            break
        arcs = wider
    impossible = mass[~allowed].sum() > 0
    if finished and impossible:
        raise ValueError("cost: infinite costs forbid every plan between these measures; expected a feasible problem")
    used = mass > 0
    plan = sparse.csr_array(sparse.coo_array((mass[used], (i[used], j[used])), shape=cost.shape))
    value = np.inf if impossible else float((mass[used] * costs[used]).sum())
    gap = value - float(p[rows] @ U[rows] - q[columns] @ L[columns])
    return Crossover(value, U, L, plan, bool(finished and gap <= 10 * rounding), rounds)


def cross(
    problem: Problem, U: NDArray[np.floating], max_rounds: int = 30, n_jobs: int | None = None
) -> list[Crossover]:
    """Cross over each problem of a batch from its row of U, in threads."""
    cost = problem.cost.astype(np.float64)  # once for all
    with ThreadPoolExecutor(kernels.threads(n_jobs)) as pool:
        jobs = [
            pool.submit(crossover, p, q, cost, u, max_rounds=max_rounds)
            for p, q, u in zip(problem.p, problem.q, U, strict=True)
        ]
        return [job.result() for job in jobs]


def _near_arcs(
    cost: Cost,
    g: NDArray[np.float64],
    h: NDArray[np.float64],
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    neighbours: int,
) -> NDArray[np.int64]:
    """Return the arcs of least reduced cost ``M_ij - g_i + h_j`` of some rows and columns, as numbers ``i m2 + j``."""
    m2 = cost.shape[1]
    found: list[NDArray[Any]] = [np.empty(0, np.int64)]
    if len(rows):
        J = cost.row_nearest(h, min(neighbours, m2))[rows]
        found.append((rows[:, None] * m2 + J)[J >= 0])
    if len(columns):
        I = cost.col_nearest(g, min(neighbours, cost.shape[0]))[columns]  # noqa: E741
        found.append((I * m2 + columns[:, None])[I >= 0])
    return np.concatenate(found)


def _sorted(*arcs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each of the arcs once, in order."""
    every = np.sort(np.concatenate(arcs))
    return every[np.diff(every, prepend=-1) > 0]


def _staircase(
    p: NDArray[np.float64], q: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Return rows, columns and masses of the plan that fills from the north-west corner.

    Examples
    --------
    >>> import numpy as np
    >>> [part.tolist() for part in _staircase(np.array([0.5, 0.5]), np.array([0.25, 0.75]))]
    [[0, 0, 1], [0, 1, 1], [0.25, 0.25, 0.5]]
    """
    rows, columns = np.flatnonzero(p), np.flatnonzero(q)
    if len(rows) == 0 or len(columns) == 0:
        return rows[:0], columns[:0], np.empty(0)
    a, b = np.cumsum(p[rows])[:-1], np.cumsum(q[columns])[:-1]
    steps = np.sort(np.concatenate([a, b]))
    ends = np.concatenate([steps, [p.sum()]])
    i = np.concatenate([[0], np.searchsorted(a, steps, side="right")])
    j = np.concatenate([[0], np.searchsorted(b, steps, side="right")])
    return rows[i], columns[j], np.diff(ends, prepend=0.0).clip(min=0.0)


def _simplex(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    costs: NDArray[np.floating],
    i: NDArray[np.intp],
    j: NDArray[np.intp],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], bool]:
    """Return the mass of each arc, the two potentials, and whether POT's network simplex came to its end.

    The arcs come in the order of their numbers.
    """
    import ot

    unit = np.abs(costs).max() or 1.0  # POT's artificial arcs cost more than one, whatever the unit of the others
    M = sparse.coo_array((costs / unit, (i, j)), shape=(len(a), len(b)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is wrong is in the log
        plan, log = ot.emd(a, b, M, numItermax=_PIVOTS, log=True, center_dual=False)
    plan = sparse.coo_array(plan)
    place = np.searchsorted(i * len(b) + j, plan.row * len(b) + plan.col)
    mass = np.zeros(len(costs))
    mass[place] = plan.data
    return mass, unit * np.asarray(log["u"]), unit * np.asarray(log["v"]), log["warning"] is None
