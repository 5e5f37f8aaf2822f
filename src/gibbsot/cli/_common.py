"""Shared by the subcommands: option types, reading data, costs, printing, and interrupts."""

from __future__ import annotations

import csv
import io
import os
import platform
import shlex
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import filelock
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from .. import datasets
from ..core import validation
from ..costs import Cost, DenseCost, GridCost, PointCost
from ..io import atomic, readers, strict_json
from ..io.images import shrink, shrinking
from ..io.progress import said_aside
from ..io.readers import Collection, Measure
from ..models._costs import ALIASES, METRICS, feature_cost
from ._text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GRID_METRICS = ("sqeuclidean", "euclidean", "cityblock")  # --cost of images
_LONG = 5000  # bins of a line from which no matrix of their distances is made

# Options

_PANEL = "Common options"
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", rich_help_panel=_PANEL)]
Jobs = Annotated[int, typer.Option(help="Threads; -1 for all cores.", rich_help_panel=_PANEL)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.", rich_help_panel=_PANEL)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=_PANEL)]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder of images; a matrix with one measure per row or an array of images (.npy, .npz, .csv, "
        ".parquet), or a folder of such files with the same columns; an idx file of MNIST; or fives, digits, faces.",
    ),
]
Key = Annotated[str | None, typer.Option(metavar="NAME", help="Which array of an .npz file.")]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line of a text file has the names of columns; by default its fields decide.",
    ),
]
Size = Annotated[
    tuple[int, int] | None,
    typer.Option(metavar="HEIGHT WIDTH", help="Shrink images to this size, each side by its own factor."),
]
Invert = Annotated[bool, typer.Option("--invert", help="Dark pixels have the weight, for ink on paper.")]
CostOption = Annotated[
    str | None,
    typer.Option(
        "--cost",
        metavar="NAME or FILE",
        help="sqeuclidean, euclidean or l1 between pixels or points; a metric such as cosine; or a cost matrix.",
    ),
]
Shape = Annotated[
    tuple[int, int] | None, typer.Option(metavar="HEIGHT WIDTH", help="Rows of a matrix are images of this shape.")
]
Label = Annotated[int | None, typer.Option(help="Only measures with this label; digits have labels.")]
Labels = Annotated[Path | None, typer.Option(metavar="FILE", help="The labels, one per measure.")]
Limit = Annotated[int | None, typer.Option(metavar="N", help="Only the first N measures.")]
Vectors = Annotated[
    Path | None, typer.Option(metavar="FILE", help="An embedding of each bin as a row, for a metric in --cost.")
]
Spacing = Annotated[
    str | None,
    typer.Option(metavar="S or S,S", help="Distance of neighbouring pixels, one or one per axis; else 1/longest side."),
]
Power = Annotated[float, typer.Option(help="The cost is |x - y|^POWER, summed over the axes.")]


