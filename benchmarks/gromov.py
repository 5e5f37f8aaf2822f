"""Gromov-Wasserstein beside POT, in one run.

    python benchmarks/gromov.py                        # minutes
    python benchmarks/gromov.py --sizes 200 --small    # without large clouds

First clouds of 20,000 points, which have no peer, and copies of clouds; then random problems of 10 to 60 points, and
larger ones in time. Both start from the product of the measures. CPU times on one thread; the lower bound is part of
ours.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import ot
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from gibbsot import PointCost, gromov_wasserstein
from timing import seconds

Array = NDArray[np.float64]

EQUAL = 1e-9  # difference of values that counts as none

console = Console()


def clouds(n: int) -> tuple[Array, Array]:
    """Return a cloud in space and one in the plane."""
    rng = np.random.default_rng(n)
    return rng.normal(size=(n, 3)) * [1.0, 0.8, 0.5], rng.random((n, 2)) * [1.0, 0.6]


def cases(n: int) -> Iterator[tuple[dict[str, Callable[[], Any]], Callable[[], float]]]:
    """Yield problems of n points: ours by what we are given, and POT's value."""
    X, Y = clouds(n)
    squared = cdist(X, X, "sqeuclidean"), cdist(Y, Y, "sqeuclidean")
    plain = np.sqrt(squared[0]), np.sqrt(squared[1])
    rng = np.random.default_rng(0)
    p, q = (w / w.sum() for w in rng.random((2, n)) + 0.1)
    features = PointCost(rng.random((n, 2)), rng.random((n, 2)))
    M = features.matrix()

    def of_pot(C: Array, D: Array, *weights: Array) -> float:
        return float(ot.gromov_wasserstein(C, D, *weights, log=True)[1]["gw_dist"])

    def fused_of_pot() -> float:
        return float(ot.fused_gromov_wasserstein(M, *squared, alpha=0.5, log=True)[1]["fgw_dist"])

    def matrices(C: Array, D: Array, *weights: Array) -> Any:
        return gromov_wasserstein(C, D, *weights, metric="precomputed", n_starts=1)

    ours: dict[str, Callable[[], Any]] = {"clouds": lambda: gromov_wasserstein(X, Y, n_starts=1)}
    yield ours | {"matrices": lambda: matrices(*squared)}, lambda: of_pot(*squared)
    yield {"matrices of plain distances, weights": lambda: matrices(*plain, p, q)}, lambda: of_pot(*plain, p, q)
    fused = {"clouds, fused": lambda: gromov_wasserstein(X, Y, fused=0.5, cost=features, n_starts=1)}
    yield fused, fused_of_pot


