"""Expected changes of the potentials and of V(z) in a half step, and the constants C and D of the paper's bounds.

The helpers below the public functions evaluate a half step of either side, in blocks that fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import validation
from ...costs.problems import Problem

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Side = Literal["L", "U"]

ENTRIES = 2_000_000  # of the cost's matrix that are stored at once


def phi(problem: Problem, U: ArrayLike, T: ArrayLike) -> Array:
    r"""Return the lemma's phi: how far L_j is below its bound on average, given U and in units of T.

    .. math::

        \phi_j = \sum_k \frac{(1 - \mu_k) \, \mu_1 \cdots \mu_{k-1}}{P_k}, \qquad
        \mu_k = \exp\left(P_k (z_{\sigma(k+1)} - z_{\sigma(k)}) / T\right), \quad
        P_k = p_{\sigma(1)} + \dots + p_{\sigma(k)}

    with ``z_i = U_i - M_ij`` sorted downwards and the last mu zero (the paper's subscripts are wrong in places). It
    falls from 1 / p of the points that attain the maximum (T near 0) to 1 (T large).

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1)
        The potential on the points of p.
    T : float or array of shape (n,)
        The temperature, positive.

    Returns
    -------
    array of shape (n, m2)

    Examples
    --------
    >>> from gibbsot.theory import phi
    >>> from gibbsot import Problem
    >>> pair = Problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> phi(pair, [[0.0, 0.0]], 1e-3), phi(pair, [[0.0, 0.0]], 1e3).round(3)
    (array([[2., 2.]]), array([[1., 1.]]))
    """
    return least_and_phi(view_of(problem, U, None, "L"), T)[1]


def psi(problem: Problem, L: ArrayLike, T: ArrayLike) -> Array:
    r"""Return the lemma's psi: how far U_i is above its bound on average, given L and in units of T.

    .. math::

        \psi_i = \sum_k \frac{(1 - \lambda_k) \, \lambda_1 \cdots \lambda_{k-1}}{Q_k}, \qquad
        \lambda_k = \exp\left(Q_k (y_{\sigma(k)} - y_{\sigma(k+1)}) / T\right), \quad
        Q_k = q_{\sigma(1)} + \dots + q_{\sigma(k)}

    with ``y_j = M_ij + L_j`` sorted upwards: the mirror image of `phi`. U is a minimum; the paper prints the
    distribution of a maximum.

    Parameters
    ----------
    problem : Problem
        The problems.
    L : array of shape (n, m2)
        The potential on the points of q.
    T : float or array of shape (n,)
        The temperature, positive.

    Returns
    -------
    array of shape (n, m1)

    Examples
    --------
    >>> from gibbsot.theory import psi
    >>> from gibbsot import Problem
    >>> pair = Problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> psi(pair, [[0.0, 0.0]], 1e-3).round(3)
    array([[4.   , 1.333]])
    """
    return least_and_phi(view_of(problem, None, L, "U"), T)[1]


def expected_L(problem: Problem, U: ArrayLike, T: ArrayLike) -> Array:  # noqa: N802
    r"""Return the mean of L after a half step from U.

    .. math:: E[L_j \mid U] = \max_i (U_i - M_{ij}) - \phi_j T

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1)
        The potential on the points of p.
    T : float or array of shape (n,)
        The temperature, positive.

    Returns
    -------
    array of shape (n, m2)

    Examples
    --------
    >>> from gibbsot.theory import expected_L
    >>> from gibbsot import Problem
    >>> expected_L(Problem([1.0], [1.0], [[3.0]]), [[0.0]], 0.5)
    array([[-3.5]])
    """
    least, excess = least_and_phi(view_of(problem, U, None, "L"), T)
    return -(least + excess * positive(T, len(problem))[:, None])


def expected_U(problem: Problem, L: ArrayLike, T: ArrayLike) -> Array:  # noqa: N802
    r"""Return the mean of U after a half step from L.

    .. math:: E[U_i \mid L] = \min_j (M_{ij} + L_j) + \psi_i T

    Parameters
    ----------
    problem : Problem
        The problems.
    L : array of shape (n, m2)
        The potential on the points of q.
    T : float or array of shape (n,)
        The temperature, positive.

    Returns
    -------
    array of shape (n, m1)

    Examples
    --------
    >>> from gibbsot.theory import expected_U
    >>> from gibbsot import Problem
    >>> expected_U(Problem([1.0], [1.0], [[3.0]]), [[0.0]], 0.5)
    array([[3.5]])
    """
    least, excess = least_and_phi(view_of(problem, None, L, "U"), T)
    return least + excess * positive(T, len(problem))[:, None]


def expected_increment(problem: Problem, U: ArrayLike, L: ArrayLike, T: ArrayLike, side: Side) -> Array:
    r"""Return O(z, T), the mean of what the next half step adds to V(z) = <p, U> - <q, L>.

    .. math:: \sum_j q_j \left(L_j - E[L'_j \mid U]\right) \quad\text{or}\quad \sum_i p_i (E[U'_i \mid L] - U_i)

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1)
        The potential on the points of p.
    L : array of shape (n, m2)
        The potential on the points of q.
    T : float or array of shape (n,)
        The temperature, positive.
    side : {"L", "U"}
        The potential that the half step redraws.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> from gibbsot.theory import expected_increment
    >>> from gibbsot import Problem
    >>> expected_increment(Problem([1.0], [1.0], [[3.0]]), [[4.0]], [[0.0]], 0.25, "L")
    array([-0.75])
    """
    view, temperature = view_of(problem, U, L, side), positive(T, len(problem))
    return total_of(view, blocks(view), lambda b: rise_of(view, b) + temperature[b.row] * phi_of(b, temperature))


def C(problem: Problem, U: ArrayLike, L: ArrayLike, T: ArrayLike, side: Side) -> Array:  # noqa: N802
    r"""Return C(z, T): a half step lowers the martingale r by C T at most.

    .. math:: C = \langle \phi, q \rangle \text{ for side L}, \qquad C = \langle \psi, p \rangle \text{ for side U}

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1)
        The potential on the points of p.
    L : array of shape (n, m2)
        The potential on the points of q.
    T : float or array of shape (n,)
        The temperature, positive.
    side : {"L", "U"}
        The potential that the half step redraws.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> from gibbsot.theory import C
    >>> from gibbsot import Problem
    >>> C(Problem([1.0], [1.0], [[3.0]]), [[4.0]], [[0.0]], 0.25, "L")
    array([1.])
    """
    view, temperature = view_of(problem, U, L, side), positive(T, len(problem))
    return total_of(view, blocks(view), lambda b: phi_of(b, temperature))


def D(problem: Problem, U: ArrayLike, L: ArrayLike, side: Side) -> Array:  # noqa: N802
    r"""Return D(z): a half step seldom raises the martingale r by much more than D.

    .. math::

        D = \sum_j q_j R(M_{\cdot j} - U; p) \text{ for side L}, \qquad
        D = \sum_i p_i R(M_{i \cdot} + L; q) \text{ for side U}

    (The paper prints a sum over i in the first.) It is infinite, and the right-hand bound void, if a pair of points
    with weight has an infinite cost.

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1)
        The potential on the points of p.
    L : array of shape (n, m2)
        The potential on the points of q.
    side : {"L", "U"}
        The potential that the half step redraws.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> from gibbsot.theory import D
    >>> from gibbsot import Problem
    >>> pair = Problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> D(pair, [[0.0, 0.5]], [[0.0, 0.0]], "L")
    array([0.625])
    """
    view, total = view_of(problem, U, L, side), np.zeros(len(problem))
    for row, target, x in lines(view, view.target > 0):
        np.add.at(total, row, view.target[row, target] * regret(x, view.source[row]))
    return total


def regret(x: ArrayLike, w: ArrayLike) -> Array:
    r"""Return the regret of x under weights that sum to one, along the last axis; a zero weight leaves its x out.

    .. math:: R(x; w) = \sum_k w_k x_k - \min_k x_k

    Parameters
    ----------
    x : array of shape (..., m)
        Losses of the points.
    w : array of shape (..., m)
        Weights that sum to one along the last axis.

    Returns
    -------
    array of shape (...)

    Examples
    --------
    >>> from gibbsot.theory import regret
    >>> float(regret([3.0, 1.0, -9.0], [0.5, 0.5, 0.0]))
    1.0
    """
    weight = np.asarray(w, np.float64)
    values = np.where(weight > 0, np.asarray(x, np.float64), np.inf)
    # the sum of what lies above the minimum: the same for weights that sum to one, and never negative by rounding
    excess = np.where(weight > 0, values, 0) - np.where(weight > 0, values.min(axis=-1, keepdims=True), 0)
    return (weight * excess).sum(axis=-1)


class View(NamedTuple):
    """A half step of either side: ``old`` becomes the minimum over the sources of M + given + theta T / source."""

    source: Array
    target: Array
    given: Array
    old: Array
    at: Callable[[Index, Index], NDArray[np.floating]]  # the cost of a target and a source


class Block(NamedTuple):
    """Sorted x of some targets, one a line: the problem and the target, min x, the gaps, the weight up to each."""

    row: Index
    target: Index
    least: Array
    gaps: Array
    mass: Array


def view_of(problem: Problem, U: ArrayLike | None, L: ArrayLike | None, side: Side) -> View:
    """Return the half step that redraws one side."""
    if side not in ("L", "U"):
        raise ValueError(f"side: expected 'L' or 'U', got {side!r}")
    u, low = (
        np.where(w > 0, np.zeros(1) if x is None else np.asarray(x, np.float64), 0)
        for w, x in ((problem.p, U), (problem.q, L))
    )
    at = problem.cost.at
    if side == "L":
        return View(problem.p, problem.q, -u, -low, lambda target, source: at(source, target))
    return View(problem.q, problem.p, low, u, at)


def lines(view: View, wanted: NDArray[np.bool_]) -> Iterator[tuple[Index, Index, Array]]:
    """Yield problems, targets and their x, as many at once as may be stored."""
    rows, targets = np.nonzero(wanted)
    sources = np.arange(view.source.shape[1])
    length = max(1, ENTRIES // len(sources))
    for s in range(0, len(rows), length):
        row, target = rows[s : s + length], targets[s : s + length]
        yield row, target, np.where(view.source[row] > 0, view.at(target[:, None], sources) + view.given[row], np.inf)


def blocks(view: View, masked: bool = False) -> Iterator[Block]:
    """Yield sorted blocks of the targets with weight, or of all of them if ``masked``."""
    for row, target, x in lines(view, (view.target > 0) | masked):
        order = x.argsort(axis=1)
        x = np.take_along_axis(x, order, axis=1)
        mass = np.take_along_axis(view.source[row], order, axis=1).cumsum(axis=1)
        mass[np.isinf(x[:, 0])] = 1  # a target without weight that nothing reaches
        with np.errstate(invalid="ignore"):
            gaps = np.diff(x, axis=1, append=np.inf)
        gaps[np.isnan(gaps)] = np.inf  # between two that are infinite
        yield Block(row, target, x[:, 0], gaps, mass)


def phi_of(block: Block, T: Array) -> Array:
    """Return phi of each target of a block."""
    with np.errstate(over="ignore"):
        drop = block.mass * block.gaps / T[block.row, None]  # -log mu
        terms = -np.expm1(-drop) / block.mass
        terms[:, 1:] *= np.exp(-drop.cumsum(axis=1))[:, :-1]
    return terms.sum(axis=1)


def rise_of(view: View, block: Block) -> Array:
    """Return how much each target of a block rises at temperature zero."""
    return block.least - view.old[block.row, block.target]


def total_of(view: View, blocks: Iterable[Block], line: Callable[[Block], Array]) -> Array:
    """Return the weighted sum of a function of blocks, for each problem."""
    total = np.zeros(len(view.target))
    for b in blocks:
        np.add.at(total, b.row, view.target[b.row, b.target] * line(b))
    return total


def least_and_phi(view: View, T: ArrayLike) -> tuple[Array, Array]:
    """Return min x and phi of all targets, shape (n, m)."""
    least, excess = np.empty_like(view.target), np.empty_like(view.target)
    for b in blocks(view, masked=True):
        least[b.row, b.target] = b.least
        excess[b.row, b.target] = phi_of(b, positive(T, len(least)))
    return least, excess


def positive(T: ArrayLike, n: int) -> Array:
    """Return a temperature for each of n problems."""
    return np.broadcast_to(validation.temperatures(T, "T"), (n,))
