"""
Labels with distances
=====================

A classifier whose loss knows that some labels are nearer than others.
"""

import matplotlib.pyplot as plt
import numpy as np

import gibbsot

rng = np.random.default_rng(0)
positions = rng.uniform(-2, 2, size=(12, 2))  # the labels are places in the plane
X = rng.uniform(-2, 2, size=(400, 2))
distances = np.linalg.norm(X[:, None] - positions, axis=2)
tags = distances.argsort().argsort() < 3  # each sample carries its three nearest labels
noisy = np.where(rng.random(tags.shape) < 0.05, ~tags, tags)
noisy[~noisy.any(axis=1), 0] = True
between = np.linalg.norm(positions[:, None] - positions, axis=2)
model = gibbsot.WassersteinClassifier(between, random_state=0).fit(X, noisy)

# %%
# The predicted histogram over labels at three places. A pink cross is the place, a circle a label; its area is the
# probability of the label. Mass sits on labels near the place.
places = np.array([[-1.5, 1.0], [0.0, 0.0], [1.5, -1.0]])
fig, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharex=True, sharey=True)
for ax, place, histogram in zip(axes, places, model.predict_proba(places), strict=True):
    ax.scatter(*positions.T, s=20 + 1500 * histogram, color=gibbsot.plots.GREEN, alpha=0.6)
    ax.plot(*place, "x", color=gibbsot.plots.PINK, ms=10, mew=2)
    ax.set_title(f"at ({place[0]:g}, {place[1]:g})")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_aspect("equal")
fig.tight_layout()
plt.show()
