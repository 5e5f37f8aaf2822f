"""Shards in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Concatenate

import numpy as np
from numpy.typing import NDArray

from .interface import A, P, S, Shards, T
from .shard import add, is_command


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

    def reduce(self, method: Callable[Concatenate[S, P], A], /, *args: P.args, **kwargs: P.kwargs) -> A:
        if is_command(method):
            return add([getattr(shard, method.__name__)(*args, **kwargs) for shard in self.shards])
        return add(self.collect(method, *args, **kwargs))

    def collect(self, method: Callable[Concatenate[S, P], T], /, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        if is_command(method):
            raise TypeError(f"{method.__qualname__}: is a command; expected a query")
        return [self._query(shard, method.__name__, args, kwargs) for shard in self.shards]

    def concatenate(self, method: Callable[[S], NDArray[Any]], /) -> NDArray[Any]:
        return np.concatenate(self.collect(method))

    def _query(self, shard: S, name: str, args: Any, kwargs: Any) -> Any:
        before = _state(shard) if self.check_queries else ""
        answer = getattr(shard, name)(*args, **kwargs)
        if self.check_queries and _state(shard) != before:
            raise AssertionError(f"{type(shard).__name__}.{name}: is marked as a query but changes the shard")
        return answer


def _state(shard: Any) -> str:
    """Return a digest of all that a shard holds, nested objects included."""
    import joblib  # comes with scikit-learn, which takes long to import

    return str(joblib.hash(vars(shard)))
