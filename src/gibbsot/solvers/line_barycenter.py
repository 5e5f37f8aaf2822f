"""Barycenters on a line, in closed form, for convex powers of the distance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.costs.base import Geometry
from .free_measure import Optimum

Array = NDArray[np.float64]

_ENTRIES = 4_000_000  # of the largest array
_ULP = float(np.finfo(np.float64).eps)


def line_barycenter(targets: sparse.csr_array, weights: Array, geometry: Geometry) -> Optimum:
    r"""Return the barycenter on fixed points of a line.

    .. math:: Q(t) = \arg\min_a \sum_i \lambda_i |x_a - Q_i(t)|^p

    is its quantile function, where :math:`Q_i` are those of the measures: optimal plans on a line are monotone, so that
    the objective of any measure is an integral over t, and Q minimises each value of the integrand. The mean of the
    quantiles is the same only where it lies on the points.

    Parameters
    ----------
    targets : scipy.sparse.csr_array of shape (n, m)
        The measures, rows with sum one.
    weights : array of shape (n,)
        The lambda, positive with sum one.
    geometry : Geometry
        Points on a line, and the power.

    Returns
    -------
    Optimum

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost
    >>> ends = sparse.csr_array(np.eye(5)[[0, 4]])
    >>> line_barycenter(ends, np.array([0.5, 0.5]), GridCost(5, spacing=1.0).geometry()).w
    array([0., 0., 1., 0., 0.])
    """
    ends, positions, breaks = [], [], [np.zeros(1)]
    for row in range(targets.shape[0]):
        own = slice(*targets.indptr[row : row + 2])
        x, y = targets.data[own], geometry.Y[targets.indices[own], 0]
        order = np.argsort(y, kind="stable")
        total = np.cumsum(x[order], dtype=np.longdouble)
        ends.append(total / total[-1])
        positions.append(y[order])
        breaks.append(ends[-1])
    levels = np.unique(np.concatenate(breaks))
    length, middle = np.diff(levels), (levels[1:] + levels[:-1]) / 2
    points = np.argsort(geometry.X[:, 0], kind="stable")
    X, best = geometry.X[points, 0], np.empty(len(length), np.int64)
    value = size = 0.0
    step = max(1, _ENTRIES // len(ends))
    for start in range(0, len(length), step):
        part = slice(start, start + step)
        quantiles = np.stack([y[np.searchsorted(f, middle[part])] for f, y in zip(ends, positions, strict=True)])
        best[part], costs = _least(X, quantiles, weights, geometry.power)
        value += float(length[part] @ costs)
        size = max(size, float(np.abs(X[best[part]] - quantiles).max() ** geometry.power))
    w = np.zeros(len(X))
    np.add.at(w, points[best], length.astype(np.float64))
    slack = (len(ends) + 16) * _ULP * value
    slack += (2 * len(length) * len(ends) * float(np.finfo(np.longdouble).eps) + 4 * _ULP) * size
    return Optimum(
        w / w.sum(), max(value - slack, 0.0), value + slack if value else 0.0, stage="line", ended="gap reached"
    )


def _least(X: Array, quantiles: Array, weights: Array, power: float) -> tuple[NDArray[np.int64], Array]:
    """Return the point of least mean cost to each column of quantiles, by bisection, and the cost: it is convex."""

    def cost(a: NDArray[np.int64]) -> Array:
        return np.asarray(weights @ np.abs(X[a] - quantiles) ** power)

    low, high = np.zeros(quantiles.shape[1], np.int64), np.full(quantiles.shape[1], len(X) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        falls = (cost(middle) > cost(np.minimum(middle + 1, len(X) - 1))) & (low < high)
        low, high = np.where(falls, middle + 1, low), np.where(falls, high, np.minimum(high, middle))
    return low, cost(low)
