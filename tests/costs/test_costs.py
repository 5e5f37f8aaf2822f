from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone

from cases import KINDS, cost
from gibbsot import DenseCost, GridCost, PointCost, WassersteinNMF, coulomb
from gibbsot.core import native
from gibbsot.costs import BorderedCost, as_cost, from_arrays
from kernels import using


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_those_of_the_matrix(kernel, kind, dtype):
    M = cost(kind, dtype)
    rng = np.random.default_rng(0)
    h, g = rng.normal(size=(4, M.shape[1])), rng.normal(size=(4, M.shape[0]))
    h[rng.random(h.shape) < 0.2] = np.inf
    g[rng.random(g.shape) < 0.2] = -np.inf
    dense = M.matrix().astype(np.float64)
    tolerance = 8 * np.finfo(dtype).eps
    for n_jobs in (1, 3):
        np.testing.assert_allclose(
            M.row_min(h, n_jobs), (dense + h[:, None, :]).min(axis=2), rtol=tolerance, atol=tolerance
        )
        np.testing.assert_allclose(
            M.col_max(g, n_jobs), (g[:, :, None] - dense).max(axis=1), rtol=tolerance, atol=tolerance
        )
    np.testing.assert_array_equal(M.row_min(h[0]), M.row_min(h)[0])
    i, j = np.arange(M.shape[0]), np.arange(M.shape[1])
    J, I = M.nearest(h[0])[0][:, 0], M.nearest(-g[0], by_rows=False)[0][:, 0]  # noqa: E741
    np.testing.assert_allclose(M.at(i, J) + h[0][J], M.row_min(h[0]), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(g[0][I] - M.at(I, j), M.col_max(g[0]), rtol=tolerance, atol=tolerance)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.sampled_from([1, 2, 1.7, 3]), st.integers(0, 1000))
def test_grid_products_on_random_shapes(shape, power, seed):
    rng = np.random.default_rng(seed)
    M = GridCost(tuple(shape), power=power)
    x = np.stack(np.meshgrid(*(np.arange(n) / max(shape) for n in shape), indexing="ij"), axis=-1).reshape(
        -1, len(shape)
    )
    dense = (np.abs(x[:, None] - x) ** power).sum(axis=2)
    np.testing.assert_allclose(M.matrix(), dense, rtol=1e-12, atol=1e-15)
    h = rng.normal(size=len(x))
    for level in native.available():
        with using(level):
            np.testing.assert_allclose(M.row_min(h), (dense + h).min(axis=1), rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(M.col_max(h), (h[:, None] - dense).max(axis=0), rtol=1e-12, atol=1e-14)


LONG = {
    "line": lambda dtype: GridCost(300, dtype=dtype),
    "first": lambda dtype: GridCost((131, 3), power=1, dtype=dtype),
    "last": lambda dtype: GridCost((2, 203), power=1.5, dtype=dtype),
    "both": lambda dtype: GridCost((97, 101), dtype=dtype),
    "middle": lambda dtype: GridCost((2, 100, 5), spacing=(1, 0.2, 3), dtype=dtype),
    "any": lambda dtype: GridCost(matrices=[forbidding(110, 140), forbidding(3, 4)], dtype=dtype),
    "wide": lambda dtype: GridCost(matrices=[forbidding(4, 3), forbidding(140, 97)], dtype=dtype),
}


def forbidding(m1, m2):
    rng = np.random.default_rng([m1, m2])
    M = rng.normal(size=(m1, m2))
    M[rng.random(M.shape) < 0.3] = np.inf
    M[0], M[:, 0] = 1, 2
    return M


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", LONG)
@given(seed=st.integers(0, 10_000), noise=st.sampled_from([0, 1e-3, 1, 1e4]), empty=st.sampled_from([0, 0.5, 0.99]))
@settings(max_examples=15)
def test_products_along_long_axes_leave_out_nothing(kind, dtype, seed, noise, empty):
    """What the kernels leave out cannot change a bit of the result."""
    M = LONG[kind](dtype)
    rng = np.random.default_rng(seed)
    h, g = (np.linspace(0, 2, m) ** 2 + noise * rng.exponential(size=m) for m in M.shape[::-1])
    for x, shape in ((h, M.col_shape), (g, M.row_shape)):
        x[rng.random(len(x)) < empty] = np.inf
        lines = x.reshape(shape)
        lines[rng.random(shape[0]) < 0.2] = np.inf
        lines[..., rng.random(shape[-1]) < 0.2] = np.inf
    with using("numpy"):
        U, L = M.row_min(h), M.col_max(-g)
    for level in native.available():
        with using(level):
            np.testing.assert_array_equal(M.row_min(h), U)
            np.testing.assert_array_equal(M.col_max(-g), L)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_nearest_are_those_of_the_matrix(kernel, kind, dtype):
    M = cost(kind, dtype)
    rng = np.random.default_rng(0)
    h, g = rng.normal(size=M.shape[1]).astype(dtype), rng.normal(size=M.shape[0]).astype(dtype)
    h[1:][rng.random(M.shape[1] - 1) < 0.2] = np.inf
    g[1:][rng.random(M.shape[0] - 1) < 0.2] = -np.inf
    k = min(5, *M.shape)
    for (found, least), sums in (
        (M.nearest(h, k), M.matrix() + h),
        (M.nearest(-g, k, by_rows=False), (M.matrix() - g[:, None]).T),
    ):
        expected = np.sort(sums, axis=1)[:, :k]
        values = np.where(found >= 0, np.take_along_axis(sums, found, axis=1), np.inf)
        np.testing.assert_allclose(least, values, rtol=8 * np.finfo(dtype).eps, atol=8 * np.finfo(dtype).eps)
        np.testing.assert_allclose(values, expected, rtol=8 * np.finfo(dtype).eps, atol=8 * np.finfo(dtype).eps)
        assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in found)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3),
    st.integers(0, 10_000),
    st.integers(1, 12),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([0, 0.5, 0.95]),
)
def test_nearest_on_random_grids(sides, seed, k, dtype, empty):
    rng = np.random.default_rng(seed)
    M = GridCost(matrices=[forbidding(*side) for side in sides], dtype=dtype)
    h = 10.0 ** rng.integers(-3, 2) * rng.normal(size=M.shape[1])
    h[1:][rng.random(len(h) - 1) < empty] = np.inf
    k, sums = min(k, len(h)), M.matrix().astype(np.float64) + h
    expected = np.sort(sums, axis=1)[:, :k]
    tolerance = 8 * np.finfo(dtype).eps * np.abs(expected[np.isfinite(expected)]).max()
    for level in native.available():
        with using(level):
            found = M.nearest(h, k)[0]
        values = np.where(found >= 0, np.take_along_axis(sums, found, axis=1), np.inf)
        np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance)
        assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in found)


