"""A shard of the data of `WassersteinNMF`, with the memberships of its measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...distributed import fixed_point
from ...distributed.fixed_point import Fixed
from ...distributed.shard import Array, ChainShard, EpochSums, Indices, Sample, command, query
from ...io import npz, schemas
from ...oracle.mirror_descent import AcceleratedMirrorDescent, logarithms, mirror_step
from ...sampling.annealing import paper
from ..mixtures import Factors, least_squares
from .gradients import gradients

if TYPE_CHECKING:
    from typing import Self


class Mixture(NamedTuple):
    """Components, and the memberships to mix them by: those of the current, the mean or the best model.

    Components are quantised, but for `MixtureShard.published_costs` those that a model publishes.
    """

    components: NDArray[Any]
    memberships: str


class MixtureShard(ChainShard[Mixture]):
    """Measures, their weights and chains, and their memberships in the current, the mean and the best model."""

    saved = (*ChainShard.saved, "log_memberships", "mean_memberships", "best_memberships", "weights")
    schema = schemas.MIXTURE_SHARD
    weights: Array  # of the measures, at most one
    descent: AcceleratedMirrorDescent | None = None  # of the memberships, where they are not found by mirror descent
    before: tuple[Any, ...]  # the state before the epoch
    found: Array  # the gradients of the last `sweep`
    values: Array  # V(z) of each measure in this epoch

    @command
    def start(
        self, factors: Factors, indices: Indices, memberships: Array, weights: Array | None, algorithm: str
    ) -> None:
        """Set weights and initial memberships.

        Parameters
        ----------
        factors : Factors
            Of the components.
        indices, memberships : arrays of shape (k,) and (k, K)
            Measures whose memberships are given; least squares finds the others.
        weights : array of shape (n,), optional
            The weights of the measures of this shard, at most one.
        algorithm : {"adaptive", "paper", "d2suite"}
            With the last two, memberships are found by accelerated mirror descent. Chains are tested every tau sweeps
            as in the paper, or by the fit, which then calls `sweep` for tau sweeps of a batch.
        """
        self.weights, self.values = np.ones(len(self)) if weights is None else weights, np.zeros(len(self))
        positions, rows = self.local(indices)
        rest = np.setdiff1d(np.arange(len(self)), rows)
        W = np.empty((len(self), memberships.shape[1]))
        W[rows] = memberships[positions]
        if len(rest):
            W[rest] = least_squares(self.oracle.targets[rest], factors)
        self.log_memberships = logarithms(W)
        self.mean_memberships = np.exp(self.log_memberships)
        rule = (paper.RATIO, paper.RESTART) if algorithm == "d2suite" else ()
        self.descent = None if algorithm == "adaptive" else AcceleratedMirrorDescent(W, *rule)
        if algorithm != "adaptive" and len(self):
            self.oracle.stride = self.oracle.tau
        if algorithm == "d2suite" and len(self):
            self.oracle.max_sweeps = self.oracle.tau  # too few for a test
        self.keep_best()

    @command
    def epoch(
        self,
        D: NDArray[np.int32],
        temperature: float,
        step: float,
        share: float,
        lag: float,
        begin: int,
        end: int,
    ) -> EpochSums:
        """Update the memberships of some measures; return the gradient for the components.

        Parameters
        ----------
        D : array of int of shape (K, m)
            Quantised components.
        temperature, step : float
            T, and the step of the memberships.
        share : float
            The share of the new memberships in their mean.
        lag : float
            That of the mixing test, relative to tau.
        begin, end : int
            The range of indices of the measures.

        Returns
        -------
        EpochSums
        """
        sums = self.sweep(D, temperature, lag, begin, end)
        self.move(step, share, begin, end)
        return sums

    @command
    def sweep(self, D: NDArray[np.int32], temperature: float, lag: float, begin: int, end: int) -> EpochSums:
        """Advance the chains of some measures; keep the gradients for `move`. Parameters are those of `epoch`."""
        rows = self._rows(begin, end)
        W = np.exp(self.log_memberships[rows])
        if not len(W):
            return EpochSums(self.precision.no_gradient(D.shape), Fixed(0, self.precision.value), 0)
        tau, weights = max(1, round(lag * self.oracle.tau)), self.weights[rows]
        self.found, sums, values = gradients(self.oracle, W, D, temperature, self.precision, weights, rows.start, tau)
        self.values[rows] = values
        return sums

    @command
    def move(self, step: float, share: float, begin: int, end: int) -> None:
        """Update the memberships of some measures by the gradients of the last `sweep`."""
        rows = self._rows(begin, end)
        if rows.start == rows.stop:
            return
        self._update(rows, self.found, step)
        mean = self.mean_memberships[rows]
        self.mean_memberships[rows] = mean + share * (np.exp(self.log_memberships[rows]) - mean)

    def _rows(self, begin: int, end: int) -> slice:
        """Return those of the measures begin to end that are in this shard."""
        return slice(*(int(np.clip(index - self.first, 0, len(self))) for index in (begin, end)))

    def _update(self, rows: slice, gradients: Array, step: float) -> None:
        """Take a step with the memberships of some measures."""
        if self.descent is None:
            self.log_memberships[rows] = mirror_step(self.log_memberships[rows], gradients, step)
        else:
            self.descent.step(gradients, step, rows)
            self.log_memberships[rows] = logarithms(self.descent.x[rows])

    @command
    def keep_best(self) -> None:
        """Store the mean memberships as those of the best model."""
        self.best_memberships = logarithms(self.mean_memberships)

    @command
    def restore_best(self) -> None:
        """Return to the memberships of the best model."""
        self.log_memberships = self.best_memberships.copy()
        self.mean_memberships = np.exp(self.best_memberships)

    @command
    def remember(self) -> None:
        """Keep a copy of the state before an epoch."""
        chains = self.oracle.snapshot() if len(self) else None
        descent = None if self.descent is None else self.descent.arrays()
        memberships = self.log_memberships.copy(), self.mean_memberships.copy(), self.best_memberships
        self.before = memberships, chains, descent

    @command
    def roll_back(self) -> None:
        """Return to the state before an epoch that was interrupted."""
        (current, mean, self.best_memberships), chains, descent = self.before
        self.log_memberships, self.mean_memberships = current.copy(), mean.copy()
        self.descent = None if descent is None else AcceleratedMirrorDescent.from_arrays(descent)
        if chains is not None:
            self.oracle.restore(chains)

    @query
    def epoch_values(self, sample: Sample[Mixture]) -> Array:
        """Return V(z) of a sample in the last epoch, zero for measures of other shards."""
        positions, rows = self.local(sample.indices)
        found = np.zeros(len(sample.indices))
        found[positions] = self.values[rows]
        return found

    @query
    def memberships(self) -> NDArray[np.floating]:
        """Return the memberships of the best model, uniform for rows without mass."""
        return self._all_rows(np.exp(self.best_memberships))

    @query
    def means(self) -> NDArray[np.floating]:
        """Return those of the mean model."""
        return self._all_rows(self.mean_memberships)

    @query
    def published_costs(self, sample: Sample[Mixture], temperature: float) -> Array:
        """Return upper bounds of the costs of a sample, for memberships and components in the type of the data."""
        positions, rows = self.local(sample.indices)
        costs, (D, kind) = np.zeros(len(sample.indices)), sample.model
        if len(rows):
            W = (np.exp(self.best_memberships) if kind == "best" else self.mean_memberships)[rows]
            P = W.astype(self._metadata.dtype).astype(np.float64) @ D.astype(np.float64)
            found = self.oracle.exact(P / P.sum(axis=1, keepdims=True), temperature, rows)
            costs[positions] = [optimum.upper for optimum in found]
        return costs

    @query
    def usage(self, best: bool) -> Fixed:
        """Return the weighted sum of the memberships in each component, of the best or the mean model."""
        W = np.exp(self.best_memberships) if best else self.mean_memberships
        W = W.astype(self._metadata.dtype) * self.weights[:, None]
        rounded = Fixed.of(W, fixed_point.COMPONENT_QUANTUM)
        return Fixed(rounded.integers.astype(np.int64).sum(axis=0), rounded.quantum)

    def _state(self) -> dict[str, Any]:
        descent = {} if self.descent is None else self.descent.arrays()
        return super()._state() | {f"descent_{name}": x for name, x in descent.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the shard whose state `arrays` returned."""
        shard = super().from_arrays(arrays)
        shapes = {getattr(shard, f"{name}_memberships").shape for name in ("log", "mean", "best")}
        if len(shapes) != 1 or len(shard.log_memberships) != len(shard.rows) or len(shard.weights) != len(shard.rows):
            raise ValueError(f"memberships: expected {len(shard.rows)} rows each, got shapes {sorted(shapes)}")
        shard.values = np.zeros(len(shard.rows))
        descent = npz.with_prefix(arrays, "descent_")
        shard.descent = AcceleratedMirrorDescent.from_arrays(descent) if descent else None
        return shard

    def models(self, rows: Indices, model: Mixture) -> Array:
        if model.memberships == "mean":
            return fixed_point.mixtures(self.mean_memberships[rows], model.components)
        log_memberships = self.best_memberships if model.memberships == "best" else self.log_memberships
        return fixed_point.mixtures(np.exp(log_memberships[rows]), model.components)

    def _all_rows(self, memberships: Array) -> NDArray[np.floating]:
        """Return memberships with those of rows without mass."""
        K = memberships.shape[1]
        W = np.full((self._metadata.n_rows, K), 1 / K, self._metadata.dtype)
        W[self.rows] = memberships
        return W
