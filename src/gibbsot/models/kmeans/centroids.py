"""Centroids of clusters of measures: what is solved between them and the measures, what is kept, and their updates.

`RowCentroids` are weights on the common points of rows, `CloudCentroids` points of their own. Potentials of a pair that
was solved stay feasible when the centroid moves. So they are kept: they prove lower bounds of later costs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost, PointCost
from ...costs.problems import Problem
from ...exact import certificate
from ...exact.method import in_threads
from ...exact.methods import optima
from ...exact.solution import Solution
from ...oracle.level_method import LevelMethod
from ..barycenter.free import Alternation, Cloud, Clouds
from ..geometry import sets as _sets
from ..geometry.bounds import Projections, first_bounds, principal, rotations

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_BYTES = 512e6  # of the potentials that are kept
_ULP = float(np.finfo(np.float64).eps)
_UNIFORM = 0.01  # share of all points in the weights from which an update starts: a weight of zero would hardly grow
_STEPS = 10, 60  # of an update of a centroid's weights: of one that will move again, and of a last one
_MOVES = 6, 300  # the same for points and weights
_DIRECTIONS = 16  # in which clouds are projected, at most, in more than three dimensions
_NOTHING = 2.0**-40  # of the largest cost: objectives below that, as those of members that are all the same, are zero
_LEVELS = 64  # bins of quantile functions, as those of `Projections`
_SHORTER = 1 - 2.0**-40  # directions that are orthonormal up to rounding: so short that their frame never lengthens


class Costs(NamedTuple):
    """Exact costs of pairs: their values, and bounds that are rounded outwards."""

    value: Array
    lower: Array
    upper: Array

    @classmethod
    def of(cls, found: list[Solution]) -> Costs:
        """Return the numbers of solutions."""
        rows = np.array([(one.value, one.lower, one.upper) for one in found]).reshape(-1, 3)
        return cls(*rows.T.copy())


class Update(NamedTuple):
    """What an update of a centroid has found.

    Attributes
    ----------
    costs : Costs
        The exact costs of its members to where it is now.
    gap : float
        The certified relative gap to their barycenter, or the stationarity of a centroid with free support.
    solved : int
        How many problems were solved.
    """

    costs: Costs
    gap: float
    solved: int


class Centroids(ABC):
    """Measures, and the centroids of their clusters.

    Attributes
    ----------
    power : float
        The r for which the r-th root of transport costs is a distance; 0 if there is none.
    """

    power: float = 0.0

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of measures."""

    @abstractmethod
    def set(self, k: int, centroid: Any) -> None:
        """Replace a centroid."""

    @abstractmethod
    def get(self, k: int) -> Any:
        """Return a centroid."""

    @abstractmethod
    def like(self, i: int, random: Any) -> Any:
        """Return a centroid that is a measure, or near to it."""

    @abstractmethod
    def bounds(self, k: int) -> Array:
        """Return cheap certified lower bounds of the costs of all measures to a centroid."""

    @abstractmethod
    def solve(self, i: Indices, k: Indices) -> Costs:
        """Solve pairs of measures and centroids exactly, and keep their potentials."""

    @abstractmethod
    def between(self, first: Any, second: Any) -> float:
        """Return a certified upper bound of the cost between two centroids."""

    @abstractmethod
    def apart(self, first: Any, second: Any) -> float:
        """Return a certified lower bound of the cost between two centroids."""

    @abstractmethod
    def update(self, k: int, members: Indices, weights: Array, gap: float, last: bool) -> Update:
        """Move a centroid towards the barycenter of its members, to a relative gap or for some steps."""


