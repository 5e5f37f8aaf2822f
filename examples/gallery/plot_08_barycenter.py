"""
A barycenter with a certificate
===============================

The mean of six fives in transport cost, to a certified gap of one in a thousand, beside the mean of their pixels.
"""

import matplotlib.pyplot as plt

import gibbsot

images = gibbsot.datasets.mnist_fives()[:6]
model = gibbsot.WassersteinBarycenter(gibbsot.GridCost((28, 28)), random_state=0).fit(images)
print(f"objective {model.objective_:.6f}, at least {model.lower_bound_:.6f}: gap {model.gap_:.1e}, {model.status_}")

# %%
fig, axes = plt.subplots(1, 8, figsize=(10, 1.7))
pictures = [*images, images.mean(axis=0), model.barycenter_]
titles = [*"123456", "pixel mean", "barycenter"]
for ax, picture, title in zip(axes, pictures, titles, strict=True):
    ax.imshow(picture.reshape(28, 28), cmap="Greys")
    ax.set_title(title, fontsize=9)
    ax.axis("off")
fig.tight_layout()
plt.show()
