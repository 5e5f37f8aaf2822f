"""What a command writes: files that come together or not at all, and their pictures."""

from __future__ import annotations

import errno
import math
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from . import npz

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PINK, _GREEN, _GREY = "#d6176f", "#2a7f4f", "#9a9a9a"
_MOST = 5000  # arcs that a picture shows


@contextmanager
def folder(path: Path) -> Iterator[Path]:
    """Make a folder and see that one can write to it, before the work; where the work fails it is gone again if empty.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as home, folder(Path(home, "a", "b")) as made:
    ...     made.is_dir()
    True
    """
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is a file; expected a folder", str(path))
    made = [part for part in (path, *path.parents) if not part.exists()]
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        yield path
    except BaseException:
        for part in made:
            with suppress(OSError):
                part.rmdir()
        raise


class Together:
    """Files that take their places when all are written; a ``with`` block that fails leaves the old ones.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as home, suppress(ZeroDivisionError):
    ...     try:
    ...         with Together() as set, set.open(Path(home, "a.txt")) as file:
    ...             _ = file.write(b"half of it")
    ...             1 / 0
    ...     finally:
    ...         os.listdir(home)
    []
    """

    def __init__(self) -> None:
        self._parts: dict[Path, Path] = {}

    def __enter__(self) -> Together:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                for target, part in self._parts.items():
                    os.replace(part, target)
        finally:
            for part in self._parts.values():
                part.unlink(missing_ok=True)

    @contextmanager
    def path(self, target: Path) -> Iterator[Path]:
        """Give the place to write a file to; errors in the block name its later one."""
        check(target)
        part = self._parts[target] = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            yield part
        except OSError as error:
            if error.errno is None:
                raise
            raise OSError(error.errno, error.strerror, str(target)) from None

    @contextmanager
    def open(self, target: Path) -> Iterator[BinaryIO]:
        """Open a file for writing."""
        with self.path(target) as part, npz.replacing(part) as file:
            yield file

    def picture(self, target: Path, figure: Figure) -> None:
        """Write a figure as PNG."""
        with self.open(target) as file:
            figure.savefig(file, format="png", dpi=120, bbox_inches="tight")


def rows(file: BinaryIO, matrix: Any) -> None:
    """Write a matrix as .npy; one of Dask's a block at a time."""
    header = {"descr": np.lib.format.dtype_to_descr(matrix.dtype), "fortran_order": False, "shape": matrix.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for block in matrix.blocks if hasattr(matrix, "blocks") else [matrix]:
        file.write(np.ascontiguousarray(block).tobytes())


def check(target: Path) -> None:
    """Refuse a place where no file can be, before the work."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; expected a file to write", str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder to write it to is not there", str(target))


def finite(x: Any) -> Any:
    """Return what JSON can hold: it has no infinity.

    Examples
    --------
    >>> finite({"x": [1.0, math.inf]})
    {'x': [1.0, None]}
    """
    if isinstance(x, dict):
        return {name: finite(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [finite(value) for value in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def figure(width: float, height: float) -> Figure:
    """Return an empty figure, without a window."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'gibbsot[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def plan(file: BinaryIO, suffix: str, Z: Any) -> None:
    """Write a plan: scipy's sparse npz, or lines ``i,j,mass``."""
    entries = sparse.coo_array(Z)
    if suffix == ".npz":
        sparse.save_npz(file, sparse.csr_array(Z))
        return
    file.write(b"i,j,mass\n")
    for i, j, mass in zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True):
        file.write(f"{i},{j},{mass!r}\n".encode())


def moves(figure: Figure, Z: Any, X: NDArray[Any], Y: NDArray[Any], names: tuple[str, str], *, down: bool) -> None:
    """Draw a plan in the plane: the two measures, and a line for each arc, the more mass the darker.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty one.
    Z : sparse array of shape (m1, m2)
    X, Y : arrays of shape (m1, 2) and (m2, 2)
        The points, x and y.
    names : pair of str
    down : bool
        Whether y counts downwards, as in images.
    """
    from matplotlib.collections import LineCollection

    entries = sparse.coo_array(Z)
    heavy = np.sort(np.argsort(-entries.data, kind="stable")[:_MOST])
    i, j, mass = entries.row[heavy], entries.col[heavy], entries.data[heavy]
    ax = figure.subplots()
    shades = np.clip(0.15 + 0.85 * mass / mass.max(), 0, 1)
    ax.add_collection(
        LineCollection(np.stack([X[i], Y[j]], axis=1).tolist(), colors=_GREY, alpha=shades, linewidth=0.8)
    )
    for points, weights, colour, name in (
        (X, entries.sum(axis=1), _GREEN, names[0]),
        (Y, entries.sum(axis=0), _PINK, names[1]),
    ):
        on = weights > 0
        size = 30 * weights[on] / weights.max()
        ax.scatter(points[on, 0], points[on, 1], s=size, c=colour, linewidths=0, label=name)
    ax.set_aspect("equal")
    if down:
        ax.invert_yaxis()
        ax.set(xticks=[], yticks=[])
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, markerscale=1.5)
