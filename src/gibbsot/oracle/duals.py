"""Exact duals of examples that are used again and again while their measures move: a bounded store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import validation
from ..costs import Cost
from ..costs.problems import Problem
from ..exact.simplex import Basis
from ..solvers.relaxed import Penalty, marginals
from .gradients import Gradients, measures, solved

Array = NDArray[np.float64]


class _Example(NamedTuple):
    """What is kept of an example: its measures when it was solved, its potentials, and the arcs of its basis."""

    p: NDArray[np.float32]
    q: NDArray[np.float32]
    f: Array
    g: Array
    i: NDArray[np.int32]
    j: NDArray[np.int32]

    @property
    def basis(self) -> Basis:
        """Rows and columns of the arcs from which the exact solver may start."""
        return self.i, self.j


@dataclass(frozen=True)
class _NoBasis:
    """A new example."""

    basis: Basis = (np.empty(0, np.int32), np.empty(0, np.int32))


class Duals:
    r"""Exact potentials of examples, by the examples' ids, solved again when the measures have moved enough.

    Potentials f and g of an example stay feasible when its measures move, so that ``<p, f> + <q, g>`` is a certified
    lower bound of W. They are used as long as the mass that has changed since they were optimal,

    .. math:: (\|p - p_0\|_1 + \|q - q_0\|_1) / (\|p\|_1 + \|q\|_1),

    is at most ``drift``. Otherwise the example is solved exactly, from its last basis.

    Parameters
    ----------
    cost : Cost
        The cost of all problems.
    penalty : float, optional
        As in `solve`.
    drift : float
        The share of the mass that may have changed; 0 to solve always.
    capacity : int
        The largest number of examples that are kept; the least recently used are dropped.
    n_jobs : int, optional
        Threads over the problems.

    Attributes
    ----------
    cost, penalty, drift, capacity, n_jobs
        The parameters.
    n_solved : int
        How many problems have been solved exactly so far.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost
    >>> duals = Duals(GridCost(3, spacing=1.0), drift=0.1)
    >>> p, q = np.array([[0.5, 0.5, 0.0]]), np.array([[0.0, 0.0, 1.0]])
    >>> duals(p, q, [7]).value, duals(p + [0.05, -0.05, 0.0], q, [7]).value, duals.n_solved
    (array([2.5]), array([2.65]), 1)
    """

    def __init__(
        self,
        cost: Cost,
        penalty: Penalty | None = None,
        drift: float = 0.01,
        capacity: int = 10_000,
        n_jobs: int | None = None,
    ) -> None:
        self.cost, self.penalty, self.n_jobs = cost, penalty, n_jobs
        self.marginals = marginals(cost, penalty)
        self.drift, self.capacity = validation.nonnegative(drift, "drift"), validation.count(capacity, "capacity")
        self.n_solved = 0
        self._examples: OrderedDict[int, _Example] = OrderedDict()  # the least recently used first

    def __len__(self) -> int:
        return len(self._examples)

    def __iter__(self) -> Iterator[int]:
        return iter(self._examples)

    def __call__(self, p: Array, q: Array, ids: Sequence[int] | None = None, tolerance: float = 1e-6) -> Gradients:
        """Return values and potentials of some examples.

        Parameters
        ----------
        p, q : arrays of float64, shape (n, m1) and (n, m2)
            Their measures.
        ids : sequence of int, optional
            The ids of the examples; without them all are solved exactly, and nothing is kept.
        tolerance : float
            As for `weight_gradients`.

        Returns
        -------
        Gradients
            The value is W where the example was solved, otherwise a certified lower bound.
        """
        pair = self.marginals.problem(*measures(p, q), tolerance)
        if ids is None:
            self.n_solved += len(p)
            return solved(self.marginals, pair, self.n_jobs)
        fresh = np.flatnonzero(self._moved(p, q, ids) > self.drift)
        if len(fresh) == len(p):
            found = self._solved(p, q, pair, ids)
        else:
            found = self._stale(p, q, ids, pair.mass)
            if len(fresh):
                some = self._solved(p[fresh], q[fresh], pair[fresh], [ids[b] for b in fresh.tolist()])
                for every, new in zip(found[:3], some[:3], strict=True):
                    every[fresh] = new
        for id in ids:
            self._examples.move_to_end(id)
        while len(self._examples) > self.capacity:
            self._examples.popitem(last=False)
        return found

    def _moved(self, p: Array, q: Array, ids: Sequence[int]) -> Array:
        """Return the share of the mass of each example that has changed; infinite for new ones."""
        moved = np.full(len(p), np.inf)
        for b, id in enumerate(ids):
            if id in self._examples:
                old = self._examples[id]
                changed = np.abs(p[b] - old.p).sum() + np.abs(q[b] - old.q).sum()
                moved[b] = changed / (p[b].sum() + q[b].sum())
        return moved

    def _stale(self, p: Array, q: Array, ids: Sequence[int], mass: Array) -> Gradients:
        """Return what the potentials that are kept give; zero for new examples."""
        f, g = np.zeros(p.shape), np.zeros(q.shape)
        for b, id in enumerate(ids):
            if id in self._examples:
                f[b], g[b] = self._examples[id].f, self._examples[id].g
        return Gradients((p * f).sum(axis=1) + (q * g).sum(axis=1), f, g, [], mass)

    def _solved(self, p: Array, q: Array, pair: Problem, ids: Sequence[int]) -> Gradients:
        """Solve exactly, from the bases of the last time, and keep what was found."""
        warm: Any = [self._examples.get(id, _NoBasis()) for id in ids]
        found = solved(self.marginals, pair, self.n_jobs, warm)
        self.n_solved += len(p)
        for b, id in enumerate(ids):
            i, j = found.solutions[b].basis
            own = i >= 0
            kept = p[b].astype(np.float32), q[b].astype(np.float32), found.p[b].copy(), found.q[b].copy()
            self._examples[id] = _Example(*kept, i[own], j[own])
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of what is kept, the least recently used first.

        Returns
        -------
        dict
            ``ids``, ``p``, ``q``, ``f`` and ``g``, one entry for each example; bases as ``i`` and ``j``, one after
            another, with ``n_arcs`` arcs each.
        """
        kept, (m1, m2) = list(self._examples.values()), self.cost.shape
        rows: dict[str, NDArray[Any]] = {
            name: np.array([getattr(x, name) for x in kept], dtype).reshape(-1, size)
            for name, dtype, size in (("p", "f4", m1), ("q", "f4", m2), ("f", "f8", m1), ("g", "f8", m2))
        }
        none = [np.empty(0, np.int32)]
        return {
            "ids": np.array(list(self._examples), np.int64),
            **rows,
            "i": np.concatenate([x.i for x in kept] or none),
            "j": np.concatenate([x.j for x in kept] or none),
            "n_arcs": np.array([len(x.i) for x in kept], np.int64),
        }

    def load_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace all examples by those that `arrays` returned.

        Parameters
        ----------
        arrays : mapping
            What `arrays` returned.

        Raises
        ------
        ValueError
            If the arrays have other shapes than the cost implies; the examples are then left as they were.
        """
        ids, shapes = arrays["ids"], {"p": 0, "q": 1, "f": 0, "g": 1}
        for name, side in shapes.items():
            if arrays[name].shape != (len(ids), self.cost.shape[side]):
                expected = (len(ids), self.cost.shape[side])
                raise ValueError(f"duals: have {name} of shape {arrays[name].shape}; expected {expected}")
        ends = np.cumsum(arrays["n_arcs"])
        bases = (np.split(arrays[name].astype(np.int32), ends)[:-1] for name in "ij")
        rows = zip(*(arrays[name] for name in shapes), *bases, strict=True)
        examples = [_Example(*(x.copy() for x in row)) for row in rows]
        self._examples = OrderedDict(zip(ids.tolist(), examples, strict=True))
