from __future__ import annotations

from itertools import product

import numpy as np
import ot
import pytest
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist

from cases import TREE_METRICS, solve_points
from gibbsot import PointCost
from gibbsot.core import native
from gibbsot.core.backend import backend
from gibbsot.exact.highs import HighsProblem
from gibbsot.exact.line import solve_line
from gibbsot.exact.simplex import ArcProblem, solve_dense
from kernels import using

if native.name() == "numpy":
    pytest.skip("the engine is compiled", allow_module_level=True)


def random_problem(n: int, m: int, kind: str, seed: int = 0):
    rng = np.random.default_rng(seed)
    C = {
        "random": lambda: rng.random((n, m)),
        "plane": lambda: ot.dist(rng.random((n, 2)), rng.random((m, 2))),
        "integer": lambda: np.floor(20 * rng.random((n, m))),
    }[kind]()
    return C, rng.random(n) + 1e-3, rng.random(m) + 1e-3


def highs(C, p, q):
    n, m = C.shape
    rows, columns = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    right = np.concatenate([p / p.sum(), q / q.sum()])
    return linprog(C.ravel(), A_eq=np.vstack([rows, columns])[:-1], b_eq=right[:-1]).fun


@pytest.mark.parametrize("kind", ["random", "plane", "integer"])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 7), (7, 1), (5, 9), (30, 20), (150, 170), (60, 700)])
def test_dense_agrees_with_pot_and_highs(kind, n, m):
    C, p, q = random_problem(n, m, kind)
    answer = solve_dense(C, p, q)
    assert answer.status == ["optimal"]
    assert answer.upper[0] == pytest.approx(ot.emd2(p / p.sum(), q / q.sum(), C), rel=1e-9, abs=1e-12)
    if n * m < 1000:
        assert answer.upper[0] == pytest.approx(highs(C, p, q), rel=1e-7, abs=1e-9)
    plan = answer.plan()
    np.testing.assert_allclose(plan.sum(axis=1), p / p.sum(), rtol=1e-14)
    np.testing.assert_allclose(plan.sum(axis=0), q / q.sum(), rtol=1e-14)
    assert plan.nnz <= n + m - 1
    assert (answer.f[0][:, None] + answer.g[0] <= C).all()


@pytest.mark.parametrize("tiny", [1.0, 1e-30])
@pytest.mark.parametrize("forbidden", [0.0, 0.7])
def test_near_arcs_of_many_columns(forbidden, tiny):
    rng = np.random.default_rng(2)
    n, m = 40, 643
    C, p, q = np.floor(50 * rng.random((n, m))), rng.random(n), rng.random(m)
    C[(rng.random((n, m)) < forbidden) & (np.arange(m) % n != np.arange(n)[:, None])] = np.inf
    C[:, 1::3] = C[:, 0:-1:3]  # duplicates
    p[::7], q[::5] = tiny, tiny
    answer = solve_dense(C, p, q)
    assert answer.status == ["optimal"]
    large = np.where(np.isfinite(C), C, 1e6)
    assert answer.upper[0] == pytest.approx(ot.emd2(p / p.sum(), q / q.sum(), large), rel=1e-9)
    assert answer.lower[0] <= answer.upper[0]
    assert (answer.f[0][:, None] + answer.g[0] <= C).all()


def test_near_arcs_of_an_assignment():
    C = np.random.default_rng(3).random((700, 700))
    i, j = linear_sum_assignment(C)
    answer = solve_dense(C, np.ones(700), np.ones(700))
    assert answer.status == ["optimal"]
    assert answer.upper[0] == pytest.approx(C[i, j].mean(), rel=1e-12)


