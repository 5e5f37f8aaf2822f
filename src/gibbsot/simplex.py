"""The public path of `gibbsot.solvers.mirror_descent`."""

from .solvers.mirror_descent import *  # noqa: F403
