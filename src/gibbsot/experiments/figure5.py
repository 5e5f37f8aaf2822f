"""Figure 5: forty components of 400 faces, by three methods."""

from __future__ import annotations

from pathlib import Path

from .. import datasets
from ..io.progress import Advance, silent
from . import factorisations
from .factorisations import Found
from .outcome import Claim, Outcome

_CLEAR = 1.5  # times as many: "clearly more"


def run(
    out: Path, *, quick: bool = False, seed: int = 0, n_jobs: int | None = None, advance: Advance = silent
) -> Outcome:
    """Fit the faces and compare, also what looks like noise."""
    shape = (32, 27)
    return factorisations.figure(
        "figure5",
        "faces",
        datasets.faces(shape=shape),
        shape,
        "gray",
        out,
        judged=_noise,
        quick=quick,
        seed=seed,
        n_jobs=n_jobs,
        advance=advance,
    )


def _noise(found: dict[str, Found]) -> list[Claim]:
    """Compare with plain NMF too, whose components are as sharp without any sampling."""
    plain, smoothed, ours = (each.specks for each in found.values())
    more = ours > _CLEAR * plain
    return [
        Claim(
            "Components of Gibbs-OT have some salt-and-pepper noise, the smoothed ones have none",
            f"{ours:.2%} of the pixels stand out from all their neighbours, against {smoothed:.2%} (smoothed) and "
            f"{plain:.2%} (NMF, where all started)" + ("" if more else ": no clear sign of noise from the sampling"),
            True if more and ours > smoothed else None if ours > smoothed else False,
        )
    ]
