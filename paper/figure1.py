"""Figure 1: the sampler on two electrons, and the bands of its exponential noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gibbsot import Problem, datasets, plots, sampler, schedules

from .outcome import Claim, Outcome, Run
from .plans import Array, listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SWEEPS = (20, 40, 60)
_RATIO = 1e-2  # of the last temperature to the first: with the 60^-4 of the paper no band would be visible
_LONG = 500
_CLEAR = 2.0  # factor that counts as "much" larger
_INSIDE = 0.95
_TAIL = -np.log(1 - _INSIDE)  # this quantile of the standard exponential distribution
_LIMIT = 4.0  # standard errors that a measured share may differ


class _Snapshot(NamedTuple):
    """The state of all chains, shape (chains, n), after a number of sweeps."""

    sweeps: int
    T: float
    U: Array
    g: Array
    L: Array
    h: Array


def run(run: Run) -> Outcome:
    """Cool chains on the Coulomb problem over 60 sweeps, from T = 2/N to a hundredth of it, with three snapshots.

    The chains differ in their noise only. One of them is drawn; the variances are over all chains, at each point, in
    the gauge of the sampler, <p, U> = 0.
    """
    p, q, cost = datasets.coulomb_uniform()
    n, chains = len(p), 100 if run.quick else 1000
    pairs = Problem(np.tile(p, (chains, 1)), q, cost)
    temperatures = schedules.geometric(2 / n, SWEEPS[-1], ratio=_RATIO)
    state, done, snapshots = sampler.init(pairs, run.seed), 0, list[_Snapshot]()
    for sweeps in SWEEPS:
        state, info = sampler.run(state, pairs, temperatures[done:sweeps], n_jobs=run.n_jobs)
        T = float(temperatures[sweeps - 1])
        U, g, L, h = (np.array(values, np.float64) for values in (info.U, info.g, info.L, state.h))
        snapshots.append(_Snapshot(sweeps, T, U, g, L, h))
        done = sweeps
        run.advance(1 / len(SWEEPS))
    measured = [_measure(snapshot, p, q) for snapshot in snapshots]
    equilibrium = []  # variance of g over that of U at equilibrium: long chains at each of the temperatures
    for snapshot in snapshots:
        few = pairs[: min(chains, 100)]
        _, info = sampler.run(sampler.init(few, run.seed), few, np.full(_LONG, snapshot.T), n_jobs=run.n_jobs)
        equilibrium.append(float(np.median(info.g.var(axis=0)) / np.median(info.U.var(axis=0))))
    rows = [(one.sweeps, k, *(float(values[0, k]) for values in one[2:])) for one in snapshots for k in range(n)]
    settings = {"seed": run.seed, "chains": chains, "snapshots": measured, "equilibrium": equilibrium}
    return Outcome(
        "figure1",
        "The Gibbs sampler on two electrons",
        "How far the samples g lie below U, and the samples h above L, in three snapshots, with the grey bands that "
        "contain 95 % of them in theory; U and L are smoother than the samples.",
        _claims(measured, equilibrium, n, chains),
        [run.picture("figure1", _draw(snapshots, p, q))],
        [run.table("figure1", ("sweeps", "point", "U", "g", "L", "h"), rows), run.record("figure1", settings)],
        differs="The last temperature is a hundredth of the first: with the paper's 60^-4 no band would be visible in "
        "the third panel. Potentials are shown in the gauge <p, U> = 0, as the constant of g and h is arbitrary.",
    )


def _measure(snapshot: _Snapshot, p: Array, q: Array) -> dict[str, Any]:
    """Return the widths of the noise, the share inside the band, the variances and the range of a snapshot."""
    sweeps, T, U, g, L, h = snapshot
    below, above = U - g, h - L
    return {
        "sweeps": sweeps,
        "T": T,
        "band": float(_TAIL * T / p[0]),
        "measured": [float(np.quantile(below, _INSIDE)), float(np.quantile(above, _INSIDE))],
        "inside": float(np.mean([(below <= _TAIL * T / p).mean(), (above <= _TAIL * T / q).mean()])),
        "variance": {name: float(np.median(v.var(axis=0))) for name, v in zip("UgLh", (U, g, L, h), strict=True)},
        "range": float(max(np.ptp(U, axis=1).max(), np.ptp(L, axis=1).max())),
    }


def _claims(measured: list[dict[str, Any]], equilibrium: list[float], n: int, chains: int) -> list[Claim]:
    """Return the claims, given the measurements of each snapshot."""
    widths, inside = np.array([each["measured"] for each in measured]).T, [each["inside"] for each in measured]
    under, over = (listed(width.tolist()) for width in widths)
    errors = (np.array(inside) - _INSIDE) / np.sqrt(_INSIDE * (1 - _INSIDE) / (2 * n * chains))
    variances = [each["variance"] for each in measured]
    ratios = [(variance["g"] / variance["U"], variance["h"] / variance["L"]) for variance in variances]
    ranges = [each["range"] for each in measured]
    clear = [min(pair) > _CLEAR for pair in ratios]
    return [
        Claim(
            "As T decreases along iterations, the 95 % percentile band becomes thinner and thinner.",
            f"95 % of U - g are below {under} after 20, 40 and 60 iterations, and 95 % of h - L below {over}. The "
            f"theoretical band, {listed([each['band'] for each in measured])}, contains "
            f"{listed([100 * share for share in inside], '.2f')} % of them, at most {np.abs(errors).max():.1f} "
            f"standard errors from 95 % ({_LIMIT:g} are allowed).",
            bool((np.diff(widths) < 0).all() and (np.abs(errors) < _LIMIT).all()),
        ),
        Claim(
            "Where p / T is small the samples g and h have large variances; those of U and L are much smaller.",
            f"Over {chains} chains the variance of g is {listed([a for a, _ in ratios])} times that of U, and that of "
            f"h {listed([b for _, b in ratios])} times that of L, after 20, 40 and 60 iterations (medians over the "
            f"points). In chains that stay at these temperatures for {_LONG} sweeps it is {listed(equilibrium)} times "
            "for g: much smaller at high temperatures only.",
            True if all(clear) else None if any(clear) else False,
        ),
        Claim(
            "For the unbounded Coulomb cost U and L are always in a bounded range, with overwhelming probability.",
            f"In {chains} chains the range of U and L is at most {listed(ranges)} after 20, 40 and 60 iterations, "
            f"while finite costs reach {n}.",
            max(ranges) < n,
        ),
    ]


def _draw(snapshots: list[_Snapshot], p: Array, q: Array) -> Figure:
    """Draw the first chain in each snapshot."""
    figure = plots.new_figure(11, 4.2)
    axes = figure.subplots(1, len(snapshots), sharey=True)
    x = (np.arange(len(p)) + 0.5) / len(p)
    for ax, (sweeps, T, U, g, L, h) in zip(axes, snapshots, strict=True):
        for low, high in ((U - _TAIL * T / p, U), (L, L + _TAIL * T / q)):
            ax.fill_between(x, low[0], high[0], color=plots.PALE_GREY, linewidth=0)
        for values, colour, style, name in (
            (U, plots.GREEN, "-", "U"),
            (g, plots.PALE_GREEN, ".", "g"),
            (L, plots.PINK, "-", "L"),
            (h, plots.PALE_PINK, ".", "h"),
        ):
            label = name if ax is axes[0] else None
            ax.plot(x, values[0], style, color=colour, markersize=3.5, linewidth=1.3, label=label)
        ax.set_title(f"{sweeps} iterations, T = {T:.1e}", fontsize=10)
        ax.set(xlabel="position", xlim=(0, 1), xticks=(0, 0.5, 1))
    plots.hide_spines(axes)
    axes[0].set_ylabel("potential")
    axes[0].plot([], [], color=plots.PALE_GREY, linewidth=6, label="95 % of g, h")
    figure.legend(loc="outside lower center", frameon=False, ncols=5)
    return figure
