"""Modules of the package whose doctests need a package that is not installed."""

from importlib.util import find_spec

_OPTIONAL = {
    "torch": ["torch"],
    "jax": ["jax.py"],
    "anndata": ["scverse.py"],
    "distributed": ["distributed/dask.py"],
    "typer": ["cli"],
}

collect_ignore = [
    f"src/gibbsot/{path}" for package, paths in _OPTIONAL.items() if find_spec(package) is None for path in paths
]
