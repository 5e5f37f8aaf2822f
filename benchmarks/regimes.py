"""What people bring, beside every peer that applies: small batches, the line, high dimension, awkward shapes.

    python benchmarks/regimes.py [--quick] [--growth] [GROUP ...]

CPU time on one thread, from points or matrices to values; ours with checks, bounds and status. All solvers of a row
run in turn, in an order that changes, as each finds in the cache what the last one left; in one process, in double
precision; the least of a few repetitions counts, and values agree to 1e-7.
Rows were chosen before they were measured, and none is left out: a ratio below 1 means that a peer is faster. lapx is
left out if it is not installed. Groups: batches, line, assignment, dimension, points, shapes. ``--quick`` has the same
rows with fewer or smaller problems. ``--growth`` prints a second table: time and peak memory for sizes that double, up
to a million points in the plane and 16,000 in 64 dimensions, with the fitted exponent; groups: plane, "64 dimensions".
"""

from __future__ import annotations

import os

# one thread, also for what POT, SciPy and BLAS call; before NumPy is imported
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import importlib.util
import math
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import ot
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from scipy.stats import wasserstein_distance

from gibbsot import DenseCost, PointCost, solve, solve_batch
from gibbsot.core import native
from timing import seconds

Array = NDArray[np.float64]
Solver = Callable[[], float]  # returns the value, or the sum of those of a batch

GROUPS = ("batches", "line", "assignment", "dimension", "points", "shapes")
GROWING = ("plane", "64 dimensions")
LAPX = ("lapjv", "lapjvr", "lapjvh", "lapjvs")
lap = importlib.import_module("lap") if importlib.util.find_spec("lap") else None
console = Console(width=120)


class Row(NamedTuple):
    """A problem, our solver and the peers."""

    group: str
    name: str
    ours: Solver
    peers: dict[str, Solver]


def same(C: Array) -> Array:
    """Return a matrix that is given."""
    return C


def matrix_peers(C: Callable[[], Array], p: Any = None, q: Any = None) -> dict[str, Solver]:
    """Return POT, and for couplings with uniform weights SciPy's and lapx's solvers, on the same matrix."""

    def emd2() -> float:
        weights = ([], []) if p is None else (p, q)
        return float(ot.emd2(*weights, C(), numItermax=10**9))

    return {"POT": emd2}


def assignment_peers(C: Callable[[], Array]) -> dict[str, Solver]:
    """Return solvers of assignments, whose value is a mean."""

    def scipy() -> float:
        M = C()
        return float(M[linear_sum_assignment(M)].mean())

    def lapx(name: str) -> float:
        M = C()
        return float(getattr(lap, name)(M)[0]) / len(M)

    return {"SciPy": scipy} | ({name: partial(lapx, name) for name in LAPX} if lap is not None else {})


def exact(p: Any, q: Any, cost: Callable[[], Any], **options: Any) -> Solver:
    """Return our solver of one problem, with value, bounds and status."""

    def call() -> float:
        found = solve(p, q, cost(), **options)
        assert found.lower_bound <= found.value <= found.upper_bound
        assert found.status in ("optimal", "gap reached", "budget spent"), found.status
        return float(found.value)

    return call


