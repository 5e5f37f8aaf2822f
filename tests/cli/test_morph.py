"""``gibbsot morph``."""

from __future__ import annotations

import numpy as np

from cli_runs import Image, fails, succeeds


def spot(path, column):
    image = np.zeros((5, 9), np.uint8)
    image[2, column] = 200
    Image.fromarray(image).save(path)


def test_a_spot_moves(tmp_path, capfd):
    spot(tmp_path / "a.png", 0)
    spot(tmp_path / "b.png", 8)
    pair = ("morph", tmp_path / "a.png", tmp_path / "b.png")
    report = succeeds(capfd, *pair, "--frames", "3", "--out", tmp_path / "new" / "f.png")
    assert report["files"] == [str(tmp_path / "new" / f"f-{k}.png") for k in range(3)]
    middle = np.asarray(Image.open(report["files"][1]))
    assert middle[2, 4] == 255
    assert middle.sum() == 255
    assert report["status"] == "optimal"
    np.testing.assert_allclose(report["value"], (8 / 9) ** 2)
    succeeds(capfd, *pair, "--frames", "4", "--out", tmp_path / "m.gif")
    with Image.open(tmp_path / "m.gif") as movie:
        assert movie.n_frames == 4
    assert "--frames: expected at least 2" in fails(capfd, *pair, "--frames", "1", "--out", tmp_path / "x.gif")
    assert "expected a name that ends with .gif" in fails(capfd, *pair, "--out", tmp_path / "x.mp4")
    Image.fromarray(np.ones((3, 3), np.uint8)).save(tmp_path / "c.png")
    words = ("morph", tmp_path / "a.png", tmp_path / "c.png", "--out", tmp_path / "x.gif")
    assert "c.png: is 3 x 3" in fails(capfd, *words)
    assert not (tmp_path / "x.gif").exists()
