"""
Neighbours, geodesics and coordinates of digits
===============================================

Exact nearest neighbours in transport cost, the first principal geodesic of a hundred fives, and the coordinates of a
five between two others.
"""

import matplotlib.pyplot as plt
import numpy as np

import gibbsot

fives, cost = gibbsot.datasets.mnist_fives(), gibbsot.GridCost((28, 28))
neighbours = gibbsot.WassersteinNeighbors(4, cost=cost).fit(fives)
nearest = neighbours.kneighbors(fives[:1], return_distance=False)[0]
print(f"neighbours {nearest}; {neighbours.statistics_.note()}")

# %%
# A component of `WassersteinPCA` is a displacement field. Along it mass moves, where components of pixels fade.
pca = gibbsot.WassersteinPCA(3, cost=cost, maps="debiased").fit(fives[:100])
times = np.linspace(-2, 2, 5)
path = pca.geodesic(0, times)
print(f"explained variance {pca.explained_variance_ratio_.round(2)}")

# %%
# Halfway between two fives: the coordinates are those of the geodesic.
between = gibbsot.solve(fives[3], fives[8], cost, normalize=True).interpolate(0.5, on_grid=True).ravel()
weights = gibbsot.barycentric_coordinates(between[None], fives[[3, 8]], cost)[0]
print(f"coordinates {weights.round(3)}")

# %%
rows = {
    "nearest": fives[nearest],
    "geodesic": path,
    "between": np.stack([fives[3], between, fives[8]]),
}
fig, axes = plt.subplots(3, 5, figsize=(7, 4.4))
for row, (name, pictures) in zip(axes, rows.items(), strict=True):
    for ax, picture in zip(row, pictures, strict=False):
        ax.imshow(picture.reshape(28, 28), cmap="Greys")
    for ax in row:
        ax.axis("off")
    row[0].set_title(name, fontsize=9, loc="left")
fig.tight_layout()
plt.show()
