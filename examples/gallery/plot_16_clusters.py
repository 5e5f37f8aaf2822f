"""
Clusters whose centroids are barycenters
========================================

k-means of digits with transport costs: every centroid is within one per cent of the barycenter of its members.
"""

import matplotlib.pyplot as plt

import gibbsot

images = gibbsot.datasets.digits()[:200]
model = gibbsot.WassersteinKMeans(8, cost=gibbsot.GridCost((8, 8)), random_state=0).fit(images)
lower, upper = model.inertia_bounds_
print(f"inertia between {lower:.12f} and {upper:.12f} after {model.n_iter_} assignments")

# %%
fig, axes = plt.subplots(2, 8, figsize=(9, 3))
for k, (above, below) in enumerate(axes.T):
    above.imshow(model.cluster_centers_[k].reshape(8, 8), cmap="Greys")
    below.imshow(images[model.labels_ == k].mean(axis=0).reshape(8, 8), cmap="Greys")
    above.axis("off")
    below.axis("off")
axes[0, 0].set_title("barycenters", fontsize=9, loc="left")
axes[1, 0].set_title("means of the same members", fontsize=9, loc="left")
fig.tight_layout()
plt.show()
