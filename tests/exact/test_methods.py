from __future__ import annotations

import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist

from cases import batch, measures, problems, without_all_arcs
from gibbsot import DenseCost, Gibbs, GridCost, PointCost, Problem, datasets, solve, solve_batch
from gibbsot.core import native
from gibbsot.core.backend import backend
from gibbsot.exact import annealed
from gibbsot.exact import methods as exact
from gibbsot.exact.annealed import crossover
from gibbsot.exact.method import Batch
from gibbsot.io.budget import Budget
from kernels import using


def dense_value(p, q, M) -> float:
    """POT's network simplex on the full matrix; a cost that no optimal plan uses stands in for infinite ones."""
    M = np.where(np.isinf(M), 1e3 * M[np.isfinite(M)].max(), M).astype(np.float64)
    return float(ot.emd2(p, q, M, numItermax=10_000_000))


def check_optimal(p, q, cost, result) -> None:
    """Primal and dual feasible, and no gap between them: optimal, whoever computed it."""
    M = cost.matrix().astype(np.float64)
    U, L = result.U, result.L
    on = (p > 0)[:, None] & (q > 0)
    scale = np.abs(U[p > 0]).max() + np.abs(L[q > 0]).max() + 1e-300
    assert (U[:, None] - L - M)[on].max() <= 1e-12 * scale
    Z = result.plan
    np.testing.assert_allclose(Z.sum(axis=1), p, atol=1e-9)
    np.testing.assert_allclose(Z.sum(axis=0), q, atol=1e-9)
    assert Z.data.min() > 0
    assert Z.nnz <= (p > 0).sum() + (q > 0).sum() - 1
    dual = p[p > 0] @ U[p > 0] - q[q > 0] @ L[q > 0]
    assert result.value == pytest.approx(dual, rel=1e-8, abs=1e-9 * scale)
    assert result.status == "optimal"


@pytest.mark.parametrize("kind", ["dense", "points", "grid1", "grid2", "grid3", "forbidden", "coulomb", "axes", "thin"])
def test_exact_values_are_those_of_pot(kind):
    """12 problems of each kind, with and without zero weights."""
    for seed in range(4):
        pair = batch(kind, n=3, seed=seed, zeros=0.3 * (seed % 2))
        result = solve_batch(pair.p, pair.q, pair.cost)
        for p, q, one in zip(pair.p, pair.q, result, strict=True):
            assert one.value == pytest.approx(dense_value(p, q, pair.cost.matrix()), rel=1e-9, abs=1e-14)
            check_optimal(p, q, pair.cost, one)


@pytest.mark.parametrize("kind", ["dense", "points", "grid2", "forbidden", "coulomb", "axes", "thin"])
@pytest.mark.parametrize("kernel", ["compiled", "numpy"])
def test_arcs_give_what_all_arcs_give(monkeypatch, kind, kernel):
    """By crossover on a simplex that keeps its basis, and by HiGHS where there are no kernels."""
    pair = batch(kind, n=3, zeros=0.3)
    whole = solve_batch(pair.p, pair.q, pair.cost)
    with without_all_arcs(), using("numpy" if kernel == "numpy" else native.name()):
        result = solve_batch(pair.p, pair.q, pair.cost)
    np.testing.assert_allclose(result.value, whole.value, rtol=1e-9, atol=1e-14)
    for p, q, one in zip(pair.p, pair.q, result, strict=True):
        check_optimal(p, q, pair.cost, one)


def test_potentials_are_feasible_where_there_is_no_weight(monkeypatch):
    for limits in (nullcontext, without_all_arcs):
        for kind in ("dense", "grid2", "forbidden"):
            pair = batch(kind, n=4, zeros=0.5)
            with limits():
                f, g = solve_batch(pair.p, pair.q, pair.cost).potentials
            assert (f[:, :, None] + g[:, None] <= pair.cost.matrix()).all()


