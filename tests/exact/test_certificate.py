"""Lower bounds and sparse plans against linear programming and the definitions."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import KINDS, batch, problems
from gibbsot import DenseCost, GridCost, PointCost, Problem, solve
from gibbsot.core import native
from gibbsot.core.backend import backend
from gibbsot.costs.problems import dual_value
from gibbsot.exact.certificate import bounds, enclose, lower_bound, rounded_down, rounded_up
from gibbsot.exact.methods import optima
from gibbsot.exact.simplex import solve_dense
from gibbsot.sampling.gibbs import sparse_plans
from gibbsot.solvers import masses
from kernels import using
from rational import exact_distances


def values(pair: Problem) -> np.ndarray:
    return np.array([optimum.value for optimum in optima(pair, np.zeros(pair.p.shape))])


@settings(max_examples=20)
@given(problems(), st.sampled_from([1e-6, 1.0, 1e6]), st.integers(0, 100))
def test_every_potential_gives_a_lower_bound(pair, scale, seed):
    U = np.random.default_rng(seed).normal(0, scale, pair.p.shape)
    assert (lower_bound(pair, U) <= values(pair)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_optimal_potentials_give_the_optimum_from_below(kind, dtype):
    pair = batch(kind, dtype=dtype)
    found = optima(pair, np.zeros(pair.p.shape))
    values, U = np.array([optimum.value for optimum in found]), np.stack([optimum.f for optimum in found])
    bound = lower_bound(pair, U)
    assert (bound <= values).all()
    size = np.abs(np.where(pair.p > 0, U, 0)).max() + np.abs(values).max()
    np.testing.assert_allclose(bound, values, atol=100 * np.finfo(dtype).eps * size)


def test_the_bound_is_that_of_the_c_transform_less_rounding():
    pair = batch("dense")
    U = np.random.default_rng(0).random(pair.p.shape)
    L = pair.cost.col_max(np.where(pair.p > 0, U, -np.inf))
    value = dual_value(pair, U, L)
    bound = lower_bound(pair, U)
    assert (bound < value).all()
    largest = np.where(pair.p > 0, np.abs(U), 0).max(axis=1) + np.where(pair.q > 0, np.abs(L), 0).max(axis=1)
    np.testing.assert_allclose((value - bound) / (np.finfo(np.float64).eps * largest), 4, atol=1)  # 2 depth + 2


def test_a_constant_does_not_change_the_bound_and_potentials_without_weight_do_not_count():
    pair = Problem([[0.5, 0.0, 0.5]], [[0.25, 0.75]], DenseCost([[0.0, 1.0], [5.0, 5.0], [2.0, 0.0]]))
    U = np.array([[0.2, 0.0, -0.3]])
    np.testing.assert_allclose(lower_bound(pair, U + 7), lower_bound(pair, U), atol=1e-13)
    U[0, 1] = 1e9
    np.testing.assert_allclose(lower_bound(pair, U), lower_bound(pair, np.array([[0.2, 0.0, -0.3]])))
    U[0, 1] = np.inf
    assert np.isfinite(lower_bound(pair, U)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_plans_are_those_of_the_formula(kind):
    pair = batch(kind)
    rng = np.random.default_rng(0)
    potentials = rng.random(pair.p.shape), rng.random(pair.q.shape)  # those of a chain have ties
    M = pair.cost.matrix()
    for p, q, U, L, plan in zip(pair.p, pair.q, *potentials, sparse_plans(pair, *potentials), strict=True):
        expected = np.zeros(M.shape)
        sums = np.where(q > 0, M + L, np.inf)
        differences = np.where(p[:, None] > 0, U[:, None] - M, -np.inf)
        for i in np.flatnonzero(p):
            expected[i, sums[i].argmin()] += p[i] / 2
        for j in np.flatnonzero(q):
            expected[differences[:, j].argmax(), j] += q[j] / 2
        np.testing.assert_allclose(plan.toarray(), expected, atol=1e-15)
        assert plan.sum() == pytest.approx(1)
        assert np.isfinite(M[plan.nonzero()]).all()


def test_the_plan_of_optimal_potentials_of_a_matching_is_optimal():
    rng = np.random.default_rng(0)
    pair = Problem(np.full((1, 9), 1 / 9), np.full((1, 9), 1 / 9), DenseCost(rng.random((9, 9))))
    optimum = optima(pair, np.zeros((1, 9)))[0]
    plan = sparse_plans(pair, optimum.f[None], -optimum.g[None])[0]
    reduced = pair.cost.matrix() - optimum.f[:, None] - optimum.g
    assert (plan.toarray() * reduced).sum() == pytest.approx(0, abs=1e-12)


def rational_mean(weight: np.ndarray, x: np.ndarray) -> Fraction:
    products = [Fraction(float(w)) * Fraction(float(z)) for w, z in zip(weight, x, strict=True) if w > 0]
    return sum(products, Fraction(0)) / sum(Fraction(float(w)) for w in weight)


@pytest.mark.parametrize("seed", range(200))
def test_bounds_are_those_of_rational_arithmetic_rounded_outwards(seed):
    rng = np.random.default_rng(seed)
    m1, m2, n = rng.integers(1, 40, 3)
    p, q = (10.0 ** rng.uniform(rng.choice([-300, -20, 0]), rng.choice([0, 1, 100]), m) for m in (m1, m2))
    mass = rng.dirichlet(np.full(n, 0.01)) + 1e-320
    scale = 10.0 ** rng.choice([-320, -200, 0, 150])
    f, g, costs = (scale * rng.normal(size=m) * 10.0 ** rng.uniform(-20, 0, m) for m in (m1, m2, n))
    p[0] *= rng.integers(2) if m1 > 1 else 1
    found = bounds(p, q, f, g, mass, costs)
    means = rational_mean(p, f), rational_mean(q, g)
    dual = sum(means)
    primal = sum(Fraction(float(m)) * Fraction(float(c)) for m, c in zip(mass, costs, strict=True))
    size = abs(means[0]) + abs(means[1])
    assert dual - 8 * Fraction(2) ** -52 * size - Fraction(2) ** -1060 <= Fraction(found.lower) <= dual
    absolute = sum(Fraction(float(m)) * abs(Fraction(float(c))) for m, c in zip(mass, costs, strict=True))
    assert primal <= Fraction(found.upper) <= primal + 8 * Fraction(2) ** -52 * absolute + Fraction(2) ** -1060
    assert found.value == pytest.approx(float(primal), rel=1e-15, abs=2.0**-1060)


def test_a_plan_that_uses_a_forbidden_arc_has_an_infinite_upper_bound():
    one = np.ones(1)
    assert bounds(one, one, one, one, one, np.array([np.inf])).upper == np.inf


_CLOUDS = np.random.default_rng(0).random((2, 500, 2))
_MATRIX = np.random.default_rng(0).random((50, 50))
BEYOND = {
    "points": lambda: solve(np.full(500, 1e300), np.full(500, 1e300), PointCost(*(1e100 * _CLOUDS))),
    "all arcs": lambda: solve(np.full(50, 1e300), np.full(50, 1e300), PointCost(*(1e100 * _CLOUDS[:, :50]))),
    "matrix": lambda: solve(np.full(50, 1e20), np.full(50, 1e20), 1e300 * _MATRIX),
    "line": lambda: solve(np.full(500, 1e300), np.full(500, 1e300), PointCost(*(1e100 * _CLOUDS[:, :, 0]))),
    "grid": lambda: solve(
        np.full(900, 1e300), np.r_[2e300, np.full(898, 1e300), 0], GridCost((30, 30), power=3, spacing=1e60)
    ),
    "mass": lambda: solve(np.full(50, 1e306), np.full(50, 1e306), _MATRIX, mass=1e307),
}


@pytest.mark.parametrize("kind", BEYOND)
def test_values_beyond_the_range_are_refused_and_never_nan(kind):
    """A result under NaN bounds would call them valid."""
    with pytest.raises(ValueError, match=r"p, q: a mass of .* is beyond the range of doubles; expected smaller"):
        BEYOND[kind]()


def test_the_largest_values_have_bounds():
    result = solve(np.full(50, 1e300), np.full(50, 1e300), _MATRIX, penalty=1e100)
    assert result.status == "optimal"
    assert 0 < result.lower_bound <= result.value <= result.upper_bound < np.inf


def numbers(rng: np.random.Generator, n: int) -> np.ndarray:
    """Numbers of many sizes, some of them zero, and some that cancel."""
    x = rng.normal(size=n) * 10.0 ** rng.uniform(*rng.choice([[0, 1], [-20, 20], [-320, -280], [-300, 300]]), n)
    x[rng.random(n) < 0.1] = 0
    half = n // 2
    x[:half] = np.where(rng.random(half) < 0.5, -x[n - half :], x[:half])
    return x


@pytest.mark.parametrize("kernel", native.available())
@pytest.mark.parametrize("n", [1, 7, 32, 300, 2000])
def test_sums_are_enclosed(kernel, n):
    """Of products and of numbers, by kernels and without them, to within twice the digits."""
    rng = np.random.default_rng(n)
    with using(kernel):
        for _ in range(20):
            x, y = numbers(rng, n), numbers(rng, n)
            for found, terms in (
                (enclose(x, y), [Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]),
                (enclose(x), list(map(Fraction, x.tolist()))),
            ):
                size = sum(map(abs, terms))
                assert abs(found.value - sum(terms)) <= found.error
                largest = max(Fraction(abs(x).max()), 1) * max(Fraction(abs(y).max()), 1)
                assert found.error <= Fraction(2) ** -88 * size + n * Fraction(2) ** -1060 * largest
                assert found.error == 0 or size > 0


@pytest.mark.skipif(native.name() == "numpy", reason="needs the compiled kernels")
def test_bounds_for_given_masses_are_rounded_outwards_once():
    """The nearest doubles outside, as the errors of sums of doubles of one size are doubles."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        weights = rng.random((3, rng.integers(1, 40)))
        lower, upper = np.sort(rng.normal(size=(2, 3)), axis=0)
        both = np.array([lower, upper])
        assert backend().scale_bounds(weights, both)
        for w, a, b, low, high in zip(weights, lower, upper, *both, strict=True):
            total = sum(map(Fraction, w.tolist()))
            assert (low, high) == (rounded_down(total * Fraction(a)), rounded_up(total * Fraction(b)))


