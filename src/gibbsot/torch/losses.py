"""The loss between histograms, with exact duals or chains that are kept for each example."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..core import validation
from ..costs import Cost, as_cost
from ..oracle.pairs import METHODS, AutoOracle, ChainOracle, DualOracle, PairOracle, pair_oracle
from ..oracle.store import Store
from ..sampling.annealing.adaptive import AdaptiveCooling
from ..solvers.kl import divergence_weights
from ..solvers.relaxed import Penalty, check_normalize
from ._operators import register, transport
from .functional import Function, rows

Array = NDArray[np.float64]

_REDUCTIONS = ("mean", "sum", "none")


class WassersteinLoss(torch.nn.Module):
    r"""The transport cost between rows of weights, for training: examples keep their exact duals from call to call.

    .. math:: W(p, q) = \langle p, f \rangle + \langle q, g \rangle, \qquad \nabla_p = f, \quad \nabla_q = g

    Both gradients are centred, so that their entries sum to zero and a step along them stays on the simplex.

    With ``method="kept"`` an example that was solved before keeps its potentials f and g until its measures have moved
    by the share ``drift`` of their mass; its value is then a certified lower bound of W. Otherwise, and in ``eval``
    mode always, the example is solved exactly: in training from its last basis, in ``eval`` mode from nothing, so that
    the same input gives the same value and gradient. ``method="auto"`` chooses between chains and kept duals, by the
    rules of `gibbsot.Oracle`; a q that needs no gradient is a target that stays.

    With a penalty, mass may be left over and costs this much for each unit, as in `solve` with ``penalty=``: weights
    may have any sums, and gradients are not centred, as they tell what more mass costs.

    Parameters
    ----------
    cost : Cost or array of shape (m1, m2)
        The cost. Values and gradients have the dtype of the input, float32 for half precisions.
    method : {"auto", "gibbs", "kept", "exact"}
        As of `gibbsot.Oracle`. "kept": exact duals, kept while the measures move little. "exact": solved exactly in
        every call. "gibbs": in training the paper's chains, whose values are estimates; see Notes.
    from_logits : bool
        Whether p comes as logits, of which the softmax is taken.
    normalize : bool
        Divide the weights by their sums first. Otherwise the sums of a pair agree.
    penalty : float or pair, optional
        The cost of a unit of mass that is not transported: a number, or a pair for p and q, each a number or an array
        with an entry for every point.
    kl : float or pair of float, optional
        Unbalanced transport, as in `solve`, to a certified gap of 1e-6: sums may differ, and gradients are not centred.
        Not with chains.
    reduction : {"mean", "sum", "none"}
        What the values are reduced to.
    drift : float, optional
        Of kept duals: the share of the mass that may have moved since an example was solved, 0.01 by default.
    capacity : int, optional
        The number of examples that are kept; the least recently used are dropped. By default 10,000, and 50,000 chains.
        An example takes about 20 bytes per point of both measures, with "gibbs" 8 bytes per point of q.
    by_position : bool
        Whether examples without an index belong to their position in the batch; otherwise they are not kept.
    n_jobs : int, optional
        Threads over the rows; results are bit-identical for every number.
    temperature : "auto", float or AdaptiveCooling, optional
        Of chains, as of `gibbsot.Oracle`: "auto", the default, follows the loss, and falls when exact evaluations of
        some examples show that it has stalled. A number is the temperature itself, which stays constant.
    max_sweeps : int, optional
        Of chains: the largest number of sweeps in one call, 400 by default. A chain ends earlier when V(z) has not
        risen over a tenth of them: with a larger number chains follow the model more closely.
    rng : int or numpy.random.Generator, optional
        Of chains: the key of their noise, 0 by default; a generator draws one.

    Attributes
    ----------
    store : Store
        What is kept of the examples, by their ids: exact duals, or chains.
    n_solved : int
        How many problems have been solved for exact duals in training so far.
    temperature : float or None
        Of chains: the temperature of the next call; None before the first one if it is "auto". After it is set to a
        number, it no longer follows the loss.
    cooling : float
        Of chains: the factor by which a scheduler has lowered a given temperature, or the gap that "auto" keeps.
    cost, method, from_logits, normalize, penalty, kl, reduction, n_jobs
        The parameters; ``kl`` is a pair, or None.

    Notes
    -----
    Which method: where an example moves by less than a per cent between two calls, as with many small steps or near
    the end of a training, kept duals cost next to nothing. Where every call moves every example by more, each is
    solved from its last basis. Chains cost a few dozen sweeps whatever the measures do. Their gradients are off by a
    quarter or more at the automatic temperature (``python benchmarks/losses.py``), and yet a training with large steps
    comes down faster with them than with exact duals. Use them first, and a second loss with "kept" for the last
    epochs, which end where exact duals alone do, whatever the noise (``python benchmarks/torch_loss.py``). A larger
    ``drift`` saves little time: outdated duals mislead more than noise does.

    With "gibbs", value and gradient are V(z), U and -L of the paper. The chain of every example continues from its
    state in the last call with that example. Without gradients (``torch.no_grad``) the temperature does not change,
    except that "auto" chooses one in a first call.

    Everything runs on the CPU. Tensors on an accelerator are copied to it, and values and gradients back, in one piece
    each: 4 (m1 + m2) bytes for each row and direction in single precision, and a synchronisation. Leave ``index`` on
    the CPU.

    With several processes (``DistributedDataParallel``) each has its own duals or chains and temperature. An example
    that moves to another process in the next epoch uses what this process has of it, if anything: let the data sampler
    keep examples in their process, and save the ``state_dict`` of each process.

    Examples
    --------
    >>> import torch
    >>> from gibbsot import GridCost
    >>> from gibbsot.torch import WassersteinLoss
    >>> loss = WassersteinLoss(GridCost(3, spacing=1.0), from_logits=True)
    >>> logits = torch.zeros(2, 3, requires_grad=True)
    >>> value = loss(logits, torch.eye(3)[:2], index=torch.tensor([4, 7]))
    >>> value.backward()
    >>> round(value.item(), 6), bool(logits.grad[0, 0] < 0 < logits.grad[0, 2])
    (1.166667, True)
    """

    def __init__(
        self,
        cost: Cost | ArrayLike,
        *,
        method: str = "auto",
        from_logits: bool = False,
        normalize: bool = False,
        penalty: Penalty | None = None,
        kl: float | tuple[float, float] | None = None,
        reduction: str = "mean",
        drift: float | None = None,
        capacity: int | None = None,
        by_position: bool = False,
        n_jobs: int | None = None,
        temperature: float | str | AdaptiveCooling | None = None,
        max_sweeps: int | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        self.method = validation.choice(method, "method", METHODS)
        self.reduction = validation.choice(reduction, "reduction", _REDUCTIONS)
        self.from_logits, self.penalty, self.n_jobs = from_logits, penalty, n_jobs
        self.normalize = validation.flag(normalize, "normalize")
        check_normalize(normalize, penalty, kl)
        self.kl = divergence_weights(kl, penalty)
        key = None if rng is None else validation.noise_key(rng)
        options: dict[str, Any] = {"temperature": temperature, "max_sweeps": max_sweeps, "rng": key, "drift": drift}
        options["capacity"] = capacity
        self._options = {name: x for name, x in options.items() if x is not None}
        self._options |= {"by_position": by_position, "n_jobs": n_jobs}
        self._set_cost(as_cost(cost))

    def _set_cost(self, cost: Cost) -> None:
        """Start with a cost, and nothing kept."""
        self.cost = cost
        self._kept: PairOracle = pair_oracle(cost, self.penalty, self.method, kl=self.kl, **self._options)
        self._exact = Function(cost, "exact", self.penalty, self.n_jobs, self.kl)  # of eval mode
        self._handles = register(self._exact), register(self._kept)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._handles = register(self._exact), register(self._kept)  # a copy keeps its own duals or chains

    @property
    def store(self) -> Store:
        """What is kept of the examples."""
        return self._current.store

    @property
    def _current(self) -> PairOracle:
        """What the last call has used."""
        return self._kept.current if isinstance(self._kept, AutoOracle) else self._kept

    @property
    def n_solved(self) -> int:
        """How many problems have been solved for exact duals in training."""
        duals = self._kept.duals if isinstance(self._kept, AutoOracle) else self._kept
        return duals.n_solved if isinstance(duals, DualOracle) else 0

    def _sampler(self) -> ChainOracle:
        """Return the chains."""
        chains = self._kept.chains if isinstance(self._kept, AutoOracle) else self._kept
        if not isinstance(chains, ChainOracle):
            raise ValueError(f"temperature: belongs to chains, this loss has method={self.method!r}")
        return chains

    @property
    def temperature(self) -> float | None:
        """The temperature of the next call."""
        return self._sampler().temperature

    @temperature.setter
    def temperature(self, T: float) -> None:
        self._sampler().temperature = T

    @property
    def cooling(self) -> float:
        """The factor of a scheduler."""
        return self._sampler().cooling

    @cooling.setter
    def cooling(self, factor: float) -> None:
        self._sampler().cooling = factor

    def extra_repr(self) -> str:
        m1, m2 = self.cost.shape
        more = f", temperature={self.temperature}" if isinstance(self._current, ChainOracle) else ""
        return f"{m1} x {m2}, method={self.method!r}{more}, examples={len(self.store)}"

    def forward(self, p: Tensor, q: Tensor, index: Tensor | None = None) -> Tensor:
        """Return W of each pair, or their mean or sum.

        Parameters
        ----------
        p, q : tensors of shape (..., m1) and (..., m2)
            Weights; p may be logits. One q for many p, or as many leading dimensions of both, which are broadcast.
            On a grid the last dimensions may be those of the grid. The mean over no pairs is NaN.
        index : tensor of int, shape (B,), optional
            The ids of the examples along the first dimension, which determine what is kept of them; each at most once
            in a batch.

        Returns
        -------
        tensor
            Of the shape of the leading dimensions for ``reduction="none"``, otherwise a scalar.
        """
        cost = self.cost
        return self._values(p, q, index, cost.shape, (cost.row_shape, cost.col_shape), self._handles)

    def _values(
        self,
        p: Tensor,
        q: Tensor,
        index: Tensor | None,
        sizes: tuple[int, int],
        grids: tuple[tuple[int, ...], tuple[int, ...]],
        handles: tuple[int, int],
    ) -> Tensor:
        """Return the values, by the evaluators of eval mode and of training."""
        p, q, shape = rows(p, q, sizes, grids, self.from_logits)
        ids = None if index is None else _ids(torch.as_tensor(index), shape)
        learning = self.training and torch.is_grad_enabled()
        handle = handles[int(self.training)]
        value = transport(p, q, handle, self.normalize, ids, learning).reshape(shape)
        if self.reduction == "none":
            return value
        return value.mean() if self.reduction == "mean" else value.sum()

    def get_extra_state(self) -> dict[str, Any]:
        """Return what is kept of the examples, and the temperature, for ``state_dict``.

        Returns
        -------
        dict
            Numbers and tensors.
        """
        found = self._kept.arrays()
        return {name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in found.items()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load what `get_extra_state` returned.

        Parameters
        ----------
        state : dict
            What `get_extra_state` returned.
        """
        self._kept.load_state({name: x.cpu().numpy() if isinstance(x, Tensor) else x for name, x in state.items()})


def _ids(index: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the ids of all rows from those of the first dimension."""
    n = shape[0] if shape else 1
    if index.shape != (n,) or index.dtype == torch.bool or index.is_floating_point() or index.is_complex():
        raise ValueError(f"index: expected {n} integers, one for each example, got {index.dtype} {tuple(index.shape)}")
    count = 1
    for size in shape[1:]:
        count *= size
    return (index[:, None] * count + torch.arange(count, device=index.device)).flatten()
