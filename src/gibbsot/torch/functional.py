"""The transport cost as a differentiable function of tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..core import native, validation
from ..costs import Cost, as_cost
from ..oracle.gradients import centred, weight_gradients
from ..solvers.kl import divergence_weights, marginals_of
from ..solvers.relaxed import Penalty, check_normalize, constant, penalties_of_clouds
from ..solvers.solve import solve_batch
from . import _operators
from ._operators import computed, register

Array = NDArray[np.float64]

_METRICS = ("sqeuclidean", "euclidean")


def wasserstein(
    p: Tensor | None,
    q: Tensor | None,
    cost: Cost | ArrayLike | tuple[Tensor, Tensor],
    *,
    method: str = "exact",
    penalty: Penalty | None = None,
    kl: float | tuple[float, float] | None = None,
    normalize: bool = False,
    metric: str = "sqeuclidean",
    n_jobs: int | None = None,
) -> Tensor:
    r"""Return the transport cost W(p, q) of every pair of measures, differentiable in weights and points.

    .. math:: W(p, q) = \min_{Z \ge 0} \langle Z, M \rangle, \quad Z 1 = p, \; Z^T 1 = q

    The gradients are optimal potentials f for p and g for q, each centred so that its entries sum to zero, and
    ``sum_j Z_ij grad M(x_i, y_j)`` for a point x_i, with an optimal plan Z. Where W has several subgradients, this is
    one of them; where W = 0 and no cost is negative, the gradients of weights are zero.

    Parameters
    ----------
    p, q : tensors of shape (..., m1) and (..., m2), or None
        Weights: one q for many p, or as many leading dimensions of both, which are broadcast. On a grid the last
        dimensions may be those of the grid. Sums agree to 1e-3, or to four units in the last place of a half precision.
        None for uniform weights of mass one (with points).
    cost : Cost, array of shape (m1, m2), or pair of tensors (x, y)
        The cost; or the points x and y of clouds, of shape (..., m1, d) and (..., m2, d).
    method : {"exact", "gibbs"}
        "exact": the optimum. "gibbs": the estimate of the annealed sampler, as of `solve`, and its potentials.
    penalty : float or pair, optional
        Mass may be left over and costs this much per unit, as in `solve`: a number, or a pair for p and q. Each may be
        an array with one number for every point, but not with points. Sums may differ, and gradients are not
        centred: they tell what more mass costs.
    kl : float or pair of float, optional
        Unbalanced transport, as in `solve`, to a certified gap of 1e-6; with ``method="exact"``. Gradients of weights
        are ``rho (1 - exp(-f / rho))``, not centred.
    normalize : bool
        Divide the weights by their sums first; the gradients are then those of the quotients.
    metric : {"sqeuclidean", "euclidean"}
        The distance between points x and y.
    n_jobs : int, optional
        Threads over the pairs: None for one, -1 for all cores. Results do not depend on it.

    Returns
    -------
    tensor of shape (...)
        In the type of the input, and float32 for half precisions. Computed in double precision, on the CPU: tensors on
        another device are copied there in one piece, and the gradients back.

    Raises
    ------
    ValueError, TypeError
        If measures, cost and options are inconsistent.
    RuntimeError
        If the result is differentiated twice.

    Notes
    -----
    ``torch.func.grad`` and ``torch.func.vmap`` work. ``torch.compile`` takes it without a graph break if the cost is a
    `Cost` or a pair of points.

    Examples
    --------
    >>> import torch
    >>> from gibbsot import GridCost
    >>> from gibbsot.torch import wasserstein
    >>> p = torch.tensor([[1.0, 0, 0], [0, 1, 0]], requires_grad=True)
    >>> value = wasserstein(p, torch.tensor([0.0, 0, 1]), GridCost(3, spacing=1.0))
    >>> value
    tensor([4., 1.], grad_fn=<ViewBackward0>)
    >>> value.sum().backward()
    >>> p.grad[0]
    tensor([ 2.3333, -0.6667, -1.6667])
    >>> x = torch.tensor([[0.0], [1.0]], requires_grad=True)
    >>> wasserstein(None, None, (x, torch.tensor([[3.0]]))).backward()
    >>> x.grad.T
    tensor([[-3., -2.]])
    """
    validation.choice(method, "method", ("exact", "gibbs"))
    check_normalize(normalize, penalty, kl)
    if kl is not None and method != "exact":
        raise ValueError("kl: the sampler solves balanced and partial problems; expected method='exact' with it")
    both = divergence_weights(kl, penalty)
    if isinstance(cost, tuple):
        if method != "exact":
            raise ValueError("method: expected 'exact' with points, got 'gibbs'")
        x, y = cost
        return _of_points(p, q, x, y, penalty, both, normalize, metric, n_jobs)
    if getattr(cost, "requires_grad", False):
        raise TypeError("cost: gradients with respect to a matrix are not implemented; expected cost.detach()")
    if p is None or q is None:
        raise TypeError("p, q: expected tensors of weights; None is for points (x, y) only")
    own = cost if isinstance(cost, Cost) else as_cost(cost.cpu() if isinstance(cost, Tensor) else cost)
    handle = _handle(own, method, penalty, n_jobs, both)
    p, q, shape = rows(p, q, own.shape, (own.row_shape, own.col_shape))
    return _operators.transport(p, q, handle, normalize).reshape(shape)


def rows(
    p: Tensor, q: Tensor, sizes: tuple[int, int], grids: tuple[tuple[int, ...], tuple[int, ...]], logits: bool = False
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Return measures as rows, one for each pair, and the shape of their values; p may be logits."""
    checked(p, "p")
    if not q.is_floating_point():
        q = q.to(p.dtype)  # such as labels, one-hot
    p, q = _flattened(p, "p", sizes[0], grids[0]), _flattened(q, "q", sizes[1], grids[1])
    if logits:
        p = torch.softmax(p, dim=-1, dtype=computed(p.dtype))  # in half precision it would not sum to one
    shape = validation.leading(p.shape[:-1], q.shape[:-1])
    p, q = (x.expand(*shape, x.shape[-1]).reshape(-1, x.shape[-1]) for x in (p, q))
    return p, q, tuple(shape)


