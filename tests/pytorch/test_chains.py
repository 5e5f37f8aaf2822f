"""Chains as a loss, against POT's exact values and duals, and as PyTorch uses it: compiled, saved, distributed."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import ot
import pytest

from cases import measures
from gibbsot import DenseCost, GridCost, PointCost, coulomb, solve_batch
from gibbsot.sampling import sampler

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from gibbsot.schedules import AdaptiveCooling  # noqa: E402
from gibbsot.torch import GibbsTemperature, WassersteinLoss  # noqa: E402

GRID = GridCost((4, 5))


def gibbs_loss(cost, **options) -> WassersteinLoss:
    return WassersteinLoss(cost, method="gibbs", **options)


def batch(
    n: int = 6, seed: int = 0, dtype=torch.float64, zeros: float = 0.3, shape=GRID.shape
) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    p, q = (torch.tensor(measures(rng, n, size, zeros), dtype=dtype) for size in shape)
    return p.requires_grad_(), q.requires_grad_()


def logits(n: int = 6, seed: int = 0, dtype=torch.float64) -> Tensor:
    return torch.randn(n, 20, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def exact(P: Tensor, Q: Tensor, M: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """POT's values and potentials, centred."""
    M = np.where(np.isinf(M), 1e3, M)
    found = [
        ot.emd2(p, q, M, return_matrix=True)[1] for p, q in zip(P.detach().numpy(), Q.detach().numpy(), strict=True)
    ]
    U, V = (np.array([log[name] for log in found]) for name in "uv")
    values = np.array([ot.emd2(p, q, M) for p, q in zip(P.detach().numpy(), Q.detach().numpy(), strict=True)])
    return values, U - U.mean(axis=1, keepdims=True), V - V.mean(axis=1, keepdims=True)


def annealed(
    loss: WassersteinLoss, p: Tensor, q: Tensor, index: Tensor | None, last: float = 1e-4, calls: int = 40
) -> np.ndarray:
    """Cool chains to a share of the exact values, which are returned."""
    W = exact(p.double(), q.double(), loss.cost.matrix())[0]
    with torch.no_grad():
        for T in W.mean() * np.geomspace(0.3, last, calls):
            loss.temperature = float(T)
            loss(p, q, index)
    return W


def states(loss: WassersteinLoss) -> dict:
    return {name: x.numpy() if isinstance(x, Tensor) else x for name, x in loss.get_extra_state().items()}


def same(first: dict, other: dict) -> None:
    assert first.keys() == other.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], other[name], err_msg=name)


@pytest.mark.parametrize("kind", ["grid", "dense", "points"])
def test_values_and_gradients_are_those_of_the_exact_dual(kind):
    rng = np.random.default_rng(0)
    cost = {
        "grid": GRID,
        "dense": DenseCost(rng.random((12, 17))),
        "points": PointCost(rng.normal(size=(12, 2)), rng.normal(size=(17, 2))),
    }[kind]
    for seed in range(2):
        # all points have weight, as off the support POT's potentials are anyone's
        p, q = batch(seed=seed, zeros=0, shape=cost.shape)
        _, U, V = exact(p, q, cost.matrix())
        loss, index = gibbs_loss(cost, max_sweeps=5000, reduction="none"), torch.arange(6)
        W = annealed(loss, p, q, index, last=1e-6, calls=300)
        value = loss(p, q, index)
        value.sum().backward()
        np.testing.assert_allclose(value.detach(), W, rtol=0.002)
        for found, wanted in ((p.grad.numpy(), U), (q.grad.numpy(), V)):
            lengths = np.linalg.norm(found), np.linalg.norm(wanted)
            assert (found * wanted).sum() > 0.99 * lengths[0] * lengths[1]
            # of one row both may be right, where an arc of the plan carries next to nothing
            cosines = (found * wanted).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(wanted, axis=1)
            assert np.median(cosines) > 0.999
            np.testing.assert_allclose(*lengths, rtol=0.05)
            np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-12)


