"""Wasserstein barycenters: the measure that is nearest to many in transport cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..core import costs, validation
from ..core.costs import Cost
from ..distributed import fixed_point, local, shard
from ..distributed.local import Shards
from ..distributed.shard import Numbers, Part
from ..io import progress
from ..sampling import temperature
from ..solvers import evaluation
from ..solvers.mirror_descent import logarithms, mirror_step
from . import _base
from ._history import Epoch

Array = NDArray[np.float64]

_HOT = 0.2  # of the first temperature of other models: what moves here is one measure, which chains follow easily
_MEMORY = 0.9  # of the averages of models and potentials, which are steadier than the last ones
_EVERY = 10  # epochs from one look at the progress to the next
_COOLER, _SHORTER = 0.5, 0.85  # what temperature and step are multiplied with at each stall
_RISE = 1.05  # of V(z) from look to look at one temperature: steps were too long
_COLD = 0.02  # how far V(z) may lie above W in the end, in relation to it and by the theory: (m1 + m2) T
_SPECK = 1e-7  # weights that are left out, relative to the largest: they cost nothing but time
_ROUNDS = 3, 50  # of a lower bound's ascent, at a look and in the end
_BIG = 8  # how much larger than the spread of the costs potentials may become there
_FINER = _BIG * 2.0 ** (fixed_point.FINE - 53)  # of the unit of values: for sums as precise as double precision is


class WassersteinBarycenter(_base.OfMeasures):
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
        The lambda, nonnegative; they are normalised, to about six digits, and all the same by default.
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
    client : dask.distributed.Client, optional
        Where to compute, as of `WassersteinNMF`; the bits are the same as without.

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
        client: Any = None,
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
        self.client = client

    def fit(self, X: Any, y: Any = None) -> WassersteinBarycenter:
        """Find the barycenter of measures as rows; a fit that is interrupted leaves what it has.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of parts
        y : ignored
        """
        begun = time.perf_counter()
        for name in ("max_epochs", "tau"):
            validation.count(getattr(self, name), name)
        validation.positive(self.step_size, "step_size")
        _base.parameters(self)
        parts = _base.shards_of(self, _Targets, X, reset=True)
        try:
            facts = parts.facts
            cost, weights = _base.square_cost(self.cost, facts[0].columns), self._weights(parts)
            single, seed = costs.single(cost), _base.seed(self.random_state)
            local.settle(parts, single, self.tau, seed, self.n_jobs)
            parts.total("weigh", weights, cost.astype(np.float64))
            self._descend(parts, single, np.result_type(*(fact.dtype for fact in facts)), begun)
        finally:
            parts.close()
        return self

    def _weights(self, parts: Shards) -> Array | None:
        """Return the weights of measures with mass, the largest of them one; None if all are one."""
        if self.weights is None:
            return None
        full = np.concatenate(parts.each("full"))
        share = validation.weights(self.weights, "weights", len(full), count=1)[0]
        if not share[full].any():
            raise ValueError("weights: are zero for every measure with mass; expected a positive one")
        return np.asarray(share[full] / share[full].max())

    def _descend(self, parts: Shards, cost: Cost, dtype: np.dtype[Any], begun: float) -> None:
        (n, mass, support), m = parts.ask("counts"), cost.shape[0]
        scale, coldest = costs.mean_cost(cost), temperature.minimum(cost)
        bits, unit, value_unit = shard.units(cost, n)
        start = _base.smooth(parts.ask("mean")[0] / (mass * 2.0**bits), np.full(m, 1 / m))[0]
        T = self._first_temperature(parts, start, n, coldest)
        log_p, average = logarithms(start), start
        points = m + support / n
        shorter, before, estimates = 1.0, np.inf, list[float]()

        self.history_: list[Epoch] = []
        self.objective_, self.lower_bound_ = np.inf, -np.inf
        self._publish(start, dtype)
        with progress.bar("Wasserstein barycenter", self.verbose) as advance:
            for epoch in range(1, self.max_epochs + 1):
                memory = min(_MEMORY, (epoch - 1) / (epoch + 1))
                gradient, value, sweeps = parts.total("epoch", np.exp(log_p), T, memory)
                log_p = mirror_step(log_p, gradient[0] * (unit / mass), shorter * float(self.step_size) / scale)
                average = memory * average + (1 - memory) * np.exp(log_p)
                estimates.append(value * value_unit / mass)
                look = epoch % _EVERY == 0
                gained = self._raise_bound(parts, cost, _ROUNDS[0]) if look else 0.0
                lower = self.lower_bound_ if look else np.nan
                seconds = time.perf_counter() - begun
                self.history_.append(Epoch(estimates[-1], lower, np.nan, T, shorter, sweeps / n, seconds))
                self._publish(average, dtype)
                advance(1 / self.max_epochs, f"cost {estimates[-1]:.3g}, T {T:.1e}")
                if _base.stopped(self):
                    break
                if look:
                    level, last, estimates = float(np.mean(estimates)), before, []
                    before, rising = level, level > _RISE * last
                    if rising or max(gained, last - level) <= self.tol * abs(level):
                        if not rising:
                            if coldest >= T or points * T < _COLD * level:
                                break
                            T, before = max(_COOLER * T, coldest), np.inf
                        # from the average, as the model itself goes to and fro
                        log_p, shorter = logarithms(average), _SHORTER * shorter
        self._raise_bound(parts, cost, _ROUNDS[1])
        p = self.barycenter_.astype(np.float64)
        self.objective_ = parts.ask("objective", p / p.sum(), T)[0] * (_FINER * value_unit) / mass
        self.history_[-1] = self.history_[-1]._replace(lower=self.lower_bound_, upper=self.objective_)

    def _first_temperature(self, parts: Shards, start: Array, n: int, coldest: float) -> float:
        if not isinstance(self.temperature, str):
            return float(self.temperature)
        _, T = parts.ask("heat", evaluation.sample(n), start)[0]
        return max(_HOT * float(T.mean()), coldest)

    def _raise_bound(self, parts: Shards, cost: Cost, rounds: int) -> float:
        """Take up a better lower bound if the mean potentials give one; return what is gained."""
        old = self.lower_bound_
        self.lower_bound_ = max(old, lower_bound(parts, cost, rounds))
        return self.lower_bound_ - old

    def _publish(self, average: Array, dtype: np.dtype[Any]) -> None:
        p = np.where(average < _SPECK * average.max(), 0, average)
        self.barycenter_ = (p / p.sum()).astype(dtype)
        self.n_iter_ = len(self.history_)


class _Targets(Part):
    """A part of the measures: their weights, chains, and means of potentials."""

    def full(self) -> NDArray[np.bool_]:
        """Return which rows have mass."""
        full = np.zeros(self.facts().size, bool)
        full[self.rows] = True
        return full

    def weigh(self, weights: Array | None, cost: Cost, potentials: NDArray[Any] | None = None) -> tuple[()]:
        """Take the weights of all measures, at most one, and the cost in double precision."""
        own = slice(self.first, self.first + len(self))
        self.weights = fixed_point.count(
            np.ones((len(self), 1)) if weights is None else weights[own, None], 2.0**-self.bits
        )
        self.cost, self.most = cost, _BIG * cost.spread()
        self.potentials = np.zeros((len(self), cost.shape[0]), np.float32) if potentials is None else potentials[own]
        return ()

    def counts(self) -> tuple[int, int, int]:
        """Return the number of measures, the sum of their weights in ticks, and the size of their supports."""
        return len(self), int(self.weights.sum()), *self.support()

    def mean(self) -> tuple[NDArray[np.int64]]:
        """Return the weighted sum of the measures, in ticks of ticks."""
        if not len(self):
            return (np.zeros((1, self.facts().columns), np.int64),)
        targets = self.oracle.targets.toarray()
        return (fixed_point.product(self.weights, fixed_point.count(targets, 2.0**-self.bits), self.bits),)

    def epoch(self, p: Array, T: float, memory: float) -> tuple[NDArray[np.int64], int, int]:
        """Let the chains follow p; return weighted sums of potentials and V(z) in ticks, and the sweeps."""
        if not len(self):
            return np.zeros((1, len(p)), np.int64), 0, 0
        values, U, info = self.oracle(p, T)
        self.potentials = (memory * self.potentials + (1 - memory) * U).astype(U.dtype)
        gradient = fixed_point.product(self.weights, fixed_point.count(U, self.unit), self.bits)
        return gradient, _weighted(self.weights, fixed_point.count(values, self.value_unit)), int(info.sweeps.sum())

    def raised(self, taken: Array | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Begin a lower bound from the mean potentials, or take something off the potentials and raise them again.

        Returns
        -------
        high, low : arrays of shape (1, m)
            The weighted sum of the potentials, in ticks and in ticks of ticks.
        """
        if taken is None:
            self.U: NDArray[Any] = self.potentials.astype(np.float64)
        elif len(self):
            self.L = self.cost.col_max(np.clip(self.U - taken, -self.most, self.most), self.oracle.n_jobs)
            self.U = self.cost.row_min(self.L, self.oracle.n_jobs)
        unit = _BIG * self.unit
        high = fixed_point.count(self.U, unit)
        low = fixed_point.count(self.U - high * unit, unit * 2.0**-self.bits)
        return fixed_point.product(self.weights, high, self.bits), fixed_point.product(self.weights, low, self.bits)

    def paid(self) -> tuple[int]:
        """Return the weighted sum of ``<x, L>``, with what rounding could add to a bound, in fine ticks."""
        if not len(self):
            return (0,)
        largest = np.abs(self.U).max(axis=1) + np.abs(self.L).max(axis=1)
        slack = (2 * self.cost.depth + 2) * np.finfo(np.float64).eps * largest
        paid = np.asarray(self.oracle.targets.multiply(self.L).sum(axis=1)).ravel()
        return (_weighted(self.weights, np.ceil((paid + slack) / (_FINER * self.value_unit))),)

    def objective(self, p: Array, T: float) -> tuple[int]:
        """Return the weighted sum of what optimal plans cost, priced in the user's precision, in fine ticks."""
        if not len(self):
            return (0,)
        plans = [sparse.coo_array(optimum.plan) for optimum in self.oracle.exact(p, T)]
        values = np.array([(plan.data * self.cost.at(plan.row, plan.col)).sum() for plan in plans])
        return (_weighted(self.weights, fixed_point.count(values, _FINER * self.value_unit)),)

    def models(self, rows: Numbers, p: Array) -> Array:
        return np.tile(p, (len(rows), 1))


