"""A mixing test that takes the noise of V(z) into account, and chains that run until it holds.

The paper's test, `gibbsot.sampler.mixed`, compares two single values of V(z), whose noise is larger than its threshold:
a chain that still rises passes it by chance. This one compares means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..costs.problems import Problem
from . import sampler
from .sampler import MIXING_SLOPE, Info, State

__all__ = ["run_until_settled", "settled"]

_BLOCKS = 5  # of each window: means of blocks are almost independent, and show the noise
_QUANTILE = 2.896  # of Student's law with 2 (_BLOCKS - 1) degrees of freedom: one per cent is above it
_SHARE = 0.02  # of the value, that it may still change by from one window to the next
_FIRST_TEST, _GROWTH = 60, (13, 10)  # sweeps before the first test, and from each to the next as a ratio


def settled(history: NDArray[np.float64], temperature: ArrayLike, least: float = 0.0) -> NDArray[np.bool_]:
    r"""Tell whether V(z) neither rises nor falls any more: a mixing test with a false-alarm rate.

    The last third of the sweeps is compared with the third before. With the means :math:`\bar V_1`, then
    :math:`\bar V_2`, of windows of n sweeps each, and the standard error s of their difference, chains have settled
    where

    .. math:: |\bar V_2 - \bar V_1| + 2.9 \, s < \min(0.01 \, n \, T, \, 0.02 \, \bar V_2).

    The first threshold is the paper's, a hundredth of the temperature per sweep: a chain that has not mixed rises in
    proportion to T. The second is for problems whose value is small beside that. The standard error comes from the
    means of five blocks of each window, so that sweeps may be correlated over a block. A chain whose mean rises or
    falls by the threshold or more passes one test with a probability of at most one per cent.

    Parameters
    ----------
    history : array of shape (n, sweeps)
        V(z) of the sweeps so far, at one temperature; one row for each problem, with NaN after its last sweep.
    temperature : float or array of shape (n,)
        The temperature.
    least : float
        The least value that problems with this cost can have; the second threshold is relative to what is above it.

    Returns
    -------
    array of bool, shape (n,)
        False for fewer than 15 sweeps.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.sampler import settled
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(scale=0.1, size=(2, 900))
    >>> settled(5 + noise + [[0.0], [0.001]] * np.arange(900), 0.1)
    array([ True, False])
    """
    blocks, lengths, found = _blocks(history)
    T = np.broadcast_to(np.asarray(temperature, np.float64), len(found))[found]
    found[found] = _at_rest(blocks, MIXING_SLOPE * lengths * T, least)
    return found


def all_settled(history: NDArray[np.float64], temperature: float, least: float = 0.0) -> bool:
    """Tell whether the mean of V(z) over some chains neither rises nor falls any more.

    The test of `settled` for the sum over the chains, each with its own last sweeps: what a loss of many problems needs
    to know. The mean over many chains has less noise than each of them, so that fewer sweeps are enough.

    Parameters
    ----------
    history, temperature, least
        As for `settled`, with one temperature.

    Returns
    -------
    bool
        False if a chain has fewer than 60 sweeps.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.sampling.mixing import all_settled, settled
    >>> rest = 5 + np.random.default_rng(0).normal(scale=0.1, size=(50, 60))
    >>> bool(settled(rest, 0.1).any()), all_settled(rest, 0.1), all_settled(rest + 0.001 * np.arange(60), 0.1)
    (False, True, False)
    """
    blocks, lengths, _ = _blocks(history)
    if (~np.isnan(np.atleast_2d(history))).sum(axis=1).min() < _FIRST_TEST:
        return False
    limit = MIXING_SLOPE * temperature * lengths.sum()
    return bool(_at_rest(blocks.sum(axis=0)[None], limit, least * len(blocks))[0])


def _blocks(history: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the means of blocks of both windows, the sweeps of a window, and which chains have enough of them."""
    history = np.atleast_2d(history)
    counts = (~np.isnan(history)).sum(axis=1)
    lengths, blocks = counts // (3 * _BLOCKS), np.empty((len(history), 2, _BLOCKS))
    for count in np.unique(counts).tolist():
        rows, length = counts == count, count // (3 * _BLOCKS)
        if length:
            own = history[rows, count - 2 * _BLOCKS * length : count]
            blocks[rows] = own.reshape(len(own), 2, _BLOCKS, length).mean(axis=3)
    enough = lengths > 0
    return blocks[enough], _BLOCKS * lengths[enough], enough


