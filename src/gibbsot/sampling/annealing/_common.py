"""What several annealing policies use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Self = TypeVar("Self", bound="SavedState")


@dataclass(frozen=True)
class SavedState:
    """A state that files can hold: every field is a number, a flag or a tuple of numbers."""

    def to_arrays(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    @classmethod
    def from_arrays(cls: type[Self], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the state whose fields are given."""
        values = (np.asarray(arrays[entry.name]).tolist() for entry in fields(cls))
        return cls(*(tuple(value) if isinstance(value, list) else value for value in values))


def cool(T: float, factor: float, T_min: float) -> float:
    """Return a lower temperature, but not one below the minimum."""
    return max(factor * T, T_min)


def fall(values: Sequence[float], window: int, lag: int) -> float:
    """Return how much the mean of the last values is below that of as many values, ``lag`` earlier.

    Parameters
    ----------
    values : sequence of float
        Observations, the last one at the end.
    window : int
        The number of values in a mean.
    lag : int
        How many observations the earlier window is before the last one.

    Returns
    -------
    float
        Infinite while there are fewer than ``window + lag`` values: nothing is known to have stalled then.
    """
    if len(values) < window + lag:
        return np.inf
    return float(np.mean(values[-window - lag : -lag]) - np.mean(values[-window:]))
