"""Threads, forks, spawned processes, joblib, asyncio, and interrupts of a loop that runs cells, as notebooks do."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse

from gibbsot import Cost, Gibbs, GraphCost, GridCost, PointCost, WassersteinNMF, solve, solve_batch

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

COST = GridCost((5, 5))
P, Q = np.random.default_rng(0).dirichlet(np.ones(25), (2, 8))


@pytest.fixture(scope="module")
def values() -> list[float]:
    """Exact costs, computed before in this thread; the threads of the kernels have been used."""
    found = solve_batch(P, Q, COST, n_jobs=2).value
    assert [solve(p, q, COST).value for p, q in zip(P, Q, strict=True)] == found.tolist()
    return found.tolist()


def cost_of(k: int) -> float:
    return solve(P[k], Q[k], COST).value


def test_threads_share_the_functions(values):
    """`solve`, `solve_batch` and `transform` in six threads at once, with threads of their own."""
    model = WassersteinNMF(2, cost=COST, max_epochs=3, tau=2, random_state=0, n_jobs=2).fit(P)
    W = model.transform(Q)
    estimates = solve_batch(P, Q, COST, method=Gibbs(rng=3)).value
    with ThreadPoolExecutor(6) as pool:
        tasks = [
            (pool.submit(solve_batch, P, Q, COST, n_jobs=2), pool.submit(model.transform, Q), pool.submit(cost_of, k),
             pool.submit(solve_batch, P, Q, COST, method=Gibbs(rng=3), n_jobs=2))
            for k in range(8)
        ]  # fmt: skip
        for k, (batch, transformed, one, gibbs) in enumerate(tasks):
            assert batch.result().value.tolist() == values
            np.testing.assert_array_equal(transformed.result(), W)
            assert one.result() == values[k]
            np.testing.assert_array_equal(gibbs.result().value, estimates)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, if a test before has imported it
def test_fork_after_use(values):
    """Threads of the kernels do not live in a child; its calls start their own."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(cost_of, range(8), chunksize=2) == values
        batches = [pool.apply_async(solve_batch, (P, Q, COST), {"n_jobs": 2}) for _ in range(2)]
        for batch in batches:
            assert batch.get(timeout=60).value.tolist() == values
    assert solve_batch(P, Q, COST, n_jobs=2).value.tolist() == values


@pytest.mark.slow
def test_spawn(values):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.starmap(solve, [(p, q, COST) for p, q in zip(P, Q, strict=True)])
    assert [one.value for one in found] == values


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of joblib about its own processes
def test_joblib(values):
    joblib = pytest.importorskip("joblib")
    for backend in ("loky", "threading"):
        pairs = zip(P, Q, strict=True)
        found = joblib.Parallel(2, backend=backend)(joblib.delayed(solve)(p, q, COST) for p, q in pairs)
        assert [one.value for one in found] == values


def test_asyncio(values):
    """The loop runs on while threads solve."""

    async def main() -> tuple[list[float], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        clock = asyncio.create_task(tick())
        found = await asyncio.gather(*(asyncio.to_thread(cost_of, k) for k in range(8)))
        clock.cancel()
        return found, ticks

    found, ticks = asyncio.run(main())
    assert found == values
    assert ticks > 1


# A kernel of a notebook runs cells in its main thread, inside an event loop; Ctrl-C or its stop button is a SIGINT.
LOOP = """
    import asyncio, signal, sys
    signal.signal(signal.SIGINT, signal.default_int_handler)
    names = {}

    async def serve():
        for cell in sys.stdin.read().split("---"):
            try:
                exec(cell, names)
            except KeyboardInterrupt:
                print("KeyboardInterrupt", flush=True)
            await asyncio.sleep(0)

    asyncio.new_event_loop().run_until_complete(serve())
"""
CELLS = """
import numpy as np
from gibbsot import GridCost, WassersteinNMF, solve
X = np.random.default_rng(0).random((40, 36))
options = {"cost": GridCost((6, 6)), "tau": 3, "tol": 0.0, "random_state": 0, "n_jobs": 2}
model = WassersteinNMF(3, max_epochs=10**6, callbacks=[lambda m: m.n_iter_ == 5 and print("begins", flush=True)],
                       **options)
---
model.fit(X)
---
n = model.n_iter_ + 3
model.set_params(max_epochs=n, callbacks=()).resume(X)
whole = WassersteinNMF(3, max_epochs=n, **options).fit(X)
print(np.array_equal(model.components_, whole.components_), np.array_equal(model.memberships_, whole.memberships_))
print(solve([1, 0], [0, 1], [[0, 1], [1, 0]]).value, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send SIGINT to one process")
def test_the_interrupt_of_a_notebook():
    """The cell ends; the next cells compute with what it has left."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(LOOP)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            process.stdin.write(CELLS)
            process.stdin.close()
            process.stdin = None
            assert process.stdout.readline() == "begins\n", process.stderr.read()
            process.send_signal(signal.SIGINT)
            printed, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert printed.splitlines() == ["KeyboardInterrupt", "True True", "1.0"], errors


def shared_costs() -> list[Cost]:
    """Return costs that nobody has used yet, with trees and other parts that are built when they are first used."""
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(2, 300, 2))
    graph = sparse.random_array((300, 300), density=0.05, rng=rng) + sparse.diags_array(np.ones(299), offsets=1)
    return [PointCost(X, Y), PointCost(X, Y, "euclidean"), GridCost((15, 20), power=1), GraphCost(graph + graph.T)]


def test_threads_share_a_cost_from_its_first_use_on():
    """All threads meet at a barrier and then solve with costs that are new to all of them."""
    n = 6
    weights, barrier = np.random.default_rng(4).dirichlet(np.ones(300), 2), threading.Barrier(n)
    expected = [solve(*weights, cost).value for cost in shared_costs()]
    costs = shared_costs()

    def work(k: int) -> list[float]:
        barrier.wait()
        found = {i % len(costs): solve(*weights, costs[i % len(costs)]).value for i in range(k, k + len(costs))}
        return [found[i] for i in range(len(costs))]

    with ThreadPoolExecutor(n) as pool:
        assert list(pool.map(work, range(n))) == [expected] * n


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED") or sys._is_gil_enabled(), reason="needs free-threaded Python"
)
def test_the_kernels_do_not_bring_back_the_gil():
    code = "import sys, gibbsot; gibbsot.solve([1, 0], [0, 1], [[0, 1], [1, 0]]); print(sys._is_gil_enabled())"
    ended = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("False\n", "")
