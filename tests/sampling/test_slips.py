"""Slips of the paper's text, shown by small computations: the report lists them (``paper/slips.py``)."""

from __future__ import annotations

import numpy as np
from scipy import stats

from gibbsot import DenseCost, Problem
from gibbsot.sampling import sampler

RNG = np.random.default_rng(0)
M = RNG.random((3, 4))


def test_upper_bound_of_h():
    """-C < g_i - h_j for all i bounds h_j by the least of C + g_i; the printed maximum lets in what is not feasible."""
    C, g = 2.0, np.array([0.0, 0.3, -0.4])
    right, printed = (C + g).min(), (C + g).max()
    h = np.linspace(-1, 4, 1001)
    feasible = (g[:, None] - h > -C).all(axis=0)
    np.testing.assert_array_equal(feasible, h < right)
    assert (h[~feasible] < printed).any()


def test_law_of_u():
    """U is a minimum: Pr(U >= x) is the product of the tails; the printed product of distributions is far from it."""
    T, L, q = 0.2, RNG.random(4), np.array([0.1, 0.2, 0.3, 0.4])
    theta = RNG.exponential(size=(20_000, 4))
    U = (M[0] + L + theta * T / q).min(axis=1)

    def laws(x: np.ndarray) -> np.ndarray:
        return stats.expon.cdf((x[:, None] - M[0] - L) * q / T)

    assert stats.kstest(U, lambda x: 1 - (1 - laws(x)).prod(axis=1)).pvalue > 1e-4
    assert stats.kstest(U, lambda x: laws(x).prod(axis=1)).pvalue < 1e-12


def test_the_mixing_test_has_no_unit():
    """Costs and temperatures in another unit stop at the same sweep; by the printed right-hand side they would not."""
    p, q = np.full((1, 3), 1 / 3), np.full(4, 0.25)
    ends, printed = [], []
    for unit in (1.0, 1024.0):
        pair = Problem(p, q, DenseCost(unit * M))
        T = np.full(400, 1e-3 * unit)
        state, _ = sampler.run(sampler.init(pair, 1), pair, T, tau=5)
        ends.append(state.sweep[0])
        V = sampler.run(sampler.init(pair, 1), pair, T)[1].history[0]
        printed.append(np.flatnonzero(V[5:] - V[:-5] < 0.01 * 5 * T[0] * V[5:])[0])
    assert ends[0] == ends[1]
    assert printed[0] != printed[1]
