"""What ``gibbsot ot`` says before it starts: what was read, and what a huge input will take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.costs import Cost
from ..core.problems import Problem
from ..io.readers import Measure
from ..solvers.exact import methods

_SLOW, _LARGE = 20.0, 2e9  # seconds and bytes from which a problem counts as huge
_STORED = 512e6  # bytes of the largest matrix of distances that is kept
_SPACES = {1: "on a line", 2: "in the plane", 3: "in space"}


def describe(measure: Measure, weighted: bool) -> str:
    """Return what a file holds, such as "100 points in the plane, weights uniform"."""
    n, weights = len(measure.weights), measure.weights
    if measure.points is not None:
        d = measure.points.shape[1]
        source = "uniform" if not weighted else f"from column {(measure.columns or ('last',))[-1]!r}"
        if weighted and not measure.columns:
            source = "from the last column"
        noun = "point" if n == 1 else "points"
        return f"{n:,} {noun} {_SPACES.get(d, f'in {d} dimensions')}, weights {source}{_empty(weights)}"
    sides = " x ".join(map(str, measure.shape or ()))
    if len(measure.shape or ()) == 1:
        return f"{n:,} weights on a line{_empty(weights)}"
    if len(measure.shape or ()) == 2:
        return f"an image of {sides} pixels{_empty(weights)}"
    return f"a volume of {sides} (--rows I J takes one image of a stack){_empty(weights)}"


def _empty(weights: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """Return how many weights are positive, if not all of them."""
    positive = np.count_nonzero(weights)
    return "" if positive == len(weights) else f", {positive:,} with weight"


class Estimate(NamedTuple):
    """What an exact solve takes, right to a factor of about three: seconds of one thread, and bytes."""

    seconds: float
    bytes: float

    @property
    def huge(self) -> bool:
        """Whether it is worth a word before the start."""
        return self.seconds >= _SLOW or self.bytes >= _LARGE

    def __str__(self) -> str:
        units = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
        unit, name = next(one for one in units if self.seconds >= 1.5 * one[0] or one[0] == 1)
        return f"about {max(1, round(self.seconds / unit))} {name} and {max(self.bytes, 1e8) / 1e9:.1f} GB"


def estimate(problem: Problem) -> Estimate:
    """Return what the exact solver will need for the first problem, from its size and the method alone.

    The figures were measured by benchmarks/exact_engine.py on one core with AVX2, and are scaled by powers of the size.
    """
    sizes = [float(np.count_nonzero(x[0])) for x in problem.given]
    return _of_sizes(methods(problem)[0], max(sizes), sizes[0] * sizes[1], problem.cost)


def _of_sizes(method: str, m: float, pairs: float, cost: Cost) -> Estimate:
    """Return the estimate for m points with weight on the larger side and a number of pairs."""
    stored = 18 * pairs if type(cost).__name__ == "DenseCost" or 8 * pairs <= _STORED else 2 * _STORED + 2000 * m
    return {
        "all arcs": Estimate(0.8 * (pairs / 9e6) ** 1.2, 18 * pairs),
        "line": Estimate(2.4 * m / 1e6, 500 * m),
        "multiscale": Estimate(10 * (m / 65536) ** 1.4, 2200 * m),
        "pyramid": Estimate(5 * (m / 16384) ** 1.8, 3000 * m),
        "crossover": Estimate(2.4 * (pairs / 25e6) ** 1.3, stored),
    }[method]


def advice(problem: Problem, first: Measure) -> str | None:
    """Return what a huge problem takes and what a smaller one would, or None for other problems."""
    needs = estimate(problem)
    if not needs.huge:
        return None
    sizes = [np.count_nonzero(x[0]) for x in problem.given]
    text = f"{sizes[0]:,} and {sizes[1]:,} points with weight: {needs}"
    factor, method = 1, methods(problem)[0]
    while needs.huge and max(sizes) // (2 * factor) ** 2 >= 256:
        factor *= 2
        needs = _of_sizes(method, max(sizes) / factor**2, sizes[0] * sizes[1] / factor**4, problem.cost)
    if first.shape is not None and len(first.shape) == 2:
        return f"{text}; --size {first.shape[0] // factor} {first.shape[1] // factor} takes {needs}"
    return f"{text}; a sample of {max(sizes) // factor**2:,} points takes {needs}"
