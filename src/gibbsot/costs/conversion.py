"""Costs from matrices and from files, and in other precisions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from .base import Array, Cost
from .dense import DenseCost
from .grid import GridCost


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
    if cost is None or isinstance(cost, str):
        metric = cost or "euclidean"
        raise TypeError(
            f"cost: expected a Cost or a matrix, got {cost!r}; PointCost(X, Y, {metric!r}) is a cost between points"
        )
    if sparse.issparse(cost):
        raise TypeError(
            "cost: expected a Cost or a dense matrix, got a sparse one; GraphCost(cost) takes the lengths of edges of a"
            " graph, SparseCost(cost) the costs of the only pairs that are allowed"
        )
    if hasattr(cost, "adj") and hasattr(cost, "nodes"):  # NumPy would take its nodes for rows
        raise TypeError(
            f"cost: expected a Cost or a matrix, got a {type(cost).__name__} of networkx;"
            " GraphCost(networkx.to_scipy_sparse_array(graph)) is the cost of shortest paths"
        )
    if isinstance(cost, tuple) and any(isinstance(one, np.ndarray) for one in cost):
        raise TypeError("cost: expected a Cost or a matrix, got a tuple; PointCost(X, Y) is a cost between points")
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
    kinds = (kind for kind in Cost.__subclasses__() if kind.named_by in arrays)
    return next(kinds, GridCost).of_arrays(arrays)


def single(cost: Cost) -> Cost:
    """Return the cost in single precision, which is enough for gradients, or itself if it is out of that range."""
    try:
        return cost.astype(np.float32)
    except ValueError:
        return cost


class Units(NamedTuple):
    """A cost that starts at zero, in units of its spread: ``M = shift + unit * cost``.

    Attributes
    ----------
    cost : Cost
        The cost in units.
    shift : float
        The least cost.
    unit : float
        A power of four, so that scaling rounds nothing; the largest cost is from a quarter to one.
    """

    cost: Cost
    shift: float
    unit: float

    def single(self) -> Units:
        """Return the same in single precision, where the cost has it."""
        return self._replace(cost=single(self.cost))

    def value(self, x: float) -> float:
        """Return a transport cost, for one in units."""
        return self.shift + self.unit * x

    def lower(self, x: float) -> float:
        """Return a lower bound, for one in units: less what rounding of the shift could add."""
        return self.value(x) - self._rounding()

    def upper(self, x: float) -> float:
        """Return an upper bound, for one in units: with what rounding of the shift could take."""
        return self.value(x) + self._rounding()

    def _rounding(self) -> float:
        """Return what rounding of the shift could change."""
        return 4 * np.finfo(np.float64).eps * (abs(self.shift) + self.unit) if self.shift else 0.0


def in_units(cost: Cost) -> Units:
    """Return a cost in units of its spread, so that models do not depend on the units of the user.

    Costs between points that only their metric can compute, and whose matrix is too large, stay as they are.

    Parameters
    ----------
    cost : Cost
        A finite cost.

    Returns
    -------
    Units

    Examples
    --------
    >>> in_units(DenseCost([[-1.0, 7.0], [3.0, -1.0]]))[1:]
    (-1.0, 16.0)
    """
    shift, spread = cost.least(), cost.spread()
    root = math.ldexp(1.0, math.ceil(math.frexp(spread)[1] / 2)) if spread > 0 else 1.0
    rescaled = cost.rescaled(shift, root)
    return Units(cost, 0.0, 1.0) if rescaled is None else Units(rescaled, shift, root * root)


def mean_cost(cost: Cost) -> float:
    """Return the mean of all costs above the least, one if that is zero: the unit of step sizes."""
    p, q = (np.full((1, m), 1 / m) for m in cost.shape)
    return float(cost.mean(p, q)[0]) - cost.least() or 1.0
