"""Sampler, oracle and models on a graph, none of which makes the matrix of its distances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial import Delaunay

from gibbsot import (
    GraphCost,
    Oracle,
    WassersteinBarycenter,
    WassersteinKMeans,
    WassersteinNeighbors,
    WassersteinNMF,
    distances,
    solve,
)
from gibbsot.core.backend import backend
from gibbsot.models.kmeans import smoothed

pytestmark = pytest.mark.skipif(not backend().has_simplex, reason="without kernels a matrix is what solvers use")


@pytest.fixture
def city(monkeypatch):
    """A planar graph of 60 nodes whose matrix nobody may ask for, and six measures on it."""
    rng = np.random.default_rng(0)
    X = rng.random((60, 2))
    triangles = Delaunay(X).simplices
    ends = np.unique(np.sort(np.concatenate([triangles[:, pair] for pair in ([0, 1], [1, 2], [2, 0])]), axis=1), axis=0)
    lengths = np.linalg.norm(X[ends[:, 0]] - X[ends[:, 1]], axis=1)
    cost = GraphCost(sparse.coo_array((lengths, ends.T), (60, 60)), directed=False)
    M = cost.matrix()
    own = GraphCost.matrix

    def few(self, rows=None, columns=None):
        if rows is None or len(rows) > 64:
            raise AssertionError("the matrix of all distances")
        return own(self, rows, columns)

    monkeypatch.setattr(GraphCost, "matrix", few)
    centres = X[rng.integers(0, 60, 6)]
    P = np.exp(-((X[None] - centres[:, None]) ** 2).sum(axis=2) / 0.02)
    return cost, M, P / P.sum(axis=1, keepdims=True)


def test_sampler(city):
    cost, M, P = city
    estimate, best = solve(P[0], P[1], cost, method="gibbs"), solve(P[0], P[1], M)
    assert estimate.value == pytest.approx(best.value, rel=0.05)
    assert estimate.lower_bound <= best.value * (1 + 1e-12)


def test_distances_and_neighbours(city):
    cost, M, P = city
    found = distances(P, cost=cost)
    expected = [[solve(p, q, M).value for q in P] for p in P]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    near = WassersteinNeighbors(n_neighbors=2, cost=cost).fit(P)
    _, which = near.kneighbors(P)
    np.testing.assert_array_equal(which[:, 0], np.arange(6))
    order = np.argsort(np.array(expected), axis=1)
    np.testing.assert_array_equal(which[:, 1], order[:, 1])


def test_oracle(city):
    cost, M, P = city
    oracle = Oracle(cost, P[:3])
    models = np.repeat(P[3:4], 3, axis=0)
    found = oracle(models)
    expected = [solve(P[3], q, M).value for q in P[:3]]
    np.testing.assert_allclose(found.values, expected, rtol=0.05)
    np.testing.assert_allclose([one.value for one in oracle.exact(models)], expected, rtol=1e-9)


def test_barycenter_and_nmf(city):
    cost, M, P = city
    model = WassersteinBarycenter(cost, random_state=0).fit(P[:3])
    assert model.barycenter_.shape == (60,)
    mean = np.mean([solve(model.barycenter_, p, M, normalize=True).value for p in P[:3]])
    uniform = np.mean([solve(np.full(60, 1 / 60), p, M, normalize=True).value for p in P[:3]])
    assert mean < 0.9 * uniform
    factors = WassersteinNMF(2, cost=cost, random_state=0).fit(P)
    assert factors.components_.shape == (2, 60)


def test_kmeans(city, monkeypatch):
    monkeypatch.setattr(smoothed, "_MOST_ENTRIES", 0)  # as on a large graph: small ones have a smoothed start
    cost, M, P = city
    model = WassersteinKMeans(2, cost=cost, random_state=0).fit(P)
    transport = np.array([[solve(p, c, M, normalize=True).value for c in model.cluster_centers_] for p in P])
    np.testing.assert_array_equal(model.labels_, transport.argmin(axis=1))
    uniform = np.mean([solve(p, np.full(60, 1 / 60), M, normalize=True).value for p in P])
    assert transport.min(axis=1).mean() < 0.9 * uniform
