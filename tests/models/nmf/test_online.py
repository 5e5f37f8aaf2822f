"""Streams: `WassersteinNMF.partial_fit`."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse

from gibbsot import GridCost, WassersteinNMF, costs
from gibbsot.distributed import fixed_point
from gibbsot.models.nmf.online import Portion

SIZE = 16
BUMPS = np.exp(-((np.arange(SIZE) - np.array([[2], [8], [13]])) ** 2) / 2)
BUMPS /= BUMPS.sum(axis=1, keepdims=True)


def counts(n: int, seed: int) -> np.ndarray:
    """Samples of mixtures of three bumps: 30 whole numbers."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(30, rng.dirichlet(np.full(3, 0.3), n) @ BUMPS).astype(float)


def stream(n_batches: int = 2, n: int = 12, **options) -> WassersteinNMF:
    settings = {"cost": GridCost(SIZE), "tau": 3, "init": "random", "random_state": 0} | options
    model = WassersteinNMF(3, **settings)
    for k in range(n_batches):
        model.partial_fit(counts(n, seed=k))
    return model


def test_held_out_measures_gain_from_more_data():
    """The seeds are fixed and results deterministic, so there are no false alarms."""
    held_out, model, scores = counts(30, seed=100), WassersteinNMF(3, cost="line", tau=3, random_state=0), []
    for k in range(40):
        model.partial_fit(counts(20, seed=k))
        if k in (0, 3, 39):
            scores.append(-model.score(held_out))
    assert scores[2] < scores[1] < scores[0]
    assert model.n_seen_ == 800


@pytest.mark.parametrize("options", [{"batch_size": 5}, {"batch_size": 1}, {"n_jobs": 3}])
def test_threads_and_blocks_change_no_bit(options):
    np.testing.assert_array_equal(stream(**options).components_, stream().components_)


def test_sparse_rows_and_rows_without_mass():
    X = counts(12, seed=0)
    model = stream(1)
    np.testing.assert_array_equal(stream(0).partial_fit(sparse.csr_array(X)).components_, model.components_)
    with pytest.warns(UserWarning, match="no mass"):
        found = stream(0).partial_fit(np.insert(X, 4, 0, axis=0))
    np.testing.assert_array_equal(found.components_, model.components_)
    assert found.n_seen_ == 12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("copy", ["file", "pickle"])
def test_a_copy_in_the_middle_is_bit_identical(tmp_path, dtype, copy):
    model = stream(0)
    for k in range(3):
        model.partial_fit(counts(12, seed=k).astype(dtype))
    if copy == "file":
        model.save(tmp_path / "model.npz")
        other = WassersteinNMF.load(tmp_path / "model.npz")
    else:
        other = pickle.loads(pickle.dumps(model))
    for each in (model, other):
        each.partial_fit(counts(12, seed=3).astype(dtype)).partial_fit(counts(5, seed=4).astype(dtype))
    np.testing.assert_array_equal(model.components_, other.components_)
    assert (model.n_seen_, model._stream) == (other.n_seen_, other._stream)
    assert model.components_.dtype == dtype


@pytest.mark.parametrize("factor", [4.0**-300, 4.0**200])
def test_the_scale_of_the_cost_does_not_matter(factor):
    M = GridCost(SIZE).matrix()
    one, other = stream(cost=M), stream(cost=factor * M)
    np.testing.assert_array_equal(one.components_, other.components_)


def test_a_given_temperature_is_in_the_units_of_the_cost():
    M = GridCost(SIZE).matrix()
    one, other = stream(cost=M, temperature=1e-3), stream(cost=16 * M, temperature=16e-3)
    np.testing.assert_array_equal(one.components_, other.components_)
    assert (stream(cost=M, temperature=1e-2).components_ != one.components_).any()


