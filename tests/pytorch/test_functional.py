"""`gibbsot.torch.wasserstein` against central differences, POT's autograd and closed forms, and as PyTorch uses it."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import measures
from gibbsot import DenseCost, GridCost, PointCost, coulomb, solve, solve_batch

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from gibbsot.torch import ImagesLoss, SamplesLoss, WassersteinLoss, wasserstein  # noqa: E402

GRID = GridCost((4, 5))


def weights(n: int = 6, seed: int = 0, dtype=torch.float64, zeros: float = 0.0, shape=GRID.shape) -> list[Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.tensor(measures(rng, n, size, zeros), dtype=dtype).requires_grad_() for size in shape]


def points(n: int = 7, m: int = 9, d: int = 2, seed: int = 0, leading=()) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*leading, k, d, generator=generator, dtype=torch.float64).requires_grad_() for k in (n, m)]


# gradients


@pytest.mark.parametrize("kind", ["grid", "dense", "points", "line"])
def test_central_differences_of_the_weights(kind):
    """Along random directions that keep the sums, for p and q."""
    rng = np.random.default_rng(0)
    cost = {
        "grid": GRID,
        "dense": DenseCost(rng.random((12, 17))),
        "points": PointCost(rng.normal(size=(12, 3)), rng.normal(size=(17, 3)), metric="euclidean"),
        "line": GridCost(15, power=1.5),
    }[kind]
    p, q = weights(shape=cost.shape)
    wasserstein(p, q, cost).sum().backward()
    for side, x in enumerate((p, q)):
        torch.testing.assert_close(x.grad.sum(1), torch.zeros(6, dtype=torch.float64), atol=1e-12, rtol=0)
        step = rng.normal(size=x.shape)
        step = 1e-7 * torch.tensor(step - step.mean(1, keepdims=True))
        moved = []
        for sign in (1, -1):
            pair = [p.detach(), q.detach()]
            pair[side] = pair[side] + sign * step
            moved.append(wasserstein(*pair, cost))
        np.testing.assert_allclose((x.grad * step).sum(1), (moved[0] - moved[1]) / 2, rtol=1e-5, atol=1e-13)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("penalty", [None, 0.7, (0.5, 0.9)])
def test_central_differences_of_points(metric, penalty):
    x, y = points()
    p, q = (w[0].detach() for w in weights(1, shape=(7, 9)))
    options = {"metric": metric, "penalty": penalty}
    assert torch.autograd.gradcheck(lambda x, y: wasserstein(p, q, (x, y), **options), (x, y), eps=1e-7, atol=1e-6)
    assert torch.autograd.gradcheck(
        lambda x, y: wasserstein(None, None, (x, y), **options), (x, y), eps=1e-7, atol=1e-6
    )


def test_logits_by_gradcheck():
    x, y = (torch.randn(3, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(k)) for k in (0, 1))
    function = lambda x, y: wasserstein(torch.softmax(x, 1), torch.softmax(y, 1), GRID)  # noqa: E731
    assert torch.autograd.gradcheck(function, (x.requires_grad_(), y.requires_grad_()), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("penalty", [0.08, (0.05, 0.1), (np.linspace(0.03, 0.1, 20), np.linspace(0.1, 0.03, 20))])
def test_a_penalty_by_gradcheck(penalty):
    """All directions, as masses may change."""
    p, q = weights(3)
    p = (1.4 * p.detach()).requires_grad_()
    assert torch.autograd.gradcheck(lambda p, q: wasserstein(p, q, GRID, penalty=penalty), (p, q), eps=1e-8, atol=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_the_autograd_of_pot(seed):
    """Where all points have weight the duals are unique, almost surely; both sides are centred as POT's are."""
    rng = np.random.default_rng(seed)
    m1, m2 = rng.integers(2, 9, 2)
    M = torch.tensor(rng.random((m1, m2)))
    ours, theirs = (weights(1, seed, shape=(m1, m2)) for _ in range(2))
    value = wasserstein(ours[0][0], ours[1][0], M)
    expected = ot.emd2(theirs[0][0], theirs[1][0], M)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
    for mine, pots in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, pots.grad, rtol=0, atol=1e-8)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_points_against_the_autograd_of_pot(metric):
    for seed in range(5):
        ours, theirs = points(seed=seed), points(seed=seed)
        wasserstein(None, None, tuple(ours), metric=metric).backward()
        distances = torch.cdist(*theirs) if metric == "euclidean" else torch.cdist(*theirs) ** 2
        ot.emd2(*(torch.full((k,), 1 / k, dtype=torch.float64) for k in (7, 9)), distances).backward()
        for mine, pots in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine.grad, pots.grad, rtol=1e-8, atol=1e-8)


