"""The CPU time of a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def seconds(work: Callable[[], T]) -> tuple[float, T]:
    """Return the CPU time of a call, and what it returned."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found
