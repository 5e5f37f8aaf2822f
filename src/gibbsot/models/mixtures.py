"""Memberships of measures in given components, a convex problem for each measure.

The result for a measure is bit-identical whatever other measures it is computed with (see `distributed.fixed_point`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning

from .. import costs
from ..core import labels, validation
from ..core.warn import warn
from ..costs import Cost
from ..costs.problems import Problem
from ..distributed import fixed_point
from ..distributed.fixed_point import Fixed, Precision
from ..exact.certificate import PROVED, Certificate, warning
from ..exact.method import in_threads
from ..exact.methods import optima
from ..exact.programme import linear_programme
from ..exact.programme.free_measure import FreeMeasure, Optimum
from ..io.budget import Budget
from ..oracle import evaluation
from ..oracle.chains import TargetChains
from ..oracle.mirror_descent import logarithms, mirror_step
from ..sampling import temperature
from ..sampling.annealing.staged import CoolingStages, Stage
from . import _base
from ._costs import Metric, feature_cost
from .nmf.gradients import membership_gradients

Array = NDArray[np.float64]

STEP, _GAP = 0.1, 1e-3
_COOLING = CoolingStages()


def mixture_coordinates(
    X: Any,
    components: ArrayLike,
    cost: Cost | ArrayLike | str | Metric | None = None,
    *,
    gap: float | None = _GAP,
    max_seconds: float | None = None,
    max_memory: float | None = None,
    step_size: float = STEP,
    tau: int = 50,
    batch_size: int = 500,
    rng: int | np.random.Generator | None = None,
    n_jobs: int | None = None,
    feature_vectors: Any = None,
) -> Any:
    r"""Return the memberships of measures in given components.

    For each measure x it solves the convex problem

    .. math:: \min_w W\Big(\sum_k w_k D_k, \, x\Big)

    over weights w. It is a linear programme, which is solved to a certified gap (see ``solvers.linear_programme``), on
    arcs that the optimal potentials of nonnegative least squares choose. Where several memberships are optimal, one of
    them is returned without a warning, and it need not have the least norm: between two bins at equal distances, for
    example, every w costs the same. A measure without mass has uniform memberships.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, m)
        Measures as rows, which are normalised.
    components : array of shape (K, m)
        Components as rows, which are normalised.
    cost : Cost, array of shape (m, m), str or callable, optional
        The cost between bins, as for `WassersteinNMF`: a cost, "line", or a metric between the rows of
        ``feature_vectors`` or the columns of X. None is "line", with a warning.
    gap : float, optional
        The certified relative gap of the cost of each measure; 0 for the optimum, to a gap of 1e-9. It holds for the
        memberships as they are returned. A gap that stays open is stated by a `ConvergenceWarning`. None estimates the
        memberships by a descent from nonnegative least squares with the gradients of a Gibbs sampler; then it is only
        certified that the exact cost is no larger than that of the start.
    max_seconds, max_memory : float, optional
        The time of the call, and the bytes that the linear programme of a measure may take, after which memberships
        are the best so far, and a `ConvergenceWarning` states the gap. With ``gap``.
    step_size, tau, rng : float, int, and int or numpy.random.Generator, optional
        Of the descent: the step, relative to the cost of a measure at the start, the lag of the chains' mixing test and
        the key of the noise, 0 by default; a generator draws one. Results are bit-identical for the same key.
    batch_size : int
        The number of measures that are computed together; results are bit-identical for every number.
    n_jobs : int, optional
        The number of threads over the measures.
    feature_vectors : array of shape (m, d), optional
        An embedding of each bin, from which a metric builds the cost.

    Returns
    -------
    array of shape (n, K)
        The memberships, of the type of X; rows have sum one. A DataFrame with the labels of measures and components if
        one of X and the components is a DataFrame.

    Raises
    ------
    ValueError
        If X, the components or a parameter are not valid.

    See Also
    --------
    barycentric_coordinates : Weights of Wasserstein barycenters.

    Examples
    --------
    >>> from gibbsot import mixture_coordinates
    >>> import numpy as np
    >>> mixture_coordinates([[4.0, 0.0, 1.0]], np.eye(3), "line").round(1)
    array([[0.8, 0. , 0.2]])
    """
    given, names = (X, components), labels.of_columns(X)
    X = validation.rows(X, "X")
    D = validation.weights(components, "components", X.shape[1])
    validation.positive(step_size, "step_size")
    if gap is not None:
        validation.nonnegative(gap, "gap")
    budget = {"max_seconds": max_seconds, "max_memory": max_memory}
    for name, x in budget.items():
        if x is not None and gap is None:
            raise ValueError(f"{name}: bounds the linear programme; expected a gap with it")
    limits = {name: validation.positive(x, name) for name, x in budget.items() if x is not None}
    for name, value in (("tau", tau), ("batch_size", batch_size)):
        validation.count(value, name)
    between, key = feature_cost(cost, X.shape[1], feature_vectors, X, names), validation.noise_key(rng)
    if names is not None:
        both = labels.aligned(*given, between.labels, between.spacing is not None, ("X", "components"))
        X, D = validation.rows(both[0], "X"), validation.weights(both[1], "components", X.shape[1])
    solver = MembershipSolver(D, between, batch_size, step_size, gap, limits, tau=tau, rng=key, n_jobs=n_jobs)
    return labels.table(solver(X), *(labels.of_measures(x, y.shape[0]) for x, y in zip(given, (X, D), strict=True)))


class Factors(NamedTuple):
    """What least squares need of components: an orthogonal basis, quantised, and the components in it."""

    Q: Fixed
    R: Array


class MembershipSolver:
    """Finds the memberships of measures in fixed components.

    The basis may depend on the number of threads in the last bit. So it is computed once, and the solver is sent to
    where the measures are.

    Parameters
    ----------
    D : array of shape (K, m)
        Components as rows, which are normalised.
    cost : Cost
        The cost between bins.
    batch_size, step_size, gap
        As for `mixture_coordinates`.
    limits : dict
        Those of ``max_seconds`` and ``max_memory`` that are given.
    **options
        ``tau``, ``rng`` and ``n_jobs`` of the oracle.
    """

    def __init__(
        self,
        D: Array,
        cost: Cost,
        batch_size: int,
        step_size: float = STEP,
        gap: float | None = _GAP,
        limits: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.limits = dict(limits or {})
        # by sums in the order of those of the measures: one that is a component then has the same shares
        self.D = D / np.asarray(sparse.csr_array(D).sum(axis=1)).reshape(-1, 1)
        self.exact_cost, self.gap = cost.astype(np.float64), gap
        self.components = fixed_point.components(self.D)
        self.factors, self.cost = factors(self.components), costs.in_units(cost).single().cost
        self.batch_size, self.step_size, self.options = batch_size, step_size, options

    def __call__(self, X: Any) -> NDArray[np.floating]:
        """Return the memberships of validated rows, and warn of open gaps."""
        W, open_gaps = self.solve(X, Budget(**self.limits))
        if open_gaps:
            warn(self.describe(open_gaps, X.shape[0]), ConvergenceWarning)
        return W

    def solve(self, X: Any, budget: Budget) -> tuple[NDArray[np.floating], list[Certificate]]:
        """Return the memberships of validated rows within a budget, and certificates of those whose gap stays open.

        What is certified are the memberships as they are returned, in the precision of X.
        """
        full, K = np.flatnonzero(validation.masses(X) > 0), len(self.components)
        W, open_gaps = np.full((X.shape[0], K), 1 / K, X.dtype), list[Certificate]()
        for start in range(0, len(full), self.batch_size):
            rows = full[start : start + self.batch_size]
            ids = np.zeros(len(rows), np.int64)  # the same noise for all: results do not depend on the row in X
            oracle = TargetChains(self.cost, X[rows], ids=ids, **self.options)
            if self.gap is None:
                W[rows] = self._descend(oracle)
                continue
            found = self._minimise(oracle.targets, X.dtype, budget)
            W[rows] = [each.w for each in found]
            known = [each.concluded(self.gap) for each in found]
            open_gaps += [each for each, state in known if state not in PROVED]
        return W, open_gaps

    def describe(self, open_gaps: list[Certificate], total: int) -> str:
        """Return how large gaps are that stay open, and why."""
        gaps, reasons = [each.gap for each in open_gaps], [each.reason for each in open_gaps]
        return warning(gaps, reasons, total, "memberships")

    def _minimise(self, targets: sparse.csr_array, dtype: Any, budget: Budget) -> list[Optimum]:
        """Return the memberships of targets to a certified gap, in the precision in which they are returned."""
        start, n_jobs, gap = least_squares(targets, self.factors), self.options.get("n_jobs"), self.gap or 0.0
        P = fixed_point.mixtures(start, self.components)
        pairs = Problem.checked(P, targets.toarray(), self.exact_cost, np.ones(len(P)))
        solved = optima(pairs, n_jobs=n_jobs, budget=budget)

        def work(row: int) -> Optimum:
            problem = FreeMeasure(targets[[row]], np.ones(1), self.exact_cost, self.D, 1, [solved[row]])
            best = deque(linear_programme.stages(problem, gap, -solved[row].g[None], start[row], budget=budget), 1)[0]
            return best.rounded(problem, dtype)

        with linear_programme.ONE_THREAD():
            return in_threads(work, range(len(solved)), n_jobs)

    def _descend(self, oracle: TargetChains) -> Array:
        """Return the memberships of the oracle's targets."""
        D = self.components
        start = least_squares(oracle.targets, self.factors)
        log_W = logarithms(start)
        value, T = evaluation.initial_temperatures(oracle, fixed_point.mixtures(start, D))
        value = np.maximum(value, evaluation.WEIGHT_THRESHOLD * costs.mean_cost(oracle.cost))[:, None]
        T = np.maximum(T, temperature.minimum(oracle.cost))
        log_W = descend(oracle, D, log_W, value, T, self.step_size)
        W = np.exp(log_W)
        solved = (oracle.exact(fixed_point.mixtures(x, D), T) for x in (start, W))
        before, after = (np.array([optimum.value for optimum in found]) for found in solved)
        return np.where((after < before)[:, None], W, start)


