"""The annealed Gibbs sampler as a solver: an object that holds its options and is called with a problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import validation
from ..core.problems import Problem, dual_value, inner, transforms
from ..io import progress
from ..sampling import sampler, theory
from ..sampling.annealing.staged import StagedCooling
from ..sampling.sampler import Info, State
from ..sampling.schedules import Adaptive, Schedule, temperatures
from .crossover import effort
from .exact import cross, methods
from .results import OTResult

Array = NDArray[np.float64]

_SWEEPS = 8000
_TAU = 5  # the lag of the mixing test at the last temperature
_EXACT_BIAS = 0.01  # relative, of chains that are warm-started from an exact result
_ETA_EXACT = 0.3  # eta before a crossover, which needs no precise estimate
_FIRST_ROUND, _ROUND_GROWTH = 250, 4  # sweeps of the first annealing for a gap, and their growth from round to round
_LEAST_GAP = 1000  # in units of the precision: a smaller gap cannot be certified


@dataclass(frozen=True, eq=False)
class GibbsSolver:
    """Solves batches of transport problems; the options are those of `solve` and `solve_batch`.

    Attributes
    ----------
    n_sweeps, schedule, warm_start, gap, exact, pinned, diagnostics, seed, verbose
        As for `solve`.
    ids, n_jobs
        As for `solve_batch`.
    """

    n_sweeps: int | None = None
    schedule: Schedule | None = None
    warm_start: OTResult | None = None
    gap: float | None = None
    exact: bool = False
    pinned: bool = False
    diagnostics: bool = False
    seed: int | None = None
    ids: ArrayLike | None = None
    n_jobs: int | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        for name in ("pinned", "exact", "diagnostics"):
            validation.flag(getattr(self, name), name)
        if self.n_sweeps is not None:
            validation.count(self.n_sweeps, "n_sweeps")
        if self.diagnostics and self.pinned:
            raise ValueError("diagnostics: the theory is about chains that are not pinned; expected pinned=False")
        self._check_warm_start()
        if self.gap is not None:
            validation.positive(self.gap, "gap")
            if self.exact or self.diagnostics or self.warm_start is not None or self._given:
                raise ValueError(
                    "gap: requires the adaptive schedule, without exact, diagnostics, warm_start or temperatures"
                )

    def _check_warm_start(self) -> None:
        if self.warm_start is None:
            return
        if not isinstance(self.warm_start, OTResult):
            raise TypeError(f"warm_start: expected an OTResult, got {type(self.warm_start).__name__}")
        for name in ("ids", "seed"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: a warm start keeps those of its result; leave it out")

    def __call__(self, problem: Problem) -> OTResult:
        """Solve a batch of problems.

        Parameters
        ----------
        problem : Problem
            The problems, which share a cost.

        Returns
        -------
        OTResult
        """
        return self._solve_once(problem) if self.gap is None else self._solve_to_gap(problem, self.gap)

    @property
    def _given(self) -> bool:
        """Whether the temperatures are given, not adaptive."""
        return self.schedule is not None and not isinstance(self.schedule, Adaptive)

    def _solve_to_gap(self, problem: Problem, gap: float) -> OTResult:
        """Anneal with more and more sweeps until the certified gap is small enough."""
        dtype = problem.cost.dtype
        least = _LEAST_GAP * np.finfo(dtype).eps
        if gap < least:
            other = "; use a cost in float64" if dtype == np.float32 else "; use exact=True"
            raise ValueError(f"gap: {gap:.3g} is below {least:.1g}, what {dtype} can certify{other}")
        budget = _SWEEPS if self.n_sweeps is None else int(self.n_sweeps)
        sweeps, done = min(_FIRST_ROUND, budget), 0
        while True:
            result = replace(self, gap=None, n_sweeps=sweeps)._solve_once(problem)
            done += result.n_sweeps
            result = replace(result, gap_target=float(gap), n_sweeps=done)
            if (result.gap <= gap).all() or sweeps == budget:
                return result
            sweeps = min(_ROUND_GROWTH * sweeps, budget)

    def _solve_once(self, problem: Problem) -> OTResult:
        """Anneal once, then cross over to the exact optimum if that is wanted."""
        if self.exact and self._only_exact and "crossover" not in (chosen := methods(problem)):
            return self._solve_exactly(problem, chosen)
        warm = self.warm_start
        sampled = _in_single_precision(problem) if self.exact and warm is None else problem
        seed = 0 if self.seed is None else self.seed
        start = sampler.init(sampled, seed, self.ids) if warm is None else _warm_state(warm, problem)
        with progress.bar("Gibbs-OT", self.verbose) as advance:
            chains = _Chains(start, sampled, self, advance)
            T = self._run(chains, effort(problem.cost)[0] if self.exact else _SWEEPS)
        state, info = chains.state, chains.last._replace(history=_joined(chains.histories))
        done = state.sweep - start.sweep
        recent = np.maximum(done[:, None] - 1 - np.arange(_TAU, -1, -1), 0)
        mixed = sampler.mixed(np.take_along_axis(info.history, recent, axis=1), T, _TAU)
        crossings = cross(problem, info.U, n_jobs=self.n_jobs) if self.exact else None
        seen = theory.trace(start, sampled, np.concatenate(chains.T, axis=1))[1] if self.diagnostics else None
        return OTResult(problem, state, info, T, done, (done > _TAU) & mixed, crossings, diagnostics=seen)

    @property
    def _only_exact(self) -> bool:
        """Whether no option concerns the chains."""
        chains = self.n_sweeps, self.schedule, self.warm_start
        return all(option is None for option in chains) and not (self.diagnostics or self.pinned)

    def _solve_exactly(self, problem: Problem, chosen: list[str]) -> OTResult:
        """Solve without annealing; the chains of the result start from the optimal potentials."""
        crossings = cross(problem, None, n_jobs=self.n_jobs, chosen=chosen)
        U, L = np.stack([c.f for c in crossings]), -np.stack([c.g for c in crossings])
        shift = inner(problem.p, U)[:, None]  # U of a chain is centred
        U, L = ((x - shift).astype(problem.cost.dtype) for x in (U, L))
        value = np.array([c.value for c in crossings])
        start = sampler.init(problem, 0 if self.seed is None else self.seed, self.ids)
        state = State(np.where(problem.q > 0, L, np.inf), start.sweep, start.seed, start.ids)
        done = np.zeros(len(problem), np.int64)
        points = np.count_nonzero(problem.p, axis=1) + np.count_nonzero(problem.q, axis=1)
        # V(z) exceeds V(g, h) by this share of the value, or of the potentials if that is larger
        size = np.maximum(np.abs(value), _EXACT_BIAS * (np.ptp(U, axis=1) + np.ptp(L, axis=1)))
        T = np.maximum(_EXACT_BIAS * size / points, 1e20 * np.finfo(problem.cost.dtype).tiny)
        info = Info(U, L, U, value, value, np.empty((len(problem), 0)))
        return OTResult(problem, state, info, T, done, np.array([c.optimal for c in crossings]), crossings)

    def _run(self, chains: _Chains, default: int) -> Array:
        """Run the chains through their temperatures; return the last ones."""
        total = default if self.n_sweeps is None else int(self.n_sweeps)
        warm = None if self.warm_start is None else np.atleast_1d(self.warm_start.temperature)
        if self.schedule is not None and not isinstance(self.schedule, Adaptive):
            given = temperatures(self.schedule, self.n_sweeps)
            chains.total = len(given)
            chains.run(given)
            return np.full(len(chains.problem), given[-1])
        chains.total = total
        if warm is not None and self.schedule is None:
            chains.hold(warm, total, tau=_TAU)
            return warm
        eta = self.schedule.eta if self.schedule is not None else _ETA_EXACT if self.exact else Adaptive().eta
        return _anneal(chains, StagedCooling(eta), total, warm)


@dataclass
class _Chains:
    """The chains of a batch during a solve, and what they have shown."""

    state: State
    problem: Problem
    options: GibbsSolver
    advance: Callable[..., None]
    last: Info = field(init=False)
    total: int = 1  # sweeps, for the progress bar
    histories: list[Array] = field(default_factory=list)
    T: list[Array] = field(default_factory=list)  # the temperatures of all sweeps, for a trace

    def run(self, T: Array, tau: int = 0) -> None:
        """Do one sweep for each temperature."""
        share, options = np.shape(T)[-1] / self.total, self.options
        if options.diagnostics:
            tau = 0  # a trace needs every sweep of every problem
            self.T.append(np.broadcast_to(T, (len(self.problem), np.shape(T)[-1])))
        self.state, self.last = sampler.run(
            self.state,
            self.problem,
            T,
            tau=tau,
            pinned=options.pinned,
            n_jobs=options.n_jobs,
            progress=lambda done: self.advance(done * share),
        )
        self.histories.append(self.last.history)

    def hold(self, T: Array, n_sweeps: int, tau: int = 0) -> None:
        """Do sweeps at one temperature for each problem."""
        self.run(np.repeat(T[:, None], n_sweeps, axis=1), tau)


def _anneal(chains: _Chains, policy: StagedCooling, total: int, T: Array | None) -> Array:
    """Cool in stages; return the last temperatures."""
    problem, n_jobs = chains.problem, chains.options.n_jobs
    points = np.count_nonzero(problem.p, axis=1) + np.count_nonzero(problem.q, axis=1)
    scale, floor = _scale(problem, n_jobs)
    cooling = policy.init(scale, points, total, T)
    (first, *others), hold = policy.lengths(total)
    chains.hold(cooling.T, first)
    for length in others:
        before, h = chains.last, chains.state.h
        chains.run(cooling.T[:, None])
        bound = theory.sampled_bound(problem, before.L, h, chains.last.value, cooling.T, n_jobs)
        cooling = policy.update(cooling, bound, policy.level(before.history) - floor)
        chains.hold(cooling.T, length - 1)
    if hold:
        chains.hold(cooling.T, hold, tau=_TAU)
    return cooling.T


def _scale(problem: Problem, n_jobs: int | None) -> tuple[Array, Array]:
    """Return how far W may be above the bound by the nearest points, and that bound; both scale with the cost."""
    floor = dual_value(problem, *transforms(problem, np.where(problem.q > 0, 0.0, np.inf), n_jobs))
    mean = problem.cost.mean(problem.p, problem.q, n_jobs)
    limits = np.finfo(problem.cost.dtype)
    return np.maximum(mean - floor, np.maximum(limits.eps * np.abs(mean), 1e20 * limits.tiny)), floor


def _in_single_precision(problem: Problem) -> Problem:
    """Return the problem in single precision, which suffices to find the arcs, if its costs can be represented."""
    try:
        return Problem(problem.p, problem.q, problem.cost.astype(np.float32))
    except ValueError:
        return problem


def _warm_state(warm_start: OTResult, problem: Problem) -> State:
    """Return the chains of a result for measures that may have changed."""
    before: Any = warm_start.problem
    if len(before) != len(problem) or before.cost.shape != problem.cost.shape:
        raise ValueError(
            f"warm_start: has {len(before)} problems of {before.cost.shape[0]} x {before.cost.shape[1]} points; "
            f"expected {len(problem)} of {problem.cost.shape[0]} x {problem.cost.shape[1]}"
        )
    # a point that had no weight has no h: its bound L replaces it, or 0 where nothing that had weight could reach it
    L = np.where(np.isfinite(warm_start.info.L), warm_start.info.L, 0)
    h = np.where(np.isfinite(warm_start.state.h), warm_start.state.h, L)
    h = np.where(problem.q > 0, h, np.inf).astype(problem.cost.dtype)
    return State(h, warm_start.state.sweep, warm_start.state.seed, warm_start.state.ids)


def _joined(histories: list[Array]) -> Array:
    """Return the history of all sweeps, without those that no problem needed."""
    history = np.concatenate(histories, axis=1)
    needed = np.flatnonzero(~np.isnan(history).all(axis=0))
    return history[:, : needed[-1] + 1]
