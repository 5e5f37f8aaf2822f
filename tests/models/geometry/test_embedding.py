"""Linear optimal transport and its principal components, against closed forms and exact values."""

from __future__ import annotations

import tracemalloc
from contextlib import nullcontext

import numpy as np
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage, sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from gibbsot import DenseCost, GridCost, PointCost, WassersteinEmbedding, WassersteinPCA, distances
from gibbsot.core import native
from gibbsot.io.budget import Budget
from gibbsot.models.geometry import maps as _maps
from gibbsot.models.geometry import sets as _sets

GRID = GridCost((12, 10), spacing=1.0)
compiled = pytest.mark.skipif(native.name() == "numpy", reason="takes long, and says nothing of the kernels")


def blob(row: float, column: float, a: float = 1.5, b: float = 1.0) -> np.ndarray:
    y, x = GRID.points().T
    return np.exp(-((y - row) ** 2 / a**2 + (x - column) ** 2 / b**2) / 2)


def blobs(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([blob(*rng.uniform(4, 6, 2), *rng.uniform(0.8, 1.6, 2)) for _ in range(n)])


def copies(image: np.ndarray, n: int, shift: float, seed: int = 0) -> np.ndarray:
    """Scaled and translated copies of an image."""
    rng, centre = np.random.default_rng(seed), (np.array(image.shape) - 1) / 2
    found = []
    for _ in range(n):
        scale, move = rng.uniform(0.6, 1.1), rng.uniform(-shift, shift, 2)
        found.append(ndimage.affine_transform(image, np.eye(2) / scale, centre - (centre + move) / scale, order=1))
    return np.maximum(np.stack(found), 0).reshape(n, -1)


@pytest.mark.parametrize("maps", ["exact", "debiased"])
def test_translations_are_constant_fields(maps):
    X = np.stack([np.roll(blob(4, 4).reshape(12, 10), shift, (0, 1)).ravel() for shift in ((0, 0), (2, 1), (1, -1))])
    X[X < 1e-3] = 0
    model = WassersteinEmbedding(GRID, reference=X[0], maps=maps)
    fields = model.fields(model.fit_transform(X))
    expected = np.array([[0, 0], [2, 1], [1, -1]])[:, None]
    np.testing.assert_allclose(fields, np.broadcast_to(expected, fields.shape), atol=1e-6 if maps == "exact" else 1e-4)


@given(st.integers(0, 2**32 - 1))
def test_norms_are_at_most_the_distance_to_the_reference(seed):
    X = np.random.default_rng(seed).random((3, 12))
    model = WassersteinEmbedding(GridCost((4, 3)), reference=X[0]).fit(X)
    squares = (model.transform(X) ** 2).sum(axis=1)
    assert (squares <= distances(X[:1], X, cost=GridCost((4, 3)))[0] + 1e-12).all()
    np.testing.assert_allclose(squares[0], 0, atol=1e-20)


def test_maps_are_those_of_pot():
    rng = np.random.default_rng(0)
    points, (x, y) = rng.normal(size=(30, 2)), rng.random((2, 30))  # off a grid plans are unique
    model = WassersteinEmbedding(PointCost(points), reference=x).fit(x[None])
    plan = ot.emd(x / x.sum(), y / y.sum(), cdist(points, points, "sqeuclidean"))
    expected = plan @ points / plan.sum(axis=1, keepdims=True) - points
    np.testing.assert_allclose(model.fields(model.transform(y[None]))[0], expected, atol=1e-9)
    np.testing.assert_allclose(model.reference_.weights, x / x.sum())


def test_debiased_maps_are_those_of_sinkhorn():
    x, y = blobs(2)
    x[x < 1e-3] = y[y < 1e-3] = 0
    rows, columns = np.flatnonzero(x), np.flatnonzero(y)
    p, q, points, epsilon = x[rows] / x.sum(), y[columns] / y.sum(), GRID.points(), 2.0
    plan = ot.sinkhorn(p, q, GRID.matrix(rows, columns), epsilon, stopThr=1e-12, numItermax=10000)
    own = ot.sinkhorn(p, p, GRID.matrix(rows, rows), epsilon, stopThr=1e-12, numItermax=10000)
    expected = plan @ points[columns] / p[:, None] - own @ points[rows] / p[:, None]
    model = WassersteinEmbedding(GRID, reference=x, maps="debiased", epsilon=epsilon).fit(x[None])
    np.testing.assert_allclose(model.fields(model.transform(y[None]))[0], expected, atol=1e-3)


@pytest.mark.parametrize("epsilon", [1e-4, 1e4])
def test_debiased_maps_at_any_regularisation(epsilon):
    X = blobs(3)
    X[X < 1e-3] = 0
    model = WassersteinEmbedding(GRID, reference=X[0], maps="debiased", epsilon=epsilon).fit(X)
    with nullcontext() if epsilon > 1 else pytest.warns(ConvergenceWarning, match="ended before they converged"):
        Z = model.transform(X)
    assert np.isfinite(Z).all()
    np.testing.assert_allclose(Z[0], 0, atol=1e-3)


def test_debiased_maps_of_many_points_need_no_matrix(monkeypatch):
    """Kernels that are not stored give the same maps."""
    rng = np.random.default_rng(0)
    clouds = [rng.normal(size=(n, 2)) for n in (30, 50)]
    model = WassersteinEmbedding("sqeuclidean", reference=rng.normal(size=(40, 2)), maps="debiased", n_jobs=2)
    expected = model.fit_transform(clouds)
    monkeypatch.setattr(_maps, "_BYTES", 8 * 40 * 40)  # the larger cloud is beyond it, the smaller one is alone
    monkeypatch.setattr(_maps, "_BLOCK_BYTES", 3 * 8 * 50)
    np.testing.assert_allclose(model.transform(clouds), expected, atol=1e-12)
    monkeypatch.setattr(_maps, "_BYTES", 1)
    np.testing.assert_allclose(model.transform(clouds), expected, atol=1e-12)


def test_debiased_maps_of_many_points_take_little_memory(monkeypatch):
    monkeypatch.setattr(_maps, "_BYTES", 1e6)
    monkeypatch.setattr(_maps, "_BLOCK_BYTES", 1e5)
    monkeypatch.setattr(_maps, "_ITERATIONS", 2)
    X, ones = np.random.default_rng(0).normal(size=(1000, 2)), np.ones(1000)
    tracemalloc.start()
    kernel = _maps._Kernel(X, X, 0 * ones, 0 * ones, 1.0)
    _maps._sinkhorn(kernel, ones / 1000, ones / 1000, Budget())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e6  # the matrix has 8 MB


@pytest.mark.parametrize(("limit", "threads"), [(1e9, 4), (8 * 3 * 12, 3), (8 * 12, 1), (50, 4)])
def test_kernels_at_a_time(limit, threads, monkeypatch):
    """As many as fit into memory; those that are not stored do not count, and neither do points without weight."""
    X = np.zeros((2, 20))
    X[0, :3] = X[1, 5:9] = 1
    monkeypatch.setattr(_maps, "_BYTES", limit)
    monkeypatch.setattr(native, "threads", lambda n_jobs: n_jobs)  # whatever the machine has
    assert _maps._threads(_sets.Rows(X[:1]), _sets.Rows(X), [0, 0], [0, 1], 4) == threads


def test_debiased_maps_of_gaussians_are_linear():
    x, y = blob(5, 4.5, 1.6, 1.0), blob(6, 4, 1.0, 1.3)
    model = WassersteinEmbedding(GRID, reference=x, maps="debiased").fit(x[None])
    field = model.fields(model.transform(y[None]))[0]
    expected = np.array([6, 4]) + (GRID.points() - [5, 4.5]) * [1 / 1.6, 1.3] - GRID.points()
    error = np.sqrt(((field - expected) ** 2).sum(axis=1) @ model.reference_.weights)
    assert error < 0.05  # of a pixel


@pytest.mark.parametrize("maps", ["exact", "debiased"])
def test_inverse_transform_is_near(maps):
    X = blobs(5)
    model = WassersteinEmbedding(GRID, maps=maps)
    again = model.inverse_transform(model.fit_transform(X))
    np.testing.assert_allclose(again.sum(axis=1), 1)
    D = distances(X, cost=GRID)
    near = np.diag(distances(X, again, cost=GRID))
    assert near.max() < 0.2 < D[0, 1:].min()


def test_references():
    X = blobs(4)
    mean = WassersteinEmbedding(GRID).fit(X).reference_
    shares = (X / X.sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(mean.weights, shares[shares > 0], rtol=1e-12)
    centre = WassersteinEmbedding(GRID, reference="barycenter").fit(X).reference_
    np.testing.assert_allclose(centre.weights @ centre.points, mean.weights @ mean.points, atol=0.2)
    assert len(centre.points) <= len(mean.points)


def test_every_kind_of_data():
    rng = np.random.default_rng(0)
    X, cost = rng.random((4, 30)) * (rng.random((4, 30)) > 0.3), PointCost(rng.normal(size=(30, 2)))
    Z = WassersteinEmbedding(cost).fit_transform(X)
    np.testing.assert_allclose(WassersteinEmbedding(cost).fit_transform(sparse.csr_array(X)), Z, atol=1e-12)
    np.testing.assert_allclose(WassersteinEmbedding(cost, n_jobs=2).fit(X).transform(7 * X), Z, atol=1e-12)
    single = WassersteinEmbedding(cost, dtype="float32").fit_transform(X)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, Z, atol=1e-5)


def test_points():
    rng = np.random.default_rng(0)
    points, X = rng.normal(size=(20, 5)), rng.random((4, 20))
    model = WassersteinEmbedding(PointCost(points))
    Z = model.fit_transform(X)
    named = WassersteinEmbedding("sqeuclidean", feature_vectors=points).fit_transform(X)
    np.testing.assert_allclose(named, Z, atol=1e-12)
    cloud = model.inverse_transform(Z)[0]
    assert cloud.points.shape == (20, 5)
    np.testing.assert_allclose(cloud.weights @ cloud.points, X[0] / X[0].sum() @ points, atol=1e-9)


def test_clouds():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(15, 2))
    X = [reference + np.array([1, 2]), (2 * reference[:10], rng.random(10)), 3 * reference]
    model = WassersteinEmbedding("sqeuclidean", reference=reference)
    Z = model.fit_transform(X)
    np.testing.assert_allclose(model.fields(Z)[0], np.tile([1, 2], (15, 1)), atol=1e-9)
    np.testing.assert_allclose((Z**2).sum(axis=1)[2], 4 * (reference**2).sum() / 15)
    np.testing.assert_allclose(model.inverse_transform(Z)[2].points, 3 * reference, atol=1e-9)
    np.testing.assert_allclose(model.transform(X[:1]), Z[:1], atol=1e-12)


