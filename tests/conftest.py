from __future__ import annotations

import importlib.util
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from gibbsot import datasets
from gibbsot.core import native
from gibbsot.distributed.shards import LocalShards
from kernels import using

# A process in the background begins with interrupts ignored, and so do its own: tests that send one need the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("gibbsot", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("gibbsot")


# Whole fits take too long with the NumPy code: there the layers that have such code are tested.
_OF_NUMPY = (
    "core",
    "io",
    "sampling",
    "solvers",
    "cli/test_main.py",
    "compat",
    "test_package.py",
    "test_documentation.py",
)
_HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out tests of whole fits where there are no compiled kernels."""
    if native.name() != "numpy" or collection_path.suffix != ".py" or not collection_path.is_relative_to(_HERE):
        return None
    return not any(collection_path.is_relative_to(_HERE / path) for path in _OF_NUMPY) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a cluster as slow."""
    for item in items:
        if "client" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


# Packages that the tests below need, and the target that installs them.
_TARGETS = {
    "anndata": "make test-all",
    "jax": "make test-all",
    "lda": "make test-all",
    "mlxtend": "make test-all",
    "playwright": "make docs, and make test-all with Chromium",
    "pyLDAvis": "pip install pyLDAvis",
    "torch": "make test-all",
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out, and which target has it."""
    lines = list[str]()
    if config.option.markexpr == "not slow":
        lines.append("slow tests (clusters, killed processes, long fits): make test-all")
    for package, target in _TARGETS.items():
        if importlib.util.find_spec(package) is None:
            lines.append(f"tests that need {package}: {target}")
    if native.name() == "numpy":
        lines.append("tests of compiled kernels and whole fits: install a C++20 compiler, make clean, make test")
    if lines:
        terminalreporter.section("left out here")
        for line in lines:
            terminalreporter.write_line(line)


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
