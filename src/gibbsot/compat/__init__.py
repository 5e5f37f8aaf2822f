"""The functions of other libraries on the exact engine, with their arguments and results.

`gibbsot.compat.pot`, `gibbsot.compat.scipy`, `gibbsot.compat.gudhi` and `gibbsot.compat.torchcfm` have the functions of
these libraries. Those of POT are here too.
"""

from importlib import import_module
from typing import Any

from . import pot
from .pot import Result, emd, emd2, lbfgsb_unbalanced, mm_unbalanced, solve, solve_sample

__all__ = ["Result", "emd", "emd2", "lbfgsb_unbalanced", "mm_unbalanced", "pot", "solve", "solve_sample"]

_MODULES = ("gudhi", "scipy", "torchcfm")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]
