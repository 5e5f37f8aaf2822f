"""The operators: opaque to the compiler, differentiable once, with rules for ``torch.func``.

An operator takes tensors and numbers only. What it evaluates is found by a number, a handle; see `register`. Compiled
code calls the operators themselves, all other code through an ``autograd.Function``, for two reasons: operators do not
support ``torch.func``, and would give second derivatives of zero.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..oracle.gradients import Weights, centred, cloud_gradients
from ..oracle.pairs import NEW

Array = NDArray[np.float64]

_SUM_TOLERANCE = 1e-3  # how far sums of weights may be apart; more in half precision, by its rounding


class Evaluator(Protocol):
    """Computes values and gradients of transport costs between rows of weights."""

    def evaluate(
        self, p: Array, q: Array, ids: list[int] | None, training: bool, tolerance: float, moves: bool
    ) -> tuple[Any, ...]:
        """Return values, gradients for p and for q, and perhaps more."""


_evaluators: weakref.WeakValueDictionary[int, Evaluator] = weakref.WeakValueDictionary()
_handles = itertools.count()


def register(evaluator: Evaluator) -> int:
    """Return the handle of an evaluator, which is valid as long as the evaluator exists."""
    handle = next(_handles)
    _evaluators[handle] = evaluator
    return handle


def computed(*dtypes: torch.dtype) -> torch.dtype:
    """Return the type of values: that of the tensors, and float32 for half precisions."""
    found = torch.float32
    for dtype in dtypes:
        found = torch.promote_types(found, dtype)
    return found


def _tolerance(*dtypes: torch.dtype) -> float:
    """Return how far sums of weights of these types may be apart, relatively."""
    return max(_SUM_TOLERANCE, *(4 * torch.finfo(dtype).eps for dtype in dtypes))


def _arrays(*tensors: Tensor) -> list[Array]:
    """Return tensors as arrays of double precision; from another device in one copy."""
    if all(x.device.type == "cpu" for x in tensors):
        # one layout, for bit-identical sums
        return [x.detach().double().contiguous().numpy() for x in tensors]
    dtype = computed(*(x.dtype for x in tensors))
    flat = torch.cat([x.detach().to(dtype).reshape(-1) for x in tensors]).cpu().double()
    parts = torch.split(flat, [x.numel() for x in tensors])
    return [part.reshape(x.shape).numpy() for part, x in zip(parts, tensors, strict=True)]


def _tensors(arrays: list[Array], like: list[Tensor]) -> list[Tensor]:
    """Return arrays with the types and the device of tensors, in at least single precision, in one copy."""
    device, dtype = like[0].device, computed(*(x.dtype for x in like))
    if device.type == "cpu":
        return [torch.as_tensor(a).to(computed(x.dtype)) for a, x in zip(arrays, like, strict=True)]
    flat = torch.cat([torch.as_tensor(a).to(dtype).reshape(-1) for a in arrays]).to(device)
    parts = torch.split(flat, [a.size for a in arrays])
    return [part.reshape(a.shape).to(computed(x.dtype)) for part, a, x in zip(parts, arrays, like, strict=True)]


def _product(of_value: Tensor, gradient: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of a tensor, given that of values."""
    while of_value.ndim < gradient.ndim:
        of_value = of_value.unsqueeze(-1)
    return (of_value * gradient).to(x.dtype)


