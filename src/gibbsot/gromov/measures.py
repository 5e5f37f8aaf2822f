"""What is given: weights, plans to start from, and features beside the distances."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..core import validation
from ..costs import Cost, DenseCost, PointCost, as_cost
from ..costs.problems import Problem

Array = NDArray[np.float64]

_LARGEST = {"points": 1e75, "matrix": 1e150}  # whose fourth and second powers are doubles


def checked(x: Any, name: str, kind: str) -> Array:
    """Return finite points, or a square matrix, of a size whose powers are doubles."""
    if kind == "points":
        found = validation.points(x, name).astype(np.float64)
    else:
        found = validation.real(x, name).astype(np.float64)
        if found.ndim != 2 or found.shape[0] != found.shape[1] or not found.size:
            raise ValueError(f"{name}: expected a square matrix with metric='precomputed', got shape {found.shape}")
        if not np.isfinite(found).all():
            raise ValueError(f"{name}: has NaN or infinite entries; expected finite ones")
    if (largest := float(np.abs(found).max())) > _LARGEST[kind]:
        raise ValueError(f"{name}: the largest entry is {largest:.3g}; expected at most {_LARGEST[kind]:.0e}")
    return found


class Measures(NamedTuple):
    """Weights of the points that have some, each of sum one, and which these are."""

    p: Array
    q: Array
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    shape: tuple[int, int]

    @classmethod
    def of(cls, p: Any, q: Any, shape: tuple[int, int]) -> Measures:
        """Return checked weights."""
        parts = []
        for x, name, m in zip((p, q), "pq", shape, strict=True):
            if x is None:
                weights, mass = np.full((1, m), 1 / m), np.ones(1)
            else:
                weights, mass = validation.measures(x, name, m)
            if len(weights) != 1:
                raise ValueError(f"{name}: expected one measure, got {len(weights)}")
            if abs(mass[0] - 1) > validation.sum_tolerance(x, m):
                raise ValueError(f"{name}: expected weights of sum one, got {mass[0]:.9g}; divide them by their sum")
            support = np.flatnonzero(weights[0])
            parts.append((weights[0, support] / weights.sum(), support))
        return cls(parts[0][0], parts[1][0], parts[0][1], parts[1][1], shape)

    def problem(self, cost: Cost) -> Problem:
        """Return the linear problem with a cost."""
        return Problem.normalised(self.p[None], self.q[None], cost)

    def whole(self, plan: sparse.csr_array) -> sparse.csr_array:
        """Return a plan between all points."""
        arcs = plan.tocoo()
        return sparse.csr_array((arcs.data, (self.rows[arcs.row], self.columns[arcs.col])), shape=self.shape)

    def given_plans(self, start: Any) -> list[sparse.csr_array]:
        """Return checked plans between the points that have weight."""
        many = isinstance(start, list | tuple) and len(start) and (sparse.issparse(start[0]) or np.ndim(start[0]) == 2)
        many = many or (isinstance(start, np.ndarray) and start.ndim == 3)
        found = []
        for k, one in enumerate(start if many else [start]):
            name = f"start[{k}]" if many else "start"
            plan = validation.sparse_rows(one, name) if sparse.issparse(one) else validation.real(one, name)
            if plan.shape != self.shape:
                raise ValueError(f"{name}: expected a plan of shape {self.shape}, got {plan.shape}")
            plan = sparse.csr_array(plan, dtype=np.float64)
            if not (plan.data >= 0).all():
                raise ValueError(f"{name}: has negative entries or NaN; expected masses")
            plan = sparse.csr_array(plan[self.rows][:, self.columns])
            for axis, weight, side in ((1, self.p, "p"), (0, self.q, "q")):
                if (off := float(np.abs(plan.sum(axis=axis) - weight).sum())) > 1e-6:
                    raise ValueError(f"{name}: its marginal differs from {side} by {off:.3g}; expected a coupling")
            found.append(plan)
        return found


class Features(NamedTuple):
    """Transport of features beside distances: its share of the objective, and the cost, by positions or a matrix."""

    share: float
    cost: Cost
    positions: tuple[Array, Array] | None
    matrix: Array | None

    def scaled(self, unit: float) -> Features:
        """Return it in units of the objective; a power of four."""
        if self.positions is None:
            assert self.matrix is not None
            matrix = self.matrix / unit
            return Features(self.share, DenseCost(matrix), None, matrix)
        X, Y = (x / math.sqrt(unit) for x in self.positions)
        return Features(self.share, PointCost(X, Y), (X, Y), None)

    def all(self) -> Array:
        """Return the matrix of costs, times the share."""
        matrix = self.cost.matrix() if self.matrix is None else self.matrix
        return self.share * np.asarray(matrix, np.float64)

    def of(self, plan: sparse.csr_array) -> float:
        """Return the share times the cost of a plan."""
        arcs = plan.tocoo()
        return self.share * float(arcs.data @ self.cost.at(arcs.row, arcs.col))

    def size(self, plan: sparse.csr_array) -> float:
        """Return the sum of the absolute terms of this."""
        arcs = plan.tocoo()
        return self.share * float(arcs.data @ np.abs(self.cost.at(arcs.row, arcs.col)))


def features_of(
    fused: float | None, cost: Cost | ArrayLike | None, measures: Measures
) -> tuple[float, Features | None]:
    """Return the share of the distances in the objective, and what the features add to it."""
    if fused is None:
        if cost is not None:
            raise ValueError("cost: is the cost between features; expected it together with fused")
        return 1.0, None
    if not 0 <= validation.number(fused, "fused") <= 1:
        raise ValueError(f"fused: expected a number from 0 to 1, got {fused!r}")
    if cost is None:
        raise ValueError("cost: expected a cost between features, which fused needs")
    between = as_cost(cost)
    if between.shape != measures.shape:
        raise ValueError(f"cost: expected shape {measures.shape} as X and Y have it, got {between.shape}")
    if not between.finite:
        raise ValueError("cost: has infinite entries; expected finite ones")
    if fused == 1:
        return 1.0, None
    where, share = between.positions(), 1 - float(fused)
    if where is not None and where.norm == where.power == 2:
        X, Y = where.X[measures.rows], where.Y[measures.columns]
        middle = X.mean(axis=0)
        return float(fused), Features(share, between, (X - middle, Y - middle), None)
    matrix = np.asarray(between.matrix(measures.rows, measures.columns), np.float64)
    return float(fused), Features(share, between, None, matrix)
