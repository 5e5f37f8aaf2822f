"""Barycenters against those of a linear programme, and what an estimator owes its users."""

from __future__ import annotations

import warnings

import numpy as np
import ot
import pytest
from scipy import sparse
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from gibbsot import DenseCost, GridCost, PointCost, datasets
from gibbsot.core import native
from gibbsot.distributed.shards import LocalShards
from gibbsot.exact.programme import free_measure
from gibbsot.models.barycenter.estimator import WassersteinBarycenter
from gibbsot.models.barycenter.shard import BarycenterShard, Objective

SIZE = 20
M = GridCost(SIZE).matrix()


slow = pytest.mark.skipif(native.name() == "numpy", reason="takes minutes, and says nothing of the kernels")


def bumps(*positions: float, width: float = 4.0) -> np.ndarray:
    x = np.exp(-((np.arange(SIZE) - np.array(positions)[:, None]) ** 2) / width)
    return x / x.sum(axis=1, keepdims=True)


def objective(p: np.ndarray, X: np.ndarray, weights: np.ndarray | None = None, cost: np.ndarray = M) -> float:
    p = np.asarray(p, np.float64)
    return float(np.average([ot.emd2(p / p.sum(), x / x.sum(), cost) for x in X], weights=weights))


def best(X: np.ndarray, weights: np.ndarray | None = None, cost: np.ndarray = M) -> float:
    p = ot.lp.barycenter(X.T, cost.T, weights=weights, solver="highs")  # its costs are from the data
    return objective(np.maximum(p, 0), X, weights, cost)


def bound(X: np.ndarray, share: np.ndarray, U: np.ndarray, cost: GridCost, rounds: int = 50) -> float:
    """The lower bound of potentials, of measures in two shards."""
    shards = LocalShards([BarycenterShard(X[:1], 0), BarycenterShard(X[1:], 1)])
    shards.initialise(cost, tau=1, key=0, n_jobs=1)
    shards.reduce(BarycenterShard.set_weights, shards.split(share / share.max()))
    shards.reduce(BarycenterShard.set_cost, cost)
    for shard, potentials in zip(shards.shards, (U[:1], U[1:]), strict=True):
        shard.potentials = potentials
    return Objective(shards, cost).lower_bound(rounds)


def short(**options) -> WassersteinBarycenter:
    """A fit by descent alone: without memory for the linear programme."""
    defaults = {"cost": "line", "max_epochs": 30, "tau": 5, "max_memory": 1.0, "random_state": 0}
    return WassersteinBarycenter(**defaults | options)


@pytest.fixture
def chosen_arcs(monkeypatch):
    """The linear programme on chosen arcs, though it is small."""
    monkeypatch.setattr(free_measure, "_ALL_ARCS", 0)


descent = pytest.mark.filterwarnings("ignore:1 of 1 barycenters ended with an open gap")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # two epochs
@pytest.mark.filterwarnings("ignore:X. [0-9]+ rows have no mass:UserWarning")
@slow
@parametrize_with_checks([WassersteinBarycenter("line", max_epochs=2, tau=3)])
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


POINTS = np.random.default_rng(5).random((16, 2))
COSTS = {
    "line": GridCost(16),
    "power": GridCost(16, power=1.5),
    "grid": GridCost((4, 4)),
    "points": PointCost(POINTS),
    "one dimension": PointCost(POINTS[:, :1], metric="euclidean"),
    "matrix": DenseCost(np.random.default_rng(6).random((16, 16)) - 0.3),
    "constant": DenseCost(np.full((16, 16), 2.0)),
}


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.0, 0.5], [0.0, 0.0, 3.0, 0.0]])
@pytest.mark.parametrize("kind", COSTS)
def test_the_optimum_of_the_linear_programme(kind, weights):
    """For every kind of cost, with weights of zero, and measures with empty bins."""
    rng = np.random.default_rng(7)
    X, C = rng.random((4, 16)) * (rng.random((4, 16)) < 0.6), COSTS[kind].matrix()
    share = np.ones(4) if weights is None else np.array(weights)
    used = share > 0
    model = WassersteinBarycenter(COSTS[kind], gap=0.0).fit(X, sample_weight=weights)
    rows = X / X.sum(axis=1, keepdims=True)
    optimum = best(rows[used], share[used] / share.sum(), C)
    assert model.status_ == "optimal"
    assert model.objective_ == pytest.approx(optimum, rel=1e-9, abs=1e-12)
    assert model.objective_ == pytest.approx(
        objective(model.barycenter_, rows[used], share[used], C), rel=1e-9, abs=1e-12
    )
    assert model.lower_bound_ <= optimum + 1e-9 * abs(optimum) + 1e-12
    assert model.gap_ == pytest.approx(
        (model.objective_ - model.lower_bound_) / (abs(model.objective_) or 1), abs=1e-15
    )


