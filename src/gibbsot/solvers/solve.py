"""The public functions: ``solve(p, q, cost)``, and `solve_batch` for many problems at once."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from ..core import native, validation
from ..core.costs import Cost, as_cost
from ..core.problems import Problem, pairs
from ..core.problems import problem as make_problem
from ..sampling.schedules import Schedule
from .exact import cross, in_threads, memory_needed
from .gibbs import GibbsSolver, Sample, sample_of
from .partial import PartialResult, partial_problem
from .results import OTResult, OTResultList
from .run import Run, reported_run
from .solution import PROVED, Solution

_REMOVED = {
    "exact": "exact solutions are the default; method='gibbs' gives the sampler's estimate",
    "converged": "the result has status and mixed",
}
_CHAINS = ("n_sweeps", "schedule", "pinned", "diagnostics", "tau", "seed", "ids")


def solve(
    p: Any,
    q: Any,
    cost: Cost | ArrayLike,
    *,
    method: str = "exact",
    gap: float | None = None,
    normalize: bool = False,
    penalty: float | None = None,
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
    penalty : float, optional
        Mass may be left over and costs this much a unit, on either side; the sums of p and q may differ. The result is
        a `PartialResult`, and so for ``mass``.
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
    **removed
        Arguments of earlier versions, which are refused with the name of what replaces them.

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
    problem = _problem(p, q, cost, ("p", "q"), normalize, penalty, mass, method)
    if len(problem) != 1:
        raise ValueError(f"p, q: expected one measure each, got {len(problem)}; solve_batch takes many")
    chains = {"n_sweeps": n_sweeps, "schedule": schedule, "pinned": pinned, "diagnostics": diagnostics, "tau": tau}
    partial = penalty is not None or mass is not None
    limits = _limits(max_seconds, max_memory)
    solver = _Solver(method, gap, warm_start, {**chains, "seed": seed, **removed}, n_jobs, verbose, partial, limits)
    result = solver(problem)
    result.single, result.seconds = True, time.perf_counter() - begun
    return result


@overload
def solve_batch(P: Any, Q: Any, cost: Sequence[Cost], **options: Any) -> OTResultList: ...
@overload
def solve_batch(P: Any, Q: Any, cost: Cost | ArrayLike, **options: Any) -> OTResult: ...
def solve_batch(
    P: Any,
    Q: Any,
    cost: Cost | ArrayLike | Sequence[Cost],
    *,
    method: str = "exact",
    gap: float | None = None,
    normalize: bool = False,
    penalty: float | None = None,
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
    **removed: Any,
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
    **removed
        As for `solve`.

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
    chains = {"n_sweeps": n_sweeps, "schedule": schedule, "pinned": pinned, "diagnostics": diagnostics, "tau": tau}
    options, partial = {**chains, "seed": seed, "ids": ids, **removed}, penalty is not None or mass is not None
    limits = _limits(max_seconds, max_memory)
    solver = _Solver(method, gap, warm_start, options, n_jobs, verbose, partial, limits)
    result: OTResult | OTResultList
    if isinstance(cost, Sequence) and len(cost) and all(isinstance(one, Cost) for one in cost):
        rows = _rows(P, "P", len(cost)), _rows(Q, "Q", len(cost))
        names = [(f"P[{b}]", f"Q[{b}]") for b in range(len(cost))]
        every = [_problem(*one, normalize, penalty, mass, method) for one in zip(*rows, cost, names, strict=True)]
        if [b for b, problem in enumerate(every) if len(problem) != 1]:
            raise ValueError("P, Q: expected one measure for each cost, got several")
        result = solver.each(every)
    else:
        result = solver(_problem(P, Q, cast("Cost | ArrayLike", cost), ("P", "Q"), normalize, penalty, mass, method))
    result.seconds = time.perf_counter() - begun
    return result


def _problem(
    p: Any,
    q: Any,
    cost: Cost | ArrayLike,
    names: tuple[str, str],
    normalize: bool,
    penalty: float | None,
    mass: float | None,
    method: str,
) -> Problem:
    """Return balanced problems, with one more point on either side where mass may be left over."""
    validation.flag(normalize, "normalize")
    if penalty is None and mass is None:
        return make_problem(p, q, cost, names, normalize)
    if normalize:
        raise ValueError("normalize: masses matter where some may be left over; expected False with penalty or mass")
    cost = as_cost(cost)
    return partial_problem(*pairs(p, q, cost, names), cost, penalty, mass, method == "exact")


def _rows(x: Any, name: str, n: int) -> Any:
    """Return one measure for each cost."""
    if x is not None and len(x) != n:
        raise ValueError(f"{name}: expected one measure for each of the {n} costs, got {len(x)}")
    return [None] * n if x is None else x


@dataclass(eq=False)
class _Solver:
    """Solves problems by a method, with the options of `solve`."""

    method: str
    gap: float | None
    warm_start: Any
    chains: dict[str, Any]  # options of the sampler; afterwards those that were given
    n_jobs: int | None
    verbose: bool
    partial: bool
    limits: tuple[float, float]  # seconds and bytes

    def __post_init__(self) -> None:
        self.chains = {name: x for name, x in self.chains.items() if x is not None and x is not False}
        for name in self.chains:
            if name in _REMOVED:
                raise TypeError(f"{name}: was removed; {_REMOVED[name]}")
            if name not in _CHAINS:
                raise TypeError(f"{name}: is no argument of solve or solve_batch")
        native.threads(self.n_jobs)
        if validation.choice(self.method, "method", ("exact", "gibbs")) == "exact":
            if self.chains:
                name = next(iter(self.chains))
                raise ValueError(f"{name}: is an option of the sampler; expected method='gibbs' with it")
        elif self.gap is not None:
            raise ValueError("gap: the sampler's estimate has no gap; expected it with method='exact' only")
        if self.gap is not None:
            validation.positive(self.gap, "gap")

    def __call__(self, problem: Problem) -> OTResult:
        """Solve a batch of problems that share a cost."""
        with self._run(len(problem)) as run:
            return self._solve(problem, run)

    def _run(self, n: int) -> AbstractContextManager[Run]:
        """Return the run of a call with n problems."""
        seconds, memory = self.limits
        threads = max(1, native.threads(self.n_jobs) // n)
        label, endless = ("transport", True) if self.method == "exact" else ("Gibbs-OT", False)
        return reported_run(label, self.verbose, endless, max_seconds=seconds, max_memory=memory, threads=threads)

    def _solve(self, problem: Problem, run: Run) -> OTResult:
        """Solve a batch of problems within a run."""
        warm = self.warm_start
        if warm is not None:
            _check_warm_start(warm, problem, self.chains)
        if self.method == "gibbs":
            sample = None if warm is None else _sample(warm)
            solver = GibbsSolver(warm_start=sample, n_jobs=self.n_jobs, run=run, **self.chains)
            return self._result(problem, None, solver(problem), 0.0)
        if run.max_memory < np.inf:
            _check_memory(memory_needed(problem, self.n_jobs), run.max_memory)
        U, basis = (None, None) if warm is None else (np.atleast_2d(warm.U), warm.solved)
        solutions = cross(problem, U, n_jobs=self.n_jobs, gap=self.gap or 0.0, warm_start=basis, run=run)
        if open_gaps := [solution for solution in solutions if solution.status not in PROVED]:
            _warn(open_gaps, len(solutions))
        return self._result(problem, solutions, None, 0.0)

    @property
    def _result(self) -> type[OTResult]:
        """The class of the results."""
        return PartialResult if self.partial else OTResult

    def each(self, problems: list[Problem]) -> OTResultList:
        """Solve problems with costs of their own, in threads."""
        warm = self.warm_start
        if warm is not None and len(warm) != len(problems):
            raise ValueError(f"warm_start: has {len(warm)} problems; expected {len(problems)}")
        ids = self.chains.get("ids", range(len(problems)))

        def work(b: int) -> OTResult:
            begun = time.perf_counter()
            chains = {**self.chains, "ids": [ids[b]]} if self.method == "gibbs" and warm is None else self.chains
            one = replace(self, chains=chains, n_jobs=None, warm_start=None if warm is None else warm[b])
            result = one._solve(problems[b], run)
            result.single, result.seconds = True, time.perf_counter() - begun
            return result

        with self._run(len(problems)) as run:
            return OTResultList(in_threads(work, range(len(problems)), self.n_jobs), 0.0)


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


def _limits(max_seconds: float | None, max_memory: float | None) -> tuple[float, float]:
    """Return the time and the memory of a solve; infinite where none is given."""
    limits = {"max_seconds": max_seconds, "max_memory": max_memory}
    seconds, memory = (math.inf if x is None else validation.positive(x, name) for name, x in limits.items())
    return seconds, memory


def _check_memory(needed: float, most: float) -> None:
    """Refuse problems that need more memory than allowed."""
    if needed > most:
        raise ValueError(
            f"max_memory: this takes about {needed:.2g} bytes, more than the {most:.2g} allowed; "
            "expected more memory, fewer points or fewer n_jobs"
        )


def _warn(open_gaps: list[Solution], n: int) -> None:
    """Warn of problems whose gap stays open."""
    from sklearn.exceptions import ConvergenceWarning  # loading scikit-learn takes a second

    worst = max((s.upper - s.lower) / abs(s.value) if s.value else np.inf for s in open_gaps)
    if any(solution.status == "budget spent" for solution in open_gaps):
        advice = "Allow more time or memory, or ask for a gap"
    else:
        advice = "Scale or shift the costs so that rounding matters less"
    warnings.warn(
        f"{len(open_gaps)} of {n} problems ended with an open gap, the largest is {worst:.1e} of the "
        f"value; the bounds of the result are valid. {advice}",
        ConvergenceWarning,
        stacklevel=6,
    )
