"""Two given matrices of distances."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..costs import DenseCost
from ..exact.methods import optima
from ..io.budget import Budget
from .clouds import Clouds
from .measures import Features, Measures
from .search import NEGLIGIBLE, Found, Search, power_of_two

Array = NDArray[np.float64]

_SLOW = 1e-10  # of the scale of the objective: where steps are not full ones, a smaller decrease ends the search


class Place(NamedTuple):
    """A plan Z, and its image ``(C Z D^T + C^T Z D) / 2``."""

    plan: sparse.csr_array
    image: Array

    def towards(self, other: Place, share: float) -> Place:
        """Return the place on the line to another one."""
        plan = sparse.csr_array((1 - share) * self.plan + share * other.plan)
        return Place(plan, (1 - share) * self.image + share * other.image)


class Matrices(Search):
    """Two given matrices. A start is a plan with its image.

    Attributes
    ----------
    C, D : arrays of shape (m1, m1) and (m2, m2)
        The matrices.
    """

    def __init__(self, C: Array, D: Array, measures: Measures, alpha: float, features: Features | None) -> None:
        self.C, self.D, self.measures, self.alpha, self.features = C, D, measures, alpha, features
        self.unit = 1.0
        p, q = measures.p, measures.q
        self.moments = float(p @ (C**2 @ p)), float(q @ (D**2 @ q))
        self._symmetric = bool(np.array_equal(C, C.T) and np.array_equal(D, D.T))

    @classmethod
    def of(cls, C: Array, D: Array, measures: Measures, alpha: float, features: Features | None) -> Matrices:
        """Return matrices in units in which entries are at most about one."""
        side = power_of_two(max(float(np.abs(C).max()), float(np.abs(D).max())))
        scaled = None if features is None else features.scaled(side**2)
        found = cls(np.ascontiguousarray(C / side), np.ascontiguousarray(D / side), measures, alpha, scaled)
        found.unit = side**2
        return found

    def started(self, plan: sparse.csr_array) -> Place:
        return Place(plan, self._image(plan))

    def starts(self, count: int | None, noise: np.random.Generator, budget: Budget) -> list[Any]:
        p, q = self.measures.p, self.measures.q
        image = np.outer(self.C @ p, self.D @ q)
        if not self._symmetric:
            image = (image + np.outer(p @ self.C, q @ self.D)) / 2
        found = [Place(sparse.csr_array(np.outer(p, q)), image)]
        if count != 1:
            clouds = Clouds.of(_embedded(self.C, p), _embedded(self.D, q), self.measures, 1.0, None)
            for A in clouds.images(count, noise)[1:]:
                found.append(self.started(clouds.vertex(A, None, budget).plan))
        return found

    def descend(self, start: Place, most: int, budget: Budget) -> Found:
        here, solved = start, None
        vertex: Place | None = None  # the last one: the next one often differs in few columns
        value, features = self._value(start), 0.0 if self.features is None else self.features.all()
        for step in range(1, most + 1):
            costs = features - 4 * self.alpha * here.image
            warm = None if solved is None else [solved]
            solved = optima(self.measures.problem(DenseCost(costs)), warm_start=warm, budget=budget)[0]
            vertex = Place(solved.plan, self._image(solved.plan, vertex))
            share = self._share(here, vertex, _inner(costs, here.plan) - _inner(costs, vertex.plan))
            there = vertex if share == 1 else here.towards(vertex, share)
            reached, least = self._value(there), NEGLIGIBLE if share == 1 else _SLOW
            done = reached >= value - least * self.scale(there.plan)
            if reached < value:
                here, value = there, reached
            if done or budget.spent:
                return Found(value, here.plan, step, done)
        return Found(value, here.plan, most, False)

    def _share(self, here: Place, vertex: Place, promised: float) -> float:
        """Return how far the objective, ``-promised t + curvature t^2``, decreases on the line to a vertex."""
        crossed, square = _inner(here.image, vertex.plan), _inner(vertex.image, vertex.plan)
        curvature = -2 * self.alpha * (square - 2 * crossed + _inner(here.image, here.plan))
        return 1.0 if 2 * curvature <= max(promised, 0.0) else max(promised, 0.0) / (2 * curvature)

    def _value(self, place: Place) -> float:
        """Return the objective of a plan."""
        own = self.alpha * max(sum(self.moments) - 2 * _inner(place.image, place.plan), 0.0)
        return own if self.features is None else own + self.features.of(place.plan)

    def _image(self, plan: sparse.csr_array, known: Place | None = None) -> Array:
        """Return the image of a plan; from that of a similar one by what differs."""
        change = plan if known is None else sparse.csr_array(plan - known.plan)
        arcs = change.tocoo()
        rows, columns = (np.unique(x[arcs.data != 0]) for x in (arcs.row, arcs.col))
        if len(columns) <= len(rows):
            part = sparse.csr_array(change[:, columns])
            found = (part.T @ self.C.T).T @ self.D[:, columns].T
            if not self._symmetric:
                found = (found + (part.T @ self.C).T @ self.D[columns]) / 2
        else:
            part = sparse.csr_array(change[rows])
            found = self.C[:, rows] @ (part @ self.D.T)
            if not self._symmetric:
                found = (found + self.C[rows].T @ (part @ self.D)) / 2
        return found if known is None else known.image + found

    def eccentricities(self) -> tuple[Array, Array]:
        return np.sqrt(self.C**2 @ self.measures.p), np.sqrt(self.D**2 @ self.measures.q)

    def distances(self, side: int, rows: slice) -> Array:
        return (self.C, self.D)[side][rows].copy()

    def widest(self, side: int) -> tuple[float, float]:
        x = (self.C, self.D)[side]
        return float(x.min()), float(x.max())


def _inner(matrix: Array, plan: sparse.csr_array) -> float:
    """Return the sum of a matrix over a plan."""
    arcs = plan.tocoo()
    return float(arcs.data @ matrix[arcs.row, arcs.col])


def _embedded(C: Array, weight: Array) -> Array:
    """Return points in at most three dimensions with squared distances near a matrix: its principal coordinates."""
    from scipy.sparse.linalg import eigsh

    centred = -(C + C.T) / 4
    centred -= (centred @ weight)[:, None]
    centred -= weight @ centred
    roots, d = np.sqrt(weight), min(3, len(weight))
    weighted = roots[:, None] * centred * roots
    if len(weight) <= 20:
        variances, axes = np.linalg.eigh(weighted)
    else:
        variances, axes = eigsh(weighted, d, which="LA", v0=np.random.default_rng(0).normal(size=len(weight)))
    order = np.argsort(variances)[::-1][:d]
    return axes[:, order] * np.sqrt(np.maximum(variances[order], 0.0)) / roots[:, None]
