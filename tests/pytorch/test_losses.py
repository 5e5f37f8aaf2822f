"""The losses that keep exact duals: values, rules of refreshing, evaluation, images, volumes, as PyTorch uses them."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

from cases import measures
from gibbsot import GridCost, solve_batch

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from gibbsot.torch import GibbsTemperature, ImagesLoss, VolumesLoss, WassersteinLoss, wasserstein  # noqa: E402

GRID = GridCost((4, 5))


def batch(n: int = 6, seed: int = 0, dtype=torch.float64, zeros: float = 0.3) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    p, q = (torch.tensor(measures(rng, n, 20, zeros), dtype=dtype) for _ in range(2))
    return p.requires_grad_(), q.requires_grad_()


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def same(first: dict, other: dict) -> None:
    assert first.keys() == other.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], other[name], err_msg=name)


# exact duals that are kept


def test_values_and_gradients_are_exact():
    p, q = batch()
    for method in ("auto", "exact"):
        loss = WassersteinLoss(GRID, method=method, reduction="none")
        for index in (None, torch.arange(6)):
            value = loss(p, q, index)
            value.sum().backward()
            expected = wasserstein(p, q, GRID)
            torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
            found, p.grad, q.grad = p.grad, None, None
            expected.sum().backward()
            torch.testing.assert_close(found, p.grad)
            p.grad = q.grad = None


def moved(p: Tensor, share: float) -> Tensor:
    """Move a share of the mass of each row to its last point; distances in the sense of ``drift`` are half of it."""
    return (1 - share) * p.detach() + share * torch.eye(20, dtype=p.dtype)[-1]


def test_duals_are_kept_until_the_measures_have_moved():
    p, q = batch(zeros=0)
    loss, index = WassersteinLoss(GRID, drift=0.03, reduction="none"), torch.arange(6)
    loss(p, q, index)
    f, g = solve_batch(p.detach(), q.detach(), GRID).potentials
    near, far = moved(p, 0.03), moved(p, 0.2)
    kept, W = loss(near, q, index), wasserstein(near, q, GRID)
    assert loss.n_solved == 6
    np.testing.assert_allclose(kept.detach(), (near.numpy() * f).sum(1) + (q.detach().numpy() * g).sum(1), rtol=1e-10)
    assert (kept <= W + 1e-15).all()  # a lower bound
    np.testing.assert_allclose(kept.detach(), W.detach(), rtol=0.1)
    torch.testing.assert_close(loss(far, q, index), wasserstein(far, q, GRID))
    assert loss.n_solved == 12
    some = torch.cat([far[:3], near[3:]])  # those that have moved back are solved, and only those
    torch.testing.assert_close(loss(some, q, index), wasserstein(some, q, GRID))
    assert loss.n_solved == 15
    loss(near, moved(q, 0.2), index)  # and where the targets have moved
    assert loss.n_solved == 21


def test_new_examples_among_known_ones():
    p, q = batch()
    loss = WassersteinLoss(GRID, reduction="none")
    loss(p[:3], q[:3], torch.tensor([5, 1, 7]))
    value = loss(p, q, torch.tensor([5, 1, 7, 0, 2, 9]))
    torch.testing.assert_close(value, wasserstein(p, q, GRID))
    assert (loss.n_solved, list(loss.store)) == (6, [5, 1, 7, 0, 2, 9])


def test_memory_is_bounded():
    p, q = batch()
    loss = WassersteinLoss(GRID, capacity=4)
    for start in (0, 6, 12):
        loss(p, q, torch.arange(start, start + 6))
    assert list(loss.store) == [14, 15, 16, 17]


def test_positions():
    p, q = batch(zeros=0)
    for options, solved in (({"by_position": True}, 6), ({}, 12)):
        loss = WassersteinLoss(GRID, **options)
        loss(p, q)
        loss(p, q)
        assert loss.n_solved == solved


def test_evaluation_is_deterministic_and_keeps_nothing():
    p, q = batch()
    for options in ({}, {"method": "exact"}, {"method": "gibbs"}):
        loss = WassersteinLoss(GRID, reduction="none", **options)
        loss(moved(p, 0.005), q, torch.arange(6))
        before = loss.get_extra_state()
        loss.eval()
        found = []
        for index in (torch.arange(6), None, torch.arange(6)):
            value = loss(p, q, index)
            value.sum().backward()
            found.append((value.detach(), p.grad))
            p.grad = None
        for value, gradient in found:
            assert torch.equal(value, found[0][0])
            assert torch.equal(gradient, found[0][1])
        torch.testing.assert_close(value, wasserstein(p, q, GRID).detach(), rtol=0, atol=0)
        same(before, loss.get_extra_state())


@pytest.mark.parametrize("training", [True, False])
def test_nothing_to_move(training):
    q = batch()[1].detach()
    loss = WassersteinLoss(GRID).train(training)
    p = q.clone().requires_grad_()
    value = loss(p, q, torch.arange(6))
    value.backward()
    assert value == 0
    assert not p.grad.any()


def test_half_precision_without_normalisation():
    for dtype in (torch.bfloat16, torch.float16):
        p, q = (x.detach().to(dtype).requires_grad_() for x in batch())
        value = WassersteinLoss(GRID)(p, q, torch.arange(6))
        value.backward()
        assert (value.dtype, p.grad.dtype) == (torch.float32, dtype)


def test_a_penalty():
    p, q = batch()
    p = (1.7 * p.detach()).requires_grad_()
    loss = WassersteinLoss(GRID, penalty=0.05, reduction="none", drift=0.01)
    for near in (p, (1.002 * p.detach()).requires_grad_()):
        value = loss(near, q, torch.arange(6))
        value.sum().backward()
        expected = solve_batch(near.detach(), q.detach(), GRID, penalty=0.05)
        np.testing.assert_allclose(value.detach(), expected.value, rtol=1e-3)
        np.testing.assert_allclose(near.grad, expected.potentials[0], atol=2e-3)
    assert loss.n_solved == 6


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"method": "exact", "temperature": 0.1}, "temperature: is an option of the sampler"),
        ({"method": "kept", "max_sweeps": 3}, "max_sweeps: is an option of the sampler"),
        ({"method": "gibbs", "drift": 0.1}, "drift: is an option of kept duals"),
        ({"method": "sinkhorn"}, "method"),
        ({"drift": -1.0}, "drift"),
        ({"capacity": 0}, "capacity"),
        ({"reduction": "max"}, "reduction"),
        ({"normalize": True, "penalty": 1.0}, "normalize: masses matter"),
    ],
)
def test_bad_options(options, what):
    with pytest.raises((TypeError, ValueError), match=what):
        WassersteinLoss(GRID, **options)


def test_a_loss_without_a_temperature():
    loss = WassersteinLoss(GRID, method="kept")
    with pytest.raises(ValueError, match="method='kept'"):
        GibbsTemperature(loss)


def test_what_fails_leaves_what_is_kept():
    p, q = batch()
    loss, index = WassersteinLoss(GRID), torch.arange(6)
    loss(p, q, index)
    before = loss.get_extra_state()
    with pytest.raises(ValueError, match=r"p: has negative weights.*logits need from_logits=True"):
        loss(-p, q, index)
    for bad in (torch.zeros(6, dtype=torch.int64), torch.arange(5), torch.arange(6.0), torch.arange(6) - 1):
        with pytest.raises(ValueError, match="index: expected"):
            loss(p, q, bad)
    same(before, loss.get_extra_state())


# saved, copied, compiled, distributed


def test_state_dict_goes_on():
    p, q = batch(zeros=0)
    loss, other = (WassersteinLoss(GRID, reduction="none") for _ in range(2))
    other.load_state_dict(loss.state_dict())  # nothing yet
    loss(p, q, torch.tensor([4, 0, 9, 1, 7, 2]))
    file = io.BytesIO()
    torch.save({"loss": loss.state_dict()}, file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True)["loss"])
    same(loss.get_extra_state(), other.get_extra_state())
    near = moved(p, 0.01)
    assert torch.equal(
        loss(near, q, torch.tensor([4, 0, 9, 1, 7, 2])), other(near, q, torch.tensor([4, 0, 9, 1, 7, 2]))
    )
    assert other.n_solved == 0
    with pytest.raises(ValueError, match="p: expected shape"):
        WassersteinLoss(GridCost(3)).load_state_dict(loss.state_dict())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
def test_a_copy_keeps_its_own(copied):
    p, q = batch()
    loss = WassersteinLoss(GRID)
    loss(p, q, torch.arange(6))
    other = copied(loss)
    other(moved(p, 0.3), q, torch.arange(6))
    assert (loss.n_solved, other.n_solved) == (6, 12)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiled_without_a_break(compiled):
    p, q = batch()
    loss, other = WassersteinLoss(GRID, from_logits=True), WassersteinLoss(GRID, from_logits=True)
    quick = compiled(other)
    for k in range(3):
        x = (p.detach() + k).requires_grad_()
        values, gradients = [], []
        for one in (loss, quick):
            value = one(2 * x, q.detach(), torch.arange(6))
            value.backward()
            values.append(value.detach())
            gradients.append(x.grad)
            x.grad = None
        torch.testing.assert_close(*values)
        torch.testing.assert_close(*gradients)
    assert other.n_solved == loss.n_solved


def test_compiled_images(compiled):
    x, y = images(2, 1, 4, 5).requires_grad_(), images(2, 1, 4, 5, seed=1)
    plain, loss = ImagesLoss(GRID), ImagesLoss()
    value = compiled(loss)(x, y)
    torch.testing.assert_close(value, plain(x, y))
    value.backward()
    assert x.grad.any()


def test_amp():
    x, y = images(2, 1, 4, 5).flatten(1), images(2, 1, 4, 5, seed=1).flatten(1)
    layer, loss = torch.nn.Linear(20, 20), WassersteinLoss(GRID, from_logits=True, normalize=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = layer(x)
        assert logits.dtype == torch.bfloat16
        value = loss(logits, y, torch.arange(2))
    value.backward()
    assert value.dtype == layer.weight.grad.dtype == torch.float32
    expected = loss.eval()(logits.detach(), y)
    torch.testing.assert_close(value.detach(), expected)


class Examples(Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, k: int) -> tuple[int, Tensor]:
        return k, images(1, 6, 6, seed=k) ** 4


@pytest.mark.slow
def test_training_with_workers_of_a_data_loader():
    """An autoencoder of a few images; each keeps its duals from epoch to epoch, and fewer and fewer are solved."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 24), torch.nn.ReLU(), torch.nn.Linear(24, 36))
    loss = ImagesLoss(reduction="mean")
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 30)
    loader = DataLoader(Examples(), batch_size=8, shuffle=True, num_workers=2, multiprocessing_context="spawn")
    epochs = [list(loader) for _ in range(2)]
    values, solved = [], []
    for epoch in range(30):
        total, before = 0.0, loss.n_solved
        for index, x in epochs[epoch % 2]:
            optimiser.zero_grad()
            value = loss(torch.softmax(network(x), 1).reshape(-1, 1, 6, 6), x, index)
            value.backward()
            optimiser.step()
            total += value.item()
        falling.step()
        values.append(total)
        solved.append(loss.n_solved - before if epoch else 32)
    assert sorted(loss.store) == list(range(32))
    assert values[-1] < 0.5 * values[0]
    assert solved[-1] < 32


