"""
Matching two persistence diagrams
=================================

A point is matched with a point of the other diagram, or with the diagonal, whichever is cheaper in total.
"""

import matplotlib.pyplot as plt
import numpy as np

from gibbsot import plots
from gibbsot.diagrams import wasserstein_distance

rng = np.random.default_rng(3)
births = rng.random((2, 40))
X, Y = (np.column_stack([b, b + rng.exponential(0.08, 40)]) for b in births)
distance, matching = wasserstein_distance(X, Y, matching=True)
print(f"distance {distance:.4f}, {(matching >= 0).all(axis=1).sum()} pairs of points")

# %%
fig, ax = plt.subplots(figsize=(5.2, 5.2), layout="constrained")
ax.axline((0, 0), slope=1, color="0.6", linewidth=1)
for i, j in matching:
    x = X[i] if i >= 0 else np.full(2, Y[j].mean())
    y = Y[j] if j >= 0 else np.full(2, X[i].mean())
    paired = i >= 0 and j >= 0
    ax.plot(*zip(x, y, strict=True), color="0.2" if paired else "0.7", linewidth=1.4 if paired else 0.8, zorder=1)
ax.scatter(*X.T, s=22, linewidths=0, color=plots.GREEN, label="X")
ax.scatter(*Y.T, s=22, linewidths=0, color=plots.PINK, label="Y")
ax.set(xlabel="birth", ylabel="death", aspect="equal", xlim=(-0.05, 1.2), ylim=(-0.05, 1.2))
ax.legend(loc="upper left", frameon=False)
plt.show()
