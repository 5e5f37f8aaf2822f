"""Wasserstein barycenters: the measure with the least mean transport cost to given measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..core import costs, validation
from ..core.costs import Cost, Units
from ..distributed import fixed_point
from ..distributed.shard import Array, EpochSums, Indices, Sample, Shard, command, precision, query
from ..distributed.shards import Shards
from ..sampling import temperature
from ..sampling.annealing.plateau import PlateauCooling, Trend
from ..solvers import evaluation
from ..solvers.mirror_descent import logarithms, mirror_step
from . import _base
from ._costs import Metric, feature_cost
from ._loop import Epoch, run_epochs

_INITIAL = 0.2  # factor of the initial temperature of other models: chains follow one measure easily
_MEMORY = 0.9  # of the running means of models and potentials, which vary less than the last ones
_COOLING = PlateauCooling(window=10, stride=10, cooling=0.5, damping=0.85, relative=True, rise=1.05, final_bias=0.02)
_NEGLIGIBLE = 1e-7  # weight threshold relative to the largest weight: smaller ones only cost time
_ROUNDS = 3, 50  # of the ascent of the lower bound, during the fit and at its end
_LARGEST = 8  # bound of the potentials in the ascent of the lower bound, as a multiple of the spread of the costs
_FINE = _LARGEST * 2.0 ** (fixed_point.COMPONENT_BITS - 53)  # of the quantum of values: sums in double precision


class WassersteinBarycenter(_base.MeasuresEstimator):
    r"""The barycenter of measures on one support.

    .. math:: \min_p \sum_i \lambda_i W(p, x_i)

    over weights p. The problem is convex. Gradients come from warm-started Gibbs samplers (`Oracle`); steps are mirror
    descent from the mean of the measures. When neither V(z) falls nor the certified lower bound rises, the chains are
    cooled, and the descent continues from the average of the last models with shorter steps. The barycenter is such an
    average.

    Parameters
    ----------
    cost : Cost, array of shape (m, m), str or callable, optional
        The cost between bins, such as ``GridCost((64, 64))``, "line", or a metric such as "cosine" between the rows of
        ``feature_vectors`` or the columns of X, as for `WassersteinNMF`. None is "line", with a warning.
    weights : array of shape (n,), optional
        The lambda, nonnegative. They are normalised, to about six digits; uniform by default.
    max_epochs : int
        The largest number of passes over the measures.
    step_size : float
        The step of the descent, relative to the mean cost.
    temperature : "auto" or float
        The initial temperature. "auto" is a fifth of that of `WassersteinNMF`.
    tau : int
        The lag of the chains' mixing test.
    tol : float
        The gain of ten epochs, relative to the cost, below which the chains are cooled or, if they are cold, the fit
        ends.
    random_state : int, RandomState or None
        The seed; results are bit-identical for the same integer.
    n_jobs : int, optional
        The number of threads over the measures; results are bit-identical for every number.
    verbose : bool
        Show progress: a bar on terminals and in notebooks, lines on standard error elsewhere.
    callbacks : sequence of functions
        Each is called with the model after every epoch; the fit stops if one returns True.
    client : dask.distributed.Client, optional
        Keeps the shards of the data on the client's workers, as in `WassersteinNMF`. Results are bit-identical to
        those without a client.
    feature_vectors : array of shape (m, d), optional
        An embedding of each bin, from which a metric builds the cost.

    Attributes
    ----------
    cost_ : Cost
        The cost between bins.
    barycenter_ : array of shape (m,)
        The weights p, with sum one.
    objective_ : float
        The exact objective of the barycenter over all measures of the fit, from optimal plans; infinite during the fit
        and after an interrupt.
    lower_bound_ : float
        A certified lower bound of the objective of all weights p: ``objective_ / lower_bound_ - 1`` bounds the relative
        suboptimality of the barycenter.
    n_iter_ : int
        The number of epochs.
    history_ : list of Epoch
        The record of each epoch. ``lower`` is the lower bound so far, every ten epochs; ``upper`` is the objective, in
        the last record only.
    n_features_in_ : int
        The number of bins m.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(20)
    >>> bumps = np.exp(-((x - np.array([[5], [13]])) ** 2) / 4)
    >>> model = WassersteinBarycenter("line", random_state=0).fit(bumps)
    >>> int(model.barycenter_.argmax()), model.objective_ < 1.02 * model.lower_bound_
    (9, True)
    """

    def __init__(
        self,
        cost: Cost | ArrayLike | str | Metric | None = None,
        *,
        weights: ArrayLike | None = None,
        max_epochs: int = 1000,
        step_size: float = 20.0,
        temperature: float | str = "auto",
        tau: int = 20,
        tol: float = 2e-4,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callable[[Any], Any]] = (),
        client: Any = None,
        feature_vectors: Any = None,
    ) -> None:
        self.cost = cost
        self.weights = weights
        self.max_epochs = max_epochs
        self.step_size = step_size
        self.temperature = temperature
        self.tau = tau
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks
        self.client = client
        self.feature_vectors = feature_vectors

    def fit(self, X: Any, y: Any = None) -> WassersteinBarycenter:
        """Find the barycenter of measures. A fit that is interrupted leaves the last average.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of matrices or files
            Measures as rows, which are normalised. Each item of a list, or block of a Dask array, is a shard.
        y : None
            Ignored.

        Returns
        -------
        WassersteinBarycenter
            The fitted model.
        """
        started = time.perf_counter()
        _base.check_parameters(self)
        validation.positive(self.step_size, "step_size")
        with closing(_base.shards_of(self, BarycenterShard, X, reset=True)) as shards:
            self.cost_ = feature_cost(self.cost, self.n_features_in_, self.feature_vectors, X)
            self._fit(shards, started)
        return self

    def _fit(self, shards: Shards[BarycenterShard], started: float) -> None:
        units, weights = costs.in_units(self.cost_), self._weights(shards)
        shards.initialise(units.single().cost, self.tau, _base.seed(self.random_state), self.n_jobs)
        shards.reduce(BarycenterShard.set_weights, weights, units.cost.astype(np.float64))
        descent = _Descent(self, shards, units.single())
        self.history_: list[Epoch] = []
        self.objective_ = np.inf
        dtype = np.result_type(*(one.dtype for one in shards.metadata))

        def publish() -> None:
            p = np.where(descent.average < _NEGLIGIBLE * descent.average.max(), 0, descent.average)
            self.barycenter_ = (p / p.sum()).astype(dtype)
            self.n_iter_, self.lower_bound_ = len(self.history_), units.lower(descent.lower)

        publish()
        run_epochs("Wasserstein barycenter", self, descent.epochs(), self.history_, publish, started)
        descent.improve_bound(_ROUNDS[1])
        publish()
        p = self.barycenter_.astype(np.float64)
        self.objective_ = units.value(descent.objective(p / p.sum()))
        self.history_[-1] = self.history_[-1]._replace(lower=self.lower_bound_, upper=self.objective_)

    def _weights(self, shards: Shards[BarycenterShard]) -> Array | None:
        """Return the weights of measures with mass, divided by the largest; None if all are one."""
        if self.weights is None:
            return None
        full = np.concatenate(shards.collect(BarycenterShard.has_mass))
        weights = validation.weights(self.weights, "weights", len(full), count=1)[0]
        if not weights[full].any():
            raise ValueError("weights: are zero for every measure with mass; expected a positive one")
        return np.asarray(weights[full] / weights[full].max())


class _Descent:
    """Mirror descent from the mean of the measures."""

    def __init__(self, model: WassersteinBarycenter, shards: Shards[BarycenterShard], units: Units) -> None:
        cost = units.cost
        self.model, self.shards, self.units, self.lower = model, shards, units, -np.inf
        self.sizes = shards.reduce(BarycenterShard.sizes)
        self.precision = precision(cost, self.sizes.n)
        m = cost.shape[0]
        mean = shards.reduce(BarycenterShard.mean) / (self.sizes.mass * 2.0**self.precision.bits)
        self.average = _base.smooth(mean, np.full(m, 1 / m))[0]
        T, T_min = validation.initial_temperature(model.temperature), temperature.minimum(cost)
        if T is None:
            sample = Sample(evaluation.sample(self.sizes.n), self.average)
            _, temperatures = shards.reduce(BarycenterShard.initial_temperatures, sample)
            T = max(_INITIAL * float(temperatures.mean()), T_min) * units.unit
        self.state = _COOLING.init(T / units.unit, T_min, m + self.sizes.support / self.sizes.n)

    def epochs(self) -> Iterator[tuple[Epoch, str]]:
        """Run epochs until the cooling has finished."""
        log_p, scale = logarithms(self.average), costs.mean_cost(self.units.cost)
        _, quantum, value_quantum = self.precision
        for epoch in range(1, self.model.max_epochs + 1):
            T, step = self.state.T, self.state.step
            memory = min(_MEMORY, (epoch - 1) / (epoch + 1))
            sums = self.shards.reduce(BarycenterShard.epoch, np.exp(log_p), T, memory)
            gradient = sums.gradient[0] * (quantum / self.sizes.mass)
            log_p = mirror_step(log_p, gradient, step * float(self.model.step_size) / scale)
            self.average = memory * self.average + (1 - memory) * np.exp(log_p)
            estimate = sums.value * value_quantum / self.sizes.mass
            self.state = _COOLING.observe(self.state, estimate)
            due = _COOLING.due(self.state)
            gain = self.improve_bound(_ROUNDS[0]) if due else 0.0
            cost, T = self.units.value(estimate), T * self.units.unit
            lower = self.units.lower(self.lower) if due else np.nan
            record = Epoch(cost, lower, np.nan, T, step, sums.sweeps / self.sizes.n)
            yield record, f"cost {cost:.3g}, T {T:.1e}"
            trend = _COOLING.trend(self.state, self.model.tol, gain) if due else Trend.FALLING
            self.state = _COOLING.update(self.state, trend)
            if self.state.finished:
                return
            if trend is not Trend.FALLING:  # from the average, as the model itself oscillates
                log_p = logarithms(self.average)

    def improve_bound(self, rounds: int) -> float:
        """Improve the lower bound by the mean potentials; return the gain."""
        old = self.lower
        self.lower = max(old, lower_bound(self.shards, self.units.cost, rounds))
        return self.lower - old

    def objective(self, p: Array) -> float:
        """Return the exact objective of p."""
        total = self.shards.reduce(BarycenterShard.objective, p, self.state.T)
        return total * (_FINE * self.precision.value) / self.sizes.mass


class _Sizes(NamedTuple):
    """The number of measures, the sum of their weights in quanta, and the size of their supports."""

    n: int
    mass: int
    support: int


class _Potentials(NamedTuple):
    """The weighted sum of potentials in two parts: in quanta, and the remainder in quanta of ``2**-bits``."""

    high: NDArray[np.int64]
    low: NDArray[np.int64]


class BarycenterShard(Shard[Array]):
    """Measures, their weights, their chains, and running means of their potentials; a model is one measure p."""

    @query
    def has_mass(self) -> NDArray[np.bool_]:
        """Return which rows have mass."""
        mask = np.zeros(self._metadata.n_rows, bool)
        mask[self.rows] = True
        return mask

    @command
    def set_weights(self, weights: Array | None, cost: Cost) -> None:
        """Set the weights of all measures, at most one, and the cost in double precision."""
        own = np.ones(len(self)) if weights is None else weights[self.first : self.first + len(self)]
        self.weights = fixed_point.quantise(own[:, None], 2.0**-self.bits)
        self.cost, self.largest = cost, _LARGEST * cost.spread()
        self.potentials: NDArray[Any] = np.zeros((len(self), cost.shape[0]), np.float32)

    @query
    def sizes(self) -> _Sizes:
        """Return the number of measures, their total weight and the size of their supports."""
        return _Sizes(len(self), int(self.weights.sum()), self.support_size())

    @query
    def mean(self) -> NDArray[np.int64]:
        """Return the weighted sum of the measures, of shape (1, m), in products of two quanta."""
        if not len(self):
            return np.zeros((1, self._metadata.n_columns), np.int64)
        targets = fixed_point.quantise(self.oracle.targets.toarray(), 2.0**-self.bits)
        return fixed_point.product(self.weights, targets, self.bits)

    @command
    def epoch(self, p: Array, temperature: float, memory: float) -> EpochSums:
        """Advance the chains for the model p, and the running means of potentials, which keep a share `memory`."""
        if not len(self):
            return EpochSums(np.zeros((1, len(p)), np.int64), 0, 0)
        values, U, info = self.oracle(p, temperature)
        self.potentials = (memory * self.potentials + (1 - memory) * U).astype(U.dtype)
        gradient = fixed_point.product(self.weights, fixed_point.quantise(U, self.quantum), self.bits)
        value = _weighted_sum(self.weights, fixed_point.quantise(values, self.value_quantum))
        return EpochSums(gradient, value, int(info.sweeps.sum()))

    @command
    def ascend(self, mean: Array | None) -> _Potentials:
        """Subtract the mean from the potentials and apply two c-transforms; return the weighted sum of the potentials.

        Without a mean, the ascent of the lower bound starts from the running means of the potentials.
        """
        if mean is None:
            self.U: NDArray[Any] = self.potentials.astype(np.float64)
        elif len(self):
            self.L = self.cost.col_max(np.clip(self.U - mean, -self.largest, self.largest), self.oracle.n_jobs)
            self.U = self.cost.row_min(self.L, self.oracle.n_jobs)
        quantum = _LARGEST * self.quantum
        high = fixed_point.quantise(self.U, quantum)
        low = fixed_point.quantise(self.U - high * quantum, quantum * 2.0**-self.bits)
        return _Potentials(*(fixed_point.product(self.weights, x, self.bits) for x in (high, low)))

    @query
    def target_cost(self) -> int:
        """Return the weighted sum of ``<x, L>``, plus what rounding could add to a bound, in fine quanta."""
        if not len(self):
            return 0
        largest = np.abs(self.U).max(axis=1) + np.abs(self.L).max(axis=1)
        slack = (2 * self.cost.depth + 2) * np.finfo(np.float64).eps * largest
        values = np.asarray(self.oracle.targets.multiply(self.L).sum(axis=1)).ravel()
        return _weighted_sum(self.weights, np.ceil((values + slack) / (_FINE * self.value_quantum)))

    @query
    def objective(self, p: Array, temperature: float) -> int:
        """Return the weighted sum of the costs of optimal plans, in the user's precision, in fine quanta."""
        if not len(self):
            return 0
        plans = [sparse.coo_array(optimum.plan) for optimum in self.oracle.exact(p, temperature)]
        values = np.array([(plan.data * self.cost.at(plan.row, plan.col)).sum() for plan in plans])
        return _weighted_sum(self.weights, fixed_point.quantise(values, _FINE * self.value_quantum))

    def models(self, rows: Indices, model: Array) -> Array:
        return np.tile(model, (len(rows), 1))


