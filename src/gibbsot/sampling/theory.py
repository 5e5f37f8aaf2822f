r"""The paper's appendix: what the chain is expected to do next, and how far it strays from that.

A half step redraws one potential given the other, with standard exponential variates:

.. math::

    L_j = \max_i (U_i - \theta_i T / p_i - M_{ij}), \qquad U_i = \min_j (M_{ij} + L_j + \theta_j T / q_j)

Both are one formula: the new ``-L_j`` or ``U_i`` is the minimum over the points k of the other measure of ``x_k +
theta_k T / w_k``, where ``x = M_ij - U_i`` or ``x = M_ij + L_j``. Its mean is ``min x + phi T``.

Everywhere `U` and `L` are arrays of shape (n, m1) and (n, m2), a pair z in one gauge as a sweep of the sampler returns
it; `T` is a positive temperature or one for each of the n problems; `side` says which potential is about to be redrawn.
Points without weight take no part. All is float64 whatever the cost's precision, and a grid's matrix is never held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.problems import Problem, dual_value, inner
from . import sampler

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Side = Literal["L", "U"]

_ENTRIES = 2_000_000  # of the cost's matrix that are held at once
_SECANTS = 12


def phi(problem: Problem, U: ArrayLike, T: ArrayLike) -> Array:
    r"""Return the lemma's phi, shape (n, m2): how far below its bound L_j lies on average given U, in units of T.

    .. math::

        \phi_j = \sum_k \frac{(1 - \mu_k) \, \mu_1 \cdots \mu_{k-1}}{P_k}, \qquad
        \mu_k = \exp\left(P_k (z_{\sigma(k+1)} - z_{\sigma(k)}) / T\right), \quad
        P_k = p_{\sigma(1)} + \dots + p_{\sigma(k)}

    with ``z_i = U_i - M_ij`` sorted downwards and the last mu zero (the paper's subscripts are wrong in places). It
    falls from 1 / p of the points that attain the maximum (T near 0) to 1 (T large).

    Examples
    --------
    >>> from gibbsot import problem
    >>> pair = problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> phi(pair, [[0.0, 0.0]], 1e-3), phi(pair, [[0.0, 0.0]], 1e3).round(3)
    (array([[2., 2.]]), array([[1., 1.]]))
    """
    return _least_and_phi(_view(problem, U, None, "L"), T)[1]


def psi(problem: Problem, L: ArrayLike, T: ArrayLike) -> Array:
    r"""Return the lemma's psi, shape (n, m1): how far above its bound U_i lies on average given L, in units of T.

    .. math::

        \psi_i = \sum_k \frac{(1 - \lambda_k) \, \lambda_1 \cdots \lambda_{k-1}}{Q_k}, \qquad
        \lambda_k = \exp\left(Q_k (y_{\sigma(k)} - y_{\sigma(k+1)}) / T\right), \quad
        Q_k = q_{\sigma(1)} + \dots + q_{\sigma(k)}

    with ``y_j = M_ij + L_j`` sorted upwards: the mirror image of `phi`. U is a minimum; the paper prints the
    distribution of a maximum.

    Examples
    --------
    >>> from gibbsot import problem
    >>> pair = problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> psi(pair, [[0.0, 0.0]], 1e-3).round(3)
    array([[4.   , 1.333]])
    """
    return _least_and_phi(_view(problem, None, L, "U"), T)[1]


def expected_L(problem: Problem, U: ArrayLike, T: ArrayLike) -> Array:  # noqa: N802
    r"""Return the mean of L after a half step from U, shape (n, m2).

    .. math:: E[L_j \mid U] = \max_i (U_i - M_{ij}) - \phi_j T

    Examples
    --------
    >>> from gibbsot import problem
    >>> expected_L(problem([1.0], [1.0], [[3.0]]), [[0.0]], 0.5)
    array([[-3.5]])
    """
    least, excess = _least_and_phi(_view(problem, U, None, "L"), T)
    return -(least + excess * _positive(T, len(problem))[:, None])


def expected_U(problem: Problem, L: ArrayLike, T: ArrayLike) -> Array:  # noqa: N802
    r"""Return the mean of U after a half step from L, shape (n, m1).

    .. math:: E[U_i \mid L] = \min_j (M_{ij} + L_j) + \psi_i T

    Examples
    --------
    >>> from gibbsot import problem
    >>> expected_U(problem([1.0], [1.0], [[3.0]]), [[0.0]], 0.5)
    array([[3.5]])
    """
    least, excess = _least_and_phi(_view(problem, None, L, "U"), T)
    return least + excess * _positive(T, len(problem))[:, None]


def expected_increment(problem: Problem, U: ArrayLike, L: ArrayLike, T: ArrayLike, side: Side) -> Array:
    r"""Return O(z, T), shape (n,): the mean of what the next half step adds to V(z) = <p, U> - <q, L>.

    .. math:: \sum_j q_j \left(L_j - E[L'_j \mid U]\right) \quad\text{or}\quad \sum_i p_i (E[U'_i \mid L] - U_i)

    Examples
    --------
    >>> from gibbsot import problem
    >>> expected_increment(problem([1.0], [1.0], [[3.0]]), [[4.0]], [[0.0]], 0.25, "L")
    array([-0.75])
    """
    view, temperature = _view(problem, U, L, side), _positive(T, len(problem))
    return _total(view, _blocks(view), lambda b: _rise(view, b) + temperature[b.row] * _phi(b, temperature))


def temperature_bound(problem: Problem, U: ArrayLike, L: ArrayLike, side: Side = "L") -> Array:
    r"""Return calT(z), shape (n,): the temperature at which the next half step leaves V(z) unchanged on average.

    .. math:: O(z, \mathcal T) = A + \mathcal T \, C(z, \mathcal T) = 0, \qquad A = O(z, 0)

    Below calT(z) the value falls on average, above it rises. Where A >= 0 it rises at every temperature: the chain is
    below its equilibrium, there is no positive root, and 0 is returned. The paper's equation is implicit, as C depends
    on T. T C(z, T) is the mean of minima of functions linear in T, so it is concave and its slope falls from C(z, 0)
    to 1: the root lies between -A / C(z, 0) and -A. It is sought as T / -A, so that a problem whose costs are
    multiplied by a power of 2 has its calT multiplied by that, bit for bit.

    Examples
    --------
    >>> from gibbsot import problem
    >>> one = problem([1.0], [1.0], [[3.0]])
    >>> temperature_bound(one, [[4.0]], [[0.0]]), temperature_bound(one, [[2.0]], [[0.0]])
    (array([1.]), array([0.]))
    """
    U, L = np.asarray(U), np.asarray(L)
    length = max(1, _ENTRIES // (problem.cost.shape[0] * problem.cost.shape[1]))
    parts = [slice(b, b + length) for b in range(0, len(problem), length)]
    return np.concatenate([_root(_view(problem[rows], U[rows], L[rows], side)) for rows in parts])


def sampled_bound(
    problem: Problem,
    L: ArrayLike,
    h: NDArray[np.floating],
    value: ArrayLike,
    T: ArrayLike,
    n_jobs: int | None = None,
) -> Array:
    r"""Return what one sweep tells of calT(z), shape (n,), for the price of another.

    .. math:: -A \, T / (V(z') - V(z) - A)

    The sweep at T takes z = (U, L), with the U that h gives, to z' = (U, L'). It raises V by A + T C(z, T) on average,
    so this is the paper's -A / C(z, T) with C sampled; 0 where A >= 0.

    Parameters
    ----------
    problem : Problem
    L, h : arrays of shape (n, m2)
        L of the sweep before, and the h that it left.
    value : array of shape (n,)
        V(z').
    T : float or array of shape (n,)
    n_jobs : int, optional

    Examples
    --------
    >>> from gibbsot import problem
    >>> pair = problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> state, before = sampler.run(sampler.init(pair), pair, np.full(20, 0.1))
    >>> _, after = sampler.run(state, pair, np.array([0.1]))
    >>> bool(0 < sampled_bound(pair, before.L, state.h, after.value, 0.1)[0] < 1)
    True
    """
    U = problem.cost.row_min(h, n_jobs)
    closed = problem.cost.col_max(np.where(problem.p > 0, U, -np.inf), n_jobs)
    top = inner(problem.q, closed)
    fall = top - inner(problem.q, np.asarray(L))
    excess = np.asarray(value) - inner(problem.p, U) + top
    with np.errstate(over="ignore"):  # a point that one alone can reach has no excess
        return _positive(T, len(problem)) * (np.maximum(fall, 0) / np.maximum(excess, np.finfo(np.float64).tiny))


def sampled_temperature(state: sampler.State, problem: Problem, value: ArrayLike, n_jobs: int | None = None) -> Array:
    r"""Return the temperature, shape (n,), at which one sweep brings V(z) to a value: calT of a pair raised to it.

    With the noise of that sweep given, V(z) after it is a concave and rising function of T, so there is one root; it is
    0 where V(z) is above the value at T = 0 already. For the optimal potentials of a problem and a value of (1 + e) W,
    this is about the temperature at which a chain that has mixed has that value.

    Parameters
    ----------
    state : State
    problem : Problem
    value : array of shape (n,)
    n_jobs : int, optional

    Examples
    --------
    >>> from gibbsot import problem
    >>> pair = problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> T = sampled_temperature(sampler.init(pair), pair, [0.3])
    >>> sampler.run(sampler.init(pair), pair, T[:, None])[1].value.round(6)
    array([0.3])
    """
    U = problem.cost.row_min(state.h, n_jobs)
    closed = problem.cost.col_max(np.where(problem.p > 0, U, -np.inf), n_jobs)
    rise = np.asarray(value, np.float64) - dual_value(problem, U, closed)
    scale, limits = np.where(rise > 0, rise, 1.0), np.finfo(problem.cost.dtype)

    def excess(t: Array) -> Array:
        T = np.clip(scale * np.exp(t), limits.tiny, limits.max)
        _, info = sampler.run(state, problem, T[:, None], n_jobs=n_jobs)
        gain = info.value - dual_value(problem, U, closed)
        return np.log(np.maximum(gain, np.finfo(np.float64).tiny) / scale)

    # the secant in t = log(T / rise), where the slope lies between 0 and 1, and the root below 0 but for noise
    before = np.full(len(problem), -np.log(sum(problem.cost.shape)))
    at_before = excess(before)
    t = before - at_before
    for _ in range(_SECANTS):
        at_t = excess(t)
        step = t - before
        slope = np.divide(at_t - at_before, step, out=np.ones_like(t), where=np.isfinite(step) & (np.abs(step) > 1e-12))
        before, at_before, t = t, at_t, np.clip(t - at_t / np.clip(slope, 0.1, 1.0), -700, 5)
    return np.where(rise > 0, scale * np.exp(t), 0.0)


def regret(x: ArrayLike, w: ArrayLike) -> Array:
    r"""Return the regret of x under weights that sum to one, along the last axis; a zero weight leaves its x out.

    .. math:: R(x; w) = \sum_k w_k x_k - \min_k x_k

    Examples
    --------
    >>> float(regret([3.0, 1.0, -9.0], [0.5, 0.5, 0.0]))
    1.0
    """
    weight = np.asarray(w, np.float64)
    values = np.where(weight > 0, np.asarray(x, np.float64), np.inf)
    # the sum of what lies above the minimum: the same for weights that sum to one, and never negative by rounding
    excess = np.where(weight > 0, values, 0) - np.where(weight > 0, values.min(axis=-1, keepdims=True), 0)
    return (weight * excess).sum(axis=-1)


def C(problem: Problem, U: ArrayLike, L: ArrayLike, T: ArrayLike, side: Side) -> Array:  # noqa: N802
    r"""Return C(z, T), shape (n,): a half step lowers the martingale r by C T at most.

    .. math:: C = \langle \phi, q \rangle \text{ for side L}, \qquad C = \langle \psi, p \rangle \text{ for side U}

    Examples
    --------
    >>> from gibbsot import problem
    >>> C(problem([1.0], [1.0], [[3.0]]), [[4.0]], [[0.0]], 0.25, "L")
    array([1.])
    """
    view, temperature = _view(problem, U, L, side), _positive(T, len(problem))
    return _total(view, _blocks(view), lambda b: _phi(b, temperature))


def D(problem: Problem, U: ArrayLike, L: ArrayLike, side: Side) -> Array:  # noqa: N802
    r"""Return D(z), shape (n,): a half step seldom raises the martingale r by much more than D.

    .. math::

        D = \sum_j q_j R(M_{\cdot j} - U; p) \text{ for side L}, \qquad
        D = \sum_i p_i R(M_{i \cdot} + L; q) \text{ for side U}

    (The paper prints a sum over i in the first.) It is infinite, and the right-hand bound says nothing, if a pair of
    points with weight has an infinite cost.

    Examples
    --------
    >>> from gibbsot import problem
    >>> pair = problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> D(pair, [[0.0, 0.5]], [[0.0, 0.0]], "L")
    array([0.625])
    """
    view, total = _view(problem, U, L, side), np.zeros(len(problem))
    for row, target, x in _lines(view, view.target > 0):
        np.add.at(total, row, view.target[row, target] * regret(x, view.source[row]))
    return total


def martingale(values: ArrayLike, increments: ArrayLike) -> Array:
    r"""Return the martingale of a run along the last axis, which is one shorter in the increments.

    .. math:: r^n = V(z^n) - \sum_{s < n} O(z^s, T^s)

    Examples
    --------
    >>> martingale([1.0, 0.5, 0.75], [-0.25, 0.25])
    array([1.  , 0.75, 0.75])
    """
    r = np.array(values, np.float64)
    r[..., 1:] -= np.cumsum(increments, axis=-1)
    return r


def right_steps(D: ArrayLike, T: ArrayLike, m: int, eps: float) -> Array:
    r"""Return what the martingale rises by at most in each half step, all but with probability eps.

    .. math:: a_n = \log(2 N S m / \varepsilon) \, T^n + D^n, \qquad n = 1, \ldots, 2N - 1

    Parameters
    ----------
    D, T : arrays of shape (2N - 1,), or (S, 2N - 1) for S problems whose mean is looked at
    m : int
        The number of points of the larger measure.
    eps : float
        Between 0 and 1, for all problems together.

    Examples
    --------
    >>> right_steps([0.5], 0.1, m=10, eps=0.05).round(3)
    array([1.099])
    """
    if not 0 < eps < 1:
        raise ValueError(f"eps: expected a number between 0 and 1, got {eps!r}")
    steps = np.asarray(D, np.float64)
    problems = len(np.atleast_2d(steps))
    return np.log((steps.shape[-1] + 1) * problems * m / eps) * np.asarray(T, np.float64) + steps


def concentration_probability(K: float, a: ArrayLike, eps: float = 0.0) -> float:
    r"""Return a bound of the probability that the martingale strays by more than K to one side.

    .. math::

        \Pr(r^{2N} < r^1 - K) \le e^{-K^2 / 2 \Sigma} \text{ if } a_n \ge C^n T^n, \qquad
        \Pr(r^{2N} > r^1 + K) \le e^{-K^2 / 2 \Sigma} + \varepsilon
        \text{ if } a_n \ge \log(2 N m / \varepsilon) T^n + D^n

    with Sigma the sum of the 2N - 1 squares of a_n. The paper's gamma only scales: its gamma K and gamma a_n are K and
    a_n here. The a_n are fixed beforehand. With those of the run itself, the bound is of the probability that r strays
    *and* the run's Sigma is at most the given one.

    For S problems with independent noise the half steps of R = sum r_k / S can be taken one problem at a time. It is
    then a martingale with steps a_kn / S, so Sigma is the sum of all squares divided by S^2.

    The paper takes the left-hand bound from Azuma's inequality, which needs steps bounded on both sides. These are
    bounded below only, and for martingales of that kind the bound is false in general. It holds here, as the excess
    of a minimum of shifted exponentials has a hazard rate that rises, which makes it smaller in the convex order than
    an exponential variate of its mean. So a half step's weighted sum Y of them, however dependent, is smaller than one
    of mean C T, and ``E exp(-s (Y - C T)) <= exp(s C T) / (1 + s C T) <= exp((s C T)^2 / 2)`` for s > 0.

    Parameters
    ----------
    K : float
    a : array of shape (2N - 1,), or (S, 2N - 1) for S problems whose mean is looked at
        C T for the left-hand bound, `right_steps` for the right-hand one.
    eps : float
        Zero for the left-hand bound, that of `right_steps` for the right-hand one.

    Examples
    --------
    >>> round(concentration_probability(2.0, [0.5, 0.5, 0.5, 0.5]), 4)
    0.1353
    >>> round(concentration_probability(1.0, [[0.5, 0.5, 0.5, 0.5]] * 4), 4)
    0.1353
    """
    if not K >= 0:
        raise ValueError(f"K: expected a number >= 0, got {K!r}")
    squares = _squares(a)
    return float(min(1.0, np.exp(-(K**2) / (2 * squares)) + eps)) if squares > 0 else float(eps if K else 1.0)


def concentration_width(probability: float, a: ArrayLike, eps: float = 0.0) -> float:
    r"""Return the K of which `concentration_probability` is the given one; infinite if that is not above eps.

    .. math:: K = \sqrt{2 \Sigma \log(1 / (\Pr - \varepsilon))}

    Examples
    --------
    >>> round(concentration_width(0.1353, [0.5, 0.5, 0.5, 0.5]), 3)
    2.0
    """
    if not 0 < probability <= 1:
        raise ValueError(f"probability: expected a number above 0 and up to 1, got {probability!r}")
    return float(np.sqrt(-2 * _squares(a) * np.log(probability - eps))) if probability > eps else float("inf")


class Trace(NamedTuple):
    """What the appendix says of a run of N sweeps, half step by half step.

    The pair (U, L) of sweep t is z^(2t-1), and z^2t has the U that its h gives instead: every other value is the
    sampler's history. Half step n, in column n - 1, leads from z^n to z^(n+1) and redraws U if n is odd, L if even.

    Attributes
    ----------
    value, r : arrays of shape (n, 2N)
        V(z) and the martingale.
    T, increment, bound, C, D : arrays of shape (n, 2N - 1)
        The temperature of each half step, and O(z, T), calT(z), C(z, T) and D(z) before it.
    """

    value: Array
    r: Array
    T: Array
    increment: Array
    bound: Array
    C: Array
    D: Array


def trace(state: sampler.State, problem: Problem, temperatures: ArrayLike) -> tuple[sampler.State, Trace]:
    """Do what as many calls of `sampler.step` do, and look at every half step, in O(m1 m2 log) each.

    Parameters
    ----------
    state : State
    problem : Problem
    temperatures : array of shape (sweeps,) or (n, sweeps)

    Examples
    --------
    >>> from gibbsot import problem
    >>> pair = problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> _, seen = trace(sampler.init(pair), pair, [0.1, 0.1, 0.1])
    >>> seen.value.shape, seen.increment.shape
    ((1, 6), (1, 5))
    """
    schedule = np.broadcast_to(np.asarray(temperatures, np.float64), (len(problem), np.shape(temperatures)[-1]))
    closing, opening = [], []  # the pairs before U is redrawn, and before L is
    for T in schedule.T:
        state, info = sampler.step(state, problem, T, sampler.draw(state, problem))
        closing.append((info.U, info.L))
        # the U of the next sweep before it is centred: in one gauge with this sweep's L
        opening.append((problem.cost.row_min(state.h), info.L))
    looks = (_look(problem, closing, schedule, "U"), _look(problem, opening, np.roll(schedule, -1, axis=1), "L"))
    # one after the other: column 2t - 2 from the first, 2t - 1 from the second
    value, *rest = (np.stack(pair, axis=2).reshape(len(problem), -1) for pair in zip(*looks, strict=True))
    T, increment, bound, c, d = (column[:, :-1] for column in rest)
    return state, Trace(value, martingale(value, increment), T, increment, bound, c, d)


def _look(
    problem: Problem,
    pairs: list[tuple[NDArray[np.floating], NDArray[np.floating]]],
    T: Array,
    side: Side,
) -> tuple[Array, ...]:
    """Return V(z), T, O(z, T), calT(z), C(z, T) and D(z) of the pairs of a run, each of shape (n, sweeps)."""
    U, L = (np.stack(x, axis=1).reshape(T.size, -1) for x in zip(*pairs, strict=True))
    p, q = (np.repeat(w, T.shape[1], axis=0) for w in (problem.p, problem.q))
    many = Problem(p, q, problem.cost)
    flat = (
        dual_value(many, U, L),
        T,
        expected_increment(many, U, L, T.ravel(), side),
        temperature_bound(many, U, L, side),
        C(many, U, L, T.ravel(), side),
        D(many, U, L, side),
    )
    return tuple(x.reshape(T.shape) for x in flat)


class _View(NamedTuple):
    """A half step of either side: ``old`` becomes the minimum over the sources of M + given + theta T / source."""

    source: Array
    target: Array
    given: Array
    old: Array
    at: Callable[[Index, Index], NDArray[np.floating]]  # the cost of a target and a source


class _Block(NamedTuple):
    """Sorted x of some targets, one a line: the problem and the target, min x, the gaps, the weight up to each."""

    row: Index
    target: Index
    least: Array
    gaps: Array
    mass: Array


def _view(problem: Problem, U: ArrayLike | None, L: ArrayLike | None, side: Side) -> _View:
    if side not in ("L", "U"):
        raise ValueError(f"side: expected 'L' or 'U', got {side!r}")
    u, low = (
        np.where(w > 0, np.zeros(1) if x is None else np.asarray(x, np.float64), 0)
        for w, x in ((problem.p, U), (problem.q, L))
    )
    at = problem.cost.at
    if side == "L":
        return _View(problem.p, problem.q, -u, -low, lambda target, source: at(source, target))
    return _View(problem.q, problem.p, low, u, at)


def _lines(view: _View, wanted: NDArray[np.bool_]) -> Iterator[tuple[Index, Index, Array]]:
    rows, targets = np.nonzero(wanted)
    sources = np.arange(view.source.shape[1])
    length = max(1, _ENTRIES // len(sources))
    for s in range(0, len(rows), length):
        row, target = rows[s : s + length], targets[s : s + length]
        yield row, target, np.where(view.source[row] > 0, view.at(target[:, None], sources) + view.given[row], np.inf)


def _blocks(view: _View, masked: bool = False) -> Iterator[_Block]:
    for row, target, x in _lines(view, (view.target > 0) | masked):
        order = x.argsort(axis=1)
        x = np.take_along_axis(x, order, axis=1)
        mass = np.take_along_axis(view.source[row], order, axis=1).cumsum(axis=1)
        mass[np.isinf(x[:, 0])] = 1  # a target without weight that nothing reaches
        with np.errstate(invalid="ignore"):
            gaps = np.diff(x, axis=1, append=np.inf)
        gaps[np.isnan(gaps)] = np.inf  # between two that are infinite
        yield _Block(row, target, x[:, 0], gaps, mass)


def _phi(block: _Block, T: Array) -> Array:
    with np.errstate(over="ignore"):
        drop = block.mass * block.gaps / T[block.row, None]  # -log mu
        terms = -np.expm1(-drop) / block.mass
        terms[:, 1:] *= np.exp(-drop.cumsum(axis=1))[:, :-1]
    return terms.sum(axis=1)


def _rise(view: _View, block: _Block) -> Array:
    return block.least - view.old[block.row, block.target]


def _total(view: _View, blocks: Iterable[_Block], line: Callable[[_Block], Array]) -> Array:
    total = np.zeros(len(view.target))
    for b in blocks:
        np.add.at(total, b.row, view.target[b.row, b.target] * line(b))
    return total


def _least_and_phi(view: _View, T: ArrayLike) -> tuple[Array, Array]:
    least, excess = np.empty_like(view.target), np.empty_like(view.target)
    for b in _blocks(view, masked=True):
        least[b.row, b.target] = b.least
        excess[b.row, b.target] = _phi(b, _positive(T, len(least)))
    return least, excess


def _root(view: _View) -> Array:
    # sorted once, unless a single problem is too large to be held
    kept = list(_blocks(view)) if view.target[0].size * view.source[0].size <= _ENTRIES else None

    def total(line: Callable[[_Block], Array]) -> Array:
        return _total(view, _blocks(view) if kept is None else kept, line)

    def excess(t: Array) -> Array:
        return t + np.log(total(lambda b: _phi(b, scale * np.exp(t))))

    gain = total(lambda b: _rise(view, b))
    scale = np.where(gain < 0, -gain, 1.0)
    # false position with Illinois' halving in t = log(T / -A), where the function is smooth with a slope from 0 to 1
    # C(z, 0): the weight up to the last of the points that attain the minimum
    low = -np.log(total(lambda b: 1 / b.mass[np.arange(len(b.row)), (b.gaps > 0).argmax(axis=1)]))
    t: Array = np.zeros(len(gain))
    high: Array = np.zeros(len(gain))
    before: NDArray[np.bool_] = np.zeros(len(gain), bool)
    at_low, at_high = excess(low), excess(high)
    for _ in range(100):
        rise = at_high - at_low
        last, t = t, np.where(rise > 0, high - at_high * (high - low) / np.where(rise > 0, rise, 1), (low + high) / 2)
        if (np.abs(t - last) <= 1e-13).all():
            break
        at_t = excess(t)
        above = at_t > 0
        halve = np.where(above == before, 0.5, 1.0)
        low, at_low = np.where(above, low, t), np.where(above, at_low * halve, at_t)
        high, at_high = np.where(above, t, high), np.where(above, at_t, at_high * halve)
        before = above
    return np.where(gain < 0, scale * np.exp(t), 0.0)


def _positive(T: ArrayLike, n: int) -> Array:
    temperature = np.broadcast_to(np.asarray(T, np.float64), (n,))
    if not (np.isfinite(temperature) & (temperature > 0)).all():
        raise ValueError(f"T: expected positive numbers, got {T!r}")
    return temperature


def _squares(a: ArrayLike) -> float:
    steps = np.atleast_2d(np.asarray(a, np.float64))
    return float((steps**2).sum()) / len(steps) ** 2
