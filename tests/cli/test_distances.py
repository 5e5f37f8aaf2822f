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
    assert "12 images of 8 x 6 pixels" in printed.err
    assert "cost: squared distance, in units of the longest side" in printed.err
    assert "mean of pairs" in printed.out
    assert "D.npy, D.png" in printed.out.replace("\n", "")
    assert main(["distances", str(blobs), "--out", str(tmp_path / "D.npy"), "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "matrix.txt"], "--out: expected a name that ends with .npy"),
        (["--out", "matrix.npy", "--gap", "-1"], "--gap: expected a number >= 0"),
        (["--out", "matrix.npy", "--cost", "cosin"], "--cost: 'cosin' is neither a file nor a metric"),
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


def test_names_of_files_stay(blobs, tmp_path, capfd):
    succeeds(capfd, "distances", blobs, "--out", tmp_path / "D.npz", "--limit", "3")
    with np.load(tmp_path / "D.npz") as found:
        assert found["names"].tolist() == ["0.png", "1.png", "2.png"]
        D = found["distances"]
    succeeds(capfd, "distances", blobs, "--out", tmp_path / "D.csv", "--limit", "3")
    lines = [line.split(",") for line in (tmp_path / "D.csv").read_text().splitlines()]
    assert lines[0] == ["", "0.png", "1.png", "2.png"]
    assert [line[0] for line in lines[1:]] == lines[0][1:]
    np.testing.assert_array_equal(np.array([line[1:] for line in lines[1:]], float), D)


def test_a_column_of_names(tmp_path, capfd):
    (tmp_path / "a.csv").write_text("city,morning,noon,night\nBonn,1,2,3\nKiel,3,2,1\nUlm,1,1,1\n")
    report = succeeds(capfd, "distances", tmp_path / "a.csv", "--out", tmp_path / "D.npz")
    assert np.load(tmp_path / "D.npz")["names"].tolist() == ["Bonn", "Kiel", "Ulm"]
    assert report["read"].startswith("3 measures of 3 bins, taken to lie on a line")
    (tmp_path / "a.csv").write_text("morning,noon\n1,2\n3,low\n")
    assert "line 3 has 'low', which is not a number in column 'noon'" in fails(
        capfd, "distances", tmp_path / "a.csv", "--out", tmp_path / "D.npz"
    )


def test_the_header_of_a_table(tmp_path, capfd):
    """Three columns 0, 1, 2 may be a measure; --header decides."""
    (tmp_path / "a.csv").write_text("0,1,2\n1,2,3\n3,2,1\n")
    words = ("distances", tmp_path / "a.csv", "--out", tmp_path / "D.npy")
    assert succeeds(capfd, *words, "--header")["measures"] == 2
    assert succeeds(capfd, *words, "--no-header")["measures"] == 3


@pytest.mark.parametrize("corner", ["name", ""])
def test_names_beside_the_columns_of_pandas(tmp_path, capfd, corner):
    """``to_csv`` of a table with an index of names: the first line has the names of columns, 0, 1, ..."""
    (tmp_path / "a.csv").write_text(f"{corner},0,1,2,3\nBonn,1,2,3,4\nKiel,3,2,1,0\n")
    words = ("distances", tmp_path / "a.csv", "--out", tmp_path / "D.npz")
    assert succeeds(capfd, *words)["measures"] == 2
    assert np.load(tmp_path / "D.npz")["names"].tolist() == ["Bonn", "Kiel"]
    if corner:
        assert succeeds(capfd, *words, "--no-header")["measures"] == 3


def test_points_are_no_measures(tmp_path, capfd):
    (tmp_path / "a.csv").write_text("x,y\n0,1\n1,2\n")
    message = fails(capfd, "distances", tmp_path / "a.csv", "--out", tmp_path / "D.npy")
    assert "has the columns x, y, so its rows are points; expected one measure per row" in message


@pytest.mark.parametrize(("name", "metric"), [("euclidean", "euclidean"), ("l1", "cityblock"), ("sqeuclidean", None)])
def test_named_costs_between_pixels(blobs, tmp_path, capfd, name, metric):
    succeeds(capfd, "distances", blobs, "--out", tmp_path / "D.npy", "--cost", name, "--spacing", "2,0.5")
    X, places = read(blobs), np.indices((8, 6)).reshape(2, -1).T * [2, 0.5]
    M = ot.dist(places, metric=metric or "sqeuclidean")
    np.testing.assert_allclose(np.load(tmp_path / "D.npy")[0, 1], ot.emd2(X[0], X[1], M), rtol=1e-9)
