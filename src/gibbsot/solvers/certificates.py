"""Certificates: lower bounds from potentials, and the plan of the paper."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.problems import Problem, dual_value

Array = NDArray[np.floating]


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