@slow
@pytest.mark.usefixtures("chosen_arcs")
@pytest.mark.parametrize(("gap", "status"), [(0.0, "optimal"), (1e-3, "gap reached")])
def test_chosen_arcs_give_the_same_optimum(gap, status):
    """Of 12 digits: the descent's potentials choose, and rounds of the programme add what is missing."""
    X, cost = datasets.digits(5)[:12], GridCost((8, 8))
    weights = np.linspace(0, 2, 12)
    model = WassersteinBarycenter(cost, gap=gap, random_state=0).fit(X, sample_weight=weights)
    optimum = best(X[1:], weights[1:] / weights.sum(), cost.matrix())
    assert model.status_ == status
    assert model.gap_ <= max(gap, 1e-10)
    assert model.lower_bound_ <= optimum * (1 + 1e-9)
    assert optimum * (1 - 1e-9) <= model.objective_ <= optimum * (1 + max(gap, 1e-9))
    rounds = [epoch for epoch in model.history_ if epoch.temperature == 0]
    assert len(rounds) == model.n_iter_ - 30 > 0
    assert np.isfinite([epoch.upper for epoch in rounds]).all()


@pytest.mark.slow
@slow
def test_without_the_linear_programme():
    """Where memory is short, a level method reaches the gap; if it may not, the gap is stated. Of 30 digits."""
    X, cost = datasets.digits(5)[:30], GridCost((8, 8))
    optimum = best(X, cost=cost.matrix())
    model = WassersteinBarycenter(cost, max_memory=1.0, random_state=0).fit(X)
    assert model.status_ == "gap reached"
    assert model.gap_ <= 1e-3
    assert model.objective_ == pytest.approx(objective(model.barycenter_, X, cost=cost.matrix()), rel=1e-9)
    assert model.lower_bound_ <= optimum * (1 + 1e-9)
    assert optimum * (1 - 1e-9) <= model.objective_
    coarse = WassersteinBarycenter(cost, gap=0.2, max_memory=1.0, random_state=0).fit(X)
    assert coarse.status_ == "gap reached"
    assert coarse.gap_ <= 0.2
    assert coarse.n_iter_ < 40
    with pytest.warns(ConvergenceWarning, match=r"the largest is .*e-0. of .*, because the largest number of rounds"):
        short = WassersteinBarycenter(cost, max_memory=1.0, max_epochs=40, random_state=0).fit(X)
    assert short.status_ == "budget spent"
    assert short.n_iter_ == 40
    assert 1e-3 < short.gap_ < 0.2
    assert short.lower_bound_ <= optimum * (1 + 1e-9) <= short.objective_ * (1 + 2e-9)


