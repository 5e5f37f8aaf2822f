"""A short run of `make faults`: every fault once."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("distributed")
pytest.importorskip("typer")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # of Dask about workers that die, and its own sockets
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL, SIGSTOP and SIGALRM"),
]


def test_every_fault_once(capfd, monkeypatch):
    import faults

    monkeypatch.setenv("POT_BACKEND_DISABLE_PYTORCH", "1")  # POT would load it in every worker
    assert faults.main(["--kills", "2", "--runs", "1", "--stopped", "3", "--seed", "1", "--deadline", "300"]) == 0
    printed = capfd.readouterr().out
    for name in faults.SCENARIOS.values():
        assert name in printed