# images and volumes


def test_images_channel_by_channel():
    x, y = images(3, 2, 6, 5).requires_grad_(), images(3, 2, 6, 5, seed=1)
    value = ImagesLoss(reduction="none")(x, y)
    assert value.shape == (3, 2)
    flat = (z.detach().reshape(6, 30) for z in (x, y))
    expected = solve_batch(*flat, GridCost((6, 5)), normalize=True).value
    np.testing.assert_allclose(value.detach().flatten(), expected, rtol=1e-5)
    value.sum().backward()
    torch.testing.assert_close((x.grad * x).sum((2, 3)), torch.zeros(3, 2), atol=1e-6, rtol=0)  # scale does not matter
    torch.testing.assert_close(ImagesLoss()(x, y), value.mean())
    assert ImagesLoss(reduction="none")(x[0, 0], y).shape == (3, 2)  # one image with all


def test_images_by_central_differences():
    x, y = (images(1, 1, 4, 4, seed=k).double() for k in range(2))
    loss = ImagesLoss().eval()
    assert torch.autograd.gradcheck(lambda x: loss(x, y), (x.requires_grad_(),), eps=1e-7, atol=1e-6)


def test_volumes():
    x, y = images(2, 1, 3, 4, 5), images(2, 1, 3, 4, 5, seed=1)
    value = VolumesLoss(reduction="none")(x, y)
    expected = solve_batch(x.reshape(2, 60), y.reshape(2, 60), GridCost((3, 4, 5)), normalize=True).value
    np.testing.assert_allclose(value.flatten(), expected, rtol=1e-5)


