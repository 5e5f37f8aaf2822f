"""Unbalanced transport with divergences beside POT, in one run.

    python benchmarks/unbalanced.py            # minutes
    python benchmarks/unbalanced.py --large    # with 10,000 and 100,000 points, and photographs

CPU times on one thread. Values of POT are those of its plans, whose iterations stop at its own limits.
"""

from __future__ import annotations

import argparse

import numpy as np
import ot
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from gibbsot import Cost, GridCost, PointCost, solve
from timing import seconds

Array = NDArray[np.float64]

console = Console()


def cloud(n: int) -> tuple[Array, Array, Cost]:
    """Return uniform weights and the cost between two clouds in the plane, one of them shifted."""
    rng = np.random.default_rng(n)
    p = np.full(n, 1 / n)
    return p, p, PointCost(rng.random((n, 2)), 0.8 * rng.random((n, 2)) + 0.3)


def image(n: int) -> tuple[Array, Array, Cost]:
    """Return two smooth images of n x n pixels."""
    axis = np.linspace(0, 1, n)
    rng = np.random.default_rng(n)
    blobs = [np.exp(-((axis[:, None] - a) ** 2 + (axis - b) ** 2) / 0.02) for a, b in rng.random((8, 2))]
    first, second = 0.05 + sum(blobs[:4]), 0.05 + sum(blobs[4:])
    return (first / first.sum()).ravel(), (second / second.sum()).ravel(), GridCost((n, n))


def timed(table: Table, name: str, problem: tuple[Array, Array, Cost], rho: float, gap: float) -> float:
    """Add a row of ours, and return its time."""
    own, found = seconds(lambda: solve(*problem, kl=rho, gap=gap))
    table.add_row(f"{name}, gap {gap:g}", "gibbsot", f"{own:.3f}", f"{found.value:.8f}", f"{found.gap:.0e}", "")
    return own


def compare(table: Table, n: int, rho: float) -> None:
    """Add the rows of clouds of n points, ours and POT's."""
    p, q, cost = problem = cloud(n)
    times = {gap: timed(table, f"{n:,} points, rho {rho:g}", problem, rho, gap) for gap in (1e-3, 1e-4, 1e-6, 1e-9)}
    M = np.asarray(cost.matrix(), np.float64)
    runs = {
        "mm_unbalanced": lambda: ot.unbalanced.mm_unbalanced(p, q, M, rho, log=True)[1]["total_cost"],
        "sinkhorn_unbalanced, epsilon 0.001": lambda: entropic(p, q, M, rho, 1e-3),
        "lbfgsb_unbalanced": lambda: ot.unbalanced.lbfgsb_unbalanced(p, q, M, 0, rho, log=True)[1]["total_cost"],
    }
    if n > 50:
        del runs["lbfgsb_unbalanced"]  # minutes, or hours
    for name, run in runs.items():
        own, value = seconds(run)
        ratio = f"{own / times[1e-4]:.0f} x"
        table.add_row(f"{n:,} points, rho {rho:g}", f"POT, {name}", f"{own:.3f}", f"{value:.8f}", "none", ratio)


def entropic(p: Array, q: Array, M: Array, rho: float, epsilon: float) -> float:
    """Return the objective, without entropy, of POT's plan with entropy."""
    Z = ot.unbalanced.sinkhorn_unbalanced(p, q, M, epsilon, rho, method="sinkhorn_stabilized", numItermax=10_000)
    value = float((Z * M).sum())
    for a, w in ((Z.sum(axis=1), p), (Z.sum(axis=0), q)):
        value += rho * float((a * np.log(a / w)).sum() - a.sum() + w.sum())
    return value


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="with large clouds and images")
    large = parser.parse_args().large
    table = Table(title="Unbalanced transport, CPU seconds; the last column is relative to ours at a gap of 1e-4")
    for name in ("problem", "by", "seconds", "value", "certified gap", "ratio"):
        table.add_column(name)
    with threadpool_limits(1):
        for n, rho in ((50, 0.1), (200, 0.1), (200, 1.0), (1000, 0.1)):
            compare(table, n, rho)
        many = ((10_000, 1e-3), (10_000, 1e-6), (100_000, 1e-3)) if large else ()
        for n, gap in many:
            timed(table, f"{n:,} points, rho 0.1", cloud(n), 0.1, gap)
        for gap in (1e-2, 1e-3, 1e-6) if large else ():
            timed(table, "64 x 64 pixels, rho 0.05", image(64), 0.05, gap)
    console.print(table)


if __name__ == "__main__":
    main()
