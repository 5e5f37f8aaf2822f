"""Wasserstein barycenters: the measure that is nearest to many in transport cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from . import checks, control, estimators, progress
from .control import Control
from .costs import Cost
from .nmf import Epoch
from .oracle import Oracle
from .simplex import logarithms, mirror_step

Array = NDArray[np.float64]

_MEMORY = 0.5  # of the average of models, which is steadier than the last one
_EVERY = 10  # epochs from one exact look to the next
_COOLER = 0.35  # than other models at each stall: what moves here is one measure, which chains follow easily
_COLD = 0.1  # how far V(z) may lie above W in the end, in relation to it and by the theory: (m1 + m2) T


class WassersteinBarycenter(BaseEstimator):  # type: ignore[misc]
    r"""The barycenter of measures on one support.

    .. math:: \min_p \sum_i \lambda_i W(p, x_i)

    over weights p. It is convex; gradients come from warm-started Gibbs samplers (`Oracle`), steps are mirror descent
    from the mean, and of the averages of the models on the way the best is kept, judged by exact costs of a sample.

    Parameters
    ----------
    cost : Cost or array of shape (m, m), optional
        The cost between bins, such as ``GridCost((64, 64))``; by default bins on a line, ``GridCost(m)``.
    weights : array of shape (n,), optional
        The lambda, nonnegative; they are normalised, and all the same by default.
    max_epochs : int
        The largest number of passes over the measures.
    step_size : float
        Relative to the mean cost.
    temperature : "auto" or float
        The first temperature, as of `WassersteinNMF`.
    tau : int
        The lag of the chains' mixing test.
    tol : float
        Stop when the model has been cooled twice and has gained less than this, relative to its cost.
    random_state : int, RandomState or None
    n_jobs : int, optional
        Threads over the measures; the bits are the same for every number.
    verbose : bool
        Show a progress bar, on a terminal.
    callbacks : sequence of functions
        Each is called with the model after every epoch; the fit stops if one returns True.

    Attributes
    ----------
    barycenter_ : array of shape (m,)
    objective_ : float
        Its exact mean cost over the sample, at most 20 measures, each by its weight; infinite before the first look.
    n_iter_ : int
    history_ : list of Epoch

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(20)
    >>> bumps = np.exp(-((x - np.array([[5], [13]])) ** 2) / 4)
    >>> model = WassersteinBarycenter(random_state=0).fit(bumps)
    >>> round(float(model.barycenter_ @ x), 1)
    9.0
    """

    def __init__(
        self,
        cost: Cost | ArrayLike | None = None,
        *,
        weights: ArrayLike | None = None,
        max_epochs: int = 500,
        step_size: float = 5.0,
        temperature: float | str = "auto",
        tau: int = 50,
        tol: float = 1e-3,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callable[[Any], Any]] = (),
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

    def fit(self, X: Any, y: Any = None) -> WassersteinBarycenter:
        """Find the barycenter of measures as rows; one that is interrupted leaves the best so far.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m)
        y : ignored
        """
        begun = time.perf_counter()
        for name in ("max_epochs", "tau"):
            checks.count(getattr(self, name), name)
        checks.positive(self.step_size, "step_size")
        estimators.parameters(self)
        X = estimators.measures(self, X, reset=True)
        cost, share = estimators.square_cost(self.cost, X.shape[1]), self._shares(X.shape[0])
        full = (estimators.masses(X) > 0) & (share > 0)
        if not full.any():
            raise ValueError("weights: are zero for every measure with mass; expected a positive one")
        share = share[full] / share[full].sum()
        oracle = Oracle(
            control.single(cost), X[full], tau=self.tau, seed=estimators.seed(self.random_state), n_jobs=self.n_jobs
        )
        self._descend(oracle, share, np.dtype(X.dtype), begun)
        return self

    def _shares(self, n: int) -> Array:
        if self.weights is None:
            return np.full(n, 1 / n)
        share = checks.real(self.weights, "weights").astype(np.float64)
        if share.shape != (n,) or not np.isfinite(share).all() or (share < 0).any() or share.sum() <= 0:
            raise ValueError(f"weights: expected {n} numbers >= 0, one for each measure, of which some are positive")
        return share / share.sum()

    def _descend(self, oracle: Oracle, share: Array, dtype: np.dtype[Any], begun: float) -> None:
        m, sample = oracle.cost.shape[0], control.sample(len(oracle))
        mean = (share @ oracle.targets)[None]
        start = estimators.smooth(mean, np.full(m, 1 / m))[0]
        state = Control.begin(oracle, start, sample, self.temperature)
        step = float(self.step_size) / control.mean_cost(oracle.cost)
        log_p, average, best = logarithms(start), start, start
        points = m + oracle.targets.nnz / len(oracle)
        of_sample = share[sample] / share[sample].sum()

        def cost_of(p: Array) -> tuple[float, float]:
            lower, upper = control.certified(oracle, np.tile(p, (len(sample), 1)), state.T, sample)
            return float(of_sample @ lower), float(of_sample @ upper)

        self.history_: list[Epoch] = []
        try:
            with progress.bar("Wasserstein barycenter", self.verbose) as advance:
                for epoch in range(1, self.max_epochs + 1):
                    values, U, info = oracle(np.exp(log_p), state.T)
                    T, share_of_step = state.T, state.step
                    gradient = share @ U.astype(np.float64)
                    size = share_of_step * step
                    state.brake(size * control.deviation(np.exp(log_p)[None], gradient[None]))
                    log_p = mirror_step(log_p, gradient, size)
                    average = _MEMORY * average + (1 - _MEMORY) * np.exp(log_p)
                    lower = upper = np.nan
                    if epoch % _EVERY == 0 or epoch == self.max_epochs:
                        if not state.past:
                            state.judge(cost_of(start)[1])
                        lower, upper = cost_of(average)
                        if state.judge(upper):
                            best = average
                        estimate = float(of_sample @ values[sample])
                        coolings = len(state.levels)
                        if state.adapt(upper, estimate, self.tol):
                            log_p, average = logarithms(best), best
                        elif len(state.levels) > coolings:
                            state.heat *= _COOLER
                    seconds, sweeps = time.perf_counter() - begun, float(info.sweeps.mean())
                    self.history_.append(Epoch(float(share @ values), lower, upper, T, share_of_step, sweeps, seconds))
                    self._publish(best, state, dtype)
                    advance(1 / self.max_epochs, state.note(float(share @ values)))
                    if estimators.stopped(self):
                        break
                    if state.finished and points * state.T < _COLD * state.best and self._settled():
                        break
        finally:
            self._publish(best, state, dtype)

    def _settled(self) -> bool:
        """Tell whether the last looks gained next to nothing."""
        looks = [epoch.upper for epoch in self.history_ if not np.isnan(epoch.upper)][-4:]
        return looks[0] - looks[-1] <= self.tol * looks[-1]

    def _publish(self, best: Array, state: Control, dtype: np.dtype[Any]) -> None:
        self.barycenter_ = (best / best.sum()).astype(dtype)
        self.objective_ = state.best
        self.n_iter_ = len(self.history_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags
