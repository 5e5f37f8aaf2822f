"""Exact optima from coarse to fine, without a cost matrix.

Points are joined to cells of four, the coarse problem is solved exactly, and its potentials are carried to the fine
points. The arcs of least reduced cost of every point make a sparse problem for the network simplex; arcs that its
potentials violate are added, and the basis stays, until no arc is violated. Every level is solved exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .certificates import bounds
from .network_simplex import ArcProblem, kernels, solve_dense
from .solution import Solution, status

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_SMALLEST = 256  # points a side that the simplex on all arcs solves
_CELL = 4  # points
_ULP = float(np.finfo(np.float64).eps)


class Points:
    """Squared or plain Euclidean distances between points in one to three dimensions, by k-d trees.

    Parameters
    ----------
    X, Y : arrays of shape (m1, d) and (m2, d)
    squared : bool

    Examples
    --------
    >>> import numpy as np
    >>> points = Points(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 2.0]]))
    >>> points.rows(np.array([0.0, -4.0]), 2)
    array([[1, 0]])
    """

    def __init__(self, X: Array, Y: Array, squared: bool = True) -> None:
        self.X, self.Y, self.squared = np.ascontiguousarray(X), np.ascontiguousarray(Y), squared
        self.shape = len(X), len(Y)
        make = getattr(kernels(), f"KdTree{X.shape[1]}")
        self._tree_x, self._tree_y = make(self.X), make(self.Y)
        self.order_x, self.order_y = np.empty(len(X), np.int32), np.empty(len(Y), np.int32)
        self._tree_x.order(self.order_x)
        self._tree_y.order(self.order_y)

    def at(self, i: Indices, j: Indices) -> Array:
        squares = np.zeros(np.broadcast(i, j).shape)
        for a in range(self.X.shape[1]):
            squares += (self.X[i, a] - self.Y[j, a]) ** 2
        return squares if self.squared else np.sqrt(squares)

    def rows(self, h: Array, k: int, bound: Array | None = None) -> Indices:
        return self._query(self._tree_y, self.X, self.order_x, h, k, bound)[0]

    def columns(self, h: Array, k: int, bound: Array | None = None) -> Indices:
        return self._query(self._tree_x, self.Y, self.order_y, h, k, bound)[0]

    def row_min(self, h: Array) -> Array:
        """Return ``min_j c_ij + h_j``: the c-transform of -h."""
        return self._query(self._tree_y, self.X, self.order_x, h, 1, None)[1][:, 0]

    def column_min(self, h: Array) -> Array:
        """Return ``min_i c_ij + h_i``: the c-transform of -h."""
        return self._query(self._tree_x, self.Y, self.order_y, h, 1, None)[1][:, 0]

    def _query(
        self, tree: Any, x: Array, order: NDArray[np.int32], h: Array, k: int, bound: Array | None
    ) -> tuple[Indices, Array]:
        tree.set_h(np.ascontiguousarray(h))
        indices, values = np.empty((len(x), k), np.int64), np.empty((len(x), k))
        bound = np.empty(0) if bound is None else bound
        tree.nearest(x, queries=order, bound=bound, squared=self.squared, indices=indices, values=values)
        return indices, values


def solve_points(
    X: ArrayLike, Y: ArrayLike, p: ArrayLike | None = None, q: ArrayLike | None = None, squared: bool = True,
    neighbours: int = 8,
) -> Solution:  # fmt: skip
    """Solve transport between two clouds of points in one to three dimensions exactly.

    Parameters
    ----------
    X, Y : arrays of shape (m1, d) and (m2, d)
    p, q : arrays of shape (m1,) and (m2,), optional
        Non-negative weights, normalised or not; uniform by default.
    squared : bool
        Squared or plain Euclidean distances.
    neighbours : int
        Arcs of least reduced cost that every point brings in.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((1000, 2))
    >>> answer = solve_points(X, X + [0.1, 0.0])
    >>> answer.status, round(answer.upper, 12)
    ('optimal', 0.01)
    """
    X, Y = (np.ascontiguousarray(x, np.float64) for x in (X, Y))
    p = np.ones(len(X)) if p is None else np.ascontiguousarray(p, np.float64)
    q = np.ones(len(Y)) if q is None else np.ascontiguousarray(q, np.float64)
    rows, columns = np.flatnonzero(p), np.flatnonzero(q)
    f, _, problem, rounds, (rows, columns) = _solve_cells(X, Y, p, q, rows, columns, squared, neighbours)
    whole = Points(X, Y, squared)
    full_f, full_g = np.full(len(X), np.inf), np.full(len(Y), np.inf)
    full_f[rows] = f - np.median(f)
    # c-transforms make the potentials feasible for all points; what rounding may have added is taken off
    full_g = whole.column_min(-np.where(np.isfinite(full_f), full_f, -np.inf))
    full_f = whole.row_min(-full_g)
    depth = X.shape[1] + 3
    slack = depth * _ULP * float(np.abs(full_f).max() + np.abs(full_g).max())
    full_f -= slack
    low, high = np.minimum(X.min(axis=0), Y.min(axis=0)), np.maximum(X.max(axis=0), Y.max(axis=0))
    largest = 1.01 * float(((high - low) ** 2).sum())
    largest = largest if squared else largest**0.5
    return certify(problem, rows, columns, p, q, full_f, full_g, whole.at, depth, rounds, largest)


def certify(
    problem: ArcProblem,
    rows: Indices,
    columns: Indices,
    p: Array,
    q: Array,
    f: Array,
    g: Array,
    at: Any,
    depth: int,
    rounds: int,
    largest: float,
) -> Solution:
    """Return the solution of a basis with bounds rounded outwards.

    Parameters
    ----------
    problem : ArcProblem
        At its optimum.
    rows, columns : arrays of int
        The points of its rows and columns.
    p, q : arrays of shape (m1,) and (m2,)
        The weights of all points.
    f, g : arrays of shape (m1,) and (m2,)
        Potentials that are feasible for all pairs.
    at : callable
        ``at(i, j)`` returns costs, which are not negative.
    depth : int
        Rounded operations behind a cost.
    rounds : int
    largest : float
        A bound of the costs.
    """
    i, j, mass, misplaced = problem.exact_plan()
    costs = at(rows[i], columns[j])
    plan = sparse.csr_array(sparse.coo_array((mass, (rows[i], columns[j])), shape=(len(p), len(q))))
    found = bounds(p, q, f, g, mass, costs, depth)
    upper = found.upper + 2 * misplaced * largest  # another way for what is misplaced costs no more
    state = status(found.lower, upper, found.size)
    return Solution(found.value, found.lower, upper, state, f, g, plan, rounds)


def solve_grid(
    shape: tuple[int, ...], p: ArrayLike, q: ArrayLike, spacing: float | tuple[float, ...] = 1.0, squared: bool = True
) -> Solution:
    """Solve transport on a grid in one to three dimensions exactly, for squared or plain Euclidean distances.

    Parameters
    ----------
    shape : tuple of int
        Any sides.
    p, q : arrays of the grid's size
        Non-negative weights in C order, normalised or not; zeros anywhere.
    spacing : float or tuple of float
        Distance of neighbours along the axes.
    squared : bool

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.zeros((33, 20)), np.zeros((33, 20))
    >>> p[:10, :10] = q[5:15, 7:17] = 1
    >>> answer = solve_grid(p.shape, p, q)
    >>> answer.status, round(answer.upper, 9)
    ('optimal', 74.0)
    """
    steps = np.broadcast_to(np.asarray(spacing, np.float64), len(shape))
    axes = [n * step for n, step in zip(np.indices(shape), steps, strict=True)]
    points = np.stack([axis.ravel() for axis in axes], axis=1)
    p, q = (np.asarray(x, np.float64).ravel() for x in (p, q))
    return solve_points(points, points, p, q, squared)


def _solve_cells(
    X: Array, Y: Array, p: Array, q: Array, rows: Indices, columns: Indices, squared: bool, neighbours: int
) -> tuple[Array, Array, ArcProblem, int, tuple[Indices, Indices]]:
    """Solve between the given points; return potentials, the problem, rounds and the points in its order."""
    x, y, a, b = X[rows], Y[columns], p[rows], q[columns]
    oracle = Points(x, y, squared)
    # neighbours in space get neighbouring numbers
    order_x, order_y = oracle.order_x.astype(np.int64), oracle.order_y.astype(np.int64)
    x, y, a, b = x[order_x], y[order_y], a[order_x], b[order_y]
    oracle = Points(x, y, squared)
    if max(oracle.shape) <= _SMALLEST:
        every = np.indices(oracle.shape).reshape(2, -1)
        C = oracle.at(*every)
        answer = solve_dense(C.reshape(oracle.shape), a, b, plan=False)
        f, g = answer.f[0], answer.g[0]
        problem = ArcProblem(a, b)
        problem.add(every[0], every[1], C)
        problem.start(f, g, max(float(C.max()), 1e-300))
        problem.optimise()
        rounds = 1
    else:
        coarse_x, coarse_a = _join(x, a)
        coarse_y, coarse_b = _join(y, b)
        _, coarse_g, _, _, (_, to) = _solve_cells(
            coarse_x, coarse_y, coarse_a, coarse_b, np.arange(len(coarse_x)), np.arange(len(coarse_y)), squared,
            neighbours,
        )  # fmt: skip
        f = Points(x, coarse_y[to], squared).row_min(-coarse_g)
        g = oracle.column_min(-f)
        f = oracle.row_min(-g)
        f, g, problem, rounds = solve_arcs(oracle, a, b, f, g, neighbours)
    return f, g, problem, rounds, (rows[order_x], columns[order_y])


def _join(x: Array, a: Array) -> tuple[Array, Array]:
    """Return the weighted centroids and the weights of cells of neighbouring points."""
    if len(x) <= _SMALLEST:
        return x, a
    label = np.empty(len(x), np.int64)
    cells = kernels().median_cells(x, most=_CELL, label=label)
    weight = np.asarray(np.bincount(label, a, cells), np.float64)
    return np.stack([np.bincount(label, a * c, cells) / weight for c in x.T], axis=1), weight


def solve_arcs(
    oracle: Points, p: Array, q: Array, f: Array, g: Array, neighbours: int, max_rounds: int = 100
) -> tuple[Array, Array, ArcProblem, int]:
    """Solve a problem exactly from potentials f and g: nearest arcs, then violated arcs until there is none.

    Parameters
    ----------
    oracle : Points
    p, q : arrays of shape (m1,) and (m2,)
        Positive weights.
    f, g : arrays of shape (m1,) and (m2,)
        Potentials, the nearer to optimal the faster.
    neighbours : int
        Arcs that each point brings in.

    Returns
    -------
    f, g, problem, rounds
    """
    m1, m2 = oracle.shape
    J, I = oracle.rows(-g, min(neighbours, m2)), oracle.columns(-f, min(neighbours, m1))  # noqa: E741
    arcs = _unique(_pairs(np.arange(m1)[:, None], J, m2), _pairs(I, np.arange(m2)[:, None], m2))
    problem = ArcProblem(p, q)
    i, j = np.divmod(arcs, m2)
    costs = oracle.at(i, j)
    problem.add(i, j, costs)
    scale = float(np.abs(costs).max() + np.ptp(f) + np.ptp(g))
    largest = float((costs - f[i] - g[j]).max())
    problem.start(f, g, 2 * largest + _ULP * scale)
    tolerance = 4 * _ULP * scale
    for rounds in range(1, max_rounds + 1):  # noqa: B007
        carried = problem.optimise(tolerance)
        f, g = problem.potentials()
        J = oracle.rows(-g, min(neighbours, m2), f - 4 * tolerance)
        found = _pairs(np.arange(m1)[:, None], J, m2)
        fresh = np.setdiff1d(found, arcs, assume_unique=True)
        if len(fresh) == 0:
            if carried:
                break
            problem.raise_artificial()
            continue
        arcs = _unique(arcs, fresh)
        i, j = np.divmod(fresh, m2)
        problem.add(i, j, oracle.at(i, j))
    return f, g, problem, rounds  # if the rounds ran out, the bounds show what is left open


def _pairs(i: Indices, j: Indices, m2: int) -> Indices:
    """Return pairs as ``i m2 + j``, without those that have a negative index."""
    return (i * m2 + j)[(i >= 0) & (j >= 0)]


def _unique(*arcs: Indices) -> Indices:
    """Return the union of arcs, sorted."""
    every = np.sort(np.concatenate(arcs))
    return every[np.diff(every, prepend=-1) > 0]