def test_gradcheck_in_the_low_temperature_limit():
    """Central differences of V(z) itself; a step off the simplex is normalised away, in both measures."""
    loss, index = gibbs_loss(GridCost(4), reduction="none", max_sweeps=200), torch.arange(3)
    x, y = (torch.tensor(np.random.default_rng(k).normal(size=(3, 4))).requires_grad_() for k in (3, 4))

    def function(x: Tensor, y: Tensor) -> Tensor:
        return loss(torch.softmax(x, 1), torch.softmax(y, 1), index)

    annealed(loss, torch.softmax(x, 1), torch.softmax(y, 1), index, last=1e-12)
    assert torch.autograd.gradcheck(function, (x, y), eps=1e-5, atol=1e-6, rtol=1e-4)


def test_logits():
    x, q = logits(), batch()[1].detach()
    first, other = (gibbs_loss(GRID, temperature=0.01, from_logits=given) for given in (True, False))
    value = first(x, q, torch.arange(6))
    value.backward()
    found, x.grad = x.grad, None
    by_hand = other(torch.softmax(x, 1), q, torch.arange(6))
    by_hand.backward()
    torch.testing.assert_close((value, found), (by_hand, x.grad), rtol=0, atol=0)
    torch.testing.assert_close(found.sum(1), torch.zeros(6, dtype=torch.float64), atol=1e-12, rtol=0)


def test_reductions():
    p, q = batch()
    rows, mean, total = (gibbs_loss(GRID, temperature=0.01, reduction=how)(p, q) for how in ("none", "mean", "sum"))
    assert rows.shape == (6,)
    torch.testing.assert_close(rows.mean(), mean)
    torch.testing.assert_close(rows.sum(), total)
    (2 * mean).backward()
    of_mean, p.grad = p.grad, None
    total.backward()
    torch.testing.assert_close(of_mean, p.grad / 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cost", [np.float32, np.float64])
def test_types_follow_the_input(dtype, cost):
    p, q = batch(dtype=dtype)
    loss, index = gibbs_loss(GridCost((4, 5), dtype=cost), max_sweeps=1000), torch.arange(6)
    W = annealed(loss, p, q, index)
    value = loss(p, q, index)
    value.backward()
    assert value.dtype == p.grad.dtype == q.grad.dtype == dtype
    np.testing.assert_allclose(value.item(), W.mean(), rtol=0.01)


def test_mixed_types():
    p, q = batch()[0], batch(dtype=torch.float32)[1]
    loss = gibbs_loss(GRID)
    loss(p, q).backward()
    assert (p.grad.dtype, q.grad.dtype) == (torch.float64, torch.float32)
    x = logits(dtype=torch.bfloat16)
    value = gibbs_loss(GRID, from_logits=True)(x, q.detach())
    value.backward()
    assert (value.dtype, x.grad.dtype) == (torch.float32, torch.bfloat16)
    labels = torch.nn.functional.one_hot(torch.arange(6), 20)
    loss(p, labels).backward()
    with pytest.raises(TypeError, match="p: expected a tensor of floating"):
        loss(labels, p)


def test_tensors_that_are_not_contiguous():
    p, q = batch()
    index = torch.arange(12)[::2]
    plain, turned = (gibbs_loss(GRID, temperature=0.01) for _ in range(2))
    a = plain(p, q, index.contiguous())
    b = turned(p.t().contiguous().t(), q.t().contiguous().t(), index)
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_no_grad_moves_the_chains_too():
    p, q = batch()
    first, other = gibbs_loss(GRID), gibbs_loss(GRID)
    with torch.no_grad():
        value = first(p, q, torch.arange(6))
    assert not value.requires_grad
    torch.testing.assert_close(value, other(p, q, torch.arange(6)).detach(), rtol=0, atol=0)
    same(first.store.arrays(), other.store.arrays())
    with torch.inference_mode():
        assert first(p, q, torch.arange(6)) > 0


def test_twice_in_one_graph():
    """Each use has the gradient of its own answer, and the sum of both comes out."""
    p, q = batch()
    index, grads = torch.arange(6), []
    for use in (0, 1, None):
        loss = gibbs_loss(GRID, temperature=0.01)
        values = loss(p, q, index), loss(p, q.flip(0), index)
        (sum(values) if use is None else values[use]).backward()
        grads.append(p.grad)
        p.grad = None
    torch.testing.assert_close(grads[0] + grads[1], grads[2])
    assert not torch.equal(grads[0], grads[1])


def test_one_tensor_on_both_sides():
    p, _ = batch()
    gibbs_loss(GRID, temperature=1e-3)(p, p).backward()
    assert torch.isfinite(p.grad).all()


def test_a_second_derivative_raises():
    p, q = batch()
    (of_p,) = torch.autograd.grad(gibbs_loss(GRID)(p, q), p, create_graph=True)
    with pytest.raises(RuntimeError, match="can be differentiated once only"):
        of_p.square().sum().backward()


def test_infinite_costs():
    """A point that no finite cost leads to has a gradient of zero; all others a finite one."""
    cost = coulomb(np.arange(5) + 0.5)
    p, q = (torch.full((2, 5), 0.2, dtype=torch.float64).requires_grad_() for _ in range(2))
    index = torch.arange(2)
    loss = gibbs_loss(cost, max_sweeps=500)
    W = annealed(loss, p, q, index)
    value = loss(p, q, index)
    value.backward()
    np.testing.assert_allclose(value.item(), W[0], rtol=0.01)
    assert torch.isfinite(p.grad).all()
    assert torch.isfinite(q.grad).all()
    blocked = gibbs_loss([[0.0, 1.0], [np.inf, 2.0]])
    p = torch.tensor([[1.0, 0.0]], requires_grad=True)
    blocked(p, torch.tensor([[1.0, 0.0]])).backward()
    torch.testing.assert_close(p.grad, torch.zeros(1, 2))
    with pytest.raises(ValueError, match="cost: row 1"):
        blocked(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]))


