r"""Gromov-Wasserstein: matching of measures in different spaces by the distances inside each of them.

.. math:: GW(p, q) = \min_Z \sum_{ijkl} (C_{ik} - D_{jl})^2 Z_{ij} Z_{kl}, \quad Z \ge 0, \; Z 1 = p, \; Z^T 1 = q

The problem is quadratic and not convex. From a start, Frank-Wolfe's method solves a *linear* transport problem in every
step, exactly, and goes on along the line to its plan as far as the objective decreases. It ends at a local optimum.

For clouds with squared distances, both centred, the objective is concave: the squared norm of ``A = X^T Z Y`` has a
minus sign. Every step is a full step, and the cost of the linear problem is ``-(4 |x|^2 |y|^2 + 16 x^T A y)`` up to
terms of x or y alone. With the singular value decomposition ``A = U S V^T`` this is twice the squared distance of the
points ``(|x|^2, 2 S^(1/2) U^T x)`` and ``(|y|^2, 2 S^(1/2) V^T y)``: clouds in the plane become exact problems in
space, and no matrix is made. The state is the small matrix A alone, which also is a start.
"""

from __future__ import annotations

import html
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from .core import native, validation
from .core.backend import backend
from .core.warn import warn
from .costs import Cost, DenseCost, PointCost, as_cost
from .costs.kdtree import MOST_DIMENSIONS, joined
from .costs.problems import Problem
from .exact.certificate import status
from .exact.method import in_threads
from .exact.methods import optima
from .exact.solution import Solution
from .io.budget import Budget, reported_budget

Array = NDArray[np.float64]

THIRD_POINTS = 2000  # of the larger side for which the third lower bound is computed

_EPS = float(np.finfo(np.float64).eps)
_LARGEST = {"points": 1e75, "matrix": 1e150}  # whose fourth and second powers are doubles
_NEGLIGIBLE = 1e-14  # of the scale of the objective: a smaller decrease is rounding
_SLOW = 1e-10  # of that scale: where steps are not full ones, a smaller decrease ends the search
_RANK = 1e-15  # of the largest singular value: smaller ones are rounding
_REFLECTED = 3  # leading principal axes that are reflected in all combinations
_ROTATIONS = 8  # starts that are added where principal variances coincide
_FLAT = 1e-12  # of the largest principal variance: smaller ones are rounding
_COINCIDE = 0.1  # relative difference of principal variances below which the axes say little
_COARSE = 1000  # points of the larger side above which coarser clouds are matched first
_SORTED = 250_000  # distances that are sorted for the second lower bound; more are counted in bins
_BINS, _BLOCK = 65536, 2_000_000
_QUANTILES = 2000  # equal parts of the mass in the third lower bound, where weights are not uniform


@dataclass(frozen=True, eq=False, repr=False)
class GromovResult:
    """The result of `gromov_wasserstein`.

    Attributes
    ----------
    value : float
        The objective of the plan. It is an upper bound of the least one.
    plan : scipy.sparse.csr_array of shape (m1, m2)
        A coupling: its marginals are p and q.
    values : array of float
        What was found from every start, in their order; ``value`` is the least.
    lower_bound : float
        No plan has a smaller objective. The first and the second lower bound of [1]_, or the third on request, rounded
        downwards. It often is far below the optimum.
    status : str
        "local optimum": no plan is better to first order, which is what the method can find; there may be better ones
        elsewhere. "optimal": the lower bound proves that there are none, up to 1e-10 of ``scale``. "budget spent":
        time or steps ended before that.
    scale : float
        The sum of the absolute terms of the objective, which rounding and "optimal" are relative to.
    steps : int
        The linear problems that were solved, from all starts.
    seconds : float
        The time.

    References
    ----------
    .. [1] F. Mémoli, "Gromov-Wasserstein distances and the metric approach to object matching", Foundations of
       Computational Mathematics 11, 2011.

    Examples
    --------
    >>> from gibbsot import gromov_wasserstein
    >>> result = gromov_wasserstein([[0, 0], [3, 0], [0, 1]], [[5, 5], [5, 8], [6, 5]])
    >>> result.status, result.plan.toarray().round(3)
    ('optimal', array([[0.333, 0.   , 0.   ],
           [0.   , 0.333, 0.   ],
           [0.   , 0.   , 0.333]]))
    """

    value: float
    plan: sparse.csr_array
    values: Array
    lower_bound: float
    status: str
    scale: float
    steps: int
    seconds: float

    def _rows(self) -> list[tuple[str, str]]:
        """Return what is shown of a result."""
        m1, m2 = self.plan.shape
        return [
            ("value", f"{self.value:.6g} ({self.status})"),
            ("lower bound", f"{self.lower_bound:.6g}"),
            ("size", f"{m1} x {m2} points"),
            ("starts", f"{len(self.values)}, values {self.values.min():.6g} to {self.values.max():.6g}"),
            ("time", f"{self.seconds:.3g} s"),
        ]

    def __repr__(self) -> str:
        return f"<GromovResult {', '.join(f'{name} {text}' for name, text in self._rows())}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in self._rows())
        return f"<table>{rows}</table>"


