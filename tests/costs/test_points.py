from __future__ import annotations

import pickle
import threading
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from gibbsot import DenseCost, PointCost, Problem, solve
from gibbsot.core import native
from gibbsot.costs import from_arrays, kdtree, points
from gibbsot.exact.annealed import feasible
from gibbsot.exact.certificate import lower_bound
from gibbsot.sampling.sampler import init, run

METRICS = (
    "sqeuclidean", "euclidean", "cityblock", "chebyshev", "cosine", "correlation", "canberra", "braycurtis",
    "minkowski", "seuclidean", "mahalanobis", "jensenshannon", "hamming",
)  # fmt: skip

# how a cost computes: with its matrix, with trees where they exist, or in blocks
MODES = {"matrix": (2**30, 2**60), "trees": (0, 0), "blocks": (0, 2**60)}


@pytest.fixture(params=MODES)
def mode(request, monkeypatch):
    monkeypatch.setattr(points, "MATRIX_BYTES", MODES[request.param][0])
    monkeypatch.setattr(points, "TREE_PAIRS", MODES[request.param][1])
    monkeypatch.setattr(points, "_BLOCK", 100)
    return request.param


def clouds(d, seed=0, m1=37, m2=53):
    rng = np.random.default_rng([seed, d])
    return rng.random((m1, d)), rng.random((m2, d))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("metric", "d"), [(metric, d) for metric in METRICS for d in ((1, 2, 3, 4, 7) if "euclid" in metric else (3,))]
)
def test_all_operations_are_those_of_the_matrix(kernel, mode, metric, d, dtype):
    X, Y = clouds(d)
    cost = PointCost(X, Y, metric, dtype)
    M = cdist(X, Y, metric)
    dense = DenseCost(M, dtype)
    np.testing.assert_array_equal(cost.matrix(), dense.matrix())
    rng = np.random.default_rng(1)
    h, g = rng.normal(size=(3, 53)).astype(dtype), rng.normal(size=(3, 37)).astype(dtype)
    h[rng.random(h.shape) < 0.2] = np.inf
    g[rng.random(g.shape) < 0.2] = -np.inf
    near = {"rtol": 0, "atol": 4 * (d + 3) * np.finfo(dtype).eps * (1 + M.max())}
    np.testing.assert_allclose(cost.row_min(h), dense.row_min(h), **near)
    np.testing.assert_allclose(cost.col_max(g, n_jobs=2), dense.col_max(g), **near)
    for found, sums in (
        (cost.nearest(h[0], 5)[0], dense.matrix() + h[0]),
        (cost.nearest(-g[0], 5, by_rows=False)[0], (dense.matrix() - g[0][:, None]).T),
    ):
        np.testing.assert_allclose(np.take_along_axis(sums, found, axis=1), np.sort(sums, axis=1)[:, :5], **near)
    p, q = rng.dirichlet(np.ones(37), 2), rng.dirichlet(np.ones(53), 2)
    np.testing.assert_allclose(cost.mean(p, q), dense.mean(p, q), rtol=100 * np.finfo(dtype).eps)
    assert dense.spread() <= cost.spread() * (1 + 1e-6)
    assert cost.spread() <= max(d, 1) * M.max() * (1 + 1e-6)
    assert (cost.finite, cost.shape) == (True, (37, 53))


