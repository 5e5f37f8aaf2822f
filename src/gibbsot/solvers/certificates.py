"""Certificates: bounds of W from plans and from potentials, and the plan of the paper."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.problems import Problem, dual_value

Array = NDArray[np.floating]

_ULP = float(np.finfo(np.float64).eps)
_TINY = 2.0**-1070  # some units of the smallest number


class Bounds(NamedTuple):
    """Bounds of W, rounded outwards, the cost of the plan and the spread of the potentials."""

    lower: float
    upper: float
    value: float
    size: float


def bounds(p: Array, q: Array, f: Array, g: Array, mass: Array, costs: Array, depth: int = 0) -> Bounds:
    r"""Return the bounds of W that a plan and feasible potentials prove.

    .. math:: \frac{\langle p, f \rangle}{\sum_i p_i} + \frac{\langle q, g \rangle}{\sum_j q_j} \le W \le \sum_k m_k c_k

    Weights, potentials and costs are taken as exact numbers. All sums are compensated, and what rounding and underflow
    may have taken is added to the bounds.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Non-negative weights, normalised or not.
    f, g : arrays of shape (m1,) and (m2,)
        Potentials with ``f_i + g_j <= c_ij`` for all pairs.
    mass : array of shape (n,)
        The positive masses of a plan between ``p / sum(p)`` and ``q / sum(q)``, each to within three units in the last
        place.
    costs : array of shape (n,)
        The costs of its arcs.
    depth : int
        Rounded operations behind a cost.

    Returns
    -------
    Bounds

    Examples
    --------
    >>> import numpy as np
    >>> half = np.array([0.5, 0.5])
    >>> found = bounds(half, half, np.zeros(2), np.ones(2), half, np.ones(2))
    >>> found.lower <= 1 <= found.upper, found.value
    (True, 1.0)
    """
    sides = _mean(p[p > 0], f[p > 0]), _mean(q[q > 0], g[q > 0])
    lower = _outwards(sides[0].value + sides[1].value, sides[0].error + sides[1].error, -np.inf)
    size = float(np.ptp(f[p > 0]) + np.ptp(g[q > 0]))
    if np.isinf(costs).any():
        return Bounds(lower, np.inf, np.inf, size)
    costs, exponent = _scaled(costs)
    value, absolute = _inner(mass, costs)
    error = (depth + 4) * _ULP * absolute + np.count_nonzero(costs) * _TINY
    total = _Estimate.scaled(value, error, exponent)
    return Bounds(lower, _outwards(*total, np.inf), total.value, size)


def below(f: Array, g: Array, depth: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return potentials that are feasible if f and g are so up to the errors of some rounded operations."""
    share = 2 * (depth + 1) * _ULP  # the operations have terms of the size of f, of g or of their sum
    return np.asarray(f - share * np.abs(f), np.float64), np.asarray(g - share * np.abs(g), np.float64)


def weighted_median(x: Array, weight: Array) -> float:
    """Return the least value that half of the weight does not exceed; potentials around it lose fewest digits."""
    order = np.argsort(x, kind="stable")
    total = np.cumsum(weight[order])
    return float(x[order[np.searchsorted(total, total[-1] / 2)]])


class _Estimate(NamedTuple):
    """A number and a bound of its error, which is zero only for an exact zero."""

    value: float
    error: float

    @staticmethod
    def scaled(value: float, error: float, exponent: int) -> _Estimate:
        """Return both times a power of two."""
        smallest = 5e-324 if error > 0 else 0.0
        return _Estimate(float(np.ldexp(value, exponent)), float(np.ldexp(error, exponent)) + smallest)


def _mean(weight: Array, x: Array) -> _Estimate:
    """Return ``<w, x> / sum(w)`` for positive weights."""
    (weight, _), (x, exponent) = _scaled(weight), _scaled(x)
    total = _sum(weight)
    value, absolute = _inner(weight, x)
    error = 2 * _ULP * abs(value) + _ULP**1.5 * absolute + np.count_nonzero(x) * _TINY
    return _Estimate.scaled(value / total, error / total, exponent)


def _scaled(x: Array) -> tuple[Array, int]:
    """Return x / 2^e of absolute values below one, and e: products neither overflow nor lose digits by underflow."""
    exponent = int(np.frexp(np.abs(x).max(initial=0.0))[1])
    return np.ldexp(x, -exponent), exponent


