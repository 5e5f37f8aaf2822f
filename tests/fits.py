"""Comparison of fitted models: all results are bit-identical, only the seconds of the history differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from gibbsot import WassersteinNMF


def same_fit(first: Any, other: Any, *names: str) -> None:
    """Compare attributes and the history."""
    for name in names:
        np.testing.assert_array_equal(np.asarray(getattr(first, name)), np.asarray(getattr(other, name)), err_msg=name)
    for a, b in zip(first.history_, other.history_, strict=True):
        np.testing.assert_array_equal(a._replace(seconds=0.0), b._replace(seconds=0.0))


def same_nmf(first: WassersteinNMF, other: WassersteinNMF) -> None:
    """Compare all results of NMF."""
    same_fit(first, other, "components_", "memberships_", "usage_")
    assert first.reconstruction_err_ == other.reconstruction_err_
