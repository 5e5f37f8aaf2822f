"""`gibbsot.jax.wasserstein` against central differences, `solve` and `ot.emd2`, under jit, grad and vmap."""

from __future__ import annotations

import re

import numpy as np
import ot
import pytest

from cases import measures
from gibbsot import GridCost, Oracle, PointCost, solve, solve_batch

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from gibbsot.jax import wasserstein  # noqa: E402

GRID = GridCost((3, 4))


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def weights(n: int = 5, seed: int = 0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(measures(rng, n, 12, 0.0)) for _ in range(2)]


def points(*leading: int, n: int = 5, m: int = 6):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=(*leading, k, 2))) for k in (n, m)]


def test_values_and_gradients_of_weights():
    p, q = weights()
    value, gradients = jax.value_and_grad(lambda p, q: wasserstein(p, q, GRID).sum(), argnums=(0, 1))(p, q)
    expected = solve_batch(np.asarray(p), np.asarray(q), GRID)
    np.testing.assert_allclose(value, expected.value.sum())
    for found, potentials in zip(gradients, expected.potentials, strict=True):
        np.testing.assert_allclose(found, potentials - potentials.mean(axis=1, keepdims=True), atol=1e-12)


def test_central_differences():
    p, q = (w[0] for w in weights())
    x, y = points()
    for function, z in (
        (lambda z: wasserstein(jax.nn.softmax(z), q, GRID), jnp.log(p)),
        (lambda z: wasserstein(z, q, GRID, normalize=True), 3 * p),
        (lambda z: wasserstein(z, q, GRID, penalty=0.05), 3 * p),
        (lambda z: wasserstein(z, q, GRID, penalty=(np.linspace(0.01, 0.1, 12), 0.05)), 3 * p),
        (lambda z: wasserstein(None, None, (z, y), penalty=(np.linspace(0.1, 0.3, len(x)), 0.2)), x),
        (lambda z: wasserstein(None, None, (z, y)), x),
        (lambda z: wasserstein(None, None, (x, z), metric="euclidean"), y),
    ):
        gradient = jax.grad(function)(z)
        step = 1e-7 * jnp.asarray(np.random.default_rng(1).normal(size=z.shape))
        difference = (function(z + step) - function(z - step)) / 2
        np.testing.assert_allclose((gradient * step).sum(), difference, rtol=1e-5)


def test_pot():
    p, q = (np.asarray(w[0]) for w in weights())
    np.testing.assert_allclose(wasserstein(p, q, GRID.matrix()), ot.emd2(p, q, GRID.matrix()))


def test_jit_and_vmap():
    p, q = weights()
    plain = wasserstein(p, q, GRID)
    single = lambda p, q: wasserstein(p, q, GRID)  # noqa: E731
    np.testing.assert_array_equal(jax.jit(single)(p, q), plain)
    np.testing.assert_array_equal(jax.vmap(single)(p, q), plain)
    np.testing.assert_array_equal(jax.jit(jax.vmap(single, in_axes=(1, 0)))(p.T, q), plain)
    gradients = jax.grad(lambda p: single(p, q).sum())(p)
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.grad(single)))(p, q), gradients)
    of_q = jax.vmap(jax.grad(single, argnums=1), in_axes=(0, None))(p, q[0])
    assert of_q.shape == (5, 12)
    x, y = points(4)
    each = jax.vmap(lambda x, y: wasserstein(None, None, (x, y)))(x, y)
    np.testing.assert_allclose(each, wasserstein(None, None, (x, y)))
    np.testing.assert_allclose(each[2], solve(None, None, PointCost(x[2], y[2])).value)


def test_one_target_for_all():
    p, q = weights()
    np.testing.assert_allclose(wasserstein(p, q[0], GRID), [wasserstein(row, q[0], GRID) for row in p])
    assert wasserstein(p[:0], q[0], GRID).shape == (0,)


def test_leading_dimensions_that_would_make_all_pairs_are_refused():
    p, q = weights()
    expected = re.escape("q: expected leading dimensions that match those of p, (5,), or one measure; got (5, 1)")
    with pytest.raises(ValueError, match=expected):
        wasserstein(p, q[:, None], GRID)
    x, y = points()
    with pytest.raises(ValueError, match="y: expected leading dimensions that match those of x"):
        wasserstein(None, None, (np.stack([x, x]), np.stack([y, y])[:, None]))
    np.testing.assert_allclose(wasserstein(p[:, None], q[None], GRID)[0], wasserstein(q, p[0], GRID))


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_types(dtype):
    p, q = (w.astype(dtype) for w in weights())
    value, gradient = jax.value_and_grad(lambda p: wasserstein(p, q, GRID).sum())(p)
    assert value.dtype == ("float64" if dtype == "float64" else "float32")
    assert gradient.dtype == dtype


def test_a_second_derivative_raises():
    p, q = (w[0] for w in weights())
    with pytest.raises(ValueError, match="JVP"):
        jax.hessian(lambda p: wasserstein(p, q, GRID))(p)
    with pytest.raises(ValueError, match="JVP"):
        jax.grad(lambda p: (jax.grad(lambda p: wasserstein(p, q, GRID))(p) ** 2).sum())(p)


