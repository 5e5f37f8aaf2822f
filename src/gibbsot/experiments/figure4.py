"""Figure 4: forty components of 200 handwritten fives, by three methods."""

from __future__ import annotations

from .. import datasets
from . import factorisations
from .outcome import Outcome, Run


def run(run: Run) -> Outcome:
    """Fit the fives and compare the methods."""
    return factorisations.figure(run, "figure4", "handwritten fives", datasets.mnist_fives(), (28, 28), "gray_r")
