from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from cases import batch, by_sampler, problems
from gibbsot import DenseCost, Gibbs, GridCost, OTResult, PointCost, Problem, datasets, solve, solve_batch
from gibbsot.core import native
from gibbsot.io import progress
from gibbsot.sampling import sampler, schedules
from kernels import using

estimate, estimate_batch = by_sampler(solve), by_sampler(solve_batch)


def exact(p: NDArray[np.float64], q: NDArray[np.float64], M: NDArray[np.floating]) -> float:
    """The optimal cost by POT's network simplex."""
    M = M.astype(np.float64)
    M[np.isinf(M)] = 1e4 * M[np.isfinite(M)].max()  # POT takes no infinite costs
    return float(ot.emd2(p, q, M, numItermax=10_000_000))


def test_two_modes_of_the_paper(kernel):
    p, q, cost = datasets.two_modes()
    if kernel == "numpy":
        pytest.skip("five thousand sweeps are for the compiled kernels; native equals NumPy elsewhere")
    result = estimate(p, q, cost, schedule=schedules.geometric(2 / 128, 5000))
    W = exact(p, q, cost.matrix())
    assert result.value == pytest.approx(W, rel=2e-4)
    assert result.lower_bound <= W
    assert result.n_sweeps == 5000


def test_coulomb_has_the_value_two(kernel):
    p, q, cost = datasets.coulomb_uniform()
    assert np.isinf(np.diag(cost.matrix())).all()
    assert exact(p, q, cost.matrix()) == pytest.approx(2, rel=1e-12)
    if kernel == "numpy":
        pytest.skip("five thousand sweeps are for the compiled kernels; native equals NumPy elsewhere")
    result = estimate(p, q, cost, schedule=schedules.geometric(2 / 128, 5000, ratio=5000.0**-3))
    assert result.value == pytest.approx(2, rel=1e-4)
    assert result.lower_bound <= 2