@pytest.mark.slow
@slow
@descent
@pytest.mark.parametrize(("memory", "stop"), [(1.0, 7), (1.0, 30), (1.0, -2), (None, 30), (None, -2)])
def test_resume_from_a_checkpoint_is_bit_identical(monkeypatch, tmp_path, memory, stop):
    """After an interrupt: of the descent, of the level method, before and in rounds of the linear programme."""
    monkeypatch.setattr(free_measure, "_ALL_ARCS", 0)
    X, weights = [datasets.digits(5)[:2], datasets.digits(5)[2:6]], np.linspace(0, 2, 6)
    options = {"max_memory": memory, "gap": 0.01 if memory else 0.0, "tol": 1e-1, "tau": 5, "random_state": 0}
    options |= {"checkpoint_seconds": 1e-9}
    whole = WassersteinBarycenter(GridCost((8, 8)), **options).fit(X, sample_weight=weights)
    assert whole.history_[-2].temperature == 0  # the last stage has several steps
    n_stop = stop % whole.n_iter_

    def interrupt(model):
        if model.n_iter_ == n_stop:
            raise KeyboardInterrupt

    model = WassersteinBarycenter(GridCost((8, 8)), callbacks=[interrupt], checkpoint=tmp_path, **options)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, sample_weight=weights)
    loaded = WassersteinBarycenter.load(tmp_path)
    np.testing.assert_array_equal(loaded.barycenter_, model.barycenter_)
    assert (loaded.n_iter_, loaded.status_, loaded.tau) == (n_stop, "running", 5)
    for each in (loaded, model.set_params(callbacks=[])):
        each.resume(X)
        np.testing.assert_array_equal(each.barycenter_, whole.barycenter_)
        assert (each.objective_, each.lower_bound_) == (whole.objective_, whole.lower_bound_)
        assert each.status_ == whole.status_
        np.testing.assert_array_equal([e[:6] for e in each.history_], [e[:6] for e in whole.history_])
    done = WassersteinBarycenter.load(tmp_path)
    assert done.status_ == whole.status_
    assert done.gap_ == whole.gap_


@pytest.mark.slow
@slow
@descent
def test_resume_with_more_epochs_and_a_smaller_gap(tmp_path):
    X, cost = datasets.digits(5)[:12], GridCost((8, 8))
    options = {"max_memory": 1.0, "tau": 5, "random_state": 0}
    whole = WassersteinBarycenter(cost, max_epochs=50, gap=0.01, **options).fit(X)
    model = WassersteinBarycenter(cost, max_epochs=23, gap=0.2, checkpoint=tmp_path, **options).fit(X)
    assert model.n_iter_ < 50
    model.set_params(max_epochs=50, gap=0.01).resume(X)
    np.testing.assert_array_equal(model.barycenter_, whole.barycenter_)
    assert model.n_iter_ == whole.n_iter_


@descent
def test_bad_checkpoints(tmp_path):
    X = bumps(4, 9)
    model = short(checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match="resume: there is no checkpoint"):
        model.resume(X)
    with pytest.raises(ValueError, match="has no checkpoint that is complete"):
        WassersteinBarycenter.load(tmp_path / "run")
    model.fit(X)
    with pytest.raises(ValueError, match=r"checkpoint: .* has checkpoints of another fit"):
        model.fit(X)
    with pytest.raises(ValueError, match="X: differs from the data of the fit"):
        model.resume(X[::-1])
    with pytest.raises(ValueError, match="cost: differs from that of the fit"):
        model.set_params(cost=GridCost(SIZE, power=1)).resume(X)
    with pytest.raises(ValueError, match="checkpoint_seconds"):
        short(checkpoint_seconds=0).fit(X)


@slow
@pytest.mark.usefixtures("chosen_arcs")
def test_budgets():
    """Time ends a fit between rounds; memory is checked when the number of arcs is known, and the descent goes on."""
    X, cost = datasets.digits(5)[:12], GridCost((8, 8))
    with pytest.warns(ConvergenceWarning, match="the time or memory allowed was used up"):
        model = WassersteinBarycenter(cost, gap=0.0, max_seconds=1e-3, random_state=0).fit(X)
    assert model.status_ == "budget spent"
    assert model.n_iter_ == 1
    with pytest.warns(ConvergenceWarning, match="the largest number of rounds was reached"):
        model = WassersteinBarycenter(cost, gap=0.0, max_memory=3e5, max_epochs=40, random_state=0).fit(X)
    assert np.isnan(model.history_[0].upper)
    assert model.lower_bound_ <= best(X, cost=cost.matrix()) <= model.objective_ * (1 + 1e-9)


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 100.0])
def test_lower_bound_holds_for_any_potentials(scale):
    """And never falls from round to round."""
    X, share, rng = bumps(4, 9, 16), np.array([0.2, 0.5, 0.3]), np.random.default_rng(0)
    optimum = best(X, share)
    for _ in range(20):
        U = scale * rng.standard_normal(X.shape)
        found = [bound(X, share, U, GridCost(SIZE), rounds) for rounds in (1, 2, 5, 50)]
        assert (np.diff(found) >= -1e-9).all()
        assert found[-1] <= optimum * (1 + 1e-9)


