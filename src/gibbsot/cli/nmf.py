"""``gibbsot nmf``: Wasserstein NMF of a collection of measures, with checkpoints and interrupts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import numpy as np
import typer
from rich.console import Console

from .. import __version__, plots
from ..core import native
from ..costs import Cost
from ..distributed import checkpoints
from ..io import atomic, readers, strict_json
from ..io.readers import Collection
from ..oracle import evaluation
from . import _common, _inputs
from ._common import (
    CostOption,
    Data,
    Header,
    Interrupt,
    Invert,
    Jobs,
    Json,
    Key,
    Label,
    Labels,
    Limit,
    Power,
    Quiet,
    Seed,
    Shape,
    Size,
    Spacing,
    Vectors,
)
from ._text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..models.nmf.estimator import WassersteinNMF

EPILOG = (
    "Examples:\n\n"
    "  gibbsot nmf fives --components 40 --out fives\n\n"
    "  gibbsot nmf photos/ --size 32 27 --components 20 --out faces\n\n"
    "  gibbsot nmf train-images-idx3-ubyte.gz --labels train-labels-idx1-ubyte.gz --label 5 "
    "--components 40 --out fives\n\n"
    "  gibbsot nmf fives --out fives --resume   (after Ctrl-C or a kill; --epochs 400 for more epochs)\n\n"
    "  gibbsot nmf shards/ --shape 28 28 --components 40 --scheduler tcp://head:8786 --out run"
)

OPTIONS = "options.json"  # how the data were read
_FILES = (
    *("components.npy", "memberships.npy", "model.npz", OPTIONS, "report.json", "convergence.png"),
    "components.png",
)
_PATHS = ("labels", "vectors")
_READING = ("key", "shape", "labels", "label", "limit", "invert", "header")
_SAVED = (*_READING, "size", "cost", "vectors", "power", "spacing")
_IMAGE_FILES = ("reconstruction.png",)
_MAX_PROFILES = 64  # components of measures that are not images, in one figure
_SHARDS_PER_THREAD = 3


def nmf(
    ctx: typer.Context,
    data: Data,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.", show_default=False)],
    components: Annotated[int | None, typer.Option(metavar="K", help="Number of components.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data at most (default: 200).")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the model in DIR; the result is that of an uninterrupted run.")
    ] = False,
    checkpoint: Annotated[float, typer.Option(metavar="SECONDS", help="Save the model this often.")] = 30.0,
    shape: Shape = None,
    size: Size = None,
    label: Label = None,
    labels: Labels = None,
    limit: Limit = None,
    cost_option: CostOption = None,
    vectors: Vectors = None,
    power: Power = 2.0,
    spacing: Spacing = None,
    invert: Invert = False,
    key: Key = None,
    header: Header = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Compute on the workers of this Dask scheduler.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Compute on a local Dask cluster of N processes.")
    ] = None,
    seed: Seed = 0,
    jobs: Jobs = -1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    """Approximate measures by mixtures of a few components, with the least transport cost.

    Writes components.npy, memberships.npy, model.npz, report.json and figures.

    Ctrl-C saves the model after the current epoch and prints the command that resumes.

    On a cluster, components are updated once per epoch, and the workers read the files of a folder of matrices.

    All workers need access to these files and to DIR, where they write checkpoints.
    """
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    options = FitOptions(
        data=data,
        size=size,
        reading={
            "key": key,
            "shape": shape,
            "labels": labels,
            "label": label,
            "limit": limit,
            "invert": invert,
            "header": header,
        },
        out=out,
        components=components,
        epochs=epochs,
        resume=resume,
        checkpoint=checkpoint,
        cost=cost_option,
        vectors=vectors,
        power=power,
        spacing=spacing,
        scheduler=scheduler,
        workers=workers,
        seed=seed,
        jobs=jobs,
        given={name for name, source in sources.items() if source is not None and source.name != "DEFAULT"},
    )
    options.check()
    native.threads(jobs)
    if resume:
        options = options.as_saved()
    found, cost = _read(options)
    X, shape = found.rows, found.shape
    plots.new_figure(1, 1)  # raises early if matplotlib is missing
    console = _common.stderr_console(quiet)
    with (
        _common.locked_folder(out),
        _client(options) as client,
        Interrupt(lambda: console.print("stopping after this epoch; Ctrl-C again stops immediately")) as interrupt,
    ):
        options.check()  # again: a run may have ended since
        read, measured = options.about(found, cost)

        def say() -> None:
            if not as_json:
                console.print(printable(f"{data}: {read}"))
                console.print(printable(f"cost: {measured}"))

        try:
            model = _fit(options, X, cost, client, interrupt, say, verbose=not quiet)
        except KeyboardInterrupt:
            if options.saved:
                console.print(printable(f"stopped; --resume resumes from the last checkpoint in {options.model_path}"))
            raise
        report = {"read": read, "ground_cost": measured} | _report(model, shape, data)
        if interrupt.requested:
            options.save_model(model)
            message = f"stopped after {model.n_iter_} epochs, the model is in {options.model_path}"
            words = [*ctx.obj, *([] if resume else ["--resume"])]
            return _common.interrupted(console, message, words, report if as_json else None)
        _write(model, shape, options, report)
    if as_json:
        _common.print_json(report)
    elif not quiet:
        _print(report, shape, out)
    return 0


@dataclass(frozen=True)
class FitOptions:
    """The options of ``gibbsot nmf`` that the fit depends on; `given` has the names of those on the command line."""

    data: str
    size: tuple[int, int] | None
    reading: dict[str, Any]  # further arguments of `readers.collection`
    out: Path
    components: int | None
    epochs: int | None
    resume: bool
    checkpoint: float
    cost: str | None
    vectors: Path | None
    power: float
    spacing: str | None
    scheduler: str | None
    workers: int | None
    seed: int
    jobs: int
    given: set[str]

    @property
    def distributed(self) -> bool:
        """Whether a Dask cluster computes."""
        return self.scheduler is not None or self.workers is not None

    @property
    def model_path(self) -> Path:
        """The model file, or the folder of the checkpoints of a cluster."""
        return self.out / ("checkpoints" if self.distributed else "model.npz")

    @property
    def saved(self) -> bool:
        """Whether there is a model to resume: a run that was killed early leaves a folder without a checkpoint."""
        return checkpoints.exist(self.model_path) if self.distributed else self.model_path.exists()

    def save_model(self, model: Any) -> None:
        """Save a model, unless workers have written its checkpoints, with what --resume needs."""
        if not self.distributed:
            model.save(self.model_path)
        with atomic.FileGroup() as files:
            self.write(files)

    def write(self, files: atomic.FileGroup) -> None:
        """Write how the data are read and which cost they have, for --resume."""
        kept = {name: None if value is None else str(Path(value).resolve()) if name in _PATHS else value
                for name, value in self._kept().items()}  # fmt: skip
        with files.open(self.out / OPTIONS) as file:
            file.write(strict_json.dumps(kept, indent=1).encode() + b"\n")

    def _kept(self) -> dict[str, Any]:
        own = {"cost": self.cost, "vectors": self.vectors, "power": self.power, "spacing": self.spacing}
        if self.cost is not None and Path(self.cost).is_file():
            own["cost"] = str(Path(self.cost).resolve())
        return self.reading | {"size": self.size} | own

    def as_saved(self) -> FitOptions:
        """Return the options with those of the model's folder where the command line has none."""
        path = self.out / OPTIONS
        if not path.is_file():
            return self
        saved, given = saved_options(path), {"cost" if name == "cost_option" else name for name in self.given}
        kept = {name: value if name in given else saved[name] for name, value in self._kept().items()}
        reading = {name: kept[name] for name in self.reading}
        own = {name: kept[name] for name in ("size", "cost", "vectors", "power", "spacing")}
        return replace(self, reading=reading, **own)

    def about(self, found: Collection, cost: Cost) -> tuple[str, str]:
        """Return what was read and which cost is used."""
        measured = _inputs.describe_cost(cost, self.cost, self.power, False, self.spacing)
        if isinstance(found.rows, list):
            sides = "" if found.shape is None else f" of images of {found.shape[0]} x {found.shape[1]} pixels"
            return f"{len(found.rows)} files{sides}", measured
        return _inputs.describe_collection(found, self.cost), measured

    def check(self) -> None:
        """Raise for options that are wrong whatever the data are."""
        _common.check_seed(self.seed)
        if not self.checkpoint >= 0:
            raise ValueError(f"--checkpoint: expected seconds >= 0, got {self.checkpoint}")
        if self.workers is not None and (self.workers < 1 or self.scheduler is not None):
            raise ValueError(f"--workers: expected at least 1, and not together with --scheduler; got {self.workers}")
        if self.resume:
            return
        _common.check_outside(self.data, "--out", self.out)
        if self.saved or (self.out / "model.npz").exists():
            hint = "use --resume to resume it, or remove it, or choose another --out"
            raise FileExistsError(f"{self.model_path}: exists already; {hint}")