def _weighted_sum(weights: Array, values: Array) -> int:
    """Return the sum of products of quantised numbers, in integers that cannot overflow."""
    return sum(int(w) * int(v) for w, v in zip(weights.ravel().tolist(), values.tolist(), strict=True))


def lower_bound(shards: Shards[BarycenterShard], cost: Cost, rounds: int = 50) -> float:
    r"""Return a lower bound of the objective of every measure p, for any potentials U of the measures.

    .. math::

        \sum_i \lambda_i W(p, x_i) \ge \min_a \sum_i \lambda_i U_{ia} - \sum_i \lambda_i \langle x_i, L_i \rangle,
        \qquad L_{ij} = \max_a (U_{ia} - M_{aj})

    by the duality of each W. The bound is better the flatter the mean of the potentials is. So every round subtracts
    the mean from them, which lowers L, and replaces U by the c-transform of this L; the bound never falls. What
    rounding could add to it is subtracted.

    Parameters
    ----------
    shards : Shards of BarycenterShard
        The measures, their weights lambda and their mean potentials.
    cost : Cost
        The cost, in the precision of the chains.
    rounds : int
        The number of rounds.

    Returns
    -------
    float
        The bound.
    """
    sizes = shards.reduce(BarycenterShard.sizes)
    bits, quantum, value_quantum = precision(cost, sizes.n)
    high, low = _LARGEST * quantum, _LARGEST * quantum * 2.0**-bits

    def mean(sums: _Potentials) -> Array:
        return np.asarray((sums.high[0] * high + sums.low[0] * low) / sizes.mass)

    U = mean(shards.reduce(BarycenterShard.ascend, None))
    for _ in range(rounds):
        U = mean(shards.reduce(BarycenterShard.ascend, U))
    rounding = low + 4 * np.finfo(np.float64).eps * float(np.abs(U).max())
    total = shards.reduce(BarycenterShard.target_cost)
    return float(U.min() - total * (_FINE * value_quantum) / sizes.mass - rounding)
