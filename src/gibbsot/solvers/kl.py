r"""Unbalanced transport: marginals may differ from the measures, at the price of a Kullback-Leibler divergence.

.. math:: \min_{Z \ge 0} \langle Z, M \rangle + \rho_1 KL(Z 1 | p) + \rho_2 KL(Z^T 1 | q),
   \qquad KL(a | p) = \sum_i a_i \log \frac{a_i}{p_i} - a_i + p_i

There is no entropy of the plan. The dual problem has the constraints of balanced transport,

.. math:: \max_{f_i + g_j \le M_{ij}} \; \rho_1 \langle p, 1 - e^{-f / \rho_1} \rangle
   + \rho_2 \langle q, 1 - e^{-g / \rho_2} \rangle,

so the linear problem at potentials f and g is *balanced transport* between ``p exp(-f / rho1)`` and
``q exp(-g / rho2)``, whose masses agree once f and g are shifted against each other. The exact engine solves it. Its
plan has these marginals and gives an upper bound, its potentials are a vertex, and a line search towards the vertex
raises the lower bound: a conditional gradient method (Frank and Wolfe) in which every step is certified.

Large problems start from the potentials of coarser ones (`Cost.coarsen`). Where steps become short, an interior-point
method solves the dual problem on the arcs that the last plans used and those next to them (`_ArcDual`); a c-transform
then makes its potentials feasible for all pairs. It ends at the optimum once the arcs contain those of an optimal plan,
mostly after one or two times.

The bounds are rounded outwards. Errors of ``expm1`` and ``log1p`` count as four units in the last place, twice what
mathematical libraries in use are known for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.optimize import brentq
from scipy.sparse.linalg import splu

from ..core import native, validation
from ..core.backend import backend
from ..costs import Cost
from ..costs.problems import Problem
from ..exact.arcs import union
from ..exact.certificate import OPTIMAL_GAP, ROUNDS, Certificate, Enclosure, below, concluded, enclose, plan_bounds
from ..exact.method import in_threads
from ..exact.programme.linear_programme import ONE_THREAD
from ..exact.solution import Solution
from ..io.budget import Budget
from .relaxed import LeftOver, Marginals, Measures, marginals

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

KL_GAP = 1e-4  # of a result unless another one is asked for: the problem is not a linear programme

_GRADIENT_GAP = 1e-6  # of losses: the error of potentials is about the root of that of the value
_UNIT = 2.0**-53
_BYTES = 2300.0  # of a point: arcs, factors of Newton systems, plans; the allocator keeps a part of what was freed
_STEPS = 300  # conditional gradients; if they run out, the bounds show what is left open
_FEW = 160_000  # pairs of points, up to which no coarser problem comes first
_COARSEST = 256  # points per side that are not joined any more
_COARSE_GAP = 1e-3  # of coarser problems: the distance to the finer one is larger
_FIRST = 2  # steps before the first correction: arcs and potentials are then near those of the optimum
_SMALL = 4_000  # points: a correction takes no longer than a few exact solves
_LARGE = 60_000, 500_000  # points, and points in the plane: factorisations take too much time and memory beyond
_SLOW = 0.5  # of the gap: a step that leaves more is slow, and a correction follows
_NEIGHBOURS = 4, 2  # arcs of least reduced cost that every point of small and of other problems brings in
_FEW_COLUMNS = 512  # for which Newton systems are dense
_NEAR = 1e-3  # a gap of large problems from which they take no further step before the correction
_KEPT = 0.6  # of the arcs: those of least reduced cost stay, and those in use
_IN_USE = 1e-9  # of the largest mass of an arc
_ITERATIONS = 60  # of the interior-point method
_ALMOST = 0.99  # of the way to the boundary
_CENTRAL = 1e-3  # of the product of a mass and its slack that is aimed at: the least
_BALANCE = 0.1  # of the error of the marginals: products are no smaller
_FURTHEST = 2.0  # change of the logarithm of a mass in one iteration
_UNSEEN = 40.0  # below the logarithm of the mass of all: masses that may change by any factor
_PATIENCE = 4  # steps without any progress
_VANISHED = 1e-40  # of the largest weight: masses that change nothing, and would cost the solvers digits
_CANCELLED = 2.0**-70  # of rho and the mass: divergences that rounding makes, and their errors
_NO_ARCS = np.empty(0, np.int32), np.empty(0, np.int32)
_LEFT_OVER = 45.0  # in units of rho: a potential whose mass is below all rounding, exp(-45) = 3e-20


def divergence_weights(kl: Any, penalty: Any = None) -> tuple[float, float] | None:
    """Return the weights of the divergences for p and for q, None for balanced transport.

    Parameters
    ----------
    kl : float or pair of float, or None
        Positive numbers; an infinite one fixes its marginal, and two of them are balanced transport.
    penalty : optional
        None: there is no penalty with divergences.

    Returns
    -------
    pair of float, or None

    Raises
    ------
    ValueError, TypeError
        If a number is not positive, or there is a penalty.

    Examples
    --------
    >>> divergence_weights(2), divergence_weights((1, float("inf"))), divergence_weights(float("inf"))
    ((2.0, 2.0), (1.0, inf), None)
    """
    if kl is None:
        return None
    if penalty is not None:
        raise ValueError("kl: expected no penalty with it; masses may differ, and the difference costs its divergence")
    sides = kl if isinstance(kl, tuple | list) or getattr(kl, "ndim", None) else (kl, kl)
    if len(sides) != 2:
        raise ValueError(f"kl: expected a positive number, or a pair for p and q; got {len(sides)} entries")
    first, second = (math.inf if x is math.inf or x == math.inf else validation.positive(x, "kl") for x in sides)
    return None if math.isinf(min(first, second)) else (float(first), float(second))


class UnbalancedProblem(Problem):
    """Problems whose marginals may differ from the measures, for the masses given.

    Attributes
    ----------
    p, q, cost, given
        As of `Problem`.
    mass : array of ones
        Values and plans are those of the masses given.
    kl : pair of float
        The weights of the divergences.
    """

    kl: tuple[float, float]
    averages = False

    @classmethod
    def of(cls, p: Array, q: Array, cost: Cost, kl: tuple[float, float]) -> UnbalancedProblem:
        """Return problems of weights that have been checked."""
        made = cls.checked(p, q, cost, np.ones(len(p)), unit=True)
        made.kl = kl
        return made

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> UnbalancedProblem:
        p, q = self.given
        return UnbalancedProblem.of(p[rows], q[rows], self.cost, self.kl)

    def with_cost(self, cost: Cost) -> UnbalancedProblem:
        return UnbalancedProblem.of(*self.given, cost, self.kl)


class Unbalanced(Marginals):
    """The marginals of plans differ from the measures, at the price of their divergences.

    Parameters
    ----------
    cost : Cost
        The cost.
    kl : float or pair of float
        The weights of the divergences.

    Attributes
    ----------
    cost, fixed
        As of `Marginals`.
    kl : pair of float
        The weights.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import DenseCost
    >>> of, one = Unbalanced(DenseCost([[1.0]]), 1.0), (np.ones((1, 1)), np.ones(1))
    >>> round(of.solve(of.problem(one, one), gap=0.0)[0].value, 9), round(float(2 - 2 * np.exp(-0.5)), 9)
    (0.786938681, 0.786938681)
    """

    fixed = False

    def __init__(self, cost: Cost, kl: Any) -> None:
        super().__init__(cost)
        both = divergence_weights(kl)
        assert both is not None  # `marginals_of` takes care of fixed ones
        self.kl = both
        if not cost.finite and math.isinf(max(self.kl)):
            raise ValueError("kl: expected finite numbers where infinite costs forbid pairs, got inf")

    @property
    def unrounded(self) -> Unbalanced:
        return Unbalanced(self.cost.unrounded(), self.kl)

    @property
    def least(self) -> float:
        return 0.0 if self.cost.least() >= 0 else -math.inf

    def problem(
        self, p: Measures, q: Measures, tolerance: float = 1e-6, names: tuple[str, str] = ("p", "q")
    ) -> UnbalancedProblem:
        """Return problems for the masses given; tolerance and names are not used."""
        return UnbalancedProblem.of(p[0], q[0], self.cost, self.kl)

    def solve(
        self,
        problem: Problem,
        U: NDArray[np.floating] | None = None,
        warm_start: Sequence[Any] | None = None,
        **options: Any,
    ) -> list[Solution]:
        """Return the solutions of problems; a warm start is any sequence with bases and potentials f, or None."""
        return unbalanced_optima(problem, U, warm_start=warm_start, **{"gap": _GRADIENT_GAP, **options})

    def gradients(self, f: Array, g: Array) -> tuple[Array, Array]:
        return _gain(f, self.kl[0]), _gain(g, self.kl[1])

    def kept(self, p: Array, q: Array, f: Array, g: Array) -> tuple[Array, Array, Array]:
        """Return lower bounds from potentials after their best shift, and the gradients of these bounds."""
        f, g = f.copy(), g.copy()
        for b in range(len(p)):
            f[b], g[b], _ = _shifted(_Side(p[b], self.kl[0]), _Side(q[b], self.kl[1]), f[b], g[b])
        of_p, of_q = self.gradients(f, g)
        value = np.where(p > 0, p * of_p, 0.0).sum(axis=1) + np.where(q > 0, q * of_q, 0.0).sum(axis=1)
        return value, of_p, of_q


def marginals_of(cost: Cost, penalty: Any = None, kl: Any = None) -> Marginals:
    """Return the marginals of plans: the measures, at most these with a penalty, or others with divergences.

    Parameters
    ----------
    cost : Cost
        The cost.
    penalty, kl
        As for `solve`, of which one may be given.

    Returns
    -------
    Marginals

    Raises
    ------
    ValueError
        If both are given.

    Examples
    --------
    >>> from gibbsot import DenseCost
    >>> [type(marginals_of(DenseCost([[1.0]]), **one)).__name__ for one in ({}, {"penalty": 1}, {"kl": 1})]
    ['Marginals', 'LeftOver', 'Unbalanced']
    """
    both = divergence_weights(kl, penalty)
    return marginals(cost, penalty) if both is None else Unbalanced(cost, both)


def divergence_memory(problem: Problem) -> float:
    """Return an estimate of the bytes that a solve with divergences needs beside those of its linear problems."""
    return _BYTES * sum(problem.cost.shape) if isinstance(problem, UnbalancedProblem) else 0.0


def unbalanced_optima(
    problem: Problem,
    U: NDArray[np.floating] | None = None,
    n_jobs: int | None = None,
    gap: float = KL_GAP,
    warm_start: Sequence[Any] | None = None,
    budget: Budget | None = None,
) -> list[Solution]:
    """Solve unbalanced problems to a certified gap.

    Parameters
    ----------
    problem : UnbalancedProblem
        The problems.
    U : array of shape (n, m1), optional
        Potentials of the first measures from which to start.
    n_jobs : int, optional
        Threads over the problems.
    gap : float
        The relative gap; 0 for that of an optimum.
    warm_start : sequence of Solution, optional
        Solutions of similar problems, or anything with their ``basis`` and potentials ``f``, which may be None.
    budget : Budget, optional
        Its time and memory.

    Returns
    -------
    list of Solution
    """
    assert isinstance(problem, UnbalancedProblem)
    budget = budget or Budget(threads=max(1, native.threads(n_jobs) // len(problem)))
    cost = problem.cost.astype(np.float64)

    def work(b: int) -> Solution:
        p, q = (given[b] for given in problem.given)
        last = None if warm_start is None else warm_start[b]
        f = None if U is None else np.asarray(U[b], np.float64)
        if last is not None and last.f is not None:
            f = np.asarray(last.f, np.float64)
        return _Steps(_Side(p, problem.kl[0]), _Side(q, problem.kl[1]), cost, gap, budget).solve(f, last)

    with ONE_THREAD():  # of the BLAS: more would change last digits, and wait for each other on a busy machine
        return in_threads(work, range(len(problem)), n_jobs, budget)


class _Side:
    """One measure, and what a marginal costs that differs from it.

    Parameters
    ----------
    weight : array of shape (m,)
        The measure.
    rho : float
        The weight of the divergence, or infinity.

    Attributes
    ----------
    enough : float
        A potential at which no mass is left that counts.
    """

    def __init__(self, weight: Array, rho: float) -> None:
        self.weight, self.rho, self.enough, self.own = weight, rho, _LEFT_OVER * rho, weight > 0
        with np.errstate(divide="ignore"):
            self.log = np.log(weight)

    def hidden(self, x: NDArray[np.floating], fill: float) -> Array:
        """Return a potential with another number where there is no weight."""
        return np.where(self.own, x, fill).astype(np.float64, copy=False)

    def log_masses(self, x: Array) -> Array:
        """Return the logarithms of the masses ``w exp(-x / rho)`` of a potential x."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(self.own, self.log - x / self.rho, -np.inf)

    def masses(self, x: Array) -> Array:
        """Return the masses of a potential."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_masses(x))

    def gain(self, x: Array) -> float:
        """Return the term of the dual objective: ``rho <w, 1 - exp(-x / rho)>``."""
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(self.weight[self.own] @ _gain(x[self.own], self.rho))
        return value if math.isfinite(value) else -math.inf

    def gain_bound(self, x: Array) -> Enclosure | None:
        """Return the same with a bound of its error; None if it overflows."""
        w, x = self.weight[self.own], x[self.own]
        if math.isinf(self.rho):
            return enclose(w, x)
        with np.errstate(over="ignore"):
            ratio = x / self.rho
            terms = -np.expm1(-ratio)
            off = _UNIT * (8 * np.abs(terms) + 2 * np.abs(ratio) * np.exp(-ratio))  # of expm1, and of its argument
        if not np.isfinite(off).all():
            return None
        total, error = enclose(w, terms), enclose(w, off)
        return Enclosure(total.value, total.error + (error.value + error.error) * Fraction(101, 100)) * self.rho

    def divergence(self, ends: Indices, mass: Array) -> Enclosure:
        """Return ``rho KL(a | w)`` of the marginal a of a plan, with a bound of its error."""
        if math.isinf(self.rho):
            return Enclosure(Fraction(0))
        m = len(self.weight)
        a, terms = np.bincount(ends, mass, m)[self.own], np.bincount(ends, minlength=m)[self.own]
        w = self.weight[self.own]
        apart = (a - w) / w
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.abs(apart) < 0.5
            log = np.where(near, np.log1p(np.where(near, apart, 0.0)), np.log(a / w))
            x_log_x = np.where(a > 0, (1 + apart) * log, 0.0)
            log = np.where(a > 0, log, 0.0)
        # of log1p and the products, of the difference, and of the sums that a is: its share changes KL by log(a / w)
        off = _UNIT * (12 * np.abs(x_log_x) + 4 * np.abs(apart) + (terms + 8) * np.abs(log) * (1 + apart))
        total, error = enclose(w, x_log_x - apart), enclose(w, off)
        return Enclosure(total.value, total.error + (error.value + error.error) * Fraction(101, 100)) * self.rho


class _Near(NamedTuple):
    """From where a linear problem starts: arcs, and potentials of the rows."""

    basis: tuple[NDArray[np.int32], NDArray[np.int32]]
    f: Array | None
    links: Any = None


class UnbalancedSolution(Solution):
    """A solution whose basis is that of its last linear problem."""

    _basis: tuple[NDArray[np.int32], NDArray[np.int32]]

    @property
    def basis(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Rows and columns of the arcs of the last linear problem, those of additional points included."""
        return self._basis


