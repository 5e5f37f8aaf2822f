"""Wasserstein barycenters: the measure that is nearest to many in transport cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator

from . import checks, control, estimators, progress
from .costs import Cost
from .nmf import Epoch
from .oracle import Oracle
from .simplex import logarithms, mirror_step

Array = NDArray[np.float64]

_HOT = 0.2  # of the first temperature of other models: what moves here is one measure, which chains follow easily
_MEMORY = 0.9  # of the averages of models and potentials, which are steadier than the last ones
_EVERY = 10  # epochs from one look at the progress to the next
_COOLER, _SHORTER = 0.5, 0.85  # what temperature and step are multiplied with at each stall
_RISE = 1.05  # of V(z) from look to look at one temperature: steps were too long
_COLD = 0.02  # how far V(z) may lie above W in the end, in relation to it and by the theory: (m1 + m2) T
_SPECK = 1e-7  # weights that are left out, relative to the largest: they cost nothing but time
_ROUNDS = 3, 50  # of a lower bound's ascent, at a look and in the end


class WassersteinBarycenter(BaseEstimator):  # type: ignore[misc]
    r"""The barycenter of measures on one support.

    .. math:: \min_p \sum_i \lambda_i W(p, x_i)

    over weights p. It is convex; gradients come from warm-started Gibbs samplers (`Oracle`), steps are mirror descent
    from the mean. Where neither V(z) falls nor the certified lower bound rises, the chains are cooled and the descent
    goes on from the average of the last models, with shorter steps. The barycenter is such an average.

    Parameters
    ----------
    cost : Cost or array of shape (m, m), optional
        The cost between bins, such as ``GridCost((64, 64))``; by default bins on a line, ``GridCost(m)``.
    weights : array of shape (n,), optional
        The lambda, nonnegative; they are normalised, and all the same by default.
    max_epochs : int
        The largest number of passes over the measures.
    step_size : float
        Relative to the mean cost.
    temperature : "auto" or float
        The first temperature. "auto" is a fifth of that of `WassersteinNMF`.
    tau : int
        The lag of the chains' mixing test.
    tol : float
        The share of the cost that ten epochs have to gain; with less the chains are cooled, or, where they are cold,
        the fit ends.
    random_state : int, RandomState or None
    n_jobs : int, optional
        Threads over the measures; the bits are the same for every number.
    verbose : bool
        Show a progress bar, on a terminal.
    callbacks : sequence of functions
        Each is called with the model after every epoch; the fit stops if one returns True.

    Attributes
    ----------
    barycenter_ : array of shape (m,)
    objective_ : float
        Its exact objective, over all measures; infinite while the fit is on its way and after an interrupt.
    lower_bound_ : float
        Certified: no weights have an objective below this, so that ``objective_ / lower_bound_ - 1`` bounds how far the
        barycenter is from optimal. It is found by `lower_bound`.
    n_iter_ : int
    history_ : list of Epoch
        Its ``lower`` is the lower bound so far, at every look; its ``upper`` is known in the end.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(20)
    >>> bumps = np.exp(-((x - np.array([[5], [13]])) ** 2) / 4)
    >>> model = WassersteinBarycenter(random_state=0).fit(bumps)
    >>> int(model.barycenter_.argmax()), model.objective_ < 1.02 * model.lower_bound_
    (9, True)
    """

    def __init__(
        self,
        cost: Cost | ArrayLike | None = None,
        *,
        weights: ArrayLike | None = None,
        max_epochs: int = 1000,
        step_size: float = 20.0,
        temperature: float | str = "auto",
        tau: int = 20,
        tol: float = 2e-4,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callable[[Any], Any]] = (),
    ) -> None:
        self.cost = cost
        self.weights = weights
        self.max_epochs = max_epochs
        self.step_size = step_size
        self.temperature = temperature
        self.tau = tau
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None) -> WassersteinBarycenter:
        """Find the barycenter of measures as rows; a fit that is interrupted leaves what it has.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m)
        y : ignored
        """
        begun = time.perf_counter()
        for name in ("max_epochs", "tau"):
            checks.count(getattr(self, name), name)
        checks.positive(self.step_size, "step_size")
        estimators.parameters(self)
        X = estimators.measures(self, X, reset=True)
        cost, share = estimators.square_cost(self.cost, X.shape[1]), self._shares(X.shape[0])
        full = (estimators.masses(X) > 0) & (share > 0)
        if not full.any():
            raise ValueError("weights: are zero for every measure with mass; expected a positive one")
        share = share[full] / share[full].sum()
        oracle = Oracle(
            control.single(cost), X[full], tau=self.tau, seed=estimators.seed(self.random_state), n_jobs=self.n_jobs
        )
        self._descend(oracle, cost.astype(np.float64), share, np.dtype(X.dtype), begun)
        return self

    def _shares(self, n: int) -> Array:
        if self.weights is None:
            return np.full(n, 1 / n)
        share = checks.real(self.weights, "weights").astype(np.float64)
        if share.shape != (n,) or not np.isfinite(share).all() or (share < 0).any() or share.sum() <= 0:
            raise ValueError(f"weights: expected {n} numbers >= 0, one for each measure, of which some are positive")
        return share / share.sum()

    def _descend(self, oracle: Oracle, cost: Cost, share: Array, dtype: np.dtype[Any], begun: float) -> None:
        m, scale, coldest = oracle.cost.shape[0], control.mean_cost(oracle.cost), control.coldest(oracle.cost)
        start = estimators.smooth((share @ oracle.targets)[None], np.full(m, 1 / m))[0]
        T = self._first_temperature(oracle, start, coldest)
        log_p, average, potentials = logarithms(start), start, np.zeros(1)
        points = m + oracle.targets.nnz / len(oracle)
        shorter, before, estimates = 1.0, np.inf, []

        self.history_: list[Epoch] = []
        self.objective_, self.lower_bound_ = np.inf, -np.inf
        self._publish(start, dtype)
        with progress.bar("Wasserstein barycenter", self.verbose) as advance:
            for epoch in range(1, self.max_epochs + 1):
                values, U, info = oracle(np.exp(log_p), T)
                log_p = mirror_step(log_p, share @ U.astype(np.float64), shorter * float(self.step_size) / scale)
                memory = min(_MEMORY, (epoch - 1) / (epoch + 1))
                average = memory * average + (1 - memory) * np.exp(log_p)
                potentials = memory * potentials + (1 - memory) * U
                estimates.append(float(share @ values))
                look = epoch % _EVERY == 0
                gained = self._raise_bound(cost, oracle, share, potentials, _ROUNDS[0]) if look else 0.0
                lower = self.lower_bound_ if look else np.nan
                seconds, sweeps = time.perf_counter() - begun, float(info.sweeps.mean())
                self.history_.append(Epoch(estimates[-1], lower, np.nan, T, shorter, sweeps, seconds))
                self._publish(average, dtype)
                advance(1 / self.max_epochs, f"cost {estimates[-1]:.3g}, T {T:.1e}")
                if estimators.stopped(self):
                    break
                if look:
                    value, last, estimates = float(np.mean(estimates)), before, []
                    before, rising = value, value > _RISE * last
                    if rising or max(gained, last - value) <= self.tol * abs(value):
                        if not rising:
                            if coldest >= T or points * T < _COLD * value:
                                break
                            T, before = max(_COOLER * T, coldest), np.inf
                        # from the average, as the model itself goes to and fro
                        log_p, shorter = logarithms(average), _SHORTER * shorter
        self._raise_bound(cost, oracle, share, potentials, _ROUNDS[1])
        self.objective_ = self._exact(cost, oracle, share, T)
        self.history_[-1] = self.history_[-1]._replace(lower=self.lower_bound_, upper=self.objective_)

    def _first_temperature(self, oracle: Oracle, start: Array, coldest: float) -> float:
        if not isinstance(self.temperature, str):
            return float(self.temperature)
        sample = control.sample(len(oracle))
        _, T = control.heated(oracle, np.tile(start, (len(sample), 1)), sample)
        return max(_HOT * float(T.mean()), coldest)

    def _raise_bound(self, cost: Cost, oracle: Oracle, share: Array, U: NDArray[Any], rounds: int) -> float:
        """Take up a better lower bound if these potentials give one; return what is gained."""
        old = self.lower_bound_
        self.lower_bound_ = max(old, lower_bound(cost, oracle.targets, share, U, rounds, self.n_jobs))
        return self.lower_bound_ - old

    def _exact(self, cost: Cost, oracle: Oracle, share: Array, T: float) -> float:
        """Return what optimal plans to all measures cost, which is priced in the user's precision."""
        p = self.barycenter_.astype(np.float64)
        plans = [sparse.coo_array(optimum.plan) for optimum in oracle.exact(p / p.sum(), T)]
        return float(share @ [plan.data @ cost.at(plan.row, plan.col) for plan in plans])

    def _publish(self, average: Array, dtype: np.dtype[Any]) -> None:
        p = np.where(average < _SPECK * average.max(), 0, average)
        self.barycenter_ = (p / p.sum()).astype(dtype)
        self.n_iter_ = len(self.history_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags


def lower_bound(
    cost: Cost, targets: sparse.csr_array, share: Array, U: NDArray[Any], rounds: int = 50, n_jobs: int | None = None
) -> float:
    r"""Return a lower bound of the objective of every measure p, whatever the potentials U are.

    .. math::

        \sum_i \lambda_i W(p, x_i) \ge \min_a \sum_i \lambda_i U_{ia} - \sum_i \lambda_i \langle x_i, L_i \rangle,
        \qquad L_{ij} = \max_a (U_{ia} - M_{aj})

    by the duality of each W. It is the better the flatter the mean of the potentials is. So every round takes the mean
    off them, which lowers L, and raises U as far as this L allows; the bound never falls. What rounding could add to it
    is taken off.

    Parameters
    ----------
    cost : Cost
        In double precision.
    targets : sparse array of shape (n, m)
        The measures x, which sum to one.
    share : array of shape (n,)
        The lambda, which sum to one.
    U : array of shape (n, m)
    rounds : int
    n_jobs : int, optional
        Threads over the measures.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from gibbsot import GridCost
    >>> ends = sparse.csr_array(np.eye(3)[[0, 2]])  # the best p is in the middle and has objective 1
    >>> round(lower_bound(GridCost(3, spacing=1.0), ends, np.array([0.5, 0.5]), np.array([[0.0, 1, 4], [4, 1, 0]])), 9)
    1.0
    """
    for _ in range(checks.count(rounds, "rounds")):
        U = U - share @ U
        L = cost.col_max(U, n_jobs)
        U = cost.row_min(L, n_jobs)
    largest = np.abs(U).max(axis=1) + np.abs(L).max(axis=1)
    slack = (2 * cost.depth + 2) * np.finfo(np.float64).eps * largest
    paid = np.asarray(targets.multiply(L).sum(axis=1)).ravel()
    return float((share @ U).min() - share @ (paid + slack))
