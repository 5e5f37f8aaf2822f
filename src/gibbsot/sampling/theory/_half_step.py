"""Sums over one half step of a chain, of either side, in blocks that fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import validation
from ...core.problems import Problem

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Side = Literal["L", "U"]

ENTRIES = 2_000_000  # of the cost's matrix that are stored at once


class View(NamedTuple):
    """A half step of either side: ``old`` becomes the minimum over the sources of M + given + theta T / source."""

    source: Array
    target: Array
    given: Array
    old: Array
    at: Callable[[Index, Index], NDArray[np.floating]]  # the cost of a target and a source


class Block(NamedTuple):
    """Sorted x of some targets, one a line: the problem and the target, min x, the gaps, the weight up to each."""

    row: Index
    target: Index
    least: Array
    gaps: Array
    mass: Array


def view_of(problem: Problem, U: ArrayLike | None, L: ArrayLike | None, side: Side) -> View:
    """Return the half step that redraws one side."""
    if side not in ("L", "U"):
        raise ValueError(f"side: expected 'L' or 'U', got {side!r}")
    u, low = (
        np.where(w > 0, np.zeros(1) if x is None else np.asarray(x, np.float64), 0)
        for w, x in ((problem.p, U), (problem.q, L))
    )
    at = problem.cost.at
    if side == "L":
        return View(problem.p, problem.q, -u, -low, lambda target, source: at(source, target))
    return View(problem.q, problem.p, low, u, at)


def lines(view: View, wanted: NDArray[np.bool_]) -> Iterator[tuple[Index, Index, Array]]:
    """Yield problems, targets and their x, as many at once as may be stored."""
    rows, targets = np.nonzero(wanted)
    sources = np.arange(view.source.shape[1])
    length = max(1, ENTRIES // len(sources))
    for s in range(0, len(rows), length):
        row, target = rows[s : s + length], targets[s : s + length]
        yield row, target, np.where(view.source[row] > 0, view.at(target[:, None], sources) + view.given[row], np.inf)


def blocks(view: View, masked: bool = False) -> Iterator[Block]:
    """Yield sorted blocks of the targets with weight, or of all of them if ``masked``."""
    for row, target, x in lines(view, (view.target > 0) | masked):
        order = x.argsort(axis=1)
        x = np.take_along_axis(x, order, axis=1)
        mass = np.take_along_axis(view.source[row], order, axis=1).cumsum(axis=1)
        mass[np.isinf(x[:, 0])] = 1  # a target without weight that nothing reaches
        with np.errstate(invalid="ignore"):
            gaps = np.diff(x, axis=1, append=np.inf)
        gaps[np.isnan(gaps)] = np.inf  # between two that are infinite
        yield Block(row, target, x[:, 0], gaps, mass)


def phi_of(block: Block, T: Array) -> Array:
    """Return phi of each target of a block."""
    with np.errstate(over="ignore"):
        drop = block.mass * block.gaps / T[block.row, None]  # -log mu
        terms = -np.expm1(-drop) / block.mass
        terms[:, 1:] *= np.exp(-drop.cumsum(axis=1))[:, :-1]
    return terms.sum(axis=1)


def rise_of(view: View, block: Block) -> Array:
    """Return how much each target of a block rises at temperature zero."""
    return block.least - view.old[block.row, block.target]


def total_of(view: View, blocks: Iterable[Block], line: Callable[[Block], Array]) -> Array:
    """Return the weighted sum of a function of blocks, for each problem."""
    total = np.zeros(len(view.target))
    for b in blocks:
        np.add.at(total, b.row, view.target[b.row, b.target] * line(b))
    return total


def least_and_phi(view: View, T: ArrayLike) -> tuple[Array, Array]:
    """Return min x and phi of all targets, shape (n, m)."""
    least, excess = np.empty_like(view.target), np.empty_like(view.target)
    for b in blocks(view, masked=True):
        least[b.row, b.target] = b.least
        excess[b.row, b.target] = phi_of(b, positive(T, len(least)))
    return least, excess


def positive(T: ArrayLike, n: int) -> Array:
    """Return a temperature for each of n problems."""
    return np.broadcast_to(validation.temperatures(T, "T"), (n,))
