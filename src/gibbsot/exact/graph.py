"""Transport along the links of a network: exact optima without the distances of all pairs.

Mass moves from node to node, and the optimum is that of transport with shortest-path costs. A network simplex finds it
on the links. It starts from a tree that was optimal on coarser networks, which `native/contraction.hpp` makes.

**The proof.** Potentials y with ``y_u - y_v <= length`` for every link from u to v satisfy ``y_i - y_j <= d(i, j)`` for
all pairs, so that ``f_i = y_i`` and ``g_j = -y_j`` are feasible: one look at every link proves a lower bound. They
follow the tree as sums of two doubles, and are lowered where a link is violated. What then is violated at most, times
the number of links of a path, is subtracted. The exact flow of the tree proves the upper bound.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from ..core.backend import backend
from ..core.double_double import DoubleDouble
from ..costs import Cost
from ..costs.network import Network
from ..io.budget import Budget
from .certificate import MARGIN, NO_PLAN, OPTIMAL_GAP, Certificate, Enclosure, concluded, mean, plan_bounds
from .method import Batch, Method
from .simplex import ArcProblem
from .solution import INFEASIBLE, Solution

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# measured, with what a contraction needs, and what the allocator may keep of freed arrays
_LINK_BYTES, _NODE_BYTES = 205, 120
_REPEATS = 8  # programmes for the difference where double precision does not close the gap
_DEARER = 16.0  # times the cost of artificial arcs, as long as they carry mass
_CAPS = (2.0**12, 2.0**24, 2.0**36)  # times the value: lengths that no plan pays may count as so much
_NAMED = 5  # points that an error names


class Graph(Method):
    """Network simplex on the links of a network."""

    name = "graph"
    about = "network simplex on the edges of a graph, or on the stored pairs of a sparse cost"
    suits = "shortest-path costs, few allowed pairs"
    closed_form: ClassVar[bool] = False

    def accepts(self, cost: Cost) -> bool:
        """Accept costs that are shortest paths in a network, with compiled kernels."""
        network = cost.network() if backend().has_simplex else None
        return network is not None and network.closed_form == self.closed_form

    def memory(self, cost: Cost) -> float:
        """Return the bytes of the links and nodes."""
        network = cost.network()
        assert network is not None
        return float(_LINK_BYTES * len(network.tail) + _NODE_BYTES * network.nodes)

    def seconds(self, points: float, pairs: float) -> float:
        """Return about how long a problem takes."""
        return 3.0 * (points / 1e5) ** 1.6

    def solve(self, batch: Batch, which: list[int]) -> list[Solution]:
        """Solve problems one by one."""
        network, least, before = batch.cost.network(), batch.cost.least(), batch.warm_start
        assert network is not None

        def one(b: int) -> Solution:
            warm = None if before is None else before[b]
            return solve_network(network, *batch.weights(b), least, batch.gap, batch.budget, warm)

        return batch.each(one, which)


class GridEdges(Graph):
    """The same on grids, where a matrix of few pairs is faster."""

    name = "grid edges"
    about = "the same on the edges between neighbours of a grid"
    suits = "L1 distances on grids"
    least = 150_000
    closed_form = True


class NetworkSolution(Solution):
    """A solution on the links of a network; its plan and flow are computed when first used.

    Parameters
    ----------
    found : Certificate
        Its bounds.
    state : str
        Its status.
    f, g : arrays of shape (m1,) and (m2,)
        Potentials.
    problem : NetworkProblem
        The problem, solved.
    """

    def __init__(self, found: Certificate, state: str, f: Array, g: Array, problem: NetworkProblem) -> None:
        own = vars(self)  # the class is frozen
        own["value"], own["lower"], own["upper"], own["scale"] = found.value, found.lower, found.upper, found.scale
        own["status"], own["rounds"], own["reason"], own["f"], own["g"] = state, 1, found.reason, f, g
        own["_problem"] = problem

    _problem: NetworkProblem

    def links(self, network: Network) -> Indices | None:
        """Return the links of the tree, if those of another network have the same ends."""
        own = self._problem.network
        same = own.nodes == network.nodes and np.array_equal(own.tail, network.tail)
        if not same or not np.array_equal(own.head, network.head):
            return None
        links = self._problem.tree()[2]
        return links[links >= 0]

    @cached_property
    def plan(self) -> sparse.csr_array:
        """A coupling along the flow."""
        network = self._problem.network
        return coupling(self._problem.coupling(), (len(network.rows), len(network.columns)))

    @cached_property
    def flow(self) -> sparse.csr_array:
        """The mass on every arc of the network; arcs without mass are stored, too."""
        tail, head, _, share = self._problem.carrying()
        return self._problem.network.flow(tail, head, share)


def coupling(arcs: tuple[Indices, Indices, Array], shape: tuple[int, int]) -> sparse.csr_array:
    """Return rows, columns and masses as a matrix."""
    i, j, mass = arcs
    return sparse.csr_array(sparse.coo_array((mass, (i, j)), shape))


class NetworkProblem(ArcProblem):
    """A transshipment problem on the links of a network.

    Parameters
    ----------
    network : Network
        The links.
    p, q : arrays of shape (m1,) and (m2,)
        Weights of rows and columns.
    budget : Budget, optional
        Its time, after which pivots stop.

    Examples
    --------
    >>> network = Network.of(sparse.csr_array([[0, 1.0, 0], [0, 0, 2.0], [0, 0, 0]]), np.arange(3), np.arange(3))
    >>> problem = NetworkProblem(network, np.array([1.0, 0, 0]), np.array([0, 0.5, 0.5]))
    >>> problem.begin()
    >>> problem.optimise(), problem.value
    (True, 2.0)
    """

    def __init__(self, network: Network, p: Array, q: Array, budget: Budget | None = None) -> None:
        self.network, self.p, self.q, self._budget = network, p, q, budget or Budget()
        self._simplex = backend().network_simplex(*network[:6], p, network.columns, q)
        self._artificial = 0.0

    def begin(self, links: Indices | None = None, artificial: float | None = None) -> None:
        """Make a first basis.

        Parameters
        ----------
        links : array of int64, optional
            A spanning forest to start from; by default one that coarser networks suggest.
        artificial : float, optional
            The cost of an artificial arc; by default some links.
        """
        n, longest = self.network.nodes, self._longest
        self._artificial = artificial or 4 * longest * n**0.5
        chosen = np.empty(0, np.int64) if links is None else links
        self._simplex.start(chosen, self._artificial, self._budget.seconds, self._budget.flag)

    @cached_property
    def _longest(self) -> float:
        """The largest length, one if there is none."""
        lengths = np.concatenate([self.network.forward, self.network.backward])
        return float(np.abs(lengths[np.isfinite(lengths)]).max(initial=0.0)) or 1.0

    def carry(self) -> bool:
        """Pivot to the optimum, with dearer artificial arcs until they carry nothing; return False if they must."""
        while not self.optimise() and not self._budget.spent:
            if self._artificial > 4 * self._longest * self.network.nodes:
                return False
            self.raise_artificial(_DEARER)
        return self.carried

    def _report(self) -> None:
        if self._budget.reports:
            self._budget.report("%d pivots: cost %.6g", self.pivots, self.value)

    def carrying(self) -> tuple[Indices, Indices, Indices, Array]:
        """Return tails, heads, links and shares of the arcs of the tree that carry mass and are not artificial."""
        tail, head, link, share = self.tree()
        kept = (link >= 0) & (share > 0)
        return tail[kept], head[kept], link[kept], share[kept]

    def tree(self) -> tuple[Indices, Indices, Indices, Array]:
        """Return tails, heads, links (-1: artificial) and shares of all arcs of the tree, one for each node."""
        n = self.network.nodes
        tail, head, link, share = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
        self._simplex.tree(tail, head, link, share)
        return tail, head, link, share

    def coupling(self) -> tuple[Indices, Indices, Array]:
        """Return rows, columns and masses of a coupling along the flow."""
        return self._simplex.coupling()

    def node_potentials(self) -> tuple[DoubleDouble, float]:
        """Return potentials of the nodes with twice the digits, and by how much they violate a link at most."""
        y = np.empty((2, self.network.nodes))
        left = self._simplex.potentials(y)
        return DoubleDouble(*y), left

    def lengths(self, tail: Indices, link: Indices) -> Array:
        """Return the lengths of arcs."""
        network = self.network
        return np.where(network.tail[link] == tail, network.forward[link], network.backward[link])

    def cut_off(self) -> str:
        """Return what an error says of points that cannot be served: their mass has no way to enough others."""
        network = self.network
        tail, head, link, share = self.tree()
        stuck = np.flatnonzero((link < 0) & (share > 0) & (tail < network.nodes))
        carrying = (link >= 0) & (share > 0)
        # wherever mass of such a node can go: along the links, and back along the flow
        ahead, back = np.isfinite(network.forward), np.isfinite(network.backward)
        from_node = np.concatenate([network.tail[ahead], network.head[back], head[carrying]])
        to_node = np.concatenate([network.head[ahead], network.tail[back], tail[carrying]])
        graph = sparse.csr_array(
            sparse.coo_array((np.ones(len(from_node)), (from_node, to_node)), (network.nodes, network.nodes))
        )
        reached = np.zeros(network.nodes, bool)
        reached[csgraph.breadth_first_order(graph, int(stuck[0]), return_predecessors=False)] = True
        rows = np.flatnonzero((self.p > 0) & reached[network.rows])
        columns = np.flatnonzero((self.q > 0) & reached[network.columns])
        masses = float(self.p[rows].sum() / self.p.sum()), float(self.q[columns].sum() / self.q.sum())
        return (
            f"the share {masses[0]:.9g} of the first measure in {_named('row', rows)} only has ways to the share "
            f"{masses[1]:.9g} of the second in {_named('column', columns)}"
        )


def _named(what: str, numbers: NDArray[np.intp]) -> str:
    """Return the numbers of some points, for a message."""
    shown = ", ".join(map(str, numbers[:_NAMED].tolist())) + (", ..." if len(numbers) > _NAMED else "")
    if not len(numbers):
        return f"no {what}"
    return f"{what}{'s' if len(numbers) > 1 else ''} {shown}"


def solve_network(
    network: Network, p: Array, q: Array, least: float = 0.0, gap: float = 0.0, budget: Budget | None = None,
    warm: Solution | None = None,
) -> Solution:  # fmt: skip
    """Solve transport between the nodes of a network exactly.

    Parameters
    ----------
    network : Network
        The links.
    p, q : arrays of shape (m1,) and (m2,)
        Non-negative weights of rows and columns, normalised or not.
    least : float
        A lower bound of all costs.
    gap : float
        The relative gap that is enough.
    budget : Budget, optional
        Its time.
    warm : Solution, optional
        One for other weights or lengths: the simplex starts from its tree if it is of the same network.

    Returns
    -------
    Solution

    Raises
    ------
    ValueError
        If there are no paths that could carry the mass; it says which points cannot be served.

    Examples
    --------
    >>> network = Network.of(sparse.csr_array([[0, 1.0, 0], [0, 0, 2.0], [0, 0, 0]]), np.arange(3), np.arange(3))
    >>> answer = solve_network(network, np.array([1.0, 0, 0]), np.array([0, 0.5, 0.5]))
    >>> answer.status, answer.value, answer.plan.toarray()[0]
    ('optimal', 2.0, array([0. , 0.5, 0.5]))
    """
    budget = budget or Budget()
    problem = NetworkProblem(network, p, q, budget)
    links = getattr(warm, "links", None)
    problem.begin(None if links is None else links(network))
    if budget.reports:
        budget.report("%d nodes, %d links: a first tree of cost %.6g", network.nodes, len(network.tail), problem.value)
    carried = problem.carry()
    problem._report()
    if not carried and not budget.spent:
        raise ValueError(f"{INFEASIBLE}: {problem.cut_off()}")
    found, y = _proved(problem, carried, least)
    wanted = MARGIN * max(OPTIMAL_GAP, gap)
    if found.gap > wanted and carried and not budget.spent:
        found, y, problem = _capped(problem, found, y, least, wanted)
    if found.gap > wanted and carried and not budget.spent:
        found, y, problem = _refined(problem, found, y, least, wanted)
    found, state = concluded(found, gap=gap, spent=budget.spent)
    potential = y.rounded()
    return NetworkSolution(found, state, potential[network.rows], -potential[network.columns], problem)


def _proved(problem: NetworkProblem, carried: bool, least: float) -> tuple[Certificate, DoubleDouble]:
    """Return what the present basis proves, and potentials of the nodes."""
    network, p, q = problem.network, problem.p, problem.q
    y, left = problem.node_potentials()
    dual = Enclosure(Fraction(0))
    for part in y:
        dual = dual + mean(p[p > 0], part[network.rows[p > 0]]) - mean(q[q > 0], part[network.columns[q > 0]])
    path = (network.nodes - 1) * Fraction(left)
    lower = (dual - Enclosure(path)).lower
    if not carried:
        return Certificate(max(lower, least), np.inf, np.inf, np.inf, NO_PLAN), y
    tail, _, link, share = problem.carrying()
    found = plan_bounds(share, problem.lengths(tail, link), lower=lower)
    return found.widened(network.accuracy).at_least(least), y


def _capped(
    problem: NetworkProblem, found: Certificate, y: DoubleDouble, least: float, wanted: float
) -> tuple[Certificate, DoubleDouble, NetworkProblem]:
    """Return a better proof where links are far longer than those that carry mass, as `far_costs` does for pairs.

    Potentials for lengths that are no larger are feasible, and a flow that uses none of the shorter links costs the
    same.
    """
    network, budget = problem.network, problem._budget
    for factor in _CAPS:
        cap = factor * found.value
        links = problem.tree()[2]
        forward, backward = (
            np.where(np.isfinite(length), np.minimum(length, cap), length)
            for length in (network.forward, network.backward)
        )
        if np.array_equal(forward, network.forward) and np.array_equal(backward, network.backward):
            break
        again = NetworkProblem(network._replace(forward=forward, backward=backward), problem.p, problem.q, budget)
        again.begin(links[links >= 0])
        if not again.carry() or budget.spent:
            break
        better, potential = _proved(again, True, least)
        tail, _, link, _ = again.carrying()
        if np.array_equal(again.lengths(tail, link), problem.lengths(tail, link)) and better.gap < found.gap:
            found, y, problem = better, potential, again
            if found.gap <= wanted:
                break
    return found, y, problem


def _refined(
    problem: NetworkProblem, found: Certificate, y: DoubleDouble, least: float, wanted: float
) -> tuple[Certificate, DoubleDouble, NetworkProblem]:
    """Return a better proof, with the reduced costs of potentials of twice the digits as lengths.

    They are small where it matters, so that double precision is enough for them: iterative refinement, as in
    `refinement`.
    """
    network, budget = problem.network, problem._budget
    best: tuple[Certificate, DoubleDouble, NetworkProblem] = found, y, problem
    for _ in range(_REPEATS):
        fall = y.at(network.tail).minus(y.at(network.head))
        rise = DoubleDouble(-fall.high, -fall.low)
        ahead, back = (
            DoubleDouble.of(np.where(np.isfinite(length), length, 0.0)).plus(change)
            for length, change in ((network.forward, rise), (network.backward, fall))
        )
        forward = np.where(np.isfinite(network.forward), ahead.rounded(), np.inf)
        backward = np.where(np.isfinite(network.backward), back.rounded(), np.inf)
        link = problem.tree()[2]
        again = NetworkProblem(network._replace(forward=forward, backward=backward), problem.p, problem.q, budget)
        again.begin(link[link >= 0])
        if not again.carry():
            break
        more, _ = again.node_potentials()
        y = y.plus(more)
        problem = NetworkProblem(network, problem.p, problem.q, budget)
        links = again.tree()[2]
        problem.begin(links[links >= 0])
        better, y = _proved(problem, problem.carried, least)
        if better.gap < best[0].gap:
            best = better, y, problem
        if better.gap <= wanted or budget.spent:
            break
    return best
