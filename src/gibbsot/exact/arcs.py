"""The one column generation: a problem on few arcs, which grows by the arcs that its potentials violate.

An optimal plan uses few of all arcs. Potentials suggest the first ones, those of least reduced cost. The network
simplex solves the problem on these, a search finds arcs that its potentials violate, they are added, and the simplex
resumes from its basis, until no arc is violated. Then plan and potentials are optimal for the whole problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..io.budget import Budget
from .certificate import NEGLIGIBLE_VIOLATION
from .highs import arc_problem
from .simplex import staircase

Array = NDArray[Any]
Indices = NDArray[np.int64]

_ULP = float(np.finfo(np.float64).eps)
_MOST = 0.75  # of the first arcs: if more are far, they are not outliers
_PATIENCE = 4  # rounds until the arcs of least reduced cost should carry all mass
_DEARER = 8.0  # times the cost of artificial arcs, as long as they carry mass
_PART = 1 << 18  # arcs that are looked at together


def union(*keys: Indices) -> Indices:
    """Return the union of arcs, each once and sorted.

    Parameters
    ----------
    *keys : arrays of int64
        Arcs as numbers, such as ``i m2 + j``.

    Examples
    --------
    >>> import numpy as np
    >>> union(np.array([3, 1]), np.array([2, 3]))
    array([1, 2, 3])
    """
    every = np.concatenate(keys)
    every.sort()
    new = np.ones(len(every), bool)
    np.not_equal(every[1:], every[:-1], out=new[1:])
    return every[new]


class GrowingArcs:
    """A transport problem on arcs that grow.

    Parameters
    ----------
    cost : Cost
        The cost, in double precision.
    p, q : arrays of shape (m1,) and (m2,)
        Weights; points without weight take no part.
    neighbours : int
        The number of arcs of least reduced cost that a point brings in.
    budget : Budget
        Its time, memory and threads.

    Attributes
    ----------
    rows, columns : arrays of int
        The points that have weight.
    problem : ArcProblem or HighsProblem
        The problem on the arcs, between these points.
    f, g : arrays of shape (m1,) and (m2,)
        Potentials; ``-inf`` where there is no weight.
    carried : bool
        Whether the arcs carry all mass.
    settled : bool
        Whether no other arc is violated.
    enough : float
        A value at which the simplex may stop.
    """

    def __init__(self, cost: Cost, p: Array, q: Array, neighbours: int, budget: Budget) -> None:
        self.cost, self.budget = cost, budget
        self.rows, self.columns = np.flatnonzero(p), np.flatnonzero(q)
        # where all points have weight, weights and numbers stay theirs: copies of a million points' take 32 MB
        every = [len(own) == len(x) for x, own in ((p, self.rows), (q, self.columns))]
        self._a, self._b = p if every[0] else p[self.rows], q if every[1] else q[self.columns]
        self._numbers = [None if each else np.cumsum(x > 0) - 1 for x, each in zip((p, q), every, strict=True)]
        self._neighbours = neighbours
        self.carried = self.settled = False
        self.enough = -np.inf

    def start(
        self, f: Array, g: Array, near: Indices | None = None, some_plan: bool = True, far: float = np.inf
    ) -> None:
        """Choose the first arcs.

        Parameters
        ----------
        f, g : arrays of shape (m1,) and (m2,)
            Potentials; ``-inf`` where there is no weight.
        near : array of int64, shape (m1, k), optional
            Columns of least reduced cost of the rows, if they are known.
        some_plan : bool
            Whether to begin with the arcs of some plan. Otherwise they are added if others carry not all mass.
        far : float
            Arcs of larger costs are left out at first, unless they are many: they are not needed where clusters that
            are far apart have each its own balance, and would make potentials large.
        """
        self.f, self.g = f, g
        self._has_plan, keys = some_plan, self._near(near)
        del near
        if some_plan:
            keys = union(keys, self._plan())
        self._costs = costs = self._costs_of(keys)
        kept = np.isfinite(costs)
        # if the arcs of some plan are allowed, there is one
        self._patience = _PATIENCE if not some_plan else 0 if kept.all() else None
        near_by = costs <= far
        if np.count_nonzero(kept & near_by) >= _MOST * np.count_nonzero(kept):
            kept &= near_by
        if not kept.all():
            keys, self._costs = keys[kept], costs[kept]
        self._keys = keys
        del keys, costs, kept, near_by  # 180 MB of a million points
        self._begin()

    def _begin(self) -> None:
        """Start the simplex on the first arcs, whose costs are forgotten."""
        keys, costs = self._keys, self._costs
        f, g = self.f[self.rows], self.g[self.columns]
        self._scale = float(np.abs(costs).max() + np.ptp(f) + np.ptp(g))
        if self._scale == 0:  # beside constants the cost of artificial arcs would vanish
            self.f, self.g = np.where(self.f > -np.inf, 0.0, self.f), np.where(self.g > -np.inf, 0.0, self.g)
            f, g = np.zeros(len(f)), np.zeros(len(g))
        largest = max(float((costs[part] - self.f[i] - self.g[j]).max()) for part, i, j in self._parts(keys))
        self._artificial = max(2 * largest, _ULP * self._scale, 1e-300)
        self.problem = arc_problem(self._a, self._b, self.budget)
        for part, i, j in self._parts(keys, max(_PART, len(keys) // 8)):  # the list is copied where it grows
            self._add_to_problem(i, j, costs[part])
        self._costs = costs = np.empty(0)
        self.problem.start(f, g, self._artificial)

    def _parts(self, keys: Indices, size: int = _PART) -> Iterator[tuple[slice, Indices, Indices]]:
        """Yield some arcs after others, with their rows and columns: those of a million points take 150 MB."""
        for start in range(0, len(keys), size):
            part = slice(start, start + size)
            yield part, *np.divmod(keys[part], self.cost.shape[1])

    def _costs_of(self, keys: Indices) -> Array:
        """Return the costs of arcs."""
        costs = np.empty(len(keys))
        for part, i, j in self._parts(keys):
            costs[part] = self.cost.at(i, j)
        return costs

    def _add_to_problem(self, i: Indices, j: Indices, costs: Array) -> None:
        """Add arcs between points, which have other numbers in the problem if some have no weight."""
        own, others = (x if number is None else number[x] for x, number in zip((i, j), self._numbers, strict=True))
        self.problem.add(own, others, costs)

    @property
    def count(self) -> int:
        """The number of arcs."""
        return len(self._keys)

    def rounds(self, most: int) -> Iterator[int]:
        """Solve, and go on with more arcs, until none is violated, the budget is spent, or the rounds are used up.

        Yields
        ------
        int
            The number of rounds so far: the problem is solved on its arcs, and `f` and `g` are its potentials. The
            caller may stop here.
        """
        for number in range(1, most + 1):
            self.carried = self.problem.optimise(self._tolerance(), self.enough)
            if not self.carried and (number == most if self._patience is None else number > self._patience):
                self._carry()
            f, g = self.problem.potentials()
            self.f, self.g = np.full(len(self.f), -np.inf), np.full(len(self.g), -np.inf)
            self.f[self.rows], self.g[self.columns] = f, g
            yield number
            if self.budget.spent:
                return
            fresh = self._violated()
            if len(fresh):
                if not self._add(fresh):
                    return
            elif self.carried or not self._raise_artificial():
                self.settled = True
                return

    def _carry(self) -> None:
        """Make artificial arcs dearer until they carry no mass, if that is possible.

        The arcs of least reduced cost may not carry all mass, above all between duplicates of points.
        """
        if not self._has_plan:
            self._add(np.setdiff1d(self._plan(), self._keys))
            self._has_plan = True
        while not self.carried and not self.budget.spent and self._raise_artificial():
            self.carried = self.problem.optimise(self._tolerance())

    def force(self) -> None:
        """Solve with forbidden arcs, which cost more than any detour."""
        keys = self._plan()
        i, j = np.divmod(keys, self.cost.shape[1])
        forbidden = ~np.isfinite(self.cost.at(i, j))
        self.f, self.g = self.f - np.median(self.f[self.rows]), self.g - np.median(self.g[self.columns])
        self._costs = self._costs_of(self._keys)
        self._begin()
        price = np.full(np.count_nonzero(forbidden), 2 * len(self._keys) * max(self._scale, 1e-300))
        self._add_to_problem(i[forbidden], j[forbidden], price)
        self._scale = float(price.max(initial=self._scale))
        while not self.problem.optimise() and not self.budget.spent and self._raise_artificial():
            pass

    def _plan(self) -> Indices:
        """Return the arcs of some plan, those that carry mass in the order of rows and columns."""
        i, j, _ = staircase(self._a, self._b)
        return self.rows[i] * self.cost.shape[1] + self.columns[j]

    def _add(self, keys: Indices) -> bool:
        """Add those arcs that are not forbidden; return whether the budget allows it."""
        if not self.problem.can_add(len(keys)):
            return False
        i, j = np.divmod(keys, self.cost.shape[1])
        costs = self.cost.at(i, j)
        if not self.cost.finite:
            allowed = np.isfinite(costs)
            keys, i, j, costs = keys[allowed], i[allowed], j[allowed], costs[allowed]
        self._add_to_problem(i, j, costs)
        self._keys = np.insert(self._keys, np.searchsorted(self._keys, keys), keys)  # all are new, and sorted
        self._scale = max(self._scale, float(np.abs(costs).max(initial=0.0)))
        return True

    def _raise_artificial(self) -> bool:
        """Make artificial arcs dearer; return False if they are so dear already that an optimal plan needs them.

        Arcs that are far more expensive than those so far may have to join before there is a plan.
        """
        dear = self._artificial / (16 * (len(self._a) + len(self._b)))
        if dear > max(self._scale, 1e-300) and dear > abs(self.cost.least()) + self.cost.spread():
            return False
        self._artificial = self.problem.raise_artificial(_DEARER)
        return True

    def _tolerance(self) -> float:
        """Return what violations may be: at most rounding errors, and without any effect on the value."""
        rounding = 4 * _ULP * self._scale
        return min(rounding, NEGLIGIBLE_VIOLATION * abs(self.problem.value))

    def _near(self, columns: Indices | None) -> Indices:
        """Return the arcs of least reduced cost of all points that have weight."""
        (m1, m2), threads = self.cost.shape, self.budget.threads
        if columns is None:
            columns = self.cost.nearest(-self.g, min(self._neighbours, m2), n_jobs=threads)[0]
        found = self._keys_of(columns, self.rows)
        rows = self.cost.nearest(-self.f, min(self._neighbours, m1), False, n_jobs=threads)[0]
        return union(found, self._keys_of(rows, self.columns, False))

    def _keys_of(self, found: Indices, own: NDArray[np.intp], by_rows: bool = True) -> Indices:
        """Return the arcs from some rows to the columns found for all, or to some columns, in the memory of `found`."""
        found = found if len(own) == len(found) else found[own]
        there, m2 = found >= 0, self.cost.shape[1]
        if by_rows:
            found += own[:, None] * m2
        else:
            found *= m2
            found += own[:, None]
        return found.reshape(-1) if there.all() else found[there]

    def _violated(self) -> Indices:
        """Return arcs of least reduced cost of points that have a violated arc, without those that exist.

        A violation counts beyond the rounding errors of its own terms.
        """
        (m1, m2), k, threads = self.cost.shape, self._neighbours, self.budget.threads
        share, limit = 8 * (self.cost.depth + 1) * _ULP, 4 * self._tolerance() + 2 * self.cost.rounding()
        f, g = (np.where(np.isfinite(x), x - share * np.abs(x), x) for x in (self.f, self.g))
        if self.cost.bounded_search:
            i, j = self.cost.below(-g, f - limit, min(k, m2), threads)
            found = union(i * m2 + j)
        else:
            short = self.rows[self.cost.row_min(-g)[self.rows] < (f - limit)[self.rows]]
            over = self.columns[self.cost.col_max(f)[self.columns] > (limit - g)[self.columns]]
            J = self.cost.nearest(-self.g, min(k, m2))[0] if len(short) else np.empty((m1, 0), np.int64)
            I = self.cost.nearest(-self.f, min(k, m1), False)[0] if len(over) else np.empty((m2, 0), np.int64)  # noqa: E741
            found = union(self._keys_of(J, short), self._keys_of(I, over, False))
        place = np.minimum(np.searchsorted(self._keys, found), len(self._keys) - 1)  # both are sorted
        return found[self._keys[place] != found]