def test_dense_batch_does_not_depend_on_threads():
    C, _, _ = random_problem(40, 30, "plane")
    rng = np.random.default_rng(1)
    P, Q = rng.random((20, 40)), rng.random((20, 30))
    P[rng.random(P.shape) < 0.5] = 0
    one, two = solve_dense(C, P, Q), solve_dense(C, P, Q, threads=2)
    for name in ("lower", "upper", "f", "g"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    for b in range(20):
        W = ot.emd2(P[b] / P[b].sum(), Q[b] / Q[b].sum(), C)
        assert one.upper[b] == pytest.approx(W, rel=1e-9)
        assert (one.f[b][:, None] + one.g[b] <= C).all()  # points without weight too


def test_no_mass_is_lost():
    answer = solve_dense([[0.0], [1e16]], [1.0, 1e-16], [1.0])
    assert answer.status == ["optimal"]
    assert answer.lower[0] <= 1 <= answer.upper[0] + 1e-15
    assert answer.upper[0] == pytest.approx(1, rel=1e-14)


def every_arc(n: int, m: int):
    return np.indices((n, m)).reshape(2, -1)


def test_arcs_are_added_and_the_basis_stays():
    C, p, q = random_problem(80, 90, "plane")
    i, j = every_arc(80, 90)
    problem = ArcProblem(p, q)
    few = np.argsort(C.ravel())[:500]
    problem.add(i[few], j[few], C.ravel()[few])
    problem.start(np.zeros(80), np.zeros(90), 10.0)
    problem.optimise()
    before = problem.pivots
    rest = np.setdiff1d(np.arange(7200), few)
    problem.add(i[rest], j[rest], C.ravel()[rest])
    assert problem.optimise()
    assert problem.value == pytest.approx(ot.emd2(p / p.sum(), q / q.sum(), C), rel=1e-10)
    assert problem.pivots > before
    f, g = problem.potentials()
    assert (C - f[:, None] - g).min() > -1e-12


def test_costs_and_weights_change():
    C, p, q = random_problem(100, 100, "plane")
    i, j = every_arc(100, 100)
    problem = ArcProblem(p, q)
    problem.add(i, j, C.ravel())
    problem.start(np.zeros(100), np.zeros(100), 4.0)
    assert problem.optimise()
    first = problem.pivots
    rng = np.random.default_rng(3)
    moved = C * (1 + 0.01 * rng.random(C.shape))
    problem.set_costs(moved.ravel())
    assert problem.optimise()
    assert problem.value == pytest.approx(ot.emd2(p / p.sum(), q / q.sum(), moved), rel=1e-10)
    assert problem.pivots - first < first
    p2 = p * (1 + 0.01 * rng.random(100))
    problem.set_weights(p2, q, 4.0)
    assert problem.optimise()
    assert problem.value == pytest.approx(ot.emd2(p2 / p2.sum(), q / q.sum(), moved), rel=1e-10)


@pytest.mark.parametrize("kind", ["random", "plane", "integer"])
def test_a_near_basis_saves_pivots_and_changes_no_optimum(kind):
    rng = np.random.default_rng(5)
    C, _, _ = random_problem(60, 70, kind)
    P, Q = rng.random((8, 60)), rng.random((8, 70))
    P[rng.random(P.shape) < 0.3] = 0
    first = solve_dense(C, P, Q)
    moved = [x * (1 + 0.01 * rng.random(x.shape)) for x in (C, P, Q)]
    moved[1][:, :3] = rng.random((8, 3))  # points that gain weight or lose it
    moved[2][:, 3:5] = 0
    for costs, p, q in ((moved[0], P, Q), (C, *moved[1:]), moved):
        cold, warm = solve_dense(costs, p, q), solve_dense(costs, p, q, basis=first.basis)
        two = solve_dense(costs, p, q, basis=first.basis, threads=2)
        assert warm.status == ["optimal"] * 8
        np.testing.assert_allclose(warm.upper, cold.upper, rtol=1e-13)
        np.testing.assert_allclose(warm.lower, cold.lower, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(warm.upper, two.upper)
        assert warm.pivots.sum() < cold.pivots.sum() / 2
        for b in range(8):
            np.testing.assert_allclose(warm.plan(b).sum(axis=1), p[b] / p[b].sum(), rtol=1e-14)


def test_any_arcs_are_a_start():
    rng = np.random.default_rng(0)
    C, p, q = random_problem(9, 7, "integer")
    C[rng.random(C.shape) < 0.2] = np.inf
    W = solve_dense(C, p, q).upper[0]
    for _ in range(50):
        basis = rng.integers(-1, 9, 30), rng.integers(-1, 7, 30)  # cycles, duplicates and forbidden arcs
        answer = solve_dense(C, p, q, basis=basis)
        assert answer.status == ["optimal"]
        assert answer.upper[0] == pytest.approx(W, rel=1e-13)
    with pytest.raises(ValueError, match="basis"):
        solve_dense(C, p, q, basis=([9], [0]))


def test_arcs_start_from_a_basis():
    C, p, q = random_problem(80, 90, "plane")
    i, j = every_arc(80, 90)
    first = ArcProblem(p, q)
    first.add(i, j, C.ravel())
    first.start(np.zeros(80), np.zeros(90), 4.0)
    assert first.optimise()
    moved = p * (1 + 0.01 * np.random.default_rng(0).random(80))
    warm = ArcProblem(moved, q)
    warm.add(i, j, C.ravel())
    warm.start(*first.potentials(), 4.0, basis=first.basis()[2])
    assert warm.optimise()
    assert warm.value == pytest.approx(ot.emd2(moved / moved.sum(), q / q.sum(), C), rel=1e-10)
    assert warm.pivots < first.pivots / 4


@pytest.mark.parametrize("metric", TREE_METRICS)
@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_points_agree_with_pot(d, metric):
    rng = np.random.default_rng(d)
    X, Y = rng.random((900, d)), rng.random((700, d))
    p, q = rng.random(900), rng.random(700)
    p[::3] = 0
    answer = solve_points(X, Y, p, q, metric)
    C = cdist(X, Y, metric)
    assert answer.status == "optimal"
    assert answer.upper == pytest.approx(ot.emd2(p / p.sum(), q / q.sum(), C, numItermax=10**7), rel=1e-9)
    np.testing.assert_allclose(answer.plan.sum(axis=1)[p > 0], (p / p.sum())[p > 0], rtol=1e-13)
    assert (C - answer.f[:, None] - answer.g).min() > -1e-14
    assert answer.lower <= answer.upper


def test_points_with_ties():
    X = np.repeat(np.indices((20, 20)).reshape(2, -1).T.astype(float), 2, axis=0)
    answer = solve_points(X, X[::-1] + np.array([0.0, 3.0]))
    assert answer.status == "optimal"
    assert answer.upper == pytest.approx(9)


def test_nearest_is_that_of_the_matrix():
    rng = np.random.default_rng(0)
    X, Y, random = rng.random((300, 2)), rng.random((400, 2)), rng.random(400)
    steep = 0.9 * Y[:, 0] - 0.05 * Y[:, 1] + 0.01 * random  # as optimal potentials are
    for metric, h in product(("sqeuclidean", "euclidean", "cityblock", "chebyshev"), (random, steep, 3 * steep)):
        C = cdist(X, Y, metric)
        points = PointCost(X, Y, metric).by_trees()
        found, sums = points.nearest(h, 5)
        np.testing.assert_array_equal(found, np.argsort(C + h, axis=1)[:, :5])
        np.testing.assert_allclose(sums, np.sort(C + h, axis=1)[:, :5], rtol=1e-13)
        np.testing.assert_allclose(points.row_min(h), (C + h).min(axis=1), rtol=1e-13)


@pytest.mark.parametrize("shape", [(500,), (25, 31), (9, 10, 8)])
def test_grids_agree_with_pot(shape):
    rng = np.random.default_rng(0)
    p, q = (rng.random(shape) * (rng.random(shape) < 0.8) for _ in range(2))
    x = 0.1 * np.indices(shape).reshape(len(shape), -1).T
    answer = solve_points(x, x, p.ravel(), q.ravel())
    W = ot.emd2(p.ravel() / p.sum(), q.ravel() / q.sum(), ot.dist(x, x), numItermax=10**7)
    assert answer.status == "optimal"
    assert answer.upper == pytest.approx(W, rel=1e-9)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_line_agrees_with_pot(power):
    rng = np.random.default_rng(0)
    x, y, p, q = rng.normal(size=200), rng.normal(size=150), rng.random(200), rng.random(150)
    p[::4] = 0
    answer = solve_line(x, y, p, q, power)
    C = np.abs(x[:, None] - y) ** power
    assert answer.status == "optimal"
    assert answer.upper == pytest.approx(ot.emd2(p / p.sum(), q / q.sum(), C), rel=1e-9)
    assert (C - answer.f[:, None] - answer.g).min() > -1e-14
    np.testing.assert_allclose(answer.plan.sum(axis=0), q / q.sum(), rtol=1e-14)


@pytest.mark.parametrize("engine", [ArcProblem, HighsProblem])
def test_both_engines_answer_the_same_questions(engine):
    """Value, basis and what they carry, on a tree that carries all mass, and on one that does not."""
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.75])
    problem = engine(p, q)
    i, j, cost = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1]), np.array([3.0, 1.0, 2.0, 4.0])
    problem.add(i[:3], j[:3], cost[:3])
    problem.start(np.zeros(3), np.zeros(2), 100.0)
    assert not problem.optimise(0.0, -np.inf)
    assert not problem.carried
    problem.add(i[3:], j[3:], cost[3:])
    assert problem.optimise(0.0, -np.inf)
    assert problem.carried
    assert problem.value == pytest.approx(0.25 * 3 + 0.25 * 1 + 0.25 * 2 + 0.25 * 4, rel=1e-12)
    rows, columns, arcs, flows = problem.basis()
    own = arcs >= 0
    assert len(rows) == 5
    assert sorted(arcs[own]) == [0, 1, 2, 3]
    np.testing.assert_array_equal(rows[own], i[arcs[own]])
    np.testing.assert_array_equal(columns[own], j[arcs[own]])
    np.testing.assert_allclose(flows[own], 0.25, rtol=1e-15)
    assert (flows[~own] == 0).all()
    f, g = problem.potentials()
    np.testing.assert_allclose((f[rows] + g[columns])[own], cost[arcs[own]], rtol=1e-12)


