"""Flow matching from a Gaussian to eight Gaussians, with exact couplings of minibatches and with independent pairs.

    python examples/flow_matching.py --out demo

A small network learns the velocity of a flow. Straight lines between pairs (x, y) are the targets; with independent
pairs they cross, so that the flow bends, with the optimal permutation of every minibatch they hardly do. The picture
shows paths of the learnt flows, the table how straight they are (their length over the distance of their ends), and the
transport cost from what a few Euler steps give to new samples of the target.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from gibbsot.torch import exact_plan, wasserstein


def target(n: int) -> Tensor:
    """Return samples of eight Gaussians on a circle."""
    angle = torch.randint(8, (n,)) * (math.pi / 4)
    return 3 * torch.stack([angle.cos(), angle.sin()], 1) + 0.2 * torch.randn(n, 2)


def trained(coupled: bool, steps: int, batch: int, seed: int) -> torch.nn.Module:
    """Return the velocity that flow matching learns, as a function of position and time."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 64), torch.nn.SiLU(), torch.nn.Linear(64, 64), torch.nn.SiLU(), torch.nn.Linear(64, 2)
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        x, y = torch.randn(batch, 2), target(batch)
        if coupled:
            y = y[exact_plan(x, y).j]
        t = torch.rand(batch, 1)
        optimiser.zero_grad()
        loss = (model(torch.cat([x + t * (y - x), t], 1)) - (y - x)).square().mean()
        torch.autograd.backward(loss)
        optimiser.step()
        falling.step()
    return model


@torch.no_grad()
def flowed(model: torch.nn.Module, x: Tensor, steps: int) -> Tensor:
    """Return the positions of all steps of Euler's method."""
    path = [x]
    for k in range(steps):
        t = torch.full((len(x), 1), k / steps)
        path.append(path[-1] + model(torch.cat([path[-1], t], 1)) / steps)
    return torch.stack(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title=f"{options.steps} steps with {options.batch} pairs each")
    for column in ("pairs", "length of paths / distance", "cost with 4 steps", "with 64 steps", "training"):
        table.add_column(column, justify="left" if column == "pairs" else "right")
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained", sharex=True, sharey=True)
    for axis, (name, coupled) in zip(axes, (("independent", False), ("optimal", True)), strict=True):
        start = time.perf_counter()
        model = trained(coupled, options.steps, options.batch, options.seed)
        seconds = time.perf_counter() - start
        torch.manual_seed(1000)
        x, y = torch.randn(1000, 2), target(1000)
        path = flowed(model, x, 64)
        length = path.diff(dim=0).norm(dim=2).sum(0) / (path[-1] - path[0]).norm(dim=1)
        costs = [wasserstein(None, None, (flowed(model, x, steps)[-1], y)).item() for steps in (4, 64)]
        table.add_row(name, f"{length.mean():.3f}", *(f"{cost:.3f}" for cost in costs), f"{seconds:.1f} s")
        axis.plot(*path[:, :150].permute(2, 0, 1).numpy(), color="tab:blue", lw=0.6, alpha=0.6)
        axis.scatter(*path[0, :150].T.numpy(), s=6, color="0.4", label="start", zorder=3)
        axis.scatter(*path[-1, :150].T.numpy(), s=6, color="tab:orange", label="end", zorder=3)
        axis.set(title=f"{name} pairs", aspect="equal", xticks=[], yticks=[])
    axes[0].legend(loc="upper left", frameon=False)
    Console(width=100).print(table)
    options.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out / "flow_matching.png", dpi=120)
    print(f"wrote {options.out / 'flow_matching.png'}")


if __name__ == "__main__":
    main()
