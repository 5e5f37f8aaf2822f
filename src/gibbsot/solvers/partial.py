"""Mass that may be left over: partial transport as a balanced problem with one more point on either side.

The new point of a side takes what the other side leaves over. With a penalty c its costs are c, and 0 between the two
new points; with a given mass they are 0, and infinite between the two.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import validation
from ..core.costs import Cost, DenseCost
from ..core.problems import Problem
from .results import OTResult

Weights = NDArray[np.float64]


def partial_problem(
    p: tuple[Weights, Weights], q: tuple[Weights, Weights], cost: Cost, penalty: float | None, mass: float | None
) -> Problem:
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
        outer, corner = 0.0, np.inf
    else:
        outer, corner = validation.number(penalty, "penalty"), 0.0
        if not np.isfinite(outer):
            raise ValueError(f"penalty: expected a finite number, got {penalty!r}")
    C = np.full((cost.shape[0] + 1, cost.shape[1] + 1), outer)
    C[:-1, :-1], C[-1, -1] = cost.matrix(), corner
    spare = [np.maximum(x - (mass or 0.0), 0.0) for x in (b_sum, a_sum)]
    given = [np.column_stack([x, y]) for x, y in zip((a, b), spare, strict=True)]
    return Problem.checked(given[0], given[1], DenseCost(C, cost.dtype), given[0].sum(axis=1))


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
    problem, solved, sample, single
        As of `OTResult`, for the balanced problem with one more point on either side.
    """

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
