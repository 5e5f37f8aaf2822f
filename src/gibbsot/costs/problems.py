"""Transport problems: pairs of measures and a cost."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import labels, validation
from . import Cost, as_cost

Weights = NDArray[np.float64]

_ONE = np.ones(1)
_ONE.flags.writeable = False


class Problem:
    """A batch of transport problems with one cost: row b of ``p`` to row b of ``q``.

    Both measures of a pair are divided by their own sum if the two sums agree, or with ``normalize=True``.

    Parameters
    ----------
    p, q : arrays, lists or sparse matrices of shape (m1,) or (n, m1), and (m2,) or (n, m2), or None
        Measures as rows of weights; one measure is paired with all of the other side. On a grid a measure may have the
        shape of the grid. None: uniform weights of the mass of the other side, or of mass one. Labels of pandas are
        used as `solve` says.
    cost : Cost or array of shape (m1, m2)
        The cost.
    normalize : bool
        Whether the measures may have different sums, and the mass of the problems is one.
    names : pair of str
        What the caller calls the measures, for messages.

    Attributes
    ----------
    p, q : arrays of float64, shape (n, m1) and (n, m2)
        Normalised weights; each row sums to one. A zero weight masks the point.
    cost : Cost
        The cost.
    given : pair of arrays of float64, shape (n, m1) and (n, m2)
        The weights before they were normalised. Exact solvers use these, taken as exact numbers.
    mass : array of shape (n,)
        The mass that each problem transports: the sum of its row of ``given[0]``, or one if only the normalised
        measures matter.
    unit : bool
        Whether these are one by definition, and no rounded sums.
    averages : bool
        Whether the cost of a plan of mass one is a mean of costs, so that the least cost is a bound.

    Raises
    ------
    ValueError, TypeError
        If weights are not valid, sums differ, or infinite costs leave a point with weight unreachable.

    Examples
    --------
    >>> from gibbsot import Problem
    >>> pair = Problem([[2, 2], [1, 3]], [4, 0], [[0, 1], [1, 0]])
    >>> pair.p, pair.mass
    (array([[0.5 , 0.5 ],
           [0.25, 0.75]]), array([4., 4.]))
    """

    cost: Cost
    mass: Weights
    unit: bool
    averages = True

    def __init__(
        self,
        p: Any,
        q: Any,
        cost: Cost | ArrayLike,
        *,
        normalize: bool = False,
        names: tuple[str, str] = ("p", "q"),
    ) -> None:
        self.cost = cost = as_cost(cost)
        (first, mass), (second, other) = pairs(p, q, cost, names)
        unit = normalize or (p is None and q is None)
        if unit:
            mass = np.ones(len(first))
        else:
            m1, m2 = cost.shape
            tolerance = max(validation.sum_tolerance(p, m1), validation.sum_tolerance(q, m2))
            check_sums(mass, other, names, tolerance, "penalty=, mass= or kl=")
        self.given, self.mass, self.unit = (first, second), mass, unit
        if not cost.finite:
            _check_reachable(self, names)

    @classmethod
    def checked(
        cls, p: Weights, q: Weights, cost: Cost, mass: Weights, /, unit: bool = False, **normalised: Weights
    ) -> Self:
        """Return problems of weights that have been checked and need not be normalised.

        Parameters
        ----------
        p, q : arrays of float64, shape (n, m1) and (n, m2)
            The weights; the sums of a pair agree.
        cost : Cost
            The cost.
        mass : array of shape (n,)
            The masses.
        unit : bool
            Whether these are one by definition.
        **normalised
            The attributes p and q, if they are known.

        Returns
        -------
        Problem
        """
        made = object.__new__(cls)
        vars(made).update(normalised, given=(p, q), cost=cost, mass=mass, unit=unit)
        return made

    @classmethod
    def normalised(cls, p: Weights, q: Weights, cost: Cost) -> Self:
        """Return problems of mass one whose weights have been normalised, and are not rounded once more.

        Parameters
        ----------
        p, q : arrays of float64, shape (n, m1) and (n, m2)
            The weights; each row sums to one.
        cost : Cost
            The cost.

        Returns
        -------
        Problem
        """
        return cls.checked(p, q, cost, np.ones(len(p)), unit=True, p=p, q=q)

    @classmethod
    def uniform(cls, cost: Cost) -> Self:
        """Return one problem of mass one whose points all have the same weight; the weights are made when needed.

        Parameters
        ----------
        cost : Cost
            A finite cost.

        Returns
        -------
        Problem
        """
        made = object.__new__(cls)
        vars(made).update(cost=cost, mass=_ONE, unit=True)
        return made

    @cached_property
    def given(self) -> tuple[Weights, Weights]:
        """The weights before they were normalised."""
        m1, m2 = self.cost.shape
        return _uniform(_ONE, m1), _uniform(_ONE, m2)

    @cached_property
    def p(self) -> Weights:
        """Normalised weights of the first measures."""
        return _normalised(self.given[0], self.cost)

    @cached_property
    def q(self) -> Weights:
        """Normalised weights of the second measures."""
        return _normalised(self.given[1], self.cost)

    @property
    def between(self) -> Cost:
        """The cost between the points of the measures given; points that a solver added do not count."""
        return self.cost

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of points of the measures given; points that a solver added do not count."""
        return self.cost.shape

    def __len__(self) -> int:
        return len(self.mass)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Problem:
        p, q = self.given
        known = {name: getattr(self, name)[rows] for name in ("p", "q") if name in vars(self)}
        return Problem.checked(p[rows], q[rows], self.cost, self.mass[rows], self.unit, **known)

    def with_cost(self, cost: Cost) -> Problem:
        """Return the problems with another cost.

        Parameters
        ----------
        cost : Cost
            Of the same shape.

        Returns
        -------
        Problem
        """
        return Problem.checked(*self.given, cost, self.mass, self.unit)


