"""
Two images
==========

Where the ink of one handwritten five has to go to become another one.
"""

import matplotlib.pyplot as plt
import numpy as np

import gibbsot

images = gibbsot.datasets.mnist_fives().reshape(-1, 28, 28)
a, b = images[0], images[3]
result = gibbsot.solve(a, b, gibbsot.GridCost((28, 28), spacing=1.0), normalize=True)
print(result)

# %%
# `OTResult.map` has the mean of where the mass of each pixel goes; minus the pixel's own position it is a displacement.
points = np.indices((28, 28)).reshape(2, -1).T
used = a.ravel() > 0
displacement = (np.asarray(result.map()) - points)[used]
fig, axes = plt.subplots(1, 3, figsize=(9, 3.2))
axes[0].imshow(a, cmap="Greys")
axes[0].set_title("from")
axes[1].imshow(a, cmap="Greys", alpha=0.25)
axes[1].quiver(
    points[used, 1], points[used, 0], displacement[:, 1], displacement[:, 0],
    angles="xy", scale_units="xy", scale=1, width=0.004, color=gibbsot.plots.PINK,
)  # fmt: skip
axes[1].set_title(f"Wasserstein distance: {np.sqrt(result.value):.2f} pixels")
axes[2].imshow(b, cmap="Greys")
axes[2].set_title("to")
for ax in axes:
    ax.set_xticks([])
    ax.set_yticks([])
fig.tight_layout()
plt.show()
