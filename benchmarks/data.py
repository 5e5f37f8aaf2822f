"""Data that not every machine has."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from gibbsot import datasets


def faces(shape: tuple[int, int], console: Console) -> NDArray[np.float64] | None:
    """Return faces of a size as rows of weights, or None after a message if this machine has none of that size.

    They are the images in the folder or file that the environment variable ``GIBBSOT_FACES`` names (the ORL faces have
    112 x 92 pixels), or scikit-learn's Olivetti faces (64 x 64 pixels).
    """
    try:
        return datasets.faces(shape=shape)
    except (OSError, ValueError) as error:
        console.print(f"faces {shape[0]} x {shape[1]} are left out: {error}", highlight=False, soft_wrap=True)
        return None
