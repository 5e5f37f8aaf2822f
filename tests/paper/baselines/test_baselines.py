"""The paper's baselines: Bregman ADMM against exact plans, smoothed NMF against its own duality and POT."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from scipy import sparse
from scipy.special import entr, logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from gibbsot import DenseCost, GridCost, WassersteinNMF, datasets
from paper.baselines.badmm import badmm, snapshots
from paper.baselines.smoothed_nmf import Conjugate, SmoothedNMF, dual_of_components, dual_of_memberships, minimise

SIZE = 16
GRID = GridCost(SIZE)
BUMPS = np.exp(-((np.arange(SIZE) - np.array([[2], [8], [13]])) ** 2) / 2)
BUMPS /= BUMPS.sum(axis=1, keepdims=True)


def mixtures(n: int = 12) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(3, 0.3), n) @ BUMPS


def exact(P: np.ndarray, X: np.ndarray) -> np.ndarray:
    return np.array([ot.emd2(p / p.sum(), x / x.sum(), GRID.matrix()) for p, x in zip(P, X, strict=True)])


# Bregman ADMM


def test_badmm_finds_the_paper_s_plan():
    """The toy on a coarser line: violation falls to 1e-3, the value to within 1 % of the optimum."""
    p, q, cost = datasets.two_modes(32)
    found = list(snapshots(p, q, cost, [1, 100, 4000]))
    assert [iterate.n_iter for iterate in found] == [1, 100, 4000]
    assert found[-1].violation < 1e-3 < 0.1 * found[0].violation
    assert found[-1].value == pytest.approx(ot.emd2(p, q, cost.matrix()), rel=0.01)
    for iterate in found:
        np.testing.assert_allclose(iterate.plan.sum(axis=1), p, rtol=1e-12)
        assert (iterate.plan >= 0).all()
        assert np.abs(iterate.plan.sum(axis=0) - q).sum() == pytest.approx(iterate.violation)
        assert (iterate.plan * cost.matrix()).sum() == pytest.approx(iterate.value)


@pytest.mark.parametrize("seed", range(4))
def test_badmm_solves_small_problems(seed):
    """With zero weights and costs of either sign, to 1e-3."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(8))
    p[1] = q[3] = q[4] = 0
    M = rng.normal(size=(6, 8))
    result = badmm(p / p.sum(), q / q.sum(), M, 5000)
    assert result.value == pytest.approx(ot.emd2(p / p.sum(), q / q.sum(), M), abs=1e-3)
    assert result.violation < 1e-3
    assert not result.plan[1].any()
    assert not result.plan[:, [3, 4]].any()


def test_badmm_of_a_batch_is_that_of_each():
    rng = np.random.default_rng(0)
    P, q, M = rng.dirichlet(np.ones(5), 3), rng.dirichlet(np.ones(7)), rng.random((5, 7))
    batch = badmm(P, q, M, 50)
    assert batch.plan.shape == (3, 5, 7)
    for b, p in enumerate(P):
        one = badmm(p, q, M, 50)
        assert isinstance(one.value, float)
        np.testing.assert_allclose(batch.plan[b], one.plan, rtol=1e-10)
        assert batch.value[b] == pytest.approx(one.value, rel=1e-12)
        assert batch.violation[b] == pytest.approx(one.violation, rel=1e-8)


def test_snapshots_are_those_of_shorter_runs():
    p, q, cost = datasets.two_modes(16)
    for iterate in snapshots(p, q, cost, [1, 3, 10]):
        again = badmm(p, q, cost, iterate.n_iter)
        np.testing.assert_array_equal(iterate.plan, again.plan)


@pytest.mark.parametrize("rho", [None, 1e-3, 1e3])
def test_badmm_leaves_forbidden_pairs_out(rho):
    """Coulomb's diagonal stays empty and no number is lost, however hard the penalty makes it."""
    p, q, cost = datasets.coulomb_uniform(32)
    for iterate in snapshots(p, q, cost, [1, 10, 500], rho):
        assert np.isfinite(iterate.plan).all()
        assert np.isfinite([iterate.value, iterate.violation]).all()
        assert not np.diag(iterate.plan).any()
        np.testing.assert_allclose(iterate.plan.sum(axis=1), p, rtol=1e-12)


