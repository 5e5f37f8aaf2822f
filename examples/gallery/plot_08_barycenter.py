"""
A barycenter with a certificate
===============================

The mean of six fives in transport cost, beside the mean of their pixels. The optimum, to a certified gap of one in a
thousand, is speckled; many other measures cost nearly as little. With ``smooth=True`` the fit returns the one of
largest entropy among all that are certified within the gap, here one in a hundred.
"""

import matplotlib.pyplot as plt

import gibbsot

images = gibbsot.datasets.mnist_fives()[:6]
model = gibbsot.WassersteinBarycenter(gibbsot.GridCost((28, 28)), random_state=0).fit(images)
print(f"objective {model.objective_:.6f}, at least {model.lower_bound_:.6f}: gap {model.gap_:.1e}, {model.status_}")
smooth = gibbsot.WassersteinBarycenter(gibbsot.GridCost((28, 28)), gap=0.01, smooth=True, random_state=0).fit(images)
missing = f"entropy at most {smooth.entropy_gap_:.0e} below the largest"
print(f"smooth: objective {smooth.objective_:.6f}, gap {smooth.gap_:.1e}, {missing}")

# %%
fig, axes = plt.subplots(1, 9, figsize=(10, 1.6))
pictures = [*images, images.mean(axis=0), model.barycenter_, smooth.barycenter_]
titles = [*"123456", "pixel mean", "barycenter", "smooth"]
for ax, picture, title in zip(axes, pictures, titles, strict=True):
    ax.imshow(picture.reshape(28, 28), cmap="Greys")
    ax.set_title(title, fontsize=9)
    ax.axis("off")
fig.tight_layout()
plt.show()
