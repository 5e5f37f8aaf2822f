"""Figure 1: the sampler at work on two electrons, and the bands that its exponentials span."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .. import datasets
from ..core.problems import problem
from ..io.progress import Advance, silent
from ..sampling import sampler, schedules
from . import outcome
from .outcome import Claim, Outcome
from .plans import PINK, listed

SWEEPS = (20, 40, 60)
_RATIO = 1e-2  # of the last temperature to the first: the paper's own, 60^-4, would leave no band to see
_LONG = 500
_CLEAR = 2.0  # times as large: "much"
_INSIDE = 0.95
_TAIL = -np.log(1 - _INSIDE)  # the share of the standard exponentials that lies below
_LIMIT = 4.0  # standard errors that a share may be off


def run(
    out: Path, *, quick: bool = False, seed: int = 0, n_jobs: int | None = None, advance: Advance = silent
) -> Outcome:
    """Cool chains on the Coulomb problem over 60 sweeps, from T = 2/N to a hundredth of it, and look at them thrice.

    The chains differ in their noise alone. One of them is drawn; the variances are over all of them, at each point,
    in the gauge of the sampler, <p, U> = 0.
    """
    from matplotlib.figure import Figure

    p, q, cost = datasets.coulomb_uniform()
    n, chains = len(p), 100 if quick else 1000
    pairs = problem(np.tile(p, (chains, 1)), q, cost)
    temperatures = schedules.geometric(2 / n, SWEEPS[-1], ratio=_RATIO)
    x = (np.arange(n) + 0.5) / n

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots(1, len(SWEEPS), sharey=True)
    state, done, rows = sampler.init(pairs, seed), 0, []
    looks: list[dict[str, Any]] = []
    for ax, sweeps in zip(axes, SWEEPS, strict=True):
        state, info = sampler.run(state, pairs, temperatures[done:sweeps], n_jobs=n_jobs)
        T = float(temperatures[sweeps - 1])
        U, L, g, h = info.U, info.L, info.g, state.h
        for low, high in ((U - _TAIL * T / p, U), (L, L + _TAIL * T / q)):
            ax.fill_between(x, low[0], high[0], color="#dcdcdc", linewidth=0)
        for values, colour, style, label in (
            (U, "#2a7f4f", "-", "U"),
            (g, "#7fd6a3", ".", "g"),
            (L, PINK, "-", "L"),
            (h, "#ee9ac0", ".", "h"),
        ):
            ax.plot(
                x, values[0], style, color=colour, markersize=3.5, linewidth=1.3, label=label if done == 0 else None
            )
        done = sweeps
        ax.set_title(f"{sweeps} iterations, T = {T:.1e}", fontsize=10)
        ax.set(xlabel="position", xlim=(0, 1))
        ax.spines[["top", "right"]].set_visible(False)
        rows += [(sweeps, k, *(float(v[0, k]) for v in (U, g, L, h))) for k in range(n)]
        variance = {name: float(np.median(v.var(axis=0))) for name, v in zip("UgLh", (U, g, L, h), strict=True)}
        below, above = U - g, h - L
        looks.append(
            {
                "sweeps": sweeps,
                "T": T,
                "band": float(_TAIL * T / p[0]),
                "measured": [float(np.quantile(below, _INSIDE)), float(np.quantile(above, _INSIDE))],
                "inside": float(np.mean([(below <= _TAIL * T / p).mean(), (above <= _TAIL * T / q).mean()])),
                "variance": variance,
                "range": float(max(np.ptp(U, axis=1).max(), np.ptp(L, axis=1).max())),
            }
        )
        advance(1 / len(SWEEPS))
    axes[0].set_ylabel("potential")
    axes[0].plot([], [], color="#dcdcdc", linewidth=6, label="95 % of g, h")
    figure.legend(loc="outside lower center", frameon=False, ncols=5)

    widths, inside = np.array([look["measured"] for look in looks]).T, [look["inside"] for look in looks]
    under, over = (listed(width.tolist()) for width in widths)
    off = (np.array(inside) - _INSIDE) / np.sqrt(_INSIDE * (1 - _INSIDE) / (2 * n * chains))
    ratios = [
        (look["variance"]["g"] / look["variance"]["U"], look["variance"]["h"] / look["variance"]["L"]) for look in looks
    ]
    ranges = [look["range"] for look in looks]
    settled = []  # the same at equilibrium: at each temperature from the start, for long
    for look in looks:
        few = pairs[: min(chains, 100)]
        _, info = sampler.run(sampler.init(few, seed), few, np.full(_LONG, look["T"]), n_jobs=n_jobs)
        settled.append(float(np.median(info.g.var(axis=0)) / np.median(info.U.var(axis=0))))
    clear = [min(pair) > _CLEAR for pair in ratios]
    claims = [
        Claim(
            "As T decreases along iterations, the 95 % percentile band becomes thinner and thinner.",
            f"95 % of U - g are below {under} after 20, 40 and 60 iterations, and 95 % of h - L below {over}. In the "
            f"band that theory gives, {listed([look['band'] for look in looks])}, lie "
            f"{listed([100 * share for share in inside], '.2f')} % of them, at most {np.abs(off).max():.1f} standard "
            f"errors off 95 % ({_LIMIT:g} are allowed).",
            bool((np.diff(widths) < 0).all() and (np.abs(off) < _LIMIT).all()),
        ),
        Claim(
            "Where p / T is small the samples g and h have large variances; those of U and L are much smaller.",
            f"Over {chains} chains the variance of g is {listed([a for a, _ in ratios])} times that of U, and that of "
            f"h {listed([b for _, b in ratios])} times that of L, after 20, 40 and 60 iterations (medians over the "
            f"points). Chains that stay at these temperatures for {_LONG} sweeps have {listed(settled)} for g: much "
            "smaller while the chain is hot, hardly so when it is cold.",
            True if all(clear) else None if any(clear) else False,
        ),
        Claim(
            "For the unbounded Coulomb cost U and L are always in a bounded range, with overwhelming probability.",
            f"In {chains} chains U and L span at most {listed(ranges)} after 20, 40 and 60 iterations, where costs "
            f"reach {n} beside the infinite ones.",
            max(ranges) < n,
        ),
    ]
    return Outcome(
        "figure1",
        "The Gibbs sampler on two electrons",
        "How far the samples g lie below U, and the samples h above L, from one look to the next, beside the grey "
        "bands that theory gives 95 % of them; and how smooth U and L are beside them.",
        claims,
        [outcome.picture(figure, out, "figure1")],
        [
            outcome.table(("sweeps", "point", "U", "g", "L", "h"), rows, out, "figure1"),
            outcome.record({"seed": seed, "chains": chains, "looks": looks, "settled": settled}, out, "figure1"),
        ],
    )
