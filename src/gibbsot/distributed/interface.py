"""The interface of all backends: how a model calls its shards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.costs import Cost
from .shard import Initialisation, Metadata, Shard, Sum

S = TypeVar("S", bound=Shard[Any])
A = TypeVar("A", bound=Sum)
T = TypeVar("T")
P = ParamSpec("P")


class Shards(ABC, Generic[S]):
    """All shards of a model's data, of class S.

    A method of a shard is passed as a function of its class with the arguments that follow, for example
    ``shards.reduce(MixtureShard.epoch, request)``. Whether it is a command or a query is read from its mark. On a
    cluster the method is sent as its name.
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def reduce(self, method: Callable[Concatenate[S, P], A], /, *args: P.args, **kwargs: P.kwargs) -> A:
        """Call a command or a query of every shard; return the sum of the answers."""

    @abstractmethod
    def collect(self, method: Callable[Concatenate[S, P], T], /, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Call a query of every shard; return the list of the answers."""

    @abstractmethod
    def concatenate(self, method: Callable[[S], NDArray[Any]], /) -> Any:
        """Call a query of every shard whose answers are rows of one matrix; return the matrix."""

    @cached_property
    def metadata(self) -> list[Metadata]:
        """The size and type of each shard's data."""
        return self.collect(Shard.metadata)

    def initialise(self, cost: Cost, tau: int, seed: int, n_jobs: int | None, n_seen: int = 0) -> None:
        """Assign indices to the measures and start the chains.

        Parameters
        ----------
        cost : Cost
            In the precision of the chains.
        tau, seed, n_jobs
            Of the oracle.
        n_seen : int
            The number of measures that came before in a stream.
        """
        counts = [one.n_measures for one in self.metadata]
        first = np.cumsum([0, *counts[:-1]]).tolist()
        self.reduce(Shard.initialise, Initialisation(first, sum(counts), cost, tau, seed, n_jobs, n_seen))

    def save(self, folder: str) -> list[str]:
        """Write each shard to a file in a folder; return the checksums of the files."""
        return self.collect(Shard.save, folder)

    def close(self) -> None:
        """Free the memory of shards in other processes."""
