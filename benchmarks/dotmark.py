"""Images of DOTmark beside the table that a solver for GPUs has published.

    python benchmarks/dotmark.py FOLDER [--sizes 64 128 256] [--pairs 28]

FOLDER is ``Dataset`` of the repository PolyU-IOR/HOT: eight images of each of the classes Classic and Shapes. They are
not in this repository. As its ``demo.py`` does, images become grey, are resized and divided by their sum; costs are
squared distances. Ours: exact solves of all pairs of a class, or of the first ones, mean and range of the CPU time on
one thread. HOT's times, and those of the network simplex beside it, are those of its table (Zhang, Gu, Yuan and Sun,
IEEE Transactions on Pattern Analysis and Machine Intelligence 47, 2025), for pairs that it does not name, on another
machine.
"""

from __future__ import annotations

import os

# one thread, also for BLAS; before NumPy is imported
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table

from gibbsot import GridCost, solve
from timing import seconds

CLASSES = ("ClassicImages", "Shapes")
# seconds and gap of HOT on an RTX 4090, and seconds of the network simplex beside it; NaN: not stated, or too long
PUBLISHED = {
    ("ClassicImages", 64): (0.67, 8.26e-4, 2.73),
    ("ClassicImages", 128): (1.58, 6.24e-3, 36.18),
    ("ClassicImages", 256): (12.98, np.nan, 2562.92),
    ("ClassicImages", 512): (81.02, np.nan, np.nan),
    ("Shapes", 64): (0.64, 3.78e-4, 1.48),
    ("Shapes", 128): (1.68, 2.51e-3, 20.70),
    ("Shapes", 256): (14.87, np.nan, 959.77),
    ("Shapes", 512): (87.12, np.nan, np.nan),
}
console = Console(width=130)


def read(path: Path, n: int) -> NDArray[np.float64]:
    """Return an image of n x n pixels as weights."""
    with Image.open(path) as image:
        grey = np.asarray(image.convert("L").resize((n, n)), np.float64)
    return grey / grey.sum()


def number(value: float, form: str) -> str:
    """Return a published number, or nothing if there is none."""
    return "" if np.isnan(value) else format(value, form)


def measure(folder: Path, sizes: list[int], most: int) -> Table:
    """Return the table."""
    ours_names, published_names = ("ours: mean, range", "largest gap"), ("HOT, RTX 4090", "its gap", "network simplex")
    names = "class", "pixels", "pairs", *ours_names, *published_names
    table = Table(*names, title="seconds; gaps relative to the optimum; the last three columns are published")
    for kind, n in itertools.product(CLASSES, sizes):
        paths = sorted((folder / kind / "pic").glob("*.png"))
        if len(paths) < 2:
            raise SystemExit(f"{folder}: expected {kind}/pic/1.png to 8.png, as in Dataset of PolyU-IOR/HOT")
        images, cost, taken, gaps = [read(path, n) for path in paths], GridCost((n, n)), list[float](), list[float]()
        for p, q in itertools.islice(itertools.combinations(images, 2), most):
            time, found = seconds(partial[Any](solve, p, q, cost))
            assert found.status == "optimal", found.status
            taken.append(time)
            gaps.append(found.gap)
        hot, gap, simplex = PUBLISHED.get((kind, n), (np.nan,) * 3)
        ours = f"{np.mean(taken):.3g}, {min(taken):.2g} to {max(taken):.2g}"
        published = number(hot, ".2f"), number(gap, ".0e"), number(simplex, ",.1f")
        table.add_row(kind, f"{n} x {n}", str(len(taken)), ours, f"{max(gaps):.0e}", *published)
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256], metavar="N")
    parser.add_argument("--pairs", type=int, default=28, metavar="N")
    options = parser.parse_args()
    console.print(measure(options.folder, options.sizes, options.pairs))


if __name__ == "__main__":
    main()