@pytest.mark.parametrize("kind", KINDS)
def test_mean(kernel, kind):
    M = cost(kind)
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(M.shape[0]), 3), rng.dirichlet(np.ones(M.shape[1]), 3)
    q[:, -1] = 0
    dense = M.matrix()
    weight = p[:, :, None] * q[:, None, :] * np.isfinite(dense)
    expected = (weight * np.where(np.isfinite(dense), dense, 0)).sum(axis=(1, 2)) / weight.sum(axis=(1, 2))
    if kind == "axes":  # a grid leaves infinite moves out axis by axis: a scale, not the same mean
        assert np.isfinite(M.mean(p, q)).all()
    else:
        np.testing.assert_allclose(M.mean(p, q), expected, rtol=1e-10)


def test_spacing_makes_the_cost_independent_of_the_resolution():
    coarse, fine = GridCost((8, 4)), GridCost((16, 8))
    np.testing.assert_allclose(coarse.at(0, 9), fine.at(0, 2 * 8 + 2 * 1 + 16), rtol=1e-12)
    assert GridCost((3, 2), spacing=(1.0, 10.0)).at(0, 5) == 4 + 100


def test_points_and_coulomb():
    X, Y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 0.0]])
    np.testing.assert_array_equal(PointCost(X, Y).matrix(), [[0], [25]])
    np.testing.assert_array_equal(PointCost(X, Y, metric="cityblock").matrix(), [[0], [7]])
    np.testing.assert_array_equal(coulomb([0.0, 2.0], [0.0, 1.0]).matrix(), [[np.inf, 1], [0.5, 1]])


def test_unsigned_and_empty_input(kernel):
    M = DenseCost([[0, 1], [1, 0]])
    np.testing.assert_array_equal(M.col_max(np.array([0, 2], np.uint8)), [1, 2])
    assert M.row_min(np.empty((0, 2))).shape == (0, 2)


