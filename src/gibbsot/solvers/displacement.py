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
    X, Y = points_of(cost)
    if not validation.flag(on_grid, "on_grid"):
        return along(plan, X, Y, t)
    if cost.spacing is None:
        raise ValueError(f"on_grid: {cost!r} has no grid; expected a GridCost, or on_grid=False")
    return _drawn(plan, cost.row_shape, t)


def _drawn(plan: Any, shape: tuple[int, ...], t: float) -> Array:
    """Return the measure at time t as weights on a grid, without moire.

    Cells that go to one cell each move as they are. Of the others each arc has a part, a box whose share of the cell is
    that of the mass, both where it starts and where it ends; the box between these two is what is drawn. On the line
    this is the interpolation of piecewise constant densities. In more dimensions boxes overlap a little or leave gaps.
    There half of each is drawn up to 3/8 of a cell to one side of its place, half to the other, along each axis.
    """
    if t in (0, 1):
        return np.asarray(plan.sum(axis=1 - int(t)), np.float64).reshape(shape)
    arcs, sides = plan.tocoo(), np.array(shape)
    row, col, mass = (part[arcs.data > 0] for part in (arcs.row, arcs.col, arcs.data.astype(np.float64)))
    x, y = (np.stack(np.unravel_index(index, shape), axis=1) for index in (row, col))
    whole = (np.bincount(row)[row] == 1) & (np.bincount(col)[col] == 1)
    image = rasterize((1 - t) * x[whole] + t * y[whole], mass[whole], shape, 1.0).reshape(shape)
    if whole.all():
        return image
    row, col, mass, x, y = (part[~whole] for part in (row, col, mass, x, y))
    starts, stops = _parts(row, y, mass), _parts(col, x, mass)
    low, high = ((1 - t) * (x + starts[k]) + t * (y + stops[k]) for k in (0, 1))
    most = 1.5 * t * (1 - t) if (sides > 1).sum() > 1 else 0.0
    aside = np.minimum(most, np.maximum(np.minimum(low, sides - high), 0))
    parts = _boxes(low, high, aside, mass, sides).reshape(shape)
    return image + _recentred(parts, mass @ ((1 - t) * x + t * y))


def _parts(cell: NDArray[np.integer], other: NDArray[np.integer], mass: Array) -> tuple[Array, Array]:
    """Return lower and upper corners of the part of its unit cell that each arc has.

    Each cell is cut across the axis along which the other ends of its arcs differ most, midway between them, into boxes
    whose volumes are as the masses; so is each of the boxes, until all have one arc.
    """
    corners = np.zeros(other.shape), np.ones(other.shape)
    arc, group = np.arange(len(cell)), np.unique(cell, return_inverse=True)[1]
    while True:
        order = np.argsort(group, kind="stable")
        begin = np.flatnonzero(np.diff(group[order], prepend=-1))
        least, most = (extreme.reduceat(other[order], begin) for extreme in (np.minimum, np.maximum))
        if not (most > least).any():
            return corners
        axis = (most - least).argmax(axis=1)
        middle = (least + most)[np.arange(len(axis)), axis] / 2
        own = axis[group]
        above = other[arc, own] > middle[group]
        below, full = np.bincount(group, np.where(above, 0, mass)), np.bincount(group, mass)
        low, high = (corner[arc, own] for corner in corners)
        cut = low + (below / full)[group] * (high - low)
        cut = np.where(below[group] < full[group], cut, high)
        corners[0][arc[above], own[above]] = cut[above]
        corners[1][arc[~above], own[~above]] = cut[~above]
        group = np.unique(2 * group + above, return_inverse=True)[1]


def _boxes(low: Array, high: Array, aside: Array, mass: Array, sides: NDArray[np.integer]) -> Array:
    """Return what cells have of boxes that are at most one cell wide, half of the mass drawn to each side."""
    first = np.clip(np.floor(low - aside), 0, sides - 1)
    width = np.maximum(high - low, 1e-12)  # what is thinner is in one cell

    def before(edge: Array) -> Array:
        return (np.clip((edge - low + aside) / width, 0, 1) + np.clip((edge - low - aside) / width, 0, 1)) / 2

    near, far = before(first + 1), before(first + 2)
    shares, total = (near, far - near, 1 - far), np.zeros(int(np.prod(sides)))
    for step in product(range(3), repeat=len(sides)):
        share = np.prod([shares[k][:, axis] for axis, k in enumerate(step)], axis=0)
        place = np.minimum(first + step, sides - 1).astype(np.intp)
        total += np.bincount(np.ravel_multi_index(tuple(place.T), tuple(sides)), mass * share, len(total))
    return total


def _recentred(image: Array, moment: Array) -> Array:
    """Return an image, a small share of which is moved to the next cells so that it has the first moment given."""
    for axis, wanted in enumerate(moment):
        image = np.moveaxis(image, axis, 0)
        profile = image.reshape(len(image), -1).sum(axis=1)
        miss = wanted - profile @ np.arange(len(image))
        step = slice(None, None, -1 if miss < 0 else 1)
        mobile = profile[step][:-1].sum()
        moved = image[step][:-1] * (min(abs(miss) / mobile, 1.0) if mobile > 0 else 0.0)
        image = image[step].copy()
        image[:-1] -= moved
        image[1:] += moved
        image = np.moveaxis(image[step], 0, axis)
    return image


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
