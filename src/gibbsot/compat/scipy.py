"""Wasserstein distances of `scipy.stats` on the exact engine, with SciPy's arguments and errors.

`wasserstein_distance_nd` of SciPy is a linear programme on all pairs; here it needs no matrix in up to four dimensions.
`energy_distance` is SciPy's own. Input that is not plain, such as infinite values, is SciPy's business: it raises its
own errors and returns its own limits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import energy_distance
from scipy.stats import wasserstein_distance as _on_the_line  # by name, so that ours may stand in its place
from scipy.stats import wasserstein_distance_nd as _in_space

from ..costs import PointCost
from ..solvers.solve import solve

__all__ = ["energy_distance", "wasserstein_distance", "wasserstein_distance_nd"]


def wasserstein_distance(u_values: Any, v_values: Any, u_weights: Any = None, v_weights: Any = None) -> Any:
    r"""Return the 1-Wasserstein distance of two samples on the line, as :func:`scipy.stats.wasserstein_distance` does.

    .. math:: W_1(u, v) = \int_{-\infty}^{\infty} |U(x) - V(x)| \, dx

    Parameters
    ----------
    u_values, v_values, u_weights, v_weights
        As for :func:`scipy.stats.wasserstein_distance`.

    Returns
    -------
    float

    Examples
    --------
    >>> from gibbsot.compat.scipy import wasserstein_distance
    >>> float(wasserstein_distance([0, 1, 3], [5, 6, 8]))
    5.0
    """
    found = _distance(u_values, v_values, u_weights, v_weights, (1,))
    if found is None:
        return _on_the_line(u_values, v_values, u_weights, v_weights)
    return found


def wasserstein_distance_nd(u_values: Any, v_values: Any, u_weights: Any = None, v_weights: Any = None) -> Any:
    r"""Return the 1-Wasserstein distance of two samples, as ``scipy.stats.wasserstein_distance_nd`` does.

    .. math:: W_1(u, v) = \min_{Z \ge 0} \sum_{ij} Z_{ij} \|u_i - v_j\|

    Parameters
    ----------
    u_values, v_values, u_weights, v_weights
        As for ``scipy.stats.wasserstein_distance_nd``.

    Returns
    -------
    float

    Examples
    --------
    >>> from gibbsot.compat.scipy import wasserstein_distance_nd
    >>> float(wasserstein_distance_nd([[0, 0], [1, 0]], [[0, 3], [1, 3]]))
    3.0
    """
    found = _distance(u_values, v_values, u_weights, v_weights, (1, 2))
    if found is None:
        return _in_space(u_values, v_values, u_weights, v_weights)
    return found


def _distance(x: Any, y: Any, p: Any, q: Any, axes: tuple[int, ...]) -> np.float64 | None:
    """Return the distance of samples whose number of axes is allowed, or None for input that SciPy should see."""
    try:
        X, Y = (np.asarray(z, np.float64) for z in (x, y))
        P, Q = (None if w is None else np.asarray(w, np.float64) for w in (p, q))
    except (TypeError, ValueError):
        return None
    if X.ndim not in axes or not (_plain(X, P) and _plain(Y, Q)) or X.shape[1:] != Y.shape[1:]:
        return None
    try:
        cost = PointCost(X, Y, "euclidean", np.float64)
    except ValueError:  # distances that overflow
        return None
    return np.float64(solve(P, Q, cost, normalize=True).value)


def _plain(x: NDArray[np.float64], weights: NDArray[np.float64] | None) -> bool:
    """Return whether these are finite points, with weights that are nonnegative and have a positive finite sum."""
    if 0 in x.shape or not np.isfinite(x).all():
        return False
    if weights is None:
        return True
    return weights.shape == x.shape[:1] and bool((weights >= 0).all()) and 0 < weights.sum() < np.inf