def test_numpy_solves_the_papers_examples():
    """The same two problems, smaller, by the NumPy step alone."""
    with using("numpy"):
        p, q, cost = datasets.coulomb_uniform(32)
        assert estimate(p, q, cost, schedule=schedules.geometric(2 / 32, 1000)).value == pytest.approx(2, rel=1e-2)
        p, q, cost = datasets.two_modes(32)
        result = estimate(p, q, cost, schedule=schedules.geometric(2 / 32, 1000))
    assert result.value == pytest.approx(exact(p, q, cost.matrix()), rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uniform", "points"])
def test_default_settings_on_random_dense_problems(kind):
    """25 of each kind, every one within 1 % of POT, the bound never above."""
    rng = np.random.default_rng(20)
    for _ in range(25 if native.name() != "numpy" else 3):
        m1, m2 = rng.integers(2, 150, 2)
        if kind == "uniform":
            cost = DenseCost(rng.random((m1, m2)))
        else:
            cost = PointCost(rng.normal(size=(m1, 2)), rng.normal(size=(m2, 2)))
        p, q = rng.dirichlet(np.ones(m1)), rng.dirichlet(np.ones(m2))
        result = estimate(p, q, cost)
        W = exact(p, q, cost.matrix())
        assert result.value == pytest.approx(W, rel=1e-2)
        assert result.lower_bound <= W * (1 + 1e-12)


@pytest.mark.slow
def test_default_settings_on_random_images():
    """20 pairs of images, uniform noise and spots sharp and blurred: within 1 % of POT, the bound never above.

    Nearly constant images, which nearly agree, are slower than that: benchmarks/accuracy.py shows how much.
    """
    rng = np.random.default_rng(21)
    for k in range(20 if native.name() != "numpy" else 2):
        shape = tuple(rng.integers(8, 24, 2))
        images = [
            gaussian_filter(rng.random(shape) ** (1, 8, 8, 8)[k % 4], (0, 0, 1, 2)[k % 4]).ravel() for _ in range(2)
        ]
        p, q = (image / image.sum() for image in images)
        cost = GridCost(shape)
        result = estimate(p, q, cost)
        W = exact(p, q, cost.matrix())
        assert result.value == pytest.approx(W, rel=1e-2)
        assert result.lower_bound <= W * (1 + 1e-12)


def test_fives_against_their_mean(fives):
    """What the benchmark times: cold, single precision, few sweeps; mean error 1 % or less."""
    if native.name() == "numpy":
        pytest.skip("two hundred images are for the compiled kernels")
    mean = fives.mean(axis=0) + 1e-6
    mean /= mean.sum()
    M = GridCost((28, 28)).matrix()
    rows = slice(0, 40)
    for cost in (GridCost((28, 28), dtype=np.float32), DenseCost(M, np.float32)):
        result = estimate_batch(mean, fives[rows], cost, n_sweeps=240, n_jobs=2)
        stored = cost.astype(np.float64).matrix()
        W = np.array([exact(mean, q[q > 0], np.ascontiguousarray(stored[:, q > 0])) for q in fives[rows]])
        assert np.abs(result.value / W - 1).mean() < 0.01
        assert (result.lower_bound <= W * (1 + 1e-12)).all()


@given(problems(), st.integers(0, 10))
def test_lower_bound_at_any_time(pair, seed):
    """However few sweeps and in whatever precision, the certified bound is below the exact value."""
    result = estimate_batch(pair.p, pair.q, pair.cost, n_sweeps=7, rng=seed)
    M = pair.cost.astype(np.float64).matrix()
    W = np.array([exact(p, q, M) for p, q in zip(pair.p, pair.q, strict=True)])
    assert (result.lower_bound <= W + 1e-12 * np.abs(W)).all()  # the digits of POT


@given(problems(), st.integers(-30, 30))
def test_scale_equivariance(pair, exponent):
    """A cost of c M has c times the temperature, value and potentials, bit-identical for a power of two."""
    c = 2.0**exponent
    scaled = DenseCost(pair.cost.matrix() * pair.cost.dtype.type(c))
    plain = DenseCost(pair.cost.matrix())
    one, two = (estimate_batch(pair.p, pair.q, cost, n_sweeps=60) for cost in (plain, scaled))
    np.testing.assert_array_equal(two.temperature, c * one.temperature)
    np.testing.assert_array_equal(two.value, c * one.value)
    for first, second in ((one.U, two.U), (one.L, two.L)):
        np.testing.assert_array_equal(second, pair.cost.dtype.type(c) * first)
    np.testing.assert_array_equal(two.n_sweeps, one.n_sweeps)


def test_any_scale():
    """1e-6, 1, 1e6 and pi: the same relative answer."""
    pair = batch("points", n=1)
    M = pair.cost.matrix()
    W = exact(pair.p[0], pair.q[0], M)
    for c in (1e-6, 1.0, np.pi, 1e6):
        for dtype in (np.float32, np.float64):
            assert estimate(pair.p[0], pair.q[0], DenseCost(c * M, dtype)).value == pytest.approx(c * W, rel=1e-2)


def test_shift_equivariance():
    """Adding a constant to the cost adds it to the value and leaves the temperatures."""
    pair = batch("points", n=2)
    M = pair.cost.matrix()
    plain, shifted = (estimate_batch(pair.p, pair.q, M + c) for c in (0.0, 8.0))
    np.testing.assert_allclose(shifted.temperature, plain.temperature, rtol=1e-6)
    np.testing.assert_allclose(shifted.value, plain.value + 8.0, rtol=1e-6)
    negative = estimate_batch(pair.p, pair.q, M - 100.0)
    np.testing.assert_allclose(negative.value, plain.value - 100.0, rtol=1e-6)


def test_symmetry():
    pair = batch("points", n=3)
    one = estimate_batch(pair.p, pair.q, pair.cost)
    other = estimate_batch(pair.q, pair.p, DenseCost(pair.cost.matrix().T))
    np.testing.assert_allclose(one.value, other.value, rtol=1e-2)


def test_equal_measures_single_points_and_constant_costs():
    p = np.random.default_rng(0).dirichlet(np.ones(30))
    cost = GridCost((5, 6))
    assert abs(estimate(p, p, cost).value) < 1e-3 * cost.mean(p[None], p[None])[0]
    assert estimate([1.0], [1.0], [[3.0]]).value == pytest.approx(3.0)
    assert estimate([1.0], [0.4, 0.6], [[3.0, 5.0]]).value == pytest.approx(4.2, rel=1e-3)
    assert estimate([0.5, 0.5], [0.4, 0.6], np.full((2, 2), 7.0)).value == pytest.approx(7.0)
    assert estimate([0.5, 0.5], [0.4, 0.6], np.zeros((2, 2))).value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("kind", ["dense", "grid2"])
def test_same_bits_for_every_batch(kind):
    pair = batch(kind, n=6)
    whole = estimate_batch(pair.p, pair.q, pair.cost, n_sweeps=150, rng=4)
    for n_jobs in (2, 5):
        again = estimate_batch(pair.p, pair.q, pair.cost, n_sweeps=150, rng=4, n_jobs=n_jobs)
        np.testing.assert_array_equal(again.value, whole.value)
        np.testing.assert_array_equal(again.U, whole.U)
    for rows in ([5, 0, 3], [4, 1, 2], [2]):
        part = estimate_batch(pair.p[rows], pair.q[rows], pair.cost, n_sweeps=150, rng=4, ids=rows)
        np.testing.assert_array_equal(part.value, whole.value[rows])
        np.testing.assert_array_equal(part.L, whole.L[rows])
        np.testing.assert_array_equal(part.temperature, whole.temperature[rows])
    alone = estimate(pair.p[0], pair.q[0], pair.cost, n_sweeps=150, rng=4)
    assert alone.value == whole[0].value
    other = estimate_batch(pair.p, pair.q, pair.cost, n_sweeps=150, rng=5)
    assert (other.value != whole.value).all()


def test_result_of_a_batch():
    pair = batch("grid2", n=3)
    result = estimate_batch(pair.p, pair.q, pair.cost, n_sweeps=100)
    assert len(result) == 3
    assert [r.value for r in result] == list(result.value)
    assert [r.lower_bound for r in result] == list(result.lower_bound)
    last = result[-1]
    assert isinstance(last, OTResult)
    assert isinstance(last.value, float)
    assert last.U.shape == (162,)
    np.testing.assert_array_equal(last.recovered_plan.toarray(), result.recovered_plan[2].toarray())
    assert result.history.shape[1] <= 100
    assert last.history[last.n_sweeps - 1] == last.value
    assert "value" in repr(last)
    assert "3 problems" in repr(result)
    part = result[1:]
    assert len(part) == 2
    assert part[0].value == result[1].value
    with pytest.raises(IndexError, match="problem 3 of a batch of 3"):
        result[3]
    with pytest.raises(TypeError, match="one problem"):
        len(last)


def test_a_given_schedule_is_followed():
    pair = batch("points", n=2)
    result = estimate_batch(pair.p, pair.q, pair.cost, schedule=lambda n: 0.1 / n, n_sweeps=30)
    assert (result.n_sweeps == 30).all()
    np.testing.assert_allclose(result.temperature, 0.1 / 30)
    same = estimate_batch(pair.p, pair.q, pair.cost, schedule=0.1 / np.arange(1, 31))
    np.testing.assert_array_equal(result.value, same.value)
    assert (estimate_batch(pair.p, pair.q, pair.cost, schedule=0.1, n_sweeps=8).temperature == 0.1).all()


def test_mixed_is_the_mixing_test():
    pair = batch("points", n=6)
    # at so low a temperature a new chain mixes slowly
    assert not estimate_batch(pair.p, pair.q, pair.cost, schedule=1e-4, n_sweeps=30).mixed.any()
    result = estimate_batch(pair.p, pair.q, pair.cost, schedule=0.05, n_sweeps=30)
    assert set(result.mixed) == {True, False}
    rise = result.history[:, -1] - result.history[:, -6]
    np.testing.assert_array_equal(result.mixed, rise < 0.01 * 5 * 0.05)


def test_warm_start_continues_bit_for_bit():
    pair = batch("grid2", n=2)
    T = np.geomspace(0.1, 1e-4, 50)
    whole = estimate_batch(pair.p, pair.q, pair.cost, schedule=T, rng=2)
    first = estimate_batch(pair.p, pair.q, pair.cost, schedule=T[:20], rng=2)
    second = estimate_batch(pair.p, pair.q, pair.cost, schedule=T[20:], warm_start=first)
    np.testing.assert_array_equal(second.value, whole.value)
    np.testing.assert_array_equal(second.state.h, whole.state.h)


def test_warm_start_is_worth_many_sweeps():
    """Move the measures by 2 %: the warm chains mix in a fraction of the sweeps and stay within 1 %."""
    rng = np.random.default_rng(3)
    cost = GridCost((12, 12))
    images = gaussian_filter(rng.random((20, 12, 12)) ** 6, (0, 1, 1)).reshape(20, -1)
    images /= images.sum(axis=1, keepdims=True)
    n = 10 if native.name() != "numpy" else 2
    P, Q = images[:n], images[10 : 10 + n]
    before = estimate_batch(P, Q, cost)
    moved = 0.98 * P + 0.02 * images[5]
    after = estimate_batch(moved, Q, cost, warm_start=before)
    W = np.array([exact(p / p.sum(), q, cost.matrix()) for p, q in zip(moved, Q, strict=True)])
    assert after.n_sweeps.mean() < 40
    assert np.abs(after.value / W - 1).mean() < 0.01


def test_warm_start_when_points_gain_and_lose_weight():
    pair = batch("dense", n=1)
    q = np.roll(pair.q[0], 3)
    before = estimate(pair.p[0], pair.q[0], pair.cost)
    reheated = np.geomspace(30, 1, 2000) * before.temperature
    after = estimate(pair.p[0], q, pair.cost, warm_start=before, schedule=reheated)
    assert after.value == pytest.approx(exact(pair.p[0], q, pair.cost.matrix()), rel=1e-2)


def test_plan_is_the_papers():
    """Near the optimum it has at most m1 + m2 entries, the right mass, and a cost near W, but not the marginals."""
    p, q, cost = datasets.two_modes(64)
    result = estimate(p, q, cost, schedule=schedules.geometric(2 / 64, 3000))
    Z = result.recovered_plan
    assert Z.nnz <= 128
    assert Z.sum() == pytest.approx(1)
    arcs = Z.tocoo()
    assert float((arcs.data * cost.at(arcs.row, arcs.col)).sum()) == pytest.approx(exact(p, q, cost.matrix()), rel=5e-2)
    assert 0.5 * np.abs(Z.sum(axis=1) - p).sum() > 0.01


def test_value_is_no_bound():
    """A slip of the paper's: at a high temperature V(z) lies above W, in a chain that has just begun below."""
    p, q, cost = datasets.coulomb_uniform(30)
    assert estimate(p, q, cost, schedule=1.0, n_sweeps=200).value > 1.3 * 2
    assert estimate(p, q, cost, schedule=1e-3, n_sweeps=1).value < 2
    for T in (1.0, 1e-3):
        assert estimate(p, q, cost, schedule=T, n_sweeps=50).lower_bound <= 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_sweeps": 0}, ValueError, "n_sweeps: expected at least 1"),
        ({"n_sweeps": 2.5}, TypeError, "n_sweeps: expected an integer"),
        ({"schedule": 0.0, "n_sweeps": 3}, ValueError, "schedule: expected a positive number"),
        ({"schedule": [1.0, -1.0]}, ValueError, "schedule: expected positive numbers"),
        ({"schedule": [1.0], "n_sweeps": 3}, ValueError, "n_sweeps: 3 differs"),
        ({"schedule": -1.0}, ValueError, "schedule: expected a positive number"),
        ({"rng": 1.5}, TypeError, "rng: expected an integer"),
        ({"pinned": "no"}, TypeError, "pinned: expected True or False"),
        ({"warm_start": 3}, TypeError, "warm_start: expected an OTResult"),
    ],
)
def test_bad_options(options, error, message):
    pair = batch("dense", n=1)
    with pytest.raises(error, match=message):
        estimate(pair.p[0], pair.q[0], pair.cost, **options)


