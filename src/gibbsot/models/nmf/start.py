"""The initial components and memberships of `WassersteinNMF`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from ...core import validation
from ...distributed.shard import Array
from .. import _base

_SPARSE = 0.1  # share of positive weights below which sparse products are faster


def nmf_factors(X: Any, K: int, random_state: Any) -> tuple[Array, Array]:
    """Return the factors of scikit-learn's NMF, which need not have converged, with the components' masses in W."""
    with warnings.catch_warnings(), threadpool_limits(1):  # its small products are slower in threads
        warnings.simplefilter("ignore", ConvergenceWarning)
        nmf = NMF(K, random_state=random_state)
        W = nmf.fit_transform(X)
    return nmf.components_, W * nmf.components_.sum(axis=1)


def initial_factors(
    X: sparse.csr_array, K: int, init: Any, seed: int, n: int, weights: Array | None = None
) -> tuple[Array, Array]:
    """Return components and memberships with positive weights.

    Parameters
    ----------
    X : sparse array of shape (n_sample, m)
        A sample of the measures.
    K : int
        The number of components.
    init : {"nmf", "random"} or pair of arrays
        See `WassersteinNMF`. Arrays have memberships of all n measures, otherwise the result has those of the sample.
    seed : int
        The seed.
    n : int
        The number of all measures.
    weights : array of shape (n_sample,), optional
        The weights of the sample. A weight of two has the components of a measure that is given twice.

    Returns
    -------
    arrays of shape (K, m), and (n, K) or (n_sample, K)
        Components and memberships; rows have sum one.
    """
    n_sample, m = X.shape
    share = np.ones(n_sample) if weights is None else weights
    if not isinstance(init, str):
        D = validation.weights(init[0], "init[0]", m, count=K)
        W = validation.weights(init[1], "init[1]", K, count=n)
    elif init == "random":
        rng = np.random.default_rng(seed)
        used = share > 0  # NumPy 1 takes no zeros
        D = np.asarray(rng.dirichlet(share[used], K) @ X[used])
        W = rng.dirichlet(np.ones(K), n_sample)
    else:
        rows = sparse.diags_array(np.sqrt(share)) @ X  # in the squares of the errors these are the weights
        D, W = nmf_factors(rows if X.nnz < _SPARSE * n_sample * m else rows.toarray(), K, seed % 2**32)
    mean = (share @ X) / share.sum()
    return _base.smooth(D, mean), _base.smooth(W, np.full(K, 1 / K))
