"""The paper's theory: increments of V(z), concentration, temperatures and diagnostics of a run."""

from .sampling.theory import *  # noqa: F403