def test_the_first_temperature_shows_a_third_above():
    p, q = batch(20, zeros=0)
    loss = gibbs_loss(GRID, max_sweeps=1000, reduction="none")
    W = exact(p, q, GRID.matrix())[0]
    for _ in range(3):
        value = loss(p, q, torch.arange(20))
    assert 0.2 < value.mean().item() / W.mean() - 1 < 0.55


# the temperature follows


def moving(loss: WassersteinLoss, shares: list[float], calls: int = 60) -> list[float]:
    """Let p come as near to q as each of the shares says, and return the temperatures there."""
    p, q = (x.detach() for x in batch(zeros=0))
    seen = []
    for share in shares:
        near = (share * p + (1 - share) * q).requires_grad_()
        for _ in range(calls):
            loss(near, q, torch.arange(6))
        seen.append(loss.temperature)
    return seen


def test_the_temperature_follows_the_loss_down_and_up():
    seen = moving(gibbs_loss(GRID, max_sweeps=500), [1.0, 0.1, 0.01, 1.0])  # W falls and rises as much
    np.testing.assert_allclose(np.array(seen) / seen[0], [1, 0.1, 0.01, 1], rtol=0.7)


def test_the_temperature_has_the_unit_of_the_cost():
    shares = [1.0, 0.1]
    seen = [moving(gibbs_loss(GridCost((4, 5), spacing=s), max_sweeps=500), shares) for s in (1.0, 2.0**10)]
    np.testing.assert_allclose(np.array(seen[1]), 2.0**20 * np.array(seen[0]), rtol=1e-6)


@pytest.mark.parametrize("first", [1e-6, 1e3])
def test_a_first_temperature_that_is_wrong_is_put_right(first):
    """As after a first batch unlike all others."""
    p, q = batch(zeros=0)
    loss = gibbs_loss(GRID, max_sweeps=500, reduction="none")
    loss(p, q, torch.arange(6))
    loss._kept._T *= first
    values = [loss(p, q, torch.arange(6)).mean().item() for _ in range(200)]
    W = exact(p, q, GRID.matrix())[0].mean()
    assert not 0.9 < values[0] / W < 1.6
    assert 1.0 < np.mean(values[-20:]) / W < 1.5


def test_a_temperature_that_is_given_stays():
    assert moving(gibbs_loss(GRID, temperature=0.01), [1.0, 0.1], calls=3) == [0.01, 0.01]
    loss = gibbs_loss(GRID)
    moving(loss, [1.0], calls=3)
    loss.temperature = 0.02
    assert moving(loss, [1.0, 0.1], calls=3) == [0.02, 0.02]
    with pytest.raises(ValueError, match="temperature"):
        loss.temperature = 0.0


