"""A progress bar that is quiet where there is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Advances a bar by a share of the whole; a note is shown beside it."""

    def __call__(self, share: float, note: str = "") -> None: ...


def silent(share: float, note: str = "") -> None:
    """Advance nothing."""


@contextmanager
def bar(what: str, wanted: bool) -> Iterator[Advance]:
    """Show a bar if wanted and there is a terminal; yield the function that advances it."""
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
        task = display.add_task(what, total=1.0)
        yield lambda share, note="": display.update(task, advance=share, description=f"{what} {note}".strip())
