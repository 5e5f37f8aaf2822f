"""Which oracle when: losses that the library does not have, minimised with defaults by every oracle, in one run.

    python benchmarks/own_losses.py [clustering] [smoothing] [nmf] [training] [median] [stations] [tree] [mixing]

Everything is `gibbsot.Oracle` and `gibbsot.mirror_descent.minimize` with their defaults. What differs is ``method=``,
and beside it the same loop with the duals of ``ot.emd``.

- clustering: 400 digits 8 x 8 of scikit-learn, ten centers, which begin as digits chosen at random. Six rounds of exact
  assignments and 20 iterations for the centers. The start has a mean cost of about 0.0100.
- smoothing: ``sum W(p_t, x_t) + 2 sum W(p_t, p_t+1)`` of 40 frames 16 x 16, two blobs (standard deviation 0.05) that
  move a quarter of a circle; the positions of each frame are off by noise of such a size that the loss begins at 0.931.
- nmf: 200 fives 28 x 28 as mixtures of 40 components, from scikit-learn's NMF, 20 iterations. `WassersteinNMF` itself,
  whose chains take many more and shorter steps, is in ``benchmarks/oracles.py``.
- training: the network of ``benchmarks/torch_loss.py``, 12 epochs of 100 fives, learning rate 0.015.
- median: one image that minimises the mean of the costs to 60 fives 28 x 28 with the sum of absolute differences of
  coordinates, from their mean.
- stations: histograms of 30 draws at 40 stations on a line, 48 bins, absolute differences: ``sum W(p_s, x_s) +
  sum W(p_s, p_s+1)``, from the histograms. Where the truth is known: the mean cost to it, too.
- tree: 32 digits 8 x 8 at the leaves of a binary tree. Its 31 inner nodes minimise the sum of the costs along all
  edges, from the means of the leaves below them.
- mixing: how near V(z) is to its stationary mean on the smoothing loss when chains end as mixed, by `run_until_settled`
  with 4,000 sweeps and by the paper's test, and when a call of the oracle does: then the mean over its 79 chains.
  Measures move from iteration 4 to 5, 9 to 10, 19 to 20, 39 to 40, 59 to 60 and 89 to 90; chains come from the first of
  each, at the oracle's first temperature and at a tenth of it. Calls are made with 30 seeds.

Constants were chosen on the first four, and a limit of "auto" after the median had been measured; nothing was chosen on
stations and tree. "auto" is run with several seeds, the others with the first; it keeps exact duals ("kept") on all but
the training and the first call of nmf and median. Seconds are CPU seconds of one thread, with the exact evaluations
that `minimize` makes itself. Values are exact.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import ot
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from gibbsot import Cost, GridCost, Oracle, datasets, solve_batch
from gibbsot.mirror_descent import minimize
from gibbsot.models._base import SMOOTHING
from gibbsot.models.nmf.start import nmf_factors
from gibbsot.oracle.gradients import centred, measures
from gibbsot.oracle.pairs import NEW, ChainOracle
from gibbsot.sampler import run, run_until_settled

METHODS = ("auto", "exact", "gibbs", "POT")
COLUMNS = {"auto": 'method="auto"', "exact": 'method="exact"', "gibbs": 'method="gibbs"', "POT": "ot.emd"}
WITHOUT_POT = ("nmf", "median")  # where it would take minutes
SEEDS_OF_CALLS = 30  # with which each call is made
TARGETS = {"clustering": (0.0070, 5.0), "smoothing": (0.33, 4.0)}  # values, and seconds with method="auto"

Array = NDArray[np.float64]
console = Console(width=240)  # a row has all oracles


class Found(NamedTuple):
    """What an oracle returns."""

    values: Array
    grad_p: Array
    grad_q: Array


class PotOracle:
    """The same as `Oracle`, with a new run of POT's network simplex for every pair."""

    def __init__(self, cost: Cost, targets: Array | None = None) -> None:
        self.M, self.targets = cost.matrix().astype(np.float64), targets

    def __call__(self, P: Array, Q: Array | None = None) -> Found:
        Q = self.targets if Q is None else Q
        assert Q is not None
        P = np.broadcast_to(P, (len(Q), self.M.shape[0]))
        values, F, G = np.empty(len(P)), np.empty(P.shape), np.empty(Q.shape)
        for b, (p, q) in enumerate(zip(P, Q, strict=True)):
            I, J = p > 0, q > 0  # noqa: E741
            _, log = ot.emd(p[I], q[J] * (p[I].sum() / q[J].sum()), self.M[np.ix_(I, J)], numItermax=10**8, log=True)
            F[b] = (self.M[:, J] - log["v"]).min(axis=1)  # off the supports too
            G[b] = (self.M - F[b][:, None]).min(axis=0)
            values[b] = log["cost"]
        return Found(values, centred(F), centred(G))


