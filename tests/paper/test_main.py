"""``gibbsot reproduce``."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from types import ModuleType

import pytest

from cli_runs import command, fails, installed, start, succeeds, wait_for
from gibbsot import experiments
from gibbsot.cli import main
from gibbsot.experiments.outcome import Claim, Outcome


@pytest.fixture
def report(monkeypatch):
    """A report instead of the real one, which takes minutes."""
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
    assert "figure9: is not an experiment; expected all, figure1, table" in line
    assert not (tmp_path / "out").exists()


def test_reproduce_interrupted(report, tmp_path, capfd, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    out = tmp_path / "an out"
    with monkeypatch.context() as patch:
        patch.setattr(report, "reproduce", interrupted)
        assert main(["reproduce", "--out", str(out)]) == 130
        assert capfd.readouterr().err == "interrupted before the first experiment was finished\n"
        assert not out.exists()
    words = ["reproduce", "table", "--out", str(out)]
    assert main(words) == 0
    capfd.readouterr()
    monkeypatch.setattr(report, "reproduce", interrupted)
    assert main([*words, "--json"]) == 130
    printed = capfd.readouterr()
    assert "the finished experiments are in" in printed.err
    again = shlex.split(printed.err.splitlines()[-1])
    assert again == ["gibbsot", *words, "--json"] == shlex.split(json.loads(printed.out)["resume"])


@pytest.mark.slow
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
