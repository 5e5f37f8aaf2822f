"""Figure 5: forty components of 400 faces, by three methods."""

from __future__ import annotations

from pathlib import Path

from .. import datasets
from ..progress import Advance, silent
from . import factorisations, outcome
from .outcome import Claim, Outcome


def run(
    out: Path, *, quick: bool = False, seed: int = 0, n_jobs: int | None = None, advance: Advance = silent
) -> Outcome:
    """Fit the faces, 60 of them in ten components to be quick, and compare."""
    shape, K = (32, 27), 10 if quick else 40
    X = datasets.faces(shape=shape)[: 60 if quick else None]
    found = factorisations.compare(X, shape, K, quick=quick, seed=seed, n_jobs=n_jobs, advance=advance)
    plain, smoothed, ours = (found[name] for name in ("NMF", "smoothed W-NMF", "Gibbs-OT"))
    claims = [
        Claim(
            "Components of Gibbs-OT have some salt-and-pepper noise, the smoothed ones have none",
            f"{ours.specks:.1%} of the mass off the local median against {smoothed.specks:.1%}",
            ours.specks > smoothed.specks,
        ),
        Claim(
            "Components of Gibbs-OT are sharper than those of the smoothed W-NMF",
            f"{ours.pixels:.0f} effective pixels a component against {smoothed.pixels:.0f}",
            ours.pixels < smoothed.pixels,
        ),
        Claim(
            "Gibbs-OT can push for a higher quality of approximation by annealing",
            f"exact mean cost {ours.cost:.3g} against {smoothed.cost:.3g} (smoothed) and {plain.cost:.3g} (NMF)",
            ours.cost < min(smoothed.cost, plain.cost),
        ),
    ]
    picture = outcome.picture(factorisations.drawn(found, shape, "gray"), out, "figure5")
    sentence = "Parts of faces; the entropic ones are blurred, those of Gibbs-OT keep detail and some single pixels."
    data = factorisations.numbers(found, out, "figure5")
    return Outcome("figure5", f"{K} components of {len(X)} faces", sentence, claims, [picture], data)