def test_lower_bound_of_the_best_potentials_is_the_optimum():
    """Those of a programme written here: max of the bound over U and L, with U - L <= M."""
    X, share = bumps(4, 9, 16)[:, ::2], np.full(3, 1 / 3)  # a small one
    X /= X.sum(axis=1, keepdims=True)
    cost = GridCost(X.shape[1])
    n, m = X.shape
    size = n * m
    one = np.ones((m, 1))
    each_U = sparse.kron(sparse.eye_array(n), sparse.kron(sparse.eye_array(m), one))  # row (i, a, b) has U_ia
    each_L = sparse.kron(sparse.eye_array(n), sparse.kron(one, sparse.eye_array(m)))
    flat = sparse.kron(share[None], sparse.eye_array(m))  # sum_i lambda_i U_i = 0
    found = linprog(
        np.concatenate([np.zeros(size), (share[:, None] * X).ravel()]),
        A_ub=sparse.hstack([each_U, -each_L]),
        b_ub=np.tile(cost.matrix().ravel(), n),
        A_eq=sparse.hstack([flat, sparse.csr_array((m, size))]),
        b_eq=np.zeros(m),
        bounds=(None, None),
    )
    U = found.x[:size].reshape(n, m)
    optimum = best(X, share, cost.matrix())
    assert bound(X, share, U, cost) == pytest.approx(optimum, rel=1e-6)


def test_any_cost_and_two_dimensions():
    """Four spots in the corners of 5 x 5: the barycenter sits in the middle, as the programme's does."""
    X = np.zeros((4, 25))
    X[np.arange(4), [0, 4, 20, 24]] = 1
    cost = GridCost((5, 5))
    for given in (cost, DenseCost(cost.matrix())):
        p = WassersteinBarycenter(given).fit(X).barycenter_
        np.testing.assert_allclose(p, np.eye(25)[12], atol=1e-9)


@pytest.mark.parametrize("cost", [GridCost(SIZE), GridCost((4, 5)), GridCost((4, 5), power=1), DenseCost(M)])
def test_one_measure_is_its_own_barycenter(cost):
    """Bit-identical, also as one of several with weight or several times; and any cost that is not zero for itself."""
    X = bumps(6, 13)
    for rows, weights in ((X[1:], None), (X, [0, 3]), (X[[1, 1, 1]], None)):
        model = WassersteinBarycenter(cost).fit(rows, sample_weight=weights)
        np.testing.assert_allclose(model.barycenter_, X[1], rtol=1e-12)
        assert model.objective_ == model.lower_bound_ == model.gap_ == 0
        assert model.status_ == "optimal"


@descent
def test_the_same_bits():
    """For the same seed, any number of threads, and sparse data; not for another seed."""
    X = bumps(4, 9, 16)
    first = short(n_jobs=1).fit(X).barycenter_
    np.testing.assert_array_equal(short(n_jobs=2).fit(X).barycenter_, first)
    np.testing.assert_array_equal(short().fit(sparse.csr_array(X)).barycenter_, first)
    assert (short(random_state=1).fit(X).barycenter_ != first).any()


