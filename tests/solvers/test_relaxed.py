from __future__ import annotations

import numpy as np
import ot
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

from gibbsot import DenseCost, GridCost, PointCost, solve, solve_batch
from gibbsot.core import native
from gibbsot.costs import BorderedCost, from_arrays
from gibbsot.exact.all_arcs import AllArcs
from gibbsot.exact.methods import choose


def problems(n: int):
    """Random problems of several kinds, masses apart."""
    for seed in range(n):
        rng = np.random.default_rng(seed)
        m1, m2 = rng.integers(1, 9, 2)
        M = rng.normal(size=(m1, m2)) if seed % 3 == 0 else rng.random((m1, m2))
        M = np.floor(5 * M) if seed % 4 == 0 else M
        p, q = rng.random(m1) * rng.choice([0, 1, 3], m1, p=[0.2, 0.4, 0.4]), rng.random(m2)
        p[0] += 0.1
        yield rng, p, q, M


def highs(p, q, M, equal: float | None = None) -> float:
    """The least <plan, M> with marginals of at most p and q, by HiGHS."""
    m1, m2 = M.shape
    rows = np.kron(np.eye(m1), np.ones(m2)), np.kron(np.ones(m1), np.eye(m2))
    more = {} if equal is None else {"A_eq": np.ones((1, m1 * m2)), "b_eq": [equal]}
    return linprog(M.ravel(), A_ub=np.concatenate(rows), b_ub=np.concatenate([p, q]), **more).fun


def test_a_penalty_is_that_of_pot_and_of_an_lp_solver():
    """200 problems: the value, the plan and the potentials."""
    for rng, p, q, M in problems(200):
        c = float(rng.choice([0.0, 0.1, 0.3, 1.0]))
        result = solve(p, q, M, penalty=c)
        assert result.status == "optimal"
        W = highs(p, q, M - 2 * c) + c * (p.sum() + q.sum())
        assert result.value == pytest.approx(W, rel=1e-9, abs=1e-12)
        assert result.lower_bound <= W + 1e-9 * abs(W) + 1e-12
        Z = result.plan.toarray()
        assert (Z.sum(axis=1) <= p * (1 + 1e-12)).all()
        assert (Z.sum(axis=0) <= q * (1 + 1e-12)).all()
        left = p.sum() + q.sum() - 2 * Z.sum()
        assert (Z * M).sum() + c * left == pytest.approx(W, rel=1e-9, abs=1e-12)
        f, g = result.potentials
        assert (f[:, None] + g <= M + 1e-12).all()
        assert max(f.max(), g.max()) <= c + 1e-12
        assert p @ f + q @ g == pytest.approx(W, rel=1e-9, abs=1e-12)
        assert result.multiplier == 0
        if c > 0 and (M >= 0).all() and (p > 0).all():
            scale = p.sum() + q.sum()  # POT takes no more than mass one
            theirs = scale * ot.partial.partial_wasserstein_lagrange(p / scale, q / scale, M, 2 * c)
            assert (theirs * M).sum() + c * (p.sum() + q.sum() - 2 * theirs.sum()) == pytest.approx(W, rel=1e-9)


def padded(p, q, M, penalty) -> float:
    """The least cost where each point has a penalty, by HiGHS on the matrix with one more row and column."""
    (m1, m2), (c, d) = M.shape, (np.broadcast_to(x, m) for x, m in zip(penalty, M.shape, strict=True))
    C = np.block([[M, c[:, None]], [d[None], np.zeros((1, 1))]])
    rows = np.kron(np.eye(m1 + 1), np.ones(m2 + 1)), np.kron(np.ones(m1 + 1), np.eye(m2 + 1))
    weights = np.concatenate([p, [q.sum()], q, [p.sum()]])
    A, b = np.concatenate(rows)[:-1], weights[:-1]  # the last one follows from the others
    return linprog(C.ravel(), A_eq=A, b_eq=b).fun


# proofs need products with weights, which are no doubles near the end of their range
SIDES = st.one_of(
    st.just(0.0),
    st.floats(1e-290, 2),
    st.builds(np.array, st.lists(st.sampled_from([0.0, 0.1, 0.25, 1.0, 3.0]), min_size=8, max_size=8)),
)