class _Gradient(torch.autograd.Function):
    """The product of the gradients of values and those of a cost, which has no derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(of_value: Tensor, gradient: Tensor, x: Tensor) -> Tensor:
        return _product(of_value, gradient, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *of_gradient: Tensor) -> Any:
        raise RuntimeError(
            "transport costs can be differentiated once only: they are piecewise linear in the weights, "
            "and second derivatives in the points are not implemented"
        )


# --- weights ---------------------------------------------------------------------------------------------------------


@torch.library.custom_op("gibbsot::transport", mutates_args=())
def _transport(
    p: Tensor, q: Tensor, index: Tensor | None, handle: int, normalize: bool, training: bool, moves: bool
) -> tuple[Tensor, Tensor, Tensor]:
    if len(p) == 0:
        return _fake_transport(p, q)
    ids = None if index is None else _checked_ids(index)
    try:
        weights = [Weights(x, name, normalize) for x, name in zip(_arrays(p, q), "pq", strict=True)]
        x, y = (one.rows for one in weights)
        found = _evaluators[handle].evaluate(x, y, ids, training, _tolerance(p.dtype, q.dtype), moves)
    except ValueError as error:
        if "p: has negative" in str(error):
            raise ValueError(f"{error}; logits need from_logits=True, or a softmax") from None
        raise
    gradients = [one.gradient(x) for one, x in zip(weights, found[1:3], strict=True)]
    value, of_p, of_q = _tensors([found[0], *gradients], [p, p, q])
    return value.to(computed(p.dtype, q.dtype)), of_p, of_q


def _checked_ids(index: Tensor) -> list[int]:
    """Return the ids of examples."""
    ids = [int(id) for id in index.tolist()]
    if len(set(ids)) < len(ids) or min(ids) < 0 or max(ids) >= NEW // 2:
        raise ValueError("index: expected a different number >= 0 for each example")
    return ids


@_transport.register_fake
def _fake_transport(
    p: Tensor, q: Tensor, index: Tensor | None = None, handle: int = 0, normalize: bool = False, training: bool = True,
    moves: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    value = p.new_empty(p.shape[0], dtype=computed(p.dtype, q.dtype))
    of_p, of_q = (x.new_empty(x.shape, dtype=computed(x.dtype)) for x in (p, q))
    return value, of_p, of_q


def _keep_transport(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2], *output[1:])


def _transport_gradients(ctx: Any, of_value: Tensor, *_: Any) -> Any:
    p, q, of_p, of_q = ctx.saved_tensors
    return _product(of_value, of_p, p), _product(of_value, of_q, q), None, None, None, None, None


_transport.register_autograd(_transport_gradients, setup_context=_keep_transport)


class _Transport(torch.autograd.Function):
    """Values of rows of weights, differentiable in both measures."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return torch.ops.gibbsot.transport(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        _keep_transport(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, of_value: Tensor, *_: Any) -> Any:
        p, q, of_p, of_q = ctx.saved_tensors
        return _Gradient.apply(of_value, of_p, p), _Gradient.apply(of_value, of_q, q), None, None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, p: Tensor, q: Tensor, index: Tensor | None, *options: Any
    ) -> tuple[Any, tuple[int, int, int]]:
        if index is not None:
            raise NotImplementedError("index: examples have no numbers under vmap; expected index=None there")
        p, q = (_batched(x, d, info.batch_size) for x, d in zip((p, q), in_dims[:2], strict=True))
        found = _Transport.apply(p.flatten(0, 1), q.flatten(0, 1), None, *options)
        return tuple(x.reshape(*p.shape[:2], *x.shape[1:]) for x in found), (0, 0, 0)


def transport(
    p: Tensor, q: Tensor, handle: int, normalize: bool, index: Tensor | None = None, training: bool = False
) -> Tensor:
    """Return the values of rows of weights, differentiable in both measures."""
    # a target that needs no gradient stays; under torch.func none seems to need one, and exact duals are right for both
    inputs = p, q, index, handle, normalize, training, bool(q.requires_grad)
    if torch.compiler.is_compiling():
        return torch.ops.gibbsot.transport(*inputs)[0]
    return _Transport.apply(*inputs)[0]


def _batched(x: Tensor, dim: int | None, size: int) -> Tensor:
    """Return a tensor with the dimension of vmap in front."""
    return x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


# --- clouds of points ------------------------------------------------------------------------------------------------


