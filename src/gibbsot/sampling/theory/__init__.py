r"""The paper's appendix: the expected change of a chain, and how far it deviates from that.

A half step redraws one potential given the other, with standard exponential variates:

.. math::

    L_j = \max_i (U_i - \theta_i T / p_i - M_{ij}), \qquad U_i = \min_j (M_{ij} + L_j + \theta_j T / q_j)

Both are one formula: the new ``-L_j`` or ``U_i`` is the minimum over the points k of the other measure of ``x_k +
theta_k T / w_k``, where ``x = M_ij - U_i`` or ``x = M_ij + L_j``. Its mean is ``min x + phi T``.

Everywhere `U` and `L` are arrays of shape (n, m1) and (n, m2), a pair z in one gauge as a sweep of the sampler returns
it; `T` is a positive temperature or one for each of the n problems; `side` is the potential that is about to be
redrawn. Points without weight are ignored. Results are float64 for every precision of the cost, and the matrix of a
grid is never stored as a whole.
"""

from .concentration import Trace, concentration_probability, concentration_width, martingale, right_steps, trace
from .increments import C, D, Side, expected_increment, expected_L, expected_U, phi, psi, regret
from .temperatures import sampled_bound, sampled_temperature, temperature_bound

__all__ = [
    "C",
    "D",
    "Side",
    "Trace",
    "concentration_probability",
    "concentration_width",
    "expected_L",
    "expected_U",
    "expected_increment",
    "martingale",
    "phi",
    "psi",
    "regret",
    "right_steps",
    "sampled_bound",
    "sampled_temperature",
    "temperature_bound",
    "trace",
]
