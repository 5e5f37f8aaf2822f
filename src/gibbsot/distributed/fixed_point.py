"""Fixed-point summation: sums whose result does not depend on the order of the terms.

A floating-point sum depends on the order of its terms, and so on threads, on the blocks of a matrix product and on how
the data are sharded. Integers below 2**53 are added and multiplied exactly in floating point, those below 2**63 as
integers. So weights and potentials are rounded to multiples of a quantum, a power of two, with so few bits that
products and sums of them are exact. Products are matrix products at full speed, and results are bit-identical for
every number of threads, shards and workers. `Fixed` carries the quantum with the integers, so that nobody scales by
hand; all quanta are powers of two, so that scaling rounds nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..costs import Cost
from ..sampling import mixtures as chains

Array = NDArray[np.float64]

COMPONENT_BITS = 30  # bits of a component's weight
COMPONENT_QUANTUM = 2.0**-COMPONENT_BITS
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


@dataclass(frozen=True, eq=False, slots=True)
class Fixed:
    """A number, or an array of them, as integers in units of a quantum. Sums are exact.

    Attributes
    ----------
    integers : int, or array of integers as int64 or float64
        The numbers in quanta.
    quantum : float
        A power of two.

    Examples
    --------
    >>> total = Fixed.of([0.3, 0.5], 0.25) + Fixed.of([1.0, 1.0], 0.25)
    >>> total.integers, total.value
    (array([5., 6.]), array([1.25, 1.5 ]))
    """

    integers: Any
    quantum: float

    @classmethod
    def of(cls, x: ArrayLike, quantum: float) -> Fixed:
        """Return numbers rounded to multiples of a quantum."""
        return cls(np.rint(np.asarray(x, np.float64) / quantum), quantum)

    def __add__(self, other: Fixed) -> Fixed:
        if self.quantum != other.quantum:
            raise ValueError(f"quantum: expected one for all terms, got {self.quantum} and {other.quantum}")
        return Fixed(self.integers + other.integers, self.quantum)

    def __getitem__(self, rows: Any) -> Fixed:
        return Fixed(self.integers[rows], self.quantum)

    @property
    def value(self) -> Any:
        """The numbers in double precision."""
        return self.integers * self.quantum

    def sum(self) -> Fixed:
        """Return the sum of all numbers."""
        return Fixed(int(self.integers.astype(np.int64).sum()), self.quantum)

    def times(self, factor: float) -> Array:
        """Return the numbers times a factor, in double precision."""
        return np.asarray(self.integers * (factor * self.quantum), np.float64)

    def over(self, divisor: float) -> Array:
        """Return the numbers over a divisor, in double precision."""
        return np.asarray(self.integers * (self.quantum / divisor), np.float64)


class Precision(NamedTuple):
    """The quanta of a sum over measures.

    Attributes
    ----------
    bits : int
        The number of bits of a factor.
    potential, value : float
        The quanta of potentials and of values.
    """

    bits: int
    potential: float
    value: float

    @classmethod
    def of(cls, cost: Cost, n: int) -> Precision:
        """Return the quanta of sums over n measures."""
        own, largest = bits(n), 1.001 * cost.spread()  # for rounding
        return cls(own, quantum(largest, own), quantum(largest, COMPONENT_BITS))

    @property
    def weight(self) -> float:
        """The quantum of weights, which are at most one."""
        return 2.0**-self.bits

    def no_gradient(self, shape: tuple[int, ...]) -> Fixed:
        """Return the sum of weighted potentials over no measures."""
        return Fixed(np.zeros(shape, np.int64), self.weight * self.potential)


def product(A: Fixed, B: Fixed, bits: int) -> Fixed:
    """Return ``A.T @ B`` for integers of the given number of bits, over any number of rows.

    Examples
    --------
    >>> A = Fixed.of([[0.75], [0.25]], 0.25)
    >>> product(A, A, 2).value
    array([[0.625]])
    """
    return Fixed(chains.product(A.integers, B.integers, bits), A.quantum * B.quantum)


def quantum(largest: float, bits: int) -> float:
    """Return the quantum with which numbers up to the largest have the given number of bits.

    Examples
    --------
    >>> quantum(0.9, 3)
    0.125
    """
    return math.ldexp(1.0, math.frexp(largest)[1] - bits)


def components(D: ArrayLike) -> NDArray[np.int32]:
    """Return components, rows of weights with sum one, as multiples of ``COMPONENT_QUANTUM``."""
    return Fixed.of(D, COMPONENT_QUANTUM).integers.astype(np.int32)


def memberships(W: ArrayLike) -> Array:
    """Return memberships, rows of weights with sum one, as multiples of a quantum."""
    return np.asarray(Fixed.of(W, 2.0**-_FACTOR_BITS).integers)


def mixtures(W: ArrayLike, D: NDArray[np.int32]) -> Array:
    """Return mixtures with sum one, for memberships with sum one and quantised components.

    Examples
    --------
    >>> mixtures([[0.5, 0.5]], components([[1.0, 0.0], [0.5, 0.5]]))
    array([[0.75, 0.25]])
    """
    return chains.mix(memberships(W), D)
