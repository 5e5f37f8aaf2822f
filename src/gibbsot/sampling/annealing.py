"""What keeps a model and its chains together: the temperature, the steps, and when they change.

A model that outruns its chains follows gradients of what it was: V(z) sinks below W and nothing is gained. So a sample
of the problems is solved exactly now and then. Where the chains lag, steps get shorter; where the model has stalled,
the temperature falls; and where the model got worse, the best one is taken up again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..core.costs import Cost
from .temperature import coldest

Array = NDArray[np.float64]

_SPACING = 10, 40  # epochs between looks, at first and later in a long run
# The heat is how far V(z) lies above W in relation to it, once the chains have mixed. The first is hot enough to follow
# a model; chains that show less than the first share of it lag, with more than the second they follow.
HEAT = 0.35
_LAGS, _FOLLOWS = 0.25, 0.5
_LONGER, _LONGEST, _SHORTER = 1.6, 2.0, 0.6
_SHORT = 0.25  # a step below which chains that lag are heated before the first cooling
_STALL, _LOOK_BACK = 0.003, 3  # a gain a look below which the model is cooled, over so many looks
_COOLER = 0.7
_WARM = 0.1  # a heat that may hide what there is still to gain
_RISE = 1.05  # over the best model, which is then taken up again
_SOON = 3  # epochs to the next look then
# of the gradient over its least so far, where logarithms of weights change by as much: steps that are too long throw
# the model to and fro
_GROWTH, _LARGE = 1.5, 0.04


@dataclass
class Control:
    """The temperature and the step of a model on its way.

    Attributes
    ----------
    T : float
        The temperature for the next epoch.
    step : float
        The next step, as a share of the one that the user asked for.
    best : float
        The exact cost of the best model, over the sample.
    finished : bool
        Whether cooling no longer gains anything.
    """

    T: float
    coldest: float
    heat: float = HEAT
    unit: float = 1.0  # T of heat one and cost one
    step: float = 1.0
    longest: float = _LONGEST  # that the step may become
    best: float = np.inf
    calm: float = np.inf  # the least size of the gradient
    looked: int = 0  # the epoch of the last look
    worse: bool = False  # what it showed
    past: list[float] = field(default_factory=list)  # exact looks since the last cooling
    levels: list[float] = field(default_factory=list)  # the best when it was cooled
    finished: bool = False

    @classmethod
    def begin(cls, cost: Cost, found: tuple[Array, Array], temperature: float | str) -> Control:
        """Choose the first temperature for some models, by the theory's bound (`heated`) if it is "auto"."""
        value, T = (float(x.mean()) for x in found)
        least = coldest(cost)
        control = cls(max(T, least), least)
        if value > 0:
            control.unit = control.T / (HEAT * value)
        if not isinstance(temperature, str):
            control.heat *= float(temperature) / control.T
            control.T = float(temperature)
        return control

    def due(self, epoch: int) -> bool:
        """Tell whether the model is to be looked at after an epoch."""
        return bool(epoch >= self.looked + (_SOON if self.worse else np.clip(self.looked // 8, *_SPACING)))

    def brake(self, change: float) -> None:
        """Shorten the step where the changes of the logarithms of weights that it makes are large and growing."""
        gradient = change / self.step
        if change > _LARGE and gradient > _GROWTH * self.calm:
            self.step *= _SHORTER
            self.calm = gradient
        self.calm = min(self.calm, gradient)

    def note(self, estimate: float) -> str:
        """Return what a progress bar says: the best cost, or V(z) before the first look."""
        return f"cost {self.best if self.past else estimate:.3g}, T {self.T:.1e}"

    def judge(self, value: float) -> bool:
        """Take note of a model's exact cost; return whether it is the best so far."""
        if not self.past:
            self.past.append(value)
        better = value < self.best
        self.best = min(self.best, value)
        return better

    def settled(self, tol: float) -> bool:
        """Tell whether the last two coolings gained less than a share of the cost."""
        return len(self.levels) > 2 and self.levels[-3] - self.best <= tol * self.best

    def adapt(self, value: float, estimate: float, tol: float) -> bool:
        """Change temperature and step for a model's exact cost and V(z); return whether to go back to the best one."""
        self.worse = value > _RISE * self.best
        heat = estimate / value - 1 if value > 0 else self.heat
        if self.worse:
            self.step *= _SHORTER
            self.longest = self.step
        elif heat < _LAGS * self.heat:
            if self.step > _SHORT or self.levels:
                self.step *= _SHORTER
            else:
                self.heat /= _COOLER
        elif heat > _FOLLOWS * self.heat:
            self.step = min(self.longest, self.step * _LONGER)
        self.past.append(self.best if self.worse else value)
        before = self.past[-1 - _LOOK_BACK] if len(self.past) > _LOOK_BACK else np.inf
        if before - self.past[-1] <= _STALL * _LOOK_BACK * self.past[-1]:
            self.heat *= _COOLER
            self.past = self.past[-1:]
            self.levels.append(self.best)
            self.finished = self.settled(tol) and heat < _WARM
        self.T = max(self.unit * self.heat * self.best, self.coldest)
        return self.worse


def deviation(weights: Array, x: Array) -> float:
    """Return the standard deviation of rows under weights, in the mean."""
    centred = x - (weights * x).sum(axis=1, keepdims=True)
    return float(np.sqrt((weights * centred**2).sum(axis=1)).mean())
