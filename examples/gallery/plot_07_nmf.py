"""
Wasserstein NMF of digits
=========================

Images as mixtures of a few components, nearest in transport cost, beside scikit-learn's NMF.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF

import gibbsot

digits = load_digits()
X = digits.data[digits.target < 3]
X = X / X.sum(axis=1, keepdims=True)
cost = gibbsot.GridCost((8, 8))
ours = gibbsot.WassersteinNMF(8, cost=cost, max_epochs=600, random_state=0).fit(X)
plain = NMF(8, init="nndsvda", max_iter=1000, random_state=0).fit(X)

# %%
# The mean exact transport cost between images and their best mixtures of the components of either model:
parts = plain.components_ / plain.components_.sum(axis=1, keepdims=True)
for name, components in (("scikit-learn's NMF", parts), ("Wasserstein NMF", ours.components_)):
    mixtures = gibbsot.mixture_coordinates(X[:50], components, cost) @ components
    print(f"{name}: {gibbsot.solve_batch(mixtures, X[:50], cost).value.mean():.5f}")

# %%
fig, axes = plt.subplots(2, 8, figsize=(9, 2.8))
for row, components in zip(axes, (plain.components_, ours.components_), strict=True):
    for ax, component in zip(row, components, strict=True):
        ax.imshow(component.reshape(8, 8), cmap="Greys")
        ax.set_xticks([])
        ax.set_yticks([])
axes[0, 0].set_ylabel("Euclidean")
axes[1, 0].set_ylabel("Wasserstein")
fig.tight_layout()
plt.show()
