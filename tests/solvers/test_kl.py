"""Unbalanced transport with divergences: against another solver, closed forms, differences and limits."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize
from scipy.spatial import Delaunay

from gibbsot import DenseCost, GraphCost, GridCost, PointCost, SparseCost, solve, solve_batch
from gibbsot.core import native
from gibbsot.exact.graph import NetworkProblem
from gibbsot.oracle.gradients import weight_gradients
from gibbsot.solvers import kl
from gibbsot.solvers.kl import Unbalanced

RNG = np.random.default_rng(35)


def objective(Z, M, p, q, kl):
    """The primal objective, computed plainly."""
    value = float((np.where(Z > 0, M, 0) * Z).sum())
    for a, w, rho in ((Z.sum(axis=1), p, kl[0]), (Z.sum(axis=0), q, kl[1])):
        if math.isfinite(rho):
            value += rho * float(np.where(a > 0, a * np.log(np.where(a > 0, a, 1) / w), 0).sum() - a.sum() + w.sum())
    return value


def reference(p, q, M, kl):
    """The dual optimum by SciPy's SLSQP, which knows nothing of transport."""
    m1, m2 = M.shape
    i, j = np.nonzero(np.isfinite(M))
    A = np.zeros((len(i), m1 + m2))
    A[np.arange(len(i)), i] = A[np.arange(len(i)), m1 + j] = 1
    w, rho = np.concatenate([p, q]), np.repeat(kl, (m1, m2)).astype(float)
    unit = float(np.median(M[i, j])) or 1.0

    def fun(x):
        x = x * unit
        some = np.where(np.isinf(rho), 1.0, rho)
        gain = np.where(np.isinf(rho), x, -some * np.expm1(-x / some))
        return -float(w @ gain), -w * np.where(np.isinf(rho), 1, np.exp(-x / rho)) * unit

    bounds = {"type": "ineq", "fun": lambda x: M[i, j] / unit - A @ x, "jac": lambda _: -A}
    options = {"ftol": 1e-15, "maxiter": 2000}
    start = np.zeros(m1 + m2) + min(0.0, float(M[i, j].min())) / unit
    return -minimize(fun, start, jac=True, constraints=[bounds], method="SLSQP", options=options).fun


def measures(m1, m2, mass=1.0, rng=RNG):
    """Two measures of different masses."""
    return rng.dirichlet(np.ones(m1)), mass * rng.dirichlet(np.ones(m2))


def dense(rng):
    return DenseCost(rng.random((5, 6)))


def signed(rng):
    return DenseCost(rng.random((5, 6)) - 0.3)


def points(rng):
    return PointCost(rng.random((6, 2)), rng.random((5, 2)))


def plain(rng):
    return PointCost(rng.random((5, 3)), rng.random((5, 3)), "euclidean")


def grid(rng):
    return GridCost((2, 3), power=rng.choice([1.0, 1.5, 2.0]), spacing=rng.random() + 0.2)


def graph(rng):
    lengths = rng.random((6, 6)) * (rng.random((6, 6)) < 0.5) + np.diag(rng.random(5) + 0.1, 1)
    return GraphCost(sparse.csr_array(lengths), directed=False)


def pairs(rng):
    return SparseCost(sparse.csr_array(np.where(rng.random((5, 5)) < 0.4, rng.random((5, 5)), 0) + np.eye(5)))


KINDS = [dense, signed, points, plain, grid, graph, pairs]
FAST = 15  # problems of each kind that fast tests take, of 100


def random_problem(kind, seed):
    """Measures of different masses, a cost, and weights of which every fifth fixes a marginal."""
    rng = np.random.default_rng(seed)
    cost = kind(rng)
    p, q = measures(*cost.shape, mass=10.0 ** rng.uniform(-1, 1), rng=rng)
    kl = tuple(10.0 ** rng.uniform(-1.5, 1, 2))
    return p, q, cost, (np.inf, kl[1]) if kind is not pairs and seed % 5 == 4 else kl


def compare_with_reference(kind, seed):
    """The optimum of another solver is inside the certified bounds, whatever the gap that was asked for."""
    p, q, cost, kl = random_problem(kind, seed)
    M = cost.matrix()
    expected = reference(p, q, M, kl)
    slack = 1e-10 * max(abs(expected), 1e-2 * sum(x for x in kl if np.isfinite(x)))  # of the reference
    for gap in (None, 1e-6, 1e-9):
        result = solve(p, q, cost, kl=kl, gap=gap)
        assert result.status in ("optimal", "gap reached")
        assert result.gap <= (gap or 1e-4)
        # it maximises the dual problem: it may stop early, and nothing is above the optimum
        assert result.lower_bound - 100 * slack <= expected <= result.upper_bound + slack
    Z = result.plan.toarray()
    assert result.lower_bound <= objective(Z, M, p, q, kl) * (1 + 1e-12) + 1e-12
    assert objective(Z, M, p, q, kl) == pytest.approx(result.value, rel=1e-11, abs=1e-13)
    np.testing.assert_allclose(result.marginals[0], Z.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(result.marginals[1], Z.sum(axis=0), rtol=1e-12)
    f, g = result.potentials
    finite = np.isfinite(M)
    assert ((f[:, None] + g)[finite] <= M[finite] + 1e-12).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(FAST))
