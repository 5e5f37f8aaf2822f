"""Temperatures of a loss whose model is trained elsewhere: those of `gibbsot.torch`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class GapTracking:
    r"""A temperature that keeps the relative gap between V(z) and the lower bound by its potentials at a target.

    .. math:: T \leftarrow T \exp\left(r \left(g^* - \frac{V(z) - \mathrm{lower}}{V(z)}\right)\right)

    Attributes
    ----------
    target : float
        The relative gap. At one half W lies between the two and nearer to V(z).
    rate : float
        The fraction of the difference by which one update changes the logarithm of the temperature.
    """

    target: float = 0.5
    rate: float = 0.2

    def update(self, T: float, value: float, lower: float, T_min: float, scale: float = 1.0) -> float:
        """Return the next temperature.

        Parameters
        ----------
        T : float
            The temperature so far, which is all the state there is.
        value, lower : float
            The means of V(z) and of the lower bound by its potentials.
        T_min : float
            The lowest temperature.
        scale : float
            The fraction of the target that a scheduler has left.

        Returns
        -------
        float
        """
        # chains that have hardly moved need a higher temperature; near a perfect fit the bound may be below zero
        gap = min((value - lower) / value, 1.0) if value > 0 else 0.0
        return max(T * float(np.exp(self.rate * (self.target * scale - gap))), T_min)


@dataclass(frozen=True)
class GeometricDecay:
    """A factor that falls by the same ratio every epoch, down to a floor.

    Attributes
    ----------
    gamma : float
        The ratio of an epoch.
    floor : float
        The lowest factor.
    """

    gamma: float = 0.95
    floor: float = 0.1

    def at(self, epoch: int) -> float:
        """Return the factor after a number of epochs."""
        return max(self.gamma**epoch, self.floor)
