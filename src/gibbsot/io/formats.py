"""Arrays and images from files, by format: images, .npy, .npz, CSV, Parquet and the idx format of MNIST."""

from __future__ import annotations

import csv
import gzip
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import validation
from .npz import READ_ERRORS

Array = NDArray[np.float64]
Source = str | os.PathLike[str]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm", ".webp")
TABLES = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
_FORMATS = f"an image ({' '.join(IMAGES)}), .npy, .npz, .csv, .parquet or an idx file of MNIST"


def is_image(path: Path) -> bool:
    """Return whether the suffix of a file is that of an image."""
    return path.suffix.lower() in IMAGES


def image(path: Source, *, invert: bool = False) -> Array:
    """Read an image as grey values; transparent pixels have the value zero.

    Parameters
    ----------
    path : path
        The file, in any format that Pillow reads.
    invert : bool
        Dark pixels have large values.

    Returns
    -------
    array of shape (height, width)
        The grey values.

    Raises
    ------
    ImportError
        If Pillow is not installed.
    ValueError
        If the file is damaged or not an image.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise ImportError("images need Pillow, which comes with matplotlib: pip install 'gibbsot[plots]'") from None
    check_file(Path(path))
    try:
        with Image.open(path) as opened:
            picture: Any = ImageOps.exif_transpose(opened)
            if picture.mode.startswith(("I", "F")):  # more than the 256 values of "L"
                grey = np.asarray(picture, np.float64)
            else:
                if "A" in picture.getbands() or "transparency" in picture.info:
                    background = Image.new("RGBA", picture.size, "white" if invert else "black")
                    picture = Image.alpha_composite(background, picture.convert("RGBA"))
                grey = np.asarray(picture.convert("L"), np.float64)
    except (*READ_ERRORS, Image.DecompressionBombError):  # Pillow raises different errors for each format
        raise ValueError(f"{path}: is damaged or not an image") from None
    return max(255.0, grey.max()) - grey if invert else grey


def array(path: Source, key: str | None = None) -> Array:
    """Read an array of numbers from a .npy, .npz, .csv, .parquet or idx file.

    Parameters
    ----------
    path : path
        The file.
    key : str, optional
        The name of the array in an npz file; by default ``images``, or the only array.

    Returns
    -------
    array of float64
        The numbers.

    Raises
    ------
    ValueError
        If the file is damaged, of an unknown format, or has no such array.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/a.npy", [1, 2])
    ...     array(folder + "/a.npy")
    array([1., 2.])
    """
    where = Path(path)
    check_file(where)
    suffix = where.suffix.lower()
    read = {".npy": _numpy, **dict.fromkeys(TABLES, _table), **dict.fromkeys(PARQUET, _parquet)}.get(suffix, _idx)
    found = _archive(where, key) if suffix == ".npz" else read(where)
    return np.asarray(validation.real(found, str(where)), np.float64)


def check_file(path: Path) -> None:
    """Raise OSError if there is no file at a path."""
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder; expected a file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file")


def _numpy(path: Path) -> NDArray[Any]:
    """Read a .npy file."""
    try:
        with open(path, "rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except PermissionError:
        raise
    except READ_ERRORS as error:
        raise ValueError(f"{path}: is damaged or not an array of numbers ({error})") from None


def _archive(path: Path, key: str | None) -> NDArray[Any]:
    """Read an array of an .npz file."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            names = list(file.files)
            name = key if key is not None else "images" if "images" in names else names[0] if len(names) == 1 else None
            if name in names:
                return np.asarray(file[name])
    except PermissionError:
        raise
    except (*READ_ERRORS, AttributeError) as error:  # the last: a file of another format
        raise ValueError(f"{path}: is damaged or not an npz file of numbers ({error})") from None
    if key is None:
        raise ValueError(f"{path}: has the arrays {', '.join(names) or '(none)'}; choose one with the key")
    raise ValueError(f"{path}: has no array {key!r}, only {', '.join(names) or 'none at all'}")


def _table(path: Path) -> NDArray[Any]:
    """Read a text file of numbers, with or without column names."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text; expected numbers separated by commas") from None
    lines = [line for line in text.splitlines() if line.strip()]
    delimiter = next((mark for mark in ",;\t" if lines and mark in lines[0]), None)
    try:
        if lines and not _numbers(next(csv.reader(lines[:1], delimiter=delimiter or " "))):
            lines = lines[1:]  # column names
        if not lines:
            raise ValueError("it is empty")
        return np.loadtxt(io.StringIO("\n".join(lines)), delimiter=delimiter, ndmin=2)
    except (ValueError, csv.Error) as error:  # csv.Error: a field that is too long
        raise ValueError(f"{path}: expected a table of numbers ({str(error).partition(';')[0]})") from None


def _numbers(words: list[str]) -> bool:
    """Return whether the fields of a line are numbers or empty."""
    try:
        return bool([float(word) for word in words if word or len(words) == 1])
    except ValueError:
        return False


def _parquet(path: Path) -> NDArray[Any]:
    """Read the columns of a Parquet file."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ImportError(f"{path}: Parquet needs pyarrow: pip install 'gibbsot[parquet]'") from None
    try:
        table = parquet.read_table(path)
        columns = [np.asarray(column.to_numpy()) for column in table.columns]
    except (ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path}: is damaged or not a Parquet file ({str(error).splitlines()[0]})") from None
    for name, column in zip(table.column_names, columns, strict=True):
        if column.dtype.kind not in "fiub":
            raise ValueError(f"{path}: column {name!r} is not numeric; expected numbers in all columns")
    return np.column_stack(columns) if columns else np.empty((0, 0))


def _idx(path: Path) -> NDArray[Any]:
    """Read the format of MNIST: two zeros, the type (8: bytes), the number of axes, the shape, the values."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except READ_ERRORS:
            raise ValueError(f"{path}: is damaged, decompression failed") from None
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise ValueError(f"{path}: has an unknown format; expected {_FORMATS}")
    start = 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist()) if len(content) >= start else ()
    values = np.frombuffer(content[start:], np.uint8)
    if not shape or len(values) != np.prod(shape, dtype=object):
        raise ValueError(f"{path}: is damaged, its length does not match its shape {shape}")
    return values.reshape(shape)
