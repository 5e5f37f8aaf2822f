"""Costs from matrices and from files, and in other precisions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from .base import Array, Cost
from .dense import DenseCost
from .grid import GridCost
from .points import PointCost


def as_cost(cost: Cost | ArrayLike) -> Cost:
    """Return the cost itself, or a matrix as a `DenseCost`.

    Parameters
    ----------
    cost : Cost or array of shape (m1, m2)
        The cost.

    Returns
    -------
    Cost
    """
    if isinstance(cost, Cost):
        return cost
    try:
        return DenseCost(cost)
    except (TypeError, ValueError) as error:
        raise type(error)(f"cost: {str(error).removeprefix('M: ')}") from None


def from_arrays(arrays: Mapping[str, Array]) -> Cost:
    """Return the cost that `Cost.arrays` described.

    Parameters
    ----------
    arrays : mapping of str to array
        What `Cost.arrays` returned.

    Returns
    -------
    Cost

    Examples
    --------
    >>> from_arrays(GridCost((2, 3)).arrays()).shape
    (6, 6)
    """
    kind = DenseCost if "M" in arrays else PointCost if "X" in arrays else GridCost
    return kind.of_arrays(arrays)


def single(cost: Cost) -> Cost:
    """Return the cost in single precision, which is enough for gradients, or itself if it is out of that range."""
    try:
        return cost.astype(np.float32)
    except ValueError:
        return cost


def mean_cost(cost: Cost) -> float:
    """Return the mean of all costs, one if that is zero: the unit of step sizes."""
    p, q = (np.full((1, m), 1 / m) for m in cost.shape)
    return float(cost.mean(p, q)[0]) or 1.0
