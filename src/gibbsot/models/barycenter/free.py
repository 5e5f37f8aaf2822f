"""Barycenters with free support: points and weights that minimise the mean transport cost to clouds."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from threadpoolctl import ThreadpoolController

from ...core import native, validation
from ...core.backend import backend
from ...core.warn import warn
from ...costs import Cost
from ...distributed import fixed_point
from ...distributed.fixed_point import Fixed
from ...exact import certificate
from ...exact.all_arcs import AllArcs
from ...exact.packed import SentPlans, arcs_of, send_packed
from ...exact.solution import Solution
from ...io.budget import Budget
from ...oracle.level_method import LevelMethod
from .. import _base
from .._loop import Epoch, run_epochs
from ..geometry import sets as _sets

if TYPE_CHECKING:
    from .estimator import WassersteinBarycenter

Array = NDArray[np.float64]

_MOMENTUM = 0.7  # of the points: plans follow them, so that the next ones lie in the same direction
_PLAIN = 1  # first updates of the points, which change the plans too much for momentum
_PATIENCE = 2  # updates whose gain decides whether they go on
_WEIGHT_STEPS = 12  # of the level method at most in one update of the weights
_SHORT = 0.1  # the first of these, in units of the potentials: weights that do not gain here are at a kink, and rest
_SUM_BITS = 52  # of sums of doubles that are to be exact
_MOST_COORDINATES = 3  # of clouds that come as arrays in a list; where there are more columns, these are bins
_NEGLIGIBLE = 1e-6  # weight relative to the largest: such points are dropped
_LEVELS = 1500  # atoms of a barycenter on the line up to which its best approximation by fewer is computed


@functools.cache
def thread_pools() -> ThreadpoolController:
    """Return what limits the threads of products; it takes long to find the libraries."""
    return ThreadpoolController()


class Cloud(NamedTuple):
    """Points of shape (m, d) and their weights. Exact solvers take the weights as they are given, and normalise."""

    points: Array
    weights: Array

    @classmethod
    def of(cls, points: Array, weights: Array) -> Cloud:
        """Return the points that have weight."""
        own = weights > 0
        if not own.all():
            points, weights = points[own], weights[own]
        return cls(np.asarray(points, np.float64), np.asarray(weights, np.float64))

    def normalised(self) -> Cloud:
        """Return the cloud with weights of sum one."""
        return Cloud(self.points, self.weights / self.weights.sum())


class Plans(NamedTuple):
    """What optimal plans from weighted points to all clouds show.

    Attributes
    ----------
    value : float
        The objective.
    targets : array of shape (K, d)
        The best points for these plans: the means of what each point is sent to.
    potentials : array of shape (K,)
        The mean of the potentials f, up to a constant: a subgradient of the objective for the weights.
    bases : object
        The arcs of the plans, for the next ones.
    """

    value: float
    targets: Array
    potentials: Array
    bases: Any


class PlanSums(NamedTuple):
    """Weighted sums over some clouds of what their plans show, without the squares of the points that are moved.

    They do not depend on the order of the clouds: those of several shards add up.
    """

    value: Fixed
    sent: Fixed
    potentials: Fixed

    def shown(self, X: Array, p: Array, bases: Any) -> Plans:
        """Return what the sums over all clouds, with weights of sum one, show."""
        share, squares = p / p.sum(), (X**2).sum(axis=1)
        targets = np.where(share[:, None] > 0, self.sent.value / np.maximum(share, 1e-300)[:, None], X)
        value = float(self.value.value) + float(share @ squares)
        return Plans(value, targets, np.asarray(self.potentials.value + squares), bases)


class CloudSet:
    """Clouds with their points one after the other, around a centre, and optimal plans to some of them.

    Parameters
    ----------
    clouds : list of Cloud
        The clouds, with positive weights.
    centre : array of shape (d,)
        A point near to them: around it, squares lose few digits.
    n_jobs : int, optional
        Threads over the clouds.

    Attributes
    ----------
    reach : float
        The largest distance of a point from the centre, or a larger number: it sets the precision of sums.
    """

    def __init__(self, clouds: list[Cloud], centre: Array, n_jobs: int | None) -> None:
        self.clouds, self.n_jobs = clouds, n_jobs
        self.starts = np.cumsum([0, *(len(c.weights) for c in clouds)], dtype=np.int64)
        self.points = np.concatenate([np.empty((0, len(centre))), *(c.points for c in clouds)])
        self.points -= centre
        self.weights = np.concatenate([np.empty(0), *(c.weights for c in clouds)])
        ends = list(itertools.pairwise(self.starts.tolist()))
        norms = np.einsum("ij,ij->i", self.points, self.points)
        self.squares = np.array([w @ norms[a:b] / w.sum() for (_, w), (a, b) in zip(clouds, ends, strict=True)])
        self.reach = math.sqrt(norms.max(initial=0.0))
        self._sizes = np.diff(self.starts)
        self._largest = int(self._sizes.max(initial=0))

    def room(self, rows: int, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many arcs plans from some number of points to some clouds have room for: see `packed.arcs_of`."""
        return self._sizes[which] + rows

    def sums(
        self, X: Array, p: Array, which: NDArray[np.int64], share: Array, basis: NDArray[np.int32] | None
    ) -> tuple[PlanSums, NDArray[np.int32]]:
        """Return the sums of what optimal plans show from weighted points to some clouds, and the arcs of the plans.

        Parameters
        ----------
        X : array of shape (K, d)
            Points around the centre.
        p : array of shape (K,)
            Their weights.
        which : array of int, shape (n,)
            The clouds.
        share : array of shape (n,)
            Their weights, at most one in all.
        basis : array of int32, shape (2, arcs), optional
            The arcs of earlier plans, one cloud behind the other, with `room` for each.
        """
        found = None
        if backend().has_simplex and len(X) * self._largest <= AllArcs.most:
            places = self.starts[which], self._sizes[which]
            found = send_packed((X, p), (self.points, self.weights), places, basis, native.threads(self.n_jobs))
        if found is None or not found.solved.all():
            found = self._by_optima(X, p, which)
        size = math.sqrt(float((X**2).sum(axis=1).max()))
        totals = (
            _sum(share, found.value + self.squares[which], self.reach * (self.reach + 2 * size)),
            _sum(share, found.sent, self.reach),
            _sum(share, found.f, 4 * self.reach * size),
        )
        return PlanSums(*totals), found.arcs

    def _by_optima(self, X: Array, p: Array, which: NDArray[np.int64]) -> SentPlans:
        """Return what exact solutions of any kind show."""
        places = [slice(*self.starts[b : b + 2]) for b in which.tolist()]
        clouds = [Cloud(self.points[own], self.weights[own]) for own in places]
        squares = (X**2).sum(axis=1)
        value, f, sent = np.empty(len(which)), np.empty((len(which), len(X))), np.empty((len(which), *X.shape))
        for b, one in enumerate(cloud_optima(Cloud(X, p), clouds, self.n_jobs)):
            value[b] = one.value - p @ squares / p.sum() - self.squares[which[b]]
            f[b] = one.f - squares
            f[b] -= np.median(f[b])
            sent[b] = one.plan @ clouds[b].points
        arcs = np.full((2, int(self.room(len(X), which).sum())), -1, np.int32)
        return SentPlans(value, f, sent, arcs, np.ones(len(which), np.bool_))


