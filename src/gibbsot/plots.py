"""Pictures, with matplotlib (the extra ``plots``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from . import theory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .results import OTResult

_PINK, _GREEN, _GREY = "#d6176f", "#7fd6a3", "#9a9a9a"


def plan(ax: Axes, Z: Any, exact: Any | None = None, title: str = "") -> None:
    """Draw a plan between measures on [0, 1], in the paper's colours: pink dots over the exact plan in green.

    Parameters
    ----------
    ax : matplotlib Axes
    Z, exact : arrays or sparse matrices of shape (m1, m2)
        Plans; a larger dot moves more mass.
    title : str
    """
    for matrix, colour, area, label in ((exact, _GREEN, 90, "exact"), (Z, _PINK, 14, "Gibbs-OT")):
        if matrix is None:
            continue
        entries = sparse.coo_array(matrix)
        x, y = ((k + 0.5) / side for k, side in zip((entries.row, entries.col), entries.shape, strict=True))
        size = area * np.sqrt(entries.data / entries.data.max())
        ax.scatter(x, y, s=size, c=colour, marker="s", linewidths=0, label=label)
    ax.set(title=title, xlabel="source", ylabel="target", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xticks([0, 0.5, 1])
    ax.set_yticks([0, 0.5, 1])
    ax.legend(frameon=False, markerscale=1.5)


def diagnostics(figure: Figure, result: OTResult, probability: float = 0.05) -> None:
    """Draw a run beside what the paper's appendix says of it: four panels over the half steps.

    V(z); the expected increments O(z, T); the temperature against its bound calT(z), which V(z) needs to fall; and the
    martingale r with the band that it leaves with at most the given probability, half of it on either side.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty one.
    result : OTResult
        Of one problem, from ``solve(..., diagnostics=True)``.
    probability : float
    """
    seen = result.diagnostics
    if seen is None or not result.single:
        raise ValueError("result: expected that of one problem, from solve(..., diagnostics=True)")
    steps = np.arange(1, len(seen.T) + 1)
    top, middle, low, bottom = figure.subplots(4, 1, sharex=True)
    top.plot(np.arange(1, len(seen.value) + 1), seen.value, color=_PINK, linewidth=0.8)
    top.axhline(result.lower_bound, color=_GREY, linestyle=":", linewidth=1, label="certified lower bound")
    top.set_ylabel("V(z)")
    middle.plot(steps, seen.increment, ".", color=_PINK, markersize=2)
    middle.axhline(0, color=_GREY, linewidth=0.8)
    middle.set_yscale("symlog", linthresh=max(np.quantile(np.abs(seen.increment), 0.05), np.finfo(float).tiny))
    middle.set_ylabel("expected increment")
    low.semilogy(steps, np.where(seen.bound > 0, seen.bound, np.nan), ".", color=_GREEN, markersize=2, label="calT(z)")
    low.semilogy(steps, seen.T, color=_PINK, label="T")
    low.set_ylabel("temperature")

    marks = np.unique(np.linspace(1, len(steps), 200).astype(int))
    size, half = max(result.problem.cost.shape), probability / 2
    left = [theory.concentration_width(half, (seen.C * seen.T)[:n]) for n in marks]
    right = [
        theory.concentration_width(half, theory.right_steps(seen.D[:n], seen.T[:n], size, half / 2), half / 2)
        for n in marks
    ]
    bottom.fill_between(
        marks + 1, np.negative(left), right, color=_GREEN, alpha=0.4, label=f"{1 - probability:.0%} band"
    )
    bottom.plot(np.arange(1, len(seen.r) + 1), seen.r - seen.r[0], color=_PINK, linewidth=0.8)
    bottom.set_yscale("symlog", linthresh=np.ptp(seen.r))
    bottom.set(ylabel="martingale", xlabel="half step", xlim=(1, len(seen.value)))
    for axes in (top, low, bottom):
        axes.legend(frameon=False)
