"""Inputs of the command line, and a full disk."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def no_progress_lines(monkeypatch):
    """Tests compare what a run prints; on a busy machine it may last long enough to report progress, too."""
    monkeypatch.setattr("gibbsot.io.progress._PAUSE", 1e6)


@pytest.fixture
def blobs(tmp_path):
    """A folder of twelve images 8 x 6 with two blobs each."""
    Image = pytest.importorskip("PIL.Image")
    y, x = np.mgrid[:8, :6]
    centres = np.random.default_rng(0).uniform(1, 5, (12, 2, 2))
    (tmp_path / "blobs").mkdir()
    for k, pair in enumerate(centres):
        image = sum(np.exp(-((y - a) ** 2 + (x - b) ** 2) / 2) for a, b in pair)
        Image.fromarray(np.round(120 * image).astype(np.uint8)).save(tmp_path / "blobs" / f"{k}.png")
    return tmp_path / "blobs"


@pytest.fixture
def pair(tmp_path):
    """Two files of weights on a line."""
    weights = np.random.default_rng(0).random((2, 20))
    for name, x in zip("pq", weights, strict=True):
        np.save(tmp_path / f"{name}.npy", x)
    return tmp_path / "p.npy", tmp_path / "q.npy"


@pytest.fixture
def full_disk(monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
