"""Barycentric coordinates, against known weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import sqrtm
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from gibbsot import (
    DenseCost,
    GridCost,
    PointCost,
    WassersteinBarycenter,
    barycentric_coordinates,
    distances,
    mixture_coordinates,
    solve,
)
from gibbsot.models.geometry import maps as _maps
from gibbsot.models.geometry.coordinates import nearest_weights, part_offsets

GRID = GridCost((32, 32))


def gradients(weights: np.ndarray, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Points, and where gradients of convex functions move them whose weighted mean is the identity."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(50, 2))
    bumps = []
    for _ in weights[:-1]:
        a, (A,) = rng.normal(size=2), rng.normal(size=(1, 2, 2))
        bumps.append(0.1 * x @ (A + A.T) + 0.1 * np.tanh(x @ a)[:, None] * a)
    bumps.append(-sum(w * bump for w, bump in zip(weights, bumps, strict=False)) / weights[-1])
    return x, [x + 0.3 * bump for bump in bumps]


@pytest.mark.parametrize("seed", range(5))
def test_gradients_of_convex_functions_off_the_grid(seed):
    weights = np.random.default_rng(seed).dirichlet(5 * np.ones(3))
    x, references = gradients(weights, seed)
    mass = np.random.default_rng(seed).random(50)
    clouds = [(y, mass) for y in references]
    found, info = barycentric_coordinates([(x, mass)], clouds, "sqeuclidean", return_info=True)
    np.testing.assert_allclose(found[0], weights, atol=1e-10)
    assert info.residual[0] < 1e-20
    assert info.dimension[0] == 0


def gaussian(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    apart = GRID.points() - mean
    z = np.exp(-np.einsum("ij,jk,ik->i", apart, np.linalg.inv(covariance), apart) / 2)
    return np.where(z > 1e-8, z, 0)


def ellipse(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The uniform measure of an ellipse, of whole and partly covered pixels, with 256 points per pixel for areas."""
    points = (np.indices((512, 512)).reshape(2, -1).T / 16 - 15 / 32) / 32
    inside = ((points - mean) @ np.linalg.inv(np.real(sqrtm(covariance))).T) ** 2
    return (inside.sum(axis=1) <= 1).reshape(32, 16, 32, 16).mean(axis=(1, 3)).ravel()


def mean_covariance(covariances: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """The covariance of the barycenter of Gaussians or ellipses, by its fixed point."""
    S = covariances[0]
    for _ in range(100):
        half = np.real(sqrtm(S))
        inner = sum(w * np.real(sqrtm(half @ one @ half)) for w, one in zip(weights, covariances, strict=True))
        S = np.linalg.inv(half) @ inner @ inner @ np.linalg.inv(half)
    return S


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "low", "high"), [(gaussian, 0.05, 0.11), (ellipse, 0.1, 0.3)])
def test_closed_forms_on_a_grid(shape, low, high):
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        weights, means = rng.dirichlet(2 * np.ones(3)), rng.uniform(0.4, 0.6, (3, 2))
        turns = [np.linalg.qr(rng.normal(size=(2, 2)))[0] for _ in range(3)]
        covariances = [turn @ np.diag(rng.uniform(low, high, 2) ** 2) @ turn.T for turn in turns]
        references = [shape(mean, one) for mean, one in zip(means, covariances, strict=True)]
        x = shape(weights @ means, mean_covariance(covariances, weights))[None]
        exact = barycentric_coordinates(x, references, GRID)
        debiased = barycentric_coordinates(x, references, GRID, maps="debiased")
        errors.append(np.abs(np.concatenate([exact, debiased]) - weights).max(axis=1))
        if seed < 4:
            finer = barycentric_coordinates(x, references, GRID, subpixels=3)
            np.testing.assert_allclose(finer[0], weights, atol=0.01)
    exact, debiased = np.sort(errors, axis=0).T
    assert exact[-1] < 0.03
    assert debiased[-2] < 0.005
    assert debiased[-1] < 0.007  # of ellipses that differ little: the pixels themselves are not nearer to them


def test_interpolated_digits(fives):
    cost = GridCost((28, 28))
    result = solve(fives[0], fives[1], cost)
    x = result.interpolate(0.7)
    ends = [(cost.points()[p > 0], p[p > 0]) for p in fives[:2]]
    np.testing.assert_allclose(barycentric_coordinates([tuple(x)], ends, "sqeuclidean")[0], [0.3, 0.7], atol=1e-6)
    drawn = result.interpolate(0.7, on_grid=True)[None]
    for maps in ("exact", "debiased"):
        np.testing.assert_allclose(barycentric_coordinates(drawn, fives[:2], cost, maps=maps)[0], [0.3, 0.7], atol=0.02)


