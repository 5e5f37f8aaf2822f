"""The appendix against the sampler, against integration and against closed forms.

Seeds are fixed, and each statistical test states how often it would fail a correct library.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from cases import KINDS, batch
from gibbsot import DenseCost, Gibbs, GridCost, Problem, plots, solve, solve_batch
from gibbsot.costs.problems import dual_value
from gibbsot.sampling import sampler, theory
from gibbsot.sampling.theory import increments

FALSE_ALARM = 1e-4  # of each test that draws
SIDES = ("L", "U")


def replicas(kind: str, n: int, zeros: float = 0.3) -> Problem:
    """The same problem n times; the chains differ in their number and so in their noise."""
    one = batch(kind, n=1, zeros=zeros)
    return Problem.normalised(np.repeat(one.p, n, axis=0), np.repeat(one.q, n, axis=0), one.cost)


def small(n: int) -> Problem:
    rng = np.random.default_rng(3)
    p, q, M = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(4)), rng.random((3, 4))
    return Problem(np.repeat(p[None], n, axis=0), q, M)


def potentials(pair: Problem, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A pair that a chain could have visited."""
    _, info = sampler.run(sampler.init(pair, rng=seed), pair, np.full(4, 0.02))
    return info.U.astype(float), info.L.astype(float)


def z_test(differences: np.ndarray, tests: int = 1) -> None:
    """The mean over the first axis is zero, at FALSE_ALARM over all columns together (Bonferroni)."""
    error = differences.std(axis=0, ddof=1) / np.sqrt(len(differences))
    z = differences.mean(axis=0) / error
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / (2 * tests * z.size))


@pytest.mark.parametrize("kind", ["dense", "forbidden", "grid2"])
@pytest.mark.parametrize("T", [1e-3, 0.1])
def test_expectations_against_the_sampler(kind, T):
    """Two z-tests over all points with weight, Bonferroni: a false alarm in 1e4 for each case."""
    pair = replicas(kind, 3000)
    state, info = sampler.run(sampler.init(pair, rng=1), pair, np.full(1, T))
    one = pair[:1]
    kept = one.q[0] > 0
    z_test(info.L[:, kept] - theory.expected_L(one, info.U[:1], T)[0, kept], tests=2)
    # each chain has its own L: the differences from what is expected of each
    few = slice(0, 400)
    kept = one.p[0] > 0
    U = pair.cost.row_min(state.h[few])
    z_test((U - theory.expected_U(pair[few], info.L[few], T))[:, kept], tests=2)


def integral(x: np.ndarray, w: np.ndarray, T: float) -> float:
    """E of min_k (x_k + theta_k T / w_k), from its survival function prod_k min(1, exp(-w_k (y - x_k) / T))."""
    x, w = x[(w > 0) & np.isfinite(x)], w[(w > 0) & np.isfinite(x)]
    knots = np.unique(x)
    ends = np.append(knots, knots[-1] + 60 * T / w.sum())

    def survival(y: float) -> float:
        return float(np.exp(-(w * np.maximum(y - x, 0)).sum() / T))

    # a segment may hold a decay much faster than its length: cut it where nothing is left
    area = sum(
        integrate.quad(survival, a, min(b, a + 60 * T / w[x <= a].sum()), epsabs=0, epsrel=1e-11)[0]
        for a, b in pairwise(ends)
        if survival(a) > 1e-18
    )
    return float(knots[0] + area)


