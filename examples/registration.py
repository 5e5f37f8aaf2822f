"""Registration of two volumes 32 x 32 x 32 by gradient flow of the exact transport cost.

    python examples/registration.py --out demo

The moving volume is a cloud of points, one for each voxel that has mass; the fixed one is an ellipsoid with a cavity.
Points follow the gradient of the transport cost, ``-n grad W / 2`` of one being the displacement to the mean
of its partners under the optimal plan. The picture shows the middle slice of the fixed volume and of the moving one
after some steps, put back on the grid. `VolumesLoss` measures the distance that is left, on the grid.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from gibbsot.torch import VolumesLoss, wasserstein

SIDE = 32


def volumes() -> tuple[Tensor, Tensor]:
    """Return a ball, and an ellipsoid elsewhere with a cavity."""
    axis = (torch.arange(SIDE, dtype=torch.float64) + 0.5) / SIDE
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)

    def ball(centre: list[float], radii: list[float]) -> Tensor:
        return (((grid - torch.tensor(centre)) / torch.tensor(radii)) ** 2).sum(-1) < 1

    fixed = ball([0.5, 0.55, 0.6], [0.2, 0.3, 0.22]) & ~ball([0.5, 0.6, 0.6], [0.12, 0.12, 0.1])
    return ball([0.5, 0.4, 0.35], [0.2, 0.2, 0.2]).double(), fixed.double()


def points(volume: Tensor) -> Tensor:
    """Return the centres of the voxels that have mass."""
    return (torch.nonzero(volume) + 0.5) / SIDE


def on_grid(x: Tensor) -> Tensor:
    """Return points as a volume, each shared between its eight nearest voxels."""
    volume = torch.zeros(SIDE + 1, SIDE + 1, SIDE + 1, dtype=x.dtype)
    position = (SIDE * x - 0.5).clamp(0, SIDE - 1)
    low, share = position.floor().long(), position - position.floor()
    for corner in range(8):
        bits = torch.tensor([corner >> axis & 1 for axis in range(3)])
        weight = torch.where(bits.bool(), share, 1 - share).prod(1)
        volume.index_put_(tuple((low + bits).T), weight, accumulate=True)
    return volume[:SIDE, :SIDE, :SIDE] / len(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rate", type=float, default=0.5, help="the share of the way that a step goes (default: 0.5)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    moving, fixed = volumes()
    x, y, loss = points(moving), points(fixed), VolumesLoss().eval()
    table = Table(title=f"{len(x):,} points moved to {len(y):,}")
    for column in ("step", "transport cost", "VolumesLoss on the grid", "time"):
        table.add_column(column, justify="right")
    shown = [("fixed", fixed)]
    for step in range(options.steps + 1):
        start = time.perf_counter()
        x.requires_grad_()
        value = wasserstein(None, None, (x, y))
        (gradient,) = torch.autograd.grad(value, x)
        seconds, x = time.perf_counter() - start, x.detach()
        volume = on_grid(x)
        shown.append((f"step {step}", volume))
        table.add_row(str(step), f"{value.item():.3e}", f"{loss(volume, fixed).item():.3e}", f"{seconds:.2f} s")
        x = x - options.rate * len(x) / 2 * gradient
    Console(width=100).print(table)
    figure, axes = plt.subplots(1, len(shown), figsize=(2 * len(shown), 2.3), layout="constrained")
    for axis, (name, volume) in zip(axes, shown, strict=True):
        axis.imshow(volume[SIDE // 2].numpy(), cmap="gray_r")
        axis.set(title=name, xticks=[], yticks=[])
    options.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out / "registration.png", dpi=120)
    print(f"wrote {options.out / 'registration.png'}")


if __name__ == "__main__":
    main()
