"""The store of chains against a plain one, and its state after errors."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import measures
from gibbsot import GridCost, Problem
from gibbsot.oracle.chains import Chains
from gibbsot.sampling import sampler

COST = GridCost(4)


def state(h: np.ndarray, sweep: int = 1) -> sampler.State:
    n = len(h)
    return sampler.State(h.astype(COST.dtype), np.full(n, sweep, np.int64), 0, np.arange(n, dtype=np.uint64))


def marked(*marks: float) -> sampler.State:
    """States whose h says who they are."""
    return state(np.repeat(np.array(marks)[:, None], 4, axis=1))


def pairs(n: int, zeros: float = 0.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    return Problem(measures(rng, n, 4, zeros), measures(rng, n, 4, zeros), COST)


@given(st.integers(1, 5), st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=6, unique=True), max_size=20))
def test_the_least_recently_used_are_forgotten(capacity, batches):
    chains, plain = Chains(COST, capacity), OrderedDict[int, float]()
    for k, ids in enumerate(batches):
        marks = [100.0 * k + id for id in ids]
        chains.keep(ids, marked(*marks))
        for id, mark in zip(ids, marks, strict=True):
            plain.pop(id, None)
            plain[id] = mark
            while len(plain) > capacity:
                plain.popitem(last=False)
        assert list(chains) == list(plain)
        if plain:
            found = chains.state(list(plain), pairs(len(plain)))
            np.testing.assert_array_equal(found.h[:, 0], list(plain.values()))
    assert len(chains) == len(plain)


def test_new_and_known_examples_in_one_batch():
    chains = Chains(COST, 10, seed=7)
    chains.keep([5], marked(3.0))
    found = chains.state([1, 5], pairs(2))
    np.testing.assert_array_equal(found.h, [[0] * 4, [3] * 4])
    np.testing.assert_array_equal(found.sweep, [0, 1])
    np.testing.assert_array_equal(found.ids, [1, 5])
    assert found.seed == 7
    assert list(chains) == [5], "reading changes nothing"


def test_a_target_whose_support_changes():
    """Points that lose their weight are masked; those that gain weight do not delay the others."""
    chains = Chains(COST, 10)
    chains.keep([0, 1], state(np.array([[1.0, 2, np.inf, np.inf]] * 2)))
    Q = np.array([[0.5, 0, 0.5, 0], [0, 0, 0.5, 0.5]])  # some points in common, and none
    pair = Problem(np.full((2, 4), 0.25), Q, COST)
    found = chains.state([0, 1], pair)
    np.testing.assert_array_equal(found.h, [[1, np.inf, 2, np.inf], [np.inf, np.inf, 2, 2]])
    after, info = sampler.run(found, pair, np.full((1, 5), 0.01))
    assert np.isfinite(info.value).all()
    np.testing.assert_array_equal(np.isfinite(after.h), Q > 0)


def test_a_chain_that_is_infinite_everywhere_begins_anew():
    chains = Chains(COST, 10)
    chains.keep([0], state(np.full((1, 4), np.inf)))
    np.testing.assert_array_equal(chains.state([0], pairs(1)).h, np.zeros((1, 4)))


def test_arrays_go_there_and_back():
    chains = Chains(COST, 3)
    for name in (4, 9, 2, 9, 7):
        chains.keep([name], marked(name))
    other = Chains(COST, 3)
    other.keep([1, 2], marked(0, 0))
    other.load_state(chains.arrays())
    assert list(other) == list(chains) == [2, 9, 7]
    for a, b in zip(chains.arrays().values(), other.arrays().values(), strict=True):
        np.testing.assert_array_equal(a, b)
    other.keep([8], marked(8))
    assert list(other) == [9, 7, 8]
    np.testing.assert_array_equal(other.state([9, 7, 8], pairs(3)).h[:, 0], [9, 7, 8])
    small = Chains(COST, 2)
    small.load_state(chains.arrays())
    assert list(small) == [9, 7], "the most recent of more than it can hold"


def test_an_empty_store_goes_there_and_back():
    other = Chains(COST, 3)
    other.keep([1], marked(1))
    other.load_state(Chains(COST, 3).arrays())
    assert len(other) == 0


@pytest.mark.parametrize("name", ["h", "sweep"])
def test_arrays_of_another_shape_are_refused(name):
    chains = Chains(COST, 3)
    chains.keep([4], marked(1))
    arrays = chains.arrays()
    arrays[name] = arrays[name][..., :-1]
    with pytest.raises(ValueError, match="chains: have"):
        chains.load_state(arrays)
    assert list(chains) == [4]


def test_what_is_kept_is_a_copy():
    chains = Chains(COST, 3)
    kept = marked(1)
    chains.keep([0], kept)
    kept.h[:] = 5
    chains.state([0], pairs(1)).h[:] = 6
    chains.arrays()["h"][:] = 7
    np.testing.assert_array_equal(chains.state([0], pairs(1)).h, np.ones((1, 4)))


def test_memory_that_runs_out_leaves_the_chains_as_they_were(monkeypatch):
    chains = Chains(COST, 1000)
    chains.keep(range(64), marked(*range(64)))

    def no_memory(*args):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", no_memory)
        with pytest.raises(MemoryError):
            chains.keep([3, 64, 65], marked(-1, -1, -1))
    assert list(chains) == list(range(64))
    chains.keep([64], marked(64))
    np.testing.assert_array_equal(chains.state(list(chains), pairs(65)).h[:, 0], np.arange(65))


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True])
def test_capacity_is_a_count(capacity):
    with pytest.raises((TypeError, ValueError), match="capacity"):
        Chains(COST, capacity)


def test_memory_is_bounded_by_the_capacity():
    chains = Chains(COST, 300)
    for start in range(0, 100_000, 1000):
        chains.keep(range(start, start + 1000), marked(*range(1000)))
    assert len(chains) == 300
    assert len(chains._h) == len(chains._sweep) == 300
