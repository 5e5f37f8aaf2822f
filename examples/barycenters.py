"""Barycenters of 30 ellipses and of 30 handwritten fives, beside POT's entropic ones: a table and a picture.

    python examples/barycenters.py [--out DIR] [--quick]

Of POT's barycenters, the one with the lowest exact objective over three regularisations is drawn;
benchmarks/barycenter.py tries more.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # POT's matrix products are too small for several threads

import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import ot
from matplotlib.figure import SubFigure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from gibbsot import GridCost, WassersteinBarycenter, datasets, plots, solve_batch
from gibbsot.core import native

Array = NDArray[np.float64]
REGULARISATIONS = (4e-3, 2e-3, 1e-3)


def ellipses(count: int, side: int, seed: int = 0) -> Array:
    """Return images of two nested rings each, as rows that sum to one."""
    rng = np.random.default_rng(seed)
    y, x = (np.mgrid[:side, :side] + 0.5) / side - 0.5
    images = []
    for _ in range(count):
        centre, image = rng.uniform(-0.1, 0.1, 2), np.zeros((side, side))
        for least, most in ((0.22, 0.36), (0.07, 0.16)):
            (a, b), angle, (left, top) = rng.uniform(least, most, 2), rng.uniform(0, np.pi), rng.uniform(-0.03, 0.03, 2)
            dx, dy = x - centre[0] - left, y - centre[1] - top
            u = (np.cos(angle) * dx + np.sin(angle) * dy) / a
            v = (np.cos(angle) * dy - np.sin(angle) * dx) / b
            radius = np.hypot(u, v)
            distance = (radius - 1) * radius / np.hypot(u / a, v / b)  # to the ring, in first order
            image += np.exp(-((side * distance / 1.2) ** 2))
        images.append(np.where(image > 0.01, image, 0).ravel())
    rows = np.array(images)
    return rows / rows.sum(axis=1, keepdims=True)


def exact(p: Array, X: Array, cost: GridCost) -> float:
    p = np.where(p > 1e-12, p, 0)
    return float(solve_batch(np.tile(p / p.sum(), (len(X), 1)), X, cost, n_jobs=-1).value.mean())


def compare(name: str, X: Array, side: int, table: Table, figure: SubFigure, smooth: bool = False) -> None:
    """Compute the barycenters of both libraries, add them to the table and draw them; a smooth one takes longer."""
    cost = GridCost((side, side))
    mean = X.mean(axis=0)
    table.add_row(f"{name}: their mean", f"{1e3 * exact(mean, X, cost):.3f}")
    found = []
    for reg in REGULARISATIONS:
        start = time.process_time()
        p = ot.bregman.convolutional_barycenter2d(X.reshape(-1, side, side), reg, numItermax=2000, warn=False).ravel()
        seconds = time.process_time() - start
        if np.isfinite(p).all():
            found.append((exact(p, X, cost), reg, p))
            table.add_row(f"   POT, reg {reg:g}", f"{1e3 * found[-1][0]:.3f}", "", f"{seconds:.1f} s")
    start = time.process_time()
    model = WassersteinBarycenter(cost, random_state=0, n_jobs=-1, verbose=True).fit(X)
    seconds = time.process_time() - start
    above = model.gap_
    table.add_row("   gibbsot", f"{1e3 * model.objective_:.3f}", f"{above:.2%}", f"{seconds:.1f} s")

    value, reg, p = min(found)
    panels = {
        f"{len(X)} {name}": X,
        f"POT, regularisation {reg:g}\nobjective {1e3 * value:.2f}e-3": p[None],
        f"gibbsot, certified within {above:.2%}\nobjective {1e3 * model.objective_:.2f}e-3": model.barycenter_[None],
    }
    if smooth:
        start = time.process_time()
        model = WassersteinBarycenter(cost, gap=0.01, smooth=True, random_state=0, n_jobs=-1, verbose=True).fit(X)
        seconds = time.process_time() - start
        above = model.gap_
        table.add_row("   gibbsot, smooth", f"{1e3 * model.objective_:.3f}", f"{above:.2%}", f"{seconds:.1f} s")
        title = f"gibbsot, smooth, within {above:.2%}\nobjective {1e3 * model.objective_:.2f}e-3"
        panels[title] = model.barycenter_[None]
    columns: Any = figure.subfigures(1, 4)
    for column, (title, images) in zip(columns, panels.items(), strict=False):
        plots.components(column, images, (side, side), columns=6)
        column.axes[0].set_title(title, fontsize=11)


def run(quick: bool, out: Path, console: Console) -> None:
    count, side = (6, 24) if quick else (30, 64)
    table = Table(title=f"Barycenters, kernels: {native.name()}")
    for column in ("", "objective x 1000", "above optimal at most", "CPU time"):
        table.add_column(column, justify="right" if column else "left")
    figure = plt.figure(figsize=(13, 7), layout="constrained")
    halves: Any = figure.subfigures(2, 1)
    compare("ellipses", ellipses(count, side), side, table, halves[0])
    compare("fives", datasets.mnist_fives(500)[:: 500 // count][:count], 28, table, halves[1], smooth=True)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "barycenters.png"
    figure.savefig(path, dpi=100)
    console.print(table)
    console.print(f"picture: {path}", highlight=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture (default: demo)")
    parser.add_argument("--quick", action="store_true", help="six images each, ellipses of 24 x 24")
    args = parser.parse_args()
    try:
        run(args.quick, args.out, Console())
    except (ImportError, OSError) as error:
        Console(stderr=True).print(f"error: {error}", markup=False, soft_wrap=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
