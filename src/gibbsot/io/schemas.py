"""The schemas of gibbsot's own npz files: their names, their versions and the keys of earlier versions.

A schema is independent of the names of classes. Files of earlier versions are read: `Schema.current_key` translates
their keys. When a key changes, add the old one here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Schema:
    """The schema of a file: what it holds, and in which version.

    Attributes
    ----------
    name : str
        What the file holds.
    version : int
        The version that is written.
    earlier : tuple of str
        The identifiers of earlier versions, which are still read.
    renamed : mapping of str to str
        Keys of earlier versions, as regular expressions, and what replaces them.
    """

    name: str
    version: int = 1
    earlier: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def identifier(self) -> str:
        """The identifier in a file of this schema, such as ``"gibbsot nmf 2"``."""
        return f"gibbsot {self.name} {self.version}"

    def current_key(self, key: str) -> str:
        """Return the present key for one of an earlier version.

        Examples
        --------
        >>> NMF.current_key("part3_facts_size")
        'shard3_metadata_n_rows'
        """
        for pattern, replacement in self.renamed.items():
            key = re.sub(pattern, replacement, key)
        return key


_SHARD_KEYS = {
    r"(^|_)facts_size$": r"\1metadata_n_rows",
    r"(^|_)facts_full$": r"\1metadata_n_measures",
    r"(^|_)facts_empty$": r"\1metadata_first_empty",
    r"(^|_)facts_columns$": r"\1metadata_n_columns",
    r"(^|_)facts_dtype$": r"\1metadata_dtype",
    r"^(part\d+_)?unit$": r"\1quantum",
    r"^(part\d+_)?value_unit$": r"\1value_quantum",
}

ORACLE = Schema("oracle", 2, ("gibbsot/1 Oracle",))
MIXTURE_SHARD = Schema("nmf-shard", 2, ("gibbsot/1 Mixtures",), _SHARD_KEYS)
NMF = Schema(
    "nmf",
    2,
    ("gibbsot/1 WassersteinNMF",),
    {
        **_SHARD_KEYS,
        r"^part(\d+)_": r"shard\1_",
        r"^n_parts$": "n_shards",
        r"^digests$": "checksums",
        r"^control_coldest$": "control_T_min",
        r"^control_heat$": "control_bias",
        r"^control_longest$": "control_step_max",
        r"^control_calm$": "control_least_gradient",
        r"^control_looked$": "control_evaluated",
    },
)
