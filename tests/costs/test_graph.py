"""Costs on graphs and with few allowed pairs: what `test_costs.py` does not show for all kinds."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph

from gibbsot import GraphCost, GridCost, SparseCost, solve
from gibbsot.core import backend as core_backend
from gibbsot.core.backend import Backend, backend
from gibbsot.costs import BorderedCost, from_arrays, in_units


def random_graph(rng, n, edges, zeros=0.0):
    lengths = rng.random(edges) * (rng.random(edges) >= zeros)
    return sparse.coo_array((lengths, (rng.integers(0, n, edges), rng.integers(0, n, edges))), (n, n)).tocsr()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_distances_are_those_of_scipy(directed, zeros):
    rng = np.random.default_rng(3)
    graph = random_graph(rng, 40, 110, zeros)
    expected = csgraph.shortest_path(graph, directed=directed, method="BF")
    cost = GraphCost(graph, directed)
    np.testing.assert_allclose(cost.matrix(), expected, rtol=1e-14)
    i, j = rng.integers(0, 40, (2, 300))
    np.testing.assert_allclose(cost.at(i, j), expected[i, j], rtol=1e-14)
    assert cost.finite == np.isfinite(expected).all()
    finite = expected[np.isfinite(expected)]
    assert finite.max() <= cost.spread() * (1 + 1e-12)


@pytest.mark.parametrize("directed", [False, True])
def test_transforms_and_searches_are_those_of_the_matrix(directed):
    rng = np.random.default_rng(5)
    cost = GraphCost(random_graph(rng, 30, 70), directed)
    M, x = cost.matrix(), rng.normal(size=30)
    x[4] = np.inf
    np.testing.assert_allclose(cost.row_min(x), (M + x).min(axis=1), rtol=1e-13)
    np.testing.assert_allclose(cost.col_max(-x), (-x[:, None] - M).max(axis=0), rtol=1e-13)
    for by_rows, sums in ((True, M + x), (False, (M + x[:, None]).T)):
        found, least = cost.nearest(x, 4, by_rows)
        np.testing.assert_allclose(least, np.sort(sums, axis=1)[:, :4], rtol=1e-13)
        own = np.arange(30)[:, None]
        kept = found >= 0
        np.testing.assert_allclose(np.where(kept, sums[own, found], np.inf), least, rtol=1e-13)
        bounded = cost.nearest(x, 4, by_rows, below=np.full(30, 0.2))[0]
        assert (np.where(bounded >= 0, least, -np.inf) < 0.2).all()
        assert ((least < 0.2) == (bounded >= 0)).all()


def test_the_way_from_a_node_to_itself_needs_no_search(monkeypatch):
    """As `distances` asks for all of them, and a search for each of many nodes would take longer than the problems."""
    rng = np.random.default_rng(4)
    cost = GraphCost(random_graph(rng, 30, 90))
    M, own, searched = cost.matrix(), np.arange(30), []
    search = backend().graph_distances
    monkeypatch.setattr(backend(), "graph_distances", lambda *a: searched.append(a[1].tolist()) or search(*a))
    assert not cost.at(own, own).any()
    assert searched == [[]]
    i, j = np.concatenate([own, [3, 8]]), np.concatenate([own, [5, 8]])
    np.testing.assert_allclose(cost.at(i, j), M[i, j], rtol=1e-14)
    assert searched == [[], [3]]


@pytest.mark.parametrize("one", [Backend(), backend()], ids=["numpy", "in use"])
def test_distances_of_pairs_near_and_far(one, monkeypatch):
    """Searches that end early: sources with many targets and few, repeated ones, and in parts of a few pairs."""
    monkeypatch.setattr(core_backend, "_PAIRS", 7)
    monkeypatch.setattr(core_backend, "_DISTANCES", 200)
    rng = np.random.default_rng(6)
    graph = random_graph(rng, 60, 150)
    graph = sparse.csr_array((graph.data, graph.indices, graph.indptr), graph.shape)
    expected = csgraph.dijkstra(graph)
    assert np.isinf(expected).any()
    source = np.sort(np.concatenate([rng.integers(60, size=80), np.full(40, 17)]))
    target = rng.integers(60, size=120)
    np.testing.assert_allclose(one.graph_distances(graph, source, target), expected[source, target], rtol=1e-14)
    assert len(one.graph_distances(graph, source[:0], target[:0])) == 0


def test_graphs_of_networkx_are_named_with_their_converter():
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_weighted_edges_from([("a", "b", 0.0), ("b", "c", 2.0)])
    for make in (lambda: GraphCost(graph), lambda: solve([1, 0, 0], [0, 0, 1], graph)):
        with pytest.raises(TypeError, match=r"got (a )?Graph.*networkx\.to_scipy_sparse_array\("):
            make()
    cost = GraphCost(networkx.to_scipy_sparse_array(graph))
    assert cost.matrix().tolist() == [[0, 0, 2], [0, 0, 2], [2, 2, 0]]
    assert solve([1, 0, 0], [0, 0, 1], cost).value == 2


def test_stored_zeros_are_edges_and_the_lesser_of_two_lengths_counts():
    graph = sparse.coo_array(([0.0, 5.0, 2.0], ([0, 1, 2], [1, 2, 1])), (3, 3))
    undirected = GraphCost(graph, directed=False)
    assert undirected.matrix().tolist() == [[0, 0, 2], [0, 0, 2], [2, 2, 0]]
    assert GraphCost(graph).matrix().tolist() == [[0, 0, 5], [np.inf, 0, 5], [np.inf, 2, 0]]
    assert undirected.graph.nnz == 4


def test_loops_and_infinite_lengths_are_no_edges():
    graph = sparse.coo_array(([7.0, np.inf, 1.0], ([0, 0, 1], [0, 1, 0])), (2, 2))
    cost = GraphCost(graph)
    assert cost.graph.nnz == 1
    assert cost.matrix().tolist() == [[0, np.inf], [1, 0]]
    assert not cost.finite


def test_depth_counts_the_edges_of_a_path():
    path = sparse.diags_array([np.ones(9)], offsets=[1])
    assert GraphCost(path, directed=False).depth >= 9
    star = sparse.coo_array((np.ones(9), (np.zeros(9, int), np.arange(1, 10))), (10, 10))
    assert GraphCost(star, directed=False).depth == 2


@pytest.mark.parametrize("directed", [False, True])
def test_subsets_files_and_precisions(directed):
    rng = np.random.default_rng(6)
    cost = GraphCost(random_graph(rng, 25, 80), directed)
    rows, columns = rng.integers(0, 25, 7), rng.integers(0, 25, 12)
    part = cost.subset(rows, columns)
    np.testing.assert_array_equal(part.matrix(), cost.matrix()[np.ix_(rows, columns)])
    np.testing.assert_allclose(part.row_min(np.ones(12)), part.matrix().min(axis=1) + 1)
    for one in (cost, part, cost.astype(np.float32)):
        again = from_arrays(one.arrays())
        assert again == one == pickle.loads(pickle.dumps(one))
        np.testing.assert_array_equal(again.matrix(), one.matrix())
    assert cost.astype(np.float32).matrix().dtype == np.float32
    assert cost.astype(np.float32).unrounded() == cost


def test_files_that_name_nodes_which_do_not_exist():
    arrays = GraphCost(sparse.csr_array([[0, 1.0], [1.0, 0]])).arrays()
    with pytest.raises(ValueError, match="rows: expected nodes from 0 to 1"):
        from_arrays({**arrays, "rows": np.array([2])})
    with pytest.raises(ValueError, match="graph: is not a valid sparse matrix"):
        from_arrays({**arrays, "heads": np.array([1, 5])})


def test_units_scale_the_lengths_and_make_no_matrix():
    cost = GraphCost(sparse.csr_array([[0, 12.0, 0], [0, 0, 20.0], [0, 0, 0]]), directed=False)
    units = in_units(cost)
    assert isinstance(units.cost, GraphCost)
    assert units.shift == 0
    np.testing.assert_array_equal(units.cost.matrix() * units.unit, cost.matrix())


def test_the_mean_of_a_small_graph_is_that_of_the_matrix():
    rng = np.random.default_rng(7)
    cost = GraphCost(random_graph(rng, 20, 60), directed=False)
    p, q = rng.random((2, 3, 20))
    expected = np.einsum("bi,bj,ij->b", p, q, cost.matrix()) / (p.sum(axis=1) * q.sum(axis=1))
    np.testing.assert_allclose(cost.mean(p, q), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: GraphCost(np.eye(3)), TypeError, "graph: expected a sparse matrix of lengths, got ndarray"),
        (
            lambda: GraphCost(sparse.csr_array((2, 3))),
            ValueError,
            r"graph: expected a square matrix .* got shape \(2, 3",
        ),
        (lambda: GraphCost(sparse.csr_array((0, 0))), ValueError, "at least one node"),
        (lambda: GraphCost(sparse.csr_array([[0, 1], [-2, 0]])), ValueError, "the edge from 1 to 0 has length -2"),
        (lambda: GraphCost(sparse.csr_array([[0, np.nan], [0, 0]])), ValueError, "from 0 to 1 has length nan"),
        (lambda: GraphCost(sparse.csr_array([[0, 1e308], [0, 0]])), ValueError, "beyond the range of float64"),
        (lambda: GraphCost(sparse.csr_array([[0, 1.0], [0, 0]]), directed=3), (TypeError, ValueError), "directed"),
        (lambda: SparseCost(np.eye(3)), TypeError, "matrix: expected a sparse matrix of costs, got ndarray"),
        (lambda: SparseCost(sparse.csr_array((0, 3))), ValueError, r"expected rows and columns, got shape \(0, 3\)"),
        (lambda: SparseCost(sparse.csr_array([[0, np.nan]])), ValueError, "row 0 and column 1 is nan"),
        (lambda: SparseCost(sparse.csr_array([[1e308]])), ValueError, "beyond the range of float64"),
    ],
)
def test_bad_graphs(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_unreachable_nodes_are_forbidden_pairs():
    graph = sparse.block_diag([sparse.csr_array([[0, 1.0], [0, 0]]), sparse.csr_array((1, 1))], format="csr")
    with pytest.raises(ValueError, match="cost: row 2 has weight in p but only infinite costs"):
        solve([0, 0, 1], [1, 0, 0], GraphCost(graph, directed=False))


def test_a_grid_with_the_l1_distance_is_a_network_of_neighbours():
    cost = GridCost((3, 4, 2), power=1, spacing=(0.1, 0.25, 3.0))
    network = cost.network()
    distances = csgraph.shortest_path(network.graph(), directed=True)
    np.testing.assert_allclose(distances, cost.matrix(), rtol=2 * network.accuracy)
    assert len(network.tail) == 2 * 4 * 2 + 3 * 3 * 2 + 3 * 4 * 1
    for other in (GridCost((3, 4), power=2), GridCost(matrices=cost.axes), cost.astype(np.float32)):
        assert other.network() is None


@pytest.mark.parametrize("corner", [0.0, np.inf])
def test_no_path_passes_through_new_points(corner):
    rng = np.random.default_rng(8)
    cost = BorderedCost(GraphCost(random_graph(rng, 9, 30)), (rng.random(9) * 0.1, rng.random(9) * 0.1), corner, (2, 3))
    network = cost.network()
    distances = csgraph.shortest_path(network.graph(), directed=True)
    np.testing.assert_allclose(distances[np.ix_(network.rows, network.columns)], cost.matrix(), rtol=1e-13)


def test_sparse_costs():
    pairs = sparse.coo_array(([0.0, -2.0, np.inf, 3.0], ([0, 0, 1, 2], [0, 2, 1, 0])), (3, 3))
    cost = SparseCost(pairs)
    M = cost.matrix()
    assert M.tolist() == [[0, np.inf, -2], [np.inf] * 3, [3, np.inf, np.inf]]
    assert cost.pairs.nnz == 3
    assert not cost.finite
    assert (cost.least(), cost.spread()) == (-2, 5)
    assert cost.row_min([1.0, 0, 4]).tolist() == [1, np.inf, 4]
    assert cost.col_max([1.0, 0, 4]).tolist() == [1, -np.inf, 3]
    assert cost.nearest([1.0, 0, 4], 2)[0].tolist() == [[0, 2], [-1, -1], [0, -1]]
    assert cost.at([[0], [2]], [0, 1]).tolist() == [[0, np.inf], [3, np.inf]]
    assert [x.tolist() for x in cost.forbidden()] == [[1, 3, 2], [1, 3, 2]]
    np.testing.assert_array_equal(cost.subset(np.array([2, 0]), np.array([2, 0])).matrix(), M[[2, 0]][:, [2, 0]])
    assert from_arrays(cost.arrays()) == cost
