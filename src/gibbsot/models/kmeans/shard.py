"""The measures of a k-means in shards: what is solved between them and centroids, and what is kept of it.

A shard has one `Part` for each part of its objects, whose commands and queries a model calls through those of the
shard. `RowPart` has rows of weights on common points, `CloudPart` clouds. Potentials of a pair that was solved stay
feasible when the centroid moves. So they are kept: they prove lower bounds of later costs. Sums over measures are
exact: results are the same for every number of shards.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core import validation
from ...costs import Cost, from_arrays
from ...costs.problems import Problem
from ...distributed import fixed_point, sources
from ...distributed.fixed_point import Fixed
from ...distributed.shard import Metadata, Shard, command, is_command, query
from ...exact import certificate
from ...exact.method import in_threads
from ...exact.methods import optima
from ...exact.packed import arcs_of
from ...exact.solution import Solution
from ...io import npz, schemas
from ..barycenter.free import Cloud, CloudSet, PlanSums, cloud_optima, thread_pools
from ..geometry import sets as _sets
from ..geometry.bounds import Projections, first_bounds, principal, rotations
from .smoothed import Scaling, Smoothing

if TYPE_CHECKING:
    from typing import Self

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_ULP = float(np.finfo(np.float64).eps)
_BITS = 50  # of sums in int64, whose terms may be larger than what is expected of them
_DIRECTIONS = 16  # in which clouds are projected, at most, in more than three dimensions
_LEVELS = 64  # bins of quantile functions, as those of `Projections`
_SHORTER = 1 - 2.0**-40  # directions that are orthonormal up to rounding: so short that their frame never lengthens


class Costs(NamedTuple):
    """Exact costs of pairs: their values, and bounds that are rounded outwards."""

    value: Array
    lower: Array
    upper: Array

    @classmethod
    def of(cls, found: Sequence[Solution]) -> Costs:
        """Return the numbers of solutions."""
        return cls(*_sets.numbers(found))

    @classmethod
    def joined(cls, parts: Sequence[Costs]) -> Costs:
        """Return the costs of several lists of pairs."""
        return cls(*(np.concatenate(x) for x in zip(*parts, strict=True))) if parts else cls.of([])


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


class CutSums(NamedTuple):
    """Weighted sums of what potentials of members prove, one row for each cut, rounded down."""

    f: Fixed
    rest: Fixed


class TrialSums(NamedTuple):
    """Weighted sums over the members of some clusters: costs to a centre, their scales, and what potentials prove."""

    value: Fixed
    scale: Fixed
    cuts: CutSums


class Box(NamedTuple):
    """The least and the largest coordinates of points, and their number."""

    low: Array
    high: Array
    size: int


class Part(ABC):
    """The measures of one part of the objects of a shard."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of measures."""

    @query
    @abstractmethod
    def measure(self, i: int) -> Any:
        """Return a measure."""

    @query
    @abstractmethod
    def bounds(self, k: int, centre: Any) -> Array:
        """Return cheap certified lower bounds of the costs of all measures to a centroid."""

    @command
    @abstractmethod
    def solve(self, i: Indices, k: Indices, centres: Any) -> None:
        """Solve pairs of measures and centroids exactly, for `costs`."""

    @query
    @abstractmethod
    def costs(self) -> Costs:
        """Return the costs that the last command has found."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what is kept, as arrays."""

    @abstractmethod
    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what `state` returned."""


@dataclass
class _Members:
    """The members of a cluster whose centroid is updated."""

    k: int
    own: Indices
    share: Array
    near: list[Solution] = field(default_factory=list)  # of the last centre that was tried
    found: list[Solution] = field(default_factory=list)  # of the best one
    cuts: list[Kept] = field(default_factory=list)  # of this update, one for each centre that was tried
    scaling: Scaling | None = None


class RowPart(Part):
    """Measures as rows of weights on common points.

    Parameters
    ----------
    X : array of shape (n, m)
        The measures, which need not be normalised.
    cost : Cost
        From the points of a centroid to those of a measure.
    count : int
        The number of centroids.
    keeps : tuple of bool
        Whether potentials of all pairs are kept, and those of entropic barycenters.
    n_jobs : int, optional
        Threads over the problems.
    """

    def __init__(self, X: Array, cost: Cost, count: int, keeps: tuple[bool, bool], n_jobs: int | None) -> None:
        self.X, self.cost, self.count, self.keeps, self.n_jobs = X, cost.astype(np.float64), count, keeps, n_jobs
        self.normalised: Array = X / X.sum(axis=1, keepdims=True)
        n, m = X.shape
        self._underflow = cost.underflow()
        self._first = first_bounds(cost)
        blocks = [self._first.features(block) for block in _sets.Rows(X).blocks()] if n else []
        self._features = np.concatenate(blocks) if blocks else np.zeros(0)
        # of each pair: potentials of the centroid's points, and what the others and rounding add to the bound
        self._f = np.zeros((count, n if keeps[0] else 0, m), np.float32)
        self._rest = np.full((count, n), -np.inf)
        self.smoothing = Smoothing(self.cost)
        self._smooth_f: Array = np.zeros((n if keeps[1] else 0, m))  # potentials of entropic barycenters
        self._cuts = dict[int, tuple[Indices, list[Kept]]]()  # of each centroid: members, and what was proved of them
        self._jobs, self._found = list[_Members](), Costs.of([])
        self._size = abs(self.cost.least()) + self.cost.spread()  # of costs

    def __len__(self) -> int:
        return len(self.X)

    @query
    def measure(self, i: int) -> Array:
        return np.asarray(self.normalised[i])

    @query
    def bounds(self, k: int, centre: Array) -> Array:
        """Return bounds by projections or nearest points, and by the potentials that are kept."""
        if not len(self):
            return np.zeros(0)
        found = self._first(self._first.features(centre[None]), self._features)[0]
        if self._f.shape[1]:
            found = np.maximum(found, self._f[k] @ centre + self._rest[k])
        return np.maximum(found, self.cost.least())

    @command
    def solve(self, i: Indices, k: Indices, centres: Array) -> None:
        """Solve pairs, and keep their potentials."""
        parts = []
        for which in _sets.chunks(_sets.Rows(centres), _sets.Rows(self.X), len(i), self.n_jobs):
            found = row_optima(centres[k[which]], self.X[i[which]], self.cost, self.n_jobs)
            self._keep(i[which], k[which], self._kept(i[which], found))
            parts.append(Costs.of(found))
        self._found = Costs.joined(parts)

    @query
    def costs(self) -> Costs:
        return self._found

    @command
    def begin(self, ks: list[int], members: list[Indices], shares: list[Array]) -> None:
        """Begin updates of some centroids with members, of given weights."""
        self._jobs = [_Members(*one) for one in zip(ks, members, shares, strict=True)]

    @query
    def extent(self) -> tuple[Array, Array]:
        """Return the least and the largest weights of the members of each cluster."""
        rows = [self.normalised[job.own] for job in self._jobs]
        low = np.stack([x.min(axis=0, initial=np.inf) for x in rows])
        return low, np.stack([x.max(axis=0, initial=-np.inf) for x in rows])

    @query
    def mean(self) -> Fixed:
        """Return the weighted sums of the members of each cluster."""
        return _stacked([_rounded(job.share[:, None] * self.normalised[job.own], 1.0) for job in self._jobs])

    @command
    def begin_smoothing(self, temperatures: list[float | None]) -> Fixed:
        """Begin entropic barycenters, where there is a temperature; return the means of the potentials."""
        sums = []
        for job, T in zip(self._jobs, temperatures, strict=True):
            if T is not None:
                f = self._smooth_f[job.own] if self.keeps[1] else np.zeros((len(job.own), self.cost.shape[0]))
                job.scaling = Scaling(self.smoothing, self.normalised[job.own], job.share, T, f)
                sums.append(job.scaling.mean())
        return _stacked(sums)

    @command
    def smooth(self, log_p: Array | None, mean: Array | None = None) -> Fixed:
        """Take a step of all entropic barycenters, the first one from potentials less their means."""
        scalings = [job.scaling for job in self._jobs if job.scaling is not None]

        def step(a: int) -> Fixed:
            if mean is not None:
                scalings[a].begin(mean[a])
            return scalings[a].step(None if log_p is None else log_p[a])

        with thread_pools().limit(limits=1, user_api="blas"):  # products in threads may be summed in another order
            return _stacked(in_threads(step, range(len(scalings)), self.n_jobs))

    @command
    def end_smoothing(self, log_p: Array, last: bool) -> CutSums | None:
        """Keep the potentials of entropic barycenters; at last return what they prove."""
        sums = []
        for a, job in enumerate(job for job in self._jobs if job.scaling is not None):
            assert job.scaling is not None
            f, own = job.scaling.potentials(log_p[a]), job.own
            job.scaling, finite = None, np.isfinite(f).all(axis=1)
            if self.keeps[1]:
                self._smooth_f[own[finite]] = f[finite]
            if last and not len(own):
                job.cuts.append(self._kept(own, []))
            elif last:
                f[~finite] = 0.0  # any potentials prove something
                X = self.normalised[own]
                L = self.cost.col_max(f - np.median(f, axis=1, keepdims=True), self.n_jobs)
                U = self.cost.row_min(np.where(X > 0, L, np.inf), self.n_jobs)
                job.cuts.append(self._proved(own, np.asarray(U, np.float64), np.where(X > 0, -L, 0.0)))
            if last:
                sums.append(self._cut(job, job.cuts[-1:]))
        return _joined_cuts(sums) if last else None

    @command
    def attempt(self, centres: list[Array | None], better: list[bool], cuts: bool) -> TrialSums:
        """Solve for a centre of each cluster that has one; keep what the last one has found where it was better."""
        values, scales, sums = [], [], []
        for job, centre, kept in zip(self._jobs, centres, better, strict=True):
            if kept:
                job.found = job.near
            if centre is None:
                continue
            P = np.tile(centre, (len(job.own), 1))
            job.near = row_optima(P, self.X[job.own], self.cost, self.n_jobs, job.near or None)
            numbers = np.array([(one.value, one.scale) for one in job.near]).reshape(-1, 2)
            value, scale = (_rounded(job.share * x, self._size) for x in numbers.T)
            values.append(value)
            scales.append(scale)
            if cuts:
                job.cuts.append(self._kept(job.own, job.near))
                sums.append(self._cut(job, job.cuts[-1:]))
        none = CutSums(Fixed(0, 1.0), Fixed(0, 1.0))
        return TrialSums(_stacked(values), _stacked(scales), _joined_cuts(sums) if cuts else none)

    @query
    def earlier_cuts(self) -> CutSums:
        """Return what earlier updates have proved of the present members of all clusters."""
        sums = [self._cut(job, self.earlier(job.k, job.own, job.cuts[0])) for job in self._jobs]
        return _joined_cuts(sums)

    @command
    def finish(self, better: list[bool], moved: list[bool], most: list[int]) -> None:
        """End updates: keep the potentials and costs of centroids that have moved, and the last `most` cuts of each."""
        parts = []
        for job, kept, has_moved, cuts in zip(self._jobs, better, moved, most, strict=True):
            found = job.near if kept else job.found
            if has_moved:
                self._keep(job.own, np.full(len(job.own), job.k), self._kept(job.own, found))
                parts.append(Costs.of(found))
            if cuts:
                self._cuts[job.k] = job.own, [*self.earlier(job.k, job.own, job.cuts[0]), *job.cuts][-cuts:]
        self._jobs, self._found = [], Costs.joined(parts)

    def earlier(self, k: int, members: Indices, now: Kept) -> list[Kept]:
        """Return what earlier updates of a centroid have proved of its present members; of new ones it is `now`."""
        known, cuts = self._cuts.get(k, (members[:0], []))
        if not len(known):
            return [now for _ in cuts]
        place = np.minimum(np.searchsorted(known, members), len(known) - 1)
        old = known[place] == members
        return [Kept(np.where(old[:, None], f[place], now.f), np.where(old, rest[place], now.rest)) for f, rest in cuts]

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
        rest = value - operations * (absolute + np.abs(single).max(axis=1, initial=0).astype(np.float64))
        return Kept(single, rest - 4 * _ULP * np.abs(rest))

    def _cut(self, job: _Members, cuts: list[Kept]) -> CutSums:
        """Return the weighted sums over members of what each of some cuts proves of them, rounded down."""
        f = [_rounded(job.share[:, None] * cut.f.astype(np.float64), self._size, down=True) for cut in cuts]
        rest = [_rounded(job.share * cut.rest, self._size, down=True) for cut in cuts]
        return CutSums(_stacked(f, self._size), _stacked(rest, self._size))

    def state(self) -> dict[str, Any]:
        arrays: dict[str, Any] = {"f": self._f, "rest": self._rest, "smooth_f": self._smooth_f, "keeps": self.keeps}
        arrays |= {f"cost_{name}": x for name, x in self.cost.arrays().items()}
        for k, (members, cuts) in self._cuts.items():
            arrays |= {f"members{k}": members, f"cuts{k}": np.stack([cut.f for cut in cuts])}
            arrays[f"rests{k}"] = np.stack([cut.rest for cut in cuts])
        return arrays

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._f, self._rest, self._smooth_f = arrays["f"], arrays["rest"], arrays["smooth_f"]
        for k in range(self.count):
            if f"members{k}" in arrays:
                cuts = zip(arrays[f"cuts{k}"], arrays[f"rests{k}"], strict=True)
                self._cuts[k] = arrays[f"members{k}"], [Kept(f, rest) for f, rest in cuts]

    @classmethod
    def of_arrays(cls, X: Array, count: int, arrays: dict[str, NDArray[Any]]) -> RowPart:
        """Return the measures with what `state` returned."""
        cost = from_arrays(npz.with_prefix(arrays, "cost_"))
        part = cls(X, cost, count, tuple(arrays["keeps"].tolist()), None)
        part.restore(arrays)
        return part


def row_optima(
    P: Array, X: Array, cost: Cost, n_jobs: int | None, near: list[Solution] | None = None
) -> list[Solution]:
    """Return the exact solutions of pairs of rows, from those of problems that are near."""
    if not len(P):
        return []
    return optima(Problem.checked(P, X, cost, np.ones(len(P))), n_jobs=n_jobs, warm_start=near)


def _rounded(terms: Array, size: float, down: bool = False) -> Fixed:
    """Return the sum over the first axis of terms as multiples of a quantum, rounded, or from below.

    With `down`, what the products of weights and numbers have lost is subtracted first: weights are quotients.
    """
    quantum = fixed_point.quantum(size, _BITS)
    terms = np.floor((terms - 4 * _ULP * np.abs(terms)) / quantum) if down else np.rint(terms / quantum)
    return Fixed(terms.astype(np.int64).sum(axis=0), quantum)


def _stacked(sums: list[Fixed], size: float = 1.0) -> Fixed:
    """Return sums with the same quantum, one after the other."""
    if not sums:
        return Fixed(np.zeros(0), fixed_point.quantum(size, _BITS))
    return Fixed(np.stack([one.integers for one in sums]), sums[0].quantum)


def _joined_cuts(parts: list[CutSums]) -> CutSums:
    """Return the cuts of several clusters, one after the other."""
    parts = [part for part in parts if len(part.rest.integers)]
    if not parts:
        return CutSums(Fixed(0, 1.0), Fixed(0, 1.0))
    found = []
    for name in CutSums._fields:
        every = [getattr(part, name) for part in parts]
        found.append(Fixed(np.concatenate([one.integers for one in every]), every[0].quantum))
    return CutSums(*found)


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


class CloudPart(Part):
    """Clouds; costs are squared Euclidean distances.

    Parameters
    ----------
    clouds : list of Cloud
        The measures, which need not be normalised.
    centre : array of shape (d,)
        A point near to all of them.
    reach : float
        No point is farther from it.
    n_jobs : int, optional
        Threads over the problems.
    """

    def __init__(self, clouds: list[Cloud], centre: Array, reach: float, n_jobs: int | None) -> None:
        self.clouds, self.n_jobs, self.centre = clouds, n_jobs, centre
        self._set = CloudSet(clouds, centre, n_jobs)
        self._set.reach = reach
        self._first = CloudProjections(clouds) if clouds else None
        self._features = np.zeros(0) if self._first is None else self._first.of(clouds)
        self._bases = dict[int, NDArray[np.int32]]()  # of each cloud: the arcs of its plan from its centroid
        self._found, self._own, self._share = Costs.of([]), np.zeros(0, np.int64), np.zeros(0)
        self._room = np.zeros(0, np.int64)  # of the members: how many arcs their plans may have
        self._near: tuple[NDArray[np.int32] | None, NDArray[np.int32] | None] = (None, None)  # best plans, last plans

    def __len__(self) -> int:
        return len(self.clouds)

    @query
    def measure(self, i: int) -> Cloud:
        return self.clouds[i]

    @query
    def bounds(self, k: int, centre: Cloud) -> Array:
        """Return bounds by projections."""
        if self._first is None:
            return np.zeros(0)
        first = copy.copy(self._first)  # whose errors grow with the centroid
        return first(first.of([centre]), self._features)[0]

    @command
    def solve(self, i: Indices, k: Indices, centres: list[Cloud]) -> None:
        found = Costs(*np.empty((3, len(i))))
        for one in np.unique(k).tolist():
            own = np.flatnonzero(k == one)
            part = Costs.of(cloud_optima(centres[one], [self.clouds[j] for j in i[own]], self.n_jobs, plans=False))
            for to, values in zip(found, part, strict=True):
                to[own] = values
        self._found = found

    @query
    def costs(self) -> Costs:
        return self._found

    @command
    def begin(self, members: Indices, share: Array, size: int) -> None:
        """Begin the update of a centroid of some points with members, of given weights."""
        self._own, self._share = members.astype(np.int64), share
        arcs = [self._bases.get(i, np.zeros((2, 0), np.int32)) for i in members.tolist()]
        every = np.concatenate([np.zeros((2, 0), np.int32), *(np.where(x[0] < size, x, -1) for x in arcs)], axis=1)
        problems = np.repeat(np.arange(len(arcs)), [x.shape[1] for x in arcs])
        self._room = self._set.room(size, self._own)
        start = arcs_of(every, problems, self._room)
        self._near = start, None

    @command
    def plans(self, X: Array, p: Array, better: bool) -> PlanSums:
        """Return what optimal plans to the members show, from the last ones if these were better."""
        best = self._near[1] if better else self._near[0]
        sums, last = self._set.sums(X, p, self._own, self._share, best)
        self._near = best, last
        return sums

    @command
    def finish(self, better: bool) -> None:
        """End an update, and keep the arcs of the best plans."""
        best = self._near[1] if better else self._near[0]
        if best is not None:
            ends = np.cumsum(self._room)
            for i, start, end in zip(self._own.tolist(), ends - self._room, ends, strict=True):
                arcs = best[:, start:end]
                self._bases[i] = arcs[:, (arcs >= 0).all(axis=0)]
        self._near = None, None

    def state(self) -> dict[str, Any]:
        known = sorted(self._bases)
        arcs = np.concatenate([np.zeros((2, 0), np.int32), *(self._bases[i] for i in known)], axis=1)
        sizes = np.array([self._bases[i].shape[1] for i in known], np.int64)
        return {
            "centre": self.centre, "reach": self._set.reach, "known": np.array(known, np.int64), "sizes": sizes,
            "arcs": arcs,
        }  # fmt: skip

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        pieces = np.split(arrays["arcs"], np.cumsum(arrays["sizes"])[:-1], axis=1)
        self._bases = dict(zip(arrays["known"].tolist(), pieces, strict=False))

    @classmethod
    def of_arrays(cls, clouds: list[Cloud], arrays: dict[str, NDArray[Any]]) -> CloudPart:
        """Return the clouds with what `state` returned."""
        part = cls(clouds, arrays["centre"], float(arrays["reach"]), None)
        part.restore(arrays)
        return part


@dataclass(eq=False)
class PartsData:
    """The measures of the objects of a shard, one matrix or list of `Cloud` for each part."""

    parts: list[Any]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of objects, and of parts."""
        first = self.parts[0]
        return first.shape[0] if hasattr(first, "shape") else len(first), len(self.parts)


