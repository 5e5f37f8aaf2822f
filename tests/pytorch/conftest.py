from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def compiled() -> Iterator[Callable[..., Any]]:
    """Return a function that compiles another one, in which a break of the graph is an error."""
    torch = pytest.importorskip("torch")
    torch.compiler.reset()
    yield lambda function, **options: torch.compile(function, backend="aot_eager", fullgraph=True, **options)
    torch.compiler.reset()
