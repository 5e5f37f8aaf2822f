"""Mirror descent against its closed form, and the accelerated one against the plain one and a certified gap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gibbsot.oracle.mirror_descent import AcceleratedMirrorDescent, logarithms, mirror_step

LEAST = np.exp(-80)


@st.composite
def steps(draw, largest: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of weights, gradients of any sign, and a step for each row."""
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 5)))
    x = draw(arrays.arrays(np.float64, shape, elements=st.floats(0, 1))) + 1e-9
    g = draw(arrays.arrays(np.float64, shape, elements=st.floats(-largest, largest)))
    step = draw(arrays.arrays(np.float64, (shape[0], 1), elements=st.floats(0, 1)))
    return x / x.sum(axis=1, keepdims=True), g, step


@given(steps(largest=5.0))
def test_a_step_is_the_closed_form(case):
    """x_k exp(-s g_k), normalised; from weights above 1e-10 and with steps up to 5 nothing comes near exp(-80)."""
    x, g, step = case
    y = x * np.exp(-step * g)
    y /= y.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(mirror_step(np.log(x), g, step)), y, rtol=1e-12)
    # what all gradients of a row have in common does not matter
    np.testing.assert_allclose(np.exp(mirror_step(np.log(x), g + 3, step)), y, rtol=1e-12)
    np.testing.assert_allclose(np.exp(mirror_step(np.log(x), g, 0.0)), x, rtol=1e-12)


@given(steps(largest=1e6))
def test_no_gradient_is_too_large(case):
    x, g, step = case
    log_y = mirror_step(logarithms(x), g, step)
    assert np.isfinite(log_y).all()
    assert log_y.min() >= -80
    np.testing.assert_allclose(np.exp(log_y).sum(axis=1), 1, rtol=1e-13)
    descent = AcceleratedMirrorDescent(x)
    for sign in (1, 1, -1):
        descent.step(sign * g, step)
        for weights in (descent.x, descent.y):
            assert weights.min() >= 0.99 * LEAST
            np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)


def test_no_weight_is_lost_for_ever():
    """A weight of zero, or one that a long push has left with next to nothing, is back after 80 steps of one."""
    log_x = mirror_step(logarithms([[1.0, 0.0]]), [[0.0, 1e6]], 1.0)
    for _ in range(85):
        log_x = mirror_step(log_x, [[1.0, 0.0]], 1.0)
    assert np.exp(log_x)[0, 1] > 0.99


class Quadratics:
    """Ill-conditioned convex quadratics, one a simplex, with minima inside or on the boundary."""

    def __init__(self, inside: bool, n: int = 5, m: int = 10) -> None:
        rng = np.random.default_rng(0)
        B = rng.normal(size=(n, m, m)) * np.geomspace(1, 0.05, m)
        self.A = B @ B.transpose(0, 2, 1) / m
        self.centre = rng.dirichlet(np.ones(m), n) + (0 if inside else 0.3 * rng.normal(size=(n, m)))
        self.start = np.full((n, m), 1 / m)
        # the gradient's Lipschitz constant in the norms that go with the entropy
        self.step = 1 / np.abs(self.A).max(axis=(1, 2))[:, None]

    def value(self, x: np.ndarray) -> np.ndarray:
        return np.einsum("bi,bij,bj->b", x - self.centre, self.A, x - self.centre) / 2

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return np.einsum("bij,bj->bi", self.A, x - self.centre)

    def gap(self, x: np.ndarray) -> np.ndarray:
        """How far x can be from the minimum at most, by convexity: max <g, x - y> over the simplex."""
        g = self.gradient(x)
        return (g * x).sum(axis=1) - g.min(axis=1)


def plain(f: Quadratics, steps: int) -> np.ndarray:
    log_x = logarithms(f.start)
    for _ in range(steps):
        log_x = mirror_step(log_x, f.gradient(np.exp(log_x)), f.step)
    return np.exp(log_x)