@slow
@pytest.mark.usefixtures("chosen_arcs")
def test_the_same_bits_of_the_programme():
    """For any number of threads and of shards."""
    X = datasets.digits(5)[:12]
    first = WassersteinBarycenter(GridCost((8, 8)), random_state=0, n_jobs=1).fit(X)
    second = WassersteinBarycenter(GridCost((8, 8)), random_state=0, n_jobs=2).fit([X[:5], X[5:]])
    np.testing.assert_array_equal(second.barycenter_, first.barycenter_)
    assert second.history_[-1][:6] == first.history_[-1][:6]


@descent
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_a_fit_leaves(dtype):
    X = bumps(4, 9).astype(dtype)
    model = short(max_epochs=25).fit(X)
    assert model.barycenter_.shape == (SIZE,)
    assert model.barycenter_.dtype == np.float64
    assert (model.barycenter_ >= 0).all()
    assert model.barycenter_.sum() == pytest.approx(1, rel=1e-6)
    assert model.n_iter_ == len(model.history_) == 25
    lower = [epoch.lower for epoch in model.history_ if np.isfinite(epoch.lower)]
    assert len(lower) == 3  # two evaluations and the end
    assert lower == sorted(lower)
    assert lower[-1] == model.lower_bound_ <= model.objective_ == model.history_[-1].upper
    assert np.isnan([epoch.upper for epoch in model.history_[:-1]]).all()


