"""What one call of a solver may use: time, memory and threads; and where it reports its stages."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

from ..core.backend import backend
from . import progress


class Budget:
    """One call of a solver.

    Parameters
    ----------
    max_seconds : float
        The time after which the solver stops with what it has proved.
    max_memory : float
        The bytes that its arcs may take, beyond which it stops.
    threads : int
        Threads inside one problem; results do not depend on them.
    advance : progress.Advance
        Reports progress: a share of the whole, and a note.

    Attributes
    ----------
    reports : bool
        Whether somebody sees the reports.

    Examples
    --------
    >>> budget = Budget(max_seconds=60)
    >>> budget.spent
    False
    >>> budget.stop()
    >>> budget.spent, budget.seconds
    (True, 0.0)
    """

    def __init__(
        self,
        max_seconds: float = float("inf"),
        max_memory: float = float("inf"),
        threads: int = 1,
        advance: progress.Advance = progress.silent,
    ) -> None:
        self.deadline, self.max_memory, self.threads = time.monotonic() + max_seconds, max_memory, threads
        self.advance, self._stopped = advance, False
        self.reports = advance is not progress.silent
        self.flag = backend().stop_flag()  # which the kernels see

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: a budget that shows its progress ends that here, see `reported_budget`."""

    @property
    def seconds(self) -> float:
        """The time that is left."""
        return 0.0 if self._stopped else max(0.0, self.deadline - time.monotonic())

    @property
    def spent(self) -> bool:
        """Whether the solver should stop."""
        return self._stopped or time.monotonic() >= self.deadline

    def stop(self) -> None:
        """Let the solver stop as soon as it can."""
        self._stopped = True
        self.flag.set()

    def fits(self, nbytes: float) -> bool:
        """Tell whether a number of bytes is allowed; if it is not, the solver should stop."""
        if nbytes > self.max_memory:
            self.stop()
        return nbytes <= self.max_memory

    def report(self, message: str, *values: Any) -> None:
        """Report what was done: in the log, and shown in verbose use."""
        if self.reports:
            self.advance(0.0, message % values)

    @contextmanager
    def stopped_by_ctrl_c(self) -> Iterator[None]:
        """Let the first Ctrl-C stop the solver with what it has proved, and only the second one interrupt it."""
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or handler is not signal.default_int_handler:
            yield
            return

        notices: list[threading.Thread] = []

        def stop(*_: Any) -> None:
            signal.signal(signal.SIGINT, handler)
            self.stop()
            message = "stopping with the bounds so far; Ctrl-C again to interrupt"
            notices.append(progress.said_aside(lambda: self.report(message)))

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)
            for notice in notices:
                notice.join()


def reported_budget(label: str, verbose: bool, endless: bool, **options: Any) -> AbstractContextManager[Budget]:
    """Return a budget that shows its progress in verbose use, where Ctrl-C stops it instead of interrupting."""
    if not verbose and not progress.logger.isEnabledFor(logging.INFO):
        return Budget(**options)
    return _shown_budget(label, verbose, endless, options)


@contextmanager
def _shown_budget(label: str, verbose: bool, endless: bool, options: dict[str, Any]) -> Iterator[Budget]:
    """Yield a budget that reports to the log and, if asked for, to a bar."""
    with progress.bar(label, verbose, endless) as advance:
        budget = Budget(**options, advance=advance)
        with budget.stopped_by_ctrl_c() if verbose else nullcontext():
            yield budget
