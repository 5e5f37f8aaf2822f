r"""Bregman ADMM for optimal transport (Wang and Banerjee 2014), for a batch of problems with one cost.

The method alternates between a plan with the row sums p and a plan with the column sums q, which a multiplier and the
Kullback-Leibler divergence make agree. It works with logarithms, as products of ``exp(-M / rho)`` underflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gibbsot import Cost, Problem
from gibbsot.core import validation

Array = NDArray[np.float64]


class Iterate(NamedTuple):
    """An iterate of Bregman ADMM; for a batch each field has a leading axis.

    Attributes
    ----------
    plan : array of shape (m1, m2)
        Its row sums are p; its column sums are q only in the limit.
    value : float
        The cost of the plan; not a bound of W(p, q).
    violation : float
        The sum of the absolute differences of the column sums and q.
    n_iter : int
        The number of iterations so far.
    """

    plan: Array
    value: Any
    violation: Any
    n_iter: int


def badmm(P: Any, Q: Any, cost: Cost | ArrayLike, n_iter: int = 1000, rho: float | None = None) -> Iterate:
    r"""Approximate optimal transport plans by Bregman ADMM.

    .. math::

        X \propto Z \, e^{-(M + \Lambda) / \rho} \text{ with row sums } p, \qquad
        Z \propto X \, e^{\Lambda / \rho} \text{ with column sums } q, \qquad
        \Lambda \leftarrow \Lambda + \rho (X - Z)

    started from ``Z = p q^T``. The entry of a pair with an infinite cost is 0 from the first iteration on. If no plan
    avoids such pairs, the violation does not converge to 0. The paper reports that the method fails on Coulomb's cost;
    with logarithms it converges in thousands of iterations.

    Parameters
    ----------
    P, Q : arrays of shape (m1,) or (n, m1) and (m2,) or (n, m2)
        Measures; one measure is paired with all of the other side.
    cost : Cost or array of shape (m1, m2)
        The cost.
    n_iter : int
        The number of iterations.
    rho : float, optional
        The penalty, in units of the cost; by default twice the mean absolute value of the finite costs.

    Returns
    -------
    Iterate
        The last iterate.

    References
    ----------
    H. Wang and A. Banerjee, "Bregman alternating direction method of multipliers", NeurIPS 2014.

    Examples
    --------
    >>> import numpy as np
    >>> result = badmm([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], np.abs(np.subtract.outer(range(3), range(3))) ** 2.0)
    >>> round(result.value, 3), result.violation < 1e-6
    (1.0, True)
    """
    return next(snapshots(P, Q, cost, [n_iter], rho))


def snapshots(
    P: Any, Q: Any, cost: Cost | ArrayLike, budgets: Sequence[int], rho: float | None = None
) -> Iterator[Iterate]:
    """Run Bregman ADMM once and yield its iterate after each of several numbers of iterations.

    Parameters
    ----------
    P, Q, cost, rho
        As for `badmm`.
    budgets : sequence of int
        Numbers of iterations, increasing.

    Yields
    ------
    Iterate
        What `badmm` returns for this number of iterations.

    Examples
    --------
    >>> from gibbsot.datasets import two_modes
    >>> [round(iterate.value, 4) for iterate in snapshots(*two_modes(32), budgets=[1, 10, 100])]
    [0.1417, 0.1089, 0.1062]
    """
    counts = [validation.count(budget, "n_iter") for budget in budgets]
    if any(b <= a for a, b in pairwise(counts)):
        raise ValueError(f"budgets: expected increasing numbers, got {budgets!r}")
    pairs = Problem(P, Q, cost, names=("P", "Q"))
    M = pairs.cost.matrix().astype(np.float64)
    finite = np.isfinite(M)
    scale = validation.positive(rho, "rho") if rho is not None else 2 * float(np.abs(M[finite]).mean()) or 1.0
    single = np.ndim(P) < 2 and np.ndim(Q) < 2
    return _iterate(pairs.p, pairs.q, M, finite, scale, counts, single)


def _iterate(
    p: Array, q: Array, M: Array, finite: NDArray[np.bool_], rho: float, counts: list[int], single: bool
) -> Iterator[Iterate]:
    """Yield the iterates of `snapshots`, for arguments that have been checked."""
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p)[:, :, None], np.log(q)[:, None, :]
    log_Z = log_p + log_q
    multiplier = np.zeros_like(log_Z)  # Lambda / rho
    log_X, prices = np.empty_like(log_Z), M / rho
    done = 0
    for count in counts:
        for _ in range(count - done):
            np.subtract(log_Z, prices, out=log_X)
            log_X -= multiplier
            X = _normalise(log_X, log_p, axis=2)
            np.add(log_X, multiplier, out=log_Z)
            multiplier += X
            multiplier -= _normalise(log_Z, log_q, axis=1)
        done = count
        value = (X * np.where(finite, M, 0)).sum(axis=(1, 2))
        violation = np.abs(X.sum(axis=1) - q).sum(axis=1)
        if single:
            yield Iterate(X[0].copy(), float(value[0]), float(violation[0]), done)
        else:
            yield Iterate(X.copy(), value, violation, done)


def _normalise(log_plan: Array, log_sums: Array, axis: int) -> Array:
    """Scale a plan, given by its logarithm, to given sums along an axis, in place; return the plan."""
    largest = log_plan.max(axis=axis, keepdims=True)
    largest[np.isneginf(largest)] = 0  # a point without weight
    log_plan -= largest
    plan = np.exp(log_plan)
    sums = plan.sum(axis=axis, keepdims=True)
    sums[sums == 0] = 1
    log_plan += log_sums - np.log(sums)
    plan *= np.exp(log_sums) / sums
    return plan
