"""One obvious line: ``solve(p, q, cost)``, and the same for many problems at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import validation
from ..core.costs import Cost
from ..core.problems import Problem, dual_value, nearest
from ..core.problems import problem as make_problem
from ..io import progress
from ..sampling import sampler, theory
from ..sampling.sampler import Info, State
from ..sampling.schedules import Adaptive, Schedule, temperatures
from .exact import cross, effort
from .results import OTResult

_SWEEPS = 8000
_SPAN = 30.0  # there are stages enough to cool by this times sqrt(sweeps), the most that problems were found to need
# The last (m1 + m2) T / V(z) times sqrt(sweeps), where both what the temperature adds to V(z) and what the chain lags
# are small; chosen, as the other two, by the errors on digits, faces, random images, point clouds and random matrices.
_COLD = 6.0
_TAU = 5
_STEEP = 0.3  # eta before a crossover, which needs no fine estimate


def solve(
    p: Any,
    q: Any,
    cost: Cost | ArrayLike,
    *,
    n_sweeps: int | None = None,
    schedule: Schedule | None = None,
    warm_start: OTResult | None = None,
    gap: float | None = None,
    exact: bool = False,
    pinned: bool = False,
    diagnostics: bool = False,
    seed: int | None = None,
    verbose: bool = False,
) -> OTResult:
    r"""Estimate the optimal transport cost of two measures, with potentials and a certified lower bound.

    .. math:: W(p, q) = \min_{Z \ge 0} \langle Z, M \rangle, \quad Z 1 = p, \; Z^T 1 = q

    A Gibbs sampler on the dual is cooled from a temperature at which it moves freely to one at which it has settled.
    Multiplying the cost by c multiplies temperatures, value and potentials by c. The smaller W is beside the mean cost,
    the slower the chain: of measures that nearly agree the value falls short of W. There ask for ``exact=True``.

    Parameters
    ----------
    p, q : arrays, lists or sparse matrices of m1 and m2 weights
        Measures; their sums agree to 1e-6 and are normalised to one.
    cost : Cost or array of shape (m1, m2)
        The cost; its dtype is the precision of the computation. Infinite costs forbid pairs; whether they leave any
        plan at all is found out only with ``exact=True``. Put the measure with fewer points second: a sweep
        reads only the columns that q gives weight.
    n_sweeps : int, optional
        The number of sweeps at most, 8,000 by default. Fewer are faster and less precise.
    schedule : Adaptive, number, array or function, optional
        By default the cooling adapts to the problem, `schedules.Adaptive()`. Or the temperature, in units of the cost:
        of all sweeps, of each, or as a function of the sweep's number from 1.
    warm_start : OTResult, optional
        Go on from the state of this result, of measures that have moved a little, with the same cost. Unless a schedule
        is given, the chains then stay at the result's temperature and stop as soon as they have mixed: a warm start
        follows, it does not refine. For that give a schedule that cools further.
    gap : float, optional
        Anneal again with ever more sweeps, at last ``n_sweeps``, until the certified relative gap is at most this;
        `status` says whether it is, and the result's `n_sweeps` counts them all.
    exact : bool
        Cross over to the exact optimum after annealing, 100 to 4,000 sweeps in single precision by default: the value
        is then W(p, q), the potentials and the plan (a vertex) are optimal, and `status` says so.
    pinned : bool
        Keep g = 0 at the first point with weight, the paper's Omega_0.
    diagnostics : bool
        Look at every half step of the run as the paper's appendix does: `diagnostics` of the result is then a
        `theory.Trace`, and `plots.diagnostics` draws it. Every half step costs O(m1 m2 log(m1 m2)): for small problems.
    seed : int, optional
        The same seed, 0 by default, gives the same bits. A warm start keeps the seed of its result.
    verbose : bool
        Show a progress bar, on a terminal.

    Returns
    -------
    OTResult

    Examples
    --------
    >>> from gibbsot import GridCost, solve
    >>> result = solve([0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], GridCost(4, power=1, spacing=1.0))
    >>> round(result.value, 2)
    2.0
    >>> result.lower_bound <= 2.0
    True
    """
    problem = make_problem(p, q, cost, ("p", "q"))
    if len(problem) != 1:
        raise ValueError(f"p, q: expected one measure each, got {len(problem)}; solve_batch takes many")
    return _solve(problem, n_sweeps, schedule, warm_start, gap, exact, pinned, diagnostics, seed, None, None, verbose)[
        0
    ]


def solve_batch(
    P: Any,
    Q: Any,
    cost: Cost | ArrayLike,
    *,
    n_sweeps: int | None = None,
    schedule: Schedule | None = None,
    warm_start: OTResult | None = None,
    gap: float | None = None,
    exact: bool = False,
    pinned: bool = False,
    diagnostics: bool = False,
    seed: int | None = None,
    ids: ArrayLike | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> OTResult:
    """Estimate many optimal transport costs that share one cost: row b of P to row b of Q.

    The problems are independent and keep their own temperatures and supports. The result has the same bits for every
    ``n_jobs``, and for a batch that is split or permuted when each problem keeps its ``ids``.

    Parameters
    ----------
    P, Q : arrays, lists or sparse matrices of shape (n, m1) and (n, m2)
        One measure a row; one measure alone is paired with all of the other side.
    cost, n_sweeps, schedule, warm_start, gap, exact, pinned, diagnostics, seed, verbose
        As for `solve`.
    ids : array of int, optional
        The problems' numbers, which with the seed determine their noise; by default their places in the batch.
    n_jobs : int, optional
        Threads over the problems, as in scikit-learn: None for one, -1 for all cores.

    Returns
    -------
    OTResult

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost, solve_batch
    >>> P = np.eye(3)
    >>> solve_batch(P, P[0], GridCost(3, spacing=1.0)).value.round(3)
    array([0., 1., 4.])
    """
    problem = make_problem(P, Q, cost)
    return _solve(problem, n_sweeps, schedule, warm_start, gap, exact, pinned, diagnostics, seed, ids, n_jobs, verbose)


def _solve(
    problem: Problem,
    n_sweeps: int | None,
    schedule: Schedule | None,
    warm_start: OTResult | None,
    gap: float | None,
    exact: bool,
    pinned: bool,
    diagnostics: bool,
    seed: int | None,
    ids: ArrayLike | None,
    n_jobs: int | None,
    verbose: bool,
) -> OTResult:
    if gap is None:
        return _anneal_once(
            problem, n_sweeps, schedule, warm_start, exact, pinned, diagnostics, seed, ids, n_jobs, verbose
        )
    validation.positive(gap, "gap")
    least = 1000 * np.finfo(problem.cost.dtype).eps
    if gap < least:
        other = "; use a cost in float64" if problem.cost.dtype == np.float32 else "; ask for exact=True"
        raise ValueError(f"gap: {gap:.3g} is below {least:.1g}, what {problem.cost.dtype} can certify{other}")
    if exact or diagnostics or warm_start is not None or not (schedule is None or isinstance(schedule, Adaptive)):
        raise ValueError(
            "gap: goes with the adaptive schedule, not with exact, diagnostics, warm_start or given temperatures"
        )
    budget = _SWEEPS if n_sweeps is None else validation.count(n_sweeps, "n_sweeps")
    sweeps, done = min(250, budget), 0
    while True:
        result = _anneal_once(problem, sweeps, schedule, None, False, pinned, False, seed, ids, n_jobs, verbose)
        done += result.n_sweeps
        result = replace(result, wanted=float(gap), n_sweeps=done)
        if (result.gap <= gap).all() or sweeps == budget:
            return result
        sweeps = min(4 * sweeps, budget)


def _anneal_once(
    problem: Problem,
    n_sweeps: int | None,
    schedule: Schedule | None,
    warm_start: OTResult | None,
    exact: bool,
    pinned: bool,
    diagnostics: bool,
    seed: int | None,
    ids: ArrayLike | None,
    n_jobs: int | None,
    verbose: bool,
) -> OTResult:
    for name, flag in (("pinned", pinned), ("exact", exact), ("diagnostics", diagnostics)):
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name}: expected True or False, got {flag!r}")
    default = effort(problem.cost)[0] if exact else _SWEEPS
    total = default if n_sweeps is None else validation.count(n_sweeps, "n_sweeps")
    whole = problem
    if exact and warm_start is None:
        problem = _single(problem)
    if warm_start is None:
        state = sampler.init(problem, 0 if seed is None else seed, ids)
    elif seed is None and ids is None:
        state = _resume(warm_start, problem)
    else:
        raise ValueError(f"{'seed' if ids is None else 'ids'}: a warm start keeps those of its result; leave it out")
    if diagnostics and pinned:
        raise ValueError("diagnostics: the paper's appendix is about chains that are not pinned; expected pinned=False")
    adaptive = schedule if isinstance(schedule, Adaptive) else Adaptive(_STEEP) if exact else Adaptive()
    given = None if schedule is None or isinstance(schedule, Adaptive) else temperatures(schedule, n_sweeps)
    followed: list[NDArray[np.float64]] = []
    with progress.bar("Gibbs-OT", verbose) as advance:

        def run(state: State, T: NDArray[np.float64], tau: int = 0) -> tuple[State, Info]:
            share = np.shape(T)[-1] / (total if given is None else len(given))
            if diagnostics:
                tau = 0  # a trace has every sweep of every problem
                followed.append(np.broadcast_to(T, (len(problem), np.shape(T)[-1])))
            return sampler.run(
                state, problem, T, tau=tau, pinned=pinned, n_jobs=n_jobs, progress=lambda part: advance(part * share)
            )

        last: NDArray[np.float64]
        if given is not None:
            after, info = run(state, given)
            last = np.full(len(problem), given[-1])
        elif warm_start is not None and schedule is None:
            last = np.atleast_1d(warm_start.temperature)
            after, info = run(state, np.repeat(last[:, None], total, axis=1), tau=_TAU)
        else:
            start = None if warm_start is None else np.atleast_1d(warm_start.temperature)
            after, info, last = _anneal(state, problem, total, adaptive.eta, start, n_jobs, run)
    done = after.sweep - state.sweep
    history = _gather(info.history)
    lately = np.take_along_axis(history, np.maximum(done[:, None] - 1 - np.arange(_TAU, -1, -1), 0), axis=1)
    converged = (done > _TAU) & sampler.mixed(lately, last, _TAU)
    crossings = cross(whole, info.U, n_jobs=n_jobs) if exact else None
    seen = theory.trace(state, problem, np.concatenate(followed, axis=1))[1] if diagnostics else None
    return OTResult(whole, after, info._replace(history=history), last, done, converged, crossings, diagnostics=seen)


def _anneal(
    state: State,
    problem: Problem,
    total: int,
    eta: float,
    start: NDArray[np.float64] | None,
    n_jobs: int | None,
    run: Callable[..., tuple[State, Info]],
) -> tuple[State, Info, NDArray[np.float64]]:
    """Cool in stages, each at eta times the bound of the one before, until it is cold for so many sweeps."""
    points = np.count_nonzero(problem.p, axis=1) + np.count_nonzero(problem.q, axis=1)
    scale, floor = _scale(problem, n_jobs)
    # about the lower end of calT, -A / C(z, 0), of the nearest points' pair raised to the mean cost: A is then -scale,
    # and C(z, 0) = sum_j q_j / p_i(j) would be m1 if the arcs (i(j), j) carried an optimal plan; twice that to be safe
    T = scale / points if start is None else start
    stages = 1 + int(np.ceil(np.log(_SPAN * np.sqrt(total)) / -np.log(eta)))
    lengths = np.diff(np.linspace(0, total, max(1, min(stages, total // 2)) + 1).round().astype(int))
    hold = lengths[-1] // 4
    lengths[-1] -= hold
    state, info = run(state, np.repeat(T[:, None], lengths[0], axis=1))
    histories = [info.history]
    for length in lengths[1:]:
        # the first sweeps of a stage still remember the one before
        value = info.history[:, info.history.shape[1] // 3 :].mean(axis=1) - floor
        before, h = info, state.h
        state, info = run(state, T[:, None])
        histories.append(info.history)
        bound = theory.sampled_bound(problem, before.L, h, info.value, T, n_jobs)
        cold = _COLD / np.sqrt(total) * value / points
        T = np.minimum(T, np.maximum(eta * np.maximum(bound, T / 2), cold))
        state, info = run(state, np.repeat(T[:, None], length - 1, axis=1))
        histories.append(info.history)
    if hold:
        state, info = run(state, np.repeat(T[:, None], hold, axis=1), tau=_TAU)
        histories.append(info.history)
    return state, info._replace(history=np.concatenate(histories, axis=1)), T


def _single(problem: Problem) -> Problem:
    """Return the problem in single precision, which is enough to find the arcs, if its costs fit in."""
    try:
        return Problem(problem.p, problem.q, problem.cost.astype(np.float32))
    except ValueError:
        return problem


def _scale(problem: Problem, n_jobs: int | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far W may lie above the bound that the nearest points give, and that bound; neither needs a unit."""
    U, L = nearest(problem, n_jobs)
    floor = dual_value(problem, U, L)
    mean = problem.cost.mean(problem.p, problem.q, n_jobs)
    info = np.finfo(problem.cost.dtype)
    return np.maximum(mean - floor, np.maximum(info.eps * np.abs(mean), 1e20 * info.tiny)), floor


def _resume(warm_start: OTResult, problem: Problem) -> State:
    if not isinstance(warm_start, OTResult):
        raise TypeError(f"warm_start: expected an OTResult, got {type(warm_start).__name__}")
    before = warm_start.problem
    if len(before) != len(problem) or before.cost.shape != problem.cost.shape:
        raise ValueError(
            f"warm_start: has {len(before)} problems of {before.cost.shape[0]} x {before.cost.shape[1]} points; "
            f"expected {len(problem)} of {problem.cost.shape[0]} x {problem.cost.shape[1]}"
        )
    # a point that had no weight has no h: its bound L stands in, or 0 where nothing that had weight could reach it
    L = np.where(np.isfinite(warm_start.info.L), warm_start.info.L, 0)
    h = np.where(np.isfinite(warm_start.state.h), warm_start.state.h, L)
    h = np.where(problem.q > 0, h, np.inf).astype(problem.cost.dtype)
    return State(h, warm_start.state.sweep, warm_start.state.seed, warm_start.state.ids)


def _gather(history: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cut what no problem needed."""
    needed = np.flatnonzero(~np.isnan(history).all(axis=0))
    return history[:, : needed[-1] + 1]
