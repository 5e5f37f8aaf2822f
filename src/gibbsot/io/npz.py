"""Files written whole or not at all, and arrays in them: npz without pickle."""

from __future__ import annotations

import hashlib
import io
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


def save(path: str | os.PathLike[str], kind: str, arrays: Mapping[str, Any]) -> str:
    """Write arrays to a file, which is the old one until all of the new one is on the disk; return its checksum.

    Parameters
    ----------
    path : path or URL
    kind : str
        What the file holds; `load` asks for the same.
    arrays : mapping of str to array, number or str
    """
    entries: dict[str, Any] = {key: np.asarray(value) for key, value in arrays.items()}
    for key, entry in entries.items():
        if entry.dtype.hasobject:
            raise TypeError(f"{key}: expected an array, a number or words, got {arrays[key]!r}")
    whole = io.BytesIO()
    np.savez(whole, format=_FORMAT + kind, **entries)
    content = whole.getbuffer()
    if remote(path):
        system, inside = filesystem(path)
        system.makedirs(os.path.dirname(inside), exist_ok=True)
        system.pipe_file(inside, bytes(content))
    else:
        with replacing(path) as file:
            file.write(content)
    return hashlib.sha256(content).hexdigest()


def load(path: str | os.PathLike[str], kind: str, checksum: str | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file that `save` wrote, if it has the checksum.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checksum = save(folder + "/a.npz", "numbers", {"x": [1, 2]})
    ...     load(folder + "/a.npz", "numbers", checksum)["x"]
    array([1, 2])
    """
    try:
        content = _content(path)
        if checksum is not None and hashlib.sha256(content).hexdigest() != checksum:
            raise ValueError("its checksum is another")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
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


def _content(path: str | os.PathLike[str]) -> bytes:
    if not remote(path):
        return Path(path).read_bytes()
    system, inside = filesystem(path)
    return bytes(system.cat_file(inside))


def remote(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is a URL."""
    return "://" in os.fspath(path)


def place(path: str | os.PathLike[str]) -> str:
    """Return a URL as it is, and the absolute path of anything else: other processes are elsewhere."""
    return os.fspath(path).rstrip("/") if remote(path) else os.path.abspath(path)


def filesystem(url: str | os.PathLike[str]) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    try:
        import fsspec
    except ImportError:
        raise ImportError(f"{os.fspath(url)}: URLs need fsspec: pip install 'gibbsot[dask]'") from None
    system, inside = fsspec.url_to_fs(os.fspath(url))
    return system, inside
