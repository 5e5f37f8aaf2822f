"""Small problems at every scale, solved in every way, against exact rational arithmetic.

``python tests/fuzz.py N SEED [NAMES]`` checks N problems of every solver, or of those named, and prints what it found;
``make fuzz N=... SEED=...`` runs it. Wrong bounds, wrong statuses and wrong answers must not occur. Open gaps are
counted by the kind of problem, and so are refusals, which must name a reason. "few digits" are gaps of barycenters and
coordinates that no solver can close: even the exact optimal weights, rounded to their type, cost more than the gap.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from cases import solve_points, without_all_arcs
from gibbsot import (
    DenseCost,
    GraphCost,
    GridCost,
    PointCost,
    Problem,
    SparseCost,
    WassersteinBarycenter,
    solve,
    solve_batch,
)
from gibbsot.costs import Cost
from gibbsot.exact import coarse_to_fine as multiscale
from gibbsot.exact import pyramid
from gibbsot.exact.all_arcs import proved
from gibbsot.exact.annealed import crossover
from gibbsot.exact.line import solve_line
from gibbsot.exact.methods import optima
from gibbsot.exact.simplex import solve_dense
from gibbsot.io.budget import Budget
from gibbsot.models.mixtures import MembershipSolver
from kernels import using
from rational import (
    Exact,
    Optimum,
    exact_distances,
    exact_grid,
    exact_matrix,
    free_optimum,
    integers,
    optimum,
    partial_optimum,
)

Array = NDArray[np.float64]
ULP = Fraction(2) ** -52
PROVED = ("optimal", "gap reached")
METRICS = {1: "euclidean", 2: "sqeuclidean"}  # by power
SLACK = 1 + 1e-6  # of the tolerances, whose sums are rounded


class Answer(NamedTuple):
    """What a solver found. Potentials and plan are None where a solver has none."""

    lower: float
    upper: float
    status: str
    f: Any = None
    g: Any = None
    plan: Any = None
    scale: Fraction | None = None  # the sum of the absolute terms of the objective, where the plan has not all of them


@dataclass
class Case:
    """A problem, the call that solves it, and what is known of it."""

    kind: str
    solve: Callable[[], Answer]
    reference: Callable[[], Optimum | None]
    costs: Exact
    p: Array
    q: Array
    mass: bool = False  # whether the plan has the masses of p, not one
    gap: float = 0.0
    tolerance: float = 1e-10
    left_over: bool = False  # whether mass may be left over; then potentials and marginals are not checked
    warns: bool = False  # whether the call warns of open gaps
    extreme: bool = False  # whether other numbers, such as a penalty or a mass, are beyond twelve orders of magnitude
    vertex: bool = True  # whether an optimal plan is a vertex; not if a gap or a budget ended the work
    of_weights: Callable[[Array], Fraction] | None = None  # the exact objective of weights, of a free measure
    dtype: type = np.float64  # of the weights


# -- problems ----------------------------------------------------------------------------------------------------------


def weights(rng: np.random.Generator, size: int) -> Array:
    """Return weights with ties, a wide range, zeros, or only one that is not zero; of any size."""
    kind = rng.integers(8)
    if kind == 0:
        w = np.ones(size)
    elif kind == 1:
        w = rng.integers(1, 5, size).astype(float)
    elif kind == 2:
        w = rng.random(size)
    elif kind == 3:
        w = 10.0 ** rng.uniform(-30, 0, size)
    elif kind == 4:
        w = rng.choice([1.0, 1e-16, 1e-30, 0.1, 0.3], size)
    elif kind == 5:
        w = 10.0 ** rng.uniform(-300, 0, size)
    elif kind == 6:
        w = np.full(size, 1 / size)
    else:
        w = np.zeros(size)
        w[rng.integers(size)] = rng.random() + 0.1
    if kind != 7 and rng.random() < 0.3:
        w[rng.random(size) < 0.4] = 0
    if not w.any():
        w[0] = 1
    if rng.random() < 0.1:
        w = w * rng.choice([1e-300, 1e-150, 1e150, 1e300, 2.0**-1060])
    return w if w.any() else np.ones(size)


def matrix(rng: np.random.Generator, m: int, n: int) -> tuple[str, Array]:
    """Return a kind of costs, and costs: ties, wild ranges, blocks far apart, duplicates, infinite costs."""
    kind = rng.choice(["ties", "uniform", "wild", "choice", "squares", "normal", "blocks", "forbidden", "size", "same"])
    if kind == "ties":
        C = rng.integers(0, 4, (m, n)).astype(float)
    elif kind == "wild":
        C = 10.0 ** rng.uniform(-20, 20, (m, n))
    elif kind == "choice":
        C = rng.choice([0.0, 1.0, 1e16, 1e-16, 0.1], (m, n))
    elif kind == "squares":
        x, y = rng.random((m, 2)), rng.random((n, 2))
        C = ((x[:, None] - y) ** 2).sum(axis=2)
    elif kind == "normal":
        C = rng.normal(size=(m, n))
    elif kind == "blocks":
        far = 10.0 ** rng.integers(0, 16)
        C = rng.random((m, n)) + far * ((np.arange(m) < m / 2)[:, None] != (np.arange(n) < n / 2))
        kind = f"blocks {far:.0e}"
    elif kind == "forbidden":
        C = np.where(rng.random((m, n)) < 0.3, 1e32, rng.random((m, n)))
    elif kind == "size":
        size = rng.choice([1e-280, 1e-200, 1e-50, 1e50, 1e130, 1e300])
        C, kind = size * rng.normal(size=(m, n)), f"size {size:.0e}"
    elif kind == "same":
        C = 1 + 1e-8 * rng.random((m, n))
    else:
        C = rng.random((m, n))
    if m > 1 and rng.random() < 0.2:
        C[rng.integers(m)] = C[0]
    return str(kind), C


def with_infinite(rng: np.random.Generator, p: Array, q: Array, C: Array) -> Array:
    """Return costs with some that are infinite."""
    if rng.random() < 0.25:
        C = np.where(rng.random(C.shape) < 0.3, np.inf, C)
        # a point without weight has a finite cost, as `DenseCost` demands; one with weight makes the problem infeasible
        C[np.isinf(C).all(axis=1) & (p == 0), 0] = 1
        C[0, np.isinf(C).all(axis=0) & (q == 0)] = 1
    return C


def clouds(rng: np.random.Generator, m: int, n: int, d: int) -> tuple[str, Array, Array]:
    """Return a kind of points, and points: ties, clusters, offsets, sentinels, nearly equal clouds, and any size."""
    kind = rng.choice(["ties", "normal", "wide", "clusters", "offset", "near", "sentinels", "size"])
    X, Y = rng.normal(size=(m, d)), rng.normal(size=(n, d))
    if kind == "ties":
        X, Y = (rng.integers(0, 4, (k, d)).astype(float) for k in (m, n))
    elif kind == "wide":
        X, Y = (rng.choice([-1.0, 1.0], (k, d)) * 10.0 ** rng.uniform(-8, 2, (k, d)) for k in (m, n))
    elif kind == "clusters":
        far = 10.0 ** rng.integers(0, 13)
        X[: 1 + m // 3] += far
        Y[: 1 + n // 3] += far
        kind = f"clusters {far:.0e}"
    elif kind == "offset":
        offset = 10.0 ** rng.integers(3, 9)
        X, Y = np.round(X, 4) + offset, np.round(Y, 4) + offset
        kind = f"offset {offset:.0e}"
    elif kind == "near":
        Y = X[rng.integers(m, size=n)] + 10.0 ** rng.integers(-12, -3) * Y
    elif kind == "sentinels":
        X[rng.random(m) < 0.3] = -999999
        Y[rng.random(n) < 0.3] = -999999
    elif kind == "size":
        size = rng.choice([1e-300, 1e-160, 1e-60, 1e60, 1e140, 1e160, 1e300])
        X, Y, kind = size * X, size * Y, f"size {size:.0e}"
    return str(kind), X, Y


class Instance(NamedTuple):
    """A problem: the kind, weights, the cost and its exact entries."""

    kind: str
    p: Array
    q: Array
    cost: Cost
    costs: Exact


def sizes(rng: np.random.Generator, most: int = 8) -> tuple[int, int]:
    """Return the numbers of points."""
    m, n = (int(x) for x in rng.integers(1, most + 1, 2))
    return m, n


def instance(rng: np.random.Generator, finite: bool = False, most: int = 7) -> Instance:
    """Return a problem with any kind of cost; it may be refused for its range."""
    which = rng.integers(3)
    if which == 0:
        m, n = sizes(rng, most)
        p, q = weights(rng, m), weights(rng, n)
        kind, C = matrix(rng, m, n)
        C = C if finite else with_infinite(rng, p, q, C)
        return Instance(f"matrix, {kind}", p, q, DenseCost(C), exact_matrix(C))
    if which == 1:
        cost, kind = grid(rng)
        m, n = cost.shape
        return Instance(kind, weights(rng, m), weights(rng, n), cost, exact_grid(cost.axes))
    m, n = sizes(rng, most)
    d = int(rng.integers(1, 5))
    metric = str(rng.choice(["sqeuclidean", "sqeuclidean", "euclidean", "cityblock", "chebyshev"]))
    kind, X, Y = clouds(rng, m, n, d)
    costs = exact_metric(X, Y, metric)
    return Instance(f"{metric}, {kind}", weights(rng, m), weights(rng, n), PointCost(X, Y, metric), costs)


def grid(rng: np.random.Generator) -> tuple[GridCost, str]:
    """Return a cost on a small grid: several powers and spacings, or matrices of the axes."""
    shape = tuple(int(k) for k in rng.integers(1, 4, int(rng.integers(1, 4))))
    if rng.random() < 0.3:
        axes = [rng.normal(size=(k, int(rng.integers(1, 4)))) * 10.0 ** rng.integers(-3, 4) for k in shape]
        return GridCost(matrices=axes), "grid, matrices"
    far = 10.0 ** rng.integers(0, 7)
    power = float(rng.choice([1.0, 1.5, 2.0, 3.0]))
    spacing = tuple(rng.choice([1.0, 0.1, far]) for _ in shape)
    return GridCost(shape, power=power, spacing=spacing), f"grid, power {power:g}, spacing {far:.0e}"


def exact_metric(X: Array, Y: Array, metric: str) -> Exact:
    """Return exact distances."""
    if metric in ("sqeuclidean", "euclidean"):
        return exact_distances(X, Y, 2 if metric == "sqeuclidean" else 1)
    join: Callable[[list[int]], int] = sum if metric == "cityblock" else max  # type: ignore[assignment]
    numbers, bits = integers(np.concatenate([X, Y]).ravel().tolist())
    d = X.shape[1]
    points = [numbers[k * d : k * d + d] for k in range(len(X) + len(Y))]
    rows, columns = points[: len(X)], points[len(X) :]
    return Exact([[join([abs(a - b) for a, b in zip(x, y, strict=True)]) for y in columns] for x in rows], bits)


# -- solvers -----------------------------------------------------------------------------------------------------------


def of_solution(found: Any) -> Answer:
    """Return the answer of a `Solution`."""
    return Answer(found.lower, found.upper, found.status, found.f, found.g, found.plan)


def of_matrix(rng: np.random.Generator, call: Callable[[Array, Array, Array], Answer]) -> Case:
    """Return a case with a matrix of costs."""
    m, n = sizes(rng)
    p, q = weights(rng, m), weights(rng, n)
    kind, C = matrix(rng, m, n)
    C = with_infinite(rng, p, q, C)
    costs = exact_matrix(C)
    return Case(kind, lambda: call(p, q, C), lambda: optimum(p, q, costs), costs, p, q)


def _dense(C: Array, p: Array, q: Array, **options: Any) -> Answer:
    found = solve_dense(C, p, q, **options)
    if found.status == ["infeasible"]:
        raise ValueError("infinite costs forbid every plan")
    return of_solution(proved(found, 0, DenseCost(C)))


def dense(rng: np.random.Generator) -> Case:
    """Solve on all arcs."""
    return of_matrix(rng, lambda p, q, C: _dense(C, p, q))


def warm(rng: np.random.Generator) -> Case:
    """Solve on all arcs, from the basis of other weights."""

    def call(p: Array, q: Array, C: Array) -> Answer:
        other = solve_dense(
            C, np.where(p > 0, rng.random(len(p)) + 0.1, 0), np.where(q > 0, rng.random(len(q)) + 0.1, 0)
        )
        basis = None if other.status == ["infeasible"] else other.basis
        return _dense(C, p, q, basis=basis)

    return of_matrix(rng, call)


def assigned(rng: np.random.Generator) -> Case:
    """Solve with uniform weights by augmenting paths: copies of a small problem, side by side or forbidden to mix."""
    n = int(rng.integers(1, 9))
    kind, C = matrix(rng, n, n)
    C = with_infinite(rng, np.ones(n), np.ones(n), C)
    copies, apart = 48 // n + 1, bool(rng.random() < 0.5)
    every = np.tile(C, (copies, copies))
    if apart:
        every[np.kron(np.eye(copies), np.ones((n, n))) == 0] = np.inf
    ones, costs = np.ones(n), exact_matrix(C)

    def call() -> Answer:
        found = _dense(every, np.ones(len(every)), np.ones(len(every)))
        plan = found.plan.tocoo()
        folded = sparse.csr_array(sparse.coo_array((plan.data, (plan.row % n, plan.col % n)), (n, n)))
        return found._replace(f=found.f[:n], g=found.g[:n], plan=folded)

    kind = f"{kind}, {'apart' if apart else 'mixed'}"
    return Case(kind, call, lambda: optimum(ones, ones, costs), costs, ones, ones, vertex=False)


def products(rng: np.random.Generator) -> Case:
    """Solve with distances in many dimensions, which come from products of matrices."""
    m, n = sizes(rng)
    d = int(rng.integers(16, 21))
    metric = str(rng.choice(["sqeuclidean", "euclidean"]))
    kind, X, Y = clouds(rng, m, n, d)
    p, q, costs = weights(rng, m), weights(rng, n), exact_metric(X, Y, metric)
    cost = PointCost(X, Y, metric)
    return Case(
        f"{metric}, {kind}", lambda: of_solution(optima(Problem(p, q, cost, normalize=True))[0]),
        lambda: optimum(p, q, costs), costs, p, q,
    )  # fmt: skip


def _crossed(p: Array, q: Array, C: Array, **options: Any) -> Answer:
    """Cross over from poor potentials, with few arcs per point, so that there are several rounds."""
    return of_solution(crossover(p, q, DenseCost(C), np.zeros(len(p)), neighbours=2, **options))


def crossed(rng: np.random.Generator) -> Case:
    """Cross over; now and then to a gap."""
    gap = float(rng.choice([0.0, 0.0, 0.01]))
    case = of_matrix(rng, lambda p, q, C: _crossed(p, q, C, gap=gap))
    case.gap = gap
    return case


def without_kernels(rng: np.random.Generator) -> Case:
    """Cross over by HiGHS."""

    def call(p: Array, q: Array, C: Array) -> Answer:
        with using("numpy"):
            return _crossed(p, q, C)

    return of_matrix(rng, call)


def of_points(rng: np.random.Generator, d: int, call: Callable[[Array, Array, Array, Array, int], Answer]) -> Case:
    """Return a case with points."""
    (m, n), power = sizes(rng, 10), int(rng.integers(1, 3))
    p, q = weights(rng, m), weights(rng, n)
    kind, X, Y = clouds(rng, m, n, d)
    costs = exact_distances(X, Y, power)

    def checked() -> Answer:
        PointCost(X, Y, METRICS[power])  # which refuses distances out of range
        return call(X, Y, p, q, power)

    return Case(f"power {power}, {kind}", checked, lambda: optimum(p, q, costs), costs, p, q)


def small_levels() -> AbstractContextManager[Any]:
    """Let levels from coarse to fine end at two points."""
    return mock.patch.multiple(multiscale, _SMALLEST=2, _NEIGHBOURS=2)


def points(rng: np.random.Generator) -> Case:
    """Solve from coarse to fine, down to levels of two points; now and then to a gap, or with no time."""
    gap, seconds = float(rng.choice([0.0, 0.0, 0.0, 0.01])), float(rng.choice([math.inf, math.inf, math.inf, 1e-9]))

    def call(X: Array, Y: Array, p: Array, q: Array, power: int) -> Answer:
        with small_levels():
            return of_solution(solve_points(X, Y, p, q, METRICS[power], gap=gap, budget=Budget(seconds)))

    case = of_points(rng, int(rng.integers(1, 4)), call)
    case.gap, case.vertex = gap, seconds == math.inf
    return case


def line(rng: np.random.Generator) -> Case:
    """Solve on the line."""
    return of_points(rng, 1, lambda X, Y, p, q, power: of_solution(solve_line(X[:, 0], Y[:, 0], p, q, power)))


def grids(rng: np.random.Generator) -> Case:
    """Solve on a grid from coarse to fine, down to levels of two points."""
    cost, kind = grid(rng)
    p, q = weights(rng, cost.shape[0]), weights(rng, cost.shape[1])
    costs = exact_grid(cost.axes)

    def call() -> Answer:
        with mock.patch.object(multiscale, "_SMALLEST", 2):
            return of_solution(pyramid.solve_pyramid(p, q, cost))

    return Case(kind, call, lambda: optimum(p, q, costs), costs, p, q)


def other_engines() -> AbstractContextManager[Any]:
    """Let the smallest problems be solved as the largest ones."""
    return without_all_arcs()


def with_engine(rng: np.random.Generator, call: Callable[[], Answer]) -> Callable[[], Answer]:
    """Return a call on all arcs, or with the engines of large problems."""
    large = rng.random() < 0.5

    def chosen() -> Answer:
        with other_engines() if large else nullcontext(), small_levels() if large else nullcontext():
            return call()

    return chosen


def some_options(rng: np.random.Generator, normalize: bool, no_time: float) -> dict[str, Any]:
    """Return options of `solve`, now and then with a gap, and as often as given without time."""
    options: dict[str, Any] = {"normalize": normalize}
    if rng.random() < 0.2:
        options["gap"] = 10.0 ** -float(rng.integers(1, 12))
    if rng.random() < no_time:
        options["max_seconds"] = 1e-9
    return options


def of_result(found: Any) -> Answer:
    """Return the answer of an `OTResult`."""
    return Answer(found.lower_bound, found.upper_bound, found.status, *found.potentials, found.plan)


def front(rng: np.random.Generator) -> Case:
    """Call `solve` with any cost, weights as given or normalised, a gap, a budget or a warm start."""
    one = instance(rng)
    p, ratio = one.p, math.fsum(one.p) / math.fsum(one.q)
    q = one.q * ratio if math.isfinite(ratio) else np.full(len(one.q), np.nan)
    agree = bool(np.isfinite(q).all()) and abs(math.fsum(q) - math.fsum(one.p)) <= 1e-9 * math.fsum(one.p)
    normalize = not agree or bool(rng.random() < 0.5)
    q = one.q if normalize else q
    options = some_options(rng, normalize, no_time=0.15)
    start = rng.random() < 0.2
    other = np.where(one.p > 0, rng.random(len(one.p)) + 0.1, 0)

    def call() -> Answer:
        if start and normalize and one.cost.finite:
            options["warm_start"] = solve(other, q, one.cost, normalize=True)
        return of_result(solve(p, q, one.cost, **options))

    chosen = with_engine(rng, call)
    if normalize and rng.random() < 0.3:  # sums that are nearly one, and are not the mass
        share = p / math.fsum(p) * (1 + 10.0 ** rng.uniform(-16, -6))
        p = share if np.array_equal(share > 0, p > 0) else p
    mass = Fraction(1) if normalize else sum(map(Fraction, p.tolist()), Fraction(0))
    return Case(
        one.kind, chosen, lambda: times(optimum(p, q, one.costs), mass), one.costs, p, q,
        mass=not normalize, gap=options.get("gap", 0.0), warns=True, vertex="max_seconds" not in options,
    )  # fmt: skip


def batch(rng: np.random.Generator) -> Case:
    """Call `solve_batch` with three problems, of which one is checked."""
    one = instance(rng, finite=True)
    P = np.stack([weights(rng, len(one.p)), one.p, weights(rng, len(one.p))])
    Q = np.stack([weights(rng, len(one.q)), one.q, weights(rng, len(one.q))])

    def call() -> Answer:
        return of_result(solve_batch(P, Q, one.cost, normalize=True)[1])

    return Case(one.kind, with_engine(rng, call), lambda: optimum(one.p, one.q, one.costs), one.costs, one.p, one.q)


def with_links(rng: np.random.Generator, p: Array, q: Array, cost: Cost, kind: str, costs: Exact) -> Case:
    """Return a case on the links of a network, now and then to a gap, without time, or from another optimum."""
    options = some_options(rng, True, no_time=0.1)
    start = rng.random() < 0.2
    other = np.where(p > 0, rng.random(len(p)) + 0.1, 0)

    def call() -> Answer:
        if start:
            with suppress(ValueError), warnings.catch_warnings(action="ignore"):  # there may be no such plan
                options["warm_start"] = solve(other, q, cost, normalize=True)
        return of_result(solve(p, q, cost, **options))

    return Case(
        kind, call, lambda: optimum(p, q, costs), costs, p, q,
        gap=options.get("gap", 0.0), warns=True, vertex="max_seconds" not in options,
    )  # fmt: skip


def graph(rng: np.random.Generator) -> Case:
    """Solve on the edges of a graph: directed or not, trees, parts that nothing connects, edges of no length."""
    n = int(rng.integers(1, 8))
    kind, C = matrix(rng, n, n)
    directed, tree = rng.random() < 0.4, rng.random() < 0.2
    if tree:
        i = np.arange(1, n)
        j = np.array([int(rng.integers(k)) for k in i], np.int64)
    else:
        i, j = np.nonzero(rng.random((n, n)) < rng.choice([0.3, 0.6, 1.0]))
        i, j = (x[i < j] if not directed else x for x in (i, j))
    lengths = np.abs(C[i, j])
    kind = f"{'tree' if tree else 'directed' if directed else 'graph'}, {kind}"
    cost = GraphCost(sparse.coo_array((lengths, (i, j)), (n, n)), directed=directed)
    numbers, bits = integers(lengths.tolist())
    entries: list[list[int | None]] = [[0 if a == b else None for b in range(n)] for a in range(n)]
    for a, b, length in zip(i.tolist(), j.tolist(), numbers, strict=True):
        for x, y in [(a, b)] if directed else [(a, b), (b, a)]:
            entries[x][y] = _least(entries[x][y], length)
    for k in range(n):
        for a in range(n):
            for b in range(n):
                entries[a][b] = _least(entries[a][b], _sum(entries[a][k], entries[k][b]))
    return with_links(rng, weights(rng, n), weights(rng, n), cost, kind, Exact(entries, bits))


def _least(a: int | None, b: int | None) -> int | None:
    return a if b is None else b if a is None else min(a, b)


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def pairs(rng: np.random.Generator) -> Case:
    """Solve on the stored pairs of a sparse cost."""
    m, n = sizes(rng)
    kind, C = matrix(rng, m, n)
    stored = rng.random((m, n)) < rng.choice([0.4, 0.7, 1.0])
    cost = SparseCost(sparse.coo_array((C[stored], np.nonzero(stored)), (m, n)))
    costs = exact_matrix(np.where(stored, C, np.inf))
    return with_links(rng, weights(rng, m), weights(rng, n), cost, kind, costs)


def ragged(rng: np.random.Generator) -> Case:
    """Call `solve_batch` with a list of costs, of which one is checked: packed problems and others."""
    one = instance(rng, finite=True)
    matrix = rng.random((3, 4))
    P, Q = [np.ones(3), one.p, np.ones(2)], [np.ones(4), one.q, np.ones(2)]
    cost = one.cost.matrix() if isinstance(one.cost, DenseCost) and rng.random() < 0.5 else one.cost
    if isinstance(cost, PointCost) and rng.random() < 0.7:
        cost = (cost.X, cost.Y, cost.metric)

    def call() -> Answer:
        found = solve_batch(P, Q, [matrix, cost, (matrix[:2], matrix[:2])], normalize=True)
        own = found[1]
        assert found.value[1] == own.value
        assert (found.lower_bound[1], found.upper_bound[1]) == (own.lower_bound, own.upper_bound)
        assert found.status[1] == own.status
        return of_result(own)

    return Case(one.kind, call, lambda: optimum(one.p, one.q, one.costs), one.costs, one.p, one.q)


def times(found: Optimum | None, mass: Fraction) -> Optimum | None:
    """Return the optimum for a mass."""
    return found and Optimum(found.low * mass, found.high * mass)


def of_partial(rng: np.random.Generator, one: Instance, **options: Any) -> Case:
    """Return a case in which mass may be left over; now and then there is no time."""
    if rng.random() < 0.1:
        options["max_seconds"] = 1e-9
    penalty, mass = options.get("penalty"), options.get("mass")

    def call() -> Answer:
        found = solve(one.p, one.q, one.cost, **options)
        scale = None
        if penalty is not None:
            p, q = (sum(map(Fraction, w.tolist()), Fraction(0)) for w in (one.p, one.q))
            moved = sum(map(Fraction, found.plan.data.tolist()), Fraction(0))
            # left over mass is known to the rounding of the plan only; the sum of terms of either sign is no larger
            left = abs(Fraction(penalty)) * max(p + q - 2 * moved - 8 * ULP * (p + q), Fraction(0))
            upper = Fraction(found.upper_bound) if math.isfinite(found.upper_bound) else Fraction(0)
            scale = max(total(found.plan, one.costs) + left, abs(upper))
        return Answer(found.lower_bound, found.upper_bound, found.status, None, None, found.plan, scale)

    return Case(
        one.kind, with_engine(rng, call), lambda: partial_optimum(one.p, one.q, one.costs, penalty, mass), one.costs,
        one.p, one.q, left_over=True, warns=True, extreme=_is_far(penalty, one.costs) or _vanishes(mass, one.p, one.q),
    )  # fmt: skip


def _is_far(penalty: float | None, costs: Exact) -> bool:
    """Tell whether a penalty and the costs differ by more than twelve orders of magnitude."""
    used = [Fraction(abs(x), 1 << costs.bits) for row in costs.entries for x in row if x]
    if not penalty or not used:
        return False
    return max(*used, abs(Fraction(penalty))) > 10**12 * min(*used, abs(Fraction(penalty)))


def _vanishes(mass: float | None, p: Array, q: Array) -> bool:
    """Tell whether a mass is that small beside those of the measures."""
    return mass is not None and mass < 1e-12 * max(math.fsum(p / 2), math.fsum(q / 2))


def penalised(rng: np.random.Generator) -> Case:
    """Call `solve` with a penalty of any size."""
    one = instance(rng, finite=True, most=5)
    if rng.random() < 0.5:  # sums that differ in the last bits, as sums of data do
        ratio = math.fsum(one.p) / math.fsum(one.q)
        q = one.q * ratio if math.isfinite(ratio) else one.q
        one = one._replace(q=q) if np.isfinite(q).all() and q.any() else one
    penalty = float(rng.choice([0.0, 1.0, 10.0 ** rng.uniform(-3, 15)]))
    return of_partial(rng, one, penalty=penalty)


def given_mass(rng: np.random.Generator) -> Case:
    """Call `solve` with a mass."""
    one = instance(rng, most=5)
    least = min(math.fsum(one.p), math.fsum(one.q))
    mass = float(least * rng.choice([1.0, 0.5, rng.random(), 1e-3, 1e-17]))
    return of_partial(rng, one, mass=mass if mass > 0 else least)


def few_bins(rng: np.random.Generator) -> tuple[str, Cost, Exact]:
    """Return a cost between few bins, some of them far away."""
    m = int(rng.integers(2, 5))
    far = 10.0 ** rng.integers(0, 10)
    x = rng.normal(size=(m, int(rng.integers(1, 3))))
    x[-1] += far
    if rng.random() < 0.3:
        C = np.abs(rng.normal(size=(m, m))) * 10.0 ** rng.integers(-5, 6)
        return "matrix", DenseCost(C), exact_matrix(C)
    return f"far {far:.0e}", PointCost(x), exact_distances(x, x, 2)


def histograms(rng: np.random.Generator, n: int, m: int) -> Array:
    """Return measures as rows."""
    kind = rng.integers(4)
    if kind == 0:
        return rng.random((n, m))
    if kind == 1:
        return rng.integers(1, 5, (n, m)).astype(float)
    if kind == 2:  # as much in the far bin of all
        X = rng.integers(1, 5, (n, m)).astype(float)
        X[:, 0] += 20 - X.sum(axis=1) + X[:, -1]
        X[:, -1] = 3
        return X
    return 10.0 ** rng.uniform(-12, 0, (n, m))


def normalised(X: Array) -> Array:
    """Return rows divided by their sums in double precision, which are the measures of the models."""
    X = X.astype(np.float64)
    return X / np.asarray(sparse.csr_array(X).sum(axis=1)).reshape(-1, 1)  # in the order of the library


def barycenter(rng: np.random.Generator) -> Case:
    """Fit a barycenter of two measures."""
    kind, cost, costs = few_bins(rng)
    X, lam = histograms(rng, 2, cost.shape[0]), rng.choice([1.0, 2.0, 0.3], 2)
    gap = float(rng.choice([0.0, 0.0, 1e-3]))
    if rng.random() < 0.3:
        X, kind = X.astype(np.float32), f"{kind}, float32"

    def call() -> Answer:
        model = WassersteinBarycenter(cost, gap=gap, random_state=0).fit(X, sample_weight=lam)
        scale = abs(Fraction(model.objective_))
        return Answer(model.lower_bound_, model.objective_, model.status_, scale=scale)

    shares, factors = normalised(X), [Fraction(x) / sum(map(Fraction, lam.tolist())) for x in lam.tolist()]

    def value(w: Array) -> Fraction:
        row = integers(w.tolist())[0]
        return sum((k * exact_value(row, x, costs) for k, x in zip(factors, shares, strict=True)), Fraction(0))

    return Case(
        kind, call, lambda: free_optimum(shares, lam.tolist(), costs), costs, X[0], X[0], gap=gap,
        tolerance=1e-9, warns=True, of_weights=value,
    )  # fmt: skip


def coordinates(rng: np.random.Generator) -> Case:
    """Find the memberships of a measure in two components; the exact cost of those returned is checked."""
    kind, cost, costs = few_bins(rng)
    m = cost.shape[0]
    X, D = histograms(rng, 1, m), histograms(rng, 2, m)
    gap = float(rng.choice([0.0, 1e-3]))
    if rng.random() < 0.3:
        X, kind = X.astype(np.float32), f"{kind}, float32"

    parts = np.array(integers(normalised(D).ravel().tolist())[0], object).reshape(D.shape)

    def value(w: Array) -> Fraction:
        mixed = (np.array(integers(w.tolist())[0], object) @ parts).tolist()
        return exact_value(mixed, normalised(X)[0], costs)

    def call() -> Answer:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            W = MembershipSolver(D, cost, 1, gap=gap)(X)
        status = "gap open" if caught else ("gap reached" if gap else "optimal")
        for one in caught:
            warnings.warn(one.message, stacklevel=1)
        # the exact cost of what was returned takes the place of an upper bound
        exact = value(W[0].astype(np.float64))
        upper = float(exact) if Fraction(float(exact)) >= exact else math.nextafter(float(exact), math.inf)
        return Answer(-math.inf, upper, status, scale=abs(exact))

    return Case(
        kind, call, lambda: free_optimum(normalised(X), [1.0], costs, normalised(D)), costs, X[0], X[0], gap=gap,
        tolerance=1e-9, warns=True, of_weights=value, dtype=X.dtype.type,
    )  # fmt: skip


def exact_value(mixed: list[int], x: Array, costs: Exact) -> Fraction:
    """Return the exact cost between integer weights and a measure."""
    from rational import _optimum

    b = integers(x.tolist())[0]
    rows, columns = [i for i, w in enumerate(mixed) if w], [j for j, w in enumerate(b) if w]
    found = _optimum([mixed[i] for i in rows], [b[j] for j in columns], costs, rows, columns)
    assert found is not None
    return found.high


# -- judgement ---------------------------------------------------------------------------------------------------------


def total(plan: Any, costs: Exact) -> Fraction:
    """Return the sum of the absolute terms of a plan."""
    arcs = plan.tocoo()
    found = Fraction(0)
    for i, j, mass in zip(arcs.row.tolist(), arcs.col.tolist(), arcs.data.tolist(), strict=True):
        cost = costs.at(i, j)
        found += Fraction(mass) * abs(cost) if cost is not None else 0
    return found


def fraction(x: float) -> Fraction | float:
    """Return a number to compare with fractions."""
    return Fraction(x) if math.isfinite(x) else x


def check(answer: Answer, case: Case, W: Optimum) -> str | None:
    """Return what is wrong with an answer."""
    lower, upper = float(answer.lower), float(answer.upper)
    if math.isnan(lower) or math.isnan(upper):
        return "wrong bound: NaN"
    if fraction(lower) > W.high:
        return f"wrong bound: lower is {float(Fraction(lower) - W.high):.3g} above W = {float(W.high):.6g}"
    if fraction(upper) < W.low:
        return f"wrong bound: upper is {float(W.low - Fraction(upper)):.3g} below W = {float(W.low):.6g}"
    return check_status(answer, case, W) or (check_plan(answer, case) if math.isfinite(upper) else None)


def check_status(answer: Answer, case: Case, W: Optimum) -> str | None:
    """Return whether a status contradicts the numbers."""
    lower, upper = float(answer.lower), float(answer.upper)
    scale = answer.scale
    if scale is None and math.isfinite(upper):
        scale = total(answer.plan, case.costs)
    if not math.isfinite(upper):
        return f"wrong status: {answer.status} without a plan" if answer.status in PROVED else None
    # a solver that states no lower bound is measured by the truth
    difference = Fraction(upper) - (Fraction(lower) if math.isfinite(lower) else W.low)
    assert scale is not None
    closed = difference <= Fraction(case.tolerance * SLACK) * scale
    if answer.status == "optimal" and not closed:
        return f"wrong status: optimal with a gap of {float(difference / scale) if scale else math.inf:.3g}"
    if answer.status == "gap reached" and not (
        case.gap > 0 and difference <= Fraction(max(case.gap, case.tolerance) * SLACK) * scale
    ):
        return f"wrong status: gap reached with {float(difference / scale) if scale else math.inf:.3g}"
    too_small = difference <= Fraction(case.tolerance / SLACK) * scale
    if answer.status not in PROVED and math.isfinite(lower) and too_small:
        return f"wrong status: {answer.status} with a closed gap"
    if answer.status not in (*PROVED, "gap open", "budget spent"):
        return f"wrong status: {answer.status!r} is none"
    return None


def check_plan(answer: Answer, case: Case) -> str | None:
    """Return whether potentials are not feasible, or a plan is not a coupling."""
    p, q = case.p, case.q
    if answer.f is not None and not case.left_over:
        f, g = ([Fraction(float(z)) for z in x] for x in (answer.f, answer.g))
        for i in range(len(f)):
            for j in range(len(g)):
                cost = case.costs.at(i, j)
                if cost is not None and f[i] + g[j] > cost * (1 + case.costs.error) + 4 * ULP * (abs(f[i]) + abs(g[j])):
                    return f"wrong answer: potentials of {i}, {j} exceed the cost by {float(f[i] + g[j] - cost):.3g}"
    if answer.plan is None:
        return None
    plan = answer.plan.tocoo()
    if (plan.data <= 0).any():
        return "wrong answer: entries of the plan that are not positive"
    if any(case.costs.entries[i][j] is None for i, j in zip(plan.row.tolist(), plan.col.tolist(), strict=True)):
        return "wrong answer: a forbidden pair"
    vertex = case.vertex and not case.left_over and case.gap == 0 and answer.status == "optimal"
    if vertex and plan.nnz > np.count_nonzero(p) + np.count_nonzero(q) - 1:
        return "wrong answer: the plan is no vertex"
    mass = sum(map(Fraction, p.tolist()), Fraction(0)) if case.mass else Fraction(1)
    scale = sum(map(Fraction, [*p.tolist(), *q.tolist()]), Fraction(0))  # plans are those of normalised weights, scaled
    for index, weight in ((plan.row, p), (plan.col, q)):
        sums = [Fraction(0)] * len(weight)
        for k, moved in zip(index.tolist(), plan.data.tolist(), strict=True):
            sums[k] += Fraction(moved)
        whole = sum(map(Fraction, weight.tolist()), Fraction(0))
        for found, w in zip(sums, weight.tolist(), strict=True):
            wanted = Fraction(w) if case.left_over else Fraction(w) / whole * mass
            error = 8 * ULP * wanted + Fraction(2) ** -1066 * (scale if case.mass or case.left_over else 1)
            if found > wanted + error or (not case.left_over and found < wanted - error):
                return f"wrong answer: a marginal is {float(found):.6g} instead of {float(wanted):.6g}"
    return None


def judge(case: Case) -> str:
    """Return the status of a right answer, "refused: ...", or "wrong ...: ..."."""
    W = case.reference()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answer = case.solve()
    except ValueError as reason:
        if "infinite costs" in str(reason):
            return "infeasible" if W is None else f"wrong answer: {reason}"
        named = any(word in str(reason) for word in ("range", "overflow", "beyond"))
        return f"refused: {reason}" if named else f"wrong answer: ValueError: {reason}"
    except Exception as reason:  # reported with its seed
        return f"wrong answer: {type(reason).__name__}: {reason}"
    others = [one for one in caught if one.category is not ConvergenceWarning]
    if others:
        return f"wrong answer: {others[0].category.__name__}: {others[0].message}"
    if W is None:
        without_plan = answer.status not in PROVED and answer.upper == math.inf
        return "budget spent" if without_plan else "wrong answer: a plan where there is none"
    if case.warns and bool(caught) != (answer.status not in PROVED):
        return f"wrong status: {answer.status} with {len(caught)} warnings"
    wrong = check(answer, case, W)
    if wrong is None and answer.status == "gap open" and lacks_digits(case, W, [str(one.message) for one in caught]):
        return "few digits"
    return wrong or answer.status


def lacks_digits(case: Case, W: Optimum, reasons: list[str]) -> bool:
    """Tell whether the exact optimal weights, rounded to their type, cost more than the gap, and a warning says so."""
    if case.of_weights is None or not any("rounded to the precision in which they are returned" in x for x in reasons):
        return False
    total = sum(W.weights)
    rounded = np.array([float(x / total) for x in W.weights]).astype(case.dtype).astype(np.float64)
    value = case.of_weights(rounded)
    return value - W.low > Fraction(max(case.gap, case.tolerance)) * value


SOLVERS: dict[str, Callable[[np.random.Generator], Case]] = {
    "dense": dense,
    "warm": warm,
    "crossed": crossed,
    "without_kernels": without_kernels,
    "points": points,
    "line": line,
    "grids": grids,
    "solve": front,
    "batch": batch,
    "penalty": penalised,
    "mass": given_mass,
    "barycenter": barycenter,
    "coordinates": coordinates,
    "graph": graph,
    "pairs": pairs,
    "ragged": ragged,
    "assigned": assigned,
    "products": products,
}


def runs(seed: int, names: tuple[str, ...]) -> Iterator[tuple[str, str, str, bool]]:
    """Solve the problems of a seed in every way; yield the solver, the kind, the status or an error, and the scale.

    The last is whether scales are beyond twelve orders of magnitude.
    """
    for k, (name, make) in enumerate(SOLVERS.items()):
        if name in names:
            try:
                case = make(np.random.default_rng([seed, k]))
            except ValueError as reason:  # a cost that its class refuses
                yield name, "cost", _refusal(str(reason)), True
                continue
            yield name, case.kind, judge(case), is_extreme(case.kind, case)


def _refusal(reason: str) -> str:
    """Return what it means that a cost is refused."""
    if "only infinite costs" in reason:
        return "infeasible"
    return f"refused: {reason}" if "range" in reason else f"wrong answer: {reason}"


def _power(kind: str) -> float:
    """Return of which power of a distance the costs are: the scale of a problem is that of its distances."""
    found = re.search(r"power ([\d.]+)", kind)
    return float(found[1]) if found else 2.0 if "sqeuclidean" in kind else 1.0


def is_extreme(kind: str, case: Case | None) -> bool:
    """Tell whether the numbers of a problem differ by more than twelve orders of magnitude, or are far from one.

    These are the weights of a measure, the masses of both, and the distances, or the costs where there are none.
    """
    if case is None or "1e-160" in kind:  # whose squares vanish
        return True
    for weights in (case.p, case.q):
        used = weights[weights > 0].astype(np.float64)
        if used.min() < 1e-12 * used.max() or not 1e-100 < used.max() < 1e100:
            return True
    if case.p.max() < 1e-12 * case.q.max() or case.q.max() < 1e-12 * case.p.max():
        return True
    used = [abs(x) for row in case.costs.entries for x in row if x]
    if used and Fraction(max(used), min(used)) > 10 ** round(12 * _power(kind)):
        return True
    size = Fraction(max(used, default=1)) * Fraction(2) ** -case.costs.bits
    return case.extreme or not Fraction(10) ** -100 < size < Fraction(10) ** 100


def main(n: int, first: int, names: tuple[str, ...] = tuple(SOLVERS)) -> int:
    """Check n seeds; return how many answers were wrong."""
    found, open_gaps = Counter[tuple[str, str]](), Counter[tuple[str, str, str]]()
    within = Counter[tuple[str, bool]]()
    for seed in range(first, first + n):
        for name, kind, state, extreme in runs(seed, names):
            short = state.partition(":")[0]
            if not extreme and short in (*PROVED, "gap open"):
                within[name, short == "gap open"] += 1
            if short.startswith("wrong"):
                print(f"seed {seed}: {name}: {kind}: {state}", flush=True)
            elif short not in (*PROVED, "infeasible"):
                open_gaps[short, name, kind] += 1
            found[name, short] += 1
    for (state, name, kind), count in sorted(open_gaps.items()):
        print(f"{state:14} {name:16} {kind:36} {count}")
    for (name, state), count in sorted(found.items()):
        print(f"{name:16} {state:16} {count}")
    for name in names:
        both = within[name, False] + within[name, True]
        print(f"{name:16} open gaps on scales up to 1e12: {within[name, True]} of {both}")
    return sum(count for (_, state), count in found.items() if state.startswith("wrong"))


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:]) or tuple(SOLVERS))))
