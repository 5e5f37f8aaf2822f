"""A shard of the data of `WassersteinNMF`, with the memberships of its measures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..distributed import fixed_point
from ..distributed.shard import Array, Indices, Shard, Sum, command, query
from ..io import schemas
from ..solvers.mirror_descent import logarithms, mirror_step
from .mixtures import Basis, least_squares


@dataclass(frozen=True, eq=False)
class Mixture:
    """Quantised components, mixed by the memberships of the best model or by the current ones."""

    components: NDArray[np.int32]
    best: bool


@dataclass(frozen=True, eq=False)
class StartRequest:
    """Initial memberships of some measures, and components from which least squares finds the others."""

    components: NDArray[np.int32]
    basis: Basis
    indices: Indices
    memberships: Array


@dataclass(frozen=True, eq=False)
class EpochRequest:
    """An update of the memberships of the measures from ``begin`` to ``end``.

    Attributes
    ----------
    components : array of int of shape (K, m)
        Quantised components.
    temperature, step : float
        T, and the step of the memberships.
    begin, end : int
        The range of indices of the measures.
    batch_size : int
        The number of measures that are updated together.
    """

    components: NDArray[np.int32]
    temperature: float
    step: float
    begin: int
    end: int
    batch_size: int


@dataclass(frozen=True, eq=False)
class EpochAnswer(Sum):
    """Sums over measures, in quanta: the gradient for the components, V(z); and the number of sweeps."""

    gradient: NDArray[np.int64]
    value: int
    sweeps: int


@dataclass(frozen=True, eq=False)
class Usage(Sum):
    """The sum of the best memberships in each component, in quanta."""

    memberships: NDArray[np.int64]


class MixtureShard(Shard[Mixture]):
    """Measures, their chains, and their memberships in the current and in the best model."""

    saved = (*Shard.saved, "log_memberships", "best_memberships")
    schema = schemas.MIXTURE_SHARD

    @command
    def start(self, request: StartRequest) -> Sum:
        """Set the initial memberships."""
        positions, rows = self.local(request.indices)
        rest = np.setdiff1d(np.arange(len(self)), rows)
        memberships = np.empty((len(self), len(request.components)))
        memberships[rows] = request.memberships[positions]
        if len(rest):
            memberships[rest] = least_squares(self.oracle.targets[rest], request.basis)
        self.log_memberships = logarithms(memberships)
        self.best_memberships = self.log_memberships.copy()
        return Sum()

    @command
    def epoch(self, request: EpochRequest) -> EpochAnswer:
        """Update memberships; return the gradient for the components."""
        D = request.components
        gradient, value, sweeps = np.zeros(D.shape, np.int64), 0, 0
        begin, end = (int(np.clip(index - self.first, 0, len(self))) for index in (request.begin, request.end))
        for start in range(begin, end, request.batch_size):
            rows = np.arange(start, min(start + request.batch_size, end))
            W = np.exp(self.log_memberships[rows])
            values, U, info = self.oracle(fixed_point.mixtures(W, D), request.temperature, rows)
            U = fixed_point.quantise(U, self.quantum)
            gradient += fixed_point.product(fixed_point.quantise(W, 2.0**-self.bits), U, self.bits)
            value += sum(map(int, fixed_point.quantise(values, self.value_quantum).tolist()))
            sweeps += int(info.sweeps.sum())
            gradients = fixed_point.membership_gradients(U, D, self.quantum)
            self.log_memberships[rows] = mirror_step(self.log_memberships[rows], gradients, request.step)
        return EpochAnswer(gradient, value, sweeps)

    @command
    def keep_best(self) -> Sum:
        """Store the current memberships as those of the best model."""
        self.best_memberships = self.log_memberships.copy()
        return Sum()

    @command
    def restore_best(self) -> Sum:
        """Return to the memberships of the best model."""
        self.log_memberships = self.best_memberships.copy()
        return Sum()

    @query
    def memberships(self) -> NDArray[np.floating]:
        """Return the memberships of the best model, uniform for rows without mass."""
        K = self.best_memberships.shape[1]
        W = np.full((self._metadata.n_rows, K), 1 / K, self._metadata.dtype)
        W[self.rows] = np.exp(self.best_memberships)
        return W

    @query
    def usage(self) -> Usage:
        """Return the sum of the best memberships."""
        quantised = fixed_point.quantise(self.memberships(), 2.0**-fixed_point.COMPONENT_BITS)
        return Usage(quantised.astype(np.int64).sum(axis=0))

    def models(self, rows: Indices, model: Mixture) -> Array:
        memberships = self.best_memberships if model.best else self.log_memberships
        return fixed_point.mixtures(np.exp(memberships[rows]), model.components)
