r"""Minimisation over products of simplices, in the log domain: one simplex a row.

Mirror descent multiplies each weight by ``exp(-step gradient)`` and normalises. With logarithms, from which the largest
of a row is subtracted, nothing overflows and no weight underflows to zero, from which it could not grow again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["AcceleratedMirrorDescent", "logarithms", "mirror_step"]

Array = NDArray[np.float64]

# The lowest logarithm: smaller weights change no sum, make products slow (denormal numbers), and take long to regrow.
_LEAST = -80.0


def logarithms(x: ArrayLike) -> Array:
    """Return the logarithms of rows of weights, not less than -80.

    Parameters
    ----------
    x : array of shape (n, k)
        Rows of weights.

    Returns
    -------
    array of shape (n, k)

    Examples
    --------
    >>> from gibbsot.mirror_descent import logarithms
    >>> logarithms([[1.0, 0.0]])
    array([[  0., -80.]])
    """
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(np.asarray(x, np.float64)), _LEAST)


def mirror_step(log_x: Array, gradient: ArrayLike, step: float | Array) -> Array:
    r"""Return the logarithms after one step of mirror descent with the entropy, row by row.

    .. math:: x_k \propto x_k \exp(-s \, g_k)

    Parameters
    ----------
    log_x : array of shape (n, k)
        Logarithms of rows of weights.
    gradient : array of shape (n, k)
        The gradient g; a constant in a row makes no difference.
    step : float or array of shape (n, 1)
        The step s.

    Returns
    -------
    array of shape (n, k)
        Logarithms of rows that sum to one, not less than -80.

    Examples
    --------
    >>> from gibbsot.mirror_descent import mirror_step
    >>> import numpy as np
    >>> np.exp(mirror_step(np.log([[0.5, 0.5]]), [[0.0, 1.0]], np.log(3)))
    array([[0.75, 0.25]])
    """
    x = log_x - step * np.asarray(gradient)  # then log_softmax as of SciPy, in place
    x -= x.max(axis=-1, keepdims=True)
    x -= np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return np.maximum(x, _LEAST, out=x)


class AcceleratedMirrorDescent:
    r"""Accelerated mirror descent with the entropy, restarted row by row.

    .. math::

        x = \lambda z + (1 - \lambda) y, \; \lambda = \frac{3}{3 + k}, \qquad
        z \propto z \exp(-\tfrac{k s}{3} g(x)), \qquad y \propto x \exp(-s \, g(x))

    A row is restarted [1]_, with k = 1 and z = y, when its last step went uphill: ``<g, y - y_before> > 0``.

    Parameters
    ----------
    x : array of shape (n, k)
        The start; rows of weights.
    ratio : float
        The step of y relative to s, one by default.
    period : int
        If it is positive, rows are restarted after this number of steps instead.

    Attributes
    ----------
    x : array of shape (n, k)
        The point at which the next gradient is to be computed; `step` changes it in place.
    y : array of shape (n, k)
        The current estimate of the minimum.

    References
    ----------
    .. [1] W. Krichene, A. Bayen and P. Bartlett, "Accelerated mirror descent in continuous and discrete time", NeurIPS
       2015.

    Examples
    --------
    >>> from gibbsot.mirror_descent import AcceleratedMirrorDescent
    >>> import numpy as np
    >>> descent = AcceleratedMirrorDescent([[0.5, 0.5]])
    >>> for _ in range(200):
    ...     descent.step(2 * (descent.x - [[0.3, 0.7]]), 0.2)
    >>> descent.y.round(4)
    array([[0.3, 0.7]])
    """

    def __init__(self, x: ArrayLike, ratio: float = 1.0, period: int = 0) -> None:
        self._log_y, self._ratio, self._period = logarithms(x), ratio, period
        self._log_z, self._k = self._log_y.copy(), np.zeros((len(self._log_y), 1))
        self.x = np.exp(self._log_y)

    @property
    def y(self) -> Array:
        return np.exp(self._log_y)

    def step(self, gradient: ArrayLike, step: float | Array, rows: NDArray[np.intp] | slice = slice(None)) -> None:
        """Take a step with the gradient at x.

        Parameters
        ----------
        gradient : array of shape (n, k)
            The gradient at x.
        step : float or array of shape (n, 1)
            The step s.
        rows : array of int or slice
            The rows that take the step and that the gradient is of; all by default.
        """
        g: Any = np.asarray(gradient, np.float64)
        k, before = self._k[rows] + 1, np.exp(self._log_y[rows])
        log_z = mirror_step(self._log_z[rows], g, step * k / 3)
        self._log_y[rows] = log_y = mirror_step(logarithms(self.x[rows]), g, self._ratio * step)
        y = np.exp(log_y)
        uphill = (g * (y - before)).sum(axis=-1, keepdims=True) > 0
        restarted = k >= self._period if self._period else uphill
        self._k[rows] = np.where(restarted, 0.0, k)
        self._log_z[rows] = np.where(restarted, log_y, log_z)
        self._set_point(rows)

    def _set_point(self, rows: NDArray[np.intp] | slice) -> None:
        """Set x from y, z and k."""
        share = 3 / (3 + self._k[rows])
        self.x[rows] = share * np.exp(self._log_z[rows]) + (1 - share) * np.exp(self._log_y[rows])

    def arrays(self) -> dict[str, Array]:
        """Return a copy of the state, for a file.

        Returns
        -------
        dict of str to array
        """
        rule = {"ratio": np.array(self._ratio), "period": np.array(self._period)}
        return {"log_y": self._log_y.copy(), "log_z": self._log_z.copy(), "k": self._k.copy(), **rule}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> AcceleratedMirrorDescent:
        """Return the descent whose state `arrays` returned; its next steps are bit-identical.

        Parameters
        ----------
        arrays : mapping of str to array
            The state.

        Returns
        -------
        AcceleratedMirrorDescent
        """
        rule = float(arrays["ratio"].item()), int(arrays["period"].item())
        descent = cls(np.ones_like(arrays["log_y"]), *rule)
        descent._log_y, descent._log_z, descent._k = (arrays[name].copy() for name in ("log_y", "log_z", "k"))
        descent._set_point(slice(None))
        return descent
