"""Transport on the line in closed form: for a convex cost of x - y the monotone plan is optimal."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.backend import backend
from ..costs import Cost, PointCost
from ..costs.kdtree import underflow, vanishing
from .certificate import OPTIMAL_GAP, Certificate, below, bounds, concluded
from .method import Batch, Method
from .refinement import CostScreen, MatrixScreen, refined
from .simplex import staircase
from .solution import Solution, plan_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_LOST = 5e-324  # by powers of differences that are too small
_PAIRS = 4_000_000  # of a matrix that is made where k-d trees do not know the power


class Line(Method):
    """The monotone plan, in closed form."""

    name = "line"
    about = "closed form by sorted quantiles"
    suits = "one dimension with a convex power of the distance"
    least = 25_000

    def accepts(self, cost: Cost) -> bool:
        """Accept convex powers of distances on the line."""
        return cost.on_line and backend().has_simplex

    def memory(self, cost: Cost) -> float:
        """Return the bytes of the points."""
        return 300.0 * sum(cost.shape)

    def seconds(self, points: float, pairs: float) -> float:
        """Return about how long a problem takes."""
        return 2.4 * points / 1e6

    def solve(self, batch: Batch, which: list[int]) -> list[Solution]:
        """Solve problems one by one."""
        geometry = batch.cost.geometry()
        assert geometry is not None
        x, y = geometry.X[:, 0], geometry.Y[:, 0]
        return batch.each(lambda b: solve_line(x, y, *batch.weights(b), geometry.power, batch.gap), which)


def solve_line(
    x: ArrayLike, y: ArrayLike, p: ArrayLike | None = None, q: ArrayLike | None = None, power: float = 2.0,
    gap: float = 0.0,
) -> Solution:  # fmt: skip
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
    gap : float
        The relative gap that is enough.

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
    i, j, mass = staircase(p[order_x], q[order_y])
    xs, ys, depth = x[order_x], y[order_y], math.ceil(power) + 3
    costs = np.abs(xs[i].astype(np.longdouble) - ys[j]) ** power
    f, g, errors = _path_potentials(i, costs, int(np.flatnonzero(mass > 0)[np.count_nonzero(mass) // 2]), depth)
    first_x, first_y = np.searchsorted(i, np.arange(len(x))), np.searchsorted(j, np.arange(len(y)))
    full_f, full_g = np.empty(len(x)), np.empty(len(y))
    full_f[order_x], full_g[order_y] = below((f - errors)[first_x], (g - errors)[first_y], depth)
    kept = mass > 0
    small = (costs[kept] > 0) & (costs[kept] < 2.0**-1000)
    i, j, mass, costs = order_x[i[kept]], order_y[j[kept]], mass[kept], costs[kept].astype(np.float64)
    found = bounds(p, q, full_f, full_g, mass, costs, depth)
    found = found.widened(0.0, _LOST if small.any() else 0.0).at_least(0.0)
    if found.gap > max(gap, OPTIMAL_GAP):
        again = _with_more_digits(x, y, p, q, power, (full_f, full_g))
        if again is not None and again[0].gap < found.gap:
            found, i, j, mass = again
            costs = np.abs(x[i] - y[j]) ** power
    return Solution.of(*concluded(found, gap=gap), full_f, full_g, plan_of(i, j, mass, costs, p, q))


def _with_more_digits(
    x: Array, y: Array, p: Array, q: Array, power: float, potentials: tuple[Array, Array]
) -> tuple[Certificate, Indices, Indices, Array] | None:
    """Return what potentials with twice the digits prove, and their plan; None where there are too many pairs.

    Rounded costs have the Monge property only up to rounding, so the path is where the simplex starts.
    """
    rows, columns = (np.flatnonzero(w)[np.argsort(z[w > 0], kind="stable")] for z, w in ((x, p), (y, q)))
    xs, ys = x[rows], y[columns]
    screen: CostScreen | MatrixScreen
    if power in (1, 2):
        screen = CostScreen(PointCost.searched(xs[:, None], ys[:, None], "sqeuclidean" if power == 2 else "euclidean"))
    elif len(xs) * len(ys) <= _PAIRS:
        screen = MatrixScreen(np.abs(xs[:, None] - ys) ** power)
    else:
        return None
    i, j, _ = staircase(p[rows], q[columns])
    found = refined(screen, p[rows], q[columns], (i, j), (potentials[0][rows], potentials[1][columns]), least=0.0)
    ends = xs[:, None], ys[:, None], power != 1
    less = underflow(*ends) if power in (1, 2) else _LOST
    proof = found.certificate.widened((math.ceil(power) + 3) * 2.0**-52, vanishing(*ends, found.i, found.j), less)
    return proof, rows[found.i], columns[found.j], found.mass


def _path_potentials(
    i: NDArray[np.int64], costs: NDArray[np.longdouble], centre: int, depth: int
) -> tuple[NDArray[np.longdouble], NDArray[np.longdouble], NDArray[np.longdouble]]:
    """Return the potentials of the row and of the column of each cell of a path, and how far they may be off.

    Along the path either the row or the column changes, and its potential by the difference of the costs. The errors of
    these add up, so they are in extended precision where there is one, and begin in a cell that has mass.
    """

    def summed(steps: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
        return np.concatenate([-np.cumsum(steps[:centre][::-1])[::-1], [0], np.cumsum(steps[centre:])])

    steps, down = np.diff(costs), np.diff(i) == 1
    f, g = summed(np.where(down, steps, 0)), summed(np.where(down, 0, steps))
    behind = depth * (costs[1:] + costs[:-1])
    behind += np.maximum(np.abs(f[1:]), np.abs(f[:-1])) + np.maximum(np.abs(g[1:]), np.abs(g[:-1]))
    return f, g + costs[centre], 4 * np.finfo(np.longdouble).eps * np.abs(summed(behind))
