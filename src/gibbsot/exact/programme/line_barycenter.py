"""Barycenters on a line, in closed form, for convex powers of the distance."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...costs.base import Geometry
from ..certificate import PROGRAMME_GAP
from .free_measure import FreeMeasure, Optimum

Array = NDArray[np.float64]

_ENTRIES = 4_000_000  # of the largest array
_ULP = float(np.finfo(np.float64).eps)


def line_barycenter(problem: FreeMeasure, geometry: Geometry) -> Optimum:
    r"""Return the barycenter on fixed points of a line, with certified bounds.

    .. math:: Q(t) = \arg\min_a \sum_i \lambda_i |x_a - Q_i(t)|^p

    is its quantile function, where :math:`Q_i` are those of the measures: optimal plans on a line are monotone, so that
    the objective of any measure is an integral over t, and Q minimises each value of the integrand. The mean of the
    quantiles is the same only where it lies on the points.

    The integral, less what rounding may have added, is the lower bound; the exact objective of the weights, as they
    are returned, the upper one.

    Parameters
    ----------
    problem : FreeMeasure
        The measures and their weights lambda.
    geometry : Geometry
        Points on a line, and the power.

    Returns
    -------
    Optimum

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from gibbsot import GridCost
    >>> cost, ends = GridCost(5, spacing=1.0), sparse.csr_array(np.eye(5)[[0, 4]])
    >>> line_barycenter(FreeMeasure(ends, np.array([0.5, 0.5]), cost), cost.geometry()).w
    array([0., 0., 1., 0., 0.])
    """
    targets, weights, power = problem.targets, problem.weights, geometry.power
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
    X, points = np.unique(geometry.X[:, 0].astype(np.float64), return_index=True)
    best = np.empty(len(length), np.int64)
    value = np.longdouble(0)
    step = max(1, _ENTRIES // len(ends))
    for start in range(0, len(length), step):
        part = slice(start, start + step)
        quantiles = np.stack([y[np.searchsorted(f, middle[part])] for f, y in zip(ends, positions, strict=True)])
        best[part], costs = _least(X, quantiles, weights, power)
        value += np.longdouble(length[part] @ costs)
    w = np.zeros(len(geometry.X))
    np.add.at(w, points[best], length.astype(np.float64))
    w /= w.sum()
    # A level is off by the errors of its sum. Where a quantile jumps there, the least cost changes by no more than the
    # cost to any point does, and all jumps of a measure add up to at most power times the largest cost.
    ulp = float(np.finfo(np.longdouble).eps)
    off = (max(map(len, ends)) + 4) * ulp
    span = max(float(X.max()), *(float(y.max()) for y in positions))
    span -= min(float(X.min()), *(float(y.min()) for y in positions))
    slack = 1.01 * (2 * off * power * span**power + (len(length) + 4) * ulp * abs(float(value)))
    w = problem.snapped(w)  # without the rounding of levels
    found = problem.upper(w)[0]
    lower = math.nextafter(float(value) * (1 - 4 * _ULP) - slack, -math.inf)
    best_known = Optimum(w, max(lower, 0.0), found.upper, found.scale, stage="line", ended="precision")
    if best_known.gap <= PROGRAMME_GAP:
        best_known.ended = "gap reached"
    return best_known


def _least(X: Array, quantiles: Array, weights: Array, power: float) -> tuple[NDArray[np.int64], Array]:
    """Return the point of least mean cost to each column of quantiles, by bisection, and a lower bound of that cost.

    The mean cost is convex in the point. If it falls from the point found to a neighbour by no more than delta, it
    falls from there on by no more than delta for each such step.
    """

    def cost(a: NDArray[np.int64]) -> Array:
        return np.asarray(weights @ np.abs(X[a] - quantiles) ** power)

    last = len(X) - 1
    low, high = np.zeros(quantiles.shape[1], np.int64), np.full(quantiles.shape[1], last)
    while (low < high).any():
        middle = (low + high) // 2
        falls = (cost(middle) > cost(np.minimum(middle + 1, last))) & (low < high)
        low, high = np.where(falls, middle + 1, low), np.where(falls, high, np.minimum(high, middle))
    found = cost(low)
    error = (len(weights) + 2 * power + 8) * _ULP  # of a mean, relative to itself: no term is negative
    bound = found * (1 - error)
    for step, end in ((1, last), (-1, 0)):
        next_one = np.clip(low + step, 0, last)
        fall = np.maximum(found * (1 + error) - cost(next_one) * (1 - error), 0)
        apart = np.abs(X[next_one] - X[low])
        steps = np.divide(np.abs(X[end] - X[low]), apart, out=np.zeros(len(low)), where=apart > 0)
        bound = np.where(low == end, bound, np.minimum(bound, found * (1 - error) - fall * steps))
    return low, bound
