"""A cost with one more point on either side, for mass that may be left over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import validation
from .base import Array, Cost, Exact

if TYPE_CHECKING:
    from typing_extensions import Self


class BorderedCost(Cost):
    """Another cost with one more row and column, which are the last.

    Parameters
    ----------
    inner : Cost
        The other cost.
    outer : float
        The cost to the new point of either side.
    corner : float
        The cost between the two new points.

    Attributes
    ----------
    inner, outer, corner
        The parameters.
    shape, dtype, finite, depth, work
        As of `Cost`.

    Examples
    --------
    >>> from gibbsot import PointCost
    >>> BorderedCost(PointCost([0.0, 2.0]), 1.0, np.inf).matrix()
    array([[ 0.,  4.,  1.],
           [ 4.,  0.,  1.],
           [ 1.,  1., inf]])
    """

    def __init__(self, inner: Cost, outer: float, corner: float) -> None:
        validation.check_range(abs(outer), "penalty", inner.dtype)
        self.inner, self.outer, self.corner = inner, float(inner.dtype.type(outer)), corner
        self.shape = inner.shape[0] + 1, inner.shape[1] + 1
        self.dtype, self.depth, self.work = inner.dtype, inner.depth, inner.work + 2 * sum(self.shape)
        self.finite = inner.finite and np.isfinite(corner)

    def __repr__(self) -> str:
        return f"BorderedCost({self.inner!r}, outer={self.outer}, corner={self.corner})"

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**self.inner.arrays(), "border": np.array([self.outer, self.corner])}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        from .conversion import from_arrays  # which knows all costs

        inner = {name: x for name, x in arrays.items() if name != "border"}
        return cls(from_arrays(inner), *arrays["border"].tolist())

    def astype(self, dtype: DTypeLike) -> BorderedCost:
        return (
            self if self.dtype == np.dtype(dtype) else BorderedCost(self.inner.astype(dtype), self.outer, self.corner)
        )

    def operand(self) -> None:
        return None

    def _transform_one(self, x: Array, by_rows: bool) -> Array:
        inside = self.inner.row_min(x[:-1]) if by_rows else -self.inner.col_max(-x[:-1])
        last = min(x[:-1].min() + self.outer, x[-1] + self.corner)
        return np.append(np.minimum(inside, x[-1] + self.outer), last).astype(self.dtype)

    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]:
        inside, finite = self.inner.mean(p[:, :-1], q[:, :-1], threads), np.isfinite(self.corner)
        parts = p[:, :-1].sum(axis=1), p[:, -1], q[:, :-1].sum(axis=1), q[:, -1]
        sides = parts[0] * parts[3] + parts[1] * parts[2]
        corner = parts[1] * parts[3] * finite
        total = parts[0] * parts[2] * inside + sides * self.outer + corner * (self.corner if finite else 0.0)
        return np.asarray(total / (parts[0] * parts[2] + sides + corner), np.float64)

    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        i, j = np.broadcast_arrays(i, j)
        row, column = i == self.shape[0] - 1, j == self.shape[1] - 1
        inside = self.inner.at(np.where(row, 0, i), np.where(column, 0, j))
        costs = np.where(row & column, self.corner, np.where(row | column, self.outer, inside))
        return np.asarray(costs, self.dtype)

    def at_exact(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> Exact:
        i, j = np.broadcast_arrays(i, j)
        inside = (i < self.shape[0] - 1) & (j < self.shape[1] - 1)
        costs = np.asarray(self.at(i, j), np.float64)
        high, low, size = costs, np.zeros_like(costs), np.abs(costs)
        high[inside], low[inside], size[inside] = self.inner.at_exact(i[inside], j[inside])
        return high, low, size

    def rounding(self) -> float:
        return self.inner.rounding()

    def accuracy(self) -> float:
        return self.inner.accuracy()

    def underflow(self) -> float:
        return self.inner.underflow()

    def vanishing(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> float:
        inside = (i < self.shape[0] - 1) & (j < self.shape[1] - 1)
        return self.inner.vanishing(i[inside], j[inside])

    def spread(self) -> float:
        others = [self.outer, *([self.corner] if np.isfinite(self.corner) else [])]
        least = self.inner.least()
        return float(max(least + self.inner.spread(), *others) - min(least, *others))

    def least(self) -> float:
        return min(self.inner.least(), self.outer, self.corner)
