"""Data to try things on: problems with known answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
