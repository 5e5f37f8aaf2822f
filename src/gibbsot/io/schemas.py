"""The schemas of gibbsot's own npz files: their names, their versions and the keys of earlier versions.

A schema is independent of the names of classes. Files of earlier versions are read: `Schema.current_key` translates
their keys. When a key changes, add the old one here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


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
    """

    name: str
    version: int = 1
    earlier: tuple[str, ...] = ()

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
        shard = "".join(re.findall(r"^part\d+_", key))
        name = key.removeprefix(shard)
        return shard.replace("part", "shard") + _EARLIER_KEYS.get(name, name)


ORACLE = Schema("oracle", 2, ("gibbsot/1 Oracle",))
MIXTURE_SHARD = Schema("nmf-shard", 2, ("gibbsot/1 Mixtures",))
NMF = Schema("nmf", 2, ("gibbsot/1 WassersteinNMF",))
BARYCENTER_SHARD = Schema("barycenter-shard", 2)
BARYCENTER = Schema("barycenter", 2)
DISTANCES = Schema("distances")

_EARLIER_KEYS = {
    "facts_size": "metadata_n_rows",
    "facts_full": "metadata_n_measures",
    "facts_empty": "metadata_first_empty",
    "facts_columns": "metadata_n_columns",
    "facts_dtype": "metadata_dtype",
    "unit": "quantum",
    "value_unit": "value_quantum",
    "n_parts": "n_shards",
    "digests": "checksums",
    "control_coldest": "control_T_min",
    "control_heat": "control_bias",
    "control_longest": "control_step_max",
    "control_calm": "control_least_gradient",
    "control_looked": "control_evaluated",
}
