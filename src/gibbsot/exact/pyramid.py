"""Exact optima on grids from coarse to fine, for any cost that is a sum over the axes.

The levels are those of `coarse_to_fine`, and so is the way that potentials are carried from one to the next; each level
is a crossover. It differs in two points from costs that k-d trees search:

- A search for violated arcs is a pass over the whole grid, so that starts must be better: a few hundred sweeps of the
  sampler refine the potentials first. With k-d trees a search takes less time than the sweeps.
- Points without weight stay in the grid, which without them would be none, and costs may be negative or infinite: the
  crossover takes care of both.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..core.backend import backend
from ..costs import Cost
from ..costs.problems import Problem
from ..io.budget import Budget
from ..sampling import sampler
from ..sampling.schedules import geometric
from .annealed import crossover
from .coarse_to_fine import Level, dual_value, levels_of
from .method import Batch, Method
from .solution import Solution

Array = NDArray[np.floating]
Weights = NDArray[np.float64]

_SWEEPS, _NEIGHBOURS = 300, 12
_FIRST, _LAST = 0.3, 0.003  # temperatures, in units of V / (m1 + m2)
_COLDEST = 1e-15  # where axes differ in size, the last one is lower, and there are up to twice as many sweeps


class CoarseGrids(Method):
    """Coarser grids choose the arcs, with sweeps."""

    name = "coarse grids"
    about = "potentials of a coarser grid choose arcs, after sweeps of the sampler"
    suits = "grids with other costs"
    least = 500_000

    def accepts(self, cost: Cost) -> bool:
        """Accept costs on grids."""
        return bool(cost.row_shape) and backend().has_simplex

    def memory(self, cost: Cost) -> float:
        """Return the bytes of the points."""
        return 1500.0 * sum(cost.shape)

    def seconds(self, points: float, pairs: float) -> float:
        """Return about how long a problem takes."""
        return 6 * (points / 16384) ** 2

    def solve(self, batch: Batch, which: list[int]) -> list[Solution]:
        """Solve problems one by one."""
        return batch.each(
            lambda b: solve_pyramid(*batch.weights(b), batch.cost, batch.gap, batch.budget, batch.start(b)), which
        )


def solve_pyramid(
    p: Weights, q: Weights, cost: Cost, gap: float = 0.0, budget: Budget | None = None, f: Weights | None = None
) -> Solution:
    """Solve one problem on a grid exactly, from coarse to fine.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Weights, normalised or not, taken as exact numbers.
    cost : Cost
        The cost, in double precision, of which there are coarser ones.
    gap : float
        Stop as soon as the certified relative gap is at most this; 0 for the optimum.
    budget : Budget, optional
        Its time and memory.
    f : array of shape (m1,), optional
        Potentials of a similar problem. The finest level starts from them, unless those of a coarser level are better.

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
    >>> from gibbsot import GridCost
    >>> p, q = np.zeros((33, 20)), np.zeros((33, 20))
    >>> p[:10, :10] = q[5:15, 7:17] = 0.01
    >>> answer = solve_pyramid(p.ravel(), q.ravel(), GridCost((33, 20), power=3, spacing=1.0))
    >>> answer.status, round(answer.value, 9)
    ('optimal', 468.0)
    """
    *finer, last = levels_of(cost, p, q)
    answer = crossover(last.a, last.b, last.cost, np.zeros(last.cost.shape[0]), max(last.cost.shape), budget=budget)
    for level in reversed(finer):
        U: Array = level.carried(answer.g)
        if f is not None and level is finer[0] and _bound(level, f) >= _bound(level, U):
            return crossover(p, q, cost, f, _NEIGHBOURS, gap=gap, budget=budget)
        if answer.value > 0 and not (budget is not None and budget.spent):
            U = _sweep(level.a, level.b, level.cost, U, answer.value / sum(level.cost.shape))
        wanted = gap if level is finer[0] else 0.0
        answer = crossover(level.a, level.b, level.cost, U, _NEIGHBOURS, gap=wanted, budget=budget)
    return answer


def _bound(level: Level, f: Array) -> float:
    """Return the dual value of a potential of the rows, minus infinity if it has none."""
    rows, columns = level.a > 0, level.b > 0
    g = -level.cost.col_max(np.where(rows, f, -np.inf))
    f = level.cost.row_min(np.where(columns, -g, np.inf))
    value = dual_value(level.a[rows], level.b[columns], f[rows], g[columns])
    return value if np.isfinite(value) else -np.inf


def _sweep(p: Weights, q: Weights, cost: Cost, U: Array, T: float) -> Array:
    """Return potentials after sweeps from potentials U, with temperatures in units of T."""
    p, q = p / p.sum(), q / q.sum()
    one = Problem.normalised(p[None], q[None], cost)
    L = cost.col_max(np.where(p > 0, U, -np.inf))
    start = replace(sampler.init(one), h=np.where(q > 0, L, np.inf)[None])
    last = max(_LAST * cost.evenness(), _COLDEST)
    sweeps = round(_SWEEPS * (1 + np.log(last / _LAST) / np.log(_COLDEST / _LAST)))
    T = max(T, float(np.finfo(np.float64).tiny) / last)
    return sampler.run(start, one, geometric(_FIRST * T, sweeps, last / _FIRST), n_jobs=1)[1].U[0]
