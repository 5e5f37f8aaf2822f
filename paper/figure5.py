"""Figure 5: forty components of 400 faces, by three methods."""

from __future__ import annotations

from gibbsot import datasets

from . import factorisations
from .algorithms import PROGRAM
from .factorisations import Factorisation
from .outcome import Claim, Outcome, Run

_DIFFERS = (
    "The size of the images, 32 x 27 pixels, is that of the authors' program; the paper has none. Grey levels are "
    "mass, so that bright is much."
)
_CLEAR = 1.5  # factor that counts as clearly more


def run(run: Run) -> Outcome:
    """Fit the faces and compare the methods, also their noise."""
    shape = (32, 27)
    faces = datasets.faces(shape=shape)
    return factorisations.figure(run, "figure5", "faces", faces, shape, "gray", _noise, differs=_DIFFERS)


def _noise(found: dict[str, Factorisation]) -> list[Claim]:
    """Compare the noise, also with that of plain NMF, whose components are as sharp without sampling."""
    names = ("NMF", "smoothed W-NMF", f"Gibbs-OT, {PROGRAM}")
    plain, smoothed, ours = (found[name].outliers for name in names)
    more = ours > _CLEAR * plain
    return [
        Claim(
            "Components of Gibbs-OT have some salt-and-pepper noise, the smoothed ones have none",
            f"{ours:.2%} of the pixels differ from all their neighbours, against {smoothed:.2%} (smoothed) and "
            f"{plain:.2%} (NMF)" + ("" if more else ": no clear sign of noise from the sampling"),
            True if more and ours > smoothed else None if ours > smoothed else False,
        )
    ]