# Reading


def saved_options(path: Path) -> dict[str, Any]:
    """Read how the data of a model were read and which cost they have, as `FitOptions.write` wrote it."""
    try:
        saved = json.loads(path.read_text())
        kept = {name: saved[name] for name in _SAVED}
        for name in _PATHS:
            kept[name] = None if kept[name] is None else Path(kept[name])
        for name in ("shape", "size"):
            kept[name] = None if kept[name] is None else (int(kept[name][0]), int(kept[name][1]))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{path}: is damaged ({error}); remove it and give the options again") from None
    return kept


def _read(options: FitOptions) -> tuple[Collection, Cost]:
    """Read the measures, or find the files that the shards read; return them and the cost."""
    n, K = None, options.components
    X: Any = _common.matrix_files(options.data, options.size, **options.reading)
    if X:
        found = readers.collection(X[0], shape=options.reading["shape"])  # the shards check the others
        m = found.rows.shape[1]
    else:
        found = _common.read_collection(options.data, options.size, **options.reading)
        X, (n, m) = found.rows, found.rows.shape
    if K is None and not options.resume:
        raise ValueError("--components: expected the number of components")
    if K is not None and not 1 <= K <= (n or K):
        raise ValueError(f"--components: expected a number from 1 to {n}, the number of measures, got {K}")
    data = None if isinstance(X, list) else X
    cost = _common.cost_of_bins(data, m, found.shape, options.cost, options.vectors, options.power, options.spacing)
    return found._replace(rows=X), cost


