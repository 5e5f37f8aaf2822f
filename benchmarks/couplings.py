"""Exact couplings of minibatches: `exact_plan` beside SciPy, POT and lapx, in one run on one thread.

    python benchmarks/couplings.py

Both clouds are standard normal, one is shifted; weights are uniform. Times are CPU milliseconds for one pair of clouds,
with the distances, which the peers get from ``torch.cdist``: the least of a few repetitions, interleaved. The ratio is
to the best peer. lapx is left out if it is not installed.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import importlib.util
import time
from collections.abc import Callable

import numpy as np
import ot
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment

from gibbsot.core import native
from gibbsot.torch import exact_plan

lap = importlib.import_module("lap") if importlib.util.find_spec("lap") else None

Points = NDArray[np.float64]
Solver = Callable[[Points, Points], NDArray[np.intp]]
TARGETS = {64: 1 / 1.2, 256: 1.0, 1024: 2.0}  # how much faster than the best peer
console = Console(width=120)


def distances(x: Points, y: Points) -> Points:
    return (torch.cdist(torch.from_numpy(x), torch.from_numpy(y)) ** 2).numpy()


def scipy_plan(x: Points, y: Points) -> NDArray[np.intp]:
    return linear_sum_assignment(distances(x, y))[1]


def pot_plan(x: Points, y: Points) -> NDArray[np.intp]:
    return ot.emd([], [], distances(x, y), numItermax=10**7).argmax(axis=1)


def lapx_plan(x: Points, y: Points) -> NDArray[np.intp]:
    assert lap is not None
    return lap.lapjv(distances(x, y))[1]


def ours(x: Points, y: Points) -> NDArray[np.intp]:
    return exact_plan(torch.from_numpy(x), torch.from_numpy(y)).j.numpy()


def milliseconds(solvers: dict[str, Solver], pairs: list[tuple[Points, Points]], repeats: int) -> dict[str, float]:
    """Return the least times, and check that all solvers find plans of the same cost."""
    least, costs = dict.fromkeys(solvers, np.inf), {}
    for _ in range(repeats):
        for name, solve in solvers.items():
            start = time.process_time()
            found = [solve(x, y) for x, y in pairs]
            least[name] = min(least[name], 1e3 * (time.process_time() - start) / len(pairs))
            costs[name] = sum(float(((x - y[j]) ** 2).sum()) for (x, y), j in zip(pairs, found, strict=True))
    spread = max(costs.values()) - min(costs.values())
    assert spread <= 1e-9 * max(costs.values()), costs
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 64, 784])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    solvers: dict[str, Solver] = {"SciPy": scipy_plan, "POT": pot_plan}
    if lap is None:
        console.print("lapx is not installed and left out: pip install lapx")
    else:
        solvers["lapx"] = lapx_plan
    solvers["exact_plan"] = ours
    table = Table(title=f"one pair of clouds, ms of CPU time, kernels: {native.name()}")
    for column in ("points", "dimensions", *solvers, "best peer / ours", "target", ""):
        table.add_column(column, justify="right")
    rng = np.random.default_rng(0)
    for n in options.sizes:
        for d in options.dimensions:
            pairs = [(rng.normal(size=(n, d)), rng.normal(size=(n, d)) + 0.5) for _ in range(max(1, 1024 // n) * 2)]
            found = milliseconds(solvers, pairs, options.repeats)
            ratio = min(t for name, t in found.items() if name != "exact_plan") / found["exact_plan"]
            target = TARGETS.get(n, 1.0)
            good = "[green]yes" if ratio >= target else "[red]no"
            table.add_row(str(n), str(d), *(f"{t:.3g}" for t in found.values()), f"{ratio:.2f}", f"{target:.2f}", good)
    console.print(table)


if __name__ == "__main__":
    main()
