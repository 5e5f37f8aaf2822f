"""Transport on graphs, on grids with the L1 distance, and between persistence diagrams, beside other libraries.

    python benchmarks/graphs.py [graphs] [grids] [diagrams]   # CPU times in seconds, in one run; by default all three
    python benchmarks/graphs.py large                         # 1,000,000 nodes
    python benchmarks/graphs.py stops                         # how soon such a problem ends when it is told to

networkx, OR-tools and GUDHI are taken if they are installed: pip install networkx ortools gudhi.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import sparse
from scipy.ndimage import gaussian_filter
from scipy.sparse import csgraph
from scipy.spatial import Delaunay

from gibbsot import GraphCost, GridCost, solve
from gibbsot.diagrams import wasserstein_distance
from timing import seconds

Array = NDArray[np.float64]
console = Console(width=150)


def planar(n: int) -> tuple[sparse.coo_array, Array, Array]:
    """Return the edges of a triangulation of random points, and two random measures on them."""
    rng = np.random.default_rng(0)
    X = rng.random((n, 2))
    triangles = Delaunay(X).simplices
    ends = np.concatenate([triangles[:, pair] for pair in ([0, 1], [1, 2], [2, 0])])
    ends = np.unique(np.sort(ends, axis=1), axis=0)
    lengths = np.linalg.norm(X[ends[:, 0]] - X[ends[:, 1]], axis=1)
    p, q = rng.random((2, n))
    return sparse.coo_array((lengths, ends.T), (n, n)), p / p.sum(), q / q.sum()


def picture(rng: np.random.Generator, n: int) -> Array:
    """Return an image with structure at all scales, of 256 levels."""
    image = sum(scale * gaussian_filter(rng.random((n, n)), scale, mode="wrap") for scale in (0.5, 2, 8, n / 8))
    image = np.asarray(image) - np.min(image)
    return np.round(255 * image / image.max()) + 1


def streets(graph: sparse.coo_array) -> GraphCost:
    """Return the cost of ways along the edges."""
    return GraphCost(graph, directed=False)


def measured(n: int) -> tuple[float, float, float, float, str, float]:
    """Return the times of making the cost, solving and making the plan; value, status, and the peak in MB.

    Short times are the least of three.
    """
    graph, p, q = planar(n)
    repeats = range(3 if n <= 20_000 else 1)
    making, cost = min((seconds(partial(streets, graph)) for _ in repeats), key=itemgetter(0))
    solving, result = min((seconds(partial(solve, p, q, cost)) for _ in repeats), key=itemgetter(0))
    own = Path("/proc/self/status").read_text()  # unlike `resource`, without the peak of the parent
    peak = int(own.partition("VmHWM:")[2].split()[0]) / 1024  # with the interpreter and the graph
    plan, _ = seconds(partial(getattr, result, "plan"))
    return making, solving, plan, result.value, result.status, peak


def graphs(sizes: tuple[int, ...] = (2_000, 20_000, 100_000)) -> None:
    """Time W1 on planar graphs, each in a process of its own, so that its memory is its own."""
    table = Table("nodes", "edges", "cost", "solve", "plan", "status", "peak", "others", title="planar graphs, W1")
    for n in sizes:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            making, solving, plan, value, status, peak = pool.submit(measured, n).result()
        graph, p, q = planar(n)
        others = "" if n > 20_000 else peers(graph, p, q, value)
        times = f"{making:.3f}", f"{solving:.3f}", f"{plan:.2f}"
        table.add_row(f"{n:,}", f"{graph.nnz:,}", *times, status, f"{peak:.0f} MB", others)
    console.print(table)


def peers(graph: sparse.coo_array, p: Array, q: Array, value: float) -> str:
    """Return the times of other libraries on the same graph."""
    found = []
    if len(p) <= 2_000 and find_spec("ot"):
        import ot

        matrix, M = seconds(lambda: csgraph.shortest_path(graph, directed=False))
        emd, other = seconds(lambda: ot.emd2(p, q, M, numItermax=10**7))
        found.append(f"SciPy {matrix:.2f} + POT {emd:.2f} (differs by {abs(other / value - 1):.0e})")
    # integers, which the others need
    lengths = np.round(1e6 * graph.data).astype(int)
    supply = np.round(1e6 * (p - q)).astype(int)
    supply[0] -= supply.sum()
    both = (np.concatenate([graph.row, graph.col]), np.concatenate([graph.col, graph.row]), np.tile(lengths, 2))
    if len(p) <= 2_000 and find_spec("networkx"):
        nx = import_module("networkx")

        network = nx.DiGraph()
        network.add_nodes_from((v, {"demand": -int(s)}) for v, s in enumerate(supply))
        network.add_edges_from((int(i), int(j), {"weight": int(w)}) for i, j, w in zip(*both, strict=True))
        found.append(f"networkx {seconds(lambda: nx.network_simplex(network))[0]:.2f}")
    if find_spec("ortools"):
        min_cost_flow = import_module("ortools.graph.python.min_cost_flow")

        def flow() -> Any:
            solver = min_cost_flow.SimpleMinCostFlow()
            most = np.full(len(both[0]), int(np.abs(supply).sum()))
            solver.add_arcs_with_capacity_and_unit_cost(both[0], both[1], most, both[2])
            solver.set_nodes_supplies(np.arange(len(supply)), supply)
            return solver.solve()

        found.append(f"OR-tools {seconds(flow)[0]:.2f}")
    return ", ".join(found)


def grids() -> None:
    """Time L1 distances of pictures."""
    table = Table("pixels", "gibbsot", "POT", title="L1 distance of pictures")
    for n in (64, 128, 256):
        rng = np.random.default_rng(1)
        p, q = (picture(rng, n).ravel() for _ in range(2))
        time_of, result = seconds(partial(solve, p, q, GridCost((n, n), power=1), normalize=True))
        pot = "-"
        if n == 64 and find_spec("ot"):
            import ot

            M = GridCost((n, n), power=1).matrix()
            pot = f"{seconds(partial(ot.emd2, p / p.sum(), q / q.sum(), M, numItermax=10**7))[0]:.1f}"
        table.add_row(f"{n} x {n}", f"{time_of:.3f} ({result.status})", pot)
    console.print(table)


def diagrams() -> None:
    """Time distances of persistence diagrams of several kinds."""
    names = "points", "lives", "gibbsot", "GUDHI with POT", "hera at 1 %", "difference to POT"
    table = Table(*names, title="persistence diagrams")
    for n in (1000, 2000):
        for kind in ("noise", "heavy tails", "long lives"):
            rng = np.random.default_rng(n)
            pair = []
            for _ in range(2):
                birth = rng.random(n)
                lives = {"noise": rng.exponential(0.02, n), "heavy tails": 0.01 * rng.pareto(1.2, n)}
                pair.append(np.column_stack([birth, birth + lives.get(kind, rng.random(n))]))
            own, value = min(seconds(partial(wasserstein_distance, pair[0], pair[1])) for _ in range(3))
            others = ["-"] * 3
            if find_spec("gudhi"):
                gudhi, hera = (import_module(f"gudhi.{name}") for name in ("wasserstein", "hera"))

                pot, other = seconds(partial(gudhi.wasserstein_distance, *pair))
                work = partial(hera.wasserstein_distance, *pair, order=1.0, delta=0.01)
                rough, _ = min(seconds(work) for _ in range(3))
                others = [f"{pot:.2f} ({pot / own:.0f}x)", f"{rough:.3f} ({rough / own:.0f}x)"]
                others.append(f"{abs(other / value - 1):.0e}")
            table.add_row(f"{n:,}", kind, f"{own:.4f}", *others)
    console.print(table)


def large() -> None:
    """Time a large graph."""
    graphs((1_000_000,))


def ended_early(n: int, allowed: float) -> tuple[float, str, float]:
    """Return the CPU time that a solve takes after `max_seconds`, what it returns, and the CPU time after Ctrl-C."""
    graph, p, q = planar(n)
    cost, told = streets(graph), [np.nan]

    def tell(interrupt: bool) -> None:
        told[0] = time.process_time()
        if interrupt:
            signal.raise_signal(signal.SIGINT)

    threading.Timer(allowed, tell, [False]).start()
    result = solve(p, q, cost, max_seconds=allowed)
    late = time.process_time() - told[0]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which background processes of a shell lack
    threading.Timer(allowed, tell, [True]).start()
    try:
        solve(p, q, cost)
    except KeyboardInterrupt:
        return late, f"{result.status}, relative gap {result.gap:.1e}", time.process_time() - told[0]
    return late, f"{result.status}, relative gap {result.gap:.1e}", np.nan


def stops(n: int = 1_000_000, allowed: float = 20.0) -> None:
    """Time what a large problem still does when it is to end."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        late, state, delay = pool.submit(ended_early, n, allowed).result()
    table = Table("ended by", "ends later by", "with", title=f"{n:,} nodes, ended after {allowed:g} s")
    table.add_row("max_seconds", f"{late:.2f} s", state)
    table.add_row("Ctrl-C", f"{delay:.2f} s", "KeyboardInterrupt")
    console.print(table)


if __name__ == "__main__":
    groups = {work.__name__: work for work in (graphs, grids, diagrams, large, stops)}
    for name in sys.argv[1:] or ("graphs", "grids", "diagrams"):
        groups[name]()
