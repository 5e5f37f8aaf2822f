"""Transport along the links of networks, against independent references."""

from __future__ import annotations

import re
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from scipy.spatial import Delaunay

from gibbsot import GraphCost, GridCost, SparseCost, solve, solve_batch
from gibbsot.core.backend import backend
from gibbsot.costs.problems import Problem
from gibbsot.exact import graph as module
from gibbsot.exact import simplex
from gibbsot.exact.annealed import Crossover
from gibbsot.exact.graph import GridEdges
from gibbsot.exact.methods import choose
from gibbsot.io import progress
from gibbsot.io.budget import Budget
from rational import Exact, integers, optimum

needs_simplex = pytest.mark.skipif(not backend().has_simplex, reason="without kernels other methods solve it")
FAMILIES = ("planar", "small world", "tree", "directed", "disconnected")


def example(family, seed):
    """Return a graph of a family, whether it is directed, and two measures between which there is a plan."""
    rng = np.random.default_rng([FAMILIES.index(family), seed])
    n = int(rng.integers(5, 40))
    directed, label = family == "directed", np.zeros(n, int)
    if family == "planar":
        X = rng.random((n, 2))
        triangles = Delaunay(X).simplices
        ends = np.concatenate([triangles[:, pair] for pair in ([0, 1], [1, 2], [2, 0])])
        lengths = np.linalg.norm(X[ends[:, 0]] - X[ends[:, 1]], axis=1)
    elif family == "small world":
        ring = np.arange(n)
        ends = np.concatenate([np.column_stack([ring, (ring + k) % n]) for k in (1, 2)])
        moved = rng.random(len(ends)) < 0.2
        moved[:n] = False
        ends[moved, 1] = rng.integers(0, n, moved.sum())
        lengths = rng.integers(0, 5, len(ends)).astype(float)
    elif family == "tree":
        ends = np.column_stack([np.arange(1, n), [rng.integers(0, k) for k in range(1, n)]])
        lengths = rng.exponential(size=n - 1)
    elif family == "directed":
        ring = np.arange(n)
        ends = np.concatenate([np.column_stack([ring, np.roll(ring, 1)]), rng.integers(0, n, (2 * n, 2))])
        lengths = rng.random(len(ends))
    else:
        label = rng.integers(0, 3, n)
        ends = rng.integers(0, n, (6 * n, 2))
        ends = ends[label[ends[:, 0]] == label[ends[:, 1]]]
        for part in range(3):
            own = np.flatnonzero(label == part)
            ends = np.concatenate([ends, np.column_stack([own[:-1], own[1:]])])
        lengths = rng.random(len(ends))
    _, first = np.unique(ends[:, 0] * n + ends[:, 1], return_index=True)
    graph = sparse.coo_array((lengths[first], (ends[first, 0], ends[first, 1])), (n, n))
    # integers, with the same sum in every part
    p, q = rng.integers(0, 9, (2, n)).astype(float)
    p[0] += 1
    for part in range(3):
        own = np.flatnonzero(label == part)
        if len(own):
            less = p[own].sum() - q[own].sum()
            (q if less > 0 else p)[own[0]] += abs(less)
    return graph, directed, p, q


