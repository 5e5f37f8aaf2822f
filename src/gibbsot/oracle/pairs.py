"""Values and gradients of transport costs between two measures that both move, with the warm state of their examples.

`DualOracle` solves exactly and keeps duals while measures move little, `ChainOracle` keeps the paper's chains, and
`AutoOracle` has the rule that chooses between them. Each has a `Store` of what it keeps, by the examples' ids. `Oracle`
and the losses for PyTorch and JAX all take values and gradients from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import validation
from ..costs import Cost
from ..costs.problems import Problem, dual_value, lower_potential
from ..exact.simplex import Basis
from ..exact.solution import warn_of_open_gaps
from ..sampling import mixing, sampler
from ..sampling import temperature as temperatures
from ..sampling.annealing import paper
from ..sampling.annealing.adaptive import AdaptiveCooling, ModelState
from ..sampling.annealing.tracking import GapTracking
from ..sampling.temperature import INITIAL_BIAS
from ..solvers.kl import marginals_of
from ..solvers.relaxed import Penalty, marginals
from . import evaluation
from .chains import TargetChains
from .gradients import Gradients, centred, measures, solved
from .store import Field, Indices, Store

Array = NDArray[np.float64]

NEW = 2**62  # ids of examples that are used once start here, and those of positions at half of it
_SPARE_ARCS = 4  # of a basis, for the additional points of mass left over
_TRACKING = GapTracking()
_NUMBERS = "cooling", "_follows", "_T", "_fresh", "_passes", "_sum", "_count"  # of a state, beside the chains
_CONTROL, _POLICY = "control_", "policy_"  # begin the names of the annealer's fields and constants in a state
_TOLERANCE = 1e-3  # of the annealer: coolings that gain less end
_NEW_COST = 2.0  # an exact cost that exceeds the best by this factor: the annealer begins anew
METHODS = ("auto", "gibbs", "kept", "exact")
MAX_SWEEPS, LAGS = 400, 10  # of a call, and how many lags of the paper's test that is
_LEAST_PAIRS = 2**16  # of points with weight: up to here exact duals came down faster (benchmarks/own_losses.py)
_FAR = 0.1  # the share of the mass that models move by in one call, above which chains come down faster
_SHARE_OF_PAIRS = 4  # a sweep that is cheap adds at most the pairs of points divided by this, as on grids
_ESTIMATE = "estimate"
_MOST_SWEEPS = 1_000_000  # of a call, whose values are recorded

_exactly: ContextVar[str | None] = ContextVar("exactly", default=None)


@contextmanager
def exact_values(what: str = _ESTIMATE) -> Iterator[None]:
    """Let all oracles return exact values inside, and change nothing that they keep.

    Parameters
    ----------
    what : {"estimate", "lower", "upper"}
        Certified bounds from below or above, of every problem; or estimates, for which chains solve a sample exactly
        and correct the bias of the others by it.
    """
    token = _exactly.set(what)
    try:
        yield
    finally:
        _exactly.reset(token)


class OracleInfo(NamedTuple):
    """Diagnostics of a call of an oracle.

    Attributes
    ----------
    method : {"gibbs", "exact"}
        Where values and gradients come from: chains, or exact duals.
    solved : array of bool, shape (n,)
        The problems that were solved exactly in this call. Otherwise exact duals are those of an earlier call.
    sweeps : array of int, shape (n,)
        The number of sweeps of the chains in this call.
    mixed : bool
        Whether the mean of V(z) over the chains of the call had settled at its end, by the test of
        `gibbsot.sampler.settled`; True with exact duals. A chain ends as soon as its V(z) no longer rises, mostly after
        a tenth of ``max_sweeps``, because models improve faster with more and shorter calls. If the chains of a call
        have fewer than 60 sweeps, as by default, this is False, because they are too short to tell; with
        ``max_sweeps=4000`` it may be True.
    temperature : float or None
        That of the chains in this call.
    """

    method: str
    solved: NDArray[np.bool_]
    sweeps: NDArray[np.int64]
    mixed: bool
    temperature: float | None


class Values(NamedTuple):
    """Values of some examples, and their gradients."""

    value: Array
    p: NDArray[Any]
    q: NDArray[Any]
    info: OracleInfo


def _of_duals(solved: NDArray[np.bool_]) -> OracleInfo:
    """Return the diagnostics of exact duals."""
    return OracleInfo("exact", solved, np.zeros(len(solved), np.int64), True, None)


class PairOracle:
    """What both oracles have in common.

    Parameters
    ----------
    cost : Cost
        The cost of all problems.
    penalty : float or pair, optional
        As in `solve`.
    fields : mapping of str to Field
        What is kept of an example.
    capacity : int
        The largest number of examples that are kept; the least recently used are dropped.
    by_position : bool
        Whether examples without an id belong to their position in a call.
    n_jobs : int, optional
        Threads over the problems.
    kl : pair of float, optional
        As in `solve`.

    Attributes
    ----------
    cost, penalty, by_position, n_jobs
        The parameters.
    marginals : Marginals
        The problems of measures.
    store : Store
        What is kept.
    """

    def __init__(
        self, cost: Cost, penalty: Penalty | None, fields: Mapping[str, Field], capacity: int, by_position: bool,
        n_jobs: int | None, kl: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        self.cost, self.penalty, self.by_position, self.n_jobs = cost, penalty, by_position, n_jobs
        self.marginals, self.store = marginals_of(cost, penalty, kl), Store(fields, capacity)

    def evaluate(
        self, p: Array, q: Array, ids: list[int] | None, training: bool, tolerance: float, moves: bool = True
    ) -> Values:
        """Return values and gradients of some examples; centred where masses are fixed.

        Parameters
        ----------
        p, q : arrays of float64, shape (n, m1) and (n, m2)
            Their measures.
        ids : list of int, optional
            Their ids, each at most once.
        training : bool
            Whether the call is a step of a training.
        tolerance : float
            How far the sums of a pair may differ by rounding, relatively, where they have to agree.
        moves : bool
            Whether q moves from call to call, as p does.

        Returns
        -------
        Values
        """
        if ids is None and self.by_position:
            ids = [NEW // 2 + b for b in range(len(p))]
        what = _exactly.get()
        if what is None:
            value, f, g, info = self._evaluate(p, q, ids, training, tolerance, moves)
        else:
            value, f, g, info = self._checked(p, q, ids, tolerance, what)
        if self.marginals.fixed:
            return Values(value, centred(f), centred(g), info)
        return Values(value, np.asarray(f, np.float64), np.asarray(g, np.float64), info)

    def _evaluate(
        self, p: Array, q: Array, ids: list[int] | None, training: bool, tolerance: float, moves: bool
    ) -> Values:
        raise NotImplementedError

    def _checked(self, p: Array, q: Array, ids: list[int] | None, tolerance: float, what: str) -> Values:
        """Return exact values, or certified bounds, without any change of what is kept."""
        exact = self.marginals.unrounded
        pair = exact.problem(*measures(p, q), tolerance)
        found = exact.with_masses(pair, exact.solve(pair, n_jobs=self.n_jobs))
        warn_of_open_gaps(found)
        mass = pair.mass if exact.fixed else 1.0
        value = mass * np.array([getattr(one, "value" if what == _ESTIMATE else what) for one in found])
        f, g = np.stack([one.f for one in found]), np.stack([one.g for one in found])
        return Values(value, *exact.gradients(f, g), _of_duals(np.ones(len(p), bool)))

    def arrays(self) -> dict[str, Any]:
        """Return what is kept, as numbers and arrays."""
        return self.store.arrays()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load what `arrays` returned."""
        self.store.load_state(state)

    def snapshot(self) -> Any:
        """Return a copy of what is kept, for `restore`."""
        return self.store.snapshot()

    def restore(self, snapshot: Any) -> None:
        """Return to what was kept when a snapshot was taken."""
        self.store.restore(snapshot)


