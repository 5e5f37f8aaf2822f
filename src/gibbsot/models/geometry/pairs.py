"""The values of pairs of measures so far, kept in a file."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from ...costs import Cost
from ...io import npz, schemas
from . import sets as _sets

_SECONDS = 30.0  # between two writes of a file, or twenty times as long as the last one took


class Values:
    """The values of the first pairs, and the file that keeps them while the others are computed.

    Parameters
    ----------
    count : int
        How many pairs there are.
    path : path or None
        The file, which is read if it exists; None for none.
    identity : str
        Which measures, cost and gap these are.

    Attributes
    ----------
    values : array of shape (count,)
        The values, NaN where they are not known.
    done : int
        How many of them are known.
    gaps : list of float
        The gaps of the pairs that did not reach theirs.

    Raises
    ------
    ValueError
        If the file is of other pairs, or damaged.
    """

    def __init__(self, count: int, path: str | os.PathLike[str] | None, identity: str) -> None:
        self.values, self.done = np.full(count, np.nan), 0
        self.gaps: list[float] = []
        self._path, self._identity = None if path is None else Path(path), identity
        self._next = time.monotonic() + _SECONDS
        if self._path is not None and not self._path.parent.is_dir():
            raise ValueError(f"checkpoint: there is no folder {self._path.parent}; expected a file in one")
        if self._path is None or not self._path.exists():
            return
        saved = npz.load(self._path, schemas.DISTANCES)
        with npz.complete(str(self._path)):
            values, gaps, of = saved["values"], saved["gaps"].tolist(), str(saved["identity"])
        if of != identity or len(values) > count:
            raise ValueError(
                f"checkpoint: {self._path} is of other measures, another cost or another gap; expected one of these, "
                "or none: remove it to begin again"
            )
        self.done, self.gaps = len(values), gaps
        self.values[: self.done] = values

    def add(self, which: slice, values: ArrayLike) -> None:
        """Keep the values of the next pairs; now and then write the file."""
        self.values[which], self.done = values, which.stop
        if self._path is not None and time.monotonic() >= self._next:
            self.save()

    def save(self) -> None:
        """Write the file."""
        if self._path is None or self.done == 0:
            return
        begun = time.monotonic()
        arrays = {"values": self.values[: self.done], "gaps": self.gaps, "identity": self._identity}
        npz.save(self._path, schemas.DISTANCES, arrays)
        self._next = time.monotonic() + max(_SECONDS, 20 * (time.monotonic() - begun))


def identity(first: _sets.Measures, second: _sets.Measures, cost: Cost | None, gap: float) -> str:
    """Return a checksum of all that values of pairs depend on."""
    digest = hashlib.sha256(f"{type(cost).__name__} {gap!r}".encode())
    arrays: list[Any] = [] if cost is None else [x for _, x in sorted(cost.arrays().items())]
    for measures in (first, second):
        if isinstance(measures, _sets.Clouds):
            digest.update(measures.metric.encode())
            arrays += [x for pair in zip(measures.points, measures.weights, strict=True) for x in pair]
        elif sparse.issparse(weights := measures.weights):
            arrays += [weights.data, weights.indices, weights.indptr]
        else:
            arrays.append(weights)
    for x in map(np.ascontiguousarray, arrays):
        digest.update(f"{x.dtype.str} {x.shape}".encode())
        digest.update(x.data if x.size else b"")
    return digest.hexdigest()
