from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import sparse

from gibbsot import GridCost, experiments, solve
from gibbsot.cli import main
from gibbsot.core import native
from gibbsot.experiments.outcome import Claim, Outcome
from gibbsot.models.nmf import WassersteinNMF

pytest.importorskip("typer")
Image = pytest.importorskip("PIL.Image")

SCRIPT = Path(sysconfig.get_path("scripts"), "gibbsot")
NMF_FILES = {"components.npy", "memberships.npy", "model.npz", "report.json"}
PICTURES = {"components.png", "reconstruction.png", "convergence.png"}

installed = pytest.mark.skipif(not SCRIPT.exists(), reason="the script is not installed")


def command(*words):
    return subprocess.run([SCRIPT, *map(str, words)], capture_output=True, text=True, check=False, timeout=120)


def fails(capfd, *words):
    """Run a command that has to fail with one line; return the line."""
    assert main([str(word) for word in words]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    return printed.err


def succeeds(capfd, *words):
    """Run a command with --json and return what it says."""
    assert main([str(word) for word in (*words, "--json")]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    return json.loads(printed.out)


def check_picture(path):
    picture = np.asarray(Image.open(path).convert("RGB"), float)
    assert min(picture.shape[:2]) > 100
    assert picture.std() > 5


@pytest.fixture
def blobs(tmp_path):
    """A folder of twelve images 8 x 6 with two blobs each."""
    y, x = np.mgrid[:8, :6]
    places = np.random.default_rng(0).uniform(1, 5, (12, 2, 2))
    (tmp_path / "blobs").mkdir()
    for k, pair in enumerate(places):
        image = sum(np.exp(-((y - a) ** 2 + (x - b) ** 2) / 2) for a, b in pair)
        Image.fromarray(np.round(120 * image).astype(np.uint8)).save(tmp_path / "blobs" / f"{k}.png")
    return tmp_path / "blobs"


@pytest.fixture
def pair(tmp_path):
    """Two files of weights on a line."""
    weights = np.random.default_rng(0).random((2, 20))
    for name, x in zip("pq", weights, strict=True):
        np.save(tmp_path / f"{name}.npy", x)
    return tmp_path / "p.npy", tmp_path / "q.npy"


@pytest.fixture
def full_disk(monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)


# --- ot


@installed
def test_ot_through_the_script(pair, tmp_path):
    done = command("ot", *pair, "--exact", "--plan", tmp_path / "plan.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    p, q = (np.load(path) for path in pair)
    expected = solve(p / p.sum(), q / q.sum(), GridCost(20), exact=True)
    report = json.loads(done.stdout)
    assert report["value"] == pytest.approx(expected.value)
    assert report["status"] == "optimal"
    plan = np.loadtxt(tmp_path / "plan.csv", delimiter=",", skiprows=1)
    assert plan[:, 2].sum() == pytest.approx(1)


def test_ot_of_images_has_bounds_a_plan_and_a_picture(blobs, tmp_path, capfd):
    plan, picture = tmp_path / "plan.npz", tmp_path / "moves.png"
    words = ["ot", blobs / "0.png", blobs / "1.png", "--plan", plan, "--plan-picture", picture, "--sweeps", "500"]
    report = succeeds(capfd, *words)
    assert report["lower_bound"] <= report["upper_bound"]
    assert report["points"] == [48, 48]
    p, q = (np.asarray(Image.open(blobs / f"{k}.png"), float).ravel() for k in (0, 1))
    Z = sparse.load_npz(plan)
    np.testing.assert_allclose(Z.sum(axis=1), p / p.sum(), atol=1e-9)
    np.testing.assert_allclose(Z.sum(axis=0), q / q.sum(), atol=1e-9)
    check_picture(picture)


def test_ot_of_points(tmp_path, capfd):
    rng = np.random.default_rng(0)
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    X = rng.random((6, 3))
    np.savetxt(a, X, delimiter=",", header="x,y,w", comments="")
    np.savetxt(b, X + np.array([3, 0, 0]), delimiter=",")
    report = succeeds(capfd, "ot", a, b, "--points", "--weighted", "--exact", "--plan-picture", tmp_path / "a.png")
    assert report["value"] == pytest.approx(9)  # all move by three
    check_picture(tmp_path / "a.png")
    report = succeeds(capfd, "ot", a, b, "--points", "--power", "1", "--exact")
    assert report["value"] == pytest.approx(3)


def test_ot_with_a_matrix_of_costs(pair, tmp_path, capfd):
    M = np.ones((20, 20))
    np.save(tmp_path / "M.npy", M)
    words = ["ot", *pair, "--cost", tmp_path / "M.npy", "--exact"]
    assert succeeds(capfd, *words, "--plan-picture", tmp_path / "a.png")["value"] == pytest.approx(1)
    check_picture(tmp_path / "a.png")


def test_ot_prints_a_table_or_just_the_number(pair, capfd):
    assert main(["ot", *map(str, pair), "--sweeps", "200"]) == 0
    printed = capfd.readouterr().out
    assert "at least" in printed
    assert "at most" in printed
    assert main(["ot", *map(str, pair), "--sweeps", "200", "-q"]) == 0
    assert float(capfd.readouterr().out) > 0


def test_the_seed_decides(pair, capfd):
    values = [succeeds(capfd, "ot", *pair, "--sweeps", "50", "--seed", seed)["value"] for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("p.npy",), "Missing argument 'B'"),
        (("p.npy", "none.npy"), "none.npy: there is no such file"),
        (("p.npy", "short.npy"), "short.npy: is 7, p.npy is 20"),
        (("p.npy", "nan.npy"), "nan.npy: has a weight that is NaN"),
        (("p.npy", "fake.png"), "fake.png: is damaged or no image"),
        (("p.npy", "broken.npz"), "broken.npz: is damaged"),
        (("p.npy", "q.npy", "--cost", "short.npy"), "short.npy: expected costs of shape (20, 20), got (7,)"),
        (("p.npy", "q.npy", "--power", "0.5"), "power: expected a number of at least 1"),
        (("p.npy", "q.npy", "--points", "--power", "3"), "--power: expected 1 or 2"),
        (("p.npy", "q.npy", "--weighted"), "--weighted: goes with --points"),
        (("p.npy", "flat.npy", "--points"), "flat.npy: has points with 2 coordinates; expected 1"),
        (("p.npy", "q.npy", "--sweeps", "0"), "n_sweeps: expected at least 1"),
        (("p.npy", "q.npy", "--sweeps", "many"), "'--sweeps'"),
        (("p.npy", "q.npy", "--jobs", "0"), "n_jobs: 0 has no meaning"),
        (("p.npy", "q.npy", "--seed", "-1"), "--seed: expected"),
        (("p.npy", "q.npy", "--size", "2", "2"), "expected an image to shrink"),
        (("p.npy", "q.npy", "--plan", "plan.doc"), "plan.doc: expected a name that ends in .npz or .csv"),
        (("p.npy", "q.npy", "--plan", "nowhere/plan.csv"), "plan.csv: the folder to write it to is not there"),
        (("p.npy", "q.npy", "--plan-picture", "."), ".: expected a name that ends in .png"),
        (("p.npy", "q.npy", "--unknown"), "--unknown"),
        ((".", "q.npy"), ".: is a folder; expected a file"),
    ],
)
def test_bad_input_of_ot(pair, tmp_path, monkeypatch, capfd, words, message):
    monkeypatch.chdir(tmp_path)
    np.save("short.npy", np.ones(7))
    np.save("nan.npy", np.full(20, np.nan))
    np.save("flat.npy", np.ones((3, 2)))
    for name in ("fake.png", "broken.npz"):
        Path(name).write_bytes(b"PK\x03\x04 but not really")
    before = sorted(os.listdir())
    assert message in fails(capfd, "ot", *words)
    assert sorted(os.listdir()) == before


def test_a_full_disk_leaves_no_part_of_a_plan(pair, tmp_path, full_disk, capfd):
    before = sorted(os.listdir(tmp_path))
    line = fails(capfd, "ot", *pair, "--sweeps", "50", "--plan", tmp_path / "plan.csv")
    assert "plan.csv: No space left on device" in line
    assert sorted(os.listdir(tmp_path)) == before


# --- nmf


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
    assert set(os.listdir(tmp_path / "line")) == NMF_FILES | {"convergence.png"}
    report = succeeds(capfd, *words, tmp_path / "images", "--shape", "3", "4", "--size", "2", "2", "--limit", "5")
    assert (report["measures"], report["shape"]) == (5, [2, 2])


def test_nmf_of_named_data(tmp_path, capfd):
    words = ["nmf", "digits", "--label", "5", "--limit", "8", "--size", "4", "4", "--out", tmp_path / "out"]
    report = succeeds(capfd, *words, "--components", "2", "--epochs", "2")
    assert (report["measures"], report["shape"]) == (8, [4, 4])


def start(*words):
    return subprocess.Popen([SCRIPT, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path, process):
    for _ in range(1200):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"{path} did not come")


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
    assert set(os.listdir(stopped)) == {"model.npz"}
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

    monkeypatch.setattr(WassersteinNMF, "_epoch", epoch)
    out = tmp_path / "out"
    assert main(["nmf", str(blobs), "--components", "2", "--out", str(out), "--json"]) == 130
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "Ctrl-C again" in printed.err
    assert not out.exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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


def test_a_model_is_never_written_over_unasked(blobs, tmp_path, capfd):
    words = ["nmf", blobs, "--components", "2", "--epochs", "2", "--out", tmp_path]
    (tmp_path / "model.npz").write_text("mine")
    assert "model.npz: is there already; --resume goes on" in fails(capfd, *words)
    assert (tmp_path / "model.npz").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere", "--components", "2"), "nowhere: there is no such file"),
        (("empty", "--components", "2"), "empty: has no images"),
        (("mixed", "--components", "2"), "b.png: is 4 x 3, a.png is 5 x 5"),
        (("fake", "--components", "2"), "a.png: is damaged or no image"),
        (("blobs",), "--components: expected how many"),
        (("blobs", "--components", "13"), "--components: expected a number from 1 to 12"),
        (("blobs", "--components", "0"), "--components: expected a number from 1 to 12"),
        (("blobs", "--components", "2", "--epochs", "0"), "max_epochs: expected at least 1"),
        (("blobs", "--components", "2", "--size", "9", "9"), "0.png: shape: expected at most (8, 6)"),
        (("blobs", "--components", "2", "--resume"), "model.npz: there is no such file, so nothing to resume"),
        (("blobs", "--components", "2", "--checkpoint", "-1"), "--checkpoint: expected seconds"),
        (("blobs", "--components", "2", "--cost", "nan.npy"), "nan.npy: expected costs of shape (48, 48)"),
        (("nan.npy", "--components", "2"), "nan.npy: has a weight that is NaN, at (0, 0)"),
        (("mixed/a.png", "--components", "2"), "a.png: is one image; expected a folder of them"),
        (("header.npy", "--components", "2"), "header.npy: is damaged or no array of numbers"),
        (("huge.npy", "--components", "2"), "huge.npy: is damaged or no array of numbers"),
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
    assert "components.npy: No space left on device" in fails(capfd, *words)
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
    fails(capfd, *words, "--epochs", "4", "--resume")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


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


def test_missing_packages(blobs, tmp_path, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        line = fails(capfd, "nmf", blobs, "--components", "2", "--out", tmp_path / "out")
        assert "pip install 'gibbsot[plots]'" in line
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "typer.main", None)
        assert "pip install 'gibbsot[cli]'" in fails(capfd, "info")


@pytest.mark.filterwarnings("default")
def test_warnings_are_one_line(tmp_path, capfd):
    rows = np.random.default_rng(0).random((9, 6))
    rows[3] = 0
    np.save(tmp_path / "rows.npy", rows)
    words = ["nmf", tmp_path / "rows.npy", "--components", "2", "--epochs", "1", "--out", tmp_path / "out", "--json"]
    assert main([str(word) for word in words]) == 0
    printed = capfd.readouterr()
    said = json.loads(printed.out)
    assert (said["measures"], said["sample"]) == (9, 8)
    assert printed.err == "warning: X: 1 rows have no mass, the first is row 3; they are left out\n"


# --- reproduce


@pytest.fixture
def report(monkeypatch):
    """A report in the place of the true one, which takes minutes."""
    module = ModuleType("gibbsot.experiments.report")
    module.NAMES = ("figure1", "table")
    module.calls = []

    def reproduce(names, out, *, quick, seed, n_jobs, verbose):
        module.calls.append((list(names), quick, seed, n_jobs, verbose))
        (out / "report.html").write_text("a report")
        claims = [Claim("is faster [twice]", "1.9 times", True), Claim("is nicer", "cannot say", None)]
        return [Outcome(name, "A title", "See.", claims, [], []) for name in names]

    module.reproduce = reproduce
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(experiments, "report", module, raising=False)
    return module


def test_reproduce_prints_what_holds(report, tmp_path, capfd):
    assert main(["reproduce", "--out", str(tmp_path / "out"), "--quick"]) == 0
    printed = capfd.readouterr().out
    for word in ("paper says", "we measured", "holds?", "figure1", "table", "is faster [twice]", "yes", "open"):
        assert word in printed
    assert (tmp_path / "out" / "report.html").exists()
    found = succeeds(capfd, "reproduce", "table", "--out", tmp_path / "out", "--seed", "3", "--jobs", "1")
    assert found["experiments"][0]["claims"][0]["holds"] is True
    assert report.calls == [(["figure1", "table"], True, 0, -1, True), (["table"], False, 3, 1, True)]


def test_reproduce_refuses_unknown_names(report, tmp_path, capfd):
    line = fails(capfd, "reproduce", "figure9", "--out", tmp_path / "out")
    assert "figure9: is no experiment; expected all, figure1, table" in line
    assert not (tmp_path / "out").exists()


def test_reproduce_interrupted(report, tmp_path, capfd, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    out = tmp_path / "an out"
    with monkeypatch.context() as patch:
        patch.setattr(report, "reproduce", interrupted)
        assert main(["reproduce", "--out", str(out)]) == 130
        assert capfd.readouterr().err == "interrupted before anything was done\n"
        assert not out.exists()
    words = ["reproduce", "table", "--out", str(out)]
    assert main(words) == 0
    capfd.readouterr()
    monkeypatch.setattr(report, "reproduce", interrupted)
    assert main([*words, "--json"]) == 130
    printed = capfd.readouterr()
    assert "what is done is in" in printed.err
    again = shlex.split(printed.err.splitlines()[-1])
    assert again == ["gibbsot", *words, "--json"] == shlex.split(json.loads(printed.out)["resume"])


@installed
@pytest.mark.skipif(os.name == "nt", reason="sends signals")
def test_reproduce_interrupted_and_repeated_through_the_script(tmp_path):
    out = tmp_path / "out"
    words = ["reproduce", "figure1", "figure2", "--quick", "--out", out, "--json"]
    process = start(*words)
    wait_for(out / "figure1.outcome.json", process)
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(printed)["status"] == "interrupted"
    assert "Traceback" not in said
    first = (out / "figure1.outcome.json").stat().st_mtime_ns
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert [each["name"] for each in json.loads(done.stdout)["experiments"]] == ["figure1", "figure2"]
    assert (out / "figure1.outcome.json").stat().st_mtime_ns == first
    assert "figure2" in (out / "report.html").read_text("utf-8")


@pytest.mark.parametrize("place", ["typer.main", "gibbsot.experiments.report"])
def test_interrupted_while_modules_load(tmp_path, monkeypatch, capfd, place):
    class Interrupting:
        def find_spec(self, name, *_):
            if name == place:
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, place, raising=False)
    if place.startswith("gibbsot"):
        monkeypatch.delattr(experiments, "report", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert main(["reproduce", "--out", str(tmp_path / "out")]) == 130
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""


# --- info and help


@installed
def test_info_through_the_script():
    done = command("info", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["kernel"] in native.available()


def test_info_prints_a_table(capfd):
    assert main(["info", "--jobs", "3"]) == 0
    printed = capfd.readouterr().out
    assert native.name() in printed
    assert "3" in printed
    assert main(["info", "-q"]) == 0
    assert main(["--version"]) == 0
    first, second = capfd.readouterr().out.split()
    assert first == second


@pytest.mark.parametrize("name", ["ot", "nmf", "reproduce", "info"])
def test_help_has_an_example(name, capfd):
    assert main([name, "--help"]) == 0
    printed = capfd.readouterr().out
    assert f"gibbsot {name} " in printed.partition("Example")[2]
    for option in ("--seed", "--jobs", "--quiet", "--json"):
        assert option in printed


def test_without_words_there_is_help(capfd):
    assert main([]) == 0
    assert "reproduce" in capfd.readouterr().out
    assert "No such command 'otter'" in fails(capfd, "otter")
