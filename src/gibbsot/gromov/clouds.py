"""Clouds with squared Euclidean distances, without a matrix."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from ..core.backend import backend
from ..costs import Cost, DenseCost, PointCost
from ..costs.kdtree import MOST_DIMENSIONS, joined
from ..exact.methods import optima
from ..io.budget import Budget
from .measures import Features, Measures
from .search import NEGLIGIBLE, Found, Search, power_of_two

Array = NDArray[np.float64]

_RANK = 1e-15  # of the largest singular value: smaller ones are rounding
_REFLECTED = 3  # leading principal axes that are reflected in all combinations
_ROTATIONS = 8  # starts that are added where principal variances coincide
_FLAT = 1e-12  # of the largest principal variance: smaller ones are rounding
_COINCIDE = 0.1  # relative difference of principal variances below which the axes say little
_COARSE = 1000  # points of the larger side above which coarser clouds are matched first


class Vertex(NamedTuple):
    """An optimal plan of a linear problem, its basis, and potentials of the rows less the squares of their points."""

    plan: sparse.csr_array
    basis: tuple[NDArray[np.int32], NDArray[np.int32]]
    f: Array


class Clouds(Search):
    """Clouds with squared Euclidean distances. A start is a matrix in the place of X^T Z Y, and a plan if there is one.

    Attributes
    ----------
    X, Y : arrays of shape (m1, d1) and (m2, d2)
        The points; their weighted means are zero.
    """

    def __init__(self, X: Array, Y: Array, measures: Measures, alpha: float, features: Features | None) -> None:
        self.X, self.Y, self.measures, self.alpha, self.features = X, Y, measures, alpha, features
        self.unit = 1.0
        sides = (X, measures.p), (Y, measures.q)
        self._squares = tuple((x**2).sum(axis=1) for x in (X, Y))
        self._covariances = tuple((x * w[:, None]).T @ x for x, w in sides)
        found = []
        for (_, w), a, covariance in zip(sides, self._squares, self._covariances, strict=True):
            found.append(float(2 * w @ a**2 + 2 * (w @ a) ** 2 + 4 * (covariance**2).sum()))
        self.moments = found[0], found[1]

    @classmethod
    def of(cls, X: Array, Y: Array, measures: Measures, alpha: float, features: Features | None) -> Clouds:
        """Return centred clouds in units in which coordinates are at most about one."""
        X, Y = (x - w @ x for x, w in ((X, measures.p), (Y, measures.q)))
        side = power_of_two(max(float(np.abs(X).max()), float(np.abs(Y).max())))
        clouds = cls(X / side, Y / side, measures, alpha, None if features is None else features.scaled(side**4))
        clouds.unit = side**4
        return clouds

    def started(self, plan: sparse.csr_array) -> tuple[Array, sparse.csr_array | None]:
        return self._image(plan), plan

    def starts(self, count: int | None, noise: np.random.Generator, budget: Budget) -> list[Any]:
        return [(A, None) for A in self.images(count, noise)]

    def images(self, count: int | None, noise: np.random.Generator) -> list[Array]:
        """Return matrices in the place of X^T Z Y: that of the product, axes on axes with reflections, rotations."""
        (spread, axes), (other, others) = map(_axes, self._covariances)
        d = min(len(spread), len(other))
        spread, axes, other, others = spread[:d], axes[:, :d], other[:d], others[:, :d]
        skew = [w @ (x @ u) ** 3 for x, u, w in ((self.X, axes, self.measures.p), (self.Y, others, self.measures.q))]
        signs = np.where(skew[0] * skew[1] < 0, -1.0, 1.0)
        together = np.flatnonzero([_near(spread, k) or _near(other, k) for k in range(d - 1)])
        turned = np.union1d(together, together + 1) if len(together) else np.arange(d)

        def generated() -> Iterator[Array]:
            yield np.zeros((self.X.shape[1], self.Y.shape[1]))
            for flips in itertools.product((1.0, -1.0), repeat=min(d, _REFLECTED)):
                yield (axes * (spread * signs * np.concatenate([flips, np.ones(d - len(flips))]) * other)) @ others.T
            while True:
                turn = np.eye(d)
                turn[np.ix_(turned, turned)] = _rotation(len(turned), noise)
                yield (axes * spread) @ turn @ (others * other).T

        if count is None:
            count = 1 + 2 ** min(d, _REFLECTED) + (_ROTATIONS if len(together) else 0)
        return list(itertools.islice(generated(), count))

    def descend(self, start: tuple[Array, sparse.csr_array | None], most: int, budget: Budget) -> Found:
        A, plan = start
        if plan is None and (coarser := self._coarser()) is not None:
            A = coarser._image(coarser.descend(start, most, budget).plan)
        best = math.inf if plan is None else self._value(plan, A)
        before, stretch, last = A, 0.0, None
        # steps of large problems take seconds: they also try to go on in the direction of the last one
        large = max(self.measures.shape) > _COARSE
        for step in range(1, most + 1):
            last = self.vertex(A + stretch * (A - before), last, budget)
            image = self._image(last.plan)
            value = self._value(last.plan, image)
            better = plan is None or value < best - NEGLIGIBLE * self.scale(last.plan)
            if better:
                before, A, plan, best = A, image, last.plan, value
                stretch = max(1.0, 2 * stretch) if large else 0.0
            if budget.spent:
                return Found(best, plan, step, False)
            if not better and not stretch:  # a full step of plain Frank-Wolfe
                return Found(best, plan, step, True)
            if not better:
                stretch = 0.0
        assert plan is not None
        return Found(best, plan, most, False)

    def vertex(self, A: Array, last: Vertex | None, budget: Budget) -> Vertex:
        """Return an optimal plan of the linear problem at A, from the last one."""
        left, sizes, right = np.linalg.svd(A, full_matrices=False)
        kept = sizes > _RANK * max(1e-3 * math.sqrt(sum(self.moments)), sizes.max(initial=0.0))
        roots = np.sqrt(8 * self.alpha * sizes[kept])
        a, b = (math.sqrt(2 * self.alpha) * square[:, None] for square in self._squares)
        u, v = [a, (self.X @ left[:, kept]) * roots], [b, (self.Y @ right[kept].T) * roots]
        cost: Cost
        if self.features is not None and self.features.positions is None:
            cost = DenseCost(self.features.all() - 2 * np.hstack(u) @ np.hstack(v).T)
        else:
            if self.features is not None and self.features.positions is not None:
                for parts, x in zip((u, v), self.features.positions, strict=True):
                    parts.append(math.sqrt(self.features.share) * x)
            cost = PointCost(np.hstack(u), np.hstack(v))
        # potentials of products stay near when the squares of the new coordinates change
        squares = sum((x**2).sum(axis=1) for x in u)
        warm: Any = None if last is None else [Vertex(last.plan, last.basis, last.f + squares)]
        found = optima(self.measures.problem(cost), warm_start=warm, budget=budget)[0]
        return Vertex(found.plan, found.basis, found.f - squares)

    def _image(self, plan: sparse.csr_array) -> Array:
        """Return X^T Z Y."""
        return self.X.T @ (plan @ self.Y)

    def _value(self, plan: sparse.csr_array, image: Array) -> float:
        """Return the objective of a plan: for centred clouds moments and the differences of squares suffice."""
        arcs, (a, b), (S, R) = plan.tocoo(), self._squares, self._covariances
        own = 2 * float(arcs.data @ (a[arcs.row] - b[arcs.col]) ** 2)
        own += 2 * float(self.measures.p @ a - self.measures.q @ b) ** 2
        own += 4 * float((S**2).sum() + (R**2).sum() - 2 * (image**2).sum())
        own = self.alpha * max(own, 0.0)
        return own if self.features is None else own + self.features.of(plan)

    def _coarser(self) -> Clouds | None:
        """Return clouds of cells of neighbouring points, whose local optima are good starts, or None for small ones."""
        most = max(self.X.shape[1], self.Y.shape[1])
        if max(len(self.X), len(self.Y)) <= _COARSE or most > MOST_DIMENSIONS or self.features is not None:
            return None
        if not backend().has_kd_trees:
            return None
        smallest = _COARSE // 8
        X, p, _ = joined(self.X, self.measures.p, smallest)
        Y, q, _ = joined(self.Y, self.measures.q, smallest)
        measures = Measures(p, q, np.arange(len(p)), np.arange(len(q)), (len(p), len(q)))
        return Clouds(np.asarray(X, np.float64), np.asarray(Y, np.float64), measures, self.alpha, None)

    def eccentricities(self) -> tuple[Array, Array]:
        found = []
        for x, w, a, S in zip((self.X, self.Y), self.measures[:2], self._squares, self._covariances, strict=True):
            mean = a**2 + 2 * a * (w @ a) + w @ a**2 + 4 * ((x @ S) * x).sum(axis=1) - 4 * x @ ((w * a) @ x)
            found.append(np.sqrt(np.maximum(mean, 0.0)))
        return found[0], found[1]

    def distances(self, side: int, rows: slice) -> Array:
        x = (self.X, self.Y)[side]
        return cdist(x[rows], x, "sqeuclidean")

    def widest(self, side: int) -> tuple[float, float]:
        x = (self.X, self.Y)[side]
        return 0.0, float((np.ptp(x, axis=0) ** 2).sum()) * (1 + 1e-9)


def _axes(covariance: Array) -> tuple[Array, Array]:
    """Return standard deviations along the principal axes in which there is variance, and the axes as columns."""
    variances, axes = np.linalg.eigh(covariance)
    kept = np.flatnonzero(variances > _FLAT * variances[-1])[::-1]
    return np.sqrt(variances[kept]), axes[:, kept]


def _near(spread: Array, k: int) -> bool:
    """Return whether the principal variances k and k + 1 coincide."""
    return bool(spread[k] ** 2 - spread[k + 1] ** 2 <= _COINCIDE * spread[k] ** 2)


def _rotation(d: int, noise: np.random.Generator) -> Array:
    """Return a random orthogonal matrix: a rotation, or one with a reflection."""
    turn, upper = np.linalg.qr(noise.normal(size=(d, d)))
    return turn * np.where(np.diag(upper) < 0, -1.0, 1.0)
