"""k-means in shards, with checkpoints: bit-identical to a fit of all data at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fits import same_fit
from gibbsot import GridCost, WassersteinKMeans
from gibbsot.core import native
from gibbsot.distributed.shards import LocalShards
from gibbsot.models.kmeans.estimator import KMeansShard, PartsData

pytestmark = pytest.mark.skipif(native.name() == "numpy", reason="takes minutes, and says nothing of the kernels")

ATTRIBUTES = ("labels_", "inertia_", "inertia_bounds_", "centroid_gaps_", "counts_", "n_relocated_")


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """Without a digest of the shards before and after every query: `test_queries_change_nothing` has it."""
    monkeypatch.setattr(LocalShards, "check_queries", False)


def images(n: int = 40, side: int = 5) -> np.ndarray:
    X = np.random.default_rng(0).random((n, side * side)) ** 4
    X[X < 0.1] = 0
    return X


def clouds(n: int = 30, d: int = 2) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(m, d)) + 2 * (m % 3), rng.random(m) + 0.1) for m in rng.integers(4, 8, n)]


KINDS = {
    "fixed": ({"cost": GridCost((5, 5))}, images()),
    "a metric": ({"cost": GridCost((5, 5), power=1)}, images()),
    "no kernel": ({"cost": np.random.default_rng(0).random((25, 25)) + 1, "gap": 0.1}, images()),
    "free": ({"support": "free", "n_support": 4}, clouds()),
    "on the line": ({"support": "free", "n_support": 4}, clouds(d=1)),
    "parts": ({"cost": [GridCost((5, 5)), "line"], "cost_weights": [1, 0.3]}, [images(), images()[:, ::-1]]),
}


def model(kind: str, **options) -> WassersteinKMeans:
    return WassersteinKMeans(3, random_state=0, **KINDS[kind][0] | options)


def same(first: WassersteinKMeans, other: WassersteinKMeans) -> None:
    same_fit(first, other, *ATTRIBUTES)
    flat = [np.concatenate([np.ravel(x) for x in _leaves(one.cluster_centers_)]) for one in (first, other)]
    np.testing.assert_array_equal(*flat)
    assert first.solved_ == other.solved_


def _leaves(x) -> list[np.ndarray]:
    return [x] if isinstance(x, np.ndarray) else [leaf for one in x for leaf in _leaves(one)]


class Cut(WassersteinKMeans):
    """A model that cuts any data into shards."""

    cuts = (1, 1, 17)

    def _sources(self, X, count, reset):
        [whole], full = super()._sources(X, 1, reset)
        n = len(whole.parts[0])
        ends = [0, *self.cuts, n]
        return [PartsData([part[a:b] for part in whole.parts]) for a, b in pairwise(ends)], full


@pytest.mark.filterwarnings("ignore:gap:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_shards_do_not_matter(kind, monkeypatch):
    options, X = KINDS[kind]
    if kind == "no kernel":
        monkeypatch.setattr("gibbsot.models.kmeans.smoothed._MOST_ENTRIES", 0)
    weights = 1.0 + np.arange(len(X[0]) if kind == "parts" else len(X)) % 3
    whole = model(kind).fit(X, sample_weight=weights)
    same(Cut(3, random_state=0, **options).fit(X, sample_weight=weights), whole)


def test_a_list_of_matrices_has_shards():
    X = images()
    X[5] = 0
    with pytest.warns(UserWarning, match="mass"):
        whole = model("fixed").fit(X)
    with pytest.warns(UserWarning, match="mass"):
        same(model("fixed").fit([X[:3], X[3:3], X[3:7], X[7:]]), whole)
    assert whole.labels_[5] == -1


@pytest.mark.filterwarnings("ignore:max_iter:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["fixed", "free", "parts"])
@pytest.mark.parametrize("after", [1, 3])
def test_a_fit_is_resumed_from_its_checkpoint(kind, after, tmp_path):
    X, options = KINDS[kind][1], {"n_init": 2}
    whole = model(kind, **options).fit(X)
    first = model(kind, **options, checkpoint=tmp_path, checkpoint_seconds=1e-9, callbacks=[Stop(after)]).fit(X)
    assert len(first.history_) <= after
    loaded = WassersteinKMeans.load(tmp_path)
    assert loaded.n_iter_ == first.n_iter_
    np.testing.assert_array_equal(loaded.predict(X), first.predict(X))
    same(loaded.resume(X), whole)
    same(WassersteinKMeans.load(tmp_path), whole)
    same(WassersteinKMeans.load(tmp_path).resume(X), whole)  # nothing is left to do


class Stop:
    """Stops a fit after some assignments."""

    def __init__(self, after: int) -> None:
        self.after, self.calls = after, 0

    def __call__(self, model) -> bool:
        self.calls += 1
        return self.calls == self.after


def test_a_fit_may_be_prolonged(tmp_path):
    X = images()
    with pytest.warns(match="max_iter"):
        model("fixed", checkpoint=tmp_path, max_iter=2).fit(X)
    prolonged = model("fixed", checkpoint=tmp_path, max_iter=100).resume(X)
    same(prolonged, model("fixed").fit(X))


def test_what_resume_refuses(tmp_path):
    X = images()
    with pytest.raises(ValueError, match="resume: there is no checkpoint"):
        model("fixed").resume(X)
    model("fixed", checkpoint=tmp_path, callbacks=[Stop(1)]).fit(X)
    with pytest.raises(ValueError, match="X: differs from the data of the fit"):
        model("fixed", checkpoint=tmp_path).resume(X + 0.1)
    with pytest.raises(ValueError, match="n_clusters: is 4; expected 3 as in the fit"):
        model("fixed", checkpoint=tmp_path).set_params(n_clusters=4).resume(X)
    with pytest.raises(ValueError, match="1 shards"):
        model("fixed", checkpoint=tmp_path).resume([X[:3], X[3:]])
    with pytest.raises(ValueError, match=r"checkpoint: .* has checkpoints"):
        model("fixed", checkpoint=tmp_path).fit(X)


@pytest.mark.parametrize("kind", ["fixed", "free"])
def test_queries_change_nothing(kind, monkeypatch):
    monkeypatch.setattr(LocalShards, "check_queries", True)
    X = KINDS[kind][1][:12]
    same(model(kind, max_iter=50).fit(X), model(kind, max_iter=50).fit(X))


def test_commands_and_queries_of_parts_are_told_apart():
    shard = KMeansShard([images()])
    shard.set_up(0, 1, [lambda _: Marked()])
    assert (shard.run(0, "change"), shard.ask(0, "answer")) == (1, 2)
    for call in (lambda: shard.run(0, "answer"), lambda: shard.ask(0, "change")):
        with pytest.raises(AssertionError):
            call()


class Marked:
    """A part."""

    def change(self) -> int:
        return 1

    def answer(self) -> int:
        return 2

    change.__shard_role__, answer.__shard_role__ = "command", "query"
