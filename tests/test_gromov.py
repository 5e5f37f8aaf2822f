"""Gromov-Wasserstein, against POT, the definition, isometries and its lower bounds."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist

from gibbsot import PointCost, gromov_wasserstein
from gibbsot.core.backend import backend
from gibbsot.gromov import search
from gibbsot.io import progress

compiled = pytest.mark.skipif(not backend().has_kd_trees, reason="needs k-d trees")
MOST = 60 if backend().has_simplex else 16  # points of a side; linear problems take long without compiled kernels


def matrices(X, Y):
    return cdist(X, X, "sqeuclidean"), cdist(Y, Y, "sqeuclidean")


def weights(rng, n, uniform):
    w = np.ones(n) if uniform else rng.random(n) + 0.1
    return w / w.sum()


def objective(C, D, plan, M=None, alpha=1.0):
    """Return the objective by its definition."""
    arcs = sparse.coo_array(plan)
    i, j, z = arcs.row, arcs.col, arcs.data
    own = float(z @ (C[np.ix_(i, i)] - D[np.ix_(j, j)]) ** 2 @ z)
    return own if M is None else (1 - alpha) * float(z @ M[i, j]) + alpha * own


def check(result, C, D, p, q, M=None, alpha=1.0):
    """Check what every result has to satisfy."""
    plan = result.plan.toarray()
    np.testing.assert_allclose(plan.sum(axis=1), p, atol=1e-12)
    np.testing.assert_allclose(plan.sum(axis=0), q, atol=1e-12)
    assert result.value == pytest.approx(objective(C, D, result.plan, M, alpha), rel=1e-9, abs=1e-12 * result.scale)
    assert result.value == result.values.min()
    assert result.lower_bound <= result.value + 1e-13 * result.scale


def problem(seed):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(10, MOST, 2)
    d, e = rng.integers(1, 4, 2)
    X, Y = rng.normal(size=(n, d)), rng.random((m, e))
    p, q = weights(rng, n, seed % 2), weights(rng, m, seed % 2)
    return rng, X, Y, p, q


def graph_distances(Z):
    D = shortest_path(np.where(np.quantile(Z, 0.3) > Z, np.sqrt(Z), 0))
    return np.where(np.isinf(D), 10.0, D)


def given_matrices(seed):
    """Return matrices of different kinds: plain and squared distances, of graphs, and without any geometry."""
    rng, X, Y, p, q = problem(seed)
    C, D = matrices(X, Y)
    kind = seed % 4
    if kind == 1:
        C, D = np.sqrt(C), np.sqrt(D)
    elif kind == 2:
        C, D = (x + x.T for x in (rng.random(C.shape), rng.random(D.shape)))
    elif kind == 3:
        C, D = graph_distances(C), graph_distances(D)
    return C, D, p, q


@pytest.mark.filterwarnings("ignore:the search ended")  # steps on matrices without geometry become ever smaller
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["clouds", "matrices"])
def test_fifty_problems_against_pot(kind):
    above, best = [], []
    for seed in range(50):
        if kind == "clouds":
            _, X, Y, p, q = problem(seed)
            (C, D), metric = matrices(X, Y), "sqeuclidean"
        else:
            C, D, p, q = given_matrices(seed)
            X, Y, metric = C, D, "precomputed"
        other = ot.gromov_wasserstein(C, D, p, q, log=True)[1]["gw_dist"]
        one = gromov_wasserstein(X, Y, p, q, metric=metric, n_starts=1)
        check(one, C, D, p, q)
        above.append(one.value > other + 1e-9)
        best.append(gromov_wasserstein(X, Y, p, q, metric=metric).value <= other + 1e-9)
    assert sum(above) <= 2
    assert all(best)


@pytest.mark.parametrize("seed", range(4))
def test_clouds_from_the_start_of_pot(seed):
    _, X, Y, p, q = problem(seed)
    C, D = matrices(X, Y)
    one = gromov_wasserstein(X, Y, p, q, n_starts=1)
    assert one.value <= ot.gromov_wasserstein(C, D, p, q, log=True)[1]["gw_dist"] + 1e-9
    assert one.status == "local optimum"
    assert len(one.values) == 1
    for result in (one, gromov_wasserstein(X, Y, p, q)):
        check(result, C, D, p, q)
    assert result.value <= one.value


@pytest.mark.parametrize("seed", range(4))
def test_from_the_plan_of_pot_nothing_becomes_worse(seed):
    C, D, p, q = given_matrices(seed)
    plan, log = ot.gromov_wasserstein(C, D, p, q, log=True)
    for start in (plan, sparse.csr_array(plan), [plan, np.outer(p, q)]):
        found = gromov_wasserstein(C, D, p, q, metric="precomputed", start=start)
        check(found, C, D, p, q)
        assert found.value <= log["gw_dist"] + 1e-12
        assert len(found.values) == (2 if isinstance(start, list) else 1)


def test_a_local_optimum_stays():
    _, X, Y, p, q = problem(1)
    first = gromov_wasserstein(X, Y, p, q, n_starts=2)
    again = gromov_wasserstein(X, Y, p, q, start=first.plan)
    assert again.value == pytest.approx(first.value, rel=1e-14)
    assert again.steps <= 2


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("kind", ["clouds, features", "clouds, matrix", "matrices"])
def test_fused_against_pot(kind, alpha):
    for seed in range(3):
        rng, X, Y, p, q = problem(seed)
        C, D = matrices(X, Y)
        cost = PointCost(rng.normal(size=(len(p), 2)), rng.normal(size=(len(q), 2)) + 3)
        M = cost.matrix()
        other = ot.fused_gromov_wasserstein(M, C, D, p, q, alpha=alpha, log=True)[1]["fgw_dist"]
        given_cost = cost if kind == "clouds, features" else M
        clouds = kind != "matrices"
        arguments = (X, Y, p, q) if clouds else (C, D, p, q)
        found = gromov_wasserstein(
            *arguments, metric="sqeuclidean" if clouds else "precomputed", fused=alpha, cost=given_cost
        )
        check(found, C, D, p, q, M, alpha)
        assert found.value <= other + 1e-9
        if alpha == 0:
            assert found.status == "optimal"
        third = gromov_wasserstein(X, Y, p, q, fused=alpha, cost=given_cost, n_starts=1, third_bound=True)
        assert found.lower_bound - 1e-9 * found.scale <= third.lower_bound <= third.value


def shapes():
    """Return clouds with distinct principal variances in one to five dimensions."""
    rng = np.random.default_rng(5)
    for d in range(1, 6):
        yield rng.random((MOST, d)) ** 2 * np.arange(1, d + 1) ** 1.5


@pytest.mark.parametrize("X", list(shapes()), ids=lambda X: f"{X.shape[1]} dimensions")
@pytest.mark.parametrize("more", [0, 2])
def test_isometric_copies(X, more):
    rng = np.random.default_rng(7)
    n, d = X.shape
    turn, order = np.linalg.qr(rng.normal(size=(d + more, d + more)))[0], rng.permutation(n)
    Y = (np.column_stack([X, np.zeros((n, more))]) @ turn + 3)[order]
    result = gromov_wasserstein(X, Y)
    assert result.status == "optimal"
    assert result.value <= 1e-13 * result.scale
    assert (order[result.plan.indices] == np.arange(n)).all()
    assert (gromov_wasserstein(*matrices(X, Y), metric="precomputed").plan != result.plan).nnz == 0


def test_isometric_copies_of_a_ring_need_rotations():
    """The principal variances of a ring with a small mark coincide."""
    rng = np.random.default_rng(3)
    angle = np.linspace(0, 2 * np.pi, 80, endpoint=False)
    X = np.concatenate([np.column_stack([np.cos(angle), np.sin(angle)]), [[1.1, 0.0], [1.1, 0.1]]])
    turn = 1.234
    Y = X @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    order = rng.permutation(len(X))
    result = gromov_wasserstein(X, Y[order], rng=1)
    assert len(result.values) == 1 + 4 + 8
    assert result.value <= gromov_wasserstein(X, Y[order], n_starts=5).value
    assert (gromov_wasserstein(X, Y[order], rng=1).values == result.values).all()
    assert len(gromov_wasserstein(X, Y[order], n_starts=20).values) == 20


clouds = st.integers(0, 10**6).map(np.random.default_rng)


@settings(max_examples=25 if backend().has_simplex else 4, deadline=None)
@given(clouds, st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_isometries_and_permutations_change_nothing(rng, d, e, uniform):
    n, m = rng.integers(2, min(25, MOST), 2)
    X, Y = rng.normal(size=(n, d)) * np.arange(1, d + 1), rng.normal(size=(m, e)) * np.arange(1, e + 1)
    p, q = weights(rng, n, uniform), weights(rng, m, uniform)
    result = gromov_wasserstein(X, Y, p, q)
    check(result, *matrices(X, Y), p, q)
    order, turn = rng.permutation(n), np.linalg.qr(rng.normal(size=(d, d)))[0]
    # from the moved plan, as sets of starts differ by rounding where principal variances nearly coincide
    moved = gromov_wasserstein((X @ turn - 2)[order], Y, p[order], q, start=result.plan[order])
    assert moved.value == pytest.approx(result.value, rel=1e-9, abs=1e-11 * result.scale)
    assert moved.lower_bound == pytest.approx(result.lower_bound, rel=1e-6, abs=1e-9 * result.scale)
    other = gromov_wasserstein(Y, X, q, p, start=result.plan.T)
    assert other.value == pytest.approx(result.value, rel=1e-9, abs=1e-11 * result.scale)


@settings(max_examples=25 if backend().has_simplex else 4, deadline=None)
@given(clouds, st.booleans())
def test_bounds_in_order(rng, uniform):
    n, m = rng.integers(2, min(30, MOST), 2)
    if uniform:
        m = n
    X, Y = rng.normal(size=(n, 2)), rng.random((m, 3))
    p, q = weights(rng, n, uniform), weights(rng, m, uniform)
    C, D = matrices(X, Y)
    result = gromov_wasserstein(X, Y, p, q, third_bound=True)
    check(result, C, D, p, q)
    second = gromov_wasserstein(X, Y, p, q, n_starts=1).lower_bound
    assert second <= result.lower_bound <= result.value
    assert gromov_wasserstein(C, D, p, q, metric="precomputed", n_starts=1).lower_bound == pytest.approx(
        second, rel=1e-9, abs=1e-11 * result.scale
    )
    # the first and the second bound by their definitions
    first = ot.emd2_1d(np.sqrt(C**2 @ p), np.sqrt(D**2 @ q), p, q)
    line = ot.emd2_1d(C.ravel(), D.ravel(), np.outer(p, p).ravel(), np.outer(q, q).ravel())
    assert second == pytest.approx(max(first, line), rel=1e-8, abs=1e-10 * result.scale)


def test_bins_bound_from_below(monkeypatch):
    """Bins instead of sorted distances make the second bound smaller, but little."""
    for seed, metric in ((0, "sqeuclidean"), (1, "euclidean")):  # with weights and without
        _, X, Y, p, q = problem(seed)
        exact = gromov_wasserstein(X, Y, p, q, metric=metric, n_starts=1).lower_bound
        with monkeypatch.context() as patched:
            patched.setattr(search, "_SORTED", 0)
            binned = gromov_wasserstein(X, Y, p, q, metric=metric, n_starts=1).lower_bound
        assert 0.999 * exact <= binned <= exact


def test_matrices_that_are_not_symmetric():
    rng = np.random.default_rng(2)
    C, D = rng.random((20, 20)), rng.random((25, 25))
    p, q = weights(rng, 20, False), weights(rng, 25, False)
    found = gromov_wasserstein(C, D, p, q, metric="precomputed", n_starts=1)
    check(found, C, D, p, q)
    other = ot.gromov_wasserstein(C, D, p, q, symmetric=False, log=True)[1]["gw_dist"]
    assert found.value <= other + 1e-6
    order = rng.permutation(20)
    copy = gromov_wasserstein(C, C[np.ix_(order, order)], metric="precomputed", start=np.eye(20)[:, order] / 20)
    assert copy.status == "optimal"
    assert copy.value < 1e-14


def test_points_without_weight_take_no_part():
    _, X, Y, p, q = problem(0)
    p[3:7] = 0
    p /= p.sum()
    kept = p > 0
    found = gromov_wasserstein(X, Y, p, q)
    assert found.plan.shape == (len(X), len(Y))
    assert found.plan[3:7].nnz == 0
    assert found.value == pytest.approx(gromov_wasserstein(X[kept], Y, p[kept], q).value, rel=1e-12)


@pytest.mark.parametrize("factor", [2.0**-200, 1e-40, 1e30, 2.0**200])
def test_scales(factor):
    _, X, Y, p, q = problem(3)
    plain, scaled = gromov_wasserstein(X, Y, p, q), gromov_wasserstein(X * factor, Y * factor, p, q)
    assert scaled.value / factor**4 == pytest.approx(plain.value, rel=1e-10)
    C, D = matrices(X, Y)
    one = gromov_wasserstein(C, D, p, q, metric="precomputed", n_starts=1)
    two = gromov_wasserstein(C * factor, D * factor, p, q, metric="precomputed", n_starts=1)
    assert two.value / factor**2 == pytest.approx(one.value, rel=1e-10)


def test_points_that_are_all_the_same():
    assert gromov_wasserstein(np.ones((4, 2)), np.ones((3, 1))).value == 0
    assert gromov_wasserstein([[0.0]], [[1.0], [2.0]]).value == pytest.approx(0.5)
    assert gromov_wasserstein([[0.0]], [[1.0]], metric="precomputed").value == 1


@compiled
def test_large_clouds_start_from_coarser_ones():
    rng = np.random.default_rng(0)
    X = rng.random((1500, 2)) ** [1, 2]
    order = rng.permutation(len(X))
    result = gromov_wasserstein(X, X[order][:, ::-1] * [1, -1], n_starts=2)
    assert result.status == "optimal"
    assert (order[result.plan.indices] == np.arange(len(X))).all()


def test_threads_change_nothing():
    _, X, Y, p, q = problem(5)
    one, two = (gromov_wasserstein(X, Y, p, q, n_jobs=n) for n in (None, 2))
    assert (one.values == two.values).all()
    assert (one.plan != two.plan).nnz == 0


def test_budgets():
    from sklearn.exceptions import ConvergenceWarning

    _, X, Y, p, q = problem(2)
    for limit in ({"max_steps": 1}, {"max_seconds": 1e-9}):
        for kind in ("sqeuclidean", "euclidean"):
            with pytest.warns(ConvergenceWarning, match="the search ended before a local optimum"):
                found = gromov_wasserstein(X, Y, p, q, metric=kind, **limit)
            assert found.status == "budget spent"
            assert np.isfinite(found.value)
            np.testing.assert_allclose(found.plan.sum(axis=1), p, atol=1e-12)


def test_reports(capfd, monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    gromov_wasserstein([[0.0], [1.0], [3.0]], [[0.0], [1.0]], verbose=True)
    assert "start 1 of 3: value" in capfd.readouterr().err


def test_what_a_result_shows():
    result = gromov_wasserstein([0.0, 1.0, 3.0], [0.0, 1.0], n_starts=2)
    text = repr(result)
    assert text.startswith(f"<GromovResult value {result.value:.6g} (")
    assert "3 x 2 points" in text
    assert "starts 2" in text
    assert "<table>" in result._repr_html_()


X3, Y3 = np.arange(6.0).reshape(3, 2), np.ones((2, 2))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((X3, [[np.nan]]), {}, ValueError, "Y: has NaN"),
        ((X3, np.ones((2, 2, 2))), {}, ValueError, "Y: expected points as rows"),
        ((X3 * 1e80, Y3), {}, ValueError, r"X: the largest entry is 5e\+80; expected at most 1e\+75"),
        ((X3, Y3), {"metric": "precomputed"}, ValueError, r"X: expected a square matrix with metric='precomputed'"),
        ((Y3, np.diag([np.inf] * 3)), {"metric": "precomputed"}, ValueError, "Y: has NaN or infinite entries"),
        ((X3, Y3), {"metric": 3}, TypeError, "metric: expected the name"),
        ((X3, Y3), {"metric": "nonsense"}, ValueError, "metric: 'nonsense'"),
        ((X3, Y3, [1, 1, 1]), {}, ValueError, "p: expected weights of sum one, got 3"),
        ((X3, Y3, None, [1, 1, 1]), {}, ValueError, "q: expected 2 weights"),
        ((X3, Y3, [-1, 1, 1]), {}, ValueError, "p: "),
        ((X3, Y3, np.ones((2, 3)) / 3), {}, ValueError, "p: expected one measure, got 2"),
        ((X3, Y3), {"fused": 0.5}, ValueError, "cost: expected a cost between features"),
        ((X3, Y3), {"cost": np.ones((3, 2))}, ValueError, "cost: .* together with fused"),
        ((X3, Y3), {"fused": 1.5, "cost": np.ones((3, 2))}, ValueError, "fused: expected a number from 0 to 1"),
        ((X3, Y3), {"fused": 0.5, "cost": np.ones((2, 3))}, ValueError, r"cost: expected shape \(3, 2\)"),
        ((X3, Y3), {"fused": 0.5, "cost": [[1, 1], [1, np.inf], [1, 1]]}, ValueError, "cost: has infinite"),
        ((X3, Y3), {"start": np.ones((2, 2))}, ValueError, r"start: expected a plan of shape \(3, 2\)"),
        ((X3, Y3), {"start": [np.full((3, 2), 1 / 6), np.ones((3, 2))]}, ValueError, r"start\[1\]: its marginal"),
        ((X3, Y3), {"start": -np.ones((3, 2))}, ValueError, "start: has negative entries"),
        ((X3, Y3), {"start": np.full((3, 2), 1 / 6), "n_starts": 2}, ValueError, "n_starts: .* without start"),
        ((X3, Y3), {"n_starts": 0}, ValueError, "n_starts: expected at least 1"),
        ((X3, Y3), {"max_steps": 0}, ValueError, "max_steps"),
        ((X3, Y3), {"max_seconds": 0}, ValueError, "max_seconds"),
        ((X3, Y3), {"rng": -1}, ValueError, "rng: expected an integer"),
        ((X3, Y3), {"verbose": "yes"}, TypeError, "verbose"),
        ((np.ones((2001, 1)), Y3), {"third_bound": True}, ValueError, "third_bound: expected at most 2,000 points"),
    ],
)
def test_what_is_refused(arguments, options, error, message):
    with pytest.raises(error, match=message):
        gromov_wasserstein(*arguments, **options)
