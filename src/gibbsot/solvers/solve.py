"""The public functions: ``solve(p, q, cost)``, and `solve_batch` for many problems at once."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, cast, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from ..core import validation
from ..core.warn import warn
from ..costs import Cost
from ..costs.problems import Problem
from ..exact.certificate import OPTIMAL_GAP, warn_of_gaps
from ..sampling.schedules import Schedule
from .options import Options
from .relaxed import Penalty
from .result import OTResult, OTResultList


def solve(
    p: Any,
    q: Any,
    cost: Cost | ArrayLike,
    *,
    method: str = "exact",
    gap: float | None = None,
    normalize: bool = False,
    penalty: Penalty | None = None,
    mass: float | None = None,
    max_seconds: float | None = None,
    max_memory: float | None = None,
    warm_start: OTResult | None = None,
    n_sweeps: int | None = None,
    schedule: Schedule | None = None,
    pinned: bool = False,
    diagnostics: bool = False,
    tau: int | None = None,
    seed: int | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> OTResult:
    r"""Solve optimal transport between two measures: the cost W, an optimal plan and potentials, with a certificate.

    .. math:: W(p, q) = \min_{Z \ge 0} \langle Z, M \rangle, \quad Z 1 = p, \; Z^T 1 = q

    Parameters
    ----------
    p, q : arrays, lists or sparse matrices of m1 and m2 weights, or None
        The measures, of equal sums. None for uniform weights, of the mass of the other measure, or of mass one if both
        are None. On a grid they may have the grid's shape. Sums agree to 1e-6, or to ``4 eps m`` for m weights of a
        coarser precision; a difference is spread proportionally.
    cost : Cost or array of shape (m1, m2)
        The cost. Infinite costs forbid pairs.
    method : {"exact", "gibbs"}
        "exact": the optimum. "gibbs": the estimate of the paper's annealed sampler.
    gap : float, optional
        Stop as soon as the certified relative gap is at most this; 0, as None, for the optimum. With
        ``method="exact"``.
    normalize : bool
        Divide both measures by their sums. By default the value is for the masses given.
    penalty : float or pair, optional
        Mass may be left over and costs this much a unit; the sums of p and q may differ. A number for both sides, or a
        pair for p and q, each a number or an array with an entry for every point. The result is a `PartialResult`, and
        so for ``mass``.
    mass : float, optional
        Exactly this much is transported, at least cost.
    max_seconds : float, optional
        The time after which the solve ends with what it has proved: valid bounds, a coupling and the status "budget
        spent". The last bounds take some time of their own.
    max_memory : float, optional
        The bytes that the solve may take beyond its arguments. A problem that is estimated to need more is refused.
    warm_start : OTResult, optional
        The result of measures or costs that were a little different: it saves time, the optimum is the same. With
        ``method="gibbs"`` the chains continue from it, at its temperature unless a schedule is given, and stop as soon
        as they have mixed: a warm start follows, it does not refine.
    n_sweeps : int, optional
        With "gibbs": the largest number of sweeps, 8,000 by default. Fewer are faster and less precise.
    schedule : Adaptive, number, array or function, optional
        With "gibbs": by default the cooling adapts to the problem, `schedules.Adaptive()`. Otherwise the temperature,
        in units of the cost: of all sweeps, of each, or as a function of the sweep's number from 1.
    pinned : bool
        With "gibbs": keep g = 0 at the first point with weight, the paper's Omega_0.
    diagnostics : bool
        With "gibbs": evaluate every half step of the run as the paper's appendix does: `diagnostics` of the result is
        then a `theory.Trace`. Every half step costs O(m1 m2 log(m1 m2)): for small problems.
    tau : int, optional
        With "gibbs": the lag of the mixing test in sweeps, 5 by default.
    seed : int, optional
        With "gibbs": the seed of the noise, 0 by default. A warm start keeps the seed of its result.
    n_jobs : int, optional
        Threads, as in scikit-learn: None for one, -1 for all cores. Results do not depend on it.
    verbose : bool
        Show progress: a bar on terminals and in notebooks, lines on standard error elsewhere. The first Ctrl-C then
        ends the solve like ``max_seconds``, the second one interrupts it.

    Returns
    -------
    OTResult

    Raises
    ------
    ValueError
        If measures, cost and options are inconsistent, infinite costs forbid every plan, or the problem needs more than
        ``max_memory``.

    Warns
    -----
    ConvergenceWarning
        If the certified gap stays larger than asked for, because the budget is spent or by rounding.

    Examples
    --------
    >>> from gibbsot import GridCost, solve
    >>> result = solve([0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], GridCost(4, power=1, spacing=1.0))
    >>> result.value, result.status
    (2.0, 'optimal')
    >>> solve([0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], GridCost(4, power=1, spacing=1.0), method="gibbs").status
    'estimate'
    >>> solve([3, 1], [0, 2], [[0, 5], [5, 0]], penalty=1).value  # one unit stays, four are left over
    4.0
    """
    begun = time.perf_counter()
    options = Options.of(locals())
    given, copied = _cost(cost, "p, q, cost", options)
    problem = options.problem(p, q, given, ("p", "q"))
    if len(problem) != 1:
        raise ValueError(f"p, q: expected one measure each, got {len(problem)}; solve_batch takes many")
    result = options.solve(problem, copied)
    result.single = True
    _warn([result])
    result.seconds = time.perf_counter() - begun
    return result


@overload
def solve_batch(P: Any, Q: Any, cost: Sequence[Cost], **options: Any) -> OTResultList: ...
@overload
def solve_batch(P: Any, Q: Any, cost: Cost | ArrayLike, **options: Any) -> OTResult: ...
def solve_batch(  # type: ignore[misc]  # the options have their names here only
    P: Any,
    Q: Any,
    cost: Cost | ArrayLike | Sequence[Cost],
    *,
    method: str = "exact",
    gap: float | None = None,
    normalize: bool = False,
    penalty: Penalty | None = None,
    mass: float | None = None,
    max_seconds: float | None = None,
    max_memory: float | None = None,
    warm_start: OTResult | None = None,
    n_sweeps: int | None = None,
    schedule: Schedule | None = None,
    pinned: bool = False,
    diagnostics: bool = False,
    tau: int | None = None,
    seed: int | None = None,
    ids: ArrayLike | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> OTResult | OTResultList:
    """Solve many transport problems: row b of P to row b of Q, with one cost for all or one for each.

    The problems are independent and have their own supports. The result is the same for every ``n_jobs``, and with
    ``method="gibbs"`` for a batch that is split or permuted if each problem keeps its entry of ``ids``.

    Parameters
    ----------
    P, Q : arrays, lists or sparse matrices of shape (n, m1) and (n, m2), or None
        One measure in each row; a single measure is paired with all of the other side. On a grid of shape (h, w) they
        may be stacks of shape (n, h, w). Lists of measures of different sizes where each problem has its own cost.
    cost : Cost, array of shape (m1, m2), or sequence of Cost
        The cost of all problems, or one for each, such as ``[PointCost(x, y) for x, y in pairs]``.
    method, gap, normalize, penalty, mass, max_seconds, max_memory, warm_start
        As for `solve`; the time and the memory are those of all problems.
    n_sweeps, schedule, pinned, diagnostics, tau, seed, verbose
        As for `solve`.
    ids : array of int, optional
        With "gibbs": numbers of the problems, which determine their noise together with the seed; by default their
        indices in the batch.
    n_jobs : int, optional
        Threads over the problems, as in scikit-learn: None for one, -1 for all cores.

    Returns
    -------
    OTResult, or OTResultList for costs of their own
        The results; every number is an array with one entry for each problem.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost, solve_batch
    >>> P = np.eye(3)
    >>> solve_batch(P, P[0], GridCost(3, spacing=1.0)).value
    array([0., 1., 4.])
    >>> from gibbsot import PointCost
    >>> clouds = [PointCost([0.0, 1.0], [0.0, 3.0]), PointCost([0.0], [1.0, 2.0, 3.0])]
    >>> solve_batch(None, None, clouds).value.round(3)
    array([2.   , 4.667])
    """
    begun = time.perf_counter()
    options = Options.of(locals())
    result: OTResult | OTResultList
    if isinstance(cost, list | tuple) and all(isinstance(one, Cost) or _axes(one) == 2 for one in cost):
        result = options.solve_each(*_problems(P, Q, cost, options))
        _warn(list(result))
    else:
        given, copied = _cost(cast("Cost | ArrayLike", cost), "P, Q, cost", options)
        result = options.solve(options.problem(P, Q, given, ("P", "Q")), copied)
        _warn([result])
    result.seconds = time.perf_counter() - begun
    return result


def _cost(cost: Cost | ArrayLike, order: str, options: Options) -> tuple[Cost, float]:
    """Return the cost of all problems and its copied bytes; where weights are in its place, say the order."""
    try:
        return options.cost(cost)
    except ValueError as error:
        if _axes(cost) != 1:
            raise
        raise ValueError(f"{error}; the order of the arguments is {order}") from None


def _axes(x: Any) -> int:
    """Return the number of axes of an array, -1 for what is none."""
    try:
        return np.ndim(x)
    except ValueError:  # rows of different lengths
        return -1


def _problems(P: Any, Q: Any, costs: Sequence[Any], options: Options) -> tuple[list[Problem], float]:
    """Return one problem for each cost, and the bytes of copied costs."""
    if not costs:
        raise ValueError("cost: is empty; expected a cost, or one for each problem")
    rows = _rows(P, "P", len(costs)), _rows(Q, "Q", len(costs))
    names = [(f"P[{b}]", f"Q[{b}]") for b in range(len(costs))]
    given = [options.cost(c) for c in costs]
    found = [options.problem(p, q, c, name) for p, q, (c, _), name in zip(*rows, given, names, strict=True)]
    if [b for b, problem in enumerate(found) if len(problem) != 1]:
        raise ValueError("P, Q: expected one measure for each cost, got several")
    return found, sum(copied for _, copied in given)


def _rows(x: Any, name: str, n: int) -> Any:
    """Return one measure for each cost."""
    if x is None:
        return [None] * n
    if sparse.issparse(x):
        stored = validation.sparse_rows(x, name)
        x = [stored[[b]] for b in range(stored.shape[0])]
    if len(x) != n:
        raise ValueError(f"{name}: expected one measure for each of the {n} costs, got {len(x)}")
    return x


def _warn(results: list[OTResult]) -> None:
    """Warn the caller of `solve` once of gaps that stay open, or of chains that ended early."""
    solved = [result for result in results if result.solved is not None]
    if not all(_closed(result) for result in solved):
        # what the results show: bounds for the masses given are rounded once more than those of the solutions
        states = [state for result in solved for state in ([result.status] if result.single else result.status)]
        gaps = [gap for result in solved for gap in np.atleast_1d(result.gap).tolist()]
        warn_of_gaps(gaps, states, [solution.reason for result in solved for solution in result.solutions])
    if any(result.cut for result in results):
        from sklearn.exceptions import ConvergenceWarning  # loading scikit-learn takes a second

        text = "the sampler ended before its last sweep; the estimate is rougher. Allow more time, or fewer n_sweeps"
        warn(text, ConvergenceWarning)


def _closed(result: OTResult) -> bool:
    """Whether all gaps are closed, also after one more rounding of the bounds for the masses given."""
    return all(
        1e-280 < min(one.scale, mass * one.scale) < math.inf and one.upper - one.lower <= 0.99 * OPTIMAL_GAP * one.scale
        for one, mass in zip(result.solutions, result.problem.mass.tolist(), strict=True)
    )
