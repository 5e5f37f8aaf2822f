"""Shards that live in this process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np

from ..core.costs import Cost
from .shard import Facts


class Shards:
    """Parts that live in this process.

    Parameters
    ----------
    parts : sequence of objects
        Answers to orders that are totalled are tuples of arrays and numbers, of which it must not matter in what order
        they are added.

    Examples
    --------
    >>> class Number(int):
    ...     def times(self, factor):
    ...         return (self * factor,)
    >>> Shards([Number(2), Number(3)]).total("times", 10)
    (50,)
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)

    def __len__(self) -> int:
        return len(self.parts)

    def total(self, order: str, *args: Any) -> tuple[Any, ...]:
        """Give all parts an order that may change them; return the sum of their answers."""
        return add(*self.each(order, *args))

    @cached_property
    def facts(self) -> list[Facts]:
        """What the data of each part are like."""
        return self.each("facts")

    def ask(self, order: str, *args: Any) -> tuple[Any, ...]:
        """Give all parts an order that changes nothing; return the sum of their answers."""
        return self.total(order, *args)

    def each(self, order: str, *args: Any) -> list[Any]:
        """Give all parts an order that changes nothing; return their answers."""
        return [getattr(part, order)(*args) for part in self.parts]

    def rows(self, order: str, columns: int) -> Any:
        """Return answers that are rows of one matrix."""
        return np.concatenate(self.each(order))

    def save(self, folder: str) -> list[str]:
        """Write each part to a file; return their checksums."""
        return self.each("save", folder)

    def close(self) -> None:
        """Free the memory of the parts, where it is not that of this process."""


def add(*answers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the sum of answers."""
    return reduce(lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), answers)


def settle(parts: Shards, cost: Cost, tau: int, seed: int, n_jobs: int | None, seen: int = 0) -> None:
    """Tell all parts which measures are theirs, and begin their chains."""
    full = [fact.full for fact in parts.facts]
    firsts = np.cumsum([0, *full[:-1]]).tolist()
    parts.total("settle", firsts, sum(full), cost, tau, seed, seen, n_jobs)
