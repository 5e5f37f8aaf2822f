"""Sums that have no order: of numbers rounded to so few bits that adding them up rounds nothing.

A sum of floating-point numbers depends on its order, and so on threads, on the blocks of a matrix product and on how
data are split. Whole numbers below 2**53 add up and multiply exactly in floating point, those below 2**63 as integers.
So weights and potentials are counted in ticks of a unit, a power of two: products of them are matrix products at full
speed, and have the same bits wherever and in whatever parts they are computed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

FINE = 30  # bits of a component's weight
_FACTOR, _EXACT, _WHOLE = 22, 53, 62  # bits of a factor; those that are exact in a product; of an integer, but for sign


def bits(n: int) -> int:
    """Return how many bits each factor may have in a sum of n products.

    Examples
    --------
    >>> bits(200), bits(10**8)
    (22, 17)
    """
    return min(_FACTOR, (_WHOLE - int(n).bit_length()) // 2)


def unit(largest: float, bits: int) -> float:
    """Return the unit in which numbers up to the largest have so many bits.

    Examples
    --------
    >>> unit(0.9, 3)
    0.125
    """
    return math.ldexp(1.0, math.frexp(largest)[1] - bits)


def count(x: ArrayLike, unit: float) -> Array:
    """Return numbers in ticks of a unit, rounded.

    Examples
    --------
    >>> count([0.3, 0.5], 0.25)
    array([1., 2.])
    """
    return np.rint(np.asarray(x, np.float64) / unit)


def product(A: Array, B: Array, bits: int) -> NDArray[np.int64]:
    """Return ``A.T @ B`` of ticks that have so many bits, over any number of rows.

    Examples
    --------
    >>> A = np.array([[3.0], [1.0]])
    >>> product(A, A, 2)
    array([[10]])
    """
    total = np.zeros((A.shape[1], B.shape[1]), np.int64)
    rows = 1 << (_EXACT - 2 * bits)
    for start in range(0, len(A), rows):
        total += (A[start : start + rows].T @ B[start : start + rows]).astype(np.int64)
    return total


def mixtures(W: ArrayLike, D: NDArray[np.int32]) -> Array:
    """Return mixtures with sum one of components in ticks, for memberships with sum one.

    Examples
    --------
    >>> mixtures([[0.5, 0.5]], components([[1.0, 0.0], [0.5, 0.5]]))
    array([[0.75, 0.25]])
    """
    P = count(W, 2.0**-_FACTOR) @ D.astype(np.float64)
    return np.asarray(P / P.sum(axis=1, keepdims=True))


def components(D: ArrayLike) -> NDArray[np.int32]:
    """Return components, rows of weights with sum one, in ticks."""
    return count(D, 2.0**-FINE).astype(np.int32)


def pulled(U: Array, D: NDArray[np.int32], unit: float) -> Array:
    """Return ``U @ D.T``, the gradients of memberships, for potentials in ticks of a unit and components in ticks."""
    return U @ D.T.astype(np.float64) * (unit * 2.0**-FINE)
