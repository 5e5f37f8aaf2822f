"""All shards of a model's data: how a model calls them, the backend in this process, and the choice of a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from .shard import A, ChainShard, Metadata, Shard, add, is_command
from .worker import Call, Checkpoint, Split

S = TypeVar("S", bound=Shard)
P = ParamSpec("P")


def query_call(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
    """Return the call of a query; raise TypeError for a command."""
    if is_command(method):
        raise TypeError(f"{method.__qualname__}: is a command; expected a query")
    return Call(method.__name__, args, kwargs)


class Shards(ABC, Generic[S]):
    """All shards of a model's data, of class S.

    A method of a shard is passed as a function of its class with the arguments that follow, for example
    ``shards.reduce(MixtureShard.keep_best)``. Whether it is a command or a query is read from its mark. On a
    cluster the method is sent as its name.
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _command(self, call: Call) -> Any:
        """Run a command of every shard; return the sum of the answers."""

    @abstractmethod
    def _query(self, call: Call) -> Any:
        """Run a query of every shard; return the sum of the answers."""

    @abstractmethod
    def _answers(self, call: Call) -> list[Any]:
        """Run a query of every shard; return the answers."""

    def reduce(self, method: Callable[Concatenate[S, P], A], /, *args: P.args, **kwargs: P.kwargs) -> A:
        """Call a command or a query of every shard; return the sum of the answers (see `add`)."""
        call = Call(method.__name__, args, kwargs)
        return self._command(call) if is_command(method) else self._query(call)

    def collect(self, method: Callable[Concatenate[S, P], A], /, *args: P.args, **kwargs: P.kwargs) -> list[A]:
        """Call a query of every shard; return the list of the answers."""
        return self._answers(query_call(method, *args, **kwargs))

    @abstractmethod
    def concatenate(self, method: Callable[[S], NDArray[Any]], /) -> Any:
        """Call a query of every shard whose answers are rows of one matrix; return the matrix."""

    @cached_property
    def metadata(self) -> list[Metadata]:
        """The size and type of each shard's data."""
        return self.collect(Shard.metadata)

    def initialise(self, cost: Cost, tau: int, key: int, n_jobs: int | None) -> None:
        """Assign indices to the measures and start the chains.

        Parameters
        ----------
        cost : Cost
            In the precision of the chains.
        tau, key, n_jobs
            Of the oracle.
        """
        *starts, n = self.starts()
        first: Any = Split.of(starts)
        initialise: Any = ChainShard.initialise  # of shards that have chains
        self.reduce(initialise, first, n, cost, tau, key, n_jobs)

    def split(self, values: NDArray[Any], indices: NDArray[np.intp] | None = None) -> Any:
        """Return an argument of a command of which each shard gets the rows of its own measures.

        Parameters
        ----------
        values : array
            A row for each measure.
        indices : array of int, optional
            The measures of the rows, in ascending order; all by default.

        Returns
        -------
        Split
        """
        starts = self.starts()[1:-1]
        return Split.of(np.split(values, starts if indices is None else np.searchsorted(indices, starts)))

    def starts(self) -> list[int]:
        """Return the index of the first measure of each shard, and the number of all measures."""
        return [0, *np.cumsum([one.n_measures for one in self.metadata]).tolist()]

    @abstractmethod
    def attach(self, sources: Sequence[Any]) -> None:
        """Give shards of a checkpoint their data, and check that data are those of the fit.

        Parameters
        ----------
        sources : sequence of arrays, sparse matrices, Delayed objects or paths
            The data of each shard.
        """

    def save(self, folder: str) -> list[str]:
        """Write each shard without its data to a file in a folder; return the checksums of the files."""
        return self.collect(Shard.save, folder)

    def close(self) -> None:
        """Free the memory of shards in other processes."""


class LocalShards(Shards[S]):
    """Shards in this process.

    Parameters
    ----------
    shards : sequence of Shard
        The shards, in the order of their numbers.

    Attributes
    ----------
    check_queries : bool
        Whether to raise AssertionError if a query changes the state of a shard. It takes time; tests set it.
    """

    check_queries: ClassVar[bool] = False

    def __init__(self, shards: Sequence[S]) -> None:
        self.shards = list(shards)

    def __len__(self) -> int:
        return len(self.shards)

    def attach(self, sources: Sequence[Any]) -> None:
        for shard, source in zip(self.shards, sources, strict=True):
            shard.attach(source)

    def concatenate(self, method: Callable[[S], NDArray[Any]], /) -> NDArray[Any]:
        return np.concatenate(self.collect(method))

    def _command(self, call: Call) -> Any:
        return add([call.run(shard) for shard in self.shards])

    def _query(self, call: Call) -> Any:
        return add(self._answers(call))

    def _answers(self, call: Call) -> list[Any]:
        if not self.check_queries:
            return [call.run(shard) for shard in self.shards]
        before = list(map(_state, self.shards))
        answers = [call.run(shard) for shard in self.shards]
        if list(map(_state, self.shards)) != before:
            name = f"{type(self.shards[0]).__name__}.{call.method}"
            raise AssertionError(f"{name}: is marked as a query but changes the shard")
        return answers


def _state(shard: Any) -> str:
    """Return a digest of all that a shard holds, nested objects included."""
    import joblib  # comes with scikit-learn, which takes long to import

    return str(joblib.hash(vars(shard)))


def read_shards(client: Any, kind: type[S], sources: Sequence[Any]) -> Shards[S]:
    """Return shards of a class, one for each source, in this process or on the workers of a Dask client."""
    if client is None:
        return LocalShards([kind.read(source, number) for number, source in enumerate(sources)])
    from .dask import DaskShards  # an optional extra

    return DaskShards(client, kind, sources)


def load_shards(client: Any, kind: type[S], folder: str, checksums: Sequence[str]) -> Shards[S]:
    """Return the shards of a checkpoint, without their data: `Shards.attach` reads those.

    Parameters
    ----------
    client : dask.distributed.Client or None
        The client whose workers hold the shards; None for this process.
    kind : class
        The class of the shards.
    folder : path or URL
        The folder of the checkpoint.
    checksums : sequence of str
        The checksum of each shard's file.

    Returns
    -------
    Shards
    """
    if client is None:
        return LocalShards([kind.load(folder, number, checksum) for number, checksum in enumerate(checksums)])
    from .dask import DaskShards

    return DaskShards(client, kind, [None] * len(checksums), [Checkpoint(0, folder, checksums)])
