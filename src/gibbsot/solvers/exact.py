"""Exact optima by crossover.

The arcs of an optimal plan have small reduced costs ``M_ij - U_i + L_j`` under annealed potentials. A network simplex
solves the problem on the arcs of smallest reduced cost, c-transforms of its potentials find the violated arcs, these
are added, and so on until no arc is violated. Then plan and potentials are optimal for the whole problem.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core import native
from ..core.costs import Cost
from ..core.problems import Problem

_ROUNDING = 1e-10  # relative to the size of the potentials: smaller violations are ignored at first
_GAP = 1e-10, 1e-12  # the largest gap of an optimum, relative to the value and to the size of the potentials
_PIVOTS = 1_000_000_000


class Crossover(NamedTuple):
    """The outcome of a crossover for one problem.

    Attributes
    ----------
    value : float
        The cost of the plan; infinite if it uses a forbidden arc.
    U, L : arrays of shape (m1,) and (m2,)
        Potentials, feasible for every arc.
    plan : scipy.sparse.csr_array of shape (m1, m2)
        A coupling of p and q, a vertex: at most m1 + m2 - 1 entries.
    status : str
        "optimal": the values of plan and potentials differ by at most 1e-10 of the value plus 1e-12 of the size of the
        potentials. Otherwise "simplex failed", "gap open" (no arc is violated, but rounding leaves a gap) or "rounds
        ran out".
    rounds : int
        The number of runs of the simplex.
    optimal : bool
        Whether the status is "optimal".
    """

    value: float
    U: NDArray[np.floating]
    L: NDArray[np.floating]
    plan: sparse.csr_array
    status: str
    rounds: int

    @property
    def optimal(self) -> bool:
        """Whether the status is "optimal".

        Returns
        -------
        bool
        """
        return self.status == "optimal"


def effort(cost: Cost) -> tuple[int, int]:
    """Return the number of sweeps and of arcs per point with which an exact solution is fastest.

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
        The cost, of shape (m1, m2).
    U : array of shape (m1,)
        Potentials; the closer to optimal, the faster.
    neighbours : int, optional
        The number of arcs that a point adds, at first and whenever one of its arcs is violated; by default that of
        `effort`.
    max_rounds : int
        The largest number of rounds. Plan and potentials are feasible also if it is reached.

    Returns
    -------
    Crossover

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
    rows, columns = np.flatnonzero(p), np.flatnonzero(q)
    row_index, column_index = np.cumsum(p > 0) - 1, np.cumsum(q > 0) - 1
    g = np.where(p > 0, np.asarray(U, np.float64), -np.inf)
    h = np.where(q > 0, cost.col_max(g), np.inf)
    near = _sorted(_near_arcs(cost, g, h, rows, columns, neighbours))
    arcs = _sorted(near, _staircase(p, q, cost.shape[1]))  # with these arcs a plan exists
    tolerance = _ROUNDING
    for rounds in range(1, max_rounds + 1):  # noqa: B007
        i, j = np.divmod(arcs, cost.shape[1])
        costs = cost.at(i, j)
        at, to = row_index[i], column_index[j]
        # with reduced costs the simplex starts from the potentials
        shift = h[j] - g[i]
        mass, allowed = np.zeros(len(arcs)), np.isfinite(costs)
        mass[allowed], u, v, solved = _simplex(p[rows], q[columns], (costs + shift)[allowed], at[allowed], to[allowed])
        if not solved and not allowed.all():
            # more expensive than any detour: an optimal plan uses a forbidden arc only if every plan does
            price = 2 * len(arcs) * max(np.abs(costs[allowed]).max(initial=0.0), 1.0)
            mass, u, v, solved = _simplex(p[rows], q[columns], np.where(allowed, costs, price) + shift, at, to)
        g[rows] += u
        h[columns] -= v
        short = cost.row_min(h)[rows] - g[rows]
        over = cost.col_max(g)[columns] - h[columns]
        raw_g, raw_h = g, h
        # c-transforms make the potentials feasible and remove the price of artificial and forbidden arcs
        g = g - np.median(g[rows])
        L = cost.col_max(g)
        h = np.where(q > 0, L, np.inf)
        best_U = cost.row_min(h)
        g = np.where(p > 0, best_U, -np.inf)
        least = np.abs(costs[allowed & (costs != 0)]).min(initial=np.inf)
        size = max(float(np.ptp(best_U[rows]) + np.ptp(L[columns])), least if least < np.inf else 1.0)
        used = mass > 0
        impossible = bool((used & ~allowed).any())
        value = np.inf if impossible else float((mass[used] * costs[used]).sum())
        gap = value - float((p[rows] * best_U[rows]).sum() - (q[columns] * L[columns]).sum())
        if not solved or (not impossible and abs(gap) <= _GAP[0] * abs(value) + _GAP[1] * size):
            status = "optimal" if solved else "simplex failed"
            break
        near = _sorted(
            near,
            _near_arcs(
                cost, raw_g, raw_h, rows[short < -tolerance * size], columns[over > tolerance * size], neighbours
            ),
        )
        wider = _sorted(near, arcs[used])
        if len(np.setdiff1d(wider, arcs, assume_unique=True)) == 0:
            if impossible:
                raise ValueError(
                    "cost: infinite costs forbid every plan between these measures; expected a feasible problem"
                )
            if tolerance < np.finfo(np.float64).eps:
                status = "gap open"
                break
            tolerance /= 100
            # without expensive arcs, which no plan near this one uses, the simplex is more precise
            near = wider = arcs[used | (costs - g[i] + h[j] <= size)]
        status = "rounds ran out"
        arcs = wider
    plan = sparse.csr_array(sparse.coo_array((mass[used], (i[used], j[used])), shape=cost.shape))
    return Crossover(value, best_U, L, plan, status, rounds)