def test_rows_without_mass_are_at_zero():
    X = blobs(3)
    X[1] = 0
    with pytest.warns(UserWarning, match="1 rows have no mass"):
        Z = WassersteinEmbedding(GRID).fit_transform(X)
    assert not Z[1].any()
    assert Z[[0, 2]].any(axis=1).all()


@pytest.mark.parametrize("estimator", [WassersteinEmbedding(), WassersteinPCA()])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": GridCost((12, 10), power=1)}, "cost: got .* need squared Euclidean distances"),
        ({"cost": DenseCost(np.ones((120, 120)))}, "cost: got .* need squared Euclidean distances"),
        ({"cost": "cosine", "feature_vectors": np.eye(120)}, "cost: got .* need squared Euclidean distances"),
        ({"cost": GridCost(5)}, "cost: is for 5 x 5 points"),
        ({"reference": "median"}, "reference: expected one of"),
        ({"reference": np.ones(7)}, "reference: expected 120 weights"),
        ({"reference": np.zeros(120)}, "reference: has no mass"),
        ({"maps": "linear"}, "maps: expected one of"),
        ({"maps": "debiased", "epsilon": 0.0}, "epsilon: expected a positive number"),
        ({"dtype": "int64"}, "dtype: expected float32 or float64"),
    ],
)
def test_bad_parameters(estimator, options, message):
    with pytest.raises(ValueError, match=message):
        clone(estimator).set_params(**{"cost": GRID} | options).fit(blobs(3))


