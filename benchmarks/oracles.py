"""Which oracle when: chains and exact duals in one fit of Wasserstein NMF, quality over time, in one run.

    python benchmarks/oracles.py [fives] [faces] [topics] [--seconds 10]

The optimiser is that of the model, mirror descent with mean models, from scikit-learn's NMF, which is not timed. What
differs is where the gradients come from:

- warm chains: `WassersteinNMF` as it is;
- cold chains: the same, with every chain started anew in every epoch;
- refreshed exact duals: every measure is solved exactly in every epoch;
- stale exact duals: a quarter of the measures is solved in every epoch, and the others keep their duals.

Exact duals have no noise, but jump between vertices; their steps have a fixed size that served well on the fives.
Seconds are CPU seconds of one thread; the exact objectives of the curves, over at most 40 measures, are not timed.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import data as optional
from gibbsot import GridCost, PointCost, WassersteinNMF, datasets, plots, solve_batch
from gibbsot.costs import mean_cost
from gibbsot.models._base import SMOOTHING
from gibbsot.models.nmf.start import nmf_factors
from gibbsot.oracle.chains import TargetChains
from gibbsot.oracle.mirror_descent import logarithms, mirror_step

EXACT_STEPS = 2.0, 1.5  # of components and memberships
MEMORY = 3  # of the mean models
STALE = 4  # epochs until all duals are renewed
COLOURS = {
    "warm chains": plots.PINK,
    "cold chains": plots.PALE_PINK,
    "refreshed exact duals": plots.GREEN,
    "stale exact duals": plots.PALE_GREEN,
}

Array = NDArray[np.float64]
Curve = list[tuple[float, float]]
console = Console(width=120)


class Data(NamedTuple):
    """Measures, their cost, and the start of all oracles."""

    X: Array
    cost: Any
    K: int
    components: Array
    memberships: Array


def prepared(X: Array, cost: Any, K: int) -> Data:
    D, W = (x / x.sum(axis=1, keepdims=True) for x in nmf_factors(X, K, 0))
    return Data(X, cost, K, D, W)


class Watch:
    """Records the exact objective over time; its own time does not count."""

    def __init__(self, data: Data, seconds: float) -> None:
        self.data, self.seconds, self.curve = data, seconds, Curve()
        self.rows = np.unique(np.linspace(0, len(data.X) - 1, 40).round().astype(int))
        self.origin = time.process_time()

    def __call__(self, W: Array, D: Array) -> bool:
        """Evaluate a model if enough time has passed since the last; tell whether the time is over."""
        now = time.process_time()
        spent = now - self.origin
        if not self.curve or spent >= 1.3 * self.curve[-1][0] or spent > self.seconds:
            P, X = W[self.rows] @ D, self.data.X[self.rows]
            value = solve_batch(P, X, self.data.cost, normalize=True).value
            self.curve.append((spent, float(np.mean(value))))
        self.origin += time.process_time() - now
        return spent > self.seconds


def chains(data: Data, seconds: float, cold: bool) -> Curve:
    watch = Watch(data, seconds)

    def callback(model: WassersteinNMF) -> bool:
        run: Any = model._run
        (shard,) = run.shards.shards
        ended = watch(shard.mean_memberships, run.mean_components)
        if cold:
            shard.oracle.load_potentials(np.zeros_like(data.X))
        return ended

    init = data.components, data.memberships
    options: dict[str, Any] = {"max_epochs": 10**6, "callbacks": [callback], "random_state": 0, "n_jobs": 1}
    WassersteinNMF(data.K, cost=data.cost, init=init, **options).fit(data.X)
    return watch.curve


def exact(data: Data, seconds: float, stale: bool) -> Curve:
    watch, oracle = Watch(data, seconds), TargetChains(data.cost, data.X, n_jobs=1)
    n, scale = len(data.X), mean_cost(data.cost)
    log_D = logarithms((1 - SMOOTHING) * data.components + SMOOTHING * data.X.mean(axis=0))
    log_W = logarithms((1 - SMOOTHING) * data.memberships + SMOOTHING / data.K)
    mean_D, mean_W, U, epoch = np.exp(log_D), np.exp(log_W), np.zeros_like(data.X), 0
    while not watch(mean_W, mean_D):
        D, W = np.exp(log_D), np.exp(log_W)
        rows = np.arange(epoch % STALE, n, STALE) if stale and epoch else np.arange(n)
        P = W[rows] @ D
        optima = oracle.exact(P, 1e-3 * scale, rows)
        U[rows] = [optimum.f - p @ optimum.f for optimum, p in zip(optima, P, strict=True)]
        log_D = mirror_step(log_D, data.K / n * (W.T @ U), EXACT_STEPS[0] / scale)
        log_W = mirror_step(log_W, U @ D.T, EXACT_STEPS[1] / scale)
        share = (MEMORY + 1) / (MEMORY + 1 + epoch)
        mean_D, mean_W = mean_D + share * (np.exp(log_D) - mean_D), mean_W + share * (np.exp(log_W) - mean_W)
        epoch += 1
    return watch.curve


def topics() -> Data | None:
    """Return the documents of the example, or None without the package that has them."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    try:
        example = import_module("topics")
        news = example.news(395, 800, 0)
    except ImportError as error:
        console.print(f"topics: left out, {error}")
        return None
    return prepared(news.X, PointCost(example.vectors(news.X, 50), metric="euclidean"), 20)


def found(name: str) -> Data | None:
    """Return data by name, or None if they are not there."""
    if name == "fives":
        return prepared(datasets.mnist_fives(), GridCost((28, 28)), 40)
    if name == "topics":
        return topics()
    images = optional.faces((32, 27), console)
    return None if images is None else prepared(images, GridCost((32, 27)), 40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["fives", "faces", "topics"], help="fives, faces, topics")
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU seconds of each fit")
    parser.add_argument("--out", type=Path, default=Path("build/bench/oracles.png"), help="the picture")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    given = {name: data for name in options.names if (data := found(name)) is not None}
    figure = Figure(figsize=(4.4 * len(given) + 1, 3.8), layout="constrained")
    table = Table("data", "oracle", title="exact objective x 1000 of at most 40 measures, by CPU seconds")
    times = options.seconds * np.array([0.03, 0.1, 0.3, 1.0])
    for seconds in times:
        table.add_column(f"{seconds:.2g} s", justify="right")
    for ax, (name, data) in zip(figure.subplots(1, len(given), squeeze=False)[0], given.items(), strict=True):
        curves = {
            "warm chains": chains(data, options.seconds, cold=False),
            "cold chains": chains(data, options.seconds, cold=True),
            "refreshed exact duals": exact(data, options.seconds, stale=False),
            "stale exact duals": exact(data, options.seconds, stale=True),
        }
        for oracle, curve in curves.items():
            x, y = np.array(curve).T
            ax.plot(x, 1e3 * y, color=COLOURS[oracle], label=oracle)
            before = [next((v for s, v in reversed(curve) if s <= 1.05 * limit), np.nan) for limit in times]
            table.add_row(name, oracle, *(f"{1e3 * value:.4g}" for value in before))
        ax.set(xscale="log", xlabel="CPU seconds, one thread", title=name)
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("exact mean transport cost x 1000")
    figure.axes[0].legend(frameon=False, fontsize=9)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=150)
    console.print(table)


if __name__ == "__main__":
    main()
