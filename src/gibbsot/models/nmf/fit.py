"""A fit of `WassersteinNMF`: its state, its epochs and its exact evaluations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ... import costs
from ...costs import Units
from ...distributed import fixed_point
from ...distributed.fixed_point import Fixed, Precision
from ...distributed.shard import Array, EpochSums, Sample
from ...distributed.shards import Shards
from ...oracle import evaluation
from ...oracle.mirror_descent import logarithms, mirror_step
from ...sampling import temperature
from ...sampling.annealing import paper
from ...sampling.annealing.adaptive import AdaptiveCooling, ModelCooling, ModelState
from ...sampling.annealing.paper import ConditionalDecay, EpochDecay
from .._loop import Epoch
from ..mixtures import factors
from .shard import Mixture, MixtureShard
from .start import initial_factors

START_SAMPLE = 5000  # measures, evenly spread, from which the start is computed
_MOST_TESTS = 100  # of the chains of a batch; the program of the authors has no limit, and needs three as a rule


class Final(NamedTuple):
    """An exact evaluation after the last epoch, on which no later epoch depends.

    Attributes
    ----------
    lower, upper : float
        Bounds of the mean cost of the sample in the mean model.
    best : float
        The cost of the best model before.
    """

    lower: float
    upper: float
    best: float


class Settings(NamedTuple):
    """The parameters of a model that its epochs depend on.

    Attributes
    ----------
    policy : ModelCooling
        The policy for temperature and steps.
    steps : pair of float
        Of components, for the mean gradient, and of memberships, relative to the mean cost.
    batch_size : int
        The number of measures whose memberships are updated together.
    online : bool
        Whether components are updated after every batch.
    max_epochs : int
        The largest number of epochs.
    tol : float
        The tolerance of the policy.
    """

    policy: ModelCooling
    steps: tuple[float, float]
    batch_size: int
    online: bool
    max_epochs: int
    tol: float


class _Evaluated(NamedTuple):
    """The measures that are evaluated exactly, some of those with a weight, and their weights; None if all are one."""

    indices: NDArray[np.intp]
    weights: Array | None

    @classmethod
    def of(cls, n: int, weights: Array | None) -> _Evaluated:
        if weights is None:
            return cls(evaluation.sample(n), None)
        positive = np.flatnonzero(weights)
        indices = positive[evaluation.sample(len(positive))]
        return cls(indices, weights[indices])

    def mean(self, values: Array) -> float:
        return float(np.average(values, weights=self.weights))


@dataclass
class FitState:
    """The state of a fit: all that its next epoch depends on."""

    shards: Shards[MixtureShard]
    n: int  # number of measures with mass
    support: float  # mean number of bins with mass
    dtype: str  # of the data
    units: Units  # the cost in the precision of the chains
    log_components: Array
    mean_components: Array  # weights
    best_components: Array  # logarithms
    control: ModelState
    weights: Array | None = None  # of the measures with mass; None if all are one
    algorithm: str = "adaptive"
    history: list[Epoch] = field(default_factory=list)
    checkpoint: str = ""  # folder of the last checkpoint
    fit_id: str = ""  # that its checkpoints carry
    checksums: list[str] = field(default_factory=list)  # of its shards
    final: Final | None = None
    published: float = np.nan  # the cost of the model as it is published, after a fit
    before: tuple[Any, ...] = ()  # number of epochs, components and control before the epoch

    def __post_init__(self) -> None:
        # both read all of a dense cost, which is too slow for every epoch
        self.scale, self.precision = costs.mean_cost(self.units.cost), Precision.of(self.units.cost, self.n)
        self.weight = float(self.n if self.weights is None else self.weights.sum())
        self._largest = 1.0 if self.weights is None else float(self.weights.max())  # the shards divide by it
        self.evaluated = _Evaluated.of(self.n, None if self.weights is None else self.weights / self._largest)

    @property
    def keeps_best(self) -> bool:
        """Whether the best model is that of an earlier epoch, or the start, and not the mean of the last epochs."""
        return self.final is None or self.final.upper >= self.final.best

    @property
    def best(self) -> float:
        """The exact cost of the best model over the sample."""
        return self.control.best if self.final is None else min(self.final.upper, self.final.best)

    def remember(self) -> None:
        """Keep the state before an epoch."""
        self.shards.reduce(MixtureShard.remember)
        components = self.log_components, self.mean_components, self.best_components
        self.before = len(self.history), components, self.control

    def roll_back(self) -> None:
        """Return to the state before an epoch that was interrupted: one that the history does not have."""
        if self.before and self.before[0] == len(self.history):
            self.shards.reduce(MixtureShard.roll_back)
            _, components, self.control = self.before
            self.log_components, self.mean_components, self.best_components = components

    def sample(self, D: Any, memberships: str) -> Sample[Mixture]:
        """Return the sample that is evaluated exactly, with components and the current, mean or best memberships."""
        return Sample(self.evaluated.indices, Mixture(fixed_point.components(D), memberships))

    def epochs(self, settings: Settings) -> Iterator[tuple[Epoch, str]]:
        """Run epochs until the largest number or until the policy ends the fit."""
        while len(self.history) < settings.max_epochs and not self.control.finished:
            self.remember()
            estimate, sweeps, change = self.epoch(settings)
            T, step = self.control.T, self.control.step
            self.control = settings.policy.after_epoch(self.control, change, estimate)
            epoch = len(self.history) + 1
            bounds = np.nan, np.nan
            if settings.policy.due(self.control, epoch):
                bounds = self._evaluate(settings)
                self.control = replace(self.control, evaluated=epoch)
            estimate, lower, upper = map(self.units.value, (estimate, *bounds))
            cost = self.units.value(self.control.best) if self.control.past else estimate
            T *= self.units.unit
            yield Epoch(estimate, lower, upper, T, step, sweeps), f"cost {cost:.3g}, T {T:.1e}"

    def epoch(self, settings: Settings) -> tuple[float, float, float]:
        """Update all memberships and the components; return the means of V(z), sweeps and changes."""
        n, K = self.n, len(self.log_components)
        D_step, W_step = (self.control.step * size / self.scale for size in settings.steps)
        size, weight = settings.batch_size if settings.online else n, self.weight / self._largest
        sweeps, changes, share = 0, list[float](), settings.policy.share(self.control)
        value = Fixed(0, self.precision.value)
        lag = settings.policy.lag(len(self.history))
        for begin in range(0, n, size):
            D = np.exp(self.log_components)
            of_batch = self.control.T, W_step, share, lag, begin, begin + size
            if self.algorithm == "d2suite":
                sums = self._batch(fixed_point.components(D), *of_batch)
            else:
                sums = self.shards.reduce(MixtureShard.epoch, fixed_point.components(D), *of_batch)
            value += sums.value
            sweeps += sums.sweeps
            mean_value = sums.value.value / max(self._weight_of(begin, begin + size), np.finfo(float).tiny)
            gradient = sums.gradient.times(K / weight)
            changes.append(D_step * _deviation(D, gradient))
            variance = float(self.units.cost.mean(D, D).mean()) / 2
            length = D_step * settings.policy.limit(changes[-1], mean_value, variance)
            self.log_components = mirror_step(self.log_components, gradient, length)
        self.mean_components = self.mean_components + share * (np.exp(self.log_components) - self.mean_components)
        return value.value / weight, sweeps / n, float(np.mean(changes))

    def _batch(
        self, D: NDArray[np.int32], T: float, step: float, share: float, lag: float, begin: int, end: int
    ) -> EpochSums:
        """Do what `MixtureShard.epoch` does for chains that are tested together: by the sum of V(z) over the batch."""
        before, sweeps = 0.0, 0
        for _ in range(_MOST_TESTS):
            sums = self.shards.reduce(MixtureShard.sweep, D, T, lag, begin, end)
            sweeps, value = sweeps + sums.sweeps, float(sums.value.value)
            if value - before <= paper.RISE * value:
                break
            before = value
        self.shards.reduce(MixtureShard.move, step, share, begin, end)
        return sums._replace(sweeps=sweeps)

    def _weight_of(self, begin: int, end: int) -> float:
        """Return the weight of a range of measures, in units of the largest."""
        if self.weights is None:
            return float(min(end, self.n) - begin)
        return float(self.weights[begin:end].sum()) / self._largest

    def _evaluate(self, settings: Settings) -> tuple[float, float]:
        """Evaluate a sample exactly, keep the best model, adapt step and temperature; return the sample's bounds."""
        policy, current = settings.policy, self.sample(np.exp(self.log_components), "current")
        if not self.control.past:  # the start is evaluated only now, so that the first models are available early
            self.control, _ = policy.record(self.control, self._bounds(self._best_sample())[1])
        T = self.control.T
        lower, value = self._bounds(self._mean_sample())
        if self.algorithm == "d2suite":  # to compare with that of all measures, at the same time
            estimate = self.evaluated.mean(self.shards.reduce(MixtureShard.epoch_values, current))
        else:
            estimate = self.evaluated.mean(self.shards.reduce(MixtureShard.estimate, current, T))
        self.control, best = policy.record(self.control, value)
        if best:
            self.best_components = logarithms(self.mean_components)
            self.shards.reduce(MixtureShard.keep_best)
        self.control = policy.update(self.control, value, estimate, settings.tol)
        if self.control.worse:
            self._restore_best()
        return lower, value

    def _restore_best(self) -> None:
        """Return to the best model."""
        self.log_components, self.mean_components = self.best_components, np.exp(self.best_components)
        self.shards.reduce(MixtureShard.restore_best)

    def last_evaluation(self) -> Final | None:
        """Evaluate the mean model exactly without any change of the state, unless that was done just now."""
        if self.control.evaluated == len(self.history):
            return None
        best = self.control.best if self.control.past else self._bounds(self._best_sample())[1]
        return Final(*self._bounds(self._mean_sample()), best)

    def published_cost(self, components: NDArray[np.floating]) -> float:
        """Return the mean exact cost of the sample, rounded up, of the model as it is published."""
        sample = Sample(self.evaluated.indices, Mixture(components, "best" if self.keeps_best else "mean"))
        costs = self.shards.reduce(MixtureShard.published_costs, sample, self.control.T)
        mean = self.evaluated.mean(costs)
        return self.units.upper(mean + (len(costs) + 4) * float(np.finfo(np.float64).eps) * abs(mean))

    def _mean_sample(self) -> Sample[Mixture]:
        return self.sample(self.mean_components, "mean")

    def _best_sample(self) -> Sample[Mixture]:
        return self.sample(np.exp(self.best_components), "best")

    def _bounds(self, sample: Sample[Mixture]) -> tuple[float, float]:
        """Return certified bounds of the mean cost of a sample."""
        bounds = self.shards.reduce(MixtureShard.exact_bounds, sample, self.control.T)
        return self.evaluated.mean(bounds.lower), self.evaluated.mean(bounds.upper)


