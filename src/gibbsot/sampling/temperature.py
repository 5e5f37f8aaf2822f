"""Lowest and initial temperatures."""

from __future__ import annotations

import numpy as np

from ..costs import Cost, mean_cost

# The relative bias (V(z) - W) / W of chains that have mixed at a model's initial temperature: high enough for them to
# follow a model that changes quickly.
INITIAL_BIAS = 0.35


def minimum(cost: Cost) -> float:
    """Return T_min, a temperature whose bias is negligible even beside a model that fits perfectly.

    Parameters
    ----------
    cost : Cost
        The cost; if some costs are infinite there is no scale, and the least number of the precision is returned.

    Returns
    -------
    float
    """
    if not cost.finite:
        return float(np.finfo(cost.dtype).tiny)
    return 1e-9 * mean_cost(cost) / sum(cost.shape)