@pytest.mark.parametrize("pair", [(2, 3), (4, 5), (6, 7), (8, 9)])
@pytest.mark.parametrize("t", [0.25, 0.5, 0.8])
def test_digits_between_others(fives, pair, t):
    cost, ends = GridCost((28, 28)), fives[list(pair)]
    drawn = solve(*ends, cost).interpolate(t, on_grid=True)[None]
    np.testing.assert_allclose(barycentric_coordinates(drawn, ends, cost)[0], [1 - t, t], atol=0.02)


def test_a_reference_is_its_own_coordinate(fives):
    found = barycentric_coordinates(fives[:3], fives[:4], GridCost((28, 28)), n_jobs=2)
    np.testing.assert_allclose(found, np.eye(3, 4), atol=1e-9)


def test_halfway_between_two_shapes():
    """The example of the guide, by hand: the barycenter is the shape itself, the mixture moves by 1 and by 3."""
    left, middle, right = (np.eye(9)[[0, 3, 6]] + np.eye(9)[[2, 5, 8]]) / 2
    references, line = np.stack([left, right]), GridCost(9, spacing=1.0)
    w, info = barycentric_coordinates(middle[None], references, line, return_info=True)
    np.testing.assert_allclose(w, [[0.5, 0.5]], atol=1e-12)
    assert info.residual[0] < 1e-20
    w = mixture_coordinates(middle[None], references, line)
    np.testing.assert_allclose(w, [[0.5, 0.5]], atol=1e-12)
    assert solve(w[0] @ references, middle, line).value == pytest.approx(5.0, rel=1e-12)


def test_weights_that_are_not_unique():
    X, references = np.eye(9)[[4]], np.eye(9)[[2, 6, 2, 6]]
    cost = GridCost(9)
    with pytest.warns(UserWarning, match="the coordinates of 1 of 1 measures are not unique, the first is row 0"):
        found = barycentric_coordinates(X, references, cost)
    np.testing.assert_allclose(found, [[0.25] * 4], atol=1e-9)
    _, info = barycentric_coordinates(X, references, cost, return_info=True)
    assert info.dimension[0] == 2
    _, info = barycentric_coordinates(X, np.eye(9)[[2, 6, 8]], cost, return_info=True)
    assert info.dimension[0] == 1
    # at a vertex of the hull none but one weight can be positive
    found, info = barycentric_coordinates(np.eye(9)[[0]], np.eye(9)[[2, 6, 8]], cost, return_info=True)
    np.testing.assert_allclose(found, [[1, 0, 0]], atol=1e-9)
    assert info.dimension[0] == 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6))
def test_the_quadratic_programme(seed, d, K):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(d, K)) * 10.0 ** rng.integers(-3, 3)
    w, dimension = nearest_weights(V)
    np.testing.assert_allclose(w.sum(), 1)
    assert (w >= 0).all()
    # optimal: no vertex is nearer to the origin than the point, in its direction
    point = V @ w
    assert (V.T @ point >= point @ point - 1e-9 * np.abs(V).max() ** 2).all()
    assert 0 <= dimension < K
    if dimension:
        start = np.linalg.lstsq(np.vstack([V, np.ones(K)]), np.append(point, 1), rcond=None)[0]
        assert w @ w >= start @ start - 1e-9
        constraints = [{"type": "eq", "fun": lambda u: np.append(V @ u - point, u.sum() - 1) / np.abs(V).max()}]
        other = minimize(lambda u: u @ u, w, bounds=[(0, 1)] * K, constraints=constraints, method="SLSQP")
        assert not other.success or w @ w <= other.fun + 1e-6


