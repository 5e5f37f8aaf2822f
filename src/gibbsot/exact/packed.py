"""Many problems whose sizes and costs differ: packed into a few arrays, and solved in one call of a kernel.

The kernel is the simplex on all arcs (``native/packed.hpp``), or on the line the monotone plan (``native/line.hpp``).
What it proves is kept as arrays, with one entry for each problem; plans and potentials become objects when they are
asked for. Problems that it does not prove are for `methods.optima`, which looks closer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ..core.backend import backend
from ..costs import Cost, DenseCost, PointCost
from ..costs.kdtree import underflow
from ..io.budget import Budget
from .certificate import closed
from .line import LineSolution, line_accuracy
from .simplex import DenseSolutions
from .solution import Solution

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Pairs of points of the largest problem: `methods.choose` takes the simplex on all arcs for costs up to this size, and
# the matrix stays in a processor's cache.
MOST_PAIRS = 65_536
_NO_ARCS = np.empty((2, 0), np.int32)
_VALUE, _LOWER, _UPPER, _SCALE, _LOWER_OF_MASS, _UPPER_OF_MASS, _P, _Q, _ENTRIES, _STATE = range(10)


@dataclass(frozen=True, eq=False)
class PackedPoints:
    """Points of all problems, one behind the other, and the metric between them.

    Attributes
    ----------
    X, Y : arrays of float64, shape (M1, d) and (M2, d)
        The points: finite numbers.
    metric : {"sqeuclidean", "euclidean", "cityblock", "chebyshev"}
        The cost.
    """

    X: Array
    Y: Array
    metric: str

    @property
    def on_line(self) -> bool:
        """Whether these are points on the line."""
        return self.X.shape[1] == 1

    @property
    def power(self) -> float:
        """The power of the distance on the line."""
        return 2.0 if self.metric == "sqeuclidean" else 1.0

    @cached_property
    def accuracy(self) -> float:
        """The relative error of a cost."""
        return PointCost.searched(self.X[:1], self.Y[:1], self.metric).accuracy()

    @cached_property
    def vanishing(self) -> bool:
        """Whether squares of differences may be too small for doubles."""
        return self.metric in ("sqeuclidean", "euclidean") and underflow(self.X, self.Y, True) > 0

    def matrix(self, place: Indices) -> Array:
        """Return the costs of one problem."""
        rows, columns = slice(place[0], place[0] + place[1]), slice(place[2], place[2] + place[3])
        return cdist(self.X[rows], self.Y[columns], self.metric)

    def cost(self, place: Indices) -> Cost:
        """Return the cost of one problem."""
        rows, columns = slice(place[0], place[0] + place[1]), slice(place[2], place[2] + place[3])
        return PointCost(self.X[rows], self.Y[columns], self.metric)


@dataclass(frozen=True, eq=False)
class PackedMatrices:
    """Matrices of all problems, one behind the other, row by row.

    Attributes
    ----------
    entries : array of float64
        The costs.
    """

    entries: Array
    on_line = False
    accuracy = 0.0
    vanishing = False

    def matrix(self, place: Indices) -> Array:
        """Return the costs of one problem."""
        _, m1, _, m2, begin = place.tolist()
        return self.entries[begin : begin + m1 * m2].reshape(m1, m2)

    def cost(self, place: Indices) -> Cost:
        """Return the cost of one problem."""
        return DenseCost(self.matrix(place))


@dataclass(frozen=True, eq=False)
class Packed:
    """Problems with costs and sizes of their own.

    Attributes
    ----------
    p, q : arrays of shape (M1,) and (M2,)
        Weights of all problems, one behind the other; problems may share some.
    places : array of int64, shape (n, 5)
        Of each problem its first row, the number of its rows, its first column, the number of its columns, and the
        first entry of its matrix.
    costs : PackedPoints or PackedMatrices
        The costs.
    unit : bool
        Whether the mass of every problem is one by definition.
    """

    p: Array
    q: Array
    places: Indices
    costs: PackedPoints | PackedMatrices
    unit: bool = False

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, which: slice) -> Packed:
        return Packed(self.p, self.q, self.places[which], self.costs, self.unit)

    def weights(self, b: int) -> tuple[Array, Array]:
        """Return the weights of a problem."""
        row, m1, column, m2, _ = self.places[b].tolist()
        return self.p[row : row + m1], self.q[column : column + m2]


def starts(counts: Sequence[int] | Indices) -> Indices:
    """Return where parts of given sizes begin that lie one behind the other.

    Examples
    --------
    >>> starts([2, 3, 4])
    array([0, 2, 5])
    """
    ends = np.cumsum(counts, dtype=np.int64)
    return ends - np.asarray(counts, np.int64)


def places_of(rows: Indices, columns: Indices, entries: bool = False) -> Indices:
    """Return the places of problems that lie one behind the other, from their numbers of rows and columns."""
    begin = starts(rows * columns) if entries else np.zeros(len(rows), np.int64)
    return np.stack([starts(rows), rows, starts(columns), columns, begin], axis=1)


def arcs_of(arcs: NDArray[np.int32], problems: Indices, room: Indices) -> NDArray[np.int32]:
    """Return arcs as packed problems have them: one problem behind the other, each with room for some, and -1 behind.

    Parameters
    ----------
    arcs : array of int32, shape (2, k)
        Rows and columns, numbered in each problem; negative ones are left out.
    problems : array of int, shape (k,)
        To which problems they belong, in ascending order.
    room : array of int, shape (n,)
        How many arcs each problem has room for: its rows and columns.

    Examples
    --------
    >>> arcs_of(np.array([[0, -1, 1], [2, -1, 0]], np.int32), np.array([0, 0, 1]), np.array([2, 3]))
    array([[ 0, -1,  1, -1, -1],
           [ 2, -1,  0, -1, -1]], dtype=int32)
    """
    own = (arcs >= 0).all(axis=0)
    arcs, problems = arcs[:, own], problems[own]
    place = starts(room)[problems] + np.arange(len(problems)) - np.searchsorted(problems, problems)
    found = np.full((2, int(room.sum())), -1, np.int32)
    found[:, place] = arcs
    return found


class PackedSolutions(Sequence[Solution]):
    """What is known of packed problems.

    Attributes
    ----------
    packed : Packed
        The problems.
    value, lower, upper, scale : arrays of shape (n,)
        The cost of the plan, certified bounds and the sum of absolute terms, for measures of mass one.
    bounds : pair of arrays of shape (n,)
        Bounds for the masses given, rounded outwards.
    masses : pair of arrays of shape (n,)
        The sums of the weights; zero where weights are not valid.
    proved : array of bool, shape (n,)
        Which problems are solved, with a gap that is closed. Nothing else is known of the others.
    """

    def __init__(self, packed: Packed, numbers: Array, kept: Array, arcs: NDArray[np.int32]) -> None:
        self.packed, self._numbers, self._kept, self._arcs = packed, numbers, kept, arcs
        self.value, self.lower, self.upper, self.scale = numbers[:, :4].T
        self.bounds = numbers[:, _LOWER_OF_MASS], numbers[:, _UPPER_OF_MASS]
        self.masses = numbers[:, _P], numbers[:, _Q]
        mass = np.ones(len(numbers)) if packed.unit else self.masses[0]
        with np.errstate(invalid="ignore", over="ignore"):
            solved = (numbers[:, _STATE] == 0) & np.isfinite(self.bounds[0]) & np.isfinite(self.bounds[1])
            self.proved = solved & closed(self.lower, self.upper, self.scale, mass)

    def __len__(self) -> int:
        return len(self.packed)

    @overload
    def __getitem__(self, b: int) -> Solution: ...

    @overload
    def __getitem__(self, b: slice) -> list[Solution]: ...

    def __getitem__(self, b: int | slice) -> Solution | list[Solution]:
        """Return solutions; their plans and potentials are made when they are first used."""
        if isinstance(b, slice):
            return [self[k] for k in range(*b.indices(len(self)))]
        if not -len(self) <= b < len(self):
            raise IndexError(f"problem {b} of a batch of {len(self)}")
        b %= len(self)
        packed, place = self.packed, self.packed.places[b]
        value, lower, upper, scale = self._numbers[b, :4].tolist()
        p, q = packed.weights(b)
        if isinstance(packed.costs, PackedPoints) and packed.costs.on_line:
            row, m1, column, m2, _ = place.tolist()
            x, y = packed.costs.X[row : row + m1, 0], packed.costs.Y[column : column + m2, 0]
            return LineSolution(x, y, (p, q), packed.costs.power, (value, lower, upper))
        begin = int(self._begin[b])
        own = slice(begin, begin + int(place[1] + place[3]))
        info = [value, lower, upper, scale, float(self._numbers[b, _ENTRIES]), 0.0, 1.0, 0.0]
        numbers = np.concatenate([info, self._kept[0, own], self._kept[1, own]])
        problem = packed.costs.matrix(place), p[None], q[None]
        return DenseSolutions(
            ["optimal"], [info], problem, numbers, self._arcs[:, None, own], 1, packed.costs.accuracy
        )[0]

    @cached_property
    def _begin(self) -> Indices:
        """Where what is kept of each problem begins."""
        return starts(self.packed.places[:, 1] + self.packed.places[:, 3])


def solve_packed(
    packed: Packed,
    threads: int = 1,
    budget: Budget | None = None,
    keep: bool = True,
    near: NDArray[np.int32] | None = None,
) -> PackedSolutions:
    """Solve packed problems exactly, with compiled kernels.

    Parameters
    ----------
    packed : Packed
        The problems; on the line of any size, elsewhere of at most `MOST_PAIRS` pairs of points each.
    threads : int
        Threads over the problems.
    budget : Budget, optional
        Its time, after which problems stop that are not solved.
    keep : bool
        Whether solutions have plans and potentials, and not only values and bounds.
    near : array of int32, shape (2, arcs), optional
        Rows and columns of arcs from which problems between points in more than one dimension start: see `arcs_of`.

    Returns
    -------
    PackedSolutions

    Examples
    --------
    >>> import numpy as np
    >>> matrices = PackedMatrices(np.array([0.0, 1.0, 2.0, 0.0, 7.0]))  # of 2 x 2 points, and of one pair
    >>> places = places_of(np.array([2, 1]), np.array([2, 1]), entries=True)
    >>> found = solve_packed(Packed(np.array([1.0, 3.0, 1.0]), np.array([2.0, 2.0, 1.0]), places, matrices))
    >>> found.value.tolist(), found.proved.tolist(), found[0].plan.toarray().tolist()
    ([0.5, 7.0], [True, True], [[0.25, 0.0], [0.25, 0.5]])
    """
    budget, costs, n = budget or Budget(), packed.costs, len(packed)
    numbers, on_line = np.empty((n, 10)), costs.on_line
    size = int(packed.places[:, [1, 3]].sum()) if keep and not on_line else 0
    kept, arcs = np.empty((2, size)), np.empty((2, size), np.int32)
    common = {"unit": packed.unit, "n_threads": threads, "seconds": budget.seconds, "stop": budget.flag}
    if on_line:
        assert isinstance(costs, PackedPoints)
        places = np.ascontiguousarray(packed.places[:, [0, 1, 2, 3, 0, 2]])
        measures = {"p": packed.p, "q": packed.q, "places": places}
        law = {"power": costs.power, "accuracy": line_accuracy(costs.power)}
        backend().solve_lines(costs.X[:, 0], costs.Y[:, 0], **measures, **law, **common, numbers=numbers)
    else:
        places = np.ascontiguousarray(packed.places)
        given = {"p": packed.p, "q": packed.q, "places": places, "numbers": numbers, "kept": kept, "arcs": arcs}
        if isinstance(costs, PackedPoints):
            given |= {"near": _NO_ARCS if near is None else near, "sent": np.empty((0, costs.X.shape[1]))}
            backend().solve_points(costs.X, costs.Y, costs.metric, accuracy=costs.accuracy, **given, **common)
        else:
            backend().solve_matrices(costs.entries, **given, **common)
    return PackedSolutions(packed, numbers, kept, arcs)


class SentPlans(NamedTuple):
    """Optimal plans from the same points to several clouds, for squared distances.

    Attributes
    ----------
    value : array of shape (n,)
        The costs of the plans, without the squares of all points.
    f : array of shape (n, K)
        Potentials of the points, without their squares; those without weight included.
    sent : array of shape (n, K, d)
        The masses that leave each point times the points of the cloud that they reach, summed.
    arcs : array of int32, shape (2, arcs)
        The arcs of the bases, as `arcs_of` has them.
    solved : array of bool, shape (n,)
        Which problems were solved; nothing is known of the others.
    """

    value: Array
    f: Array
    sent: Array
    arcs: NDArray[np.int32]
    solved: NDArray[np.bool_]


def send_packed(
    one: tuple[Array, Array],
    clouds: tuple[Array, Array],
    places: tuple[Indices, Indices],
    near: NDArray[np.int32] | None = None,
    threads: int = 1,
) -> SentPlans:
    """Return optimal plans from weighted points to clouds by squared distances, with compiled kernels.

    Parameters
    ----------
    one, clouds : pairs of arrays of shape (K, d) and (K,), or (M, d) and (M,)
        Points and weights; those of clouds, which are positive, one cloud behind the other.
    places : pair of arrays of int64, shape (n,)
        Where the points of each cloud begin, and how many they are.
    near : array of int32, shape (2, arcs), optional
        The arcs of earlier plans.
    threads : int
        Threads over the clouds.

    Examples
    --------
    >>> X, Y = np.array([[0.0], [4.0]]), np.array([[1.0], [3.0], [4.0]])
    >>> found = send_packed((X, np.ones(2)), (Y, np.ones(3)), (np.array([0]), np.array([3])))
    >>> found.sent.round(9).tolist(), found.value.round(9).tolist()
    ([[[0.833333333], [1.833333333]]], [-14.666666667])
    """
    (X, p), (Y, q), (columns, sizes), n = one, clouds, places, len(places[0])
    m, d = X.shape
    where = np.stack([np.zeros(n, np.int64), np.full(n, m), columns, sizes, np.zeros(n, np.int64)], axis=1)
    numbers, size, budget = np.empty((n, 10)), int(sizes.sum()) + n * m, Budget()
    kept, arcs, sent = np.empty((2, size)), np.empty((2, size), np.int32), np.empty((n * m, d))
    backend().solve_points(
        X, Y, "inner", p=p, q=q, places=where, accuracy=0.0, unit=True, near=_NO_ARCS if near is None else near,
        n_threads=threads, seconds=budget.seconds, stop=budget.flag, numbers=numbers, kept=kept, arcs=arcs, sent=sent,
    )  # fmt: skip
    f = kept[0, starts(sizes + m)[:, None] + np.arange(m)]
    return SentPlans(numbers[:, _VALUE], f, sent.reshape(n, m, d), arcs, numbers[:, _STATE] == 0)
