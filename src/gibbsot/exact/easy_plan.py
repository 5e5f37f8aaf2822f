"""A plan that avoids forbidden pairs, where one is easily found: for budgets that were spent before there was any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs.base import Counts
from .certificate import concluded, plan_bounds
from .simplex import staircase
from .solution import Solution, plan_of

Array = NDArray[np.float64]


def with_easy_plan(
    found: Solution, p: Array, q: Array, forbidden: Counts, at: Callable[..., Any], gap: float = 0.0,
    relative: float = 0.0, absolute: float = 0.0,
) -> Solution:  # fmt: skip
    """Return a solution with a plan that avoids forbidden pairs, if the first one that comes to mind does.

    It fills columns in order from rows in order, with those first that have the most forbidden pairs among the rows,
    and those last among the columns. So additional points, which only the others may use, never meet.

    Parameters
    ----------
    found : Solution
        A solution whose upper bound is infinite.
    p, q : arrays of shape (m1,) and (m2,)
        Weights.
    forbidden : pair of arrays of int
        How many pairs of each row and column are forbidden: see `Cost.forbidden`.
    at : callable
        The costs of pairs.
    gap : float
        The relative gap that is enough.
    relative, absolute : float
        How far costs may be off.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.exact.certificate import Certificate
    >>> p, C = np.array([1.0, 2.0]), np.array([[1.0, 1.0], [1.0, np.inf]])
    >>> none = Solution.of(Certificate(0.0, np.inf, np.inf, np.inf), "budget spent", p, p, None)
    >>> with_easy_plan(none, p, p[::-1], (np.array([0, 1]), np.array([0, 1])), lambda i, j: C[i, j]).value
    1.0
    """
    rows, columns = np.flatnonzero(p), np.flatnonzero(q)
    rows = rows[np.argsort(-forbidden[0][rows], kind="stable")]
    columns = columns[np.argsort(forbidden[1][columns], kind="stable")]
    i, j, mass = staircase(p[rows], q[columns])
    i, j, mass = rows[i[mass > 0]], columns[j[mass > 0]], mass[mass > 0]
    costs = np.asarray(at(i, j), np.float64)
    if not np.isfinite(costs).all():
        return found
    proof = plan_bounds(mass, costs, 4, found.lower).widened(relative, absolute)
    proof = replace(proof, lower=found.lower)
    plan = plan_of(i, j, mass, costs, p, q)
    return Solution.of(*concluded(proof, gap=gap, spent=True), found.f, found.g, plan, found.rounds)
