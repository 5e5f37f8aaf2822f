"""Labels of pandas: weights go to the points of their labels, and results keep them."""

import array
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import gibbsot
from gibbsot.core import validation

pd = pytest.importorskip("pandas")

M = np.array([[0.0, 1.0, 5.0], [2.0, 0.0, 2.0], [4.0, 3.0, 0.0]])
P = pd.Series([0.5, 0.3, 0.2], index=["a", "b", "c"])
Q = pd.Series([0.1, 0.6, 0.3], index=["c", "a", "b"])  # the labels of P in another order
BY_LABELS = gibbsot.solve([0.5, 0.3, 0.2], [0.6, 0.3, 0.1], M).value


@pytest.mark.parametrize("options", [{}, {"penalty": 10.0}, {"mass": 1.0}, {"kl": 1e9}, {"normalize": True}])
@pytest.mark.parametrize(
    "make", [lambda x: x, gibbsot.DenseCost, lambda x: pickle.loads(pickle.dumps(gibbsot.DenseCost(x)))]
)
def test_a_labelled_cost_knows_the_places_of_weights(options, make):
    cost = make(pd.DataFrame(M, list("abc"), list("abc")))
    assert gibbsot.solve(P, Q, cost, **options).value == pytest.approx(BY_LABELS, rel=1e-3)
    assert gibbsot.solve(P, Q[["b", "c", "a"]], cost, **options).value == pytest.approx(BY_LABELS, rel=1e-3)
    # rows and columns have their own order, and only one of the measures needs labels
    turned = make(pd.DataFrame(M, list("abc"), list("abc")).loc[["c", "a", "b"], ["b", "c", "a"]])
    assert gibbsot.solve(P, Q, turned, **options).value == pytest.approx(BY_LABELS, rel=1e-3)
    assert gibbsot.solve([0.2, 0.5, 0.3], Q, turned, **options).value == pytest.approx(BY_LABELS, rel=1e-3)


def test_the_plan_is_in_the_order_of_the_cost():
    result = gibbsot.solve(P[["c", "b", "a"]], Q, pd.DataFrame(M, list("abc"), list("abc")))
    np.testing.assert_allclose(result.marginals[0], [0.5, 0.3, 0.2])
    np.testing.assert_allclose(result.marginals[1], [0.6, 0.3, 0.1])


def test_points_with_labels():
    X = pd.DataFrame({"x": [0.0, 3.0, 7.0], "y": [0.0, 1.0, 1.0]}, index=list("abc"))
    expected = gibbsot.solve(P.to_numpy(), [0.6, 0.3, 0.1], gibbsot.PointCost(X.to_numpy())).value
    for cost in (gibbsot.PointCost(X), gibbsot.PointCost(X, X), gibbsot.PointCost(X).astype("float32")):
        assert gibbsot.solve(P, Q, cost).value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("cost", [gibbsot.GridCost(3), gibbsot.GridCost((1, 3))])
def test_measures_on_one_support_are_brought_to_one_order(cost):
    expected = gibbsot.solve([0.5, 0.3, 0.2], [0.6, 0.3, 0.1], cost).value
    assert gibbsot.solve(P, Q, cost).value == expected
    assert gibbsot.solve(Q, P, cost).value == expected  # the order in which labels increase
    days = ["Mon", "Tue", "Wed"]
    assert gibbsot.solve(P.set_axis(days), Q.set_axis(["Wed", "Mon", "Tue"]), cost).value == expected


@pytest.mark.parametrize("cost", [M, gibbsot.DenseCost(M), gibbsot.PointCost(np.arange(3.0), np.ones(3))])
def test_labels_in_two_orders_are_refused_where_the_cost_has_none(cost):
    with pytest.raises(ValueError, match="q: has the labels of p in another order"):
        gibbsot.solve(P, Q, cost)
    with pytest.raises(ValueError, match=r"Q\[1\]: has the labels of P\[1\]"):
        gibbsot.solve_batch([P, P], [P, Q], [cost, cost])
    assert gibbsot.solve(P, Q.to_numpy(), cost).status == "optimal"


