r"""The one place that proves bounds of W, and that says "optimal".

**What is proved.** Weights are taken as exact numbers, and so are costs up to the error that a cost states for
itself. A *plan* gives ``W <= <plan, M>``; its masses are the exact flows of a tree, rounded to within three units in
the last place each. *Potentials* with ``f_i + g_j <= M_ij`` for all pairs give ``<p, f> / sum(p) + <q, g> / sum(q) <=
W``. Both numbers are rounded outwards.

**The rule** (`status`). "optimal" if and only if the upper bound is finite and ``upper - lower <= 1e-10 * scale``,
where ``scale = <plan, |M|>`` is the sum of the absolute terms of the objective, the value itself where costs are not
negative. Equal bounds have gap 0. Otherwise "gap reached" (a gap was asked for, with the same denominator), "budget
spent" or "gap open", with a reason that the warning states. `concluded` applies the rule and finds the reason.

**Error analysis.** With u = 2^-53, and numbers that were scaled by powers of two to at most one:

- *Sums.* `enclose` splits each product into a double and its error (Dekker), which is exact above 2^-969. The rounding
  error of each addition is a double, too, and all these errors are added in double precision. Kernels add in lanes of
  k <= 32 terms, whose errors amount to at most ``k u S``, S the sum of absolute terms; their own sum has 2 k terms and
  is off by at most ``2 k u`` of that. Lanes are added in double-double, each to within ``3 u^2 S``: in all it is
  ``(2048 + n / 8) u^2 S``. NumPy adds all pairwise: with n terms in L = log2(2 n) levels the errors amount to at most
  ``L u S``, their sum is off by at most ``(n + L) u`` of that, and the result by ``(n + L) L u^2 S``. `enclose` adds
  ``65 (n + 64) u^2 S`` (n < 2^63), which is more than either, and 2^-1069 for each term that may have lost digits
  below the normal range. `exact_sum` has no rounding error at all (`math.fsum`). Sums, quotients and differences of
  enclosures are rational numbers; the only other rounding is the last one, outwards.
- *Plan.* Each mass may be off by three units in the last place (those of kernels are rounded once), so that ``<plan,
  M>`` is within ``6 u <plan, |M|>`` of the cost of an exact coupling. A fourth unit covers the summation. It is
  relative to the scale, whatever the potentials are.
- *Potentials in doubles.* The computed ``min_j (c_ij - g_j)`` is off by at most (depth + 1) rounded operations on
  terms of the size of f_i, of g_j or of their sum. `below` lowers every potential by as much, relative to itself, so
  the potentials that remain are feasible in exact arithmetic. This costs ``4 (depth + 1) u (<p, |f|> + <q, |g|>)``,
  which is negligible unless potentials are tens of thousands of times the value.
- *Potentials in double-double* (`refinement`), where that is not negligible. Potentials follow the tree of the plan
  as unevaluated sums of two doubles. A reduced cost ``c_ij - f_i - g_j`` in double arithmetic is off by at most ``16
  u (|f_i| + |g_j|)``; pairs for which it is larger than that are feasible. Only the others are evaluated again, in
  double-double, to within ``2^-98 (|c_ij| + |f_i| + |g_j|)``, and f_i is lowered by the largest violation of its row
  plus that error, or g_j where column j has far less weight. What this costs is part of the lower bound. If it is too
  much, pairs whose cost is a double are evaluated once more without any rounding, and the violated arcs enter the
  simplex, whose costs are now the reduced costs: they are of the size of the violations, and double precision is
  enough again. Arcs without flow whose costs are 2^48 times the value or more are cut, and the parts of the tree
  shifted against each other, before even these digits are lost.
- *Costs that no plan pays* (`far_costs`). Where they are more than 2^20 times those that a plan pays, costs are lowered
  before any of this. Potentials below lowered costs are below the costs, and a plan that uses none of them costs the
  same, so the bounds need no other argument.
- *Costs of points* are computed to within a relative error delta = (d + 2) u for squares and (d / 2 + 2) u for roots,
  up to terms of second order (`Cost.accuracy`), or (d + 6) u where they stand for those of a grid. For costs that are
  not negative, costs between ``(1 - delta) c`` and ``(1 + delta) c`` have an optimum between ``(1 - delta) W_c`` and
  ``(1 + delta) W_c``, so what is proved for the doubles c is widened by delta, relative to the value:
  `Certificate.widened`. Squares that vanish add an absolute error. Costs of grids are sums of the stored entries of
  the axes, exact in double-double.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..core.backend import backend
from ..core.warn import warn
from ..costs import Cost
from ..costs.problems import Problem

Array = NDArray[np.floating]

OPTIMAL_GAP = 1e-10  # the largest gap of an optimum: far above rounding, far below what anybody measures
# Barycenters and mixture coordinates are programmes that an interior-point method solves in double precision. Its
# normal equations square the condition number, so that its last iterates have half the digits of a simplex.
PROGRAMME_GAP = 1e-9
# Of a gap: what engines aim at where their bounds are rounded once more, as those for the masses given are. That takes
# some units in the last place, far less than the hundredth that this leaves.
MARGIN = 0.99
# Violations of arcs that a solver need not look at, relative to the value: a hundredth of the gap of an optimum.
NEGLIGIBLE_VIOLATION = 2.0**-40

PROVED = ("optimal", "gap reached")  # the states in which a solver ends as it should

SPENT = "the time or memory allowed was used up"
NO_PLAN = "the time or memory allowed was used up before there was a plan without forbidden pairs"
ROUNDS = "the largest number of rounds was reached"
ROUNDING = "the costs or weights differ by more orders of magnitude than the arithmetic can resolve"
FORBIDDEN = "the plan found so far needs pairs that infinite costs forbid"
_OF_BUDGETS = (SPENT, NO_PLAN, ROUNDS)

_NEGLIGIBLE = 2.0**-60  # relative: what disappears in the last rounding

_UNIT = 2.0**-53
_DOUBLES = 8  # whose sum an exact sum is, each below half a unit in the last place of the one before
_ULP = 2.0**-52
_TINY = 2.0**-1070  # some units of the smallest number
_NONE = np.empty(0)


def relative_gap(lower: float, upper: float, scale: float) -> float:
    """Return ``(upper - lower) / scale``: 0 where the bounds are equal, infinite where that is undefined.

    Examples
    --------
    >>> relative_gap(1.0, 1.5, 2.0), relative_gap(0.0, 0.0, 0.0), relative_gap(0.0, 1.0, 0.0)
    (0.25, 0.0, inf)
    """
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return math.inf
    if upper <= lower:
        return 0.0
    return (upper - lower) / scale if scale > 0 else math.inf


def scale_of(value: float) -> float:
    """Return the sum of the absolute terms of an objective of which only the value is known, or less.

    It is the value where no cost is negative, and otherwise at least that, so that a gap is not understated.
    """
    return abs(value)


def enough(lower: float, gap: float) -> float:
    """Return the largest value within a relative gap of a lower bound, for an objective without negative terms.

    Examples
    --------
    >>> enough(1.0, 0.5), enough(1.0, 1.0), enough(-1.0, 2.0)
    (2.0, inf, -inf)
    """
    if gap < 1:
        return lower / (1 - gap)
    return math.inf if lower >= 0 else -math.inf


def status(
    lower: float, upper: float, scale: float, *, gap: float = 0.0, spent: bool = False, closed: float = OPTIMAL_GAP
) -> str:
    """Return what bounds prove: the only rule of "optimal".

    Parameters
    ----------
    lower, upper : float
        Certified bounds.
    scale : float
        The sum of the absolute terms of the objective.
    gap : float
        The relative gap that was asked for.
    spent : bool
        Whether the time or memory allowed was used up.
    closed : float
        The relative gap of an optimum: `OPTIMAL_GAP`, or `PROGRAMME_GAP`.

    Returns
    -------
    {"optimal", "gap reached", "budget spent", "gap open"}

    Examples
    --------
    >>> status(1.0, 1.0 + 1e-11, 1.0), status(1.0, 1.1, 1.0, gap=0.2), status(1.0, 1.1, 1.0), status(0.0, 0.0, 0.0)
    ('optimal', 'gap reached', 'gap open', 'optimal')
    """
    found = relative_gap(lower, upper, scale)
    if found <= closed:
        return "optimal"
    if found <= gap:
        return "gap reached"
    return "budget spent" if spent else "gap open"


def closed(lower: Array, upper: Array, scale: Array, mass: Array) -> NDArray[np.bool_]:
    """Return which of many gaps are closed, also after one more rounding of the bounds for the masses given.

    These have the status "optimal" by the rule of `status`. Numbers near the ends of the range of doubles do not
    count: there a closer look is needed.

    Parameters
    ----------
    lower, upper, scale : arrays of shape (n,)
        Bounds and sums of absolute terms, for measures of mass one.
    mass : array of shape (n,)
        The masses given.

    Examples
    --------
    >>> import numpy as np
    >>> lower, upper = np.array([1.0, 1.0, 0.0]), np.array([1.0 + 1e-12, 1.1, 0.0])
    >>> closed(lower, upper, upper, np.ones(3))
    array([ True, False,  True])
    """
    in_range = (np.minimum(scale, mass * scale) > 1e-280) & (np.maximum(scale, mass * scale) < 1e300)
    return (in_range & (upper - lower <= MARGIN * OPTIMAL_GAP * scale)) | ((lower == 0) & (upper == 0))


@dataclass(frozen=True)
class Certificate:
    """Bounds of an optimum, rounded outwards, with what they are relative to.

    Attributes
    ----------
    lower, upper : float
        The bounds.
    value : float
        The objective of what was found.
    scale : float
        The sum of the absolute terms of the objective: ``<plan, |M|>`` for transport.
    reason : str
        Why the gap is open, if it is.

    Examples
    --------
    >>> found = Certificate(1.0, 1.25, 1.2, 1.25)
    >>> found.gap, found.status()
    (0.2, 'gap open')
    """

    lower: float
    upper: float
    value: float
    scale: float
    reason: str = ""

    @property
    def gap(self) -> float:
        """The relative gap."""
        return relative_gap(self.lower, self.upper, self.scale)

    def status(self, *, gap: float = 0.0, spent: bool = False, closed: float = OPTIMAL_GAP) -> str:
        """Return what the bounds prove, by the rule of `status`."""
        return status(self.lower, self.upper, self.scale, gap=gap, spent=spent, closed=closed)

    def widened(self, relative: float, above: float = 0.0, below: float = 0.0) -> Certificate:
        """Return bounds that hold for costs that differ by a relative and by absolute errors.

        Parameters
        ----------
        relative : float
            How far costs may be off, relative to themselves.
        above, below : float
            How much more the cost of the plan may be, and how much less any cost.
        """
        if relative == above == below == 0:
            return self
        lower, upper = self.lower, self.upper
        if lower > 0:
            exact = Fraction(lower) * (1 - Fraction(relative)) - Fraction(below)
            lower = max(0.0, rounded_down(exact))
        if math.isfinite(upper) and (upper != 0 or above):
            upper = rounded_up(Fraction(upper) * (1 + Fraction(relative)) + Fraction(above))
        return replace(self, lower=lower, upper=upper)

    def at_least(self, bound: float) -> Certificate:
        """Return the certificate with a lower bound that is known otherwise, such as the least cost."""
        return replace(self, lower=bound) if bound > self.lower else self


def concluded(
    found: Certificate, *, gap: float = 0.0, spent: bool = False, closed: float = OPTIMAL_GAP
) -> tuple[Certificate, str]:
    """Return a certificate with the reason why its gap is open, none where it is not, and its status.

    Parameters
    ----------
    found : Certificate
        The bounds; its reason counts where the gap is open and no budget ended the work.
    gap, spent, closed
        As for `status`.

    Returns
    -------
    found : Certificate
    status : str

    Examples
    --------
    >>> wide = Certificate(1.0, 1.25, 1.2, 1.25)
    >>> [(state, one.reason) for one, state in (concluded(wide, gap=gap, spent=True) for gap in (0.2, 0.1))]
    [('gap reached', ''), ('budget spent', 'the time or memory allowed was used up')]
    """
    state = status(found.lower, found.upper, found.scale, gap=gap, spent=spent, closed=closed)
    if state in PROVED:
        reason = ""
    elif state == "budget spent":
        known = found.reason in _OF_BUDGETS
        reason = found.reason if known else SPENT if math.isfinite(found.upper) else NO_PLAN
    else:
        reason = found.reason or ROUNDING
    return (found if reason == found.reason else replace(found, reason=reason)), state


def for_cost(found: Certificate, cost: Cost, i: NDArray[np.integer], j: NDArray[np.integer]) -> Certificate:
    """Return bounds that hold for a cost from those that were proved for its rounded entries.

    Parameters
    ----------
    found : Certificate
        What was proved for the numbers that the cost computes.
    cost : Cost
        The cost.
    i, j : arrays of int
        The arcs of the plan.

    Returns
    -------
    Certificate
    """
    relative = cost.accuracy()
    if not relative:
        return found
    smallest = cost.underflow()
    vanished = cost.vanishing(i, j) if found.upper < smallest / _NEGLIGIBLE else smallest
    return found.widened(relative, vanished, smallest)


def warning(gaps: Iterable[float], reasons: Iterable[str], total: int, what: str = "problems") -> str:
    """Return the text of the warning about gaps that stay open: how many, the largest, why, and what to do.

    Parameters
    ----------
    gaps : iterable of float
        The relative gaps that stay open.
    reasons : iterable of str
        Why.
    total : int
        How many problems there were in all.
    what : str
        What they are called.

    Examples
    --------
    >>> text = warning([0.5], [SPENT], 3)
    >>> print(text[: text.index(", because")])
    1 of 3 problems ended with an open gap, the largest is 5.0e-01 of the value
    """
    gaps, known = list(gaps), sorted(set(reasons) - {""}) or [ROUNDING]
    advice = []
    if set(known) & set(_OF_BUDGETS):
        advice.append("Allow more time or memory, or ask for a gap")
    if set(known) - set(_OF_BUDGETS):
        advice.append("Scale or shift the costs so that rounding matters less, or ask for a gap")
    return (
        f"{len(gaps)} of {total} {what} ended with an open gap, the largest is {max(gaps):.1e} of the value, because "
        f"{' or '.join(known)}; the bounds of the result are valid. {'. '.join(advice)}"
    )


def warn_of_gaps(gaps: list[float], states: list[str], reasons: list[str], what: str = "problems") -> None:
    """Warn of gaps that stay open, if there are any; one entry for each problem."""
    left = [b for b, state in enumerate(states) if state not in (*PROVED, "estimate")]
    if not left:
        return
    from sklearn.exceptions import ConvergenceWarning  # loading scikit-learn takes a second

    warn(warning([gaps[b] for b in left], [reasons[b] for b in left], len(states), what), ConvergenceWarning)


# Sums that are rigorous.


@dataclass(frozen=True)
class Enclosure:
    """A rational number and a bound of its distance from a sum.

    Examples
    --------
    >>> import numpy as np
    >>> third = enclose(np.array([0.1, 0.2]), np.array([1.0, 1.0]))
    >>> third.lower <= 0.3 <= third.upper, (third - third).lower <= 0
    (True, True)
    """

    value: Fraction
    error: Fraction = Fraction(0)

    def __add__(self, other: Enclosure) -> Enclosure:
        return Enclosure(self.value + other.value, self.error + other.error)

    def __sub__(self, other: Enclosure) -> Enclosure:
        return Enclosure(self.value - other.value, self.error + other.error)

    def __mul__(self, factor: Fraction | float) -> Enclosure:
        return Enclosure(self.value * Fraction(factor), self.error * abs(Fraction(factor)))

    def __truediv__(self, other: Enclosure) -> Enclosure:
        """Return the quotient by a positive number."""
        least = other.value - other.error
        if least <= 0:
            raise ZeroDivisionError("the divisor is not known to be positive")
        value = self.value / other.value
        return Enclosure(value, (self.error + abs(value) * other.error) / least)

    @property
    def lower(self) -> float:
        """A double that is no larger."""
        return rounded_down(self.value - self.error)

    @property
    def upper(self) -> float:
        """A double that is no smaller."""
        return rounded_up(self.value + self.error)


def rounded_down(x: Fraction) -> float:
    """Return the largest double that is not above a rational number."""
    return quotient_down(x.numerator, x.denominator)


def quotient_down(numerator: int, denominator: int) -> float:
    """Return the largest double that is not above a quotient, whose denominator is positive; fractions take longer."""
    try:
        near = numerator / denominator  # correctly rounded
    except OverflowError:
        return -math.inf if numerator < 0 else float(np.finfo(np.float64).max)
    a, b = near.as_integer_ratio()
    return near if a * denominator <= numerator * b else math.nextafter(near, -math.inf)


def rounded_up(x: Fraction) -> float:
    """Return the least double that is not below a rational number."""
    return -rounded_down(-x)


def enclose(x: Array, y: Array | None = None) -> Enclosure:
    """Return ``sum(x)`` or ``<x, y>``, with nearly twice the digits of a double and a bound of the error.

    Parameters
    ----------
    x, y : arrays of shape (n,)
        Finite numbers, taken as exact.

    Returns
    -------
    Enclosure

    Examples
    --------
    >>> import numpy as np
    >>> enclose(np.array([1e16, 1.0, -1e16])).lower  # less what the sum may be off
    0.99999999999...
    """
    a, b = np.ascontiguousarray(x, np.float64), np.ascontiguousarray(_NONE if y is None else y, np.float64)
    if len(a) == 0:
        return Enclosure(Fraction(0))
    high, low, absolute, terms, exponent = backend().inner(a, b) or _inner(a, b)
    # in doubles: the 65th share covers their rounding, and the second tiny number that they vanish
    error = 65.0 * (len(a) + 64) * _UNIT**2 * 1.01 * absolute + 2.0 * float(terms) * _TINY
    return Enclosure(_dyadic(exponent, high, low), _dyadic(exponent, error if terms else 0.0))


def _inner(x: Array, y: Array) -> tuple[float, float, float, int, int]:
    """Return what `Backend.inner` does, to within ``(n + L) L u^2 S``."""
    (own, first), second, terms = _scaled(x), 0, np.count_nonzero(x)
    every = own
    if len(y):
        other, second = _scaled(y)
        terms = np.count_nonzero((x != 0) & (y != 0))
        own, rests = split_products(own, other)
        every = np.concatenate([own, rests])
    return *_sum(every), float(np.abs(own).sum()), int(terms), first + second


def _dyadic(exponent: int, high: float, low: float = 0.0) -> Fraction:
    """Return the sum of two doubles times a power of two, without rounding: much faster than a sum of fractions."""
    (a, b), (c, d) = high.as_integer_ratio(), low.as_integer_ratio()
    common = max(b, d)  # powers of two
    total = a * (common // b) + c * (common // d)
    return Fraction(total << exponent, common) if exponent >= 0 else Fraction(total, common << -exponent)


def matrix_product(A: Array, B: Array, off: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ``A @ B`` in double precision, and a bound of the error of each entry, whatever the order of the sums.

    With k terms the error is at most ``k u / (1 - k u)`` of the sum of absolute terms.

    Parameters
    ----------
    A, B : arrays
        The factors.
    off : int
        By how many units of rounding, u = 2^-53, the entries of A and B together may be off, relative to themselves.

    Examples
    --------
    >>> import numpy as np
    >>> value, error = matrix_product(np.array([1.0, 1.0]), np.array([1e16, 1.0]))
    >>> bool(value - error <= 1e16 + 1 <= value + error)
    True
    """
    terms, absolute = np.shape(A)[-1], np.asarray(np.abs(A) @ np.abs(B))
    products: int | NDArray[np.float64] = terms
    if (absolute == 0).any():  # products of zeros are exact
        products = (A != 0).astype(np.float64) @ (B != 0).astype(np.float64)
    return A @ B, np.asarray(1.01 * (terms + off + 2) * _UNIT * absolute + products * _TINY)


