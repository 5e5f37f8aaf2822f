"""What a solver knows of one transport problem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.warn import warn

RELATIVE_GAP, POTENTIAL_GAP = 1e-10, 1e-12  # the largest gap of an optimum, relative to the value and the potentials

INFEASIBLE = "cost: infinite costs forbid every plan between these measures; expected a feasible problem"

PROVED = ("optimal", "gap reached")  # the states in which a solver ends as it should


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
        "optimal" where the bounds differ by at most 1e-10 of the value plus 1e-12 of the spread of the potentials.
        Otherwise "gap reached" if a gap was asked for, "gap open" (no arc is violated, but rounding leaves a gap) or
        "rounds ran out".
    f, g : arrays of shape (m1,) and (m2,)
        Potentials with ``f_i + g_j <= M_ij`` for all pairs, points without weight included.
    plan : scipy.sparse.csr_array of shape (m1, m2)
        A coupling; a vertex has at most m1 + m2 - 1 entries.
    rounds : int
        How often arcs were added and the simplex was run; 0 if a coarser level reached the gap.
    """

    value: float
    lower: float
    upper: float
    status: str
    f: NDArray[np.float64]
    g: NDArray[np.float64]
    plan: Any
    rounds: int = 1

    @property
    def basis(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Rows and columns of arcs from which a similar problem may start: those of the plan."""
        arcs = self.plan.tocoo()
        return arcs.row.astype(np.int32), arcs.col.astype(np.int32)

    @property
    def gap(self) -> float:
        """The certified gap relative to the value; infinite where that is zero."""
        return (self.upper - self.lower) / abs(self.value) if self.value else math.inf

    @property
    def optimal(self) -> bool:
        """Whether the status is "optimal"."""
        return self.status == "optimal"


def status(lower: float, upper: float, size: float) -> str:
    """Return "optimal" where the bounds agree to the documented tolerance, else "gap open"."""
    if not math.isfinite(upper):  # a plan with forbidden arcs
        return "gap open"
    return "optimal" if upper - lower <= RELATIVE_GAP * abs(upper) + POTENTIAL_GAP * size else "gap open"


def warn_of_open_gaps(solutions: list[Solution], gaps: list[float] | None = None) -> None:
    """Warn of problems whose gap stays open. Gaps by other bounds may be given."""
    open_gaps = [b for b, solution in enumerate(solutions) if solution.status not in PROVED]
    if not open_gaps:
        return
    from sklearn.exceptions import ConvergenceWarning  # loading scikit-learn takes a second

    worst = max(solutions[b].gap if gaps is None else gaps[b] for b in open_gaps)
    if any(solutions[b].status == "budget spent" for b in open_gaps):
        advice = "Allow more time or memory, or ask for a gap"
    else:
        advice = "Scale or shift the costs so that rounding matters less"
    warn(
        f"{len(open_gaps)} of {len(solutions)} problems ended with an open gap, the largest is {worst:.1e} of the "
        f"value; the bounds of the result are valid. {advice}",
        ConvergenceWarning,
    )
