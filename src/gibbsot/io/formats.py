"""Arrays from files, by format: .npy, .npz, CSV, Parquet and the idx format of MNIST."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import validation
from . import limits
from .images import IMAGES, STDIN, Source, check_file
from .npz import READ_ERRORS, read_array, read_entry, unpacked_size, words

Array = NDArray[np.float64]

TABLES = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
_LONGEST_INPUT = 2**30  # bytes of standard input
_COUNTED = 4  # columns from which a first line 0, 1, 2, ... has their names; fewer may be a point
_BATCH = 2**16  # rows of a Parquet file that are decoded at a time
_FORMATS = f"an image ({' '.join(IMAGES)}), .npy, .npz, .csv, .parquet or an idx file of MNIST"


class Table(NamedTuple):
    """An array of numbers and what its columns are called.

    Attributes
    ----------
    values : array
        The numbers.
    columns : tuple of str
        The names of the columns of a table, empty where it has none.
    names : tuple of str
        The names of the rows, which a first column of text has, empty where there is none.
    """

    values: NDArray[Any]
    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def array(path: Source, key: str | None = None) -> Array:
    """Read an array of numbers from a .npy, .npz, .csv, .parquet or idx file.

    Parameters
    ----------
    path : path
        The file.
        ``-`` is a table from standard input.
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
    >>> import numpy as np
    >>> from gibbsot.io.readers import array
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/a.npy", [1, 2])
    ...     array(folder + "/a.npy")
    array([1., 2.])
    """
    return table(path, key).values


def table(
    path: Source, key: str | None = None, columns: Sequence[str] | None = None, header: bool | None = None
) -> Table:
    r"""Read an array of numbers as `array` does, with the names of its columns.

    Parameters
    ----------
    path : path
        The file.
    key : str, optional
        As for `array`.
    columns : sequence of str, optional
        The columns to keep, by name or by number from 1.
    header : bool, optional
        Whether the first line of a text file has the names of the columns; by default its fields tell. A first column
        of text has the names of the rows.

    Returns
    -------
    Table

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.csv")
    ...     _ = file.write_text("x;y\n0,5;1\n")
    ...     table(file, columns=["y", "1"])
    Table(values=array([[1. , 0.5]]), columns=('y', 'x'), names=())
    """
    where = Path(path)
    check_file(where)
    suffix = where.suffix.lower()
    if where == STDIN or suffix in TABLES:
        found = _text(where, columns, header)
    elif suffix in PARQUET:
        found = _parquet(where, columns)
    else:
        if columns is not None:
            raise ValueError(f"{where}: is not a table; columns can be chosen in .csv and .parquet files")
        found = Table(_archive(where, key) if suffix == ".npz" else (_numpy if suffix == ".npy" else _idx)(where))
    if found.values.ndim == 0:
        raise ValueError(f"{where}: has a single value; expected an array")
    try:
        values = np.asarray(validation.real(found.values, str(where)), np.float64)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return found._replace(values=values)


def _chosen(columns: Sequence[str] | None, names: tuple[str, ...], n: int, path: Path) -> list[int] | None:
    """Return the positions of columns that are given by name, or by number from 1."""
    if columns is None:
        return None
    for name in columns:
        if name not in names and not _is_number_of(name, n):
            known = f"the columns {', '.join(map(repr, names))}" if names else "columns without names"
            raise ValueError(f"{path}: has no column {name!r}, but {known}; expected names, or numbers from 1 to {n}")
    return [names.index(name) if name in names else int(name) - 1 for name in columns]


def _is_number_of(name: str, n: int) -> bool:
    """Return whether a column is given by a number from 1 to n."""
    return name.isdecimal() and 1 <= int(name) <= n


def _numpy(path: Path) -> NDArray[Any]:
    """Read a .npy file."""
    try:
        with open(path, "rb") as file:
            return read_array(file, path.stat().st_size)
    except PermissionError:
        raise
    except READ_ERRORS as error:
        raise ValueError(f"{path}: is damaged or not an array of numbers ({words(error)})") from None


def _archive(path: Path, key: str | None) -> NDArray[Any]:
    """Read an array of an .npz file."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            names = list(file.files)
            name = key if key is not None else "images" if "images" in names else names[0] if len(names) == 1 else None
            if name is not None and name in names:
                entry = name if name in file.zip.namelist() else f"{name}.npy"
                limits.check(unpacked_size(file.zip, entry), file.zip.getinfo(entry).compress_size, path)
                return read_entry(file.zip, entry)
    except PermissionError:
        raise
    except (*READ_ERRORS, AttributeError) as error:  # the last: a file of another format
        if str(error).startswith(f"{path}:"):
            raise
        raise ValueError(f"{path}: is damaged or not an npz file of numbers ({words(error)})") from None
    if key is None:
        raise ValueError(f"{path}: has the arrays {', '.join(names) or '(none)'}; choose one with the key (--key)")
    raise ValueError(f"{path}: has no array {key!r}, only {', '.join(names) or 'none at all'}")