@pytest.mark.parametrize("seed", range(60))
def test_bounds_for_masses_of_any_size_are_outside(seed):
    rng = np.random.default_rng(seed)
    w = 10.0 ** rng.uniform(-300, rng.choice([-290, 0, 200]), (1, rng.integers(1, 40)))
    pair = Problem.checked(w, w, DenseCost(np.zeros((w.shape[1],) * 2)), w.sum(axis=1))
    lower, upper = np.sort(rng.normal(size=2) * 10.0 ** rng.uniform(-300, 100))

    one = SimpleNamespace(lower=float(lower), upper=float(upper))
    total, (low, high) = sum(map(Fraction, w[0].tolist())), masses.bounds(pair, [one])
    least = Fraction(pair.cost.least())
    assert Fraction(low[0]) <= total * max(Fraction(one.lower), least)
    assert Fraction(high[0]) >= total * Fraction(one.upper)
    assert low[0] == pytest.approx(float(total * max(Fraction(one.lower), least)), rel=1e-15, abs=1e-320)
    assert high[0] == pytest.approx(float(total * Fraction(one.upper)), rel=1e-15, abs=1e-320)


@pytest.mark.skipif(native.name() == "numpy", reason="needs the compiled kernels")
@pytest.mark.parametrize("decades", [0, 3, 30])
def test_masses_are_rounded_once(decades):
    """Each is within 1.02 * 2^-53 of the exact flow, relative to itself, as `share` says."""
    rng = np.random.default_rng(decades)
    for _ in range(100):
        p, q = (10.0 ** rng.uniform(-decades, 0, m) + rng.random(m) * (decades == 0) for m in (7, 5))
        found = solve_dense(rng.random((7, 5)), p, q)
        i, j, mass = found.arcs()
        a, b = (list(map(Fraction, x.tolist())) for x in (p, q))
        left = [[x / sum(a) for x in a], [x / sum(b) for x in b]]
        arcs = list(zip(i.tolist(), j.tolist(), mass.tolist(), strict=True))
        while arcs:  # a leaf of the forest has all of the mass of its point
            ends = [[arc[side] for arc in arcs] for side in (0, 1)]
            arc, side = next((x, side) for x in arcs for side in (0, 1) if ends[side].count(x[side]) == 1)
            exact = left[side][arc[side]]
            assert abs(Fraction(arc[2]) / exact - 1) <= Fraction(1.02) * Fraction(2) ** -53
            left[1 - side][arc[1 - side]] -= exact
            arcs.remove(arc)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize(("metric", "power"), [("sqeuclidean", 2), ("euclidean", 1)])
def test_costs_of_points_are_as_accurate_as_they_say(d, metric, power):
    rng = np.random.default_rng(d)
    X, Y = rng.random((2, 60, d))
    cost, exact = PointCost(X, Y, metric), exact_distances(X, Y, power)
    i, j = np.indices(cost.shape).reshape(2, -1)
    for found in (cost.matrix().ravel(), cost.at(i, j)):
        off = [
            abs(Fraction(x) - exact.at(a, b)) - exact.error * exact.at(a, b) - Fraction(cost.accuracy()) * Fraction(x)
            for x, a, b in zip(found.tolist(), i.tolist(), j.tolist(), strict=True)
        ]
        assert max(off) <= 0
