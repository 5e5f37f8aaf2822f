"""Plans of the methods that the paper compares: their errors relative to the exact plan, and figures of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from gibbsot import plots
from gibbsot.datasets import Pair

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]


class Exact(NamedTuple):
    """The optimum of a problem.

    Attributes
    ----------
    M : array of shape (m1, m2)
        The cost matrix.
    plan : array of shape (m1, m2)
        An optimal plan.
    value : float
        The transport cost W.
    """

    M: Array
    plan: Array
    value: float


class Errors(NamedTuple):
    """Errors of a plan Z relative to an optimal one.

    Attributes
    ----------
    cost : float
        ``<M, Z> / W - 1``; negative only if the marginals are wrong.
    rounded : float
        The same of the coupling that `rounded` returns, which is never negative.
    marginals : float
        Half the sum of the absolute errors of both marginals.
    variation : float
        The total variation distance from the exact plan, ``sum |Z - Z*| / 2``; 1 for a plan that is shifted by a cell.
    distance : float
        The mean distance between the target of a point and its exact target, in cells.
    """

    cost: float
    rounded: float
    marginals: float
    variation: float
    distance: float


def pot() -> Any:
    """Return POT, which the experiments compare with."""
    try:
        import ot
    except ImportError:
        raise ImportError("the experiments compare with POT: pip install 'gibbsot[pot]'") from None
    return ot


def exact(pair: Pair) -> Exact:
    """Return the optimum, by the network simplex of POT."""
    M = np.asarray(pair.cost.matrix(), np.float64)
    finite = np.isfinite(M)
    # POT accepts no infinite costs; they are replaced by one that no optimal plan uses
    plan = pot().emd(pair.p, pair.q, np.where(finite, M, 1e3 * M[finite].max()), numItermax=1_000_000)
    return Exact(M, plan, total_cost(plan, M))


def total_cost(Z: Array, M: Array) -> float:
    """Return ``<M, Z>`` with 0 times infinity as 0."""
    support = Z > 0
    return float((Z[support] * M[support]).sum())


def entropic(pair: Pair, epsilon: float, n_iter: int) -> tuple[Array, Array, str]:
    """Return the plan and the potential U after n_iter Sinkhorn iterations, and the method of POT that was used."""
    ot = pot()

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
        except Warning:  # underflow: POT stops and returns the last iterate
            with np.errstate(over="ignore"):  # in numbers that are not used
                return solved("sinkhorn_log")


def dual_bound(U: NDArray[np.floating], pair: Pair) -> Any:
    """Return ``<p, U> - <q, L>`` with the c-transform L of each U, a lower bound of W up to rounding.

    Examples
    --------
    >>> from gibbsot import DenseCost
    >>> pair = Pair(np.array([0.5, 0.5]), np.array([0.25, 0.75]), DenseCost([[0.0, 2.0], [2.0, 0.0]]))
    >>> float(dual_bound(np.array([2.0, 0.0]), pair))
    0.5
    """
    return U @ pair.p - pair.cost.col_max(U) @ pair.q


def rounded(Z: Array, p: Array, q: Array) -> Array:
    """Return a coupling of p and q near Z.

    Rows, then columns with too much mass are scaled down, and a matrix of rank one adds the missing mass [1]_.

    Parameters
    ----------
    Z : array of shape (m1, m2)
        A plan with approximate marginals.
    p, q : arrays of shape (m1,) and (m2,)
        The marginals.

    Returns
    -------
    array of shape (m1, m2)
        A coupling of p and q.

    References
    ----------
    .. [1] Altschuler, Weed and Rigollet, "Near-linear time approximation algorithms for optimal transport via Sinkhorn
       iteration", NeurIPS 2017, algorithm 2.

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
    rest_p, rest_q = (np.maximum(x, 0) for x in (p - Z.sum(axis=1), q - Z.sum(axis=0)))
    mass = rest_p.sum()
    return Z + np.outer(rest_p, rest_q) / mass if mass > 0 else Z


def errors(Z: Array, pair: Pair, optimum: Exact) -> Errors:
    """Return the errors of a plan."""
    p, q, _ = pair
    cells = np.arange(len(q))
    target = optimum.plan @ cells / p
    marginals = np.abs(Z.sum(axis=1) - p).sum() + np.abs(Z.sum(axis=0) - q).sum()
    return Errors(
        total_cost(Z, optimum.M) / optimum.value - 1,
        total_cost(rounded(Z, p, q), optimum.M) / optimum.value - 1,
        float(marginals / 2),
        float(np.abs(Z - optimum.plan).sum() / 2),
        float((Z * np.abs(cells - target[:, None])).sum() / Z.sum()),
    )


def listed(numbers: Sequence[float], form: str = ".3g") -> str:
    """Return numbers for a sentence, with commas and "and".

    Examples
    --------
    >>> listed([1.0, 0.5, 0.25])
    '1, 0.5 and 0.25'
    """
    words = [format(x, form) for x in numbers] or ["none"]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def draw(ax: Axes, Z: Array, truth: Array) -> None:
    """Draw a plan in pink over the exact one in green, both dilated to be visible."""
    from matplotlib.colors import to_rgb

    ordered = np.sort(Z, axis=None)
    # the heaviest tenth of the mass is clipped, and the square root makes diffuse mass visible
    full = ordered[np.searchsorted(np.cumsum(ordered), 0.9 * ordered.sum()).clip(max=ordered.size - 1)]
    shade = np.sqrt(np.clip(Z / full, 0, 1)) if full > 0 else np.zeros_like(Z)
    pixels = np.ones((*Z.shape, 3))
    for layer, colour in ((_dilate(truth > 0, 5), plots.PALE_GREEN), (_dilate(shade, 2), plots.PINK)):
        pixels += layer[..., None] * (np.array(to_rgb(colour)) - pixels)
    ax.imshow(pixels.swapaxes(0, 1), origin="lower", extent=(0, 1, 0, 1), interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_color(plots.PALE_GREY)


def _dilate(image: NDArray[np.generic], width: int) -> Array:
    """Return the maximum over the square around each pixel."""
    return np.asarray(ndimage.maximum_filter(image.astype(np.float64), width, mode="nearest"))
