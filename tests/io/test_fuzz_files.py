"""Mutated files for every reader; `make fuzz` reads more of them."""

from __future__ import annotations

import random
import sys
from collections import Counter

import pytest

import fuzz_files


@pytest.fixture(scope="module")
def files():
    return fuzz_files.originals()


def test_valid_files_are_read(files, tmp_path):
    for name, content in files.items():
        assert fuzz_files.judge(name, content, tmp_path)[0] == "read", name


def test_mutated_files_are_read_or_refused(files, tmp_path):
    """In this process, which would not survive a crash."""
    found = Counter[str]()
    for seed in range(20 * len(files)):
        name, content = fuzz_files.case(seed, files)
        state, _ = fuzz_files.judge(name, content, tmp_path)
        assert not state.startswith("wrong"), f"seed {seed}: {name}: {state}"
        found[state] += 1
    assert found["error"] > found["read"] / 2 > 0  # the mutations do something


@pytest.mark.parametrize("name", ["oracle.npz", "model.npz", "nmf-checkpoint.npz", "mean-checkpoint.npz"])
def test_crafted_files_are_read_or_refused(files, tmp_path, name):
    """Valid arrays of other shapes, types and values: no error but the reader's own, and no crash."""
    for seed in range(15):
        content = fuzz_files._crafted(files[name], random.Random(seed))
        state, _ = fuzz_files.judge(name, content, tmp_path)
        assert not state.startswith("wrong"), f"seed {seed}: {state}"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_bombs_take_little_memory(capfd):
    assert fuzz_files.explode() == 0, capfd.readouterr().out


def test_a_file_is_a_function_of_its_seed(files):
    assert fuzz_files.case(7, files) == fuzz_files.case(7, files)
    assert fuzz_files.case(7, files)[1] != fuzz_files.case(7 + len(files), files)[1]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_crashes_hangs_and_memory_are_noticed(tmp_path, monkeypatch, capsys):
    script = tmp_path / "crash.py"
    lines = [
        "import os, sys",
        f"sys.path.insert(0, {str(fuzz_files.Path(fuzz_files.__file__).parent)!r})",
        "import fuzz_files",
        "fuzz_files.judge = lambda *_: os.abort()",
        "fuzz_files.child(int(sys.argv[2]), int(sys.argv[3]))",
    ]
    script.write_text("\n".join(lines))
    monkeypatch.setattr(fuzz_files, "__file__", str(script))
    monkeypatch.setattr(fuzz_files, "explode", lambda: 0)
    assert fuzz_files.main(1, 5) == 1
    assert "seed 5: " in capsys.readouterr().out
    monkeypatch.setattr(fuzz_files, "use", lambda _: bytearray(300_000_000))
    assert "MB for a file of 1 bytes" in fuzz_files.judge("a.csv", b"1", tmp_path)[0]
