"""Transport maps for squared Euclidean costs: barycentric projections of exact plans, and debiased entropic maps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from ...core import native, validation
from ...core.warn import warn
from ...costs import Cost
from ...exact.method import in_threads
from ...exact.programme.linear_programme import ONE_THREAD
from ...io import progress
from ...io.budget import Budget
from . import sets as _sets

Array = NDArray[np.float64]

KINDS = ("exact", "debiased")
_EPSILON = 2.0  # of debiased maps, in units of the squared distance of neighbouring points
_TOLERANCE, _ITERATIONS = 1e-6, 2000  # of Sinkhorn's algorithm: the mass that is misplaced, and a budget
SAMPLE_TOLERANCE = 1e-4  # of maps between samples, whose error is that of the samples
_BYTES, _BLOCK_BYTES = 2e9, 2e6  # of all kernels that are stored at a time, and of rows of one that is not


def squared_points(cost: Cost) -> Array:
    """Return the points whose squared distances are the cost.

    Parameters
    ----------
    cost : Cost
        A cost between the same points on both sides.

    Returns
    -------
    array of shape (m, d)

    Raises
    ------
    ValueError
        If the cost is another one.
    """
    found = cost.positions()
    if found is not None and found.norm == found.power == 2 and (found.X is found.Y or cost.symmetric()):
        return found.X
    raise ValueError(
        f"cost: got {cost!r}; transport maps need squared Euclidean distances: a GridCost with power=2, a "
        "PointCost with metric='sqeuclidean', or 'sqeuclidean' with feature_vectors"
    )


def neighbour_distance(points: Array) -> float:
    """Return the mean squared distance of points to their nearest other point, positive."""
    distinct = np.unique(points, axis=0)
    if len(distinct) == 1:
        return 1.0
    apart, _ = cKDTree(distinct).query(distinct, k=2)
    return float((apart[:, 1] ** 2).mean())


class MapSolver:
    """Computes maps between measures.

    Parameters
    ----------
    kind : {"exact", "debiased"}
        The maps.
    epsilon : float or None
        The regularisation of debiased maps, by default twice the squared distance of neighbouring points.
    n_jobs : int, optional
        Threads over the pairs.
    """

    def __init__(self, kind: str, epsilon: float | None, n_jobs: int | None) -> None:
        self._debiased = validation.choice(kind, "maps", KINDS) == "debiased"
        self._epsilon = None if epsilon is None else validation.positive(epsilon, "epsilon")
        self._n_jobs = n_jobs

    def fields(
        self,
        sources: _sets.Measures,
        targets: _sets.Measures,
        pairs: tuple[NDArray[np.intp], NDArray[np.intp]],
        cost: Cost | None,
        advance: progress.Advance = progress.silent,
    ) -> Iterator[tuple[int, Array]]:
        """Yield the number of each pair and its displacement field at the points of the source that have weight.

        Parameters
        ----------
        sources, targets : Rows or Clouds
            The measures; those of a pair are either both rows or both clouds.
        pairs : pair of arrays of int of shape (n,)
            Their indices.
        cost : Cost or None
            The cost between the points of rows, squared Euclidean; None for clouds.
        advance : Advance
            Reports progress.

        Yields
        ------
        pair : int
            The number of a pair.
        field : array of shape (k, d)
            ``T(x) - x`` at the k points of the source that have weight.

        Warns
        -----
        ConvergenceWarning
            At the end, if Sinkhorn's algorithm did not converge within its iterations.
        """
        points = None if cost is None else squared_points(cost)
        misplaced: list[float] = []  # of the pairs whose iterations did not converge
        ends, order = (sources, targets), pairs
        if cost is None and not self._debiased:  # turned round, faster where targets have more points
            ends, order = ends[::-1], pairs[::-1]
        for which, found in _sets.solutions(*ends, order, cost, n_jobs=self._n_jobs, advance=advance):
            i, j = (x[which].tolist() for x in pairs)
            budget = Budget()  # which an interrupt stops
            with ONE_THREAD() if self._debiased else nullcontext():  # many small products: threads of them take longer
                own = {a: self._self_map(_cloud(sources, points, a)) for a in set(i)} if self._debiased else {}
                work = partial(self._field, sources, targets, points, i, j, found, own, budget)
                threads = _threads(sources, targets, i, j, self._n_jobs) if self._debiased else self._n_jobs
                fields = in_threads(work, range(len(found)), threads, budget)
            for k, (field, mass) in enumerate(fields):
                misplaced += [mass] if mass > _TOLERANCE else []
                yield which.start + k, field
        if misplaced:
            from sklearn.exceptions import ConvergenceWarning  # loading scikit-learn takes a second

            warn(
                f"maps: the iterations of {len(misplaced)} of {len(pairs[0])} debiased maps ended before they "
                f"converged, with at most {max(misplaced):.1e} of the mass misplaced; a larger epsilon is faster",
                ConvergenceWarning,
            )

    def _field(
        self, sources: Any, targets: Any, points: Any, i: Any, j: Any, found: Any, own: Any, budget: Budget, k: int
    ) -> tuple[Array, float]:
        """Return the displacement field of pair k of some that were solved, and the mass that its plans misplace."""
        source, target, solution = _cloud(sources, points, i[k]), _cloud(targets, points, j[k]), found[k]
        if not self._debiased:
            plan = solution.plan.T if points is None else solution.plan
            plan = plan[source.where][:, target.where]
            mass = np.asarray(plan.sum(axis=1)).ravel()
            return plan @ target.points / mass[:, None] - source.points, 0.0
        f, g = solution.f[source.where], solution.g[target.where]
        epsilon, start, before = own[i[k]]
        K = _Kernel(source.points, target.points, f, g, epsilon)
        end, misplaced = _sinkhorn(K, source.weights, target.weights, budget)
        return end - start, max(before, misplaced)

    def _self_map(self, cloud: _Cloud) -> tuple[float, Array, float]:
        """Return the regularisation, the entropic map of a measure to itself, and the mass that its plan misplaces."""
        epsilon = self._epsilon or _EPSILON * neighbour_distance(cloud.points)
        zero = np.zeros(len(cloud.points))
        K = _Kernel(cloud.points, cloud.points, zero, zero, epsilon)
        u, misplaced = _self_scaling(K, cloud.weights)
        return epsilon, K.projection(u), misplaced


class _Cloud(NamedTuple):
    """The points of a measure that have weight, their normalised weights, and where they are among all points."""

    points: Array
    weights: Array
    where: NDArray[np.intp]


def _cloud(measures: _sets.Measures, points: Array | None, k: int) -> _Cloud:
    """Return measure k of a set."""
    if isinstance(measures, _sets.Clouds):
        weights, points = measures.weights[k], measures.points[k]
    else:
        weights = measures[[k]][0]
    assert points is not None
    where = np.flatnonzero(weights)
    return _Cloud(points[where], weights[where] / weights.sum(), where)


def _threads(sources: Any, targets: Any, i: list[int], j: list[int], n_jobs: int | None) -> int:
    """Return how many pairs may be computed at a time, so that the kernels that are stored fit into memory."""
    m1, m2 = (
        {k: np.count_nonzero(x.weights[k] if isinstance(x, _sets.Clouds) else x[[k]]) for k in set(which)}
        for x, which in ((sources, i), (targets, j))
    )
    sizes = (8.0 * m1[a] * m2[b] for a, b in zip(i, j, strict=True))
    largest = max((size for size in sizes if size <= _BYTES), default=1.0)
    return min(native.threads(n_jobs), int(_BYTES / largest))


class _Kernel:
    """The matrix ``exp((f_i + g_j - |x_i - y_j|^2) / epsilon)``; too large to be stored, its rows are computed anew.

    Parameters
    ----------
    X, Y : arrays of shape (m1, d) and (m2, d)
        Points.
    f, g : arrays of shape (m1,) and (m2,)
        Potentials.
    epsilon : float
        The regularisation.
    """

    def __init__(self, X: Array, Y: Array, f: Array, g: Array, epsilon: float) -> None:
        self._X, self.Y, self._f, self._g, self._epsilon = X, Y, f, g, epsilon
        self._stored: Array | None = None
        if 8.0 * len(X) * len(Y) <= _BYTES:
            stored = np.empty((len(X), len(Y)))
            for rows, block in self.blocks():
                stored[rows] = block
            self._stored = stored

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of rows, and which rows they are."""
        if self._stored is not None:
            yield slice(None), self._stored
            return
        step = max(1, int(_BLOCK_BYTES / (8 * len(self.Y))))
        for start in range(0, len(self._X), step):
            rows = slice(start, start + step)
            slack = self._f[rows, None] + self._g - cdist(self._X[rows], self.Y, "sqeuclidean")
            yield rows, np.exp(slack / self._epsilon)

    def __matmul__(self, v: Array) -> Array:
        return np.concatenate([block @ v for _, block in self.blocks()])

    def projection(self, v: Array) -> Array:
        """Return the means of Y in each row of the matrix, its columns multiplied by v."""
        return self @ (v[:, None] * self.Y) / (self @ v)[:, None]