Make = Callable[..., Any]  # an oracle for a cost and perhaps targets


class Outcome(NamedTuple):
    """What came of a loss: its exact value, CPU seconds, and the method of the last call."""

    start: float
    value: float
    seconds: float
    note: str = ""


def clustering(make: Make, seed: int) -> Outcome:
    X, cost = load_digits().data[:400], GridCost((8, 8))
    X = X / X.sum(axis=1, keepdims=True)
    centers = X[np.random.default_rng(seed).choice(len(X), 10, replace=False)]
    nearest = np.empty(0, np.intp)

    def assigned(centers: Array) -> Array:
        return np.stack([solve_batch(X, center, cost).value for center in centers])

    def loss(centers: Array) -> tuple[float, Array]:
        found, gradient = oracle(centers[nearest]), np.zeros_like(centers)
        np.add.at(gradient, nearest, found.grad_p / len(X))
        return found.values.mean(), gradient

    begin = time.process_time()
    oracle, first = make(cost, X), 0.0
    for step in range(6):
        costs = assigned(centers)
        nearest = costs.argmin(axis=0)
        if step == 0:
            first = costs.min(axis=0).mean()
            centers = np.stack([X[nearest == k].mean(axis=0) for k in range(len(centers))])
        centers = minimize(loss, centers, max_iter=20).x
    seconds = time.process_time() - begin
    return Outcome(first, assigned(centers).min(axis=0).mean(), seconds)


def frames(jitter: float, seed: int, count: int = 40, side: int = 16, width: float = 0.05) -> Array:
    """Return images of two blobs that move along arcs, whose positions are off by noise."""
    rng, grid = np.random.default_rng(seed), (np.arange(side) + 0.5) / side
    angle = np.linspace(0, np.pi / 2, count)
    off, X = jitter * rng.normal(size=(2, 2, count)), np.zeros((count, side, side))
    for (x, y), weight, radius, phase in zip(off, (1.0, 0.7), (0.3, 0.25), (0.0, np.pi), strict=True):
        x, y = x + 0.5 + radius * np.cos(angle + phase), y + 0.5 + radius * np.sin(angle + phase)
        rows, columns = (np.exp(-((grid - z[:, None]) ** 2) / (2 * width**2)) for z in (x, y))
        X += weight * rows[:, :, None] * columns[:, None]
    rows = X.reshape(count, -1)
    rows[rows < 1e-4] = 0
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def noisy_frames(seed: int, cost: Cost, start: float = 0.931) -> Array:
    """Return frames for which twice the sum of the costs between neighbours has a given value."""
    low, high = 0.0, 0.2
    for _ in range(16):
        X = frames((low + high) / 2, seed)
        smaller = 2 * solve_batch(X[:-1], X[1:], cost).value.sum() < start
        low, high = ((low + high) / 2, high) if smaller else (low, (low + high) / 2)
    return X


def coupled(make: Make, X: Array, cost: Cost, weight: float) -> tuple[float, float, float, Array]:
    """Minimise a sum of costs to X and between neighbours, from X; return start, value, seconds and result."""
    begin = time.process_time()
    near, next_to = make(cost, X), make(cost)

    def loss(P: Array) -> tuple[float, Array]:
        data, motion = near(P), next_to(P[:-1], P[1:])
        gradient = data.grad_p.copy()
        gradient[:-1] += weight * motion.grad_p
        gradient[1:] += weight * motion.grad_q
        return data.values.sum() + weight * motion.values.sum(), gradient

    P = minimize(loss, X).x
    seconds = time.process_time() - begin

    def exact(P: Array) -> float:
        return float(solve_batch(P, X, cost).value.sum() + weight * solve_batch(P[:-1], P[1:], cost).value.sum())

    return exact(X), exact(P), seconds, P


