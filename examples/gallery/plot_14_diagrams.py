"""
Matching two persistence diagrams
=================================

A point is matched with a point of the other diagram, or with the diagonal, whichever is cheaper in total.
"""

import matplotlib.pyplot as plt
import numpy as np

from gibbsot.diagrams import wasserstein_distance

rng = np.random.default_rng(3)
births = rng.random((2, 40))
X, Y = (np.column_stack([b, b + rng.exponential(0.08, 40)]) for b in births)
distance, matching = wasserstein_distance(X, Y, matching=True)
print(f"distance {distance:.4f}, {(matching >= 0).all(axis=1).sum()} pairs of points")

# %%
fig, ax = plt.subplots(figsize=(5, 5))
ax.plot([0, 1.2], [0, 1.2], color="0.7")
for i, j in matching:
    x = X[i] if i >= 0 else np.full(2, Y[j].mean())
    y = Y[j] if j >= 0 else np.full(2, X[i].mean())
    ax.plot(*zip(x, y, strict=True), color="0.5", linewidth=0.8)
ax.scatter(*X.T, s=15, label="X")
ax.scatter(*Y.T, s=15, label="Y")
ax.set(xlabel="birth", ylabel="death", aspect="equal")
ax.legend()
plt.show()