def descend(
    oracle: TargetChains,
    D: NDArray[np.int32],
    log_W: Array,
    value: float | Array,
    T: float | Array,
    step_size: float = STEP,
    stages: Sequence[Stage] = _COOLING.stages,
) -> Array:
    """Return the logarithms of memberships after mirror descent in stages of falling temperature.

    Parameters
    ----------
    oracle : TargetChains
        The measures and their chains.
    D : array of int of shape (K, m)
        Quantised components.
    log_W : array of shape (n, K)
        Logarithms of the memberships at the start.
    value : float or array of shape (n, 1)
        The costs in which steps are measured.
    T : float or array of shape (n,)
        The temperature of the first stage.
    step_size : float
        The step of the first stage; there it grows as long as gradients agree.
    stages : sequence of Stage
        The stages.

    Returns
    -------
    array of shape (n, K)
    """
    of_potentials, growth = Precision.of(oracle.cost, 1), np.ones((len(log_W), 1))
    for steps, factor in stages:
        previous = np.zeros_like(log_W)
        for _ in range(steps):
            W = np.exp(log_W)
            gradient = membership_gradients(oracle, W, D, factor * T, of_potentials) / value
            gradient -= (W * gradient).sum(axis=1, keepdims=True)
            if factor == 1:  # the start may be far off: steps grow while they keep their direction
                growth = _COOLING.grow(growth, _cosines(W, gradient, previous))
                previous = gradient
            log_W = mirror_step(log_W, gradient, factor * step_size * (growth if factor == 1 else 1.0))
    return log_W


