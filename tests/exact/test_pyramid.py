"""Grids with any sum over axes, solved from coarse to fine, give the optimum of the whole matrix."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gibbsot import GridCost, solve
from gibbsot.core import native
from gibbsot.exact import coarse_to_fine, pyramid
from gibbsot.exact import methods as exact

pytestmark = pytest.mark.skipif(native.name() == "numpy", reason="HiGHS has other tolerances")


@st.composite
def grids(draw):
    """A cost and measures with zeros anywhere."""
    d = draw(st.integers(1, 3))
    most = {1: 40, 2: 9, 3: 5}[d]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = tuple(draw(st.lists(st.integers(1, most), min_size=d, max_size=d)))
    if draw(st.booleans()):
        columns = draw(st.lists(st.integers(1, most), min_size=d, max_size=d))
        matrices = [rng.random((n, m)) for n, m in zip(shape, columns, strict=True)]
        if draw(st.booleans()):
            matrices = [np.floor(4 * matrix) for matrix in matrices]
        cost = GridCost(matrices=matrices)
    else:
        cost = GridCost(shape, power=draw(st.sampled_from([1, 1.5, 3])), spacing=tuple(10.0 ** rng.integers(-2, 3, d)))
    weights = []
    for m in cost.shape:
        w = rng.random(m) if draw(st.booleans()) else rng.integers(1, 4, m).astype(float)
        w *= rng.random(m) < draw(st.sampled_from([0.1, 0.6, 1.0]))
        w[rng.integers(m)] += 1
        weights.append(w / w.sum())
    return cost, *weights


@settings(max_examples=60, deadline=None)
@given(grids())
def test_many_levels_give_the_optimum(case):
    cost, p, q = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarse_to_fine, "_SMALLEST", 4)
        answer = pyramid.solve_pyramid(p, q, cost)
    M = cost.matrix()
    W = ot.emd2(p, q, M, numItermax=10**7)
    assert answer.value == pytest.approx(W, rel=1e-9, abs=1e-14 * M.max())
    assert 0 <= answer.upper - answer.lower <= 1e-10 * W + 1e-13 * M.max()
    assert (answer.f[:, None] + answer.g <= M).all()
    np.testing.assert_allclose(answer.plan.sum(axis=1), p, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(answer.plan.sum(axis=0), q, rtol=1e-12, atol=1e-300)


def test_cells_of_forbidden_moves():
    """Only moves along a diagonal band are allowed, and only one of them from a corner."""
    n = 40
    x = np.arange(n)
    band = np.where(np.abs(x[:, None] - x) <= 1, np.abs(x[:, None] - x) + 0.0, np.inf)
    cost = GridCost(matrices=[band, band])
    p, q = np.zeros((n, n)), np.zeros((n, n))
    p[::2, ::2] = q[1::2, 1::2] = 1 / 400
    answer = pyramid.solve_pyramid(p.ravel(), q.ravel(), cost)
    assert answer.status == "optimal"
    assert answer.value == pytest.approx(2)
    q[1, 1] = q[5, 30] = 0.5 / 400
    with pytest.raises(ValueError, match="infinite costs forbid every plan"):
        pyramid.solve_pyramid(p.ravel(), q.ravel(), cost)


@pytest.mark.parametrize("power", [1.25, 1.5, 3])
def test_the_public_function_goes_from_coarse_to_fine(power):
    rng = np.random.default_rng(0)
    cost = GridCost((33, 27), power=power)
    p, q = (w / w.sum() for w in rng.random((2, cost.shape[0])))
    result = solve(p, q, cost)
    assert result.parts[0].sample is None
    assert [one.name for one in exact.choose(result.problem)] == ["coarse grids"]
    assert result.status == "optimal"
    assert result.value == pytest.approx(ot.emd2(p, q, cost.matrix(), numItermax=10**7), rel=1e-9)
    assert (pyramid.solve_pyramid(p, q, cost).plan != pyramid.solve_pyramid(p, q, cost).plan).nnz == 0
