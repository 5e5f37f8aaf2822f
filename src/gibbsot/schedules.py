"""Cooling schedules: the temperature of each sweep."""

from .sampling.schedules import *  # noqa: F403
