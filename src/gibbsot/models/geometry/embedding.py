"""Linear optimal transport: measures as displacement fields from a reference."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ...core import native, validation
from ...costs import Cost
from ...distributed import sources
from ...io import progress
from ...solvers.displacement import Cloud, rasterize
from .. import _base
from .._costs import Metric
from . import maps as _maps
from . import sets as _sets

Array = NDArray[np.float64]

_REFERENCES = ("mean", "barycenter")


class WassersteinEmbedding(_base.MeasuresTransformer):
    r"""Linear optimal transport: maps each measure to the displacement field of its optimal plan from a reference.

    .. math:: \phi(\mu)_i = \sqrt{r_i} \, \big(T_\mu(x_i) - x_i\big), \qquad
              T_\mu(x_i) = \frac{1}{r_i} \sum_j Z_{ij} y_j

    with the optimal plan Z from the reference, of weights ``r_i`` at points ``x_i``, to the measure [1]_. Euclidean
    distances of embedded measures are distances of fields in ``L2(r)``, which approximate the Wasserstein distance of
    order two; that to the reference itself, at zero, is at most the Wasserstein distance. So Euclidean methods apply.
    The cost is a squared Euclidean distance, on a grid or between points.

    Parameters
    ----------
    cost : Cost or str, optional
        A `GridCost` with power 2, a `PointCost` with the metric "sqeuclidean", "line", or "sqeuclidean" between the
        rows of ``feature_vectors``. Without ``feature_vectors``, "sqeuclidean" is for clouds, measures with points of
        their own. None is "line", with a warning.
    reference : {"mean", "barycenter"}, array of shape (m,), or pair of points and weights
        The reference: the mean of the measures, their `WassersteinBarycenter`, or given weights. For clouds a cloud.
    maps : {"exact", "debiased"}
        "exact": barycentric projections of optimal plans. "debiased": entropic maps, minus that of the reference to
        itself [2]_. On a grid the vertex of an exact plan is noisy below a pixel, and debiased maps are smoother; off
        the grid exact maps are best. Debiased maps are estimates. Their matrices are stored up to 2 GB, 15,000 points
        on either side. Of more points they are computed again in each iteration, which takes much longer.
    epsilon : float, optional
        The entropic regularisation of debiased maps, in units of the cost; by default twice the mean squared distance
        of neighbouring points of the reference.
    feature_vectors : array of shape (m, d), optional
        The points, for ``cost="sqeuclidean"``.
    dtype : {"float64", "float32"}
        The precision of the output.
    n_jobs : int, optional
        Threads over the measures: None for one, -1 for all cores. Results do not depend on it.
    verbose : bool
        Show progress.

    Attributes
    ----------
    reference_ : Cloud
        The points of the reference that have weight, of shape (k, d), and their weights, which sum to one.
    cost_ : Cost or None
        The cost; None for clouds.
    n_features_in_ : int
        The number m of bins; not for clouds.

    See Also
    --------
    WassersteinPCA : Principal components of the embedding.
    distances : Exact transport costs of all pairs.

    References
    ----------
    .. [1] W. Wang, D. Slepcev, S. Basu, J. A. Ozolek and G. K. Rohde, *A linear optimal transportation framework for
       quantifying and visualizing variations in sets of images*, IJCV 101, 2013.
    .. [2] A.-A. Pooladian and J. Niles-Weed, *Entropic estimation of optimal transport maps*, 2021.

    Examples
    --------
    >>> import gibbsot
    >>> X = [[4, 1, 0, 0], [0, 4, 1, 0], [0, 0, 4, 1]]  # a shape that moves
    >>> model = gibbsot.WassersteinEmbedding(gibbsot.GridCost(4, spacing=1.0), reference=[4, 1, 0, 0])
    >>> Z = model.fit_transform(X)
    >>> model.fields(Z)[:, :, 0].round(6)
    array([[0., 0.],
           [1., 1.],
           [2., 2.]])
    >>> model.inverse_transform(Z[1:2])
    array([[0. , 0.8, 0.2, 0. ]])
    """

    def __init__(
        self,
        cost: Cost | ArrayLike | str | Metric | None = None,
        *,
        reference: Any = "mean",
        maps: str = "exact",
        epsilon: float | None = None,
        feature_vectors: Any = None,
        dtype: DTypeLike = "float64",
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.cost = cost
        self.reference = reference
        self.maps = maps
        self.epsilon = epsilon
        self.feature_vectors = feature_vectors
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> WassersteinEmbedding:
        """Find the reference.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, list of matrices or files, or list of clouds
            Measures as rows, which are normalised. Shards, as of a Dask array or a list of matrices or files, are read
            one after the other, more than once. Clouds are arrays of points, or pairs of points and weights.
        y : None
            Ignored.

        Returns
        -------
        WassersteinEmbedding
        """
        self._fit(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Find the reference and embed the same measures.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, list of matrices or files, or list of clouds
            As for `fit`.
        y : None
            Ignored.

        Returns
        -------
        array of shape (n, k * d)
            A Dask array if X is one.
        """
        found = self._fit(X)
        return self._lazy(X) if sources.is_dask(X) else self._embed(found)

    def _fit(self, X: Any) -> _sets.Batches:
        """Check parameters and data, set the reference and return the data."""
        validation.precision(self.dtype)
        native.threads(self.n_jobs)
        _maps.MapSolver(self.maps, self.epsilon, self.n_jobs)
        if isinstance(self.reference, str):
            validation.choice(self.reference, "reference", _REFERENCES)
        if self._takes_clouds(X):
            found, self.cost_, source = self._clouds(X), None, self._cloud_reference()
            points, weights = source.points[0], source.weights[0]
            if points.shape[1] != (d := found.data.points[0].shape[1]):
                raise ValueError(f"reference: has points with {points.shape[1]} coordinates; expected {d} as in X")
            self._source: _sets.Measures = source
        else:
            found = _base.batches(self, X, reset=True)
            self.cost_ = _base.cost_of(self, found.data)
            points = _maps.squared_points(self.cost_)
            weights = self._row_reference(found)
            self._source = _sets.Rows(weights[None])
        full = weights > 0
        self.reference_ = Cloud(points[full], weights[full] / weights[full].sum())
        self._n_features_out = self.reference_.points.size
        return found

    def _read(self, X: Any) -> _sets.Batches:
        """Return measures to embed, of the kind of the fit."""
        if self.cost_ is not None:
            return _base.batches(self, X)
        if not _sets.are_clouds(X, "sqeuclidean"):
            raise ValueError("X: expected clouds as in the fit: arrays of points, or pairs of points and weights")
        return self._clouds(X, self.reference_.points.shape[1])

    def _clouds(self, X: Any, d: int | None = None) -> _sets.Batches:
        """Return checked clouds as one batch."""
        found = _sets.clouds(X, "X", "sqeuclidean")
        if d is not None and found.points[0].shape[1] != d:
            raise ValueError(f"X: has points with {found.points[0].shape[1]} coordinates; expected {d} as in the fit")
        return _sets.Batches([found], [len(found)])

    def _takes_clouds(self, X: Any) -> bool:
        return self.feature_vectors is None and self.cost == "sqeuclidean" and _sets.are_clouds(X, "sqeuclidean")

    def _cloud_reference(self) -> _sets.Clouds:
        """Return the reference of clouds."""
        if isinstance(self.reference, str):
            raise ValueError(f"reference: clouds have no {self.reference} here; expected points, or (points, weights)")
        return _sets.clouds([self.reference], "reference", "sqeuclidean")

    def _row_reference(self, X: _sets.Batches) -> Array:
        """Return the weights of the reference."""
        if not isinstance(self.reference, str):
            return validation.weights(self.reference, "reference", self.n_features_in_, count=1)[0]
        if self.reference == "barycenter":
            from ..barycenter.estimator import WassersteinBarycenter

            model = WassersteinBarycenter(self.cost_, n_jobs=self.n_jobs, random_state=0, verbose=self.verbose)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "X: .* rows have no mass")  # there was a warning of them
                return np.asarray(model.fit(X.data).barycenter_, np.float64)
        total, count = np.zeros(self.n_features_in_), 0
        for batch in X:
            full, rows = _sets.with_mass(batch)
            for block in rows.blocks():
                for row in block:  # one after the other, so that the sum does not depend on the batches
                    total += row / row.sum()
            count += len(full)
        return total / count

    def transform(self, X: Any) -> Any:
        """Embed measures.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, list of matrices or files, or list of clouds
            Measures, as for `fit`. A row without mass does not move the reference: it is embedded at zero.

        Returns
        -------
        array of shape (n, k * d)
            A Dask array if X is one.
        """
        check_is_fitted(self)
        return self._lazy(X) if sources.is_dask(X) and self.cost_ is not None else self._embed(self._read(X))

    def _lazy(self, X: Any) -> Any:
        """Return the embedding of a Dask array, which is not computed yet."""
        dtype = validation.precision(self.dtype)
        return _base.map_dask(self, X, self._embed_rows, self._n_features_out, dtype)

    def _embed_rows(self, X: Any) -> NDArray[np.floating]:
        """Return the embedding of valid rows."""
        return self._embed(_sets.Batches([X], [X.shape[0]]))

    def _embed(self, X: _sets.Batches) -> NDArray[np.floating]:
        """Return the embedding of checked measures."""
        found = np.zeros((len(X), self.reference_.points.size), self.dtype)
        for k, vector in self._vectors(X):
            found[k] = vector
        return found

    def _vectors(self, X: _sets.Batches) -> Iterator[tuple[int, Array]]:
        """Yield the number of each measure that has mass, and its embedding."""
        solver, scale = _maps.MapSolver(self.maps, self.epsilon, self.n_jobs), np.sqrt(self.reference_.weights)[:, None]
        with progress.bar("embedding", self.verbose) as advance:
            start = 0
            for batch, size, reported in X.reported(advance):
                full, targets = (np.arange(size), batch) if self.cost_ is None else _sets.with_mass(batch)
                pairs = np.zeros(len(full), np.intp), np.arange(len(full))
                for k, field in solver.fields(self._source, targets, pairs, self.cost_, reported):
                    yield start + int(full[k]), (scale * field).ravel()
                start += size

    def fields(self, Z: ArrayLike) -> Array:
        """Return embedded measures as displacement fields.

        Parameters
        ----------
        Z : array of shape (n, k * d)
            Embedded measures.

        Returns
        -------
        array of shape (n, k, d)
            ``T(x) - x`` at the points of the reference.
        """
        check_is_fitted(self)
        points, weights = self.reference_
        rows = validation.real(Z, "Z").astype(np.float64)
        if rows.ndim != 2 or rows.shape[1] != points.size:
            raise ValueError(f"Z: expected shape (n, {points.size}), got {rows.shape}")
        if not np.isfinite(rows).all():
            raise ValueError("Z: has NaN or infinite entries; expected finite ones")
        return rows.reshape(-1, *points.shape) / np.sqrt(weights)[:, None]

    def inverse_transform(self, Z: ArrayLike) -> Any:
        """Push the reference forward by displacement fields.

        Parameters
        ----------
        Z : array of shape (n, k * d)
            Embedded measures, or any points of that space.

        Returns
        -------
        array of shape (n, m), or list of Cloud
            On a grid weights, where the mass of a point is shared by the nearest points of the grid in proportion to
            the area, and what leaves the grid stays at its boundary; elsewhere points and weights.
        """
        moved = self.reference_.points + self.fields(Z)
        if self.cost_ is None or (spacing := self.cost_.spacing) is None:
            return [Cloud(points, self.reference_.weights) for points in moved]
        shape = self.cost_.row_shape
        return np.stack([rasterize(points, self.reference_.weights, shape, spacing) for points in moved])
