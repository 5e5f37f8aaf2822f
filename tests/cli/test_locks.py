"""Two runs with one folder of results, and what killed runs have left."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from cli_runs import fails, installed, start, succeeds, wait_for
from gibbsot.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

filelock = pytest.importorskip("filelock")


@pytest.fixture
def words(tmp_path):
    X = np.random.default_rng(0).random((8, 6))
    np.save(tmp_path / "X.npy", X)
    return [
        "nmf",
        tmp_path / "X.npy",
        "--components",
        "2",
        "--epochs",
        "3",
        "--shape",
        "2",
        "3",
        "--out",
        tmp_path / "out",
    ]


@pytest.mark.parametrize("again", [(), ("--resume",)], ids=["a new run", "a resumed one"])
def test_a_folder_in_use_is_refused(words, tmp_path, capfd, again):
    out = tmp_path / "out"
    if again:
        succeeds(capfd, *words)
    before = {path.name: path.read_bytes() for path in out.iterdir()} if again else {}
    out.mkdir(exist_ok=True)
    with filelock.FileLock(out / ".lock"):
        if sys.platform != "win32":
            (out / ".lock").write_text("process 7 on host")
        line = fails(capfd, *words, *again)
        who = "" if sys.platform == "win32" else " (process 7 on host)"
        assert f"--out: another run{who} is writing to {out}; wait until it ends, or choose another --out" in line
    (out / ".lock").unlink(missing_ok=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    succeeds(capfd, *words, *again)
    assert not (out / ".lock").exists()


@pytest.mark.slow
@installed
@pytest.mark.skipif(os.name == "nt", reason="kills a process by a signal")
def test_two_runs_at_once_and_a_kill(words, tmp_path, capfd):
    """The second one ends with a message; after a kill there is no lock, and temporaries are removed."""
    out = tmp_path / "out"
    process = start(*words, "--epochs", "100000", "--checkpoint", "0")
    wait_for(out / "model.npz", process)
    assert f"another run (process {process.pid} on " in fails(capfd, *words, "--resume")
    process.kill()
    process.communicate(timeout=60)
    (out / ".model.npz.0123abcd").write_bytes(b"incomplete")
    (out / ".mine").touch()
    succeeds(capfd, *words, "--resume")
    assert sorted(name for name in os.listdir(out) if name.startswith(".")) == [".mine"]


def test_a_model_that_came_meanwhile_is_not_written_over(words, tmp_path, monkeypatch, capfd):
    from gibbsot.cli import _common

    usual = _common.locked_folder

    def locked(out):
        out.mkdir()
        (out / "model.npz").write_bytes(b"of another run")
        return usual(out)

    monkeypatch.setattr(_common, "locked_folder", locked)
    assert "exists already" in fails(capfd, *words)
    assert (tmp_path / "out" / "model.npz").read_bytes() == b"of another run"


@pytest.mark.filterwarnings("default")
def test_a_file_system_without_locks_is_a_warning(words, monkeypatch, capfd):
    def acquire(self, *_, **__):
        raise NotImplementedError("flock")

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    assert main([str(word) for word in (*words, "--quiet")]) == 0
    assert "its file system has no locks" in capfd.readouterr().err
