"""Example data: problems with known answers, and images."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .core import validation
from .costs import Cost, PointCost, coulomb
from .io import readers
from .io.images import shrink

__all__ = ["Pair", "UnavailableError", "coulomb_uniform", "digits", "faces", "mnist_fives", "shrink", "two_modes"]


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__name__"]


class Pair(NamedTuple):
    """Two measures and the cost between them: the arguments of `gibbsot.solve`.

    Attributes
    ----------
    p, q : arrays of shape (n,)
        Weights that sum to one.
    cost : Cost
        The cost between their points.
    """

    p: NDArray[np.float64]
    q: NDArray[np.float64]
    cost: Cost


class UnavailableError(OSError):
    """The data are not on this machine and could not be downloaded."""


def two_modes(n: int = 128) -> Pair:
    """Return the paper's first toy problem: two densities with two modes each on [0, 1], squared distance.

    The paper shows the densities and has no formula; these are those of the authors' published program.
    ``0.5 N(0.2, 0.05) + 0.5 N(0.5, 0.03)`` and ``0.4 N(0.6, 0.05) + 0.6 N(0.8, 0.05)``, each plus 0.1, at n equally
    spaced points and normalised.

    Parameters
    ----------
    n : int, default 128
        Number of points.

    Returns
    -------
    Pair
        The weights of both densities, and the squared distance between the points.

    Examples
    --------
    >>> from gibbsot.datasets import two_modes
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
    """Return the paper's second toy problem: two electrons with uniform densities on [0, 1] and Coulomb cost.

    The cost ``1 / |x - y|`` is infinite on the diagonal. For even n the optimal cost is 2: each electron is at distance
    1/2 from the other.

    Parameters
    ----------
    n : int, default 128
        Number of cells of equal width; the points are their centres.

    Returns
    -------
    Pair
        Uniform weights, twice, and the Coulomb cost.

    Examples
    --------
    >>> from gibbsot.datasets import coulomb_uniform
    >>> p, q, cost = coulomb_uniform(4)
    >>> float(cost.at(0, 2)), float(cost.at(1, 1))
    (2.0, inf)
    """
    x = (np.arange(n) + 0.5) / n
    weight = np.full(n, 1 / n)
    return Pair(weight, weight, coulomb(x))


def mnist_fives(n: int = 200) -> NDArray[np.float64]:
    """Return handwritten fives of MNIST as rows of weights: images of 28 x 28 pixels, each normalised to sum one.

    The images are part of the package. The paper uses the first 200.

    Parameters
    ----------
    n : int, default 200
        Number of images, at most 500.

    Returns
    -------
    array of shape (n, 784)
        One image a row.

    Examples
    --------
    >>> from gibbsot.datasets import mnist_fives
    >>> mnist_fives(20).shape
    (20, 784)
    """
    with (files(__package__) / "data" / "fives.npz").open("rb") as file:
        images = np.load(file)["images"]
    if validation.count(n, "n") > len(images):
        raise ValueError(f"n: expected at most the {len(images)} fives of the package, got {n}")
    return _rows(images[:n].reshape(n, -1))


def digits(label: int | None = None) -> NDArray[np.float64]:
    """Return scikit-learn's handwritten digits as rows of weights: 1,797 images of 8 x 8 pixels, each normalised.

    Parameters
    ----------
    label : int, optional
        Return only the images of this digit.

    Returns
    -------
    array of shape (n, 64)
        One image a row.

    Examples
    --------
    >>> from gibbsot.datasets import digits
    >>> digits().shape, digits(5).shape
    ((1797, 64), (182, 64))
    """
    from sklearn.datasets import load_digits

    if label is not None and not 0 <= validation.integer(label, "label") <= 9:
        raise ValueError(f"label: expected a digit from 0 to 9, got {label}")
    images, labels = load_digits(return_X_y=True)
    return _rows(images if label is None else images[labels == label])


def faces(path: str | os.PathLike[str] | None = None, shape: tuple[int, int] = (32, 27)) -> NDArray[np.float64]:
    """Return faces as rows of weights: 400 images of 40 people, each normalised to sum one.

    Parameters
    ----------
    path : path, optional
        A folder of images, such as the ORL faces (``s1/1.pgm`` to ``s40/10.pgm``), or an npz file with an array
        ``images`` of shape (n, height, width). By default the path in the environment variable ``GIBBSOT_FACES``, or
        else scikit-learn's Olivetti faces (the same 40 people), which are downloaded once.
    shape : (height, width), default (32, 27)
        The size that the images are shrunk to. The default is that of the authors' published
        program; the paper has none.

    Returns
    -------
    array of shape (n, height * width)
        One image a row.

    Raises
    ------
    UnavailableError
        If no path is given and the Olivetti faces cannot be downloaded.
    ValueError
        If an image has no mass.
    """
    path = path or os.environ.get("GIBBSOT_FACES")
    if path is not None:
        read = readers.collection(path, size=shape)
        validation.check_weights(read.rows, str(path))
        return _rows(read.rows)
    from sklearn.datasets import fetch_olivetti_faces

    try:
        with redirect_stdout(sys.stderr):  # scikit-learn prints that it downloads
            images = fetch_olivetti_faces(n_retries=1).images
    except OSError as error:
        raise UnavailableError(
            f"faces: scikit-learn could not download the Olivetti faces ({error}); without a network give a folder of "
            "images or an npz file, in GIBBSOT_FACES or as the path, or put olivetti_py3.pkz into "
            "sklearn.datasets.get_data_home()"
        ) from None
    return _rows(shrink(images, shape).reshape(len(images), -1))


def _rows(images: NDArray[Any]) -> NDArray[np.float64]:
    """Return the rows as float64, normalised to sum one."""
    rows = images.astype(np.float64)
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))
