"""Gradients at mixtures of components, from chains, as sums that do not depend on the order of their terms."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...distributed import fixed_point
from ...distributed.fixed_point import Fixed, Precision
from ...distributed.shard import Array, EpochSums
from ...oracle.chains import TargetChains
from ...sampling.mixtures import MixtureGradients, Mixtures


def membership_gradients(
    oracle: TargetChains, W: Array, D: NDArray[np.int32], temperature: float | ArrayLike, precision: Precision
) -> Array:
    """Advance the chains of all targets; return the gradients of their values for the memberships.

    Parameters
    ----------
    oracle : TargetChains
        The measures and their chains.
    W : array of shape (n, K)
        Memberships.
    D : array of int of shape (K, m)
        Quantised components.
    temperature : float or array of shape (n,)
        T.
    precision : Precision
        Of the potentials.

    Returns
    -------
    array of shape (n, K)
    """
    return _memberships(oracle.mixture_gradients(_mixtures(W, D, None, precision), temperature), precision)


def gradients(
    oracle: TargetChains,
    W: Array,
    D: NDArray[np.int32],
    temperature: float,
    precision: Precision,
    weights: Array,
    first: int = 0,
    tau: int | None = None,
) -> tuple[Array, EpochSums, Array]:
    """Advance the chains of some targets; return gradients for the memberships, sums over the targets, and values.

    Parameters
    ----------
    oracle, W, D, temperature, precision
        As for `membership_gradients`.
    weights : array of shape (n,)
        The weights of the measures, at most one.
    first : int
        The first of the targets.
    tau : int, optional
        The lag of the mixing test, if it is not that of the oracle.

    Returns
    -------
    array of shape (n, K), EpochSums, array of shape (n,)
    """
    weighted = Fixed.of(W * weights[:, None], precision.weight)
    found = oracle.mixture_gradients(_mixtures(W, D, weighted.integers, precision), temperature, first, tau)
    gradient = Fixed(found.components, weighted.quantum * precision.potential)
    value = Fixed.of(found.values * weights, precision.value).sum()
    return _memberships(found, precision), EpochSums(gradient, value, int(found.sweeps.sum())), found.values


def _mixtures(W: Array, D: NDArray[np.int32], weighted: Array | None, precision: Precision) -> Mixtures:
    return Mixtures(D, fixed_point.memberships(W), weighted, precision.bits, precision.potential)


def _memberships(found: MixtureGradients, precision: Precision) -> Array:
    return np.asarray(Fixed(found.memberships, precision.potential * fixed_point.COMPONENT_QUANTUM).value)
