"""A shard: some of the measures that a model is fitted to, in most models with their chains.

A model calls the methods of its shards through `Shards`, which has a local and a Dask backend. Each such method is
marked: a `command` changes the state of the shard, a `query` does not. What a command does depends only on the shard
and on the arguments. So a shard that is lost can be restored: the backend makes it anew and replays the commands.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .. import costs
from ..core import validation
from ..costs import Cost
from ..io import npz, schemas
from ..oracle import evaluation
from ..oracle.chains import TargetChains
from . import sources
from .fixed_point import Fixed, Precision

if TYPE_CHECKING:
    from typing import Self

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M")
A = TypeVar("A")

_ROLE = "__shard_role__"
_DATA = ("weights", "columns", "starts")  # entries of an oracle's arrays that are the data


def command(method: F) -> F:
    """Mark a method that changes the state of a shard."""
    setattr(method, _ROLE, "command")
    return method


def query(method: F) -> F:
    """Mark a method that leaves the state of a shard unchanged."""
    setattr(method, _ROLE, "query")
    return method


def is_command(method: Callable[..., Any]) -> bool:
    """Tell a command from a query; raise TypeError for a method that is neither.

    Examples
    --------
    >>> is_command(ChainShard.initialise), is_command(Shard.metadata)
    (True, False)
    """
    role = getattr(method, _ROLE, None)
    if role is None:
        name = getattr(method, "__qualname__", repr(method))
        raise TypeError(f"{name}: expected a method of a shard that is marked with @command or @query")
    return bool(role == "command")


def add(answers: Sequence[A]) -> A:
    """Return the sum of the answers of some shards: of tuples field by field; None for commands without an answer.

    The terms must be integers, `Fixed`, or floats that are zero in all shards but one, so that the sum does not depend
    on the order of the terms.

    Examples
    --------
    >>> add([Bounds(1, 2), Bounds(3, 4)])
    Bounds(lower=4, upper=6)
    """
    kind: Any = type(answers[0])
    if issubclass(kind, tuple):
        return kind(*map(add, zip(*answers, strict=True)))
    return functools.reduce(operator.add, answers) if answers[0] is not None else answers[0]


class EpochSums(NamedTuple):
    """Sums over measures: the gradient for the model, V(z); and the number of sweeps."""

    gradient: Fixed
    value: Fixed
    sweeps: int


class InitialTemperatures(NamedTuple):
    """Estimated costs of a sample of measures and their initial temperatures, zero for those of other shards."""

    values: Array
    temperatures: Array


class Bounds(NamedTuple):
    """Certified bounds of the costs of a sample of measures, zero for those of other shards."""

    lower: Array
    upper: Array


class Metadata(NamedTuple):
    """The size and type of a shard's data.

    Attributes
    ----------
    n_rows, n_measures : int
        The number of rows, and of those with mass.
    first_empty : int
        The first row without mass; -1 if there is none.
    n_columns : int
        The number of bins.
    dtype : str
        The type of the weights.
    """

    n_rows: int
    n_measures: int
    first_empty: int
    n_columns: int
    dtype: str

    @classmethod
    def of(cls, X: Any, mass: Array) -> Metadata:
        """Return the size and type of valid rows of some masses."""
        empty = mass == 0
        first = int(empty.argmax()) if empty.any() else -1
        return cls(X.shape[0], int(X.shape[0] - empty.sum()), first, X.shape[1], X.dtype.str)


@dataclass(frozen=True, eq=False)
class Sample(Generic[M]):
    """Some measures, by their indices among all with mass, and a model of them."""

    indices: Indices
    model: M


class Shard(ABC):
    """Some of the measures that a model is fitted to.

    Measures are identified by their indices among all measures with mass.

    Attributes
    ----------
    number : int
        The number of the shard.
    rows : array of int
        The rows that have mass.
    data_checksum : str
        A checksum of the measures.
    """

    schema: ClassVar[schemas.Schema]
    number: int
    rows: Indices
    first: int  # the index of the first measure
    data_checksum: str
    _metadata: Metadata

    @classmethod
    @abstractmethod
    def read(cls, source: Any, number: int) -> Self:
        """Return the shard of a source."""

    @abstractmethod
    def attach(self, source: Any) -> None:
        """Read the measures of a shard that was loaded without them; check those of any other.

        Parameters
        ----------
        source : matrix, path or object of Dask
            The data of the fit.

        Raises
        ------
        ValueError
            If they differ from those of the fit.
        """

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the shard with a state as arrays."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Return the state of the shard without its data."""

    def __len__(self) -> int:
        return len(self.rows)

    @query
    def metadata(self) -> Metadata:
        """Return the size and type of the data."""
        return self._metadata

    @query
    def has_mass(self) -> NDArray[np.bool_]:
        """Return which rows have mass."""
        mask = np.zeros(self._metadata.n_rows, bool)
        mask[self.rows] = True
        return mask

    @query
    def checksum(self) -> str:
        """Return a checksum of the measures."""
        return self.data_checksum

    @query
    def save(self, folder: str) -> str:
        """Write the shard without its data to its file in a folder; return the checksum of the file."""
        return npz.save(f"{folder}/shard-{self.number:05d}.npz", self.schema, self._state())

    @classmethod
    def load(cls, folder: str, number: int, checksum: str) -> Self:
        """Return the shard that was saved, after a check of its file, without its data."""
        return cls.from_arrays(npz.load(f"{folder}/shard-{number:05d}.npz", cls.schema, checksum))

    def local(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the positions of the given measures that are in this shard, and their rows here."""
        rows = indices - self.first
        positions = np.flatnonzero((rows >= 0) & (rows < len(self)))
        return positions, rows[positions]

    def _differs(self) -> ValueError:
        what = f"X: differs from the data of the fit (shard {self.number})"
        return ValueError(f"{what}; expected the same measures, in the same shards")


class ChainShard(Shard, Generic[M]):
    """Some of the measures that a model of type M is fitted to, and their chains, which `initialise` starts.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, m)
        Validated rows.
    number : int
        The number of the shard.
    """

    saved: ClassVar[tuple[str, ...]] = ("number", "rows", "first", "bits", "quantum", "value_quantum")
    bits: int
    quantum: float  # of potentials
    value_quantum: float
    oracle: TargetChains  # missing in a shard without mass, and until `attach` in one that was loaded without data
    _chains: dict[str, NDArray[Any]]  # the oracle's arrays without the data, until `attach`

    def __init__(self, X: Any, number: int = 0) -> None:
        self.number = number
        mass = validation.masses(X)
        self.rows, self._metadata = np.flatnonzero(mass > 0), Metadata.of(X, mass)
        self._X: Any = X[self.rows]

    @classmethod
    def read(cls, source: Any, number: int) -> Self:
        """Return the shard of a source: a matrix, a file, or an object of Dask."""
        return cls(sources.read(source, f"X[{number}]"), number)

    @command
    def initialise(self, first: int, n: int, cost: Cost, tau: int, key: int, n_jobs: int | None) -> None:
        """Start the chains.

        Parameters
        ----------
        first : int
            The index of the first measure.
        n : int
            The number of measures of all shards.
        cost, tau, key, n_jobs
            As for `Shards.initialise`.
        """
        self.first = first
        self.bits, self.quantum, self.value_quantum = Precision.of(cost, n)
        X, self._X = self._X, None
        if len(self):
            ids = self.first + np.arange(len(self))
            self.oracle = TargetChains(cost, X, tau=tau, rng=key, ids=ids, n_jobs=n_jobs)
        self.data_checksum = self._checksum_of(self.oracle.targets if len(self) else None)

    @property
    def precision(self) -> Precision:
        """The quanta of sums over the measures of all shards."""
        return Precision(self.bits, self.quantum, self.value_quantum)

    @command
    def set_n_jobs(self, n_jobs: int | None) -> None:
        """Set the number of threads."""
        if len(self):
            self.oracle.n_jobs = n_jobs

    @query
    def support_size(self) -> int:
        """Return the number of positive weights."""
        return self.oracle.targets.nnz if len(self) else 0

    @query
    def targets(self, indices: Indices) -> sparse.csr_array:
        """Return the given measures that are in this shard, normalised."""
        _, rows = self.local(indices)
        return self.oracle.targets[rows] if len(rows) else sparse.csr_array((0, self._metadata.n_columns))

    @query
    def has_data(self) -> bool:
        """Tell whether the measures are here: those of a checkpoint are not, until `attach`."""
        return not len(self) or hasattr(self, "oracle")

    def attach(self, source: Any) -> None:
        given, oracle = self.read(source, self.number), None
        if len(given) and given._metadata == self._metadata:
            cost = None if hasattr(self, "oracle") else costs.from_arrays(npz.with_prefix(self._chains, "cost_"))
            oracle = TargetChains(cost or self.oracle.cost, given._X)
        if given._metadata != self._metadata or self._checksum_of(oracle and oracle.targets) != self.data_checksum:
            raise self._differs()
        if oracle is not None and not hasattr(self, "oracle"):
            data = oracle.arrays()
            self.oracle = TargetChains.from_arrays(self._chains | {name: data[name] for name in _DATA})
            del self._chains

    def _checksum_of(self, targets: sparse.csr_array | None) -> str:
        digest = hashlib.sha256(repr(self._metadata).encode())
        if targets is not None:
            for x in (targets.data, targets.indices.astype(np.int64), targets.indptr.astype(np.int64)):
                digest.update(x.data)
        return digest.hexdigest()

    @query
    def reconstructions(self, sample: Sample[M]) -> tuple[Array, Array]:
        """Return the measures of a sample that are in this shard, and the model of each."""
        _, rows = self.local(sample.indices)
        if not len(rows):
            return np.empty((0, self._metadata.n_columns)), np.empty((0, self._metadata.n_columns))
        return self.oracle.targets[rows].toarray(), self.models(rows, sample.model)

    @query
    def initial_temperatures(self, sample: Sample[M]) -> InitialTemperatures:
        """Return estimated costs and initial temperatures of a sample."""
        found = self._evaluate(sample, lambda P, rows: evaluation.initial_temperatures(self.oracle, P, rows))
        return InitialTemperatures(*found)

    @query
    def exact_bounds(self, sample: Sample[M], temperature: float) -> Bounds:
        """Return certified bounds of the costs of a sample."""
        return Bounds(*self._evaluate(sample, lambda P, rows: evaluation.certified(self.oracle, P, temperature, rows)))

    @command
    def estimate(self, sample: Sample[M], temperature: float) -> Array:
        """Advance the chains of a sample and return V(z), zero for measures of other shards."""
        positions, rows = self.local(sample.indices)
        values = np.zeros(len(sample.indices))
        if len(rows):
            values[positions], _, _ = self.oracle(self.models(rows, sample.model), temperature, rows)
        return values

    @query
    def arrays(self) -> dict[str, Any]:
        """Return the state of the shard with its data, for a file."""
        data = self.oracle.arrays() if len(self) else {}
        return self._state() | {f"oracle_{name}": data[name] for name in _DATA if name in data}

    def _state(self) -> dict[str, Any]:
        """Return the state of the shard without its data."""
        state = {name: getattr(self, name) for name in (*self.saved, "data_checksum")}
        state |= {f"metadata_{name}": x for name, x in self._metadata._asdict().items()}
        chains: dict[str, Any] = {}
        if len(self):
            chains = self.oracle.arrays() if hasattr(self, "oracle") else self._chains
        return state | {f"oracle_{name}": x for name, x in chains.items() if name not in _DATA}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the shard whose state `arrays` returned."""
        shard = cls.__new__(cls)
        for name in cls.saved:
            setattr(shard, name, arrays[name] if arrays[name].ndim else arrays[name].item())
        shard._X, shard._metadata = None, Metadata(*(arrays[f"metadata_{name}"].item() for name in Metadata._fields))
        chains = npz.with_prefix(arrays, "oracle_")
        if "weights" in chains:
            shard.oracle = TargetChains.from_arrays(chains)
        elif chains:
            shard._chains = chains
        shard.data_checksum = str(arrays["data_checksum"])
        return shard

    @abstractmethod
    def models(self, rows: Indices, model: M) -> Array:
        """Return the measures by which a model approximates some rows."""

    def _evaluate(self, sample: Sample[M], function: Callable[[Array, Indices], Sequence[Array]]) -> Array:
        """Return two results for each measure of a sample, zero for those of other shards."""
        positions, rows = self.local(sample.indices)
        results = np.zeros((2, len(sample.indices)))
        if len(rows):
            results[:, positions] = function(self.models(rows, sample.model), rows)
        return results
