"""The public functions: ``solve(p, q, cost)``, and `solve_batch` for many problems at once."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from ..core import native, validation
from ..core.backend import backend
from ..core.warn import warn
from ..costs import Cost, as_cost
from ..costs.problems import Problem, pairs
from ..exact.certificate import MARGIN, warn_of_gaps
from ..exact.feasibility import rounded_apart
from ..exact.line import Line, at_once
from ..exact.method import in_threads
from ..exact.methods import KEPT_BYTES, memory_needed, optima
from ..exact.packed import Packed, solve_packed
from ..exact.solution import INFEASIBLE, Solution
from ..io.budget import Budget, reported_budget
from ..sampling.gibbs import Gibbs, Sampled, memory_of_chains, sample_of
from .kl import KL_GAP, Unbalanced, UnbalancedProblem, divergence_memory, unbalanced_optima
from .options import BatchOptions, Options, takes
from .ragged import RaggedParts, Table, is_pair, own_cost, pack
from .relaxed import LeftOver, refitted, start_from
from .result import NumberedParts, OTResult, Part

_LINE, _DOUBLE = Line(), np.dtype(np.float64)


@takes(Options)
def solve(p: Any, q: Any, cost: Cost | ArrayLike, options: Options) -> OTResult:
    r"""Solve optimal transport between two measures: the cost W, an optimal plan and potentials, with a certificate.

    .. math:: W(p, q) = \min_{Z \ge 0} \langle Z, M \rangle, \quad Z 1 = p, \; Z^T 1 = q

    Parameters
    ----------
    p, q : arrays, lists or sparse matrices of m1 and m2 weights, or None
        The measures, of equal sums. None for uniform weights, of the mass of the other measure, or of mass one if both
        are None. On a grid they may have the grid's shape. Sums must agree to 1e-6, or to ``4 eps m`` for m weights of
        a coarser precision; a smaller difference is spread proportionally. Weights with labels, a Series of pandas, go
        to the points of these labels where the cost has them: a DataFrame, or a `PointCost` whose points were one. On a
        grid, two measures with the same labels are brought to one order: that of increasing labels, or that of p. If
        the labels of the two measures differ, weights go by position.
    cost : Cost or array of shape (m1, m2)
        The cost. Infinite costs forbid pairs.
    method : {"exact", "gibbs"} or Gibbs
        "exact": the optimum. "gibbs", or `Gibbs` with options: the estimate of the paper's annealed sampler.
    gap : float, optional
        Stop as soon as the certified relative gap is at most this; 0, as None, for the optimum. With
        ``method="exact"``.
    normalize : bool
        Divide both measures by their sums. By default the value is for the masses given.
    penalty : float or pair, optional
        Mass may be left over at this cost per unit; the sums of p and q may differ. A number for both sides, or a
        pair for p and q, each a number or an array with an entry for every point.
    mass : float, optional
        Exactly this much is transported, at least cost.
    kl : float or pair of float, optional
        Unbalanced transport: the marginals of the plan may differ from p and q, and the objective has ``rho1 KL(Z 1 |
        p) + rho2 KL(Z^T 1 | q)`` besides ``<Z, M>``. A number for both, or a pair (rho1, rho2); an infinite one
        keeps its marginal. The problem is not a linear programme: ``gap`` is then 1e-4 by default.
    max_seconds : float, optional
        The time after which the solve ends with what it has proved: valid bounds, a coupling and the status "budget
        spent". Where infinite costs forbid every coupling found so far, ``reason`` says that there is none yet: value
        and upper bound are infinite, and the plan has only a part of the mass. The last bounds take some time of
        their own.
    max_memory : float, optional
        The bytes that the solve may take beyond its arguments. A problem that is estimated to need more is refused.
    warm_start : OTResult, optional
        The result for measures or costs that were a little different. It saves time, and the optimum is the same. With
        ``method="gibbs"`` the chains continue from it, at its temperature unless a schedule is given, and stop as soon
        as they have mixed. They follow measures that move, but do not become more precise.
    n_jobs : int, optional
        Threads, as in scikit-learn: None for one, -1 for all cores. Inside one problem they search k-d trees and
        matrices; results do not depend on their number.
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
        ``max_memory``; and if two measures have the same labels in different orders, and the cost has none.

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
    >>> result = solve([1], [1], [[1]], kl=1)  # half of the cost is paid by either marginal
    >>> round(result.value, 4), [round(x.item(), 4) for x in result.marginals]
    (0.7869, [0.6065, 0.6065])
    """
    begun = time.perf_counter()
    if isinstance(cost, Cost) and cost.on_line and options.plain:
        found = _on_line(p, q, cost)
        if found is not None:
            found.seconds = time.perf_counter() - begun
            return found
    problem, copied = one_problem(p, q, cost, options)
    return solve_problem(problem, options, copied, begun)


@takes(BatchOptions)
def solve_batch(P: Any, Q: Any, cost: Cost | ArrayLike | Sequence[Any], options: BatchOptions) -> OTResult:
    """Solve many transport problems: row b of P to row b of Q, with one cost for all or one for each.

    The problems are independent and have their own supports. The result is the same for every ``n_jobs``, and with
    ``method="gibbs"`` for a batch that is split or permuted if each problem keeps its entry of ``ids``.

    Parameters
    ----------
    P, Q : arrays, lists or sparse matrices of shape (n, m1) and (n, m2), or None
        One measure in each row; a single measure is paired with all of the other side. On a grid of shape (h, w) they
        may be stacks of shape (n, h, w). Lists of measures of different sizes where each problem has its own cost.
    cost : Cost, array of shape (m1, m2), or sequence
        The cost of all problems, or a list with one for each: costs, matrices, and clouds of points as tuples
        ``(X, Y)`` or ``(X, Y, metric)``, the arguments of `PointCost`. Small problems of a list are solved in one call,
        and clouds and matrices take less time than as objects.
    **options
        As for `solve`. The time and the memory are those of all problems, and threads run over the problems. With
        "gibbs", ``ids`` are numbers of the problems, which determine their noise together with the key; by default
        their indices in the batch.

    Returns
    -------
    OTResult
        Every number is an array with one entry for each problem.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost, solve_batch
    >>> P = np.eye(3)
    >>> solve_batch(P, P[0], GridCost(3, spacing=1.0)).value
    array([0., 1., 4.])
    >>> clouds = [(np.array([0.0, 1.0]), np.array([0.0, 3.0])), (np.array([0.0]), np.array([1.0, 2.0, 3.0]))]
    >>> solve_batch(None, None, clouds).value.round(3)
    array([2.   , 4.667])
    """
    begun = time.perf_counter()
    if isinstance(cost, list | tuple) and all(map(_is_cost, cost)):
        return _finished(OTResult(_solve_each(P, Q, cost, options)), begun)
    problem, copied = _problem(P, Q, cost, ("P", "Q"), options)
    return _finished(OTResult([_solve_shared(problem, options, copied)]), begun)


def _on_line(p: Any, q: Any, cost: Cost) -> OTResult | None:
    """Return the optimum between samples on the line, if everything is as usual and kernels prove it at once.

    Small samples take a few microseconds, as long as some steps of the way for all problems.
    """
    if not _LINE.accepts(cost):
        return None
    geometry: Any = cost.astype(_DOUBLE).geometry()
    uniform = p is None and q is None
    problem = Problem.uniform(cost) if uniform else _with_usual_weights(p, q, cost)
    if problem is None:
        return None
    found = at_once(geometry.X[:, 0], geometry.Y[:, 0], p, q, geometry.power)
    if found is None:
        return None
    if not uniform:
        _check_range(problem, [found])
    part = Part(problem, [found])
    return OTResult([part], single=True) if uniform or part.closed else None


def _with_usual_weights(p: Any, q: Any, cost: Cost) -> Problem | None:
    """Return the problem of two vectors of valid weights whose sums agree, None where more has to be looked at."""
    masses = []
    for x, m in zip((p, q), cost.shape, strict=True):
        if type(x) is not np.ndarray or x.dtype != _DOUBLE or x.shape != (m,) or not x.flags.c_contiguous:
            return None
        mass, low, high = backend().sum_rows(x[None])
        if not (low >= 0 and high < math.inf and 0 < mass[0] < math.inf):
            return None
        masses.append(mass)
    if abs(masses[0][0] - masses[1][0]) > 1e-6 * masses[0][0]:
        return None
    return Problem.checked(p[None], q[None], cost, masses[0])


def one_problem(p: Any, q: Any, cost: Cost | ArrayLike, options: Options) -> tuple[Problem, float]:
    """Return the problem that `solve` is asked for, and the bytes that were copied for it.

    Parameters
    ----------
    p, q, cost
        As for `solve`.
    options : Options
        Its options.

    Returns
    -------
    problem : Problem
    copied : float
    """
    problem, copied = _problem(p, q, cost, ("p", "q"), options)
    if (n := len(problem)) != 1:
        raise ValueError(f"p, q: expected one measure each, got {n}; solve_batch takes many")
    return problem, copied


def solve_problem(problem: Problem, options: Options, copied: float, begun: float) -> OTResult:
    """Solve one problem.

    Parameters
    ----------
    problem : Problem
        The problem, as `one_problem` made it with the same options.
    options : Options
        The options of `solve`.
    copied : float
        The bytes that were copied for it.
    begun : float
        When the call began, by `time.perf_counter`.

    Returns
    -------
    OTResult
    """
    return _finished(OTResult([_solve_shared(problem, options, copied)], single=True), begun)


def _finished(result: OTResult, begun: float) -> OTResult:
    """Return a result with its time, after warnings."""
    _warn(result)
    result.seconds = time.perf_counter() - begun
    return result


def _is_cost(x: Any) -> bool:
    """Tell whether an entry of a list is the cost of one problem, and not a row of a matrix."""
    if isinstance(x, np.ndarray):
        return x.ndim == 2
    return isinstance(x, Cost) or is_pair(x) or (not isinstance(x, tuple) and _axes(x) == 2)


def _axes(x: Any) -> int:
    """Return the number of axes of an array, -1 for what is none."""
    try:
        return np.ndim(x)
    except ValueError:  # rows of different lengths
        return -1


def _problem(p: Any, q: Any, cost: Any, names: tuple[str, str], options: Options) -> tuple[Problem, float]:
    """Return balanced problems, with additional points on either side where mass may be left over; and copied bytes."""
    copied = 0.0
    if options.max_memory is not None:
        copied = _copied(cost)
        options.allow(copied)
    try:
        if options.kl is not None:
            cost = as_cost(cost)
            return Unbalanced(cost, options.kl).problem(*pairs(p, q, cost, names)), copied
        if p is None and q is None and not options.partial:
            cost = as_cost(cost)
            if cost.finite:
                return Problem.uniform(cost), copied
        if not options.partial:
            return Problem(p, q, cost, normalize=options.normalize, names=names), copied
        cost = as_cost(cost)
    except ValueError as error:
        if _axes(cost) != 1:
            raise
        raise ValueError(f"{error}; the order of the arguments is {', '.join(names)}, cost") from None
    relaxed, exact = LeftOver(cost, options.penalty, options.mass), options.sampler is None
    options.allow(relaxed.memory(exact))
    return relaxed.problem(*pairs(p, q, cost, names), exact=exact), copied


def _copied(cost: Any) -> float:
    """Return the bytes of the matrix that a cost will have and the argument has not."""
    if not isinstance(cost, Cost):
        with suppress(TypeError, IndexError, KeyError):  # where this is not a matrix, `as_cost` says so
            if isinstance(cost, np.ndarray):
                return (4.0 if cost.dtype == np.float32 else 8.0) * cost.size
            return 16.0 * len(cost) * len(cost[0])  # an array, and that of the cost
    return 0.0


def _own_problem(p: Any, q: Any, cost: Any, b: int, options: Options) -> tuple[Problem, float]:
    """Return problem b of a list, and the bytes of its copied cost."""
    copied = 0.0
    if options.max_memory is not None:
        copied = _copied(cost)
        options.allow(copied)
    problem, _ = _problem(p, q, own_cost(cost, b), (f"P[{b}]", f"Q[{b}]"), options)
    if len(problem) != 1:
        raise ValueError(f"P[{b}], Q[{b}]: expected one measure for each cost, got {len(problem)}")
    return problem, copied


def _rows(x: Any, name: str, n: int) -> Any:
    """Return one measure for each cost, or None."""
    if sparse.issparse(x):
        stored = validation.sparse_rows(x, name)
        x = [stored[[b]] for b in range(stored.shape[0])]
    if x is not None and len(x) != n:
        raise ValueError(f"{name}: expected one measure for each of the {n} costs, got {len(x)}")
    return x


def _solve_shared(problem: Problem, options: Options, copied: float) -> Part:
    """Solve problems that share a cost, for which `copied` bytes were copied."""
    if options.max_memory is not None:
        _check_memory([problem], options, copied)
    warm = options.warm_start
    with _budget(1 if options.n_jobs is None else len(problem), options) as budget:
        start = None if warm is None else _start(warm, problem, options)
        return _solve(problem, options, start, options.ids, options.n_jobs, budget)


def _solve_each(P: Any, Q: Any, costs: Sequence[Any], options: Options) -> Sequence[Part]:
    """Solve problems with costs of their own: those that can be packed in a few calls, the others in threads."""
    warm, n = options.warm_start, len(costs)
    if not n:
        raise ValueError("cost: is empty; expected a cost, or one for each problem")
    P, Q = _rows(P, "P", n), _rows(Q, "Q", n)
    ids: Any = range(n) if options.ids is None else options.ids
    for name, x in (("warm_start", warm), ("ids", ids)):
        if x is not None and len(x) != n:
            raise ValueError(f"{name}: has {len(x)} entries; expected one for each of the {n} problems")
    table = Table(costs, options.gap or 0.0)
    with _budget(n, options) as budget:
        if options.packs:
            for packed, which in pack(P, Q, costs, options.normalize):
                _solve_packed(packed, which, table, options, budget)
        rest, problems, copied = table.rest, {}, 0.0
        for b in rest:
            p, q = (None if x is None else x[b] for x in (P, Q))
            problems[b], own = _own_problem(p, q, costs[b], b, options)
            copied += own
        if options.max_memory is not None:
            _check_memory(list(problems.values()), options, copied)

        def work(b: int) -> Part:
            start = None if warm is None else _start(warm[b], problems[b], options)
            own = [ids[b]] if options.sampler is not None else None
            return _solve(problems[b], options, start, own, None, budget)

        parts = in_threads(work, rest, options.n_jobs)
    if len(rest) == n:
        return parts
    for b, part in zip(rest, parts, strict=True):
        table.set(b, part)
    return RaggedParts(table)


def _solve_packed(packed: Packed, which: Any, table: Table, options: Options, budget: Budget) -> None:
    """Solve packed problems, some after others where somebody watches, and enter what is proved into a table."""
    n, threads = len(packed), native.threads(options.n_jobs)
    step = max(8 * threads, n // 50) if budget.reports else n
    for start in range(0, n, step):
        some = slice(start, start + step)
        table.add(solve_packed(packed[some], threads, budget), which[some])
        budget.report("%d of %d problems", min(start + step, n), n)


def _check_memory(problems: list[Problem], options: Options, copied: float) -> None:
    """Refuse problems that need more memory than allowed; as many are solved at once as there are threads."""
    if options.sampler is not None:
        needed = [memory_of_chains(problem, options.sampler.most_sweeps) for problem in problems]
    else:
        needed = [memory_needed(problem, options.n_jobs) + divergence_memory(problem) for problem in problems]
    at_once = sum(sorted(needed)[-native.threads(options.n_jobs) :])
    kept = KEPT_BYTES * sum(sum(problem.cost.shape) for problem in problems) if len(problems) > 1 else 0.0
    options.allow(copied + at_once + kept)


def _budget(n: int, options: Options) -> AbstractContextManager[Budget]:
    """Return the budget of a call with n problems."""
    label, endless = ("transport", True) if options.sampler is None else ("Gibbs-OT", False)
    limits: dict[str, Any] = {"threads": 1 if options.n_jobs is None else max(1, native.threads(options.n_jobs) // n)}
    for name in ("max_seconds", "max_memory"):
        if (limit := getattr(options, name)) is not None:
            limits[name] = float(limit)
    return reported_budget(label, options.verbose, endless, **limits)


def _solve(
    problem: Problem, options: Options, start: Part | None, ids: ArrayLike | None, n_jobs: int | None, budget: Budget
) -> Part:
    """Solve a batch of problems within a budget."""
    if options.sampler is not None:
        return _estimate(problem, options.sampler, start, ids, n_jobs, budget)
    U, basis = (None, None) if start is None else start_from(start.start, start.solved, start.problem, problem)
    if isinstance(problem, UnbalancedProblem):
        gap = KL_GAP if options.gap is None else options.gap
        return Part(problem, unbalanced_optima(problem, U, n_jobs, gap, basis, budget), asked=gap)
    try:
        gap = MARGIN * (options.gap or 0.0)
        solutions = optima(problem, U, n_jobs=n_jobs, gap=gap, warm_start=basis, budget=budget)
    except ValueError as error:
        if not str(error).startswith(INFEASIBLE) or (reason := rounded_apart(problem)) is None:
            raise
        raise ValueError(reason) from None
    _check_range(problem, solutions)
    return Part(problem, solutions, asked=options.gap or 0.0)


def _estimate(
    problem: Problem, method: Gibbs, start: Part | None, ids: ArrayLike | None, n_jobs: int | None, budget: Budget
) -> Part:
    """Run the chains of a batch of problems within a budget."""
    chains = None if start is None else _chains(start, problem)
    own = ids if start is None else None
    found = method.sample(problem, start=chains, ids=own, n_jobs=n_jobs, budget=budget)
    cut = budget.spent and bool((found.n_sweeps < method.most_sweeps).any())
    return Part(problem, None, found, cut)


def _check_range(problem: Problem, solutions: list[Solution]) -> None:
    """Refuse problems whose transport cost is not a double."""
    for mass, one in zip(problem.mass.tolist(), solutions, strict=True):
        if mass > 1 and math.isfinite(one.upper) and not math.isfinite(2 * mass * one.scale):
            raise ValueError(
                f"p, q: a mass of {mass:.3g} at a mean cost of {one.scale:.3g} is beyond the range of doubles; "
                "expected smaller weights or costs"
            )


def _start(warm_start: Any, problem: Problem, options: Options) -> Part:
    """Return what is known of similar problems; refuse those of another kind, or with other noise."""
    if not isinstance(warm_start, OTResult):
        raise TypeError(f"warm_start: expected an OTResult, got {type(warm_start).__name__}")
    given = {"ids": options.ids, "rng": None if options.sampler is None else options.sampler.rng}
    for name, x in given.items():
        if x is not None:
            raise ValueError(f"{name}: a warm start keeps those of its result; leave it out")
    found, n = warm_start.parts[0], sum(map(len, warm_start.parts))
    before = found.problem
    if len(warm_start.parts) > 1:
        raise ValueError("warm_start: has problems with costs of their own; expected one cost for all")
    if type(before) is not type(problem):
        raise ValueError("warm_start: expected a result with penalty or mass, or with kl, if and only if that is given")
    if n != len(problem) or before.size != problem.size:
        raise ValueError(
            f"warm_start: has {n} problems of {before.size[0]} x {before.size[1]} points; "
            f"expected {len(problem)} of {problem.size[0]} x {problem.size[1]}"
        )
    return found


def _chains(start: Part, problem: Problem) -> Sampled:
    """Return the chains of a result, or some that start from its potentials, for the points of a problem."""
    sample = start.sample
    if sample is None:
        f, g, value = (np.stack(x) for x in zip(*((s.f, s.g, s.value) for s in start.balanced), strict=True))
        sample = sample_of(start.problem, f, g, value)
    h, L = (refitted(x, problem, 1) for x in (sample.state.h, sample.info.L))
    return sample._replace(state=replace(sample.state, h=h), info=sample.info._replace(L=L))


def _warn(result: OTResult) -> None:
    """Warn the caller of `solve` once of gaps that stay open, or of chains that ended early."""
    if isinstance(result.parts, NumberedParts) and result.parts.closed:
        return
    all_closed, cut = True, False
    for part in result.parts:
        all_closed, cut = all_closed and part.closed, cut or part.cut
    if not all_closed:
        solved = [part for part in result.parts if part.solved is not None]
        # what the results show: bounds for the masses given are rounded once more than those of the solutions
        gaps = [gap for part in solved for gap in part.gap]
        states = [state for part in solved for state in part.status]
        warn_of_gaps(gaps, states, [reason for part in solved for reason in part.reason])
    if cut:
        from sklearn.exceptions import ConvergenceWarning  # loading scikit-learn takes a second

        text = "the sampler ended before its last sweep; the estimate is rougher. Allow more time, or fewer n_sweeps"
        warn(text, ConvergenceWarning)