def test_bad_clouds():
    X = [np.ones((3, 2)), np.ones((2, 2))]
    with pytest.raises(ValueError, match="reference: clouds have no mean here"):
        WassersteinEmbedding("sqeuclidean").fit(X)
    with pytest.raises(ValueError, match="reference: has points with 3 coordinates; expected 2"):
        WassersteinEmbedding("sqeuclidean", reference=np.ones((4, 3))).fit(X)
    model = WassersteinEmbedding(GRID).fit(blobs(2))
    with pytest.raises(ValueError, match=r"Z: expected shape \(n, 240\)"):
        model.inverse_transform(np.ones((2, 3)))
    with pytest.raises(ValueError, match="Z: has NaN"):
        model.inverse_transform(np.full((2, 240), np.nan))


def needed(ratios: np.ndarray) -> int:
    """The number of components that explain 95 %."""
    return int(np.searchsorted(np.cumsum(ratios), 0.95) + 1)


@compiled
def test_translated_and_scaled_copies_need_three_components(fives):
    X = copies(fives[0].reshape(28, 28), 30, shift=3)
    model = WassersteinPCA(cost=GridCost((28, 28)), reference=X[0]).fit(X)
    assert needed(model.explained_variance_ratio_) <= 3
    assert needed(PCA().fit(X / X.sum(axis=1, keepdims=True)).explained_variance_ratio_) >= 10


