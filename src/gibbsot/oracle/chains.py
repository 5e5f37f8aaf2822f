"""A bounded store of chains for examples that are used again and again, in any order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import validation
from ..costs import Cost
from ..costs.problems import Problem
from ..sampling import sampler


class Chains:
    """Chains of examples, by the examples' ids; the least recently used are dropped first.

    Parameters
    ----------
    cost : Cost
        The cost of all problems.
    capacity : int
        The largest number of chains that are kept. It should be at least the number of examples: with more of them
        taking turns, each chain is dropped before its example returns.
    seed : int
        The seed of the chains' noise.

    Attributes
    ----------
    cost, capacity, seed
        The parameters.

    Examples
    --------
    >>> from gibbsot import GridCost
    >>> from gibbsot import Problem
    >>> chains = Chains(GridCost(2), capacity=2)
    >>> pair = Problem([[0.5, 0.5]] * 3, [[0.5, 0.5]] * 3, GridCost(2))
    >>> chains.keep([7, 8, 9], chains.state([7, 8, 9], pair))
    >>> list(chains)
    [8, 9]
    """

    def __init__(self, cost: Cost, capacity: int = 50_000, seed: int = 0) -> None:
        self.cost, self.capacity = cost, validation.count(capacity, "capacity")
        self.seed = validation.seed(seed)
        self._rows: OrderedDict[int, int] = OrderedDict()  # of the arrays, by id, the least recently used first
        self._used = 0  # rows that have ever been used; a number that stays right if `keep` is interrupted
        self._h = np.empty((0, cost.shape[1]), cost.dtype)
        self._sweep = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def state(self, ids: Sequence[int], problem: Problem) -> sampler.State:
        """Return the state of the chains of some examples, for the measures that they have now.

        Parameters
        ----------
        ids : sequence of int
            The ids of the examples; the chain of a new one starts from h = 0.
        problem : Problem
            Their measures, in the same order.

        Returns
        -------
        State
        """
        state = sampler.init(problem, self.seed, np.asarray(ids))
        known = [b for b, id in enumerate(ids) if id in self._rows]
        if known:
            rows = [self._rows[ids[b]] for b in known]
            h, q = self._h[rows], problem.q[known]
            if not np.isfinite(h[q > 0]).all():
                # a point that had no weight before must not constrain the others; its own sweep finds its value
                most = np.where(np.isfinite(h), h, -np.inf).max(axis=1, keepdims=True)
                h = np.where(np.isfinite(h), h, np.where(np.isfinite(most), most, 0))
            state.h[known] = np.where(q > 0, h, np.inf)
            state.sweep[known] = self._sweep[rows]
        return state

    def keep(self, ids: Sequence[int], state: sampler.State) -> None:
        """Store the chains of some examples.

        Parameters
        ----------
        ids : sequence of int
            The ids of the examples.
        state : State
            Their chains, in the same order.
        """
        self._grow(self._used + sum(id not in self._rows for id in ids))
        for id, h, sweep in zip(ids, state.h, state.sweep, strict=True):
            row = self._rows.get(id, self._used)
            if row == self.capacity:
                _, row = self._rows.popitem(last=False)
            self._used = max(self._used, row + 1)
            self._h[row], self._sweep[row] = h, sweep
            self._rows[id] = row
            self._rows.move_to_end(id)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of the chains, the least recently used first.

        Returns
        -------
        dict
            ``ids``, ``h`` and ``sweep``, one entry for each chain.
        """
        rows = list(self._rows.values())
        return {"ids": np.array(list(self._rows), np.int64), "h": self._h[rows], "sweep": self._sweep[rows]}

    def load_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace all chains by those that `arrays` returned.

        Parameters
        ----------
        arrays : mapping
            What `arrays` returned.

        Raises
        ------
        ValueError
            If the arrays have other shapes than the cost implies; the chains are then left as they were.
        """
        ids, h, sweep = arrays["ids"], arrays["h"], arrays["sweep"]
        if h.shape != (len(ids), self.cost.shape[1]) or sweep.shape != ids.shape:
            raise ValueError(f"chains: have h of shape {h.shape}; expected {(len(ids), self.cost.shape[1])}")
        self._rows.clear()
        self._used = 0
        self.keep(ids.tolist(), sampler.State(h, sweep, self.seed, ids.astype(np.uint64)))

    def _grow(self, size: int) -> None:
        """Make the arrays large enough for so many chains, by doubling."""
        old = len(self._h)
        size = min(size, self.capacity)
        if size > old:
            size = min(self.capacity, max(64, size, 2 * old))
            h, sweep = np.empty((size, self.cost.shape[1]), self.cost.dtype), np.empty(size, np.int64)
            h[:old], sweep[:old] = self._h, self._sweep
            self._h, self._sweep = h, sweep
