"""The local backend: commands, queries, and that queries change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from gibbsot import GridCost
from gibbsot.distributed.shard import Array, ChainShard, Indices, Sample, command, query
from gibbsot.distributed.shards import LocalShards
from gibbsot.models.barycenter.estimator import BarycenterShard

X = np.random.default_rng(0).random((4, 5))


class Counter(ChainShard[None]):
    """A shard that counts, with methods whose marks are right and wrong."""

    calls = 0

    @command
    def count(self, by: int = 1) -> int:
        self.calls += by
        return self.calls

    @query
    def counted(self) -> int:
        return self.calls

    @query
    def wrong_attribute(self) -> int:
        return self.count()

    @query
    def wrong_array(self) -> int:
        self.rows[0] += 1
        return 0

    @query
    def wrong_chain(self) -> int:
        self.oracle._store._arrays["h"][0] += 1
        return 0

    @query
    def wrong_oracle(self) -> int:
        self.oracle(np.full(5, 0.2), 1.0)
        return 0

    def unmarked(self) -> int:
        return 0

    def models(self, rows: Indices, model: None) -> Array:
        return np.full((len(rows), 5), 0.2)


@pytest.fixture
def shards() -> LocalShards[Counter]:
    found = LocalShards([Counter(X[:2], 0), Counter(X[2:], 1)])
    found.initialise(GridCost(5), tau=2, key=0, n_jobs=1)
    return found


def test_commands_and_queries(shards):
    assert len(shards) == 2
    assert shards.reduce(Counter.count, by=2) == 4
    assert shards.reduce(Counter.count, 3) == 10
    assert shards.reduce(Counter.counted) == 10
    assert shards.collect(Counter.counted) == [5, 5]
    shards.close()


def test_a_command_is_not_collected(shards):
    with pytest.raises(TypeError, match=r"Counter\.count: is a command; expected a query"):
        shards.collect(Counter.count)
    assert shards.reduce(Counter.counted) == 0


def test_an_unmarked_method_is_refused(shards):
    for call in (shards.reduce, shards.collect):
        with pytest.raises(TypeError, match=r"Counter\.unmarked: expected a method of a shard that is marked"):
            call(Counter.unmarked)


@pytest.mark.parametrize("name", ["wrong_attribute", "wrong_array", "wrong_chain", "wrong_oracle"])
def test_a_query_that_changes_the_shard_is_caught(shards, name, monkeypatch):
    for call in (shards.reduce, shards.collect):
        with pytest.raises(AssertionError, match=rf"Counter\.{name}: is marked as a query but changes the shard"):
            call(getattr(Counter, name))
    monkeypatch.setattr(LocalShards, "check_queries", False)
    shards.collect(getattr(Counter, name))


def test_queries_of_all_shards_are_checked_in_tests(shards):
    """`conftest.py` sets it; what is marked as a query in this package passes."""
    assert LocalShards.check_queries
    sample = Sample(np.arange(4), None)
    shards.collect(Counter.metadata)
    shards.collect(Counter.support_size)
    shards.collect(Counter.targets, np.arange(3))
    shards.collect(Counter.checksum)
    shards.collect(Counter.reconstructions, sample)
    shards.reduce(Counter.initial_temperatures, sample)
    shards.reduce(Counter.exact_bounds, sample, 0.1)
    shards.collect(Counter.arrays)


def test_rows_are_concatenated():
    shards = LocalShards([BarycenterShard(X[:3]), BarycenterShard(0 * X[:1], 1)])
    assert shards.concatenate(BarycenterShard.has_mass).tolist() == [True, True, True, False]
