"""
Certified gaps
==============

A coarse level of a grid often proves a small gap already. ``gap=`` stops there.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

import gibbsot

rng = np.random.default_rng(0)
n = 96
p, q = (np.exp(3 * gaussian_filter(noise, 6, mode="wrap") / 0.06) for noise in 0.6 * rng.normal(size=(2, n, n)))
cost = gibbsot.GridCost((n, n))
rows = []
for gap in (0.1, 0.03, 0.01, 1e-3, None):
    start = time.perf_counter()
    result = gibbsot.solve(p, q, cost, normalize=True, gap=gap)
    rows.append((gap, time.perf_counter() - start, result))
    print(f"asked {gap}, got {result.gap:.1e} in {rows[-1][1]:.2f} s: {result.status}")

# %%
W = rows[-1][2].value
panels = [["p", "bounds"], ["q", "bounds"]]
fig, axes = plt.subplot_mosaic(panels, figsize=(7.5, 4.6), width_ratios=[1, 2.2], layout="constrained")
for name, image in (("p", p), ("q", q)):
    axes[name].imshow(image, cmap="Greys")
    axes[name].set(title=name, xticks=[], yticks=[])
ax = axes["bounds"]
for name, colour in (("upper", gibbsot.plots.PINK), ("lower", gibbsot.plots.GREEN)):
    bounds = [getattr(row[2], f"{name}_bound") / W for row in rows]
    ax.plot(bounds, "o-", color=colour, label=f"{name} bound")
ax.legend(frameon=False)
ax.set_xticks(range(len(rows)), [f"{gap or 'optimum'}\n{seconds:.2f} s" for gap, seconds, _ in rows])
ax.set(xlabel="gap asked for, and time", ylabel="certified bounds / W")
plt.show()
