"""Optima are proved at every scale of the data: outliers, sentinels, blocks, nearly equal measures."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from gibbsot import DenseCost, GridCost, PointCost, compat, solve, solve_batch
from gibbsot.core import native
from gibbsot.exact import all_arcs, far_costs
from gibbsot.exact import coarse_to_fine as multiscale
from gibbsot.exact.certificate import OPTIMAL_GAP, exact_sum, relative_gap, status
from gibbsot.exact.simplex import solve_dense
from rational import exact_distances, exact_grid, exact_matrix, optimum

pytestmark = pytest.mark.skipif(native.name() == "numpy", reason="needs the exact engine's kernels")


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def assignment(C: np.ndarray) -> float:
    """The cost of an optimal assignment; costs should be of one scale."""
    i, j = linear_sum_assignment(C)
    return float(C[i, j].sum())


def clouds(n: int, d: int = 2, off: float = 0.0, outliers: int = 3, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    X, Y = np.random.default_rng(seed).random((2, n, d))
    X[:outliers] += off
    Y[:outliers] += off
    return X, Y


def apart(X: np.ndarray, Y: np.ndarray, metric: str = "sqeuclidean", outliers: int = 3) -> float:
    """The optimum where outliers are matched with outliers: both parts have one scale."""
    parts = slice(None, outliers), slice(outliers, None)
    return sum(assignment(cdist(X[part], Y[part], metric)) for part in parts) / len(X)


def check(result, truth: float | Fraction) -> None:
    """The result is optimal, its value is the truth, and its bounds contain it."""
    assert result.status == "optimal"
    assert result.gap <= OPTIMAL_GAP
    assert result.value == pytest.approx(float(truth), rel=1e-13)
    slack = 4 * np.finfo(float).eps * abs(float(truth))  # of the reference
    assert result.lower_bound <= float(truth) + slack
    assert result.upper_bound >= float(truth) - slack


@pytest.mark.parametrize("off", [1e3, 1e5, 1e6, 1e9])
@pytest.mark.parametrize("seed", [1, 2])
def test_outliers_of_points_and_of_their_matrix(off, seed):
    X, Y = clouds(500, off=off, seed=seed)
    truth = apart(X, Y)
    check(solve(None, None, PointCost(X, Y)), truth)
    check(solve(None, None, cdist(X, Y, "sqeuclidean")), truth)


@pytest.mark.parametrize("off", [1e4, 1e5, 1e7])
def test_outliers_of_many_points(off):
    X, Y = clouds(2000, off=off)
    check(solve(None, None, PointCost(X, Y)), apart(X, Y))


def test_outliers_in_space_and_of_plain_distances():
    X, Y = clouds(500, 3, 1e6)
    check(solve(None, None, PointCost(X, Y)), apart(X, Y))
    X, Y = clouds(500, 2, 1e12)
    check(solve(None, None, PointCost(X, Y, "euclidean")), apart(X, Y, "euclidean"))


def test_sentinels_for_missing_values():
    X, Y = clouds(1000, outliers=0)
    X[:5] = Y[:5] = -999999
    truth = apart(X, Y, outliers=5)
    check(solve(None, None, PointCost(X, Y)), truth)
    rough = solve(None, None, PointCost(X, Y), gap=1e-3)
    assert rough.gap <= 1e-3
    assert rough.value <= truth * (1 + 1e-3)


def test_an_outlier_of_tiny_weight():
    X, Y = clouds(1000, outliers=0)
    X[0], Y[0] = [1e6, 1e6], [1e6, 1e6 + 1]
    p = np.append(1e-9, np.full(999, 1.0))
    truth = (assignment(cdist(X[1:], Y[1:], "sqeuclidean")) + 1e-9) / p.sum()
    check(solve(p, p, PointCost(X, Y), normalize=True), truth)


@pytest.mark.parametrize("far", [1e12, 1e15, 1e32])
def test_blocks_of_a_matrix_with_large_costs_between(far):
    n, half = 300, 150
    C = np.random.default_rng(0).random((n, n))
    truth = (assignment(C[:half, :half]) + assignment(C[half:, half:])) / n
    C[:half, half:] = C[half:, :half] = far
    check(solve(None, None, C), truth)


def test_costs_that_stand_for_forbidden_pairs():
    """So few pairs are allowed that the tree of the plan has forbidden ones: the lower bound was 0."""
    rng = np.random.default_rng(0)
    C = rng.random((200, 200))
    C[rng.random(C.shape) < 0.98] = 1e32
    C[np.arange(200), rng.permutation(200)] = rng.random(200)
    check(solve(None, None, C), assignment(np.where(C > 1, 1e3, C)) / 200)


@pytest.mark.parametrize("step", [1e4, 1e6])
def test_grids_with_different_spacings(step):
    """All mass stays in its column, as the next one is far away: a problem on the line for each."""
    rng = np.random.default_rng(0)
    p = rng.integers(0, 4, (30, 30))
    q = rng.permuted(p, axis=0)
    ends = [(np.repeat(np.arange(30), a), np.repeat(np.arange(30), b)) for a, b in zip(p.T, q.T, strict=True)]
    truth = Fraction(sum(int((np.abs(x - y) ** 3).sum()) for x, y in ends), int(p.sum()))
    check(solve(p, q, GridCost((30, 30), power=3, spacing=(1, step)), normalize=True), truth)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("n", [100, 500])
def test_nearly_equal_clouds(metric, n):
    rng = np.random.default_rng(0)
    X = rng.random((n, 2))
    Y = X + 1e-8 * rng.normal(size=X.shape)
    check(solve(None, None, PointCost(X, Y, metric)), assignment(cdist(X, Y, metric)) / n)


def test_coordinates_far_from_zero():
    rng = np.random.default_rng(0)
    X = rng.random((1000, 2)) * 1e3 + [5e5, 5e6]
    Y = X + 1e-4 * rng.normal(size=X.shape)
    check(solve(None, None, PointCost(X, Y)), assignment(cdist(X, Y, "sqeuclidean")) / 1000)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_nearly_equal_points_on_the_line(metric):
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(1000))
    y = np.sort(x + 1e-8 * rng.normal(size=1000))
    truth = sum(abs(Fraction(a) - Fraction(b)) ** (2 if metric[0] == "s" else 1) for a, b in zip(x, y, strict=True))
    check(solve(None, None, PointCost(x, y, metric)), truth / 1000)


def test_the_pyramid_solves_for_the_weights_given():
    p = np.full((40, 40), 2.0**-10)
    q = p.copy()
    q[0, 0] -= 2.0**-50
    q[-1, -1] += 2.0**-50
    result = solve(p, q, GridCost((40, 40), power=1, spacing=1.0))
    W = Fraction(78, 2**50)
    assert Fraction(result.lower_bound) <= W <= Fraction(result.upper_bound)
    check(result, W)


def test_squares_that_vanish_are_inside_the_bounds():
    cost = PointCost([[0, 0], [1.0, 1]], [[1e-165, 0], [1, 1]], "euclidean")
    with pytest.warns(UserWarning, match="open gap"):
        result = solve(None, None, cost)
    assert result.lower_bound <= 5e-166 <= result.upper_bound
    assert result.status == "gap open"


@pytest.mark.parametrize(
    ("seed", "n", "d"), [(230, 1, 4), (450, 1, 4), (801, 1, 3), (1076, 2, 3), (2488, 2, 3), (0, 4, 2), (1, 4, 2)]
)
def test_distances_on_all_arcs_are_those_of_the_points(seed, n, d):
    """Those of up to two points have a distance whose rounding was more than the bounds allowed for."""
    rng = np.random.default_rng(seed)
    X, Y = rng.random((2, n, d)) if n == 1 or seed % 2 else rng.integers(0, 9, (2, n, d)) * 0.1
    W = optimum(np.ones(n), np.ones(n), exact_distances(X, Y, 2)).low
    result = solve(None, None, PointCost(X, Y))
    assert Fraction(result.lower_bound) <= W <= Fraction(result.upper_bound)
    assert result.status == "optimal"


@pytest.mark.parametrize("seed", [1, 4, 9, 10, 11, 15, 17, 19, 0, 2])
def test_axes_with_negative_entries(seed):
    """The least cost was above the exact one, but for the last two seeds."""
    rng = np.random.default_rng(seed)
    axes = rng.normal(size=(3, 3)) * 10.0 ** rng.integers(-3, 16), rng.normal(size=(2, 2))
    cost = GridCost(matrices=axes)
    exact = exact_grid(axes)
    assert Fraction(cost.least()) <= min(exact.at(i, j) for i in range(6) for j in range(6))
    p, q = rng.integers(1, 9, (2, 6)).astype(float)
    W = optimum(p, q, exact).low
    result = solve(p, q, cost, normalize=True)
    assert Fraction(result.lower_bound) <= W <= Fraction(result.upper_bound)
    assert result.status == "optimal"


@pytest.mark.parametrize("n", [10, 600])
def test_a_cost_beyond_the_range_of_doubles_is_refused(n):
    X, Y = np.random.default_rng(0).random((2, n, 2))
    p = np.full(n, 1e300 / n)
    with pytest.raises(ValueError, match="p, q: a mass of 1e\\+300"):
        solve(p, p, PointCost(1e100 * X, 1e100 * Y))
    assert solve(p, p, PointCost(X, Y)).status == "optimal"


def test_plans_have_no_dust():
    a, b = np.full(7, 1 / 7), np.array([3, 4, 1, 1, 4, 1]) / 14
    plan = compat.emd(a, b, np.random.default_rng(0).random((7, 6)))
    assert plan[plan > 0].min() > 1e-3
    np.testing.assert_allclose(plan.sum(axis=1), a, rtol=1e-15)
    np.testing.assert_allclose(plan.sum(axis=0), b, rtol=1e-15)
    # a mass of that size that matters stays
    plan = solve([1.0, 1e-16], [1.0], [[0.0], [1e16]], normalize=True).plan
    assert plan.nnz == 2


def consistent(result, gap: float = 0.0) -> None:
    """No status contradicts the numbers."""
    assert not np.isnan([result.value, result.lower_bound, result.upper_bound, result.gap]).any()
    assert result.lower_bound <= result.upper_bound
    assert result.value <= result.upper_bound
    scale = result.problem.mass.item(0) * result.solutions[0].scale
    assert result.gap == relative_gap(result.lower_bound, result.upper_bound, scale)
    assert (result.status == "optimal") == (result.gap <= OPTIMAL_GAP)
    assert (result.status == "gap reached") == (OPTIMAL_GAP < result.gap <= gap)
    assert (result.reason == "") == (result.status in ("optimal", "gap reached"))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("gap", [None, 1e-3])
def test_no_status_contradicts_its_numbers(seed, gap):
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    C = 10.0 ** rng.uniform(-20, 20, (6, 5)) * rng.choice([-1, 1, 1], (6, 5))
    p, q = (10.0 ** rng.uniform(-30, 0, m) for m in (6, 5))
    result, W = solve(p, q, C, normalize=True, gap=gap), optimum(p, q, exact_matrix(C)).low
    consistent(result, gap or 0.0)
    assert Fraction(result.lower_bound) <= W <= Fraction(result.upper_bound)
    sizes = rng.integers(1, 700, 2)
    X, Y = (10.0 ** rng.uniform(-3, 9) * rng.random((m, 2)) for m in sizes)
    for metric in ("sqeuclidean", "euclidean"):
        consistent(solve(None, None, PointCost(X, Y, metric), gap=gap), gap or 0.0)
    consistent(solve(None, None, PointCost(X[:, 0], Y[:, 0])), 0.0)
    grid = GridCost((6, 5, 4), power=rng.choice([1, 2, 3]), spacing=tuple(10.0 ** rng.uniform(-4, 4, 3)))
    P, Q = rng.random((2, 120)) * (rng.random((2, 120)) < 0.5) + 1e-9
    consistent(solve(P, Q, grid, normalize=True, gap=gap), gap or 0.0)
    early = solve(None, None, PointCost(X, Y), max_seconds=1e-6)
    consistent(early)
    assert early.status in ("optimal", "budget spent")


def test_a_batch_has_the_statuses_of_its_problems():
    C = np.random.default_rng(0).random((5, 5))
    C[0] = 1e15
    P = np.random.default_rng(1).random((20, 5))
    batch = solve_batch(P, P[::-1], DenseCost(C), normalize=True)
    assert batch.status == [solve(a, b, C, normalize=True).status for a, b in zip(P, P[::-1], strict=True)]
    for one in batch:
        consistent(one)


def test_uniform_weights_have_mass_one():
    """The sum of 500 doubles 1 / 500 is more, and a value times that was above the upper bound."""
    X, Y = clouds(500)
    consistent(solve(None, None, cdist(X, Y, "sqeuclidean")))


@pytest.mark.parametrize("kind", ["matrix", "points", "many points", "grid", "forbidden", "negative"])
def test_a_gap_that_is_reached_before_the_time_is_spent(kind):
    """Whether the time was spent as well says nothing of the proof."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X, Y = rng.random((2, 2500 if kind == "many points" else 300, 2))
    cost = PointCost(X, Y) if "points" in kind else DenseCost(1 + rng.random((300, 300)))
    if kind == "grid":
        cost = GridCost((30, 30), power=3)
    elif kind == "forbidden":
        cost = DenseCost(np.where(rng.random((300, 300)) < 0.02, np.inf, 1 + rng.random((300, 300))))
    elif kind == "negative":
        cost = DenseCost(rng.normal(size=(300, 300)))
    p, q = (np.ones(size) if kind == "forbidden" else rng.random(size) + 0.1 for size in cost.shape)
    early = solve(p, q, cost, normalize=True, max_seconds=1e-9)
    consistent(early)
    assert early.status == "budget spent"
    for gap in (early.gap, 1.01 * early.gap):
        again = solve(p, q, cost, normalize=True, gap=gap, max_seconds=1e-9)
        consistent(again, gap)
        assert again.status == "gap reached"


