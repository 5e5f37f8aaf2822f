"""The martingale of a run: the paper's bounds on its deviations, and all quantities of the appendix along a run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...costs.problems import Problem, dual_value
from .. import sampler
from .increments import Array, C, D, Side, expected_increment
from .temperatures import temperature_bound


def martingale(values: ArrayLike, increments: ArrayLike) -> Array:
    r"""Return the martingale of a run, along the last axis.

    .. math:: r^n = V(z^n) - \sum_{s < n} O(z^s, T^s)

    Parameters
    ----------
    values : array of shape (..., N)
        V(z) of a run.
    increments : array of shape (..., N - 1)
        O(z, T) of its half steps.

    Returns
    -------
    array of shape (..., N)

    Examples
    --------
    >>> from gibbsot.theory import martingale
    >>> martingale([1.0, 0.5, 0.75], [-0.25, 0.25])
    array([1.  , 0.75, 0.75])
    """
    r = np.array(values, np.float64)
    r[..., 1:] -= np.cumsum(increments, axis=-1)
    return r


def right_steps(D: ArrayLike, T: ArrayLike, m: int, eps: float) -> Array:
    r"""Return bounds on the rises of the martingale in each half step, which hold with probability 1 - eps.

    .. math:: a_n = \log(2 N S m / \varepsilon) \, T^n + D^n, \qquad n = 1, \ldots, 2N - 1

    Parameters
    ----------
    D, T : arrays of shape (2N - 1,), or (S, 2N - 1) for the mean of S problems
        D(z) and the temperature of each half step.
    m : int
        The number of points of the larger measure.
    eps : float
        A probability between 0 and 1, for all problems together.

    Returns
    -------
    array
        The a_n, of the shape of D.

    Raises
    ------
    ValueError
        If eps is not between 0 and 1.

    Examples
    --------
    >>> from gibbsot.theory import right_steps
    >>> right_steps([0.5], 0.1, m=10, eps=0.05).round(3)
    array([1.099])
    """
    if not 0 < eps < 1:
        raise ValueError(f"eps: expected a number between 0 and 1, got {eps!r}")
    steps = np.asarray(D, np.float64)
    problems = len(np.atleast_2d(steps))
    return np.log((steps.shape[-1] + 1) * problems * m / eps) * np.asarray(T, np.float64) + steps


def concentration_probability(K: float, a: ArrayLike, eps: float = 0.0) -> float:
    r"""Return a bound of the probability that the martingale deviates by more than K to one side.

    .. math::

        \Pr(r^{2N} < r^1 - K) \le e^{-K^2 / 2 \Sigma} \text{ if } a_n \ge C^n T^n, \qquad
        \Pr(r^{2N} > r^1 + K) \le e^{-K^2 / 2 \Sigma} + \varepsilon
        \text{ if } a_n \ge \log(2 N m / \varepsilon) T^n + D^n

    with Sigma the sum of the 2N - 1 squares of a_n. The paper's gamma only scales: its gamma K and gamma a_n are K and
    a_n here. The a_n are fixed beforehand. With those of the run itself, the bound is of the probability that r
    deviates *and* the run's Sigma is at most the given one.

    For S problems with independent noise the half steps of R = sum r_k / S can be taken one problem at a time. It is
    then a martingale with steps a_kn / S, so Sigma is the sum of all squares divided by S^2.

    The paper takes the left-hand bound from Azuma's inequality, which needs steps bounded on both sides. These are
    bounded below only, and for martingales of that kind the bound is false in general. It holds here, as the excess
    of a minimum of shifted exponentials has a hazard rate that rises, which makes it smaller in the convex order than
    an exponential variate of its mean. So a half step's weighted sum Y of them, however dependent, is smaller than one
    of mean C T, and ``E exp(-s (Y - C T)) <= exp(s C T) / (1 + s C T) <= exp((s C T)^2 / 2)`` for s > 0.

    Parameters
    ----------
    K : float
        The deviation.
    a : array of shape (2N - 1,), or (S, 2N - 1) for the mean of S problems
        C T for the left-hand bound, `right_steps` for the right-hand one.
    eps : float
        Zero for the left-hand bound, that of `right_steps` for the right-hand one.

    Returns
    -------
    float
        At most 1.

    Examples
    --------
    >>> from gibbsot.theory import concentration_probability
    >>> round(concentration_probability(2.0, [0.5, 0.5, 0.5, 0.5]), 4)
    0.1353
    >>> round(concentration_probability(1.0, [[0.5, 0.5, 0.5, 0.5]] * 4), 4)
    0.1353
    """
    if not K >= 0:
        raise ValueError(f"K: expected a number >= 0, got {K!r}")
    squares = _squares(a)
    return float(min(1.0, np.exp(-(K**2) / (2 * squares)) + eps)) if squares > 0 else float(eps if K else 1.0)


def concentration_width(probability: float, a: ArrayLike, eps: float = 0.0) -> float:
    r"""Return the deviation K for which `concentration_probability` is the given one.

    .. math:: K = \sqrt{2 \Sigma \log(1 / (\Pr - \varepsilon))}

    Parameters
    ----------
    probability : float
        Above 0 and at most 1.
    a : array of shape (2N - 1,), or (S, 2N - 1) for the mean of S problems
        As for `concentration_probability`.
    eps : float
        As for `concentration_probability`.

    Returns
    -------
    float
        Infinite if the probability is not above eps.

    Examples
    --------
    >>> from gibbsot.theory import concentration_width
    >>> round(concentration_width(0.1353, [0.5, 0.5, 0.5, 0.5]), 3)
    2.0
    """
    if not 0 < probability <= 1:
        raise ValueError(f"probability: expected a number above 0 and up to 1, got {probability!r}")
    return float(np.sqrt(-2 * _squares(a) * np.log(probability - eps))) if probability > eps else float("inf")


class Trace(NamedTuple):
    """The quantities of the paper's appendix for a run of N sweeps, half step by half step.

    The pair (U, L) of sweep t is z^(2t-1), and z^2t has the U that its h gives instead: every other value is the
    sampler's history. Half step n, in column n - 1, leads from z^n to z^(n+1) and redraws U if n is odd, L if even.

    Attributes
    ----------
    value, r : arrays of shape (n, 2N)
        V(z) and the martingale.
    T, increment, bound, C, D : arrays of shape (n, 2N - 1)
        The temperature of each half step, and O(z, T), calT(z), C(z, T) and D(z) before it.
    """

    value: Array
    r: Array
    T: Array
    increment: Array
    bound: Array
    C: Array
    D: Array


def trace(state: sampler.State, problem: Problem, temperatures: ArrayLike) -> tuple[sampler.State, Trace]:
    """Run `sampler.step` for each temperature and evaluate every half step, in O(m1 m2 log(m1 m2)) each.

    Parameters
    ----------
    state : State
        The chains at the start.
    problem : Problem
        The problems.
    temperatures : array of shape (sweeps,) or (n, sweeps)
        The temperature of each sweep.

    Returns
    -------
    state : State
        The chains after the last sweep.
    trace : Trace
        The quantities of every half step.

    Examples
    --------
    >>> from gibbsot.theory import trace
    >>> from gibbsot import Problem, sampler
    >>> pair = Problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> _, seen = trace(sampler.init(pair), pair, [0.1, 0.1, 0.1])
    >>> seen.value.shape, seen.increment.shape
    ((1, 6), (1, 5))
    """
    schedule = np.broadcast_to(np.asarray(temperatures, np.float64), (len(problem), np.shape(temperatures)[-1]))
    closing, opening = [], []  # the pairs before U is redrawn, and before L is
    for T in schedule.T:
        state, info = sampler.step(state, problem, T, sampler.draw(state, problem))
        closing.append((info.U, info.L))
        # the U of the next sweep before it is centred: in one gauge with this sweep's L
        opening.append((problem.cost.row_min(state.h), info.L))
    evaluated = (
        _evaluate(problem, closing, schedule, "U"),
        _evaluate(problem, opening, np.roll(schedule, -1, axis=1), "L"),
    )
    # one after the other: column 2t - 2 from the first, 2t - 1 from the second
    value, *rest = (np.stack(pair, axis=2).reshape(len(problem), -1) for pair in zip(*evaluated, strict=True))
    T, increment, bound, c, d = (column[:, :-1] for column in rest)
    return state, Trace(value, martingale(value, increment), T, increment, bound, c, d)


def _evaluate(
    problem: Problem, pairs: list[tuple[NDArray[np.floating], NDArray[np.floating]]], T: Array, side: Side
) -> tuple[Array, ...]:
    """Return V(z), T, O(z, T), calT(z), C(z, T) and D(z) of the pairs of a run, each of shape (n, sweeps)."""
    U, L = (np.stack(x, axis=1).reshape(T.size, -1) for x in zip(*pairs, strict=True))
    p, q = (np.repeat(w, T.shape[1], axis=0) for w in (problem.p, problem.q))
    many = Problem.normalised(p, q, problem.cost)
    flat = (
        dual_value(many, U, L),
        T,
        expected_increment(many, U, L, T.ravel(), side),
        temperature_bound(many, U, L, side),
        C(many, U, L, T.ravel(), side),
        D(many, U, L, side),
    )
    return tuple(x.reshape(T.shape) for x in flat)


def _squares(a: ArrayLike) -> float:
    """Return Sigma, for the mean of the problems."""
    steps = np.atleast_2d(np.asarray(a, np.float64))
    return float((steps**2).sum()) / len(steps) ** 2
