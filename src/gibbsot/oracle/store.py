"""The warm state of examples from call to call: chains, or exact duals. One store, one eviction, one snapshot."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..core import validation

Indices = NDArray[np.intp]

_FIRST = 64  # places that the first examples make room for


class Field(NamedTuple):
    """What is kept of every example under a name.

    Attributes
    ----------
    dtype : dtype
        The type of the numbers.
    size : int or array of int
        How many numbers an example has, 0 for a single one; or how many each has, in a store of fixed examples.
    """

    dtype: DTypeLike
    size: int | Indices = 0


class Snapshot(NamedTuple):
    """A copy of a store: its arrays, and which example is where."""

    arrays: dict[str, NDArray[Any]]
    places: OrderedDict[int, int]


class Store:
    """Arrays with a place for each example, which has an id; the least recently used examples are dropped first.

    A store of fixed examples has all of them from the beginning: they are numbered, their places are their numbers, and
    `read` and `write` are all that it needs. Other examples come with `keep`, and `find` tells where they are.

    Parameters
    ----------
    fields : mapping of str to Field
        What is kept of an example.
    capacity : int
        The largest number of examples.
    fixed : bool
        Whether there are as many examples from the beginning, all numbers zero.

    Attributes
    ----------
    capacity
        The parameter.

    Examples
    --------
    >>> store = Store({"h": Field(np.float32, 3), "sweep": Field(np.int64)}, capacity=2)
    >>> store.keep([7, 8, 9], h=np.eye(3), sweep=np.arange(3))
    >>> list(store), store.find([9, 7]).tolist()
    ([8, 9], [1, -1])
    >>> store.read("h", store.find([9]))
    array([[0., 0., 1.]], dtype=float32)
    """

    def __init__(self, fields: Mapping[str, Field], capacity: int, fixed: bool = False) -> None:
        self.capacity, self._fields = validation.count(capacity, "capacity"), dict(fields)
        self._places: OrderedDict[int, int] = OrderedDict()  # by id, the least recently used first
        self._free: list[int] = []
        self._ends = {name: np.cumsum(x.size) for name, x in fields.items() if isinstance(x.size, np.ndarray)}
        n, self._fixed = self.capacity if fixed else 0, fixed
        self._arrays = {name: np.zeros(self._shape(name, n), x.dtype) for name, x in fields.items()}

    def _shape(self, name: str, n: int) -> tuple[int, ...]:
        """Return the shape of the array of a field with n places."""
        if name in self._ends:
            return (int(self._ends[name][-1]),)
        size = self._fields[name].size
        return (n, int(size)) if size else (n,)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def find(self, ids: Sequence[int]) -> Indices:
        """Return the places of examples; -1 for those that are not kept."""
        return np.array([self._places.get(id, -1) for id in ids], np.intp)

    def read(self, name: str, places: Indices) -> NDArray[Any]:
        """Return a copy of a field of examples: one row each, or one after another where sizes differ."""
        where = self._positions(name, places)
        found = self._arrays[name][where]
        return found.copy() if isinstance(where, slice) else found

    def write(self, places: Indices, **values: NDArray[Any]) -> None:
        """Replace fields of examples; values are as `read` returns them."""
        for name, x in values.items():
            self._arrays[name][self._positions(name, places)] = x

    def _positions(self, name: str, places: Indices) -> Indices | slice:
        """Return where a field of examples is in its array, as a slice if they follow each other, which is faster."""
        if name not in self._ends:
            return spans(places, np.ones(len(places), np.intp))
        counts = np.asarray(self._fields[name].size)[places]
        return spans(self._ends[name][places] - counts, counts)

    def use(self, ids: Sequence[int]) -> None:
        """Make those of the examples that are kept the most recently used."""
        for id in ids:
            if id in self._places:
                self._places.move_to_end(id)

    def keep(self, ids: Sequence[int], **values: NDArray[Any]) -> None:
        """Store all fields of some examples, which become the most recently used.

        Parameters
        ----------
        ids : sequence of int
            The ids of the examples, each at most once.
        **values
            The fields, one row for each example.
        """
        more = max(0, len(ids) - self.capacity)
        ids = ids[more:]
        self._grow(len(self._places) + sum(id not in self._places for id in ids))
        places = [self._places.pop(id, -1) for id in ids]  # an interrupt forgets examples, and never mixes them
        while len(self._places) + len(ids) > self.capacity:
            self._free.append(self._places.popitem(last=False)[1])
        if len(self._free) < places.count(-1):  # the arrays have grown, or there was an interrupt
            size = len(next(iter(self._arrays.values())))
            self._free = sorted(set(range(size)).difference(self._places.values(), places), reverse=True)
        places = [self._free.pop() if place < 0 else place for place in places]
        self.write(np.array(places, np.intp), **{name: x[more:] for name, x in values.items()})
        self._places.update(zip(ids, places, strict=True))

    def _grow(self, size: int) -> None:
        """Make room for a number of examples, by doubling."""
        old, size = len(next(iter(self._arrays.values()))), min(size, self.capacity)
        if size > old:
            n = min(self.capacity, max(_FIRST, size, 2 * old))
            grown = {name: np.empty(self._shape(name, n), x.dtype) for name, x in self._arrays.items()}
            for name, x in self._arrays.items():
                grown[name][:old] = x
            self._arrays = grown

    def snapshot(self) -> Snapshot:
        """Return a copy, for `restore`."""
        return Snapshot({name: x.copy() for name, x in self._arrays.items()}, self._places.copy())

    def restore(self, snapshot: Snapshot) -> None:
        """Return to what was kept when a snapshot was taken."""
        self._arrays = {name: x.copy() for name, x in snapshot.arrays.items()}
        self._places, self._free = snapshot.places.copy(), []

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of all fields, and of the ids unless the examples are fixed; the least recently used first.

        Returns
        -------
        dict of str to array
            For `load_state`.
        """
        if self._fixed:
            return {name: x.copy() for name, x in self._arrays.items()}
        places = np.array(list(self._places.values()), np.intp)
        kept = {name: x[places] for name, x in self._arrays.items()}
        return {"ids": np.array(list(self._places), np.int64), **kept}

    def load_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace everything by what `arrays` returned.

        Parameters
        ----------
        arrays : mapping of str to array
            What `arrays` returned.

        Raises
        ------
        ValueError
            If arrays have other shapes or types than the fields; the store is then left as it was.
        """
        ids = None if self._fixed else arrays["ids"].tolist()
        found = {}
        for name, field in self._fields.items():
            x, shape = arrays[name], self._shape(name, self.capacity if ids is None else len(ids))
            if x.shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, got {x.shape}")
            if not np.can_cast(x.dtype, field.dtype, "same_kind"):
                raise ValueError(f"{name}: expected numbers of {np.dtype(field.dtype)}, got {x.dtype}")
            found[name] = x.astype(field.dtype)
        if ids is None:
            self._arrays = found
            return
        self._places, self._free = OrderedDict(), []
        self.keep(ids, **found)


def spans(starts: Indices, counts: Indices) -> Indices | slice:
    """Return the positions of ranges, one after another, as a slice if they follow each other.

    Examples
    --------
    >>> spans(np.array([2, 5]), np.array([3, 1])), spans(np.array([2, 6]), np.array([3, 1]))
    (slice(2, 6, None), array([2, 3, 4, 6]))
    """
    if len(starts) and (starts[1:] == (starts + counts)[:-1]).all():
        return slice(int(starts[0]), int(starts[-1] + counts[-1]))
    return np.asarray(np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum()), np.intp)
