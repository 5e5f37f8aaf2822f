"""scikit-learn's NMF, from which the other factorisations start."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

Array = NDArray[np.float64]


def nmf_factors(X: Array, K: int, random_state: Any) -> tuple[Array, Array]:
    """Return components and memberships, which need not have converged, with the components' masses in the latter."""
    with warnings.catch_warnings(), threadpool_limits(1):  # its small products are slower in threads
        warnings.simplefilter("ignore", ConvergenceWarning)
        nmf = NMF(K, random_state=random_state)
        W = nmf.fit_transform(X)
    return nmf.components_, W * nmf.components_.sum(axis=1)