def test_a_weight_of_two_is_a_row_given_twice():
    """The gradient is the same up to its quanta if the chains have the same noise; in a stream their noise differs."""
    X, D = counts(6, seed=0), fixed_point.components(BUMPS)
    units = costs.in_units(GridCost(SIZE)).single()
    found = []
    for rows, weights in ((np.arange(6), [1, 2, 1, 1, 1, 2]), (np.array([0, 1, 1, 2, 3, 4, 5, 5]), None)):
        batch = Portion(X[rows], weights, units, 4, 0, tau=3, rng=0)
        for oracle, block in zip(batch._oracles, batch._blocks, strict=True):
            oracle.ids = rows[block].astype(np.uint64)
        batch.start(D)
        batch.descend(D, 1e-3, 1e-4)
        found.append(batch.step(D, 1.0, 1e-4))
        assert batch.weight == 8
    (gradient, value), (expected, mean) = found
    np.testing.assert_allclose(gradient, expected, atol=1e-5 * np.abs(expected).max())
    assert value == pytest.approx(mean, rel=1e-6)
    assert np.abs(expected).max() > 0


def test_weights_of_zero_and_of_one():
    X = counts(12, seed=0)
    weights = np.ones(12)
    np.testing.assert_array_equal(stream(0).partial_fit(X, sample_weight=weights).components_, stream(1).components_)
    weights[[0, 7]] = 0
    one, other = stream(0).partial_fit(X, sample_weight=weights), stream(0).partial_fit(X[weights > 0])
    np.testing.assert_array_equal(one.components_, other.components_)
    assert one.n_seen_ == 10


def test_weights_choose_what_is_learnt():
    """One component for measures on the left and on the right goes to those with weight."""
    left = np.random.default_rng(0).multinomial(30, BUMPS[0], 20).astype(float)
    X, means = np.concatenate([left, left[:, ::-1]]), []
    for weights in ([1.0, 1e-3], [1.0, 1.0], [1e-3, 1.0]):
        model = stream(0).set_params(n_components=1)
        for _ in range(10):
            model.partial_fit(X, sample_weight=np.repeat(weights, 20))
        means.append(float(model.components_[0] @ np.arange(SIZE)))
    assert means[0] < 4
    assert 6 < means[1] < 9
    assert means[2] > 11


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], "sample_weight: "),
        (np.ones((4, 2)), "sample_weight: "),
        ([1.0, -1.0, 1.0, 1.0], "sample_weight: has negative weights"),
        ([1.0, np.nan, 1.0, 1.0], "sample_weight: has NaN weights"),
        (np.zeros(4), "sample_weight: is zero for every measure with mass"),
    ],
)
def test_bad_weights(weights, message):
    model = stream(1)
    before = model.components_.copy(), model._stream, model.n_seen_
    with pytest.raises(ValueError, match=message):
        model.partial_fit(counts(4, seed=1), sample_weight=weights)
    np.testing.assert_array_equal(model.components_, before[0])
    assert (model._stream, model.n_seen_) == before[1:]


def test_steps_fall_and_the_state_adds_up():
    """Of equal batches, all of them the same measures, later ones change the components less."""
    model, changes = stream(0), []
    for _ in range(6):
        before = getattr(model, "components_", None)
        model.partial_fit(counts(40, seed=0), sample_weight=np.full(40, 0.5))
        if before is not None:
            changes.append(np.abs(model.components_ - before).sum())
    assert changes[-1] < 0.5 * changes[0]
    assert model._stream.weight == 120
    assert model.n_seen_ == 240


def test_the_model_is_the_mean_of_what_the_steps_came_to():
    """With weights that grow with the cube of the number of batches: of three equal ones 1, 4 and 10 of 15."""
    model, last = stream(0), []
    for k in range(3):
        model.partial_fit(counts(12, seed=k))
        last.append(model._last_components)
    np.testing.assert_allclose(model.components_, np.average(last, axis=0, weights=[1, 4, 10]), rtol=1e-6)
    np.testing.assert_allclose(model.components_.sum(axis=1), 1, rtol=1e-6)
