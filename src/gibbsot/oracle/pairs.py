"""Values and gradients of transport costs between two measures that both move, with the warm state of their examples.

`DualOracle` solves exactly and keeps duals while measures move little, `ChainOracle` keeps the paper's chains.
Both have a `Store` of what they keep, by the examples' ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import validation
from ..costs import Cost
from ..costs.problems import Problem, dual_value, lower_potential
from ..exact.simplex import Basis
from ..sampling import sampler
from ..sampling import temperature as temperatures
from ..sampling.annealing.tracking import GapTracking
from ..solvers.relaxed import Penalty, marginals
from . import evaluation
from .gradients import centred, measures, solved
from .oracle import Oracle
from .store import Field, Indices, Store

Array = NDArray[np.float64]
Values = tuple[Array, Array, Array]  # with the gradients for p and for q

NEW = 2**62  # ids of examples that are used once start here, and those of positions at half of it
_SPARE_ARCS = 4  # of a basis, for the additional points of mass left over
_TRACKING = GapTracking()
_NUMBERS = "cooling", "_follows", "_T", "_fresh"  # attributes that a state has beside the chains


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
        n_jobs: int | None,
    ) -> None:  # fmt: skip
        self.cost, self.penalty, self.by_position, self.n_jobs = cost, penalty, by_position, n_jobs
        self.marginals, self.store = marginals(cost, penalty), Store(fields, capacity)

    def evaluate(self, p: Array, q: Array, ids: list[int] | None, training: bool, tolerance: float) -> Values:
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

        Returns
        -------
        value, of_p, of_q : arrays of shape (n,), (n, m1) and (n, m2)
        """
        if ids is None and self.by_position:
            ids = [NEW // 2 + b for b in range(len(p))]
        value, f, g = self._evaluate(p, q, ids, training, tolerance)
        if self.marginals.fixed:
            return value, centred(f), centred(g)
        return value, np.asarray(f, np.float64), np.asarray(g, np.float64)

    def _evaluate(
        self, p: Array, q: Array, ids: list[int] | None, training: bool, tolerance: float
    ) -> tuple[Array, NDArray[np.floating], NDArray[np.floating]]:
        raise NotImplementedError

    def arrays(self) -> dict[str, Any]:
        """Return what is kept, as numbers and arrays."""
        return self.store.arrays()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load what `arrays` returned."""
        self.store.load_state(state)


class _Warm(NamedTuple):
    """The arcs from which an example may start."""

    basis: Basis


class DualOracle(PairOracle):
    r"""Exact potentials of examples, solved again when the measures have moved enough.

    Potentials f and g of an example stay feasible when its measures move, so that ``<p, f> + <q, g>`` is a certified
    lower bound of W. They are used as long as the mass that has changed since they were optimal,

    .. math:: (\|p - p_0\|_1 + \|q - q_0\|_1) / (\|p\|_1 + \|q\|_1),

    is at most ``drift``. Otherwise the example is solved exactly, from its last basis. Examples without an id are
    solved, and not kept.

    Parameters
    ----------
    cost, penalty, capacity, by_position, n_jobs
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
    ) -> None:
        (m1, m2), arcs = cost.shape, sum(cost.shape) + _SPARE_ARCS
        fields = {"p": Field(np.float32, m1), "q": Field(np.float32, m2), "f": Field(np.float64, m1)}
        fields |= {"g": Field(np.float64, m2), "i": Field(np.int32, arcs), "j": Field(np.int32, arcs)}
        super().__init__(cost, penalty, fields, capacity, by_position, n_jobs)
        self.drift, self.n_solved = validation.nonnegative(drift, "drift"), 0

    def _evaluate(
        self, p: Array, q: Array, ids: list[int] | None, training: bool, tolerance: float
    ) -> tuple[Array, Array, Array]:
        pair = self.marginals.problem(*measures(p, q), tolerance)
        if ids is None:
            self.n_solved += len(p)
            return solved(self.marginals, pair, self.n_jobs)[:3]
        places = self.store.find(ids)
        known = np.flatnonzero(places >= 0)
        old = places[known]
        changed = np.abs(p[known] - self.store.read("p", old)).sum(axis=1)
        changed += np.abs(q[known] - self.store.read("q", old)).sum(axis=1)
        stale = np.zeros(len(p), bool)
        stale[known] = changed / (p[known].sum(axis=1) + q[known].sum(axis=1)) <= self.drift
        fresh = np.flatnonzero(~stale)
        f, g = np.zeros(p.shape), np.zeros(q.shape)
        f[stale], g[stale] = self.store.read("f", places[stale]), self.store.read("g", places[stale])
        value = (p * f).sum(axis=1) + (q * g).sum(axis=1)
        self.store.use(ids)
        if len(fresh):
            value[fresh], f[fresh], g[fresh], bases = self._solved(
                pair if len(fresh) == len(p) else pair[fresh], places[fresh]
            )
            last = set(ids[-self.store.capacity :])
            kept = [k for k, b in enumerate(fresh.tolist()) if ids[b] in last]
            own = fresh[kept]
            weights, potentials = {"p": p[own], "q": q[own]}, {"f": f[own], "g": g[own]}
            self.store.keep([ids[b] for b in own.tolist()], **weights, **potentials, i=bases[0][kept], j=bases[1][kept])
            self.store.use(ids)
        return value, f, g

    def _solved(self, pair: Problem, places: Indices) -> tuple[Array, Array, Array, Basis]:
        """Solve exactly, from the bases of the last time; return values, potentials and bases, filled up with -1."""
        i, j = (np.full((len(pair), sum(self.cost.shape) + _SPARE_ARCS), -1, np.int32) for _ in range(2))
        known = places >= 0
        i[known], j[known] = self.store.read("i", places[known]), self.store.read("j", places[known])
        warm = [_Warm((rows[rows >= 0], columns[rows >= 0])) for rows, columns in zip(i, j, strict=True)]
        found = solved(self.marginals, pair, self.n_jobs, warm)
        self.n_solved += len(pair)
        for b, one in enumerate(found.solutions):
            rows, columns = (x[one.basis[0] >= 0][: i.shape[1]] for x in one.basis)
            i[b], j[b] = -1, -1
            i[b, : len(rows)], j[b, : len(rows)] = rows, columns
        return found.value, found.p, found.q, (i, j)


