"""Files and checkpoints of version 1 of the formats, written by commit 4b9d4c2, are read and resumed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fits import same_nmf
from gibbsot import GridCost, Oracle, WassersteinNMF
from gibbsot.distributed import checkpoints
from gibbsot.io import npz, schemas

OLD = Path(__file__).resolve().parents[1] / "data" / "old"
X = np.exp(-((np.arange(12) - np.linspace(2, 9, 8)[:, None]) ** 2) / 4).round(3)
X[3] = 0
SHARDS = [X[:5], X[5:]]
OPTIONS = {"n_components": 2, "cost": "line", "max_epochs": 12, "tau": 3, "random_state": 0, "batch_size": 3}

pytestmark = pytest.mark.filterwarnings("ignore:X")  # the row without mass


def resumed(model: WassersteinNMF) -> WassersteinNMF:
    return model.set_params(max_epochs=24).resume(SHARDS)


def load(kind: str, tmp_path: Path) -> WassersteinNMF:
    if kind == "model":
        return WassersteinNMF.load(OLD / "model.npz")
    return WassersteinNMF.load(shutil.copytree(OLD / "checkpoints", tmp_path / "checkpoints"))


@pytest.mark.parametrize("kind", ["model", "checkpoints"])
def test_an_old_fit_is_resumed(kind, tmp_path):
    """By the present algorithm; the file was written before there were mean models and weights."""
    model = load(kind, tmp_path)
    before = model.reconstruction_err_
    assert model.n_iter_ == 12
    model.save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as file:
        assert str(file["format"]) == "gibbsot nmf 2"
        assert not [key for key in file.files if "part" in key or "facts" in key or "value_unit" in key]
    again = WassersteinNMF.load(tmp_path / "new.npz")
    same_nmf(again, model)
    same_nmf(resumed(again), resumed(model))
    assert model.n_iter_ == 24
    assert model.reconstruction_err_ <= before


def test_an_old_oracle(tmp_path):
    P = X[5:8] / X[5:8].sum(axis=1, keepdims=True)
    oracle = Oracle.load(OLD / "oracle.npz")
    oracle.save(tmp_path / "new.npz")
    again = Oracle.load(tmp_path / "new.npz")
    fresh = Oracle(GridCost(12), X[:3], tau=3, seed=1)
    fresh(P, 1e-2)
    for a, b, c in zip(oracle(P, 1e-2)[:2], again(P, 1e-2)[:2], fresh(P, 1e-2)[:2], strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-9, atol=1e-12)


def test_all_keys_are_translated():
    """An old model file has the keys of a new one."""
    old = npz.load(OLD / "model.npz", schemas.NMF)
    (folder,) = (OLD / "checkpoints").iterdir()
    assert checkpoints.exist(OLD / "checkpoints")
    shard = npz.load(folder / "part-00001.npz", schemas.MIXTURE_SHARD)
    assert {"metadata_n_rows", "metadata_dtype", "quantum", "value_quantum", "oracle_ids"} <= shard.keys()
    assert {f"shard1_{key}" for key in shard} <= old.keys()
    assert "checksums" in npz.load(folder / "model.npz", schemas.NMF)
