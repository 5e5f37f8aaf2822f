"""Other libraries beside the drop-ins for them, on the same data in one run on one thread.

    python benchmarks/peers.py                  # CPU seconds; libraries that are missing are named and left out
    python benchmarks/peers.py scipy torchcfm   # some of them

GUDHI: two diagrams of equal size. SciPy: points in the plane. torchcfm: `sample_plan` of its sampler on standard
normal minibatches, one of them shifted. pyemd: colour histograms. energyflow: all pairs of 30 events; its compiled
module needs an environment with NumPy 1. gensim: all pairs of documents of 20 to 60 words out of 2,000, with random
vectors in 50 dimensions. pertpy: the matrix of distances of 20 groups of cells in 50 dimensions without its diagonal;
its metric is written here as its source has it, the value of OTT's Sinkhorn with default options, which is
regularised, so that it differs. The last column is the largest relative difference of values. At 4,096 points
torchcfm's plan is not optimal, as POT stops at its limit of iterations; a second row has torchcfm without the limit.
For the cells a second row has the exact values by a loop over POT.
"""

# ruff: noqa: B023 (each problem is timed before the next is made)
from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from gibbsot import PointCost, solve, solve_batch
from timing import seconds

Array = NDArray[np.float64]
Row = tuple[str, Callable[[], Any], Callable[[], Any]]


def gudhi() -> Iterator[Row]:
    from gibbsot.compat.gudhi import wasserstein_distance

    theirs = import_module("gudhi.wasserstein").wasserstein_distance
    for n in (100, 300, 1000):
        births = np.random.default_rng(n).random((2, n, 1))
        X, Y = np.concatenate([births, births + np.random.default_rng(0).exponential(0.1, (2, n, 1))], axis=2)
        options: dict[str, Any] = {"order": 2.0, "internal_p": 2.0}
        yield f"diagrams of {n} points", lambda: theirs(X, Y, **options), lambda: wasserstein_distance(X, Y, **options)


def scipy() -> Iterator[Row]:
    from gibbsot.compat.scipy import wasserstein_distance_nd

    theirs = import_module("scipy.stats").wasserstein_distance_nd
    for n in (50, 200, 400):
        X, Y = np.random.default_rng(n).random((2, n, 2))
        yield f"{n} points in the plane", lambda: theirs(X, Y), lambda: wasserstein_distance_nd(X, Y)


def torchcfm() -> Iterator[Row]:
    import torch

    from gibbsot.compat.torchcfm import OTPlanSampler

    torch.set_num_threads(1)
    theirs = import_module("torchcfm.optimal_transport").OTPlanSampler("exact")

    def length(sampler: Any, x: Any, y: Any) -> Callable[[], float]:
        def run() -> float:
            a, b = sampler.sample_plan(x, y, replace=False)
            return float(((a - b) ** 2).sum())

        return run

    for d in (2, 784):
        for n in (256, 1024, 4096):
            generator = torch.Generator().manual_seed(n)
            x, y = torch.randn(n, d, generator=generator), 1 + torch.randn(n, d, generator=generator)
            yield f"minibatches of {n:,} in {d} dimensions", length(theirs, x, y), length(OTPlanSampler(), x, y)
            if n == 4096:
                unlimited = import_module("torchcfm.optimal_transport").OTPlanSampler("exact")
                unlimited.ot_fn = partial(import_module("ot").emd, numItermax=10**8)
                yield "the same, POT without its limit", length(unlimited, x, y), length(OTPlanSampler(), x, y)


def pyemd() -> Iterator[Row]:
    theirs = import_module("pyemd").emd
    for side in (4, 8):
        colours = np.indices((side,) * 3).reshape(3, -1).T.astype(float)
        D = np.linalg.norm(colours[:, None] - colours, axis=2)
        p, q = np.random.default_rng(0).integers(0, 100, (2, side**3)).astype(float)
        penalty = D.max() * abs(p.sum() - q.sum())
        mass = min(p.sum(), q.sum())
        yield (
            f"colour histograms of {side**3} bins",
            lambda: theirs(p, q, D),
            lambda: solve(p, q, D, mass=mass).value + penalty,
        )


