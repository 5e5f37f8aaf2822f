"""The loss between clouds of points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..core import validation
from ..solvers.kl import divergence_weights
from ..solvers.relaxed import Penalty, penalties_of_clouds
from ._operators import computed
from .functional import checked, clouds, wasserstein

Clouds: TypeAlias = "Tensor | Sequence[Tensor]"


class SamplesLoss(torch.nn.Module):
    r"""The exact transport cost between clouds of points, differentiable in points and weights.

    .. math:: W = \min_Z \sum_{ij} Z_{ij} \|x_i - y_j\|^2, \quad Z 1 = p, \; Z^T 1 = q

    Parameters
    ----------
    metric : {"sqeuclidean", "euclidean"}
        The distance between points. GeomLoss's ``p=2`` is half of "sqeuclidean", its ``p=1`` is "euclidean".
    penalty : float or pair, optional
        Mass may be left over and costs this much per unit: a number, or a pair of numbers for p and q, as in `solve`.
    kl : float or pair of float, optional
        Unbalanced transport, as in `solve`, to a certified gap of 1e-6.
    reduction : {"mean", "sum", "none"}
        What the values of the pairs of clouds are reduced to.
    n_jobs : int, optional
        Threads over the pairs of clouds; results do not depend on it.

    Attributes
    ----------
    metric, penalty, kl, reduction, n_jobs
        The parameters; ``kl`` is a pair, or None.

    Notes
    -----
    Weights are arguments of their own here, after the points: ``loss(x, y, p, q)``, where GeomLoss has
    ``loss(p, x, q, y)``. Nothing is kept between calls.

    Examples
    --------
    >>> import torch
    >>> from gibbsot.torch import SamplesLoss
    >>> x = [torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0], [1.0, 0.0]])]
    >>> y = [torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 1.0]])]
    >>> SamplesLoss(reduction="none")(x, y)
    tensor([25.0000,  1.5000])
    """

    def __init__(
        self,
        metric: str = "sqeuclidean",
        *,
        penalty: Penalty | None = None,
        kl: float | tuple[float, float] | None = None,
        reduction: str = "mean",
        n_jobs: int | None = None,
    ) -> None:
        super().__init__()
        self.metric = validation.choice(metric, "metric", ("sqeuclidean", "euclidean"))
        self.reduction = validation.choice(reduction, "reduction", ("mean", "sum", "none"))
        self.penalty, self.n_jobs = penalty, n_jobs
        penalties_of_clouds(penalty)  # checks
        self.kl = divergence_weights(kl, penalty)

    def extra_repr(self) -> str:
        return f"metric={self.metric!r}, penalty={self.penalty}, kl={self.kl}, reduction={self.reduction!r}"

    def forward(
        self,
        x: Clouds,
        y: Clouds,
        p: Any = None,
        q: Any = None,
        *,
        x_offsets: Tensor | None = None,
        y_offsets: Tensor | None = None,
    ) -> Tensor:
        """Return W of each pair of clouds, or their mean or sum.

        Parameters
        ----------
        x, y : tensors of shape (m, d) or (B, m, d), or lists of tensors of shape (m, d)
            The points. With offsets, all clouds one after another, of shape (N, d).
        p, q : tensors of shape (m,) or (B, m), or lists of tensors, optional
            The weights; uniform by default.
        x_offsets, y_offsets : tensors of int, shape (B + 1,), optional
            Cloud b consists of the points ``x[x_offsets[b]:x_offsets[b + 1]]``.

        Returns
        -------
        tensor
            Of one value for each pair for ``reduction="none"``, otherwise a scalar.
        """
        if x_offsets is None and y_offsets is None and isinstance(x, Tensor) and isinstance(y, Tensor):
            if isinstance(p, list | tuple) or isinstance(q, list | tuple):
                raise TypeError("p, q: expected tensors as x and y are, got lists")
            for points, name in ((x, "x"), (y, "y")):
                if points.ndim not in (2, 3):
                    got = f"{tuple(points.shape)}; ImagesLoss is for images"
                    raise ValueError(f"{name}: expected clouds, (m, d) or (B, m, d), got {got}")
            options: dict[str, Any] = {"metric": self.metric, "penalty": self.penalty, "kl": self.kl}
            value = wasserstein(p, q, (x, y), **options, n_jobs=self.n_jobs)
        else:
            x, p, rows = _packed(x, p, x_offsets, ("x", "p"))
            y, q, columns = _packed(y, q, y_offsets, ("y", "q"))
            if len(rows) != len(columns):
                raise ValueError(f"y: expected as many clouds as x has ({len(rows) - 1}), got {len(columns) - 1}")
            value = clouds((p, q, x, y), (rows, columns), self.metric, self.penalty, self.kl, False, self.n_jobs)
        if self.reduction == "none":
            return value
        return value.mean() if self.reduction == "mean" else value.sum()


def _packed(
    x: Clouds, p: Clouds | None, offsets: Tensor | None, names: tuple[str, str]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the points and weights of clouds one after another, and their offsets."""
    if isinstance(x, Tensor):
        if offsets is None:
            raise TypeError(f"{names[0]}: expected a list of clouds as the other side, or {names[0]}_offsets")
        offsets = offsets.cpu()
        if checked(x, names[0]).ndim != 2:
            raise ValueError(f"{names[0]}: expected points of shape (N, d) with offsets, got {tuple(x.shape)}")
        _check_offsets(offsets, len(x), names[0])
    else:
        if offsets is not None:
            raise TypeError(f"{names[0]}_offsets: expected none with a list of clouds")
        for b, points in enumerate(x):
            if checked(points, f"{names[0]}[{b}]").ndim != 2 or 0 in points.shape:
                raise ValueError(f"{names[0]}[{b}]: expected points of shape (m, d), got {tuple(points.shape)}")
        if not len(x):
            raise ValueError(f"{names[0]}: is empty; expected at least one cloud")
        sizes = torch.tensor([0, *(len(points) for points in x)])
        if p is not None:
            for b, (points, weights) in enumerate(zip(x, p, strict=True)):
                if weights.shape != points.shape[:1]:
                    raise ValueError(f"{names[1]}[{b}]: expected {len(points)} weights, got {tuple(weights.shape)}")
            p = torch.cat(list(p))
        x, offsets = torch.cat(list(x)), sizes.cumsum(0)
    if p is None:
        sizes = torch.diff(offsets)
        p = torch.repeat_interleave(1 / sizes.to(computed(x.dtype)), sizes).to(x.device)
    elif not isinstance(p, Tensor) or p.shape != x.shape[:1]:
        raise ValueError(f"{names[1]}: expected one weight for each of the {len(x)} points")
    return x, checked(p, names[1]), offsets


def _check_offsets(offsets: Tensor, n: int, name: str) -> None:
    """Refuse offsets that do not cut n points into clouds."""
    ends = offsets.tolist()
    if offsets.ndim != 1 or offsets.is_floating_point() or len(ends) < 2 or ends[0] != 0 or ends[-1] != n:
        raise ValueError(f"{name}_offsets: expected integers from 0 to {n}, one more than clouds, got {ends}")
    if any(b <= a for a, b in pairwise(ends)):
        raise ValueError(f"{name}_offsets: expected increasing integers, as no cloud may be empty; got {ends}")
