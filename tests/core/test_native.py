from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from gibbsot.core import native


def test_kernels_were_compiled():
    if "GIBBSOT_TEST_NATIVE" not in os.environ:
        pytest.skip("asked for where a compiler is known to be")
    assert native.available()[-2:] == ("baseline", "numpy")


def test_aligned_arrays_start_a_cache_line():
    for n in (1, 7, 64):
        a = native.aligned((n, 3), np.float32)
        assert a.ctypes.data % 64 == 0
        assert a.shape == (n, 3)


def test_threads():
    cores = os.cpu_count() or 1
    assert [native.threads(n) for n in (None, 1, 4, -1)] == [1, 1, 4, cores]
    assert native.threads(-cores - 5) == 1


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_kernel_from_the_environment():
    done = run("from gibbsot.core import native; print(native.name())", GIBBSOT_KERNEL="numpy")
    assert done.stdout.strip() == "numpy"
    assert done.stderr == ""
    done = run("from gibbsot.core import native; native.name()", GIBBSOT_KERNEL="abacus")
    assert "GIBBSOT_KERNEL: 'abacus' is not available here" in done.stderr


def test_one_warning_without_compiled_kernels():
    """As if nothing had been compiled: one warning, at the first use, and the same answers."""
    code = """
import sys
for level in ("baseline", "avx2", "avx512"):
    sys.modules[f"gibbsot.core._native_{level}"] = None
import gibbsot
for _ in range(3):
    print(gibbsot.solve([1, 0], [0, 1], [[0, 1], [1, 0]], n_sweeps=50).value)
"""
    done = run(code, GIBBSOT_KERNEL="")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("installed without its compiled kernels") == 1
    assert float(done.stdout.split()[0]) == pytest.approx(1, rel=1e-2)


def test_import_needs_no_extra():
    """Importing the package loads neither the extras nor POT, and is quick to say so."""
    code = """
import sys, gibbsot
print([m for m in ("ot", "torch", "dask", "matplotlib", "rich", "typer") if m in sys.modules])
"""
    assert run(code).stdout.strip() == "[]"


def test_an_interrupt_ends_a_long_run():
    """Ctrl-C reaches Python between two calls of a kernel, each a fraction of a second long."""
    code = """
import os, signal, threading, time
import numpy as np, gibbsot
cost = gibbsot.GridCost((64, 64))
p = np.random.default_rng(0).random(cost.shape[0])
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.time()
try:
    gibbsot.solve(p, p[::-1].copy(), cost, n_sweeps=10_000_000, schedule=1e-3)
except KeyboardInterrupt:
    print("interrupted", time.time() - start < 10)
"""
    if sys.platform == "win32":
        pytest.skip("signals of this kind are not on Windows")
    assert run(code).stdout.strip() == "interrupted True"
