"""Mirror descent on the probability simplex: a minimiser without knobs, and its steps, plain and accelerated."""

from .oracle.minimize import *  # noqa: F403
from .oracle.mirror_descent import *  # noqa: F403