@pytest.mark.parametrize("metric", METRICS)
def test_entries_are_the_same_however_they_are_read(metric):
    X, Y = clouds(4)
    cost = PointCost(X, Y, metric)
    rng = np.random.default_rng(2)
    i, j = rng.integers(37, size=(20, 6)), rng.integers(53, size=(20, 6))
    whole = cost.matrix()
    np.testing.assert_allclose(cost.at(i, j), whole[i, j], rtol=4e-16, atol=1e-16)
    np.testing.assert_array_equal(cost.at(i[:, :1], j[0]), whole[i[:, :1], j[0]])
    np.testing.assert_array_equal(cost.matrix(i[0]), whole[i[0]])
    np.testing.assert_array_equal(cost.matrix(columns=j[0]), whole[:, j[0]])
    np.testing.assert_array_equal(cost.matrix(i[0], j[0]), whole[np.ix_(i[0], j[0])])
    assert cost.at(3, 5) == pytest.approx(whole[3, 5], rel=4e-16)
    assert cost.at(3, j[0]).shape == (6,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock"])
def test_sweeps_without_a_matrix(kernel, mode, metric, dtype):
    X, Y = clouds(2)
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.ones(37), 2), rng.dirichlet(np.ones(53), 2)
    q[:, 7] = 0
    pairs = [Problem(p, q / q.sum(axis=1, keepdims=True), c(X, Y)) for c in (
        lambda X, Y: PointCost(X, Y, metric, dtype), lambda X, Y: DenseCost(cdist(X, Y, metric), dtype)
    )]  # fmt: skip
    (_, found), (_, expected) = (run(init(pair), pair, np.full(20, 0.1)) for pair in pairs)
    tolerance = 200 * np.finfo(dtype).eps
    np.testing.assert_allclose(found.U, expected.U, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.L, expected.L, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.value, expected.value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@given(seed=st.integers(0, 10_000), d=st.integers(1, 5), exponent=st.integers(-10, 40))
def test_the_depth_covers_all_rounding_errors(metric, seed, d, exponent):
    rng = np.random.default_rng(seed)
    X, Y = (rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-8, 0, size=(n, 1)) * 2.0**exponent for n in (5, 6))
    exact = [[sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(x, y, strict=True)) for y in Y] for x in X]
    power = 1 if metric == "sqeuclidean" else 2
    for dtype in (np.float64, np.float32):
        cost = PointCost(X, Y, metric, dtype)
        bound = Fraction((cost.depth - 1) * float(np.finfo(dtype).eps))
        for i, row in enumerate(exact):
            for j, value in enumerate(row):
                entry = Fraction(float(cost.at(i, j))) ** power
                assert value * (1 - bound) ** power <= entry <= value * (1 + bound) ** power


@pytest.mark.parametrize("large", [False, True])
@given(seed=st.integers(0, 10_000), d=st.integers(1, 3))
def test_potentials_are_feasible_for_the_exact_distances(large, seed, d):
    rng = np.random.default_rng(seed)
    X, Y = (rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-6, 3) for n in (7, 9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(points, "TREE_PAIRS", 0 if large else 2**60)
        cost = PointCost(X, Y)
        U = rng.normal(size=7) * cost.spread() * 10.0 ** rng.uniform(-3, 3)
        f, L = feasible(cost, U, *(np.ones(m) for m in cost.shape))
        pair = Problem(np.ones(7), np.ones(7), PointCost(X))
        below = lower_bound(pair, rng.normal(size=(1, 7)) * cost.spread())
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            exact = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(x, y, strict=True))
            assert Fraction(f[i]) - Fraction(L[j]) <= exact
    assert below[0] <= 0  # X to itself


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock", "chebyshev"])
@pytest.mark.parametrize("threads", [1, 3])
def test_pairs_below_a_bound_are_those_of_the_matrix(monkeypatch, metric, threads):
    if native.name() == "numpy":
        pytest.skip("k-d trees")
    rng = np.random.default_rng(1)
    X, Y = clouds(2, m1=150, m2=70)
    h, M = rng.normal(size=70) / 10, cdist(X, Y, metric)
    h[3] = np.inf  # a column that is left out
    bound = np.quantile(M + h, 0.03, axis=1)
    bound[10:140] = -np.inf  # parts in which nothing is found
    monkeypatch.setattr(kdtree, "_TOGETHER", 16)
    i, j = np.nonzero(M + h < bound[:, None])
    assert 20 < len(i) < 100
    for cost in (PointCost(X, Y, metric).by_trees(), PointCost(X, Y, metric)):
        found = cost.below(h, bound, 70, threads)
        assert sorted(zip(*found, strict=True)) == list(zip(i, j, strict=True))
        least = cost.below(h, bound, 1, threads)
        np.testing.assert_array_equal(np.sort(least[0]), np.unique(i))
        np.testing.assert_array_equal(least[1], (M + h).argmin(axis=1)[least[0]])


def test_nothing_of_the_size_of_the_matrix_is_stored():
    if native.name() == "numpy":
        pytest.skip("the compiled kernels' promise")
    rng = np.random.default_rng(0)
    m = 20_000
    X, Y = rng.random((m, 2)), rng.random((m, 2))
    uniform = np.full(m, 1 / m)
    tracemalloc.start()
    try:
        cost = PointCost(X, Y)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
        cost.nearest(np.zeros(m), 8)
        cost.col_max(cost.row_min(np.zeros(m)))
        cost.mean(uniform[None], uniform[None])
        cost.spread()
        cost.at(np.arange(m), np.arange(m))
        assert solve(uniform, uniform, cost).status == "optimal"
        assert tracemalloc.get_traced_memory()[1] < 100_000_000  # the matrix has 3,200,000,000 bytes
    finally:
        tracemalloc.stop()


