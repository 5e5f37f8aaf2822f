"""Measures: what counts as a weight vector, and the transport problems they make with a cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import validation
from .costs import Cost, as_cost

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """A batch of transport problems with one cost: row b of ``p`` to row b of ``q``.

    Attributes
    ----------
    p, q : arrays of shape (n, m1) and (n, m2)
        Weights; each row sums to one. A zero weight masks the point.
    cost : Cost
    """

    p: Weights
    q: Weights
    cost: Cost

    def __len__(self) -> int:
        return len(self.p)

    def __getitem__(self, rows: slice) -> Problem:
        return Problem(self.p[rows], self.q[rows], self.cost)


def problem(P: Any, Q: Any, cost: Cost | ArrayLike, names: tuple[str, str] = ("P", "Q")) -> Problem:
    """Check measures against a cost and each other, and normalise them.

    Both measures of a pair are divided by their own sum if the two sums agree to 1e-6; one measure is paired with all.

    Parameters
    ----------
    P, Q : arrays, lists or sparse matrices of shape (m,) or (n, m)
    cost : Cost or matrix
    names : pair of str
        What the caller calls the measures.

    Examples
    --------
    >>> problem([[2, 2], [1, 3]], [4, 0], [[0, 1], [1, 0]]).p
    array([[0.5 , 0.5 ],
           [0.25, 0.75]])
    """
    cost = as_cost(cost)
    p, q = (validation.weights(x, name, size) for x, name, size in zip((P, Q), names, cost.shape, strict=True))
    if len(p) != len(q) and 1 not in (len(p), len(q)):
        raise ValueError(f"{names[1]}: expected as many measures as {names[0]} has ({len(p)}), or one; got {len(q)}")
    n = max(len(p), len(q))
    p, q = (np.broadcast_to(x, (n, x.shape[1])) for x in (p, q))
    sums = p.sum(axis=1, keepdims=True), q.sum(axis=1, keepdims=True)
    apart = np.flatnonzero(np.abs(sums[0] - sums[1]) > 1e-6 * np.maximum(*sums))
    if len(apart):
        b = apart[0]
        raise ValueError(
            f"{names[1]}: row {b} sums to {sums[1][b, 0]:.9g}, {names[0]} to {sums[0][b, 0]:.9g}; "
            "expected sums that agree to 1e-6"
        )
    result = Problem(_normal(p, sums[0], cost), _normal(q, sums[1], cost), cost)
    if not cost.finite:
        _check_reachable(result, names)
    return result


def _normal(x: Weights, sums: Weights, cost: Cost) -> Weights:
    weight = x / sums
    # a weight that the cost's precision cannot tell from zero, or not invert, is a mask
    weight[weight < np.finfo(cost.dtype).tiny] = 0
    return weight


def inner(weight: NDArray[np.floating], x: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return ``<w, x>`` of each row; a point without weight may have an infinite x and does not count."""
    return (weight * np.where(weight > 0, x, 0)).sum(axis=1, dtype=np.float64)


def dual_value(problem: Problem, U: NDArray[np.floating], L: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return ``<p, U> - <q, L>`` over the points that have weight."""
    return inner(problem.p, U) - inner(problem.q, L)


def nearest(problem: Problem, n_jobs: int | None = None) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return what the nearest points give, U_i = min_j M_ij and L_j = max_i (U_i - M_ij) over the supports."""
    cost = problem.cost
    U = cost.row_min(np.where(problem.q > 0, 0.0, np.inf), n_jobs)
    return U, cost.col_max(np.where(problem.p > 0, U, -np.inf), n_jobs)


def _check_reachable(problem: Problem, names: tuple[str, str]) -> None:
    cost = problem.cost
    U = cost.row_min(np.where(problem.q > 0, 0.0, np.inf))
    _check_finite(U, problem.p, "row", names)
    _check_finite(cost.col_max(np.where(problem.p > 0, 0.0, -np.inf)), problem.q, "column", names[::-1])


def _check_finite(potential: NDArray[np.floating], mass: Weights, what: str, names: tuple[str, str]) -> None:
    stuck = np.argwhere(~np.isfinite(potential) & (mass > 0))
    if len(stuck):
        b, i = stuck[0]
        raise ValueError(
            f"cost: {what} {i} has weight in {names[0]} (row {b}) but only infinite costs to the points of {names[1]} "
            "that have weight"
        )
