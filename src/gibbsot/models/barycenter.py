"""Wasserstein barycenters: the measure with the least mean transport cost to given measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core import costs, validation
from ..core.costs import Cost
from ..distributed.shard import Array, Sample, precision
from ..distributed.shards import Shards
from ..sampling import temperature
from ..sampling.annealing.plateau import PlateauCooling, Trend
from ..solvers import evaluation
from ..solvers.mirror_descent import logarithms, mirror_step
from . import _base
from ._barycenter_shard import FINE, BarycenterShard, lower_bound
from ._loop import Epoch, run_epochs

_INITIAL = 0.2  # factor of the initial temperature of other models: chains follow one measure easily
_MEMORY = 0.9  # of the running means of models and potentials, which vary less than the last ones
_COOLING = PlateauCooling(window=10, stride=10, cooling=0.5, damping=0.85, relative=True, rise=1.05, final_bias=0.02)
_NEGLIGIBLE = 1e-7  # weight threshold relative to the largest weight: smaller ones only cost time
_ROUNDS = 3, 50  # of the ascent of the lower bound, during the fit and at its end


class WassersteinBarycenter(_base.MeasuresEstimator):
    r"""The barycenter of measures on one support.

    .. math:: \min_p \sum_i \lambda_i W(p, x_i)

    over weights p. The problem is convex. Gradients come from warm-started Gibbs samplers (`Oracle`); steps are mirror
    descent from the mean of the measures. When neither V(z) falls nor the certified lower bound rises, the chains are
    cooled, and the descent continues from the average of the last models with shorter steps. The barycenter is such an
    average.

    Parameters
    ----------
    cost : Cost or array of shape (m, m), optional
        The cost between bins, such as ``GridCost((64, 64))``; by default bins on a line, ``GridCost(m)``.
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
        Whether to show a progress bar on a terminal.
    callbacks : sequence of functions
        Each is called with the model after every epoch; the fit stops if one returns True.
    client : dask.distributed.Client, optional
        Keeps the shards of the data on the client's workers, as in `WassersteinNMF`. Results are bit-identical to
        those without a client.

    Attributes
    ----------
    barycenter_ : array of shape (m,)
        The weights p, with sum one.
    objective_ : float
        The exact objective of the barycenter over all measures; infinite during the fit and after an interrupt.
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
    >>> model = WassersteinBarycenter(random_state=0).fit(bumps)
    >>> int(model.barycenter_.argmax()), model.objective_ < 1.02 * model.lower_bound_
    (9, True)
    """

    def __init__(
        self,
        cost: Cost | ArrayLike | None = None,
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
            self._fit(shards, started)
        return self

    def _fit(self, shards: Shards[BarycenterShard], started: float) -> None:
        cost = _base.square_cost(self.cost, shards.metadata[0].n_columns)
        weights = self._weights(shards)
        single, seed = costs.single(cost), _base.seed(self.random_state)
        shards.initialise(single, self.tau, seed, self.n_jobs)
        shards.reduce(BarycenterShard.set_weights, weights, cost.astype(np.float64))
        descent = _Descent(self, shards, single)
        self.history_: list[Epoch] = []
        self.objective_, self.lower_bound_ = np.inf, -np.inf
        dtype = np.result_type(*(one.dtype for one in shards.metadata))

        def publish() -> None:
            p = np.where(descent.average < _NEGLIGIBLE * descent.average.max(), 0, descent.average)
            self.barycenter_ = (p / p.sum()).astype(dtype)
            self.n_iter_ = len(self.history_)

        publish()
        run_epochs("Wasserstein barycenter", self, descent.epochs(), self.history_, publish, started)
        descent.improve_bound(_ROUNDS[1])
        p = self.barycenter_.astype(np.float64)
        self.objective_ = descent.objective(p / p.sum())
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

    def __init__(self, model: WassersteinBarycenter, shards: Shards[BarycenterShard], cost: Cost) -> None:
        self.model, self.shards, self.cost = model, shards, cost
        self.sizes = shards.reduce(BarycenterShard.sizes)
        self.precision = precision(cost, self.sizes.n)
        m = cost.shape[0]
        mean = shards.reduce(BarycenterShard.mean) / (self.sizes.mass * 2.0**self.precision.bits)
        self.average = _base.smooth(mean, np.full(m, 1 / m))[0]
        T, T_min = validation.initial_temperature(model.temperature), temperature.minimum(cost)
        if T is None:
            sample = Sample(evaluation.sample(self.sizes.n), self.average)
            _, temperatures = shards.reduce(BarycenterShard.initial_temperatures, sample)
            T = max(_INITIAL * float(temperatures.mean()), T_min)
        self.state = _COOLING.init(T, T_min, m + self.sizes.support / self.sizes.n)

    def epochs(self) -> Iterator[tuple[Epoch, str]]:
        """Run epochs until the cooling has finished."""
        log_p, scale = logarithms(self.average), costs.mean_cost(self.cost)
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
            lower = self.model.lower_bound_ if due else np.nan
            record = Epoch(estimate, lower, np.nan, T, step, sums.sweeps / self.sizes.n)
            yield record, f"cost {estimate:.3g}, T {T:.1e}"
            trend = _COOLING.trend(self.state, self.model.tol, gain) if due else Trend.FALLING
            self.state = _COOLING.update(self.state, trend)
            if self.state.finished:
                return
            if trend is not Trend.FALLING:  # from the average, as the model itself oscillates
                log_p = logarithms(self.average)

    def improve_bound(self, rounds: int) -> float:
        """Improve the model's lower bound by the mean potentials; return the gain."""
        old = self.model.lower_bound_
        self.model.lower_bound_ = max(old, lower_bound(self.shards, self.cost, rounds))
        return self.model.lower_bound_ - old

    def objective(self, p: Array) -> float:
        """Return the exact objective of p."""
        total = self.shards.reduce(BarycenterShard.objective, p, self.state.T)
        return total * (FINE * self.precision.value) / self.sizes.mass
