"""The schemas of gibbsot's own npz files: their names and their versions.

A schema is independent of the names of classes. When the entries of a file change, its version does.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schema:
    """The schema of a file: what it holds, and in which version.

    Attributes
    ----------
    name : str
        What the file holds.
    version : int
        The version that is written and read.
    """

    name: str
    version: int = 1

    @property
    def identifier(self) -> str:
        """The identifier in a file of this schema, such as ``"gibbsot nmf 1"``."""
        return f"gibbsot {self.name} {self.version}"


ORACLE = Schema("oracle")
MIXTURE_SHARD = Schema("nmf-shard")
NMF = Schema("nmf")
BARYCENTER_SHARD = Schema("barycenter-shard")
BARYCENTER = Schema("barycenter")
DISTANCES = Schema("distances")
