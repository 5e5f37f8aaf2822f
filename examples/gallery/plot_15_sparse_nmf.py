"""
Nonnegative matrix factorisation with a sparsity prior
======================================================

Digits are mixtures of components, ``W D``, and a prior on the memberships, their entropy, prefers few components for
each digit. Both factors are rows of weights, which :func:`gibbsot.mirror_descent.minimize` takes as a pair.
"""

import matplotlib.pyplot as plt
import numpy as np

import gibbsot
from gibbsot.mirror_descent import minimize

X, cost, K = gibbsot.datasets.digits()[:200], gibbsot.GridCost((8, 8)), 12
rng = np.random.default_rng(0)
start = (X[rng.choice(len(X), K, replace=False)] + X.mean(axis=0), rng.dirichlet(np.full(K, 2.0), len(X)))
oracle = gibbsot.Oracle(cost, X)


def loss(D, W, prior):
    found, log = oracle(W @ D), np.log(np.maximum(W, 1e-12))
    value = found.values.mean() - prior * (W * log).sum(axis=1).mean()
    of_D, of_W = W.T @ found.grad_p, found.grad_p @ D.T - prior * log
    return value, (of_D / len(X), of_W / len(X))


fits = [minimize(lambda D, W, prior=prior: loss(D, W, prior), start) for prior in (0.0, 5e-4)]

# %%
for fit, name in zip(fits, ("without the prior", "with the prior"), strict=True):
    D, W = fit.x
    used = (W > 0.01).sum(axis=1).mean()
    print(f"{name}: mean cost {oracle(W @ D).values.mean():.5f}, {used:.1f} components for each digit")
fig, axes = plt.subplots(2, K, figsize=(8, 1.6))
for fit, own in zip(fits, axes, strict=True):
    for ax, component in zip(own, fit.x[0], strict=True):
        ax.imshow(component.reshape(8, 8), cmap="gray_r")
        ax.set_axis_off()
fig.tight_layout()
plt.show()