# --- text ------------------------------------------------------------------------------------------------------------


def _text(path: Path, columns: Sequence[str] | None, header: bool | None) -> Table:
    """Read a text file of numbers, with or without column names; with semicolons also with decimal commas."""
    numbered = [(k, line) for k, line in enumerate(decoded_text(path).splitlines(), 1) if line.strip()]
    if not numbered:
        raise ValueError(f"{path}: expected a table of numbers (it is empty)")
    mark = next((mark for mark in ";\t," if any(mark in line for _, line in numbered)), None)
    commas = mark == ";" and any("," in line for _, line in numbered[1:] or numbered)
    names: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    which = None
    try:
        first = _fields(numbered[0][1], mark)
        named = _is_named(numbered, mark, commas) and not _count(first[1:])
        if header or (header is None and not named and not _is_row(first, columns, commas)):
            names, numbered = tuple(name.strip() for name in first), numbered[1:]
        which = _chosen(columns, names, len(first), path)
        if which is None and _is_named(numbered, mark, commas):
            rows = tuple(_fields(line, mark)[0].strip() for _, line in numbered)
            which = list(range(1, len(_fields(numbered[0][1], mark))))
            if len(names) == len(which):
                names = ("", *names)  # the column of names has none, as row.names of R
        if not numbered:
            raise ValueError("it has the names of columns, but no rows")
        if commas and any("." in line for _, line in numbered):
            raise ValueError("it has both decimal commas and decimal points")
        text = "\n".join(line for _, line in numbered)
        text = text.replace(",", ".") if commas else text
        values = np.loadtxt(io.StringIO(text), delimiter=mark, ndmin=2, quotechar='"', usecols=which)
    except (ValueError, csv.Error) as error:  # csv.Error: a field that is too long
        if str(error).startswith(f"{path}:"):
            raise
        reason = _reason(numbered, mark, commas, which, names) or str(error).partition(";")[0]
        raise ValueError(f"{path}: expected a table of numbers ({reason})") from None
    if which is not None:
        names = tuple(names[k] for k in which) if len(names) > max(which) else ()
    return Table(values, names if len(names) == values.shape[1] else (), rows)


def decoded_text(path: Path) -> str:
    """Return the text of a file in UTF-8, in UTF-16 with a byte order mark, or in Latin-1."""
    content = path.read_bytes() if path != STDIN else sys.stdin.buffer.read(_LONGEST_INPUT + 1)
    if path == STDIN and len(content) > _LONGEST_INPUT:
        raise ValueError(f"{path}: standard input is longer than {_LONGEST_INPUT / 1e6:.0f} MB; expected a file")
    encodings = ["utf-16"] if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ["utf-8-sig", "latin-1"]
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if not re.search(r"[^\x09\x0a\x0b\x0c\x0d\x1a\x20-\x7e\xa0-\U0010ffff]", text):
            return text.rstrip("\x1a")
    raise ValueError(f"{path}: is not text; expected numbers separated by commas")


def _fields(line: str, mark: str | None) -> list[str]:
    """Return the fields of a line."""
    return line.split() if mark is None else next(csv.reader([line], delimiter=mark))


def _are_numbers(words: Sequence[str], commas: bool) -> bool:
    """Return whether fields are numbers."""
    try:
        return bool([float(word.replace(",", ".") if commas else word) for word in words])
    except ValueError:
        return False


def _is_row(first: list[str], columns: Sequence[str] | None, commas: bool) -> bool:
    """Return whether the first line has numbers, in the columns of interest, and not the names of columns."""
    if columns is not None and all(_is_number_of(name, len(first)) for name in columns):
        first = [first[int(name) - 1] for name in columns]
    if _count(first):
        return False
    # digits and separators alone are not names but numbers that cannot be read, such as 1.234,5
    return _are_numbers(first, commas) or all(re.fullmatch(r"\s*[+-]?\d[\d.,' ]*", word) for word in first)


def _count(words: Sequence[str]) -> bool:
    """Return whether fields are 0, 1, 2, ..., the names that pandas gives to columns."""
    return len(words) >= _COUNTED and [word.strip() for word in words] == [str(k) for k in range(len(words))]


def _is_named(numbered: list[tuple[int, str]], mark: str | None, commas: bool) -> bool:
    """Return whether the first column has names of rows: text throughout, and numbers beside it."""
    if not numbered or mark is None:
        return False
    try:
        lines = [_fields(line, mark) for _, line in numbered]
    except csv.Error:
        return False
    return all(
        len(line) > 1
        and line[0].strip()
        and not re.match(r"\s*[+-]?[.,]?\d", line[0])
        and not _are_numbers(line[:1], commas)
        for line in lines
    ) and _are_numbers(lines[0][1:], commas)


