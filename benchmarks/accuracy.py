"""How far `solve` is from the exact value, for several kinds of problems and numbers of sweeps.

    python benchmarks/accuracy.py

Signed errors against POT's `ot.emd2`: a negative mean is a chain that lags, a positive one the temperature's own. The
last row is the hard case, measures that nearly agree.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import ot
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits

from gibbsot import Cost, DenseCost, Gibbs, GridCost, PointCost, solve

SWEEPS = (240, 1000, None)
Case = tuple[NDArray[np.float64], NDArray[np.float64], Cost]


def normal(*images: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    return [image.ravel() / image.sum() for image in images]


def families(rng: np.random.Generator, count: int) -> dict[str, Iterator[Case]]:
    """Return generators of random problems by name."""

    def sides() -> tuple[int, int]:
        a, b = rng.integers(8, 29, 2)
        return int(a), int(b)

    def matrices() -> Iterator[Case]:
        for _ in range(count):
            m1, m2 = rng.integers(10, 200, 2)
            yield rng.dirichlet(np.ones(m1)), rng.dirichlet(np.ones(m2)), DenseCost(rng.random((m1, m2)))

    def clouds() -> Iterator[Case]:
        for _ in range(count):
            m1, m2 = rng.integers(10, 200, 2)
            cost = PointCost(rng.normal(size=(m1, 2)), rng.normal(size=(m2, 2)))
            yield rng.dirichlet(np.ones(m1)), rng.dirichlet(np.ones(m2)), cost

    def spots() -> Iterator[Case]:
        for k in range(count):
            shape = sides()
            p, q = normal(*(gaussian_filter(rng.random(shape) ** 8, k % 3) for _ in range(2)))
            yield p, q, GridCost(shape)

    def noise() -> Iterator[Case]:
        for _ in range(count):
            shape = sides()
            p, q = normal(rng.random(shape), rng.random(shape))
            yield p, q, GridCost(shape)

    def digits() -> Iterator[Case]:
        images = load_digits().images
        for _ in range(count):
            p, q = normal(*images[rng.integers(0, len(images), 2)])
            yield p, q, GridCost((8, 8))

    def near() -> Iterator[Case]:
        for _ in range(count):
            m = int(rng.integers(10, 200))
            p = rng.dirichlet(np.ones(m))
            yield p, 0.97 * p + 0.03 * rng.dirichlet(np.ones(m)), PointCost(rng.normal(size=(m, 2)))

    return {
        "random matrices": matrices(),
        "clouds of points": clouds(),
        "images of spots": spots(),
        "images of uniform noise": noise(),
        "pairs of 8 x 8 digits": digits(),
        "clouds that share 97 % of their mass": near(),
    }


def main() -> None:
    table = Table(title="error of solve against ot.emd2: mean (largest), and milliseconds per problem")
    table.add_column("60 problems each")
    for n in SWEEPS:
        table.add_column(f"{n} sweeps" if n else "default", justify="right")
    for name, cases in families(np.random.default_rng(0), 60).items():
        errors, times = np.zeros((len(SWEEPS), 60)), np.zeros(len(SWEEPS))
        for c, (p, q, cost) in enumerate(cases):
            exact = ot.emd2(p, q, cost.matrix(), numItermax=10_000_000)
            for k, n in enumerate(SWEEPS):
                start = time.perf_counter()
                errors[k, c] = solve(p, q, cost, method=Gibbs(n_sweeps=n)).value / exact - 1
                times[k] += (time.perf_counter() - start) / 60
        cells = [
            f"{e.mean():+.2%} ({e[np.abs(e).argmax()]:+.1%}), {t * 1e3:.1f} ms"
            for e, t in zip(errors, times, strict=True)
        ]
        table.add_row(name, *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
