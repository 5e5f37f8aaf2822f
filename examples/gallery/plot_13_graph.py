"""
The flow along the streets of a network
=======================================

Transport with shortest-path costs moves mass along the edges of a graph. The width of a street shows the mass on it.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from scipy import sparse
from scipy.spatial import Delaunay

import gibbsot

rng = np.random.default_rng(0)
X = rng.random((1500, 2))
triangles = Delaunay(X).simplices
ends = np.concatenate([triangles[:, pair] for pair in ([0, 1], [1, 2], [2, 0])])
ends = np.unique(np.sort(ends, axis=1), axis=0)
lengths = np.linalg.norm(X[ends[:, 0]] - X[ends[:, 1]], axis=1)
cost = gibbsot.GraphCost(sparse.coo_array((lengths, ends.T), (1500, 1500)), directed=False)

homes = np.exp(-((X - [0.2, 0.25]) ** 2).sum(axis=1) / 0.01) + np.exp(-((X - [0.2, 0.8]) ** 2).sum(axis=1) / 0.01)
offices = np.exp(-((X - [0.75, 0.5]) ** 2).sum(axis=1) / 0.01)
result = gibbsot.solve(homes, offices, cost, normalize=True)
print(result)

# %%
arcs = result.flow.tocoo()
fig, ax = plt.subplots(figsize=(6, 6), layout="constrained")
ax.add_collection(LineCollection(X[ends], linewidths=0.3, colors="0.8"))
ways = np.stack([X[arcs.row], X[arcs.col]], axis=1)
ax.add_collection(LineCollection(ways, linewidths=30 * arcs.data, colors=gibbsot.plots.GREY, capstyle="round"))
for weights, name, place, colour in (
    (homes, "homes", (0.2, 0.53), gibbsot.plots.GREEN),
    (offices, "offices", (0.84, 0.68), gibbsot.plots.PINK),
):
    some = weights > 0.01 * weights.max()
    ax.scatter(*X[some].T, s=3000 * weights[some] / weights.sum(), color=colour, linewidths=0, zorder=3)
    ax.text(*place, name, ha="center", color=colour, fontsize=13, weight="bold")
ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
ax.axis("off")
plt.show()
