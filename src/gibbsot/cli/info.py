"""``gibbsot info``: what a report of a bug needs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

import scipy.linalg  # noqa: F401  # with NumPy, which is loaded: the BLAS of both is named
from threadpoolctl import threadpool_info

from .. import __version__
from ..core import native
from ._common import Jobs, Json, Quiet, print_json, print_table

EPILOG = "Example:\n\n  gibbsot info --json"
_PACKAGES = (
    "numpy", "scipy", "scikit-learn", "threadpoolctl", "torch", "jax", "POT", "dask", "anndata", "pandas", "pyarrow",
    "matplotlib",
)  # fmt: skip
_VARIABLES = ("GIBBSOT_KERNEL", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHON_GIL")


def info(jobs: Jobs = -1, quiet: Quiet = False, as_json: Json = False) -> None:
    """Print what a report of a bug needs: versions, kernels, processor, threads, BLAS."""
    found: dict[str, Any] = {
        "version": __version__,
        "kernel": native.name(),
        "kernels": list(native.available()),
        "threads": native.threads(jobs),
        "python": _python(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "packages": _packages(),
        "blas": [_library(one) for one in threadpool_info() if one["user_api"] == "blas"],
        "environment": [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ],
    }
    if as_json:
        print_json(found)
    elif quiet:
        print(__version__)
    else:
        rows = ((name, ", ".join(x) if isinstance(x, list) else str(x)) for name, x in found.items())
        print_table(*((name, x or "none set") for name, x in rows))


def _python() -> str:
    """Return the version of Python, and whether it runs without the global interpreter lock."""
    lock = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", free-threaded"
    return f"{platform.python_implementation()} {platform.python_version()}{lock}"


def _processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text(errors="replace").splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _packages() -> list[str]:
    """Return the versions of the packages that gibbsot uses, of those that are installed; nothing is imported."""
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _library(one: dict[str, Any]) -> str:
    """Return the name, version, kernels and number of threads of a BLAS."""
    parts = one["internal_api"], one["version"], one.get("architecture"), f"({one['num_threads']} threads)"
    return " ".join(str(x) for x in parts if x)
