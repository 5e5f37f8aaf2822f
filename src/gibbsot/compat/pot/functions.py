"""POT's exact solvers on the exact engine, to import instead of from ``ot``.

These are `emd`, `emd2`, `solve`, `solve_sample`, and of ``ot.unbalanced`` `mm_unbalanced` and `lbfgsb_unbalanced`.

Arguments, results, warnings and errors are those of POT. Three things differ: problems with infinite costs, which POT
reports as infeasible, are solved exactly; no limit on iterations stops before the optimum; and what POT would hand to
its compiled code without a check (no mass, weights that are not finite, costs that are NaN, no costs, potentials of
other lengths) is a ValueError. POT itself, which must
be installed for these calls alone (``pip install 'gibbsot[pot]'``), solves

- problems with arrays that are not NumPy's, or weights that are not floating-point numbers;
- calls with ``numItermax`` below POT's default, or with the deprecated ``numThreads`` and ``processes``;
- invalid input that it refuses itself, costs that forbid every plan, and problems that are not solved to optimality;
- without compiled kernels: problems with fewer than 90,000 pairs of points with weight and finite costs, where it is
  faster;
- in `solve` and `solve_sample`: regularised problems, and unbalanced ones of other types than "KL", "TV" and "partial";
- in `mm_unbalanced` and `lbfgsb_unbalanced`: regularised problems, and other divergences than "kl".
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ...core.backend import backend
from ...costs import Cost, DenseCost, PointCost, SparseCost
from ...costs.problems import Problem
from ...exact.certificate import PROVED
from ...exact.methods import optima
from ...exact.solution import Solution
from ...solvers.masses import in_weights
from ...solvers.solve import solve as exact_solve

_MIN_PAIRS = 90_000
ITERATIONS = 100_000  # POT's default
_KL_GAP = 1e-9  # of unbalanced problems: what POT's own iterations hardly reach

Array = NDArray[np.float64]


def emd(
    a: Any,
    b: Any,
    M: Any,
    numItermax: int = ITERATIONS,
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
        As for :func:`ot.emd`. Of a sparse matrix M only the stored pairs are allowed, as of `SparseCost`.
    potentials_init : pair of arrays, optional
        As for :func:`ot.emd`: potentials of a similar problem. They save time where the matrix is too large for the
        network simplex on all arcs; the plan is optimal in any case.

    Returns
    -------
    plan : array of shape (m1, m2)
        An optimal plan, sparse if M is.
    log : dict
        Only with ``log=True``: cost, potentials ``u`` and ``v``, warning and result code.

    Examples
    --------
    >>> from gibbsot.compat import emd
    >>> from gibbsot import coulomb
    >>> emd([], [], coulomb([0.0, 0.5, 1.0, 1.5]).matrix())
    array([[0.  , 0.  , 0.25, 0.  ],
           [0.  , 0.  , 0.  , 0.25],
           [0.25, 0.  , 0.  , 0.  ],
           [0.  , 0.25, 0.  , 0.  ]])
    """
    solved = _solved(a, b, M, numItermax, center_dual, numThreads, check_marginals, potentials_init)
    if solved is None:
        _check(a, b, M, check_marginals, potentials_init)
        return pot_emd(a, b, M, numItermax, log, center_dual, numThreads, check_marginals, potentials_init)
    G = solved.pop("G")
    return (G, solved) if log else G


