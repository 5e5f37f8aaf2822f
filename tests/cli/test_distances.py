"""``gibbsot distances``."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import ot
import pytest
from scipy import sparse

from cli_runs import Image, check_picture, fails, succeeds
from gibbsot import GridCost, distances
from gibbsot.cli import main


def read(folder):
    images = [np.asarray(Image.open(folder / name), float) for name in (f"{k}.png" for k in range(12))]
    return np.stack([image.ravel() / image.sum() for image in images])


def test_a_folder_of_images(blobs, tmp_path, capfd):
    out = tmp_path / "a" / "matrix.npy"
    report = succeeds(capfd, "distances", blobs, "--out", out)
    X, M = read(blobs), GridCost((8, 6)).matrix()
    D = np.load(out)
    np.testing.assert_allclose(D, [[ot.emd2(p, q, M) for q in X] for p in X], atol=1e-9)
    assert report["files"] == [str(out), str(tmp_path / "a" / "matrix.png")]
    assert report["measures"] == 12
    np.testing.assert_allclose(report["largest"], D.max())
    check_picture(tmp_path / "a" / "matrix.png")


def test_a_folder_of_matrices(tmp_path, capfd):
    X, shards = np.random.default_rng(0).random((9, 12)), tmp_path / "shards"
    shards.mkdir()
    np.save(shards / "2.npy", X[:4])
    sparse.save_npz(shards / "10.npz", sparse.csr_array(X[4:8]))  # numbers in names count
    np.savetxt(shards / "11.csv", X[8:], delimiter=",")
    words = ["--cost", "line", "--out"]
    assert succeeds(capfd, "distances", shards, *words, tmp_path / "a.npy")["measures"] == 9
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), distances(X, cost="line"), rtol=1e-12)
    check_picture(tmp_path / "a.png")
    for option in (["--limit", "5"], ["--label", "0"], ["--size", "2", "2"], ["--invert"], ["--key", "x"]):
        message = f"{option[0]}: is for a single file; {shards} is a folder of matrices"
        assert message in fails(capfd, "distances", shards, *option, *words, tmp_path / "d.npy")
    np.save(shards / "12.npy", np.ones((2, 5, 4)))
    message = "12.npy: has measures of 5 x 4; expected 12 as in 2.npy"
    assert message in fails(capfd, "distances", shards, "--out", tmp_path / "d.npy")


def test_results_in_the_folder_of_the_data(blobs, tmp_path, capfd, monkeypatch):
    before = sorted(blobs.iterdir())
    message = "is in the folder of the data, and the next run would read it as data"
    assert f"--out: {blobs / 'D.npy'} {message}" in fails(capfd, "distances", blobs, "--out", blobs / "D.npy")
    words = ["--out", tmp_path / "D.npy", "--picture", blobs / "new" / "D.png"]
    assert f"--picture: {blobs / 'new' / 'D.png'} {message}" in fails(capfd, "distances", blobs, *words)
    monkeypatch.chdir(blobs)
    for command in ("geodesics", "nmf"):
        assert f"--out: out {message}" in fails(capfd, command, ".", "--components", "2", "--out", "out")
    assert sorted(blobs.iterdir()) == before


def test_roots_and_limits(blobs, tmp_path, capfd):
    words = ["distances", blobs, "--limit", "5", "--picture", tmp_path / "p.png"]
    succeeds(capfd, *words, "--out", tmp_path / "a.npy")
    succeeds(capfd, *words, "--root", "--out", tmp_path / "b.npy")
    np.testing.assert_allclose(np.load(tmp_path / "b.npy") ** 2, np.load(tmp_path / "a.npy"), atol=1e-12)
    check_picture(tmp_path / "p.png")


def test_histograms_with_a_metric(tmp_path, capfd):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "X.npy", rng.random((6, 5)))
    np.save(tmp_path / "V.npy", rng.normal(size=(5, 3)))
    words = ["distances", tmp_path / "X.npy", "--cost", "cosine", "--vectors", tmp_path / "V.npy"]
    assert succeeds(capfd, *words, "--out", tmp_path / "D.npy")["measures"] == 6
    check_picture(tmp_path / "D.png")


def test_what_is_printed(blobs, tmp_path, capfd):
    assert main(["distances", str(blobs), "--out", str(tmp_path / "D.npy")]) == 0
    printed = capfd.readouterr()
    assert "12 measures of 48 points" in printed.err
    assert "mean of pairs" in printed.out
    assert "D.npy, D.png" in printed.out.replace("\n", "")
    assert main(["distances", str(blobs), "--out", str(tmp_path / "D.npy"), "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "matrix.csv"], "--out: expected a name that ends with .npy"),
        (["--out", "matrix.npy", "--gap", "-1"], "--gap: expected a number >= 0"),
        (["--out", "matrix.npy", "--cost", "cosin"], "--cost: 'cosin' is no file and no metric"),
        (["--out", "matrix.npy", "--limit", "0"], "limit"),
    ],
)
def test_bad_arguments(words, message, blobs, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capfd, "distances", blobs, *words)
    assert not (tmp_path / "matrix.npy").exists()


def test_measures_without_mass(tmp_path, capfd):
    np.save(tmp_path / "X.npy", np.eye(3)[[0, 1]] * [[1], [0]])
    assert "row 1 has no mass" in fails(capfd, "distances", tmp_path / "X.npy", "--out", tmp_path / "D.npy")


def test_a_full_disk(blobs, tmp_path, capfd, full_disk):
    assert "No space left" in fails(capfd, "distances", blobs, "--out", tmp_path / "D.npy", "--quiet")
    assert not (tmp_path / "D.npy").exists()


_KILLED = """
import os, signal, sys
from gibbsot.cli import main
from gibbsot.models.geometry import pairs as _pairs, sets as _sets
_pairs._SECONDS, _sets._CHUNK_PAIRS = 0.0, 8
solve, calls = _sets.optima, []
def optima(*args, **options):
    calls.append(1)
    if len(calls) == 4:
        os.kill(os.getpid(), signal.{})
    return solve(*args, **options)
_sets.optima = optima
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_a_run_that_is_killed_continues(name, blobs, tmp_path, capfd):
    out, partial = tmp_path / "D.npy", tmp_path / "D.partial.npz"
    words = ["distances", str(blobs), "--out", str(out), "--jobs", "1"]
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)" + _KILLED.format(name)
    child = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=False, timeout=120)
    assert child.returncode == (130 if name == "SIGINT" else -signal.SIGKILL)
    assert not out.exists()
    with np.load(partial) as file:
        assert 8 <= len(file["values"]) <= 24
    succeeds(capfd, *words)
    assert not partial.exists()
    succeeds(capfd, "distances", blobs, "--out", tmp_path / "again.npy")
    np.testing.assert_array_equal(np.load(out), np.load(tmp_path / "again.npy"))
