"""Coordinates in given components, against a linear programme."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from scipy import sparse
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

import gibbsot
from gibbsot import GridCost, mixture_coordinates
from gibbsot.distributed import fixed_point
from gibbsot.exact.programme import free_measure
from gibbsot.models.mixtures import factors, least_squares

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

SIZE = 12
M = GridCost(SIZE).matrix()
rng = np.random.default_rng(0)
COMPONENTS = np.exp(-((np.arange(SIZE) - np.array([[1], [5], [9]])) ** 2) / 3)
X = rng.multinomial(60, rng.dirichlet(np.full(SIZE, 0.5), 8)).astype(float)


def shares(x: np.ndarray) -> np.ndarray:
    return x / x.sum(axis=1, keepdims=True)


def value(w: np.ndarray, x: np.ndarray) -> float:
    """The exact cost of a mixture."""
    p = w @ shares(COMPONENTS)
    return ot.emd2(p / p.sum(), x / x.sum(), M)


def best(x: np.ndarray) -> float:
    """The least cost of any mixture: over plans and memberships, by HiGHS."""
    D, K = shares(COMPONENTS), len(COMPONENTS)
    eye, ones = np.eye(SIZE), np.ones((1, SIZE))
    rows = np.block(
        [
            [np.kron(eye, ones), -D.T],
            [np.kron(ones, eye), np.zeros((SIZE, K))],
            [np.zeros((1, SIZE**2)), np.ones((1, K))],
        ]
    )
    right = np.concatenate([np.zeros(SIZE), x / x.sum(), [1]])
    return linprog(np.concatenate([M.ravel(), np.zeros(K)]), A_eq=rows, b_eq=right).fun


@pytest.mark.parametrize("gap", [0.0, 1e-3, 0.05])
def test_certified_to_a_gap(gap):
    """Against a linear programme, where no mixture fits well; least squares is 30 % off."""
    W = mixture_coordinates(X, COMPONENTS, "line", gap=gap)
    np.testing.assert_allclose(W.sum(axis=1), 1, rtol=1e-12)
    ratio = np.array([value(w, x) / best(x) for w, x in zip(W, X, strict=True)])
    assert (ratio > 1 - 1e-9).all()
    assert ratio.max() < 1 + max(gap, 1e-9)
    rough = least_squares(sparse.csr_array(shares(X)), factors(fixed_point.components(shares(COMPONENTS))))
    assert np.mean([value(w, x) / best(x) for w, x in zip(rough, X, strict=True)]) > 1.2


@pytest.mark.parametrize("gap", [0.0, 1e-3])
def test_certified_on_chosen_arcs(monkeypatch, gap):
    """The same by the interior-point method on few arcs."""
    monkeypatch.setattr(free_measure, "_ALL_ARCS", 0)
    W = mixture_coordinates(X, COMPONENTS, "line", gap=gap)
    ratio = np.array([value(w, x) / best(x) for w, x in zip(W, X, strict=True)])
    assert (ratio > 1 - 1e-9).all()
    assert ratio.max() < 1 + max(gap, 1e-9)


def test_estimated_by_descent():
    """To six per cent of the cost in the mean."""
    W = mixture_coordinates(X, COMPONENTS, "line", gap=None)
    ratio = np.array([value(w, x) / best(x) for w, x in zip(W, X, strict=True)])
    assert ratio.mean() < 1.06
    assert ratio.max() < 1.15


def test_results_depend_on_the_shares_of_one_row_only():
    W = mixture_coordinates(X, COMPONENTS, GridCost(SIZE))
    np.testing.assert_array_equal(mixture_coordinates(4 * X, COMPONENTS, "line"), W)
    np.testing.assert_array_equal(mixture_coordinates(sparse.csr_array(X), COMPONENTS, "line"), W)
    np.testing.assert_array_equal(mixture_coordinates(X[3:5], COMPONENTS, "line", n_jobs=2, batch_size=1), W[3:5])
    np.testing.assert_allclose(mixture_coordinates(X, 7 * COMPONENTS, "line"), W, atol=1e-6)


def test_a_model_gives_the_same():
    model = gibbsot.WassersteinNMF(3, cost="line", max_epochs=3, random_state=0).fit(X)
    assert model.transform(X).shape == (8, 3)
    np.testing.assert_array_equal(mixture_coordinates(X, model.components_, "line"), model.transform(X))


def test_a_measure_without_mass_belongs_to_all():
    W = mixture_coordinates(np.vstack([X[:1], 0 * X[:1]]), COMPONENTS, "line")
    np.testing.assert_allclose(W[1], 1 / 3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"X": -X}, "X: has negative weights, the first at row 0"),
        ({"X": X[0]}, r"X: expected measures as rows, shape \(n, m\)"),
        ({"components": COMPONENTS[:, 1:]}, "components: expected 12 weights in each measure, got shape"),
        ({"components": -COMPONENTS}, "components: has negative weights, .*; expected finite weights >= 0"),
        ({"components": 0 * COMPONENTS}, "components: row 0 has no mass"),
        ({"cost": GridCost(5)}, "cost: is for 5 x 5 points"),
        ({"step_size": 0}, "step_size"),
        ({"tau": 0}, "tau: expected at least 1"),
        ({"batch_size": 0}, "batch_size: expected at least 1"),
    ],
)
def test_bad_input(changed, message):
    with pytest.raises(ValueError, match=message):
        mixture_coordinates(**{"X": X, "components": COMPONENTS, "cost": "line"} | changed)


@pytest.mark.parametrize("limit", ["max_seconds", "max_memory"])
def test_a_budget_ends_with_the_best_so_far(monkeypatch, limit):
    monkeypatch.setattr(free_measure.FreeMeasure, "small", False)
    rng = np.random.default_rng(7)
    X, D = rng.dirichlet(np.full(36, 0.3), size=4), rng.dirichlet(np.full(36, 0.3), size=3)
    with pytest.warns(ConvergenceWarning, match="4 of 4 memberships ended .* the time or memory allowed was used up"):
        early = mixture_coordinates(X, D, GridCost((6, 6)), **{limit: 1e-9})
    np.testing.assert_allclose(early.sum(axis=1), 1)
    np.testing.assert_array_equal(
        mixture_coordinates(X, D, GridCost((6, 6)), **{limit: 1e12}), mixture_coordinates(X, D, GridCost((6, 6)))
    )
    with pytest.raises(ValueError, match=f"{limit}: expected a positive number"):
        mixture_coordinates(X, D, GridCost((6, 6)), **{limit: 0})
    with pytest.raises(ValueError, match=f"{limit}: bounds the linear programme; expected a gap"):
        mixture_coordinates(X, D, GridCost((6, 6)), gap=None, **{limit: 1})
