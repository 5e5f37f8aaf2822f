r"""Costs: objects that offer c-transforms.

Everything that the solvers need of a cost matrix ``M`` is

.. math:: U_i = \min_j (M_{ij} + h_j) \qquad\text{and}\qquad L_j = \max_i (g_i - M_{ij}),

so a cost is an object with these two operations, `Cost.row_min` and `Cost.col_max`; a grid offers them without its
matrix. `Cost` in ``base.py`` says how to add one.
"""

from .base import Cost
from .bordered import BorderedCost
from .conversion import Units, as_cost, from_arrays, in_units, mean_cost, single
from .dense import DenseCost, coulomb
from .graph import GraphCost
from .grid import GridCost
from .points import PointCost
from .sparse import SparseCost

__all__ = [
    "BorderedCost",
    "Cost",
    "DenseCost",
    "GraphCost",
    "GridCost",
    "PointCost",
    "SparseCost",
    "Units",
    "as_cost",
    "coulomb",
    "from_arrays",
    "in_units",
    "mean_cost",
    "single",
]
