"""Measures from files: images, NumPy's arrays, CSV, Parquet and MNIST's idx."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core import validation
from .npz import READ_ERRORS

Array = NDArray[np.float64]
Source = str | os.PathLike[str]
Resize = Callable[[Array], Array]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm", ".webp")
_TABLES = (".csv", ".tsv", ".txt")
_KINDS = f"an image ({' '.join(IMAGES)}), .npy, .npz, .csv, .parquet or an idx file of MNIST's"


class Measure(NamedTuple):
    """One measure of a file.

    Attributes
    ----------
    weights : array of shape (m,)
        With sum one.
    shape : tuple of int, optional
        The sides of the grid that the weights live on.
    points : array of shape (m, d), optional
        Or the points.
    """

    weights: Array
    shape: tuple[int, ...] | None
    points: Array | None


class Collection(NamedTuple):
    """Many measures.

    Attributes
    ----------
    rows : array of shape (n, m)
        Weights, not normalised.
    shape : (height, width), optional
        If they are images.
    """

    rows: Array
    shape: tuple[int, int] | None


def measure(
    path: Source,
    *,
    key: str | None = None,
    points: bool = False,
    weighted: bool = False,
    invert: bool = False,
    resize: Resize | None = None,
) -> Measure:
    r"""Read one measure: weights on a line, an image or a volume, or points.

    Parameters
    ----------
    path : path
        An image, or an array in one of the other formats.
    key : str, optional
        The name of the array in an npz file that has several.
    points : bool
        Rows are points with equal weights.
    weighted : bool
        The last column of the points is their weight.
    invert : bool
        Of an image: dark pixels have the weight, not light ones.
    resize : function, optional
        Applied to images, shape (n, height, width).

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.csv")
    ...     _ = file.write_text("x,y,weight\n0,1,3\n2,2,1\n")
    ...     measure(file, points=True, weighted=True).weights
    array([0.75, 0.25])
    """
    where = Path(path)
    if is_image(where):
        if points:
            raise ValueError(f"{where}: is an image; expected rows of coordinates for points")
        values = image(where, invert=invert)
    else:
        values = array(where, key)
    if points:
        return _cloud(values, where, weighted)
    if 1 in values.shape and values.ndim == 2 and not is_image(where):
        values = values.ravel()  # one column, or one line, of a table
    if not 1 <= values.ndim <= 3 or values.size == 0:
        raise ValueError(f"{where}: expected weights on a grid of one to three axes, got shape {values.shape}")
    if resize is not None:
        if values.ndim != 2:
            raise ValueError(f"{where}: expected an image to shrink, got shape {values.shape}")
        values = resize(values[None])[0]
    return Measure(_normalised(values, where), values.shape, None)


def collection(
    path: Source,
    *,
    key: str | None = None,
    shape: tuple[int, int] | None = None,
    labels: Source | None = None,
    label: int | None = None,
    limit: int | None = None,
    invert: bool = False,
    resize: Resize | None = None,
) -> Collection:
    """Read many measures: a folder of images, or a matrix with one measure a row.

    Parameters
    ----------
    path : path
        A folder, whose images in it and below are taken in the order of their names; or an array of shape
        (n, height, width) or (n, m).
    key : str, optional
        The name of the array in an npz file; by default ``images``, or the only one.
    shape : (height, width), optional
        What the rows of a matrix are images of.
    labels, label : path and int, optional
        Keep the measures that have this label, one for each measure in an array or an idx file.
    limit : int, optional
        Keep so many.
    invert : bool
        Dark pixels of image files have the weight.
    resize : function, optional
        Applied to images, shape (n, height, width), each file by itself.
    """
    where = Path(path)
    if (labels is None) != (label is None):
        raise ValueError("labels: expected both a label and the file that has those of the measures, or neither")
    if limit is not None:
        validation.count(limit, "limit")
    values: Array
    if where.is_dir():
        if labels is not None:
            raise ValueError(f"{where}: is a folder; labels go with a file of measures")
        values, shape, resize = _folder(where, invert, resize, limit), None, None
    else:
        if is_image(where) and where.exists():
            raise ValueError(f"{where}: is one image; expected a folder of them")
        values = array(where, key)
        if values.size == 0 or values.ndim not in (2, 3):
            raise ValueError(f"{where}: expected shape (n, height, width) or (n, m), got {values.shape}")
        if labels is not None:
            known = array(labels)
            if known.shape != (len(values),):
                raise ValueError(f"{labels}: expected {len(values)} labels as {where} has measures, got {known.shape}")
            values = values[known == label]
            if not len(values):
                raise ValueError(f"{labels}: none of the {len(known)} labels is {label}")
        values = values[:limit]
        if shape is not None and values.ndim == 2:
            if values.shape[1] != shape[0] * shape[1]:
                raise ValueError(
                    f"{where}: has rows of {values.shape[1]}; expected {shape[0] * shape[1]} for images of "
                    f"{shape[0]} x {shape[1]}"
                )
            values = values.reshape(-1, *shape)
        elif shape is not None and values.shape[1:] != tuple(shape):
            raise ValueError(f"{where}: expected images of {shape[0]} x {shape[1]}, got shape {values.shape}")
    if resize is not None:
        if values.ndim != 3:
            raise ValueError(f"{where}: has rows of {values.shape[1]}, and only images can shrink; say their shape")
        values = resize(values)
    rows = values.reshape(len(values), -1)
    if not validation.check_weights(rows, str(where), empty_rows=True).any():
        raise ValueError(f"{where}: has no mass in any measure")
    sides = None if values.ndim == 2 else (values.shape[1], values.shape[2])
    return Collection(rows, sides)


def is_image(path: Path) -> bool:
    """Return whether a file is an image by its name."""
    return path.suffix.lower() in IMAGES


def image(path: Source, *, invert: bool = False) -> Array:
    """Read an image as shades of grey, shape (height, width); what is transparent has no weight.

    Parameters
    ----------
    path : path
    invert : bool
        Dark is large.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise ImportError("images need Pillow, which comes with matplotlib: pip install 'gibbsot[plots]'") from None
    _exists(Path(path))
    try:
        with Image.open(path) as opened:
            picture: Any = ImageOps.exif_transpose(opened)
            if picture.mode.startswith(("I", "F")):  # deeper than the 256 shades of "L"
                grey = np.asarray(picture, np.float64)
            else:
                if "A" in picture.getbands() or "transparency" in picture.info:
                    ground = Image.new("RGBA", picture.size, "white" if invert else "black")
                    picture = Image.alpha_composite(ground, picture.convert("RGBA"))
                grey = np.asarray(picture.convert("L"), np.float64)
    except (*READ_ERRORS, Image.DecompressionBombError):  # what Pillow raises depends on the format
        raise ValueError(f"{path}: is damaged or no image") from None
    if not invert:
        return grey
    return (255.0 if grey.max() <= 255 else grey.max()) - grey