@pytest.mark.parametrize("how", ["eval", "no_grad", "inference_mode"])
def test_evaluation_leaves_the_temperature(how):
    p, q = batch(zeros=0)
    loss = gibbs_loss(GRID)
    loss(p, q, torch.arange(6))
    before = states(loss)
    loss.train(how != "eval")
    with getattr(torch, how)() if how != "eval" else torch.enable_grad():
        for _ in range(3):
            loss(0.1 * p + 0.9 * q, q, torch.arange(6) + 100)
    after = states(loss)
    assert before["_T"] == after["_T"]
    np.testing.assert_array_equal(after["h"][:6], before["h"])  # and the chains of other numbers
    loss.train()
    loss(0.1 * p + 0.9 * q, q, torch.arange(6))
    assert loss.temperature != before["_T"]


def test_a_first_batch_that_fits_perfectly():
    """There is nothing to choose a temperature by; it comes up with the loss."""
    p, q = batch(zeros=0)
    loss, same = gibbs_loss(GRID, max_sweeps=500, reduction="none"), torch.eye(20)[:6]
    loss(same, same, torch.arange(6))
    W = exact(p, q, GRID.matrix())[0]
    assert 0 < loss.temperature < 1e-6 * W.mean()
    for _ in range(300):
        value = loss(p, q, torch.arange(6))
    assert 1.0 < value.mean().item() / W.mean() < 1.5


@pytest.mark.parametrize(("factor", "constant"), [(1.0, -0.3), (1e155, 0.0), (1e-200, 0.0), (2.0**900, -(2.0**900))])
def test_a_temperature_follows_negative_costs_and_those_of_any_scale(factor, constant):
    p, q = (x.double() for x in batch(zeros=0))
    usual, loss = gibbs_loss(GRID, max_sweeps=1000), gibbs_loss(factor * GRID.matrix() + constant, max_sweeps=1000)
    for _ in range(5):
        values = [one(p, q, torch.arange(6)).item() for one in (usual, loss)]
        np.testing.assert_allclose((values[1] - constant) / factor, values[0], rtol=1e-6)
        np.testing.assert_allclose(loss.temperature / factor, usual.temperature, rtol=1e-6)


def test_negative_costs():
    cost = GRID.matrix() - 0.3
    p, q = batch(zeros=0)
    loss = gibbs_loss(cost, temperature=1e-4, max_sweeps=1000)
    for _ in range(5):
        value = loss(p, q, torch.arange(6))
    np.testing.assert_allclose(value.item(), exact(p, q, cost)[0].mean(), rtol=0.02)


# chains


def test_chains_continue_in_any_order():
    """A chain depends on its example alone, not on the batches it was in."""
    p, q = batch(8)
    whole, split = (gibbs_loss(GRID, temperature=0.01, reduction="none") for _ in range(2))
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        a = whole(p, q, torch.arange(8))
        b = torch.cat([split(p[rows], q[rows], rows) for rows in order.split(3)])
    torch.testing.assert_close(a[order], b, rtol=0, atol=0)


def test_warm_chains_follow_where_cold_ones_do_not():
    p, q = batch(zeros=0)
    index, errors = torch.arange(6), {}
    for name, options, number in (("warm", {}, index), ("position", {"by_position": True}, None), ("cold", {}, None)):
        loss = gibbs_loss(GRID, max_sweeps=10, **options)
        W = annealed(loss, p, q, number, calls=300).mean()
        errors[name] = abs(loss(p, q, number).item() / W - 1)
        assert len(loss.store) == (0 if name == "cold" else 6)
    assert max(errors["warm"], errors["position"]) < 0.02
    assert errors["cold"] > 5 * errors["warm"]


def test_cold_calls_draw_anew():
    p, q = batch()
    loss = gibbs_loss(GRID, temperature=0.05)
    assert loss(p, q) != loss(p, q)