def test_a_translation():
    """The optimal map is the translation itself: closed form of value and gradient, large enough for k-d trees."""
    x = torch.rand(600, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    shift = torch.tensor([0.3, -0.2], dtype=torch.float64)
    value = wasserstein(None, None, (x, x.detach() + shift))
    value.backward()
    torch.testing.assert_close(value, shift.square().sum())
    torch.testing.assert_close(x.grad, (-2 * shift / 600).expand(600, 2))


def test_nothing_to_move():
    """W is zero and at its minimum: so is the gradient."""
    p, _ = weights(zeros=0.3)
    q = p.detach().clone().requires_grad_()
    value = wasserstein(p, q, GRID)
    value.sum().backward()
    for x in (value, p.grad, q.grad):
        assert not x.detach().any()


# shapes and types


@pytest.mark.parametrize(
    ("of_p", "of_q", "expected"),
    [
        ((), (), ()),
        ((3,), (), (3,)),
        ((), (3,), (3,)),
        ((2, 3), (1,), (2, 3)),
        ((2, 1), (1, 3), (2, 3)),
        ((0,), (), (0,)),
    ],
)
@pytest.mark.parametrize("images", [False, True])
def test_leading_dimensions(of_p, of_q, expected, images):
    generator = torch.Generator().manual_seed(0)
    last = (4, 5) if images else (20,)
    p, q = (torch.rand(*leading, *last, generator=generator) + 0.1 for leading in (of_p, of_q))
    p, q = p.requires_grad_(), q.requires_grad_()
    value = wasserstein(p, q, GRID, normalize=True)
    assert value.shape == expected
    value.sum().backward()
    assert (p.grad.shape, q.grad.shape) == (p.shape, q.shape)
    if value.numel():
        P, Q = (torch.broadcast_to(x.detach(), (*expected, *last)).reshape(-1, 20) for x in (p, q))
        np.testing.assert_allclose(value.detach().flatten(), solve_batch(P, Q, GRID, normalize=True).value, rtol=1e-5)


def test_one_target_gathers_the_gradients_of_all():
    p, q = weights()
    one = q.detach()[0].requires_grad_()
    wasserstein(p, one, GRID).sum().backward()
    many = q.detach()[:1].expand(6, -1).clone().requires_grad_()
    wasserstein(p, many, GRID).sum().backward()
    torch.testing.assert_close(one.grad, many.grad.sum(0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_types(dtype):
    p, q = (x.detach().to(dtype).requires_grad_() for x in weights())
    value = wasserstein(p, q, GRID)
    value.sum().backward()
    assert value.dtype == torch.promote_types(dtype, torch.float32)
    assert p.grad.dtype == q.grad.dtype == dtype
    expected = solve_batch(*(x.detach().double() for x in (p, q)), GRID, normalize=True)
    mass = p.detach().double().sum(1)
    torch.testing.assert_close(value.detach().double(), mass * torch.from_numpy(expected.value), rtol=1e-6, atol=0)
    x, y = (z.detach().to(dtype).requires_grad_() for z in points())
    value = wasserstein(None, None, (x, y))
    value.backward()
    assert (value.dtype, x.grad.dtype) == (torch.promote_types(dtype, torch.float32), dtype)


def test_masses_and_normalisation():
    p, q = (x.detach() for x in weights(2))
    unit = wasserstein(p, q, GRID)
    torch.testing.assert_close(wasserstein(3 * p, 3 * q, GRID), 3 * unit)
    big = (3 * p).requires_grad_()
    wasserstein(big, q, GRID, normalize=True).sum().backward()
    small = p.clone().requires_grad_()
    wasserstein(small, q, GRID).sum().backward()
    inner = (small.grad * p).sum(1, keepdim=True)  # the derivative of p / sum(p)
    torch.testing.assert_close(big.grad, (small.grad - inner) / 3)


def test_clouds_in_batches():
    x, y = points(5, 4, 3, leading=(2, 3))
    value = wasserstein(None, None, (x, y[:, :1]))
    assert value.shape == (2, 3)
    value.sum().backward()
    single = points(5, 4, 3, leading=(2, 3))
    one = wasserstein(None, None, (single[0][1, 2], single[1][1, 0]))
    torch.testing.assert_close(one, value[1, 2])
    one.backward()
    torch.testing.assert_close(single[0].grad[1, 2], x.grad[1, 2])
    p = torch.rand(3, 5, dtype=torch.float64)
    value = wasserstein(p[None], None, (x.detach(), y.detach()), normalize=True)
    with pytest.raises(
        ValueError, match=r"p: expected leading dimensions that match those of x, \(2, 3\), .* got \(3,\)"
    ):
        wasserstein(p, None, (x.detach(), y.detach()), normalize=True)
    expected = solve(p[2].numpy(), None, PointCost(x.detach()[0, 2], y.detach()[0, 2]), normalize=True).value
    np.testing.assert_allclose(value[0, 2], expected)


def test_threads_change_nothing():
    p, q = weights()
    assert torch.equal(wasserstein(p, q, GRID), wasserstein(p, q, GRID, n_jobs=2))
    x, y = points(leading=(4,))
    assert torch.equal(wasserstein(None, None, (x, y)), wasserstein(None, None, (x, y), n_jobs=2))


def test_the_samplers_estimate():
    p, q = weights()
    value = wasserstein(p, q, GRID, method="gibbs")
    value.sum().backward()
    expected = solve_batch(p.detach(), q.detach(), GRID, method="gibbs")
    np.testing.assert_allclose(value.detach(), expected.value)
    f = expected.potentials[0]
    np.testing.assert_allclose(p.grad, f - f.mean(1, keepdims=True))


def test_infinite_costs():
    cost = coulomb(np.arange(5) + 0.5)
    p, q = (torch.full((2, 5), 0.2, dtype=torch.float64).requires_grad_() for _ in range(2))
    wasserstein(p, q, cost).sum().backward()
    assert torch.isfinite(p.grad).all()
    with pytest.raises(ValueError, match="cost: row 1"):
        wasserstein(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]), [[0.0, 1.0], [np.inf, 2.0]])


# differentiated in other ways


def test_a_second_derivative_raises():
    (p, q), (x, y) = weights(), points()
    for function, z in (
        (lambda p: wasserstein(p, q, GRID).sum(), p),
        (lambda x: wasserstein(None, None, (x, y)), x),
    ):
        (gradient,) = torch.autograd.grad(function(z), z, create_graph=True)
        with pytest.raises(RuntimeError, match="can be differentiated once only"):
            gradient.square().sum().backward()
        with pytest.raises(RuntimeError, match="can be differentiated once only"):
            torch.func.jacrev(torch.func.jacrev(function))(z.detach())


def test_func_grad_and_vmap():
    p, q = weights()
    wasserstein(p, q, GRID).sum().backward()
    single = lambda p, q: wasserstein(p, q, GRID)  # noqa: E731
    gradient = torch.func.grad(lambda p: wasserstein(p, q.detach(), GRID).sum())(p.detach())
    torch.testing.assert_close(gradient, p.grad)
    values = torch.func.vmap(single)(p.detach(), q.detach())
    torch.testing.assert_close(values, wasserstein(p, q, GRID).detach())
    gradients = torch.func.vmap(torch.func.grad(single))(p.detach(), q.detach())
    torch.testing.assert_close(gradients, p.grad)
    one = torch.func.vmap(torch.func.grad(single, argnums=(0, 1)), in_dims=(0, None))(p.detach(), q.detach()[0])
    assert one[1].shape == (6, 20)
    turned = torch.func.vmap(single, in_dims=(1, 0))(p.detach().t(), q.detach())
    torch.testing.assert_close(turned, values)
    torch.testing.assert_close(
        torch.func.jacrev(lambda p: wasserstein(p, q.detach(), GRID))(p.detach())[2, 2], p.grad[2]
    )


def test_func_grad_and_vmap_of_points():
    x, y = points(leading=(4,))
    wasserstein(None, None, (x, y)).sum().backward()
    single = lambda x, y: wasserstein(None, None, (x, y))  # noqa: E731
    torch.testing.assert_close(torch.func.vmap(single)(x.detach(), y.detach()), single(x, y).detach())
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(single))(x.detach(), y.detach()), x.grad)
    of_y = torch.func.vmap(torch.func.grad(single, argnums=1), in_dims=(None, 0))(x.detach()[0], y.detach())
    torch.testing.assert_close(of_y[0], y.grad[0])


