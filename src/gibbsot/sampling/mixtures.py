"""Chains whose models are mixtures of components, and the gradients for components and memberships.

All factors are integers, multiples of quanta, with so few bits that sums of their products are exact in double
precision (see ``distributed.fixed_point``). So results are bit-identical for every number of threads and for every
split of the measures. `Mixtures` has the specification in NumPy; the kernels need no intermediate matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import native
from ..core.backend import backend
from ..costs import Cost
from . import sampler

Array = NDArray[np.float64]
_FLOAT_BITS = 53  # bits of an integer that is exact as a float


def exact_rows(bits: int) -> int:
    """Return over how many rows a sum of products of integers is exact in double precision, given their bits."""
    return 1 << (_FLOAT_BITS - 2 * bits)


def product(A: Array, B: Array, bits: int) -> NDArray[np.int64]:
    """Return ``A.T @ B`` for integers of the given number of bits, over any number of rows.

    Examples
    --------
    >>> A = np.array([[3.0], [1.0]])
    >>> product(A, A, 2)
    array([[10]])
    """
    total, rows = np.zeros((A.shape[1], B.shape[1]), np.int64), exact_rows(bits)
    for start in range(0, len(A), rows):
        total += (A[start : start + rows].T @ B[start : start + rows]).astype(np.int64)
    return total


def mix(memberships: Array, components: NDArray[np.int32]) -> Array:
    """Return mixtures with sum one, of memberships and components in integers."""
    P = memberships @ components.astype(np.float64)
    return np.asarray(P / P.sum(axis=1, keepdims=True))


class Mixtures(NamedTuple):
    """Mixtures of components, in integers.

    Attributes
    ----------
    components : array of int32, shape (K, m)
        The components, with one sum but for rounding.
    memberships : array of shape (n, K)
        The memberships of each measure, with one sum but for rounding.
    weighted : array of shape (n, K), optional
        Those by which the gradient for the components is summed over the measures; None for no such gradient.
    bits : int
        The largest number of bits of ``weighted`` and of the potentials.
    quantum : float
        The quantum of potentials.
    """

    components: NDArray[np.int32]
    memberships: Array
    weighted: Array | None
    bits: int
    quantum: float

    def rows(self, begin: int, end: int) -> Mixtures:
        """Return those of some measures."""
        weighted = None if self.weighted is None else self.weighted[begin:end]
        return self._replace(memberships=self.memberships[begin:end], weighted=weighted)

    def models(self) -> Array:
        """Return the mixtures, with sum one."""
        return mix(self.memberships, self.components)

    def gradients(self, U: NDArray[np.floating]) -> tuple[Array, NDArray[np.int64]]:
        """Return the gradients for the memberships, ``U @ D.T``, and the sum of those for the components."""
        rounded = np.rint(U.astype(np.float64) / self.quantum)
        total = self.no_sums() if self.weighted is None else product(self.weighted, rounded, self.bits)
        return rounded @ self.components.T.astype(np.float64), total

    def no_sums(self) -> NDArray[np.int64]:
        """Return the sum of the gradients for the components over no measures."""
        return np.zeros((0, 0) if self.weighted is None else self.components.shape, np.int64)


class MixtureGradients(NamedTuple):
    """Values of chains, and their gradients in integers.

    Attributes
    ----------
    values : array of shape (n,)
        V(z) of each chain.
    memberships : array of shape (n, K)
        The gradients for the memberships.
    components : array of int64, shape (K, m)
        The sum of the gradients for the components over the measures; of shape (0, 0) without ``weighted``.
    sweeps : array of int64, shape (n,)
        The number of sweeps of each chain.
    """

    values: Array
    memberships: Array
    components: NDArray[np.int64]
    sweeps: NDArray[np.int64]

    @classmethod
    def join(cls, parts: Sequence[MixtureGradients]) -> MixtureGradients:
        """Return those of all measures from those of parts."""
        if len(parts) == 1:
            return parts[0]
        values, memberships, components, sweeps = zip(*parts, strict=True)
        total = np.sum(components, axis=0)
        return cls(np.concatenate(values), np.concatenate(memberships), total, np.concatenate(sweeps))


def run(
    mixtures: Mixtures,
    targets: tuple[NDArray[np.integer], NDArray[np.integer], Array],
    cost: Cost,
    h: NDArray[np.floating],
    sweep: NDArray[np.int64],
    temperatures: Array,
    *,
    max_sweeps: int,
    n_jobs: int | None,
    **options: Any,
) -> MixtureGradients | None:
    """Advance chains until their mixing tests hold, with compiled kernels.

    Parameters
    ----------
    mixtures : Mixtures
        The models.
    targets : triple of arrays of shape (n + 1,), (nnz,) and (nnz,)
        The targets as sparse rows, with sum one: where each starts, the columns of its entries, and their weights.
    cost : Cost
        The cost.
    h : array of shape (nnz,)
        The state of the chains at each entry of the targets, which changes.
    sweep : array of int64, shape (n,)
        The number of sweeps that each chain has done, which changes.
    temperatures : array of shape (1,) or (n,)
        The temperature, of all chains or of each.
    max_sweeps : int
        The largest number of sweeps.
    n_jobs : int, optional
        The number of threads.
    **options
        ``tau``, ``stride``, ``seed`` and ``ids`` of the chains.

    Returns
    -------
    MixtureGradients, or None if there is no kernel for the cost
    """
    if not backend().has_chains(cost):
        return None
    sampler.check_sweeps(sweep, max_sweeps)
    D, W, weighted = mixtures.components, mixtures.memberships, mixtures.weighted
    values, gradients, sums, before = np.empty(len(W)), np.empty(W.shape), mixtures.no_sums(), sweep.copy()
    starts, columns, weights = targets
    backend().mixture_sweeps(
        cost,
        components=np.ascontiguousarray(D),
        memberships=np.ascontiguousarray(W),
        weighted=np.ascontiguousarray(np.empty((0, 0)) if weighted is None else weighted),
        m2=cost.shape[1],
        starts=starts.astype(np.int64),
        columns=columns.astype(np.int64),
        weights=weights,
        temperatures=temperatures,
        max_sweeps=max_sweeps,
        mixing_slope=sampler.MIXING_SLOPE,
        quantum=mixtures.quantum,
        most=exact_rows(mixtures.bits),
        n_threads=native.threads(n_jobs),
        h=h,
        sweep=sweep,
        values=values,
        gradients=gradients,
        sums=sums,
        **options,
    )
    return MixtureGradients(values, gradients, sums, sweep - before)
