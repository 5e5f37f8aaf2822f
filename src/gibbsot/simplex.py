"""Mirror descent on the probability simplex, plain and accelerated."""

from .solvers.mirror_descent import *  # noqa: F403