def test_seeds_and_threads():
    p, q = batch()
    values = []
    for options in ({}, {"n_jobs": 2}, {"rng": 1}):
        loss = gibbs_loss(GRID, **options)
        values.append([loss(p, q, index).item() for index in (torch.arange(6), None, torch.arange(6))])
    assert values[0] == values[1]
    assert values[0] != values[2]


def test_targets_whose_support_changes_under_one_index():
    p, _ = batch()
    loss, index = gibbs_loss(GRID, max_sweeps=1000, reduction="none"), torch.arange(6)
    halves = [torch.zeros(6, 20, dtype=torch.float64) for _ in range(2)]
    halves[0][:, :10] = halves[1][:, 10:] = 0.1  # nothing in common
    for q in (*halves, batch(seed=5)[1]):
        W = annealed(loss, p, q, index)
        np.testing.assert_allclose(loss(p, q, index).detach(), W, rtol=0.02)


def test_memory_stays_bounded_over_a_long_epoch():
    loss = gibbs_loss(GridCost(3), temperature=0.1, max_sweeps=2, capacity=1000)
    rows = torch.rand(5000, 3, generator=torch.Generator().manual_seed(0)) + 0.1
    rows /= rows.sum(1, keepdim=True)
    with torch.no_grad():
        for start in range(0, 100_000, 5000):
            loss(rows, rows, torch.arange(start, start + 5000))
    assert list(loss.store) == list(range(99_000, 100_000))
    assert loss.store._arrays["h"].nbytes == 1000 * 3 * 8
    sizes = [x.nbytes for x in loss.get_extra_state().values() if isinstance(x, Tensor)]
    assert sum(sizes) == 1000 * 5 * 8 + 32  # two constants of the policy are pairs


# what is wrong


BAD = {
    "p: has negative weights, the first at row 1": lambda p, q: (
        p.index_put((torch.tensor(1), torch.tensor(0)), p.new_tensor(-0.5)),
        q,
    ),
    "q: row . sums to 1, p to 2": lambda p, q: (2 * p, q),
    "q: row 0 has no mass": lambda p, q: (p, 0 * q),
    "p: has NaN weights, the first at row 2": lambda p, q: (p.index_fill(0, torch.tensor(2), torch.nan), q),
    "q: has infinite weights, the first at row 2": lambda p, q: (p, q.index_fill(0, torch.tensor(2), torch.inf)),
    "q: expected leading dimensions": lambda p, q: (p, q[:5]),
    "p: expected shape": lambda p, q: (p[:, :19], q),
    "q: expected shape": lambda p, q: (p, q[:, :19]),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("temperature", ["auto", 0.01])
def test_bad_measures_are_named_and_the_chains_left(what, temperature):
    p, q = batch()
    loss = gibbs_loss(GRID, temperature=temperature)
    index = torch.arange(6)
    for _ in range(2):
        before = states(loss)
        bad_p, bad_q = BAD[what](p, q)
        with pytest.raises(ValueError, match=what):
            loss(bad_p, bad_q, index[: len(bad_p)])
        with pytest.raises(ValueError, match=what):
            loss(bad_p, bad_q)
        same(before, states(loss))
        loss(p, q, index)  # and once more with chains


def test_logits_where_weights_are_meant():
    with pytest.raises(ValueError, match=r"p: has negative weights, the first at row 0.*from_logits=True"):
        gibbs_loss(GRID)(logits(), batch()[1])
    x = logits().detach()
    x[3, 2] = torch.nan
    with pytest.raises(ValueError, match="p: has NaN weights, the first at row 3") as error:
        gibbs_loss(GRID, from_logits=True)(x, batch()[1])
    assert "from_logits" not in str(error.value)


WRONG = {
    "twice the same": torch.zeros(6, dtype=torch.int64),
    "too few": torch.arange(5),
    "none": torch.arange(0),
    "no integers": torch.arange(6.0),
    "truths": torch.ones(6, dtype=torch.bool),
    "negative": torch.arange(6) - 1,
    "a column": torch.arange(6)[:, None],
    "too large": torch.arange(6) + 2**62,
}


@pytest.mark.parametrize("index", WRONG.values(), ids=WRONG)
def test_bad_indices(index):
    p, q = batch()
    loss = gibbs_loss(GRID)
    with pytest.raises(ValueError, match="index: expected"):
        loss(p, q, index)
    assert len(loss.store) == 0
    assert loss.temperature is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.0),
        ("temperature", "hot"),
        ("reduction", "max"),
        ("max_sweeps", 0),
        ("capacity", 0),
        ("rng", 1.5),
        ("rng", -1),
    ],
)
def test_bad_options(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        gibbs_loss(GRID, **{name: value})


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("temperature", ["auto", 0.01])
def test_what_fails_or_is_interrupted_leaves_the_chains(error, temperature, monkeypatch):
    p, q = batch()
    loss, untouched = (gibbs_loss(GRID, temperature=temperature) for _ in range(2))
    index, run = torch.arange(6), sampler.run

    def stopped(*args, **options):
        run(*args, **options)
        raise error

    for _ in range(2):
        before = states(loss)
        with monkeypatch.context() as patch:
            patch.setattr(sampler, "run", stopped)
            for number in (index, None):
                with pytest.raises(error):
                    loss(p, q, number)
        same(before, states(loss))
        torch.testing.assert_close(loss(p, q, index), untouched(p, q, index), rtol=0, atol=0)


# saved and copied


@pytest.mark.parametrize("temperature", ["auto", 0.01])
@pytest.mark.parametrize("begun", [True, False])
def test_state_dict_goes_on_to_the_bit(temperature, begun):
    p, q = batch()
    index = torch.tensor([4, 0, 9, 1, 7, 2])
    loss, other = (gibbs_loss(GRID, temperature=temperature) for _ in range(2))
    if begun:
        loss(p, q, index)
        loss(p, q)
    other(p, q, index.flip(0) + 3)  # all forgotten
    file = io.BytesIO()
    torch.save({"loss": loss.state_dict()}, file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True)["loss"])
    same(states(loss), states(other))
    for number in (index, None, index + 2):
        torch.testing.assert_close(loss(p, q, number), other(p, q, number), rtol=0, atol=0)


