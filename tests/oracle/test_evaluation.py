from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import batch
from gibbsot import GridCost, solve_batch
from gibbsot.oracle import evaluation
from gibbsot.oracle.chains import TargetChains
from gibbsot.sampling.temperature import INITIAL_BIAS


def oracle_of(kind: str, n: int = 3, seed: int = 0) -> tuple[TargetChains, np.ndarray]:
    pair = batch(kind, n=n, seed=seed)
    return TargetChains(pair.cost, pair.q, tau=20), pair.p


@given(st.integers(1, 3000), st.integers(1, 50))
def test_a_sample_is_spread_evenly(n, most):
    indices = evaluation.sample(n, most)
    assert len(indices) == min(n, most)
    assert indices[0] == 0
    assert indices[-1] == (n - 1 if most > 1 else 0)
    steps = np.diff(indices)
    assert (steps > 0).all()
    assert len(steps) == 0 or steps.max() - steps.min() <= 1


def test_by_default_twenty_problems_are_evaluated():
    assert len(evaluation.sample(1000)) == 20
    assert evaluation.sample(3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["dense", "grid2", "points"])
def test_certified_bounds_enclose_the_cost(kind):
    oracle, P = oracle_of(kind)
    exact = solve_batch(P, oracle.targets, oracle.cost).value
    lower, upper = evaluation.certified(oracle, P, 0.01, np.arange(3))
    assert (lower <= upper).all()
    np.testing.assert_allclose(lower, exact, rtol=1e-9)
    np.testing.assert_allclose(upper, exact, rtol=1e-9)


def test_an_evaluation_leaves_the_chains_and_the_models_unchanged():
    oracle, P = oracle_of("grid2")
    oracle(P, 0.1)
    before, models = {name: np.copy(x) for name, x in oracle.arrays().items()}, P.copy()
    evaluation.certified(oracle, P[1:], 0.1, [1, 2])
    evaluation.initial_temperatures(oracle, P[1:], [1, 2])
    for name, x in oracle.arrays().items():
        np.testing.assert_array_equal(x, before[name])
    np.testing.assert_array_equal(P, models)


def test_weights_below_the_threshold_are_left_out():
    cost = GridCost(4, spacing=1.0)
    oracle = TargetChains(cost, np.eye(4)[:1])
    P = np.array([[1.0 - 1e-13, 0.0, 0.0, 1e-13]])
    lower, upper = evaluation.certified(oracle, P, 0.01, [0])
    assert lower[0] <= upper[0] == 0


def test_problems_are_those_of_the_indices():
    oracle, P = oracle_of("grid2", n=4)
    _, all_of_them = evaluation.certified(oracle, P, 0.01, np.arange(4))
    _, some = evaluation.certified(oracle, P[[3, 1]], 0.01, [3, 1])
    np.testing.assert_allclose(some, all_of_them[[3, 1]], rtol=1e-12)


def test_the_initial_temperature_gives_the_initial_bias():
    """Chains that have mixed at this temperature have about the relative bias that it was chosen for."""
    oracle, P = oracle_of("grid2", n=6)
    estimates, T = evaluation.initial_temperatures(oracle, P)
    exact = solve_batch(P, oracle.targets, oracle.cost).value
    np.testing.assert_allclose(estimates, exact, rtol=0.3)
    for _ in range(20):
        values, _, _ = oracle(P, T)
    bias = (values.mean() - exact.mean()) / exact.mean()
    assert INITIAL_BIAS / 3 < bias < 3 * INITIAL_BIAS


def test_initial_temperatures_have_the_unit_of_the_cost():
    pair = batch("grid2", n=2)
    one, other = (
        evaluation.initial_temperatures(TargetChains(GridCost((9, 18), spacing=spacing), pair.q), pair.p)
        for spacing in (1.0, 2.0)
    )
    for x, y in zip(one, other, strict=True):
        np.testing.assert_allclose(y, 4 * x, rtol=1e-6)


@pytest.mark.parametrize("shape", [(9, 18), (25, 23)])
def test_chains_in_single_precision_are_evaluated_for_the_cost_before_it_was_rounded(shape):
    cost, rng = GridCost(shape, spacing=0.3), np.random.default_rng(0)
    P, Q = rng.dirichlet(np.ones(np.prod(shape)), size=(2, 2))
    exact = solve_batch(P, Q, cost).value
    lower, upper = evaluation.certified(TargetChains(cost.astype(np.float32), Q), P, 0.01, [0, 1])
    assert (lower <= upper).all()
    np.testing.assert_allclose(lower, exact, rtol=1e-11)
    np.testing.assert_allclose(upper, exact, rtol=1e-11)
