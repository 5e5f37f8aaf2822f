"""Parts of the data on the workers of a Dask cluster (the extra ``dask``).

Each part lives in the memory of one worker. An order goes to all parts where they are, and the answers are added up on
the way back, in a tree. The client remembers the orders since the last checkpoints: a part that is lost with its worker
is made again elsewhere and given the same orders again, so that it comes to the same bits. Nothing is asked of Dask but
to run functions on workers; that an order is obeyed once, and in its turn, is seen to here.
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
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

try:
    import dask
    import dask.array
    import distributed
    from dask.delayed import Delayed
except ImportError:
    raise ImportError("gibbsot.dask needs Dask: pip install 'gibbsot[dask]'") from None

from ..core import validation
from ..io import npz
from . import local
from .local import Shards

T = TypeVar("T")
Order = tuple[str, tuple[Any, ...]]

_ARITY = 8  # answers that are added at once, between workers
_PATIENCE = 1.0  # seconds to wait for an answer before looking whether all workers are there
_PAUSE = 10.0  # seconds before making lost parts again, at the most
_ATTEMPTS = 10  # to make lost parts again without any progress
_WAIT = 300.0  # seconds for a worker to come where there is none
_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": 2**26, "MALLOC_TRIM_THRESHOLD_": 2**30, "MALLOC_TOP_PAD_": 2**25,
    "OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1, "MKL_NUM_THREADS": 1,
}  # fmt: skip
_GLANCE = 5.0  # seconds from one look for new workers to the next


class _LostError(Exception):
    """A worker does not have a part, or has it in another state."""


class _Saved(NamedTuple):
    """Where parts were written, and after how many orders."""

    step: int
    folder: str
    checksums: list[str]


class _Held:
    """A part on a worker, the number of orders it has obeyed, and the last answer."""

    def __init__(self, part: Any, step: int, answer: Any = None) -> None:
        self.part, self.step, self.answer, self.lock = part, step, answer, threading.Lock()


_held: dict[tuple[str, str, int], _Held] = {}  # by client, run and number; on a worker


class Cluster(Shards):
    """Parts on the workers of a client, with the methods of `Shards`.

    Parameters
    ----------
    client : dask.distributed.Client
    kind : class
        A subclass of `shards.Part`.
    sources : sequence of arrays, sparse matrices, Delayed objects or paths
        The data of each part. Paths are read by workers.
    """

    _alive: ClassVar[weakref.WeakSet[Cluster]] = weakref.WeakSet()

    def __init__(self, client: Any, kind: Any, sources: Sequence[Any]) -> None:
        self._begin(client, kind, sources, [])

    @classmethod
    def restored(cls, client: Any, kind: Any, folder: str, checksums: Sequence[str]) -> Cluster:
        """Return the parts of a checkpoint."""
        cluster = cls.__new__(cls)
        cluster._begin(client, kind, [None] * len(checksums), [_Saved(0, folder, list(checksums))])
        return cluster

    def _begin(self, client: Any, kind: Any, sources: Sequence[Any], saved: list[_Saved]) -> None:
        if not isinstance(client, distributed.Client) or client.asynchronous or client.status != "running":
            raise ValueError(
                f"client: expected a dask.distributed.Client, running and not asynchronous, got {client!r}"
            )
        self.client: Any = client
        self.kind, self.sources = kind, list(sources)
        self._name = (client.id, secrets.token_hex(8))
        self._orders: list[Order] = []  # since the first of `_saved`, or the beginning
        self._forgotten = 0  # orders before those
        self._saved = saved
        self._places: list[str] = []  # the worker of each part
        self._looked = time.monotonic()
        Cluster._alive.add(self)
        try:
            self._insist(self._make)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self.sources)

    def __reduce__(self) -> Any:
        raise TypeError("a fit on a cluster cannot be copied or pickled; save the model instead")

    @property
    def _step(self) -> int:
        return self._forgotten + len(self._orders)

    def total(self, order: str, *args: Any) -> tuple[Any, ...]:
        self._welcome()
        self._orders.append((order, args))
        step = self._step
        return self._insist(lambda: self._sum(_obey, step, order, args))

    def ask(self, order: str, *args: Any) -> tuple[Any, ...]:
        return self._insist(lambda: self._sum(_ask, self._step, order, args))

    def each(self, order: str, *args: Any) -> list[Any]:
        return self._insist(lambda: self._result(self._all(_ask, self._step, order, args)))

    def rows(self, order: str, columns: int) -> Any:
        """Return answers that are rows of one matrix, as a Dask array whose blocks are on the workers."""

        def answers() -> list[Any]:
            futures = self._all(_ask, self._step, order, ())
            self._result([self.client.submit(_done, futures, pure=False)])
            return futures

        blocks = [
            dask.array.from_delayed(future, (fact.size, columns), fact.dtype)
            for future, fact in zip(self._insist(answers), self.facts, strict=True)
        ]
        return dask.array.concatenate(blocks)

    def save(self, folder: str) -> list[str]:
        checksums = super().save(folder)
        self._saved = [*self._saved, _Saved(self._step, folder, checksums)][-2:]
        if len(self._saved) == 2:
            self._orders = self._orders[self._saved[0].step - self._forgotten :]
            self._forgotten = self._saved[0].step
        return checksums

    def close(self) -> None:
        Cluster._alive.discard(self)
        if self.client.status == "running":
            self.client.run(_forget, *self._wanted())

    def _wanted(self) -> tuple[str, list[str], list[str]]:
        """Return the client, its runs that are wanted, and all clients that there are."""
        living = [other._name[1] for other in Cluster._alive if other.client is self.client]
        return self.client.id, living, self.client.run_on_scheduler(_clients)

    def _insist(self, action: Callable[[], T]) -> T:
        """Return the result of an action; where parts were lost, make them again and repeat it."""
        for attempt in range(_ATTEMPTS):
            try:
                if attempt:
                    time.sleep(min(0.1 * 2**attempt, _PAUSE))  # for the scheduler to notice who is gone
                    self._make()
                return action()
            except _LostError as error:
                reason = error
        raise RuntimeError(f"parts of the data were lost {_ATTEMPTS} times in a row; see the workers' logs") from reason

    def _workers(self) -> dict[str, int]:
        """Return the workers and their numbers of threads; wait for one if there is none."""
        if not (found := self.client.nthreads()):
            self.client.wait_for_workers(1, timeout=_WAIT)
            found = self.client.nthreads()
        return dict(found)

    def _make(self) -> None:
        """Bring all parts to where they should be, on workers that are there."""
        workers = self._workers()
        load = Counter(place for place in self._places if place in workers)
        self._places += [""] * (len(self) - len(self._places))
        for number, place in enumerate(self._places):
            if place not in workers:
                self._places[number] = min(workers, key=lambda worker: ((load[worker] + 1) / workers[worker], worker))
                load[self._places[number]] += 1
        steps = self._result(self._all(_step_of))
        behind = [number for number, step in enumerate(steps) if not self._forgotten <= step <= self._step]
        late = [number for number, step in enumerate(steps) if self._forgotten <= step < self._step]
        if not behind and not late:
            return
        wanted = self._wanted()
        orders = self._scatter((self._forgotten, self._orders))
        self._result(
            [
                self._submit(number, _make, self.kind, self._source(number, number in behind), saved, orders, wanted)
                for number in behind + late
                for saved in [[(one.step, one.folder, one.checksums[number]) for one in self._saved]]
            ]
        )

    def _source(self, number: int, wanted: bool) -> Any:
        """Return the data of a part as something to give to a worker."""
        source = self.sources[number] if wanted else None
        if isinstance(source, Delayed | dask.array.Array):
            return self.client.compute(source)
        if isinstance(source, str | os.PathLike):
            return npz.absolute(source)
        if source is None:
            return None
        return self._scatter(source, workers=[self._places[number]])

    def _welcome(self) -> None:
        """Give some parts to workers that have come since the last look."""
        if time.monotonic() - self._looked < _GLANCE:
            return
        self._looked, workers = time.monotonic(), self._workers()
        load = Counter(self._places)
        if not workers.keys() - load.keys() or not load.keys() <= workers.keys():
            return
        moved: dict[int, str] = {}
        for number, place in enumerate(self._places):
            least = min(workers, key=lambda worker: (load[worker] / workers[worker], worker))
            if (load[least] + 1) / workers[least] < load[place] / workers[place]:
                moved[number] = least
                load.subtract([place])
                load.update([least])
        with contextlib.suppress(_LostError):  # what is lost on the way is made again
            packed = {number: self._submit(number, _pack) for number in moved}
            for number, place in moved.items():
                self._places[number] = place
            self._result([self._submit(number, _unpack, one) for number, one in packed.items()])

    def _scatter(self, x: Any, **how: Any) -> Any:
        try:
            return self.client.scatter([x], hash=False, **how)[0]
        except (OSError, TimeoutError, asyncio.TimeoutError, KeyError) as error:  # a worker left, or all did
            raise _LostError(str(error)) from error

    def _submit(self, number: int, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function for a part on its worker, and on no other."""
        return self.client.submit(
            function, (*self._name, number), *args, workers=[self._places[number]], pure=False, retries=0
        )

    def _all(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call a function for each part; large arguments go out once, from worker to worker."""
        shared = self._scatter(args, broadcast=True) if args else None
        return [self._submit(number, function, *([shared] if args else [])) for number in range(len(self))]

    def _sum(self, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Return the sum of answers: first those on each worker, then those of a few workers at a time."""
        by_worker: dict[str, list[Any]] = {}
        for place, answer in zip(self._places, self._all(function, *args), strict=True):
            by_worker.setdefault(place, []).append(answer)
        sums = [self.client.submit(_add, group, workers=[place], pure=False) for place, group in by_worker.items()]
        while len(sums) > 1:
            sums = [self.client.submit(_add, sums[k : k + _ARITY], pure=False) for k in range(0, len(sums), _ARITY)]
        return self._result(sums)[0]

    def _result(self, futures: list[Any]) -> list[Any]:
        """Return the results of futures; see that the workers which owe them are there."""
        while True:
            try:
                return [future.result(timeout=_PATIENCE) for future in futures]
            except (TimeoutError, asyncio.TimeoutError):
                if any(future.status == "error" for future in futures):  # it was the task that ran out of time
                    raise
                missing = set(self._places) - set(self.client.nthreads())
                if missing:
                    self.client.cancel(futures, force=True)
                    raise _LostError(f"{', '.join(sorted(missing))} left") from None
            except (distributed.KilledWorker, distributed.CancelledError, asyncio.CancelledError) as error:
                raise _LostError(str(error)) from error


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let processes that are started here ignore Ctrl-C, which a terminal sends to all: the client obeys it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """Give a client of a scheduler, or of a cluster of so many processes here."""
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            # Dask's own setting gives memory back at once, and each array of an epoch would ask for it again
            stack.enter_context(dask.config.set({"distributed.nanny.pre-spawn-environ": _MEMORY}))
            with _undisturbed():
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


def mapped(X: Any, function: Callable[..., Any], D: Any, *args: Any) -> Any:
    """Return a Dask array of what a function makes of blocks of rows and D: one column for each row of D."""
    if X.shape[1] != D.shape[1]:
        raise ValueError(f"X: has {X.shape[1]} columns; expected {D.shape[1]} as in the fit")

    def of_block(block: Any) -> Any:
        return function(validation.rows(block, "X"), D, *args)

    whole = X.rechunk({1: -1})
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    return whole.map_blocks(of_block, chunks=(whole.chunks[0], (len(D),)), dtype=dtype, meta=np.empty((0, 0), dtype))


def _add(answers: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return local.add(*answers)


def _found(key: tuple[str, str, int]) -> _Held:
    held = _held.get(key)
    if held is None:
        raise _LostError(key)
    return held


def _done(answers: Sequence[Any]) -> int:
    return len(answers)


def _step_of(key: tuple[str, str, int]) -> int:
    held = _held.get(key)
    return -1 if held is None else held.step


def _obey(key: tuple[str, str, int], message: tuple[int, str, tuple[Any, ...]]) -> Any:
    """Give a part an order in its turn; one that comes again gets the answer again."""
    step, order, args = message
    held = _found(key)
    with held.lock:
        if held.step == step - 1:
            _advance(key, held, order, args)
        if held.step != step:
            raise _LostError(key)
        return held.answer


def _advance(key: tuple[str, str, int], held: _Held, order: str, args: tuple[Any, ...]) -> None:
    try:
        held.answer = getattr(held.part, order)(*args)
    except BaseException:
        _held.pop(key, None)  # half changed
        raise
    held.step += 1


def _ask(key: tuple[str, str, int], message: tuple[int, str, tuple[Any, ...]]) -> Any:
    step, order, args = message
    held = _found(key)
    with held.lock:
        if held.step != step:
            raise _LostError(key)
        return getattr(held.part, order)(*args)


def _make(
    key: tuple[str, str, int],
    kind: Any,
    source: Any,
    saved: Sequence[tuple[int, str, str]],
    orders: tuple[int, Sequence[Order]],
    wanted: tuple[str, list[str], list[str]],
) -> None:
    """Bring a part to where it should be: from what there is, from a checkpoint or from the data."""
    _forget(*wanted)
    first, log = orders
    held = _held.get(key)
    if held is None or not first <= held.step <= first + len(log):
        held = _held[key] = _first(key[2], kind, source, saved, first)
    with held.lock:
        for order, args in log[held.step - first :]:
            _advance(key, held, order, args)


def _first(number: int, kind: Any, source: Any, saved: Sequence[tuple[int, str, str]], first: int) -> _Held:
    for step, folder, checksum in reversed(saved):
        with contextlib.suppress(OSError, ValueError):  # damaged, or out of reach: there is the one before
            return _Held(kind.load(folder, number, checksum), step)
    if first or source is None:
        raise ValueError(f"part {number}: none of its checkpoints is whole ({', '.join(one[1] for one in saved)})")
    return _Held(kind.read(source, number), 0)


def _pack(key: tuple[str, str, int]) -> tuple[Any, int, Any]:
    held = _found(key)
    _held.pop(key, None)
    return held.part, held.step, held.answer


def _unpack(key: tuple[str, str, int], packed: tuple[Any, int, Any]) -> None:
    _held[key] = _Held(*packed)


def _clients(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.clients)


def _forget(client: str, living: Sequence[str], clients: Sequence[str]) -> None:
    """Drop the parts of runs that nobody wants any more, and of clients that are gone."""
    for key in list(_held):
        if key[0] not in clients or (key[0] == client and key[1] not in living):
            _held.pop(key, None)
