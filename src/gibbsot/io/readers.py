"""Measures from files: one measure, a collection of them, or the matrices of a folder."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core import validation
from ..core.warn import warn
from . import limits
from .formats import PARQUET, TABLES, Array, Table, array, table
from .images import IMAGES, Source, changes, check_file, image, is_image, shrink, shrinking
from .npz import FORMAT, LONGEST_FORMAT, READ_ERRORS, check_entry, read_entry, unpacked_size

__all__ = ["Collection", "Measure", "array", "collection", "image", "matrices", "matrix", "measure"]

_INDEX_NAMES = re.compile(r"(unnamed.*|__index_level_0__|index|idx|id|.*[_ ]id|row|rownames|no|nr|#)?", re.IGNORECASE)
_SPARSE = ("format", "shape", "data", "indices", "indptr", "row", "col", "offsets")  # entries of scipy.sparse.save_npz
_WEIGHT_NAMES = re.compile(r"weights?|mass|masses|probability", re.IGNORECASE)
_COORDINATES = re.compile(rf"x y( z)?( (?P<weight>{_WEIGHT_NAMES.pattern}))?", re.IGNORECASE)


class Measure(NamedTuple):
    """One measure, on a grid or on points.

    Attributes
    ----------
    weights : array of shape (m,)
        The weights, with sum one.
    shape : tuple of int or None
        The shape of the grid.
    points : array of shape (m, d) or None
        The points.
    columns : tuple of str
        The names of the columns of a table, empty where it has none.
    weighted : bool
        Whether the weights of points are the last column.
    changed : str
        What reading an image changed: its size, its proportions, its colours.
    """

    weights: Array
    shape: tuple[int, ...] | None
    points: Array | None
    columns: tuple[str, ...] = ()
    weighted: bool = False
    changed: str = ""


class Collection(NamedTuple):
    """Many measures on the same bins.

    Attributes
    ----------
    rows : array or csr_array of shape (n, m)
        The weights, not normalised.
    shape : (height, width) or None
        The shape of images.
    names : tuple of str
        What the measures are called: files of a folder, or a first column of text; empty where they have no names.
    changed : str
        What reading images changed: their size, their proportions, their colours.
    """

    rows: Any
    shape: tuple[int, int] | None
    names: tuple[str, ...] = ()
    changed: str = ""


def measure(
    path: Source,
    *,
    key: str | None = None,
    points: bool = False,
    weighted: bool = False,
    invert: bool = False,
    size: tuple[int, int] | None = None,
    columns: Sequence[str] | None = None,
    row: int | None = None,
    header: bool | None = None,
) -> Measure:
    r"""Read one measure: weights on a line, an image or a volume, or points.

    Parameters
    ----------
    path : path
        An image, or an array in one of the other formats.
    key : str, optional
        The name of the array in an npz file with several.
    points : bool
        Rows are points with equal weights. Rows of a table whose columns are called x, y, or x, y, z, are points in any
        case; a column after these called weight or mass has their weights.
    weighted : bool
        The last column of the points is their weight.
    invert : bool
        Dark pixels of an image have the weight instead of light ones.
    size : (height, width), optional
        Shrink images to this size.
    columns : sequence of str, optional
        The columns of a table to read, by name or by number from 1.
    row : int, optional
        Take this image of a stack, or this row of a matrix, from 0.
    header : bool, optional
        Whether the first line of a text file has the names of the columns; by default its fields tell.

    Returns
    -------
    Measure
        The measure, normalised.

    Raises
    ------
    ValueError
        If the file is damaged, or has negative or infinite weights or no mass.

    Warns
    -----
    UserWarning
        If the first column of a table looks like an index, or a column called weight is taken as a coordinate.

    Examples
    --------
    >>> from pathlib import Path
    >>> from gibbsot.io.readers import measure
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.csv")
    ...     _ = file.write_text("x,y,weight\n0,1,3\n2,2,1\n")
    ...     measure(file, points=True, weighted=True).weights
    array([0.75, 0.25])
    """
    where = Path(path)
    names: tuple[str, ...] = ()
    changed = ""
    if is_image(where):
        if points or columns is not None:
            raise ValueError(f"{where}: is an image; expected a table of points")
        values, changed = image(where, invert=invert, size=size), changes(where, size)
    else:
        values, names, _ = table(where, key, columns, header)
        if not points and row is None and (found := _COORDINATES.fullmatch(" ".join(names))):
            points, weighted = True, found["weight"] is not None
        if columns is None:
            own = values.shape[-1] - weighted if points else None
            _warn_of_index(Table(values, names), where, own, header=header)
    if row is not None:
        values = _one_of(values, row, where)
    if points:
        return _point_measure(values, where, weighted, names)
    if 1 in values.shape and values.ndim == 2 and not is_image(where):
        values = values.ravel()  # a table with a single column or row
    if not 1 <= values.ndim <= 3 or values.size == 0:
        raise ValueError(f"{where}: expected weights on a grid of one to three axes, got shape {values.shape}")
    if size is not None and not is_image(where):
        if values.ndim != 2:
            raise ValueError(f"{where}: expected an image to shrink, got shape {values.shape}")
        changed = shrinking(values.shape, size)
        values = _shrunk(values[None], size, where)[0]
    try:
        return Measure(_normalise(values, where), values.shape, None, names, changed=changed)
    except ValueError as error:
        if len(names) > 1 or (values.ndim == 2 and values.shape[1] <= 3 < len(values)):
            raise ValueError(f"{error}; if the rows are points: --points") from None
        raise


def collection(
    path: Source,
    *,
    key: str | None = None,
    shape: tuple[int, int] | None = None,
    labels: Source | None = None,
    label: int | None = None,
    limit: int | None = None,
    invert: bool = False,
    size: tuple[int, int] | None = None,
    header: bool | None = None,
) -> Collection:
    """Read many measures: a folder of images, or a matrix with one measure per row.

    Parameters
    ----------
    path : path
        A folder, whose images are read in the order of their names, with those in subfolders; or an array of shape
        (n, height, width) or (n, m); or a file of ``scipy.sparse.save_npz``.
    key : str, optional
        The name of the array in an npz file; by default ``images``, or the only array.
    shape : (height, width), optional
        The shape of the images that the rows of a matrix are.
    labels : path, optional
        A file with one label per measure: an array or an idx file.
    label : int, optional
        Keep the measures with this label.
    limit : int, optional
        Keep the first measures only.
    invert : bool
        Dark pixels of image files have the weight instead of light ones.
    size : (height, width), optional
        Shrink images to this size.
    header : bool, optional
        Whether the first line of a text file has the names of the columns; by default its fields tell.

    Returns
    -------
    Collection
        The measures.

    Raises
    ------
    ValueError
        If a file is damaged, images differ in shape, or weights are negative, infinite or all zero.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.io.readers import collection
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/a.npy", np.ones((5, 4, 3)))
    ...     found = collection(folder + "/a.npy", limit=2)
    >>> found.rows.shape, found.shape
    ((2, 12), (4, 3))
    """
    where = Path(path)
    if (labels is None) != (label is None):
        raise ValueError("labels: expected both a label and a file of labels, or neither")
    if limit is not None:
        validation.count(limit, "limit")
    values: Any
    changed = ""
    if where.is_dir():
        if labels is not None:
            raise ValueError(f"{where}: is a folder; labels need a file of measures")
        values, names = _folder(where, invert, size, limit)
        changed = changes(where / names[0], size)
    else:
        if is_image(where) and where.exists():
            raise ValueError(f"{where}: is one image; expected a folder of them")
        values, names = _file_of_measures(where, key, shape, header)
        if labels is not None:
            kept = _with_label(labels, label, values.shape[0], where)
            values, names = values[kept], tuple(compress(names, kept))
        values, names = _as_images(values[:limit], shape, where), names[:limit]
        if size is not None:
            if values.ndim != 3:
                hint = "only images can be resized; give a shape"
                raise ValueError(f"{where}: has rows of {values.shape[1]}, and {hint}")
            changed = shrinking(values.shape[1:], size)
            values = _shrunk(values, size, where)
    rows = values if sparse.issparse(values) else values.reshape(len(values), -1)
    if not validation.check_weights(rows, str(where), empty_rows=True).any():
        raise ValueError(f"{where}: has no mass in any measure")
    sides = None if values.ndim == 2 else (values.shape[1], values.shape[2])
    return Collection(rows, sides, names, changed)


def _file_of_measures(
    path: Path, key: str | None, shape: tuple[int, int] | None, header: bool | None
) -> tuple[Any, tuple[str, ...]]:
    """Read the measures of a file: a sparse matrix, unless its rows are images, or an array of two or three axes."""
    matrix = _sparse(path) if key is None else None
    if matrix is not None:
        if shape is None or matrix.shape[1] != math.prod(shape):
            return matrix, ()
        limits.check(8 * math.prod(matrix.shape), path.stat().st_size, path)
        return matrix.toarray(), ()
    found = table(path, key, header=header)
    if _COORDINATES.fullmatch(" ".join(found.columns)):
        hint = "expected one measure per row (gibbsot ot compares two clouds)"
        raise ValueError(f"{path}: has the columns {', '.join(found.columns)}, so its rows are points; {hint}")
    _warn_of_index(found, path, hint="leave it out of the file if it is one", header=header)
    if found.values.size == 0 or found.values.ndim not in (2, 3):
        raise ValueError(f"{path}: expected shape (n, height, width) or (n, m), got {found.values.shape}")
    return found.values, found.names


def _with_label(labels: Source, label: int | None, n: int, path: Path) -> NDArray[np.bool_]:
    """Return which measures of a file have a label."""
    known = array(labels)
    known = known[:, 0] if known.ndim == 2 and known.shape[1] == 1 else known
    if known.shape != (n,):
        raise ValueError(f"{labels}: expected {n} labels as {path} has measures, got {known.shape}")
    if not (known == label).any():
        raise ValueError(f"{labels}: none of the {len(known)} labels is {label}")
    return known == label


def _as_images(values: Any, shape: tuple[int, int] | None, path: Path) -> Any:
    """Return the rows of a matrix as images of a shape, if one is given."""
    if shape is not None and values.ndim == 2:
        (height, width), m = shape, values.shape[1]
        if m != height * width:
            expected = f"{height * width} for images of {height} x {width}"
            raise ValueError(f"{path}: has rows of {m}; expected {expected}")
        return values.reshape(-1, *shape)
    if shape is not None and values.shape[1:] != tuple(shape):
        raise ValueError(f"{path}: expected images of {shape[0]} x {shape[1]}, got shape {values.shape}")
    return values


def _sparse(path: Path) -> Any:
    """Return the sparse matrix that ``scipy.sparse.save_npz`` wrote, or None for other files."""
    if path.suffix.lower() != ".npz" or not path.is_file():
        return None
    found, needed = None, None
    with suppress(*READ_ERRORS, AttributeError, IndexError), zipfile.ZipFile(path) as archive:
        needed = _sparse_bytes(archive)
    if needed is not None:
        limits.check(needed, path.stat().st_size, path)
        with suppress(*READ_ERRORS, AttributeError, IndexError):  # not a sparse matrix; `array` reports damage
            found = sparse.load_npz(path)
    try:
        return None if found is None else validation.sparse_rows(found, str(path))
    except TypeError as error:
        raise ValueError(str(error)) from None


def _sparse_bytes(archive: zipfile.ZipFile) -> int | None:
    """Return the memory of a sparse matrix in an archive, the starts of its rows included; None for other archives."""
    names = [entry for entry in archive.namelist() if entry.removesuffix(".npy") in _SPARSE]
    if not {"format.npy", "shape.npy", "data.npy"} <= set(names):
        return None
    check_entry(archive, FORMAT, LONGEST_FORMAT)
    n_rows = int(read_entry(archive, "shape.npy", LONGEST_FORMAT).flat[0])
    return sum(unpacked_size(archive, entry) for entry in names) + 8 * abs(n_rows)


def matrix(path: Source) -> Any:
    """Read a matrix with one measure per row.

    Parameters
    ----------
    path : path
        A file for `array`, or one that ``scipy.sparse.save_npz`` wrote.

    Returns
    -------
    array or csr_array of shape (n, m)
        The matrix; images are flattened to rows.
    """
    where = Path(path)
    check_file(where)
    found = _sparse(where)
    if found is not None:
        return found
    found = array(where)
    if found.ndim < 2:
        raise ValueError(f"{where}: expected a matrix with one measure per row, got shape {found.shape}")
    return found.reshape(len(found), math.prod(found.shape[1:]))  # there may be no rows


def matrices(path: Source) -> list[Path]:
    """Find the matrices of a folder, one per shard.

    Parameters
    ----------
    path : path
        A folder.

    Returns
    -------
    list of Path
        Its files in the order of their names; empty if it has images or is not a folder.
    """
    where = Path(path)
    if not where.is_dir() or _find(where, is_image):
        return []
    return _find(where, lambda name: name.suffix.lower() in (".npy", ".npz", *PARQUET, *TABLES))


def _folder(path: Path, invert: bool, size: tuple[int, int] | None, limit: int | None) -> tuple[Array, tuple[str, ...]]:
    """Read the images of a folder, and the names of the files."""
    names = _find(path, is_image)[:limit]
    if not names:
        raise ValueError(f"{path}: has no images; expected files such as {' '.join(IMAGES[:3])}")
    images: list[Array] = []
    for name in names:
        picture = image(name, invert=invert, size=size)
        if images and picture.shape != images[0].shape:
            first, other = (f"{height} x {width}" for height, width in (images[0].shape, picture.shape))
            sizes = f"is {other}, {names[0].name} is {first}"
            raise ValueError(f"{name}: {sizes}; expected one size, or a size to shrink to (--size)")
        images.append(picture)
    return np.stack(images), tuple(name.relative_to(path).as_posix() for name in names)


def _one_of(values: Array, row: int, path: Path) -> Array:
    """Return one entry along the first axis."""
    if values.ndim < 2 or is_image(path):
        raise ValueError(f"{path}: is a single measure; expected a stack of images or a matrix to take row {row} of")
    if not 0 <= row < len(values):
        raise ValueError(f"{path}: has no row {row}; expected a number from 0 to {len(values) - 1}")
    return values[row]


def _shrunk(images: Array, size: tuple[int, int], path: Path) -> Array:
    """Return smaller images; errors name the file."""
    try:
        return shrink(images, size)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _find(path: Path, wanted: Callable[[Path], bool]) -> list[Path]:
    """Return files in a folder and its subfolders in the order of their names, numbers in names by value."""
    found = (
        name
        for name in path.rglob("*")
        if wanted(name) and not any(part.startswith(".") for part in name.relative_to(path).parts)
    )
    return sorted(found, key=lambda name: _by_number(name.relative_to(path).as_posix()))


def _by_number(name: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts names with their numbers by value; other digits than 0 to 9 are letters here."""
    parts = re.split(r"([0-9]+)", name)  # every second one is a number
    return [(bool(k % 2), int(part) if k % 2 else 0, part) for k, part in enumerate(parts)]


