"""Distances of persistence diagrams, against a matrix with copies of the diagonal, GUDHI and known values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from gibbsot import diagrams
from gibbsot.core import native
from gibbsot.core.backend import backend
from gibbsot.diagrams import distances, wasserstein_distance
from kernels import using

needs_kernels = pytest.mark.skipif(not backend().has_kd_trees, reason="`solve` finds it without kernels")


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


@needs_kernels
@pytest.mark.parametrize(("order", "p"), [(1, np.inf), (1, 2), (2, 2), (1, 1), (2, np.inf), (1.5, 3)])
@pytest.mark.parametrize("kind", ["wide", "ties"])
def test_diagrams_with_more_pairs_than_are_listed(kind, order, p):
    """Most pairs may be needed, so the paths begin with neighbours, and k-d trees add what potentials violate."""
    rng = np.random.default_rng(11)
    for n, m in ((250, 300), (300, 60)):
        X, Y = diagram(rng, n, kind), diagram(rng, m, kind)
        distance, matching = wasserstein_distance(X, Y, True, order, p)
        assert distance == pytest.approx(reference(X, Y, order, p), rel=1e-12)
        assert cost_of(X, Y, matching, order, p) == pytest.approx(distance, rel=1e-12)


@needs_kernels
@pytest.mark.parametrize("kind", ["noise", "wide", "heavy", "ties"])
@pytest.mark.parametrize(("order", "p"), [(1, np.inf), (2, 2), (3, 4)])
def test_paths_are_proved_and_agree_with_solve(kind, order, p, monkeypatch):
    rng = np.random.default_rng(3)
    X, Y = diagram(rng, 150, kind), diagram(rng, 140, kind)
    with monkeypatch.context() as patch:
        patch.setattr(diagrams, "_by_solve", None)  # the potentials of the paths are enough
        found = wasserstein_distance(X, Y, order=order, internal_p=p)
    monkeypatch.setattr(diagrams, "_by_paths", lambda *_: None)
    assert found == pytest.approx(wasserstein_distance(X, Y, order=order, internal_p=p), rel=1e-12)


@needs_kernels
def test_what_paths_do_not_prove_is_solved(monkeypatch):
    """Potentials of 1e16 in double precision say nothing about costs of one."""
    calls, own = [], diagrams._by_solve
    monkeypatch.setattr(diagrams, "_by_solve", lambda *arguments: calls.append(1) or own(*arguments))
    X, Y = [[0, 1e16], [3, 5], [2.5, 4.5]], [[0, 1e16], [3.25, 5], [2.5, 4.25]]
    assert wasserstein_distance(X, Y) == 0.5
    assert calls


@needs_kernels
@pytest.mark.parametrize("level", [name for name in native.available() if name != "numpy"])
def test_all_kernels_find_the_same_bits(level):
    rng = np.random.default_rng(5)
    for kind in ("wide", "noise"):
        X, Y = diagram(rng, 300, kind), diagram(rng, 280, kind)
        for order, p in ((1, np.inf), (2, 2), (1, 1)):
            expected = wasserstein_distance(X, Y, True, order, p)
            with using(level):
                found = wasserstein_distance(X, Y, True, order, p)
            assert found[0] == expected[0]
            np.testing.assert_array_equal(found[1], expected[1])


@needs_kernels
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Y": np.zeros((0, 2)), "b": np.zeros(0), "g": np.zeros(0)}, "X, Y: expected at least one point"),
        ({"X": np.zeros((2, 3))}, "X: expected shape"),
        ({"f": np.zeros(3)}, "f: expected shape"),
        ({"p": 0.5}, "p, q: expected numbers of at least 1"),
    ],
)
def test_the_kernel_checks_its_arguments(changes, message):
    arguments = {
        "X": np.zeros((2, 2)), "Y": np.ones((2, 2)), "a": np.ones(2), "b": np.ones(2), "p": 2.0, "q": 1.0,
        "mates": np.zeros(2, np.int32), "f": np.zeros(2), "g": np.zeros(2),
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        backend().match_points(**(arguments | changes))


# the first tests of hera: wasserstein/tests/data/test_5_A, test_5_B and test_list.txt in github.com/anigmetov/hera
HERA = (
    [[7.50638, 7.78005], [0.991758, 2.12178], [5.18481, 6.61702], [6.14703, 7.08581], [4.09936, 4.83024]],
    [[5.8232, 6.36308], [2.16066, 2.48668], [2.38754, 4.91418], [4.77403, 5.43982], [0.291412, 1.11147]],
)


@pytest.mark.parametrize(
    ("order", "p", "expected"),
    [
        (1, np.inf, 4.320655), (2, np.inf, 1.7323016335246), (3, np.inf, 1.396199948), (1, 1, 6.603006),
        (2, 1, 2.73426775794691), (3, 1, 2.13072755216204), (1, 2, 5.1888795679967), (2, 2, 2.26649677575857),
        (3, 2, 1.86434961396614),
    ],
)  # fmt: skip
def test_the_values_of_hera(order, p, expected):
    assert wasserstein_distance(*HERA, order=order, internal_p=p) == pytest.approx(expected, rel=1e-9)


# the diagrams and values of src/python/test/test_wasserstein_distance.py in github.com/GUDHI/gudhi-devel
GUDHI = {
    1: [[2.7, 3.7], [9.6, 14.0], [34.2, 34.974]], 2: [[2.8, 4.45], [9.5, 14.1]], 3: [[0, 2], [4, 6]],
    4: [[0, 3], [4, 8]], 5: [[0, 3], [4, np.inf]], 6: [[7, 8], [4, 6], [3, np.inf]], 0: [],
    9: [[-np.inf, -np.inf], [np.inf, np.inf]], 10: [[0, 1], [-np.inf, -np.inf], [np.inf, np.inf]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "p", "order", "expected"),
    [
        (3, 0, np.inf, 1, 2), (3, 0, 1, 1, 4), (4, 0, 1, 2, 5), (4, 0, np.inf, 2, 2.5),
        (4, 0, 2, 2, 3.5355339059327378), (1, 2, 2, 1, 1.4453593023967701), (1, 2, 2.35, 1.74, 0.9772734057168739),
        (1, 0, 2.35, 1.7863, 3.141592214572228), (3, 4, 1, 1, 3), (3, 4, np.inf, 1, 3), (3, 4, np.inf, 2, 5**0.5),
        (3, 4, 4.5, 2, 5**0.5), (5, 6, np.inf, 1, 4), (9, 10, 1, 1, 1), (9, 0, 2, 2, 0), (4, 5, np.inf, 1, np.inf),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:the diagrams have different numbers")
def test_the_values_of_gudhi(first, second, p, order, expected):
    found = wasserstein_distance(GUDHI[first], GUDHI[second], order=order, internal_p=p)
    assert found == pytest.approx(expected, rel=1e-14)


def test_the_matchings_of_gudhi():
    for first, second, expected in (
        (1, 2, {(0, 0), (1, 1), (2, -1)}), (5, 6, {(0, -1), (-1, 0), (-1, 1), (1, 2)}),
        (9, 10, {(0, -1), (1, -1), (-1, 0), (-1, 1), (-1, 2)}), (0, 2, {(-1, 0), (-1, 1)}),
    ):  # fmt: skip
        matching = wasserstein_distance(GUDHI[first], GUDHI[second], True, 2.0, 2.0)[1]
        assert set(map(tuple, matching.tolist())) == expected


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


@pytest.mark.parametrize("order", [1, 2, 3.5])
@pytest.mark.parametrize("exponent", [-1060, -600, 600, 1015])
def test_powers_of_distances_may_be_out_of_range(order, exponent):
    """Factors that are powers of two change no digit but where numbers are subnormal."""
    rng = np.random.default_rng(9)
    X, Y = diagram(rng, 20, "wide"), diagram(rng, 25, "wide")
    X, Y = (np.round(points, 3) for points in (X, Y))  # subnormal numbers keep these digits
    X[3, 1], Y[4, 1], X[7] = np.inf, np.inf, X[7, 0]
    distance, matching = wasserstein_distance(X, Y, True, order)
    scaled, same = wasserstein_distance(np.ldexp(X, exponent), np.ldexp(Y, exponent), True, order)
    assert np.ldexp(scaled, -exponent) == pytest.approx(distance, rel=1e-2 if exponent < -1022 else 1e-15)
    if exponent >= -1022:
        np.testing.assert_array_equal(same, matching)


def test_distances_beyond_the_range():
    far = 1.5e308
    assert wasserstein_distance([[-far, far]], [], order=2) == far
    assert wasserstein_distance([[far, far], [0, 1]], [[0, 1.5]]) == 0.5  # what is on the diagonal may be anywhere
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="beyond the range of float64; scale the diagrams"):
        wasserstein_distance([[-far, far], [-far, far]], [])


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
        ({"Y": "abc"}, r"Y: expected points \(birth, death\) as rows of numbers"),
    ],
)
def test_bad_diagrams(options, message):
    with pytest.raises(ValueError, match=message):
        wasserstein_distance(**({"X": [[0, 1]], "Y": [[0, 1]]} | options))
