"""Exact plans between two clouds of points by the fastest solver."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ..core.backend import backend
from ..costs import DenseCost, PointCost
from ..exact.all_arcs import AllArcs, proved
from ..exact.coarse_to_fine import CoarseToFine
from ..exact.simplex import solve_dense
from ..exact.solution import warn_of_open_gaps
from ..solvers.relaxed import marginals
from .gradients import weight_gradients

Array = NDArray[np.float64]
Arcs = tuple[NDArray[np.int64], NDArray[np.int64], Array]


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
    most = CoarseToFine.least if x.shape[1] <= 3 else AllArcs.most
    if len(x) * len(y) > most or not backend().has_simplex:
        return _plan(x, y, p, q, metric)
    C = _costs(x, y) if metric == "sqeuclidean" else cdist(x, y, metric)
    found = solve_dense(C, np.ones(len(x)) if p is None else p, np.ones(len(y)) if q is None else q)
    if found.status[0] == "gap open":
        solution = proved(found, 0, DenseCost(C))
        warn_of_open_gaps([solution])
        plan = solution.plan.tocoo()
        return plan.row.astype(np.int64), plan.col.astype(np.int64), plan.data
    i, j, mass = found.arcs()
    order = np.lexsort((j, i))
    return i[order].astype(np.int64), j[order].astype(np.int64), mass[order]


def _costs(x: Array, y: Array) -> Array:
    """Return costs with the same optimal plans as squared distances: minus the products of centred, scaled points.

    The squares of the lengths add the same to the cost of every plan. Products are faster to compute than distances,
    and solvers take fewer steps with them.
    """
    x, y = (z - z.mean(axis=0) for z in (x, y))
    largest = [float(np.abs(z).max()) or 1.0 for z in (x, y)]
    if not all(1e-100 < size < 1e100 for size in largest):  # products would vanish or overflow
        x, y = x / largest[0], y / largest[1]
    return -(x @ y.T)


def _plan(x: Array, y: Array, p: Array | None, q: Array | None, metric: str) -> Arcs:
    """Return the plan of a large problem, or one without compiled kernels."""
    p, q = np.ones(len(x)) if p is None else p, np.ones(len(y)) if q is None else q
    found = weight_gradients(p[None] / p.sum(), q[None] / q.sum(), marginals(PointCost(x, y, metric)))
    plan = found.solutions[0].plan.tocoo()
    return plan.row.astype(np.int64), plan.col.astype(np.int64), plan.data
