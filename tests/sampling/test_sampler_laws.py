"""Statistical tests of the sampler: seeds are fixed, and each states how often it would fail a correct sampler."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cases import batch
from gibbsot import Problem
from gibbsot.core import native
from gibbsot.sampling import sampler

FALSE_ALARM = 1e-4  # of each test below


def chains(n: int) -> int:
    """Return n chains with compiled kernels, fewer without: the tests keep their false-alarm rate and lose power."""
    return n if native.name() != "numpy" else n // 20


def replicas(kind: str, n: int, zeros: float = 0.0) -> Problem:
    """The same problem n times; the chains differ in their number and so in their noise."""
    one = batch(kind, n=1, zeros=zeros)
    return Problem.normalised(np.repeat(one.p, n, axis=0), np.repeat(one.q, n, axis=0), one.cost)


@pytest.mark.parametrize("kind", ["dense", "grid2"])
def test_conditional_laws(kernel, kind):
    """(U - g) p / T and (h - L) q / T are standard exponentials, independent over points and chains."""
    pair, T = replicas(kind, 20), 0.02
    state, info = sampler.run(sampler.init(pair, rng=5), pair, np.full(3, T))
    theta_g = ((info.U - info.g) * pair.p / T).ravel()
    theta_h = ((state.h - info.L) * pair.q / T).ravel()
    for theta in (theta_g, theta_h):
        assert stats.kstest(theta, "expon").pvalue > FALSE_ALARM / 2


def test_value_less_energy_is_gamma(kernel):
    """(V(z) - V(g, h)) / T follows Gamma(m1 + m2), also where zero weights leave fewer points."""
    for zeros in (0.0, 0.4):
        pair, T = replicas("points", 400, zeros), 0.03
        _, info = sampler.run(sampler.init(pair, rng=6), pair, np.full(2, T))
        points = np.count_nonzero(pair.p[0]) + np.count_nonzero(pair.q[0])
        assert stats.kstest((info.value - info.energy) / T, stats.gamma(points).cdf).pvalue > FALSE_ALARM / 2


def test_energy_law_of_two_points():
    """One point each: g <= h + M, so W - V(g, h) is T times an exponential at equilibrium, a closed form."""
    one = Problem([1.0], [1.0], [[3.0]])
    pair = Problem.normalised(np.repeat(one.p, 2000, axis=0), np.repeat(one.q, 2000, axis=0), one.cost)
    _, info = sampler.run(sampler.init(pair, rng=7), pair, np.full(3, 0.5))
    assert stats.kstest((3.0 - info.energy) / 0.5, "expon").pvalue > FALSE_ALARM


def test_equilibrium_against_rejection_sampling():
    """Two points each: the energy at equilibrium against a direct sampler of the Boltzmann law on Omega_0.

    On Omega_0 (g_1 = 0) the law is exp((<p, g> - <q, h>) / T) over g_2 - h_j <= M_2j, -h_j <= M_1j. Given g_2 the
    h_j are shifted exponentials, so g_2 has a density known up to a constant, which is tabulated and inverted.
    """
    T = 0.3
    p, q, M = np.array([0.4, 0.6]), np.array([0.3, 0.7]), np.array([[0.0, 1.0], [1.2, 0.1]])
    grid = np.linspace(-15, 15, 400_001)
    floor = np.maximum(-M[0], grid[:, None] - M[1])
    log_density = (p[1] * grid - floor @ q) / T
    cdf = np.cumsum(np.exp(log_density - log_density.max()))
    rng = np.random.default_rng(8)
    g2 = np.interp(rng.random(20_000), cdf / cdf[-1], grid)
    h = np.maximum(-M[0], g2[:, None] - M[1]) + rng.exponential(T / q, (20_000, 2))
    direct = p[1] * g2 - h @ q

    one = Problem(p, q, M)
    n = chains(4000)
    pair = Problem.normalised(np.repeat(one.p, n, axis=0), np.repeat(one.q, n, axis=0), one.cost)
    _, info = sampler.run(sampler.init(pair, rng=9), pair, np.full(300, T))
    assert stats.ks_2samp(info.energy, direct).pvalue > FALSE_ALARM


@pytest.mark.parametrize("kind", ["points", "thin"])
def test_pinned_and_unpinned_have_the_same_energy(kind):
    n = chains(1500)
    pair, T = replicas(kind, n), 0.05
    energies = []
    for pinned, seed in ((False, 10), (True, 11)):
        _, info = sampler.run(sampler.init(pair, rng=seed), pair, np.full(300, T), pinned=pinned)
        energies.append(info.energy)
    assert stats.ks_2samp(*energies).pvalue > FALSE_ALARM


def test_mean_gap_at_equilibrium():
    """E[V(z) - V(g, h)] = (m1 + m2) T: the footnote's Gamma has rate 1 / T. A z-test, two-sided."""
    pair, T = replicas("thin", chains(3000)), 0.1
    _, info = sampler.run(sampler.init(pair, rng=12), pair, np.full(20, T))
    gaps = (info.value - info.energy) / T
    z = (gaps.mean() - 12) / np.sqrt(12 / len(gaps))
    assert abs(z) < stats.norm.isf(FALSE_ALARM / 2)
