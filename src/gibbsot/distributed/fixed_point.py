"""Fixed-point summation: sums whose result does not depend on the order of the terms.

A floating-point sum depends on the order of its terms, and so on threads, on the blocks of a matrix product and on how
the data are sharded. Integers below 2**53 are added and multiplied exactly in floating point, those below 2**63 as
integers. So weights and potentials are rounded to multiples of a quantum, a power of two, with so few bits that
products and sums of them are exact. Products are matrix products at full speed, and results are bit-identical for
every number of threads, shards and workers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..sampling.mixtures import mix
from ..sampling.mixtures import product as product

Array = NDArray[np.float64]

COMPONENT_BITS = 30  # bits of a component's weight
_FACTOR_BITS = 22  # largest number of bits of a factor
_INT_BITS = 62  # bits of an int64 that a sum may use


def bits(n: int) -> int:
    """Return the number of bits that each factor may have in a sum of n products.

    Examples
    --------
    >>> bits(200), bits(10**8)
    (22, 17)
    """
    return min(_FACTOR_BITS, (_INT_BITS - int(n).bit_length()) // 2)


def quantum(largest: float, bits: int) -> float:
    """Return the quantum with which numbers up to the largest have the given number of bits.

    Examples
    --------
    >>> quantum(0.9, 3)
    0.125
    """
    return math.ldexp(1.0, math.frexp(largest)[1] - bits)


def quantise(x: ArrayLike, quantum: float) -> Array:
    """Return numbers as multiples of a quantum, rounded to integers.

    Examples
    --------
    >>> quantise([0.3, 0.5], 0.25)
    array([1., 2.])
    """
    return np.rint(np.asarray(x, np.float64) / quantum)


def components(D: ArrayLike) -> NDArray[np.int32]:
    """Return components, rows of weights with sum one, as multiples of ``2**-COMPONENT_BITS``."""
    return quantise(D, 2.0**-COMPONENT_BITS).astype(np.int32)


def memberships(W: ArrayLike) -> Array:
    """Return memberships, rows of weights with sum one, as multiples of a quantum."""
    return quantise(W, 2.0**-_FACTOR_BITS)


def mixtures(W: ArrayLike, D: NDArray[np.int32]) -> Array:
    """Return mixtures with sum one, for memberships with sum one and quantised components.

    Examples
    --------
    >>> mixtures([[0.5, 0.5]], components([[1.0, 0.0], [0.5, 0.5]]))
    array([[0.75, 0.25]])
    """
    return mix(memberships(W), D)
