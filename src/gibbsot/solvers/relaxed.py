"""Mass that may be left over: partial transport as a balanced problem with additional points on either side.

Only this file knows the additional points. `Marginals` are those of balanced transport, `LeftOver` those of plans that
leave mass over: both turn measures into a balanced `Problem`, and its solutions back into those of the measures.

The additional points of a side take what the other side leaves over. The cost to them is the penalty of a point, and 0
between two of them; with a given mass it is 0, and infinite between two of them.

The balanced problem is exactly the one asked for. What is left over is a difference of sums, which is not a double in
general: it is the sum of a few positive doubles, and each of them is the weight of a point of its own. One point is
enough where the difference is a double, and most often two are. Chains prove nothing, and have one point with a rounded
weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..core import validation
from ..core.backend import backend
from ..costs import BorderedCost, Cost, DenseCost
from ..costs.problems import Problem, check_sums
from ..exact.certificate import Certificate, lower_bound
from ..exact.methods import optima
from ..exact.solution import Solution
from ..sampling.sampler import Info
from . import masses

Array = NDArray[np.floating]
Weights = NDArray[np.float64]
Measures = tuple[Weights, Weights]  # rows of weights and their sums
Penalty = float | tuple[ArrayLike, ArrayLike]  # of a unit of mass: for all points, or for those of p and of q

_ENTRIES = "penalty_p", "penalty_q"  # of files
_DOUBLE = np.dtype(np.float64)
_LEAST_SHARE = 2.0**-960  # of a mass that is transported: plans of mass one must have its digits


class PartialProblem(Problem):
    """Balanced problems with additional points, which are the last of either side.

    Attributes
    ----------
    p, q, cost, given, mass
        As of `Problem`, with the additional points.
    between : Cost
        The cost without them.
    size : pair of int
        The numbers of points without them.
    """

    _size: tuple[int, int]
    _inner: Cost | None

    @property
    def between(self) -> Cost:
        """The cost between the points of the measures, without the additional ones."""
        m1, m2 = self._size
        return self.cost.subset(np.arange(m1), np.arange(m2)) if self._inner is None else self._inner

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of points without the additional ones."""
        return self._size

    @classmethod
    def of(cls, p: Weights, q: Weights, cost: Cost, size: tuple[int, int], inner: Cost | None) -> PartialProblem:
        """Return problems of weights that include those of the additional points.

        The inner cost is that without them, None where it is a matrix: that is part of the matrix of the cost.
        """
        made = cls.checked(p, q, cost, np.array([_total(row, "p, q") for row in p.tolist()]))
        assert isinstance(made, PartialProblem)
        made._size, made._inner = size, inner
        return made

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> PartialProblem:
        p, q = self.given
        return PartialProblem.of(p[rows], q[rows], self.cost, self.size, self._inner)

    def with_cost(self, cost: Cost) -> PartialProblem:
        return PartialProblem.of(*self.given, cost, self.size, self._inner)


