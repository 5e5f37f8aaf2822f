"""
Matching shapes by their own distances
======================================

Gromov-Wasserstein compares the distances inside one cloud with those inside another. The clouds need no common
coordinates: here a fish is rotated, reflected and bent, and every point has the colour of the points it is matched
with.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.path import Path

from gibbsot import gromov_wasserstein

t = np.linspace(0, 2 * np.pi, 400)
outline = Path(np.column_stack([np.cos(t) - np.sin(t) ** 2 / np.sqrt(2), np.cos(t) * np.sin(t)]))
rng = np.random.default_rng(0)


def fish(n):
    """Return n random points inside the outline."""
    points = rng.uniform([-1, -0.6], [1.1, 0.6], (20 * n, 2))
    return points[outline.contains_points(points)][:n]


def swum(points):
    """Return the points of a fish that has turned round and bends its tail."""
    x, y = points.T
    bent = np.column_stack([x, -y + 0.25 * x**2])
    return bent @ np.array([[np.cos(2.2), np.sin(2.2)], [-np.sin(2.2), np.cos(2.2)]]) + 3


X, Y = fish(1200), swum(fish(900))
result = gromov_wasserstein(X, Y)
print(result)
print("values of all starts:", result.values.round(5))

# %%
# The plan has the colours of X in its rows; each point of Y takes the mean of those it is matched with.
width, height = np.ptp(X, axis=0)
colours = np.column_stack([(X[:, 0] - X[:, 0].min()) / width, (X[:, 1] - X[:, 1].min()) / height, np.full(len(X), 0.6)])
matched = (result.plan.T @ colours) / result.plan.sum(axis=0)[:, None]

fig, axes = plt.subplots(1, 2, figsize=(9, 4))
axes[0].scatter(*X.T, c=colours, s=9)
axes[1].scatter(*Y.T, c=matched.clip(0, 1), s=9)
for ax, title in zip(axes, ("X", "Y, coloured by the plan"), strict=True):
    ax.set(title=title, aspect="equal")
    ax.axis("off")
fig.tight_layout()
plt.show()
