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
