"""Displacement of measures: interpolation along a plan, and masses at any points as weights on a grid."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import validation
from ..costs import Cost
from ..costs.points import NORMS

Array = NDArray[np.float64]


class Cloud(NamedTuple):
    """Weighted points.

    Attributes
    ----------
    points : array of shape (m, d)
        The points.
    weights : array of shape (m,)
        Their weights.
    """

    points: Array
    weights: Array


def points_of(cost: Cost) -> tuple[Array, Array]:
    """Return the points of both measures.

    Parameters
    ----------
    cost : Cost
        A cost on a grid by a power of the distance, or between points by a metric that comes from a norm.

    Returns
    -------
    X, Y : arrays of shape (m1, d) and (m2, d)

    Raises
    ------
    ValueError
        If straight lines between points are not defined, or no shortest paths.
    """
    found = cost.positions()
    if found is None:  # only norms have geodesics that are straight lines
        raise ValueError(
            f"cost: {cost!r} has no straight lines between its points; expected a GridCost by shape, power and "
            f"spacing, or a PointCost with one of the metrics {', '.join(NORMS)}"
        )
    return found.X, found.Y


def along(plan: Any, X: Array, Y: Array, t: float) -> Cloud:
    """Return the measure at time t between those of a plan: all mass moves on a straight line, at constant speed."""
    arcs = plan.tocoo()
    return Cloud((1 - t) * X[arcs.row] + t * Y[arcs.col], arcs.data.astype(np.float64))


def rasterize(points: ArrayLike, weights: ArrayLike, shape: tuple[int, ...], spacing: ArrayLike) -> Array:
    """Return masses at any points as weights on a grid: each is a cell of the grid that covers parts of its cells.

    The mass of a point is shared by the at most ``2^d`` nearest points of the grid in proportion to the area (the
    bilinear weights), which keeps its centre. Points outside the grid are moved to its boundary first.

    Parameters
    ----------
    points : array of shape (m, d)
        The points; the first one of the grid is the origin.
    weights : array of shape (m,)
        Their masses.
    shape : tuple of int
        The d sides of the grid.
    spacing : float or array of shape (d,)
        The distance of neighbours along each axis.

    Returns
    -------
    array of shape (prod(shape),)

    Examples
    --------
    >>> rasterize([[0.25], [9.0]], [1.0, 2.0], (3,), 1.0)
    array([0.75, 0.25, 2.  ])
    """
    sides = np.array(shape)
    place = np.clip(np.asarray(points, np.float64) / np.asarray(spacing), 0, sides - 1)
    low = np.minimum(place.astype(np.intp), np.maximum(sides - 2, 0))
    share = place - low
    total = np.zeros(int(np.prod(sides)))
    for corner in product((0, 1), repeat=len(sides)):
        part = np.asarray(weights) * np.where(corner, share, 1 - share).prod(axis=1)
        index = np.ravel_multi_index(tuple(np.minimum(low + corner, sides - 1).T), shape)
        total += np.bincount(index, part, len(total))
    return total


def interpolated(plan: Any, cost: Cost, t: float, on_grid: bool) -> Cloud | Array:
    """Return the measure at time t between those of a plan, as points or as weights on the grid of the cost."""
    if not 0 <= validation.number(t, "t") <= 1:
        raise ValueError(f"t: expected a number from 0 to 1, got {t!r}")
    cloud = along(plan, *points_of(cost), t)
    if not validation.flag(on_grid, "on_grid"):
        return cloud
    if cost.spacing is None:
        raise ValueError(f"on_grid: {cost!r} has no grid; expected a GridCost, or on_grid=False")
    return rasterize(*cloud, cost.row_shape, cost.spacing).reshape(cost.row_shape)


def barycentric_images(plan: Any, cost: Cost, Y: ArrayLike | None = None) -> Array:
    """Return the mean of what the mass of each point of p goes to; NaN where a point has none.

    Parameters
    ----------
    plan : sparse matrix of shape (m1, m2)
        The plan.
    cost : Cost
        Whose second points are averaged, if Y is not given.
    Y : array of shape (m2, d) or (m2,), optional
        What to average.

    Returns
    -------
    array of shape (m1, d) or (m1,)
    """
    if Y is None:
        if cost.positions() is None:
            raise ValueError(f"Y: expected an array with one row for each point of q, as {cost!r} has no points")
        places = points_of(cost)[1]
    else:
        places = validation.real(Y, "Y").astype(np.float64)
        if places.ndim not in (1, 2) or len(places) != plan.shape[1]:
            raise ValueError(f"Y: expected one row for each of the {plan.shape[1]} points of q, got {places.shape}")
    mass = np.asarray(plan.sum(axis=1)).ravel()
    images = np.full((len(mass), *places.shape[1:]), np.nan)
    full = mass > 0
    images[full] = ((plan[full] @ places).T / mass[full]).T
    alone = full & (np.diff(plan.indptr) == 1)  # the image is a point, which is not to be rounded
    images[alone] = places[plan.indices[plan.indptr[:-1][alone]]]
    return images
