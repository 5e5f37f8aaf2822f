"""Gradients at mixtures of components, from chains, as sums that do not depend on the order of their terms."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...distributed import fixed_point
from ...distributed.shard import Array, EpochSums, Precision
from ...oracle.chains import TargetChains
from ...sampling.mixtures import Gradients, Mixtures


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
    return _scaled(oracle.mixture_gradients(_mixtures(W, D, None, precision), temperature), precision)


def gradients(
    oracle: TargetChains,
    W: Array,
    D: NDArray[np.int32],
    temperature: float,
    precision: Precision,
    weights: Array,
    first: int = 0,
    tau: int | None = None,
) -> tuple[Array, EpochSums]:
    """Advance the chains of some targets; return the gradients for the memberships, and the sums over the targets.

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
    array of shape (n, K), EpochSums
    """
    weighted = fixed_point.quantise(W * weights[:, None], 2.0**-precision.bits)
    found = oracle.mixture_gradients(_mixtures(W, D, weighted, precision), temperature, first, tau)
    value = int(fixed_point.quantise(found.values * weights, precision.value).astype(np.int64).sum())
    return _scaled(found, precision), EpochSums(found.components, value, int(found.sweeps.sum()))


def _mixtures(W: Array, D: NDArray[np.int32], weighted: Array | None, precision: Precision) -> Mixtures:
    return Mixtures(D, fixed_point.memberships(W), weighted, precision.bits, precision.potential)


def _scaled(found: Gradients, precision: Precision) -> Array:
    return found.memberships * (precision.potential * 2.0**-fixed_point.COMPONENT_BITS)
