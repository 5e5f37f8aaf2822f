"""Checkpoints: folders of files, of which the last two are kept, and a damaged one is passed over."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ..io import npz

Folder = str | os.PathLike[str]
T = TypeVar("T")


def _inside(folder: Folder, name: str) -> str:
    return f"{npz.absolute(folder)}/{name}"


def _names(folder: Folder) -> list[str]:
    """Return the names of all checkpoints, whole or not, the oldest first."""
    if npz.remote(folder):
        system, inside = npz.filesystem(folder)
        found = (
            [path.rstrip("/").rpartition("/")[2] for path in system.ls(inside, detail=False)]
            if system.exists(inside)
            else []
        )
    else:
        found = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(name for name in found if name.startswith("epoch-"))


def exist(folder: Folder) -> bool:
    """Tell whether there is anything in a folder to go on from."""
    found = (f"{_inside(folder, name)}/model.npz" for name in _names(folder))
    if npz.remote(folder):
        system, _ = npz.filesystem(folder)
        return any(system.exists(path) for path in found)
    return any(map(os.path.exists, found))


def place(folder: Folder, epoch: int) -> str:
    """Return where the checkpoint of an epoch belongs."""
    return _inside(folder, f"epoch-{epoch:08d}")


@contextmanager
def next(folder: Folder, epoch: int, before: str) -> Iterator[str]:
    """Give the place of a checkpoint; once it is written, all but it and the one before go."""
    where = place(folder, epoch)
    if not npz.remote(folder):
        Path(where).mkdir(parents=True, exist_ok=True)
    yield where
    for name in _names(folder):
        old = _inside(folder, name)
        if old in (where, before):
            continue
        if npz.remote(folder):
            system, inside = npz.filesystem(old)
            with suppress(OSError):
                system.rm(inside, recursive=True)
        else:
            shutil.rmtree(old, ignore_errors=True)


def last(folder: Folder, load: Callable[[str], T]) -> T:
    """Return what can be loaded from the last checkpoint, or from the one before if it is damaged."""
    damage: Exception | None = None
    for name in reversed(_names(folder)):
        where = _inside(folder, name)
        try:
            return load(where)
        except (OSError, ValueError, KeyError) as error:
            warnings.warn(f"{where}: is damaged or not complete ({error}); the checkpoint before is used", stacklevel=3)
            damage = error
    raise ValueError(f"path: {os.fspath(folder)} has no checkpoint that is whole") from damage
