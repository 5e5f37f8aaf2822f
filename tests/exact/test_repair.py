"""Exact couplings near plans whose masses have lost digits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import fuzz
from gibbsot import DenseCost, PointCost, solve
from gibbsot.exact.annealed import crossover
from gibbsot.exact.repair import coupling_near
from kernels import using


def shares(weights):
    total = sum(map(Fraction, weights.tolist()))
    return [Fraction(x) / total for x in weights.tolist()]


@pytest.mark.parametrize("seed", range(20))
def test_every_mass_is_that_of_a_coupling(seed):
    rng = np.random.default_rng(seed)
    p, q = 10.0 ** rng.uniform(-30, 0, 6), 10.0 ** rng.uniform(-30, 0, 5)
    near = rng.integers(6, size=9), rng.integers(5, size=9), rng.random(9)
    i, j, mass = coupling_near(p, q, near)
    for ends, weights in ((i, p), (j, q)):
        for k, share in enumerate(shares(weights)):
            found = sum(map(Fraction, mass[ends == k].tolist()))
            assert abs(found - share) <= Fraction(2) ** -52 * share


def test_forbidden_corners_are_exchanged():
    p, q = np.array([1.0, 1e-20]), np.array([1e-20, 1.0])
    near = np.array([0, 1]), np.array([0, 1]), np.array([1.0, 1e-20])
    i, j, _ = coupling_near(p, q, near, inner=(1, 1))
    assert not ((i == 1) & (j == 1)).any()


def test_spent_budgets_keep_a_mass_that_is_far_below_the_weights():
    X, Y = np.random.default_rng(0).random((2, 400, 2))
    ones, mass = np.ones(400), 1e-17
    with pytest.warns(UserWarning, match="allowed"):
        found = solve(ones, ones, PointCost(X, Y + 3), mass=mass, max_seconds=1e-9)
    assert found.transported == pytest.approx(mass, rel=1e-12)
    assert found.upper_bound >= mass * cdist(X, Y + 3, "sqeuclidean").min()  # all of it fits between two points


def test_a_plan_that_needs_costs_of_1e32_exists():
    C = np.array([[np.inf, 1.0, 1e32], [np.inf, 1.0, 1e32], [0.5, np.inf, np.inf]])
    p = q = np.ones(3)
    with using("numpy"):
        found = crossover(p, q, DenseCost(C), np.zeros(3), neighbours=1)
    assert found.lower <= (1e32 + 1.5) / 3 <= found.upper


@pytest.mark.parametrize("seed", range(20))
def test_a_coupling_becomes_a_vertex_that_costs_no_more(seed):
    rng = np.random.default_rng(seed)
    p, q = 10.0 ** rng.uniform(-rng.choice([1, 30]), 0, 6), 10.0 ** rng.uniform(-1, 0, 5)
    i, j = np.indices((6, 5)).reshape(2, -1)
    near = i, j, np.outer(p / p.sum(), q / q.sum()).ravel()
    C = rng.integers(0, 4, (6, 5)).astype(float)
    listed = {(a, b): C[a, b] for a in range(6) for b in range(5) if seed % 2 or (a, b) != (5, 4)}
    i, j, mass = coupling_near(p, q, near, costs=listed)
    assert len(mass) <= 10
    for ends, weights in ((i, p), (j, q)):
        for k, share in enumerate(shares(weights)):
            found = sum(map(Fraction, mass[ends == k].tolist()))
            assert abs(found - share) <= Fraction(2) ** -52 * share
    a, b, moved = coupling_near(p, q, near)
    if seed % 2:
        assert mass @ C[i, j] <= moved @ C[a, b] * (1 + 1e-12)
    else:
        assert mass[(i == 5) & (j == 4)].sum() <= moved[(a == 5) & (b == 4)].sum() * (1 + 1e-12)


def test_what_highs_leaves_over_is_repaired_to_a_vertex():
    """Weights that differ by 77 orders of magnitude, and two rows of the same costs: the repaired plan had a cycle."""
    [(_, _, state, _)] = fuzz.runs(904536, ("without_kernels",))
    assert state == "optimal"
