"""Figure 4: forty components of 200 handwritten fives, by three methods."""

from __future__ import annotations

from pathlib import Path

from .. import datasets
from ..io.progress import Advance, silent
from . import factorisations
from .outcome import Outcome


def run(
    out: Path, *, quick: bool = False, seed: int = 0, n_jobs: int | None = None, advance: Advance = silent
) -> Outcome:
    """Fit the fives and compare the methods."""
    return factorisations.figure(
        "figure4",
        "handwritten fives",
        datasets.mnist_fives(),
        (28, 28),
        "gray_r",
        out,
        quick=quick,
        seed=seed,
        n_jobs=n_jobs,
        advance=advance,
    )
