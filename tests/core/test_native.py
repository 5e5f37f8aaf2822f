from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from gibbsot import GridCost, Problem
from gibbsot.core import native
from gibbsot.sampling import sampler
from kernels import using


def test_kernels_were_compiled():
    if "GIBBSOT_TEST_NATIVE" not in os.environ:
        pytest.skip("only where GIBBSOT_TEST_NATIVE says that there is a compiler")
    assert native.available()[-2:] == ("baseline", "numpy")


def test_aligned_arrays_start_a_cache_line():
    for n in (1, 7, 64):
        a = native.aligned((n, 3), np.float32)
        assert a.ctypes.data % 64 == 0
        assert a.shape == (n, 3)


def test_threads():
    cores = os.cpu_count() or 1
    assert [native.threads(n) for n in (None, 1, 10**6, -1)] == [1, 1, cores, cores]
    assert native.threads(-cores - 5) == 1


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_kernel_from_the_environment():
    done = run("from gibbsot.core import native; print(native.name())", GIBBSOT_KERNEL="numpy")
    assert done.stdout.strip() == "numpy"
    assert done.stderr == ""
    done = run("from gibbsot.core import native; native.name()", GIBBSOT_KERNEL="abacus")
    assert "GIBBSOT_KERNEL: 'abacus' is not available here" in done.stderr


def test_one_warning_without_compiled_kernels():
    """Without compiled modules: one warning at the first use, and correct results."""
    code = """
import sys
for level in ("baseline", "avx2", "avx512"):
    sys.modules[f"gibbsot.core._native_{level}"] = None
import gibbsot
for _ in range(3):
    print(gibbsot.solve([1, 0], [0, 1], [[0, 1], [1, 0]], method=gibbsot.Gibbs(n_sweeps=50)).value)
"""
    done = run(code, GIBBSOT_KERNEL="")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("installed without its compiled kernels") == 1
    assert float(done.stdout.split()[0]) == pytest.approx(1, rel=1e-2)


def test_import_needs_no_extra():
    """Importing the package loads neither the extras nor POT."""
    code = """
import sys, gibbsot
print([m for m in ("ot", "torch", "dask", "matplotlib", "rich", "typer") if m in sys.modules])
"""
    assert run(code).stdout.strip() == "[]"


def test_an_interrupt_ends_a_long_run():
    """Python handles Ctrl-C between two calls of a kernel, each of which takes a fraction of a second."""
    code = """
import os, signal, threading, time
import numpy as np, gibbsot
cost = gibbsot.GridCost((64, 64))
p = np.random.default_rng(0).random(cost.shape[0])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background inherits that it is ignored
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.time()
try:
    gibbsot.solve(p, p[::-1].copy(), cost, method=gibbsot.Gibbs(n_sweeps=10_000_000, schedule=1e-3))
except KeyboardInterrupt:
    print("interrupted", time.time() - start < 10)
"""
    if sys.platform == "win32":
        pytest.skip("Windows has no SIGINT of this kind")
    assert run(code).stdout.strip() == "interrupted True"


LEVELS = native.available()[:-1]