def test_badmm_comes_near_coulomb_s_optimum():
    """Which the paper does not find: in logarithms, to 1 % in the cost and the marginals."""
    result = badmm(*datasets.coulomb_uniform(32), 1000)
    assert result.value == pytest.approx(2, rel=0.01)
    assert result.violation < 0.01


def test_badmm_without_a_plan():
    """Nothing may move, but something has to: the violation says so."""
    stuck = badmm([0.2, 0.8], [0.8, 0.2], [[0.0, np.inf], [np.inf, 0.0]], 200)
    assert stuck.violation == pytest.approx(1.2)
    assert np.isfinite(stuck.plan).all()


def test_badmm_without_costs():
    assert badmm([0.5, 0.5], [0.25, 0.75], np.zeros((2, 2)), 10).value == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_iter": 0}, ValueError, "n_iter: expected at least 1"),
        ({"n_iter": 1.5}, TypeError, "n_iter: expected an integer"),
        ({"rho": 0.0}, ValueError, "rho: expected a positive number"),
        ({"rho": np.nan}, ValueError, "rho: expected a positive number"),
        ({"P": [0.5, 0.6]}, ValueError, "Q: sums to"),
        ({"P": [0.5, -0.5]}, ValueError, "P: has negative weights"),
        ({"cost": [[0.0, np.nan], [1.0, 0.0]]}, ValueError, "cost: has NaN"),
    ],
)
def test_badmm_refuses(options, error, message):
    with pytest.raises(error, match=message):
        badmm(**{"P": [0.5, 0.5], "Q": [0.5, 0.5], "cost": [[0.0, 1.0], [1.0, 0.0]]} | options)
    with pytest.raises(ValueError, match="budgets: expected increasing numbers"):
        snapshots([1.0], [1.0], [[1.0]], [10, 10])


# smoothed NMF


def conjugate(epsilon: float = 0.05, cost=GRID, n: int = 4) -> Conjugate:
    X = mixtures(n)
    X[:, 5] = 0  # a bin without weight
    return Conjugate(X / X.sum(axis=1, keepdims=True), cost, epsilon)


def test_conjugate_and_sinkhorn_are_equal_at_the_optimum():
    """Fenchel: W_eps(y, x) + H*(g) = <g, y> where y is the gradient, with W_eps by POT's Sinkhorn."""
    epsilon = 0.05
    X = np.random.default_rng(0).dirichlet(np.ones(SIZE), 3)
    u = np.random.default_rng(1).normal(size=X.shape)
    values, Y = Conjugate(X, GRID, epsilon)(u)
    np.testing.assert_allclose(Y.sum(axis=1), 1)
    for x, y, g, value in zip(X, Y, u, values, strict=True):
        plan = ot.sinkhorn(y, x, GRID.matrix(), epsilon, stopThr=1e-13, numItermax=10_000)
        smoothed = (plan * GRID.matrix()).sum() - epsilon * entr(plan).sum()
        assert smoothed + epsilon * value == pytest.approx(epsilon * (g @ y), abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 1e-2, 2e-3, 1e-4])
