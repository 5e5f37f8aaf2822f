"""Transport from a free measure to several fixed ones: barycenters and mixture coordinates, and their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.costs import Cost
from ..core.problems import Problem
from .exact import cross
from .solution import Solution

Array = NDArray[np.float64]

_ULP = float(np.finfo(np.float64).eps)
_ALL_ARCS = 100_000  # up to so many the linear programme has all arcs; for mixtures a fifth of it
_ASCENT = 4  # rounds that improve a lower bound


class Bound(NamedTuple):
    """A certified lower bound, potentials (U, L) of all measures that prove it, and the mean of the U."""

    value: float
    U: Array
    L: Array
    mean: Array


@dataclass
class Optimum:
    """Weights of a free measure, and what is proved about them.

    Attributes
    ----------
    w : array of shape (K,)
        The weights, with sum one.
    lower, upper : float
        A certified lower bound of the objective of all weights, and the exact objective of w, rounded up.
    rounds : int
        How often arcs were chosen.
    stage : str
        What was done last.
    ended : str
        Why the stages ended: "gap reached", "time", "memory" or "precision".
    """

    w: Array
    lower: float
    upper: float
    rounds: int = 0
    stage: str = ""
    ended: str = "precision"

    @property
    def gap(self) -> float:
        """The relative certified gap."""
        return relative_gap(self.lower, self.upper)


def relative_gap(lower: float, upper: float) -> float:
    """Return ``(upper - lower) / |upper|``, 0 where both agree.

    Examples
    --------
    >>> relative_gap(0.0, 0.0), relative_gap(3.0, 4.0)
    (0.0, 0.25)
    """
    if upper == lower:
        return 0.0
    return (upper - lower) / abs(upper) if 0 < abs(upper) < np.inf else np.inf


class FreeMeasure:
    r"""The problem of a free measure, and the bounds of its optimum.

    .. math:: \min_w \sum_i \lambda_i W(B^T w, x_i)

    over weights w with sum one.

    Parameters
    ----------
    targets : scipy.sparse.csr_array of shape (n, m)
        The measures, rows with sum one.
    weights : array of shape (n,)
        The lambda, positive with sum one.
    cost : Cost
        Between the points of the free measure and those of the targets, finite.
    components : array of shape (K, m), optional
        The rows of B, with sum one; by default the identity.
    n_jobs : int, optional
        Threads over the measures.
    solutions : list of Solution, optional
        Those of the targets with some measure, whose bases are a start.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from gibbsot import GridCost
    >>> ends = sparse.csr_array(np.eye(5)[[0, 4]])
    >>> problem = FreeMeasure(ends, np.array([0.5, 0.5]), GridCost(5, spacing=1.0))
    >>> round(float(problem.upper(np.eye(5)[2])[0]), 9), round(problem.bound(problem.start()).value, 9)
    (4.0, 4.0)
    """

    def __init__(
        self,
        targets: sparse.csr_array,
        weights: Array,
        cost: Cost,
        components: Array | None = None,
        n_jobs: int | None = None,
        solutions: list[Solution] | None = None,
    ) -> None:
        self.targets, self.weights, self.cost = targets, weights, cost.astype(np.float64)
        self.components, self.n_jobs, self.least = components, n_jobs, cost.least()
        self.solutions = solutions
        self.X = targets.toarray()
        self.supports = [np.flatnonzero(x) for x in self.X]

    def start(self) -> Array:
        """Return potentials of the targets that prove a bound: what each target costs at least."""
        return np.asarray(self.cost.col_max(np.zeros(self.X.shape), self.n_jobs), np.float64)

    def model(self, w: Array) -> Array:
        """Return the measure of weights."""
        return w if self.components is None else np.asarray(w @ self.components)

    def upper(self, w: Array, near: list[Solution] | None = None) -> tuple[float, list[Solution]]:
        """Return the exact objective of weights, rounded up, and the solutions; bases of other weights may help."""
        P = np.tile(self.model(w), (len(self.X), 1))
        found = cross(Problem(P, self.X, self.cost), n_jobs=self.n_jobs, warm_start=near)
        values = self.weights * [each.upper for each in found]
        return float(values.sum() + len(found) * _ULP * np.abs(values).sum()), found

    def bound(self, L: Array, rounds: int = _ASCENT) -> Bound:
        """Return the lower bound that potentials of the targets prove, improved by some rounds of c-transforms."""
        best = self._bound(L)
        for _ in range(rounds if self.components is None else 0):
            last = self._bound(np.asarray(self.cost.col_max(best.U - best.mean, self.n_jobs), np.float64))
            best = max(best, last, key=lambda each: each.value)
            if best is not last:
                break
        return best

    def _bound(self, L: Array) -> Bound:
        L = np.where(self.X > 0, L, np.inf)
        U = np.asarray(self.cost.row_min(L, self.n_jobs), np.float64)
        inner, size = np.zeros(len(L)), np.abs(U).max(axis=1)
        for i, j in enumerate(self.supports):
            inner[i], size[i] = self.X[i, j] @ L[i, j], size[i] + np.abs(L[i, j]).max()
        mean = self.weights @ U
        slack = (2 * self.cost.depth + 4 + len(L) + len(mean) ** 0.5) * _ULP * (self.weights @ size)
        lowest = (mean if self.components is None else self.components @ mean).min()
        return Bound(max(float(lowest - self.weights @ inner - slack), self.least), U, L, mean)

    @property
    def small(self) -> bool:
        """Whether the programme may have all arcs, so that it needs no potentials."""
        return self.cost.shape[0] * self.targets.nnz <= (_ALL_ARCS if self.components is None else _ALL_ARCS // 5)
