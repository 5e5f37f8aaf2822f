"""``gibbsot transform``."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from cli_runs import fails, succeeds
from gibbsot import WassersteinNMF
from gibbsot.cli import main
from gibbsot.core import native
from gibbsot.io import readers

pytestmark = pytest.mark.skipif(native.name() == "numpy", reason="takes minutes, and says nothing of the kernels")


def fit(capfd, data, out, *words):
    """Fit a model; a few epochs may warn."""
    assert main(["nmf", str(data), "--out", str(out), *map(str, words), "--json"]) == 0
    capfd.readouterr()


def test_new_images_are_read_as_those_of_the_fit(blobs, tmp_path, capfd):
    words = ("--size", 4, 3, "--invert", "--components", 2, "--epochs", 1)
    fit(capfd, blobs, tmp_path / "fit", *words)
    report = succeeds(capfd, "transform", tmp_path / "fit", blobs, "--limit", 3, "--out", tmp_path / "W.csv")
    assert report["read"] == "3 images of 4 x 3 pixels, shrunk from 8 x 6"
    with (tmp_path / "W.csv").open(newline="") as file:
        head, *lines = csv.reader(file)
    assert head == ["", "component 0", "component 1"]
    assert [line[0] for line in lines] == ["0.png", "1.png", "2.png"]
    model = WassersteinNMF.load(tmp_path / "fit" / "model.npz")
    X = readers.collection(blobs, size=(4, 3), invert=True, limit=3).rows
    np.testing.assert_array_equal([[float(x) for x in line[1:]] for line in lines], model.transform(X).tolist())
    succeeds(capfd, "transform", tmp_path / "fit", blobs, "--limit", 3, "--out", tmp_path / "W.npz")
    with np.load(tmp_path / "W.npz") as found:
        assert found["names"].tolist() == ["0.png", "1.png", "2.png"]
        assert found["memberships"].shape == (3, 2)


def test_what_is_refused(blobs, tmp_path, capfd):
    words = ("transform", tmp_path / "none", blobs, "--out")
    assert "none: has no model.npz" in fails(capfd, *words, tmp_path / "W.csv")
    assert "--out: expected a name" in fails(capfd, *words, tmp_path / "W.txt")
    fit(capfd, blobs, tmp_path / "fit", "--components", 2, "--epochs", 1)
    np.save(tmp_path / "X.npy", np.ones((2, 5)))
    message = fails(capfd, "transform", tmp_path / "fit", tmp_path / "X.npy", "--out", tmp_path / "W.csv")
    assert "has measures of 5 bins; expected 48 as in" in message
