"""Wasserstein loss minimisation with a Gibbs sampler on the dual of optimal transport.

>>> from gibbsot import GridCost, solve
>>> cost = GridCost((2, 2), spacing=1.0)
>>> round(solve([1, 0, 0, 0], [0, 0, 0, 1], cost).value, 3)
2.0
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import sampler, schedules, theory
from .costs import Cost, DenseCost, GridCost, PointCost, coulomb
from .measures import Problem, problem
from .oracle import Oracle
from .results import OTResult
from .sampler import Info, State, run, step
from .solve import solve, solve_batch

if TYPE_CHECKING:
    from .barycenter import WassersteinBarycenter
    from .classifier import WassersteinClassifier
    from .mixtures import mixture_coordinates
    from .nmf import WassersteinNMF

__version__ = "0.1.0"
_LATER = {
    "WassersteinBarycenter": ".barycenter",
    "WassersteinClassifier": ".classifier",
    "WassersteinNMF": ".nmf",
    "mixture_coordinates": ".mixtures",
}

__all__ = [
    "Cost",
    "DenseCost",
    "GridCost",
    "Info",
    "OTResult",
    "Oracle",
    "PointCost",
    "Problem",
    "State",
    "WassersteinBarycenter",
    "WassersteinClassifier",
    "WassersteinNMF",
    "coulomb",
    "mixture_coordinates",
    "problem",
    "run",
    "sampler",
    "schedules",
    "solve",
    "solve_batch",
    "step",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:  # scikit-learn is not loaded before someone needs it
        return getattr(import_module(_LATER[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
