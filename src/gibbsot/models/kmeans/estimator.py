"""k-means with transport costs: clusters of measures, whose centroids are barycenters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple

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
from ...exact.certificate import enclose
from ...io import progress
from .. import _base
from .._costs import Metric, feature_cost
from ..barycenter.free import Cloud, clouds_of
from ..geometry import sets as _sets
from .assignment import Assignment, SolvedProblems
from .centroids import Centroids, CloudCentroids, PartsCentroids, RowCentroids, Update

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_EARLY = 0.05  # relative gap of centroids that will move again


class Iteration(NamedTuple):
    """One entry of the history of `WassersteinKMeans`.

    Attributes
    ----------
    inertia : float
        The weighted sum of the exact costs of the measures to their centroids.
    changed : int
        How many labels have changed.
    solved : SolvedProblems
        How many problems were solved.
    seconds : float
        The time since the start of the fit.
    """

    inertia: float
    changed: int
    solved: SolvedProblems
    seconds: float


class WassersteinKMeans(ClusterMixin, _base.MeasuresTransformer):  # type: ignore[misc]
    r"""k-means of measures with transport costs, also known as D2-clustering.

    .. math:: \min_{c, l} \sum_i s_i W(c_{l_i}, x_i)

    over centroids c and labels l. Measures are assigned exactly, by certified lower bounds first: projections or
    nearest points, potentials of pairs that were solved before, which stay feasible when a centroid moves, and the
    triangle inequality where a root of the transport cost is a distance. Centroids that will move again are updated by
    a few steps, and at the end to a certified gap. The labels are those of solving all pairs.

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
    init : "k-means++", or centroids
        Where to start. k-means++ chooses measures with probabilities in proportion to the transport costs to those
        chosen before. Centroids are rows of weights, or with free support clouds.
    n_init : int
        The number of starts by k-means++, of which the result of least inertia is kept.
    max_iter : int
        The largest number of assignments in one start.
    gap : float
        The certified relative gap of the centroids at the end, each to the barycenter of its members.
    tol : float
        Free support: the relative gain at which updates of a centroid end.
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
        By what share a centroid's objective is above that of the barycenter of its members at most, certified, where
        objectives below 1e-12 of the largest cost count as that; with free support, whose barycenters have no such
        bound, the stationarity (see `WassersteinBarycenter`).
    counts_ : array of shape (n_clusters,)
        The weight of the measures of each cluster; of a stream, of all that it has had.
    n_iter_ : int
        The number of assignments of the best start.
    n_relocated_ : int
        How often a cluster was empty, and began again with the measure that was worst off.
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

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> WassersteinKMeans:
        """Find clusters of measures.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of matrices or files
            Measures as rows, which are normalised and all in memory. With free support and ``cost`` None or
            "sqeuclidean" also clouds: arrays of points of shape (m_k, d), or pairs (points, weights). With several
            parts a list of data sets, each with the parts of all objects in the same order.
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
        data, full = self._data(X, reset=True)
        weights = np.ones(len(full)) if sample_weight is None else validation.sample_weight(sample_weight, len(full))
        weights = weights[full]
        if not weights.any():
            raise ValueError("sample_weight: is zero for every measure with mass; expected a positive one")
        if len(weights) < self.n_clusters:
            raise ValueError(f"n_clusters: is {self.n_clusters}; expected at most n_samples={len(weights)} with mass")
        random, best = check_random_state(self.random_state), np.inf
        self.solved_ = SolvedProblems()
        starts = self.n_init if isinstance(self.init, str) else 1
        with threadpool_limits(1, "blas"), progress.bar("Wasserstein k-means", self.verbose) as advance:
            for start in range(starts):
                run = _Run(self, self._centroids(data), weights, random, started)
                for note in run.iterations():
                    advance(1 / (starts * self.max_iter), f"start {start}: {note}")
                    if run.inertia < best or not hasattr(self, "labels_"):
                        self._publish(run, full)
                    if True in [callback(self) for callback in self.callbacks]:
                        run.stop()
                self.solved_ = self.solved_ + run.solved
                if run.inertia <= best:
                    best = run.inertia
                    self._publish(run, full)
                    chosen = run
                if run.stopped:
                    break
        chosen.warn()
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> WassersteinKMeans:
        """Update the centroids by a batch of a stream; the first batch is fitted as a whole.

        Measures are assigned to the nearest centroids. Each centroid then moves to the barycenter of its new members
        and of itself, with the weight ``counts_`` of all measures that it has had, to the certified gap. So the
        influence of a batch falls as in `sklearn.cluster.MiniBatchKMeans`. For squared metrics this is a step along a
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
        old, count = self._unpublished(self.cluster_centers_), self.n_clusters
        run = _Run(self, self._centroids(self._joined(old, data)), np.append(np.zeros(count), weights[full]), None, 0.0)
        run.begin(old)
        run.assignment.assign()
        labels, (below, above) = run.assignment.labels, run.bounds()
        self.labels_[full], self.inertia_, self.inertia_bounds_ = labels[count:], run.inertia, (below, above)
        with threadpool_limits(1, "blas"):
            for k in range(count):
                own = np.flatnonzero((labels == k) & (run.weights > 0))
                if not len(own):
                    continue
                total = float(run.weights[own].sum())
                before = np.array([k] if self.counts_[k] > 0 else [], np.intp)
                share = np.append(self.counts_[before], run.weights[own])
                found = run.centroids.update(k, np.append(before, own), share, np.inf, self.gap, True)
                self.centroid_gaps_[k] = found.gap
                self.counts_[k] += total
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
        found = np.full((len(full), self.n_clusters), np.inf)
        rows, count = np.flatnonzero(full), self.n_clusters
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
        if validation.choice(self.support, "support", ("fixed", "free")) == "fixed":
            if self.n_support is not None:
                raise ValueError("n_support: does not apply to support='fixed'; expected None")
        elif self.n_support is not None:
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
        tuples = isinstance(X, list) and any(isinstance(one, tuple) for one in X)
        if self.feature_vectors is None and tuples and _sets.are_clouds(X, "sqeuclidean"):
            raise ValueError("X: looks like clouds; expected support='free' for these, or measures as rows")
        batches = _base.batches(self, X, reset)
        if reset:
            self.cost_ = feature_cost(self.cost, self.n_features_in_, self.feature_vectors, batches.data)
        kept, full = [], np.zeros(len(batches), bool)
        at = 0
        for batch, size in zip(batches, batches.sizes, strict=True):
            rows, measures = _sets.with_mass(batch)
            full[at + rows] = True
            kept.append(measures[:])
            at += size
        return np.concatenate(kept), full

    def _centroids(self, data: Any) -> Centroids:
        if self._several:
            every = [part._centroids(one) for part, one in zip(self._parts, data, strict=True)]
            return PartsCentroids(every, self._factors())
        if self.support == "fixed":
            return RowCentroids(data, self.cost_, self.n_clusters, self.n_jobs)
        mean = round(sum(len(c.weights) for c in data) / len(data))
        return CloudCentroids(data, self.n_support or mean, self.n_clusters, self.tol, self.n_jobs)

    def _against(self, X: Any) -> tuple[Assignment, NDArray[np.bool_]]:
        """Return an assignment of measures to the centroids of the fit, and which measures have mass."""
        check_is_fitted(self)
        data, full = self._data(X, reset=False)
        if not full.any():
            return Assignment.__new__(Assignment), full
        centroids = self._centroids(data)
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
        if len(found) != count or found.points[0].shape[1] != self._dimension:
            raise ValueError(f"init: expected {count} clouds in R^{self._dimension}, got {len(found)}")
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
        return self.n_clusters