@pytest.mark.parametrize("kind", ["weights", "points"])
def test_compiled_without_a_break(compiled, kind):
    x, y = weights() if kind == "weights" else points(leading=(4,))

    def function(x: Tensor, y: Tensor) -> Tensor:
        if kind == "weights":
            return wasserstein(torch.softmax(3 * x, 1), y, GRID).sum()
        return wasserstein(None, None, (2 * x, y)).sum()

    expected = function(x, y)
    gradients = torch.autograd.grad(expected, (x, y))
    value = compiled(function)(x, y)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, (x, y)), gradients)


# what is wrong


P, Q = (x.detach() for x in weights())
BAD = {
    "p: has negative weights, the first at row 1": lambda: wasserstein(P.index_fill(0, torch.tensor(1), -1), Q, GRID),
    "p: has NaN weights, the first at row 2": lambda: wasserstein(P.index_fill(0, torch.tensor(2), np.nan), Q, GRID),
    "q: row 0 has no mass": lambda: wasserstein(P, 0 * Q, GRID),
    "q: row . sums to 1, p to 2; .* normalize=True": lambda: wasserstein(2 * P, Q, GRID),
    "p: expected shape": lambda: wasserstein(P[:, :19], Q, GRID),
    "q: expected leading dimensions": lambda: wasserstein(P, Q[:5], GRID),
    r"q: expected leading dimensions that match those of p, \(6,\), or one measure; got \(6, 1\)": lambda: wasserstein(
        P, Q[:, None], GRID
    ),
    "p: expected a tensor of floating": lambda: wasserstein(torch.ones(20, dtype=torch.int64), Q[0], GRID),
    "p, q: expected tensors of weights": lambda: wasserstein(None, Q, GRID),
    "method: ": lambda: wasserstein(P, Q, GRID, method="sinkhorn"),
    "metric: ": lambda: wasserstein(None, None, (P, Q), metric="cosine"),
    "x: expected points": lambda: wasserstein(None, None, (P[0], Q)),
    "y: expected points with 20": lambda: wasserstein(None, None, (P, Q[:, :3])),
    "p: expected one weight for each of the 6": lambda: wasserstein(torch.ones(5), None, (P, Q)),
    "normalize: masses matter": lambda: wasserstein(P, Q, GRID, normalize=True, penalty=1.0),
    "penalty: expected a finite": lambda: wasserstein(P, Q, GRID, penalty=np.nan),
    "penalty: expected a finite number of at least 0, got -1": lambda: wasserstein(P, Q, GRID, penalty=-1),
    "penalty: expected a number or a pair of numbers": lambda: wasserstein(
        None, None, tuple(points()), penalty=([1] * 7, 1)
    ),
    "cost: gradients with respect": lambda: wasserstein(P, Q, torch.rand(20, 20).requires_grad_()),
    "n_jobs": lambda: wasserstein(P, Q, GRID, n_jobs=0),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments_are_named(what):
    with pytest.raises((ValueError, TypeError), match=what):
        BAD[what]()


# divergences


@pytest.mark.parametrize("kl", [0.3, (0.2, 1.5), (float("inf"), 0.5)])
def test_divergences_of_the_marginals(kl):
    """Values are those of solve, and gradients, which are not centred, those of central differences."""
    rng = np.random.default_rng(0)
    cost = PointCost(rng.random((6, 2)), rng.random((7, 2)))
    p, q = (torch.tensor(x, requires_grad=True) for x in (rng.random(6), 2 * rng.random(7)))
    value = wasserstein(p, q, cost, kl=kl)
    value.backward()
    exact = solve(p.detach().numpy(), q.detach().numpy(), cost, kl=kl, gap=0)
    assert value.item() == pytest.approx(exact.value, rel=2e-6)
    for x, name in ((p, "p"), (q, "q")):
        for k in range(2):
            step = torch.zeros_like(x)
            step[k] = 1e-4
            both = [
                wasserstein(*((x + s * step, q) if name == "p" else (p, x + s * step)), cost, kl=kl) for s in (1, -1)
            ]
            assert x.grad[k].item() == pytest.approx((both[0] - both[1]).item() / 2e-4, abs=5e-3)


@pytest.mark.parametrize("kl", [0.3, (0.2, float("inf"))])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_divergences_between_clouds(kl, metric):
    """Gradients of points and weights are those of central differences; nothing is centred."""
    rng = np.random.default_rng(1)
    p, q, x, y = (torch.tensor(z) for z in (rng.random(6), 2 * rng.random(7), rng.random((6, 2)), rng.random((7, 2))))
    given = [z.clone().requires_grad_() for z in (p, q, x, y)]
    wasserstein(*given[:2], tuple(given[2:]), kl=kl, metric=metric).backward()

    def exact(p, q, x, y):
        return solve(p.numpy(), q.numpy(), PointCost(x.numpy(), y.numpy(), metric), kl=kl, gap=0).value

    for k, (one, z) in enumerate(zip(given, (p, q, x, y), strict=True)):
        step = 1e-5 * torch.tensor(rng.random(z.shape))
        both = [exact(*(w + s * step if k == j else w for j, w in enumerate((p, q, x, y)))) for s in (1, -1)]
        assert float((one.grad * step).sum()) == pytest.approx((both[0] - both[1]) / 2, rel=5e-3, abs=1e-8)
    many = wasserstein(p, q, (torch.stack([x, y[:6]]), y), kl=kl, metric=metric)
    assert many[0].item() == pytest.approx(exact(p, q, x, y), rel=2e-6)
    each = torch.func.vmap(lambda x: wasserstein(p, q, (x, y), kl=kl, metric=metric))(torch.stack([x, y[:6]]))
    torch.testing.assert_close(each, many)


def test_losses_with_divergences():
    """Losses take them as well: kept duals, and clouds of different sizes."""
    rng = np.random.default_rng(2)
    P, Q = (torch.tensor(rng.random((3, 20))) for _ in range(2))
    loss = WassersteinLoss(GRID, kl=0.2, reduction="none", by_position=True)
    expected = [solve(p, q, GRID, kl=0.2, gap=0).value for p, q in zip(P.numpy(), Q.numpy(), strict=True)]
    for mode in (True, False):
        assert loss.train(mode)(P, Q).tolist() == pytest.approx(expected, rel=2e-6)
    x, y = [torch.tensor(rng.random((m, 2))) for m in (3, 5)], [torch.tensor(rng.random((m, 2))) for m in (4, 2)]
    found = SamplesLoss(kl=0.2, reduction="none")(x, y)
    clouds = [PointCost(a.numpy(), b.numpy()) for a, b in zip(x, y, strict=True)]
    assert found.tolist() == pytest.approx([solve(None, None, c, kl=0.2, gap=0).value for c in clouds], rel=2e-6)
    image = torch.tensor(rng.random((1, 1, 4, 5)))
    assert ImagesLoss(kl=0.2)(image, 2 * image).item() > 0
    with pytest.raises(ValueError, match="kl: the sampler"):
        WassersteinLoss(GRID, kl=1, method="gibbs")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kl": 0.0}, "kl: expected a positive"), ({"kl": 1, "penalty": 1}, "kl: expected no penalty")],
)
def test_divergences_that_are_refused(options, message):
    p, q = weights(1)
    with pytest.raises(ValueError, match=message):
        wasserstein(p, q, GRID, **options)
    with pytest.raises(ValueError, match="kl: the sampler"):
        wasserstein(p, q, GRID, kl=1, method="gibbs")
    with pytest.raises(ValueError, match="normalize"):
        wasserstein(p, q, GRID, kl=1, normalize=True)
