"""`gudhi.wasserstein` on the exact engine, with GUDHI's arguments and results."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import diagrams

try:
    from gudhi.wasserstein import wasserstein_distance as _original  # by name, so that ours may stand in its place
except ImportError:
    _original = None

__all__ = ["wasserstein_distance"]


def wasserstein_distance(
    X: Any,
    Y: Any,
    matching: bool = False,
    order: float = 1.0,
    internal_p: float = np.inf,
    enable_autodiff: bool = False,
    keep_essential_parts: bool = True,
) -> Any:
    """Return the Wasserstein distance of two persistence diagrams, as ``gudhi.wasserstein.wasserstein_distance`` does.

    Parameters
    ----------
    X, Y, matching, order, internal_p, keep_essential_parts
        As for `gibbsot.diagrams.wasserstein_distance`.
    enable_autodiff : bool
        Whether gradients are wanted; then the call is handed to GUDHI, which must be installed.

    Returns
    -------
    float, or pair of float and array
        As GUDHI returns them.

    Examples
    --------
    >>> from gibbsot.compat.gudhi import wasserstein_distance
    >>> float(wasserstein_distance([[0, 2]], [[0, 3]]))
    1.0
    """
    if enable_autodiff and _original is not None:
        return _original(X, Y, matching, order, internal_p, enable_autodiff, keep_essential_parts)
    return diagrams.wasserstein_distance(X, Y, matching, order, internal_p, enable_autodiff, keep_essential_parts)
