"""The log of commands: what is dropped, and that its memory is bounded."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gibbsot.distributed import command_log
from gibbsot.distributed.command_log import CommandLog
from gibbsot.distributed.worker import Call


def filled(n: int, size: int = 10) -> CommandLog:
    log = CommandLog()
    for k in range(n):
        log.append(Call("epoch", (np.full(size, k),), {"step": k}))
    return log


def numbers(log: CommandLog) -> list[int]:
    for call in log.calls():
        assert call.method == "epoch"
        assert (call.args[0] == call.kwargs["step"]).all()
    return [call.kwargs["step"] for call in log.calls()]


@pytest.mark.parametrize("memory", [1, 2**20], ids=["in a file", "in memory"])
def test_commands_come_back(memory, monkeypatch):
    monkeypatch.setattr(command_log, "_MEMORY", memory)
    log = filled(5)
    assert (log.start, log.end, numbers(log)) == (0, 5, [0, 1, 2, 3, 4])
    log = log.since(0)
    log = log.since(2)
    assert (log.start, log.end, numbers(log)) == (2, 5, [2, 3, 4])
    log.append(Call("epoch", (np.array([7]),), {"step": 7}))
    assert (log.end, numbers(log)) == (6, [2, 3, 4, 7])
    log = log.since(4)
    assert numbers(log) == [4, 7]
    log = log.since(6)
    assert (log.start, log.end, numbers(log)) == (6, 6, [])
    log.append(Call("epoch", (np.array([8]),), {"step": 8}))
    assert (log.start, log.end, numbers(log)) == (6, 7, [8])


def test_memory_is_bounded(monkeypatch):
    """An epoch of the online update has a command for each batch, with all components."""
    monkeypatch.setattr(command_log, "_MEMORY", 2**20)
    tracemalloc.start()
    log = filled(200, size=2**14)  # 26 MB
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 4e6
    assert numbers(log) == list(range(200))