def smoothing(make: Make, seed: int) -> Outcome:
    cost = GridCost((16, 16))
    return Outcome(*coupled(make, noisy_frames(seed, cost), cost, 2.0)[:3])


def stations(make: Make, seed: int) -> Outcome:
    rng, x = np.random.default_rng(seed), (np.arange(48) + 0.5) / 48
    middle = 0.5 + 0.25 * np.sin(np.linspace(0, np.pi, 40))
    truth = np.exp(-((x - middle[:, None]) ** 2) / (2 * 0.12**2))
    truth /= truth.sum(axis=1, keepdims=True)
    X, cost = rng.multinomial(30, truth) / 30, GridCost(48, power=1)
    start, value, seconds, P = coupled(make, X, cost, 1.0)
    far = [float(solve_batch(Y, truth, cost).value.mean()) for Y in (X, P)]
    return Outcome(start, value, seconds, f"to the truth {far[0]:.4f} -> {far[1]:.4f}")


def tree(make: Make, seed: int) -> Outcome:
    X, cost = load_digits().data, GridCost((8, 8))
    X = X[np.random.default_rng(seed).choice(len(X), 32, replace=False)]
    X, n = X / X.sum(axis=1, keepdims=True), len(X)
    parents = np.arange(2 * n - 2) // 2  # of the nodes after the root; the inner ones are first
    means = np.concatenate([np.empty((n - 1, X.shape[1])), X])
    for k in range(n - 2, -1, -1):
        means[k] = means[2 * k + 1 : 2 * k + 3].mean(axis=0)
    inner, leaves = parents[: n - 2], parents[n - 2 :]
    begin = time.process_time()
    outside, inside = make(cost, X), make(cost)

    def loss(P: Array) -> tuple[float, Array]:
        last, among, gradient = outside(P[leaves]), inside(P[inner], P[1:]), np.zeros_like(P)
        np.add.at(gradient, leaves, last.grad_p)
        np.add.at(gradient, inner, among.grad_p)
        gradient[1:] += among.grad_q
        return last.values.sum() + among.values.sum(), gradient

    P = minimize(loss, means[: n - 1]).x
    seconds = time.process_time() - begin

    def exact(P: Array) -> float:
        return float(solve_batch(P[leaves], X, cost).value.sum() + solve_batch(P[inner], P[1:], cost).value.sum())

    return Outcome(exact(means[: n - 1]), exact(P), seconds)


def median(make: Make, seed: int) -> Outcome:
    X, cost = datasets.mnist_fives()[60 * seed : 60 * seed + 60], GridCost((28, 28), power=1)
    begin = time.process_time()
    oracle = make(cost, X)

    def loss(p: Array) -> tuple[float, Array]:
        found = oracle(p)
        return found.values.mean(), found.grad_p.mean(axis=0)

    p = minimize(loss, X.mean(axis=0)).x
    seconds = time.process_time() - begin
    first, last = (float(solve_batch(y, X, cost).value.mean()) for y in (X.mean(axis=0), p))
    return Outcome(first, last, seconds)


def nmf(make: Make, seed: int) -> Outcome:
    X, cost, K = datasets.mnist_fives(), GridCost((28, 28)), 40
    D, W = (x / x.sum(axis=1, keepdims=True) for x in nmf_factors(X, K, seed))
    start = (1 - SMOOTHING) * D + SMOOTHING * X.mean(axis=0), (1 - SMOOTHING) * W + SMOOTHING / K
    begin = time.process_time()
    oracle = make(cost, X)

    def loss(D: Array, W: Array) -> tuple[float, tuple[Array, Array]]:
        found = oracle(W @ D)
        return found.values.mean(), (W.T @ found.grad_p / len(X), found.grad_p @ D.T / len(X))

    D, W = minimize(loss, start, max_iter=20).x
    seconds = time.process_time() - begin
    first, last = (float(solve_batch(P, X, cost).value.mean()) for P in (start[1] @ start[0], W @ D))
    return Outcome(first, last, seconds)


