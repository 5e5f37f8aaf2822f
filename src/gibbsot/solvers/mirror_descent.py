r"""Minimisation over products of simplices, in the log domain: one simplex a row.

Mirror descent multiplies each weight by ``exp(-step gradient)`` and normalises. With logarithms, from which the largest
of a row is subtracted, nothing overflows and no weight underflows to zero, from which it could not grow again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

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
    >>> import numpy as np
    >>> np.exp(mirror_step(np.log([[0.5, 0.5]]), [[0.0, 1.0]], np.log(3)))
    array([[0.75, 0.25]])
    """
    return np.maximum(log_softmax(log_x - step * np.asarray(gradient), axis=-1), _LEAST)


class AcceleratedMirrorDescent:
    r"""Accelerated mirror descent with the entropy, restarted row by row [1]_.

    .. math::

        x = \lambda z + (1 - \lambda) y, \; \lambda = \frac{3}{3 + k}, \qquad
        z \propto z \exp(-\tfrac{k s}{3} g(x)), \qquad y \propto x \exp(-s \, g(x))

    A row is restarted, with k = 1 and z = y, when its last step went uphill: ``<g, y - y_before> > 0``.

    Parameters
    ----------
    x : array of shape (n, k)
        The start; rows of weights.

    Attributes
    ----------
    x : array of shape (n, k)
        The point at which the next gradient is to be computed.
    y : array of shape (n, k)
        The current estimate of the minimum.

    References
    ----------
    .. [1] W. Krichene, A. Bayen and P. Bartlett, "Accelerated mirror descent in continuous and discrete time", NeurIPS
       2015.

    Examples
    --------
    >>> import numpy as np
    >>> descent = AcceleratedMirrorDescent([[0.5, 0.5]])
    >>> for _ in range(200):
    ...     descent.step(2 * (descent.x - [[0.3, 0.7]]), 0.2)
    >>> descent.y.round(4)
    array([[0.3, 0.7]])
    """

    def __init__(self, x: ArrayLike) -> None:
        self._log_z = self._log_y = logarithms(x)
        self._k = np.zeros((len(self._log_z), 1))
        self.x = self.y = np.exp(self._log_y)

    def step(self, gradient: ArrayLike, step: float | Array) -> None:
        """Take a step with the gradient at x.

        Parameters
        ----------
        gradient : array of shape (n, k)
            The gradient at x.
        step : float or array of shape (n, 1)
            The step s.
        """
        g: Any = np.asarray(gradient, np.float64)
        self._k += 1
        before = self.y
        self._log_z = mirror_step(self._log_z, g, step * self._k / 3)
        self._log_y = mirror_step(logarithms(self.x), g, step)
        self.y = np.exp(self._log_y)
        uphill = (g * (self.y - before)).sum(axis=-1, keepdims=True) > 0
        self._k = np.where(uphill, 0.0, self._k)
        self._log_z = np.where(uphill, self._log_y, self._log_z)
        share = 3 / (3 + self._k)
        self.x = share * np.exp(self._log_z) + (1 - share) * self.y
