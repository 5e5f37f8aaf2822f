"""The transport map between two samples, at new points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ...core import native, validation
from ...core.warn import warn
from ...costs import PointCost
from ...solvers.solve import solve
from .. import _base
from . import maps as _maps

Array = NDArray[np.float64]


class TransportMap(OneToOneFeatureMixin, TransformerMixin, _base.Estimator):  # type: ignore[misc]
    r"""The optimal transport map from one sample to another, for these points and for new ones.

    With the optimal plan Z of the squared Euclidean distance between two samples, whose points have the same weight,

    .. math:: T(x_i) = \sum_j Z_{ij} \, y_j \Big/ \sum_j Z_{ij}

    is the image of a point of the first sample. A new point moves by the displacement of the nearest point of that
    sample, ``x + T(x_i) - x_i`` [1]_. With ``maps="debiased"`` the map is smooth: an entropic one, minus that of the
    first sample to itself [2]_. This adapts a domain to another, transfers colours, or aligns batches.

    Parameters
    ----------
    maps : {"exact", "debiased"}
        How points move: by the plan of the optimum, or by the debiased entropic map, an estimate.
    epsilon : float, optional
        The regularisation of debiased maps, in units of the squared distance; by default twice the mean squared
        distance of neighbouring points of the first sample.
    gap : float, optional
        The certified relative gap of the transport problem; 0 or None for the optimum. With "exact" maps.
    n_jobs : int, optional
        Threads: None for one, -1 for all cores.

    Attributes
    ----------
    X_ : array of shape (k, d)
        The distinct points of the first sample.
    images_ : array of shape (k, d)
        Where they are moved to.
    result_ : OTResult
        The transport problem of both samples.
    epsilon_ : float
        The regularisation, of debiased maps only.
    n_features_in_ : int
        The number d of coordinates.

    See Also
    --------
    OTResult.map : The images of the points of one problem, for every cost that has points.
    WassersteinEmbedding : The same maps, from one reference to many measures.

    References
    ----------
    .. [1] S. Ferradans, N. Papadakis, G. Peyre and J.-F. Aujol, *Regularized discrete optimal transport*, SIAM Journal
       on Imaging Sciences 7, 2014.
    .. [2] A.-A. Pooladian and J. Niles-Weed, *Entropic estimation of optimal transport maps*, 2021.

    Examples
    --------
    >>> from gibbsot import TransportMap
    >>> X, Y = [[0.0, 0.0], [1.0, 0.0]], [[0.0, 5.0], [1.0, 7.0]]
    >>> model = TransportMap().fit(X, target=Y)
    >>> model.transform([[1.0, 0.0], [0.9, 0.2]])
    array([[1. , 7. ],
           [0.9, 7.2]])
    """

    def __init__(
        self,
        *,
        maps: str = "exact",
        epsilon: float | None = None,
        gap: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.maps = maps
        self.epsilon = epsilon
        self.gap = gap
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: Any = None, *, target: ArrayLike | None = None) -> TransportMap:
        """Solve the transport problem between two samples.

        Parameters
        ----------
        X : array of shape (n, d)
            The sample that is moved.
        y : None or array of shape (n,)
            Ignored, as labels of the sample; the other sample is ``target``.
        target : array of shape (k, d), optional
            The sample that it is moved to, of any size. Without one it is X, and nothing moves.

        Returns
        -------
        TransportMap
            The model.
        """
        debiased = validation.choice(self.maps, "maps", _maps.KINDS) == "debiased"
        native.threads(self.n_jobs)
        gap = None if self.gap is None else validation.nonnegative(self.gap, "gap")
        epsilon = None if self.epsilon is None else validation.positive(self.epsilon, "epsilon")
        if debiased and gap:
            raise ValueError("gap: debiased maps start from the optimum; expected it with maps='exact' only")
        if target is None and y is not None and np.asarray(y).ndim == 2:
            raise ValueError("y: has two dimensions; expected the sample to move to as target=")
        points = validate_data(self, X, dtype=np.float64)
        other = points if target is None else check_array(target, dtype=np.float64, input_name="target")
        if other.shape[1] != points.shape[1]:
            raise ValueError(f"target: has {other.shape[1]} coordinates; expected {points.shape[1]} as in X")
        self.result_ = solve(None, None, PointCost(points, other), gap=gap, n_jobs=self.n_jobs)
        if debiased:
            self._map = _maps.EntropicMap(points, other, *self.result_.potentials, epsilon)
            self.epsilon_, images = self._map.epsilon, self._map(points)
            if self._map.misplaced > _maps.SAMPLE_TOLERANCE:
                warn(
                    f"maps: the iterations of the debiased map ended before they converged, with "
                    f"{self._map.misplaced:.1e} of the mass misplaced; a larger epsilon is faster",
                    ConvergenceWarning,
                )
        else:
            images = self.result_.map()
        # points that are equal have one image, that of their mass
        self.X_, which, counts = np.unique(points, axis=0, return_inverse=True, return_counts=True)
        sums = [np.bincount(which.ravel(), x, len(counts)) for x in images.T]
        self.images_ = np.stack(sums, axis=1) / counts[:, None]
        if not debiased:
            self._nearest = NearestNeighbors(n_neighbors=1, n_jobs=self.n_jobs).fit(self.X_)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Move points.

        Parameters
        ----------
        X : array of shape (n, d)
            Points, of the first sample or new ones.

        Returns
        -------
        array of shape (n, d)
            Where they are moved to.
        """
        check_is_fitted(self)
        points = validate_data(self, X, dtype=np.float64, reset=False)
        if self.maps == "debiased":
            return self._map(points)
        nearest = self._nearest.kneighbors(points, return_distance=False).ravel()
        moved = points + (self.images_[nearest] - self.X_[nearest])
        # a point of the first sample has its image without the rounding of a difference
        same = (points == self.X_[nearest]).all(axis=1)
        moved[same] = self.images_[nearest[same]]
        return moved
