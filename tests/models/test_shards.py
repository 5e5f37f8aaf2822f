"""Distances, neighbours, embeddings, components and coordinates of data in shards: bit-identical to those of arrays."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from gibbsot import (
    GridCost,
    WassersteinEmbedding,
    WassersteinNeighbors,
    WassersteinNMF,
    WassersteinPCA,
    barycentric_coordinates,
    distances,
)
from gibbsot.models.geometry.pca import _CentredRows

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

GRID = GridCost((4, 5))


def measures(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.random((n, 20)) * (rng.random((n, 20)) > 0.4)
    X[np.arange(n), rng.integers(0, 20, n)] += 0.3
    return X


def files(X: np.ndarray, folder, sizes: list[int]) -> list[str]:
    paths = []
    for k, part in enumerate(np.split(X, np.cumsum(sizes))):
        paths.append(str(folder / f"{k}.npy"))
        np.save(paths[-1], part)
    return paths


KINDS = {
    "arrays": lambda X, _: [X[:3], X[3:3], X[3:4], X[4:]],  # one has no rows
    "sparse": lambda X, _: [sparse.csr_array(X[:3]), X[3:4], sparse.csc_array(X[4:])],
    "files": lambda X, folder: files(X, folder, [3, 1]),
    "dask": lambda X, _: pytest.importorskip("dask.array").from_array(X, chunks=(3, 7)),
}


@pytest.fixture(params=KINDS)
def shards(request, tmp_path):
    return lambda X: KINDS[request.param](X, tmp_path)


@pytest.mark.parametrize("maps", ["exact", "debiased"])
@pytest.mark.parametrize("reference", ["mean", "barycenter", "given"])
def test_embeddings(shards, maps, reference):
    X = measures(9)
    options = {"maps": maps, "reference": X[0] if reference == "given" else reference}
    expected = WassersteinEmbedding(GRID, **options).fit(X)
    model = WassersteinEmbedding(GRID, **options).fit(shards(X))
    if reference != "barycenter":  # which is another order of sums, up to its gap
        np.testing.assert_array_equal(model.reference_.weights, expected.reference_.weights)
        np.testing.assert_array_equal(np.asarray(model.transform(shards(X))), expected.transform(X))
    Z = WassersteinEmbedding(GRID, **options, dtype="float32").fit_transform(shards(X))
    assert Z.dtype == np.float32
    np.testing.assert_allclose(np.asarray(Z), model.transform(X), atol=1e-5)


@pytest.mark.parametrize("n", [9, 130])  # 130 are more than an embedding has coordinates
def test_components(shards, n):
    X = measures(n)
    expected = WassersteinPCA(3, cost=GRID)
    coordinates = expected.fit_transform(X)
    model = WassersteinPCA(3, cost=GRID).fit(shards(X))
    for name in ("mean_", "components_", "explained_variance_", "explained_variance_ratio_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(expected, name))
    np.testing.assert_array_equal(np.asarray(model.transform(shards(X))), coordinates)
    again = WassersteinPCA(3, cost=GRID).fit_transform(shards(X))
    np.testing.assert_array_equal(np.asarray(again), coordinates)
    np.testing.assert_allclose(model.reconstruction_costs(shards(X)), expected.reconstruction_costs(X), rtol=1e-12)
    np.testing.assert_array_equal(expected.transform(X), coordinates)
    np.testing.assert_allclose(model.score(shards(X)), expected.score(X), rtol=1e-12)


def test_components_are_those_of_scikit_learn():
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(0)
    for n in (2, 8, 20, 53):
        Z = rng.normal(size=(n, 8)) * np.arange(1, 9) + 100
        rows = _CentredRows(8)
        for row in Z:
            rows.add(row)
        mean, directions, variances = rows.components()
        theirs = PCA(svd_solver="full").fit(Z)
        np.testing.assert_allclose(mean, theirs.mean_)
        np.testing.assert_allclose(variances[: min(n, 8)], theirs.explained_variance_, rtol=1e-10, atol=1e-20)
        most = min(n - 1, 8)  # beyond which there is no variance
        np.testing.assert_allclose(np.abs((directions[:most] * theirs.components_[:most]).sum(axis=1)), 1)


def test_neighbours(shards):
    P, Q = measures(9), measures(7, seed=1)
    expected = WassersteinNeighbors(3, cost=GRID, radius=0.02).fit(P)
    model = WassersteinNeighbors(3, cost=GRID, radius=0.02).fit(shards(P))
    assert model.n_samples_fit_ == 9
    values, indices = expected.kneighbors(Q)
    for found in (model.kneighbors(Q), model.kneighbors(shards(Q)), expected.kneighbors(shards(Q))):
        np.testing.assert_array_equal(found[0], values)
        np.testing.assert_array_equal(found[1], indices)
    assert model.statistics_.pairs == 63
    np.testing.assert_array_equal(model.kneighbors()[1], expected.kneighbors()[1])
    for one, other in zip(model.radius_neighbors(shards(Q))[1], expected.radius_neighbors(Q)[1], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(model.transform(shards(Q)).toarray(), expected.transform(Q).toarray())


def test_distances_and_coordinates(shards):
    P, Q = measures(9), measures(5, seed=1)
    expected = distances(P, Q, cost=GRID)
    np.testing.assert_array_equal(distances(shards(P), Q, cost=GRID), expected)
    np.testing.assert_array_equal(distances(P, shards(Q), cost=GRID), expected)
    for maps in ("exact", "debiased"):
        weights = barycentric_coordinates(P, Q[:3], GRID, maps=maps)
        np.testing.assert_array_equal(barycentric_coordinates(shards(P), Q[:3], GRID, maps=maps), weights)
        np.testing.assert_array_equal(barycentric_coordinates(P, shards(Q[:3]), GRID, maps=maps), weights)


ESTIMATORS = {
    "embedding": WassersteinEmbedding(GRID),
    "components": WassersteinPCA(2, cost=GRID),
    "neighbours": WassersteinNeighbors(2, cost=GRID),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_progress_is_shown(name, capfd, monkeypatch):
    monkeypatch.setattr("gibbsot.io.progress._PAUSE", 0.0)
    X, model = measures(9), clone(ESTIMATORS[name]).set_params(verbose=True)
    model.fit([X[:3], X[3:]])
    expected = "lower bounds: 100%" if name == "neighbours" else "embedding: 100% 6 of 6 pairs"
    assert expected in capfd.readouterr().err or name == "embedding"
    model.transform([X[:3], X[3:]])
    shown = capfd.readouterr().err.splitlines()
    label = "neighbours" if name == "neighbours" else "embedding"
    shares = [int(re.match(rf"{label}: (\d+)% \d+ of \d+ pairs", line).group(1)) for line in shown]
    assert shares == sorted(shares)
    assert len(set(shares)) > 1
    assert shares[-1] == 100


@pytest.mark.parametrize("name", ESTIMATORS)
def test_rows_without_mass(name):
    X = measures(8)
    X[3] = X[5] = 0  # of the second and the third shard, of which the second has no others
    parts, model = [X[:3], X[3:4], X[4:]], ESTIMATORS[name]
    with pytest.warns(UserWarning, match="X: 2 rows have no mass, the first is row 3") as caught:
        model.fit(parts)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="X: 2 rows have no mass, the first is row 3"):
        found = model.transform(parts)
    with pytest.warns(UserWarning, match="X: 2 rows have no mass, the first is row 3"):
        expected = model.fit(X).transform(X)
    if name == "neighbours":
        found, expected = found.toarray(), expected.toarray()
    np.testing.assert_array_equal(found, expected)


def test_rows_without_mass_are_left_out_of_components():
    X = measures(8)
    expected = WassersteinPCA(2, cost=GRID).fit(X)
    with pytest.warns(UserWarning, match="1 rows have no mass"):
        model = WassersteinPCA(2, cost=GRID).fit(np.insert(X, 3, 0, axis=0))
    np.testing.assert_array_equal(model.components_, expected.components_)
    np.testing.assert_array_equal(model.explained_variance_ratio_, expected.explained_variance_ratio_)
    with (
        pytest.warns(UserWarning, match="1 rows have no mass"),
        pytest.raises(ValueError, match="X: 1 rows have no mass; expected measures, each with mass"),
    ):
        model.reconstruction_costs(np.insert(X, 3, 0, axis=0))


@pytest.mark.parametrize("empty", [[np.empty((0, 20))], [np.empty((0, 20))] * 2, sparse.csr_array((0, 20))])
def test_no_measures(empty):
    with pytest.raises(ValueError, match="P: is empty"):
        distances(empty, cost=GRID)
    with pytest.raises(ValueError, match="X: is empty"):
        barycentric_coordinates(empty, measures(2), GRID)
    for estimator in ESTIMATORS.values():
        with pytest.raises(ValueError, match=r"no mass in any row|0 sample"):
            estimator.fit(empty)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: parts[1].__setitem__((0, 2), -1.0), r"X[1]: has negative weights, the first at entry 2"),
        (lambda parts: parts[2].__setitem__((1, 0), np.nan), r"X[2]: has NaN weights, the first at row 1, entry 0"),
        (lambda parts: parts.__setitem__(1, np.ones((2, 7))), r"X[1]: has 7 columns; expected 20 as in X[0]"),
        (lambda parts: parts.__setitem__(slice(None), [np.zeros((2, 20))] * 2), "X: has no mass in any row"),
        (lambda parts: parts.__setitem__(0, "missing.npy"), "missing.npy"),
        (lambda parts: parts.__setitem__(slice(None), [part[:, :7] for part in parts]), "7"),
    ],
)
def test_bad_shards(name, change, message):
    X = measures(9)
    for call in ("fit", "transform"):
        parts = [X[:3].copy(), X[3:4].copy(), X[4:].copy()]
        model = pickle.loads(pickle.dumps(ESTIMATORS[name])).fit(X)
        change(parts)
        with pytest.raises((ValueError, OSError), match=re.escape(message)):
            getattr(model, call)(parts)


@pytest.mark.parametrize(
    "model",
    [WassersteinEmbedding("sqeuclidean"), WassersteinPCA(cost="sqeuclidean"), WassersteinNeighbors(2, cost="cosine")],
)
def test_a_metric_of_columns_needs_them_whole(model, tmp_path):
    with pytest.raises(ValueError, match="feature_vectors: expected an embedding of each feature"):
        model.fit(files(measures(9), tmp_path, [4]))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ma.masked_less(measures(3), 0.1), "X: has masked entries"),
        (list(np.ma.masked_less(measures(3), 0.1)), r"X\[0\]: has masked entries"),
        ([[1, 2, 3], [1, 2]], r"X: has rows of several lengths; expected a rectangular array, got \[2, 3\]"),
        ("measures.npy", r"X: is a path; expected measures, or a list of files such as \['measures.npy'\]"),
        (measures(3).reshape(3, 4, 5), "X: has shape .* images are to be flattened"),
        (list(measures(3).reshape(3, 4, 5)), "expected 5 x 5 as in X; images are to be flattened to rows"),
    ],
)
def test_what_is_no_matrix(name, X, message):
    with pytest.raises(ValueError, match=message):
        clone(ESTIMATORS[name]).fit(X)


def test_clouds_are_no_shards():
    """Matrices in a list are shards for every cost but a metric between points."""
    clouds = [np.ones((3, 2)), np.ones((4, 2))]
    assert WassersteinNeighbors(1, cost="sqeuclidean").fit(clouds).n_samples_fit_ == 2
    assert WassersteinNeighbors(1, cost=np.eye(2)).fit(clouds).n_samples_fit_ == 7


def test_memberships_of_a_shard_without_mass():
    X = measures(8)
    X[3] = 0
    with pytest.warns(UserWarning, match="1 rows have no mass"):
        model = WassersteinNMF(2, cost=GRID, max_epochs=3, random_state=0).fit(X)
    with pytest.warns(UserWarning, match="X: 1 rows have no mass, the first is row 3"):
        W = model.transform([X[:3], X[3:4], X[4:]])
    with pytest.warns(UserWarning, match="X: 1 rows have no mass, the first is row 3"):
        np.testing.assert_array_equal(W, model.transform(X))
