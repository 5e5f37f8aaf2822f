from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from gibbsot import DenseCost, Problem, sampler, solve, solve_batch

M = np.array([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    "make",
    [np.asarray, list, sparse.coo_array, lambda x: sparse.csr_matrix(np.atleast_2d(x)), lambda x: np.array(x, int)],
)
def test_weights_in_any_form(make):
    pair = Problem(make([1, 3]), make([2, 0, 2]), M)
    np.testing.assert_array_equal(pair.p, [[0.25, 0.75]])
    np.testing.assert_array_equal(pair.q, [[0.5, 0, 0.5]])


def test_vectors_in_compressed_rows():
    try:
        p, q = sparse.csr_array([1, 3]), sparse.csr_array([2, 0, 2])
        assert p.ndim == 1
    except (AssertionError, ValueError):
        pytest.skip("this version of SciPy has no one-dimensional CSR")
    np.testing.assert_array_equal(Problem(p, q, M).p, [[0.25, 0.75]])


def test_one_measure_is_paired_with_all():
    pair = Problem([[1, 1], [0.5, 1.5]], [1, 0, 1], M)
    np.testing.assert_array_equal(pair.q, [[0.5, 0, 0.5]] * 2)


def test_sums_that_nearly_agree_are_normalised():
    pair = Problem([0.5, 0.5], [0.5, 0.0, 0.5 * (1 + 1.9e-6)], M)
    assert pair.q.sum() == pytest.approx(1, abs=1e-15)


GOOD_P, GOOD_Q = [0.5, 0.5], [0.2, 0.3, 0.5]
BAD = [
    (([0.5, np.nan], GOOD_Q), ValueError, "p: has NaN weights, the first at entry 1"),
    ((GOOD_P, [np.inf, 0, 1]), ValueError, "q: has infinite weights, the first at entry 0"),
    (([1.5, -0.5], GOOD_Q), ValueError, "p: has negative weights, the first at entry 1"),
    (([], GOOD_Q), ValueError, "p: is empty"),
    ((GOOD_P, []), ValueError, "q: is empty"),
    (([0.0, 0.0], GOOD_Q), ValueError, "p: has no mass"),
    (([1e308, 1e308], GOOD_Q), ValueError, "p: has a sum that overflows"),
    ((GOOD_P, [0.2, 0.3, 0.6]), ValueError, "q: sums to 1.1, p to 1; expected sums that agree"),
    ((np.ones((2, 1)), GOOD_Q), ValueError, r"p: expected 2 weights in each measure, got shape \(2, 1\)"),
    (([0.5, 0.5, 0.0], GOOD_Q), ValueError, "p: expected 2 weights, got shape"),
    ((GOOD_P, [0.5, 0.5]), ValueError, r"q: expected 3 weights, got shape \(2,\); cost has shape \(2, 3\)$"),
    ((np.ones((2, 2, 2)), GOOD_Q), ValueError, "p: expected 2 weights in each measure"),
    ((["a", "b"], GOOD_Q), TypeError, "p: expected real numbers"),
    (([1j, 1], GOOD_Q), TypeError, "p: expected real numbers"),
    (([[0.5], [0.5, 0.1]], GOOD_Q), ValueError, "p: expected a rectangular array"),
    (([GOOD_P, GOOD_P], GOOD_Q), ValueError, "p, q: expected one measure each, got 2"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD)
def test_bad_measures(arguments, error, message):
    with pytest.raises(error, match=message):
        solve(*arguments, M)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_a_transposed_cost(make):
    with pytest.raises(ValueError, match=r"p: expected 3 weights.*; cost has shape \(3, 2\), is it transposed\?"):
        solve(make([GOOD_P]), make([GOOD_Q]), np.transpose(M))


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        (
            "cosine",
            TypeError,
            r"cost: expected a Cost or a matrix, got 'cosine'; PointCost\(X, Y, 'cosine'\) is a cost",
        ),
        (None, TypeError, r"cost: expected a Cost or a matrix, got None; PointCost"),
        (GOOD_Q, ValueError, "cost: expected a matrix.*; the order of the arguments is [pP], [qQ], cost"),
        (np.ones((1, 2, 3)), ValueError, r"cost: expected a matrix with rows and columns, got shape \(1, 2, 3\)$"),
    ],
)
def test_what_is_no_cost(cost, error, message):
    for function in (solve, solve_batch):
        with pytest.raises(error, match=message):
            function(M, GOOD_P, cost)


