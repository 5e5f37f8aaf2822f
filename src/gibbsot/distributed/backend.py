"""Chooses the backend: shards in this process, or on the workers of a Dask client (an optional extra)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .interface import S, Shards
from .local import LocalShards


def read(client: Any, kind: type[S], sources: Sequence[Any]) -> Shards[S]:
    """Return shards of a class, one for each source."""
    if client is not None:
        from .dask import DaskShards

        return DaskShards(client, kind, sources)
    return LocalShards([kind.read(source, number) for number, source in enumerate(sources)])


def load(client: Any, kind: type[S], folder: str, checksums: Sequence[str]) -> Shards[S]:
    """Return the shards of a checkpoint.

    Parameters
    ----------
    client : dask.distributed.Client or None
        The client whose workers hold the shards; None for this process.
    kind : class
        The class of the shards.
    folder : path or URL
        The folder of the checkpoint.
    checksums : sequence of str
        The checksum of each shard's file.

    Returns
    -------
    Shards
    """
    if client is not None:
        from .dask import DaskShards

        return DaskShards.restore(client, kind, folder, checksums)
    return LocalShards([kind.load(folder, number, checksum) for number, checksum in enumerate(checksums)])
