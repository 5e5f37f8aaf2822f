"""Components of images by three methods: shared by figures 4 and 5."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, minimum_filter

from .. import plots
from ..baselines.smoothed_nmf import SmoothedNMF
from ..core.costs import GridCost
from ..models._nmf_start import nmf_factors
from ..models.nmf import WassersteinNMF
from ..solvers.solve import solve_batch
from .outcome import Claim, Outcome, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

EPSILON, RHO = 1 / 100, 1 / 200  # of the smoothed W-NMF in the paper
_MARGIN = 0.1  # of the mean pixel, by which an outlier differs from its neighbours
_NEIGHBOURS = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], bool)


class Factorisation(NamedTuple):
    """The components that a method found, and their quality.

    Attributes
    ----------
    components : array of shape (K, height * width)
        The components as weights.
    cost : float
        The exact mean transport cost of the mixtures.
    pixels : float
        The mean effective number of pixels of a component, ``1 / sum(d^2)``; fewer is sharper.
    outliers : float
        The share of pixels that are larger or smaller than all eight neighbours: salt-and-pepper noise.
    seconds : float
        The time of the fit.
    """

    components: Array
    cost: float
    pixels: float
    outliers: float
    seconds: float


def compare(run: Run, X: Array, shape: tuple[int, int], K: int) -> dict[str, Factorisation]:
    """Return the factorisations of plain NMF, of the smoothed Wasserstein NMF and of Gibbs-OT, which start from NMF."""
    cost, found = GridCost(shape), dict[str, Factorisation]()

    def evaluate(name: str, D: NDArray[Any], W: NDArray[Any], begun: float) -> None:
        seconds = time.perf_counter() - begun
        exact = float(np.mean(solve_batch(W @ D, X, cost, normalize=True, n_jobs=run.n_jobs).value))
        outliers = float(np.mean([_outliers(image) for image in D.reshape(-1, *shape)]))
        found[name] = Factorisation(D, exact, float(np.mean(1 / (D**2).sum(axis=1))), outliers, seconds)

    begun = time.perf_counter()
    D, W = (x / x.sum(axis=1, keepdims=True) for x in nmf_factors(X, K, run.seed))
    evaluate("NMF", D, W, begun)
    run.advance(0.1, "smoothed W-NMF")

    begun = time.perf_counter()
    iterations, epochs = (3, 40) if run.quick else (10, 200)
    smoothed = SmoothedNMF(K, cost=cost, epsilon=EPSILON, rho=(RHO, RHO), max_iter=iterations, init=(D, W)).fit(X)
    evaluate("smoothed W-NMF", smoothed.components_, smoothed.memberships_, begun)
    run.advance(0.5, "Gibbs-OT")

    begun = time.perf_counter()
    ours = WassersteinNMF(K, cost=cost, init=(D, W), max_epochs=epochs, random_state=run.seed, n_jobs=run.n_jobs)
    ours.fit(X)
    evaluate("Gibbs-OT", ours.components_, ours.memberships_, begun)
    run.advance(0.4)
    return found


def _outliers(image: Array) -> float:
    """Return the share of pixels that are larger or smaller than all their neighbours.

    Examples
    --------
    >>> ramp = np.add.outer(np.arange(5.0), np.arange(4.0))
    >>> _outliers(np.ones((5, 4))), _outliers(ramp - 9 * (ramp == 7))
    (0.0, 0.1)
    """
    margin = _MARGIN * image.mean()
    salt = image > maximum_filter(image, footprint=_NEIGHBOURS, mode="constant", cval=-np.inf) + margin
    pepper = image < minimum_filter(image, footprint=_NEIGHBOURS, mode="constant", cval=np.inf) - margin
    return float((salt | pepper).mean())


def figure(
    run: Run,
    name: str,
    subject: str,
    X: Array,
    shape: tuple[int, int],
    cmap: str,
    more_claims: Callable[[dict[str, Factorisation]], Sequence[Claim]] = lambda _: (),
) -> Outcome:
    """Compare the methods on images and write the results; 60 images and 10 components if quick.

    Parameters
    ----------
    run : Run
        How to run it.
    name : str
        Such as "figure4".
    subject : str
        What the images show.
    X : array of shape (n, height * width)
        The images as weights.
    shape : (height, width)
        The shape of an image.
    cmap : str
        The colour map.
    more_claims : callable, optional
        Returns further claims.

    Returns
    -------
    Outcome
        The claims and the files.
    """
    X, K = (X[:60], 10) if run.quick else (X, 40)
    found = compare(run, X, shape, K)
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
        *more_claims(found),
    ]
    sentence = (
        "Sharpness and noise of the components of each method; the titles have the exact mean transport cost of the "
        "mixtures, where less is better."
    )
    header = ("method", "exact mean cost", "effective pixels", "outlying pixels", "seconds")
    rows = [(method, *each[1:-1], f"{each.seconds:.2f}") for method, each in found.items()]
    components = {method: each.components.round(9).tolist() for method, each in found.items()}
    data = [run.table(name, header, rows), run.record(f"{name}-components", components)]
    picture = run.picture(name, _draw(found, shape, cmap))
    return Outcome(name, f"{K} components of {len(X)} {subject}", sentence, claims, [picture], data)


def _draw(found: dict[str, Factorisation], shape: tuple[int, int], cmap: str) -> Figure:
    """Draw the components of each method below its name."""
    columns = 10
    rows = sum(-(-len(each.components) // columns) for each in found.values())
    figure = plots.new_figure(8, 8 * rows * shape[0] / shape[1] / columns + 0.4 * len(found))
    panels: Any = figure.subfigures(len(found), 1)
    for panel, (name, each) in zip(panels, found.items(), strict=True):
        panel.suptitle(f"{name}: exact mean cost {each.cost:.3g}, {each.pixels:.0f} effective pixels", fontsize=10)
        plots.components(panel, each.components, shape, columns=columns, cmap=cmap)
    return figure