def test_warm_start_of_a_point_that_nothing_could_reach():
    M = [[0.0, np.inf], [1.0, 0.0]]
    before = estimate([1.0, 0.0], [1.0, 0.0], M)
    after = estimate([0.5, 0.5], [0.5, 0.5], M, warm_start=before, schedule=np.geomspace(1, 1e-4, 500))
    assert after.value == pytest.approx(0, abs=1e-2)


def test_results_are_true_and_compare_by_identity():
    pair = batch("grid1", n=1)
    one, other = (estimate(pair.p[0], pair.q[0], pair.cost, n_sweeps=5) for _ in range(2))
    assert one
    assert one != other
    assert len({one, other}) == 2


def test_warm_start_of_another_size():
    small, large = batch("grid1", n=1), batch("grid2", n=1)
    before = estimate(small.p[0], small.q[0], small.cost, n_sweeps=10)
    with pytest.raises(ValueError, match="warm_start: has 1 problems of 19 x 19 points; expected 1 of 162 x 162"):
        estimate(large.p[0], large.q[0], large.cost, warm_start=before)


def test_a_warm_start_keeps_its_seed():
    pair = batch("grid1", n=1)
    before = estimate(pair.p[0], pair.q[0], pair.cost, n_sweeps=10)
    with pytest.raises(ValueError, match="rng: a warm start keeps those of its result"):
        estimate(pair.p[0], pair.q[0], pair.cost, warm_start=before, rng=3)