# Fitting


def _client(options: FitOptions) -> AbstractContextManager[Any]:
    """Return the context of a client of the Dask scheduler or of a local cluster; of None if neither is wanted."""
    if not options.distributed:
        return nullcontext()
    from ..distributed.dask import connected

    return connected(options.scheduler, options.workers)


def _fit(
    options: FitOptions,
    X: Any,
    cost: Cost,
    client: Any,
    interrupt: Interrupt,
    say: Callable[[], None],
    verbose: bool,
) -> WassersteinNMF:
    """Fit a new model or resume a saved one, with checkpoints, until it has converged or an interrupt is requested."""
    from ..models._loop import Checkpoints  # imports scikit-learn
    from ..models.nmf.estimator import WassersteinNMF

    path = options.model_path
    said: list[bool] = []

    def say_once(_: Any) -> None:  # after the first epoch: data that are refused give one line
        if not said:
            said.append(True)
            say()

    callbacks: list[Any] = [say_once, lambda _: interrupt.requested]
    parameters: dict[str, Any] = {"verbose": verbose, "callbacks": callbacks}
    if options.epochs is not None:
        parameters["max_epochs"] = options.epochs
    if options.distributed:
        parameters |= {"client": client, "update": "full", "n_jobs": None, "checkpoint": path}
        parameters["checkpoint_seconds"] = max(options.checkpoint, 1e-3)
    else:
        parameters["n_jobs"] = options.jobs
        callbacks.insert(0, Checkpoints(options.save_model, options.checkpoint))
    if not options.resume:
        model = WassersteinNMF(options.components or 0, cost=cost, random_state=options.seed, **parameters)
        return model.fit(_shards(X, client))
    if not options.saved:
        what = "there is no checkpoint" if options.distributed else "there is no such file"
        raise FileNotFoundError(f"{path}: {what}, so nothing to resume")
    model = WassersteinNMF.load(path, client=client)
    _check_same(options, cost, model)
    model.set_params(**parameters).resume(_shards(X, client, model))
    say_once(model)  # there may have been no epoch left
    return model


def _check_same(options: FitOptions, cost: Cost, model: Any) -> None:
    """Raise ValueError for options on the command line that differ from those of the model to resume."""
    path = options.model_path
    for name, saved in (("components", model.n_components), ("seed", model.random_state)):
        if name in options.given and (value := getattr(options, name)) != saved:
            raise ValueError(f"--{name}: the model in {path} has {saved}, not {value}")
    if (bins := cost.shape[0]) != model.n_features_in_:
        hint = "leave out --size and --shape, which the model has"
        raise ValueError(f"{options.data}: has {bins} bins, and the model in {path} {model.n_features_in_}; {hint}")
    several = (("cost_option", "--cost"), ("vectors", "--vectors"), ("power", "--power"), ("spacing", "--spacing"))
    for name, option in several:
        if name in options.given and cost != model.cost_:
            raise ValueError(f"{option}: the model in {path} has another cost")


