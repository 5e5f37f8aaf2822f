"""Marks of methods, sums of answers, and what every shard does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from gibbsot import GridCost
from gibbsot.distributed import shard, sources
from gibbsot.distributed.fixed_point import Precision
from gibbsot.distributed.shard import Bounds, ChainShard, Metadata, Sample, Shard, command, is_command, query
from gibbsot.distributed.shards import LocalShards
from gibbsot.models.barycenter.estimator import BarycenterShard
from gibbsot.models.mixtures import factors
from gibbsot.models.nmf.shard import Mixture, MixtureShard

COST = GridCost(6)
X = np.random.default_rng(0).random((5, 6))
X[1] = 0
P = np.full(6, 1 / 6)


def initialised(*cuts: int) -> LocalShards[BarycenterShard]:
    shards = LocalShards([BarycenterShard(rows, number) for number, rows in enumerate(np.split(X, cuts))])
    shards.initialise(COST, tau=2, key=3, n_jobs=1)
    return shards


def test_marks():
    @command
    def change(self):
        """Change."""

    @query
    def answer(self):
        """Answer."""

    assert is_command(change)
    assert not is_command(answer)
    for unmarked in (Shard.local, len, shard.add):
        with pytest.raises(TypeError, match="expected a method of a shard that is marked with @command or @query"):
            is_command(unmarked)


@pytest.mark.parametrize("kind", [BarycenterShard, MixtureShard])
def test_an_overridden_method_keeps_its_mark(kind):
    for name, method in (vars(Shard) | vars(ChainShard)).items():
        if hasattr(method, "__shard_role__"):
            assert is_command(getattr(kind, name)) == is_command(method)


def test_answers_are_summed_field_by_field():
    class Both(NamedTuple):
        array: np.ndarray
        number: int

    total = shard.add([Both(np.array([1, 2]), 3), Both(np.array([10, 20]), 4), Both(np.array([0, 1]), 2**70)])
    np.testing.assert_array_equal(total.array, [11, 23])
    assert total.number == 7 + 2**70
    assert type(total) is Both
    assert shard.add([1, 2, 2**70]) == 3 + 2**70
    assert shard.add([None, None]) is None
    np.testing.assert_array_equal(shard.add([np.array([1, 2]), np.array([3, 4])]), [4, 6])


def test_metadata_and_initialise():
    first, second = (BarycenterShard(rows, number) for number, rows in enumerate(np.split(X, [2])))
    assert first.metadata() == Metadata(2, 1, 1, 6, X.dtype.str)
    assert second.metadata() == Metadata(3, 3, -1, 6, X.dtype.str)
    shards = LocalShards([first, second])
    shards.initialise(COST, tau=2, key=3, n_jobs=1)
    assert [one.first for one in shards.shards] == [0, 1]
    np.testing.assert_array_equal(second.oracle.ids, [1, 2, 3])
    assert first.oracle.key == second.oracle.key == 3
    assert (first.bits, first.quantum, first.value_quantum) == Precision.of(COST, 4)
    assert shards.reduce(ChainShard.support_size) == (X > 0).sum()
    shards.reduce(ChainShard.set_n_jobs, 2)
    assert first.oracle.n_jobs == second.oracle.n_jobs == 2


def test_a_sample_is_answered_by_the_shards_that_have_it():
    """The result is that of one shard, bit for bit."""
    whole, split = initialised(), initialised(1, 2, 4)
    sample = Sample(np.array([0, 2, 3]), P)
    for shards in (whole, split):
        assert [len(one) for one in shards.shards] in ([4], [1, 0, 2, 1])
    for method in (BarycenterShard.exact_bounds, BarycenterShard.estimate):
        one, many = (shards.reduce(method, sample, 0.1) for shards in (whole, split))
        assert type(one) is type(many) is (Bounds if method is BarycenterShard.exact_bounds else np.ndarray)
        np.testing.assert_array_equal(one, many)
    one, many = (shards.reduce(BarycenterShard.initial_temperatures, sample) for shards in (whole, split))
    np.testing.assert_array_equal(one.temperatures, many.temperatures)
    for shards in (whole, split):
        rows, models = map(np.concatenate, zip(*shards.collect(BarycenterShard.reconstructions, sample), strict=True))
        np.testing.assert_allclose(rows, (X / np.maximum(X.sum(axis=1), 1e-9)[:, None])[[0, 3, 4]])
        np.testing.assert_array_equal(models, [P, P, P])


def test_checksums_tell_data_apart():
    first, same = initialised(2), initialised(2)
    rows = X.copy()
    rows[3, 0] *= 1.5
    other = LocalShards([BarycenterShard(part, number) for number, part in enumerate(np.split(rows, [2]))])
    other.initialise(COST, tau=2, key=3, n_jobs=1)
    assert first.collect(Shard.checksum) == same.collect(Shard.checksum)
    assert first.collect(Shard.checksum)[0] == other.collect(Shard.checksum)[0]
    assert first.collect(Shard.checksum)[1] != other.collect(Shard.checksum)[1]


@pytest.mark.parametrize("accelerated", [False, True])
def test_a_shard_is_saved_and_loaded(tmp_path, accelerated):
    """Without its data, which are attached."""
    given = [X[:2], X[2:], 0 * X[:1]]
    shards = LocalShards([MixtureShard(rows, number) for number, rows in enumerate(given)])
    shards.initialise(COST, tau=2, key=3, n_jobs=1)
    D = np.full((2, 6), 2**30 // 6, np.int32)
    D[0, 0] *= 2
    shards.reduce(MixtureShard.start, factors(D), np.empty(0, np.intp), np.empty((0, 2)), None, accelerated)
    sample = Sample(np.arange(4), Mixture(D, "mean"))
    shards.reduce(MixtureShard.estimate, sample, 0.1)
    checksums = shards.save(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"shard-0000{k}.npz" for k in range(3)]
    with np.load(tmp_path / "shard-00001.npz") as file:
        assert {"oracle_h", "oracle_sweep"} < set(file.files)
        assert not {"oracle_weights", "oracle_columns", "oracle_starts"} & set(file.files)
    loaded = LocalShards([MixtureShard.load(str(tmp_path), k, checksum) for k, checksum in enumerate(checksums)])
    assert loaded.metadata == shards.metadata
    assert loaded.collect(Shard.checksum) == shards.collect(Shard.checksum)
    assert loaded.collect(ChainShard.has_data) == [False, False, True]
    np.testing.assert_array_equal(
        loaded.concatenate(MixtureShard.memberships), shards.concatenate(MixtureShard.memberships)
    )
    assert loaded.save(str(tmp_path)) == checksums  # a checkpoint before the data came
    for wrong in ([X[:2], X[1:]], [X[:2], 2 * X[2:] ** 2]):
        with pytest.raises(ValueError, match=r"X: differs from the data of the fit \(shard 1\)"):
            loaded.attach([*wrong, 0 * X[:1]])
    loaded.attach(given)
    assert all(loaded.collect(ChainShard.has_data))
    loaded.attach(given)  # a check
    for one in (shards, loaded):
        one.reduce(MixtureShard.epoch, D, 0.1, 2.0, 0.5, 1.0, 0, 4)
        one.reduce(MixtureShard.keep_best)
    np.testing.assert_array_equal(*(one.concatenate(MixtureShard.means) for one in (shards, loaded)))
    np.testing.assert_array_equal(*(one.reduce(MixtureShard.estimate, sample, 0.1) for one in (shards, loaded)))
    with pytest.raises(ValueError, match="checksum"):
        MixtureShard.load(str(tmp_path), 0, checksums[1])
    with pytest.raises(FileNotFoundError):
        MixtureShard.load(str(tmp_path), 3, checksums[1])


def test_each_shard_gets_its_own_rows():
    shards = initialised(1, 2, 4)
    assert [rows.tolist() for rows in shards.split(np.arange(4)).pieces.values()] == [[0], [], [1, 2], [3]]
    indices = np.array([0, 2])
    assert [rows.tolist() for rows in shards.split(10 * indices, indices).pieces.values()] == [[0], [], [20], []]


def test_sources(tmp_path):
    np.save(tmp_path / "a.npy", X)
    assert sources.split(X) is None
    assert sources.split(X.tolist()) is None
    assert sources.split([]) is None
    given = sources.split([X, tmp_path / "a.npy"])
    assert given is not None
    for source in given:
        np.testing.assert_array_equal(sources.load(source), X)
    assert not sources.is_dask(X)