@compiled
def test_scaled_copies_need_one_component_with_debiased_maps(fives):
    X = copies(fives[0].reshape(28, 28), 20, shift=0)
    cost = GridCost((28, 28))
    model = WassersteinPCA(cost=cost, reference=X[0], maps="debiased", n_jobs=-1).fit(X)
    assert needed(model.explained_variance_ratio_) == 1
    assert needed(WassersteinPCA(cost=cost, reference=X[0]).fit(X).explained_variance_ratio_) > 1


def test_components_are_orthonormal_fields_and_restore_the_data():
    X = blobs(6)
    model = WassersteinPCA(cost=GRID)
    Z = model.fit_transform(X)
    r = model.embedding_.reference_.weights
    gram = np.einsum("aid,bid,i->ab", model.components_[:5], model.components_[:5], r)
    np.testing.assert_allclose(gram, np.eye(5), atol=1e-9)
    fields = model.mean_ + np.einsum("nk,kid->nid", Z, model.components_)
    np.testing.assert_allclose(fields, model.embedding_.fields(model.embedding_.transform(X)), atol=1e-6)
    np.testing.assert_allclose(model.transform(X), Z, atol=1e-9)
    np.testing.assert_allclose(Z.var(axis=0, ddof=1), model.explained_variance_, atol=1e-9)


def test_geodesics_pass_through_the_mean():
    X = blobs(6)
    model = WassersteinPCA(2, cost=GRID).fit(X)
    path = model.geodesic(1, [-1, 0, 1])
    np.testing.assert_allclose(path.sum(axis=1), 1)
    np.testing.assert_allclose(path[1], model.inverse_transform(np.zeros((1, 2)))[0])
    step = np.sqrt(model.explained_variance_[1])
    np.testing.assert_allclose(path[2], model.inverse_transform([[0, step]])[0])


@compiled
def test_reconstructions_are_nearer_than_those_of_pixels(fives):
    cost, X = GridCost((28, 28)), fives[:60]
    model = WassersteinPCA(10, cost=cost, n_jobs=-1).fit(X)
    pixels = PCA(10).fit(X)
    restored = np.maximum(pixels.inverse_transform(pixels.transform(X)), 0)
    theirs = np.diag(distances(X[:15], restored[:15], cost=cost))
    ours = model.reconstruction_costs(X[:15])
    assert ours.mean() < 0.6 * theirs.mean()
    np.testing.assert_allclose(model.score(X[:15]), -ours.mean())
    made = model.inverse_transform(model.transform(X[:1]))[0]
    np.testing.assert_allclose(ours[0], ot.emd2(X[0], made / made.sum(), cost.matrix()), rtol=1e-6)


def test_reconstructions_of_points_and_clouds():
    rng = np.random.default_rng(0)
    points, X = rng.normal(size=(15, 2)), rng.random((5, 15))
    costs = WassersteinPCA(2, cost=PointCost(points)).fit(X).reconstruction_costs(X)
    assert costs.shape == (5,)
    clouds = [points * scale for scale in (1.0, 2.0, 3.0)]
    model = WassersteinPCA(1, cost="sqeuclidean", reference=points).fit(clouds)
    np.testing.assert_allclose(model.explained_variance_ratio_, [1])
    np.testing.assert_allclose(model.reconstruction_costs(clouds), 0, atol=1e-12)
    path = model.geodesic(0, [0.0])[0]
    np.testing.assert_allclose(cdist(path.points, 2 * points).min(axis=1), 0, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.geodesic(2, 0.0), "k: expected a component from 0 to 1"),
        (lambda model: model.geodesic(0, np.ones((2, 2))), "t: expected a number or a vector"),
        (lambda model: model.inverse_transform(np.ones((2, 3))), r"Z: expected shape \(n, 2\)"),
        (lambda model: model.set_params(n_components=9).fit(blobs(4)), "n_components: expected at most 4"),
    ],
)
def test_bad_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call(WassersteinPCA(2, cost=GRID).fit(blobs(4)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:X. [0-9]+ rows have no mass:UserWarning")
@parametrize_with_checks([WassersteinEmbedding("line"), WassersteinPCA(cost="line")])
def test_scikit_learn_checks(estimator, check):
    if native.name() == "numpy":
        pytest.skip("takes long, and says nothing of the kernels")
    check(estimator)
