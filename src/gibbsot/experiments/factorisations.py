"""Components of images by three methods: what figures 4 and 5 share."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, minimum_filter
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from .. import plots
from ..baselines.smoothed_nmf import SmoothedNMF
from ..core.costs import GridCost
from ..io.progress import Advance
from ..models.nmf import WassersteinNMF
from ..solvers.solve import solve_batch
from . import outcome
from .outcome import Claim, Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

EPSILON, RHO = 1 / 100, 1 / 200  # the paper's, of the smoothed W-NMF
_MARGIN = 0.1  # of a component's mean pixel, by which a speck stands out
_NEIGHBOURS = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], bool)


class Found(NamedTuple):
    """What a method made of the images.

    Attributes
    ----------
    cost : float
        The exact mean transport cost of the mixtures.
    pixels : float
        The mean effective number of pixels of a component, ``1 / sum(d^2)``; fewer is sharper.
    specks : float
        The share of pixels that stand out from all eight neighbours, up or down: salt and pepper.
    """

    components: Array
    cost: float
    pixels: float
    specks: float
    seconds: float


def compare(
    X: Array, shape: tuple[int, int], K: int, *, quick: bool, seed: int, n_jobs: int | None, advance: Advance
) -> dict[str, Found]:
    """Return the components of plain NMF, of the smoothed Wasserstein NMF and of Gibbs-OT, from one start."""
    cost, found = GridCost(shape), dict[str, Found]()

    def judge(name: str, D: NDArray[Any], W: NDArray[Any], begun: float) -> None:
        seconds = time.perf_counter() - begun
        exact = float(np.mean(solve_batch(W @ D, X, cost, exact=True, n_jobs=n_jobs).value))
        specks = float(np.mean([_specks(image) for image in D.reshape(-1, *shape)]))
        found[name] = Found(D, exact, float(np.mean(1 / (D**2).sum(axis=1))), specks, seconds)

    begun = time.perf_counter()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain = NMF(K, random_state=seed)
        W = plain.fit_transform(X) * plain.components_.sum(axis=1)
    D, W = (x / x.sum(axis=1, keepdims=True) for x in (plain.components_, W))
    judge("NMF", D, W, begun)
    advance(0.1, "smoothed W-NMF")

    begun = time.perf_counter()
    smoothed = SmoothedNMF(K, cost=cost, epsilon=EPSILON, rho=(RHO, RHO), max_iter=3 if quick else 10, init=(D, W))
    smoothed.fit(X)
    judge("smoothed W-NMF", smoothed.components_, smoothed.memberships_, begun)
    advance(0.5, "Gibbs-OT")

    begun = time.perf_counter()
    ours = WassersteinNMF(
        K, cost=cost, init=(D, W), max_epochs=40 if quick else 200, random_state=seed, n_jobs=n_jobs
    ).fit(X)
    judge("Gibbs-OT", ours.components_, ours.memberships_, begun)
    advance(0.4)
    return found


def _specks(image: Array) -> float:
    """Return the share of pixels that stand out from all their neighbours.

    Examples
    --------
    >>> ramp = np.add.outer(np.arange(5.0), np.arange(4.0))
    >>> _specks(np.ones((5, 4))), _specks(ramp - 9 * (ramp == 7))
    (0.0, 0.1)
    """
    margin = _MARGIN * image.mean()
    salt = image > maximum_filter(image, footprint=_NEIGHBOURS, mode="constant", cval=-np.inf) + margin
    pepper = image < minimum_filter(image, footprint=_NEIGHBOURS, mode="constant", cval=np.inf) - margin
    return float((salt | pepper).mean())


def figure(
    name: str,
    of: str,
    X: Array,
    shape: tuple[int, int],
    cmap: str,
    out: Path,
    *,
    judged: Callable[[dict[str, Found]], Sequence[Claim]] | None = None,
    quick: bool,
    seed: int,
    n_jobs: int | None,
    advance: Advance,
) -> Outcome:
    """Compare the methods on images, 60 of them in ten components to be quick, and write what was found.

    Parameters
    ----------
    name, of : str
        Such as "figure4", and what the images are of.
    X : array of shape (n, height * width)
    shape : pair of int
    cmap : str
    out : Path
    judged : callable, optional
        Gives more claims.
    quick, seed, n_jobs, advance
    """
    X, K = X[: 60 if quick else None], 10 if quick else 40
    found = compare(X, shape, K, quick=quick, seed=seed, n_jobs=n_jobs, advance=advance)
    plain, smoothed, ours = found.values()
    claims = [
        Claim(
            "Components of the smoothed W-NMF are smoother than those of Gibbs-OT, which are sharper",
            f"{smoothed.pixels:.0f} effective pixels a component against {ours.pixels:.0f}",
            smoothed.pixels > ours.pixels,
        ),
        Claim(
            "Gibbs-OT can push for a higher quality of approximation by annealing",
            f"exact mean cost {ours.cost:.3g} against {smoothed.cost:.3g} (smoothed) and {plain.cost:.3g} (NMF)",
            ours.cost < min(smoothed.cost, plain.cost),
        ),
        *(judged(found) if judged else ()),
    ]
    sentence = (
        "How blurred the components of each method are, and whether single pixels stand out; above them the exact cost "
        "of their mixtures, where less is nearer to the data."
    )
    picture = outcome.picture(drawn(found, shape, cmap), out, name)
    return Outcome(name, f"{K} components of {len(X)} {of}", sentence, claims, [picture], numbers(found, out, name))


def drawn(found: dict[str, Found], shape: tuple[int, int], cmap: str) -> Figure:
    """Return the components of each method under its name."""
    from matplotlib.figure import Figure

    columns = 10
    rows = sum(-(-len(each.components) // columns) for each in found.values())
    figure = Figure(figsize=(8, 8 * rows * shape[0] / shape[1] / columns + 0.4 * len(found)), layout="constrained")
    parts: Any = figure.subfigures(len(found), 1)
    for part, (name, each) in zip(parts, found.items(), strict=True):
        part.suptitle(f"{name}: exact mean cost {each.cost:.3g}, {each.pixels:.0f} effective pixels", fontsize=10)
        plots.components(part, each.components, shape, columns=columns, cmap=cmap)
    return figure


def numbers(found: dict[str, Found], out: Path, name: str) -> list[Path]:
    """Write what was measured, and the components themselves."""
    header = ("method", "exact mean cost", "effective pixels", "specks", "seconds")
    rows = [(method, each.cost, each.pixels, each.specks, f"{each.seconds:.2f}") for method, each in found.items()]
    components = {method: each.components.round(9).tolist() for method, each in found.items()}
    return [outcome.table(header, rows, out, name), outcome.record(components, out, f"{name}-components")]