def energyflow() -> Iterator[Row]:
    theirs = import_module("energyflow.emd").emds
    for n in (20, 100):
        rng = np.random.default_rng(0)
        events = [np.c_[rng.exponential(1, n), rng.normal(0, 0.3, (n, 2))] for _ in range(30)]
        pairs = list(combinations(range(30), 2))

        def original() -> Array:
            found = theirs(events, R=1.0, beta=1.0, norm=True, periodic_phi=False, n_jobs=1, verbose=0)
            return np.array([found[i, j] for i, j in pairs])

        def ours() -> Array:
            E, X = [e[:, 0] / e[:, 0].sum() for e in events], [e[:, 1:] for e in events]
            costs = [PointCost(X[i], X[j], "euclidean") for i, j in pairs]
            return solve_batch([E[i] for i, _ in pairs], [E[j] for _, j in pairs], costs, normalize=True).value

        yield f"all pairs of 30 jets of {n} particles", original, ours


def gensim() -> Iterator[Row]:
    from gibbsot.topics import wmd

    KeyedVectors = import_module("gensim.models").KeyedVectors
    rng = np.random.default_rng(0)
    names = [f"word{k}" for k in range(2000)]
    vectors = KeyedVectors(50)
    vectors.add_vectors(names, rng.normal(size=(2000, 50)).astype(np.float32))
    shares = 1 / np.arange(1, 2001)
    documents = [rng.choice(2000, rng.integers(20, 61), p=shares / shares.sum()) for _ in range(300)]
    words = [[names[k] for k in document] for document in documents]
    pairs = list(combinations(range(300), 2))

    def original() -> Array:
        return np.array([vectors.wmdistance(words[i], words[j], norm=False) for i, j in pairs])

    def ours() -> Array:
        return wmd(words, vectors, norm=False)[np.triu_indices(300, 1)]

    yield "word mover's distance, all pairs of 300 documents", original, ours


def pertpy() -> Iterator[Row]:
    jax = import_module("jax")
    PointCloud = import_module("ott.geometry.pointcloud").PointCloud
    LinearProblem = import_module("ott.problems.linear.linear_problem").LinearProblem
    Sinkhorn = import_module("ott.solvers.linear.sinkhorn").Sinkhorn
    solver = jax.jit(lambda x, y: Sinkhorn()(LinearProblem(PointCloud(x, y))).reg_ot_cost)
    for n in (300,):
        rng = np.random.default_rng(0)
        groups = [rng.normal(size=(n, 50)) + rng.normal(size=50) for _ in range(20)]
        pairs = list(combinations(range(20), 2))

        def original() -> Array:
            return np.array([float(solver(groups[i], groups[j])) for i, j in pairs])

        def ours() -> Array:
            return solve_batch(None, None, [(groups[i], groups[j]) for i, j in pairs]).value

        def exact() -> Array:
            ot = import_module("ot")
            return np.array([ot.emd2([], [], ot.dist(groups[i], groups[j])) for i, j in pairs])

        yield f"20 groups of {n} cells (formula of pertpy, regularised)", original, ours
        yield f"20 groups of {n} cells, exact by POT", exact, ours


PEERS = {function.__name__: function for function in (gudhi, scipy, torchcfm, pyemd, energyflow, gensim, pertpy)}
_MODULES = {"pertpy": "ott", "energyflow": "wasserstein.wasserstein"}  # what is imported


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(PEERS)} (default: all)")
    args = parser.parse_args()
    if unknown := set(args.names) - set(PEERS):
        parser.error(f"NAME: expected some of {', '.join(PEERS)}; got {', '.join(sorted(unknown))}")
    table = Table("library", "problem", "original", "gibbsot", "ratio", "difference")
    missing = []
    for name in args.names or PEERS:
        try:
            import_module(_MODULES.get(name, name))
        except ImportError:
            missing.append(name)
            continue
        for problem, original, ours in PEERS[name]():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as of torchcfm's deprecated argument of POT
                theirs, expected = seconds(original)
                mine, found = min((seconds(ours) for _ in range(2)), key=lambda timed: timed[0])
            error = np.max(np.abs(np.asarray(found) - expected) / np.maximum(np.abs(expected), 1e-300))
            cells = f"{theirs:.3g} s", f"{mine:.3g} s", f"{theirs / mine:.3g}", f"{error:.1e}"
            table.add_row(name, problem, *cells)
    Console(width=150).print(table)
    if missing:
        print(f"left out, not installed or not for this NumPy: {', '.join(missing)}")


if __name__ == "__main__":
    main()
