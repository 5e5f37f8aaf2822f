"""Cooling: schedules of the sampler's temperature, and the annealer of models and oracles."""

from .sampling.annealing.adaptive import AdaptiveCooling  # noqa: F401
from .sampling.schedules import *  # noqa: F403