def factors(D: NDArray[np.int32]) -> Factors:
    """Return the factors of quantised components."""
    Q, R = np.linalg.qr(Fixed(D.T, fixed_point.COMPONENT_QUANTUM).value)
    return Factors(Fixed.of(Q, fixed_point.COMPONENT_QUANTUM), R)


def least_squares(targets: sparse.csr_array, factors: Factors) -> Array:
    """Return the memberships of nonnegative least squares, slightly smoothed, each measure by itself."""
    K, weights = factors.R.shape[1], Fixed.of(targets.data, 2.0 ** -fixed_point.bits(1))
    rows = sparse.csr_array((weights.integers, targets.indices, targets.indptr), shape=targets.shape)
    projected = Fixed(rows @ factors.Q.integers, weights.quantum * factors.Q.quantum).value
    W = np.stack([nnls(factors.R, row)[0] for row in projected]) if len(projected) else np.empty((0, K))
    return _base.smooth(W, np.full(K, 1 / K))


def _cosines(W: Array, x: Array, y: Array) -> Array:
    """Return the cosines between rows under weights; zero where a row is zero."""
    inner, xx, yy = ((W * a * b).sum(axis=1, keepdims=True) for a, b in ((x, y), (x, x), (y, y)))
    size = np.sqrt(xx * yy)
    return np.divide(inner, size, out=np.zeros_like(size), where=size > 0)
