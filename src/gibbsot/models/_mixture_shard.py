"""A shard of the data of `WassersteinNMF`, with the memberships of its measures."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..distributed import fixed_point
from ..distributed.shard import Array, EpochSums, Indices, Shard, command, query
from ..io import schemas
from ..solvers.mirror_descent import logarithms, mirror_step
from .mixtures import Basis, least_squares


class Mixture(NamedTuple):
    """Quantised components, mixed by the memberships of the best model or by the current ones."""

    components: NDArray[np.int32]
    best: bool


class MixtureShard(Shard[Mixture]):
    """Measures, their chains, and their memberships in the current and in the best model."""

    saved = (*Shard.saved, "log_memberships", "best_memberships")
    schema = schemas.MIXTURE_SHARD
    before: tuple[Array, Array, Any]  # the state before the epoch

    @command
    def start(self, basis: Basis, indices: Indices, memberships: Array) -> None:
        """Set the initial memberships: those of some measures are given, least squares finds the others."""
        positions, rows = self.local(indices)
        rest = np.setdiff1d(np.arange(len(self)), rows)
        W = np.empty((len(self), memberships.shape[1]))
        W[rows] = memberships[positions]
        if len(rest):
            W[rest] = least_squares(self.oracle.targets[rest], basis)
        self.log_memberships = logarithms(W)
        self.keep_best()

    @command
    def epoch(
        self, D: NDArray[np.int32], temperature: float, step: float, begin: int, end: int, batch_size: int
    ) -> EpochSums:
        """Update the memberships of some measures; return the gradient for the components.

        Parameters
        ----------
        D : array of int of shape (K, m)
            Quantised components.
        temperature, step : float
            T, and the step of the memberships.
        begin, end : int
            The range of indices of the measures.
        batch_size : int
            The number of measures that are updated together.

        Returns
        -------
        EpochSums
        """
        gradient, value, sweeps = np.zeros(D.shape, np.int64), 0, 0
        begin, end = (int(np.clip(index - self.first, 0, len(self))) for index in (begin, end))
        for start in range(begin, end, batch_size):
            rows = np.arange(start, min(start + batch_size, end))
            W = np.exp(self.log_memberships[rows])
            values, U, info = self.oracle(fixed_point.mixtures(W, D), temperature, rows)
            U = fixed_point.quantise(U, self.quantum)
            gradient += fixed_point.product(fixed_point.quantise(W, 2.0**-self.bits), U, self.bits)
            value += sum(map(int, fixed_point.quantise(values, self.value_quantum).tolist()))
            sweeps += int(info.sweeps.sum())
            gradients = fixed_point.membership_gradients(U, D, self.quantum)
            self.log_memberships[rows] = mirror_step(self.log_memberships[rows], gradients, step)
        return EpochSums(gradient, value, sweeps)

    @command
    def keep_best(self) -> None:
        """Store the current memberships as those of the best model."""
        self.best_memberships = self.log_memberships.copy()

    @command
    def restore_best(self) -> None:
        """Return to the memberships of the best model."""
        self.log_memberships = self.best_memberships.copy()

    @command
    def remember(self) -> None:
        """Keep a copy of the state before an epoch."""
        chains = self.oracle.snapshot() if len(self) else None
        self.before = self.log_memberships.copy(), self.best_memberships, chains

    @command
    def roll_back(self) -> None:
        """Return to the state before an epoch that was interrupted."""
        current, self.best_memberships, chains = self.before
        self.log_memberships = current.copy()
        if chains is not None:
            self.oracle.restore(chains)

    @query
    def memberships(self) -> NDArray[np.floating]:
        """Return the memberships of the best model, uniform for rows without mass."""
        return self._all_rows(self.best_memberships)

    @query
    def current_memberships(self) -> NDArray[np.floating]:
        """Return those of the current model."""
        return self._all_rows(self.log_memberships)

    @query
    def usage(self, best: bool) -> NDArray[np.int64]:
        """Return the sum of the memberships in each component, in the best or the current model, in quanta."""
        W = self._all_rows(self.best_memberships if best else self.log_memberships)
        return np.asarray(fixed_point.quantise(W, 2.0**-fixed_point.COMPONENT_BITS).astype(np.int64).sum(axis=0))

    def models(self, rows: Indices, model: Mixture) -> Array:
        memberships = self.best_memberships if model.best else self.log_memberships
        return fixed_point.mixtures(np.exp(memberships[rows]), model.components)

    def _all_rows(self, log_memberships: Array) -> NDArray[np.floating]:
        """Return memberships with those of rows without mass."""
        K = log_memberships.shape[1]
        W = np.full((self._metadata.n_rows, K), 1 / K, self._metadata.dtype)
        W[self.rows] = np.exp(log_memberships)
        return W
