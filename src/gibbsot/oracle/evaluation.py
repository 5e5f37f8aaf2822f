"""Exact evaluation of a sample of problems, and initial temperatures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..sampling import schedules, theory
from ..sampling.gibbs import Gibbs
from ..sampling.temperature import INITIAL_BIAS
from .chains import TargetChains

Array = NDArray[np.float64]

_SAMPLE = 20  # the number of problems in an exact evaluation
WEIGHT_THRESHOLD = 1e-12  # smaller weights are left out of it: they add time and no cost
_ANNEALING = 100  # sweeps for an estimate of the cost, which the initial temperature is based on


def sample(n: int, most: int = _SAMPLE) -> NDArray[np.intp]:
    """Return the indices of some of n problems, spread evenly: by default those of an exact evaluation."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.intp))


def certified(oracle: TargetChains, P: Array, T: float, indices: ArrayLike) -> tuple[Array, Array]:
    """Return certified lower and upper bounds of the exact costs of models.

    They are those of an optimum, so that they differ only by rounding. Weights below the threshold count as zero.

    Parameters
    ----------
    oracle : TargetChains
        The targets and their chains.
    P : array of shape (n, m1)
        The models, row b for target ``indices[b]``.
    T : float
        The temperature from which copies of the chains are cooled.
    indices : array of int
        The targets, each at most once.

    Returns
    -------
    lower, upper : arrays of shape (n,)
    """
    P = np.where(P < WEIGHT_THRESHOLD, 0, P)
    P /= P.sum(axis=1, keepdims=True)
    optima = oracle.exact(P, T, indices)
    return np.array([optimum.lower for optimum in optima]), np.array([optimum.upper for optimum in optima])


def initial_temperatures(oracle: TargetChains, P: Any, indices: ArrayLike | None = None) -> tuple[Array, Array]:
    """Return estimates of models' costs, and the temperatures at which mixed chains have the initial relative bias."""
    pair, state = oracle.problem(P, indices)
    n_jobs = oracle.n_jobs
    method = Gibbs(n_sweeps=_ANNEALING, schedule=schedules.Adaptive(0.3), rng=state.key)
    cold = method.sample(pair, ids=state.ids, n_jobs=n_jobs)
    value, least = cold.info.value, oracle.least  # the bias is relative to what exceeds it
    target = least + (1 + INITIAL_BIAS) * (value - least)
    return value, theory.sampled_temperature(cold.state, pair, target, n_jobs)
