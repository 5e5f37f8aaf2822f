"""The store of warm state against a plain one, its state after errors, and the oracles of pairs that use it."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import measures
from gibbsot import GridCost, Problem, solve_batch
from gibbsot.oracle.pairs import ChainOracle, DualOracle
from gibbsot.oracle.store import Field, Store
from gibbsot.sampling import sampler

COST = GridCost(4)
FIELDS = {"h": Field(COST.dtype, 4), "sweep": Field(np.int64)}


def store(capacity: int = 10) -> Store:
    return Store(FIELDS, capacity)


def marked(*marks: float) -> dict[str, np.ndarray]:
    """Fields that say whose they are."""
    return {"h": np.repeat(np.array(marks, float)[:, None], 4, axis=1), "sweep": np.full(len(marks), 1)}


def pairs(n: int, zeros: float = 0.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    return Problem(measures(rng, n, 4, zeros), measures(rng, n, 4, zeros), COST)


BATCHES = st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=6, unique=True), max_size=20)


@given(st.integers(1, 5), BATCHES)
def test_the_least_recently_used_are_forgotten(capacity, batches):
    kept, plain = store(capacity), OrderedDict[int, float]()
    for k, ids in enumerate(batches):
        marks = [100.0 * k + id for id in ids]
        kept.keep(ids, **marked(*marks))
        for id, mark in zip(ids, marks, strict=True):
            plain.pop(id, None)
            plain[id] = mark
            while len(plain) > capacity:
                plain.popitem(last=False)
        assert list(kept) == list(plain)
        np.testing.assert_array_equal(kept.read("h", kept.find(list(plain)))[:, 0], list(plain.values()))
    assert len(kept) == len(plain)


@given(st.integers(1, 5), BATCHES, st.data())
def test_a_snapshot_is_what_was_kept(capacity, batches, data):
    kept = store(capacity)
    cut = data.draw(st.integers(0, len(batches)))
    for k, ids in enumerate(batches[:cut]):
        kept.keep(ids, **marked(*(100.0 * k + id for id in ids)))
    before, snapshot = kept.arrays(), kept.snapshot()
    for _ in range(2):  # a snapshot may be used twice
        for ids in batches[cut:]:
            kept.keep(ids, **marked(*(-1.0 - id for id in ids)))
        kept.restore(snapshot)
        after = kept.arrays()
        assert before.keys() == after.keys()
        for name in before:
            np.testing.assert_array_equal(before[name], after[name])


def test_using_examples_again():
    kept = store(3)
    kept.keep([1, 2, 3], **marked(1, 2, 3))
    kept.use([1, 9])
    kept.keep([4], **marked(4))
    assert list(kept) == [3, 1, 4]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.data())
def test_fixed_examples_of_different_sizes(sizes, data):
    """Against a list of arrays."""
    n = len(sizes)
    kept = Store({"h": Field(np.float64, np.array(sizes, np.intp)), "sweep": Field(np.int64)}, n, fixed=True)
    plain = [np.zeros(size) for size in sizes]
    for k in range(1, 5):
        places = np.array(data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n)), np.intp)
        values = [k + np.arange(sizes[place]) / 10 for place in places]
        kept.write(places, h=np.concatenate([np.empty(0), *values]), sweep=np.full(len(places), k))
        for place, x in zip(places, values, strict=True):
            plain[place] = x
        order = np.array(data.draw(st.permutations(range(n))), np.intp)
        np.testing.assert_array_equal(kept.read("h", order), np.concatenate([plain[place] for place in order]))
    other = Store({"h": Field(np.float64, np.array(sizes, np.intp)), "sweep": Field(np.int64)}, n, fixed=True)
    other.load_state(kept.arrays())
    np.testing.assert_array_equal(other.read("h", np.arange(n)), np.concatenate(plain))


def test_arrays_go_there_and_back():
    kept = store(3)
    for name in (4, 9, 2, 9, 7):
        kept.keep([name], **marked(name))
    other = store(3)
    other.keep([1, 2], **marked(0, 0))
    other.load_state(kept.arrays())
    assert list(other) == list(kept) == [2, 9, 7]
    for a, b in zip(kept.arrays().values(), other.arrays().values(), strict=True):
        np.testing.assert_array_equal(a, b)
    other.keep([8], **marked(8))
    assert list(other) == [9, 7, 8]
    np.testing.assert_array_equal(other.read("h", other.find([9, 7, 8]))[:, 0], [9, 7, 8])
    small = store(2)
    small.load_state(kept.arrays())
    assert list(small) == [9, 7], "the most recent of more than it can hold"


def test_an_empty_store_goes_there_and_back():
    other = store(3)
    other.keep([1], **marked(1))
    other.load_state(store(3).arrays())
    assert len(other) == 0


@pytest.mark.parametrize("name", ["h", "sweep"])
def test_arrays_of_another_shape_or_type_are_refused(name):
    kept = store(3)
    kept.keep([4], **marked(1))
    for change in (lambda x: x[..., :-1], lambda x: x.astype("U8")):
        arrays = kept.arrays()
        arrays[name] = change(arrays[name])
        with pytest.raises(ValueError, match=f"{name}: expected"):
            kept.load_state(arrays)
        assert list(kept) == [4]


def test_what_is_kept_is_a_copy():
    kept, given = store(3), marked(1)
    kept.keep([0], **given)
    given["h"][:] = 5
    kept.read("h", kept.find([0]))[:] = 6
    kept.arrays()["h"][:] = 7
    np.testing.assert_array_equal(kept.read("h", kept.find([0])), np.ones((1, 4)))


def test_memory_that_runs_out_leaves_the_examples_as_they_were(monkeypatch):
    kept = store(1000)
    kept.keep(range(64), **marked(*range(64)))

    def no_memory(*args):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", no_memory)
        with pytest.raises(MemoryError):
            kept.keep([3, 64, 65], **marked(-1, -1, -1))
    assert list(kept) == list(range(64))
    kept.keep([64], **marked(64))
    np.testing.assert_array_equal(kept.read("h", kept.find(list(kept)))[:, 0], np.arange(65))


def test_an_interrupt_forgets_examples_and_never_mixes_them(monkeypatch):
    kept = store(4)
    kept.keep([1, 2, 3, 4], **marked(1, 2, 3, 4))

    def interrupted(*args, **values):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kept, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept.keep([2, 5], **marked(-1, -1))
    assert list(kept) == [3, 4]
    kept.keep([5, 6, 7], **marked(5, 6, 7))
    assert list(kept) == [4, 5, 6, 7]
    np.testing.assert_array_equal(kept.read("h", kept.find([4, 5, 6, 7]))[:, 0], [4, 5, 6, 7])


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True])
def test_capacity_is_a_count(capacity):
    with pytest.raises((TypeError, ValueError), match="capacity"):
        store(capacity)


def test_memory_is_bounded_by_the_capacity():
    kept = store(300)
    for start in range(0, 100_000, 1000):
        kept.keep(range(start, start + 1000), **marked(*range(1000)))
    assert len(kept) == 300
    assert {len(x) for x in kept._arrays.values()} == {300}


# --- chains


def chains(h: np.ndarray, seed: int = 0) -> ChainOracle:
    """Chains of examples 0, 1, ... with states h."""
    oracle = ChainOracle(COST, rng=seed)
    oracle.store.keep(range(len(h)), h=h, sweep=np.ones(len(h)))
    return oracle


def test_new_and_known_examples_in_one_batch():
    oracle = chains(np.full((6, 4), 3.0), seed=7)
    found = oracle.state([9, 5], pairs(2))
    np.testing.assert_array_equal(found.h, [[0] * 4, [3] * 4])
    np.testing.assert_array_equal(found.sweep, [0, 1])
    np.testing.assert_array_equal(found.ids, [9, 5])
    assert found.key == 7
    assert list(oracle.store) == list(range(6)), "reading changes nothing"


def test_a_target_whose_support_changes():
    """Points that lose their weight are masked; those that gain weight do not delay the others."""
    oracle = chains(np.array([[1.0, 2, np.inf, np.inf]] * 2))
    Q = np.array([[0.5, 0, 0.5, 0], [0, 0, 0.5, 0.5]])  # some points in common, and none
    pair = Problem(np.full((2, 4), 0.25), Q, COST)
    found = oracle.state([0, 1], pair)
    np.testing.assert_array_equal(found.h, [[1, np.inf, 2, np.inf], [np.inf, np.inf, 2, 2]])
    after, info = sampler.run(found, pair, np.full((1, 5), 0.01))
    assert np.isfinite(info.value).all()
    np.testing.assert_array_equal(np.isfinite(after.h), Q > 0)


def test_a_chain_that_is_infinite_everywhere_begins_anew():
    oracle = chains(np.full((1, 4), np.inf))
    np.testing.assert_array_equal(oracle.state([0], pairs(1)).h, np.zeros((1, 4)))


# --- duals


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.sampled_from([None, 0.1, (np.linspace(0, 1, 4), 0.2)]), st.integers(1, 6))
def test_duals_are_exact_or_lower_bounds(seed, penalty, capacity):
    """In any order of examples, with bases of problems that had more or fewer additional points."""
    rng = np.random.default_rng(seed)
    oracle = DualOracle(COST, penalty, drift=0.05, capacity=capacity)
    P, Q = rng.dirichlet(np.ones(4), size=(2, 6))
    for _ in range(6):
        ids = rng.permutation(6)[: rng.integers(1, 7)]
        P[ids] += rng.choice([0, 0.01, 0.3]) * rng.random((len(ids), 4))
        if penalty is None:
            P /= P.sum(axis=1, keepdims=True)
        before, known = oracle.n_solved, [int(id) in list(oracle.store) for id in ids]
        value = oracle.evaluate(P[ids], Q[ids], ids.tolist(), True, 1e-6)[0]
        exact = solve_batch(P[ids], Q[ids], COST, penalty=penalty)
        assert (value <= exact.value + 1e-12).all()
        assert len(ids) - sum(known) <= oracle.n_solved - before <= len(ids)
        if oracle.n_solved - before == len(ids):
            np.testing.assert_allclose(value, exact.value, rtol=1e-9, atol=1e-12)
        assert list(oracle.store)[-min(capacity, len(ids)) :] == ids.tolist()[-capacity:]
