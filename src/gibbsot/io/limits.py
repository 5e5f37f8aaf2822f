"""How much memory a data file may ask for: files are refused that would unpack to far more than they hold.

A few hundred bytes can promise any number of zeros, and memory is taken before they are known to be useless. So what
the headers promise is compared with the size of the file before anything is unpacked.
"""

from __future__ import annotations

import os

EXPANSION = 100  # times its own size that a file may unpack to; MNIST, as float64, takes 38 times its gzip files
ALWAYS = 2**26  # bytes that any file may unpack to


def check(needed: int, size: int, path: str | os.PathLike[str]) -> None:
    """Raise ValueError if a file would unpack to far more than it holds.

    Parameters
    ----------
    needed : int
        The bytes in memory, as float64, that its headers promise.
    size : int
        The size of the file, or of the part that is unpacked, in bytes.
    path : path
        The file, for the message.

    Examples
    --------
    >>> check(8 * 1000 * 1000, 1000, "a.npz")
    >>> check(8 * 10_000 * 10_000, 1000, "a.npz")
    Traceback (most recent call last):
    ...
    ValueError: a.npz: has 1000 bytes that would unpack to 800 MB; expected at most 67 MB or 100 times as much ...
    """
    if needed > max(ALWAYS, EXPANSION * size):
        raise ValueError(
            f"{os.fspath(path)}: has {size} bytes that would unpack to {needed / 1e6:.0f} MB; expected at most "
            f"{ALWAYS / 1e6:.0f} MB or {EXPANSION} times as much (files without compression are read at any size)"
        )
