"""Fives as mixtures of strokes: Wasserstein NMF beside scikit-learn's, a table and three pictures.

    python examples/nmf.py [--out DIR] [--quick]
    python examples/nmf.py --data faces.npz --shape 32 27

Without --data the images are the paper's 200 fives, which are part of the package; without compiled kernels they are
fewer and smaller. A file is an npz file with an array "images" of shape (n, height, width). Ctrl-C saves the model
after the current epoch, and --resume resumes it.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from gibbsot import GridCost, WassersteinNMF, datasets, plots, solve_batch
from gibbsot.core import native
from gibbsot.io import readers

Array = NDArray[np.float64]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for model and pictures (default: demo)")
    parser.add_argument("--data", type=Path, help="an npz file of images instead of the fives")
    parser.add_argument("--shape", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), help="shrink the images to this")
    parser.add_argument("--components", type=int, default=40, help="how many (default: 40)")
    parser.add_argument("--epochs", type=int, default=200, help="passes over the data at most (default: 200)")
    parser.add_argument("--quick", action="store_true", help="40 images, 10 components, 20 epochs")
    parser.add_argument("--resume", action="store_true", help="resume the model in the folder")
    args = parser.parse_args()
    args.reduced = native.name() == "numpy" and args.data is None and args.shape is None
    if args.reduced:
        args.quick, args.shape = True, [14, 14]
    if args.quick:
        args.components, args.epochs = min(args.components, 10), min(args.epochs, 20)
    return args


def data(args: argparse.Namespace) -> tuple[Array, tuple[int, int]]:
    """Return images as rows of weights, and their shape."""
    limit = 40 if args.quick else None
    if args.data is None:
        rows, shape = datasets.mnist_fives(limit or 200), (28, 28)
    else:
        rows, found, *_ = readers.collection(args.data, limit=limit)
        if found is None or not rows.any(axis=1).all():
            raise ValueError(f"{args.data}: expected images of shape (n, height, width), each with mass")
        shape = found
    if args.shape is not None:
        rows = datasets.shrink(rows.reshape(-1, *shape), args.shape).reshape(len(rows), -1)
        shape = (args.shape[0], args.shape[1])
    return rows / rows.sum(axis=1, keepdims=True), shape


def draw(model: WassersteinNMF, plain: Array, X: Array, shape: tuple[int, int], out: Path) -> None:
    """Write the pictures: components of both models, some images with their mixtures, and the convergence."""
    cmap = "gray_r" if np.median(X) == 0 else "gray"  # ink on an empty background, or light everywhere
    some = np.unique(np.linspace(0, len(X) - 1, 20).astype(int))
    components, reconstruction, convergence = (plots.new_figure(*size) for size in ((13, 5.2), (10, 6), (8, 4.5)))
    both = {"scikit-learn's NMF": plain, "Wasserstein NMF": model.components_[np.argsort(-model.usage_)]}
    halves: Any = components.subfigures(1, 2, wspace=0.03)
    for half, (name, found) in zip(halves, both.items(), strict=True):
        plots.components(half, found, shape, cmap=cmap)
        half.axes[0].set_title(name)
    mixtures = model.inverse_transform(model.memberships_[some])
    plots.reconstruction(reconstruction, X[some], mixtures, shape, cmap=cmap)
    plots.convergence(convergence.subplots(), model.history_)
    figures = {"components": components, "reconstruction": reconstruction, "convergence": convergence}
    for name, figure in figures.items():
        figure.savefig(out / f"{name}.png", dpi=120, bbox_inches="tight")


def plain(X: Array, K: int) -> tuple[Array, Array, int]:
    """Return components and memberships of scikit-learn's NMF, as weights, and its iterations."""
    model = NMF(K, random_state=0)
    with warnings.catch_warnings(), threadpool_limits(1):  # its products are too small to share
        warnings.simplefilter("ignore", ConvergenceWarning)
        W = model.fit_transform(X)
    mass = model.components_.sum(axis=1)
    W = W * mass
    D = model.components_ / np.where(mass > 0, mass, 1)[:, None]
    return D, W / W.sum(axis=1, keepdims=True), model.n_iter_


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Yield a list that is no longer empty after Ctrl-C; a second Ctrl-C interrupts immediately."""
    received: list[int] = []

    def handle(number: int, _: Any) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, previous)


def run(args: argparse.Namespace, console: Console) -> int:
    X, shape = data(args)
    if args.reduced:
        console.print(
            f"No compiled kernels, and NumPy is many times slower: only {len(X)} images, shrunk to {shape[0]} x "
            f"{shape[1]} pixels, {args.components} components and {args.epochs} epochs. This takes about two minutes.",
            highlight=False,
        )
    args.out.mkdir(parents=True, exist_ok=True)
    path, cost = args.out / "model.npz", GridCost(shape)
    start = time.perf_counter()
    with interrupts() as received:
        changed: dict[str, Any] = {"max_epochs": args.epochs, "verbose": True, "callbacks": (lambda _: bool(received),)}
        if args.resume:
            model = WassersteinNMF.load(path).set_params(**changed)
            start -= model.history_[-1].seconds
        else:
            model = WassersteinNMF(args.components, cost=cost, random_state=0, n_jobs=-1, **changed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "max_epochs", ConvergenceWarning)  # the table says it
            model.resume(X) if args.resume else model.fit(X)
        seconds = time.perf_counter() - start
        model.save(path)
    if received:
        command = shlex.join([sys.executable, *(word for word in sys.argv if word != "--resume"), "--resume"])
        console.print(
            f"Stopped after {model.n_iter_} epochs and saved to {path}. To resume:\n{command}",
            highlight=False,
            soft_wrap=True,
        )
        return 130

    table = Table(title=f"{len(X)} images of {shape[0]} x {shape[1]} as mixtures, kernels: {native.name()}")
    for column in ("", "exact cost", "pixels per component", "epochs", "time"):
        table.add_column(column, justify="right" if column else "left")
    K, start = len(model.components_), time.perf_counter()
    theirs, W, iterations = plain(X, K)
    by_usage = theirs[np.argsort(-W.mean(axis=0))]
    rows = {
        "scikit-learn's NMF": (theirs, W, str(iterations), time.perf_counter() - start),
        "Wasserstein NMF": (model.components_, model.memberships_, _end(model), seconds),
    }
    for name, (D, W, end, spent) in rows.items():
        exact = solve_batch(W @ D, X, cost, normalize=True, n_jobs=-1).value.mean()
        pixels = np.mean(1 / (D**2).sum(axis=1))  # as many as a uniform component of the same concentration
        table.add_row(name, f"{exact:.6f}", f"{pixels:.0f}", end, f"{spent:.1f} s")
    draw(model, by_usage, X, shape, args.out)
    console.print(table)
    pictures = ", ".join(str(args.out / name) for name in ("components.png", "reconstruction.png", "convergence.png"))
    console.print(f"Pictures: {pictures}\nModel: {path}", highlight=False, soft_wrap=True)
    script = Path(sys.executable).with_name("gibbsot")
    if args.data is None and not args.quick and script.exists():
        fives = str(Path(datasets.__file__).parent / "data" / "fives.npz")
        words = [str(script), "ot", fives, fives, "--rows", "0", "1", "--plan-picture", str(args.out / "plan.png")]
        command = shlex.join(_short(word) for word in words)
        console.print(f"Try next, the exact transport between two fives:\n  {command}", highlight=False, soft_wrap=True)
    return 0


def _end(model: WassersteinNMF) -> str:
    """Return the epochs of a fit, and whether it ended because there were no more."""
    return str(model.n_iter_) if model.converged_ else f"{model.n_iter_} (limit)"


def _short(word: str) -> str:
    """Return a path below the current folder without that."""
    path = Path(word)
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else word


def main() -> int:
    args, console = arguments(), Console()
    try:
        return run(args, console)
    except (ImportError, OSError, ValueError, KeyError) as error:
        Console(stderr=True).print(f"error: {error}", markup=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