def large_cost(kind):
    rng = np.random.default_rng(0)
    return {
        "points": lambda: PointCost(rng.random((500, 2)), rng.random((400, 2))),
        "plain": lambda: PointCost(rng.random((500, 3)), rng.random((400, 3)), "euclidean"),
        "grid": lambda: GridCost((21, 20)),
        "line": lambda: PointCost(rng.random(300), rng.random(200)),
        "axis": lambda: GridCost(200, power=1.5),
        "matrix": lambda: DenseCost(rng.random((500, 400))),
    }[kind]()


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("points", "coarse to fine"),
        ("plain", "coarse to fine"),
        ("grid", "coarse to fine"),
        ("line", "line"),
        ("axis", "line"),
        ("matrix", "all arcs"),
    ],
)
def test_no_annealing_where_none_is_needed(kind, method):
    if native.name() == "numpy":
        pytest.skip("by compiled kernels")
    cost, rng = large_cost(kind), np.random.default_rng(1)
    P, Q = (rng.dirichlet(np.ones(m), 2) for m in cost.shape)
    assert [one.name for one in exact.choose(Problem(P, Q, cost))] == [method] * 2
    result = solve_batch(P, Q, cost, n_jobs=2)
    assert result.parts[0].sample is None
    M = cost.matrix()
    for p, q, one in zip(P, Q, result, strict=True):
        assert one.value == pytest.approx(dense_value(p, q, M), rel=1e-9)
        assert one.lower_bound <= one.value <= one.upper_bound
        check_optimal(p, q, cost, one)


def test_a_warm_start_from_an_exact_result():
    pair = batch("points", n=3, zeros=0.3)
    start = solve_batch(pair.p, pair.q, pair.cost)
    p = 0.99 * pair.p + 0.01 * pair.p[::-1]
    result = solve_batch(p, pair.q, pair.cost, method="gibbs", warm_start=start)
    W = [dense_value(a, b, pair.cost.matrix()) for a, b in zip(p, pair.q, strict=True)]
    np.testing.assert_allclose(result.value, W, rtol=0.1)
    again = solve_batch(p, pair.q, pair.cost, warm_start=start)
    np.testing.assert_allclose(again.value, W, rtol=1e-9)
    for a, b, one in zip(p / p.sum(axis=1, keepdims=True), pair.q, again, strict=True):
        check_optimal(a, b, pair.cost, one)


def test_a_warm_start_saves_pivots_and_changes_no_value():
    if native.name() == "numpy":
        pytest.skip("by compiled kernels")
    rng = np.random.default_rng(0)
    M, p, q = rng.random((200, 180)), rng.dirichlet(np.ones(200)), rng.dirichlet(np.ones(180))
    before = solve(p, q, M)
    for other, a in ((M + 1e-3 * rng.random(M.shape), p), (M, 0.99 * p + 0.01 * p[::-1])):
        cold, warm = solve(a, q, other), solve(a, q, other, warm_start=before)
        assert warm.value == pytest.approx(cold.value, rel=1e-12)
        assert warm.status == "optimal"
        pivots = [result.solutions[0]._batch.pivots[0] for result in (warm, cold)]
        assert pivots[0] < 0.5 * pivots[1]


def test_the_geometry_of_points_and_of_rounded_grids():
    x = np.random.default_rng(0).random((500, 2))
    for points in (PointCost(x), PointCost(x, dtype="float32"), PointCost(x).astype(np.float32).astype(np.float64)):
        np.testing.assert_array_equal(points.geometry().X, x)  # points are stored in double precision
    # rounded costs are not those of their points
    assert GridCost((20, 20), dtype="float32").geometry() is None
    assert GridCost((20, 20)).astype(np.float32).astype(np.float64).geometry() is None


def test_a_weight_of_no_account_still_arrives():
    if native.name() == "numpy":
        pytest.skip("below the tolerances of HiGHS")
    result = solve([1, 1e-16], [1], [[0], [1e16]])
    assert result.status == "optimal"
    assert result.value == pytest.approx(1, rel=1e-12)
    assert result.lower_bound <= 1 <= result.upper_bound


def test_against_an_lp_solver():
    """HiGHS, which is nobody's network simplex."""
    pair = batch("forbidden", n=2, zeros=0.2)
    M = pair.cost.matrix()
    i, j = np.nonzero(np.isfinite(M))
    balance = np.zeros((sum(M.shape), len(i)))
    balance[i, np.arange(len(i))] = 1
    balance[M.shape[0] + j, np.arange(len(i))] = 1
    for p, q in zip(pair.p, pair.q, strict=True):
        lp = linprog(M[i, j], A_eq=balance, b_eq=np.concatenate([p, q]), method="highs")
        assert solve(p, q, pair.cost).value == pytest.approx(lp.fun, rel=1e-9)