# between two knots that are next to equal the quadrature complains of rounding; the assertion is about the sum
@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("kind", ["forbidden", "points", "thin"])
@pytest.mark.parametrize("T", [1e-4, 0.03, 10.0])
def test_expectations_against_integration(kind, T):
    """The distribution of L is prod_i min(1, exp(p_i (x - U_i + M_ij) / T)); U is a minimum (correction 2)."""
    pair = batch(kind, n=1)
    U, L = potentials(pair)
    M = pair.cost.matrix()
    low = [-integral(M[:, j] - U[0], pair.p[0], T) for j in range(M.shape[1])]
    high = [integral(M[i] + L[0], pair.q[0], T) for i in range(M.shape[0])]
    np.testing.assert_allclose(theory.expected_L(pair, U, T)[0], low, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(theory.expected_U(pair, L, T)[0], high, rtol=1e-9, atol=1e-12)


def test_one_point():
    """Against one point everything is an exponential."""
    pair = Problem([1.0], [0.25, 0.75], [[1.0, 3.0]])
    for T in (1e-12, 0.5, 1e3):
        assert theory.phi(pair, [[2.0]], T).tolist() == [[1.0, 1.0]]
        assert theory.expected_L(pair, [[2.0]], T).tolist() == [[1.0 - T, -1.0 - T]]
    # two points, by hand: 1 / q_1 until the second joins, then 1
    mu = np.exp(-0.25 * 2 / 0.5)
    np.testing.assert_allclose(theory.psi(pair, [[0.0, 0.0]], 0.5), [[(1 - mu) / 0.25 + mu]], rtol=1e-15)


def test_ties_do_not_depend_on_the_order():
    pair = Problem([0.1, 0.2, 0.3, 0.4], [1.0], [[1.0], [0.0], [0.0], [2.0]])
    assert theory.phi(pair, np.zeros((1, 4)), 1e-12) == pytest.approx(2.0)
    swapped = Problem([0.1, 0.3, 0.2, 0.4], [1.0], [[1.0], [0.0], [0.0], [2.0]])
    for T in (1e-12, 0.3, 1e3):
        np.testing.assert_allclose(
            theory.phi(pair, np.zeros((1, 4)), T), theory.phi(swapped, np.zeros((1, 4)), T), rtol=1e-14
        )


@pytest.mark.parametrize("kind", KINDS)
def test_stable_for_all_temperatures(kind):
    """phi falls from 1 / (weight at the maximum) to 1, and T phi rises; zero weights and infinite costs included."""
    pair = batch(kind)
    U, L = potentials(pair)
    T = np.logspace(-12, 3, 31)
    for f, potential, weight in ((theory.phi, U, pair.p), (theory.psi, L, pair.q)):
        values = np.array([f(pair, potential, t) for t in T])
        assert np.isfinite(values).all()
        assert (values >= 1 - 1e-12).all()
        assert (values <= 1 / weight.min(where=weight > 0, initial=1) * (1 + 1e-12)).all()
        assert (np.diff(values, axis=0) <= 1e-12 * values[1:]).all()
        assert (np.diff(T[:, None, None] * values, axis=0) > 0).all()
    bound = pair.cost.col_max(np.where(pair.p > 0, U, -np.inf))
    slack = 1e-12 / pair.p.min(where=pair.p > 0, initial=1) + 1e-14
    np.testing.assert_allclose(theory.expected_L(pair, U, 1e-12), bound, rtol=0, atol=slack)


@pytest.mark.parametrize("weight", [1e-17, 1e-200])
def test_tiny_weights(weight):
    """A point of almost no weight at the maximum: L falls at once to where the others begin."""
    pair = Problem.normalised(np.array([[weight, 1 - weight]]), np.ones((1, 1)), DenseCost([[0.0], [1.0]]))
    np.testing.assert_allclose(theory.expected_L(pair, [[0.0, 0.0]], 0.25), [[-1.25]], rtol=1e-14)


def test_masked_points_take_no_part():
    """Potentials of masked points may be anything; a masked column that nothing reaches has L = -inf."""
    inf = np.inf
    wide = Problem([0.5, 0.5, 0], [0.25, 0.75, 0], [[0.0, 1.0, inf], [1.0, 0.0, inf], [0.0, 0.0, 0.0]])
    narrow = Problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    U, L = np.array([[0.3, 0.1]]), np.array([[-0.2, 0.4]])
    for odd in (inf, -inf, np.nan, 1e300):
        wide_U, wide_L = np.append(U, [[odd]], axis=1), np.append(L, [[odd]], axis=1)
        for side in SIDES:
            for f in (theory.D, theory.temperature_bound):
                assert f(wide, wide_U, wide_L, side=side) == f(narrow, U, L, side=side)
            for g in (theory.C, theory.expected_increment):
                assert g(wide, wide_U, wide_L, 0.1, side) == g(narrow, U, L, 0.1, side)
        assert theory.expected_L(wide, wide_U, 0.1).tolist()[0][2] == -inf


def test_parts_of_a_large_matrix(monkeypatch):
    """The same to rounding however few entries are held at once, and never the whole matrix of a grid."""
    pair = batch("grid2")
    U, L = potentials(pair)
    monkeypatch.setattr(GridCost, "matrix", None)

    def everything() -> list[np.ndarray]:
        out = [theory.phi(pair, U, 0.01), theory.psi(pair, L, 0.01)]
        for side in SIDES:
            out += [theory.D(pair, U, L, side), theory.temperature_bound(pair, U, L, side)]
            out += [theory.expected_increment(pair, U, L, 0.01, side)]
        return out

    whole = everything()
    monkeypatch.setattr(increments, "ENTRIES", 1000)
    for a, b in zip(whole, everything(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", ["dense", "forbidden", "points", "grid2"])
def test_increment_changes_sign_at_the_bound(kind, side):
    pair = batch(kind, n=4)
    U, L = potentials(pair)
    L = L - np.array([0.5, 0.05, 1e-4, 1e-9])[:, None]  # V above equilibrium by much and by little
    if side == "U":
        U = U + 0.1
    root = theory.temperature_bound(pair, U, L, side)
    assert (root > 0).all()
    assert (theory.expected_increment(pair, U, L, root * (1 - 1e-6), side) < 0).all()
    assert (theory.expected_increment(pair, U, L, root * (1 + 1e-6), side) > 0).all()
    # the paper's equation T = -A / C(z, T), which is implicit (correction 4)
    gain = theory.expected_increment(pair, U, L, root, side) - root * theory.C(pair, U, L, root, side)
    np.testing.assert_allclose(root, -gain / theory.C(pair, U, L, root, side), rtol=1e-6)


def test_no_bound_below_equilibrium():
    """From a value that is too low, the increment is positive at every temperature; the bound is zero."""
    pair = batch("points")
    U, L = potentials(pair)
    L = L + 10
    assert theory.temperature_bound(pair, U, L).tolist() == [0, 0, 0]
    for T in (1e-12, 1.0, 1e3):
        assert (theory.expected_increment(pair, U, L, T, "L") > 0).all()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("k", [-40, -3, 40])
def test_scale(k, side):
    """Costs in another unit: the bound is in that unit, bit for bit for a power of two."""
    pair = batch("forbidden")
    U, L = potentials(pair)
    scaled = Problem(pair.p, pair.q, pair.cost.matrix() * 2.0**k)
    # Problem() normalises again: bit-identical only from the same weights
    scaled = Problem.normalised(pair.p, pair.q, scaled.cost)
    L = L - 0.1
    bound = theory.temperature_bound(pair, U, L, side)
    assert (bound > 0).all()
    assert (theory.temperature_bound(scaled, U * 2.0**k, L * 2.0**k, side) == bound * 2.0**k).all()


def test_regret():
    assert theory.regret([1.0, 2.0], [0.5, 0.5]) == 0.5
    assert theory.regret([5.0, np.inf], [1.0, 0.0]) == 0
    assert theory.regret([5.0, np.inf], [0.5, 0.5]) == np.inf
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(7, 5)), rng.dirichlet(np.ones(5), 7)
    np.testing.assert_allclose(theory.regret(x, w), (x * w).sum(axis=1) - x.min(axis=1))


@pytest.mark.parametrize("side", SIDES)
def test_constants(side):
    """C and D from their definitions, D of side L with a sum over j (correction 5)."""
    pair = batch("dense")
    U, L = potentials(pair)
    M = pair.cost.matrix()
    if side == "L":
        low = (theory.phi(pair, U, 0.1) * pair.q).sum(axis=1)
        high = [
            q @ [theory.regret(M[:, j] - u, p) for j in range(len(q))]
            for p, q, u in zip(pair.p, pair.q, U, strict=True)
        ]
    else:
        low = (theory.psi(pair, L, 0.1) * pair.p).sum(axis=1)
        high = [
            p @ [theory.regret(M[i] + v, q) for i in range(len(p))] for p, q, v in zip(pair.p, pair.q, L, strict=True)
        ]
    np.testing.assert_allclose(theory.C(pair, U, L, 0.1, side), low, rtol=1e-12)
    np.testing.assert_allclose(theory.D(pair, U, L, side), high, rtol=1e-12)


def test_trace_is_the_run():
    pair = batch("points")
    T = np.array([0.3, 0.1, 0.05, 0.05])
    state, seen = theory.trace(sampler.init(pair, rng=4), pair, T)
    expected, info = sampler.run(sampler.init(pair, rng=4), pair, T)
    np.testing.assert_allclose(state.h, expected.h, rtol=1e-12)
    np.testing.assert_allclose(seen.value[:, ::2], info.history, rtol=1e-10)
    np.testing.assert_allclose(seen.value[:, -1], dual_value(pair, pair.cost.row_min(state.h), info.L), rtol=1e-10)
    assert seen.T.tolist() == [[0.3, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05]] * 3
    assert seen.r.shape == seen.value.shape == (3, 8)
    assert (seen.r[:, 0] == seen.value[:, 0]).all()
    # never below the left-hand bound of the lemma; the sign of the increment is that of T - calT
    assert (np.diff(seen.r) >= -seen.C * seen.T * (1 + 1e-9)).all()
    assert (np.sign(seen.increment) == np.sign(seen.T - seen.bound)).all()


RUNS, EPS = 3000, 0.05


@pytest.fixture(scope="module")
def traces() -> dict[str, theory.Trace]:
    single = Problem(np.ones((RUNS, 1)), [1.0], [[3.0]])
    T = 0.2 * 0.8 ** np.arange(8)
    return {
        name: theory.trace(sampler.init(pair, rng=21), pair, T)[1]
        for name, pair in (("single", single), ("small", small(RUNS)))
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["single", "small"])
def test_martingale_has_mean_zero(traces, name):
    """r^n - r^1 and each difference r^(n+1) - r^n, z-tests over all n with Bonferroni: a false alarm in 1e4 each."""
    r = traces[name].r
    z_test(r[:, 1:] - r[:, :1])
    z_test(np.diff(r))


def exceeded(violations: np.ndarray, probability: float) -> bool:
    """More violations than a binomial of the stated probability would have but once in 1e4."""
    return violations.sum() > stats.binom.isf(FALSE_ALARM, len(violations), probability)


@pytest.mark.parametrize("name", ["single", "small"])
@pytest.mark.parametrize("K", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_left_bound(traces, name, K):
    """Violations are at most as frequent as stated, K in units of the root of Sigma; a false alarm in 1e4 at most.

    Sigma is that of a run in the middle; a run whose own is larger makes no claim.
    """
    seen = traces[name]
    squares = ((seen.C * seen.T) ** 2).sum(axis=1)
    typical = seen.C[np.argsort(squares)[RUNS // 2]] * seen.T[0]
    K = K * np.sqrt((typical**2).sum())
    strayed = (seen.r[:, -1] < seen.r[:, 0] - K) & (squares <= (typical**2).sum() * (1 + 1e-12))
    assert not exceeded(strayed, theory.concentration_probability(K, typical))


@pytest.mark.parametrize("name", ["single", "small"])
@pytest.mark.parametrize("K", [0.1, 0.3, 1.0, 2.0])
def test_right_bound(traces, name, K):
    """As the left-hand one, with steps that hold but for a probability of 0.05; a false alarm in 1e4 at most."""
    seen = traces[name]
    a = np.array([theory.right_steps(d, t, 4, EPS) for d, t in zip(seen.D, seen.T, strict=True)])
    squares = (a**2).sum(axis=1)
    typical = a[np.argsort(squares)[RUNS // 2]]
    assert not exceeded((np.diff(seen.r) >= a).any(axis=1), EPS)
    K = K * np.sqrt((typical**2).sum())
    strayed = (seen.r[:, -1] > seen.r[:, 0] + K) & (squares <= (typical**2).sum() * (1 + 1e-12))
    assert not exceeded(strayed, theory.concentration_probability(K, typical, EPS))


@pytest.mark.parametrize("K", [1.0, 2.0])
def test_bounds_of_a_mean(traces, K):
    """The mean of ten problems strays by a root of ten less, and not more often than stated; false alarm 1e-4 each."""
    seen = traces["single"]
    strays = (seen.r[:, -1] - seen.r[:, 0]).reshape(-1, 10).mean(axis=1)
    a, b = seen.T[:10], theory.right_steps(seen.D[:10], seen.T[:10], 1, EPS)  # C = 1 and D = 0 for one point
    width = K * np.sqrt((a**2).sum()) / 10
    assert not exceeded(strays < -width, theory.concentration_probability(width, a))
    assert not exceeded(strays > width, theory.concentration_probability(width, b, EPS))
    assert theory.concentration_width(0.1, a) == pytest.approx(theory.concentration_width(0.1, a[0]) / np.sqrt(10))


def test_probability_and_width_are_inverse():
    a = [0.1, 0.2, 0.3]
    for eps in (0.0, 0.01):
        for probability in (0.02, 0.5, 0.9):
            K = theory.concentration_width(probability, a, eps)
            assert theory.concentration_probability(K, a, eps) == pytest.approx(probability)
    assert theory.concentration_width(0.01, a, 0.01) == np.inf
    assert theory.concentration_probability(0.0, a, 0.5) == 1.0
    assert theory.concentration_probability(1.0, [0.0, 0.0]) == 0.0
    assert theory.concentration_probability(1.0, [np.inf, 0.0]) == 1.0


def test_azuma_needs_both_sides():
    """Steps >= -1 of mean zero, rarely large: the printed argument (Azuma, one side) would give exp(-7) for r < -15.

    They are -1 with probability 0.99, 99 otherwise; after 16 steps r = -16 with probability 0.99^16 = 0.85.
    """
    assert 500 * theory.concentration_probability(15.0, np.ones(16)) < 0.99**16


@pytest.mark.parametrize("s", [0.1, 1.0, 10.0])
def test_why_the_left_bound_holds_nevertheless(s):
    """E exp(-s Y) <= 1 / (1 + s E Y) for the excess Y of a minimum of shifted exponentials, by integration."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        w, x, T = rng.dirichlet(np.full(4, 0.3)), np.append(0, rng.exponential(size=3)), 0.3
        Y = integral(x, w, T)
        # E exp(-s Y) = 1 - s int exp(-s y) Pr(Y > y) dy, one more variate of rate s: int is E min(Y, Exp(s))
        transform = 1 - s * integral(np.append(x, 0), np.append(w, s * T), T)
        assert transform <= 1 / (1 + s * Y) + 1e-9


def test_bad_input():
    pair = batch("thin")
    U, L = np.zeros((3, 6)), np.zeros((3, 6))
    for T in (0.0, -1.0, np.nan, np.inf, [1.0, 1.0, 0.0]):
        with pytest.raises(ValueError, match="T: expected positive"):
            theory.phi(pair, U, T)
    with pytest.raises(ValueError, match="side: expected 'L' or 'U'"):
        theory.temperature_bound(pair, U, L, "V")
    with pytest.raises(ValueError, match="K: expected a number >= 0"):
        theory.concentration_probability(-1.0, [1.0])
    with pytest.raises(ValueError, match="probability: expected"):
        theory.concentration_width(0.0, [1.0])
    with pytest.raises(ValueError, match="eps: expected"):
        theory.right_steps([1.0], 1.0, 3, 0.0)


@pytest.mark.parametrize("T", [1e-3, 0.05])
def test_a_sweep_samples_the_bound(T):
    """What it adds to V over A is T C(z, T) on average: a z-test with a false alarm in 1e4."""
    pair = replicas("points", 2000)
    state, before = sampler.run(sampler.init(pair[:1], rng=5), pair[:1], np.full(30, T))
    n = len(pair)
    h, L = np.repeat(state.h, n, axis=0), np.repeat(before.L, n, axis=0)
    chains = sampler.State(h, np.repeat(state.sweep, n), 5, np.arange(1, n + 1, dtype=np.uint64))
    _, after = sampler.run(chains, pair, np.array([T]))
    bounds = theory.sampled_bound(pair, L, h, after.value, T)
    U = pair.cost.row_min(state.h)
    fall = -(theory.expected_increment(pair[:1], U, before.L, 1e-12, "L"))
    assert fall > 0
    z_test(fall / bounds - theory.C(pair[:1], U, before.L, T, "L"))


def test_a_chain_that_must_rise_has_no_bound():
    pair = batch("points", n=1)
    h = np.where(pair.q > 0, 0.0, np.inf)
    U = pair.cost.row_min(h)
    low = pair.cost.col_max(np.where(pair.p > 0, U, -np.inf)) + 1.0
    assert theory.sampled_bound(pair, low, h, np.array([10.0]), 0.1) == 0


def test_diagnostics_are_those_of_the_run():
    pair = batch("points", n=2)
    result = solve_batch(pair.p, pair.q, pair.cost, method=Gibbs(n_sweeps=60, rng=4, diagnostics=True))
    seen = result.diagnostics
    assert seen.value.shape == (2, 120)
    np.testing.assert_allclose(seen.value[:, ::2], result.history, rtol=1e-9)
    np.testing.assert_array_equal(seen.T[:, -1], result.temperature)
    np.testing.assert_array_equal(result[1].diagnostics.bound, seen.bound[1])
    assert solve_batch(pair.p, pair.q, pair.cost, method=Gibbs(n_sweeps=60, rng=4)).diagnostics is None
    with pytest.raises(ValueError, match=r"diagnostics: .* expected pinned=False"):
        solve_batch(pair.p, pair.q, pair.cost, method=Gibbs(pinned=True, diagnostics=True))
    with pytest.raises(TypeError, match="diagnostics: expected True or False"):
        solve_batch(pair.p, pair.q, pair.cost, method=Gibbs(diagnostics=3))


def test_diagnostics_are_drawn():
    figures = pytest.importorskip("matplotlib.figure")
    pair = batch("points", n=1)
    result = solve(pair.p[0], pair.q[0], pair.cost, method=Gibbs(n_sweeps=40, diagnostics=True))
    figure = figures.Figure()
    plots.diagnostics(figure, result)
    labels = [axes.get_ylabel().split("\n") for axes in figure.axes]
    assert [label[0] for label in labels] == ["V(z)", "expected increment", "temperature", "martingale"]
    scales = {"linear": [], "symlog": ["(symmetric log)"], "log": ["(log)"]}  # an axis that is not linear says so
    assert [label[1:] for label in labels] == [scales[axes.get_yscale()] for axes in figure.axes]
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), result.diagnostics.value)
    with pytest.raises(ValueError, match="result: expected that of one problem, from solve"):
        plots.diagnostics(figure, solve(pair.p[0], pair.q[0], pair.cost, method=Gibbs(n_sweeps=4)))
