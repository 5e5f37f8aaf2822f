"""Centroids of clusters of measures: what is solved between them and the measures, what is kept, and their updates.

`RowCentroids` are weights on the common points of rows, `CloudCentroids` points of their own. Potentials of a pair that
was solved stay feasible when the centroid moves. So they are kept: they prove lower bounds of later costs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost
from ...costs.problems import Problem
from ...exact import certificate
from ...exact.methods import optima
from ...exact.solution import Solution
from ...oracle.level_method import LevelMethod
from ..barycenter.free import Alternation, Cloud, Clouds, cloud_optima
from ..geometry import sets as _sets
from ..geometry.bounds import Projections, first_bounds, principal, rotations
from .smoothed import Smoothing

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_BYTES = 512e6  # of the potentials that are kept
_ULP = float(np.finfo(np.float64).eps)
_UNIFORM = 1e-3  # share of all points in the weights from which an update starts: a weight of zero would hardly grow
_STEPS = 10, 60  # of an update of a centroid's weights: of one that will move again, and of a last one
_TEMPERATURES = 0.2, 0.07  # the same for the temperatures of entropic barycenters, in units of the mean cost
_SMOOTH_STEPS = 60, 500  # and for their steps
_KEPT_CUTS = 40  # of each centroid
_NEGLIGIBLE = 1e-6  # weight of a centroid, relative to its largest: smaller ones take time and change nothing
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


class Kept(NamedTuple):
    """What potentials prove of measures x_i: ``<c, f_i> + rest_i <= W(c, x_i)`` for all centroids c.

    Attributes
    ----------
    f : array of float32, shape (n, m)
        Potentials, rounded down.
    rest : array of shape (n,)
        What the others add, less what rounding may add, that of the product included.
    """

    f: NDArray[np.float32]
    rest: Array


class Update(NamedTuple):
    """What an update of a centroid has found.

    Attributes
    ----------
    costs : Costs, optional
        The exact costs of its members to where it is now; None if it has not moved.
    gap : float
        The certified relative gap to their barycenter, or the stationarity of a centroid with free support.
    solved : int
        How many problems were solved.
    """

    costs: Costs | None
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
    def update(self, k: int, members: Indices, weights: Array, value: float, gap: float, last: bool) -> Update:
        """Move a centroid towards the barycenter of its members; at last to a relative gap or for more steps.

        Parameters
        ----------
        k : int
            The centroid.
        members : array of int
            The measures of its cluster.
        weights : array
            Their positive weights.
        value : float
            The mean cost of the members, infinite if it is not known.
        gap : float
            The relative gap.
        last : bool
            Whether the centroid is not expected to move again.
        """


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
        self.smoothing = Smoothing(self.cost)
        self.smooth_f: Array = np.zeros((n, m) if 8 * n * m <= _BYTES else (0, m))  # its potentials
        self._cuts = dict[int, tuple[Indices, list[Kept]]]()  # of each centroid: members, and what was proved of them
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
            self._keep(i[which], k[which], self._kept(i[which], found))
            parts.append(Costs.of(found))
        return Costs(*(np.concatenate(x) for x in zip(*parts, strict=True))) if parts else Costs.of([])

    def _optima(self, P: Array, X: Array, near: list[Solution] | None = None) -> list[Solution]:
        problem = Problem.checked(P, X, self.cost, np.ones(len(P)))
        return optima(problem, n_jobs=self.n_jobs, warm_start=near)

    def _keep(self, i: Indices, k: Indices, kept: Kept) -> None:
        """Keep potentials for later bounds."""
        if self._f.shape[1] and len(i):
            self._f[k, i], self._rest[k, i] = kept

    def _kept(self, i: Indices, found: list[Solution]) -> Kept:
        """Return what the potentials of solutions prove."""
        if not found:
            return Kept(np.zeros((0, self.X.shape[1]), np.float32), np.zeros(0))
        f, g = (np.stack([getattr(one, name) for one in found]) for name in "fg")
        return self._proved(i, f, g)

    def _proved(self, i: Indices, f: Array, g: Array) -> Kept:
        """Return what potentials of measures prove, that are feasible up to rounding."""
        f, g = certificate.below(f, g, self.cost.depth, self._underflow)
        single = f.astype(np.float32)
        single = np.where(single > f, np.nextafter(single, np.float32(-np.inf)), single)
        x, operations = self.normalised[i], 1.01 * (2 * f.shape[1] + 6) * _ULP
        value, absolute = np.einsum("ij,ij->i", x, g), np.einsum("ij,ij->i", x, np.abs(g))
        # the second term is that of the later product with a centroid, normalised and rounded
        rest = value - operations * (absolute + np.abs(single).max(axis=1).astype(np.float64))
        return Kept(single, rest - 4 * _ULP * np.abs(rest))

    def _cut(self, share: Array, kept: Kept) -> Array:
        """Return what potentials of members prove for all centroids: an affine function of the weights, rounded down.

        Parameters
        ----------
        share : array of shape (n,)
            The normalised weights of the members.
        kept : Kept
            What is known of each of them.
        """
        own, error = certificate.matrix_product(share, kept.f.astype(np.float64), 2 * len(share) + 4)
        rest, more = certificate.matrix_product(share, kept.rest, 2 * len(share) + 4)
        return np.asarray(own + rest - error - more - 8 * _ULP * (np.abs(own) + abs(rest)))

    def earlier(self, k: int, members: Indices, now: Kept) -> list[Kept]:
        """Return what earlier updates of a centroid have proved of its present members; of new ones it is `now`."""
        known, cuts = self._cuts.get(k, (members[:0], []))
        if not len(known):
            return []
        place = np.minimum(np.searchsorted(known, members), len(known) - 1)
        old = known[place] == members
        return [Kept(np.where(old[:, None], f[place], now.f), np.where(old, rest[place], now.rest)) for f, rest in cuts]

    def keep_cuts(self, k: int, members: Indices, cuts: list[Kept]) -> None:
        """Keep what an update has proved of the members, in ascending order, as far as memory allows."""
        most = min(_KEPT_CUTS, int(_BYTES / (4 * len(self.centres) * len(members) * self.X.shape[1])))
        if most:
            self._cuts[k] = members, [*self.earlier(k, members, cuts[0]), *cuts][-most:]

    def between(self, first: Array, second: Array) -> float:
        return max(0.0, self._optima(first[None], second[None])[0].upper)

    def apart(self, first: Array, second: Array) -> float:
        return max(0.0, self._optima(first[None], second[None])[0].lower)

    def update(self, k: int, members: Indices, weights: Array, value: float, gap: float, last: bool) -> Update:
        """Move a centroid to an entropic barycenter, and at last by the level method, to a certified gap."""
        run = _RowUpdate(self, k, members, weights)
        if (run.X[0] == run.X).all():
            run.try_centre(run.X[0])
        elif value == np.inf:
            run.try_centre(self.centres[k])
        run.smooth(min(value, run.best), last)
        if last or run.best == np.inf:
            run.refine(value, gap, _STEPS[last])
        return run.finish(value, last)


class _RowUpdate:
    """An update of one of the `RowCentroids`.

    Attributes
    ----------
    best : float
        The least objective of what was tried, which `p` has.
    """

    def __init__(self, centroids: RowCentroids, k: int, members: Indices, weights: Array) -> None:
        self.centroids, self.k, self.members, self.weights = centroids, k, members, weights
        self.X, self.share = centroids.normalised[members], weights / weights.sum()
        self.p, self.best, self.solved = centroids.centres[k], np.inf, 0
        self.found, self.near = list[Solution](), list[Solution]()
        self.cuts = list[Kept]()  # of this update, one for each centre that was tried

    def try_centre(self, p: Array) -> None:
        """Solve for a centre, and keep it if it is better."""
        own, c = self.members, self.centroids
        self.near = c._optima(np.tile(p, (len(own), 1)), c.X[own], self.near or None)
        self.solved += len(own)
        self.cuts.append(c._kept(own, self.near))
        value = float(self.share @ [one.value for one in self.near])
        if value < self.best:
            self.best, self.p, self.found = value, p, self.near

    def smooth(self, value: float, last: bool) -> None:
        """Try the entropic barycenter; at last also take over what its potentials prove."""
        c, own = self.centroids, self.members
        if not (c.smoothing.possible and self.best > 0 and value > 0):
            return
        f = c.smooth_f[own] if len(c.smooth_f) else None
        found = c.smoothing.barycenter(self.X, self.share, _TEMPERATURES[last] * value, _SMOOTH_STEPS[last], f)
        if found is None:
            return
        p, f = found
        if len(c.smooth_f):
            c.smooth_f[own] = f
        self.try_centre(_without_negligible(p))
        if last:
            L = c.cost.col_max(f, c.n_jobs)
            U = c.cost.row_min(np.where(self.X > 0, L, np.inf), c.n_jobs)
            self.cuts.append(c._proved(own, np.asarray(U, np.float64), np.where(self.X > 0, -L, 0.0)))

    def refine(self, value: float, gap: float, most: int) -> None:
        """Take steps of the level method until a gap is proved."""
        c, spread = self.centroids, self.centroids.cost.spread()
        if self.best > value or not self.near:
            self.try_centre(c.centres[self.k])
        nothing, rounding, least = _NOTHING * spread, 64 * _ULP * spread, c.cost.least()
        start = self.p if c.smoothing.possible else self.share @ self.X
        self.level = level = LevelMethod((1 - _UNIFORM) * start + _UNIFORM / len(start))
        for kept in (*c.earlier(self.k, self.members, self.cuts[0]), *self.cuts):
            level.add(c._cut(self.share, kept))
        for step in range(most):
            if len(level.cuts) > 1:
                level.step(least, self.best)
            if self.best - level.lower <= max(gap * max(abs(self.best), nothing), rounding) or step == most - 1:
                break
            self.try_centre(_without_negligible(np.exp(level.log_p)))
            level.add(c._cut(self.share, self.cuts[-1]))

    def finish(self, value: float, last: bool) -> Update:
        """Move the centroid, if that is better than where it is."""
        c, k, own = self.centroids, self.k, self.members
        if self.best >= value and not last:
            return Update(None, np.inf, self.solved)
        c.centres[k] = self.p
        c._keep(own, np.full(len(own), k), c._kept(own, self.found))
        if not last:
            return Update(Costs.of(self.found), np.inf, self.solved)
        c.keep_cuts(k, own, self.cuts)
        lower = max(self.level.lower, c.cost.least())
        upper = certificate.mean(self.weights, np.array([one.upper for one in self.found])).upper
        scale = max(float(self.share @ [one.scale for one in self.found]), _NOTHING * c.cost.spread())
        return Update(Costs.of(self.found), certificate.relative_gap(lower, upper, scale), self.solved)


def _without_negligible(p: Array) -> Array:
    """Return normalised weights without negligible ones."""
    p = np.where(p < _NEGLIGIBLE * p.max(), 0.0, p)
    return np.asarray(p / p.sum())


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
        found = Costs(*np.empty((3, len(i))))
        for one in np.unique(k).tolist():
            own = np.flatnonzero(k == one)
            part = Costs.of(cloud_optima(self.centres[one], [self.clouds[j] for j in i[own]], self.n_jobs))
            for to, values in zip(found, part, strict=True):
                to[own] = values
        return found

    def _optimum(self, first: Cloud, second: Cloud) -> Solution:
        return cloud_optima(first, [second])[0]

    def between(self, first: Cloud, second: Cloud) -> float:
        return max(0.0, self._optimum(first, second).upper)

    def apart(self, first: Cloud, second: Cloud) -> float:
        return max(0.0, self._optimum(first, second).lower)

    def update(self, k: int, members: Indices, weights: Array, value: float, gap: float, last: bool) -> Update:
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


class PartsCentroids(Centroids):
    """Objects of several parts, whose costs add up: a centroid has the parts' own centroids.

    The r-th root of a sum of r-th powers of distances is a distance. So there is a triangle inequality if the powers of
    all parts are the same.

    Parameters
    ----------
    parts : list of Centroids
        Measures and centroids of each part.
    factors : array
        Positive factors of their costs.
    """

    def __init__(self, parts: list[Centroids], factors: Array) -> None:
        self.parts, self.factors = parts, factors
        powers = {part.power for part in parts}
        self.power = powers.pop() if len(powers) == 1 else 0.0

    def __len__(self) -> int:
        return len(self.parts[0])

    def set(self, k: int, centroid: list[Any]) -> None:
        for part, one in zip(self.parts, centroid, strict=True):
            part.set(k, one)

    def get(self, k: int) -> list[Any]:
        return [part.get(k) for part in self.parts]

    def like(self, i: int, random: Any) -> list[Any]:
        return [part.like(i, random) for part in self.parts]

    def bounds(self, k: int) -> Array:
        return self._sum([part.bounds(k) for part in self.parts], -1)

    def solve(self, i: Indices, k: Indices) -> Costs:
        return self._costs([part.solve(i, k) for part in self.parts])

    def between(self, first: list[Any], second: list[Any]) -> float:
        every = zip(self.parts, first, second, strict=True)
        return float(self._sum([np.array(part.between(a, b)) for part, a, b in every], 1))

    def apart(self, first: list[Any], second: list[Any]) -> float:
        every = zip(self.parts, first, second, strict=True)
        return max(0.0, float(self._sum([np.array(part.apart(a, b)) for part, a, b in every], -1)))

    def update(self, k: int, members: Indices, weights: Array, value: float, gap: float, last: bool) -> Update:
        """Move the centroid of each part: the barycenter of a sum of costs has the barycenters of the parts."""
        found = [part.update(k, members, weights, np.inf, gap, last) for part in self.parts]
        costs = self._costs([one.costs for one in found if one.costs is not None])
        return Update(costs, max(one.gap for one in found), sum(one.solved for one in found))

    def _costs(self, every: list[Costs]) -> Costs:
        values, lower, upper = ([one[a] for one in every] for a in range(3))
        return Costs(self._sum(values, 0), self._sum(lower, -1), self._sum(upper, 1))

    def _sum(self, every: list[Array], outwards: int) -> Array:
        """Return the weighted sum over the parts, lowered or raised by what rounding may have added."""
        total, size = np.zeros_like(every[0]), np.zeros_like(every[0])
        for factor, one in zip(self.factors.tolist(), every, strict=True):
            total, size = total + factor * one, size + factor * np.abs(one)
        return np.asarray(total + outwards * (len(every) + 4) * _ULP * size)