def reference(p, q, M):
    """Return the optimum of a linear programme on the finite costs."""
    i, j = np.nonzero(np.isfinite(M))
    ones, arcs = np.ones(len(i)), np.arange(len(i))
    A = sparse.vstack([sparse.csr_array((ones, (x, arcs)), (m, len(i))) for x, m in zip((i, j), M.shape, strict=True)])
    found = linprog(M[i, j], A_eq=A[:-1], b_eq=np.concatenate([p, q])[:-1], method="highs")
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(40))
def test_values_plans_flows_and_potentials(family, seed):
    graph, directed, p, q = example(family, seed)
    cost = GraphCost(graph, directed)
    result, M = solve(p, q, cost), cost.matrix()
    assert result.status == "optimal"
    assert result.lower_bound * (1 - 1e-15) <= result.value <= result.upper_bound
    np.testing.assert_allclose(result.value, reference(p, q, M), rtol=1e-9, atol=1e-12)
    plan, flow, (f, g) = result.plan, result.flow, result.potentials
    np.testing.assert_allclose(plan.sum(axis=1), p, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(plan.sum(axis=0), q, rtol=1e-14, atol=1e-14)
    i, j = plan.nonzero()
    np.testing.assert_allclose((plan.tocsr()[i, j] * M[i, j]).sum(), result.value, rtol=1e-13, atol=1e-14)
    assert (f[:, None] + g <= M + 1e-14 * (1 + np.abs(f[:, None]))).all()
    # the flow leaves and enters every node as the measures say, along the edges alone
    np.testing.assert_array_equal(flow.indices, cost.graph.indices)
    np.testing.assert_array_equal(flow.indptr, cost.graph.indptr)
    np.testing.assert_allclose(flow.sum(axis=1) - flow.sum(axis=0), p - q, atol=1e-12)
    np.testing.assert_allclose(flow.data @ cost.graph.data, result.value, rtol=1e-13, atol=1e-14)
    assert (flow.data >= 0).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_all_pairs_and_pot_on_two_hundred_graphs(family):
    ot = pytest.importorskip("ot")
    for seed in range(40):
        graph, directed, p, q = example(family, seed)
        cost = GraphCost(graph, directed)
        M = cost.matrix()
        far = 2 * M[np.isfinite(M)].sum() + 1  # POT knows no forbidden pairs
        expected = ot.emd2(p / p.sum(), q / q.sum(), np.where(np.isfinite(M), M, far)) * p.sum()
        np.testing.assert_allclose(solve(p, q, cost).value, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_integers_against_networkx(seed):
    networkx = pytest.importorskip("networkx")
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 25))
    graph = networkx.gnm_random_graph(n, 4 * n, seed=seed, directed=True)
    for k in range(n):
        graph.add_edge(k, (k + 1) % n)
    for _, _, edge in graph.edges(data=True):
        edge["weight"] = int(rng.integers(1, 20))
    p, q = rng.multinomial(50, np.full(n, 1 / n)), rng.multinomial(50, np.full(n, 1 / n))
    networkx.set_node_attributes(graph, {v: int(q[v] - p[v]) for v in range(n)}, "demand")
    expected, _ = networkx.network_simplex(graph)
    cost = GraphCost(networkx.to_scipy_sparse_array(graph, nodelist=range(n)))
    result = solve(p, q, cost)
    assert result.lower_bound <= expected <= result.upper_bound
    np.testing.assert_allclose(result.value, expected, rtol=1e-15)
    np.testing.assert_allclose(result.flow.data, np.round(result.flow.data), atol=1e-13)


def exact_distances(graph, directed):
    """Return all distances as integers over a power of two, by Floyd and Warshall."""
    arcs, n = graph.tocoo(), graph.shape[0]
    lengths, bits = integers(arcs.data.tolist())
    d = [[0 if i == j else None for j in range(n)] for i in range(n)]
    for i, j, length in zip(arcs.row.tolist(), arcs.col.tolist(), lengths, strict=True):
        for a, b in ((i, j),) if directed else ((i, j), (j, i)):
            if d[a][b] is None or length < d[a][b]:
                d[a][b] = length
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i][k] is not None and d[k][j] is not None:
                    way = d[i][k] + d[k][j]
                    d[i][j] = way if d[i][j] is None or way < d[i][j] else d[i][j]
    return Exact(d, bits)


