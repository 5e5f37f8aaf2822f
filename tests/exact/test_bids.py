"""Bids: potentials for points in many dimensions, without a matrix."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from gibbsot import PointCost, Problem, solve
from gibbsot.core.backend import backend
from gibbsot.costs import points
from gibbsot.exact import annealed, bids
from gibbsot.exact.annealed import Crossover, feasible
from gibbsot.exact.certificate import mean
from gibbsot.exact.method import Batch
from gibbsot.io.budget import Budget


@pytest.fixture(autouse=True)
def no_matrix(monkeypatch):
    """No problem is small enough for a matrix, and chains are not needed."""
    if not backend().has_simplex:
        pytest.skip("bids are compiled")
    monkeypatch.setattr(points, "MATRIX_BYTES", 0)
    monkeypatch.setattr(annealed, "_annealed", lambda *_: pytest.fail("no chain is needed"))


def weights(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return weights of a kind; "few" leaves most points without weight, or hardly any."""
    if kind == "uniform":
        return np.full(n, 1 / n)
    if kind == "few":
        x = rng.dirichlet(np.full(n, 0.02))
        x[x < 1e-9] = 0
        return x / x.sum()
    return rng.dirichlet(np.ones(n))


def solved(p, q, cost, gap=0.0):
    return Crossover().solve(Batch(Problem(p[None], q[None], cost), gap, Budget()), [0])[0]


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("kind", ["uniform", "any", "few"])
def test_bids_lead_to_potentials_near_the_optimum(kind, metric):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(300, 20)), rng.normal(size=(450, 20)) + 0.3
    p, q, cost = weights(kind, 300, rng), weights(kind, 450, rng), PointCost(X, Y, metric)
    start = bids.potentials(p, q, cost, Budget())
    assert start is not None
    f, g = feasible(cost, start, p, q)
    bound = (mean(p[p > 0], f[p > 0]) + mean(q[q > 0], -g[q > 0])).lower
    value = float(ot.emd2(p, q, cdist(X, Y, metric), numItermax=10**6))
    assert 0.97 * value <= bound <= value * (1 + 1e-12)
    found = solved(p, q, cost)
    assert found.status == "optimal"
    assert found.value == pytest.approx(value, rel=1e-9)
    near = solved(p, q, cost, 0.01)
    assert near.status in ("optimal", "gap reached")
    assert near.lower <= value <= near.upper


@pytest.mark.parametrize("kind", ["all equal", "duplicates", "same points", "far clouds", "a line", "an outlier"])
def test_bids_for_awkward_points(kind, monkeypatch):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(120, 18)), rng.normal(size=(90, 18))
    if kind == "all equal":
        X, Y = np.ones((20, 18)), np.ones((30, 18))
    elif kind == "duplicates":
        X, Y = X[rng.integers(0, 9, 120)], X[rng.integers(0, 9, 90)]
    elif kind == "same points":
        Y = X
    elif kind == "far clouds":
        X[::2] += 1e5
        Y[::2] += 1e5
    elif kind == "a line":
        X, Y = np.outer(rng.random(120), np.ones(18)), np.outer(rng.random(90), np.ones(18))
    else:
        Y[0] = 1e4
    p, q, cost = weights("any", len(X), rng), weights("any", len(Y), rng), PointCost(X, Y)
    value = float(ot.emd2(p, q, cdist(X, Y, "sqeuclidean"), numItermax=10**6))
    if bids.potentials(p, q, cost, Budget()) is None:  # outbidding in small steps: chains are faster
        monkeypatch.undo()
    answer = solved(p, q, cost)
    assert answer.status == "optimal"
    assert answer.value == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_a_budget_ends_bids():
    rng = np.random.default_rng(2)
    cost = PointCost(rng.normal(size=(50, 16)), rng.normal(size=(60, 16)))
    assert bids.potentials(np.ones(50), np.ones(60), cost, Budget(max_seconds=0)) is None


@pytest.mark.slow
@pytest.mark.parametrize("n", [2000, 5000])
def test_assignments_without_a_matrix(monkeypatch, n):
    """The optimum that SciPy finds, and a gap of one percent."""
    monkeypatch.setattr(annealed, "_ASSIGNED", (2**60, 2**60))
    rng = np.random.default_rng(n)
    X, Y = rng.normal(size=(2, n, 64))
    C = cdist(X, Y, "sqeuclidean")
    value = float(C[linear_sum_assignment(C)].mean())
    found, near = (solved(np.ones(n), np.ones(n), PointCost(X, Y), gap) for gap in (0.0, 0.01))
    assert found.status == "optimal"
    assert found.value == pytest.approx(value, rel=1e-9)
    assert near.status in ("optimal", "gap reached")
    assert near.lower <= value <= near.upper


@pytest.mark.parametrize("n", [20_000, 50_000])
def test_memory_is_refused_before_distances_are_formed(n, monkeypatch):
    """A matrix in single precision at 20,000 points, lists of near points at 50,000."""
    monkeypatch.setattr(points, "MATRIX_BYTES", 2**29)
    monkeypatch.setattr(PointCost, "matrix", lambda *_: pytest.fail("no distance is needed"))
    monkeypatch.setattr(PointCost, "listed", lambda *_: pytest.fail("no distance is needed"))
    X, Y = np.random.default_rng(3).normal(size=(2, n, 64))
    needed = Crossover().memory(PointCost(X, Y))
    assert (1.6e9 if n == 20_000 else 2e8) < needed < (2.5e9 if n == 20_000 else 1e9)
    with pytest.raises(ValueError, match="max_memory: this takes about"):
        solve(None, None, PointCost(X, Y), max_memory=needed / 2)