def test_images_of_different_masses():
    x, y = images(2, 1, 4, 5), 3 * images(2, 1, 4, 5, seed=1)
    value = ImagesLoss(penalty=0.1, reduction="none")(x, y)
    expected = solve_batch(x.reshape(2, 20), y.reshape(2, 20), GRID, penalty=0.1).value
    np.testing.assert_allclose(value.flatten(), expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"sums to .* normalize=True"):
        ImagesLoss(normalize=False)(x, y)


def test_channels_keep_their_own_duals():
    x, y = images(3, 2, 4, 5), images(3, 2, 4, 5, seed=1)
    loss = ImagesLoss()
    loss(x, y, torch.tensor([4, 0, 2]))
    assert sorted(loss.store) == [0, 1, 4, 5, 8, 9]
    loss(1.0001 * x, y, torch.tensor([4, 0, 2]))
    assert loss.n_solved == 6


def test_the_state_of_images_knows_their_sides():
    x, y = images(2, 1, 4, 5), images(2, 1, 4, 5, seed=1)
    loss, other = ImagesLoss(), ImagesLoss()
    loss(x, y, torch.arange(2))
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    other(x, y, torch.arange(2))
    assert other.n_solved == 0
    other(images(1, 1, 6, 6), images(1, 1, 6, 6, seed=1))  # other sides
    assert len(other.store) == 0


