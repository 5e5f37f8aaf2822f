"""POT's exact solvers on the exact engine: to import instead of from ``ot``, or to put into POT itself.

`emd`, `emd2`, `solve`, `solve_sample`, `mm_unbalanced` and `lbfgsb_unbalanced` have POT's arguments and results.
`install` lets POT use the engine, so that programs which call POT need no change.
"""

from .functions import Result, emd, emd2, lbfgsb_unbalanced, mm_unbalanced, solve, solve_sample
from .installation import install, installed, uninstall

__all__ = [
    "Result",
    "emd",
    "emd2",
    "install",
    "installed",
    "lbfgsb_unbalanced",
    "mm_unbalanced",
    "solve",
    "solve_sample",
    "uninstall",
]
