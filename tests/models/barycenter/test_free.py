"""Barycenters with free support: closed forms, descent, bounds and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import ot
import pytest
from scipy import sparse
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning

from gibbsot import GridCost, PointCost, WassersteinBarycenter, distances
from gibbsot.core import native
from gibbsot.models.barycenter.free import Alternation, Cloud, Clouds

whole_fit = pytest.mark.skipif(native.name() == "numpy", reason="takes minutes, and says nothing of the kernels")


def free(**options) -> WassersteinBarycenter:
    return WassersteinBarycenter(**{"support": "free", "random_state": 0} | options)


def objective(support, weights, clouds, lambdas=None) -> float:
    """By POT."""
    costs = [ot.emd2(weights, q / np.sum(q), cdist(support, Y, "sqeuclidean")) for Y, q in clouds]
    return float(np.average(costs, weights=lambdas))


def some_clouds(count: int, d: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(m, d)) + rng.normal(size=d), rng.random(m)) for m in rng.integers(5, 9, count)]


@pytest.mark.parametrize("d", [2, 5])
def test_two_measures_have_the_displacement_interpolation(d):
    clouds, (a, b) = some_clouds(2, d), (0.3, 0.7)
    model = free(n_support=30).fit(clouds, sample_weight=[a, b])
    expected = a * b * distances(clouds, cost="sqeuclidean")[0, 1]
    assert abs(model.objective_ - expected) <= 1e-9 * expected
    assert model.status_ == "optimal"
    assert model.lower_bound_ <= model.objective_ * (1 + 1e-9)
    plan = ot.emd(*(q / q.sum() for _, q in clouds), cdist(clouds[0][0], clouds[1][0], "sqeuclidean"))
    i, j = np.nonzero(plan > 1e-12)
    interpolated = a * clouds[0][0][i] + b * clouds[1][0][j]
    assert ot.emd2(plan[i, j], model.barycenter_, cdist(interpolated, model.support_, "sqeuclidean")) < 1e-9


def test_one_measure_is_its_barycenter():
    [(Y, _)] = some_clouds(1, 2)
    model = free().fit([Y])
    np.testing.assert_array_equal(model.support_, Y)
    np.testing.assert_allclose(model.barycenter_, 1 / len(Y), rtol=1e-15)
    assert (str(model.objective_), model.status_) == ("0.0", "optimal")


def test_two_measures_and_fewer_points_start_from_the_interpolation():
    clouds = some_clouds(2, 2)
    whole, few = free(n_support=30).fit(clouds), free(n_support=3).fit(clouds)
    assert len(few.support_) == 3
    assert few.lower_bound_ == whole.lower_bound_
    assert whole.objective_ < few.objective_
    problem = Clouds(*zip(*clouds, strict=True))
    start = problem.start(3, np.random.RandomState(0), problem.closed_form())
    assert (cdist(start.points + problem.mean, whole.support_).min(axis=1) < 1e-9).all()


def test_on_the_line_quantile_functions_are_averaged():
    clouds, weights = some_clouds(4, 1), np.array([1.0, 2.0, 0.0, 1.5])
    model = free(n_support=40).fit(clouds, sample_weight=weights)
    assert model.status_ == "optimal"
    assert model.gap_ <= 1e-9
    share = weights / weights.sum()
    levels = (np.arange(5000) + 0.5) / 5000

    def quantile(x, w):
        order = np.argsort(x)
        return x[order][np.searchsorted(np.cumsum(w[order]) / w.sum(), levels)]

    expected = sum(s * quantile(Y[:, 0], q) for s, (Y, q) in zip(share, clouds, strict=True))
    found = quantile(model.support_[:, 0], model.barycenter_)
    assert np.mean(np.abs(found - expected) > 1e-9) < 0.01  # all but those beside a jump
    pairs = itertools.combinations(range(4), 2)
    D = distances(clouds, cost="sqeuclidean")
    bound = sum(share[i] * share[j] * D[i, j] for i, j in pairs)
    assert abs(model.objective_ - bound) <= 1e-9 * bound


def test_fewer_points_on_the_line_are_the_best_ones():
    clouds = some_clouds(3, 1)
    whole, few = (free(n_support=k).fit(clouds) for k in (40, 3))
    x, w = whole.support_[:, 0], whole.barycenter_

    def spread(part):
        return w[part] @ (x[part] - np.average(x[part], weights=w[part])) ** 2

    cuts = itertools.combinations(range(1, len(x)), 2)
    best = min(spread(slice(0, a)) + spread(slice(a, b)) + spread(slice(b, None)) for a, b in cuts)
    assert abs(few.objective_ - (whole.objective_ + best)) <= 1e-9 * few.objective_


@whole_fit
def test_the_objective_falls_and_is_certified():
    clouds = some_clouds(6, 2)
    problem = Clouds([Y for Y, _ in clouds], [q for _, q in clouds])
    start = problem.start(5, np.random.RandomState(0), None)
    run = Alternation(problem, start, tol=1e-4)
    values = [run.now.value for _ in run.run()]
    assert (np.diff(values) <= 0).all()
    assert values[-1] < values[0]
    cloud = run.cloud()
    lower, upper = problem.objective(cloud)
    exact = objective(cloud.points, cloud.weights, clouds)
    assert lower <= upper
    assert abs(upper - exact) <= 1e-9 * exact
    assert abs(values[-1] - exact) <= 1e-9 * exact
    assert 0 <= problem.pairs_bound() < upper
    # other weights of these points gain no more than was proved
    X = cloud.points - problem.mean
    rng = np.random.default_rng(1)
    for _ in range(20):
        p = rng.dirichlet(50 * cloud.weights + 0.1)
        assert problem.plans(X, p).value >= values[-1] * (1 - run.weights_gap) - 1e-12


@whole_fit
def test_it_is_no_worse_than_that_of_pot_from_the_same_start():
    rng = np.random.default_rng(3)
    points = [rng.normal(size=(30, 2)) @ rng.normal(size=(2, 2)) + rng.normal(size=2) for _ in range(12)]
    start, uniform = points[0][:10], np.full(30, 1 / 30)
    theirs = ot.lp.free_support_barycenter(points, [uniform] * 12, start, np.full(10, 0.1), stopThr=1e-9)
    model = free(init=start, n_support=10, tol=1e-6).fit(points)
    clouds = [(Y, uniform) for Y in points]
    assert model.objective_ <= objective(theirs, np.full(10, 0.1), clouds) * (1 + 1e-9)
    assert model.stationarity_ <= 1e-5
    assert model.status_ == "stationary"


@whole_fit
@pytest.mark.slow
def test_gaussian_clouds_approach_the_closed_form():
    rng = np.random.default_rng(0)
    roots = [np.linalg.qr(rng.normal(size=(2, 2)))[0] * [1.0, s] for s in (0.3, 0.6, 2.0)]
    covariances = [A @ A.T for A in roots]
    S = np.eye(2)
    for _ in range(200):  # Alvarez-Esteban et al. (2016)
        root = np.real(sqrtm(S))
        mean = sum(np.real(sqrtm(root @ C @ root)) for C in covariances) / 3
        S = np.linalg.inv(root) @ mean @ mean @ np.linalg.inv(root)
    errors = []
    for m in (20, 80, 320):
        clouds = [rng.normal(size=(m, 2)) @ A.T for A in roots]
        model = free(n_support=m, tol=1e-4).fit(clouds)
        centred = model.support_ - model.barycenter_ @ model.support_
        errors.append(np.abs((centred * model.barycenter_[:, None]).T @ centred - S).max())
    assert errors[2] < 0.15 < errors[0]
    assert errors[2] < errors[1]


@whole_fit
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_rows_over_a_common_support_are_clouds(kind):
    rng = np.random.default_rng(0)
    X = rng.random((4, 12)) * (rng.random((4, 12)) < 0.6)
    cost = GridCost((3, 4), spacing=1.0)
    points = cost.points()
    clouds = [(points[x > 0], x[x > 0]) for x in X]
    ours, theirs = free(cost=cost, n_support=4).fit(kind(X)), free(n_support=4).fit(clouds)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    assert ours.objective_ == theirs.objective_
    assert ours.n_features_in_ == 12
    vectors = free(cost="sqeuclidean", feature_vectors=points, n_support=4).fit(X)
    np.testing.assert_array_equal(vectors.support_, theirs.support_)


@whole_fit
def test_threads_and_seeds_give_the_same_result():
    clouds = some_clouds(5, 3)
    first, other = (free(n_support=4, n_jobs=k, n_init=2).fit(clouds) for k in (1, 2))
    np.testing.assert_array_equal(first.support_, other.support_)
    np.testing.assert_array_equal(first.barycenter_, other.barycenter_)
    single = free(n_support=4).fit(clouds)
    assert first.objective_ <= single.objective_
    assert len(single.history_) == single.n_iter_


@whole_fit
def test_the_lower_bound_is_on_request():
    clouds = some_clouds(4, 2)
    assert free(n_support=3, max_pairs=5).fit(clouds).lower_bound_ == 0
    model = free(n_support=3, max_pairs=np.inf).fit(clouds)
    D = distances(clouds, cost="sqeuclidean")
    assert abs(model.lower_bound_ - D.sum() / 32) <= 1e-9 * model.lower_bound_
    assert 0 < model.lower_bound_ < model.objective_
    assert 0 < model.gap_ < 1


@whole_fit
def test_budgets_and_callbacks_end_a_fit():
    clouds = some_clouds(4, 2)
    with pytest.warns(ConvergenceWarning, match="max_epochs, max_seconds: ended the fit after 2 updates"):
        assert free(n_support=3, max_epochs=2).fit(clouds).status_ == "budget spent"
    seen = []
    model = free(n_support=3, callbacks=[lambda model: seen.append(model.support_.copy()) or len(seen) == 3])
    assert model.fit(clouds).status_ == "stopped"
    assert len(seen) == 3
    assert model.n_iter_ == 3


@whole_fit
def test_an_interrupt_leaves_the_best_so_far_and_proves_nothing():
    clouds, seen = some_clouds(4, 2), []

    def interrupt(model):
        seen.append(model.support_.copy())
        if len(seen) == 3:
            raise KeyboardInterrupt

    model = free(n_support=3).fit(some_clouds(5, 2, 1)).set_params(callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        model.fit(clouds)
    np.testing.assert_array_equal(model.support_, seen[-1])
    assert (model.objective_, model.lower_bound_, model.gap_, model.status_) == (np.inf, 0, np.inf, "running")


@whole_fit
@pytest.mark.parametrize("scale", [1e-100, 1e-6, 1e6, 1e100])
def test_the_scale_of_the_points_does_not_matter(scale):
    clouds = some_clouds(4, 2)
    one, other = (free(n_support=3).fit([(s * Y, q) for Y, q in clouds]) for s in (1.0, scale))
    np.testing.assert_allclose(other.objective_, one.objective_ * scale**2, rtol=1e-9)
    np.testing.assert_allclose(other.support_, one.support_ * scale, rtol=1e-6)


@whole_fit
@pytest.mark.parametrize(("count", "size", "seed"), [(8, 5, 0), (8, 8, 8), (16, 5, 9)])
def test_stationary_means_that_the_points_gain_little(count, size, seed):
    """After the last two starts the points still gain when the weights rest, by 0.05 % and 0.17 %."""
    clouds = some_clouds(count, 2, seed)
    model = free(n_support=size, random_state=seed).fit(clouds)
    assert model.status_ == "stationary"
    assert model.stationarity_ <= model.tol
    # the bound holds: the best points for the plans gain at least this
    problem = Clouds(*zip(*clouds, strict=True))
    now = problem.plans(model.support_ - problem.mean, model.barycenter_)
    moved = problem.plans(now.targets, model.barycenter_)
    assert moved.value <= now.value * (1 - model.stationarity_) + 1e-9 * now.value


@whole_fit
def test_a_start_with_weights():
    clouds = some_clouds(4, 2)
    start = np.zeros((2, 2)), np.array([1.0, 3.0])
    model = free(init=start, max_epochs=1000).fit(clouds)
    assert len(model.support_) <= 2
    X = np.concatenate([Y for Y, _ in clouds])[:6]
    assert Alternation(Clouds(*zip(*clouds, strict=True)), Cloud(X, np.full(6, 1 / 6)), 1e-3).X.shape == (6, 2)


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        ({"cost": "cityblock"}, some_clouds(2, 2), "cost: is 'cityblock'; expected 'sqeuclidean'"),
        ({"cost": np.subtract}, some_clouds(2, 2), "cost: is .*; expected 'sqeuclidean'"),
        ({"cost": GridCost(2)}, some_clouds(2, 2), "cost: is GridCost.*; expected 'sqeuclidean'"),
        ({"cost": GridCost(4, power=1)}, np.ones((2, 4)), "cost: GridCost.* is not a squared Euclidean distance"),
        ({"cost": PointCost(np.eye(4), metric="cosine")}, np.ones((2, 4)), "is not a squared Euclidean distance"),
        ({"cost": np.ones((4, 4))}, np.ones((2, 4)), "is not a squared Euclidean distance.*support='fixed'"),
        ({"tau": 5}, some_clouds(2, 2), "tau: does not apply to support='free'; expected its default, 20"),
        ({"checkpoint": "there"}, some_clouds(2, 2), "checkpoint: does not apply to support='free'"),
        ({"support": "fixed", "n_support": 3}, np.ones((2, 4)), "n_support: does not apply to support='fixed'"),
        ({"support": "open"}, np.ones((2, 4)), "support: expected"),
        ({"n_support": 0}, some_clouds(2, 2), "n_support: expected"),
        ({"init": np.ones((3, 3))}, some_clouds(3, 2), r"init: has shape \(3, 3\); expected"),
        ({"init": "random"}, some_clouds(3, 2), "init: expected"),
        ({}, [np.ones((2, 2)), np.ones((2, 3))], r"X\[1\]: has points with 3 coordinates; expected 2"),
    ],
)
def test_what_is_refused(options, X, message):
    with pytest.raises(ValueError, match=message):
        free(**options).fit(X)
