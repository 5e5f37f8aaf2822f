"""The digits that HiGHS lacks: a vertex of the programme in integers, and what remains to be solved.

HiGHS solves a programme to a tolerance of 1e-10 in double precision. What it leaves over, the residuals of the
equations and the reduced costs, is a programme of the same matrix. Magnified, that is solved again, and its solution
is added (iterative refinement of a linear programme, [1]_). Masses and dual variables are integers times a power of
two here, so that nothing is rounded. They prove nothing by themselves: `FreeMeasure` proves bounds from weights and
potentials.

References
----------
.. [1] A. M. Gleixner, D. E. Steffy, K. Wolter, *Iterative refinement for linear programming*, INFORMS Journal on
   Computing 28, 2016.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .free_measure import FreeMeasure, Numbers, fixed, floats
from .interior_point import MeasureArcs

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_MASS_BITS = 120  # binary digits of masses behind the point
_COST_BITS = 110  # the same for costs, in units of the objective
# The largest factor of residuals, and where magnified reduced costs are cut off, as their arcs carry no mass: HiGHS
# would not see, for its tolerance, what is small beside them.
_MAGNIFIED, _CUT = 2.0**40, (2.0**10, 2.0**50)
_CHANGES = 2.0**-20  # reduced costs, in units of the objective, from which on arcs that carry mass may be others
_FREE = 2.0**20  # masses, in units of what is missing, that are never used up
_LEAST = 2.0**-200  # in place of zero
_EXACT = 2.0**-90  # what may be left of a solution, relative to its size


class Step(NamedTuple):
    """A programme that HiGHS solves in double precision: costs, right-hand sides and lower bounds of the variables."""

    costs: Array
    b: Array
    least: Array
    anew: bool = True  # whether all masses are solved for, not what is left over of them


class Vertex:
    """Masses of arcs and weights of a free measure, and dual variables of points and targets, all as integers.

    Parameters
    ----------
    problem : FreeMeasure
        The problem.
    arcs : MeasureArcs
        The arcs, with points and targets numbered as below.
    points, targets : arrays of int
        The points of the free measure that are chosen, and the targets with weight in the concatenation of measures.
    used : array of int
        The weights that may be positive: numbers of points, or of components.
    scale, unit : float
        About the objective, and the unit of the costs of the arcs.
    """

    def __init__(
        self, problem: FreeMeasure, arcs: MeasureArcs, points: Indices, targets: Indices, used: Indices,
        scale: float, unit: float,
    ) -> None:  # fmt: skip
        self.problem, self.arcs, self.points, self.targets, self.used = problem, arcs, points, targets, used
        self.scale, self.bits = scale, _COST_BITS - int(np.frexp(scale)[1])
        n, m = problem.X.shape
        self.row = arcs.measure * len(points) + arcs.point
        high, low, _ = problem.cost.at_exact(points[arcs.point], targets[arcs.target] % m)
        self.cost = fixed(high, self.bits) + fixed(low, self.bits)
        self.measure = targets // m
        self.b = np.array([int(problem.share(t // m, t % m) * 2**_MASS_BITS) for t in targets.tolist()], object)
        self.share = np.array([float(x / sum(problem.lambdas)) for x in problem.lambdas])  # of the measures
        self.lambdas = fixed(np.array([float(x) for x in problem.lambdas]), 1074)
        B = problem.components
        self.B = None if B is None else fixed(B[used][:, points], _MASS_BITS)
        self.x: Numbers = np.zeros(len(self.row), object)
        self.w: Numbers = np.zeros(len(used), object)
        self.u: Numbers = np.zeros(n * len(points), object)
        self.v: Numbers = np.full(len(targets), int(fixed(np.array([problem.least]), self.bits)[0]), object)
        self.factors = 1.0, scale / unit
        self.n, self.lacking, self.rest, self.anew = n, math.inf, math.inf, True

    def add(self, step: Step, x: Array, dual: Array) -> None:
        """Add the solution of a step: values of the variables, and dual variables of all equations."""
        primal, costs = self.factors
        if step.anew:
            self.x[:], self.w[:] = 0, 0
        for own, values, least in (
            (self.x, x[: len(self.x)], step.least[: len(self.x)]),
            (self.w, x[len(self.x) :], step.least[len(self.x) :]),
        ):
            own += fixed(values / primal, _MASS_BITS)
            own[values <= least] = 0
        of_rows = np.repeat(self.share, len(self.points))
        scaled = dual * (self.scale / costs)
        self.u += fixed(scaled[: len(self.u)] / of_rows, self.bits)
        self.v += fixed(scaled[len(self.u) :] / self.share[self.measure], self.bits)

    def next(self, anew: bool = False) -> Step:
        """Return what is left to solve, magnified; with all masses while reduced costs say that these may change."""
        b = floats(np.concatenate(self._lacking()), _MASS_BITS)
        x = floats(np.concatenate([self.x, self.w]), _MASS_BITS)
        arcs, weights = (floats(each, self.bits) / self.scale for each in self._reduced())
        reduced = np.concatenate([arcs * self.share[self.arcs.measure], weights])
        lacking = max(float(np.abs(b).max()), float(-x.min()))
        violated = max(float(-reduced.min()), float(np.abs(reduced[x > 0]).max(initial=0.0)))
        self.lacking, self.rest = lacking, max(lacking, violated)
        anew = anew or (self.anew and violated > _CHANGES)
        primal = 1.0 if anew else min(1 / max(lacking, _LEAST), _MAGNIFIED)
        factor = min(1 / max(violated, _LEAST), _MAGNIFIED)
        if self.anew and not anew:  # arcs of any cost may be needed for what is left over
            factor = min(factor, _CUT[1] / float(reduced.max()))
        self.factors, self.anew = (primal, factor), anew
        costs = np.minimum(reduced * factor, _CUT[not anew])
        if anew:
            whole = np.concatenate([np.zeros(len(self.u)), floats(self.b, _MASS_BITS)])
            return Step(costs, whole, np.zeros(len(x)))
        least = -np.maximum(x, 0) * primal
        return Step(costs, b * primal, np.where(least < -_FREE, -np.inf, least), False)

    @property
    def done(self) -> bool:
        """Whether next to nothing is left to solve."""
        return self.rest <= _EXACT

    def _lacking(self) -> tuple[Numbers, Numbers]:
        """Return what is missing in the equations of points and of targets."""
        rows, targets = np.zeros(len(self.u), object), self.b.copy()
        carries = np.flatnonzero(self.x)
        np.add.at(rows, self.row[carries], -self.x[carries])
        np.add.at(targets, self.arcs.target[carries], -self.x[carries])
        return rows + np.tile(self._mixed(), self.n), targets

    def _mixed(self) -> Numbers:
        """Return the free measure at the points."""
        if self.B is not None:
            return np.asarray((self.w @ self.B) >> _MASS_BITS, object)
        mixed = np.zeros(len(self.points), object)
        mixed[self.used] = self.w
        return mixed

    def _reduced(self) -> tuple[Numbers, Numbers]:
        """Return the reduced costs of arcs, those of one measure each, and of weights."""
        arcs = self.cost - self.u[self.row] - self.v[self.arcs.target]
        means = (self.lambdas @ self.u.reshape(self.n, -1)) // int(self.lambdas.sum())
        if self.B is None:
            return arcs, np.asarray(means[self.used], object)
        return arcs, np.asarray((self.B @ means) >> _MASS_BITS, object)

    def potentials(self) -> tuple[Numbers, int]:
        """Return g of all targets, and the number of binary digits behind the point."""
        g = np.zeros(self.problem.X.size, object)
        g[self.targets] = self.v
        return g.reshape(self.problem.X.shape), self.bits

    def meets(self, lower: float, tolerance: float) -> bool:
        """Tell whether the masses have an objective within a tolerance of a lower bound, and nothing is missing."""
        carries = np.flatnonzero(self.x)
        terms = self.x[carries] * self.cost[carries] * self.lambdas[self.arcs.measure[carries]]
        value = Fraction(int(terms.sum()), int(self.lambdas.sum())) / Fraction(2) ** (self.bits + _MASS_BITS)
        return float(value) - lower <= tolerance and self.lacking * self.problem.cost.spread() <= tolerance

    def weights(self) -> Numbers:
        """Return the weights, up to a factor."""
        components = self.problem.components
        w: Numbers = np.zeros(self.problem.cost.shape[0] if components is None else len(components), object)
        w[self.points[self.used] if self.B is None else self.used] = np.maximum(self.w, 0)
        return w
