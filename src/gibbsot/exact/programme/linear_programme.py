r"""The linear programme of a free measure, to a certified gap.

It has one variable for each arc of each measure. Potentials choose the arcs: those of least reduced cost. An
interior-point method solves the programme on these, c-transforms extend its dual solution to all arcs, which proves a
lower bound, and choose arcs again, until the bound meets the exact objective of w. For the optimum itself, HiGHS
finishes on the few arcs that carry mass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog
from threadpoolctl import threadpool_limits

from ...io.budget import Budget
from ..arcs import union
from ..certificate import OPTIMAL_GAP, PROGRAMME_GAP, relative_gap, scale_of
from .free_measure import Bound, FreeMeasure, Optimum
from .interior_point import Dual, InteriorPoint, Iterate, MeasureArcs, PrimalDual
from .vertex import Step, Vertex

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

ONE_THREAD = partial(threadpool_limits, 1, "blas")  # the result depends on the number of threads of matrix products

# Constants: what each of them trades. Pairs are for a barycenter and for a mixture, unless they say otherwise. None of
# them changes what is proved, only the time until it is. Where no reason is given beside the trade, the value is not
# tuned: no measurement is on record, and `benchmarks/barycenter.py` shows what a change does.

# Which arcs there are. More arcs cost memory and time in every step, fewer cost further rounds.
_SIMPLEX_ARCS = 40_000  # up to this number, if they are all, a simplex solves the programme: no rounds, but pivots
_ROW_ARCS, _COLUMN_ARCS = (4, 8), (5, 8)  # of each point and of each target; a mixture has its points once and for all
# Points whose reduced cost is at most these multiples of the gap may carry mass: at first, and later. In an optimum a
# point with k gaps has at most 1 / k of the mass. Later gaps, of a programme that lacks arcs, are too small.
_REACH, _NEAR = 1.0, 3.0

# When arcs are added. Early the potentials are poor and suggest arcs in vain; late the interior point must go back
# further, because an iterate near a vertex is a bad start for a programme with more arcs. Gaps are relative to the
# objective of the interior point.
_AGAIN = 0.1, 0.6  # gap at which arcs are added for once, whatever the bound says: poor potentials chose the first ones
_CLOSE = 0.1  # gap from which bounds are computed, a c-transform of every measure each: above it none would be of use
_PRICED = 1e-2  # gap from which arcs are added as soon as a bound falls below the one before
_SHARE = 0.3  # of what missing arcs are worth: below this gap they are added, as most of what the bound lacks is theirs
_BACK = 30.0  # times what missing arcs are worth: the gap of the iterate to which the interior point goes back for them
_NEW = 0.1  # share of its target's mass that a new arc has at most: more would spoil the marginals of the start

# When the interior point ends. Its last iterates are expensive where rounding needs many refinements.
_STALL = 0.1  # share of the gap that is wanted, by which a step must raise the bound when rounding spoils masses
_TRY = 6.0  # times the gap that is wanted: from there the objective is computed exactly, an exact solve per measure

# The finish by HiGHS on the arcs that carry mass.
_CARRIES = 1e-4  # mass over reduced cost, in units of the objective, of arcs that may carry mass: few, but enough
_VIOLATED = 1e-13  # reduced cost, in units of the objective, of arcs that HiGHS lacks: above the rounding of potentials
_NEGLIGIBLE = 1e-7  # weights relative to the largest that are dropped: each costs a point in every exact solve
_TOLERANCE = 1e-10  # the smallest that HiGHS takes
_MOST_ROUNDS, _MOST_FINISHES = 20, 10  # so that it ends where rounding keeps bounds apart
_REFINEMENTS = 6  # of a vertex at most: each gives about nine more digits
_ROUNDING = 1e-3  # share of the gap that the vertex leaves open: then it is the rounding of its weights that matters


def minimise(
    problem: FreeMeasure, gap: float, L: Array | None = None, w: Array | None = None, estimate: float = np.inf
) -> Optimum:
    """Return weights to a certified relative gap, as `stages` does, without a budget.

    Parameters
    ----------
    problem, gap, L, w, estimate
        As for `stages`.

    Returns
    -------
    Optimum

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from gibbsot import GridCost
    >>> ends = sparse.csr_array(np.eye(5)[[0, 4]])
    >>> optimum = minimise(FreeMeasure(ends, np.array([0.5, 0.5]), GridCost(5, spacing=1.0)), gap=0.0)
    >>> optimum.w.round(6), round(optimum.upper, 6)
    (array([0., 0., 1., 0., 0.]), 4.0)
    """
    with ONE_THREAD():
        return deque(stages(problem, gap, L, w, estimate), 1)[0]


def stages(
    problem: FreeMeasure,
    gap: float,
    L: Array | None = None,
    w: Array | None = None,
    estimate: float = np.inf,
    budget: Budget | None = None,
) -> Iterator[Optimum]:
    """Find weights to a certified relative gap, or as near to it as the budget and rounding allow.

    Results are bit-identical for a fixed number of threads of the BLAS, as within `ONE_THREAD`.

    Parameters
    ----------
    problem : FreeMeasure
        The problem.
    gap : float
        The relative gap; 0 for the optimum, to the documented tolerance.
    L : array of shape (n, m), optional
        Potentials of the targets, which choose the first arcs; by default those of `FreeMeasure.start`.
    w : array of shape (K,), optional
        Weights to start from; by default uniform.
    estimate : float
        About the objective of w: what it is above the bound of L decides on the number of points.
    budget : Budget, optional
        The budget of time and memory.

    Yields
    ------
    Optimum
        The best so far, after every stage; always the same object.
    """
    return _Rounds(problem, gap, budget or Budget()).stages(L, w, estimate)


class _Found(NamedTuple):
    """What HiGHS found: masses of arcs with the weights after them, and dual variables of the equations."""

    x: Array
    dual: Array


class _Rounds:
    """The rounds of one call of `FreeMeasure.minimise`.

    An arc from point a to target j of measure i has the key ``(i m + j) m + a``.
    """

    def __init__(self, problem: FreeMeasure, gap: float, budget: Budget) -> None:
        self.problem, self.budget = problem, budget
        self.m, self.free = problem.cost.shape[0], problem.components is None
        self.wanted = max(gap, OPTIMAL_GAP if self.free else PROGRAMME_GAP)
        self.solutions = problem.solutions
        self.filled = np.flatnonzero(problem.X.ravel())  # the targets of all measures
        self.warm: PrimalDual | None = None
        self.again = _AGAIN[not self.free] if not problem.small else 0.0

    def stages(self, L: Array | None, w: Array | None, estimate: float) -> Iterator[Optimum]:
        """Choose arcs and solve the programme on them until the gap is reached."""
        problem = self.problem
        K = self.m if problem.components is None else len(problem.components)
        self.best = Optimum(np.full(K, 1 / K) if w is None else w, -np.inf, np.inf, stage="start")
        self.dual = problem.bound(problem.start() if L is None else L)
        self._improve(self.dual, None)
        self._try_an_input()
        if self._finished():
            yield self.best
        else:
            yield from self._all_stages(K, estimate)

    def _all_stages(self, K: int, estimate: float) -> Iterator[Optimum]:
        """Run the stages until the gap is reached or nothing more can be done."""
        problem, best = self.problem, self.best
        self.chosen: Mask = np.ones(self.m, bool)
        if problem.components is not None:
            self.chosen = np.asarray(problem.components.any(axis=0))
        if problem.small:
            self.keys: Indices = (self.filled[:, None] * self.m + np.flatnonzero(self.chosen)).ravel()
        else:
            self._choose(estimate)
            if self._finished():  # the exact objective of the start was enough
                yield best
                return
        self._build()
        if problem.small and len(self.keys) <= _SIMPLEX_ARCS:
            yield from self._finish(self.keys, np.ones(K, bool), "highs-ds")
        while not self._finished() and best.rounds < _MOST_ROUNDS:
            if self._bytes() > self.budget.max_memory:
                best.ended = "memory"
                yield best
                return
            best.rounds, best.stage = best.rounds + 1, f"round {best.rounds + 1}"
            last, more = self._solve()
            yield best
            if last is not None and not self._finished():
                x, w, _, z, zw = last.at
                yield from self._finish(self.keys[x > _CARRIES * z], w > _CARRIES * zw, "highs-ipm")
                more = not self._finished() and self._price([last], 0.0)
            if not more:
                return

    def _try_an_input(self) -> None:
        """Try the measure that has half of the weight or is like all others: it may be the barycenter."""
        problem = self.problem
        i = int(problem.weights.argmax())
        alike = problem.weights[i] >= 0.5 or (problem.X[i] == problem.X).all()
        if self.free and alike and problem.cost.shape[0] == problem.cost.shape[1]:
            self._improve(problem.bound(problem.start(), 0), problem.given[i])

    def _finished(self) -> bool:
        """Return whether the gap is reached, time is over or weights have too few digits, and note it."""
        best = self.best
        if best.gap <= self.wanted:
            best.ended = "gap reached"
        elif self.budget.spent:
            best.ended = "time"
        else:
            return best.ended == "weights"
        return True

    def _improve(self, dual: Bound | None, w: Array | None, snap: bool = True) -> None:
        """Replace bounds and weights by better ones; weights may snap to those of a target or a component."""
        best = self.best
        if dual is not None and dual.value > best.lower:
            best.lower, self.dual = dual.value, dual
        if w is not None:
            w = self.problem.snapped(w) if snap else w
            found, self.solutions = self.problem.upper(w, self.solutions)
            if found.upper < best.upper:
                best.w, best.upper, best.scale = w, found.upper, found.scale

    def _choose(self, estimate: float) -> None:
        """Choose points and arcs by potentials, with the arcs of plans, so that the programme is feasible."""
        problem, dual, w = self.problem, self.dual, self.best.w
        if self.free:
            self.chosen = dual.mean - dual.mean.min() <= _REACH * (estimate - self.best.lower)
            w = np.where(self.chosen & (w > _NEGLIGIBLE * w.max()), w, 0)
            w = w / w.sum() if w.any() else self.chosen / self.chosen.sum()
        self._improve(None, w)
        plans = [each.plan.tocoo() for each in self.solutions or []]
        keys = [(i * self.m + plan.col) * self.m + plan.row for i, plan in enumerate(plans)]
        for i, j in enumerate(problem.supports):
            g = np.where(self.chosen, dual.U[i] - (dual.mean if self.free else 0), -np.inf)
            k = min(_COLUMN_ARCS[not self.free], int(self.chosen.sum()))
            a = problem.cost.nearest(-g, k, by_rows=False)[0][j]
            keys.append(((i * self.m + j[:, None]) * self.m + a).ravel())
        self.keys = union(*keys, self._nearest(self.chosen, dual.L))

    def _nearest(self, points: Mask, L: Array) -> Indices:
        """Return the arcs of least reduced cost of some points, in every measure."""
        rows, found = np.flatnonzero(points), []
        for i, j in enumerate(self.problem.supports):
            near = self.problem.cost.nearest(L[i], min(_ROW_ARCS[not self.free], len(j)))[0][rows]
            found.append(((i * self.m + near) * self.m + rows[:, None]).ravel())
        return np.concatenate(found)

    def _build(self) -> None:
        """Set up the programme on the arcs."""
        problem, best = self.problem, self.best.upper
        self.points = np.flatnonzero(self.chosen)
        self.scale = best - problem.least if problem.least < best < np.inf else problem.cost.spread() or 1.0
        B = None if problem.components is None else problem.components[:, self.points]
        targets = [x[j] for x, j in zip(problem.X, problem.supports, strict=True)]
        self.engine = InteriorPoint(targets, self._arcs(self.keys), len(self.points), B)

    def _arcs(self, keys: Indices) -> MeasureArcs:
        """Return the arcs with these keys."""
        target, a = np.divmod(keys, self.m)
        i, j = np.divmod(target, self.m)
        costs = self.problem.weights[i] / self.scale * (self.problem.cost.at(a, j) - self.problem.least)
        return MeasureArcs(i, (np.cumsum(self.chosen) - 1)[a], np.searchsorted(self.filled, target), costs)

    def _solve(self) -> tuple[Iterate | None, bool]:
        """Run the interior-point method as far as is of use.

        Returns
        -------
        last : Iterate or None
            The last iterate, if HiGHS should finish from it.
        more : bool
            Whether arcs were added.
        """
        history: list[Iterate] = []
        before = -np.inf
        for it in self.engine.iterates(self.warm):
            if self.budget.spent:
                break
            if it.gap <= self.again * it.primal:
                self.again = 0.0
                if self._price([it], 0.0, _REACH):
                    return None, True
            if it.gap > _CLOSE * it.primal:
                continue
            dual = self.problem.bound(self._potentials(it.at.dual.v))
            if history and (it.gap <= 0 or it.residual > max(10 * history[-1].residual, 1e-2 * it.gap)):
                if dual.value <= self.best.lower + _STALL * self.wanted * scale_of(self.best.lower):
                    break  # rounding has spoilt the masses, and the potentials are as good as they get
                self._improve(dual, None)
                continue
            self._improve(dual, None)
            history.append(it)
            value = self.problem.least + self.scale * it.primal
            if relative_gap(self.best.lower, value, scale_of(value)) <= _TRY * self.wanted:
                self._improve(None, self._weights(it.at.w))
            if self._finished() or it.gap <= PROGRAMME_GAP * it.primal:
                break
            missing = it.value - self._scaled(dual.value)
            lacking = dual.value < before and it.gap <= _PRICED * it.primal
            if (lacking or it.gap < _SHARE * missing) and self._price(history, missing):
                return None, True
            before = dual.value
        if not history or self._finished():
            return None, False
        last = history[-1]
        missing = last.value - self._scaled(self.best.lower)
        if missing > max(PROGRAMME_GAP, self.wanted) * last.primal and self._price(history, missing):
            return None, True
        self._improve(None, self._weights(last.at.w))
        return last, False

    def _scaled(self, value: float) -> float:
        """Return a value of the objective as one of the programme."""
        return (value - self.problem.least) / self.scale

    def _price(self, history: list[Iterate], missing: float, reach: float = _NEAR) -> bool:
        """Add points that may carry mass by the last iterate, with their arcs; return whether there are new ones."""
        last = history[-1]
        fresh = self._within(last.at.dual.v, last.at.dual.theta + reach * last.gap)
        keys = union(self.keys, fresh)
        if len(keys) == len(self.keys):
            return False
        start = next((it for it in reversed(history) if it.gap >= _BACK * missing), history[0])
        old = self.keys, self.points, self.scale
        self.chosen[fresh % self.m] = True
        self.keys = keys
        self._build()
        self.warm = self._extended(start.at, *old) if missing <= _CLOSE * last.primal else None
        return True

    def _within(self, v: Array, limit: float) -> Indices:
        """Return the arcs of least reduced cost of the points whose reduced cost is within a limit."""
        bound = self.problem.bound(self._potentials(v), 0)
        near = bound.mean - self.problem.least <= limit * self.scale
        return self._nearest(near if self.free else self.chosen, bound.L)

    def _extended(self, at: PrimalDual, keys: Indices, points: Indices, scale: float) -> PrimalDual:
        """Return an iterate of the programme before as one of the present programme."""
        new, factor = self.engine, scale / self.scale
        mu = factor * float(at.x @ at.z + at.w @ at.zw) / (len(at.x) + len(at.w))
        least, old = np.sqrt(mu), np.searchsorted(self.points, points)
        v, theta = factor * at.dual.v, factor * at.dual.theta
        reduced = new.c - v[new.column]
        u = np.full(new.n * new.points, np.inf)
        np.minimum.at(u, new.row, reduced)
        u = u.reshape(new.n, new.points) - least
        u[:, old] = factor * at.dual.u
        z = np.maximum(reduced - u.ravel()[new.row], mu / (_NEW * new.b[new.column]))
        x, known = mu / z, np.searchsorted(self.keys, keys)
        x[known], z[known] = at.x, factor * at.z
        if not self.free:
            return PrimalDual(x, at.w, Dual(u, v, theta), z, factor * at.zw)
        zw = np.maximum(u.sum(axis=0) - theta, least)
        w = mu / zw
        w[old], zw[old] = at.w, factor * at.zw
        return PrimalDual(x, w, Dual(u, v, theta), z, zw)

    def _weights(self, w: Array) -> Array:
        """Return the weights of all points from those of the chosen ones."""
        w = np.where(w < _NEGLIGIBLE * w.max(), 0, w)
        if self.free:
            full = np.zeros(self.m)
            full[self.points] = w
            w = full
        return np.asarray(w / w.sum())

    def _potentials(self, v: Array) -> Array:
        """Return L from the dual variables of the targets."""
        L = np.full(self.problem.X.size, np.inf)
        L[self.filled] = -self.scale * v / self.problem.weights[self.filled // self.m]
        return L.reshape(self.problem.X.shape)

    def _finish(self, keys: Indices, weights: Mask, method: str) -> Iterator[Optimum]:
        """Solve the programme on some arcs by HiGHS, whose solution is a vertex; add arcs that are violated."""
        for _ in range(_MOST_FINISHES):
            arcs, used = self._arcs(keys), np.flatnonzero(weights)
            step = Step(
                np.concatenate([arcs.cost, np.zeros(len(used))]),
                np.concatenate([np.zeros(self.engine.n * self.engine.points), self.engine.b]),
                np.zeros(len(keys) + len(used)),
            )
            found = self._highs(arcs, used, method, step)
            if found is None and len(keys) < len(self.keys) and not self._finished():
                keys, weights = self.keys, np.ones(len(weights), bool)  # too few to be feasible
                continue
            if found is None:
                return
            v = found.dual[self.engine.n * self.engine.points :]
            self._offer(v, np.maximum(found.x[len(keys) :], 0), used)
            yield self.best
            known, keys = keys, union(keys, np.intersect1d(self._within(v, -_VIOLATED), self.keys))
            if self._finished():
                return
            if len(keys) == len(known):
                yield from self._refine(arcs, used, method, step, found)
                return
            if self.free:
                weights[np.searchsorted(self.points, keys % self.m)] = True

    def _offer(self, v: Array, of_used: Array, used: Indices) -> None:
        """Try the weights of a vertex, as they are and without negligible ones, and its dual variables."""
        w = np.zeros(len(self.points) if self.free else len(self.best.w))
        w[used] = of_used
        full = w
        if self.free:
            full = np.zeros(self.m)
            full[self.points] = w
        self._improve(self.problem.bound(self._potentials(v)), full / full.sum())
        if not self._finished():
            self._improve(None, self._weights(w))
        self.best.stage = "HiGHS"

    def _refine(self, arcs: MeasureArcs, used: Indices, method: str, step: Step, found: _Found) -> Iterator[Optimum]:
        """Go on with the digits that HiGHS neglects, until the gap is reached or there are none."""
        scale = min(self.best.upper - self.problem.least, self.scale) or self.scale
        vertex = Vertex(self.problem, arcs, self.points, self.filled, used, scale, self.scale)
        for _ in range(_REFINEMENTS):
            vertex.add(step, found.x, found.dual)
            self._offer_exactly(vertex)
            yield self.best
            step = vertex.next()
            if vertex.meets(self.best.lower, _ROUNDING * (self.best.upper - self.best.lower)):
                self.best.ended = "weights"
            if self._finished() or vertex.done:
                return
            again = self._highs(arcs, used, method, step)
            if again is None and not step.anew:
                step = vertex.next(anew=True)
                again = self._highs(arcs, used, method, step)
            if again is None:
                return
            found = again

    def _offer_exactly(self, vertex: Vertex) -> None:
        """Try the weights of a vertex in integers, rounded once, and its dual variables as they are."""
        best, weights = self.best, vertex.weights()
        best.lower = max(best.lower, self.problem.exact_bound(*vertex.potentials()))
        for w in self.problem.doubles(weights) if weights.any() else ():
            if self._finished():
                return
            self._improve(None, w, snap=False)

    def _highs(self, arcs: MeasureArcs, used: Indices, method: str, step: Step) -> _Found | None:
        """Return an optimal vertex, or None if there is none or time is over."""
        engine, n, columns = self.engine, len(arcs.cost), np.arange(len(arcs.cost))
        rows = engine.n * engine.points
        B = sparse.csr_array(sparse.identity(engine.points)) if engine.B is None else sparse.csr_array(engine.B)
        ends = np.concatenate([arcs.measure * engine.points + arcs.point, rows + arcs.target])
        A = sparse.csc_array((np.ones(2 * n), (ends, np.tile(columns, 2))), shape=(rows + len(engine.b), n))
        options: dict[str, float] = {"presolve": method != "highs-ds"}  # which small programmes do not repay
        options |= dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), _TOLERANCE)
        options["maxiter"] = 100 * (n + rows) + 10_000  # where rounding makes HiGHS cycle
        if self.budget.seconds < np.inf:
            options["time_limit"] = self.budget.seconds + 0.01
        free = sparse.vstack([*[-B[used].T] * engine.n, sparse.csr_array((len(engine.b), len(used)))])
        found = linprog(
            step.costs,
            A_eq=sparse.hstack([A, free], format="csc"),
            b_eq=step.b,
            bounds=np.stack([step.least, np.full(len(step.least), np.inf)], axis=1) if step.least.any() else (0, None),
            method=method,
            options=options,
        )
        return _Found(found.x, found.eqlin.marginals) if found.status == 0 else None

    def _bytes(self) -> float:
        """Return the memory that the programme takes, in bytes."""
        sizes, points = np.array([len(j) for j in self.problem.supports], np.float64), float(len(self.points))
        rest = 30 * len(self.keys) + 4 * self.problem.X.size
        return float(8 * ((sizes**2).sum() + 3 * points**2 + 3 * sizes.max() * points + rest))