def _sum(share: Array, terms: Array, largest: float) -> Fixed:
    """Return the weighted sum over the first axis, exactly, in place of the terms, which are at most `largest`."""
    quantum = fixed_point.quantum(1.001 * largest, _SUM_BITS)
    terms *= (share / quantum).reshape(-1, *[1] * (terms.ndim - 1))
    return Fixed(np.rint(terms, out=terms).sum(axis=0), quantum)


class Clouds:
    r"""Clouds and their weights lambda, and the objective of a barycenter with free support.

    .. math:: F(X, p) = \sum_i \lambda_i W\Big(\sum_a p_a \delta_{X_a}, \; y_i\Big)

    with squared Euclidean distances as the cost.

    Parameters
    ----------
    points : list of arrays of shape (m_i, d)
        The points.
    weights : list of arrays of shape (m_i,)
        Their weights; points without weight are left out.
    lambdas : array of shape (n,), optional
        The weights of the clouds, which are normalised; equal by default. Clouds without weight are left out.
    n_jobs : int, optional
        Threads over the clouds.
    """

    def __init__(
        self, points: Sequence[Array], weights: Sequence[Array], lambdas: Array | None = None, n_jobs: int | None = None
    ) -> None:
        lambdas = np.ones(len(points)) if lambdas is None else np.asarray(lambdas, np.float64)
        used = np.flatnonzero(lambdas)
        self.given = lambdas[used]
        self.lambdas, self.n_jobs = self.given / self.given.sum(), n_jobs
        self.clouds = [Cloud.of(points[i], weights[i]) for i in used.tolist()]
        # around their mean, squares lose fewest digits
        self.share = np.concatenate(
            [a * c.normalised().weights for a, c in zip(self.lambdas, self.clouds, strict=True)]
        )
        self.mean = self.share @ np.concatenate([c.points for c in self.clouds])
        self._set = CloudSet(self.clouds, self.mean, n_jobs)
        self.points = self._set.points

    def __len__(self) -> int:
        return len(self.clouds)

    def plans(self, X: Array, p: Array, bases: Any = None) -> Plans:
        """Return what optimal plans from centred points X with weights p show, from the bases of earlier ones."""
        sums, kept = self._set.sums(X, p, np.arange(len(self)), self.lambdas, bases)
        return sums.shown(X, p, kept)

    def near(self, found: Alternation) -> NDArray[np.int32]:
        """Return the arcs of the plans of the points with weight."""
        own, every = found.p > 0, np.arange(len(self))
        number = np.where(own, np.cumsum(own) - 1, -1)
        i, j = found.now.bases
        problems = np.repeat(every, self._set.room(len(own), every))
        arcs = np.stack([np.where(i >= 0, number[i], -1), j]).astype(np.int32)
        return arcs_of(arcs, problems, self._set.room(int(own.sum()), every))

    def objective(self, cloud: Cloud, near: NDArray[np.int32] | None = None) -> tuple[float, float]:
        """Return certified bounds of the objective of a cloud, as it is, from the arcs of plans that are near."""
        _, below, above = _sets.numbers(cloud_optima(cloud, self.clouds, self.n_jobs, near, plans=False))
        return certificate.mean(self.given, below).lower, certificate.mean(self.given, above).upper

    def pairs_bound(self) -> float:
        r"""Return a certified lower bound of the objective of every measure, the sum over pairs of clouds.

        .. math:: F(X, p) \ge \sum_{i < j} \lambda_i \lambda_j W(y_i, y_j)

        because the plans of any measure to two clouds, glued together, are a plan between these.
        """
        measures = _sets.Clouds([c.points for c in self.clouds], [c.weights for c in self.clouds], "sqeuclidean")
        pairs = _sets.AllPairs(len(self), len(self), symmetric=True, zero_diagonal=True)
        exact, total = [Fraction(a) for a in self.given.tolist()], Fraction(0)
        for which, found in _sets.solutions(measures, measures, pairs, None, n_jobs=self.n_jobs):
            for i, j, one in zip(*(x.tolist() for x in pairs[which]), found, strict=True):
                total += exact[i] * exact[j] * Fraction(max(one.lower, 0.0))
        return certificate.rounded_down(total / sum(exact) ** 2)

    def closed_form(self) -> Cloud | None:
        """Return the barycenter of at most two clouds, or on the line; None elsewhere."""
        if len(self) == 1:
            return self.clouds[0].normalised()
        if self.points.shape[1] == 1:
            return _quantile_mean(self.clouds, self.lambdas)
        if len(self) == 2:
            (X, p), (Y, q) = self.clouds
            arcs = sparse.coo_array(cloud_optima(Cloud(X, p), [Cloud(Y, q)])[0].plan)
            a, b = self.lambdas
            return Cloud(a * X[arcs.row] + b * Y[arcs.col], np.asarray(arcs.data, np.float64))
        return None

    def start(self, size: int, random_state: Any, exact: Cloud | None) -> Cloud:
        """Return centred points to start from, with weights: chosen by k-means++ among a barycenter, or all points."""
        points, share = (self.points, self.share) if exact is None else (exact.points - self.mean, exact.weights)
        if exact is not None and points.shape[1] == 1 and len(points) <= _LEVELS:
            return _nearest_on_line(Cloud(points, share), size)
        size = min(size, len(points))
        centres, _ = kmeans_plusplus(points, size, sample_weight=share, random_state=random_state)
        return Cloud(np.asarray(centres, np.float64), np.full(size, 1 / size))


