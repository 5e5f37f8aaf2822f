"""Costs so large that no plan worth its name pays them, and that only take digits from the others.

Potentials below costs that were lowered are below the costs themselves. So a lower bound for lowered costs is one of W,
and a plan that uses none of the lowered costs is as good as it was. Where clusters are far apart and every one has its
own balance, nothing else is needed: the potentials of all are then of the size of the costs that are paid.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..io.budget import Budget
from .simplex import DenseSolutions, solve_dense

Array = NDArray[np.float64]

_FAR = 2.0**20  # times the largest cost of a plan: costs that take too many digits
_CAP = 2.0**8  # to which these are lowered: far more than detours cost, with digits to spare


def cap(paid: Array, largest: float) -> float:
    """Return to what costs may be lowered, infinite where none is far larger than the costs that a plan pays.

    Parameters
    ----------
    paid : array
        The costs of the arcs of a plan.
    largest : float
        The largest cost, which may be infinite.

    Examples
    --------
    >>> import numpy as np
    >>> cap(np.array([1.0, 2.0]), 1e12), cap(np.array([1.0, 2.0]), 1e3)
    (512.0, inf)
    """
    most = float(np.abs(paid).max(initial=0.0))
    return _CAP * most if 0 < most * _FAR < largest else np.inf


def solve_capped(
    answers: DenseSolutions, b: int = 0, budget: Budget | None = None, accuracy: float = 0.0, underflow: float = 0.0
) -> DenseSolutions | None:
    """Return the solution of problem b with far costs lowered, if its plan uses none of them.

    Parameters
    ----------
    answers : DenseSolutions
        Solutions on all arcs of a matrix.
    b : int
        The problem.
    budget : Budget, optional
        Its time.
    accuracy, underflow : float
        As for `solve_dense`.

    Returns
    -------
    DenseSolutions or None

    Examples
    --------
    >>> import numpy as np
    >>> C = np.array([[1.0, 1e32], [1e32, 3.0]])
    >>> again = solve_capped(solve_dense(C, np.ones(2), np.ones(2)))
    >>> float(again.lower[0].round(9)), float(np.abs(again.f).max()) < 1e4
    (2.0, True)
    """
    C, p, q = answers.problem(b)
    i, j, _ = answers.arcs(b)
    most = cap(C[i, j], float(C.max()))
    if not np.isfinite(most):
        return None
    start = answers.basis[0][b], answers.basis[1][b]
    again = solve_dense(np.minimum(C, most), p, q, True, 1, start, budget, accuracy, underflow)
    i, j, _ = again.arcs()
    return again if (C[i, j] <= most).all() else None
