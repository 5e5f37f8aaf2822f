"""Files of arrays: npz without pickle, written whole or not at all."""

from __future__ import annotations

import os
import secrets
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FORMAT = "gibbsot/1 "


def save(path: str | os.PathLike[str], kind: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file, which is the old one until all of the new one is on the disk.

    Parameters
    ----------
    path : path
    kind : str
        What the file holds; `load` asks for the same.
    arrays : mapping of str to array, number or str
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with open(part, "xb") as file:
            entries: dict[str, Any] = {key: np.asarray(value) for key, value in arrays.items()}
            for key, entry in entries.items():
                if entry.dtype.hasobject:
                    raise TypeError(f"{key}: expected an array, a number or words, got {arrays[key]!r}")
            np.savez(file, format=_FORMAT + kind, **entries)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


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
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"path: {os.fspath(path)} is damaged or no file of gibbsot's ({error})") from None
    found = str(arrays.pop("format", "no format at all"))
    if found != _FORMAT + kind:
        raise ValueError(f"path: {os.fspath(path)} holds {found!r}; expected {_FORMAT + kind!r}")
    return arrays