def test_entries_of_a_large_grid():
    M = GridCost((100, 90), spacing=1.0)
    i = np.arange(9000)[:, None]
    np.testing.assert_array_equal(M.at(i, 0)[:, 0], (i[:, 0] // 90) ** 2 + (i[:, 0] % 90) ** 2)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (GridCost((28, 28)), "GridCost((28, 28), power=2, spacing=1/28)"),
        (GridCost(5, power=1.5, spacing=2), "GridCost((5,), power=1.5, spacing=2.0)"),
        (GridCost((3, 2), spacing=(0.5, 0.3)), "GridCost((3, 2), power=2, spacing=(1/2, 0.3))"),
        (GridCost((3, 2)).astype("float32"), "GridCost((3, 2), power=2, spacing=1/3, dtype='float32')"),
        (GridCost(matrices=[np.ones((2, 3)), np.ones((4, 5))]), "GridCost(matrices=<2 x 3, 4 x 5>)"),
        (DenseCost(np.ones((2, 3), np.float32)), "DenseCost(<matrix of 2 x 3>, dtype='float32')"),
        (PointCost(np.ones((100, 2))), "PointCost(<100 points in 2 dimensions>, metric='sqeuclidean')"),
        (
            PointCost(np.ones(4), np.ones(3), "euclidean", "float32"),
            "PointCost(<4 and 3 points in 1 dimension>, metric='euclidean', dtype='float32')",
        ),
    ],
)
def test_repr(made, text):
    assert repr(made) == text


DIFFERENT = [
    lambda: GridCost((4, 3)),
    lambda: GridCost((3, 4)),
    lambda: GridCost((4, 3), power=1),
    lambda: GridCost((4, 3), spacing=1),
    lambda: GridCost((4, 3), dtype="float32"),
    lambda: GridCost((4, 3), spacing=0.3).astype("float32").astype("float64"),
    lambda: GridCost(matrices=GridCost((4, 3)).axes),
    lambda: DenseCost(GridCost((4, 3)).matrix()),
    lambda: DenseCost(GridCost((4, 3)).matrix() + 1),
    lambda: PointCost(np.arange(12.0)),
    lambda: PointCost(np.arange(12.0), np.arange(12.0) + 1),
    lambda: PointCost(np.arange(12.0), metric="euclidean"),
    lambda: PointCost(np.arange(12.0), dtype="float32"),
]


def test_costs_are_equal_if_their_definitions_are():
    first, second = ([make() for make in DIFFERENT] for _ in range(2))
    for i, x in enumerate(first):
        assert hash(x) == hash(second[i])
        assert [x == y for y in second] == [i == j for j in range(len(second))]
    assert GridCost((4, 3)) == GridCost((4, 3), power=2.0, spacing=(0.25, 0.25))
    assert GridCost((4, 3)) != "GridCost"


@pytest.mark.parametrize("make", DIFFERENT)
def test_copies_of_costs(make):
    M = make()
    assert copy.copy(M) is M
    assert copy.deepcopy([M])[0] is M
    assert clone(WassersteinNMF(cost=M)).cost is M
    for again in (pickle.loads(pickle.dumps(M)), from_arrays(M.arrays())):
        assert again == M
        assert repr(again) == repr(M)
        assert (again.geometry() is None) == (M.geometry() is None)


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=3),
    st.lists(st.floats(0.01, 100), min_size=3, max_size=3),
    st.sampled_from([1, 2, 1.7]),
)
def test_geometry_of_grids(shape, spacing, power):
    M = GridCost(tuple(shape), power, spacing[: len(shape)])
    geometry = M.geometry()
    assert (geometry is None) == (power != 2 and len(shape) > 1)
    if geometry is not None:
        assert geometry.power == power
        np.testing.assert_allclose(cdist(geometry.X, geometry.Y) ** power, M.matrix(), rtol=1e-13)


