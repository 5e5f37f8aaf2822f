"""``gibbsot barycenter``."""

from __future__ import annotations

import numpy as np
import pytest

from cli_runs import check_picture, fails, succeeds
from gibbsot import GridCost, WassersteinBarycenter
from gibbsot.core import native

whole_fit = pytest.mark.skipif(native.name() == "numpy", reason="takes minutes, and says nothing of the kernels")


@whole_fit
def test_images(blobs, tmp_path, capfd):
    out = tmp_path / "mean"
    report = succeeds(capfd, "barycenter", blobs, "--size", 4, 3, "--limit", 4, "--gap", "1e-9", "--out", out)
    found = np.load(out / "barycenter.npy")
    np.testing.assert_allclose(found.sum(), 1)
    assert report["read"] == "4 images of 4 x 3 pixels, shrunk from 8 x 6"
    assert report["lower_bound"] <= report["mean_cost"] <= report["lower_bound"] * (1 + 2e-9)
    check_picture(out / "barycenter.png")


@whole_fit
def test_a_smooth_one_on_a_line(tmp_path, capfd):
    X = np.random.default_rng(0).random((5, 8))
    np.save(tmp_path / "X.npy", X)
    out = tmp_path / "mean"
    report = succeeds(capfd, "barycenter", tmp_path / "X.npy", "--smooth", "--out", out)
    model = WassersteinBarycenter(cost=GridCost(8), smooth=True, gap=0.01, random_state=0).fit(X)
    np.testing.assert_array_equal(np.load(out / "barycenter.npy"), model.barycenter_)
    assert report["gap"] <= 0.01
    check_picture(out / "barycenter.png")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gap", 0, "--smooth"], "--gap: expected a positive"),
        (["--gap", -1], "--gap: expected"),
        (["--seed", -1], "--seed: expected"),
    ],
)
def test_what_is_refused(blobs, tmp_path, capfd, words, message):
    assert message in fails(capfd, "barycenter", blobs, "--out", tmp_path / "out", *words)