class EntropicMap:
    r"""The debiased entropic map of one cloud to another, which is defined at all points of the space.

    .. math:: x \mapsto x + T_\varepsilon^{p, q}(x) - T_\varepsilon^{p, p}(x), \qquad
              T_\varepsilon^{p, q}(x) = \frac{\sum_j q_j y_j e^{(g_j - |x - y_j|^2) / \varepsilon}}
              {\sum_j q_j e^{(g_j - |x - y_j|^2) / \varepsilon}}

    Parameters
    ----------
    X, Y : arrays of shape (m1, d) and (m2, d)
        The points, all of a cloud with the same weight.
    f, g : arrays of shape (m1,) and (m2,)
        Optimal potentials of the problem without regularisation, from which the iterations start.
    epsilon : float or None
        The regularisation, by default twice the squared distance of neighbouring points of X.
    """

    def __init__(self, X: Array, Y: Array, f: Array, g: Array, epsilon: float | None) -> None:
        self.epsilon = epsilon or _EPSILON * neighbour_distance(X)
        p, q = np.full(len(X), 1 / len(X)), np.full(len(Y), 1 / len(Y))
        with ONE_THREAD():
            u, self.misplaced = _self_scaling(_Kernel(X, X, 0 * p, 0 * p, self.epsilon), p, SAMPLE_TOLERANCE)
            start = end = X, self.epsilon * np.log(u)
            if Y is not X:
                K = _Kernel(X, Y, f, g, self.epsilon)
                v, misplaced = _scaling(K, p, q, Budget(), SAMPLE_TOLERANCE)
                end, self.misplaced = (Y, g + self.epsilon * np.log(v)), max(misplaced, self.misplaced)
        self._ends = end, start

    def __call__(self, points: Array) -> Array:
        """Return the images of points."""
        end, start = (self._projected(points, *one) for one in self._ends)
        return points + (end - start)

    def _projected(self, points: Array, Y: Array, g: Array) -> Array:
        """Return the entropic map to Y."""
        found = np.empty_like(points)
        step = max(1, int(_BLOCK_BYTES / (8 * len(Y))))
        for start in range(0, len(points), step):
            some = slice(start, start + step)
            slack = g - cdist(points[some], Y, "sqeuclidean")
            slack -= slack.max(axis=1, keepdims=True)
            share = np.exp(slack / self.epsilon)
            found[some] = share @ Y / share.sum(axis=1, keepdims=True)
        return found


