"""Many problems with costs of their own: what can be packed is solved in one call, and its numbers stay in arrays.

`pack` sorts the problems of `solve_batch` into groups that a kernel takes at once (`exact.packed`). It checks what is
cheap to check for all at once, and leaves everything unusual to the way for one problem, whose errors have names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.backend import backend
from ..costs import Cost, DenseCost, PointCost
from ..costs.points import NORMS
from ..costs.problems import Problem
from ..exact.packed import MOST_PAIRS, Packed, PackedMatrices, PackedPoints, PackedSolutions, places_of
from .result import NumberedParts, Part

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_DOUBLE = np.dtype(np.float64)
_TOLERANCE = 1e-6  # of sums: where they differ by more, the way for one problem says so


def is_pair(x: Any) -> bool:
    """Tell whether this is ``(X, Y)`` or ``(X, Y, metric)``: two clouds of points.

    Examples
    --------
    >>> is_pair(([0.0, 1.0], [2.0])), is_pair(([0.0], [2.0], "euclidean")), is_pair((0.0, 1.0)), is_pair([[0.0], [2.0]])
    (True, True, False, False)
    """
    if not isinstance(x, tuple) or not (len(x) == 2 or (len(x) == 3 and isinstance(x[2], str))):
        return False
    return _is_cloud(x[0]) and _is_cloud(x[1])


def _is_cloud(x: Any) -> bool:
    """Tell whether this may be an array of points, and not a number."""
    return isinstance(x, np.ndarray | list) or (hasattr(x, "shape") and len(x.shape) > 0)


def own_cost(one: Any, b: int) -> Cost:
    """Return the cost of problem b: a cost, a matrix, or two clouds; an error names its place in the list."""
    if isinstance(one, Cost):
        return one
    try:
        return PointCost(*one) if is_pair(one) else DenseCost(one)
    except (TypeError, ValueError) as error:
        raise type(error)(f"cost[{b}]: {str(error).removeprefix('M: ')}") from None


class Group(NamedTuple):
    """Packed problems and their numbers in the list."""

    packed: Packed
    which: Indices


class _Costs(NamedTuple):
    """Costs of one kind: their numbers in the list, and two clouds or a matrix of each."""

    which: list[int]
    first: list[Array]
    second: list[Array]


def pack(P: Sequence[Any] | None, Q: Sequence[Any] | None, costs: Sequence[Any], unit: bool) -> list[Group]:
    """Return the problems that kernels take at once, in groups.

    Parameters
    ----------
    P, Q : sequences of measures, or None
        One for each cost; None for uniform weights.
    costs : sequence
        Costs, matrices, and pairs of clouds.
    unit : bool
        Whether measures are to be normalised.

    Returns
    -------
    list of Group
        Problems that are in none are for the way for one problem.
    """
    if not backend().has_simplex:
        return []
    kinds: dict[tuple[str, int], _Costs] = {}
    for b, one in enumerate(costs):
        found = _operands(one)
        if found is not None:
            kind, first, second = found
            group = kinds.get(kind)
            if group is None:
                group = kinds[kind] = _Costs([], [], [])
            group.which.append(b)
            group.first.append(first)
            group.second.append(second)
    groups = (_group(metric, made, P, Q, unit) for (metric, _), made in kinds.items())
    return [group for group in groups if group is not None]


def _operands(one: Any) -> tuple[tuple[str, int], Array, Array] | None:
    """Return the kind of a cost that kernels take, and two clouds, or a matrix twice; None for others."""
    X: Any
    Y: Any
    if isinstance(one, tuple):
        X, Y, metric = one[0], one[1], one[2] if len(one) == 3 else "sqeuclidean"
        # identity: this runs for every problem of a list, and an unusual array is for the way for one problem
        if type(X) is not np.ndarray or type(Y) is not np.ndarray or X.dtype is not _DOUBLE or Y.dtype is not _DOUBLE:
            return None
        if X.ndim == Y.ndim == 1:
            X, Y = X[:, None], Y[:, None]
        if X.ndim != 2 or Y.ndim != 2:
            return None
    elif isinstance(one, PointCost):
        X, Y, metric = one.X, one.Y, one.metric
    else:
        C: Any = one.stored() if isinstance(one, DenseCost) else one
        if not isinstance(C, np.ndarray) or C.dtype is not _DOUBLE or C.ndim != 2 or not 0 < C.size <= MOST_PAIRS:
            return None
        return ("", 0), C, C
    (m1, d), (m2, same) = X.shape, Y.shape
    if metric not in NORMS or d != same or not m1 * m2 * d or (d > 1 and m1 * m2 > MOST_PAIRS):
        return None
    return (metric, d), X, Y


def _group(metric: str, made: _Costs, P: Any, Q: Any, unit: bool) -> Group | None:
    """Return packed problems of one kind, or None where something is unusual."""
    costs: PackedPoints | PackedMatrices
    if metric:
        rows, columns = (np.array(list(map(len, side))) for side in (made.first, made.second))
        X, Y = np.concatenate(made.first), np.concatenate(made.second)
        costs = PackedPoints(X, Y, metric)
        finite = all(low > -np.inf and high < np.inf for low, high in map(backend().extremes, (X, Y)))
        if not finite or costs.vanishing:
            return None
    else:
        rows, columns = np.array([C.shape for C in made.first]).T
        costs = PackedMatrices(np.concatenate([C.ravel() for C in made.first]))
    places = places_of(rows, columns, entries=not metric)
    which = np.array(made.which)
    if P is None and Q is None:
        return Group(Packed(np.repeat(1 / rows, rows), np.repeat(1 / columns, columns), places, costs, True), which)
    p, q = _weights(P, rows, made.which), _weights(Q, columns, made.which)
    if p is None and P is None and q is not None:
        p = _uniform(q, columns, rows)
    elif q is None and Q is None and p is not None:
        q = _uniform(p, rows, columns)
    return None if p is None or q is None else Group(Packed(p, q, places, costs, unit), which)


def _weights(measures: Any, counts: Indices, which: list[int]) -> Array | None:
    """Return the weights of some measures one behind the other; None where there are none, or some are unusual."""
    if measures is None:
        return None
    if isinstance(measures, np.ndarray) and measures.ndim == 2 and measures.dtype == _DOUBLE:
        rows = measures if len(which) == len(measures) else measures[which]
        return np.ascontiguousarray(rows).ravel() if (counts == measures.shape[1]).all() else None
    found = [measures[b] for b in which]
    usual = all(type(x) is np.ndarray and x.dtype == _DOUBLE and x.ndim == 1 for x in found)
    return np.concatenate(found) if usual and list(map(len, found)) == counts.tolist() else None


def _uniform(weights: Array, counts: Indices, others: Indices) -> Array:
    """Return uniform weights of the masses of the other measures."""
    ends = np.cumsum(counts).tolist()
    parts = zip(ends, counts.tolist(), strict=True)
    masses = np.concatenate([backend().sum_rows(weights[None, end - n : end])[0] for end, n in parts])
    return np.repeat(masses / others, others)


@dataclass(eq=False)
class Table:
    """What is known of all problems of a list: solutions of groups, and parts of the others.

    Attributes
    ----------
    value, lower, upper, scale : arrays of shape (n,)
        The numbers for the masses given.
    place : array of int, shape (n, 2)
        The group of each problem, -1 for one that has a part, and its number in the group.
    groups : list of PackedSolutions
        What kernels proved.
    parts : dict of int to Part
        Parts that are made, by the number of the problem.
    costs : sequence
        What the caller gave.
    """

    costs: Sequence[Any]
    asked: float
    groups: list[PackedSolutions] = field(default_factory=list)
    parts: dict[int, Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.costs)
        self.value, self.lower, self.upper, self.scale = np.full((4, n), np.nan)
        self.place = np.full((n, 2), -1)

    def add(self, found: PackedSolutions, which: Indices) -> None:
        """Add what a kernel proved of some problems."""
        first, second = found.masses
        mass = np.ones(len(found)) if found.packed.unit else first
        agree = found.packed.unit | (np.abs(first - second) <= _TOLERANCE * first)
        kept = np.flatnonzero(found.proved & agree)
        own = which[kept]
        self.value[own], self.scale[own] = (mass * found.value)[kept], (mass * found.scale)[kept]
        self.lower[own], self.upper[own] = (bound[kept] for bound in found.bounds)
        self.place[own, 0], self.place[own, 1] = len(self.groups), kept
        self.groups.append(found)

    @property
    def rest(self) -> list[int]:
        """The problems of which nothing is known yet."""
        return [b for b in np.flatnonzero(self.place[:, 0] < 0).tolist() if b not in self.parts]

    def set(self, b: int, part: Part) -> None:
        """Set the part of a problem that was solved alone."""
        self.parts[b] = part
        self.value[b], self.scale[b] = part.value[0], part.scale[0]
        self.lower[b], self.upper[b] = part.lower_bound[0], part.upper_bound[0]

    def part(self, b: int) -> Part:
        """Return the part of a problem, which is made when it is first asked for."""
        if b not in self.parts:
            group, k = self.place[b].tolist()
            found = self.groups[group]
            p, q = found.packed.weights(k)
            given, unit = self.costs[b], found.packed.unit
            cost = given if isinstance(given, Cost) else found.packed.costs.cost(found.packed.places[k])
            mass = np.ones(1) if unit else found.masses[0][k : k + 1]
            self.parts[b] = Part(Problem.checked(p[None], q[None], cost, mass, unit), [found[k]], asked=self.asked)
        return self.parts[b]


class RaggedParts(NumberedParts):
    """Parts of problems with costs of their own, of which the numbers are known and the rest is made when asked for.

    Parameters
    ----------
    table : Table
        What is known of all problems.
    which : array of int, optional
        The numbers of the problems; by default all.
    """

    def __init__(self, table: Table, which: Indices | None = None) -> None:
        self._table, self._which = table, np.arange(len(table.costs)) if which is None else which

    def __len__(self) -> int:
        return len(self._which)

    def __getitem__(self, b: Any) -> Any:
        if isinstance(b, slice):
            return RaggedParts(self._table, self._which[b])
        return self._table.part(int(self._which[b]))

    def each(self, name: str) -> Iterable[Any]:
        table, which = self._table, self._which
        known = {"value": table.value, "lower_bound": table.lower, "upper_bound": table.upper, "scale": table.scale}
        if name in known:
            return known[name][which]
        if name == "gap" and self.closed:
            lower, upper, scale = table.lower[which], table.upper[which], table.scale[which]
            return np.divide(upper - lower, scale, out=np.zeros(len(which)), where=upper > lower)
        usual = {"status": "optimal", "reason": ""}
        if name in usual:
            alone = set(np.flatnonzero(table.place[which, 0] < 0).tolist())
            return [getattr(self[k], name)[0] if k in alone else usual[name] for k in range(len(which))]
        return super().each(name)

    @property
    def closed(self) -> bool:
        alone = self._which[self._table.place[self._which, 0] < 0]
        return all(self._table.part(int(b)).closed for b in alone)
