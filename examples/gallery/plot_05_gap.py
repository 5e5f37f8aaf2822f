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
fig, axes = plt.subplots(1, 3, figsize=(10, 3.2), width_ratios=[1, 1, 1.6])
axes[0].imshow(p, cmap="viridis")
axes[1].imshow(q, cmap="viridis")
for ax in axes[:2]:
    ax.set_xticks([])
    ax.set_yticks([])
seconds = [row[1] for row in rows]
for name, bounds in (("upper", "upper_bound"), ("lower", "lower_bound")):
    axes[2].plot(seconds, [getattr(row[2], bounds) / W for row in rows], "o", label=f"{name} bound")
axes[2].legend(frameon=False)
axes[2].axhline(1, color="0.6", lw=0.8)
axes[2].set(xlabel="seconds", ylabel="certified bounds / W")
fig.tight_layout()
plt.show()
