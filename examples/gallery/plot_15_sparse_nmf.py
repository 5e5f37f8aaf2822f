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
fig = plt.figure(figsize=(6, 4.6), layout="constrained")
names = "without the prior", "with the prior"
for part, fit, name in zip(fig.subfigures(2, 1), fits, names, strict=True):
    part.suptitle(name, fontsize=10)
    D, W = fit.x
    used = (W > 0.01).sum(axis=1).mean()
    print(f"{name}: mean cost {oracle(W @ D).values.mean():.5f}, {used:.1f} components for each digit")
    order = np.argsort(-W.sum(axis=0))  # by usage
    for ax, component in zip(part.subplots(2, K // 2).ravel(), D[order], strict=True):
        ax.imshow(component.reshape(8, 8), cmap="Greys")
        ax.set(xticks=[], yticks=[])
plt.show()