def test_the_rule():
    assert status(0.0, 0.0, 0.0) == "optimal"
    assert status(-1e-10, 0.0, 1.0) == "optimal"
    assert status(-1.1e-10, 0.0, 1.0) == "gap open"
    assert status(0.0, np.inf, np.inf, gap=0.5) == "gap open"
    assert status(0.0, 0.5, 1.0, gap=0.5) == "gap reached"
    assert status(0.0, 0.6, 1.0, gap=0.5, spent=True) == "budget spent"


@pytest.mark.parametrize("n", [100, 500, 2000])
@pytest.mark.parametrize("off", [1e5, 1e9])
def test_clusters_with_their_own_balance_need_no_more_digits(n, off, monkeypatch):
    """They are as fast as one cluster: costs that no plan pays are lowered, and double precision is enough."""

    def never(*_args, **_options):
        pytest.fail("twice the digits")

    monkeypatch.setattr(all_arcs, "refined", never)
    monkeypatch.setattr(multiscale, "refined", never)
    X, Y = clouds(n, off=off)
    truth = assignment(cdist(X[:3], Y[:3], "sqeuclidean")) + assignment(cdist(X[3:], Y[3:], "sqeuclidean"))
    check(solve(None, None, PointCost(X, Y)), truth / n)
    if n == 100:
        check(solve(None, None, cdist(X, Y, "sqeuclidean")), truth / n)


