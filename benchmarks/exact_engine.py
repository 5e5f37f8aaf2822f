"""The exact engine beside ``ot.emd2``: CPU time on one thread, each ratio in one run.

Usage: ``python benchmarks/exact_engine.py [dense|batch|grids|points|line] [--large]``
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np


def cpu(repeats: int, work: Callable[..., Any], *args: Any, **options: Any) -> tuple[float, Any]:
    """Return the least CPU time of a call, and what it returned."""
    best, result = np.inf, None
    for _ in range(repeats):
        start = time.process_time()
        result = work(*args, **options)
        best = min(best, time.process_time() - start)
    return best, result


def dense() -> None:
    import ot

    from gibbsot.solvers.network_simplex import solve_dense

    for n in (10, 20, 50, 100, 200, 400, 800, 1200, 2000):
        worst, line = np.inf, []
        for kind in ("random", "2-D", "10-D", "integer"):
            for uniform in (False, True):
                rng = np.random.default_rng(n)
                d = {"2-D": 2, "10-D": 10}.get(kind, 0)
                C = ot.dist(rng.random((n, d)), rng.random((n, d))) if d else rng.random((n, n))
                if kind == "integer":
                    C = np.floor(100 * C)
                a, b = (np.ones(n) if uniform else rng.random(n) for _ in range(2))
                a, b = a / a.sum(), b / b.sum()
                repeats = int(np.clip(40_000 / n**1.5, 1, 50))
                theirs, W = cpu(repeats, ot.emd2, a, b, C, numItermax=10**8)
                ours, answer = cpu(repeats, solve_dense, C, a, b)
                assert answer.status == ["optimal"], answer.status
                assert abs(answer.upper[0] - W) <= 1e-9 * abs(W) + 1e-12, (answer.upper, W)
                worst = min(worst, theirs / ours)
                line.append(f"{kind}{' u' if uniform else ''} {ours * 1e3:.3g}/{theirs * 1e3:.3g}")
        print(f"dense n = {n}: worst ratio {worst:.2f}; ms ours/emd2: {'; '.join(line)}", flush=True)


def batch() -> None:
    """Pairs of digits on their supports, in one call; without the data of the project, blobs of the same size."""
    import ot

    from gibbsot.solvers.network_simplex import solve_dense

    n, pairs = 28, 200
    rng = np.random.default_rng(0)
    grid = np.indices((n, n)).reshape(2, -1).T
    C = ot.dist(grid, grid) / n**2
    P = np.zeros((2 * pairs, n * n))
    for image in P:  # strokes: thick random polygons of about 110 pixels
        corners = rng.uniform(5, 23, (4, 2))
        path = np.concatenate([np.linspace(a, b, 20) for a, b in pairwise(corners)])
        near = ((grid[:, None] - path) ** 2).sum(axis=2).min(axis=1)
        image[:] = np.floor(255 * np.exp(-near)) * (near < 3)
    A, B = P[:pairs], P[pairs:]

    def loop() -> list[float]:
        values = []
        for a, b in zip(A, B, strict=True):
            i, j = np.flatnonzero(a), np.flatnonzero(b)
            values.append(float(ot.emd2(a[i] / a.sum(), b[j] / b.sum(), C[np.ix_(i, j)])))
        return values

    theirs, W = cpu(2, loop)
    ours, answer = cpu(2, solve_dense, C, A, B, plan=False)
    full, _ = cpu(2, solve_dense, C, A, B)
    assert set(answer.status) == {"optimal"}
    assert np.allclose(answer.upper, W, rtol=1e-9)
    print(
        f"batch of {pairs} strokes: {1e3 * ours / pairs:.2f} ms a pair "
        f"({1e3 * full / pairs:.2f} with plans and potentials), emd2 {1e3 * theirs / pairs:.2f}, {theirs / ours:.1f}x"
    )


def field(kind: str, n: int, seed: int) -> np.ndarray:
    """Return an image: a log-Gaussian field with correlation length 0.05, noise, or a shape in an empty square."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(256, 256))
    if kind == "noise":
        image = rng.random((256, 256))
    else:
        k = np.fft.fftfreq(256) * 256
        smooth = np.exp(-0.5 * (2 * np.pi * 0.05) ** 2 * (k[:, None] ** 2 + k**2))
        image = np.fft.ifft2(np.fft.fft2(noise) * smooth).real
        image = (image - image.mean()) / image.std()
        image = (
            np.exp(1.5 * image) if kind == "fields" else np.where(image > 0.6, 1.0 + 0.1 * rng.random((256, 256)), 0)
        )
    image = np.floor(1000 * image / image.max() * 60) + (kind != "shapes")
    step = max(1, 256 // n)
    image = image.reshape(256 // step, step, 256 // step, step).sum(axis=(1, 3))
    return np.kron(image, np.ones((n // 256, n // 256))) + rng.integers(0, 3, (n, n)) if n > 256 else image


def grids() -> None:
    import ot

    from gibbsot.solvers.multiscale import solve_grid

    large = "--large" in sys.argv
    for kind in ("fields", "noise", "shapes"):
        reference = None
        for n in (64, 128, 256, 512) if large else (64, 128):
            p, q = field(kind, n, 1), field(kind, n, 2)
            ours, answer = cpu(2 if n <= 128 else 1, solve_grid, (n, n), p, q, 1 / n)
            assert answer.status == "optimal", answer.status
            if reference is None:
                i, j = np.flatnonzero(p), np.flatnonzero(q)
                x = np.indices((n, n)).reshape(2, -1).T / n
                C = ot.dist(x[i], x[j])
                a, b = p.ravel()[i] / p.sum(), q.ravel()[j] / q.sum()
                reference, W = cpu(1, ot.emd2, a, b, C, numItermax=10**9)
                assert abs(answer.upper - W) < 1e-8 * W, (answer.upper, W)
            print(
                f"grid {n}^2 {kind}: {ours:.2f} s, {answer.pivots} pivots, {answer.rounds} rounds; "
                f"emd2 at 64^2 {reference:.2f} s: {reference / ours:.2f} times as long",
                flush=True,
            )


def points() -> None:
    import resource

    import ot

    from gibbsot.solvers.multiscale import solve_points

    large = "--large" in sys.argv
    for d, sizes in ((2, (2000, 5000, 10_000, 30_000, 100_000)), (3, (2000, 10_000, 30_000))):
        for n in sizes if large else sizes[:3]:
            rng = np.random.default_rng(n)
            X, Y, p, q = rng.random((n, d)), rng.random((n, d)), rng.random(n), rng.random(n)
            ours, answer = cpu(1, solve_points, X, Y, p, q)
            assert answer.status == "optimal", answer.status
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            line = f"points {n} in {d}-D: {ours:.2f} s, peak of the process so far {memory} MB"
            if n <= (5000 if large else 2000):
                C = ot.dist(X, Y)
                theirs, W = cpu(1, ot.emd2, p / p.sum(), q / q.sum(), C, numItermax=10**9)
                assert abs(answer.upper - W) < 1e-8 * W, (answer.upper, W)
                line += f"; emd2 {theirs:.2f} s, {theirs / ours:.1f}x"
            print(line, flush=True)


def line() -> None:
    import ot

    from gibbsot.solvers.line import solve_line

    for n in (1000, 100_000):
        rng = np.random.default_rng(n)
        x, y, p, q = rng.normal(size=n), rng.normal(size=n), rng.random(n), rng.random(n)
        ours, answer = cpu(3, solve_line, x, y, p, q)
        theirs, W = cpu(3, ot.emd2_1d, x, y, p / p.sum(), q / q.sum())
        assert answer.status == "optimal"
        assert abs(answer.upper - W) < 1e-9 * W
        print(f"line {n}: {1e3 * ours:.2f} ms with plan and potentials, emd2_1d {1e3 * theirs:.2f} ms (value)")


PARTS = {"dense": dense, "batch": batch, "grids": grids, "points": points, "line": line}

if __name__ == "__main__":
    chosen = [x for x in sys.argv[1:] if not x.startswith("-")] or list(PARTS)
    for name in chosen:
        PARTS[name]()
