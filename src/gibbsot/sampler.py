"""The Gibbs sampler: states, single sweeps and runs."""

from .sampling.mixing import *  # noqa: F403
from .sampling.sampler import *  # noqa: F403