class RowCentroids(Centroids):
    """Measures as rows of weights on common points, and centroids on the same points.

    Parameters
    ----------
    X : array of shape (n, m)
        The measures, which need not be normalised.
    cost : Cost
        From the points of a centroid to those of a measure.
    count : int
        The number of centroids.
    n_jobs : int, optional
        Threads over the problems.
    """

    def __init__(self, X: Array, cost: Cost, count: int, n_jobs: int | None) -> None:
        self.X, self.cost, self.n_jobs = X, cost.astype(np.float64), n_jobs
        self.normalised: Array = X / X.sum(axis=1, keepdims=True)
        n, m = X.shape
        self.centres: Array = np.zeros((count, m))
        self._underflow = cost.underflow()
        self._first = first_bounds(cost)
        self._features = np.concatenate([self._first.features(block) for block in _sets.Rows(X).blocks()])
        kept = n * count * m * 4 <= _BYTES
        # of each pair: potentials of the centroid's points, and what the others and rounding add to the bound
        self._f = np.zeros((count, n if kept else 0, m), np.float32)
        self._rest = np.full((count, n), -np.inf)
        places = cost.positions()
        if places is not None and (places.X is places.Y or cost.symmetric()):
            self.power = places.power  # of a norm

    def __len__(self) -> int:
        return len(self.X)

    def set(self, k: int, centroid: Array) -> None:
        self.centres[k] = centroid / centroid.sum()

    def get(self, k: int) -> Array:
        return self.centres[k].copy()

    def like(self, i: int, random: Any) -> Array:
        return self.normalised[i].copy()

    def bounds(self, k: int) -> Array:
        """Return bounds by projections or nearest points, and by the potentials that are kept."""
        c = self.centres[k]
        found = self._first(self._first.features(c[None]), self._features)[0]
        if self._f.shape[1]:
            found = np.maximum(found, self._f[k] @ c + self._rest[k])
        return np.maximum(found, self.cost.least())

    def solve(self, i: Indices, k: Indices) -> Costs:
        parts = []
        for which in _sets.chunks(_sets.Rows(self.centres), _sets.Rows(self.X), len(i), self.n_jobs):
            found = self._optima(self.centres[k[which]], self.X[i[which]])
            self._keep(i[which], k[which], found)
            parts.append(Costs.of(found))
        return Costs(*(np.concatenate(x) for x in zip(*parts, strict=True))) if parts else Costs.of([])

    def _optima(self, P: Array, X: Array, near: list[Solution] | None = None) -> list[Solution]:
        problem = Problem.checked(P, X, self.cost, np.ones(len(P)))
        return optima(problem, n_jobs=self.n_jobs, warm_start=near)

    def _keep(self, i: Indices, k: Indices, found: list[Solution]) -> None:
        """Keep potentials for later bounds: rounded down to single precision, and without what rounding may add."""
        if not self._f.shape[1] or not found:
            return
        f, g = self._feasible(found)
        single = f.astype(np.float32)
        single = np.where(single > f, np.nextafter(single, np.float32(-np.inf)), single)
        value, error = self._mean_rows(self.normalised[i], g)
        # of the later product with a centroid, normalised and rounded
        later = 1.01 * (2 * f.shape[1] + 6) * _ULP * np.abs(single).max(axis=1).astype(np.float64)
        rest = value - error - later
        self._f[k, i], self._rest[k, i] = single, rest - 4 * _ULP * np.abs(rest)

    def _feasible(self, found: list[Solution]) -> tuple[Array, Array]:
        """Return potentials of solutions that are feasible in exact arithmetic."""
        f, g = (np.stack([getattr(one, name) for one in found]) for name in "fg")
        return certificate.below(f, g, self.cost.depth, self._underflow)

    def _mean_rows(self, X: Array, g: Array) -> tuple[Array, Array]:
        """Return ``<x, g>`` of each normalised row x, and a bound of its error."""
        m = X.shape[1]
        error = 1.01 * (2 * m + 6) * _ULP * np.einsum("ij,ij->i", X, np.abs(g))
        return np.einsum("ij,ij->i", X, g), error

    def _cut(self, share: Array, X: Array, found: list[Solution]) -> Array:
        """Return what potentials of members prove for all centroids: an affine function of the weights, rounded down.

        Parameters
        ----------
        share : array of shape (n,)
            The normalised weights of the members.
        X : array of shape (n, m)
            The normalised members.
        found : list of Solution
            Their solutions.
        """
        f, g = self._feasible(found)
        own, error = certificate.matrix_product(share, f, 2 * len(share) + 4)
        rest, less = self._mean_rows(X, g)
        total, more = certificate.matrix_product(share, rest, 2 * len(share) + 4)
        least = own + total - error - more - 1.01 * (share @ less)
        return np.asarray(least - 8 * _ULP * (np.abs(own) + abs(total)))

    def between(self, first: Array, second: Array) -> float:
        return max(0.0, self._optima(first[None], second[None])[0].upper)

    def apart(self, first: Array, second: Array) -> float:
        return max(0.0, self._optima(first[None], second[None])[0].lower)

    def update(self, k: int, members: Indices, weights: Array, gap: float, last: bool) -> Update:
        """Move a centroid by the level method, whose cuts are the mean potentials of exact solutions."""
        X, share = self.normalised[members], weights / weights.sum()
        start = share @ X if not last or len(X) < 3 else 0.5 * (share @ X + self.centres[k])
        level, least = LevelMethod((1 - _UNIFORM) * start + _UNIFORM / len(start)), self.cost.least()
        p = best_p = X[0] if (X[0] == X).all() else self.centres[k]
        best, near, found, steps = np.inf, None, list[Solution](), 0
        nothing, rounding = _NOTHING * self.cost.spread(), 64 * _ULP * self.cost.spread()
        for steps in range(1, _STEPS[last] + 1):
            near = self._optima(np.tile(p, (len(X), 1)), self.X[members], near)
            value = float(share @ [one.value for one in near])
            if value < best:
                best, best_p, found = value, p, near
            level.add(self._cut(share, X, near))
            if steps > 1:
                level.step(least, best)
            if best - level.lower <= max(gap * max(abs(best), nothing), rounding):
                break
            p = np.exp(level.log_p)
            p /= p.sum()
        self.centres[k] = best_p
        self._keep(members, np.full(len(members), k), found)
        lower = max(level.lower, least)
        upper = certificate.mean(weights, np.array([one.upper for one in found])).upper
        scale = max(float(share @ [one.scale for one in found]), nothing)
        return Update(Costs.of(found), certificate.relative_gap(lower, upper, scale), steps * len(X))


