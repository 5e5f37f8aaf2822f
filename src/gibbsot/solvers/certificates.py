"""What can be said for certain of an answer: bounds, and the plan behind it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.problems import Problem, dual_value

Array = NDArray[np.floating]


def lower_bound(problem: Problem, U: Array) -> NDArray[np.float64]:
    r"""Return a lower bound of W(p, q) that holds for any U whatever.

    .. math:: \langle p, U \rangle - \langle q, L' \rangle, \qquad L'_j = \max_{i: p_i > 0} (U_i - M_{ij})

    (U, L') is dual feasible, so weak duality gives the bound. The estimate V(z) is no bound: its L is that of g, not
    that of U. What rounding could add to the bound in the cost's precision is taken off.

    Parameters
    ----------
    problem : Problem
    U : array of shape (n, m1)

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
    r"""Return the paper's plan for each problem.

    .. math:: Z = \tfrac12 \sum_i p_i e_{i, J(i)} + \tfrac12 \sum_j q_j e_{I(j), j}

    with ``J(i)`` the j that attains ``min_j (M_ij + L_j)`` and ``I(j)`` the i that attains ``max_i (U_i - M_ij)``, over
    the points that have weight.

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
    for p, q, u, low in zip(problem.p, problem.q, U, L, strict=True):
        rows, columns = np.flatnonzero(p), np.flatnonzero(q)
        J = problem.cost.row_nearest(np.where(q > 0, low, np.inf))[rows, 0]
        I = problem.cost.col_nearest(np.where(p > 0, u, -np.inf))[columns, 0]  # noqa: E741
        halves = np.concatenate([p[rows], q[columns]]) / 2
        places = np.concatenate([rows, I]), np.concatenate([J, columns])
        plans.append(sparse.csr_array(sparse.coo_array((halves, places), shape=problem.cost.shape)))
    return plans
