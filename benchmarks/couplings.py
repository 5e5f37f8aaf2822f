"""Exact couplings of minibatches: `exact_plan` beside SciPy, POT and all solvers of lapx, in one run on one thread.

    python benchmarks/couplings.py
    python benchmarks/couplings.py --sizes 4096 8192 --dimensions 2 16 64 784 --repeats 1
    python benchmarks/couplings.py --weights

Both clouds are standard normal, one is shifted; weights are uniform, or with ``--weights`` random, which only POT and
we take. Times are CPU milliseconds for one pair of clouds, with the distances, which the peers get from
``torch.cdist``: the least of a few repetitions, interleaved. The ratio is to the best peer, which is named. lapx is
left out if it is not installed. Above 2,048 points the slowest peers, SciPy, POT and lapx's ``lapjv``, ``lapjvx``,
``lapjvc`` and ``lapmod``, are left out unless ``--all`` is given, but for POT with weights.
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
LAPX = ("lapjv", "lapjvx", "lapjvc", "lapjvs", "lapjvr", "lapjvh", "lapmod")
OLDER, SLOW = ("lapjv", "lapjvx", "lapjvc", "lapmod"), 2048  # the slow ones are left out above 2,048 points
console = Console(width=160)


def distances(x: Points, y: Points) -> Points:
    return (torch.cdist(torch.from_numpy(x), torch.from_numpy(y)) ** 2).numpy()


def scipy_plan(x: Points, y: Points) -> NDArray[np.intp]:
    return linear_sum_assignment(distances(x, y))[1]


def pot_plan(x: Points, y: Points) -> NDArray[np.intp]:
    return ot.emd([], [], distances(x, y), numItermax=10**7).argmax(axis=1)


def lapx_plan(name: str) -> Solver:
    """Return a solver of lapx; `lapjv` returns columns and rows, the others rows and columns."""
    solve, place = getattr(lap, name), 1 if name == "lapjv" else 2
    return lambda x, y: solve(distances(x, y))[place]


def sparse_lapx_plan(x: Points, y: Points) -> NDArray[np.intp]:
    """Return the plan of lapx's solver for sparse matrices, given all entries."""
    assert lap is not None
    n = len(x)
    starts, columns = np.arange(0, n * n + 1, n, dtype=np.int32), np.tile(np.arange(n, dtype=np.int32), n)
    return lap.lapmod(n, distances(x, y).ravel(), starts, columns)[1]


def ours(x: Points, y: Points) -> NDArray[np.intp]:
    return exact_plan(torch.from_numpy(x), torch.from_numpy(y)).j.numpy()


def uniform_solvers(n: int, every: bool) -> dict[str, Solver]:
    """Return the solvers for uniform weights."""
    solvers: dict[str, Solver] = {}
    if every or n <= SLOW:
        solvers |= {"SciPy": scipy_plan, "POT": pot_plan}
    for name in LAPX if lap is not None else ():
        if every or n <= SLOW or name not in OLDER:
            solvers[name] = sparse_lapx_plan if name == "lapmod" else lapx_plan(name)
    return solvers | {"exact_plan": ours}


def weighted_milliseconds(pairs: list[tuple[Points, Points]], repeats: int) -> dict[str, float]:
    """Return the least times with random weights, and check the costs of the plans."""
    rng = np.random.default_rng(1)
    weights = [[w / w.sum() for w in rng.random((2, len(x))) + 0.1] for x, _ in pairs]

    def pot(x: Points, y: Points, p: Points, q: Points) -> float:
        C = distances(x, y)
        return float((ot.emd(p, q, C, numItermax=10**7) * C).sum())

    def own(x: Points, y: Points, p: Points, q: Points) -> float:
        plan = exact_plan(*(torch.from_numpy(z) for z in (x, y, p, q)))
        i, j = plan.i.numpy(), plan.j.numpy()
        return float(plan.mass.numpy() @ ((x[i] - y[j]) ** 2).sum(axis=1))

    least, costs = {"POT": np.inf, "exact_plan": np.inf}, {}
    for _ in range(repeats):
        for name, solve in (("POT", pot), ("exact_plan", own)):
            start = time.process_time()
            costs[name] = sum(solve(x, y, p, q) for (x, y), (p, q) in zip(pairs, weights, strict=True))
            least[name] = min(least[name], 1e3 * (time.process_time() - start) / len(pairs))
    assert abs(costs["POT"] - costs["exact_plan"]) <= 1e-8 * costs["POT"], costs
    return least


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
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256, 1024, 2048])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 16, 64, 784])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--weights", action="store_true", help="random weights instead of uniform ones")
    parser.add_argument("--all", action="store_true", help="the slowest peers at every size")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if lap is None and not options.weights:
        console.print("lapx is not installed and left out: pip install lapx")
    names = ["POT", "exact_plan"] if options.weights else list(uniform_solvers(min(options.sizes), options.all))
    kind = "random" if options.weights else "uniform"
    table = Table(title=f"one pair of clouds, {kind} weights, ms of CPU time, kernels: {native.name()}")
    for column in ("points", "dimensions", *names, "best peer", "ratio"):
        table.add_column(column, justify="right")
    rng, worst = np.random.default_rng(0), np.inf
    for n in options.sizes:
        for d in options.dimensions:
            pairs = [(rng.normal(size=(n, d)), rng.normal(size=(n, d)) + 0.5) for _ in range(max(1, 1024 // n))]
            if options.weights:
                found = weighted_milliseconds(pairs, options.repeats)
            else:
                found = milliseconds(uniform_solvers(n, options.all), pairs, options.repeats)
            best = min((t, name) for name, t in found.items() if name != "exact_plan")
            ratio = best[0] / found["exact_plan"]
            worst = min(worst, ratio)
            times = (f"{found[name]:.3g}" if name in found else "-" for name in names)
            table.add_row(str(n), str(d), *times, best[1], f"{ratio:.2f}")
    console.print(table)
    console.print(f"worst ratio {worst:.2f}")


if __name__ == "__main__":
    main()
