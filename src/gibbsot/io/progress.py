"""A progress bar, shown on terminals only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Function that advances a bar by a share of the whole and shows a note."""

    def __call__(self, share: float, note: str = "") -> None: ...


def silent(share: float, note: str = "") -> None:
    """Advance no bar."""


@contextmanager
def bar(label: str, wanted: bool) -> Iterator[Advance]:
    """Show a bar on a terminal and yield the function that advances it.

    Parameters
    ----------
    label : str
        The text of the bar.
    wanted : bool
        Whether to show it.

    Yields
    ------
    Advance
        The function; it does nothing without a bar.
    """
    if not wanted or not sys.stderr.isatty():
        yield silent
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    except ImportError:
        raise ImportError("verbose=True needs rich for its progress bar: pip install 'gibbsot[progress]'") from None

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task(label, total=1.0)
        yield lambda share, note="": display.update(task, advance=share, description=f"{label} {note}".strip())
