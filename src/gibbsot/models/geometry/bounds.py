"""Certified lower bounds of transport costs that take a fraction of the time of an exact solution.

`first_bounds` returns cheap bounds of all pairs of two sets, `refine` dearer and better ones of chosen pairs. All of
them are lowered by what rounding may have added.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ...costs import Cost
from ...costs.problems import Problem
from ...exact.certificate import lower_bound
from ...exact.methods import optima
from .sets import Clouds, Rows

Array = NDArray[np.float64]

_LEVELS = 64  # bins of the quantile functions
_FRAMES = 4
_DIRECTIONS = 16  # at most, in more than three dimensions
_COARSE_POINTS = 200  # of a grid, from which the potentials of a coarse problem pay off
_BLOCK = 4_000_000  # entries of temporary arrays
_FEWEST_LEARNED, _MOST_DUALS = 50, 512  # measures from which duals are kept, and how many of these
_AVERAGED = 5  # measures in a mean
_CACHED = 16_000  # pairs whose bounds stay in a processor's cache
_OPERATIONS = 200_000_000  # of one call of a kernel, which cannot be interrupted
_SPARSE = 0.1  # share of the points with weight, below which products of sparse matrices are faster
_ULP = float(np.finfo(np.float64).eps)


class FirstBounds(Protocol):
    """Bounds of all pairs of two sets: features of each measure, and what two of them prove."""

    def features(self, rows: Any) -> Array: ...

    def __call__(self, first: Array, second: Array) -> Array: ...


def first_bounds(cost: Cost) -> FirstBounds:
    """Return the bounds that suit a cost: by projections where it has a geometry, by nearest points elsewhere."""
    found = _projections(cost)
    return NearestPoints(cost) if found is None else found


def _projections(cost: Cost) -> Projections | None:
    """Return bounds by projections, if the cost has a geometry."""
    found = cost.positions()
    if found is None or not (found.X is found.Y or cost.symmetric()):
        return None
    X, d, power = found.X, found.X.shape[1], found.power
    if found.norm == 2:
        frames = rotations(d) if d <= 3 else [principal(X, _DIRECTIONS)]
        return Projections(X, power, frames if power == 2 else [u[:, None] for frame in frames for u in frame.T])
    if found.norm == power and d <= _DIRECTIONS:  # a sum over the axes
        return Projections(X, power, [np.eye(d)])
    return None


def rotations(d: int) -> list[Array]:
    """Return orthonormal frames in one to three dimensions, the axes first."""
    if d == 1:
        return [np.eye(1)]
    if d == 2:
        angles = np.pi / 2 * np.arange(_FRAMES) / _FRAMES
        return [np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in angles]
    rng = np.random.default_rng(0)
    return [np.eye(d), *(np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(_FRAMES - 1))]


def principal(points: Array, count: int) -> Array:
    """Return the directions in which points vary most, as columns."""
    _, _, directions = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    return np.ascontiguousarray(directions[:count].T)


class Projections:
    r"""Lower bounds by the quantile functions of projections.

    .. math:: W(p, q) \ge \max_f \sum_{u \in f} \frac{1}{K} \sum_{k=1}^K |a_{uk}(p) - a_{uk}(q)|^r

    for a cost that is at least the sum of ``|<u, x - y>|^r`` over the directions u of a frame f. The numbers
    ``a_uk(p)`` are the means of the quantile function of the projection on u in K bins; by Jensen's inequality they
    bound the transport cost on the line.

    Parameters
    ----------
    points : array of shape (m, d)
        The points.
    power : float
        The power r, at least 1.
    frames : list of arrays of shape (d, k)
        Directions as orthonormal columns.
    """

    def __init__(self, points: Array, power: float, frames: list[Array]) -> None:
        self._power, centred = power, points - points.mean(axis=0)
        self._widths = [frame.shape[1] for frame in frames]
        places = np.concatenate([centred @ frame for frame in frames], axis=1).T
        self._orders = [np.argsort(x, kind="stable") for x in places]
        self._places = [x[order] for x, order in zip(places, self._orders, strict=True)]
        # sums of m terms and differences of them times K: an upper bound of the error of a feature
        self._error = _LEVELS * (len(points) + 16) * _ULP * float(np.abs(places).max())

    @staticmethod
    def by_features(power: float, widths: list[int], error: float) -> Projections:
        """Return bounds by features that are made elsewhere: directions of the frames, and the error of a feature."""
        made = object.__new__(Projections)
        made._power, made._widths, made._error = power, widths, error
        return made

    def features(self, rows: Array) -> Array:
        """Return the bin means of the quantile functions, of shape (n, directions, K)."""
        found = np.empty((len(rows), len(self._orders), _LEVELS))
        levels = np.linspace(0, 1, _LEVELS + 1)
        step = max(1, _BLOCK // rows.shape[1])
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            for d, (order, x) in enumerate(zip(self._orders, self._places, strict=True)):
                weight = some[:, order]
                # the integral of the quantile function is linear between sums of weights
                share, integral = (np.zeros((len(some), len(x) + 1)) for _ in range(2))
                np.cumsum(weight, axis=1, out=share[:, 1:])
                np.cumsum(weight * x, axis=1, out=integral[:, 1:])
                share, integral = share / share[:, -1:], integral / share[:, -1:]
                for k in range(len(some)):
                    found[start + k, d] = np.diff(np.interp(levels, share[k], integral[k])) * _LEVELS
        return found

    def __call__(self, first: Array, second: Array) -> Array:
        """Return the bounds of all pairs of two sets of features."""
        best = np.zeros((len(first), len(second)))
        for start, end in pairwise(np.cumsum([0, *self._widths])):
            a, b = (x[:, start:end].reshape(len(x), -1) for x in (first, second))
            np.maximum(best, self._frame(a, b, int(end - start)), out=best)
        return best

    def _frame(self, a: Array, b: Array, width: int) -> Array:
        """Return the bounds of one frame, lowered by rounding errors."""
        if self._power == 2:
            squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)
            sums = squares - 2 * (a @ b.T) - (a.shape[1] + 8) * _ULP * squares
        else:
            sums = np.empty((len(a), len(b)))
            step = max(1, _BLOCK // b.size)
            for start in range(0, len(a), step):
                apart = np.abs(a[start : start + step, None] - b)
                sums[start : start + step] = (apart**self._power).sum(axis=2)
            sums *= 1 - (a.shape[1] + 16) * _ULP
        norms = (np.maximum(sums, 0) / _LEVELS) ** (1 / self._power) - 2 * self._error * width ** (1 / self._power)
        return np.maximum(norms, 0) ** self._power * (1 - 32 * _ULP)


class CloudBounds:
    """Lower bounds of clouds, measures with points of their own: by projections, as `Projections` has them.

    Parameters
    ----------
    metric : str
        The cost between points. For those that no projection bounds, every pair has the bound -1: no metric of points
        is less.
    points : array of shape (m, d)
        Points of the clouds that the others are compared with, which determine the directions.
    """

    def __init__(self, metric: str, points: Array) -> None:
        d, self._projections = points.shape[1], list[Array]()
        self._centre, self._power = points.mean(axis=0), 2.0 if metric == "sqeuclidean" else 1.0
        if metric in ("sqeuclidean", "euclidean"):
            frames = rotations(d) if d <= 3 else [principal(points, _DIRECTIONS)]
            single = [u[:, None] for frame in frames for u in frame.T]
            self._projections = frames if metric == "sqeuclidean" else single
        elif metric == "cityblock" and d <= _DIRECTIONS:
            self._projections = [np.eye(d)]
        elif metric == "chebyshev":
            self._projections = [u[:, None] for u in np.eye(d)[:_DIRECTIONS]]
        self._error = 0.0

    def features(self, clouds: Clouds) -> Array:
        """Return the bin means of the quantile functions of all clouds, of shape (n, directions, K)."""
        frame = np.concatenate([*self._projections, np.empty((len(self._centre), 0))], axis=1)
        found, levels = np.empty((len(clouds), frame.shape[1], _LEVELS)), np.linspace(0, 1, _LEVELS + 1)
        for k, (points, weight) in enumerate(zip(clouds.points, clouds.weights, strict=True)):
            centred = points - self._centre
            places, size = (centred @ frame).T, float(np.abs(centred).max()) + float(np.abs(self._centre).max())
            order = np.argsort(places, axis=1)
            share = np.cumsum(weight[order], axis=1)
            integral = np.cumsum(weight[order] * np.take_along_axis(places, order, axis=1), axis=1)
            for u, (a, b) in enumerate(zip(share, integral, strict=True)):
                ends = np.append(0, a / a[-1]), np.append(0, b / a[-1])
                found[k, u] = np.diff(np.interp(levels, *ends)) * _LEVELS
            # sums of m terms, of d products each, and differences of them times K
            error = _LEVELS * (len(points) + len(self._centre) + 16) * _ULP * len(self._centre) * size
            self._error = max(self._error, error)
        return found

    def __call__(self, first: Array, second: Array) -> Array:
        """Return the bounds of all pairs of two sets of features."""
        if not self._projections:
            return np.full((len(first), len(second)), -1.0)
        widths = [frame.shape[1] for frame in self._projections]
        return Projections.by_features(self._power, widths, self._error)(first, second)


class NearestPoints:
    r"""Lower bounds by nearest points: each point moves to the nearest one of the other measure.

    .. math:: W(p, q) \ge \max\Big(\sum_i p_i \min_{j: q_j > 0} M_{ij}, \; \sum_j q_j \min_{i: p_i > 0} M_{ij}\Big)

    The relaxed word mover's distance of Kusner et al. (2015). After `learn` also by duals f and g of other problems,
    which are feasible for all measures:

    .. math:: W(p, q) \ge \max_k \; \langle p, f_k \rangle + \langle q, g_k \rangle

    Parameters
    ----------
    cost : Cost
        A finite cost between m points on either side.
    """

    def __init__(self, cost: Cost) -> None:
        self._cost, self._duals = cost.astype(np.float64), list[tuple[Array, Array]]()
        self._symmetric = self._cost.symmetric()
        self._error = (2 * cost.depth + 2 * cost.shape[0] + 16) * _ULP * (abs(cost.least()) + cost.spread())

    def features(self, rows: Array) -> Array:
        """Return weights, and the least costs from and to the points that have weight, of shape (n, 3, m)."""
        found = np.empty((len(rows), 3, rows.shape[1]))
        step = max(1, _OPERATIONS // rows.shape[1] ** 2)
        for start in range(0, len(rows), step):
            some, out = rows[start : start + step], found[start : start + step]
            out[:, 0] = some / some.sum(axis=1, keepdims=True)
            out[:, 1] = self._cost.row_min(np.where(some > 0, 0.0, np.inf))
            out[:, 2] = out[:, 1] if self._symmetric else -self._cost.col_max(np.where(some > 0, 0.0, -np.inf))
        return found

    def learn(self, measures: Rows, n_jobs: int | None) -> None:
        """Solve problems between measures and means of others, and keep their duals.

        Means have weight on many points, so that their duals say something of any measure. They take the time of as
        many exact solutions as there are measures, or of 512.
        """
        n = len(measures)
        if n < _FEWEST_LEARNED:
            return
        rng = np.random.default_rng(0)
        chosen, step = rng.permutation(n)[:_MOST_DUALS], max(1, _OPERATIONS // self._cost.shape[0] ** 2)
        f, g = list[Array](), list[Array]()
        for start in range(0, len(chosen), step):
            rows = measures[chosen[start : start + step]]
            means = np.stack([_mean(measures[rng.integers(n, size=_AVERAGED)]) for _ in rows])
            found = optima(Problem.checked(rows, means, self._cost, np.ones(len(rows))), n_jobs=n_jobs)
            f.append(np.stack([solution.f for solution in found]))
            g.append(-self._cost.col_max(f[-1]).astype(np.float64))
        pair = np.concatenate(f), np.concatenate(g)
        self._duals = [pair, pair[::-1]] if self._symmetric else [pair]
        self._error_of_duals = 2 * (self._cost.shape[0] + 16) * _ULP * float(max(np.abs(x).max() for x in pair))

    def __call__(self, first: Array, second: Array) -> Array:
        """Return the bounds of all pairs of two sets of features."""
        p, q = (_compressed(x[:, 0]) for x in (first, second))
        best = np.maximum(p @ second[:, 1].T, (q @ first[:, 2].T).T) - self._error
        mirrored = self._symmetric and np.array_equal(first, second)  # then the second duals give the transpose
        for f, g in self._duals[: 1 if mirrored else None]:
            a, b = (p @ f.T).T, (q @ g.T).T - (self._error + 2 * self._error_of_duals)
            step = max(1, _CACHED // best.shape[1])
            for start in range(0, len(best), step):
                some = best[start : start + step]
                apart = np.empty_like(some)
                for own, other in zip(a[:, start : start + step, None], b, strict=True):
                    np.add(own, other, out=apart)
                    np.maximum(some, apart, out=some)
        return np.maximum(best, best.T) if mirrored else best


def _compressed(weights: Array) -> Any:
    """Return weights as a sparse matrix if few points have some, which is then faster to multiply."""
    return sparse.csr_array(weights) if np.count_nonzero(weights) < _SPARSE * weights.size else weights


def _mean(rows: Array) -> Array:
    """Return the mean of measures after normalisation."""
    return np.asarray((rows / rows.sum(axis=1, keepdims=True)).mean(axis=0))


class Refinement:
    """Better lower bounds of chosen pairs, by feasible potentials.

    On grids these are the potentials of the exact solution of a problem with half as many points per axis,
    interpolated; elsewhere the least costs to the points of the other measure. c-transforms make both of them feasible.

    Parameters
    ----------
    cost : Cost
        A finite cost between m points on either side.
    """

    def __init__(self, cost: Cost) -> None:
        self._cost, self._coarse = cost.astype(np.float64), None
        if cost.row_shape and cost.shape[0] >= _COARSE_POINTS and min(cost.row_shape) > 3:
            ones = np.ones(cost.shape[0])
            self._coarse = self._cost.coarsen(ones, ones, 0)
            self._weights = [_interpolation(n) for n in cost.row_shape]

    @property
    def useful(self) -> bool:
        """Whether these bounds can be better than the first ones, and are cheaper than a solution."""
        return self._coarse is not None or not self._cost.row_shape

    def __call__(self, problem: Problem, n_jobs: int | None) -> Array:
        """Return lower bounds."""
        q, h = problem.q, np.zeros_like(problem.q)
        if self._coarse is not None:
            cost, cells = self._coarse.cost, self._coarse.rows
            first, second = (
                np.stack([np.asarray(np.bincount(cells, row, cost.shape[0]), np.float64) for row in x])
                for x in problem.given
            )
            found = optima(Problem.checked(first, second, cost, np.ones(len(q))), n_jobs=n_jobs)
            h = -self._interpolated(np.stack([solution.g for solution in found]))
        U = self._cost.row_min(np.where(q > 0, h, np.inf), n_jobs)
        return lower_bound(problem.with_cost(self._cost), U)

    def _interpolated(self, g: Array) -> Array:
        """Return potentials of the coarse grid on the fine one, linear between the centres of cells."""
        image = g.reshape(len(g), *((n + 1) // 2 for n in self._cost.row_shape))
        for axis, weights in enumerate(self._weights, 1):
            image = np.moveaxis(np.tensordot(image, weights, (axis, 1)), -1, axis)
        return image.reshape(len(g), -1)


def _interpolation(n: int) -> Array:
    """Return the matrix of linear interpolation from cells of two points to n points, which extrapolates at the ends.

    Examples
    --------
    >>> _interpolation(4)
    array([[ 1.25, -0.25],
           [ 0.75,  0.25],
           [ 0.25,  0.75],
           [-0.25,  1.25]])
    """
    centres = (np.arange(0, n, 2) + np.minimum(np.arange(0, n, 2) + 1, n - 1)) / 2
    points = np.arange(n)
    low = np.clip(np.searchsorted(centres, points, side="right") - 1, 0, len(centres) - 2)
    share = (points - centres[low]) / (centres[low + 1] - centres[low])
    weights = np.zeros((n, len(centres)))
    weights[points, low], weights[points, low + 1] = 1 - share, share
    return weights