def gromov_wasserstein(
    X: ArrayLike,
    Y: ArrayLike,
    p: Any = None,
    q: Any = None,
    *,
    metric: str = "sqeuclidean",
    fused: float | None = None,
    cost: Cost | ArrayLike | None = None,
    start: Any = None,
    n_starts: int | None = None,
    third_bound: bool = False,
    max_steps: int = 1000,
    max_seconds: float | None = None,
    rng: int | np.random.Generator = 0,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> GromovResult:
    r"""Match two measures by the distances inside each of them: a local optimum of Gromov-Wasserstein.

    .. math:: \min_{Z \ge 0} \sum_{ijkl} (C_{ik} - D_{jl})^2 Z_{ij} Z_{kl}, \quad Z 1 = p, \; Z^T 1 = q

    C and D are the distances inside X and inside Y. The measures may lie in spaces of different dimensions, and the
    value does not change when one of them is rotated, reflected or moved. Every step solves a linear transport problem
    exactly. For clouds with squared distances no matrix is made.

    Parameters
    ----------
    X, Y : arrays of shape (m1, d1) and (m2, d2), or (m1, m1) and (m2, m2)
        The clouds; a vector stands for points on the line. With ``metric="precomputed"`` the matrices C and D, which
        need not be symmetric.
    p, q : arrays of m1 and m2 weights, optional
        The measures, each of sum one; uniform by default.
    metric : str
        The distances: squared Euclidean ones by default, "precomputed", or another metric of
        :func:`scipy.spatial.distance.cdist`, of which matrices are made.
    fused : float, optional
        The share alpha of this objective beside transport of features:
        ``(1 - alpha) <Z, M> + alpha GW(Z)``, from 0 to 1, with ``cost``.
    cost : Cost or array of shape (m1, m2), optional
        The cost M between features, all of it finite. A `PointCost` with squared distances needs no matrix.
    start : array or sparse matrix of shape (m1, m2), or list of them, optional
        Plans from which to start. By default the product of the measures, then the principal axes on each other with
        all reflections of the first three, and where principal variances coincide eight random rotations.
    n_starts : int, optional
        The number of starts, of those in this order; random rotations follow where there are fewer. 1 is the product
        of the measures, from which POT starts.
    third_bound : bool
        Whether to compute the third lower bound, too, which is larger and takes time: for at most 2,000 points.
    max_steps : int
        The most steps from a start.
    max_seconds : float, optional
        The time after which the search ends with the best plan so far and the status "budget spent".
    rng : int or numpy.random.Generator
        The seed of random rotations.
    n_jobs : int, optional
        Threads over the starts, as in scikit-learn: None for one, -1 for all cores. Results do not depend on it.
    verbose : bool
        Show progress. The first Ctrl-C then ends the search like ``max_seconds``, the second one interrupts it.

    Returns
    -------
    GromovResult

    Raises
    ------
    ValueError, TypeError
        If an argument is not valid.

    Warns
    -----
    ConvergenceWarning
        If time or steps ended before a local optimum was found.

    Examples
    --------
    A cloud and its copy, rotated and with another order of its points:

    >>> import numpy as np
    >>> from gibbsot import gromov_wasserstein
    >>> rng = np.random.default_rng(0)
    >>> X, order = rng.random((100, 2)) ** [1, 2], rng.permutation(100)
    >>> result = gromov_wasserstein(X, X[order] @ [[0.6, 0.8], [-0.8, 0.6]] + 5)
    >>> bool(result.value < 1e-12), result.status
    (True, 'optimal')
    >>> bool((order[result.plan.indices] == np.arange(100)).all())
    True

    With matrices and features:

    >>> C, D, M = rng.random((3, 20, 20))
    >>> gromov_wasserstein(C, D, metric="precomputed", fused=0.5, cost=M).status
    'local optimum'
    """
    begun = time.perf_counter()
    search = _search(X, Y, p, q, metric, fused, cost)
    plans = None if start is None else search.measures.given_plans(start)
    if n_starts is not None:
        validation.count(n_starts, "n_starts")
        if plans is not None:
            raise ValueError("n_starts: counts the starts that are made; expected it without start")
    validation.count(max_steps, "max_steps")
    validation.flag(verbose, "verbose")
    if validation.flag(third_bound, "third_bound") and max(search.measures.shape) > THIRD_POINTS:
        raise ValueError(f"third_bound: expected at most {THIRD_POINTS:,} points, got {max(search.measures.shape):,}")
    limits: dict[str, Any] = {}
    if max_seconds is not None:
        limits["max_seconds"] = validation.positive(max_seconds, "max_seconds")
    threads, noise = native.threads(n_jobs), _generator(rng)

    with reported_budget("Gromov-Wasserstein", verbose, True, **limits) as budget:
        starts = search.starts(n_starts, noise, budget) if plans is None else [search.started(one) for one in plans]

        def one(k: int) -> _Found | None:
            if k and budget.spent:
                return None
            found = search.descend(starts[k], max_steps, budget)
            budget.report("start %d of %d: value %.6g after %d steps", k + 1, len(starts), found.value, found.steps)
            return found

        tried = in_threads(one, range(len(starts)), None if threads == 1 else threads, budget)
        lower = search.lower_bound(third_bound, budget)
    return _result(search, [found for found in tried if found is not None], len(tried), lower, begun)


def _generator(rng: Any) -> np.random.Generator:
    """Return the generator of random rotations."""
    if isinstance(rng, np.random.Generator):
        return rng
    if not 0 <= validation.integer(rng, "rng") < 2**64:
        raise ValueError(f"rng: expected an integer from 0 to 2**64 - 1 or a numpy.random.Generator, got {rng!r}")
    return np.random.default_rng(int(rng))


def _result(search: _Search, found: list[_Found], wanted: int, lower: float, begun: float) -> GromovResult:
    """Return the best of what was found from the starts, in the units of the arguments."""
    best, unit = min(found, key=lambda one: one.value), search.unit
    lower = min(lower, best.value)  # which is rounded, too
    ended = len(found) < wanted or not all(one.done for one in found)
    state = status(lower, best.value, search.scale(best.plan), spent=ended)
    if state == "budget spent":
        from sklearn.exceptions import ConvergenceWarning  # loading scikit-learn takes a second

        text = "the search ended before a local optimum was found from every start; allow more max_seconds or max_steps"
        warn(text, ConvergenceWarning)
    return GromovResult(
        value=best.value * unit,
        plan=search.measures.whole(best.plan),
        values=np.array([one.value * unit for one in found]),
        lower_bound=lower * unit,
        status="local optimum" if state == "gap open" else state,
        scale=search.scale(best.plan) * unit,
        steps=sum(one.steps for one in found),
        seconds=time.perf_counter() - begun,
    )


# --- what is given ---------------------------------------------------------------------------------------------------


def _search(X: Any, Y: Any, p: Any, q: Any, metric: str, fused: float | None, cost: Cost | ArrayLike | None) -> _Search:
    """Return the problem that the arguments state, between the points that have weight."""
    if not isinstance(metric, str):
        raise TypeError(f"metric: expected the name of a metric, or 'precomputed' with matrices, got {metric!r}")
    kind = "matrix" if metric == "precomputed" else "points"
    first, second = (_checked(x, name, kind) for x, name in ((X, "X"), (Y, "Y")))
    measures = _Measures.of(p, q, (len(first), len(second)))
    alpha, features = _features(fused, cost, measures)
    rows, columns = measures.rows, measures.columns
    if metric == "sqeuclidean":
        return _Clouds.of(first[rows], second[columns], measures, alpha, features)
    if metric != "precomputed":
        first, second = (np.asarray(PointCost(x, metric=metric).matrix(), np.float64) for x in (first, second))
    return _Matrices.of(first[np.ix_(rows, rows)], second[np.ix_(columns, columns)], measures, alpha, features)


def _checked(x: Any, name: str, kind: str) -> Array:
    """Return finite points, or a square matrix, of a size whose powers are doubles."""
    if kind == "points":
        found = validation.points(x, name).astype(np.float64)
    else:
        found = validation.real(x, name).astype(np.float64)
        if found.ndim != 2 or found.shape[0] != found.shape[1] or not found.size:
            raise ValueError(f"{name}: expected a square matrix with metric='precomputed', got shape {found.shape}")
        if not np.isfinite(found).all():
            raise ValueError(f"{name}: has NaN or infinite entries; expected finite ones")
    if (largest := float(np.abs(found).max())) > _LARGEST[kind]:
        raise ValueError(f"{name}: the largest entry is {largest:.3g}; expected at most {_LARGEST[kind]:.0e}")
    return found


class _Measures(NamedTuple):
    """Weights of the points that have some, each of sum one, and which these are."""

    p: Array
    q: Array
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    shape: tuple[int, int]

    @classmethod
    def of(cls, p: Any, q: Any, shape: tuple[int, int]) -> _Measures:
        """Return checked weights."""
        parts = []
        for x, name, m in zip((p, q), "pq", shape, strict=True):
            if x is None:
                weights, mass = np.full((1, m), 1 / m), np.ones(1)
            else:
                weights, mass = validation.measures(x, name, m)
            if len(weights) != 1:
                raise ValueError(f"{name}: expected one measure, got {len(weights)}")
            if abs(mass[0] - 1) > validation.sum_tolerance(x, m):
                raise ValueError(f"{name}: expected weights of sum one, got {mass[0]:.9g}; divide them by their sum")
            support = np.flatnonzero(weights[0])
            parts.append((weights[0, support] / weights.sum(), support))
        return cls(parts[0][0], parts[1][0], parts[0][1], parts[1][1], shape)

    def problem(self, cost: Cost) -> Problem:
        """Return the linear problem with a cost."""
        return Problem.normalised(self.p[None], self.q[None], cost)

    def whole(self, plan: sparse.csr_array) -> sparse.csr_array:
        """Return a plan between all points."""
        arcs = plan.tocoo()
        return sparse.csr_array((arcs.data, (self.rows[arcs.row], self.columns[arcs.col])), shape=self.shape)

    def given_plans(self, start: Any) -> list[sparse.csr_array]:
        """Return checked plans between the points that have weight."""
        many = isinstance(start, list | tuple) and len(start) and (sparse.issparse(start[0]) or np.ndim(start[0]) == 2)
        many = many or (isinstance(start, np.ndarray) and start.ndim == 3)
        found = []
        for k, one in enumerate(start if many else [start]):
            name = f"start[{k}]" if many else "start"
            plan = validation.sparse_rows(one, name) if sparse.issparse(one) else validation.real(one, name)
            if plan.shape != self.shape:
                raise ValueError(f"{name}: expected a plan of shape {self.shape}, got {plan.shape}")
            plan = sparse.csr_array(plan, dtype=np.float64)
            if not (plan.data >= 0).all():
                raise ValueError(f"{name}: has negative entries or NaN; expected masses")
            plan = sparse.csr_array(plan[self.rows][:, self.columns])
            for axis, weight, side in ((1, self.p, "p"), (0, self.q, "q")):
                if (off := float(np.abs(plan.sum(axis=axis) - weight).sum())) > 1e-6:
                    raise ValueError(f"{name}: its marginal differs from {side} by {off:.3g}; expected a coupling")
            found.append(plan)
        return found


class _Features(NamedTuple):
    """Transport of features beside distances: its share of the objective, and the cost, by positions or a matrix."""

    share: float
    cost: Cost
    positions: tuple[Array, Array] | None
    matrix: Array | None

    def scaled(self, unit: float) -> _Features:
        """Return it in units of the objective; a power of four."""
        if self.positions is None:
            assert self.matrix is not None
            matrix = self.matrix / unit
            return _Features(self.share, DenseCost(matrix), None, matrix)
        X, Y = (x / math.sqrt(unit) for x in self.positions)
        return _Features(self.share, PointCost(X, Y), (X, Y), None)

    def all(self) -> Array:
        """Return the matrix of costs, times the share."""
        matrix = self.cost.matrix() if self.matrix is None else self.matrix
        return self.share * np.asarray(matrix, np.float64)

    def of(self, plan: sparse.csr_array) -> float:
        """Return the share times the cost of a plan."""
        arcs = plan.tocoo()
        return self.share * float(arcs.data @ self.cost.at(arcs.row, arcs.col))

    def size(self, plan: sparse.csr_array) -> float:
        """Return the sum of the absolute terms of this."""
        arcs = plan.tocoo()
        return self.share * float(arcs.data @ np.abs(self.cost.at(arcs.row, arcs.col)))


def _features(
    fused: float | None, cost: Cost | ArrayLike | None, measures: _Measures
) -> tuple[float, _Features | None]:
    """Return the share of the distances in the objective, and what the features add to it."""
    if fused is None:
        if cost is not None:
            raise ValueError("cost: is the cost between features; expected it together with fused")
        return 1.0, None
    if not 0 <= validation.number(fused, "fused") <= 1:
        raise ValueError(f"fused: expected a number from 0 to 1, got {fused!r}")
    if cost is None:
        raise ValueError("cost: expected a cost between features, which fused needs")
    between = as_cost(cost)
    if between.shape != measures.shape:
        raise ValueError(f"cost: expected shape {measures.shape} as X and Y have it, got {between.shape}")
    if not between.finite:
        raise ValueError("cost: has infinite entries; expected finite ones")
    if fused == 1:
        return 1.0, None
    where, share = between.positions(), 1 - float(fused)
    if where is not None and where.norm == where.power == 2:
        X, Y = where.X[measures.rows], where.Y[measures.columns]
        middle = X.mean(axis=0)
        return float(fused), _Features(share, between, (X - middle, Y - middle), None)
    matrix = np.asarray(between.matrix(measures.rows, measures.columns), np.float64)
    return float(fused), _Features(share, between, None, matrix)


# --- the search ------------------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """What was found from a start: done if it is a local optimum."""

    value: float
    plan: sparse.csr_array
    steps: int
    done: bool


class _Search:
    """A problem between points with weight, in units in which its numbers are about one.

    Attributes
    ----------
    measures : _Measures
        The weights.
    alpha : float
        The share of the distances in the objective.
    features : _Features or None
        What features add.
    unit : float
        The objective of the arguments is this times that of the search.
    moments : pair of float
        The means of the squared distances, which are squared Euclidean ones for clouds, inside X and Y.
    """

    measures: _Measures
    alpha: float
    features: _Features | None
    unit: float
    moments: tuple[float, float]

    def starts(self, count: int | None, noise: np.random.Generator, budget: Budget) -> list[Any]:
        """Return so many starts."""
        raise NotImplementedError

    def started(self, plan: sparse.csr_array) -> Any:
        """Return the start that a plan is."""
        raise NotImplementedError

    def descend(self, start: Any, most: int, budget: Budget) -> _Found:
        """Return what so many steps from a start find."""
        raise NotImplementedError

    def eccentricities(self) -> tuple[Array, Array]:
        """Return the root mean squares of the distances of every point, inside X and Y."""
        raise NotImplementedError

    def distances(self, side: int, rows: slice) -> Array:
        """Return some rows of the distances inside X or Y."""
        raise NotImplementedError

    def widest(self, side: int) -> tuple[float, float]:
        """Return bounds of all distances inside X or Y."""
        raise NotImplementedError

    def scale(self, plan: sparse.csr_array) -> float:
        """Return the sum of the absolute terms of the objective of a plan."""
        return self.alpha * sum(self.moments) + (0.0 if self.features is None else self.features.size(plan))

    def lower_bound(self, third: bool, budget: Budget) -> float:
        """Return a lower bound of the objective, rounded downwards."""
        weights = self.measures.p, self.measures.q
        found = self._rounded_down(_on_line(*self.eccentricities(), *weights))
        if not budget.spent:
            found = max(found, self._second())
        if third and not budget.spent:
            return max(self._with_features(found, budget), self._third(budget))
        return self._with_features(found, budget)

    def _with_features(self, own: float, budget: Budget) -> float:
        """Return a bound of the objective from one of the distances' part: features alone have an optimum, too."""
        if self.features is None:
            return own
        features = optima(self.measures.problem(self.features.cost), budget=budget)[0].lower
        return self.alpha * own + self.features.share * features

    def _rounded_down(self, square: float, apart: float = 0.0) -> float:
        """Return a lower bound of the square of a norm of a difference, whose terms are off by so much and rounding."""
        roots = sum(map(math.sqrt, self.moments))
        root = math.sqrt(square) - apart - 4 * max(self.measures.shape) * _EPS * roots
        return max(root, 0.0) ** 2 * (1 - 8 * _EPS)

    def _second(self) -> float:
        """Return the second lower bound: transport on the line between all distances inside X and inside Y."""
        p, q = self.measures.p, self.measures.q
        if max(len(p), len(q)) ** 2 <= _SORTED:
            x, y = (self.distances(side, slice(None)).ravel() for side in (0, 1))
            return self._rounded_down(_on_line(x, y, np.outer(p, p).ravel(), np.outer(q, q).ravel()))
        (x, a, apart), (y, b, other) = self._binned(0, p), self._binned(1, q)
        return self._rounded_down(_on_line(x, y, a, b), apart + other)

    def _binned(self, side: int, weight: Array) -> tuple[Array, Array, float]:
        """Return centres and masses of bins of all distances, and half the width of a bin."""
        low, high = self.widest(side)
        width = (high - low) / _BINS or 1.0
        mass, step = np.zeros(_BINS + 1), max(1, _BLOCK // len(weight))
        uniform = bool((weight == weight[0]).all())
        for begin in range(0, len(weight), step):
            rows = slice(begin, begin + step)
            block = self.distances(side, rows)
            block -= low
            block *= 1 / width
            number = block.astype(np.int32).ravel()
            shares = None if uniform else np.outer(weight[rows], weight).ravel()
            mass += np.bincount(number, shares, _BINS + 1) * (weight[0] ** 2 if uniform else 1.0)
        centres = np.linspace(low, high, _BINS + 1) + width / 2
        return centres, mass / float(mass.sum()), width / 2

    def _third(self, budget: Budget) -> float:
        """Return the third lower bound: transport whose costs are those of the distances from two points.

        Quantile functions are averaged over equal parts of the mass, which makes their distance no larger.
        """
        p, q = self.measures.p, self.measures.q
        uniform = len(p) == len(q) and bool((p == p[0]).all() and (q == q[0]).all())
        parts = len(p) if uniform else _QUANTILES
        first, second = (_quantiles(self.distances(k, slice(None)), w, parts) for k, w in ((0, p), (1, q)))
        squares = (first**2).mean(axis=1)[:, None] + (second**2).mean(axis=1) - 2 / parts * (first @ second.T)
        rounding = 8 * parts * _EPS * float(squares.max(initial=0.0) + sum(self.moments))
        costs = self.alpha * np.maximum(squares - rounding, 0.0)
        if self.features is not None:
            costs += self.features.all()
        return optima(self.measures.problem(DenseCost(costs)), budget=budget)[0].lower


def _on_line(x: Array, y: Array, p: Array, q: Array) -> float:
    """Return the transport cost between weighted points on the line with squared distances; weights have sum one."""
    if len(p) == len(q) and (p == p[0]).all() and (q == q[0]).all():
        return float(((np.sort(x) - np.sort(y)) ** 2).mean())
    first, second = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    ends = [np.cumsum(weight[order]) for weight, order in ((p, first), (q, second))]
    for end in ends:
        end /= end[-1]
    every = np.sort(np.concatenate(ends))
    i, j = (np.searchsorted(end, every) for end in ends)
    return float(np.diff(every, prepend=0.0) @ (x[first][i] - y[second][j]) ** 2)


def _quantiles(rows: Array, weight: Array, parts: int) -> Array:
    """Return the means of the quantile functions of rows over equal parts of the mass."""
    order = np.argsort(rows, axis=1, kind="stable")
    grid, found = np.linspace(0, 1, parts + 1), np.empty((len(rows), parts))
    for row, own, out in zip(rows, order, found, strict=True):
        mass = np.concatenate([[0.0], np.cumsum(weight[own])])
        integral = np.concatenate([[0.0], np.cumsum(weight[own] * row[own])])
        out[:] = np.diff(np.interp(grid, mass / mass[-1], integral)) * parts
    return found


# --- clouds ----------------------------------------------------------------------------------------------------------


class _Clouds(_Search):
    """Clouds with squared Euclidean distances. A start is a matrix in the place of X^T Z Y, and a plan if there is one.

    Attributes
    ----------
    X, Y : arrays of shape (m1, d1) and (m2, d2)
        The points; their weighted means are zero.
    """

    def __init__(self, X: Array, Y: Array, measures: _Measures, alpha: float, features: _Features | None) -> None:
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
    def of(cls, X: Array, Y: Array, measures: _Measures, alpha: float, features: _Features | None) -> _Clouds:
        """Return centred clouds in units in which coordinates are at most about one."""
        X, Y = (x - w @ x for x, w in ((X, measures.p), (Y, measures.q)))
        side = _power_of_two(max(float(np.abs(X).max()), float(np.abs(Y).max())))
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

    def descend(self, start: tuple[Array, sparse.csr_array | None], most: int, budget: Budget) -> _Found:
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
            better = plan is None or value < best - _NEGLIGIBLE * self.scale(last.plan)
            if better:
                before, A, plan, best = A, image, last.plan, value
                stretch = max(1.0, 2 * stretch) if large else 0.0
            if budget.spent:
                return _Found(best, plan, step, False)
            if not better and not stretch:  # a full step of plain Frank-Wolfe
                return _Found(best, plan, step, True)
            if not better:
                stretch = 0.0
        assert plan is not None
        return _Found(best, plan, most, False)

    def vertex(self, A: Array, last: Solution | None, budget: Budget) -> Solution:
        """Return an optimal plan of the linear problem at A."""
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
        return optima(self.measures.problem(cost), warm_start=None if last is None else [last], budget=budget)[0]

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

    def _coarser(self) -> _Clouds | None:
        """Return clouds of cells of neighbouring points, whose local optima are good starts, or None for small ones."""
        most = max(self.X.shape[1], self.Y.shape[1])
        if max(len(self.X), len(self.Y)) <= _COARSE or most > MOST_DIMENSIONS or self.features is not None:
            return None
        if not backend().has_kd_trees:
            return None
        smallest = _COARSE // 8
        X, p, _ = joined(self.X, self.measures.p, smallest)
        Y, q, _ = joined(self.Y, self.measures.q, smallest)
        measures = _Measures(p, q, np.arange(len(p)), np.arange(len(q)), (len(p), len(q)))
        return _Clouds(np.asarray(X, np.float64), np.asarray(Y, np.float64), measures, self.alpha, None)

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


def _power_of_two(x: float) -> float:
    """Return a power of two near x, so that units change no digits; 1 for zero."""
    return math.ldexp(1.0, math.frexp(x)[1]) if x else 1.0


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


# --- matrices --------------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """A plan Z, and its image ``(C Z D^T + C^T Z D) / 2``."""

    plan: sparse.csr_array
    image: Array

    def towards(self, other: _Place, share: float) -> _Place:
        """Return the place on the line to another one."""
        plan = sparse.csr_array((1 - share) * self.plan + share * other.plan)
        return _Place(plan, (1 - share) * self.image + share * other.image)


class _Matrices(_Search):
    """Two given matrices. A start is a plan with its image.

    Attributes
    ----------
    C, D : arrays of shape (m1, m1) and (m2, m2)
        The matrices.
    """

    def __init__(self, C: Array, D: Array, measures: _Measures, alpha: float, features: _Features | None) -> None:
        self.C, self.D, self.measures, self.alpha, self.features = C, D, measures, alpha, features
        self.unit = 1.0
        p, q = measures.p, measures.q
        self.moments = float(p @ (C**2 @ p)), float(q @ (D**2 @ q))
        self._symmetric = bool(np.array_equal(C, C.T) and np.array_equal(D, D.T))

    @classmethod
    def of(cls, C: Array, D: Array, measures: _Measures, alpha: float, features: _Features | None) -> _Matrices:
        """Return matrices in units in which entries are at most about one."""
        side = _power_of_two(max(float(np.abs(C).max()), float(np.abs(D).max())))
        scaled = None if features is None else features.scaled(side**2)
        found = cls(np.ascontiguousarray(C / side), np.ascontiguousarray(D / side), measures, alpha, scaled)
        found.unit = side**2
        return found

    def started(self, plan: sparse.csr_array) -> _Place:
        return _Place(plan, self._image(plan))

    def starts(self, count: int | None, noise: np.random.Generator, budget: Budget) -> list[Any]:
        p, q = self.measures.p, self.measures.q
        image = np.outer(self.C @ p, self.D @ q)
        if not self._symmetric:
            image = (image + np.outer(p @ self.C, q @ self.D)) / 2
        found = [_Place(sparse.csr_array(np.outer(p, q)), image)]
        if count != 1:
            clouds = _Clouds.of(_embedded(self.C, p), _embedded(self.D, q), self.measures, 1.0, None)
            for A in clouds.images(count, noise)[1:]:
                found.append(self.started(clouds.vertex(A, None, budget).plan))
        return found

    def descend(self, start: _Place, most: int, budget: Budget) -> _Found:
        here, solved = start, None
        vertex: _Place | None = None  # the last one: the next one often differs in few columns
        value, features = self._value(start), 0.0 if self.features is None else self.features.all()
        for step in range(1, most + 1):
            costs = features - 4 * self.alpha * here.image
            warm = None if solved is None else [solved]
            solved = optima(self.measures.problem(DenseCost(costs)), warm_start=warm, budget=budget)[0]
            vertex = _Place(solved.plan, self._image(solved.plan, vertex))
            share = self._share(here, vertex, _inner(costs, here.plan) - _inner(costs, vertex.plan))
            there = vertex if share == 1 else here.towards(vertex, share)
            reached, least = self._value(there), _NEGLIGIBLE if share == 1 else _SLOW
            done = reached >= value - least * self.scale(there.plan)
            if reached < value:
                here, value = there, reached
            if done or budget.spent:
                return _Found(value, here.plan, step, done)
        return _Found(value, here.plan, most, False)

    def _share(self, here: _Place, vertex: _Place, promised: float) -> float:
        """Return how far the objective, ``-promised t + curvature t^2``, decreases on the line to a vertex."""
        crossed, square = _inner(here.image, vertex.plan), _inner(vertex.image, vertex.plan)
        curvature = -2 * self.alpha * (square - 2 * crossed + _inner(here.image, here.plan))
        return 1.0 if 2 * curvature <= max(promised, 0.0) else max(promised, 0.0) / (2 * curvature)

    def _value(self, place: _Place) -> float:
        """Return the objective of a plan."""
        own = self.alpha * max(sum(self.moments) - 2 * _inner(place.image, place.plan), 0.0)
        return own if self.features is None else own + self.features.of(place.plan)

    def _image(self, plan: sparse.csr_array, known: _Place | None = None) -> Array:
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
