"""Couplings of minibatches with torchcfm's interface."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning

torch = pytest.importorskip("torch")
from gibbsot.compat.torchcfm import OTPlanSampler  # noqa: E402


def minibatches(n=64, m=64, shape=(2, 3), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, *shape, generator=generator), 1 + torch.randn(m, *shape, generator=generator)


@pytest.mark.parametrize("n", [5, 64, 300])
def test_the_plan_is_a_permutation_and_optimal(n):
    x, y = minibatches(n, n)
    C = (torch.cdist(x.flatten(1), y.flatten(1)) ** 2).numpy()
    best = C[linear_sum_assignment(C)].sum()
    a, b = OTPlanSampler().sample_plan(x, y)
    assert torch.equal(a, x)
    assert ((a - b) ** 2).sum().item() == pytest.approx(best, rel=1e-5)
    assert sorted(b.flatten().tolist()) == sorted(y.flatten().tolist())
    plan = OTPlanSampler("exact").get_map(x, y)
    assert (plan * C).sum() == pytest.approx(best / n, rel=1e-6)
    assert set(np.unique(plan)) == {0.0, 1 / n}


def test_pairs_are_drawn_as_torchcfm_does():
    x, y = minibatches(20, 20)
    sampler = OTPlanSampler()
    np.random.seed(7)  # noqa: NPY002
    plan = sampler.get_map(x, y).ravel()
    chosen = np.random.choice(len(plan), p=plan / plan.sum(), size=20)  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    a, b = sampler.sample_plan(x, y, replace=True)
    assert torch.equal(a, x[chosen // 20])
    assert torch.equal(b, y[chosen % 20])
    i, j = sampler.sample_map(np.eye(20)[::-1] / 20, 20, replace=False)
    assert sorted(i) == list(range(20))
    assert (i + j == 19).all()


def test_sizes_may_differ():
    x, y = minibatches(10, 15)
    a, b = OTPlanSampler(rng=0).sample_plan(x, y)
    assert a.shape == b.shape == x.shape
    with pytest.raises(ValueError, match="x1: expected 10 points, as many as x0, got 15"):
        next(OTPlanSampler().batches(x, y, 4))


def test_classes_stay_among_themselves():
    x, y = minibatches(30, 30)
    labels = torch.arange(30) % 3
    a, b, u, v = OTPlanSampler().sample_plan_with_labels(x, y, labels, labels.flip(0), within_classes=True)
    assert torch.equal(a, x)
    assert torch.equal(u, v)
    for k in range(3):
        own = OTPlanSampler().sample_plan(x[labels == k], y[labels.flip(0) == k])[1]
        assert torch.equal(b[u == k], own)
    free = OTPlanSampler().sample_plan_with_labels(x, y, None, labels)
    assert free[2] is None
    others = torch.where(torch.arange(30) == 1, 0, labels)
    with pytest.raises(ValueError, match="y0, y1: class 0 has 11 and 10 points; expected as many on both sides"):
        OTPlanSampler().sample_plan_with_labels(x, y, others, labels, within_classes=True)
    with pytest.raises(ValueError, match="y1: expected the labels of x1"):
        OTPlanSampler().sample_plan_with_labels(x, y, labels, within_classes=True)


def test_noise_is_dealt_to_classes():
    """Noise has no labels; each class gets as much of it as it has points."""
    x, y = minibatches(30, 30)
    labels = torch.arange(30) % 3
    a, b, u, v = OTPlanSampler().sample_plan_with_labels(x, y, None, labels, within_classes=True)
    assert torch.equal(a, x)
    assert u is None
    assert torch.equal(v, labels)
    for k in range(3):
        assert torch.equal(b[labels == k], OTPlanSampler().sample_plan(x[labels == k], y[labels == k])[1])
    with pytest.raises(ValueError, match="x0: expected 30 points, as many as y1 has labels"):
        OTPlanSampler().sample_plan_with_labels(x[:20], y, None, labels, within_classes=True)


def test_classes_of_other_sizes_are_drawn():
    x, y = minibatches(30, 40)
    first, second = torch.arange(30) % 3, torch.arange(40) % 3
    _, b, u, v = OTPlanSampler(rng=0).sample_plan_with_labels(x, y, first, second, replace=True, within_classes=True)
    assert torch.equal(u, v)
    assert u.bincount().tolist() == [10, 10, 10]
    places = (b[:, None] == y).flatten(2).all(2).nonzero()[:, 1]
    assert torch.equal(second[places], v)
    with pytest.raises(ValueError, match="class 3 has 1 and 0 points"):
        OTPlanSampler().sample_plan_with_labels(
            x, y, torch.where(torch.arange(30) == 0, 3, first), second, replace=True, within_classes=True
        )


def test_large_batches_come_in_parts():
    x, y = minibatches(50, 50)
    partner = OTPlanSampler().sample_plan(x, y)[1]
    parts = list(OTPlanSampler(rng=1).batches(x, y, 16))
    assert [len(a) for a, _ in parts] == [16, 16, 16, 2]
    a, b = (torch.cat(side) for side in zip(*parts, strict=True))
    rows = [int((x == one).flatten(1).all(1).nonzero()) for one in a]
    assert sorted(rows) == list(range(50))
    assert rows != list(range(50))
    assert torch.equal(b, partner[rows])


@pytest.mark.parametrize("method", ["exact", "sinkhorn"])
def test_trajectories_keep_their_first_points(method):
    X = torch.stack([torch.arange(4.0), torch.arange(4.0).flip(0) + 0.1, torch.arange(4.0).roll(1) + 0.2], 1)[..., None]
    found = OTPlanSampler(method, reg=1e-3, rng=0).sample_trajectory(X)
    np.testing.assert_allclose(found[:, :, 0], np.arange(4)[:, None] + [0, 0.1, 0.2], rtol=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_uniform_plan_in_silence():
    x, y = minibatches(8, 8)
    sampler = OTPlanSampler("sinkhorn", reg=1e-9)
    with pytest.warns(ConvergenceWarning, match="reg: 1e-09 is too small"):
        plan = sampler.get_map(x, y)
    np.testing.assert_array_equal(plan, OTPlanSampler("exact").get_map(x, y))
    with pytest.raises(ValueError, match="reg: 1e-09 is too small"):
        OTPlanSampler("partial", reg=1e-9).get_map(100 * x, y)
    with pytest.raises(ValueError, match="method: expected one of 'exact'"):
        OTPlanSampler("noname")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_methods_of_pot_draw_with_replacement():
    """Their plans may have fewer pairs than points."""
    x, y = torch.arange(20.0)[:, None], torch.zeros(20, 1)
    sampler = OTPlanSampler("sinkhorn", reg=1e-2, rng=0)
    plan = np.eye(20)[:1]
    sampler.get_map = lambda *_: plan.repeat(20, axis=0) * np.eye(20)[0][:, None]
    a, b = sampler.sample_plan(x, y)
    assert a.shape == b.shape == (20, 1)
    with pytest.raises(ValueError, match="Fewer non-zero"):
        sampler.sample_plan(x, y, replace=False)
