"""The run of a sampler, with the quantities of the paper's appendix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..sampling import theory
from .style import GREY, PALE_GREEN, PINK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def diagnostics(figure: Figure, result: Any, probability: float = 0.05) -> None:
    """Draw a run of the sampler with the quantities of the paper's appendix, in four panels over the half steps.

    The panels show V(z); the expected increments O(z, T); the temperature T and the bound calT(z) below which V(z)
    decreases in expectation; and the martingale r with the band of the concentration theorem. The band holds for each
    half step by itself, with the C and D of this run (see `theory.concentration_probability`), and half of the
    probability on either side. With infinite costs it has no upper side.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty figure.
    result : OTResult
        Result of one problem, from ``solve(..., method=gibbsot.Gibbs(diagnostics=True))``.
    probability : float
        Probability of the martingale to be outside the band.

    Raises
    ------
    ValueError
        If the result has no diagnostics or is that of a batch.

    Examples
    --------
    >>> import gibbsot
    >>> method = gibbsot.Gibbs(n_sweeps=20, diagnostics=True)
    >>> result = gibbsot.solve([0.5, 0.5], [0.2, 0.8], [[0, 1], [1, 0]], method=method)
    >>> from gibbsot.plots import diagnostics, new_figure
    >>> diagnostics(new_figure(8, 8), result)
    """
    trace = result.diagnostics
    if trace is None or not result.single:
        raise ValueError("result: expected that of one problem, from solve(..., method=Gibbs(diagnostics=True))")
    steps = np.arange(1, len(trace.T) + 1)
    value, increment, temperature, martingale = figure.subplots(4, 1, sharex=True)
    value.plot(np.arange(1, len(trace.value) + 1), trace.value, color=PINK, linewidth=0.8)
    value.axhline(result.lower_bound, color=GREY, linestyle=":", linewidth=1, label="certified lower bound")
    value.set_ylabel("V(z)")
    increment.plot(steps, trace.increment, ".", color=PINK, markersize=2)
    increment.axhline(0, color=GREY, linewidth=0.8)
    increment.set_yscale("symlog", linthresh=max(np.quantile(np.abs(trace.increment), 0.05), np.finfo(float).tiny))
    increment.set_ylabel("expected increment\n(symmetric log)")
    bound = np.where(trace.bound > 0, trace.bound, np.nan)
    temperature.semilogy(steps, bound, ".", color=PALE_GREEN, markersize=2, label="calT(z)")
    temperature.semilogy(steps, trace.T, color=PINK, label="T")
    temperature.set_ylabel("temperature\n(log)")
    _martingale(martingale, trace, max(result.problem.cost.shape), probability)
    for ax in (increment, martingale):
        labels = [f"{limit / 10:.1g}" for limit in ax.get_ylim()]
        ax.set_yticks([float(labels[0]), 0, float(labels[1])], [labels[0], "0", labels[1]])
        ax.minorticks_off()
    for ax in (value, temperature, martingale):  # above the axes, where it covers nothing
        ax.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=2, borderaxespad=0)


def _martingale(ax: Axes, trace: theory.Trace, size: int, probability: float) -> None:
    """Draw the martingale of a run and the band of the concentration theorem."""
    marks = np.unique(np.linspace(1, len(trace.T), 200).astype(int))
    half = probability / 2
    below = [theory.concentration_width(half, (trace.C * trace.T)[:n]) for n in marks]
    steps = (theory.right_steps(trace.D[:n], trace.T[:n], size, half / 2) for n in marks)
    above = [theory.concentration_width(half, a, half / 2) for a in steps]
    top = np.where(np.isfinite(above), above, 10 * max(np.ptp(trace.r), max(below)))
    label = f"{1 - probability:.0%} band"
    ax.fill_between(marks + 1, np.negative(below), top, color=PALE_GREEN, alpha=0.4, label=label)
    ax.plot(np.arange(1, len(trace.r) + 1), trace.r - trace.r[0], color=PINK, linewidth=0.8)
    ax.set_yscale("symlog", linthresh=max(np.ptp(trace.r), np.finfo(float).tiny))
    ax.set(ylabel="martingale\n(symmetric log)", xlabel="half step", xlim=(1, len(trace.value)))
