"""POT on the exact engine: its own functions, in every module that has them, and nothing of it afterwards."""

from __future__ import annotations

import sys
import threading
import types

import numpy as np
import ot
import pytest

from gibbsot.compat import pot
from gibbsot.core import native
from gibbsot.exact import methods

pytestmark = pytest.mark.skipif(native.name() == "numpy", reason="without kernels small problems are POT's")
RNG = np.random.default_rng(0)
X, Y = RNG.random((40, 2)), RNG.random((30, 2))
A, B = np.full(40, 1 / 40), np.full(30, 1 / 30)
M = ot.dist(X, Y)
CALLS = {
    "emd": lambda: ot.emd(A, B, M),
    "emd with zeros": lambda: ot.emd(np.eye(40)[0], B, M),
    "emd2": lambda: ot.emd2(A, B, M),
    "emd2 of columns": lambda: ot.emd2(A, np.stack([B, B[::-1]], axis=1), M),
    "emd_1d": lambda: ot.emd_1d(X[:, 0], Y[:, 0], A, B),
    "emd2_1d": lambda: ot.emd2_1d(X[:, 0], Y[:, 0], A, B, metric="minkowski", p=3.0),
    "solve": lambda: ot.solve(M).value,
    "points": lambda: ot.solve_sample(X, Y).value,
    "points without a matrix": lambda: ot.solve_sample(X, Y, lazy=True).value,
    "partial": lambda: ot.partial.partial_wasserstein(A, B, M, m=0.4),
    "barycenter": lambda: ot.lp.free_support_barycenter([X, Y], [A, B], X[:5]),
    "Gromov": lambda: ot.gromov.gromov_wasserstein2(ot.dist(X, X), ot.dist(Y, Y), A, B),
}


@pytest.fixture(autouse=True)
def nothing_installed():
    """Other tests, such as those of pages, may have installed it."""
    pot.uninstall()
    yield
    pot.uninstall()


@pytest.fixture
def asked(monkeypatch):
    """Count the problems that the engine is given."""
    count = []
    original = pot.functions.optima
    monkeypatch.setattr(pot.functions, "optima", lambda *args, **options: count.append(1) or original(*args, **options))
    monkeypatch.setattr("gibbsot.solvers.solve.optima", pot.functions.optima)
    line = pot.installation.at_once
    monkeypatch.setattr(pot.installation, "at_once", lambda *args: count.append(1) or line(*args))
    assert methods.optima is original
    return count


@pytest.mark.parametrize("name", CALLS)
def test_answers_are_pots(name, asked):
    expected = CALLS[name]()
    assert not asked
    with pot.installed():
        found = CALLS[name]()
    assert asked
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert type(found) is type(expected)
    count = len(asked)
    CALLS[name]()
    assert len(asked) == count


def test_divergences_are_certified(asked):
    expected = ot.unbalanced.mm_unbalanced(A, B, M, 0.1, numItermax=10_000)
    with pot.installed():
        found = ot.unbalanced.mm_unbalanced(A, B, M, 0.1)
        assert ot.unbalanced.mm_unbalanced(A, B, M, 0.1, div="l2").shape == M.shape  # handed back, without a loop
    np.testing.assert_allclose(found.sum(axis=1), expected.sum(axis=1), atol=1e-5)


def test_unbalanced_problems_are_solved_by_the_engine():
    """POT's iterations for "TV" stop far from the optimum, which leaves over what costs more than both penalties."""
    cost = np.pad(M, (0, 1), constant_values=0.05)
    cost[-1, -1] = 0
    best = ot.emd2(np.append(A, 1), np.append(B, 1), cost)
    with pot.installed():
        left_over = ot.solve(M, unbalanced=0.05, unbalanced_type="TV")
        kl = ot.solve(M, unbalanced=0.1)
    assert isinstance(left_over, ot.utils.OTResult)
    assert left_over.value == pytest.approx(best, rel=1e-12)
    plain = ot.solve(M, unbalanced=0.1, max_iter=20_000)
    assert kl.value <= plain.value
    assert kl.value == pytest.approx(plain.value, rel=1e-3)


def test_lines_that_pot_solves_itself():
    """Costs that are not convex, and other masses."""
    x, y = X[:, 0], Y[:, 0]
    calls = [
        lambda: ot.emd2_1d(x, y, A, B, metric="minkowski", p=0.5),
        lambda: ot.emd2_1d(x, y, 3 * A, 3 * B),
        lambda: ot.emd_1d(x, y, np.eye(40)[0], B),
        lambda: ot.emd_1d(x.tolist(), y.tolist()),
    ]
    expected = [call() for call in calls]
    with pot.installed():
        for call, value in zip(calls, expected, strict=True):
            np.testing.assert_allclose(call(), value, rtol=1e-12)
        with pytest.raises(AssertionError, match="same sum"):
            ot.emd_1d(x, y, 2 * A, B)


def names():
    """Every name of every module of POT."""
    modules = sorted(name for name in sys.modules if name == "ot" or name.startswith("ot."))
    return {(m, key): value for m in modules for key, value in list(vars(sys.modules[m]).items()) if callable(value)}


