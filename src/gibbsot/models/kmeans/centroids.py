"""Centroids of clusters of measures, and their updates from what the shards of the measures find.

`RowCentroids` are weights on the common points of rows, `CloudCentroids` points of their own, and `PartsCentroids` have
centroids of every part of an object.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost
from ...distributed.shards import Shards
from ...distributed.worker import Split
from ...exact import certificate
from ...exact.solution import Solution
from ...oracle.level_method import LevelMethod
from ..barycenter.free import Alternation, Cloud, Clouds, Plans, cloud_optima
from .shard import CloudPart, Costs, CutSums, KMeansShard, Part, RowPart, row_optima
from .smoothed import Smoothing, normalised

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
_NOTHING = 2.0**-40  # of the largest cost: objectives below that, as those of members that are all the same, are zero


class Cluster(NamedTuple):
    """A cluster whose centroid is to be updated.

    Attributes
    ----------
    k : int
        Its number.
    members : array of int
        The measures of positive weight, in ascending order.
    weights : array
        Their weights.
    value : float
        The mean cost of the members, infinite if it is not known.
    """

    k: int
    members: Indices
    weights: Array
    value: float

    @property
    def share(self) -> Array:
        """The weights, normalised; each is within two units in the last place."""
        return np.asarray(self.weights / math.fsum(self.weights.tolist()))


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
    count : int
        The number of centroids.
    power : float
        The r for which the r-th root of transport costs is a distance; 0 if there is none.
    """

    count: int
    power: float = 0.0

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of measures."""

    @abstractmethod
    def set(self, k: int, centroid: Any) -> None:
        """Replace a centroid."""

    @abstractmethod
    def put(self, k: int, centroid: Any) -> None:
        """Replace a centroid by one that `get` returned, as it is."""

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
        """Solve pairs of measures, in ascending order, and centroids exactly."""

    @abstractmethod
    def between(self, first: Any, second: Any) -> float:
        """Return a certified upper bound of the cost between two centroids."""

    @abstractmethod
    def apart(self, first: Any, second: Any) -> float:
        """Return a certified lower bound of the cost between two centroids."""

    @abstractmethod
    def update(self, clusters: list[Cluster], gap: float, last: bool) -> list[Update]:
        """Move centroids towards the barycenters of their members.

        Parameters
        ----------
        clusters : list of Cluster
            Whose centroids.
        gap : float
            A relative gap at which they stop; clouds stop at the gain `tol` at last.
        last : bool
            Whether the centroids are not expected to move again: the gap is to be proved, or there are more steps.
        """


class ShardCentroids(Centroids):
    """Centroids of one part of the objects of shards.

    Parameters
    ----------
    shards : Shards of KMeansShard
        The objects.
    part : int
        The part.
    count : int
        The number of centroids.
    """

    centres: Any

    def __init__(self, shards: Shards[KMeansShard], part: int, count: int) -> None:
        self.shards, self.part, self.count = shards, part, count
        *self.firsts, self.n = shards.starts()

    def __len__(self) -> int:
        return self.n

    @abstractmethod
    def maker(self) -> Callable[[Any], Part]:
        """Return what makes the part of a shard from its data."""

    def put(self, k: int, centroid: Any) -> None:
        self.centres[k] = centroid

    def get(self, k: int) -> Any:
        return self.centres[k]

    def bounds(self, k: int) -> Array:
        return np.concatenate(self._ask("bounds", k, self.centres[k]))

    def solve(self, i: Indices, k: Indices) -> Costs:
        self._run("solve", self._split(i), Split.of(np.split(k, self._ends(i))), self.centres)
        return self._costs()

    def _costs(self) -> Costs:
        return Costs.joined(self._ask("costs"))

    def _run(self, method: str, *args: Any) -> Any:
        return self.shards.reduce(KMeansShard.run, self.part, method, *args)

    def _ask(self, method: str, *args: Any) -> list[Any]:
        return self.shards.collect(KMeansShard.ask, self.part, method, *args)

    def _measure(self, i: int) -> Any:
        return next(x for x in self.shards.collect(KMeansShard.measure, self.part, i) if x is not None)

    def _ends(self, i: Indices) -> Any:
        """Return where ascending indices go on in the next shard."""
        return np.searchsorted(i, self.firsts[1:])

    def _pieces(self, i: Indices) -> list[Indices]:
        """Return the places of ascending indices in each shard."""
        parts = np.split(i, self._ends(i))
        return [own - first for own, first in zip(parts, self.firsts, strict=True)]

    def _split(self, i: Indices) -> Any:
        return Split.of(self._pieces(i))


class RowCentroids(ShardCentroids):
    """Measures as rows of weights on common points, and centroids on the same points.

    Parameters
    ----------
    shards, part, count
        As for `ShardCentroids`.
    cost : Cost
        From the points of a centroid to those of a measure.
    n_jobs : int, optional
        Threads over the problems.
    """

    def __init__(self, shards: Shards[KMeansShard], part: int, count: int, cost: Cost, n_jobs: int | None) -> None:
        super().__init__(shards, part, count)
        self.cost, self.n_jobs = cost.astype(np.float64), n_jobs
        self.centres: Array = np.zeros((count, cost.shape[0]))
        self.smoothing = Smoothing(self.cost)
        self.cuts = dict[int, int]()  # how many the shards keep of each centroid
        places = cost.positions()
        if places is not None and (places.X is places.Y or cost.symmetric()):
            self.power = places.power  # of a norm

    def maker(self) -> Callable[[Any], Part]:
        m = self.cost.shape[0]
        keeps = (self.n * self.count * m * 4 <= _BYTES, 8 * self.n * m <= _BYTES)
        return partial(RowPart, cost=self.cost, count=self.count, keeps=keeps, n_jobs=self.n_jobs)

    def set(self, k: int, centroid: Array) -> None:
        self.centres[k] = centroid / centroid.sum()

    def get(self, k: int) -> Array:
        return self.centres[k].copy()

    def like(self, i: int, random: Any) -> Array:
        return np.array(self._measure(i))

    def _optimum(self, first: Array, second: Array) -> Solution:
        return row_optima(first[None], second[None], self.cost, self.n_jobs)[0]

    def between(self, first: Array, second: Array) -> float:
        return max(0.0, self._optimum(first, second).upper)

    def apart(self, first: Array, second: Array) -> float:
        return max(0.0, self._optimum(first, second).lower)

    def update(self, clusters: list[Cluster], gap: float, last: bool) -> list[Update]:
        """Move centroids to entropic barycenters, and at last by the level method, to a certified gap."""
        return _RowUpdates(self, clusters, last).run(gap)


class _RowUpdates:
    """Updates of some of the `RowCentroids`, all at a time: every step is one call of the shards."""

    def __init__(self, centroids: RowCentroids, clusters: list[Cluster], last: bool) -> None:
        self.centroids, self.clusters, self.last = centroids, clusters, last
        self.jobs = [_RowUpdate(centroids, cluster) for cluster in clusters]
        members = [centroids._pieces(one.members) for one in clusters]
        shares = [np.split(one.share, centroids._ends(one.members)) for one in clusters]
        ks = [one.k for one in clusters]
        centroids._run("begin", ks, *(Split.of(list(zip(*x, strict=True))) for x in (members, shares)))

    def run(self, gap: float) -> list[Update]:
        """Return what the updates have found."""
        lows, highs = zip(*self.centroids._ask("extent"), strict=True)
        low, high = np.min(lows, axis=0), np.max(highs, axis=0)
        first = list[Array | None]()
        for a, job in enumerate(self.jobs):
            same = bool((low[a] == high[a]).all())
            first.append(low[a] if same else job.start if job.cluster.value == np.inf else None)
        self._attempt(first)
        self._smooth()
        self._refine(gap)
        return self._finish()

    def _attempt(self, centres: list[Array | None]) -> None:
        """Solve for a centre of some of the clusters, and keep those that are better."""
        if all(centre is None for centre in centres):
            return
        refines = self.last or any(job.refines for job in self.jobs)
        found = self.centroids._run("attempt", centres, [job.take() for job in self.jobs], refines)
        jobs = [(job, centre) for job, centre in zip(self.jobs, centres, strict=True) if centre is not None]
        for a, (job, centre) in enumerate(jobs):
            job.tried(centre, float(found.value[a].value), float(found.scale[a].value))
        if refines:
            self._add_cuts([job for job, _ in jobs], found.cuts)

    def _smooth(self) -> None:
        """Try entropic barycenters; at last also take over what their potentials prove."""
        c, temperatures = self.centroids, list[float | None]()
        for job in self.jobs:
            value = min(job.cluster.value, job.best)
            possible = c.smoothing.possible and job.best > 0 and value > 0
            temperatures.append(_TEMPERATURES[self.last] * value if possible else None)
        jobs = [job for job, T in zip(self.jobs, temperatures, strict=True) if T is not None]
        if not jobs:
            return
        means, log_p = c._run("begin_smoothing", temperatures).value, None
        for step in range(_SMOOTH_STEPS[self.last]):
            log_p = c._run("smooth", log_p, None if step else means).value
        cuts = c._run("end_smoothing", log_p, self.last)
        assert log_p is not None
        found = {job.cluster.k: normalised(one) for job, one in zip(jobs, log_p, strict=True)}
        centres = [found.get(job.cluster.k) for job in self.jobs]
        self._attempt([None if p is None else _without_negligible(p) for p in centres])
        if self.last:
            self._add_cuts(jobs, cuts)

    def _add_cuts(self, jobs: Iterable[_RowUpdate], cuts: CutSums) -> None:
        """Take over one cut of each of some clusters."""
        for a, job in enumerate(jobs):
            job.cuts.append(_lowered(cuts, a))

    def _refine(self, gap: float) -> None:
        """Take steps of the level method until a gap is proved, or their limit is reached."""
        for job in self.jobs:
            job.refines = self.last or job.best == np.inf
        if not any(job.refines for job in self.jobs):
            return
        again = [job.refines and (job.best > job.cluster.value or not job.cuts) for job in self.jobs]
        self._attempt([job.start if one else None for job, one in zip(self.jobs, again, strict=True)])
        c, active = self.centroids, [job for job in self.jobs if job.refines]
        earlier = {job.cluster.k: list[Array]() for job in self.jobs}
        if self.last and any(c.cuts.get(k) for k in earlier):  # all of them have a cut by now
            sums, at = self.centroids.shards.reduce(KMeansShard.ask, c.part, RowPart.earlier_cuts.__name__), 0
            for k, own in earlier.items():
                own += [_lowered(sums, a) for a in range(at, at + c.cuts.get(k, 0))]
                at += len(own)
        means = None if c.smoothing.possible else c.shards.reduce(KMeansShard.ask, c.part, "mean").value
        for a, job in enumerate(self.jobs):
            if job.refines:
                job.begin(earlier[job.cluster.k], job.p if means is None else means[a])
        for step in range(_STEPS[self.last]):
            active = [job for job in active if not job.ends(gap, step == _STEPS[self.last] - 1)]
            if not active:
                break
            self._attempt([job.next() if job in active else None for job in self.jobs])
            for job in active:
                job.level.add(job.cuts[-1])

    def _finish(self) -> list[Update]:
        """Move the centroids, if that is better than where they are."""
        c = self.centroids
        moved = [self.last or job.best < job.cluster.value for job in self.jobs]
        most = [0] * len(self.jobs)
        if self.last:
            bytes_of = [4 * c.count * len(job.cluster.members) * c.cost.shape[0] for job in self.jobs]
            most = [min(_KEPT_CUTS, int(_BYTES / x)) for x in bytes_of]
            for job, one in zip(self.jobs, most, strict=True):
                k = job.cluster.k
                c.cuts[k] = min(one, c.cuts.get(k, 0) + len(job.cuts)) if one else c.cuts.get(k, 0)
        c._run("finish", [job.take() for job in self.jobs], moved, most)
        every = self._members_costs(moved)
        return [job.finish(costs, self.last) for job, costs in zip(self.jobs, every, strict=True)]

    def _members_costs(self, moved: list[bool]) -> list[Costs | None]:
        """Return the costs of the members of each cluster that has moved, in their order."""
        found: list[list[Costs]] = [[] for _ in self.jobs]
        for s, part in enumerate(self.centroids._ask("costs")):
            at = 0
            for a, job in enumerate(self.jobs):
                if moved[a]:
                    n = len(self.centroids._pieces(job.cluster.members)[s])
                    found[a].append(Costs(*(x[at : at + n] for x in part)))
                    at += n
        return [Costs.joined(parts) if parts else None for parts in found]


class _RowUpdate:
    """An update of one of the `RowCentroids`.

    Attributes
    ----------
    best : float
        The least objective of what was tried, which `p` has, and `scale` the sum of its absolute terms.
    cuts : list of arrays
        What was proved in this update, one for each centre that was tried.
    refines : bool
        Whether the level method runs.
    """

    def __init__(self, centroids: RowCentroids, cluster: Cluster) -> None:
        self.centroids, self.cluster, self.start = centroids, cluster, centroids.centres[cluster.k].copy()
        self.p, self.best, self.scale, self.solved = self.start, np.inf, 0.0, 0
        self.cuts, self.refines, self._better = list[Array](), cluster.value == np.inf, False

    def take(self) -> bool:
        """Return whether the last centre that was tried is the best, once."""
        better, self._better = self._better, False
        return better

    def tried(self, p: Array, value: float, scale: float) -> None:
        """Take over the objective of a centre."""
        self.solved += len(self.cluster.members)
        if value < self.best:
            self.best, self.p, self.scale, self._better = value, p, scale, True

    def begin(self, earlier: list[Array], start: Array) -> None:
        """Begin the level method at a centre, with the cuts of earlier updates."""
        self.level = LevelMethod((1 - _UNIFORM) * start + _UNIFORM / len(start))
        for cut in (*earlier, *self.cuts):
            self.level.add(cut)

    def ends(self, gap: float, last: bool) -> bool:
        """Take a step of the level method; return whether the gap is proved, or this was the last one."""
        spread, least = self.centroids.cost.spread(), self.centroids.cost.least()
        if len(self.level.cuts) > 1:
            self.level.step(least, self.best)
        near = max(gap * max(abs(self.best), _NOTHING * spread), 64 * _ULP * spread)
        return last or self.best - self.level.lower <= near

    def next(self) -> Array:
        """Return the next centre to try."""
        return _without_negligible(np.exp(self.level.log_p))

    def finish(self, costs: Costs | None, last: bool) -> Update:
        """Return what was found, after the centroid has moved if there are costs."""
        if costs is None:
            return Update(None, np.inf, self.solved)
        self.centroids.centres[self.cluster.k] = self.p
        if not last:
            return Update(costs, np.inf, self.solved)
        cost = self.centroids.cost
        lower = max(self.level.lower, cost.least())
        upper = certificate.mean(self.cluster.weights, costs.upper).upper
        scale = max(self.scale, _NOTHING * cost.spread())
        return Update(costs, certificate.relative_gap(lower, upper, scale), self.solved)


def _lowered(cuts: CutSums, a: int) -> Array:
    """Return one of the cuts: an affine function of the weights that is below the objective of all centroids."""
    own, rest = np.asarray(cuts.f[a].value, np.float64), float(cuts.rest[a].value)
    return np.asarray(own + rest - 8 * _ULP * (np.abs(own) + abs(rest)))


def _without_negligible(p: Array) -> Array:
    """Return normalised weights without negligible ones."""
    p = np.where(p < _NEGLIGIBLE * p.max(), 0.0, p)
    return np.asarray(p / p.sum())


class CloudCentroids(ShardCentroids):
    """Clouds, and centroids with points of their own; costs are squared Euclidean distances.

    Parameters
    ----------
    shards, part, count
        As for `ShardCentroids`.
    size : int, optional
        The number of points of a centroid; by default the mean number of points of a cloud.
    tol : float
        The relative gain at which updates of points end.
    n_jobs : int, optional
        Threads over the problems.
    """

    power = 2.0

    def __init__(
        self, shards: Shards[KMeansShard], part: int, count: int, size: int | None, tol: float, n_jobs: int | None
    ) -> None:
        super().__init__(shards, part, count)
        boxes = [box for box in shards.collect(KMeansShard.box, part) if box.size]
        low, high = np.min([box.low for box in boxes], axis=0), np.max([box.high for box in boxes], axis=0)
        self.centre, self.reach = (low + high) / 2, 1.001 * float(np.linalg.norm(high - low)) / 2
        self.size = size or round(sum(box.size for box in boxes) / self.n)
        self.tol, self.n_jobs = tol, n_jobs
        self.centres: list[Cloud] = [Cloud(self.centre[None], np.ones(1))] * count

    def maker(self) -> Callable[[Any], Part]:
        return partial(CloudPart, centre=self.centre, reach=self.reach, n_jobs=self.n_jobs)

    def set(self, k: int, centroid: Cloud) -> None:
        self.centres[k] = centroid

    def like(self, i: int, random: Any) -> Cloud:
        """Return a cloud with as many points as a centroid may have, chosen by k-means++ if it has more."""
        own: Cloud = self._measure(i)
        if len(own.points) <= self.size:
            return own.normalised()
        one = Clouds([own.points], [own.weights])
        start = one.start(self.size, random, None)
        return Cloud(start.points + one.mean, start.weights)

    def between(self, first: Cloud, second: Cloud) -> float:
        return max(0.0, cloud_optima(first, [second])[0].upper)

    def apart(self, first: Cloud, second: Cloud) -> float:
        return max(0.0, cloud_optima(first, [second])[0].lower)

    def update(self, clusters: list[Cluster], gap: float, last: bool) -> list[Update]:
        """Move centroids by updates of their points and weights, until these gain little."""
        gap = self.tol if last else max(gap, self.tol)
        return [self._update(cluster, gap, last) for cluster in clusters]

    def _update(self, cluster: Cluster, gap: float, last: bool) -> Update:
        k, members = cluster.k, cluster.members
        exact, steps, left = self._closed_form(cluster) if last else None, 1, 0.0
        if exact is not None and len(exact.points) <= self.size:
            self.centres[k] = exact
        else:
            start = self.centres[k]
            problem = _ShardPlans(self, cluster, len(start.points))
            run = Alternation(problem, Cloud(start.points - self.centre, start.weights), gap)
            for steps, _ in enumerate(run.run(), 2):
                if steps > _MOVES[last]:
                    break
            self.centres[k], left = run.cloud(), run.stationarity
            problem.finish(run.now)
        costs = self.solve(members, np.full(len(members), k))
        return Update(costs, left, (steps + 1) * len(members))

    def _closed_form(self, cluster: Cluster) -> Cloud | None:
        """Return the barycenter of the members, where it has a closed form."""
        if len(self.centre) > 1 and len(cluster.members) > 2:
            return None
        own = [self._measure(i) for i in cluster.members.tolist()]
        return Clouds([c.points for c in own], [c.weights for c in own], cluster.weights, self.n_jobs).closed_form()


class _ShardPlans:
    """Optimal plans to the members of a cluster in all shards, for an `Alternation`."""

    def __init__(self, centroids: CloudCentroids, cluster: Cluster, size: int) -> None:
        self.centroids, self.mean, self._trials = centroids, centroids.centre, 0
        share = Split.of(np.split(cluster.share, centroids._ends(cluster.members)))
        centroids._run("begin", centroids._split(cluster.members), share, size)

    def plans(self, X: Array, p: Array, bases: Any = None) -> Plans:
        """Return what optimal plans show; bases are the number of the trial that these start from."""
        sums = self.centroids._run("plans", X, p, bases == self._trials and self._trials > 0)
        self._trials += 1
        return sums.shown(X, p, self._trials)

    def finish(self, best: Plans) -> None:
        """Keep the arcs of the best plans."""
        self.centroids._run("finish", best.bases == self._trials)


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

    def __init__(self, parts: list[Any], factors: Array) -> None:
        self.parts, self.factors, self.count = parts, factors, parts[0].count
        powers = {part.power for part in parts}
        self.power = powers.pop() if len(powers) == 1 else 0.0

    def __len__(self) -> int:
        return len(self.parts[0])

    def set(self, k: int, centroid: list[Any]) -> None:
        for part, one in zip(self.parts, centroid, strict=True):
            part.set(k, one)

    def put(self, k: int, centroid: list[Any]) -> None:
        for part, one in zip(self.parts, centroid, strict=True):
            part.put(k, one)

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

    def update(self, clusters: list[Cluster], gap: float, last: bool) -> list[Update]:
        """Move the centroids of each part: the barycenter of a sum of costs has the barycenters of the parts."""
        unknown = [cluster._replace(value=np.inf) for cluster in clusters]
        parts = [part.update(unknown, gap, last) for part in self.parts]
        updates = []
        for found in zip(*parts, strict=True):
            costs = self._costs([one.costs for one in found if one.costs is not None])
            updates.append(Update(costs, max(one.gap for one in found), sum(one.solved for one in found)))
        return updates

    def _costs(self, every: list[Costs]) -> Costs:
        values, lower, upper = ([one[a] for one in every] for a in range(3))
        return Costs(self._sum(values, 0), self._sum(lower, -1), self._sum(upper, 1))

    def _sum(self, every: list[Array], outwards: int) -> Array:
        """Return the weighted sum over the parts, lowered or raised by what rounding may have added."""
        total, size = np.zeros_like(every[0]), np.zeros_like(every[0])
        for factor, one in zip(self.factors.tolist(), every, strict=True):
            total, size = total + factor * one, size + factor * np.abs(one)
        return np.asarray(total + outwards * (len(every) + 4) * _ULP * size)
