"""A small network for handwritten digits, trained with cross-entropy and with a Wasserstein loss.

    python examples/torch_digits.py

The cost between two digits is the distance between the mean images of their classes. A share of the training labels is
wrong, drawn from the digits near the correct one in that cost; the test labels are correct. The figures are the
accuracy, the mean cost of the predicted digit, and the mean transport cost of the whole prediction.

Between a prediction and a single label the transport cost is linear in the prediction. Used alone, it moves all
predictions to the digit of least mean cost early in the training, where the gradient of the softmax almost vanishes;
therefore it is added to the cross-entropy.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor

from gibbsot.torch import WassersteinLoss

Array = NDArray[np.float64]


class Data(NamedTuple):
    """Images, labels, and the cost between digits."""

    X: Tensor
    noisy: Tensor
    X_test: Tensor
    test: Tensor
    cost: Array


def prepared(wrong: float, seed: int) -> Data:
    images, labels = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(images / 16, labels, test_size=0.5, stratify=labels, random_state=seed)
    means = np.stack([X[y == label].mean(axis=0) for label in range(10)])
    cost = np.linalg.norm(means[:, None] - means, axis=2)
    cost /= cost[cost > 0].mean()
    nearness = np.where(cost > 0, np.exp(-10 * cost), 0)
    nearness /= nearness.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(seed)
    noisy = [rng.choice(10, p=nearness[label]) if rng.random() < wrong else label for label in y]
    X, targets, X_test = (torch.from_numpy(x).float() for x in (X, np.eye(10)[noisy], X_test))
    return Data(X, targets, X_test, torch.from_numpy(y_test), cost)


def trained(data: Data, share: float, epochs: int, seed: int) -> torch.nn.Module:
    """Return a network trained with ``(1 - share) * cross-entropy + share * Wasserstein loss``."""
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    entropy = torch.nn.CrossEntropyLoss()
    transport = WassersteinLoss(data.cost, from_logits=True, rng=seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.003)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for index in torch.split(torch.randperm(len(data.X)), 64):
            logits, targets = network(data.X[index]), data.noisy[index]
            loss = (1 - share) * entropy(logits, targets)
            if share:
                loss = loss + share * transport(logits, targets, index)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        falling.step()
    return network


def scores(data: Data, network: torch.nn.Module) -> list[float]:
    """Return the accuracy, the mean cost of the predicted digits and that of the whole predictions."""
    with torch.no_grad():
        P = torch.softmax(network(data.X_test), dim=1).numpy()
    right = data.test.numpy()
    chosen = P.argmax(axis=1)
    # all mass is moved to a single label, so that the transport cost is a mean
    return [
        np.mean(chosen == right),
        np.mean(data.cost[chosen, right]),
        np.mean((P * data.cost[:, right].T).sum(axis=1)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrong", type=float, default=0.3, help="share of wrong labels (default: 0.3)")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3, help="networks for each loss (default: 3)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[list[float]]] = {}
    for seed in range(options.seeds):
        data = prepared(options.wrong, seed)
        for name, share in (
            ("cross-entropy", 0.0),
            ("a fifth of it, and Wasserstein", 0.8),
            ("Wasserstein alone", 1.0),
        ):
            start = time.perf_counter()
            network = trained(data, share, options.epochs, seed)
            found.setdefault(name, []).append([*scores(data, network), time.perf_counter() - start])
    title = f"{len(data.X)} digits, {options.wrong:.0%} of the labels wrong, mean of {options.seeds} runs"
    table = Table(title=title)
    for column in ("loss", "accuracy", "cost of the choice", "cost of the prediction", "time per run"):
        table.add_column(column, justify="left" if column == "loss" else "right")
    for name, rows in found.items():
        (accuracy, choice, prediction, seconds), spread = np.mean(rows, axis=0), np.std(rows, axis=0)
        cells = (f"{accuracy:.1%} ± {spread[0]:.1%}", f"{choice:.4f} ± {spread[1]:.4f}")
        table.add_row(name, *cells, f"{prediction:.4f} ± {spread[2]:.4f}", f"{seconds:.2f} s")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
