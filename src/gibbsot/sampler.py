"""The Gibbs sampler: states, single sweeps and runs."""

from .sampling.sampler import *  # noqa: F403
