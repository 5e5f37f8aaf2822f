"""Entropic barycenters of measures on common points: where the updates of centroids start."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost
from ...distributed.fixed_point import Fixed

Array = NDArray[np.float64]

_MOST_ENTRIES = 4_000_000  # of the largest matrix of a kernel
_DENSE = 256  # points of a grid up to which one product with the whole kernel is faster than one for each axis
_TINY = 1e-300
_COLUMNS = 32  # of a block: whole registers of every machine, so that all columns of a product are computed alike
_QUANTUM, _COARSE = 2.0**-42, 2.0**-36  # of sums of logarithms of doubles, which are below 2^10, and of other ones


class Smoothing:
    r"""Barycenters with an entropic penalty of the plans, by iterative Bregman projections [1]_.

    .. math:: \min_p \sum_i s_i \min_{\pi \in \Pi(p, x_i)} \langle \pi, M \rangle + T \, \mathrm{KL}(\pi)

    A step takes two products with the kernel ``exp(-M / T)``, which on a grid is one matrix for each axis. The
    result is not an optimum; its exact objective tells what it is worth. Its potentials prove a lower bound.

    Parameters
    ----------
    cost : Cost
        From the points of the barycenter to those of the measures.

    References
    ----------
    .. [1] J.-D. Benamou, G. Carlier, M. Cuturi, L. Nenna and G. Peyré, *Iterative Bregman projections for regularized
       transportation problems*, SIAM Journal on Scientific Computing 37, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost
    >>> found = Smoothing(GridCost(5, spacing=1.0))
    >>> p, f = found.barycenter(np.eye(5)[[0, 4]], np.array([0.5, 0.5]), 0.5, 50)
    >>> int(p.argmax()), f.shape
    (2, (2, 5))
    """

    def __init__(self, cost: Cost) -> None:
        self._shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((cost.shape[0],), (cost.shape[1],))
        places, self.axes = cost.positions(), list[Array]()
        adds_up = places is not None and places.X is places.Y and places.norm == places.power
        if places is not None and adds_up and len(cost.row_shape) > 1 and cost.shape[0] > _DENSE:
            self._shapes = (cost.row_shape, cost.row_shape)
            grid = places.X.reshape(*cost.row_shape, -1)
            for a in range(len(cost.row_shape)):
                line = grid[tuple(slice(None) if b == a else 0 for b in range(len(cost.row_shape)))][:, a]
                self.axes.append(np.abs(line[:, None] - line) ** places.power)
        elif cost.shape[0] * cost.shape[1] <= _MOST_ENTRIES:
            matrix = np.asarray(cost.matrix(), np.float64)
            self.axes.append(matrix - matrix.min())

    @property
    def possible(self) -> bool:
        """Whether the kernel is small enough."""
        return bool(self.axes)

    def barycenter(
        self, X: Array, share: Array, temperature: float, steps: int, f: Array | None = None
    ) -> tuple[Array, Array] | None:
        """Return weights with sum one and potentials of the barycenter's points, one row for each measure.

        Parameters
        ----------
        X : array of shape (n, m)
            Normalised measures.
        share : array of shape (n,)
            Their positive weights, with sum one.
        temperature : float
            The factor T of the penalty.
        steps : int
            How many steps.
        f : array of shape (n, m), optional
            Potentials to start from.

        Returns
        -------
        tuple of arrays, or None
            None where numbers overflow or vanish, because the temperature is too low.
        """
        f = np.zeros((len(X), int(np.prod(self._shapes[0])))) if f is None else f
        run = Scaling(self, X, share, temperature, f)
        run.begin(run.mean().value)
        log_p = run.step().value
        for _ in range(steps - 1):
            log_p = run.step(log_p).value
        p = normalised(log_p)
        return None if p is None else (p, run.potentials(log_p))


def normalised(log_p: Any) -> Array | None:
    """Return weights with sum one from logarithms; None where they are not finite."""
    with np.errstate(all="ignore"):
        p = np.exp(log_p - np.max(log_p))
        p = p / p.sum()
    return p if np.isfinite(p).all() else None


class Scaling:
    """Steps of `Smoothing` for some of the measures of a barycenter: what they add to it adds up over shards.

    Measures are columns of blocks of one size. So a product has the same terms in the same order, wherever a measure
    is.

    Parameters
    ----------
    smoothing : Smoothing
        The cost.
    X : array of shape (n, m)
        Normalised measures.
    share : array of shape (n,)
        Their weights in the barycenter, whose sum over all shards is one.
    temperature : float
        The factor T.
    f : array of shape (n, m)
        Potentials to start from.
    """

    def __init__(self, smoothing: Smoothing, X: Array, share: Array, temperature: float, f: Array) -> None:
        self._n, self._temperature, self._shapes = len(X), temperature, smoothing._shapes
        self._kernels = [np.exp(-axis / temperature) for axis in smoothing.axes]
        self._back = [np.ascontiguousarray(kernel.T) for kernel in self._kernels]
        self._targets, self._f = self._blocks(X), self._blocks(f / temperature)
        self._share = self._blocks(share[:, None])
        self._v = self._reached = self._f

    def _blocks(self, x: Array) -> Array:
        """Return rows as columns of blocks of shape (m, _COLUMNS), the last one filled up with zeros."""
        blocks = -(-len(x) // _COLUMNS)
        padded = np.zeros((blocks * _COLUMNS, x.shape[1]))
        padded[: len(x)] = x
        return np.ascontiguousarray(padded.reshape(blocks, _COLUMNS, x.shape[1]).transpose(0, 2, 1))

    def mean(self) -> Fixed:
        """Return what the measures add to the mean of the potentials to start from, in units of the temperature."""
        return self._sum(self._f, _COARSE)

    def begin(self, mean: Array) -> None:
        """Start from potentials less their mean, which is zero in the optimum, and which steps keep."""
        with np.errstate(all="ignore"):
            self._v = np.exp(self._f - mean[:, None])

    def step(self, log_p: Array | None = None) -> Fixed:
        """Follow the logarithms of a barycenter; return what the measures add to those of the next one."""
        with np.errstate(all="ignore"):
            if log_p is not None:
                self._v = np.exp(log_p)[:, None] / self._reached
            u = self._targets / np.maximum(_product(self._back, self._v, self._shapes[0]), _TINY)
            self._reached = np.maximum(_product(self._kernels, u, self._shapes[1]), _TINY)
            return self._sum(np.log(np.maximum(self._v * self._reached, _TINY)), _QUANTUM)

    def potentials(self, log_p: Array) -> Array:
        """Return the potentials at the end, one row for each measure."""
        with np.errstate(all="ignore"):
            f = self._temperature * np.log(np.exp(log_p)[:, None] / self._reached)
        return np.ascontiguousarray(f.transpose(0, 2, 1).reshape(len(f) * _COLUMNS, f.shape[1])[: self._n])

    def _sum(self, x: Array, quantum: float) -> Fixed:
        """Return the weighted sum over the measures, exactly."""
        return Fixed(np.rint(x * (self._share / quantum)).sum(axis=(0, 2)), quantum)


def _product(kernels: list[Array], x: Array, shape: tuple[int, ...]) -> Array:
    """Return the products of a kernel, or of one for each axis, with the columns of blocks."""
    if len(kernels) == 1:
        return np.asarray(kernels[0] @ x)
    y = x
    for axis, kernel in enumerate(kernels):
        inner = math.prod(shape[axis + 1 :]) * x.shape[2]
        y = np.matmul(kernel, y.reshape(len(x) * math.prod(shape[:axis]), shape[axis], inner))
    return y.reshape(len(x), math.prod(kernel.shape[0] for kernel in kernels), x.shape[2])
