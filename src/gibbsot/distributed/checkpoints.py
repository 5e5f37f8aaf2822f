"""Checkpoints: a folder with a subfolder for each, of which the last two are kept; damaged ones are skipped.

A fit marks its folder, and each subfolder that it makes, with a file that has the fit's id. What does not carry this
mark is never removed or written over, and a folder with anything else in it is refused before a fit starts.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ..core.warn import warn
from ..io import atomic, npz

Folder = str | os.PathLike[str]
T = TypeVar("T")

MARK = "gibbsot.json"  # the file that marks a folder
_LONGEST_MARK = 1000  # bytes
_NAMES = re.compile(r"epoch-\d{8,}")  # of `folder_of`
_FILES = re.compile(r"model\.npz|shard-\d{5,}\.npz|gibbsot\.json")  # of a checkpoint


def exist(folder: Folder) -> bool:
    """Tell whether a folder has a checkpoint."""
    files = (f"{_join(folder, name)}/model.npz" for name in _names(folder))
    if npz.remote(folder):
        system, _ = npz.filesystem(folder)
        return any(system.exists(path) for path in files)
    return any(map(os.path.exists, files))


def prepare(folder: Folder) -> str:
    """Make and mark a folder for the checkpoints of a new fit, and return the fit's id.

    A folder that a fit has marked and left without a checkpoint is taken over, with its id.

    Parameters
    ----------
    folder : path or URL
        The folder.

    Returns
    -------
    str
        The id.

    Raises
    ------
    ValueError
        If the folder has checkpoints, or anything else that is not of a fit, or cannot be made.
    """
    fit = mark(folder)
    if exist(folder):
        whose = "of another fit, which load resumes" if fit else f"without the mark of a fit ({MARK})"
        raise ValueError(f"checkpoint: {os.fspath(folder)} has checkpoints {whose}; expected a folder without")
    for name in sorted(_entries(folder)):
        if not (name == MARK and fit) and not _is_temporary(name) and not _is_of(_join(folder, name), fit):
            raise ValueError(
                f"checkpoint: {os.fspath(folder)} has {name!r}, which is not a checkpoint of this fit; "
                "expected a folder that is new or empty"
            )
    if not fit:
        fit = secrets.token_hex(16)
        try:
            _make(folder)
            _write_mark(folder, fit)
        except OSError as error:
            raise ValueError(
                f"checkpoint: {os.fspath(folder)} cannot be a folder ({error.strerror or error})"
            ) from None
    return fit


def claim(folder: Folder, fit: str) -> str:
    """Return the id under which a fit may write to a folder: its own if it has marked it; else prepare the folder.

    Parameters
    ----------
    folder : path or URL
        The folder.
    fit : str
        The id of the fit; "" if it has none.

    Returns
    -------
    str
        The id.
    """
    found = mark(folder)
    return fit if found and found == fit else prepare(folder)


def mark(folder: Folder) -> str:
    """Return the id of the fit that has marked a folder, "" if none has."""
    path = _join(folder, MARK)
    try:
        if npz.remote(path):
            system, inside = npz.filesystem(path)
            content = bytes(system.cat_file(inside, 0, _LONGEST_MARK))
        else:
            atomic.check_regular(Path(path))  # a pipe would wait for ever
            with open(path, "rb") as file:
                content = file.read(_LONGEST_MARK)
        found = json.loads(content)
    except (OSError, ValueError, RecursionError):
        return ""
    fit = found.get("fit") if isinstance(found, dict) else None
    return fit if isinstance(fit, str) and re.fullmatch("[0-9a-f]{32}", fit) else ""


def folder_of(folder: Folder, epoch: int) -> str:
    """Return the subfolder for the checkpoint of an epoch."""
    return _join(folder, f"epoch-{epoch:08d}")


@contextmanager
def writing(folder: Folder, epoch: int, previous: str, fit: str) -> Iterator[str]:
    """Yield the subfolder for a checkpoint; after it is written, remove the others of this fit but the previous one.

    Parameters
    ----------
    folder : path or URL
        The folder of the fit.
    epoch : int
        The epoch.
    previous : str
        The subfolder of the checkpoint before.
    fit : str
        The id of the fit.

    Yields
    ------
    str
        The subfolder.

    Raises
    ------
    FileExistsError
        If the subfolder exists and is not of this fit.
    """
    current = folder_of(folder, epoch)
    if not _is_of(current, fit) and _exists(current):
        raise FileExistsError(errno.EEXIST, f"exists without the mark of this fit ({MARK})", current)
    if mark(current) != fit:
        _make(current)
        _write_mark(current, fit)
    if not npz.remote(folder):
        atomic.sync_folder(folder)
    yield current
    for name in _names(folder):
        old = _join(folder, name)
        if old not in (current, previous) and mark(old) == fit:
            _remove(old)


def load_last(folder: Folder, load: Callable[[str], T]) -> T:
    """Return what `load` returns for the last checkpoint, or for the one before if that is damaged."""
    damage: Exception | None = None
    names = _names(folder)
    while names:
        path = _join(folder, names.pop())
        try:
            return load(path)
        except (OSError, ValueError) as error:
            damage = error
            if names:
                warn(f"{path}: is damaged or not complete ({error}); trying the one before")
    why = "" if damage is None else f" ({damage})"
    raise ValueError(f"path: {os.fspath(folder)} has no checkpoint that is complete{why}") from damage


def _join(folder: Folder, name: str) -> str:
    return f"{npz.absolute(folder)}/{name}"


def _exists(path: str) -> bool:
    if npz.remote(path):
        system, inside = npz.filesystem(path)
        return bool(system.exists(inside))
    return os.path.lexists(path)


def _entries(folder: Folder) -> list[str]:
    """Return the names of all that is in a folder; none if there is no folder."""
    if npz.remote(folder):
        system, inside = npz.filesystem(folder)
        paths = system.ls(inside, detail=False) if system.isdir(inside) else []
        return [path.rstrip("/").rpartition("/")[2] for path in paths]
    return os.listdir(folder) if os.path.isdir(folder) else []


def _names(folder: Folder) -> list[str]:
    """Return the names of all checkpoints, complete or not, the oldest first."""
    return sorted(filter(_NAMES.fullmatch, _entries(folder)))


def _is_of(path: str, fit: str) -> bool:
    """Tell whether a subfolder carries the mark of a fit, or has the name of a checkpoint and nothing in it."""
    if not _NAMES.fullmatch(path.rpartition("/")[2]):
        return False
    if fit and mark(path) == fit:
        return True
    if npz.remote(path):
        system, inside = npz.filesystem(path)
        is_folder = bool(system.isdir(inside))
    else:
        is_folder = os.path.isdir(path) and not os.path.islink(path)
    return is_folder and all(map(_is_temporary, _entries(path)))


def _is_temporary(name: str) -> bool:
    """Tell whether a file is one that a killed process has left while it wrote a mark."""
    return atomic.is_temporary(name) and name.startswith(f".{MARK}.")


def _make(folder: Folder) -> None:
    if npz.remote(folder):
        system, inside = npz.filesystem(folder)
        system.makedirs(inside, exist_ok=True)
    else:
        Path(folder).mkdir(parents=True, exist_ok=True)


def _write_mark(folder: Folder, fit: str) -> None:
    path, text = _join(folder, MARK), json.dumps({"holds": "checkpoints of gibbsot", "fit": fit}) + "\n"
    if npz.remote(path):
        system, inside = npz.filesystem(path)
        system.pipe_file(inside, text.encode())
    else:
        with atomic.replace_file(path) as file:
            file.write(text.encode())


def _remove(folder: str) -> None:
    """Remove the files of a checkpoint, the mark last, and its folder if nothing else is in it."""
    names = [name for name in _entries(folder) if _FILES.fullmatch(name) or atomic.is_temporary(name)]
    with suppress(OSError):
        for name in sorted(names, key=lambda name: (name != "model.npz", name == MARK)):
            path = _join(folder, name)
            if npz.remote(path):
                system, inside = npz.filesystem(path)
                system.rm_file(inside)
            else:
                os.unlink(path)
        if npz.remote(folder):
            system, inside = npz.filesystem(folder)
            system.rmdir(inside)
        else:
            os.rmdir(folder)
