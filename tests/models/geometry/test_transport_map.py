"""Transport maps between samples, against POT, closed forms and Sinkhorn's algorithm in logarithms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from gibbsot import TransportMap

RNG = np.random.default_rng(0)
X, Y, NEW = RNG.normal(size=(40, 2)), RNG.normal(size=(55, 2)) + 3, RNG.normal(size=(20, 2))


@parametrize_with_checks([TransportMap(), TransportMap(maps="debiased")])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_new_points_move_as_in_pot():
    ot = pytest.importorskip("ot")
    peer = ot.da.EMDTransport().fit(Xs=X, Xt=Y)
    model = TransportMap().fit(X, target=Y)
    np.testing.assert_allclose(model.transform(X), peer.transform(Xs=X), atol=1e-9)
    np.testing.assert_allclose(model.transform(NEW), peer.transform(Xs=NEW), atol=1e-9)


def test_points_of_the_sample_have_their_images_exactly():
    model = TransportMap().fit(X, target=X[::-1] * 2 + 1)
    assert {tuple(x) for x in model.transform(X)} == {tuple(x) for x in model.images_}
    np.testing.assert_allclose(model.transform(X), X * 2 + 1, rtol=1e-15)


def test_equal_points_have_one_image():
    model = TransportMap().fit([[0.0], [0.0], [5.0]], target=[[1.0], [2.0], [9.0]])
    np.testing.assert_allclose(model.transform([[0.0], [5.0], [4.0]]), [[1.5], [9.0], [8.0]])
    assert model.X_.shape == (2, 1)


def test_without_a_target_nothing_moves():
    for maps in ("exact", "debiased"):
        np.testing.assert_array_equal(TransportMap(maps=maps).fit(X).transform(NEW), NEW)


def entropic(points, sources, targets, epsilon):
    """Return the entropic map of uniform samples at points, by Sinkhorn's algorithm in logarithms."""
    C, f = cdist(sources, targets, "sqeuclidean"), np.zeros(len(sources))
    for _ in range(3000):
        g = -epsilon * logsumexp((f[:, None] - C) / epsilon - np.log(len(sources)), axis=0)
        f = -epsilon * logsumexp((g - C) / epsilon - np.log(len(targets)), axis=1)
    share = (g - cdist(points, targets, "sqeuclidean")) / epsilon
    return np.exp(share - logsumexp(share, axis=1, keepdims=True)) @ targets


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_debiased_maps(epsilon):
    model = TransportMap(maps="debiased", epsilon=epsilon).fit(X, target=Y)
    expected = NEW + entropic(NEW, X, Y, epsilon) - entropic(NEW, X, X, epsilon)
    np.testing.assert_allclose(model.transform(NEW), expected, atol=1e-3)
    assert model.epsilon_ == epsilon


def test_a_linear_map_is_found():
    rng, A = np.random.default_rng(1), np.array([[1.5, 0.3], [0.3, 0.8]])
    first, second, new = rng.normal(size=(300, 2)), rng.normal(size=(300, 2)) @ A + 4, rng.normal(size=(500, 2))
    errors = [
        np.sqrt(((TransportMap(maps=maps).fit(first, target=second).transform(new) - new @ A - 4) ** 2).sum(1).mean())
        for maps in ("exact", "debiased")
    ]
    assert max(errors) < 0.4  # a sample of 300 points; without a map the error is 5.8
    assert TransportMap(gap=0.1).fit(first, target=second).result_.gap <= 0.1


@pytest.mark.parametrize(
    ("options", "given", "name"),
    [
        ({"maps": "smooth"}, {}, "maps"),
        ({"epsilon": -1.0}, {}, "epsilon"),
        ({"gap": -1.0}, {}, "gap"),
        ({"gap": 0.1, "maps": "debiased"}, {}, "gap"),
        ({}, {"target": np.ones((4, 3))}, "target"),
        ({}, {"target": [[np.nan, 1.0]]}, "target"),
        ({}, {"y": Y}, "y"),
    ],
)
def test_errors_name_the_argument(options, given, name):
    with pytest.raises(ValueError, match=name):
        TransportMap(**options).fit(X, **given)


def test_iterations_that_do_not_converge_warn():
    with pytest.warns(ConvergenceWarning, match="a larger epsilon is faster"):
        TransportMap(maps="debiased", epsilon=1e-4).fit(X, target=Y)
