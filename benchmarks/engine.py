"""Speed of the engine relative to POT, to the dense implementation and to the limits of the hardware.

    python benchmarks/engine.py

Alternatives are timed in turns and the minimum over several rounds counts, because other work on the machine only adds
time. The limits of the hardware are measured by ``probes.cpp``, which is compiled here with ``$CXX`` or ``c++``. Rows
that need a compiler or the compiled kernels are left out where there are none, and the output says so.
"""

from __future__ import annotations

import ctypes
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ot
from numpy.typing import DTypeLike, NDArray
from rich.console import Console
from rich.table import Table

from gibbsot import Cost, DenseCost, Gibbs, GridCost, Problem, datasets, solve_batch
from gibbsot.core import native
from gibbsot.sampling import sampler


def best(*works: Callable[[], Any], rounds: int = 7) -> list[float]:
    """Return the least time of each work, taken in turns."""
    times = np.full((rounds, len(works)), np.inf)
    for r in range(rounds):
        for k, work in enumerate(works):
            start = time.perf_counter()
            work()
            times[r, k] = time.perf_counter() - start
    return [float(t) for t in times.min(axis=0)]


def random_problem(cost: Cost, n: int = 1) -> Problem:
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(m), n) for m in cost.shape)
    return Problem(p, q, cost)


def sweeps(pair: Problem, n: int, n_jobs: int = 1) -> Callable[[], Any]:
    """Return a run of n sweeps of all problems."""
    state, T = sampler.init(pair), np.full(n, 1e-4)
    return lambda: sampler.run(state, pair, T, n_jobs=n_jobs)


