"""Barycenters and mixture coordinates to a certified gap, beside POT's, in one run.

    python benchmarks/barycenter.py
    python benchmarks/barycenter.py coordinates

Digits of 8 x 8 and six fives of 28 x 28 against `ot.lp.barycenter`, which has a variable for every arc and takes 4 GB
for these; thirty fives of 28 x 28 and ten images of nested ellipses, from a seed, exactly and to a gap of 1e-3, the
fives also by the level method in place of the linear programme; thirty fives enlarged to 64 x 64 to 1e-3.
`ot.bregman.convolutional_barycenter2d` stands beside them, with falling regularisations down to the first that fails;
the best exact objective counts, with the time of that one run. Then the coordinates of 200 fives in 40 components.
Seconds are CPU seconds of one thread; of fits below a second the best of three. Objectives and gaps are exact and
certified.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import ot
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import ndimage
from sklearn.decomposition import NMF

from gibbsot import GridCost, WassersteinBarycenter, datasets, mixture_coordinates, solve_batch
from gibbsot.core import native

REGULARISATIONS = (4e-3, 2e-3, 1e-3, 7e-4, 5e-4, 3.5e-4, 2.5e-4)
CONVERGED, MOST = 1e-4, 3000  # POT's measure of it, with its default, and iterations
PARTS = ("digits", "fives", "ellipses", "large", "coordinates")
THRESHOLD = 1e-12  # smaller weights of POT's are left out of exact objectives

Array = NDArray[np.float64]
T = TypeVar("T")
console, progress = Console(width=120), Console(width=120, stderr=True)


def ellipses(count: int = 10, side: int = 60, seed: int = 0) -> Array:
    """Return images of two nested outlines of ellipses each, of zeros and ones, as rows."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    images = np.zeros((count, side, side))
    for image in images:
        for least, most in ((0.25, 0.42), (0.08, 0.22)):
            (a, b), angle, centre = side * rng.uniform(least, most, 2), rng.uniform(0, np.pi), rng.uniform(-3, 3, 2)
            dx, dy = x - centre[0], y - centre[1]
            u, v = np.cos(angle) * dx + np.sin(angle) * dy, np.cos(angle) * dy - np.sin(angle) * dx
            radius = np.hypot(u / a, v / b)
            image[np.abs(radius - 1) * radius / np.hypot(u / a**2, v / b**2) < 1.3] = 1  # 1.3 pixels to either side
    return images.reshape(count, -1)


