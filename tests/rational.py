"""A reference in exact rational arithmetic, and a generator of small problems that are hard on rounding."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray


def rational_optimum(p: NDArray[np.float64], q: NDArray[np.float64], C: NDArray[Any]) -> Fraction | None:
    """Return W for p / sum(p), q / sum(q) and the costs as stored, or None where infinite costs forbid every plan.

    A transportation simplex with Bland's rule, all numbers rational. C has floats, fractions or infinity.
    """
    rows, columns = np.flatnonzero(p), np.flatnonzero(q)
    P, Q = sum(Fraction(float(x)) for x in p), sum(Fraction(float(x)) for x in q)
    a, b = [Fraction(float(p[i])) / P for i in rows], [Fraction(float(q[j])) / Q for j in columns]
    finite = [abs(Fraction(C[i, j])) for i in rows for j in columns if C[i, j] != np.inf]
    price = 1 + 2 * (len(a) + len(b)) * max(finite, default=Fraction(0))
    cost = [[Fraction(C[i, j]) if C[i, j] != np.inf else price for j in columns] for i in rows]
    m, n = len(a), len(b)
    # north-west corner: a basis of m + n - 1 cells
    flow: dict[tuple[int, int], Fraction] = {}
    left_a, left_b, i, j = a[:], b[:], 0, 0
    while True:
        moved = min(left_a[i], left_b[j])
        flow[i, j] = moved
        left_a[i] -= moved
        left_b[j] -= moved
        if (i, j) == (m - 1, n - 1):
            break
        if (left_a[i] == 0 and i < m - 1) or j == n - 1:
            i += 1
        else:
            j += 1
    while True:
        u, v = _potentials(flow, cost, m, n)
        entering = next(
            ((i, j) for i in range(m) for j in range(n) if (i, j) not in flow and cost[i][j] < u[i] + v[j]), None
        )
        if entering is None:
            break
        cycle = _cycle(flow, entering)
        falling = cycle[1::2]
        least = min(flow[cell] for cell in falling)
        leaving = min(cell for cell in falling if flow[cell] == least)
        flow[entering] = Fraction(0)
        for k, cell in enumerate(cycle):
            flow[cell] += -least if k % 2 else least
        del flow[leaving]
    total = Fraction(0)
    for (i, j), mass in flow.items():
        if mass > 0 and C[rows[i], columns[j]] == np.inf:
            return None
        total += mass * cost[i][j]
    return total


def _potentials(
    flow: dict[tuple[int, int], Fraction], cost: list[list[Fraction]], m: int, n: int
) -> tuple[dict[int, Fraction], dict[int, Fraction]]:
    u, v = {0: Fraction(0)}, dict[int, Fraction]()
    while len(u) + len(v) < m + n:
        for i, j in flow:
            if i in u and j not in v:
                v[j] = cost[i][j] - u[i]
            elif j in v and i not in u:
                u[i] = cost[i][j] - v[j]
    return u, v


def _cycle(flow: dict[tuple[int, int], Fraction], entering: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the cells of the cycle that `entering` closes, itself first, flows rising and falling in turn."""
    goal = entering[0]
    stack: list[tuple[tuple[str, int], list[tuple[int, int]]]] = [(("column", entering[1]), [])]
    while stack:
        (kind, at), path = stack.pop()
        if kind == "row" and at == goal:
            return [entering, *path]
        for cell in flow:
            if path and cell == path[-1]:
                continue
            if kind == "column" and cell[1] == at:
                stack.append((("row", cell[0]), [*path, cell]))
            elif kind == "row" and cell[0] == at:
                stack.append((("column", cell[1]), [*path, cell]))
    raise AssertionError("the cells are no tree")


def hard_weights(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Return weights with ties, a wide range, zeros, or only one that is not zero."""
    kind = rng.integers(7)
    if kind == 0:
        w = np.ones(size)
    elif kind == 1:
        w = rng.integers(1, 5, size).astype(float)
    elif kind == 2:
        w = rng.random(size)
    elif kind == 3:
        w = 10.0 ** rng.uniform(-30, 0, size)
    elif kind == 4:
        w = rng.choice([1.0, 1e-16, 1e-30, 0.1, 0.3], size)
    elif kind == 5:
        w = 10.0 ** rng.uniform(-300, 0, size)
    else:
        w = np.zeros(size)
        w[rng.integers(size)] = rng.random() + 0.1
    if kind != 6 and rng.random() < 0.3:
        w[rng.random(size) < 0.4] = 0
    if not w.any():
        w[0] = 1
    return w


def hard_problem(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return weights p and q and costs C of a small problem: ties, wild ranges, zeros, duplicates, infinite costs."""
    rng = np.random.default_rng(seed)
    m, n = (int(x) for x in rng.integers(1, 7, 2))
    p, q = hard_weights(rng, m), hard_weights(rng, n)
    kind = rng.integers(6)
    if kind == 0:
        C = rng.integers(0, 4, (m, n)).astype(float)
    elif kind == 1:
        C = rng.random((m, n))
    elif kind == 2:
        C = 10.0 ** rng.uniform(-20, 20, (m, n))
    elif kind == 3:
        C = rng.choice([0.0, 1.0, 1e16, 1e-16, 0.1], (m, n))
    elif kind == 4:
        x, y = rng.random((m, 2)), rng.random((n, 2))
        C = ((x[:, None] - y) ** 2).sum(axis=2)
    else:
        C = rng.normal(size=(m, n))
    if rng.random() < 0.2:
        C *= rng.choice([1e-200, 1e-50, 1e50, 1e130])
    if m > 1 and rng.random() < 0.2:
        C[rng.integers(m)] = C[0]
    if rng.random() < 0.25:
        C[rng.random((m, n)) < 0.3] = np.inf
        # a point without weight has a finite cost, as `DenseCost` demands; one with weight makes the problem infeasible
        C[np.isinf(C).all(axis=1) & (p == 0), 0] = 1
        C[0, np.isinf(C).all(axis=0) & (q == 0)] = 1
    return p, q, C


def hard_points(seed: int, dimensions: int) -> tuple[NDArray[np.float64], ...]:
    """Return weights p and q and points X and Y: ties, duplicates, clusters, and coordinates of any size."""
    rng = np.random.default_rng([seed, dimensions])
    m, n = (int(x) for x in rng.integers(1, 11, 2))
    p, q = hard_weights(rng, m), hard_weights(rng, n)
    kind = rng.integers(3)
    if kind == 0:
        X, Y = (rng.integers(0, 4, (k, dimensions)).astype(float) for k in (m, n))
    elif kind == 1:
        X, Y = (rng.normal(size=(k, dimensions)) for k in (m, n))
    else:
        X, Y = (rng.choice([-1.0, 1.0], (k, dimensions)) * 10.0 ** rng.uniform(-8, 2, (k, dimensions)) for k in (m, n))
    scale = rng.choice([1.0, 1.0, 1e-60, 1e60])
    return p, q, scale * X, scale * Y
