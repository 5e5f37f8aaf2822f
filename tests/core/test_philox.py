from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gibbsot.core import native, philox
from kernels import using

# test vectors of Random123, the reference implementation of the generator: (rounds, counter, key, words)
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
KNOWN = [
    (7, (0, 0, 0, 0), (0, 0), "5f6fb709 0d893f64 4f121f81 4f730a48"),
    (7, (0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "5207ddc2 45165e59 4d8ee751 8c52f662"),
    (7, PI, (0xA4093822, 0x299F31D0), "4dfccaba 190a87f0 c47362ba b6b5242a"),
    (10, (0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (10, (0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (10, PI, (0xA4093822, 0x299F31D0), "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("rounds", "counter", "key", "words"), KNOWN)
def test_known_answers(rounds, counter, key, words):
    got = philox.philox4x32(np.array(counter, np.uint64)[:, None], key, rounds)[:, 0]
    assert " ".join(f"{w:08x}" for w in got) == words


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("level", native.available()[:-1])
def test_native_draws_the_same(level, dtype):
    expected = philox.exponentials(2**63 + 12345, 2**40 + 7, 2**30 + 3, 1, 1001, dtype)
    with using(level):
        got = np.empty(1001, dtype)
        native.load(native.name()).exponentials(
            seed=2**63 + 12345, id=2**40 + 7, sweep_and_side=2 * (2**30 + 3) + 1, out=got
        )
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponential_law(kernel, dtype):
    """Kolmogorov-Smirnov on 200,000 variates; false alarm 1e-4, seed fixed."""
    if kernel == "numpy":
        theta = philox.exponentials(1, 2, 3, 0, 200_000, dtype)
    else:
        theta = np.empty(200_000, dtype)
        native.load(native.name()).exponentials(seed=1, id=2, sweep_and_side=6, out=theta)
    assert theta.min() > 0
    assert stats.kstest(theta.astype(np.float64), "expon").pvalue > 1e-4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_streams_are_uncorrelated(dtype):
    """Variates of neighbouring keys: |correlation| below 5 / sqrt(n), false alarm 6e-7 per pair, seed fixed."""
    n = 50_000
    base = philox.exponentials(0, 0, 0, 0, n + 1, dtype)
    others = [philox.exponentials(*name, n, dtype) for name in ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))]
    for other in [*others, base[1:]]:
        assert abs(np.corrcoef(base[:n], other)[0, 1]) < 5 / np.sqrt(n)


def test_a_variate_depends_on_its_key_only():
    long = philox.exponentials(3, 1, 4, 1, 5000)
    for size in (1, 31, 32, 33, 784):
        assert np.array_equal(philox.exponentials(3, 1, 4, 1, size), long[:size])


@pytest.mark.slow
def test_positive_and_bit_identical_for_every_instruction_set():
    """A hundred million variates cover nearly all 2^23 values in single precision; the smallest is 6e-8."""
    levels = native.available()[:-1]
    n, lowest = 4_000_000, np.inf
    for stream in range(25 if levels else 0):
        drawn = []
        for level in levels:
            with using(level):
                out = np.empty(n, np.float32)
                native.load(native.name()).exponentials(seed=11, id=0, sweep_and_side=stream, out=out)
            drawn.append(out)
        lowest = min(lowest, float(drawn[0].min()))
        assert all(np.array_equal(drawn[0], other) for other in drawn[1:])
    assert not levels or 0 < lowest < 1e-6