@pytest.mark.parametrize("seed", range(60))
def test_bounds_hold_in_rational_arithmetic_at_all_scales(seed):
    rng = np.random.default_rng([7, seed])
    graph, directed, p, q = example(FAMILIES[seed % 4], seed)
    n = min(graph.shape[0], 12)
    graph = sparse.coo_array(graph.tocsr()[:n, :n])
    spans = [0, 3, 8, 15][seed // 4 % 4], [0, 0, 6, 12][seed // 16 % 4]
    graph.data = graph.data * 10.0 ** rng.uniform(-spans[0], spans[0], len(graph.data))
    p, q = (rng.random(n) * 10.0 ** rng.uniform(-spans[1], 0, n) for _ in range(2))
    if directed:  # back from every node
        graph = graph.tolil()
        graph[np.arange(n), np.arange(-1, n - 1)] = rng.random(n)
    graph = sparse.coo_array(graph)
    W = optimum(p, q, exact_distances(graph, directed))
    if W is None:
        with pytest.raises(ValueError, match="infinite costs"):
            solve(p, q, GraphCost(graph, directed), normalize=True)
        return
    result = solve(p, q, GraphCost(graph, directed), normalize=True)
    assert result.status == "optimal"
    assert Fraction(result.lower_bound) <= W.low <= W.high <= Fraction(result.upper_bound)


@needs_simplex
def test_without_rounds_of_refinement_a_gap_stays_open():
    # clusters that are very far apart, each with its own balance: the digits of potentials are lost on the way
    rng = np.random.default_rng(1)
    X = rng.random((60, 2)) + np.repeat([[0.0, 0.0], [1e14, 0.0], [0.0, 1e14]], 20, axis=0)
    triangles = Delaunay(X).simplices
    ends = np.concatenate([triangles[:, pair] for pair in ([0, 1], [1, 2], [2, 0])])
    ends = np.unique(np.sort(ends, axis=1), axis=0)
    length = np.linalg.norm(X[ends[:, 0]] - X[ends[:, 1]], axis=1)
    ring = np.concatenate([np.arange(20 * k, 20 * k + 19) for k in range(3)])
    tail, head = np.concatenate([ends[:, 0], ring]), np.concatenate([ends[:, 1], ring + 1])
    lengths = np.concatenate([length, rng.random(len(ring))])
    _, first = np.unique(tail * 60 + head, return_index=True)
    graph = sparse.coo_array((lengths[first], (tail[first], head[first])), (60, 60))
    p = np.ones(60)
    q = np.concatenate([rng.permutation(np.r_[np.zeros(10), np.full(10, 2.0)]) for _ in range(3)])
    result = solve(p, q, GraphCost(graph, directed=False))
    assert result.status == "optimal"
    assert result.value < 1e3


@needs_simplex
def test_trees_need_no_pivots():
    graph, _, p, q = example("tree", 3)
    result = solve(p, q, GraphCost(graph, directed=False))
    assert result.solutions[0]._problem.pivots == 0
    # the closed form: every edge carries what its two sides lack
    balance, total = np.cumsum((p - q)[::-1])[::-1], 0.0
    path = sparse.diags_array([np.arange(1.0, len(p))], offsets=[1])
    for k in range(1, len(p)):
        total += k * abs(balance[k])
    np.testing.assert_allclose(solve(p, q, GraphCost(path, directed=False)).value, total, rtol=1e-14)


@pytest.mark.parametrize("shape", [(12, 13), (5, 6, 7), (40,)])
@pytest.mark.parametrize("least", [-1, GridEdges.least])
def test_l1_on_grids_is_that_of_other_methods(shape, least, monkeypatch):
    monkeypatch.setattr(GridEdges, "least", least)
    rng = np.random.default_rng(2)
    cost = GridCost(shape, power=1, spacing=[0.3, 1.0, 0.7][: len(shape)])
    P, Q = rng.random((2, 3, cost.shape[0]))
    P, Q = P / P.sum(axis=1, keepdims=True), Q / Q.sum(axis=1, keepdims=True)
    found = solve_batch(P, Q, cost)
    expected = solve_batch(P, Q, cost.matrix())
    assert set(found.status) == {"optimal"}
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-13)
    flow = found[1].flow
    np.testing.assert_allclose(flow.sum(axis=1) - flow.sum(axis=0), P[1] - Q[1], atol=1e-15)


@needs_simplex
def test_the_method_is_chosen_by_itself():
    ones = np.ones((1, 1024))
    graph = GraphCost(sparse.diags_array([np.ones(1023)], offsets=[1]), directed=False)
    costs = {"graph": [graph], "grid edges": [GridCost((32, 32), power=1), GridCost((8, 16, 8), power=1)]}
    costs["coarse grids"] = [GridCost((32, 32), power=1.5)]
    for name, some in costs.items():
        assert {choose(Problem(ones, ones, cost))[0].name for cost in some} == {name}


@pytest.mark.parametrize("seed", range(6))
def test_penalties_and_given_masses(seed):
    rng = np.random.default_rng(seed)
    graph, directed, p, q = example(FAMILIES[seed % 4], seed)
    cost = GraphCost(graph, directed)
    n = cost.shape[0]
    penalties = [0.3, (rng.random(n), rng.random(n))]
    for penalty in penalties:
        found, expected = solve(p, q, cost, penalty=penalty), solve(p, q, cost.matrix(), penalty=penalty)
        np.testing.assert_allclose(found.value, expected.value, rtol=1e-10, atol=1e-12)
        assert found.status == "optimal"
        if not backend().has_simplex:  # the matrix with the new points has no edges
            continue
        flow, moved = found.flow, found.plan
        np.testing.assert_allclose(
            flow.sum(axis=1) - flow.sum(axis=0), moved.sum(axis=1) - moved.sum(axis=0), atol=1e-12
        )
    mass = 0.6 * p.sum()
    found, expected = solve(p, q, cost, mass=mass), solve(p, q, cost.matrix(), mass=mass)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.transported, mass)