@settings(deadline=None, max_examples=150)
@example(0, 0.0, 1.6144724116113167e-290, "grid")  # beside costs of one
@given(st.integers(0, 2**32), SIDES, SIDES, st.sampled_from(["matrix", "signed", "grid", "points"]))
def test_penalties_of_points_are_those_of_an_lp_solver(seed, first, second, kind):
    """Value, bounds, plan and potentials, for penalties of all points or of each."""
    rng = np.random.default_rng(seed)
    m1, m2 = (8, 8) if kind == "grid" else rng.integers(1, 9, 2)
    c, d = (x if isinstance(x, float) else x[:m] for x, m in ((first, m1), (second, m2)))
    p, q = rng.random(m1) * rng.choice([0, 1, 3], m1, p=[0.2, 0.4, 0.4]), rng.random(m2)
    p[0] += 0.1
    cost = {
        "matrix": lambda: DenseCost(rng.random((m1, m2))),
        "signed": lambda: DenseCost(rng.normal(size=(m1, m2))),
        "grid": lambda: GridCost((2, 4)),
        "points": lambda: PointCost(rng.random((m1, 2)), rng.random((m2, 2))),
    }[kind]()
    M = cost.matrix()
    result, W = solve(p, q, cost, penalty=(c, d)), padded(p, q, M, (c, d))
    assert result.status == "optimal"
    close = {"rel": 1e-9, "abs": 1e-9}
    assert result.value == pytest.approx(W, **close)
    assert result.lower_bound - 1e-9 <= W <= result.upper_bound + 1e-9
    Z = result.plan.toarray()
    left = p - Z.sum(axis=1), q - Z.sum(axis=0)
    assert min(left[0].min(), left[1].min()) >= -1e-12
    assert (Z * M).sum() + (left[0] * c).sum() + (left[1] * d).sum() == pytest.approx(W, **close)
    f, g = result.potentials
    assert (f[:, None] + g <= M + 1e-12).all()
    assert (f <= c + 1e-12).all()
    assert (g <= d + 1e-12).all()
    assert p @ f + q @ g == pytest.approx(W, **close)


@pytest.mark.skipif(native.name() == "numpy", reason="needs the compiled kernels")
@pytest.mark.parametrize(("most", "method"), [(9_000_000, "all arcs"), (160_000, "crossover")])
def test_clouds_with_penalties_of_points(most, method, monkeypatch):
    """Without k-d trees: on all arcs, and by a crossover where there are too many."""
    monkeypatch.setattr(AllArcs, "most", most)
    rng = np.random.default_rng(0)
    cost = PointCost(rng.random((500, 2)), rng.random((420, 2)))
    p, q, penalty = rng.random(500), rng.random(420), (0.02 * rng.random(500), 0.01)
    result, reference = solve(p, q, cost, penalty=penalty), solve(p, q, DenseCost(cost.matrix()), penalty=penalty)
    assert [one.name for one in choose(result.problem)] == [method]
    assert result.status == reference.status == "optimal"
    assert result.value == pytest.approx(reference.value, rel=1e-9)
    assert (result.potentials[0] <= penalty[0] + 1e-12).all()


def test_warm_starts_with_other_numbers_of_additional_points():
    """What is left over has one part or two; potentials and bases are those of the points that a problem has."""
    rng = np.random.default_rng(3)
    M, p, q = rng.random((6, 5)), 1e3 * rng.random(6), 1e-6 * rng.random(5)
    results = [solve(p, q, M, penalty=0.2), solve(np.ones(6), np.ones(5), M, penalty=0.2)]
    assert len({result.problem.cost.shape for result in results}) == 2
    for result in results:
        for weights in ((p, q), (np.ones(6), np.ones(5))):
            cold, warm = (solve(*weights, M, penalty=0.2, warm_start=start) for start in (None, result))
            assert warm.value == pytest.approx(cold.value, rel=1e-12)
            estimate = solve(*weights, M, penalty=0.2, warm_start=result, method="gibbs")
            assert estimate.value == pytest.approx(cold.value, rel=0.2)


