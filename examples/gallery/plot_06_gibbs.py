"""
The sampler of the paper
========================

V(z) along an annealed Gibbs chain, beside W. It is an estimate: at a high temperature it is above W. The certified
bounds of the same run hold at any time.
"""

import matplotlib.pyplot as plt
import numpy as np

import gibbsot

images = gibbsot.datasets.mnist_fives()
p, q = images[0], images[3]
cost = gibbsot.GridCost((28, 28))
exact = gibbsot.solve(p, q, cost)
chain = gibbsot.solve(p, q, cost, method=gibbsot.Gibbs(n_sweeps=2000, rng=0))
print(exact)
print(chain)

# %%
fig, ax = plt.subplots(figsize=(6.5, 3.5))
V = chain.history[~np.isnan(chain.history)]
ax.semilogx(np.arange(1, len(V) + 1), V / exact.value, color=gibbsot.plots.GREEN, label="V(z)")
ax.axhline(1, color="0.4", lw=1, label="W")
ax.axhspan(chain.lower_bound / exact.value, chain.upper_bound / exact.value, color=gibbsot.plots.DARK_GREY, alpha=0.3,
           label=f"certified bounds at the end, gap {chain.gap:.0e}")  # fmt: skip
ax.set(xlabel="sweep", ylabel="relative to W", ylim=(0, 2))
ax.legend(frameon=False)
fig.tight_layout()
plt.show()