class KMeansShard(Shard):
    """Some of the objects of a k-means, with what is known of their costs to centroids.

    Parameters
    ----------
    data : list of arrays of shape (n, m) or lists of Cloud
        The measures of each part.
    number : int
        The number of the shard.
    """

    schema = schemas.KMEANS_SHARD
    count: int
    parts: list[Any]  # of class Part
    _saved: dict[str, NDArray[Any]]

    def __init__(self, data: list[Any], number: int = 0) -> None:
        self.number = number
        masses = [_masses(one) for one in data]
        full = np.logical_and.reduce([mass > 0 for mass in masses])
        self.rows = np.flatnonzero(full)
        columns = [one[0].points.shape[1] if one else 0 for one in data if isinstance(one, list)]
        columns += [one.shape[1] for one in data if not isinstance(one, list)]
        empty = np.flatnonzero(~full)
        first = int(empty[0]) if len(empty) else -1
        self._metadata = Metadata(len(full), len(self.rows), first, sum(columns), np.dtype(np.float64).str)
        self._data: list[Any] = [_with_mass(one, self.rows) for one in data]
        self.data_checksum = self._checksum(self._data)
        self.parts = []

    @classmethod
    def read(cls, source: Any, number: int) -> Self:
        """Return the shard of data of several parts, or of a matrix, a file, or an object of Dask."""
        if isinstance(source, PartsData):
            return cls(source.parts, number)
        return cls([sources.read(source, f"X[{number}]")], number)

    def _checksum(self, data: list[Any]) -> str:
        digest = hashlib.sha256(repr(self._metadata).encode())
        for one in data:
            for x in [one] if isinstance(one, np.ndarray) else [y for cloud in one for y in cloud]:
                digest.update(np.ascontiguousarray(x).data)
        return digest.hexdigest()

    @command
    def set_up(self, first: int, count: int, makers: list[Callable[[Any], Part]]) -> None:
        """Set the index of the first object and the number of centroids, and make the parts."""
        self.first, self.count = first, count
        self.parts = [make(one) for make, one in zip(makers, self._data, strict=True)]

    @command
    def set_n_jobs(self, n_jobs: int | None) -> None:
        """Set the number of threads."""
        for part in self.parts:
            part.n_jobs = n_jobs

    @query
    def box(self, part: int) -> Box:
        """Return the box of the points of all clouds of a part."""
        every = [cloud.points for cloud in self._data[part]]
        points = np.concatenate(every) if every else np.zeros((0, 1))
        return Box(points.min(axis=0, initial=np.inf), points.max(axis=0, initial=-np.inf), len(points))

    @query
    def has_data(self) -> bool:
        """Tell whether the measures are here: those of a checkpoint are not, until `attach`."""
        return not hasattr(self, "_saved")

    @command
    def run(self, part: int, method: str, *args: Any) -> Any:
        """Run a command of a part."""
        found = getattr(self.parts[part], method)
        assert is_command(found)
        return found(*args)

    @query
    def ask(self, part: int, method: str, *args: Any) -> Any:
        """Run a query of a part."""
        found = getattr(self.parts[part], method)
        assert not is_command(found)
        return found(*args)

    @query
    def measure(self, part: int, i: int) -> Any:
        """Return a measure by its index among all; None if it is in another shard."""
        here = self.first <= i < self.first + len(self)
        return self.parts[part].measure(i - self.first) if here else None

    def attach(self, source: Any) -> None:
        given = self.read(source, self.number)
        if given._metadata != self._metadata or given.data_checksum != self.data_checksum:
            raise self._differs()
        if not self.has_data():
            self._data = given._data
            self.parts = []
            for a, one in enumerate(self._data):
                arrays = npz.with_prefix(self._saved, f"part{a}_")
                rows = isinstance(one, np.ndarray)
                self.parts.append(
                    RowPart.of_arrays(one, self.count, arrays) if rows else CloudPart.of_arrays(one, arrays)
                )
            del self._saved

    def _state(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in ("number", "rows", "first", "count", "data_checksum")}
        state |= {f"metadata_{name}": x for name, x in self._metadata._asdict().items()}
        if not self.has_data():
            return state | self._saved
        for a, part in enumerate(self.parts):
            state |= {f"part{a}_{name}": x for name, x in part.state().items()}
        return state

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return a shard that was saved, without its data."""
        shard = cls.__new__(cls)
        shard.number, shard.first, shard.count = (int(arrays[name]) for name in ("number", "first", "count"))
        shard.rows, shard.data_checksum = arrays["rows"], str(arrays["data_checksum"])
        shard._metadata = Metadata(*(arrays[f"metadata_{name}"].item() for name in Metadata._fields))
        shard._saved = {name: x for name, x in arrays.items() if name.startswith("part")}
        return shard


def _masses(data: Any) -> Array:
    if isinstance(data, list):
        return np.array([cloud.weights.sum() for cloud in data])
    return validation.masses(data)


def _with_mass(data: Any, rows: Indices) -> Any:
    """Return the measures with mass, as dense rows in double precision or as clouds."""
    if isinstance(data, list):
        return [data[i] for i in rows.tolist()]
    return np.ascontiguousarray(_sets.Rows(data[rows])[:], np.float64)
