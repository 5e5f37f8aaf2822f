"""Figure 4: forty components of 200 handwritten fives, by three methods."""

from __future__ import annotations

from gibbsot import datasets

from . import factorisations
from .algorithms import OURS, PAPER, PLAIN, PROGRAM, RANDOM
from .outcome import Outcome, Run

_LEVEL = 0.0020  # exact mean cost that the paper's algorithm should pass


def run(run: Run) -> Outcome:
    """Fit the fives and compare the methods."""
    fives, names = datasets.mnist_fives(), (PAPER, PROGRAM, OURS, RANDOM, PLAIN)
    subject, shape = "handwritten fives", (28, 28)
    return factorisations.figure(run, "figure4", subject, fives, shape, "gray_r", level=_LEVEL, names=names, refit=True)
