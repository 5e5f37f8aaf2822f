"""What the paper says of its chains without a figure: warm starts, bias, the pinned chain, memory and time."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import stats

from gibbsot import Cost, DenseCost, GridCost, PointCost, Problem, datasets, plots, sampler, schedules, solve_batch

from .baselines.badmm import snapshots
from .outcome import Claim, Outcome, Run
from .plans import Array, pot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAIRS = 20  # of fives, for the warm starts
_MOVED = 0.02  # share of the mass of a five that is replaced by another five
_COLD = 1e-4  # temperature of the warm starts, relative to the mean cost
_TAU = 5
_RATIOS = (1e-1, 1e-2, 1e-3)  # T / W of the biases
_LIMIT = 4.0  # standard errors that a mean may be on the wrong side
_TIMED = 512  # points, so that arithmetic takes most of the time
_ALARM = 1e-4  # probability with which equal laws are said to differ


class Warm(NamedTuple):
    """Warm starts beside cold ones.

    Attributes
    ----------
    sweeps : array of shape (n,)
        Of the warm chains, until their mixing test held.
    warm, cold : float
        The mean relative errors of V(z) after these sweeps.
    curves : dict of str to array
        The mean relative error after each sweep.
    """

    sweeps: Array
    warm: float
    cold: float
    curves: dict[str, Array]

    def catches_up(self) -> int | None:
        """Return after how many sweeps the cold chains have the error of the warm ones."""
        found = np.flatnonzero(self.curves["cold"] <= self.warm)
        return int(found[0]) + 1 if len(found) else None


class Bias(NamedTuple):
    """The bias of V(z) at equilibrium, in units of T, with its standard error; T is relative to W."""

    problem: str
    points: int
    T: float
    bias: float
    error: float
    mixed: bool  # whether the two halves of the sweeps agree


class Energies(NamedTuple):
    """V(z) and V(g, h) at equilibrium, over chains: means less W in units of T, standard deviations, and the law."""

    value: float
    energy: float
    value_deviation: float
    energy_deviation: float
    points: int
    pvalue: float


class Costs(NamedTuple):
    """CPU microseconds of an iteration, and the bytes of the arrays that a run makes, by method."""

    seconds: dict[str, float]
    bytes: dict[str, int]


def run(run: Run) -> Outcome:
    """Measure what the text says of chains."""
    warm = _warm_starts(run)
    run.advance(0.2, "bias")
    biases = [found for problem in _problems(run) for found in _biases(run, *problem)]
    run.advance(0.4, "pinned chain")
    energies, same = _energies(run)
    run.advance(0.2, "time and memory")
    costs = _costs(run)
    run.advance(0.2)
    words = [f"{each.bias:.3g}" if each.mixed else "not mixed" for each in biases]
    table = [(*each[:3], word, f"{each.error:.1g}") for each, word in zip(biases, words, strict=True)]
    curves = zip(range(1, 1 + len(warm.curves["warm"])), *(x.tolist() for x in warm.curves.values()), strict=True)
    shown = run.table("chains", ("problem", "m1 + m2", "T / W", "(E V(z) - W) / T", "standard error"), table)
    return Outcome(
        "chains",
        "Warm starts, bias, memory and time",
        "Left: the mean relative error of V(z) of chains that continue from a similar problem and of chains that start "
        "anew, after each sweep. Right: the bias of V(z) at equilibrium, in units of T, over the number of points; "
        "each dot is a temperature. The line is m1 + m2, the mean of V(z) - V(g, h).",
        [
            *_warm_claims(warm),
            *_bias_claims(biases, energies),
            _pinned_claim(same),
            *_cost_claims(costs),
        ],
        [run.picture("chains", _draw(warm, [each for each in biases if each.mixed]))],
        [shown, run.table("chains_sweeps", ("sweep", "warm", "cold"), curves)],
        differs="The paper has no figure for these sentences. Temperatures are in units of W here, as the paper does "
        "not say at which its statements were observed.",
        tables=[shown],
    )


def _warm_starts(run: Run) -> Warm:
    """Anneal chains on pairs of fives, move the first of each a little, and count the sweeps until they mix again."""
    fives, cost = datasets.mnist_fives(), GridCost((28, 28))
    n = _PAIRS
    p, q, other = fives[:n], fives[n : 2 * n], fives[2 * n : 3 * n]
    moved = (1 - _MOVED) * p + _MOVED * other
    before, after = (Problem(x, q, cost) for x in (p, moved))
    W = solve_batch(moved, q, cost, n_jobs=run.n_jobs).value
    T, sweeps = _COLD * float(W.mean()), 200 if run.quick else 1000
    cooling = np.concatenate([schedules.geometric(100 * T, sweeps, ratio=1e-2), np.full(sweeps, T)])
    state, _ = sampler.run(sampler.init(before, run.seed), before, cooling, n_jobs=run.n_jobs)
    ended, _ = sampler.run(state, after, np.full(500, T), tau=_TAU, n_jobs=run.n_jobs)
    counts = (ended.sweep - state.sweep).astype(float)
    curves, rows = dict[str, Array](), np.arange(n)
    errors = {}
    for name, start in (("warm", state), ("cold", sampler.init(after, run.seed))):
        _, info = sampler.run(start, after, np.full(500, T), n_jobs=run.n_jobs)
        off = np.abs(info.history / W[:, None] - 1)
        curves[name], errors[name] = off.mean(axis=0), float(off[rows, counts.astype(int) - 1].mean())
    return Warm(counts, errors["warm"], errors["cold"], curves)


def _warm_claims(warm: Warm) -> list[Claim]:
    needed = warm.catches_up()
    later = (
        f"they need {needed} sweeps for it" if needed else f"{len(warm.curves['cold'])} sweeps are not enough for it"
    )
    return [
        Claim(
            "MCMC accommodates warm starts: samples efficiently remix from a previous equilibrium.",
            f"On {len(warm.sweeps)} pairs of fives, of which one has moved by {_MOVED:.0%}, warm chains mix again in "
            f"{warm.sweeps.mean():.1f} sweeps and V(z) is then off by {warm.warm:.2%}; cold chains are off by "
            f"{warm.cold:.1%} after as many sweeps, and {later} (T is {_COLD:g} of the mean cost, tau = {_TAU}).",
            warm.warm < warm.cold / 5,
        )
    ]


def _problems(run: Run) -> list[tuple[str, Array, Array, Cost]]:
    """Return the problems whose bias is measured."""
    rng = np.random.default_rng(run.seed)
    small = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(4))
    found: list[tuple[str, Array, Array, Cost]] = [("random matrix", *small, DenseCost(rng.random((3, 4))))]
    for n in (16, 128):
        line = datasets.two_modes(n)
        found.append(("two modes on a line", line.p, line.q, line.cost))
    for n in (16, 64) if run.quick else (16, 128):
        points = PointCost(rng.random((n, 2)), rng.random((n, 2)))
        found.append(("points in a square", np.full(n, 1 / n), np.full(n, 1 / n), points))
    fives, grid = datasets.mnist_fives(), GridCost((28, 28))
    return [*found, ("two fives", fives[0], fives[1], grid), ("mean five, a five", fives.mean(axis=0), fives[1], grid)]


def _biases(run: Run, name: str, p: Array, q: Array, cost: Cost) -> list[Bias]:
    """Return the biases of long chains, over their second half."""
    chains, sweeps = (8, 1000) if run.quick else (16, 3000)
    W = float(solve_batch(p[None], q, cost, n_jobs=run.n_jobs).value[0])
    points = int((p > 0).sum() + (q > 0).sum())
    pairs, found = Problem(np.tile(p, (chains, 1)), q, cost), list[Bias]()
    for ratio in _RATIOS:
        cooling = schedules.geometric(W, sweeps, ratio=ratio)
        T = np.concatenate([cooling, np.full(sweeps, ratio * W)])
        _, info = sampler.run(sampler.init(pairs, run.seed), pairs, T, n_jobs=run.n_jobs)
        values = (info.history[:, sweeps:] - W) / (ratio * W)
        means, halves = values.mean(axis=1), [half.mean(axis=1) for half in np.array_split(values, 2, axis=1)]
        mixed = abs(_errors(halves[1] - halves[0])) < _LIMIT
        error = float(means.std(ddof=1) / np.sqrt(chains))
        found.append(Bias(name, points, ratio, float(means.mean()), error, mixed))
    return found


def _errors(x: Array) -> float:
    """Return the mean in standard errors."""
    return float(x.mean() / (x.std(ddof=1) / np.sqrt(len(x)) + np.finfo(float).tiny))


def _energies(run: Run) -> tuple[Energies, float]:
    """Return what many chains show of V(z) and V(g, h), and the p-value of the energies of pinned and free chains."""
    chains, sweeps, n = (200, 300, 8) if run.quick else (1000, 1000, 16)
    p, q, cost = datasets.two_modes(n)
    pairs, T = Problem(np.tile(p, (chains, 1)), q, cost), 2 / n / 10
    W = float(solve_batch(p[None], q, cost).value[0])
    found = {}
    for pinned in (False, True):
        ids = np.arange(chains) + pinned * chains  # other noise
        start = sampler.init(pairs, run.seed, ids)
        _, found[pinned] = sampler.run(start, pairs, np.full(sweeps, T), pinned=pinned, n_jobs=run.n_jobs)
    free = found[False]
    law = stats.kstest((free.value - free.energy) / T, stats.gamma(2 * n).cdf).pvalue
    value, energy = (x - W for x in (free.value, free.energy))
    means = float(value.mean() / T), float(energy.mean() / T), float(value.std() / T), float(energy.std() / T)
    same = stats.ks_2samp(free.energy, found[True].energy).pvalue
    return Energies(*means, 2 * n, float(law)), float(same)


def _bias_claims(biases: list[Bias], energies: Energies) -> list[Claim]:
    mixed = [each for each in biases if each.mixed]
    worst = min(each.bias / max(each.error, 1e-12) for each in mixed)
    ratios = [each.bias for each in mixed]
    shares = [each.bias / each.points for each in mixed]
    left = len(biases) - len(mixed)
    return [
        Claim(
            "At equilibrium E V(z) is an upper bound of W that is consistent as T falls.",
            f"On {len({(each.problem, each.points) for each in biases})} problems with {biases[0].points} to "
            f"{max(each.points for each in biases)} points, at T = W / 10 to W / 1000, the mean of V(z) is above W by "
            f"{min(ratios):.2g} T to {max(ratios):.2g} T, {min(shares):.2g} to {max(shares):.2g} times (m1 + m2) T. A "
            f"single sample may be below W. {left} of {len(biases)} means are left out: those chains had not mixed.",
            worst > -_LIMIT,
        ),
        Claim(
            "E[V(g, h) | z] <= V(z), and the difference is a sum of two Gamma variables (shapes m1 and m2).",
            f"Over chains at one temperature V(z) is {energies.value:+.2g} T from W, V(g, h) {energies.energy:+.3g} T, "
            f"where the Gamma laws say a difference of m1 + m2 = {energies.points} T; the distribution of the "
            f"difference agrees (Kolmogorov-Smirnov p = {energies.pvalue:.2g}).",
            energies.pvalue > _ALARM,
        ),
        Claim(
            "The variance of V(z) is smaller than that of V(g, h), which is why it replaces it as the oracle.",
            f"Standard deviations of {energies.value_deviation:.2g} T and {energies.energy_deviation:.2g} T.",
            energies.value_deviation < energies.energy_deviation,
        ),
    ]


def _pinned_claim(pvalue: float) -> Claim:
    return Claim(
        "Without g_1 = 0 the energy <p, g> - <q, h> converges to the same distribution as with it.",
        f"Energies of free and of pinned chains agree: Kolmogorov-Smirnov p = {pvalue:.2g} (below {_ALARM:g} they "
        "would differ).",
        pvalue > _ALARM,
    )


def _costs(run: Run) -> Costs:
    """Measure an iteration of each method, in one thread, on the toy problem, and the memory on a larger one."""
    ot, pair = pot(), datasets.two_modes(_TIMED)
    M, n = pair.cost.matrix(), len(pair.p)
    one = Problem(pair.p[None], pair.q, DenseCost(M))
    count = 20 if run.quick else 100

    def sinkhorn(method: str) -> None:
        ot.sinkhorn(pair.p, pair.q, M, 2 / n, method=method, numItermax=count, stopThr=0, warn=False)

    calls: dict[str, Callable[[], Any]] = {
        "Sinkhorn": lambda: sinkhorn("sinkhorn"),
        "Sinkhorn in logarithms": lambda: sinkhorn("sinkhorn_log"),
        "B-ADMM": lambda: list(snapshots(*pair, budgets=[count])),
        "Gibbs-OT, compiled": lambda: sampler.run(sampler.init(one), one, np.full(count, 1e-3), n_jobs=1),
    }
    seconds = {name: _cpu(call) / count for name, call in calls.items()}
    large = datasets.two_modes(400 if run.quick else 2000)
    big, matrix = Problem(large.p[None], large.q, DenseCost(large.cost.matrix())), large.cost.matrix()
    memory = {
        "Sinkhorn": _peak(lambda: ot.sinkhorn(large.p, large.q, matrix, 0.01, numItermax=5, stopThr=0, warn=False)),
        "B-ADMM": _peak(lambda: list(snapshots(large.p, large.q, large.cost, budgets=[2]))),
        "Gibbs-OT": _peak(lambda: sampler.run(sampler.init(big), big, np.full(5, 1e-3), n_jobs=1)),
        "the cost matrix": matrix.nbytes,
    }
    return Costs(seconds, memory)


def _cpu(call: Callable[[], Any]) -> float:
    """Return the CPU seconds of a second call."""
    call()
    begun = time.process_time()
    call()
    return time.process_time() - begun


def _peak(call: Callable[[], Any]) -> int:
    """Return the most bytes of arrays at one time in a second call."""
    call()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _cost_claims(costs: Costs) -> list[Claim]:
    seconds, memory = costs
    times = ", ".join(f"{1e6 * value:.3g} us ({name})" for name, value in seconds.items())
    sizes = ", ".join(f"{value / 1e6:.3g} MB ({name})" for name, value in memory.items())
    return [
        Claim(
            "Sinkhorn, B-ADMM and Gibbs-OT share the complexity of an iteration; B-ADMM may be the slowest, because it "
            "needs log and exp.",
            f"CPU time of an iteration with {_TIMED} x {_TIMED} points: {times}. All but the last are NumPy code, so "
            "the last is not comparable; Sinkhorn in logarithms is what runs where the plain one underflows.",
            seconds["B-ADMM"] > max(seconds["Sinkhorn"], seconds["Gibbs-OT, compiled"]),
        ),
        Claim(
            "Sinkhorn and Gibbs-OT can take only O(m1 + m2) memory beside the cost matrix.",
            f"The arrays of a run, at most at one time: {sizes}. POT's Sinkhorn keeps exp(-M / epsilon), which others "
            "need not; a sweep of Gibbs-OT has a few vectors, and with distances between points no matrix at all.",
            memory["Gibbs-OT"] < 0.05 * memory["the cost matrix"],
        ),
    ]


def _draw(warm: Warm, biases: list[Bias]) -> Figure:
    """Draw the errors of warm and cold chains, and the biases."""
    figure = plots.new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    x = np.arange(1, 1 + len(warm.curves["warm"]))
    for name, colour in (("warm", plots.PINK), ("cold", plots.DARK_GREY)):
        left.loglog(x, 100 * warm.curves[name], color=colour, label=f"{name} chains")
    left.axvline(warm.sweeps.mean(), color=plots.PALE_GREY, linewidth=4, zorder=0, label="warm chains have mixed")
    left.set(xlabel="sweeps (logarithmic)", ylabel="error of V(z) in % (logarithmic)", xlim=(1, len(x)))
    left.xaxis.set_major_formatter("{x:g}")
    left.yaxis.set_major_formatter("{x:g}")
    marks = dict(zip(dict.fromkeys(each.problem for each in biases), "osD^v", strict=False))
    colours = (plots.GREEN, plots.PINK, plots.DARK_GREY, plots.PALE_GREEN, plots.PALE_PINK)
    for (name, mark), colour in zip(marks.items(), colours, strict=False):
        own = [each for each in biases if each.problem == name]
        size = [each.points for each in own]
        right.loglog(size, [each.bias for each in own], mark, color=colour, markersize=6, label=name)
    most = max(each.points for each in biases)
    right.loglog([6, most], [6, most], color=plots.PALE_GREY, linewidth=4, zorder=0, label="m1 + m2")
    right.set(xlabel="points, m1 + m2 (logarithmic)", ylabel="bias of V(z) / T (logarithmic)")
    right.xaxis.set_major_formatter("{x:g}")
    right.yaxis.set_major_formatter("{x:g}")
    left.legend(frameon=False, fontsize=8.5, loc="center right", bbox_to_anchor=(1.0, 0.38))
    right.legend(frameon=False, fontsize=8.5)
    plots.hide_spines((left, right))
    return figure
