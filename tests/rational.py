"""References in exact rational arithmetic: transport problems, linear programmes, and costs of points and grids.

Numbers are integers with one common denominator, which are much faster than fractions. Plain distances are roots, which
are known from below and from above to within 2^-200.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROOT_BITS = 200  # of a plain distance
_PATIENCE = 100  # pivots that move nothing, after which Bland's rule ends every cycle


class Exact(NamedTuple):
    """A matrix of costs as integers over ``2^bits``; None where a pair is forbidden. `error` is relative, of roots."""

    entries: list[list[int | None]]
    bits: int
    error: Fraction = Fraction(0)

    def at(self, i: int, j: int) -> Fraction | None:
        """Return a cost, rounded down if it is a root."""
        entry = self.entries[i][j]
        return None if entry is None else Fraction(entry, 1 << self.bits)

    def bordered(self, outer: float, corner: float) -> Exact:
        """Return the costs with one more point on either side."""
        outside, bits = exact_matrix(np.array([[outer, corner]]))[:2]
        both = max(bits, self.bits)
        (edge, last), scale = outside[0], 1 << (both - bits)
        rows = [[None if c is None else c << (both - self.bits) for c in row] for row in self.entries]
        edge, last = (None if c is None else c * scale for c in (edge, last))
        bottom: list[int | None] = [edge] * len(rows[0])
        return Exact([*([*row, edge] for row in rows), [*bottom, last]], both, self.error)


class Optimum(NamedTuple):
    """Bounds of W, which agree where no root is involved, and the weights of a free measure, up to a factor."""

    low: Fraction
    high: Fraction
    weights: tuple[Fraction, ...] = ()


def integers(x: Sequence[float]) -> tuple[list[int], int]:
    """Return finite floats as integers over ``2^bits``, and the bits."""
    ratios = [float(value).as_integer_ratio() for value in x]
    bits = max((d.bit_length() - 1 for _, d in ratios), default=0)
    return [n << (bits - d.bit_length() + 1) for n, d in ratios], bits


def exact_matrix(C: NDArray[Any]) -> Exact:
    """Return a matrix of floats as it is stored; infinity forbids a pair."""
    C = np.asarray(C, np.float64)
    finite = np.isfinite(C)
    numbers, bits = integers(np.where(finite, C, 0.0).ravel().tolist())
    n = C.shape[1]
    entries = [
        [value if allowed else None for value, allowed in zip(numbers[k * n : k * n + n], row, strict=True)]
        for k, row in enumerate(finite.tolist())
    ]
    return Exact(entries, bits)


def exact_grid(axes: Sequence[NDArray[Any]]) -> Exact:
    """Return the sums of the stored costs of the axes of a grid."""
    tables = [exact_matrix(axis) for axis in axes]
    bits = max(table.bits for table in tables)
    entries: list[list[int | None]] = [[0]]
    for table in tables:
        shift = bits - table.bits
        entries = [
            [None if c is None or d is None else c + (d << shift) for c in row for d in own]
            for row in entries
            for own in table.entries
        ]
    return Exact(entries, bits)


def exact_distances(X: Floats, Y: Floats, power: int) -> Exact:
    """Return squared or plain Euclidean distances of points as given."""
    numbers, bits = integers(np.concatenate([X, Y]).ravel().tolist())
    d = X.shape[1]
    points = [numbers[k * d : k * d + d] for k in range(len(X) + len(Y))]
    squares = [
        [sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for y in points[len(X) :]] for x in points[: len(X)]
    ]
    if power == 2:
        return Exact([list(row) for row in squares], 2 * bits)
    if d == 1:
        return Exact([[math.isqrt(s) for s in row] for row in squares], bits)
    return Exact([[math.isqrt(s << 2 * _ROOT_BITS) for s in row] for row in squares], bits + _ROOT_BITS,
                 Fraction(2, 1 << _ROOT_BITS))  # fmt: skip


def optimum(p: Sequence[float] | Floats, q: Sequence[float] | Floats, costs: Exact) -> Optimum | None:
    """Return W for p / sum(p) and q / sum(q), or None where forbidden pairs leave no plan."""
    rows, columns = np.flatnonzero(p).tolist(), np.flatnonzero(q).tolist()
    a, b = integers([p[i] for i in rows])[0], integers([q[j] for j in columns])[0]
    return _optimum(a, b, costs, rows, columns)


def partial_optimum(p: Floats, q: Floats, costs: Exact, penalty: float | None, mass: float | None) -> Optimum | None:
    """Return the least cost where mass may be left over: for a penalty a unit, or for a mass to transport."""
    numbers, bits = integers([*p, *q])
    a, b = numbers[: len(p)], numbers[len(p) :]
    left = Fraction(mass or 0.0) * (1 << bits)
    left = min(left, Fraction(sum(a)), Fraction(sum(b)))  # sums that are less than the mass by their rounding
    scale = left.denominator
    a, b = [x * scale for x in a], [x * scale for x in b]
    spare_a, spare_b = sum(b) - int(left * scale), sum(a) - int(left * scale)
    border = (penalty, 0.0) if penalty is not None else (0.0, math.inf)
    a, b, more = [*a, spare_a], [*b, spare_b], costs.bordered(*border)
    rows, columns = [i for i, x in enumerate(a) if x], [j for j, x in enumerate(b) if x]
    found = _optimum([a[i] for i in rows], [b[j] for j in columns], more, rows, columns)
    total = Fraction(sum(a), scale << bits)
    return found and Optimum(found.low * total, found.high * total)


def _optimum(a: list[int], b: list[int], costs: Exact, rows: list[int], columns: list[int]) -> Optimum | None:
    """Return W for positive weights of some rows and columns."""
    A, B = sum(a), sum(b)
    common = math.lcm(A, B)
    chosen = [[costs.entries[i][j] for j in columns] for i in rows]
    value = transport([x * (common // A) for x in a], [x * (common // B) for x in b], chosen)
    if value is None:
        return None
    low = Fraction(value, common << costs.bits)
    # roots contribute no more than the value and what costs below zero, which are exact, take away
    negative = Fraction(-min((c for row in chosen for c in row if c is not None and c < 0), default=0), 1 << costs.bits)
    return Optimum(low, low + costs.error * (abs(low) + negative))


def transport(a: list[int], b: list[int], costs: list[list[int | None]]) -> int | None:
    """Return the least cost between positive weights of equal sums, or None: a transportation simplex in integers."""
    m, n = len(a), len(b)
    price = 1 + 2 * (m + n) * max((abs(c) for row in costs for c in row if c is not None), default=0)
    cost = [[price if c is None else c for c in row] for row in costs]
    flow = _start(a, b)
    still = 0
    while True:
        u, v = _potentials(flow, cost, m, n)
        least, entering = 0, None
        for i, (row, ui) in enumerate(zip(cost, u, strict=True)):
            for j, (c, vj) in enumerate(zip(row, v, strict=True)):
                reduced = c - ui - vj
                if reduced < least:
                    least, entering = reduced, (i, j)
                    if still > _PATIENCE:
                        break
            if entering is not None and still > _PATIENCE:
                break
        if entering is None:
            break
        cycle = _cycle(flow, entering)
        falling = cycle[1::2]
        moved = min(flow[cell] for cell in falling)
        leaving = min(cell for cell in falling if flow[cell] == moved)
        still = 0 if moved else still + 1
        flow[entering] = 0
        for k, cell in enumerate(cycle):
            flow[cell] += -moved if k % 2 else moved
        del flow[leaving]
    if any(mass > 0 and costs[i][j] is None for (i, j), mass in flow.items()):
        return None
    return sum(mass * cost[i][j] for (i, j), mass in flow.items())


def _start(a: list[int], b: list[int]) -> dict[tuple[int, int], int]:
    """Return a basis of m + n - 1 cells: the north-west corner."""
    flow = dict[tuple[int, int], int]()
    left_a, left_b, i, j = a[:], b[:], 0, 0
    while True:
        moved = min(left_a[i], left_b[j])
        flow[i, j] = moved
        left_a[i] -= moved
        left_b[j] -= moved
        if (i, j) == (len(a) - 1, len(b) - 1):
            return flow
        if (left_a[i] == 0 and i < len(a) - 1) or j == len(b) - 1:
            i += 1
        else:
            j += 1


def _potentials(flow: dict[tuple[int, int], int], cost: list[list[int]], m: int, n: int) -> tuple[list[int], list[int]]:
    u: list[Any] = [None] * m
    v: list[Any] = [None] * n
    of_rows, of_columns = _neighbours(flow, m, n)
    u[0] = 0
    stack = [(0, True)]
    while stack:
        at, is_row = stack.pop()
        if is_row:
            for j in of_rows[at]:
                if v[j] is None:
                    v[j] = cost[at][j] - u[at]
                    stack.append((j, False))
        else:
            for i in of_columns[at]:
                if u[i] is None:
                    u[i] = cost[i][at] - v[at]
                    stack.append((i, True))
    return u, v


def _neighbours(flow: dict[tuple[int, int], int], m: int, n: int) -> tuple[list[list[int]], list[list[int]]]:
    of_rows: list[list[int]] = [[] for _ in range(m)]
    of_columns: list[list[int]] = [[] for _ in range(n)]
    for i, j in flow:
        of_rows[i].append(j)
        of_columns[j].append(i)
    return of_rows, of_columns


def _cycle(flow: dict[tuple[int, int], int], entering: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the cells of the cycle that `entering` closes, itself first, flows rising and falling in turn."""
    m, n = (1 + max(cell[k] for cell in flow) for k in (0, 1))
    of_rows, of_columns = _neighbours(flow, m, n)
    stack: list[tuple[int, bool, int, tuple[Any, ...]]] = [(entering[1], False, -1, ())]
    while stack:
        at, is_row, before, path = stack.pop()
        if is_row and at == entering[0]:
            cells = [entering]
            while path:
                cell, path = path
                cells.append(cell)
            return [entering, *cells[:0:-1]]
        for other in (of_rows if is_row else of_columns)[at]:
            if other != before:
                cell = (at, other) if is_row else (other, at)
                stack.append((other, not is_row, at, (cell, path)))
    raise AssertionError("the cells are no tree")


