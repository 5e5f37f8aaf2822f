"""Exact optima on grids from coarse to fine, for any cost that is a sum over the axes.

Both measures are pooled over cells of two points an axis, the coarse problem is solved exactly, and a c-transform
carries its potentials to the fine grid. A few hundred sweeps of the sampler refine them before the crossover.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..costs import GridCost
from ..costs.problems import Problem
from ..io.budget import Budget
from ..sampling import sampler
from ..sampling.schedules import geometric
from .annealed import crossover
from .solution import Solution

Array = NDArray[np.floating]
Weights = NDArray[np.float64]

_SMALLEST = 256  # points a side that are solved on all arcs
_SWEEPS, _NEIGHBOURS = 300, 12
_FIRST, _LAST = 0.3, 0.003  # temperatures, in units of V / (m1 + m2)
_COLDEST = 1e-15  # where axes differ in size, the last one is lower, and there are up to twice as many sweeps


def solve_pyramid(p: Weights, q: Weights, cost: GridCost, gap: float = 0.0, budget: Budget | None = None) -> Solution:
    """Solve one problem on a grid exactly, from coarse to fine.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Weights, normalised or not, taken as exact numbers.
    cost : GridCost
        The cost, in double precision: any sides, any matrices of the axes.
    gap : float
        Stop as soon as the certified relative gap is at most this; 0 for the optimum.
    budget : Budget, optional
        Its time and memory.

    Returns
    -------
    Solution

    Raises
    ------
    ValueError
        If infinite costs forbid every plan.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.zeros((33, 20)), np.zeros((33, 20))
    >>> p[:10, :10] = q[5:15, 7:17] = 0.01
    >>> answer = solve_pyramid(p.ravel(), q.ravel(), GridCost((33, 20), power=3, spacing=1.0))
    >>> answer.status, round(answer.value, 9)
    ('optimal', 468.0)
    """
    if max(cost.shape) <= _SMALLEST:
        return crossover(p, q, cost, np.zeros(cost.shape[0]), neighbours=max(cost.shape), budget=budget)
    # rows stay fine for the c-transform, which carries potentials of coarse columns to fine rows
    half = GridCost(matrices=[_mean_of_pairs(axis.T).T for axis in cost.axes])
    coarse = coarser(cost)
    answer = solve_pyramid(pooled(p, cost.row_shape), pooled(q, cost.col_shape), coarse, budget=budget)
    U = half.row_min(-answer.g)
    if answer.value > 0 and not (budget is not None and budget.spent):
        U = _sweep(p, q, cost, U, answer.value / sum(cost.shape))
    return crossover(p, q, cost, U, _NEIGHBOURS, gap=gap, budget=budget)


def coarser(cost: GridCost) -> GridCost:
    """Return the cost between cells of two points an axis: the mean over their points."""
    return GridCost(matrices=[_mean_of_pairs(_mean_of_pairs(axis.T).T) for axis in cost.axes])


def pooled(weights: Weights, shape: tuple[int, ...]) -> Weights:
    """Return the sums of cells of two points an axis; the last of an odd side stands alone."""
    image = weights.reshape(shape)
    for a, n in enumerate(shape):
        image = np.add.reduceat(image, np.arange(0, n, 2), axis=a)
    return image.ravel()


def _mean_of_pairs(axis: Array) -> Array:
    """Return the means of the finite entries of neighbouring rows."""
    starts, finite = np.arange(0, len(axis), 2), np.isfinite(axis)
    count = np.add.reduceat(finite.astype(np.int64), starts)
    sums = np.add.reduceat(np.where(finite, axis, 0.0), starts)
    return np.where(count > 0, sums / np.maximum(count, 1), np.inf)


def _sweep(p: Weights, q: Weights, cost: GridCost, U: Array, T: float) -> Array:
    """Return potentials after sweeps from potentials U, with temperatures in units of T."""
    p, q = p / p.sum(), q / q.sum()
    one = Problem.normalised(p[None], q[None], cost)
    L = cost.col_max(np.where(p > 0, U, -np.inf))
    start = replace(sampler.init(one), h=np.where(q > 0, L, np.inf)[None])
    last = max(_LAST * _smallest_axis(cost), _COLDEST)
    sweeps = round(_SWEEPS * (1 + np.log(last / _LAST) / np.log(_COLDEST / _LAST)))
    T = max(T, float(np.finfo(np.float64).tiny) / last)
    return sampler.run(start, one, geometric(_FIRST * T, sweeps, last / _FIRST), n_jobs=1)[1].U[0]


def _smallest_axis(cost: GridCost) -> float:
    """Return the spread of the costs along the cheapest axis, relative to that along the dearest."""
    spreads = [float(np.ptp(axis[np.isfinite(axis)])) for axis in cost.axes]
    some = [spread for spread in spreads if spread > 0]
    return min(some) / max(some) if some else 1.0
