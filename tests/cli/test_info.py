"""``gibbsot info``."""

from __future__ import annotations

import json
import platform

import numpy as np
import pytest
import scipy
from threadpoolctl import threadpool_info

import gibbsot
from cli_runs import command, fails, installed
from gibbsot.cli import main
from gibbsot.cli.info import _VARIABLES
from gibbsot.core import native


@pytest.mark.slow
@installed
def test_info_through_the_script():
    done = command("info", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["kernel"] in native.available()


def test_info_prints_what_a_report_needs(capfd, monkeypatch):
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert main(["info", "--jobs", "1", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["version"], found["kernel"], found["threads"]) == (gibbsot.__version__, native.name(), 1)
    assert platform.python_version() in found["python"]
    assert found["packages"][:2] == [f"numpy {np.__version__}", f"scipy {scipy.__version__}"]
    assert found["environment"] == ["OMP_NUM_THREADS=7"]
    names = {one["internal_api"] for one in threadpool_info() if one["user_api"] == "blas"}
    assert {one.split()[0] for one in found["blas"]} == names
    assert main(["info"]) == 0
    printed = capfd.readouterr().out
    assert all(name in printed for name in (native.name(), found["processor"].split()[0], "OMP_NUM_THREADS=7"))
    assert main(["info", "-q"]) == 0
    assert main(["--version"]) == 0
    first, second = capfd.readouterr().out.split()
    assert first == second


def test_info_has_no_seed(capfd):
    assert "--seed" in fails(capfd, "info", "--seed", "1")