@descent
def test_callbacks_stop_it_and_an_interrupt_leaves_what_is_there():
    X = bumps(4, 9)
    model = short(callbacks=[lambda each: each.n_iter_ == 12]).fit(X)
    assert model.n_iter_ == 12
    assert model.objective_ == pytest.approx(objective(model.barycenter_, X), rel=1e-9)

    def interrupt(each):
        if each.n_iter_ == 15:
            raise KeyboardInterrupt

    stopped = short(callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(X)
    assert stopped.n_iter_ == 15
    assert stopped.lower_bound_ <= best(X) < objective(stopped.barycenter_, X) < objective(X.mean(axis=0), X)
    assert stopped.objective_ == np.inf


@slow
@descent
@pytest.mark.parametrize("step_size", [2.0, 60.0])
def test_steps_that_are_too_long_or_short_cost_time_only(step_size):
    X = bumps(4, 9, 16)
    model = WassersteinBarycenter("line", step_size=step_size, max_memory=1.0, random_state=0).fit(X)
    assert model.objective_ < 1.02 * best(X)


@descent
def test_multiplied_costs_give_the_same_barycenter():
    """By powers of two, bit-identical."""
    X = bumps(4, 9, 16)
    first, large = (short(cost=DenseCost(scale * M)).fit(X) for scale in (1, 2.0**20))
    np.testing.assert_array_equal(large.barycenter_, first.barycenter_)
    assert large.objective_ == 2.0**20 * first.objective_


@descent
def test_rows_without_mass_are_left_out():
    X = bumps(4, 9, 16)
    X[1] = 0
    with pytest.warns(UserWarning, match="1 rows have no mass, the first is row 1"):
        model = short().fit(X)
    np.testing.assert_array_equal(model.barycenter_.shape, (SIZE,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": GridCost(3)}, "cost: is for 3 x 3 points; expected 20 x 20"),
        ({"cost": np.full((SIZE, SIZE), np.inf)}, "cost: "),
        ({"max_epochs": 0}, "max_epochs"),
        ({"step_size": 0.0}, "step_size: expected a positive number"),
        ({"temperature": "hot"}, "temperature: expected 'auto'"),
        ({"tol": -1.0}, "tol: expected a number >= 0"),
        ({"gap": -1.0}, "gap: expected a number >= 0"),
        ({"max_seconds": 0}, "max_seconds: expected a positive number"),
        ({"max_memory": -1}, "max_memory: expected a positive number"),
        ({"callbacks": print}, "callbacks: expected a sequence"),
    ],
)
def test_bad_parameters(options, message):
    model = short(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(bumps(4, 9))
    assert not hasattr(model, "barycenter_")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "sample_weight: expected one for each of the 2 measures, got shape"),
        ([1.0, -1.0], "sample_weight: has negative weights, the first at entry 1"),
        ([0.0, 0.0], "sample_weight: is zero for every measure with mass"),
        ([1.0, np.nan], "sample_weight: has NaN weights, the first at entry 1"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        short().fit(bumps(4, 9), sample_weight=weights)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_bad_data(value):
    X = bumps(4, 9)
    X[0, 3] = value
    with pytest.raises(ValueError, match="X"):
        short().fit(X)


def test_an_input_is_a_candidate_without_the_linear_programme():
    """One measure, or equal ones, are their barycenter; a short descent is no worse than the heaviest measure."""
    X = bumps(4, 15)
    for same in (X[:1], X[[0, 0, 0]]):
        model = short().fit(same)
        assert (model.status_, model.objective_, model.n_iter_) == ("optimal", 0.0, 1)
        np.testing.assert_allclose(model.barycenter_, X[0], rtol=1e-15)
    weights = np.array([2.0**-10, 1.0])  # that are not rounded
    for stop in ({"max_epochs": 1}, {"callbacks": [lambda _: True]}, {"max_seconds": 1e-9}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = short(**stop).fit(X, sample_weight=weights)
        assert model.n_iter_ == 1
        np.testing.assert_allclose(model.barycenter_, X[1], rtol=1e-15)
        assert model.objective_ == pytest.approx(objective(X[1], X, weights), rel=1e-5)
        assert 0 <= model.lower_bound_ <= best(X, weights) * (1 + 1e-9)
        assert 0 < model.gap_ <= 1


@pytest.mark.parametrize("cost", ["line", M])
def test_data_of_single_precision(cost):
    """Weights of single precision are no optimum to 1e-9, so those that are published have twice the digits."""
    counts = np.random.default_rng(0).dirichlet(np.ones(len(M)), size=3).astype(np.float32)
    for data in (counts[:1], np.repeat(counts[:1].astype(np.float64), 2, axis=0)):
        same = WassersteinBarycenter(cost, gap=0.0, random_state=0).fit(data)
        assert (same.status_, same.objective_, same.gap_) == ("optimal", 0.0, 0.0)
    model = WassersteinBarycenter(cost, gap=0.0, random_state=0).fit(counts)
    assert model.status_ == "optimal"
    assert model.barycenter_.dtype == np.float64
    assert model.objective_ == pytest.approx(objective(model.barycenter_, counts), rel=1e-6)
    assert model.gap_ <= 1e-9


@pytest.mark.parametrize("cost", [None, "sqeuclidean"])
@pytest.mark.parametrize("weighted", [True, False])
def test_clouds_name_the_free_support(cost, weighted):
    clouds = [np.random.default_rng(0).random((n, 2)) for n in (5, 6)]
    if cost is None and not weighted:
        given, message = np.stack([clouds[0], clouds[0]]), "clouds need support='free'"
    else:
        given, message = [(x, np.ones(len(x))) for x in clouds] if weighted else clouds, "support='free'"
    with pytest.raises(ValueError, match=message):
        WassersteinBarycenter(cost).fit(given)
    assert WassersteinBarycenter(cost, support="free").fit(list(clouds)).support_.shape[1] == 2


def test_a_list_of_clouds_names_free_support():
    clouds = list(np.random.default_rng(0).normal(size=(3, 6, 2)))
    for cost in ("line", GridCost(2)):
        with pytest.raises(ValueError, match=r"X: has negative entries.*support='free'"):
            WassersteinBarycenter(cost=cost).fit(clouds)


@pytest.mark.parametrize("d", [2, 3])
def test_positive_clouds_without_a_cost_are_not_taken_as_rows(d):
    clouds = [np.random.default_rng(0).random((n, d)) for n in (5, 6)]
    with pytest.raises(ValueError, match=f"X: is a list of arrays with {d} columns.*support='free'.*cost='line'"):
        WassersteinBarycenter().fit(clouds)
    shards = WassersteinBarycenter("line", random_state=0).fit(clouds)
    assert shards.barycenter_.shape == (d,)
