"""GUDHI's distance of diagrams: what is handed to GUDHI. Values are compared in test_diagrams.py."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from gibbsot import diagrams
from gibbsot.compat import gudhi as compat

X, Y = np.array([[0.0, 2.0], [1.0, 1.5]]), np.array([[0.0, 3.0]])


def test_signature_is_gudhis():
    gudhi = pytest.importorskip("gudhi.wasserstein")
    ours, theirs = (inspect.signature(module.wasserstein_distance).parameters for module in (compat, gudhi))
    assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]


def test_gradients_are_gudhis(monkeypatch):
    asked = []
    monkeypatch.setattr(compat, "_original", lambda *args: asked.append(args) or "GUDHI's")
    assert compat.wasserstein_distance(X, Y, enable_autodiff=True, order=2.0) == "GUDHI's"
    assert asked[0][2:] == (False, 2.0, np.inf, True, True)
    assert compat.wasserstein_distance(X, Y, order=2.0) == diagrams.wasserstein_distance(X, Y, order=2.0)
    assert len(asked) == 1
    monkeypatch.setattr(compat, "_original", None)
    with pytest.raises(ValueError, match="enable_autodiff"):
        compat.wasserstein_distance(X, Y, enable_autodiff=True)
