"""A level method for convex functions of weights: it keeps the cuts of exact values and subgradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import entropy

from .mirror_descent import logarithms

Array = NDArray[np.float64]

_LEVEL = 0.5  # between the bounds
_FEASIBLE = 1e-3  # times the gap: by so much cuts may be above the level
_MOST_CUTS = 150
_MOST_NEWTON = 50
_LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01)  # of Newton's steps
_RIDGE = 1e-10  # relative to the trace
_LEAST = -30.0  # of the logarithms of weights: smaller ones would hardly grow again
_MOST_STEPS = 100  # towards the largest entropy: twenty to fifty suffice mostly
_SMOOTH = 1e-2  # nats below the largest entropy: nobody sees the difference
_ULP = float(np.finfo(np.float64).eps)


class LevelMethod:
    r"""Minimises a convex function F of weights p with sum one, given affine functions below it, which are its cuts.

    .. math:: F(p) \ge \max_k \langle C_k, p \rangle

    The minimum of the right-hand side is a lower bound, and any weights of the cuts prove one. The next point is the
    projection of the last one, in Kullback-Leibler divergence, on the weights for which all cuts are below a level
    between lower and upper bound: the proximal level method of Lemaréchal, Nemirovskii and Nesterov [1]_ with the
    distance and the restricted memory of Ben-Tal and Nemirovski [2]_.

    Parameters
    ----------
    p : array of shape (m,)
        The first weights.

    Attributes
    ----------
    log_p : array of shape (m,)
        Logarithms of the present weights.
    cuts : array of shape (K, m)
        The cuts, of which those that matter least are dropped.
    lower : float
        The certified lower bound.

    References
    ----------
    .. [1] New variants of bundle methods, Mathematical Programming 69, 1995.
    .. [2] Non-Euclidean restricted memory level method for large-scale convex optimization, Mathematical Programming
       102, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> centre, method, upper = np.array([0.5, 0.3, 0.2]), LevelMethod(np.full(3, 1 / 3)), np.inf
    >>> for _ in range(30):
    ...     p = np.exp(method.log_p)
    ...     gradient, value = 2 * (p - centre), np.sum((p - centre) ** 2)
    ...     method.add(gradient + value - gradient @ p)
    ...     upper = min(upper, value)
    ...     method.step(0.0, upper)
    >>> p.round(2), bool(upper - method.lower < 1e-3)
    (array([0.5, 0.3, 0.2]), True)
    """

    def __init__(self, p: Array) -> None:
        self.log_p = logarithms(p)
        self.cuts, self.lower = np.empty((0, len(p))), -np.inf

    def add(self, cut: Array) -> None:
        """Add a cut: its values at the unit vectors."""
        self.cuts = np.concatenate([self.cuts, cut[None]])
        self.lower = max(self.lower, float(cut.min()))

    def step(self, lower: float, upper: float) -> None:
        """Improve the lower bound, and move to the level set.

        Parameters
        ----------
        lower, upper : float
            A lower bound of F, and its least value so far.
        """
        self.lower = max(self.lower, lower)
        used = self._improve_bound(upper)
        if upper <= self.lower:
            return
        active = self._project(self.lower + _LEVEL * (upper - self.lower), _FEASIBLE * (upper - self.lower))
        if len(self.cuts) > _MOST_CUTS:
            values = self.cuts @ np.exp(self.log_p)
            values[used | active] = np.inf
            kept = np.sort(np.argsort(-values, kind="stable")[:_MOST_CUTS])
            self.cuts = self.cuts[kept]

    def _improve_bound(self, upper: float) -> NDArray[np.bool_]:
        """Find the weights of the cuts that prove most, by a linear programme; return which cuts have weight."""
        K, m = self.cuts.shape
        if K == 1:  # `add` has its bound
            return np.ones(1, np.bool_)
        scale = max(upper - self.lower, _ULP * abs(upper)) or 1.0
        found = linprog(  # of the weights of the cuts, and a bound t of their mean
            np.append(np.zeros(K), -1.0),
            A_ub=np.column_stack([(self.lower - self.cuts.T) / scale, np.ones(m)]),
            b_ub=np.zeros(m),
            A_eq=np.append(np.ones(K), 0.0)[None],
            b_eq=[1.0],
            bounds=[(0, None)] * K + [(None, None)],
            method="highs-ds",
        )
        if found.status != 0:
            return np.zeros(K, np.bool_)
        share = np.maximum(found.x[:K], 0)
        share /= share.sum()
        size = float(np.abs(self.cuts[share > 0]).max())
        self.lower = max(self.lower, float((share @ self.cuts).min()) - (K + 4) * _ULP * size)
        return share > 0

    def _project(self, level: float, tolerance: float) -> NDArray[np.bool_]:
        """Move to the nearest weights for which all cuts are at most the level; return which cuts are active.

        Newton's method solves the dual problem. Its variables y, one for each cut, are nonnegative; in each iteration
        those at zero that would fall stay there. The ridge is larger where a step does not lower the dual.
        """
        y, z, _ = _multipliers(self.log_p, self.cuts - level, np.zeros(len(self.cuts)), tolerance, _MOST_NEWTON)
        self.log_p = _log_sum(np.maximum(z, _LEAST))[1]
        return y > 0


def _multipliers(log_p: Array, C: Array, y: Array, tolerance: float, most: int) -> tuple[Array, Array, float]:
    """Return multipliers of the constraints ``C p <= 0`` of a projection, the logarithms of p, and the dual value."""
    scale = float(np.ptp(C, axis=1).max()) or 1.0
    C, y, ridge = C / scale, y * scale, _RIDGE
    value, z = _log_sum(log_p - y @ C)
    for _ in range(most):
        p = np.exp(z)
        excess = C @ p  # minus the gradient of the dual
        free = (y > 0) | (excess > 0)
        if np.abs(excess[free]).max(initial=0) <= tolerance / scale:
            break
        F = C[free]
        H = (F * p) @ F.T - np.outer(excess[free], excess[free])
        H[np.diag_indices(len(H))] += ridge * H.trace() + _ULP
        direction = np.zeros(len(y))
        direction[free] = np.linalg.solve(H, excess[free])
        for length in _LENGTHS:
            near = np.maximum(y + length * direction, 0)
            found, moved = _log_sum(log_p - near @ C)
            if found <= value - 1e-4 * excess @ (near - y) < value:
                y, value, z, ridge = near, found, moved, max(ridge / 10, _RIDGE)
                break
        else:
            ridge *= 100
    return y / scale, z, value


class LargestEntropy:
    r"""The weights of largest entropy among those for which a convex function F is at most a limit.

    .. math:: \max_p -\sum_a p_a \log p_a \quad \text{subject to} \quad F(p) \le b, \; \sum_a p_a = 1, \; p \ge 0

    The weights of largest entropy for which all cuts of F are at most the limit have at least the entropy of the
    optimum, and the dual of this problem bounds it. Between the best weights and these, the last ones within the limit
    are a candidate, and both points give cuts.

    Parameters
    ----------
    p : array of shape (m,)
        Weights within the limit.
    limit : float
        The limit b.

    Attributes
    ----------
    best : array of shape (m,)
        The best weights so far.
    gap : float
        By how much the entropy of others may be larger.

    Examples
    --------
    >>> import numpy as np
    >>> centre = np.array([1.0, 0.0, 0.0])
    >>> def exact(p):
    ...     gradient, value = np.sign(p - centre), np.abs(p - centre).sum()
    ...     return value, gradient + value - gradient @ p
    >>> method = LargestEntropy(centre, 0.8)
    >>> for _ in method.steps(exact):
    ...     pass
    >>> method.best.round(2)
    array([0.6, 0.2, 0.2])
    """

    def __init__(self, p: Array, limit: float) -> None:
        self.best, self.limit, self.gap = p, limit, np.inf

    def steps(self, exact: Callable[[Array], tuple[float, Array]]) -> Iterator[float]:
        """Take steps until no other weights have noticeably more entropy.

        Parameters
        ----------
        exact : function
            Returns F and its cut, for weights.

        Yields
        ------
        float
            F of the best weights.
        """
        uniform, y = np.zeros(len(self.best)), np.zeros(1)
        value, cut = exact(self.best)
        cuts, largest, tolerance = cut[None], np.inf, _FEASIBLE / 10 * (self.limit - value)
        if tolerance <= 0:
            return
        for _ in range(_MOST_STEPS):
            y, z, most = _multipliers(uniform, cuts - self.limit, y, tolerance, 4 * _MOST_NEWTON)
            p = np.exp(z)
            far, cut = exact(p)
            added = [cut]
            if far > self.limit:
                share = max(self.limit - value, 0.0) / (far - value)
                near = self.best + share * (p - self.best)
                found, cut = exact(near)
                added.append(cut)
            else:
                near, found = p, far
            cuts, y = np.concatenate([cuts, added]), np.append(y, np.zeros(len(added)))
            if found <= self.limit and entropy(near) > entropy(self.best):
                self.best, value = near, found
            largest = min(largest, most)
            self.gap = max(largest - entropy(self.best), 0.0)
            yield value
            if self.gap <= _SMOOTH:
                break


def _log_sum(z: Array) -> tuple[float, Array]:
    """Return the logarithm of the sum of exponentials, and z less that."""
    largest = float(z.max())
    total = largest + float(np.log(np.exp(z - largest).sum()))
    return total, z - total
