"""Wasserstein NMF: quality over time beside the alternatives, and what an epoch takes, in one run.

    python benchmarks/nmf.py

Every method starts from the result of scikit-learn's NMF, which is not timed. Neither are the exact objectives, by
crossover over all images. Seconds are CPU seconds of one thread, because other work on the machine changes wall times;
two threads are timed by the clock. The faces are those that ``GIBBSOT_FACES`` names or that scikit-learn can download;
without them that part is left out.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.decomposition import NMF

import data as optional
from gibbsot import DenseCost, GridCost, datasets, plots, solve_batch
from gibbsot.core import native
from gibbsot.exact.annealed import crossover
from gibbsot.models._base import SMOOTHING
from gibbsot.models.nmf.estimator import WassersteinNMF
from gibbsot.oracle.chains import TargetChains
from gibbsot.oracle.mirror_descent import logarithms, mirror_step
from gibbsot.sampling import mixtures, sampler

K = 40
LEVELS = (0.0012, 0.0010)
FINE = 0.00071  # exact objective of a fit whose time is reported
Steps = tuple[float, float]  # of components and memberships
STEPS: tuple[Steps, ...] = ((1.5, 1.5), (2, 1.5), (2, 1), (1.5, 1), (1, 2), (3, 1))  # candidates for exact duals
SINKHORN: tuple[Steps, float, int] = (8, 8), 1e-3, 20  # the best of a few steps; epsilon; iterations per epoch
BLUE = "#3a6ea5"

Array = NDArray[Any]
Duals = Callable[[Array], tuple[float | None, Array]]  # of models; with their objective, if it comes with them
console = Console(width=130)


class Data(NamedTuple):
    """Images as measures, and the start of all methods: scikit-learn's NMF, normalised, and its exact objective."""

    X: Array
    cost: GridCost
    components: Array
    memberships: Array
    plain: float

    def model(self, **parameters: Any) -> WassersteinNMF:
        init = self.components, self.memberships  # as init="nmf" is
        return WassersteinNMF(K, cost=self.cost, init=init, random_state=0, **parameters)


def prepared(X: Array, shape: tuple[int, int]) -> Data:
    cost = GridCost(shape)
    nmf = NMF(K, max_iter=200, random_state=0)
    W = nmf.fit_transform(X) * nmf.components_.sum(axis=1)
    D, W = (x / x.sum(axis=1, keepdims=True) for x in (nmf.components_, W))
    return Data(X, cost, D, W, objective(W @ D, X, cost))


def objective(P: Array, X: Array, cost: GridCost) -> float:
    return float(np.mean(solve_batch(P, X, cost).value))


class Curve(list[tuple[float, float]]):
    """Seconds and objectives."""

    def until(self, level: float) -> float:
        return next((seconds for seconds, value in self if value <= level), np.inf)

    def due(self, seconds: float, every: float) -> bool:
        return not self or seconds >= every * self[-1][0]

    @property
    def rise(self) -> float:
        """The largest rise over the best so far."""
        values = np.array([value for _, value in self])
        return float((values / np.minimum.accumulate(values)).max() - 1)


class Watch:
    """A callback that records the exact objective, and the seconds after each epoch, in total and in chains."""

    in_chains = 0.0  # seconds of all calls of the sampler's kernels in this process

    def __init__(self, data: Data, every: float, cold: bool) -> None:
        self.data, self.every, self.cold = data, every, cold
        self.curve, self.seconds = Curve(), [(0.0, 0.0)]
        self.origin = np.array([time.process_time(), Watch.in_chains])

    def __call__(self, model: WassersteinNMF) -> None:
        now = np.array([time.process_time(), Watch.in_chains])
        self.seconds.append(tuple(now - self.origin))
        run: Any = model._run
        (shard,) = run.shards.shards
        if self.curve.due(self.seconds[-1][0], self.every) or self.curve[-1][1] > LEVELS[-1]:
            self.evaluate(shard.mean_memberships @ run.mean_components)
        if self.cold:
            shard.oracle.load_potentials(np.zeros_like(self.data.X))
        self.origin += np.array([time.process_time(), Watch.in_chains]) - now  # this method's time is not the model's

    def evaluate(self, P: Array) -> None:
        self.curve.append((self.seconds[-1][0], objective(P, self.data.X, self.data.cost)))