class _Start(NamedTuple):
    """Feasible potentials whose masses agree, this mass, and the dual objective."""

    f: Array
    g: Array
    total: float
    dual: float


class _Steps:
    """Conditional gradients of one problem, with corrections on arcs.

    Parameters
    ----------
    p, q : _Side
        The measures.
    cost : Cost
        The cost, in double precision.
    gap : float
        The relative gap at which to stop.
    budget : Budget
        Its time and memory.
    """

    def __init__(self, p: _Side, q: _Side, cost: Cost, gap: float, budget: Budget) -> None:
        self.p, self.q, self.cost, self.gap, self.budget = p, q, cost, gap, budget
        self.threads = budget.threads
        self.of: Marginals = Marginals(cost)
        if not cost.finite or p.enough + q.enough < cost.spread():  # mass may stay where it is: smaller potentials
            self.of = LeftOver(cost, (p.enough, q.enough))
        trees = cost.by_trees()
        where = None if trees is None else trees.positions()
        self._planar = where is not None and where.X.shape[1] <= 2  # arcs of neighbours: their factors stay sparse
        self.best = Certificate(-math.inf, math.inf, math.inf, math.inf)
        self.plan = sparse.csr_array(cost.shape)
        # a plan needs a fixed marginal if there is one: only those of balanced transport have it
        fixed = [x for x in (p, q) if math.isinf(x.rho)]
        self._free, self._fixed_mass = not fixed, float(fixed[0].weight.sum()) if fixed else 0.0
        # where the optimum is zero, the divergence of a measure from its own rounded weights remains
        self._least_scale = _CANCELLED * sum(x.rho * float(x.weight.sum()) for x in (p, q) if math.isfinite(x.rho))

    def solve(self, f: Array | None, last: Any = None) -> Solution:
        """Take steps from a potential of the rows until the gap is reached or the budget is spent.

        Parameters
        ----------
        f : array of shape (m1,), optional
            The potential.
        last : Solution, optional
            Of a similar linear problem, or anything with its ``basis`` and potentials ``f``.
        """
        f = self._of_coarser() if f is None else f
        here = self._closed(np.zeros(self.cost.shape[0]) if f is None else f)
        near = f is not None
        if self._free:
            self._take(self.plan)
        arcs, before, idle, step = np.empty(0, np.int64), math.inf, 0, 0
        for step in range(1, _STEPS + 1):
            vertex, last = self._linear(here, last, near or step > 1)
            here = self._towards(here, vertex)
            left = self._left(here.dual)
            self.budget.report("step %d, gap %.1e", step, left)
            if self._settled(here) or self.budget.spent:
                break
            arcs = union(arcs, self._keys(*last.basis))
            first = step == 1 and near and left <= _NEAR and _SMALL < sum(self.cost.shape) <= _LARGE[self._planar]
            if first:  # a rough one finds the arcs of another step, which would take longer
                here, arcs = self._corrected(here, arcs, rough=True)
            if first or self._corrects(step + _FIRST * near, left, before):
                here, arcs = self._corrected(here, arcs)
                if self._settled(here):
                    break
            left = self._left(here.dual)
            idle = 0 if left < 0.99 * before else idle + 1
            if idle >= _PATIENCE and (self._corrects(step, left, before) or step > _STEPS / 4):
                break
            before = left
        return self._solution(here, step, last.basis)

    def _of_coarser(self) -> Array | None:
        """Return a potential of the rows from the optimum between coarser measures, None where there are none."""
        if self.cost.shape[0] * self.cost.shape[1] <= _FEW:
            return None
        cost, rows, columns = self.cost, *(np.flatnonzero(side.own) for side in (self.p, self.q))
        trees, weights = cost.by_trees(), (self.p.weight, self.q.weight)
        if trees is not None:
            cost, weights = trees.subset(rows, columns), (weights[0][rows], weights[1][columns])
        coarser = cost.coarsen(*weights, _COARSEST)
        if coarser is None:
            return None
        p, q = _Side(coarser.p, self.p.rho), _Side(coarser.q, self.q.rho)
        found = _Steps(p, q, coarser.cost, max(self.gap, _COARSE_GAP), self.budget).solve(None)
        own = coarser.between.row_min(q.hidden(-found.g, np.inf), self.threads).astype(np.float64)
        if trees is None:
            return own
        f = np.zeros(self.cost.shape[0])
        f[rows] = own
        return f

    def _left(self, dual: float) -> float:
        """Return the relative gap of the best plan to a dual value."""
        return (self.best.value - dual) / self.best.scale if math.isfinite(self.best.scale) else math.inf

    def _settled(self, here: _Start) -> bool:
        """Tell whether the certified gap is what was asked for."""
        enough = max(self.gap, OPTIMAL_GAP)
        return self._left(here.dual) <= enough and self._certificate(here)[0].gap <= enough

    def _corrects(self, step: int, left: float, before: float) -> bool:
        """Tell whether a correction pays: steps have become slow, and factorisations are not too large."""
        points = sum(self.cost.shape)
        return step > _FIRST and points <= _LARGE[self._planar] and (points <= _SMALL or left > _SLOW * before)

    def _balanced(self, f: Array, g: Array) -> _Start:
        """Shift potentials against each other such that the masses agree: the best shift."""
        f, g, log = _shifted(self.p, self.q, f, g)
        return _Start(f, g, math.exp(min(log, 700.0)), self.p.gain(f) + self.q.gain(g))

    def _closed(self, f: Array) -> _Start:
        """Return the potentials that c-transforms make of a potential of the rows."""
        g = self._transformed(f)
        own = self.cost.row_min(self.q.hidden(-g, np.inf), self.threads)
        return self._balanced(np.minimum(own, self.p.enough).astype(np.float64, copy=False), g)

    def _transformed(self, f: Array) -> Array:
        """Return the c-transform of a potential of the rows: the largest feasible potential of the columns."""
        # a potential that is larger gains nothing on its side, and may cost the other one
        g = -self.cost.col_max(self.p.hidden(np.minimum(f, self.p.enough), -np.inf), self.threads)
        return np.minimum(g, self.q.enough).astype(np.float64, copy=False)

    def _linear(self, here: _Start, last: Any, near: bool) -> tuple[_Start, Any]:
        """Solve balanced transport between the masses of potentials; return the vertex, and the solution.

        It starts from the basis of the last one, and from the potentials themselves if they are near the optimum: there
        they are optimal.
        """
        rows = list[Measures]()
        for side, x in ((self.p, here.f), (self.q, here.g)):
            log = side.log_masses(x)
            mass = np.exp(log - log.max()) if math.isfinite(side.rho) else side.weight.copy()
            mass[mass < _VANISHED * math.isfinite(side.rho)] = 0.0
            mass /= mass.sum()
            rows.append((mass[None], mass.sum(keepdims=True)))
        pair = self.of.problem(rows[0], rows[1])
        links = getattr(last, "links", None)
        start = _Near(_NO_ARCS if last is None else last.basis, here.f if near else None, links)
        solved = self.of.solve(pair, warm_start=[start], budget=self.budget)
        found = self.of.with_masses(pair, solved)
        if math.isfinite(found[0].upper) and not self._too_late():
            plan = found[0].plan * (here.total if self._free else self._fixed_mass)
            plan.data[~(plan.data > 0)] = 0.0
            plan.eliminate_zeros()
            self._take(sparse.csr_array(plan))
        return self._balanced(np.minimum(found[0].f, self.p.enough), np.minimum(found[0].g, self.q.enough)), solved[0]

    def _too_late(self) -> bool:
        """Tell whether a plan is left aside: without time, where costs of its pairs are searched in a network.

        What the budget interrupts moves mass far, and such searches visit the whole network.
        """
        network = self.cost.network() if self.budget.spent and math.isfinite(self.best.value) else None
        return network is not None and not network.closed_form

    def _take(self, plan: sparse.csr_array) -> None:
        """Keep a plan if it is better than the best."""
        arcs = plan.tocoo()
        i, j = arcs.row.astype(np.int64), arcs.col.astype(np.int64)
        costs = np.asarray(self.cost.at(i, j), np.float64)
        found = plan_bounds(arcs.data, costs, self.cost.depth + (0 if self._free else 4), 0.0)
        value, scale, upper = found.value, found.scale + self._least_scale, Enclosure(Fraction(0))
        for side, ends in ((self.p, i), (self.q, j)):
            penalty = side.divergence(ends, arcs.data)
            value, scale, upper = value + float(penalty.value), scale + float(penalty.value), upper + penalty
        if value < self.best.value:
            moved = found.widened(self.cost.accuracy(), self._absolute(i, j) * float(arcs.data.sum()) * 1.01)
            top = (Enclosure(Fraction(moved.upper)) + upper).upper
            self.best, self.plan = Certificate(-math.inf, max(top, value), value, scale), plan

    def _absolute(self, i: Indices, j: Indices) -> float:
        """Return how far the costs of arcs may be off beyond a relative error."""
        return self.cost.vanishing(i, j) + self.cost.rounding()

    def _towards(self, here: _Start, there: _Start) -> _Start:
        """Return the best potentials between two; the objective is concave, and the constraints are convex."""
        df, dg = there.f - here.f, there.g - here.g
        df, dg = self.p.hidden(df, 0.0), self.q.hidden(dg, 0.0)

        def rise(t: float) -> float:
            a, b = self.p.masses(here.f + t * df), self.q.masses(here.g + t * dg)
            with np.errstate(over="ignore", invalid="ignore"):
                value = float(a @ df + b @ dg)
            return value if math.isfinite(value) else -1e300

        t = 1.0 if rise(1.0) >= 0 else 0.0 if rise(0.0) <= 0 else brentq(rise, 0.0, 1.0, xtol=1e-9, maxiter=60)
        between = self._balanced(here.f + t * df, here.g + t * dg)
        return max(here, between, there, key=lambda one: one.dual)

    def _keys(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> Indices:
        """Return arcs as numbers, without those of artificial or additional points."""
        m1, m2 = self.cost.shape
        kept = (i >= 0) & (j >= 0) & (i < m1) & (j < m2)
        return i[kept].astype(np.int64) * m2 + j[kept]

    def _corrected(self, here: _Start, arcs: Indices, rough: bool = False) -> tuple[_Start, Indices]:
        """Return better potentials from the optimum on arcs, and the arcs that are worth keeping.

        A rough one takes more arcs, keeps fewer, and ends at a tenth of the gap.
        """
        m1, m2 = self.cost.shape
        k = _NEIGHBOURS[m1 + m2 > _SMALL and not rough]
        J = self.cost.nearest(self.q.hidden(-here.g, np.inf), min(k, m2), n_jobs=self.threads)[0]
        I = self.cost.nearest(self.p.hidden(-here.f, np.inf), min(k, m1), False, n_jobs=self.threads)[0]  # noqa: E741
        near = (np.arange(m1)[:, None] * m2 + J)[J >= 0], (I * m2 + np.arange(m2)[:, None])[I >= 0]
        plan = self.plan.tocoo()
        used = self._keys(plan.row, plan.col)
        keys = union(arcs, used, *near)
        i, j = np.divmod(keys, m2)
        costs = np.asarray(self.cost.at(i, j), np.float64)
        kept = self.p.own[i] & self.q.own[j] & np.isfinite(costs)
        keys, i, j, costs = keys[kept], i[kept], j[kept], costs[kept]
        dual = _ArcDual(self.p, self.q, i, j, costs)
        dual.z[np.searchsorted(keys, used)] = plan.data
        left = max(self.best.value - here.dual, 1e-16 * self.best.scale, 1e-300)
        dual.solve(here, left, max(self.gap, 1e-11, rough * self._left(here.dual)) / 10, self.budget)
        found = self._towards(here, self._closed(dual.f))
        if rough:
            return found, keys[dual.slack <= np.quantile(dual.slack, _KEPT)]
        if self._free and math.isfinite(float(dual.z.sum())):
            self._take(sparse.csr_array(sparse.coo_array((dual.z, (i, j)), shape=self.cost.shape)))
        kept = (dual.slack <= np.quantile(dual.slack, _KEPT)) | (dual.z > _IN_USE * dual.z.max())
        return found, keys[kept]

    def _certificate(self, here: _Start) -> tuple[Certificate, Array, Array]:
        """Return what the best plan and potentials prove, and potentials that are feasible with rounding errors."""
        cost = self.cost
        less = cost.underflow() + cost.rounding()
        # transformed once more: the rounding errors are then of the size of these potentials
        f = np.minimum(here.f, self.p.enough)
        f, g = below(f, self._transformed(f), cost.depth, cost.underflow())
        relative = cost.accuracy()  # costs may be lower by as much: so are potentials, by a share of themselves
        f, g = (x - relative * 1.01 * np.abs(x) - 2 * less for x in (f, g))
        bounds = [side.gain_bound(x) for side, x in ((self.p, f), (self.q, g))]
        lower = -math.inf if bounds[0] is None or bounds[1] is None else (bounds[0] + bounds[1]).lower
        if cost.least() >= 0:
            lower = max(lower, 0.0)
        return replace(self.best, lower=lower), f, g

    def _solution(self, here: _Start, steps: int, basis: tuple[NDArray[np.int32], NDArray[np.int32]]) -> Solution:
        """Return the best plan and potentials, with potentials of points without weight."""
        found, f, g = self._certificate(here)
        found = replace(found, reason=ROUNDS if steps == _STEPS else "")
        found, state = concluded(found, gap=self.gap, spent=self.budget.spent)
        if not (self.p.own.all() and self.q.own.all()):
            f, g = self.p.hidden(f, -np.inf), self.q.hidden(g, -np.inf)
            rest = -self.cost.col_max(f, self.threads)
            g = np.where(self.q.own, g, rest)
            f = np.where(self.p.own, f, self.cost.row_min(-g, self.threads))
        solution = UnbalancedSolution.of(found, state, f, g, self.plan, steps)
        vars(solution)["_basis"] = basis  # the class is frozen
        return solution


def _shifted(p: _Side, q: _Side, f: Array, g: Array) -> tuple[Array, Array, float]:
    """Shift potentials against each other such that their masses agree; return also the logarithm of the mass.

    No other shift has a larger dual value.
    """
    first, second = _log_sum(p.log_masses(f)), _log_sum(q.log_masses(g))
    shift = (first - second) / (1 / p.rho + 1 / q.rho)
    return f + shift, g - shift, first - shift / p.rho


def _gain(x: Array, rho: float) -> Array:
    """Return what a unit of weight gains at a potential, the derivative of the optimum: ``rho (1 - exp(-x / rho))``."""
    with np.errstate(over="ignore"):
        return x if math.isinf(rho) else -rho * np.expm1(-x / rho)


def _log_sum(x: Array) -> float:
    """Return ``log(sum(exp(x)))``."""
    most = float(x.max())
    return most + math.log(float(np.exp(x - most).sum()))


class _ArcDual:
    """The dual problem on some arcs, by a primal-dual interior-point method (Mehrotra's predictor and corrector).

    With slacks ``s = c - f_i - g_j`` and masses z of the arcs it follows the path ``z s = mu``, where the masses of the
    potentials are the marginals of z, down to mu = 0. A Newton step solves a system with a graph Laplacian, whose
    weights are ``z / s``, and a diagonal, the masses divided by rho.

    Parameters
    ----------
    p, q : _Side
        The measures.
    i, j : arrays of int
        The arcs.
    costs : array
        Their costs.

    Attributes
    ----------
    f, g : arrays of shape (m1,) and (m2,)
        Potentials.
    z, slack : arrays
        Masses and slacks of the arcs, positive.
    """

    def __init__(self, p: _Side, q: _Side, i: Indices, j: Indices, costs: Array) -> None:
        self.p, self.q, self.i, self.j, self.costs, self.z = p, q, i, j, costs, np.zeros(len(i))
        self._m1 = len(p.weight)
        # points of the arcs, so that the matrix has no empty rows
        nodes, ends = np.unique(np.concatenate([i, self._m1 + j]), return_inverse=True)
        self._nodes, self._i, self._j = nodes, ends[: len(i)], ends[len(i) :]
        n, rows = len(nodes), int(np.searchsorted(nodes, self._m1))
        self._systems: list[_Eliminated | _Factored] = [_Factored(self._i, self._j, n)]
        if n - rows <= _FEW_COLUMNS:
            self._systems.insert(0, _Eliminated(self._i, self._j - rows, rows, n - rows))

    def solve(self, start: _Start, left: float, tolerance: float, budget: Budget) -> None:
        """Find potentials from some whose dual value is this much below the optimum, to a relative tolerance.

        It begins with the masses z of a plan.
        """
        i, j, rhos = self._i, self._j, (self.p.rho, self.q.rho)
        lift = left / (2 * max(start.total, 1e-300))
        x = np.concatenate([start.f, start.g])[self._nodes] - lift
        w = np.concatenate([self.p.log, self.q.log])[self._nodes]
        rho = np.where(self._nodes < self._m1, *rhos)
        mu, fixed = lift * start.total / len(self._nodes), np.isinf(rho)
        for _ in range(2):  # Newton's method for exponentials converges from masses that are too large
            slack = np.maximum(self.costs - x[i] - x[j], lift)
            z = np.maximum(self.z, mu / slack)
            x = np.where(fixed, x, np.minimum(x, np.where(fixed, 1.0, rho) * (w - np.log(self._marginals(z)))))
        slack = np.maximum(self.costs - x[i] - x[j], lift)
        unseen = math.log(max(start.total, 1e-300)) - _UNSEEN
        for _ in range(_ITERATIONS):
            log = w - x / rho
            mass = np.exp(np.minimum(log, 700.0))
            short, apart = mass - self._marginals(z), self.costs - x[i] - x[j] - slack
            product = float(z @ slack)
            scale = float(mass @ np.abs(x)) + float(z @ np.abs(self.costs))
            wrong = float(np.abs(short) @ np.abs(x))
            if product + wrong <= tolerance * scale and np.abs(apart).max() <= lift:
                break
            if budget.spent:
                break
            weight = z / slack
            step = self._newton(mass / rho, weight)
            if step is None:
                break
            mu = product / len(z)

            def direction(target: Array | float) -> tuple[Array, Array, Array]:
                own = (target - z * slack) / slack - weight * apart  # noqa: B023
                dx = step.solve(short - self._marginals(own))  # noqa: B023
                ends = dx[i] + dx[j]
                return dx, own + weight * ends, apart - ends  # noqa: B023

            dx, dz, ds = direction(0.0)
            ahead = float((z + _reach(z, dz) * dz) @ (slack + _reach(slack, ds) * ds)) / len(z)
            # products must not vanish before the marginals are right
            target = max((ahead / mu) ** 3 * mu, min(mu, _BALANCE * wrong / len(z)))
            dx, dz, ds = direction(target - dz * ds)
            seen = np.maximum(log, log - dx / rho) > unseen
            furthest = float((np.abs(dx) / rho).max(where=seen, initial=0.0))
            length = min(_reach(z, dz), _reach(slack, ds), _FURTHEST / furthest if furthest > _FURTHEST else 1.0)
            if not (np.isfinite(dx).all() and length > 1e-10):
                break
            x, z, slack = x + length * dx, z + length * dz, slack + length * ds
            z = np.maximum(z, _CENTRAL * target / slack)  # a mass that vanished early returns slowly
        every = np.concatenate([start.f, start.g])
        every[self._nodes] = x
        self.f, self.g, self.z, self.slack = every[: self._m1], every[self._m1 :], z, slack

    def _marginals(self, z: Array) -> Array:
        """Return the sums of masses at the points of the arcs."""
        n = len(self._nodes)
        return np.asarray(np.bincount(self._i, z, n) + np.bincount(self._j, z, n), np.float64)

    def _newton(self, curvature: Array, weight: Array) -> _Eliminated | _Factored | None:
        """Return the factors of the Newton system, None if it is singular in double precision."""
        diagonal = curvature + self._marginals(weight)
        return next((one for one in self._systems if one.factorised(diagonal, weight)), None)


class _Eliminated:
    """Newton systems of few columns: rows are eliminated, and a dense matrix is left.

    It takes a third of the time of a sparse factorisation there.

    Parameters
    ----------
    i, j : arrays of int
        Rows and columns of the arcs.
    rows, columns : int
        Their numbers.
    """

    def __init__(self, i: Indices, j: Indices, rows: int, columns: int) -> None:
        self._i, self._j, self._shape = i, j, (rows, columns)
        # all pairs of arcs of the same row
        order = np.argsort(i, kind="stable")
        counts = np.bincount(i, minlength=rows)
        starts, repeats = np.cumsum(counts) - counts, counts[i[order]]
        first = np.repeat(order, repeats)
        inside = np.arange(len(first)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        self._first, self._second = first, order[starts[i[first]] + inside]
        self._entry = j[self._first] * columns + j[self._second]

    def factorised(self, diagonal: Array, weight: Array) -> bool:
        """Factorise for a diagonal and weights of the arcs; tell whether the matrix is definite."""
        rows, columns = self._shape
        self._own, self._share = diagonal[:rows], weight / diagonal[self._i]
        products = -self._share[self._first] * weight[self._second]
        matrix = np.asarray(np.bincount(self._entry, products, columns**2), np.float64)
        matrix[:: columns + 1] += diagonal[rows:]
        self._factor, info = dpotrf(matrix.reshape(columns, columns), overwrite_a=True)
        return bool(info == 0)

    def solve(self, x: Array) -> Array:
        """Return the solution of the system."""
        rows, columns = self._shape
        first, second = x[:rows], x[rows:]
        other = dpotrs(self._factor, second - np.bincount(self._j, self._share * first[self._i], columns))[0]
        own = first / self._own - np.bincount(self._i, self._share * other[self._j], rows)
        return np.concatenate([own, other])


class _Factored:
    """Newton systems by sparse factors.

    The order of elimination depends on the arcs alone and takes longer than the factors: it is found once.

    Parameters
    ----------
    i, j : arrays of int
        The ends of the arcs.
    n : int
        The number of points.
    """

    def __init__(self, i: Indices, j: Indices, n: int) -> None:
        self._i, self._j, self._n = i, j, n
        self._factors: Any = None

    def factorised(self, diagonal: Array, weight: Array) -> bool:
        """Factorise for a diagonal and weights of the arcs; tell whether the matrix is definite."""
        if self._factors is None:
            self._arrange()
        return bool(self._factors.factorise(weight[self._entry], diagonal[self._order]))

    def _arrange(self) -> None:
        """Find the order of elimination, by SuperLU's multiple minimum degrees, and the pattern in this order."""
        upper = sparse.coo_array((np.ones(len(self._i)), (self._i, self._j)), shape=(self._n, self._n))
        degree = np.bincount(self._i, minlength=self._n) + np.bincount(self._j, minlength=self._n)
        matrix = (upper + upper.T + sparse.diags_array(degree + 1.0)).tocsc()
        place = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}).perm_c
        self._order = np.argsort(place)
        i, j = place[self._i], place[self._j]
        rows, columns = np.minimum(i, j), np.maximum(i, j)
        self._entry = np.lexsort((rows, columns))
        begin = np.searchsorted(columns[self._entry], np.arange(self._n + 1)).astype(np.int64)
        self._factors = backend().sparse_factors(begin, rows[self._entry].astype(np.int32))

    def solve(self, x: Array) -> Array:
        """Return the solution of the system."""
        found, ordered = np.empty_like(x), x[self._order]
        self._factors.solve(ordered)
        found[self._order] = ordered
        return found


def _reach(x: Array, dx: Array) -> float:
    """Return the length of a step, at most one, that keeps numbers positive."""
    falling = dx < 0
    return min(1.0, _ALMOST * float((-x[falling] / dx[falling]).min(initial=np.inf)))
