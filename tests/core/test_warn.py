"""Warnings point to the line of the user's program, whatever is between."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from gibbsot import GridCost, WassersteinBarycenter, WassersteinNMF, mixture_coordinates
from gibbsot.core.warn import warn

X = np.random.default_rng(0).random((8, 12))
MODEL = WassersteinNMF(2, cost=GridCost(12), max_epochs=2, random_state=0)
CALLS = {
    "fit": lambda: MODEL.fit(X),
    "fit_transform": lambda: MODEL.fit_transform(X),
    "a pipeline": lambda: make_pipeline(FunctionTransformer(), MODEL).fit(X),
    "a barycenter": lambda: WassersteinBarycenter(GridCost((4, 3)), gap=0, max_seconds=1e-9).fit(X),
    "memberships": lambda: mixture_coordinates(X, X[:3], GridCost(12), gap=0, max_seconds=1e-9),
    "no cost": lambda: mixture_coordinates(X[:1], X[:1]),
}


@pytest.mark.parametrize("call", CALLS)
def test_warnings_point_to_the_call(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        CALLS[call]()
    assert found
    assert {warning.filename for warning in found} == {__file__}


def test_kinds_of_warnings():
    with pytest.warns(RuntimeWarning, match="^text$") as found:
        warn("text", RuntimeWarning)
    assert found[0].filename == __file__
