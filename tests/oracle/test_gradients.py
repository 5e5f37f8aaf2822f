"""Gradients of the exact losses where one bin is far away, against assignments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from gibbsot import PointCost
from gibbsot.core import native
from gibbsot.oracle.gradients import cloud_gradients, weight_gradients
from gibbsot.solvers.relaxed import marginals
from rational import exact_distances, optimum

pytestmark = pytest.mark.skipif(native.name() == "numpy", reason="needs the compiled kernels")


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_gradients_of_points_with_a_far_bin(far):
    """They are those of the optimal assignment; with a wrong plan they were 83 % off."""
    rng = np.random.default_rng(1)
    x, y = rng.random((2, 500, 2))
    x[:3] += far
    y[:3] += far
    C = cdist(x, y, "sqeuclidean")
    rows, columns = linear_sum_assignment(C)
    weight = np.full(500, 1 / 500)
    found = cloud_gradients([(x, y, weight, weight)])[0]
    assert found.value == pytest.approx(C[rows, columns].mean(), rel=1e-9)
    np.testing.assert_allclose(found.x[rows], 2 * (x[rows] - y[columns]) / 500, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found.y[columns], 2 * (y[columns] - x[rows]) / 500, rtol=1e-9, atol=1e-15)


def test_gradients_of_weights_with_a_far_bin():
    """A small step of mass between two bins changes the exact cost as the potentials say."""
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.random((6, 2)), [[1e6, 0.0]]])
    p, q = rng.integers(1, 9, (2, 7)).astype(float)
    p[6] = q[6] = 4.0
    p[0] += q.sum() - p.sum() + 20
    q[0] += 20
    costs = exact_distances(x, x, 2)
    found = weight_gradients(p[None], q[None], marginals(PointCost(x)))
    W = optimum(p, q, costs)
    assert W is not None
    mass = int(p.sum())
    assert found.value[0] == pytest.approx(float(W.low * mass), rel=1e-9)
    f = found.p[0]
    for i, j in ((0, 1), (2, 3), (4, 5)):
        for sign in (-1, 1):
            moved = p.copy()
            moved[[i, j]] += sign * 2.0**-20, -sign * 2.0**-20
            near = optimum(moved, q, costs)
            assert near is not None
            # W is convex: potentials are a subgradient, up to the rounding of 1e12
            assert float((near.low - W.low) * mass * 2**20) >= sign * (f[i] - f[j]) - 1e-3