def cloud_optima(
    one: Cloud,
    clouds: list[Cloud],
    n_jobs: int | None = None,
    near: NDArray[np.int32] | None = None,
    plans: bool = True,
) -> Sequence[Solution]:
    """Return the exact solutions between a cloud and others, with squared Euclidean distances as the cost.

    They start from arcs, one problem behind the other, if these are given. Without `plans` only numbers are known.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0]])
    >>> found = cloud_optima(Cloud(points, np.ones(2)), [Cloud(points + 2, np.ones(2)), Cloud(points, np.ones(2))])
    >>> [round(solution.value, 9) for solution in found]
    [4.0, 0.0]
    """
    first, second = (
        _sets.Clouds([c.points for c in some], [c.weights for c in some], "sqeuclidean") for some in ([one], clouds)
    )
    n = len(clouds)
    return _sets.between_clouds(
        first, second, np.zeros(n, np.intp), np.arange(n), n_jobs=n_jobs, plans=plans, near=near
    )


def _quantile_mean(clouds: list[Cloud], lambdas: Array) -> Cloud:
    """Return the barycenter of clouds on the line: its quantile function is the mean of theirs."""
    orders = [np.argsort(c.points[:, 0], kind="stable") for c in clouds]
    ends = [np.cumsum(c.weights[order], dtype=np.longdouble) for c, order in zip(clouds, orders, strict=True)]
    ends = [end / end[-1] for end in ends]
    levels = np.unique(np.concatenate([np.zeros(1, np.longdouble), *ends]))
    length, middle = np.diff(levels).astype(np.float64), (levels[1:] + levels[:-1]) / 2
    quantiles = [c.points[o, 0][np.searchsorted(e, middle)] for c, o, e in zip(clouds, orders, ends, strict=True)]
    x = lambdas @ np.stack(quantiles)
    kept = length > 2.0**-50  # the others are rounding errors of sums
    x, where = np.unique(x[kept], return_inverse=True)
    weight = np.bincount(where.ravel(), length[kept])
    return Cloud(x[:, None], weight / weight.sum())


