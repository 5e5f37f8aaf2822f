from __future__ import annotations

import numpy as np
import ot
import pytest

from cases import batch
from gibbsot import Gibbs, datasets, solve, solve_batch
from gibbsot.sampling import schedules


def test_geometric_is_the_papers():
    length = 200
    T = schedules.geometric(2 / 128, length)
    n = np.arange(1, length + 1)
    np.testing.assert_allclose(T, 2.0 * (1 / length**4) ** (n / length) / 128, rtol=1e-12)


def test_epoch_decay_and_constant():
    assert schedules.epoch_decay(2.0, 784, 116.0) == pytest.approx(2.0 * (1 - 900**-0.5))
    np.testing.assert_array_equal(schedules.constant(0.3, 4), [0.3] * 4)


def test_temperatures_from_anything():
    np.testing.assert_array_equal(schedules.temperatures(0.5, 2), [0.5, 0.5])
    np.testing.assert_array_equal(schedules.temperatures([2, 1], None), [2.0, 1.0])
    np.testing.assert_array_equal(schedules.temperatures(lambda n: 1.0 / n, 2), [1.0, 0.5])


@pytest.mark.parametrize("eta", [0.1, 0.6, 0.9])
@pytest.mark.parametrize("kind", ["dense", "points", "grid2", "coulomb"])
def test_adaptive_cooling_needs_no_scale(kind, eta):
    pair = batch(kind, n=2, zeros=0.0)
    M = pair.cost.matrix()
    W = np.array([ot.emd2(p, q, np.where(np.isinf(M), 1e6, M)) for p, q in zip(pair.p, pair.q, strict=True)])
    for scale in (1e-6, 1.0, 1e6):
        result = solve_batch(pair.p, pair.q, scale * M, method=Gibbs(schedule=schedules.Adaptive(eta)))
        np.testing.assert_allclose(result.value, scale * W, rtol=0.01)


@pytest.mark.slow
def test_adaptive_cooling_falls_by_eta_and_ends_where_it_is_cold():
    p, q, cost = datasets.two_modes(32)
    seen = solve(
        p, q, cost, method=Gibbs(n_sweeps=2000, schedule=schedules.Adaptive(0.3), diagnostics=True)
    ).diagnostics
    levels = seen.T[np.flatnonzero(np.diff(seen.T, prepend=0.0))]
    ratios = levels[1:] / levels[:-1]
    assert len(ratios) > 1
    assert (ratios < 1).all()
    # eta calT(z), and calT(z) lies around T: at most half of it is taken off at once
    assert (ratios[:-1] >= 0.15).all()
    assert seen.T[-1] * 64 / seen.value[-1] < 0.2


def test_a_warm_start_cools_on_from_where_it_was():
    p, q, cost = datasets.two_modes(32)
    first = solve(p, q, cost, method=Gibbs(n_sweeps=100))
    second = solve(p, q, cost, method=Gibbs(n_sweeps=2000, schedule=schedules.Adaptive()), warm_start=first)
    assert second.temperature < first.temperature
    assert second.value == pytest.approx(ot.emd2(p, q, cost.matrix()), rel=0.01)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: schedules.Adaptive(0.95), ValueError, "eta: expected a number from 0.1 to 0.9"),
        (lambda: schedules.Adaptive("slow"), TypeError, "eta: expected a number"),
        (lambda: schedules.constant("a", 3), TypeError, "T: expected a number"),
        (lambda: schedules.geometric(1.0, 0), ValueError, "n_sweeps: expected at least 1"),
        (lambda: schedules.geometric(1.0, 2.5), TypeError, "n_sweeps: expected an integer"),
        (lambda: schedules.epoch_decay(1.0, 0, 0), ValueError, "m, m_bar: expected numbers of points"),
        (lambda: schedules.constant(0.0, 3), ValueError, "T: expected a positive number"),
        (lambda: schedules.geometric(-1.0, 3), ValueError, "T0: expected a positive number"),
        (lambda: schedules.geometric(1.0, 3, ratio=0.0), ValueError, "ratio: expected a positive number"),
        (lambda: schedules.epoch_decay(np.nan, 3, 3), ValueError, "T: expected a positive number"),
        (
            lambda: schedules.temperatures([1.0, 0.0], None),
            ValueError,
            "schedule: expected positive numbers",
        ),
        (
            lambda: schedules.temperatures(lambda _: -1.0, 3),
            ValueError,
            "schedule: expected positive numbers",
        ),
        (lambda: schedules.temperatures(1.0, None), ValueError, "n_sweeps: expected the number of sweeps"),
        (
            lambda: schedules.temperatures(lambda n: 1.0 / n, None),
            ValueError,
            "n_sweeps: expected the number of sweeps",
        ),
        (lambda: schedules.temperatures([1.0, 2.0], 3), ValueError, "n_sweeps: 3 differs from the 2 temperatures"),
        (lambda: schedules.temperatures([[1.0]], None), ValueError, "schedule: expected one temperature per sweep"),
        (lambda: schedules.temperatures([], None), ValueError, "schedule: expected one temperature per sweep"),
        (
            lambda: schedules.temperatures("cold", 3),
            TypeError,
            "schedule: expected Adaptive\\(\\), a number, an array or a function",
        ),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()