@pytest.mark.skipif(native.name() != "numpy", reason="with kernels these problems are solved on all arcs")
def test_warm_starts_of_a_crossover():
    rng = np.random.default_rng(3)
    M, p, q = rng.random((6, 5)), rng.random(6), rng.random(5)
    first = solve(p, q, M, penalty=0.2)
    assert solve(q.sum() * p, q, M, penalty=0.2, warm_start=first).status == "optimal"


def test_a_given_mass_is_that_of_pot_and_of_an_lp_solver():
    for rng, p, q, M in problems(200):
        s = float(min(p.sum(), q.sum()) * rng.choice([0.1, 0.5, 0.9, 1.0]))
        result = solve(p, q, M, mass=s)
        W = highs(p, q, M, s)
        assert result.status == "optimal"
        assert result.value == pytest.approx(W, rel=1e-9, abs=1e-12)
        assert result.transported == pytest.approx(s, rel=1e-12)
        f, g = result.potentials
        assert max(f.max(), g.max()) <= 1e-12
        assert (f[:, None] + g + result.multiplier <= M + 1e-12).all()
        assert p @ f + q @ g + s * result.multiplier == pytest.approx(W, rel=1e-9, abs=1e-12)
        if (M >= 0).all() and (p > 0).all():
            assert (ot.partial.partial_wasserstein(p, q, M, s) * M).sum() == pytest.approx(W, rel=1e-7, abs=1e-9)


def test_all_costs_batches_and_estimates():
    rng = np.random.default_rng(0)
    P, Q = rng.random((3, 20)), 2 * rng.random((3, 20))
    for cost in (GridCost((4, 5)), PointCost(rng.random((20, 3))), GridCost((4, 5), dtype="float32")):
        result = solve_batch(P, Q, cost, penalty=0.05)
        M = cost.astype(np.float64).matrix()
        for b, one in enumerate(result):
            W = highs(P[b], Q[b], M - 0.1) + 0.05 * (P[b].sum() + Q[b].sum())
            assert result.value[b] == one.value == pytest.approx(W, rel=1e-6 if cost.dtype == np.float32 else 1e-9)
            assert one.plan.shape == (20, 20)
            assert one.transported == result.transported[b]
    estimate = solve(P[0], Q[0], GridCost((4, 5)), penalty=0.05, method="gibbs")
    exact = solve(P[0], Q[0], GridCost((4, 5)), penalty=0.05)
    assert estimate.status == "estimate"
    assert estimate.value == pytest.approx(exact.value, rel=0.05)
    assert estimate.lower_bound <= exact.value * (1 + 1e-12)
    own = solve_batch(P, Q, [GridCost((4, 5)), GridCost((2, 10)), GridCost(20)], mass=1.0)
    assert own[0].value == solve(P[0], Q[0], GridCost((4, 5)), mass=1.0).value


CLOUDS = [(2, "sqeuclidean"), (2, "euclidean"), (1, "sqeuclidean"), (3, "euclidean")]


@pytest.mark.skipif(native.name() == "numpy", reason="needs the compiled kernels")
@pytest.mark.parametrize(("d", "metric"), CLOUDS)
@pytest.mark.parametrize(
    "options", [{"penalty": 0.3}, {"penalty": 0.002}, {"penalty": 0.0}, {"mass": 1.0}, {"mass": 1.125}, {"mass": 0.01}]
)
def test_clouds_without_a_matrix_have_the_optimum_of_the_matrix(d, metric, options):
    rng = np.random.default_rng(d)
    X, Y, p, q = rng.random((500, d)), rng.random((420, d)) + 0.1, rng.random(500), rng.random(420)
    p[rng.random(500) < 0.2] = q[rng.random(420) < 0.2] = 0
    p, q = 1.4 * p / p.sum(), np.round(2.0**20 * 1.125 * q / q.sum()) / 2**20
    q[0] += 1.125 - q.sum()  # exactly, so that a mass may be all of it
    cost = PointCost(X, Y, metric)
    result, reference = solve(p, q, cost, **options), solve(p, q, DenseCost(cost.matrix()), **options)
    assert isinstance(result.problem.cost, BorderedCost)
    assert isinstance(reference.problem.cost, DenseCost)
    assert result.status == reference.status == "optimal"
    assert result.value == pytest.approx(reference.value, rel=1e-9, abs=1e-12)
    assert result.transported == pytest.approx(reference.transported, rel=1e-9, abs=1e-12)
    assert (result.plan.sum(axis=1) <= p * (1 + 1e-12)).all()
    assert (result.plan.sum(axis=0) <= q * (1 + 1e-12)).all()
    f, g = result.potentials
    assert (f[:, None] + g + result.multiplier <= cost.matrix() + 1e-12).all()
    limit = options.get("penalty", 0.0) + 1e-12
    assert max(f.max(), g.max()) <= limit
    rough = solve(p, q, cost, **options, gap=0.05)
    assert rough.lower_bound <= reference.upper_bound
    assert reference.lower_bound <= rough.upper_bound