def test_the_matrix_is_made_once_and_not_pickled(monkeypatch):
    made = []
    original = points.padded_columns
    monkeypatch.setattr(points, "padded_columns", lambda *shape: made.append(shape) or original(*shape))
    X, Y = clouds(3, m1=300, m2=200)
    cost = PointCost(X, Y)
    assert made == []
    threads = [threading.Thread(target=cost.row_min, args=(np.zeros(200),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    data = pickle.dumps(cost)
    assert len(data) < 2 * (X.nbytes + Y.nbytes)
    again = pickle.loads(data)
    np.testing.assert_array_equal(again.row_min(np.ones(200)), cost.row_min(np.ones(200)))
    single = cost.astype(np.float32)
    assert single is cost.astype("float32")
    assert single.geometry() is not None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "mahalanobis"])
def test_points_in_files(metric, dtype):
    X, Y = clouds(2)
    for cost in (PointCost(X, Y, metric, dtype), PointCost(X, metric=metric, dtype=dtype)):
        again = from_arrays(cost.arrays())
        assert (again.dtype, again.metric, again.shape) == (cost.dtype, metric, cost.shape)
        np.testing.assert_array_equal(again.matrix(), cost.matrix())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: PointCost([0.0, 1e160]), ValueError, "X, Y: the largest cost is inf, beyond the range of float64"),
        (lambda: PointCost([-1e308], [1e308], "euclidean"), ValueError, "X, Y: the largest cost is inf"),
        (lambda: PointCost([0.0, 1e20], dtype="float32"), ValueError, "beyond the range of float32"),
        (lambda: PointCost([0.0, 1e-170]), ValueError, "X, Y: the largest cost is .*, beyond the range of float64"),
        (lambda: PointCost([0.0, 1e-30], dtype="float32"), ValueError, "beyond the range of float32"),
        (
            lambda: PointCost([[0.0] * 2, [1e306] * 2], metric="cityblock"),
            ValueError,
            r"X, Y: the largest cost is 2e\+306, beyond the range of float64",
        ),
        (lambda: PointCost([[0.0, 0.0], [1.0, 2.0]], metric="cosine"), ValueError, "metric: 'cosine' gives NaN"),
        (lambda: PointCost([[0.0, 1.0]], metric="mahalanobis"), ValueError, "metric: 'mahalanobis' is not one"),
        (lambda: PointCost([0.0, 1.0], metric=len), TypeError, "metric: expected the name of a metric"),
    ],
)
def test_bad_points(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_points_that_coincide_and_points_far_away():
    np.testing.assert_array_equal(PointCost([1e200, 1e200]).matrix(), np.zeros((2, 2)))
    np.testing.assert_array_equal(PointCost([[1e9, 0.0], [1e9 + 1, 0.0]]).matrix(), [[0, 1], [1, 0]])
    single = PointCost([[1e9, 0.0], [1e9 + 1, 0.0]], dtype="float32")  # as coordinates they are equal
    np.testing.assert_array_equal(single.matrix(), [[0, 1], [1, 0]])
    assert single.at(0, 1) == 1


def test_points_of_the_caller_stay_writeable_and_apart():
    X = np.zeros((2, 2))
    cost = PointCost(X)
    X[0] = 1.0
    assert cost.at(0, 1) == 0
    with pytest.raises(ValueError, match="read-only"):
        cost.X[0, 0] = 1.0


def test_no_pairs_have_no_costs():
    """A metric that only `cdist` computes, asked for no pair: as the proof of a problem with a border does."""
    nothing = np.empty(0, np.int64)
    assert PointCost([[0.0, 1.0]], metric="cityblock").at(nothing, nothing).shape == (0,)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("kind", ["normal", "far", "duplicates", "outlier", "shifted", "tiny"])
def test_products_are_as_accurate_as_they_say(kind, metric):
    """Against exact rational arithmetic; where lengths cancel, distances come from the coordinates."""
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(30, 17)), rng.normal(size=(20, 17)) + 0.5
    if kind == "far":
        X, Y = X + 1e7, Y + 1e7
    elif kind == "duplicates":
        X, Y = np.repeat(X[:5], 6, axis=0), np.repeat(X[:5], 4, axis=0)
    elif kind == "outlier":
        X[0] = 1e9
    elif kind == "shifted":
        Y = X[:20] + 1e-9 * Y
    elif kind == "tiny":
        X, Y = 1e-120 * X, 1e-120 * Y
    cost = PointCost(X, Y, metric)
    M, rows, columns = cost.matrix(), np.array([3, 0, 29]), np.array([7, 7, 0, 19])
    for i in range(30):
        for j in range(20):
            square = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(X[i], Y[j], strict=True))
            low, high = (Fraction(float(M[i, j])) * (1 + k * Fraction(cost.accuracy())) for k in (-1, 1))
            less, more = (low, high) if metric == "sqeuclidean" else (low**2, high**2)
            assert less <= square <= more
    np.testing.assert_allclose(cost.matrix(rows, columns), M[np.ix_(rows, columns)], rtol=2 * cost.accuracy())
    np.testing.assert_allclose(cost.at(rows[:, None], columns), M[np.ix_(rows, columns)], rtol=2 * cost.accuracy())


