"""The paper's two toy problems: values, certified bounds and plans beside the exact ones.

python examples/toys.py [--out DIR]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import ot
from rich.console import Console
from rich.table import Table

import gibbsot
from gibbsot import datasets, plots
from gibbsot.core import native


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture (default: demo)")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    sweeps = 5000
    console = Console()
    table = Table(title=f"Gibbs-OT, {sweeps:,} sweeps, kernels: {native.name()}")
    for column in ("problem", "value", "certified bound", "exact (POT)", "error", "time"):
        table.add_column(column, justify="left" if column == "problem" else "right")

    figure, axes = plt.subplots(1, 2, figsize=(10, 5.6), layout="constrained")
    problems = {
        "two modes, squared distance": datasets.two_modes(),
        "two electrons, Coulomb": datasets.coulomb_uniform(),
    }
    for ax, (name, (p, q, cost)) in zip(axes, problems.items(), strict=True):
        # the paper's cooling from T = 2 / N; the authors' code ends it at T / l^3
        schedule = gibbsot.schedules.geometric(2 / len(p), sweeps, ratio=float(sweeps) ** -3)
        start = time.perf_counter()
        result = gibbsot.solve(p, q, cost, method=gibbsot.Gibbs(schedule=schedule), verbose=True)
        seconds = time.perf_counter() - start

        M = cost.matrix()
        # POT takes no infinite costs; replace them by one that no optimal plan uses
        M[np.isinf(M)] = 1e3 * M[np.isfinite(M)].max()
        exact = ot.emd(p, q, M)
        value = float((exact * M).sum())
        table.add_row(
            name,
            f"{result.value:.6f}",
            f"{result.lower_bound:.6f}",
            f"{value:.6f}",
            f"{result.value / value - 1:+.1e}",
            f"{seconds:.2f} s",
        )
        places = tuple((np.arange(m) + 0.5) / m for m in result.plan.shape)
        plots.plan(ax, result.plan, exact, f"{name}\nW = {value:.5f}, ours {result.value:.5f}", points=places)
    figure.suptitle(f"Transport plans after {sweeps:,} sweeps")
    path = out / "plans.png"
    figure.savefig(path, dpi=120)
    console.print(table)
    console.print(f"picture: {path}")


if __name__ == "__main__":
    main()
