"""Threads inside one problem: the same numbers for every number of threads."""

import numpy as np
import pytest

from gibbsot import GridCost, PointCost, solve
from gibbsot.core.backend import backend

pytestmark = pytest.mark.skipif(not backend().has_simplex, reason="needs the compiled kernels")


def _same(cost, p=None, q=None):
    """Assert that results are bit-identical for one, two and three threads; return the first."""
    first, *others = (solve(p, q, cost, n_jobs=n_jobs) for n_jobs in (1, 2, 3))
    assert first.status == "optimal"
    for other in others:
        for name in ("value", "lower_bound", "upper_bound"):
            assert getattr(other, name) == getattr(first, name)
        for own, same in zip((*other.potentials, other.plan.data), (*first.potentials, first.plan.data), strict=True):
            np.testing.assert_array_equal(own, same)
        np.testing.assert_array_equal(other.plan.indices, first.plan.indices)
    return first


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 3, 4])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock", "chebyshev"])
def test_points_do_not_depend_on_threads(d, metric):
    rng = np.random.default_rng(d)
    p, q = rng.dirichlet(np.ones(4500)), rng.dirichlet(np.ones(4600))
    _same(PointCost(rng.random((4500, d)), rng.random((4600, d)), metric), p, q)


@pytest.mark.slow
def test_grids_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(72 * 72), 2)
    _same(GridCost((72, 72)), p, q)
