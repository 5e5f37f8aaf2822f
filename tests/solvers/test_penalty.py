"""A penalty for mass that is left over, in chains."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from gibbsot import GridCost, solve, solve_batch
from gibbsot.oracle.chains import TargetChains

m1, m2, n, C = 7, 9, 5, 0.2
rng = np.random.default_rng(0)
M = rng.random((m1, m2))
P, Q = 2 * rng.random((n, m1)), rng.random((n, m2))


def cooled(oracle, models, T=1e-5):
    """Mean values and gradients of chains that were cooled."""
    for t in np.geomspace(1e4 * T, T, 15):
        oracle(models, t)
    found = [oracle(models, T) for _ in range(5)]
    return tuple(np.mean([pick(x) for x in found], axis=0) for pick in (
        lambda x: x[0], lambda x: x[1], lambda x: x[2].target_gradients))  # fmt: skip


def by_highs(p, q, cost, penalty):
    """The least cost of a plan whose marginals are at most p and q, and of what is left over."""
    rows, columns = np.kron(np.eye(len(p)), np.ones(len(q))), np.kron(np.ones(len(p)), np.eye(len(q)))
    less = linprog((cost - 2 * penalty).ravel(), np.vstack([rows, columns]), np.concatenate([p, q]))
    return less.fun + penalty * (p.sum() + q.sum())


@pytest.mark.parametrize(("cost", "penalty"), [(M, C), (M - 0.4, 0.1), (M - 0.4, 0.0), (1e155 * M, C * 1e155)])
def test_values_bounds_and_gradients(cost, penalty):
    exact, unit = solve_batch(P, Q, cost, penalty=penalty), np.abs(cost).max()
    oracle = TargetChains(cost, Q, penalty=penalty, tau=1000, max_sweeps=3000)
    values, gradients, target_gradients = cooled(oracle, P, 1e-5 * unit)
    np.testing.assert_allclose(values / unit, exact.value / unit, rtol=1e-3)
    for found, potentials in zip((gradients, target_gradients), exact.potentials, strict=True):
        np.testing.assert_allclose(found / unit, potentials / unit, atol=0.05)
        assert np.abs(found - potentials).mean() < 0.005 * unit
    _, _, info = oracle(P, 1e-5 * unit, bounds=True)
    assert (info.lower <= exact.upper_bound).all()
    assert (exact.lower_bound <= info.upper).all()
    np.testing.assert_allclose(info.upper, info.lower, atol=1e-12 * unit)
    for b, optimum in enumerate(oracle.exact(P, 1e-5 * unit)):
        assert optimum.lower <= exact.value[b] <= optimum.upper
        np.testing.assert_allclose(optimum.value / unit, by_highs(P[b], Q[b], cost / unit, penalty / unit), rtol=1e-9)
        assert optimum.plan.shape == (m1, m2)
        assert (optimum.plan.sum(axis=1) <= P[b] * (1 + 1e-12)).all()
        assert (optimum.f[:, None] + optimum.g <= cost + 1e-12 * unit).all()
        left = P[b].sum() + Q[b].sum() - 2 * optimum.plan.sum()
        np.testing.assert_allclose((optimum.plan * cost).sum() + penalty * left, optimum.value, rtol=1e-12)


def test_gradients_are_finite_differences():
    """Also for more mass: gradients are not centred."""
    oracle = TargetChains(M, Q[:1], penalty=C, tau=5000, max_sweeps=20000)
    _, gradients, target_gradients = cooled(oracle, P[:1])
    for found, side in ((gradients[0], 0), (target_gradients[0], 1)):
        for i in range(len(found)):
            ends = []
            for step in (1e-6, -1e-6):
                p, q = P[0].copy(), Q[0].copy()
                (p, q)[side][i] += step
                ends.append(solve(p, q, M, penalty=C).value)
            assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(found[i], abs=0.01)


def test_a_large_penalty_is_balanced_transport():
    p, q = (x / x.sum(axis=1, keepdims=True) for x in (P, Q))
    exact = solve_batch(p, q, M)
    found = [optimum.value for optimum in TargetChains(M, q, penalty=10.0).exact(p, 1e-3)]
    np.testing.assert_allclose(found, exact.value, rtol=1e-12)


def test_grids_sparse_targets_indices_and_one_model():
    cost = GridCost((3, 3))
    Z = np.where(rng.random((4, 9)) < 0.4, 0, rng.random((4, 9))) + np.eye(9)[:4]
    dense = TargetChains(cost, Z, penalty=C)(Z[0], 1e-3)
    found = TargetChains(cost, sparse.csr_array(Z), penalty=C)(Z[0], 1e-3)
    np.testing.assert_array_equal(found[1], dense[1])
    some = TargetChains(cost, Z, penalty=C)(np.tile(Z[0], (2, 1)), 1e-3, indices=[3, 1])
    np.testing.assert_array_equal(some[0], dense[0][[3, 1]])
    twice = TargetChains(cost, 2 * Z, penalty=C)(2 * Z[0], 1e-3)
    np.testing.assert_allclose(twice[0], 2 * dense[0], rtol=1e-12)  # masses matter


def test_negligible_weights():
    """A weight that vanishes beside the mass of a model has no chain until it does not."""
    oracle = TargetChains(M, Q[:1] * 1e-310, penalty=C)
    values, _, _ = oracle(P[:1], 1e-4)
    np.testing.assert_allclose(values, C * P[0].sum(), rtol=1e-2)
    values, gradients, _ = oracle(P[:1] * 1e-310, 1e-4)
    assert np.isfinite(gradients).all()


def test_files_and_potentials():
    oracle = TargetChains(M, Q, penalty=C)
    oracle(P, 1e-3)
    arrays = {name: np.asarray(x) for name, x in oracle.arrays().items()}
    loaded = TargetChains.from_arrays(arrays)
    assert loaded.penalty == C
    for a, b in zip(oracle(P, 1e-3)[:2], loaded(P, 1e-3)[:2], strict=True):
        np.testing.assert_array_equal(a, b)
    exact = solve_batch(P, Q, M, penalty=C)
    warm = TargetChains(M, Q, penalty=C, tau=1, max_sweeps=2)
    warm.load_potentials(-exact.potentials[1])
    np.testing.assert_allclose(warm(P, 1e-6)[0], exact.value, rtol=1e-3)


@pytest.mark.parametrize(
    ("penalty", "error"), [(np.nan, ValueError), (np.inf, ValueError), (-1e-9, ValueError), ("high", TypeError)]
)
def test_bad_penalties(penalty, error):
    with pytest.raises(error, match="penalty: expected a"):
        TargetChains(M, Q, penalty=penalty)


def test_penalties_of_points():
    """Values, gradients, bounds and files, and a penalty of each point that is the same for all is that number."""
    penalty = rng.random(m1), 0.3
    exact = solve_batch(P, Q, M, penalty=penalty)
    oracle = TargetChains(M, Q, penalty=penalty, tau=1000, max_sweeps=3000)
    values, gradients, target_gradients = cooled(oracle, P)
    np.testing.assert_allclose(values, exact.value, rtol=1e-3)
    for found, potentials in zip((gradients, target_gradients), exact.potentials, strict=True):
        assert np.abs(found - potentials).mean() < 0.005
    _, _, info = oracle(P, 1e-5, bounds=True)
    assert (info.lower <= exact.upper_bound).all()
    assert (exact.lower_bound <= info.upper).all()
    np.testing.assert_allclose([one.value for one in oracle.exact(P, 1e-5)], exact.value, rtol=1e-12)
    arrays = {name: np.asarray(x) for name, x in oracle.arrays().items()}
    loaded = TargetChains.from_arrays(arrays)
    np.testing.assert_array_equal(loaded.penalty[0], penalty[0])
    assert loaded.penalty[1] == 0.3
    np.testing.assert_array_equal(oracle(P, 1e-3)[0], loaded(P, 1e-3)[0])
    one, many = (TargetChains(M, Q, penalty=c)(P, 1e-3)[:2] for c in (C, (np.full(m1, C), np.full(m2, C))))
    for a, b in zip(one, many, strict=True):
        np.testing.assert_array_equal(a, b)
