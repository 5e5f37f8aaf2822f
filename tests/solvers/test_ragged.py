"""Lists of problems with costs of their own: packed into one call, or one by one, with the same answers."""

from __future__ import annotations

import logging

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from gibbsot import DenseCost, GridCost, PointCost, solve, solve_batch
from gibbsot.core.backend import backend
from gibbsot.exact import packed
from gibbsot.solvers import ragged
from gibbsot.solvers.ragged import RaggedParts

METRICS = ("sqeuclidean", "euclidean", "cityblock", "chebyshev")


def highs(p, q, C):
    """Return the optimum by HiGHS."""
    m1, m2 = C.shape
    A = np.concatenate([np.kron(np.eye(m1), np.ones(m2)), np.kron(np.ones(m1), np.eye(m2))])
    return linprog(C.ravel(), A_eq=A[:-1], b_eq=np.concatenate([p, q])[:-1], method="highs").fun


def clouds(rng, count, d, most=12):
    """Return pairs of clouds of several sizes."""
    return [(rng.random((rng.integers(1, most), d)), rng.random((rng.integers(1, most), d))) for _ in range(count)]


def same(found, costs, P=None, Q=None, **options):
    """Check that a batch says what `solve` says of every problem."""
    assert len(found) == len(costs)
    for b, cost in enumerate(costs):
        p, q = (None if x is None else x[b] for x in (P, Q))
        one, own = solve(p, q, cost, **options), found[b]
        assert found.value[b] == own.value == pytest.approx(one.value, rel=1e-13, abs=1e-15)
        assert found.status[b] == own.status == one.status == "optimal"
        assert found.lower_bound[b] == own.lower_bound <= one.upper_bound
        assert found.upper_bound[b] == own.upper_bound >= one.lower_bound
        assert found.gap[b] == own.gap <= 1e-10
        np.testing.assert_allclose(own.marginals[0], one.marginals[0], rtol=1e-13, atol=1e-16)
        np.testing.assert_allclose(own.marginals[1], one.marginals[1], rtol=1e-13, atol=1e-16)
        (f, g), M = own.potentials, cost.matrix()
        assert (M - f[:, None] - g).min() >= -1e-14 * np.abs(M).max()
        p, q = one.problem.given
        dual = one.problem.mass[0] * (f @ p[0] / p.sum() + g @ q[0] / q.sum())
        size = np.abs(np.append(f, g)).max()
        assert dual == pytest.approx(one.value, rel=1e-12, abs=1e-13 * (1 + size))  # up to the rounding of f and g


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(METRICS), st.integers(1, 6))
def test_clouds_agree_with_pot_and_with_one_by_one(seed, metric, d):
    rng = np.random.default_rng(seed)
    pairs = clouds(rng, 6, d)
    found = solve_batch(None, None, [(*pair, metric) for pair in pairs])
    for value, (X, Y) in zip(found.value, pairs, strict=True):
        assert value == pytest.approx(ot.emd2([], [], cdist(X, Y, metric)), rel=1e-9, abs=1e-12)
    same(found, [PointCost(*pair, metric) for pair in pairs])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_matrices_and_weights_agree_with_highs(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, (5, 2))
    costs = [rng.normal(size=size) for size in sizes]
    P, Q = [rng.random(m) + 0.01 for m, _ in sizes], [rng.random(m) + 0.01 for _, m in sizes]
    for k, x in enumerate(P):  # points without weight
        if len(x) > 1 and k % 2:
            x[0] = 0
    found = solve_batch(P, Q, costs, normalize=True)
    for value, p, q, C in zip(found.value, P, Q, costs, strict=True):
        assert value == pytest.approx(highs(p / p.sum(), q / q.sum(), C), abs=1e-9)
    same(found, [DenseCost(C) for C in costs], P, Q, normalize=True)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_samples_on_the_line_agree_with_scipy(seed, weighted):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, (6, 2))
    pairs = [(rng.normal(size=m).round(1), rng.normal(size=n).round(1), "euclidean") for m, n in sizes]
    P = Q = None
    if weighted:
        P, Q = [rng.random(m) + 0.01 for m, _ in sizes], [rng.random(n) + 0.01 for _, n in sizes]
    found = solve_batch(P, Q, pairs, normalize=weighted)
    for b, (x, y, _) in enumerate(pairs):
        p, q = (None if w is None else w[b] for w in (P, Q))
        assert found.value[b] == pytest.approx(wasserstein_distance(x, y, p, q), rel=1e-12, abs=1e-15)
    same(found, [PointCost(*pair) for pair in pairs], P, Q, normalize=weighted)


