"""Free measures against HiGHS on all arcs: barycenters, mixtures, and barycenters on a line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from gibbsot import DenseCost, GridCost, PointCost
from gibbsot.costs import Cost
from gibbsot.exact.programme import free_measure, interior_point, linear_programme
from gibbsot.exact.programme.free_measure import FreeMeasure
from gibbsot.exact.programme.line_barycenter import line_barycenter
from gibbsot.exact.programme.linear_programme import minimise
from gibbsot.io.budget import Budget


def on_all_arcs(X: np.ndarray, weights: np.ndarray, M: np.ndarray, B: np.ndarray) -> float:
    """The optimum of the linear programme, written out."""
    (n, m), K = X.shape, len(B)
    one = np.ones((1, m))
    rows = sparse.kron(sparse.eye_array(n), sparse.kron(sparse.eye_array(m), one))
    columns = sparse.kron(sparse.eye_array(n), sparse.kron(one, sparse.eye_array(m)))
    free = sparse.vstack([sparse.csr_array(-B.T)] * n)
    A = sparse.block_array([[rows, free], [columns, None]])
    c = np.concatenate([np.kron(weights, M.ravel()), np.zeros(K)])
    found = linprog(c, A_eq=A, b_eq=np.concatenate([np.zeros(n * m), X.ravel()]), method="highs-ds")
    assert found.status == 0
    return float(found.fun)


def measures(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    x = rng.random((n, m)) * (rng.random((n, m)) < 0.5)
    x[np.arange(n), rng.integers(m, size=n)] += 0.1
    return x / x.sum(axis=1, keepdims=True)


def cost_of(kind: int, m: int, rng: np.random.Generator) -> Cost:
    side = int(m**0.5)
    return (
        GridCost((side, m // side)) if side * (m // side) == m else GridCost(m, power=3),
        PointCost(rng.random((m, 3))),
        DenseCost(rng.integers(-3, 9, (m, m)).astype(float)),
        DenseCost(1e9 * rng.random((m, m)) - 1e8),
    )[kind]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 12), st.integers(0, 3), st.booleans())
def test_any_free_measure(seed, n, m, kind, mixture):
    """The bounds enclose the optimum and meet; weights range over six decades, components may be zero anywhere."""
    rng = np.random.default_rng(seed)
    X, weights, cost = measures(rng, n, m), 10.0 ** rng.uniform(-6, 0, n), cost_of(kind, m, rng)
    B = measures(rng, 3, m) if mixture else None
    weights /= weights.sum()
    optimum = minimise(FreeMeasure(sparse.csr_array(X), weights, cost, B), gap=0.0)
    expected = on_all_arcs(X, weights, cost.matrix(), np.eye(m) if B is None else B)
    slack = 1e-8 * np.abs(cost.matrix()).max()
    assert optimum.lower <= expected + slack
    assert expected - slack <= optimum.upper
    assert optimum.upper - optimum.lower <= 1e-9 * abs(optimum.upper) + 1e-12 * cost.spread()
    assert optimum.w.sum() == pytest.approx(1)
    assert (optimum.w >= 0).all()
    assert optimum.ended == "gap reached"


@pytest.mark.parametrize("mixture", [False, True])
@pytest.mark.parametrize("gap", [1e-2, 0.0])
@pytest.mark.parametrize("kind", [0, 1, 3])
def test_chosen_arcs_and_the_interior_point(monkeypatch, kind, gap, mixture):
    """The same optimum by rounds on few arcs, from potentials that say nothing; for 1e-2 without HiGHS."""
    monkeypatch.setattr(free_measure, "_ALL_ARCS", 0)
    rng = np.random.default_rng(kind)
    m = 36
    X, cost = measures(rng, 5, m), cost_of(kind, m, rng)
    B = measures(rng, 8, m) if mixture else None
    problem = FreeMeasure(sparse.csr_array(X), np.full(5, 0.2), cost, B)
    with linear_programme.ONE_THREAD():
        stages = [(best.stage, best.gap) for best in linear_programme.stages(problem, gap)]
    optimum = minimise(problem, gap)
    expected = on_all_arcs(X, np.full(5, 0.2), cost.matrix(), np.eye(m) if B is None else B)
    assert optimum.upper == pytest.approx(expected, rel=max(gap, 1e-8))
    assert optimum.lower <= expected + 1e-8 * abs(expected)
    assert stages[-1][1] == optimum.gap <= max(gap, 1e-9 if mixture else 1e-10)
    assert gap == 0 or all(stage.startswith("round") for stage, _ in stages)


@pytest.mark.parametrize("gap", [1e-3, 0.0])
@pytest.mark.parametrize("few", [0, 6, 12])
def test_blocks_in_single_precision(monkeypatch, gap, few):
    """The same optimum if blocks are factorised in single precision, for one step, a few, or while that works."""
    monkeypatch.setattr(free_measure, "_ALL_ARCS", 0)
    rng = np.random.default_rng(few)
    m = 64
    X, cost = measures(rng, 4, m), GridCost((8, 8))
    problem = FreeMeasure(sparse.csr_array(X), np.full(4, 0.25), cost)
    expected = minimise(problem, 0.0).upper
    types = []
    inverse = interior_point._grounded_inverse
    monkeypatch.setattr(interior_point, "_grounded_inverse", lambda *args: types.append(args[-1]) or inverse(*args))
    monkeypatch.setattr(interior_point, "_LARGE", 1)
    monkeypatch.setattr(interior_point, "_FEW", few)
    optimum = minimise(problem, gap)
    assert optimum.ended == "gap reached"
    assert optimum.lower <= expected * (1 + 1e-9)
    assert optimum.upper == pytest.approx(expected, rel=max(gap, 1e-9))
    assert np.float32 in types
    assert few or np.float64 in types


def test_budgets_and_degenerate_problems(monkeypatch):
    """No time, no memory, one point, and costs that are all the same."""
    rng = np.random.default_rng(0)
    problem = FreeMeasure(sparse.csr_array(measures(rng, 3, 25)), np.full(3, 1 / 3), GridCost((5, 5)))
    one = FreeMeasure(sparse.csr_array(np.ones((2, 1))), np.full(2, 0.5), DenseCost([[-2.0]]))
    same = FreeMeasure(sparse.csr_array(measures(rng, 3, 4)), np.full(3, 1 / 3), DenseCost(np.full((4, 4), 3.0)))
    for each, value in ((one, -2.0), (same, 3.0)):
        assert minimise(each, 0.0).upper == pytest.approx(value)
    monkeypatch.setattr(free_measure, "_ALL_ARCS", 0)
    for run, ended in ((Budget(max_seconds=1e-9), "time"), (Budget(max_memory=10.0), "memory")):
        last = list(linear_programme.stages(problem, 0.0, budget=run))[-1]
        assert last.ended == ended
        assert last.lower <= last.upper


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 12), st.sampled_from([1.0, 1.5, 2.0, 3.0]))
def test_barycenters_on_a_line(seed, n, m, power):
    """The closed form is the optimum on fixed points, where the mean of the quantiles lies between them."""
    rng = np.random.default_rng(seed)
    X, weights = measures(rng, n, m), rng.random(n) + 0.01
    weights /= weights.sum()
    if power <= 2 and power != 1.5:
        cost: Cost = PointCost(rng.random((m, 1)), metric="euclidean" if power == 1 else "sqeuclidean")
    else:
        cost = GridCost(m, power=power)
    geometry = cost.geometry()
    assert geometry is not None
    problem = FreeMeasure(sparse.csr_array(X), weights, cost)
    optimum = line_barycenter(problem, geometry)
    expected = on_all_arcs(X, weights, cost.matrix(), np.eye(m))
    assert optimum.upper == pytest.approx(expected, rel=1e-9, abs=1e-14)
    assert optimum.lower <= expected * (1 + 1e-9) + 1e-14
    assert optimum.upper - optimum.lower <= 1e-10 * optimum.upper + 1e-15
    assert problem.upper(optimum.w)[0].upper == optimum.upper