def emd2(
    a: Any,
    b: Any,
    M: Any,
    processes: int = 1,
    numItermax: int = ITERATIONS,
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
    >>> from gibbsot.compat import emd2
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
        _check(a, b, M, check_marginals, potentials_init)
        return pot_emd2(a, b, M, processes, numItermax, *options)
    if not return_matrix:
        del solved["G"]
    return [solved["cost"], solved] if log or return_matrix else solved["cost"]


def _substitute() -> type:
    """Return a class with the public attributes of POT's ``OTResult``, for results without POT."""

    def keep(self: Any, **options: Any) -> None:
        for name in kept:
            setattr(self, f"_{name}", options.get(name))

    def refuse(_: Any) -> None:
        raise NotImplementedError

    def attribute(name: str) -> property:
        return property(lambda self: getattr(self, f"_{name}"))

    def potential(side: int) -> property:
        return property(lambda self: self._potentials[side])

    kept = ("potentials", "value", "value_linear", "value_quad", "sparse_plan", "lazy_plan", "log", "status")
    known: dict[str, Any] = {name: attribute(name) for name in kept} | {"__init__": keep}
    known |= {"potential_a": potential(0), "potential_b": potential(1)}
    known |= dict.fromkeys(("a_to_b", "b_to_a"), property(refuse))
    known["citation"] = "POT: Python Optimal Transport, Journal of Machine Learning Research, 22(78):1-8, 2021"
    return type("OTResult", (), known)


try:
    import ot as _ot
    from ot.utils import OTResult as _Base
except ImportError:
    _Base, ORIGINALS = _substitute(), {}
else:
    # POT's own, as they are when this module is imported: who puts ours in their place makes no loop
    _names = (
        _ot.emd,
        _ot.emd2,
        _ot.solve,
        _ot.solve_sample,
        _ot.unbalanced.mm_unbalanced,
        _ot.unbalanced.lbfgsb_unbalanced,
    )
    ORIGINALS = {function.__name__: function for function in _names}


class Result(_Base):  # type: ignore[misc]
    """The result of `solve` and `solve_sample`: an ``OTResult`` of POT, where POT is installed.

    Parameters
    ----------
    value : float
        The optimal value, penalties included.
    value_linear : float
        The cost of the plan.
    sparse_plan : scipy.sparse.csr_array of shape (m1, m2)
        The plan.
    potentials : pair of arrays
        Optimal potentials; for unbalanced problems ``<a, f> + <b, g>`` is the value where ``unbalanced_type="TV"``.
    status : str
        "Converged" for a certified optimum; otherwise the status of `solve`, which has warned.
    log : dict
        What the solver says, as POT's.

    Attributes
    ----------
    value, value_linear, sparse_plan, potentials, status, log
        The parameters.
    value_quad, lazy_plan : None
        Of other problems than these.
    plan : array of shape (m1, m2)
        The plan as a dense array.
    potential_a, potential_b : arrays
        The potentials of either side.
    marginals, marginal_a, marginal_b : arrays
        The marginals of the plan.
    """

    def __init__(
        self,
        value: Any,
        value_linear: Any,
        sparse_plan: Any,
        potentials: tuple[NDArray[Any], NDArray[Any]],
        status: str = "Converged",
        log: dict[str, Any] | None = None,
    ) -> None:
        options = {"potentials": potentials, "value": value, "value_linear": value_linear, "status": status, "log": log}
        super().__init__(sparse_plan=sparse_plan, **options)

    def __repr__(self) -> str:
        return f"Result(value={self.value!r}, value_linear={self.value_linear!r}, status={self.status!r})"

    @property
    def plan(self) -> NDArray[Any]:
        """The plan as a dense array."""
        return self.sparse_plan.toarray()

    @property
    def marginals(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The marginals of the plan."""
        return self.marginal_a, self.marginal_b

    @property
    def marginal_a(self) -> NDArray[Any]:
        """The first marginal of the plan."""
        return self.sparse_plan.sum(axis=1)

    @property
    def marginal_b(self) -> NDArray[Any]:
        """The second marginal of the plan."""
        return self.sparse_plan.sum(axis=0)


def solve(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: Any = None,
    c: Any = None,
    reg_type: Any = "KL",
    unbalanced: Any = None,
    unbalanced_type: str = "KL",
    method: str | None = None,
    n_threads: int = 1,
    max_iter: int | None = None,
    plan_init: Any = None,
    potentials_init: Any = None,
    tol: float | None = None,
    verbose: bool = False,
    grad: str = "autodiff",
) -> Any:
    """Solve a transport problem, as :func:`ot.solve` does.

    Parameters
    ----------
    M, a, b, reg, c, reg_type, method, n_threads, max_iter, plan_init, potentials_init, tol, verbose, grad
        As for :func:`ot.solve`.
    unbalanced : float or pair of floats, optional
        As for :func:`ot.solve`: with the type "TV" the cost of a unit of mass that is left over, on either side.
        With the type "KL" the weights of the divergences. With the type "partial" the mass that is transported, as for
        :func:`ot.solve_gromov`.
    unbalanced_type : str
        "TV" and "partial" are solved exactly, "KL" to a certified gap of 1e-9, others by POT. "TV" goes to POT too
        where costs are negative, or where its two penalties differ by more than the least cost.

    Returns
    -------
    Result, or what POT returns

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.compat import solve
    >>> M = np.array([[0.0, 5.0], [5.0, 0.0]])
    >>> solve(M, np.array([0.5, 0.5]), np.array([0.25, 0.75])).value
    1.25
    >>> solve(M, np.array([3.0, 1.0]), np.array([0.0, 2.0]), unbalanced=1.0, unbalanced_type="TV").value
    4.0
    >>> solve(M, np.array([3.0, 1.0]), np.array([0.0, 2.0]), unbalanced=1.5, unbalanced_type="partial").value
    2.5
    """
    plain = method is None and not reg and plan_init is None and _numbers(M, 2)
    weights = _weights(a, b, M.shape, M.dtype) if plain else None
    if weights is not None and unbalanced is None:
        return _balanced(M, *weights, max_iter, n_threads, potentials_init)
    found = None if weights is None else _unbalanced(DenseCost, (M,), weights, unbalanced, unbalanced_type, M.dtype)
    if found is not None:
        return found
    if not reg and unbalanced is None:
        _check(a, b, M, True, potentials_init)
    options = method, n_threads, max_iter, plan_init, potentials_init, tol, verbose, grad
    return _original("solve")(M, a, b, reg, c, reg_type, unbalanced, unbalanced_type, *options)


def solve_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    metric: Any = "sqeuclidean",
    reg: Any = None,
    c: Any = None,
    reg_type: Any = "KL",
    unbalanced: Any = None,
    unbalanced_type: str = "KL",
    lazy: bool = False,
    batch_size: int | None = None,
    method: str | None = None,
    n_threads: int = 1,
    max_iter: int | None = None,
    plan_init: Any = None,
    rank: int = 100,
    scaling: float = 0.95,
    potentials_init: Any = None,
    X_init: Any = None,
    tol: float | None = None,
    verbose: bool = False,
    grad: str = "autodiff",
    random_state: Any = None,
    debias: Any = False,
    n_projections: int = 50,
    projections: Any = None,
    scaler: Any = None,
) -> Any:
    """Solve a transport problem between two point clouds, as :func:`ot.solve_sample` does.

    Balanced problems with (squared) Euclidean distances in one to four dimensions need no matrix of costs, for
    ``lazy=False`` too.

    Parameters
    ----------
    X_a, X_b, a, b, metric, reg, c, reg_type, lazy, batch_size, method, n_threads, max_iter, plan_init, rank, scaling
        As for :func:`ot.solve_sample`.
    unbalanced, unbalanced_type
        As for `solve`.
    potentials_init, X_init, tol, verbose, grad, random_state, debias, n_projections, projections, scaler
        As for :func:`ot.solve_sample`.

    Returns
    -------
    Result, or what POT returns

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.compat import solve_sample
    >>> solve_sample(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 1.0]])).value
    1.0
    """
    plain = not reg and plan_init is None and potentials_init is None and isinstance(metric, str)
    default = method is None and max_iter is None and n_threads == 1 and not debias and scaler is None
    default = default and not (lazy and unbalanced is not None)  # which POT refuses
    found = None
    if plain and default and _numbers(X_a, 2) and _numbers(X_b, 2):
        weights = _weights(a, b, (len(X_a), len(X_b)), X_a.dtype)
        if weights is not None:
            arguments = X_a, X_b, metric, np.float64
            found = _unbalanced(PointCost, arguments, weights, unbalanced, unbalanced_type, X_a.dtype)
    if found is not None:
        return found
    if unbalanced is None:
        _check(a, b, (X_a, X_b), True, potentials_init)
    options = {"method": method, "n_threads": n_threads, "max_iter": max_iter, "plan_init": plan_init, "rank": rank}
    options |= {"scaling": scaling, "potentials_init": potentials_init, "X_init": X_init, "tol": tol}
    options |= {"verbose": verbose, "grad": grad, "random_state": random_state, "debias": debias, "scaler": scaler}
    options |= {"n_projections": n_projections, "projections": projections, "lazy": lazy, "batch_size": batch_size}
    original = _original("solve_sample")
    return original(X_a, X_b, a, b, metric, reg, c, reg_type, unbalanced, unbalanced_type, **options)


def _numbers(x: Any, axes: int) -> bool:
    """Return whether this is an array of NumPy with floating-point numbers."""
    return isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.ndim == axes and x.size > 0


def _weights(a: Any, b: Any, shape: tuple[int, ...], dtype: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return weights, uniform ones for None, or None if POT is to see them."""
    found = [np.ones(m, dtype) / m if x is None else x for x, m in zip((a, b), shape, strict=True)]
    valid = all(_numbers(x, 1) and len(x) == m for x, m in zip(found, shape, strict=True))
    return (found[0], found[1]) if valid else None


