"""Mass that may be left over: partial transport as a balanced problem with additional points on either side.

The additional points of a side take what the other side leaves over. With a penalty c their costs are c, and 0 between
two of them; with a given mass they are 0, and infinite between two of them.

The balanced problem is exactly the one asked for. What is left over is a difference of sums, which is no double in
general: it is the sum of a few positive doubles, and each of them is the weight of a point of its own. One point is
enough where the difference is a double, and most often two are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core import validation
from ..core.backend import backend
from ..costs import BorderedCost, Cost, DenseCost
from ..costs.problems import Problem
from ..exact.certificate import Certificate
from ..exact.coarse_to_fine import CoarseToFine
from ..exact.solution import Solution
from . import masses

Weights = NDArray[np.float64]

_LEAST_SHARE = 2.0**-960  # of a mass that is transported: plans of mass one must have its digits


class PartialProblem(Problem):
    """Balanced problems with additional points, which are the last of either side.

    Attributes
    ----------
    p, q, cost, given, mass
        As of `Problem`, with the additional points.
    size : pair of int
        The numbers of points without them.
    """

    _size: tuple[int, int]

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of points without the additional ones."""
        return self._size

    @classmethod
    def of(cls, p: Weights, q: Weights, cost: Cost, size: tuple[int, int]) -> PartialProblem:
        """Return problems of weights that include those of the additional points."""
        made = cls.checked(p, q, cost, np.array([_total(row, "p, q") for row in p.tolist()]))
        assert isinstance(made, PartialProblem)
        made._size = size
        return made

    def __getitem__(self, rows: slice) -> PartialProblem:
        p, q = self.given
        return PartialProblem.of(p[rows], q[rows], self.cost, self.size)

    def with_cost(self, cost: Cost) -> PartialProblem:
        return PartialProblem.of(*self.given, cost, self.size)


