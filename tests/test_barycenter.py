"""Barycenters against those of a linear programme, and what an estimator owes its users."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from scipy import sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

from gibbsot import DenseCost, GridCost, kernels
from gibbsot.barycenter import WassersteinBarycenter

SIZE = 20
M = GridCost(SIZE).matrix()


def bumps(*places: float, width: float = 4.0) -> np.ndarray:
    x = np.exp(-((np.arange(SIZE) - np.array(places)[:, None]) ** 2) / width)
    return x / x.sum(axis=1, keepdims=True)


def objective(p: np.ndarray, X: np.ndarray, weights: np.ndarray | None = None, cost: np.ndarray = M) -> float:
    p = np.asarray(p, np.float64)
    return float(np.average([ot.emd2(p / p.sum(), x / x.sum(), cost) for x in X], weights=weights))


def best(X: np.ndarray, weights: np.ndarray | None = None, cost: np.ndarray = M) -> float:
    p = ot.lp.barycenter(X.T, cost, weights=weights, solver="highs")
    return objective(np.maximum(p, 0), X, weights, cost)


def short(**options) -> WassersteinBarycenter:
    return WassersteinBarycenter(**{"max_epochs": 30, "tau": 5, "random_state": 0} | options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(kernels.name() == "numpy", reason="takes minutes, and says nothing of the kernels")
@parametrize_with_checks([WassersteinBarycenter(max_epochs=2, tau=3)])
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5]])
@pytest.mark.parametrize("seed", [0, 1])
def test_as_good_as_a_linear_programme(weights, seed):
    """To one per cent of its cost, on a line."""
    X = bumps(4, 9, 16)
    share = None if weights is None else np.array(weights) / np.sum(weights)
    model = WassersteinBarycenter(GridCost(SIZE), weights=weights, random_state=seed).fit(X)
    exact = objective(model.barycenter_, X, share)
    assert exact < 1.01 * best(X, share)
    assert model.objective_ == pytest.approx(exact, rel=1e-4)


def test_any_cost_and_two_dimensions():
    """Four spots in the corners of 5 x 5: the barycenter sits in the middle, as the programme's does."""
    X = np.zeros((4, 25))
    X[np.arange(4), [0, 4, 20, 24]] = 1
    cost = GridCost((5, 5))
    for given in (cost, DenseCost(cost.matrix())):
        p = WassersteinBarycenter(given, random_state=0).fit(X).barycenter_
        assert p.argmax() == 12
        assert objective(p, X, cost=cost.matrix()) < 1.01 * best(X, cost=cost.matrix())


def test_one_measure_is_its_own_barycenter():
    X = bumps(6, 13)
    model = WassersteinBarycenter(weights=[0, 3], random_state=0).fit(X)
    assert objective(model.barycenter_, X[1:]) < 0.01 * objective(X[0], X[1:])


def test_the_same_bits():
    """For the same seed, any number of threads, and sparse data; not for another seed."""
    X = bumps(4, 9, 16)
    first = short(n_jobs=1).fit(X).barycenter_
    np.testing.assert_array_equal(short(n_jobs=2).fit(X).barycenter_, first)
    np.testing.assert_array_equal(short().fit(sparse.csr_array(X)).barycenter_, first)
    assert (short(random_state=1).fit(X).barycenter_ != first).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_a_fit_leaves(dtype):
    X = bumps(4, 9).astype(dtype)
    model = short(max_epochs=25).fit(X)
    assert model.barycenter_.shape == (SIZE,)
    assert model.barycenter_.dtype == dtype
    assert (model.barycenter_ >= 0).all()
    assert model.barycenter_.sum() == pytest.approx(1, rel=1e-6)
    assert model.n_iter_ == len(model.history_) == 25
    looks = [epoch for epoch in model.history_ if np.isfinite(epoch.upper)]
    assert [epoch.lower <= epoch.upper for epoch in looks] == [True] * 3
    assert model.objective_ <= min(epoch.upper for epoch in looks)


def test_callbacks_stop_it_and_an_interrupt_leaves_the_best():
    X = bumps(4, 9)
    model = short(callbacks=[lambda each: each.n_iter_ == 12]).fit(X)
    assert model.n_iter_ == 12

    def interrupt(each):
        if each.n_iter_ == 15:
            raise KeyboardInterrupt

    stopped = short(callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(X)
    assert objective(stopped.barycenter_, X) == pytest.approx(stopped.objective_, rel=1e-4)


def test_rows_without_mass_are_left_out():
    X = bumps(4, 9, 16)
    X[1] = 0
    with pytest.warns(UserWarning, match="1 rows have no mass, the first is row 1"):
        model = short().fit(X)
    np.testing.assert_array_equal(model.barycenter_.shape, (SIZE,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1.0]}, "weights: expected 2 numbers >= 0"),
        ({"weights": [1.0, -1.0]}, "weights: expected 2 numbers >= 0"),
        ({"weights": [0.0, 0.0]}, "weights: expected 2 numbers >= 0"),
        ({"weights": [1.0, np.nan]}, "weights: expected 2 numbers >= 0"),
        ({"cost": GridCost(3)}, "cost: is for 3 x 3 points; expected 20 x 20"),
        ({"cost": np.full((SIZE, SIZE), np.inf)}, "cost: "),
        ({"max_epochs": 0}, "max_epochs"),
        ({"step_size": 0.0}, "step_size: expected a positive number"),
        ({"temperature": "hot"}, "temperature: expected 'auto'"),
        ({"tol": -1.0}, "tol: expected a number >= 0"),
        ({"callbacks": print}, "callbacks: expected a sequence"),
    ],
)
def test_bad_parameters(options, message):
    model = short(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(bumps(4, 9))
    assert not hasattr(model, "barycenter_")


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_bad_data(value):
    X = bumps(4, 9)
    X[0, 3] = value
    with pytest.raises(ValueError, match="X"):
        short().fit(X)
