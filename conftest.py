"""Modules of the package whose doctests need a package, or kernels, that are not installed."""

from importlib.util import find_spec

from gibbsot.core import native

_OPTIONAL = {
    "torch": ["torch", "compat/torchcfm.py"],
    "jax": ["jax.py"],
    "anndata": ["scverse.py"],
    "distributed": ["distributed/dask.py"],
    "typer": ["cli"],
}
_COMPILED = [
    "costs/kdtree",
    "exact/methods",
    "exact/line",
    "exact/coarse_to_fine",
    "exact/far_costs",
    "exact/graph",
    "exact/simplex",
]

collect_ignore = [
    f"src/gibbsot/{path}" for package, paths in _OPTIONAL.items() if find_spec(package) is None for path in paths
]
if native.name() == "numpy":
    collect_ignore += [f"src/gibbsot/{module}.py" for module in _COMPILED]
