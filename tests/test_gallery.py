"""The examples of losses of one's own: they run, and end where they should."""

from __future__ import annotations

import runpy
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gibbsot.core import native

GALLERY = Path(__file__).resolve().parents[1] / "examples" / "gallery"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(native.name() == "numpy", reason="slow without compiled kernels"),
    pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning"),
]


def ran(name: str, monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.setenv("MPLBACKEND", "agg")
    return runpy.run_path(str(GALLERY / name))


def test_clustering(monkeypatch):
    found = ran("plot_13_clustering.py", monkeypatch)
    history = found["history"]
    assert all(b < a for a, b in pairwise(history))
    assert found["loss"](found["centers"])[0] < 0.0070 < 0.0095 < history[0]


def test_smoothing(monkeypatch, capsys):
    found = ran("plot_14_smoothing.py", monkeypatch)
    assert found["result"].value < 0.35 * found["loss"](found["frames"])[0]
    if "value" in found:  # PyTorch ends where NumPy does
        assert found["value"].item() < 1.1 * found["result"].value
    assert "certified" in capsys.readouterr().out


def test_regression(monkeypatch):
    pytest.importorskip("torch")
    found = ran("torch_regression.py", monkeypatch)
    assert found["predicted"] < 0.2 * found["constant"]


def test_sparse_nmf(monkeypatch):
    found = ran("plot_15_sparse_nmf.py", monkeypatch)
    plain, sparse = ((fit.x[1] > 0.01).sum(axis=1).mean() for fit in found["fits"])
    assert sparse < 0.85 * plain
    D, W = found["fits"][0].x
    assert (
        found["oracle"](W @ D).values.mean()
        < 0.5 * found["oracle"](np.tile(found["X"].mean(axis=0), (200, 1))).values.mean()
    )
