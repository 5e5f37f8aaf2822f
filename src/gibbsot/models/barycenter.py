"""Wasserstein barycenters: the measure with the least mean transport cost to given measures."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from ..core import costs, validation
from ..core.costs import Cost
from ..distributed.shard import Array, precision
from ..distributed.shards import Shards
from ..sampling import temperature
from ..solvers import linear_programme
from ..solvers.free_measure import FreeMeasure, Optimum, relative_gap
from ..solvers.line_barycenter import line_barycenter
from ..solvers.mirror_descent import logarithms, mirror_step
from ..solvers.run import Run
from ..solvers.solution import RELATIVE_GAP
from . import _base
from ._barycenter_descent import MEMORY, Descent
from ._barycenter_shard import FINE, BarycenterShard
from ._costs import Metric, feature_cost
from ._loop import Epoch, run_epochs

_NEGLIGIBLE = 1e-7  # weight threshold relative to the largest weight: smaller ones only cost time
_ROUNDS = 3, 50  # of the ascent of the lower bound, during the fit and at its end
_ENOUGH = 30  # epochs after which potentials are good enough to choose the arcs of the linear programme
_BYTES = 2e9  # of the linear programme, unless max_memory is given
_EXACT_STALL = 10  # exact steps that must lower the gap by a tenth
_REASONS = {
    "time": "max_seconds are over",
    "memory": "the linear programme needs more than max_memory, and steps with exact values have stalled",
    "epochs": "max_epochs are over",
    "precision": "rounding leaves the rest",
}


class WassersteinBarycenter(_base.MeasuresEstimator):
    r"""The barycenter of measures on one support.

    .. math:: \min_p \sum_i \lambda_i W(p, x_i)

    over weights p, to a certified gap. The problem is a linear programme, and potentials choose its arcs. These come
    from mirror descent with the gradients of warm-started Gibbs samplers (`Oracle`); small programmes have all arcs.
    The programme is solved by an interior-point method and, for the optimum itself, HiGHS (see
    `solvers.linear_programme`). On a line the barycenter has a closed form. Where the programme is too large for the
    memory, the descent goes on to the end: when neither V(z) falls nor the certified lower bound rises, the chains are
    cooled, and the descent continues from the average of the last models with shorter steps; then follow steps with
    exact values.

    Parameters
    ----------
    cost : Cost, array of shape (m, m), str or callable, optional
        The cost between bins, such as ``GridCost((64, 64))``, "line", or a metric such as "cosine" between the rows of
        ``feature_vectors`` or the columns of X, as for `WassersteinNMF`. None is "line", with a warning.
    gap : float
        The certified relative gap at which the fit ends; 0 for the optimum, to a gap of 1e-10.
    max_epochs : int
        The largest number of passes over the measures by descent.
    step_size : float
        The step of the descent, relative to the mean cost.
    temperature : "auto" or float
        The initial temperature. "auto" is a fifth of that of `WassersteinNMF`.
    tau : int
        The lag of the chains' mixing test.
    tol : float
        The gain of ten epochs, relative to the cost, below which the chains are cooled or, if they are cold, the
        descent ends.
    max_seconds : float, optional
        The time after which the fit ends with what it has proved. A run of HiGHS gets what is left of it.
    max_memory : float, optional
        The bytes that the linear programme may take; 2e9 by default.
    random_state : int, RandomState or None
        The seed; results are bit-identical for the same integer.
    n_jobs : int, optional
        The number of threads over the measures; results are bit-identical for every number.
    verbose : bool
        Show progress: a bar on terminals and in notebooks, lines on standard error elsewhere.
    callbacks : sequence of functions
        Each is called with the model after every epoch and round; the fit stops if one returns True.
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
        The exact objective of the barycenter over all measures of the fit, from optimal plans, rounded up; infinite
        during the descent and after an interrupt of it.
    lower_bound_ : float
        A certified lower bound of the objective of all weights p.
    gap_ : float
        ``(objective_ - lower_bound_) / |objective_|``, which bounds the relative suboptimality of the barycenter.
    status_ : str
        "optimal" (a gap of at most 1e-10), "gap reached", "budget spent", with a `ConvergenceWarning`, or "stopped" by
        a callback; "running" during the fit and after an interrupt.
    n_iter_ : int
        The number of epochs and rounds.
    history_ : list of Epoch
        The record of each epoch and round. ``lower`` is the lower bound so far, every ten epochs; ``upper`` the
        objective so far, from the first round on and in the last record. Rounds have temperature zero.
    n_features_in_ : int
        The number of bins m.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(20)
    >>> bumps = np.exp(-((x - np.array([[5], [13]])) ** 2) / 4)
    >>> model = WassersteinBarycenter("line", random_state=0).fit(bumps)
    >>> int(model.barycenter_.argmax()), model.status_
    (9, 'optimal')
    """

    def __new__(cls, *_: Any, **parameters: Any) -> WassersteinBarycenter:
        if "weights" in parameters:
            raise TypeError("weights: was removed; expected fit(X, sample_weight=...)")
        return super().__new__(cls)

    def __init__(
        self,
        cost: Cost | ArrayLike | str | Metric | None = None,
        *,
        gap: float = 1e-3,
        max_epochs: int = 1000,
        step_size: float = 20.0,
        temperature: float | str = "auto",
        tau: int = 20,
        tol: float = 2e-4,
        max_seconds: float | None = None,
        max_memory: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callable[[Any], Any]] = (),
        client: Any = None,
        feature_vectors: Any = None,
    ) -> None:
        self.cost = cost
        self.gap = gap
        self.max_epochs = max_epochs
        self.step_size = step_size
        self.temperature = temperature
        self.tau = tau
        self.tol = tol
        self.max_seconds = max_seconds
        self.max_memory = max_memory
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks
        self.client = client
        self.feature_vectors = feature_vectors

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> WassersteinBarycenter:
        """Find the barycenter of measures. A fit that is interrupted leaves the best so far.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of matrices or files
            Measures as rows, which are normalised. Each item of a list, or block of a Dask array, is a shard.
        y : None
            Ignored.
        sample_weight : array of shape (n,), optional
            The lambda, nonnegative, which are normalised; uniform by default. Where the linear programme is not used,
            they are rounded to about six digits.

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
            self._fit(shards, _weights(sample_weight, shards), started)
        return self

    def _fit(self, shards: Shards[BarycenterShard], weights: Array | None, started: float) -> None:
        fit = _Fit(self, shards, weights)
        self.history_: list[Epoch] = []
        self.status_ = "running"
        dtype = np.result_type(*(one.dtype for one in shards.metadata))

        def publish() -> None:
            self.barycenter_ = (fit.average() if fit.upper == np.inf else fit.p).astype(dtype)
            self.objective_, self.lower_bound_, self.n_iter_ = fit.upper, fit.lower, len(self.history_)
            self.gap_ = relative_gap(fit.lower, fit.upper)

        publish()
        run_epochs("Wasserstein barycenter", self, fit.stages(), self.history_, publish, started)
        fit.complete(self.barycenter_)
        self.objective_, self.lower_bound_, self.gap_ = fit.upper, fit.lower, relative_gap(fit.lower, fit.upper)
        self.history_[-1] = self.history_[-1]._replace(lower=self.lower_bound_, upper=self.objective_)
        self.status_ = fit.status()


