"""Algorithm 1 of the paper: a Gibbs sampler on the dual of optimal transport.

The dual of ``W(p, q) = min_Z <Z, M>`` is ``max <p, g> - <q, h>`` over ``g_i - h_j <= M_ij``. At temperature T the
sampler draws (g, h) with density proportional to ``exp((<p, g> - <q, h>) / T)``: given h, each g_i is its bound
``U_i = min_j (M_ij + h_j)`` less an exponential variate of mean T / p_i, and the mirror image for h given g.

`step` is the specification, in a dozen lines of NumPy; `run` does many steps with the compiled kernels, from the same
noise and to the same result up to rounding. Everything here is a batch: arrays have one row for each problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import native, philox, validation
from ..core.backend import backend
from ..costs import Cost
from ..costs.problems import Problem, inner

__all__ = ["Info", "State", "draw", "init", "mixed", "run", "step"]

Array = NDArray[np.floating]

# Additions in one call of a kernel, about a fifth of a second: Python handles interrupts only between calls.
_CALL = 4_000_000_000
MIXING_SLOPE = 0.01  # of the mixing test: the rise of V(z) per sweep, in units of the temperature


@dataclass(frozen=True, eq=False)
class State:
    """The state of a batch of chains.

    Attributes
    ----------
    h : array of shape (n, m2)
        The sample of h; ``inf`` where q has no weight.
    sweep : array of int64, shape (n,)
        The number of sweeps done.
    key : int
        The run's key, below 2**64.
    ids : array of uint64, shape (n,)
        The problems' ids. Key, id and sweep determine the noise.
    """

    h: Array
    sweep: NDArray[np.int64]
    key: int
    ids: NDArray[np.uint64]

    def __getitem__(self, rows: slice) -> State:
        return State(self.h[rows], self.sweep[rows], self.key, self.ids[rows])


class Info(NamedTuple):
    """Bounds and values of a sweep, or of the last of several.

    Attributes
    ----------
    U, L, g : arrays of shape (n, m1), (n, m2) and (n, m1)
        The bounds of the conditional laws, U of the h before the sweep and L of the g drawn in it, and that g. U and -L
        are gradients of the value with respect to p and q. U is centred, ``<p, U> = 0``, unless the chain is pinned.
    value : array of shape (n,)
        The estimate ``V(z) = <p, U> - <q, L>`` of W(p, q).
    energy : array of shape (n,)
        ``V(g, h) = <p, g> - <q, h>``; it is below W, and V(z) - V(g, h) is T times a Gamma(m1 + m2) variate.
    history : array of shape (n, sweeps)
        V(z) of every sweep; NaN after a chain has stopped.
    """

    U: Array
    L: Array
    g: Array
    value: NDArray[np.float64]
    energy: NDArray[np.float64]
    history: NDArray[np.float64]


def init(problem: Problem, rng: int | np.random.Generator | None = None, ids: ArrayLike | None = None) -> State:
    """Return the initial state of chains: h is zero on the support of q.

    Parameters
    ----------
    problem : Problem
        The problems.
    rng : int or numpy.random.Generator, optional
        The key of the noise, 0 by default; a generator draws one.
    ids : array of int, shape (n,), optional
        The problems' ids, by default their indices in the batch. A problem's result depends on the key and on its id,
        not on the batch that it is in.

    Returns
    -------
    State

    Examples
    --------
    >>> from gibbsot import Problem
    >>> from gibbsot.sampler import init
    >>> init(Problem([0.5, 0.5], [0.25, 0.75, 0.0], [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0]])).h
    array([[ 0.,  0., inf]])
    """
    n = len(problem)
    h = np.where(problem.q > 0, 0.0, np.inf).astype(problem.cost.dtype)
    return State(h, np.zeros(n, np.int64), validation.noise_key(rng), validation.ids(ids, n))


def draw(state: State, problem: Problem) -> tuple[Array, Array]:
    """Return the standard exponential variates of the next sweep, for g and for h.

    Parameters
    ----------
    state : State
        The chains.
    problem : Problem
        The problems.

    Returns
    -------
    theta_g, theta_h : arrays of shape (n, m1) and (n, m2)

    Examples
    --------
    >>> from gibbsot import Problem
    >>> from gibbsot.sampler import draw, init
    >>> two = Problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> for theta in draw(init(two, rng=1), two):
    ...     print(theta.round(4))
    [[0.0475 0.7572]]
    [[4.1931 0.1143]]
    """
    keys = [(state.key, int(i), int(s)) for i, s in zip(state.ids, state.sweep, strict=True)]
    theta_g, theta_h = (
        np.stack([philox.exponentials(*key, side, size, problem.cost.dtype) for key in keys])
        for side, size in enumerate(problem.cost.shape)
    )
    return theta_g, theta_h


def step(
    state: State,
    problem: Problem,
    temperature: float | Array,
    noise: tuple[Array, Array],
    pinned: bool = False,
    temperature_h: float | Array | None = None,
) -> tuple[State, Info]:
    r"""Do one sweep of Algorithm 1 with the given noise.

    .. math::

        U_i = \min_j (M_{ij} + h_j), \quad g_i = U_i - \theta_i T / p_i, \qquad
        L_j = \max_i (g_i - M_{ij}), \quad h_j = L_j + \theta'_j T / q_j

    A constant that is added to both g and h is free and would drift: U is centred in every sweep. A point without
    weight is masked, ``g_i = -inf`` or ``h_j = inf``.

    Parameters
    ----------
    state : State
        The chains before the sweep.
    problem : Problem
        The problems.
    temperature : float or array of shape (n,)
        The temperature, positive.
    noise : pair of arrays of shape (n, m1) and (n, m2)
        Standard exponential variates, as `draw` returns.
    pinned : bool
        Keep g = 0 at the first point of p that has weight, the paper's Omega_0, instead of sampling it.
    temperature_h : float or array of shape (n,), optional
        The temperature of the half step of h, if it is not that of g: the paper has one for each half step.

    Returns
    -------
    state : State
        The chains after the sweep.
    info : Info
        Bounds and values of the sweep.

    Examples
    --------
    >>> from gibbsot import Problem
    >>> from gibbsot.sampler import draw, init, step
    >>> two = Problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> state = init(two)
    >>> state, info = step(state, two, 1e-3, draw(state, two))
    >>> bool((info.g[0][:, None] - state.h[0] <= two.cost.matrix()).all())
    True
    """
    _check_state(state, problem)
    cost = problem.cost
    T, T_h = (
        np.broadcast_to(validation.temperatures(x, name, cost.dtype).astype(cost.dtype), (len(problem),))[:, None]
        for x, name in (
            (temperature, "temperature"),
            (temperature if temperature_h is None else temperature_h, "temperature_h"),
        )
    )
    p, q = problem.p.astype(cost.dtype), problem.q.astype(cost.dtype)
    theta_g, theta_h = noise
    U = cost.row_min(state.h)
    if not pinned:
        U = U - inner(p, U)[:, None].astype(cost.dtype)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        g = np.where(p > 0, U - theta_g * (T / p), -np.inf).astype(cost.dtype)
        if pinned:
            g[np.arange(len(p)), (p > 0).argmax(axis=1)] = 0
        L = cost.col_max(g)
        h = np.where(q > 0, L + theta_h * (T_h / q), np.inf).astype(cost.dtype)
    value = inner(p, U) - inner(q, L)
    energy = inner(p, g) - inner(q, h)
    return replace(state, h=h, sweep=state.sweep + 1), Info(U, L, g, value, energy, value[:, None])


def run(
    state: State,
    problem: Problem,
    temperatures: NDArray[np.float64],
    *,
    tau: int = 0,
    stride: int = 1,
    pinned: bool = False,
    temperatures_h: NDArray[np.float64] | None = None,
    n_jobs: int | None = None,
    progress: Callable[[float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[State, Info]:
    """Do one sweep for each temperature.

    Up to rounding, the result is that of one call of `step` for each sweep, with the noise that `draw` returns.

    Parameters
    ----------
    state : State
        The chains before the first sweep.
    problem : Problem
        The problems.
    temperatures : array of shape (sweeps,) or (n, sweeps)
        Positive; for all problems, or for each its own.
    tau : int
        Stop a chain as soon as the mixing test with this lag holds (see `mixed`); 0 for no test.
    stride : int
        The number of sweeps from one test to the next. The paper tests every tau sweeps.
    pinned : bool
        See `step`.
    temperatures_h : array of the same shape, optional
        Those of the half steps of h, if they are not those of g: the paper's T of 2t - 1, where ``temperatures`` are
        those of 2t. Such chains run in NumPy. The mixing test takes the temperature of g.
    n_jobs : int, optional
        Threads over the problems; the result is bit-identical for every number.
    progress : callable, optional
        Called repeatedly with the fraction of the work that has been done since the last call.
    stop : callable, optional
        Called repeatedly, after some sweeps of every chain; as soon as it returns True the chains end.

    Returns
    -------
    state : State
        The chains after the last sweep.
    info : Info
        Bounds and values of each chain's last sweep, and the history of all.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import Problem
    >>> from gibbsot.sampler import init, run
    >>> two = Problem([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    >>> state, info = run(init(two), two, np.geomspace(0.1, 1e-4, 200))
    >>> info.value.round(3), state.sweep  # W is 0.25
    (array([0.25]), array([200]))
    """
    _check_state(state, problem)
    temperatures = np.atleast_2d(validation.temperatures(temperatures, "temperatures", problem.cost.dtype))
    n, sweeps = len(problem), temperatures.shape[-1]
    if temperatures.ndim != 2 or len(temperatures) not in (1, n) or sweeps == 0:
        raise ValueError(f"temperatures: expected shape (sweeps,) or ({n}, sweeps), got {temperatures.shape}")
    check_sweeps(state.sweep, sweeps)
    own = temperatures
    if temperatures_h is not None:
        own = np.atleast_2d(validation.temperatures(temperatures_h, "temperatures_h", problem.cost.dtype))
        if own.shape != temperatures.shape:
            raise ValueError(f"temperatures_h: expected the shape of temperatures, got {own.shape}")
    threads = native.threads(n_jobs)
    # a chain under the mixing test runs in one call, as the test needs earlier values
    length = sweeps if tau else max(1, min(sweeps, _CALL // problem.cost.work))
    width = chains_per_call(problem.cost, length, threads)
    states, infos = [], []
    for b in range(0, n, width):
        rows = slice(b, b + width)
        chains, history = state[rows], []
        for s in range(0, sweeps, length):
            part = rows if len(temperatures) > 1 else slice(None), slice(s, s + length)
            temps = temperatures[part]
            if temperatures_h is None:
                chains, info = _sweeps(chains, problem[rows], np.ascontiguousarray(temps), tau, stride, pinned, threads)
            else:
                chains, info = _steps(chains, problem[rows], temps, tau, stride, pinned, own[part])
            history.append(info.history)
            if progress is not None:
                progress(len(chains.h) * temps.shape[1] / (n * sweeps))
            if stop is not None and stop():
                break
        states.append(chains)
        if len(history) == 1 and history[0].shape[1] == sweeps:
            infos.append(info)
            continue
        done = np.concatenate(history, axis=1)
        missing = np.full((len(done), sweeps - done.shape[1]), np.nan)
        infos.append(info._replace(history=np.concatenate([done, missing], axis=1)))
    return _join(states, infos)


def mixed(history: NDArray[np.float64], temperature: NDArray[np.float64], tau: int) -> NDArray[np.bool_]:
    r"""Tell whether V(z) has (almost) stopped increasing: the paper's mixing test.

    .. math:: V(z^{2t}) - V(z^{2(t - \tau)}) < 0.01 \, \tau \, T

    The paper prints ``0.01 tau T V(z^2t)`` on the right, which depends on the unit of the cost: the left-hand side is a
    cost, the right-hand side the square of one. In units of the current value, where V = 1 and T is T / V, the printed
    test is the one above, which is scale-invariant. The paper tests every tau sweeps (``stride=tau`` of `run`): tests
    after every sweep hold sooner, by chance. V(z) here is that of the pair (U, L) at the end of a sweep.
    The kernels have a copy of this test, in ``native/sweep.hpp``.

    Parameters
    ----------
    history : array of shape (n, sweeps)
        V(z) of the sweeps so far, one row for each problem.
    temperature : array of shape (n,)
        The temperature of the last sweep.
    tau : int
        The lag in sweeps.

    Returns
    -------
    array of bool, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.sampler import mixed
    >>> mixed(np.array([[0.0, 1.0, 1.5, 1.9], [1.0, 1.0, 1.0, 1.0]]), np.array([0.1, 0.1]), tau=2)
    array([False,  True])
    """
    if history.shape[1] <= tau:
        return np.zeros(len(history), bool)
    return history[:, -1] - history[:, -1 - tau] < MIXING_SLOPE * tau * temperature


def check_sweeps(done: NDArray[np.int64], sweeps: int) -> None:
    """Raise ValueError if some more sweeps would repeat the noise of a chain."""
    if done.max() + sweeps >= 2**31:
        raise ValueError("state: a chain ends after 2**31 sweeps, when its noise would repeat; start a new one")


def chains_per_call(cost: Cost, sweeps: int, threads: int) -> int:
    """Return for how many chains a kernel may do some sweeps, so that interrupts are handled soon."""
    return max(1, _CALL // (cost.work * sweeps)) * threads


def _sweeps(
    state: State, problem: Problem, temperatures: NDArray[np.float64], tau: int, stride: int, pinned: bool, threads: int
) -> tuple[State, Info]:
    cost, n = problem.cost, len(problem)
    if not backend().has_chains(cost):
        return _steps(state, problem, temperatures, tau, stride, pinned)
    p, q = (np.ascontiguousarray(x, cost.dtype) for x in (problem.p, problem.q))
    h, sweep = state.h.astype(cost.dtype), state.sweep.astype(np.int64)  # copies, which the kernel writes to
    U, L, g = (np.empty((n, cost.shape[side]), cost.dtype) for side in (0, 1, 0))
    history, energy = np.full((n, temperatures.shape[1]), np.nan), np.empty(n)
    options = {
        "tau": tau,
        "stride": stride,
        "mixing_slope": MIXING_SLOPE,
        "pinned": pinned,
        "seed": state.key,
        "n_threads": threads,
    }
    written = {"h": h, "sweep": sweep, "U": U, "L": L, "g": g, "values": history, "energy": energy}
    backend().sweeps(cost, p=p, q=q, ids=state.ids, temperatures=temperatures, **options, **written)
    value = history[np.arange(n), sweep - state.sweep - 1]
    return replace(state, h=h, sweep=sweep), Info(U, L, g, value, energy, history)


def _steps(
    state: State,
    problem: Problem,
    temperatures: NDArray[np.float64],
    tau: int,
    stride: int,
    pinned: bool,
    temperatures_h: NDArray[np.float64] | None = None,
) -> tuple[State, Info]:
    states, infos = [], []
    both = np.stack([temperatures, temperatures if temperatures_h is None else temperatures_h], axis=-1)
    for b, row in enumerate(np.broadcast_to(both, (len(problem), *both.shape[1:]))):
        one, chain = problem[b : b + 1], state[b : b + 1]
        history = np.full((1, len(row)), np.nan)
        for s, (T, T_h) in enumerate(row):
            chain, info = step(chain, one, T, draw(chain, one), pinned, T_h)
            history[0, s] = info.value[0]
            if tau and (s + 1) % stride == 0 and mixed(history[:, : s + 1], np.array([T]), tau)[0]:
                break
        states.append(chain)
        infos.append(info._replace(history=history))
    return _join(states, infos)


def _join(states: list[State], infos: list[Info]) -> tuple[State, Info]:
    if len(states) == 1:
        return states[0], infos[0]
    h, sweep, ids = (np.concatenate([getattr(s, name) for s in states]) for name in ("h", "sweep", "ids"))
    return State(h, sweep, states[0].key, ids), Info._make(np.concatenate(field) for field in zip(*infos, strict=True))


def _check_state(state: State, problem: Problem) -> None:
    n = len(problem)
    if state.h.shape != problem.q.shape or state.sweep.shape != (n,) or state.ids.shape != (n,):
        raise ValueError(f"state: has h of shape {state.h.shape}; expected {problem.q.shape} to match the problem")