def _nearest_on_line(cloud: Cloud, size: int) -> Cloud:
    """Return the best approximation of a sorted cloud on the line by fewer points, by dynamic programming.

    Examples
    --------
    >>> _nearest_on_line(Cloud(np.array([[0.0], [1.0], [5.0]]), np.array([0.25, 0.25, 0.5])), 2)
    Cloud(points=array([[0.5],
           [5. ]]), weights=array([0.5, 0.5]))
    """
    x, w = cloud.points[:, 0], cloud.weights
    n = len(x)
    size = min(size, n)
    mass, first, second = (np.append(0.0, np.cumsum(y)) for y in (w, w * x, w * x * x))
    i, j = np.arange(n)[:, None], np.arange(1, n + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # the variance of the points i to j - 1, times their mass
        spread = second[j] - second[i] - (first[j] - first[i]) ** 2 / (mass[j] - mass[i])
    spread = np.where(i < j, np.maximum(spread, 0), np.inf)
    best, cuts = spread[0].copy(), []
    for _ in range(size - 1):
        total = np.append(np.inf, best[:-1])[:, None] + spread
        cuts.append(total.argmin(axis=0))
        best = total[cuts[-1], np.arange(n)]
    ends = [n]
    for cut in reversed(cuts):
        ends.append(int(cut[ends[-1] - 1]))
    bounds = [0, *reversed(ends)]
    parts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
    weight = np.array([w[part].sum() for part in parts])
    points = np.array([w[part] @ x[part] for part in parts]) / weight
    return Cloud(points[:, None], weight)


class HasPlans(Protocol):
    """Clouds around a point, and optimal plans to them: `Clouds`, or those of shards."""

    mean: Array

    def plans(self, X: Array, p: Array, bases: Any = None) -> Plans:
        """Return what optimal plans from centred points X with weights p show, from the bases of earlier ones."""


class Alternation:
    """Updates of points and weights in turn, each from exact plans; the objective never rises.

    Given the plans, the best points are the means of what they are sent to; points with momentum are tried first. Given
    the points, the objective is convex in the weights, and the plans' potentials are its cuts (see `LevelMethod`).

    Parameters
    ----------
    clouds : HasPlans
        The clouds.
    start : Cloud
        Centred points and weights.
    tol : float
        The relative gain of some updates, below which the points rest, and the whole ends.

    Attributes
    ----------
    X, p : arrays of shape (K, d) and (K,)
        Points and weights.
    now : Plans
        Their plans.
    weights_gap : float
        By how much, relative to the objective, other weights of these points could lower it at most.
    """

    def __init__(self, clouds: HasPlans, start: Cloud, tol: float) -> None:
        self.clouds, self.tol = clouds, tol
        self.X, self.p = start.points.copy(), start.weights / start.weights.sum()
        self.now, self.weights_gap = clouds.plans(self.X, self.p), np.inf

    @property
    def stationarity(self) -> float:
        """By what share the best points for the present plans would lower the objective."""
        moved = float(self.p @ ((self.X - self.now.targets) ** 2).sum(axis=1))
        return moved / self.now.value if self.now.value > 0 else 0.0

    def run(self) -> Iterator[str]:
        """Alternate until neither points nor weights gain; yield what was updated."""
        yield "start"
        while True:
            start = self.now.value
            yield from self._move_points()
            before = self.now.value
            yield from self._move_weights()
            rest = before - self.now.value <= self.tol * before and self.stationarity <= self.tol
            if rest or self.now.value == start:
                return

    def _move_points(self) -> Iterator[str]:
        """Move the points until they gain little: to the best ones for the plans, and beyond."""
        values, last = [self.now.value], self.now.targets
        while len(values) <= max(_PLAIN, _PATIENCE) or values[-1 - _PATIENCE] - values[-1] > self.tol * values[-1]:
            to, momentum = self.now.targets, _MOMENTUM if len(values) > _PLAIN else 0.0
            for share in (momentum, 0.0) if momentum else (0.0,):
                X = to + share * (to - last)
                found = self.clouds.plans(X, self.p, self.now.bases)
                if found.value < self.now.value:
                    self.X, self.now = X, found
                    break
            last = to
            values.append(self.now.value)
            yield "points"
            if values[-1] == values[-2]:
                return

    def _move_weights(self) -> Iterator[str]:
        """Improve the weights until they gain little, or are proved to be good."""
        level, now, p, values = LevelMethod(self.p), self.now, self.p, [self.now.value]
        while len(values) <= _WEIGHT_STEPS:
            level.add(now.potentials - p @ now.potentials + now.value)
            level.step(0.0, self.now.value)
            self.weights_gap = max(0.0, self.now.value - level.lower) / self.now.value if self.now.value > 0 else 0.0
            stalled = len(values) > _PATIENCE and values[-1 - _PATIENCE] - values[-1] <= self.tol * values[-1]
            if self.weights_gap <= self.tol or stalled or (len(values) == 2 and values[1] == values[0]):
                return
            p = np.exp(level.log_p) if len(values) > 1 else self._short_step()
            p = np.where(p < _NEGLIGIBLE * p.max(), 0.0, p)
            p /= p.sum()
            now = self.clouds.plans(self.X, p, self.now.bases)
            if now.value < self.now.value:
                self.p, self.now = p, now
            values.append(self.now.value)
            yield "weights"

    def _short_step(self) -> Array:
        """Return weights a little way down the potentials."""
        f = self.now.potentials - self.p @ self.now.potentials
        f = np.ldexp(f, -np.frexp(np.abs(f).max())[1])  # so that squares do not underflow
        return np.asarray(self.p * np.exp(-_SHORT * f / np.sqrt(self.p @ f**2)))

    def cloud(self) -> Cloud:
        """Return the points with weight."""
        own = self.p > 0
        return Cloud(self.X[own] + self.clouds.mean, self.p[own] / self.p[own].sum())


def squared_positions(cost: Cost) -> Array:
    """Return the points between which a cost is the squared Euclidean distance.

    Raises
    ------
    ValueError
        If it is none: then barycenters with free support are not means of points.
    """
    found = cost.positions()
    if found is None or found.power != 2 or found.norm != 2:
        raise ValueError(
            f"cost: {cost!r} is not a squared Euclidean distance between points; expected GridCost(shape), "
            "PointCost(points), 'sqeuclidean' with feature_vectors or with clouds, or support='fixed' for this cost"
        )
    return found.X


def clouds_of(estimator: Any, X: Any, reset: bool = True) -> tuple[list[Array], list[Array]]:
    """Return the points and weights of the data of an estimator with free support, clouds or rows on common points.

    Rows without mass are clouds without points. With `reset` the estimator gets its number of features, and its cost
    ``cost_`` if the data are rows; otherwise data must have that number.
    """
    cost = estimator.cost
    own = cost is None or isinstance(cost, str) or callable(cost) or _are_pairs(X)
    metric = cost if isinstance(cost, str) else "sqeuclidean"
    if estimator.feature_vectors is None and own and _sets.are_clouds(X, metric):
        if (cost is not None and not isinstance(cost, str)) or metric != "sqeuclidean":
            raise ValueError(
                f"cost: is {cost!r}; expected 'sqeuclidean' for free support, whose updates are means of points. Other "
                "metrics need measures on common points and support='fixed'"
            )
        found = _sets.clouds(X, "X", "sqeuclidean")
        d = found.points[0].shape[1]
        if reset:
            estimator.n_features_in_ = d
        elif d != estimator.n_features_in_:
            raise ValueError(f"X: has points with {d} coordinates; expected {estimator.n_features_in_} as in the fit")
        return found.points, found.weights
    batches = _base.batches(estimator, X, reset)
    if reset:
        estimator.cost_ = _base.cost_of(estimator, batches.data)
    positions = squared_positions(estimator.cost_)
    points, weights = [], []
    for batch in batches:
        rows = sparse.csr_array(batch)
        for start, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
            own = rows.data[start:end] > 0
            points.append(positions[rows.indices[start:end][own]])
            weights.append(rows.data[start:end][own].astype(np.float64))
    return points, weights


def refuse_clouds(estimator: Any, X: Any) -> None:
    """Refuse clouds where measures on common points are expected; a list of matrices may be one of shards."""
    if estimator.feature_vectors is not None:
        return
    arrays = isinstance(X, list) and all(isinstance(x, np.ndarray) and x.ndim == 2 for x in X)
    if arrays and any((x < 0).any() for x in X):
        raise ValueError("X: has negative entries, which weights cannot have; a list of clouds needs support='free'")
    if arrays and estimator.cost is None and len(X) > 1 and all(1 < x.shape[1] <= _MOST_COORDINATES for x in X):
        raise ValueError(
            f"X: is a list of arrays with {X[0].shape[1]} columns; expected support='free' if they are clouds, or "
            "cost='line' if their rows are measures on as many bins"
        )
    if _are_pairs(X) and _sets.are_clouds(X, "sqeuclidean"):
        raise ValueError(
            "X: is a list of clouds; expected measures on common points, or support='free' for such a list"
        )
    if isinstance(estimator.cost, str) and _sets.are_clouds(X, estimator.cost):
        raise ValueError(
            f"feature_vectors: expected an embedding of each feature for cost={estimator.cost!r}; for clouds expected "
            "support='free'"
        )


def _are_pairs(X: Any) -> bool:
    """Tell whether data are a list with tuples, as points with their weights are."""
    return isinstance(X, list | tuple) and any(isinstance(x, tuple) for x in X)


def given_start(init: Any, size: int | None, d: int) -> Cloud | None:
    """Return checked points and weights that a fit is to start from; None for "k-means++"."""
    if isinstance(init, str):
        validation.choice(init, "init", ("k-means++",))
        return None
    points, weights = init if isinstance(init, tuple) else (init, None)
    X = validation.points(points, "init").astype(np.float64)
    if X.shape[1] != d or (size is not None and len(X) != size):
        raise ValueError(f"init: has shape {X.shape}; expected {'n_support' if size is None else size} points in R^{d}")
    p = validation.weights(np.ones(len(X)) if weights is None else weights, "init (weights)", len(X), count=1)[0]
    return Cloud(X, p / p.sum())


def fit_free(model: WassersteinBarycenter, X: Any, sample_weight: Any, started: float) -> None:
    """Fit a barycenter with free support, and publish it.

    Parameters
    ----------
    model : WassersteinBarycenter
        The model.
    X, sample_weight
        As for its `fit`.
    started : float
        ``time.perf_counter()`` at the start of the fit.
    """
    points, weights = clouds_of(model, X)
    lambdas = np.ones(len(points)) if sample_weight is None else validation.sample_weight(sample_weight, len(points))
    lambdas = np.where([len(w) > 0 for w in weights], lambdas, 0.0)
    if not lambdas.any():
        raise ValueError("sample_weight: is zero for every measure with mass; expected a positive one")
    clouds = Clouds(points, weights, lambdas, model.n_jobs)
    size = model.n_support
    size = round(len(clouds.points) / len(clouds)) if size is None else validation.count(size, "n_support")
    start, exact = given_start(model.init, model.n_support, clouds.points.shape[1]), clouds.closed_form()
    random, budget = check_random_state(model.random_state), Budget(model.max_seconds or np.inf)
    model.history_, model.status_ = [], "running"
    model.objective_, model.lower_bound_, model.gap_ = np.inf, 0.0, np.inf  # until they are proved
    with thread_pools().limit(limits=1, user_api="blas"):  # small products are slower in threads
        if exact is not None and len(exact.points) <= size:
            _publish(model, clouds, exact, 0.0, 0.0)
            ended, near = "closed form", None
        else:
            ended, near = _best_start(model, clouds, start, size, exact, random, budget, started)
        _prove(model, clouds, ended, near)


def _best_start(
    model: WassersteinBarycenter, clouds: Clouds, start: Cloud | None, size: int, exact: Cloud | None, random: Any,
    budget: Budget, started: float,
) -> tuple[str, NDArray[np.int32] | None]:  # fmt: skip
    """Alternate from several starts, and publish the best; return why it ended, and the arcs of its plans."""
    best, ended, near = np.inf, "stationary", None
    for k in range(1 if start is not None else model.n_init):
        first = clouds.start(size, random, exact) if start is None else Cloud(start.points - clouds.mean, start.weights)
        found = Alternation(clouds, first, model.tol)
        history: list[Epoch] = []
        why = "stopped"

        def epochs(found: Alternation = found, k: int = k) -> Iterator[tuple[Epoch, str]]:
            nonlocal why
            for number, what in enumerate(found.run()):
                value = found.now.value
                yield Epoch(value, np.nan, np.nan, 0.0, found.stationarity, 0.0), f"start {k}, {what}: {value:.4g}"
                if number + 1 >= model.max_epochs or budget.spent:
                    why = "budget spent"
                    return
            why = "stationary"

        def publish(found: Alternation = found, history: list[Epoch] = history, best: float = best) -> None:
            if found.now.value < best:
                model.history_ = history
                _publish(model, clouds, found.cloud(), found.stationarity, found.weights_gap)

        run_epochs("Wasserstein barycenter", model, epochs(), history, publish, started)
        if found.now.value < best:
            best, ended = found.now.value, why
            near = clouds.near(found) if clouds.points.shape[1] > 1 else None  # on the line points are sorted
        if why == "stopped" or budget.spent:
            return why, near
    return ended, near


def _publish(model: WassersteinBarycenter, clouds: Clouds, cloud: Cloud, moves: float, weights_gap: float) -> None:
    """Set the points and weights of a model."""
    order = np.lexsort(cloud.points.T[::-1]) if clouds.points.shape[1] == 1 else slice(None)
    model.support_, model.barycenter_ = cloud.points[order], cloud.weights[order]
    model.stationarity_, model.weights_gap_, model.n_iter_ = moves, weights_gap, max(1, len(model.history_))


def _prove(model: WassersteinBarycenter, clouds: Clouds, ended: str, near: NDArray[np.int32] | None) -> None:
    """Compute the certified bounds of a fitted model, and its status."""
    _, above = clouds.objective(Cloud(model.support_, model.barycenter_), near)
    model.objective_ = max(0.0, above)  # without the sign of a zero
    n = len(clouds)
    model.lower_bound_ = clouds.pairs_bound() if n * (n - 1) // 2 <= model.max_pairs else 0.0
    model.gap_ = certificate.relative_gap(model.lower_bound_, model.objective_, model.objective_)
    state = certificate.status(
        model.lower_bound_, model.objective_, model.objective_, gap=model.gap, closed=certificate.PROGRAMME_GAP
    )
    model.status_ = state if state in certificate.PROVED else "stationary" if ended == "closed form" else ended
    if model.status_ == "budget spent":
        warn(
            f"max_epochs, max_seconds: ended the fit after {model.n_iter_} updates, before points and weights were "
            "stationary; allow more for a better barycenter",
            ConvergenceWarning,
        )
