"""What commands say before they start: what was read, which cost is used, and what a huge input will take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from rich.console import Console

from ..costs import Cost, PointCost
from ..costs.problems import Problem
from ..exact.methods import choose, memory_needed
from ..io.readers import Collection, Measure
from ..models._costs import ALIASES, METRICS
from ._text import printable

_SLOW, _LARGE = 20.0, 2e9  # seconds and bytes from which a problem counts as huge
_THIN = 3  # columns of a table that may be points
_NAMES = {"sqeuclidean": "squared Euclidean", "euclidean": "Euclidean", "cityblock": "city-block"}
_SPACES = {1: "on a line", 2: "in the plane", 3: "in space"}


def describe(measure: Measure, placed: bool = True) -> str:
    """Return what a file holds, such as "100 points in the plane, weights uniform"; weights may have no place."""
    n, weights = len(measure.weights), measure.weights
    if measure.points is not None:
        d = measure.points.shape[1]
        column = f"column {measure.columns[-1]!r}" if measure.columns else "the last column"
        source = f"from {column}" if measure.weighted else "uniform"
        noun = "point" if n == 1 else "points"
        return f"{n:,} {noun} {_SPACES.get(d, f'in {d} dimensions')}, weights {source}{_empty(weights)}"
    sides = " x ".join(map(str, measure.shape or ()))
    if not placed:
        return f"{n:,} weights{_empty(weights)}"
    if len(measure.shape or ()) == 1:
        return f"{n:,} weights on a line{_empty(weights)}"
    if len(measure.shape or ()) == 2:
        height, width = measure.shape or ()
        hint = "; if the rows are points: --points" if width <= _THIN and height > _THIN**2 else ""
        return f"an image of {sides} pixels{_aside(measure.changed)}{_empty(weights)}{hint}"
    return f"a volume of {sides} (--rows I J takes one image of a stack){_empty(weights)}"


def _aside(changed: str) -> str:
    """Return what reading has changed, to be appended."""
    return f", {changed}" if changed else ""


def _empty(weights: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """Return how many weights are positive, if not all of them."""
    positive = np.count_nonzero(weights)
    return "" if positive == len(weights) else f", {positive:,} with weight"


def describe_cost(cost: Cost, name: str | None, power: float, points: bool, spacing: str | None = None) -> str:
    """Return what is minimised, such as "squared Euclidean distance"; the name is that of --cost."""
    if cost.has_matrix:
        return (
            f"the matrix in {name}" if name not in (*METRICS, None) else f"{name} distance of the vectors of the bins"
        )
    metric = None if name is None else ALIASES.get(name, name)
    if isinstance(cost, PointCost) and points:
        return f"{_NAMES.get(cost.metric, cost.metric)} distance"
    what = "squared distance" if power == 2 else f"|x - y|^{power:g} summed over the axes"
    what = what if metric in (None, "line") else f"{_NAMES[metric or '']} distance"
    return f"{what}, " + (f"pixels {spacing} apart" if spacing else "in units of the longest side of the grid")


def describe_collection(found: Collection, cost: str | None) -> str:
    """Return what a collection holds, such as "12 images of 8 x 6 pixels"; a line is said, as it may be a mistake."""
    n, m = found.rows.shape
    if found.shape is not None:
        return f"{n:,} images of {found.shape[0]} x {found.shape[1]} pixels{_aside(found.changed)}"
    if cost is None:
        return f"{n:,} measures of {m:,} bins, taken to lie on a line; --shape is for images, --cost for others"
    return f"{n:,} measures of {m:,} bins"


def said(
    console: Console,
    data: str,
    found: Collection,
    cost: Cost,
    name: str | None = None,
    power: float = 2,
    spacing: str | None = None,
) -> tuple[str, str]:
    """Print what was read and which cost is used, and return both."""
    both = describe_collection(found, name), describe_cost(cost, name, power, False, spacing)
    for head, text in zip((data, "cost"), both, strict=True):
        console.print(printable(f"{head}: {text}"))
    return both


class Estimate(NamedTuple):
    """What an exact solve takes, right to a factor of about four: seconds of one thread, and bytes."""

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
    """Return what the exact solver will need for one problem, from its size and the method alone.

    The times were fitted on one core with AVX2 and are extrapolated by powers of the size; benchmarks/estimates.py
    compares them with measured ones. Those of grids with other costs than the squared distance vary most.
    """
    sizes = _sizes(problem)
    return Estimate(choose(problem)[0].seconds(max(sizes), sizes[0] * sizes[1]), memory_needed(problem))


def _sizes(problem: Problem) -> tuple[int, int]:
    """Return the numbers of points with weight."""
    p, q = problem.given
    return int(np.count_nonzero(p[0])), int(np.count_nonzero(q[0]))


def advice(problem: Problem, first: Measure) -> str | None:
    """Return what a huge problem takes and what a smaller one would, or None for other problems."""
    needs, method = estimate(problem), choose(problem)[0]
    if not needs.huge:
        return None
    m1, m2 = _sizes(problem)
    text = f"{m1:,} and {m2:,} points with weight: {needs}"
    factor = 1
    while needs.huge and max(m1, m2) // (2 * factor) ** 2 >= 256:
        factor *= 2
        needs = Estimate(method.seconds(max(m1, m2) / factor**2, m1 * m2 / factor**4), needs.bytes / 4)
    if first.shape is not None and len(first.shape) == 2:
        return f"{text}; --size {first.shape[0] // factor} {first.shape[1] // factor} takes {needs}"
    return f"{text}; a sample of {max(m1, m2) // factor**2:,} points takes {needs}"
