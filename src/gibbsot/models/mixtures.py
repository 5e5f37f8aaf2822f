"""Measures as mixtures of components: their coordinates, and a part of the data of a model that learns the components.

A measure's share in everything here has the same bits whatever other measures it is computed with (see `ticks`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import nnls

from ..core import costs, validation
from ..core.costs import Cost
from ..distributed import fixed_point
from ..distributed.shard import Part, units
from ..sampling import temperature
from ..sampling.annealing import CoolingStages
from ..solvers import evaluation
from ..solvers.mirror_descent import logarithms, mirror_step
from ..solvers.oracle import Oracle
from . import _base

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
Basis = tuple[Array, Array]

_STEP = 0.1
_COOLING = CoolingStages()


def mixture_coordinates(
    X: Any,
    components: ArrayLike,
    cost: Cost | ArrayLike | None = None,
    *,
    step_size: float = _STEP,
    tau: int = 50,
    batch_size: int = 500,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> NDArray[np.floating]:
    r"""Return the memberships of measures in given components, a convex problem for each.

    .. math:: \min_w W\Big(\sum_k w_k D_k, \, x\Big)

    over weights w. They start from nonnegative least squares, follow the gradients of a Gibbs sampler, and are never
    worse in exact cost than the start. Components may come from anywhere; a measure without mass belongs to all alike.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, m)
        Measures as rows, which are normalised.
    components : array of shape (K, m)
        Rows, which are normalised.
    cost : Cost or array of shape (m, m), optional
        By default bins on a line, ``GridCost(m)``.
    step_size : float
        Relative to the cost of a measure at the start.
    tau : int
        The lag of the chains' mixing test.
    batch_size : int
        Measures that are computed together; the bits are the same for every number.
    random_state : int, RandomState or None
    n_jobs : int, optional
        Threads over the measures.

    Returns
    -------
    array of shape (n, K)

    Examples
    --------
    >>> import numpy as np
    >>> mixture_coordinates([[4.0, 0.0, 1.0]], np.eye(3)).round(1)
    array([[0.8, 0. , 0.2]])
    """
    X = validation.rows(X, "X")
    D = validation.weights(components, "components", X.shape[1])
    validation.positive(step_size, "step_size")
    for name, value in (("tau", tau), ("batch_size", batch_size)):
        validation.count(value, name)
    cost = _base.square_cost(cost, X.shape[1])
    seed = _base.seed(random_state)
    D = D / D.sum(axis=1, keepdims=True)
    return coordinates(X, D, basis(fixed_point.components(D)), cost, tau, batch_size, seed, n_jobs, step_size)


def coordinates(
    X: Any,
    D: Array,
    of_D: Basis,
    cost: Cost,
    tau: int,
    batch_size: int,
    seed: int,
    n_jobs: int | None,
    step_size: float = _STEP,
) -> NDArray[np.floating]:
    """Return what `mixture_coordinates` does, for arguments that have been checked."""
    full = np.flatnonzero(validation.masses(X) > 0)
    W = np.full((X.shape[0], len(D)), 1 / len(D))
    cost, D_ticks = costs.single(cost), fixed_point.components(D)
    for b in range(0, len(full), batch_size):
        rows = full[b : b + batch_size]
        ids = np.zeros(len(rows), np.int64)  # the same noise for all: nothing depends on the place in X
        oracle = Oracle(cost, X[rows], tau=tau, seed=seed, ids=ids, n_jobs=n_jobs)
        W[rows] = _descend(oracle, D_ticks, of_D, step_size)
    return W.astype(X.dtype)


def _descend(oracle: Oracle, D: NDArray[np.int32], of_D: Basis, step_size: float) -> Array:
    start = nearest(oracle.targets, of_D)
    log_W, (_, unit, _) = logarithms(start), units(oracle.cost, 1)
    value, T = evaluation.initial_temperatures(oracle, fixed_point.mixtures(start, D))
    value = np.maximum(value, evaluation.WEIGHT_THRESHOLD * costs.mean_cost(oracle.cost))[:, None]
    T = np.maximum(T, temperature.minimum(oracle.cost))
    longer = np.ones_like(value)
    for steps, part in _COOLING.stages:
        before = np.zeros_like(log_W)
        for _ in range(steps):
            W = np.exp(log_W)
            _, U, _ = oracle(fixed_point.mixtures(W, D), part * T)
            pull = fixed_point.pulled(fixed_point.count(U, unit), D, unit) / value
            pull -= (W * pull).sum(axis=1, keepdims=True)
            if part == 1:  # far from a start that is poor: steps grow as long as they go the same way
                longer = _COOLING.grow(longer, _cosines(W, pull, before))
                before = pull
            log_W = mirror_step(log_W, pull, part * step_size * (longer if part == 1 else 1.0))
    W = np.exp(log_W)
    before, after = (
        np.array([optimum.value for optimum in oracle.exact(fixed_point.mixtures(x, D), T)]) for x in (start, W)
    )
    return np.where((after < before)[:, None], W, start)


def _cosines(W: Array, x: Array, y: Array) -> Array:
    """Return the cosines between rows, under weights; zero where one of them is."""
    inner, *squares = ((W * a * b).sum(axis=1, keepdims=True) for a, b in ((x, y), (x, x), (y, y)))
    size = np.sqrt(squares[0] * squares[1])
    return np.divide(inner, size, out=np.zeros_like(size), where=size > 0)


def basis(D: NDArray[np.int32]) -> Basis:
    """Return what least squares need of components: an orthogonal basis in ticks, and components in it.

    It may depend on threads in the last bit, so it is found once and then sent to where it is needed.
    """
    Q, R = np.linalg.qr(D.T * 2.0**-fixed_point.FINE)
    return fixed_point.count(Q, 2.0**-fixed_point.FINE), R


def nearest(targets: sparse.csr_array, basis: Basis) -> Array:
    """Return the memberships of least squares, each measure by itself, slightly smoothed."""
    Q, R = basis
    K = R.shape[1]
    scaled = fixed_point.count(targets.data, 2.0 ** -fixed_point.bits(1))
    rows = sparse.csr_array((scaled, targets.indices, targets.indptr), shape=targets.shape)
    turned = rows @ Q * 2.0 ** -(fixed_point.bits(1) + fixed_point.FINE)
    W = np.stack([nnls(R, row)[0] for row in turned]) if len(turned) else np.empty((0, K))
    return _base.smooth(W, np.full(K, 1 / K))


class Mixtures(Part):
    """A part of the data of a model of mixtures: chains, and memberships now and of the best model so far."""

    state = (*Part.state, "log_memberships", "best_memberships")

    def start(self, D: NDArray[np.int32], of_D: Basis, numbers: Numbers, W: Array) -> tuple[()]:
        """Begin with memberships of some measures; the others get those of least squares."""
        where, rows = self.own(numbers)
        rest = np.setdiff1d(np.arange(len(self)), rows)
        memberships = np.empty((len(self), len(D)))
        memberships[rows] = W[where]
        if len(rest):
            memberships[rest] = nearest(self.targets(rest + self.first), of_D)
        self.log_memberships = logarithms(memberships)
        self.best_memberships = self.log_memberships.copy()
        return ()

    def epoch(
        self, D: NDArray[np.int32], T: float, step: float, begin: int, end: int, batch_size: int
    ) -> tuple[NDArray[np.int64], int, int]:
        """Update the memberships of measures from one number to another.

        Returns
        -------
        gradient : array of shape (K, m)
            Of the sum of all costs for the components, in ticks.
        value, sweeps : int
            The sum of V(z), in ticks, and of the sweeps.
        """
        gradient, value, sweeps = np.zeros(D.shape, np.int64), 0, 0
        begin, end = (int(np.clip(number - self.first, 0, len(self))) for number in (begin, end))
        for b in range(begin, end, batch_size):
            rows = np.arange(b, min(b + batch_size, end))
            W = np.exp(self.log_memberships[rows])
            values, U, info = self.oracle(fixed_point.mixtures(W, D), T, rows)
            U = fixed_point.count(U, self.unit)
            gradient += fixed_point.product(fixed_point.count(W, 2.0**-self.bits), U, self.bits)
            value += sum(map(int, fixed_point.count(values, self.value_unit).tolist()))
            sweeps += int(info.sweeps.sum())
            self.log_memberships[rows] = mirror_step(
                self.log_memberships[rows], fixed_point.pulled(U, D, self.unit), step
            )
        return gradient, value, sweeps

    def keep(self) -> tuple[()]:
        """Take the memberships for the best."""
        self.best_memberships = self.log_memberships.copy()
        return ()

    def go_back(self) -> tuple[()]:
        """Take up the best memberships again."""
        self.log_memberships = self.best_memberships.copy()
        return ()

    def memberships(self) -> NDArray[np.floating]:
        """Return those of the best model, also of measures without mass."""
        K = self.best_memberships.shape[1]
        W = np.full((self.facts().size, K), 1 / K, self.facts().dtype)
        W[self.rows] = np.exp(self.best_memberships)
        return W

    def usage(self) -> tuple[NDArray[np.int64]]:
        """Return the sum of the best memberships, in ticks."""
        return (fixed_point.count(self.memberships(), 2.0**-fixed_point.FINE).astype(np.int64).sum(axis=0),)

    def models(self, rows: Numbers, D: NDArray[np.int32], best: bool) -> Array:
        memberships = self.best_memberships if best else self.log_memberships
        return fixed_point.mixtures(np.exp(memberships[rows]), D)