class PartialSolution(Solution):
    """A solution without the additional points; its plan and potentials are computed when first used.

    Parameters
    ----------
    balanced : Solution
        The solution with them.
    size : pair of int
        The numbers of points without them.
    """

    def __init__(self, balanced: Solution, size: tuple[int, int]) -> None:
        names = ("value", "lower", "upper", "status", "scale", "rounds", "reason")
        vars(self).update({name: getattr(balanced, name) for name in names}, _balanced=balanced, _size=size)

    _balanced: Solution
    _size: tuple[int, int]

    @property
    def f(self) -> Weights:
        """Potentials of the points of p; those of the additional points of q are zero."""
        return self._balanced.f[: self._size[0]] + self._balanced.g[self._size[1]]

    @property
    def g(self) -> Weights:
        """Potentials of the points of q."""
        return self._balanced.g[: self._size[1]] + self._balanced.f[self._size[0]]

    @cached_property
    def plan(self) -> sparse.csr_array:
        """What is transported; nothing where there is no plan yet."""
        m1, m2 = self._size
        return sparse.csr_array((m1, m2)) if np.isinf(self.upper) else self._balanced.plan[:m1, :m2]

    @property
    def between(self) -> float:
        """The sum of the potentials of additional points of both sides."""
        return float(self._balanced.f[self._size[0]] + self._balanced.g[self._size[1]])

    @property
    def basis(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Those of the balanced problem, from which a similar one may start."""
        return self._balanced.basis

    @property
    def links(self) -> Any:
        """What finds the links of the tree of the balanced problem in a network, None if it has none."""
        return getattr(self._balanced, "links", None)


class Marginals:
    """What the marginals of plans are: the measures, whose sums agree.

    Parameters
    ----------
    cost : Cost
        The cost of all problems.

    Attributes
    ----------
    cost : Cost
        The parameter.
    fixed : bool
        Whether the masses of measures are fixed, so that only differences of potentials matter.
    """

    fixed = True

    def __init__(self, cost: Cost) -> None:
        self.cost = cost

    @property
    def chain_cost(self) -> Cost:
        """The cost of the problems of chains."""
        return self.cost

    @property
    def unrounded(self) -> Marginals:
        """The same for the cost before it was rounded to single precision."""
        return Marginals(self.cost.unrounded())

    @property
    def least(self) -> float:
        """The least value of problems of mass one, or a lower bound of it."""
        return self.cost.least()

    def problem(
        self, p: Measures, q: Measures, tolerance: float = 1e-6, names: tuple[str, str] = ("p", "q")
    ) -> Problem:
        """Return balanced problems for exact solvers.

        Parameters
        ----------
        p, q : pairs of arrays of shape (n, m1) and (n,), and (n, m2) and (n,)
            Weights and masses of the measures, which were checked.
        tolerance : float
            How far the sums of a pair may differ by rounding, relatively. The mass is then that of p.
        names : pair of str
            What the caller calls the measures.

        Returns
        -------
        Problem
        """
        (a, mass), (b, other) = p, q
        check_sums(mass, other, names, tolerance)
        if not self.cost.finite:
            Problem(a, b, self.cost, normalize=True, names=names)  # refuses points that no finite cost leads to
        return Problem.checked(a, b, self.cost, mass)  # solvers divide each measure by its own sum

    def chains(self, p: Measures, q: Measures, tolerance: float = 1e-6, names: tuple[str, str] = ("p", "q")) -> Problem:
        """Return balanced problems for chains; a mass that is one but for rounding is one."""
        pair = self.problem(p, q, tolerance, names)
        mass = np.where(np.abs(pair.mass - 1) <= tolerance, 1.0, pair.mass)
        return Problem.checked(*pair.given, pair.cost, mass)

    def solve(
        self, problem: Problem, U: Array | None = None, warm_start: list[Any] | None = None, **options: Any
    ) -> list[Solution]:
        """Return the solutions of problems, of mass one.

        Parameters
        ----------
        problem : Problem
            What `problem` returned.
        U : array of shape (n, m1), optional
            Potentials of chains from which problems cross over.
        warm_start : list of Solution, optional
            Solutions that this returned for similar problems, or anything with their ``basis``.
        **options
            As for `optima`.

        Returns
        -------
        list of Solution
        """
        return optima(problem, U, warm_start=warm_start, **options)

    def with_masses(self, problem: Problem, solutions: list[Solution]) -> list[Solution]:
        """Return solutions for the masses that matter: here measures are normalised."""
        return solutions

    def gradients(self, f: Weights, g: Weights) -> tuple[Weights, Weights]:
        """Return the gradients of optima with respect to the weights of both measures: the optimal potentials."""
        return f, g

    def kept(self, p: Weights, q: Weights, f: Weights, g: Weights) -> tuple[Weights, Weights, Weights]:
        """Return lower bounds of W of rows of weights from feasible potentials, and the gradients of these bounds."""
        return (p * f).sum(axis=1) + (q * g).sum(axis=1), f, g

    def bounds(self, chains: Problem, p: Measures, q: Measures, U: Array, **options: Any) -> tuple[Weights, Weights]:
        """Return certified bounds of W of measures from the potentials of their chains."""
        found = optima(chains, U, max_rounds=1, **options)
        return lower_bound(chains, np.stack([one.f for one in found])), np.array([one.upper for one in found])

    def of_chains(self, problem: Problem, info: Info) -> tuple[Weights, Array, Array]:
        """Return values and potentials U and L that the last sweep of chains showed."""
        return problem.mass * info.value, info.U, info.L

    def measures(self, chains: Problem) -> tuple[Weights, Weights]:
        """Return the measures of problems of chains, all divided by the mass."""
        return chains.p, chains.q

    def chain_points(self, targets: sparse.csr_array) -> sparse.csr_array:
        """Return rows with an entry for every point that a chain to a target has."""
        return targets

    def chain_potentials(self, L: Array) -> Array:
        """Return potentials of the points of chains from those of the targets."""
        return L


class LeftOver(Marginals):
    """The marginals of plans are at most the measures, and what is left over has a penalty, or a given mass is moved.

    Parameters
    ----------
    cost : Cost
        The cost.
    penalty : float or pair, optional
        What a unit of mass costs that is left over: the same for all points, or one for p and one for q, each a number
        or an array with an entry for every point.
    mass : float, optional
        The mass that is transported, if there is no penalty. One that exceeds the sum of a measure by at most 1e-12
        of it, as sums of rounded weights may be, is that sum.

    Attributes
    ----------
    cost, fixed
        As of `Marginals`.

    Raises
    ------
    ValueError, TypeError
        If both or neither of penalty and mass are given, or the penalty is not valid.

    Examples
    --------
    >>> marginals = LeftOver(DenseCost([[0.0, 5.0], [5.0, 0.0]]), penalty=([1.0, 2.0], 3.0))
    >>> marginals.chain_cost.matrix()
    array([[0., 5., 1.],
           [5., 0., 2.],
           [3., 3., 0.]])
    """

    fixed = False

    def __init__(self, cost: Cost, penalty: Any = None, mass: float | None = None) -> None:
        if (penalty is None) == (mass is None):
            raise ValueError("mass: expected either mass or penalty, got both")
        self.cost, self._mass = cost, mass
        self._outer = penalties(0.0 if penalty is None else penalty, cost.shape, cost.dtype)
        self._corner = 0.0 if mass is None else np.inf

    @cached_property
    def chain_cost(self) -> Cost:
        """The cost with one more point on either side."""
        return self._matrix(self.cost, (1, 1))

    @property
    def unrounded(self) -> LeftOver:
        return LeftOver(self.cost.unrounded(), None if self._mass is not None else self._outer, self._mass)

    @property
    def least(self) -> float:
        # a unit that is transported takes part of the masses of both measures
        return min(self.cost.least() / 2, *(float(np.min(x)) for x in self._outer))

    def memory(self, exact: bool) -> float:
        """Return the bytes that `problem` takes for a matrix and its copies; 0 if it makes none."""
        m1, m2 = self.cost.shape
        return 0.0 if self._borders(exact) else (16.0 if self.cost.has_matrix else 24.0) * (m1 + 1) * (m2 + 1)

    def _borders(self, exact: bool) -> bool:
        """Tell whether problems have the cost itself inside: a matrix would round its entries, and bounds are its."""
        return exact and backend().has_simplex and not self.cost.has_matrix

    def problem(
        self, p: Measures, q: Measures, tolerance: float = 1e-6, names: tuple[str, str] = ("p", "q"), exact: bool = True
    ) -> Problem:
        """Return balanced problems with additional points on either side.

        Parameters
        ----------
        p, q
            As for `Marginals.problem`.
        tolerance, names
            Not used: masses may differ.
        exact : bool
            Whether the problems are solved exactly: costs are then in double precision, and have no matrix that
            would round them.

        Returns
        -------
        PartialProblem

        Raises
        ------
        ValueError
            If the mass is more than a measure has or vanishes beside it, or sums are beyond the range of doubles.
        """
        rows, columns = (_padded(list(side)) for side in zip(*self._spare(p, q), strict=True))
        extra, cost = (rows.shape[1], columns.shape[1]), self.cost.astype(np.float64) if exact else self.cost
        bordered = self._borders(exact)
        more = BorderedCost(cost, self._outer, self._corner, extra) if bordered else self._matrix(cost, extra)
        p_all, q_all = np.column_stack([p[0], rows]), np.column_stack([q[0], columns])
        return PartialProblem.of(p_all, q_all, more, cost.shape, None if cost.has_matrix else self.cost)

    def chains(self, p: Measures, q: Measures, tolerance: float = 1e-6, names: tuple[str, str] = ("p", "q")) -> Problem:
        """Return problems of chains: both sides have one additional point, whose weight is rounded."""
        a, b = np.column_stack([p[0], q[1]]), np.column_stack([q[0], p[1]])
        return Problem.checked(a, b, self.chain_cost, a.sum(axis=1))

    def _spare(self, p: Measures, q: Measures) -> list[_Spare]:
        """Return the weights of the additional points of each problem."""
        (a, a_sum), (b, b_sum), mass = p, q, self._mass
        every = list(zip(a.tolist(), b.tolist(), strict=True))
        if mass is None:
            return [_exchanged(x, y) for x, y in every]
        least = min(a_sum.min(), b_sum.min())
        if validation.nonnegative(mass, "mass") > least * (1 + 1e-12) or mass == 0:
            raise ValueError(f"mass: expected a positive number of at most {least:.9g}, the least mass; got {mass!r}")
        most = max(a_sum.max(), b_sum.max())
        if mass < _LEAST_SHARE * most:
            raise ValueError(
                f"mass: {mass:.3g} beside a mass of {most:.3g} is beyond the range of float64; expected a larger share"
            )
        return [_left_over(x, y, float(mass)) for x, y in every]

    def _matrix(self, cost: Cost, extra: tuple[int, int]) -> DenseCost:
        """Return a cost with more points on either side."""
        m1, m2 = cost.shape
        C = np.full((m1 + extra[0], m2 + extra[1]), self._corner)
        C[:m1, :m2], C[:m1, m2:], C[m1:, :m2] = cost.stored(), self._outer[0][:, None], self._outer[1]
        return DenseCost(C, cost.dtype)

    def solve(
        self, problem: Problem, U: Array | None = None, warm_start: list[Any] | None = None, **options: Any
    ) -> list[Solution]:
        U = None if U is None else refitted(U, problem, 0)
        arcs = None if warm_start is None else refitted_starts(warm_start, problem)
        return without_points(problem, optima(problem, U, warm_start=arcs, **options))

    def with_masses(self, problem: Problem, solutions: list[Solution]) -> list[Solution]:
        """Return solutions for the masses given, as they matter."""
        (lower, upper), value = masses.bounds(problem, solutions), masses.values(problem, solutions)
        found = []
        for b, (one, plan) in enumerate(zip(solutions, transported_plans(problem, solutions), strict=True)):
            numbers = Certificate(lower[b], upper[b], value[b], problem.mass.item(b) * one.scale, one.reason)
            found.append(Solution.of(numbers, one.status, one.f, one.g, plan, one.rounds))
        return found

    def bounds(self, chains: Problem, p: Measures, q: Measures, U: Array, **options: Any) -> tuple[Weights, Weights]:
        problem = self.unrounded.problem(p, q)
        found = self.with_masses(problem, self.solve(problem, U, max_rounds=1, **options))
        return np.array([one.lower for one in found]), np.array([one.upper for one in found])

    def of_chains(self, problem: Problem, info: Info) -> tuple[Weights, Array, Array]:
        # the weight of each additional point is the mass of the other measure
        return problem.mass * info.value, *_outer_potentials(info.U, info.L, self.cost.shape)

    def measures(self, chains: Problem) -> tuple[Weights, Weights]:
        return chains.p[:, :-1], chains.q[:, :-1]

    def chain_points(self, targets: sparse.csr_array) -> sparse.csr_array:
        return sparse.csr_array(sparse.hstack([targets, np.ones((targets.shape[0], 1))], format="csr"))

    def chain_potentials(self, L: Array) -> Array:
        return np.column_stack([L, np.zeros_like(L, shape=len(L))])


def check_normalize(normalize: bool, penalty: Any, other: Any = None) -> None:
    """Refuse to normalise measures whose masses matter: with a penalty, a mass to be moved, or divergences."""
    if normalize and (penalty is not None or other is not None):
        raise ValueError("normalize: masses matter where they may change; expected False with penalty, mass or kl")


def marginals(cost: Cost, penalty: Any = None) -> Marginals:
    """Return the marginals of plans: the measures, or at most these where there is a penalty.

    Examples
    --------
    >>> marginals(DenseCost([[1.0]])).fixed, marginals(DenseCost([[1.0]]), 2.0).fixed
    (True, False)
    """
    return Marginals(cost) if penalty is None else LeftOver(cost, penalty)


def penalties(penalty: Any, shape: tuple[int, int], dtype: np.dtype[Any] = _DOUBLE) -> tuple[Weights, Weights]:
    """Return what a unit of mass costs that is left over, for every point of p and of q.

    Parameters
    ----------
    penalty : float or pair
        A number, or a pair for p and q: each a number, or an array with an entry for every point of that side.
    shape : pair of int
        The numbers of points m1 and m2.
    dtype : dtype
        The precision of the costs, which has a largest number.

    Returns
    -------
    pair of arrays of shape (m1,) and (m2,)

    Raises
    ------
    ValueError, TypeError
        If numbers are negative, not finite or too large, or arrays have other shapes.

    Examples
    --------
    >>> penalties((1, [2, 3, 4]), (2, 3))
    (array([1., 1.]), array([2., 3., 4.]))
    """
    sides = _sides(penalty)
    names = ("penalty", "penalty") if sides[0] is penalty else ("penalty[0]", "penalty[1]")
    first, second = (_of_points(*one, dtype) for one in zip(sides, names, shape, strict=True))
    return first, second


def penalties_of_clouds(penalty: Any) -> tuple[float, float] | None:
    """Return the penalties of both sides for clouds of any sizes: numbers only.

    Examples
    --------
    >>> penalties_of_clouds(1), penalties_of_clouds(None)
    ((1.0, 1.0), None)
    """
    if penalty is None:
        return None
    if any(map(_several, _sides(penalty))):
        raise ValueError("penalty: expected a number or a pair of numbers for clouds of points, got an array")
    first, second = penalties(penalty, (1, 1))
    return float(first[0]), float(second[0])


def penalty_arrays(penalty: Any) -> dict[str, NDArray[Any]]:
    """Return a penalty as entries of a file; none without one."""
    return {} if penalty is None else dict(zip(_ENTRIES, map(np.asarray, _sides(penalty)), strict=True))


def penalty_of(arrays: Mapping[str, NDArray[Any]]) -> Penalty | None:
    """Return the penalty that `penalty_arrays` described."""
    if _ENTRIES[0] not in arrays:
        return None
    first, second = (arrays[name] for name in _ENTRIES)
    if not first.ndim and not second.ndim and first == second:
        return float(first)
    return first if first.ndim else float(first), second if second.ndim else float(second)


def constant(penalty: Any) -> Any:
    """Return a penalty that has a hash, the same for equal ones: arrays become tuples.

    Examples
    --------
    >>> constant(np.array([1.0, 2.0])), constant((1.0, np.array([2.0, 3.0]))), constant(None)
    ((1.0, 2.0), (1.0, (2.0, 3.0)), None)
    """
    if not _several(penalty):
        return penalty
    return tuple(tuple(np.asarray(x).tolist()) if _several(x) else float(x) for x in _sides(penalty))


def _sides(penalty: Any) -> tuple[Any, Any]:
    """Return what is given for p and for q."""
    if not _several(penalty):
        return penalty, penalty
    if len(penalty) != 2:
        raise ValueError(f"penalty: expected a number, or a pair for p and q; got {len(penalty)} entries")
    return penalty[0], penalty[1]


def _several(x: Any) -> bool:
    """Tell whether this is not a number but a sequence or an array."""
    return isinstance(x, tuple | list) or getattr(x, "ndim", 0) > 0


def _of_points(penalty: Any, name: str, m: int, dtype: np.dtype[Any]) -> Weights:
    """Return the penalties of the points of one side."""
    if not _several(penalty):
        given = np.array(validation.number(penalty, name))
    else:
        given = validation.real(penalty, name).astype(np.float64)
        if given.shape != (m,):
            raise ValueError(f"{name}: expected a number or one for each of the {m} points, got shape {given.shape}")
    most = validation.largest_cost(dtype)
    if (given > most).any() and np.isfinite(given).all():
        raise ValueError(f"{name}: expected at most {most:.2g} with costs of {dtype}, got {given.max().item()!r}")
    if not (np.isfinite(given) & (given >= 0)).all():
        wrong = given[~(np.isfinite(given) & (given >= 0))].item(0)
        raise ValueError(f"{name}: expected a finite number of at least 0, got {wrong!r}")
    return np.full(m, given)


class _Spare(NamedTuple):
    """The weights of the additional rows and columns of a problem."""

    rows: list[float]
    columns: list[float]


def _left_over(p: list[float], q: list[float], mass: float) -> _Spare:
    """Return what both sides leave over of a mass, exactly; each side takes what the other one leaves."""
    moved = [mass]
    if _sum(p, [mass]) < 0 or _sum(q, [mass]) < 0:  # by the rounding of sums: then it is the lesser of them
        moved = p if _sum(p, q) <= 0 else q
    return _Spare(_parts(q, moved), _parts(p, moved))


def _exchanged(p: list[float], q: list[float]) -> _Spare:
    """Return masses of additional points for a penalty.

    They may be larger than what the other side can leave over, as mass between two of them costs nothing. So the lesser
    side is rounded up to a double, and only the difference of the sums must be exact.
    """
    less, more = (p, q) if _sum(p, q) <= 0 else (q, p)
    enough = math.fsum(less)
    if _sum(less, [enough]) > 0:
        enough = math.nextafter(enough, math.inf)
    exact = _parts([enough, *more], less)
    return _Spare(exact, [enough]) if more is q else _Spare([enough], exact)


def _parts(plus: list[float], minus: list[float]) -> list[float]:
    """Return positive doubles, largest first, whose exact sum is a difference of sums that is not negative.

    Examples
    --------
    >>> _parts([1e16, 0.5], [0.1])
    [1e+16, 0.39999999999999997, 2.7755575615628914e-17]
    """
    found: list[float] = []
    while (rest := _sum(plus, [*minus, *found])) > 0:
        if _sum(plus, [*minus, *found, rest]) < 0:  # rounded up
            rest = math.nextafter(rest, 0.0)
        found.append(rest)
    return found


def _sum(plus: list[float], minus: list[float]) -> float:
    """Return a difference of sums, rounded once: its sign is exact."""
    try:
        return math.fsum([*plus, *(-x for x in minus)])
    except OverflowError:
        return _total([*plus, *(-x for x in minus)], "p, q")


def _total(weights: list[float], name: str) -> float:
    """Return a sum, rounded once, and refuse one that overflows."""
    try:
        return math.fsum(weights)
    except OverflowError:
        raise ValueError(
            f"{name}: the mass of both measures is beyond the range of float64; scale the weights"
        ) from None


def _padded(parts: list[list[float]]) -> Weights:
    """Return weights as rows of one length, at least one; additional points of other problems have weight zero."""
    found = np.zeros((len(parts), max(1, *map(len, parts))))
    for row, own in zip(found, parts, strict=True):
        row[: len(own)] = own
    return found


def refitted(x: NDArray[Any], problem: Problem, side: int) -> NDArray[Any]:
    """Return potentials, as rows, for as many additional points as a side of the problem has.

    They come from a problem of the same size with other weights, whose left over mass had more or fewer parts. All
    additional points of a side have the same costs, and so the same potential.
    """
    m, n = problem.size[side], problem.cost.shape[side]
    return x if x.shape[1] == n else np.concatenate([x[:, :m], np.repeat(x[:, m : m + 1], n - m, axis=1)], axis=1)


class _Start(NamedTuple):
    """Arcs and potentials from which a problem may start, as `Solution` has them."""

    basis: tuple[NDArray[np.int32], NDArray[np.int32]]
    f: Weights | None
    links: Any = None


def refitted_starts(solutions: Sequence[Any], problem: Problem) -> list[Any]:
    """Return bases and potentials of solutions, for the additional points that the problem has."""
    (m1, m2), found = problem.cost.shape, []
    for one in solutions:
        (i, j), f = one.basis, getattr(one, "_balanced", one).f
        links = getattr(one, "links", None)
        if f is not None and len(f) == problem.size[0]:  # without additional points, whose potentials are zero then
            f = np.append(f, 0.0)
        kept = (i < m1) & (j < m2)
        found.append(_Start((i[kept], j[kept]), None if f is None else refitted(f[None], problem, 0)[0], links))
    return found


def start_from(
    U: Array, solved: Sequence[Any] | None, before: Problem, problem: Problem
) -> tuple[Array, list[Any] | None]:
    """Return potentials and bases of solved problems for problems of the same size with other weights."""
    if solved is not None and before.cost.shape != problem.cost.shape:
        solved = refitted_starts(solved, problem)
    return refitted(U, problem, 0), None if solved is None else list(solved)


def without_points(problem: Problem, solutions: list[Solution]) -> list[Solution]:
    """Return solutions without the additional points, still of problems of mass one."""
    if not isinstance(problem, PartialProblem):
        return solutions
    return [PartialSolution(one, problem.size) for one in solutions]


def potentials_without_points(problem: Problem, U: Array, L: Array) -> tuple[Array, Array]:
    """Return the paper's potentials without the additional points."""
    return _outer_potentials(U, L, problem.size) if isinstance(problem, PartialProblem) else (U, L)


def _outer_potentials(U: Array, L: Array, size: tuple[int, int]) -> tuple[Array, Array]:
    """Return U and L of the points of measures; those of the additional points become zero."""
    m1, m2 = size
    return U[:, :m1] - L[:, m2 : m2 + 1], L[:, :m2] - U[:, m1 : m1 + 1]


def transported_plans(problem: Problem, solutions: Sequence[Solution]) -> list[Any]:
    """Return what is transported, of the masses given, from solutions without the additional points."""
    plans = masses.plans(problem, [one.plan for one in solutions])
    for plan, mass, a, b in zip(plans, problem.mass.tolist(), *problem.given, strict=True):
        if mass != 1:
            rows = np.repeat(np.arange(plan.shape[0]), np.diff(plan.indptr))
            plan.data[:] = masses.in_weights(plan.data, b[plan.indices], a[rows])
    for plan in plans if isinstance(problem, PartialProblem) else ():
        plan.eliminate_zeros()  # masses that are below the range of doubles
    return plans


def flows(problem: Problem, balanced: Sequence[Solution]) -> list[Any]:
    """Return what moves along the edges of a graph or grid, of the masses given, from solutions of balanced problems.

    Raises
    ------
    AttributeError
        If the cost is not a shortest path.
    """
    network = problem.cost.network()
    if network is None:
        raise AttributeError(f"flow: {problem.cost!r} is not a shortest path along the edges of a graph or grid")
    found = [getattr(one, "flow", None) for one in balanced]
    every = [network.routed(one.plan) if flow is None else flow for flow, one in zip(found, balanced, strict=True)]
    if isinstance(problem, PartialProblem):  # the nodes of the graph come first
        inner = network.nodes - sum(problem.size) - 2
        every = [flow[:inner, :inner] for flow in every]
    every = masses.plans(problem, every)
    for flow, mass in zip(every, problem.mass.tolist(), strict=True):
        if mass != 1:
            flow.data[:] = masses.in_weights(flow.data)
    return every


def multipliers(problem: Problem, solutions: Sequence[Solution]) -> list[float]:
    """Return the costs of one more unit of mass, from solutions without the additional points: zero with a penalty."""
    given = isinstance(problem, PartialProblem) and np.isinf(problem.cost.at(*problem.size))
    return [-one.between if given and isinstance(one, PartialSolution) else 0.0 for one in solutions]