def pairs(
    P: Any, Q: Any, cost: Cost, names: tuple[str, str]
) -> tuple[tuple[Weights, Weights], tuple[Weights, Weights]]:
    """Return weights and masses of both measures of each problem, with as many rows on both sides."""
    (m1, m2), (name_p, name_q) = cost.shape, names
    P, Q = labels.aligned(P, Q, cost.labels, cost.spacing is not None, names)
    try:
        if P is None and Q is None:  # of mass one both, not of the rounded sum of the other
            P, Q = _uniform(_ONE, m1), _uniform(_ONE, m2)
        if P is None:
            P = _uniform(validation.measures(Q, name_q, m2, shape=cost.col_shape)[1], m1)
        p, a = validation.measures(P, name_p, m1, shape=cost.row_shape)
        q, b = validation.measures(_uniform(a, m2) if Q is None else Q, name_q, m2, shape=cost.col_shape)
    except validation.SizeError as error:
        hint = ", is it transposed?" if m1 != m2 and _sizes(P, Q) == [(m2,), (m1,)] else ""
        raise ValueError(f"{error}; cost has shape {cost.shape}{hint}") from None
    if len(p) != len(q):
        if 1 not in (len(p), len(q)):
            raise ValueError(f"{name_q}: expected as many measures as {name_p} has ({len(p)}), or one; got {len(q)}")
        n = max(len(p), len(q))
        p, q = (np.ascontiguousarray(np.broadcast_to(x, (n, x.shape[1]))) for x in (p, q))
        a, b = np.broadcast_to(a, n), np.broadcast_to(b, n)
    return (p, a), (q, b)


def _sizes(*measures: Any) -> list[tuple[int, ...]]:
    """Return the last sides of arrays, for a hint."""
    try:
        return [np.shape(x)[-1:] for x in measures]
    except ValueError:
        return []


def _uniform(mass: Weights, size: int) -> Weights:
    """Return uniform weights of given masses."""
    return np.repeat(mass[:, None] / size, size, axis=1)


def check_sums(
    a: Weights, b: Weights, names: tuple[str, str], tolerance: float, others: str = "penalty= or kl="
) -> None:
    """Refuse measures whose masses a and b differ by more than a relative tolerance, and name what allows it."""
    # lists: a small problem takes less time than operations on arrays
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        if abs(x - y) > tolerance * x:
            row = int((abs(a - b) / a).argmax())
            raise ValueError(
                f"{names[1]}: {validation.named_row(row, len(a))}sums to {b[row]:.9g}, {names[0]} to {a[row]:.9g}; "
                f"expected sums that agree to {tolerance:.1g}, or normalize=True to divide by them, or {others} for "
                "mass that may be left over"
            )


def _normalised(x: Weights, cost: Cost) -> Weights:
    """Return rows divided by their sums; weights below the normal range of the cost's precision become zero."""
    weight = x / x.sum(axis=1, keepdims=True)
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
        where = names[0] + (f" (row {b})" if len(mass) > 1 else "")
        raise ValueError(
            f"cost: {what} {i} has weight in {where} but only infinite costs to the points of {names[1]} with weight"
        )
