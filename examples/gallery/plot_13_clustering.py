"""
A loss of one's own: clustering with Wasserstein means
======================================================

D2-clustering alternates between the nearest center of each measure and centers that minimise the mean cost of their
members. The oracle has values and gradients of all costs, and :func:`gibbsot.mirror_descent.minimize` needs no step.
"""

import matplotlib.pyplot as plt
import numpy as np

import gibbsot
from gibbsot.mirror_descent import minimize

X, cost = gibbsot.datasets.digits()[:400], gibbsot.GridCost((8, 8))
centers = X[np.random.default_rng(0).choice(len(X), 10, replace=False)]
oracle, history = gibbsot.Oracle(cost, X), []


def loss(centers):
    found = oracle(centers[nearest])
    gradient = np.zeros_like(centers)
    np.add.at(gradient, nearest, found.grad_p / len(X))
    return found.values.mean(), gradient


for step in range(6):
    costs = np.stack([gibbsot.solve_batch(X, center, cost).value for center in centers])
    nearest = costs.argmin(axis=0)
    history.append(costs.min(axis=0).mean())
    if step == 0:
        centers = np.stack([X[nearest == k].mean(axis=0) for k in range(len(centers))])
    centers = minimize(loss, centers, max_iter=20).x

# %%
print("mean cost of the nearest center:", np.round(history, 5))
fig, axes = plt.subplots(2, 5, figsize=(5.5, 2.4))
for ax, center in zip(axes.ravel(), centers, strict=True):
    ax.imshow(center.reshape(8, 8), cmap="Greys")
    ax.set_axis_off()
fig.tight_layout()
plt.show()
