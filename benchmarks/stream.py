"""Held-out costs of models that learn from streams of measures through `partial_fit`.

    python benchmarks/stream.py
    python benchmarks/stream.py --quick
    python benchmarks/stream.py --seeds 0 --measures 1000000

Two streams, from seeds. Photons: mixtures of two of twenty strokes on 28 x 28 pixels, of which 40 photons are seen.
Digits: scikit-learn's digits of 8 x 8 pixels, shifted at random on a grid of 12 x 12; some digits are held out. Printed
over the length of the stream is the mean exact cost of held-out measures to their best mixtures, to a certified gap of
0.1 %. Beside it are `fit` on the first 2,000 measures, and scikit-learn's MiniBatchNMF of the same batches, of which
the reconstructions are normalised.

With ``--measures N``, a stream of N photons follows, from a .npy file of bytes that is mapped into memory: minutes by
the clock, measures per CPU second, the memory of the process, and the held-out cost. ``--seeds 0`` runs it alone.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small products are slower in threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import psutil
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.decomposition import MiniBatchNMF

from gibbsot import GridCost, WassersteinNMF, solve_batch
from gibbsot.core import native

SIDE, STROKES, PHOTONS = 28, 20, 40
DIGIT_SIDE, DIGIT_COMPONENTS = 12, 20
FIT = 2_000  # measures for `fit`
Array = NDArray[np.float64]
console = Console(width=110)


class Source(Protocol):
    """An endless stream of measures, with some that are held out."""

    n_components: int
    cost: GridCost
    held_out: Array

    def batch(self, n: int) -> Array:
        """Return the next measures."""


class Photons:
    """Photons of mixtures of two strokes each."""

    n_components, cost = STROKES, GridCost((SIDE, SIDE))

    def __init__(self, seed: int, n_held_out: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.components = strokes(self.rng)
        self.held_out = self.batch(n_held_out)

    def batch(self, n: int) -> Array:
        return sampled(self.components, n, self.rng).astype(np.float64)


class Digits:
    """Shifted digits; those that are held out are not shifts of others."""

    n_components, cost = DIGIT_COMPONENTS, GridCost((DIGIT_SIDE, DIGIT_SIDE))

    def __init__(self, seed: int, n_held_out: int) -> None:
        self.rng = np.random.default_rng(seed)
        digits = load_digits().images
        order = self.rng.permutation(len(digits))
        self.digits, self.held_out = digits[order[n_held_out:]], self._shifted(digits[order[:n_held_out]])

    def batch(self, n: int) -> Array:
        return self._shifted(self.digits[self.rng.integers(len(self.digits), size=n)])

    def _shifted(self, images: Array) -> Array:
        side = images.shape[1]
        grids = np.zeros((len(images), DIGIT_SIDE, DIGIT_SIDE))
        shifts = self.rng.integers(DIGIT_SIDE - side + 1, size=(len(images), 2))
        for grid, image, (y, x) in zip(grids, images, shifts, strict=True):
            grid[y : y + side, x : x + side] = image
        return grids.reshape(len(images), -1)


SOURCES: dict[str, type[Photons | Digits]] = {"photons": Photons, "digits": Digits}


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


def normalised(X: Array) -> Array:
    """Return rows with sum one."""
    return np.asarray(X / X.sum(axis=1, keepdims=True))


def estimator(source: Source, seed: int, options: argparse.Namespace, tau: int = 5) -> WassersteinNMF:
    """Return a model; a stream needs only a short lag, as its chains do not last."""
    settings = {"tau": tau, "max_epochs": options.epochs, "random_state": seed, "n_jobs": options.jobs}
    return WassersteinNMF(source.n_components, cost=source.cost, **settings)


def reconstruction_cost(nmf: MiniBatchNMF, source: Source) -> float:
    """Return the mean exact cost of held-out measures to the normalised reconstructions of another NMF."""
    X = normalised(source.held_out)
    P = nmf.transform(X) @ nmf.components_
    return float(np.mean(solve_batch(normalised(np.maximum(P, 1e-12)), X, source.cost, normalize=True).value))


def compare(name: str, seed: int, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """Yield the held-out costs of a stream over its length, of `fit`, and of scikit-learn's MiniBatchNMF."""
    source: Source = SOURCES[name](seed, options.held_out)
    model, other = estimator(source, seed, options), MiniBatchNMF(source.n_components, random_state=seed)
    seen, spent, first = 0, 0.0, list[Array]()
    while seen < options.marks[-1]:
        X = source.batch(options.batch)
        first += [X] if seen < FIT else []
        started = time.process_time()
        model.partial_fit(X)
        spent += time.process_time() - started
        other.partial_fit(normalised(X))
        seen += len(X)
        if seen in options.marks:
            yield f"{seen:,}", -model.score(source.held_out)
    yield "MiniBatchNMF", reconstruction_cost(other, source)
    data = np.concatenate(first)[:FIT]
    yield f"fit on {len(data):,}", -estimator(source, seed, options, tau=10).fit(data).score(source.held_out)
    yield "measures per CPU second", seen / spent


