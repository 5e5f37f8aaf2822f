"""The network simplex: exact optima of transportation problems, with certified bounds.

`solve_dense` solves small and medium problems on all arcs of a cost matrix. `ArcProblem` solves a problem on a list of
arcs that grows, and keeps its basis between rounds; `arcs.GrowingArcs` uses it.

Weights need not be normalised: W is the optimum for ``p / sum(p)`` and ``q / sum(q)``, taken as exact rational numbers,
and the costs as stored. The flows of the final basis are computed in exact integer arithmetic, so no mass is lost,
whatever the range of the weights, and the bounds are rounded outwards: ``lower <= W <= upper``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..core.backend import backend
from ..io.budget import Budget
from .certificate import concluded, status
from .repair import coupling_near
from .solution import Solution

Array = NDArray[np.float64]
Basis = tuple[NDArray[np.int32], NDArray[np.int32]]

_ULP = float(np.finfo(np.float64).eps)
_ROUNDING = 1e-13  # the mass that rounding may leave on artificial arcs before flows are exact
_ARC_BYTES, _NODE_BYTES = 64, 400  # memory of the simplex and of the arrays from which its arcs come
_INFO, _NO_BASIS = 8, np.empty((2, 0, 0), np.int32)  # numbers of a solution; where a solve starts by default
_PIVOTS = 10_000  # between two checks for Ctrl-C: at most some 0.3 s


@dataclass(eq=False)
class DenseSolutions:
    """Exact solutions of a batch of problems with one matrix of costs.

    Attributes
    ----------
    value : array of shape (n,)
        The costs of the plans.
    lower, upper : arrays of shape (n,)
        Certified bounds of W, rounded outwards.
    f, g : arrays of shape (n, m1) and (n, m2)
        Potentials with ``f_i + g_j <= C_ij`` for all pairs, points without weight included.
    status : list of str
        "optimal" or "gap open", as of `Solution`; "budget spent" where time ran out before; "infeasible" where infinite
        costs forbid every plan.
    pivots : array of shape (n,)
    """

    status: list[str]
    _info: list[list[float]]  # value, lower, upper, scale, entries, pivots, feasibility and whether time ran out
    _problems: tuple[Array, Array, Array]
    _numbers: Array  # these, potentials and masses, one after the other
    _arcs: NDArray[np.int32]  # rows and columns
    _threads: int
    _accuracy: float = 0.0  # the relative error of the costs
    _underflow: float = 0.0  # and the absolute one of those that are too small

    def __len__(self) -> int:
        return len(self.status)

    @property
    def value(self) -> Array:
        """The costs of the plans."""
        return self._column(0)

    @property
    def lower(self) -> Array:
        """Lower bounds."""
        return self._column(1)

    @property
    def upper(self) -> Array:
        """Upper bounds."""
        return self._column(2)

    @property
    def pivots(self) -> NDArray[np.int64]:
        """Numbers of pivots."""
        return self._column(5).astype(np.int64)

    def _column(self, k: int) -> Array:
        """Return a number of every problem."""
        return np.array([row[k] for row in self._info])

    def __getitem__(self, b: int) -> Solution:
        """Return the solution of problem b; its plan and potentials are computed when first used."""
        if not -len(self.status) <= b < len(self.status):
            raise IndexError(f"problem {b} of a batch of {len(self)}")
        return DenseSolution(self, b)

    def __iter__(self) -> Iterator[Solution]:
        return (DenseSolution(self, b) for b in range(len(self.status)))

    @property
    def f(self) -> Array:
        """Potentials of the rows."""
        return self._complete[0]

    @property
    def g(self) -> Array:
        """Potentials of the columns."""
        return self._complete[1]

    @cached_property
    def _complete(self) -> tuple[Array, Array]:
        """Potentials of all points. Those without weight cost a pass over the whole matrix for each problem."""
        C, p, q = self._problems
        f, g = self.weighted_potentials()
        if not (p.all() and q.all()):
            backend().complete_dense(C, p=p, q=q, n_threads=self._threads, f=f, g=g)
        return lowered(f, self._accuracy, self._underflow), lowered(g, self._accuracy, self._underflow)

    def weighted_potentials(self) -> tuple[Array, Array]:
        """Return potentials of the points that have weight; other entries mean nothing unless they were completed."""
        _, p, q = self._problems
        ends = np.cumsum([_INFO * len(p), p.size, q.size])
        return self._numbers[ends[0] : ends[1]].reshape(p.shape), self._numbers[ends[1] : ends[2]].reshape(q.shape)

    def problem(self, b: int = 0) -> tuple[Array, Array, Array]:
        """Return costs and weights of problem b."""
        C, p, q = self._problems
        return C, p[b], q[b]

    def plan(self, b: int = 0) -> sparse.csr_array:
        """Return the plan of problem b, of total mass one: a vertex, with at most m1 + m2 - 1 entries."""
        i, j, mass = self.arcs(b)
        m1, m2 = self._problems[0].shape
        # sorted arcs are what the format stores; a detour by coordinates takes longer than a small problem
        order = np.argsort(i.astype(np.int64) * m2 + j, kind="stable")
        starts = np.zeros(m1 + 1, np.int32)
        np.cumsum(np.bincount(i, minlength=m1), out=starts[1:])
        return sparse.csr_array((mass[order], j[order], starts), shape=(m1, m2))

    @property
    def basis(self) -> Basis:
        """Rows and columns of the arcs of the bases, one row per problem; -1 where there are fewer."""
        if self._arcs.shape[2] == 0:
            raise ValueError("plan: solve with plan=True to have bases")
        return self._arcs[0], self._arcs[1]

    def arcs(self, b: int = 0) -> tuple[NDArray[np.int32], NDArray[np.int32], Array]:
        """Return rows, columns and masses of the plan of problem b."""
        i, j = self.basis
        n = int(self._info[b][4])
        return i[b, :n], j[b, :n], self._numbers[-i.size :].reshape(i.shape)[b, :n]


def lowered(x: Array, accuracy: float, underflow: float) -> Array:
    """Return potentials that are feasible for all costs that are so near to those for which x is.

    Parameters
    ----------
    x : array
        Potentials.
    accuracy : float
        The relative error of the costs, none of them negative.
    underflow : float
        Their absolute error beyond that, which only potentials of that size notice.
    """
    if accuracy:
        x = x - 2 * accuracy * np.abs(x)
    if underflow:
        x = np.where((x != 0) & (np.abs(x) < underflow * 2.0**60), x - underflow, x)
    return x


class DenseSolution(Solution):
    """One of a batch of solutions."""

    def __init__(self, batch: DenseSolutions, b: int) -> None:
        own = vars(self)  # the class is frozen
        own["value"], own["lower"], own["upper"], own["scale"] = batch._info[b][:4]
        own["status"], own["rounds"], own["_batch"], own["_index"] = batch.status[b], 1, batch, b
        own["reason"] = ""
        if self.status != "optimal":
            own["reason"] = concluded(self.certificate, spent=self.status == "budget spent")[0].reason

    @property
    def f(self) -> Array:
        """Potentials of the rows."""
        return self._batch.f[self._index]

    @property
    def g(self) -> Array:
        """Potentials of the columns."""
        return self._batch.g[self._index]

    @property
    def plan(self) -> sparse.csr_array:
        """The plan."""
        return self._batch.plan(self._index)

    @property
    def basis(self) -> Basis:
        """Rows and columns of the arcs of the basis; -1 where there are fewer."""
        i, j = self._batch.basis
        return i[self._index], j[self._index]

    _batch: DenseSolutions
    _index: int


def solve_dense(
    C: ArrayLike, p: ArrayLike, q: ArrayLike, plan: bool = True, threads: int = 1, basis: Basis | None = None,
    budget: Budget | None = None, accuracy: float = 0.0, underflow: float = 0.0,
) -> DenseSolutions:  # fmt: skip
    """Solve problems with one cost matrix exactly, by a network simplex on all arcs.

    Parameters
    ----------
    C : array of shape (m1, m2)
        Costs; ``inf`` forbids a pair.
    p, q : arrays of shape (m1,) and (m2,), or (n, m1) and (n, m2)
        Non-negative weights, normalised or not; every problem uses the points that have weight.
    plan : bool
        Keep the plans.
    threads : int
        Threads over the problems.
    basis : pair of arrays of int32, shape (k,) or (n, k), optional
        Rows and columns of the arcs to start from, such as the `basis` of solutions with other weights or costs; arcs
        that are negative, forbidden, without weight at an end, or close a cycle are left out. The optimum is the same
        from any start, and a near one takes fewer pivots.
    budget : Budget, optional
        Its time, after which problems that are not solved stop with a feasible plan and valid bounds, status "budget
        spent". Checked every few milliseconds.
    accuracy : float
        The relative error of the costs, none of them negative: the bounds hold for all such costs.
    underflow : float
        How far costs may be off beyond that: potentials hold for all such costs, too.

    Examples
    --------
    >>> answer = solve_dense([[0.0], [1e16]], [1.0, 1e-16], [1.0])
    >>> float(answer.upper[0].round(9)), answer.status
    (1.0, ['optimal'])
    >>> again = solve_dense([[0.0], [2e16]], [1.0, 1e-16], [1.0], basis=answer.basis)
    >>> float(again.upper[0].round(9)), again.pivots
    (2.0, array([0]))
    """
    C = np.ascontiguousarray(C, np.float64)
    m1, m2 = C.shape
    p, q = np.ascontiguousarray(p, np.float64), np.ascontiguousarray(q, np.float64)
    if p.ndim == 1 or q.ndim == 1:
        p, q = p.reshape(-1, m1), q.reshape(-1, m2)
    n, most = len(p), m1 + m2 if plan else 0
    if plan and n > 1:  # most measures have few points with weight, and large arrays take time
        most = int((np.count_nonzero(p, axis=1) + np.count_nonzero(q, axis=1)).max(initial=0))
    start = _NO_BASIS
    if basis is not None:
        start = np.array(basis, np.int32)
        start = start if start.ndim == 3 else start[:, None]
        if start.shape[1] < n:  # the same for all problems
            start = np.repeat(start, n, axis=1)
    budget = budget or Budget()
    numbers, arcs = np.empty(n * (_INFO + m1 + m2 + most)), np.empty((2, n, most), np.int32)
    backend().solve_dense(C, p, q, start, accuracy, threads, budget.seconds, budget.flag, numbers, arcs)
    info = numbers[: n * _INFO].reshape(n, _INFO).tolist()
    states = []
    for _, lower, upper, scale, *_, feasible, stopped in info:
        state = status(lower, upper, scale, spent=bool(stopped))
        states.append(state if feasible or state == "budget spent" else "infeasible")
    return DenseSolutions(states, info, (C, p, q), numbers, arcs, threads, accuracy, underflow)


class ArcProblem:
    """A transportation problem on a list of arcs that grows; the basis stays.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Positive weights.
    budget : Budget, optional
        Its time, after which pivots stop.

    Examples
    --------
    >>> import numpy as np
    >>> problem = ArcProblem(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    >>> problem.add(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([1.0, 0.0, 1.0]))
    >>> problem.start(np.zeros(2), np.zeros(2), artificial=10.0)
    >>> problem.optimise()
    True
    >>> problem.value
    1.0
    >>> problem.add(np.array([1]), np.array([0]), np.array([0.0]))
    >>> problem.optimise(), problem.value
    (True, 0.0)
    """

    def __init__(self, p: ArrayLike, q: ArrayLike, budget: Budget | None = None) -> None:
        self.p, self.q = (np.ascontiguousarray(x, np.float64) for x in (p, q))
        self._budget = budget or Budget()
        self._simplex = backend().arc_simplex(self.p, self.q)
        self._artificial = 0.0

    @property
    def pivots(self) -> int:
        """Number of pivots so far."""
        return int(self._simplex.pivots)

    @property
    def arcs(self) -> int:
        """Number of arcs."""
        return int(self._simplex.arcs)

    @property
    def value(self) -> float:
        """Cost of the present plan, in double precision."""
        return float(self._simplex.value)

    @property
    def artificial_flow(self) -> float:
        """Mass that the arcs cannot carry."""
        return float(self._simplex.artificial_flow)

    def add(self, i: ArrayLike, j: ArrayLike, cost: ArrayLike) -> None:
        """Add arcs from rows i to columns j; the basis stays."""
        i, j = (np.ascontiguousarray(x, np.int64) for x in (i, j))
        self._simplex.add(i, j, np.ascontiguousarray(cost, np.float64))

    def can_add(self, count: int) -> bool:
        """Tell whether the memory of the budget allows a number of additional arcs; otherwise the budget ends."""
        return self._budget.fits(_ARC_BYTES * (self.arcs + count) + _NODE_BYTES * (len(self.p) + len(self.q)))

    def start(
        self, f: ArrayLike, g: ArrayLike, artificial: float, greedy: bool = True, basis: ArrayLike | None = None,
        tops: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        """Make a first basis: a greedy plan on the reduced costs of the potentials f and g, and artificial arcs.

        Parameters
        ----------
        f, g : arrays of shape (m1,) and (m2,)
        artificial : float
            The reduced cost of an artificial arc. Of the order of the largest reduced cost; see `raise_artificial`.
        greedy : bool
            Without it all arcs of the first basis are artificial.
        basis : array of int, optional
            Numbers of arcs to start from instead, such as those of `basis` for other weights or costs; negative ones
            are left out. The potentials should be those of that basis.
        tops : array of int, optional
            Nodes, rows before columns, from which the trees of that basis hang; those that are strongly feasible from
            there stay as they are.
        """
        self._artificial = artificial
        f, g = (np.ascontiguousarray(x, np.float64) for x in (f, g))
        none = np.empty(0, np.int64)
        numbers, nodes = (none if x is None else np.ascontiguousarray(x, np.int64) for x in (basis, tops))
        self._simplex.start(f, g, artificial, greedy, numbers, nodes)

    def optimise(self, tolerance: float = 0.0, enough: float = -np.inf) -> bool:
        """Pivot until no reduced cost is below ``-tolerance``; return whether the arcs carry all mass.

        A tolerance below the rounding errors of the costs is raised to these. A plan of value `enough` ends it early.
        Where rounding would misplace some mass, however small, the pivots resume with exact flows. They stop when the
        budget is spent.
        """
        self._pivot(tolerance, enough)
        if self._nearly_carried() and not self._simplex.settle():
            self._pivot(tolerance, enough)
        return self.carried

    def _report(self) -> None:
        """Report the pivots so far; of lists of arcs the rounds are reported, by their callers."""

    @property
    def carried(self) -> bool:
        """Whether the arcs carry all mass, in exact arithmetic."""
        return self._nearly_carried() and bool(self._simplex.settle())

    def _nearly_carried(self) -> bool:
        """Whether the arcs carry all mass, up to rounding."""
        return self.artificial_flow <= _ROUNDING

    def _pivot(self, tolerance: float, enough: float) -> None:
        """Pivot, and refresh the potentials, until they allow no more pivots."""
        # potentials drift with the pivots: at first only clear violations count, and then those of refreshed potentials
        relative, patience = 512 * _ULP, 200 * (len(self.p) + len(self.q)) + _PIVOTS
        for repeat in range(200):
            before = self.pivots
            while not self._simplex.optimise(_PIVOTS, tolerance, relative):
                self._report()
                if self._budget.spent or (enough > -np.inf and self.value <= enough and self.carried):
                    return
                if self.pivots - before > patience:  # pivots on rounding errors
                    relative, patience = 16 * relative, 2 * patience
            hidden = self._simplex.hidden  # large shifts have hidden some violations
            if (repeat >= 5 or self.pivots == before) and repeat and not hidden:
                break
            self._simplex.refresh()
            relative, patience = 8 * _ULP, _PIVOTS

    def raise_artificial(self, factor: float = 4.0) -> float:
        """Make artificial arcs dearer, as long as they carry flow; return their reduced cost."""
        self._artificial *= factor
        self._simplex.set_artificial(self._artificial)
        return self._artificial

    def potentials(self) -> tuple[Array, Array]:
        """Return the potentials f and g of the basis: ``f_i + g_j`` is the cost of each of its arcs."""
        f, g = np.empty(len(self.p)), np.empty(len(self.q))
        self._simplex.potentials(f, g)
        return f, g

    def basis(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Array]:
        """Return the arcs of the basis: rows, columns (-1 for the root), numbers (-1: artificial) and exact flows.

        Flows are shares of the total, each to within three units in the last place.
        """
        n = len(self.p) + len(self.q)
        i, j, arc, share = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
        self._simplex.tree(i, j, arc, share)
        return i, j, arc, share

    def set_costs(self, cost: ArrayLike) -> None:
        """Change the costs of all arcs; the basis stays, and `optimise` continues from it."""
        self._simplex.set_costs(np.ascontiguousarray(cost, np.float64))

    def set_weights(self, p: ArrayLike, q: ArrayLike, artificial: float) -> None:
        """Change the weights; those arcs of the basis stay that carry flow in the right direction.

        Parameters
        ----------
        p, q : arrays of shape (m1,) and (m2,)
            Positive weights.
        artificial : float
            The reduced cost of an artificial arc, as in `start`.
        """
        self.p, self.q = (np.ascontiguousarray(x, np.float64) for x in (p, q))
        self._artificial = artificial
        self._simplex.set_weights(self.p, self.q, artificial)

    def exact_plan(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        """Return rows, columns and masses of a plan: that of the arcs, and the rest in the order of rows and columns.

        Masses are shares of the total, positive, each to within three units in the last place.
        """
        self._simplex.settle()  # flows may be below zero by rounding
        i, j, arc, share = self.basis()
        kept = (arc >= 0) & (share > 0)
        plan = i[kept], j[kept], share[kept]
        return plan if not ((arc < 0) & (share > 0)).any() else coupling_near(self.p, self.q, plan)


def staircase(p: Array, q: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Return rows, columns and shares of the plan of the north-west corner rule, in exact arithmetic.

    Examples
    --------
    >>> import numpy as np
    >>> i, j, share = staircase(np.array([0.5, 0.5]), np.array([0.25, 0.75]))
    >>> i.tolist(), j.tolist(), share.tolist()
    ([0, 0, 1], [0, 1, 1], [0.25, 0.25, 0.5])
    """
    return backend().staircase(p, q)
