"""Figure 4: forty components of 200 handwritten fives, by three methods."""

from __future__ import annotations

from gibbsot import datasets

from . import factorisations
from .algorithms import OURS, PAPER, PLAIN, RANDOM
from .outcome import Outcome, Run

_LEVEL = 0.0020  # exact mean cost that the paper's algorithm should pass


def run(run: Run) -> Outcome:
    """Fit the fives and compare the methods."""
    fives, names, subject = datasets.mnist_fives(), (PAPER, OURS, RANDOM, PLAIN), "handwritten fives"
    return factorisations.figure(run, "figure4", subject, fives, (28, 28), "gray_r", level=_LEVEL, names=names)
