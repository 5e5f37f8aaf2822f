"""Shards on the workers of a Dask cluster, and the connection to one (the extra ``dask``).

Each shard lives in the memory of one worker. A call is sent to all shards where they are, and the answers are summed on
the way back, in a tree. The client logs the commands since the last checkpoints: a shard that is lost with its worker
is restored on another one, and the commands are replayed, so that its state is bit-identical (see `worker`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

try:
    import dask
    import dask.array
    import distributed
    from dask.delayed import Delayed
except ImportError:
    raise ImportError("gibbsot.distributed.dask needs Dask: pip install 'gibbsot[dask]'") from None

from ..core import validation
from ..io import npz
from . import worker
from .shard import A, add
from .shards import S, Shards, query_call
from .worker import Call, Checkpoint, LostShardError

_ARITY = 8  # answers that are added in one task, between workers
_POLL_SECONDS = 1.0  # wait for an answer before checking that all workers are there
_BACKOFF_SECONDS = 10.0  # longest pause before lost shards are restored
_ATTEMPTS = 10  # to restore lost shards without any progress
_WORKER_SECONDS = 300.0  # wait for the first worker
_REBALANCE_SECONDS = 5.0  # between checks for new workers

# Dask's own setting returns memory to the system at once, and each array of an epoch would request it again
_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": 2**26, "MALLOC_TRIM_THRESHOLD_": 2**30, "MALLOC_TOP_PAD_": 2**25,
    "OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1, "MKL_NUM_THREADS": 1,
}  # fmt: skip


class DaskShards(Shards[S]):
    """Shards on the workers of a Dask client.

    Parameters
    ----------
    client : dask.distributed.Client
        A client that is running and not asynchronous.
    kind : subclass of Shard
        The class of the shards.
    sources : sequence of arrays, sparse matrices, Delayed objects or paths
        The data of each shard. Workers read the paths.
    checkpoints : sequence of Checkpoint
        Those from which the shards are restored instead.
    """

    _open: ClassVar[weakref.WeakSet[DaskShards[Any]]] = weakref.WeakSet()

    def __init__(
        self, client: Any, kind: type[S], sources: Sequence[Any], checkpoints: Sequence[Checkpoint] = ()
    ) -> None:
        if not isinstance(client, distributed.Client) or client.asynchronous or client.status != "running":
            what = "a dask.distributed.Client, running and not asynchronous"
            raise ValueError(f"client: expected {what}, got {client!r}")
        self.client: Any = client
        self.kind, self.sources = kind, list(sources)
        self._id = (client.id, secrets.token_hex(8))
        self._log: list[Call] = []  # commands since the first of `_checkpoints`, or since the start
        self._log_start = 0  # commands before those
        self._checkpoints = list(checkpoints)
        self._addresses: list[str] = []  # the worker of each shard
        self._rebalanced = time.monotonic()
        DaskShards._open.add(self)
        try:
            self._retry(self._restore)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self.sources)

    def __reduce__(self) -> Any:
        raise TypeError("a fit on a cluster cannot be copied or pickled; save the model instead")

    @property
    def _position(self) -> int:
        """The number of commands so far."""
        return self._log_start + len(self._log)

    def _command(self, call: Call) -> Any:
        self._rebalance()
        self._log.append(call)
        return self._retry(lambda: self._sum(worker.run_command, call))

    def _query(self, call: Call) -> Any:
        return self._retry(lambda: self._sum(worker.run_query, call))

    def _answers(self, call: Call) -> list[Any]:
        return self._retry(lambda: self._results(self._submit_all(worker.run_query, self._position, call)))

    def concatenate(self, method: Callable[[S], NDArray[Any]], /) -> Any:
        """Call a query whose answers are rows of one matrix; return a Dask array whose blocks are on the workers."""
        call = query_call(method)

        def blocks() -> list[Any]:
            futures = self._submit_all(worker.run_query, self._position, call)
            known = self._results([self.client.submit(worker.shape_and_type, one, pure=False) for one in futures])
            return [dask.array.from_delayed(one, *of_one) for one, of_one in zip(futures, known, strict=True)]

        return dask.array.concatenate(self._retry(blocks))

    def save(self, folder: str) -> list[str]:
        checksums = super().save(folder)
        self._checkpoints = [*self._checkpoints, Checkpoint(self._position, folder, checksums)][-2:]
        if len(self._checkpoints) == 2:
            self._log = self._log[self._checkpoints[0].position - self._log_start :]
            self._log_start = self._checkpoints[0].position
        return checksums

    def close(self) -> None:
        DaskShards._open.discard(self)
        if self.client.status == "running":
            self.client.run(worker.discard, self._in_use())

    def _in_use(self) -> worker.InUse:
        fits = [other._id[1] for other in DaskShards._open if other.client is self.client]
        return worker.InUse(self.client.id, fits, self.client.run_on_scheduler(worker.scheduler_clients))

    def _retry(self, action: Callable[[], A]) -> A:
        """Return the result of an action; if shards were lost, restore them and repeat it."""
        for attempt in range(_ATTEMPTS):
            try:
                if attempt:
                    time.sleep(min(0.1 * 2**attempt, _BACKOFF_SECONDS))  # until the scheduler knows who is gone
                    self._restore()
                return action()
            except LostShardError as error:
                reason = error
        raise RuntimeError(f"shards were lost {_ATTEMPTS} times in a row; see the workers' logs") from reason

    def _workers(self) -> dict[str, int]:
        """Return the workers' addresses and numbers of threads; wait for one if there is none."""
        if not (found := self.client.nthreads()):
            self.client.wait_for_workers(1, timeout=_WORKER_SECONDS)
            found = self.client.nthreads()
        return dict(found)

    def _restore(self) -> None:
        """Bring all shards to the present position, on workers that are there."""
        workers = self._workers()
        load = Counter(address for address in self._addresses if address in workers)
        self._addresses += [""] * (len(self) - len(self._addresses))
        for number, address in enumerate(self._addresses):
            if address not in workers:
                address = min(workers, key=lambda other: ((load[other] + 1) / workers[other], other))
                self._addresses[number] = address
                load[address] += 1
        positions = self._results(self._submit_all(worker.position))
        lost = [number for number, k in enumerate(positions) if not self._log_start <= k <= self._position]
        late = [number for number, k in enumerate(positions) if self._log_start <= k < self._position]
        if not lost and not late:
            return
        in_use = self._in_use()
        log = self._scatter(worker.Log(self._log_start, self._log, self._checkpoints))
        sources = {number: self._source(number) for number in lost} | dict.fromkeys(late)
        tasks = [self._submit(number, worker.restore, self.kind, x, log, in_use) for number, x in sources.items()]
        self._results(tasks)

    def _source(self, number: int) -> Any:
        """Return the data of a shard as an argument of a task."""
        source = self.sources[number]
        if isinstance(source, Delayed | dask.array.Array):
            return self.client.compute(source)
        if isinstance(source, str | os.PathLike):
            return npz.absolute(source)
        return None if source is None else self._scatter(source, workers=[self._addresses[number]])

    def _rebalance(self) -> None:
        """Move some shards to workers that have joined since the last check."""
        if time.monotonic() - self._rebalanced < _REBALANCE_SECONDS:
            return
        self._rebalanced, workers = time.monotonic(), self._workers()
        load = Counter(self._addresses)
        if not workers.keys() - load.keys() or not load.keys() <= workers.keys():
            return
        moved: dict[int, str] = {}
        for number, address in enumerate(self._addresses):
            least = min(workers, key=lambda other: (load[other] / workers[other], other))
            if (load[least] + 1) / workers[least] < load[address] / workers[address]:
                moved[number] = least
                load.subtract([address])
                load.update([least])
        with contextlib.suppress(LostShardError):  # the next call restores what is lost here
            taken = {number: self._submit(number, worker.take) for number in moved}
            for number, address in moved.items():
                self._addresses[number] = address
            self._results([self._submit(number, worker.put, one) for number, one in taken.items()])

    def _scatter(self, x: Any, **options: Any) -> Any:
        try:
            return self.client.scatter([x], hash=False, **options)[0]
        except (OSError, TimeoutError, asyncio.TimeoutError, KeyError) as error:  # a worker left, or all did
            raise LostShardError(str(error)) from error

    def _submit(self, number: int, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function for a shard on its worker, and on no other."""
        return self.client.submit(
            function, (*self._id, number), *args, workers=[self._addresses[number]], pure=False, retries=0
        )

    def _submit_all(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call a function for each shard; large arguments are sent once, from worker to worker."""
        shared = [self._scatter(args, broadcast=True)] if args else []
        return [self._submit(number, function, *shared) for number in range(len(self))]

    def _sum(self, function: Callable[..., Any], call: Call) -> Any:
        """Return the sum of the answers: first on each worker, then over a few workers at a time."""
        groups: dict[str, list[Any]] = {}
        for address, answer in zip(self._addresses, self._submit_all(function, self._position, call), strict=True):
            groups.setdefault(address, []).append(answer)
        sums = [self.client.submit(add, group, workers=[at], pure=False) for at, group in groups.items()]
        while len(sums) > 1:
            few = [sums[k : k + _ARITY] for k in range(0, len(sums), _ARITY)]
            sums = [self.client.submit(add, group, pure=False) for group in few]
        return self._results(sums)[0]

    def _results(self, futures: list[Any]) -> list[Any]:
        """Return the results of futures; raise LostShardError if a worker has left."""
        while True:
            try:
                return [future.result(timeout=_POLL_SECONDS) for future in futures]
            except (TimeoutError, asyncio.TimeoutError, UnboundLocalError):
                # UnboundLocalError: raised by Dask's `sync` if the time runs out during the transfer of a result
                if any(future.status == "error" for future in futures):  # the task itself raised it
                    raise
                missing = set(self._addresses) - set(self.client.nthreads())
                if missing:
                    self.client.cancel(futures, force=True)
                    raise LostShardError(f"{', '.join(sorted(missing))} left") from None
            except (distributed.KilledWorker, distributed.CancelledError, asyncio.CancelledError) as error:
                raise LostShardError(str(error)) from error


def map_rows(X: Any, function: Callable[..., Any], n_columns: int) -> Any:
    """Return a Dask array of what a function makes of each block of rows of X, with the given number of columns."""
    whole = X.rechunk({1: -1})
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)

    def apply(block: Any) -> Any:
        return function(validation.rows(block, "X"))

    return whole.map_blocks(apply, chunks=(whole.chunks[0], (n_columns,)), dtype=dtype, meta=np.empty((0, 0), dtype))


@contextlib.contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """Yield a client of the scheduler at an address, or of a new local cluster with the given number of processes."""
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            stack.enter_context(dask.config.set({"distributed.nanny.pre-spawn-environ": _ENVIRONMENT}))
            options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.ERROR}
            with _ignoring_interrupts():
                scheduler = stack.enter_context(distributed.LocalCluster(n_workers=workers, **options))
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
