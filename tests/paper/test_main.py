"""``python -m paper``."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

import cli_runs
import paper
from cli_runs import wait_for
from paper.__main__ import main
from paper.outcome import Claim, Outcome

fails = partial(cli_runs.fails, entry=main)

filelock = pytest.importorskip("filelock")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def report(monkeypatch):
    """A report instead of the real one, which takes minutes."""
    module = ModuleType("paper.report")
    module.NAMES = ("figure1", "table")
    module.calls = []

    def reproduce(names, out, *, quick, seed, n_jobs, verbose):
        module.calls.append((list(names), quick, seed, n_jobs, verbose))
        (out / "report.html").write_text("a report")
        claims = [Claim("is faster [twice]", "1.9 times", True), Claim("is nicer", "cannot say", None)]
        return [Outcome(name, "A title", "See.", claims, [], []) for name in names]

    module.reproduce = reproduce
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(paper, "report", module, raising=False)
    return module


def test_what_holds_is_printed(report, tmp_path, capfd):
    assert main(["--out", str(tmp_path / "out"), "--quick"]) == 0
    printed = capfd.readouterr().out
    for word in ("paper says", "we measured", "holds?", "figure1", "table", "is faster [twice]", "yes", "open"):
        assert word in printed
    assert (tmp_path / "out" / "report.html").exists()
    assert main(["table", "--out", str(tmp_path / "out"), "table", "--seed", "3", "--jobs", "1", "--json"]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out)["experiments"][0]["claims"][0]["holds"] is True
    assert main(["--out", str(tmp_path / "out"), "--quiet"]) == 0
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""
    assert report.calls == [
        (["figure1", "table"], True, 0, -1, True),
        (["table"], False, 3, 1, True),
        (["figure1", "table"], False, 0, -1, False),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["figure9"], "figure9: is not an experiment; expected all, figure1, figure2"),
        (["--seed", "-1"], "--seed: expected a number from 0 to 2**32 - 1, got -1"),
        (["--jobs", "0"], "n_jobs: "),
    ],
)
def test_bad_words_are_refused(tmp_path, capfd, words, message):
    assert message in fails(capfd, *words, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_a_folder(capfd):
    with pytest.raises(SystemExit) as left:
        main(["--quick"])
    assert left.value.code == 2
    assert "--out" in capfd.readouterr().err


def test_missing_packages_are_named(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "ot", None)
    line = fails(capfd, "figure2", "--quick", "--quiet", "--out", tmp_path / "out")
    assert "pip install 'gibbsot[pot]'" in line
    assert "`make paper`" in line


def test_a_file_in_place_of_the_folder(report, tmp_path, capfd):
    (tmp_path / "out").write_text("a file")
    assert fails(capfd, "--out", tmp_path / "out") == f"error: {tmp_path / 'out'}: is a file; expected a folder\n"


def test_a_folder_in_use_is_refused(report, tmp_path, capfd):
    (tmp_path / "out").mkdir()
    with filelock.FileLock(tmp_path / "out" / ".lock"):
        assert "another run" in fails(capfd, "--out", tmp_path / "out")
    assert report.calls == []


def test_interrupted(report, tmp_path, capfd, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    out = tmp_path / "an out"
    with monkeypatch.context() as patch:
        patch.setattr(report, "reproduce", interrupted)
        assert main(["--out", str(out)]) == 130
        assert capfd.readouterr().err == "interrupted before the first experiment was finished\n"
        assert not out.exists()
    words = ["table", "--out", str(out)]
    assert main(words) == 0
    capfd.readouterr()
    monkeypatch.setattr(report, "reproduce", interrupted)
    assert main([*words, "--json"]) == 130
    printed = capfd.readouterr()
    assert "the finished experiments are in" in printed.err
    again = shlex.split(printed.err.splitlines()[-1])
    assert again == ["python", "-m", "paper", *words, "--json"] == shlex.split(json.loads(printed.out)["resume"])


def test_interrupted_while_modules_load(tmp_path, monkeypatch, capfd):
    class Interrupting:
        def find_spec(self, name, *_):
            if name == "paper.report":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "paper.report", raising=False)
    monkeypatch.delattr(paper, "report", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert main(["--out", str(tmp_path / "out")]) == 130
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends signals")
def test_interrupted_and_repeated_from_the_root_of_a_clone(tmp_path):
    out = tmp_path / "out"
    words = [sys.executable, "-m", "paper", "figure1", "figure2", "--quick", "--out", str(out), "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    wait_for(out / "figure1.outcome.json", process)
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=60)
    # What a shell reports: `python -m` ends by the signal itself, 128 + 2, if it came during an exec, such as that of a
    # named tuple in a module that was being imported, also if the KeyboardInterrupt was caught.
    assert process.returncode in (130, -signal.SIGINT)
    assert json.loads(printed)["status"] == "interrupted"
    assert "Traceback" not in said
    first = (out / "figure1.outcome.json").stat().st_mtime_ns
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert [each["name"] for each in json.loads(done.stdout)["experiments"]] == ["figure1", "figure2"]
    assert (out / "figure1.outcome.json").stat().st_mtime_ns == first
    assert "figure2" in (out / "report.html").read_text("utf-8")
