"""Bounds and statuses of masses, penalties, budgets, barycenters and coordinates, at scales where they were wrong."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning

import fuzz
from gibbsot import (
    DenseCost,
    PointCost,
    WassersteinBarycenter,
    WassersteinNeighbors,
    compat,
    distances,
    mixture_coordinates,
    solve,
)
from gibbsot.core import native
from gibbsot.exact.annealed import crossover
from gibbsot.exact.certificate import NO_PLAN, exact_sum
from gibbsot.io.budget import Budget
from gibbsot.solvers.relaxed import _parts
from rational import exact_distances, exact_matrix, free_optimum, optimum, partial_optimum, transport

needs_kernels = pytest.mark.skipif(native.name() == "numpy", reason="needs the compiled kernels")


@pytest.mark.parametrize("total", [100.0, 1e16])
def test_a_small_mass_of_a_large_one(total):
    """The mass left over, total - 0.1, is not a double: it was rounded, and the bounds excluded W."""
    result = solve([total], [total], [[1.0]], mass=0.1)
    assert result.lower_bound <= 0.1 <= result.upper_bound
    assert result.status == "optimal"
    assert result.transported == pytest.approx(0.1, rel=1e-15)


@pytest.mark.parametrize("more", [5e-10, 1e-13])
def test_the_mass_is_one_where_measures_are_normalised(more):
    """Sums that are nearly one were taken for the mass: the bounds were 5e-10 above W."""
    for result in (solve([0.5, 0.5 + more], [1.0], [[1.0], [1.0]], normalize=True), solve(None, None, np.ones((3, 7)))):
        assert result.lower_bound <= 1 <= result.upper_bound
    summed = solve([0.5, 0.5 + more], [1.0 + more], [[1.0], [1.0]])
    assert Fraction(summed.lower_bound) <= Fraction(0.5) + Fraction(0.5 + more) <= Fraction(summed.upper_bound)


def test_parts_add_up_exactly():
    for plus, minus in (([1e16, 0.5], [0.1]), ([0.1] * 10, [0.3]), ([1e300, 1e-300], [1.0]), ([1.0], [1.0])):
        parts = _parts(plus, minus)
        assert all(x > 0 for x in parts)
        assert sum(map(Fraction, parts)) == sum(map(Fraction, plus)) - sum(map(Fraction, minus))


@needs_kernels
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a few bits close no gap
def test_a_value_below_the_normal_numbers():
    """Potentials of 1e-280 and weights of 1e-31: the last product is rounded to a few bits."""
    rng = np.random.default_rng(0)
    for M, tiny in zip(1e-280 * rng.random((100, 2, 2)), 1e-31 * rng.random((100, 2)), strict=True):
        M[0, 0] = 0
        p, q = np.array([1.0, tiny[0]]), np.array([1.0, tiny[1]])
        result, W = solve(p, q, M, normalize=True), optimum(p, q, exact_matrix(M))
        assert W is not None
        assert Fraction(result.lower_bound) <= W.low <= Fraction(result.upper_bound)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # nothing is left of the light measure
def test_a_measure_that_vanishes_beside_the_other():
    """A share of 1e-400 is not a double: its cost was left out of the lower bound."""
    total = exact_sum((np.array([1e300, 1e-99]), np.array([0.0, -3.0])))
    assert total.lower <= -2e-99 <= total.upper
    p, q, M = np.array([1e-99]), np.array([3e299, 2e299]), np.array([[-31.5, 27.0]])
    W = partial_optimum(p, q, exact_matrix(M), 0.0, None)
    assert W is not None
    result = solve(p, q, M, penalty=0.0)
    assert Fraction(result.lower_bound) <= W.low <= Fraction(result.upper_bound)


def test_a_large_penalty_with_sums_that_differ_in_the_last_bit():
    """The difference costs 1e15 per unit: it is 20 % of W."""
    p, q, M = np.full(10, 0.1), np.array([0.25, 0.75]), np.arange(20.0).reshape(10, 2)
    W = partial_optimum(p, q, exact_matrix(M), 1e15, None)
    assert W is not None
    result = solve(p, q, M, penalty=1e15)
    assert Fraction(result.lower_bound) <= W.low <= Fraction(result.upper_bound)
    assert result.status == "optimal"


@needs_kernels
@pytest.mark.parametrize("penalty", [1e9, 1e12])
def test_a_large_penalty_between_clouds(penalty):
    """500 points: nothing is left over, so W is that without a penalty."""
    X, Y = np.random.default_rng(1).random((2, 500, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result, balanced = solve(None, None, PointCost(X, Y), penalty=penalty), solve(None, None, PointCost(X, Y))
    assert result.status == "optimal"
    assert result.gap <= 1e-10
    assert result.value == pytest.approx(balanced.value, rel=1e-9)


@needs_kernels
def test_no_time_and_a_given_mass():
    """A spent budget gives a plan of the mass asked for, without the mass that no two additional points exchange."""
    rng = np.random.default_rng(0)
    M, p, q = rng.random((300, 300)), rng.random(300), rng.random(300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        early = solve(p, q, M, mass=50.0, max_seconds=1e-9)
    best = solve(p, q, M, mass=50.0)
    assert early.lower_bound <= best.value <= early.upper_bound
    assert early.status == "budget spent"
    assert math.isfinite(early.upper_bound)
    assert early.transported == pytest.approx(50, rel=1e-9)


@needs_kernels
def test_no_time_and_few_finite_costs():
    rng = np.random.default_rng(0)
    M = np.where(rng.random((200, 200)) < 0.98, np.inf, rng.random((200, 200)))
    M[np.arange(200), np.arange(200)] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        early = solve(None, None, M, max_seconds=1e-9)
    best = solve(None, None, M)
    assert early.lower_bound <= best.value <= early.upper_bound
    assert early.status == "budget spent"
    if math.isfinite(early.upper_bound):
        assert early.value < np.inf
        np.testing.assert_allclose(early.plan.sum(axis=1), 1 / 200)
    else:
        assert early.reason == NO_PLAN
        assert early.plan.sum() < 1
    arcs = early.plan.tocoo()
    assert np.isfinite(M[arcs.row, arcs.col]).all()


@needs_kernels
def test_no_plan_yet():
    """Every engine says so: what there is uses no forbidden pairs, and nothing counts as transported."""
    rng = np.random.default_rng(1)
    M = np.where(rng.random((60, 60)) < 0.9, np.inf, rng.random((60, 60)))
    M[0], M[:, 0] = 1.0, 1.0
    p, q = rng.random((2, 60)) + 0.1
    with pytest.warns(ConvergenceWarning, match=NO_PLAN):
        result = solve(p, q, M, normalize=True, max_seconds=1e-9)
    assert (result.status, result.upper_bound, result.value, result.gap) == ("budget spent", np.inf, np.inf, np.inf)
    assert result.reason == NO_PLAN
    assert result.lower_bound <= solve(p, q, M, normalize=True).value
    early = result.solutions[0]
    with pytest.warns(ConvergenceWarning, match=NO_PLAN):
        part = solve(p, q, M, mass=20.0, max_seconds=1e-9)
    crossed = crossover(p, q, DenseCost(M), np.zeros(60), neighbours=2, budget=Budget(1e-9))
    assert result.plan.sum() < 1  # a part of a coupling, as the docstring says
    assert (result.plan.sum(axis=1) <= p / p.sum() * (1 + 1e-12)).all()
    assert (result.plan.sum(axis=0) <= q / q.sum() * (1 + 1e-12)).all()
    for found in (early, crossed):
        assert (found.status, found.upper, found.value, found.reason) == ("budget spent", np.inf, np.inf, NO_PLAN)
        arcs = found.plan.tocoo()
        assert np.isfinite(M[arcs.row, arcs.col]).all()
        assert 0 < found.plan.sum() < 1
    assert (part.status, part.transported, part.upper_bound, part.plan.nnz) == ("budget spent", 0, np.inf, 0)


def far_bins(far: float) -> np.ndarray:
    """Six bins near the origin and one far away."""
    return np.concatenate([np.random.default_rng(2).random((6, 2)), [[far, 0.0]]])


@pytest.mark.parametrize("far", [1e3, 1e5, 1e6, 1e8])
def test_a_barycenter_with_one_far_bin(far):
    """It was 157 % off and called optimal: costs to the far bin hid those between the others."""
    x, rng = far_bins(far), np.random.default_rng(3)
    X = rng.integers(1, 9, (3, 7)).astype(float)
    X[:, 0] += 60 - X.sum(axis=1)  # as much in the far bin of all, relative to the sums
    X[:, 0] += X[:, 6] - 4
    X[:, 6] = 4
    W = free_optimum(fuzz.normalised(X), [1.0, 1.0, 1.0], exact_distances(x, x, 2)).low
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = WassersteinBarycenter(PointCost(x), gap=0.0, random_state=0).fit(X)
    assert Fraction(model.lower_bound_) <= W <= Fraction(model.objective_)
    assert model.objective_ == pytest.approx(float(W), rel=1e-9)
    assert model.gap_ <= 1e-9
    assert model.status_ == "optimal"


def test_a_barycenter_on_a_line_with_a_far_bin():
    """The closed form has too few digits for a bin at 1e7, and the programme goes on."""
    x = np.array([0.0, 0.4, 1.0, 1e7])[:, None]
    X = np.array([[3.0, 1.0, 5.0, 2.0], [1.0, 6.0, 2.0, 2.0]])
    W = free_optimum(fuzz.normalised(X), [1.0, 1.0], exact_distances(x, x, 2)).low
    model = WassersteinBarycenter(PointCost(x), gap=0.0, random_state=0).fit(X)
    assert Fraction(model.lower_bound_) <= W <= Fraction(model.objective_)
    assert model.status_ == "optimal"


@pytest.mark.parametrize("gap", [0.0, 1e-3])
@pytest.mark.parametrize("far", [1e3, 1e5, 1e7])
def test_coordinates_with_a_far_bin(far, gap):
    """They were 150 % off, without a warning, at the default gap."""
    x, rng = far_bins(far), np.random.default_rng(6)
    D, X = rng.integers(1, 9, (3, 7)).astype(float), rng.integers(1, 9, (4, 7)).astype(float)
    for rows in (D, X):
        rows[:, 0] += 64 - rows.sum(axis=1) + rows[:, 6] - 4
        rows[:, 6] = 4
    costs = exact_distances(x, x, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = mixture_coordinates(X, D, PointCost(x), gap=gap)
    for row, w in zip(X, found, strict=True):
        W = free_optimum(fuzz.normalised(row[None]), [1.0], costs, fuzz.normalised(D)).low
        parts = np.array(fuzz.integers(fuzz.normalised(D).ravel().tolist())[0], object).reshape(D.shape)
        mixed = (np.array(fuzz.integers(w.tolist())[0], object) @ parts).tolist()
        assert float(fuzz.exact_value(mixed, fuzz.normalised(row[None])[0], costs) / W) <= 1 + max(gap, 1e-9)


def test_memberships_in_single_precision_are_certified_as_they_are_returned():
    """Rounded to single precision, memberships of a far bin cost more than the gap: a warning says so."""
    x, rng = far_bins(1e4), np.random.default_rng(5)
    D, X = rng.random((3, 7)), rng.random((4, 7)).astype(np.float32)
    costs = exact_distances(x, x, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = mixture_coordinates(X, D, PointCost(x))
    assert found.dtype == np.float32
    over = []
    for row, w in zip(X, found, strict=True):
        W = free_optimum(fuzz.normalised(row[None]), [1.0], costs, fuzz.normalised(D)).low
        parts = np.array(fuzz.integers(fuzz.normalised(D).ravel().tolist())[0], object).reshape(D.shape)
        mixed = (np.array(fuzz.integers(w.astype(float).tolist())[0], object) @ parts).tolist()
        over.append(float(fuzz.exact_value(mixed, fuzz.normalised(row[None])[0], costs) / W) > 1.001)
    assert any(over) <= bool(caught)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_what_rounded_weights_cost(seed, perfect):
    """The term 2 eta (max M - min M) of docs/proved.md, in exact arithmetic, for weights of single precision."""
    rng = np.random.default_rng(seed)
    D = rng.integers(1, 9, (int(rng.integers(2, 4)), 4)) if rng.random() < 0.5 else np.eye(4, dtype=int)
    w = 1 + 2.0**-24 * rng.choice([0.99, 1.01], len(D)) if rng.random() < 0.5 else 10.0 ** rng.uniform(-6, 0, len(D))
    M = rng.normal(size=(4, 4)) * 10.0 ** rng.integers(-3, 9)
    rounded = w.astype(np.float32).astype(np.float64)
    mixed, moved = ((np.array(fuzz.integers(x.tolist())[0], object) @ D).tolist() for x in (w, rounded))
    x = mixed if perfect else rng.integers(1, 9, 4).tolist()
    costs = exact_matrix(M - M.min() if not perfect else np.abs(M) * (1 - np.eye(4)))

    def value(a: list[int]) -> Fraction:
        found = transport([k * sum(x) for k in a], [k * sum(a) for k in x], costs.entries)
        assert found is not None
        return Fraction(found, (sum(a) * sum(x)) << costs.bits)

    entries = [c for row in costs.entries for c in row if c is not None]
    spread = Fraction(max(entries) - min(entries), 1 << costs.bits)
    assert not perfect or value(mixed) == 0
    assert value(moved) - value(mixed) <= 2 * Fraction(2) ** -24 * spread


def outliers(n: int, off: float = 1e6) -> tuple[np.ndarray, np.ndarray]:
    """Return two clouds of which the first three points are far away."""
    X, Y = np.random.default_rng(1).random((2, n, 2))
    X[:3] += off
    Y[:3] += off
    return X, Y


def truth(X: np.ndarray, Y: np.ndarray) -> float:
    """Return the cost between clouds of one size, by assignment."""
    C = cdist(X, Y, "sqeuclidean")
    return float(C[linear_sum_assignment(C)].mean())


@needs_kernels
def test_distances_of_clouds_with_outliers():
    """They were 18 % off for 500 points, without a warning."""
    X, Y = outliers(500)
    assert distances([X], [Y], cost="sqeuclidean")[0, 0] == pytest.approx(truth(X, Y), rel=1e-9)


@needs_kernels
def test_solve_sample_converges_only_where_that_is_proved():
    X, Y = outliers(500)
    found = compat.solve_sample(X, Y)
    assert found.status == "Converged"
    assert found.value == pytest.approx(truth(X, Y), rel=1e-9)


@needs_kernels
def test_neighbours_of_measures_with_a_far_bin():
    """The order of the neighbours is that of exact costs."""
    rng = np.random.default_rng(3)
    bins = np.append(rng.random(30), 1e6)[:, None]
    X = rng.random((12, 31))
    X[:, -1] = 0.1 * X[:, :-1].sum(axis=1)  # the same share in the far bin
    cost = PointCost(bins)
    D = np.array([[solve(x, y, cost, normalize=True).value for y in X[2:]] for x in X[:2]])
    found = WassersteinNeighbors(3, cost=cost).fit(X[2:]).kneighbors(X[:2])
    np.testing.assert_allclose(found[0], np.sort(D, axis=1)[:, :3], rtol=1e-8)
    np.testing.assert_array_equal(found[1], np.argsort(D, axis=1)[:, :3])
