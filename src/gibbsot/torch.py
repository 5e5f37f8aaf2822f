"""A Wasserstein loss for PyTorch (the extra ``torch``)."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    import torch
except ImportError:
    raise ImportError("gibbsot.torch needs PyTorch: pip install 'gibbsot[torch]'") from None
from torch import Tensor

from . import checks, control, sampler
from .chains import Chains
from .costs import Cost, as_cost
from .measures import Problem, problem
from .oracle import Oracle

_AWAY = 1e-3  # from one: a sum of weights that is further off is no measure
_NEW = 2**62  # names of chains that are used once begin here, far from those of examples
_losses: weakref.WeakValueDictionary[int, WassersteinLoss] = weakref.WeakValueDictionary()
_handles = itertools.count()


class WassersteinLoss(torch.nn.Module):
    r"""The transport cost between rows of weights, with the paper's gradient.

    .. math:: W(p, q) \approx V(z) = \langle p, U \rangle - \langle q, L \rangle, \qquad
        \nabla_p = U, \quad \nabla_q = -L

    Both gradients are centred, so that their entries sum to zero and a step along them stays on the simplex. The chain
    of every example goes on where it was left when the example was met last.

    Parameters
    ----------
    cost : Cost or array of shape (m1, m2)
        Computed with in single precision if it is float32 itself; values and gradients have the type of the input.
    temperature : "auto" or float
        "auto" is chosen at the first call, as for the models: V(z) is then a third above W. A scheduler may change it,
        and should: where training brings W down to a tenth, a third of the first W is three times the last.
    from_logits : bool
        Whether p comes as logits, of which the softmax is taken.
    reduction : {"mean", "sum", "none"}
    tau : int
        The lag of the chains' mixing test in sweeps; larger follows the model more closely.
    max_sweeps : int, optional
        Of a chain in one call; ten times tau by default.
    capacity : int
        How many examples' chains are kept; the least recently used are forgotten. It should be at least the number of
        training examples, and needs m2 numbers for each.
    by_position : bool
        Whether chains without an index belong to the place in the batch; otherwise they start cold in every call.
    seed : int
    n_jobs : int, optional
        Threads over the rows.

    Notes
    -----
    The sampler runs on the processor. Tensors on an accelerator are copied there, and values and gradients back:
    4 (m1 + m2) bytes a row each way in single precision, and a synchronisation.

    Of several processes (``DistributedDataParallel``) each has chains and, if it is "auto", a temperature of its own.
    An example that another process gets in the next epoch finds the chain that was left there, or none: let the sampler
    keep examples where they are, and save the ``state_dict`` of each process.

    Examples
    --------
    >>> import torch
    >>> from gibbsot import GridCost
    >>> loss = WassersteinLoss(GridCost(3, spacing=1.0), temperature=1e-3, from_logits=True)
    >>> logits = torch.zeros(2, 3, requires_grad=True)
    >>> value = loss(logits, torch.eye(3)[:2], index=torch.tensor([4, 7]))
    >>> value.backward()
    >>> bool(logits.grad[0, 0] < 0 < logits.grad[0, 2])
    True
    """

    def __init__(
        self,
        cost: Cost | ArrayLike,
        *,
        temperature: float | str = "auto",
        from_logits: bool = False,
        reduction: str = "mean",
        tau: int = 20,
        max_sweeps: int | None = None,
        capacity: int = 50_000,
        by_position: bool = False,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__()
        self.cost = as_cost(cost)
        if temperature != "auto":
            checks.positive(temperature, "temperature")
        self.temperature: float | None = None if isinstance(temperature, str) else float(temperature)
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction: expected 'mean', 'sum' or 'none', got {reduction!r}")
        self.from_logits, self.reduction, self.by_position = from_logits, reduction, by_position
        self.tau = checks.count(tau, "tau")
        self.max_sweeps = 10 * self.tau if max_sweeps is None else checks.count(max_sweeps, "max_sweeps")
        self.n_jobs = n_jobs
        self.chains = Chains(self.cost, capacity, seed)
        self._fresh = _NEW
        self._handle = next(_handles)
        _losses[self._handle] = self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._handle = next(_handles)  # a copy has chains of its own
        _losses[self._handle] = self

    def extra_repr(self) -> str:
        m1, m2 = self.cost.shape
        return f"{m1} x {m2}, temperature={self.temperature}, chains={len(self.chains)}"

    def forward(self, p: Tensor, q: Tensor, index: Tensor | None = None) -> Tensor:
        """Return V(z) of each row, or their mean or sum.

        Parameters
        ----------
        p : tensor of shape (B, m1)
            Weights, or logits.
        q : tensor of shape (B, m2)
            Weights.
        index : tensor of int, shape (B,), optional
            The numbers of the examples, which name their chains; each at most once in a batch.
        """
        if not p.is_floating_point():
            raise TypeError(f"p: expected floating-point numbers, got {p.dtype}")
        if not q.is_floating_point():  # such as labels, one-hot
            q = q.to(p.dtype)
        if self.from_logits:
            # a softmax in half precision would not sum to one
            p = torch.softmax(p, dim=-1, dtype=torch.promote_types(p.dtype, torch.float32))
        names = None if index is None else torch.as_tensor(index)
        value, _, _ = torch.ops.gibbsot.transport(p, q, names, self._handle)
        if self.reduction == "none":
            return value
        return value.mean() if self.reduction == "mean" else value.sum()

    def get_extra_state(self) -> dict[str, Any]:
        """Return temperature and chains, for ``state_dict``."""
        arrays = {name: torch.from_numpy(x) for name, x in self.chains.arrays().items()}
        T = None if self.temperature is None else float(self.temperature)
        return {"temperature": T, "fresh": self._fresh, **arrays}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on with temperature and chains of a ``state_dict``."""
        self.chains.adopt({name: state[name].cpu().numpy() for name in ("names", "h", "sweep")})
        self.temperature, self._fresh = state["temperature"], state["fresh"]

    def _answer(self, p: Tensor, q: Tensor, index: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Run the chains; keep them only when all is well."""
        pair = self._pair(p, q)
        names = self._names(index, len(pair))
        T = self._first_temperature(pair) if self.temperature is None else self.temperature
        state = self.chains.state(names, pair)
        after, info = sampler.run(state, pair, np.full((1, self.max_sweeps), T), tau=self.tau, n_jobs=self.n_jobs)
        value, of_p = (torch.as_tensor(x).to(p) for x in (info.value, _centred(info.U)))
        of_q = torch.as_tensor(-_centred(info.L)).to(q)
        self.temperature = T
        if names[0] >= _NEW:
            self._fresh += len(names)
        else:
            self.chains.keep(names, after)
        return value, of_p, of_q

    def _pair(self, p: Tensor, q: Tensor) -> Problem:
        arrays: list[NDArray[np.float64]] = []
        for x, name, size in zip((p, q), "pq", self.cost.shape, strict=True):
            if x.ndim != 2 or x.shape[1] != size:
                raise ValueError(f"{name}: expected shape (B, {size}) to match the cost, got {tuple(x.shape)}")
            array = x.detach().cpu().double().contiguous().numpy()  # of one layout, so that sums have the same bits
            with np.errstate(invalid="ignore"):
                sums = array.sum(axis=1)
            wrong = np.flatnonzero(~((np.abs(sums - 1) <= _AWAY) & (array >= 0).all(axis=1)))
            if len(wrong):
                b = wrong[0]
                what = (
                    "has NaN or infinite entries"
                    if not np.isfinite(array[b]).all()
                    else "has negative entries"
                    if (array[b] < 0).any()
                    else f"sums to {sums[b]:.6g}"
                )
                hint = "; logits need from_logits=True" if name == "p" and not self.from_logits else ""
                raise ValueError(f"{name}: row {b} {what}; expected weights >= 0 that sum to one{hint}")
            arrays.append(array / sums[:, None])
        if len(arrays[0]) != len(arrays[1]):
            raise ValueError(f"q: expected as many rows as p has ({len(arrays[0])}), got {len(arrays[1])}")
        return problem(arrays[0], arrays[1], self.cost, ("p", "q"))

    def _names(self, index: Tensor | None, n: int) -> list[int]:
        if index is None:
            return [_NEW // 2 + b if self.by_position else self._fresh + b for b in range(n)]
        if index.shape != (n,) or index.dtype == torch.bool or index.is_floating_point() or index.is_complex():
            raise ValueError(f"index: expected {n} integers, one for each row, got {index.dtype} {tuple(index.shape)}")
        names = [int(name) for name in index.tolist()]
        if len(set(names)) < n or min(names) < 0 or max(names) >= _NEW // 2:
            raise ValueError("index: expected a different number >= 0 for each row")
        return names

    def _first_temperature(self, pair: Problem) -> float:
        some = control.sample(len(pair))
        oracle = Oracle(self.cost, pair.q[some], seed=self.chains.seed, n_jobs=self.n_jobs)
        T = float(control.heated(oracle, pair.p[some])[1].mean())
        return max(T, control.coldest(self.cost) if self.cost.finite else np.finfo(self.cost.dtype).tiny)


def _centred(potential: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return potentials less their means; a point that no finite cost leads to has a gradient of zero."""
    x = potential.astype(np.float64)
    finite = np.isfinite(x)
    if finite.all():
        return np.asarray(x - x.mean(axis=1, keepdims=True))
    x[~finite] = np.nan
    return np.nan_to_num(x - np.nanmean(x, axis=1, keepdims=True))


class GibbsTemperature:
    """Lowers the temperature of a loss, in the style of ``torch.optim.lr_scheduler``: call ``step`` once an epoch.

    Cold chains are slow: a network that outruns them follows gradients of what it was. So the learning rate should fall
    with the temperature, for example by ``CosineAnnealingLR``, or ``tau`` be larger.

    Parameters
    ----------
    loss : WassersteinLoss
    gamma : float
        What an epoch leaves of the temperature.
    least : float
        As a share of the first temperature, below which it stays.

    Examples
    --------
    >>> from gibbsot import GridCost
    >>> loss = WassersteinLoss(GridCost(3), temperature=1.0)
    >>> scheduler = GibbsTemperature(loss, gamma=0.5)
    >>> scheduler.step()
    >>> loss.temperature
    0.5
    """

    def __init__(self, loss: WassersteinLoss, gamma: float = 0.9, least: float = 1e-2) -> None:
        self.loss = loss
        self.gamma, self.least = checks.positive(gamma, "gamma"), checks.positive(least, "least")
        if self.gamma > 1:
            raise ValueError(f"gamma: expected at most one, got {gamma!r}")
        self.last_epoch = 0
        self._first: float | None = None

    def step(self) -> None:
        """Lower the temperature; before the loss has chosen one, nothing happens."""
        T = self.loss.temperature
        if T is None:
            return
        if self._first is None:
            self._first = T
        self.last_epoch += 1
        self.loss.temperature = self._first * max(self.gamma**self.last_epoch, self.least)

    def get_last_temperature(self) -> float | None:
        """Return the temperature."""
        return self.loss.temperature

    def state_dict(self) -> dict[str, Any]:
        """Return all but the loss."""
        return {name: value for name, value in self.__dict__.items() if name != "loss"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a ``state_dict``."""
        self.__dict__.update(state)


@torch.library.custom_op("gibbsot::transport", mutates_args=())
def _transport(p: Tensor, q: Tensor, index: Tensor | None, handle: int) -> tuple[Tensor, Tensor, Tensor]:
    # an operator that the compiler looks at from outside; the loss is found by its handle
    return _losses[handle]._answer(p, q, index)


@_transport.register_fake
def _(p: Tensor, q: Tensor, index: Tensor | None, handle: int) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG001
    return p.new_empty(p.shape[0]), p.new_empty(p.shape), q.new_empty(q.shape)


def _keep_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: ARG001
    ctx.save_for_backward(*output[1:])


def _gradients(ctx: Any, of_value: Tensor, *_: Any) -> tuple[Tensor, Tensor, None, None]:
    of_p, of_q = ctx.saved_tensors
    return of_value[:, None] * of_p, of_value[:, None].to(of_q.dtype) * of_q, None, None


_transport.register_autograd(_gradients, setup_context=_keep_gradients)
