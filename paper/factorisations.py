"""Components of images by three methods: shared by figures 4 and 5."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, minimum_filter

from gibbsot import GridCost, mixture_coordinates, plots, solve_batch
from gibbsot.models.nmf.start import nmf_factors

from . import algorithms
from .algorithms import Fit
from .baselines.smoothed_nmf import SmoothedNMF
from .outcome import Claim, Outcome, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

EPSILON, RHO = 1 / 100, 1 / 200  # of the smoothed W-NMF in the paper
_GAP = 0.01  # of the memberships that are found again
SHOWN = (algorithms.PAPER, algorithms.PROGRAM, algorithms.OURS)  # the algorithms whose components are drawn
_DIFFERS = (
    "The paper shows one set of components of Gibbs-OT and does not say how the temperature starts. Here are three: "
    "its algorithm as printed, which cools after every epoch and whose best model by exact costs is shown; that of the "
    "authors' published program (d2suite), which cools only while V(z) exceeds 0.9 of the exact cost; and ours, which "
    "starts from NMF. The first temperature is ours, as that of the program is in other units."
)
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
        The CPU seconds of the fit.
    refitted : float
        The exact mean cost with the best memberships for the components, to a gap of 1 %; NaN if they were not found.
    """

    components: Array
    cost: float
    pixels: float
    outliers: float
    seconds: float
    refitted: float


