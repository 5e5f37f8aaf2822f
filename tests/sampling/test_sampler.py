from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import KINDS, batch, problems
from gibbsot import GridCost, Problem
from gibbsot.core import native
from gibbsot.sampling import sampler
from kernels import using

NATIVE = native.available()[:-1]


def outputs(problem: Problem, temperatures, **options):
    state, info = sampler.run(sampler.init(problem, rng=3), problem, temperatures, **options)
    return {"h": state.h, "sweep": state.sweep, **info._asdict()}


def in_boxes(shape: tuple[int, ...], dtype) -> Problem:
    """Targets on random boxes inside a grid, one of them a single point."""
    rng = np.random.default_rng(0)
    P, Q = rng.random((4, *shape)), np.zeros((4, *shape))
    for b in range(4):
        low = [rng.integers(0, n) for n in shape]
        high = [rng.integers(k, n) + 1 if b else k + 1 for k, n in zip(low, shape, strict=True)]
        box = tuple(slice(k, n) for k, n in zip(low, high, strict=True))
        Q[b][box] = rng.random(Q[b][box].shape)
    sums = P.reshape(4, -1).sum(axis=1), Q.reshape(4, -1).sum(axis=1)
    return Problem(
        P.reshape(4, -1) / sums[0][:, None], Q.reshape(4, -1) / sums[1][:, None], GridCost(shape, dtype=dtype)
    )


@pytest.mark.skipif(not NATIVE, reason="no compiled kernels to compare")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [*KINDS, (11, 13), (5, 6, 7), (3, 140), (130, 4)])
@pytest.mark.parametrize(("tau", "pinned"), [(0, False), (5, True)])
def test_native_is_the_numpy_step(kind, dtype, tau, pinned):
    pair = batch(kind, dtype=dtype) if isinstance(kind, str) else in_boxes(kind, dtype)
    T = np.geomspace(0.1, 1e-4, 30)
    with using("numpy"):
        expected = outputs(pair, T, tau=tau, pinned=pinned)
    results = []
    for level in NATIVE:
        with using(level):
            results.append(outputs(pair, T, tau=tau, pinned=pinned))
        for name, value in results[-1].items():
            # noise T / p_i has no upper bound, so g and h are compared relative to themselves
            tolerance = 200 * np.finfo(dtype).eps
            np.testing.assert_allclose(
                value, expected[name], rtol=tolerance, atol=tolerance, err_msg=f"{name}, {level}"
            )
    for first, other in itertools.pairwise(results):
        for name in first:
            np.testing.assert_array_equal(first[name], other[name], err_msg=f"{name}: instruction sets differ")