def exact_sum(*products: tuple[Array, Array]) -> Enclosure:
    """Return a sum of inner products without rounding: slower than `enclose`, and exact whatever cancels.

    Parameters
    ----------
    *products : pairs of arrays of shape (n,)
        The factors, finite numbers.

    Returns
    -------
    Enclosure

    Examples
    --------
    >>> import numpy as np
    >>> a = np.array([1.0, 1e-30])
    >>> exact_sum((a, a), (np.array([-1.0]), np.array([1.0]))).value == Fraction(1e-30) ** 2
    True
    """
    total, error = Fraction(0), Fraction(0)
    for x, y in products:
        if len(x) == 0:
            continue
        (a, first), (b, second) = _scaled(np.asarray(x, np.float64)), _scaled(np.asarray(y, np.float64))
        terms = np.concatenate(split_products(a, b))
        unit, left = Fraction(2) ** (first + second), Fraction(0)
        values = terms.tolist()
        for _ in range(_DOUBLES):  # nearly always until nothing is left
            part = math.fsum(values)
            left += Fraction(part)
            if part == 0:
                break
            values.append(-part)
        total += left * unit
        vanishing = (np.abs(terms[: len(x)]) < 2.0**-960) & (x != 0) & (y != 0)
        hidden = sum(np.count_nonzero((z != 0) & (np.abs(own) < 2.0**-1020)) for z, own in ((x, a), (y, b)))  # digits
        rest = abs(Fraction(part)) * Fraction(_UNIT) + int(vanishing.sum() + hidden) * Fraction(_TINY)
        error += rest * unit if left or vanishing.any() else Fraction(0)
    return Enclosure(total, error)


