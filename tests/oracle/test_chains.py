"""The oracle against finite differences of exact transport costs, and its chains against each other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from cases import KINDS, batch, measures
from gibbsot import Cost, DenseCost, GridCost, PointCost, Problem
from gibbsot.core import native
from gibbsot.costs.problems import dual_value
from gibbsot.distributed import fixed_point
from gibbsot.exact.methods import optima
from gibbsot.oracle import chains as module
from gibbsot.oracle.chains import TargetChains
from gibbsot.sampling import sampler, theory
from gibbsot.sampling.mixtures import MixtureGradients, Mixtures
from gibbsot.solvers import relaxed
from kernels import using

FALSE_ALARM = 1e-4  # of each test that draws


def exact(P: np.ndarray, Q: np.ndarray, M: np.ndarray) -> np.ndarray:
    """POT's network simplex."""
    return np.array([ot.emd2(p, q, M.astype(np.float64)) for p, q in zip(P, Q, strict=True)])


def small(kind: str) -> Cost:
    rng = np.random.default_rng(0)
    return {
        "dense": DenseCost(rng.random((5, 6))),
        "points": PointCost(rng.normal(size=(5, 2)), rng.normal(size=(6, 2))),
        "grid": GridCost((2, 3)),
    }[kind]


def models(oracle: TargetChains, seed: int = 1, zeros: float = 0.3) -> np.ndarray:
    return measures(np.random.default_rng(seed), len(oracle), oracle.cost.shape[0], zeros)


def some(n: int = 4, **options) -> TargetChains:
    """An oracle on a small grid, not yet called."""
    return TargetChains(GridCost((5, 6)), measures(np.random.default_rng(0), n, 30), **{"tau": 5} | options)


def same(first: TargetChains, other: TargetChains) -> None:
    """Cost, targets and chains are bit-identical."""
    a, b = first.arrays(), other.arrays()
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def same_answers(first, other) -> None:
    for a, b in zip((*first[:2], *first[2]), (*other[:2], *other[2]), strict=True):
        np.testing.assert_array_equal(a, b)


def differences(p: np.ndarray, q: np.ndarray, M: np.ndarray) -> np.ndarray:
    """What the exact cost gains, per unit, when mass is moved from all of p to each point in turn."""
    W, e = ot.emd2(p, q, M), 1e-6
    return np.array([(ot.emd2((1 - e) * p + e * one, q, M) - W) / e for one in np.eye(len(p))])


