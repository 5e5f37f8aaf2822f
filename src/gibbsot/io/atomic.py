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
import stat
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
    target = _behind(Path(path))
    temporary = _temporary(target)
    try:
        with _naming(target, temporary):
            with _synced(temporary, target) as file:
                yield file
            os.replace(temporary, target)
            sync_folder(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _synced(path: Path, target: Path) -> Iterator[BinaryIO]:
    """Open a new file, with the mode of its target, for writing; at the end it is on the disk."""
    with open(path, "xb", opener=lambda name, flags: _new(name, flags, target)) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _new(path: str, flags: int, target: Path) -> int:
    """Open a new file that nobody can read who cannot read the target; return its descriptor."""
    try:
        like = os.stat(target)
    except FileNotFoundError:
        return os.open(path, flags, 0o666)  # less the umask
    file = os.open(path, flags, 0o600)
    if hasattr(os, "fchmod"):  # not on Windows
        mode = stat.S_IMODE(like.st_mode)
        if os.fstat(file).st_gid != like.st_gid:
            try:
                os.fchown(file, -1, like.st_gid)
            except OSError:  # another group must not get what the mode gives to the target's
                mode &= ~0o070
        os.fchmod(file, mode)
    return file


def _behind(path: Path) -> Path:
    """Return the file that a path leads to, behind symbolic links; raise OSError if it is there and no regular file."""
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if target.exists() and not target.is_dir():
        check_regular(target)
    return target


def check_regular(path: Path) -> None:
    """Raise OSError if a path leads to something else than a regular file, such as a pipe or a device."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))


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
        target = self._claim(target)
        temporary = self._temporary[target]
        if target.exists():
            os.close(_new(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_EXCL, target))
        with _naming(target, temporary):
            yield temporary

    @contextmanager
    def open(self, target: Path) -> Iterator[BinaryIO]:
        """Open a target for writing."""
        target = self._claim(target)
        temporary = self._temporary[target]
        with _naming(target, temporary), _synced(temporary, target) as file:
            yield file

    def _claim(self, target: Path) -> Path:
        """Return the file behind a target, and note its temporary path."""
        check_target(target)
        target = _behind(target)
        self._temporary[target] = _temporary(target)
        return target


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


def is_temporary(name: str) -> bool:
    """Return whether a file has a name that only temporary files of this module have."""
    return _TEMPORARY.fullmatch(name) is not None


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
    found = [path for path in folder.rglob(".*") if is_temporary(path.name) and path.is_file()]
    for path in found:
        path.unlink(missing_ok=True)
    return found
