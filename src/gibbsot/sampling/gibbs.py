"""The annealed Gibbs sampler as a method of `solve`: an object that has its options and runs the chains of problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..core import validation
from ..costs.problems import Problem, dual_value, inner, transforms
from ..io.budget import Budget
from . import sampler, theory
from .annealing.staged import StagedCooling
from .sampler import Info, State
from .schedules import Adaptive, Schedule, temperatures
from .theory import Trace

Array = NDArray[np.float64]

SWEEPS = 8000  # by default
MOST_SWEEPS, MOST_LAG = 2**26, 1_000_000  # each sweep has an entry in the history, each lag in the mixing test
_EXACT_BIAS = 0.01  # relative, of chains that are warm-started from an exact result


class Sampled(NamedTuple):
    """What the chains of a batch of problems have shown.

    Attributes
    ----------
    state : State
        The chains, which a warm start continues.
    info : Info
        What the last sweep showed, and V(z) of every sweep.
    temperature : array of shape (n,)
        The last temperatures.
    n_sweeps : array of int, shape (n,)
        The sweeps done.
    mixed : array of bool, shape (n,)
        Whether the paper's mixing test held at the end.
    diagnostics : theory.Trace or None
        The quantities of the paper's appendix.
    """

    state: State
    info: Info
    temperature: Array
    n_sweeps: NDArray[np.int64]
    mixed: NDArray[np.bool_]
    diagnostics: Trace | None = None

    def rows(self, rows: slice) -> Sampled:
        """Return what some of the chains have shown."""
        return Sampled(
            self.state[rows],
            Info._make(x[rows] for x in self.info),
            self.temperature[rows],
            self.n_sweeps[rows],
            self.mixed[rows],
            None if self.diagnostics is None else Trace._make(x[rows] for x in self.diagnostics),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Gibbs:
    r"""The paper's annealed Gibbs sampler as a method of `solve` and `solve_batch`, with its options.

    At temperature T it draws potentials of the dual problem,

    .. math:: (g, h) \sim \exp\!\big( (\langle p, g \rangle - \langle q, h \rangle) / T \big),
        \quad g_i - h_j \le M_{ij},

    and cools. Each sweep has an estimate V(z) of W(p, q); the last one is the value of the result.

    Parameters
    ----------
    n_sweeps : int, optional
        The largest number of sweeps, 8,000 by default, or as many as the schedule has temperatures. Fewer are faster
        and less precise.
    schedule : Adaptive, number, array or function, optional
        By default the cooling adapts to the problem, `schedules.Adaptive()`. Otherwise the temperature, in units of the
        cost: of all sweeps, of each, or as a function of the sweep's number from 1.
    tau : int
        The lag of the mixing test in sweeps: see `sampler.mixed`.
    stride : int
        The number of sweeps from one mixing test to the next. The paper tests every tau sweeps.
    pinned : bool
        Keep g = 0 at the first point with weight, the paper's Omega_0.
    diagnostics : bool
        Evaluate every half step of the run as the paper's appendix does: ``diagnostics`` of the result is then a
        `theory.Trace`. Every half step costs O(m1 m2 log(m1 m2)): for small problems.
    rng : int or numpy.random.Generator, optional
        The key of the noise, 0 by default; a generator draws one for each solve. A warm start keeps the key of its
        result.

    Raises
    ------
    ValueError, TypeError
        If options are not valid, or chains with diagnostics are pinned.

    Examples
    --------
    >>> from gibbsot import Gibbs, solve
    >>> result = solve([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]], method=Gibbs(n_sweeps=2000, rng=1))
    >>> round(result.value, 2), result.status  # W is 0.25
    (0.25, 'estimate')
    """

    n_sweeps: int | None = None
    schedule: Schedule | None = None
    tau: int = 5
    stride: int = 1
    pinned: bool = False
    diagnostics: bool = False
    rng: int | np.random.Generator | None = None

    def __post_init__(self) -> None:
        for name in ("pinned", "diagnostics"):
            validation.flag(getattr(self, name), name)
        if self.n_sweeps is not None:
            validation.count(self.n_sweeps, "n_sweeps", MOST_SWEEPS)
        for name in ("tau", "stride"):
            validation.count(getattr(self, name), name, MOST_LAG)
        if self.diagnostics and self.pinned:
            raise ValueError("diagnostics: the theory is about chains that are not pinned; expected pinned=False")
        validation.check_rng(self.rng)

    @property
    def most_sweeps(self) -> int:
        """The largest number of sweeps."""
        return SWEEPS if self.n_sweeps is None else self.n_sweeps

    def sample(
        self,
        problem: Problem,
        *,
        start: Sampled | None = None,
        ids: ArrayLike | None = None,
        n_jobs: int | None = None,
        budget: Budget | None = None,
    ) -> Sampled:
        """Run the chains of a batch of problems.

        Parameters
        ----------
        problem : Problem
            The problems, which share a cost.
        start : Sampled, optional
            The chains to continue.
        ids : array of int, optional
            Numbers of the problems, which determine their noise together with the key; by default their indices.
        n_jobs : int, optional
            Threads over the problems.
        budget : Budget, optional
            Its time, after which the chains end, and its report of progress.

        Returns
        -------
        Sampled
        """
        first = sampler.init(problem, self.rng, ids) if start is None else _warm_state(start, problem)
        chains = _Chains(first, problem, self, n_jobs, budget or Budget())
        T = self._run(chains, None if start is None else start.temperature)
        state, done = chains.state, chains.state.sweep - first.sweep
        history = np.concatenate(chains.histories, axis=1)[:, : done.max()]  # without sweeps that no problem needed
        info = chains.last._replace(history=history)
        recent = np.maximum(done[:, None] - 1 - np.arange(self.tau, -1, -1), 0)
        mixed = sampler.mixed(np.take_along_axis(info.history, recent, axis=1), T, self.tau)
        seen = theory.trace(first, problem, np.concatenate(chains.T, axis=1))[1] if self.diagnostics else None
        return Sampled(state, info, T, done, (done > self.tau) & mixed, seen)

    def _run(self, chains: _Chains, warm: Array | None) -> Array:
        """Run the chains through their temperatures, from those of a warm start; return the last ones."""
        if self.schedule is not None and not isinstance(self.schedule, Adaptive):
            given = temperatures(self.schedule, self.n_sweeps)
            chains.total = len(given)
            chains.run(given)
            return np.full(len(chains.problem), given[-1])
        chains.total = self.most_sweeps
        if warm is not None and self.schedule is None:
            chains.hold(warm, chains.total, tau=self.tau)
            return warm
        eta = Adaptive().eta if self.schedule is None else self.schedule.eta
        return _anneal(chains, StagedCooling(eta), chains.total, warm)


def memory_of_chains(problem: Problem, n_sweeps: int = SWEEPS) -> float:
    """Return an estimate of the bytes that chains need beyond the cost and the measures.

    The chains and their history, and the matrix that sweeps read, if there is one.

    Parameters
    ----------
    problem : Problem
        The problems.
    n_sweeps : int
        The largest number of sweeps.

    Returns
    -------
    float

    Examples
    --------
    >>> from gibbsot import DenseCost, Problem
    >>> memory_of_chains(Problem([1, 1], [1, 1], DenseCost([[0, 1], [1, 0]])), 10)
    912.0
    """
    cost, n = problem.cost, len(problem)
    return n * (160.0 * sum(cost.shape) + 24 * n_sweeps) + cost.operand_memory()


def sample_of(problem: Problem, f: Array, g: Array, value: Array) -> Sampled:
    """Return chains that start from optimal potentials and values, at a temperature of small bias."""
    U, L = f, -g
    shift = inner(problem.p, U)[:, None]  # U of a chain is centred
    U, L = ((x - shift).astype(problem.cost.dtype) for x in (U, L))
    start, none = sampler.init(problem), np.zeros(len(problem), np.int64)
    state = State(np.where(problem.q > 0, L, np.inf), start.sweep, start.key, start.ids)
    points = np.count_nonzero(problem.p, axis=1) + np.count_nonzero(problem.q, axis=1)
    # V(z) exceeds V(g, h) by this share of the value, or of the potentials if that is larger
    size = np.maximum(np.abs(value), _EXACT_BIAS * (np.ptp(U, axis=1) + np.ptp(L, axis=1)))
    T = np.maximum(_EXACT_BIAS * size / points, 1e20 * np.finfo(problem.cost.dtype).tiny)
    info = Info(U, L, U, value, value, np.empty((len(problem), 0)))
    return Sampled(state, info, T, none, none == 0)


@dataclass
class _Chains:
    """The chains of a batch during a solve, and what they have shown."""

    state: State
    problem: Problem
    options: Gibbs
    n_jobs: int | None
    budget: Budget
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
            stride=options.stride,
            pinned=options.pinned,
            n_jobs=self.n_jobs,
            progress=lambda done: self.budget.advance(done * share),
            stop=lambda: self.budget.spent,
        )
        self.histories.append(self.last.history)

    def hold(self, T: Array, n_sweeps: int, tau: int = 0) -> None:
        """Do sweeps at one temperature for each problem."""
        self.run(np.repeat(T[:, None], n_sweeps, axis=1), tau)


def _anneal(chains: _Chains, policy: StagedCooling, total: int, T: Array | None) -> Array:
    """Cool in stages; return the last temperatures."""
    problem, n_jobs = chains.problem, chains.n_jobs
    points = np.count_nonzero(problem.p, axis=1) + np.count_nonzero(problem.q, axis=1)
    scale, floor = _scale(problem, n_jobs)
    cooling = policy.init(scale, points, total, T)
    (first, *others), hold = policy.lengths(total)
    chains.hold(cooling.T, first)
    for length in others:
        if chains.budget.spent:
            return cooling.T
        before, h = chains.last, chains.state.h
        chains.run(cooling.T[:, None])
        bound = theory.sampled_bound(problem, before.L, h, chains.last.value, cooling.T, n_jobs)
        cooling = policy.update(cooling, bound, policy.level(before.history) - floor)
        chains.hold(cooling.T, length - 1)
    if hold and not chains.budget.spent:
        chains.hold(cooling.T, hold, tau=chains.options.tau)
    return cooling.T


def _scale(problem: Problem, n_jobs: int | None) -> tuple[Array, Array]:
    """Return how far W may be above the bound by the nearest points, and that bound; both scale with the cost."""
    floor = dual_value(problem, *transforms(problem, np.where(problem.q > 0, 0.0, np.inf), n_jobs))
    mean = problem.cost.mean(problem.p, problem.q, n_jobs)
    limits = np.finfo(problem.cost.dtype)
    return np.maximum(mean - floor, np.maximum(limits.eps * np.abs(mean), 1e20 * limits.tiny)), floor


def _warm_state(sample: Sampled, problem: Problem) -> State:
    """Return the chains of a sample for measures that may have changed."""
    # a point that had no weight has no h: its bound L replaces it, or 0 where nothing that had weight could reach it
    state = sample.state
    L = np.where(np.isfinite(sample.info.L), sample.info.L, 0)
    h = np.where(np.isfinite(state.h), state.h, L)
    h = np.where(problem.q > 0, h, np.inf).astype(problem.cost.dtype)
    return State(h, state.sweep, state.key, state.ids)


def sparse_plans(problem: Problem, U: NDArray[np.floating], L: NDArray[np.floating]) -> list[sparse.csr_array]:
    r"""Return the sparse plan of the paper for each problem.

    .. math:: Z = \tfrac12 \sum_i p_i e_{i, J(i)} + \tfrac12 \sum_j q_j e_{I(j), j}

    where ``J(i)`` attains ``min_j (M_ij + L_j)`` and ``I(j)`` attains ``max_i (U_i - M_ij)``, over the points that have
    weight. It has mass one; its marginals are p and q only in the limit.

    Parameters
    ----------
    problem : Problem
        The problems.
    U, L : arrays of shape (n, m1) and (n, m2)
        Potentials.

    Returns
    -------
    list of scipy.sparse.csr_array of shape (m1, m2)

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import Problem
    >>> pair = Problem([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]])
    >>> sparse_plans(pair, np.zeros((1, 2)), np.zeros((1, 2)))[0].toarray()
    array([[0.5, 0. ],
           [0. , 0.5]])
    """
    plans = []
    for p, q, u, v in zip(problem.p, problem.q, U, L, strict=True):
        rows, columns = np.flatnonzero(p), np.flatnonzero(q)
        J = problem.cost.nearest(np.where(q > 0, v, np.inf))[0][rows, 0]
        I = problem.cost.nearest(np.where(p > 0, -u, np.inf), by_rows=False)[0][columns, 0]  # noqa: E741
        halves = np.concatenate([p[rows], q[columns]]) / 2
        positions = np.concatenate([rows, I]), np.concatenate([J, columns])
        plans.append(sparse.csr_array(sparse.coo_array((halves, positions), shape=problem.cost.shape)))
    return plans
