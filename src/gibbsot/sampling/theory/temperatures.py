"""Temperatures at which V(z) stays unchanged on average, or reaches a given value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...costs.problems import Problem, dual_value, inner, transforms
from .. import sampler
from . import increments
from .increments import Array, Block, Side, View, blocks, phi_of, positive, rise_of, total_of, view_of

_SECANTS = 12


def temperature_bound(problem: Problem, U: ArrayLike, L: ArrayLike, side: Side = "L") -> Array:
    r"""Return calT(z), the temperature at which the next half step leaves V(z) unchanged on average.

    .. math:: O(z, \mathcal T) = A + \mathcal T \, C(z, \mathcal T) = 0, \qquad A = O(z, 0)

    Below calT(z) the value falls on average, above it rises. Where A >= 0 it rises at every temperature: the chain is
    below its equilibrium, there is no positive root, and 0 is returned. The paper's equation is implicit, as C depends
    on T. T C(z, T) is the mean of minima of functions linear in T, so it is concave and its slope falls from C(z, 0)
    to 1: the root lies between -A / C(z, 0) and -A. The unknown is T / -A: multiplying the costs by a power of 2
    multiplies calT by exactly that.

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1)
        The potential on the points of p.
    L : array of shape (n, m2)
        The potential on the points of q.
    side : {"L", "U"}, optional
        The potential that the half step redraws.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> from gibbsot.theory import temperature_bound
    >>> from gibbsot import Problem
    >>> one = Problem([1.0], [1.0], [[3.0]])
    >>> temperature_bound(one, [[4.0]], [[0.0]]), temperature_bound(one, [[2.0]], [[0.0]])
    (array([1.]), array([0.]))
    """
    U, L = np.asarray(U), np.asarray(L)
    length = max(1, increments.ENTRIES // (problem.cost.shape[0] * problem.cost.shape[1]))
    parts = [slice(b, b + length) for b in range(0, len(problem), length)]
    return np.concatenate([_root(view_of(problem[rows], U[rows], L[rows], side)) for rows in parts])


def sampled_bound(
    problem: Problem, L: ArrayLike, h: NDArray[np.floating], value: ArrayLike, T: ArrayLike, n_jobs: int | None = None
) -> Array:
    r"""Return an estimate of calT(z) from one sweep, at the cost of about another sweep.

    .. math:: -A \, T / (V(z') - V(z) - A)

    The sweep at T takes z = (U, L), with the U that h gives, to z' = (U, L'). It raises V by A + T C(z, T) on average,
    so this is the paper's -A / C(z, T) with C sampled; 0 where A >= 0.

    Parameters
    ----------
    problem : Problem
        The problems.
    L, h : arrays of shape (n, m2)
        L of the sweep before, and the h that it left.
    value : array of shape (n,)
        V(z').
    T : float or array of shape (n,)
        The temperature, positive.
    n_jobs : int, optional
        Threads over the problems.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.theory import sampled_bound
    >>> from gibbsot import Problem, sampler
    >>> pair = Problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> state, before = sampler.run(sampler.init(pair), pair, np.full(20, 0.1))
    >>> _, after = sampler.run(state, pair, np.array([0.1]))
    >>> bool(0 < sampled_bound(pair, before.L, state.h, after.value, 0.1)[0] < 1)
    True
    """
    U, L_U = transforms(problem, h, n_jobs)
    top = inner(problem.q, L_U)
    fall = top - inner(problem.q, np.asarray(L))
    excess = np.asarray(value) - inner(problem.p, U) + top
    with np.errstate(over="ignore"):  # a point that only one other can reach has no excess
        return positive(T, len(problem)) * (np.maximum(fall, 0) / np.maximum(excess, np.finfo(np.float64).tiny))


def sampled_temperature(state: sampler.State, problem: Problem, value: ArrayLike, n_jobs: int | None = None) -> Array:
    r"""Return the temperature at which one sweep brings V(z) to a given value.

    With the noise of that sweep given, V(z) after it is a concave and rising function of T, so there is one root; it is
    0 where V(z) is above the value at T = 0 already. For the optimal potentials of a problem and a value of (1 + e) W,
    this is about the temperature at which a chain that has mixed has that value.

    Parameters
    ----------
    state : State
        The chains before the sweep.
    problem : Problem
        The problems.
    value : array of shape (n,)
        The value that V(z) should have after the sweep.
    n_jobs : int, optional
        Threads over the problems.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> from gibbsot.theory import sampled_temperature
    >>> from gibbsot import Problem, sampler
    >>> pair = Problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> T = sampled_temperature(sampler.init(pair), pair, [0.3])
    >>> sampler.run(sampler.init(pair), pair, T[:, None])[1].value.round(6)
    array([0.3])
    """
    start = dual_value(problem, *transforms(problem, state.h, n_jobs))
    rise = np.asarray(value, np.float64) - start
    scale, limits = np.where(rise > 0, rise, 1.0), np.finfo(problem.cost.dtype)

    def excess(t: Array) -> Array:
        T = np.clip(scale * np.exp(t), limits.tiny, limits.max)
        _, info = sampler.run(state, problem, T[:, None], n_jobs=n_jobs)
        gain = info.value - start
        return np.log(np.maximum(gain, np.finfo(np.float64).tiny) / scale)

    # the secant in t = log(T / rise), where the slope lies between 0 and 1, and the root below 0 but for noise
    before = np.full(len(problem), -np.log(sum(problem.cost.shape)))
    at_before = excess(before)
    t = before - at_before
    for _ in range(_SECANTS):
        at_t = excess(t)
        step = t - before
        slope = np.divide(at_t - at_before, step, out=np.ones_like(t), where=np.isfinite(step) & (np.abs(step) > 1e-12))
        before, at_before, t = t, at_t, np.clip(t - at_t / np.clip(slope, 0.1, 1.0), -700, 5)
    return np.where(rise > 0, scale * np.exp(t), 0.0)


def _root(view: View) -> Array:
    """Return calT(z) of each problem, by false position with Illinois' halving in t = log(T / -A)."""
    # sorted once, unless a single problem is too large to be stored
    kept = list(blocks(view)) if view.target[0].size * view.source[0].size <= increments.ENTRIES else None

    def total(line: Callable[[Block], Array]) -> Array:
        return total_of(view, blocks(view) if kept is None else kept, line)

    def excess(t: Array) -> Array:
        return t + np.log(total(lambda b: phi_of(b, scale * np.exp(t))))

    gain = total(lambda b: rise_of(view, b))
    scale = np.where(gain < 0, -gain, 1.0)
    # in t the function is smooth with a slope from 0 to 1; C(z, 0) has the weight up to the last of the points that
    # attain the minimum
    low = -np.log(total(lambda b: 1 / b.mass[np.arange(len(b.row)), (b.gaps > 0).argmax(axis=1)]))
    t: Array = np.zeros(len(gain))
    high: Array = np.zeros(len(gain))
    before: NDArray[np.bool_] = np.zeros(len(gain), bool)
    at_low, at_high = excess(low), excess(high)
    for _ in range(100):
        rise = at_high - at_low
        last, t = t, np.where(rise > 0, high - at_high * (high - low) / np.where(rise > 0, rise, 1), (low + high) / 2)
        if (np.abs(t - last) <= 1e-13).all():
            break
        at_t = excess(t)
        above = at_t > 0
        halve = np.where(above == before, 0.5, 1.0)
        low, at_low = np.where(above, low, t), np.where(above, at_low * halve, at_t)
        high, at_high = np.where(above, t, high), np.where(above, at_t, at_high * halve)
        before = above
    return np.where(gain < 0, scale * np.exp(t), 0.0)
