"""The public names of the package."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import gibbsot
from gibbsot import sampler, schedules, simplex


@pytest.mark.parametrize("name", ["WassersteinNMF", "compat", "datasets", "plots", "simplex"])
def test_lazy_names(name):
    code = f"import gibbsot, sys; assert {name!r} in dir(gibbsot) and 'sklearn' not in sys.modules; gibbsot.{name}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_names():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gibbsot.nothing  # noqa: B018


def test_modules_show_their_own_names_only():
    for module in (sampler, schedules, simplex):
        assert not {"np", "NDArray", "validation", "annotations"} & set(vars(module))


def test_batches_compare_by_identity():
    one, other = (gibbsot.problem(np.eye(2), np.eye(2), 1 - np.eye(2)) for _ in range(2))
    assert one != other
    assert len({one, other, sampler.init(one), sampler.init(one)}) == 4
