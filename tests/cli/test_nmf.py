"""``gibbsot nmf``."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from cli_runs import Image, check_picture, fails, installed, start, succeeds, wait_for
from gibbsot import GridCost
from gibbsot.cli import main
from gibbsot.core import native
from gibbsot.models.nmf.estimator import WassersteinNMF
from gibbsot.models.nmf.fit import FitState

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

NMF_FILES = {"components.npy", "memberships.npy", "model.npz", "options.json", "report.json"}
PICTURES = {"components.png", "reconstruction.png", "convergence.png"}


def test_nmf_writes_its_results(blobs, tmp_path, capfd):
    out = tmp_path / "a" / "out"
    report = succeeds(capfd, "nmf", blobs, "--components", "3", "--epochs", "4", "--out", out)
    assert set(os.listdir(out)) == NMF_FILES | PICTURES == set(report["files"])
    assert json.loads((out / "report.json").read_text()) == report
    assert (report["measures"], report["shape"], report["epochs"]) == (12, [8, 6], 4)
    components, memberships = (np.load(out / f"{name}.npy") for name in ("components", "memberships"))
    assert components.shape == (3, 48)
    np.testing.assert_allclose(memberships.sum(axis=1), 1)
    model = WassersteinNMF.load(out / "model.npz")
    np.testing.assert_array_equal(model.components_, components)
    assert model.reconstruction_err_ == report["cost"]
    for name in PICTURES:
        check_picture(out / name)


def test_nmf_of_a_matrix_on_a_line(tmp_path, capfd):
    rows = np.random.default_rng(0).random((9, 12)) ** 3
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",")
    words = ["nmf", tmp_path / "rows.csv", "--components", "2", "--epochs", "2", "--out"]
    assert main([*map(str, words), str(tmp_path / "line")]) == 0
    assert "9 measures as mixtures of 2 components" in capfd.readouterr().out
    assert set(os.listdir(tmp_path / "line")) == NMF_FILES | {"convergence.png", "components.png"}
    check_picture(tmp_path / "line" / "components.png")
    report = succeeds(capfd, *words, tmp_path / "images", "--shape", "3", "4", "--size", "2", "2", "--limit", "5")
    assert (report["measures"], report["shape"]) == (5, [2, 2])


def test_nmf_of_named_data(tmp_path, capfd):
    words = ["nmf", "digits", "--label", "5", "--limit", "8", "--size", "4", "4", "--out", tmp_path / "out"]
    report = succeeds(capfd, *words, "--components", "2", "--epochs", "2")
    assert (report["measures"], report["shape"]) == (8, [4, 4])


@pytest.mark.slow
@installed
@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.skipif(native.name() == "numpy", reason="slow without compiled kernels")
def test_interrupted_or_killed_and_resumed(blobs, tmp_path, capfd):
    words = ["nmf", blobs, "--components", "3", "--epochs", "150", "--checkpoint", "0", "--out"]
    stopped, killed, whole = (tmp_path / name for name in ("stopped", "killed", "whole"))
    process = start(*words, stopped)
    wait_for(stopped / "model.npz", process)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in printed
    assert set(os.listdir(stopped)) == {"model.npz", "options.json"}
    again = shlex.split(printed.splitlines()[-1])
    assert again[0] == "gibbsot"
    assert again[-1] == "--resume"

    process = start(*words, killed)
    wait_for(killed / "model.npz", process)
    process.kill()
    process.communicate(timeout=60)

    epochs = [WassersteinNMF.load(folder / "model.npz").n_iter_ for folder in (stopped, killed)]
    assert max(epochs) < 150
    seldom = ("--quiet", "--checkpoint", "30")
    assert main([*again[1:], *seldom]) == 0
    assert main([str(word) for word in (*words, killed, "--resume", *seldom)]) == 0
    assert main([str(word) for word in (*words, whole, *seldom)]) == 0
    assert capfd.readouterr().out == ""
    for folder in (stopped, killed):
        for name in ("components.npy", "memberships.npy"):
            np.testing.assert_array_equal(np.load(folder / name), np.load(whole / name))
        assert (folder / "components.png").exists()


def test_a_second_interrupt_stops_at_once(blobs, tmp_path, monkeypatch, capfd):
    def epoch(*_, **__):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(FitState, "epoch", epoch)
    out, before = tmp_path / "out", signal.getsignal(signal.SIGINT)
    assert main(["nmf", str(blobs), "--components", "2", "--out", str(out), "--json"]) == 130
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "Ctrl-C again" in printed.err
    assert not out.exists()
    assert signal.getsignal(signal.SIGINT) is before


def test_resume_with_more_epochs_keeps_the_rest(blobs, tmp_path, capfd):
    out = tmp_path / "out"
    words = ["nmf", blobs, "--out", out]
    succeeds(capfd, *words, "--components", "2", "--epochs", "2", "--seed", "4")
    report = succeeds(capfd, *words, "--epochs", "5", "--resume")
    assert (report["epochs"], report["components"], report["seed"]) == (5, 2, 4)
    before = (out / "model.npz").read_bytes()
    assert "has 2, not 3" in fails(capfd, *words, "--components", "3", "--resume")
    assert "--seed: the model in" in fails(capfd, *words, "--seed", "0", "--resume")
    assert "--power: the model in" in fails(capfd, *words, "--power", "1", "--resume")
    np.save(tmp_path / "M.npy", np.ones((48, 48)))
    assert "--cost: the model in" in fails(capfd, *words, "--cost", tmp_path / "M.npy", "--resume")
    assert "differs from the data" in fails(capfd, *words, "--limit", "9", "--resume")
    assert (out / "model.npz").read_bytes() == before
    succeeds(capfd, *words, "--components", "2", "--seed", "4", "--power", "2", "--epochs", "5", "--resume")


def test_nmf_with_a_metric_between_words(tmp_path, capfd):
    rng = np.random.default_rng(0)
    counts, vectors = rng.poisson(2, (20, 9)), rng.normal(size=(9, 3))
    np.savetxt(tmp_path / "counts.csv", counts, delimiter=",")
    np.save(tmp_path / "vectors.npy", vectors)
    words = ["nmf", tmp_path / "counts.csv", "--components", "2", "--epochs", "2", "--out"]
    metric = ["--cost", "cosine", "--vectors", tmp_path / "vectors.npy"]
    out = tmp_path / "out"
    succeeds(capfd, *words, out, *metric)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found = WassersteinNMF.load(out / "model.npz").cost_
    np.testing.assert_allclose(found.matrix(), 1 - unit @ unit.T, atol=1e-12)
    succeeds(capfd, *words, out, *metric, "--resume", "--epochs", "3")
    assert "--cost: the model in" in fails(capfd, *words, out, "--cost", "euclidean", "--resume")
    succeeds(capfd, *words, tmp_path / "columns", "--cost", "euclidean")
    found = WassersteinNMF.load(tmp_path / "columns" / "model.npz").cost_
    assert found.at(0, 1) == pytest.approx(np.linalg.norm(counts[:, 0] - counts[:, 1]))
    new = tmp_path / "new"
    assert "'cosin' is neither a file nor a metric; expected a file, or one of" in fails(
        capfd, *words, new, "--cost", "cosin"
    )
    assert "--vectors: needs a metric" in fails(capfd, *words, new, *metric[2:])
    np.save(tmp_path / "vectors.npy", vectors[:5])
    assert "--cost: --vectors: expected 9 rows" in fails(capfd, *words, new, *metric)


def test_nmf_says_that_bins_lie_on_a_line(blobs, tmp_path, capfd):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).random((5, 6)))
    for data, options, said in (
        (
            tmp_path / "rows.npy",
            (),
            f"{tmp_path / 'rows.npy'}: 5 measures of 6 bins, taken to lie on a line; --shape is",
        ),
        (tmp_path / "rows.npy", ("--cost", "line"), f"{tmp_path / 'rows.npy'}: 5 measures of 6 bins\n"),
        (tmp_path / "rows.npy", ("--shape", "2", "3"), f"{tmp_path / 'rows.npy'}: 5 images of 2 x 3 pixels\n"),
        (blobs, (), f"{blobs}: 12 images of 8 x 6 pixels\n"),
    ):
        out = tmp_path / f"{data.name} {options}"
        words = ["nmf", data, "--components", "2", "--epochs", "1", "--out", out, *options]
        assert main([str(word) for word in words]) == 0
        printed = capfd.readouterr().err
        assert printed.startswith(said)
        assert "\ncost: squared distance, in units of the longest side of the grid" in printed
        assert printed.count("\n") == 2


def test_a_folder_of_stacks_of_images(tmp_path, capfd):
    (tmp_path / "shards").mkdir()
    for name in "ab":
        np.save(tmp_path / "shards" / f"{name}.npy", np.random.default_rng(0).random((4, 5, 3)))
    words = ["nmf", tmp_path / "shards", "--components", "2", "--epochs", "1", "--out", tmp_path / "out"]
    report = succeeds(capfd, *words)
    assert (report["shape"], report["measures"]) == ([5, 3], 8)
    assert WassersteinNMF.load(tmp_path / "out" / "model.npz").cost_ == GridCost((5, 3))
    assert "a.npy: expected images of 3 x 5" in fails(capfd, *words, "--shape", "3", "5", "--out", tmp_path / "new")


def test_a_folder_of_the_name_of_a_data_set(tmp_path, monkeypatch, capfd):
    """A run that was stopped has left model.npz alone in the folder, which is not the data."""
    monkeypatch.chdir(tmp_path)
    words = ["nmf", "fives", "--limit", "10", "--components", "2", "--out", "fives"]
    succeeds(capfd, *words, "--epochs", "1")
    for name in os.listdir("fives"):
        if name != "model.npz":
            Path("fives", name).unlink()
    report = succeeds(capfd, *words, "--epochs", "2", "--resume")
    assert (report["epochs"], report["measures"]) == (2, 10)


def test_a_model_is_never_written_over_unasked(blobs, tmp_path, capfd):
    words = ["nmf", blobs, "--components", "2", "--epochs", "2", "--out", tmp_path]
    (tmp_path / "model.npz").write_text("mine")
    assert "model.npz: exists already; use --resume to resume it" in fails(capfd, *words)
    assert (tmp_path / "model.npz").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere", "--components", "2"), "nowhere: there is no such file"),
        (("empty", "--components", "2"), "empty: has no images"),
        (("mixed", "--components", "2"), "b.png: is 4 x 3, a.png is 5 x 5"),
        (("fake", "--components", "2"), "a.png: is damaged or not an image"),
        (("blobs",), "--components: expected the number of components"),
        (("blobs", "--components", "13"), "--components: expected a number from 1 to 12"),
        (("blobs", "--components", "0"), "--components: expected a number from 1 to 12"),
        (("blobs", "--components", "2", "--epochs", "0"), "max_epochs: expected at least 1"),
        (("blobs", "--components", "2", "--size", "9", "9"), "0.png: shape: expected at most (8, 6)"),
        (("blobs", "--components", "2", "--resume"), "model.npz: there is no such file, so nothing to resume"),
        (("blobs", "--components", "2", "--checkpoint", "-1"), "--checkpoint: expected seconds"),
        (("blobs", "--components", "2", "--cost", "nan.npy"), "nan.npy: expected costs of shape (48, 48)"),
        (("nan.npy", "--components", "2"), "nan.npy: has NaN weights, the first at row 0, entry 0"),
        (("mixed/a.png", "--components", "2"), "a.png: is one image; expected a folder of them"),
        (("header.npy", "--components", "2"), "header.npy: is damaged or not an array of numbers"),
        (("huge.npy", "--components", "2"), "huge.npy: is damaged or not an array of numbers"),
        (("zero.npy", "--components", "2"), "zero.npy: has no mass in any measure"),
        (("fives", "--components", "2", "--key", "x"), "--key: is for files"),
        (("fives", "--components", "2", "--label", "4"), "--label: fives has no labels"),
        (("digits", "--components", "2", "--limit", "0"), "--limit: expected at least 1"),
        (("digits", "--components", "2", "--label", "11"), "label: expected a digit"),
    ],
)
def test_bad_input_of_nmf(blobs, tmp_path, monkeypatch, capfd, words, message):
    monkeypatch.chdir(tmp_path)
    np.save("nan.npy", np.full((4, 6), np.nan))
    np.save("zero.npy", np.zeros((4, 6)))
    content = Path("zero.npy").read_bytes()
    Path("header.npy").write_bytes(content.replace(b"(4, 6)", b"(4, 6 "))
    Path("huge.npy").write_bytes(content.replace(b"(4, 6), }" + 12 * b" ", b"(4, 6000000000000), }"))
    for folder in ("empty", "mixed", "fake"):
        Path(folder).mkdir()
    Image.fromarray(np.ones((5, 5), np.uint8)).save("mixed/a.png")
    Image.fromarray(np.ones((4, 3), np.uint8)).save("mixed/b.png")
    Path("fake/a.png").write_text("not an image")
    before = sorted(os.listdir())
    assert message in fails(capfd, "nmf", *words, "--out", "new/out")
    assert sorted(os.listdir()) == before


def test_a_damaged_model_cannot_be_resumed(blobs, tmp_path, capfd):
    words = ["nmf", blobs, "--resume", "--out", tmp_path]
    (tmp_path / "model.npz").write_bytes(b"PK\x03\x04 but not really")
    assert "model.npz is damaged" in fails(capfd, *words)
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as file:
        file.writestr("format.npy", b"\x93NUMPY\1\0\4\0{'(\n")
    assert "model.npz is damaged" in fails(capfd, *words)


def test_a_full_disk_leaves_nothing_of_a_fit(blobs, tmp_path, full_disk, capfd):
    before = sorted(os.listdir(tmp_path))
    words = ["nmf", blobs, "--components", "2", "--epochs", "2", "--out", tmp_path / "new" / "out"]
    assert "components.npy: No space left on device" in fails(capfd, *words, "--quiet")
    assert sorted(os.listdir(tmp_path)) == before


def test_a_disk_that_fills_up_later_leaves_what_was_there(blobs, tmp_path, monkeypatch, capfd):
    out = tmp_path / "out"
    words = ["nmf", blobs, "--components", "2", "--epochs", "2", "--out", out]
    succeeds(capfd, *words)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    calls, fsync = iter(range(100)), os.fsync

    def nearly_full(file):
        if next(calls) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    monkeypatch.setattr(os, "fsync", nearly_full)
    again = [*words, "--epochs", "4", "--resume", "--quiet"]
    assert f"{out / 'reconstruction.png'}: No space left on device" in fails(capfd, *again)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.filterwarnings("default")
def test_a_checkpoint_on_a_full_disk_is_named(blobs, tmp_path, full_disk, capfd):
    """The fit goes on; the results do not fit on the disk either."""
    out = tmp_path / "out"
    words = ["nmf", blobs, "--components", "2", "--epochs", "2", "--checkpoint", "0", "--quiet", "--out", out]
    assert main([str(word) for word in words]) == 2
    *told, last = capfd.readouterr().err.splitlines()
    told = [line for line in told if line.startswith("warning: a checkpoint could not be written: ")]
    assert told
    for line in told:
        assert "No space left on device" in line
        assert str(out / "model.npz") in line
    assert f"{out / 'components.npy'}: No space left on device" in last


def test_a_crafted_sparse_matrix_is_refused(tmp_path, capfd):
    (tmp_path / "shards").mkdir()
    matrix = sparse.csr_array(np.ones((4, 5)))
    matrix.indices = matrix.indices + 10**7
    sparse.save_npz(tmp_path / "shards" / "a.npz", matrix)
    line = fails(capfd, "nmf", tmp_path / "shards", "--components", "2", "--out", tmp_path / "out")
    assert re.search(r"a\.npz: is not a valid sparse matrix \((column index values|indices) must be < 5\)", line)
    line = fails(capfd, "nmf", tmp_path / "shards" / "a.npz", "--components", "2", "--out", tmp_path / "out")
    assert re.search(r"a\.npz: is not a valid sparse matrix \((column index values|indices) must be < 5\)", line)
    sparse.save_npz(tmp_path / "good.npz", sparse.csr_array(np.eye(5)))
    words = ["nmf", tmp_path / "good.npz", "--components", "2", "--epochs", "2", "--out", tmp_path / "out"]
    assert succeeds(capfd, *words)["measures"] == 5


def test_an_output_that_is_a_file_or_not_writable(blobs, tmp_path, monkeypatch, capfd):
    (tmp_path / "file").write_text("mine")
    words = ["nmf", blobs, "--components", "2", "--epochs", "1", "--out"]
    assert "file: is a file; expected a folder" in fails(capfd, *words, tmp_path / "file")
    assert "Not a directory" in fails(capfd, *words, tmp_path / "file" / "below")

    def denied(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "something inside")

    monkeypatch.setattr("tempfile.TemporaryFile", denied)
    assert "out: Permission denied" in fails(capfd, *words, tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["blobs", "file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_resume_reads_as_the_run_did(blobs, tmp_path, capfd):
    out = tmp_path / "model"
    words = ("nmf", blobs, "--out", out, "--epochs")
    first = succeeds(capfd, *words, "1", "--components", "2", "--size", "4", "3", "--invert", "--cost", "l1")
    again = succeeds(capfd, *words, "2", "--resume")
    assert again["shape"] == first["shape"] == [4, 3]
    assert again["read"] == "12 images of 4 x 3 pixels, shrunk from 8 x 6"
    assert again["ground_cost"].startswith("city-block distance")
    np.testing.assert_allclose(np.load(out / "components.npy").sum(axis=1), 1, rtol=1e-5)
    message = fails(capfd, *words, "3", "--resume", "--size", "4", "4")
    assert "has 16 bins, and the model in" in message
    assert "leave out --size and --shape" in message
    assert "--spacing: the model in" in fails(capfd, *words, "3", "--resume", "--spacing", "2")
    (out / "options.json").write_text("{}")
    assert "options.json: is damaged" in fails(capfd, *words, "3", "--resume")


def test_what_was_read_is_said_where_no_epoch_is_left(blobs, tmp_path, capfd):
    words = ["nmf", str(blobs), "--out", str(tmp_path / "fit")]
    assert main([*words, "--size", "4", "4", "--components", "2", "--epochs", "2"]) == 0
    capfd.readouterr()
    assert main([*words, "--resume"]) == 0
    printed = capfd.readouterr().err
    assert "12 images of 4 x 4 pixels, shrunk from 8 x 6 out of proportion" in printed
    assert "cost: squared distance" in printed
