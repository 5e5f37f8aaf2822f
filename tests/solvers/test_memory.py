"""``max_memory``: what a solve takes beyond its arguments is estimated before, and the peak is no more than that."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from gibbsot import DenseCost, GraphCost, GridCost, PointCost, SparseCost, solve, solve_batch
from gibbsot.core import native

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc"),
    pytest.mark.skipif(native.name() == "numpy", reason="the estimates are of the compiled kernels"),
]

RNG = np.random.default_rng(0)
SLACK = 2e6  # bytes of what is not counted: allocations below a megabyte, and pages of the allocator


def weights(m: int) -> np.ndarray:
    return RNG.random(m)


def clouds(m: int, metric: str) -> PointCost:
    return PointCost(RNG.random((m, 2)), RNG.random((m, 2)), metric)


def streets(m: int, links: int = 3, directed: bool = False) -> GraphCost:
    """Return a ring with links to nodes that are not far."""
    tail = np.repeat(np.arange(m), links)
    head = (tail + np.tile([1, *RNG.integers(2, 300, links - 1)], m)) % m
    return GraphCost(sparse.coo_array((RNG.random(len(tail)), (tail, head)), (m, m)), directed)


def few_pairs(m: int) -> SparseCost:
    """Return the costs of neighbours on a line, all in a circle."""
    i = np.repeat(np.arange(m), 9)
    j = (i + np.tile(np.arange(9) - 4, m)) % m
    return SparseCost(sparse.coo_array((RNG.random(len(i)), (i, j)), (m, m)))


def matrix(m: int, kind: type = np.float64) -> np.ndarray:
    return RNG.random((m, m), kind)


CASES = {
    "an array": lambda: (weights(1500), weights(1500), matrix(1500)),
    "an array in single precision": lambda: (weights(1200), weights(1200), matrix(1200, np.float32)),
    "lists": lambda: (weights(600), weights(600), matrix(600).tolist()),
    "a cost in single precision": lambda: (weights(1200), weights(1200), DenseCost(matrix(1200, np.float32))),
    "crossover": lambda: (weights(3100), weights(3100), DenseCost(matrix(3100))),
    "crossover in single precision": lambda: (weights(3100), weights(3100), DenseCost(matrix(3100, np.float32))),
    "a metric": lambda: (weights(1200), weights(1200), clouds(1200, "cityblock")),
    "points": lambda: (weights(8000), weights(8000), clouds(8000, "euclidean")),
    "Chebyshev": lambda: (weights(8000), weights(8000), clouds(8000, "chebyshev")),
    "a graph": lambda: (weights(60_000), weights(60_000), streets(60_000)),
    "a dense graph": lambda: (weights(4000), weights(4000), streets(4000, 40)),
    "a directed graph": lambda: (weights(30_000), weights(30_000), streets(30_000, directed=True)),
    "sparse pairs": lambda: (np.ones(10_000), np.ones(10_000), few_pairs(10_000)),
    "L1 on a grid": lambda: (weights(200 * 200), weights(200 * 200), GridCost((200, 200), power=1)),
    "a grid": lambda: (weights(80 * 80), weights(80 * 80), GridCost((80, 80))),
    "divergences": lambda: (weights(8000), weights(8000), clouds(8000, "sqeuclidean"), {"kl": 0.05, "gap": 1e-6}),
    "divergences on a grid": lambda: (weights(80 * 80), weights(80 * 80), GridCost((80, 80)), {"kl": 0.1}),
    "a batch": lambda: (RNG.random((1000, 400)), RNG.random((1000, 400)), GridCost((20, 20))),
    "a batch of arrays": lambda: (RNG.random((4, 900)), RNG.random((4, 900)), [matrix(900) for _ in range(4)]),
}


def memory(name: str) -> int:
    """Return a figure of this process in bytes."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


@contextmanager
def most_code() -> Iterator[list[int]]:
    """Yield a list of one number, the most bytes of code and data of files that are mapped while the block runs.

    The system takes such pages back where memory is short, and a process reads them again when it needs them. So they
    may be many at the peak, and few before and after it.
    """
    most, ended = [memory("RssFile")], threading.Event()

    def watch() -> None:
        while not ended.wait(0.001):
            most[0] = max(most[0], memory("RssFile"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()
        most[0] = max(most[0], memory("RssFile"))


def measure(name: str) -> None:
    """Print the least ``max_memory`` with which a case is solved, and the peak of its solve."""
    for options in ({}, {"kl": 1}):
        solve([0.5, 0.5], [0.2, 0.8], [[0.0, 1.0], [1.0, 0.0]], **options)  # what is loaded once
    allowed = 1.0
    while True:
        p, q, cost, *more = CASES[name]()  # a cost may keep what a refused call has made
        p, q = (x / x.sum(axis=-1, keepdims=True) for x in (p, q))
        ctypes.CDLL(None).malloc_trim(0)  # or what a refused call has freed would be taken again
        Path("/proc/self/clear_refs").write_text("5")
        before = memory("RssAnon")
        try:
            with most_code() as code:
                (solve if p.ndim == 1 else solve_batch)(p, q, cost, max_memory=allowed, **(more[0] if more else {}))
        except ValueError as error:
            (found,) = re.findall(r"takes about ([-+.e0-9]+) bytes", str(error))
            allowed = max(allowed + 1, 1.06 * float(found))  # two digits are shown
        else:
            print(allowed, memory("VmHWM") - code[0] - before)
            return


def figures(name: str) -> tuple[float, float]:
    """Return what `measure` prints, from processes of their own, whose memory nothing else uses."""
    found = []
    for _ in range(3 if "divergences" in name else 1):  # what the allocator keeps of small parts differs between runs
        done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True, timeout=300)
        found.append(tuple(map(float, done.stdout.split())))
    needed, peak = max(found)
    return needed, peak


@pytest.mark.parametrize("name", CASES)
def test_the_peak_is_no_more_than_the_estimate(name):
    needed, peak = figures(name)
    assert peak <= needed + SLACK
    assert needed <= 2.5 * peak + SLACK  # nor is it far too much


def test_the_copy_of_an_array_counts():
    M = RNG.random((1500, 1500))
    with pytest.raises(ValueError, match=r"max_memory: this takes about 1.8e\+07 bytes, more than the 1e\+06 allowed"):
        solve(None, None, M, max_memory=1e6)
    with pytest.raises(ValueError, match=r"max_memory: this takes about 3.6e\+07 bytes"):
        solve(None, None, M.tolist(), max_memory=1e6)


if __name__ == "__main__":
    measure(sys.argv[1])
