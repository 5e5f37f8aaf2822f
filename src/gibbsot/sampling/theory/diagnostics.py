"""All quantities of the paper's appendix along a run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core.problems import Problem, dual_value
from .. import sampler
from ._half_step import Side
from .concentration import martingale
from .increments import C, D, expected_increment
from .temperatures import temperature_bound

Array = NDArray[np.float64]


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
    >>> from gibbsot import problem
    >>> pair = problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
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
    many = Problem(p, q, problem.cost)
    flat = (
        dual_value(many, U, L),
        T,
        expected_increment(many, U, L, T.ravel(), side),
        temperature_bound(many, U, L, side),
        C(many, U, L, T.ravel(), side),
        D(many, U, L, side),
    )
    return tuple(x.reshape(T.shape) for x in flat)