def compare(
    run: Run, X: Array, shape: tuple[int, int], K: int, names: Sequence[str], refit: bool
) -> tuple[dict[str, Factorisation], dict[str, Fit]]:
    """Return the factorisations of plain NMF, smoothed Wasserstein NMF and Gibbs-OT, and the fits of its algorithms.

    The smoothed NMF and our algorithm start from the plain one, the authors' algorithm at random.
    """
    cost, found, fits = GridCost(shape), dict[str, Factorisation](), dict[str, Fit]()

    def evaluate(name: str, D: NDArray[Any], W: NDArray[Any], seconds: float) -> None:
        exact = float(np.mean(solve_batch(W @ D, X, cost, normalize=True, n_jobs=run.n_jobs).value))
        outliers, again = float(np.mean([_outliers(image) for image in D.reshape(-1, *shape)])), np.nan
        if refit:
            best = mixture_coordinates(X, D, cost, gap=_GAP, n_jobs=run.n_jobs)
            again = float(np.mean(solve_batch(best @ D, X, cost, normalize=True, n_jobs=run.n_jobs).value))
        found[name] = Factorisation(D, exact, float(np.mean(1 / (D**2).sum(axis=1))), outliers, seconds, again)

    begun = time.process_time()
    D, W = (x / x.sum(axis=1, keepdims=True) for x in nmf_factors(X, K, run.seed))
    evaluate("NMF", D, W, time.process_time() - begun)
    run.advance(0.1, "smoothed W-NMF")

    begun = time.process_time()
    iterations = 3 if run.quick else 10
    smoothed = SmoothedNMF(K, cost=cost, epsilon=EPSILON, rho=(RHO, RHO), max_iter=iterations, init=(D, W)).fit(X)
    evaluate("smoothed W-NMF", smoothed.components_, smoothed.memberships_, time.process_time() - begun)
    for k, name in enumerate(names):
        run.advance(0.3 if k == 0 else 0.6 / len(names), f"Gibbs-OT, {name}")
        fits[name] = one = algorithms.fit(run, name, X, cost, K, (D, W))
        evaluate(f"Gibbs-OT, {name}", one.model.components_, one.model.memberships_, one.seconds)
    run.advance(0.6 / len(names))
    return found, fits


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
    level: float | None = None,
    names: Sequence[str] = (algorithms.PAPER, algorithms.PROGRAM, algorithms.OURS),
    refit: bool = False,
    differs: str = "",
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
    level : float, optional
        The exact cost that the paper's algorithm should pass.
    names : sequence of str
        The algorithms of Gibbs-OT whose curves are compared.
    refit : bool
        Whether to find the best memberships for the components of each method.
    differs : str
        What else differs from the paper.

    Returns
    -------
    Outcome
        The claims and the files.
    """
    X, K = (X[:60], 10) if run.quick else (X, 40)
    found, fits = compare(run, X, shape, K, names, refit)
    plain, smoothed = found["NMF"], found["smoothed W-NMF"]
    paper, program, ours = (found[f"Gibbs-OT, {name}"] for name in SHOWN)
    judged = (ours,) if run.quick else (program, ours)  # a quick run ends long before the authors' algorithm does
    claims = [
        Claim(
            "Components of the smoothed W-NMF are smoother than those of Gibbs-OT, which are sharper",
            f"{smoothed.pixels:.0f} effective pixels per component against {paper.pixels:.0f} by the paper's algorithm "
            f"as printed, {program.pixels:.0f} by the authors' program and {ours.pixels:.0f} by ours",
            smoothed.pixels > max(each.pixels for each in judged),
        ),
        Claim(
            "Gibbs-OT can push for a higher quality of approximation by annealing",
            f"exact mean cost {program.cost:.3g} by the authors' program, which this judges, and {ours.cost:.3g} by "
            f"ours, against {smoothed.cost:.3g} (smoothed) and {plain.cost:.3g} (NMF). As printed, with cooling in "
            f"every epoch, it is {paper.cost:.3g}" + (_refitted(found) if refit else ""),
            max(each.cost for each in judged) < min(smoothed.cost, plain.cost),
        ),
        *more_claims(found),
        *algorithms.claims(fits, None if run.quick else level),
    ]
    sentence = (
        "Sharpness and noise of the components of each method; the titles have the exact mean transport cost of the "
        "mixtures, where less is better. Then the exact mean costs of the algorithms of Gibbs-OT over epochs and CPU "
        f"time, of at most {algorithms.IMAGES} images."
    )
    header = ["method", "exact mean cost", "effective pixels", "outlying pixels", "CPU seconds"]
    rows = [
        [method, f"{each.cost:.6f}", f"{each.pixels:.1f}", f"{each.outliers:.4f}", f"{each.seconds:.2f}"]
        for method, each in found.items()
    ]
    if refit:
        header.insert(2, "with the best memberships")
        for row, each in zip(rows, found.values(), strict=True):
            row.insert(2, f"{each.refitted:.6f}")
    components = {method: each.components.round(9).tolist() for method, each in found.items()}
    shown = run.table(name, header, rows)
    data = [shown, run.record(f"{name}-components", components)]
    curves = ((method, point) for method, each in fits.items() for point in each.curve)
    points = [(method, point.epoch, f"{point.seconds:.3f}", point.cost) for method, point in curves]
    data.append(run.table(f"{name}-costs", ("algorithm", "epoch", "CPU seconds", "exact mean cost"), points))
    pictures = [run.picture(name, _draw(found, shape, cmap)), run.picture(f"{name}-costs", algorithms.draw(fits))]
    return Outcome(
        name,
        f"{K} components of {len(X)} {subject}",
        sentence,
        claims,
        pictures,
        data,
        differs=f"{_DIFFERS} {differs}".strip(),
        tables=[shown],
    )


def _refitted(found: dict[str, Factorisation]) -> str:
    """Say what the best memberships for the components of each method give."""
    texts = (f"{each.refitted:.3g} ({method})" for method, each in found.items())
    return f". With the best memberships for the components: {', '.join(texts)}"


def _draw(found: dict[str, Factorisation], shape: tuple[int, int], cmap: str) -> Figure:
    """Draw the components of each method below its name."""
    names = ["NMF", "smoothed W-NMF", *(f"Gibbs-OT, {name}" for name in SHOWN)]
    found, columns = {name: found[name] for name in names}, 10
    rows = sum(-(-len(each.components) // columns) for each in found.values())
    figure = plots.new_figure(8, 8 * rows * shape[0] / shape[1] / columns + 0.4 * len(found))
    panels: Any = figure.subfigures(len(found), 1)
    for panel, (name, each) in zip(panels, found.items(), strict=True):
        panel.suptitle(f"{name}: exact mean cost {each.cost:.3g}, {each.pixels:.0f} effective pixels", fontsize=10)
        plots.components(panel, each.components, shape, columns=columns, cmap=cmap)
    return figure
