"""Principal geodesics: principal components of displacement fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import svd
from sklearn.utils.validation import check_is_fitted

from ...core import validation
from ...costs import Cost
from ...distributed import sources
from ...io import progress
from .. import _base
from .._costs import Metric
from . import sets as _sets
from .embedding import WassersteinEmbedding

Array = NDArray[np.float64]


class WassersteinPCA(_base.MeasuresTransformer):
    r"""Principal geodesics of measures: a `WassersteinEmbedding` and PCA in the tangent space at its reference.

    .. math:: \mu \approx \Big(\mathrm{id} + \bar v + \sum_k z_k c_k\Big)_{\#} r

    with the reference r, the mean field ``v`` and components ``c_k`` that are fields, orthonormal in ``L2(r)`` [1]_.

    Parameters
    ----------
    n_components : int, optional
        The number of components; all by default.
    cost, reference, maps, epsilon, feature_vectors, dtype, n_jobs, verbose
        As for `WassersteinEmbedding`.

    Attributes
    ----------
    embedding_ : WassersteinEmbedding
        The embedding, with the reference.
    mean_ : array of shape (k, d)
        The mean displacement field, at the k points of the reference.
    components_ : array of shape (n_components, k, d)
        The components as fields, orthonormal in ``L2(r)``.
    explained_variance_ : array of shape (n_components,)
        The variances along the components.
    explained_variance_ratio_ : array of shape (n_components,)
        Their shares of the variance of all fields.
    n_features_in_ : int
        The number m of bins; not for clouds.

    References
    ----------
    .. [1] W. Wang, D. Slepcev, S. Basu, J. A. Ozolek and G. K. Rohde, *A linear optimal transportation framework for
       quantifying and visualizing variations in sets of images*, IJCV 101, 2013.

    Examples
    --------
    >>> import gibbsot
    >>> X = [[4, 1, 0, 0], [0, 4, 1, 0], [0, 0, 4, 1]]  # a shape that moves
    >>> model = gibbsot.WassersteinPCA(1, cost=gibbsot.GridCost(4, spacing=1.0), reference=[4, 1, 0, 0]).fit(X)
    >>> float(model.explained_variance_ratio_[0].round(6))
    1.0
    >>> (model.transform(X).ravel() + 2).round(6)
    array([1., 2., 3.])
    >>> model.geodesic(0, [-1, 0, 1]).round(6)
    array([[0.8, 0.2, 0. , 0. ],
           [0. , 0.8, 0.2, 0. ],
           [0. , 0. , 0.8, 0.2]])
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        cost: Cost | ArrayLike | str | Metric | None = None,
        reference: Any = "mean",
        maps: str = "exact",
        epsilon: float | None = None,
        feature_vectors: Any = None,
        dtype: DTypeLike = "float64",
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.cost = cost
        self.reference = reference
        self.maps = maps
        self.epsilon = epsilon
        self.feature_vectors = feature_vectors
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> WassersteinPCA:
        """Embed measures and find the components of their fields.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, list of matrices or files, or list of clouds
            Measures, as for `WassersteinEmbedding`. Rows without mass are left out. The embeddings of at most about
            twice as many measures as an embedding has coordinates are in memory at a time.
        y : None
            Ignored.

        Returns
        -------
        WassersteinPCA
        """
        self._fit(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit the components and return the coordinates of the same measures.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, list of matrices or files, or list of clouds
            Measures, as for `WassersteinEmbedding`. Those of shards are embedded twice.
        y : None
            Ignored.

        Returns
        -------
        array of shape (n, n_components)
            A Dask array if X is one.
        """
        kept: list[tuple[int, Array]] = []
        found = self._fit(X, kept=kept)
        return self._coordinates(len(found), kept) if found.whole else self.transform(X)

    def _fit(self, X: Any, kept: list[tuple[int, Array]] | None = None) -> _sets.Batches:
        """Fit the components, keep the embeddings of measures in memory if asked for, and return the data."""
        if self.n_components is not None:
            validation.count(self.n_components, "n_components")
        options = {name: x for name, x in self.get_params(deep=False).items() if name != "n_components"}
        self.embedding_ = WassersteinEmbedding(**options | {"dtype": "float64"})
        validation.precision(self.dtype)
        found = self.embedding_._fit(X)
        if hasattr(self.embedding_, "n_features_in_"):
            self.n_features_in_ = self.embedding_.n_features_in_
        if hasattr(self.embedding_, "feature_names_in_"):
            self.feature_names_in_ = self.embedding_.feature_names_in_
        n, width = len(found) - found.n_empty, self.embedding_.reference_.points.size
        if n < 2:
            raise ValueError(f"X: has n_samples={n} with mass; expected at least two measures")
        if self.n_components is not None and self.n_components > (most := min(n, width)):
            raise ValueError(
                f"n_components: expected at most {most}, for {n} measures in n_features={width} coordinates; got "
                f"{self.n_components}"
            )
        rows = _CentredRows(width)
        for k, vector in self.embedding_._vectors(found):
            rows.add(vector)
            if kept is not None and found.whole:
                kept.append((k, vector))
        self._mean, self._directions, variances = rows.components()
        total, count = variances.sum(), min(n, width) if self.n_components is None else self.n_components
        self._directions, self.explained_variance_ = self._directions[:count], variances[:count]
        self.explained_variance_ratio_ = self.explained_variance_ / (total if total > 0 else 1.0)
        self.mean_ = self.embedding_.fields(self._mean[None])[0]
        self.components_ = self.embedding_.fields(self._directions)
        self._n_features_out = len(self.components_)
        return found

    def transform(self, X: Any) -> Any:
        """Return the coordinates of measures along the components.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, list of matrices or files, or list of clouds
            Measures. Coordinates of a row without mass are those of the reference.

        Returns
        -------
        array of shape (n, n_components)
            A Dask array if X is one.
        """
        check_is_fitted(self)
        if sources.is_dask(X) and self.embedding_.cost_ is not None:
            dtype = validation.precision(self.dtype)
            return _base.map_dask(self, X, self._transform_rows, self._n_features_out, dtype)
        found = self._read(X)
        return self._coordinates(len(found), self.embedding_._vectors(found))

    def _read(self, X: Any) -> _sets.Batches:
        """Return measures of the kind of the fit; messages name this estimator."""
        return self.embedding_._read(X) if self.embedding_.cost_ is None else _base.batches(self, X)

    def _transform_rows(self, X: Any) -> NDArray[np.floating]:
        """Return the coordinates of valid rows."""
        return self._coordinates(X.shape[0], self.embedding_._vectors(_sets.Batches([X], [X.shape[0]])))

    def _coordinates(self, n: int, vectors: Iterable[tuple[int, Array]]) -> NDArray[np.floating]:
        """Return the coordinates of embedded measures among n; those of others are the coordinates of zero."""
        found = np.tile(self._directions @ -self._mean, (n, 1))
        for k, vector in vectors:
            found[k] = self._directions @ (vector - self._mean)
        return found.astype(self.dtype)

    def inverse_transform(self, Z: ArrayLike) -> Any:
        """Return the measures of coordinates: the reference pushed forward.

        Parameters
        ----------
        Z : array of shape (n, n_components)
            Coordinates.

        Returns
        -------
        array of shape (n, m), or list of Cloud
            As of `WassersteinEmbedding.inverse_transform`.
        """
        check_is_fitted(self)
        coordinates = validation.real(Z, "Z").astype(np.float64)
        if coordinates.ndim != 2 or coordinates.shape[1] != len(self.components_):
            raise ValueError(f"Z: expected shape (n, {len(self.components_)}), got {coordinates.shape}")
        return self.embedding_.inverse_transform(self._mean + coordinates @ self._directions)

    def geodesic(self, k: int, t: ArrayLike) -> Any:
        """Return measures along a component, through the mean.

        Parameters
        ----------
        k : int
            The component.
        t : array of shape (n,)
            Where, in standard deviations of the measures of the fit along the component.

        Returns
        -------
        array of shape (n, m), or list of Cloud
            As of `WassersteinEmbedding.inverse_transform`.
        """
        check_is_fitted(self)
        if not 0 <= validation.integer(k, "k") < len(self.components_):
            raise ValueError(f"k: expected a component from 0 to {len(self.components_) - 1}, got {k}")
        steps = np.atleast_1d(validation.real(t, "t"))
        if steps.ndim != 1:
            raise ValueError(f"t: expected a number or a vector, got shape {steps.shape}")
        Z = np.zeros((len(steps), len(self.components_)))
        Z[:, k] = steps * np.sqrt(self.explained_variance_[k])
        return self.inverse_transform(Z)

    def reconstruction_costs(self, X: Any) -> Array:
        """Return the exact transport costs between measures and their reconstructions from the components.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, list of matrices or files, or list of clouds
            Measures, each with mass.

        Returns
        -------
        array of shape (n,)
        """
        check_is_fitted(self)
        found = self._read(X)
        if found.n_empty:
            raise ValueError(f"X: {found.n_empty} rows have no mass; expected measures, each with mass")
        costs = []
        for batch, size, _ in found.reported(progress.silent):
            vectors = self.embedding_._vectors(_sets.Batches([batch], [size]))
            costs.append(self._costs(batch, self._coordinates(size, vectors)))
        return np.concatenate(costs)

    def _costs(self, given: Any, Z: ArrayLike) -> Array:
        """Return the transport costs between measures and those of coordinates."""
        cost, made = self.embedding_.cost_, self.inverse_transform(Z)
        first: _sets.Measures
        second: _sets.Measures
        if cost is None:
            first, second = given, _sets.clouds(made, "X", "sqeuclidean")
        elif isinstance(made, list):  # fixed points that are not a grid
            first, second = _on_points(given, cost), _sets.clouds(made, "X", "sqeuclidean")
            cost = None
        else:
            first, second = _sets.rows(given, "X", cost.shape[0]), _sets.Rows(made)
        pairs = np.arange(len(first)), np.arange(len(first))
        found = _sets.solutions(first, second, pairs, cost, n_jobs=self.n_jobs)
        return np.array([solution.value for _, some in found for solution in some])

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the mean of `reconstruction_costs`.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, list of matrices or files, or list of clouds
            Measures, each with mass.
        y : None
            Ignored.

        Returns
        -------
        float
        """
        return -float(self.reconstruction_costs(X).mean())


class _CentredRows:
    """Rows that are added one by one, as a factor R of at most about twice as many rows as there are columns.

    The differences of all rows from their mean have the same products as those of R: ``R^T R`` is their scatter matrix.

    Parameters
    ----------
    width : int
        The number of columns.
    """

    def __init__(self, width: int) -> None:
        self._width, self._n, self._mean = width, 0, np.zeros(width)
        self._factor = np.empty((0, width))
        self._block: list[Array] = []  # of fixed size, so that results do not depend on the batches of the data

    def add(self, row: Array) -> None:
        """Add a row."""
        self._block.append(row)
        if len(self._block) == self._width:
            self._reduce()

    def _reduce(self) -> None:
        """Include the rows that were added since the last time."""
        rows, before = np.stack(self._block), self._n
        self._block.clear()
        self._n += len(rows)
        mean = rows.mean(axis=0)
        parts = [self._factor, rows - mean]
        if before:
            parts.append(np.sqrt(before * len(rows) / self._n) * (mean - self._mean)[None])
        self._factor = np.concatenate(parts)
        if len(self._factor) > self._width:
            self._factor = np.asarray(np.linalg.qr(self._factor, mode="r"))
        self._mean += (mean - self._mean) * (len(rows) / self._n)

    def components(self) -> tuple[Array, Array, Array]:
        """Return the mean, the principal directions as rows, and the variances along them, the largest first.

        The largest coordinate of a direction is positive.
        """
        if self._block:
            self._reduce()
        _, sizes, directions = svd(self._factor, full_matrices=False)
        largest = np.abs(directions).argmax(axis=1)
        signs = np.where(directions[np.arange(len(directions)), largest] < 0, -1.0, 1.0)
        return self._mean, directions * signs[:, None], sizes**2 / (self._n - 1)


def _on_points(X: Any, cost: Any) -> _sets.Clouds:
    """Return rows on common points as clouds."""
    rows = _sets.rows(X, "X", cost.shape[0])
    pairs = [(cost.X[w > 0], w[w > 0]) for w in rows[:]]
    return _sets.clouds(pairs, "X", "sqeuclidean")