@pytest.mark.parametrize("labels", [[0, 1, 2], ["x", "y", "z"], ["a", "b", "d"], ["a", "a", "b"]])
def test_other_labels_go_by_position(labels):
    expected = gibbsot.solve(P.to_numpy(), Q.to_numpy(), M).value
    assert gibbsot.solve(P, Q.set_axis(labels), M).value == expected
    assert gibbsot.solve(P, Q.set_axis(labels), pd.DataFrame(M, list("uvw"), list("uvw"))).value == expected


def test_tables_of_measures():
    table = pd.DataFrame([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], index=["first", "second"], columns=list("abc"))
    cost = pd.DataFrame(M, list("abc"), list("abc"))
    turned = table[["c", "a", "b"]]
    expected = gibbsot.solve_batch(table.to_numpy(), table.to_numpy()[::-1], M).value
    np.testing.assert_allclose(gibbsot.solve_batch(table, turned[::-1], cost).value, expected)
    with pytest.raises(ValueError, match="Q: has the labels of P"):
        gibbsot.solve_batch(table, turned, M)


@pytest.fixture
def table():
    random = np.random.default_rng(0)
    return pd.DataFrame(random.random((6, 4)), [f"row {k}" for k in range(6)], list("abcd"))


def test_distances_keep_names(table):
    cost = pd.DataFrame(np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))), list("abcd"), list("abcd"))
    plain = gibbsot.distances(table.to_numpy(), cost=cost.to_numpy())
    turned = ["d", "b", "a", "c"]
    for data, between in (
        (table, cost),
        (table[turned], cost),
        (table, cost.loc[turned, turned]),
        (table, cost[turned]),
    ):
        found = gibbsot.distances(data, cost=between)
        assert list(found.index) == list(found.columns) == list(table.index)
        np.testing.assert_allclose(found, plain)
        found = gibbsot.distances(data, table[:2], cost=between)
        assert found.shape == (6, 2)
        assert list(found.columns) == ["row 0", "row 1"]
        np.testing.assert_allclose(found, plain[:, :2])
    np.testing.assert_allclose(
        gibbsot.distances(table, table[turned], cost="line"), gibbsot.distances(table, cost="line")
    )
    vectors = pd.DataFrame(np.arange(4.0)[:, None], list("abcd"))
    found = gibbsot.distances(table[turned], cost="euclidean", feature_vectors=vectors)
    np.testing.assert_allclose(found, plain)
    only_one = gibbsot.distances(table.to_numpy(), table[:2], cost="line")
    assert list(only_one.columns) == ["row 0", "row 1"]
    with pytest.raises(ValueError, match="Q: has the labels of P"):
        gibbsot.distances(table, table[turned], cost=cost.to_numpy())


def test_coordinates_keep_names(table):
    references = table[["d", "b", "a", "c"]][:3]
    plain = gibbsot.barycentric_coordinates(table.to_numpy(), table.to_numpy()[:3], gibbsot.GridCost(4))
    found = gibbsot.barycentric_coordinates(table, references, gibbsot.GridCost(4))
    assert (list(found.index), list(found.columns)) == (list(table.index), list(references.index))
    np.testing.assert_allclose(found, plain, atol=1e-9)
    plain = gibbsot.mixture_coordinates(table.to_numpy(), table.to_numpy()[:3], "line", rng=0)
    found = gibbsot.mixture_coordinates(table, references, "line", rng=0)
    assert (list(found.index), list(found.columns)) == (list(table.index), list(references.index))
    np.testing.assert_array_equal(found, plain)


