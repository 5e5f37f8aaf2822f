"""Chooses where shards live: in this process, or on the workers of a Dask client (an optional extra)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .local import Shards


def read(client: Any, kind: Any, sources: Sequence[Any]) -> Shards:
    """Return shards of a kind that read their sources."""
    if client is not None:
        from .dask import Cluster

        return Cluster(client, kind, sources)
    return Shards([kind.read(source, number) for number, source in enumerate(sources)])


def load(client: Any, kind: Any, folder: str, checksums: Sequence[str]) -> Shards:
    """Return the shards of a checkpoint."""
    if client is not None:
        from .dask import Cluster

        return Cluster.restored(client, kind, folder, checksums)
    return Shards([kind.load(folder, number, checksum) for number, checksum in enumerate(checksums)])
