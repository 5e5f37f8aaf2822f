"""
A loss between measures that both move: smoothing a sequence
============================================================

Frames that jump about are replaced by ones that stay near them and move little from one to the next:
``sum W(p_t, x_t) + 2 sum W(p_t, p_t+1)``. In the second sum both measures move. The same loss for PyTorch stands below.
"""

import matplotlib.pyplot as plt
import numpy as np

import gibbsot
from gibbsot.mirror_descent import minimize

side, steps, rng = 16, 40, np.random.default_rng(0)
cost, grid = gibbsot.GridCost((side, side)), (np.arange(side) + 0.5) / side
angle = np.linspace(0, np.pi / 2, steps)
x, y = (0.5 + 0.3 * wave(angle) + 0.056 * rng.normal(size=steps) for wave in (np.cos, np.sin))
rows, columns = (np.exp(-((grid - z[:, None]) ** 2) / (2 * 0.05**2)) for z in (x, y))
frames = (rows[:, :, None] * columns[:, None]).reshape(steps, -1)
frames[frames < 1e-4] = 0
frames /= frames.sum(axis=1, keepdims=True)

# %%
near, smooth = gibbsot.Oracle(cost, frames), gibbsot.Oracle(cost)


def loss(P):
    data, motion = near(P), smooth(P[:-1], P[1:])
    gradient = data.grad_p
    gradient[:-1] += 2 * motion.grad_p
    gradient[1:] += 2 * motion.grad_q
    return data.values.sum() + 2 * motion.values.sum(), gradient


result = minimize(loss, frames)
print(f"from {loss(frames)[0]:.3f} to {result.value:.3f}, certified")

# %%
# In PyTorch the gradients are found by backward, and the steps by its optimisers.
try:
    import torch
except ImportError:
    print("PyTorch is not installed")
else:
    from gibbsot.torch import WassersteinLoss

    X = torch.from_numpy(frames)
    logits = torch.log(X + 1e-6).requires_grad_()
    data, motion = (WassersteinLoss(cost, reduction="sum", by_position=True) for _ in range(2))
    optimiser = torch.optim.Adam([logits], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 100)
    for _ in range(100):
        optimiser.zero_grad()
        P = logits.softmax(dim=1)
        value = data(P, X) + 2 * motion(P[:-1], P[1:])
        value.backward()
        optimiser.step()
        schedule.step()
    print(f"PyTorch: {value.item():.3f}")

# %%
# The spot of every frame, and the way of its centre.
fig, axes = plt.subplots(1, 2, figsize=(7, 3.8), sharex=True, sharey=True, layout="constrained")
places = np.indices((side, side)).reshape(2, -1)
for ax, images, title in zip(axes, (frames, result.x), ("frames", "smoothed"), strict=True):
    ax.imshow(images.max(axis=0).reshape(side, side), cmap="Greys", vmax=2 * images.max())
    y, x = places @ images.T
    ax.plot(x, y, ".-", color=gibbsot.plots.PINK)
    ax.set(title=title, xticks=[], yticks=[])
plt.show()