def _weighted(weights: Array, values: Array) -> int:
    """Return a sum of products of ticks, in integers that cannot overflow."""
    return sum(int(w) * int(v) for w, v in zip(weights.ravel().tolist(), values.tolist(), strict=True))


def lower_bound(parts: Shards, cost: Cost, rounds: int = 50) -> float:
    r"""Return a lower bound of the objective of every measure p, whatever the mean potentials U of the parts are.

    .. math::

        \sum_i \lambda_i W(p, x_i) \ge \min_a \sum_i \lambda_i U_{ia} - \sum_i \lambda_i \langle x_i, L_i \rangle,
        \qquad L_{ij} = \max_a (U_{ia} - M_{aj})

    by the duality of each W. It is the better the flatter the mean of the potentials is. So every round takes the mean
    off them, which lowers L, and raises U as far as this L allows; the bound never falls. What rounding could add to it
    is taken off.

    Parameters
    ----------
    parts : Shards
        The measures, their weights lambda and potentials.
    cost : Cost
    rounds : int
    """
    n, mass, _ = parts.ask("counts")
    bits, unit, value_unit = shard.units(cost, n)
    taken = None
    for _ in range(rounds + 1):
        high, low = parts.total("raised", taken)
        taken = (high[0] * (_BIG * unit) + low[0] * (_BIG * unit * 2.0**-bits)) / mass
    assert taken is not None
    rounding = _BIG * unit * 2.0**-bits + 4 * np.finfo(np.float64).eps * float(np.abs(taken).max())
    return float(taken.min() - parts.ask("paid")[0] * (_FINER * value_unit) / mass - rounding)
