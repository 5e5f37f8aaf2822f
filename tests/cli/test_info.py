"""``gibbsot info``."""

from __future__ import annotations

import json

import pytest

from cli_runs import command, fails, installed
from gibbsot.cli import main
from gibbsot.core import native


@pytest.mark.slow
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


def test_info_has_no_seed(capfd):
    assert "--seed" in fails(capfd, "info", "--seed", "1")
