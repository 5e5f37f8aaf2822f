"""Arithmetic with unevaluated sums of two doubles: nearly 32 digits, on arrays.

A sum or difference is within ``2^-100 (|a| + |b|)`` of the truth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class DoubleDouble(NamedTuple):
    """Numbers ``high + low``, where high is the nearest double.

    Examples
    --------
    >>> import numpy as np
    >>> one = DoubleDouble.of(np.array([1.0]))
    >>> tiny = DoubleDouble.of(np.array([1e-30]))
    >>> one.plus(tiny).minus(one).high
    array([1.e-30])
    """

    high: Array
    low: Array

    @classmethod
    def of(cls, x: Array) -> DoubleDouble:
        """Return doubles as such numbers."""
        return cls(x, np.zeros_like(x))

    @classmethod
    def sum(cls, a: Array, b: Array) -> DoubleDouble:
        """Return the sum of doubles, which is exact."""
        high = a + b
        rest = high - a
        return cls(high, (a - (high - rest)) + (b - rest))

    def plus(self, other: DoubleDouble) -> DoubleDouble:
        """Return the sum."""
        first, second = self.sum(self.high, other.high), self.sum(self.low, other.low)
        middle = self.sum(first.high, first.low + second.high)
        return self.sum(middle.high, middle.low + second.low)

    def minus(self, other: DoubleDouble) -> DoubleDouble:
        """Return the difference."""
        return self.plus(DoubleDouble(-other.high, -other.low))

    def at(self, index: NDArray[np.integer] | slice) -> DoubleDouble:
        """Return some of the numbers."""
        return DoubleDouble(self.high[index], self.low[index])

    def set(self, index: NDArray[np.integer], values: DoubleDouble) -> None:
        """Change some of the numbers."""
        self.high[index], self.low[index] = values

    def rounded(self) -> Array:
        """Return the nearest doubles."""
        return np.asarray(self.high + self.low)