@pytest.mark.parametrize("seed", range(25))
def test_sparse_pairs_against_a_linear_programme(seed):
    rng = np.random.default_rng(seed)
    m1, m2 = rng.integers(3, 25, 2)
    M = rng.normal(size=(m1, m2))
    allowed = rng.random(M.shape) < 0.4
    flow = rng.integers(1, 9, M.shape) * allowed
    flow[0, 0] = 1
    allowed[0, 0] = True
    p, q = flow.sum(axis=1).astype(float), flow.sum(axis=0).astype(float)
    i, j = np.nonzero(allowed)
    result = solve(p, q, SparseCost(sparse.coo_array((M[i, j], (i, j)), M.shape)))
    assert result.status == "optimal"
    np.testing.assert_allclose(result.value, reference(p, q, np.where(allowed, M, np.inf)), rtol=1e-9)
    assert allowed[result.plan.nonzero()].all()
    np.testing.assert_allclose(result.plan.sum(axis=1), p, rtol=1e-14)
    np.testing.assert_array_equal(result.flow[:m1, m1:].toarray(), result.plan.toarray())
    with pytest.raises(AttributeError, match="flow"):
        _ = solve(p, q, np.where(allowed, M, 9.0)).flow


@needs_simplex
def test_a_warm_start_continues_from_the_tree():
    """With few pivots where weights or lengths change little; other graphs of the same size start from nothing."""
    rng = np.random.default_rng(4)
    X = rng.random((1500, 2))
    triangles = Delaunay(X).simplices
    ends = np.unique(np.sort(np.concatenate([triangles[:, k] for k in ([0, 1], [1, 2], [2, 0])]), axis=1), axis=0)
    lengths = np.linalg.norm(X[ends[:, 0]] - X[ends[:, 1]], axis=1)
    cost, more = (
        GraphCost(sparse.coo_array((scale * lengths, ends.T), (1500, 1500)), directed=False)
        for scale in (1.0, 1 + 0.01 * rng.random(len(lengths)))
    )
    p, q = rng.random((2, 1500))
    before = solve(p, q, cost, normalize=True)
    near = p * (1 + 0.01 * rng.random(1500))
    for weights, given in ((near, cost), (p, more), (p, cost)):
        cold = solve(weights, q, given, normalize=True)
        warm = solve(weights, q, given, normalize=True, warm_start=before)
        assert warm.status == "optimal"
        assert warm.value == pytest.approx(cold.value, rel=1e-14)
    network, (solution,) = cost.network(), before.parts[0].solved
    again = module.NetworkProblem(network, p, q)
    again.begin(solution.links(network))
    assert again.carry()
    assert again.pivots == 0
    turned = GraphCost(sparse.coo_array((lengths, 1499 - ends.T), (1500, 1500)), directed=False)
    assert solution.links(turned.network()) is None
    warm = solve(p, q, turned, normalize=True, warm_start=before)
    assert warm.value == pytest.approx(solve(p, q, turned, normalize=True).value, rel=1e-14)
    left = solve(p, 0.5 * q, cost, penalty=0.1)
    for share in (0.5, 0.6, 2.0):
        relaxed = solve(p, share * q, cost, penalty=0.1, warm_start=left)
        assert relaxed.value == pytest.approx(solve(p, share * q, cost, penalty=0.1).value, rel=1e-13)


