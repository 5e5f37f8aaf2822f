"""POT's own functions are the specification: what they do, `gibbsot.compat` does."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import ot
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from cases import problems
from gibbsot import compat, coulomb, datasets
from gibbsot.compat.pot import functions
from gibbsot.core import native
from gibbsot.exact import annealed
from gibbsot.exact import methods as exact
from kernels import using

COMPILED = pytest.mark.skipif(native.name() == "numpy", reason="without kernels small problems are handed to POT")
BOTH = pytest.mark.parametrize("name", ["emd", "emd2"])


@contextmanager
def crossover_alone() -> Iterator[None]:
    """Problems of any size go to the crossover, and POT's dense solver refuses to help."""

    def refuse(*args):
        pytest.fail("POT was asked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions, "_MIN_PAIRS", 0)
        patch.setattr(functions, "pot_emd", refuse)
        patch.setattr(functions, "pot_emd2", refuse)
        yield


@pytest.fixture
def alone() -> Iterator[None]:
    with crossover_alone():
        yield


def clouds(m1=30, m2=40, zeros=0.0, seed=0, mass=1.0):
    """Two weighted clouds in the plane, for which both the plan and the potentials are unique."""
    rng = np.random.default_rng(seed)
    a, b = (rng.random(m) * (rng.random(m) >= zeros) + 0.1 * (np.arange(m) == 0) for m in (m1, m2))
    M = ot.dist(rng.normal(size=(m1, 2)), rng.normal(size=(m2, 2)))
    return mass * a / a.sum(), mass * b / b.sum(), M


def check_optimal(a, b, M, G, log) -> None:
    """Primal and dual feasible, and no gap between them."""
    mass, scale = a.sum(), np.abs(log["u"]).max() + np.abs(log["v"]).max() + np.abs(M[np.isfinite(M)]).max()
    np.testing.assert_allclose(G.sum(axis=1), a, atol=1e-12 * mass)
    np.testing.assert_allclose(G.sum(axis=0), b, atol=1e-12 * mass)
    assert G.min() >= 0
    assert log["cost"] == pytest.approx(G[G > 0] @ M[G > 0], rel=1e-12, abs=1e-15 * mass * scale)
    assert (log["u"][:, None] + log["v"] - M).max() <= 1e-12 * scale
    assert log["cost"] == pytest.approx(a @ log["u"] + b @ log["v"], rel=1e-8, abs=1e-9 * mass * scale)
    assert (log["warning"], log["result_code"]) == (None, 1)


def outcome(function, *args, **options):
    """What a call gives, an error included, and the warnings on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*args, **options)
        except Exception as error:
            result = error
    return result, [(w.category, str(w.message)) for w in caught]


@pytest.mark.parametrize("name", ["emd", "emd2", "solve", "solve_sample"])
def test_signatures(name):
    ours, pots = (inspect.signature(getattr(module, name)).parameters.values() for module in (compat, ot))
    assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in pots]


@given(problems(), st.sampled_from([1.0, 7.3, 1e-4]), st.booleans())
def test_values_and_potentials(pair, mass, centred):
    M = pair.cost.matrix().astype(np.float64)
    for p, q in zip(pair.p, pair.q, strict=True):
        a, b = mass * p / p.sum(), mass * q / q.sum()
        expected = pot_value(a, b, M)
        assume(expected < np.inf)
        with crossover_alone():
            G, log = compat.emd(a, b, M, log=True, center_dual=centred)
            value = compat.emd2(a, b, M)
        assert value == log["cost"] == pytest.approx(expected, rel=1e-9, abs=1e-14 * mass)
        check_optimal(a, b, M, G, log)


def pot_value(a, b, M) -> float:
    """POT leaves forbidden pairs out of a sparse matrix; infinite if they leave no plan."""
    if np.isfinite(M).all():
        return ot.emd2(a, b, M)
    i, j = np.nonzero(np.isfinite(M))
    (value, log), _ = outcome(ot.emd2, a, b, sparse.coo_array((M[i, j], (i, j)), shape=M.shape), log=True)
    return value if log["result_code"] == 1 else np.inf


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_unique_plans_and_potentials(alone, zeros):
    """The same as POT's, but potentials of points without weight, which are free up to a bound."""
    for seed in range(5):
        a, b, M = clouds(zeros=zeros, seed=seed, mass=2.5)
        G, log = compat.emd(a, b, M, log=True)
        G_pot, pot = ot.emd(a, b, M, log=True)
        assert [(key, type(entry)) for key, entry in log.items()] == [(key, type(entry)) for key, entry in pot.items()]
        np.testing.assert_allclose(G, G_pot, atol=1e-14)
        np.testing.assert_allclose(log["u"][a > 0], pot["u"][a > 0], atol=1e-11)
        np.testing.assert_allclose(log["v"][b > 0], pot["v"][b > 0], atol=1e-11)
        check_optimal(a, b, M, G, log)


def test_large_problems_cross_over(monkeypatch):
    monkeypatch.setattr(functions, "pot_emd", None)
    a, b, M = clouds(300, 300)
    G, log = compat.emd(a, b, M, log=True)
    assert log["cost"] == pytest.approx(ot.emd2(a, b, M), rel=1e-12)
    check_optimal(a, b, M, G, log)


def test_pot_answers_what_it_does_better(monkeypatch):
    monkeypatch.setattr(functions, "optima", None)
    a, b, M = clouds(299, 300)
    with using("numpy"):
        np.testing.assert_array_equal(compat.emd(a, b, M), ot.emd(a, b, M))
        assert compat.emd2(a, b, M) == ot.emd2(a, b, M)


@COMPILED
def test_pot_is_imported_for_its_own_calls_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    assert compat.emd2(U, U[::-1], M) == 0
    with pytest.raises(ImportError, match=r"pip install 'gibbsot\[pot\]'"):
        compat.emd2(U, U, M, numItermax=1)


@pytest.mark.parametrize("failure", ["not optimal", "error"])
def test_pot_answers_where_the_crossover_fails(monkeypatch, failure):
    class Failed:
        optimal = False

        def __init__(self, *args, **options):
            if failure == "error":
                raise ValueError

        def __getitem__(self, b):
            return self

    monkeypatch.setattr(functions, "optima", Failed)
    a, b, M = clouds(300, 300)
    np.testing.assert_array_equal(compat.emd(a, b, M), ot.emd(a, b, M))


def test_identity(alone):
    """A cloud stays where it is: not nearly, but exactly."""
    x = np.random.default_rng(0).normal(size=(100, 2))
    weights = np.full(100, 0.01)
    for a in (weights, []):
        np.testing.assert_allclose(compat.emd(a, a, ot.dist(x)), np.diag(weights))
        assert compat.emd2(a, a, ot.dist(x)) == 0


def test_the_line(alone):
    """W is the area between the cumulative weights; and transport back costs the same."""
    x = np.arange(120.0)
    a, b = ot.datasets.make_1D_gauss(120, 40, 20), ot.datasets.make_1D_gauss(120, 70, 25)
    M = np.abs(x[:, None] - x)
    G, log = compat.emd(a, b, M, log=True)
    assert log["cost"] == pytest.approx(np.abs(np.cumsum(a - b)).sum(), rel=1e-12)
    assert compat.emd2(b, a, M.T) == pytest.approx(log["cost"], rel=1e-12)
    check_optimal(a, b, M, G, log)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("empty", ["", "a", "ab"])
def test_types(alone, dtype, empty):
    """Plan and potentials have the type of a, or of b, or of M; the cost is a float."""
    a, b, M = clouds(20, 20)
    a = [] if "a" in empty else a.astype(dtype)
    b = [] if "b" in empty else b.astype(dtype)
    M = M.astype(dtype) if "b" in empty else M
    loose = {"log": True, "check_marginals": False}
    (G, log), (G_pot, pot) = compat.emd(a, b, M, **loose), ot.emd(a, b, M, **loose)
    assert (G.dtype, log["u"].dtype, log["v"].dtype) == (G_pot.dtype, pot["u"].dtype, pot["v"].dtype) == (dtype,) * 3
    assert type(log["cost"]) is type(pot["cost"])
    assert log["cost"] == pytest.approx(pot["cost"], rel=1e-12)
    np.testing.assert_allclose(G, G_pot, rtol=2 * np.finfo(G.dtype).eps, atol=1e-15)


def test_lists(alone):
    a, b, M = clouds(8, 9)
    G = compat.emd(a.tolist(), b.tolist(), M.tolist())
    np.testing.assert_allclose(G, ot.emd(a, b, M), atol=1e-15)


@pytest.mark.parametrize("options", [{}, {"log": True}, {"return_matrix": True}, {"log": True, "return_matrix": True}])
def test_several_measures(alone, options):
    a, _, M = clouds(zeros=0.3)
    B = np.stack([clouds(zeros=0.3, seed=seed)[1] for seed in range(3)], axis=1)
    for b in (B, B[:, :1], B.tolist()):
        ours, pots = compat.emd2(a, b, M, **options), ot.emd2(a, b, M, **options)
        assert type(ours) is type(pots) is list
        for one, pot in zip(ours, pots, strict=True):
            check_same(one, pot)
    check_same(compat.emd2(a, B[:, 0], M, **options), ot.emd2(a, B[:, 0], M, **options))


def check_same(one, pot) -> None:
    assert type(one) is type(pot)
    if not isinstance(one, list):
        assert one == pytest.approx(pot, rel=1e-12)
        return
    assert list(one[1]) == list(pot[1])
    assert one[0] == one[1]["cost"] == pytest.approx(pot[0], rel=1e-12)
    np.testing.assert_allclose(one[1].get("G", 0), pot[1].get("G", 0), atol=1e-14)


def test_masses_that_differ(alone):
    """b is scaled to the mass of a, if nobody looks."""
    a, b, M = clouds()
    plan = compat.emd(3 * a, b, M, check_marginals=False)
    np.testing.assert_allclose(plan, 3 * ot.emd(a, b, M), atol=1e-14)
    assert compat.emd2(3 * a, np.stack([b, 2 * b], axis=1), M, check_marginals=False) == pytest.approx(
        ot.emd2(3 * a, np.stack([b, 2 * b], axis=1), M, check_marginals=False)
    )


def test_warm_start(alone, monkeypatch):
    """From potentials where POT was stopped, without annealing."""
    a, b, M = clouds(zeros=0.2)
    with pytest.warns(UserWarning, match="numItermax"):
        _, early = ot.emd(a, b, M, numItermax=20, log=True)
    monkeypatch.setattr(annealed, "Gibbs", None)
    monkeypatch.setattr(exact, "choose", lambda problem: [exact.METHODS[-1]] * len(problem))
    start = early["u"], early["v"]
    np.testing.assert_allclose(compat.emd(a, b, M, potentials_init=start), ot.emd(a, b, M), atol=1e-14)
    assert compat.emd2(a, b, M, potentials_init=list(start)) == pytest.approx(ot.emd2(a, b, M), rel=1e-12)


def test_penalties_for_what_is_forbidden(alone):
    """Costs of 1e8 where a sparse matrix has no entry."""
    rng = np.random.default_rng(0)
    allowed = np.eye(50, dtype=bool) | (rng.random((50, 50)) < 0.05)
    M = np.where(allowed, rng.random((50, 50)), 1e8)
    expected = ot.emd2([], [], sparse.coo_array(np.where(allowed, M, 0)))
    assert compat.emd2([], [], M) == pytest.approx(expected, rel=1e-7)
    assert compat.emd2([], [], np.where(allowed, M, np.inf)) == pytest.approx(expected, rel=1e-12)


def test_coulomb_where_pot_finds_no_plan():
    p, q, cost = datasets.coulomb_uniform()
    assert compat.emd2(p, q, cost.matrix()) == pytest.approx(2, rel=1e-12)
    M = coulomb(np.random.default_rng(0).random((310, 3))).matrix()
    G, log = compat.emd([], [], M, log=True)
    check_optimal(np.full(310, 1 / 310), np.full(310, 1 / 310), M, G, log)
    assert log["cost"] == pytest.approx(pot_value([], [], M), rel=1e-9)


def test_negative_costs_where_pot_finds_no_plan(alone):
    a, b, M = clouds(3, 4)
    assert compat.emd2(a, b, M - 1e3) == pytest.approx(ot.emd2(a, b, M) - 1e3, rel=1e-12)


U = np.full(3, 1 / 3)
M = np.array([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]])


