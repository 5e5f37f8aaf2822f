"""Transport on the line in closed form: for a convex cost of x - y the monotone plan is optimal."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .multiscale import Solution
from .network_simplex import kernels, status

_ULP = float(np.finfo(np.float64).eps)


def solve_line(
    x: ArrayLike, y: ArrayLike, p: ArrayLike | None = None, q: ArrayLike | None = None, power: float = 2.0
) -> Solution:
    r"""Solve transport on the line with the cost ``|x_i - y_j|^power`` exactly, in O(m log m).

    The plan fills the cells of a monotone path. Potentials follow the path: each of its cells is tight. They are
    feasible everywhere because a convex cost has the Monge property.

    Parameters
    ----------
    x, y : arrays of shape (m1,) and (m2,)
    p, q : arrays of shape (m1,) and (m2,), optional
        Non-negative weights, normalised or not; uniform by default.
    power : float
        At least 1.

    Examples
    --------
    >>> answer = solve_line([0.0, 1.0], [3.0, 1.0])
    >>> answer.status, round(answer.upper, 9)
    ('optimal', 2.5)
    """
    x, y = (np.asarray(z, np.float64).ravel() for z in (x, y))
    p = np.ones(len(x)) if p is None else np.asarray(p, np.float64)
    q = np.ones(len(y)) if q is None else np.asarray(q, np.float64)
    order_x, order_y = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    n = len(x) + len(y) - 1
    i, j, mass = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    kernels().line_path(p=p[order_x], q=q[order_y], i=i, j=j, share=mass)
    xs, ys = x[order_x], y[order_y]

    def cost(r: NDArray[np.int64], c: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.abs(xs[r] - ys[c]) ** power

    costs = cost(i, j)
    # along the path either the row or the column changes, and its potential by the difference of the costs
    steps = np.diff(costs.astype(np.longdouble))
    down = np.diff(i) == 1
    f = np.concatenate([[0], np.cumsum(steps[down])])
    g = costs[0] + np.concatenate([[0], np.cumsum(steps[~down])])
    middle = np.median(f).astype(np.longdouble)
    size = float(np.ptp(f) + np.ptp(g))
    slack = 16 * _ULP * (float(costs.max(initial=0.0)) + size) + n * float(np.finfo(np.longdouble).eps) * size
    full_f, full_g = np.empty(len(x)), np.empty(len(y))
    full_f[order_x] = (f - middle - slack).astype(np.float64)
    full_g[order_y] = (g + middle).astype(np.float64)
    terms = mass * costs
    upper = math.fsum(terms) * (1 + 16 * _ULP)
    a, b = p / math.fsum(p), q / math.fsum(q)
    products = np.concatenate([(a * full_f)[p > 0], (b * full_g)[q > 0]])
    lower = math.fsum(products) - 4 * _ULP * float(np.abs(products).sum())
    kept = mass > 0
    plan = sparse.csr_array(
        sparse.coo_array((mass[kept], (order_x[i[kept]], order_y[j[kept]])), shape=(len(x), len(y)))
    )
    return Solution(lower, upper, full_f, full_g, plan, status(lower, upper, size), 0, 0)
