"""Check the docstrings of the public API with numpydoc: `python tools/check_docstrings.py`.

Checked are the names that `gibbsot` exports, the public names of the documented modules, and the public methods of
their classes. Dataclasses and named tuples may list their fields under Attributes instead of Parameters; those with
``repr=False`` are internal.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from numpydoc.docscrape import get_doc_object
from numpydoc.validate import validate

MODULES = (
    "gibbsot.compat",
    "gibbsot.datasets",
    "gibbsot.io.readers",
    "gibbsot.plots",
    "gibbsot.sampling.sampler",
    "gibbsot.sampling.schedules",
    "gibbsot.sampling.theory",
    "gibbsot.oracle.mirror_descent",
    "gibbsot.topics",
)
EXTRAS = ("gibbsot.jax", "gibbsot.scverse", "gibbsot.torch")  # checked by a test where their packages are installed
# no docstring, parameters not documented, unknown parameters, no space before the colon, no Returns
CHECKS = {"GL08", "PR01", "PR02", "PR10", "RT01"}


def public(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public functions and classes that a module defines or exports, with their full names."""
    exported = getattr(module, "__all__", None)
    for name in exported or sorted(vars(module)):
        thing = getattr(module, name)
        mine = exported is not None or getattr(thing, "__module__", None) == module.__name__
        if mine and not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing)):
            yield f"{thing.__module__}.{thing.__qualname__}", thing


def methods(owner: type) -> Iterator[str]:
    """Yield the full names of the public methods that a class has from this package, without inherited docstrings."""
    for member, method in inspect.getmembers(owner, lambda x: inspect.isfunction(x) or inspect.ismethod(x)):
        definer = next(base for base in owner.__mro__ if member in vars(base))
        inherited = method.__doc__ is None and inspect.getdoc(method)
        if not member.startswith("_") and definer.__module__.startswith("gibbsot.") and not inherited:
            yield f"{definer.__module__}.{definer.__qualname__}.{member}"


def fields(thing: Any) -> set[str]:
    """Return the public fields of a dataclass or a named tuple."""
    shown = [name for name, field in getattr(thing, "__dataclass_fields__", {}).items() if field.repr]
    names = getattr(thing, "_fields", ()) or shown
    return {name for name in names if not name.startswith("_")}


def problems(name: str, thing: Any = None) -> list[str]:
    """Return what is wrong with a docstring, as lines."""
    found = {code: text for code, text in validate(name)["errors"] if code in CHECKS}
    expected = fields(thing) if inspect.isclass(thing) else set()
    if expected:  # Attributes are as good as Parameters
        doc = get_doc_object(thing)
        listed = {each for part in ("Parameters", "Attributes") for p in doc[part] for each in p.name.split(", ")}
        found.pop("PR01", None)
        if expected - listed:
            found["PR01"] = f"Fields {sorted(expected - listed)} not documented"
    return [f"{name}: {code} {text}" for code, text in found.items()]


def check(*modules: str) -> dict[str, list[str]]:
    """Return what is wrong with the docstrings of each public name of some modules, and of its methods."""
    things = {name: thing for module in modules for name, thing in public(import_module(module))}
    checks = {name: problems(name, thing) for name, thing in things.items()}
    for thing in things.values():
        if inspect.isclass(thing):
            checks |= {method: problems(method) for method in methods(thing)}
    return checks


def main() -> int:
    """Print what is wrong and return the exit status."""
    checks = check("gibbsot", *MODULES)
    wrong = [line for lines in checks.values() for line in lines]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"docstrings: {len(checks)} checked, {len(wrong)} problems")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