@torch.library.custom_op("gibbsot::clouds", mutates_args=())
def _clouds(
    p: Tensor, q: Tensor, x: Tensor, y: Tensor, rows: Tensor, columns: Tensor, metric: str,
    penalty: list[float] | None, kl: list[float] | None, normalize: bool, n_jobs: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    if len(rows) < 2:
        return _fake_clouds(p, q, x, y, rows, columns, metric, penalty, kl, normalize, n_jobs)
    cuts = [offsets.tolist()[1:-1] for offsets in (rows, columns)]
    parts = [np.split(a, cut) for a, cut in zip(_arrays(p, q, x, y), cuts * 2, strict=True)]
    weights = [[Weights(w[None], name, normalize) for w in parts[side]] for side, name in enumerate("pq")]
    given = zip(*parts[2:], *weights, strict=True)
    clouds = [(points, others, a.rows[0], b.rows[0]) for points, others, a, b in given]
    left, apart = (None if pair is None else (pair[0], pair[1]) for pair in (penalty, kl))
    found = cloud_gradients(clouds, metric, left, _tolerance(p.dtype, q.dtype), n_jobs, apart)
    gradients = [np.array([one.value for one in found])]
    for side, name in enumerate("pq"):
        each = [
            (centred(x) if penalty is None and kl is None else x) for x in (getattr(one, name)[None] for one in found)
        ]
        gradients.append(np.concatenate([w.gradient(x)[0] for w, x in zip(weights[side], each, strict=True)]))
    gradients += [np.concatenate([getattr(one, name) for one in found]) for name in "xy"]
    value, of_p, of_q, of_x, of_y = _tensors(gradients, [x, p, q, x, y])
    return value.to(computed(x.dtype, y.dtype)), of_p, of_q, of_x, of_y


@_clouds.register_fake
def _fake_clouds(
    p: Tensor, q: Tensor, x: Tensor, y: Tensor, rows: Tensor, columns: Tensor, metric: str,
    penalty: list[float] | None, kl: list[float] | None, normalize: bool, n_jobs: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    value = x.new_empty(rows.shape[0] - 1, dtype=computed(x.dtype, y.dtype))
    of_p, of_q, of_x, of_y = (z.new_empty(z.shape, dtype=computed(z.dtype)) for z in (p, q, x, y))
    return value, of_p, of_q, of_x, of_y


def _keep_clouds(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:6], *output[1:])


def _cloud_products(ctx: Any, of_value: Tensor, product: Any) -> Any:
    *given, rows, columns, of_p, of_q, of_x, of_y = ctx.saved_tensors
    found = []
    for x, gradient, offsets in zip(given, (of_p, of_q, of_x, of_y), (rows, columns) * 2, strict=True):
        pair = torch.bucketize(torch.arange(x.shape[0]), offsets[1:], right=True).to(of_value.device)
        found.append(product(of_value[pair], gradient, x))
    return *found, *(None,) * 7


def _cloud_gradients(ctx: Any, of_value: Tensor, *_: Any) -> Any:
    return _cloud_products(ctx, of_value, _product)


_clouds.register_autograd(_cloud_gradients, setup_context=_keep_clouds)


class _Clouds(torch.autograd.Function):
    """Values of pairs of clouds one after another, differentiable in weights and points."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return torch.ops.gibbsot.clouds(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        _keep_clouds(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, of_value: Tensor, *_: Any) -> Any:
        return _cloud_products(ctx, of_value, _Gradient.apply)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, tuple[int, ...]]:
        n = info.batch_size
        tensors = [_batched(x, d, n) for x, d in zip(inputs[:4], in_dims[:4], strict=True)]
        offsets = []
        for given, dim, x in zip(inputs[4:6], in_dims[4:6], tensors[:2], strict=True):
            if dim is not None:
                raise NotImplementedError("offsets: expected the same for all under vmap")
            starts = given[:-1] + x.shape[1] * torch.arange(n)[:, None]
            offsets.append(torch.cat([starts.flatten(), torch.tensor([n * x.shape[1]])]))
        found = _Clouds.apply(*(x.flatten(0, 1) for x in tensors), *offsets, *inputs[6:])
        return tuple(x.reshape(n, -1, *x.shape[1:]) for x in found), (0,) * 5


def clouds(
    tensors: tuple[Tensor, Tensor, Tensor, Tensor],
    offsets: tuple[Tensor, Tensor],
    metric: str,
    penalty: tuple[float, float] | None,
    kl: tuple[float, float] | None,
    normalize: bool,
    threads: int,
) -> Tensor:
    """Return the values of pairs of clouds one after another, differentiable in weights and points.

    The clouds of pair b are the entries from ``rows[b]`` to ``rows[b + 1]`` of p and x, and likewise of q and y.
    """
    inputs = *tensors, *offsets, metric, penalty, kl, normalize, threads
    if torch.compiler.is_compiling():
        return torch.ops.gibbsot.clouds(*inputs)[0]
    return _Clouds.apply(*inputs)[0]
