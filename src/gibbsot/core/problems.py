"""Transport problems: pairs of measures and a cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import validation
from .costs import Cost, as_cost

Weights = NDArray[np.float64]

_SUM_TOLERANCE = 1e-6  # relative: how far sums of weights may be apart


@dataclass(frozen=True, eq=False)
class Problem:
    """A batch of transport problems with one cost: row b of ``p`` to row b of ``q``.

    `problem` makes one from measures that are not normalised.

    Parameters
    ----------
    p, q : arrays of float64, shape (n, m1) and (n, m2)
        Weights; each row sums to one. A zero weight masks the point.
    cost : Cost
        The cost, of shape (m1, m2).

    Attributes
    ----------
    p, q, cost
        The parameters.

    Raises
    ------
    ValueError
        If shapes, types or weights are not as above.
    """

    p: Weights
    q: Weights
    cost: Cost

    def __post_init__(self) -> None:
        if not isinstance(self.cost, Cost):
            raise ValueError(f"cost: expected a Cost, got {type(self.cost).__name__}")
        for name, x, size in (("p", self.p, self.cost.shape[0]), ("q", self.q, self.cost.shape[1])):
            if not isinstance(x, np.ndarray) or x.dtype != np.float64:
                found = x.dtype if isinstance(x, np.ndarray) else type(x).__name__
                raise ValueError(f"{name}: expected an array of float64, got {found}")
            if x.ndim != 2 or x.shape[1] != size:
                raise ValueError(f"{name}: expected shape (n, {size}) to match the cost, got {x.shape}")
            mass = validation.check_weights(x, name)
            if (np.abs(mass - 1) > _SUM_TOLERANCE).any():
                row = np.abs(mass - 1).argmax()
                raise ValueError(f"{name}: row {row} sums to {mass[row]:.9g}; expected 1")
        if len(self.p) != len(self.q):
            raise ValueError(f"q: expected as many rows as p has ({len(self.p)}), got {len(self.q)}")

    def __len__(self) -> int:
        return len(self.p)

    def __getitem__(self, rows: slice) -> Problem:
        subset = object.__new__(Problem)  # its rows have been checked
        vars(subset).update(p=self.p[rows], q=self.q[rows], cost=self.cost)
        return subset


def problem(P: Any, Q: Any, cost: Cost | ArrayLike, names: tuple[str, str] = ("P", "Q")) -> Problem:
    """Make a batch of problems from measures: check them against a cost and each other, and normalise them.

    Both measures of a pair are divided by their own sum if the two sums agree to 1e-6.

    Parameters
    ----------
    P, Q : arrays, lists or sparse matrices of shape (m1,) or (n, m1), and (m2,) or (n, m2)
        Measures as rows of weights; one measure is paired with all of the other side.
    cost : Cost or array of shape (m1, m2)
        The cost.
    names : pair of str
        What the caller calls the measures, for messages.

    Returns
    -------
    Problem

    Raises
    ------
    ValueError, TypeError
        If weights are not valid, sums differ, or infinite costs leave a point with weight unreachable.

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
    apart = np.flatnonzero(np.abs(sums[0] - sums[1]) > _SUM_TOLERANCE * np.maximum(*sums))
    if len(apart):
        b = apart[0]
        raise ValueError(
            f"{names[1]}: row {b} sums to {sums[1][b, 0]:.9g}, {names[0]} to {sums[0][b, 0]:.9g}; "
            "expected sums that agree to 1e-6"
        )
    result = Problem(_normalised(p, sums[0], cost), _normalised(q, sums[1], cost), cost)
    if not cost.finite:
        _check_reachable(result, names)
    return result


def _normalised(x: Weights, sums: Weights, cost: Cost) -> Weights:
    """Return rows divided by their sums; weights below the normal range of the cost's precision become zero."""
    weight = x / sums
    weight[weight < np.finfo(cost.dtype).tiny] = 0
    return weight


def inner(weight: NDArray[np.floating], x: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return ``<w, x>`` of each row; x may be infinite where w is zero."""
    return (weight * np.where(weight > 0, x, 0)).sum(axis=1, dtype=np.float64)


def dual_value(problem: Problem, U: NDArray[np.floating], L: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return ``<p, U> - <q, L>`` over the points that have weight."""
    return inner(problem.p, U) - inner(problem.q, L)


def lower_potential(problem: Problem, U: NDArray[np.floating], n_jobs: int | None = None) -> NDArray[np.floating]:
    """Return the c-transform of U, the least feasible L: L_j = max_i (U_i - M_ij), over the support of p."""
    return problem.cost.col_max(np.where(problem.p > 0, U, -np.inf), n_jobs)


def transforms(
    problem: Problem, h: NDArray[np.floating], n_jobs: int | None = None
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return U_i = min_j (M_ij + h_j), for an h that is infinite off the support of q, and the c-transform of U."""
    U = problem.cost.row_min(h, n_jobs)
    return U, lower_potential(problem, U, n_jobs)


def _check_reachable(problem: Problem, names: tuple[str, str]) -> None:
    """Refuse problems in which a point with weight has no finite cost to any point with weight."""
    cost = problem.cost
    U = cost.row_min(np.where(problem.q > 0, 0.0, np.inf))
    _check_finite(U, problem.p, "row", names)
    _check_finite(cost.col_max(np.where(problem.p > 0, 0.0, -np.inf)), problem.q, "column", names[::-1])


def _check_finite(potential: NDArray[np.floating], mass: Weights, what: str, names: tuple[str, str]) -> None:
    """Refuse potentials that are infinite where there is weight."""
    unreachable = np.argwhere(~np.isfinite(potential) & (mass > 0))
    if len(unreachable):
        b, i = unreachable[0]
        raise ValueError(
            f"cost: {what} {i} has weight in {names[0]} (row {b}) but only infinite costs to the points of {names[1]} "
            "that have weight"
        )
