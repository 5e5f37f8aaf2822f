"""The entry point: help, errors, warnings and interrupts of all subcommands."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from cli_runs import fails
from gibbsot.cli import main
from gibbsot.cli.main import _warn


def test_missing_packages(blobs, tmp_path, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        line = fails(capfd, "nmf", blobs, "--components", "2", "--out", tmp_path / "out")
        assert "pip install 'gibbsot[plots]'" in line
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "typer.main", None)
        assert "pip install 'gibbsot[cli]'" in fails(capfd, "info")


@pytest.mark.filterwarnings("default", "ignore::DeprecationWarning")  # Python shows users none of other modules
def test_warnings_are_one_line(tmp_path, capfd):
    rows = np.random.default_rng(0).random((9, 6))
    rows[3] = 0
    np.save(tmp_path / "rows.npy", rows)
    words = ["nmf", tmp_path / "rows.npy", "--components", "2", "--epochs", "1", "--out", tmp_path / "out", "--json"]
    assert main([str(word) for word in words]) == 0
    printed = capfd.readouterr()
    said = json.loads(printed.out)
    assert (said["measures"], said["sample"]) == (9, 8)
    empty, epochs = printed.err.splitlines()
    assert empty == "warning: X: 1 rows have no mass, the first is row 3; they are left out"
    assert epochs.startswith("warning: max_epochs: ")


def test_interrupted_while_modules_load(monkeypatch, capfd):
    class Interrupting:
        def find_spec(self, name, *_):
            if name == "typer.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "typer.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert main(["info"]) == 130
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""


@pytest.mark.parametrize("name", ["ot", "nmf", "info"])
def test_help_has_an_example(name, capfd):
    assert main([name, "--help"]) == 0
    printed = capfd.readouterr().out
    assert f"gibbsot {name} " in printed.partition("Example")[2]
    for option in ("--jobs", "--quiet", "--json"):
        assert option in printed
    assert ("--seed" in printed) == (name != "info")


def test_without_words_there_is_help(capfd):
    assert main([]) == 0
    assert "geodesics" in capfd.readouterr().out
    assert "No such command 'otter'" in fails(capfd, "otter")


def test_python_m_gibbsot():
    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "gibbsot", *words], capture_output=True, text=True, check=False, timeout=120
        )

    done = run("info", "--json")
    assert done.returncode == 0, done.stderr
    assert "kernel" in json.loads(done.stdout)
    done = run("otter")
    assert done.returncode == 2
    assert "No such command 'otter'" in done.stderr


@pytest.mark.parametrize(
    ("shell", "environment"),
    [
        ("bash", {"COMP_WORDS": "gibbsot ot --pl", "COMP_CWORD": "2"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "gibbsot ot --pl"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "gibbsot ot --pl", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_completion(shell, environment, monkeypatch, capfd):
    for name, value in {"_GIBBSOT_COMPLETE": f"complete_{shell}", **environment}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == 0
    printed = capfd.readouterr().out
    assert "--plan" in printed
    assert "--plan-picture" in printed
    assert "--points" not in printed


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("solve", "the command is gibbsot ot"),
        ("solve_batch", "the command is gibbsot ot"),
        ("pca", "the command is gibbsot geodesics"),
        ("otter", "expected one of ot, morph, barycenter, nmf, transform, cluster, distances, geodesics, info"),
    ],
)
def test_an_unknown_command_gets_a_hint(capfd, word, hint):
    assert f"No such command '{word}'; {hint}" in fails(capfd, word, "a.npy", "b.npy")


def test_help_of_flags_and_paragraphs(capfd, monkeypatch):
    """A flag takes no value, and a sentence goes on to the end of its line."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["distances", "--help"]) == 0
    text = capfd.readouterr().out
    assert "<bool>" not in text
    assert "-h" in text
    assert "and the measures in the plane by classical multidimensional" in " ".join(text.split())
    lines = [len(line.rstrip()) for line in text.split("Writes")[1].split("╭")[0].splitlines()[:-1]]
    assert min(lines[:3]) > 50


def test_code_in_a_warning_becomes_options(capfd):
    _warn("the cost still fell; to go on: model.max_epochs = 1000; model.resume(X)")
    assert capfd.readouterr().err == "warning: the cost still fell; to go on: --resume --epochs 1000\n"