def training(method: str, seed: int) -> Outcome:
    import torch

    from gibbsot.torch import WassersteinLoss
    from torch_loss import Task

    torch.set_num_threads(1)
    task = Task(100)
    start = task.train([(lambda logits, *_: 0 * logits.sum(), 1)], 1e-9).value
    if method == "POT":
        run = task.exact(12, 0.015)
    else:
        options: Any = {"rng": seed} if method in ("auto", "gibbs") else {}
        run = task.train([(WassersteinLoss(task.cost, method=method, from_logits=True, **options), 12)], 0.015)
    return Outcome(start, run.value, run.seconds)


def smoothed_pairs(iterations: tuple[int, ...]) -> list[tuple[Array, Array]]:
    """Return the pairs of measures of the smoothing loss after some iterations."""
    cost, seen = GridCost((16, 16)), []
    X = noisy_frames(0, cost)
    near, next_to = Oracle(cost, X), Oracle(cost)

    def note(record: Any, P: Array) -> None:
        if record.iteration in iterations:
            seen.append((np.concatenate([P, P[:-1]]), np.concatenate([X, P[1:]])))

    def loss(P: Array) -> tuple[float, Array]:
        data, motion = near(P), next_to(P[:-1], P[1:])
        gradient = data.grad_p
        gradient[:-1] += 2 * motion.grad_p
        gradient[1:] += 2 * motion.grad_q
        return data.values.sum() + 2 * motion.values.sum(), gradient

    minimize(loss, X, callback=note)
    return seen


