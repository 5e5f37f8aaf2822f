"""The functions of other libraries on the exact engine, with their arguments and results.

`gibbsot.compat.pot`, `gibbsot.compat.scipy`, `gibbsot.compat.gudhi` and `gibbsot.compat.torchcfm` have the functions of
these libraries. Those of POT are here too.
"""

from .pot import Result, emd, emd2, lbfgsb_unbalanced, mm_unbalanced, solve, solve_sample

__all__ = ["Result", "emd", "emd2", "lbfgsb_unbalanced", "mm_unbalanced", "solve", "solve_sample"]