class _Run:
    """The iterations from one start."""

    def __init__(
        self, model: WassersteinKMeans, centroids: Centroids, weights: Array, random: Any, started: float
    ) -> None:
        self.model, self.centroids, self.weights = model, centroids, weights
        self.random, self.started, self.count = random, started, model.n_clusters
        self.assignment = Assignment(centroids, self.count)
        self.gaps, self.relocated, self.stopped = np.full(self.count, np.inf), 0, False
        self.history: list[Iteration] = []
        self.solved, self.ended = SolvedProblems(), ""

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
        self.stopped, self.ended = True, "stopped"

    def iterations(self) -> Iterator[str]:
        """Assign and update in turn until labels and centroids rest; yield a note after every assignment."""
        self._start()
        changed = np.arange(len(self.weights))
        self.assignment.assign()
        yield self._record(len(changed))
        last, dirty = False, set(range(self.count))
        while not self.stopped:
            if len(self.history) >= self.model.max_iter:
                self.ended = "max_iter"
                return
            dirty |= self._relocate()
            for k in sorted(dirty):
                self._update(k, last)
            before = self.assignment.labels
            changed = self.assignment.assign()
            yield self._record(len(changed))
            if len(changed):
                dirty = set(before[changed].tolist()) | set(self.assignment.labels[changed].tolist())
            elif last:
                self.ended = "converged"
                return
            else:
                last, dirty = True, set(range(self.count))

    def _update(self, k: int, last: bool) -> None:
        members = np.flatnonzero(self.assignment.labels == k)
        used = members[self.weights[members] > 0]
        if not len(used):
            return
        before, weights = self.centroids.get(k), self.weights[used]
        value = float(weights @ self.assignment.value[used, k] / weights.sum())
        value = np.inf if np.isnan(value) else value  # of an empty cluster that begins again
        found: Update = self.centroids.update(k, used, weights, value, self.model.gap if last else _EARLY, last)
        self.gaps[k] = found.gap
        self.assignment.last.for_centroids += found.solved
        if found.costs is None:
            return
        self.assignment.moved(k, before)
        self.assignment.know(used, np.full(len(used), k), found.costs)

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
        seconds, self.solved = time.perf_counter() - self.started, self.solved + self.assignment.last
        self.history.append(Iteration(self.inertia, changed, self.assignment.last, seconds))
        self.assignment.last = SolvedProblems()
        return f"inertia {self.inertia:.4g}, {changed} labels changed"

    def warn(self) -> None:
        """Warn of a fit that has not ended as it should."""
        used = len(np.unique(self.assignment.labels))
        if used < self.count:
            warn(
                f"n_clusters: {used} clusters have measures, of {self.count}; expected at most as many as there are "
                "different measures",
                ConvergenceWarning,
            )
        elif self.ended == "max_iter":
            warn(
                f"max_iter: labels or centroids still moved after {len(self.history)} assignments; allow more of them",
                ConvergenceWarning,
            )
        elif self.model.support == "fixed" and self.ended == "converged" and (self.gaps > self.model.gap).any():
            worst = float(self.gaps.max())
            warn(
                f"gap: the centroids are within {worst:.2g} of the barycenters of their members, not within "
                f"{self.model.gap:g}",
                ConvergenceWarning,
            )
