"""k-means with transport costs: clusters of measures, whose centroids are barycenters."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import compress, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from ...core import native, validation
from ...core.warn import warn
from ...costs import Cost
from ...distributed import checkpoints, sources
from ...distributed.shards import LocalShards, Shards, read_shards
from ...distributed.worker import Split
from ...exact.certificate import enclose
from ...io import npz, progress
from .. import _base
from .._costs import Metric
from .._loop import Checkpoints
from ..barycenter.free import Cloud, clouds_of, refuse_clouds
from ..geometry import sets as _sets
from . import files
from .assignment import Assignment, Iteration, SolvedProblems
from .centroids import Centroids, CloudCentroids, Cluster, PartsCentroids, RowCentroids
from .shard import KMeansShard, PartsData

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_EARLY = 0.05  # relative gap of centroids that will move again


class WassersteinKMeans(ClusterMixin, _base.MeasuresTransformer, _base.ClientEstimator):  # type: ignore[misc]
    r"""k-means of measures with transport costs, also known as D2-clustering.

    .. math:: \min_{c, l} \sum_i s_i W(c_{l_i}, x_i)

    over centroids c and labels l. Measures are assigned exactly, by certified lower bounds first: projections or
    nearest points, potentials of pairs that were solved before, which stay feasible when a centroid moves, and the
    triangle inequality where a root of the transport cost is a distance. While centroids still move, they are updated
    by a few steps; at the end they are brought to a certified gap. The labels are the same as if all pairs were solved.

    Parameters
    ----------
    n_clusters : int
        The number of clusters.
    cost : Cost, array of shape (m, m), str, callable or list of these, optional
        The cost between bins, as for `WassersteinNMF`. None is "line", with a warning. A list of costs is for objects
        of several parts, such as title and body of a text: X then is a list of data sets, one for each cost, and the
        transport costs of the parts add up.
    cost_weights : array of shape (parts,), optional
        Positive factors of the costs of the parts; one by default.
    support : {"fixed", "free"}
        Whether centroids have weights on the bins, or are clouds with points of their own, with squared Euclidean
        distances as the cost.
    n_support : int, optional
        Free support: the number of points of a centroid, by default the mean number of points of a measure.
        Parameters that do not apply to a support must keep their defaults.
    init : "k-means++", or centroids
        Where to start. k-means++ chooses measures with probabilities in proportion to the transport costs to those
        chosen before. Centroids are rows of weights, or with free support clouds.
    n_init : int
        The number of starts by k-means++, of which the result of least inertia is kept.
    max_iter : int
        The largest number of assignments in one start.
    gap : float
        Fixed support: the certified relative gap of the centroids at the end, each to the barycenter of its members.
    tol : float
        Free support: the relative gain at which the last updates of a centroid end.
    random_state : int, RandomState or None
        The seed.
    n_jobs : int, optional
        Threads over the problems: None for one, -1 for all cores. Results do not depend on it.
    verbose : bool
        Show progress.
    callbacks : sequence of functions
        Each is called with the model after every assignment; the fit stops if one returns True.
    feature_vectors : array of shape (m, d), optional
        An embedding of each bin, from which a metric builds the cost. With several parts a list, with None for parts
        without one.
    client : dask.distributed.Client, optional
        Keeps the measures in shards on the client's workers, as in `WassersteinNMF`. Labels, centroids and inertia are
        bit-identical to those without a client.
    checkpoint : path or URL, optional
        A new or empty folder for checkpoints, of which the last two are kept, as in `WassersteinNMF`. `load` reads it.
    checkpoint_seconds : float
        The time between two checkpoints.

    Attributes
    ----------
    cost_ : Cost
        The cost between bins; missing for clouds. With several parts a list.
    cluster_centers_ : array of shape (n_clusters, m), or list of pairs (points, weights)
        The centroids. With several parts a list of what each part has.
    labels_ : array of int, shape (n,)
        The cluster of each measure; -1 for measures without mass.
    inertia_ : float
        The weighted sum of the exact transport costs to the nearest centroids.
    inertia_bounds_ : pair of float
        Certified bounds of it, rounded outwards.
    centroid_gaps_ : array of shape (n_clusters,)
        A certified bound of how far the objective of a centroid is above that of the barycenter of its members, as a
        share; objectives below 1e-12 of the largest cost count as that. With free support, which has no such bound,
        the stationarity (see `WassersteinBarycenter`).
    counts_ : array of shape (n_clusters,)
        The weight of the measures of each cluster; for a stream, of all measures that it has ever had.
    n_iter_ : int
        The number of assignments of the best start.
    n_relocated_ : int
        How often a cluster was empty and was started again, from the measure with the largest cost.
    history_ : list of Iteration
        What each assignment found and took.
    solved_ : SolvedProblems
        How many problems all starts took.
    n_features_in_ : int
        The number m of bins, or of coordinates of clouds.

    See Also
    --------
    WassersteinBarycenter : One centroid, with more ways to compute it.

    References
    ----------
    .. [1] J. Li and J. Z. Wang, *Real-time computerized annotation of pictures*, IEEE TPAMI 30, 2008.
    .. [2] J. Ye, P. Wu, J. Z. Wang and J. Li, *Fast discrete distribution clustering using Wasserstein barycenter with
       sparse support*, IEEE Transactions on Signal Processing 65, 2017.
    .. [3] C. Elkan, *Using the triangle inequality to accelerate k-means*, ICML 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import WassersteinKMeans
    >>> x = np.arange(20)
    >>> bumps = np.exp(-((x - np.array([[4], [5], [14], [15]])) ** 2) / 4)
    >>> model = WassersteinKMeans(2, cost="line", random_state=0).fit(bumps)
    >>> model.labels_[0] == model.labels_[1], model.labels_[0] == model.labels_[2]
    (np.True_, np.False_)
    """

    cluster_centers_: Any
    labels_: NDArray[np.intp]
    counts_: Array
    centroid_gaps_: Array
    n_iter_: int

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        cost: Cost | ArrayLike | str | Metric | Sequence[Any] | None = None,
        cost_weights: ArrayLike | None = None,
        support: str = "fixed",
        n_support: int | None = None,
        init: Any = "k-means++",
        n_init: int = 1,
        max_iter: int = 100,
        gap: float = 1e-2,
        tol: float = 2e-4,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callable[[Any], Any]] = (),
        feature_vectors: Any = None,
        client: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_seconds: float = 120.0,
    ) -> None:
        self.n_clusters = n_clusters
        self.cost = cost
        self.cost_weights = cost_weights
        self.support = support
        self.n_support = n_support
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.gap = gap
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks
        self.feature_vectors = feature_vectors
        self.client = client
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> WassersteinKMeans:
        """Find clusters of measures.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of matrices or files
            Measures as rows, which are normalised. Each item of a list, or block of a Dask array, is a shard; with a
            client other data are split into one shard for each thread of the workers. With free support and ``cost``
            None or "sqeuclidean" also clouds: arrays of points of shape (m_k, d), or pairs (points, weights). With
            several parts a list of data sets, each with the parts of all objects in the same order.
        y : None
            Ignored.
        sample_weight : array of shape (n,), optional
            The weights s, nonnegative; one by default.

        Returns
        -------
        WassersteinKMeans
            The fitted model.
        """
        started = time.perf_counter()
        self._check_parameters()
        fit_id = "" if self.checkpoint is None else checkpoints.prepare(self.checkpoint)
        with closing(self._shards(X)) as shards:
            full = self._full(shards)
            weights = (
                np.ones(len(full)) if sample_weight is None else validation.sample_weight(sample_weight, len(full))
            )
            weights = weights[full]
            if not weights.any():
                raise ValueError("sample_weight: is zero for every measure with mass; expected a positive one")
            if len(weights) < self.n_clusters:
                raise ValueError(
                    f"n_clusters: is {self.n_clusters}; expected at most n_samples={len(weights)} with mass"
                )
            fit = Fit(self, shards, weights, full, check_random_state(self.random_state), started)
            fit.files.fit_id = fit_id
            fit.begin()
            self._fit(fit)
        return self

    def resume(self, X: Any) -> WassersteinKMeans:
        """Continue a fit from its last checkpoint, after a crash or an interrupt or with a larger ``max_iter``.

        Labels, centroids and inertia are bit-identical to those of a fit without the interrupt.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, list of matrices or files, or clouds
            The data of the fit, in the same shards.

        Returns
        -------
        WassersteinKMeans
            The fitted model.

        Raises
        ------
        ValueError
            If there is no checkpoint, or the data differ.
        """
        started = time.perf_counter()
        self._check_parameters()
        if self.checkpoint is None or not checkpoints.exist(self.checkpoint):
            raise ValueError("resume: there is no checkpoint; expected one in the folder checkpoint, of a fit")
        fit_id = checkpoints.claim(self.checkpoint, checkpoints.mark(self.checkpoint))
        saved = checkpoints.load_last(self.checkpoint, lambda folder: files.load_fit(self, folder))
        with closing(saved.shards) as shards:
            given, full = self._sources(X, len(shards), reset=True)
            _base.attach_sources(shards, given)
            shards.reduce(KMeansShard.set_n_jobs, self.n_jobs)
            self._known_full = full
            state = saved.state
            fit = Fit(self, shards, state["weights"], self._full(shards), check_random_state(None), started)
            fit.restore(state)
            fit.files = files.Written(saved.folder, saved.checksums, fit_id)
            self._fit(fit)
        return self

    @classmethod
    def load(cls, path: str | os.PathLike[str], client: Any = None) -> WassersteinKMeans:
        """Return the model of the last complete checkpoint in a folder, which `resume` continues.

        Parameters
        ----------
        path : path or URL
            The folder of checkpoints.
        client : dask.distributed.Client, optional
            The client whose workers will hold the shards.

        Returns
        -------
        WassersteinKMeans
            The model. A start that was given as ``init`` is not part of it.
        """
        return checkpoints.load_last(path, lambda folder: files.load(cls, folder, client))

    def _fit(self, fit: Fit) -> None:
        """Run the starts of a fit."""
        timed = None
        if self.checkpoint is not None:
            timed = Checkpoints(lambda model: files.write(model, fit), self.checkpoint_seconds)
        with threadpool_limits(1, "blas"), progress.bar("Wasserstein k-means", self.verbose) as advance:
            for note in fit.iterations():
                advance(1 / (fit.starts * self.max_iter), note)
                if timed is not None:
                    timed(self)
                if True in [callback(self) for callback in self.callbacks]:
                    fit.run.stop()
        if timed is not None:
            timed.attempt(self)
        fit.warn()

    def partial_fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> WassersteinKMeans:
        """Update the centroids by a batch of a stream; the first batch is fitted as a whole.

        Measures are assigned to the nearest centroids. Each centroid then moves to the barycenter of its new members
        and of itself, with the weight ``counts_`` of all measures that it has had, to the certified gap. So the
        influence of a batch falls as in ``sklearn.cluster.MiniBatchKMeans``. For squared metrics this is a step along a
        geodesic; for a metric itself a heavy centroid stays where it is, as a median does.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.

        Returns
        -------
        WassersteinKMeans
            The model. ``labels_``, ``inertia_`` and its bounds are those of the batch before the update.
        """
        if not hasattr(self, "counts_"):
            return self.fit(X, sample_weight=sample_weight)
        self._check_parameters()
        data, full = self._data(X, reset=False)
        weights = np.ones(len(full)) if sample_weight is None else validation.sample_weight(sample_weight, len(full))
        self.labels_ = np.full(len(full), -1, np.intp)
        if not full.any():
            return self
        old, count = self._unpublished(self.cluster_centers_), len(self.counts_)
        centroids = self._centroids(self._local(self._joined(old, data)), count)
        run = _Run(self, centroids, np.append(np.zeros(count), weights[full]), None, 0.0)
        run.begin(old)
        run.assignment.assign()
        labels, (below, above) = run.assignment.labels, run.bounds()
        self.labels_[full], self.inertia_, self.inertia_bounds_ = labels[count:], run.inertia, (below, above)
        clusters = []
        for k in range(count):
            own = np.flatnonzero((labels == k) & (run.weights > 0))
            if len(own):
                before = np.array([k] if self.counts_[k] > 0 else [], np.intp)
                share = np.append(self.counts_[before], run.weights[own])
                clusters.append(Cluster(k, np.append(before, own), share, np.inf))
        if not clusters:  # no measure has weight
            return self
        with threadpool_limits(1, "blas"):
            found = run.centroids.update(clusters, self.gap, True)
        self.counts_ = self.counts_ + np.bincount(labels, run.weights, count)
        for cluster, one in zip(clusters, found, strict=True):
            self.centroid_gaps_[cluster.k] = one.gap
        self.cluster_centers_ = self._published([run.centroids.get(k) for k in range(count)])
        self.n_iter_ += 1
        return self

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Return the nearest centroid of each measure, by bounds first.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), list of matrices or files, or clouds
            As for `fit`.

        Returns
        -------
        array of int, shape (n,)
            -1 for measures without mass.
        """
        assignment, full = self._against(X)
        labels = np.full(len(full), -1, np.intp)
        if full.any():
            assignment.assign()
            labels[full] = assignment.labels
        return labels

    def transform(self, X: Any) -> Array:
        """Return the exact transport costs to all centroids.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), list of matrices or files, or clouds
            As for `fit`.

        Returns
        -------
        array of shape (n, n_clusters)
            Infinite for measures without mass.
        """
        assignment, full = self._against(X)
        count = len(self.counts_)
        found, rows = np.full((len(full), count), np.inf), np.flatnonzero(full)
        if len(rows):
            i, k = np.repeat(np.arange(len(rows)), count), np.tile(np.arange(count), len(rows))
            found[rows] = assignment.centroids.solve(i, k).value.reshape(-1, count)
        return found

    def fit_transform(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Array:
        """Find clusters, and return the exact transport costs of the same measures to all centroids.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.

        Returns
        -------
        array of shape (n, n_clusters)
        """
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the weighted sum of the exact costs to the nearest centroids.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.

        Returns
        -------
        float
        """
        assignment, full = self._against(X)
        weights = np.ones(len(full)) if sample_weight is None else validation.sample_weight(sample_weight, len(full))
        if not full.any():
            return 0.0
        assignment.assign()
        return -float(weights[full] @ np.nanmin(assignment.value, axis=1))

    def _check_parameters(self) -> None:
        validation.count(self.n_clusters, "n_clusters")
        validation.count(self.n_init, "n_init")
        validation.count(self.max_iter, "max_iter")
        validation.nonnegative(self.gap, "gap")
        validation.nonnegative(self.tol, "tol")
        native.threads(self.n_jobs)
        if self._several:
            _base.check_parameters(self, cost=None, feature_vectors=None)
            for part in self._new_parts():
                part._check_parameters()
            self._factors()
        else:
            _base.check_parameters(self)
            if self.cost_weights is not None:
                raise ValueError("cost_weights: does not apply to one cost; expected None, or a list of costs")
        _base.check_support(self, fixed=("gap",), free=("n_support", "tol"))
        if self.n_support is not None:
            validation.count(self.n_support, "n_support")
        if isinstance(self.init, str):
            validation.choice(self.init, "init", ("k-means++",))

    @property
    def _several(self) -> bool:
        """Whether objects have several parts: the cost is a list, and no matrix of numbers as lists."""
        if not isinstance(self.cost, list | tuple):
            return False
        return all(
            one is None or isinstance(one, Cost | str) or callable(one) or np.ndim(one) == 2 for one in self.cost
        )

    def _new_parts(self) -> list[WassersteinKMeans]:
        """Return a model for each part, which knows its data."""
        costs: list[Any] = list(self.cost)  # type: ignore[arg-type]
        vectors = [None] * len(costs) if self.feature_vectors is None else list(self.feature_vectors)
        if not costs or len(vectors) != len(costs):
            raise ValueError(f"feature_vectors: has {len(vectors)} parts; expected {len(costs)}, one for each cost")
        same = {name: getattr(self, name) for name in ("n_clusters", "support", "n_support", "gap", "tol", "n_jobs")}
        return [
            WassersteinKMeans(cost=cost, feature_vectors=one, **same) for cost, one in zip(costs, vectors, strict=True)
        ]

    def _factors(self) -> Array:
        """Return the factors of the costs of the parts."""
        count = len(self.cost)  # type: ignore[arg-type]
        if self.cost_weights is None:
            return np.ones(count)
        found = validation.weights(self.cost_weights, "cost_weights", count, count=1)[0]
        if not found.all():
            raise ValueError("cost_weights: has a factor of zero; expected positive ones, or fewer parts")
        return np.asarray(found, np.float64)

    def _data(self, X: Any, reset: bool) -> tuple[Any, NDArray[np.bool_]]:
        """Return rows or clouds, the measures with mass, and which those are; a list of these for several parts."""
        if not self._several:
            return self._part_data(X, reset)
        if reset:
            self._parts = self._new_parts()
        if not isinstance(X, list | tuple) or len(X) != len(self._parts):
            raise ValueError(f"X: expected a list of {len(self._parts)} data sets, one for each cost")
        found = [part._part_data(one, reset) for part, one in zip(self._parts, X, strict=True)]
        sizes = [len(full) for _, full in found]
        if len(set(sizes)) > 1:
            raise ValueError(f"X: has parts of {sizes} objects; expected the same number in each")
        if reset:
            self.n_features_in_: int = sum(part.n_features_in_ for part in self._parts)
            self.cost_: Any = [getattr(part, "cost_", None) for part in self._parts]
        every = np.logical_and.reduce([full for _, full in found])
        data = []
        for some, full in found:
            kept = every[full]
            data.append(some[kept] if isinstance(some, np.ndarray) else list(compress(some, kept)))
        return data, every

    def _part_data(self, X: Any, reset: bool) -> tuple[Any, NDArray[np.bool_]]:
        """Return rows or clouds, the measures with mass, and which those are."""
        if self.support == "free":
            points, weights = clouds_of(self, X, reset)
            full = np.array([w.sum() > 0 for w in weights], bool)
            pairs = [(Y, w) for Y, w, one in zip(points, weights, full, strict=True) if one]
            found = [Cloud.of(Y, w) for Y, w in pairs]
            self._dimension = found[0].points.shape[1] if reset and found else getattr(self, "_dimension", 0)
            return found, full
        refuse_clouds(self, X)
        batches = _base.batches(self, X, reset)
        if reset:
            self.cost_ = _base.cost_of(self, batches.data)
        kept, full = [], np.zeros(len(batches), bool)
        at = 0
        for batch, size in zip(batches, batches.sizes, strict=True):
            rows, measures = _sets.with_mass(batch)
            full[at + rows] = True
            kept.append(measures[:])
            at += size
        self._sizes = [len(one) for one in kept]  # of shards
        return np.concatenate(kept), full

    def _shards(self, X: Any) -> Shards[KMeansShard]:
        """Return the measures in shards, in this process or on the workers of the client."""
        given, self._known_full = self._sources(X, None, reset=True)
        shards: Shards[KMeansShard] = read_shards(self.client, KMeansShard, given)
        if self._known_full is None:
            try:
                _base.check_shards(self, shards.metadata, reset=True)
                self.cost_ = _base.cost_of(self, X)
            except BaseException:
                shards.close()
                raise
        return shards

    def _sources(self, X: Any, count: int | None, reset: bool) -> tuple[list[Any], NDArray[np.bool_] | None]:
        """Return the data of each shard, and which measures have mass; None where workers are to read them."""
        given = None if self._several or self.support == "free" else sources.split(X)
        if given is not None and self.client is not None:
            return given, None
        data, full = self._data(X, reset)
        parts = data if self._several else [data]
        n = len(parts[0])
        if given is not None:
            ends = np.cumsum([0, *self._sizes]).tolist()
        else:
            if count is None:
                count = 1 if self.client is None else max(1, min(n, sum(self.client.nthreads().values())))
            ends = [n * k // count for k in range(count + 1)]
        return [PartsData([part[a:b] for part in parts]) for a, b in pairwise(ends)], full

    def _full(self, shards: Shards[KMeansShard]) -> NDArray[np.bool_]:
        """Return which of all measures have mass."""
        known = self.__dict__.pop("_known_full")
        return np.concatenate(shards.collect(KMeansShard.has_mass)) if known is None else known

    def _local(self, data: Any) -> Shards[KMeansShard]:
        """Return validated data as a shard in this process."""
        return LocalShards([KMeansShard(data if self._several else [data])])

    def _centroids(self, shards: Shards[KMeansShard], count: int, new: bool = True) -> Centroids:
        """Return `count` centroids of the measures of shards, which are set up for them if they are new."""
        every: list[Any] = []
        for a, part in enumerate(self._parts if self._several else [self]):
            if self.support == "fixed":
                every.append(RowCentroids(shards, a, count, part.cost_, self.n_jobs))
            else:
                every.append(CloudCentroids(shards, a, count, self.n_support, self.tol, self.n_jobs))
        if new:
            firsts: Any = Split.of(shards.starts()[:-1])
            shards.reduce(KMeansShard.set_up, firsts, count, [one.maker() for one in every])
        return PartsCentroids(every, self._factors()) if self._several else every[0]

    def _against(self, X: Any) -> tuple[Assignment, NDArray[np.bool_]]:
        """Return an assignment of measures to the centroids of the fit, and which measures have mass."""
        check_is_fitted(self)
        data, full = self._data(X, reset=False)
        if not full.any():
            return Assignment.__new__(Assignment), full
        centroids = self._centroids(self._local(data), len(self.counts_))
        run = _Run(self, centroids, np.ones(len(centroids)), None, 0.0)
        run.begin(self._unpublished(self.cluster_centers_))
        return run.assignment, full

    def _unpublished(self, centres: Any) -> list[Any]:
        """Return published centroids as `Centroids` have them."""
        if self._several:
            parts = zip(self._parts, centres, strict=True)
            return [list(one) for one in zip(*(part._unpublished(x) for part, x in parts), strict=True)]
        return [Cloud(*one) if self.support == "free" else one for one in centres]

    def _joined(self, centres: list[Any], data: Any) -> Any:
        """Return centroids and measures as the data of one problem."""
        if self._several:
            parts = zip(self._parts, zip(*centres, strict=True), data, strict=True)
            return [part._joined(list(some), one) for part, some, one in parts]
        return [*centres, *data] if self.support == "free" else np.concatenate([np.stack(centres), data])

    def _published(self, every: list[Any]) -> Any:
        """Return centroids in their public form."""
        if self._several:
            parts = zip(self._parts, zip(*every, strict=True), strict=True)
            return [part._published(list(one)) for part, one in parts]
        return [(c.points, c.weights) for c in every] if self.support == "free" else np.stack(every)

    def _given(self, init: Any) -> list[Any]:
        """Return checked centroids to start from."""
        count = self.n_clusters
        if self._several:
            if not isinstance(init, list | tuple) or len(init) != len(self._parts):
                raise ValueError(f"init: expected a list of {len(self._parts)} sets of centroids, one for each cost")
            parts = zip(self._parts, init, strict=True)
            return [list(one) for one in zip(*(part._given(x) for part, x in parts), strict=True)]
        if self.support == "fixed":
            rows = validation.measures(init, "init", self.n_features_in_)[0]
            if len(rows) != count:
                raise ValueError(f"init: has {len(rows)} rows; expected n_clusters={count}")
            return list(rows)
        found = _sets.clouds(init, "init", "sqeuclidean")
        d, most = found.points[0].shape[1], max(map(len, found.points))
        if len(found) != count or d != self._dimension:
            raise ValueError(
                f"init: has {len(found)} clouds in R^{d}; expected n_clusters={count} in R^{self._dimension}"
            )
        if self.n_support is not None and most > self.n_support:
            raise ValueError(f"init: has a cloud of {most} points; expected at most n_support={self.n_support}")
        return [Cloud.of(Y, w).normalised() for Y, w in zip(found.points, found.weights, strict=True)]

    def _publish(self, run: _Run, full: NDArray[np.bool_]) -> None:
        self.labels_ = np.full(len(full), -1, np.intp)
        self.labels_[full] = run.assignment.labels
        self.cluster_centers_ = self._published([run.centroids.get(k) for k in range(self.n_clusters)])
        self.counts_ = np.asarray(np.bincount(run.assignment.labels, run.weights, self.n_clusters), np.float64)
        self.inertia_, self.inertia_bounds_ = run.inertia, run.bounds()
        self.centroid_gaps_, self.n_relocated_ = run.gaps.copy(), run.relocated
        self.history_, self.n_iter_ = list(run.history), len(run.history)

    @property
    def _n_features_out(self) -> int:
        return len(self.counts_)


class Fit:
    """A fit: one start after the other, of which the best is published.

    Parameters
    ----------
    model : WassersteinKMeans
        The model.
    shards : Shards of KMeansShard
        The measures with mass.
    weights : array of shape (n,)
        Their weights.
    full : array of bool
        Which of the rows of the data these are.
    random : RandomState
        The random numbers.
    started : float
        ``time.perf_counter()`` at the start.
    """

    def __init__(
        self, model: WassersteinKMeans, shards: Shards[KMeansShard], weights: Array, full: NDArray[np.bool_],
        random: Any, started: float,
    ) -> None:  # fmt: skip
        self.model, self.shards, self.weights, self.full = model, shards, weights, full
        self.random, self.started = random, started
        self.starts = model.n_init if isinstance(model.init, str) else 1
        self.number, self.done = 0, 0  # starts that are over, and their assignments
        self.best, self.solved = np.inf, SolvedProblems()  # what they have reached, and solved
        self.outcome = ""  # the warning of the best of these
        self.files = files.Written()
        self.run: _Run

    def begin(self) -> None:
        """Begin the next start."""
        centroids = self.model._centroids(self.shards, self.model.n_clusters)
        self.run = _Run(self.model, centroids, self.weights, self.random, self.started)

    def iterations(self) -> Iterator[str]:
        """Run all starts; yield a note after every assignment."""
        while True:
            for note in self.run.iterations():
                if self.run.inertia < self.best:
                    self._publish()
                yield f"start {self.number}: {note}"
            if self.run.inertia <= self.best:
                self.best, self.outcome = self.run.inertia, self.run.warning()
                self._publish()
            if self.run.stopped or self.number + 1 >= self.starts:
                return
            self.solved, self.number = self.solved + self.run.solved, self.number + 1
            self.done += len(self.run.history)
            self.begin()

    @property
    def assignments(self) -> int:
        """The number of assignments so far."""
        return self.done + len(self.run.history)

    def _publish(self) -> None:
        self.model._publish(self.run, self.full)
        self.model.solved_ = self.solved + self.run.solved

    def warn(self) -> None:
        """Warn if the best start has not ended as it should."""
        if self.outcome:
            warn(self.outcome, ConvergenceWarning)

    def arrays(self) -> dict[str, Any]:
        """Return the state without that of the shards, for a file."""
        random = self.random.get_state(legacy=False)
        state: dict[str, Any] = {
            "weights": self.weights, "number": self.number, "done": self.done, "best": self.best,
            "outcome": self.outcome, "solved": np.array(list(vars(self.solved).values())),
            "random_key": random["state"]["key"],
            "random_numbers": np.array([random["state"]["pos"], random["has_gauss"], random["gauss"]]),
            "cuts": np.array(sorted(_cuts_of(self.run.centroids)), np.int64).reshape(-1, 3),
        }  # fmt: skip
        return state | {f"run_{name}": x for name, x in self.run.arrays().items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `arrays` returned; the shards have their part."""
        position, has_gauss, gauss = state["random_numbers"].tolist()
        self.random.set_state(("MT19937", state["random_key"], int(position), int(has_gauss), gauss))
        self.number, self.done = int(state["number"]), int(state["done"])
        self.best, self.outcome = float(state["best"]), str(state["outcome"])
        self.solved = SolvedProblems(*state["solved"].tolist())
        count = state["run_value"].shape[1]
        if self.model.n_clusters != count:
            raise ValueError(f"n_clusters: is {self.model.n_clusters}; expected {count} as in the fit")
        centroids = self.model._centroids(self.shards, count, new=False)
        self.run = _Run(self.model, centroids, self.weights, self.random, self.started)
        self.run.restore(npz.with_prefix(state, "run_"), self.model._unpublished(state["centres"]))
        for part, k, count in state["cuts"].tolist():
            _parts_of(centroids)[part].cuts[k] = count


def _parts_of(centroids: Centroids) -> list[Any]:
    return centroids.parts if isinstance(centroids, PartsCentroids) else [centroids]


def _cuts_of(centroids: Centroids) -> list[tuple[int, int, int]]:
    """Return the parts, the numbers and the cuts of centroids of which the shards keep cuts."""
    every = enumerate(_parts_of(centroids))
    return [(a, k, count) for a, part in every for k, count in getattr(part, "cuts", {}).items()]


class _Run:
    """The iterations from one start."""

    def __init__(
        self, model: WassersteinKMeans, centroids: Centroids, weights: Array, random: Any, started: float
    ) -> None:
        self.model, self.centroids, self.weights = model, centroids, weights
        self.random, self.started, self.count = random, started, centroids.count
        self.assignment = Assignment(centroids, self.count)
        self.gaps, self.relocated, self.stopped = np.full(self.count, np.inf), 0, False
        self.history: list[Iteration] = []
        self.solved, self.ended, self.spent = SolvedProblems(), "", 0.0
        self.last, self.dirty = (
            False,
            set(range(self.count)),
        )  # whether updates are the last ones, and of which centroids

    @property
    def inertia(self) -> float:
        """The weighted sum of the exact costs to the nearest centroids."""
        return float(self.weights @ np.nanmin(self.assignment.value, axis=1))

    def bounds(self) -> tuple[float, float]:
        """Return certified bounds of the inertia, rounded outwards."""
        own = np.arange(len(self.weights)), self.assignment.labels
        below, above = (enclose(self.weights, x[own]) for x in (self.assignment.below, self.assignment.above))
        return below.lower, above.upper

    def stop(self) -> None:
        """End after this iteration."""
        self.stopped, self.ended = True, self.ended or "stopped"

    def arrays(self) -> dict[str, Any]:
        """Return the state without that of the shards, for a file."""
        a = self.assignment
        state: dict[str, Any] = {name: getattr(a, name) for name in ("value", "below", "above", "labels")}
        state |= {"gaps": self.gaps, "relocated": self.relocated, "ended": self.ended, "last": self.last}
        state |= {"dirty": np.array(sorted(self.dirty), np.int64), "history": files.of_history(self.history)}
        return state | {"solved": np.array(list(vars(self.solved).values()))}

    def restore(self, state: dict[str, Any], centres: list[Any]) -> None:
        """Take over what `arrays` returned, and centroids."""
        for k, one in enumerate(centres):
            self.centroids.put(k, one)
        a = self.assignment
        a.value, a.below, a.above, a.labels = (state[name] for name in ("value", "below", "above", "labels"))
        self.gaps, self.relocated, self.last = state["gaps"], int(state["relocated"]), bool(state["last"])
        self.dirty, self.history = set(state["dirty"].tolist()), files.history_of(state["history"])
        self.solved = SolvedProblems(*state["solved"].tolist())
        ended = str(state["ended"])
        self.ended, self.spent = ended if ended == "converged" else "", self.history[-1].seconds

    def iterations(self) -> Iterator[str]:
        """Assign and update in turn until labels and centroids rest; yield a note after every assignment."""
        if not self.history:
            self._start()
            self.assignment.assign()
            yield self._record(len(self.weights))
        while not (self.stopped or self.ended in ("converged", "stopped")):
            if len(self.history) >= self.model.max_iter:
                self.ended = "max_iter"
                return
            self.dirty |= self._relocate()
            self._update(sorted(self.dirty))
            before = self.assignment.labels
            changed = self.assignment.assign()
            if len(changed):
                self.dirty = set(before[changed].tolist()) | set(self.assignment.labels[changed].tolist())
            elif self.last:
                self.ended = "converged"
            else:
                self.last, self.dirty = True, set(range(self.count))
            yield self._record(len(changed))

    def _update(self, ks: list[int]) -> None:
        """Move some of the centroids."""
        clusters, before = [], {k: self.centroids.get(k) for k in ks}
        for k in ks:
            members = np.flatnonzero(self.assignment.labels == k)
            used = members[self.weights[members] > 0]
            if len(used):
                weights = self.weights[used]
                value = float(weights @ self.assignment.value[used, k] / weights.sum())
                # of an empty cluster that begins again nothing is known
                clusters.append(Cluster(k, used, weights, np.inf if np.isnan(value) else value))
        if not clusters:
            return
        found = self.centroids.update(clusters, self.model.gap if self.last else _EARLY, self.last)
        for (k, used, _, _), one in zip(clusters, found, strict=True):
            self.gaps[k] = one.gap
            self.assignment.last.for_centroids += one.solved
            if one.costs is not None:
                self.assignment.moved(k, before[k])
                self.assignment.know(used, np.full(len(used), k), one.costs)

    def _relocate(self) -> set[int]:
        """Give each empty cluster the measure that is worst off; return the clusters that have changed."""
        a, changed = self.assignment, set[int]()
        sizes = np.bincount(a.labels[self.weights > 0], minlength=self.count)
        for k in np.flatnonzero(sizes == 0).tolist():
            worst = self.weights * np.nanmin(a.value, axis=1) * (sizes[a.labels] > 1)
            i = int(worst.argmax())
            if not worst[i] > 0:
                continue  # as many clusters as different measures
            old = int(a.labels[i])
            sizes[old], sizes[k] = sizes[old] - 1, 1
            before = self.centroids.get(k)
            self.centroids.set(k, self.centroids.like(i, self.random))
            a.moved(k, before)
            a.labels[i], self.relocated = k, self.relocated + 1
            self.gaps[k] = np.inf
            changed |= {old, k}
        return changed

    def _start(self) -> None:
        """Choose the first centroids."""
        if isinstance(self.model.init, str):
            self._plus_plus()
        else:
            self.begin(self.model._given(self.model.init))

    def begin(self, centres: list[Any]) -> None:
        """Take over centroids, of which nothing is known."""
        for k, one in enumerate(centres):
            self.centroids.set(k, one)
            self.assignment.moved(k, None, own=False)

    def _plus_plus(self) -> None:
        """Choose measures as centroids by k-means++; costs that a bound shows to be no better are not computed."""
        a, n = self.assignment, len(self.weights)
        nearest, share = np.full(n, np.inf), self.weights
        for k in range(self.count):
            total = np.cumsum(share)
            i = int(min(np.searchsorted(total, self.random.uniform() * total[-1], side="right"), n - 1))
            self.centroids.set(k, self.centroids.like(i, self.random))
            a.moved(k, None, own=False)
            rows = np.flatnonzero(a.below[:, k] < nearest)
            a.last.pairs += n
            a._solve(rows, np.full(len(rows), k))
            nearest[rows] = np.minimum(nearest[rows], np.maximum(a.value[rows, k], 0))
            share = self.weights * nearest
            if not share.any():
                share = self.weights

    def _record(self, changed: int) -> str:
        seconds = time.perf_counter() - self.started + self.spent
        self.solved = self.solved + self.assignment.last
        self.history.append(Iteration(self.inertia, changed, self.assignment.last, seconds))
        self.assignment.last = SolvedProblems()
        return f"inertia {self.inertia:.4g}, {changed} labels changed"

    def warning(self) -> str:
        """Return what is to be said of a fit that has not ended as it should."""
        used = len(np.unique(self.assignment.labels))
        if used < self.count:
            return (
                f"n_clusters: {used} clusters have measures, of {self.count}; expected at most as many as there are "
                "different measures"
            )
        if self.ended == "max_iter":
            n = len(self.history)
            return f"max_iter: labels or centroids still moved after {n} assignments; allow more of them"
        if self.model.support == "fixed" and self.ended == "converged" and (self.gaps > self.model.gap).any():
            worst, gap = float(self.gaps.max()), self.model.gap
            return f"gap: the centroids are within {worst:.2g} of the barycenters of their members, not within {gap:g}"
        return ""
