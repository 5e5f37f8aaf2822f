"""The public path of `gibbsot.sampling.theory`."""

from .sampling.theory import *  # noqa: F403