def test_models_bring_a_labelled_cost_to_the_order_of_the_columns(table):
    cost = pd.DataFrame(np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))), list("abcd"), list("abcd"))
    turned = ["d", "b", "a", "c"]
    plain = gibbsot.WassersteinBarycenter(cost.to_numpy()).fit(table)
    found = gibbsot.WassersteinBarycenter(cost.loc[turned, turned]).fit(table)
    np.testing.assert_array_equal(found.cost_.matrix(), plain.cost_.matrix())
    np.testing.assert_array_equal(found.barycenter_, plain.barycenter_)


@pytest.mark.parametrize(
    "model",
    [
        gibbsot.WassersteinNMF(2, cost="line", max_epochs=2, random_state=0),
        gibbsot.WassersteinEmbedding("line"),
        gibbsot.WassersteinPCA(2, cost="line"),
        gibbsot.WassersteinKMeans(2, cost="line", random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_transform_follows_set_output(model, table):
    plain = clone(model).fit(table)
    assert isinstance(plain.transform(table), np.ndarray)
    named = clone(model).set_output(transform="pandas").fit(table)
    found = named.transform(table)
    assert list(found.index) == list(table.index)
    assert list(found.columns) == list(named.get_feature_names_out())
    np.testing.assert_array_equal(found, plain.transform(table))
    assert list(clone(named).fit_transform(table).index) == list(table.index)


class _OnlyDLPack:
    """An array that offers DLPack and nothing else."""

    def __init__(self, x):
        self._x = x

    def __dlpack__(self, **options):
        return self._x.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._x.__dlpack_device__()


class _OnlyArray:
    """An array that offers ``__array__`` and nothing else."""

    def __init__(self, x):
        self._x = x

    def __array__(self, dtype=None, copy=None):
        return np.array(self._x, dtype)


@pytest.mark.parametrize(
    "wrap", [_OnlyDLPack, _OnlyArray, memoryview, lambda x: x], ids=["dlpack", "array", "buffer", "numpy"]
)
def test_arrays_by_any_protocol(wrap):
    p, q, costs = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.6, 0.3]), M.copy()
    expected = gibbsot.solve(p, q, M).value
    assert gibbsot.solve(wrap(p), wrap(q), wrap(costs)).value == expected
    assert gibbsot.solve(array.array("d", p), array.array("d", q), wrap(costs)).value == expected
    rows = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]])
    np.testing.assert_array_equal(gibbsot.distances(wrap(rows), cost="line"), gibbsot.distances(rows, cost="line"))
    np.testing.assert_array_equal(
        gibbsot.WassersteinEmbedding("line").fit_transform(wrap(rows)),
        gibbsot.WassersteinEmbedding("line").fit_transform(rows),
    )


def test_an_array_of_another_device_is_refused():
    class Elsewhere(_OnlyDLPack):
        def __dlpack__(self, **options):
            raise BufferError("device 2")

    with pytest.raises(TypeError, match="p: expected an array of real numbers, got a Elsewhere"):
        gibbsot.solve(Elsewhere(np.ones(3)), None, M)


def test_the_tolerance_of_tables_is_that_of_their_precision():
    single = pd.DataFrame(np.ones((2, 100), np.float32))
    assert validation.sum_tolerance(single, 100) == validation.sum_tolerance(single.to_numpy(), 100) > 1e-6


def test_polars():
    pl = pytest.importorskip("polars")
    p, q = pl.Series([0.5, 0.3, 0.2]), pl.Series([0.1, 0.6, 0.3])
    expected = gibbsot.solve(p.to_numpy(), q.to_numpy(), M).value
    assert gibbsot.solve(p, q, pl.DataFrame(M)).value == expected
    table = pl.DataFrame(np.random.default_rng(0).random((5, 3)))
    found = gibbsot.WassersteinPCA(2, cost="line").set_output(transform="polars").fit_transform(table)
    assert isinstance(found, pl.DataFrame)
    np.testing.assert_array_equal(
        gibbsot.distances(table, cost="line"), gibbsot.distances(table.to_numpy(), cost="line")
    )