def accelerated(f: Quadratics, steps: int) -> AcceleratedMirrorDescent:
    descent = AcceleratedMirrorDescent(f.start)
    for _ in range(steps):
        descent.step(f.gradient(descent.x), f.step)
    return descent


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "boundary"])
def test_acceleration_pays(inside):
    """After the same number of steps it is nearer in every simplex, and altogether by far."""
    f = Quadratics(inside)
    least = f.value(accelerated(f, 5000).y)
    slow, fast = (f.value(y) - least for y in (plain(f, 200), accelerated(f, 200).y))
    assert (fast < slow).all()
    assert fast.sum() < 0.1 * slow.sum()


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "boundary"])
def test_it_converges(inside):
    """The certified gap falls to next to nothing."""
    f = Quadratics(inside)
    y = accelerated(f, 5000).y
    assert (f.gap(y) < 1e-6 * f.gap(f.start)).all()
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-12)
    if inside:
        np.testing.assert_allclose(f.value(y), 0, atol=1e-8)


def test_plain_mirror_descent_never_rises():
    """With the step of the Lipschitz constant."""
    f = Quadratics(inside=False)
    values = np.array([f.value(plain(f, k)) for k in range(30)])
    assert (np.diff(values, axis=0) <= 1e-15).all()


def unrestarted(f: Quadratics, steps: int) -> np.ndarray:
    """The three sequences as Krichene, Bayen and Bartlett have them; the values of y."""
    x = z = f.start
    values = []
    for k in range(1, steps + 1):
        g = f.gradient(x)
        z, y = z * np.exp(-k / 3 * f.step * g), x * np.exp(-f.step * g)
        z, y = z / z.sum(axis=1, keepdims=True), y / y.sum(axis=1, keepdims=True)
        x = 3 / (3 + k) * z + k / (3 + k) * y
        values.append(f.value(y))
    return np.array(values)


def test_restarts():
    """The published sequences until a row goes uphill, and far better than they where they would oscillate."""
    f = Quadratics(inside=True)
    f.A[:] = np.diag(np.linspace(1, 2, 10))
    f.step[:] = 0.5
    published = unrestarted(f, 300)
    descent, values, restarted = AcceleratedMirrorDescent(f.start), [], []
    for _ in range(300):
        descent.step(f.gradient(descent.x), f.step)
        values.append(f.value(descent.y))
        restarted.append((descent.x == descent.y).all(axis=1))  # all the weight on y: it begins anew from there
    first = np.argmax(restarted, axis=0)
    assert np.any(restarted, axis=0).all()
    assert len(set(first)) > 1  # each row by itself
    for b, k in enumerate(first):
        assert k > 3
        np.testing.assert_allclose(np.array(values)[: k + 1, b], published[: k + 1, b], rtol=1e-9)
    assert (values[-1] < 1e-3 * published[-1]).all()


def test_rows_do_not_know_of_each_other():
    f = Quadratics(inside=False)
    together = accelerated(f, 150)
    for b in range(5):
        alone = AcceleratedMirrorDescent(f.start[b : b + 1])
        for _ in range(150):
            alone.step(f.A[b] @ (alone.x[0] - f.centre[b]), f.step[b])
        np.testing.assert_allclose(alone.y[0], together.y[b], rtol=1e-9)


def test_it_starts_where_it_is_told():
    x = np.array([[0.2, 0.8], [1.0, 0.0]])
    descent = AcceleratedMirrorDescent(x)
    np.testing.assert_allclose(descent.x, x, atol=2 * LEAST)
    np.testing.assert_allclose(descent.y, x, atol=2 * LEAST)


def test_another_ratio_and_restarts_at_intervals():
    """Krichene's scheme with gamma = 3, from the start again after two steps whatever the gradients say."""
    g = np.array([[0.3, -0.2, 0.5], [-1.0, 0.4, 0.1]])
    y = z = x = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    descent = AcceleratedMirrorDescent(x, ratio=3.0, period=2)
    for count in (1, 2, 1, 2):
        descent.step(g, 0.5)
        y, z = x * np.exp(-1.5 * g), z * np.exp(-0.5 * count / 3 * g)
        y, z = y / y.sum(axis=1, keepdims=True), z / z.sum(axis=1, keepdims=True)
        z, k = (y, 0) if count == 2 else (z, count)
        x = 3 / (3 + k) * z + k / (3 + k) * y
        np.testing.assert_allclose(descent.x, x, rtol=1e-12)
        descent = AcceleratedMirrorDescent.from_arrays(descent.arrays())
