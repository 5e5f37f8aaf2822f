"""A simplex that begins in blocks, and threads inside one problem: the same numbers for every number of threads."""

import numpy as np
import pytest

from gibbsot import GridCost, PointCost, solve
from gibbsot.core.backend import backend
from gibbsot.exact.simplex import ArcProblem

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


@pytest.mark.parametrize("blocks", [4, 16])
@pytest.mark.parametrize("weights", ["equal", "uneven"])
def test_blocks_lead_to_the_optimum_of_highs(blocks, weights):
    from scipy import sparse
    from scipy.optimize import linprog

    rng = np.random.default_rng(blocks)
    m = 60
    p, q = np.ones((2, m)) / m if weights == "equal" else rng.dirichlet(np.ones(m), 2)
    x, y = np.sort(rng.random(m)), rng.random(m)  # rows in the order of the line
    i, j = (k.ravel() for k in np.indices((m, m)))
    c = np.abs(x[i] - y[j]) + 0.1 * rng.random(m * m)
    numbers = []
    for n_jobs in (1, 2, 3):
        problem = ArcProblem(p, q)
        problem._budget.threads = n_jobs
        problem.add(i, j, c)
        problem.start_in_blocks(np.zeros(m), np.zeros(m), 4.0, blocks, 0.0)
        assert problem.pivots > 0
        assert problem.optimise()
        numbers.append((problem.value, problem.pivots, *problem.potentials()[0]))
    assert numbers[0] == numbers[1] == numbers[2]
    A = sparse.vstack([sparse.csr_array((np.ones(m * m), (k, np.arange(m * m))), (m, m * m)) for k in (i, j)])
    assert numbers[0][0] == pytest.approx(linprog(c, A_eq=A, b_eq=np.concatenate([p, q])).fun, rel=1e-9)
