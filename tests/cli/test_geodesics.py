"""``gibbsot geodesics``."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from cli_runs import check_picture, fails, succeeds
from gibbsot import GridCost, WassersteinPCA
from gibbsot.cli import main

FILES = {
    *("geodesics.npy", "components.npy", "coordinates.npy", "report.json"),
    *("geodesics.png", "coordinates.png"),
}


@pytest.mark.parametrize("options", [[], ["--maps", "debiased"], ["--reference", "barycenter"]])
def test_a_folder_of_images(options, blobs, tmp_path, capfd):
    out = tmp_path / "a" / "out"
    report = succeeds(capfd, "geodesics", blobs, "--components", "3", *options, "--out", out)
    assert set(os.listdir(out)) == FILES == set(report["files"])
    assert json.loads((out / "report.json").read_text()) == report
    assert (report["measures"], report["shape"], report["components"]) == (12, [8, 6], 3)
    paths, fields, Z = (np.load(out / f"{name}.npy") for name in ("geodesics", "components", "coordinates"))
    assert paths.shape == (3, len(report["times"]), 48)
    np.testing.assert_allclose(paths.sum(axis=2), 1)
    assert fields.shape[0] == 3
    assert fields.shape[2] == 2
    assert Z.shape == (12, 3)
    assert 0 < sum(report["explained"]) <= 1
    for name in ("geodesics.png", "coordinates.png"):
        check_picture(out / name)


def test_what_is_printed(blobs, tmp_path, capfd):
    assert main(["geodesics", str(blobs), "--components", "1", "--out", str(tmp_path / "out")]) == 0
    printed = capfd.readouterr().out
    assert "explained variance" in printed
    assert "geodesics.png" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--components", "0"], "--components: expected a number from 1 to 12, got 0"),
        (["--components", "13"], "--components: expected a number from 1 to 12, got 13"),
        (["--maps", "linear"], "maps: expected one of"),
        (["--reference", "median"], "reference: expected one of"),
    ],
)
def test_bad_arguments(words, message, blobs, tmp_path, capfd):
    assert message in fails(capfd, "geodesics", blobs, *words, "--quiet", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rows_that_are_no_images(tmp_path, capfd):
    np.save(tmp_path / "X.npy", np.random.default_rng(0).random((6, 12)))
    words = ["geodesics", tmp_path / "X.npy", "--components", "2", "--out", tmp_path / "out"]
    assert "--shape HEIGHT WIDTH" in fails(capfd, *words)
    succeeds(capfd, *words, "--shape", "3", "4")


def test_a_folder_of_stacks_of_images(tmp_path, capfd):
    X, shards = np.random.default_rng(0).random((6, 3, 4)), tmp_path / "shards"
    shards.mkdir()
    np.save(shards / "a.npy", X[:2])
    np.save(shards / "b.npy", X[2:])
    report = succeeds(capfd, "geodesics", shards, "--components", "2", "--out", tmp_path / "out")
    assert (report["measures"], report["shape"]) == (6, [3, 4])
    expected = WassersteinPCA(2, cost=GridCost((3, 4))).fit_transform(X.reshape(6, 12))
    np.testing.assert_allclose(np.load(tmp_path / "out" / "coordinates.npy"), expected, rtol=1e-12)