@BOTH
@pytest.mark.parametrize(
    ("a", "b", "costs", "options"),
    [
        (np.full(4, 0.25), U, M, {}),
        (U, np.full(2, 0.5), M, {}),
        (3 * U, U, M, {}),
        (U, U + 1e-6, M, {}),
        (np.array([np.nan, 0.5, 0.5]), U, M, {}),
        (np.array([1.0, -0.5, 0.5]), U, M, {}),
        (None, None, M, {}),
        (U, None, M, {}),
        (tuple(U), U, M, {}),
        ([0.5, "half", 0], U, M, {}),
        ([0.5, [0.5], 0], U, M, {}),
        (np.float64(1.0), U, M, {}),
        (U[:, None], U, M, {}),
        (U, U, M[0], {}),
        (U, U, M[None], {}),
        (U, U, None, {}),
        (U, U, np.full((3, 3), np.inf), {}),
        (U, U, np.where(M == 4, -np.inf, M), {}),
        (np.array([0.8, 0.1, 0.1]), U, np.where(np.eye(3), np.inf, M), {}),
        (np.array([1, 2, 3]), np.array([3, 2, 1]), M, {}),
        (np.array([], int), [], M.astype(int), {}),
        (U + 0j, U, M, {}),
        (U, U, sparse.coo_array(M + 1), {}),
        (U, U, M, {"numItermax": 1}),
        (U, U, M, {"numItermax": -1}),
        (U, U, M, {"numItermax": "many"}),
        (U, U, M, {"numItermax": 1e6}),
        (U, U, M, {"numThreads": "max"}),
        (U, U, M, {"numThreads": 2}),
        (U, U, M, {"numThreads": 0}),
        (U, U, M, {"potentials_init": (U, U, U)}),
        (U, U, M, {"potentials_init": (U[:, None], U)}),
        (U, U, M, {"potentials_init": (U * np.nan, U)}),
        (U, U, M, {"potentials_init": "UV"}),
        (U, U, M, {"potentials_init": 3}),
        (U, U, M, {"reg": 1.0}),
    ],
)
def test_errors_and_warnings(monkeypatch, name, a, b, costs, options):
    """What POT refuses or warns of, with its words; the same where the crossover might have answered."""
    expected, told = outcome(getattr(ot, name), a, b, costs, log=True, **options)
    monkeypatch.setattr(functions, "_MIN_PAIRS", 0)
    result, ours = outcome(getattr(compat, name), a, b, costs, log=True, **options)
    assert ours == told
    assert type(result) is type(expected)
    if isinstance(expected, AssertionError):
        assert str(result) == str(expected)
    if not isinstance(expected, Exception):
        np.testing.assert_allclose(result[1]["cost"], expected[1]["cost"], atol=1e-15)
        assert result[1]["result_code"] == expected[1]["result_code"]


