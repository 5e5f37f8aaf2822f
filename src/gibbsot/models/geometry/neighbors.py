"""Exact nearest neighbours in transport cost, by certified lower bounds first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ...core import native, validation
from ...costs import Cost
from ...costs.problems import Problem
from ...io import progress
from .. import _base
from .._costs import Metric
from . import sets as _sets
from .bounds import CloudBounds, FirstBounds, NearestPoints, Refinement, first_bounds

Array = NDArray[np.float64]

_BLOCK = 2_000_000  # pairs whose bounds are in memory at a time
_ROUND = 1000  # pairs that are solved together, from which on more of them save no time
_TOLERANCE = 1e-9  # relative: values that differ by less count as ties until both are known
_MODES = ("distance", "connectivity")


@dataclass
class SearchStatistics:
    """What the last query took.

    Attributes
    ----------
    pairs : int
        Pairs of a query and a measure of the fit.
    refined : int
        Pairs for which a better lower bound was computed.
    solved : int
        Pairs that were solved exactly.
    """

    pairs: int = 0
    refined: int = 0
    solved: int = 0

    def note(self) -> str:
        """Return how many pairs were solved, as text."""
        return f"{self.solved:,} of {self.pairs:,} pairs solved"


class WassersteinNeighbors(_base.MeasuresTransformer):
    r"""Exact nearest neighbours of measures in transport cost.

    Lower bounds of all pairs come first; only pairs whose bound does not exceed the distance of the neighbours found so
    far are solved. The result is the same as if all pairs were solved.

    On grids and points with (squared) Euclidean distances the bounds compare the quantile functions of orthogonal
    projections, in a few rotated frames; elsewhere each point moves to the nearest one of the other measure [1]_, and
    duals of problems between measures and means of others bound all pairs. On grids, potentials of a coarser problem
    bound the pairs that are left. If the cost is symmetric, the measures of the fit are compared once.

    Parameters
    ----------
    n_neighbors : int
        The number of neighbours.
    radius : float
        The largest transport cost of neighbours in `radius_neighbors`, its root with ``root=True``.
    cost : Cost, array of shape (m, m), str or callable, optional
        The cost between bins, as for `WassersteinNMF`. None is "line", with a warning.
    root : bool
        Distances are square roots of transport costs.
    mode : {"distance", "connectivity"}
        What `transform` returns: distances of neighbours, or ones.
    feature_vectors : array of shape (m, d), optional
        An embedding of each bin, from which a metric builds the cost.
    n_jobs : int, optional
        Threads over the pairs: None for one, -1 for all cores. Results do not depend on it.
    verbose : bool
        Show progress.

    Attributes
    ----------
    cost_ : Cost or str
        The cost between bins, or the metric between the points of clouds.
    n_samples_fit_ : int
        The number of measures of the fit.
    statistics_ : SearchStatistics
        How many pairs the last query had, and how many were solved.
    n_features_in_ : int
        The number m of bins, or d of coordinates.

    See Also
    --------
    distances : The matrix of all pairs.

    References
    ----------
    .. [1] M. J. Kusner, Y. Sun, N. I. Kolkin and K. Q. Weinberger, *From word embeddings to document distances*, ICML
       2015.

    Examples
    --------
    >>> import gibbsot
    >>> fives = gibbsot.datasets.mnist_fives()
    >>> model = gibbsot.WassersteinNeighbors(3, cost=gibbsot.GridCost((28, 28))).fit(fives)
    >>> model.kneighbors(fives[:1], return_distance=False)
    array([[  0, 182, 177]])
    >>> model.statistics_.pairs, model.statistics_.solved < 20
    (200, True)
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        radius: float = 1.0,
        cost: Cost | ArrayLike | str | Metric | None = None,
        root: bool = False,
        mode: str = "distance",
        feature_vectors: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.cost = cost
        self.root = root
        self.mode = mode
        self.feature_vectors = feature_vectors
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> WassersteinNeighbors:
        """Store measures and what their lower bounds need.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, list of matrices or files, or list of clouds
            Measures as rows, which are normalised. Rows without mass are neighbours of none. The measures are stored:
            those of shards, such as a list of files, are all in memory. With the name of a metric as the cost also
            clouds, as for `distances`: arrays of points of shape (m_k, d), or pairs (points, weights).
        y : None
            Ignored.

        Returns
        -------
        WassersteinNeighbors
        """
        validation.count(self.n_neighbors, "n_neighbors")
        validation.nonnegative(self.radius, "radius")
        validation.flag(self.root, "root")
        validation.choice(self.mode, "mode", _MODES)
        native.threads(self.n_jobs)
        if _sets.are_clouds(X, self.cost) and self.feature_vectors is None:
            return self._fit_clouds(_sets.clouds(X, "X", str(self.cost)))
        found = _base.batches(self, X, reset=True)
        cost = _base.cost_of(self, found.data)
        if self.root and cost.least() < 0:
            raise ValueError(f"root: the least cost is {cost.least():.3g}; expected costs >= 0 for square roots")
        self.cost_: Cost | str = cost
        self._first: FirstBounds = first_bounds(cost)
        self._refinement = Refinement(cost)
        self._refines = self._refinement.useful and not _sets.packs(cost)  # a packed solution is cheaper than a bound
        kept, numbers, features, self.n_samples_fit_ = [], [], [], 0
        with progress.bar("lower bounds", self.verbose) as advance:
            for batch, size, reported in found.reported(advance):
                full, rows = _sets.with_mass(batch)
                for block in rows.blocks():
                    features.append(self._first.features(block))
                    reported(len(block) / len(full))
                kept.append(rows.weights)
                numbers.append(self.n_samples_fit_ + full)
                self.n_samples_fit_ += size
        measures = _sets.joined(kept)
        if isinstance(self._first, NearestPoints):
            self._first.learn(measures, self.n_jobs)
        self._measures: _sets.Measures = measures
        self._symmetric = cost.symmetric()
        self._full, self._features = np.concatenate(numbers), np.concatenate(features)
        self.statistics_ = SearchStatistics()
        self._n_features_out = self.n_samples_fit_
        return self

    def _fit_clouds(self, clouds: _sets.Clouds) -> WassersteinNeighbors:
        """Store clouds, measures with points of their own."""
        self.cost_ = clouds.metric
        self._refines, self._symmetric, self.n_samples_fit_ = False, False, len(clouds)
        self.n_features_in_: int = clouds.points[0].shape[1]
        self._first = CloudBounds(clouds.metric, clouds.joined[0])
        self._measures, self._full, self._features = clouds, np.arange(len(clouds)), self._first.features(clouds)
        self.statistics_ = SearchStatistics()
        self._n_features_out = self.n_samples_fit_
        return self

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[Array, NDArray[np.intp]] | NDArray[np.intp]:
        """Return the nearest measures of the fit, the nearest first; of equally near ones the first.

        Parameters
        ----------
        X : array or sparse matrix of shape (k, m), Dask array, or list of matrices or files, optional
            The queries; by default the measures of the fit that have mass, none of which is its own neighbour. A query
            without mass is infinitely far from all.
        n_neighbors : int, optional
            The number of neighbours, by default that of the constructor.
        return_distance : bool
            Whether to return the distances, too.

        Returns
        -------
        distances : array of shape (k, n_neighbors)
            Transport costs, or their roots. Only with ``return_distance``.
        indices : array of int of shape (k, n_neighbors)
            Rows of the measures.
        """
        check_is_fitted(self)
        k = validation.count(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors")
        most = len(self._measures) - (X is None)
        if k > most:
            raise ValueError(f"n_neighbors: expected at most {most}, the number of measures to choose from; got {k}")
        queries = self._queries(X)
        # a query without mass is equally far from all
        values, indices = np.full((len(queries), k), np.inf), np.tile(np.arange(k), (len(queries), 1))
        for which, search in self._searches(queries, X is None):
            search.nearest(k)
            order = indices[which] = search.order(k)
            values[which] = np.take_along_axis(search.values, order, axis=1)
        return (self._distance(values), self._full[indices]) if return_distance else self._full[indices]

    def radius_neighbors(
        self, X: Any = None, radius: float | None = None, return_distance: bool = True, sort_results: bool = False
    ) -> Any:
        """Return the measures of the fit within a distance.

        Parameters
        ----------
        X : array or sparse matrix of shape (k, m), Dask array, or list of matrices or files, optional
            The queries; by default the measures of the fit, none of which is its own neighbour.
        radius : float, optional
            The largest distance, by default that of the constructor.
        return_distance : bool
            Whether to return the distances, too.
        sort_results : bool
            Sort by distance; by default by row.

        Returns
        -------
        distances : array of k arrays
            Transport costs, or their roots. Only with ``return_distance``.
        indices : array of k arrays of int
            Rows of the measures.
        """
        check_is_fitted(self)
        limit = validation.nonnegative(self.radius if radius is None else radius, "radius")
        limit = limit**2 if self.root else limit
        queries = self._queries(X)
        distances, indices = np.empty(len(queries), object), np.empty(len(queries), object)
        for b in range(len(queries)):
            distances[b], indices[b] = np.empty(0), np.empty(0, np.intp)
        for which, search in self._searches(queries, X is None):
            search.within(limit)
            for b, values in zip(which, search.values, strict=True):
                near = np.flatnonzero(values <= limit)
                if sort_results:
                    near = near[np.argsort(values[near], kind="stable")]
                distances[b], indices[b] = self._distance(values[near]), self._full[near]
        return (distances, indices) if return_distance else indices

    def kneighbors_graph(self, X: Any = None, n_neighbors: int | None = None, mode: str = "connectivity") -> Any:
        """Return the graph of the nearest neighbours.

        Parameters
        ----------
        X : array or sparse matrix of shape (k, m), Dask array, or list of matrices or files, optional
            As for `kneighbors`.
        n_neighbors : int, optional
            As for `kneighbors`.
        mode : {"connectivity", "distance"}
            Whether entries are ones or distances.

        Returns
        -------
        scipy.sparse.csr_matrix of shape (k, n)
        """
        validation.choice(mode, "mode", _MODES)
        values, indices = self.kneighbors(X, n_neighbors)
        n, k = indices.shape
        data = values.ravel() if mode == "distance" else np.ones(n * k)
        pointers = np.arange(0, n * k + 1, k)
        return sparse.csr_matrix((data, indices.ravel(), pointers), shape=(n, self.n_samples_fit_))

    def transform(self, X: Any) -> Any:
        """Return the graph of the nearest neighbours, for estimators with ``metric="precomputed"``.

        As of `sklearn.neighbors.KNeighborsTransformer`, with ``mode="distance"`` each query has one neighbour more than
        ``n_neighbors``: a measure of the fit is its own first.

        Parameters
        ----------
        X : array or sparse matrix of shape (k, m), Dask array, or list of matrices or files
            The queries.

        Returns
        -------
        scipy.sparse.csr_matrix of shape (k, n)
        """
        check_is_fitted(self)
        return self.kneighbors_graph(X, self.n_neighbors + (self.mode == "distance"), self.mode)

    def _distance(self, values: Array) -> Array:
        return np.sqrt(values) if self.root else values

    def _queries(self, X: Any) -> _sets.Batches:
        """Return the queries, by default the measures of the fit."""
        if isinstance(self._measures, _sets.Clouds):
            clouds = self._measures if X is None else self._cloud_queries(X)
            return _sets.Batches([clouds], [len(clouds)])
        if X is None:
            return _sets.Batches([self._measures.weights], [len(self._measures)])
        return _base.batches(self, X)

    def _cloud_queries(self, X: Any) -> _sets.Clouds:
        """Return clouds as queries, with as many coordinates as those of the fit."""
        if not _sets.are_clouds(X, self.cost):
            raise ValueError("X: expected clouds as in the fit: arrays of points, or pairs of points and weights")
        clouds = _sets.clouds(X, "X", str(self.cost))
        if (d := clouds.points[0].shape[1]) != self.n_features_in_:
            raise ValueError(f"X: has points with {d} coordinates; expected {self.n_features_in_} as in the fit")
        return clouds

    def _searches(self, queries: _sets.Batches, own: bool) -> Iterator[tuple[NDArray[np.intp], _Search]]:
        """Yield the numbers of some queries and the search for their neighbours, which the caller runs."""
        self.statistics_.pairs = self.statistics_.refined = self.statistics_.solved = 0
        step, first = max(1, _BLOCK // max(len(self._measures), self.n_features_in_)), 0
        with progress.bar("neighbours", self.verbose) as advance:
            for batch, size, reported in queries.reported(advance):
                rows: _sets.Measures
                if isinstance(batch, _sets.Clouds):
                    full, rows = np.arange(len(batch)), batch
                else:
                    full, rows = _sets.with_mass(batch)
                for start in range(0, len(full), step):
                    which = np.arange(start, min(start + step, len(full)))
                    search = _Search(self, rows, which, own, progress.part(reported, len(which) / len(full)))
                    yield first + full[which], search
                    search.end()
                first += size


class _Search:
    """The search for the neighbours of some queries.

    Attributes
    ----------
    values : array of shape (queries, n)
        Transport costs of the pairs that were solved, infinite elsewhere.
    """

    def __init__(
        self,
        model: WassersteinNeighbors,
        queries: _sets.Measures,
        which: NDArray[np.intp],
        own: bool,
        advance: progress.Advance,
    ) -> None:
        self._model, self._queries, self._which, self._advance = model, queries, which, advance
        features = model._features[which] if own else model._first.features(queries[which])
        self._lower = model._first(features, model._features)
        self._both = own and model._symmetric
        if own:
            self._lower[np.arange(len(which)), which] = np.inf
        self.values = np.full(self._lower.shape, np.inf)
        self._refined = np.full(self._lower.shape, not model._refines)
        self._open = np.isfinite(self._lower)
        self._pairs, self._decided = int(self._open.sum()), 0
        model.statistics_.pairs += self._pairs

    def nearest(self, k: int) -> None:
        """Solve pairs until no other one can be among the k nearest of a query."""
        count = k
        while True:
            limit = np.partition(self.values, k - 1, axis=1)[:, k - 1 : k]
            self._close(limit)
            chosen = self._next(count)
            if not chosen.any():
                return
            if count > k:  # the first ones are solved in any case
                self._refine(chosen, limit)
            self._solve(chosen & self._open)
            if np.count_nonzero(chosen) < _ROUND:  # otherwise the limits that a short round finds save more
                count *= 2

    def within(self, limit: float) -> None:
        """Solve all pairs that may be within a limit."""
        most = np.full((len(self.values), 1), limit)
        self._close(most)
        self._refine(self._open.copy(), most)
        self._solve(self._open.copy())

    def end(self) -> None:
        """Report that all pairs are decided."""
        self._open[:] = False
        self._report()

    def _report(self) -> None:
        """Report the share of the pairs that are solved or left out."""
        decided = self._pairs - int(self._open.sum())
        self._advance((decided - self._decided) / max(1, self._pairs), self._model.statistics_.note())
        self._decided = decided

    def order(self, k: int) -> NDArray[np.intp]:
        """Return the k least values of each query, the first of equal ones first."""
        return np.argsort(self.values, axis=1, kind="stable")[:, :k]

    def _close(self, limit: Array) -> None:
        """Leave out the pairs whose lower bound is above a limit."""
        self._open &= self._lower <= limit + _TOLERANCE * np.abs(limit)
        self._report()

    def _next(self, count: int) -> NDArray[np.bool_]:
        """Return the open pairs with the least bounds, at most a given number for each query."""
        lower = np.where(self._open, self._lower, np.inf)
        chosen = np.zeros_like(self._open)
        best = np.argpartition(lower, min(count, lower.shape[1]) - 1, axis=1)[:, :count]
        np.put_along_axis(chosen, best, True, axis=1)
        return chosen & self._open

    def _refine(self, chosen: NDArray[np.bool_], limit: Array) -> None:
        """Compute better bounds of pairs that have none yet, and leave out those above a limit."""
        model = self._model
        i, j = np.nonzero(chosen & ~self._refined)
        if len(i) == 0:
            self._close(limit)
            return
        assert isinstance(self._queries, _sets.Rows)
        assert isinstance(model._measures, _sets.Rows)
        assert isinstance(model.cost_, Cost)
        for which in _sets.chunks(self._queries, model._measures, len(i), model.n_jobs):
            a, b = i[which], j[which]
            problem = Problem.checked(self._queries[self._which[a]], model._measures[b], model.cost_, np.ones(len(a)))
            better = model._refinement(problem, model.n_jobs)
            self._lower[a, b] = np.maximum(self._lower[a, b], better)
        self._refined[i, j] = True
        model.statistics_.refined += len(i)
        self._close(limit)

    def _solve(self, chosen: NDArray[np.bool_]) -> None:
        """Solve pairs exactly."""
        model = self._model
        i, j = np.nonzero(chosen)
        i, j = self._once(i, j) if self._both else (i, j)
        pairs, cost = (self._which[i], j), model.cost_ if isinstance(model.cost_, Cost) else None
        ends = self._queries, model._measures
        for which, found in _sets.solutions(*ends, pairs, cost, n_jobs=model.n_jobs, plans=False):
            self._know(i[which], j[which], _sets.values(found))
            model.statistics_.solved += len(found)
            self._report()
        if len(i) and (cost is None or cost.least() >= 0):
            self.values[self.values < 0] = 0

    def _once(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return pairs of measures of the fit without those that are there in the other order."""
        first, end = self._which[0], self._which[-1] + 1
        swapped = (j >= first) & (j < end) & (i + first > j)
        rows, columns = np.where(swapped, j - first, i), np.where(swapped, i + first, j)
        chosen = np.zeros(self.values.shape, bool)
        chosen[rows, columns] = True
        found = np.nonzero(chosen)
        return found[0], found[1]

    def _know(self, i: NDArray[np.intp], j: NDArray[np.intp], values: Array) -> None:
        """Keep the transport costs of pairs, and those in the other order where they are the same."""
        self.values[i, j], self._open[i, j] = values, False
        if self._both:
            first, end = self._which[0], self._which[-1] + 1
            inside = (j >= first) & (j < end)
            i, j = j[inside] - first, i[inside] + first
            self.values[i, j], self._open[i, j] = values[inside], False