def _reason(
    numbered: list[tuple[int, str]], mark: str | None, commas: bool, which: list[int] | None, names: Sequence[str]
) -> str:
    """Return what is wrong with the first bad line of a table, "" if no line is bad."""
    try:
        width = len(_fields(numbered[0][1], mark)) if numbered else 0
        for k, line in numbered:
            words = _fields(line, mark)
            if len(words) != width:
                return f"line {k} has {len(words)} fields, line {numbered[0][0]} has {width}"
            for column in range(width) if which is None else which:
                word = words[column]
                if not _are_numbers([word], commas):
                    hint = "; decimal commas need semicolons between the columns" if re.search(r"\d,\d", word) else ""
                    if mark == ";" and hint:
                        hint = "; expected numbers without thousands separators"
                    what = f"{word.strip()[:40]!r}, which is not a number" if word.strip() else "an empty field"
                    where = f" in column {names[column]!r}" if len(names) == width and names[column] else ""
                    return f"line {k} has {what}{where}{hint}"
    except csv.Error:
        pass
    return ""


# --- other formats ---------------------------------------------------------------------------------------------------


def _parquet(path: Path, columns: Sequence[str] | None) -> Table:
    """Read the columns of a Parquet file."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ImportError(f"{path}: Parquet needs pyarrow: pip install 'gibbsot[parquet]'") from None
    try:
        file = parquet.ParquetFile(path, memory_map=False, pre_buffer=False)
        schema = file.schema_arrow
        names = tuple(schema.names)
        which = _chosen(columns, names, len(names), path)
        names = names if which is None else tuple(names[k] for k in which)
        if len(set(schema.names)) < len(schema.names):
            raise ValueError(f"{path}: has several columns of the same name; expected different names")
        for name in names:
            if not _is_numeric(schema.field(name).type):
                raise _not_numeric(path, name)
        _check_parquet(file.metadata, names, path)
        values, row = np.empty((file.metadata.num_rows if names else 0, len(names))), 0
        for batch in file.iter_batches(_BATCH, columns=list(names), use_threads=False) if names else ():
            for k, name in enumerate(names):
                column = batch.column(batch.schema.get_field_index(name)).to_numpy(zero_copy_only=False)
                if column.dtype.kind not in "fiub":  # truth values, some of which are missing
                    raise _not_numeric(path, name)
                values[row : row + len(batch), k] = column
            row += len(batch)
    except (ArrowException, OSError, ValueError) as error:
        if str(error).startswith(f"{path}:"):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path}: is damaged or not a Parquet file ({reason})") from None
    if row != len(values):
        raise ValueError(f"{path}: is damaged, it has {row} rows, but its header promises {len(values)}")
    return Table(values, names)


def _is_numeric(kind: Any) -> bool:
    """Return whether a column of a type of Arrow can be read as numbers."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _not_numeric(path: Path, name: str) -> ValueError:
    return ValueError(f"{path}: column {name!r} is not numeric; expected numbers (--columns chooses columns)")


def _check_parquet(metadata: Any, names: Sequence[str], path: Path) -> None:
    """Raise ValueError if some columns of a Parquet file would unpack to far more than the file holds."""
    size, columns = path.stat().st_size, range(metadata.num_columns)
    limits.check(8 * metadata.num_rows * len(names), size, path)
    chosen = [k for k in columns if metadata.schema.column(k).path.partition(".")[0] in names]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        limits.check(sum(group.column(k).total_uncompressed_size for k in chosen), size, path)


def _idx(path: Path) -> NDArray[Any]:
    """Read the format of MNIST: two zeros, the type (8: bytes), the number of axes, the shape, the values."""
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    length = path.stat().st_size
    try:
        with gzip.open(path) if zipped else open(path, "rb") as file:
            head = file.read(4)
            if head[:3] != b"\0\0\x08" or len(head) < 4:
                raise ValueError(f"{path}: has an unknown format; expected {_FORMATS}")
            sides = file.read(4 * head[3])
            shape = tuple(np.frombuffer(sides, ">u4").tolist()) if sides and len(sides) == 4 * head[3] else ()
            size = math.prod(shape)
            if zipped:
                limits.check(8 * size, length, path)
            content = file.read(size + 1) if shape and (zipped or size <= length) else b""
    except (OSError, EOFError, zlib.error):
        raise ValueError(f"{path}: is damaged, decompression failed") from None
    if not shape or len(content) != size:
        raise ValueError(f"{path}: is damaged, its length does not match its shape {shape}")
    return np.frombuffer(content, np.uint8).reshape(shape)