def test_coulomb_is_exact_where_pot_is_not():
    p, q, cost = datasets.coulomb_uniform()
    result = solve(p, q, cost)
    assert result.value == pytest.approx(2, rel=1e-12)
    check_optimal(p, q, cost, result)


@pytest.mark.parametrize(
    ("p", "q", "cost"),
    [
        ([1.0], [1.0], [[3.0]]),
        ([1.0], [0.25, 0.75], [[3.0, 1.0]]),
        ([0.25, 0.75], [1.0], [[3.0], [1.0]]),
        (np.full(30, 1 / 30), np.full(30, 1 / 30), PointCost(np.random.default_rng(0).normal(size=(30, 2)))),
        (np.full(40, 1 / 40), np.full(40, 1 / 40), DenseCost(np.random.default_rng(1).random((40, 40)))),
        (
            np.full(20, 1 / 20),
            np.full(20, 1 / 20),
            PointCost(np.repeat(np.random.default_rng(2).random((5, 2)), 4, axis=0)),
        ),
        (np.full(6, 1 / 6), np.full(4, 1 / 4), np.full((6, 4), 7.0)),
        (np.eye(9)[0], np.eye(9)[8], GridCost((3, 3))),
    ],
    ids=["point", "one to two", "two to one", "equal", "assignment", "duplicates", "constant", "far"],
)
def test_degenerate_problems(p, q, cost):
    result = solve(p, q, cost)
    M = result.problem.cost.matrix()
    assert result.value == pytest.approx(dense_value(np.asarray(p), np.asarray(q), M), rel=1e-9, abs=1e-15)
    check_optimal(np.asarray(p), np.asarray(q), result.problem.cost, result)


@pytest.mark.parametrize("n", [48, 64, 95, 96, 97, 131])
@pytest.mark.parametrize("kind", ["uniform", "ties", "forbidden", "many near"])
def test_assignments_of_every_kind(n, kind):
    """Lists of the nearest columns of each row are found in groups; the last group is not whole."""
    rng = np.random.default_rng(n)
    M = rng.random((n, n))
    if kind == "ties":
        M = np.floor(5 * M)
    elif kind == "forbidden":
        M[(rng.random((n, n)) < 0.8) & ~np.eye(n, dtype=bool)] = np.inf
    elif kind == "many near":  # more than a list has room for
        M[:, : n - 5] *= 1e-3
    result = solve(None, None, M)
    assert result.value == pytest.approx(M[linear_sum_assignment(M)].mean(), rel=1e-12)
    assert result.status == "optimal"
    assert result.lower_bound <= result.value <= result.upper_bound


def test_measures_that_nearly_agree():
    """Where the estimate is far off, the crossover is exact."""
    rng = np.random.default_rng(3)
    cost = PointCost(rng.normal(size=(60, 2)))
    p = rng.dirichlet(np.ones(60))
    for e in (0.03, 0.001):
        q = (1 - e) * p + e * rng.dirichlet(np.ones(60))
        result = solve(p, q, cost)
        assert result.value == pytest.approx(dense_value(p, q / q.sum(), cost.matrix()), rel=1e-9)


def test_bad_potentials_only_take_longer():
    pair = batch("points", n=1)
    p, q = pair.p[0], pair.q[0]
    W = dense_value(p, q, pair.cost.matrix())
    for U in (np.zeros(21), np.random.default_rng(0).normal(size=21) * 100):
        result = crossover(p, q, pair.cost, U, neighbours=2)
        assert result.optimal
        assert result.value == pytest.approx(W, rel=1e-9)
    few = crossover(p, q, pair.cost, np.random.default_rng(0).normal(size=21) * 100, neighbours=1, max_rounds=1)
    assert not few.optimal
    assert few.value > W
    assert p @ few.f + q @ few.g <= W


@pytest.mark.slow
@settings(max_examples=200)
@given(problems(), st.integers(0, 5))
def test_bounds_hold_whatever_the_sweeps(pair, seed):
    result = solve_batch(pair.p, pair.q, pair.cost, method=Gibbs(n_sweeps=5, rng=seed))
    M = pair.cost.astype(np.float64).matrix()  # of what is stored: the axes of a grid, the points
    W = np.array([dense_value(p, q, M) for p, q in zip(pair.p, pair.q, strict=True)])
    slack = 1e-12 * np.abs(W)
    assert (result.lower_bound <= W + slack).all()
    assert (result.upper_bound >= W - slack).all()
    assert (result.gap >= 0).all()
    known = np.isfinite(result.upper_bound)
    assert (result.upper_bound - result.gap * np.abs(result.value) <= W + 1e-9 * np.abs(W))[known].all()
    assert np.isinf(result.gap[~known]).all()
    for p, q, Z in zip(pair.p, pair.q, result.plan, strict=True):
        np.testing.assert_allclose(Z.sum(axis=1), p, atol=1e-7 if pair.cost.dtype == np.float32 else 1e-9)
        np.testing.assert_allclose(Z.sum(axis=0), q, atol=1e-7 if pair.cost.dtype == np.float32 else 1e-9)


