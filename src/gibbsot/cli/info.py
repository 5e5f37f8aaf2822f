"""``gibbsot info``: version, kernels and threads."""

from __future__ import annotations

import platform

import numpy as np

from .. import __version__
from ..core import native
from ._common import Jobs, Json, Quiet, print_json, print_table

EPILOG = "Example:\n\n  gibbsot info --json"


def info(jobs: Jobs = -1, quiet: Quiet = False, as_json: Json = False) -> None:
    """Version, kernels in use, threads."""
    found = {
        "version": __version__,
        "kernel": native.name(),
        "kernels": list(native.available()),
        "threads": native.threads(jobs),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    if as_json:
        print_json(found)
    elif quiet:
        print(__version__)
    else:
        print_table(*((name, ", ".join(x) if isinstance(x, list) else str(x)) for name, x in found.items()))