def free_optimum(targets: Floats, weights: Sequence[float], costs: Exact, components: Floats | None = None) -> Optimum:
    r"""Return the least ``sum_i weights_i W(B^T w, x_i)`` over weights w; all measures are divided by their sums."""
    n, (m1, m2) = len(targets), (len(costs.entries), len(costs.entries[0]))
    B = np.eye(m1) if components is None else np.asarray(components, np.float64)
    numbers = integers(B.ravel().tolist())[0]
    rows = [[Fraction(x) for x in numbers[k * m1 : k * m1 + m1]] for k in range(len(B))]  # as they are, up to a factor
    X, lam = [_shares(row) for row in targets], _shares(weights)
    # variables: plans Z^i_ab >= 0, weights w_k >= 0; equations: row sums of Z^i are B^T w, column sums are x_i
    K, plans = len(B), n * m1 * m2
    A = [[Fraction(0)] * (plans + K) for _ in range(n * (m1 + m2))]
    b = [Fraction(0)] * (n * m1) + [x for row in X for x in row]
    c = [Fraction(0)] * (plans + K)
    for i in range(n):
        for s in range(m1):
            for t in range(m2):
                k = (i * m1 + s) * m2 + t
                A[i * m1 + s][k] = A[n * m1 + i * m2 + t][k] = Fraction(1)
                cost = costs.at(s, t)
                assert cost is not None
                c[k] = lam[i] * cost
            for k in range(K):
                A[i * m1 + s][plans + k] = -rows[k][s]
    value, x = linear_programme(A, b, c)
    return Optimum(value, value * (1 + costs.error), tuple(x[plans:]))