def test_dtype_follows_the_input():
    M = np.ones((2, 3))
    assert DenseCost(M.astype(np.float32)).dtype == np.float32
    assert DenseCost(M).dtype == np.float64
    assert DenseCost(M.astype(int)).dtype == np.float64
    assert DenseCost(M, "float32").dtype == np.float32
    assert GridCost((2, 2)).dtype == np.float64
    assert GridCost((2, 2), dtype=np.float32).row_min(np.zeros(4)).dtype == np.float32


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: DenseCost([[1.0, np.nan]]), ValueError, "M: has NaN"),
        (lambda: DenseCost([[1.0, -np.inf]]), ValueError, "M: has -inf"),
        (lambda: DenseCost([[1.0, 2.0], [np.inf, np.inf]]), ValueError, "M: row 1 has only infinite costs"),
        (lambda: DenseCost([[1.0, np.inf], [1.0, np.inf]]), ValueError, "M: column 1 has only infinite costs"),
        (lambda: DenseCost([1.0, 2.0]), ValueError, "M: expected a matrix"),
        (lambda: DenseCost(np.empty((0, 3))), ValueError, "M: expected a matrix"),
        (lambda: DenseCost([["a"]]), TypeError, "M: expected real numbers"),
        (lambda: DenseCost([[1.0], [1.0, 2.0]]), ValueError, "M: expected a rectangular array"),
        (lambda: DenseCost(sparse.csr_array([[1.0]])), TypeError, "M: expected a dense array, got a sparse one"),
        (
            lambda: as_cost(sparse.csr_array([[1.0]])),
            TypeError,
            r"cost: .* a sparse one; GraphCost\(cost\) .* SparseCost",
        ),
        (lambda: DenseCost([[1e305]]), ValueError, r"M: the largest cost is 1e\+305, beyond the range of float64"),
        (
            lambda: DenseCost([[1e-40]], dtype="float32"),
            ValueError,
            "M: the largest cost is 1e-40, beyond the range of float32",
        ),
        (lambda: GridCost((2, 2), spacing="a"), TypeError, "spacing: expected numbers"),
        (lambda: GridCost((2, 2), power="a"), TypeError, "power: expected a number"),
        (
            lambda: GridCost((2, 2)).mean(np.ones((1, 5)), np.ones((1, 4))),
            ValueError,
            r"p, q: expected shapes \(n, 4\)",
        ),
        (lambda: GridCost(3.5), TypeError, "shape: expected integers"),
        (lambda: DenseCost([[1.0]], dtype="int32"), ValueError, "dtype: expected float32 or float64"),
        (lambda: DenseCost([[1.0]], dtype="nonsense"), TypeError, "dtype: expected float32 or float64"),
        (lambda: PointCost([[0.0, 1.0]], [[0.0]]), ValueError, "Y: expected points with 2 coordinates"),
        (lambda: PointCost([[np.nan]]), ValueError, "X: has NaN"),
        (lambda: PointCost([0.0, 1.0], metric="nonsense"), ValueError, "metric: 'nonsense'"),
        (lambda: coulomb([0.0, 0.0]), ValueError, "only infinite costs"),
        (lambda: coulomb([0.0], [[0.0, 1.0]]), ValueError, "y: expected points with 1 coordinates"),
        (lambda: GridCost(), ValueError, "shape: expected the sides"),
        (lambda: GridCost((2, 2, 2, 2)), ValueError, "shape: expected one to three sides"),
        (lambda: GridCost((2, 0)), ValueError, "shape: expected one to three sides"),
        (lambda: GridCost((2.5, 2)), TypeError, "shape: expected integers"),
        (lambda: GridCost((2, 2), power=0.5), ValueError, "power: expected a number of at least 1"),
        (lambda: GridCost((2, 2), spacing=-1), ValueError, "spacing: expected positive numbers"),
        (lambda: GridCost((2, 2), spacing=(1, 2, 3)), ValueError, "spacing: expected one number or one per axis"),
        (lambda: GridCost((3,), matrices=[np.ones((2, 2))]), ValueError, "shape: "),
        (lambda: GridCost(matrices=[]), ValueError, "matrices: expected one to three axes"),
        (lambda: GridCost(matrices=[[[np.nan]]]), ValueError, r"matrices\[0\]: has NaN"),
        (lambda: GridCost((2, 2)).row_min(np.zeros(3)), ValueError, r"h: expected shape \(4,\)"),
        (lambda: GridCost((2, 2)).col_max(np.zeros((2, 3))), ValueError, r"g: expected shape \(4,\)"),
        (lambda: GridCost((2, 2)).nearest(np.zeros(3)), ValueError, r"x: expected shape \(4,\)"),
        (
            lambda: GridCost((2, 2)).nearest(np.zeros(4), 5, by_rows=False),
            ValueError,
            "k: expected a number from 1 to 4",
        ),
        (lambda: GridCost((2, 2)).row_min(np.zeros(4), n_jobs=0), ValueError, "n_jobs: 0 has no meaning"),
        (lambda: GridCost((2, 2)).row_min(np.zeros(4), n_jobs=1.5), TypeError, "n_jobs: expected an integer"),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_a_cost_are_read_only(kind):
    M = cost(kind)
    kernel, operand = M.operand() or ("none", (M.pairs.data, M.pairs.indices, M.pairs.indptr))
    for array in (operand,) if kernel == "dense" else operand:
        with pytest.raises(ValueError, match="read-only"):
            array[(0,) * array.ndim] = 0


