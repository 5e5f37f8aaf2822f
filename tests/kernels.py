"""Tests of kernels other than those that `GIBBSOT_KERNEL` selects; not for several threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gibbsot.core import native


@contextmanager
def using(kernel: str) -> Iterator[None]:
    """Use the given kernels inside a ``with`` block."""
    before = native.name()
    native._select(kernel)
    try:
        yield
    finally:
        native._select(before)
