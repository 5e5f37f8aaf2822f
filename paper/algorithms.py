"""The authors' algorithm for Wasserstein NMF, as printed and as programmed, beside ours: exact costs over time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from gibbsot import GridCost, WassersteinNMF, plots, solve_batch

from .outcome import Claim, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

PAPER, PROGRAM, OURS, RANDOM, PLAIN = (
    "the paper's, as printed",
    "the authors' program",
    "ours",
    "ours, random start",
    "ours, random start, paper's steps",
)
_EPOCHS = {PAPER: 400, PROGRAM: 1000, OURS: 200, RANDOM: 200, PLAIN: 400}
IMAGES = 40  # images, evenly spread, over which the curves are
_POINTS = 1.25  # factor between the epochs that are evaluated
_STYLES = {
    PAPER: (plots.DARK_GREY, "-"),
    PROGRAM: (plots.DARK_GREY, "--"),
    OURS: (plots.PINK, "-"),
    RANDOM: (plots.PINK, "--"),
    PLAIN: (plots.GREEN, "-"),
}


class Point(NamedTuple):
    """The exact mean cost of some images in the current model, and the CPU seconds that its epochs took."""

    epoch: int
    seconds: float
    cost: float


class Fit(NamedTuple):
    """A fitted model and its curve.

    Attributes
    ----------
    model : WassersteinNMF
        The model.
    curve : list of Point
        The last point is the model that the fit returns, the best one.
    """

    model: WassersteinNMF
    curve: list[Point]

    @property
    def least(self) -> float:
        """The least exact cost."""
        return min(point.cost for point in self.curve)

    @property
    def seconds(self) -> float:
        """CPU seconds of the whole fit."""
        return self.curve[-1].seconds

    def until(self, cost: float) -> Point | None:
        """Return the first point at which the cost is reached."""
        return next((point for point in self.curve if point.cost <= cost), None)


class _Watch:
    """A callback that evaluates the current model exactly now and then; its own time does not count."""

    def __init__(self, X: Array, cost: GridCost, n_jobs: int | None) -> None:
        self.rows = np.unique(np.linspace(0, len(X) - 1, min(len(X), IMAGES)).round().astype(int))
        self.X, self.cost, self.n_jobs, self.curve = X[self.rows], cost, n_jobs, list[Point]()
        self.origin = time.process_time()

    def __call__(self, model: WassersteinNMF) -> None:
        if not self.curve or model.n_iter_ >= max(self.curve[-1].epoch + 1, _POINTS * self.curve[-1].epoch):
            run: Any = model._run
            (shard,) = run.shards.shards
            self.evaluate(shard.mean_memberships[self.rows] @ run.mean_components, model.n_iter_)

    def evaluate(self, P: Array, epoch: int) -> None:
        now = time.process_time()
        value = solve_batch(P, self.X, self.cost, normalize=True, n_jobs=self.n_jobs).value
        self.curve.append(Point(epoch, now - self.origin, float(np.mean(value))))
        self.origin += time.process_time() - now


def fit(run: Run, name: str, X: Array, cost: GridCost, K: int, init: Any) -> Fit:
    """Fit the images by an algorithm; `init` is the start of ours."""
    watch = _Watch(X, cost, run.n_jobs)
    epochs = _EPOCHS[name] // 5 if run.quick else _EPOCHS[name]
    options: Mapping[str, Any] = {
        PAPER: {"algorithm": "paper"},
        PROGRAM: {"algorithm": "d2suite"},
        OURS: {"init": init},
        RANDOM: {"init": "random"},
        PLAIN: {"init": "random", "step_size": 2.0, "tau": 5},
    }[name]
    model = WassersteinNMF(K, cost=cost, max_epochs=epochs, random_state=run.seed, n_jobs=run.n_jobs, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the curve shows it
        model.set_params(callbacks=[watch]).fit(X)
    watch.evaluate(model.memberships_[watch.rows] @ model.components_, model.n_iter_)
    return Fit(model, watch.curve)


def claims(fits: Mapping[str, Fit], level: float | None = None) -> list[Claim]:
    """Say what the differences between the algorithms do; `level` is a cost that the paper's should pass."""
    paper, program, ours, random, plain = (fits.get(name) for name in (PAPER, PROGRAM, OURS, RANDOM, PLAIN))
    assert paper is not None
    assert program is not None
    assert ours is not None
    found = list[Claim]()
    if level is not None:
        passed = paper.until(level)
        when = "not reached" if passed is None else f"passed in epoch {passed.epoch}, after {passed.seconds:.1f} s"
        found.append(
            Claim(
                f"The paper's algorithm, from a random start, reaches a cost of {level:.4f}",
                f"{when}; at best {paper.least:.3g}, and {_last(paper):.3g} after {paper.model.n_iter_} epochs",
                passed is not None,
            )
        )
    texts = [
        f"as printed {paper.seconds:.3g} s, the program {program.seconds:.3g} s; ours {ours.least:.3g}, "
        f"{ours.seconds:.3g} s",
        f"ours has the best cost of the printed algorithm after {_when(ours, paper.least)}, that of the program after "
        f"{_when(ours, program.least)}",
    ]
    if random is not None:
        texts.append(f"from the paper's start after {_when(random, paper.least)}, and ends at {random.least:.3g}")
    if plain is not None:
        text = f"after {_when(plain, paper.least)}, and ends at {plain.least:.3g}"
        texts.append(f"with the paper's steps and tau too, but the adaptive cooling and mean models, {text}")
    claim = "Chains are warm-started, and one factor lowers the temperature after every epoch"
    waits = (
        "the authors' program cools only in epochs whose V(z) exceeds 0.9 of the exact cost: after "
        f"{_cooled(program)} of {program.model.n_iter_} epochs, with {_last(program):.3g} at the end and "
        f"{program.least:.3g} at best; as printed, it ends at {_last(paper):.3g}"
    )
    return [*found, Claim(claim, "; ".join([waits, *texts]), None)]


def _cooled(fit: Fit) -> int:
    """Return the number of epochs after which the temperature fell."""
    T = np.array([epoch.temperature for epoch in fit.model.history_])
    return int((np.diff(T) < 0).sum())


def _when(fit: Fit, cost: float) -> str:
    point = fit.until(cost)
    return "no epoch" if point is None else f"{point.epoch} epochs, {point.seconds:.2g} s"


def _last(fit: Fit) -> float:
    """Return the cost of the last model, which need not be the best."""
    return fit.curve[-2].cost


def draw(fits: Mapping[str, Fit]) -> Figure:
    """Draw the exact costs over epochs and over CPU seconds."""
    figure = plots.new_figure(10, 3.8)  # says how to install matplotlib
    from matplotlib.ticker import LogLocator

    axes = figure.subplots(1, 2, sharey=True)
    for ax, field, name in zip(axes, ("epoch", "seconds"), ("epochs", "CPU seconds"), strict=True):
        for method, each in fits.items():
            colour, style = _STYLES[method]
            x, y = ([getattr(point, key) for point in each.curve[:-1]] for key in (field, "cost"))
            ax.loglog(x, np.multiply(1e3, y), color=colour, linestyle=style, label=method)
        ax.set_xlabel(name)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        ax.yaxis.set_minor_formatter("{x:g}")
    axes[0].set_ylabel("exact mean cost x 1000")
    plots.legend_below(figure)
    plots.hide_spines(axes)
    return figure