class _Warm(NamedTuple):
    """The arcs and the potentials from which an example may start; a new one has none."""

    basis: Basis
    f: Array | None


class DualOracle(PairOracle):
    r"""Exact potentials of examples, solved again when the measures have moved enough.

    Potentials f and g of an example stay feasible when its measures move, so that ``<p, f> + <q, g>`` is a certified
    lower bound of W. They are used as long as the mass that has changed since they were optimal,

    .. math:: (\|p - p_0\|_1 + \|q - q_0\|_1) / (\|p\|_1 + \|q\|_1),

    is at most ``drift``. With divergences of the marginals the bound is that of the dual objective after the best shift
    of f against g. Otherwise the example is solved exactly, from its last basis. Examples without an id are
    solved, and not kept.

    Parameters
    ----------
    cost, penalty, capacity, by_position, n_jobs, kl
        As for `PairOracle`.
    drift : float
        The share of the mass that may have changed; 0 to solve always.

    Attributes
    ----------
    drift
        The parameter.
    n_solved : int
        How many problems have been solved exactly so far.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost
    >>> oracle = DualOracle(GridCost(3, spacing=1.0), drift=0.1)
    >>> p, q = np.array([[0.5, 0.5, 0.0]]), np.array([[0.0, 0.0, 1.0]])
    >>> values = [oracle.evaluate(x, q, [7], True, 1e-6)[0] for x in (p, p + [0.05, -0.05, 0.0])]
    >>> values, oracle.n_solved
    ([array([2.5]), array([2.65])], 1)
    """

    def __init__(
        self,
        cost: Cost,
        penalty: Penalty | None = None,
        *,
        drift: float = 0.01,
        capacity: int = 10_000,
        by_position: bool = False,
        n_jobs: int | None = None,
        kl: tuple[float, float] | None = None,
    ) -> None:
        (m1, m2), arcs = cost.shape, sum(cost.shape) + _SPARE_ARCS
        fields = {"p": Field(np.float32, m1), "q": Field(np.float32, m2), "f": Field(np.float64, m1)}
        fields |= {"g": Field(np.float64, m2), "i": Field(np.int32, arcs), "j": Field(np.int32, arcs)}
        super().__init__(cost, penalty, fields, capacity, by_position, n_jobs, kl)
        self.drift, self.n_solved = validation.nonnegative(drift, "drift"), 0

    def _evaluate(
        self, p: Array, q: Array, ids: list[int] | None, training: bool, tolerance: float, moves: bool
    ) -> Values:
        pair = self.marginals.problem(*measures(p, q), tolerance)
        if ids is None:
            self.n_solved += len(p)
            return Values(*solved(self.marginals, pair, self.n_jobs)[:3], _of_duals(np.ones(len(p), bool)))
        places = self.store.find(ids)
        known = np.flatnonzero(places >= 0)
        old = places[known]
        changed = np.abs(p[known] - self.store.read("p", old)).sum(axis=1)
        changed += np.abs(q[known] - self.store.read("q", old)).sum(axis=1)
        stale = np.zeros(len(p), bool)
        stale[known] = changed / (p[known].sum(axis=1) + q[known].sum(axis=1)) <= self.drift
        fresh = np.flatnonzero(~stale)
        value, of_p, of_q = np.zeros(len(p)), np.zeros(p.shape), np.zeros(q.shape)
        duals = self.store.read("f", places[stale]), self.store.read("g", places[stale])
        value[stale], of_p[stale], of_q[stale] = self.marginals.kept(p[stale], q[stale], *duals)
        self.store.use(ids)
        if len(fresh):
            found, bases = self._solved(pair if len(fresh) == len(p) else pair[fresh], places[fresh])
            value[fresh], of_p[fresh], of_q[fresh], (f, g) = found.value, found.p, found.q, found.potentials
            last = set(ids[-self.store.capacity :])
            kept = [k for k, b in enumerate(fresh.tolist()) if ids[b] in last]
            own = fresh[kept]
            weights, potentials = {"p": p[own], "q": q[own]}, {"f": f[kept], "g": g[kept]}
            self.store.keep([ids[b] for b in own.tolist()], **weights, **potentials, i=bases[0][kept], j=bases[1][kept])
            self.store.use(ids)
        return Values(value, of_p, of_q, _of_duals(~stale))

    def _checked(self, p: Array, q: Array, ids: list[int] | None, tolerance: float, what: str) -> Values:
        if what != _ESTIMATE or ids is None:
            return super()._checked(p, q, ids, tolerance, what)
        pair = self.marginals.problem(*measures(p, q), tolerance)
        found = solved(self.marginals, pair, self.n_jobs, self._warm(self.store.find(ids)))
        return Values(*found[:3], _of_duals(np.ones(len(p), bool)))

    def _warm(self, places: Indices) -> list[_Warm]:
        """Return the arcs and potentials of the last time."""
        none = np.empty(0, np.int32)
        found = [_Warm((none, none), None)] * len(places)
        known = np.flatnonzero(places >= 0)
        i, j, f = (self.store.read(name, places[known]) for name in "ijf")
        for b, rows, columns, own in zip(known.tolist(), i, j, f, strict=True):
            found[b] = _Warm((rows[rows >= 0], columns[rows >= 0]), own)
        return found

    def _solved(self, pair: Problem, places: Indices) -> tuple[Gradients, Basis]:
        """Solve exactly, from the bases of the last time; return what was found, and bases filled up with -1."""
        i, j = (np.full((len(pair), sum(self.cost.shape) + _SPARE_ARCS), -1, np.int32) for _ in range(2))
        found = solved(self.marginals, pair, self.n_jobs, self._warm(places))
        self.n_solved += len(pair)
        for b, one in enumerate(found.solutions):
            rows, columns = (x[one.basis[0] >= 0][: i.shape[1]] for x in one.basis)
            i[b, : len(rows)], j[b, : len(rows)] = rows, columns
        return found, (i, j)