def partial_problem(
    p: tuple[Weights, Weights], q: tuple[Weights, Weights], cost: Cost, penalty: float | None, mass: float | None,
    exact: bool = False,
) -> PartialProblem:  # fmt: skip
    """Return balanced problems with additional points on either side.

    Parameters
    ----------
    p, q : pairs of arrays of shape (n, m1) and (n,), and (n, m2) and (n,)
        Weights and masses of the measures.
    cost : Cost
        The cost, of shape (m1, m2).
    penalty : float, optional
        The cost of a unit of mass that is not transported, on either side.
    mass : float, optional
        The mass that is transported, if there is no penalty. One that exceeds the sum of a measure by at most 1e-12
        of it, as sums of rounded weights may be, is that sum.
    exact : bool
        Whether the problem is solved exactly: distances of many points then have no matrix, and costs are in double
        precision.

    Returns
    -------
    PartialProblem

    Raises
    ------
    ValueError
        If both or neither of penalty and mass are given, the mass is more than a measure has or vanishes beside it, or
        sums are beyond the range of doubles.
    """
    if (penalty is None) == (mass is None):
        raise ValueError("mass: expected either mass or penalty, got both")
    (a, a_sum), (b, b_sum) = p, q
    if mass is not None:
        least = min(a_sum.min(), b_sum.min())
        if validation.nonnegative(mass, "mass") > least * (1 + 1e-12) or mass == 0:
            raise ValueError(f"mass: expected a positive number of at most {least:.9g}, the least mass; got {mass!r}")
        most = max(a_sum.max(), b_sum.max())
        if mass < _LEAST_SHARE * most:
            raise ValueError(
                f"mass: {mass:.3g} beside a mass of {most:.3g} is beyond the range of float64; expected a larger share"
            )
        border = 0.0, np.inf
        spare = [_left_over(x, y, float(mass)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    else:
        border = _penalty(penalty), 0.0
        spare = [_exchanged(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    rows, columns = (_padded([one[side] for one in spare]) for side in (0, 1))
    extra = rows.shape[1], columns.shape[1]
    cost = cost.astype(np.float64) if exact else cost
    spare_mass = bool(rows[:, 0].all() and columns[:, 0].all())  # which coarse to fine needs
    if exact and _needs_no_matrix(cost, spare_mass):
        more: Cost = BorderedCost(cost, *border, extra)
    else:
        more = _with_points(cost, *border, extra)
    return PartialProblem.of(np.column_stack([a, rows]), np.column_stack([b, columns]), more, cost.shape)


def is_large(cost: Cost) -> bool:
    """Tell whether the exact solver needs no matrix for this cost, and is faster without."""
    return cost.shape[0] * cost.shape[1] > CoarseToFine.least and cost.searchable


def _needs_no_matrix(cost: Cost, spare_mass: bool) -> bool:
    """Tell whether the cost itself is used: if that is faster, or if a matrix would round its entries."""
    small = cost.shape[0] * cost.shape[1] <= CoarseToFine.least and not isinstance(cost, DenseCost)
    return (is_large(cost) and spare_mass) or (small and backend().has_simplex)


class _Spare(NamedTuple):
    """The weights of the additional rows and columns of a problem."""

    rows: list[float]
    columns: list[float]


def _left_over(p: list[float], q: list[float], mass: float) -> _Spare:
    """Return what both sides leave over of a mass, exactly; each side takes what the other one leaves."""
    moved = [mass]
    if _sum(p, [mass]) < 0 or _sum(q, [mass]) < 0:  # by the rounding of sums: then it is the lesser of them
        moved = p if _sum(p, q) <= 0 else q
    return _Spare(_parts(q, moved), _parts(p, moved))


def _exchanged(p: list[float], q: list[float]) -> _Spare:
    """Return masses of additional points for a penalty.

    They may be larger than what the other side can leave over, as mass between two of them costs nothing. So the lesser
    side is rounded up to a double, and only the difference of the sums must be exact.
    """
    less, more = (p, q) if _sum(p, q) <= 0 else (q, p)
    enough = math.fsum(less)
    if _sum(less, [enough]) > 0:
        enough = math.nextafter(enough, math.inf)
    exact = _parts([enough, *more], less)
    return _Spare(exact, [enough]) if more is q else _Spare([enough], exact)


def _parts(plus: list[float], minus: list[float]) -> list[float]:
    """Return positive doubles, largest first, whose exact sum is a difference of sums that is not negative.

    Examples
    --------
    >>> _parts([1e16, 0.5], [0.1])
    [1e+16, 0.39999999999999997, 2.7755575615628914e-17]
    """
    found: list[float] = []
    while (rest := _sum(plus, [*minus, *found])) > 0:
        if _sum(plus, [*minus, *found, rest]) < 0:  # rounded up
            rest = math.nextafter(rest, 0.0)
        found.append(rest)
    return found


def _sum(plus: list[float], minus: list[float]) -> float:
    """Return a difference of sums, rounded once: its sign is exact."""
    try:
        return math.fsum([*plus, *(-x for x in minus)])
    except OverflowError:
        return _total([*plus, *(-x for x in minus)], "p, q")


def _total(weights: list[float], name: str) -> float:
    """Return a sum, rounded once, and refuse one that overflows."""
    try:
        return math.fsum(weights)
    except OverflowError:
        raise ValueError(
            f"{name}: the mass of both measures is beyond the range of float64; scale the weights"
        ) from None


def _padded(parts: list[list[float]]) -> Weights:
    """Return weights as rows of one length, at least one; additional points of other problems have weight zero."""
    found = np.zeros((len(parts), max(1, *map(len, parts))))
    for row, own in zip(found, parts, strict=True):
        row[: len(own)] = own
    return found


def penalty_cost(cost: Cost, penalty: Any) -> DenseCost:
    """Return a cost with one more point on either side, which costs the penalty, and nothing to the other one."""
    return _with_points(cost, _penalty(penalty), 0.0, (1, 1))


def _penalty(penalty: Any) -> float:
    """Return a penalty that was checked."""
    if not np.isfinite(validation.number(penalty, "penalty")):
        raise ValueError(f"penalty: expected a finite number, got {penalty!r}")
    return float(penalty)


def penalty_problem(p: tuple[Weights, Weights], q: tuple[Weights, Weights], cost: Cost) -> Problem:
    """Return problems of chains for the weights and masses of measures, and a cost that `penalty_cost` made.

    Both sides have one additional point, whose weight is rounded: for estimates, which prove nothing.
    """
    a, b = np.column_stack([p[0], q[1]]), np.column_stack([q[0], p[1]])
    return Problem.checked(a, b, cost, a.sum(axis=1))


def least_value(cost: Cost, penalty: float | None) -> float:
    """Return the least value of problems of mass one, or a lower bound of it."""
    return cost.least() if penalty is None else min(cost.least(), 2 * penalty) / 2


def refitted(x: NDArray[Any], problem: Problem, side: int) -> NDArray[Any]:
    """Return potentials, as rows, for as many additional points as a side of the problem has.

    They come from a problem of the same size with other weights, whose left over mass had more or fewer parts. All
    additional points of a side have the same costs, and so the same potential.
    """
    m, n = problem.size[side], problem.cost.shape[side]
    return x if x.shape[1] == n else np.concatenate([x[:, :m], np.repeat(x[:, m : m + 1], n - m, axis=1)], axis=1)


class Arcs(NamedTuple):
    """Arcs from which a problem may start, as `Solution` has them."""

    basis: tuple[NDArray[np.int32], NDArray[np.int32]]


def refitted_arcs(solutions: Sequence[Any], problem: Problem) -> list[Any]:
    """Return the bases of solutions, without those additional points that the problem has not."""
    (m1, m2), found = problem.cost.shape, []
    for i, j in (one.basis for one in solutions):
        kept = (i < m1) & (j < m2)
        found.append(Arcs((i[kept], j[kept])))
    return found


def without_points(problem: PartialProblem, solutions: list[Solution]) -> list[Solution]:
    """Return the solutions of `partial_problem` for the masses given, without the additional points."""
    (f, g), plans = outer_potentials(problem, solutions), transported_plans(problem, solutions)
    (lower, upper), value = masses.bounds(problem, solutions), masses.values(problem, solutions)
    found = []
    for b, one in enumerate(solutions):
        numbers = Certificate(lower[b], upper[b], value[b], problem.mass.item(b) * one.scale, one.reason)
        found.append(Solution.of(numbers, one.status, f[b], g[b], plans[b], one.rounds))
    return found


def _with_points(cost: Cost, outer: float, corner: float, extra: tuple[int, int]) -> DenseCost:
    """Return a cost with more points on either side, the costs to them, and the cost between two of them."""
    m1, m2 = cost.shape
    C = np.full((m1 + extra[0], m2 + extra[1]), outer)
    C[:m1, :m2], C[m1:, m2:] = cost.matrix(), corner
    return DenseCost(C, cost.dtype)


def transported_plans(problem: Problem, solutions: Sequence[Solution]) -> list[Any]:
    """Return what is transported, of the masses given, without the additional points."""
    m1, m2 = problem.size
    plans = [plan[:m1, :m2] for plan in masses.plans(problem, [one.plan for one in solutions])]
    for b, one in enumerate(solutions):
        if np.isinf(one.upper):  # there is no plan yet
            plans[b] = sparse.csr_array((m1, m2))
    for plan in plans:
        plan.eliminate_zeros()  # masses that are below the range of doubles
    return plans


def outer_potentials(problem: Problem, solutions: Sequence[Solution]) -> tuple[Weights, Weights]:
    """Return potentials of the points of p and q."""
    m1, m2 = problem.size
    f, g = np.stack([one.f for one in solutions]), np.stack([one.g for one in solutions])
    return f[:, :m1] + g[:, m2 : m2 + 1], g[:, :m2] + f[:, m1 : m1 + 1]


def multipliers(problem: Problem, solutions: Sequence[Solution]) -> list[float]:
    """Return the costs of one more unit of mass: zero with a penalty."""
    m1, m2 = problem.size
    given = np.isinf(problem.cost.at(m1, m2))
    return [-float(one.f[m1] + one.g[m2]) if given else 0.0 for one in solutions]
