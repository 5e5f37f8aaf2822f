"""Costs of any scale, and costs less a constant, give the same models."""

import warnings
from functools import cache, partial

import numpy as np
import pytest

from gibbsot import (
    DenseCost,
    GridCost,
    PointCost,
    WassersteinBarycenter,
    WassersteinClassifier,
    WassersteinNMF,
    mixture_coordinates,
)
from gibbsot.costs import in_units
from gibbsot.oracle.chains import TargetChains

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

m = 12
rng = np.random.default_rng(0)
X = rng.random((15, m)) ** 3
X /= X.sum(axis=1, keepdims=True)
POINTS = rng.random((m, 2))
M = PointCost(POINTS).matrix()
LABELS = np.arange(60) % 4
FEATURES = rng.normal(size=(60, 3)) + LABELS[:, None]
ORDINAL = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))

# factor and constant, and how exact results are: bit-identical, or to the rounding of single precision
UNITS = pytest.mark.parametrize(
    ("factor", "constant", "same"),
    [(2.0**9, 0, 0), (2.0**-300, 0, 0), (1e155, 0, 1e-4), (1e-200, 0, 1e-4), (1e300, 0, 1e-4), (1, -0.7, 1e-4),
     (4, 1e3, 1e-4), (1e300, -1e300, 1e-4), (1e-200, -1e-199, 1e-4)],
)  # fmt: skip


@cache
def nmf(factor=1.0, constant=0.0):
    return WassersteinNMF(3, cost=factor * M + constant, max_epochs=12, tau=5, init="random", random_state=0).fit(X)


@cache
def barycenter(factor=1.0, constant=0.0):
    return WassersteinBarycenter(factor * M + constant, tau=5, tol=1e-4, random_state=0).fit(X)


@cache
def classifier(factor=1.0, constant=0.0):
    return WassersteinClassifier(factor * ORDINAL + constant, max_epochs=8, random_state=0).fit(FEATURES, LABELS)


@UNITS
def test_nmf(factor, constant, same):
    model, usual = nmf(factor, constant), nmf()
    for name in ("components_", "memberships_"):
        np.testing.assert_allclose(getattr(model, name), getattr(usual, name), rtol=0, atol=same)
    np.testing.assert_allclose(model.transform(X), usual.transform(X), rtol=0, atol=10 * same)
    rtol = max(same, 1e-15)
    np.testing.assert_allclose((model.reconstruction_err_ - constant) / factor, usual.reconstruction_err_, rtol=rtol)
    np.testing.assert_allclose((-model.score(X) - constant) / factor, -usual.score(X), rtol=10 * rtol)
    for name in ("estimate", "lower", "upper", "temperature"):
        shift = 0 if name == "temperature" else constant
        found = [(getattr(epoch, name) - shift) / factor for epoch in model.history_]
        np.testing.assert_allclose(found, [getattr(epoch, name) for epoch in usual.history_], rtol=10 * rtol)


@UNITS
def test_mixture_coordinates(factor, constant, same):
    found, usual = (mixture_coordinates(X, X[:3], cost) for cost in (factor * M + constant, M))
    np.testing.assert_allclose(found, usual, rtol=0, atol=same)


@UNITS
def test_barycenter(factor, constant, same):
    """The descent is sensitive to rounding, what it converges to is not."""
    model, usual = barycenter(factor, constant), barycenter()
    if same == 0:
        np.testing.assert_array_equal(model.barycenter_, usual.barycenter_)
    found, lower = ((x - constant) / factor for x in (model.objective_, model.lower_bound_))
    np.testing.assert_allclose([found, lower], [usual.objective_, usual.lower_bound_], rtol=max(200 * same, 1e-15))
    assert lower <= min(found, usual.objective_)
    assert usual.lower_bound_ <= found


@UNITS
def test_classifier(factor, constant, same):
    model, usual = classifier(factor, constant), classifier()
    np.testing.assert_allclose(model.coef_, usual.coef_, rtol=0, atol=same)
    np.testing.assert_allclose((model.objective_ - constant) / factor, usual.objective_, rtol=max(same, 1e-15))


@UNITS
def test_oracle(factor, constant, same):
    values, gradients, info = TargetChains(M, X)(X[::-1], 1e-3, bounds=True)
    oracle = TargetChains(factor * M + constant, X)
    found = oracle(X[::-1], factor * 1e-3, bounds=True)
    exactly, atol = constant == 0 and same == 0, 1e-12 * (1 + abs(constant) / factor)
    for x, usual, shift in ((found[0], values, constant), (found[1], gradients, 0.0)):
        np.testing.assert_allclose((x - shift) / factor, usual, rtol=0, atol=0 if exactly else atol)
    for name in ("lower", "upper"):
        np.testing.assert_allclose((getattr(found[2], name) - constant) / factor, getattr(info, name), atol=atol)
    exact = np.array([optimum.value for optimum in oracle.exact(X[::-1], factor * 1e-3)])
    assert (found[2].lower <= exact).all()
    assert (exact <= found[2].upper).all()


