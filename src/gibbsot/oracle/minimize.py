"""Minimisation of any loss over simplices, with steps that need no tuning.

The step of mirror descent, the averages of iterates and what it means to become worse are those of the models. Their
steps are their own: they follow the bias of V(z), which a function of the user need not have. So is their loop, which
writes checkpoints, replays lost shards and passes Ctrl-C on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import validation
from ..core.warn import warn
from ..io import progress
from ..sampling.annealing.adaptive import AdaptiveCooling, newest_share
from .mirror_descent import mirror_step
from .pairs import exact_values

__all__ = ["Minimum", "Record", "minimize"]

Array = NDArray[np.float64]

# Chosen on smoothing and clustering; benchmarks/own_losses.py has these and other losses.
_FIRST_CHANGE, _LAST_CHANGE = 0.2, 0.02  # standard deviations of the changes of logarithms of weights by one step
_MOMENTUM = 0.9  # exact gradients jump between vertices, and those of chains are noisy: their average does less
_LEAST_SHARE = 0.1  # of the newest iterate in the mean
_CHECKS, _SPACING = 10, 5  # the largest number of exact evaluations, and the least number of iterations between them
_LEAST_MASS = 1e-3  # divided by the number of weights: smaller ones are zero, which makes exact solutions faster
_POLICY = AdaptiveCooling()  # what it means to become worse, and what happens then: as in the models


class Record(NamedTuple):
    """What was observed in an iteration.

    Attributes
    ----------
    iteration : int
        Counted from one.
    seconds : float
        Since the start.
    value : float
        What ``fun`` returned: an estimate where oracles have chains or kept duals.
    checked : float
        The value of the mean iterate with exact values of the oracles; NaN where it was not evaluated.
    change : float
        By how much the step has changed logarithms of weights.
    """

    iteration: int
    seconds: float
    value: float
    checked: float
    change: float


class Minimum(NamedTuple):
    """The result of `minimize`.

    Attributes
    ----------
    x : array, or tuple of arrays
        The best parameters, as those of the start: rows of weights that sum to one.
    value, lower : float
        Certified bounds of ``fun`` at x, from above and from below, where it does not decrease in the values of
        oracles; without oracles its value.
    history : list of Record
        One for each iteration.
    status : {"finished", "time over", "stopped", "interrupted"}
        What ended the iterations: their number, ``max_seconds``, the callback, or Ctrl-C.
    """

    x: Any
    value: float
    lower: float
    history: list[Record]
    status: str


def minimize(
    fun: Callable[..., tuple[float, Any]],
    start: ArrayLike | tuple[ArrayLike, ...],
    *,
    max_iter: int = 100,
    max_seconds: float | None = None,
    callback: Callable[[Record, Any], bool | None] | None = None,
    verbose: bool = False,
) -> Minimum:
    r"""Minimise a function of rows of weights, each of which sums to one, such as a loss that an `Oracle` evaluates.

    Steps are mirror descent with the entropy, along a running mean :math:`m` of the gradients,

    .. math:: x \propto x \exp(-s \, m), \qquad s = \delta_k / \bar\sigma,

    where :math:`\bar\sigma` is the mean over the rows of the standard deviation of m under the weights x. So a step
    changes logarithms of weights by :math:`\delta_k`, whatever the unit of the loss: from 0.2 at first to 0.02 in the
    last iteration. The result is the best of averages of the iterates. At most ten times the mean is evaluated with
    exact values of the oracles; where it has become worse by 5 per cent and still rises, the best one is restored and
    further steps are shorter, as in `WassersteinNMF`.

    Parameters
    ----------
    fun : callable
        ``value, gradient = fun(x)``, or for several arrays ``value, (gradient, ...) = fun(x, ...)``. A constant in a
        row of the gradient makes no difference.
    start : array of shape (n, k) or (k,), or tuple of such arrays
        Where to begin; rows of weights, which are divided by their sums. Weights of zero may grow.
    max_iter : int
        The number of iterations. Steps become shorter as it is approached: with more of them the result is better.
    max_seconds : float, optional
        The time after which no other iteration begins.
    callback : callable, optional
        Called with the `Record` of an iteration and the mean iterate after each; True ends the iterations.
    verbose : bool
        Show progress.

    Returns
    -------
    Minimum

    Notes
    -----
    Ctrl-C ends the iterations, and the best parameters so far are returned, with a warning. Weights below
    ``0.001 / k`` are passed to ``fun`` as zero, as exact solutions need less time then; they can grow again.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost, Oracle
    >>> from gibbsot.mirror_descent import minimize
    >>> x = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    >>> oracle = Oracle(GridCost(4, spacing=1.0), x)
    >>> def mean_cost(p):  # of a barycenter
    ...     found = oracle(p)
    ...     return found.values.mean(), found.grad_p.mean(axis=0)
    >>> result = minimize(mean_cost, np.full(4, 0.25))
    >>> result.x.round(2), round(result.value, 2)
    (array([0., 1., 0., 0.]), 1.0)
    """
    several = isinstance(start, tuple)
    given = start if isinstance(start, tuple) else (start,)
    descent = _Descent([_Block(x, f"start[{k}]" if several else "start") for k, x in enumerate(given)])
    max_iter = validation.count(max_iter, "max_iter")

    def called(blocks: list[Array]) -> tuple[float, list[Array]]:
        shaped = [x.reshape(one.shape) for x, one in zip(blocks, descent.blocks, strict=True)]
        value, gradients = fun(*shaped)
        parts = gradients if several else (gradients,)
        found = []
        for k, (one, part) in enumerate(zip(descent.blocks, parts, strict=True)):
            gradient = np.asarray(part, np.float64)
            if gradient.shape != one.shape or not np.isfinite(gradient).all():
                which = f" {k}" if several else ""
                raise ValueError(
                    f"fun: expected finite gradients of shape {one.shape} for argument{which}, got {gradient.shape}"
                )
            found.append(gradient.reshape(one.mean.shape))
        return float(value), found

    def outward(blocks: list[Array]) -> Any:
        shaped = tuple(x.reshape(one.shape) for x, one in zip(blocks, descent.blocks, strict=True))
        return shaped if several else shaped[0]

    history: list[Record] = []
    status, began = "finished", time.perf_counter()
    n_checks = max(1, min(_CHECKS, max_iter // _SPACING))
    checks = {round(k * max_iter / n_checks) for k in range(1, n_checks + 1)}
    try:
        descent.begin(_evaluated(called, descent.means())[0])
        with progress.bar("minimize", verbose) as advance:
            for k in range(max_iter):
                value, gradients = called(descent.iterates())
                change = descent.step(gradients, k / max(1, max_iter - 1))
                checked = np.nan
                if k + 1 in checks:
                    checked = _evaluated(called, descent.means())[0]
                    descent.check(checked)
                history.append(Record(k + 1, time.perf_counter() - began, value, checked, change))
                advance(1 / max_iter, f"{value:.6g}, best {descent.best:.6g}")
                if callback is not None and callback(history[-1], outward(descent.means())):
                    status = "stopped"
                    break
                if max_seconds is not None and history[-1].seconds >= max_seconds:
                    status = "time over"
                    break
            if status != "finished":
                descent.check(_evaluated(called, descent.means())[0])
    except KeyboardInterrupt:
        status = "interrupted"
        warn("minimize: interrupted; the best parameters so far are returned", RuntimeWarning)
    best = descent.best_means()
    return Minimum(
        outward(best), _evaluated(called, best, "upper")[0], _evaluated(called, best, "lower")[0], history, status
    )


def _evaluated(
    called: Callable[[list[Array]], tuple[float, list[Array]]], x: list[Array], what: str = "estimate"
) -> tuple[float, list[Array]]:
    """Call a function whose oracles return exact values."""
    with exact_values(what):
        return called(x)


class _Block:
    """One array of the parameters: logarithms of its rows of weights, their mean, and the mean gradient."""

    def __init__(self, start: ArrayLike, name: str) -> None:
        x = validation.real(start, name).astype(np.float64)
        if x.ndim not in (1, 2) or x.size == 0:
            raise ValueError(f"{name}: expected rows of weights, of shape (n, k) or (k,), got shape {x.shape}")
        self.shape, rows = x.shape, np.atleast_2d(x)
        rows = rows / validation.check_weights(rows, name)[:, None]
        self.least = _LEAST_MASS / rows.shape[1]
        self.log = np.log(np.maximum(rows, self.least / 2))
        self.mean = self.best = rows
        self.gradient = np.zeros_like(rows)

    def weights(self, x: Array) -> Array:
        """Return rows whose smallest weights are zero."""
        x = np.where(x < self.least, 0.0, x)
        return np.asarray(x / x.sum(axis=1, keepdims=True))

    def step(self, gradient: Array, change: float, share: float) -> None:
        """Take a step that changes logarithms by so much."""
        x = np.exp(self.log)  # with the smallest weights, which may have to grow
        x /= x.sum(axis=1, keepdims=True)
        self.gradient = _MOMENTUM * self.gradient + (1 - _MOMENTUM) * gradient
        level = (x * self.gradient).sum(axis=1, keepdims=True)
        deviation = float(np.sqrt((x * (self.gradient - level) ** 2).sum(axis=1)).mean())
        if deviation > 0:
            log = mirror_step(self.log, self.gradient - level, change / deviation)
            self.log = np.maximum(log, np.log(self.least) - 1)
        self.mean = self.mean + share * (self.weights(np.exp(self.log)) - self.mean)


class _Descent:
    """The state of a minimisation."""

    def __init__(self, blocks: list[_Block]) -> None:
        self.blocks, self.best = blocks, np.inf
        self._factor, self._averaged, self._last = 1.0, 0, np.inf

    def iterates(self) -> list[Array]:
        """Return the current parameters."""
        return [one.weights(np.exp(one.log)) for one in self.blocks]

    def means(self) -> list[Array]:
        """Return the mean parameters."""
        return [one.weights(one.mean) for one in self.blocks]

    def best_means(self) -> list[Array]:
        """Return the best of the mean parameters."""
        return [one.weights(one.best) for one in self.blocks]

    def begin(self, value: float) -> None:
        """Note the value of the start."""
        self.best = value

    def step(self, gradients: list[Array], done: float) -> float:
        """Take a step after a share of the iterations is done; return by how much it changed logarithms."""
        self._averaged += 1
        growing = min(1.0, self._averaged * (1 - _MOMENTUM))  # until there is a mean gradient
        change = growing * self._factor * _FIRST_CHANGE * (_LAST_CHANGE / _FIRST_CHANGE) ** done
        share = max(_LEAST_SHARE, newest_share(1, self._averaged))
        for one, gradient in zip(self.blocks, gradients, strict=True):
            one.step(gradient, change, share)
        return change

    def check(self, value: float) -> None:
        """Keep the mean parameters if they are the best; restore the best, with shorter steps, if they became worse."""
        if value < self.best:
            self.best = value
            for one in self.blocks:
                one.best = one.mean
        elif value > max(self._last, self.best + (_POLICY.rise - 1) * abs(self.best)):
            self._factor *= _POLICY.damping
            self._averaged = 0
            for one in self.blocks:
                one.mean, one.log = one.best, np.log(np.maximum(one.best, one.least / 2))
                one.gradient = np.zeros_like(one.gradient)
            value = self.best
        self._last = value
