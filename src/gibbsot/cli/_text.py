"""Text for terminals, without typer and rich, so that their absence can be reported."""

from __future__ import annotations

from typing import Any


def printable(text: Any) -> str:
    r"""Return text on one line with all that is not printable escaped: names of files may have escape sequences.

    Examples
    --------
    >>> print(printable("a\x1b[2Jb\n c"))
    a\x1b[2Jb\n c
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))
