"""The result of `solve`: the estimate, and certificates that are computed when first used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.problems import Problem
from ..sampling.sampler import Info, State
from ..sampling.theory import Trace
from . import certificates
from .exact import cross
from .solution import Solution

Array = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class OTResult:
    """The result of `solve` for one problem, or of `solve_batch` for many.

    For a batch every number is an array and every array has one more axis in front; ``result[b]`` is the result of
    problem b, and ``len(result)`` the number of problems.

    Attributes
    ----------
    value : float
        The estimate V(z) of W(p, q). It is not a bound.
    potentials : pair of arrays of shape (m1,) and (m2,)
        U and L: gradients of the value with respect to p and, with a minus, to q.
    lower_bound : float
        A certified lower bound of W(p, q); computed when first used.
    plan : scipy.sparse.csr_array of shape (m1, m2)
        The paper's sparse plan, at most m1 + m2 entries. It is close to an optimal plan but its marginals are not
        exactly p and q: in some cases a quarter of the mass is misplaced. A list for a batch; computed when first used.
    coupling : scipy.sparse.csr_array of shape (m1, m2)
        A plan whose marginals are p and q: the best one on the arcs that the potentials suggest, by one run of a
        network simplex when first used.
    upper_bound : float
        The cost of the coupling: W(p, q) is at most this.
    gap : float
        The certified relative gap, ``(upper - lower) / abs(upper)``; a difference below 1e-12 of the potentials, which
        rounding alone may cause, counts as 0.
    status : str
        "estimate"; with the option ``gap`` "gap reached" or "budget ended"; after a crossover "optimal", or
        "gap open" or "rounds ran out", and then value, potentials and plan are those of the crossover.
    history : array of shape (sweeps,)
        V(z) of every sweep of this call; NaN for sweeps that were not needed.
    n_sweeps : int
        The number of sweeps done in this call.
    temperature : float
        The last temperature.
    converged : bool
        Whether the paper's mixing test held at the end: over a few sweeps V(z) had stopped increasing. It does not
        detect a chain that climbs slowly, and does not bound the distance of V(z) from W.
    diagnostics : theory.Trace or None
        The quantities of the paper's appendix, with the option ``diagnostics``.
    problem : Problem
        The problems, with normalised weights.
    state : State
        The chains, which a warm start continues.
    info : Info
        What the last sweep showed.
    crossings : list of Solution or None
        The exact solutions, after a crossover.
    gap_target : float or None
        The option ``gap``.
    single : bool
        Whether this is the result of one problem, not of a batch.
    """

    problem: Problem
    state: State
    info: Info
    temperature: Any
    n_sweeps: Any
    converged: Any
    crossings: list[Solution] | None = None
    gap_target: float | None = None
    diagnostics: Trace | None = None
    single: bool = False

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
        pick = rows.start if single else rows
        return OTResult(
            self.problem[rows],
            self.state[rows],
            Info._make(field[rows] for field in self.info),
            self.temperature[pick],
            self.n_sweeps[pick],
            self.converged[pick],
            None if self.crossings is None else self.crossings[rows],
            self.gap_target,
            None if self.diagnostics is None else Trace._make(field[pick] for field in self.diagnostics),
            single,
        )

    def __iter__(self) -> Iterator[OTResult]:
        return (self[b] for b in range(len(self)))

    def __repr__(self) -> str:
        if not self.single:
            return f"<OTResult of {len(self)} problems, mean value {self.value.mean():.6g}>"
        return f"<OTResult value {self.value:.6g}, lower bound {self.lower_bound:.6g}, {self.n_sweeps} sweeps>"

    def _one_or_all(self, x: Any) -> Any:
        return x[0] if self.single else x

    def _number(self, x: NDArray[np.float64]) -> Any:
        return float(x[0]) if self.single else x

    @property
    def value(self) -> Any:
        """The estimate V(z), or W(p, q) after a crossover."""
        if self.crossings is not None:
            return self._number(np.array([crossing.value for crossing in self.crossings]))
        return self._number(self.info.value)

    @property
    def status(self) -> Any:
        """What is known of the result."""
        if self.crossings is not None:
            return self._one_or_all([crossing.status for crossing in self.crossings])
        if self.gap_target is not None:
            reached = np.atleast_1d(self.gap) <= self.gap_target
            return self._one_or_all(["gap reached" if yes else "budget ended" for yes in reached])
        return self._one_or_all(["estimate"] * len(self.problem))

    @property
    def potentials(self) -> tuple[Array, Array]:
        """U and L."""
        U, L = self._potentials()
        return self._one_or_all(U), self._one_or_all(L)

    def _potentials(self) -> tuple[Array, Array]:
        if self.crossings is None:
            return self.info.U, self.info.L
        return np.stack([c.f for c in self.crossings]), np.stack([-c.g for c in self.crossings])

    @property
    def history(self) -> NDArray[np.float64]:
        """V(z) of every sweep."""
        return self._one_or_all(self.info.history)

    @cached_property
    def lower_bound(self) -> Any:
        """A certified lower bound of W(p, q)."""
        return self._number(certificates.lower_bound(self.problem, self._potentials()[0]))

    @cached_property
    def plan(self) -> Any:
        """The paper's sparse plan, or the optimal one after a crossover."""
        if self.crossings is not None:
            return self.coupling
        return self._one_or_all(certificates.sparse_plans(self.problem, self.info.U, self.info.L))

    @cached_property
    def _feasible(self) -> list[Solution]:
        """The exact solutions, or one round of a crossover if there are none."""
        if self.crossings is not None:
            return self.crossings
        return cross(self.problem, self.info.U, max_rounds=1)

    @property
    def coupling(self) -> Any:
        """A plan with the marginals p and q."""
        return self._one_or_all([crossing.plan for crossing in self._feasible])

    @property
    def upper_bound(self) -> Any:
        """The cost of the coupling."""
        value = np.array([crossing.upper for crossing in self._feasible])
        # the cost before it was rounded to this precision may have been larger by that much
        return self._number(value + 2 * np.finfo(self.problem.cost.dtype).eps * np.abs(value))

    @cached_property
    def gap(self) -> Any:
        """The certified relative gap."""
        U, L = np.stack([s.f for s in self._feasible]), np.stack([s.g for s in self._feasible])
        lower = np.maximum(self.lower_bound, certificates.lower_bound(self.problem, U))
        upper = np.atleast_1d(self.upper_bound)
        size = np.abs(np.where(self.problem.p > 0, U, 0)).max(axis=1) + np.abs(np.where(self.problem.q > 0, L, 0)).max(
            axis=1
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            gap = np.where(upper - lower <= 1e-12 * size, 0.0, (upper - lower) / np.abs(upper))
        return self._number(np.where(np.isinf(upper), np.inf, gap))