@pytest.mark.parametrize("method", ["exact", "gibbs"])
@pytest.mark.parametrize("options", [{"penalty": 0.3}, {"penalty": ([0.1, 0.2, 0.3], 0.4)}, {"mass": 0.5}])
def test_results_have_no_additional_points(method, options):
    """The paper's potentials and plans had them in an estimate, and recovered plans of an optimum were an error."""
    rng = np.random.default_rng(4)
    P, Q, M = rng.random((2, 3)) + 0.2, rng.random((2, 5)) + 0.2, rng.random((3, 5))
    result = solve_batch(P, Q, M, method=method, **options)
    assert (result.U.shape, result.L.shape) == (P.shape, Q.shape)
    for one in result.solutions:
        assert (one.f.shape, one.g.shape, one.plan.shape) == ((3,), (5,), (3, 5))
    if "penalty" in options:
        np.testing.assert_allclose((P * result.U).sum(axis=1) - (Q * result.L).sum(axis=1), result.value, rtol=1e-12)
    for p, q, plan, recovered in zip(P, Q, result.plan, result.recovered_plan, strict=True):
        assert plan.shape == recovered.shape == M.shape
        assert recovered.sum() <= (p.sum() + q.sum()) / 2 * (1 + 1e-12)  # half of what each point has


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("corner", [0.0, np.inf])
def test_a_bordered_cost_is_its_matrix(corner, each):
    rng = np.random.default_rng(0)
    inner = GridCost((4, 5), dtype="float32")
    for _ in range(3):
        cost = BorderedCost(inner, (rng.random(20), rng.random(20)) if each else 0.3, corner)
        M = cost.matrix()
        dense = DenseCost(M)
        assert M.dtype == np.float32
        np.testing.assert_array_equal(M[:-1, :-1], inner.matrix())
        np.testing.assert_array_equal(M[:-1, -1], cost.outer[0])
        np.testing.assert_array_equal(M[-1, :-1], cost.outer[1])
        np.testing.assert_array_equal(cost.at(*np.indices(M.shape)), M)
        high, low, _ = cost.at_exact(*np.indices(M.shape))
        np.testing.assert_allclose(high + low, M, rtol=1e-6)
        assert (cost.common_outer is None) == each
        h = rng.random((2, 21)).astype(np.float32)
        for name in ("row_min", "col_max"):
            np.testing.assert_allclose(getattr(cost, name)(h), getattr(dense, name)(h), rtol=0, atol=1e-6)
        np.testing.assert_array_equal(cost.nearest(h[0], 3)[0][:, :3], dense.nearest(h[0], 3)[0])
        p, q = rng.dirichlet(np.ones(21), size=(2, 3))
        np.testing.assert_allclose(cost.mean(p, q), dense.mean(p, q), rtol=1e-5)
        assert cost.least() == dense.least()
        assert cost.spread() >= dense.spread() * (1 - 1e-6)
        assert cost.finite == dense.finite
        assert from_arrays(cost.arrays()) == cost
        assert cost.astype(np.float64).dtype == np.float64
        assert "BorderedCost(GridCost((4, 5)" in repr(cost)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("corner", [0.0, np.inf])
