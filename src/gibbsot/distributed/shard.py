"""Data in parts: all of them are given the same orders, and what they answer is added up.

A part is an object with methods, the orders. What an order changes depends on the part and its arguments alone; so a
part that is lost can be made again and given the same orders again, and nobody will notice.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core import validation
from ..core.costs import Cost
from ..io import npz, readers
from ..solvers import evaluation
from ..solvers.oracle import Oracle
from . import fixed_point

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


class Facts(NamedTuple):
    """What a part says of its data: rows, those with mass, the first without (-1: none), columns, and the type."""

    size: int
    full: int
    empty: int
    columns: int
    dtype: str


def units(cost: Cost, n: int) -> tuple[int, float, float]:
    """Return how many bits factors have in a sum over n measures, and the units of potentials and of values."""
    bits, largest = fixed_point.bits(n), 1.001 * cost.spread()  # for rounding
    return bits, fixed_point.unit(largest, bits), fixed_point.unit(largest, fixed_point.FINE)


class Part(ABC):
    """Some of the measures that a model is fitted to, and their chains.

    Measures are named by their numbers among all that have mass, which a part learns from `settle`.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, m)
        Rows that were checked, as by `estimators.rows`.
    number : int
        That of the part.
    """

    state: ClassVar[tuple[str, ...]] = ("number", "rows", "first", "bits", "unit", "value_unit")
    bits: int
    unit: float  # of potentials
    value_unit: float
    oracle: Oracle  # none in a part without mass
    first: int

    def __init__(self, X: Any, number: int = 0) -> None:
        self.number = number
        mass = validation.masses(X)
        self.rows, empty = np.flatnonzero(mass > 0), np.flatnonzero(mass == 0)
        self._facts = Facts(X.shape[0], len(self.rows), int([*empty, -1][0]), X.shape[1], X.dtype.str)
        self._X: Any = X[self.rows]

    @classmethod
    def read(cls, source: Any, number: int) -> Part:
        """Return the part of a matrix, of a file that has one, or of what computes one."""
        return cls(validation.rows(loaded(source), f"X[{number}]"), number)

    def __len__(self) -> int:
        return len(self.rows)

    def facts(self) -> Facts:
        """Return what the data are like."""
        return self._facts

    def settle(
        self, firsts: Sequence[int], n: int, cost: Cost, tau: int, seed: int, seen: int, n_jobs: int | None
    ) -> tuple[()]:
        """Begin the chains, for n measures in all, of which the parts have these first numbers.

        In a stream, `seen` measures came before, which the noise must not repeat.
        """
        self.first = firsts[self.number]
        self.bits, self.unit, self.value_unit = units(cost, n)
        X, self._X = self._X, None
        if len(self):
            ids = seen + self.first + np.arange(len(self))
            self.oracle = Oracle(cost, X, tau=tau, seed=seed, ids=ids, n_jobs=n_jobs)
        return ()

    def support(self) -> tuple[int]:
        """Return the number of weights that are positive."""
        return (self.oracle.targets.nnz if len(self) else 0,)

    def threads(self, n_jobs: int | None) -> tuple[()]:
        """Compute in so many threads from now on."""
        if len(self):
            self.oracle.n_jobs = n_jobs
        return ()

    def own(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Return which of some measures are in this part, and their rows here."""
        rows = numbers - self.first
        where = np.flatnonzero((rows >= 0) & (rows < len(self)))
        return where, rows[where]

    def targets(self, numbers: Numbers) -> sparse.csr_array:
        """Return those of some measures that are in this part, normalised."""
        _, rows = self.own(numbers)
        return self.oracle.targets[rows] if len(rows) else sparse.csr_array((0, self._facts.columns))

    def digest(self) -> str:
        """Return a checksum of the measures."""
        found = hashlib.sha256(repr(self._facts).encode())
        if len(self):
            targets = self.oracle.targets
            for x in (targets.data, targets.indices.astype(np.int64), targets.indptr.astype(np.int64)):
                found.update(x.tobytes())
        return found.hexdigest()

    @abstractmethod
    def models(self, rows: Numbers, *model: Any) -> Array:
        """Return what a model says of some rows."""

    def shown(self, numbers: Numbers, *model: Any) -> tuple[Array, Array]:
        """Return those of some measures that are in this part, and what a model makes of them, for a picture."""
        _, rows = self.own(numbers)
        if not len(rows):
            return np.empty((0, self._facts.columns)), np.empty((0, self._facts.columns))
        return self.targets(numbers).toarray(), self.models(rows, *model)

    def heat(self, numbers: Numbers, *model: Any) -> tuple[Array]:
        """Return estimates of the costs of some measures and first temperatures, zero for those of other parts."""
        return self._among(
            numbers, 2, lambda rows: evaluation.initial_temperatures(self.oracle, self.models(rows, *model), rows)
        )

    def look(self, numbers: Numbers, T: float, *model: Any) -> tuple[Array]:
        """Return certified bounds of the costs of some measures, zero for those of other parts."""
        return self._among(
            numbers, 2, lambda rows: evaluation.certified(self.oracle, self.models(rows, *model), T, rows)
        )

    def estimate(self, numbers: Numbers, T: float, *model: Any) -> tuple[Array]:
        """Return V(z) of some measures, zero for those of other parts; their chains go on."""
        return self._among(numbers, 1, lambda rows: self.oracle(self.models(rows, *model), T, rows)[:1])

    def _among(self, numbers: Numbers, count: int, answer: Callable[[Numbers], Sequence[Array]]) -> tuple[Array]:
        """Return so many lines of answers for those of some measures that are in this part, zero for the others."""
        where, rows = self.own(numbers)
        found = np.zeros((count, len(numbers)))
        if len(rows):
            found[:, where] = answer(rows)
        return (found,)

    def arrays(self) -> dict[str, Any]:
        """Return all there is to know of the part, for a file."""
        known = {name: getattr(self, name) for name in self.state}
        known |= {f"facts_{name}": x for name, x in self._facts._asdict().items()}
        return known | ({f"oracle_{name}": x for name, x in self.oracle.arrays().items()} if len(self) else {})

    def save(self, folder: str) -> str:
        """Write the part to a file of its own; return the checksum."""
        return npz.save(f"{folder}/{_file(self.number)}", type(self).__name__, self.arrays())

    @classmethod
    def load(cls, folder: str, number: int, checksum: str) -> Part:
        """Return a part that was saved, if its checksum is right."""
        return cls.from_arrays(npz.load(f"{folder}/{_file(number)}", cls.__name__, checksum))

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Part:
        """Return the part that `arrays` describes."""
        part = cls.__new__(cls)
        for name in cls.state:
            setattr(part, name, arrays[name] if arrays[name].ndim else arrays[name].item())
        part._X, part._facts = None, Facts(*(arrays[f"facts_{name}"].item() for name in Facts._fields))
        of_oracle = {name.removeprefix("oracle_"): x for name, x in arrays.items() if name.startswith("oracle_")}
        if of_oracle:
            part.oracle = Oracle.from_arrays(of_oracle)
        return part


def is_dask(X: Any) -> bool:
    """Tell whether data are a Dask array, without loading Dask."""
    return type(X).__module__.startswith("dask.array")


def sources(X: Any) -> list[Any] | None:
    """Return parts of data that come in parts: blocks of a Dask array, or a list of matrices or files."""
    if is_dask(X):
        if X.ndim != 2:
            raise ValueError(f"X: expected a Dask array of shape (n, m), got {X.shape}")
        return list(X.rechunk({1: -1}).to_delayed().ravel())
    if isinstance(X, list | tuple) and len(X) and all(_is_part(part) for part in X):
        return list(X)
    return None


def _is_part(x: Any) -> bool:
    return isinstance(x, str | os.PathLike) or hasattr(x, "dask") or getattr(x, "ndim", 0) == 2


def loaded(source: Any) -> Any:
    """Return the matrix that a file has, that something computes, or that is given."""
    if isinstance(source, str | os.PathLike):
        return readers.matrix(source)
    return source.compute() if hasattr(source, "compute") else source


def _file(number: int) -> str:
    return f"part-{number:05d}.npz"
