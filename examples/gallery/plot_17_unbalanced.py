"""
Mass that is created and destroyed
==================================

Two densities on a line differ in shape and in mass. Balanced transport would refuse them; with ``kl=rho`` the plan may
change both measures, and every change costs ``rho`` times its Kullback-Leibler divergence. A small rho keeps mass at
home, a large one moves it.
"""

import matplotlib.pyplot as plt
import numpy as np

from gibbsot import GridCost, plots, solve

x = np.linspace(0, 1, 300)


def bumps(*parts):
    """Return a sum of bumps (place, width, mass)."""
    found = [mass * np.exp(-(((x - at) / width) ** 2)) / width for at, width, mass in parts]
    return sum(found) / len(x)


p = bumps((0.2, 0.05, 1.0), (0.55, 0.04, 0.6))
q = bumps((0.3, 0.05, 0.7), (0.85, 0.05, 1.2))
cost = GridCost(300)

# %%
# The marginals of the plan are what p and q become. Between them the plan is an ordinary optimal plan.
fig, axes = plt.subplots(2, 3, figsize=(10, 4.6), sharex=True, sharey=True, layout="constrained")
for column, rho in zip(axes.T, (0.003, 0.03, 3.0), strict=True):
    result = solve(p, q, cost, kl=rho)
    print(
        f"rho {rho}: {result.transported:.3f} of {p.sum():.3f} and {q.sum():.3f} move, certified gap {result.gap:.0e}"
    )
    for ax, given, kept, colour, name in zip(
        column, (p, q), result.marginals, (plots.GREEN, plots.PINK), "pq", strict=True
    ):
        ax.fill_between(x, kept, color=colour, alpha=0.5, lw=0, label=f"{name}, as the plan takes it")
        ax.plot(x, given, color="0.2", lw=1.2, label=f"{name}, as given")
        ax.set_yticks([])
        ax.spines[["left", "top", "right"]].set_visible(False)
    column[0].set_title(f"$\\rho$ = {rho:g}")
for ax in axes[:, 2]:
    ax.legend(frameon=False, fontsize=8, loc="upper center")
plt.show()
