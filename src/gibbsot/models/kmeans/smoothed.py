"""Entropic barycenters of measures on common points: where the updates of centroids start."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost

Array = NDArray[np.float64]

_MOST_ENTRIES = 4_000_000  # of the largest matrix of a kernel
_DENSE = 256  # points of a grid up to which one product with the whole kernel is faster than one for each axis
_TINY = 1e-300


class Smoothing:
    r"""Barycenters with an entropic penalty of the plans, by iterative Bregman projections [1]_.

    .. math:: \min_p \sum_i s_i \min_{\pi \in \Pi(p, x_i)} \langle \pi, M \rangle + T \, \mathrm{KL}(\pi)

    A step takes two products with the kernel ``exp(-M / T)``, which on a grid is one matrix for each axis. The
    result is no optimum; its exact objective tells what it is worth. Its potentials prove a lower bound.

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
        with np.errstate(all="ignore"):
            kernels = [np.exp(-axis / temperature) for axis in self.axes]
            back = [np.ascontiguousarray(kernel.T) for kernel in kernels]
            targets = np.ascontiguousarray(X.T)
            # steps keep the mean of the potentials, which is zero in the optimum
            start = np.zeros((len(X), int(np.prod(self._shapes[0])))) if f is None else f - share @ f
            v = np.ascontiguousarray(np.exp(start / temperature).T)
            for _ in range(steps):
                u = targets / np.maximum(_product(back, v, self._shapes[0]), _TINY)
                reached = np.maximum(_product(kernels, u, self._shapes[1]), _TINY)
                log_p = np.log(np.maximum(v * reached, _TINY)) @ share
                v = np.exp(log_p)[:, None] / reached
            p, found = np.exp(log_p - log_p.max()), temperature * np.log(v).T
        if not (np.isfinite(p).all() and np.isfinite(found).all()):
            return None
        return p / p.sum(), np.ascontiguousarray(found)


def _product(kernels: list[Array], x: Array, shape: tuple[int, ...]) -> Array:
    """Return the product of a kernel, or of one for each axis, with columns."""
    if len(kernels) == 1:
        return np.asarray(kernels[0] @ x)
    y = x.reshape(*shape, -1)
    for axis, kernel in enumerate(kernels):
        y = np.moveaxis(np.tensordot(kernel, y, (1, axis)), 0, axis)
    return np.ascontiguousarray(y).reshape(-1, x.shape[1])
