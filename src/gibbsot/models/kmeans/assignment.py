"""Exact assignments of measures to centroids, by certified bounds first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .centroids import Centroids
from .shard import Costs

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_TIES = 1e-9  # relative: values that differ by less count as ties until both are known
# What covers the rounding of roots, of differences and of costs that are powers: an exponent that is off by a unit of
# 2^-53 changes a power by as much, times a logarithm of at most 745.
_DOWN, _UP = 1 - 2.0**-40, 1 + 2.0**-40


@dataclass
class SolvedProblems:
    """How many exact problems something took.

    Attributes
    ----------
    pairs : int
        Pairs of a measure and a centroid that were to be decided.
    solved : int
        Pairs that were solved.
    for_bounds : int
        Problems between centroids, whose values bound those of pairs.
    for_centroids : int
        Pairs of a measure and its own centroid, for the updates of centroids.
    """

    pairs: int = 0
    solved: int = 0
    for_bounds: int = 0
    for_centroids: int = 0

    def __add__(self, other: SolvedProblems) -> SolvedProblems:
        return SolvedProblems(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def share(self) -> float:
        """The share of the pairs for which a problem was solved, those for bounds included."""
        return (self.solved + self.for_bounds) / max(1, self.pairs)


class Iteration(NamedTuple):
    """One entry of the history of `WassersteinKMeans`.

    Attributes
    ----------
    inertia : float
        The weighted sum of the exact costs of the measures to their centroids.
    changed : int
        How many labels have changed.
    solved : SolvedProblems
        How many problems were solved.
    seconds : float
        The time since the start of the fit.
    """

    inertia: float
    changed: int
    solved: SolvedProblems
    seconds: float


class Assignment:
    """What is known of the costs of measures to centroids, and the labels that follow.

    Parameters
    ----------
    centroids : Centroids
        Measures and centroids.
    count : int
        The number of centroids.

    Attributes
    ----------
    labels : array of int, shape (n,)
        The nearest centroid of each measure; the first of equally near ones.
    value, below, above : arrays of shape (n, k)
        Exact values, NaN where they are not known, and certified bounds.
    last : SolvedProblems
        What was solved since somebody replaced it.
    """

    def __init__(self, centroids: Centroids, count: int) -> None:
        self.centroids, n = centroids, len(centroids)
        self.value, self.below = np.full((n, count), np.nan), np.full((n, count), -np.inf)
        self.above = np.full((n, count), np.inf)
        self.labels = np.zeros(n, np.intp)
        self.last = SolvedProblems()

    def know(self, i: Indices, k: Indices, costs: Costs) -> None:
        """Take over exact costs of pairs."""
        self.value[i, k], self.below[i, k], self.above[i, k] = costs

    def moved(self, k: int, before: Any, own: bool = True) -> None:
        """Forget what a move of a centroid has made wrong: by the triangle inequality its distance bounds the change.

        Parameters
        ----------
        k : int
            The centroid.
        before : centroid
            What it was.
        own : bool
            Whether the triangle inequality is worth a problem.
        """
        old = self.below[:, k]
        self.value[:, k], self.above[:, k] = np.nan, np.inf
        cheap = self.centroids.bounds(k)
        if own and self.centroids.power and np.isfinite(old).any():
            r = self.centroids.power
            step = self.centroids.between(before, self.centroids.get(k)) ** (1 / r) * _UP
            self.last.for_bounds += 1
            root = np.maximum(old, 0) ** (1 / r) * _DOWN - step
            cheap = np.maximum(cheap, np.maximum(root, 0) ** r * _DOWN)
        self.below[:, k] = cheap

    def assign(self) -> Indices:
        """Solve pairs until the labels are those of all pairs solved; return the measures whose label has changed."""
        before, n = self.labels, len(self.labels)
        every = np.arange(n)
        self.last.pairs += self.value.size
        self._from_centroids()
        first = np.isnan(self.value).all(axis=1)
        if first.any():  # nothing is known of these
            self._solve(every[first], self.below[first].argmin(axis=1))
        while True:
            best = np.nanmin(self.value, axis=1)
            limit = best + _TIES * np.abs(best)
            left = np.where(np.isnan(self.value), self.below, np.inf)
            nearest = left.argmin(axis=1)
            open_ = left[every, nearest] <= limit
            if not open_.any():
                break
            self._solve(every[open_], nearest[open_])
        self.labels = np.nanargmin(self.value, axis=1)
        return np.flatnonzero(self.labels != before)

    def _from_centroids(self) -> None:
        """Improve bounds by the distances between centroids: what is near to one of them is far from the others.

        Only for pairs that are open, and if the problems between centroids are fewer.
        """
        r, count = self.centroids.power, self.value.shape[1]
        known = ~np.isnan(self.value)
        if not r or not known.any(axis=1).all():
            return
        best = np.where(known, self.value, np.inf)
        nearest, limit = best.argmin(axis=1), best.min(axis=1)
        undecided = ~known & (self.below <= limit[:, None] * (1 + _TIES))
        root = self.above[np.arange(len(limit)), nearest] ** (1 / r) * _UP
        for j in range(count):
            for k in range(count):
                rows = np.flatnonzero(undecided[:, k] & (nearest == j))
                if j == k or len(rows) < 3:
                    continue
                apart = self.centroids.apart(self.centroids.get(j), self.centroids.get(k)) ** (1 / r) * _DOWN
                self.last.for_bounds += 1
                bound = np.maximum(apart - root[rows], 0) ** r * _DOWN
                self.below[rows, k] = np.maximum(self.below[rows, k], bound)

    def _solve(self, i: Indices, k: Indices) -> None:
        self.know(i, k, self.centroids.solve(i, k))
        self.last.solved += len(i)
