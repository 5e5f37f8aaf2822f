"""Mass that may be left over: partial transport as a balanced problem with one more point on either side.

The new point of a side takes what the other side leaves over. With a penalty c its costs are c, and 0 between the two
new points; with a given mass they are 0, and infinite between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import native, validation
from ..core.costs import BorderedCost, Cost, DenseCost
from ..core.problems import Problem
from .certificate import Certificate
from .exact import DISTANCE_PAIRS
from .results import OTResult
from .solution import Solution

Weights = NDArray[np.float64]


def partial_problem(
    p: tuple[Weights, Weights], q: tuple[Weights, Weights], cost: Cost, penalty: float | None, mass: float | None,
    exact: bool = False,
) -> Problem:  # fmt: skip
    """Return balanced problems with one more point on either side.

    Parameters
    ----------
    p, q : pairs of arrays of shape (n, m1) and (n,), and (n, m2) and (n,)
        Weights and masses of the measures.
    cost : Cost
        The cost, of shape (m1, m2).
    penalty : float, optional
        The cost of a unit of mass that is not transported, on either side.
    mass : float, optional
        The mass that is transported, if there is no penalty.
    exact : bool
        Whether the problem is solved exactly: distances of many points then have no matrix.

    Returns
    -------
    Problem
        Of shape (m1 + 1, m2 + 1).

    Raises
    ------
    ValueError
        If both or neither of penalty and mass are given, or the mass is more than a measure has.
    """
    if (penalty is None) == (mass is None):
        raise ValueError("mass: expected either mass or penalty, got both")
    (a, a_sum), (b, b_sum) = p, q
    if mass is not None:
        least = min(a_sum.min(), b_sum.min())
        if validation.nonnegative(mass, "mass") > least * (1 + 1e-12) or mass == 0:
            raise ValueError(f"mass: expected a positive number of at most {least:.9g}, the least mass; got {mass!r}")
        border = 0.0, np.inf
    else:
        border = _penalty(penalty), 0.0
    spare = [np.maximum(x - (mass or 0.0), 0.0) for x in (b_sum, a_sum)]
    large = exact and is_large(cost) and np.min(spare) > 0
    more = BorderedCost(cost, *border) if large else _with_points(cost, *border)
    return _spare_problem((a, b), spare, more)


def is_large(cost: Cost) -> bool:
    """Tell whether the exact solver needs no matrix for this cost, and is faster without."""
    geometry = cost.geometry() if cost.shape[0] * cost.shape[1] > DISTANCE_PAIRS else None
    return geometry is not None and geometry.power in (1, 2) and native.kernels() is not None


def penalty_cost(cost: Cost, penalty: Any) -> DenseCost:
    """Return a cost with one more point on either side, which costs the penalty, and nothing to the other one."""
    return _with_points(cost, _penalty(penalty), 0.0)


def _penalty(penalty: Any) -> float:
    """Return a penalty that was checked."""
    if not np.isfinite(validation.number(penalty, "penalty")):
        raise ValueError(f"penalty: expected a finite number, got {penalty!r}")
    return float(penalty)


def penalty_problem(p: tuple[Weights, Weights], q: tuple[Weights, Weights], cost: Cost) -> Problem:
    """Return balanced problems for the weights and masses of measures, and a cost that `penalty_cost` made."""
    return _spare_problem((p[0], q[0]), [q[1], p[1]], cost)


def least_value(cost: Cost, penalty: float | None) -> float:
    """Return the least value of problems of mass one, or a lower bound of it."""
    return cost.least() if penalty is None else min(cost.least(), 2 * penalty) / 2


def without_points(problem: Problem, solutions: list[Solution]) -> list[Solution]:
    """Return the solutions of `penalty_problem` for the masses given, without the additional points."""
    result = PartialResult(problem, solutions, None, 0.0)
    (f, g), plans = result.potentials, result._plans
    lower, upper, value = (x.tolist() for x in (result.lower_bound, result.upper_bound, result.value))
    found = []
    for b, one in enumerate(solutions):
        numbers = Certificate(lower[b], upper[b], value[b], problem.mass.item(b) * one.scale, one.reason)
        found.append(Solution.of(numbers, one.status, f[b], g[b], plans[b], one.rounds))
    return found


def _with_points(cost: Cost, outer: float, corner: float) -> DenseCost:
    """Return a cost with one more point on either side, the costs to it, and the cost between the two."""
    C = np.full((cost.shape[0] + 1, cost.shape[1] + 1), outer)
    C[:-1, :-1], C[-1, -1] = cost.matrix(), corner
    return DenseCost(C, cost.dtype)


def _spare_problem(weights: tuple[Weights, Weights], spare: Sequence[Weights], cost: Cost) -> Problem:
    """Return problems with one more point on either side that has the spare mass."""
    p, q = (np.column_stack([x, y]) for x, y in zip(weights, spare, strict=True))
    return Problem.checked(p, q, cost, p.sum(axis=1))


class PartialResult(OTResult):
    """The result of `solve` where mass may be left over.

    Attributes
    ----------
    value, lower_bound, upper_bound, gap, status, seconds
        As of `OTResult`. With ``penalty=c`` the value is ``<plan, M>`` plus c for every unit that is left over, on
        either side; with ``mass=s`` it is ``<plan, M>``.
    plan : scipy.sparse.csr_array of shape (m1, m2)
        What is transported: its marginals are at most p and q.
    potentials : pair of arrays of shape (m1,) and (m2,)
        f and g with ``f_i + g_j + multiplier <= M_ij`` for all pairs; ``f_i, g_j <= c`` with a penalty and at most 0
        with a given mass s. ``<p, f> + <q, g> + multiplier s`` is the lower bound.
    multiplier : float
        The cost of one more unit of mass, with ``mass=s``; 0 with a penalty.
    transported : float
        The mass of the plan.
    problem, solutions
        As of `OTResult`, for the balanced problem with one more point on either side.
    """

    @property
    def _size(self) -> str:
        """The sizes of the measures, without the additional points."""
        m1, m2 = self.problem.cost.shape
        return f"{m1 - 1} x {m2 - 1} points"

    @property
    def _plans(self) -> list[Any]:
        """What is transported, of all problems."""
        return [plan[:-1, :-1] for plan in super()._plans]

    @property
    def transported(self) -> Any:
        """The mass of the plan."""
        return self._number(np.array([float(plan.sum()) for plan in self._plans]))

    @cached_property
    def potentials(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Potentials of the points of p and q."""
        f, g = np.stack([s.f for s in self.solutions]), np.stack([s.g for s in self.solutions])
        f, g = f[:, :-1] + g[:, -1:], g[:, :-1] + f[:, -1:]
        return self._one_or_all(f), self._one_or_all(g)

    @property
    def multiplier(self) -> Any:
        """The cost of one more unit of mass."""
        given = np.isinf(self.problem.cost.at(*(m - 1 for m in self.problem.cost.shape)))
        both = np.array([s.f[-1] + s.g[-1] for s in self.solutions])
        return self._number(-both if given else np.zeros(len(both)))
