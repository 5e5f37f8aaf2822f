"""Default `solve` beside ``ot.emd2``, a certified gap beside the optimum, and measures that nearly agree.

    python benchmarks/solve.py [--quick] [dense] [words] [points] [grid] [shared]

CPU time on one thread from the points or the matrix to the value; ours with checks, bounds and status, POT's with
``ot.dist`` where there are points. Each ratio comes from one run, in double precision on both sides. Sizes are 10 to
4,096, or to 400 with ``--quick``. Values are compared to 1e-9. Kinds of problems may be chosen, and "shared", measures
that share some of their mass.
"""

from __future__ import annotations

import os

# one thread, also for what POT and SciPy call; before NumPy is imported
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import ot
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.ndimage import gaussian_filter

from gibbsot import Cost, DenseCost, GridCost, PointCost, solve

Array = NDArray[np.float64]
Case = tuple[Array, Array, Callable[[], Cost], Callable[[], Array]]  # the cost, and the matrix for POT

KINDS = ("dense", "words", "points", "grid")
SIZES = (10, 30, 100, 400, 1024, 2025, 4096)
SHARES = (0.0, 0.97, 0.999, 1.0)
WORDS = 50  # dimensions of the word vectors


def cpu(work: Callable[[], Any], least: float = 0.3) -> tuple[float, Any]:
    """Return the least CPU time of a call among those of about some seconds, and what it returned."""
    best, result, until = np.inf, None, time.process_time() + least
    while best == np.inf or time.process_time() < until:
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def case(kind: str, n: int, seed: int = 0) -> Case:
    """Return a problem of a kind with n points per side; the side of a grid is rounded down."""
    rng = np.random.default_rng([n, seed])
    cost: Callable[[], Cost]
    matrix: Callable[[], Array]
    if kind == "grid":
        side = int(np.sqrt(n))
        n, x = side * side, np.indices((side, side)).reshape(2, -1).T / side
        cost, matrix = (lambda: GridCost((side, side), spacing=1 / side)), (lambda: ot.dist(x, x))
    elif kind == "words":  # as of documents: few directions, unequal weights
        x, y = rng.standard_normal((2, n, 10)) @ rng.standard_normal((10, WORDS))
        cost, matrix = (lambda: PointCost(x, y, "cosine")), (lambda: ot.dist(x, y, "cosine"))
    elif kind == "points":
        x, y = rng.random((2, n, 2))
        cost, matrix = (lambda: PointCost(x, y)), (lambda: ot.dist(x, y))
    else:
        M = rng.random((n, n))
        cost, matrix = (lambda: DenseCost(M)), (lambda: M)
    p, q = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(n))
    return p, q, cost, matrix


def emd2(p: Array, q: Array, matrix: Callable[[], Array]) -> float:
    """Return what POT finds."""
    return float(ot.emd2(p, q, matrix(), numItermax=10**9))


def certified(p: Array, q: Array, cost: Cost | Callable[[], Cost], gap: float | None = None) -> Any:
    """Solve, and compute value, bounds and status."""
    result = solve(p, q, cost if isinstance(cost, Cost) else cost(), gap=gap)
    return result, result.value, result.lower_bound, result.upper_bound, result.status


def sizes(console: Console, most: int, kinds: list[str]) -> None:
    """Print a table over kinds and sizes, and the worst ratios."""
    table = Table("problem", "points", "emd2 ms", "solve ms", "emd2 / solve", "gap=1e-2 ms", "exact / gap")
    worst: list[tuple[float, float]] = []
    for kind in kinds:
        for n in (n for n in SIZES if n <= most):
            p, q, cost, matrix = case(kind, n)
            reference, W = cpu(partial(emd2, p, q, matrix))
            ours = loose = np.inf
            for _ in range(3):  # in turn, so that both have the same noise
                seconds, (result, *_) = cpu(partial(certified, p, q, cost), 0.1)
                ours = min(ours, seconds)
                seconds, (rough, *_) = cpu(partial(certified, p, q, cost, gap=1e-2), 0.1)
                loose = min(loose, seconds)
            assert result.status == "optimal"
            assert abs(result.value - W) <= 1e-9 * W, (result.value, W)
            assert rough.lower_bound <= W * (1 + 1e-9)
            assert rough.gap <= 1e-2
            worst.append((reference / ours, ours / loose))
            figures = reference * 1e3, ours * 1e3, reference / ours, loose * 1e3, ours / loose
            table.add_row(kind, f"{len(p):,}", *(f"{x:.3g}" for x in figures))
    console.print(table)
    console.print("worst ratios: emd2 / solve {:.2f}, exact / gap {:.2f}".format(*np.min(worst, axis=0)))


def shared_mass(console: Console, side: int) -> None:
    """Print the times of smooth random fields that share some of their mass, on the same points."""
    table = Table("problem", *(f"{share:.1%} shared, ms" for share in SHARES))
    rng = np.random.default_rng(0)
    p, q = (np.exp(gaussian_filter(rng.standard_normal((side, side)), side / 16) * side / 4).ravel() for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    x = np.indices((side, side)).reshape(2, -1).T / side + 0.1 * rng.random((side * side, 2)) / side
    for cost in (DenseCost(ot.dist(x, x)), PointCost(x), GridCost((side, side))):
        row = []
        for share in SHARES:
            mixed = share * p + (1 - share) * q
            seconds, (result, *_) = cpu(partial(certified, p, mixed, cost))
            assert result.status == "optimal"
            row.append(f"{seconds * 1e3:.3g}")
        table.add_row(type(cost).__name__, *row)
    console.print(table)


def main() -> None:
    """Print the tables."""
    console, most = Console(width=120), 400 if "--quick" in sys.argv else max(SIZES)
    chosen = [word for word in sys.argv[1:] if word != "--quick"] or [*KINDS, "shared"]
    if kinds := [kind for kind in KINDS if kind in chosen]:
        sizes(console, most, kinds)
    if "shared" in chosen:
        shared_mass(console, 16 if most == 400 else 32)


if __name__ == "__main__":
    main()
