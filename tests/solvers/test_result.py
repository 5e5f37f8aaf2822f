from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given

from cases import batch, problems
from gibbsot import Gibbs, GridCost, OTResult, solve, solve_batch
from gibbsot.sampling.theory import Trace


@pytest.fixture(scope="module")
def many() -> OTResult:
    pair = batch("grid2", n=3)
    return solve_batch(pair.p, pair.q, pair.cost, method=Gibbs(n_sweeps=300))


def test_shapes_of_a_batch(many):
    m1, m2 = many.problem.cost.shape
    U, L = many.potentials
    assert U.shape == (3, m1)
    assert L.shape == (3, m2)
    for name in ("value", "lower_bound", "upper_bound", "gap", "temperature", "n_sweeps", "mixed"):
        assert np.shape(getattr(many, name)) == (3,), name
    assert many.status == ["estimate"] * 3
    assert [plan.shape for plan in many.plan] == [plan.shape for plan in many.recovered_plan] == [(m1, m2)] * 3
    assert many.history.shape[0] == 3


def test_an_item_is_the_result_of_one_problem(many):
    for b, one in enumerate(many):
        assert one.single
        assert isinstance(one.value, float)
        assert one.status == "estimate"
        for name in ("value", "lower_bound", "upper_bound", "gap", "temperature", "n_sweeps", "mixed"):
            assert getattr(one, name) == getattr(many, name)[b], name
        for x, y in zip((*one.potentials, one.history), (*many.potentials, many.history), strict=True):
            np.testing.assert_array_equal(x, y[b])
        assert (one.plan != many.plan[b]).nnz == 0
    assert many[-1].value == many[2].value


def test_a_slice_is_a_batch(many):
    part = many[1:]
    assert len(part) == 2
    assert part.value.tolist() == many.value[1:].tolist()
    assert part[0].value == many[1].value


def test_lengths_and_indices(many):
    assert len(many) == len(list(many)) == 3
    with pytest.raises(TypeError, match="one problem"):
        len(many[0])
    for index in (3, -4):
        with pytest.raises(IndexError, match="of a batch of 3"):
            many[index]


def test_representations(many):
    assert repr(many).startswith(
        f"<OTResult batch 3 problems of 162 x 162 points, mean value {many.value.mean():.6g} (3 estimate)"
    )
    pair = batch("grid2", n=1)
    one = solve(pair.p[0], pair.q[0], pair.cost)
    expected = (
        f"value {one.value:.6g} (optimal), bounds {one.lower_bound:.6g} <= W <= {one.upper_bound:.6g}, size 162 x 162"
    )
    assert expected in repr(one)
    estimate = solve(pair.p[0], pair.q[0], pair.cost, method=Gibbs(n_sweeps=20))
    assert "(estimate), bounds computed when read, size" in repr(estimate)
    assert f"bounds {estimate.lower_bound:.6g} <= W <= {estimate.upper_bound:.6g}, size" in repr(estimate)
    assert "<th>value</th>" in one._repr_html_()
    assert "&lt;= W" in one._repr_html_()


def test_copies_and_pickles(many):
    for other in (copy.deepcopy(many), pickle.loads(pickle.dumps(many))):
        assert other.gap.tolist() == many.gap.tolist()


@given(problems())
def test_bounds_are_in_order(pair):
    """The lower bound is at most the upper one, the coupling has the marginals, and its cost is the upper bound."""
    result = solve_batch(pair.p, pair.q, pair.cost, method=Gibbs(n_sweeps=40))
    for b, coupling in enumerate(result.plan):
        if np.isinf(result.upper_bound[b]):
            assert result.gap[b] == np.inf
            continue
        assert result.lower_bound[b] <= result.upper_bound[b]
        assert result.gap[b] >= 0
        np.testing.assert_allclose(coupling.sum(axis=1), pair.p[b], atol=1e-6)
        np.testing.assert_allclose(coupling.sum(axis=0), pair.q[b], atol=1e-6)
        arcs = coupling.tocoo()
        cost = (arcs.data * pair.cost.at(arcs.row, arcs.col)).sum()
        assert cost == pytest.approx(result.upper_bound[b], rel=1e-5, abs=1e-9)


def test_the_sparse_plan_has_mass_one_and_few_entries(many):
    for plan in many.recovered_plan:
        assert plan.sum() == pytest.approx(1)
        assert plan.nnz <= sum(plan.shape)


def test_an_exact_result_is_made_of_its_solutions():
    pair = batch("grid2", n=2)
    result = solve_batch(pair.p, pair.q, pair.cost)
    assert result.status == ["optimal"] * 2
    f, g = result.potentials
    for b, solution in enumerate(result.solutions):
        assert result.value[b] == pytest.approx(solution.value, rel=1e-15)
        np.testing.assert_array_equal(f[b], solution.f)
        np.testing.assert_array_equal(g[b], solution.g)
        dual = pair.p[b] @ f[b] + pair.q[b] @ g[b]
        assert dual == pytest.approx(result.lower_bound[b], rel=1e-12, abs=1e-14)
    np.testing.assert_array_equal(result.U, f)
    np.testing.assert_array_equal(result.L, -g)
    assert (result.gap <= 1e-12).all()
    assert result[1].status == "optimal"


def test_an_exact_result_has_no_chains():
    result = solve([1.0], [1.0], [[3.0]])
    for name in ("g", "h", "mixed", "n_sweeps", "temperature", "history", "state", "info", "diagnostics"):
        with pytest.raises(AttributeError, match="an exact solve does not have"):
            getattr(result, name)


def test_a_difference_of_rounding_is_no_gap():
    cost = GridCost(5)
    result = solve(np.eye(5)[0], np.eye(5)[0], cost)
    assert result.value == pytest.approx(0, abs=1e-12)
    assert result.gap == 0


def test_diagnostics_of_an_item():
    pair = batch("grid1", n=2)
    result = solve_batch(pair.p, pair.q, pair.cost, method=Gibbs(n_sweeps=5, diagnostics=True))
    one = result[1].diagnostics
    assert isinstance(one, Trace)
    for x, y in zip(one, result.diagnostics, strict=True):
        np.testing.assert_array_equal(x, y[1])


def test_samples_of_the_sampler():
    """g and h are those of the last sweep: feasible, below U and above L; additional points do not show."""
    M = np.abs(np.subtract.outer(np.arange(4.0), np.arange(3.0)))
    p, q = np.full(4, 0.25), np.array([0.2, 0.3, 0.5])
    result = solve(p, q, M, method=Gibbs(n_sweeps=30))
    assert (result.g[:, None] - result.h <= M + 1e-12).all()
    np.testing.assert_array_equal(result.g, result.info.g[0])
    np.testing.assert_array_equal(result.h, result.state.h[0])
    assert (result.g < result.U).all()
    assert (result.h > result.L).all()
    partial = solve(2 * p, q, M, penalty=1.0, method=Gibbs(n_sweeps=30))
    assert (partial.g.shape, partial.h.shape) == ((4,), (3,))
    assert solve_batch(np.tile(p, (2, 1)), q, M, method=Gibbs(n_sweeps=5)).g.shape == (2, 4)
