"""Exact optima from coarse to fine, without a cost matrix.

Points are joined to cells of four, the coarse problem is solved exactly, and its potentials are carried to the fine
points. The arcs of least reduced cost of every point make a sparse problem for the network simplex; arcs that its
potentials violate are added, and the basis stays, until no arc is violated. Every level is solved exactly.

For a certified gap the solution of a coarse level is tried on the finest one: a c-transform carries its potentials,
and the mass between two cells is spread over their points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..costs.kdtree import BorderedPoints, Points, underflow, vanishing
from ..io.budget import Budget
from .certificate import NEGLIGIBLE_VIOLATION, NO_PLAN, PROVED, SPENT, Certificate, below, bounds, weighted_median
from .far_costs import solve_capped
from .refinement import PointsScreen, refined
from .repair import coupling_near
from .simplex import ArcProblem, kernels, solve_dense, staircase
from .solution import Solution, plan_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Arcs = tuple[Indices, Indices, Array]

_SMALLEST = 256  # points a side that the simplex on all arcs solves
_CELL = 4  # points
_WIDE = 1000.0  # times the usual width: cells that are no cells
_NEIGHBOURS = 8  # arcs of least reduced cost that every point brings in
_MOST = 0.75  # of these: if more are far, they are no outliers
_PATIENCE = 4  # rounds until the arcs of least reduced cost should carry all mass
_ULP = float(np.finfo(np.float64).eps)
_UNNOTICED = 1e-9  # of a weight, or of the value: errors of a plan that a gap was asked for, or that time cut short
_ROUNDING = 16 * _ULP  # what the terms of a reduced cost leave open


def solve_points(
    X: ArrayLike, Y: ArrayLike, p: ArrayLike | None = None, q: ArrayLike | None = None, squared: bool = True,
    gap: float = 0.0, budget: Budget | None = None, border: tuple[float, float] | None = None,
) -> Solution:  # fmt: skip
    """Solve transport between two clouds of points in one to three dimensions, exactly or to a certified gap.

    Parameters
    ----------
    X, Y : arrays of shape (m1, d) and (m2, d)
    p, q : arrays of shape (m1,) and (m2,), optional
        Non-negative weights, normalised or not; uniform by default.
    squared : bool
        Squared or plain Euclidean distances.
    gap : float
        Stop as soon as ``upper - lower <= gap * <plan, |M|>``; 0 for the optimum.
    budget : Budget, optional
        Its time, memory and threads. When it is spent, the last level that was solved gives plan and potentials.
    border : pair of float, optional
        The costs to and between additional points, which have the last weights of p and q: as many as these have more
        entries than there are points.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((1000, 2))
    >>> answer = solve_points(X, X + [0.1, 0.0])
    >>> answer.status, round(answer.upper, 12)
    ('optimal', 0.01)
    >>> solve_points(X, rng.random((1000, 2)), gap=0.01).status
    'gap reached'
    """
    X, Y = (np.ascontiguousarray(x, np.float64) for x in (X, Y))
    p = np.ones(len(X)) if p is None else np.ascontiguousarray(p, np.float64)
    q = np.ones(len(Y)) if q is None else np.ascontiguousarray(q, np.float64)
    return _Cells(X, Y, p, q, squared, gap, budget or Budget(), border).solve()


@dataclass(frozen=True)
class _Level:
    """Points with weight, in an order in which neighbours in space have neighbouring numbers.

    `cells` has the cells of the next coarser level that rows and columns belong to; the coarsest level has none.
    """

    oracle: Points | BorderedPoints
    a: Array
    b: Array
    cells: tuple[Indices, Indices] | None = None

    def closed(self, f: Array, neighbours: int = _NEIGHBOURS) -> _Start:
        """Return the feasible potentials that c-transforms make of a potential of the rows, and the bound they give."""
        g = self.oracle.column_min(-f)
        near, f = self.oracle.rows_and_min(-g, min(neighbours, len(g)))
        return _Start(f, g, _dual_value(self.a, self.b, f, g), near)


class _Start(NamedTuple):
    """Feasible potentials from which a level is solved, their bound, and the columns of least reduced cost of rows."""

    f: Array
    g: Array
    bound: float
    near: Indices


class PointsSolution(Solution):
    """A solution whose potentials of points without weight are computed when first used.

    Parameters
    ----------
    found : Certificate
    status : str
    plan : scipy.sparse.csr_array
    rounds : int
        As of `Solution`.
    known : tuple
        Rows and columns that have weight, their potentials before these are lowered by `below`, the arguments of
        `_oracle` for all points, and the depth of the costs.
    """

    def __init__(
        self, found: Certificate, status: str, plan: sparse.csr_array, rounds: int, known: tuple[Any, ...]
    ) -> None:
        vars(self).update(
            value=found.value, lower=found.lower, upper=found.upper, scale=found.scale, reason=found.reason,
            status=status, plan=plan, rounds=rounds, _known=known,
        )  # fmt: skip

    @property
    def f(self) -> Array:
        """Potentials of the rows."""
        return self._potentials[0]

    @property
    def g(self) -> Array:
        """Potentials of the columns."""
        return self._potentials[1]

    @cached_property
    def _potentials(self) -> tuple[Array, Array]:
        """Potentials of all points: c-transforms, less what rounding may have added."""
        rows, columns, f, g, points, depth = self._known
        all_f, all_g = (np.full(m, -np.inf) for m in self.plan.shape)
        all_f[rows], all_g[columns] = f, g
        if (len(rows), len(columns)) != self.plan.shape:
            whole = _oracle(*points)
            all_g = whole.column_min(-all_f)
            all_g[columns] = g
            all_f = whole.row_min(-all_g)
            all_f[rows] = f
        return below(all_f, all_g, depth, underflow(*points[:3]))

    _known: tuple[Any, ...]


class _Cells:
    """The levels of a problem, and what their solutions prove about it."""

    def __init__(
        self, X: Array, Y: Array, p: Array, q: Array, squared: bool, gap: float, budget: Budget,
        border: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        self.p, self.q, self.squared, self.gap, self.budget, self.border = p, q, squared, gap, budget, border
        self.points = X, Y, squared, border, (len(p) - len(X), len(q) - len(Y))
        self.rows, self.columns = np.flatnonzero(p), np.flatnonzero(q)
        inner = [slice(int(np.searchsorted(x, len(z)))) for x, z in ((self.rows, X), (self.columns, Y))]
        negative = [x for x in border or () if x < 0]
        self.least, self.negative = min([0.0, *negative]), sum(-x for x in negative)
        self.extra = len(self.rows) - inner[0].stop, len(self.columns) - inner[1].stop
        some = self._oracle(X[self.rows[inner[0]]], Y[self.columns[inner[1]]])
        self.rows, self.columns = self.rows[some.order_x], self.columns[some.order_y]
        finest = self._oracle(X[self.rows[inner[0]]], Y[self.columns[inner[1]]])
        levels = [_Level(finest, p[self.rows], q[self.columns])]
        while max(len(levels[-1].oracle.X), len(levels[-1].oracle.Y)) > _SMALLEST:
            fine = levels[-1]
            x, a, row_cells = self._join(fine.oracle.X, fine.a)
            y, b, column_cells = self._join(fine.oracle.Y, fine.b)
            levels[-1] = replace(fine, cells=(row_cells, column_cells))
            levels.append(_Level(self._oracle(x, y), a, b))
        self.levels = levels
        self.depth = X.shape[1] + 3

    def _oracle(self, X: Array, Y: Array) -> Points | BorderedPoints:
        """Return the distances of some points, with the border if there is one."""
        return _oracle(X, Y, self.squared, self.border, self.extra, self.budget.threads)

    def _join(self, x: Array, a: Array) -> tuple[Array, Array, Indices]:
        """Return the cells of a level; the points of the border are cells of their own."""
        centroid, weight, cells = _join(x, a[: len(x)])
        more = a[len(x) :]
        return centroid, np.append(weight, more), np.append(cells, len(weight) + np.arange(len(more)))

    def solve(self) -> Solution:
        """Solve from the coarsest level to the finest, or until the gap is reached or the budget is spent."""
        (f, g, problem, far), rounds = _solve_all_arcs(self.levels[-1]), 1
        for n in range(len(self.levels) - 2, -1, -1):
            if self.budget.spent:
                return self._of_level(n + 1, g, problem)
            oracle, a, b = self.levels[n].oracle, self.levels[n].a, self.levels[n].b
            coarse = g, problem
            start = self._refined(n, g, problem.value)
            # a bound that is good at this level may be good at the finest
            if self.gap and problem.value - start.bound <= self.gap * problem.value:
                answer = self._of_level(n + 1, *coarse)
                if answer.status in PROVED:
                    return answer
            f, g, problem, rounds = solve_arcs(
                oracle, a, b, start, self.gap if n == 0 else 0.0, budget=self.budget, far=far
            )
            self.budget.report("%d x %d points, %d arcs, %d rounds", *oracle.shape, problem.arcs, rounds)
            if self.budget.spent and not problem.carried:
                return self._of_level(n + 1, *coarse)
        if not problem.carried:
            return self._solution(*self._coupling(*problem.exact_plan()), f, rounds)
        answer = self._solution(problem.exact_plan(), 0.0, f, rounds)
        return answer if answer.status in PROVED or self.budget.spent else self._with_more_digits(problem, rounds)

    def _with_more_digits(self, problem: ArcProblem, rounds: int) -> Solution:
        """Return the solution that potentials with twice the digits prove."""
        level = self.levels[0]
        i, j, arc, _ = problem.basis()
        own, screen = arc >= 0, PointsScreen(level.oracle)
        found = refined(
            screen, level.a, level.b, (i[own], j[own]), problem.potentials(), self.gap, self.budget, self.least
        )
        self.budget.report("potentials with twice the digits, gap %.1e", found.certificate.gap)
        return self._solution((found.i, found.j, found.mass), 0.0, found.f, rounds, found.certificate)

    def _refined(self, n: int, coarse: Array, value: float) -> _Start:
        """Return a start of level n from a potential of the columns of the next coarser level.

        Where mass moves by less than the size of a cell, as between images of noise, coarse potentials are too large: a
        share of them gives a larger bound.
        """
        level, f = self.levels[n], self._carry(n + 1, coarse, n)
        found = level.closed(f)
        if found.bound < value / 2:
            best = max((0.75, 0.5, 0.0), key=lambda share: level.closed(share * f, 1).bound)
            found = max(found, level.closed(best * f), key=attrgetter("bound"))
        return found

    def _of_level(self, n: int, g: Array, problem: ArcProblem) -> Solution:
        """Return what the solution of level n proves about the finest level."""
        return self._solution(*self._coupling(*self._spread(n, problem)), self._carry(n, g, 0))

    def _carry(self, n: int, g: Array, to: int) -> Array:
        """Return the c-transform of a potential of the columns of level n for the rows of a finer level."""
        return self._oracle(self.levels[to].oracle.X, self.levels[n].oracle.Y).row_min(-g)

    def _spread(self, n: int, problem: ArcProblem) -> Arcs:
        """Return a plan of the finest level from that of level n.

        The points of a cell share the arcs of their cell in the order of both, on each side; the parts of an arc on the
        two sides then meet in their order.
        """
        cells = [np.arange(m) for m in self.levels[0].oracle.shape]
        for level in self.levels[:n]:
            if level.cells is not None:
                cells = [own[c] for own, c in zip(level.cells, cells, strict=True)]
        i, j, mass = problem.exact_plan()
        parts = []
        for ends, cell, weight in ((i, cells[0], self.levels[0].a), (j, cells[1], self.levels[0].b)):
            arcs, points = np.argsort(ends, kind="stable"), np.argsort(cell, kind="stable")
            point, arc, share = _meet(weight[points], mass[arcs])
            order = np.argsort(arcs[arc], kind="stable")
            parts.append((points[point[order]], share[order]))
        (row, left), (column, right) = parts
        i, j, mass = _meet(left, right)
        return row[i], column[j], mass

    def _coupling(self, i: Indices, j: Indices, mass: Array) -> tuple[Arcs, float]:
        """Return an exact coupling near a plan of the finest level, without forbidden arcs of a border.

        Masses that are differences are off by some units in the last place of the largest ones. Where that matters
        neither for any point nor for the value, the plan stays as it is, and the second result is how much more than
        it some coupling may cost: what a point lacks or has too much moves by at most the largest cost.
        """
        level, wrong, close = self.levels[0], 0.0, self.border is None
        for ends, weight in ((i, level.a), (j, level.b)) if close else ():
            share, terms = weight / weight.sum(), np.bincount(ends, minlength=len(weight))
            off = np.abs(np.bincount(ends, mass, len(weight)) - share) + (terms + 64) * _ULP * share
            wrong, close = wrong + float(off.sum()), close and bool((off <= _UNNOTICED * share).all())
        X, Y = level.oracle.X, level.oracle.Y
        if close:
            widths = np.maximum(X.max(axis=0), Y.max(axis=0)) - np.minimum(X.min(axis=0), Y.min(axis=0))
            excess = 1.01 * wrong * float((widths**2).sum() if self.squared else widths.sum())
            if excess <= _UNNOTICED * float(mass @ level.oracle.at(i, j)):
                return (i, j, mass), excess
        inner = None if self.border is None or np.isfinite(self.border[1]) else (len(X), len(Y))
        return coupling_near(level.a, level.b, (i, j, mass), inner), 0.0

    def _solution(
        self, arcs: Arcs, excess: float, f: Array, rounds: int = 0, proof: Certificate | None = None
    ) -> Solution:
        """Return what a plan of the finest level and a potential of its rows prove, or another proof for the costs.

        Some coupling costs at most so much more than the plan.
        Costs are computed to within a few units in the last place. For points of a grid these may be those of the axes.
        """
        i, j, mass = arcs
        level = self.levels[0]
        g = level.oracle.column_min(weighted_median(f, level.a) - f)
        f = level.oracle.row_min(-g)
        costs = level.oracle.at(i, j)
        inner = (i < len(level.oracle.X)) & (j < len(level.oracle.Y))  # without the border
        above = vanishing(level.oracle.X, level.oracle.Y, self.squared, i[inner], j[inner])
        below_all = underflow(level.oracle.X, level.oracle.Y, self.squared)
        if proof is None:
            found = bounds(level.a, level.b, *below(f, g, self.depth, below_all), mass, costs, self.depth)
            found = found.widened(0.0, above + excess).at_least(self.least)
        else:
            found = proof.widened((self.depth + 3) * _ULP / 2, above, below_all, self.negative)
        state = found.status(gap=self.gap, spent=self.budget.spent)
        if state == "budget spent":
            found = replace(found, reason=SPENT if np.isfinite(found.upper) else NO_PLAN)
        plan = plan_of(self.rows[i], self.columns[j], mass, costs, self.p, self.q)
        known = self.rows, self.columns, f, g, self.points, self.depth
        return PointsSolution(found, state, plan, rounds, known)


def _oracle(
    X: Array, Y: Array, squared: bool, border: tuple[float, float] | None, extra: tuple[int, int], threads: int = 1
) -> Points | BorderedPoints:
    """Return the distances of points, with a border if there is one."""
    points = Points(X, Y, squared, threads)
    return points if border is None else BorderedPoints(points, *border, extra)


def _meet(p: Array, q: Array) -> Arcs:
    """Return rows, columns and masses of the monotone plan between weights in their order."""
    i, j, share = staircase(p, q)
    kept = share > 0
    return i[kept], j[kept], share[kept]


def _dual_value(p: Array, q: Array, f: Array, g: Array) -> float:
    """Return ``<p, f> / sum(p) + <q, g> / sum(q)``."""
    return float((p / p.sum()) @ f + (q / q.sum()) @ g)  # sums of large weights and potentials would overflow


def _solve_all_arcs(level: _Level) -> tuple[Array, Array, ArcProblem, float]:
    """Solve a small problem; return potentials, the problem on the arcs of its basis, and which costs are far."""
    m1, m2 = level.oracle.shape
    C = level.oracle.at(np.arange(m1)[:, None], np.arange(m2))
    answer = solve_dense(C, level.a, level.b)
    capped = solve_capped(answer)
    answer = capped or answer
    most = float(answer.problem()[0].max(where=np.isfinite(C), initial=0.0))
    f, g = answer.f[0], answer.g[0]
    i, j = (x[x >= 0].astype(np.int64) for x in answer.basis)
    near = C[i, j] <= most  # not lowered
    i, j = i[near], j[near]
    problem = ArcProblem(level.a, level.b)
    problem.add(i, j, C[i, j])
    problem.start(f, g, max(most, float(np.abs(C[i, j]).max(initial=0.0)), 1e-300))
    problem.optimise()
    return f, g, problem, np.inf if capped is None else most


def _join(x: Array, a: Array) -> tuple[Array, Array, Indices]:
    """Return the weighted centroids and the weights of cells of neighbouring points, and the cell of each point."""
    if len(x) <= _SMALLEST:
        return x, a, np.arange(len(x))
    label = np.empty(len(x), np.int64)
    cells = _without_wide(x, label, kernels().median_cells(x, most=_CELL, label=label))
    weight = np.asarray(np.bincount(label, a, cells), np.float64)
    share, divisor = a, weight
    if sum(math.frexp(float(np.abs(z).max()))[1] for z in (x, weight)) > 1020:  # products may overflow
        share, divisor = a / weight[label], np.ones(cells)
    centroid = np.stack([np.bincount(label, share * c, cells) / divisor for c in x.T], axis=1)
    order = Points(centroid, centroid[:1]).order_x
    number = np.empty(cells, np.int64)
    number[order] = np.arange(cells)
    return centroid[order], weight[order], number[label]


def _without_wide(x: Array, label: Indices, cells: int) -> int:
    """Make cells of their own of the points of cells that are far wider than most; return the number of cells.

    A cell that joins an outlier to other points has its centre where there is none, and its potentials mislead.
    """
    order = np.argsort(label, kind="stable")
    starts = np.searchsorted(label[order], np.arange(cells))
    width = (np.maximum.reduceat(x[order], starts) - np.minimum.reduceat(x[order], starts)).max(axis=1)
    wide = width > _WIDE * np.median(width)
    if not wide.any():
        return cells
    single = wide[label]
    label[single] = cells + np.arange(np.count_nonzero(single))
    _, label[:] = np.unique(label, return_inverse=True)
    return int(label.max()) + 1


def solve_arcs(
    oracle: Points | BorderedPoints, p: Array, q: Array, start: _Start, gap: float = 0.0, max_rounds: int = 100,
    budget: Budget | None = None, far: float = np.inf,
) -> tuple[Array, Array, ArcProblem, int]:  # fmt: skip
    """Solve a problem exactly from potentials: nearest arcs, then violated arcs until there is none.

    Parameters
    ----------
    oracle : Points
    p, q : arrays of shape (m1,) and (m2,)
        Positive weights.
    start : _Start
        Potentials, the nearer to optimal the faster.
    gap : float
        Stop when the value is that close to the bound of the start, whose potentials then are returned, or to that of
        the simplex.
    max_rounds : int
        The largest number of rounds; if they run out, the bounds show what is left open.
    budget : Budget, optional
        When it is spent, the better of the potentials given and those of the simplex are returned.
    far : float
        Arcs of larger costs are left out at first, unless they are many: they are not needed where clusters that are
        far apart have each its own balance, and would make potentials large.

    Returns
    -------
    f, g, problem, rounds
    """
    budget, (m1, m2), (f, g, bound, near) = budget or Budget(), oracle.shape, start
    near_rows = oracle.columns(-f, min(_NEIGHBOURS, m1))
    arcs = _unique(_pairs(np.arange(m1)[:, None], near, m2), _pairs(near_rows, np.arange(m2)[:, None], m2))
    del near_rows
    problem = ArcProblem(p, q, budget)
    i, j = np.divmod(arcs, m2)
    costs = oracle.at(i, j)
    kept = costs <= far
    if not kept.all() and np.count_nonzero(kept) >= _MOST * len(arcs):
        arcs, i, j, costs = arcs[kept], i[kept], j[kept], costs[kept]
    problem.add(i, j, costs)
    scale = float(np.abs(costs).max() + np.ptp(f) + np.ptp(g))
    largest = float((costs - f[i] - g[j]).max())
    del i, j, costs, kept
    problem.start(f, g, max(2 * largest + _ULP * scale, 1e-300))
    best, enough = f, bound / (1 - gap) if gap else -np.inf
    for rounds in range(1, max_rounds + 1):
        # no violation of this size matters for the value; smaller ones may be rounding errors of large terms
        tolerance = min(4 * _ULP * scale, NEGLIGIBLE_VIOLATION * abs(problem.value))
        carried = problem.optimise(tolerance, enough)
        if not carried and rounds > _PATIENCE:
            carried = _carry_all(oracle, problem, tolerance, scale)
        f, g = problem.potentials()
        if budget.spent:
            return *_better(oracle, p, q, start, f), problem, rounds
        if gap and carried:
            value = _dual_value(p, q, f, oracle.column_min(-f)) / (1 - gap) if problem.value > enough else -np.inf
            best, enough = (f, value) if value > enough else (best, enough)
            if problem.value <= enough:
                return best, g, problem, rounds
        # beyond the rounding errors of the terms
        J = oracle.rows(_ROUNDING * np.abs(g) - g, min(_NEIGHBOURS, m2), f - _ROUNDING * np.abs(f) - 4 * tolerance)
        fresh = np.setdiff1d(_pairs(np.arange(m1)[:, None], J, m2), arcs, assume_unique=True)
        if len(fresh) == 0:
            if carried or rounds > _PATIENCE:
                break
            problem.raise_artificial()
            continue
        if not problem.can_add(len(fresh)):
            return *_better(oracle, p, q, start, f), problem, rounds
        arcs = _unique(arcs, fresh)
        i, j = np.divmod(fresh, m2)
        problem.add(i, j, oracle.at(i, j))
    return f, g, problem, rounds


def _better(oracle: Points | BorderedPoints, p: Array, q: Array, start: _Start, f: Array) -> tuple[Array, Array]:
    """Return those potentials that give the larger lower bound: those of the start, or f and its c-transform."""
    g = oracle.column_min(-f)
    return (f, g) if _dual_value(p, q, f, g) > start.bound else (start.f, start.g)


def _carry_all(oracle: Points | BorderedPoints, problem: ArcProblem, tolerance: float, scale: float) -> bool:
    """Add the arcs of a plan, and make artificial arcs dearer until none is used; return whether that succeeded.

    The arcs of least reduced cost may not carry all mass, above all between duplicates of points.
    """
    i, j, _ = _meet(problem.p, problem.q)
    costs = oracle.at(i, j)
    allowed = np.isfinite(costs)
    costs = costs[allowed]
    problem.add(i[allowed], j[allowed], costs)
    for _ in range(60):
        artificial = problem.raise_artificial(8.0)
        if problem.optimise(tolerance):
            return True
        if artificial > 16 * sum(oracle.shape) * float(costs.max() + 4 * scale):
            break
    return False


def _pairs(i: Indices, j: Indices, m2: int) -> Indices:
    """Return pairs as ``i m2 + j``, without those that have a negative index."""
    return (i * m2 + j)[(i >= 0) & (j >= 0)]


def _unique(*arcs: Indices) -> Indices:
    """Return the union of arcs, sorted."""
    every = np.sort(np.concatenate(arcs))
    return every[np.diff(every, prepend=-1) > 0]