def _balanced(M: Any, a: Any, b: Any, max_iter: int | None, threads: int, start: Any) -> Result:
    """Solve a balanced problem as :func:`ot.solve` does, by `emd2`."""
    limit = 1_000_000 if max_iter is None else max_iter
    options = {"numItermax": limit, "numThreads": threads, "potentials_init": start}
    value, log = emd2(a, b, M, log=True, return_matrix=True, **options)
    plan, potentials = sparse.csr_array(log.pop("G")), (log["u"], log["v"])
    return Result(value, value, plan, potentials, log["warning"] or "Converged", log)


def _unbalanced(
    kind: Callable[..., Cost], arguments: Any, weights: Any, unbalanced: Any, unbalanced_type: str, dtype: Any
) -> Result | None:
    """Solve a problem exactly, or return None if POT is to solve it: other types, invalid input, no optimum."""
    a, b = (x.astype(np.float64) for x in weights)
    options: dict[str, Any] = {}
    try:
        cost = kind(*arguments)
        if unbalanced is None:
            if abs(a.sum() - b.sum()) > 1e-6:
                return None
        elif unbalanced_type.lower() == "partial":
            options["mass"] = float(unbalanced)
        elif unbalanced_type.lower() == "kl":
            options |= {"kl": _pair(unbalanced), "gap": _KL_GAP}
        elif unbalanced_type.lower() == "tv":
            first, second = _pair(unbalanced)
            # otherwise it may pay to make mass on the cheaper side, which is not partial transport
            if not 0 <= abs(first - second) <= cost.least() or not 0 <= first + second < np.inf:
                return None
            options["penalty"] = first, second
        else:
            return None
        found = exact_solve(a, b, cost, **options)
    except (TypeError, ValueError):
        if "mass" in options:  # which POT does not solve
            raise
        return None
    if not np.isfinite(found.upper_bound):
        return None
    plan, (f, g) = sparse.csr_array(found.plan), found.potentials
    i, j = plan.tocoo().coords
    linear = float(plan.tocoo().data @ cost.at(i, j)) if unbalanced is not None else found.value
    value, potentials = float(found.value), (f.astype(dtype), g.astype(dtype))
    # POT's word for an optimum; `exact_solve` has warned of an open gap
    state = "Converged" if found.status in PROVED else found.status
    log = {"cost": value, "u": potentials[0], "v": potentials[1], "warning": None, "result_code": 1}
    return Result(value, linear, plan.astype(dtype), potentials, status=state, log=log)