class CloudProjections(Projections):
    """The bounds of `Projections` for clouds, each with its own points.

    Parameters
    ----------
    clouds : list of Cloud
        Clouds that tell about the directions and the size of the points.
    """

    def __init__(self, clouds: list[Cloud]) -> None:
        every = np.concatenate([cloud.points for cloud in clouds])
        d = every.shape[1]
        frames = rotations(d) if d <= 3 else [principal(every, _DIRECTIONS)]
        self._power, self._mean = 2.0, every.mean(axis=0)
        self._widths = [frame.shape[1] for frame in frames]
        self._frames, self._error = _SHORTER * np.concatenate(frames, axis=1), 0.0

    def of(self, clouds: list[Cloud]) -> Array:
        """Return the bin means of the quantile functions, of shape (n, directions, levels)."""
        found = np.empty((len(clouds), self._frames.shape[1], _LEVELS))
        most, d = max(len(cloud.points) for cloud in clouds), len(self._mean)
        size = max(float(np.abs(cloud.points - self._mean).sum(axis=1).max()) for cloud in clouds)
        self._error = max(self._error, _LEVELS * (2 * most + d + 16) * _ULP * size)
        levels = np.linspace(0, 1, _LEVELS + 1)
        for b, cloud in enumerate(clouds):
            places = (cloud.points - self._mean) @ self._frames
            for a, x in enumerate(places.T):
                order = np.argsort(x, kind="stable")
                w = cloud.weights[order]
                share, integral = np.append(0.0, np.cumsum(w)), np.append(0.0, np.cumsum(w * x[order]))
                found[b, a] = np.diff(np.interp(levels, share / share[-1], integral / share[-1])) * _LEVELS
        return found


class CloudCentroids(Centroids):
    """Clouds, and centroids with points of their own; costs are squared Euclidean distances.

    Parameters
    ----------
    clouds : list of Cloud
        The measures, which need not be normalised.
    size : int
        The number of points of a centroid.
    count : int
        The number of centroids.
    tol : float
        The relative gain at which updates of points end.
    n_jobs : int, optional
        Threads over the problems.
    """

    power = 2.0

    def __init__(self, clouds: list[Cloud], size: int, count: int, tol: float, n_jobs: int | None) -> None:
        self.clouds, self.size, self.tol, self.n_jobs = clouds, size, tol, n_jobs
        self.centres: list[Cloud] = [clouds[0]] * count
        self._first = CloudProjections(clouds)
        self._features = self._first.of(clouds)

    def __len__(self) -> int:
        return len(self.clouds)

    def set(self, k: int, centroid: Cloud) -> None:
        self.centres[k] = centroid

    def get(self, k: int) -> Cloud:
        return self.centres[k]

    def like(self, i: int, random: Any) -> Cloud:
        """Return a cloud with as many points as a centroid may have, chosen by k-means++ if it has more."""
        own = self.clouds[i]
        if len(own.points) <= self.size:
            return own.normalised()
        one = Clouds([own.points], [own.weights])
        start = one.start(self.size, random, None)
        return Cloud(start.points + one.mean, start.weights)

    def bounds(self, k: int) -> Array:
        """Return bounds by projections."""
        return self._first(self._first.of([self.centres[k]]), self._features)[0]

    def solve(self, i: Indices, k: Indices) -> Costs:
        def one(b: int) -> Solution:
            return self._optimum(self.centres[k[b]], self.clouds[i[b]])

        return Costs.of(in_threads(one, range(len(i)), self.n_jobs))

    def _optimum(self, first: Cloud, second: Cloud) -> Solution:
        cost = PointCost(first.points, second.points)
        return optima(Problem.checked(first.weights[None], second.weights[None], cost, np.ones(1)))[0]

    def between(self, first: Cloud, second: Cloud) -> float:
        return max(0.0, self._optimum(first, second).upper)

    def apart(self, first: Cloud, second: Cloud) -> float:
        return max(0.0, self._optimum(first, second).lower)

    def update(self, k: int, members: Indices, weights: Array, gap: float, last: bool) -> Update:
        """Move a centroid by updates of its points and weights."""
        own = [self.clouds[i] for i in members]
        problem = Clouds([c.points for c in own], [c.weights for c in own], weights, self.n_jobs)
        exact, steps, left = problem.closed_form() if last else None, 1, 0.0
        if exact is not None and len(exact.points) <= self.size:
            self.centres[k] = exact
        else:
            start = self.centres[k]
            run = Alternation(problem, Cloud(start.points - problem.mean, start.weights), max(gap, self.tol))
            for steps, _ in enumerate(run.run(), 2):
                if steps > _MOVES[last]:
                    break
            self.centres[k], left = run.cloud(), run.stationarity
        costs = self.solve(members, np.full(len(members), k))
        return Update(costs, left, (steps + 1) * len(members))
