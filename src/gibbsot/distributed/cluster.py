"""Connects to a Dask scheduler, or starts a cluster of processes on this machine (the extra ``dask``)."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

try:
    import dask
    import distributed
except ImportError:
    raise ImportError("gibbsot.distributed.cluster needs Dask: pip install 'gibbsot[dask]'") from None

# Dask's own setting returns memory to the system at once, and each array of an epoch would request it again
_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": 2**26, "MALLOC_TRIM_THRESHOLD_": 2**30, "MALLOC_TOP_PAD_": 2**25,
    "OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1, "MKL_NUM_THREADS": 1,
}  # fmt: skip


@contextlib.contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """Yield a client of the scheduler at an address, or of a new local cluster with the given number of processes."""
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            stack.enter_context(dask.config.set({"distributed.nanny.pre-spawn-environ": _ENVIRONMENT}))
            with _ignoring_interrupts():
                scheduler = stack.enter_context(
                    distributed.LocalCluster(
                        n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.ERROR
                    )
                )
        try:
            client = stack.enter_context(distributed.Client(scheduler, timeout=10))
        except (OSError, ValueError) as error:
            raise ValueError(f"--scheduler: no scheduler answers at {scheduler} ({error})") from None
        yield client


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Let processes that are started here ignore Ctrl-C, which a terminal sends to all: the client handles it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
