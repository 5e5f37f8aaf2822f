"""The level method against HiGHS, on maxima of linear functions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from gibbsot.oracle import level_method
from gibbsot.oracle.level_method import LevelMethod


def least(A: np.ndarray) -> float:
    """The least over weights of the largest of linear functions."""
    K, m = A.shape
    found = linprog(
        np.append(np.zeros(m), 1.0),
        A_ub=np.column_stack([A, -np.ones(K)]),
        b_ub=np.zeros(K),
        A_eq=np.append(np.ones(m), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * m + [(None, None)],
    )
    assert found.status == 0
    return float(found.fun)


def run(A: np.ndarray, steps: int) -> tuple[LevelMethod, list[float], list[float]]:
    """The method, and its bounds after each step."""
    method, upper, bounds = LevelMethod(np.full(A.shape[1], 1 / A.shape[1])), np.inf, []
    for _ in range(steps):
        values = A @ np.exp(method.log_p)
        upper = min(upper, float(values.max()))
        method.add(A[values.argmax()])
        method.step(-np.inf, upper)
        bounds.append((method.lower, upper))
    lower, best = zip(*bounds, strict=True)
    return method, list(lower), list(best)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 12), st.sampled_from([1e-6, 1.0, 1e9]))
def test_bounds_enclose_the_minimum_and_meet(seed, K, m, scale):
    rng = np.random.default_rng(seed)
    A = scale * (rng.standard_normal((K, m)) + rng.choice([-5.0, 0.0, 5.0]))
    method, lower, upper = run(A, 40)
    optimum, size = least(A / scale) * scale, np.abs(A).max()
    assert lower == sorted(lower)
    assert lower[-1] <= optimum + 1e-7 * size
    assert upper[-1] >= optimum - 1e-7 * size
    assert upper[-1] - lower[-1] <= 1e-3 * size
    assert np.exp(method.log_p).sum() == pytest.approx(1)


def test_few_cuts_are_enough(monkeypatch):
    """Those that matter least are dropped."""
    monkeypatch.setattr(level_method, "_MOST_CUTS", 12)
    A = np.random.default_rng(0).standard_normal((200, 10))
    method, lower, upper = run(A, 150)
    assert len(method.cuts) <= 12 + 2 * A.shape[1]
    assert lower[-1] <= least(A) <= upper[-1]
    assert upper[-1] - lower[-1] < 1e-3


def test_cuts_that_are_all_the_same():
    method = LevelMethod(np.array([0.2, 0.8]))
    for _ in range(3):
        method.add(np.array([2.0, 2.0]))
        method.step(0.0, 2.0)
    assert method.lower == 2
