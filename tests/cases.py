"""Costs and measures of every kind, for the tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from scipy.optimize import linprog

from gibbsot import Cost, DenseCost, Gibbs, GraphCost, GridCost, OTResult, PointCost, Problem, SparseCost, coulomb
from gibbsot.exact.all_arcs import AllArcs
from gibbsot.exact.coarse_to_fine import CoarseToFine, solve_from_coarse
from gibbsot.exact.line import Line
from gibbsot.exact.pyramid import CoarseGrids
from gibbsot.exact.solution import Solution

TREE_METRICS = ("sqeuclidean", "euclidean", "cityblock", "chebyshev")  # of which k-d trees search

KINDS = (
    "dense",
    "forbidden",
    "points",
    "coulomb",
    "grid1",
    "grid2",
    "grid3",
    "thin",
    "axes",
    "graph",
    "roads",
    "sparse",
)


def cost(kind: str, dtype: DTypeLike = np.float64, seed: int = 0) -> Cost:
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    if kind == "dense":
        return DenseCost(rng.random((37, 53)), dtype)
    if kind == "forbidden":
        M = rng.random((33, 18))
        M[rng.random(M.shape) < 0.3] = np.inf
        M[0] = rng.random(18)
        M[:, 0] = rng.random(33)
        return DenseCost(M, dtype)
    if kind == "points":
        return PointCost(rng.normal(size=(21, 2)), rng.normal(size=(34, 2)), dtype=dtype)
    if kind == "coulomb":
        return coulomb(rng.random(16), dtype=dtype)
    if kind == "graph":  # a ring with chords
        ends, lengths = np.column_stack([np.arange(29), np.roll(np.arange(29), 1)]), rng.random(40)
        ends = np.concatenate([ends, rng.integers(0, 29, (11, 2))])
        return GraphCost(sparse.coo_array((lengths, ends.T), (29, 29)), directed=False, dtype=dtype)
    if kind == "roads":  # all nodes reach one another by the first
        tail = np.concatenate([np.zeros(22, int), np.arange(1, 23), rng.integers(1, 23, 40)])
        head = np.concatenate([np.arange(1, 23), np.zeros(22, int), rng.integers(1, 23, 40)])
        return GraphCost(sparse.coo_array((rng.random(84), (tail, head)), (23, 23)), dtype=dtype)
    if kind == "sparse":
        M = rng.normal(size=(24, 31))
        kept = rng.random(M.shape) < 0.5
        kept[0], kept[:, 0] = True, True
        i, j = np.nonzero(kept)
        return SparseCost(sparse.coo_array((M[i, j], (i, j)), M.shape), dtype)
    if kind == "axes":
        axes = [rng.random((3, 6)), rng.random((19, 4))]
        axes[1][5, 1:] = np.inf
        return GridCost(matrices=axes, dtype=dtype)
    shape = {"grid1": (19,), "grid2": (9, 18), "grid3": (3, 4, 5), "thin": (1, 6, 1)}[kind]
    return GridCost(shape, power={"grid1": 1, "grid2": 2, "grid3": 1.5, "thin": 2}[kind], dtype=dtype)


def measures(rng: np.random.Generator, n: int, size: int, zeros: float = 0.3) -> NDArray[np.float64]:
    """Random weights, a share of them zero; the first point, which every cost lets reach all others, has weight."""
    w = rng.random((n, size))
    w[rng.random(w.shape) < zeros] = 0
    w[:, 0] += 0.1
    return np.asarray(w / w.sum(axis=1, keepdims=True))


def batch(kind: str, n: int = 3, dtype: DTypeLike = np.float64, seed: int = 0, zeros: float = 0.3) -> Problem:
    M = cost(kind, dtype, seed)
    if kind == "coulomb":  # a heavy point could not avoid itself
        zeros = 0.0
    rng = np.random.default_rng([seed, 1])
    return Problem(measures(rng, n, M.shape[0], zeros), measures(rng, n, M.shape[1], zeros), M)


@st.composite
def problems(draw: Any) -> Problem:
    """A small batch of any kind and precision; infinite costs leave a plan."""
    pair = batch(
        draw(st.sampled_from(KINDS)),
        n=draw(st.integers(1, 3)),
        dtype=draw(st.sampled_from([np.float32, np.float64])),
        seed=draw(st.integers(0, 10_000)),
        zeros=draw(st.sampled_from([0.0, 0.4])),
    )
    assume(pair.cost.finite or all(_feasible(*one, pair.cost.matrix()) for one in zip(pair.p, pair.q, strict=True)))
    return pair


def _feasible(p: Any, q: Any, M: Any) -> bool:
    """Tell whether a plan avoids infinite costs, by a linear program."""
    i, j = np.nonzero(np.isfinite(M))
    arcs, ones = np.arange(len(i)), np.ones(len(i))
    balance = sparse.vstack(
        [sparse.csr_array((ones, (end, arcs)), (m, len(i))) for end, m in zip((i, j), M.shape, strict=True)]
    )
    found = linprog(np.zeros(len(i)), A_eq=balance[:-1], b_eq=np.concatenate([p, q])[:-1])
    return found.status == 0


def by_sampler(call: Callable[..., OTResult], **always: Any) -> Callable[..., OTResult]:
    """Return `solve` or `solve_batch` with the sampler, whose own options are given by name like the others."""

    def estimate(p: Any, q: Any, cost: Any, **given: Any) -> OTResult:
        own = {name: given.pop(name) for name in list(given) if name in Gibbs.__dataclass_fields__}
        return call(p, q, cost, method=Gibbs(**own), **always, **given)

    return estimate


def without_all_arcs() -> ExitStack:
    """Let no problem be solved on all arcs, but by the method that suits large ones with its cost."""
    stack = ExitStack()
    for method, limit in ((AllArcs, "most"), (CoarseGrids, "least"), (CoarseToFine, "least"), (Line, "least")):
        stack.enter_context(mock.patch.object(method, limit, -1))
    return stack


def solve_points(X, Y, p=None, q=None, metric="sqeuclidean", gap=0.0, budget=None) -> Solution:
    """Solve transport between two clouds of points from coarse to fine, whatever their size."""
    p, q = (np.ones(len(x)) if w is None else np.asarray(w, np.float64) for x, w in ((X, p), (Y, q)))
    cost = PointCost(X, Y, metric, dtype=np.float64)
    return solve_from_coarse(p, q, cost.by_trees(), gap, budget)
