"""The line: the monotone plan is proved by its cost, and its plan and potentials follow."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from gibbsot import GridCost, PointCost, Problem, solve, solve_batch
from gibbsot.core.backend import backend
from gibbsot.exact import line
from gibbsot.exact.certificate import bounds
from gibbsot.exact.line import LineSolution, by_path, solve_line
from gibbsot.exact.methods import choose

NATIVE = pytest.mark.skipif(not backend().has_simplex, reason="needs compiled kernels")


def exact_cost(x, y, p, q, power):
    """Return the cost of the monotone plan in rational arithmetic."""
    a, b = (sorted(zip(map(Fraction, z), map(Fraction, w), strict=True)) for z, w in ((x, p), (y, q)))
    P, Q = sum(w for _, w in a), sum(w for _, w in b)
    a, b = [[z, w * Q] for z, w in a], [[z, w * P] for z, w in b]
    total, i, j = Fraction(0), 0, 0
    while i < len(a) and j < len(b):
        flow = min(a[i][1], b[j][1])
        total += flow * abs(a[i][0] - b[j][0]) ** power
        a[i][1] -= flow
        b[j][1] -= flow
        i, j = i + (a[i][1] == 0), j + (b[j][1] == 0)
    return total / (P * Q)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2]), st.booleans(), st.sampled_from([1.0, 1e-80, 1e80]))
def test_bounds_enclose_the_exact_cost(seed, power, weighted, scale):
    rng = np.random.default_rng(seed)
    m1, m2 = rng.integers(1, 30, 2)
    x, y = scale * rng.normal(size=m1), scale * rng.normal(size=m2)
    p, q = (rng.random(m1) ** 8 + 1e-9, rng.random(m2)) if weighted else (np.ones(m1), np.ones(m2))
    if weighted and m1 > 1:
        p[0] = 0
    found, W = solve_line(x, y, p, q, power), exact_cost(x.tolist(), y.tolist(), p.tolist(), q.tolist(), power)
    assert Fraction(found.lower) <= W <= Fraction(found.upper)
    assert found.status == "optimal"
    assert found.upper - found.lower <= 1e-13 * found.upper
    assert found.plan.sum() == pytest.approx(1, rel=1e-13)


@pytest.mark.parametrize("size", [13, 199, 250, pytest.param(3500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(
    "kind", ["normal", "heavy tails", "ties", "a narrow interval", "two scales", "nearly equal", "one far"]
)
def test_many_points_of_every_distribution(kind, power, size):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, size))
    p, q = rng.random((2, size)) ** 4
    p[:5] = 0
    if kind == "heavy tails":
        x, y = np.sinh(15 * x), np.sinh(15 * y)
    elif kind == "ties":
        x, y = np.round(3 * x), np.round(3 * y)
    elif kind == "a narrow interval":
        x, y = 1e6 + 1e-9 * x, 1e6 + 1e-9 * y
    elif kind == "two scales":
        x[::2] *= 1e-30
        p[::3] *= 1e-25
    elif kind == "nearly equal":
        y, q = np.nextafter(x, 9), p.copy()
        q[7] *= 1 + 1e-9
    elif kind == "one far":  # nearly all share their leading bits
        x, y = 1 + 1e-12 * x, 1 + 1e-12 * y
        x[0] = y[0] = -1e300
        p[0] = q[0] = 0
    W = exact_cost(x.tolist(), y.tolist(), p.tolist(), q.tolist(), power)
    for solver in (solve_line, by_path):
        found = solver(x, y, p, q, power)
        assert Fraction(found.lower) <= W <= Fraction(found.upper)
        assert found.status == "optimal"
        # cumulative weights with twice the digits may change 1e-12 of a value far below the largest cost
        assert found.upper - found.lower <= (3e-12 if kind == "nearly equal" else 1e-13) * found.upper


@pytest.mark.parametrize("power", [1, 2])
def test_points_without_weight_do_not_touch_the_potentials_of_others(power):
    """However far they are: the potentials prove the value, whose terms are 1e300 times smaller."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 20))
    p, q = rng.random((2, 20))
    x[0], y[0], y[1] = -1e300, -1e300, 1e300
    p[0] = q[:2] = 0
    found = solve_line(x, y, p, q, power)
    near, other = slice(1, None), slice(2, None)
    assert (np.abs(x[near, None] - y[other]) ** power - found.f[near, None] - found.g[other]).min() >= 0
    assert bounds(p, q, found.f, found.g, np.ones(1), np.ones(1)).lower == pytest.approx(found.value, rel=1e-12)


