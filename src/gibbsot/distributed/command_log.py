"""The client's log of commands, from which lost shards are restored."""

from __future__ import annotations

import pickle
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any

from .worker import Call

_MEMORY = 2**26  # bytes of commands in memory; more of them are in a temporary file


class CommandLog:
    """The commands since a position, in memory up to 64 MB and in a temporary file beyond.

    Attributes
    ----------
    start : int
        The number of commands before the first one of the log.

    Examples
    --------
    >>> log = CommandLog()
    >>> for k in range(3):
    ...     log.append(Call("epoch", (k,), {}))
    >>> log = log.since(2)
    >>> log.start, log.end, log.calls()
    (2, 3, [Call(method='epoch', args=(2,), kwargs={})])
    """

    def __init__(self, start: int = 0, begins: Sequence[int] = (), content: bytes = b"") -> None:
        self.start, self._begins = start, list(begins)
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=_MEMORY)  # noqa: SIM115
        self._file.write(content)
        weakref.finalize(self, self._file.close)

    @property
    def end(self) -> int:
        """The number of commands so far."""
        return self.start + len(self._begins)

    def append(self, call: Call) -> None:
        """Add a command."""
        self._begins.append(self._file.seek(0, 2))
        pickle.dump(call, self._file, pickle.HIGHEST_PROTOCOL)

    def calls(self) -> list[Call]:
        """Return all commands of the log."""
        self._file.seek(0)
        return [pickle.load(self._file) for _ in self._begins]

    def since(self, position: int) -> CommandLog:
        """Return the log without the commands before a position."""
        dropped, begins, content = position - self.start, list[int](), b""
        if dropped < len(self._begins):
            self._file.seek(self._begins[dropped])
            content, begins = self._file.read(), [begin - self._begins[dropped] for begin in self._begins[dropped:]]
        return CommandLog(position, begins, content)