@BOTH
@pytest.mark.parametrize(
    ("a", "b", "costs", "options", "message"),
    [
        (0 * U, 0 * U, M, {}, "a: expected finite weights with a positive sum"),
        (np.zeros(3), np.ones(2) / 2, M[:, :2], {"check_marginals": False}, "a: expected finite weights"),
        (U, np.zeros(3), M, {"check_marginals": False}, "b: expected finite weights"),
        ([0, 0, 0], [1, 0, 0], M.tolist(), {"check_marginals": False}, "a: expected finite weights"),
        (np.array([np.nan, 0.5, 0.5]), U, M, {"check_marginals": False}, "a: expected finite weights"),
        (U, np.array([np.inf, 0.5, 0.5]), M, {"check_marginals": False}, "b: expected finite weights"),
        (np.zeros(3, int), np.ones(3, int), M, {"check_marginals": False}, "a: expected finite weights"),
        (np.zeros(3), U, sparse.coo_array(M + 1), {"check_marginals": False}, "a: expected finite weights"),
        (U, U, np.where(M == 4, np.nan, M), {}, "M: expected costs without NaN"),
        (U, U, sparse.coo_array(np.where(M == 4, np.nan, M)), {}, "M: expected a sparse matrix with entries, none"),
        (U, U, sparse.coo_array((3, 3)), {}, "M: expected a sparse matrix with entries"),
        (U, np.full(3, 1e308), M, {"check_marginals": False}, "b: expected finite weights"),
        (np.full(3, 1e-200), np.full(3, 1e-200), M, {"numItermax": 10}, "a, b: the masses are too small or too large"),
        ([0.5, 0.5, 0.0], np.ones(3, int), M, {"check_marginals": False}, "a: expected finite weights"),
        (np.full(3, 1e-320), np.full(3, 1e-320), np.where(M == 4, -np.inf, M), {}, "a, b: the masses are too small"),
        ([], [], np.zeros((0, 0)), {}, r"M: expected at least one row and one column, got shape \(0, 0\)"),
        ([], [], np.zeros((0, 3)), {}, r"M: expected at least one row"),
        (U, U, M, {"potentials_init": (U[:2], U)}, r"potentials_init: expected lengths \(3, 3\), got \(2, 3\)"),
        (U, U, M, {"potentials_init": (U, np.zeros(0)), "numItermax": 5}, "potentials_init: expected lengths"),
    ],
)
def test_what_pot_does_not_check_is_never_handed_to_it(monkeypatch, name, a, b, costs, options, message):
    """Its compiled code crashes for some of these, and answers nonsense for the others."""

    def refuse(*args):
        pytest.fail("POT was asked")

    for function in ("pot_emd", "pot_emd2"):
        monkeypatch.setattr(functions, function, refuse)
    with pytest.raises(ValueError, match=message):
        getattr(compat, name)(a, b, costs, **options)