def test_state_dict_is_a_copy_and_of_this_cost():
    p, q = batch()
    loss = gibbs_loss(GRID)
    loss(p, q, torch.arange(6))
    state = loss.state_dict()
    before = copy.deepcopy(state)
    loss(p, q, torch.arange(6))
    for a, b in zip(state["_extra_state"].values(), before["_extra_state"].values(), strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b
    with pytest.raises(ValueError, match="h: expected shape"):
        gibbs_loss(GridCost(3)).load_state_dict(state)


def test_in_a_network():
    """The loss may be a part of the network, whose state_dict it then shares."""
    network = torch.nn.ModuleDict({"body": torch.nn.Linear(3, 20), "loss": gibbs_loss(GRID, from_logits=True)})
    network["loss"](network["body"](torch.ones(2, 3)), torch.full((2, 20), 0.05), torch.arange(2)).backward()
    assert set(network.state_dict()) == {"body.weight", "body.bias", "loss._extra_state"}
    assert "20 x 20" in repr(network)
    other = copy.deepcopy(network).double()
    other.load_state_dict(network.state_dict())
    assert list(other["loss"].store) == [0, 1]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
def test_a_copy_has_chains_of_its_own(copied):
    p, q = batch()
    index = torch.arange(6)
    loss = gibbs_loss(GRID)
    loss(p, q, index)
    other = copied(loss)
    before = states(loss)
    value = other(p, q, index)
    same(before, states(loss))
    torch.testing.assert_close(value, loss(p, q, index), rtol=0, atol=0)
    same(states(loss), states(other))


# the scheduler


def test_scheduler_goes_on():
    loss = gibbs_loss(GRID, temperature=0.01)
    scheduler = GibbsTemperature(loss, gamma=0.5, least=0.1)
    seen = []
    for _ in range(5):
        scheduler.step()
        seen.append(loss.temperature / 0.01)
    np.testing.assert_allclose(seen, [0.5, 0.25, 0.125, 0.1, 0.1])
    assert scheduler.get_last_temperature() == loss.temperature
    other = gibbs_loss(GRID)
    resumed = GibbsTemperature(other)
    file = io.BytesIO()
    torch.save([loss.state_dict(), scheduler.state_dict()], file)
    file.seek(0)
    for one, state in zip((other, resumed), torch.load(file, weights_only=True), strict=True):
        one.load_state_dict(state)
    assert other.temperature == loss.temperature
    assert resumed.state_dict() == scheduler.state_dict()
    for schedule in (resumed, scheduler):
        schedule.least = 1e-3
        schedule.step()
    assert other.temperature == loss.temperature == pytest.approx(0.01 / 64)


def test_a_scheduler_brings_a_temperature_that_follows_nearer_to_zero():
    p, q = batch(zeros=0)
    loss = gibbs_loss(GRID, max_sweeps=1000, temperature=AdaptiveCooling(cooling=1.0))  # only the scheduler cools
    scheduler = GibbsTemperature(loss, gamma=0.2, least=0.2)
    scheduler.step()
    assert loss.temperature is None
    above = []
    for cooling in (1.0, 0.2):
        loss.cooling = cooling
        values = [loss(p, q, torch.arange(6)).item() for _ in range(150)]
        above.append(np.mean(values[-50:]) / exact(p, q, GRID.matrix())[0].mean() - 1)
    assert 0 < above[1] < 0.4 * above[0]


@pytest.mark.parametrize("options", [{"gamma": 0.0}, {"gamma": 1.5}, {"least": -1.0}, {"least": 1.5}])
def test_bad_schedules(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        GibbsTemperature(gibbs_loss(GRID), **options)


# as PyTorch uses it


class Examples(Dataset):
    def __init__(self) -> None:
        self.q = batch(32, dtype=torch.float32)[1].detach()

    def __len__(self) -> int:
        return 32

    def __getitem__(self, k: int) -> tuple[int, Tensor, Tensor]:
        return k, 20 * self.q[k] - 1, self.q[k]


def test_training_with_a_data_loader():
    """With nothing set, the exact loss falls a long way over shuffled epochs, and each example has one chain."""
    torch.manual_seed(0)
    loss = gibbs_loss(GRID, from_logits=True)
    network = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 20))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 25)
    targets = Examples().q

    def now() -> float:
        P = torch.softmax(network(20 * targets - 1).double(), 1)
        return exact(P, targets.double(), GRID.matrix())[0].mean()

    before = now()
    loader = DataLoader(Examples(), batch_size=8, shuffle=True)
    for _ in range(25):
        for index, x, q in loader:
            optimiser.zero_grad()
            loss(network(x), q, index).backward()
            optimiser.step()
        scheduler.step()
    assert sorted(loss.store) == list(range(32))
    assert now() < 0.4 * before