def compile_probes() -> ctypes.CDLL:
    """Compile probes.cpp for this processor and load it; raise OSError where that is not possible."""
    root = Path(__file__).resolve().parents[1]
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O3", "-march=native", "-shared", "-fPIC"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        library = Path(folder) / "probes.so"
        command += [f"-I{root / 'native'}", str(root / "benchmarks" / "probes.cpp"), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{command[0]} failed: {done.stderr.strip()}")
        probes = ctypes.CDLL(str(library))
    probes.add_min_peak_float32.argtypes = [ctypes.c_size_t]
    probes.add_min_peak_float32.restype = ctypes.c_double
    probes.read_bandwidth_float32.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    probes.read_bandwidth_float32.restype = ctypes.c_double
    return probes


def sinkhorn(pair: Problem, n: int, dtype: DTypeLike) -> Callable[[], Any]:
    """Return n iterations of POT's Sinkhorn on the first problem."""
    p, q, M = (np.ascontiguousarray(x, dtype) for x in (pair.p[0], pair.q[0], pair.cost.matrix()))

    def run() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ot.sinkhorn(p, q, M, reg=0.05, numItermax=n, stopThr=0, warn=False)

    return run


class Report:
    """A table of: what was measured, ours, the alternative, their ratio, the target; and what was left out."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self.table = Table(title=f"engine, kernels: {native.name()}, one thread unless said")
        for column in ("what", "ours", "against", "ratio", "target", ""):
            self.table.add_column(column, justify="left" if column in ("what", "against") else "right")

    def row(
        self, what: str, ours: str, against: str, ratio: float, least: float | None = None, most: float | None = None
    ) -> None:
        target = least if most is None else most
        number = "{:.3g}x" if target is None or target > 1 else "{:.2%}" if target < 0.1 else "{:.0%}"
        if target is None:
            self.table.add_row(what, ours, against, number.format(ratio), "", "")
            return
        good = ratio >= target if most is None else ratio <= target
        wish = f"{'>=' if most is None else '<='} {number.format(target)}"
        self.table.add_row(what, ours, against, number.format(ratio), wish, "[green]yes" if good else "[red]no")


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def against_sinkhorn(report: Report) -> None:
    """One sweep against one iteration in POT's own precision, float64, and in float32 for the record."""
    M, n = np.random.default_rng(1).random((784, 130)), 500
    dense32, dense64 = (random_problem(DenseCost(M, dtype)) for dtype in (np.float32, np.float64))
    grid32 = random_problem(GridCost((28, 28), dtype=np.float32))
    peers = [sinkhorn(dense64, k, dtype) for dtype in (np.float64, np.float32) for k in (100, 100 + n)]
    ours = [sweeps(pair, n) for pair in (dense32, dense64, grid32)]
    t32, t64, grid, *theirs = (t / n for t in best(*ours, *peers, rounds=9))
    double, single = theirs[1] - theirs[0], theirs[3] - theirs[2]
    peer = f"POT Sinkhorn iteration 784 x 130, {ms(double)}"
    report.row("dense sweep 784 x 130, float32", ms(t32), peer, double / t32, 7)
    report.row("dense sweep 784 x 130, float64", ms(t64), peer, double / t64, 4)
    report.row("grid sweep 28 x 28, float32", ms(grid), peer, double / grid, 15)
    peer = f"POT Sinkhorn iteration in float32, {ms(single)}"
    report.row("dense sweep 784 x 130, float32", ms(t32), peer, single / t32)
    report.row("grid sweep 28 x 28, float32", ms(grid), peer, single / grid)


def against_own_dense(report: Report) -> None:
    grid = GridCost((64, 64), dtype=np.float32)
    ours, dense = best(
        sweeps(random_problem(grid), 200), sweeps(random_problem(DenseCost(grid.matrix(), np.float32)), 20), rounds=9
    )
    ours, dense = ours / 200, dense / 20
    report.row(
        "grid sweep 64 x 64, float32", ms(ours), f"our dense sweep 4,096 x 4,096, {ms(dense)}", dense / ours, 100
    )


def against_hardware(report: Report) -> None:
    if native.name() == "numpy":
        report.left_out.append("limits of the hardware: there are no compiled kernels")
        return
    kernels = native.load(native.name())
    try:
        probes = compile_probes()
    except OSError as error:
        report.left_out.append(f"limits of the hardware: {error}")
        return
    for shape in ((28, 28), (64, 64), (128, 128)):
        cost = GridCost(shape, dtype=np.float32)
        x = np.random.default_rng(0).random((100, cost.shape[1]), np.float32)
        out = np.empty_like(x)
        rates = []
        for _ in range(15):
            start = time.perf_counter()
            kernels.c_transform_grid(cost.axes, by_rows=True, x=x, out=out, n_threads=1)
            rates.append(x.size * sum(shape) / (time.perf_counter() - start))
        peak = max(probes.add_min_peak_float32(300_000) for _ in range(15))
        what = f"grid kernel {shape[0]} x {shape[1]}, float32"
        limit = f"add + min in registers, {peak / 1e9:.3g} G/s"
        report.row(what, f"{max(rates) / 1e9:.3g} G/s", limit, max(rates) / peak, 0.4)

    side = 20_000
    large = DenseCost(np.random.default_rng(0).random((side, side), np.float32))
    matrix = large.operand()[1]
    pair = random_problem(large)
    # n sweeps read the matrix n + 1 times
    reads = [
        (
            matrix.nbytes * 4 / best(sweeps(pair, 3), rounds=1)[0],
            probes.read_bandwidth_float32(matrix.ctypes.data, matrix.size),
        )
        for _ in range(4)
    ]
    ours, peak = np.max(reads, axis=0)
    limit = f"reading memory, {peak / 1e9:.3g} GB/s"
    report.row(f"dense sweep {side:,} x {side:,}, float32", f"{ours / 1e9:.3g} GB/s", limit, ours / peak, 0.7)


def noise(report: Report) -> None:
    """The share of a sweep that drawing its random numbers takes."""
    if native.name() == "numpy":
        report.left_out.append("drawing: there are no compiled kernels")
        return
    kernels = native.load(native.name())
    for dtype in (np.float32, np.float64):
        pair = random_problem(GridCost((28, 28), dtype=dtype))
        drawn = np.empty(10 * 784, dtype)  # of five sweeps; they fit into the cache

        def draw(draw: Callable[..., None] = kernels.exponentials, out: NDArray[Any] = drawn) -> None:
            for sweep in range(200):
                draw(seed=0, id=0, sweep_and_side=sweep, out=out)

        sweep, drawing = (t / 1000 for t in best(sweeps(pair, 1000), draw, rounds=25))
        what = f"drawing 2 x 784, {np.dtype(dtype).name}"
        most = 0.3 if dtype == np.float32 else None
        report.row(what, ms(drawing), f"a sweep 28 x 28, {ms(sweep)}", drawing / sweep, most=most)


def digits(report: Report) -> None:
    Q = datasets.mnist_fives()
    mean = Q.mean(axis=0) + 1e-6
    mean /= mean.sum()
    M = GridCost((28, 28)).matrix()
    exact = np.empty(len(Q))

    def emd() -> None:
        for b, q in enumerate(Q):
            J = np.flatnonzero(q)
            exact[b] = ot.emd2(mean, q[J], np.ascontiguousarray(M[:, J]))

    def ours() -> None:
        values[:] = solve_batch(mean, Q, cost, method=Gibbs(n_sweeps=240)).value

    values = np.empty(len(Q))
    cost = GridCost((28, 28), dtype=np.float32)
    mine, theirs = best(ours, emd, rounds=4)
    error = np.abs(values / exact - 1).mean()
    report.row("200 fives, 240 sweeps", ms(mine), f"loop of ot.emd2, {ms(theirs)}", theirs / mine, 10)
    report.row("200 fives, mean error of value", "240 sweeps", "exact", error, most=0.01)

    dense = Problem.normalised(np.repeat(mean[None], 200, axis=0), Q, DenseCost(M, np.float32))
    one, two = best(sweeps(dense, 240), sweeps(dense, 240, n_jobs=2), rounds=7)
    points = np.count_nonzero(Q, axis=1).mean()
    report.row(f"200 problems 784 x ~{points:.0f}, n_jobs=2", ms(two), f"n_jobs=1, {ms(one)}", one / two, 1.7)


def memory(report: Report) -> None:
    code = """
import time
import numpy as np, gibbsot
rng = np.random.default_rng(0)
p, q = rng.random((2, 256 * 256))
start = time.perf_counter()
cost = gibbsot.GridCost((256, 256), dtype=np.float32)
gibbsot.solve(p, q, cost, normalize=True, method=gibbsot.Gibbs(n_sweeps=500)).lower_bound
seconds = time.perf_counter() - start
# not resource.getrusage: its peak is that of the parent where this process was forked
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(float(peak) / 1024, seconds)
"""
    if not Path("/proc/self/status").exists():
        report.left_out.append("memory: there is no /proc/self/status")
        return
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    megabytes, seconds = map(float, done.stdout.split())
    what = f"256 x 256 pair, 500 sweeps in {seconds:.2g} s"
    report.row(what, f"{megabytes:.0f} MB", "peak of the process in MB", megabytes, most=300)


def main() -> None:
    report = Report()
    against_sinkhorn(report)
    against_own_dense(report)
    noise(report)
    digits(report)
    memory(report)
    against_hardware(report)
    console = Console(width=150)
    console.print(report.table)
    for reason in report.left_out:
        console.print(f"left out: {reason}", markup=False)


if __name__ == "__main__":
    main()