def timed(run: Any) -> Any:
    """Return a function that advances chains, with its seconds added to those of all such calls."""

    def call(*arguments: Any, **options: Any) -> Any:
        before = time.process_time()
        result = run(*arguments, **options)
        Watch.in_chains += time.process_time() - before
        return result

    return call


def fit(data: Data, every: float = 1.1, cold: bool = False, **parameters: Any) -> tuple[WassersteinNMF, Watch]:
    """Return a model, and its record: an evaluation whenever its seconds have grown by a factor, and at the end."""
    watch = Watch(data, every, cold)
    model = data.model(callbacks=[watch], **parameters).fit(data.X)
    watch.evaluate(model.memberships_ @ model.components_)
    return model, watch


def descend(
    data: Data,
    steps: Steps,
    duals: Duals,
    level: float,
    seconds: float = np.inf,
    most: int = 1000,
    rise: float = np.inf,
) -> Curve:
    """Return the curve of the model's own optimiser, plain mirror descent, with given duals."""
    log_D = logarithms((1 - SMOOTHING) * data.components + SMOOTHING * data.X.mean(axis=0))  # as the model does
    log_W = logarithms((1 - SMOOTHING) * data.memberships + SMOOTHING / K)
    scale, curve, spent = data.cost.matrix().mean(), Curve(), 0.0
    for _ in range(most + 1):
        before = time.process_time()
        D, W = np.exp(log_D), np.exp(log_W)
        value, U = duals(W @ D)
        log_D = mirror_step(log_D, K / len(W) * (W.T @ U), steps[0] / scale)
        log_W = mirror_step(log_W, U @ D.T, steps[1] / scale)
        after = time.process_time()
        if value is not None or curve.due(spent, 1.1):  # of the model that was there before this iteration
            curve.append((spent, objective(W @ D, data.X, data.cost) if value is None else value))
        spent += after - before
        if curve[-1][1] <= level or spent > seconds or curve.rise > rise:
            break
    return curve


def by_emd(data: Data) -> Duals:
    M = data.cost.matrix()

    def duals(P: Array) -> tuple[float, Array]:
        U, values = np.empty_like(P), []
        for p, q, u in zip(P, data.X, U, strict=True):
            I, J = p > 1e-12, q > 1e-12  # noqa: E741
            _, log = ot.emd(p[I] / p[I].sum(), q[J] / q[J].sum(), M[np.ix_(I, J)], numItermax=10**8, log=True)
            u[:] = (M[:, J] - log["v"]).min(axis=1)  # off the support of p too
            values.append(log["cost"])
        return float(np.mean(values)), U

    return duals


def by_crossover(data: Data) -> Duals:
    """Return the duals of `by_emd` in less time, each warm-started from the one before."""
    U = np.zeros_like(data.X)

    def duals(P: Array) -> tuple[float, Array]:
        optima = [crossover(p, q, data.cost, u) for p, q, u in zip(P, data.X, U, strict=True)]
        U[:] = [optimum.f for optimum in optima]
        return float(np.mean([optimum.value for optimum in optima])), U

    return duals


def by_sinkhorn(data: Data, epsilon: float, iterations: int) -> Duals:
    """Return entropic duals, each warm-started from the one before."""
    M, last = data.cost.matrix(), dict[int, Any]()

    def duals(P: Array) -> tuple[None, Array]:
        for b, (p, q) in enumerate(zip(P, data.X, strict=True)):
            C, start = np.ascontiguousarray(M[:, q > 0]), last.get(b)
            _, log = ot.sinkhorn(p, q[q > 0], C, epsilon, numItermax=iterations, warmstart=start, log=True, warn=False)
            last[b] = np.log(log["u"]), np.log(log["v"])
        return None, epsilon * np.stack([last[b][0] for b in range(len(P))])

    return duals


