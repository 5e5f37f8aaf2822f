"""The schemas of gibbsot's own npz files: their names and their versions.

A schema is independent of the names of classes. When the entries of a file change, its version does.
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
        The version that is written and read.
    entries : mapping of str to str
        What files have: regular expressions of keys, and the kinds of types and numbers of axes of their arrays, such
        as "f8/12"; "" where others check it. The first that fits holds. Other entries are not read.
    """

    name: str
    version: int = 1
    entries: Mapping[str, str] = field(default_factory=lambda: {".+": ""})

    @property
    def identifier(self) -> str:
        """The identifier in a file of this schema, such as ``"gibbsot nmf 1"``."""
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


# What entries are: kinds of types as NumPy has them (with the size, where one is asked for), and numbers of axes.
_COUNT, _NUMBER, _TEXT, _VECTOR, _MATRIX = "iu/0", "fib/0", "U/0", "f8/1", "f8/2"
_ORACLE = {
    r"cost_\w+": "", "weights|h": "f/1", "columns|starts|sweep|ids": "iu/1", "penalty_[pq]": "fiu/01",
    "seed|tau|max_sweeps|stride": _COUNT,
}  # fmt: skip
_PAIR_ORACLE = {
    r"cost_\w+": "", "weights": "f/1", "columns|starts": "iu/1", "penalty_[pq]": "fiu/01", "kl": _VECTOR,
    "method": _TEXT, "normalize": "b/0", r"option_\w+": _NUMBER.replace("fib", "fiub"),
    r"state_\w*(control_(past|levels)|policy_(spacing|early))": "fi/1",
    r"state_(duals_|chains_|last_)?(ids|sweep)": "iu/1", r"state_(duals_|chains_|last_)?[ij]": "iu/2",
    r"state_(duals_|chains_|last_)?[pqfgh]": "f/2", r"state_\w+": "fiub/0",
}  # fmt: skip
_SHARD = {
    "number|first|bits|metadata_(n_rows|n_measures|first_empty|n_columns)": "iu/0", "rows": "iu/1",
    "quantum|value_quantum": _NUMBER, "weights": "f/12", "data_checksum|metadata_dtype": _TEXT,
    **{f"oracle_({key})": form for key, form in _ORACLE.items()},
}  # fmt: skip
_MIXTURE_SHARD = _SHARD | {"(log|mean|best)_memberships": _MATRIX, r"descent_\w+": "fiu/012"}
_MODEL = {"checksums": "U/1", r"cost_\w+": "", "parameter_step_size": "fi/01", r"parameter_\w+": "Ufib/0"}
_NMF = _MODEL | {
    "components": "f/2", "seed|n_features|n_seen|n_shards|run_n": _COUNT, "run_(support|published)": _NUMBER,
    "run_(dtype|algorithm)": _TEXT, "run_((log|best|mean)_components|history)": _MATRIX, "run_(weights|final)": _VECTOR,
    "control_(past|levels)": _VECTOR, r"control_\w+": _NUMBER, "stream_components": "f/2", r"stream_\w+": _NUMBER,
    **{rf"shard\d+_({key})": form for key, form in _MIXTURE_SHARD.items()},
}  # fmt: skip
_POTENTIALS = {"potentials": "f/2", "lambdas": "f8/1", r"cost_\w+": ""}
_BARYCENTER = _MODEL | {
    "history": "f8/12", "model_barycenter_": "f/1", "model_status_": _TEXT,
    "model_(objective|lower_bound|gap|n_iter|n_features_in)_": _NUMBER,
    "fit_(p|weights|descent_(log_p|average|control_past))": _VECTOR, r"fit_level_\w+": "", r"fit_\w+": _NUMBER,
}  # fmt: skip
_KMEANS_SHARD = {
    "number|first|count|metadata_(n_rows|n_measures|first_empty|n_columns)": "iu/0", "rows": "iu/1",
    "data_checksum|metadata_dtype": _TEXT, r"part\d+_cost_\w+": "", r"part\d+_f": "f4/3", r"part\d+_cuts\d+": "f4/3",
    r"part\d+_(rest|smooth_f|rests\d+)": _MATRIX, r"part\d+_keeps": "b/1", r"part\d+_members\d+": "iu/1",
    r"part\d+_centre": _VECTOR, r"part\d+_reach": _NUMBER, r"part\d+_(known|sizes)": "iu/1", r"part\d+_arcs": "iu/2",
}  # fmt: skip
_KMEANS = {
    "checksums": "U/1", r"cost\d+_\w+": "", r"parameter_\w+": "Ufib/0", "cost_weights": _VECTOR, "columns": "iu/1",
    "model_(labels_|solved)": "iu/1", "model_(counts|centroid_gaps|inertia_bounds)_": _VECTOR, "model_history": _MATRIX,
    "model_(inertia|n_relocated|n_iter)_": _NUMBER, r"(model|fit)_centre\d+(_points\d+)?": _MATRIX,
    r"(model|fit)_centre\d+_weights\d+": _VECTOR, "fit_(weights|random_numbers|run_gaps)": _VECTOR,
    "fit_random_key|fit_(run_)?solved|fit_run_(dirty|labels)": "iu/1", "fit_cuts": "iu/2",
    "fit_run_(value|below|above|history)": _MATRIX, "fit_(outcome|run_ended)": _TEXT,
    "fit_(number|best|done|run_relocated|run_last)": _NUMBER.replace("fib", "fiub"),
}  # fmt: skip
ORACLE = Schema("oracle", 2, entries=_PAIR_ORACLE)
MIXTURE_SHARD = Schema("nmf-shard", entries=_MIXTURE_SHARD)
NMF = Schema("nmf", entries=_NMF)
BARYCENTER_SHARD = Schema("barycenter-shard", entries=_SHARD | _POTENTIALS)
BARYCENTER = Schema("barycenter", entries=_BARYCENTER)
KMEANS_SHARD = Schema("k-means-shard", entries=_KMEANS_SHARD)
KMEANS = Schema("k-means", entries=_KMEANS)
DISTANCES = Schema("distances", entries={"values|gaps": _VECTOR, "identity": _TEXT})