def test_what_pot_does_not_check_in_solve(monkeypatch):
    for function in ("solve", "solve_sample"):
        monkeypatch.setitem(functions.ORIGINALS, function, lambda *_, **__: pytest.fail("POT was asked"))
    with pytest.raises(ValueError, match="a: expected finite weights"):
        compat.solve(M, np.zeros(3), np.zeros(3))
    with pytest.raises(ValueError, match="M: expected costs without NaN"):
        compat.solve([[0, np.nan], [1, 0]], [0.5, 0.5], [0.5, 0.5])
    with pytest.raises(ValueError, match="a: expected finite weights"):
        compat.solve_sample(M, M, np.zeros(3), np.zeros(3))


def test_results_are_those_of_pot():
    """An OTResult, with all attributes that POT's has."""
    a, b, M = clouds(6, 7)
    pots, ours = ot.solve(M, a, b), compat.solve(M, a, b)
    assert isinstance(ours, ot.utils.OTResult)
    names = {name for name in dir(pots) if not name.startswith("__")}
    assert names <= set(dir(ours))
    assert type(ours._backend) is type(pots._backend)
    assert ours.citation == pots.citation
    assert ours.log["cost"] == pytest.approx(pots.value)  # POT keeps none here
    for name in ("lazy_plan", "value_quad"):
        assert getattr(ours, name) is getattr(pots, name) is None
    for name in ("a_to_b", "b_to_a"):
        with pytest.raises(NotImplementedError):
            getattr(ours, name)
    np.testing.assert_allclose(ours.plan, pots.plan, atol=1e-14)
    for mine, theirs in zip(ours.marginals, pots.marginals, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-14)


