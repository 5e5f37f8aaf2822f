"""A barycenter of three measures, and a factorisation of 200, on a street network of 2,000 nodes.

    python examples/graphs.py [FOLDER [SECONDS]]

SECONDS is the time of each fit, 150 by default. A river with two bridges divides the network, so that shortest paths
are not straight. Writes graph-barycenter.png and graph-components.png. Neither model makes the matrix of all distances.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from scipy import sparse
from scipy.spatial import Delaunay
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning

from gibbsot import GraphCost, WassersteinBarycenter, WassersteinNMF, plots, solve_batch

NODES, MEASURES, VISITS = 2000, 200, 500
BRIDGES = (0.3, 0.75)
PLACES = np.array([[0.2, 0.2], [0.75, 0.15], [0.3, 0.85], [0.85, 0.8]])


def network(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, GraphCost]:
    """Return crossings, streets between them, and the cost of ways along the streets."""
    X = rng.random((4 * NODES, 2))
    bank = X[:, 1] - river(X[:, 0])
    X = X[np.abs(bank) > 0.025][:NODES]
    triangles = Delaunay(X).simplices
    ends = np.concatenate([triangles[:, pair] for pair in ([0, 1], [1, 2], [2, 0])])
    ends = np.unique(np.sort(ends, axis=1), axis=0)
    lengths = np.linalg.norm(X[ends[:, 0]] - X[ends[:, 1]], axis=1)
    north = X[:, 1] > river(X[:, 0])
    crosses = north[ends[:, 0]] != north[ends[:, 1]]
    middles = X[ends].mean(axis=1)
    bridge = np.zeros(len(ends), bool)
    for x in BRIDGES:  # the shortest street across the river near each place
        near = np.flatnonzero(crosses & (np.abs(middles[:, 0] - x) < 0.05))
        bridge[near[np.argmin(lengths[near])]] = True
    kept = (lengths < 0.1) & (~crosses | bridge)
    ends, lengths = ends[kept], lengths[kept]
    return X, ends, GraphCost(sparse.coo_array((lengths, ends.T), (NODES, NODES)), directed=False)


def river(x: np.ndarray) -> np.ndarray:
    """Return where the river is."""
    return 0.5 + 0.08 * np.sin(2 * np.pi * x)


def bumps(X: np.ndarray, centres: np.ndarray, width: float) -> np.ndarray:
    """Return measures on the nodes, each around a centre."""
    found = np.exp(-((X[None] - centres[:, None]) ** 2).sum(axis=2) / width)
    return found / found.sum(axis=1, keepdims=True)


def draw(path: Path, X: np.ndarray, ends: np.ndarray, rows: list[dict[str, np.ndarray]]) -> None:
    """Draw rows of measures: one row in pink, or data in grey above components in pink."""
    across = len(rows[0])
    figure = Figure(figsize=(2.6 * across, 2.95 * len(rows)), layout="constrained")
    line, north = np.linspace(0, 1, 200), X[:, 1] > river(X[:, 0])
    bridges = ends[north[ends[:, 0]] != north[ends[:, 1]]]
    axes = np.atleast_2d(figure.subplots(len(rows), across))
    for r, row in enumerate(rows):
        for c, (name, p) in enumerate(row.items()):
            ax = axes[r, c]
            ax.plot(line, river(line), color="#cfe5f2", linewidth=5, zorder=0)
            ax.add_collection(LineCollection(X[ends], linewidths=0.3, colors="0.82", zorder=1))
            ax.add_collection(LineCollection(X[bridges], linewidths=2, colors="0.35", zorder=1))
            some = p > 1e-3 * p.max()
            colour = plots.PINK if r == len(rows) - 1 else "0.25"
            ax.scatter(*X[some].T, s=2500 * p[some] / p.sum(), color=colour, linewidths=0, alpha=0.85, zorder=2)
            ax.set_title(name, fontsize=11, pad=8)
            ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
            ax.axis("off")
    figure.savefig(path, dpi=110)


def barycenter(folder: Path, X: np.ndarray, ends: np.ndarray, cost: GraphCost, limit: float) -> None:
    """Find and draw the barycenter of three measures."""
    P = bumps(X, np.array([[0.2, 0.25], [0.85, 0.25], [0.5, 0.9]]), 0.004)
    begun = time.perf_counter()
    model = WassersteinBarycenter(cost, gap=0.02, max_seconds=limit, random_state=0).fit(P)
    seconds = time.perf_counter() - begun
    print(f"barycenter: objective {model.objective_:.5f}, gap {model.gap_:.1e}, {model.status_}, {seconds:.0f} s")
    measures = {"first": P[0], "second": P[1], "third": P[2], "barycenter": model.barycenter_}
    draw(folder / "graph-barycenter.png", X, ends, [measures])


def components(
    folder: Path, X: np.ndarray, ends: np.ndarray, cost: GraphCost, limit: float, rng: np.random.Generator
) -> None:
    """Factorise visits whose sources are four places, and draw what was found."""
    shares = rng.dirichlet(np.full(len(PLACES), 0.4), MEASURES)
    Q = np.array([rng.multinomial(VISITS, p) for p in shares @ bumps(X, PLACES, 0.01)], np.float64)
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the time is what ends it
        model = WassersteinNMF(len(PLACES), cost=cost, max_seconds=limit, random_state=0).fit(Q)
    seconds = time.perf_counter() - begun
    start = NMF(len(PLACES), random_state=0, max_iter=1000)
    mixtures = start.fit_transform(Q) @ start.components_
    for name, P in (("scikit-learn's NMF", mixtures), ("this fit", model.memberships_ @ model.components_)):
        print(f"{name}: mean transport cost {solve_batch(P, Q, cost, normalize=True).value.mean():.5f}")
    centres = model.components_ @ X
    order = np.argmin(((PLACES[:, None] - centres) ** 2).sum(axis=2), axis=1)
    off = np.linalg.norm(PLACES - centres[order], axis=1)
    print(f"components: {model.n_iter_} epochs in {seconds:.0f} s; centres at most {off.max():.3f} from the places")
    data = {f"measure {b + 1}": Q[b] for b in range(len(PLACES))}
    found = {f"component {k + 1}": model.components_[one] for k, one in enumerate(order)}
    draw(folder / "graph-components.png", X, ends, [data, found])


def main(folder: Path, limit: float) -> None:
    """Fit both models and draw what they found."""
    rng = np.random.default_rng(0)
    X, ends, cost = network(rng)
    barycenter(folder, X, ends, cost, limit)
    components(folder, X, ends, cost, limit, rng)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Path(given[0]) if given else Path(), float(given[1]) if len(given) > 1 else 150.0)