def fives(count: int, side: int) -> Array:
    images = datasets.mnist_fives(200)[:: 200 // count][:count].reshape(-1, 28, 28)
    return np.asarray(ndimage.zoom(images, (1, side / 28, side / 28), order=1).reshape(count, -1))


def shares(X: Array) -> Array:
    return np.asarray(X / X.sum(axis=1, keepdims=True))


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """Return what a function does and its CPU seconds: the best of three if it is short."""
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        found = function()
        best = min(best, time.process_time() - start)
        if best > 1:
            break
    return found, best


def objective(p: Array, X: Array, cost: GridCost) -> float:
    p = np.where(p < THRESHOLD, 0, p).ravel()
    return float(np.mean(solve_batch(np.tile(p / p.sum(), (len(X), 1)), shares(X), cost, n_jobs=1).value))


def fit(X: Array, cost: GridCost, gap: float, **options: Any) -> tuple[WassersteinBarycenter, float]:
    return timed(lambda: WassersteinBarycenter(cost, gap=gap, random_state=0, n_jobs=1, **options).fit(X))


class Report:
    """The table."""

    def __init__(self) -> None:
        self.table = Table(title=f"kernels: {native.name()}, one thread")
        for column in ("", "objective", "certified gap", "CPU time", "target", " "):
            self.table.add_column(column, justify="right" if column.strip() else "left")

    def row(self, what: str, value: Any, gap: str, seconds: float, target: str = "", good: bool | None = None) -> None:
        mark = [] if good is None else ["[green]yes" if good else "[red]no"]
        shown = f"{value:.9g}" if isinstance(value, float) else value
        self.table.add_row(what, shown, gap, f"{seconds:.3g} s", target, *mark)
        progress.print(f"{what}: {shown}, {gap}, {seconds:.3g} s", highlight=False, style="dim")

    def ours(self, what: str, X: Array, cost: GridCost, gap: float, most: float = np.inf, **options: Any) -> float:
        model, seconds = fit(X, cost, gap, **options)
        target = f"gap {gap:g}" + (f", {most:g} s" if most < np.inf else "")
        name = f"{what}: {model.status_}, {model.n_iter_} epochs and rounds"
        self.row(name, model.objective_, f"{model.gap_:.1e}", seconds, target, model.gap_ <= gap and seconds <= most)
        return float(model.objective_)

    def entropic(self, X: Array, side: int, cost: GridCost, least: float) -> None:
        """POT's best entropic barycenter."""
        runs = []
        for reg in REGULARISATIONS:
            start = time.process_time()
            p = ot.bregman.convolutional_barycenter2d(
                shares(X).reshape(-1, side, side), reg, numItermax=MOST, stopThr=CONVERGED, warn=False
            )
            seconds = time.process_time() - start
            if not (np.isfinite(p).all() and (p >= 0).all() and p.sum() > 0):
                break  # with less, it fails too
            runs.append((objective(p, X, cost), seconds, reg))
        value, seconds, reg = min(runs)
        self.row(f"   POT convolutional, best reg {reg:g}", value, f"{value / least - 1:+.1%}", seconds)

    def digits(self) -> None:
        """Small problems against POT's linear programme."""
        cost, X = GridCost((8, 8)), datasets.digits(5)
        model, seconds = fit(X[:1], cost, 0.0)
        same = bool(np.allclose(model.barycenter_, shares(X[:1])[0], rtol=1e-12, atol=0)) and model.objective_ == 0
        self.row("one digit 8 x 8", float(model.objective_), f"{model.gap_:.0e}", seconds, "itself", same)
        for n in (2, 3, 6):
            self.against_programme(f"{n} digits 8 x 8", X[:n], cost, 0.1)

    def against_programme(self, what: str, X: Array, cost: GridCost, most: float = np.inf) -> None:
        """Ours, exactly, and POT's linear programme on all arcs."""
        rows = shares(X)
        model, seconds = fit(rows, cost, 0.0)
        p, theirs = timed(lambda: ot.lp.barycenter(rows.T.copy(), cost.matrix(), solver="highs"))
        value = objective(np.maximum(p, 0), rows, cost)
        good = abs(model.objective_ / value - 1) < 1e-6 and seconds <= theirs and seconds < most
        target = f"<= {theirs:.3g} s" + (f", {most:g} s" if most < np.inf else "")
        self.row(what, float(model.objective_), f"{model.gap_:.1e}", seconds, target, good)
        self.row("   ot.lp.barycenter", value, f"{value / model.objective_ - 1:+.0e}", theirs)

    def fives(self) -> None:
        """Six fives against POT's linear programme; thirty, exactly, to a gap, and without the linear programme."""
        X, cost = fives(30, 28), GridCost((28, 28))
        self.against_programme("6 fives 28 x 28", fives(6, 28), cost)
        least = self.ours("30 fives 28 x 28", X, cost, 1e-10, 10)
        self.ours("30 fives 28 x 28", X, cost, 1e-3)
        self.ours("   by the level method", X, cost, 1e-3, max_memory=1.0)
        self.entropic(X, 28, cost, least)

    def ellipses(self) -> None:
        """Ten ellipses, exactly and to a gap."""
        X, cost = ellipses(), GridCost((60, 60))
        least = self.ours("10 ellipses 60 x 60", X, cost, 1e-9, 15)
        self.ours("10 ellipses 60 x 60", X, cost, 1e-3, 6)
        self.entropic(X, 60, cost, least)

    def large(self) -> None:
        """Thirty fives of 64 x 64."""
        X, cost = fives(30, 64), GridCost((64, 64))
        least = self.ours("30 fives 64 x 64", X, cost, 1e-3)
        self.entropic(X, 64, cost, least)

    def coordinates(self) -> None:
        """200 fives in 40 components."""
        X, cost = fives(200, 28), GridCost((28, 28))
        D = NMF(40, init="nndsvda", random_state=0, max_iter=200).fit(shares(X)).components_
        D = 0.999 * shares(D) + 0.001 / D.shape[1]
        for gap in (1e-3, None):
            start = time.process_time()
            W = mixture_coordinates(X, D, cost, gap=gap, n_jobs=1)
            seconds = time.process_time() - start
            value = float(np.mean(solve_batch(W @ D, shares(X), cost, normalize=True, n_jobs=1).value))
            name = "by descent" if gap is None else "certified"
            self.row(f"200 fives in 40 components, {name}", value, "-" if gap is None else f"<= {gap:g}", seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"some of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="digits and fives of 28 x 28 only")
    options = parser.parse_args()
    unknown = set(options.what) - set(PARTS)
    if unknown:
        parser.error(f"what: expected some of {', '.join(PARTS)}; got {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore")
    report = Report()
    for part in options.what or (PARTS[:2] if options.quick else PARTS):
        getattr(report, part)()
    console.print(report.table)


if __name__ == "__main__":
    main()
