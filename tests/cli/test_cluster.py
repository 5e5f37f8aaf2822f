"""``gibbsot cluster``."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cli_runs import check_picture, fails, succeeds
from gibbsot import GridCost, WassersteinKMeans
from gibbsot.cli.cluster import _sheet
from gibbsot.core import native
from gibbsot.plots.fits import _GAP

whole_fit = pytest.mark.skipif(native.name() == "numpy", reason="takes minutes, and says nothing of the kernels")


@whole_fit
def test_a_folder_of_images(blobs, tmp_path, capfd):
    out = tmp_path / "found"
    report = succeeds(capfd, "cluster", blobs, "--clusters", 3, "--out", out, "--seed", 1)
    labels, centres = np.load(out / "labels.npy"), np.load(out / "centroids.npy")
    assert labels.shape == (12,)
    assert centres.shape == (3, 48)
    assert report["sizes"] == np.bincount(labels, minlength=3).tolist()
    assert report["bounds"][0] <= report["mean_cost"] <= report["bounds"][1]
    assert json.loads((out / "report.json").read_text())["measures"] == 12
    for name in ("centroids.png", "cluster-0.png", "cluster-2.png"):
        check_picture(out / name)
    assert not list(out.glob(".*"))


def test_a_contact_sheet_shows_the_centroid_and_the_nearest_images():
    images = np.random.default_rng(0).random((130, 6))
    for count, size, title in ((130, (10, 12), "119 of 130 images"), (2, (1, 3), "2 images")):
        figure = _sheet(3, images[0], images[:count], (2, 3), "gray")
        [ax] = figure.axes
        assert ax.get_title(loc="left") == f"cluster 3: its centroid, then {title}, the nearest first"
        height, width = ax.images[0].get_array().shape
        rows, columns = size
        assert (height, width) == (rows * (2 + _GAP) - _GAP, columns * (3 + _GAP) - _GAP)
        [frame] = ax.lines
        assert (frame.get_xdata().max(), frame.get_ydata().max()) == (2.5, 1.5)  # around the first image


@whole_fit
def test_rows_of_a_matrix(tmp_path, capfd):
    X = np.random.default_rng(0).random((10, 6))
    np.save(tmp_path / "X.npy", X)
    words = ["--clusters", 2, "--out", tmp_path / "out", "--starts", 2, "--power", 1]
    report = succeeds(capfd, "cluster", tmp_path / "X.npy", *words)
    model = WassersteinKMeans(2, cost=GridCost(6, power=1), n_init=2, random_state=0).fit(X)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "labels.npy"), model.labels_)
    assert report["mean_cost"] == model.inertia_ / 10
    check_picture(tmp_path / "out" / "centroids.png")
    assert not (tmp_path / "out" / "cluster-0.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--clusters", 0], "--clusters: expected"),
        (["--clusters", 13], "--clusters: is 13; expected at most 12"),
        (["--clusters", 2, "--starts", 0], "--starts: expected"),
        (["--clusters", 2, "--gap", -1], "--gap: expected"),
        (["--clusters", 2, "--seed", -1], "--seed: expected"),
    ],
)
def test_what_is_refused(blobs, tmp_path, capfd, words, message):
    assert message in fails(capfd, "cluster", blobs, "--out", tmp_path / "out", *words)