def test_run_is_many_steps(kernel):
    pair = batch("grid2")
    T = np.geomspace(0.1, 1e-3, 6)
    state, info = sampler.run(sampler.init(pair, rng=1), pair, T)
    chain = sampler.init(pair, rng=1)
    for temperature in T:
        chain, last = sampler.step(chain, pair, temperature, sampler.draw(chain, pair))
    np.testing.assert_allclose(state.h, chain.h, rtol=1e-12)
    np.testing.assert_array_equal(state.sweep, chain.sweep)
    for field in ("U", "L", "g", "value", "energy"):
        np.testing.assert_allclose(getattr(info, field), getattr(last, field), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", ["dense", "grid2", "grid3"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_for_every_split(kind, dtype):
    pair = batch(kind, n=7, dtype=dtype)
    T = np.geomspace(0.1, 1e-4, 40)
    whole = outputs(pair, T)
    for n_jobs in (2, 5):
        for name, value in outputs(pair, T, n_jobs=n_jobs).items():
            np.testing.assert_array_equal(value, whole[name], err_msg=name)
    # in blocks of sweeps
    state, first = sampler.run(sampler.init(pair, rng=3), pair, T[:13])
    state, info = sampler.run(state, pair, T[13:])
    np.testing.assert_array_equal(state.h, whole["h"])
    np.testing.assert_array_equal(info.U, whole["U"])
    np.testing.assert_array_equal(np.hstack([first.history, info.history]), whole["history"])
    # permuted, and in smaller batches, each problem with its own id
    order = np.random.default_rng(0).permutation(7)
    for rows in (order, order[:3], order[3:]):
        part = Problem.normalised(pair.p[rows], pair.q[rows], pair.cost)
        state, info = sampler.run(sampler.init(part, rng=3, ids=rows), part, T)
        np.testing.assert_array_equal(state.h, whole["h"][rows])
        np.testing.assert_array_equal(info.L, whole["L"][rows])
        np.testing.assert_array_equal(info.value, whole["value"][rows])


def test_long_runs_in_short_calls(monkeypatch):
    """Work is cut into calls of bounded length; the cuts do not show."""
    pair = batch("grid2", n=5)
    T = np.geomspace(0.1, 1e-4, 40)
    whole = outputs(pair, T)
    monkeypatch.setattr(sampler, "_CALL", 7 * pair.cost.work)
    shares: list[float] = []
    for name, value in outputs(pair, T, progress=shares.append).items():
        np.testing.assert_array_equal(value, whole[name], err_msg=name)
    assert len(shares) > 5
    assert sum(shares) == pytest.approx(1)


@given(problems(), st.sampled_from([1e-6, 1e-2, 10.0]), st.booleans(), st.integers(0, 100))
def test_dual_feasible_at_every_sweep(pair, temperature, pinned, seed):
    state = sampler.init(pair, rng=seed)
    M = pair.cost.matrix().astype(np.float64)
    finite = M[np.isfinite(M)]
    for _ in range(4):
        state, info = sampler.run(state, pair, np.array([temperature]), pinned=pinned)
        for b in range(len(pair)):
            g, h = info.g[b].astype(np.float64)[:, None], state.h[b].astype(np.float64)
            active = (pair.p[b] > 0)[:, None] & (pair.q[b] > 0)
            size = (
                np.abs(info.U[b]).max(where=pair.p[b] > 0, initial=0)
                + np.abs(finite).max()
                + np.abs(np.where(active, g, 0))
            )
            with np.errstate(invalid="ignore"):
                slack = (M - (g - h))[active] / np.broadcast_to(size, M.shape)[active]
            assert slack.min() > -8 * np.finfo(pair.cost.dtype).eps
            assert np.isneginf(info.g[b][pair.p[b] == 0]).all()
            assert np.isposinf(state.h[b][pair.q[b] == 0]).all()
        assert np.isfinite(info.value).all()
        assert np.isfinite(info.energy).all()


@given(problems(), st.integers(0, 100))
def test_potentials_are_complete_and_centred(pair, seed):
    """U and L are finite where any finite cost bounds them, masked points included; <p, U> = 0."""
    _, info = sampler.run(sampler.init(pair, rng=seed), pair, np.geomspace(0.1, 1e-3, 5))
    scale = np.abs(np.where(np.isfinite(info.U), info.U, 0)).max()
    tolerance = 16 * np.finfo(pair.cost.dtype).eps * scale
    assert np.abs((pair.p * np.where(pair.p > 0, info.U, 0)).sum(axis=1)).max() <= tolerance
    np.testing.assert_allclose(info.L, pair.cost.col_max(info.g), rtol=1e-6, atol=tolerance)
    np.testing.assert_allclose(
        info.value,
        (pair.p * np.where(pair.p > 0, info.U, 0)).sum(axis=1) - (pair.q * np.where(pair.q > 0, info.L, 0)).sum(axis=1),
        rtol=1e-5,
        atol=tolerance,
    )


def test_tiny_weights_and_cold_chains_stay_finite(kernel):
    """Weights of 1e-30 and temperatures far below rounding: no overflow, no NaN, in single precision."""
    p = np.full(25, 1e-30)
    p[12] = 1
    q = np.roll(p, 7)
    pair = Problem(p, q, GridCost((5, 5), dtype=np.float32))
    for T in (1e-30, 1e-3, 1e6):
        _, info = sampler.run(sampler.init(pair), pair, np.full(20, T))
        assert np.isfinite(info.U).all()
        assert np.isfinite(info.L).all()
        assert np.isfinite(info.value).all()


def test_the_gauge_does_not_drift():
    """After a hundred thousand sweeps the potentials are as large as after ten: float32 keeps its digits."""
    pair = batch("grid2", n=1, dtype=np.float32, zeros=0.0)
    state, early = sampler.run(sampler.init(pair), pair, np.full(10, 0.01))
    state, late = sampler.run(state, pair, np.full(100_000 if native.name() != "numpy" else 1000, 0.01))
    assert np.abs(late.U).max() < 3 * np.abs(early.U).max() + 1


def test_pinned_keeps_its_point():
    pair = batch("dense")
    p = pair.p.copy()
    p[:, 0] = 0
    pair = Problem.normalised(p / p.sum(axis=1, keepdims=True), pair.q, pair.cost)
    first = (pair.p > 0).argmax(axis=1)
    assert first.min() > 0
    _, info = sampler.run(sampler.init(pair), pair, np.full(9, 0.1), pinned=True)
    assert (info.g[np.arange(3), first] == 0).all()


def test_states_and_temperatures_are_checked():
    pair, other = batch("grid2", n=3), batch("grid2", n=2)
    state = sampler.init(pair)
    for call in (
        lambda: sampler.run(sampler.init(other), pair, np.ones(2)),
        lambda: sampler.step(sampler.init(other), pair, 1.0, sampler.draw(state, pair)),
    ):
        with pytest.raises(ValueError, match="state: has h of shape"):
            call()
    for bad in (0.0, -1.0, np.nan, np.inf, 1e-320):
        with pytest.raises(ValueError, match="temperatures: expected positive numbers"):
            sampler.run(state, pair, np.array([0.1, bad]))
        with pytest.raises(ValueError, match="temperature: expected positive numbers"):
            sampler.step(state, pair, bad, sampler.draw(state, pair))
    for shape in ((0,), (2, 5), (1, 2, 3)):
        with pytest.raises(ValueError, match="temperatures: expected shape"):
            sampler.run(state, pair, np.ones(shape))
    with pytest.raises(ValueError, match="a chain ends after"):
        sampler.run(replace(state, sweep=state.sweep + 2**31 - 2), pair, np.ones(3))


def test_a_state_of_another_precision_is_converted(kernel):
    pair = batch("grid2", dtype=np.float32)
    state = sampler.init(pair)
    wide = replace(state, h=state.h.astype(np.float64))
    for first, other in zip(
        sampler.run(state, pair, np.ones(3))[1], sampler.run(wide, pair, np.ones(3))[1], strict=True
    ):
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("stride", [1, 5])
def test_mixing_test_stops_each_chain_on_its_own(kernel, stride):
    pair = batch("points", n=6)
    state, info = sampler.run(sampler.init(pair), pair, np.full(400, 0.05), tau=5, stride=stride)
    assert len(set(state.sweep)) > 1
    for b, sweeps in enumerate(state.sweep):
        assert np.isfinite(info.history[b, :sweeps]).all()
        assert np.isnan(info.history[b, sweeps:]).all()
        assert sampler.mixed(info.history[b : b + 1, :sweeps], np.array([0.05]), 5)[0]
        assert sweeps % stride == 0
        tests = range(stride, sweeps, stride)
        assert not any(sampler.mixed(info.history[b : b + 1, :s], np.array([0.05]), 5)[0] for s in tests)


def test_mixing_test_has_no_unit():
    history = np.random.default_rng(0).random((50, 6)).cumsum(axis=1)
    T = np.random.default_rng(1).random(50) * 60
    plain = sampler.mixed(history, T, 5)
    assert 0 < plain.sum() < 50
    for c in (2.0**-20, 2.0**20):
        np.testing.assert_array_equal(sampler.mixed(c * history, c * T, 5), plain)
    # the printed test, 0.01 tau T V, holds for other chains when the unit of the cost is another
    printed = [(c * (history[:, -1] - history[:, 0]) < 0.05 * c * T * c * history[:, -1]).sum() for c in (0.01, 100.0)]
    assert printed[0] < plain.sum() < printed[1]


@pytest.mark.parametrize(
    ("rng", "ids", "error", "message"),
    [
        (1.5, None, TypeError, "rng: expected an integer"),
        (True, None, TypeError, "rng: expected an integer"),
        (-1, None, ValueError, "rng: expected an integer from 0"),
        (2**64, None, ValueError, "rng: expected an integer from 0"),
        (0, [0.5, 1.0, 2.0], TypeError, "ids: expected integers"),
        (0, [0, 1], ValueError, "ids: expected one number >= 0 for each of the 3 problems"),
        (0, [0, 1, -1], ValueError, "ids: expected one number >= 0"),
    ],
)
def test_bad_keys(rng, ids, error, message):
    with pytest.raises(error, match=message):
        sampler.init(batch("grid2"), rng, ids)


def test_a_temperature_for_each_half_step(kernel):
    """The noise of g has the one and that of h the other; equal ones are the default, up to rounding."""
    pair = batch("dense", n=3)
    T, T_h = np.geomspace(0.1, 0.01, 6), np.geomspace(0.3, 0.05, 6)
    state, info = sampler.run(sampler.init(pair, rng=3), pair, T, temperatures_h=T_h)
    before, _ = sampler.run(sampler.init(pair, rng=3), pair, T[:5], temperatures_h=T_h[:5])
    theta_g, theta_h = sampler.draw(before, pair)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose((info.U - info.g)[pair.p > 0], (theta_g * T[5] / pair.p)[pair.p > 0], rtol=1e-3)
        np.testing.assert_allclose((state.h - info.L)[pair.q > 0], (theta_h * T_h[5] / pair.q)[pair.q > 0], rtol=1e-3)
    rows = np.tile(T, (3, 1)), np.tile(T_h, (3, 1))
    own, _ = sampler.run(sampler.init(pair, rng=3), pair, rows[0], temperatures_h=rows[1])
    np.testing.assert_array_equal(own.h, state.h)
    same, _ = sampler.run(sampler.init(pair, rng=3), pair, T, temperatures_h=T)
    np.testing.assert_allclose(same.h, sampler.run(sampler.init(pair, rng=3), pair, T)[0].h, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="temperatures_h: expected the shape of temperatures"):
        sampler.run(sampler.init(pair), pair, T, temperatures_h=T_h[:2])
    with pytest.raises(ValueError, match="temperatures_h"):
        sampler.run(sampler.init(pair), pair, T, temperatures_h=-T_h)