def test_results_without_pot(monkeypatch):
    """The same attributes, but for the backend."""
    for name in ("ot", "ot.utils"):
        monkeypatch.setitem(sys.modules, name, None)
    spec = importlib.util.spec_from_file_location("gibbsot.compat.pot.alone", functions.__file__)
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    found = alone.solve(M, U, U)
    assert not isinstance(found, ot.utils.OTResult)
    public = {name for name in dir(ot.utils.OTResult) if not name.startswith("_")}
    assert public <= set(dir(found))
    assert (found.value, found.value_linear, found.lazy_plan, found.value_quad) == (0, 0, None, None)
    np.testing.assert_allclose(found.plan, np.diag(U), atol=1e-15)
    np.testing.assert_array_equal(found.potential_a, found.potentials[0])
    assert found.log["result_code"] == 1
    with pytest.raises(NotImplementedError):
        found.a_to_b  # noqa: B018
    with pytest.raises(ImportError, match=r"pip install 'gibbsot\[pot\]'"):
        alone.solve(M, U, U, reg=1.0)


def test_early_stops_are_pots():
    a, b, M = clouds(300, 300)
    with pytest.warns(UserWarning, match="numItermax"):
        _, log = compat.emd(a, b, M, numItermax=1, log=True)
    assert log["result_code"] == 3
    assert "numItermax" in log["warning"]