# uniform weights on as many rows as columns: augmenting paths


def square(kind, n, seed=0):
    rng = np.random.default_rng([seed, n])
    if kind == "high dimension":
        return cdist(rng.normal(size=(n, 20)), rng.normal(size=(n, 20)) + 0.5, "sqeuclidean")
    if kind == "plane":  # where bids settle few rows, and the simplex goes on
        return cdist(rng.random((n, 2)), rng.random((n, 2)), "sqeuclidean")
    if kind == "ties":
        return np.floor(3 * rng.random((n, n)))
    if kind == "negative":
        return rng.normal(size=(n, n))
    C = rng.random((n, n))
    C[(rng.random((n, n)) < 0.9) & ~np.eye(n, dtype=bool)] = np.inf
    return C


@pytest.mark.parametrize("kind", ["high dimension", "plane", "ties", "negative", "forbidden"])
@pytest.mark.parametrize("n", [48, 61, 200])
def test_assignments_agree_with_scipy(kind, n):
    C = square(kind, n)
    i, j = linear_sum_assignment(C)
    answer = solve_dense(C, np.ones(n), np.full(n, 0.3))
    assert answer.status == ["optimal"]
    assert answer.upper[0] == pytest.approx(C[i, j].mean(), rel=1e-11, abs=1e-11)
    assert (answer.f[0][:, None] + answer.g[0] <= C).all()
    plan = answer.plan()
    np.testing.assert_allclose(plan.sum(axis=0), 1 / n, rtol=1e-14)
    np.testing.assert_allclose(plan.sum(axis=1), 1 / n, rtol=1e-14)


