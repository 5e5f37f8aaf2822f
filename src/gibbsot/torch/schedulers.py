"""Schedulers of the temperature."""

from __future__ import annotations

from typing import Any

from ..core import validation
from ..sampling.annealing.tracking import GeometricDecay
from .losses import WassersteinLoss


class GibbsTemperature:
    r"""Lowers the temperature of a loss, in the style of ``torch.optim.lr_scheduler``: call ``step`` once per epoch.

    .. math:: T_k = T_0 \max(\gamma^k, \mathrm{least})

    A temperature that follows the loss needs no scheduler; for it, this lowers the gap between V(z) and W that it
    keeps. Chains mix slowly at low temperatures: a network that changes faster uses outdated gradients. So the learning
    rate should fall with the temperature, for example by ``CosineAnnealingLR``, or ``max_sweeps`` be larger.

    Parameters
    ----------
    loss : WassersteinLoss
        The loss whose ``cooling`` is changed, with ``method="gibbs"``.
    gamma : float
        The factor of one epoch, at most 1.
    least : float
        The lowest factor, at most 1.

    Attributes
    ----------
    loss, gamma, least
        The parameters.
    last_epoch : int
        The number of calls of `step`.

    Examples
    --------
    >>> from gibbsot.torch import GibbsTemperature, WassersteinLoss
    >>> from gibbsot import GridCost
    >>> loss = WassersteinLoss(GridCost(3), method="gibbs", temperature=1.0)
    >>> scheduler = GibbsTemperature(loss, gamma=0.5)
    >>> scheduler.step()
    >>> loss.temperature
    0.5
    """

    def __init__(self, loss: WassersteinLoss, gamma: float = 0.95, least: float = 0.1) -> None:
        loss.cooling = loss.cooling  # refuses a loss without a temperature
        self.loss = loss
        self.gamma, self.least = validation.positive(gamma, "gamma"), validation.positive(least, "least")
        for name, value in (("gamma", gamma), ("least", least)):
            if value > 1:
                raise ValueError(f"{name}: expected at most one, got {value!r}")
        self.last_epoch = 0

    def step(self) -> None:
        """Lower the temperature, or the gap that is kept."""
        self.last_epoch += 1
        self.loss.cooling = GeometricDecay(self.gamma, self.least).at(self.last_epoch)

    def get_last_temperature(self) -> float | None:
        """Return the temperature of the loss.

        Returns
        -------
        float or None
            None before the first call of a loss with temperature "auto".
        """
        return self.loss.temperature

    def state_dict(self) -> dict[str, Any]:
        """Return the state without the loss.

        Returns
        -------
        dict
            Numbers by name.
        """
        return {name: value for name, value in self.__dict__.items() if name != "loss"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a ``state_dict``.

        Parameters
        ----------
        state : dict
            What `state_dict` returned.
        """
        self.__dict__.update(state)
