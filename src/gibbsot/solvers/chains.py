"""Chains by name: those of examples that come and go, the least recently used forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import validation
from ..core.costs import Cost
from ..core.problems import Problem
from ..sampling import sampler


class Chains:
    """A bounded store of chains for examples that are named by numbers.

    Parameters
    ----------
    cost : Cost
    capacity : int
        The largest number of chains that are kept. Where more examples take turns, each comes back to find its chain
        forgotten, so it should be at least their number.
    seed : int

    Examples
    --------
    >>> from gibbsot import GridCost
    >>> from gibbsot import problem
    >>> chains = Chains(GridCost(2), capacity=2)
    >>> pair = problem([[0.5, 0.5]] * 3, [[0.5, 0.5]] * 3, GridCost(2))
    >>> chains.keep([7, 8, 9], chains.state([7, 8, 9], pair))
    >>> list(chains)
    [8, 9]
    """

    def __init__(self, cost: Cost, capacity: int = 50_000, seed: int = 0) -> None:
        self.cost, self.capacity = cost, validation.count(capacity, "capacity")
        self.seed = validation.seed(seed)
        self._places: OrderedDict[int, int] = OrderedDict()  # in the arrays, the least recently used first
        self._used = 0  # places that have ever been taken; a number that stays right if `keep` is interrupted
        self._h = np.empty((0, cost.shape[1]), cost.dtype)
        self._sweep = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def state(self, names: Sequence[int], problem: Problem) -> sampler.State:
        """Return the state of the chains of some examples, which may be new, for the measures they have now."""
        state = sampler.init(problem, self.seed, np.asarray(names))
        rows = [b for b, name in enumerate(names) if name in self._places]
        if rows:
            places = [self._places[names[b]] for b in rows]
            h, q = self._h[places], problem.q[rows]
            # a point that had no weight before holds nobody back: its own sweep finds its place
            most = np.where(np.isfinite(h), h, -np.inf).max(axis=1, keepdims=True)
            h = np.where(np.isfinite(h), h, np.where(np.isfinite(most), most, 0))
            state.h[rows] = np.where(q > 0, h, np.inf)
            state.sweep[rows] = self._sweep[places]
        return state

    def keep(self, names: Sequence[int], state: sampler.State) -> None:
        """Take the chains of some examples back."""
        self._grow(self._used + sum(name not in self._places for name in names))
        for name, h, sweep in zip(names, state.h, state.sweep, strict=True):
            place = self._places.get(name, self._used)
            if place == self.capacity:
                _, place = self._places.popitem(last=False)
            self._used = max(self._used, place + 1)
            self._h[place], self._sweep[place] = h, sweep
            self._places[name] = place
            self._places.move_to_end(name)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the chains, the least recently used first."""
        places = list(self._places.values())
        return {"names": np.array(list(self._places), np.int64), "h": self._h[places], "sweep": self._sweep[places]}

    def adopt(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Hold the chains that `arrays` returned, and no others."""
        names, h, sweep = arrays["names"], arrays["h"], arrays["sweep"]
        if h.shape != (len(names), self.cost.shape[1]) or sweep.shape != names.shape:
            raise ValueError(f"chains: have h of shape {h.shape}; expected {(len(names), self.cost.shape[1])}")
        self._places.clear()
        self._used = 0
        self.keep(names.tolist(), sampler.State(h, sweep, self.seed, names.astype(np.uint64)))

    def _grow(self, size: int) -> None:
        old = len(self._h)
        size = min(size, self.capacity)
        if size > old:
            size = min(self.capacity, max(64, size, 2 * old))
            h, sweep = np.empty((size, self.cost.shape[1]), self.cost.dtype), np.empty(size, np.int64)
            h[:old], sweep[:old] = self._h, self._sweep
            self._h, self._sweep = h, sweep