def test_processes_are_deprecated():
    a, b, M = clouds()
    with pytest.warns(UserWarning, match="processes"):
        assert compat.emd2(a, np.stack([b, b], axis=1), M, processes=2) == ot.emd2(a, np.stack([b, b], axis=1), M)


# solve and solve_sample

LBFGS = pytest.mark.filterwarnings("ignore:scipy.optimize. The `disp`:DeprecationWarning")  # of POT


def no_pot(patch) -> None:
    patch.setitem(sys.modules, "ot", None)


def check_result(ours, pots, a, b) -> None:
    """The same attributes with the same values, plans and potentials being unique."""
    assert ours.value == pytest.approx(pots.value, rel=1e-12)
    assert ours.value_linear == pytest.approx(pots.value_linear, rel=1e-12)
    assert ours.status == pots.status
    np.testing.assert_allclose(ours.plan, pots.plan, atol=1e-14)
    np.testing.assert_allclose(ours.sparse_plan.toarray(), pots.plan, atol=1e-14)
    np.testing.assert_allclose(ours.marginals[0], a, atol=1e-14)
    np.testing.assert_allclose(ours.marginals[1], b, atol=1e-14)
    shift = ours.potentials[0][0] - pots.potentials[0][0]
    np.testing.assert_allclose(ours.potential_a - shift, pots.potential_a, atol=1e-11)
    np.testing.assert_allclose(ours.potential_b + shift, pots.potential_b, atol=1e-11)


@COMPILED
@pytest.mark.parametrize("seed", range(3))
def test_solve_balanced(seed):
    a, b, M = clouds(seed=seed)
    pots = ot.solve(M, a, b)
    with pytest.MonkeyPatch.context() as patch:
        no_pot(patch)
        ours = compat.solve(M, a, b)
        uniform = compat.solve(M)
    check_result(ours, pots, a, b)
    assert uniform.value == pytest.approx(ot.solve(M).value, rel=1e-12)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock", "cosine"])
@pytest.mark.parametrize("lazy", [False, True])
def test_solve_sample_balanced(metric, lazy):
    rng = np.random.default_rng(0)
    X, Y, a, b = rng.normal(size=(30, 2)), rng.normal(size=(40, 2)), *clouds()[:2]
    pots = ot.solve_sample(X, Y, a, b, metric)
    with pytest.MonkeyPatch.context() as patch:
        no_pot(patch)
        ours = compat.solve_sample(X, Y, a, b, metric, lazy=lazy)
    assert ours.value == pytest.approx(pots.value, rel=1e-9)
    if metric == "sqeuclidean":
        check_result(ours, pots, a, b)


def total_variation(a, b, M, first, second) -> float:
    """The unbalanced problem of POT's documentation as a linear programme: plan, lack and surplus of either side."""
    m1, m2 = M.shape
    rows, columns = np.kron(np.eye(m1), np.ones(m2)), np.kron(np.ones(m1), np.eye(m2))
    slack = np.eye(m1 + m2)
    costs = np.r_[M.ravel(), np.tile(np.repeat([first, second], [m1, m2]), 2)]
    found = linprog(costs, A_eq=np.hstack([np.vstack([rows, columns]), slack, -slack]), b_eq=np.r_[a, b])
    assert found.status == 0
    return found.fun


