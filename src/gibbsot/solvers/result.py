"""The result of `solve`: a plan and potentials with the bounds that they prove, or an estimate."""

from __future__ import annotations

import html
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..costs.problems import Problem
from ..exact.annealed import feasible
from ..exact.certificate import MARGIN, OPTIMAL_GAP, Certificate, concluded, lower_bound, relative_gap
from ..exact.methods import optima
from ..exact.solution import Solution
from ..sampling.gibbs import Sampled, sparse_plans
from ..sampling.sampler import Info, State
from ..sampling.theory import Trace
from . import masses
from .displacement import barycentric_images, interpolated
from .relaxed import PartialProblem, flows, multipliers, potentials_without_points, transported_plans, without_points

Array = NDArray[np.float64]

_OF_CHAINS = {"diagnostics", "g", "h", "history", "info", "mixed", "n_sweeps", "state", "temperature"}
_CLOSED = MARGIN * OPTIMAL_GAP  # of bounds that are rounded once more
_WHEN_READ = "computed when read"  # the bounds of an estimate take time, and nothing is computed to show a result


@dataclass(eq=False)
class Part:
    """What is known of problems that share a cost; every list and array has one entry for each problem.

    Attributes
    ----------
    problem : Problem
        The problems, with additional points where mass may be left over.
    solved : list of Solution or None
        Of an exact solve, with the additional points.
    sample : Sampled or None
        The chains, of an estimate.
    cut : bool
        Whether chains ended before their last sweep because the time was over.
    asked : float
        The relative gap that was asked for.
    """

    problem: Problem
    solved: list[Solution] | None = None
    sample: Sampled | None = None
    cut: bool = False
    asked: float = 0.0
    _bounds: tuple[list[float], list[float]] | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.problem)

    def __getitem__(self, rows: slice) -> Part:
        solved = None if self.solved is None else self.solved[rows]
        sample = None if self.sample is None else self.sample.rows(rows)
        return Part(self.problem[rows], solved, sample, self.cut, self.asked)

    @property
    def balanced(self) -> list[Solution]:
        """Plans, potentials and bounds of the normalised problems, with the additional points."""
        return self._from_sample if self.solved is None else self.solved

    @cached_property
    def solutions(self) -> list[Solution]:
        """Plans, potentials and bounds of the normalised problems."""
        return without_points(self.problem, self.balanced)

    @cached_property
    def _from_sample(self) -> list[Solution]:
        """Plans on the arcs that the chains' potentials suggest, and the better potentials of chains and simplex."""
        U, cost = self.start, self.problem.cost.astype(np.float64)
        found = optima(self.problem, U, max_rounds=1)
        lower = lower_bound(self.problem, U).tolist()
        for b, solution in enumerate(found):
            if lower[b] > solution.lower:
                f, L = feasible(cost, U[b], self.problem.p[b], self.problem.q[b])
                found[b] = replace(solution, lower=lower[b], f=f, g=-L)
        return found

    @property
    def bounds_known(self) -> bool:
        """Whether bounds need no more work."""
        return self.solved is not None or "_from_sample" in vars(self)

    @property
    def closed(self) -> bool:
        """Whether no gap of an exact solve is open, also after one more rounding of the bounds for the masses given."""
        solved, problem = self.solved or (), self.problem
        of_all = [1.0] * len(solved) if problem.unit else problem.mass.tolist()
        for one, mass in zip(solved, of_all, strict=self.solved is not None):
            scale = one.scale
            if not (1e-280 < scale < math.inf and 1e-280 < mass * scale < math.inf):
                return False
            if not one.upper - one.lower <= _CLOSED * scale:
                return False
        return True

    @property
    def value(self) -> list[float]:
        """The costs of the plans, or the estimates V(z)."""
        if self.sample is not None:
            return (self.problem.mass * self.sample.info.value).tolist()
        if self.problem.unit:
            return [one.value for one in self.balanced]
        return masses.values(self.problem, self.balanced)

    @property
    def bounds(self) -> tuple[list[float], list[float]]:
        """Lower and upper bounds for the masses given, rounded outwards."""
        if self._bounds is None:  # a cached property takes a lock, and a small problem notices that
            self._bounds = masses.bounds(self.problem, self.balanced, self.sample is not None)
        return self._bounds

    @property
    def scale(self) -> list[float]:
        """What gaps are relative to."""
        return [mass * one.scale for mass, one in zip(self.problem.mass.tolist(), self.balanced, strict=True)]

    @property
    def lower_bound(self) -> list[float]:
        """Certified lower bounds."""
        return self.bounds[0]

    @property
    def upper_bound(self) -> list[float]:
        """Certified upper bounds."""
        return self.bounds[1]

    @property
    def gap(self) -> list[float]:
        """Certified relative gaps."""
        return [relative_gap(*one) for one in zip(*self.bounds, self.scale, strict=True)]

    @property
    def status(self) -> list[str]:
        """What is known of the values."""
        if self.sample is not None:
            return ["estimate"] * len(self)
        return ["optimal"] * len(self.balanced) if self.closed else [state for _, state in self._concluded]

    @property
    def reason(self) -> list[str]:
        """Why gaps are open, if they are."""
        return [""] * len(self) if self.sample is not None else [found.reason for found, _ in self._concluded]

    @property
    def _concluded(self) -> list[tuple[Certificate, str]]:
        """What the bounds for the masses given prove."""
        every = zip(self.balanced, *self.bounds, self.scale, strict=True)
        return [
            concluded(
                Certificate(lower, upper, one.value, scale, one.reason),
                gap=self.asked,
                spent=one.status == "budget spent",
            )
            for one, lower, upper, scale in every
        ]

    @property
    def plan(self) -> list[Any]:
        """What is transported."""
        return transported_plans(self.problem, self.solutions)

    @property
    def flow(self) -> list[Any]:
        """What moves along the edges of a graph or grid."""
        return flows(self.problem, self.balanced)

    @property
    def transported(self) -> list[float]:
        """The masses of the plans."""
        return [math.fsum(plan.data.tolist()) for plan in self.plan]

    @property
    def relaxed(self) -> bool:
        """Whether the marginals of plans may differ from the measures."""
        return isinstance(self.problem, PartialProblem) or not self.problem.averages

    @property
    def measures(self) -> tuple[Array, Array]:
        """The weights given, of the first problem."""
        p, q = self.problem.given
        m1, m2 = self.problem.size
        return p[0, :m1], q[0, :m2]

    @property
    def marginals(self) -> tuple[Array, Array]:
        """What the plans take from the points of p and bring to those of q."""
        plans = self.plan
        return np.stack([x.sum(axis=1) for x in plans]), np.stack([x.sum(axis=0) for x in plans])

    @property
    def multiplier(self) -> list[float]:
        """The costs of one more unit of mass."""
        return multipliers(self.problem, self.solutions)

    @cached_property
    def potentials(self) -> tuple[Array, Array]:
        """Feasible potentials of the points of p and q."""
        return np.stack([one.f for one in self.solutions]), np.stack([one.g for one in self.solutions])

    @property
    def _chain_potentials(self) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """The paper's potentials U and L, those of the additional points included."""
        if self.sample is not None:
            return self.sample.info.U, self.sample.info.L
        return np.stack([one.f for one in self.balanced]), -np.stack([one.g for one in self.balanced])

    @property
    def start(self) -> NDArray[np.floating]:
        """Potentials of the first measures, additional points included, from which similar problems may start."""
        return np.stack([one.f for one in self.balanced]) if self.sample is None else self.sample.info.U

    @property
    def U(self) -> NDArray[np.floating]:  # noqa: N802
        """The paper's potentials of the first measures."""
        return self.without_points(*self._chain_potentials)[0]

    @property
    def L(self) -> NDArray[np.floating]:  # noqa: N802
        """The paper's potentials of the second measures."""
        return self.without_points(*self._chain_potentials)[1]

    def without_points(
        self, U: NDArray[np.floating], L: NDArray[np.floating]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return U and L, or g and h, of the points of the measures."""
        return potentials_without_points(self.problem, U, L)

    @property
    def recovered_plan(self) -> list[Any]:
        """The paper's sparse plans."""
        m1, m2 = self.problem.size
        plans = sparse_plans(self.problem, *self._chain_potentials)
        return masses.plans(self.problem, [plan[:m1, :m2] for plan in plans])


class NumberedParts(Sequence[Part]):
    """Parts of one problem each, whose numbers are known as arrays and which are made when they are asked for."""

    def each(self, name: str) -> Iterable[Any]:
        """Return what the parts have of a name, for each problem."""
        return [x for part in self for x in getattr(part, name)]

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether no gap is open."""


@dataclass(eq=False, repr=False)
class OTResult:
    """The result of `solve` for one problem, or of `solve_batch` for many.

    For a batch every number is an array, and every array has one more axis in front, or is a list if each problem has
    its own cost; ``result[b]`` is the result of problem b, and ``len(result)`` the number of problems. Whatever takes
    time is computed when it is read.

    Attributes
    ----------
    value : float
        The cost of the plan, ``<plan, M>``: W(p, q) where the status is "optimal". With a penalty it includes that of
        every unit that is left over, on either side, and with ``kl`` the divergences of the marginals. With
        ``method="gibbs"`` the estimate V(z), which is not a bound.
    lower_bound, upper_bound : float
        Certified bounds of W(p, q), rounded outwards.
    gap : float
        ``(upper_bound - lower_bound) / <plan, |M|>``, 0 where the bounds agree. The denominator is the value where no
        cost is negative; what is left over, and with ``kl`` the divergences, are part of it.
    status : str
        "optimal": the gap is at most 1e-10. "gap reached": it is at most the one asked for. "budget spent": the work
        ended before that. "gap open": the arithmetic does not close the gap; ``reason`` says more. "estimate":
        ``method="gibbs"``.
    reason : str
        Why the gap is open, if it is.
    plan : scipy.sparse.csr_array of shape (m1, m2)
        A coupling: its marginals are p and q. A list for a batch. If the upper bound is infinite, a budget was spent
        before there was a coupling that avoids infinite costs; the plan then is a part of one and has less mass. With
        ``penalty`` or ``mass`` it is what is transported: its marginals are at most p and q, and it is empty if the
        upper bound is infinite.
    flow : scipy.sparse.csr_array of shape (nodes, nodes)
        Of a `GraphCost`, and of a grid with the L1 distance: the mass that moves from node to node, with a stored entry
        for every edge in every direction that it leads. Of a `SparseCost` the nodes are its rows and then its columns.
        A list for a batch. Other costs have none: AttributeError.
    transported : float
        The mass of the plan.
    marginals : pair of arrays of shape (m1,) and (m2,)
        The sums of the plan over its rows and columns: p and q, less where mass is left over, and with ``kl`` the
        optimal marginals.
    potentials : pair of arrays of shape (m1,) and (m2,)
        f and g: ``f_i + g_j <= M_ij`` for all pairs, points without weight included, and ``<p, f> + <q, g>`` is the
        lower bound, both up to the rounding of f and g to double precision: the bound itself may have been proved
        with twice the digits. They are gradients of W with respect to p and q. With a penalty they are at most that
        of their point. With ``kl`` the lower bound is ``rho1 <p, 1 - exp(-f / rho1)> + rho2 <q, 1 - exp(-g / rho2)>``,
        and the gradients are ``rho1 (1 - exp(-f / rho1))`` and the same of g. With a given mass s they are at most 0,
        ``f_i + g_j + multiplier <= M_ij``, and the lower bound is ``<p, f> + <q, g> + multiplier s``.
    multiplier : float
        The cost of one more unit of mass, with ``mass=s``; otherwise 0.
    U, L : arrays of shape (m1,) and (m2,)
        The paper's potentials: f and -g, or with ``method="gibbs"`` those of the last sweep, whose dual value is V(z).
    g, h : arrays of shape (m1,) and (m2,)
        The samples of the last sweep, which lie below U and above L; of the sampler's chains only. This g is the
        paper's and not that of ``potentials``.
    recovered_plan : scipy.sparse.csr_array of shape (m1, m2)
        The paper's sparse plan of U and L. Its marginals are p and q only in the limit. A list for a batch.
    seconds : float
        The time of the solve; that of all problems for a batch and for each of its items.
    problem : Problem
        The problems; a list where each has its own cost. With ``penalty`` or ``mass`` the balanced ones, with
        additional points on either side whose weights add up to the mass that is left over, exactly.
    solutions : list of Solution
        Plans, potentials and bounds of the normalised problems.
    mixed, n_sweeps, temperature, history, diagnostics, state, info
        Of the chains, with ``method="gibbs"``: whether the paper's mixing test held at the end, the number of sweeps,
        the last temperature, V(z) of every sweep (NaN for sweeps that were not needed), the `theory.Trace` of the
        option ``diagnostics``, the state that a warm start continues, and what the last sweep showed. Without chains,
        AttributeError.

    Examples
    --------
    >>> from gibbsot import GridCost, solve_batch
    >>> result = solve_batch([[1, 0, 0], [0, 1, 0]], [0, 0, 1], GridCost(3, spacing=1.0))
    >>> result.value, result[1].value, result[1].status
    (array([4., 1.]), 1.0, 'optimal')
    """

    parts: Sequence[Part] = field(repr=False)  # one for problems that share a cost, otherwise one for each problem
    seconds: float = 0.0
    single: bool = field(default=False, repr=False)  # the result of one problem, not of a batch

    def __len__(self) -> int:
        if self.single:
            raise TypeError("this is the result of one problem, not of a batch")
        return len(self.parts) if isinstance(self.parts, NumberedParts) else sum(map(len, self.parts))

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
        parts = self.parts[rows] if self._ragged else [self.parts[0][rows]]
        return OTResult(parts, self.seconds, single)

    def __iter__(self) -> Iterator[OTResult]:
        return (self[b] for b in range(len(self)))

    @property
    def _ragged(self) -> bool:
        """Whether each problem has a cost of its own."""
        return len(self.parts) != 1

    def _each(self, name: str) -> Any:
        """Return what the parts have for each problem: of the one, or a list."""
        if self.single:
            return getattr(self.parts[0], name)[0]
        if isinstance(self.parts, NumberedParts):
            return self.parts.each(name)
        return [x for part in self.parts for x in getattr(part, name)]

    def _number(self, name: str) -> Any:
        """Return a number of the one problem, or an array with those of all."""
        return getattr(self.parts[0], name)[0] if self.single else np.array(self._each(name))

    def _array(self, found: list[Any]) -> Any:
        """Return an array of the one problem, those of all with one more axis, or a list where sizes may differ."""
        if self.single:
            return found[0][0]
        return [x for part in found for x in part] if self._ragged else found[0]

    def _rows(self) -> list[tuple[str, str]]:
        """Return what is shown of a result."""
        known = isinstance(self.parts, NumberedParts) or all(part.bounds_known for part in self.parts)
        time = ("time", f"{self.seconds:.3g} s")
        m1, m2 = (0, 0) if self._ragged else self.parts[0].problem.size
        if not self.single:
            states = self.status
            counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
            return [
                ("batch", f"{len(self)} problems" + ("" if self._ragged else f" of {m1} x {m2} points")),
                ("mean value", f"{self.value.mean():.6g} ({counts})"),
                ("largest gap", f"{self.gap.max():.1e}" if known else _WHEN_READ),
                time,
            ]
        bounds = f"{self.lower_bound:.6g} <= W <= {self.upper_bound:.6g}" if known else _WHEN_READ
        rows = [
            ("value", f"{self.value:.6g} ({self.status})"),
            ("bounds", bounds),
            ("size", f"{m1} x {m2} points"),
            time,
        ]
        if known and self.parts[0].relaxed:
            p, q = (f"{x.sum():.6g}" for x in self.parts[0].measures)
            rows.insert(2, ("transported", f"{self.transported:.6g} of {p if p == q else f'{p} and {q}'}"))
        return rows

    def __dir__(self) -> list[str]:
        """Return the names that this result has: not those of chains and flows where there are none."""
        hidden = {"parts", "single"}
        if isinstance(self.parts, NumberedParts) or all(part.sample is None for part in self.parts):
            hidden |= _OF_CHAINS
        if self._ragged or self.parts[0].problem.cost.network() is None:
            hidden.add("flow")
        return [name for name in super().__dir__() if name not in hidden and (name[0] != "_" or name[:2] == "__")]

    def __repr__(self) -> str:
        return f"<OTResult {', '.join(f'{name} {text}' for name, text in self._rows())}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in self._rows())
        return f"<table>{rows}</table>"

    @property
    def problem(self) -> Any:
        """The problems."""
        return [part.problem for part in self.parts] if self._ragged else self.parts[0].problem

    @property
    def solutions(self) -> list[Solution]:
        """Plans, potentials and bounds of the normalised problems."""
        return [one for part in self.parts for one in part.solutions]

    @property
    def value(self) -> Any:
        """The cost of the plan, or the estimate V(z)."""
        return self._number("value")

    @property
    def status(self) -> Any:
        """What is known of the value."""
        return self._each("status")

    @property
    def reason(self) -> Any:
        """Why the gap is open, if it is."""
        return self._each("reason")

    @property
    def lower_bound(self) -> Any:
        """A certified lower bound of W(p, q)."""
        return self._number("lower_bound")

    @property
    def upper_bound(self) -> Any:
        """A certified upper bound of W(p, q): the cost of the plan."""
        return self._number("upper_bound")

    @property
    def gap(self) -> Any:
        """The certified relative gap."""
        return self._number("gap")

    @property
    def plan(self) -> Any:
        """A coupling of p and q, or what is transported."""
        return self._each("plan")

    @property
    def flow(self) -> Any:
        """The mass on every edge, of costs that are shortest paths in a graph or on a grid."""
        return self._each("flow")

    @property
    def transported(self) -> Any:
        """The mass of the plan."""
        return self._number("transported")

    @property
    def multiplier(self) -> Any:
        """The cost of one more unit of mass."""
        return self._number("multiplier")

    def interpolate(self, t: float, *, on_grid: bool = False) -> Any:
        r"""Return the measure at time t on the geodesic from p to q that the plan Z defines.

        .. math:: \mu_t = \sum_{ij} Z_{ij} \, \delta_{(1 - t) x_i + t y_j}

        All mass moves on straight lines at constant speed (displacement interpolation, [1]_): for an optimal plan and
        squared distances ``W(mu_s, mu_t) = (t - s)^2 W(p, q)``. With ``penalty``, ``mass`` or ``kl`` it is the measure
        of what is transported; what is left over is not in it.

        Parameters
        ----------
        t : float
            The time, from 0 (p) to 1 (q).
        on_grid : bool
            Return weights on the grid of the cost. A point of the grid stands for the cell around it, and parts of
            cells move to parts of cells: where a plan stretches the mass it leaves neither gaps nor stripes. Mass and
            centre are those of the points, and at times 0 and 1 the weights are those of the plan. In between, shapes
            are blurred by less than the spacing.

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
        found = [interpolated(plan, part.problem.between, t, on_grid) for part in self.parts for plan in part.plan]
        return found[0] if self.single else found

    def map(self, Y: ArrayLike | None = None) -> Any:
        r"""Return where the plan Z moves each point of p: the mean of the points of q that its mass goes to.

        .. math:: T(x_i) = \sum_j Z_{ij} \, y_j \Big/ \sum_j Z_{ij}

        This is the barycentric projection of the plan. Where all mass of a point goes to one point it is that point.
        `TransportMap` extends it to new points.

        Parameters
        ----------
        Y : array of shape (m2, d) or (m2,), optional
            What each point of q is, by default its place: the points of a `PointCost`, or those of a grid in units of
            its spacing. Other costs need it, and it may be anything that has a mean, such as colours or spectra.

        Returns
        -------
        array of shape (m1, d) or (m1,)
            NaN where a point of p has no weight, or all of its mass is left over. A list for a batch.

        Raises
        ------
        ValueError
            If Y is not given and the cost has no points, or Y has not one row for each point of q.

        Examples
        --------
        >>> import gibbsot
        >>> cost = gibbsot.PointCost([[0.0, 0.0], [4.0, 0.0]], [[0.0, 1.0], [4.0, 1.0], [4.0, 3.0]])
        >>> gibbsot.solve([2, 2], [2, 1, 1], cost).map()
        array([[0., 1.],
               [4., 2.]])
        >>> gibbsot.solve([1, 1], [1, 1], [[0, 2], [1, 0]]).map(["red", "blue"])
        Traceback (most recent call last):
            ...
        TypeError: Y: expected real numbers, got an array of <U4
        """
        found = [barycentric_images(plan, part.problem.between, Y) for part in self.parts for plan in part.plan]
        return found[0] if self.single else found

    def plot(self, ax: Any = None, *, names: tuple[str, str] = ("p", "q"), positions: ArrayLike | None = None) -> Any:
        """Draw the plan, in the way that suits the cost.

        Points in the plane and images: both measures and what moves where; in space, three projections; in more
        dimensions, the plane in which the points vary most. Histograms and points on the line: the plan as a matrix,
        with the measures at its sides. Matrices: the same, and the axes are indices, or the labels of a DataFrame.
        Graphs: the flow along the edges. Where mass is left over, it is pale.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw, by default in a new figure of pyplot. Three of them for points in space.
        names : pair of str
            What the measures are called.
        positions : array of shape (nodes, 2), optional
            Of a graph: where its nodes are. By default places whose distances are about the shortest paths, for at
            most 2,000 nodes.

        Returns
        -------
        matplotlib Axes
            An array of three for points in space.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If this is the result of a batch, nothing is transported, or positions are missing or not those of a graph.

        Examples
        --------
        >>> import gibbsot
        >>> result = gibbsot.solve([1, 1, 0], [0, 1, 1], gibbsot.GridCost(3))
        >>> result.plot(gibbsot.plots.new_figure(4, 4).subplots()).get_xlabel()
        'p'
        """
        if not self.single:
            raise ValueError("plot: this is the result of a batch; expected one of its problems, result[0].plot()")
        from ..plots import transport  # takes long to import

        part = self.parts[0]
        cost, sides = part.problem.between, part.measures if part.relaxed else self.marginals
        flow = self.flow if cost.positions() is None and cost.network() is not None else None
        return transport(ax, self.plan, cost, sides, names=names, flow=flow, positions=positions)

    @property
    def marginals(self) -> tuple[Any, Any]:
        """What the plan takes from the points of p and brings to those of q."""
        pairs = [part.marginals for part in self.parts]
        return self._array([a for a, _ in pairs]), self._array([b for _, b in pairs])

    @property
    def potentials(self) -> tuple[Any, Any]:
        """Feasible potentials f and g."""
        pairs = [part.potentials for part in self.parts]
        return self._array([f for f, _ in pairs]), self._array([g for _, g in pairs])

    @property
    def U(self) -> Any:  # noqa: N802
        """The paper's potentials of the first measure."""
        return self._array([part.U for part in self.parts])

    @property
    def L(self) -> Any:  # noqa: N802
        """The paper's potentials of the second measure."""
        return self._array([part.L for part in self.parts])

    @property
    def g(self) -> Any:
        """The sample g of the last sweep."""
        return self._array([g for g, _ in self._sampled("g")])

    @property
    def h(self) -> Any:
        """The sample h of the last sweep."""
        return self._array([h for _, h in self._sampled("h")])

    @property
    def recovered_plan(self) -> Any:
        """The paper's sparse plan."""
        return self._each("recovered_plan")

    def _samples(self, name: str) -> list[Sampled]:
        """Return the chains of all parts, for a property of this name."""
        found = [part.sample for part in self.parts if part.sample is not None]
        if not found:
            raise AttributeError(f"{name} belongs to the sampler's chains, which an exact solve does not have")
        return found

    def _sampled(self, name: str) -> list[tuple[NDArray[np.floating], NDArray[np.floating]]]:
        """Return the samples g and h of all parts, for a property of this name."""
        pairs = zip(self.parts, self._samples(name), strict=True)
        return [part.without_points(sample.info.g, sample.state.h) for part, sample in pairs]

    @property
    def mixed(self) -> Any:
        """Whether the paper's mixing test held at the end: over a few sweeps V(z) had stopped increasing.

        By chance that may be so before a chain has mixed. `gibbsot.sampler.settled` takes noise into account.
        """
        found = np.concatenate([sample.mixed for sample in self._samples("mixed")])
        return found[0] if self.single else found

    @property
    def n_sweeps(self) -> Any:
        """The number of sweeps of this call."""
        found = np.concatenate([sample.n_sweeps for sample in self._samples("n_sweeps")])
        return found[0] if self.single else found

    @property
    def temperature(self) -> Any:
        """The last temperature."""
        found = np.concatenate([sample.temperature for sample in self._samples("temperature")])
        return found[0] if self.single else found

    @property
    def history(self) -> Any:
        """V(z) of every sweep."""
        return self._array([sample.info.history for sample in self._samples("history")])

    @property
    def diagnostics(self) -> Any:
        """The quantities of the paper's appendix."""
        traces = [sample.diagnostics for sample in self._samples("diagnostics")]
        first = traces[0]
        if first is not None and self.single:
            return Trace._make(x[0] for x in first)
        return traces if self._ragged else first

    @property
    def state(self) -> Any:
        """The chains, which a warm start continues."""
        found: list[State] = [sample.state for sample in self._samples("state")]
        return found if self._ragged else found[0]

    @property
    def info(self) -> Any:
        """What the last sweep showed."""
        found: list[Info] = [sample.info for sample in self._samples("info")]
        return found if self._ragged else found[0]
