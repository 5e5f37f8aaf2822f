"""What runs on a worker: each command once and in its turn, replay, and the end of fits."""

from __future__ import annotations

import numpy as np
import pytest

from gibbsot.distributed import worker
from gibbsot.distributed.worker import Call, Checkpoint, InUse, Log, LostShardError, Split

KEY = "client", "fit", 0
HERE = InUse("client", ["fit"], ["client"])
ADD = Call("add", (2,), {})
TOTAL = Call("get", (), {})


class Counter:
    """As a shard for this: it adds numbers."""

    number = 0

    def __init__(self, total: int) -> None:
        self.total, self.sources = total, []

    def __len__(self) -> int:
        return 7

    def attach(self, source: int) -> None:
        self.sources.append(source)

    def add(self, number: int) -> int:
        self.total += number
        return self.total

    def get(self) -> int:
        return self.total

    def fail(self) -> None:
        self.total = -1
        raise KeyError("a bug")

    @classmethod
    def read(cls, source: int, number: int) -> Counter:
        return cls(source + number)

    @classmethod
    def load(cls, folder: str, number: int, checksum: str) -> Counter:
        if folder == "damaged":
            raise ValueError(folder)
        return cls(int(checksum) + number)


@pytest.fixture(autouse=True)
def entries(monkeypatch):
    found: dict[worker.Key, worker.Entry] = {}
    monkeypatch.setattr(worker, "entries", found)
    return found


def test_a_command_runs_once():
    worker.restore(KEY, Counter, 10, Log(0, []), HERE)
    assert worker.position(KEY) == (0, 7)
    assert worker.run_command(KEY, (1, ADD)) == 12
    assert worker.run_command(KEY, (1, ADD)) == 12  # sent again: the same answer
    assert worker.run_query(KEY, (1, TOTAL)) == 12
    assert worker.position(KEY) == (1, 7)
    for run, position in ((worker.run_command, 3), (worker.run_query, 0), (worker.run_query, 2)):
        with pytest.raises(LostShardError):
            run(KEY, (position, ADD))
    with pytest.raises(LostShardError):
        worker.run_query(("client", "fit", 1), (0, TOTAL))


def test_a_command_that_fails_loses_the_shard():
    worker.restore(KEY, Counter, 10, Log(0, []), HERE)
    with pytest.raises(KeyError, match="a bug"):
        worker.run_command(KEY, (1, Call("fail", (), {})))
    assert worker.position(KEY) == (-1, 0)


def test_replay():
    """From the data, from what is there, and from the last checkpoint that can be read."""
    worker.restore(KEY, Counter, 10, Log(0, [ADD, ADD]), HERE)
    assert worker.run_query(KEY, (2, TOTAL)) == 14
    worker.restore(KEY, None, None, Log(1, [ADD, ADD]), HERE)
    assert worker.run_query(KEY, (3, TOTAL)) == 16
    worker.entries.clear()
    checkpoints = [Checkpoint(3, "run", ["16"]), Checkpoint(4, "damaged", ["18"])]
    worker.restore(KEY, Counter, None, Log(3, [ADD, ADD], checkpoints), HERE)
    assert worker.run_query(KEY, (5, TOTAL)) == 20
    worker.entries.clear()
    with pytest.raises(ValueError, match=r"shard 0: all of its checkpoints are damaged \(damaged\)"):
        worker.restore(KEY, Counter, None, Log(3, [ADD], checkpoints[1:]), HERE)


def test_a_shard_of_a_checkpoint_gets_its_data(entries):
    """At its restoration if they are known, else later."""
    checkpoints = [Checkpoint(3, "run", ["16"])]
    worker.restore(KEY, Counter, 5, Log(3, [ADD], checkpoints), HERE)
    assert entries[KEY].shard.sources == [5]
    entries.clear()
    worker.restore(KEY, Counter, None, Log(3, [ADD], checkpoints), HERE)
    assert entries[KEY].shard.sources == []
    worker.attach(KEY, 6)
    assert entries[KEY].shard.sources == [6]
    with pytest.raises(LostShardError):
        worker.attach(("client", "fit", 1), 6)


def test_pieces_of_arguments():
    """A call is sent with those that are needed."""
    call = Call("add", (Split.of([2, 3, 4]),), {})
    assert call.run(Counter(10)) == 12
    few = call.narrowed([0, 2])
    assert few.args[0].pieces == {0: 2, 2: 4}
    assert few.run(Counter(10)) == 12
    assert ADD.narrowed([1]) is ADD


def test_a_shard_moves(entries):
    worker.restore(KEY, Counter, 10, Log(0, [ADD]), HERE)
    taken = worker.take(KEY)
    assert not entries
    worker.put(KEY, taken)
    assert worker.run_command(KEY, (1, ADD)) == 12


def test_shards_that_nobody_needs_are_discarded(entries):
    keys = [KEY, ("client", "over", 0), ("other", "fit", 0), ("gone", "fit", 0)]
    for key in keys:
        entries[key] = worker.Entry(Counter(0), 0)
    worker.discard(InUse("client", ["fit"], ["client", "other"]))
    assert list(entries) == [KEY, ("other", "fit", 0)]


def test_shape_and_type():
    assert worker.shape_and_type(np.zeros((2, 3), np.float32)) == ((2, 3), "<f4")
