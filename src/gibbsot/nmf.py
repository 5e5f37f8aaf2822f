"""Wasserstein NMF: measures as mixtures of a few components, nearest in transport cost."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import nnls
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from . import checks, control, costs, estimators, files, progress, schedules
from .control import Control
from .costs import Cost
from .oracle import Oracle
from .simplex import logarithms, mirror_step
from .solve import solve_batch

Array = NDArray[np.float64]

_MAPPING = (40, 20)  # steps of a transform at the first heat and at a quarter of it
_STREAM = 10  # steps for a batch of a stream, the second half of them with the components
_STREAM_STEP = 0.3  # their length: a batch is not all of the data


class Epoch(NamedTuple):
    """One entry of a model's history.

    Attributes
    ----------
    estimate : float
        The mean of V(z) over all measures, each when it was met.
    lower, upper : float
        Certified bounds of the mean transport cost of the sample that is looked at; NaN for epochs without a look.
    temperature, step : float
        T, and the share of ``step_size`` that was taken.
    sweeps : float
        The mean number of sweeps of a chain.
    seconds : float
        Since the fit began, its start included; the time between a fit and its `resume` does not count.
    """

    estimate: float
    lower: float
    upper: float
    temperature: float
    step: float
    sweeps: float
    seconds: float


@dataclass
class _Run:
    """A fit on its way: all that its next epoch depends on."""

    oracle: Oracle
    rows: NDArray[np.intp]  # of the data that have mass
    count: int  # of the rows
    dtype: str  # of the data
    log_components: Array
    log_memberships: Array
    best_components: Array
    best_memberships: Array
    scale: float  # the mean cost
    control: Control
    history: list[Epoch] = field(default_factory=list)


_OF_A_FIT = ("memberships_", "usage_", "reconstruction_err_", "n_iter_", "history_")
_ARRAYS = [part.name for part in fields(_Run) if part.name not in ("oracle", "control", "history")]  # saved as they are


class WassersteinNMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Nonnegative matrix factorisation with a transport cost as the loss.

    .. math:: \min_{D, \Lambda} \sum_i W\Big(\sum_k \Lambda_{ik} D_k, \, x_i\Big)

    over components D_k and memberships Lambda_i that are weights: nonnegative, with sum one. Rows of the data are
    normalised. Gradients come from warm-started Gibbs samplers (`Oracle`), steps are mirror descent.

    Parameters
    ----------
    n_components : int
        The number K of components.
    cost : Cost or array of shape (m, m), optional
        The cost between bins, such as ``GridCost((28, 28))`` for images; by default bins on a line,
        ``GridCost(m)``.
    max_epochs : int
        The largest number of passes over the data.
    step_size : float or pair of float
        Steps of components and memberships, relative to the mean cost: the paper's gamma. The adaptive cooling takes a
        share of them.
    temperature : "auto" or float
        The first temperature. "auto" is the one at which, by the theory's bound, V(z) is a third above W.
    cooling : {"adaptive", "paper"}
        "adaptive" looks at the exact cost of a sample of measures now and then: it shortens the steps where the chains
        lag, cools where the model has stalled, and goes back to the best model where it got worse. "paper" is
        ``T <- T (1 - sqrt(1 / (m + m_bar)))`` every epoch.
    batch_size : int
        Measures whose memberships are updated together.
    update : {"online", "full"}
        Whether components are updated after every batch or after every epoch; by the same amount in an epoch.
    init : {"nmf", "random"} or pair of arrays of shape (K, m) and (n, K)
        The start: scikit-learn's NMF, slightly smoothed; random mixtures of the data; or components and memberships.
    tau : int
        The lag of the chains' mixing test; larger follows the model more closely, in more sweeps.
    tol : float
        Stop when the model has been cooled twice and has gained less than this, relative to its cost.
    random_state : int, RandomState or None
        The same integer gives the same bits.
    n_jobs : int, optional
        Threads over the measures; the bits are the same for every number.
    verbose : bool
        Show a progress bar, on a terminal.
    callbacks : sequence of functions
        Each is called with the model after every epoch; the fit stops if one returns True.

    Attributes
    ----------
    components_ : array of shape (K, m)
        The best components seen, by the exact cost of a sample, which is looked at after ten epochs, then now and then.
    memberships_ : array of shape (n, K)
        Those of the training data, of the same model.
    reconstruction_err_ : float
        The mean exact cost over that sample, at most 20 measures; infinite before the first look.
    usage_ : array of shape (K,)
        The mean membership in each component.
    n_iter_ : int
        The number of epochs.
    history_ : list of Epoch
        What happened in each.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.nmf import WassersteinNMF
    >>> x = np.arange(20)
    >>> bumps = np.exp(-((x - np.linspace(4, 15, 30)[:, None]) ** 2) / 8)
    >>> model = WassersteinNMF(3, max_epochs=20, random_state=0).fit(bumps)
    >>> model.components_.shape, model.transform(bumps[:2]).shape
    ((3, 20), (2, 3))
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        cost: Cost | ArrayLike | None = None,
        max_epochs: int = 200,
        step_size: float | tuple[float, float] = (20.0, 2.0),
        temperature: float | str = "auto",
        cooling: str = "adaptive",
        batch_size: int = 500,
        update: str = "online",
        init: Any = "nmf",
        tau: int = 50,
        tol: float = 2e-3,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callable[[Any], Any]] = (),
    ) -> None:
        self.n_components = n_components
        self.cost = cost
        self.max_epochs = max_epochs
        self.step_size = step_size
        self.temperature = temperature
        self.cooling = cooling
        self.batch_size = batch_size
        self.update = update
        self.init = init
        self.tau = tau
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    components_: NDArray[np.floating]

    def fit(self, X: Any, y: Any = None) -> WassersteinNMF:
        """Learn components from measures as rows.

        A fit that is interrupted leaves the best model so far, and `resume` goes on with it.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m)
        y : ignored
        """
        begun = time.perf_counter()
        self._check_parameters()
        X = estimators.measures(self, X, reset=True)
        self._run: _Run | None = self._begin(X)
        self.n_seen_ = 0
        self._go_on(begun)
        return self

    def resume(self, X: Any) -> WassersteinNMF:
        """Go on with a fit that was interrupted, saved and loaded, or has come to ``max_epochs``, which may be raised.

        One that has stopped by itself goes on only with a lower ``tol``.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m)
            The data of the fit.
        """
        check_is_fitted(self)
        self._check_parameters()
        run = self._run
        if run is None:
            raise ValueError("resume: this model has no fit to go on with; expected one after fit, or load of its file")
        X = estimators.measures(self, X)
        targets = Oracle(run.oracle.cost, X[estimators.masses(X) > 0]).targets
        if targets.shape != run.oracle.targets.shape or (targets != run.oracle.targets).nnz:
            raise ValueError("X: differs from the data of the fit; expected the same measures")
        run.oracle.n_jobs = self.n_jobs
        run.control.finished &= run.control.settled(self.tol)  # which may have been lowered
        self._go_on(time.perf_counter())
        return self

    def partial_fit(self, X: Any, y: Any = None) -> WassersteinNMF:
        """Learn from one batch of a stream: its memberships are found, and the components take a few steps.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m)
        y : ignored
        """
        self._check_parameters()
        first = not hasattr(self, "components_")
        X = estimators.measures(self, X, reset=first)
        X = X[estimators.masses(X) > 0]
        if first:
            self._cost = estimators.square_cost(self.cost, X.shape[1])
            self.seed_, self.n_seen_ = estimators.seed(self.random_state), 0
            D, W = self._start(X)
        else:
            D = self.components_.astype(np.float64)
            W = estimators.smooth(_mixtures(X, D), np.full(len(D), 1 / len(D)))
        ids = self.n_seen_ + np.arange(X.shape[0])
        oracle = Oracle(control.single(self._cost), X, tau=self.tau, seed=self.seed_, ids=ids, n_jobs=self.n_jobs)
        run = self._prepare(oracle, D, W)
        run.control.step = _STREAM_STEP
        for k in range(_STREAM):
            self._epoch(run, learn=k >= _STREAM // 2)
        self.n_seen_ = int(ids[-1]) + 1
        self.components_ = np.exp(run.log_components).astype(X.dtype)
        self._run = None
        for name in _OF_A_FIT:  # the model is no longer the one that was fitted
            self.__dict__.pop(name, None)
        return self

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Return the memberships of measures in the components, shape (n, K): a convex problem for each.

        They start from nonnegative least squares, follow the oracle's gradients, and are never worse in exact cost.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m)
        """
        check_is_fitted(self)
        X = estimators.measures(self, X)
        D = self.components_.astype(np.float64)
        full = np.flatnonzero(estimators.masses(X) > 0)
        W = np.full((X.shape[0], len(D)), 1 / len(D))
        for b in range(0, len(full), self.batch_size):
            rows = full[b : b + self.batch_size]
            W[rows] = self._memberships(X[rows], D)
        return W.astype(X.dtype)

    def inverse_transform(self, W: ArrayLike) -> NDArray[np.floating]:
        """Return the mixtures of the components for memberships of shape (n, K)."""
        check_is_fitted(self)
        memberships = np.asarray(W)
        if memberships.ndim != 2 or memberships.shape[1] != len(self.components_):
            raise ValueError(f"W: expected shape (n, {len(self.components_)}), got {memberships.shape}")
        return memberships @ self.components_

    def score(self, X: Any, y: Any = None, exact: bool = False) -> float:
        """Return minus the mean transport cost of measures to their mixtures: certified, an upper bound of the cost.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m)
        y : ignored
        exact : bool
            Cross over to the exact costs.
        """
        W = self.transform(X)
        P = np.asarray(self.inverse_transform(W), np.float64)
        X = estimators.measures(self, X)
        mass = estimators.masses(X)
        full = mass > 0
        result = solve_batch(
            P[full],
            _normal(X[full], mass[full]),
            self._cost.astype(np.float64),
            n_sweeps=300,
            exact=bool(exact),
            n_jobs=self.n_jobs,
        )
        return -float(np.mean(result.value if exact else result.upper_bound))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to an npz file, with its fit, so that `resume` can go on to the bit.

        The file is replaced only when the new one is complete. Of the parameters, ``callbacks``, arrays of ``init`` and
        a ``random_state`` that is no integer are left out.
        """
        check_is_fitted(self)
        arrays: dict[str, Any] = {"components": self.components_, "seed": np.uint64(self.seed_)}
        arrays["n_features"] = self.n_features_in_
        arrays |= {f"cost_{name}": x for name, x in self._cost.arrays().items()}
        for name, value in self.get_params().items():
            if isinstance(value, str | Real):
                arrays[f"parameter_{name}"] = value
        arrays["parameter_step_size"] = self._steps()
        run = self._run
        arrays |= {"n_seen": self.n_seen_, "has_fit": run is not None}
        if run is not None:
            arrays |= {f"oracle_{name}": x for name, x in run.oracle.arrays().items()}
            arrays |= {f"run_{name}": getattr(run, name) for name in _ARRAYS}
            arrays |= {f"control_{name}": value for name, value in asdict(run.control).items()}
            arrays["run_history"] = np.array(run.history, np.float64).reshape(-1, len(Epoch._fields))
        files.save(path, "WassersteinNMF", arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> WassersteinNMF:
        """Return the model that was saved."""
        arrays = files.load(path, "WassersteinNMF")
        try:
            return cls._from_arrays(arrays)
        except KeyError as error:
            raise ValueError(f"path: {os.fspath(path)} is incomplete, it lacks {error}") from None

    @classmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> WassersteinNMF:
        def part(prefix: str) -> dict[str, NDArray[Any]]:
            return {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}

        cost = costs.from_arrays(part("cost_"))
        parameters = {name: x.item() for name, x in part("parameter_").items() if name != "step_size"}
        model = cls(cost=cost, step_size=tuple(arrays["parameter_step_size"].tolist()), **parameters)
        model.components_, model._cost, model.seed_ = arrays["components"], cost, int(arrays["seed"])
        model.n_features_in_, model.n_seen_ = int(arrays["n_features"]), int(arrays["n_seen"])
        model._run = None
        if not arrays["has_fit"]:
            return model
        saved = part("run_")
        values: dict[str, Any] = {name: saved[name] if saved[name].ndim else saved[name].item() for name in _ARRAYS}
        state = Control(
            **{name: arrays[f"control_{name}"].tolist() for name in (entry.name for entry in fields(Control))}
        )
        history = [Epoch(*row) for row in saved["history"].tolist()]
        model._run = _Run(oracle=Oracle.from_arrays(part("oracle_")), control=state, history=history, **values)
        model._publish(model._run)
        return model

    def _check_parameters(self) -> None:
        for name in ("n_components", "max_epochs", "batch_size", "tau"):
            checks.count(getattr(self, name), name)
        for name, choices in (("cooling", ("adaptive", "paper")), ("update", ("online", "full"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: expected one of {choices}, got {getattr(self, name)!r}")
        estimators.parameters(self)
        self._steps()
        named = isinstance(self.init, str)
        if (
            self.init not in ("nmf", "random")
            if named
            else not (isinstance(self.init, Sequence) and len(self.init) == 2)
        ):
            raise ValueError(f"init: expected 'nmf', 'random' or a pair of arrays, got {self.init!r}")

    def _steps(self) -> tuple[float, float]:
        steps: Any = self.step_size
        if isinstance(steps, Real):
            steps = steps, steps
        if not isinstance(steps, Sequence | np.ndarray) or len(steps) != 2:
            raise ValueError(f"step_size: expected a number or one for components and memberships, got {steps!r}")
        return checks.positive(steps[0], "step_size"), checks.positive(steps[1], "step_size")

    def _begin(self, X: Any) -> _Run:
        n = X.shape[0]
        if self.n_components > n:
            raise ValueError(f"n_components: {self.n_components} is more than the data has measures, n_samples={n}")
        self._cost = estimators.square_cost(self.cost, X.shape[1])
        self.seed_ = estimators.seed(self.random_state)
        full = np.flatnonzero(estimators.masses(X) > 0)
        D, W = self._start(X[full])
        oracle = Oracle(control.single(self._cost), X[full], tau=self.tau, seed=self.seed_, n_jobs=self.n_jobs)
        run = self._prepare(oracle, D, W)
        run.rows, run.count, run.dtype = full, n, X.dtype.str
        return run

    def _start(self, X: Any) -> tuple[Array, Array]:
        """Return components and memberships to start from, with all weights positive."""
        n, m = X.shape
        K = self.n_components
        mass = estimators.masses(X)
        mean = np.asarray(X.sum(axis=0, dtype=np.float64)).ravel() / mass.sum()
        rng = np.random.default_rng(self.seed_)
        if not isinstance(self.init, str):
            D, W = (checks.real(x, "init").astype(np.float64) for x in self.init)
            for x, name, shape in ((D, "components", (K, m)), (W, "memberships", (n, K))):
                if x.shape != shape or not np.isfinite(x).all() or (x < 0).any() or not (x.sum(axis=1) > 0).all():
                    raise ValueError(f"init: expected {name} of shape {shape}, nonnegative with mass in every row")
        elif self.init == "random":
            D = np.asarray(rng.dirichlet(np.ones(n), K) @ X)
            W = rng.dirichlet(np.ones(K), n)
        else:
            scaled = _normal(X, mass)
            with warnings.catch_warnings(), threadpool_limits(1):  # its small products are slower in threads
                warnings.simplefilter("ignore", ConvergenceWarning)  # it is only a start
                plain = NMF(K, max_iter=200, random_state=self.seed_ % 2**32)
                W = plain.fit_transform(scaled).astype(np.float64)
            D = plain.components_.astype(np.float64)
            W *= D.sum(axis=1)
        return estimators.smooth(D, mean), estimators.smooth(W, np.full(K, 1 / K))

    def _prepare(self, oracle: Oracle, D: Array, W: Array) -> _Run:
        n, sample = len(oracle), control.sample(len(oracle))
        log_D, log_W = logarithms(D), logarithms(W)
        return _Run(
            oracle, np.arange(n), n, "<f8", log_D, log_W, log_D.copy(), log_W.copy(), control.mean_cost(oracle.cost),
            Control.begin(oracle, W[sample] @ D, sample, self.temperature),
        )  # fmt: skip

    def _go_on(self, begun: float) -> None:
        run = self._run
        assert run is not None
        spent = run.history[-1].seconds if run.history else 0.0
        total = max(1, self.max_epochs - len(run.history))
        try:
            with progress.bar("Wasserstein NMF", self.verbose) as advance:
                while len(run.history) < self.max_epochs and not run.control.finished:
                    estimate, sweeps, change = self._epoch(run)
                    T, step = run.control.T, run.control.step
                    if self.cooling == "adaptive":
                        run.control.brake(change)
                    else:
                        support = run.oracle.targets.nnz / len(run.oracle)
                        run.control.T = schedules.epoch_decay(T, run.oracle.cost.shape[0], support)
                    done = len(run.history) + 1
                    bounds = np.nan, np.nan
                    if run.control.due(done) or done == self.max_epochs:
                        bounds = self._look(run)
                        run.control.looked = done
                    seconds = spent + time.perf_counter() - begun
                    run.history.append(Epoch(estimate, *bounds, T, step, sweeps, seconds))
                    self._publish(run)
                    advance(1 / total, run.control.note(estimate))
                    if estimators.stopped(self):
                        break
        finally:
            self._publish(run)
        unused = np.flatnonzero(self.usage_ < 1e-3 / self.n_components)
        if len(unused):
            warnings.warn(
                f"components {', '.join(map(str, unused[:10]))} are hardly used; try fewer n_components",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _epoch(self, run: _Run, learn: bool = True) -> tuple[float, float, float]:
        """Update memberships, and components to learn, once; return the means of V(z), sweeps and changes."""
        n, K = run.log_memberships.shape
        of_components, of_memberships = (run.control.step * s / run.scale for s in self._steps())
        total, sweeps, changes, waiting = 0.0, 0, list[float](), np.zeros_like(run.log_components)
        for rows in _batches(n, self.batch_size):
            D, W = np.exp(run.log_components), np.exp(run.log_memberships[rows])
            values, U, info = run.oracle(W @ D, run.control.T, rows)
            U = U.astype(np.float64)
            total += float(values.sum())
            sweeps += int(info.sweeps.sum())
            waiting += K / n * (W.T @ U)
            run.log_memberships[rows] = mirror_step(run.log_memberships[rows], U @ D.T, of_memberships)
            if learn and (self.update == "online" or rows[-1] == n - 1):
                changes.append(of_components * control.deviation(D, waiting))
                run.log_components = mirror_step(run.log_components, waiting, of_components)
                waiting[:] = 0
        return total / n, sweeps / n, float(np.mean(changes or [0.0]))

    def _look(self, run: _Run) -> tuple[float, float]:
        """Solve a sample exactly, keep the best model, and adapt step and temperature; return the sample's bounds."""
        sample = control.sample(len(run.oracle))

        def certified(log_D: Array, log_W: Array) -> tuple[Array, float, float]:
            P = np.exp(log_W[sample]) @ np.exp(log_D)
            lower, upper = control.certified(run.oracle, P, run.control.T, sample)
            return P, float(lower.mean()), float(upper.mean())

        if not run.control.past:  # the start is looked at as late as this, for models to be had soon
            run.control.judge(certified(run.best_components, run.best_memberships)[2])
        P, lower, value = certified(run.log_components, run.log_memberships)
        estimate = float(run.oracle(P, run.control.T, sample)[0].mean())
        if run.control.judge(value):
            run.best_components, run.best_memberships = run.log_components.copy(), run.log_memberships.copy()
        if self.cooling == "adaptive" and run.control.adapt(value, estimate, self.tol):
            run.log_components, run.log_memberships = run.best_components.copy(), run.best_memberships.copy()
        return lower, value

    def _memberships(self, X: Any, D: Array) -> Array:
        """Return the memberships of some measures, each the same whatever the others are."""
        start = estimators.smooth(_mixtures(X, D), np.full(len(D), 1 / len(D)))
        ids = np.zeros(X.shape[0], np.int64)
        oracle = Oracle(control.single(self._cost), X, tau=self.tau, seed=self.seed_, ids=ids, n_jobs=self.n_jobs)
        log_W, scale = logarithms(start), control.mean_cost(oracle.cost)
        T = np.maximum(control.heated(oracle, start @ D)[1], control.coldest(oracle.cost))
        for steps, part in zip(_MAPPING, (1.0, 0.25), strict=True):
            for _ in range(steps):
                _, U, _ = oracle(np.exp(log_W) @ D, part * T)
                log_W = mirror_step(log_W, U @ D.T, part * self._steps()[1] / scale)
        W = np.exp(log_W)
        before, after = (np.array([optimum.value for optimum in oracle.exact(x @ D, T)]) for x in (start, W))
        return np.where((after < before)[:, None], W, start)

    def _publish(self, run: _Run) -> None:
        """Show the best model so far."""
        self.components_ = np.exp(run.best_components).astype(run.dtype)
        self.memberships_ = np.full((run.count, self.n_components), 1 / self.n_components, run.dtype)
        self.memberships_[run.rows] = np.exp(run.best_memberships)
        self.usage_ = self.memberships_.mean(axis=0)
        self.reconstruction_err_ = run.control.best
        self.n_iter_ = len(run.history)
        self.history_ = run.history

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _normal(X: Any, mass: Array) -> Any:
    """Return rows divided by their masses."""
    return sparse.csr_array(sparse.diags_array(1 / mass) @ X) if sparse.issparse(X) else X / mass[:, None]


def _batches(n: int, size: int) -> Iterator[NDArray[np.intp]]:
    for b in range(0, n, size):
        yield np.arange(b, min(b + size, n))


def _mixtures(X: Any, D: Array) -> Array:
    """Return the memberships of least squares, each measure by itself."""
    rows = X.toarray() if sparse.issparse(X) else X
    return np.stack([nnls(D.T, row / row.sum())[0] for row in rows.astype(np.float64)])
