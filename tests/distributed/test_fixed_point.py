"""Fixed-point sums: exact, and so bit-identical in any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gibbsot import DenseCost, GridCost
from gibbsot.distributed import fixed_point
from gibbsot.distributed.fixed_point import Fixed
from gibbsot.distributed.shard import EpochSums, add
from gibbsot.oracle.chains import TargetChains

seeds = st.integers(0, 2**32 - 1)


@given(st.integers(1, 3000), seeds)
@settings(max_examples=20, deadline=None)
def test_products_are_exact(n, seed):
    """As sums of Python's integers, of the largest factors too."""
    rng = np.random.default_rng(seed)
    bits = fixed_point.bits(n)
    A, B = (rng.integers(-(2**bits), 2**bits, (n, 2), endpoint=True) for _ in range(2))
    A[0] = B[0] = 2**bits
    exact = [[sum(int(a) * int(b) for a, b in zip(x, y, strict=True)) for y in B.T] for x in A.T]
    found = fixed_point.product(Fixed(A.astype(float), 0.5), Fixed(B.astype(float), 0.25), bits)
    np.testing.assert_array_equal(found.integers, exact)
    assert found.quantum == 0.125


@pytest.mark.parametrize("n", [1, 512, 10**6, 10**8, 2**40])
def test_no_sum_overflows(n):
    """Neither a block in floating point nor all of it as an integer, if all factors were the largest."""
    bits = fixed_point.bits(n)
    assert n * 2 ** (2 * bits) < 2**63
    rows = 1 << (53 - 2 * bits)
    block = Fixed(np.full((min(n, rows, 2**12), 1), 2.0**bits), 1.0)
    assert fixed_point.product(block, block, bits).integers == len(block.integers) * 4**bits


@given(st.integers(1, 40), st.integers(1, 60), seeds)
@settings(max_examples=30, deadline=None)
def test_mixtures_do_not_depend_on_their_company(K, m, seed):
    rng = np.random.default_rng(seed)
    W, D = rng.dirichlet(np.full(K, 0.3), 9), rng.dirichlet(np.full(m, 0.1), K)
    D_quantised = fixed_point.components(D)
    P = fixed_point.mixtures(W, D_quantised)
    np.testing.assert_allclose(P, W @ D, atol=(K + m) * 2.0**-22)
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-14)
    for rows in (slice(0, 1), slice(3, 8), slice(None, None, -2)):
        np.testing.assert_array_equal(fixed_point.mixtures(W[rows], D_quantised), P[rows])
    order = rng.permutation(K)
    np.testing.assert_array_equal(fixed_point.mixtures(W[:, order], D_quantised[order]), P)


@pytest.mark.parametrize(
    "cost", [GridCost((5, 4), power=1), DenseCost(np.random.default_rng(0).normal(3, 2, (20, 20)))]
)
def test_potentials_are_no_larger_than_the_spread(cost):
    """At any temperature, so that their quanta have as many bits as allowed."""
    M = cost.matrix()
    assert cost.spread() == pytest.approx(M.max() - M.min())
    rng = np.random.default_rng(0)
    oracle = TargetChains(cost.astype(np.float32), rng.dirichlet(np.full(20, 0.2), 30), tau=2)
    for T in (1e-4, 1e-2, 1.0, 100.0):
        _, U, _ = oracle(rng.dirichlet(np.full(20, 0.2), 30), T)
        assert np.abs(U).max() <= 1.0001 * cost.spread()


def test_sums_keep_their_quantum():
    first, second = (EpochSums(Fixed(np.array([[n, 1]]), 0.25), Fixed(n, 0.5), n) for n in (2, 3))
    total = add([first, second])
    np.testing.assert_array_equal(total.gradient.value, [[1.25, 0.5]])
    np.testing.assert_array_equal(total.gradient.times(2.0), [[2.5, 1.0]])
    np.testing.assert_array_equal(total.gradient[0].over(0.5), [2.5, 1.0])
    assert (total.value.value, total.sweeps, Fixed(np.array([1.0, 2.0]), 0.5).sum().value) == (2.5, 5, 1.5)
    with pytest.raises(ValueError, match=r"^quantum: expected one for all terms, got 0.5 and 0.25$"):
        Fixed(1, 0.5) + Fixed(1, 0.25)


def test_units():
    assert fixed_point.quantum(1.0, 3) == 0.25  # the power of two above
    assert fixed_point.quantum(0.0, 3) == 0.125
    assert fixed_point.bits(1) == fixed_point.bits(2**17) == 22
