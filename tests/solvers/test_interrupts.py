"""Ctrl-C during long computations of the kernels, and limits on their time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from gibbsot.core import native
from gibbsot.exact.simplex import solve_dense
from gibbsot.io.budget import Budget

if native.name() == "numpy":
    pytest.skip("the engine is compiled", allow_module_level=True)

# Each begins a computation of several seconds in one call.
WORK = {
    "dense": "solve_dense(rng.random((7000, 7000)), rng.random(7000), rng.random(7000))",
    "batch in threads": "solve_dense(rng.random((1500, 1500)), *rng.random((2, 120, 1500)), threads=2)",
    "one long problem in a thread": "solve_dense(rng.random((7000, 7000)), one_hot, rng.random((2, 7000)), threads=2)",
    "arcs": "long_arcs()",
    "k-d queries": "long_queries()",
    "points": "gibbsot.solve(*rng.dirichlet(np.ones(60000), 2), gibbsot.PointCost(X[:60000], X[60000:]))",
    "divergences": "gibbsot.solve(*rng.dirichlet(np.ones(60000), 2), clouds, kl=0.1, gap=1e-9)",
    "a graph": "gibbsot.solve(*rng.random((2, 1000, 1000)), gibbsot.GridCost((1000, 1000), power=1), normalize=True)",
    "graphs in threads": "gibbsot.solve_batch(*rng.dirichlet(np.ones(160000), (2, 4)), lattice, n_jobs=2)",
    "sparse pairs": "gibbsot.solve(None, None, few_pairs())",
    "diagrams": "long_diagrams()",
    "crossovers in threads": "long_crossovers()",
    "costs of their own, all arcs": "gibbsot.solve_batch(None, None, list(rng.random((2, 2500, 2500))) * 40, n_jobs=2)",
    "costs of their own, points": "gibbsot.solve_batch(None, None, [clouds] * 4, n_jobs=2)",
}
PREPARE = """
    import signal, sys, time
    import numpy as np
    from scipy import sparse
    import gibbsot
    from gibbsot.diagrams import wasserstein_distance
    from gibbsot.exact import methods as exact
    from gibbsot.exact.simplex import ArcProblem, solve_dense

    rng = np.random.default_rng(0)
    X = rng.random((120000, 2))
    clouds = gibbsot.PointCost(X[:60000], X[60000:])
    one_hot = rng.random((2, 7000))
    one_hot[0, 1:] = 0
    pair = gibbsot.Problem(*rng.dirichlet(np.ones(2500), (2, 4)), rng.random((2500, 2500)))

    def long_arcs():
        i, j = np.indices((3000, 3000)).reshape(2, -1)
        problem = ArcProblem(rng.random(3000), rng.random(3000))
        problem.add(i, j, rng.random(len(i)))
        problem.start(np.zeros(3000), np.zeros(3000), 2.0)
        print("begins", flush=True)
        problem.optimise()

    lattice = gibbsot.GridCost((400, 400), power=1)

    def few_pairs():
        i = np.repeat(np.arange(200000), 20)
        j = (i + np.tile(np.arange(20) ** 2, 200000)) % 200000
        cost = gibbsot.SparseCost(sparse.coo_array((rng.random(len(i)), (i, j)), (200000, 200000)))
        print("begins", flush=True)
        return cost

    def long_diagrams():
        birth = rng.random((2, 60000))
        life = rng.random((2, 60000))
        diagrams = np.stack([birth, birth + life], axis=2)
        print("begins", flush=True)
        wasserstein_distance(*diagrams)

    def long_crossovers():
        exact.choose = lambda problem: [exact.METHODS[-1]] * len(problem)
        for _ in range(100):
            exact.optima(pair, np.zeros(pair.p.shape), n_jobs=2)

    def long_queries():
        points = gibbsot.PointCost(X).by_trees()
        h = rng.random(len(X))
        print("begins", flush=True)
        for _ in range(1000):
            points.nearest(h, 8)
"""


def cpu_time(pid: int) -> float:
    """Return the CPU time that a process has taken: what it still does does not depend on what else runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CPU time is read from /proc")
@pytest.mark.parametrize("work", list(WORK))
def test_control_c_arrives_within_half_a_second(work):
    begins = "pass" if work in ("arcs", "k-d queries", "sparse pairs", "diagrams") else "print('begins', flush=True)"
    source = textwrap.dedent(PREPARE) + textwrap.dedent(f"""
        try:
            {begins}
            {WORK[work]}
        except KeyboardInterrupt:
            print("stopped", time.process_time(), flush=True)
        else:
            print("finished", time.process_time(), flush=True)
    """)
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begins\n"
            time.sleep(0.6)
            sent = cpu_time(process.pid)
            os.kill(process.pid, signal.SIGINT)
            word, when = process.stdout.readline().split()
        finally:
            process.kill()
    assert word == "stopped"
    threads = 2 if "threads" in work or "n_jobs" in WORK[work] else 1
    assert float(when) - sent < 0.5 * threads


def test_a_time_limit_leaves_a_plan_and_bounds():
    rng = np.random.default_rng(0)
    C, p, q = rng.random((1200, 1200)), rng.random(1200), rng.random(1200)
    answer = solve_dense(C, p, q, budget=Budget(max_seconds=0.0))
    assert answer.status == ["budget spent"]
    best = solve_dense(C, p, q)
    assert answer.lower[0] <= best.lower[0] <= best.upper[0] <= answer.upper[0]
    assert answer.pivots[0] < best.pivots[0]
    plan = answer.plan()
    np.testing.assert_allclose(plan.sum(axis=1), p / p.sum(), rtol=1e-14)
    np.testing.assert_allclose(plan.sum(axis=0), q / q.sum(), rtol=1e-14)
    resumed = solve_dense(C, p, q, basis=answer.basis)
    assert resumed.status == ["optimal"]
    assert resumed.upper[0] == pytest.approx(best.upper[0], rel=1e-12)
