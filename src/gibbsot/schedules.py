"""The public path of `gibbsot.sampling.schedules`."""

from .sampling.schedules import *  # noqa: F403