def _pair(x: Any) -> tuple[float, float]:
    """Return what is given for both sides, as POT takes it: a number, or one for each."""
    first, second = (float(y) for y in np.broadcast_to(np.ravel(x), (2,)))
    return first, second


def mm_unbalanced(
    a: Any,
    b: Any,
    M: Any,
    reg_m: Any,
    c: Any = None,
    reg: float = 0,
    div: str = "kl",
    G0: Any = None,
    numItermax: int = 1000,
    stopThr: float = 1e-15,
    verbose: bool = False,
    log: bool = False,
) -> Any:
    """Return the plan of unbalanced transport, as ``ot.unbalanced.mm_unbalanced``, to a certified gap of 1e-9.

    Parameters
    ----------
    a, b, M, reg_m, c, reg, div, G0, numItermax, stopThr, verbose, log
        As for ``ot.unbalanced.mm_unbalanced``. The number of iterations and the tolerance have no effect where the
        problem is solved here: without ``reg``, with ``div="kl"`` and arrays of NumPy.

    Returns
    -------
    array, or pair of array and dict

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.compat import mm_unbalanced
    >>> one = np.ones(1)
    >>> mm_unbalanced(one, one, np.ones((1, 1)), 1.0).round(6)
    array([[0.606531]])
    """
    found = None if reg or div.lower() != "kl" else _unbalanced_plan(a, b, M, reg_m, log)
    if found is None:
        original = _original("mm_unbalanced")
        return original(a, b, M, reg_m, c, reg, div, G0, numItermax, stopThr, verbose, log)
    return found


