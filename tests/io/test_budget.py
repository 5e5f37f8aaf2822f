"""Budgets of time and memory, Ctrl-C in verbose use, threads inside a problem, and the log."""

import io
import logging
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from cases import TREE_METRICS, solve_points
from gibbsot import DenseCost, Gibbs, GridCost, PointCost, Problem, solve, solve_batch
from gibbsot.core import native
from gibbsot.exact import methods as exact
from gibbsot.exact.annealed import crossover
from gibbsot.exact.methods import choose, memory_needed, optima
from gibbsot.exact.pyramid import solve_pyramid
from gibbsot.io import progress
from gibbsot.io.budget import Budget, reported_budget
from kernels import using

compiled = pytest.mark.skipif(native.name() == "numpy", reason="needs the compiled kernels")


class Countdown(Budget):
    """A run that is spent after it was asked so often."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    @property
    def spent(self) -> bool:
        self.left -= 1
        return self.left < 0


def check(solution, p, q, best, cost):
    """A coupling, feasible potentials, and bounds of the optimum."""
    plan = sparse.csr_array(solution.plan)
    np.testing.assert_allclose(plan.sum(axis=1), p / p.sum(), rtol=1e-13)
    np.testing.assert_allclose(plan.sum(axis=0), q / q.sum(), rtol=1e-13)
    assert plan.data.min() > 0
    assert solution.lower <= best.upper
    assert best.lower <= solution.upper
    if not solution.optimal:
        assert solution.status == "budget spent"
    M = cost.matrix()
    assert (solution.f[:, None] + solution.g <= M + 1e-13 * np.abs(M).max()).all()


def measures(seed, m1, m2):
    rng = np.random.default_rng(seed)
    p, q = rng.exponential(size=m1) ** 4, rng.exponential(size=m2) ** 4
    p[rng.random(m1) < 0.2] = q[rng.random(m2) < 0.2] = 0
    return rng, p, q


@compiled
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 6, 8, 12, 20, 40])
@pytest.mark.parametrize("metric", TREE_METRICS)
def test_points_end_with_bounds_and_a_coupling(count, metric):
    rng, p, q = measures(count, 1500, 1200)
    X, Y = rng.random((1500, 2)), rng.random((1200, 2))
    cost = PointCost(X, Y, metric)
    check(solve_points(X, Y, p, q, metric, budget=Countdown(count)), p, q, solve_points(X, Y, p, q, metric), cost)


@compiled
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 9])
def test_grids_end_with_bounds_and_a_coupling(count):
    _, p, q = measures(count, 24 * 25, 24 * 25)
    p, q = p / p.sum(), q / q.sum()
    cost = GridCost((24, 25), power=1)
    check(solve_pyramid(p, q, cost, budget=Countdown(count)), p, q, solve_pyramid(p, q, cost), cost)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("kernel", ["numpy", None])
def test_crossover_ends_with_bounds_and_a_coupling(count, kernel):
    rng, p, q = measures(count, 30, 40)
    cost = DenseCost(rng.random((30, 40)))
    U = np.zeros(30)
    with using(kernel or native.name()):
        check(crossover(p, q, cost, U, 2, budget=Countdown(count)), p, q, crossover(p, q, cost, U), cost)


def test_without_kernels_the_time_bounds_the_linear_programs():
    rng, p, q = measures(0, 300, 300)
    cost = DenseCost(rng.random((300, 300)))
    best = optima(Problem(p / p.sum(), q / q.sum(), cost))[0]
    with using("numpy"):
        check(crossover(p, q, cost, np.zeros(300), budget=Budget(max_seconds=1e-3)), p, q, best, cost)


def test_time_is_a_warning_and_the_bounds_hold():
    rng = np.random.default_rng(0)
    p, q, M = rng.random(700), rng.random(700), rng.random((700, 700))
    p, q = p / p.sum(), q / q.sum()
    with pytest.warns(ConvergenceWarning, match=r"1 of 1 problems ended with an open gap.*Allow more time") as warned:
        early = solve(p, q, M, max_seconds=1e-9)
    best = solve(p, q, M)
    assert early.status == "budget spent"
    assert f"the largest is {early.gap:.1e} of the value" in str(warned[0].message)
    assert early.lower_bound <= best.value <= early.upper_bound == pytest.approx(early.value)
    np.testing.assert_allclose(early.plan.sum(axis=1), p, rtol=1e-12)
    assert solve(p, q, M, max_seconds=1e3).value == best.value


@pytest.mark.parametrize("kind", ["one", "costs"])
def test_the_time_is_that_of_the_whole_batch(kind):
    rng = np.random.default_rng(1)
    P = rng.dirichlet(np.ones(200), size=6)
    clouds = [PointCost(rng.random((200, 5))) for _ in range(6)]
    with pytest.warns(ConvergenceWarning, match="6 of 6 problems.*Allow more time") as warned:
        result = solve_batch(P, P[::-1], clouds if kind == "costs" else clouds[0], max_seconds=1e-9, n_jobs=2)
    assert [warning.filename for warning in warned] == [__file__]  # one, and it points to the call
    assert set(result.status) == {"budget spent"}
    assert f"the largest is {result.gap.max():.1e} of the value" in str(warned[0].message)


def test_the_sampler_ends_in_time():
    rng = np.random.default_rng(2)
    p, M = rng.dirichlet(np.ones(400)), rng.random((400, 400))
    with pytest.warns(ConvergenceWarning, match="ended before its last sweep.*more time") as warned:
        result = solve(p, p[::-1], M, method=Gibbs(n_sweeps=10**6), max_seconds=0.2)
    assert [warning.filename for warning in warned] == [__file__]
    assert result.n_sweeps < 10**6
    assert not result.mixed
    assert result.lower_bound <= solve(p, p[::-1], M).value <= result.upper_bound


@compiled  # the figures are those of its methods
def test_memory_is_checked_before_the_work(monkeypatch):
    monkeypatch.setattr(exact, "Batch", None)
    cost = GridCost((64, 64))
    p = np.full(64 * 64, 1 / 64**2)
    with pytest.raises(ValueError, match=r"max_memory: this takes about 8.6e\+06 bytes, more than the 1e\+06 allowed"):
        solve(p, p, cost, max_memory=1e6)
    with pytest.raises(ValueError, match="max_memory: expected a positive number"):
        solve(p, p, cost, max_memory=0)
    with pytest.raises(ValueError, match="max_seconds: expected a positive number"):
        solve(p, p, cost, max_seconds=-1)


@compiled  # the figures are those of its methods
def test_memory_of_costs_and_chains_is_checked_before_the_work(monkeypatch):
    clouds = [PointCost(np.random.default_rng(b).random((50, 2))) for b in range(3)]
    monkeypatch.setattr("gibbsot.solvers.solve.optima", None)
    with pytest.raises(ValueError, match=r"max_memory: this takes about 8.4e\+04 bytes"):
        solve_batch(None, None, clouds, max_memory=1e4)
    with pytest.raises(ValueError, match=r"max_memory: this takes about 9.1e\+04 bytes"):
        solve(None, None, clouds[0], penalty=1.0, max_memory=1e4)
    monkeypatch.setattr("gibbsot.solvers.solve.pairs", None)  # chains have a matrix with additional points
    with pytest.raises(ValueError, match=r"max_memory: this takes about 6.2e\+04 bytes"):
        solve(None, None, clouds[0], method="gibbs", penalty=1.0, max_memory=1e4)
    with pytest.raises(ValueError, match=r"max_memory: this takes about 2.4e\+07 bytes"):
        solve(None, None, clouds[0], method=Gibbs(n_sweeps=10**6), max_memory=1e6)


@compiled
def test_memory_ends_the_work_on_the_way():
    rng, p, q = measures(3, 900, 900)
    X, Y = rng.random((900, 2)) ** 3, 1 - rng.random((900, 2)) ** 3
    cost, best = PointCost(X, Y), solve_points(X, Y, p, q)
    run = Budget(max_memory=1.0)
    check(crossover(p, q, cost, np.zeros(900), 1, budget=run), p, q, best, cost)
    assert run.spent


@compiled  # the figures are those of its methods
def test_the_memory_of_each_method():
    ones = np.ones(300)
    dense = DenseCost(np.zeros((300, 300)))
    assert memory_needed(Problem(ones, ones, dense)) == (200 + 48) * 600
    assert memory_needed(Problem(ones, ones, dense.astype(np.float32))) == (200 + 48) * 600 + 12 * 300 * 300
    points = PointCost(np.arange(300.0))
    assert [one.name for one in choose(Problem(ones, ones, points))] == ["line"]
    assert memory_needed(Problem(ones, ones, points)) == (300 + 48) * 600


@compiled
@pytest.mark.parametrize("n_jobs", [2, -1])
def test_threads_inside_a_problem_change_nothing(n_jobs):
    rng = np.random.default_rng(4)
    X, Y = rng.random((12_000, 2)), rng.random((12_000, 2))
    one = solve(None, None, PointCost(X, Y), gap=0.02)
    other = solve(None, None, PointCost(X, Y), gap=0.02, n_jobs=n_jobs)
    assert (one.lower_bound, one.upper_bound, one.status) == (other.lower_bound, other.upper_bound, other.status)
    assert (one.plan != other.plan).nnz == 0
    np.testing.assert_array_equal(one.potentials[0], other.potentials[0])


def test_the_log_tells_stages(caplog):
    rng = np.random.default_rng(5)
    X, Y = rng.random((600, 2)), rng.random((600, 2))
    with caplog.at_level(logging.INFO, "gibbsot"):
        solve(None, None, PointCost(X, Y))
    assert "1 problems of 600 x 600 points" in caplog.text
    caplog.clear()
    solve(None, None, PointCost(X, Y))
    assert caplog.text == ""


@compiled
def test_a_batch_reports_its_problems(caplog):
    rng = np.random.default_rng(6)
    P, Q, M = rng.dirichlet(np.ones(20), size=60), rng.dirichlet(np.ones(20), size=60), rng.random((20, 20))
    quiet = solve_batch(P, Q, M)
    with caplog.at_level(logging.INFO, "gibbsot"):
        seen = solve_batch(P, Q, M)
    assert "24 of 60 problems" in caplog.text
    assert "60 of 60 problems" in caplog.text
    np.testing.assert_array_equal(quiet.value, seen.value)
    np.testing.assert_array_equal(quiet.potentials[0], seen.potentials[0])
    again = solve_batch(P, Q, M, warm_start=seen)
    np.testing.assert_allclose(again.value, seen.value, rtol=1e-12)


PROGRAM = """
    import signal, warnings
    import numpy as np
    from gibbsot import {kind} as Cost, Gibbs, solve
    from gibbsot.io import progress
    progress._PAUSE = 0.0
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = np.random.default_rng(0)
    cost = {cost}
    p, q = rng.random(cost.shape[0]), rng.random(cost.shape[1])
    solve([1.0], [1.0], [[0.0]])
    print("ready", flush=True)
    result = solve(p, q, cost, normalize=True, verbose=True, {options})
    try:
        print(result.status, result.lower_bound <= result.upper_bound, flush=True)
        solve(p, q, cost, normalize=True, {options})
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@compiled
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize(
    ("kind", "cost", "options"),
    [
        ("DenseCost", "Cost(rng.random((2990, 8)) @ rng.random((8, 2990)))", ""),  # two thirds of a second
        ("PointCost", "Cost(rng.random((100_000, 2)), rng.random((100_000, 2)))", ""),
        ("GridCost", "Cost((600, 600), power=1)", ""),
        ("DenseCost", "Cost(rng.random((900, 900)))", "method=Gibbs(n_sweeps=100_000)"),
    ],
)
def test_ctrl_c_in_verbose_use_gives_bounds(kind, cost, options):
    program = textwrap.dedent(PROGRAM).format(kind=kind, cost=cost, options=options)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            assert process.stderr.readline()  # it has begun
            process.send_signal(signal.SIGINT)
            status, valid = process.stdout.readline().rsplit(maxsplit=1)
            assert status == ("estimate" if options else "budget spent")
            assert valid == "True"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
        finally:
            process.kill()


class PrintsInterrupted(io.RawIOBase):
    """A stream whose first write is interrupted by Ctrl-C."""

    def __init__(self):
        self.text = b""

    def writable(self):
        return True

    def write(self, data):
        first, self.text = not self.text, self.text + bytes(data)
        if first:
            signal.raise_signal(signal.SIGINT)
        return len(data)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_ctrl_c_in_the_middle_of_a_printed_line(monkeypatch):
    stream = PrintsInterrupted()
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(stream), line_buffering=True))
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    try:
        with reported_budget("solving", verbose=True, endless=True) as run:
            run.report("it has begun")
            assert run.spent
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, previous)
    assert stream.text.decode().splitlines() == [
        "solving: it has begun",
        "solving: stopping with the bounds so far; Ctrl-C again to interrupt",
    ]
