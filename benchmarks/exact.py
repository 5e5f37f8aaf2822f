"""Exact values by crossover against POT's network simplex on the full matrix, one thread, in one run.

    python benchmarks/exact.py

The faces are those that ``GIBBSOT_FACES`` names or that scikit-learn can download; without them that part is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import ot
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import data
from gibbsot import GridCost, PointCost, datasets, solve, solve_batch

Weights = NDArray[np.float64]
console = Console(width=120)


def timed(work: Callable[[], Any], rounds: int = 1) -> tuple[float, Any]:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return min(times), result


def emd2_all(P: Weights, Q: Weights, M: NDArray[np.floating]) -> Weights:
    return np.array([ot.emd2(p, q, M, numItermax=100_000_000) for p, q in zip(P, Q, strict=True)])


def alone(p: Weights, q: Weights, shape: tuple[int, int]) -> tuple[float, float]:
    """Return the seconds of an exact solution and the peak of this process in MB, where the system tells it."""
    seconds, result = timed(partial(solve, p, q, GridCost(shape), exact=True))
    assert result.status == "optimal"
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else ["VmHWM: nan"]
    return seconds, next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def faces(table: Table) -> None:
    peer = np.nan
    for shape, target in (((32, 27), "6"), ((56, 46), "12")):
        images = data.faces(shape, console)
        if images is None:
            return
        pairs = images[[0, 105, 20, 305][: 2 if shape[0] > 50 else 4]]
        cost = GridCost(shape)
        P, Q = pairs[::2], pairs[1::2]
        ours, result = timed(partial(solve_batch, P, Q, cost, exact=True), rounds=3)
        peer, exact = timed(partial(emd2_all, P, Q, cost.matrix()))
        assert set(result.status) == {"optimal"}
        assert np.allclose(exact, result.value, rtol=1e-9)
        name = f"{len(P)} pair(s) of faces {shape[0]} x {shape[1]}"
        table.add_row(name, f"{ours:.3g} s", f"{peer:.3g} s", f"{peer / ours:.3g}", f">= {target}")
        if shape == (32, 27):
            against_sweeps(P[0], Q[0], cost)

    shape = (112, 92)
    images = data.faces(shape, console)
    if images is None:
        return
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        ours, megabytes = pool.submit(alone, images[0], images[105], shape).result()
    name = f"1 pair of faces {shape[0]} x {shape[1]}"
    table.add_row(name, f"{ours:.3g} s", f"(56 x 46: {peer:.3g} s)", f"{peer / ours:.3g}", "> 1")
    table.add_row("   peak of the process", f"{megabytes:.0f} MB", "", "", "< 500 MB")


def against_sweeps(p: Weights, q: Weights, cost: GridCost) -> None:
    """Print the time and the certified gap of one pair for several numbers of sweeps."""
    sweeps = Table(title="a pair of faces 32 x 27: time and certified relative gap against sweeps")
    for column in ("sweeps", "annealing", "gap of the sampled potentials", "gap with the simplex's potentials"):
        sweeps.add_column(column, justify="right")
    for n in (100, 300, 1000, 3000, 10_000):
        seconds, result = timed(partial(solve, p, q, cost, n_sweeps=n))
        sampled = 1 - result.lower_bound / result.upper_bound
        sweeps.add_row(f"{n:,}", f"{seconds * 1e3:.3g} ms", f"{sampled:.2%}", f"{result.gap:.1e}")
    console.print(sweeps)


def fives(table: Table) -> None:
    Q = datasets.mnist_fives()
    p = Q.mean(axis=0) + 1e-6
    p /= p.sum()
    cost = GridCost((28, 28))
    M = cost.matrix()

    def loop() -> Weights:
        return np.array([ot.emd2(p, q[q > 0], np.ascontiguousarray(M[:, q > 0])) for q in Q])

    ours, result = timed(lambda: solve_batch(p, Q, cost, exact=True), rounds=2)
    peer, exact = timed(loop)
    assert np.allclose(exact, result.value, rtol=1e-9)
    table.add_row("200 fives against their mean", f"{ours:.3g} s", f"{peer:.3g} s", f"{peer / ours:.3g}", ">= 2")


def clouds(table: Table) -> None:
    rng = np.random.default_rng(0)
    cost = PointCost(rng.random((2000, 2)), rng.random((2000, 2)))
    M, uniform = cost.matrix(), np.full(2000, 1 / 2000)
    for name, p, q in (
        ("random", rng.dirichlet(np.ones(2000)), rng.dirichlet(np.ones(2000))),
        ("uniform", uniform, uniform),
    ):
        ours, result = timed(partial(solve, p, q, cost, exact=True), rounds=3)
        peer, exact = timed(partial(ot.emd2, p, q, M, numItermax=100_000_000), rounds=3)
        assert np.isclose(exact, result.value, rtol=1e-9)
        table.add_row(
            f"2,000 x 2,000 points, {name} weights", f"{ours:.3g} s", f"{peer:.3g} s", f"{peer / ours:.3g}", ">= 1.5"
        )


def main() -> None:
    table = Table(title="exact values: crossover against ot.emd2 on the full matrix")
    for column in ("problem", "ours", "POT", "ratio", "target"):
        table.add_column(column, justify="left" if column == "problem" else "right")
    faces(table)
    fives(table)
    clouds(table)
    console.print(table)


if __name__ == "__main__":
    main()