def best_steps(data: Data) -> dict[float, Steps]:
    """Return the best steps of exact duals for each level, by a sweep."""
    table = Table("components", "memberships", title="exact duals: epochs to a level, by steps")
    for level in LEVELS:
        table.add_column(f"{level:.4f}", justify="right")
    needed, most = dict[Steps, list[float]](), 40
    for steps in STEPS:
        curve = descend(data, steps, by_crossover(data), LEVELS[-1], most=most, rise=0.02)
        needed[steps] = [next((k for k, (_, v) in enumerate(curve) if v <= level), np.inf) for level in LEVELS]
        swings = "swings" if curve.rise > 0.02 else f"> {most}"
        table.add_row(*map(str, steps), *(swings if k == np.inf else str(k) for k in needed[steps]))
        most = int(min(most, needed[steps][-1]))
    console.print(table)
    return {level: min(STEPS, key=lambda steps: needed[steps][k]) for k, level in enumerate(LEVELS)}


class Report:
    """Rows of a quantity, its measured value, the target, and whether it is met."""

    def __init__(self) -> None:
        self.table = Table(title=f"Wasserstein NMF, K = {K}, kernels: {native.name()}, one thread unless said")
        self.table.caption = "ot.sinkhorn: epsilon {1:g}, {2} iterations per epoch, warm-started".format(*SINKHORN)
        for column in ("what", "measured", "target", ""):
            self.table.add_column(column, justify="left" if column == "what" else "right")

    def row(self, what: str, measured: str, wanted: str = "", good: bool | None = None) -> None:
        self.table.add_row(what, measured, wanted, "" if good is None else "[green]yes" if good else "[red]no")

    def fitted(self, name: str, model: WassersteinNMF, watch: Watch, most: float) -> None:
        value = watch.curve[-1][1]
        what = f"   {name}: {model.n_iter_:,} epochs in {watch.seconds[-1][0]:.3g} s"
        self.row(what, f"{1e3 * value:.3g}e-3", f"<= {1e3 * most:.3g}e-3", value <= most)

    def sooner(self, duals: str, steps: Steps, level: float, ours: Curve, theirs: Curve, wanted: float = 0) -> None:
        mine, other = ours.until(level), min(theirs.until(level), theirs[-1][0])
        over = ">" if theirs.until(level) == np.inf else ""
        what = f"   {1e3 * level:.1f}e-3 in {mine:.3g} s, with {duals}'s duals, steps {steps[0]:g} and {steps[1]:g}, in"
        wish = (f">= {wanted:g}x", other >= wanted * mine) if wanted else ()
        self.row(f"{what} {over}{other:.3g} s", f"{over}{other / mine:.3g}x", *wish)


def digits(report: Report, data: Data, axes: list[Axes], peer: float, quick: bool) -> tuple[WassersteinNMF, Watch]:
    """Fit the model, with more epochs, with cold chains, and its optimiser with other duals."""
    report.row("digits, exact mean objective: scikit-learn's NMF", f"{1e3 * data.plain:.3g}e-3")
    model, watch = fit(data, 1.4 if quick else 1.1)
    ours = watch.curve
    report.fitted("default", model, watch, 0.0008)
    report.row(f"      time to {1e3 * FINE:.2f}e-3", f"{ours.until(FINE):.3g} s")
    if not quick:
        longer, watched = fit(data, max_epochs=10 * model.max_epochs)
        report.fitted(f"at most {longer.max_epochs:,} epochs", longer, watched, 0.0007)
        rise = watched.curve.rise
        report.row("      largest rise above the best value so far", f"{rise:.1%}", "<= 5.0%", rise <= 0.05)
        cold = fit(data, 1.4, cold=True)[1].curve
        what = f"   default, but chains start cold in every epoch: {cold[-1][0]:.3g} s"
        report.row(what, f"{1e3 * cold[-1][1]:.3g}e-3", "worse", cold[-1][1] > ours[-1][1])
        title = f"chains, {model.n_iter_} epochs"
        draw(axes[1], title, data.plain, (ours, plots.PINK, "warm"), (cold, plots.PALE_PINK, "cold"))
    best = dict.fromkeys(LEVELS, STEPS[0]) if quick else best_steps(data)
    levels = {steps: level for level, steps in best.items()}  # the lowest for each steps
    exact = {steps: descend(data, steps, by_emd(data), level, peer) for steps, level in levels.items()}
    for level, steps in best.items():
        report.sooner("ot.emd", steps, level, ours, exact[steps], 30)
    tuned, epsilon, iterations = SINKHORN
    entropic = descend(data, tuned, by_sinkhorn(data, epsilon, iterations), 0, 4 if quick else 25)
    for level in LEVELS:
        report.sooner("ot.sinkhorn", tuned, level, ours, entropic, 10 if level == LEVELS[-1] else 0)
    others = (exact[steps], plots.GREEN, "exact duals,\not.emd"), (entropic, BLUE, "entropic duals,\not.sinkhorn")
    long_run = ours if quick else watched.curve
    draw(axes[0], f"200 fives 28 x 28, {K} components", data.plain, *others, (long_run, plots.PINK, "Gibbs-OT"))
    return model, watch


