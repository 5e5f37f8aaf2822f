"""Exact plans between two clouds of points by the fastest solver."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from ..core.costs import PointCost
from .exact import cross
from .gradients import weighted_problem
from .solution import warn_of_open_gaps

Array = NDArray[np.float64]
Arcs = tuple[NDArray[np.int64], NDArray[np.int64], Array]

_ASSIGNMENT = 256  # points up to which SciPy's assignment solver is faster


def coupling(x: Array, y: Array, p: Array | None, q: Array | None, metric: str) -> Arcs:
    """Return rows, columns and masses of an optimal plan of mass one, in the order of the rows.

    Parameters
    ----------
    x, y : arrays of shape (m1, d) and (m2, d)
        The points.
    p, q : arrays of shape (m1,) and (m2,), or None
        The weights; None for uniform ones.
    metric : {"sqeuclidean", "euclidean"}
        The distance.

    Returns
    -------
    i, j, mass : arrays of shape (k,)

    Examples
    --------
    >>> import numpy as np
    >>> coupling(np.array([[0.0], [1.0]]), np.array([[1.1], [0.1]]), None, None, "sqeuclidean")
    (array([0, 1]), array([1, 0]), array([0.5, 0.5]))
    """
    if p is None and q is None and len(x) == len(y) <= _ASSIGNMENT:
        i, j = linear_sum_assignment(cdist(x, y, metric))
        return i, j, np.full(len(i), 1 / len(i))
    p, q = np.ones(len(x)) / len(x) if p is None else p, np.ones(len(y)) / len(y) if q is None else q
    pair = weighted_problem(p[None] / p.sum(), q[None] / q.sum(), PointCost(x, y, metric), None, 1e-6)
    solutions = cross(pair)
    warn_of_open_gaps(solutions, stacklevel=3)
    plan = solutions[0].plan.tocoo()
    return plan.row.astype(np.int64), plan.col.astype(np.int64), plan.data
