"""k-means with transport costs: labels are those of brute force, bounds are bounds, and what an estimator owes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from gibbsot import DenseCost, GridCost, WassersteinBarycenter, WassersteinKMeans, distances
from gibbsot.core import native
from gibbsot.distributed.shards import LocalShards
from gibbsot.distributed.worker import Split
from gibbsot.models.barycenter.free import Cloud
from gibbsot.models.kmeans.assignment import Assignment
from gibbsot.models.kmeans.centroids import CloudCentroids, Cluster, RowCentroids, _lowered
from gibbsot.models.kmeans.shard import KMeansShard
from gibbsot.models.kmeans.smoothed import Smoothing
from rational import exact_distances, exact_matrix, optimum

whole_fit = pytest.mark.skipif(native.name() == "numpy", reason="takes minutes, and says nothing of the kernels")

LINE = GridCost(12, spacing=1.0)


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """Without a digest of the shards before and after every query: `test_queries_change_nothing` has it."""
    monkeypatch.setattr(LocalShards, "check_queries", False)


def rows(X, cost, count) -> RowCentroids:
    shards = LocalShards([KMeansShard([np.asarray(X, float)])])
    return set_up(RowCentroids(shards, 0, count, cost, None))


def set_up(centroids):
    centroids.shards.reduce(KMeansShard.set_up, Split.of([0]), centroids.count, [centroids.maker()])
    return centroids


def bumps(seed: int = 0) -> np.ndarray:
    """Ten measures around each of three places on a line."""
    rng = np.random.default_rng(seed)
    places = np.repeat([1.5, 5.5, 10.0], 10) + 0.4 * rng.normal(size=30)
    return np.exp(-((np.arange(12) - places[:, None]) ** 2) / 2)


@whole_fit
@pytest.mark.parametrize("cost", [LINE, GridCost((3, 4)), GridCost(12, power=1), DenseCost(LINE.matrix() ** 1.5)])
def test_labels_and_inertia_are_those_of_brute_force(cost):
    X, weights = bumps(), np.random.default_rng(1).random(30)
    model = WassersteinKMeans(4, cost=cost, random_state=0).fit(X, sample_weight=weights)
    D = distances(model.cluster_centers_, X, cost=cost).T
    np.testing.assert_array_equal(model.labels_, D.argmin(axis=1))
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_allclose(model.transform(X), D, rtol=1e-9, atol=1e-12)
    lower, upper = model.inertia_bounds_
    assert lower <= weights @ D.min(axis=1) * (1 + 1e-9)
    assert upper >= weights @ D.min(axis=1) * (1 - 1e-9)
    assert upper - lower <= 1e-9 * upper
    np.testing.assert_allclose(model.score(X, sample_weight=weights), -model.inertia_, rtol=1e-9)
    assert model.centroid_gaps_.max() <= model.gap


@whole_fit
def test_clusters_are_found_and_few_problems_are_solved():
    model = WassersteinKMeans(3, cost=LINE, random_state=0).fit(bumps())
    assert [len(set(model.labels_[k : k + 10])) for k in (0, 10, 20)] == [1, 1, 1]
    assert len(set(model.labels_)) == 3
    later = model.history_[2:]
    assert later
    assert all(one.solved.share <= 0.3 for one in later)
    values = [one.inertia for one in model.history_]
    assert (np.diff(values) <= 1e-12).all()
    assert model.n_iter_ == len(values)


@whole_fit
@pytest.mark.parametrize("cost", [GridCost((3, 4)), GridCost(12, power=1), DenseCost(LINE.matrix() ** 1.5)])
def test_bounds_hold_when_centroids_move(cost):
    rng = np.random.default_rng(0)
    X = rng.random((15, 12)) * (rng.random((15, 12)) < 0.5) + 1e-3
    X /= X.sum(axis=1, keepdims=True)
    centroids = rows(X, cost, 3)
    found = Assignment(centroids, 3)
    for k in range(3):
        centroids.set(k, X[k])
        found.moved(k, None, own=False)
    found.assign()
    for share in (0.02, 0.2, 0.7):
        for k in range(3):
            before = centroids.get(k)
            centroids.set(k, (1 - share) * before + share * rng.dirichlet(np.ones(12)))
            found.moved(k, before)
        D = distances(centroids.centres, X, cost=cost).T
        assert (found.below <= D * (1 + 1e-12) + 1e-15).all()
        assert (found.below > 0.5 * D).mean() > 0.3  # they are of use
        found.assign()
        np.testing.assert_array_equal(found.labels, D.argmin(axis=1))
        assert (found.below <= D * (1 + 1e-12) + 1e-15).all()


@whole_fit
def test_the_start_may_be_given_and_threads_do_not_matter():
    X = bumps()
    models = [WassersteinKMeans(3, cost=LINE, init=X[[0, 12, 25]], n_jobs=k).fit(X) for k in (1, 2)]
    np.testing.assert_array_equal(models[0].cluster_centers_, models[1].cluster_centers_)
    other = WassersteinKMeans(3, cost=LINE, init=X[[0, 12, 25]]).fit(sparse.csr_array(X))
    np.testing.assert_array_equal(models[0].labels_, other.labels_)
    best = WassersteinKMeans(3, cost=LINE, n_init=3, random_state=0).fit(X)
    assert best.inertia_ <= WassersteinKMeans(3, cost=LINE, random_state=0).fit(X).inertia_


def test_clouds_have_centroids_with_points_of_their_own():
    rng = np.random.default_rng(0)
    clouds = [(rng.normal(size=(6, 2)) + np.array([4.0 * (i // 6), 0]), rng.random(6)) for i in range(18)]
    model = WassersteinKMeans(3, support="free", n_support=4, random_state=0).fit(clouds)
    D = distances(clouds, model.cluster_centers_, cost="sqeuclidean")
    np.testing.assert_array_equal(model.labels_, D.argmin(axis=1))
    np.testing.assert_allclose(model.inertia_, D.min(axis=1).sum(), rtol=1e-9)
    assert all(points.shape[0] <= 4 and abs(w.sum() - 1) < 1e-12 for points, w in model.cluster_centers_)
    assert [len(set(model.labels_[k : k + 6])) for k in (0, 6, 12)] == [1, 1, 1]
    np.testing.assert_array_equal(model.predict(clouds[:5]), model.labels_[:5])


def test_an_empty_cluster_begins_again_and_this_is_reported():
    X = bumps()
    far = np.eye(12)[[0, 0, 0]]  # the second and third are never nearest
    model = WassersteinKMeans(3, cost=LINE, init=far).fit(X)
    assert model.n_relocated_ >= 1
    assert len(set(model.labels_)) == 3
    with pytest.warns(ConvergenceWarning, match="n_clusters: 2 clusters have measures, of 3"):
        WassersteinKMeans(3, cost=LINE, random_state=0).fit(np.eye(12)[[0, 0, 5, 5]])


def test_measures_without_mass_have_no_cluster():
    X = bumps()
    X[4] = 0
    with pytest.warns(UserWarning, match="no mass"):
        model = WassersteinKMeans(3, cost=LINE, random_state=0).fit(X)
    assert model.labels_[4] == -1
    assert (np.delete(model.labels_, 4) >= 0).all()


def test_iterations_and_callbacks_end_a_fit():
    X, seen = bumps(), []
    with pytest.warns(ConvergenceWarning, match="max_iter: labels or centroids still moved after 2"):
        WassersteinKMeans(3, cost=LINE, max_iter=2, random_state=0).fit(X)
    model = WassersteinKMeans(3, cost=LINE, random_state=0, callbacks=[lambda m: seen.append(m.inertia_) or True])
    assert model.fit(X).n_iter_ == 1
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "n_clusters: expected"),
        ({"n_clusters": 31}, "n_clusters: is 31; expected at most n_samples=30"),
        ({"n_support": 3}, "n_support: does not apply to support='fixed'"),
        ({"support": "open"}, "support: expected"),
        ({"support": "free", "cost": GridCost(12, power=1)}, "is not a squared Euclidean distance"),
        ({"init": "random"}, "init: expected"),
        ({"init": np.ones((2, 12))}, "init: has 2 rows; expected n_clusters=3"),
        ({"gap": -1.0}, "gap: expected"),
        ({"tol": 1e-3}, "tol: does not apply to support='fixed'; expected its default"),
        ({"support": "free", "gap": 1e-3}, "gap: does not apply to support='free'; expected its default"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        WassersteinKMeans(**{"n_clusters": 3, "cost": LINE} | options).fit(bumps())


@pytest.mark.parametrize(
    ("cost", "X", "message"),
    [
        ("line", [-np.ones((4, 2)), np.ones((5, 2))], "negative entries.*a list of clouds needs support='free'"),
        ("line", [(np.ones((4, 2)), np.ones(4))] * 3, "X: is a list of clouds; expected measures on common points"),
        ("line", [np.ones((5, 2)), (np.ones((4, 2)), np.ones(4))], "X: is a list of clouds; expected measures on"),
        ("sqeuclidean", [np.ones((4, 2)), np.ones((5, 2))], "feature_vectors: expected.*for clouds expected support="),
    ],
)
def test_clouds_need_a_free_support(cost, X, message):
    for model in (WassersteinKMeans(2, cost=cost), WassersteinBarycenter(cost)):
        with pytest.raises(ValueError, match=message):
            model.fit(X)


@whole_fit
def test_another_number_of_clusters_is_for_the_next_fit():
    X, model = bumps(), WassersteinKMeans(3, cost=LINE, random_state=0)
    before = model.fit(X).predict(X)
    model.set_params(n_clusters=5)
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.transform(X).shape == (30, 3)
    assert len(model.get_feature_names_out()) == 3
    assert len(model.partial_fit(X).cluster_centers_) == 3
    assert len(model.fit(X).cluster_centers_) == 5


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ([np.eye(2)], r"init: has 1 clouds in R\^2; expected n_clusters=2 in R\^2"),
        ([np.eye(3), np.eye(3)], r"init: has 2 clouds in R\^3; expected n_clusters=2 in R\^2"),
        ([np.eye(2), np.ones((4, 2))], "init: has a cloud of 4 points; expected at most n_support=3"),
    ],
)
def test_what_is_refused_as_a_start_of_clouds(init, message):
    clouds = [np.random.default_rng(i).normal(size=(5, 2)) for i in range(4)]
    with pytest.raises(ValueError, match=message):
        WassersteinKMeans(2, support="free", n_support=3, init=init).fit(clouds)


RANDOM_STARTS = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "starts are drawn at random from measures in another order; test_weights_repeat_measures has the same start",
) | {"check_clustering": "its data have negative numbers"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:X. [0-9]+ rows have no mass:UserWarning")
@whole_fit
@parametrize_with_checks(
    [WassersteinKMeans(3, cost="line"), WassersteinKMeans(2, cost="line", support="free", n_support=2)],
    expected_failed_checks=lambda _: RANDOM_STARTS,
)
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


@whole_fit
@pytest.mark.parametrize("support", ["fixed", "free"])
def test_weights_repeat_measures(support):
    X, counts = bumps()[::2], np.random.default_rng(0).integers(0, 4, 15)
    points = GridCost(12, spacing=1.0).points()
    init = X[[0, 6, 13]] if support == "fixed" else [(points, x) for x in X[[0, 6, 13]]]
    model = WassersteinKMeans(3, cost=LINE, support=support, init=init)
    weighted = model.fit(X, sample_weight=counts).predict(X)
    np.testing.assert_array_equal(weighted, model.fit(np.repeat(X, counts, axis=0)).predict(X))


def rational_costs(rows, targets, costs) -> np.ndarray:
    return np.array([[optimum(p, q, costs).low for q in targets] for p in rows])


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e9])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_hold_in_rational_arithmetic(seed, scale):
    rng = np.random.default_rng(seed)
    C = scale * (rng.random((6, 6)) + 0.1)
    X, weights = rng.random((5, 6)) * (rng.random((5, 6)) < 0.7) + np.eye(6)[:5] * 1e-3, rng.random(5)
    centroids = rows(X, DenseCost(C), 2)
    centroids.set(0, rng.dirichlet(np.ones(6)))
    every = np.arange(5)
    costs = centroids.solve(every, np.zeros(5, int))
    exact = rational_costs(centroids.centres[:1], X, exact_matrix(C))[0]
    assert all(low <= w <= high for low, w, high in zip(costs.lower, exact, costs.upper, strict=True))
    cluster = Cluster(0, every, weights, np.inf)
    centroids._run("begin", [0], [every], [cluster.share])
    cut = _lowered(centroids._run("attempt", [centroids.centres[0]], [False], True).cuts, 0)
    total = sum(map(Fraction, weights))
    for size in (0.0, 0.01, 1.0):
        moved = (1 - size) * centroids.centres[0] + size * rng.dirichlet(np.ones(6))
        centroids.set(0, moved)
        c = centroids.centres[0]
        exact = rational_costs([c], X, exact_matrix(C))[0]
        bounds = centroids.bounds(0)
        assert all(b <= w for b, w in zip(bounds, exact, strict=True))
        mean = sum(Fraction(s) * w for s, w in zip(weights, exact, strict=True)) / total
        below = sum(Fraction(x) * Fraction(y) for x, y in zip(c, cut, strict=True)) / sum(map(Fraction, c))
        assert below <= mean
        if size == 0:
            assert np.all(bounds >= 0.999 * costs.lower)
            assert below >= Fraction(0.999999) * mean


@pytest.mark.parametrize("d", [2, 5])
def test_projections_of_clouds_are_lower_bounds(d):
    rng = np.random.default_rng(d)
    clouds = [Cloud(rng.normal(size=(4, d)), rng.random(4)) for _ in range(4)]
    centroids = set_up(CloudCentroids(LocalShards([KMeansShard([clouds])]), 0, 1, 4, 1e-3, None))
    for far in (0.0, 1e6):
        centroids.set(0, Cloud(clouds[0].points + far, clouds[0].weights))
        one = centroids.get(0)
        exact = [optimum(one.weights, c.weights, exact_distances(one.points, c.points, 2)).low for c in clouds]
        assert all(b <= w for b, w in zip(centroids.bounds(0), exact, strict=True))
        costs = centroids.solve(np.arange(4), np.zeros(4, int))
        assert all(a <= w <= b for a, w, b in zip(costs.lower, exact, costs.upper, strict=True))


@whole_fit
def test_an_entropic_barycenter_is_near_the_exact_one():
    cost = GridCost((3, 4))
    X, share = bumps()[:10] / bumps()[:10].sum(axis=1, keepdims=True), np.full(10, 0.1)
    best = WassersteinBarycenter(cost, gap=1e-6).fit(X).objective_
    values = []
    for temperature in (0.1, 0.01):
        p, f = Smoothing(cost).barycenter(X, share, temperature, 1000)
        values.append(distances(X, p[None], cost=cost).mean())
    assert best <= values[1] <= 1.05 * best < values[0]
    np.testing.assert_allclose(share @ f, 0, atol=1e-9)  # the optimality condition of the potentials
    warm, _ = Smoothing(cost).barycenter(X, share, 0.01, 3, f + np.arange(12))  # a shift of all changes nothing
    np.testing.assert_allclose(warm, p, atol=1e-4)
    assert Smoothing(cost).barycenter(X, share, 1e-5, 3, np.random.default_rng(0).normal(size=f.shape)) is None


def test_the_kernel_of_a_grid_is_one_for_each_axis():
    cost, rng = GridCost((17, 19)), np.random.default_rng(0)
    X = rng.random((3, 17 * 19))
    X, share = X / X.sum(axis=1, keepdims=True), np.array([0.2, 0.3, 0.5])
    by_axes, whole = Smoothing(cost), Smoothing(DenseCost(cost.matrix()))
    assert [axis.shape for axis in by_axes.axes] == [(17, 17), (19, 19)]
    for a, b in zip(by_axes.barycenter(X, share, 0.02, 20), whole.barycenter(X, share, 0.02, 20), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)


@whole_fit
def test_cuts_of_earlier_updates_hold_for_other_members():
    cost, X = GridCost((3, 4)), bumps()
    centroids = rows(X, cost, 1)
    centroids.set(0, X.mean(axis=0))
    first, second = np.arange(12), np.arange(3, 15)
    for members in (first, second):
        [found] = centroids.update([Cluster(0, members, np.ones(12), np.inf)], 1e-2, True)
        assert found.gap <= 1e-2
    optimum = WassersteinBarycenter(cost, gap=1e-9).fit(X[second]).objective_
    kept = centroids.shards.shards[0].parts[0]._cuts[0][1]
    cuts = [one.f.mean(axis=0, dtype=float) + one.rest.mean() for one in kept]
    assert len(cuts) == centroids.cuts[0] > 5
    best = WassersteinBarycenter(cost, gap=1e-9).fit(X[second]).barycenter_
    assert all(cut @ best <= optimum * (1 + 1e-12) for cut in cuts)


@whole_fit
@pytest.mark.parametrize("powers", [(2, 2), (2, 1)])
def test_objects_of_several_parts(powers):
    rng = np.random.default_rng(0)
    X, Y = bumps(), bumps(1)[:, ::-1] + 0.01 * rng.random((30, 12))
    costs = [GridCost(12, power=powers[0]), GridCost((3, 4), power=powers[1])]
    factors = np.array([1.0, 2.5])
    model = WassersteinKMeans(3, cost=costs, cost_weights=factors, random_state=0).fit([X, Y])
    parts = [distances(x, c, cost=m) for x, c, m in zip([X, Y], model.cluster_centers_, costs, strict=True)]
    D = sum(f * d for f, d in zip(factors, parts, strict=True))
    np.testing.assert_array_equal(model.labels_, D.argmin(axis=1))
    np.testing.assert_allclose(model.transform([X, Y]), D, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(model.predict([X[:4], Y[:4]]), model.labels_[:4])
    lower, upper = model.inertia_bounds_
    assert lower <= model.inertia_ <= upper <= lower * (1 + 1e-9)
    assert model.centroid_gaps_.max() <= model.gap
    assert all(one.solved.share <= 0.3 for one in model.history_[2:])


@whole_fit
def test_parts_may_be_clouds_and_one_part_is_the_same_as_no_list():
    rng = np.random.default_rng(0)
    clouds = [rng.normal(size=(5, 2)) + 4 * (i // 5) for i in range(10)]
    options = {"support": "free", "n_support": 3, "random_state": 0}
    model = WassersteinKMeans(2, cost=["sqeuclidean", "sqeuclidean"], **options).fit([clouds, clouds[::-1]])
    assert [len(c) for c in model.cluster_centers_] == [2, 2]
    assert len(set(model.labels_[:5])) == len(set(model.labels_[5:])) == 1
    one = WassersteinKMeans(2, cost=["sqeuclidean"], **options).fit([clouds])
    same = WassersteinKMeans(2, cost="sqeuclidean", **options).fit(clouds)
    np.testing.assert_array_equal(one.labels_, same.labels_)
    X = bumps()
    X[3] = 0
    with pytest.warns(UserWarning, match="no mass"):
        rows = WassersteinKMeans(3, cost=[LINE, LINE], random_state=0).fit([X, bumps()])
    assert rows.labels_[3] == -1


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        ({}, bumps(), "X: expected a list of 2 data sets"),
        ({}, [bumps(), bumps()[:5]], r"X: has parts of \[30, 5\] objects; expected the same number"),
        ({"cost_weights": [1.0]}, [bumps(), bumps()], "cost_weights"),
        ({"cost_weights": [1.0, 0.0]}, [bumps(), bumps()], "cost_weights: has a factor of zero"),
        ({"cost_weights": [1.0, 2.0], "cost": LINE}, bumps(), "cost_weights: does not apply to one cost"),
        ({"feature_vectors": [None]}, [bumps(), bumps()], "feature_vectors: has 1 parts; expected 2"),
        ({"init": bumps()[:3]}, [bumps(), bumps()], "init: expected a list of 2 sets of centroids"),
    ],
)
def test_what_is_refused_for_several_parts(options, X, message):
    with pytest.raises(ValueError, match=message):
        WassersteinKMeans(**{"n_clusters": 3, "cost": [LINE, LINE]} | options).fit(X)


@whole_fit
@pytest.mark.parametrize("support", ["fixed", "free"])
def test_a_stream_of_batches(support):
    X = np.concatenate([bumps(seed) for seed in range(4)])[np.random.default_rng(0).permutation(120)]
    cost = GridCost((3, 4), spacing=1.0)
    options = {"cost": cost, "support": support, "random_state": 1} | ({"n_support": 6} if support == "free" else {})
    whole, stream = WassersteinKMeans(3, n_init=3, **options).fit(X), WassersteinKMeans(3, n_init=3, **options)
    first = stream.partial_fit(X[:30]).score(X)
    np.testing.assert_array_equal(stream.labels_, WassersteinKMeans(3, n_init=3, **options).fit(X[:30]).labels_)
    for start in (30, 60, 90):
        before = stream.score(X[start : start + 30])
        stream.partial_fit(X[start : start + 30])
        assert len(stream.labels_) == 30
        np.testing.assert_allclose(stream.inertia_, -before, rtol=1e-9)  # before the update
        assert stream.inertia_bounds_[0] <= stream.inertia_ <= stream.inertia_bounds_[1]
    assert stream.counts_.sum() == 120
    assert stream.score(X) >= first
    assert -stream.score(X) <= 1.1 * whole.inertia_
    if support == "fixed":
        with pytest.raises(ValueError, match="features"):
            stream.partial_fit(X[:, :5])


@whole_fit
def test_a_batch_without_weights_changes_nothing():
    X, model = bumps(), WassersteinKMeans(3, cost=LINE, random_state=0)
    centres = model.partial_fit(X[:20]).cluster_centers_.copy()
    model.partial_fit(X[20:], sample_weight=np.zeros(10))
    np.testing.assert_array_equal(model.cluster_centers_, centres)
    assert (len(model.labels_), model.inertia_, model.counts_.sum()) == (10, 0, 20)


@whole_fit
def test_an_interrupt_leaves_the_best_so_far():
    X, seen = bumps(), []

    def interrupt(model):
        seen.append(model.inertia_)
        if len(seen) == 2:
            raise KeyboardInterrupt

    model = WassersteinKMeans(3, cost=LINE, random_state=0, callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert model.inertia_ == seen[-1]
    np.testing.assert_array_equal(model.labels_, distances(X, model.cluster_centers_, cost=LINE).argmin(axis=1))
