"""Sets of measures, on common points or each with its own, and exact solutions of pairs of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ...core import native, validation
from ...core.backend import backend
from ...core.warn import warn
from ...costs import Cost, PointCost, as_cost
from ...costs.points import NORMS
from ...costs.problems import Problem
from ...distributed import sources
from ...exact.certificate import PROVED, warning
from ...exact.method import in_threads
from ...exact.methods import optima
from ...exact.packed import MOST_PAIRS, Packed, PackedMatrices, PackedPoints, PackedSolutions, solve_packed, starts
from ...exact.solution import Solution
from ...io import progress
from ...io.budget import Budget
from .. import _costs

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_CHUNK_BYTES, _CHUNK_PAIRS = 64e6, 1000  # of the pairs that are solved together, whose plans are then forgotten
_CHUNK_SECONDS = 0.5  # of the pairs that are solved together where time is limited, if they are more than a few
_DENSE_ENTRIES = 2_000_000  # of rows that are dense at a time
_PAIR_BYTES = 40  # a point of a pair: weights, potentials, arcs
_NOT_OF_PAIRS = ("mahalanobis", "seuclidean")  # metrics that depend on all points


class AllPairs:
    """The pairs (i, j) of n and k measures, in the order of i and j, without a list of them.

    Parameters
    ----------
    n, k : int
        The numbers of measures.
    symmetric : bool
        Leave out the pairs with j < i.
    zero_diagonal : bool
        Leave out the pairs with j = i.

    Examples
    --------
    >>> pairs = AllPairs(3, 3, symmetric=True, zero_diagonal=True)
    >>> len(pairs), pairs[1:3]
    (3, (array([0, 1]), array([2, 2])))
    """

    def __init__(self, n: int, k: int, symmetric: bool, zero_diagonal: bool) -> None:
        self._symmetric, self._diagonal = symmetric, int(zero_diagonal)
        sizes = np.arange(n, 0, -1) if symmetric else np.full(n, k)
        self._starts = np.append(0, np.cumsum(sizes - self._diagonal))  # of the rows, among all pairs

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, which: slice) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        number = np.arange(*which.indices(len(self)))
        i = np.searchsorted(self._starts, number, side="right") - 1
        j = number - self._starts[i]
        if self._symmetric:
            return i, j + i + self._diagonal
        return i, j + (self._diagonal & (j >= i))


class _Given:
    """Pairs whose indices are given."""

    def __init__(self, i: ArrayLike, j: ArrayLike) -> None:
        self._i, self._j = np.asarray(i, np.intp), np.asarray(j, np.intp)

    def __len__(self) -> int:
        return len(self._i)

    def __getitem__(self, which: slice) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return self._i[which], self._j[which]


class Rows:
    """Measures on common points: rows of weights, which need not be normalised.

    Parameters
    ----------
    weights : array or CSR matrix of shape (n, m)
        Valid weights with mass.
    """

    def __init__(self, weights: Any) -> None:
        self.weights = weights

    def __len__(self) -> int:
        return int(self.weights.shape[0])

    def __getitem__(self, which: Any) -> Array:
        """Return some measures as dense rows."""
        found = self.weights[which]
        return np.asarray(found.toarray() if sparse.issparse(found) else found, np.float64)

    def blocks(self) -> Iterator[Array]:
        """Return all measures as dense rows, few at a time."""
        step = max(1, _DENSE_ENTRIES // self.weights.shape[1])
        return (self[start : start + step] for start in range(0, len(self), step))


class Clouds:
    """Measures with points of their own.

    Parameters
    ----------
    points : list of arrays of shape (m_k, d)
        The points.
    weights : list of arrays of shape (m_k,)
        Their weights, with mass.
    metric : str
        The cost between points.
    """

    def __init__(self, points: list[Array], weights: list[Array], metric: str) -> None:
        self.points, self.weights, self.metric = points, weights, metric

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, which: Any) -> Clouds:
        """Return some clouds."""
        some = np.arange(len(self))[which].tolist()
        return Clouds([self.points[k] for k in some], [self.weights[k] for k in some], self.metric)

    @cached_property
    def joined(self) -> tuple[Array, Array]:
        """Points and weights of all clouds, one behind the other."""
        return np.concatenate(self.points), np.concatenate(self.weights)

    @cached_property
    def places(self) -> tuple[Indices, Indices]:
        """Where the points of each cloud begin, and how many they are."""
        sizes = np.array([len(x) for x in self.points])
        return starts(sizes), sizes


Measures = Rows | Clouds


class Batches:
    """Measures in batches, each of which is read when its turn comes.

    Parameters
    ----------
    parts : sequence
        What the batches are read from.
    sizes : sequence of int
        How many measures they have.
    read : callable, optional
        Reads a batch from its part and its number; by default there is one part, which is the batch.
    n_empty : int
        How many measures have no mass.
    """

    def __init__(
        self,
        parts: Sequence[Any],
        sizes: Sequence[int],
        read: Callable[[Any, int], Any] | None = None,
        n_empty: int = 0,
    ) -> None:
        self._parts, self.sizes, self._read, self.n_empty = parts, sizes, read, n_empty

    @property
    def whole(self) -> bool:
        """Whether all measures are in memory."""
        return self._read is None

    @property
    def data(self) -> Any:
        """The measures, if they are in memory; else what they are read from."""
        return self._parts[0] if self._read is None else list(self._parts)

    def __len__(self) -> int:
        return sum(self.sizes)

    def __iter__(self) -> Iterator[Any]:
        return (part if self._read is None else self._read(part, k) for k, part in enumerate(self._parts))

    def reported(self, advance: progress.Advance) -> Iterator[tuple[Any, int, progress.Advance]]:
        """Yield the batches that are not empty, each with its size and the function that reports progress in it."""
        for batch, size in zip(self, self.sizes, strict=True):
            if size:
                yield batch, size, progress.part(advance, size / len(self))


def are_clouds(x: Any, cost: Any) -> bool:
    """Tell whether measures have points of their own: arrays of points or pairs of points and weights, and a metric."""
    if not (isinstance(cost, str) and _costs.is_metric(cost)):
        return False
    if isinstance(x, np.ndarray):
        return x.ndim == 3 if x.dtype != object else x.ndim == 1 and all(map(_is_cloud, x))
    return isinstance(x, list | tuple) and len(x) > 0 and all(map(_is_cloud, x))


def _is_cloud(x: Any) -> bool:
    """Tell whether something is an array of points, or a pair of points and weights."""
    if isinstance(x, tuple):
        return len(x) == 2 and np.ndim(x[0]) in (1, 2)
    try:
        return not sparse.issparse(x) and np.ndim(x) == 2
    except ValueError:  # ragged
        return False


def clouds(x: Any, name: str, metric: str) -> Clouds:
    """Return checked clouds.

    Parameters
    ----------
    x : sequence of arrays of shape (m_k, d), or of pairs of such an array and weights of shape (m_k,)
        The clouds; without weights all points have the same.
    name : str
        What the caller calls them.
    metric : str
        The cost between points.

    Returns
    -------
    Clouds
    """
    if validation.choice(metric, "cost", _costs.METRICS) in _NOT_OF_PAIRS:
        raise ValueError(f"cost: {metric!r} depends on all points; expected a metric of two points, for clouds")
    points, weights = [], []
    for k, one in enumerate(x):
        X, w = one if isinstance(one, tuple) else (one, None)
        points.append(validation.points(X, f"{name}[{k}]").astype(np.float64))
        m = len(points[-1])
        given = np.ones(m) if w is None else w
        weights.append(validation.weights(given, f"{name}[{k}] (weights)", m, count=1)[0])
        if points[-1].shape[1] != points[0].shape[1]:
            raise ValueError(
                f"{name}[{k}]: has points with {points[-1].shape[1]} coordinates; expected {points[0].shape[1]} as in "
                f"{name}[0]"
            )
    return Clouds(points, weights, _costs.ALIASES.get(metric, metric))


def batches(x: Any, name: str, size: int, shape: tuple[int, ...] = ()) -> Batches:
    """Return checked rows of weights in batches, one for each shard.

    Parameters
    ----------
    x : array, list or sparse matrix of shape (n, size) or (size,), stack of images, or list of matrices or files
        The measures, each with mass.
    name : str
        What the caller calls them.
    size : int
        The number of weights in a row.
    shape : tuple of int
        The sides of the grid, if there is one.

    Returns
    -------
    Batches
        Of Rows.
    """
    parts = _shards(x, name, shape)
    if parts is None:
        whole = _rows(x, name, size, shape)
        return Batches([whole], [len(whole)])

    def read(part: Any, k: int) -> Rows:
        return _shard(part, f"{name}[{k}]", size)

    found = Batches(parts, [len(read(part, k)) for k, part in enumerate(parts)], read)
    _check_any(len(found), name)
    return found


def rows(x: Any, name: str, size: int, shape: tuple[int, ...] = ()) -> Rows:
    """Return all rows of `batches`, whose arguments it has, in memory."""
    parts = _shards(x, name, shape)
    if parts is None:
        return _rows(x, name, size, shape)
    found = joined([_shard(part, f"{name}[{k}]", size).weights for k, part in enumerate(parts)])
    _check_any(len(found), name)
    return found


def _check_any(n: int, name: str) -> None:
    """Raise if there are no measures."""
    if n == 0:
        raise ValueError(f"{name}: is empty; expected measures")


def _shards(x: Any, name: str, shape: tuple[int, ...]) -> list[Any] | None:
    """Return the sources of shards, None if there are none; a list of images is not one of shards."""
    images = len(shape) > 1 and isinstance(x, list | tuple) and all(np.shape(one) == shape for one in x)
    return None if images else sources.split(x, name)


def with_mass(batch: Any) -> tuple[NDArray[np.intp], Rows]:
    """Return the valid rows of a batch that have mass, and their numbers."""
    full = np.flatnonzero(validation.masses(batch) > 0)
    return full, Rows(batch if len(full) == batch.shape[0] else batch[full])


def joined(parts: Sequence[Any]) -> Rows:
    """Return rows of several matrices as those of one, sparse if one of them is."""
    if len(parts) == 1:
        return Rows(parts[0])
    mixed = any(map(sparse.issparse, parts))
    return Rows(sparse.vstack(parts, format="csr") if mixed else np.concatenate(parts))


def _rows(x: Any, name: str, size: int, shape: tuple[int, ...]) -> Rows:
    """Return checked rows of weights of one matrix or stack of images, each with mass."""
    if sparse.issparse(x):
        _check_any(x.shape[0], name)
        return _shard(x, name, size)
    return Rows(validation.measures(x, name, size, shape=shape)[0])


def _shard(source: Any, name: str, size: int) -> Rows:
    """Return checked rows of weights of a shard, each with mass; there may be none."""
    matrix = sources.load(source)
    if matrix.ndim != 2 or matrix.shape[1] != size:  # first: what looks like a shard may be a cloud
        raise ValueError(f"{name}: expected {size} weights in each measure, got shape {matrix.shape}")
    found = validation.rows(matrix, name)
    validation.check_weights(found, name)
    return Rows(found)


def cost_of(cost: Any, x: Any, name: str, feature_vectors: Any) -> Cost:
    """Return the cost between the points of rows of some name; a cost given as such may be rectangular."""
    if cost is None or isinstance(cost, str) or callable(cost):
        parts = sources.split(x, name)
        first = x if parts is None else sources.load(parts[0])
        try:
            size = int(np.shape(first)[-1])
        except (ValueError, IndexError):
            raise ValueError(
                f"{name}: expected measures as rows of one length, or for the name of a metric a list of clouds: "
                "arrays of points of shape (m, d), or tuples of points and weights"
            ) from None
        return _costs.feature_cost(cost, size, feature_vectors, x)
    _costs.check(cost, feature_vectors)
    return as_cost(cost)


def chunks(
    first: Measures, second: Measures, count: int, n_jobs: int | None, start: int = 0, budget: Budget | None = None
) -> Iterator[slice]:
    """Yield slices of the pairs, each small enough to be solved together, until a budget is spent."""
    sizes = [
        x.weights.shape[1] if isinstance(x, Rows) else max(len(points) for points in x.points) for x in (first, second)
    ]
    budget, least = budget or Budget(), 4 * native.threads(n_jobs)
    most = max(least, min(_CHUNK_PAIRS, int(_CHUNK_BYTES / (_PAIR_BYTES * sum(sizes)))))
    at, step = start, most if math.isinf(budget.deadline) else least
    while at < count and not budget.spent:
        begun = time.monotonic()
        yield slice(at, min(at + step, count))
        at += step
        if 2 * (time.monotonic() - begun) < _CHUNK_SECONDS:
            step = min(2 * step, most)


def solutions(
    first: Measures,
    second: Measures,
    pairs: tuple[ArrayLike, ArrayLike] | AllPairs,
    cost: Cost | None,
    *,
    gap: float = 0.0,
    n_jobs: int | None = None,
    advance: progress.Advance = progress.silent,
    start: int = 0,
    gaps: list[float] | None = None,
    budget: Budget | None = None,
    plans: bool = True,
) -> Iterator[tuple[slice, Sequence[Solution]]]:
    """Solve pairs of measures exactly, in groups, so that only the plans of one group are in memory at a time.

    Parameters
    ----------
    first, second : Rows or Clouds
        The measures.
    pairs : pair of arrays of int of shape (n,), or AllPairs
        Their indices.
    cost : Cost or None
        The cost between the points of rows; None for clouds.
    gap : float
        The certified relative gap to stop at.
    n_jobs : int, optional
        Threads over the pairs.
    advance : Advance
        Reports progress, a share of the pairs.
    start : int
        The first pair that is solved.
    gaps : list of float, optional
        The relative gaps that stayed open, before and, appended, now.
    budget : Budget, optional
        Its time, after which no more solutions are yielded.
    plans : bool
        Whether plans and potentials are wanted, or only the `values` of the solutions.

    Yields
    ------
    which : slice
        The pairs.
    found : sequence of Solution
        Their solutions, of normalised measures.

    Warns
    -----
    ConvergenceWarning
        At the end, if the certified gap of a pair stays larger than asked for.
    """
    every = _Given(*pairs) if isinstance(pairs, tuple) else pairs
    gaps, budget = [] if gaps is None else gaps, budget or Budget()
    reasons: list[str] = []
    if start:
        advance(start / len(every), f"{start:,} of {len(every):,} pairs")
    for which in chunks(first, second, len(every), n_jobs, start, budget):
        (i, j), n = every[which], which.stop - which.start
        found: Sequence[Solution]
        if isinstance(first, Rows) and isinstance(second, Rows) and cost is not None:
            packed = None if plans else _between_rows(first, second, i, j, cost, budget, n_jobs)
            if packed is None:
                problem = Problem.checked(first[i], second[j], cost, np.ones(n))
                own = Budget(budget.seconds, threads=max(1, native.threads(n_jobs) // n))
                found = optima(problem, n_jobs=n_jobs, gap=gap, budget=own)
            else:
                found = packed
        else:
            found = between_clouds(first, second, i, j, gap=gap, budget=budget, n_jobs=n_jobs, plans=plans)
        looked_at = found.others if isinstance(found, _Answers) else dict(enumerate(found))
        done = min((k for k, one in looked_at.items() if one.status == "budget spent"), default=n)
        left = [one for k, one in looked_at.items() if k < done and one.status not in PROVED]
        gaps += [solution.gap for solution in left]
        reasons += [solution.reason for solution in left]
        if done:
            yield slice(which.start, which.start + done), found if done == n else found[:done]
        advance(done / len(every), f"{which.start + done:,} of {len(every):,} pairs")
    if gaps:
        from sklearn.exceptions import ConvergenceWarning  # loading scikit-learn takes a second

        warn(warning(gaps, reasons, len(every), "pairs"), ConvergenceWarning)


class _Answers(Sequence[Solution]):
    """Solutions of pairs of clouds: those that were packed, and the others.

    Attributes
    ----------
    value, lower, upper : arrays of shape (n,)
        The transport costs, and certified bounds.
    others : dict of int to Solution
        Those that were solved one by one.
    """

    def __init__(self, n: int, packed: PackedSolutions, which: NDArray[np.intp], others: dict[int, Solution]) -> None:
        self.value, self.lower, self.upper = np.empty((3, n))
        self.others, self._packed = others, packed
        self.value[which], self.lower[which], self.upper[which] = packed.value, packed.lower, packed.upper
        self._numbers = np.full(n, -1)
        self._numbers[which] = np.arange(len(which))
        for k, one in others.items():
            self.value[k], self.lower[k], self.upper[k] = one.value, one.lower, one.upper

    def __len__(self) -> int:
        return len(self.value)

    @overload
    def __getitem__(self, k: int) -> Solution: ...

    @overload
    def __getitem__(self, k: slice) -> list[Solution]: ...

    def __getitem__(self, k: int | slice) -> Solution | list[Solution]:
        if isinstance(k, slice):
            return [self[one] for one in range(*k.indices(len(self)))]
        return self.others[k] if k in self.others else self._packed[int(self._numbers[k])]


def values(found: Sequence[Solution]) -> Array:
    """Return the transport costs of solutions."""
    return numbers(found)[0]


def numbers(found: Sequence[Solution]) -> tuple[Array, Array, Array]:
    """Return the transport costs of solutions, and their lower and upper bounds."""
    if isinstance(found, _Answers):
        return found.value, found.lower, found.upper
    value, lower, upper = np.array([(one.value, one.lower, one.upper) for one in found]).reshape(-1, 3).T.copy()
    return value, lower, upper


def between_clouds(
    first: Any, second: Any, i: NDArray[np.intp], j: NDArray[np.intp], *, gap: float = 0.0,
    budget: Budget | None = None, n_jobs: int | None = None, plans: bool = True, near: NDArray[np.int32] | None = None,
) -> list[Solution] | _Answers:  # fmt: skip
    """Return solutions of pairs of clouds: small ones, and those on the line, in one call of a kernel.

    Parameters
    ----------
    first, second, i, j, gap, budget, n_jobs, plans
        As for `solutions`.
    near : array of int32, shape (2, arcs), optional
        Arcs from which all problems that are solved in one call start, as `packed.arcs_of` has them.
    """
    budget = budget or Budget()
    solve = _cloud_solver(first, second, i, j, gap, budget)
    if first.metric not in NORMS or not backend().has_simplex:
        return in_threads(solve, range(len(i)), n_jobs)
    (X, p), (Y, q) = first.joined, second.joined
    points = PackedPoints(X, Y, first.metric)
    (rows, m1), (columns, m2) = first.places, second.places
    small = (points.on_line | (m1[i] * m2[j] <= MOST_PAIRS)) & (not points.vanishing)
    which = np.flatnonzero(small)
    a, b = i[which], j[which]
    places = np.stack([rows[a], m1[a], columns[b], m2[b], np.zeros_like(a)], axis=1)
    if near is not None:
        near = np.ascontiguousarray(near[:, np.repeat(small, m1[i] + m2[j])])
    packed = Packed(p, q, places, points, True)
    found = solve_packed(packed, native.threads(n_jobs), Budget(budget.seconds), plans, near)
    open_ones = np.append(which[~found.proved], np.flatnonzero(~small)).tolist()
    others = dict(zip(open_ones, in_threads(solve, open_ones, n_jobs), strict=True))
    return _Answers(len(i), found, which, others)


def _cloud_solver(
    first: Any, second: Any, i: NDArray[np.intp], j: NDArray[np.intp], gap: float, budget: Budget
) -> Callable[[int], Solution]:
    """Return the function that solves one pair of clouds."""

    def solve(k: int) -> Solution:
        a, b = i[k], j[k]
        X, Y = first.points[a], second.points[b]
        cost = PointCost(X, None if X is Y else Y, first.metric)
        problem = Problem.checked(first.weights[a][None], second.weights[b][None], cost, np.ones(1))
        return optima(problem, gap=gap, budget=Budget(budget.seconds))[0]

    return solve


def packs(cost: Cost) -> bool:
    """Tell whether many pairs of rows with few points each are solved in one call of a kernel: by a stored matrix."""
    return cost.has_matrix and cost.dtype == np.float64 and cost.finite and backend().has_simplex


def _between_rows(
    first: Rows, second: Rows, i: NDArray[np.intp], j: NDArray[np.intp], cost: Cost, budget: Budget, n_jobs: int | None
) -> _Answers | None:
    """Return the costs of pairs of rows with few points each, in one call of a kernel; None where it does not apply."""
    if not packs(cost):
        return None
    C, used = cost.stored(), [np.unique(each, return_inverse=True) for each in (i, j)]
    sides = [_supports(x[which]) for x, (which, _) in zip((first, second), used, strict=True)]
    (points, p, rows, m1), (others, q, columns, m2) = sides
    a, b = (back for _, back in used)
    small = m1[a] * m2[b] <= MOST_PAIRS
    if small.mean() < 0.5:
        return None
    which = np.flatnonzero(small)
    firsts = [each[:, None] * C.shape[1] for each in points]
    entries = C.ravel()
    parts = [entries[firsts[s] + others[t]].ravel() for s, t in zip(a[which].tolist(), b[which].tolist(), strict=True)]
    sizes = m1[a[which]] * m2[b[which]]
    places = np.stack([rows[a[which]], m1[a[which]], columns[b[which]], m2[b[which]], starts(sizes)], axis=1)
    matrices = PackedMatrices(np.concatenate(parts))
    packed = Packed(p, q, places, matrices, True)
    found = solve_packed(packed, native.threads(n_jobs), Budget(budget.seconds), keep=False)
    rest = np.append(which[~found.proved], np.flatnonzero(~small))
    problem = Problem.checked(first[i[rest]], second[j[rest]], cost, np.ones(len(rest)))
    solved = optima(problem, n_jobs=n_jobs, budget=Budget(budget.seconds)) if len(rest) else []
    return _Answers(len(i), found, which, dict(zip(rest.tolist(), solved, strict=True)))


def _supports(rows: Array) -> tuple[list[NDArray[np.intp]], Array, Indices, Indices]:
    """Return the points with weight of each row, their weights one behind the other, and where these begin and end."""
    k, point = np.nonzero(rows)
    sizes = np.bincount(k, minlength=len(rows))
    return np.split(point, np.cumsum(sizes)[:-1]), np.ascontiguousarray(rows[k, point]), starts(sizes), sizes