@LBFGS
@pytest.mark.parametrize("seed", range(20))
def test_total_variation_is_a_penalty(seed):
    rng = np.random.default_rng(seed)
    a, b, M = rng.random(7), 2 * rng.random(9), 0.1 + rng.random((7, 9))
    first = 0.7 * rng.random()
    second = first if seed % 2 else first + 0.1 * rng.random()
    with pytest.MonkeyPatch.context() as patch:
        no_pot(patch)
        ours = compat.solve(M, a, b, unbalanced=(first, second), unbalanced_type="TV")
    assert ours.value == pytest.approx(total_variation(a, b, M, first, second), rel=1e-9)
    plan = ours.plan
    left = a.sum() - plan.sum(), b.sum() - plan.sum()
    assert ours.value_linear == pytest.approx((plan * M).sum(), rel=1e-12)
    assert ours.value == pytest.approx(ours.value_linear + first * left[0] + second * left[1], rel=1e-12)
    f, g = ours.potentials
    assert ours.value == pytest.approx(a @ f + b @ g, rel=1e-9)
    assert (f[:, None] + g <= M + 1e-12).all()
    if first == second:  # POT's other function for this problem
        exact = 100 * ot.partial.partial_wasserstein_lagrange(a / 100, b / 100, M, 2 * first)  # masses of at most one
        assert ours.value == pytest.approx((exact * (M - 2 * first)).sum() + first * (a.sum() + b.sum()), rel=1e-9)
    if seed < 3:  # POT minimises a function with kinks by L-BFGS, slowly, and stops above the optimum
        pots = ot.solve(M, a, b, unbalanced=(first, second), unbalanced_type="TV")
        assert ours.value * (1 - 1e-9) <= pots.value <= 1.2 * ours.value


@pytest.mark.parametrize("seed", range(10))
def test_partial_is_a_mass(seed):
    rng = np.random.default_rng(seed)
    X, Y, a, b = rng.normal(size=(8, 2)), rng.normal(size=(6, 2)), rng.random(8), rng.random(6)
    M, mass = ot.dist(X, Y), 0.7 * min(a.sum(), b.sum())
    expected = ot.partial.partial_wasserstein(a, b, M, mass)
    with pytest.MonkeyPatch.context() as patch:
        no_pot(patch)
        for ours in (
            compat.solve(M, a, b, unbalanced=mass, unbalanced_type="partial"),
            compat.solve_sample(X, Y, a, b, unbalanced=mass, unbalanced_type="partial"),
        ):
            np.testing.assert_allclose(ours.plan, expected, atol=1e-9)
            assert ours.value == pytest.approx((expected * M).sum(), rel=1e-9)
    with pytest.raises(ValueError, match="mass: expected a positive number of at most"):
        compat.solve(M, a, b, unbalanced=100.0, unbalanced_type="partial")


@LBFGS
@pytest.mark.parametrize(
    "options",
    [
        {"reg": 0.5},
        {"reg": 0.5, "reg_type": "L2"},
        {"unbalanced": 1.0, "unbalanced_type": "L2"},
        {"unbalanced": (0.1, 3.0), "unbalanced_type": "TV"},
        {"reg": 0.5, "unbalanced": 1.0, "unbalanced_type": "TV"},
    ],
)
def test_other_problems_are_pots(options, monkeypatch):
    a, b, M = clouds(8, 9)
    X, Y = np.random.default_rng(0).random((8, 2)), np.random.default_rng(1).random((9, 2))
    ours, pots = compat.solve(M, a, b, **options), ot.solve(M, a, b, **options)
    np.testing.assert_array_equal(ours.plan, pots.plan)
    assert ours.value == pots.value
    assert compat.solve_sample(X, Y, **options).value == ot.solve_sample(X, Y, **options).value
    no_pot(monkeypatch)
    for call in (lambda: compat.solve(M, a, b, **options), lambda: compat.solve_sample(X, Y, **options)):
        with pytest.raises(
            ImportError, match=r"is handed to POT, which is not installed: pip install 'gibbsot\[pot\]'"
        ):
            call()


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda a, b, M: (M, 2 * a, b), {}),
        (lambda a, b, M: (M, a[:-1], b), {}),
        (lambda a, b, M: (M[0], a, b), {}),
        (lambda a, b, M: (M, a, b), {"method": "magic"}),
        (lambda a, b, M: (M, a, b), {"unbalanced": 1.0, "unbalanced_type": "XX"}),
    ],
)
def test_errors_of_solve_are_pots(change, options):
    arguments = change(*clouds(8, 9))
    expected, _ = outcome(ot.solve, *arguments, **options)
    result, _ = outcome(compat.solve, *arguments, **options)
    assert isinstance(expected, Exception)
    assert (type(result), str(result)) == (type(expected), str(expected))


@LBFGS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_of_solve(dtype):
    a, b, M = (x.astype(dtype) for x in clouds(8, 9))
    for options in ({}, {"unbalanced": 1.0, "unbalanced_type": "TV"}):
        ours, pots = compat.solve(M, a, b, **options), ot.solve(M, a, b, **options)
        assert ours.plan.dtype == pots.plan.dtype == dtype
        assert ours.potential_a.dtype == dtype