def test_the_arrays_of_the_caller_stay_writeable_and_apart():
    axis, M = np.ones((2, 2)), np.ones((2, 2))
    grid, dense = GridCost(matrices=[axis, axis]), DenseCost(M)
    axis[0, 0] = M[0, 0] = 7.0
    assert grid.at(0, 0) == 2.0
    assert dense.at(0, 0) == 1.0
    matrix = dense.matrix()
    matrix[0, 0] = 7.0
    assert dense.at(0, 0) == 1.0


def test_axes_cannot_be_replaced():
    grid = GridCost((3, 4))
    with pytest.raises(AttributeError):
        grid.axes = [np.ones((2, 2))]
    with pytest.raises(TypeError):
        grid.axes[0] = np.ones((2, 2))


def transforms(M):
    M.row_min(np.zeros(M.shape[1]))
    M.col_max(np.zeros(M.shape[0]))


TAMPERED = {
    "other sides": lambda M: vars(M).update(_axes=(np.ones((3, 3)), np.ones((2, 2)))),
    "too few axes": lambda M: vars(M).update(_axes=(np.ones((3, 3)),)),
    "no axes": lambda M: vars(M).update(_axes=()),
    "other shape": lambda M: vars(M).update(shape=(12, 13)),
    "reshaped": lambda M: vars(M).update(_axes=(M.axes[0], M.axes[1].reshape(2, 8))),
}


@pytest.mark.parametrize("level", [level for level in native.available() if level != "numpy"])
@pytest.mark.parametrize("tampered", TAMPERED)
def test_a_grid_that_was_tampered_with_is_refused(level, tampered):
    M = GridCost((3, 4))
    TAMPERED[tampered](M)
    with using(level), pytest.raises(ValueError, match="expected"):
        transforms(M)


@pytest.mark.parametrize("level", [level for level in native.available() if level != "numpy"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 40), (30, 3)])
def test_a_matrix_that_was_tampered_with_is_refused(level, shape):
    M = DenseCost(np.ones((3, 5)))
    M.shape = shape
    with using(level), pytest.raises(ValueError, match="expected"):
        transforms(M)


def test_an_axis_that_is_too_long_for_a_matrix():
    with pytest.raises(ValueError, match=r"shape: an axis of 1,000,000 points takes.*PointCost for points on a line"):
        GridCost(10**6)


def test_positions_give_the_costs():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    costs = [PointCost(X, Y, metric) for metric in ("sqeuclidean", "euclidean", "cityblock", "chebyshev")]
    for one in [*costs, GridCost((2, 3), power=3), GridCost((4, 3), power=1, spacing=(1.0, 2.0)), GridCost(5)]:
        found = one.positions()
        apart = np.linalg.norm(found.X[:, None] - found.Y, ord=found.norm, axis=2)
        np.testing.assert_allclose(apart**found.power, one.matrix(), rtol=1e-12)
    assert PointCost(X, Y, "cosine").positions() is None
    assert DenseCost(np.ones((2, 2))).positions() is None
    assert GridCost(matrices=[np.ones((2, 2))]).positions() is None


def test_forbidden_pairs_are_counted():
    rows, columns = DenseCost([[1.0, np.inf], [1.0, 2.0]]).forbidden()
    assert (rows.tolist(), columns.tolist()) == ([1, 0], [0, 1])
    rows, columns = BorderedCost(PointCost([0.0, 1.0]), 1.0, np.inf, (1, 2)).forbidden()
    assert (rows.tolist(), columns.tolist()) == ([0, 0, 2], [0, 0, 1, 1])
    assert GridCost(3).forbidden() is None
