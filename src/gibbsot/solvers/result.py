"""The result of `solve`: a plan and potentials with the bounds that they prove, or an estimate."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs.problems import Problem
from ..exact.annealed import feasible
from ..exact.certificate import lower_bound, relative_gap, rounded_down, rounded_up, status
from ..exact.methods import cross
from ..exact.solution import Solution
from ..sampling.gibbs import Sample, sparse_plans
from ..sampling.sampler import Info, State
from ..sampling.theory import Trace
from .displacement import interpolated

Array = NDArray[np.floating]

_WHEN_READ = "computed when read"  # the bounds of an estimate take time, and nothing is computed to show a result


def _total(weights: NDArray[np.float64]) -> tuple[float, float]:
    """Return the sum of weights as two doubles, of which the first is correctly rounded."""
    values = weights.tolist()
    mass = math.fsum(values)
    return mass, math.fsum([*values, -mass])


def _product(total: tuple[float, float], bound: float, towards: float) -> float:
    """Return the product of a sum and a bound, rounded outwards."""
    if bound == 0 or not math.isfinite(bound):
        return bound
    away = math.copysign(math.inf, bound if towards > 0 else -bound)
    rest = math.nextafter(total[1], away) if total[1] else 0.0  # the second double is rounded, too
    exact = (Fraction(total[0]) + Fraction(rest)) * Fraction(bound)
    return rounded_up(exact) if towards > 0 else rounded_down(exact)


@dataclass(eq=False)
class OTResult:
    """The result of `solve` for one problem, or of `solve_batch` for many.

    For a batch every number is an array and every array has one more axis in front; ``result[b]`` is the result of
    problem b, and ``len(result)`` the number of problems.

    Attributes
    ----------
    value : float
        The cost of the plan, ``<plan, M>``: W(p, q) where the status is "optimal". With ``method="gibbs"`` the estimate
        V(z), which is no bound.
    lower_bound, upper_bound : float
        Certified bounds of W(p, q), rounded outwards.
    gap : float
        ``(upper_bound - lower_bound) / <plan, |M|>``, 0 where the bounds agree. The denominator is the value where no
        cost is negative.
    status : str
        "optimal": the gap is at most 1e-10. "gap reached": it is at most the one asked for. "budget spent": the work
        ended before that. "gap open": the arithmetic does not close the gap; ``reason`` says more. "estimate":
        ``method="gibbs"``.
    reason : str
        Why the gap is open, if it is.
    plan : scipy.sparse.csr_array of shape (m1, m2)
        A coupling: its marginals are p and q. A list for a batch. Where the upper bound is infinite, a budget was
        spent before there was a coupling that avoids infinite costs; this then is a part of one, of less mass.
    potentials : pair of arrays of shape (m1,) and (m2,)
        f and g: ``f_i + g_j <= M_ij`` for all pairs, points without weight included, and ``<p, f> + <q, g>`` is the
        lower bound, both up to the rounding of f and g to double precision: the bound itself may have been proved
        with twice the digits. They are gradients of W with respect to p and q.
    U, L : arrays of shape (m1,) and (m2,)
        The paper's potentials: f and -g, or with ``method="gibbs"`` those of the last sweep, whose dual value is V(z).
    recovered_plan : scipy.sparse.csr_array of shape (m1, m2)
        The paper's sparse plan of U and L. Its marginals are p and q only in the limit. A list for a batch.
    seconds : float
        The time of the solve.
    problem : Problem
        The problems.
    solutions : list of Solution
        Plans, potentials and bounds of the normalised problems; for an estimate computed when first used.
    mixed, n_sweeps, temperature, history, diagnostics, state, info
        Of the chains, with ``method="gibbs"``: whether the paper's mixing test held at the end, the number of sweeps,
        the last temperature, V(z) of every sweep (NaN for sweeps that were not needed), the `theory.Trace` of the
        option ``diagnostics``, the state that a warm start continues, and what the last sweep showed. Without chains,
        AttributeError.
    """

    problem: Problem
    # with repr=False: internal
    solved: list[Solution] | None = field(repr=False)  # of an exact solve
    sample: Sample | None = field(repr=False)  # the chains
    seconds: float
    single: bool = field(default=False, repr=False)  # the result of one problem, not of a batch
    cut: bool = field(default=False, repr=False)  # chains ended before their last sweep because the time was over

    def __len__(self) -> int:
        if self.single:
            raise TypeError("this is the result of one problem, not of a batch")
        return len(self.problem)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, b: int | slice) -> OTResult:
        n = len(self)
        if isinstance(b, slice):
            rows, single = b, False
        else:
            if not -n <= b < n:
                raise IndexError(f"problem {b} of a batch of {n}")
            rows, single = slice(b % n, b % n + 1), True
        solved = None if self.solved is None else self.solved[rows]
        sample = None if self.sample is None else self.sample.rows(rows)
        return type(self)(self.problem[rows], solved, sample, self.seconds, single, self.cut)

    def __iter__(self) -> Iterator[OTResult]:
        return (self[b] for b in range(len(self)))

    @property
    def _size(self) -> str:
        """The sizes of the measures."""
        m1, m2 = self.problem.cost.shape
        return f"{m1} x {m2} points"

    def _rows(self) -> list[tuple[str, str]]:
        """Return what is shown of a result."""
        known = self.solved is not None or "_from_sample" in vars(self)
        time = ("time", f"{self.seconds:.3g} s")
        if not self.single:
            rows = [("batch", f"{len(self)} problems of {self._size}"), *_of_batch(self.value, self.status)]
            return [*rows, ("largest gap", f"{self.gap.max():.1e}" if known else _WHEN_READ), time]
        bounds = f"{self.lower_bound:.6g} <= W <= {self.upper_bound:.6g}" if known else _WHEN_READ
        return [("value", f"{self.value:.6g} ({self.status})"), ("bounds", bounds), ("size", self._size), time]

    def __repr__(self) -> str:
        return _text(self)

    def _repr_html_(self) -> str:
        return _table(self)

    def _one_or_all(self, x: Any) -> Any:
        return x[0] if self.single else x

    def _number(self, x: NDArray[np.float64]) -> Any:
        return float(x[0]) if self.single else x

    @property
    def solutions(self) -> list[Solution]:
        """Plans, potentials and bounds of the normalised problems."""
        return self._from_sample if self.solved is None else self.solved

    @cached_property
    def _from_sample(self) -> list[Solution]:
        """Plans on the arcs that the chains' potentials suggest, and the better potentials of chains and simplex."""
        U, cost = np.atleast_2d(self.U), self.problem.cost.astype(np.float64)
        found = cross(self.problem, U, max_rounds=1)
        lower = lower_bound(self.problem, U).tolist()
        for b, solution in enumerate(found):
            if lower[b] > solution.lower:
                f, L = feasible(cost, U[b], self.problem.p[b], self.problem.q[b])
                found[b] = replace(solution, lower=lower[b], f=f, g=-L)
        return found

    @property
    def value(self) -> Any:
        """The cost of the plan, or the estimate V(z)."""
        if self.sample is not None:
            return self._number(self.problem.mass * self.sample.info.value)
        if self.single:
            return self.problem.mass.item(0) * self.solutions[0].value
        return self.problem.mass * np.array([solution.value for solution in self.solutions])

    @property
    def status(self) -> Any:
        """What is known of the value."""
        if self.sample is not None:
            return self._one_or_all(["estimate"] * len(self.problem))
        return self._one_or_all([self._state(b, one) for b, one in enumerate(self.solutions)])

    def _state(self, b: int, one: Solution) -> str:
        """Return the status of a solution, unless the last rounding of the bounds for the mass given contradicts it."""
        lower, upper = self._bounds[0][b], self._bounds[1][b]
        scale = self.problem.mass.item(b) * one.scale
        found = status(lower, upper, scale, gap=math.inf if one.status == "gap reached" else 0.0)
        return found if found == "optimal" or one.status == "optimal" else one.status

    @property
    def reason(self) -> Any:
        """Why the gap is open, if it is."""
        return self._one_or_all([one.reason for one in self.solutions])

    @cached_property
    def _bounds(self) -> tuple[list[float], list[float]]:
        """Bounds for the masses given, rounded outwards."""
        lower, upper = [s.lower for s in self.solutions], [s.upper for s in self.solutions]
        if self.sample is not None or min(lower) < 0:
            least = self.problem.cost.least()  # no plan costs less; it may take as long as a small problem
            lower = [max(bound, least) for bound in lower]
        for b, weights in enumerate(() if self.problem.unit else self.problem.given[0]):
            total = _total(weights)
            if total != (1.0, 0.0):
                lower[b], upper[b] = _product(total, lower[b], -math.inf), _product(total, upper[b], math.inf)
        return lower, upper

    @property
    def lower_bound(self) -> Any:
        """A certified lower bound of W(p, q)."""
        return self._bounds[0][0] if self.single else np.array(self._bounds[0])

    @property
    def upper_bound(self) -> Any:
        """A certified upper bound of W(p, q): the cost of the plan."""
        return self._bounds[1][0] if self.single else np.array(self._bounds[1])

    @property
    def gap(self) -> Any:
        """The certified relative gap."""
        scales = [mass * one.scale for mass, one in zip(self.problem.mass.tolist(), self.solutions, strict=True)]
        return self._number(np.array([relative_gap(*one) for one in zip(*self._bounds, scales, strict=True)]))

    @property
    def plan(self) -> Any:
        """A coupling of p and q."""
        return self._one_or_all(self._plans)

    @property
    def _plans(self) -> list[Any]:
        """The plans of all problems."""
        return self._with_masses([solution.plan for solution in self.solutions])

    def _with_masses(self, plans: list[Any]) -> list[Any]:
        """Return plans of the masses given from plans of mass one."""
        masses = self.problem.mass.tolist()
        return [plan * mass if mass != 1 else plan for plan, mass in zip(plans, masses, strict=True)]

    def interpolate(self, t: float, *, on_grid: bool = False) -> Any:
        r"""Return the measure at time t on the geodesic from p to q that the plan Z defines.

        .. math:: \mu_t = \sum_{ij} Z_{ij} \, \delta_{(1 - t) x_i + t y_j}

        All mass moves on straight lines at constant speed (displacement interpolation, [1]_): for an optimal plan and
        squared distances ``W(mu_s, mu_t) = (t - s)^2 W(p, q)``.

        Parameters
        ----------
        t : float
            The time, from 0 (p) to 1 (q).
        on_grid : bool
            Return weights on the grid of the cost: the mass of a point is shared by the nearest points of the grid in
            proportion to the area. This keeps mass and centre, and adds a variance of at most a quarter of the squared
            spacing an axis.

        Returns
        -------
        Cloud or array of the grid's shape
            Points of shape (k, d) and their k weights; or weights on the grid. A list for a batch.

        Raises
        ------
        ValueError
            If the cost has no straight lines between its points, or no grid.

        References
        ----------
        .. [1] R. J. McCann, *A convexity principle for interacting gases*, Advances in Mathematics 128, 1997.

        Examples
        --------
        >>> import gibbsot
        >>> result = gibbsot.solve([1, 1, 0, 0], [0, 0, 1, 1], gibbsot.GridCost(4, spacing=1.0))
        >>> result.interpolate(0.25).points.ravel()
        array([0.5, 1.5])
        >>> result.interpolate(0.25, on_grid=True)
        array([0.5, 1. , 0.5, 0. ])
        """
        found = [interpolated(plan, self.problem.cost, t, on_grid) for plan in self._plans]
        return self._one_or_all(found)

    @cached_property
    def potentials(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Feasible potentials f and g."""
        f, g = np.stack([s.f for s in self.solutions]), np.stack([s.g for s in self.solutions])
        return self._one_or_all(f), self._one_or_all(g)

    @property
    def U(self) -> Array:  # noqa: N802
        """The paper's potentials of the first measure."""
        return self.potentials[0] if self.sample is None else self._one_or_all(self.sample.info.U)

    @property
    def L(self) -> Array:  # noqa: N802
        """The paper's potentials of the second measure."""
        return -self.potentials[1] if self.sample is None else self._one_or_all(self.sample.info.L)

    @property
    def recovered_plan(self) -> Any:
        """The paper's sparse plan."""
        U, L = np.atleast_2d(self.U), np.atleast_2d(self.L)
        return self._one_or_all(self._with_masses(sparse_plans(self.problem, U, L)))

    def _chains(self, name: str, called: str = "") -> Any:
        if self.sample is None:
            raise AttributeError(
                f"{called or name} belongs to the sampler's chains, which an exact solve does not have"
            )
        return getattr(self.sample, name)

    @property
    def mixed(self) -> Any:
        """Whether the paper's mixing test held at the end: over a few sweeps V(z) had stopped increasing."""
        return self._one_or_all(self._chains("mixed"))

    @property
    def n_sweeps(self) -> Any:
        """The number of sweeps of this call."""
        return self._one_or_all(self._chains("n_sweeps"))

    @property
    def temperature(self) -> Any:
        """The last temperature."""
        return self._one_or_all(self._chains("temperature"))

    @property
    def history(self) -> NDArray[np.float64]:
        """V(z) of every sweep."""
        return self._one_or_all(self._chains("info", "history").history)

    @property
    def diagnostics(self) -> Trace | None:
        """The quantities of the paper's appendix."""
        trace = self._chains("diagnostics")
        return trace if trace is None or not self.single else Trace._make(field[0] for field in trace)

    @property
    def state(self) -> State:
        """The chains, which a warm start continues."""
        return self._chains("state")

    @property
    def info(self) -> Info:
        """What the last sweep showed."""
        return self._chains("info")


def _of_batch(values: NDArray[np.float64], states: list[str]) -> list[tuple[str, str]]:
    """Return what is shown of values and statuses of many problems."""
    counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
    return [("mean value", f"{values.mean():.6g} ({counts})")]


def _text(result: OTResult | OTResultList) -> str:
    """Return a result as a line of text."""
    return f"<{type(result).__name__} {', '.join(f'{name} {text}' for name, text in result._rows())}>"


def _table(result: OTResult | OTResultList) -> str:
    """Return a result as a table for notebooks."""
    rows = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in result._rows())
    return f"<table>{rows}</table>"