def _inner(x: Array, y: Array) -> tuple[float, float]:
    """Return ``<x, y>``, rounded once from nearly twice the digits, and ``<|x|, |y|>``, for numbers of at most one."""
    product = x * y
    (x1, x2), (y1, y2) = _halves(x), _halves(y)
    rest = x2 * y2 - (((product - x1 * y1) - x2 * y1) - x1 * y2)
    return _sum(np.concatenate([product, rest])), 1.01 * float(np.abs(product).sum())


def _halves(x: Array) -> tuple[Array, Array]:
    """Return two numbers of 26 bits that add up to x."""
    high = (2.0**27 + 1) * x
    high = high - (high - x)
    return high, x - high


def _sum(x: Array) -> float:
    """Return the sum, rounded once from nearly twice the digits: pairs are added and their rounding errors kept."""
    errors = 0.0
    while len(x) > 1:
        half = len(x) // 2
        a, b = x[:half], x[half : 2 * half]
        pairs = a + b
        rest = pairs - a
        errors += float(((a - (pairs - rest)) + (b - rest)).sum())
        x = np.concatenate([pairs, x[2 * half :]])
    return float(x[0] + errors) if len(x) else 0.0


def _outwards(x: float, error: float, towards: float) -> float:
    """Return a bound of a number that is known to within an error."""
    if error == 0:
        return x
    error = 1.01 * error + _ULP * abs(x)
    return float(np.nextafter(x + np.copysign(error, towards), towards))


def lower_bound(problem: Problem, U: Array) -> NDArray[np.float64]:
    r"""Return a lower bound of W(p, q) from any U.

    .. math:: \langle p, U \rangle - \langle q, L' \rangle, \qquad L'_j = \max_{i: p_i > 0} (U_i - M_{ij})

    L' is the c-transform of U, so (U, L') is dual feasible and the bound follows by weak duality. The estimate V(z) is
    not a bound, as its L is the c-transform of g. The largest rounding error in the cost's precision is subtracted.

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1)
        Potentials of the first measure, such as a sample of the chain.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import problem
    >>> pair = problem([1, 0], [0, 1], [[0.0, 3.0], [3.0, 0.0]])
    >>> lower_bound(pair, np.array([[3.0, 0.0]])).round(9)
    array([3.])
    """
    U = np.where(problem.p > 0, U, -np.inf).astype(problem.cost.dtype)
    L = problem.cost.col_max(U)
    largest = sum(np.abs(np.where(w > 0, x, 0)).max(axis=1) for w, x in ((problem.p, U), (problem.q, L)))
    slack = (2 * problem.cost.depth + 2) * np.finfo(problem.cost.dtype).eps * largest
    return dual_value(problem, U, L) - slack


def sparse_plans(problem: Problem, U: Array, L: Array) -> list[sparse.csr_array]:
    r"""Return the sparse plan of the paper for each problem.

    .. math:: Z = \tfrac12 \sum_i p_i e_{i, J(i)} + \tfrac12 \sum_j q_j e_{I(j), j}

    where ``J(i)`` attains ``min_j (M_ij + L_j)`` and ``I(j)`` attains ``max_i (U_i - M_ij)``, over the points that have
    weight. It has mass one; its marginals are p and q only in the limit.

    Parameters
    ----------
    problem : Problem
        The problems.
    U, L : arrays of shape (n, m1) and (n, m2)
        Potentials.

    Returns
    -------
    list of scipy.sparse.csr_array of shape (m1, m2)

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import problem
    >>> pair = problem([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]])
    >>> sparse_plans(pair, np.zeros((1, 2)), np.zeros((1, 2)))[0].toarray()
    array([[0.5, 0. ],
           [0. , 0.5]])
    """
    plans = []
    for p, q, u, v in zip(problem.p, problem.q, U, L, strict=True):
        rows, columns = np.flatnonzero(p), np.flatnonzero(q)
        J = problem.cost.row_nearest(np.where(q > 0, v, np.inf))[rows, 0]
        I = problem.cost.col_nearest(np.where(p > 0, u, -np.inf))[columns, 0]  # noqa: E741
        halves = np.concatenate([p[rows], q[columns]]) / 2
        positions = np.concatenate([rows, I]), np.concatenate([J, columns])
        plans.append(sparse.csr_array(sparse.coo_array((halves, positions), shape=problem.cost.shape)))
    return plans
