"""The options of `solve` and `solve_batch` as one object, which checks them and is called with problems."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core import native, validation
from ..costs import Cost, as_cost
from ..costs.problems import Problem, pairs
from ..costs.problems import problem as make_problem
from ..exact.feasibility import rounded_apart
from ..exact.methods import KEPT_BYTES, cross, in_threads, memory_needed
from ..exact.solution import INFEASIBLE, Solution
from ..io.budget import Budget, reported_budget
from ..sampling.gibbs import SWEEPS, GibbsSolver, Sample, memory_of_chains, sample_of
from ..sampling.schedules import Schedule
from .relaxed import LeftOver, PartialResult, Penalty, refitted, start_from
from .result import OTResult, OTResultList

_CHAINS = ("n_sweeps", "schedule", "pinned", "diagnostics", "tau", "seed", "ids")


@dataclass(eq=False)
class Options:
    """The options of `solve` and `solve_batch`.

    Attributes
    ----------
    method, gap, normalize, penalty, mass, max_seconds, max_memory, warm_start, n_jobs, verbose
        As for `solve`.
    n_sweeps, schedule, pinned, diagnostics, tau, seed
        As for `solve`.
    ids
        As for `solve_batch`.
    chains : dict
        The options of the sampler that were given.
    """

    method: str = "exact"
    gap: float | None = None
    normalize: bool = False
    penalty: Penalty | None = None
    mass: float | None = None
    max_seconds: float | None = None
    max_memory: float | None = None
    warm_start: Any = None
    n_sweeps: int | None = None
    schedule: Schedule | None = None
    pinned: bool = False
    diagnostics: bool = False
    tau: int | None = None
    seed: int | None = None
    n_jobs: int | None = None
    verbose: bool = False
    ids: ArrayLike | None = None
    chains: dict[str, Any] = field(init=False)

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> Options:
        """Return the options among the arguments of a call, after a check.

        Parameters
        ----------
        arguments : dict
            All arguments by name.

        Returns
        -------
        Options
        """
        given = {name: arguments[name] for name, x in _DEFAULTS if arguments.get(name, x) is not x}
        if not given:
            return _PLAIN
        if all(type(x) in (bool, int, float, str) for x in given.values()):
            return _checked(tuple([(name, type(x), x) for name, x in given.items()]))
        return cls(**given)

    def __post_init__(self) -> None:
        given = ((name, getattr(self, name)) for name in _CHAINS)
        self.chains = {name: x for name, x in given if x is not None and x is not False}
        native.threads(self.n_jobs)
        validation.flag(self.normalize, "normalize")
        if validation.choice(self.method, "method", ("exact", "gibbs")) == "exact":
            for name in self.chains:
                raise ValueError(f"{name}: is an option of the sampler; expected method='gibbs' with it")
        elif self.gap is not None:
            raise ValueError("gap: the sampler's estimate has no gap; expected it with method='exact' only")
        if self.gap is not None:
            validation.nonnegative(self.gap, "gap")
        for name in ("max_seconds", "max_memory"):
            if (x := getattr(self, name)) is not None:
                validation.positive(x, name)
        if self.partial and self.normalize:
            raise ValueError(
                "normalize: masses matter where some may be left over; expected False with penalty or mass"
            )

    @property
    def partial(self) -> bool:
        """Whether mass may be left over."""
        return self.penalty is not None or self.mass is not None

    def cost(self, cost: Any) -> tuple[Cost, float]:
        """Return the cost, and the bytes of the matrix that it has and the argument has not."""
        if isinstance(cost, Cost):
            return cost, 0.0
        copied = 0.0
        with suppress(TypeError, IndexError, KeyError):  # where this is no matrix, `as_cost` says so
            if isinstance(cost, np.ndarray):
                copied = (4.0 if cost.dtype == np.float32 else 8.0) * cost.size
            else:
                copied = 16.0 * len(cost) * len(cost[0])  # an array, and that of the cost
        self._allow(copied)
        return as_cost(cost), copied

    def problem(self, p: Any, q: Any, cost: Cost, names: tuple[str, str]) -> Problem:
        """Return balanced problems, with additional points on either side where mass may be left over."""
        if not self.partial:
            return make_problem(p, q, cost, names, self.normalize)
        relaxed, exact = LeftOver(cost, self.penalty, self.mass), self.method == "exact"
        self._allow(relaxed.memory if exact else 24.0 * (cost.shape[0] + 1) * (cost.shape[1] + 1))
        return relaxed.problem(*pairs(p, q, cost, names), exact=exact)

    def solve(self, problem: Problem, copied: float = 0.0) -> OTResult:
        """Solve a batch of problems that share a cost, for which so many bytes were copied."""
        self._check_memory([problem], copied)
        with self._budget(len(problem)) as budget:
            return self._solve(problem, budget)

    def solve_each(self, problems: list[Problem], copied: float = 0.0) -> OTResultList:
        """Solve problems with costs of their own, for which so many bytes were copied, in threads."""
        warm, ids = self.warm_start, self.chains.get("ids", range(len(problems)))
        for name, x in (("warm_start", warm), ("ids", ids)):
            if x is not None and len(x) != len(problems):
                raise ValueError(f"{name}: has {len(x)} entries; expected one for each of the {len(problems)} problems")
        self._check_memory(problems, copied)

        def work(b: int) -> OTResult:
            begun = time.perf_counter()
            own = [ids[b]] if self.method == "gibbs" and warm is None else self.ids
            one = replace(self, ids=own, n_jobs=None, warm_start=None if warm is None else warm[b])
            result = one._solve(problems[b], budget)
            result.single, result.seconds = True, time.perf_counter() - begun
            return result

        with self._budget(len(problems)) as budget:
            return OTResultList(in_threads(work, range(len(problems)), self.n_jobs), 0.0)

    def _budget(self, n: int) -> AbstractContextManager[Budget]:
        """Return the run of a call with n problems."""
        label, endless = ("transport", True) if self.method == "exact" else ("Gibbs-OT", False)
        seconds = math.inf if self.max_seconds is None else float(self.max_seconds)
        memory = math.inf if self.max_memory is None else float(self.max_memory)
        threads = max(1, native.threads(self.n_jobs) // n)
        return reported_budget(label, self.verbose, endless, max_seconds=seconds, max_memory=memory, threads=threads)

    def _solve(self, problem: Problem, budget: Budget) -> OTResult:
        """Solve a batch of problems within a budget."""
        warm, result = self.warm_start, PartialResult if self.partial else OTResult
        if warm is not None:
            _check_warm_start(warm, problem, self.chains)
        if self.method == "gibbs":
            start = None if warm is None else _sample(warm, problem)
            sample = GibbsSolver(warm_start=start, n_jobs=self.n_jobs, budget=budget, **self.chains)(problem)
            cut = budget.spent and bool((sample.n_sweeps < (self.n_sweeps or SWEEPS)).any())
            return result(problem, None, sample, 0.0, cut=cut)
        U, basis = (None, None) if warm is None else start_from(warm, problem)
        try:
            solutions = cross(problem, U, n_jobs=self.n_jobs, gap=self.gap or 0.0, warm_start=basis, budget=budget)
        except ValueError as error:
            if not str(error).startswith(INFEASIBLE) or (reason := rounded_apart(problem)) is None:
                raise
            raise ValueError(reason) from None
        _check_range(problem, solutions)
        return result(problem, solutions, None, 0.0)

    def _check_memory(self, problems: list[Problem], copied: float) -> None:
        """Refuse problems that need more memory than allowed; as many are solved at once as there are threads."""
        if self.max_memory is None:
            return
        if self.method == "gibbs":
            needed = [memory_of_chains(problem, self.n_sweeps or SWEEPS) for problem in problems]
        else:
            needed = [memory_needed(problem, self.n_jobs) for problem in problems]
        at_once = sum(sorted(needed)[-native.threads(self.n_jobs) :])
        kept = KEPT_BYTES * sum(sum(problem.cost.shape) for problem in problems) if len(problems) > 1 else 0.0
        self._allow(copied + at_once + kept)

    def _allow(self, needed: float) -> None:
        """Refuse work that needs so many bytes if that is more than allowed."""
        if self.max_memory is not None and needed > self.max_memory:
            raise ValueError(
                f"max_memory: this takes about {needed:.2g} bytes, more than the {self.max_memory:.2g} allowed; "
                "expected more memory, fewer points or fewer n_jobs"
            )


_DEFAULTS = [(name, x.default) for name, x in Options.__dataclass_fields__.items() if x.init]
_PLAIN = Options()


@lru_cache(maxsize=64)
def _checked(given: tuple[tuple[str, type, Any], ...]) -> Options:
    """Return options after a check, which takes as long as a part of a small problem and is done once."""
    return Options(**{name: x for name, _, x in given})


def _check_range(problem: Problem, solutions: list[Solution]) -> None:
    """Refuse problems whose transport cost is no double."""
    for mass, one in zip(problem.mass.tolist(), solutions, strict=True):
        if mass > 1 and math.isfinite(one.upper) and not math.isfinite(2 * mass * one.scale):
            raise ValueError(
                f"p, q: a mass of {mass:.3g} at a mean cost of {one.scale:.3g} is beyond the range of doubles; "
                "expected smaller weights or costs"
            )


def _check_warm_start(warm_start: Any, problem: Problem, given: dict[str, Any]) -> None:
    """Refuse a warm start from another kind of problem, or with other noise."""
    if not isinstance(warm_start, OTResult):
        raise TypeError(f"warm_start: expected an OTResult, got {type(warm_start).__name__}")
    for name in ("ids", "seed"):
        if name in given:
            raise ValueError(f"{name}: a warm start keeps those of its result; leave it out")
    before = warm_start.problem
    if type(before) is not type(problem):
        raise ValueError("warm_start: expected a result with penalty or mass if and only if one of them is given")
    if len(before) != len(problem) or before.size != problem.size:
        raise ValueError(
            f"warm_start: has {len(before)} problems of {before.size[0]} x {before.size[1]} points; "
            f"expected {len(problem)} of {problem.size[0]} x {problem.size[1]}"
        )


def _sample(result: OTResult, problem: Problem) -> Sample:
    """Return the chains of a result, or some that start from its potentials, for the points of a problem."""
    sample = result.sample
    if sample is None:
        f, g, value = (np.stack(x) for x in zip(*((s.f, s.g, s.value) for s in result.solved or ()), strict=True))
        sample = sample_of(result.problem, f, g, value)
    h, L = (refitted(x, problem, 1) for x in (sample.state.h, sample.info.L))
    return sample._replace(state=replace(sample.state, h=h), info=sample.info._replace(L=L))