class ChainOracle(PairOracle):
    """Chains of examples that continue from call to call, at a temperature that follows their values.

    A temperature of its own starts as those of the models do. From then on it rises where V(z) and the lower bound of W
    by its potentials are close, and falls where they are far apart (`GapTracking`). At intervals some examples are
    solved exactly, and the annealer of `WassersteinNMF` lowers the gap that is kept when the exact cost has stalled.

    Parameters
    ----------
    cost, penalty, capacity, by_position, n_jobs
        As for `PairOracle`. The capacity should be at least the number of examples: with more of them taking turns,
        each chain is dropped before its example returns.
    temperature : "auto", float or AdaptiveCooling
        As for `Oracle`.
    max_sweeps, rng
        As for `Oracle`.

    Attributes
    ----------
    max_sweeps
        The parameter.
    key : int
        The key of the noise.
    policy : AdaptiveCooling
        The annealer.
    control : ModelState or None
        Its state; None before the first call, and where the temperature is given.
    cooling : float
        The factor by which a scheduler has lowered a given temperature, or the gap that "auto" keeps; 1 at first.
    """

    def __init__(
        self,
        cost: Cost,
        penalty: Penalty | None = None,
        *,
        temperature: float | str | AdaptiveCooling = "auto",
        max_sweeps: int = MAX_SWEEPS,
        capacity: int = 50_000,
        by_position: bool = False,
        rng: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
    ) -> None:
        size = marginals(cost, penalty).chain_cost.shape[1]
        super().__init__(
            cost, penalty, {"h": Field(cost.dtype, size), "sweep": Field(np.int64)}, capacity, by_position, n_jobs
        )
        given = isinstance(temperature, AdaptiveCooling)
        self.policy = temperature if isinstance(temperature, AdaptiveCooling) else AdaptiveCooling()
        self._T = None if given else validation.initial_temperature(temperature)  # type: ignore[arg-type]
        self.cooling, self._follows = 1.0, self._T is None
        self.control: ModelState | None = None
        self._least, self._T_min = self.marginals.least, temperatures.minimum(self.marginals.chain_cost)
        self.max_sweeps = validation.count(max_sweeps, "max_sweeps", _MOST_SWEEPS)
        self.key, self._fresh = validation.noise_key(rng), NEW
        self._passes, self._sum, self._count = 0.0, 0.0, 0  # over the examples; V(z) since the last exact evaluation

    @property
    def temperature(self) -> float | None:
        """The temperature of the next call; None before the first one if it is "auto"."""
        return self._T if self._T is None or self._follows else self._T * self.cooling

    @temperature.setter
    def temperature(self, T: float) -> None:
        self._T, self._follows, self.cooling = validation.positive(T, "temperature"), False, 1.0
        self.control = None

    def arrays(self) -> dict[str, Any]:
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        numbers["_T"] = np.nan if self._T is None else self._T
        fields = {_POLICY + name: x for name, x in self.policy.to_arrays().items()}
        if self.control is not None:
            fields |= {_CONTROL + name: x for name, x in self.control.to_arrays().items()}
        annealer = {name: np.asarray(x) if isinstance(x, tuple) else x for name, x in fields.items()}
        return {**numbers, **annealer, **super().arrays()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        for name in _NUMBERS:
            setattr(self, name, np.asarray(state[name]).item())
        self._T = None if np.isnan(float(np.asarray(state["_T"]))) else self._T
        policy, control = (
            {name.removeprefix(prefix): x for name, x in state.items() if name.startswith(prefix)}
            for prefix in (_POLICY, _CONTROL)
        )
        self.policy = AdaptiveCooling.from_arrays(policy)
        self.control = ModelState.from_arrays(control) if control else None

    def snapshot(self) -> Any:
        return super().snapshot(), {name: getattr(self, name) for name in (*_NUMBERS, "control")}

    def restore(self, snapshot: Any) -> None:
        kept, numbers = snapshot
        super().restore(kept)
        vars(self).update(numbers)

    def _evaluate(
        self, p: Array, q: Array, ids: list[int] | None, training: bool, tolerance: float, moves: bool
    ) -> Values:
        # chains, temperature and annealer change only after nothing can fail any more
        pair = self.marginals.chains(*measures(p, q), tolerance)
        T, control = (self.temperature, self.control) if self.temperature is not None else self._first(pair)
        after, info, mixed = self._run(ids, pair, T)
        value, U, L = self.marginals.of_chains(pair, info)
        if self._follows:
            changes: dict[str, Any] = {"_T": T, "control": control}
            if training:
                changes |= self._annealed(p, q, value, tolerance, control)
                changes["_T"] = self._next_temperature(T, pair, info, changes["control"])
            vars(self).update(changes)
        if ids is None:
            self._fresh += len(p)
        else:
            self.store.keep(ids, h=after.h, sweep=after.sweep)
        sweeps = (~np.isnan(info.history)).sum(axis=1)
        return Values(value, U, -L, OracleInfo("gibbs", np.zeros(len(p), bool), sweeps, mixed, T))

    def _run(self, ids: list[int] | None, pair: Problem, T: float) -> tuple[sampler.State, sampler.Info, bool]:
        """Advance copies of the chains."""
        once = [self._fresh + b for b in range(len(pair))]
        state = self.state(once if ids is None else ids, pair)
        lag = max(paper.TAU, self.max_sweeps // LAGS)
        after, info = sampler.run(state, pair, np.full((1, self.max_sweeps), T), tau=lag, n_jobs=self.n_jobs)
        return after, info, mixing.all_settled(info.history, T, self._least)

    def _checked(self, p: Array, q: Array, ids: list[int] | None, tolerance: float, what: str) -> Values:
        rows = evaluation.sample(len(p))
        if what != _ESTIMATE or len(rows) == len(p):
            return super()._checked(p, q, ids, tolerance, what)
        pair = self.marginals.chains(*measures(p, q), tolerance)
        T = self._first(pair)[0] if self.temperature is None else self.temperature
        value, U, L = self.marginals.of_chains(pair, self._run(ids, pair, T)[1])
        exact = super()._checked(p[rows], q[rows], None, tolerance, what).value
        value = value + (exact.mean() - value[rows].mean())  # the bias is about the same for all
        value[rows] = exact
        solved = np.isin(np.arange(len(p)), rows)
        return Values(value, U, -L, _of_duals(solved))

    def state(self, ids: Sequence[int], pair: Problem) -> sampler.State:
        """Return the state of the chains of some examples, for the measures that they have now.

        Parameters
        ----------
        ids : sequence of int
            The ids of the examples; the chain of a new one starts from h = 0.
        pair : Problem
            Their problems, in the same order.

        Returns
        -------
        State
        """
        state, places = sampler.init(pair, self.key, np.asarray(ids)), self.store.find(ids)
        known = np.flatnonzero(places >= 0)
        if len(known):
            h, q = self.store.read("h", places[known]), pair.q[known]
            if not np.isfinite(h[q > 0]).all():
                # a point that had no weight before must not constrain the others; its own sweep finds its value
                most = np.where(np.isfinite(h), h, -np.inf).max(axis=1, keepdims=True)
                h = np.where(np.isfinite(h), h, np.where(np.isfinite(most), most, 0))
            state.h[known] = np.where(q > 0, h, np.inf)
            state.sweep[known] = self.store.read("sweep", places[known])
        return state

    def _first(self, pair: Problem) -> tuple[float, ModelState]:
        """Return the first temperature, and the annealer's first state."""
        p, q = self.marginals.measures(pair[evaluation.sample(len(pair))])
        chains = TargetChains(self.cost, q, rng=self.key, n_jobs=self.n_jobs, penalty=self.penalty)
        value, T = evaluation.initial_temperatures(chains, p)
        first = max(float(T.mean()), self._T_min)
        return first, self.policy.init(max(float(value.mean()) - self._least, 0.0), first, self._T_min)

    def _next_temperature(self, T: float, pair: Problem, info: sampler.Info, control: ModelState | None) -> float:
        L = lower_potential(pair, info.U, self.n_jobs)
        V, lower = float(info.value.mean()), float(dual_value(pair, info.U, L).mean())
        scale = 1.0 if control is None else min(1.0, control.bias / INITIAL_BIAS)
        return _TRACKING.update(T, V - self._least, lower - self._least, self._T_min, scale * self.cooling)

    def _annealed(
        self, p: Array, q: Array, value: Array, tolerance: float, control: ModelState | None
    ) -> dict[str, Any]:
        """Return what changes of the annealer, after an exact evaluation of a sample if one is due."""
        passes = self._passes + len(p) / max(len(p), len(self.store))
        total, count = self._sum + float(value.sum()), self._count + len(p)
        if control is not None and self.policy.due(control, int(passes)):
            rows = evaluation.sample(len(p))
            exact = super()._checked(p[rows], q[rows], None, tolerance, _ESTIMATE).value
            level = total / count
            cost = max(level + float(exact.mean() - value[rows].mean()) - self._least, 0.0)
            if cost > _NEW_COST * control.best and control.past:  # another model, or another loss
                control = self.policy.init(cost, 0.0, self._T_min)
            control, _ = self.policy.record(replace(control, evaluated=int(passes)), cost)
            if level - self._least > cost:
                control = self.policy.update(control, cost, level - self._least, _TOLERANCE)
            else:  # the chains lag behind: colder ones would do so more
                control = replace(control, past=(cost,))
            total, count = 0.0, 0
        return {"_passes": passes, "_sum": total, "_count": count, "control": control}


def favours_chains(cost: Cost, p: Array, q: Array) -> bool:
    """Tell whether chains are to be used for models p whose targets q stay.

    They are where a sweep is cheap beside the number of pairs of points, as on grids, and the problems are large.

    Parameters
    ----------
    cost : Cost
        The cost of the chains.
    p, q : arrays of shape (n, m1) and (n, m2)
        Weights.

    Returns
    -------
    bool

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost
    >>> [favours_chains(GridCost((side, side)), *np.ones((2, 1, side**2))) for side in (8, 28)]
    [False, True]
    """
    pairs = (p > 0).sum(axis=1).mean() * (q > 0).sum(axis=1).mean()
    return bool(pairs >= _LEAST_PAIRS and _SHARE_OF_PAIRS * cost.work <= cost.shape[0] * cost.shape[1])


class AutoOracle(PairOracle):
    """Chains or exact duals, by rules that depend on the problems and never on a clock.

    - Where both measures move, exact duals are kept: a chain would follow two measures at once, and each parameter of
      such a loss sees the noise of few chains.
    - Where targets stay, chains are used if `favours_chains` says so in the first call, as long as models move by more
      than a tenth of their mass from one call to the next. A chain costs the same however far a model moves, an exact
      solution from the last basis the less, the nearer it is. Then, and for all other problems, exact duals are kept.
    - Examples without an id are solved exactly, and nothing is kept of them.

    Parameters
    ----------
    cost, penalty, by_position, n_jobs
        As for `PairOracle`.
    capacity : int, optional
        As for `PairOracle`; the default of each.
    drift
        As for `DualOracle`.
    temperature, max_sweeps, rng
        As for `ChainOracle`.

    Attributes
    ----------
    duals : DualOracle
    chains : ChainOracle
    store : Store
        The models of the last calls with chains.
    """

    def __init__(
        self,
        cost: Cost,
        penalty: Penalty | None = None,
        *,
        drift: float = 0.01,
        temperature: float | str | AdaptiveCooling = "auto",
        max_sweeps: int = MAX_SWEEPS,
        capacity: int | None = None,
        by_position: bool = False,
        rng: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
    ) -> None:
        common: dict[str, Any] = {"by_position": by_position, "n_jobs": n_jobs}
        common |= {} if capacity is None else {"capacity": capacity}
        self.duals = DualOracle(cost, penalty, drift=drift, **common)
        self.chains = ChainOracle(cost, penalty, temperature=temperature, max_sweeps=max_sweeps, rng=rng, **common)
        kept = {"p": Field(np.float32, cost.shape[0])}
        super().__init__(cost, penalty, kept, self.chains.store.capacity, by_position, n_jobs)
        self._uses_chains: bool | None = None  # None before the first call

    @property
    def current(self) -> ChainOracle | DualOracle:
        """The oracle of the last call."""
        return self.chains if self._uses_chains else self.duals

    def _evaluate(
        self, p: Array, q: Array, ids: list[int] | None, training: bool, tolerance: float, moves: bool
    ) -> Values:
        uses = self._uses_chains
        if moves or ids is None:
            uses = False
        elif uses is None:
            uses = favours_chains(self.chains.marginals.chain_cost, p, q)
        elif uses:
            uses = self._moved(p, ids) > _FAR
        found = (self.chains if uses else self.duals)._evaluate(p, q, ids, training, tolerance, moves)
        if ids is not None:
            self._uses_chains = uses
            if uses:
                self.store.keep(ids, p=p)
        return found

    def _moved(self, p: Array, ids: list[int]) -> float:
        """Return the share of the mass of models that has moved since their last calls, one if none had any."""
        places = self.store.find(ids)
        new, old = p[places >= 0], self.store.read("p", places[places >= 0])
        if len(new) == 0:
            return 1.0
        return float((np.abs(new - old).sum(axis=1) / (new.sum(axis=1) + old.sum(axis=1))).mean())

    def _checked(self, p: Array, q: Array, ids: list[int] | None, tolerance: float, what: str) -> Values:
        return self.current._checked(p, q, ids, tolerance, what)

    def arrays(self) -> dict[str, Any]:
        parts: dict[str, PairOracle | Store] = {"duals_": self.duals, "chains_": self.chains, "last_": self.store}
        found = {prefix + name: x for prefix, part in parts.items() for name, x in part.arrays().items()}
        return {"uses_chains": -1 if self._uses_chains is None else int(self._uses_chains), **found}

    def load_state(self, state: Mapping[str, Any]) -> None:
        for prefix, part in (("duals_", self.duals), ("chains_", self.chains), ("last_", self.store)):
            own = {name.removeprefix(prefix): x for name, x in state.items() if name.startswith(prefix)}
            part.load_state(own)
        uses = int(np.asarray(state["uses_chains"]).item())
        self._uses_chains = None if uses < 0 else bool(uses)

    def snapshot(self) -> Any:
        return self.duals.snapshot(), self.chains.snapshot(), self.store.snapshot(), self._uses_chains

    def restore(self, snapshot: Any) -> None:
        duals, chains, last, self._uses_chains = snapshot
        self.store.restore(last)
        self.duals.restore(duals)
        self.chains.restore(chains)


def pair_oracle(
    cost: Cost, penalty: Penalty | None, method: str, *, kl: tuple[float, float] | None = None, **options: Any
) -> PairOracle:
    """Return the oracle of a method, with those of the options that it has.

    Parameters
    ----------
    cost, penalty
        As for `PairOracle`.
    method : {"auto", "gibbs", "kept", "exact"}
        The method.
    kl : pair of float, optional
        As for `PairOracle`: exact duals only.
    **options
        Options that differ from their defaults.

    Returns
    -------
    PairOracle

    Raises
    ------
    ValueError
        If the method is not known, or has not one of the options, or is the sampler with divergences.
    """
    validation.choice(method, "method", METHODS)
    if kl is not None:
        if method == "gibbs":
            raise ValueError("kl: the sampler solves balanced and partial problems; expected another method with it")
        method, options = "kept" if method == "auto" else method, options | {"kl": kl}
    for name in ("temperature", "max_sweeps", "rng"):
        if name in options and method in ("kept", "exact"):
            raise ValueError(f"{name}: is an option of the sampler; expected method='gibbs' or 'auto' with it")
    if "drift" in options and method in ("gibbs", "exact"):
        raise ValueError(f"drift: is an option of kept duals; expected method='kept' or 'auto', got {method!r}")
    if method == "auto":
        return AutoOracle(cost, penalty, **options)
    if method == "gibbs":
        return ChainOracle(cost, penalty, **options)
    return DualOracle(cost, penalty, **(options | ({"drift": 0.0} if method == "exact" else {})))