@NATIVE
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 1.5, 2.0, 3.0]))
def test_both_proofs_agree(seed, power):
    """The sum of the kernel, that of the path, and the potentials along it."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=rng.integers(1, 50)), rng.normal(size=rng.integers(1, 50))
    p, q = rng.random(len(x)), rng.random(len(y))
    at_once, path = solve_line(x, y, p, q, power), by_path(x, y, p, q, power)
    assert isinstance(at_once, LineSolution)
    assert at_once.value == pytest.approx(path.value, rel=1e-13)
    assert max(at_once.lower, path.lower) <= min(at_once.upper, path.upper)
    dual = bounds(p, q, path.f, path.g, np.ones(1), np.ones(1)).lower
    assert dual <= path.upper
    assert dual == pytest.approx(path.value, rel=1e-11)
    np.testing.assert_array_equal(at_once.f, path.f)
    np.testing.assert_array_equal(at_once.g, path.g)
    np.testing.assert_array_equal(at_once.plan.toarray(), path.plan.toarray())


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "chebyshev", "sqeuclidean"])
@pytest.mark.parametrize(("m1", "m2"), [(1, 1), (1, 7), (100, 100), (70, 300), (600, 600)])
def test_samples_agree_with_scipy_and_pot(metric, m1, m2):
    rng = np.random.default_rng(m1)
    x, y = rng.normal(size=m1), rng.normal(size=m2)
    found = solve(None, None, PointCost(x, y, metric))
    expected = ot.emd2_1d(x, y) if metric == "sqeuclidean" else wasserstein_distance(x, y)
    assert found.value == pytest.approx(expected, rel=1e-12)
    assert found.status == "optimal"
    assert found.lower_bound <= found.value <= found.upper_bound
    np.testing.assert_allclose(found.marginals[0], 1 / m1, rtol=1e-12)
    f, g = found.potentials
    assert f.mean() + g.mean() == pytest.approx(expected, rel=1e-11)
    assert (found.problem.cost.matrix() - f[:, None] - g).min() > -1e-13
    weighted = solve(np.ones(m1) * m2, np.ones(m2) * m1, PointCost(x, y, metric))
    assert weighted.value == pytest.approx(expected * m1 * m2, rel=1e-12)
    assert solve(None, None, PointCost(x, x, metric)).upper_bound == 0


@pytest.mark.parametrize("scale", [1e-160, 1e-140, 1e150])
def test_numbers_out_of_the_ordinary_are_looked_at(scale):
    """Squares that nearly vanish or overflow: the bounds hold, whatever proves them."""
    x, y = scale * np.array([0.0, 1.0, 3.0]), scale * np.array([0.5, 1.0])
    if scale == 1e-160:
        with pytest.raises(ValueError, match="X, Y: the largest cost is"):
            PointCost(x, y)
        return
    found = solve(None, None, PointCost(x, y))
    W = exact_cost(x.tolist(), y.tolist(), [1.0] * 3, [1.0] * 2, 2)
    assert Fraction(found.lower_bound) <= W <= Fraction(found.upper_bound)


@pytest.mark.parametrize(("metric", "size"), [("sqeuclidean", 1e160), ("euclidean", 1e300), ("cityblock", 1e303)])
def test_samples_whose_distances_overflow_are_refused(metric, size):
    """As in more dimensions: squares are computed, also for the plain distance."""
    for x in (np.array([0.0, size]), size * np.eye(2)):
        with pytest.raises(ValueError, match=r"X, Y: the largest cost is .*, beyond the range of float64"):
            PointCost(x, x, metric)


def test_a_warm_start_from_a_line():
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 50))
    before = solve(None, None, PointCost(x, y))
    again = solve(rng.dirichlet(np.ones(50)), None, PointCost(x, y), warm_start=before)
    assert again.status == "optimal"
    gibbs = solve(None, None, PointCost(x, y), method="gibbs", warm_start=before)
    assert gibbs.lower_bound <= before.upper_bound


def test_which_problems_are_on_the_line():
    """With kernels and without."""
    x = np.arange(10.0)
    for cost, name in (
        (PointCost(x), "line"),
        (PointCost(np.c_[x, x]), "all arcs"),
        (GridCost(10), "all arcs"),  # where warm starts pay
        (GridCost(200), "line"),
    ):
        expected = name if name == "line" or backend().has_simplex else "crossover"
        ones = np.ones(cost.shape[0])
        assert choose(Problem(ones, ones, cost))[0].name == expected


def test_many_measures_on_common_points():
    rng = np.random.default_rng(0)
    x, y = rng.random(30), rng.random(40)
    P, Q = rng.dirichlet(np.ones(30), 5), rng.dirichlet(np.ones(40), 5)
    for n_jobs in (1, 2):
        found = solve_batch(P, Q, PointCost(x, y, "euclidean"), n_jobs=n_jobs)
        assert found.value == pytest.approx([wasserstein_distance(x, y, p, q) for p, q in zip(P, Q, strict=True)])
        for p, q, plan, f, g, value in zip(P, Q, found.plan, *found.potentials, found.value, strict=True):
            np.testing.assert_allclose(plan.sum(axis=1), p, rtol=1e-12)
            assert p @ f + q @ g == pytest.approx(value, rel=1e-11)


def test_many_measures_on_a_grid():
    rng = np.random.default_rng(0)
    x, (P, Q) = np.arange(200) / 200, rng.dirichlet(np.ones(200), (2, 3))
    found = solve_batch(P, Q, GridCost(200, power=1), normalize=True)
    assert found.status == ["optimal"] * 3
    for p, q, value in zip(P, Q, found.value, strict=True):
        assert value == pytest.approx(wasserstein_distance(x, x, p, q), rel=1e-12)


@NATIVE
def test_kernel_arguments_are_checked():
    x, none = np.ones(3), np.empty(0)
    for arguments in ((none, x, none, none), (x, x, np.ones(2), none), (x, x, none, np.ones(4))):
        with pytest.raises(ValueError, match="expected"):
            backend().bound_line(*arguments, 1.0, 0.0)
    with pytest.raises(ValueError, match="power: expected at least 1"):
        backend().bound_line(x, x, none, none, 0.5, 0.0)
    assert line.line_accuracy(2.0) == 5 * 2.0**-52