def _shards(X: Any, client: Any, model: Any = None) -> Any:
    """Return data as the model takes them: on a cluster an array is split, as that of the saved model was."""
    if client is None or not isinstance(X, np.ndarray):
        return X
    if model is not None:
        return np.split(X, np.cumsum([one.n_rows for one in model._run.shards.metadata])[:-1])
    threads = max(1, sum(client.nthreads().values()))
    return np.array_split(X, min(len(X), _SHARDS_PER_THREAD * threads))


# Results


def _report(model: Any, shape: tuple[int, int] | None, data: str) -> dict[str, Any]:
    """Return the content of report.json."""
    D = model.components_.astype(np.float64)
    return {
        "data": data,
        "measures": sum(one.n_rows for one in model._run.shards.metadata),
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
        "files": [*_FILES, *(_IMAGE_FILES if shape else ())],
    }


def _write(model: Any, shape: tuple[int, int] | None, options: FitOptions, report: dict[str, Any]) -> None:
    """Write all files of a fit; they are renamed after all of them are written."""
    out, invert = options.out, options.reading["invert"]
    with atomic.FileGroup() as files:
        with files.open(out / "components.npy") as file:
            np.save(file, model.components_)
        with files.open(out / "memberships.npy") as file:
            write_rows(file, model.memberships_)
        for name, figure in _figures(model, shape, invert):
            _common.save_png(files, out / name, figure)
        with files.open(out / "report.json") as file:
            file.write(strict_json.dumps(report, indent=1).encode() + b"\n")
        options.write(files)
        with files.path(out / "model.npz") as path:
            model.save(path)


def write_rows(file: BinaryIO, matrix: Any) -> None:
    """Write a matrix as .npy; a Dask array block by block."""
    header = {"descr": np.lib.format.dtype_to_descr(matrix.dtype), "fortran_order": False, "shape": matrix.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for block in matrix.blocks if hasattr(matrix, "blocks") else [matrix]:
        file.write(np.ascontiguousarray(block).tobytes())


def _figures(model: Any, shape: tuple[int, int] | None, invert: bool) -> Iterator[tuple[str, Figure]]:
    """Draw the convergence, the components by decreasing usage, and some images with their mixtures.

    Images are drawn as they were read: dark ink if they were inverted, else light on dark. The number of a component is
    its row in components.npy.
    """
    figure = plots.new_figure(8, 4.5)
    plots.convergence(figure.subplots(), model.history_)
    yield "convergence.png", figure
    order = np.argsort(-model.usage_, kind="stable")
    figure = plots.new_figure(10, 6)
    if shape is None:
        order = order[:_MAX_PROFILES]
        plots.profiles(figure, model.components_[order], numbers=order.tolist())
        yield "components.png", figure
        return
    cmap = "gray_r" if invert else "gray"
    plots.components(figure, model.components_[order], shape, cmap=cmap, numbers=order.tolist())
    yield "components.png", figure
    figure = plots.new_figure(10, 6)
    X, P = model._reconstructions()
    plots.reconstruction(figure, X, P, shape, cmap=cmap)
    yield "reconstruction.png", figure


def _print(report: dict[str, Any], shape: tuple[int, int] | None, out: Path) -> None:
    """Print the result for a reader."""
    kind = f"images of {shape[0]} x {shape[1]}" if shape else "measures"
    title = f"{report['measures']} {kind} as mixtures of {report['components']} components"
    Console().print(title, highlight=False)
    _common.print_table(
        ("mean transport cost", f"{report['cost']:.6g}", f"exact, of a sample of {report['sample']}"),
        (
            "a component covers",
            f"{report['effective_bins']:.0f} of {math.prod(report['shape'])} {'pixels' if shape else 'bins'}",
            "on average, as many as a uniform one that is as concentrated",
        ),
        ("epochs", f"{report['epochs']}", f"{report['seconds']:.1f} s, kernels: {report['kernel']}"),
    )
    _common.print_files(out, report["files"])
