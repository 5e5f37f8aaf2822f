"""Exact couplings near plans whose masses are differences of rounded numbers.

A plan that a coarser level suggests, or one that a spent budget leaves incomplete, has masses that are differences:
small ones have lost their digits. Integers have none to lose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Arcs = tuple[NDArray[np.int64], NDArray[np.int64], Array]
Ends = tuple[int, int]

_LEAST = 5e-324  # what a positive mass is at least, as a double


def integers(weights: Sequence[float]) -> list[int]:
    """Return weights as integers, in units of a power of two.

    Examples
    --------
    >>> integers([0.5, 0.75])
    [2, 3]
    """
    ratios = [x.as_integer_ratio() for x in weights]
    unit = max(denominator for _, denominator in ratios)  # all are powers of two
    return [numerator * (unit // denominator) for numerator, denominator in ratios]


def supplies(p: Array, q: Array) -> tuple[list[int], list[int]]:
    """Return integers in the ratios of ``p / sum(p)`` and ``q / sum(q)``, of one sum."""
    both = integers([*p.tolist(), *q.tolist()])
    a, b = both[: len(p)], both[len(p) :]
    P, Q = sum(a), sum(b)
    return [x * Q for x in a], [x * P for x in b]


def coupling_near(
    p: Array, q: Array, arcs: Arcs, inner: tuple[int, int] | None = None, costs: Mapping[Ends, float] | None = None
) -> Arcs:
    """Return an exact coupling of normalised weights, near a plan, with masses that are rounded once.

    Arcs keep their masses as far as the weights allow. What is left follows on these arcs, and then in the order of
    rows and columns.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Positive weights, normalised or not.
    arcs : tuple of arrays of shape (k,)
        Rows, columns and masses of the plan.
    inner : pair of int, optional
        The numbers of rows and columns before the additional ones, if arcs between two of these are forbidden. Their
        mass is exchanged with the ends of other arcs.
    costs : mapping of pairs of int, optional
        The costs of arcs. With them, a coupling of more arcs than a vertex has becomes a vertex that costs no more;
        arcs that are not listed are left first.

    Returns
    -------
    i, j, mass : arrays
        Each mass is within a unit in the last place, or of the least number, of an exact coupling.

    Examples
    --------
    >>> third = np.array([1.0, 1.0, 1.0])
    >>> near = np.array([0, 1]), np.array([0, 1]), np.array([0.25, 0.5])
    >>> i, j, mass = coupling_near(third, third, near)
    >>> i.tolist(), j.tolist(), (3 * mass).tolist()
    ([0, 1, 2], [0, 1, 2], [1.0, 1.0, 1.0])
    """
    rows, columns = supplies(p, q)
    total = sum(rows)
    i, j = arcs[0].tolist(), arcs[1].tolist()
    wanted = ((total * n) // d for n, d in (x.as_integer_ratio() for x in arcs[2].tolist()))
    flows = dict[tuple[int, int], int]()
    _fill(flows, zip(i, j, wanted, strict=True), rows, columns)
    _fill(flows, zip(i, j, [total] * len(i), strict=True), rows, columns)
    _fill(flows, _staircase(rows, columns), rows, columns)
    if inner is not None:
        _exchange(flows, inner)
    if costs is not None and len(flows) >= len(p) + len(q):
        flows = _without_cycles(flows, costs)
    kept = [(*ends, max(moved / total, _LEAST)) for ends, moved in flows.items() if moved]
    found = np.array([end[:2] for end in kept], np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1], np.array([end[2] for end in kept])


def _without_cycles(flows: Mapping[Ends, int], costs: Mapping[Ends, float]) -> dict[Ends, int]:
    """Return flows on a forest: along each cycle, mass moves in the direction that costs less until an arc is empty."""
    kept, near = dict[Ends, int](), defaultdict[int, set[int]](set)  # columns are ~j, which no row is

    def path(start: int, end: int) -> list[int]:
        """Return the nodes of the forest from a row to a column, none if they are not connected."""
        before, found = {start: start}, [start]
        for node in found:
            if node == end:
                nodes = [node]
                while nodes[-1] != start:
                    nodes.append(before[nodes[-1]])
                return nodes[::-1]
            fresh = [other for other in near[node] if other not in before]
            before.update(dict.fromkeys(fresh, node))
            found += fresh
        return []

    for (i, j), flow in flows.items():
        nodes = path(i, ~j)
        kept[i, j] = flow
        near[i].add(~j)
        near[~j].add(i)
        if not nodes:
            continue
        arcs = [(max(a, b), ~min(a, b)) for a, b in pairwise(nodes)]
        less, more = arcs[::2], [*arcs[1::2], (i, j)]  # what more mass on the new arc takes and gives
        unknown = sum(ends not in costs for ends in more) - sum(ends not in costs for ends in less)
        change = unknown, sum(costs.get(ends, 0.0) for ends in more) - sum(costs.get(ends, 0.0) for ends in less)
        less, more = (less, more) if change < (0, 0.0) else (more, less)
        moved = min(kept[ends] for ends in less)
        for side, sign in ((less, -1), (more, 1)):
            for a, b in side:
                kept[a, b] += sign * moved
                if not kept[a, b]:
                    del kept[a, b]
                    near[a].discard(~b)
                    near[~b].discard(a)
    return kept


def _fill(
    flows: dict[tuple[int, int], int], arcs: Iterable[tuple[int, int, int]], rows: list[int], columns: list[int]
) -> None:
    """Send mass along arcs, at most what is asked for and what is left at both ends."""
    for i, j, most in arcs:
        moved = min(most, rows[i], columns[j])
        if moved > 0:
            flows[i, j] = flows.get((i, j), 0) + moved
            rows[i] -= moved
            columns[j] -= moved


def _staircase(rows: list[int], columns: list[int]) -> Iterable[tuple[int, int, int]]:
    """Yield the arcs of the north-west corner rule for what is left, while it is used up."""
    i = j = 0
    while i < len(rows) and j < len(columns):
        yield i, j, rows[i] + columns[j]
        while i < len(rows) and rows[i] == 0:
            i += 1
        while j < len(columns) and columns[j] == 0:
            j += 1


def _exchange(flows: dict[tuple[int, int], int], inner: tuple[int, int]) -> None:
    """Move the mass between additional points to their arcs with other points.

    The mass between the other points is the one asked for and that between additional ones, so it suffices.
    """
    corner = [ends for ends in flows if ends[0] >= inner[0] and ends[1] >= inner[1]]
    others = [ends for ends in flows if ends[0] < inner[0] and ends[1] < inner[1]]
    others.sort(key=lambda ends: flows[ends])
    for ends in corner:
        left = flows.pop(ends)
        while left:
            i, j = others[-1]
            moved = min(left, flows[i, j])
            left -= moved
            flows[i, j] -= moved
            if not flows[i, j]:
                others.pop()
            for more in ((i, ends[1]), (ends[0], j)):
                flows[more] = flows.get(more, 0) + moved