def lbfgsb_unbalanced(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    reg_m: Any,
    c: Any = None,
    reg_div: Any = "kl",
    regm_div: str = "kl",
    G0: Any = None,
    numItermax: int = 1000,
    stopThr: float = 1e-15,
    method: str = "L-BFGS-B",
    verbose: bool = False,
    log: bool = False,
) -> Any:
    """Return the plan of unbalanced transport, as ``ot.unbalanced.lbfgsb_unbalanced``, to a certified gap of 1e-9.

    Parameters
    ----------
    a, b, M, reg, reg_m, c, reg_div, regm_div, G0, numItermax, stopThr, method, verbose, log
        As for ``ot.unbalanced.lbfgsb_unbalanced``, which solves regularised problems, other divergences than "kl",
        and those of arrays that are not NumPy's.

    Returns
    -------
    array, or pair of array and dict

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.compat import lbfgsb_unbalanced
    >>> one = np.ones(1)
    >>> lbfgsb_unbalanced(one, one, np.ones((1, 1)), 0, 1.0).round(6)
    array([[0.606531]])
    """
    found = None if reg or regm_div.lower() != "kl" else _unbalanced_plan(a, b, M, reg_m, log)
    if found is None:
        options = c, reg_div, regm_div, G0, numItermax, stopThr, method, verbose, log
        return _original("lbfgsb_unbalanced")(a, b, M, reg, reg_m, *options)
    return found


def _unbalanced_plan(a: Any, b: Any, M: Any, reg_m: Any, log: bool) -> Any:
    """Return the plan, or plan and log, of unbalanced transport; None if POT is to solve it."""
    a, b, M = _arrays(a, b, M)
    weights = None
    if _numbers(M, 2) and all(isinstance(x, np.ndarray) for x in (a, b)):
        weights = _weights(a if len(a) else None, b if len(b) else None, M.shape, M.dtype)
    found = None if weights is None else _unbalanced(DenseCost, (M,), weights, reg_m, "KL", M.dtype)
    if found is None:
        return None
    own = {"cost": found.value_linear, "total_cost": found.value, "err": [], "G": []}
    return (found.plan, own) if log else found.plan


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
    return _original("emd")(*args)


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
    return _original("emd2")(*args)


