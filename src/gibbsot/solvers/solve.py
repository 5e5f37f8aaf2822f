"""The public functions: ``solve(p, q, cost)``, and `solve_batch` for many problems at once."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core import native, validation
from ..core.costs import Cost
from ..core.problems import Problem
from ..core.problems import problem as make_problem
from ..sampling.schedules import Schedule
from .exact import cross
from .gibbs import GibbsSolver, Sample, sample_of
from .results import OTResult
from .solution import PROVED, Solution

_REMOVED = {
    "exact": "exact solutions are the default; method='gibbs' gives the sampler's estimate",
    "converged": "the result has status and mixed",
}


def solve(
    p: Any,
    q: Any,
    cost: Cost | ArrayLike,
    *,
    method: str = "exact",
    gap: float | None = None,
    normalize: bool = False,
    warm_start: OTResult | None = None,
    n_sweeps: int | None = None,
    schedule: Schedule | None = None,
    pinned: bool = False,
    diagnostics: bool = False,
    tau: int | None = None,
    seed: int | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
    **removed: Any,
) -> OTResult:
    r"""Solve optimal transport between two measures: the cost W, an optimal plan and potentials, with a certificate.

    .. math:: W(p, q) = \min_{Z \ge 0} \langle Z, M \rangle, \quad Z 1 = p, \; Z^T 1 = q

    Parameters
    ----------
    p, q : arrays, lists or sparse matrices of m1 and m2 weights, or None
        The measures, of equal sums; None for uniform weights. On a grid they may have the grid's shape. Sums agree to
        1e-6, or to ``4 eps m`` for m weights of a coarser precision; a difference is spread proportionally.
    cost : Cost or array of shape (m1, m2)
        The cost. Infinite costs forbid pairs.
    method : {"exact", "gibbs"}
        "exact": the optimum. "gibbs": the estimate of the paper's annealed sampler.
    gap : float, optional
        Stop as soon as the certified relative gap is at most this. With ``method="exact"``.
    normalize : bool
        Divide both measures by their sums. By default the value is for the masses given.
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
        Show progress.
    **removed
        Arguments of earlier versions, which are refused with the name of what replaces them.

    Returns
    -------
    OTResult

    Raises
    ------
    ValueError
        If measures, cost and options are inconsistent, or infinite costs forbid every plan.

    Warns
    -----
    ConvergenceWarning
        If the certified gap stays larger than asked for.

    Examples
    --------
    >>> from gibbsot import GridCost, solve
    >>> result = solve([0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], GridCost(4, power=1, spacing=1.0))
    >>> result.value, result.status
    (2.0, 'optimal')
    >>> solve([0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], GridCost(4, power=1, spacing=1.0), method="gibbs").status
    'estimate'
    """
    begun = time.perf_counter()
    problem = make_problem(p, q, cost, ("p", "q"), validation.flag(normalize, "normalize"))
    if len(problem) != 1:
        raise ValueError(f"p, q: expected one measure each, got {len(problem)}; solve_batch takes many")
    chains = {"n_sweeps": n_sweeps, "schedule": schedule, "pinned": pinned, "diagnostics": diagnostics, "tau": tau}
    result = _solve(problem, method, gap, warm_start, {**chains, "seed": seed}, n_jobs, verbose, removed, begun)
    result.single = True
    return result


def solve_batch(
    P: Any,
    Q: Any,
    cost: Cost | ArrayLike,
    *,
    method: str = "exact",
    gap: float | None = None,
    normalize: bool = False,
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
    **removed: Any,
) -> OTResult:
    """Solve many transport problems that share one cost: row b of P to row b of Q.

    The problems are independent and have their own supports. The result is the same for every ``n_jobs``, and with
    ``method="gibbs"`` for a batch that is split or permuted if each problem keeps its entry of ``ids``.

    Parameters
    ----------
    P, Q : arrays, lists or sparse matrices of shape (n, m1) and (n, m2), or None
        One measure in each row; a single measure is paired with all of the other side. On a grid of shape (h, w) they
        may be stacks of shape (n, h, w).
    cost, method, gap, normalize, warm_start, n_sweeps, schedule, pinned, diagnostics, tau, seed, verbose
        As for `solve`.
    ids : array of int, optional
        With "gibbs": numbers of the problems, which determine their noise together with the seed; by default their
        indices in the batch.
    n_jobs : int, optional
        Threads over the problems, as in scikit-learn: None for one, -1 for all cores.
    **removed
        As for `solve`.

    Returns
    -------
    OTResult
        The results; every number is an array with one entry for each problem.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost, solve_batch
    >>> P = np.eye(3)
    >>> solve_batch(P, P[0], GridCost(3, spacing=1.0)).value
    array([0., 1., 4.])
    """
    begun = time.perf_counter()
    problem = make_problem(P, Q, cost, normalize=validation.flag(normalize, "normalize"))
    chains = {"n_sweeps": n_sweeps, "schedule": schedule, "pinned": pinned, "diagnostics": diagnostics, "tau": tau}
    options = {**chains, "seed": seed, "ids": ids}
    return _solve(problem, method, gap, warm_start, options, n_jobs, verbose, removed, begun)


def _solve(
    problem: Problem,
    method: str,
    gap: float | None,
    warm_start: OTResult | None,
    chains: dict[str, Any],
    n_jobs: int | None,
    verbose: bool,
    removed: dict[str, Any],
    begun: float,
) -> OTResult:
    """Solve by a method, with the options that were given for chains."""
    for name in removed:
        if name in _REMOVED:
            raise TypeError(f"{name}: was removed; {_REMOVED[name]}")
        raise TypeError(f"{name}: is no argument of solve or solve_batch")
    native.threads(n_jobs)
    given = {name: x for name, x in chains.items() if x is not None and x is not False}
    if warm_start is not None:
        _check_warm_start(warm_start, problem, given)
    if validation.choice(method, "method", ("exact", "gibbs")) == "gibbs":
        if gap is not None:
            raise ValueError("gap: the sampler's estimate has no gap; expected it with method='exact' only")
        sample = None if warm_start is None else _sample(warm_start)
        solver = GibbsSolver(warm_start=sample, n_jobs=n_jobs, verbose=verbose, **given)
        return OTResult(problem, None, solver(problem), time.perf_counter() - begun)
    if given:
        name = next(iter(given))
        raise ValueError(f"{name}: is an option of the sampler; expected method='gibbs' with it")
    if gap is not None:
        validation.positive(gap, "gap")
    solutions = cross(
        problem,
        None if warm_start is None else np.atleast_2d(warm_start.U),
        n_jobs=n_jobs,
        gap=gap or 0.0,
        warm_start=None if warm_start is None else warm_start.solved,
    )
    if open_gaps := [solution for solution in solutions if solution.status not in PROVED]:
        _warn(open_gaps, len(solutions))
    return OTResult(problem, solutions, None, time.perf_counter() - begun)


def _check_warm_start(warm_start: Any, problem: Problem, given: dict[str, Any]) -> None:
    """Refuse a warm start from another kind of problem, or with other noise."""
    if not isinstance(warm_start, OTResult):
        raise TypeError(f"warm_start: expected an OTResult, got {type(warm_start).__name__}")
    for name in ("ids", "seed"):
        if name in given:
            raise ValueError(f"{name}: a warm start keeps those of its result; leave it out")
    before = warm_start.problem
    if len(before) != len(problem) or before.cost.shape != problem.cost.shape:
        raise ValueError(
            f"warm_start: has {len(before)} problems of {before.cost.shape[0]} x {before.cost.shape[1]} points; "
            f"expected {len(problem)} of {problem.cost.shape[0]} x {problem.cost.shape[1]}"
        )


def _sample(result: OTResult) -> Sample:
    """Return the chains of a result, or some that start from its potentials."""
    return sample_of(result.problem, result.solutions) if result.sample is None else result.sample


def _warn(open_gaps: list[Solution], n: int) -> None:
    """Warn of problems whose gap stays open."""
    from sklearn.exceptions import ConvergenceWarning  # loading scikit-learn takes a second

    worst = max((s.upper - s.lower) / abs(s.value) if s.value else np.inf for s in open_gaps)
    warnings.warn(
        f"{len(open_gaps)} of {n} problems ended with an open gap, the largest is {worst:.1e} of the "
        "value; the bounds of the result are valid. Scale or shift the costs so that rounding matters less",
        ConvergenceWarning,
        stacklevel=4,
    )