def test_all_kinds_in_one_list():
    rng = np.random.default_rng(0)
    infinite = np.array([[0.0, np.inf], [1.0, 2.0]])
    costs = [
        (rng.random((4, 3)), rng.random((5, 3))),
        rng.random((3, 2)),
        PointCost(rng.random(4), rng.random(3), "euclidean"),
        (rng.random((4, 2)), rng.random((5, 2)), "cosine"),
        GridCost((2, 3)),
        infinite,
        DenseCost(rng.random((2, 2)), np.float32),
        [[0.0, 1.0], [2.0, 0.0]],
        ([0.0, 1.0], [2.0]),
        (np.arange(3), np.arange(4)),
        (rng.random((300, 2)), rng.random((300, 2))),
    ]
    found = solve_batch(None, None, costs)
    own = [ragged.own_cost(cost, 0) for cost in costs]
    assert [type(cost).__name__ for cost in own].count("PointCost") == 6
    same(found, own)
    assert [plan.shape for plan in found.plan] == [cost.shape for cost in own]
    assert [len(f) for f in found.potentials[0]] == [cost.shape[0] for cost in own]
    assert found[2:4].value.tolist() == found.value[2:4].tolist()
    assert found[-1].value == found.value[-1]
    assert "11 problems" in repr(found)
    assert len(found.problem) == 11
    assert [one.value for one in found] == found.value.tolist()
    with pytest.raises(IndexError, match="problem 11"):
        found[11]


def test_masses_are_those_given():
    rng = np.random.default_rng(0)
    pairs, (P, Q) = clouds(rng, 4, 2), ([], [])
    for X, Y in pairs:
        p, q = rng.random(len(X)) + 0.1, rng.random(len(Y)) + 0.1
        P.append(3 * p / p.sum())
        Q.append(3 * q / q.sum())
    same(solve_batch(P, Q, pairs), [PointCost(*pair) for pair in pairs], P, Q)
    one_side = solve_batch(P, None, pairs)
    same(one_side, [PointCost(*pair) for pair in pairs], P)
    same(solve_batch(None, Q, pairs), [PointCost(*pair) for pair in pairs], None, Q)
    assert one_side[0].transported == pytest.approx(3, rel=1e-14)


