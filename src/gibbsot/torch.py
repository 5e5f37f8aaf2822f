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

from .core import validation
from .core.costs import Cost, as_cost
from .core.problems import Problem, dual_value, lower_potential, problem
from .sampling import sampler
from .sampling import temperature as temperatures
from .sampling.annealing.tracking import GapTracking, GeometricDecay
from .solvers import evaluation
from .solvers.chains import Chains
from .solvers.oracle import Oracle
from .solvers.partial import least_value, penalty_cost, penalty_problem

_SUM_TOLERANCE = 1e-3  # how far a sum of weights may be from one
_NEW = 2**62  # ids of chains that are used once start here, far from those of examples
_TRACKING = GapTracking()
_NUMBERS = "cooling", "_follows", "_T", "_fresh"  # attributes that a state_dict has beside the chains
_losses: weakref.WeakValueDictionary[int, WassersteinLoss] = weakref.WeakValueDictionary()
_handles = itertools.count()


class WassersteinLoss(torch.nn.Module):
    r"""The transport cost between rows of weights, with the paper's gradient.

    .. math:: W(p, q) \approx V(z) = \langle p, U \rangle - \langle q, L \rangle, \qquad
        \nabla_p = U, \quad \nabla_q = -L

    Both gradients are centred, so that their entries sum to zero and a step along them stays on the simplex. The chain
    of every example continues from its state in the last call with that example.

    With a penalty c, mass may be left over and costs c for each unit, on either side, as in `solve` with ``penalty=c``:
    weights may have any sums, and gradients are not centred, as they tell what more mass costs.

    Parameters
    ----------
    cost : Cost or array of shape (m1, m2)
        The cost; its dtype is the precision of the computation. Values and gradients have the dtype of the input.
    temperature : "auto" or float
        "auto" follows the loss: it is chosen at the first call, as for the models. From then on it rises where V(z) and
        the lower bound of W by its potentials are close, and falls where they are far apart, so that V(z) stays
        somewhat above W. A number is the temperature itself, which stays constant.
    from_logits : bool
        Whether p comes as logits, of which the softmax is taken.
    reduction : {"mean", "sum", "none"}
        What the rows' values are reduced to.
    tau : int
        The lag of the chains' mixing test in sweeps; with a larger one chains follow the model more closely.
    max_sweeps : int, optional
        The largest number of sweeps of a chain in one call; ten times tau by default.
    capacity : int
        The number of examples whose chains are kept; the least recently used are dropped. It should be at least the
        number of training examples, and needs m2 numbers for each.
    by_position : bool
        Whether chains without an index belong to the position in the batch; otherwise they start anew in every call.
    seed : int
        The seed of the chains' noise.
    n_jobs : int, optional
        Threads over the rows; results are bit-identical for every number.
    penalty : float, optional
        The cost of a unit of mass that is not transported, on either side.

    Attributes
    ----------
    temperature : float or None
        The temperature of the next call; None before the first one if it is "auto". After it is set to a number, it
        no longer follows the loss.
    cooling : float
        The factor by which a scheduler has lowered a given temperature, or the gap that "auto" keeps; 1 at first.
    chains : Chains
        The chains of the examples.
    cost, from_logits, reduction, tau, max_sweeps, by_position, n_jobs, penalty
        The parameters.

    Notes
    -----
    In evaluation, that is in ``eval`` mode or without gradients (``torch.no_grad``), the temperature does not change,
    except that "auto" chooses one in a first call. Chains do change: give validation data an index that no training
    example has, or none.

    The sampler runs on the CPU. Tensors on an accelerator are copied to it, and values and gradients back:
    4 (m1 + m2) bytes for each row and direction in single precision, and a synchronisation.

    With several processes (``DistributedDataParallel``) each has its own chains and, if it is "auto", its own
    temperature. An example that moves to another process in the next epoch uses the chain that this process has, if
    any: let the data sampler keep examples in their process, and save the ``state_dict`` of each process.

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
        tau: int = 40,
        max_sweeps: int | None = None,
        capacity: int = 50_000,
        by_position: bool = False,
        seed: int = 0,
        n_jobs: int | None = None,
        penalty: float | None = None,
    ) -> None:
        super().__init__()
        self.cost, self.penalty = as_cost(cost), penalty
        self._cost = self.cost if penalty is None else penalty_cost(self.cost, penalty)  # of the chains
        self._T = validation.initial_temperature(temperature)
        self.cooling = 1.0
        self._follows = self._T is None
        self._least, self._T_min = least_value(self.cost, penalty), temperatures.minimum(self._cost)
        validation.choice(reduction, "reduction", ("mean", "sum", "none"))
        self.from_logits, self.reduction, self.by_position = from_logits, reduction, by_position
        self.tau = validation.count(tau, "tau")
        self.max_sweeps = 10 * self.tau if max_sweeps is None else validation.count(max_sweeps, "max_sweeps")
        self.n_jobs = n_jobs
        self.chains = Chains(self._cost, capacity, seed)
        self._fresh = _NEW
        self._handle = next(_handles)
        _losses[self._handle] = self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._handle = next(_handles)  # a copy has its own chains
        _losses[self._handle] = self

    @property
    def temperature(self) -> float | None:
        return self._T if self._T is None or self._follows else self._T * self.cooling

    @temperature.setter
    def temperature(self, T: float) -> None:
        self._T, self._follows, self.cooling = validation.positive(T, "temperature"), False, 1.0

    def extra_repr(self) -> str:
        m1, m2 = self.cost.shape
        return f"{m1} x {m2}, temperature={self.temperature}, chains={len(self.chains)}"

    def forward(self, p: Tensor, q: Tensor, index: Tensor | None = None) -> Tensor:
        """Return V(z) of each row, or their mean or sum: estimates of W, which are not certified.

        Parameters
        ----------
        p : tensor of shape (B, m1)
            Weights, or logits.
        q : tensor of shape (B, m2)
            Weights.
        index : tensor of int, shape (B,), optional
            The ids of the examples, which determine their chains; each at most once in a batch.

        Returns
        -------
        tensor
            Of shape (B,) for ``reduction="none"``, otherwise a scalar, over the rows of this batch. With the
            temperature "auto" it is somewhat above W; `solve_batch` has certified values.
        """
        if not p.is_floating_point():
            raise TypeError(f"p: expected floating-point numbers, got {p.dtype}")
        if not q.is_floating_point():  # such as labels, one-hot
            q = q.to(p.dtype)
        if self.from_logits:
            # a softmax in half precision would not sum to one
            p = torch.softmax(p, dim=-1, dtype=torch.promote_types(p.dtype, torch.float32))
        ids = None if index is None else torch.as_tensor(index)
        training = self.training and torch.is_grad_enabled()
        value, _, _ = torch.ops.gibbsot.transport(p, q, ids, self._handle, training)
        if self.reduction == "none":
            return value
        return value.mean() if self.reduction == "mean" else value.sum()

    def get_extra_state(self) -> dict[str, Any]:
        """Return temperature and chains, for ``state_dict``.

        Returns
        -------
        dict
            Numbers and tensors.
        """
        arrays = {name: torch.from_numpy(x) for name, x in self.chains.arrays().items()}
        return {**{name: getattr(self, name) for name in _NUMBERS}, **arrays}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load temperature and chains from a ``state_dict``.

        Parameters
        ----------
        state : dict
            What `get_extra_state` returned, in this or an earlier version.
        """
        self.chains.load_state({name: x.cpu().numpy() for name, x in state.items() if name not in _NUMBERS})
        for name in _NUMBERS:
            setattr(self, name, state[name])

    def _evaluate(self, p: Tensor, q: Tensor, index: Tensor | None, training: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return values and gradients; chains and temperature change only after nothing can fail any more."""
        pair = self._problem(p, q)
        ids = self._ids(index, len(pair))
        T = self._initial_temperature(pair) if self.temperature is None else self.temperature
        state = self.chains.state(ids, pair)
        after, info = sampler.run(state, pair, np.full((1, self.max_sweeps), T), tau=self.tau, n_jobs=self.n_jobs)
        values, U, L = info.value, _centred(info.U), _centred(info.L)
        if self.penalty is not None:  # the weight of each additional point is the mass of the other measure
            values = pair.mass * values
            U, L = info.U[:, :-1] - info.L[:, -1:], info.L[:, :-1] - info.U[:, -1:]
        value, of_p, of_q = torch.as_tensor(values).to(p), torch.as_tensor(U).to(p), torch.as_tensor(-L).to(q)
        if self._follows:
            self._T = self._next_temperature(T, pair, info) if training else T
        if ids[0] >= _NEW:
            self._fresh += len(ids)
        else:
            self.chains.keep(ids, after)
        return value, of_p, of_q

    def _problem(self, p: Tensor, q: Tensor) -> Problem:
        arrays = [self._weights(x, name, size) for x, name, size in zip((p, q), "pq", self.cost.shape, strict=True)]
        if len(arrays[0]) != len(arrays[1]):
            raise ValueError(f"q: expected as many rows as p has ({len(arrays[0])}), got {len(arrays[1])}")
        if self.penalty is not None:
            weights = [(x, x.sum(axis=1)) for x in arrays]
            return penalty_problem(weights[0], weights[1], self._cost)
        return problem(arrays[0], arrays[1], self.cost, ("p", "q"))

    def _weights(self, x: Tensor, name: str, size: int) -> NDArray[np.float64]:
        """Return a tensor as rows of weights that sum to one, unless there is a penalty."""
        if x.ndim != 2 or x.shape[1] != size:
            raise ValueError(f"{name}: expected shape (B, {size}) to match the cost, got {tuple(x.shape)}")
        # one layout, for bit-identical sums
        array: NDArray[np.float64] = x.detach().cpu().double().contiguous().numpy()
        try:
            sums = validation.check_weights(array, name)
            if self.penalty is not None:
                return array
            if (np.abs(sums - 1) > _SUM_TOLERANCE).any():  # half precision may miss that by a little
                b = np.flatnonzero(np.abs(sums - 1) > _SUM_TOLERANCE)[0]
                raise ValueError(f"{name}: row {b} sums to {sums[b]:.6g}; expected weights that sum to one")
        except ValueError as error:
            hint = "; logits need from_logits=True" if name == "p" and not self.from_logits else ""
            raise ValueError(f"{error}{hint}") from None
        return array / sums[:, None]

    def _ids(self, index: Tensor | None, n: int) -> list[int]:
        if index is None:
            return [_NEW // 2 + b if self.by_position else self._fresh + b for b in range(n)]
        if index.shape != (n,) or index.dtype == torch.bool or index.is_floating_point() or index.is_complex():
            raise ValueError(f"index: expected {n} integers, one for each row, got {index.dtype} {tuple(index.shape)}")
        ids = [int(id) for id in index.tolist()]
        if len(set(ids)) < n or min(ids) < 0 or max(ids) >= _NEW // 2:
            raise ValueError("index: expected a different number >= 0 for each row")
        return ids

    def _initial_temperature(self, pair: Problem) -> float:
        some = evaluation.sample(len(pair))
        m1, m2 = self.cost.shape
        options: dict[str, Any] = {"seed": self.chains.seed, "n_jobs": self.n_jobs, "penalty": self.penalty}
        oracle = Oracle(self.cost, pair.q[some, :m2], **options)
        _, T = evaluation.initial_temperatures(oracle, pair.p[some, :m1])
        return max(float(T.mean()), self._T_min)

    def _next_temperature(self, T: float, pair: Problem, info: sampler.Info) -> float:
        L = lower_potential(pair, info.U, self.n_jobs)
        V, lower = float(info.value.mean()), float(dual_value(pair, info.U, L).mean())
        return _TRACKING.update(T, V - self._least, lower - self._least, self._T_min, self.cooling)


def _centred(potential: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return potentials minus their means; a point that only infinite costs lead to has a gradient of zero."""
    x = potential.astype(np.float64)
    finite = np.isfinite(x)
    if finite.all():
        return np.asarray(x - x.mean(axis=1, keepdims=True))
    x[~finite] = np.nan
    return np.nan_to_num(x - np.nanmean(x, axis=1, keepdims=True))


class GibbsTemperature:
    r"""Lowers the temperature of a loss, in the style of ``torch.optim.lr_scheduler``: call ``step`` once an epoch.

    .. math:: T_k = T_0 \max(\gamma^k, \mathrm{least})

    A temperature that follows the loss needs no scheduler; for it, this lowers the gap between V(z) and W that it
    keeps. Chains mix slowly at low temperatures: a network that changes faster uses outdated gradients. So the learning
    rate should fall with the temperature, for example by ``CosineAnnealingLR``, or ``tau`` be larger.

    Parameters
    ----------
    loss : WassersteinLoss
        The loss whose ``cooling`` is changed.
    gamma : float
        The factor of one epoch, at most 1.
    least : float
        The lowest factor, at most 1.

    Attributes
    ----------
    loss, gamma, least
        The parameters.
    last_epoch : int
        The number of calls of `step`.

    Examples
    --------
    >>> from gibbsot import GridCost
    >>> loss = WassersteinLoss(GridCost(3), temperature=1.0)
    >>> scheduler = GibbsTemperature(loss, gamma=0.5)
    >>> scheduler.step()
    >>> loss.temperature
    0.5
    """

    def __init__(self, loss: WassersteinLoss, gamma: float = 0.95, least: float = 0.1) -> None:
        self.loss = loss
        self.gamma, self.least = validation.positive(gamma, "gamma"), validation.positive(least, "least")
        for name, value in (("gamma", gamma), ("least", least)):
            if value > 1:
                raise ValueError(f"{name}: expected at most one, got {value!r}")
        self.last_epoch = 0

    def step(self) -> None:
        """Lower the temperature, or the gap that is kept."""
        self.last_epoch += 1
        self.loss.cooling = GeometricDecay(self.gamma, self.least).at(self.last_epoch)

    def get_last_temperature(self) -> float | None:
        """Return the temperature of the loss.

        Returns
        -------
        float or None
            None before the first call of a loss with temperature "auto".
        """
        return self.loss.temperature

    def state_dict(self) -> dict[str, Any]:
        """Return the state without the loss.

        Returns
        -------
        dict
            Numbers by name.
        """
        return {name: value for name, value in self.__dict__.items() if name != "loss"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a ``state_dict``.

        Parameters
        ----------
        state : dict
            What `state_dict` returned.
        """
        self.__dict__.update(state)


@torch.library.custom_op("gibbsot::transport", mutates_args=())
def _transport(
    p: Tensor, q: Tensor, index: Tensor | None, handle: int, training: bool
) -> tuple[Tensor, Tensor, Tensor]:
    # an operator that is opaque to the compiler; the loss is found by its handle
    return _losses[handle]._evaluate(p, q, index, training)


@_transport.register_fake
def _(p: Tensor, q: Tensor, index: Tensor | None, handle: int, training: bool) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG001
    return p.new_empty(p.shape[0]), p.new_empty(p.shape), q.new_empty(q.shape)


def _keep_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: ARG001
    ctx.save_for_backward(*output[1:])


def _gradients(ctx: Any, of_value: Tensor, *_: Any) -> tuple[Tensor, Tensor, None, None, None]:
    of_p, of_q = ctx.saved_tensors
    return of_value[:, None] * of_p, of_value[:, None].to(of_q.dtype) * of_q, None, None, None


_transport.register_autograd(_gradients, setup_context=_keep_gradients)