def cross(
    problem: Problem, U: NDArray[np.floating], max_rounds: int = 30, n_jobs: int | None = None
) -> list[Crossover]:
    """Solve each problem of a batch exactly from its row of U, in threads.

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1)
        Potentials.
    max_rounds : int
        As for `crossover`.
    n_jobs : int, optional
        Threads over the problems.

    Returns
    -------
    list of Crossover
    """
    cost = problem.cost.astype(np.float64)  # one copy for all problems

    def work(b: int) -> Crossover:
        p, q = problem.p[b], problem.q[b]
        try:
            return crossover(p / p.sum(), q / q.sum(), cost, U[b], max_rounds=max_rounds)
        except ValueError as error:
            raise ValueError(f"{error} (problem {b})") from None

    with warnings.catch_warnings(), ThreadPoolExecutor(native.threads(n_jobs)) as pool:
        warnings.simplefilter("ignore")  # POT's warnings are reported by the status
        try:
            return list(pool.map(work, range(len(problem))))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _near_arcs(
    cost: Cost,
    g: NDArray[np.float64],
    h: NDArray[np.float64],
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    neighbours: int,
) -> NDArray[np.int64]:
    """Return the arcs of least reduced cost ``M_ij - g_i + h_j`` of some rows and columns, as ``i m2 + j``."""
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
    """Return the union of arcs, sorted."""
    every = np.sort(np.concatenate(arcs))
    return every[np.diff(every, prepend=-1) > 0]


def _staircase(p: NDArray[np.float64], q: NDArray[np.float64], m2: int) -> NDArray[np.int64]:
    """Return the arcs of the plan of the north-west corner rule, as ``i m2 + j``.

    Examples
    --------
    >>> import numpy as np
    >>> _staircase(np.array([0.5, 0.5]), np.array([0.25, 0.75]), 2)
    array([0, 1, 3])
    """
    rows, columns = np.flatnonzero(p), np.flatnonzero(q)
    a, b = np.cumsum(p[rows])[:-1], np.cumsum(q[columns])[:-1]
    steps = np.sort(np.concatenate([a, b]))
    i = np.concatenate([[0], np.searchsorted(a, steps, side="right")])
    j = np.concatenate([[0], np.searchsorted(b, steps, side="right")])
    return rows[i] * m2 + columns[j]


def _simplex(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    costs: NDArray[np.floating],
    i: NDArray[np.intp],
    j: NDArray[np.intp],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], bool]:
    """Return the mass of each arc, the two potentials, and whether POT's network simplex finished.

    The arcs are sorted by ``i m2 + j``.
    """
    import ot

    unit = np.abs(costs).max() or 1.0  # POT's artificial arcs cost more than one in any unit
    M = sparse.coo_array((costs / unit, (i, j)), shape=(len(a), len(b)))
    plan, log = ot.emd(a, b, M, numItermax=_PIVOTS, log=True, center_dual=False)
    plan = sparse.coo_array(plan)
    position = np.searchsorted(i * len(b) + j, plan.row * len(b) + plan.col)
    mass = np.zeros(len(costs))
    mass[position] = plan.data
    return mass, unit * np.asarray(log["u"]), unit * np.asarray(log["v"]), log["warning"] is None
