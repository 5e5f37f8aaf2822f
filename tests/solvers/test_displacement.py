"""Displacement interpolation, against closed forms and the constant speed of geodesics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from gibbsot import DenseCost, GridCost, PointCost, distances, solve, solve_batch
from gibbsot.solvers.displacement import rasterize

times = st.floats(0, 1)


@given(st.integers(0, 2**32 - 1), times)
def test_geodesics_have_constant_speed(seed, t):
    rng = np.random.default_rng(seed)
    X, Y, p = rng.normal(size=(8, 2)), rng.normal(size=(6, 2)), rng.random(8)
    result = solve(p / p.sum(), None, PointCost(X, Y))
    points, weights = result.interpolate(t)
    np.testing.assert_allclose(weights.sum(), 1)
    ends = distances([(X, p), Y], [(points, weights)], cost="sqeuclidean").ravel()
    np.testing.assert_allclose(ends, [t**2 * result.value, (1 - t) ** 2 * result.value], atol=1e-9)


def test_translations():
    p, q = np.zeros((2, 10, 12))
    p[1:4, 2:5], q[5:8, 6:9] = 1, 1
    result = solve(p, q, GridCost((10, 12)))
    for t, (row, column) in {0.0: (1, 2), 0.25: (2, 3), 0.5: (3, 4), 1.0: (5, 6)}.items():
        expected = np.zeros((10, 12))
        expected[row : row + 3, column : column + 3] = 1
        found = result.interpolate(t, on_grid=True)
        assert found.shape == (10, 12)
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_masses_and_batches():
    P, Q = np.eye(4)[:2] * 3, np.eye(4)[2:] * 3
    result = solve_batch(P, Q, GridCost((2, 2), spacing=1.0))
    found = result.interpolate(0.5, on_grid=True)
    np.testing.assert_allclose(found, [[[1.5, 0], [1.5, 0]], [[0, 1.5], [0, 1.5]]])
    assert [cloud.points.tolist() for cloud in result.interpolate(0.5)] == [[[0.5, 0.0]], [[0.5, 1.0]]]
    np.testing.assert_allclose(result[1].interpolate(0.5, on_grid=True), found[1])


@pytest.mark.parametrize("cost", [GridCost((3, 3), power=1), GridCost((3, 3), power=3), GridCost(9, dtype="float32")])
def test_other_costs_with_straight_lines(cost):
    result = solve(np.eye(9)[0], np.eye(9)[8], cost)
    np.testing.assert_allclose(result.interpolate(0.5, on_grid=True).ravel(), np.eye(9)[4], atol=1e-6)


def test_costs_without_straight_lines():
    X = np.random.default_rng(0).normal(size=(3, 2))
    for cost in (DenseCost(cdist(X, X)), GridCost(matrices=[cdist(X, X)]), PointCost(X, metric="cosine")):
        with pytest.raises(ValueError, match=r"cost: .* has no straight lines"):
            solve(None, None, cost).interpolate(0.5)
    with pytest.raises(ValueError, match=r"on_grid: .* has no grid"):
        solve(None, None, PointCost(X)).interpolate(0.5, on_grid=True)


@pytest.mark.parametrize("t", [-0.1, 1.1, np.nan])
def test_times_outside(t):
    with pytest.raises(ValueError, match="t: expected a number from 0 to 1"):
        solve(None, None, GridCost(3)).interpolate(t)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_rasters_keep_mass_and_centre(seed, d):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 6, d))
    spacing = rng.uniform(0.1, 2, d)
    points, weights = rng.random((20, d)) * (np.array(shape) - 1) * spacing, rng.random(20)
    found = rasterize(points, weights, shape, spacing)
    grid = GridCost(shape, spacing=spacing).points()
    np.testing.assert_allclose(found.sum(), weights.sum())
    np.testing.assert_allclose(found @ grid, weights @ points, atol=1e-12)


def test_rasters_of_grid_points_are_exact():
    shape, rng = (4, 5), np.random.default_rng(0)
    weights = rng.random(20)
    points = GridCost(shape, spacing=(0.3, 0.7)).points()
    np.testing.assert_allclose(rasterize(points, weights, shape, (0.3, 0.7)), weights, atol=1e-12)


def on_bilinear_weights(result, t, side):
    """Return the points of time t on a square grid, each shared by the nearest pixels."""
    return rasterize(*result.interpolate(t), (side, side), 1.0).reshape(side, side)


@pytest.mark.parametrize("t", [0.25, 0.5, 0.75])
def test_a_stretched_square_has_no_moire(t):
    """The measure between two centred squares of constant density is one, of the side between theirs."""
    p, q = np.zeros((2, 64, 64))
    p[16:48, 16:48], q[8:56, 8:56] = 1, 1
    result = solve(p, q, GridCost((64, 64), spacing=1.0), normalize=True)
    half = round(16 + 8 * t)
    exact, inside = np.zeros((64, 64)), slice(34 - half, 30 + half)
    exact[32 - half : 32 + half, 32 - half : 32 + half] = 1 / (2 * half) ** 2
    found, bilinear = result.interpolate(t, on_grid=True), on_bilinear_weights(result, t, 64)
    np.testing.assert_allclose(found.sum(), bilinear.sum())
    ripple, before = ((image[inside, inside] * (2 * half) ** 2).std() for image in (found, bilinear))
    assert ripple < 0.03
    assert ripple < before / 3
    assert np.abs(found - exact).sum() < 0.05


@pytest.mark.parametrize("t", [0.25, 0.5, 0.75])
def test_gaussians_have_no_moire(t):
    """The measure between two Gaussians is one, and its covariance is known."""
    means, covariances = np.array([[20, 24], [40, 36]]), np.array([[[16, 0], [0, 9]], [[40, 15], [15, 25]]])

    def gaussian(mean, covariance):
        z = np.moveaxis(np.indices((64, 64)), 0, -1) - mean
        density = np.exp(-0.5 * np.einsum("...i,ij,...j", z, np.linalg.inv(covariance), z))
        return density / density.sum()

    p, q = (np.where(z > 1e-4 * z.max(), z, 0) for z in map(gaussian, means, covariances))
    result = solve(p, q, GridCost((64, 64), spacing=1.0), normalize=True)
    root = np.sqrt(covariances[0])  # of a diagonal matrix
    values, vectors = np.linalg.eigh(root @ covariances[1] @ root)
    inverse = np.diag(1 / np.diag(root))
    linear = (1 - t) * np.eye(2) + t * inverse @ (vectors * np.sqrt(values)) @ vectors.T @ inverse
    exact = gaussian((1 - t) * means[0] + t * means[1], linear @ covariances[0] @ linear)
    error, before = (
        np.abs(image / p.sum() - exact).sum()
        for image in (result.interpolate(t, on_grid=True), on_bilinear_weights(result, t, 64))
    )
    assert error < 0.03
    assert error < before / 2


def test_densities_on_the_line():
    """Piecewise constant densities between two others, from the quantile functions."""
    x, edges = np.arange(64), np.arange(65.0)
    p, q = np.exp(-((x - 20) ** 2) / 50), np.exp(-((x - 40) ** 2) / 200)
    P, Q = (np.append(0, np.cumsum(z / z.sum())) for z in (p, q))
    u = np.unique([P, Q])
    result = solve(p, q, GridCost(64, spacing=1.0), normalize=True)
    for t in (0.25, 0.5, 0.75):
        quantiles = (1 - t) * np.interp(u, P, edges) + t * np.interp(u, Q, edges)
        exact = np.diff(np.interp(edges, quantiles, u))
        found = result.interpolate(t, on_grid=True)
        np.testing.assert_allclose(found / found.sum(), exact, atol=1e-5)  # the centre is that of the points instead


@pytest.mark.parametrize("t", [0.0, 0.01, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("shape", [(9,), (1, 9), (6, 7), (3, 4, 2), (2, 2)])
def test_drawn_measures_keep_mass_and_centre(shape, t):
    rng, cost = np.random.default_rng(0), GridCost(shape, spacing=1.0)
    p, q = rng.random((2, *shape)) ** 3 * (rng.random((2, *shape)) < 0.8)
    result = solve(p, q, cost, normalize=True)
    found, (points, weights) = result.interpolate(t, on_grid=True), result.interpolate(t)
    assert found.shape == shape
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(), weights.sum(), rtol=1e-12)
    np.testing.assert_allclose(found.ravel() @ cost.points(), weights @ points, atol=1e-12)
    if t in (0, 1):
        measure = (p / p.sum(), q / q.sum())[int(t)]
        np.testing.assert_allclose(found, measure, atol=1e-15)
        np.testing.assert_array_equal(found > 0, measure > 0)


@pytest.mark.parametrize("options", [{"penalty": 0.5}, {"mass": 0.4}, {"kl": 0.5}])
@pytest.mark.parametrize("on_grid", [False, True])
def test_what_is_transported_of_partial_results_moves(options, on_grid):
    p, q = np.zeros((2, 6, 6))
    p[0, 0], p[5, 5], q[0, 1], q[1, 0] = 0.5, 0.5, 0.5, 0.5
    result = solve(p, q, GridCost((6, 6), spacing=1.0), **options)
    found = result.interpolate(0.5, on_grid=on_grid)
    weights = found.ravel() if on_grid else found.weights
    assert 0 < result.transported < 1
    np.testing.assert_allclose(weights.sum(), result.transported)
    start = result.interpolate(0.0, on_grid=True)
    np.testing.assert_allclose(start.ravel(), result.marginals[0], atol=1e-12)


def test_maps_are_means_of_points():
    rng = np.random.default_rng(0)
    X, Y, p = rng.normal(size=(8, 3)), rng.normal(size=(6, 3)), rng.random(8)
    p[2] = 0
    result = solve(p / p.sum(), None, PointCost(X, Y))
    plan = result.plan.toarray()
    with np.errstate(invalid="ignore"):
        expected = plan @ Y / plan.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result.map(), expected)
    assert np.isnan(result.map()[2]).all()
    np.testing.assert_allclose(result.map(Y[:, 0]), expected[:, 0])
    both = solve_batch([p / p.sum(), np.full(8, 1 / 8)], None, PointCost(X, Y))
    np.testing.assert_allclose(both.map()[0], expected)
    matrix = solve(p / p.sum(), None, cdist(X, Y, "sqeuclidean"))
    np.testing.assert_allclose(matrix.map(Y), expected)
    with pytest.raises(ValueError, match="Y: expected an array with one row for each point of q"):
        matrix.map()
    with pytest.raises(ValueError, match="Y: expected one row for each of the 6 points of q"):
        matrix.map(X)


def test_points_that_are_left_over_have_no_image():
    images = solve([1, 1], [1], PointCost([[0.0], [9.0]], [[1.0]]), penalty=2).map()
    np.testing.assert_array_equal(images, [[1.0], [np.nan]])
