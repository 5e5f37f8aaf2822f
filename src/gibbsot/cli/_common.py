"""What the subcommands of ``gibbsot`` have in common: their measures, costs and results."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from .. import __version__, datasets, plots
from ..core import native
from ..core.costs import Cost, DenseCost, GridCost, PointCost
from ..distributed import fixed_point
from ..io import readers, writers
from ..io.readers import Array, Collection, Measure
from ..solvers import evaluation

_ALWAYS = ("components.npy", "memberships.npy", "model.npz", "report.json", "convergence.png")
_OF_IMAGES = ("components.png", "reconstruction.png")
_PARTS = 3  # for a thread of a worker


class Interrupt:
    """Turns the first Ctrl-C into a wish to stop after the epoch; the second one stops at once."""

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        self.told, self.wanted = told, False

    def __enter__(self) -> Interrupt:
        self.before = signal.signal(signal.SIGINT, self.note)
        return self

    def note(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            signal.default_int_handler(number, frame)
        self.wanted = True
        self.told()

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self.before)


def again(words: Sequence[str], *more: str) -> str:
    """Return the command line that goes on with an interrupted one."""
    return shlex.join([*words, *(word for word in more if word not in words)])


def named_or_read(
    data: str,
    *,
    key: str | None = None,
    shape: tuple[int, int] | None = None,
    size: tuple[int, int] | None = None,
    label: int | None = None,
    labels: Path | None = None,
    limit: int | None = None,
    invert: bool = False,
) -> Collection:
    """Return the data set of a name, or that of a file or folder."""
    if data not in ("fives", "digits", "faces"):
        return readers.collection(
            data, key=key, shape=shape, labels=labels, label=label, limit=limit, invert=invert, resize=resize(size)
        )
    if limit is not None and limit < 1:
        raise ValueError(f"--limit: expected at least 1, got {limit}")
    for name, given in (("key", key), ("shape", shape), ("labels", labels), ("invert", invert or None)):
        if given is not None:
            raise ValueError(f"--{name}: is for files; {data} has its own (a folder of this name is ./{data})")
    if label is not None and data != "digits":
        raise ValueError(f"--label: {data} has no labels")
    if data == "faces":
        sides = size or (32, 27)
        return Collection(datasets.faces(shape=sides)[:limit], sides)
    rows, sides = (datasets.mnist_fives(), (28, 28)) if data == "fives" else (datasets.digits(label), (8, 8))
    if size is not None:
        rows, sides = datasets.shrink(rows.reshape(-1, *sides), size).reshape(len(rows), -1), size
    return Collection(rows[:limit], sides)


def resize(size: tuple[int, int] | None) -> readers.Resize | None:
    """Return the function that shrinks images to a size, if one is wanted."""
    return None if size is None else lambda images: datasets.shrink(images, size)


def cost_between(first: Measure, second: Measure, names: tuple[Path, Path], file: Path | None, power: float) -> Cost:
    """Return the cost between two measures."""
    sizes = len(first.weights), len(second.weights)
    if file is not None:
        return _matrix(file, sizes)
    if first.points is not None and second.points is not None:
        metric = {1.0: "cityblock", 2.0: "sqeuclidean"}.get(power)
        if metric is None:
            raise ValueError(f"--power: expected 1 or 2 for points, got {power:g}")
        (_, d1), (_, d2) = first.points.shape, second.points.shape
        if d1 != d2:
            raise ValueError(f"{names[1]}: has points with {d2} coordinates; expected {d1} as in {names[0]}")
        return PointCost(first.points, second.points, metric)
    if first.shape is None or first.shape != second.shape:
        sides = [" x ".join(map(str, one.shape or ())) for one in (first, second)]
        raise ValueError(f"{names[1]}: is {sides[1]}, {names[0]} is {sides[0]}; expected one size (or --size, --cost)")
    return GridCost(first.shape, power=power)


def cost_of_bins(m: int, shape: tuple[int, int] | None, file: Path | None, power: float) -> Cost:
    """Return the cost between m bins."""
    return GridCost(shape or (m,), power=power) if file is None else _matrix(file, (m, m))


def same_cost(first: Cost, second: Cost) -> bool:
    """Return whether two costs are made of the same numbers."""
    a, b = first.arrays(), second.arrays()
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def _matrix(file: Path, sizes: tuple[int, int]) -> Cost:
    matrix = readers.array(file)
    if matrix.shape != sizes:
        raise ValueError(f"{file}: expected costs of shape {sizes}, got {matrix.shape}")
    return DenseCost(matrix)


def places(measure: Measure) -> Array | None:
    """Return where the points are if it is in the plane."""
    if measure.points is not None:
        return measure.points if measure.points.shape[1] == 2 else None
    if measure.shape is None or len(measure.shape) != 2:
        return None
    return np.indices(measure.shape)[::-1].reshape(2, -1).T.astype(np.float64)


def summary(model: Any, shape: tuple[int, int] | None, data: str) -> dict[str, Any]:
    """Return what there is to say of a fit."""
    D = model.components_.astype(np.float64)
    return {
        "data": data,
        "measures": sum(fact.size for fact in model._run.shards.facts),
        "shape": list(shape or (D.shape[1],)),
        "components": len(D),
        "epochs": model.n_iter_,
        "cost": model.reconstruction_err_,
        "sample": len(evaluation.sample(model._run.n)),
        "effective_bins": float(np.mean(1 / (D**2).sum(axis=1))),  # of a uniform component as concentrated
        "usage": model.usage_.tolist(),
        "seconds": model.history_[-1].seconds,
        "seed": model.random_state,
        "kernel": native.name(),
        "version": __version__,
        "files": [*_ALWAYS, *(_OF_IMAGES if shape else ())],
    }


def write(model: Any, shape: tuple[int, int] | None, report: dict[str, Any], out: Path) -> None:
    """Write all that a fit leaves."""
    with writers.Together() as written:
        with written.open(out / "components.npy") as file:
            np.save(file, model.components_)
        with written.open(out / "memberships.npy") as file:
            writers.rows(file, model.memberships_)
        pictures(written, model, shape, out)
        with written.open(out / "report.json") as file:
            file.write(json.dumps(writers.finite(report), indent=1).encode() + b"\n")
        with written.path(out / "model.npz") as path:
            model.save(path)


def pictures(written: writers.Together, model: Any, shape: tuple[int, int] | None, out: Path) -> None:
    """Draw a fit and, of images, its components, the most used first, and some mixtures of them beside the data."""
    canvas = writers.figure(8, 4.5)
    plots.convergence(canvas.subplots(), model.history_)
    written.picture(out / "convergence.png", canvas)
    if shape is None:
        return
    some, D = evaluation.sample(model._run.n), fixed_point.components(model.components_)
    X, P = map(np.concatenate, zip(*model._run.shards.each("shown", some, D, True), strict=True))
    style = "gray_r" if np.median(X) == 0 else "gray"  # ink on empty ground, or light all over
    canvas = writers.figure(10, 6)
    plots.components(canvas, model.components_[np.argsort(-model.usage_)], shape, cmap=style)
    written.picture(out / "components.png", canvas)
    canvas = writers.figure(10, 6)
    plots.reconstruction(canvas, X, P, shape, cmap=style)
    written.picture(out / "reconstruction.png", canvas)


@contextmanager
def computers(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """Give a client of a Dask scheduler, or of a cluster of so many processes here; None if neither is wanted."""
    if scheduler is None and workers is None:
        yield None
        return
    from ..distributed.dask import connected

    with connected(scheduler, workers) as client:
        yield client


def in_parts(rows: Array, client: Any, model: Any = None) -> list[Array]:
    """Return rows in parts for the workers of a client: those of a model, or a few for each of their threads."""
    if model is not None:
        return np.split(rows, np.cumsum([fact.size for fact in model._run.shards.facts])[:-1])
    threads = max(1, sum(client.nthreads().values()))
    return np.array_split(rows, min(len(rows), _PARTS * threads))
