"""Transport on the line in closed form: for a convex cost of x - y the monotone plan is optimal.

In exact arithmetic no plan costs less, so the cost of this one, rounded in both directions, is a proof: kernels need
one sort for each side and one merge (``native/line.hpp``). Plan and potentials are made when they are asked for.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..core import native
from ..core.backend import backend
from ..costs import Cost
from ..io.budget import Budget
from .certificate import below, concluded, plan_bounds, status
from .method import Batch, Method
from .simplex import staircase
from .solution import Solution, plan_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_LOST = 5e-324  # by powers of differences that are too small
_GRID_PAIRS = 25_000  # up to which measures on a grid are solved on its matrix, where similar problems are warm starts
_SORTED = 256  # points from which NumPy's vectorised sort is faster than that of the kernels
_NONE = np.empty(0)


def line_accuracy(power: float) -> float:
    """Return the relative error of a power of a distance on the line, that of positions on a grid included."""
    return _depth(power) * 2.0**-52


def _depth(power: float) -> int:
    """Return the rounded operations behind a cost."""
    return math.ceil(power) + 3


class Line(Method):
    """The monotone plan, in closed form."""

    name = "line"
    about = "closed form by sorted quantiles"
    suits = "one dimension with a convex power of the distance"

    def accepts(self, cost: Cost) -> bool:
        """Accept convex powers of distances on the line: between points, and on grids that are not small."""
        large = not cost.row_shape or cost.shape[0] * cost.shape[1] > _GRID_PAIRS
        return cost.on_line and large

    def memory(self, cost: Cost) -> float:
        """Return the bytes of the points."""
        return 300.0 * sum(cost.shape)

    def seconds(self, points: float, pairs: float) -> float:
        """Return about how long a problem takes."""
        return 0.2 * points / 1e6

    def solve(self, batch: Batch, which: list[int]) -> list[Solution]:
        """Solve problems in one call, and those one by one that it does not prove."""
        geometry = batch.cost.geometry()
        assert geometry is not None
        p, q = batch.problem.given
        if len(which) < len(batch.problem):
            p, q = p[which], q[which]
        x, y = (np.asarray(z[:, 0], np.float64) for z in (geometry.X, geometry.Y))
        power = geometry.power
        if len(which) == 1:
            return [solve_line(x, y, p[0], q[0], power, batch.gap)]
        found = _all_at_once(x, y, p, q, power, native.threads(batch.n_jobs), batch.budget)
        return [by_path(x, y, p[k], q[k], power, batch.gap) if one is None else one for k, one in enumerate(found)]


class LineSolution(Solution):
    """The optimum between measures on the line; its plan and potentials are computed when they are first used.

    Parameters
    ----------
    x, y : arrays of shape (m1,) and (m2,)
        The points.
    weights : pair of arrays of shape (m1,) and (m2,), or None
        The weights; None for points that have all the same.
    power : float
        The power of the distance.
    numbers : tuple of float
        The cost of the monotone plan, and its bounds.
    """

    def __init__(
        self,
        x: Array,
        y: Array,
        weights: tuple[Array, Array] | None,
        power: float,
        numbers: tuple[float, float, float],
    ) -> None:
        own = vars(self)  # the class is frozen
        own["value"], own["lower"], own["upper"] = numbers
        own["scale"], own["status"], own["rounds"], own["reason"] = numbers[0], "optimal", 1, ""
        own["_problem"] = x, y, weights, power

    @cached_property
    def _path(self) -> _Path:
        """The path of the plan."""
        x, y, weights, power = self._problem
        return _path(x, y, *_given(x, y, weights), power)

    @cached_property
    def _potentials(self) -> tuple[Array, Array]:
        """Feasible potentials."""
        x, y, _, power = self._problem
        return _potentials(self._path, len(x), len(y), _depth(power))

    @property
    def f(self) -> Array:
        """Potentials of the points x."""
        return self._potentials[0]

    @property
    def g(self) -> Array:
        """Potentials of the points y."""
        return self._potentials[1]

    @cached_property
    def plan(self) -> sparse.csr_array:
        """The plan."""
        x, y, weights, _ = self._problem
        i, j, mass, costs = self._path.arcs()
        return plan_of(i, j, mass, costs, *_given(x, y, weights))

    _problem: tuple[Array, Array, tuple[Array, Array] | None, float]


def _given(x: Array, y: Array, weights: tuple[Array, Array] | None) -> tuple[Array, Array]:
    """Return weights, which are all the same where there are none."""
    return (np.ones(len(x)), np.ones(len(y))) if weights is None else weights


def at_once(x: Array, y: Array, p: Array | None, q: Array | None, power: float) -> LineSolution | None:
    """Return the optimum of one problem, if kernels prove it by one sum.

    Parameters
    ----------
    x, y : arrays of float64, shape (m1,) and (m2,)
        The points.
    p, q : arrays of float64, shape (m1,) and (m2,), or None
        Valid weights; None for points that have all the same, on both sides.
    power : float
        At least 1.

    Returns
    -------
    LineSolution or None
        None where numbers are so small or so large that this is not a proof, and without kernels.
    """
    own_x, own_y, own_p, own_q = np.ascontiguousarray(x), np.ascontiguousarray(y), _NONE, _NONE
    if p is not None and q is not None:
        own_p, own_q = np.ascontiguousarray(p), np.ascontiguousarray(q)
    else:
        own_x, own_y = x if len(x) <= _SORTED else np.sort(x), y if len(y) <= _SORTED else np.sort(y)
    value, lower, upper, proved = backend().bound_line(own_x, own_y, own_p, own_q, power, line_accuracy(power))
    if not proved or status(lower, upper, value) != "optimal":
        return None
    weights = None if p is None or q is None else (p, q)
    return LineSolution(x, y, weights, power, (value, lower, upper))


def _all_at_once(
    x: Array, y: Array, P: Array, Q: Array, power: float, threads: int, budget: Budget
) -> list[LineSolution | None]:
    """Return the optima of problems between the same points, None where the kernels do not prove them at once."""
    n, m1, m2 = len(P), len(x), len(y)
    (own_x, p), (own_y, q) = _sorted(x, P), _sorted(y, Q)
    places, numbers = np.array([(0, m1, 0, m2, 0, 0)] * n), np.empty((n, 10))
    places[:, 4], places[:, 5] = m1 * np.arange(n), m2 * np.arange(n)
    backend().solve_lines(
        own_x, own_y, p=p, q=q, places=places, power=power, accuracy=line_accuracy(power), unit=True, n_threads=threads,
        seconds=budget.seconds, stop=budget.flag, numbers=numbers,
    )  # fmt: skip
    found: list[LineSolution | None] = []
    for b, (value, lower, upper, *_, state) in enumerate(numbers.tolist()):
        proved = state == 0 and status(lower, upper, value) == "optimal"
        found.append(LineSolution(x, y, (P[b], Q[b]), power, (value, lower, upper)) if proved else None)
    return found


def _sorted(x: Array, P: Array) -> tuple[Array, Array]:
    """Return points in their order, and the rows of weights behind each other."""
    if len(P) > 1:
        order = np.argsort(x)
        x, P = x.take(order), P.take(order, axis=1)
    return np.ascontiguousarray(x), np.ascontiguousarray(P).ravel()


def solve_line(
    x: ArrayLike, y: ArrayLike, p: ArrayLike | None = None, q: ArrayLike | None = None, power: float = 2.0,
    gap: float = 0.0,
) -> Solution:  # fmt: skip
    r"""Solve transport on the line with the cost ``|x_i - y_j|^power`` exactly, in O(m log m).

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
    found = at_once(x, y, p, q, power)
    return by_path(x, y, p, q, power, gap) if found is None else found


