"""Checkpoints: a folder with a subfolder for each, of which the last two are kept; damaged ones are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ..core.warn import warn
from ..io import atomic, npz

Folder = str | os.PathLike[str]
T = TypeVar("T")


def exist(folder: Folder) -> bool:
    """Tell whether a folder has a checkpoint."""
    files = (f"{_join(folder, name)}/model.npz" for name in _names(folder))
    if npz.remote(folder):
        system, _ = npz.filesystem(folder)
        return any(system.exists(path) for path in files)
    return any(map(os.path.exists, files))


def prepare(folder: Folder) -> None:
    """Make a folder for the checkpoints of a new fit; refuse one that has checkpoints or cannot be made."""
    if exist(folder):
        raise ValueError(
            f"checkpoint: {os.fspath(folder)} has checkpoints of another fit, which load resumes; "
            "expected a folder without"
        )
    if not npz.remote(folder):
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"checkpoint: {os.fspath(folder)} cannot be a folder ({error.strerror})") from None


def folder_of(folder: Folder, epoch: int) -> str:
    """Return the subfolder for the checkpoint of an epoch."""
    return _join(folder, f"epoch-{epoch:08d}")


@contextmanager
def writing(folder: Folder, epoch: int, previous: str) -> Iterator[str]:
    """Yield the subfolder for a checkpoint; after it is written, delete all but it and the previous one."""
    current = folder_of(folder, epoch)
    if not npz.remote(folder):
        Path(current).mkdir(parents=True, exist_ok=True)
        atomic.sync_folder(folder)
    yield current
    for name in _names(folder):
        old = _join(folder, name)
        if old in (current, previous):
            continue
        if npz.remote(folder):
            system, inside = npz.filesystem(old)
            with suppress(OSError):
                system.rm(inside, recursive=True)
        else:
            shutil.rmtree(old, ignore_errors=True)


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
    raise ValueError(f"path: {os.fspath(folder)} has no checkpoint that is complete") from damage


def _join(folder: Folder, name: str) -> str:
    return f"{npz.absolute(folder)}/{name}"


def _names(folder: Folder) -> list[str]:
    """Return the names of all checkpoints, complete or not, the oldest first."""
    if npz.remote(folder):
        system, inside = npz.filesystem(folder)
        paths = system.ls(inside, detail=False) if system.exists(inside) else []
        names = [path.rstrip("/").rpartition("/")[2] for path in paths]
    else:
        names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(name for name in names if name.startswith("epoch-"))
