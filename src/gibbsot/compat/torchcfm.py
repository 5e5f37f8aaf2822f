"""`OTPlanSampler` of torchcfm on the exact engine: couplings of minibatches for flow matching."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from ..core import validation
from ..core.warn import warn
from ..torch import exact_plan
from .pot import functions

__all__ = ["OTPlanSampler"]


class OTPlanSampler:
    r"""Couple minibatches by an optimal plan for the squared Euclidean distance, with torchcfm's interface.

    .. math:: \min_{Z \ge 0} \sum_{ij} Z_{ij} \|x_i - y_j\|^2, \quad Z 1 = 1/n, \; Z^T 1 = 1/n

    Three things differ from torchcfm. The plan between batches of the same size is a permutation, and by default every
    point keeps its partner: no point is drawn twice or left out (``replace=True`` draws pairs as torchcfm does). Plans
    are exact and proved; where one is not, a ConvergenceWarning says so. A plan that a method of POT cannot compute is
    not replaced by a uniform one: where ``reg`` is too small for "sinkhorn", a warning says so and the exact plan is
    taken, which is the limit of small ``reg``; the other methods raise. And `batches` couples more points at once than
    a training step takes.

    Parameters
    ----------
    method : {"exact", "sinkhorn", "unbalanced", "partial"}
        "exact" is solved here; the others are POT's, with ``reg`` and ``reg_m`` as in torchcfm.
    reg, reg_m, normalize_cost
        As in torchcfm, for the methods of POT; an exact plan does not depend on the scale of the costs.
    num_threads, warn
        Have no effect, and are accepted as in torchcfm.
    rng : int or numpy.random.Generator, optional
        The source of random choices; by default NumPy's global one, as in torchcfm.

    Examples
    --------
    >>> import torch
    >>> from gibbsot.compat.torchcfm import OTPlanSampler
    >>> x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[2.1], [0.1], [1.1]])
    >>> OTPlanSampler().sample_plan(x, y)[1].ravel()
    tensor([0.1000, 1.1000, 2.1000])
    """

    def __init__(
        self,
        method: str = "exact",
        reg: float = 0.05,
        reg_m: float = 1.0,
        normalize_cost: bool = False,
        num_threads: int | str = 1,
        warn: bool = True,
        *,
        rng: Any = None,
    ) -> None:
        validation.choice(method, "method", ("exact", "sinkhorn", "unbalanced", "partial"))
        self.method, self.reg, self.reg_m, self.normalize_cost = method, reg, reg_m, normalize_cost
        self.num_threads, self.warn = num_threads, warn
        self._random: Any = np.random if rng is None else np.random.default_rng(rng)

    def get_map(self, x0: Tensor, x1: Tensor) -> NDArray[np.float64]:
        """Return the plan as an array.

        Parameters
        ----------
        x0, x1 : tensors of shape (n0, ...) and (n1, ...)
            Two minibatches.

        Returns
        -------
        array of shape (n0, n1)
            Its sum is one, but for the methods "unbalanced" and "partial".
        """
        x0, x1 = (x.detach().flatten(1) for x in (x0, x1))
        if self.method == "exact":
            return _exact(x0, x1)
        M = torch.cdist(x0, x1) ** 2
        M = M / M.amax() if self.normalize_cost else M
        found = self._solver()(np.full(len(x0), 1 / len(x0)), np.full(len(x1), 1 / len(x1)), M.cpu().numpy())
        if np.isfinite(found).all() and found.sum() > 1e-8:
            return np.asarray(found)
        message = f"reg: {self.reg:g} is too small for these costs"
        if self.method != "sinkhorn":
            raise ValueError(f"{message}; expected more, or method='exact'")
        warn(f"{message}; the exact plan is taken, its limit", ConvergenceWarning)
        return _exact(x0, x1)

    def _solver(self) -> Callable[..., Any]:
        """Return POT's solver."""
        ot = functions.pot()
        if self.method == "sinkhorn":
            return partial(ot.sinkhorn, reg=self.reg)
        if self.method == "unbalanced":
            return partial(ot.unbalanced.sinkhorn_knopp_unbalanced, reg=self.reg, reg_m=self.reg_m)
        return partial(ot.partial.entropic_partial_wasserstein, reg=self.reg)

    def sample_map(
        self, pi: NDArray[np.float64], batch_size: int, replace: bool = True
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw pairs from a plan.

        Parameters
        ----------
        pi : array of shape (n0, n1)
            The plan.
        batch_size : int
            The number of pairs.
        replace : bool
            Whether a pair may be drawn twice.

        Returns
        -------
        i, j : arrays of shape (batch_size,)
        """
        shares = pi.ravel() / pi.sum()
        chosen = self._random.choice(len(shares), p=shares, size=batch_size, replace=replace)
        i, j = np.divmod(chosen, pi.shape[1])
        return i, j

    def sample_plan(self, x0: Tensor, x1: Tensor, replace: bool | None = None) -> tuple[Tensor, Tensor]:
        """Return pairs of points.

        Parameters
        ----------
        x0, x1 : tensors of shape (n0, ...) and (n1, ...)
            Two minibatches.
        replace : bool, optional
            Whether pairs are drawn with replacement, as torchcfm does; by default for the methods of POT. Otherwise x0
            stays as it is and x1 is permuted; between batches of different sizes pairs are drawn without replacement.

        Returns
        -------
        tensors of shape (n0, ...)
        """
        i, j = self._pairs(x0, x1, replace)
        return x0[i], x1[j]

    def sample_plan_with_labels(
        self,
        x0: Tensor,
        x1: Tensor,
        y0: Tensor | None = None,
        y1: Tensor | None = None,
        replace: bool | None = None,
        within_classes: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return pairs of points with their labels.

        Parameters
        ----------
        x0, x1, replace
            As for `sample_plan`.
        y0, y1 : tensors of shape (n0,) and (n1,), optional
            Labels.
        within_classes : bool
            Whether only points with the same label are paired. Each class then has as many points on both sides, but
            for ``replace=True``, where it only must be on both sides. Points x0 without labels, such as noise, are
            dealt to the classes of y1 in the order in which they come.

        Returns
        -------
        x0, x1, y0, y1 : tensors of shape (n0, ...), or None for labels that were not given
        """
        if within_classes:
            i, j = self._within_classes(x0, x1, y0, y1, replace)
        else:
            i, j = self._pairs(x0, x1, replace)
        return x0[i], x1[j], None if y0 is None else y0[i], None if y1 is None else y1[j]

    def batches(self, x0: Tensor, x1: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Couple many points at once, and return them in random minibatches.

        Parameters
        ----------
        x0, x1 : tensors of shape (n, ...)
            The points, such as those of twenty training steps.
        batch_size : int
            The points of a minibatch; the last may have fewer.

        Yields
        ------
        pair of tensors of shape (batch_size, ...)

        Examples
        --------
        >>> import torch
        >>> from gibbsot.compat.torchcfm import OTPlanSampler
        >>> x = torch.arange(6.0)[:, None]
        >>> [len(a) for a, b in OTPlanSampler(rng=0).batches(x, x.flip(0), 4)]
        [4, 2]
        """
        size = validation.count(batch_size, "batch_size")
        if len(x0) != len(x1):
            raise ValueError(f"x1: expected {len(x0)} points, as many as x0, got {len(x1)}")
        i, j = self._pairs(x0, x1, False)
        order = self._random.permutation(len(i))
        for first in range(0, len(order), size):
            some = order[first : first + size]
            yield x0[i[some]], x1[j[some]]

    def sample_trajectory(self, X: Tensor) -> Tensor:
        """Follow points of the first population through all others.

        Parameters
        ----------
        X : tensor of shape (n, times, ...)
            Populations of the same size.

        Returns
        -------
        tensor of shape (n, times, ...)
        """
        rows = [np.arange(len(X))]
        for t in range(X.shape[1] - 1):
            if self.method == "exact":
                rows.append(self._pairs(X[:, t], X[:, t + 1], False)[1][rows[-1]])
            else:
                plan = self.get_map(X[:, t], X[:, t + 1])[rows[-1]]
                rows.append(np.array([self._random.choice(len(row), p=row / row.sum()) for row in plan]))
        return torch.stack([X[row, t] for t, row in enumerate(rows)], dim=1)

    def _pairs(self, x0: Tensor, x1: Tensor, replace: bool | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of pairs, in the order of x0 if these are permutations."""
        replace = self.method != "exact" if replace is None else replace
        if self.method == "exact" and len(x0) == len(x1) and not replace:
            plan = exact_plan(x0.detach().flatten(1), x1.detach().flatten(1))
            return plan.i.cpu().numpy(), plan.j.cpu().numpy()
        return self.sample_map(self.get_map(x0, x1), len(x0), replace)

    def _within_classes(
        self, x0: Tensor, x1: Tensor, y0: Tensor | None, y1: Tensor | None, replace: bool | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of pairs with the same label, in the order of x0 if these are permutations."""
        if y1 is None:
            raise ValueError("y1: expected the labels of x1 for within_classes=True")
        if y0 is None and len(x0) != len(y1):
            raise ValueError(f"x0: expected {len(y1)} points, as many as y1 has labels, or labels y0; got {len(x0)}")
        labels = [y.detach().cpu().numpy() for y in (y1 if y0 is None else y0, y1)]
        found = []
        for label in np.union1d(*labels):
            rows, columns = (np.flatnonzero(y == label) for y in labels)
            if len(rows) != len(columns) and not (replace and len(rows) and len(columns)):
                counts = f"{len(rows)} and {len(columns)} points"
                raise ValueError(f"y0, y1: class {label} has {counts}; expected as many on both sides")
            i, j = self._pairs(x0[rows], x1[columns], replace)
            found.append((rows[i], columns[j]))
        i, j = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(i, kind="stable")
        return i[order], j[order]


def _exact(x0: Tensor, x1: Tensor) -> NDArray[np.float64]:
    """Return the exact plan of points as an array."""
    plan = exact_plan(x0.double(), x1.double())
    dense = np.zeros((len(x0), len(x1)))
    dense[plan.i.cpu().numpy(), plan.j.cpu().numpy()] = plan.mass.cpu().numpy()
    return dense