@pytest.mark.parametrize("seed", [0, 1, 50, 84, 104, 111, 128, 129, 130, 228])
def test_several_points_at_the_origin(seed):
    """Where weights are far from unique, rounding made those of least norm wrong in 20 of 600 problems."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(rng.integers(1, 50), rng.integers(30, 60)))
    V[:, rng.random(V.shape[1]) < 0.3] = 0
    w, dimension = nearest_weights(V)
    assert np.abs(V @ w).max() < 1e-3
    assert dimension > 0
    np.testing.assert_allclose(w.sum(), 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cost": GridCost((2, 2), power=1)}, "cost: got .* need squared Euclidean distances"),
        ({"cost": DenseCost(np.ones((4, 4)))}, "cost: got .* need squared Euclidean distances"),
        ({"references": np.ones((2, 5))}, "references: expected 4 weights in each measure"),
        ({"references": np.zeros((2, 4))}, "references: row 0 has no mass"),
        ({"X": np.ones((2, 5))}, "X: expected 4 weights in each measure"),
        ({"maps": "linear"}, "maps: expected one of"),
        ({"subpixels": 0}, "subpixels: expected at least 1"),
        ({"epsilon": -1.0}, "epsilon: expected a positive number"),
        (
            {"X": [np.ones((2, 2))], "references": [np.ones((2, 3))], "cost": "sqeuclidean"},
            "references: have points with 3 coordinates; expected 2 as in X",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        barycentric_coordinates(**{"X": np.eye(4), "references": np.eye(4), "cost": GridCost((2, 2))} | arguments)


def test_points_and_lines():
    X = np.random.default_rng(0).random((3, 5))
    with pytest.warns(UserWarning, match="taken to lie on a line"):
        found = barycentric_coordinates(X, X[:2])
    points = barycentric_coordinates(X, X[:2], PointCost(np.arange(5) / 5))
    np.testing.assert_allclose(barycentric_coordinates(X, X[:2], GridCost(5), subpixels=1), points, atol=1e-9)
    np.testing.assert_allclose(found, barycentric_coordinates(X, X[:2], GridCost(5)), atol=1e-9)


def test_pixels_are_split_along_each_axis():
    """Against clouds of the points and of the parts, in the same order because optimal plans are not unique."""
    rng = np.random.default_rng(0)
    cost, X, references = GridCost((4, 3), spacing=(0.5, 2.0)), rng.random((2, 12)), rng.random((3, 12))
    points, offsets = cost.points(), np.array([[-3, -1], [-1, 3], [1, -3], [3, 1]]) / 8 * [0.5, 2.0]
    parts = (points[:, None] + offsets).reshape(-1, 2)
    clouds = [(parts, np.repeat(row, 4)) for row in references]
    expected = barycentric_coordinates([(points, row) for row in X], clouds, "sqeuclidean")
    np.testing.assert_allclose(barycentric_coordinates(X, references, cost, subpixels=2), expected, atol=1e-9)


@pytest.mark.parametrize("shape", [(7,), (5, 4), (5, 1, 4), (3, 4, 5), (1, 6)])
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_parts_of_a_pixel(shape, parts):
    offsets, wide = part_offsets(shape, parts), np.array(shape) > 1
    assert offsets.shape == (parts ** wide.sum(), len(shape))
    np.testing.assert_allclose(offsets.mean(axis=0), 0, atol=1e-15)
    assert not offsets[:, ~wide].any()
    cells = np.floor((offsets[:, wide] + 0.5) * parts)  # one in each cell
    assert len(np.unique(cells, axis=0)) == len(offsets)
    if wide.sum() == 2:
        assert all(len(np.unique(axis.round(9))) == parts**2 for axis in offsets[:, wide].T)
        np.testing.assert_allclose(np.cov(offsets[:, wide].T, ddof=0)[0, 1] if parts > 1 else 0, 0, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("pair", [(20, 30), (21, 31)])
def test_what_is_rounded_to_the_grid_is_nearer_to_its_coordinates(fives, pair):
    """A barycenter with its support on the grid is nearer to the exact one of its coordinates than to its own."""
    cost, ends, weights = GridCost((28, 28)), fives[list(pair)], np.array([0.65, 0.35])
    x = WassersteinBarycenter(cost, gap=0, random_state=0).fit(ends, sample_weight=weights).barycenter_
    found, points = barycentric_coordinates(x[None], ends, cost)[0], cost.points()
    exact = [tuple(solve(*ends, cost).interpolate(w[1])) for w in (found, weights)]
    near, far = distances([(points[x > 0], x[x > 0])], exact, cost="sqeuclidean")[0]
    assert near < far


def test_iterations_that_do_not_converge(monkeypatch):
    monkeypatch.setattr(_maps, "_ITERATIONS", 2)
    X = np.random.default_rng(0).random((4, 16))
    with pytest.warns(ConvergenceWarning, match="4 of 4 debiased maps ended before they converged") as caught:
        barycentric_coordinates(X[:2], X[2:], GridCost((4, 4)), maps="debiased")
    assert len(caught) == 1
