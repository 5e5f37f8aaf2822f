"""What ``gibbsot ot`` says a problem will take, beside the CPU time that it takes on one thread.

    python benchmarks/estimates.py

The constants in ``cli/_inputs.py`` come from these figures. Problems that count as huge there are larger than these.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from gibbsot import Cost, DenseCost, GridCost, PointCost, Problem, solve
from gibbsot.cli._inputs import estimate
from gibbsot.exact.methods import choose


def fields(side: int) -> NDArray[np.float64]:
    """Two random fields as rows of weights."""
    noise = np.random.default_rng(0).normal(size=(2, side, side))
    smooth = np.stack([gaussian_filter(x, side / 20, mode="wrap") for x in noise])
    return np.exp(smooth / smooth.std()).reshape(2, -1)


def problems() -> Iterator[tuple[str, NDArray[np.float64] | None, Cost]]:
    rng = np.random.default_rng(0)
    yield "matrix 3,000", None, DenseCost(rng.random((3000, 3000)))
    yield "matrix 4,000", None, DenseCost(rng.random((4000, 4000)))
    X, Y = rng.random((2, 5000, 2))
    yield "city-block distances, 5,000 points", None, PointCost(X, Y, "cityblock")
    yield "10 dimensions, 5,000 points", None, PointCost(*rng.normal(size=(2, 5000, 10)))
    yield "line, 1,000,000 points", None, PointCost(*rng.normal(size=(2, 1_000_000, 1)))
    yield "plane, 30,000 points", None, PointCost(*rng.normal(size=(2, 30_000, 2)))
    for side, power in ((128, 2), (256, 2), (64, 1), (128, 1), (128, 3)):
        yield f"fields {side} x {side}, power {power}", fields(side), GridCost((side, side), power=power)


def main() -> None:
    print(f"{'problem':38}{'method':14}{'estimate':>10}{'measured':>10}{'ratio':>8}")
    for name, weights, cost in problems():
        p, q = (None, None) if weights is None else weights
        said = Problem(p, q, cost, normalize=True)
        begun = time.process_time()
        solve(p, q, cost, normalize=True)
        method = choose(said)[0].name
        seconds, expected = time.process_time() - begun, estimate(said).seconds
        print(f"{name:38}{method:14}{expected:8.2f} s{seconds:8.2f} s{expected / seconds:8.2f}", flush=True)


if __name__ == "__main__":
    main()