def dense(dtype, m1, m2):
    """Return a cost of m1 x m2 points as the kernels take it: by columns, padded to cache lines."""
    lanes = 64 // np.dtype(dtype).itemsize
    Mt = np.full((m2, -(-m1 // lanes) * lanes), np.inf, dtype)
    Mt[:, :m1] = 1
    return Mt


def sampler_arguments(dtype=np.float64, n=2, m1=6, m2=4, sweeps=3):
    outputs = {name: np.zeros((n, m), dtype) for name, m in {"U": m1, "L": m2, "g": m1}.items()}
    return {
        "temperatures": np.full((1, sweeps), 0.1),
        "tau": 0,
        "stride": 1,
        "mixing_slope": 0.01,
        "pinned": True,
        "seed": 0,
        "n_threads": 1,
        "p": np.full((n, m1), 1 / m1, dtype),
        "q": np.full((n, m2), 1 / m2, dtype),
        "ids": np.arange(n, dtype=np.uint64),
        "h": np.zeros((n, m2), dtype),
        "sweep": np.zeros(n, np.int64),
        "values": np.zeros((n, sweeps)),
        "energy": np.zeros(n),
        **outputs,
    }


def mixture_arguments(dtype=np.float64, n=3, K=2, m1=6, m2=4):
    return {
        "components": np.full((K, m1), 2**30 // m1, np.int32),
        "memberships": np.full((n, K), 2.0**21),
        "weighted": np.full((n, K), 2.0**21),
        "m2": m2,
        "starts": np.arange(n + 1) * 2,
        "columns": np.tile([0, m2 - 1], n),
        "weights": np.full(2 * n, 0.5),
        "ids": np.arange(n, dtype=np.uint64),
        "temperatures": np.array([0.1]),
        "max_sweeps": 5,
        "tau": 1,
        "stride": 1,
        "mixing_slope": 0.01,
        "seed": 0,
        "quantum": 2.0**-20,
        "most": 512,
        "n_threads": 1,
        "h": np.zeros(2 * n, dtype),
        "sweep": np.zeros(n, np.int64),
        "values": np.full(n, np.nan),
        "gradients": np.full((n, K), np.nan),
        "sums": np.zeros((K, m1), np.int64),
    }


COSTS = {
    "dense": lambda dtype: dense(dtype, 6, 4),
    "grid": lambda dtype: [np.ones((2, 2), dtype), np.ones((3, 2), dtype)],
    "points": lambda _: (np.zeros((6, 2)), np.ones((4, 2)), True),
}
WRONG_COSTS = {
    "dense": [
        (lambda: dense(np.float64, 6, 5), "Mt: expected shape (4, 8), got (5, 8)"),
        (lambda: dense(np.float64, 9, 4), "Mt: expected shape (4, 8), got (4, 16)"),
        (lambda: np.ones((4, 6)), "Mt: expected shape (4, 8), got (4, 6)"),
        (lambda: np.ones((0, 8)), "Mt: expected shape (4, 8), got (0, 8)"),
    ],
    "grid": [
        (list, "axes: expected at least one axis"),
        (lambda: [np.ones((6, 4)), np.ones((2, 1))], "axes: expected rows whose product is the number of points, 6"),
        (lambda: [np.ones((2, 2)), np.ones((3, 1))], "axes: expected columns whose product is the number of points, 4"),
        (lambda: [np.ones((6, 4)), np.ones((1, 0))], "axes: expected columns whose product is the number of points, 4"),
        (lambda: [np.ones((2**33, 0)), np.ones((2**33, 0))], "axes: expected rows whose product is the number of"),
    ],
    "points": [
        (lambda: (np.zeros((5, 2)), np.ones((4, 2)), True), "X: expected shape (6, 2), got (5, 2)"),
        (lambda: (np.zeros((6, 2)), np.ones((7, 2)), True), "Y: expected shape (4, 2), got (7, 2)"),
        (lambda: (np.zeros((6, 2)), np.ones((4, 3)), True), "X: expected shape (6, 3), got (6, 2)"),
    ],
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_arguments_of_these_tests_are_valid(level, kind, dtype):
    with using(level):
        kernels = native.load(native.name())
    arguments = sampler_arguments(dtype)
    getattr(kernels, f"run_{kind}")(COSTS[kind](dtype), **arguments)
    assert (arguments["sweep"] == 3).all()
    assert np.isfinite(arguments["values"]).all()
    mixed = mixture_arguments(dtype)
    getattr(kernels, f"run_mixtures_{kind}")(COSTS[kind](dtype), **mixed)
    assert (mixed["sweep"] > 1).all()
    assert all(np.isfinite(mixed[name]).all() for name in ("h", "values", "gradients"))
    for by_rows, size, other in ((True, 4, 6), (False, 6, 4)):
        out = np.full((2, other), np.nan, dtype)
        getattr(kernels, f"c_transform_{kind}")(
            COSTS[kind](dtype), by_rows=by_rows, x=np.zeros((2, size), dtype), out=out, n_threads=2
        )
        assert (out == (1 if kind == "dense" else 2)).all()
        indices = np.full((other, size), -2)
        getattr(kernels, f"nearest_{kind}")(COSTS[kind](dtype), by_rows=by_rows, x=np.zeros(size, dtype), out=indices)
        assert (np.sort(indices, axis=1) == np.arange(size)).all()


@pytest.mark.skipif(not LEVELS, reason="no compiled kernels")
@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("p", np.ones((2, 0)), "expected at least one"),
        ("p", np.ones((3, 6)), "q: expected shape (3, 4), got (2, 4)"),
        ("p", np.zeros((2, 6)), "p: row 0 has no positive weight"),
        ("q", np.ones((3, 4)), "q: expected shape (2, 4), got (3, 4)"),
        ("q", np.array([[1.0, 0, 0, 0], [0, -1, np.nan, 0]]), "q: row 1 has no positive weight"),
        ("temperatures", np.ones((2, 0)), "temperatures: expected at least one sweep"),
        ("temperatures", np.ones((3, 3)), "temperatures: expected shape (2, 3), got (3, 3)"),
        ("temperatures", np.ones((1, 4)), "values: expected shape (2, 4), got (2, 3)"),
        ("ids", np.arange(3, dtype=np.uint64), "ids: expected shape (2,), got (3,)"),
        ("h", np.zeros((2, 5)), "h: expected shape (2, 4), got (2, 5)"),
        ("sweep", np.zeros(1, np.int64), "sweep: expected shape (2,), got (1,)"),
        ("U", np.empty((2, 5)), "U: expected shape (2, 6), got (2, 5)"),
        ("L", np.empty((1, 4)), "L: expected shape (2, 4), got (1, 4)"),
        ("g", np.empty((2, 7)), "g: expected shape (2, 6), got (2, 7)"),
        ("values", np.empty((1, 3)), "values: expected shape (2, 3), got (1, 3)"),
        ("energy", np.empty(3), "energy: expected shape (2,), got (3,)"),
        ("n_threads", 0, "n_threads: expected at least 1, got 0"),
    ],
)
def test_run_checks_its_shapes(kind, name, value, message):
    arguments = sampler_arguments() | {name: value}
    with using(LEVELS[0]), pytest.raises(ValueError, match=re.escape(message)):
        getattr(native.load(native.name()), f"run_{kind}")(COSTS[kind](np.float64), **arguments)


@pytest.mark.skipif(not LEVELS, reason="no compiled kernels")
@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("components", np.ones((2, 0), np.int32), "expected at least one"),
        ("components", np.ones((3, 6), np.int32), "memberships: expected shape (3, 3), got (3, 2)"),
        ("components", np.zeros((2, 6), np.int32), "components: row 0 has no positive weight"),
        ("memberships", np.array([[1.0, 0], [0, 0], [1, 0]]), "memberships: row 1 has no positive weight"),
        ("memberships", np.array([[1.0, 0], [0, 0], [np.nan, 0]]), "memberships: row 1 has no positive weight"),
        ("weighted", np.ones((2, 2)), "weighted: expected shape (3, 2), got (2, 2)"),
        ("weighted", np.ones((0, 0)), "sums: expected shape (0, 0), got (2, 6)"),
        ("starts", np.array([0, 2, 2, 6]), "starts: row 1 is empty or out of range"),
        ("starts", np.array([0, 2, 4, 7]), "starts: row 2 is empty or out of range"),
        ("starts", np.array([-1, 2, 4, 6]), "starts: row 0 is empty or out of range"),
        ("starts", np.arange(5), "starts: expected shape (4,), got (5,)"),
        ("columns", np.full(6, 4), "columns: 4 is out of range"),
        ("columns", np.full(6, -1), "columns: -1 is out of range"),
        ("columns", np.zeros(5, np.int64), "weights: expected shape (5,), got (6,)"),
        ("weights", np.zeros(6), "weights: row 0 has no positive weight"),
        ("ids", np.arange(2, dtype=np.uint64), "ids: expected shape (3,), got (2,)"),
        ("temperatures", np.ones(2), "temperatures: expected shape (3,), got (2,)"),
        ("max_sweeps", 0, "max_sweeps, stride: expected at least 1"),
        ("stride", 0, "max_sweeps, stride: expected at least 1"),
        ("most", 3, "most: expected at least the measures of a block"),
        ("n_threads", 0, "n_threads: expected at least 1, got 0"),
        ("h", np.zeros(5), "h: expected shape (6,), got (5,)"),
        ("sweep", np.zeros(2, np.int64), "sweep: expected shape (3,), got (2,)"),
        ("values", np.zeros(2), "values: expected shape (3,), got (2,)"),
        ("gradients", np.zeros((3, 3)), "gradients: expected shape (3, 2), got (3, 3)"),
        ("sums", np.zeros((2, 5), np.int64), "sums: expected shape (2, 6), got (2, 5)"),
    ],
)
def test_runs_of_mixtures_check_their_shapes(kind, name, value, message):
    arguments = mixture_arguments() | {name: value}
    with using(LEVELS[0]), pytest.raises(ValueError, match=re.escape(message)):
        getattr(native.load(native.name()), f"run_mixtures_{kind}")(COSTS[kind](np.float64), **arguments)


@pytest.mark.skipif(not LEVELS, reason="no compiled kernels")
@pytest.mark.parametrize(
    ("kind", "make", "message"), [(kind, *case) for kind, cases in WRONG_COSTS.items() for case in cases]
)
def test_every_kernel_checks_the_cost(kind, make, message):
    kernels = native.load(LEVELS[0])
    calls = [
        ("run", sampler_arguments()),
        ("run_mixtures", mixture_arguments()),
        ("c_transform", {"by_rows": True, "x": np.zeros((1, 4)), "out": np.empty((1, 6)), "n_threads": 1}),
        ("c_transform", {"by_rows": False, "x": np.zeros((1, 6)), "out": np.empty((1, 4)), "n_threads": 1}),
        ("nearest", {"by_rows": True, "x": np.zeros(4), "out": np.empty((6, 2), np.int64)}),
        ("nearest", {"by_rows": False, "x": np.zeros(6), "out": np.empty((4, 2), np.int64)}),
    ]
    if kind == "dense":
        calls.append(("means", {name: sampler_arguments()[name] for name in ("p", "q", "n_threads")}))
        calls[-1][1]["out"] = np.empty(2)
    for function, arguments in calls:
        with pytest.raises(ValueError, match=re.escape(message)):
            getattr(kernels, f"{function}_{kind}")(make(), **arguments)


@pytest.mark.skipif(not LEVELS, reason="no compiled kernels")
@pytest.mark.parametrize("kind", COSTS)
def test_operations_on_costs_check_their_shapes(kind):
    kernels = native.load(LEVELS[0])
    cost = COSTS[kind](np.float64)
    transform, nearest = getattr(kernels, f"c_transform_{kind}"), getattr(kernels, f"nearest_{kind}")
    x = np.zeros((2, 4))
    with pytest.raises(ValueError, match=re.escape("out: expected shape (2, 6), got (3, 6)")):
        transform(cost, by_rows=True, x=x, out=np.empty((3, 6)), n_threads=1)
    with pytest.raises(ValueError, match="n_threads: expected at least 1"):
        transform(cost, by_rows=True, x=x, out=np.empty((2, 6)), n_threads=0)
    for k in (0, 5):
        with pytest.raises(ValueError, match=f"out: expected 1 to 4 columns, one per nearest point, got {k}"):
            nearest(cost, by_rows=True, x=x[0], out=np.empty((6, k), np.int64))
    if kind == "dense":
        p, q = np.ones((2, 6)), np.ones((2, 4))
        for name, wrong in {"q": np.ones((3, 4)), "out": np.empty(3), "n_threads": 0}.items():
            arguments = {"p": p, "q": q, "out": np.empty(2), "n_threads": 1, name: wrong}
            with pytest.raises(ValueError, match=f"{name}: expected"):
                kernels.means_dense(cost, **arguments)


@pytest.mark.skipif(not LEVELS, reason="no compiled kernels")
@pytest.mark.parametrize(
    ("function", "make_arguments", "name"),
    [("run", sampler_arguments, name) for name in ("h", "sweep", "U", "L", "g", "values", "energy")]
    + [("run_mixtures", mixture_arguments, name) for name in ("h", "sweep", "values", "gradients", "sums")],
)
def test_outputs_are_never_converted(function, make_arguments, name):
    """A kernel would write to the copy, and the result would be lost."""
    kernels = native.load(LEVELS[0])
    good = make_arguments()[name]
    read_only = good.copy()
    read_only.flags.writeable = False
    strided = np.empty((*good.shape[:-1], 2 * good.shape[-1]), good.dtype)[..., ::2]
    wrong = [good.astype(np.float16), good.astype(">f8"), read_only, strided, good.tolist(), None, good[None]]
    if good.ndim == 2:
        wrong += [np.asfortranarray(good), good[0]]
    for kind, make in COSTS.items():
        for value in wrong:
            with pytest.raises(TypeError, match=name):
                getattr(kernels, f"{function}_{kind}")(make(np.float64), **(make_arguments() | {name: value}))


@pytest.mark.skipif(not LEVELS, reason="no compiled kernels")
def test_wrong_types_are_refused():
    kernels = native.load(LEVELS[0])
    cases = [{"tau": -1}, {"seed": -1}, {"seed": 2**64}, {"n_threads": -1}, {"n_threads": 1.5}, {"p": "p"}]
    for wrong in [*cases, {"unknown": 1}]:
        with pytest.raises(TypeError):
            kernels.run_dense(dense(np.float64, 6, 4), **(sampler_arguments() | wrong))
    with pytest.raises(TypeError):  # arguments other than the cost are passed by name
        kernels.run_dense(dense(np.float64, 6, 4), *sampler_arguments().values())
    for out in (np.empty((2, 3)), np.empty(4, np.int32), np.empty(8)[::2]):
        with pytest.raises(TypeError):
            kernels.exponentials(seed=0, id=0, sweep_and_side=0, out=out)


@pytest.mark.parametrize("shape", [(7,), (40, 3), (5, 6, 7)])
def test_nan_in_nearest_is_no_crash(kernel, shape):
    """Sorting with a comparison that NaN makes inconsistent would read out of bounds."""
    cost = GridCost(shape)
    x = np.random.default_rng(0).normal(size=cost.shape[1])
    x[::3] = np.nan
    found = cost.nearest(x, 3)[0]
    assert ((found >= -1) & (found < cost.shape[1])).all()


def tampered_grid():
    cost = GridCost((3, 4))
    cost._axes = (np.ones((2, 2)), np.ones((9, 9)))
    return cost


@pytest.mark.skipif(not LEVELS, reason="no compiled kernels")
@pytest.mark.parametrize("level", LEVELS)
def test_tampered_objects_raise(level):
    """A mutated cost or a hand-made problem ends in an exception, not in a crash."""
    cost, T = GridCost((3, 4)), np.full(3, 0.1)
    uniform = np.full((2, 12), 1 / 12)
    state = sampler.init(Problem(uniform, uniform, cost))
    wrong = [
        (uniform, uniform, tampered_grid()),
        (uniform[:, :5], uniform, cost),
        (np.repeat(uniform, 2, axis=0), uniform, cost),
        (np.zeros((2, 12)), uniform, cost),
        (uniform, np.zeros((2, 12)), cost),
        (uniform, np.full((2, 12), np.nan), cost),
    ]
    with using(level):
        for arguments in wrong:
            for pinned in (False, True):
                with pytest.raises(ValueError, match=": "):
                    sampler.run(state, Problem(*arguments), T, pinned=pinned)
        for call in (tampered_grid().row_min, tampered_grid().col_max, tampered_grid().nearest):
            with pytest.raises(ValueError, match="axes: expected"):
                call(np.zeros(12))
