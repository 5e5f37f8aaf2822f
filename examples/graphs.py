"""A barycenter of three measures, and a factorisation of 200, on a street network of 2,000 nodes.

    python examples/graphs.py [FOLDER]

Writes barycenter.png and components.png. Neither model makes the matrix of all distances.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from scipy import sparse
from scipy.spatial import Delaunay

from gibbsot import GraphCost, WassersteinBarycenter, WassersteinNMF

NODES, SECONDS = 2000, 60.0


def bumps(X: np.ndarray, centres: np.ndarray, width: float) -> np.ndarray:
    """Return measures on the nodes, each around a centre."""
    found = np.exp(-((X[None] - centres[:, None]) ** 2).sum(axis=2) / width)
    return found / found.sum(axis=1, keepdims=True)


def draw(path: Path, X: np.ndarray, ends: np.ndarray, measures: dict[str, np.ndarray]) -> None:
    """Draw measures side by side."""
    figure = Figure(figsize=(3 * len(measures), 3.2))
    for ax, (name, p) in zip(np.atleast_1d(figure.subplots(1, len(measures))), measures.items(), strict=True):
        ax.add_collection(LineCollection(X[ends], linewidths=0.2, colors="0.85"))
        ax.scatter(*X.T, s=3000 * p / p.sum())
        ax.set_title(name)
        ax.set_aspect("equal")
        ax.axis("off")
    figure.savefig(path, dpi=120)


def main(folder: Path) -> None:
    """Fit both models and draw what they found."""
    rng = np.random.default_rng(0)
    X = rng.random((NODES, 2))
    triangles = Delaunay(X).simplices
    ends = np.concatenate([triangles[:, pair] for pair in ([0, 1], [1, 2], [2, 0])])
    ends = np.unique(np.sort(ends, axis=1), axis=0)
    lengths = np.linalg.norm(X[ends[:, 0]] - X[ends[:, 1]], axis=1)
    cost = GraphCost(sparse.coo_array((lengths, ends.T), (NODES, NODES)), directed=False)

    P = bumps(X, np.array([[0.2, 0.3], [0.8, 0.3], [0.5, 0.8]]), 0.005)
    model = WassersteinBarycenter(cost, gap=0.05, max_seconds=SECONDS, random_state=0).fit(P)
    print(f"barycenter: objective {model.objective_:.5f}, gap {model.gap_:.1e}, {model.status_}")
    draw(folder / "barycenter.png", X, ends, {"1": P[0], "2": P[1], "3": P[2], "barycenter": model.barycenter_})

    Q = bumps(X, rng.random((200, 2)), 0.003)
    factors = WassersteinNMF(4, cost=cost, max_seconds=SECONDS, random_state=0).fit(Q)
    draw(folder / "components.png", X, ends, {str(k + 1): row for k, row in enumerate(factors.components_)})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
