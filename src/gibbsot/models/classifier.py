"""Classification with a Wasserstein loss: an error counts by the cost between predicted and true labels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr, softmax
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, column_or_1d, validate_data
from threadpoolctl import threadpool_limits

from .. import costs
from ..core import validation
from ..core.warn import warn
from ..costs import Cost, Units, as_cost
from ..oracle import evaluation
from ..oracle.chains import TargetChains
from ..sampling.annealing.plateau import PlateauCooling, PlateauState, Trend
from . import _base
from ._costs import Metric, feature_cost, is_metric, metric_cost
from ._loop import Epoch, run_epochs

Array = NDArray[np.float64]

_PRETRAINING = 50  # epochs of cross-entropy before the Wasserstein loss
_STEPS = 10  # the least number of steps in an epoch, so that epochs of few samples are not too short
_COOLING = PlateauCooling(window=5, cooling=0.5, damping=0.5, max_stalls=6)  # the last step is a thirtieth of the first
# The initial bias V(z) - W in relation to the mean cost; on average it is at most T for each label of a sample. At
# higher temperatures chains ignore the weights of the labels, and predictions tend to a single label, where the softmax
# has no gradient.
_INITIAL_BIAS = 0.01
_NO_WEIGHT = "sample_weight: is zero for every sample; expected a positive one"


class WassersteinClassifier(ClassifierMixin, _base.Estimator):  # type: ignore[misc]
    r"""A linear softmax model whose loss is the transport cost between predicted and given labels.

    .. math::
        \min_{A, b} \frac1n \sum_i \big( W(p_i, y_i) + \beta \bar M \, \mathrm{KL}(y_i \,\|\, p_i) \big)
        + \alpha \bar M \|A\|^2, \qquad p_i = \mathrm{softmax}(A x_i + b)

    as in *Learning with a Wasserstein loss* (Frogner et al. 2015), where y_i is one label or a histogram over labels
    and :math:`\bar M` the mean cost above the least. Gradients of W come from warm-started Gibbs samplers (`Oracle`),
    steps are Adam's. Features are standardised internally, so that neither their units nor those of the cost matter; A
    in the penalty is that of standardised features.

    W alone is bounded and not convex: it neglects outliers and has local minima; therefore the fit starts with some
    epochs of cross-entropy. Also, W does not rank the labels that a sample does not have, and for a single label it is
    linear in the prediction, which tends to the one label of the least expected cost. The divergence term corrects
    this. On the data of ``benchmarks/labels.py`` with several noisy labels for each sample, both the histograms and the
    most probable labels are then closer to the true ones than those of cross-entropy; on those with one label the
    histograms are, and the most probable label is about as close. Other data may differ: compare. Histograms are biased
    towards low costs: they are not calibrated probabilities.

    Parameters
    ----------
    cost : Cost, array of shape (K, K), str or callable, optional
        The cost between labels, in the order of ``classes_``; by default 0 or 1, for which W is the total variation.
        "line" is ``GridCost(K)``, for ordered labels. A metric such as "euclidean", or a function of
        two vectors, is taken between the rows of ``label_vectors`` or, without them, between labels that are numbers.
    alpha : float
        The weight of the penalty, relative to the mean cost.
    divergence : float
        beta, the weight of the Kullback-Leibler divergence; 0 for W alone.
    max_epochs : int
        The largest number of passes over the data.
    step_size : float
        Adam's initial step size for one feature; for d features it is divided by the square root of d.
    temperature : "auto" or float
        The initial temperature; by default a hundredth of the mean cost, divided by the mean number of labels of a
        sample. Where the objective has stalled the step is halved, and the temperature too if the chains follow the
        model; the fit ends at the sixth stall (`sampling.annealing.PlateauCooling`).
    batch_size : int
        The largest number of samples in a step; an epoch has at least ten steps if there are enough samples.
    tau : int
        The lag of the chains' mixing test. One model averages the noise of all chains, as in a barycenter.
    tol : float
        The decrease of the objective in five epochs, relative to the mean cost, below which it has stalled.
    max_seconds : float, optional
        The time of a call of `fit`, or of `score` with histograms. When it is over, a fit ends with the epoch, costs
        are certified upper bounds, and a `ConvergenceWarning` says so.
    max_memory : float, optional
        The bytes that the exact solutions of `score` may take.
    random_state : int, RandomState or None
        The seed; results for an integer are deterministic.
    n_jobs : int, optional
        Threads over the samples; results are bit-identical for every number.
    verbose : bool
        Show progress: a bar on terminals and in notebooks, lines on standard error elsewhere.
    callbacks : sequence of functions
        Each is called with the model after every epoch; the fit stops if one returns True.
    class_weight : dict or "balanced", optional
        Weights of labels, as in scikit-learn: they multiply those of the samples. Not for histograms.
    classes : array of shape (K,), optional
        All labels, for data that may lack some, in the order of the cost and of ``label_vectors``: sorted, otherwise it
        is an error that shows both orders. For histograms the names of the columns. By default the labels of y, with a
        warning if they are names and a cost is given.
    label_vectors : array of shape (K, d), optional
        An embedding of each label, in the order of ``classes_``, from which a metric builds the cost.

    Attributes
    ----------
    cost_ : Cost
        The cost between labels.
    classes_ : array of shape (K,)
        The labels; for histograms the indices of their columns.
    coef_ : array of shape (K, d)
        A, for features that are not standardised.
    intercept_ : array of shape (K,)
        b, for the same.
    objective_ : float
        The objective over the training data, as a mean over the last epochs: an estimate, with V(z) for W.
    n_iter_ : int
        The number of epochs.
    history_ : list of Epoch
        A record of each epoch; ``lower`` and ``upper`` are of a sample of the data, before each cooling.
    n_features_in_ : int
        The number of features, d.

    Examples
    --------
    >>> from gibbsot import WassersteinClassifier
    >>> import numpy as np
    >>> x = np.linspace(0, 1, 60)[:, None]
    >>> sizes = np.repeat(["1 small", "2 medium", "3 large"], 20)
    >>> cost = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    >>> model = WassersteinClassifier(cost, classes=np.unique(sizes), random_state=0).fit(x, sizes)
    >>> model.predict([[0.1], [0.5]]).tolist(), model.predict_top([[0.9]], 2).tolist()
    (['1 small', '2 medium'], [['3 large', '2 medium']])
    """

    def __init__(
        self,
        cost: Cost | ArrayLike | str | Metric | None = None,
        *,
        alpha: float = 1e-4,
        divergence: float = 0.1,
        max_epochs: int = 500,
        step_size: float = 0.2,
        temperature: float | str = "auto",
        batch_size: int = 100,
        tau: int = 20,
        tol: float = 1e-3,
        max_seconds: float | None = None,
        max_memory: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callable[[Any], Any]] = (),
        class_weight: Any = None,
        classes: ArrayLike | None = None,
        label_vectors: Any = None,
    ) -> None:
        self.cost = cost
        self.alpha = alpha
        self.divergence = divergence
        self.max_epochs = max_epochs
        self.step_size = step_size
        self.temperature = temperature
        self.batch_size = batch_size
        self.tau = tau
        self.tol = tol
        self.max_seconds = max_seconds
        self.max_memory = max_memory
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks
        self.class_weight = class_weight
        self.classes = classes
        self.label_vectors = label_vectors

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> WassersteinClassifier:
        """Learn from samples; a fit that is interrupted keeps the model of the last step.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Features of the samples.
        y : array of shape (n,), or array or sparse matrix of shape (n, K)
            Labels; or histograms over labels, such as indicators of several, whose rows are normalised.
        sample_weight : array of shape (n,), optional
            Weights of the samples in the objective. As batches and noise are random, a weight of two equals a row given
            twice only on average.

        Returns
        -------
        WassersteinClassifier
            The estimator itself.
        """
        started = time.perf_counter()
        _base.check_parameters(self)
        validation.positive(self.step_size, "step_size")
        X, y = _checked(X, "X"), _checked(y, "y")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=True)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if y.ndim == 1:
            check_classification_targets(y)
        self.classes_ = _labels(y, self.classes)
        if len(self.classes_) < 2:
            raise ValueError("y: has 1 class; expected at least two")
        weights = self._weights(X, y, sample_weight)
        if weights is not None:
            X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]
        self.cost_ = _between_labels(self.cost, self.classes_, self.label_vectors)
        named = y.ndim == 1 and self.classes_.dtype.kind not in "iufb"
        if named and self.classes is None and (self.label_vectors is not None or self.cost is not None):
            warn(
                f"the cost is taken to be in the sorted order of the labels, {self.classes_.tolist()}; "
                "classes= says that it is",
            )
        seed, Y = _base.seed(self.random_state), self._histograms(y)
        units = costs.in_units(self.cost_).single()
        oracle = TargetChains(units.cost, Y, tau=self.tau, rng=seed, n_jobs=self.n_jobs)
        model, rng = _Linear(X, len(self.classes_), weights), np.random.default_rng(seed)
        with threadpool_limits(1):  # small products are slower in threads
            self._pretrain(model, Y, rng)
            self.history_: list[Epoch] = []
            epochs = self._epochs(_Data(oracle, Y, units), model, rng)
            publish = partial(self._publish, model)
            late = run_epochs(
                "Wasserstein classifier", self, epochs, self.history_, publish, started, max_seconds=self.max_seconds
            )
        if late and self.n_iter_ < self.max_epochs:
            message = f"max_seconds: the time was spent after {self.n_iter_} epochs; allow more for a better model"
            warn(message, ConvergenceWarning)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the predicted histograms over labels.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Features of the samples.

        Returns
        -------
        array of shape (n, K)
        """
        check_is_fitted(self)
        X = _checked(X, "X")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return softmax(X @ self.coef_.T + self.intercept_, axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable labels.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Features of the samples.

        Returns
        -------
        array of shape (n,)
        """
        return self.predict_top(X, 1)[:, 0]

    def predict_top(self, X: Any, k: int) -> NDArray[Any]:
        """Return the k most probable labels, the most probable first.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Features of the samples.
        k : int
            The number of labels, at most K.

        Returns
        -------
        array of shape (n, k)
        """
        P = self.predict_proba(X)
        if validation.count(k, "k") > P.shape[1]:
            raise ValueError(f"k: {k} is more than there are labels, {P.shape[1]}")
        return self.classes_[np.argsort(-P, axis=1, kind="stable")[:, :k]]

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy for labels; for histograms minus the mean exact transport cost to the predicted ones.

        The mean is over all rows of X, and the cost of each is certified (see `solve_batch`). After ``max_seconds`` it
        is an upper bound, so that the score is a lower bound, with a `ConvergenceWarning`.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Features of the samples.
        y : array of shape (n,), or array or sparse matrix of shape (n, K)
            True labels or histograms.
        sample_weight : array of shape (n,), optional
            Weights of the samples in the mean.

        Returns
        -------
        float
        """
        if len(np.shape(y)) != 2 or np.shape(y)[1] == 1:
            return float(super().score(X, y, sample_weight))
        P = self.predict_proba(X)
        Y = self._histograms(check_array(_checked(y, "y"), accept_sparse="csr", input_name="y"))
        if len(P) != len(Y):
            raise ValueError(f"y: expected {len(P)} histograms, one for each row of X; got {len(Y)}")
        P = np.where(P < evaluation.WEIGHT_THRESHOLD, 0, P)
        share = None if sample_weight is None else validation.sample_weight(sample_weight, len(P))
        if share is not None and not share.any():
            raise ValueError(_NO_WEIGHT)
        options = {name: getattr(self, name) for name in ("max_seconds", "max_memory", "n_jobs")}
        value, open_gaps = _base.mean_cost(P, Y, self.cost_.astype(np.float64), share, **options)
        if open_gaps:
            warn(f"{open_gaps[0]}. The score is a lower bound", ConvergenceWarning)
        return -value

    def _weights(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> Array | None:
        """Return the weights of samples with mean one, or None if all are equal."""
        if self.class_weight is not None and y.ndim == 2:
            raise ValueError("class_weight: is for labels, and y has histograms; expected None, or sample_weight")
        if sample_weight is None and self.class_weight is None:
            return None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.class_weight is not None:
            of_labels = compute_sample_weight(self.class_weight, y)
            if not (np.isfinite(of_labels) & (of_labels >= 0)).all():
                raise ValueError(f"class_weight: expected finite weights >= 0, got {self.class_weight!r}")
            weights = weights * of_labels
        if not weights.any():
            raise ValueError(_NO_WEIGHT)
        return np.asarray(weights / weights.mean())

    def _histograms(self, y: Any) -> Array:
        """Return labels or histograms as rows of weights with sum one."""
        K = len(self.classes_)
        if y.ndim == 1:
            return np.eye(K)[np.searchsorted(self.classes_, y)]
        Y = validation.weights(y, "y", K)
        return Y / Y.sum(axis=1, keepdims=True)

    def _pretrain(self, model: _Linear, Y: Array, rng: np.random.Generator) -> None:
        """Minimise the cross-entropy for some epochs, which is convex: from zero, W has poor local minima."""
        for k in range(_PRETRAINING):
            for rows in self._batches(len(Y), rng):
                gradient = model.gradient(rows, model.predict(rows) - Y[rows])
                gradient[:, :-1] += 2 * self.alpha * model.A
                model.step(gradient, self.step_size * (1 - k / _PRETRAINING))
        model.reset_moments()

    def _batches(self, n: int, rng: np.random.Generator) -> list[NDArray[np.intp]]:
        permutation, size = rng.permutation(n), min(self.batch_size, -(-n // _STEPS))
        return [permutation[start : start + size] for start in range(0, n, size)]

    def _epochs(self, data: _Data, model: _Linear, rng: np.random.Generator) -> Iterator[tuple[Epoch, str]]:
        """Minimise the objective, from the model of `_pretrain`, until the cooling has finished."""
        T0 = validation.initial_temperature(self.temperature)
        automatic = float(_INITIAL_BIAS * data.mean_cost * len(data.oracle) / data.oracle.targets.nnz)
        state = _COOLING.init(automatic if T0 is None else T0 / data.units.unit)
        for _ in range(self.max_epochs):
            self._epoch(data, model, state, rng)
            objective = float((model.weights * data.losses).mean() + self.alpha * (model.A**2).sum())
            state = _COOLING.observe(state, objective)
            self.objective_ = data.units.value(_COOLING.level(state) * data.mean_cost)
            T, step = state.T * data.units.unit, state.step
            state, bounds = self._cool(data, model, state)
            value, lower, upper = map(data.units.value, (float((model.weights * data.values).mean()), *bounds))
            yield Epoch(value, lower, upper, T, step, float(data.sweeps.mean())), f"cost {value:.3g}, T {T:.1e}"
            if state.finished:
                return

    def _epoch(self, data: _Data, model: _Linear, state: PlateauState, rng: np.random.Generator) -> None:
        """Take a step for each batch of the data."""
        for rows in self._batches(len(data.oracle), rng):
            P, Y = model.predict(rows), data.Y[rows]
            data.values[rows], U, info = data.oracle(P, state.T, rows)
            data.sweeps[rows] = info.sweeps
            data.losses[rows] = data.values[rows] / data.mean_cost + self.divergence * _divergence(Y, P)
            gradient = model.gradient(rows, _softmax_vjp(P, U) / data.mean_cost + self.divergence * (P - Y))
            gradient[:, :-1] += 2 * self.alpha * model.A
            model.step(gradient, state.step * self.step_size)

    def _cool(self, data: _Data, model: _Linear, state: PlateauState) -> tuple[PlateauState, tuple[float, float]]:
        """Return the state for the next epoch, and certified bounds of a sample's mean cost if it has changed."""
        if _COOLING.trend(state, self.tol) is not Trend.STALLED:
            return state, (np.nan, np.nan)
        sample = evaluation.sample(len(data.oracle))
        bounds = evaluation.certified(data.oracle, model.predict(sample), state.T, sample)
        lower, upper = (float(bound.mean()) for bound in bounds)
        # chains whose V(z) is below W lag: they need shorter steps, not a lower temperature
        follow = bool(data.values[sample].mean() > upper)
        return _COOLING.update(state, Trend.STALLED, follow), (lower, upper)

    def _publish(self, model: _Linear) -> None:
        self.coef_ = model.A / model.scale
        self.intercept_ = model.parameters[:, -1] - self.coef_ @ model.mean
        self.n_iter_ = len(self.history_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class _Data:
    """The training data, and what the last epoch has shown of each sample."""

    def __init__(self, oracle: TargetChains, Y: Array, units: Units) -> None:
        self.oracle, self.Y, self.units, self.mean_cost = oracle, Y, units, costs.mean_cost(oracle.cost)
        self.losses, self.values, self.sweeps = np.empty((3, len(oracle)))


class _Linear:
    """The model during a fit, with Adam's moments."""

    def __init__(self, X: Any, K: int, weights: Array | None = None) -> None:
        self.weights = np.ones(X.shape[0]) if weights is None else weights / weights.mean()
        scaler = StandardScaler(with_mean=False).fit(
            X, sample_weight=weights
        )  # a sparse matrix stays sparse: the mean goes into b
        self.X, self.mean, self.scale = X, scaler.mean_, scaler.scale_
        self.parameters = np.zeros((K, X.shape[1] + 1))  # A for standardised features, and b as the last column
        self.reset_moments()

    @property
    def A(self) -> Array:  # noqa: N802
        return self.parameters[:, :-1]

    def predict(self, rows: NDArray[np.intp]) -> Array:
        """Return the predicted histograms of some samples."""
        B = self.A / self.scale
        return softmax(self.X[rows] @ B.T + (self.parameters[:, -1] - B @ self.mean), axis=1)

    def gradient(self, rows: NDArray[np.intp], Z: Array) -> Array:
        """Return the mean gradient with respect to the parameters, given those with respect to the logits."""
        Z = self.weights[rows, None] * Z
        b = Z.mean(axis=0)
        A = ((self.X[rows].T @ Z).T / len(rows) - b[:, None] * self.mean) / self.scale
        return np.column_stack([A, b])

    def reset_moments(self) -> None:
        """Reset Adam's moments, for another loss."""
        self.first, self.second, self.steps = 0 * self.parameters, 0 * self.parameters, 0

    def step(self, gradient: Array, size: float) -> None:
        """Take a step of Adam, shorter the more features there are: their effects on a score add up."""
        self.steps += 1
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.001 * (gradient**2 - self.second)
        first, second = self.first / (1 - 0.9**self.steps), self.second / (1 - 0.999**self.steps)
        size /= np.sqrt(self.parameters.shape[1] - 1)
        self.parameters = self.parameters - size * first / (np.sqrt(second) + 1e-8)


def _softmax_vjp(P: Array, U: NDArray[np.floating]) -> Array:
    """Return gradients with respect to the logits, given those with respect to the predictions P."""
    return P * (U - (P * U).sum(axis=1, keepdims=True))


def _divergence(Y: Array, P: Array) -> Array:
    """Return KL(y, p) of each row; a weight that underflows counts as the smallest positive number."""
    return rel_entr(Y, np.maximum(P, np.finfo(np.float64).tiny)).sum(axis=1)


def _checked(x: Any, name: str) -> Any:
    """Return data whose structure and mask have been checked, for checks by scikit-learn."""
    validation.check_mask(x, name)
    return validation.checked_structure(x, name)


def _labels(y: Any, classes: ArrayLike | None) -> NDArray[Any]:
    """Return the labels in the order of the cost."""
    if classes is None:
        return np.unique(y) if y.ndim == 1 else np.arange(y.shape[1])
    given = np.asarray(classes)
    if y.ndim == 2:
        if given.shape != (y.shape[1],):
            raise ValueError(f"classes: expected {y.shape[1]} names, one for each column of y; got shape {given.shape}")
        if len(np.unique(given)) < len(given):
            raise ValueError(f"classes: {given.tolist()} has a name twice; expected different names of the columns")
        return given
    ordered = np.unique(given)
    if given.shape != ordered.shape or (given != ordered).any():
        raise ValueError(
            f"classes: are in the order {given.tolist()}, but labels are sorted, {ordered.tolist()}; expected these, "
            "and the cost and label_vectors in their order"
        )
    unknown = np.setdiff1d(y, given)
    if len(unknown):
        raise ValueError(f"classes: {given.tolist()} lack {unknown.tolist()}, which y has; expected all labels")
    return given


def _between_labels(cost: Any, labels: NDArray[Any], vectors: Any) -> Cost:
    """Return the cost between labels."""
    K, found = len(labels), cost
    if cost is None:
        found = 1 - np.eye(K)
    elif is_metric(cost):
        if vectors is None and labels.dtype.kind not in "iufb":
            raise ValueError(
                f"label_vectors: expected an embedding of each label for cost={cost!r}, as y has no numbers"
            )
        name = "y" if vectors is None else "label_vectors"
        found = metric_cost(cost, labels.astype(np.float64) if vectors is None else vectors, K, name)
    elif not isinstance(cost, str):
        found = as_cost(cost)
        if found.shape != (K, K):
            raise ValueError(
                f"cost: is for {found.shape[0]} x {found.shape[1]} labels; expected {K} x {K}, as there are in y "
                "(which may be histograms, with columns for labels that do not occur)"
            )
    checked = feature_cost(found, K)
    if not checked.spread() > 0:
        raise ValueError("cost: all costs are equal; expected larger ones for labels that are further apart")
    return checked