def start(
    shards: Shards[MixtureShard],
    weights: Array | None,
    cost: costs.Cost,
    init: Any,
    initial_temperature: float | None,
    *,
    n_components: int,
    algorithm: str,
    tau: int,
    seed: int,
    n_jobs: int | None,
) -> FitState:
    """Start the chains, the components, which are found from a sample of the measures, and the memberships.

    Parameters
    ----------
    shards : Shards
        The measures.
    weights : array of shape (n,), optional
        The weights of the measures with mass.
    cost : Cost
        The cost between bins.
    init : {"nmf", "random"} or pair of arrays
        See `WassersteinNMF`.
    initial_temperature : float, optional
        The first temperature, in the units of the user.
    n_components : int
        The number of components.
    algorithm : {"adaptive", "paper", "d2suite"}
        The algorithm; see `MixtureShard.start`.
    tau, seed, n_jobs
        Of the oracle.

    Returns
    -------
    FitState
    """
    units, n = costs.in_units(cost).single(), sum(one.n_measures for one in shards.metadata)
    shards.initialise(units.cost, tau, seed, n_jobs)
    indices = evaluation.sample(n, START_SAMPLE)
    X = sparse.vstack(shards.collect(MixtureShard.targets, indices), format="csr")
    shares = None if weights is None else weights / weights.max()
    D, W = initial_factors(X, n_components, init, seed, n, None if shares is None else shares[indices])
    log_D = logarithms(D)
    indices = indices if isinstance(init, str) else np.arange(n)
    first = factors(fixed_point.components(np.exp(log_D)))
    own = shards.split(indices, indices), shards.split(W, indices), None if shares is None else shards.split(shares)
    shards.reduce(MixtureShard.start, first, *own, algorithm)
    evaluated = _Evaluated.of(n, shares)
    sample = Sample(evaluated.indices, Mixture(fixed_point.components(np.exp(log_D)), "current"))
    initial = shards.reduce(MixtureShard.initial_temperatures, sample)
    T = None if initial_temperature is None else initial_temperature / units.unit
    value, automatic = map(evaluated.mean, initial)
    policy: ModelCooling = AdaptiveCooling()
    support = shards.reduce(MixtureShard.support_size) / n
    if algorithm != "adaptive":
        policy = ConditionalDecay() if algorithm == "d2suite" else EpochDecay()
        automatic = paper.initial_temperature(costs.mean_cost(units.cost), support)
    control = policy.init(value, automatic, temperature.minimum(units.cost), T)
    dtype = np.result_type(*(one.dtype for one in shards.metadata)).str
    return FitState(shards, n, support, dtype, units, log_D, np.exp(log_D), log_D, control, weights, algorithm)


def _deviation(weights: Array, x: Array) -> float:
    """Return the standard deviation of rows under weights, averaged over the rows."""
    centred = x - (weights * x).sum(axis=1, keepdims=True)
    return float(np.sqrt((weights * centred**2).sum(axis=1)).mean())
