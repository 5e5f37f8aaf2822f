"""
Clouds of points
================

The optimal assignment between two clouds of 500 points, and a certified answer for 20,000 points without a matrix.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection

import gibbsot

rng = np.random.default_rng(0)


def ring(n):
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) * rng.normal(1, 0.08, (n, 1))


def blobs(n):
    return rng.normal(scale=0.2, size=(n, 2)) + rng.choice([-1.3, 1.3], size=(n, 1)) * np.array([1, 0.3])


X, Y = ring(500), blobs(500)
result = gibbsot.solve(None, None, gibbsot.PointCost(X, Y))
print(result)

# %%
plan = result.plan.tocoo()
fig, ax = plt.subplots(figsize=(6, 5))
lines = np.stack([X[plan.row], Y[plan.col]], axis=1)
ax.add_collection(LineCollection(lines, colors="0.7", linewidths=0.5))
ax.scatter(*X.T, s=8, color=gibbsot.plots.GREEN, label="from")
ax.scatter(*Y.T, s=8, color=gibbsot.plots.PINK, label="to")
ax.set_aspect("equal")
ax.axis("off")
ax.legend(frameon=False)
fig.tight_layout()

# %%
# A matrix of 20,000 x 20,000 distances would take 3.2 GB. None is formed: the problem is solved from coarse to fine,
# and a k-d tree checks all 400 million pairs.
large = gibbsot.solve(None, None, gibbsot.PointCost(ring(20_000), blobs(20_000)))
print(large)
plt.show()