class OTResultList(Sequence["OTResult"]):
    """The results of `solve_batch` for problems with costs of their own: a sequence of results.

    Parameters
    ----------
    results : list of OTResult
        One for each problem.
    seconds : float
        The time of the solve.

    Attributes
    ----------
    value, lower_bound, upper_bound, gap : arrays of shape (n,)
        As of `OTResult`.
    status : list of str
    plan : list of scipy.sparse.csr_array
    potentials : pair of lists of arrays
    seconds : float
    """

    def __init__(self, results: list[OTResult], seconds: float) -> None:
        self._results, self.seconds = results, seconds

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, b: Any) -> Any:
        found = self._results[b]
        return OTResultList(found, self.seconds) if isinstance(b, slice) else found

    def _rows(self) -> list[tuple[str, str]]:
        """Return what is shown of the results."""
        rows = [("batch", f"{len(self)} problems"), *_of_batch(self.value, self.status)]
        known = all(result.solved is not None for result in self)
        gap = f"{self.gap.max():.1e}" if known else _WHEN_READ
        return [*rows, ("largest gap", gap), ("time", f"{self.seconds:.3g} s")]

    def __repr__(self) -> str:
        return _text(self)

    def _repr_html_(self) -> str:
        return _table(self)

    @property
    def value(self) -> NDArray[np.float64]:
        """The costs of the plans, or estimates."""
        return np.array([result.value for result in self])

    @property
    def lower_bound(self) -> NDArray[np.float64]:
        """Certified lower bounds."""
        return np.array([result.lower_bound for result in self])

    @property
    def upper_bound(self) -> NDArray[np.float64]:
        """Certified upper bounds."""
        return np.array([result.upper_bound for result in self])

    @property
    def gap(self) -> NDArray[np.float64]:
        """Certified relative gaps."""
        return np.array([result.gap for result in self])

    @property
    def status(self) -> list[str]:
        """What is known of each value."""
        return [result.status for result in self]

    @property
    def plan(self) -> list[Any]:
        """Couplings."""
        return [result.plan for result in self]

    @property
    def potentials(self) -> tuple[list[Any], list[Any]]:
        """Feasible potentials f and g of each problem."""
        pairs = [result.potentials for result in self]
        return [f for f, _ in pairs], [g for _, g in pairs]