def test_the_operator_keeps_its_promises():
    p, q = batch()
    for x in (p, p.detach().t().contiguous().t().requires_grad_()):
        for index in (None, torch.arange(6)):
            loss = gibbs_loss(GRID, temperature=1e-9)  # so cold that another answer differs little
            annealed(loss, x, q, torch.arange(6), last=1e-8)
            tests = ("test_schema", "test_autograd_registration", "test_faketensor")
            torch.library.opcheck(
                torch.ops.gibbsot.transport.default,
                (x, q, index, loss._handles[1], False, True, True),
                test_utils=tests,
            )


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("given", [True, False])
def test_compiled_without_a_break(compiled, given):
    x, q = logits(), batch()[1].detach()
    index = torch.arange(6) if given else None
    plain, other = (gibbs_loss(GRID, from_logits=True) for _ in range(2))
    quick = compiled(other)
    schedulers = [GibbsTemperature(loss, 0.5) for loss in (plain, other)]
    for _ in range(2):
        values, grads = [], []
        for loss in (plain, quick):
            value = loss(2 * x, q, index)
            value.backward()
            values.append(value.detach())
            grads.append(x.grad)
            x.grad = None
        torch.testing.assert_close(*values)
        torch.testing.assert_close(*grads)
        same(states(plain), states(other))
        for scheduler in schedulers:
            scheduler.step()  # a new temperature is seen
    T = other.temperature
    with torch.no_grad():
        quick(2 * x, q, index)
    assert other.temperature == T
    quick(2 * x, q, index)
    assert other.temperature != T


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiled_batches_of_many_sizes(compiled):
    x, q = logits(8), batch(8)[1].detach()
    plain, other = (gibbs_loss(GRID, from_logits=True, temperature=0.01) for _ in range(2))
    quick = compiled(other, dynamic=True)
    for n in (8, 5, 3):
        torch.testing.assert_close(quick(x[:n], q[:n], torch.arange(n)), plain(x[:n], q[:n], torch.arange(n)))