def _weights(given: ArrayLike | None, shards: Shards[BarycenterShard]) -> Array | None:
    """Return the weights of measures with mass, divided by the largest; None if all are one."""
    if given is None:
        return None
    full = np.concatenate(shards.collect(BarycenterShard.has_mass))
    weights = validation.weights(given, "sample_weight", len(full), count=1, empty_rows=True)[0]
    if not weights[full].any():
        raise ValueError("sample_weight: is zero for every measure with mass; expected a positive one")
    return np.asarray(weights[full] / weights[full].max())


class _Fit:
    """The stages of a fit: descent, the linear programme, and steps with exact values where it does not fit.

    Attributes
    ----------
    p : array of shape (m,)
        The best weights so far.
    lower, upper : float
        Their certified bounds; the upper one is infinite before the first exact objective.
    ended : str
        Why the stages ended.
    """

    def __init__(self, model: WassersteinBarycenter, shards: Shards[BarycenterShard], weights: Array | None) -> None:
        self.model, self.shards, self.weights, self.cost = model, shards, weights, model.cost_.astype(np.float64)
        self.units = costs.in_units(model.cost_)
        shards.initialise(self.units.single().cost, model.tau, _base.seed(model.random_state), model.n_jobs)
        own = None if weights is None else shards.split(weights)
        shards.reduce(BarycenterShard.set_weights, own, self.units.cost.astype(np.float64))
        self.sizes = shards.reduce(BarycenterShard.sizes)
        self.run = Run(model.max_seconds or np.inf, model.max_memory or _BYTES)
        self.p, self.lower, self.upper, self.ended = np.full(self.cost.shape[0], 1.0), -np.inf, np.inf, "stopped"

    def stages(self) -> Iterator[tuple[Epoch, str]]:
        """Run the stages until the gap is reached or the budget is spent."""
        problem = self._programme()
        geometry = self.cost.geometry()
        if problem is not None and geometry is not None and geometry.X.shape[1] == 1:
            yield self._record(line_barycenter(problem.targets, problem.weights, geometry))
        elif problem is not None and problem.small:
            yield from self._rounds(linear_programme.stages(problem, self.model.gap, run=self.run))
        else:
            yield from self._large(problem)

    def _large(self, problem: FreeMeasure | None) -> Iterator[tuple[Epoch, str]]:
        """Descend until the potentials are good enough for the linear programme, and to the end if it does not fit."""
        descent = Descent(self.model, self.shards, self.units.single(), self.sizes)
        for epoch, note in descent.epochs():
            if self.upper == np.inf:
                self.p = descent.average
            self.lower = max(self.lower, self.units.lower(descent.lower))
            yield epoch, note
            if self._reached(descent, epoch) or self.run.spent:
                self.ended = "gap reached" if self.upper < np.inf else "time"
                return
            if problem is not None and len(self.model.history_) == min(_ENOUGH, self.model.max_epochs):
                descent.improve_bound(_ROUNDS[0])
                L = self.units.unit * np.concatenate(self.shards.collect(BarycenterShard.ascended))
                used = L if self.weights is None else L[self.weights > 0]
                start = used, self.average(), epoch.estimate
                yield from self._rounds(linear_programme.stages(problem, self.model.gap, *start, self.run))
                if self.ended != "memory":
                    return
                self.lower, self.upper = -np.inf, np.inf  # the descent goes on, with rounded weights
        self.ended = "epochs"
        descent.improve_bound(_ROUNDS[1])
        self.lower = max(self.lower, self.units.lower(descent.lower))
        if len(self.model.history_) < self.model.max_epochs:
            yield from self._exact_steps(descent)

    def _programme(self) -> FreeMeasure | None:
        """Return the problem with all measures in this process, or None if that takes too much memory."""
        sizes, m = self.sizes, self.cost.shape[0]
        if 8 * (6.0 * sizes.n * m + sizes.support**2 / sizes.n) > self.run.max_memory:
            return None
        targets = sparse.vstack(self.shards.collect(BarycenterShard.targets, np.arange(sizes.n)), format="csr")
        weights = np.ones(sizes.n) if self.weights is None else self.weights
        used = np.flatnonzero(weights)
        return FreeMeasure(targets[used], weights[used] / weights.sum(), self.cost, n_jobs=self.model.n_jobs)

    def _rounds(self, stages: Iterator[Optimum]) -> Iterator[tuple[Epoch, str]]:
        """Solve the linear programme."""
        with linear_programme.ONE_THREAD():
            for best in stages:
                yield self._record(best)

    def _record(self, best: Optimum) -> tuple[Epoch, str]:
        """Take over an optimum; return its record and a note."""
        if best.upper < np.inf:
            self.p, self.lower, self.upper = best.w, best.lower, best.upper  # of weights that are not rounded
        self.ended = best.ended
        record = Epoch(self.upper, self.lower, self.upper, 0.0, 0.0, 0.0)
        return record, f"{best.stage}, cost {self.upper:.6g}, gap {relative_gap(self.lower, self.upper):.1e}"

    def _reached(self, descent: Descent, epoch: Epoch) -> bool:
        """Return whether the descent has reached the gap, after a look at its estimate."""
        wanted = self.model.gap * abs(epoch.estimate)
        if not epoch.estimate - epoch.lower <= wanted:
            return False
        p = self.average()
        upper = self.units.upper(descent.objective(p))
        if relative_gap(self.lower, upper) > self.model.gap:
            return False
        self.p, self.upper = p, upper
        return True

    def average(self) -> Array:
        """Return the average of the descent without negligible weights."""
        p = np.where(self.p < _NEGLIGIBLE * self.p.max(), 0, self.p)
        return np.asarray(p / p.sum())

    def _exact_steps(self, descent: Descent) -> Iterator[tuple[Epoch, str]]:
        """Take steps with exact values towards a level between the bounds, until the gap is reached or stalls."""
        self.p = self.average()
        log_p, gaps = logarithms(self.p), [np.inf]
        for step in range(self.model.max_epochs - len(self.model.history_)):
            memory = min(MEMORY, step / (step + 2))
            p = np.exp(log_p)
            value, gradient = descent.exact(p, memory)
            descent.improve_bound(_ROUNDS[0])
            self.lower, upper = max(self.lower, self.units.lower(descent.lower)), self.units.upper(value)
            if upper < self.upper:
                self.p, self.upper = p, upper
            gaps.append(relative_gap(self.lower, self.upper))
            record = Epoch(upper, self.lower, self.upper, 0.0, 1.0, 0.0)
            yield record, f"exact step {step + 1}, cost {upper:.6g}, gap {gaps[-1]:.1e}"
            if gaps[-1] <= self.model.gap or self.run.spent:
                self.ended = "gap reached" if gaps[-1] <= self.model.gap else "time"
                return
            if len(gaps) > _EXACT_STALL and gaps[-1] > 0.9 * gaps[-_EXACT_STALL]:
                self.ended = "memory"
                return
            level = (descent.lower + (self.upper - self.units.shift) / self.units.unit) / 2
            spread = float(p @ (gradient - p @ gradient) ** 2)
            log_p = mirror_step(log_p, gradient, max(value - level, 0.0) / max(spread, 1e-300))

    def complete(self, p: Array) -> None:
        """Compute the exact objective of published weights, where it is not that of the best ones."""
        exact = p.astype(np.float64)
        exact /= exact.sum()
        if self.upper == np.inf or p.dtype != np.float64:
            value = self.shards.reduce(BarycenterShard.objective, exact, temperature.minimum(self.units.cost))
            scale = precision(self.units.single().cost, self.sizes.n).value * FINE / self.sizes.mass
            self.upper = self.units.upper(value * scale)

    def status(self) -> str:
        """Return the status of the fit, and warn if the gap stays open."""
        gap, wanted = relative_gap(self.lower, self.upper), self.model.gap
        if gap <= RELATIVE_GAP or (self.ended == "gap reached" and wanted == 0):
            return "optimal"
        if gap <= wanted:
            return "gap reached"
        if self.ended == "stopped":
            return "stopped"
        warnings.warn(
            f"the certified gap of the barycenter is {gap:.1e} of its objective, and gap={wanted:g} was asked for: "
            f"{_REASONS.get(self.ended, _REASONS['precision'])}. The bounds are valid",
            ConvergenceWarning,
            stacklevel=4,
        )
        return "budget spent"


# what help shows: __new__ only refuses a parameter that was removed
WassersteinBarycenter.__signature__ = inspect.signature(WassersteinBarycenter.__init__).replace(
    parameters=list(inspect.signature(WassersteinBarycenter.__init__).parameters.values())[1:]
)
