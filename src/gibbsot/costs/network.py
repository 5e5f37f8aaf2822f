"""Networks: the links along which mass moves where a cost is a shortest path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

Array = NDArray[np.float64]
Nodes = NDArray[np.int32]


class Network(NamedTuple):
    """Nodes and links between them: the cost of a pair is the length of the shortest path from its row to its column.

    Attributes
    ----------
    nodes : int
        The number of nodes.
    tail, head : arrays of int32, shape (n,)
        The ends of the links, each pair once.
    forward, backward : arrays of float64, shape (n,)
        The lengths from tail to head and back; ``inf`` where a link does not lead that way.
    rows, columns : arrays of int32, shape (m1,) and (m2,)
        The node of each row and of each column.
    accuracy : float
        How far the costs may be from the shortest paths, relatively.
    closed_form : bool
        Whether the cost of a pair is known without a search, so that a matrix is cheap.

    Examples
    --------
    >>> graph = sparse.csr_array([[0, 1.0, 0], [3.0, 0, 2.0], [0, 0, 0]])
    >>> network = Network.of(graph, np.arange(3), np.arange(3))
    >>> network.tail, network.head, network.forward, network.backward
    (array([0, 1], dtype=int32), array([1, 2], dtype=int32), array([1., 2.]), array([ 3., inf]))
    """

    nodes: int
    tail: Nodes
    head: Nodes
    forward: Array
    backward: Array
    rows: Nodes
    columns: Nodes
    accuracy: float = 0.0
    closed_form: bool = False

    @classmethod
    def of(cls, graph: sparse.csr_array, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Network:
        """Return the network of a graph: a matrix of lengths without loops, whose stored entries are its arcs.

        Parameters
        ----------
        graph : scipy.sparse.csr_array of shape (n, n)
            The lengths.
        rows, columns : arrays of int
            The node of each row and of each column.

        Returns
        -------
        Network
        """
        arcs, n = graph.tocoo(), graph.shape[0]
        low, high = np.minimum(arcs.row, arcs.col).astype(np.int64), np.maximum(arcs.row, arcs.col)
        keys, number = np.unique(low * n + high, return_inverse=True)
        lengths = np.full((2, len(keys)), np.inf)
        lengths[(arcs.row > arcs.col).astype(np.intp), number] = arcs.data
        tail, head = np.divmod(keys, n)
        ends = tail.astype(np.int32), head.astype(np.int32)
        return cls(n, *ends, lengths[0], lengths[1], rows.astype(np.int32), columns.astype(np.int32))

    def flow(self, tail: NDArray[np.integer], head: NDArray[np.integer], mass: Array) -> sparse.csr_array:
        """Return a flow as a matrix whose stored entries are all arcs of the network, those without flow included.

        Parameters
        ----------
        tail, head : arrays of int
            Arcs of the network that carry mass, each once.
        mass : array of float64
            Their masses.

        Returns
        -------
        scipy.sparse.csr_array of shape (nodes, nodes)
        """
        ends = np.concatenate([self.tail, self.head]), np.concatenate([self.head, self.tail])
        stored = np.isfinite(np.concatenate([self.forward, self.backward]))
        keys = np.sort(ends[0][stored].astype(np.int64) * self.nodes + ends[1][stored])
        data = np.zeros(len(keys))
        data[np.searchsorted(keys, tail.astype(np.int64) * self.nodes + head)] = mass
        i, j = np.divmod(keys, self.nodes)
        return sparse.csr_array((data, j, np.searchsorted(i, np.arange(self.nodes + 1))), (self.nodes, self.nodes))

    def routed(self, plan: sparse.csr_array) -> sparse.csr_array:
        """Return the flow of a plan along shortest paths, as `flow` does.

        Parameters
        ----------
        plan : scipy.sparse.csr_array of shape (m1, m2)
            Masses between rows and columns.

        Returns
        -------
        scipy.sparse.csr_array of shape (nodes, nodes)
        """
        graph, pairs, n = self.graph(), plan.tocoo(), self.nodes
        search = csgraph.bellman_ford if (graph.data < 0).any() else csgraph.dijkstra
        from_node, to_node = self.rows[pairs.row], self.columns[pairs.col]
        sources, number = np.unique(from_node, return_inverse=True)
        keys: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        parts: list[Array] = [np.empty(0)]
        for k, source in enumerate(sources):
            own = number == k
            before = search(graph, indices=source, return_predecessors=True)[1]
            reached = np.flatnonzero(before >= 0)
            tree = sparse.csr_array((np.ones(len(reached)), (before[reached], reached)), (n, n))
            load = np.bincount(to_node[own], pairs.data[own], n).astype(np.float64)
            for v in csgraph.breadth_first_order(tree, source, return_predecessors=False)[:0:-1]:  # leaves first
                load[before[v]] += load[v]
            used = reached[load[reached] > 0]
            keys.append(before[used].astype(np.int64) * n + used)
            parts.append(load[used])
        every, number = np.unique(np.concatenate(keys), return_inverse=True)
        total = np.bincount(number, np.concatenate(parts), len(every)).astype(np.float64)
        tail, head = np.divmod(every, n)
        return self.flow(tail, head, total)

    def graph(self) -> sparse.csr_array:
        """Return the lengths of the arcs as a matrix.

        Returns
        -------
        scipy.sparse.csr_array of shape (nodes, nodes)
        """
        tail, head = np.concatenate([self.tail, self.head]), np.concatenate([self.head, self.tail])
        lengths = np.concatenate([self.forward, self.backward])
        kept = np.isfinite(lengths)
        return sparse.csr_array(sparse.coo_array((lengths[kept], (tail[kept], head[kept])), (self.nodes, self.nodes)))