def test_a_certified_gap_is_small_after_annealing():
    """One round of the simplex on the annealed arcs certifies what the sampler alone can not."""
    pair = batch("grid2", n=2, zeros=0.0)
    result = solve_batch(pair.p, pair.q, pair.cost, method=Gibbs(n_sweeps=500))
    assert (result.gap < 1e-3).all()
    assert (result[0].status, result.status) == ("estimate", ["estimate"] * 2)


@pytest.mark.parametrize(
    ("p", "q", "M"),
    [
        ([0.5, 0.5], [0.9, 0.1], [[np.inf, 1.0], [1.0, np.inf]]),
        ([0.5, 0.5, 0.0], [0.3, 0.3, 0.4], [[0.0, np.inf, np.inf], [np.inf, 0.0, 1.0], [0.0, 0.0, 0.0]]),
    ],
)
def test_forbidden_arcs_that_leave_no_plan(p, q, M):
    with pytest.raises(ValueError, match="cost: infinite costs forbid every plan"):
        solve(p, q, M)


def test_float32_costs_are_solved_exactly_as_they_are():
    pair = batch("points", n=1, dtype=np.float32)
    # a matrix is what was stored; of points the coordinates are stored, which dtype does not round
    rounded = DenseCost(pair.cost.matrix())
    for cost, M in ((rounded, rounded.matrix()), (pair.cost, pair.cost.astype(np.float64).matrix())):
        result = solve(pair.p[0], pair.q[0], cost)
        assert result.value == pytest.approx(dense_value(pair.p[0], pair.q[0], M), rel=1e-9)
        assert result.status == "optimal"


def test_exact_with_threads_gives_the_same():
    pair = batch("grid2", n=5)
    one, two = (solve_batch(pair.p, pair.q, pair.cost, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one.value, two.value)
    np.testing.assert_array_equal(one.potentials[0], two.potentials[0])


def test_large_grids_never_form_their_matrix(monkeypatch):
    if native.name() == "numpy":
        pytest.skip("the compiled kernels' promise")
    monkeypatch.setattr(GridCost, "matrix", None)
    rng = np.random.default_rng(0)
    p, q = measures(rng, 2, 40 * 39)
    for power in (1, 2, 3):
        assert solve(p, q, GridCost((40, 39), power=power)).status == "optimal"


def test_a_certified_gap():
    pair = batch("grid2", n=3, zeros=0.0)
    result = solve_batch(pair.p, pair.q, pair.cost, gap=1e-2)
    assert set(result.status) <= {"gap reached", "optimal"}
    assert (result.gap <= 1e-2).all()
    assert set(solve_batch(pair.p, pair.q, pair.cost, gap=0).status) == {"optimal"}
    W = [dense_value(p, q, pair.cost.matrix()) for p, q in zip(pair.p, pair.q, strict=True)]
    assert (np.abs(result.value / W - 1) <= 1e-2).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gap": -1e-9}, ValueError, "gap: expected a number >= 0"),
        ({"gap": "small"}, TypeError, "gap: expected a number"),
        ({"gap": 1e-2, "method": "gibbs"}, ValueError, "gap: the sampler's estimate has no gap"),
        ({"schedule": [1.0]}, TypeError, r"unexpected .* 'schedule'; expected method=gibbsot.Gibbs\(schedule=...\)"),
        ({"method": "sinkhorn"}, ValueError, 'method: expected "exact", "gibbs" or a gibbsot.Gibbs, got \'sinkhorn\''),
    ],
)
def test_options_that_do_not_fit(options, error, message):
    with pytest.raises(error, match=message):
        solve([1.0], [1.0], DenseCost([[1.0]], "float32"), **options)