def test_lines_where_there_is_no_terminal(capfd, monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    pair = batch("dense", n=1)
    estimate(pair.p[0], pair.q[0], pair.cost, n_sweeps=20, verbose=True)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Gibbs-OT: ")
    solve(pair.p[0], pair.q[0], pair.cost, verbose=True)
    assert ("crossover" if native.name() == "numpy" else "all arcs") in capfd.readouterr().err
    solve(pair.p[0], pair.q[0], pair.cost)
    assert capfd.readouterr().err == ""


def test_an_interrupted_run_leaves_nothing_behind(monkeypatch):
    pair = batch("grid2", n=3)
    first = estimate_batch(pair.p, pair.q, pair.cost, n_sweeps=50)
    h, expected = first.state.h.copy(), estimate_batch(pair.p, pair.q, pair.cost, warm_start=first, schedule=[1e-3] * 9)
    work = sampler._sweeps

    def stopped(*args):
        work(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sampler, "_sweeps", stopped)
        with pytest.raises(KeyboardInterrupt):
            estimate_batch(pair.p, pair.q, pair.cost, warm_start=first, schedule=[1e-3] * 9)
    np.testing.assert_array_equal(first.state.h, h)
    again = estimate_batch(pair.p, pair.q, pair.cost, warm_start=first, schedule=[1e-3] * 9)
    np.testing.assert_array_equal(again.state.h, expected.state.h)


def test_a_solver_holds_its_options_and_is_called_with_problems():
    solver = Gibbs(n_sweeps=30, rng=3)
    for kind in ("grid1", "dense"):
        pair = batch(kind, n=2)
        expected = estimate_batch(pair.p, pair.q, pair.cost, n_sweeps=30, rng=3)
        again = Problem(pair.p, pair.q, pair.cost)  # normalised once more, which rounds
        np.testing.assert_array_equal(solver.sample(again).info.history, expected.history)
    with pytest.raises(FrozenInstanceError):
        solver.rng = 4
    with pytest.raises(ValueError, match="n_sweeps: expected at least 1"):
        replace(solver, n_sweeps=0)