class ChainOracle(PairOracle):
    """Chains of examples that continue from call to call, at a temperature that follows their values.

    Parameters
    ----------
    cost, penalty, capacity, by_position, n_jobs
        As for `PairOracle`. The capacity should be at least the number of examples: with more of them taking turns,
        each chain is dropped before its example returns.
    temperature, tau, max_sweeps, seed
        As for `gibbsot.torch.WassersteinLoss`.

    Attributes
    ----------
    tau, max_sweeps, seed
        The parameters.
    cooling : float
        The factor by which a scheduler has lowered a given temperature, or the gap that "auto" keeps; 1 at first.
    """

    def __init__(
        self,
        cost: Cost,
        penalty: Penalty | None = None,
        *,
        temperature: float | str = "auto",
        tau: int = 40,
        max_sweeps: int | None = None,
        capacity: int = 50_000,
        by_position: bool = False,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        size = marginals(cost, penalty).chain_cost.shape[1]
        super().__init__(
            cost, penalty, {"h": Field(cost.dtype, size), "sweep": Field(np.int64)}, capacity, by_position, n_jobs
        )
        self._T = validation.initial_temperature(temperature)
        self.cooling, self._follows = 1.0, self._T is None
        self._least, self._T_min = self.marginals.least, temperatures.minimum(self.marginals.chain_cost)
        self.tau = validation.count(tau, "tau")
        self.max_sweeps = 10 * self.tau if max_sweeps is None else validation.count(max_sweeps, "max_sweeps")
        self.seed, self._fresh = validation.seed(seed), NEW

    @property
    def temperature(self) -> float | None:
        """The temperature of the next call; None before the first one if it is "auto"."""
        return self._T if self._T is None or self._follows else self._T * self.cooling

    @temperature.setter
    def temperature(self, T: float) -> None:
        self._T, self._follows, self.cooling = validation.positive(T, "temperature"), False, 1.0

    def arrays(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in _NUMBERS}, **super().arrays()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        for name in _NUMBERS:
            setattr(self, name, state[name])

    def _evaluate(
        self, p: Array, q: Array, ids: list[int] | None, training: bool, tolerance: float
    ) -> tuple[Array, NDArray[np.floating], NDArray[np.floating]]:
        # chains and temperature change only after nothing can fail any more
        pair = self.marginals.chains(*measures(p, q), tolerance)
        once = [self._fresh + b for b in range(len(p))]
        T = self._initial_temperature(pair) if self.temperature is None else self.temperature
        state = self.state(once if ids is None else ids, pair)
        after, info = sampler.run(state, pair, np.full((1, self.max_sweeps), T), tau=self.tau, n_jobs=self.n_jobs)
        value, U, L = self.marginals.of_chains(pair, info)
        if self._follows:
            self._T = self._next_temperature(T, pair, info) if training else T
        if ids is None:
            self._fresh += len(p)
        else:
            self.store.keep(ids, h=after.h, sweep=after.sweep)
        return value, U, -L

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
        state, places = sampler.init(pair, self.seed, np.asarray(ids)), self.store.find(ids)
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

    def _initial_temperature(self, pair: Problem) -> float:
        p, q = self.marginals.measures(pair[evaluation.sample(len(pair))])
        oracle = Oracle(self.cost, q, seed=self.seed, n_jobs=self.n_jobs, penalty=self.penalty)
        _, T = evaluation.initial_temperatures(oracle, p)
        return max(float(T.mean()), self._T_min)

    def _next_temperature(self, T: float, pair: Problem, info: sampler.Info) -> float:
        L = lower_potential(pair, info.U, self.n_jobs)
        V, lower = float(info.value.mean()), float(dual_value(pair, info.U, L).mean())
        return _TRACKING.update(T, V - self._least, lower - self._least, self._T_min, self.cooling)