@pytest.mark.parametrize("offset", [0.0, 0.5, 3.0, 1e5])
def test_products_around_any_middle(offset):
    """Points are centred, or not, whatever is better: distances are the same."""
    rng = np.random.default_rng(7)
    X, Y = rng.normal(size=(90, 40)) + offset, rng.normal(size=(70, 40)) - 0.3 + offset
    cost = PointCost(X, Y)
    assert (cost._centred[0][0] is cost.X) == (offset < 1)
    np.testing.assert_allclose(cost.matrix(), cdist(X, Y, "sqeuclidean"), rtol=1e-11)


def test_the_largest_distance_decides_the_range():
    """Also where the coordinates of different axes differ by more than those of one."""
    far = np.array([[0.0, 0.0], [1.5e16, 0.0]], np.float32)
    assert PointCost(far, dtype=np.float32).shape == (2, 2)  # two such squares would be too large
    assert PointCost(np.array([[1e10, 0.0]]), np.array([[1e10, 0.0]])).matrix() == 0
    with pytest.raises(ValueError, match="the largest cost is"):
        PointCost(2 * far, dtype=np.float32)
    with pytest.raises(ValueError, match="the largest cost is"):
        PointCost(np.array([[1.0, 1e-160]]), np.array([[1.0, 2e-160]]))


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("kind", ["normal", "same points", "duplicates", "one column"])
def test_tiles_of_products_find_what_the_matrix_has(kernel, monkeypatch, kind, metric):
    """C-transforms and nearest points without a matrix, in many dimensions."""
    rng = np.random.default_rng(6)
    X, Y = rng.normal(size=(70, 19)), rng.normal(size=(1 if kind == "one column" else 83, 19))
    if kind == "same points":
        Y = X
    elif kind == "duplicates":
        X, Y = np.repeat(X[:5], 14, axis=0), np.repeat(X[:7], 10, axis=0)
    g, h = rng.normal(size=len(X)), rng.normal(size=len(Y))
    h[0], k = (np.inf if len(Y) > 1 else 0.0), min(9, len(Y))
    M = PointCost(X, Y, metric).matrix()
    for name, value in (("MATRIX_BYTES", 0), ("_FAST", 64), ("_TILE", 4)):
        monkeypatch.setattr(points, name, value)
    cost = PointCost(X, Y, metric)
    assert cost.has_lists
    near = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(cost.row_min(h), (M + h).min(axis=1), **near)
    np.testing.assert_allclose(cost.col_max(g), (g[:, None] - M).max(axis=0), **near)
    for found, sums, S in ((*cost.nearest(h, k), M + h), (*cost.nearest(g, k, False), (M + g[:, None]).T)):
        np.testing.assert_allclose(sums, np.sort(S, axis=1)[:, :k], **near)
        np.testing.assert_allclose(np.take_along_axis(S, found, axis=1), sums, **near)
    limit = np.median(M + np.where(np.isfinite(h), h, 0), axis=1)
    found, sums = cost.nearest(h, k, below=limit)
    assert (sums[found >= 0] < np.repeat(limit, (found >= 0).sum(axis=1))).all()
    assert (sums[found < 0] == np.inf).all()
    some = np.array([3, 0, 69])
    found, single = cost.listed(some, h.astype(np.float32), k)
    np.testing.assert_allclose(single, np.sort(M[some] + h, axis=1)[:, :k], rtol=1e-4, atol=1e-4)
