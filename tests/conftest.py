from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from gibbsot import datasets
from gibbsot.core import native
from gibbsot.distributed.shards import LocalShards
from kernels import using

settings.register_profile("gibbsot", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("gibbsot")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a cluster as slow."""
    for item in items:
        if "client" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests need a package that is not installed."""
    if importlib.util.find_spec("torch") is None:
        terminalreporter.write_line(
            "torch is not installed: tests of gibbsot.torch were skipped; make test-all has them"
        )


@pytest.fixture(scope="session")
def fives() -> NDArray[np.float64]:
    """Return the paper's 200 fives as rows of weights."""
    return datasets.mnist_fives()


@pytest.fixture(params=native.available())
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test with each kernel that this machine supports, NumPy last."""
    with using(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def checked_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that changes a shard is an error."""
    monkeypatch.setattr(LocalShards, "check_queries", True)