def batches(quick: bool) -> Iterator[Row]:
    """Yield many small problems, given as a list."""
    rng = np.random.default_rng(0)

    def ours(problems: list[Any]) -> float:
        found = solve_batch(None, None, problems)
        assert (found.lower_bound <= found.upper_bound).all()
        return float(found.value.sum())

    def clouds(pairs: list[tuple[Array, Array]]) -> float:
        return float(sum(ot.emd2([], [], ot.dist(X, Y)) for X, Y in pairs))

    for n, d, count in ((8, 2, 5000), (30, 2, 5000), (30, 100, 2000)):
        count = count // 10 if quick else count
        pairs = [(rng.random((n, d)), rng.random((n, d))) for _ in range(count)]
        name = f"{count:,} pairs of clouds of {n} points, {d} dimensions"
        yield Row("batches", name, partial(ours, pairs), {"POT": partial(clouds, pairs)})
        objects = [PointCost(X, Y) for X, Y in pairs]
        yield Row("batches", f"{name}, as PointCost", partial(ours, objects), {"POT": partial(clouds, pairs)})
    count = 500 if quick else 5000
    matrices = [rng.random((20, 25)) for _ in range(count)]
    peer = partial(lambda every: float(sum(ot.emd2([], [], C) for C in every)), matrices)
    yield Row("batches", f"{count:,} matrices 20 x 25 in a list", partial(ours, matrices), {"POT": peer})
    sizes = rng.integers(50, 200, (count // 5, 2))
    samples = [(rng.normal(size=m), rng.normal(size=n), "euclidean") for m, n in sizes]
    peers: dict[str, Solver] = {
        "SciPy": lambda: float(sum(wasserstein_distance(x, y) for x, y, _ in samples)),
        "POT": lambda: float(sum(ot.emd2_1d(x, y, metric="euclidean") for x, y, _ in samples)),
    }
    yield Row("batches", f"{len(samples):,} pairs of 1-D samples of 50 to 200", partial(ours, samples), peers)


def line(quick: bool) -> Iterator[Row]:
    """Yield samples on the line."""
    rng = np.random.default_rng(0)
    for n in (100, 1000, 10_000 if quick else 100_000, 20_000 if quick else 1_000_000):
        x, y, p, q = rng.normal(size=n), rng.normal(size=n) + 0.5, rng.random(n), rng.random(n)
        p, q = p / p.sum(), q / q.sum()
        for kind, power in (("euclidean", 1), ("sqeuclidean", 2)):
            name = f"1-D samples, W{power}, n = {n:,}"
            peers: dict[str, Solver] = {"POT": partial(lambda x, y, k: float(ot.emd2_1d(x, y, metric=k)), x, y, kind)}
            weighted: dict[str, Solver] = {
                "POT": partial(lambda x, y, p, q, k: float(ot.emd2_1d(x, y, p, q, metric=k)), x, y, p, q, kind)
            }
            if power == 1:
                peers["SciPy"] = partial(lambda x, y: float(wasserstein_distance(x, y)), x, y)
                weighted["SciPy"] = partial(lambda x, y, p, q: float(wasserstein_distance(x, y, p, q)), x, y, p, q)
            yield Row("line", name, exact(None, None, partial(PointCost, x, y, kind)), peers)
            yield Row("line", f"{name}, weights", exact(p, q, partial(PointCost, x, y, kind)), weighted)


def assignment(quick: bool) -> Iterator[Row]:
    """Yield couplings with uniform weights, from matrices."""
    rng = np.random.default_rng(0)
    for n in (256, 512) if quick else (256, 1024, 2048, 4096):
        X, Y = rng.normal(size=(2, n, 64))
        C = ot.dist(X, Y)
        peers = assignment_peers(partial(same, C)) | matrix_peers(partial(same, C))
        yield Row(
            "assignment",
            f"coupling of {n:,} points in 64 dimensions, matrix",
            exact(None, None, partial(same, C)),
            peers,
        )
    n = 600 if quick else 4000
    M = rng.random((n, n))
    yield Row("assignment", f"random assignment, n = {n:,}", exact(None, None, lambda: M), assignment_peers(lambda: M))


def dimension(quick: bool) -> Iterator[Row]:
    """Yield points in many dimensions, from the points."""
    rng = np.random.default_rng(0)
    for n, d in ((200, 784), (600, 64)) if quick else ((1000, 784), (8000, 64)):
        X, Y = rng.normal(size=(2, n, d))
        peers = assignment_peers(partial(ot.dist, X, Y))
        if n <= 1000:
            peers |= matrix_peers(partial(ot.dist, X, Y))
        yield Row("dimension", f"{n:,} points in {d} dimensions", exact(None, None, partial(PointCost, X, Y)), peers)
    n = 2000 if quick else 20_000
    X, Y = rng.normal(size=(2, n, 64))
    # the matrix of the peers would take 3.2 GB: there is none
    limit = 10 if quick else 300
    ours = exact(None, None, partial(PointCost, X, Y), max_seconds=limit)
    yield Row("dimension", f"{n:,} points in 64 dimensions, at most {limit} s", ours, {})


def points(quick: bool) -> Iterator[Row]:
    """Yield points in the plane, with several distances."""
    rng = np.random.default_rng(0)
    n = 800 if quick else 4000
    X, Y = rng.random((2, n, 2))
    for metric in ("sqeuclidean", "euclidean", "cityblock", "chebyshev"):
        peers = matrix_peers(partial(ot.dist, X, Y, metric))
        yield Row(
            "points", f"{n:,} points in the plane, {metric}", exact(None, None, partial(PointCost, X, Y, metric)), peers
        )
    n = 3000 if quick else 50_000
    X, Y = rng.random((2, n, 2))
    for metric in ("sqeuclidean", "euclidean", "cityblock", "chebyshev"):
        yield Row(
            "points", f"{n:,} points in the plane, {metric}", exact(None, None, partial(PointCost, X, Y, metric)), {}
        )
    n = 6000 if quick else 1_000_000
    X, Y = rng.random((2, n, 2))
    yield Row("points", f"{n:,} points in the plane", exact(None, None, partial(PointCost, X, Y)), {})


def shapes(quick: bool) -> Iterator[Row]:
    """Yield what is awkward: long matrices, ties, duplicates, lines in the plane, far clouds, few heavy weights."""
    rng = np.random.default_rng(0)
    wide = 2000 if quick else 20_000
    for m in (20, 100) if quick else (20, 100, 1000):
        p, q = rng.dirichlet(np.ones(m)), rng.dirichlet(np.ones(wide))
        X, Y = rng.random((m, 2)), rng.random((wide, 2))
        C = rng.random((m, wide))
        yield Row(
            "shapes", f"matrix {m} x {wide:,}", exact(p, q, partial(same, C)), matrix_peers(partial(same, C), p, q)
        )
        peers = matrix_peers(partial(ot.dist, X, Y), p, q)
        yield Row("shapes", f"points {m} x {wide:,}", exact(p, q, partial(PointCost, X, Y)), peers)
    n = 300 if quick else 1500
    p, q = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(n))
    zero_one = (rng.random((n, n)) < 0.99).astype(np.float64)
    yield Row("shapes", f"0/1 costs, n = {n:,}", exact(p, q, lambda: zero_one), matrix_peers(lambda: zero_one, p, q))
    whole = rng.integers(0, 10, (n, n)).astype(np.float64)
    yield Row("shapes", f"costs 0 to 9, n = {n:,}", exact(p, q, lambda: whole), matrix_peers(lambda: whole, p, q))
    few = rng.random((n // 20, 2))
    clouds = {
        "duplicates": (few[rng.integers(0, len(few), n)], few[rng.integers(0, len(few), n)]),
        "collinear points": (np.outer(rng.random(n), [1.0, 2.0]), np.outer(rng.random(n), [1.0, 2.0])),
        "far-apart clouds": (rng.random((n, 2)), rng.random((n, 2)) + 1e4),
        "half in common": (
            common := rng.random((n, 2)),
            np.concatenate([common[: n // 2], rng.random((n - n // 2, 2))]),
        ),
    }
    for name, (X, Y) in clouds.items():
        peers = matrix_peers(partial(ot.dist, X, Y), p, q)
        yield Row("shapes", f"{name}, n = {n:,}", exact(p, q, partial(PointCost, X, Y)), peers)
    p, q = rng.dirichlet(np.full(n, 0.02)), rng.dirichlet(np.full(n, 0.02))
    M = rng.random((n, n))
    X, Y = rng.random((2, n, 2))
    dense, distances = matrix_peers(lambda: M, p, q), matrix_peers(lambda: ot.dist(X, Y), p, q)
    yield Row("shapes", f"Dirichlet weights of 0.02, matrix, n = {n:,}", exact(p, q, partial(DenseCost, M)), dense)
    yield Row(
        "shapes", f"Dirichlet weights of 0.02, points, n = {n:,}", exact(p, q, partial(PointCost, X, Y)), distances
    )


ROWS = {
    "batches": batches,
    "line": line,
    "assignment": assignment,
    "dimension": dimension,
    "points": points,
    "shapes": shapes,
}


def measured(row: Row, least: float) -> tuple[dict[str, float], dict[str, float]]:
    """Return the least times of all solvers of a row, and their values; fast ones run more often."""
    solvers = {"ours": row.ours, **row.peers}
    best, values, spent = (
        dict.fromkeys(solvers, math.inf),
        dict.fromkeys(solvers, math.nan),
        dict.fromkeys(solvers, 0.0),
    )
    rounds, rng = 0, np.random.default_rng(0)
    while rounds < 1 or (rounds < 400 and max(spent.values()) < least):
        for name in rng.permutation(list(solvers)).tolist():
            taken, values[name] = seconds(solvers[name])
            best[name], spent[name] = min(best[name], taken), spent[name] + taken
        rounds += 1
    return best, values


def shown(taken: float) -> str:
    """Return a time in milliseconds."""
    return f"{1e3 * taken:,.3g}" if taken < 1 else f"{1e3 * taken:,.0f}"


def compare(quick: bool, groups: list[str]) -> None:
    """Print the table, the worst ratio, and the share of rows with a ratio of at least 2."""
    table = Table("problem", "ours, ms", "best peer, ms", "peer", "peer / ours", title=f"kernels: {native.name()}")
    ratios: list[tuple[float, str]] = []
    for group in groups:
        for row in ROWS[group](quick):
            best, values = measured(row, 0.2 if quick else 1.0)
            ours = best.pop("ours")
            wrong = [name for name in best if abs(values[name] - values["ours"]) > 1e-7 * abs(values["ours"]) + 1e-12]
            assert not wrong, (row.name, values)
            if not best:
                table.add_row(row.name, shown(ours), "", "", "")
                continue
            peer = min(best, key=lambda name: best[name])
            ratios.append((best[peer] / ours, row.name))
            table.add_row(row.name, shown(ours), shown(best[peer]), peer, f"{ratios[-1][0]:.2f}x")
    console.print(table)
    if ratios:
        worst, twice = min(ratios), sum(ratio >= 2 for ratio, _ in ratios) / len(ratios)
        console.print(f"worst ratio {worst[0]:.2f}x ({worst[1]}); at least 2x in {twice:.0%} of {len(ratios)} rows")


def grown(kind: str, n: int) -> None:
    """Solve one problem of the second table; print its time, the growth of the peak memory in MB, and the gap."""
    rng = np.random.default_rng(n)
    X, Y = rng.random((2, n, 2)) if kind == "plane" else rng.normal(size=(2, n, 64))
    solve(None, None, PointCost(X[:200], Y[:200]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken, found = seconds(lambda: solve(None, None, PointCost(X, Y)))
    print(taken, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, found.gap)


def growth(quick: bool, kinds: list[str]) -> None:
    """Print times and memory for sizes that double, and exponents fitted to the last five."""
    most = {"plane": 16_000, "64 dimensions": 2000} if quick else {"plane": 1_000_000, "64 dimensions": 16_000}
    most = {kind: most[kind] for kind in kinds or most}
    for kind, largest in most.items():
        table = Table("points", "seconds", "MB", "gap", title=f"uniform weights, {kind}")
        n, sizes, times = 1000 if kind == "plane" else 500, list[int](), list[float]()
        while n <= largest:
            command = [sys.executable, __file__, "--one", kind, str(n)]
            taken, memory, gap = map(
                float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            )
            sizes.append(n)
            times.append(taken)
            table.add_row(f"{n:,}", f"{taken:.3g}", f"{memory:,.0f}", f"{gap:.1e}")
            n = min(2 * n, largest) if n < largest else largest + 1
        console.print(table)
        slope = np.polyfit(np.log(sizes[-5:]), np.log(times[-5:]), 1)[0]
        console.print(f"time grows as n^{slope:.2f}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", help=", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = GROWING if options.growth else GROUPS
    if unknown := set(options.groups) - set(known):
        parser.error(f"groups: expected some of {', '.join(known)}, got {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore")
    if options.one:
        grown(options.one[0], int(options.one[1]))
        return
    if lap is None:
        console.print("lapx is not installed and left out: pip install lapx")
    if options.growth:
        growth(options.quick, options.groups)
    else:
        compare(options.quick, options.groups or list(GROUPS))


if __name__ == "__main__":
    main()