@pytest.mark.parametrize("cost", [GridCost(300, spacing=1.0), DenseCost(GridCost(300, spacing=1.0).matrix())])
def test_tails_that_weigh_next_to_nothing(cost):
    """Weights down to 1e-300 leave the simplex's tree in pieces, between which its potentials mean nothing."""
    if native.name() == "numpy":
        pytest.skip("beyond the tolerances of HiGHS, which leave the gap open")
    x = np.arange(300)
    p, q = (np.exp(-((x - 20) ** 2) / (2 * sd**2)) for sd in (5, 10))
    p, q = p / p.sum(), q / q.sum()
    result = solve(p, q, cost)
    assert result.status == "optimal"
    assert result.value == pytest.approx(ot.emd2_1d(x, x, p, q), rel=1e-9)


@pytest.mark.parametrize("price", [1e6, 1e9])
def test_prices_for_what_is_all_but_forbidden(price):
    """Next to such costs the potentials have few digits left, until they are corrected round by round."""
    rng = np.random.default_rng(0)
    M = np.where(rng.random((300, 300)) < 0.5, price, rng.random((300, 300)))
    uniform = np.full(300, 1 / 300)
    i, j = linear_sum_assignment(M)
    result = solve(uniform, uniform, M)
    assert result.status == "optimal"
    assert result.value == pytest.approx(M[i, j].mean(), rel=1e-9)


def test_nothing_costs_anything():
    result = solve(np.full(11, 1 / 11), np.full(14, 1 / 14), np.zeros((11, 14)))
    assert (result.status, result.value, result.gap) == ("optimal", 0.0, 0.0)


def test_equal_measures_have_no_gap():
    p = np.random.default_rng(0).dirichlet(np.ones(30))
    result = solve(p, p, PointCost(np.random.default_rng(1).random((30, 2))), gap=1e-3)
    assert (result.status, result.gap) == ("optimal", 0.0)


def test_warnings_are_as_they_were():
    pair = batch("points", n=40)
    before = list(warnings.filters)
    solve_batch(pair.p, pair.q, pair.cost, n_jobs=4)
    assert warnings.filters == before


def test_an_interrupted_crossover_leaves_its_queue(monkeypatch):
    pair = batch("points", n=50)
    started = []

    def stopped(*args, **options):
        started.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(annealed, "crossover", stopped)
    monkeypatch.setattr(exact, "choose", lambda problem: [exact.METHODS[-1]] * len(problem))
    with pytest.raises(KeyboardInterrupt):
        solve_batch(pair.p, pair.q, pair.cost)
    assert len(started) < 50


def test_an_infeasible_problem_of_a_batch_is_named():
    M = np.array([[np.inf, 1.0], [1.0, np.inf]])
    with pytest.raises(ValueError, match=r"forbid every plan .* \(problem 1\)"):
        solve_batch([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.9, 0.1]], M)


def test_costs_of_their_own():
    """Clouds of different sizes in one call, as one by one, in threads and with the sampler."""
    rng = np.random.default_rng(0)
    sizes = [(7, 5), (3, 9), (40, 30)]
    costs = [PointCost(rng.random((m1, 2)), rng.random((m2, 2))) for m1, m2 in sizes]
    Q = [rng.random(m2) for _, m2 in sizes]
    result = solve_batch(None, Q, costs, n_jobs=2)
    assert len(result) == 3
    assert result.status == ["optimal"] * 3
    for b, (cost, q) in enumerate(zip(costs, Q, strict=True)):
        one = solve(None, q, cost)
        assert result.value[b] == one.value == result[b].value
        W = dense_value(np.full(cost.shape[0], q.sum() / cost.shape[0]), q, cost.matrix())
        assert one.value == pytest.approx(W, rel=1e-9)
        f, g = result.potentials[0][b], result.potentials[1][b]
        assert (f[:, None] + g <= cost.matrix()).all()
        np.testing.assert_allclose(result.plan[b].sum(axis=0), q, rtol=1e-12)
    assert (result.lower_bound <= result.value * (1 + 1e-15)).all()
    assert (result.gap <= 1e-12).all()
    assert "3 problems" in repr(result)
    assert len(result[1:]) == 2
    again = solve_batch(None, [1.01 * q for q in Q], costs, warm_start=result)
    np.testing.assert_allclose(again.value, 1.01 * result.value, rtol=1e-12)
    estimates = solve_batch(None, Q, costs, method=Gibbs(n_sweeps=100, rng=3))
    assert estimates.status == ["estimate"] * 3
    alone = solve_batch(None, Q[1], costs[1], method=Gibbs(n_sweeps=100, rng=3), ids=[1])
    assert estimates.value[1] == alone.value[0]
    with pytest.raises(ValueError, match="Q: expected one measure for each of the 3 costs, got 2"):
        solve_batch(None, Q[:2], costs)
    with pytest.raises(ValueError, match=r"Q\[1\]: expected 9 weights, got shape"):
        solve_batch(None, [Q[0]] * 3, costs)
    with pytest.raises(ValueError, match="warm_start: has 2 entries; expected one for each of the 3"):
        solve_batch(None, Q, costs, warm_start=result[1:])


