"""Figure 4: forty components of 200 handwritten fives, by three methods."""

from __future__ import annotations

from pathlib import Path

from .. import datasets
from ..progress import Advance, silent
from . import factorisations, outcome
from .outcome import Claim, Outcome


def run(
    out: Path, *, quick: bool = False, seed: int = 0, n_jobs: int | None = None, advance: Advance = silent
) -> Outcome:
    """Fit the fives, 60 of them in ten components to be quick, and compare."""
    X, shape, K = datasets.mnist_fives(60 if quick else 200), (28, 28), 10 if quick else 40
    found = factorisations.compare(X, shape, K, quick=quick, seed=seed, n_jobs=n_jobs, advance=advance)
    plain, smoothed, ours = (found[name] for name in ("NMF", "smoothed W-NMF", "Gibbs-OT"))
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
    ]
    picture = outcome.picture(factorisations.drawn(found, shape, "gray_r"), out, "figure4")
    sentence = "Strokes in all three; the entropic ones are blurred, those of Gibbs-OT sharp and nearest to the data."
    data = factorisations.numbers(found, out, "figure4")
    return Outcome("figure4", f"{K} components of {len(X)} handwritten fives", sentence, claims, [picture], data)
