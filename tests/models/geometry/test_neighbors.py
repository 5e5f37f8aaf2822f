"""Nearest neighbours against those of all pairs, and lower bounds against exact values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.manifold import Isomap
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from gibbsot import DenseCost, GridCost, PointCost, WassersteinNeighbors, distances
from gibbsot.core import native
from gibbsot.costs.problems import Problem
from gibbsot.models.geometry import sets
from gibbsot.models.geometry.bounds import CloudBounds, NearestPoints, Projections, Refinement, first_bounds

rng = np.random.default_rng(0)
compiled = pytest.mark.skipif(native.name() == "numpy", reason="takes long, and says nothing of the kernels")
COSTS = {
    "line": GridCost(30),
    "grid": GridCost((6, 5)),
    "large grid": GridCost((16, 17)),
    "volume": GridCost((4, 3, 3)),
    "power one": GridCost((6, 5), power=1),
    "power three": GridCost((6, 5), power=3),
    "plane": PointCost(rng.normal(size=(40, 2))),
    "many dimensions": PointCost(rng.normal(size=(40, 30))),
    "Euclidean": PointCost(rng.normal(size=(40, 2)), metric="euclidean"),
    "Euclidean in many dimensions": PointCost(rng.normal(size=(40, 20)), metric="euclidean"),
    "city block": PointCost(rng.normal(size=(40, 3)), metric="cityblock"),
    "matrix": DenseCost(rng.random((30, 30))),
    "negative": DenseCost(rng.random((30, 30)) - 0.5),
    "axes": GridCost(matrices=[rng.random((17, 17)), rng.random((15, 15))]),
    "single precision": GridCost((6, 5), dtype="float32"),
}


def measures(n: int, m: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.random((n, m)) ** 4 * (rng.random((n, m)) > 0.6)
    X[np.arange(n), rng.integers(0, m, n)] += 0.3
    return X


@pytest.mark.parametrize("kind", COSTS)
def test_bounds_are_below_the_exact_values(kind):
    cost = COSTS[kind]
    P, Q = measures(12, cost.shape[0]), measures(15, cost.shape[0], seed=1)
    W, first = distances(P, Q, cost=cost), first_bounds(cost)
    bounds = first(first.features(P), first.features(Q))
    assert isinstance(first, NearestPoints if kind in ("matrix", "negative", "axes") else Projections)
    assert (bounds <= W + 1e-12 * np.abs(W)).all()
    assert bounds.mean() > 0.05 * W.mean() or kind == "negative"  # they bound something
    refinement = Refinement(cost)
    if refinement.useful:
        i, j = np.indices(W.shape).reshape(2, -1)
        better = refinement(Problem.checked(P[i], Q[j], cost, np.ones(len(i))), None).reshape(W.shape)
        assert (better <= W + 1e-12 * np.abs(W)).all()
        assert better.mean() > 0.3 * W.mean() or kind == "negative"


@given(st.integers(0, 2**32 - 1))
def test_bounds_of_equal_measures_are_not_positive(seed):
    cost = COSTS["grid"]
    X = measures(3, 30, seed)
    first = first_bounds(cost)
    assert (np.diag(first(first.features(X), first.features(5 * X))) <= 0).all()


def test_bounds_on_the_line_are_nearly_exact():
    X = measures(6, 30)
    first = first_bounds(COSTS["line"])
    features = first.features(X)
    np.testing.assert_allclose(first(features, features), distances(X, cost="line"), atol=2e-3)


@pytest.mark.parametrize("kind", COSTS)
def test_neighbours_are_those_of_all_pairs(kind):
    cost = COSTS[kind]
    P, Q = measures(40, cost.shape[0]), measures(7, cost.shape[0], seed=1)
    P[5] = P[9]  # equally near
    D = distances(Q, P, cost=cost)
    order = np.argsort(D, axis=1, kind="stable")[:, :4]
    model = WassersteinNeighbors(4, cost=cost, n_jobs=2).fit(P)
    found, indices = model.kneighbors(Q)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(found, np.take_along_axis(D, order, axis=1))
    assert model.statistics_.pairs == 280
    assert 28 <= model.statistics_.solved <= 280


@compiled
def test_most_pairs_are_not_solved(fives):
    cost = GridCost((28, 28))
    model = WassersteinNeighbors(3, cost=cost).fit(fives[20:])
    _, indices = model.kneighbors(fives[:20])
    D = distances(fives[:20], fives[20:], cost=cost)
    np.testing.assert_array_equal(indices, np.argsort(D, axis=1, kind="stable")[:, :3])
    assert model.statistics_.solved < 0.3 * 20 * 180
    assert model.statistics_.solved < model.statistics_.refined + 60


def documents(n: int, m: int, seed: int = 0):
    """Return counts of words, of which each document has some topics, and distances of their vectors."""
    rng = np.random.default_rng(seed)
    topics, topic = rng.normal(size=(8, 20)), rng.integers(0, 8, m)
    vectors = topics[topic] + 0.7 * rng.normal(size=(m, 20))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    shares = rng.dirichlet(np.full(8, 0.15), size=n)[:, topic] + 0.01
    counts = np.stack([rng.multinomial(40, share / share.sum()) for share in shares]).astype(float)
    return counts, np.linalg.norm(vectors[:, None] - vectors, axis=2)


@pytest.mark.parametrize("symmetric", [True, False])
def test_learned_duals_bound_the_pairs_of_documents(symmetric):
    X, M = documents(90, 150)
    if not symmetric:
        M = M * np.linspace(1, 1.2, 150)
    cost = DenseCost(M)
    P = X / X.sum(axis=1, keepdims=True)
    W = distances(P, P[::-1], cost=cost)
    first = NearestPoints(cost)
    features = first.features(X)
    nearest = first(features, features[::-1])
    first.learn(sets.Rows(X), None)
    learned = first(features, features[::-1])
    assert (learned <= W + 1e-12).all()
    assert (learned >= nearest - 1e-12).all()
    assert (W - learned).mean() < 0.7 * (W - nearest).mean()


@pytest.mark.parametrize("words", [100, 600])  # a sixth of them or fewer than a tenth are in a document
def test_bounds_of_all_pairs_are_those_of_some(words):
    X, M = documents(60, words)
    first = NearestPoints(DenseCost(M))
    features = first.features(X)
    first.learn(sets.Rows(X), None)
    every = first(features, features)
    for rows in (slice(7), slice(7, 60)):
        np.testing.assert_allclose(first(features[rows], features), every[rows], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(first(features, features[rows]), every[:, rows], rtol=1e-12, atol=1e-12)
    p = X / X.sum(axis=1, keepdims=True)
    relaxed = [[max(a @ M[:, b > 0].min(axis=1), b @ M[:, a > 0].min(axis=1)) for b in p[:5]] for a in p]
    assert (every[:, :5] >= np.array(relaxed) - 1e-12).all()
    assert (every[:5] <= distances(p[:5], p, cost=M) + 1e-12).all()


@compiled
@pytest.mark.parametrize("symmetric", [True, False])
def test_neighbours_of_documents_take_few_solutions(symmetric):
    X, M = documents(120, 150)
    if not symmetric:
        M = M * np.linspace(1, 1.2, 150)
    D = distances(X, cost=M)
    np.fill_diagonal(D, np.inf)
    model = WassersteinNeighbors(4, cost=M).fit(X)
    found, indices = model.kneighbors()
    np.testing.assert_array_equal(indices, np.argsort(D, axis=1, kind="stable")[:, :4])
    np.testing.assert_allclose(found, np.sort(D, axis=1)[:, :4], rtol=1e-12)
    assert model.statistics_.pairs == 120 * 119
    assert model.statistics_.solved < (0.09 if symmetric else 0.16) * model.statistics_.pairs


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_any_measures(seed, k):
    X = measures(9, 12, seed)
    model = WassersteinNeighbors(k, cost=GridCost((3, 4)), root=True).fit(X)
    D = distances(X, cost=GridCost((3, 4)), root=True)
    np.fill_diagonal(D, np.inf)
    found, indices = model.kneighbors()
    np.testing.assert_array_equal(indices, np.argsort(D, axis=1, kind="stable")[:, :k])
    np.testing.assert_allclose(found, np.sort(D, axis=1)[:, :k], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("root", [False, True])
def test_radius(root):
    X, cost = measures(30, 30), COSTS["grid"]
    D = distances(X, cost=cost, root=root)
    radius = float(np.quantile(D, 0.2))
    model = WassersteinNeighbors(radius=radius, cost=cost, root=root).fit(X)
    found, indices = model.radius_neighbors(X[:5])
    for b in range(5):
        np.testing.assert_array_equal(indices[b], np.flatnonzero(D[b] <= radius))
        np.testing.assert_array_equal(found[b], D[b][indices[b]])
    assert model.statistics_.solved < 150
    own = model.radius_neighbors(return_distance=False, sort_results=True)
    for b in range(30):
        assert b not in own[b]
        assert (np.diff(D[b][own[b]]) >= 0).all()


def test_blocks_of_queries(monkeypatch):
    X, cost = measures(20, 30), COSTS["grid"]
    model = WassersteinNeighbors(3, cost=cost).fit(X)
    expected = model.kneighbors()
    monkeypatch.setattr("gibbsot.models.geometry.neighbors._BLOCK", 60)
    again = WassersteinNeighbors(3, cost=cost).fit(X)
    for one, other in zip(again.kneighbors(), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.statistics_.pairs == 380


def test_sparse_rows_and_metrics():
    X, vectors = measures(15, 8), rng.normal(size=(8, 4))
    model = WassersteinNeighbors(2, cost="cosine", feature_vectors=vectors).fit(sparse.csr_array(X))
    D = distances(X, cost=cdist(vectors, vectors, "cosine"))
    np.testing.assert_allclose(model.kneighbors(X)[0], np.sort(D, axis=1)[:, :2], atol=1e-12)


def test_as_a_transformer():
    X, cost = measures(30, 30), COSTS["grid"]
    y = rng.integers(0, 2, 30)
    D = distances(X, cost=cost, root=True)
    transformer = WassersteinNeighbors(5, cost=cost, root=True)
    graph = transformer.fit_transform(X)
    assert graph.shape == (30, 30)
    assert (np.diff(graph.indptr) == 6).all()
    model = make_pipeline(transformer, KNeighborsClassifier(5, metric="precomputed")).fit(X, y)
    expected = KNeighborsClassifier(5, metric="precomputed").fit(D, y)
    np.testing.assert_array_equal(model.predict(X), expected.predict(D))
    assert make_pipeline(transformer, Isomap(n_neighbors=5, metric="precomputed")).fit_transform(X).shape == (30, 2)
    ones = WassersteinNeighbors(5, cost=cost, mode="connectivity").fit(X).transform(X)
    theirs = NearestNeighbors(n_neighbors=5, metric="precomputed").fit(D).kneighbors_graph(D)
    np.testing.assert_array_equal(ones.toarray(), theirs.toarray())


def test_measures_without_mass_are_neighbours_of_none():
    X = measures(6, 9)
    X[2] = 0
    with pytest.warns(UserWarning, match="1 rows have no mass"):
        model = WassersteinNeighbors(5, cost=GridCost((3, 3))).fit(X)
    full = np.flatnonzero(X.any(axis=1))
    assert set(model.kneighbors(X[full])[1].ravel()) == set(full)
    with pytest.warns(UserWarning, match="1 rows have no mass"):
        values, indices = model.kneighbors(X)
    assert np.isinf(values[2]).all()
    assert np.isfinite(values[full]).all()
    assert set(indices[2]) == set(full)
    with pytest.warns(UserWarning, match="1 rows have no mass"):
        assert [len(row) for row in model.radius_neighbors(X, 100.0, return_distance=False)] == [5, 5, 0, 5, 5, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors: expected at least 1"),
        ({"radius": -1.0}, "radius: expected a number >= 0"),
        ({"mode": "graph"}, "mode: expected one of"),
        ({"cost": GridCost(5)}, "cost: is for 5 x 5 points"),
        ({"cost": np.diag(np.full(9, -1.0)), "root": True}, "root: the least cost is -1"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        WassersteinNeighbors(**{"cost": "line"} | options).fit(measures(5, 9))


def test_too_many_neighbours():
    model = WassersteinNeighbors(5, cost="line").fit(measures(5, 9))
    model.kneighbors(measures(2, 9))
    with pytest.raises(ValueError, match="n_neighbors: expected at most 4"):
        model.kneighbors()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:X. [0-9]+ rows have no mass:UserWarning")
@parametrize_with_checks([WassersteinNeighbors(2, cost="line", mode="connectivity")])
def test_scikit_learn_checks(estimator, check):
    if native.name() == "numpy":
        pytest.skip("takes long, and says nothing of the kernels")
    check(estimator)


@compiled
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock", "chebyshev", "cosine"])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_neighbours_of_clouds(metric, d):
    """Clouds have points of their own: the neighbours are those of all pairs."""
    rng = np.random.default_rng(d)
    clouds = [rng.normal(3 * rng.normal(size=d), 1.0, (rng.integers(1, 12), d)) for _ in range(20)]
    clouds[3] = (clouds[3], rng.random(len(clouds[3])) + 0.1)
    queries = clouds[:4]
    all_pairs, between = distances(clouds, cost=metric), distances(queries, clouds, cost=metric)
    model = WassersteinNeighbors(3, cost=metric, n_jobs=2).fit(clouds)
    values, indices = model.kneighbors()
    np.fill_diagonal(all_pairs, np.inf)
    if (metric, d) != ("cosine", 1):  # all points of one sign are the same up to rounding
        np.testing.assert_array_equal(indices, np.argsort(all_pairs, axis=1, kind="stable")[:, :3])
    np.testing.assert_allclose(values, np.sort(all_pairs, axis=1)[:, :3], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(model.kneighbors(queries)[0], np.sort(between, axis=1)[:, :3], rtol=1e-12, atol=1e-13)
    if metric != "cosine":
        assert model.statistics_.solved < model.statistics_.pairs
    near = model.radius_neighbors(queries, radius=float(np.median(between)), return_distance=False)
    assert [x.tolist() for x in near] == [np.flatnonzero(row <= np.median(between)).tolist() for row in between]
    assert model.n_features_in_ == d
    assert model.transform(queries).shape == (4, 20)


def test_neighbours_of_three_clouds():
    """Also without kernels."""
    clouds = [np.zeros((2, 2)), np.ones((3, 2)), 5 * np.ones((1, 2))]
    values, indices = WassersteinNeighbors(1, cost="euclidean").fit(clouds).kneighbors()
    assert indices.tolist() == [[1], [0], [1]]
    np.testing.assert_allclose(values[:, 0], np.sqrt([2, 2, 32]))


@compiled
def test_bounds_of_clouds_are_bounds():
    rng = np.random.default_rng(0)
    for metric in ("sqeuclidean", "euclidean", "cityblock", "chebyshev"):
        for d in (1, 2, 6):
            clouds = sets.clouds(
                [rng.normal(size=(rng.integers(1, 9), d)) * 10.0**k for k in range(-3, 4)], "X", metric
            )
            found = CloudBounds(metric, clouds.joined[0])
            features = found.features(clouds)
            exact = distances(list(zip(clouds.points, clouds.weights, strict=True)), cost=metric)
            assert (found(features, features) <= exact * (1 + 1e-12) + 1e-12).all()


def test_queries_are_clouds_as_in_the_fit():
    model = WassersteinNeighbors(1, cost="sqeuclidean").fit([np.ones((2, 2)), np.zeros((3, 2))])
    with pytest.raises(ValueError, match="X: has points with 3 coordinates; expected 2 as in the fit"):
        model.kneighbors([np.ones((2, 3))])
    with pytest.raises(ValueError, match="X: expected clouds as in the fit"):
        model.kneighbors(np.ones((2, 4)))
    with pytest.raises(ValueError, match=r"X\[1\]: has NaN"):
        WassersteinNeighbors(1, cost="sqeuclidean").fit([np.ones((2, 2)), np.full((3, 2), np.nan)])
