"""
Wasserstein regression of histograms on covariates
==================================================

A network predicts a histogram from covariates; the loss is the exact transport cost to the histogram that was observed,
so that mass in a bin nearby costs little. It needs PyTorch.
"""

import numpy as np
import torch

import gibbsot
from gibbsot.torch import WassersteinLoss

rng, bins = np.random.default_rng(0), np.linspace(0, 1, 40)
covariates = rng.uniform(-1, 1, (500, 3))
middle = 0.5 + 0.3 * np.tanh(covariates[:, 0] + covariates[:, 1] * covariates[:, 2]) + 0.03 * rng.normal(size=500)
histograms = np.exp(-((bins - middle[:, None]) ** 2) / (2 * (0.05 + 0.03 * covariates[:, 1:2]) ** 2))
histograms /= histograms.sum(axis=1, keepdims=True)

# %%
torch.manual_seed(0)
X, Y = torch.tensor(covariates, dtype=torch.float32), torch.tensor(histograms, dtype=torch.float32)
network = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Tanh(), torch.nn.Linear(64, 40))
loss = WassersteinLoss(gibbsot.GridCost(40), from_logits=True)
optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(25):
    for index in torch.randperm(400).split(50):
        optimiser.zero_grad()
        loss(network(X[index]), Y[index], index).backward()
        optimiser.step()

# %%
loss.eval()
with torch.no_grad():
    predicted = loss(network(X[400:]), Y[400:]).item()
    constant = loss(Y[:400].mean(dim=0).log().expand(100, 40), Y[400:]).item()
print(f"mean cost of 100 new histograms: {predicted:.5f}; with the mean histogram for all of them: {constant:.5f}")