def comparison(name: str, options: argparse.Namespace) -> None:
    """Print the held-out costs of a stream for each seed, and whether they fell, and below that of `fit`."""
    rows = [dict(compare(name, seed, options)) for seed in range(options.seeds)]
    table = Table(title=f"{name}: exact cost x 1000 of {options.held_out} held-out measures, kernels: {native.name()}")
    table.add_column("seed")
    for column in rows[0]:
        table.add_column(column, justify="right")
    (*_, fit, rate), good = rows[0], True
    middle, last = (f"{mark:,}" for mark in options.marks[-2:])
    for seed, row in enumerate(rows):
        table.add_row(str(seed), *(f"{x:,.0f}" if column == rate else f"{1e3 * x:.3f}" for column, x in row.items()))
        good &= row[last] < row[middle] and row[last] <= row[fit]
    console.print(table)
    console.print(f"{last} below {middle}, and no worse than {fit}: {'[green]yes' if good else '[red]no'}")


def long_stream(options: argparse.Namespace) -> None:
    """Stream photons from a file, and print speed, memory and held-out cost."""
    source, process = Photons(0, options.held_out), psutil.Process()
    table = Table(title=f"{options.measures:,} measures of {SIDE**2} bins, kernels: {native.name()}")
    columns = ("measures", "minutes", "measures per CPU second", "memory", "exact cost of new ones x 1000")
    for column in columns:
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "measures.npy")
        file = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(options.measures, SIDE**2))
        for start in range(0, options.measures, 10_000):
            count = min(10_000, options.measures - start)
            file[start : start + count] = sampled(source.components, count, source.rng)
        file.flush()
        del file
        X = np.load(path, mmap_mode="r")
        model = estimator(source, 0, options)
        most, done, spent, cpu = 0, 0, 0.0, 0.0
        marks = {options.batch, *np.linspace(0, options.measures, 11).astype(int).tolist()[1:]}
        for begin in range(0, options.measures, options.batch):
            before, cpu_before = time.perf_counter(), time.process_time()
            model.partial_fit(X[begin : begin + options.batch].astype(np.float64))
            spent, cpu = spent + time.perf_counter() - before, cpu + time.process_time() - cpu_before
            most = max(most, process.memory_info().rss)
            seen = min(begin + options.batch, options.measures)
            if any(done < mark <= seen for mark in marks):
                cost = f"{-1e3 * model.score(source.held_out):.3f}"
                cells = f"{seen:,}", f"{spent / 60:.1f}", f"{seen / cpu:,.0f}", f"{most / 1e9:.2f} GB", cost
                table.add_row(*cells)
                shown = (f"{name} {cell}" for name, cell in zip(columns, cells, strict=True))
                console.print(", ".join(shown), highlight=False, style="dim")
            done = seen
        size = path.stat().st_size
    console.print(table)
    good = "[green]yes" if most < 2e9 else "[red]no"
    console.print(
        f"the file has {size / 1e9:.2f} GB; most memory at any time {most / 1e9:.2f} GB, target < 2 GB: {good}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(SOURCES), help="one of the streams")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--held-out", type=int, default=40)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=200, help="the most of fit")
    parser.add_argument("--measures", type=int, default=0, help="the length of the stream from a file")
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--quick", action="store_true", help="one seed and 2,000 measures")
    options = parser.parse_args()
    options.marks = (500, 2_000, 20_000)
    if options.quick:
        options.marks, options.seeds, options.epochs = (500, 2_000), 1, min(options.epochs, 20)
    for name in ([options.only] if options.only else SOURCES) if options.seeds else ():
        comparison(name, options)
    if options.measures:
        long_stream(options)


if __name__ == "__main__":
    main()