def test_threads_change_nothing():
    rng = np.random.default_rng(0)
    pairs = clouds(rng, 40, 2)
    one, two = (solve_batch(None, None, pairs, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one.value, two.value)
    np.testing.assert_array_equal(one.lower_bound, two.lower_bound)
    for a, b in zip(one.plan, two.plan, strict=True):
        np.testing.assert_array_equal(a.toarray(), b.toarray())


def test_numbers_are_known_without_parts(monkeypatch):
    """No object for any problem, until a plan is asked for."""
    if not backend().has_simplex:
        pytest.skip("needs compiled kernels")
    rng = np.random.default_rng(0)
    made = []
    part = ragged.Table.part
    monkeypatch.setattr(ragged.Table, "part", lambda self, b: made.append(b) or part(self, b))
    found = solve_batch(None, None, clouds(rng, 5, 2))
    assert isinstance(found.parts, RaggedParts)
    assert (found.gap <= 1e-10).all()
    assert found.status == ["optimal"] * 5
    assert found.reason == [""] * 5
    assert (found.lower_bound <= found.value).all()
    assert (found.value <= found.upper_bound).all()
    assert not made
    assert found[3].plan.nnz > 0
    assert set(made) == {3}


def test_arguments_may_change_afterwards():
    rng = np.random.default_rng(0)
    X, Y, C = rng.random((5, 2)), rng.random((5, 2)), rng.random((3, 3))
    found = solve_batch(None, None, [(X, Y), C])
    value = found.value.tolist()
    X[:], C[:] = 7.0, 7.0
    again = [
        plan.multiply(part.problem.cost.matrix()).sum() for plan, part in zip(found.plan, found.parts, strict=True)
    ]
    assert again == pytest.approx(value, rel=1e-14)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (np.array([[0.0, np.nan]]), r"cost\[1\]: has NaN"),
        (np.empty((0, 3)), r"cost\[1\]: expected a matrix"),
        (np.array([[np.inf, np.inf], [0.0, 0.0]]), r"cost\[1\]: row 0 has only infinite costs"),
        ((np.array([[np.nan, 0.0]]), np.ones((2, 2))), r"cost\[1\]: X: has NaN or infinite coordinates"),
        ((np.ones((2, 2)), np.array([[np.inf, 0.0]])), r"cost\[1\]: Y: has NaN or infinite coordinates"),
        ((np.ones((2, 2)), np.ones((2, 3))), r"cost\[1\]: Y: expected points with 2 coordinates as in X, got 3"),
        ((np.ones((0, 2)), np.ones((2, 2))), r"cost\[1\]: X: expected points as rows"),
        ((np.ones(2), np.ones(2), "cosinus"), r"cost\[1\]: metric: 'cosinus' is not one"),
        ((1e200 * np.eye(2), np.ones((2, 2))), r"cost\[1\]: X, Y: the largest cost is inf"),
        ((np.array(["a"]), np.ones(2)), r"cost\[1\]: X: expected real numbers"),
        (1e305 * np.eye(2), r"cost\[1\]: the largest cost is 1e\+305"),
    ],
)
def test_bad_costs_are_named_by_their_place(cost, message):
    with pytest.raises((ValueError, TypeError), match=message):
        solve_batch(None, None, [np.eye(2), cost, (np.ones((2, 2)), np.eye(2))])


@pytest.mark.parametrize(
    ("P", "message"),
    [
        ([np.ones(2), np.array([1.0, np.nan])], r"P\[1\]: has NaN weights, the first at entry 1"),
        ([np.ones(2), np.array([3.0, -1.0])], r"P\[1\]: has negative weights"),
        ([np.ones(2), np.zeros(2)], r"P\[1\]: has no mass"),
        ([np.ones(2), np.ones(3)], r"P\[1\]: expected 2 weights"),
        ([np.ones(2), 2 * np.ones(2)], r"Q\[1\]: sums to 2, P\[1\] to 4"),
        ([np.ones(2), np.ones((2, 2))], r"P\[1\], Q\[1\]: expected one measure for each cost, got 2"),
        ([np.ones(2)], r"P: expected one measure for each of the 2 costs, got 1"),
    ],
)
@pytest.mark.parametrize("costs", [[np.eye(2)] * 2, [(np.eye(2), np.eye(2))] * 2, [(np.arange(2.0), np.ones(2))] * 2])
def test_bad_weights_are_named_by_their_place(P, message, costs):
    with pytest.raises(ValueError, match=message):
        solve_batch(P, [np.ones(2)] * 2, costs)


def test_an_empty_list():
    with pytest.raises(ValueError, match="cost: is empty; expected a cost, or one for each problem"):
        solve_batch(None, None, [])