def mixing() -> Iterator[Table]:
    """Yield how near V(z) is to its stationary mean, of chains that end as mixed and of calls that do."""
    cost, chains_off = GridCost((16, 16), dtype="float32"), defaultdict[str, list[Array]](list)
    calls_off: dict[int, list[tuple[bool, float, float]]] = {400: [], 4000: []}
    seen, count = smoothed_pairs((4, 5, 9, 10, 19, 20, 39, 40, 59, 60, 89, 90)), 0
    for (P, Q), (P_next, Q_next) in zip(seen[::2], seen[1::2], strict=True):
        for factor in (1.0, 0.1):
            chains = ChainOracle(cost, by_position=True, max_sweeps=4000)
            chains.evaluate(P, Q, None, False, 1e-6)
            T = factor * (chains.temperature or 1.0)
            chains.temperature = T
            for _ in range(3):
                chains.evaluate(P, Q, None, False, 1e-6)
            pair, ids = chains.marginals.chains(*measures(P_next, Q_next), 1e-6), [NEW // 2 + b for b in range(len(P))]
            state = chains.state(ids, pair)
            last, info, done = run_until_settled(state, pair, T, 4000)
            stationary = run(last, pair, np.full(16_000, T))[1].history[:, 4000:].mean(axis=1)
            count += len(P)
            means, sweeps = last_means(info.history)
            chains_off["settled"].append(np.stack([means / stationary - 1, sweeps])[:, done])
            info = run(state, pair, np.full(4000, T), tau=20)[1]
            means, sweeps = last_means(info.history, 20)
            chains_off["the paper's, lag 20"].append(np.stack([means / stationary - 1, sweeps])[:, sweeps < 4000])
            for most, found in calls_off.items():
                oracle = ChainOracle(cost, by_position=True, max_sweeps=most)
                oracle.load_state(chains.arrays())
                for seed in range(SEEDS_OF_CALLS):
                    oracle.key = seed
                    _, info, mixed = oracle._run(ids, pair, T)
                    means, sweeps = last_means(info.history)
                    found.append((mixed, means.sum() / stationary.sum() - 1, float(np.median(sweeps))))
    columns = "ended as mixed", "within 10 %", "farthest off", "sweeps, median"
    one = Table("mixing test", *columns, title="V(z) of chains beside its stationary mean")
    for name, parts in chains_off.items():
        off, sweeps = np.concatenate(parts, axis=1)
        one.add_row(name, f"{len(off)} of {count}", *_spread(off), f"{np.median(sweeps):.0f}")
    yield one
    all_of = Table("calls of the oracle", *columns, title="the mean of V(z) over the chains of a call")
    for most, rows in calls_off.items():
        off = np.array([off for mixed, off, _ in rows if mixed])
        length = np.median([length for _, _, length in rows])
        all_of.add_row(f"max_sweeps={most}", f"{len(off)} of {len(rows)}", *_spread(off), f"{length:.0f}")
    yield all_of


def last_means(history: Array, window: int | None = None) -> tuple[Array, Array]:
    """Return the means of V(z) over the last sweeps of chains, a third by default, and the numbers of sweeps."""
    sweeps = (~np.isnan(history)).sum(axis=1)
    means = [row[n - (window or n // 3) : n].mean() for row, n in zip(history, sweeps.tolist(), strict=True)]
    return np.array(means), sweeps


def _spread(off: Array) -> tuple[str, str]:
    return (f"{(np.abs(off) <= 0.1).mean():.1%}", f"{np.abs(off).max():.1%}") if len(off) else ("", "")


class Loss(NamedTuple):
    """A loss: what it is, and the function that minimises it; None for the training, which is PyTorch's."""

    title: str
    minimised: Callable[[Make, int], Outcome] | None


LOSSES = {
    "clustering": Loss("clustering of 400 digits 8 x 8, ten centers", clustering),
    "smoothing": Loss("smoothing of 40 frames 16 x 16, both move", smoothing),
    "nmf": Loss("NMF of 200 fives, 20 iterations", nmf),
    "training": Loss("training on 100 fives, 12 epochs", None),
    "median": Loss("median of 60 fives 28 x 28", median),
    "stations": Loss("histograms at 40 stations, both move", stations),
    "tree": Loss("inner nodes of a tree of 32 digits, both move", tree),
}


def outcome(name: str, method: str, seed: int) -> Outcome:
    """Return what came of a loss with an oracle."""
    loss = LOSSES[name].minimised
    if loss is None:
        return training(method, seed)
    options: Any = {"rng": seed} if method in ("auto", "gibbs") else {}

    def make(cost: Cost, targets: Array | None = None) -> Any:
        return PotOracle(cost, targets) if method == "POT" else Oracle(cost, targets, method=method, **options)

    return loss(make, seed)


def _shown(name: str, method: str, seed: int) -> Outcome:
    """Return what came of a loss, and print it while others are still to come."""
    found = outcome(name, method, seed)
    print(name, method, seed, _cell(found), found.note, file=sys.stderr, flush=True)
    return found


def _cell(found: Outcome) -> str:
    return f"{found.value:.4g}, {found.seconds:.3g} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(LOSSES), help=", ".join([*LOSSES, "mixing"]))
    parser.add_argument("--seeds", type=int, default=3, help="of method='auto'; the others have one")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = [name for name in options.names if name != "mixing"]
    oracles = [method for method in METHODS if method in options.methods]
    columns = ("loss", "start, seed 0", *(COLUMNS[method] for method in oracles), "target", "met")
    table = Table(*columns, title="exact values and CPU seconds of one thread, by default settings")
    for name in names:
        results = {
            method: [_shown(name, method, seed) for seed in range(options.seeds if method == "auto" else 1)]
            for method in oracles
            if method != "POT" or name not in WITHOUT_POT
        }
        cells = ["; ".join(_cell(found) for found in results.get(method, [])) for method in oracles]
        goal = met = ""
        if name in TARGETS and "auto" in results:
            value, seconds = TARGETS[name]
            goal = f"<= {value:g} in {seconds:g} s"
            met = "yes" if all(x.value <= value and x.seconds <= seconds for x in results["auto"]) else "no"
        table.add_row(LOSSES[name].title, f"{results[oracles[0]][0].start:.4g}", *cells, goal, met)
    if table.rows:
        console.print(table)
    if "mixing" in options.names:
        for table in mixing():
            console.print(table)


if __name__ == "__main__":
    main()