def test_conjugates_of_a_grid_and_of_its_matrix_agree(epsilon):
    """The plain sums and the careful ones alike; at the smallest epsilon every product vanishes in the plain form."""
    grid = GridCost((3, 5))
    rng = np.random.default_rng(0)
    X, u = rng.dirichlet(np.ones(15), 4), rng.normal(size=(4, 15)) / epsilon
    X[:, :3] = 0
    X[1, 3:] *= np.eye(12)[11] * 1e-300
    X /= X.sum(axis=1, keepdims=True)
    values, Y = Conjugate(X, grid, epsilon)(u)
    again, other = Conjugate(X, DenseCost(grid.matrix()), epsilon)(u)
    np.testing.assert_allclose(values, again, rtol=1e-10)
    np.testing.assert_allclose(Y, other, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(Y.sum(axis=1), 1, rtol=1e-9)
    plain = entr(X).sum(axis=1) + (X * logsumexp(u[:, :, None] - grid.matrix() / epsilon, axis=1)).sum(axis=1)
    np.testing.assert_allclose(values, plain, rtol=1e-10)
    shifted, _ = Conjugate(X, DenseCost(grid.matrix() - 1), epsilon)(u)
    np.testing.assert_allclose(shifted, values + 1 / epsilon, rtol=1e-10)


FACTORS = [
    (dual_of_memberships, BUMPS + 0.01),
    (dual_of_components, np.random.default_rng(0).dirichlet(np.ones(3), 4)),
]


@pytest.mark.parametrize(("dual", "other"), FACTORS)
def test_gradients(dual, other):
    """By central differences in random directions."""
    rng = np.random.default_rng(0)
    other = other / other.sum(axis=1, keepdims=True)
    for epsilon in (0.05, 1e-3):
        H = conjugate(epsilon)
        u = rng.normal(size=(4, SIZE))
        gradient = dual(u, H, other, 0.5)[1]
        for _ in range(5):
            step = 1e-5 * rng.normal(size=u.shape)
            difference = dual(u + step, H, other, 0.5)[0] - dual(u - step, H, other, 0.5)[0]
            assert difference == pytest.approx(2 * (gradient * step).sum(), rel=1e-4, abs=1e-10)


@pytest.mark.parametrize(("dual", "other"), FACTORS)
def test_no_gap_between_primal_and_dual(dual, other):
    """The primal by POT's Sinkhorn at the factor that belongs to the dual's minimum."""
    epsilon, rho = 0.05, 0.02
    other = other / other.sum(axis=1, keepdims=True)
    X = np.random.default_rng(2).dirichlet(np.ones(SIZE), 4)
    H = Conjugate(X, GRID, epsilon)
    value, _, factor, left = minimise(dual, np.zeros_like(X), H, other, rho / epsilon, 2000, 1e-10)
    mixture = factor @ other if dual is dual_of_memberships else other @ factor
    primal = -rho * entr(factor).sum()
    for y, x in zip(mixture, X, strict=True):
        plan = ot.sinkhorn(y, x, GRID.matrix(), epsilon, stopThr=1e-13, numItermax=10_000)
        primal += (plan * GRID.matrix()).sum() - epsilon * entr(plan).sum()
    assert primal == pytest.approx(-epsilon * value, abs=1e-7)
    assert left < 1e-7


@pytest.fixture(scope="module")
def models() -> dict[float, SmoothedNMF]:
    """Of planted mixtures, by epsilon."""
    X = mixtures()
    return {
        epsilon: SmoothedNMF(3, cost=GRID, epsilon=epsilon, rho=epsilon / 10, random_state=0, max_iter=10).fit(X)
        for epsilon in (2e-3, 1e-2, 5e-2)
    }


@pytest.mark.slow
def test_little_smoothing_comes_near_the_exact_model(models):
    """Exact costs: less with less smoothing, and as near as 1 % of what there is to gain."""
    X = mixtures()
    costs = {epsilon: exact(model.memberships_ @ model.components_, X).mean() for epsilon, model in models.items()}
    sampled = WassersteinNMF(3, cost=GRID, max_epochs=1000, tau=5, random_state=0).fit(X)
    reference = exact(sampled.memberships_ @ sampled.components_, X).mean()
    alone = exact(np.tile(X.mean(axis=0), (len(X), 1)), X).mean()
    assert costs[2e-3] < costs[1e-2] < costs[5e-2]
    assert costs[2e-3] - reference < 0.01 * (alone - reference)


def test_more_smoothing_gives_smoother_components(models):
    entropies = [entr(models[epsilon].components_).sum(axis=1).mean() for epsilon in (2e-3, 1e-2, 5e-2)]
    assert entropies == sorted(entropies)
    sharpness = [(models[epsilon].components_ ** 2).sum() for epsilon in (2e-3, 5e-2)]
    assert sharpness[0] > 1.2 * sharpness[1]


def test_the_objective_falls(models):
    """Where L-BFGS may converge; factors are weights in any case."""
    solved = SmoothedNMF(3, init="random", max_iter=8, max_inner=500, tol=1e-6, random_state=0).fit(mixtures())
    assert len(solved.objective_) == solved.n_iter_ > 3
    assert (np.diff(solved.objective_) < 1e-7).all()
    for model in (solved, *models.values()):
        for factor in (model.components_, model.memberships_):
            np.testing.assert_allclose(factor.sum(axis=1), 1)
            assert (factor >= 0).all()


def test_memberships_of_the_training_data_come_back(models):
    model = models[1e-2]
    np.testing.assert_allclose(model.transform(mixtures()), model.memberships_, atol=0.02)


def test_smoothed_nmf_repeats():
    """Bit-identical, whatever the scale of the data; costs of either kind give the same, as far as L-BFGS converges."""
    X = mixtures()
    first, other = (
        SmoothedNMF(3, init="random", max_iter=3, tol=0.0, random_state=1).fit(factor * X) for factor in (1, 4)
    )
    np.testing.assert_array_equal(first.components_, other.components_)
    np.testing.assert_array_equal(first.memberships_, other.memberships_)
    assert first.objective_ == other.objective_
    again = clone(first).fit(X)
    np.testing.assert_array_equal(first.components_, again.components_)
    given = SmoothedNMF(3, init=5 * BUMPS, max_iter=2, cost=GRID.matrix()).fit(X)
    grid = SmoothedNMF(3, init=(BUMPS, np.ones((12, 3))), max_iter=2).fit(X)
    np.testing.assert_allclose(given.components_, grid.components_, atol=5e-3)


def test_tiny_epsilon_loses_no_number():
    """A thousandth of a thousandth of the cost: far beyond what exp can hold."""
    with np.errstate(over="raise", invalid="raise"), pytest.warns(ConvergenceWarning, match="raise max_inner"):
        model = SmoothedNMF(2, epsilon=1e-6, rho=1e-6, max_iter=2, max_inner=5, random_state=0).fit(mixtures(4))
    assert np.isfinite(model.components_).all()
    assert np.isfinite(model.objective_).all()


def test_callbacks_may_stop_it():
    seen = []
    model = SmoothedNMF(2, max_iter=9, callbacks=[lambda model: seen.append(model.n_iter_), lambda _: len(seen) == 2])
    assert model.fit(mixtures()).n_iter_ == 2
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_components": 0}, ValueError, "n_components: expected at least 1"),
        ({"max_iter": 0}, ValueError, "max_iter: expected at least 1"),
        ({"max_inner": 1.5}, TypeError, "max_inner: expected an integer"),
        ({"epsilon": 0.0}, ValueError, "epsilon: expected a positive number"),
        ({"rho": -1.0}, ValueError, "rho: expected a positive number"),
        ({"rho": (1.0, 0.0)}, ValueError, "rho: expected a positive number"),
        ({"rho": (1.0,)}, ValueError, "rho: expected a number or one for memberships"),
        ({"rho": None}, ValueError, "rho: expected a number or one for memberships"),
        ({"tol": -1.0}, ValueError, "tol: expected a number >= 0"),
        ({"init": "kmeans"}, ValueError, "init: expected 'nmf', 'random', components or a pair"),
        ({"init": BUMPS[:1]}, ValueError, r"init: expected 2 rows of 16 weights, got 1$"),
        ({"init": ()}, ValueError, "init: expected 'nmf', 'random', components or a pair"),
        ({"init": None}, ValueError, "init: expected 'nmf', 'random', components or a pair"),
        ({"init": -BUMPS[:2]}, ValueError, "init: has negative weights, the first at row 0"),
        ({"cost": GridCost(9)}, ValueError, "cost: is for 9 x 9 points; expected 16 x 16"),
        ({"cost": np.where(np.eye(SIZE) > 0, np.inf, 1.0)}, ValueError, "cost: has infinite costs"),
    ],
)
def test_smoothed_nmf_refuses(options, error, message):
    with pytest.raises(error, match=message):
        SmoothedNMF(**{"n_components": 2} | options).fit(mixtures())


def test_smoothed_nmf_refuses_data():
    model = SmoothedNMF(2, max_iter=1)
    with pytest.raises(NotFittedError):
        model.transform(mixtures())
    for X, message in (
        (BUMPS[0], "X: expected measures as rows"),
        (-BUMPS, "X: has negative weights"),
        (0 * BUMPS, "X: row 0 has no mass"),
        (np.nan * BUMPS, "X: has NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X)
    damaged = sparse.csr_array(BUMPS)
    damaged.indices[:] += 10**7
    with pytest.raises(ValueError, match="X: is not a valid sparse matrix"):
        model.fit(damaged)
    model.fit(mixtures())
    with pytest.raises(ValueError, match="X: expected 16 features as in fit, got 15"):
        model.transform(mixtures()[:, 1:])