def plain_epoch(data: Data, P: Array, T: float, sweeps: int, count: int = 8) -> float:
    """Return the seconds of an epoch's sweeps in plain NumPy, scaled up from those of a few images."""
    M, rng = data.cost.matrix().astype(np.float32), np.random.default_rng(0)
    some, seconds = np.linspace(0, len(P) - 1, count).astype(int), 0.0
    for p, q in zip(P[some].astype(np.float32), data.X[some].astype(np.float32), strict=True):
        C, of_g, of_h = np.ascontiguousarray(M[:, q > 0]), np.float32(T) / p, np.float32(T) / q[q > 0]
        h = np.zeros_like(of_h)
        before = time.process_time()
        for _ in range(sweeps):
            U = (C + h).min(axis=1)
            g = U - rng.standard_exponential(len(U), np.float32) * of_g
            L = (g[:, None] - C).max(axis=0)
            h = L + rng.standard_exponential(len(L), np.float32) * of_h
        seconds += time.process_time() - before
    return seconds * len(P) / count


def an_epoch(report: Report, name: str, data: Data, model: WassersteinNMF, watch: Watch, least: float) -> None:
    """Compare the seconds of an epoch with those of plain NumPy and of a dense matrix, and split them."""
    usual = [
        k for k, epoch in enumerate(model.history_) if k and np.isnan(epoch.upper)
    ]  # no initialisation, no exact evaluation
    seconds, in_chains = np.diff(watch.seconds, axis=0)[usual].mean(axis=0)
    sweeps = float(np.mean([model.history_[k].sweeps for k in usual]))
    T, P = model.history_[-1].temperature, model.memberships_ @ model.components_
    dense, before = (
        TargetChains(DenseCost(data.cost.matrix(), np.float32), data.X, tau=model._resolved("tau")),
        Watch.in_chains,
    )
    done = dense(P, T)[2].sweeps.mean()
    native = seconds - in_chains + (Watch.in_chains - before) * sweeps / done
    plain = plain_epoch(data, P, T, round(sweeps)) * sweeps / round(sweeps)
    report.row(f"{name}, time per epoch, {sweeps:.1f} sweeps per image", f"{seconds:.3g} s")
    report.row("   the same with our kernels for a dense matrix", f"{native:.3g} s, {native / seconds:.3g}x")
    what = "   the same sweeps in NumPy, float32, a matrix per image (8 images, scaled up)"
    report.row(what, f"{plain:.3g} s, {plain / seconds:.3g}x", f">= {least:g}x", plain >= least * seconds)
    share, all_share = (1 - swept / all for all, swept in ((seconds, in_chains), watch.seconds[-1]))
    report.row("   share of an epoch outside the kernels of the sampler", f"{share:.0%}", "<= 25%", share <= 0.25)
    what = "   share of a whole fit outside them, with the first chains and exact evaluations"
    report.row(what, f"{all_share:.0%}", "< 35%", all_share < 0.35)
    run: Any = model._run
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(20):
        for n in times:
            run.shards.shards[0].oracle.n_jobs, start = n, time.perf_counter()
            run.epoch(model._settings(run))
            times[n].append(time.perf_counter() - start)
    ratio = min(times[1]) / min(times[2])
    report.row("   n_jobs=2 against 1, wall-clock time, best of twenty", f"{ratio:.3g}x", ">= 1.7x", ratio >= 1.7)
    whole = []
    for n in times:
        start = time.perf_counter()
        WassersteinNMF(K, cost=data.cost, max_epochs=model.n_iter_, random_state=0, n_jobs=n).fit(data.X)
        whole.append(time.perf_counter() - start)
    ratio = whole[0] / whole[1]
    what = f"   the same for a whole fit from the data, {model.n_iter_} epochs"
    report.row(what, f"{whole[0]:.3g} s, {whole[1]:.3g} s, {ratio:.3g}x", ">= 1.7x", ratio >= 1.7)