def array(path: Source, key: str | None = None) -> Array:
    """Read an array of numbers from a .npy, .npz, .csv, .parquet or idx file.

    Parameters
    ----------
    path : path
    key : str, optional
        The name of the array in an npz file; by default ``images``, or the only one.
    """
    where = Path(path)
    _exists(where)
    suffix = where.suffix.lower()
    if suffix == ".npy":
        found = _numpy(where)
    elif suffix == ".npz":
        found = _archive(where, key)
    elif suffix in _TABLES:
        found = _table(where)
    elif suffix in (".parquet", ".pq"):
        found = _parquet(where)
    else:
        found = _idx(where)
    return np.asarray(validation.real(found, str(where)), np.float64)


def matrix(path: Source) -> Any:
    """Read a matrix with a measure a row, as `array` does, or a sparse one that ``scipy.sparse.save_npz`` wrote."""
    where = Path(path)
    _exists(where)
    if where.suffix.lower() == ".npz":
        found = None
        with suppress(*READ_ERRORS):  # not a sparse one; what is damaged will be told below
            found = sparse.load_npz(where)
        if found is not None:
            return validation.sparse_rows(found, str(where))
    found = array(where)
    if found.ndim < 2:
        raise ValueError(f"{where}: expected a matrix with a measure a row, got shape {found.shape}")
    return found.reshape(len(found), -1)


def matrices(path: Source) -> list[Path]:
    """Return the files of a folder that has matrices and no images: parts of data, in the order of their names."""
    where = Path(path)
    if not where.is_dir() or _names(where, is_image):
        return []
    return _names(where, lambda name: name.suffix.lower() in (".npy", ".npz", ".parquet", ".pq", *_TABLES))


