"""The appendix: the concentration bounds compared with chains, and the bound of the temperature along a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gibbsot import Gibbs, Problem, datasets, plots, sampler, schedules, solve, theory

from .outcome import Claim, Outcome, Run
from .plans import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EPS = 0.01  # of the right-hand bound: probability of steps larger than a_n
_CHANCE = 0.05
_LIMIT = 4.0  # standard errors that a mean over chains may differ


def run(run: Run) -> Outcome:
    """Run many cooled chains on a small two-mode problem, and trace one run of `solve` in half steps.

    The a_n of the theorem are fixed in advance. Its bound depends only on the sum of their squares (see
    `theory.concentration_probability`); here this is the largest of all chains, so that the bound holds for each chain.
    """
    chains, n, sweeps = (200, 16, 12) if run.quick else (1000, 24, 30)
    p, q, cost = datasets.two_modes(n)
    pairs = Problem(np.tile(p, (chains, 1)), q, cost)
    T = schedules.geometric(2 / n, sweeps, ratio=1e-2)
    traces = []
    width = 100  # chains at a time, to limit the memory
    for b in range(0, chains, width):
        rows = slice(b, b + width)
        traces.append(theory.trace(sampler.init(pairs[rows], run.seed, np.arange(chains)[rows]), pairs[rows], T)[1])
        run.advance(0.7 * width / chains, "chains")
    seen = theory.Trace._make(np.concatenate(field) for field in zip(*traces, strict=True))
    deviation = seen.r[:, -1] - seen.r[:, 0]
    left = _largest(seen.C * seen.T)
    right = _largest(np.stack([theory.right_steps(d, t, n, _EPS) for d, t in zip(seen.D, seen.T, strict=True)]))
    sides = {"below": (-deviation, left, 0.0), "above": (deviation, right, _EPS)}
    curves = {side: _curve(*given) for side, given in sides.items()}

    m, length = (24, 100) if run.quick else (64, 600)
    result = solve(*datasets.two_modes(m), method=Gibbs(n_sweeps=length, rng=run.seed, diagnostics=True))
    run.advance(0.3, "a run")
    claims, numbers = _claims(seen, deviation, left, right, curves, result.diagnostics)
    figure, figure_of_run = _draw(deviation, left, right, curves), plots.new_figure(9, 8.5)
    plots.diagnostics(figure_of_run, result)
    plots.hide_spines(figure_of_run.axes)
    table = [(side, *map(float, row)) for side, curve in curves.items() for row in curve]
    settings = {"seed": run.seed, "chains": chains, "points": n, "sweeps": sweeps, **numbers}
    return Outcome(
        "bounds",
        "Concentration, and the temperature of a chain",
        "The deviation of the martingale compared with the theorem, to either side; and along a run, the temperature "
        "compared with its bound calT(z), and V(z).",
        claims,
        [run.picture("bounds", figure), run.picture("bounds_run", figure_of_run)],
        [run.table("bounds", ("side", "K", "measured", "bound"), table), run.record("bounds", settings)],
        differs="The paper states these bounds without an experiment. The a_n of the theorem are the largest of all "
        "chains, as they must be fixed in advance.",
    )


def _largest(steps: Array) -> Array:
    """Return the row with the largest sum of squares."""
    return steps[np.argmax((steps**2).sum(axis=1))]


def _curve(deviation: Array, steps: Array, eps: float) -> Array:
    """Return rows of K, the share of chains that deviate by more, and its bound."""
    K = np.linspace(0, theory.concentration_width(2 * eps or _CHANCE / 10, steps, eps), 101)
    return np.array([(k, (deviation > k).mean(), theory.concentration_probability(k, steps, eps)) for k in K.tolist()])


def _within(curve: Array, chains: int) -> bool:
    """Return whether the measured shares are below their bounds, up to the standard error of such a share."""
    _, share, bound = curve.T
    return bool((share <= bound + _LIMIT * np.sqrt(bound * (1 - bound) / chains)).all())


def _errors(x: Array) -> float:
    """Return the mean in standard errors."""
    return float(x.mean() / x.std(ddof=1) * np.sqrt(len(x)))


def _claims(
    seen: theory.Trace,
    deviation: Array,
    left: Array,
    right: Array,
    curves: dict[str, Array],
    followed: theory.Trace | None,
) -> tuple[list[Claim], dict[str, float]]:
    assert followed is not None  # solve was called with diagnostics=True
    off = _errors(deviation)
    low, high = (float(x) for x in np.quantile(deviation, [_CHANCE, 1 - _CHANCE]))
    K = theory.concentration_width(_CHANCE, left), theory.concentration_width(_CHANCE, right, _EPS)
    excess = {side: float((curve[:, 1] - curve[:, 2]).max()) for side, curve in curves.items()}
    within = {side: _within(curve, len(deviation)) for side, curve in curves.items()}
    # whether T < calT(z) is known before a half step: the changes of V in those steps, minus their expectations, are
    # a martingale too
    cold = seen.bound > seen.T
    changes = np.where(cold, np.diff(seen.value), 0).sum(axis=1)
    wanted = np.where(cold, seen.increment, 0).sum(axis=1)
    change, expected = float(changes.mean()), float(wanted.mean())
    apart = _errors(changes - wanted)
    share = followed.T / np.where(followed.bound > 0, followed.bound, np.inf)
    ratio = float(np.median(share))
    heuristic = float(((share >= 0.1) & (share <= 0.9)).mean())
    numbers = {
        "martingale_mean_in_standard_errors": off,
        "quantile_below": low,
        "quantile_above": high,
        "width_below": K[0],
        "width_above": K[1],
        "excess_below": excess["below"],
        "excess_above": excess["above"],
        "median_T_over_bound": ratio,
        "share_within_heuristic": heuristic,
        "cold_half_steps": float(cold.mean()),
        "change_where_cold": change,
        "expected_where_cold": expected,
        "apart_where_cold_in_standard_errors": apart,
    }
    sums = "Only the sum of a^2 matters: it is the largest of all chains."
    return [
        Claim(
            "r is a martingale.",
            f"Over {len(deviation):,} chains its mean after {seen.r.shape[1]} half steps differs by {off:+.1f} "
            "standard errors from the start.",
            bool(abs(off) < _LIMIT),
        ),
        Claim(
            "Pr(r < r1 - K) <= exp(-K^2 / 2 sum a^2) if C T <= a.",
            f"One chain in twenty deviates downwards by more than {-low:.2g}; the bound says {K[0]:.2g}, "
            f"{K[0] / -low:.1f} times as much. Measured shares exceed it by "
            f"{max(excess['below'], 0):.2g} at most. {sums}",
            within["below"],
        ),
        Claim(
            "Pr(r > r1 + K) <= exp(-K^2 / 2 sum a^2) + eps if log(2 N m / eps) T + D <= a.",
            f"One chain in twenty deviates upwards by more than {high:.2g}; the bound says {K[1]:.2g}, "
            f"{K[1] / high:.0f} times as much. Measured shares exceed it by "
            f"{max(excess['above'], 0):.2g} at most. {sums}",
            within["above"],
        ),
        Claim(
            "A temperature below calT(z) ensures that V(z) decreases in expectation.",
            f"In the {cold.mean():.0%} of the chains' half steps with T < calT(z), V(z) changed by {change:+.4g} a "
            f"chain, where the lemma expects {expected:+.4g}: {abs(apart):.1f} standard errors apart ({_LIMIT:g} are "
            "allowed).",
            bool(abs(apart) < _LIMIT and change < 0),
        ),
        Claim(
            "The temperature is often chosen around eta calT(z), eta in [0.1, 0.9].",
            f"In a run with adaptive cooling, the median of T / calT(z) is {ratio:.2f}, and it is in that range in "
            f"{heuristic:.0%} of the half steps: in a chain that has mixed calT(z) returns to T.",
            None,
        ),
    ], numbers


def _draw(deviation: Array, left: Array, right: Array, curves: dict[str, Array]) -> Figure:
    """Draw the distribution of the deviations, and its tails with their bounds."""
    figure = plots.new_figure(10, 3.6)
    axes = figure.subplots(1, 3)
    edges = -theory.concentration_width(_CHANCE, left), theory.concentration_width(_CHANCE, right, _EPS)
    span = 1.15 * max(-edges[0], float(np.abs(deviation).max()))
    axes[0].hist(deviation, bins=np.linspace(-span, span, 61).tolist(), color=plots.PALE_GREEN)
    axes[0].axvline(edges[0], color=plots.DARK_GREY, linewidth=1.5, label="95 % bound, below")
    if edges[1] < span:
        axes[0].axvline(edges[1], color=plots.DARK_GREY, linestyle="--", linewidth=1.5, label="95 % bound, above")
    axes[0].set(xlabel="martingale, from its start", ylabel="chains", xlim=(-span, span))
    axes[0].set_title(f"{len(deviation):,} chains (bound above: {edges[1]:.2g})", fontsize=10)
    floor = 0.3 / len(deviation)
    for ax, (side, curve) in zip(axes[1:], curves.items(), strict=True):
        ax.semilogy(curve[:, 0], curve[:, 2], color=plots.PINK, linewidth=1.8, label="theorem")
        seen = np.where(curve[:, 1] > 0, curve[:, 1], np.nan)
        ax.semilogy(curve[:, 0], seen, ".-", color=plots.GREEN, linewidth=1, markersize=4, label="measured")
        ax.set(xlabel="K", ylim=(floor, 1.5), xlim=(0, None))
        ax.set_title(f"share of chains more than K {side}", fontsize=10)
    plots.legend_below(figure)
    plots.hide_spines(axes)
    return figure