def _shares(x: Sequence[float] | Floats) -> list[Fraction]:
    """Return weights that are normalised."""
    numbers = integers([float(value) for value in x])[0]
    return [Fraction(value, sum(numbers)) for value in numbers]


def linear_programme(A: list[list[Fraction]], b: list[Fraction], c: list[Fraction]) -> tuple[Fraction, list[Fraction]]:
    """Return the least ``<c, x>`` with ``A x = b >= 0`` and x >= 0, and x: both phases of the simplex in integers.

    The tableau is free of fractions (Bareiss, Edmonds): all entries have one common denominator, the last pivot.
    """
    m, n = len(A), len(c)
    scales = [math.lcm(*(x.denominator for x in (*row, right))) for row, right in zip(A, b, strict=True)]
    table = [
        [int(x * s) for x in row] + [int(k == i) for k in range(m)] + [int(right * s)]
        for i, (row, right, s) in enumerate(zip(A, b, scales, strict=True))
    ]
    cost_scale = math.lcm(*(x.denominator for x in c))
    first = [-sum(row[k] for row in table) for k in range(n)] + [0] * m + [-sum(row[-1] for row in table)]
    second = [int(x * cost_scale) for x in c] + [0] * m + [0]
    table += [first, second]
    basis, pivot = list(range(n, n + m)), 1
    for objective in (m, m + 1):
        while True:
            row = table[objective]
            entering = next((k for k in range(n) if row[k] < 0), None)  # Bland
            if entering is None:
                break
            ratios = [(Fraction(r[-1], r[entering]), basis[k], k) for k, r in enumerate(table[:m]) if r[entering] > 0]
            leaving = min(ratios)[2]
            pivot = _pivot(table, leaving, entering, pivot)
            basis[leaving] = entering
        if objective == m:
            assert table[m][-1] == 0, "infeasible"
            for k in range(m):  # artificial variables that stay at zero leave, or their row is redundant
                if basis[k] >= n:
                    entering = next((j for j in range(n) if table[k][j]), None)
                    if entering is not None:
                        if table[k][entering] < 0:
                            table[k] = [-x for x in table[k]]
                        pivot = _pivot(table, k, entering, pivot)
                        basis[k] = entering
    x = [Fraction(0)] * (n + m)
    for k, row in zip(basis, table, strict=False):
        x[k] = Fraction(row[-1], pivot)
    return Fraction(-table[m + 1][-1], pivot * cost_scale), x[:n]


def _pivot(table: list[list[int]], leaving: int, entering: int, before: int) -> int:
    """Pivot; return the new common denominator."""
    base = table[leaving]
    pivot = base[entering]
    for k, row in enumerate(table):
        if k != leaving:
            factor = row[entering]
            table[k] = [(x * pivot - factor * y) // before for x, y in zip(row, base, strict=True)]
    return pivot
