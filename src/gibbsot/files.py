"""Files written whole or not at all, and arrays in them: npz without pickle."""

from __future__ import annotations

import os
import secrets
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_FORMAT = "gibbsot/1 "

# What Python's and NumPy's readers raise for files that are damaged: any of these, according to where.
DAMAGE = (
    OSError, ValueError, TypeError, SyntaxError, EOFError, KeyError, RuntimeError, OverflowError, MemoryError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing, which takes the place of the old one when all of it is on the disk.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(folder + "/a.txt") as file:
    ...         _ = file.write(b"all of it")
    ...     Path(folder, "a.txt").read_text()
    'all of it'
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def save(path: str | os.PathLike[str], kind: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file, which is the old one until all of the new one is on the disk.

    Parameters
    ----------
    path : path
    kind : str
        What the file holds; `load` asks for the same.
    arrays : mapping of str to array, number or str
    """
    entries: dict[str, Any] = {key: np.asarray(value) for key, value in arrays.items()}
    for key, entry in entries.items():
        if entry.dtype.hasobject:
            raise TypeError(f"{key}: expected an array, a number or words, got {arrays[key]!r}")
    with replacing(path) as file:
        np.savez(file, format=_FORMAT + kind, **entries)


def load(path: str | os.PathLike[str], kind: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file that `save` wrote.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(folder + "/a.npz", "numbers", {"x": [1, 2]})
    ...     load(folder + "/a.npz", "numbers")["x"]
    array([1, 2])
    """
    try:
        with open(path, "rb") as stream, zipfile.ZipFile(stream) as archive:
            arrays = {}
            for entry in archive.namelist():
                with archive.open(entry) as part:
                    arrays[entry.removesuffix(".npy")] = np.lib.format.read_array(part, allow_pickle=False)
                    part.read()  # to the end, where the checksum is
    except FileNotFoundError:
        raise
    except DAMAGE as error:
        raise ValueError(f"path: {os.fspath(path)} is damaged or no file of gibbsot's ({error})") from None
    found = str(arrays.pop("format", "no format at all"))
    if found != _FORMAT + kind:
        raise ValueError(f"path: {os.fspath(path)} holds {found!r}; expected {_FORMAT + kind!r}")
    return arrays
