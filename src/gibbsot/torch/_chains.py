"""The warm-started chains of the Gibbs sampler as a loss: estimates of W, at a temperature that follows the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import validation
from ..costs import Cost
from ..costs.problems import Problem, dual_value, lower_potential
from ..oracle import evaluation
from ..oracle.chains import Chains
from ..oracle.gradients import centred, measures
from ..oracle.oracle import Oracle
from ..sampling import sampler
from ..sampling import temperature as temperatures
from ..sampling.annealing.tracking import GapTracking
from ..solvers.relaxed import Penalty, marginals
from ._operators import NEW, register

Array = NDArray[np.float64]

_TRACKING = GapTracking()
_NUMBERS = "cooling", "_follows", "_T", "_fresh"  # attributes that a state_dict has beside the chains


class ChainSampler:
    """Evaluates rows of weights by chains that continue from call to call.

    Parameters
    ----------
    cost : Cost
        The cost.
    penalty, temperature, tau, max_sweeps, capacity, by_position, seed, n_jobs
        As for `WassersteinLoss`.

    Attributes
    ----------
    cost, penalty, tau, max_sweeps, by_position, n_jobs
        The parameters.
    chains : Chains
        The chains of the examples.
    cooling : float
        The factor by which a scheduler has lowered a given temperature, or the gap that "auto" keeps; 1 at first.
    """

    def __init__(
        self,
        cost: Cost,
        penalty: Penalty | None,
        *,
        temperature: float | str = "auto",
        tau: int = 40,
        max_sweeps: int | None = None,
        capacity: int = 50_000,
        by_position: bool = False,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.cost, self.penalty, self.by_position, self.n_jobs = cost, penalty, by_position, n_jobs
        self.marginals = marginals(cost, penalty)
        self._T = validation.initial_temperature(temperature)
        self.cooling = 1.0
        self._follows = self._T is None
        self._least, self._T_min = self.marginals.least, temperatures.minimum(self.marginals.chain_cost)
        self.tau = validation.count(tau, "tau")
        self.max_sweeps = 10 * self.tau if max_sweeps is None else validation.count(max_sweeps, "max_sweeps")
        self.chains = Chains(self.marginals.chain_cost, capacity, seed)
        self._fresh = NEW
        self.handle = register(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.handle = register(self)  # a copy has its own chains

    @property
    def temperature(self) -> float | None:
        """The temperature of the next call; None before the first one if it is "auto"."""
        return self._T if self._T is None or self._follows else self._T * self.cooling

    @temperature.setter
    def temperature(self, T: float) -> None:
        self._T, self._follows, self.cooling = validation.positive(T, "temperature"), False, 1.0

    def arrays(self) -> dict[str, Any]:
        """Return temperature and chains, as numbers and arrays."""
        return {**{name: getattr(self, name) for name in _NUMBERS}, **self.chains.arrays()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Load temperature and chains that `arrays` returned."""
        self.chains.load_state({name: x for name, x in state.items() if name not in _NUMBERS})
        for name in _NUMBERS:
            setattr(self, name, state[name])

    def evaluate(
        self, p: Array, q: Array, index: list[int] | None, training: bool, tolerance: float
    ) -> tuple[Array, Array, Array]:
        """Return values and gradients; chains and temperature change only after nothing can fail any more."""
        pair = self.marginals.chains(*measures(p, q), tolerance)
        ids = self._ids(index, len(pair))
        T = self._initial_temperature(pair) if self.temperature is None else self.temperature
        state = self.chains.state(ids, pair)
        after, info = sampler.run(state, pair, np.full((1, self.max_sweeps), T), tau=self.tau, n_jobs=self.n_jobs)
        value, U, L = self.marginals.of_chains(pair, info)
        if self._follows:
            self._T = self._next_temperature(T, pair, info) if training else T
        if ids[0] >= NEW:
            self._fresh += len(ids)
        else:
            self.chains.keep(ids, after)
        return (value, centred(U), -centred(L)) if self.marginals.fixed else (value, U.astype(float), -L.astype(float))

    def _ids(self, index: list[int] | None, n: int) -> list[int]:
        """Return the ids of the chains."""
        if index is not None:
            return index
        return [NEW // 2 + b if self.by_position else self._fresh + b for b in range(n)]

    def _initial_temperature(self, pair: Problem) -> float:
        p, q = self.marginals.measures(pair[evaluation.sample(len(pair))])
        oracle = Oracle(self.cost, q, seed=self.chains.seed, n_jobs=self.n_jobs, penalty=self.penalty)
        _, T = evaluation.initial_temperatures(oracle, p)
        return max(float(T.mean()), self._T_min)

    def _next_temperature(self, T: float, pair: Problem, info: sampler.Info) -> float:
        L = lower_potential(pair, info.U, self.n_jobs)
        V, lower = float(info.value.mean()), float(dual_value(pair, info.U, L).mean())
        return _TRACKING.update(T, V - self._least, lower - self._least, self._T_min, self.cooling)
