"""Arrays in npz files: atomic writes, no pickle, a named format; local paths and URLs."""

from __future__ import annotations

import hashlib
import io
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from . import atomic
from .schemas import Schema

# What the readers of Python and NumPy raise for damaged files, depending on the damaged bytes.
READ_ERRORS = (
    OSError, ValueError, TypeError, SyntaxError, EOFError, KeyError, RuntimeError, OverflowError, MemoryError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

FORMAT = "format.npy"  # the entry with the name and version of the format
LONGEST_FORMAT = 2**12  # its size in bytes


def save(path: str | os.PathLike[str], schema: Schema, arrays: Mapping[str, Any]) -> str:
    """Write arrays to a file, atomically on a local path.

    Parameters
    ----------
    path : path or URL
        The file.
    schema : Schema
        The name and version of the file's format.
    arrays : mapping of str to array, number or str
        The entries of the file.

    Returns
    -------
    str
        The SHA-256 checksum of the file.

    Raises
    ------
    TypeError
        If an entry would need pickle.
    ValueError
        If the schema has no such entry, or has it in another form: `load` would refuse it.
    """
    entries: dict[str, Any] = {key: np.asarray(value) for key, value in arrays.items()}
    for key, entry in entries.items():
        if entry.dtype.hasobject:
            raise TypeError(f"{key}: expected an array, a number or a string, got {arrays[key]!r}")
        if not schema.has(key):  # it would not be read
            raise ValueError(f"{key}: is not an entry of the schema {schema.identifier!r}")
        schema.check(key, entry)
    buffer = io.BytesIO()
    np.savez(buffer, format=schema.identifier, **entries)
    with buffer.getbuffer() as content:  # an error that kept it would keep the buffer from being closed
        if remote(path):
            system, inside = filesystem(path)
            system.makedirs(os.path.dirname(inside), exist_ok=True)
            system.pipe_file(inside, bytes(content))
        else:
            with atomic.replace_file(path) as file:
                file.write(content)
        return hashlib.sha256(content).hexdigest()


def load(path: str | os.PathLike[str], schema: Schema, checksum: str | None = None) -> dict[str, NDArray[Any]]:
    """Read a file that `save` wrote.

    Parameters
    ----------
    path : path or URL
        The file.
    schema : Schema
        The format that the file must have.
    checksum : str, optional
        The SHA-256 checksum that it must have.

    Returns
    -------
    dict of str to array
        The entries.

    Raises
    ------
    ValueError
        If the file is damaged, of another format, or has another checksum.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checksum = save(folder + "/a.npz", Schema("numbers"), {"x": [1, 2]})
    ...     load(folder + "/a.npz", Schema("numbers"), checksum)["x"]
    array([1, 2])
    """
    if not remote(path) and os.path.isdir(path):
        raise ValueError(f"path: {os.fspath(path)} is a folder; expected a file")
    arrays = {}
    try:
        with _opened(path) as (file, size):
            if checksum is not None and _sha256(file) != checksum:
                raise ValueError("the checksum differs")
            with zipfile.ZipFile(file) as archive:
                entries = archive.namelist()
                found = str(read_entry(archive, FORMAT, LONGEST_FORMAT)) if FORMAT in entries else "no format"
                if found == schema.identifier:  # nothing else of other files is unpacked
                    _check_stored(archive, size)
                    for entry in entries:
                        key = entry.removesuffix(".npy")
                        if entry != FORMAT and schema.has(key):
                            arrays[key] = read_entry(archive, entry)
                            schema.check(key, arrays[key])
    except FileNotFoundError:
        raise
    except READ_ERRORS as error:
        raise ValueError(f"path: {os.fspath(path)} is damaged or not a gibbsot file ({words(error)})") from None
    if found != schema.identifier:
        raise ValueError(f"path: {os.fspath(path)} holds {found!r}; expected {schema.identifier!r}")
    return arrays


def _check_stored(archive: zipfile.ZipFile, size: int) -> None:
    """Raise ValueError if the entries of a file of a size are compressed or overlap, which those of `save` do not."""
    for info in archive.infolist():
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{info.filename} is compressed; expected entries that are not, as save writes them")
    if (total := sum(info.file_size for info in archive.infolist())) > size:
        raise ValueError(f"its entries would have {total} bytes, more than the file")


def words(error: BaseException) -> str:
    """Return the message of an error, or what kind of error it is if it has none."""
    return str(error) or {"MemoryError": "it does not fit into memory"}.get(type(error).__name__, type(error).__name__)


def read_entry(archive: zipfile.ZipFile, entry: str, most: int | None = None) -> NDArray[Any]:
    """Read an array of an npz file.

    Parameters
    ----------
    archive : ZipFile
        The open file.
    entry : str
        The name of the entry.
    most : int, optional
        The largest size in bytes that is unpacked.

    Returns
    -------
    array

    Raises
    ------
    ValueError
        If the entry is larger than that, or its size is not the one that the header of the array promises.
    """
    size = check_entry(archive, entry, most)
    with archive.open(entry) as member:
        array = read_array(member, size)
        member.read()  # to its end, where zipfile checks the CRC
    return array


def check_entry(archive: zipfile.ZipFile, entry: str, most: int | None = None) -> int:
    """Return the size of an entry in bytes; raise ValueError if its array is larger than `most` or than it promises."""
    size = archive.getinfo(entry).file_size
    if most is not None and size > most:
        raise ValueError(f"{entry} would have {size} bytes")
    with archive.open(entry) as member:
        read_header(member, size)
    return size


def unpacked_size(archive: zipfile.ZipFile, entry: str) -> int:
    """Return the bytes of the array that the header of an entry promises, with at least eight for a number."""
    with archive.open(entry) as member:
        shape, dtype = read_header(member, archive.getinfo(entry).file_size)
    return math.prod(shape) * max(8, dtype.itemsize)


def read_array(file: Any, size: int) -> NDArray[Any]:
    """Read an array in the format of .npy files without pickle, if the file is as large as the header promises.

    Parameters
    ----------
    file : binary file
        Open for reading.
    size : int
        Its size in bytes.

    Returns
    -------
    array

    Raises
    ------
    ValueError
        If the header is not valid or promises another size.
    """
    read_header(file, size)
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def read_header(file: Any, size: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type in the header of a .npy file; raise ValueError if it is not valid or of another size."""
    form = np.lib.format
    version = form.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the npy format is not read")
    shape, _, dtype = (form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0)(file)
    promised = file.tell() + math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise ValueError("it has Python objects; expected numbers")
    if promised != size:
        raise ValueError(f"it has {size} bytes, but its header promises {promised}")
    return shape, dtype


@contextmanager
def complete(path: str | os.PathLike[str]) -> Iterator[None]:
    """Make what goes wrong with the entries of a file a ValueError that names it."""
    try:
        yield
    except KeyError as error:
        raise ValueError(f"path: {os.fspath(path)} is incomplete, it lacks {error}") from None
    except (TypeError, AttributeError, IndexError, ArithmeticError, AssertionError, MemoryError, ValueError) as error:
        if str(error).startswith("path: "):
            raise
        raise ValueError(f"path: {os.fspath(path)} is damaged ({words(error)})") from None


def with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose keys start with a prefix, without it.

    Examples
    --------
    >>> with_prefix({"cost_M": np.eye(1), "seed": np.array(1)}, "cost_")
    {'M': array([[1.]])}
    """
    return {key.removeprefix(prefix): x for key, x in arrays.items() if key.startswith(prefix)}


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file for reading; yield it and its size in bytes."""
    if remote(path):
        system, inside = filesystem(path)
        content = bytes(system.cat_file(inside))
        yield io.BytesIO(content), len(content)
        return
    atomic.check_regular(Path(path))
    with open(path, "rb") as file:
        yield file, os.fstat(file.fileno()).st_size


def _sha256(file: BinaryIO) -> str:
    """Return the checksum of an open file."""
    file.seek(0)
    found = hashlib.sha256()
    while block := file.read(2**20):
        found.update(block)
    return found.hexdigest()


def remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL."""
    return "://" in os.fspath(path)


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path that other processes can use: a URL without its last slash, or the absolute path."""
    return os.fspath(path).rstrip("/") if remote(path) else os.path.abspath(path)


def filesystem(url: str | os.PathLike[str]) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it."""
    try:
        import fsspec
    except ImportError:
        raise ImportError(f"{os.fspath(url)}: URLs need fsspec: pip install 'gibbsot[dask]'") from None
    system, inside = fsspec.url_to_fs(os.fspath(url))
    return system, inside
