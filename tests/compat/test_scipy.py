"""SciPy's distances are the specification."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gibbsot.compat import scipy as compat


def outcome(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args)
        except Exception as error:
            return type(error), str(error)


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 30), st.integers(0, 6), st.booleans(), st.booleans())
def test_values_are_scipys(seed, m, n, d, first, second):
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(0, 5, (k, d) if d else k) + rng.random() for k in (m, n))
    p, q = (rng.random(k) * (rng.random(k) < 0.8) + (np.arange(k) == 0) if given else None
            for k, given in ((m, first), (n, second)))  # fmt: skip
    name = "wasserstein_distance_nd" if d else "wasserstein_distance"
    ours, scipys = getattr(compat, name)(x, y, p, q), getattr(stats, name)(x, y, p, q)
    assert ours == pytest.approx(scipys, rel=1e-9, abs=1e-12)
    assert isinstance(ours, float)


@pytest.mark.parametrize("name", ["wasserstein_distance", "wasserstein_distance_nd"])
@pytest.mark.parametrize(
    "given",
    [
        ([], [1]),
        ([1, 2], [1], [1]),
        ([1, 2], [1], [-1, 2]),
        ([1, 2], [1], [0, 0]),
        ([1, 2], [1], [np.inf, 1]),
        ([1, np.inf], [1]),
        ([1, np.inf], [-np.inf, 1]),
        ([1, np.nan], [1]),
        ([[1, 2]], [1]),
        ([[1, 2]], [[1, 2, 3]]),
        ([[[1]]], [[[1]]]),
        ([[1, np.inf]], [[1, 2]]),
        (["a"], [1]),
        ([1e308, -1e308], [0]),
    ],
)
def test_other_input_is_scipys_business(name, given):
    ours, scipys = (outcome(getattr(module, name), *given) for module in (compat, stats))
    assert ours == scipys or (np.isnan(ours) and np.isnan(scipys))


def test_energy_distance_is_scipys():
    assert compat.energy_distance is stats.energy_distance


@pytest.mark.parametrize("name", ["wasserstein_distance", "wasserstein_distance_nd"])
def test_in_the_place_of_scipys(monkeypatch, name):
    """What is handed back to SciPy makes no loop."""
    expected = outcome(getattr(stats, name), [1, np.inf], [1])
    monkeypatch.setattr(stats, name, getattr(compat, name))
    assert outcome(getattr(stats, name), [1, np.inf], [1]) == expected
