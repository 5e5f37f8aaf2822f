"""Distances of persistence diagrams, against a matrix with copies of the diagonal, GUDHI and known values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from gibbsot.diagrams import distances, wasserstein_distance


def diagram(rng, n, kind):
    birth = rng.random(n)
    life = {
        "noise": rng.exponential(0.02, n), "wide": rng.random(n), "heavy": 0.01 * rng.pareto(1.2, n),
        "ties": rng.integers(0, 3, n) / 4,
    }[kind]  # fmt: skip
    if kind == "ties":
        birth = np.round(4 * birth) / 4
    return np.column_stack([birth, birth + life])


def penalties(X, p):
    return (X[:, 1] - X[:, 0]) * 2 ** (1 / p - 1)


def reference(X, Y, order, p):
    """Return the distance by an assignment in which every point has its own copy of the diagonal."""
    n, m = len(X), len(Y)
    C = np.zeros((n + m, n + m))
    C[:n, :m] = cdist(X, Y, "chebyshev") if np.isinf(p) else cdist(X, Y, "minkowski", p=p)
    C[:n, m:], C[n:, :m] = penalties(X, p)[:, None], penalties(Y, p)
    C **= order
    i, j = linear_sum_assignment(C)
    return C[i, j].sum() ** (1 / order)


def cost_of(X, Y, matching, order, p):
    both = (matching >= 0).all(axis=1)
    apart = np.linalg.norm(X[matching[both, 0]] - Y[matching[both, 1]], p, axis=1)
    alone = penalties(X[matching[matching[:, 1] < 0, 0]], p), penalties(Y[matching[matching[:, 0] < 0, 1]], p)
    return sum((x**order).sum() for x in (apart, *alone)) ** (1 / order)


@pytest.mark.parametrize("kind", ["noise", "wide", "heavy", "ties"])
@pytest.mark.parametrize(("order", "p"), [(1, np.inf), (2, 2), (1, 1), (1.5, np.inf), (3, 4)])
def test_distances_and_matchings(kind, order, p):
    rng = np.random.default_rng([7, int(2 * order)])
    for n, m in ((1, 3), (20, 27), (60, 45)):
        X, Y = diagram(rng, n, kind), diagram(rng, m, kind)
        distance, matching = wasserstein_distance(X, Y, True, order, p)
        assert distance == pytest.approx(reference(X, Y, order, p), rel=1e-9)
        assert distance == wasserstein_distance(X, Y, order=order, internal_p=p)
        assert cost_of(X, Y, matching, order, p) == pytest.approx(distance, rel=1e-12)
        for side, count in ((0, n), (1, m)):
            assert sorted(matching[matching[:, side] >= 0, side]) == list(range(count))


def test_the_case_of_gudhi_465():
    # the coordinates of the issue: points that stand for infinity by 1e16, where POT misses the optimum
    X = np.array([[2.23201301, 2.30992361], [2.79212053, 3.53268734], [0.942383758, 4.08248747], [0.522799989, 1e16]])
    Y = np.array([[5.72533791, 18.1300169], [3.67182222, 21.6658844], [14.9374957, 51.4375875], [2.81675603, 1e16]])
    distance, matching = wasserstein_distance(X, Y, True, order=2)
    assert distance == pytest.approx(21.455667863335, rel=1e-12)
    assert [3, 3] in matching.tolist()
    assert len(matching) == 7


def test_essential_points():
    inf = np.inf
    X = np.array([[0, 2], [1, inf], [5, inf], [-inf, 3], [-inf, inf], [inf, inf]])
    Y = np.array([[6, inf], [-inf, 7], [0, 3], [3, inf], [-inf, inf]])
    distance, matching = wasserstein_distance(X, Y, matching=True)
    assert distance == 1 + 2 + 1 + 4
    assert sorted(map(tuple, matching.tolist())) == [(0, 2), (1, 3), (2, 0), (3, 1), (4, 4), (5, -1)]
    assert wasserstein_distance(X, Y, keep_essential_parts=False) == 1
    with pytest.warns(UserWarning, match="different numbers of essential points"):
        assert wasserstein_distance(X, Y[1:], matching=True) == (inf, None)
    np.testing.assert_array_equal(distances([X, Y, Y[1:]]), [[0, 8, inf], [8, 0, inf], [inf, inf, 0]])


def test_empty_diagrams_and_points_on_the_diagonal():
    assert wasserstein_distance([], []) == 0
    distance, matching = wasserstein_distance([[1, 1], [0, 2]], [], matching=True, order=2)
    assert distance == 1
    assert matching.tolist() == [[0, -1], [1, -1]]
    assert wasserstein_distance([[3, 3]], [[5, 5]]) == 0
    with pytest.warns(UserWarning, match="essential"):
        assert wasserstein_distance([], [[0, np.inf]]) == np.inf


def test_lists_of_diagrams_in_threads():
    rng = np.random.default_rng(1)
    some = [diagram(rng, n, "noise") for n in (5, 0, 12, 9)]
    found = distances(some, n_jobs=2)
    expected = [[wasserstein_distance(x, y) for y in some] for x in some]
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    np.testing.assert_array_equal(distances(some[:2], some), found[:2])


def test_against_gudhi():
    gudhi = pytest.importorskip("gudhi.wasserstein")
    rng = np.random.default_rng(2)
    for order, p in ((1, np.inf), (2, 2)):
        X, Y = diagram(rng, 80, "heavy"), diagram(rng, 90, "heavy")
        expected = gudhi.wasserstein_distance(X, Y, order=order, internal_p=p)
        assert wasserstein_distance(X, Y, order=order, internal_p=p) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"X": [[1, 0]]}, r"X: point 0 is \[1.0, 0.0\]; expected a death that is not before the birth"),
        ({"Y": [[1, np.nan]]}, "Y: point 0"),
        ({"X": [1, 2, 3]}, r"X: expected points \(birth, death\) as rows, got shape \(3,\)"),
        ({"order": 0.5}, "order: expected a number of at least 1, got 0.5"),
        ({"internal_p": 0}, "internal_p: expected a number of at least 1, got 0"),
        ({"order": np.inf}, "order"),
        ({"enable_autodiff": True}, "enable_autodiff: expected False"),
    ],
)
def test_bad_diagrams(options, message):
    with pytest.raises(ValueError, match=message):
        wasserstein_distance(**({"X": [[0, 1]], "Y": [[0, 1]]} | options))
