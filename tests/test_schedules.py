from __future__ import annotations

import numpy as np
import pytest

from gibbsot import schedules


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


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
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
            "schedule: has temperatures that are not positive",
        ),
        (
            lambda: schedules.temperatures(lambda _: -1.0, 3),
            ValueError,
            "schedule: has temperatures that are not positive",
        ),
        (lambda: schedules.temperatures(1.0, None), ValueError, "n_sweeps: expected the number of sweeps"),
        (
            lambda: schedules.temperatures(lambda n: 1.0 / n, None),
            ValueError,
            "n_sweeps: expected the number of sweeps",
        ),
        (lambda: schedules.temperatures([1.0, 2.0], 3), ValueError, "n_sweeps: 3 differs from the 2 temperatures"),
        (lambda: schedules.temperatures([[1.0]], None), ValueError, "schedule: expected one temperature a sweep"),
        (lambda: schedules.temperatures([], None), ValueError, "schedule: expected one temperature a sweep"),
        (lambda: schedules.temperatures("cold", 3), TypeError, "schedule: expected a number, an array or a function"),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()
