"""Why infinite costs forbid every plan: parts of the points that must exchange all their mass, and do not match."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ..costs.problems import Problem

_ROUNDING = 1e-9  # the largest difference, relative to the mass, that is taken for rounding


def rounded_apart(problem: Problem) -> str | None:
    """Return what to say of an infeasible problem whose parts match but for rounding, None if none is such a one.

    Infinite costs may split the points into parts without a finite cost between them. A plan exists only if both sides
    of each part have the same mass, which sums of rounded weights rarely have.

    Parameters
    ----------
    problem : Problem
        The problems, of which at least one has no plan.

    Returns
    -------
    str or None

    Examples
    --------
    >>> from gibbsot import DenseCost, Problem
    >>> apart = DenseCost([[0.0, np.inf], [np.inf, 0.0]])
    >>> rounded_apart(Problem([0.1 + 0.2, 0.7], [0.3, 0.7], apart))
    'p, q: infinite costs split the points into 2 parts, of which the masses on either side differ by 5.6e-17, ...
    >>> rounded_apart(Problem([0.4, 0.6], [0.3, 0.7], apart)) is None
    True
    """
    if not problem.cost.has_matrix:
        return None
    for b in range(len(problem)):
        p, q = (x[b] for x in problem.given)
        rows, columns = np.flatnonzero(p), np.flatnonzero(q)
        finite = sparse.csr_array(np.isfinite(problem.cost.matrix(rows, columns)))
        n, part = sparse.csgraph.connected_components(sparse.block_array([[None, finite], [finite.T, None]]))
        sent, received = (
            np.bincount(one, x, n) for one, x in zip(np.split(part, [len(rows)]), (p[rows], q[columns]), strict=True)
        )
        apart = float(np.abs(sent - received).max())
        if n > 1 and 0 < apart <= _ROUNDING * float(p.sum()):
            return (
                f"p, q: infinite costs split the points into {n} parts, of which the masses on either side differ by "
                f"{apart:.2g}, as rounding leaves them; expected equal masses in each part (problem {b})"
            )
    return None
