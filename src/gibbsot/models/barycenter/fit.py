"""The stages of a fit of `WassersteinBarycenter`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from ...costs import Units
from ...distributed.shard import Array
from ...distributed.shards import Shards
from ...exact.certificate import PROGRAMME_GAP, PROVED, relative_gap, scale_of, warn_of_gaps
from ...exact.programme import linear_programme
from ...exact.programme.free_measure import FreeMeasure, Optimum, concluded
from ...exact.programme.line_barycenter import line_barycenter
from ...io import npz
from ...io.budget import Budget
from ...oracle.level_method import LargestEntropy, LevelMethod
from .._loop import Epoch
from .descent import Descent
from .shard import BarycenterShard, Objective

if TYPE_CHECKING:
    from .estimator import WassersteinBarycenter

_NEGLIGIBLE = 1e-7  # weight threshold relative to the largest weight: smaller ones only cost time
_LEAST = 1e-6  # the sum of the weights that the level method gives to all points at its start
_ROUNDS = 3, 50  # of the ascent of the lower bound, during the fit and at its end
_ENOUGH = 30  # epochs after which potentials are good enough to choose the arcs of the linear programme
_BYTES = 2e9  # of the linear programme, unless max_memory is given
_ENDING = 0.1  # of the gap: at which a fit that is smoothed ends its search for the optimum
_STALL = 50  # steps of the level method that must lower the gap by a tenth


class Fit:
    """The stages of a fit: the linear programme, after a descent that chooses its arcs or, on a line, a closed form.

    Where the programme does not fit into the memory, the descent goes on to its end, and a level method follows.

    Parameters
    ----------
    model : WassersteinBarycenter
        The model.
    units : Units
        Its cost in units.
    shards : Shards of BarycenterShard
        The data, with their weights.
    weights : array of shape (n,), optional
        The weights of the measures, at most one.
    history : list of Epoch
        The records so far.
    saved : dict of str to array, optional
        The state that `arrays` returned, from which the fit is resumed.

    Attributes
    ----------
    p : array of shape (m,)
        The best weights so far.
    lower, upper : float
        Their certified bounds; the upper one is infinite before the first exact objective.
    too_large : bool
        Whether the linear programme has turned out to need too much memory.
    scale : float
        The sum of the absolute terms of the objective, or its absolute value if the former is not known.
    ended : str
        Why the stages ended.
    target : float
        The gap at which the search for the optimum ends.
    entropy_gap : float
        By how much the entropy of other weights within the gap may be larger, if it is looked for.
    """

    def __init__(
        self,
        model: WassersteinBarycenter,
        units: Units,
        shards: Shards[BarycenterShard],
        weights: Array | None,
        history: list[Epoch],
        saved: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.weights, self.history, self.cost = model, weights, history, model.cost_.astype(np.float64)
        self.units, self.entropy_gap = units, np.inf
        self.target = model.gap * (_ENDING if model.smooth else 1.0)
        shards.reduce(BarycenterShard.set_cost, self.units.cost.astype(np.float64))
        self.objective = Objective(shards, self.units.single().cost)
        self.budget = Budget(model.max_seconds or np.inf, model.max_memory or _BYTES)
        self.p, self.lower, self.upper, self.ended = np.full(self.cost.shape[0], 1.0), -np.inf, np.inf, "stopped"
        self.scale = np.inf
        self.problem: FreeMeasure | None = None
        self.descent: Descent | None = None
        self.level: LevelMethod | None = None
        self.too_large, self.steps = False, 0
        self.checkpoint, self.checksums = "", list[str]()  # the last one, and those of its shards
        self.fit_id = ""  # that its checkpoints carry
        if saved is not None:
            self._restore(saved)
            if not (self.steps or self._finished()):  # rounds of the linear programme are computed again
                del history[int(saved["n_kept"]) :]
                self.upper, self.lower = np.inf, -np.inf
                if self.descent is not None:
                    self._follow(self.descent)

    def arrays(self) -> dict[str, Any]:
        """Return the state without the shards, for a file."""
        state: dict[str, Any] = {
            name: getattr(self, name) for name in ("p", "lower", "upper", "scale", "too_large", "steps")
        }
        done = 0 if self.descent is None else self.descent.done
        state["n_kept"] = len(self.history) if self.too_large or self.steps else done
        if self.weights is not None:
            state["weights"] = self.weights
        if self.descent is not None:
            state |= {f"descent_{name}": value for name, value in self.descent.arrays().items()}
        if self.level is not None:
            state |= {f"level_{name}": value for name, value in vars(self.level).items()}
        return state

    def _restore(self, saved: dict[str, Any]) -> None:
        self.p, self.lower, self.upper = saved["p"], float(saved["lower"]), float(saved["upper"])
        self.scale = float(saved["scale"])
        self.too_large, self.steps = bool(saved["too_large"]), int(saved["steps"])
        if descent := npz.with_prefix(saved, "descent_"):
            self.descent = Descent(self.model, self.objective, self.units.single(), descent)
        if level := npz.with_prefix(saved, "level_"):
            self.level = LevelMethod(np.exp(level["log_p"]))
            vars(self.level).update(level | {"lower": float(level["lower"])})

    def stages(self) -> Iterator[tuple[Epoch, str]]:
        """Run the stages until the gap is reached or the budget is spent, and look for the largest entropy then."""
        yield from self._optimal()
        if self.model.smooth and self.gap <= self.model.gap:
            yield from self._smoothed()

    def _smoothed(self) -> Iterator[tuple[Epoch, str]]:
        """Find the weights of largest entropy whose objective is within the gap."""
        gap = self.model.gap
        limit = self.lower / (1 - gap if self.lower > 0 else 1 + gap)
        limit -= 1e-9 * abs(limit)  # bounds are rounded on the way to units and back
        method = LargestEntropy(self.p / self.p.sum(), (limit - self.units.shift) / self.units.unit)
        for best in method.steps(self.objective.exact):
            self.entropy_gap = method.gap
            if (upper := self.units.upper(best)) <= limit:
                self.p, self.upper, self.scale = method.best, upper, scale_of(upper)
            yield self._exact_record(f"entropy at most {method.gap:.1e} below the largest")
            if self.budget.spent:
                break
        self.ended = "gap reached"

    def _optimal(self) -> Iterator[tuple[Epoch, str]]:
        """Run the stages that lower the objective."""
        if self.history and self._finished():
            return
        problem = self.problem = self._programme()
        geometry = self.cost.geometry()
        if problem is not None and geometry is not None and geometry.X.shape[1] == 1:
            best = line_barycenter(problem, geometry)
            yield self._record(best)
            self.ended = best.ended
            if not self._finished() and problem.small:  # levels have too few digits: a point is far away
                yield from self._rounds(linear_programme.stages(problem, self.target, budget=self.budget))
        elif problem is not None and problem.small:
            yield from self._rounds(linear_programme.stages(problem, self.target, budget=self.budget))
        else:
            yield from self._large(problem)

    def _programme(self) -> FreeMeasure | None:
        """Return the problem with all measures in this process, or None if that takes too much memory."""
        sizes, m = self.objective.sizes, self.cost.shape[0]
        if self.too_large or 8 * (6.0 * sizes.n * m + sizes.support**2 / sizes.n) > self.budget.max_memory:
            return None
        shards = self.objective.shards
        targets = sparse.vstack(shards.collect(BarycenterShard.targets, np.arange(sizes.n)), format="csr")
        weights = np.ones(sizes.n) if self.weights is None else self.weights
        used = np.flatnonzero(weights)
        return FreeMeasure(targets[used], weights[used], self.cost, n_jobs=self.model.n_jobs)

    def _large(self, problem: FreeMeasure | None) -> Iterator[tuple[Epoch, str]]:
        """Descend until the potentials are good enough for the linear programme, and to the end if it does not fit."""
        if self.descent is None:
            self.descent = Descent(self.model, self.objective, self.units.single())
        descent, most = self.descent, self.model.max_epochs
        if problem is None and not self.history:
            self.lower = self.units.lower(0.0)
            self._offer_input()
            if self.gap <= self.target:
                yield self._exact_record("an input")
            else:
                self.upper = self.scale = np.inf  # that of the descent is not known
        while not (self.history and self._finished()):
            if problem is not None and descent.done >= min(_ENOUGH, most):
                yield from self._rounds(linear_programme.stages(problem, self.target, *self._start(), self.budget))
                if self.ended != "memory":
                    return
                problem, self.problem, self.too_large = None, None, True
                self.lower, self.upper = -np.inf, np.inf  # the descent goes on
                self._follow(descent)
            elif descent.control.finished or descent.done + self.steps >= most:
                break
            else:
                yield self._epoch(descent)
        if not self._finished():
            yield from self._level_steps(descent)

    def _start(self) -> tuple[Array, Array, float]:
        """Return potentials and weights of the descent, and their objective, for the linear programme."""
        assert self.descent is not None
        self.objective.lower_bound(_ROUNDS[0])
        L = self.units.unit * np.concatenate(self.objective.shards.collect(BarycenterShard.ascended))
        used = L if self.weights is None else L[self.weights > 0]
        return used, _without_negligible(self.descent.average), self.history[-1].estimate

    def _epoch(self, descent: Descent) -> tuple[Epoch, str]:
        """Run an epoch of the descent, and compute its exact objective if the gap may be reached."""
        record, note = descent.epoch()
        self._follow(descent)
        if record.estimate - record.lower <= self.target * abs(record.estimate):
            upper = self._upper(self.p)
            if relative_gap(self.lower, upper, scale_of(upper)) <= self.target:
                self.upper, self.scale = upper, scale_of(upper)
        return record, note

    def _follow(self, descent: Descent) -> None:
        """Take over weights and lower bound of the descent."""
        self.p, self.lower = _without_negligible(descent.average), self.units.lower(max(descent.lower, 0.0))

    def _offer_input(self) -> None:
        """Take the measure of the largest weight if its objective is better."""
        shards, heaviest = self.objective.shards, 0 if self.weights is None else int(self.weights.argmax())
        x = sparse.vstack(shards.collect(BarycenterShard.targets, np.array([heaviest])), format="csr").toarray()[0]
        if (upper := self._upper(x)) < self.upper:
            self.p, self.upper, self.scale = x, upper, scale_of(upper)

    def _upper(self, p: Array) -> float:
        """Return the exact objective of weights, rounded up, from the shards."""
        return self.units.upper(self.objective.value(p))

    @property
    def gap(self) -> float:
        """The certified relative gap."""
        return relative_gap(self.lower, self.upper, self.scale)

    def _finished(self) -> bool:
        """Return whether the gap is reached or time is over, and note it."""
        if self.gap <= max(self.target, PROGRAMME_GAP):
            self.ended = "gap reached"
        elif self.budget.spent:
            self.ended = "time"
        else:
            return False
        return True

    def _rounds(self, stages: Iterator[Optimum]) -> Iterator[tuple[Epoch, str]]:
        """Solve the linear programme."""
        with linear_programme.ONE_THREAD():
            for best in stages:
                yield self._record(best)
        self.ended = best.ended

    def _record(self, best: Optimum) -> tuple[Epoch, str]:
        """Take over an optimum; return its record and a note."""
        if best.upper < np.inf:
            self.p, self.lower, self.upper, self.scale = best.w, best.lower, best.upper, best.scale
        return self._exact_record(best.stage)

    def _exact_record(self, stage: str) -> tuple[Epoch, str]:
        """Return a record of the bounds, and a note."""
        record = Epoch(self.upper, self.lower, self.upper, 0.0, 0.0, 0.0)
        return record, f"{stage}, cost {self.upper:.6g}, gap {self.gap:.1e}"

    def _level_steps(self, descent: Descent) -> Iterator[tuple[Epoch, str]]:
        """Take steps of the level method until the gap is reached or stalls."""
        if self.level is None:
            self.lower = max(self.lower, self.units.lower(self.objective.lower_bound(_ROUNDS[1])))
        while descent.done + self.steps < self.model.max_epochs and not self._finished():
            if self.level is None:
                self.level = LevelMethod(_with_all_points(descent.average))
                self._offer_input()
            level = self.level
            p = _without_negligible(np.exp(level.log_p))
            value, cut = self.objective.exact(p)
            if (upper := self.units.upper(value)) < self.upper:
                self.p, self.upper, self.scale = p, upper, scale_of(upper)
            with linear_programme.ONE_THREAD():
                level.add(cut)
                level.step(*((bound - self.units.shift) / self.units.unit for bound in (self.lower, self.upper)))
            self.lower, self.steps = max(self.lower, self.units.lower(level.lower)), self.steps + 1
            yield self._exact_record(f"level step {self.steps}")
            if self.steps > _STALL:
                before, now = (upper - lower for _, lower, upper, *_ in (self.history[-k] for k in (_STALL, 1)))
                if now > 0.9 * before:
                    self.ended = "memory"
                    return
        if not self._finished():
            self.ended = "epochs"

    def complete(self) -> None:
        """Compute the bounds of a descent that has ended, and take an input if it is better."""
        if self.upper == np.inf:
            self.upper = self._upper(self.p)
            self.scale = scale_of(self.upper)
            if self.gap > self.target:
                self.lower = max(self.lower, self.units.lower(self.objective.lower_bound(_ROUNDS[0])))
                self._offer_input()

    def complete_rounded(self, p: Array) -> None:
        """Compute the exact objective of published weights, if they differ from those that were certified."""
        if p.dtype == self.p.dtype and np.array_equal(p, self.p):
            return
        before = self.upper
        if self.problem is not None:
            found = self.problem.upper(p)[0]
            self.upper, self.scale = found.upper, found.scale
        else:
            self.upper = self._upper(p)
            self.scale = scale_of(self.upper)
        if self.upper > before and self.ended == "gap reached":
            self.ended = "weights"

    def status(self) -> str:
        """Return the status of the fit, and warn if the gap stays open."""
        found, known = concluded(self.lower, self.upper, self.scale, self.ended, self.model.gap)
        if known not in PROVED and self.ended == "stopped":
            return "stopped"
        warn_of_gaps([found.gap], [known], [found.reason], "barycenters")
        return known


def _with_all_points(p: Array) -> Array:
    """Return weights of which none is too small to grow again."""
    p = p + _LEAST / len(p)
    return np.asarray(p / p.sum())


def _without_negligible(p: Array) -> Array:
    """Return weights without negligible ones."""
    p = np.where(p < _NEGLIGIBLE * p.max(), 0, p)
    return np.asarray(p / p.sum())
