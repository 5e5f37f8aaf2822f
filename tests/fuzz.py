"""Small problems that are hard on rounding, solved in every way, against exact rational arithmetic.

``python tests/fuzz.py N SEED`` checks N problems and prints what it found; ``make fuzz N=... SEED=...`` runs it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gibbsot import DenseCost
from gibbsot.solvers import multiscale
from gibbsot.solvers.crossover import crossover
from gibbsot.solvers.line import solve_line
from gibbsot.solvers.network_simplex import solve_dense
from kernels import using
from rational import hard_points, hard_problem, rational_optimum

Array = NDArray[np.float64]
ULP = Fraction(2) ** -52


class Answer(NamedTuple):
    """What a solver found, in the sign convention ``f_i + g_j <= c_ij``."""

    lower: float
    upper: float
    f: Array
    g: Array
    plan: sparse.csr_array
    status: str


def dense(p: Array, q: Array, C: Array) -> Answer:
    """Solve on all arcs."""
    found = solve_dense(C, p, q)
    if found.status == ["infeasible"]:
        raise ValueError("infeasible")
    return Answer(found.lower[0], found.upper[0], found.f[0], found.g[0], found.plan(), found.status[0])


def crossed(p: Array, q: Array, C: Array) -> Answer:
    """Cross over from poor potentials, with few arcs a point, so that there are several rounds."""
    found = crossover(p, q, DenseCost(C), np.zeros(len(p)), neighbours=2)
    return Answer(found.lower, found.upper, found.f, found.g, found.plan, found.status)


def without_kernels(p: Array, q: Array, C: Array) -> Answer:
    """Cross over by HiGHS."""
    with using("numpy"):
        return crossed(p, q, C)


def line(p: Array, q: Array, X: Array, Y: Array, power: int) -> Answer:
    """Solve on the line."""
    found = solve_line(X[:, 0], Y[:, 0], p, q, power)
    return Answer(found.lower, found.upper, found.f, found.g, found.plan, found.status)


def points(p: Array, q: Array, X: Array, Y: Array, power: int) -> Answer:
    """Solve from coarse to fine, down to levels of two points."""
    with mock.patch.multiple(multiscale, _SMALLEST=2, _NEIGHBOURS=2):
        found = multiscale.solve_points(X, Y, p, q, squared=power == 2)
    return Answer(found.lower, found.upper, found.f, found.g, found.plan, found.status)


def distances(X: Array, Y: Array, power: int) -> NDArray[Any]:
    """Return squared distances, or plain ones in one dimension, as fractions; other plain ones as floats."""
    differences = np.array([[[Fraction(a) - Fraction(b) for a, b in zip(x, y, strict=True)] for y in Y] for x in X])
    if power == 2:
        return np.asarray((differences**2).sum(axis=2))
    if X.shape[1] == 1:
        return np.abs(differences[:, :, 0])
    return np.linalg.norm((X[:, None] - Y), axis=2)


def check(answer: Answer, p: Array, q: Array, C: NDArray[Any], W: Fraction, error: Fraction = Fraction(0)) -> None:
    """Check bounds, status, potentials and plan against the optimum W; costs are known to within a relative error."""
    lower, upper = Fraction(float(answer.lower)), Fraction(float(answer.upper))
    assert lower <= W * (1 + error), f"lower bound {float(lower - W)} above W"
    assert W * (1 - error) <= upper, f"upper bound {float(W - upper)} below W"
    f, g = ([Fraction(float(z)) for z in x] for x in (answer.f, answer.g))
    for i in range(len(f)):
        for j in range(len(g)):
            if C[i, j] != np.inf:
                assert f[i] + g[j] <= Fraction(C[i, j]) * (1 + error), f"potentials of {i}, {j}"
    size = float(np.ptp(answer.f[p > 0]) + np.ptp(answer.g[q > 0]))
    if answer.status == "optimal":
        assert answer.upper - answer.lower <= 1e-10 * abs(answer.upper) + 1e-12 * size, "the gap of an optimum"
    plan = answer.plan.tocoo()
    assert plan.nnz <= np.count_nonzero(p) + np.count_nonzero(q) - 1
    assert (plan.data >= 0).all()
    for index, weight in ((plan.row, p), (plan.col, q)):
        sums = [Fraction(0)] * len(weight)
        for k, mass in zip(index.tolist(), plan.data.tolist(), strict=True):
            sums[k] += Fraction(mass)
        total = sum(Fraction(w) for w in weight.tolist())
        for found, w in zip(sums, weight.tolist(), strict=True):
            wanted = Fraction(w) / total
            assert abs(found - wanted) <= 4 * ULP * wanted + Fraction(2) ** -1070, f"marginals {float(found / wanted)}"


def runs(seed: int, solvers: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Solve the problems of a seed in every way; yield the solver and its status, or what is wrong."""
    dimensions, power = 1 + seed % 3, 1 + seed // 3 % 2
    p, q, C = hard_problem(seed)
    W = rational_optimum(p, q, C)
    for solver in (dense, crossed, without_kernels):
        if solver.__name__ in solvers:
            yield solver.__name__, judge(lambda: solver(p, q, C), p, q, C, W)  # noqa: B023
    p, q, X, Y = hard_points(seed, dimensions)
    distance = distances(X, Y, power)
    W = rational_optimum(p, q, distance)
    for solver in (points, line)[: 2 if dimensions == 1 else 1]:
        if solver.__name__ in solvers:
            error = 4 * ULP if distance.dtype == np.float64 else Fraction(0)
            yield solver.__name__, judge(lambda: solver(p, q, X, Y, power), p, q, distance, W, error)  # noqa: B023


def judge(
    solve: Callable[[], Answer], p: Array, q: Array, C: NDArray[Any], W: Fraction | None, error: Fraction = Fraction(0)
) -> str:
    """Return the status of a right answer, or "wrong: ..."."""
    try:
        answer = solve()
    except ValueError as reason:
        return "infeasible" if W is None else f"wrong: {reason}"
    except Exception as reason:  # reported with its seed
        return f"wrong: {type(reason).__name__}: {reason}"
    if W is None:
        return "wrong: a plan where there is none"
    try:
        check(answer, p, q, C, W, error)
    except AssertionError as reason:
        return f"wrong: {reason}"
    return answer.status


SOLVERS = ("dense", "crossed", "without_kernels", "points", "line")


def main(n: int, first: int, solvers: tuple[str, ...] = SOLVERS) -> int:
    """Check n seeds; return how many answers were wrong."""
    found = Counter[tuple[str, str]]()
    for seed in range(first, first + n):
        for name, state in runs(seed, solvers):
            if state not in ("optimal", "infeasible"):
                print(f"seed {seed}: {name}: {state}", flush=True)
            found[name, state.partition(":")[0]] += 1
    for (name, state), count in sorted(found.items()):
        print(f"{name:16} {state:16} {count}")
    return sum(count for (_, state), count in found.items() if state == "wrong")


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:]) or SOLVERS)))