@pytest.mark.filterwarnings("ignore:1 of 1 barycenters ended with an open gap")
def test_a_stream_and_a_given_temperature():
    for factor, constant in ((1e155, 0.0), (1e-200, 0.0), (4.0, -8.0)):
        cost, options = factor * M + constant, {"tau": 3, "init": "random", "random_state": 0}
        one, other = (WassersteinNMF(3, cost=c, **options).partial_fit(X).partial_fit(X) for c in (cost, M))
        np.testing.assert_allclose(one.components_, other.components_, atol=1e-4)
        for kind in (WassersteinNMF, partial(WassersteinBarycenter, max_memory=1.0, gap=1e-6)):
            model = kind(cost=cost, max_epochs=1, temperature=factor * 1e-3, random_state=0).fit(X)
            assert model.history_[0].temperature == pytest.approx(factor * 1e-3)


def test_files_and_resume_in_units(tmp_path):
    cost = 3e-200 * M - 5e-200
    model = WassersteinNMF(2, cost=cost, max_epochs=4, tau=3, random_state=0).fit(X)
    model.save(tmp_path / "model.npz")
    loaded = WassersteinNMF.load(tmp_path / "model.npz")
    assert loaded.reconstruction_err_ == model.reconstruction_err_
    for one in (model, loaded):
        one.set_params(max_epochs=8).resume(X)
    np.testing.assert_array_equal(loaded.components_, model.components_)


def test_negative_costs_of_labels():
    """The smallest cost is what counts: the negative of a cost is one too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = WassersteinClassifier(-ORDINAL, max_epochs=3, random_state=0).fit(FEATURES, LABELS)
    np.testing.assert_array_equal(model.cost_.matrix(), -ORDINAL)


@pytest.mark.parametrize(
    "cost",
    [
        DenseCost(M - 3),
        DenseCost(M, np.float32),
        DenseCost(np.zeros((3, 3))),
        DenseCost(1e300 * (M - 0.5)),
        GridCost((3, 4), spacing=1e-90),
        GridCost(matrices=[[[-1.0, 5.0], [5.0, 0.0]], [[2.0, 3.0], [7.0, 2.0]]]),
        PointCost(1e100 * POINTS),
        PointCost(1e-30 * POINTS, 1e-30 * POINTS + 1e-29, metric="euclidean"),
        PointCost(POINTS, metric="cosine"),
        PointCost(1e10 * POINTS, metric="cityblock", dtype=np.float32),
    ],
    ids=repr,
)
def test_units(cost):
    units = in_units(cost)
    back = units.shift + units.unit * units.cost.matrix().astype(np.float64)
    size = cost.spread() + abs(cost.least())
    np.testing.assert_allclose(back, cost.matrix(), rtol=0, atol=4 * np.finfo(cost.dtype).eps * size)
    assert np.frexp(units.unit)[0] == 0.5
    assert units.cost.matrix().min() >= 0
    assert units.cost.matrix().max() <= 1
    assert units.cost.spread() >= 0.25 or cost.spread() == 0
    assert units.single().cost.dtype == np.float32


@pytest.mark.parametrize("shape", [7, (5, 9), (3, 4, 2)])
def test_squared_distances_on_a_grid_stay_those_of_points(shape):
    """Exact evaluations then need no matrix, and are for the cost before it was rounded to single precision."""
    cost = GridCost(shape, spacing=0.3)
    units = in_units(cost)
    defined = GridCost(cost.row_shape, spacing=units.cost.spacing)
    for axis, found in zip(defined.axes, units.cost.axes, strict=True):
        np.testing.assert_array_equal(found, axis)
    single = units.single().cost
    assert single.geometry() is None
    assert single.unrounded() == defined
    np.testing.assert_array_equal(units.unit * single.unrounded().matrix(), cost.matrix())
    assert in_units(GridCost(shape, power=1.5)).cost.spacing is None


def test_metrics_whose_matrix_is_too_large_stay_as_they_are(monkeypatch):
    monkeypatch.setattr("gibbsot.costs.points.MATRIX_BYTES", 100)
    cost = PointCost(POINTS, metric="cosine")
    assert in_units(cost) == (cost, 0.0, 1.0)
    assert in_units(PointCost(2 * POINTS)).cost == in_units(PointCost(POINTS)).cost