def test_masses_images_and_uniform_weights():
    """The value is for the masses given; images are checked against the grid."""
    assert solve([2, 2], [4, 0], [[0, 1], [1, 0]]).value == 2
    assert solve([2, 2], [1, 0], [[0, 1], [1, 0]], normalize=True).value == 0.5
    with pytest.raises(ValueError, match=r"q: sums to 1, p to 4; expected sums that agree to 1e-06"):
        solve([2, 2], [1, 0], [[0, 1], [1, 0]])
    plan = solve([2, 2], [4, 0], [[0, 1], [1, 0]]).plan
    np.testing.assert_array_equal(plan.toarray(), [[2, 0], [2, 0]])
    assert solve(None, None, [[0, 1], [1, 0]]).value == 0
    assert solve(None, [3, 1], [[0, 1], [1, 0]]).value == 1
    image = np.arange(12.0).reshape(3, 4)
    cost = GridCost((3, 4))
    whole = solve(image, image[::-1], cost)
    assert whole.value == solve(image.ravel(), image[::-1].ravel(), cost).value
    assert solve_batch(np.stack([image, image]), image[::-1], cost).value.tolist() == [whole.value] * 2
    with pytest.raises(ValueError, match=r"p: expected 12 weights in each measure, or images of shape \(4, 3\)"):
        solve(image, image, GridCost((4, 3)))
    half = np.random.default_rng(0).random(500).astype(np.float16)
    assert solve(half / half.sum(), half[::-1] / half.sum(), GridCost(500)).status == "optimal"
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    with pytest.raises(ValueError, match="p: has masked entries"):
        solve(masked, [1, 2], [[0, 1], [1, 0]])


@pytest.mark.parametrize("metric", ["cityblock", "chebyshev"])
def test_distances_on_a_line_have_one_method(metric):
    rng = np.random.default_rng(0)
    x, y = rng.random(300), rng.random(400)
    p, q = rng.dirichlet(np.ones(300)), rng.dirichlet(np.ones(400))
    cost = PointCost(x, y, metric)
    np.testing.assert_allclose(cost.matrix(), np.abs(x[:, None] - y), rtol=1e-14)
    assert [one.name for one in exact.choose(Problem(p, q, cost))] == [
        "line" if native.name() != "numpy" else "crossover"
    ]
    assert solve(p, q, cost).value == pytest.approx(ot.emd2_1d(x, y, p, q, metric="cityblock"), rel=1e-9)


def test_the_page_has_all_methods_in_their_order():
    page = (Path(__file__).parents[2] / "docs" / "which_solver.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert rows[0] == "| method | what it does | for |"
    assert rows[1:] == [f"| {one.name} | {one.about} | {one.suits} |" for one in exact.METHODS]


def test_crossover_from_an_assignment(monkeypatch):
    """Single precision suggests arcs, and double precision proves them."""
    if not backend().has_simplex:
        pytest.skip("assignments are compiled")
    monkeypatch.setattr(annealed, "_ASSIGNED", (0, 2**29))
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(120, 20)), rng.normal(size=(120, 20))
    batch = Batch(Problem(np.ones((1, 120)), np.ones((1, 120)), PointCost(X, Y)), 0.0, Budget())
    monkeypatch.setattr(annealed, "_annealed", lambda *_: pytest.fail("no chain is needed"))
    found = annealed.Crossover().solve(batch, [0])[0]
    C = cdist(X, Y, "sqeuclidean")
    assert found.status == "optimal"
    assert found.value == pytest.approx(C[linear_sum_assignment(C)].mean(), rel=1e-12)
    small = Batch(batch.problem, 0.0, Budget(max_memory=1e4))
    assert annealed._assigned(small, 0) is None