def test_an_image_cost_of_ones_own():
    cost = GridCost((4, 5), power=1, spacing=1.0)
    x, y = torch.zeros(1, 1, 4, 5), torch.zeros(1, 1, 4, 5)
    x[..., 0, 0] = y[..., 2, 3] = 7.0
    assert ImagesLoss(cost)(x, y) == 5
    with pytest.raises(ValueError, match="cost: expected a GridCost with 2 axes"):
        ImagesLoss(GridCost(20))
    with pytest.raises(ValueError, match="p: expected shape"):
        ImagesLoss(cost)(x[..., :3], y)


@pytest.mark.parametrize(
    ("x", "what"),
    [
        (torch.zeros(2, 1, 4, 5), "p: row 0 has no mass"),
        (torch.ones(5), "p: expected shape"),
        (-torch.ones(2, 1, 4, 5), "p: has negative weights"),
        (torch.full((2, 1, 4, 5), np.nan), "p: has NaN weights"),
        (torch.ones(3, 1, 4, 5), "q: expected leading dimensions"),
        (torch.ones(2, 4, 5), r"q: expected leading dimensions that match those of p, \(2,\), .* got \(2, 1\)"),
    ],
)
def test_bad_images(x, what):
    with pytest.raises(ValueError, match=what):
        ImagesLoss()(x, torch.ones(2, 1, 4, 5))


def test_losses_print_what_they_are():
    loss = ImagesLoss()
    assert repr(loss) == "ImagesLoss(squared distance on the grid of the first images, method='auto', reduction='mean')"
    loss(torch.full((1, 1, 2, 3), 1 / 6), torch.full((1, 1, 2, 3), 1 / 6))
    assert repr(loss).startswith("ImagesLoss(GridCost((2, 3)")
    assert "6 x 6, method='auto'" in repr(loss)
