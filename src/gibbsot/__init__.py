"""Wasserstein loss minimisation with a Gibbs sampler on the dual of optimal transport.

>>> from gibbsot import GridCost, solve
>>> cost = GridCost((2, 2), spacing=1.0)
>>> round(solve([1, 0, 0, 0], [0, 0, 0, 1], cost).value, 3)
2.0
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from . import sampler, schedules, theory
from .costs import Cost, DenseCost, GraphCost, GridCost, PointCost, SparseCost, coulomb
from .costs.problems import Problem
from .oracle.oracle import Oracle, OracleResult
from .oracle.pairs import OracleInfo
from .sampling.gibbs import Gibbs
from .solvers.result import OTResult
from .solvers.solve import solve, solve_batch

if TYPE_CHECKING:
    from .gromov import GromovResult, gromov_wasserstein
    from .models.barycenter.estimator import WassersteinBarycenter
    from .models.classifier import WassersteinClassifier
    from .models.geometry.coordinates import barycentric_coordinates
    from .models.geometry.distances import distances
    from .models.geometry.embedding import WassersteinEmbedding
    from .models.geometry.neighbors import WassersteinNeighbors
    from .models.geometry.pca import WassersteinPCA
    from .models.geometry.transport_map import TransportMap
    from .models.kmeans.estimator import WassersteinKMeans
    from .models.mixtures import mixture_coordinates
    from .models.nmf.estimator import WassersteinNMF

__version__ = "0.1.0"
# Names and modules that are loaded when they are first used, as scikit-learn and the extras are slow to import.
_LAZY = {
    "GromovResult": ".gromov",
    "TransportMap": ".models.geometry.transport_map",
    "WassersteinBarycenter": ".models.barycenter",
    "WassersteinClassifier": ".models.classifier",
    "WassersteinEmbedding": ".models.geometry.embedding",
    "WassersteinKMeans": ".models.kmeans",
    "WassersteinNMF": ".models.nmf.estimator",
    "WassersteinNeighbors": ".models.geometry.neighbors",
    "WassersteinPCA": ".models.geometry.pca",
    "barycentric_coordinates": ".models.geometry.coordinates",
    "compat": ".compat",
    "datasets": ".datasets",
    "diagrams": ".diagrams",
    "distances": ".models.geometry.distances",
    "gromov_wasserstein": ".gromov",
    "mixture_coordinates": ".models.mixtures",
    "mirror_descent": ".mirror_descent",
    "plots": ".plots",
    "topics": ".topics",
}
_EXTRAS = {"jax": "jax", "scverse": "anndata", "torch": "torch"}  # modules, and the packages that they need

__all__ = [
    "Cost",
    "DenseCost",
    "Gibbs",
    "GraphCost",
    "GridCost",
    "GromovResult",
    "OTResult",
    "Oracle",
    "OracleInfo",
    "OracleResult",
    "PointCost",
    "Problem",
    "SparseCost",
    "TransportMap",
    "WassersteinBarycenter",
    "WassersteinClassifier",
    "WassersteinEmbedding",
    "WassersteinKMeans",
    "WassersteinNMF",
    "WassersteinNeighbors",
    "WassersteinPCA",
    "barycentric_coordinates",
    "coulomb",
    "distances",
    "gromov_wasserstein",
    "mixture_coordinates",
    "sampler",
    "schedules",
    "solve",
    "solve_batch",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _EXTRAS:
        return import_module(f".{name}", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_LAZY[name], __name__)
    return module if _LAZY[name] == f".{name}" else getattr(module, name)


def __dir__() -> list[str]:
    installed = (name for name, package in _EXTRAS.items() if getattr(find_spec(package), "origin", None))
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, *_LAZY, *installed})
