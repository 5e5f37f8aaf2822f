"""The schemas of gibbsot's own npz files: their names, their versions and the keys of earlier versions.

A schema is independent of the names of classes. Files of earlier versions are read: `Schema.current_key` translates
their keys. When a key changes, add the old one here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


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
    entries : mapping of str to str
        What files have: regular expressions of keys, and the kinds of types and numbers of axes of their arrays, such
        as "f8/12"; "" where others check it. The first that fits holds. Other entries are not read.
    """

    name: str
    version: int = 1
    earlier: tuple[str, ...] = ()
    entries: Mapping[str, str] = field(default_factory=lambda: {".+": ""})

    @property
    def identifier(self) -> str:
        """The identifier in a file of this schema, such as ``"gibbsot nmf 2"``."""
        return f"gibbsot {self.name} {self.version}"

    def has(self, key: str) -> bool:
        """Return whether files have this key.

        Examples
        --------
        >>> NMF.has("cost_M"), NMF.has("zeros")
        (True, False)
        """
        return self._form(key) is not None

    def check(self, key: str, array: NDArray[Any]) -> None:
        """Raise ValueError if an array is not what this entry of a file is.

        Examples
        --------
        >>> import numpy as np
        >>> NMF.check("seed", np.array([1.5]))
        Traceback (most recent call last):
        ...
        ValueError: seed: expected numbers of kind 'iu' on 0 axes, got float64 of shape (1,)
        """
        kinds, _, axes = (self._form(key) or "").partition("/")
        found = array.dtype.kind + (str(array.dtype.itemsize) if kinds[-1:].isdigit() else "")
        if axes and not (found in (kinds if len(found) == 1 else [kinds]) and str(array.ndim) in axes):
            raise ValueError(
                f"{key}: expected numbers of kind {kinds!r} on {' or '.join(axes)} axes, got {array.dtype} of shape "
                f"{array.shape}"
            )

    def _form(self, key: str) -> str | None:
        return next((form for pattern, form in self.entries.items() if re.fullmatch(pattern, key)), None)

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


# What entries are: kinds of types as NumPy has them (with the size, where one is asked for), and numbers of axes.
_COUNT, _NUMBER, _TEXT, _VECTOR, _MATRIX = "iu/0", "fib/0", "U/0", "f8/1", "f8/2"
_ORACLE = {
    r"cost_\w+": "", "weights|h": "f/1", "columns|starts|sweep|ids": "iu/1", "penalty": _NUMBER,
    "seed|tau|max_sweeps|stride": _COUNT,
}  # fmt: skip
_SHARD = {
    "number|first|bits|metadata_(n_rows|n_measures|first_empty|n_columns)": "iu/0", "rows": "iu/1",
    "quantum|value_quantum": _NUMBER, "weights": "f/12", "data_checksum|metadata_dtype": _TEXT,
    **{f"oracle_({key})": form for key, form in _ORACLE.items()},
}  # fmt: skip
_MIXTURE_SHARD = _SHARD | {"(log|mean|best)_memberships": _MATRIX, r"descent_\w+": "fiu/012"}
_MODEL = {"checksums": "U/1", r"cost_\w+": "", "parameter_step_size": "fi/01", r"parameter_\w+": "Ufib/0"}
_NMF = _MODEL | {
    "components": "f/2", "seed|n_features|n_seen|n_shards|run_n": _COUNT, "run_(unit|support)": _NUMBER,
    "run_(dtype|algorithm)": _TEXT, "run_((log|best|mean)_components|history)": _MATRIX, "run_(weights|final)": _VECTOR,
    "control_(past|levels)": _VECTOR, r"control_\w+": _NUMBER, "stream_components": "f/2", r"stream_\w+": _NUMBER,
    **{rf"shard\d+_({key})": form for key, form in _MIXTURE_SHARD.items()},
}  # fmt: skip
_BARYCENTER = _MODEL | {
    "history": "f8/12", "model_barycenter_": "f/1", "model_status_": _TEXT,
    "model_(objective|lower_bound|gap|n_iter|n_features_in)_": _NUMBER,
    "fit_(p|weights|descent_(log_p|average|control_past))": _VECTOR, r"fit_level_\w+": "", r"fit_\w+": _NUMBER,
}  # fmt: skip
ORACLE = Schema("oracle", 2, ("gibbsot/1 Oracle",), _ORACLE)
MIXTURE_SHARD = Schema("nmf-shard", 2, ("gibbsot/1 Mixtures",), _MIXTURE_SHARD)
NMF = Schema("nmf", 2, ("gibbsot/1 WassersteinNMF",), _NMF)
BARYCENTER_SHARD = Schema("barycenter-shard", entries=_SHARD | {"potentials": "f/2", r"cost_\w+": ""})
BARYCENTER = Schema("barycenter", entries=_BARYCENTER)
DISTANCES = Schema("distances", entries={"values|gaps": _VECTOR, "identity": _TEXT})

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
