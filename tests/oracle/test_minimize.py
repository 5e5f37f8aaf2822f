"""Minimisation over simplices: known minima, guards, several blocks, interrupts."""

from __future__ import annotations

import numpy as np
import pytest

from gibbsot import GridCost, Oracle, solve_batch
from gibbsot.core import native
from gibbsot.mirror_descent import minimize

LINE = GridCost(6, spacing=1.0)


def quadratic(target):
    def fun(x):
        return ((x - target) ** 2).sum(), 2 * (x - target)

    return fun


def test_a_smooth_function_and_its_unit():
    rng = np.random.default_rng(0)
    target = rng.dirichlet(np.ones(7), 3)
    found = minimize(quadratic(target), np.full((3, 7), 1 / 7))
    np.testing.assert_allclose(found.x, target, atol=0.01)
    np.testing.assert_allclose(found.x.sum(axis=1), 1)
    assert found.value == found.lower == pytest.approx(((found.x - target) ** 2).sum())
    assert found.status == "finished"
    assert [record.iteration for record in found.history] == list(range(1, 101))
    scaled = minimize(lambda x: tuple(2.0**40 * y for y in quadratic(target)(x)), np.full((3, 7), 1 / 7))
    np.testing.assert_array_equal(scaled.x, found.x)  # steps do not depend on the unit


def test_weights_of_zero_grow_and_shrink_to_zero():
    target = np.array([0.0, 1.0])
    for start in ([1.0, 0.0], [0.0, 1.0], [3.0, 1.0]):
        np.testing.assert_array_equal(minimize(quadratic(target), start).x, target)


def test_several_blocks():
    rng = np.random.default_rng(1)
    a, b = rng.dirichlet(np.ones(4), 2), rng.dirichlet(np.ones(5))
    found = minimize(
        lambda x, y: (((x - a) ** 2).sum() + 100 * ((y - b) ** 2).sum(), (2 * (x - a), 200 * (y - b))),
        (np.full((2, 4), 0.25), np.full(5, 0.2)),
    )
    np.testing.assert_allclose(found.x[0], a, atol=0.01)
    np.testing.assert_allclose(found.x[1], b, atol=0.01)


@pytest.mark.parametrize("method", ["auto", "gibbs", "kept", "exact"])
def test_a_barycenter_by_every_oracle(method):
    if method == "gibbs" and native.name() == "numpy":
        pytest.skip("slow without compiled kernels")
    rng = np.random.default_rng(2)
    X = rng.dirichlet(np.full(6, 0.3), 20)
    oracle = Oracle(LINE, X, method=method)

    def loss(p):
        found = oracle(p)
        return found.values.mean(), found.grad_p.mean(axis=0)

    found = minimize(loss, np.full(6, 1 / 6), max_iter=200)
    exact = solve_batch(found.x, X, LINE).value.mean()
    best = min(solve_batch(p, X, LINE).value.mean() for p in rng.dirichlet(np.ones(6), 2000))
    assert found.lower <= exact + 1e-12
    assert exact <= found.value + 1e-12
    assert found.value - found.lower <= 1e-8
    assert found.value < (1.05 if method == "gibbs" else 1.005) * best


def test_the_result_is_never_worse_than_the_start():
    """Gradients that point the wrong way: the best is the start."""
    target, start = np.array([0.2, 0.8]), np.array([0.201, 0.799])
    found = minimize(lambda x: (((x - target) ** 2).sum(), 2 * (target - x)), start)
    np.testing.assert_allclose(found.x, start)
    changes = [record.change for record in found.history]
    assert changes[-1] < 0.02 * 0.6**3  # steps were damped


def test_a_callback_ends_it_and_sees_the_mean():
    seen = []

    def callback(record, x):
        seen.append((record.iteration, x.shape))
        return record.iteration == 7

    found = minimize(quadratic(np.array([0.5, 0.5])), [0.9, 0.1], callback=callback)
    assert found.status == "stopped"
    assert seen == [(k, (2,)) for k in range(1, 8)]
    assert found.value < quadratic(np.array([0.5, 0.5]))(np.array([0.9, 0.1]))[0]


def test_time_ends_it():
    found = minimize(quadratic(np.array([0.5, 0.5])), [0.9, 0.1], max_seconds=0.0)
    assert found.status == "time over"
    assert len(found.history) == 1


def test_an_interrupt_returns_the_best_so_far():
    calls = []

    def fun(x):
        calls.append(1)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return quadratic(np.array([0.5, 0.5]))(x)

    with pytest.warns(RuntimeWarning, match="interrupted; the best parameters so far"):
        found = minimize(fun, [0.9, 0.1])
    assert found.status == "interrupted"
    assert 0 < len(found.history) < 40
    assert found.value < 0.1


@pytest.mark.parametrize(
    ("fun", "start", "options", "message"),
    [
        (lambda x: (0.0, x), [[-1.0, 2.0]], {}, "start: has negative"),
        (lambda x: (0.0, x), np.ones((2, 2, 2)), {}, "start: expected rows of weights"),
        (lambda x: (0.0, x[:1]), [0.5, 0.5], {}, "fun: expected finite gradients of shape"),
        (lambda x: (0.0, x * np.nan), [0.5, 0.5], {}, "fun: expected finite gradients"),
        (lambda x, y: (0.0, (x, y[:1])), ([0.5, 0.5], [0.5, 0.5]), {}, "for argument 1"),
        (lambda x: (0.0, x), [0.5, 0.5], {"max_iter": 0}, "max_iter: expected at least 1"),
    ],
)
def test_bad_arguments(fun, start, options, message):
    with pytest.raises(ValueError, match=message):
        minimize(fun, start, **options)


def test_progress_is_shown(capsys, monkeypatch):
    monkeypatch.setattr("gibbsot.io.progress._PAUSE", 0.0)
    minimize(quadratic(np.array([0.5, 0.5])), [0.9, 0.1], max_iter=3, verbose=True)
    assert "best" in capsys.readouterr().err