def draw(ax: Axes, title: str, plain: float, *curves: tuple[Curve, str, str]) -> None:
    """Draw curves with their names at their ends."""
    ax.axhline(1e3 * plain, color=plots.GREY, linestyle=(0, (4, 3)), linewidth=1)
    transform = ax.get_yaxis_transform()
    ax.text(1, 1e3 * plain, "scikit-learn's NMF", color=plots.GREY, ha="right", va="bottom", transform=transform)
    for curve, colour, name in curves:
        x, y = np.array([point for point in curve if point[0] > 0]).T
        ax.plot(x, 1e3 * y, color=colour, linewidth=2.4 if colour == plots.PINK else 1.6)
        ax.annotate(name, (x[-1], 1e3 * y[-1]), (6, 0), textcoords="offset points", color=colour, va="center")
    ax.set(xscale="log", xlabel="CPU seconds after the start, one thread")
    ax.set_xlim(right=4 * max(curve[-1][0] for curve, _, _ in curves))  # space for the names
    ax.xaxis.set(major_locator=LogLocator(subs=(1, 3)), major_formatter="{x:g}", minor_locator=NullLocator())
    ax.yaxis.set_major_locator(MaxNLocator(6))
    ax.set_title(title, loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/bench/nmf.png"), help="the picture")
    parser.add_argument("--peer-seconds", type=float, default=240.0, help="time limit of exact duals")
    parser.add_argument("--quick", action="store_true", help="short runs, no sweep of step sizes")
    options = parser.parse_args()
    quick, report = options.quick, Report()
    warnings.simplefilter("ignore")
    for module in (sampler, mixtures):
        module.__dict__["run"] = timed(module.run)
    figure = Figure(figsize=(9, 4) if quick else (13, 4), layout="constrained")
    axes = list(figure.subplots(1, 2 if quick else 3, width_ratios=(5, 3) if quick else (5, 3, 3)))

    fives = prepared(datasets.mnist_fives(), (28, 28))
    model, watch = digits(report, fives, axes, 10.0 if quick else options.peer_seconds, quick)
    an_epoch(report, "digits", fives, model, watch, 20)
    axes[0].set_ylabel("exact mean transport cost x 1000")

    images = optional.faces((32, 27), console)
    if images is None:
        figure.delaxes(axes[-1])
    else:
        faces = prepared(images, (32, 27))
        report.row("faces, exact mean objective: scikit-learn's NMF", f"{1e3 * faces.plain:.3g}e-3")
        model, watch = fit(faces, 4, max_epochs=20) if quick else fit(faces, 1.4)
        report.fitted("default", model, watch, faces.plain)
        report.row("      below scikit-learn's by", f"{1 - watch.curve[-1][1] / faces.plain:.0%}")
        an_epoch(report, "faces", faces, model, watch, 60)
        draw(axes[-1], f"400 faces 32 x 27, {K} components", faces.plain, (watch.curve, plots.PINK, "Gibbs-OT"))

    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=160)
    console.print(report.table)


if __name__ == "__main__":
    main()
