"""Shards in the memory of a Dask worker: the functions that `DaskShards` runs there.

Nothing is required of Dask but to run functions on given workers. That a command runs once, and in its turn, is
ensured here: each shard counts the commands it has run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from .shard import add

Key = tuple[str, str, int]  # of a shard: client, fit and number


class LostShardError(Exception):
    """A worker does not hold a shard, or holds it in another state."""


class Split(NamedTuple):
    """An argument that is another one for each shard, by number."""

    pieces: Mapping[int, Any]

    @classmethod
    def of(cls, pieces: Sequence[Any]) -> Split:
        """Return the argument of which each shard, in the order of their numbers, gets a piece."""
        return cls(dict(enumerate(pieces)))


class Call(NamedTuple):
    """A method of a shard by its name, and its arguments."""

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def run(self, shard: Any) -> Any:
        """Call the method of a shard."""
        args = (x.pieces[shard.number] if isinstance(x, Split) else x for x in self.args)
        return getattr(shard, self.method)(*args, **self.kwargs)

    def narrowed(self, numbers: Sequence[int]) -> Call:
        """Return the call with those pieces of its arguments that some shards need."""
        if not any(isinstance(x, Split) for x in self.args):
            return self
        args = (Split({k: x.pieces[k] for k in numbers}) if isinstance(x, Split) else x for x in self.args)
        return self._replace(args=tuple(args))


class Checkpoint(NamedTuple):
    """The number of commands before a checkpoint, its folder, and the checksums of the shards' files."""

    position: int
    folder: str
    checksums: Sequence[str]


class Log(NamedTuple):
    """The last checkpoints, the oldest first, and the commands since a position, for replay."""

    start: int
    commands: Sequence[Call]
    checkpoints: Sequence[Checkpoint] = ()


class InUse(NamedTuple):
    """Whose shards are still needed: a client, its present fits, and all clients of the scheduler."""

    client: str
    fits: Sequence[str]
    clients: Sequence[str]


class Entry:
    """A shard on a worker, the number of commands it has run, and the last answer."""

    def __init__(self, shard: Any, position: int, answer: Any = None) -> None:
        self.shard, self.position, self.answer, self.lock = shard, position, answer, threading.Lock()


entries: dict[Key, Entry] = {}  # the shards that this worker holds


def position(key: Key) -> tuple[int, int]:
    """Return the number of commands that a shard has run, and its rows; (-1, 0) if it is not here."""
    entry = entries.get(key)
    return (-1, 0) if entry is None else (entry.position, len(entry.shard))


def run_command(key: Key, message: tuple[int, Call]) -> Any:
    """Run the command with the given position; if it has run already, return the answer again."""
    wanted, call = message
    entry = _entry(key)
    with entry.lock:
        if entry.position == wanted - 1:
            _advance(key, entry, call)
        if entry.position != wanted:
            raise LostShardError(key)
        return entry.answer


def run_query(key: Key, message: tuple[int, Call]) -> Any:
    """Run a query on a shard that has run the given number of commands."""
    wanted, call = message
    entry = _entry(key)
    with entry.lock:
        if entry.position != wanted:
            raise LostShardError(key)
        return call.run(entry.shard)


def run_all(keys: Sequence[Key], threads: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call a function for each of some shards of this worker, in threads; return the answers."""
    with ThreadPoolExecutor(min(threads, len(keys))) as pool:
        return list(pool.map(lambda key: function(key, *args), keys))


def run_sum(keys: Sequence[Key], threads: int, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function for each of some shards of this worker, in threads; return the sum of the answers."""
    return add(run_all(keys, threads, function, *args))


def restore(key: Key, kind: Any, source: Any, log: Log, in_use: InUse) -> None:
    """Bring a shard to the end of the log: from its present state, from a checkpoint or from the data.

    Parameters
    ----------
    key : Key
        The shard.
    kind : class
        Its class.
    source : matrix, path or object of Dask
        Its data; None if they are not known yet, for a shard of a checkpoint.
    log : Log
        The checkpoints, and the commands to replay.
    in_use : InUse
        What else is needed; other shards are dropped first.
    """
    discard(in_use)
    entry = entries.get(key)
    if entry is None or not log.start <= entry.position <= log.start + len(log.commands):
        entry = entries[key] = _create(key[2], kind, source, log)
    with entry.lock:
        for call in log.commands[entry.position - log.start :]:
            _advance(key, entry, call)


def attach(key: Key, source: Any) -> None:
    """Give a shard its data, or check that data are its own."""
    entry = _entry(key)
    with entry.lock:
        entry.shard.attach(source)


def take(key: Key) -> tuple[Any, int, Any]:
    """Remove a shard from this worker and return it, to be given to another."""
    entry = _entry(key)
    entries.pop(key, None)
    return entry.shard, entry.position, entry.answer


def put(key: Key, taken: tuple[Any, int, Any]) -> None:
    """Store a shard that was taken from another worker."""
    entries[key] = Entry(*taken)


def discard(in_use: InUse) -> None:
    """Drop the shards of fits that are over and of clients that are gone."""
    for key in list(entries):
        client, fit, _ = key
        if client not in in_use.clients or (client == in_use.client and fit not in in_use.fits):
            entries.pop(key, None)


def drop(keys: Sequence[Key]) -> None:
    """Drop some shards, which others hold now."""
    for key in keys:
        entries.pop(key, None)


def shape_and_type(x: Any) -> tuple[tuple[int, ...], str]:
    """Return the shape and type of an answer that stays on the worker."""
    return x.shape, x.dtype.str


def scheduler_clients(dask_scheduler: Any) -> list[str]:
    """Return the ids of all clients of the scheduler; runs on the scheduler."""
    return list(dask_scheduler.clients)


def scheduler_workers(dask_scheduler: Any) -> dict[str, tuple[int, str]]:
    """Return the number of threads and the status of each worker; runs on the scheduler."""
    return {address: (one.nthreads, one.status.name) for address, one in dask_scheduler.workers.items()}


def _entry(key: Key) -> Entry:
    entry = entries.get(key)
    if entry is None:
        raise LostShardError(key)
    return entry


def _advance(key: Key, entry: Entry, call: Call) -> None:
    try:
        entry.answer = call.run(entry.shard)
    except BaseException:
        entries.pop(key, None)  # its state is undefined
        raise
    entry.position += 1


def _create(number: int, kind: Any, source: Any, log: Log) -> Entry:
    for position, folder, checksums in reversed(log.checkpoints):
        try:
            shard = kind.load(folder, number, checksums[number])
        except (OSError, ValueError):  # damaged or out of reach: use the one before
            continue
        if source is not None:
            shard.attach(source)
        return Entry(shard, position)
    if log.start or source is None:
        folders = ", ".join(checkpoint.folder for checkpoint in log.checkpoints)
        raise ValueError(f"shard {number}: all of its checkpoints are damaged ({folders})")
    return Entry(kind.read(source, number), 0)
