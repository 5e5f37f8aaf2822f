"""A million measures through `partial_fit`, from a file that is never read as a whole.

    python benchmarks/stream.py

Measures are synthetic: mixtures of two of twenty strokes on 28 x 28 pixels, of which 40 photons are seen. They lie in a
.npy file of bytes that is mapped into memory, and are streamed in batches. Printed over time: measures a second, the
memory of the process, and the mean exact cost of a few new measures, which should fall.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from gibbsot import GridCost, WassersteinNMF
from gibbsot.core import native

SIDE, STROKES, PHOTONS = 28, 20, 40
Array = NDArray[np.float64]
console = Console(width=110)


def strokes(rng: np.random.Generator) -> Array:
    """Return short lines, slightly blurred, as rows of weights."""
    y, x = np.mgrid[:SIDE, :SIDE]
    found = []
    for _ in range(STROKES):
        (a, b), angle = rng.uniform(7, 21, 2), rng.uniform(0, np.pi)
        along = (x - a) * np.cos(angle) + (y - b) * np.sin(angle)
        across = -(x - a) * np.sin(angle) + (y - b) * np.cos(angle)
        found.append(np.exp(-((across / 1.0) ** 2) - (along / 5.0) ** 4).ravel())
    return np.array(found) / np.sum(found, axis=1, keepdims=True)


def sampled(components: Array, n: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return photons of mixtures of two components each."""
    pairs, share = rng.integers(len(components), size=(n, 2)), rng.random((n, 1))
    P = share * components[pairs[:, 0]] + (1 - share) * components[pairs[:, 1]]
    return rng.multinomial(PHOTONS, P / P.sum(axis=1, keepdims=True)).astype(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measures", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=2_000)
    parser.add_argument("--jobs", type=int, default=-1)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    components, process = strokes(rng), psutil.Process()
    table = Table(title=f"{options.measures:,} measures of {SIDE**2} bins, kernels: {native.name()}")
    for column in ("measures", "minutes", "measures a second", "memory", "exact cost of new ones x 1000"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "measures.npy")
        file = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(options.measures, SIDE**2))
        for start in range(0, options.measures, 10_000):
            count = min(10_000, options.measures - start)
            file[start : start + count] = sampled(components, count, rng)
        file.flush()
        del file
        new = sampled(components, 40, rng).astype(np.float64)
        X = np.load(path, mmap_mode="r")
        model = WassersteinNMF(
            STROKES, cost=GridCost((SIDE, SIDE)), tau=10, batch_size=500, random_state=0, n_jobs=options.jobs
        )
        most, done, spent = 0, 0, 0.0
        marks = {options.batch, *np.linspace(0, options.measures, 11).astype(int).tolist()[1:]}
        for begin in range(0, options.measures, options.batch):
            before = time.perf_counter()
            model.partial_fit(X[begin : begin + options.batch].astype(np.float64))
            spent += time.perf_counter() - before
            most = max(most, process.memory_info().rss)
            seen = min(begin + options.batch, options.measures)
            if any(done < mark <= seen for mark in marks):
                cost = -1e3 * model.score(new)
                cells = f"{seen:,}", f"{spent / 60:.1f}", f"{seen / spent:,.0f}", f"{most / 1e9:.2f} GB"
                table.add_row(*cells, f"{cost:.3f}")
            done = seen
        size = path.stat().st_size
    console.print(table)
    good = "[green]yes" if most < 2e9 else "[red]no"
    console.print(
        f"the file has {size / 1e9:.2f} GB; most memory at any time {most / 1e9:.2f} GB, target < 2 GB: {good}"
    )


if __name__ == "__main__":
    main()