def test_another_solver_finds_the_same_optimum(kind, seed):
    compare_with_reference(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_another_solver_finds_the_same_optimum_of_100_problems(kind):
    for seed in range(FAST, 100):
        compare_with_reference(kind, seed)


@pytest.mark.parametrize("share", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("mass", [1.0, 3.0])
def test_all_weights_of_the_divergence_are_proved(share, mass):
    X, Y = RNG.random((2, 60, 2))
    cost = PointCost(X, Y)
    p, q = measures(60, 60, mass)
    result = solve(p, q, cost, kl=share * float(cost.matrix().mean()), gap=1e-8)
    assert result.gap <= 1e-8
    assert result.status in ("optimal", "gap reached")


def test_large_weights_give_balanced_transport_and_small_ones_nothing():
    cost = PointCost(RNG.random((30, 2)))
    p, q = measures(30, 30)
    balanced = solve(p, q, cost).value
    assert solve(p, q, cost, kl=1e8, gap=1e-9).value == pytest.approx(balanced, rel=1e-6)
    assert solve(p, q, cost, kl=np.inf).value == balanced
    assert solve(p, q, cost, kl=1e-9, gap=1e-9).value <= 2e-9
    with pytest.raises(ValueError, match="normalize=True"):
        solve(p, 2 * q, cost, kl=np.inf)


@pytest.mark.parametrize("c", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("kl", [(0.5, 0.5), (0.2, 3.0), (1.0, np.inf)])
def test_one_pair_in_closed_form(c, kl):
    p, q = 2.0, 0.7
    z = q if math.isinf(kl[1]) else math.exp((kl[0] * math.log(p) + kl[1] * math.log(q) - c) / sum(kl))
    expected = objective(np.array([[z]]), np.array([[c]]), np.array([p]), np.array([q]), kl)
    result = solve([p], [q], [[c]], kl=kl, gap=0)
    assert result.status == "optimal"
    assert result.value == pytest.approx(expected, rel=1e-10)
    assert result.lower_bound <= expected * (1 + 1e-15)
    assert result.transported == pytest.approx(z, rel=1e-5)


@pytest.mark.skipif(native.name() == "numpy", reason="takes minutes without compiled kernels")
@pytest.mark.parametrize("m", [450, 1100])
@pytest.mark.parametrize("kind", ["points", "grid", "zeros", "small rho"])
def test_large_problems_start_from_coarser_ones(kind, m):
    """The optimum is that of the matrix, from which nothing is made coarser."""
    rng = np.random.default_rng(m)
    side = round(m**0.5)
    cost = GridCost((side, side)) if kind == "grid" else PointCost(rng.random((m, 2)), rng.random((m + 5, 2)))
    p, q = measures(*cost.shape, 2.0, rng)
    if kind == "zeros":
        p[rng.random(len(p)) < 0.2] = 0
        q[rng.random(len(q)) < 0.2] = 0
    rho = 1e-4 if kind == "small rho" else 0.05
    found, other = (solve(p, q, C, kl=rho, gap=1e-6) for C in (cost, DenseCost(cost.matrix())))
    assert found.gap <= 1e-6
    assert found.value == pytest.approx(other.value, rel=2e-6)
    assert found.lower_bound <= other.upper_bound
    assert other.lower_bound <= found.upper_bound
    again = solve(p, q, cost, kl=rho, gap=1e-6, warm_start=found)
    assert again.gap <= 1e-6
    assert again.parts[0].solved[0].rounds <= 2


@pytest.mark.skipif(native.name() == "numpy", reason="takes minutes without compiled kernels")
@pytest.mark.parametrize("kl", [0.02, 0.3, (0.1, np.inf)], ids=str)
def test_planar_graphs_have_the_optimum_of_the_matrix_of_all_pairs(kl):
    rng = np.random.default_rng(7)
    X = rng.random((350, 2))
    sides = np.concatenate([Delaunay(X).simplices[:, pair] for pair in ([0, 1], [1, 2], [2, 0])])
    ends = np.unique(np.sort(sides, axis=1), axis=0)
    lengths = sparse.coo_array((np.linalg.norm(X[ends[:, 0]] - X[ends[:, 1]], axis=1), ends.T), (350, 350))
    cost = GraphCost(lengths, directed=False)
    p, q = rng.dirichlet(np.ones(350), 2)
    found = solve(p, q, cost, kl=kl)
    expected = solve(p, q, DenseCost(cost.matrix()), kl=kl, gap=1e-9)
    assert found.status == "gap reached"
    assert found.gap <= 1e-4
    assert found.lower_bound <= expected.upper_bound
    assert expected.lower_bound <= found.upper_bound
    assert found.value == pytest.approx(expected.value, rel=1.01e-4)
    assert objective(found.plan.toarray(), cost.matrix(), p, q, np.broadcast_to(kl, 2)) == pytest.approx(found.value)


@pytest.mark.skipif(native.name() == "numpy", reason="without compiled kernels there are no trees")
@pytest.mark.parametrize("kind", ["graph", "sparse"])
def test_linear_problems_on_networks_start_from_the_last_tree(kind, monkeypatch):
    """Also where points without a partner leave their mass, at additional points."""
    rng, trees, begin = np.random.default_rng(8), [], NetworkProblem.begin
    pairs = sparse.csr_array(np.where(rng.random((60, 60)) < 0.1, rng.random((60, 60)), 0))
    cost = GraphCost(pairs, directed=False) if kind == "graph" else SparseCost(pairs)
    p, q = rng.dirichlet(np.ones(60), 2)

    def recorded(self, links=None, artificial=None):
        trees.append(links)
        begin(self, links, artificial)

    monkeypatch.setattr(NetworkProblem, "begin", recorded)
    assert solve(p, q, cost, kl=0.2, gap=1e-6).gap <= 1e-6
    assert trees[0] is None
    assert len(trees) > 1
    assert all(len(links) > 30 for links in trees[1:])


@pytest.mark.skipif(native.name() == "numpy", reason="takes minutes without compiled kernels")
@pytest.mark.parametrize("weight", [0.05, (0.05, np.inf)])
def test_rough_corrections_of_large_problems(weight, monkeypatch):
    """They follow the first step where potentials of a coarser problem are near; the optimum is that of the matrix."""
    rng = np.random.default_rng(3)
    cost = PointCost(rng.random((500, 2)), rng.random((450, 2)))
    p, q = measures(500, 450, 2.0, rng)
    other = solve(p, q, DenseCost(cost.matrix()), kl=weight, gap=1e-7)
    monkeypatch.setattr(kl, "_SMALL", 0)
    monkeypatch.setattr(kl, "_NEAR", 1.0)
    rough, corrected = [], kl._Steps._corrected

    def counted(steps, here, arcs, **options):
        rough.append(options.get("rough", False))
        return corrected(steps, here, arcs, **options)

    monkeypatch.setattr(kl._Steps, "_corrected", counted)
    found = solve(p, q, cost, kl=weight, gap=1e-7)
    assert any(rough)
    assert not all(rough)
    assert found.gap <= 1e-7
    assert found.value == pytest.approx(other.value, rel=2e-7)
    assert found.lower_bound <= other.upper_bound
    assert other.lower_bound <= found.upper_bound


@pytest.mark.parametrize("kl", [0.3, (0.1, 2.0), (np.inf, 0.5)])
def test_gradients_are_those_of_central_differences(kl):
    cost = PointCost(RNG.random((6, 2)), RNG.random((7, 2)))
    p, q = measures(6, 7, 1.5)
    of = Unbalanced(cost, kl)
    found = weight_gradients(p[None], q[None], of)
    for gradient, side in ((found.p[0], 0), (found.q[0], 1)):
        for k in range(len(gradient)):
            values = []
            for h in (-1e-4, 1e-4):
                moved = [p.copy(), q.copy()]
                moved[side][k] += h
                values.append(solve(*moved, cost, kl=kl, gap=0).value)
            assert gradient[k] == pytest.approx((values[1] - values[0]) / 2e-4, rel=2e-2, abs=2e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-2, 2), st.floats(-2, 2), st.sampled_from([2.0**-30, 8.0, 2.0**40]))
def test_units_and_sides_do_not_matter(seed, first, second, unit):
    rng = np.random.default_rng(seed)
    M = rng.random((8, 9))
    p, q = measures(8, 9, 2.0, rng)
    kl = 10.0**first, 10.0**second
    one = solve(p, q, M, kl=kl, gap=1e-8)
    others = [
        solve(p, q, unit * M, kl=(unit * kl[0], unit * kl[1]), gap=1e-8).value / unit,
        solve(unit * p, unit * q, M, kl=kl, gap=1e-8).value / unit,
        solve(q, p, M.T, kl=kl[::-1], gap=1e-8).value,
    ]
    assert others == pytest.approx([one.value] * 3, rel=3e-8)


def test_batches_threads_and_warm_starts():
    cost = GridCost((8, 8))
    P, Q = RNG.dirichlet(np.ones(64), 4), 2 * RNG.dirichlet(np.ones(64), 4)
    batch = solve_batch(P, Q, cost, kl=0.1)
    assert batch.status == ["gap reached"] * 4
    threads = solve_batch(P, Q, cost, kl=0.1, n_jobs=2)
    np.testing.assert_array_equal(batch.value, threads.value)
    single = solve(P[1], Q[1], cost, kl=0.1)
    assert single.value == batch.value[1]
    assert batch.marginals[0].shape == (4, 64)
    warm = solve(P[1], Q[1], cost, kl=0.1, warm_start=single, gap=1e-8)
    assert warm.gap <= 1e-8
    assert warm.value <= single.upper_bound
    ragged = solve_batch(None, None, [PointCost(RNG.random((k, 2))) for k in (3, 5)], kl=1.0)
    np.testing.assert_allclose(ragged.value, 0, atol=1e-12)
    with pytest.raises(ValueError, match="warm_start"):
        solve(P[0], P[1], cost, warm_start=single)


def test_points_without_weight_and_single_precision():
    cost = PointCost(RNG.random((20, 2)), dtype=np.float32)
    p, q = measures(20, 20)
    p[:5] = q[7:9] = 0
    result = solve(p, q, cost, kl=0.2, gap=1e-7)
    inside = solve(p[5:], np.delete(q, [7, 8]), PointCost(cost.X[5:], np.delete(cost.X, [7, 8], 0)), kl=0.2, gap=1e-7)
    assert result.value == pytest.approx(inside.value, rel=1e-6)
    assert not result.plan.toarray()[:5].any()


@pytest.mark.skipif(native.name() == "numpy", reason="without compiled kernels linear problems search such costs")
@pytest.mark.parametrize("weight", [0.3, (0.3, np.inf)], ids=str)
def test_without_time_no_costs_are_searched_in_a_graph(weight, monkeypatch):
    """Such a search may visit the whole graph; a fixed marginal needs a plan all the same."""
    rng, asked, at = np.random.default_rng(9), [], GraphCost.at
    cost = GraphCost(sparse.csr_array(np.where(rng.random((40, 40)) < 0.2, rng.random((40, 40)), 0)), directed=False)
    p, q = rng.dirichlet(np.ones(40), 2)
    value = solve(p, q, cost, kl=weight, gap=1e-8).value
    monkeypatch.setattr(GraphCost, "at", lambda self, i, j: asked.append(np.size(i)) or at(self, i, j))
    with pytest.warns(match="open gap"):
        early = solve(p, q, cost, kl=weight, max_seconds=1e-9)
    assert early.status == "budget spent"
    assert early.lower_bound <= value * (1 + 1e-8)
    assert early.upper_bound >= value * (1 - 1e-8)
    assert (sum(asked) > 0) == isinstance(weight, tuple)


def test_time_is_kept_and_bounds_are_valid():
    X, Y = RNG.random((2, 400, 2))
    with pytest.warns(match="open gap"):
        early = solve(None, None, PointCost(X, Y), kl=0.1, gap=1e-9, max_seconds=1e-6)
    assert early.status == "budget spent"
    value = solve(None, None, PointCost(X, Y), kl=0.1, gap=1e-9).value
    assert early.lower_bound <= value <= early.upper_bound


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kl": 0}, "kl: expected a positive number"),
        ({"kl": -1.0}, "kl: expected a positive number"),
        ({"kl": math.nan}, "kl"),
        ({"kl": (1, 2, 3)}, "kl: expected a positive number, or a pair"),
        ({"kl": 1, "penalty": 1}, "no penalty"),
        ({"kl": 1, "mass": 1}, "no mass"),
        ({"kl": 1, "normalize": True}, "no normalize"),
        ({"kl": 1, "method": "gibbs"}, "sampler"),
    ],
)
def test_errors_name_the_argument(options, message):
    with pytest.raises(ValueError, match=message):
        solve([1], [1], [[1.0]], **options)


def test_forbidden_pairs_need_finite_weights():
    with pytest.raises(ValueError, match="kl: expected finite numbers"):
        solve([1, 1], [1, 1], [[1.0, np.inf], [1.0, 1.0]], kl=(1, np.inf))
