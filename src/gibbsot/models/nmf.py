"""Wasserstein NMF: measures as mixtures of a few components, nearest in transport cost."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from ..core import costs, validation
from ..core.costs import Cost
from ..distributed import backend, checkpoints, fixed_point, local, shard
from ..distributed.local import Shards
from ..io import npz, progress
from ..sampling import annealing, temperature
from ..sampling.annealing import AdaptiveCooling, EpochDecay, ModelCooling, ModelState
from ..solvers import evaluation
from ..solvers.mirror_descent import logarithms, mirror_step
from ..solvers.solve import solve_batch
from . import _base
from ._history import Epoch
from .mixtures import Mixtures, basis, coordinates

Array = NDArray[np.float64]

_START = 5000  # measures that the start is found from, spread evenly
_SPARSE = 0.1  # of weights that are positive, below which sparse products are faster
_STREAM = 10  # steps for a batch of a stream, the second half of them with the components
_STREAM_STEP = 0.3  # their length: a batch is not all of the data


@dataclass
class _Run:
    """A fit on its way: all that its next epoch depends on."""

    shards: Shards  # the data, their chains and memberships
    n: int  # measures with mass
    support: float  # their mean number of bins
    dtype: str  # of the data
    cost: Cost  # in the precision of the chains
    log_components: Array
    best_components: Array
    control: ModelState
    history: list[Epoch] = field(default_factory=list)
    saved: str = ""  # where the last checkpoint is

    def __post_init__(self) -> None:
        # both read all of a dense cost, which is not for every epoch
        self.scale, self.units = costs.mean_cost(self.cost), shard.units(self.cost, self.n)


_ARRAYS = ("n", "support", "dtype", "log_components", "best_components")  # of a run, saved as they are


class WassersteinNMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _base.OfMeasures):  # type: ignore[misc]
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
        The start: scikit-learn's NMF, slightly smoothed; random mixtures of the data; or components, and memberships of
        all measures with mass.
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
    client : dask.distributed.Client, optional
        Where to compute: each part of the data stays with its chains and memberships on one of the client's workers
        (the extra ``dask``). The bits are the same as without, for every number of workers and parts; ``update="full"``
        keeps all of them busy.
    checkpoint : path or URL, optional
        A folder for checkpoints, in which the last two are kept, such as ``"s3://bucket/run"``; any URL that fsspec
        knows, and all workers can reach. `load` goes on from there.
    checkpoint_seconds : float
        The time from one to the next.

    Attributes
    ----------
    components_ : array of shape (K, m)
        The best components seen, by the exact cost of a sample, which is looked at after ten epochs, then now and then.
    memberships_ : array of shape (n, K)
        Those of the training data, of the same model; with a client, a Dask array.
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
    >>> from gibbsot import WassersteinNMF
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
        client: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_seconds: float = 120.0,
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
        self.client = client
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds

    components_: NDArray[np.floating]
    _run: _Run | None

    def fit(self, X: Any, y: Any = None) -> WassersteinNMF:
        """Learn components from measures as rows.

        A fit that is interrupted leaves the best model so far, and `resume` goes on with it.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of parts
            The data, or a list of matrices or of files with one each (.npy, .npz, ...), which are not put together.
        y : ignored
        """
        begun = time.perf_counter()
        self._check_parameters()
        if self.checkpoint is not None and checkpoints.exist(self.checkpoint):
            raise ValueError(
                f"checkpoint: {os.fspath(self.checkpoint)} has those of another fit, which load goes on with; expected "
                "a folder without"
            )
        before: _Run | None = self.__dict__.pop("_run", None)
        if before is not None:
            before.shards.close()
        parts = _base.shards_of(self, Mixtures, X, reset=True)
        self._run = self._begin(parts)
        self.n_seen_ = 0
        self._go_on(begun)
        return self

    def resume(self, X: Any) -> WassersteinNMF:
        """Go on with a fit that was interrupted, saved and loaded, or has come to ``max_epochs``, which may be raised.

        One that has stopped by itself goes on only with a lower ``tol``.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of parts
            The data of the fit.
        """
        check_is_fitted(self)
        self._check_parameters()
        run = self._run
        if run is None:
            raise ValueError(
                "resume: this model has no fit to go on with; expected one after fit, or load of its file or, "
                "of a fit on a cluster, of its checkpoints"
            )
        parts = _base.shards_of(self, Mixtures, X)
        try:
            local.settle(parts, run.cost, self.tau, self.seed_, self.n_jobs)
            same = parts.each("digest") == run.shards.each("digest")
        finally:
            parts.close()
        if not same:
            raise ValueError("X: differs from the data of the fit; expected the same measures, in the same parts")
        run.shards.total("threads", self.n_jobs)
        run.control = self._policy(run).resume(run.control, self.tol)  # which may have been lowered
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
        X = _base.measures(self, X, reset=first)
        part = Mixtures(X)
        if first:
            self._cost = _base.square_cost(self.cost, X.shape[1])
            self.seed_, self.n_seen_ = _base.seed(self.random_state), 0
        parts = Shards([part])
        local.settle(parts, costs.single(self._cost), self.tau, self.seed_, self.n_jobs, self.n_seen_)
        log_D = None if first else logarithms(self.components_.astype(np.float64))
        run = self._prepare(parts, len(part), part.facts().dtype, log_D)
        run.control = replace(run.control, step=_STREAM_STEP)
        for k in range(_STREAM):
            self._epoch(run, learn=k >= _STREAM // 2)
        self.n_seen_ += len(part)
        self.components_ = np.exp(run.log_components).astype(X.dtype)
        self._run = None
        for name in ("reconstruction_err_", "n_iter_", "history_"):  # the model is no longer the one that was fitted
            self.__dict__.pop(name, None)
        return self

    @property
    def memberships_(self) -> Any:
        run = self._of_a_fit("memberships_")
        return run.shards.rows("memberships", len(run.best_components))

    @property
    def usage_(self) -> Array:
        total = self._of_a_fit("usage_").shards.ask("usage")
        return np.asarray(total[0] / total[0].sum())

    def _of_a_fit(self, name: str) -> _Run:
        run: _Run | None = self.__dict__.get("_run")
        if run is None:
            raise AttributeError(f"{name}: is known after a fit only")
        return run

    def transform(self, X: Any) -> Any:
        """Return the memberships of measures in the components, shape (n, K): see `mixture_coordinates`.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), list of parts, or Dask array, for which the result is one too
        """
        check_is_fitted(self)
        D = self.components_.astype(np.float64)
        D /= D.sum(axis=1, keepdims=True)
        options = D, basis(fixed_point.components(D)), self._cost, self.tau, self.batch_size, self.seed_, self.n_jobs
        if shard.is_dask(X):
            from ..distributed.dask import mapped

            return mapped(X, coordinates, *options)
        sources = shard.sources(X)
        if sources is not None:
            return np.concatenate([self.transform(shard.loaded(source)) for source in sources])
        return coordinates(_base.measures(self, X), *options)

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
        X = _base.measures(self, X)
        mass = validation.masses(X)
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

        The file is replaced only when the new one is complete. Of the parameters, ``callbacks``, ``client``, arrays of
        ``init`` and a ``random_state`` that is no integer are left out. Of a fit on a cluster the file has the model
        alone: its data may be more than one machine can hold, and are in its checkpoints.
        """
        check_is_fitted(self)
        run = self._run if self.client is None else None
        arrays = self._arrays(run)
        for k, part in enumerate(run.shards.each("arrays") if run else ()):
            arrays |= {f"part{k}_{name}": x for name, x in part.items()}
        npz.save(path, "WassersteinNMF", arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], client: Any = None) -> WassersteinNMF:
        """Return the model that was saved to a file, or the last whole checkpoint in a folder.

        Parameters
        ----------
        path : path or URL
        client : dask.distributed.Client, optional
            For a checkpoint: the parts of the data go to its workers, as in the fit.
        """
        if checkpoints.exist(path):
            return checkpoints.last(path, lambda folder: cls._from_checkpoint(folder, client))
        arrays = npz.load(path, "WassersteinNMF")
        try:
            return cls._from_arrays(arrays, None)
        except KeyError as error:
            raise ValueError(f"path: {os.fspath(path)} is incomplete, it lacks {error}") from None

    @classmethod
    def _from_checkpoint(cls, folder: str, client: Any) -> WassersteinNMF:
        arrays = npz.load(f"{folder}/model.npz", "WassersteinNMF")
        parts = backend.load(client, Mixtures, folder, arrays["digests"].tolist())
        model = cls._from_arrays(arrays, parts)
        assert model._run is not None
        model._run.saved = folder
        return model.set_params(client=client, checkpoint=folder.rpartition("/")[0])

    def _arrays(self, run: _Run | None) -> dict[str, Any]:
        """Return all there is to know of the model, and of a fit but for the parts of its data."""
        arrays: dict[str, Any] = {"components": self.components_, "seed": np.uint64(self.seed_)}
        arrays["n_features"] = self.n_features_in_
        arrays |= {f"cost_{name}": x for name, x in self._cost.arrays().items()}
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, str | Real):
                arrays[f"parameter_{name}"] = value
        arrays["parameter_step_size"] = self._steps()
        arrays |= {"n_seen": self.n_seen_, "n_parts": 0}
        if run is not None:
            arrays["n_parts"] = len(run.shards)
            arrays |= {f"run_{name}": getattr(run, name) for name in _ARRAYS}
            arrays |= {f"control_{name}": value for name, value in run.control.to_arrays().items()}
            arrays["run_history"] = np.array(run.history, np.float64).reshape(-1, len(Epoch._fields))
        return arrays

    @classmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]], parts: Shards | None) -> WassersteinNMF:
        def part(prefix: str) -> dict[str, NDArray[Any]]:
            return {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}

        cost = costs.from_arrays(part("cost_"))
        parameters = {name: x.item() for name, x in part("parameter_").items() if name != "step_size"}
        model = cls(cost=cost, step_size=tuple(arrays["parameter_step_size"].tolist()), **parameters)
        model.components_, model._cost, model.seed_ = arrays["components"], cost, int(arrays["seed"])
        model.n_features_in_, model.n_seen_ = int(arrays["n_features"]), int(arrays["n_seen"])
        model._run = None
        if not arrays["n_parts"]:
            return model
        if parts is None:
            parts = Shards([Mixtures.from_arrays(part(f"part{k}_")) for k in range(int(arrays["n_parts"]))])
        saved = part("run_")
        values: dict[str, Any] = {name: saved[name] if saved[name].ndim else saved[name].item() for name in _ARRAYS}
        state = ModelState.from_arrays(part("control_"))
        history = [Epoch(*row) for row in saved["history"].tolist()]
        model._run = _Run(parts, cost=costs.single(cost), control=state, history=history, **values)
        model._publish(model._run)
        return model

    def _check_parameters(self) -> None:
        for name in ("n_components", "max_epochs", "batch_size", "tau"):
            validation.count(getattr(self, name), name)
        validation.choice(self.cooling, "cooling", ("adaptive", "paper"))
        validation.choice(self.update, "update", ("online", "full"))
        _base.parameters(self)
        validation.positive(self.checkpoint_seconds, "checkpoint_seconds")
        self._steps()
        named = isinstance(self.init, str)
        if (
            self.init not in ("nmf", "random")
            if named
            else not (isinstance(self.init, Sequence) and len(self.init) == 2)
        ):
            raise ValueError(f"init: expected 'nmf', 'random' or a pair of arrays, got {self.init!r}")

    def _steps(self) -> tuple[float, float]:
        return validation.positive_pair(self.step_size, "step_size", "components and one for memberships")

    def _begin(self, parts: Shards) -> _Run:
        facts = parts.facts
        n = sum(fact.full for fact in facts)
        if self.n_components > n:
            raise ValueError(f"n_components: {self.n_components} is more than the data has measures, n_samples={n}")
        self._cost = _base.square_cost(self.cost, facts[0].columns)
        self.seed_ = _base.seed(self.random_state)
        local.settle(parts, costs.single(self._cost), self.tau, self.seed_, self.n_jobs)
        return self._prepare(parts, n, np.result_type(*(fact.dtype for fact in facts)).str, None)

    def _prepare(self, parts: Shards, n: int, dtype: str, log_D: Array | None) -> _Run:
        """Begin with components and memberships; if they are not given, they are found from some of the measures."""
        some, W = np.empty(0, np.intp), np.empty((0, self.n_components))
        if log_D is None:
            some = evaluation.sample(n, _START)
            D, W = self._start(sparse.vstack(parts.each("targets", some), format="csr"), n)
            log_D = logarithms(D)
            some = some if isinstance(self.init, str) else np.arange(n)
        D_ticks = fixed_point.components(np.exp(log_D))
        parts.total("start", D_ticks, basis(D_ticks), some, W)
        cost = costs.single(self._cost)
        given = None if isinstance(self.temperature, str) else float(self.temperature)
        estimates, T = parts.ask("heat", evaluation.sample(n), D_ticks, False)[0]
        state = AdaptiveCooling().init(estimates, T, temperature.minimum(cost), given)
        return _Run(parts, n, parts.ask("support")[0] / n, dtype, cost, log_D, log_D, state)

    def _start(self, X: sparse.csr_array, count: int) -> tuple[Array, Array]:
        """Return components and memberships to start from, with all weights positive: of some measures, or all."""
        n, m = X.shape
        K = self.n_components
        mean = np.asarray(X.sum(axis=0)).ravel() / n
        rng = np.random.default_rng(self.seed_)
        if not isinstance(self.init, str):
            D = validation.weights(self.init[0], "init[0]", m, count=K)
            W = validation.weights(self.init[1], "init[1]", K, count=count)
        elif self.init == "random":
            D = np.asarray(rng.dirichlet(np.ones(n), K) @ X)
            W = rng.dirichlet(np.ones(K), n)
        else:
            rows = X if X.nnz < _SPARSE * n * m else X.toarray()
            with warnings.catch_warnings(), threadpool_limits(1):  # its small products are slower in threads
                warnings.simplefilter("ignore", ConvergenceWarning)  # it is only a start
                plain = NMF(K, max_iter=200, random_state=self.seed_ % 2**32)
                W = plain.fit_transform(rows)
            D = plain.components_
            W = W * D.sum(axis=1)
        return _base.smooth(D, mean), _base.smooth(W, np.full(K, 1 / K))

    def _policy(self, run: _Run) -> ModelCooling:
        """Return the rule by which temperature and steps change."""
        return AdaptiveCooling() if self.cooling == "adaptive" else EpochDecay(m=run.cost.shape[0], m_bar=run.support)

    def _go_on(self, begun: float) -> None:
        run = self._run
        assert run is not None
        policy = self._policy(run)
        spent = run.history[-1].seconds if run.history else 0.0
        total, saved = max(1, self.max_epochs - len(run.history)), time.monotonic()
        try:
            with progress.bar("Wasserstein NMF", self.verbose) as advance:
                while len(run.history) < self.max_epochs and not run.control.finished:
                    estimate, sweeps, change = self._epoch(run)
                    T, step = run.control.T, run.control.step
                    run.control = policy.after_epoch(run.control, change)
                    done = len(run.history) + 1
                    bounds = np.nan, np.nan
                    if policy.due(run.control, done) or done == self.max_epochs:
                        bounds = self._look(run)
                        run.control = replace(run.control, evaluated=done)
                    seconds = spent + time.perf_counter() - begun
                    run.history.append(Epoch(estimate, *bounds, T, step, sweeps, seconds))
                    self._publish(run)
                    advance(1 / total, run.control.describe(estimate))
                    if self.checkpoint is not None and time.monotonic() - saved >= self.checkpoint_seconds:
                        self._check_in(run)
                        saved = time.monotonic()
                    if _base.stopped(self):
                        break
        finally:
            self._publish(run)
        if self.checkpoint is not None and run.saved != checkpoints.place(self.checkpoint, len(run.history)):
            self._check_in(run)
        unused = np.flatnonzero(self.usage_ < 1e-3 / self.n_components)
        if len(unused):
            warnings.warn(
                f"components {', '.join(map(str, unused[:10]))} are hardly used; try fewer n_components",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _check_in(self, run: _Run) -> None:
        """Write a checkpoint."""
        assert self.checkpoint is not None
        with checkpoints.next(self.checkpoint, len(run.history), run.saved) as folder:
            arrays = self._arrays(run) | {"digests": run.shards.save(folder)}
            npz.save(f"{folder}/model.npz", "WassersteinNMF", arrays)
        run.saved = folder

    def _epoch(self, run: _Run, learn: bool = True) -> tuple[float, float, float]:
        """Update memberships, and components to learn, once; return the means of V(z), sweeps and changes."""
        n, K = run.n, len(run.log_components)
        bits, unit, value_unit = run.units
        of_components, of_memberships = (run.control.step * s / run.scale for s in self._steps())
        size = self.batch_size if self.update == "online" and learn else n
        value, sweeps, changes = 0, 0, list[float]()
        for begin in range(0, n, size):
            D = np.exp(run.log_components)
            order = fixed_point.components(D), run.control.T, of_memberships, begin, begin + size, self.batch_size
            gradient, of_batch, of_chains = run.shards.total("epoch", *order)
            value += of_batch
            sweeps += of_chains
            if learn:
                gradient = gradient * (K / n * unit * 2.0**-bits)
                changes.append(of_components * annealing.deviation(D, gradient))
                run.log_components = mirror_step(run.log_components, gradient, of_components)
        return value * value_unit / n, sweeps / n, float(np.mean(changes or [0.0]))

    def _look(self, run: _Run) -> tuple[float, float]:
        """Solve a sample exactly, keep the best model, and adapt step and temperature; return the sample's bounds."""
        sample, T, policy = evaluation.sample(run.n), run.control.T, self._policy(run)

        def certified(log_D: Array, best: bool) -> tuple[float, float]:
            lower, upper = run.shards.ask("look", sample, T, fixed_point.components(np.exp(log_D)), best)[0]
            return float(lower.mean()), float(upper.mean())

        if not run.control.past:  # the start is looked at as late as this, for models to be had soon
            run.control, _ = policy.record(run.control, certified(run.best_components, True)[1])
        lower, value = certified(run.log_components, False)
        D = fixed_point.components(np.exp(run.log_components))
        estimate = float(run.shards.total("estimate", sample, T, D, False)[0].mean())
        run.control, best = policy.record(run.control, value)
        if best:
            run.best_components = run.log_components
            run.shards.total("keep")
        run.control = policy.update(run.control, value, estimate, self.tol)
        if run.control.worse:
            run.log_components = run.best_components
            run.shards.total("go_back")
        return lower, value

    def _publish(self, run: _Run) -> None:
        """Show the best model so far."""
        self.components_ = np.exp(run.best_components).astype(run.dtype)
        self.reconstruction_err_ = run.control.best
        self.n_iter_ = len(run.history)
        self.history_ = run.history

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _normal(X: Any, mass: Array) -> Any:
    """Return rows divided by their masses."""
    return sparse.csr_array(sparse.diags_array(1 / mass) @ X) if sparse.issparse(X) else X / mass[:, None]
