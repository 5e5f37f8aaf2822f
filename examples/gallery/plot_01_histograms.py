"""
Two histograms
==============

The optimal plan between two histograms on a line, with its marginals, and the potentials that prove it optimal.
"""

import matplotlib.pyplot as plt
import numpy as np

import gibbsot

n = 60
x = np.arange(n)
p = np.exp(-0.5 * ((x - 15) / 4) ** 2) + 0.6 * np.exp(-0.5 * ((x - 40) / 3) ** 2)
q = np.exp(-0.5 * ((x - 30) / 8) ** 2)
result = gibbsot.solve(p, q, gibbsot.GridCost(n, spacing=1.0), normalize=True)
print(result)

# %%
# The plan is a sparse coupling of p and q: its row sums are p and its column sums q.
fig, axes = plt.subplot_mosaic([[".", "q"], ["p", "plan"]], width_ratios=[1, 4], height_ratios=[1, 4], figsize=(6, 6))
axes["plan"].imshow(np.sqrt(result.plan.toarray()), cmap="Greys", aspect="auto")
axes["plan"].set(xlabel="bin of q", ylabel="bin of p")
axes["p"].fill_betweenx(x, 0, -p / p.sum(), color=gibbsot.plots.GREEN)
axes["p"].set_ylim(n, 0)
axes["q"].fill_between(x, 0, q / q.sum(), color=gibbsot.plots.PINK)
axes["q"].set_xlim(0, n)
for name in "pq":
    axes[name].axis("off")
fig.tight_layout()

# %%
# The potentials f and g are feasible, f_i + g_j <= M_ij, and ``<p, f> + <q, g>`` is W. They are the gradients of W.
f, g = result.potentials
fig, ax = plt.subplots(figsize=(6, 3))
ax.plot(x, f, color=gibbsot.plots.GREEN, label="f, the gradient with respect to p")
ax.plot(x, g, color=gibbsot.plots.PINK, label="g, the gradient with respect to q")
ax.legend(frameon=False)
ax.set_xlabel("bin")
fig.tight_layout()
plt.show()
