from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from gibbsot.core import native

settings.register_profile("gibbsot", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("gibbsot")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def fives() -> NDArray[np.float64]:
    """The 200 fives of the paper as rows of weights."""
    path = DATA / "mnist_fives_200.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not beside this checkout")
    images = np.load(path)["images"].reshape(200, -1).astype(np.float64)
    return np.asarray(images / images.sum(axis=1, keepdims=True))


@pytest.fixture(params=native.available())
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each of the kernels that run here in turn, NumPy the last."""
    with native.using(request.param):
        yield request.param