def _check(a: Any, b: Any, M: Any, check_marginals: bool, start: Any) -> None:
    """Raise ValueError for what POT hands to its compiled code without a check of its own, which may crash.

    Parameters
    ----------
    a, b : arrays of any backend of POT, lists or None
        The weights; b may have several columns.
    M : array, sparse matrix, or pair of arrays
        The costs, or the points of either side.
    check_marginals : bool
        Whether POT compares the masses itself.
    start : pair of arrays, or None
        Potentials to start from.
    """
    ot = pot()
    points = isinstance(M, tuple)
    try:
        arrays = [x for x in (a, b, *(M if points else (M,))) if x is not None and np.ndim(x) > 0]
        arrays = ot.utils.list_to_array(*arrays) if len(arrays) > 1 else arrays
        backend = ot.backend.get_backend(*arrays)
        # lists become arrays of the type of the first array, as in POT: those of fractions may become integers
        given = [[] if x is None else x for x in (a, b, *(() if points else (M,)))]
        given = ot.utils.list_to_array(*given)
        costs = None
        if not points and not backend.issparse(M):
            costs = _real(backend.to_numpy(given[2]))
        elif not points:
            rows, columns, values, shape = backend.sparse_coo_data(M)
        weights = [None if len(x) == 0 else _real(backend.to_numpy(x)) for x in given[:2]]
        sides = tuple(map(len, M)) if points else tuple(shape) if costs is None else costs.shape
    except Exception:  # POT converts its arguments in the same way, and raises the same
        return
    if len(sides) != 2 or any(x is not None and len(x) != m for x, m in zip(weights, sides, strict=True)):
        return  # POT says so
    if 0 in sides:
        raise ValueError(f"M: expected at least one row and one column, got shape {sides}")
    with np.errstate(over="ignore"):
        masses = [np.ones(1) if x is None else np.atleast_1d(x.sum(axis=0)) for x in weights]
    if check_marginals and not (np.abs(masses[0] - masses[1]) < 1.5e-6).all():
        return  # POT says so
    for name, x, mass in zip("ab", weights, masses, strict=True):
        if x is not None and not (np.isfinite(mass).all() and (mass > 0).all()):
            raise ValueError(f"{name}: expected finite weights with a positive sum, got a sum of {mass.ravel()[0]:g}")
    with np.errstate(all="ignore"):  # POT scales b to the mass of a, in this order
        scaled = (np.ones(1) if weights[1] is None else weights[1]) * masses[0] / masses[1]
    if not (np.isfinite(scaled).all() and (scaled.sum(axis=0) > 0).all()):
        raise ValueError("a, b: the masses are too small or too large to be compared; expected weights nearer to one")
    if costs is not None and np.isnan(costs).any():
        raise ValueError("M: expected costs without NaN")
    if costs is None and not points:
        inside = len(rows) and min(rows.min(), columns.min()) >= 0 and rows.max() < sides[0]
        if not (inside and columns.max() < sides[1] and not np.isnan(values).any()):
            raise ValueError(f"M: expected a sparse matrix with entries, none of them NaN or outside its shape {sides}")
    if start is not None and not points:
        shapes = tuple(np.shape(x) for x in start)
        if len(shapes) == 2 and all(len(x) == 1 for x in shapes) and shapes != ((sides[0],), (sides[1],)):
            raise ValueError(f"potentials_init: expected lengths {sides}, got {tuple(x[0] for x in shapes)}")


def _real(x: Any) -> Array:
    """Return numbers as POT's compiled code gets them: of complex ones the real part."""
    return np.asarray(x.real if np.iscomplexobj(x) else x, np.float64)


def _original(name: str) -> Callable[..., Any]:
    """Return POT's own function."""
    pot()
    return ORIGINALS[name]


