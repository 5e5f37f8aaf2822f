"""The annealed Gibbs sampler as a solver: an object that holds its options and is called with a problem."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..core import validation
from ..costs import DenseCost, GridCost
from ..costs.base import MATRIX_BYTES
from ..costs.problems import Problem, dual_value, inner, transforms
from ..io.budget import Budget
from . import sampler, theory
from .annealing.staged import StagedCooling
from .sampler import Info, State
from .schedules import Adaptive, Schedule, temperatures
from .theory import Trace

Array = NDArray[np.float64]

SWEEPS, TAU = 8000, 5  # defaults: the largest number of sweeps, and the lag of the mixing test
MOST_SWEEPS, MOST_LAG = 2**26, 1_000_000  # each sweep has an entry in the history, each lag in the mixing test
_EXACT_BIAS = 0.01  # relative, of chains that are warm-started from an exact result


class Sample(NamedTuple):
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

    def rows(self, rows: slice) -> Sample:
        """Return what some of the chains have shown."""
        return Sample(
            self.state[rows],
            Info._make(x[rows] for x in self.info),
            self.temperature[rows],
            self.n_sweeps[rows],
            self.mixed[rows],
            None if self.diagnostics is None else Trace._make(x[rows] for x in self.diagnostics),
        )


@dataclass(frozen=True, eq=False)
class GibbsSolver:
    """Estimates the costs of batches of transport problems; the options are those of `solve` and `solve_batch`.

    Attributes
    ----------
    n_sweeps, schedule, pinned, diagnostics, tau, seed
        As for `solve`.
    warm_start : Sample, optional
        The chains to continue.
    ids, n_jobs
        As for `solve_batch`.
    budget : Budget
        Its time, after which the chains end, and its report of progress.
    """

    n_sweeps: int | None = None
    schedule: Schedule | None = None
    warm_start: Sample | None = None
    pinned: bool = False
    diagnostics: bool = False
    tau: int = TAU
    seed: int = 0
    ids: ArrayLike | None = None
    n_jobs: int | None = None
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        for name in ("pinned", "diagnostics"):
            validation.flag(getattr(self, name), name)
        if self.n_sweeps is not None:
            validation.count(self.n_sweeps, "n_sweeps", MOST_SWEEPS)
        validation.count(self.tau, "tau", MOST_LAG)
        if self.diagnostics and self.pinned:
            raise ValueError("diagnostics: the theory is about chains that are not pinned; expected pinned=False")

    def __call__(self, problem: Problem) -> Sample:
        """Run the chains of a batch of problems.

        Parameters
        ----------
        problem : Problem
            The problems, which share a cost.

        Returns
        -------
        Sample
        """
        warm = self.warm_start
        start = sampler.init(problem, self.seed, self.ids) if warm is None else _warm_state(warm, problem)
        chains = _Chains(start, problem, self)
        T = self._run(chains)
        state, done = chains.state, chains.state.sweep - start.sweep
        history = np.concatenate(chains.histories, axis=1)[:, : done.max()]  # without sweeps that no problem needed
        info = chains.last._replace(history=history)
        recent = np.maximum(done[:, None] - 1 - np.arange(self.tau, -1, -1), 0)
        mixed = sampler.mixed(np.take_along_axis(info.history, recent, axis=1), T, self.tau)
        seen = theory.trace(start, problem, np.concatenate(chains.T, axis=1))[1] if self.diagnostics else None
        return Sample(state, info, T, done, (done > self.tau) & mixed, seen)

    def _run(self, chains: _Chains) -> Array:
        """Run the chains through their temperatures; return the last ones."""
        if self.schedule is not None and not isinstance(self.schedule, Adaptive):
            given = temperatures(self.schedule, self.n_sweeps)
            chains.total = len(given)
            chains.run(given)
            return np.full(len(chains.problem), given[-1])
        chains.total = SWEEPS if self.n_sweeps is None else self.n_sweeps
        warm = None if self.warm_start is None else self.warm_start.temperature
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
    >>> from gibbsot import DenseCost, problem
    >>> memory_of_chains(problem([1, 1], [1, 1], DenseCost([[0, 1], [1, 0]])), 10)
    912.0
    """
    cost, n = problem.cost, len(problem)
    nbytes = float(cost.shape[0]) * cost.shape[1] * cost.dtype.itemsize
    matrix = nbytes if isinstance(cost, DenseCost) else 2 * nbytes if nbytes <= MATRIX_BYTES else 0.0
    return n * (160.0 * sum(cost.shape) + 24 * n_sweeps) + (0.0 if isinstance(cost, GridCost) else matrix)


def sample_of(problem: Problem, f: Array, g: Array, value: Array) -> Sample:
    """Return chains that start from optimal potentials and values, at a temperature of small bias."""
    U, L = f, -g
    shift = inner(problem.p, U)[:, None]  # U of a chain is centred
    U, L = ((x - shift).astype(problem.cost.dtype) for x in (U, L))
    start, none = sampler.init(problem), np.zeros(len(problem), np.int64)
    state = State(np.where(problem.q > 0, L, np.inf), start.sweep, start.seed, start.ids)
    points = np.count_nonzero(problem.p, axis=1) + np.count_nonzero(problem.q, axis=1)
    # V(z) exceeds V(g, h) by this share of the value, or of the potentials if that is larger
    size = np.maximum(np.abs(value), _EXACT_BIAS * (np.ptp(U, axis=1) + np.ptp(L, axis=1)))
    T = np.maximum(_EXACT_BIAS * size / points, 1e20 * np.finfo(problem.cost.dtype).tiny)
    info = Info(U, L, U, value, value, np.empty((len(problem), 0)))
    return Sample(state, info, T, none, none == 0)


@dataclass
class _Chains:
    """The chains of a batch during a solve, and what they have shown."""

    state: State
    problem: Problem
    options: GibbsSolver
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
            progress=lambda done: options.budget.advance(done * share),
            stop=lambda: options.budget.spent,
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
        if chains.options.budget.spent:
            return cooling.T
        before, h = chains.last, chains.state.h
        chains.run(cooling.T[:, None])
        bound = theory.sampled_bound(problem, before.L, h, chains.last.value, cooling.T, n_jobs)
        cooling = policy.update(cooling, bound, policy.level(before.history) - floor)
        chains.hold(cooling.T, length - 1)
    if hold and not chains.options.budget.spent:
        chains.hold(cooling.T, hold, tau=chains.options.tau)
    return cooling.T


def _scale(problem: Problem, n_jobs: int | None) -> tuple[Array, Array]:
    """Return how far W may be above the bound by the nearest points, and that bound; both scale with the cost."""
    floor = dual_value(problem, *transforms(problem, np.where(problem.q > 0, 0.0, np.inf), n_jobs))
    mean = problem.cost.mean(problem.p, problem.q, n_jobs)
    limits = np.finfo(problem.cost.dtype)
    return np.maximum(mean - floor, np.maximum(limits.eps * np.abs(mean), 1e20 * limits.tiny)), floor


def _warm_state(sample: Sample, problem: Problem) -> State:
    """Return the chains of a sample for measures that may have changed."""
    # a point that had no weight has no h: its bound L replaces it, or 0 where nothing that had weight could reach it
    state = sample.state
    L = np.where(np.isfinite(sample.info.L), sample.info.L, 0)
    h = np.where(np.isfinite(state.h), state.h, L)
    h = np.where(problem.q > 0, h, np.inf).astype(problem.cost.dtype)
    return State(h, state.sweep, state.seed, state.ids)


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
    >>> from gibbsot import problem
    >>> pair = problem([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]])
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
