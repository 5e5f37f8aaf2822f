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
p, q, cost = counts / counts.sum(), weights / weights.sum(), gibbsot.PointCost(colours, targets)
result = gibbsot.solve(p, q, cost)
print(result)

# %%
# `OTResult.map` has the mean of what each colour becomes. A matrix of all pairs would take 7 GB, and was never made.
#
# The balanced plan must use every colour of the flower as often as the flower does, so that much of the sky becomes
# dark leaves. With `kl` the shares of the flower's colours may change, at a price: the sky takes the petals' colours.
near = gibbsot.solve(p, q, cost, kl=(np.inf, 2000.0))
print(near)
moved, gentle = (plan.map()[places.ravel()].reshape(photo.shape) for plan in (result, near))
fig, axes = plt.subplots(2, 2, figsize=(9, 6.2), layout="constrained")
titles = "a photograph", "another one", "with all colours of the other one", "with those that are near"
images = photo, other, moved / 255, np.clip(gentle / 255, 0, 1)
for ax, image, title in zip(axes.ravel(), images, titles, strict=True):
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
