"""Selection of the compiled kernels: the best instruction set that this processor supports, or NumPy.

The environment variable ``GIBBSOT_KERNEL`` (``avx512``, ``avx2``, ``baseline`` or ``numpy``) overrides the choice. What
is done with the selected kernels is in `core.backend`.
"""

from __future__ import annotations

import importlib
import os
import warnings
from importlib.util import find_spec
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike, NDArray

LEVELS = ("avx512", "avx2", "baseline")
_name = ""  # of the selected kernels; empty before the first use


def load(level: str) -> ModuleType:
    """Import the kernels of one instruction set.

    Parameters
    ----------
    level : str
        One of `available`, but not ``"numpy"``.

    Returns
    -------
    module
    """
    return importlib.import_module(f"gibbsot.core._native_{level}")


def available() -> tuple[str, ...]:
    """Return the kernels that run on this machine, best first; the last is always ``"numpy"``.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> available()[-1]
    'numpy'
    """
    try:
        best = importlib.import_module("gibbsot.core._cpu").best_instruction_set()
    except ImportError:
        return ("numpy",)
    built = [level for level in LEVELS[LEVELS.index(best) :] if find_spec(f"gibbsot.core._native_{level}") is not None]
    return (*built, "numpy")


def _select(wanted: str | None = None) -> str:
    """Select the kernels that all later calls of this process use, by default the best; return their name."""
    global _name
    usable = available()
    if wanted is None:
        wanted = usable[0]
        if wanted == "numpy":
            warnings.warn(
                "gibbsot was installed without its compiled kernels and uses NumPy, about a hundred times slower; "
                "install a C++ compiler and reinstall gibbsot to have them",
                RuntimeWarning,
                stacklevel=2,
            )
    if wanted not in usable:
        raise ValueError(f"GIBBSOT_KERNEL: {wanted!r} is not available here; expected one of {', '.join(usable)}")
    _name = wanted
    return wanted


def name() -> str:
    """Return the name of the selected kernels.

    Returns
    -------
    str
    """
    return _name or _select(os.environ.get("GIBBSOT_KERNEL") or None)


def aligned(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.floating]:
    """Return an uninitialised array whose data starts at a cache line.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array.
    dtype : dtype
        Type of its entries.

    Returns
    -------
    array
    """
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count].view(dtype).reshape(shape)


def threads(n_jobs: int | None) -> int:
    """Return the number of threads for a value of ``n_jobs``, as in scikit-learn.

    Parameters
    ----------
    n_jobs : int or None
        None means 1, -1 all cores, -2 all cores but one, and so on. More than there are cores means all cores.

    Returns
    -------
    int

    Raises
    ------
    TypeError
        If ``n_jobs`` is not an integer.
    ValueError
        If ``n_jobs`` is 0.

    Examples
    --------
    >>> threads(None), threads(1), threads(10**6) == threads(-1)
    (1, 1, True)
    """
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer):  # `validation` comes after this module
        raise TypeError(f"n_jobs: expected an integer, got {n_jobs!r}")
    if n_jobs == 0:
        raise ValueError(
            "n_jobs: 0 has no meaning; expected a positive number, or a negative one to count from all cores"
        )
    cores = os.cpu_count() or 1
    return min(int(n_jobs), cores) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))
