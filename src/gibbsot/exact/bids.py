"""Potentials from bids: a start for large problems in many dimensions, for any weights and without a matrix.

A row bids for the column of least ``M_ij + price_j`` (``native/auction.hpp``), which it finds in a list of its nearest
columns. Prices only rise, so that a list stays valid until its last arc is passed. In many dimensions few rows need a
second list: one search of all pairs is nearly all of the work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.backend import backend
from ..costs import Cost
from ..io.budget import Budget

Array = NDArray[np.float64]

LISTED = 48  # arcs of a list
_SAMPLE = 2_048  # rows whose nearest one gives a column its first price
_EPSILON = 3e-3  # by which a bid is raised, relative to the mean distance of rows to their nearest column
_UNITS = 2  # for each point of the larger side. Weights are rounded to units, or ever more rows would share a column
_LEFT = 1e-3  # of all mass: if no more is left, prices are as good as they get
# In few dimensions rows outbid each other in small steps: after the first number of bids per unit at most a third of
# the mass may be left. A start takes at most the second number of bids per unit, and the third of lists.
_FIRST, _MOST, _ROUNDS = 30, 300, 100


def memory(cost: Cost) -> float:
    """Return the bytes of lists, of what columns hold, and of the blocks of the first prices."""
    return (40.0 * min(LISTED, cost.shape[1]) + 200.0) * cost.shape[0] + 100.0 * cost.shape[1]


def potentials(p: Array, q: Array, cost: Cost, budget: Budget, share: float = _EPSILON) -> Array | None:
    """Return potentials of the rows, or None where bids are slow or the budget is spent.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Weights, normalised or not.
    cost : Cost
        The cost, without forbidden pairs.
    budget : Budget
        Its time.
    share : float
        By how much bids are raised, relative to the mean distance of rows to their nearest column: about the gap that
        the potentials leave.

    Returns
    -------
    array of shape (m1,), or None
    """
    a, b = _in_units(p, q)
    rows, k = np.flatnonzero(a), min(LISTED, len(b))
    first = _first_prices(cost, rows)
    if budget.spent:
        return None
    auction = backend().auction(a, b, first, k)
    current, waiting, bids, epsilon = first, rows, 0, 0.0  # current: prices
    units = int(a.sum())
    enough = _LEFT * units
    for number in range(_ROUNDS):
        x = np.where(q > 0, current, np.inf).astype(np.float32)
        found, sums = cost.listed(waiting, x, k)
        if number == 0:
            own = found[:, 0]
            scale = float(np.abs(sums[:, 0] - x[own]).mean())
            epsilon = max(share * scale, 1e-9 * float(np.abs(first).max()), 1e-300)
        auction.give_lists(waiting, found, sums, np.where(np.isfinite(x), x, 0))
        limit = (_FIRST if number == 0 else _MOST) * units - bids
        bids += auction.run(epsilon, enough, max(0, limit), budget.seconds, budget.flag)
        if number == 0 and bids >= _FIRST * units:
            if auction.left > units / 3:
                return None
            bids += auction.run(epsilon, enough, _MOST * units - bids, budget.seconds, budget.flag)
        waiting = auction.waiting()
        if budget.spent:
            return None
        if auction.left <= enough or bids >= _MOST * units or not len(waiting):
            break
        auction.prices(current := np.empty(len(b)))
    auction.potentials(f := np.empty(len(a)))
    left = auction.left / units
    budget.report("bids of %d rows leave %.1e of the mass, after %d rounds", len(rows), left, number + 1)
    if len(others := np.flatnonzero((p > 0) & (a == 0))):
        auction.prices(current := np.empty(len(b)))
        f[others] = cost.listed(others, np.where(q > 0, current, np.inf).astype(np.float32), 1)[1][:, 0]
    return np.where(p > 0, f, 0.0)


def _in_units(p: Array, q: Array) -> tuple[Array, Array]:
    """Return weights as multiples of a unit, so that cumulative sums are off by half a unit at most."""
    n = _UNITS * max(len(p), len(q))
    sums = [np.rint(np.cumsum(x) / x.sum() * n) for x in (p, q)]
    return np.diff(sums[0], prepend=0), np.diff(sums[1], prepend=0)


def _first_prices(cost: Cost, rows: NDArray[np.intp]) -> Array:
    """Return what makes columns equally dear to the nearest of some rows."""
    some = rows[:: max(1, len(rows) // _SAMPLE)]
    least, step = np.full(cost.shape[1], np.inf), max(1, 2_000_000 // cost.shape[1])
    for start in range(0, len(some), step):
        np.minimum(least, cost.matrix(some[start : start + step]).min(axis=0), out=least)
    return np.asarray(-least, np.float64)