def test_batches_of_different_length():
    with pytest.raises(ValueError, match="Q: expected as many measures as P has \\(2\\), or one; got 3"):
        solve_batch([GOOD_P] * 2, [GOOD_Q] * 3, M)


@pytest.mark.parametrize(
    ("cost", "p", "q", "message"),
    [
        ([[0.0, np.inf], [0.0, 1.0]], [0.5, 0.5], [0.0, 1.0], "cost: row 0 has weight in p but only infinite costs"),
        (
            [[0.0, 0.0], [np.inf, 1.0]],
            [0.0, 1.0],
            [0.5, 0.5],
            "cost: column 0 has weight in q but only infinite costs",
        ),
        ([[np.nan]], [1.0], [1.0], "cost: has NaN"),
        ([[1.0, np.inf], [1.0, np.inf]], [0.5, 0.5], [0.5, 0.5], "cost: column 1 has only infinite costs"),
        ([1.0], [1.0], [1.0], "cost: expected a matrix"),
    ],
)
def test_costs_that_leave_no_way(cost, p, q, message):
    with pytest.raises(ValueError, match=message):
        solve(p, q, cost)


def test_a_masked_row_may_have_only_infinite_costs_to_the_support():
    result = solve([0.0, 1.0], [0.0, 1.0], [[0.0, np.inf], [0.0, 1.0]])
    assert result.value == pytest.approx(1.0, rel=1e-12)
    f, g = result.potentials
    assert (f[:, None] + g <= [[0.0, np.inf], [0.0, 1.0]]).all()
    estimate = solve([0.0, 1.0], [0.0, 1.0], [[0.0, np.inf], [0.0, 1.0]], method="gibbs")
    assert np.isposinf(estimate.U[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_weight_too_small_for_the_precision_is_a_mask(dtype):
    small = 0.1 * float(np.finfo(dtype).tiny)
    pair = Problem([1 - small, small], [1.0, small], DenseCost([[1.0, np.inf], [np.inf, 1.0]], dtype))
    np.testing.assert_array_equal(pair.p, [[1, 0]])
    np.testing.assert_array_equal(pair.q, [[1, 0]])
    assert solve(pair.p[0], pair.q[0], pair.cost).lower_bound == pytest.approx(1, rel=1e-5)


P, Q, COST = np.array([GOOD_P]), np.array([GOOD_Q]), DenseCost(M)


@pytest.mark.parametrize(
    ("p", "q", "cost", "message"),
    [
        (P, Q[:, 1:], COST, r"q: expected 3 weights.*, got shape \(1, 2\); cost has shape \(2, 3\)"),
        (Q, P, COST, r"p: expected 2 weights"),
        (
            np.repeat(P, 3, axis=0),
            np.repeat(Q, 2, axis=0),
            COST,
            r"q: expected as many measures as p has \(3\), or one",
        ),
        (P * np.nan, Q, COST, "p: has NaN weights"),
        (P, Q - [[0.3, 0, -0.3]], COST, "q: has negative weights, the first at entry 0"),
        (P, 0 * Q, COST, "q: has no mass"),
        (2 * P, Q, COST, "q: sums to 1, p to 2; expected sums that agree to 1e-06, or normalize=True to divide"),
    ],
)
def test_problems_are_checked(p, q, cost, message):
    with pytest.raises(ValueError, match=message):
        Problem(p, q, cost)


@pytest.mark.parametrize("shape", [(6, 3), (1, 18), (2, 9)])
def test_a_problem_that_was_tampered_with_is_refused(kernel, shape):
    pair = Problem(np.repeat(P, 6, axis=0), np.repeat(Q, 6, axis=0), COST)
    state = sampler.init(pair)
    object.__setattr__(pair, "p", np.zeros(shape))
    with pytest.raises(ValueError, match=r"expected|broadcast"):
        sampler.run(state, pair, [1.0, 0.5])
