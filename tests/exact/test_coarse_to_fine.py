"""Points and grids solved from coarse to fine: the optimum of the whole matrix, gaps, and degenerate measures."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from cases import TREE_METRICS, solve_points
from gibbsot import GridCost, PointCost, solve
from gibbsot.core import native
from gibbsot.exact import coarse_to_fine as multiscale

pytestmark = pytest.mark.skipif(native.name() == "numpy", reason="by compiled kernels")


def check(answer, X, Y, p, q, metric, gap=0.0):
    """Compare with the whole matrix: value, feasible potentials, marginals."""
    C = cdist(X, Y, metric)
    a, b = p / p.sum(), q / q.sum()
    i, j = np.flatnonzero(a), np.flatnonzero(b)
    size = float(C.max()) or 1.0
    W = size * ot.emd2(a[i], b[j], np.ascontiguousarray(C[np.ix_(i, j)] / size), numItermax=10**7)
    assert answer.lower <= W + 1e-9 * W + 1e-15 * size
    assert answer.upper >= W - 1e-9 * W - 1e-15 * size
    assert answer.upper - answer.lower <= (gap + 1e-10) * answer.upper + 1e-12 * size
    assert (C - answer.f[:, None] - answer.g).min() >= -1e-14 * size
    np.testing.assert_allclose(answer.plan.sum(axis=1), a, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(answer.plan.sum(axis=0), b, rtol=1e-12, atol=1e-300)
    assert float((answer.plan * C).sum()) == pytest.approx(answer.upper, rel=1e-9, abs=1e-13 * size)


def cost_of(X, Y, metric="sqeuclidean"):
    """The cost between points that k-d trees search."""
    return PointCost(X, Y, metric, dtype=np.float64).by_trees()


def weights(draw, rng, m):
    """Weights with zeros anywhere."""
    w = rng.random(m) if draw(st.booleans()) else rng.integers(1, 4, m).astype(float)
    w *= rng.random(m) < draw(st.sampled_from([0.1, 0.6, 1.0]))
    w[rng.integers(m)] += 1
    return w


@st.composite
def clouds(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    d = draw(st.integers(1, 4))
    X, Y = (rng.random((draw(st.integers(1, 60)), d)) for _ in range(2))
    if draw(st.booleans()):  # ties and duplicates
        X, Y = np.floor(4 * X), np.floor(4 * Y)
    scale, shift = 10.0 ** rng.integers(-6, 7, d), draw(st.sampled_from([0.0, 100.0]))
    return scale * X + shift, scale * Y + shift, weights(draw, rng, len(X)), weights(draw, rng, len(Y))


@settings(max_examples=80, deadline=None)
@given(clouds(), st.sampled_from(TREE_METRICS), st.sampled_from([0.0, 0.0, 1e-2, 0.2]))
def test_many_levels_of_points_give_the_optimum(case, metric, gap):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiscale, "_SMALLEST", 4)
        answer = solve_points(*case, metric, gap=gap)
    check(answer, *case, metric, gap)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(TREE_METRICS))
def test_many_levels_of_grids_give_the_optimum(data, metric):
    d = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.lists(st.integers(1, {1: 50, 2: 11, 3: 5}[d]), min_size=d, max_size=d)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    p, q = (weights(data.draw, rng, int(np.prod(shape))) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiscale, "_SMALLEST", 4)
        x = 0.1 * np.indices(shape).reshape(d, -1).T
        answer = solve_points(x, x, p, q, metric)
    check(answer, x, x, p, q, metric)


def degenerate(kind):
    rng = np.random.default_rng(0)
    m = 700
    X, Y, p, q = rng.random((m, 3)), rng.random((m, 3)), rng.random(m), rng.random(m)
    match kind:
        case "duplicates":
            X, Y = X[rng.integers(0, 30, m)], X[rng.integers(0, 30, m)]
        case "all equal":
            X, Y = np.ones((m, 3)), np.ones((m, 3))
        case "two places":
            X, Y = np.zeros((m, 3)), np.ones((m, 3))
        case "collinear":
            X, Y = (rng.random((m, 1)) * np.array([1.0, 2.0, -3.0]) for _ in range(2))
        case "one point":
            Y, q = Y[:1], q[:1]
        case "the same":
            Y, q = X, p
        case "scales":
            X, Y = (Z * np.array([1e-8, 1.0, 1e8]) for Z in (X, Y))
        case "far away":
            X, Y = (1e8 + 1e-3 * Z for Z in (X, Y))
        case "tiny":
            X, Y = 1e-100 * X, 1e-100 * Y
        case "huge":
            X, Y = 1e100 * X, 1e100 * Y
        case "tiny weights":
            p, q = 10.0 ** rng.integers(-30, 1, m), 10.0 ** rng.integers(-30, 1, m)
        case "far outlier":
            X[0], p[0] = 1e9, 1e-12
    return X, Y, p, q


@pytest.mark.parametrize("metric", TREE_METRICS)
@pytest.mark.parametrize(
    "kind",
    [
        "duplicates", "all equal", "two places", "collinear", "one point", "the same", "scales", "far away", "tiny",
        "huge", "tiny weights", "far outlier",
    ],
)  # fmt: skip
def test_degenerate_measures_end_with_a_certificate(kind, metric):
    X, Y, p, q = degenerate(kind)
    answer = solve_points(X, Y, p, q, metric)
    assert answer.status == "optimal"
    check(answer, X, Y, p, q, metric)


def test_a_gap_costs_less_than_the_optimum():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 96)
    p, q = (np.exp(np.sin(a * x[:, None]) + np.cos(b * x)) + 0.1 * rng.random((96, 96)) for a, b in ((5, 3), (2, 9)))
    grid = np.indices(p.shape).reshape(2, -1).T / 96
    exact, coarse, fine = (solve_points(grid, grid, p.ravel(), q.ravel(), gap=gap) for gap in (0, 0.02, 1e-5))
    assert exact.status == "optimal"
    assert coarse.status == "gap reached"
    assert fine.status in ("gap reached", "optimal")
    assert coarse.rounds == 0  # a coarse level sufficed
    assert fine.rounds > 0
    for answer, gap in ((coarse, 0.02), (fine, 1e-5)):
        assert answer.lower <= exact.upper
        assert exact.lower <= answer.upper
        assert answer.upper - answer.lower <= gap * answer.upper
        np.testing.assert_allclose(answer.plan.sum(axis=1), (p / p.sum()).ravel(), rtol=1e-12)
        np.testing.assert_allclose(answer.plan.sum(axis=0), (q / q.sum()).ravel(), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(clouds(), st.sampled_from(TREE_METRICS), st.sampled_from([0.0, 1e-2]), st.integers(0, 3))
def test_any_warm_start_gives_the_optimum(case, metric, gap, kind):
    """Of the same problem, of one with other weights, nonsense, and what is not finite."""
    X, Y, p, q = case
    rng = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiscale, "_SMALLEST", 4)
        if kind <= 1:
            before = solve_points(X, Y, *((p, q) if kind == 0 else (rng.random(len(p)), rng.random(len(q)))), metric)
            f = before.f
        else:
            f = float(np.ptp(X) + 1) ** 2 * rng.normal(size=len(p)) if kind == 2 else np.full(len(p), -np.inf)
        answer = multiscale.solve_from_coarse(p, q, cost_of(X, Y, metric), gap, f=f)
    check(answer, *case, metric, gap)


def test_a_near_warm_start_takes_one_round():
    """The potentials of nearly the same measures find all arcs at once, those of others are not used."""
    rng = np.random.default_rng(0)
    X, Y, p, q = rng.random((1500, 2)), rng.random((1400, 2)), rng.random(1500), rng.random(1400)
    cost = cost_of(X, Y)
    cold = multiscale.solve_from_coarse(p, q, cost)
    near = [w * (1 + 1e-3 * rng.random(len(w))) for w in (p, q)]
    first, again = (multiscale.solve_from_coarse(*near, cost, f=f) for f in (None, cold.f))
    assert again.rounds == 1 < first.rounds
    assert again.value == pytest.approx(first.value, rel=1e-12)
    assert again.status == first.status == "optimal"
    far = multiscale.solve_from_coarse(p, q, cost, f=rng.random(1500))
    assert far.rounds == cold.rounds
    assert (far.plan != cold.plan).nnz == 0


@pytest.mark.parametrize("options", [{}, {"penalty": 0.05}, {"penalty": 0.05, "other": True}])
@pytest.mark.parametrize("kind", ["points", "grid", "other grid"])
def test_warm_starts_of_solve_save_rounds(kind, options):
    """`warm_start=` counts for points and grids, with mass left over too, and results stay exact."""
    rng = np.random.default_rng(1)
    side = 24
    cost = {
        "points": PointCost(rng.random((side**2, 2)), rng.random((side**2, 2))),
        "grid": GridCost((side, side)),
        "other grid": GridCost((side, side), power=3),
    }[kind]
    p, q = rng.random((2, side**2)) + 0.1
    q *= p.sum() / q.sum()
    near = p * (1 + 1e-3 * rng.random(side**2))
    other = 1.2 * q if options.pop("other", False) else q * (near.sum() / q.sum())
    before = solve(p, q, cost, **options)
    cold, warm = (solve(near, other, cost, **options, warm_start=start) for start in (None, before))
    assert cold.status == warm.status == "optimal"
    assert warm.value == pytest.approx(cold.value, rel=1e-9)
    rounds = [one.parts[0].solved[0].rounds for one in (warm, cold)]
    assert rounds[0] <= rounds[1]
