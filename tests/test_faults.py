"""A short run of `make faults`: most faults once or twice.

`make faults` has what does not fit here: a killed client whose checkpoints are whole (here the last one is damaged as
well), a paused worker (`tests/distributed/test_dask.py` has one at a fixed moment), 100 kills of the command line and
of workers, five runs of the others, a kill of one and of two workers in about each epoch of a fit, up to ten kills of
the command line in a row, and 20 s of SIGSTOP instead of 3 s.
"""

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


def test_most_faults_once(capfd, monkeypatch):
    import faults

    monkeypatch.setenv("POT_BACKEND_DISABLE_PYTORCH", "1")  # POT would load it in every worker
    names = [name for name in faults.SCENARIOS if name not in ("client_killed", "paused_worker")]
    few = ["--kills", "1", "--runs", "1", "--most", "2", "--stopped", "3"]
    assert faults.main([*few, "--seed", "1", "--deadline", "300", *names]) == 0
    printed = capfd.readouterr().out
    for name in names:
        assert faults.SCENARIOS[name] in printed
