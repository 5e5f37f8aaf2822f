"""Figure 5: forty components of 400 faces, by three methods."""

from __future__ import annotations

from gibbsot import datasets

from . import factorisations
from .factorisations import Factorisation
from .outcome import Claim, Outcome, Run

_CLEAR = 1.5  # factor that counts as clearly more


def run(run: Run) -> Outcome:
    """Fit the faces and compare the methods, also their noise."""
    shape = (32, 27)
    return factorisations.figure(run, "figure5", "faces", datasets.faces(shape=shape), shape, "gray", _noise)


def _noise(found: dict[str, Factorisation]) -> list[Claim]:
    """Compare the noise, also with that of plain NMF, whose components are as sharp without sampling."""
    plain, smoothed, ours = [each.outliers for each in found.values()][:3]  # by the paper's algorithm
    more = ours > _CLEAR * plain
    return [
        Claim(
            "Components of Gibbs-OT have some salt-and-pepper noise, the smoothed ones have none",
            f"{ours:.2%} of the pixels differ from all their neighbours, against {smoothed:.2%} (smoothed) and "
            f"{plain:.2%} (NMF, the initial components)"
            + ("" if more else ": no clear sign of noise from the sampling"),
            True if more and ours > smoothed else None if ours > smoothed else False,
        )
    ]