def test_assignments_and_weights_that_are_nearly_uniform():
    """One weight decides whether paths or the simplex solve a problem."""
    C, n = square("high dimension", 100), 100
    first = solve_dense(C, np.ones(n), np.ones(n))
    other = solve_dense(C, np.r_[1 + 1e-14, np.ones(n - 1)], np.ones(n))
    assert first.pivots[0] == 0
    assert other.pivots[0] > 0
    assert other.upper[0] == pytest.approx(first.upper[0], rel=1e-12)
    again = solve_dense(C, np.ones(n), np.ones(n), basis=first.basis)
    assert again.status == ["optimal"]
    np.testing.assert_array_equal(again.plan().indices, first.plan().indices)


def test_assignments_that_are_forbidden():
    C = square("negative", 60)
    C[:2, 1:] = np.inf  # both rows need column 0
    assert solve_dense(C, np.ones(60), np.ones(60)).status == ["infeasible"]


def test_assignments_of_far_costs():
    """Where rounded potentials prove nothing, the simplex takes another look from the same assignment."""
    C = np.where(np.eye(60, dtype=bool), 1.0, 1e17) + square("high dimension", 60)
    answer = solve_dense(C, np.ones(60), np.ones(60))
    assert answer.lower[0] <= C.trace() / 60 <= answer.upper[0]


@pytest.mark.parametrize("kind", ["high dimension", "ties"])
def test_assignments_are_bit_identical_for_all_kernels(kind):
    C, found = square(kind, 150), []
    for name in native.available():
        if name == "numpy":
            continue
        with using(name):
            answer = solve_dense(C, np.ones(150), np.ones(150))
            single = backend().assign(C.astype(np.float32), np.inf, backend().stop_flag())
            found.append((answer.f[0], answer.g[0], answer.plan().indices, answer.lower, answer.upper, *single))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