def pot() -> Any:
    """Return POT, which some calls are handed to.

    Returns
    -------
    module
    """
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
    if sparse.issparse(M):
        _check(a, b, M, check_marginals, start)
        return _on_pairs(a, b, M, center_dual, check_marginals)
    a, b, M = _arrays(a, b, M)
    if limit < ITERATIONS or threads != 1 or not all(isinstance(x, np.ndarray) for x in (a, b, M)):
        return None
    dtype = (b if len(a) == 0 < len(b) else a).dtype
    if dtype.kind != "f" or (a.ndim, b.ndim, M.ndim) != (1, 1, 2):
        return None
    m1, m2 = M.shape
    a = np.asarray(a if len(a) else np.ones(m1, dtype) / m1, np.float64)
    b = np.asarray(b if len(b) else np.ones(m2, dtype) / m2, np.float64)
    M = np.asarray(M, np.float64)
    with np.errstate(over="ignore"):
        mass, received = a.sum(), b.sum()
    agree = abs(mass - received) <= 1e-6 or not check_marginals
    if (len(a), len(b)) != (m1, m2) or not (agree and 0 < min(mass, received) <= max(mass, received) < np.inf):
        return None
    rows, columns = np.flatnonzero(a), np.flatnonzero(b)
    U = None
    if start is not None:
        U, V = (np.asarray(x, np.float64) for x in start)
        if U.shape + V.shape != (m1, m2):
            return None
        U = U[rows] if np.isfinite(U).all() else None  # it would only save time
    p, q = a[rows] / mass, b[columns] / received
    everywhere = (len(p), len(q)) == (m1, m2)
    crossing = _crossing(p, q, M if everywhere else M[np.ix_(rows, columns)], U)
    if crossing is None:
        return None
    G, u, v = np.zeros((m1, m2), dtype), np.zeros(m1), np.zeros(m2)
    plan = crossing.plan.tocoo()
    i, j = rows[plan.row], columns[plan.col]
    G[i, j] = in_weights(mass * plan.data, b[j], a[i])
    shift = (p @ crossing.f - q @ crossing.g) / 2 if center_dual or not everywhere else 0.0
    u[rows], v[columns] = crossing.f - shift, crossing.g + shift
    if not everywhere:  # POT's rule for points without weight: 0, or less where that would be infeasible
        excess = u[:, None] + v - M
        u = np.where(a == 0, u - excess.max(axis=1).clip(min=0), u)
        v = np.where(b == 0, v - excess.max(axis=0).clip(min=0), v)
    value = float(mass * crossing.value)
    return {"cost": value, "u": u.astype(dtype), "v": v.astype(dtype), "warning": None, "result_code": 1, "G": G}


def _on_pairs(a: Any, b: Any, M: Any, center_dual: bool, check_marginals: bool) -> dict[str, Any]:
    """Return POT's log with a sparse plan as G, where only the stored pairs are allowed."""
    a, b = (None if len(x) == 0 else np.asarray(x, np.float64) for x in (a, b))
    found = exact_solve(a, b, SparseCost(M, np.float64), normalize=not check_marginals)
    (u, v), (p, q) = found.potentials, (found.problem.p[0], found.problem.q[0])
    mass = 1.0 if a is None else float(a.sum())
    shift = (p @ u - q @ v) / 2 if center_dual else 0.0
    plan, value = (found.plan, found.value) if check_marginals else (found.plan * mass, found.value * mass)
    log = {"cost": value, "u": u - shift, "v": v + shift, "warning": None, "result_code": 1}
    return log | {"G": plan}


def _crossing(p: Array, q: Array, M: Array, U: Array | None) -> Solution | None:
    """Return the optimum, from the potentials U if they are given, or None if POT is to solve the problem."""
    if not backend().has_simplex and M.size < _MIN_PAIRS and np.isfinite(M).all() and find_spec("ot") is not None:
        return None
    return optimum(p, q, lambda: DenseCost(M), U)


def optimum(a: Array, b: Array, cost: Callable[[], Cost], U: Array | None = None) -> Solution | None:
    """Return the optimum, or None if POT is to solve the problem.

    Parameters
    ----------
    a, b : arrays of shape (m1,) and (m2,)
        Weights, which are divided by their sums.
    cost : callable
        Makes the cost; it may raise ValueError.
    U : array of shape (m1,), optional
        Potentials to start from.

    Returns
    -------
    Solution or None
    """
    try:
        found = optima(Problem(a, b, cost(), normalize=True), None if U is None else U[None])[0]
    except ValueError:
        return None
    return found if found.optimal else None