def check_seed(seed: int) -> None:
    """Raise ValueError for a seed that scikit-learn would not accept as random_state."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed: expected a number from 0 to 2**32 - 1, got {seed}")


# Data

_NAMED = ("fives", "digits", "faces")  # data sets


def check_outside(name: str, option: str, out: Path) -> None:
    """Refuse results in the folder of the data: the next run would read them as data."""
    if name not in _NAMED and (folder := Path(name)).is_dir() and out.resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"{option}: {out} is in the folder of the data, and the next run would read it as data; expected another "
            "folder"
        )


def matrix_files(name: str, size: tuple[int, int] | None, **options: Any) -> list[Path]:
    """Return the files of a folder of matrices, none for other data; refuse options that are for one file."""
    files = [] if name in _NAMED else readers.matrices(name)
    for option, value in (options | {"size": size}).items() if files else ():
        if option != "shape" and value is not None and value is not False:
            raise ValueError(f"--{option}: is for a single file; {name} is a folder of matrices")
    return files


def read_collection(name: str, size: tuple[int, int] | None, **options: Any) -> Collection:
    """Return the measures of a named data set, of a file or of a folder; the options are of `readers.collection`."""
    if files := matrix_files(name, size, **options):
        return _joined(files, options["shape"])
    if name not in _NAMED:
        return readers.collection(name, size=size, **options)
    limit, label = options["limit"], options["label"]
    if limit is not None and limit < 1:
        raise ValueError(f"--limit: expected at least 1, got {limit}")
    for option in ("key", "shape", "labels", "invert", "header"):
        if options.get(option) is not None and options[option] is not False:
            raise ValueError(f"--{option}: is for files, not for the data set {name} (a folder of this name: ./{name})")
    if label is not None and name != "digits":
        raise ValueError(f"--label: {name} has no labels")
    if name == "faces":
        shape = size or (32, 27)
        return Collection(datasets.faces(shape=shape)[:limit], shape)
    rows, shape = (datasets.mnist_fives(), (28, 28)) if name == "fives" else (datasets.digits(label), (8, 8))
    changed = shrinking(shape, size)
    if size is not None:
        rows, shape = shrink(rows.reshape(-1, *shape), size).reshape(len(rows), -1), size
    return Collection(rows[:limit], shape, changed=changed)


def _joined(files: Sequence[Path], shape: tuple[int, int] | None) -> Collection:
    """Return the measures of several files, in their order."""
    from ..models.geometry import sets as _sets

    parts = [readers.collection(file, shape=shape) for file in files]
    for file, part in zip(files, parts, strict=True):
        if part.shape != parts[0].shape or part.rows.shape[1] != parts[0].rows.shape[1]:
            found, expected = (" x ".join(map(str, x.shape or x.rows.shape[1:])) for x in (part, parts[0]))
            raise ValueError(f"{file}: has measures of {found}; expected {expected} as in {files[0].name}")
    return Collection(_sets.joined([part.rows for part in parts]).weights, parts[0].shape)


# Costs


def cost_between(
    first: Measure,
    second: Measure,
    names: tuple[Path, Path],
    cost: str | None,
    power: float,
    spacing: str | None = None,
) -> Cost:
    """Return the cost between two measures: that of a file, or of their points, or of their grid."""
    if spacing is not None and (first.points is not None or (cost is not None and cost not in METRICS)):
        raise ValueError("--spacing: is the distance of pixels; expected images or other weights on a grid")
    if cost is not None and cost not in METRICS:
        return _dense_cost(cost, (len(first.weights), len(second.weights)))
    if first.points is not None and second.points is not None:
        metric = cost or {1.0: "cityblock", 2.0: "sqeuclidean"}.get(power)
        if metric is None:
            raise ValueError(f"--power: expected 1 or 2 for points, got {power:g}")
        (_, d1), (_, d2) = first.points.shape, second.points.shape
        if d1 != d2:
            raise ValueError(f"{names[1]}: has points with {d2} coordinates; expected {d1} as in {names[0]}")
        return PointCost(first.points, second.points, ALIASES.get(metric, metric))
    if (first.points is None) != (second.points is None):
        one, other = names if first.points is None else names[::-1]
        raise ValueError(
            f"{one}: expected points, as {other} has columns x, y; --points takes the rows of both as points"
        )
    if first.shape is None or first.shape != second.shape:
        sides = [" x ".join(map(str, one.shape or ())) for one in (first, second)]
        raise ValueError(f"{names[1]}: is {sides[1]}, {names[0]} is {sides[0]}; expected one size (or --size, --cost)")
    return _grid_cost(first.shape, cost, power, spacing)


def _grid_cost(shape: tuple[int, ...], cost: str | None, power: float, spacing: str | None) -> Cost:
    """Return the cost between the points of a grid: |x - y|^power summed over the axes, or one that has a name."""
    metric = None if cost is None else ALIASES.get(cost, cost)
    if metric not in (None, *_GRID_METRICS):
        raise ValueError(f"--cost: is {cost}; expected sqeuclidean, euclidean or l1 between pixels, or a file")
    if metric is not None and power != 2:
        raise ValueError(f"--power: is {power:g}, and --cost is {cost}; expected one of them")
    apart = _spacings(spacing, shape)
    power = 1 if metric == "cityblock" else power
    if metric == "euclidean" and len(shape) > 1:
        return PointCost(np.indices(shape).reshape(len(shape), -1).T * np.asarray(apart), metric="euclidean")
    power = 1 if metric == "euclidean" else power
    if len(shape) == 1 and shape[0] > _LONG and power in (1, 2):
        return PointCost(np.arange(shape[0]) * apart[0], metric="euclidean" if power == 1 else "sqeuclidean")
    return GridCost(shape, power=power, spacing=apart)


def _spacings(text: str | None, shape: tuple[int, ...]) -> tuple[float, ...]:
    """Return the distance of neighbouring points along every axis."""
    try:
        given = None if text is None else [float(word) for word in text.split(",")]
        found = validation.spacings(given[0] if given is not None and len(given) == 1 else given, shape)
    except ValueError as error:
        raise ValueError(f"--spacing: expected one number, or one per axis ({error})") from None
    return tuple(float(one) for one in found)


def cost_of_bins(
    X: Any,
    m: int,
    shape: tuple[int, int] | None,
    cost: str | None,
    vectors: Path | None,
    power: float,
    spacing: str | None = None,
) -> Cost:
    """Return the cost between m bins: that of a file, or of a metric, or of a grid, or of a line."""
    on_grid = cost is None or (shape is not None and vectors is None and ALIASES.get(cost, cost) in _GRID_METRICS)
    if spacing is not None and not on_grid:
        raise ValueError("--spacing: is the distance of pixels; expected no file or metric of vectors in --cost")
    if on_grid and vectors is None:
        return _grid_cost(shape or (m,), cost, power, spacing)
    if cost is not None and (cost == "line" or cost in METRICS):
        try:
            return feature_cost(cost, m, None if vectors is None else readers.array(vectors), X)
        except ValueError as error:
            raise ValueError(f"--cost: {str(error).replace('feature_vectors', '--vectors')}") from None
    if vectors is not None:
        raise ValueError(f"--vectors: needs a metric such as --cost cosine, got {cost or 'none'}")
    return _dense_cost(cost or "", (m, m))


def _dense_cost(file: str, shape: tuple[int, int]) -> Cost:
    """Read a cost matrix of a given shape."""
    if not Path(file).suffix and not Path(file).exists():
        known = ", ".join(METRICS)
        raise ValueError(f"--cost: {file!r} is neither a file nor a metric; expected a file, or one of {known}")
    matrix = readers.array(file)
    if matrix.shape != shape:
        raise ValueError(f"{file}: expected costs of shape {shape}, got {matrix.shape}")
    return DenseCost(matrix)


# Output


def stderr_console(quiet: bool) -> Console:
    """Return a console for messages, which prints nothing if quiet."""
    return Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True, markup=False)


def check_matrix_target(out: Path) -> None:
    """Raise ValueError if a name does not end as a matrix that `write_matrix` writes."""
    if out.suffix not in (".npy", ".npz", ".csv"):
        raise ValueError(f"--out: expected a name that ends with .npy, .npz or .csv, got {out}")


def write_matrix(
    file: BinaryIO, suffix: str, matrix: Any, title: str, names: Sequence[str], columns: Sequence[str]
) -> None:
    """Write a matrix; an .npz file has the names of its rows, a .csv file also those of its columns."""
    if suffix == ".npy":
        np.save(file, matrix)
        return
    if suffix == ".npz":
        np.savez(file, **{title: matrix, "names": np.array(names)})
        return
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["", *columns])
    lines.writerows([name, *map(repr, row)] for name, row in zip(names, matrix.tolist(), strict=True))
    file.write(text.getvalue().encode())


def print_json(report: dict[str, Any]) -> None:
    """Print a report as one line of JSON."""
    print(strict_json.dumps(report))


def print_table(*rows: Sequence[str]) -> None:
    """Print rows as a table without header and lines."""
    table = Table(show_header=False, box=None)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def print_files(out: Path, names: Sequence[str]) -> None:
    """Print which files were written."""
    text = printable(f"in {out}: {', '.join(names)}")
    Console().print(text, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def locked_folder(out: Path) -> Iterator[None]:
    """Make a folder for results and lock it; remove what killed runs have left in it.

    Raises
    ------
    ValueError
        If another process has locked it.
    """
    with atomic.output_folder(out), ExitStack() as stack:
        path = out / ".lock"
        lock = filelock.FileLock(path, timeout=0)
        holder = _holder(path)  # before: older versions of filelock empty the file when they fail
        try:
            lock.acquire()
            if not path.exists():  # removed in between, by a run that ended
                lock.release()
                lock.acquire()
        except filelock.Timeout:
            hint = "wait until it ends, or choose another --out"
            raise ValueError(f"--out: another run{holder} is writing to {out}; {hint}") from None
        except NotImplementedError:
            warnings.warn(f"{out}: its file system has no locks; no other run should write to it", stacklevel=2)
        else:
            stack.callback(lock.release)
            stack.callback(_remove_lock, path)  # first
            path.write_text(f"process {os.getpid()} on {platform.node()}")
        atomic.remove_temporaries(out)
        yield


def _holder(path: Path) -> str:
    """Return who has written a lock file."""
    with suppress(OSError):  # Windows does not let others read it
        if text := path.read_text():
            return f" ({text})"
    return ""


def _remove_lock(path: Path) -> None:
    with suppress(OSError):  # on Windows it is open, and removed when it is released
        path.unlink()


def save_png(files: atomic.FileGroup, path: Path, figure: Figure) -> None:
    """Write a figure as PNG."""
    with files.open(path) as file:
        figure.savefig(file, format="png", dpi=120, bbox_inches="tight")


# Interrupts


class Interrupt:
    """Context in which the first Ctrl-C requests a stop after the epoch, and the second one stops immediately.

    Parameters
    ----------
    notify : callable
        Called without arguments at the first Ctrl-C.

    Attributes
    ----------
    requested : bool
        Whether there was a Ctrl-C.
    """

    def __init__(self, notify: Callable[[], None] = lambda: None) -> None:
        self._notify, self.requested = notify, False
        self._notice: Thread | None = None

    def __enter__(self) -> Interrupt:
        self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            signal.default_int_handler(number, frame)
        self.requested = True
        self._notice = said_aside(self._notify)

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._previous)
        if self._notice is not None:
            self._notice.join()


def interrupted(console: Console, message: str, words: Sequence[str], report: dict[str, Any] | None) -> int:
    """Print the arguments that resume, with a report as JSON if there is one, and return the exit code."""
    command = shlex.join(["gibbsot", *words])
    if report is not None:
        print_json(report | {"status": "interrupted", "resume": command})
    console.print(f"{printable(message)}; to resume:\n{printable(command)}")
    return 130