def _point_measure(values: Array, path: Path, weighted: bool, names: tuple[str, ...]) -> Measure:
    """Return the measure on the points in the rows of an array."""
    points = values[:, None] if values.ndim == 1 else values
    if points.ndim != 2 or len(points) == 0 or points.shape[1] < 1 + weighted:
        least = "(m, d + 1) with a weight at the end" if weighted else "(m, d)"
        raise ValueError(f"{path}: expected points as rows, shape {least}, got {values.shape}")
    for name in names[:-1] if weighted else names:
        if _WEIGHT_NAMES.fullmatch(name):
            hint = "--weighted takes the last column as the weight, --columns puts another one there"
            warn(f"{path}: column {name!r} is taken as a coordinate; {hint}")
    weights = np.ones(len(points))
    if weighted:
        points, weights = points[:, :-1], points[:, -1]
    points = np.asarray(validation.points(points, str(path)), np.float64, order="C")
    return Measure(_normalise(weights, path), None, points, names, weighted)


def _warn_of_index(
    found: Table,
    path: Path,
    coordinates: int | None = None,
    hint: str = "--columns chooses columns",
    header: bool | None = None,
) -> None:
    """Warn of a first column, or a first line, that looks like an index and is taken as data.

    Names tell, or numbers that count in a table without names, unless they are the only coordinate of points.
    """
    values, names, _ = found
    if values.ndim != 2 or len(values) < 3 or values.shape[1] < 2 or path.suffix.lower() not in (*TABLES, *PARQUET):
        return
    first, n = values[:, 0], len(values)
    counts = not names and coordinates != 1 and first[0] in (0, 1) and np.array_equal(first, np.arange(n) + first[0])
    if (names and _INDEX_NAMES.fullmatch(names[0])) or counts:
        what = (
            f"its name is {names[0]!r}" if names and names[0] else "it has no name" if names else "it counts the rows"
        )
        warn(f"{path}: the first column looks like an index ({what}), but is taken as data; {hint}")
    if header is None and not names and coordinates != 1 and np.array_equal(values[0], np.arange(values.shape[1])):
        hint = "if they are the names of columns: --header"
        warn(f"{path}: the first line, 0, 1, ..., is taken as data; {hint}")


def _normalise(weights: Array, path: Path) -> Array:
    """Return valid weights as a vector with sum one."""
    row = validation.weights(weights.ravel(), str(path), weights.size)[0]
    return row / row.sum()