P, Q = (np.full(12, 1 / 12) for _ in range(2))
BAD = {
    "p: expected shape": lambda: wasserstein(P[:5], Q, GRID),
    "p: expected floating": lambda: wasserstein(np.ones(12, np.int64), Q, GRID),
    "p, q: expected weights": lambda: wasserstein(None, Q, GRID),
    "x, y: expected shapes": lambda: wasserstein(None, None, (P, Q)),
    "metric": lambda: wasserstein(None, None, tuple(points()), metric="cosine"),
    "normalize: masses matter": lambda: wasserstein(P, Q, GRID, normalize=True, penalty=1.0),
    "penalty: expected a finite number of at least 0": lambda: wasserstein(P, Q, GRID, penalty=-1),
    "p: has negative weights": lambda: wasserstein(-P, Q, GRID),
    "q: sums to 2, p to 1; expected sums that agree": lambda: wasserstein(P, 2 * Q, GRID),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments_are_named(what):
    with pytest.raises((ValueError, TypeError, jax.errors.JaxRuntimeError), match=what):
        BAD[what]()


@pytest.mark.parametrize("method", ["auto", "gibbs"])
def test_an_oracle_keeps_its_state_between_calls(method):
    """The same values, in the same order, as the oracle itself; once for each call, compiled or not."""
    p, q = weights()
    mixed = [(1 - s) * p + s * q for s in (0.0, 0.1, 0.4)]
    for targets in (None, np.asarray(q)):
        ours, theirs = (Oracle(GRID, targets, method=method) for _ in range(2))
        total = jax.jit(
            jax.value_and_grad(lambda p, one=theirs, q=None if targets is not None else q: wasserstein(p, q, one).sum())
        )
        for x in mixed:
            wanted = ours(np.asarray(x)) if targets is not None else ours(np.asarray(x), np.asarray(q))
            value, gradient = total(x)
            np.testing.assert_allclose(value, wanted.values.sum(), rtol=1e-12)
            np.testing.assert_allclose(gradient, wanted.grad_p, rtol=1e-12)


def test_bad_arguments_of_an_oracle():
    p, q = weights()
    with pytest.raises(TypeError, match="q: expected None for an oracle with targets"):
        wasserstein(p, q, Oracle(GRID, np.asarray(q)))
    with pytest.raises(TypeError, match="q: expected None"):
        wasserstein(p, None, Oracle(GRID))
    with pytest.raises(ValueError, match="p: expected one row for each of the 5 targets"):
        wasserstein(p[:2], None, Oracle(GRID, np.asarray(q)))
    with pytest.raises(ValueError, match="q: expected shape"):
        wasserstein(p, q[:, 1:], Oracle(GRID))


def test_divergences_of_the_marginals():
    rng = np.random.default_rng(0)
    X, Y, p, q = rng.random((6, 2)), rng.random((7, 2)), rng.random(6), 2 * rng.random(7)

    def loss(p, x):
        return wasserstein(p, jnp.asarray(q), (x, jnp.asarray(Y)), kl=0.3)

    value, (of_p, of_x) = jax.value_and_grad(loss, argnums=(0, 1))(jnp.asarray(p), jnp.asarray(X))
    exact = solve(p, q, PointCost(X, Y), kl=0.3, gap=0)
    assert float(value) == pytest.approx(exact.value, rel=1e-5)
    np.testing.assert_allclose(of_p, 0.3 * -np.expm1(-exact.potentials[0] / 0.3), atol=2e-3)
    moved = [X + s * 1e-3 * np.eye(6, 2) for s in (1, -1)]
    difference = [solve(p, q, PointCost(x, Y), kl=0.3, gap=0).value for x in moved]
    assert float((of_x * np.eye(6, 2)).sum()) == pytest.approx((difference[0] - difference[1]) / 2e-3, abs=5e-3)
    with pytest.raises(ValueError, match="kl: expected no penalty"):
        wasserstein(p, q, PointCost(X, Y), kl=1.0, penalty=1.0)


@pytest.mark.parametrize("kl", [0.3, (np.inf, 0.5)])
def test_an_oracle_with_divergences(kl):
    """Its gradients are those of central differences of the optimum."""
    rng = np.random.default_rng(1)
    cost, P, Q = PointCost(rng.random((6, 2)), rng.random((7, 2))), rng.random((2, 6)), 2 * rng.random((2, 7))
    oracle = Oracle(cost, Q, kl=kl)
    value, gradient = jax.value_and_grad(lambda p: wasserstein(p, None, oracle).sum())(jnp.asarray(P))
    step = 1e-4 * rng.random((2, 6))
    sums = [
        sum(solve(p, q, cost, kl=kl, gap=0).value for p, q in zip(P + s * step, Q, strict=True)) for s in (-1, 0, 1)
    ]
    assert float(value) == pytest.approx(sums[1], rel=1e-5)
    assert float((gradient * step).sum()) == pytest.approx((sums[2] - sums[0]) / 2, rel=5e-3)
