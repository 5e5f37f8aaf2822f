"""Wasserstein NMF: measures as mixtures of a few components that minimise the transport cost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ... import costs
from ...core import validation
from ...core.warn import warn
from ...costs import Cost
from ...distributed import checkpoints, sources
from ...distributed.shard import Array
from ...distributed.shards import Shards
from ...io.budget import Budget
from ...oracle.mirror_descent import logarithms
from ...sampling.annealing import paper
from ...sampling.annealing.adaptive import AdaptiveCooling, ModelCooling, newest_share
from ...sampling.annealing.paper import ConditionalDecay, EpochDecay
from .. import _base
from .._costs import Metric
from .._loop import Checkpoints, run_epochs
from ..mixtures import MembershipSolver
from . import files as _nmf_files
from .fit import START_SAMPLE, FitState, Settings, start
from .online import Portion, StreamState, first_state, learn
from .shard import MixtureShard
from .start import initial_factors

_DEFAULTS: dict[str, dict[str, Any]] = {  # what parameters that are None stand for
    "adaptive": {"step_size": (20.0, 2.0), "init": "nmf", "tau": 50, "batch_size": 500},
    "paper": {"step_size": paper.STEP, "init": "random", "tau": paper.TAU, "batch_size": 500},
    "d2suite": {"step_size": paper.STEP, "init": "random", "tau": paper.TAU, "batch_size": paper.BATCH},
}
_LEAST_SECONDS = 1e-3  # of exact solutions, when the time of a call is over
_UNUSED = 1e-3  # usage of a component, relative to the mean, below which there is a warning
_WORSE = 1.05  # times the best cost, above which a last model is said to be worse: where `AdaptiveCooling` returns


def _learns_from_streams(model: WassersteinNMF) -> bool:
    """Tell whether the algorithm takes batches; scikit-learn hides `partial_fit` where it does not."""
    if model.algorithm in ("paper", "d2suite"):  # another name is an error of partial_fit itself
        name = f"algorithm: {model.algorithm!r}"
        raise AttributeError(f"{name} needs all measures at once; expected 'adaptive' for partial_fit")
    return True


class WassersteinNMF(_base.MeasuresTransformer, _base.ClientEstimator):
    r"""Nonnegative matrix factorisation with a transport cost as the loss.

    .. math:: \min_{D, \Lambda} \sum_i W\Big(\sum_k \Lambda_{ik} D_k, \, x_i\Big)

    over components D_k and memberships Lambda_i that are weights: nonnegative, with sum one. Rows of the data are
    normalised. Gradients come from warm-started Gibbs samplers (`Oracle`); steps are mirror descent.

    Parameters
    ----------
    n_components : int
        The number K of components.
    cost : Cost, array of shape (m, m), str or callable, optional
        The cost between bins: ``GridCost((28, 28))`` for images, "line" for bins on a line. A metric of scikit-learn or
        SciPy ("cosine", "euclidean", "sqeuclidean", ...), or a function of two vectors, is taken between the rows of
        ``feature_vectors`` or, without them, between the columns of X. None is "line", with a warning.
    max_epochs : int
        The largest number of passes over the data.
    algorithm : {"adaptive", "paper", "d2suite"}
        "adaptive" evaluates a sample of measures exactly, at intervals of ten epochs or more. It shortens the steps if
        the chains lag, cools if the cost has stalled, and returns to the best model if the cost has risen. "paper" is
        the algorithm that the paper prints [1]_: a random start, ``step_size=2``, online mirror descent for components
        with the sum of their gradients, accelerated mirror descent with restarts for memberships, and
        ``T <- T (1 - sqrt(1 / (m + m_bar)))`` after every epoch; the mixing test is made every tau sweeps. Exact
        evaluations then only record the best model. "d2suite" is what the authors' published program of that name does
        beyond the paper: T falls only in epochs whose V(z) exceeds 0.9 of the exact cost, which is evaluated every
        twenty epochs; batches have 20 measures, whose chains stop together when the sum of V(z) rises by no more than
        0.1 % in tau sweeps; steps of memberships are three times as long, and their acceleration starts again every
        twenty epochs.
    step_size : float or pair of float, optional
        Steps of components and memberships, relative to the mean cost: the paper's gamma. (20, 2) by default, which
        the algorithm multiplies by a factor, and 2 for the paper's algorithm and the authors' program. `partial_fit`
        uses only that of the components.
    temperature : "auto" or float
        The initial temperature. "auto" is the one at which, by the theory's bound, the relative bias
        (V(z) - W) / W is about a third. For the paper's algorithm and the authors' program it is the one at which the
        mean noise at a point of mean weight is a fifth of the mean cost.
    batch_size : int, optional
        The number of measures whose memberships are updated together; 500 by default, and 20 for the authors' program.
    update : {"online", "full"}
        Whether components are updated after every batch or after every epoch.
    init : {"nmf", "random"} or pair of arrays of shape (K, m) and (n, K), optional
        The start: scikit-learn's NMF, slightly smoothed, which is the default; random mixtures of the data, the default
        of the paper's algorithm and the authors' program; or components and the memberships of all measures with mass.
    tau : int, optional
        The lag of the chains' mixing test, 50 by default, and 5 for the paper's algorithm and the authors' program.
        Chains follow the model more closely with a larger one, in more sweeps.
    tol : float
        The fit stops when two coolings have gained less than this, relative to the cost. Only "adaptive" uses it.
    max_seconds : float, optional
        The time of a call of `fit`, `resume`, `transform` or `score`, for each block of a Dask array. When it is over,
        a fit ends with the epoch, memberships and costs are the best so far, and a `ConvergenceWarning` says so.
    max_memory : float, optional
        The bytes that the linear programme of a measure may take in `transform` and `score`, and the exact solution of
        its cost in `score`.
    random_state : int, RandomState or None
        The seed; results are bit-identical for the same integer.
    n_jobs : int, optional
        The number of threads over the measures; results are bit-identical for every number.
    verbose : bool
        Show progress: a bar on terminals and in notebooks, lines on standard error elsewhere.
    callbacks : sequence of functions
        Each is called with the model after every epoch; the fit stops if one returns True.
    client : dask.distributed.Client, optional
        Keeps each shard of the data, with its chains and memberships, on one of the client's workers (the extra
        ``dask``). Results are bit-identical to those without a client, for every number of workers and shards. Use
        ``update="full"`` for all workers to compute at the same time.
    checkpoint : path or URL, optional
        A new or empty folder for checkpoints, of which the last two are kept; `fit` marks it as its own. With a client,
        all workers must be able to reach it; it may be any URL that fsspec knows, such as ``"s3://bucket/run"``. `load`
        reads it.
    checkpoint_seconds : float
        The time between two checkpoints.
    feature_vectors : array of shape (m, d), optional
        An embedding of each bin, such as word vectors, from which a metric builds the cost.

    Attributes
    ----------
    cost_ : Cost
        The cost between bins.
    components_ : array of shape (K, m)
        The components of the best model. The best is chosen by the exact cost of a sample, which is first evaluated
        after ten epochs.
    memberships_ : array of shape (n, K)
        The memberships of the training data in the best model; with a client, a Dask array.
    reconstruction_err_ : float
        The mean cost of a sample of at most 20 measures of the training data in the best model, for ``components_`` and
        ``memberships_`` as they are. It is a certified upper bound of W, exact up to rounding (matrices of costs are
        rounded to single precision), but for the sample only: `score` is for all measures. During a fit it is that of
        the model before it is rounded, and infinite before the first exact evaluation.
    usage_ : array of shape (K,)
        The mean membership in each component.
    n_iter_ : int
        The number of epochs.
    converged_ : bool
        Whether the fit ended by ``tol``.
    history_ : list of Epoch
        The record of each epoch.
    n_features_in_ : int
        The number of bins m.
    seed_ : int
        The seed of the chains.
    n_seen_ : int
        The number of measures that `partial_fit` has seen.

    References
    ----------
    .. [1] J. Ye, J. Z. Wang and J. Li, "A simulated annealing based inexact oracle for Wasserstein loss minimization",
       ICML 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import WassersteinNMF
    >>> x = np.arange(20)
    >>> bumps = np.exp(-((x - np.linspace(4, 15, 30)[:, None]) ** 2) / 8)
    >>> model = WassersteinNMF(3, cost="line", random_state=0).fit(bumps)
    >>> model.components_.shape, model.transform(bumps[:2]).shape
    ((3, 20), (2, 3))
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        cost: Cost | ArrayLike | str | Metric | None = None,
        max_epochs: int = 200,
        algorithm: str = "adaptive",
        step_size: float | tuple[float, float] | None = None,
        temperature: float | str = "auto",
        batch_size: int | None = None,
        update: str = "online",
        init: Any = None,
        tau: int | None = None,
        tol: float = 2e-3,
        max_seconds: float | None = None,
        max_memory: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callable[[Any], Any]] = (),
        client: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_seconds: float = 120.0,
        feature_vectors: Any = None,
    ) -> None:
        self.n_components = n_components
        self.cost = cost
        self.max_epochs = max_epochs
        self.algorithm = algorithm
        self.step_size = step_size
        self.temperature = temperature
        self.batch_size = batch_size
        self.update = update
        self.init = init
        self.tau = tau
        self.tol = tol
        self.max_seconds = max_seconds
        self.max_memory = max_memory
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks
        self.client = client
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.feature_vectors = feature_vectors

    components_: NDArray[np.floating]
    _run: FitState | None
    _stream: StreamState | None
    _last_components: Array  # of a stream, of which components_ is the mean

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> WassersteinNMF:
        """Learn components from measures.

        A fit that is interrupted leaves the best model so far, and `resume` continues it from the last complete epoch:
        the result is that of a fit without an interrupt.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of matrices or files
            Measures as rows. Each item of a list (a matrix, or a file .npy, .npz, ...), or block of a Dask array, is
            a shard.
        y : None
            Ignored.
        sample_weight : array of shape (n,), optional
            Weights of the rows in the objective, one by default. A weight of two has the objective of a row that is
            given twice; results agree up to the noise of the chains. `resume` keeps the weights.

        Returns
        -------
        WassersteinNMF
            The fitted model.
        """
        started = time.perf_counter()
        self._check_parameters()
        fit_id = "" if self.checkpoint is None else checkpoints.prepare(self.checkpoint)
        before: FitState | None = self.__dict__.pop("_run", None)
        if before is not None:
            before.shards.close()
        shards = _base.shards_of(self, MixtureShard, X, reset=True)
        try:
            n = sum(one.n_measures for one in shards.metadata)
            if self.n_components > n:
                raise ValueError(f"n_components: {self.n_components} is more than the data has measures, n_samples={n}")
            self.cost_ = _base.cost_of(self, X)
            self.seed_ = _base.seed(self.random_state)
            self._run = self._start(shards, _base.sample_weights(sample_weight, shards))
            self._run.fit_id = fit_id
        except BaseException:
            shards.close()
            raise
        self.n_seen_, self._stream = 0, None
        self._descend(self._run, started)
        return self

    def resume(self, X: Any) -> WassersteinNMF:
        """Continue a fit that was interrupted, was loaded, or has reached ``max_epochs``, which may be increased.

        The result is bit-identical to that of one longer fit. A fit that has converged continues only with a smaller
        ``tol``.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of matrices or files
            The data of the fit, in the same shards.

        Returns
        -------
        WassersteinNMF
            The fitted model.

        Raises
        ------
        ValueError
            If there is no fit to continue, or the data differ.
        """
        check_is_fitted(self)
        self._check_parameters()
        run: FitState | None = self.__dict__.get("_run")
        if run is None:
            raise ValueError(
                "resume: this model has no fit to continue; expected one after fit, or load of its file or, "
                "of a fit on a cluster, of its checkpoints"
            )
        if self.algorithm != run.algorithm:
            raise ValueError(f"algorithm: expected that of the fit, {run.algorithm!r}, got {self.algorithm!r}")
        self._check_count()
        cost = self.cost_
        if self.cost is not None:
            cost = _base.cost_of(self, X)
        if cost != self.cost_:
            raise ValueError("cost: differs from that of the fit, cost_; expected the same")
        if self.checkpoint is not None:
            run.fit_id = checkpoints.claim(self.checkpoint, run.fit_id)
        _base.attach(self, run.shards, X)
        run.roll_back()
        run.final, run.published = None, np.nan
        run.shards.reduce(MixtureShard.set_n_jobs, self.n_jobs)
        run.control = self._policy(run).resume(run.control, self.tol)  # tol may be smaller now
        self._descend(run, time.perf_counter())
        return self

    @available_if(_learns_from_streams)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> WassersteinNMF:
        """Learn from one batch of a stream: find its memberships, and take a few steps with the components.

        X is one batch, whatever ``batch_size`` is; some hundred measures are a good size. The model carries temperature
        and steps from batch to batch. Steps are proportional to the square root of the batch's share of all measures so
        far, so with the b-th of equal batches they fall as ``b**-0.5``. The temperature is proportional to the mean
        cost of the last 5,000 measures. ``components_`` is the mean of what the steps came to, with weights that grow
        with the cube of the number of batches.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m)
            Measures as rows.
        y : None
            Ignored.
        sample_weight : array of shape (n,), optional
            Weights of the rows, one by default. A weight of two counts as a measure that is given twice, up to the
            noise of the chains; the start of the first batch depends only on which weights are zero.

        Returns
        -------
        WassersteinNMF
            The model.
        """
        self._check_parameters()
        first = not hasattr(self, "components_")
        X = _base.measures(self, X, reset=first)
        if not first:
            self._check_count()
        if first:
            self.cost_ = _base.cost_of(self, None)
            self.seed_, self.n_seen_, self._stream = _base.seed(self.random_state), 0, None
        units, options = costs.in_units(self.cost_).single(), {"tau": self._resolved("tau"), "n_jobs": self.n_jobs}
        size = self._resolved("batch_size")
        batch = Portion(X, sample_weight, units, size, self.n_seen_, rng=self.seed_, **options)
        if first:
            sample, n = batch.targets(START_SAMPLE), len(batch)
            D, _ = initial_factors(sample, self.n_components, self._resolved("init"), self.seed_, n)
        else:
            D = (self.components_ if self._stream is None else self._last_components).astype(np.float64)
        state = self._stream or first_state(batch, D, validation.initial_temperature(self.temperature))
        log_D, self._stream = learn(batch, logarithms(D), state, self._step_sizes()[0])
        D = np.exp(log_D)
        share = newest_share(batch.weight, self._stream.weight)
        mean = D if first else self.components_ + share * (D - self.components_)
        self.components_, self._last_components = mean.astype(X.dtype), D
        self.n_seen_ += len(batch)
        self._run = None
        for name in ("reconstruction_err_", "n_iter_", "converged_", "history_"):  # of the model before
            self.__dict__.pop(name, None)
        return self

    @property
    def memberships_(self) -> Any:
        run = self._fit_state("memberships_")
        return run.shards.concatenate(MixtureShard.memberships if run.keeps_best else MixtureShard.means)

    @property
    def usage_(self) -> Array:
        run = self._fit_state("usage_")
        total = run.shards.reduce(MixtureShard.usage, run.keeps_best)
        return np.asarray(total.value / total.value.sum())

    def _fit_state(self, name: str) -> FitState:
        run: FitState | None = self.__dict__.get("_run")
        if run is None:
            raise AttributeError(f"{name}: is known after a fit only")
        return run

    def transform(self, X: Any) -> Any:
        """Return the memberships of measures in the components (see `mixture_coordinates`).

        Their cost is certified to be at most 0.1 % above the least, for each measure.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of matrices or files
            Measures as rows.

        Returns
        -------
        array of shape (n, K)
            The memberships; a Dask array if X is one.
        """
        check_is_fitted(self)
        solver = self._membership_solver()
        if sources.is_dask(X):
            return _base.map_dask(self, X, solver, len(self.components_))
        budget = Budget(**solver.limits)
        parts = [solver.solve(batch, budget) for batch in _base.batches(self, X)]
        W, open_gaps = np.concatenate([part for part, _ in parts]), [each for _, some in parts for each in some]
        if open_gaps:
            warn(solver.describe(open_gaps, len(W)), ConvergenceWarning)
        return W

    def _membership_solver(self) -> MembershipSolver:
        budget = {name: getattr(self, name) for name in ("max_seconds", "max_memory")}
        limits = {name: validation.positive(x, name) for name, x in budget.items() if x is not None}
        options = {"tau": self._resolved("tau"), "rng": self.seed_, "n_jobs": self.n_jobs}
        return MembershipSolver(
            self.components_.astype(np.float64), self.cost_, self._resolved("batch_size"), limits=limits, **options
        )

    def inverse_transform(self, W: ArrayLike) -> NDArray[np.floating]:
        """Return the mixtures of the components: a product of matrices, without any transport.

        Parameters
        ----------
        W : array of shape (n, K)
            Memberships as rows.

        Returns
        -------
        array of shape (n, m)
            The mixtures.
        """
        check_is_fitted(self)
        memberships = np.asarray(W)
        if memberships.ndim != 2 or memberships.shape[1] != len(self.components_):
            raise ValueError(f"W: expected shape (n, {len(self.components_)}), got {memberships.shape}")
        return memberships @ self.components_

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the mean transport cost of measures to their mixtures.

        The mean is over all rows of X that have mass. The cost of each to its mixture, by `transform`, is exact and
        certified (see `solve_batch`), in double precision. After ``max_seconds`` it is a certified upper bound of that
        cost, so that the score is a lower bound, with a `ConvergenceWarning`.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m)
            Measures as rows.
        y : None
            Ignored.

        Returns
        -------
        float
            The score.
        """
        check_is_fitted(self)
        X, solver = _base.measures(self, X), self._membership_solver()
        budget, mass = Budget(**solver.limits), validation.masses(X)
        W, open_gaps = solver.solve(X, budget)
        P = W.astype(np.float64) @ self.components_.astype(np.float64)  # of the memberships and components as they are
        full, cost = mass > 0, self.cost_.astype(np.float64)
        targets, limits = _normalised(X[full], mass[full]), dict(solver.limits)
        if "max_seconds" in limits:
            limits["max_seconds"] = max(budget.seconds, _LEAST_SECONDS)
        value, open_costs = _base.mean_cost(P[full], targets, cost, None, n_jobs=self.n_jobs, **limits)
        reasons = [solver.describe(open_gaps, len(W))] if open_gaps else []
        if reasons := reasons + open_costs:
            warn(f"{'; '.join(reasons)}. The score is a lower bound", ConvergenceWarning)
        return -value

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to an npz file, with its fit, so that a `resume` is bit-identical.

        The write is atomic. The parameters ``callbacks`` and ``client``, arrays of ``init`` and a ``random_state``
        that is not an integer are not written. Of a fit on a cluster only the model is written, as the data may be too
        large for one machine. Checkpoints have no data either, so neither does a model that was loaded from one and not
        resumed.

        Parameters
        ----------
        path : path
            The file.
        """
        check_is_fitted(self)
        _nmf_files.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], client: Any = None) -> WassersteinNMF:
        """Return the model of a file, or of the last complete checkpoint in a folder.

        Parameters
        ----------
        path : path or URL
            The file, or the folder of checkpoints.
        client : dask.distributed.Client, optional
            For a checkpoint: the client whose workers hold the shards.

        Returns
        -------
        WassersteinNMF
            The model.
        """
        return _nmf_files.load(cls, path, client)

    def _check_parameters(self) -> None:
        validation.choice(self.algorithm, "algorithm", tuple(_DEFAULTS))
        _base.check_parameters(self, tau=self._resolved("tau"), batch_size=self._resolved("batch_size"))
        validation.choice(self.update, "update", ("online", "full"))
        self._step_sizes()
        init = self._resolved("init")
        pair = isinstance(init, Sequence) and not isinstance(init, str) and len(init) == 2
        if not pair and (not isinstance(init, str) or init not in ("nmf", "random")):
            raise ValueError(f"init: expected 'nmf', 'random' or a pair of arrays, got {init!r}")

    def _check_count(self) -> None:
        """Check that a model that continues to learn has as many components as before."""
        if self.n_components != (K := len(self.components_)):
            raise ValueError(f"n_components: expected {K}, as the model has already, got {self.n_components}")

    def _resolved(self, name: str) -> Any:
        """Return a parameter, or its default for the algorithm."""
        given = getattr(self, name)
        return _DEFAULTS[self.algorithm][name] if given is None else given

    def _step_sizes(self) -> tuple[float, float]:
        return validation.positive_pair(self._resolved("step_size"), "step_size", "components and one for memberships")

    def _start(self, shards: Shards[MixtureShard], weights: Array | None) -> FitState:
        """Return the state of a fit at its start."""
        return start(
            shards,
            weights,
            self.cost_,
            self._resolved("init"),
            validation.initial_temperature(self.temperature),
            n_components=self.n_components,
            algorithm=self.algorithm,
            tau=self._resolved("tau"),
            seed=self.seed_,
            n_jobs=self.n_jobs,
        )

    def _settings(self, run: FitState) -> Settings:
        """Return what the epochs of a fit depend on."""
        steps, policy = self._step_sizes(), self._policy(run)
        if self.algorithm != "adaptive":  # components follow the sum of the gradients, not the mean
            steps = steps[0] * run.weight / self.n_components, steps[1]
        size = self._resolved("batch_size")
        return Settings(policy, steps, size, self.update == "online", self.max_epochs, self.tol)

    def _policy(self, run: FitState) -> ModelCooling:
        """Return the policy for temperature and steps."""
        if self.algorithm == "adaptive":
            return AdaptiveCooling()
        kind = ConditionalDecay if self.algorithm == "d2suite" else EpochDecay
        return kind(m=self.n_features_in_, m_bar=run.support)

    def _descend(self, run: FitState, started: float) -> None:
        """Run the loop over epochs, write the last checkpoint, and warn of unused components."""
        timed = None
        if self.checkpoint is not None:
            timed = Checkpoints(lambda model: _nmf_files.write_checkpoint(model, run), self.checkpoint_seconds)
        publish = partial(self._publish, run)
        try:
            epochs = run.epochs(self._settings(run))
            late = run_epochs(
                "Wasserstein NMF", self, epochs, run.history, publish, started, timed, max_seconds=self.max_seconds
            )
        except KeyboardInterrupt:
            run.roll_back()
            publish()
            raise
        run.final = run.last_evaluation()
        publish()
        if np.isfinite(run.best):
            run.published = self.reconstruction_err_ = run.published_cost(np.asarray(self.components_, np.float64))
        if timed is not None:
            timed.attempt(self)
        self._warn(late, run.units.value(run.best))

    def _warn(self, late: bool, best: float) -> None:
        """Warn of a fit that time has ended or that may still improve, and of unused components."""
        if late and not self.converged_ and self.n_iter_ < self.max_epochs:
            message = f"max_seconds: the time was spent after {self.n_iter_} epochs; resume continues the fit"
            warn(message, ConvergenceWarning)
        evaluated = [epoch.upper for epoch in self.history_ if np.isfinite(epoch.upper)]
        if not self.converged_ and self.n_iter_ >= self.max_epochs:
            if best < min(evaluated):
                message = f"no model of {self.n_iter_} epochs was better than the start, which is returned"
                warn(f"max_epochs: {message}; try more epochs", ConvergenceWarning)
            elif best == evaluated[-1] < min(evaluated[:-1], default=np.inf):
                message = f"the cost still fell at the end of {self.n_iter_} epochs"
                more = f"model.max_epochs = {5 * self.max_epochs}; model.resume(X)"
                warn(f"max_epochs: {message}; to go on: {more}", ConvergenceWarning)
            elif evaluated[-1] > _WORSE * best:
                epoch = 1 + next(k for k, epoch in enumerate(self.history_) if epoch.upper == best)
                message = f"the cost was {best:.3g} after {epoch} epochs, whose model is returned, and rose to"
                warn(f"max_epochs: {message} {evaluated[-1]:.3g} after {self.n_iter_}", ConvergenceWarning)
        unused = np.flatnonzero(self.usage_ < _UNUSED / self.n_components)
        if len(unused):
            some = ", ".join(map(str, unused[:10]))
            message = f"components {some} are hardly used; try fewer n_components"
            warn(message, ConvergenceWarning)

    def _reconstructions(self) -> tuple[Array, Array]:
        """Return a sample of the training data and their mixtures, for figures."""
        run = self._fit_state("training data")
        sample = run.sample(self.components_, "best" if run.keeps_best else "mean")
        X, P = zip(*run.shards.collect(MixtureShard.reconstructions, sample), strict=True)
        return np.concatenate(X), np.concatenate(P)

    def _publish(self, run: FitState) -> None:
        """Set the public attributes to the best model so far."""
        D = np.exp(run.best_components) if run.keeps_best else run.mean_components
        self.components_ = D.astype(run.dtype)
        self.reconstruction_err_ = run.units.value(run.best) if np.isnan(run.published) else run.published
        self.n_iter_, self.converged_ = len(run.history), run.control.finished
        self.history_ = run.history
        if run.final is not None:  # a fit that is resumed does not have this evaluation
            lower, upper = map(run.units.value, run.final[:2])
            self.history_ = [*run.history[:-1], run.history[-1]._replace(lower=lower, upper=upper)]

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _normalised(X: Any, mass: Array) -> Any:
    """Return rows divided by their masses."""
    return sparse.csr_array(sparse.diags_array(1 / mass) @ X) if sparse.issparse(X) else X / mass[:, None]
