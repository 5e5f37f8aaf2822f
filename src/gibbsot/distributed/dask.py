"""Shards on the workers of a Dask cluster, and the connection to one (the extra ``dask``).

Each shard lives in the memory of one worker. A call is sent to all workers, in one task each, and the answers are
summed on the way back, in a tree. The client logs the commands since the last checkpoints: a shard that is lost with
its worker is restored on another one, and the commands are replayed, so that its state is bit-identical (see `worker`).
A worker that Dask has paused because of its memory counts as lost.

Dask's blocking calls have no deadline that is safe to use: a transfer that runs out of time starts again. So they run
in threads, while the client checks that the workers are there.
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
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

try:
    import dask
    import dask.array
    import distributed
    from dask.delayed import Delayed
    from distributed.comm.core import CommClosedError
except ImportError:
    raise ImportError("gibbsot.distributed.dask needs Dask: pip install 'gibbsot[dask]'") from None

from ..core import validation
from ..core.warn import warn
from ..io import npz
from . import worker
from .command_log import CommandLog
from .shard import A, add
from .shards import S, Shards, query_call
from .worker import Call, Checkpoint, LostShardError

_ARITY = 8  # answers that are added in one task, between workers
_POLL_SECONDS = 1.0  # wait for an answer before checking that all workers are there
_LOG_SECONDS = 60.0  # of waiting for answers, which may take as long to compute, after which it is logged
_LOG_OTHERS_SECONDS = 10.0  # of waiting for anything else
_ALONE_SECONDS = (1.0, 10.0, 5.0)  # without a worker: until it is logged, until it is a warning, between log lines
_PAUSED_SECONDS = 60.0  # wait for a worker if all are paused
_BACKOFF_SECONDS = 10.0  # longest pause before lost shards are restored
_ATTEMPTS = 10  # to restore lost shards without any progress
_WORKER_SECONDS = 300.0  # wait for a worker if there is none
_CLOSED_SECONDS = 30.0  # the same where the client's own cluster has given up its workers and starts no others
_REBALANCE_SECONDS = 5.0  # between checks for new workers

# Dask's own setting returns memory to the system at once, and each array of an epoch would request it again
_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": 2**26, "MALLOC_TRIM_THRESHOLD_": 2**30, "MALLOC_TOP_PAD_": 2**25,
    "OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1, "MKL_NUM_THREADS": 1,
}  # fmt: skip


_ANSWERS = "answers"  # of workers
_NO_SCHEDULER = (
    "the connection to the scheduler is lost; with a checkpoint, load it with a new client and resume the fit"
)
_logger = logging.getLogger("gibbsot")


class NoWorkerError(ConnectionError, TimeoutError):
    """No worker has been there for too long."""


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
        self._log = CommandLog()  # since the first of `_checkpoints`, or since the start
        self._sizes = _sizes(self.sources)
        self._checkpoints = list(checkpoints)
        self._addresses: list[str] = []  # the worker of each shard
        self._threads: dict[str, int] = {}  # of each worker
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

    def _command(self, call: Call) -> Any:
        self._rebalance()
        self._log.append(call)
        return self._retry(lambda: self._sum(worker.run_command, call))

    def _query(self, call: Call) -> Any:
        return self._retry(lambda: self._sum(worker.run_query, call))

    def _answers(self, call: Call) -> list[Any]:
        return self._retry(lambda: self._each(worker.run_query, call))

    def concatenate(self, method: Callable[[S], NDArray[Any]], /) -> Any:
        """Call a query whose answers are rows of one matrix; return a Dask array whose blocks are on the workers."""
        call = query_call(method)

        def blocks() -> list[Any]:
            found = [self._submit(number, worker.run_query, (self._log.end, call)) for number in range(len(self))]
            known = self._results([self.client.submit(worker.shape_and_type, one, pure=False) for one in found])
            return [dask.array.from_delayed(one, *of_one) for one, of_one in zip(found, known, strict=True)]

        return dask.array.concatenate(self._retry(blocks))

    def attach(self, sources: Sequence[Any]) -> None:
        before, self.sources = self.sources, list(sources)

        def attach_all() -> None:
            numbers = range(len(self))
            self._results([self._submit(number, worker.attach, self._source(number)) for number in numbers])

        try:
            self._retry(attach_all)
        except BaseException:
            self.sources = before
            raise

    def save(self, folder: str) -> list[str]:
        checksums = super().save(folder)
        self._checkpoints = [*self._checkpoints, Checkpoint(self._log.end, folder, checksums)][-2:]
        if len(self._checkpoints) == 2:
            self._log = self._log.since(self._checkpoints[0].position)
        return checksums

    def close(self) -> None:
        DaskShards._open.discard(self)
        if self.client.status == "running":
            in_use = self._in_use()
            self._blocking("workers to free their memory", lambda: self.client.run(worker.discard, in_use))

    def _in_use(self) -> worker.InUse:
        fits = [other._id[1] for other in DaskShards._open if other.client is self.client]
        return worker.InUse(self.client.id, fits, self._ask_scheduler(worker.scheduler_clients))

    def _ask_scheduler(self, function: Callable[..., A]) -> A:
        try:
            return self._blocking("the scheduler", lambda: self.client.run_on_scheduler(function))
        except CommClosedError as error:  # at times before the client knows
            raise ConnectionError(_NO_SCHEDULER) from error

    def _blocking(self, what: str, call: Callable[[], A], check: Callable[[], None] = lambda: None) -> A:
        """Return the result of a blocking call of Dask; `check` runs while it takes long, and may raise.

        Parameters
        ----------
        what : str
            What is waited for, for the log.
        call : callable
            The call, which runs in a thread.
        check : callable
            Called every second.

        Returns
        -------
        result of the call
        """
        future: futures.Future[A] = futures.Future()
        threading.Thread(target=_resolve, args=(future, call), daemon=True).start()
        begun = logged = time.monotonic()
        while not futures.wait([future], timeout=_POLL_SECONDS).done:
            if self.client.status != "running":
                raise ConnectionError(_NO_SCHEDULER)
            check()
            if time.monotonic() - logged > (_LOG_SECONDS if what == _ANSWERS else _LOG_OTHERS_SECONDS):
                logged = time.monotonic()
                _logger.warning("waiting for %s since %.0f s", what, logged - begun)
        return future.result()

    def _retry(self, action: Callable[[], A]) -> A:
        """Return the result of an action; if shards were lost, restore them and repeat it."""
        for attempt in range(_ATTEMPTS):
            try:
                if self.client.status != "running":
                    raise ConnectionError(_NO_SCHEDULER)
                if attempt:
                    time.sleep(min(0.1 * 2**attempt, _BACKOFF_SECONDS))  # until the scheduler knows who is gone
                    self._restore()
                return action()
            except LostShardError as error:
                _logger.warning("shards were lost (%s); restoring them", error)
                reason = error
        raise RuntimeError(
            f"shards were lost {_ATTEMPTS} times in a row, see the workers' logs; with a checkpoint, load it and "
            "resume the fit"
        ) from reason

    def _workers(self) -> dict[str, int]:
        """Return the addresses and numbers of threads of workers that run; wait for one if there is none."""
        begun = time.monotonic()
        first, alarm, every = _ALONE_SECONDS
        said = first
        while True:
            known = self._ask_scheduler(worker.scheduler_workers)
            if running := {address: threads for address, (threads, status) in known.items() if status == "running"}:
                if said > first:
                    _logger.warning("a worker is there again, after %.0f s", time.monotonic() - begun)
                return running
            waited, paused = time.monotonic() - begun, [a for a, (_, status) in known.items() if status == "paused"]
            most = _CLOSED_SECONDS if self._starts_no_workers() else _WORKER_SECONDS
            if waited > said:
                text = f"no worker is running since {waited:.0f} s: the fit waits for one, for {most:.0f} s at most"
                _logger.warning(text)
                said = waited + every
                if waited > alarm:
                    warn(text, RuntimeWarning)
                    alarm = float("inf")
                said = min(said, alarm)
            if paused and waited > _PAUSED_SECONDS:
                raise MemoryError(
                    f"all workers are paused because of their memory ({', '.join(sorted(paused))}); expected workers "
                    "with a larger memory_limit, or more of them"
                )
            if waited > most:
                why = ", and the client's cluster starts no others" if most == _CLOSED_SECONDS else ""
                raise NoWorkerError(
                    f"no worker was running for {most:.0f} s{why}; with a checkpoint, start workers, load it with a "
                    "client of theirs and resume the fit"
                )
            time.sleep(min(_POLL_SECONDS, 0.1))

    def _starts_no_workers(self) -> bool:
        """Tell whether the client has a cluster of its own that has closed its workers after they were lost."""
        cluster = self.client.cluster
        closed = getattr(cluster, "workers", None) == {} and getattr(cluster, "_adaptive", None) is None
        return closed and bool(self._threads)

    def _restore(self) -> None:
        """Bring all shards to the present position, on workers that are there."""
        workers = self._workers()
        self._addresses += [""] * (len(self) - len(self._addresses))
        load = self._load()
        homeless = [number for number, address in enumerate(self._addresses) if address not in workers]
        for number in sorted(homeless, key=lambda number: -self._sizes[number]):  # the largest first
            self._drop(number, self._addresses[number])
            size = self._sizes[number]
            address = min(workers, key=lambda other: ((load[other] + size) / workers[other], other))
            self._addresses[number] = address
            load[address] += size
        self._threads = workers
        found = self._each(worker.position)
        lost = [number for number, (k, _) in enumerate(found) if not self._log.start <= k <= self._log.end]
        late = [number for number, (k, _) in enumerate(found) if self._log.start <= k < self._log.end]
        if not lost and not late:
            return
        in_use, numbers = self._in_use(), [*lost, *late]
        commands = [call.narrowed(numbers) for call in self._log.calls()]
        log = self._scatter(worker.Log(self._log.start, commands, self._checkpoints))
        sources = {number: self._source(number) for number in lost} | dict.fromkeys(late)
        tasks = [self._submit(number, worker.restore, self.kind, x, log, in_use) for number, x in sources.items()]
        self._results(tasks)
        self._sizes = [1.0 + rows for _, rows in self._each(worker.position)]

    def _load(self) -> defaultdict[str, float]:
        """Return the size of the shards of each worker."""
        load = defaultdict[str, float](float)
        for address, size in zip(self._addresses, self._sizes, strict=True):
            load[address] += size
        return load

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
        self._threads = workers
        load = self._load()
        if not workers.keys() - load.keys() or not load.keys() <= workers.keys():
            return
        moved: dict[int, str] = {}
        for number, (address, size) in enumerate(zip(self._addresses, self._sizes, strict=True)):
            least = min(workers, key=lambda other: (load[other] / workers[other], other))
            if (load[least] + size) / workers[least] < load[address] / workers[address]:
                moved[number] = least
                load[address] -= size
                load[least] += size
        with contextlib.suppress(LostShardError):  # the next call restores what is lost here
            taken = {number: self._submit(number, worker.take) for number in moved}
            for number, address in moved.items():
                self._addresses[number] = address
            self._results([self._submit(number, worker.put, one) for number, one in taken.items()])

    def _drop(self, number: int, address: str) -> None:
        """Free the memory of a shard on a worker that is paused, without waiting for it."""
        known = self._ask_scheduler(worker.scheduler_workers)
        if known.get(address, (0, ""))[1] == "paused":
            keys = [(*self._id, number)]
            done: futures.Future[Any] = futures.Future()
            call = partial(self.client.run, worker.drop, keys, workers=[address], on_error="ignore")
            threading.Thread(target=_resolve, args=(done, call), daemon=True).start()

    def _scatter(self, x: Any, **options: Any) -> Any:
        try:
            return self._blocking(
                "data to be sent", lambda: self.client.scatter([x], hash=False, **options)[0], self._check_workers
            )
        except (OSError, TimeoutError, KeyError) as error:  # a worker left, or all did
            if self.client.status != "running":
                raise ConnectionError(_NO_SCHEDULER) from error
            raise LostShardError(str(error)) from error

    def _submit(self, number: int, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function for a shard on its worker, and on no other."""
        return self.client.submit(
            function, (*self._id, number), *args, workers=[self._addresses[number]], pure=False, retries=0
        )

    def _submit_all(
        self, run: Callable[..., Any], function: Callable[..., Any], call: Call | None = None
    ) -> dict[str, Any]:
        """Call a function for all shards of each worker, in one task; return the tasks by address."""
        numbers: dict[str, list[int]] = {}
        for number, address in enumerate(self._addresses):
            numbers.setdefault(address, []).append(number)
        tasks = {}
        for address, own in numbers.items():
            keys = [(*self._id, number) for number in own]
            args = () if call is None else ((self._log.end, call.narrowed(own)),)
            tasks[address] = self.client.submit(
                run, keys, self._threads.get(address, 1), function, *args, workers=[address], pure=False, retries=0
            )
        return tasks

    def _each(self, function: Callable[..., Any], call: Call | None = None) -> list[Any]:
        """Return the answers of all shards."""
        tasks = self._submit_all(worker.run_all, function, call)
        answers = dict(zip(tasks, map(iter, self._results(list(tasks.values()))), strict=True))
        return [next(answers[address]) for address in self._addresses]

    def _sum(self, function: Callable[..., Any], call: Call) -> Any:
        """Return the sum of the answers: first on each worker, then over a few workers at a time."""
        sums = list(self._submit_all(worker.run_sum, function, call).values())
        while len(sums) > _ARITY:
            few = [sums[k : k + _ARITY] for k in range(0, len(sums), _ARITY)]
            sums = [self.client.submit(add, group, pure=False) for group in few]
        return add(self._results(sums))

    def _results(self, tasks: list[Any]) -> list[Any]:
        """Return the results of tasks; raise LostShardError if a worker has left or is paused."""
        try:
            return self._blocking(_ANSWERS, lambda: self.client.gather(tasks), self._check_workers)
        except LostShardError:
            self.client.cancel(tasks, force=True)
            raise
        except (distributed.KilledWorker, distributed.CancelledError, asyncio.CancelledError, CommClosedError) as error:
            if self.client.status != "running":
                raise ConnectionError(_NO_SCHEDULER) from error
            raise LostShardError(str(error)) from error

    def _check_workers(self) -> None:
        """Raise LostShardError if a worker with shards has left or is paused."""
        known = self._ask_scheduler(worker.scheduler_workers)
        missing = sorted(a for a in set(self._addresses) if known.get(a, (0, "has left"))[1] != "running")
        if missing:
            what = ", ".join(f"{address} {known.get(address, (0, 'has left'))[1]}" for address in missing)
            raise LostShardError(what)