def _exists(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder; expected a file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file")


def _numpy(path: Path) -> NDArray[Any]:
    try:
        with open(path, "rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except PermissionError:
        raise
    except READ_ERRORS as error:
        raise ValueError(f"{path}: is damaged or no array of numbers ({error})") from None


def _archive(path: Path, key: str | None) -> NDArray[Any]:
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            names = list(file.files)
            name = key if key is not None else "images" if "images" in names else names[0] if len(names) == 1 else None
            if name in names:
                return np.asarray(file[name])
    except PermissionError:
        raise
    except (*READ_ERRORS, AttributeError) as error:  # the last: another kind of file under this name
        raise ValueError(f"{path}: is damaged or no npz file of numbers ({error})") from None
    if key is None:
        raise ValueError(f"{path}: has the arrays {', '.join(names) or '(none)'}; say with the key which one to take")
    raise ValueError(f"{path}: has no array {key!r}, only {', '.join(names) or 'none at all'}")


def _table(path: Path) -> NDArray[Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is no text; expected numbers with commas between them") from None
    lines = [line for line in text.splitlines() if line.strip()]
    between = next((mark for mark in ",;\t" if lines and mark in lines[0]), None)
    try:
        if lines and not _numbers(next(csv.reader(lines[:1], delimiter=between or " "))):
            lines = lines[1:]  # names of the columns
        if not lines:
            raise ValueError("it is empty")
        return np.loadtxt(io.StringIO("\n".join(lines)), delimiter=between, ndmin=2)
    except (ValueError, csv.Error) as error:  # the latter: a field that is too long
        raise ValueError(f"{path}: expected a table of numbers ({str(error).partition(';')[0]})") from None


def _numbers(words: list[str]) -> bool:
    try:
        return bool([float(word) for word in words if word or len(words) == 1])
    except ValueError:
        return False


def _parquet(path: Path) -> NDArray[Any]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ImportError(f"{path}: Parquet needs pyarrow: pip install 'gibbsot[parquet]'") from None
    try:
        table = parquet.read_table(path)
        columns = [np.asarray(column.to_numpy()) for column in table.columns]
    except (ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path}: is damaged or no Parquet file ({str(error).splitlines()[0]})") from None
    for name, column in zip(table.column_names, columns, strict=True):
        if column.dtype.kind not in "fiub":
            raise ValueError(f"{path}: column {name!r} has no numbers; expected numbers in all columns")
    return np.column_stack(columns) if columns else np.empty((0, 0))


def _idx(path: Path) -> NDArray[Any]:
    """Read MNIST's format: two zeros, the type (8: bytes), the number of axes, the sides, the values."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except READ_ERRORS:
            raise ValueError(f"{path}: is damaged, it does not unpack") from None
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise ValueError(f"{path}: is of no known kind; expected {_KINDS}")
    start = 4 + 4 * content[3]
    sides = tuple(np.frombuffer(content[4:start], ">u4").tolist()) if len(content) >= start else ()
    values = np.frombuffer(content[start:], np.uint8)
    if not sides or len(values) != np.prod(sides, dtype=object):
        raise ValueError(f"{path}: is damaged, its length does not fit its shape {sides}")
    return values.reshape(sides)


def _folder(path: Path, invert: bool, resize: Resize | None, limit: int | None) -> Array:
    names = _names(path, is_image)[:limit]
    if not names:
        raise ValueError(f"{path}: has no images in it; expected files such as {' '.join(IMAGES[:3])}")
    images: list[Array] = []
    for name, picture in _pictures(names, invert, resize):
        if images and picture.shape != images[0].shape:
            first, other = (f"{height} x {width}" for height, width in (images[0].shape, picture.shape))
            raise ValueError(
                f"{name}: is {other}, {names[0].name} is {first}; expected one size, or a size to shrink to"
            )
        images.append(picture)
    return np.stack(images)


def _names(path: Path, wanted: Callable[[Path], bool]) -> list[Path]:
    """Return files in a folder and below, numbers in their names in order of size."""
    found = (
        name
        for name in path.rglob("*")
        if wanted(name) and not any(part.startswith(".") for part in name.relative_to(path).parts)
    )
    return sorted(
        found, key=lambda name: [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in
                                 re.split(r"([0-9]+)", name.relative_to(path).as_posix())]
    )  # fmt: skip


def _pictures(names: list[Path], invert: bool, resize: Resize | None) -> Iterator[tuple[Path, Array]]:
    for name in names:
        picture = image(name, invert=invert)
        if resize is not None:
            try:
                picture = resize(picture[None])[0]
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        yield name, picture


def _cloud(values: Array, path: Path, weighted: bool) -> Measure:
    points = values[:, None] if values.ndim == 1 else values
    if points.ndim != 2 or len(points) == 0 or points.shape[1] < 1 + weighted:
        least = "(m, d + 1) with a weight at the end" if weighted else "(m, d)"
        raise ValueError(f"{path}: expected points as rows, shape {least}, got {values.shape}")
    weights = np.ones(len(points))
    if weighted:
        points, weights = points[:, :-1], points[:, -1]
    if not np.isfinite(points).all():
        raise ValueError(f"{path}: has NaN or infinite coordinates; expected finite ones")
    return Measure(_normalised(weights, path), None, np.ascontiguousarray(points))


def _normalised(weights: Array, path: Path) -> Array:
    row = validation.weights(weights.ravel(), str(path), weights.size)[0]
    return row / row.sum()
