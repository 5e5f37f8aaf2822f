"""Atomic writes: write to a temporary file beside the target, fsync it, rename it, and fsync the folder.

`replace_file` writes one file, `FileGroup` several that are renamed after all of them are written. `output_folder` and
`check_target` find out before a long computation whether its results can be written. `remove_temporaries` removes what
killed processes have left.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = re.compile(r"\.+[^.].*\.(npy|npz|json|png|html|csv)(\.[0-9a-f]{8})+")  # names of `_temporary`


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for an atomic write.

    The block writes to a temporary file, which replaces the target at the end. If the block or the write fails, the
    target is unchanged and the temporary file is removed.

    Parameters
    ----------
    path : path
        The target.

    Yields
    ------
    binary file
        Open for writing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replace_file(folder + "/a.txt") as file:
    ...         _ = file.write(b"content")
    ...     Path(folder, "a.txt").read_text()
    'content'
    """
    target = Path(path)
    temporary = _temporary(target)
    try:
        with _naming(target, temporary):
            with _synced(temporary) as file:
                yield file
            os.replace(temporary, target)
            sync_folder(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _synced(path: Path) -> Iterator[BinaryIO]:
    """Open a new file for writing; at the end it is on the disk."""
    with open(path, "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Write the entries of a folder to the disk, so that a rename in it survives a loss of power; not on Windows."""
    if os.name == "nt":  # folders cannot be opened there
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without it
            raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(folder)


@contextmanager
def _naming(target: Path, temporary: Path) -> Iterator[None]:
    """Make errors about a temporary file, or about no file such as a full disk, name the target."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary), temporary):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from None


class FileGroup:
    """Files that are renamed to their targets after all of them are written.

    If the ``with`` block fails, all targets are unchanged and the temporary files are removed.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as home, suppress(ZeroDivisionError):
    ...     try:
    ...         with FileGroup() as files, files.open(Path(home, "a.txt")) as file:
    ...             _ = file.write(b"incomplete")
    ...             1 / 0
    ...     finally:
    ...         os.listdir(home)
    []
    """

    def __init__(self) -> None:
        self._temporary: dict[Path, Path] = {}

    def __enter__(self) -> FileGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                for target, temporary in self._temporary.items():
                    os.replace(temporary, target)
                for folder in {target.parent for target in self._temporary}:
                    sync_folder(folder)
        finally:
            for temporary in self._temporary.values():
                temporary.unlink(missing_ok=True)

    @contextmanager
    def path(self, target: Path) -> Iterator[Path]:
        """Yield the temporary path to write a target to; an OSError in the block names the target."""
        check_target(target)
        temporary = self._temporary[target] = _temporary(target)
        with _naming(target, temporary):
            yield temporary

    @contextmanager
    def open(self, target: Path) -> Iterator[BinaryIO]:
        """Open a target for writing."""
        with self.path(target) as temporary, _synced(temporary) as file:
            yield file


@contextmanager
def output_folder(path: Path) -> Iterator[Path]:
    """Make a folder and check that it is writable; if the block fails, remove the new folders that are empty.

    Parameters
    ----------
    path : Path
        The folder. Missing parents are made too.

    Yields
    ------
    Path
        The folder.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as home, output_folder(Path(home, "a", "b")) as folder:
    ...     folder.is_dir()
    True
    """
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is a file; expected a folder", str(path))
    created = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        yield path
    except BaseException:
        for folder in created:
            with suppress(OSError):
                folder.rmdir()
        raise


def check_target(target: Path) -> None:
    """Raise OSError if a file cannot be written to this path: it is a folder, or its parent does not exist."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; expected a file to write", str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder to write to does not exist", str(target))


def _temporary(target: Path) -> Path:
    """Return a hidden path in the folder of the target, so that the rename stays in one file system."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}")


def remove_temporaries(folder: Path) -> list[Path]:
    """Remove the temporary files of processes that were killed, in a folder that no other process writes to.

    Parameters
    ----------
    folder : Path
        The folder; those in it are searched too.

    Returns
    -------
    list of Path
        The files that were removed.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as home:
    ...     Path(home, ".model.npz.0123abcd").touch()
    ...     Path(home, ".mine").touch()
    ...     [path.name for path in remove_temporaries(Path(home))], os.listdir(home)
    (['.model.npz.0123abcd'], ['.mine'])
    """
    found = [path for path in folder.rglob(".*") if _TEMPORARY.fullmatch(path.name) and path.is_file()]
    for path in found:
        path.unlink(missing_ok=True)
    return found
