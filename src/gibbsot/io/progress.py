"""Progress of long work: a bar on terminals and in notebooks, lines elsewhere, and the log of the package."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

logger = logging.getLogger("gibbsot")

_PAUSE = 1.0  # seconds between two lines, and before the first: short work shows none


class Advance(Protocol):
    """Function that advances a bar by a share of the whole and shows a note."""

    def __call__(self, share: float, note: str = "") -> None: ...


def silent(share: float, note: str = "") -> None:
    """Advance no bar."""


def said_aside(say: Callable[[], None]) -> threading.Thread:
    """Start to say something from a signal handler, and return the thread to join.

    The signal may have come in the middle of a print, and a stream cannot be entered twice by one thread.

    Parameters
    ----------
    say : callable
        Prints or logs.

    Returns
    -------
    threading.Thread
        The thread that says it.
    """
    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    return thread


def part(advance: Advance, share: float) -> Advance:
    """Return the function that advances a bar by a share of a part of the whole."""
    return lambda done, note="": advance(share * done, note)


@contextmanager
def bar(label: str, wanted: bool, endless: bool = False) -> Iterator[Advance]:
    """Show progress and yield the function that reports it.

    Notes go to the log ``gibbsot`` at level INFO. If wanted, progress is shown, too: by a bar where `rich` is installed
    and standard error is a terminal or belongs to a notebook that has ipywidgets; elsewhere by lines of standard error,
    at most one per second, unless the log shows the notes already.

    Parameters
    ----------
    label : str
        The text of the bar.
    wanted : bool
        Whether to show it.
    endless : bool
        Whether it is unknown how much there is to do.

    Yields
    ------
    Advance
        The function.
    """
    display = _display(endless) if wanted else None
    lines = _Lines(label, wanted and display is None and not logger.isEnabledFor(logging.INFO), endless)
    if display is None:
        yield lines
        return
    with display:
        task = display.add_task(label, total=None if endless else 1.0)

        def advance(share: float, note: str = "") -> None:
            display.update(task, advance=share, description=f"{label} {note}".strip())
            lines(share, note)

        yield advance


class _Lines:
    """Writes notes to the log, or progress to standard error, at most once a second."""

    def __init__(self, label: str, printed: bool, endless: bool) -> None:
        self._label, self._printed, self._endless = label, printed, endless
        self._done, self._last = 0.0, time.monotonic()

    def __call__(self, share: float, note: str = "") -> None:
        self._done += share
        if self._endless and not note:
            return
        text = note if self._endless else f"{self._done:.0%} {note}".rstrip()
        if note:
            logger.info("%s: %s", self._label, text)
        if self._printed and time.monotonic() - self._last >= _PAUSE:
            self._last = time.monotonic()
            print(f"{self._label}: {text}", file=sys.stderr, flush=True)


def _display(endless: bool) -> Any:
    """Return a bar, or None where there is no place for one."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    console = Console(stderr=True)
    if not (console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)):
        return None  # without ipywidgets rich shows nothing in a notebook
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    return Progress(*(columns if not endless else columns[::3]), console=console, transient=True)
