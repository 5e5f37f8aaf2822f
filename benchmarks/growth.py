"""Time against the number of points: the picture of README.

    python benchmarks/growth.py [--seconds 5] [--picture docs/growth.png]

Two clouds of n uniform points in the unit square, squared distances, from points to the value: ours with its
certificate, POT's `emd2`, SciPy's assignment and lapx's fastest on these, `lapjvc`, all three with the matrix. CPU time
on one thread, the least of up to three runs; sizes double until a solver takes longer than asked for. Values agree to
1e-7. lapx is left out if it is not installed.
"""

from __future__ import annotations

import os

# one thread, also for what POT, SciPy and BLAS call; before NumPy is imported
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import ot
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from gibbsot import PointCost, plots, solve

Array = NDArray[np.float64]


def ours(X: Array, Y: Array) -> float:
    result = solve(None, None, PointCost(X, Y))
    if result.status != "optimal":
        raise AssertionError(f"not proved: {result!r}")
    return float(result.value)


def pot(X: Array, Y: Array) -> float:
    return float(ot.emd2([], [], ot.dist(X, Y), numItermax=10**9))


def scipy(X: Array, Y: Array) -> float:
    M = cdist(X, Y, "sqeuclidean")
    return float(M[linear_sum_assignment(M)].mean())


def lapx(X: Array, Y: Array) -> float:
    import lap

    return float(lap.lapjvc(cdist(X, Y, "sqeuclidean"))[0]) / len(X)


SOLVERS: dict[str, Callable[[Array, Array], float]] = {"gibbsot": ours, "POT, emd2": pot, "SciPy": scipy}
if importlib.util.find_spec("lap"):
    SOLVERS["lapx"] = lapx

_PLACES = {"gibbsot": ("right", (-8, 5)), "POT, emd2": ("left", (7, -14)), "SciPy": ("left", (7, -2)),
           "lapx": ("left", (7, 10))}  # fmt: skip  # of the names beside the ends of their lines


def measure(limit: float) -> dict[str, dict[int, float]]:
    """Return the seconds of every solver for each size, until one takes longer than the limit."""
    found: dict[str, dict[int, float]] = {name: {} for name in SOLVERS}
    values: dict[int, float] = {}
    for name, solver in SOLVERS.items():
        n, taken = 128, 0.0
        while taken < limit:
            rng = np.random.default_rng(n)
            X, Y = rng.random((2, n, 2))
            times: list[float] = []
            while len(times) < 3 and sum(times) < 1:
                begun = time.process_time()
                value = solver(X, Y)
                times.append(time.process_time() - begun)
            expected = values.setdefault(n, value)
            if abs(value - expected) > 1e-7 * expected:
                raise AssertionError(f"{name}: {value} of {n} points, expected {expected}")
            found[name][n] = taken = min(times)
            n *= 2
    return found


def draw(found: dict[str, dict[int, float]], path: Path) -> None:
    """Draw time against size on logarithmic axes, with the name of each solver at its line."""
    figure = plots.new_figure(7, 4)
    ax = figure.subplots()
    looks = {"gibbsot": (plots.PINK, 2.5), "POT, emd2": (plots.GREEN, 1.5)}
    for name, times in found.items():
        colour, width = looks.get(name, (plots.DARK_GREY if name == "SciPy" else plots.GREY, 1.5))
        ax.loglog(list(times), list(times.values()), "o-", color=colour, linewidth=width, markersize=2 * width)
        size, last = max(times.items())
        side, place = _PLACES[name]
        ax.annotate(name, (size, last), place, textcoords="offset points", color=colour, ha=side, fontweight="bold")
    ax.set(xlabel="points on either side, in the plane", ylabel="seconds, one core")
    ax.grid(color=plots.PALE_GREY, linewidth=0.5)
    ax.margins(y=0.12)
    plots.hide_spines([ax])
    figure.savefig(path, dpi=130)


def main() -> None:
    """Measure, print a table, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="the time after which a solver gets no larger problem"
    )
    parser.add_argument("--picture", type=Path, help="a PNG file to write")
    arguments = parser.parse_args()
    found = measure(arguments.seconds)
    table = Table("points", *(f"{name}, s" for name in found))
    for n in sorted({n for times in found.values() for n in times}):
        cells = (f"{times[n]:.2g}" if n in times else "" for times in found.values())
        table.add_row(f"{n:,}", *cells)
    Console(width=120).print(table)
    if arguments.picture is not None:
        draw(found, arguments.picture)


if __name__ == "__main__":
    main()
