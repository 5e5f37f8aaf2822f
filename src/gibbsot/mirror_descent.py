"""Mirror descent on the probability simplex, plain and accelerated."""

from .oracle.mirror_descent import *  # noqa: F403
