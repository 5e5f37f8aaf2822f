"""Exact plans between minibatches of points, such as those of flow matching."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core import validation
from ..exact.method import in_threads
from ..oracle.couplings import coupling
from ._operators import _arrays
from .functional import checked


class Plan(NamedTuple):
    """Optimal plans between clouds of points, as their entries.

    Attributes
    ----------
    i, j : tensors of int64, shape (k,) or (B, k)
        Indices of the points of x and of y.
    mass : tensor of shape (k,) or (B, k)
        What is moved from x_i to y_j; the masses of a plan sum to one. Where plans have fewer entries than others, the
        last ones are zero.
    """

    i: Tensor
    j: Tensor
    mass: Tensor


def exact_plan(
    x: Tensor,
    y: Tensor,
    p: Tensor | None = None,
    q: Tensor | None = None,
    *,
    metric: str = "sqeuclidean",
    n_jobs: int | None = None,
) -> Plan:
    r"""Return exact optimal plans between clouds of points.

    .. math:: \min_{Z \ge 0} \sum_{ij} Z_{ij} \|x_i - y_j\|^2, \quad Z 1 = p, \; Z^T 1 = q

    Between as many points on both sides with uniform weights the plan is a permutation: ``plan.i`` counts from 0, and
    ``y[plan.j]`` are the partners of x.

    Parameters
    ----------
    x, y : tensors of shape (m1, d) and (m2, d), or (B, m1, d) and (B, m2, d) for B pairs of clouds
        The points. Images are points after ``x.flatten(1)``. Do this for images without channels, too: of shape
        (B, H, W) they cannot be told from B clouds of H points in W dimensions, and are taken as these, row by row.
    p, q : tensors of shape (m1,) and (m2,), or (B, m1) and (B, m2), optional
        The weights, which are divided by their sums; uniform by default.
    metric : {"sqeuclidean", "euclidean"}
        The distance.
    n_jobs : int, optional
        Threads over the pairs of clouds; results do not depend on it.

    Returns
    -------
    Plan
        Without gradients, on the device of x.

    Examples
    --------
    >>> import torch
    >>> from gibbsot.torch import exact_plan
    >>> x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[2.1], [0.1], [1.1]])
    >>> exact_plan(x, y).j
    tensor([1, 2, 0])
    >>> exact_plan(x, y[:2]).mass
    tensor([0.3333, 0.1667, 0.1667, 0.3333])

    A minibatch of images is one cloud, with an image as a point:

    >>> images = torch.eye(3)[:, :, None] * torch.ones(4)  # of 3 x 4 pixels
    >>> exact_plan(images.flatten(1), images.flip(0).flatten(1)).j
    tensor([2, 1, 0])
    """
    validation.choice(metric, "metric", ("sqeuclidean", "euclidean"))
    for points, name in ((x, "x"), (y, "y")):
        if checked(points, name).ndim not in (2, 3) or 0 in points.shape:
            hint = f"; images are points after {name}.flatten(1)" if points.ndim > 3 else ""
            raise ValueError(f"{name}: expected points, (m, d) or (B, m, d), got shape {tuple(points.shape)}{hint}")
    if x.shape[-1] != y.shape[-1] or x.shape[:-2] != y.shape[:-2]:
        hint = "; images are points after flatten(1)" if 3 in (x.ndim, y.ndim) else ""
        raise ValueError(f"y: expected shape {(*x.shape[:-2], 'm', x.shape[-1])}, got {tuple(y.shape)}{hint}")
    for weights, name, points in ((p, "p", x), (q, "q", y)):
        if weights is not None and checked(weights, name).shape != points.shape[:-1]:
            raise ValueError(f"{name}: expected shape {tuple(points.shape[:-1])}, got {tuple(weights.shape)}")
    given = [z for z in (x, y, p, q) if z is not None]
    arrays = iter(_arrays(*given))
    X, Y, P, Q = (None if z is None else _rows(next(arrays), 2 if z is x or z is y else 1) for z in (x, y, p, q))
    assert X is not None
    assert Y is not None
    for array, name in ((X, "x"), (Y, "y")):
        if not np.isfinite(array).all():
            raise ValueError(f"{name}: has NaN or infinite coordinates; expected finite ones")

    def work(b: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        return coupling(X[b], Y[b], None if P is None else P[b], None if Q is None else Q[b], metric)

    # threads take longer to start than a small problem
    found = [work(0)] if len(X) == 1 else in_threads(work, range(len(X)), n_jobs)
    if x.ndim == 2:
        parts: Any = found[0]
    else:
        k = max(len(one[0]) for one in found)
        parts = tuple(np.stack([np.pad(one[part], (0, k - len(one[part]))) for one in found]) for part in range(3))
    dtype = torch.promote_types(x.dtype, torch.float32)
    i, j, mass = (torch.from_numpy(part).to(x.device) for part in parts)
    return Plan(i, j, mass.to(dtype))


def _rows(z: NDArray[np.float64], axes: int) -> NDArray[np.float64]:
    """Return arrays with one leading dimension."""
    return z.reshape(-1, *z.shape[-axes:])