def _sizes(sources: Sequence[Any]) -> list[float]:
    """Return the sizes of shards that are not read yet, for their placement: rows, or bytes of files; else one each."""
    try:
        return [float(1 + source.shape[0]) for source in sources]
    except (AttributeError, TypeError):
        pass
    try:
        return [float(1 + os.path.getsize(source)) for source in sources]
    except (OSError, TypeError, ValueError):
        return [1.0] * len(sources)


def _resolve(future: futures.Future[A], call: Callable[[], A]) -> None:
    """Set a future to the result of a call, or to what it raises."""
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)


def map_rows(X: Any, function: Callable[..., Any], n_columns: int, dtype: Any = None) -> Any:
    """Return a Dask array of what a function makes of each block of rows of X, with the given number of columns."""
    whole = X.rechunk({1: -1})
    if dtype is None:
        dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)

    def apply(block: Any) -> Any:
        return function(validation.rows(block, "X"))

    return whole.map_blocks(apply, chunks=(whole.chunks[0], (n_columns,)), dtype=dtype, meta=np.empty((0, 0), dtype))


@contextlib.contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """Yield a client of the scheduler at an address, or of a new local cluster with the given number of processes."""
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            # a worker that is killed starts again, which takes long on a busy machine; Dask would give up after 15 s
            settings = {"nanny.pre-spawn-environ": _ENVIRONMENT, "deploy.lost-worker-timeout": f"{_WORKER_SECONDS} s"}
            stack.enter_context(dask.config.set({f"distributed.{key}": value for key, value in settings.items()}))
            # nothing listens on other interfaces than the loopback: who can connect can run code
            here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "worker_dashboard_address": None}
            options = {"threads_per_worker": 1, "silence_logs": logging.ERROR, **here}
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
