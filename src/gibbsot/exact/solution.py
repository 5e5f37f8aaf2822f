"""What a solver knows of one transport problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .certificate import PROVED, Certificate, warn_of_gaps

_DUST = 2.0**-51  # of a weight: what rounding of the weights may leave as mass

INFEASIBLE = "cost: infinite costs forbid every plan between these measures; expected a feasible problem"


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan and potentials of one problem, with the bounds that they prove.

    Measures are normalised: the plan has mass one.

    Attributes
    ----------
    value : float
        The cost of the plan.
    lower, upper : float
        Bounds of W, rounded outwards.
    status : str
        "optimal", "gap reached", "budget spent" or "gap open": see `certificate.status`.
    f, g : arrays of shape (m1,) and (m2,)
        Potentials with ``f_i + g_j <= M_ij`` for all pairs, points without weight included, up to their own rounding:
        the lower bound may have been proved with potentials of twice the digits.
    plan : scipy.sparse.csr_array of shape (m1, m2)
        A coupling; a vertex has at most m1 + m2 - 1 entries. Where ``upper`` is infinite there is none yet, and this is
        the part that uses no forbidden pairs, of less mass.
    scale : float
        The sum of the absolute terms of the value, ``<plan, |M|>``.
    rounds : int
        How often arcs were added and the simplex was run; 0 if a coarser level reached the gap.
    reason : str
        Why the gap is open, if it is.
    """

    value: float
    lower: float
    upper: float
    status: str
    f: NDArray[np.float64]
    g: NDArray[np.float64]
    plan: Any
    scale: float
    rounds: int = 1
    reason: str = ""

    @classmethod
    def of(
        cls, found: Certificate, state: str, f: NDArray[np.float64], g: NDArray[np.float64], plan: Any, rounds: int = 1
    ) -> Solution:
        """Return a solution with the numbers of a certificate."""
        return cls(found.value, found.lower, found.upper, state, f, g, plan, found.scale, rounds, found.reason)

    @property
    def basis(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Rows and columns of arcs from which a similar problem may start: those of the plan."""
        arcs = self.plan.tocoo()
        return arcs.row.astype(np.int32), arcs.col.astype(np.int32)

    @property
    def certificate(self) -> Certificate:
        """Bounds, value, scale and reason."""
        return Certificate(self.lower, self.upper, self.value, self.scale, self.reason)

    @property
    def gap(self) -> float:
        """The certified gap relative to ``scale``; 0 where the bounds agree."""
        return self.certificate.gap

    @property
    def optimal(self) -> bool:
        """Whether the status is "optimal"."""
        return self.status == "optimal"


def plan_of(
    i: NDArray[np.integer],
    j: NDArray[np.integer],
    mass: NDArray[np.float64],
    costs: NDArray[np.floating],
    p: NDArray[np.float64],
    q: NDArray[np.float64],
) -> sparse.csr_array:
    """Return a plan without dust: masses that only the rounding of the weights leaves.

    Such a mass is at most two units in the last place of both its row and its column. It is part of the value, but no
    entry of the plan unless it costs something.

    Examples
    --------
    >>> import numpy as np
    >>> i, ones, half = np.array([0, 0, 1]), np.ones(3), np.array([0.5, 0.5])
    >>> plan_of(i, np.array([0, 1, 1]), np.array([0.5, 1e-17, 0.5]), ones, half, half).nnz
    2
    """
    if not np.isfinite(costs).all():  # these have no place in a plan: it is not complete
        allowed = np.isfinite(costs)
        i, j, mass, costs = i[allowed], j[allowed], mass[allowed], costs[allowed]
    weight = np.minimum((p / p.sum())[i], (q / q.sum())[j])
    terms = mass * np.abs(costs)
    kept = (mass > _DUST * weight) | (terms > _DUST / 2 * terms.sum())
    return sparse.csr_array(sparse.coo_array((mass[kept], (i[kept], j[kept])), shape=(len(p), len(q))))


def warn_of_open_gaps(solutions: list[Solution]) -> None:
    """Warn of problems whose gap stays open."""
    states = [one.status for one in solutions]
    if any(state not in PROVED for state in states):
        warn_of_gaps([one.gap for one in solutions], states, [one.reason for one in solutions])