@needs_simplex
def test_progress_of_a_graph_is_shown(capfd, monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    graph, directed, p, q = example("planar", 3)
    cost = GraphCost(graph, directed)
    quiet = solve(p, q, cost)
    assert capfd.readouterr().err == ""
    loud = solve(p, q, cost, verbose=True)
    shown = capfd.readouterr().err
    assert f"{len(p)} nodes, {len(cost.network().tail)} links: a first tree of cost" in shown
    assert "pivots: cost" in shown
    assert loud.value == quiet.value


@needs_simplex
def test_long_pivoting_reports_on_the_way(capfd, monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    monkeypatch.setattr(simplex, "_PIVOTS", 5)
    graph, directed, p, q = example("planar", 2)
    cost = GraphCost(graph, directed)
    loud = solve(p, q, cost, verbose=True)
    counts = [int(n) for n in re.findall(r"(\d+) pivots: cost", capfd.readouterr().err)]
    assert len(counts) > 2
    assert counts == sorted(counts)
    assert counts[-1] == loud.solutions[0]._problem.pivots
    assert loud.value == solve(p, q, cost).value


def test_an_error_names_the_points_that_cannot_be_served():
    pairs = sparse.coo_array(([1.0, 1, 1, 1], ([0, 1, 2, 2], [0, 0, 0, 1])), (3, 2))
    with pytest.raises(ValueError, match=r"0\.75 of .* in rows 0, 1 only has ways .* 0\.5 .* in column 0"):
        solve([2, 1, 1], [2, 2], SparseCost(pairs))
    graph = sparse.csr_array([[0, 1.0, 0], [0, 0, 0], [0, 1.0, 0]])
    with pytest.raises(ValueError, match=r"infinite costs forbid every plan.* in row 1 .* in column 1"):
        solve([1, 2, 1], [2, 1, 1], GraphCost(graph))


def test_parts_that_rounding_takes_apart():
    graph = sparse.block_diag([sparse.csr_array([[0, 1.0], [0, 0]])] * 2, format="csr")
    with pytest.raises(ValueError, match="cost"):
        solve([0.1, 0.2, 0.3, 0.4], [0.3, 0.0, 0.7, 0.0], GraphCost(graph, directed=False))


def test_a_time_limit_leaves_valid_bounds():
    rng = np.random.default_rng(3)
    X = rng.random((3000, 2))
    triangles = Delaunay(X).simplices
    ends = np.concatenate([triangles[:, pair] for pair in ([0, 1], [1, 2], [2, 0])])
    ends = np.unique(np.sort(ends, axis=1), axis=0)
    lengths = np.linalg.norm(X[ends[:, 0]] - X[ends[:, 1]], axis=1)
    cost = GraphCost(sparse.coo_array((lengths, ends.T), (3000, 3000)), directed=False)
    p, q = rng.random((2, 3000))
    network = cost.network()
    budget = Budget()
    budget.stop()
    if not backend().has_simplex:
        pytest.skip("without kernels other methods solve it")
    best = module.solve_network(network, p, q)
    stopped = module.solve_network(network, p, q, budget=budget)
    assert stopped.status == "budget spent"
    assert stopped.lower <= best.value <= stopped.upper < np.inf
    assert best.optimal
    assert stopped.value > 1.01 * best.value
    np.testing.assert_allclose(stopped.plan.sum(axis=1), p / p.sum(), atol=1e-15)
    with pytest.warns(UserWarning, match="the time or memory allowed was used up"):
        result = solve(p, q, cost, normalize=True, max_seconds=1e-9)
    assert result.status == "budget spent"
    assert result.lower_bound <= best.value <= result.upper_bound
    with pytest.raises(ValueError, match="max_memory: this takes about"):
        solve(p, q, cost, normalize=True, max_memory=1000)


@needs_simplex
def test_the_proof_does_not_trust_the_simplex():
    graph, directed, p, q = example("planar", 4)
    cost = GraphCost(graph, directed)
    best = solve(p, q, cost)
    with (
        mock.patch.object(module.NetworkProblem, "optimise", lambda self: self.carried),
        mock.patch.object(module, "_REPEATS", 0),
        pytest.warns(UserWarning, match="open gap"),
    ):
        worse = solve(p, q, cost)
    assert worse.status == "gap open"
    assert worse.lower_bound <= best.value < worse.value <= worse.upper_bound


def test_estimates_have_a_flow_too():
    graph, directed, p, q = example("planar", 5)
    cost = GraphCost(graph, directed)
    result = solve(p, q, cost, method="gibbs")
    flow = result.flow
    np.testing.assert_allclose(flow.sum(axis=1) - flow.sum(axis=0), p - q, atol=1e-10)
    np.testing.assert_allclose(flow.multiply(cost.graph).sum(), result.upper_bound, rtol=1e-6)


def test_crossing_over_needs_no_network():
    graph, directed, p, q = example("planar", 6)
    cost = GraphCost(graph, directed)
    with mock.patch("gibbsot.exact.methods.METHODS", (Crossover(),)):
        found = solve(p, q, cost)
    assert found.status == "optimal"
    np.testing.assert_allclose(found.value, solve(p, q, cost).value, rtol=1e-12)