def test_compiled_with_two_losses_and_one_twice(compiled):
    x, q = logits(), batch()[1].detach()
    first, other = gibbs_loss(GRID, temperature=0.01), gibbs_loss(GRID, temperature=0.5)

    def both(x: Tensor) -> Tensor:
        p = torch.softmax(x, 1)
        return first(p, q, torch.arange(6)) + 2 * other(p, q) + 3 * first(p.flip(0), q, torch.arange(6) + 6)

    expected = both(x)
    for loss in (first, other):
        loss.load_state_dict(gibbs_loss(GRID, temperature=loss.temperature).state_dict())
    value = compiled(both)(x)
    torch.testing.assert_close(value, expected)
    value.backward()
    assert torch.isfinite(x.grad).all()
    with torch.no_grad():
        assert not compiled(both)(x).requires_grad


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_errors_of_a_compiled_loss_name_the_argument(compiled):
    p, q = batch()
    loss = gibbs_loss(GRID)
    with pytest.raises(ValueError, match=r"q: row . sums to 1, p to 2"):
        compiled(loss)(2 * p, q)
    assert loss.temperature is None


# mass that may be left over


EACH = np.linspace(0.02, 0.1, GRID.shape[0]), 0.05  # penalties of the points


@pytest.mark.parametrize(
    ("cost", "penalty"), [(GRID.matrix(), 0.05), (GRID.matrix() - 0.3, 0.02), (GRID.matrix(), EACH)]
)
def test_a_penalty(cost, penalty):
    """Values and gradients are those of `solve` with the penalty, for weights of any sums."""
    p, q = (x.detach().double() for x in batch(zeros=0))
    p = (1.7 * p).requires_grad_()
    q.requires_grad_()
    expected = solve_batch(p.detach(), q.detach(), cost, penalty=penalty)
    loss = gibbs_loss(cost, temperature=1e-2, penalty=penalty, max_sweeps=3000, reduction="none")
    for T in np.geomspace(1e-2, 1e-5, 60):
        loss.temperature = T
        value = loss(p, q, torch.arange(6))
    value.sum().backward()
    np.testing.assert_allclose(value.detach(), expected.value, atol=1e-3)
    for x, potentials in zip((p, q), expected.potentials, strict=True):
        np.testing.assert_allclose(x.grad, potentials, atol=0.03)
        assert np.abs(x.grad.numpy() - potentials).mean() < 0.003
    copy = gibbs_loss(cost, penalty=penalty, max_sweeps=3000, reduction="none")
    copy.load_state_dict(loss.state_dict())
    assert torch.equal(copy(p, q, torch.arange(6)), loss(p, q, torch.arange(6)))


@pytest.mark.parametrize(("factor", "constant"), [(1.0, 0.0), (1.0, -0.09), (4.0**50, 0.0)])
def test_a_temperature_follows_partial_transport(factor, constant):
    """The penalty is shifted by half of the constant; the value by half of it for each unit of mass of both."""
    p, q = (x.detach().double() for x in batch(zeros=0))
    cost, penalty = factor * GRID.matrix() + constant, factor * 0.05 + constant / 2
    exact = solve_batch(2 * p, q, cost, penalty=penalty).value.mean() - 1.5 * constant
    loss = gibbs_loss(cost, penalty=penalty, max_sweeps=1000)
    for _ in range(100):
        value = loss(2 * p, q, torch.arange(6)).item() - 1.5 * constant
    assert 1.0 < value / exact < 1.5


def test_bad_penalties():
    with pytest.raises(ValueError, match="penalty: expected a finite number of at least 0, got nan"):
        gibbs_loss(GRID, penalty=np.nan)
