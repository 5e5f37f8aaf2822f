"""Transport from a free measure to several fixed ones: barycenters and mixture coordinates, and their bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from ...core.double_double import DoubleDouble
from ...costs import Cost, DenseCost
from ...costs.problems import Problem
from .. import certificate
from ..certificate import PROGRAMME_GAP, ROUNDING, ROUNDS, SPENT, Certificate
from ..methods import optima
from ..refinement import CostScreen
from ..solution import Solution

Array = NDArray[np.float64]
Numbers = NDArray[Any]  # of Python integers, which stand for fixed-point numbers

_UNIT = Fraction(1, 2**53)
_ALL_ARCS = 100_000  # up to this number the linear programme has all arcs; for mixtures a fifth of it
_ASCENT = 4  # rounds that improve a lower bound
_ROUNDED = 8  # units in the last place within which weights agree
_EPS = 2.0**-52
_ALL_BITS = 1074  # binary digits behind the point of any double
_SPLIT = 1_000_000  # entries of a cost up to which the rounding errors of a mixture are points of their own
_OFF, _MORE = 2, 1 + 2.0**-40  # units in the last place of a share; what covers the rounding of a bound of an error

REASONS = {
    "time": SPENT,
    "memory": SPENT,
    "epochs": ROUNDS,
    "precision": ROUNDING,
    "weights": "the weights are rounded to the precision in which they are returned",
}
_BUDGETS = "time", "memory", "epochs"


def concluded(lower: float, upper: float, scale: float, ended: str, gap: float) -> tuple[Certificate, str]:
    """Return a certificate and its status from bounds, a key of `REASONS` and the gap that was asked for."""
    found = Certificate(lower, upper, upper, scale, REASONS.get(ended, ROUNDING))
    return certificate.concluded(found, gap=gap, spent=ended in _BUDGETS, closed=PROGRAMME_GAP)


class Bound(NamedTuple):
    """A certified lower bound, potentials (U, L) of all measures that prove it, and the mean of the U."""

    value: float
    U: Array
    L: Array
    mean: Array


@dataclass
class Optimum:
    """Weights of a free measure, and what is proved about them.

    Attributes
    ----------
    w : array of shape (K,)
        The weights.
    lower, upper : float
        A certified lower bound of the objective of all weights, and an upper bound of that of w.
    scale : float
        The sum of the absolute terms of the objective of w.
    rounds : int
        How often arcs were chosen.
    stage : str
        What was done last.
    ended : str
        Why the stages ended: "gap reached", or a key of `REASONS`.
    """

    w: Array
    lower: float
    upper: float
    scale: float = math.inf
    rounds: int = 0
    stage: str = ""
    ended: str = "precision"

    @property
    def gap(self) -> float:
        """The relative certified gap."""
        return certificate.relative_gap(self.lower, self.upper, self.scale)

    def concluded(self, gap: float) -> tuple[Certificate, str]:
        """Return what is proved, and its status, for a gap that was asked for."""
        return concluded(self.lower, self.upper, self.scale, self.ended, gap)

    def rounded(self, problem: FreeMeasure, dtype: DTypeLike) -> Optimum:
        """Return the weights in another precision, with the bounds of these."""
        w = self.w.astype(dtype)
        if w.dtype == self.w.dtype:
            return self
        found = problem.upper(w)[0]
        ended = self.ended
        if found.upper > self.upper and ended == "gap reached":
            ended = "weights"  # the reason, if the gap is open now
        return replace(self, w=w, upper=found.upper, scale=found.scale, ended=ended)


class FreeMeasure:
    r"""The problem of a free measure, and the bounds of its optimum.

    .. math:: \min_w \sum_i \lambda_i W(B^T w, x_i)

    over weights w with sum one. Targets, components and the lambda are taken as exact numbers, which need not be
    normalised: the shares of their sums are meant, in exact arithmetic. A mixture is ``B^T w`` of the rows of B as they
    are. The programme is solved with shares that are rounded, and the bounds allow for it.

    Parameters
    ----------
    targets : scipy.sparse.csr_array of shape (n, m)
        The measures as rows.
    weights : array of shape (n,)
        The lambda, positive.
    cost : Cost
        Between the points of the free measure and those of the targets, finite.
    components : array of shape (K, m), optional
        The rows of B; by default the identity.
    n_jobs : int, optional
        Threads over the measures.
    solutions : list of Solution, optional
        Those of the targets with some measure, whose bases are a start.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from gibbsot import GridCost
    >>> ends = sparse.csr_array(np.eye(5)[[0, 4]])
    >>> problem = FreeMeasure(ends, np.array([0.5, 0.5]), GridCost(5, spacing=1.0))
    >>> round(problem.upper(np.eye(5)[2])[0].upper, 9), round(problem.bound(problem.start()).value, 9)
    (4.0, 4.0)
    """

    def __init__(
        self,
        targets: sparse.csr_array,
        weights: Array,
        cost: Cost,
        components: Array | None = None,
        n_jobs: int | None = None,
        solutions: list[Solution] | None = None,
    ) -> None:
        self.targets, self.cost = targets, cost.astype(np.float64)
        self.n_jobs, self.least, self.solutions = n_jobs, cost.least(), solutions
        self.given, self.lambdas = targets.toarray(), [Fraction(float(x)) for x in weights]
        self.X, self.weights = _shares(self.given), weights / math.fsum(weights)
        self.components = None if components is None else np.asarray(components, np.float64)
        self.supports = [np.flatnonzero(x) for x in self.X]

    def start(self) -> Array:
        """Return potentials of the targets that prove a bound: what each target costs at least."""
        return np.asarray(self.cost.col_max(np.zeros(self.X.shape), self.n_jobs), np.float64)

    def upper(self, w: Array, near: list[Solution] | None = None) -> tuple[Certificate, list[Solution]]:
        """Return the exact objective of weights, rounded up, and the solutions; bases of other weights may help.

        The weights are as given, in double or in single precision; their shares are meant.
        """
        w = np.asarray(w)
        model = w.astype(np.float64)
        if self.components is None:
            return self._upper(model, self.cost, Fraction(0), near)
        mixture, moved = _mixture(model, self.components)
        found, solutions = self._upper(mixture, self.cost, moved, near)
        if float(moved) * self.cost.spread() > PROGRAMME_GAP / 100 * found.scale and self._splits:
            # what rounding leaves over is at points of its own: twice the rows of the cost
            split, moved = _split_mixture(model, self.components)
            exact, plans = self._upper(split, self._twice, moved, None)
            arcs = [each.plan.tocoo() for each in plans]
            lost = max(self.cost.vanishing(each.row % self.cost.shape[0], each.col) for each in arcs)
            found = min(found, exact.widened(self.cost.accuracy(), above=lost), key=lambda each: each.upper)
        return found, solutions

    def _upper(
        self, model: Array, cost: Cost, moved: Fraction, near: list[Solution] | None
    ) -> tuple[Certificate, list[Solution]]:
        """Return the exact objective of a measure of which some of the mass may be at another place."""
        P = np.tile(model, (len(self.X), 1))
        found = optima(Problem.checked(P, self.given, cost, np.ones(len(P))), n_jobs=self.n_jobs, warm_start=near)
        if not all(math.isfinite(each.upper) for each in found):
            return Certificate(-math.inf, math.inf, math.inf, math.inf, found[0].reason), found
        values, scales = (self._mean([Fraction(getattr(each, name)) for each in found]) for name in ("upper", "scale"))
        upper = certificate.rounded_up(values + moved * Fraction(self.cost.spread()))
        return Certificate(-math.inf, upper, upper, max(float(scales), abs(upper))), found

    @property
    def _splits(self) -> bool:
        """Whether a cost with twice the rows has exact costs, or those whose errors are relative, and fits."""
        return self.cost.rounding() == 0 and self.cost.shape[0] * self.cost.shape[1] <= _SPLIT

    @cached_property
    def _twice(self) -> DenseCost:
        """The cost with all rows twice."""
        return DenseCost(np.tile(self.cost.matrix(), (2, 1)))

    def doubles(self, w: Numbers) -> Iterator[Array]:
        """Return doubles next to weights that are integers, up to a factor.

        The share of a bin far away needs more digits than others: the weights of a target are divided by their sum, so
        that the share of a bin is exactly that of the target if the weight and the sum are. What rounding leaves over
        goes to bins that are near the one of most weight, where it costs least.
        """
        total = int(w.sum())
        rounded = np.array([float(Fraction(x, total)) for x in w.tolist()])
        yield rounded
        if self.components is not None:
            return
        order = np.argsort(self.cost.at(np.arange(len(w)), np.full(len(w), rounded.argmax())), kind="stable")
        far = [a for a in order.tolist() if rounded[a] > 0][-1]
        for i, x in enumerate(self.given):
            mass = self._masses[i]
            if x[far] > 0 and abs(Fraction(int(w[far]), total) / self.share(i, far) - 1) <= Fraction(2) ** -80:
                found = np.array([float(Fraction(x, total) * mass) for x in w.tolist()])
                yield _with_sum(found, mass, order)

    def share(self, i: int, j: int) -> Fraction:
        """Return the share of a bin in a target."""
        return Fraction(float(self.given[i, j])) / self._masses[i]

    @cached_property
    def _masses(self) -> list[Fraction]:
        """The sums of the targets."""
        return [sum(map(Fraction, x.tolist()), Fraction(0)) for x in self.given]

    def snapped(self, w: Array) -> Array:
        """Return weights without the rounding of the solver, where they agree with a target, or with one component.

        The weights of a target have no cost to it, and those of other doubles have: what the last digits cost.
        """
        if self.components is not None:
            alone = w >= (1 - _ROUNDED * _EPS) * math.fsum(w)
            return alone.astype(np.float64) if alone.any() else w
        if self.cost.shape[0] != self.cost.shape[1]:
            return w
        agree = (np.abs(w / math.fsum(w) - self.X) <= _ROUNDED * _EPS * (self.X + _EPS)).all(axis=1)
        return self.given[int(np.where(agree, self.weights, 0.0).argmax())] if agree.any() else w

    def _mean(self, values: list[Fraction]) -> Fraction:
        """Return the mean of numbers, with the weights of the targets."""
        total = sum((x * y for x, y in zip(self.lambdas, values, strict=True)), Fraction(0))
        return total / sum(self.lambdas)

    def bound(self, L: Array, rounds: int = _ASCENT) -> Bound:
        """Return the lower bound that potentials of the targets prove, improved by some rounds of c-transforms."""
        best = self._bound(L)
        for _ in range(rounds if self.components is None else 0):
            last = self._bound(np.asarray(self.cost.col_max(best.U - best.mean, self.n_jobs), np.float64))
            best = max(best, last, key=lambda each: each.value)
            if best is not last:
                break
        return best

    def _bound(self, L: Array) -> Bound:
        L = np.where(self.X > 0, L, np.inf)
        # around their medians potentials lose fewest digits; those that are returned have the gauge of L
        shifts = np.array([certificate.weighted_median(row[x > 0], x[x > 0]) for row, x in zip(L, self.X, strict=True)])
        L = L - shifts[:, None]
        U = np.asarray(self.cost.row_min(L, self.n_jobs), np.float64)
        own = U + shifts[:, None], L + shifts[:, None], self.weights @ U + self.weights @ shifts
        if (self.given[self.X == 0] > 0).any() or not np.isfinite(U).all():
            return Bound(self.least, *own)  # a share that has vanished
        # potentials that are feasible whatever was rounded, and their value
        f, g = certificate.below(U, np.where(self.X > 0, -L, 0.0), self.cost.depth)
        rows, size = certificate.matrix_product(self.weights, f, _OFF)
        if self.components is not None:
            rows, more = certificate.matrix_product(self.components, rows, _OFF)
            size = more + self.components @ size * _MORE
        targets, error = certificate.matrix_product(self.weights, self._of_targets(g), _OFF)
        value = Fraction(float((rows - size).min())) + Fraction(float(targets)) - Fraction(float(error))
        return Bound(max(certificate.rounded_down(value), self.least), *own)

    def exact_bound(self, g: Numbers, bits: int) -> float:
        """Return the lower bound that potentials of the targets prove, without rounding.

        Only pairs whose reduced cost is near zero in double precision are looked at, in integers.

        Parameters
        ----------
        g : array of int of shape (n, m)
            The potentials; those of targets without weight are ignored.
        bits : int
            Binary digits behind the point.

        Returns
        -------
        float
        """
        lambdas = fixed(np.array([float(x) for x in self.lambdas]), _ALL_BITS)
        means, total = np.zeros(self.cost.shape[0], object), Fraction(0)
        for x, own, j, weight in zip(self.given, g, self.supports, lambdas, strict=True):
            if not np.array_equal(np.flatnonzero(x), j):
                return -math.inf  # a share that has vanished
            mass = fixed(x[j], _ALL_BITS)
            middle = certificate.weighted_median(floats(own[j], bits), x[j])
            own = own[j] - fixed(np.array([middle]), bits)[0]
            means += weight * self._rows(own, j, bits)
            total += weight * Fraction(int(mass @ own), int(mass.sum()))
        if self.components is None:
            least = Fraction(int(means.min()))
        else:
            rows = fixed(self.components, _ALL_BITS)
            least = min(Fraction(int(row @ means), int(row.sum())) for row in rows)
        value = certificate.rounded_down((least + total) / int(lambdas.sum()) / Fraction(2) ** bits)
        found = Certificate(value, math.inf, math.inf, math.inf)
        return max(found.widened(self.cost.accuracy(), below=self.cost.underflow()).lower, self.least)

    def _rows(self, g: Numbers, columns: NDArray[np.intp], bits: int) -> Numbers:
        """Return lower bounds of the c-transform of the potentials of some columns: integers as these are."""
        rounded, h = floats(g, bits), np.full(self.cost.shape[1], np.inf)
        rounded += _EPS * np.abs(rounded)
        h[columns] = -rounded
        f = np.asarray(self.cost.row_min(h), np.float64)
        screen = CostScreen(self.cost, columns=columns)
        # pairs that are not listed have reduced costs above what double precision leaves open
        f += screen.share * (np.abs(f) + 2 * np.abs(rounded).max())
        near = screen.near(f, rounded)
        costs, size = screen.exact(near.i, near.j)
        error = fixed(2.0**-98 * size, bits) + 1 if costs.low.any() else 0
        U = fixed(np.minimum(f, near.limit), bits)
        np.minimum.at(U, near.i, fixed(costs.high, bits) + fixed(costs.low, bits) - error - g[near.j])
        return U

    def _of_targets(self, g: Array) -> Array:
        """Return lower bounds of ``<x, g>`` for each target."""
        rows = zip(self.given, g, self.supports, strict=True)
        return np.array([certificate.mean(x[j], own[j]).lower for x, own, j in rows])

    @property
    def small(self) -> bool:
        """Whether the programme may have all arcs, so that it needs no potentials."""
        return self.cost.shape[0] * self.targets.nnz <= (_ALL_ARCS if self.components is None else _ALL_ARCS // 5)


def _with_sum(w: Array, total: Fraction, order: NDArray[np.intp]) -> Array:
    """Return weights with a sum that is exactly the one given, if possible: the first of an order change."""
    w = w.copy()
    left = total - sum(map(Fraction, w.tolist()), Fraction(0))
    for a in order.tolist():
        if left == 0:
            break
        wanted = max(Fraction(float(w[a])) + left, Fraction(0))
        new = certificate.rounded_down(wanted)
        left -= Fraction(new) - Fraction(float(w[a]))
        w[a] = new
    return w


def _shares(rows: Array) -> Array:
    """Return rows divided by their sums, each of which is rounded once."""
    return rows / np.array([[math.fsum(row)] for row in rows.tolist()])


def _mixture(w: Array, components: Array) -> tuple[Array, Fraction]:
    """Return the mixture of components, rounded, and the share of its mass, at most, that is at another place by that.

    Products and sums keep their rounding errors, which are zero for a single component.
    """
    high, low = np.zeros(components.shape[1]), np.zeros(components.shape[1])
    for weight, row in zip(w.tolist(), components, strict=True):
        if weight > 0:
            product, lost = certificate.split_products(np.full_like(row, weight), row)
            high, error = DoubleDouble.sum(high, np.asarray(product, np.float64))
            low += error + lost
    # the errors of the errors, and products below the range of doubles
    least = len(w) ** 2 * 2.0**-100 * high + len(w) * 2.0**-1060 if low.any() else 0.0 * high
    moved = 2 * Fraction(float((np.abs(low) + least).sum())) / Fraction(float(high.sum()))
    return high, moved * Fraction(1001, 1000)


def _split_mixture(w: Array, components: Array) -> tuple[Array, Fraction]:
    """Return the mixture of components as two doubles for each point, first one and then the other, none negative.

    The second number is as for `_mixture`: what two doubles do not hold.
    """
    mixed = fixed(w, _ALL_BITS) @ fixed(components, _ALL_BITS)
    exact = [Fraction(x, 1 << 2 * _ALL_BITS) for x in mixed.tolist()]
    high = [certificate.rounded_down(x) for x in exact]
    low = [certificate.rounded_down(x - Fraction(y)) for x, y in zip(exact, high, strict=True)]
    held = sum(map(Fraction, [*high, *low]), Fraction(0))
    return np.array([*high, *low]), 2 * (sum(exact, Fraction(0)) / held - 1)


def fixed(x: Array, bits: int) -> Numbers:
    """Return doubles as integers with a number of binary digits behind the point, rounded down.

    Examples
    --------
    >>> import numpy as np
    >>> fixed(np.array([1.5, -0.75]), 1)
    array([3, -2], dtype=object)
    """
    mantissa, exponent = np.frexp(x)
    whole = (mantissa * 2.0**53).astype(np.int64).ravel().tolist()
    shifts = (exponent + (bits - 53)).ravel().tolist()
    found = np.empty(len(whole), object)
    found[:] = [n << k if k >= 0 else n >> -k for n, k in zip(whole, shifts, strict=True)]
    return found.reshape(np.shape(x))


def floats(x: Numbers, bits: int) -> Array:
    """Return integers with a number of binary digits behind the point as the nearest doubles."""
    unit = Fraction(2) ** -bits
    return np.array([float(n * unit) for n in x.tolist()])
