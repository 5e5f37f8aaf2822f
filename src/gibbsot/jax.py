"""The transport cost as a differentiable function for JAX (the extra ``jax``)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

try:
    import jax
    import jax.numpy as jnp
    from jax.experimental import io_callback
except ImportError:
    raise ImportError("gibbsot.jax needs JAX: pip install 'gibbsot[jax]'") from None

from .core import native, validation
from .costs import Cost, as_cost
from .oracle.gradients import Weights, centred, cloud_gradients, weight_gradients
from .oracle.oracle import Oracle
from .solvers.kl import divergence_weights, marginals_of
from .solvers.relaxed import Penalty, check_normalize, constant, penalties

__all__ = ["wasserstein"]

_SUM_TOLERANCE = 1e-3  # how far sums of weights may be apart; more in half precision, by its rounding


class _Options(NamedTuple):
    """What is constant in a compiled function; a cost of None stands for points, or for an oracle."""

    cost: Cost | None
    oracle: Oracle | None
    penalty: Any  # a number, or a pair of numbers or tuples
    kl: tuple[float, float] | None
    metric: str
    normalize: bool
    threads: int
    tolerance: float


def wasserstein(
    p: Any,
    q: Any,
    cost: Any,
    *,
    penalty: Penalty | None = None,
    kl: float | tuple[float, float] | None = None,
    normalize: bool = False,
    metric: str = "sqeuclidean",
    n_jobs: int | None = None,
) -> jax.Array:
    r"""Return the exact transport cost W(p, q) of every pair of measures, differentiable in weights and points.

    .. math:: W(p, q) = \min_{Z \ge 0} \langle Z, M \rangle, \quad Z 1 = p, \; Z^T 1 = q

    The gradients are optimal potentials f for p and g for q, each centred so that its entries sum to zero, and
    ``sum_j Z_ij grad M(x_i, y_j)`` for a point x_i, with an optimal plan Z. Second derivatives raise.

    The solver runs on the host through ``jax.pure_callback``, in double precision. ``jit``, ``grad`` and ``vmap`` work.

    Parameters
    ----------
    p, q : arrays of shape (..., m1) and (..., m2), or None
        Weights: one q for many p, or as many leading dimensions of both, which are broadcast. Sums agree to 1e-3, or to
        four units in the last place of a half precision. None for uniform weights of mass one (with points).
    cost : Cost, NumPy array of shape (m1, m2), pair of arrays (x, y), or Oracle
        The cost, which is a constant; or the points x and y of clouds, of shape (..., m1, d) and (..., m2, d); or a
        `gibbsot.Oracle`, which keeps what it has found of each pair, by its position, and chooses chains or exact duals
        by its rules. Where it has targets, q is None; the other options are those of the oracle.
    penalty : float or pair, optional
        Mass may be left over at this cost per unit, as in `solve`: a number, or a pair for p and q, each a number
        or an array with an entry for every point. Sums may differ, and gradients are not centred.
    kl : float or pair of float, optional
        Unbalanced transport, as in `solve`, to a certified gap of 1e-6. Gradients are not centred.
    normalize : bool
        Divide the weights by their sums first; the gradients are then those of the quotients.
    metric : {"sqeuclidean", "euclidean"}
        The distance between points x and y.
    n_jobs : int, optional
        Threads over the pairs: None for one, -1 for all cores.

    Returns
    -------
    array of shape (...)
        In the type of the input, and float32 for half precisions.

    Raises
    ------
    ValueError, TypeError
        If shapes and options are inconsistent. Weights that are not valid raise the error that JAX makes of an
        exception in a callback, which has the same message.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from gibbsot import GridCost
    >>> from gibbsot.jax import wasserstein
    >>> cost, q = GridCost(3, spacing=1.0), jnp.array([0.0, 0.0, 1.0])
    >>> value, gradient = jax.jit(jax.value_and_grad(lambda p: wasserstein(p, q, cost)))(jnp.array([1.0, 0.0, 0.0]))
    >>> float(value), [round(x, 3) for x in gradient.tolist()]
    (4.0, [2.333, -0.667, -1.667])
    """
    check_normalize(normalize, penalty, kl)
    if isinstance(cost, Oracle):
        return _of_oracle(p, q, cost)
    points = cost if isinstance(cost, tuple) else ()
    if points:
        x, y = (_array(z, name) for z, name in zip(points, "xy", strict=True))
        if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1] or 0 in (*x.shape[-2:], *y.shape[-2:]):
            raise ValueError(f"x, y: expected shapes (..., m1, d) and (..., m2, d), got {x.shape} and {y.shape}")
        own, sizes = None, (x.shape[-2], y.shape[-2])
        p, q = (jnp.full(m, 1 / m, _dtype(z)) if w is None else w for w, m, z in zip((p, q), sizes, (x, y)))  # noqa: B905
    else:
        own = as_cost(cost)
        sizes = own.shape
        if p is None or q is None:
            raise TypeError("p, q: expected weights; None is for points (x, y) only")
    p, q = _array(p, "p"), _array(q, "q")
    for w, name, m in ((p, "p", sizes[0]), (q, "q", sizes[1])):
        if w.ndim == 0 or w.shape[-1] != m:
            raise ValueError(f"{name}: expected shape (..., {m}) to match the cost, got {w.shape}")
    tolerance = max(_SUM_TOLERANCE, *(4 * float(jnp.finfo(w.dtype).eps) for w in (p, q)))
    validation.choice(metric, "metric", ("sqeuclidean", "euclidean"))
    if penalty is not None:
        penalties(penalty, sizes)  # checks
    both = divergence_weights(kl, penalty)
    options = _Options(own, None, constant(penalty), both, metric, bool(normalize), native.threads(n_jobs), tolerance)
    arrays = [p, q, x, y] if points else [p, q]
    axes = [1, 1, 2, 2]
    sides = [p.shape[:-1], q.shape[:-1]]
    if points:
        pairs = zip((x, y), sides, "xy", "pq")  # noqa: B905
        sides = [validation.leading(z.shape[:-2], side, *names) for z, side, *names in pairs]
    shape = validation.leading(*sides, *("xy" if points else "pq"))
    arrays = [jnp.broadcast_to(z, (*shape, *z.shape[z.ndim - k :])) for z, k in zip(arrays, axes)]  # noqa: B905
    return _transport(tuple(arrays), options)


def _of_oracle(p: Any, q: Any, oracle: Oracle) -> jax.Array:
    """Return the values of an oracle, whose state the host keeps."""
    m1, n = oracle.cost.shape[0], len(oracle)
    if (q is None) != bool(n):
        raise TypeError("q: expected None for an oracle with targets, and weights for one without")
    arrays = [_array(x, name) for x, name in zip((p,) if n else (p, q), "pq", strict=False)]
    for x, name, m in zip(arrays, "pq", oracle.cost.shape, strict=False):
        if x.ndim == 0 or x.shape[-1] != m:
            raise ValueError(f"{name}: expected shape (..., {m}) to match the cost, got {x.shape}")
    shape = validation.leading(arrays[0].shape[:-1], arrays[-1].shape[:-1])
    if n and math.prod(shape) != n:
        raise ValueError(
            f"p: expected one row for each of the {n} targets, got shape {arrays[0].shape} of {m1} weights"
        )
    options = _Options(None, oracle, None, None, "sqeuclidean", oracle.normalize, 1, 0.0)
    return _transport(tuple(jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in arrays), options)


def _array(x: Any, name: str) -> jax.Array:
    """Return an array of floating-point numbers."""
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{name}: expected floating-point numbers, got {x.dtype}")
    return x


def _dtype(*arrays: jax.Array) -> Any:
    """Return the type of values: that of the arrays, and float32 for half precisions."""
    return jnp.promote_types(jnp.float32, jnp.result_type(*arrays))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _transport(arrays: tuple[jax.Array, ...], options: _Options) -> jax.Array:
    return _forward(arrays, options)[0]


def _forward(arrays: tuple[jax.Array, ...], options: _Options) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Return values, and their gradients for the backward pass."""
    shape = arrays[0].shape[:-1]
    kinds = [jax.ShapeDtypeStruct(shape, _dtype(*arrays)), *(jax.ShapeDtypeStruct(z.shape, z.dtype) for z in arrays)]
    host = partial(_solved, options, tuple(np.dtype(kind.dtype) for kind in kinds))
    if options.oracle is not None:  # a call changes its state: it runs once each time, in the order of the program
        value, *gradients = io_callback(host, kinds, *arrays, ordered=True)
    else:
        value, *gradients = jax.pure_callback(host, kinds, *arrays, vmap_method="expand_dims")
    return value, tuple(gradients)


