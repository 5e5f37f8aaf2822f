"""Solutions have mass one: their values, bounds and plans for the masses that were given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.backend import backend
from ..costs.problems import Problem
from ..exact.certificate import quotient_down
from ..exact.solution import Solution

_ROUNDING = 2.0**-50  # of masses: three units in the last place of the plan, and the product with the sum of weights


def values(problem: Problem, solutions: Sequence[Solution]) -> list[float]:
    """Return the costs of the plans."""
    return [mass * one.value for mass, one in zip(problem.mass.tolist(), solutions, strict=True)]


def plans(problem: Problem, of_mass_one: Sequence[Any]) -> list[Any]:
    """Return plans of the masses given from plans of mass one."""
    masses = problem.mass.tolist()
    return [plan * mass if mass != 1 else plan for plan, mass in zip(of_mass_one, masses, strict=True)]


def in_weights(x: NDArray[np.float64], *weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return masses of arcs without the rounding of weights that were divided by their sum.

    A mass x that agrees up to this rounding with a whole number, or with the weight of its row or column, is this
    number: between n points of weight 1 a permutation has entries 1.

    Examples
    --------
    >>> import numpy as np
    >>> ones = np.ones(2)
    >>> in_weights(np.array([1 - 2.0**-53, 0.5]), ones, ones).tolist()
    [1.0, 0.5]
    """
    for exact in (np.rint(x), *weights):
        x = np.where(np.abs(x - exact) <= _ROUNDING * exact, exact, x)
    return x


def bounds(problem: Problem, solutions: Sequence[Solution], estimate: bool = False) -> tuple[list[float], list[float]]:
    """Return lower and upper bounds, rounded outwards; those of an estimate may be below what every plan costs."""
    lower, upper = [one.lower for one in solutions], [one.upper for one in solutions]
    if problem.averages and (estimate or min(lower) < 0):
        least = problem.cost.least()  # no plan costs less; it may take as long as a small problem
        lower = [max(bound, least) for bound in lower]
    if problem.unit:
        return lower, upper
    both = np.array([lower, upper])
    if backend().scale_bounds(problem.given[0], both):
        lower, upper = both.tolist()
        return lower, upper
    for b, weights in enumerate(problem.given[0]):
        total = _total(weights)
        if total != (1.0, 0.0):
            lower[b], upper[b] = _product(total, lower[b], -math.inf), _product(total, upper[b], math.inf)
    return lower, upper


def _total(weights: NDArray[np.float64]) -> tuple[float, float]:
    """Return the sum of weights as two doubles, of which the first is correctly rounded."""
    found = weights.tolist()
    mass = math.fsum(found)
    return mass, math.fsum([*found, -mass])


def _product(total: tuple[float, float], bound: float, towards: float) -> float:
    """Return the product of a sum and a bound, rounded outwards."""
    if bound == 0 or not math.isfinite(bound):
        return bound
    away = math.copysign(math.inf, bound if towards > 0 else -bound)
    rest = math.nextafter(total[1], away) if total[1] else 0.0  # the second double is rounded, too
    (a, b), (c, d), (n, m) = total[0].as_integer_ratio(), rest.as_integer_ratio(), bound.as_integer_ratio()
    numerator, denominator = (a * d + c * b) * n, b * d * m
    return -quotient_down(-numerator, denominator) if towards > 0 else quotient_down(numerator, denominator)