@pytest.mark.parametrize("far", [1e12, np.inf])
def test_costs_that_are_lowered_in_vain(far):
    """A control: a plan that must pay large costs, and one that avoids forbidden pairs on the way to others."""
    rng = np.random.default_rng(3)
    C = rng.random((12, 12)) * 1e-3
    C[:6, 6:] = far
    C[6:, :6] = 1e6
    p, q = np.ones(12), np.ones(12)
    p[7], q[2] = 2.0, 2.0
    W = optimum(p, q, exact_matrix(C))
    assert W is not None
    found = solve(p, q, C, normalize=True)
    assert Fraction(found.lower_bound) <= W.high
    assert Fraction(found.upper_bound) >= W.low
    assert found.status == "optimal"


def test_lowered_costs_are_used_only_where_no_plan_pays_them():
    C = np.array([[1.0, 1e32], [1e32, 3.0]])
    ones = np.ones(2)
    again = far_costs.solve_capped(solve_dense(C, ones, ones))
    assert again is not None
    assert np.abs(again.f).max() < 1e4
    assert far_costs.solve_capped(solve_dense(C, np.array([2.0, 1.0]), np.array([1.0, 2.0]))) is None
    assert far_costs.solve_capped(solve_dense(np.minimum(C, 1e3), ones, ones)) is None


