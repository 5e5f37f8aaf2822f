"""Plans of the methods that the paper compares, how far they are from the exact one, and pictures of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..datasets import Pair

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

PINK, GREEN = "#d6176f", "#a5e3bf"


class Exact(NamedTuple):
    """The optimum of a problem: its cost matrix, an optimal plan, and W."""

    M: Array
    plan: Array
    value: float


class Look(NamedTuple):
    """How far a plan is from an optimal one.

    Attributes
    ----------
    cost : float
        ``<M, Z> / W - 1`` of the plan as it is. Below zero it says only that mass is missing or misplaced.
    rounded : float
        The same of the coupling that `rounded` makes of it, which is never below zero.
    marginals : float
        Half of the absolute differences of both marginals from p and q: at most the mass that is misplaced, twice.
    variation : float
        The total variation distance from the exact plan, ``sum |Z - Z*| / 2``. A plan that is one cell off has 1.
    distance : float
        How far a point's partner is from its exact one on average, in cells.
    """

    cost: float
    rounded: float
    marginals: float
    variation: float
    distance: float


def exact(pair: Pair) -> Exact:
    """Return the optimum, by POT's network simplex."""
    import ot

    M = np.asarray(pair.cost.matrix(), np.float64)
    finite = np.isfinite(M)
    # POT takes no infinite costs; one that no optimal plan uses stands in for them
    plan = ot.emd(pair.p, pair.q, np.where(finite, M, 1e3 * M[finite].max()), numItermax=1_000_000)
    return Exact(M, plan, spent(plan, M))


def spent(Z: Array, M: Array) -> float:
    """Return ``<M, Z>``, where no mass costs nothing even if the cost is infinite."""
    used = Z > 0
    return float((Z[used] * M[used]).sum())


def entropic(pair: Pair, epsilon: float, n_iter: int) -> tuple[Array, Array, str]:
    """Return what so many Sinkhorn iterations make: a plan, a potential U, and the method of POT's that they took."""
    import ot

    def solved(method: str) -> tuple[Array, Array, str]:
        M = pair.cost.matrix()
        Z, log = ot.sinkhorn(
            pair.p, pair.q, M, epsilon, method=method, numItermax=n_iter, stopThr=0, warn=False, log=True
        )
        return Z, epsilon * (log["log_u"] if "log_u" in log else np.log(log["u"])), method

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return solved("sinkhorn")
        except Warning:  # underflow, on which POT gives up and returns what it had
            with np.errstate(over="ignore"):  # in numbers that are not asked for
                return solved("sinkhorn_log")


def rounded(Z: Array, p: Array, q: Array) -> Array:
    """Return a coupling of p and q near Z: algorithm 2 of Altschuler, Weed and Rigollet (2017).

    Rows, then columns with too much mass are scaled down, and what is missing is filled by a matrix of rank one.

    Examples
    --------
    >>> rounded(np.array([[0.6, 0.0], [0.0, 0.2]]), np.array([0.5, 0.5]), np.array([0.5, 0.5]))
    array([[0.5, 0. ],
           [0. , 0.5]])
    """
    rows = Z.sum(axis=1)
    Z = Z * np.minimum(1, p / np.where(rows > 0, rows, 1))[:, None]
    columns = Z.sum(axis=0)
    Z = Z * np.minimum(1, q / np.where(columns > 0, columns, 1))
    missing, wanting = (np.maximum(x, 0) for x in (p - Z.sum(axis=1), q - Z.sum(axis=0)))
    mass = missing.sum()
    return Z + np.outer(missing, wanting) / mass if mass > 0 else Z


def look(Z: Array, pair: Pair, optimum: Exact) -> Look:
    """Compare a plan with the exact one."""
    p, q, _ = pair
    cells = np.arange(len(q))
    partner = optimum.plan @ cells / p
    marginals = np.abs(Z.sum(axis=1) - p).sum() + np.abs(Z.sum(axis=0) - q).sum()
    return Look(
        spent(Z, optimum.M) / optimum.value - 1,
        spent(rounded(Z, p, q), optimum.M) / optimum.value - 1,
        float(marginals / 2),
        float(np.abs(Z - optimum.plan).sum() / 2),
        float((Z * np.abs(cells - partner[:, None])).sum() / Z.sum()),
    )


def listed(numbers: Sequence[float], form: str = ".3g") -> str:
    """Return numbers as a sentence has them.

    Examples
    --------
    >>> listed([1.0, 0.5, 0.25])
    '1, 0.5 and 0.25'
    """
    words = [format(x, form) for x in numbers] or ["none"]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def draw(ax: Axes, Z: Array, truth: Array) -> None:
    """Draw a plan in pink over the exact one in green; both are made a little wider than a cell to show."""
    from matplotlib.colors import to_rgb

    ordered = np.sort(Z, axis=None)
    # the heaviest tenth of the mass is drawn alike, and roots let what is spread out be seen
    full = ordered[np.searchsorted(np.cumsum(ordered), 0.9 * ordered.sum()).clip(max=ordered.size - 1)]
    shade = np.sqrt(np.clip(Z / full, 0, 1)) if full > 0 else np.zeros_like(Z)
    pixels = np.ones((*Z.shape, 3))
    for layer, colour in ((_wider(truth > 0, 5), GREEN), (_wider(shade, 2), PINK)):
        pixels += layer[..., None] * (np.array(to_rgb(colour)) - pixels)
    ax.imshow(pixels.swapaxes(0, 1), origin="lower", extent=(0, 1, 0, 1), interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_color("#cccccc")


def _wider(image: NDArray[np.generic], width: int) -> Array:
    """Return at each pixel the largest of the square around it."""
    return np.asarray(ndimage.maximum_filter(image.astype(np.float64), width, mode="nearest"))
