"""Principal geodesics: principal components of displacement fields."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.utils.validation import check_is_fitted

from ..core import validation
from ..core.costs import Cost
from . import _base, _sets
from ._costs import Metric
from .embedding import WassersteinEmbedding

Array = NDArray[np.float64]


class WassersteinPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _base.Estimator):  # type: ignore[misc]
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
    >>> model.transform(X).ravel().round(6)
    array([-1.,  0.,  1.])
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    def fit(self, X: Any, y: Any = None) -> WassersteinPCA:
        """Embed measures and find the components of their fields.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), or list of clouds
            Measures, as for `WassersteinEmbedding`.
        y : None
            Ignored.

        Returns
        -------
        WassersteinPCA
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> NDArray[np.floating]:
        """Fit the components and return the coordinates of the same measures.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), or list of clouds
            Measures, as for `WassersteinEmbedding`.
        y : None
            Ignored.

        Returns
        -------
        array of shape (n, n_components)
        """
        if self.n_components is not None:
            validation.count(self.n_components, "n_components")
        options = {name: x for name, x in self.get_params(deep=False).items() if name != "n_components"}
        self.embedding_ = WassersteinEmbedding(**options | {"dtype": "float64"})
        validation.precision(self.dtype)
        Z = self.embedding_.fit_transform(X)
        if hasattr(self.embedding_, "n_features_in_"):
            self.n_features_in_ = self.embedding_.n_features_in_
        if hasattr(self.embedding_, "feature_names_in_"):
            self.feature_names_in_ = self.embedding_.feature_names_in_
        if self.n_components is not None and self.n_components > (most := min(Z.shape)):
            raise ValueError(
                f"n_components: expected at most {most}, for {Z.shape[0]} measures in n_features={Z.shape[1]} "
                f"coordinates; got {self.n_components}"
            )
        self._pca = PCA(self.n_components, svd_solver="full").fit(Z)
        self.explained_variance_ = self._pca.explained_variance_
        self.explained_variance_ratio_ = self._pca.explained_variance_ratio_
        self.mean_ = self.embedding_.fields(self._pca.mean_[None])[0]
        self.components_ = self.embedding_.fields(self._pca.components_)
        self._n_features_out = len(self.components_)
        return self._pca.transform(Z).astype(self.dtype)

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Return the coordinates of measures along the components.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), or list of clouds
            Measures.

        Returns
        -------
        array of shape (n, n_components)
        """
        check_is_fitted(self)
        if self.embedding_.cost_ is not None:
            X = _base.measures(self, X)  # names this estimator in messages
        return self._pca.transform(self.embedding_.transform(X)).astype(self.dtype)

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
        return self.embedding_.inverse_transform(self._pca.inverse_transform(coordinates))

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
        X : array or sparse matrix of shape (n, m), or list of clouds
            Measures, each with mass.

        Returns
        -------
        array of shape (n,)
        """
        return self._costs(X, self.transform(X))

    def _costs(self, given: Any, Z: ArrayLike) -> Array:
        """Return the transport costs between measures and those of coordinates."""
        cost, made = self.embedding_.cost_, self.inverse_transform(Z)
        first: _sets.Measures
        second: _sets.Measures
        if cost is None:
            first, second = _sets.clouds(given, "X", "sqeuclidean"), _sets.clouds(made, "X", "sqeuclidean")
        elif isinstance(made, list):  # fixed points that are no grid
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
        X : array or sparse matrix of shape (n, m), or list of clouds
            Measures, each with mass.
        y : None
            Ignored.

        Returns
        -------
        float
        """
        return -float(self.reconstruction_costs(X).mean())


def _on_points(X: Any, cost: Any) -> _sets.Clouds:
    """Return rows on common points as clouds."""
    rows = _sets.rows(X, "X", cost.shape[0])
    pairs = [(cost.X[w > 0], w[w > 0]) for w in rows[:]]
    return _sets.clouds(pairs, "X", "sqeuclidean")