class _Path(NamedTuple):
    """The monotone path of cells: points in their order, rows and columns in that order, masses and costs."""

    order_x: NDArray[np.intp]
    order_y: NDArray[np.intp]
    i: Indices
    j: Indices
    mass: Array
    costs: NDArray[np.longdouble]

    def arcs(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Array, Array]:
        """Return rows, columns, masses and costs of the cells that have mass."""
        kept = self.mass > 0
        costs = self.costs[kept].astype(np.float64)
        return self.order_x[self.i[kept]], self.order_y[self.j[kept]], self.mass[kept], costs


def _path(x: Array, y: Array, p: Array, q: Array, power: float) -> _Path:
    """Return the path that the monotone plan follows."""
    order_x, order_y = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    i, j, mass = staircase(p[order_x], q[order_y])
    costs = np.abs(x[order_x][i].astype(np.longdouble) - y[order_y][j]) ** power
    return _Path(order_x, order_y, i, j, mass, costs)


def _potentials(path: _Path, m1: int, m2: int, depth: int) -> tuple[Array, Array]:
    """Return potentials that follow the path, where each cell is tight.

    They are feasible everywhere because a convex cost has the Monge property.
    """
    i, j, mass = path.i, path.j, path.mass
    centre = int(np.flatnonzero(mass > 0)[np.count_nonzero(mass) // 2])
    f, g, errors = _path_potentials(i, path.costs, centre, depth)
    rows, columns = _nearest_cells(i, m1, centre), _nearest_cells(j, m2, centre)
    full_f, full_g = np.empty(m1), np.empty(m2)
    largest = np.finfo(np.float64).max
    with np.errstate(over="ignore"):  # of points without weight that are far away
        full_f[path.order_x], full_g[path.order_y] = below(
            np.minimum((f - errors)[rows], largest), np.minimum((g - errors)[columns], largest), depth
        )
    return full_f, full_g


def _nearest_cells(index: Indices, m: int, centre: int) -> NDArray[np.intp]:
    """Return the cell of each row or column that is nearest to the centre of a path, where errors are least."""
    points = np.arange(m)
    first, last = np.searchsorted(index, points), np.searchsorted(index, points, side="right") - 1
    return np.clip(centre, first, last)


def by_path(x: Array, y: Array, p: Array, q: Array, power: float, gap: float = 0.0) -> Solution:
    """Return what the plan along the path proves: without kernels, and for numbers of any size.

    Parameters
    ----------
    x, y, p, q, power, gap
        As for `solve_line`.

    Returns
    -------
    Solution
    """
    path, depth = _path(x, y, p, q, power), _depth(power)
    full_f, full_g = _potentials(path, len(x), len(y), depth)
    i, j, mass, costs = path.arcs()
    lost = _LOST if ((costs < 2.0**-1000) & (x[i] != y[j])).any() else 0.0
    found = plan_bounds(mass, costs, depth, None).widened(0.0, lost, lost).at_least(0.0)
    return Solution.of(*concluded(found, gap=gap), full_f, full_g, plan_of(i, j, mass, costs, p, q))


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
