"""Losses between images and between volumes."""

from __future__ import annotations

import itertools
import math
import weakref
from typing import Any

import torch
from torch import Tensor

from ..costs import GridCost
from ..solvers.relaxed import Penalty
from ._operators import register
from .losses import WassersteinLoss

_losses: weakref.WeakValueDictionary[int, _GridLoss] = weakref.WeakValueDictionary()
_numbers = itertools.count()


@torch.compiler.assume_constant_result
def _handles(number: int, sides: tuple[int, ...]) -> tuple[int, int]:
    """Return the evaluators of a loss, known by its number, for a grid; the compiler does not look inside."""
    loss = _losses[number]
    loss._set_sides(sides)
    return loss._handles


class _GridLoss(WassersteinLoss):
    """The transport cost between measures on a grid, whose sides the tensors have."""

    _axes: int

    def __init__(
        self,
        cost: GridCost | None = None,
        *,
        normalize: bool | None = None,
        penalty: Penalty | None = None,
        **options: Any,
    ) -> None:
        if cost is not None and (not isinstance(cost, GridCost) or len(cost.row_shape) != self._axes):
            raise ValueError(f"cost: expected a GridCost with {self._axes} axes, got {cost!r}")
        self._default, self._number = cost is None, next(_numbers)
        self._seen: dict[tuple[int, ...], Any] = {}  # what belongs to the sides of each grid
        normalize = penalty is None and options.get("kl") is None if normalize is None else normalize
        first = GridCost((1,) * self._axes) if cost is None else cost  # the first tensors have the sides
        super().__init__(first, normalize=normalize, penalty=penalty, **options)
        _losses[self._number] = self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for sides, (cost, kept, exact, _) in self._seen.items():
            own = kept is self._kept
            self._seen[sides] = cost, kept, exact, self._handles if own else (register(exact), register(kept))
        self._number = next(_numbers)
        _losses[self._number] = self

    def extra_repr(self) -> str:
        if self._default and not self._seen:
            what = f"squared distance on the grid of the first {'images' if self._axes == 2 else 'volumes'}"
            return f"{what}, method={self.method!r}, reduction={self.reduction!r}"
        return f"{self.cost!r}, {super().extra_repr()}"

    def forward(self, p: Tensor, q: Tensor, index: Tensor | None = None) -> Tensor:
        """Return W of each pair of images or volumes, or their mean or sum over examples and channels.

        Parameters
        ----------
        p, q : tensors of shape (B, C, ...)
            Nonnegative images or volumes. One is compared with many, or both have as many leading dimensions, which are
            broadcast.
        index : tensor of int, shape (B,), optional
            The ids of the examples, as for `WassersteinLoss`.

        Returns
        -------
        tensor
            Of shape (B, C) for ``reduction="none"``, otherwise a scalar.
        """
        for x, name in ((p, "p"), (q, "q")):
            if x.ndim < self._axes or 0 in x.shape[-self._axes :]:
                expected = "(B, C, H, W)" if self._axes == 2 else "(B, C, D, H, W)"
                raise ValueError(f"{name}: expected shape {expected}, got {tuple(x.shape)}")
        if not self._default:
            return super().forward(p, q, index)
        sides = tuple(int(n) for n in q.shape[-self._axes :])
        size = math.prod(sides)
        return self._values(p, q, index, (size, size), (sides, sides), _handles(self._number, sides))

    def _set_sides(self, sides: tuple[int, ...]) -> None:
        """Use the cost of a grid, and what was kept for it."""
        if sides not in self._seen:
            self._set_cost(GridCost(sides))
            self._seen[sides] = self.cost, self._kept, self._exact, self._handles
        self.cost, self._kept, self._exact, self._handles = self._seen[sides]

    def get_extra_state(self) -> dict[str, Any]:
        return {**super().get_extra_state(), "grid": self.cost.row_shape}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if self._default:
            self._set_sides(tuple(state["grid"]))
        super().set_extra_state({name: x for name, x in state.items() if name != "grid"})


class ImagesLoss(_GridLoss):
    r"""The exact transport cost between images, channel by channel, as a loss.

    .. math:: W(p, q) = \min_Z \sum_{x, y} Z_{xy} \|x - y\|^2, \quad Z 1 = p, \; Z^T 1 = q

    Pixels are points of the unit square (the longer side has length one), each channel of each image is a measure, and
    images are divided by their sums, unless there is a ``penalty``, ``kl`` or ``normalize=False``.

    Parameters
    ----------
    cost : GridCost, optional
        By default the squared Euclidean distance between pixels, ``GridCost((H, W))``.
    normalize : bool, optional
        Divide each channel by its sum; by default unless there is a penalty or kl.
    penalty : float or pair, optional
        Images keep their masses, and mass that is not transported costs this much per unit, on either side.
    **options
        ``method``, ``from_logits``, ``kl``, ``drift``, ``reduction``, ``capacity``, ``by_position``, ``n_jobs`` and,
        with ``method="gibbs"``, ``temperature``, ``max_sweeps`` and ``rng``, as for `WassersteinLoss`.

    Attributes
    ----------
    cost : GridCost
        The cost; without one given, that of the last images. Images of other sides keep their own duals, and a
        ``state_dict`` has those of the last.
    store, n_solved, method, normalize, penalty, reduction, n_jobs
        As of `WassersteinLoss`.

    Notes
    -----
    In ``eval`` mode, and where neither ``index`` nor ``by_position`` is given, every pair is solved exactly. In
    training ``method="auto"`` follows the rules of `gibbsot.Oracle`: small images, and pairs that both need gradients,
    keep their exact duals as long as at most the share ``drift`` of their mass has moved; larger ones have chains.

    GeomLoss's ``p=2`` stands for half the squared distance, and its ``p=1`` for the Euclidean distance; a
    `GridCost` with ``power=1`` is the sum of the absolute differences of coordinates. GeomLoss's losses are entropic
    and have a ``blur``, this one is exact and has none.

    Examples
    --------
    >>> import torch
    >>> from gibbsot.torch import ImagesLoss
    >>> images = torch.zeros(1, 1, 8, 8)
    >>> images[..., 2:4, 2:4] = 1
    >>> moved = images.roll(2, -1).requires_grad_()
    >>> value = ImagesLoss()(moved, images)  # moved by two of eight pixels
    >>> value.backward()
    >>> round(value.item(), 6)
    0.0625
    """

    _axes = 2


class VolumesLoss(_GridLoss):
    r"""The exact transport cost between volumes of shape (B, C, D, H, W), as a loss.

    .. math:: W(p, q) = \min_Z \sum_{x, y} Z_{xy} \|x - y\|^2, \quad Z 1 = p, \; Z^T 1 = q

    Parameters
    ----------
    cost : GridCost, optional
        By default the squared Euclidean distance between voxels, ``GridCost((D, H, W))``; the longest side has length
        one.
    normalize : bool, optional
        Divide each channel by its sum; by default unless there is a penalty or kl.
    penalty : float or pair, optional
        Volumes keep their masses, and mass that is not transported costs this much per unit, on either side.
    **options
        As for `ImagesLoss`.

    Attributes
    ----------
    cost, store, n_solved, method, normalize, penalty, reduction, n_jobs
        As of `ImagesLoss`.

    Examples
    --------
    >>> import torch
    >>> from gibbsot.torch import VolumesLoss
    >>> volumes = torch.zeros(1, 1, 4, 4, 4)
    >>> volumes[..., 1:3, 1:3, 1:3] = 1
    >>> VolumesLoss()(volumes.roll(1, -1), volumes)
    tensor(0.0625)
    """

    _axes = 3
