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
fig = plt.figure(figsize=(7, 3.9), layout="constrained")
above, below = fig.subfigures(2, 1, height_ratios=[1, 2.2])
for ax, image in zip(above.subplots(1, 6), images, strict=True):
    ax.imshow(image.reshape(28, 28), cmap="Greys")
    ax.axis("off")
found = {"mean of the pixels": images.mean(axis=0), "barycenter": model.barycenter_, "smooth": smooth.barycenter_}
for ax, (title, image) in zip(below.subplots(1, 3), found.items(), strict=True):
    ax.imshow(image.reshape(28, 28), cmap="Greys")
    ax.set_title(title)
    ax.axis("off")
plt.show()