def _flattened(x: Tensor, name: str, size: int, grid: tuple[int, ...]) -> Tensor:
    """Return weights with one last dimension, which may have come with those of a grid."""
    if len(grid) > 1 and tuple(x.shape[-len(grid) :]) == grid:
        return x.flatten(-len(grid))
    if x.ndim == 0 or x.shape[-1] != size:
        images = f" or {('...', *grid)}".replace("'", "") if len(grid) > 1 else ""
        raise ValueError(f"{name}: expected shape (..., {size}){images} to match the cost, got {tuple(x.shape)}")
    return x


def checked(x: Tensor, name: str) -> Tensor:
    """Return a tensor of floating-point numbers."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        found = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{name}: expected a tensor of floating-point numbers, got {found}")
    return x


class Function:
    """Evaluates rows of weights, and keeps nothing."""

    def __init__(self, cost: Cost, method: str, penalty: Penalty | None, n_jobs: int | None, kl: Any = None) -> None:
        self.marginals = marginals_of(cost, penalty, kl)
        self.method, self.penalty, self.n_jobs = method, penalty, n_jobs
        self.handle = register(self)

    def evaluate(
        self, p: Array, q: Array, ids: list[int] | None, training: bool, tolerance: float, moves: bool
    ) -> tuple[Array, Array, Array]:
        """Return values and gradients."""
        if self.method == "exact":
            value, f, g = weight_gradients(p, q, self.marginals, tolerance, self.n_jobs)[:3]
        else:
            if self.marginals.fixed:
                q = q * (p.sum(axis=1) / q.sum(axis=1))[:, None]  # sums may differ by rounding
            found = solve_batch(p, q, self.marginals.cost, method="gibbs", penalty=self.penalty, n_jobs=self.n_jobs)
            value, (f, g) = found.value, found.potentials
        return (value, centred(f), centred(g)) if self.marginals.fixed else (value, f, g)


@torch.compiler.assume_constant_result
def _handle(
    cost: Cost, method: str, penalty: Penalty | None, n_jobs: int | None, kl: tuple[float, float] | None
) -> int:
    """Return the handle of the function for this cost, which lives as long as the cost does."""
    native.threads(n_jobs)  # checks
    functions: dict[Any, Function] = vars(cost).setdefault("_functions", {})
    key = method, constant(penalty), n_jobs, kl
    if key not in functions:
        functions[key] = Function(cost, method, penalty, n_jobs, kl)
    return functions[key].handle


def _of_points(
    p: Tensor | None,
    q: Tensor | None,
    x: Tensor,
    y: Tensor,
    penalty: Penalty | None,
    kl: tuple[float, float] | None,
    normalize: bool,
    metric: str,
    n_jobs: int | None,
) -> Tensor:
    """Return the transport costs between clouds of as many points each."""
    for points, name in ((x, "x"), (y, "y")):
        if checked(points, name).ndim < 2 or 0 in points.shape[-2:]:
            raise ValueError(f"{name}: expected points of shape (..., m, d), got {tuple(points.shape)}")
    m1, m2 = x.shape[-2], y.shape[-2]
    p, q = uniform(x) if p is None else checked(p, "p"), uniform(y) if q is None else checked(q, "q")
    for weights, name, m in ((p, "p", m1), (q, "q", m2)):
        if weights.ndim == 0 or weights.shape[-1] != m:
            raise ValueError(f"{name}: expected one weight for each of the {m} points, got {tuple(weights.shape)}")
    sides = (
        validation.leading(x.shape[:-2], p.shape[:-1], "x", "p"),
        validation.leading(y.shape[:-2], q.shape[:-1], "y", "q"),
    )
    shape = validation.leading(*sides, "x", "y")
    x, y = (z.expand(*shape, *z.shape[-2:]).flatten(0, -2) for z in (x, y))
    p, q = (z.expand(*shape, z.shape[-1]).flatten() for z in (p, q))
    pairs = torch.arange(math.prod(shape) + 1)
    return clouds((p, q, x, y), (m1 * pairs, m2 * pairs), metric, penalty, kl, normalize, n_jobs).reshape(shape)


def uniform(x: Tensor) -> Tensor:
    """Return uniform weights of mass one for points."""
    return x.new_full(x.shape[-2:-1], 1 / x.shape[-2], dtype=computed(x.dtype))


def clouds(
    tensors: tuple[Tensor, Tensor, Tensor, Tensor],
    offsets: tuple[Tensor, Tensor],
    metric: str,
    penalty: Penalty | None,
    kl: tuple[float, float] | None,
    normalize: bool,
    n_jobs: int | None,
) -> Tensor:
    """Return the transport costs between clouds, given one after another as weights p and q and points x and y."""
    validation.choice(metric, "metric", _METRICS)
    if tensors[2].shape[1] != tensors[3].shape[1]:
        raise ValueError(f"y: expected points with {tensors[2].shape[1]} coordinates, got {tensors[3].shape[1]}")
    both = penalties_of_clouds(penalty)
    return _operators.clouds(tensors, offsets, metric, both, kl, normalize, native.threads(n_jobs))
