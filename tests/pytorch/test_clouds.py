"""`SamplesLoss` and `exact_plan` against `solve`, SciPy's assignments and each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from gibbsot import PointCost, solve

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from gibbsot.torch import SamplesLoss, exact_plan, wasserstein  # noqa: E402

SIZES = ((3, 5), (4, 2), (1, 6))


def clouds(sizes, d: int = 2, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, d, generator=generator, dtype=torch.float64).requires_grad_() for n in sizes]


def weights(sizes, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found = [torch.rand(n, generator=generator, dtype=torch.float64) + 0.1 for n in sizes]
    return [(w / w.sum()).requires_grad_() for w in found]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_clouds_of_different_sizes(metric, weighted):
    """Lists, packed tensors and one after another give the same values and gradients."""
    sizes = list(zip(*SIZES, strict=True))
    x, y = clouds(sizes[0]), clouds(sizes[1], seed=1)
    p, q = (weights(sizes[0]), weights(sizes[1], 2)) if weighted else (None, None)
    loss = SamplesLoss(metric, reduction="none")
    value = loss(x, y, p, q)
    value.sum().backward()
    gradients = [z.grad for z in (*x, *y, *(p or ()), *(q or ()))]
    for b in range(3):
        own = [None if w is None else w[b].detach().numpy() for w in (p, q)]
        expected = solve(*own, PointCost(x[b].detach().numpy(), y[b].detach().numpy(), metric)).value
        np.testing.assert_allclose(value[b].item(), expected)
    every = [*x, *y, *(p or ()), *(q or ())]
    for z in every:
        z.grad = None
    offsets = [torch.tensor([0, *np.cumsum(s)]) for s in sizes]
    options = {"x_offsets": offsets[0], "y_offsets": offsets[1]}
    flat = [None if w is None else torch.cat(w) for w in (p, q)]
    packed = loss(torch.cat(x), torch.cat(y), *flat, **options)
    torch.testing.assert_close(packed, value, rtol=0, atol=0)
    packed.sum().backward()
    for found, z in zip(gradients, every, strict=True):
        torch.testing.assert_close(z.grad, found, rtol=0, atol=0)
    single = sum(wasserstein(None if p is None else p[b], None if q is None else q[b], (x[b], y[b]), metric=metric)
                 for b in range(3))  # fmt: skip
    torch.testing.assert_close(single, value.sum())
    torch.testing.assert_close(SamplesLoss(metric)(x, y, p, q), value.mean())


def test_tensors_of_clouds():
    x, y = torch.rand(4, 5, 3), torch.rand(4, 6, 3)
    torch.testing.assert_close(SamplesLoss(reduction="none")(x, y), wasserstein(None, None, (x, y)))


def test_a_penalty():
    x, y = clouds([4]), clouds([6], seed=1)
    value = SamplesLoss(penalty=0.3)(x, y, [torch.full((4,), 0.5)], [torch.full((6,), 0.1)])
    expected = solve(np.full(4, 0.5), np.full(6, 0.1), PointCost(*(z[0].detach() for z in (x, y))), penalty=0.3).value
    np.testing.assert_allclose(value.item(), expected, rtol=1e-6)
    both = [SamplesLoss(penalty=c)(x, y, [torch.full((4,), 0.5)], [torch.full((6,), 0.1)]) for c in (0.3, (0.3, 0.3))]
    assert both[0] == both[1]
    with pytest.raises(ValueError, match=r"penalty\[1\]: expected a finite number of at least 0, got -1"):
        SamplesLoss(penalty=(0.3, -1))


X, Y = clouds([3, 4]), clouds([2, 2], seed=1)
BAD = {
    "y: expected as many clouds as x": lambda: SamplesLoss()(X, Y[:1]),
    r"x: expected clouds, \(m, d\) or \(B, m, d\), got \(4, 1, 8, 8\); ImagesLoss is for images": lambda: SamplesLoss()(
        torch.rand(4, 1, 8, 8), torch.rand(4, 1, 8, 8)
    ),
    "x: is empty": lambda: SamplesLoss()([], []),
    r"x\[0\]: expected points": lambda: SamplesLoss()([torch.ones(3)], Y[:1]),
    r"p\[1\]: expected 4 weights": lambda: SamplesLoss()(X, Y, [torch.ones(3), torch.ones(3)]),
    "x_offsets: expected none": lambda: SamplesLoss()(X, Y, x_offsets=torch.tensor([0, 3, 7])),
    "x_offsets: expected integers from 0 to 7": lambda: SamplesLoss()(
        torch.cat(X), Y, x_offsets=torch.tensor([0, 3, 6])
    ),
    "x_offsets: expected increasing": lambda: SamplesLoss()(torch.cat(X), Y, x_offsets=torch.tensor([0, 3, 3, 7])),
    "y: expected a list of clouds": lambda: SamplesLoss()(X, torch.cat(Y)),
    "metric": lambda: SamplesLoss("cosine"),
    "reduction": lambda: SamplesLoss(reduction="max"),
    r"p: has negative weights.*pair 1": lambda: SamplesLoss()(X, Y, [torch.ones(3) / 3, -torch.ones(4)]),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_clouds(what):
    with pytest.raises((ValueError, TypeError), match=what):
        BAD[what]()


# couplings


@pytest.mark.parametrize(("n", "d"), [(1, 2), (20, 1), (40, 2), (300, 2), (300, 30)])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_permutations_are_optimal(n, d, metric):
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, d)), rng.normal(size=(n, d))
    plan = exact_plan(torch.tensor(x), torch.tensor(y), metric=metric)
    assert sorted(plan.j.tolist()) == plan.i.tolist() == list(range(n))
    torch.testing.assert_close(plan.mass, torch.full((n,), 1 / n, dtype=torch.float64))
    M = cdist(x, y, metric)
    np.testing.assert_allclose(M[plan.i, plan.j].sum(), M[linear_sum_assignment(M)].sum(), rtol=1e-12)


def test_plans_in_batches():
    x, y = torch.rand(6, 10, 2), torch.rand(6, 10, 2)
    plan = exact_plan(x, y, n_jobs=2)
    assert plan.i.shape == plan.j.shape == plan.mass.shape == (6, 10)
    assert torch.equal(plan.j[5], exact_plan(x[5], y[5]).j)
    assert exact_plan(x[:1], y[:1]).j.shape == (1, 10)


def test_plans_of_weights():
    x, y = torch.rand(4, 10, 2), torch.rand(4, 7, 2)
    p, q = torch.rand(4, 10) + 0.1, torch.rand(4, 7) + 0.1
    plan = exact_plan(x, y, p, q)
    for b in range(4):
        Z = torch.zeros(10, 7).index_put((plan.i[b], plan.j[b]), plan.mass[b], accumulate=True)
        torch.testing.assert_close(Z.sum(1), p[b] / p[b].sum())
        torch.testing.assert_close(Z.sum(0), q[b] / q[b].sum())
        value = (Z * torch.cdist(x[b], y[b]) ** 2).sum()
        expected = wasserstein(p[b], q[b], (x[b], y[b]), normalize=True)
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((torch.rand(3), torch.rand(3, 2)), "x: expected points"),
        ((torch.rand(4, 3, 8, 8), torch.rand(4, 3, 8, 8)), r"x: .*images are points after x\.flatten\(1\)"),
        ((torch.rand(4, 192), torch.rand(4, 3, 8, 8)), r"y: .*images are points after y\.flatten\(1\)"),
        ((torch.rand(4, 64), torch.rand(4, 8, 8)), r"y: expected shape.*images are points after flatten\(1\)"),
        ((torch.rand(4, 8, 8), torch.rand(5, 8, 8)), r"y: expected shape.*images are points after flatten\(1\)"),
        ((torch.rand(3, 2), torch.rand(3, 1)), r"y: expected shape \('m', 2\), got \(3, 1\)$"),
        ((torch.rand(2, 3, 2), torch.rand(3, 2)), "y: expected shape"),
        ((torch.rand(3, 2), torch.rand(3, 2), torch.ones(2)), "p: expected shape"),
        ((torch.full((3, 2), np.nan), torch.rand(3, 2)), "x: "),
    ],
)
def test_bad_plans(arguments, what):
    with pytest.raises(ValueError, match=what):
        exact_plan(*arguments)
