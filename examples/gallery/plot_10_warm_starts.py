"""
Warm starts of exact solves
===========================

A model moves a little in each step of learning. An exact solve that starts from the basis of the step before needs a
fraction of the pivots.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import gibbsot

Q = gibbsot.datasets.mnist_fives()[:60]
cost = gibbsot.GridCost((28, 28))
rng = np.random.default_rng(0)
P = np.roll(Q, 1, axis=0)
result = gibbsot.solve_batch(P, Q, cost)
cold, warm = [], []
for _ in range(8):
    P = P * np.exp(0.05 * rng.normal(size=P.shape))
    P /= P.sum(axis=1, keepdims=True)
    start = time.perf_counter()
    again = gibbsot.solve_batch(P, Q, cost)
    middle = time.perf_counter()
    result = gibbsot.solve_batch(P, Q, cost, warm_start=result)
    cold.append(middle - start)
    warm.append(time.perf_counter() - middle)
    assert np.allclose(result.value, again.value, rtol=1e-9)

# %%
fig, ax = plt.subplots(figsize=(5.5, 3))
ax.plot(1e3 * np.array(cold) / len(Q), "o-", color=gibbsot.plots.GREY, label="from nothing")
ax.plot(1e3 * np.array(warm) / len(Q), "o-", color=gibbsot.plots.PINK, label="from the basis of the step before")
ax.set(xlabel="step", ylabel="ms per problem", ylim=(0, None))
ax.legend(frameon=False)
fig.tight_layout()
plt.show()