def _backward(_: _Options, gradients: tuple[jax.Array, ...], of_value: jax.Array) -> Any:
    """Return the gradients of the arrays."""
    found = (of_value.reshape(of_value.shape + (1,) * (z.ndim - of_value.ndim)) * z for z in gradients)
    return (tuple(x.astype(z.dtype) for x, z in zip(found, gradients, strict=True)),)


_transport.defvjp(_forward, _backward)


def _solved(options: _Options, dtypes: tuple[np.dtype[Any], ...], *arrays: Any) -> tuple[NDArray[Any], ...]:
    """Return values and gradients of arrays with any leading dimensions, on the host."""
    axes = [1, 1, 2, 2][: len(arrays)]
    host = [np.asarray(z).astype(np.float64) for z in arrays]
    shape = np.broadcast_shapes(*(z.shape[: z.ndim - k] for z, k in zip(host, axes, strict=True)))
    ends = [z.shape[z.ndim - k :] for z, k in zip(host, axes, strict=True)]
    rows = [np.broadcast_to(z, (*shape, *end)).reshape(-1, *end) for z, end in zip(host, ends, strict=True)]
    if options.oracle is not None:
        given = options.oracle(*rows)
        results = [given.values, given.grad_p, given.grad_q][: 1 + len(rows)]
        return tuple(
            x.reshape((*shape, *end)).astype(dtype) for x, end, dtype in zip(results, [(), *ends], dtypes, strict=True)
        )
    if math.prod(shape) == 0:
        return tuple(np.zeros((*shape, *end), dtype) for end, dtype in zip([(), *ends], dtypes, strict=True))
    weights = [
        Weights(np.ascontiguousarray(w), name, options.normalize) for w, name in zip(rows[:2], "pq", strict=True)
    ]
    p, q = (w.rows for w in weights)
    found: list[Any]
    if options.cost is not None:
        of = marginals_of(options.cost, options.penalty, options.kl)
        found = list(weight_gradients(p, q, of, options.tolerance, options.threads)[:3])
    else:
        clouds = list(zip(*rows[2:], p, q, strict=True))
        each = cloud_gradients(clouds, options.metric, options.penalty, options.tolerance, options.threads, options.kl)
        found = [np.array([one.value for one in each]), *(np.stack([getattr(z, n) for z in each]) for n in "pqxy")]
    if options.penalty is None and options.kl is None:
        found[1:3] = centred(found[1]), centred(found[2])
    found[1:3] = (w.gradient(z) for w, z in zip(weights, found[1:3], strict=True))
    return tuple(
        np.asarray(z).reshape((*shape, *end)).astype(dtype)
        for z, end, dtype in zip(found, [(), *ends], dtypes, strict=True)
    )