def test_what_is_a_list_of_costs():
    """Rows of one matrix are no costs, and tuples of numbers are no clouds."""
    assert solve_batch(None, None, [[0.0, 1.0], [1.0, 0.0]]).value.tolist() == [0.0]
    assert solve_batch(None, None, ((0.0, 1.0), (1.0, 0.0))).value.tolist() == [0.0]
    assert solve_batch(None, None, [np.array([0.0, 1.0]), np.array([1.0, 0.0])]).value.tolist() == [0.0]
    x = np.array([0.0, 1.0])
    assert solve_batch(None, None, [(x, x + 1)]).value.tolist() == pytest.approx([1.0])
    assert solve_batch(None, None, [[x, x]]).value.tolist() == pytest.approx([0.5])  # a matrix, by its rows


def test_a_budget_of_no_time():
    rng = np.random.default_rng(0)
    costs = [rng.random((6, 6)) for _ in range(3)]
    with pytest.warns(UserWarning, match="the time or memory allowed was used up"):
        found = solve_batch(None, None, costs, max_seconds=1e-9)
    exact = solve_batch(None, None, costs)
    assert (found.lower_bound <= exact.upper_bound).all()
    assert (found.upper_bound >= exact.lower_bound).all()
    assert "budget spent" in found.status


def test_outliers_are_looked_at_again():
    """What double precision does not prove at once is solved as `solve` does it."""
    rng = np.random.default_rng(1)
    X, Y = rng.random((2, 40, 2))
    X[:3] += 1e6
    Y[:3] += 1e6
    pairs = [(X, Y), (X[3:], Y[3:]), (X, X)]
    found = solve_batch(None, None, pairs)
    assert found.status == ["optimal"] * 3
    assert found.value[2] == found.upper_bound[2] == 0
    same(found, [PointCost(*pair) for pair in pairs])


def test_other_options_take_the_other_way():
    rng = np.random.default_rng(0)
    pairs = clouds(rng, 3, 2)
    costs = [PointCost(*pair) for pair in pairs]
    for options in ({"penalty": 0.1}, {"kl": 0.5}, {"max_memory": 1e9}, {"gap": 0.1}, {"mass": 0.5}):
        found, one = solve_batch(None, None, pairs, **options), [solve(None, None, cost, **options) for cost in costs]
        assert found.value == pytest.approx([x.value for x in one], rel=1e-3)
    before = solve_batch(None, None, pairs)
    again = solve_batch(None, None, pairs, warm_start=before)
    assert again.value == pytest.approx(before.value, rel=1e-13)
    with pytest.raises(ValueError, match="max_memory: this takes about"):
        solve_batch(None, None, pairs, max_memory=10)


def test_progress_is_reported(caplog):
    rng = np.random.default_rng(0)
    if not backend().has_simplex:
        pytest.skip("needs compiled kernels")
    with caplog.at_level(logging.INFO, logger="gibbsot"):
        found = solve_batch(None, None, clouds(rng, 30, 2))
    assert "30 of 30 problems" in caplog.text
    np.testing.assert_array_equal(found.value.shape, 30)