def _sinkhorn(K: _Kernel, p: Array, q: Array, budget: Budget) -> tuple[Array, float]:
    """Return the barycentric projection of the entropic plan of p and q, and the mass that the plan misplaces."""
    v, misplaced = _scaling(K, p, q, budget)
    return K.projection(v), misplaced


def _scaling(K: _Kernel, p: Array, q: Array, budget: Budget, tolerance: float = _TOLERANCE) -> tuple[Array, float]:
    """Return the scaling v of the entropic plan ``diag(u) K diag(v)`` of p and q, and the mass that it misplaces.

    K has the potentials of the exact problem in it: its entries are at most one, and there is a one in every row and
    column, so that scaling neither overflows nor divides by zero, whatever the regularisation is.
    """
    v = np.ones(len(q))
    for _ in range(_ITERATIONS):
        Ku = np.zeros(len(q))
        for rows, block in K.blocks():
            Ku += p[rows] / (block @ v) @ block
        misplaced = float(np.abs(v * Ku - q).sum())
        if misplaced <= tolerance or budget.spent:
            break
        v = q / Ku
    return v, misplaced


def _self_scaling(K: _Kernel, p: Array, tolerance: float = _TOLERANCE) -> tuple[Array, float]:
    """Return the scaling u of the entropic plan ``diag(u) K diag(u)`` of p to itself, and the mass it misplaces."""
    u = np.ones(len(p))
    for _ in range(_ITERATIONS):
        Ku = K @ u
        misplaced = float(np.abs(u * Ku - p).sum())
        if misplaced <= tolerance:
            break
        u = np.sqrt(u * p / Ku)
    return u, misplaced