def random_problem(seed: int) -> tuple[Array, Array, Array, Array]:
    """Return two clouds in one to three dimensions and weights, which are uniform for every second seed."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(10, 60, 2)
    X, Y = rng.normal(size=(n, rng.integers(1, 4))), rng.random((m, rng.integers(1, 4)))
    p, q = ((rng.random(k) + 0.1) ** (1 - seed % 2) for k in (n, m))
    return X, Y, p / p.sum(), q / q.sum()


def random_problems(count: int = 50) -> None:
    """Compare values with those of POT, from its start and the best of all starts: clouds, matrices, fused."""
    counts_of = "from the same start above POT", "most above", "below POT", "best of starts above POT"
    table = Table(title="Random problems: how many values are more than 1e-9 above or below those of POT")
    for column in ("problems", "count", *counts_of):
        table.add_column(column, justify="right")
    found: dict[str, list[tuple[float, float]]] = {"clouds": [], "matrices of plain distances": [], "clouds, fused": []}
    for seed in range(count):
        X, Y, p, q = random_problem(seed)
        C, D, M = cdist(X, X, "sqeuclidean"), cdist(Y, Y, "sqeuclidean"), cdist(X[:, :1], Y[:, :1], "sqeuclidean")
        fused: dict[str, Any] = {"fused": 0.5, "cost": PointCost(X[:, :1], Y[:, :1])}
        plain = np.sqrt(C), np.sqrt(D)
        cases: tuple[tuple[Any, Any, dict[str, Any], float], ...] = (
            (X, Y, {}, ot.gromov_wasserstein(C, D, p, q, log=True)[1]["gw_dist"]),
            (*plain, {"metric": "precomputed"}, ot.gromov_wasserstein(*plain, p, q, log=True)[1]["gw_dist"]),
            (X, Y, fused, ot.fused_gromov_wasserstein(M, C, D, p, q, alpha=0.5, log=True)[1]["fgw_dist"]),
        )
        for name, (first, second, options, value) in zip(found, cases, strict=True):
            one, best = (gromov_wasserstein(first, second, p, q, n_starts=n, **options).value for n in (1, None))
            found[name].append((one - float(value), best - float(value)))
    for name, differences in found.items():
        one, best = np.array(differences).T
        above = f"{max(float(one.max()), 0.0):.1e}"
        counts = [str(int(x.sum())) for x in (one > EQUAL, one < -EQUAL, best > EQUAL)]
        table.add_row(name, str(count), counts[0], above, *counts[1:])
    console.print(table)


def large() -> None:
    """Time clouds of 20,000 points, which have no peer: POT would need matrices of 3.2 GB each."""
    rng = np.random.default_rng(0)
    n = 20_000
    before = _peak()  # with the modules of POT
    table = Table(title="Clouds of 20,000 points, from one start")
    for column in ("clouds", "seconds", "steps", "value", "lower bound", "status", "peak, MB"):
        table.add_column(column, justify="right")
    square, normal = rng.random((n, 2)) ** 1.5, rng.normal(size=(n, 2)) * [1.0, 0.6]
    wide, unit = rng.random((n, 2)) * [1.0, 0.8], rng.random((n, 2))
    pairs = (
        ("corner and rectangle", square * [1.0, 0.6], wide),
        ("normal and rectangle", normal, wide),
        ("both isotropic", rng.normal(size=(n, 2)), unit),
    )
    for name, X, Y in pairs:
        spent, found = seconds(lambda X=X, Y=Y: gromov_wasserstein(X, Y, n_starts=1))  # type: ignore[misc]
        peak = _peak() - before
        numbers = f"{spent:.1f}", str(found.steps), f"{found.value:.6g}", f"{found.lower_bound:.6g}"
        table.add_row(name, *numbers, found.status, f"{peak:.0f}")
    console.print(table)


def _peak() -> float:
    """Return the peak of the memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def copies() -> None:
    """Print clouds and their rotated and permuted copies, from all starts: value, matching, and what is proved."""
    rng = np.random.default_rng(1)
    table = Table(title="Rotated and permuted copies, from all starts")
    for column in ("dimensions", "points", "seconds", "value / scale", "points matched rightly", "status"):
        table.add_column(column, justify="right")
    for d in (2, 3):
        for n in (200, 2000):
            X, order = rng.random((n, d)) ** np.arange(1, d + 1), rng.permutation(n)
            turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
            spent, found = seconds(lambda X=X, Y=(X @ turn)[order]: gromov_wasserstein(X, Y))  # type: ignore[misc]
            arcs = found.plan.tocoo()
            right = float(arcs.data[order[arcs.col] == arcs.row].sum())
            numbers = f"{spent:.2f}", f"{found.value / found.scale:.0e}", f"{100 * right:.1f}%"
            table.add_row(str(d), str(n), *numbers, found.status)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1000], help="points of problems that are timed")
    parser.add_argument("--small", action="store_true", help="without clouds of 20,000 points")
    options = parser.parse_args()
    threadpool_limits(1)
    if not options.small:
        large()  # first: the peak of the memory is that of the process so far
    copies()
    random_problems()
    table = Table(title="From the product of the measures, seconds of CPU time")
    for column in ("problem", "points", "gibbsot", "POT", "POT / gibbsot", "value", "above POT's", "lower bound"):
        table.add_column(column, justify="right")
    for n in options.sizes:
        for ours, peer in cases(n):
            other, value = seconds(peer)
            for name, work in ours.items():
                spent, found = seconds(work)
                numbers = f"{spent:.3g}", f"{other:.3g}", f"{other / spent:.1f}", f"{value:.6g}"
                table.add_row(name, str(n), *numbers, f"{found.value - value:.1e}", f"{found.lower_bound:.6g}")
    console.print(table)


if __name__ == "__main__":
    main()
