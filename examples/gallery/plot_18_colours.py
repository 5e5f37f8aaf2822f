"""
Colour transfer
===============

A photograph gets the colours of another one: each colour is a point in space, with as much weight as it has pixels, and
moves as the optimal plan says. The plan is exact, between all colours of both photographs.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import gibbsot

photo, other = (load_sample_image(name)[::2, ::2] for name in ("china.jpg", "flower.jpg"))
(colours, places, counts), (targets, weights) = (
    np.unique(photo.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True),
    np.unique(other.reshape(-1, 3), axis=0, return_counts=True),
)
result = gibbsot.solve(counts, weights, gibbsot.PointCost(colours, targets), normalize=True)
print(result)

# %%
# `OTResult.map` has the mean of what each colour becomes. At no time there was a matrix, which would take 7 GB.
moved = result.map()[places.ravel()].reshape(photo.shape)
fig, axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")
titles = "a photograph", "the colours of another one", "the photograph with these colours"
for ax, image, title in zip(axes, (photo, other, moved / 255), titles, strict=True):
    ax.imshow(image)
    ax.set_title(title, fontsize=10)
    ax.axis("off")

# %%
# `TransportMap` is the same for colours that are not in the photograph: a new one moves as the nearest one that is. So
# a model of every sixteenth pixel moves all of them.
few = gibbsot.TransportMap().fit(photo[::4, ::4].reshape(-1, 3), target=other[::4, ::4].reshape(-1, 3))
estimate = np.clip(few.transform(photo.reshape(-1, 3)), 0, 255).reshape(photo.shape)
print(f"{np.abs(estimate - moved).mean():.1f} of 255 levels from the exact one")
plt.show()
