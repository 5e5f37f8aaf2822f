"""Running the command line, in this process or through the installed script, and checking what it wrote."""

from __future__ import annotations

import json
import subprocess
import sysconfig
import time
from pathlib import Path

import numpy as np
import pytest

from gibbsot.cli import main

pytest.importorskip("typer")
Image = pytest.importorskip("PIL.Image")

SCRIPT = Path(sysconfig.get_path("scripts"), "gibbsot")

installed = pytest.mark.skipif(not SCRIPT.exists(), reason="the script is not installed")


def command(*words):
    return subprocess.run([SCRIPT, *map(str, words)], capture_output=True, text=True, check=False, timeout=120)


def start(*words):
    return subprocess.Popen([SCRIPT, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path, process):
    for _ in range(1200):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"{path} did not come")


def fails(capfd, *words, entry=main):
    """Run a command that has to fail with one line; return the line."""
    assert entry([str(word) for word in words]) == 2
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
