"""Costs between features that models build from names, functions and vectors."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.metrics import pairwise_distances

from gibbsot import (
    DenseCost,
    GridCost,
    PointCost,
    WassersteinBarycenter,
    WassersteinClassifier,
    WassersteinNMF,
    mixture_coordinates,
)

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

m = 8
rng = np.random.default_rng(0)
X = rng.random((12, m)) + np.eye(m)[np.arange(12) % m]
V = rng.normal(size=(m, 5))


def nmf(**options):
    return WassersteinNMF(2, max_epochs=2, tau=3, random_state=0, **options)


def barycenter(**options):
    return WassersteinBarycenter(max_epochs=5, tau=3, random_state=0, **options)


MODELS = pytest.mark.parametrize("model", [nmf, barycenter])


def lopsided(x, y):
    """A function that is not symmetric."""
    return float(np.maximum(x - y, 0).sum())


@MODELS
@pytest.mark.parametrize(
    ("cost", "metric"),
    [("cosine", "cosine"), ("l1", "cityblock"), ("l2", "euclidean"), ("sqeuclidean", "sqeuclidean"),
     ("chebyshev", "chebyshev"), ("correlation", "correlation"), (lopsided, lopsided)],
)  # fmt: skip
def test_a_metric_between_vectors_or_columns(model, cost, metric):
    for options, vectors in (({"feature_vectors": V}, V), ({}, X.T)):
        found = model(cost=cost, **options).fit(X).cost_
        np.testing.assert_allclose(found.matrix(), cdist(vectors, vectors, metric), atol=1e-12)
    assert model(cost="sqeuclidean", feature_vectors=V).fit(X).cost_ == PointCost(V)
    assert model(cost="line").fit(X).cost_ == GridCost(m)


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "braycurtis"])
def test_sparse_columns_and_vectors(metric):
    words = np.where(rng.random((12, m)) < 0.5, 0, X)
    words[:, 3] = 0  # a word that does not occur: its cosine distance is one
    given = {} if metric != "braycurtis" else {"feature_vectors": V}
    found = nmf(cost=metric, **given).fit(sparse.csr_array(words)).cost_
    expected = pairwise_distances(given.get("feature_vectors", words.T), metric=metric)
    np.testing.assert_allclose(found.matrix(), expected, atol=1e-7)
    found = nmf(cost=metric, feature_vectors=sparse.csr_array(V)).fit(X).cost_
    np.testing.assert_allclose(found.matrix(), pairwise_distances(V, metric=metric), atol=1e-7)


def test_a_built_cost_gives_the_model_of_the_same_matrix():
    M = cdist(V, V, "cosine")
    for model, name in ((nmf, "components_"), (barycenter, "barycenter_")):
        built = model(cost="cosine", feature_vectors=V).fit(X)
        np.testing.assert_allclose(getattr(built, name), getattr(model(cost=M).fit(X), name), rtol=1e-4, atol=1e-6)
    W = mixture_coordinates(X, X[:3], "cosine", feature_vectors=V)
    np.testing.assert_allclose(W, mixture_coordinates(X, X[:3], M), atol=1e-4)
    by_columns = mixture_coordinates(X, X[:3], "euclidean")
    np.testing.assert_allclose(by_columns, mixture_coordinates(X, X[:3], cdist(X.T, X.T)), atol=1e-4)


@MODELS
def test_no_cost_is_a_line_with_one_warning(model):
    with pytest.warns(UserWarning, match="cost: none was given, so the bins are taken to lie on a line") as found:
        fitted = model().fit(X)
    found = [warning for warning in found if not str(warning.message).startswith("max_epochs")]
    assert [warning.filename for warning in found] == [__file__]
    assert fitted.cost_ == GridCost(m)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", "max_epochs")
        if model is nmf:
            fitted.set_params(max_epochs=3).resume(X)
            fitted.transform(X)
    with pytest.warns(UserWarning, match="cost: none was given"):
        mixture_coordinates(X, X[:3])


@MODELS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": "cosin"}, "cost: expected one of 'line', .*'cosine'"),
        ({"cost": "precomputed"}, "cost: expected one of"),
        ({"cost": GridCost(m), "feature_vectors": V}, "feature_vectors: a cost is built from them by a metric"),
        ({"cost": "line", "feature_vectors": V}, "feature_vectors: a cost is built from them by a metric"),
        ({"feature_vectors": V}, "feature_vectors: a cost is built from them by a metric"),
        ({"cost": "cosine", "feature_vectors": V[1:]}, r"feature_vectors: expected 8 rows, .*got shape \(7, 5\)"),
        ({"cost": "cosine", "feature_vectors": V * np.nan}, "feature_vectors: has NaN"),
        ({"cost": lambda *_: np.nan, "feature_vectors": V}, "cost: .*has NaN"),
        ({"cost": lambda *_: np.inf, "feature_vectors": V}, "cost: .*only infinite costs"),
    ],
)
def test_bad_costs_are_named(model, options, message):
    with pytest.raises(ValueError, match=message):
        model(**options).fit(X)
    with pytest.raises(ValueError, match=message):
        mixture_coordinates(X, X[:2], **options)


@MODELS
def test_shards_need_vectors(model):
    shards = [X[:5], X[5:]]
    with pytest.raises(ValueError, match="feature_vectors: expected an embedding of each feature for cost='cosine'"):
        model(cost="cosine").fit(shards)
    assert (
        model(cost="cosine", feature_vectors=V).fit(shards).cost_
        == model(cost="cosine", feature_vectors=V).fit(X).cost_
    )
    with pytest.raises(ValueError, match="feature_vectors: expected an embedding"):
        nmf(cost="cosine").partial_fit(X)
    nmf(cost="cosine", feature_vectors=V).partial_fit(X)


def test_copies_and_files_keep_the_cost(tmp_path):
    model = nmf(cost="cosine", feature_vectors=V).fit(X)
    assert clone(model).get_params()["cost"] == "cosine"
    np.testing.assert_array_equal(clone(model).feature_vectors, V)
    assert pickle.loads(pickle.dumps(model)).cost_ == model.cost_
    model.save(tmp_path / "model.npz")
    loaded = WassersteinNMF.load(tmp_path / "model.npz")
    assert loaded.cost_ == loaded.cost == model.cost_
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    for one in (model, loaded):
        one.set_params(max_epochs=4).resume(X)
    np.testing.assert_array_equal(loaded.components_, model.components_)


@pytest.mark.parametrize("cost", ["euclidean", GridCost(m)])
def test_resume_checks_the_cost(cost):
    vectors = V if cost == "euclidean" else None
    model = nmf(cost="cosine", feature_vectors=V).fit(X).set_params(cost=cost, feature_vectors=vectors, max_epochs=4)
    with pytest.raises(ValueError, match="cost: differs from that of the fit"):
        model.resume(X)
    model.set_params(cost="cosine", feature_vectors=V).resume(X)
    assert model.n_iter_ == 4


def test_labels():
    features, grades = rng.normal(size=(30, 2)), np.array([1, 2, 5])[np.arange(30) % 3]
    fit = {"max_epochs": 2, "random_state": 0}
    expected = WassersteinClassifier(cdist(*[[[1], [2], [5]]] * 2), **fit).fit(features, grades)
    model = WassersteinClassifier("euclidean", **fit).fit(features, grades)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    words, named = np.array(["a", "b", "c"])[np.arange(30) % 3], {**fit, "classes": ["a", "b", "c"]}
    model = WassersteinClassifier("euclidean", label_vectors=[[1.0], [2.0], [5.0]], **named).fit(features, words)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert WassersteinClassifier("line", **named).fit(features, words).cost_ == GridCost(3)
    assert WassersteinClassifier(**fit).fit(features, words).cost_ == DenseCost(1 - np.eye(3))
    for options, message in (
        ({"cost": "euclidean"}, "label_vectors: expected an embedding of each label for cost='euclidean'"),
        ({"cost": "euclidean", "label_vectors": V}, r"label_vectors: expected 3 rows, .*got shape \(8, 5\)"),
        ({"label_vectors": V}, "label_vectors: a cost is built from them by a metric"),
    ):
        with pytest.raises(ValueError, match=message):
            WassersteinClassifier(**options).fit(features, words)
