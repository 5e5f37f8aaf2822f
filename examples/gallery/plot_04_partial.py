"""
Mass that may be left over
==========================

Outliers should not be transported. With ``penalty=c`` each unit of mass that is left over costs c on either side; with
``mass=s`` exactly s is transported.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection

import gibbsot

rng = np.random.default_rng(0)
X = np.concatenate([rng.normal(size=(60, 2)), rng.normal([6, 3], 0.3, size=(10, 2))])
Y = np.concatenate([rng.normal([1, 0], 1, size=(60, 2)), rng.normal([-5, 4], 0.3, size=(10, 2))])
cost = gibbsot.PointCost(X, Y)
weights = np.full(70, 1 / 70)

fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharex=True, sharey=True)
cases = {
    "balanced": {},
    "penalty=1": {"penalty": 1.0},
    "mass=0.5": {"mass": 0.5},
}
for ax, (name, options) in zip(axes, cases.items(), strict=True):
    result = gibbsot.solve(weights, weights, cost, **options)
    plan = result.plan.tocoo()
    ax.add_collection(LineCollection(np.stack([X[plan.row], Y[plan.col]], axis=1), colors="0.6", linewidths=0.7))
    ax.scatter(*X.T, s=10, color=gibbsot.plots.GREEN)
    ax.scatter(*Y.T, s=10, color=gibbsot.plots.PINK)
    ax.set_title(f"{name}: {result.value:.3g}, moved {plan.sum():.2f}")
    ax.set_xticks([])
    ax.set_yticks([])
fig.tight_layout()
plt.show()