def _scaled(x: Array) -> tuple[Array, int]:
    """Return x / 2^e of absolute values below one, and e: products neither overflow nor lose digits by underflow."""
    exponent = int(np.frexp(np.abs(x).max(initial=0.0))[1])
    return np.ldexp(x, -exponent), exponent


def split_products(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the products of numbers of at most one, and their rounding errors."""
    product = x * y
    (x1, x2), (y1, y2) = _halves(x), _halves(y)
    return product, x2 * y2 - (((product - x1 * y1) - x2 * y1) - x1 * y2)


def _halves(x: Array) -> tuple[Array, Array]:
    """Return two numbers of 26 bits that add up to x."""
    high = (2.0**27 + 1) * x
    high = high - (high - x)
    return high, x - high


def _sum(x: Array) -> tuple[float, float]:
    """Return the sum as two doubles: pairs are added and their rounding errors kept."""
    errors = 0.0
    while len(x) > 1:
        half = len(x) // 2
        a, b = x[:half], x[half : 2 * half]
        pairs = a + b
        rest = pairs - a
        errors += float(((a - (pairs - rest)) + (b - rest)).sum())
        x = np.concatenate([pairs, x[2 * half :]])
    return (float(x[0]), errors) if len(x) else (0.0, 0.0)


# Bounds of transport from plans and potentials.


def bounds(p: Array, q: Array, f: Array, g: Array, mass: Array, costs: Array, depth: int = 0) -> Certificate:
    r"""Return the bounds of W that a plan and feasible potentials prove.

    .. math:: \frac{\langle p, f \rangle}{\sum_i p_i} + \frac{\langle q, g \rangle}{\sum_j q_j} \le W \le \sum_k m_k c_k

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Non-negative weights, normalised or not.
    f, g : arrays of shape (m1,) and (m2,)
        Potentials with ``f_i + g_j <= c_ij`` for all pairs.
    mass : array of shape (n,)
        The positive masses of a plan between ``p / sum(p)`` and ``q / sum(q)``, each to within three units in the last
        place.
    costs : array of shape (n,)
        The costs of its arcs.
    depth : int
        Rounded operations behind a cost, or behind a mass beyond those three.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> import numpy as np
    >>> half = np.array([0.5, 0.5])
    >>> found = bounds(half, half, np.zeros(2), np.ones(2), half, np.ones(2))
    >>> found.lower <= 1 <= found.upper, found.value
    (True, 1.0)
    """
    lower = (mean(p[p > 0], f[p > 0]) + mean(q[q > 0], g[q > 0])).lower
    return plan_bounds(mass, costs, depth, lower)


def mean(weight: Array, x: Array) -> Enclosure:
    """Return ``<w, x> / sum(w)`` for positive weights."""
    return enclose(weight, x) / enclose(weight)


def plan_bounds(mass: Array, costs: Array, depth: int = 0, lower: float | None = -math.inf) -> Certificate:
    """Return the bounds that a plan proves; masses, costs and depth as for `bounds`.

    The lower bound is given; it is None for a plan that is known to be optimal, whose cost bounds W on both sides.
    """
    if np.isinf(costs).any():
        return Certificate(-math.inf if lower is None else lower, math.inf, math.inf, math.inf, FORBIDDEN)
    total = enclose(mass, costs)
    absolute = total if costs.min(initial=0.0) >= 0 else enclose(mass, np.abs(costs))
    # a mass below the normal numbers has lost digits
    small = mass < 2.0**-1000
    error = (depth + 4) * Fraction(_ULP) * (absolute.value + absolute.error)
    error += exact_sum((np.full(int(small.sum()), 2.0**-1070), np.abs(costs[small]))).value if small.any() else 0
    upper = rounded_up(total.value + total.error + error)
    if lower is None:
        lower = rounded_down(total.value - total.error - error)
    value = _as_float(total.value)
    return Certificate(lower, max(upper, value), value, max(_as_float(absolute.value), abs(value)))


def _as_float(x: Fraction) -> float:
    """Return the nearest double, infinite beyond their range."""
    try:
        return float(x)
    except OverflowError:
        return math.copysign(math.inf, x)


def below(f: Array, g: Array, depth: int, underflow: float = 0.0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return potentials that are feasible if f and g are so up to the errors of some rounded operations.

    Costs that underflow may be off by so much more, which only potentials of that size notice.
    """
    share = 2 * (depth + 1) * _ULP  # the operations have terms of the size of f, of g or of their sum
    lowered = [np.asarray(x - share * np.where(np.isfinite(x), np.abs(x), 0), np.float64) for x in (f, g)]
    for x in lowered if underflow else ():
        x[(x != 0) & (np.abs(x) < underflow / _NEGLIGIBLE)] -= underflow
    return lowered[0], lowered[1]


def weighted_median(x: Array, weight: Array) -> float:
    """Return the least value that half of the weight does not exceed; potentials around it lose fewest digits."""
    order = np.argsort(x, kind="stable")
    total = np.cumsum(weight[order] / 2)
    return float(x[order[np.searchsorted(total, total[-1] / 2)]])


def lower_bound(problem: Problem, U: Array) -> NDArray[np.float64]:
    r"""Return a lower bound of W(p, q) from any U.

    .. math:: \langle p, U \rangle - \langle q, L' \rangle, \qquad L'_j = \max_{i: p_i > 0} (U_i - M_{ij})

    L' is the c-transform of U, so (U, L') is dual feasible and the bound follows by weak duality. The estimate V(z) is
    not a bound, as its L is the c-transform of g. The largest rounding error in the cost's precision is subtracted.

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1)
        Potentials of the first measure, such as a sample of the chain.

    Returns
    -------
    array of shape (n,)
        Bounds for the measures divided by their sums.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import Problem
    >>> pair = Problem([1, 0], [0, 1], [[0.0, 3.0], [3.0, 0.0]])
    >>> lower_bound(pair, np.array([[3.0, 0.0]])).round(9)
    array([3.])
    """
    P, Q = problem.given
    U = np.where(P > 0, U, -np.inf).astype(problem.cost.dtype)
    L = problem.cost.col_max(U)
    largest = sum(np.abs(np.where(w > 0, x, 0)).max(axis=1).astype(np.float64) for w, x in ((P, U), (Q, L)))
    slack = ((2 * problem.cost.depth + 2) * float(np.finfo(problem.cost.dtype).eps) * np.asarray(largest)).tolist()
    found = []
    for p, q, u, v, less in zip(P, Q, U, L, slack, strict=True):
        if not (np.isfinite(u[p > 0]).all() and np.isfinite(v[q > 0]).all()):
            found.append(-math.inf)
            continue
        dual = mean(p[p > 0], u[p > 0]) - mean(q[q > 0], v[q > 0])
        found.append((dual - Enclosure(Fraction(less))).lower)
    return np.array(found)
