"""Wasserstein loss minimisation with a Gibbs sampler on the dual of optimal transport.

>>> from gibbsot import GridCost, solve
>>> cost = GridCost((2, 2), spacing=1.0)
>>> round(solve([1, 0, 0, 0], [0, 0, 0, 1], cost).value, 3)
2.0
"""

from . import sampler, schedules, theory
from .costs import Cost, DenseCost, GridCost, PointCost, coulomb
from .measures import Problem, problem
from .results import OTResult
from .sampler import Info, State, run, step
from .solve import solve, solve_batch

__version__ = "0.1.0"

__all__ = [
    "Cost",
    "DenseCost",
    "GridCost",
    "Info",
    "OTResult",
    "PointCost",
    "Problem",
    "State",
    "coulomb",
    "problem",
    "run",
    "sampler",
    "schedules",
    "solve",
    "solve_batch",
    "step",
    "theory",
]
