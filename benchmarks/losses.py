"""Transport costs between images as a loss, forward and backward: ours, POT, GeomLoss and OTT, on one thread.

    python benchmarks/losses.py

Pairs of handwritten fives, with 1 % of uniform weight mixed into p. "moved" is the call after p has moved by 1 %
towards another five. Errors are against exact values and duals, relative, the mean over the pairs; that of a gradient
is the norm of the difference relative to the norm of the exact one. Seconds are CPU seconds for all pairs; slow peers
run on fewer pairs, and their time is multiplied. GeomLoss and OTT are left out if they are not installed. OTT's solver
does not converge where q has points without weight: there 0.01 % of uniform weight is mixed into q.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import ot
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.ndimage import zoom
from torch import Tensor

from gibbsot import GridCost, datasets, solve_batch
from gibbsot.core import native
from gibbsot.torch import WassersteinLoss, wasserstein

Array = NDArray[np.float64]
console = Console(width=130)


class Pairs(NamedTuple):
    """Measures before and after a small step, and the exact values and gradients after it."""

    cost: GridCost
    before: Tensor
    p: Tensor
    q: Tensor
    value: Array
    gradient: Array


class Row(NamedTuple):
    """What was measured of a loss."""

    name: str
    seconds: float
    value: float
    gradient: float


def pairs(side: int, n: int) -> Pairs:
    images = datasets.mnist_fives(3 * n).reshape(-1, 28, 28)
    if side != 28:
        images = np.maximum(zoom(images, (1, side / 28, side / 28), order=1), 0)
        images[images < 1e-6] = 0
    X = images.reshape(len(images), -1)
    X /= X.sum(axis=1, keepdims=True)
    q, before = X[:n], 0.99 * X[n : 2 * n] + 0.01 / side**2
    p, cost = 0.99 * before + 0.01 * X[2 * n :], GridCost((side, side))
    exact = solve_batch(p, q, cost)
    f = exact.potentials[0]
    tensors = [torch.from_numpy(x) for x in (before, p, q)]
    return Pairs(cost, tensors[0], tensors[1], tensors[2], exact.value, f - f.mean(axis=1, keepdims=True))


def off_by(gradient: Array, exact: Array) -> float:
    """Return the mean relative error of gradients."""
    return float((np.linalg.norm(gradient - exact, axis=1) / np.linalg.norm(exact, axis=1)).mean())


def measured(
    name: str, data: Pairs, loss: Callable[[Tensor, Tensor], Tensor], few: int | None = None, repeats: int = 1
) -> Row:
    """Return time and errors of a loss, whose backward pass is timed too; the least of some repetitions."""
    few = few or len(data.p)
    seconds = np.inf
    for _ in range(repeats):
        p = data.p[:few].clone().requires_grad_()
        start = time.process_time()
        value = loss(p, data.q[:few])
        torch.autograd.backward(value.sum())
        seconds = min(seconds, time.process_time() - start)
    assert p.grad is not None
    gradient = p.grad.numpy() - p.grad.numpy().mean(axis=1, keepdims=True)
    exact, wanted = data.value[:few], data.gradient[:few]
    error = off_by(gradient, wanted)
    return Row(name, seconds * len(data.p) / few, float(np.abs(value.detach().numpy() / exact - 1).mean()), error)


def ours(data: Pairs) -> list[Row]:
    index, found = torch.arange(len(data.p)), []
    found.append(measured("wasserstein, exact", data, lambda p, q: wasserstein(p, q, data.cost), repeats=2))
    options: list[tuple[str, dict[str, Any]]] = [
        ('WassersteinLoss(method="exact"), moved', {"method": "exact"}),
        ('WassersteinLoss(method="kept"), moved', {"method": "kept"}),
        ('WassersteinLoss(method="gibbs"), moved', {"method": "gibbs"}),
    ]
    for name, choice in options:
        rows = []
        for _ in range(3 if choice["method"] == "exact" else 1):
            loss = WassersteinLoss(data.cost, reduction="none", **choice)
            for _ in range(30 if choice["method"] == "gibbs" else 1):
                loss(data.before, data.q, index)
            rows.append(measured(name, data, lambda p, q, loss=loss: loss(p, q, index)))  # type: ignore[misc]
        found.append(min(rows, key=lambda row: row.seconds))
    return found


def pot(data: Pairs, few: int) -> Row:
    M = torch.from_numpy(data.cost.matrix())

    def loss(p: Tensor, q: Tensor) -> Tensor:
        values = []
        for a, b in zip(p, q, strict=True):
            J = b > 0
            values.append(ot.emd2(a, b[J], M[:, J], numItermax=10**7))
        return torch.stack(values)

    return measured(f"ot.emd2 in a loop, {few} pairs", data, loss, few)


def geomloss(data: Pairs, few: int) -> list[Row]:
    try:
        from geomloss import SamplesLoss
    except ImportError:
        console.print("GeomLoss is not installed and left out: pip install --no-deps geomloss")
        return []
    axes = [torch.arange(n, dtype=torch.float64) / max(data.cost.row_shape) for n in data.cost.row_shape]
    x = torch.cartesian_prod(*axes)
    sinkhorn = SamplesLoss("sinkhorn", p=2, blur=0.01, scaling=0.9, debias=False, backend="tensorized")

    def loss(p: Tensor, q: Tensor) -> Tensor:
        # half the squared distance; points without weight are left out
        values = [2 * sinkhorn(a, x, b[b > 0], x[b > 0]) for a, b in zip(p, q, strict=True)]
        return torch.stack(values)

    return [measured(f"GeomLoss samples, blur 0.01, scaling 0.9, {few} pairs", data, loss, few)]


def ott(data: Pairs, few: int) -> list[Row]:
    try:
        import jax
        import jax.numpy as jnp
        from ott.geometry import grid
        from ott.problems.linear import linear_problem
        from ott.solvers.linear import sinkhorn
    except ImportError:
        console.print("OTT is not installed and left out: pip install ott-jax")
        return []
    sides, rows = data.cost.row_shape, []
    x = [jnp.arange(n) / max(sides) for n in sides]
    for epsilon in (1e-3, 2e-4):
        geometry = grid.Grid(x=x, epsilon=epsilon)
        solver = sinkhorn.Sinkhorn(max_iterations=5000, threshold=1e-3)

        def single(p: Any, q: Any, geometry: Any = geometry, solver: Any = solver) -> Any:
            found = solver(linear_problem.LinearProblem(geometry, p, q))
            return found.reg_ot_cost, found.f

        solve = jax.jit(single)
        a, b = (np.asarray(z[:few], np.float32) for z in (data.p, data.q))
        b = np.float32(1 - 1e-4) * b + np.float32(1e-4 / b.shape[1])
        jax.block_until_ready(solve(a[0], b[0]))  # compiled
        start = time.process_time()
        found = [jax.block_until_ready(solve(*one)) for one in zip(a, b, strict=True)]
        seconds = (time.process_time() - start) * len(data.p) / few
        f = np.array([np.asarray(one[1], np.float64) for one in found])
        value = np.array([float(one[0]) for one in found])
        wanted = data.gradient[:few]
        error = off_by(f - f.mean(axis=1, keepdims=True), wanted)
        off = float(np.abs(value / data.value[:few] - 1).mean())
        rows.append(Row(f"OTT grid, epsilon {epsilon:g}, {few} pairs", seconds, off, error))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs="+", default=[28, 64])
    parser.add_argument("--few", type=int, default=2, help="pairs for slow peers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for side in options.sides:
        n = 64 if side <= 28 else 16
        data = pairs(side, n)
        peers = [pot(data, n if side <= 28 else options.few)]
        rows = ours(data)
        peers += geomloss(data, options.few) + ott(data, options.few)
        table = Table(title=f"{n} pairs of {side} x {side}, kernels: {native.name()}, one thread")
        for column in ("loss", "CPU s", "error of value", "error of gradient", "POT / this"):
            table.add_column(column, justify="left" if column == "loss" else "right")
        for row in (*peers, *rows):
            ratio = peers[0].seconds / row.seconds
            table.add_row(row.name, f"{row.seconds:.3g}", f"{row.value:.2%}", f"{row.gradient:.2%}", f"{ratio:.3g}")
        console.print(table)


if __name__ == "__main__":
    main()
