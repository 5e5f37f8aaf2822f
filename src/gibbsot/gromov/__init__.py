r"""Gromov-Wasserstein: matching of measures in different spaces by the distances inside each of them.

.. math:: GW(p, q) = \min_Z \sum_{ijkl} (C_{ik} - D_{jl})^2 Z_{ij} Z_{kl}, \quad Z \ge 0, \; Z 1 = p, \; Z^T 1 = q

The problem is quadratic and not convex. From a start, Frank-Wolfe's method solves a *linear* transport problem in every
step, exactly, and goes on along the line to its plan as far as the objective decreases. It ends at a local optimum.

For clouds with squared distances, both centred, the objective is concave: the squared norm of ``A = X^T Z Y`` has a
minus sign. Every step is a full step, and the cost of the linear problem is ``-(4 |x|^2 |y|^2 + 16 x^T A y)`` up to
terms of x or y alone. With the singular value decomposition ``A = U S V^T`` this is twice the squared distance of the
points ``(|x|^2, 2 S^(1/2) U^T x)`` and ``(|y|^2, 2 S^(1/2) V^T y)``: clouds in the plane become exact problems in
space, and no matrix is made. The state is the small matrix A alone, which also is a start.
"""

from .wasserstein import GromovResult, gromov_wasserstein

__all__ = ["GromovResult", "gromov_wasserstein"]