def _at_rest(blocks: NDArray[np.float64], limit: NDArray[np.float64] | float, least: float) -> NDArray[np.bool_]:
    """Tell whether means of windows differ by less than a limit and the share of the value, with their noise."""
    means = blocks.mean(axis=2)
    deviations = (blocks - means[:, :, None]).reshape(len(blocks), 2 * _BLOCKS)
    largest = np.abs(deviations).max(axis=1)  # squares of costs may be beyond the range of doubles
    relative = deviations / np.where(largest > 0, largest, 1.0)[:, None]
    error = largest * np.sqrt((relative**2).sum(axis=1) / (_BLOCKS * (_BLOCKS - 1)))
    limit = np.minimum(limit, _SHARE * np.abs(means[:, 1] - least))
    return np.asarray(np.abs(means[:, 1] - means[:, 0]) + _QUANTILE * error <= limit)


def run_until_settled(
    state: State,
    problem: Problem,
    temperature: float | NDArray[np.float64],
    max_sweeps: int,
    least: float = 0.0,
    n_jobs: int | None = None,
) -> tuple[State, Info, NDArray[np.bool_]]:
    """Advance chains at constant temperatures until each has settled, or by ``max_sweeps``.

    `settled` is asked after 60 sweeps, and each time there are 30 per cent more: a test costs little, and few tests
    make few false alarms.

    Parameters
    ----------
    state : State
        The chains.
    problem : Problem
        The problems.
    temperature : float or array of shape (n,)
        The temperatures.
    max_sweeps : int
        The largest number of sweeps.
    least : float
        As for `settled`.
    n_jobs : int, optional
        Threads over the problems; the result is bit-identical for every number.

    Returns
    -------
    state : State
        The chains after their last sweeps.
    info : Info
        As of `run`.
    settled : array of bool, shape (n,)
        Whether the test ended the chain.

    Examples
    --------
    >>> from gibbsot import Problem
    >>> from gibbsot.sampler import init, run_until_settled
    >>> two = Problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> state, info, done = run_until_settled(init(two), two, 1e-3, 10_000)
    >>> bool(done[0]), int(state.sweep[0]) < 10_000
    (True, True)
    """
    n, T = len(problem), np.broadcast_to(np.asarray(temperature, np.float64), (len(problem),))
    found, history = np.zeros(n, bool), np.full((n, max_sweeps), np.nan)
    h, sweep = state.h.copy(), state.sweep.copy()
    info = None
    active = np.arange(n)
    for before, after in _tests(max_sweeps):
        chains = State(h[active], sweep[active], state.key, state.ids[active])
        temperatures = np.repeat(T[active, None], after - before, axis=1)
        chains, own = sampler.run(chains, problem if len(active) == n else problem[active], temperatures, n_jobs=n_jobs)
        h[active], sweep[active], history[active, before:after] = chains.h, chains.sweep, own.history
        if info is None:
            info = own
        else:
            for old, new in zip(info[:-1], own[:-1], strict=True):
                old[active] = new
        found[active] = settled(history[active, :after], T[active], least) & (after >= _FIRST_TEST)
        active = np.flatnonzero(~found)
        if len(active) == 0:
            break
    assert info is not None
    return replace(state, h=h, sweep=sweep), info._replace(history=history), found


def _tests(most: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers of sweeps from one test to the next; the last may come early.

    Examples
    --------
    >>> list(_tests(100))
    [(0, 60), (60, 78), (78, 100)]
    """
    before, after = 0, _FIRST_TEST
    while before < most:
        yield before, min(after, most)
        before, after = after, -(-after * _GROWTH[0] // _GROWTH[1])
