"""CPU time of the operations of costs, in milliseconds, on one thread: which way is fastest at which size.

    python benchmarks/costs.py

The constants in ``costs/points.py`` and ``native/minplus_grid.hpp`` come from these figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gibbsot import GridCost, PointCost, Problem
from gibbsot.costs import points
from gibbsot.sampling import sampler

Array = NDArray[np.float64]


def milliseconds(work: Callable[[], Any], rounds: int = 3) -> float:
    """Return the least CPU time of a call."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def point_costs() -> None:
    """Compare a stored matrix, k-d trees and distances that are computed on the way."""
    print("dimensions, points, dtype | matrix made | c-transform: matrix, trees, computed | sweep: matrix, computed")
    for d, m, dtype in product((2, 3, 10, 50), (1000, 2000, 4000), (np.float32, np.float64)):
        rng = np.random.default_rng(0)
        X, Y = rng.random((m, d)), rng.random((m, d))
        made, matrix, sweep = times_of(X, Y, dtype, matrix=True)
        _, computed, slow = times_of(X, Y, dtype)
        trees = f"{times_of(X, Y, dtype, trees=True)[1]:.2f}" if d <= 3 else "-"
        name = np.dtype(dtype).name
        print(f"{d:2} {m} {name} | {made:.1f} | {matrix:.2f}, {trees}, {computed:.2f} | {sweep:.2f}, {slow:.2f}")


def times_of(X: Array, Y: Array, dtype: DTypeLike, matrix: bool = False, trees: bool = False) -> tuple[float, ...]:
    """Return the times of a first and of a later c-transform, and of a sweep."""
    points.MATRIX_BYTES, points.TREE_PAIRS = 2**40 if matrix else 0, 0 if trees else 2**60
    cost, smooth = PointCost(X, Y, dtype=dtype), 0.3 * (Y**2).sum(axis=1)
    first = milliseconds(lambda: cost.row_min(smooth), 1)
    pair = Problem(np.ones(len(X)), np.ones(len(Y)), cost)
    state, T = sampler.init(pair), np.full(5, 1e-3)
    return first, milliseconds(lambda: cost.row_min(smooth)), milliseconds(lambda: sampler.run(state, pair, T)) / 5


def grid_costs() -> None:
    """Time c-transforms and searches on square grids, for potentials of several kinds."""
    print("side, power, dtype | c-transform: smooth, with noise, hot, half empty, in batches | 8 nearest")
    for n, power, dtype in product((32, 64, 128, 256, 512, 1024), (1, 2), (np.float32, np.float64)):
        cost, x, rng = GridCost((n, n), power, dtype=dtype), np.arange(n) / n, np.random.default_rng(0)
        smooth = 0.3 * (x[:, None] ** 2 + 0.2 * np.sin(5 * x)).ravel()
        hot = smooth + rng.exponential(size=n * n)
        kinds = (smooth, smooth + 1e-3 * hot, hot, np.where(rng.random(n * n) < 0.5, smooth, np.inf))
        transforms = [milliseconds(partial(cost.row_min, h)) for h in kinds]
        transforms.append(milliseconds(partial(cost.row_min, np.tile(smooth, (4, 1)))) / 4)
        nearest = milliseconds(partial(cost.nearest, kinds[1], 8), 1)
        times = ", ".join(f"{t:.2f}" for t in transforms)
        print(f"{n:4} {power} {np.dtype(dtype).name} | {times} | {nearest:.1f}", flush=True)


if __name__ == "__main__":
    point_costs()
    grid_costs()
