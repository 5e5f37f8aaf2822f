"""POT's exact solvers on the exact engine: import `emd` and `emd2` from here instead of from ``ot``.

Arguments, results, warnings and errors are those of POT. Two things differ: problems with infinite costs, which POT
reports as infeasible, are solved exactly, and no limit on iterations stops before the optimum. POT itself, which must
be installed for these calls alone (``pip install 'gibbsot[pot]'``), solves

- problems with arrays that are not NumPy's, sparse costs, or weights that are not floating-point numbers;
- calls with ``numItermax`` below POT's default, or with the deprecated ``numThreads`` and ``processes``;
- invalid input, costs that forbid every plan, and problems that are not solved to optimality;
- without compiled kernels: problems with fewer than 90,000 pairs of points with weight and finite costs, where it is
  faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .core import native
from .core.costs import DenseCost
from .core.problems import problem
from .solvers.exact import cross
from .solvers.solution import Solution

_MIN_PAIRS = 90_000
_ITERATIONS = 100_000  # POT's default

Array = NDArray[np.float64]


def emd(
    a: Any,
    b: Any,
    M: Any,
    numItermax: int = _ITERATIONS,
    log: bool = False,
    center_dual: bool = True,
    numThreads: int | str = 1,
    check_marginals: bool = True,
    potentials_init: Any = None,
) -> Any:
    """Return an optimal plan, as :func:`ot.emd` does.

    Parameters
    ----------
    a, b, M, numItermax, log, center_dual, numThreads, check_marginals
        As for :func:`ot.emd`.
    potentials_init : pair of arrays, optional
        As for :func:`ot.emd`: potentials of a similar problem, from which the crossover starts without annealing.

    Returns
    -------
    plan : array of shape (m1, m2)
        An optimal plan.
    log : dict
        Only with ``log=True``: cost, potentials ``u`` and ``v``, warning and result code.

    Examples
    --------
    >>> from gibbsot import coulomb
    >>> emd([], [], coulomb([0.0, 0.5, 1.0, 1.5]).matrix())
    array([[0.  , 0.  , 0.25, 0.  ],
           [0.  , 0.  , 0.  , 0.25],
           [0.25, 0.  , 0.  , 0.  ],
           [0.  , 0.25, 0.  , 0.  ]])
    """
    solved = _solved(a, b, M, numItermax, center_dual, numThreads, check_marginals, potentials_init)
    if solved is None:
        return pot_emd(a, b, M, numItermax, log, center_dual, numThreads, check_marginals, potentials_init)
    G = solved.pop("G")
    return (G, solved) if log else G


def emd2(
    a: Any,
    b: Any,
    M: Any,
    processes: int = 1,
    numItermax: int = _ITERATIONS,
    log: bool = False,
    return_matrix: bool = False,
    center_dual: bool = True,
    numThreads: int | str = 1,
    check_marginals: bool = True,
    potentials_init: Any = None,
) -> Any:
    """Return the optimal cost, as :func:`ot.emd2` does.

    Parameters
    ----------
    a, b, M, processes, numItermax, log, return_matrix, center_dual, numThreads, check_marginals
        As for :func:`ot.emd2`; b may have several measures as columns.
    potentials_init : pair of arrays, optional
        As for `emd`.

    Returns
    -------
    float, or list
        The cost; with ``log`` or ``return_matrix`` a list of the cost and a dictionary; for several columns of b a list
        of these.

    Examples
    --------
    >>> from gibbsot import coulomb
    >>> emd2([], [], coulomb([0.0, 0.5, 1.0, 1.5]).matrix())
    1.0
    """
    options = log, return_matrix, center_dual, numThreads, check_marginals, potentials_init
    measures = _arrays(a, b, M)[1]
    if isinstance(measures, np.ndarray) and measures.ndim == 2 and measures.size and processes == 1:
        return [emd2(a, column, M, processes, numItermax, *options) for column in measures.T]
    solved = _solved(a, b, M, numItermax, center_dual, numThreads, check_marginals, potentials_init)
    if solved is None:
        return pot_emd2(a, b, M, processes, numItermax, *options)
    if not return_matrix:
        del solved["G"]
    return [solved["cost"], solved] if log or return_matrix else solved["cost"]


def pot_emd(*args: Any) -> Any:
    """Call :func:`ot.emd`.

    Parameters
    ----------
    *args
        Its arguments.

    Returns
    -------
    array, or pair of array and dict
    """
    return _pot().emd(*args)


def pot_emd2(*args: Any) -> Any:
    """Call :func:`ot.emd2`.

    Parameters
    ----------
    *args
        Its arguments.

    Returns
    -------
    float or list
    """
    return _pot().emd2(*args)


def _pot() -> Any:
    """Return POT, which some calls are handed to."""
    try:
        import ot
    except ImportError:
        raise ImportError(
            "this call of gibbsot.compat is handed to POT, which is not installed: pip install 'gibbsot[pot]'"
        ) from None
    return ot


def _arrays(*values: Any) -> list[Any]:
    """Return lists as arrays, of the type of the first argument that is an array with entries, as POT does."""
    dtype = next((x.dtype for x in values if isinstance(x, np.ndarray) and x.size), None)
    return [np.array(x).astype(dtype or np.float64) if isinstance(x, list) else x for x in values]


def _solved(
    a: Any, b: Any, M: Any, limit: int, center_dual: bool, threads: int | str, check_marginals: bool, start: Any
) -> dict[str, Any] | None:
    """Return POT's log with the plan as G, or None if POT is to solve the problem."""
    a, b, M = _arrays(a, b, M)
    if limit < _ITERATIONS or threads != 1 or not all(isinstance(x, np.ndarray) for x in (a, b, M)):
        return None
    dtype = (b if len(a) == 0 < len(b) else a).dtype
    if dtype.kind != "f" or (a.ndim, b.ndim, M.ndim) != (1, 1, 2):
        return None
    m1, m2 = M.shape
    a = np.asarray(a if len(a) else np.ones(m1, dtype) / m1, np.float64)
    b = np.asarray(b if len(b) else np.ones(m2, dtype) / m2, np.float64)
    M = np.asarray(M, np.float64)
    mass = a.sum()
    agree = abs(mass - b.sum()) <= 1e-6 or not check_marginals
    if (len(a), len(b)) != (m1, m2) or not (agree and min(mass, b.sum()) > 0):
        return None
    rows, columns = np.flatnonzero(a), np.flatnonzero(b)
    U = None
    if start is not None:
        U, V = (np.asarray(x, np.float64) for x in start)
        if U.shape + V.shape != (m1, m2) or not np.isfinite(U).all():
            return None
        U = U[rows]
    p, q = a[rows] / mass, b[columns] / b.sum()
    everywhere = (len(p), len(q)) == (m1, m2)
    crossing = _crossing(p, q, M if everywhere else M[np.ix_(rows, columns)], U)
    if crossing is None:
        return None
    G, u, v = np.zeros((m1, m2), dtype), np.zeros(m1), np.zeros(m2)
    plan = crossing.plan.tocoo()
    G[rows[plan.row], columns[plan.col]] = mass * plan.data
    shift = (p @ crossing.f - q @ crossing.g) / 2 if center_dual or not everywhere else 0.0
    u[rows], v[columns] = crossing.f - shift, crossing.g + shift
    if not everywhere:  # POT's rule for points without weight: 0, or less where that would be infeasible
        excess = u[:, None] + v - M
        u = np.where(a == 0, u - excess.max(axis=1).clip(min=0), u)
        v = np.where(b == 0, v - excess.max(axis=0).clip(min=0), v)
    value = float(mass * crossing.value)
    return {"cost": value, "u": u.astype(dtype), "v": v.astype(dtype), "warning": None, "result_code": 1, "G": G}


def _crossing(p: Array, q: Array, M: Array, U: Array | None) -> Solution | None:
    """Return the optimum, from the potentials U if they are given, or None if POT is to solve the problem."""
    if native.kernels() is None and M.size < _MIN_PAIRS and np.isfinite(M).all():
        return None
    try:
        cost = DenseCost(M)
        found = cross(problem(p, q, cost), None if U is None else U[None])[0]
    except ValueError:
        return None
    return found if found.optimal else None