def test_packed_arguments_are_checked():
    """The kernel does not read beyond what it is given."""
    if not backend().has_simplex:
        pytest.skip("needs compiled kernels")
    ones = np.ones(3)
    costs = packed.PackedMatrices(np.ones(4))
    for places in ([[0, 2, 0, 2, 1]], [[2, 2, 0, 2, 0]], [[0, 2, -1, 2, 0]], [[0, 0, 0, 2, 0]], [[0, 2, 0, 2, -1]]):
        with pytest.raises(ValueError, match="places: "):
            packed.solve_packed(packed.Packed(ones, ones, np.array(places), costs))
    points = packed.PackedPoints(np.ones((3, 2)), np.ones((3, 2)), "cosine")
    given = {
        "p": ones, "q": ones, "places": np.array([[0, 3, 0, 3, 0]]), "accuracy": 0.0, "unit": True, "n_threads": 1,
        "seconds": 1.0, "stop": backend().stop_flag(), "numbers": np.empty((1, 10)), "kept": np.empty((2, 0)),
        "arcs": np.empty((2, 0), np.int32), "near": np.empty((2, 0), np.int32), "sent": np.empty((0, 2)),
    }  # fmt: skip
    with pytest.raises(ValueError, match="metric: expected 'sqeuclidean'"):
        backend().solve_points(points.X, points.Y, "cosine", **given)
    for wrong in ((3, 0), (0, 3)):
        arcs = np.full((2, 6), -1, np.int32)
        arcs[:, 0] = wrong
        with pytest.raises(ValueError, match="near: an arc lies outside"):
            backend().solve_points(points.X, points.Y, "sqeuclidean", **given | {"near": arcs})
    with pytest.raises(ValueError, match="expected an array of length 6"):
        backend().solve_points(points.X, points.Y, "sqeuclidean", **given | {"near": np.zeros((2, 5), np.int32)})
    with pytest.raises(ValueError, match="sent: expected plans that are kept"):
        backend().solve_points(points.X, points.Y, "sqeuclidean", **given | {"sent": np.empty((3, 2))})


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_plans_from_the_same_points(d, weighted):
    """Values, potentials and what is sent agree with POT's plans, from nothing and from the arcs of other plans."""
    ot = pytest.importorskip("ot")
    if not backend().has_simplex:
        pytest.skip("needs compiled kernels")
    rng = np.random.default_rng(d)
    sizes = np.array([13, 6, 21])
    begin = packed.starts(sizes)
    X, Y = rng.normal(size=(9, d)), rng.normal(size=(sizes.sum(), d))
    p, q = np.ones(9), np.ones(sizes.sum())
    if weighted:
        p, q = rng.random(9), rng.random(sizes.sum()) + 0.01
        p[4] = 0.0
    near = packed.send_packed((rng.normal(size=(9, d)), rng.random(9)), (Y, q), (begin, sizes)).arcs
    for arcs in (None, near):
        found = packed.send_packed((X, p), (Y, q), (begin, sizes), arcs, threads=2)
        assert found.solved.all()
        for b, (a, n) in enumerate(zip(begin, sizes, strict=True)):
            own, w = Y[a : a + n], q[a : a + n] / q[a : a + n].sum()
            plan, log = ot.emd(p / p.sum(), w, -2 * X @ own.T, log=True)
            np.testing.assert_allclose(found.value[b], log["cost"], atol=1e-12)
            if weighted:  # the plan is unique
                np.testing.assert_allclose(found.sent[b], plan @ own, atol=1e-12)
            np.testing.assert_allclose(-2 * (found.sent[b] * X).sum(), log["cost"], atol=1e-12)
            g = (-2 * X @ own.T - found.f[b][:, None]).min(axis=0)  # optimal potentials prove the value
            np.testing.assert_allclose(p @ found.f[b] / p.sum() + w @ g, log["cost"], atol=1e-12)


def test_near_arcs_change_no_value():
    """Whatever arcs problems start from, the bounds prove the same costs."""
    if not backend().has_simplex:
        pytest.skip("needs compiled kernels")
    rng = np.random.default_rng(3)
    rows, columns = np.array([8, 5, 12]), np.array([9, 20, 12])
    X, Y = rng.normal(size=(rows.sum(), 3)), rng.normal(size=(columns.sum(), 3))
    p, q = np.ones(rows.sum()), np.ones(columns.sum())  # degenerate: many arcs of a basis are empty
    problems = packed.Packed(p, q, packed.places_of(rows, columns), packed.PackedPoints(X, Y, "sqeuclidean"), True)
    cold = packed.solve_packed(problems)
    room = rows + columns
    any_arcs = np.stack([rng.integers(0, np.repeat(m, room)) for m in (rows, columns)]).astype(np.int32)
    for near in (cold._arcs, any_arcs, packed.arcs_of(any_arcs[:, ::2], np.repeat(np.arange(3), room)[::2], room)):
        warm = packed.solve_packed(problems, near=near)
        assert warm.proved.all()
        np.testing.assert_allclose(warm.value, cold.value, rtol=1e-13)
