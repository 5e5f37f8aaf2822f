"""Oracles of unbalanced transport: values, gradients by central differences, kept duals, files, errors."""

import numpy as np
import pytest

from gibbsot import GridCost, Oracle, PointCost, solve
from gibbsot.oracle.pairs import exact_values

CLOUDS = np.random.default_rng(5).random((2, 9, 2))
COST = PointCost(*CLOUDS)
WEIGHTS = [0.3, (0.1, 2.0), (np.inf, 0.5), (0.4, np.inf)]


def rows(n, mass=1.0, seed=0):
    """Measures of masses that differ from row to row."""
    rng = np.random.default_rng(seed)
    return mass * rng.dirichlet(np.ones(9), n) * rng.uniform(0.5, 2, (n, 1))


def exact(P, Q, kl):
    return np.array([solve(p, q, COST, kl=kl, gap=0).value for p, q in zip(P, Q, strict=True)])


@pytest.mark.parametrize("kl", WEIGHTS)
@pytest.mark.parametrize("targets", [False, True])
@pytest.mark.parametrize("method", ["auto", "exact"])
def test_values_and_gradients(kl, targets, method):
    """Values are those of solve, and gradients, which are not centred, those of central differences."""
    P, Q = rows(3), rows(3, 2.0, 1)
    oracle = Oracle(COST, Q if targets else None, kl=kl, method=method)
    found = oracle(P) if targets else oracle(P, Q)
    np.testing.assert_allclose(found.values, exact(P, Q, kl), rtol=2e-6)
    rng = np.random.default_rng(3)
    for side, gradient in ((0, found.grad_p), (1, found.grad_q)):
        step = 1e-5 * rng.random((3, 9))
        ahead, behind = ((P + s * step, Q) if side == 0 else (P, Q + s * step) for s in (1, -1))
        difference = (exact(*ahead, kl) - exact(*behind, kl)) / 2
        np.testing.assert_allclose((gradient * step).sum(axis=1), difference, rtol=5e-3, atol=2e-8)


@pytest.mark.parametrize("kl", WEIGHTS)
def test_kept_duals_follow_the_masses(kl):
    """Duals of measures that have moved little give a lower bound near the optimum, also where masses changed."""
    P, Q = rows(4), rows(4, 2.0, 1)
    oracle = Oracle(COST, Q, kl=kl, drift=0.1)
    assert oracle(P).info.solved.all()
    moved = 1.05 * P
    found, optimum = oracle(moved), exact(moved, Q, kl)
    assert not found.info.solved.any()
    assert (found.values <= optimum * (1 + 1e-12)).all()
    np.testing.assert_allclose(found.values, optimum, rtol=5e-3)
    # the gradients are those of the values themselves
    step = 1e-6 * np.random.default_rng(3).random((4, 9))
    ahead, behind = (oracle(moved + s * step).values for s in (1, -1))
    np.testing.assert_allclose((found.grad_p * step).sum(axis=1), (ahead - behind) / 2, rtol=1e-5, atol=1e-13)
    assert oracle(2 * P).info.solved.all()


def test_the_lower_bound_needs_the_shift():
    """Without a shift of the potentials the bound of another mass would be much worse."""
    P, Q = rows(1), rows(1, 1.0, 1)
    oracle = Oracle(COST, Q, kl=0.2, drift=0.5)
    oracle(P)
    f, g = (oracle._pairs.store.read(name, oracle._pairs.store.find([0]))[0] for name in "fg")
    moved = 2 * P
    plain = float(moved[0] @ (-0.2 * np.expm1(-f / 0.2)) + Q[0] @ (-0.2 * np.expm1(-g / 0.2)))
    found, (optimum,) = oracle(moved), exact(moved, Q, 0.2)
    assert not found.info.solved.any()
    assert plain < found.values[0] <= optimum
    assert optimum - found.values[0] < 0.2 * (optimum - plain)


def test_warm_starts_and_exact_values():
    P, Q = rows(3), rows(3, 2.0, 1)
    oracle = Oracle(COST, kl=0.3, drift=0)
    oracle(P, Q)
    moved = P + 0.1 * rows(3, 0.2, 7)
    np.testing.assert_allclose(oracle(moved, Q).values, exact(moved, Q, 0.3), rtol=2e-6)
    solutions = oracle.exact(moved, Q)
    assert all(one.lower <= value <= one.upper for one, value in zip(solutions, exact(moved, Q, 0.3), strict=True))
    before = oracle.snapshot()
    with exact_values():
        again = oracle(moved, Q)
    np.testing.assert_allclose(again.values, exact(moved, Q, 0.3), rtol=2e-6)
    np.testing.assert_allclose(again.grad_p, oracle(moved, Q).grad_p, atol=2e-3)
    oracle.restore(before)


def test_a_file_goes_on_bit_identically(tmp_path):
    P, Q = rows(3), rows(3, 2.0, 1)
    oracle = Oracle(COST, Q, kl=(0.3, np.inf), drift=0.05)
    oracle(P)
    oracle.save(tmp_path / "oracle.npz")
    again = Oracle.load(tmp_path / "oracle.npz")
    assert again.kl == (0.3, np.inf)
    for moved in (1.01 * P, 1.5 * P):
        for one, other in zip(oracle(moved)[:3], again(moved)[:3], strict=True):
            np.testing.assert_array_equal(one, other)


def test_infinite_weights_are_balanced_transport():
    P = rows(2)
    P /= P.sum(axis=1, keepdims=True)
    unbalanced, balanced = Oracle(COST, P[::-1], kl=np.inf), Oracle(COST, P[::-1])
    assert unbalanced.kl is None
    for one, other in zip(unbalanced(P)[:3], balanced(P)[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="sum"):
        unbalanced(2 * P)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kl": 0.0}, "kl: expected a positive"),
        ({"kl": 1, "penalty": 1}, "kl: expected no penalty"),
        ({"kl": 1, "normalize": True}, "normalize"),
        ({"kl": 1, "method": "gibbs"}, "kl: the sampler"),
        ({"kl": 1, "rng": 3}, "rng: is an option of the sampler"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        Oracle(GridCost(3), **options)