def _replaced(user, late, before):
    """Look at the names within a block, and fail."""
    late.solve_sample = ot.solve_sample
    if late.solve_sample is before["ot", "solve_sample"]:
        pytest.fail("solve_sample was not replaced")
    if user.mm_unbalanced is before["ot.unbalanced", "mm_unbalanced"]:
        pytest.fail("mm_unbalanced was not replaced")
    ot.emd(2 * A, B, M)


def test_every_name_is_restored_even_after_an_error():
    user = types.ModuleType("a_user_of_pot")
    user.emd2, user.mm_unbalanced = ot.emd2, ot.unbalanced.mm_unbalanced
    late = types.ModuleType("imported_later")
    before = names()
    sys.modules |= {"a_user_of_pot": user, "imported_later": late}
    try:
        with pytest.raises(AssertionError, match="same sum"), pot.installed():
            _replaced(user, late, before)
        assert user.mm_unbalanced is before["ot.unbalanced", "mm_unbalanced"]
        assert late.solve_sample is before["ot", "solve_sample"]
    finally:
        del sys.modules["a_user_of_pot"], sys.modules["imported_later"]
    assert names() == before


def test_blocks_and_calls_nest():
    before = names()
    pot.uninstall()  # of nothing
    pot.install()
    pot.install()
    with pot.installed():
        pot.uninstall()
        assert names() != before
    assert names() == before
    with pot.installed(), pot.installed():
        pass
    assert names() == before


def test_threads():
    before, found = names(), []

    def work():
        for _ in range(20):
            with pot.installed():
                found.append(ot.emd2(A, B, M))
            found.append(ot.emd2(A, B, M))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(found, ot.emd2(A, B, M), rtol=1e-12)
    assert len(found) == 160
    assert names() == before


def test_a_limit_of_iterations_and_no_plan_are_pots_business():
    with pot.installed():
        with pytest.warns(UserWarning, match="numItermax"):
            ot.emd(A, B, M, numItermax=1)
        with pytest.warns(UserWarning, match="infeasible"):
            ot.emd(A, B, np.full(M.shape, np.inf))
        with pytest.raises(AssertionError, match="same sum"):
            ot.emd(2 * A, B, M)


def test_gradients_of_torch():
    torch = pytest.importorskip("torch")
    a, b = RNG.random(40), RNG.random(30)  # so that the potentials are unique

    def gradients(value_of):
        tensors = [torch.tensor(x, requires_grad=True) for x in (a / a.sum(), b / b.sum(), M)]
        value = value_of(*tensors)
        value.backward()
        assert value.device == tensors[0].device
        return [value.detach().numpy(), *(x.grad.numpy() for x in tensors)]

    def solved(a, b, M):
        return ot.solve(M, a, b).value

    for value_of in (ot.emd2, solved):
        expected = gradients(value_of)
        with pot.installed():
            found = gradients(value_of)
        _same(found, expected)


def _same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
        assert one.dtype == other.dtype


def test_arrays_of_jax_stay_such():
    jax = pytest.importorskip("jax")
    a, b, C = (jax.numpy.asarray(x) for x in (A, B, M))
    expected = ot.emd2(a, b, C)
    with pot.installed():
        found, plan, line = ot.emd2(a, b, C), ot.emd(a, b, C), ot.emd2_1d(a, b)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    assert isinstance(found, type(expected))
    assert isinstance(plan, jax.Array)
    assert isinstance(line, jax.Array)


def test_our_functions_in_the_place_of_pots(monkeypatch):
    """What is handed back to POT makes no loop."""
    for name in ("emd", "emd2", "solve", "solve_sample"):
        monkeypatch.setattr(ot, name, getattr(pot, name))
    integers = np.ones(3, int)
    with pytest.warns(UserWarning, match="integer"):
        assert ot.emd2(integers, integers, np.ones((3, 3))) == 3
    assert ot.solve(M, A, B, reg=1.0).value > 0
    assert ot.solve_sample(X, Y, reg=1.0).value > 0
    with pytest.warns(UserWarning, match="numItermax"):
        ot.emd(A, B, M, numItermax=1)


def test_compiled_functions_have_pots_keywords():
    i, j = (x.astype(np.uint64) for x in np.indices(M.shape).reshape(2, -1))
    with pot.installed():
        from ot.lp import emd_wrap

        f, g = emd_wrap.emd_c(A, B, M, max_iter=100_000, numThreads=1)[2:4]
        values = [
            emd_wrap.emd_c(A, B, M, 100_000, 1, alpha_init=f, beta_init=g)[1],
            emd_wrap.emd_c_sparse(A, B, i, j, M.ravel(), max_iter=100_000, alpha_init=f, beta_init=g)[3],
            emd_wrap.emd_c_lazy(A, B, X, Y, alpha_init=f, beta_init=g)[3],
        ]
    np.testing.assert_allclose(values, ot.emd2(A, B, M), rtol=1e-12)
