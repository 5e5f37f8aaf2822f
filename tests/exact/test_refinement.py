"""Screens list every pair whose reduced cost may be negative: a pair that is missing makes a bound wrong."""

from __future__ import annotations

import numpy as np
import pytest

from gibbsot import GridCost, PointCost
from gibbsot.core import native
from gibbsot.costs import BorderedCost, Cost
from gibbsot.exact.refinement import CostScreen, MatrixScreen, Screen

pytestmark = pytest.mark.skipif(native.name() == "numpy", reason="needs the compiled kernels")


def screens(rng: np.random.Generator) -> list[tuple[str, Screen, np.ndarray]]:
    """Return screens of all kinds with their matrices."""
    X, Y = rng.random((7, 2)), rng.random((29, 2))
    points = PointCost(X, Y).by_trees()
    C = points.matrix()
    found: list[tuple[str, Screen, np.ndarray]] = [
        ("points", CostScreen(points), C),
        ("matrix", MatrixScreen(C), C),
    ]
    for outer, corner, extra in ((0.0, np.inf, (3, 2)), (0.4, 0.0, (1, 1))):
        more = np.full((7 + extra[0], 29 + extra[1]), outer)
        more[:7, :29], more[7:, 29:] = C, corner
        found.append(("bordered points", CostScreen(BorderedCost(points, outer, corner, extra)), more))
        cost: Cost = BorderedCost(PointCost(X, Y), outer, corner, extra)
        found.append(("bordered cost", CostScreen(cost), more))
    grid = GridCost((3, 3))
    rows, columns = np.array([0, 2, 3, 8]), np.array([1, 2, 5, 6, 7])
    found.append(("grid", CostScreen(grid, rows, columns), grid.matrix()[np.ix_(rows, columns)]))
    return found


@pytest.mark.parametrize("seed", range(10))
def test_no_pair_is_missing(seed):
    rng = np.random.default_rng(seed)
    for name, screen, C in screens(rng):
        f, g = 0.5 * rng.normal(size=C.shape[0]), 0.5 * rng.normal(size=C.shape[1])
        near = screen.near(f, g)
        listed = np.zeros(C.shape, bool)
        listed[near.i, near.j] = True
        wanted = (f[:, None] + g > C) & np.isinf(near.limit)[:, None]
        assert not (wanted & ~listed).any(), name
        assert len(near.i) == np.count_nonzero(listed), name  # none is listed twice
