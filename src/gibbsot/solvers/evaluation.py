"""Exact evaluation of a sample of problems, and first temperatures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.problems import inner
from ..sampling import schedules, theory
from ..sampling.annealing import HEAT
from .oracle import Oracle
from .solve import solve_batch

Array = NDArray[np.float64]

_SAMPLE = 20  # how many problems are solved exactly when a model is looked at
SPECK = 1e-12  # weights that are left out then: they cost nothing but time
_ANNEALING = 100  # sweeps for an estimate of the cost, from which the first temperature comes


def sample(n: int, most: int = _SAMPLE) -> NDArray[np.intp]:
    """Return some of n problems, spread evenly: by default those that are solved exactly."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.intp))


def certified(oracle: Oracle, P: Array, T: float, indices: ArrayLike) -> tuple[Array, Array]:
    """Return bounds of the costs of models, which agree but for rounding and weights that are next to nothing."""
    P = np.where(P < SPECK, 0, P)
    P /= P.sum(axis=1, keepdims=True)
    optima = oracle.exact(P, T, indices)
    pair, _ = oracle.problem(P, indices)
    # by sums, as products of long vectors depend on the threads of the library that does them
    lower = inner(pair.p, np.stack([o.U for o in optima])) - inner(pair.q, np.stack([o.L for o in optima]))
    upper = np.array([optimum.value for optimum in optima])
    return np.minimum(lower, upper), upper


def heated(oracle: Oracle, P: Any, indices: ArrayLike | None = None) -> tuple[Array, Array]:
    """Return estimates of models' costs and the temperatures at which chains that have mixed show the first heat."""
    pair, state = oracle.problem(P, indices)
    schedule, n_jobs = schedules.Adaptive(0.3), oracle.n_jobs
    cold = solve_batch(
        pair.p, pair.q, pair.cost, n_sweeps=_ANNEALING, schedule=schedule, seed=state.seed, ids=state.ids, n_jobs=n_jobs
    )
    return cold.value, theory.sampled_temperature(cold.state, pair, (1 + HEAT) * cold.value, n_jobs)