def test_grids_are_cooled_by_their_cheapest_axis():
    assert GridCost((4, 4), spacing=(1, 1e3)).evenness() == pytest.approx(1e-6)
    assert GridCost((4, 1), spacing=(1, 1e3)).evenness() == 1


def test_exact_sums_have_no_error_that_is_relative_to_them():
    """1e100 less what is left of it: the sum is 0.1 and exact."""
    x = np.array([1e100, -1e100, 0.1])
    found = exact_sum((x, np.ones(3)), (np.array([1e100]), np.array([1.0])))
    assert (found.value, found.error) == (Fraction(0.1) + Fraction(1e100), 0)


@pytest.mark.parametrize("n", [3, 49, 98])
def test_whole_weights_have_whole_plans(n):
    """Of n points of weight 1 all go to one partner, though n * (1 / n) may be less than one."""
    rng = np.random.default_rng(n)
    ones, M = np.ones(n), rng.random((n, n))
    rows, columns = linear_sum_assignment(M)
    for found in (solve(ones, ones, M), solve_batch([ones], [ones], M)[0]):
        expected = np.zeros((n, n))
        expected[rows, columns] = 1
        np.testing.assert_array_equal(found.plan.toarray(), expected)
    counts = rng.permutation(np.r_[np.full(n - 1, 2.0), n + 2])
    plan = solve(3 * ones, counts, M).plan
    assert set(plan.data) <= set(range(1, n + 3))
    np.testing.assert_array_equal(plan.sum(axis=0), counts)