def test_sparse_costs_allow_the_stored_pairs_alone():
    rng = np.random.default_rng(0)
    M = rng.random((9, 11))
    allowed = rng.random(M.shape) < 0.5
    mass = rng.random(M.shape) * allowed
    a, b = mass.sum(axis=1), mass.sum(axis=0)
    i, j = np.nonzero(allowed)
    pairs = sparse.coo_array((M[i, j], (i, j)), M.shape)
    plan, log = compat.emd(a, b, pairs, log=True)
    expected = ot.emd2(a / a.sum(), b / b.sum(), np.where(allowed, M, 1e3)) * a.sum()
    assert log["cost"] == pytest.approx(expected, rel=1e-9)
    assert compat.emd2(a, b, pairs) == log["cost"]
    assert sparse.issparse(plan)
    assert allowed[plan.nonzero()].all()
    np.testing.assert_allclose(plan.sum(axis=1), a, atol=1e-14)
    assert (log["u"][i] + log["v"][j] <= M[i, j] + 1e-12).all()
    assert a @ log["u"] + b @ log["v"] == pytest.approx(log["cost"])
    with pytest.raises(ValueError, match="cost: row 0 has weight"):
        compat.emd([1.0, 0.0], [0.0, 1.0], sparse.coo_array(([1.0, 1.0], ([0, 1], [0, 1])), (2, 2)))


@LBFGS
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["mm_unbalanced", "lbfgsb_unbalanced"])
def test_divergences_are_no_worse_than_those_of_pot(name, seed):
    rng = np.random.default_rng(seed)
    M, a, b = rng.random((12, 9)), rng.random(12), 2 * rng.random(9)
    reg_m = float(rng.uniform(0.05, 1)) if seed % 2 else tuple(rng.uniform(0.05, 1, 2))
    first = (0,) if name == "lbfgsb_unbalanced" else ()
    (plan, log), (theirs, other) = (
        getattr(where, name)(a, b, M, *first, reg_m, log=True) for where in (compat, ot.unbalanced)
    )
    assert plan.shape == theirs.shape
    assert log["total_cost"] <= other["total_cost"] * (1 + 1e-9)
    assert log["total_cost"] == pytest.approx(other["total_cost"], rel=1e-2)
    assert log["cost"] == pytest.approx(float((plan * M).sum()))
    found = compat.solve(M, a, b, unbalanced=reg_m, unbalanced_type="KL")
    assert found.value == log["total_cost"]
    assert found.status == "Converged"
    np.testing.assert_array_equal(found.plan, getattr(compat, name)(a, b, M, *first, reg_m))


def test_modules_are_found_by_name():
    assert {"pot", "scipy", "gudhi", "torchcfm", "emd"} <= {*dir(compat)}
    assert compat.scipy.wasserstein_distance([0.0], [1.0]) == 1
    assert compat.gudhi.wasserstein_distance([[0, 2]], []) == 1
    with pytest.raises(AttributeError, match=r"module 'gibbsot.compat' has no attribute 'geomloss'"):
        _ = compat.geomloss


def test_lazy_and_unbalanced_is_refused_as_by_pot():
    with pytest.raises(NotImplementedError):
        compat.solve_sample(M, M, lazy=True, unbalanced=1)


@COMPILED
@pytest.mark.parametrize("n", [3, 49, 98])
def test_whole_weights_have_whole_plans(n):
    """Weights are divided by their sum, and 49 * (1 / 49) is less than one; entries of permutations are 1 still."""
    rng = np.random.default_rng(n)
    ones, counts = np.ones(n), rng.permutation(np.r_[np.full(n - 1, 2.0), n + 2])
    M = rng.random((n, n))
    for a, b in ((ones, ones), (3 * ones, counts), (0.1 * ones, 0.1 * ones)):
        expected = ot.emd(a, b, M)
        with compat.pot.installed():
            found = [ot.emd(a, b, M), ot.emd(a, b, sparse.coo_array(M)).toarray()]
        for plan in [*found, compat.emd(a, b, M), compat.solve(M, a, b).plan]:
            np.testing.assert_array_equal(plan, expected)
