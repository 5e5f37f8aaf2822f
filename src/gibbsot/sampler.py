"""The public path of `gibbsot.sampling.sampler`."""

from .sampling.sampler import *  # noqa: F403