def well_conditioned(M: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Measures, some weights zero, far from where the cost has kinks: every arc of a full basis carries 0.04."""
    rng, pairs = np.random.default_rng(0), []
    while len(pairs) < n:
        p, q = (measures(rng, 1, size)[0] for size in M.shape)
        used = ot.emd(p, q, M)[ot.emd(p, q, M) > 0]
        if used.min() > 0.04 and len(used) == (p > 0).sum() + (q > 0).sum() - 1:
            pairs.append((p, q))
    P, Q = zip(*pairs, strict=True)
    return np.array(P), np.array(Q)


@pytest.mark.parametrize("kind", ["dense", "points", "grid"])
def test_gradients_are_those_of_the_exact_cost(kind):
    """U is the derivative of W along e_i - p, at points without weight too, and -L that along e_j - q, as T falls."""
    cost = small(kind)
    M = cost.matrix()
    P, Q = well_conditioned(M, 4)
    W = exact(P, Q, M)
    oracle = TargetChains(cost, Q, tau=100)
    for T in np.geomspace(0.3, 1e-3, 20):
        values, U, info = oracle(P, T * W)
    by_target = info.target_gradients - (Q * info.target_gradients).sum(axis=1, keepdims=True)
    for found, wanted in (
        (U, [differences(p, q, M) for p, q in zip(P, Q, strict=True)]),
        (by_target, [differences(q, p, M.T) for p, q in zip(P, Q, strict=True)]),
    ):
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
        assert ((found * np.array(wanted)).sum(axis=1) / lengths > 0.99).all()
        # not the direction alone: the length is right within the temperature, about a hundredth for eleven points
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.linalg.norm(wanted, axis=1), rtol=0.05)
    # V(z) lies about (m1 + m2) T above W
    np.testing.assert_allclose(values, W, rtol=0.03)
    np.testing.assert_allclose((P * U).sum(axis=1), 0, atol=1e-12)


def test_a_warm_start_follows_a_model_that_moves():
    """Chains that continue need a fraction of the sweeps of new ones, with smaller errors."""
    warm = some()
    rng = np.random.default_rng(1)
    here, there = (measures(rng, 4, 30) for _ in range(2))
    for T in np.geomspace(1, 1e-4, 10):
        warm(here, T)
    Q, M = warm.targets.toarray(), warm.cost.matrix()
    sweeps, errors = np.zeros(2), np.zeros(2)
    for k, s in enumerate(np.linspace(0, 1, 20)):
        P = (1 - s) * here + s * there
        W = exact(P, Q, M)
        for i, oracle in enumerate((warm, some(rng=k + 1))):
            values, _, info = oracle(P, 1e-4)
            sweeps[i] += info.sweeps.sum()
            errors[i] += np.abs(values / W - 1).mean() / 20
    assert sweeps[0] < 0.5 * sweeps[1]
    assert errors[0] < 0.5 * errors[1]


def test_each_chain_runs_until_it_has_mixed():
    oracle = some(max_sweeps=60)
    P = models(oracle)
    _, _, info = oracle(P, np.array([1.0, 1e-2, 1e-4, 1e-7]))
    assert info.mixed[0]
    assert not info.mixed[-1]
    np.testing.assert_array_equal(info.mixed, info.sweeps < 60)
    np.testing.assert_array_equal(oracle.sweep, info.sweeps)
    assert info.sweeps.min() > 5
    before = oracle.sweep.copy()
    _, _, again = oracle(P, 1e-2)
    np.testing.assert_array_equal(oracle.sweep, before + again.sweeps)
    assert (info.lower, info.upper) == (None, None)


def test_one_model_for_all_targets():
    first, other = some(), some()
    p = models(first)[0]
    same_answers(first(p, 1e-3), other(np.tile(p, (4, 1)), 1e-3))


@pytest.mark.parametrize("kind", ["dense", "grid2"])
def test_threads_do_not_show(kind):
    pair = batch(kind, n=5)
    one, two = (TargetChains(pair.cost, pair.q, tau=5, n_jobs=n) for n in (1, 2))
    for T in (0.1, 0.01):
        same_answers(one(pair.p, T, bounds=True), two(pair.p, T, bounds=True))
    for a, b in zip(one.exact(pair.p, 0.01), two.exact(pair.p, 0.01), strict=True):
        assert a.value == b.value
    same(one, two)


@given(st.permutations(range(5)), st.integers(1, 4), st.sampled_from(["dense", "grid2"]))
def test_calls_may_be_split(order, cut, kind):
    """The answer for a target is independent of the other targets in the same call and in other calls."""
    pair = batch(kind, n=5, dtype=np.float32)
    whole, split = (TargetChains(pair.cost, pair.q, tau=3) for _ in range(2))
    T = np.geomspace(0.1, 0.01, 5)
    for _ in range(2):
        answer = whole(pair.p, T)
        for rows in (order[:cut], order[cut:]):
            answer_of_rows = split(pair.p[rows], T[rows], rows)
            np.testing.assert_array_equal(answer_of_rows[0], answer[0][rows])
            np.testing.assert_array_equal(answer_of_rows[1], answer[1][rows])
            np.testing.assert_array_equal(answer_of_rows[2].sweeps, answer[2].sweeps[rows])
    same(whole, split)


def random_mixtures(n: int, K: int, m: int, bits: int = 22, weighted: bool = True) -> Mixtures:
    rng = np.random.default_rng(3)
    D = fixed_point.components(rng.dirichlet(np.full(m, 0.3), K))
    W = rng.dirichlet(np.full(K, 0.3), n)
    weights = fixed_point.Fixed.of(W * rng.random((n, 1)), 2.0**-bits).integers if weighted else None
    return Mixtures(D, fixed_point.memberships(W), weights, bits, 2.0**-bits)


@pytest.mark.parametrize("level", native.available())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["dense", "points", "grid2", "grid3"])
def test_mixtures_have_the_values_and_gradients_of_their_models(kind, dtype, level, monkeypatch):
    """From calls with the models themselves: bit-identical for kernels, threads, parts and splits of the targets."""
    pair = batch(kind, n=9, dtype=dtype)
    models, T = random_mixtures(9, 3, pair.cost.shape[0]), np.geomspace(0.1, 0.01, 9)
    with using(level):
        oracles = [TargetChains(pair.cost, pair.q, tau=3, n_jobs=n_jobs) for n_jobs in (1, 1, 2, 1)]
        plain, whole, threads, split = oracles
        for factor in (1.0, 0.3):
            P, Q = models.models(), plain.targets.toarray()
            normalised = Problem.checked(P, Q, pair.cost, np.ones(9), p=P, q=Q)
            values, U, info = plain._run(np.arange(9), normalised, factor * T, None)
            found = whole.mixture_gradients(models, factor * T)
            np.testing.assert_array_equal(found.values, values)
            np.testing.assert_array_equal(found.sweeps, info.sweeps)
            integers = np.rint(U.astype(np.float64) / models.quantum).astype(np.int64)
            np.testing.assert_array_equal(found.memberships, integers @ models.components.T.astype(np.int64))
            np.testing.assert_array_equal(found.components, models.weighted.T.astype(np.int64) @ integers)
            with monkeypatch.context() as patch:
                patch.setattr(sampler, "chains_per_call", lambda *_: 2)
                same_gradients(threads.mixture_gradients(models, factor * T), found)
            parts = [split.mixture_gradients(models.rows(a, b), factor * T[a:b], a) for a, b in ((5, 9), (0, 5))]
            same_gradients(MixtureGradients.join(parts[::-1]), found)
        for oracle in oracles[1:]:
            same(oracle, plain)


def same_gradients(first: MixtureGradients, other: MixtureGradients) -> None:
    for a, b in zip(first, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_gradients_of_mixtures_need_no_weights():
    """And sums are the same where double precision adds only eight measures exactly."""
    X, models = measures(np.random.default_rng(0), 700, 30), random_mixtures(700, 2, 30)
    others = models, models._replace(bits=25), models._replace(weighted=None)
    found, short, without = (
        TargetChains(GridCost((5, 6)), X, tau=2, max_sweeps=3).mixture_gradients(each, 0.01) for each in others
    )
    same_gradients(short, found)
    assert without.components.shape == (0, 0)
    same_gradients(without, found._replace(components=without.components))


def test_an_error_in_a_part_frees_the_oracle(monkeypatch):
    oracle, models = some(n_jobs=2), random_mixtures(4, 3, 30)
    with monkeypatch.context() as patch:
        patch.setattr(module.mixtures, "run", lambda *_, **__: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            oracle.mixture_gradients(models, 0.1)
    assert (oracle.sweep == 0).all()
    oracle.mixture_gradients(models, 0.1)
    assert (oracle.sweep > 0).all()


def test_targets_keep_their_ids():
    """A target in another oracle, at another index, has the same answer if it has the same id."""
    whole = some()
    P = models(whole)
    values, _, _ = whole(P, 1e-3)
    subset = TargetChains(whole.cost, measures(np.random.default_rng(0), 4, 30)[[3, 1]], tau=5, ids=[3, 1])
    np.testing.assert_array_equal(subset(P[[3, 1]], 1e-3)[0], values[[3, 1]])
    assert (some(rng=1)(P, 1e-3)[0] != values).all()


@pytest.mark.parametrize("indices", [slice(1, 3), [1, 2], np.array([False, True, True, False]), [-3, 2]])
def test_ways_to_name_targets(indices):
    oracle, other = some(), some()
    P = models(oracle)
    same_answers(oracle(P[1:3], 1e-3, indices), other(P[1:3], 1e-3, [1, 2]))
    assert (oracle.sweep[[0, 3]] == 0).all()
    assert (oracle.sweep[[1, 2]] > 0).all()


def test_targets_of_every_form_are_the_same():
    """Dense, sparse of any kind and with duplicates, ragged and out of order, scaled: bit-identical."""
    Q = np.random.default_rng(0).integers(0, 4, (3, 30)).astype(float)
    rows, columns = np.nonzero(Q)
    halves = sparse.coo_array((np.tile(Q[rows, columns] / 2, 2), (np.tile(rows, 2), np.tile(columns, 2))), Q.shape)
    ragged = [(np.flatnonzero(q)[::-1], q[np.flatnonzero(q)[::-1]]) for q in Q]
    forms = [Q, Q.tolist(), sparse.csr_array(Q), sparse.csc_matrix(Q), halves, ragged]
    forms += [[(list(support), list(weights)) for support, weights in ragged], 8 * Q]
    first = TargetChains(GridCost((5, 6)), Q, tau=5)
    P = models(first)
    answer = first(P, 1e-3)
    for form in forms:
        oracle = TargetChains(GridCost((5, 6)), form, tau=5)
        same_answers(oracle(P, 1e-3), answer)
        same(oracle, first)
    assert len(TargetChains(GridCost((5, 6)), Q[0])) == 1
    sparse_models = some(3)
    np.testing.assert_array_equal(sparse_models(sparse.csr_array(P), 1e-3)[0], some(3)(P, 1e-3)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["forbidden", "points", "grid2", "axes"])
def test_saved_and_loaded_it_goes_on_to_the_bit(kind, dtype):
    pair = batch(kind, n=4, dtype=dtype)
    oracle = TargetChains(pair.cost, pair.q, tau=3, stride=2, max_sweeps=17, rng=2**63 + 1, ids=[7, 1, 2**40, 3])
    oracle(pair.p, 0.1)
    loaded = TargetChains.from_arrays({name: np.asarray(x) for name, x in oracle.arrays().items()}, n_jobs=2)
    assert loaded.n_jobs == 2
    assert loaded.cost.dtype == dtype
    same(loaded, oracle)
    for T in (0.1, 0.01):
        same_answers(loaded(pair.p, T), oracle(pair.p, T))
    same(loaded, oracle)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["dense", "points", "grid1", "grid2", "thin"])
def test_bounds_enclose_the_exact_cost(kind, dtype):
    """At a high temperature, and closely after annealing."""
    for seed in range(2):
        pair = batch(kind, n=3, dtype=dtype, seed=seed)
        oracle = TargetChains(pair.cost, pair.q, tau=5)
        W = exact(pair.p, pair.q, pair.cost.matrix())
        hot = oracle(pair.p, 1.0, bounds=True)[2]
        for share in np.geomspace(1, 1e-4, 20):
            oracle(pair.p, share * W)
        cold = oracle(pair.p, 1e-4 * W, bounds=True)[2]
        # the weights themselves are rounded to the cost's precision
        slack = (1e-12 if dtype == np.float64 else 1e-6) * (W + W.mean())
        for info in (hot, cold):
            assert (info.lower <= W + slack).all()
            assert (info.upper >= W - slack).all()
        assert (cold.upper - cold.lower < 0.05 * W).all()


@pytest.mark.parametrize("kind", ["dense", "points", "grid2", "coulomb"])
def test_exact_optima_do_not_disturb_the_chains(kind):
    pair = batch(kind, n=3)
    oracle = TargetChains(pair.cost, pair.q, tau=5)
    before = oracle(pair.p, 0.1)[2].sweeps
    M = np.where(np.isinf(pair.cost.matrix()), 1e3, pair.cost.matrix())
    optima = oracle.exact(pair.p, 0.1)
    np.testing.assert_allclose([optimum.value for optimum in optima], exact(pair.p, pair.q, M), rtol=1e-9)
    assert all(optimum.optimal for optimum in optima)
    np.testing.assert_array_equal(oracle.sweep, before)
    twin = TargetChains(pair.cost, pair.q, tau=5)
    twin(pair.p, 0.1)
    same_answers(oracle(pair.p, 0.05), twin(pair.p, 0.05))


def test_chains_adopt_exact_potentials():
    """From there one call at a low temperature has the exact values, which chains that begin do not come near."""
    oracle, cold = some(), some()
    P = models(oracle)
    W = exact(P, oracle.targets.toarray(), oracle.cost.matrix())
    T = 1e-5 * W
    oracle.load_potentials([-optimum.g for optimum in oracle.exact(P[:2], 0.1, [0, 1])], [0, 1])
    assert (oracle.sweep == 0).all()
    values, without = oracle(P, T)[0], cold(P, T)[0]
    np.testing.assert_allclose(values[:2], W[:2], rtol=1e-3)
    assert (np.abs(without / W - 1) > 0.05).all()
    np.testing.assert_array_equal(values[2:], without[2:])


@settings(max_examples=20)
@given(st.sampled_from(KINDS), st.integers(0, 50))
def test_answers_of_every_cost_are_finite(kind, seed):
    pair = batch(kind, n=2, dtype=np.float32, seed=seed)
    oracle = TargetChains(pair.cost, pair.q, tau=2)
    for T in (1e-12, 1e-3, 1e3):
        values, U, info = oracle(pair.p, T)
        assert values.shape == (2,)
        assert np.isfinite(values).all()
        assert np.isfinite(U[pair.p > 0]).all()
        assert np.isfinite(info.target_gradients[pair.q > 0]).all()


def broken(P: np.ndarray, value: float) -> np.ndarray:
    P = P.copy()
    P[1, 2] = value
    return P


@pytest.mark.parametrize(
    ("change", "temperature", "indices", "error", "message"),
    [
        (lambda P: broken(P, -0.1), 0.1, None, ValueError, "P: has negative weights, the first at row 1, entry 2"),
        (lambda P: broken(P, np.nan), 0.1, None, ValueError, "P: has NaN weights"),
        (lambda P: broken(P, np.inf), 0.1, None, ValueError, "P: has infinite weights"),
        (lambda P: 0 * P, 0.1, None, ValueError, "P: row 0 has no mass"),
        (lambda P: 2 * P, 0.1, None, ValueError, "sums to 1, P to 2; expected sums that agree"),
        (lambda P: P[:, 1:], 0.1, None, ValueError, "P: expected 30 weights in each measure"),
        (lambda P: P[:3], 0.1, None, ValueError, "expected as many measures as P has"),
        (lambda P: P[:3], 0.1, [0], ValueError, "P: expected one model for each of the 1 targets, or one; got 3"),
        (lambda P: np.full(P.shape, "a"), 0.1, None, TypeError, "P: expected real numbers"),
        (lambda P: P[:3], 0.1, [0, 1, 1], ValueError, "indices: expected a list of different targets"),
        (lambda P: P[:2], 0.1, [0, -4], ValueError, "indices: expected a list of different targets"),
        (lambda P: P[:1], 0.1, 0, ValueError, "indices: expected a list of different targets"),
        (lambda P: P[:1], 0.1, np.array([], int), ValueError, "indices: expected a list of different targets"),
        (lambda P: P[:1], 0.1, [4], IndexError, "out of bounds"),
        (lambda P: P[:1], 0.1, [0.5], ValueError, "indices: expected a list"),
        (lambda P: P, 0.0, None, ValueError, "temperature"),
        (lambda P: P, -1.0, None, ValueError, "temperature"),
        (lambda P: P, np.nan, None, ValueError, "temperature"),
        (lambda P: P, [0.1, 0.1, 0.1, 0.0], None, ValueError, "temperature"),
        (lambda P: P, [0.1, 0.1], None, ValueError, "temperature: expected a number, or one for each of the 4"),
        (lambda P: P, "hot", None, TypeError, "temperature: expected real numbers"),
    ],
)
def test_bad_arguments_leave_the_chains_as_they_were(change, temperature, indices, error, message):
    oracle, twin = some(), some()
    P = models(oracle)
    for each in (oracle, twin):
        each(P, 0.01)
    with pytest.raises(error, match=message):
        oracle(change(P), temperature, indices)
    same(oracle, twin)
    if temperature == 0.1:
        for call in (lambda P, rows: oracle.exact(P, 0.1, rows), oracle.problem):
            with pytest.raises(error, match=message):
                call(change(P), indices)
        same(oracle, twin)


@pytest.mark.parametrize("method", ["call", "bounds"])
def test_an_interrupt_leaves_the_chains_as_they_were(monkeypatch, method):
    """It comes when all the work is done and before anything is kept."""
    oracle, twin = some(), some()
    P = models(oracle)
    for each in (oracle, twin):
        each(P, 0.01)

    def after(function):
        def interrupted(*args, **options):
            function(*args, **options)
            raise KeyboardInterrupt

        return interrupted

    call = {
        "call": lambda: oracle(P, 0.01),
        "bounds": lambda: oracle(P, 0.01, bounds=True),
    }[method]
    with monkeypatch.context() as patch:
        owner, name = (relaxed, "optima") if method == "bounds" else (sampler, "run")
        patch.setattr(owner, name, after(getattr(owner, name)))
        with pytest.raises(KeyboardInterrupt):
            call()
    same(oracle, twin)
    same_answers(oracle(P, 0.001), twin(P, 0.001))


Q = np.full((2, 6), 1 / 6)


@pytest.mark.parametrize(
    ("targets", "error", "message"),
    [
        (broken(Q, -1), ValueError, "targets: has negative weights, the first at row 1, entry 2"),
        (broken(Q, np.nan), ValueError, "targets: has NaN weights, the first at row 1, entry 2"),
        (np.zeros((2, 6)), ValueError, "targets: row 0 has no mass"),
        (Q[:, 1:], ValueError, "targets: expected 6 weights"),
        (Q[:0], ValueError, "targets: is empty"),
        ([], ValueError, "targets: is empty"),
        (None, TypeError, "targets: expected real numbers"),
        (np.full((2, 6), 1e308), ValueError, "targets: row 0 has a sum that overflows"),
        (sparse.csr_array(broken(Q, -1)), ValueError, "targets: has negative weights, the first at row 1, entry 2"),
        (sparse.csr_array(broken(Q, np.nan)), ValueError, "targets: has NaN weights, the first at row 1, entry 2"),
        (sparse.csr_array(np.eye(6)[[0, 1]] * [[1], [0]]), ValueError, "targets: row 1 has no mass"),
        (sparse.csr_array(np.full((2, 6), 1e308)), ValueError, "targets: row 0 has a sum that overflows"),
        (sparse.csr_array(Q[:, 1:]), ValueError, "targets: expected at least one row of 6 weights"),
        (sparse.csr_array(Q[:0]), ValueError, "targets: expected at least one row of 6 weights"),
        ([([0, 1], [0.5])], ValueError, "targets: pair 0 is not a support of column indices with as many weights"),
        ([([0], [1.0]), ([[0]], [[1.0]])], ValueError, "targets: pair 1 is not a support"),
        ([([0.0, 1.0], [0.5, 0.5])], ValueError, "targets: pair 0 is not a support of column indices"),
        ([([0], [1.0]), (np.array([], int), [])], ValueError, "targets: pair 1 needs different columns from 0 to 5"),
        ([([0, 6], [0.5, 0.5])], ValueError, "targets: pair 0 needs different columns"),
        ([([-1, 0], [0.5, 0.5])], ValueError, "targets: pair 0 needs different columns"),
        ([([1, 1], [0.5, 0.5])], ValueError, "targets: pair 0 needs different columns"),
        ([([0, 1], [0.5, -0.5])], ValueError, "targets: has negative weights, the first at entry 1"),
        ([([0, 1], [0.5, np.nan])], ValueError, "targets: has NaN weights, the first at entry 1"),
        ([([0, 1], [0.0, 0.0])], ValueError, "targets: has no mass"),
    ],
)
def test_bad_targets(targets, error, message):
    with pytest.raises(error, match=message):
        TargetChains(np.ones((5, 6)), targets)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tau": 0}, ValueError, "tau: expected at least 1"),
        ({"tau": 2.0}, TypeError, "tau: expected an integer"),
        ({"max_sweeps": 0}, ValueError, "max_sweeps: expected at least 1"),
        ({"rng": -1}, ValueError, "rng: expected an integer from 0"),
        ({"ids": [0]}, ValueError, "ids: expected one number >= 0 for each of the 2 problems"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        TargetChains(np.ones((5, 6)), Q, **options)


@pytest.mark.parametrize("kind", ["points", "grid1"])
def test_sampled_temperatures_agree_with_the_bound(kind):
    """z-tests over 150 chains, each a false alarm in 1e4; and the two temperatures on the same side of each other.

    The pair (U, L) with optimal U and closed L has the value W; raised to v it has calT by the theory. The noise of a
    sweep given, V rises with T: so a sampled temperature is above calT exactly if the sweep at calT stays below v. Near
    W all is linear in T, V - W = C T with C the noise's, and v - W over the sampled temperature is C on average.
    """
    n, one = 150, batch(kind, n=1)
    pair = Problem.normalised(np.repeat(one.p, n, axis=0), np.repeat(one.q, n, axis=0), one.cost)
    h = np.where(one.q > 0, -optima(one, np.zeros_like(one.p))[0].g, np.inf)
    chains = sampler.State(np.repeat(h, n, axis=0), np.zeros(n, np.int64), 3, np.arange(n, dtype=np.uint64))
    U = one.cost.row_min(h)
    closed = one.cost.col_max(np.where(one.p > 0, U, -np.inf))
    W = dual_value(one, U, closed)[0]
    critical = stats.norm.isf(FALSE_ALARM / 2)
    for share in (1e-6, 0.25):
        v = (1 + share) * W
        sampled = theory.sampled_temperature(chains, pair, np.full(n, v))
        bound = theory.temperature_bound(one, U, closed - (v - W))[0]
        np.testing.assert_allclose(sampler.run(chains, pair, sampled[:, None])[1].value, v, rtol=1e-9)
        at_bound = sampler.run(chains, pair, np.array([bound]))[1].value
        np.testing.assert_array_equal(sampled > bound, at_bound < v)
        assert np.abs(stats.ttest_1samp(at_bound, v).statistic) < critical
        if share == 1e-6:
            assert np.abs(stats.ttest_1samp((v - W) / sampled, (v - W) / bound).statistic) < critical
    assert (theory.sampled_temperature(chains, pair, np.full(n, 0.9 * W)) == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_temperatures_of_measures_that_agree(dtype):
    """Where the precision cannot tell V(z) from the value, a temperature is small, but no error."""
    pair = batch("grid2", n=3, dtype=dtype, zeros=0.0)
    agreeing = Problem.normalised(pair.p, pair.p, pair.cost)
    for value in (0.0, 1e-300, 1e-30, 1e-12):
        T = theory.sampled_temperature(sampler.init(agreeing), agreeing, np.full(3, value))
        assert np.isfinite(T).all()
        assert (T >= 0).all()
        assert (T <= 1e-3).all()


def test_potentials_of_another_shape_are_refused():
    oracle, twin = some(), some()
    for L in (np.zeros((3, oracle.cost.shape[1])), np.zeros((4, 1)), np.zeros(oracle.cost.shape[1])):
        with pytest.raises(ValueError, match=r"L: expected shape \(4, "):
            oracle.load_potentials(L)
    same(oracle, twin)


@pytest.mark.parametrize("name", ["h", "sweep"])
def test_a_file_with_chains_of_another_length_is_refused(name):
    arrays = {key: np.asarray(x) for key, x in some().arrays().items()}
    with pytest.raises(ValueError, match=f"{name}: expected shape"):
        TargetChains.from_arrays(arrays | {name: arrays[name][:-1]})


def test_a_file_with_columns_out_of_range_is_refused():
    arrays = {key: np.asarray(x) for key, x in some().arrays().items()}
    with pytest.raises(ValueError, match="targets: is not a valid sparse matrix"):
        TargetChains.from_arrays(arrays | {"columns": arrays["columns"] + 10**7})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("h", lambda x: x * np.nan, "h: expected finite numbers"),
        ("h", lambda x: x.astype(str), "h: expected finite numbers"),
        ("sweep", lambda x: x + 0.5, "sweep: expected integers"),
        ("sweep", lambda x: x - 10**6, "sweep: expected integers of at least 0"),
        ("sweep", lambda x: x.astype(np.uint64) + np.uint64(2**63), "sweep: expected integers"),
        ("max_sweeps", lambda x: x + 2**40, "max_sweeps: expected at most 1,000,000"),
        ("tau", lambda x: np.repeat(x, 3), "size 1"),
        ("columns", lambda x: x.astype(float), "columns: expected integers, got float64"),
        ("starts", lambda x: x.astype(float), "starts: expected integers, got float64"),
    ],
)
def test_a_file_with_impossible_chains_is_refused(name, change, message):
    arrays = {key: np.asarray(x) for key, x in some().arrays().items()}
    with pytest.raises(ValueError, match=message):
        TargetChains.from_arrays(arrays | {name: change(arrays[name])})


def test_two_threads_at_once_are_an_error(monkeypatch):
    """The second call is refused; afterwards the oracle works again."""
    P = np.random.default_rng(0).dirichlet(np.ones(9), size=4)
    oracle, usual, started, go = TargetChains(GridCost((3, 3)), P), sampler.run, threading.Event(), threading.Event()

    def slow(*args, **options):
        started.set()
        assert go.wait(10)
        return usual(*args, **options)

    monkeypatch.setattr(sampler, "run", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(oracle, P[::-1], 0.01)
        assert started.wait(10)
        for call in (oracle, lambda *_: oracle.load_potentials(P)):
            with pytest.raises(RuntimeError, match="at work in another thread"):
                call(P, 0.01)
        go.set()
        assert len(first.result()[0]) == 4
    assert len(oracle(P, 0.01)[0]) == 4