@pytest.mark.parametrize("extra", [(1, 1), (2, 3)])
def test_searches_and_parts_of_a_bordered_cost(corner, each, extra):
    """The least sums by rows and columns, with and without bounds, and subsets: those of the matrix."""
    rng = np.random.default_rng(0)
    outer = (0.5 * rng.random(30), 0.5 * rng.random(25)) if each else 0.2
    cost = BorderedCost(PointCost(rng.random((30, 2)), rng.random((25, 2))), outer, corner, extra)
    for by_rows in (True, False):
        M = cost.matrix() if by_rows else cost.matrix().T
        x, below = 0.3 * rng.random(M.shape[1]), 0.4 * rng.random(len(M))
        every = M + x
        for k in (1, 4, M.shape[1]):
            for limit in (None, below):
                found, sums = cost.nearest(x, k, by_rows, limit)
                asked = np.where(every < (np.inf if limit is None else limit[:, None]), every, np.inf)
                np.testing.assert_allclose(sums[:, :k], np.sort(asked, axis=1)[:, :k], rtol=1e-13)
                assert (sums[:, 1:] >= sums[:, :-1]).all()
                assert ((found >= 0) == np.isfinite(sums)).all()
                i, j = np.nonzero(found >= 0)
                np.testing.assert_allclose(every[i, found[i, j]], sums[i, j], rtol=1e-13)
    inner = cost.inner.by_trees()
    if inner is not None:  # with compiled kernels
        assert cost.searchable == (cost.by_trees() is not None) == (not each)
        trees, rows, columns = BorderedCost(inner, outer, corner, extra), np.r_[7, 3, 30], np.r_[24, 0, 25]
        np.testing.assert_allclose(trees.subset(rows, columns).matrix(), cost.matrix(rows, columns), rtol=1e-13)
        coarser = trees.coarsen(*map(np.ones, cost.shape), 4)
        assert (coarser is None) == each
        if coarser is not None:
            new = coarser.cost.matrix()
            assert (new[-extra[0] :, : -extra[1]] == 0.2).all()
            assert (new[: -extra[0], -extra[1] :] == 0.2).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mass": 1.0, "penalty": 1.0}, "mass: expected either mass or penalty"),
        ({"mass": 3.0}, "mass: expected a positive number of at most 2"),
        ({"mass": 0.0}, "mass: expected a positive number"),
        ({"mass": 1e-300}, "mass: 1e-300 beside a mass of 4 is beyond the range"),
        ({"penalty": np.inf}, "penalty: expected a finite number"),
        ({"penalty": -1}, "penalty: expected a finite number of at least 0, got -1"),
        ({"penalty": (1, -0.5)}, r"penalty\[1\]: expected a finite number of at least 0, got -0.5"),
        ({"penalty": ([1, np.nan], 1)}, r"penalty\[0\]: expected a finite number of at least 0, got nan"),
        ({"penalty": ([1, 2, 3], 1)}, r"penalty\[0\]: expected a number or one for each of the 2 points"),
        ({"penalty": (1, 2, 3)}, "penalty: expected a number, or a pair for p and q; got 3 entries"),
        ({"penalty": (1, 1e305)}, r"penalty\[1\]: expected at most 1.8e\+302 with costs of float64"),
        ({"penalty": 1.0, "normalize": True}, "normalize: masses matter"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        solve([1.0, 1.0], [3.0, 1.0], [[0.0, 1.0], [1.0, 0.0]], **options)


@pytest.mark.skipif(native.name() == "numpy", reason="needs the compiled kernels")
@pytest.mark.parametrize("options", [{"mass": 0.5}, {"mass": 0.999}, {"penalty": 0.01}])
def test_clouds_without_a_matrix_that_run_out_of_time_have_a_plan(options):
    rng = np.random.default_rng(5)
    X, Y = rng.random((2, 3000, 2))
    p, q = rng.dirichlet(np.ones(3000), size=2)
    with pytest.warns(ConvergenceWarning, match="Allow more time"):
        early = solve(p, q, PointCost(X, Y), **options, max_seconds=1e-9)
    best = solve(p, q, PointCost(X, Y), **options)
    assert (early.status, best.status) == ("budget spent", "optimal")
    assert early.lower_bound <= best.value <= early.upper_bound < np.inf
    if "mass" in options:
        assert early.transported == pytest.approx(options["mass"], rel=1e-12)
    for axis, weight in ((1, p), (0, q)):
        assert (early.plan.sum(axis=axis) <= weight + 1e-15).all()
