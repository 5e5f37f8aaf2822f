"""The operations of every backend are those of NumPy, and another device is one more class."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from cases import batch
from gibbsot import DenseCost
from gibbsot.core import backend as backends
from gibbsot.core import native
from gibbsot.core.backend import Backend, backend
from gibbsot.exact.line import solve_line
from gibbsot.sampling import sampler

NUMPY = Backend()


def test_the_backend_is_that_of_the_selected_kernels(kernel):
    assert backend().name == kernel == native.name()
    assert backend().has_simplex == backend().has_kd_trees == (kernel != "numpy")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 1000)])
def test_extremes_and_sums(kernel, shape, dtype):
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    for array in (x, np.asfortranarray(x)):
        assert backend().extremes(array) == (x.min(), x.max())
        sums, low, high = backend().sum_rows(array)
        assert (low, high) == (x.min(), x.max())
        np.testing.assert_allclose(sums, x.sum(axis=1, dtype=np.float64), rtol=1e-12, atol=1e-12)
    for bad in (np.nan, np.inf, -np.inf):
        x[-1, -1] = bad
        _, low, high = backend().sum_rows(x)
        np.testing.assert_array_equal(backend().extremes(x), (low, high))
        np.testing.assert_array_equal((low, high), (x.min(), x.max()))


def test_sums_that_overflow_or_cancel_give_no_warning(kernel):
    with np.errstate(all="raise"):
        sums, low, high = backend().sum_rows(np.array([[1.7e308, 1.7e308], [np.inf, -np.inf]]))
    assert (sums[0], low, high) == (np.inf, -np.inf, np.inf)


def test_the_staircase_is_that_of_fractions(kernel):
    rng = np.random.default_rng(1)
    for m1, m2 in ((1, 1), (1, 5), (4, 1), (6, 9)):
        for p, q in (
            (rng.random(m1), rng.random(m2)),
            (np.ones(m1), np.ones(m2)),  # where rows and columns end together
            (10.0 ** rng.integers(-200, 3, m1), 10.0 ** rng.integers(-200, 3, m2)),
        ):
            for got, expected in zip(backend().staircase(p, q), NUMPY.staircase(p, q), strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-15)


def test_potentials_of_a_forest_are_exact_sums(kernel):
    rng = np.random.default_rng(3)
    for m1, m2, cut in ((1, 1, 0.0), (4, 6, 0.0), (6, 5, 0.8)):
        pairs = rng.permutation(m1 * m2)
        i, j = _forest(*np.divmod(pairs[rng.random(len(pairs)) >= cut], m2), m1)
        high = 10.0 ** rng.integers(-12, 12, len(i))
        costs = np.stack([high, rng.uniform(-1, 1, len(i)) * np.spacing(high) / 2])
        given = np.stack([rng.random(m1), np.zeros(m1)]), np.stack([rng.random(m2), np.zeros(m2)])
        weight, found = rng.random(m1), []
        for one in (backend(), NUMPY):
            f, g = (x.copy() for x in given)
            one.follow_forest(i, j, costs, weight, f=f, g=g)
            found.append((f, g))
            for a, b, cost in zip(i, j, costs.T, strict=True):
                terms = [*map(Fraction, f[:, a]), *map(Fraction, g[:, b]), *(-Fraction(x) for x in cost)]
                assert abs(sum(terms)) <= 2.0**-95 * float(sum(map(abs, terms)))
            assert (f[0] == given[0][0]).any()  # a row of each tree keeps its potential
        for got, expected in zip(*found, strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("n", [1, 2, 40, 400])
def test_sparse_factors(kernel, n):
    """Systems of random Laplacians with a diagonal, and a matrix that is not definite."""
    rng = np.random.default_rng(n)
    upper = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.15), 1)
    degree = (upper + upper.T).sum(axis=1)
    pattern = sparse.csc_array(upper)
    factors = backend().sparse_factors(pattern.indptr.astype(np.int64), pattern.indices.astype(np.int32))
    for _ in range(2):  # the pattern stays, values change
        diagonal, x = degree + rng.random(n), rng.normal(size=n)
        assert factors.factorise(pattern.data, diagonal)
        found = x.copy()
        factors.solve(found)
        np.testing.assert_allclose(found, np.linalg.solve(upper + upper.T + np.diag(diagonal), x), rtol=1e-9)
        pattern.data, upper = 0.5 * pattern.data, 0.5 * upper
    assert not factors.factorise(pattern.data, -np.ones(n))


def _forest(i, j, m1):
    """Return arcs without those that close a cycle."""
    part, kept = {}, []
    for k, (a, b) in enumerate(zip(i.tolist(), (m1 + j).tolist(), strict=True)):
        a, b = part.setdefault(a, a), part.setdefault(b, b)
        if a != b:
            kept.append(k)
            part = {v: a if own == b else own for v, own in part.items()}
    return i[kept], j[kept]


@pytest.mark.parametrize("kind", ["dense", "forbidden"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_costs(kernel, kind, dtype):
    pair = batch(kind, n=3, zeros=0.3)
    cost = pair.cost.astype(dtype)
    p, q = (np.ascontiguousarray(x, dtype) for x in (pair.p, pair.q))
    (m1, m2), rng = cost.shape, np.random.default_rng(2)
    np.testing.assert_allclose(
        backend().means(cost.operand()[1], p, q, 2), NUMPY.means(cost.operand()[1], p, q, 1), rtol=1e-6
    )
    for by_rows, size, count in ((True, m2, m1), (False, m1, m2)):
        x = rng.normal(size=(3, size)).astype(dtype)
        got, expected = (np.empty((3, count), dtype) for _ in range(2))
        backend().c_transform(cost, x, by_rows, got, 2)
        NUMPY.c_transform(cost, x, by_rows, expected, 1)
        np.testing.assert_array_equal(got, expected)
        near, expected_near = (np.empty((count, 4), np.int64) for _ in range(2))
        backend().nearest(cost, x[0], by_rows, near)
        NUMPY.nearest(cost, x[0], by_rows, expected_near)
        np.testing.assert_array_equal(near, expected_near)


def test_what_numpy_lacks_is_said():
    cost, one = DenseCost([[1.0]]), np.ones(1)
    assert not NUMPY.has_chains(cost)
    for call in (
        lambda: NUMPY.solve_dense(one),
        lambda: NUMPY.complete_dense(one),
        lambda: NUMPY.arc_simplex(one, one),
    ):
        with pytest.raises(RuntimeError, match=r"'numpy' has no network simplex.*HiGHS"):
            call()
    for call in (lambda: NUMPY.kd_tree(one[None]), lambda: NUMPY.median_cells(one[None], 1, np.zeros(1, np.int64))):
        with pytest.raises(RuntimeError, match="has no k-d trees"):
            call()
    for call in (NUMPY.sweeps, NUMPY.mixture_sweeps):
        with pytest.raises(RuntimeError, match="has no chains"):
            call(cost)


def test_a_line_needs_no_kernels(kernel):
    answer = solve_line([0.0, 1.0, 5.0], [3.0, 1.0], [1, 2, 1], [2, 2])
    assert answer.status == "optimal"
    assert answer.upper == pytest.approx((1 + 0 + 4 + 4) / 4, rel=1e-12)


class OtherDevice(Backend):
    """A device that has c-transforms, here NumPy's, and nothing else."""

    name = "other"
    calls = 0

    def c_transform(self, cost, x, by_rows, out, threads):
        self.calls += 1
        kind, columns = cost.operand()
        assert kind == "dense"
        M = columns[:, : cost.shape[0]].T
        out[:] = (M + x[:, None, :]).min(axis=2) if by_rows else (M + x[:, :, None]).min(axis=1)


def test_another_device_does_the_transforms_of_costs_and_chains(monkeypatch):
    pair, temperatures = batch("dense", n=2), np.full(20, 0.1)
    _, expected = sampler.run(sampler.init(pair, rng=3), pair, temperatures)
    device = OtherDevice()
    monkeypatch.setitem(backends._made, native.name(), device)
    assert backend() is device
    _, found = sampler.run(sampler.init(pair, rng=3), pair, temperatures)
    assert device.calls >= 2 * 2 * 20
    np.testing.assert_allclose(found.U, expected.U, rtol=1e-9)


def test_nobody_else_loads_kernels():
    """Whoever needs a kernel asks the backend for an operation or a capability."""
    package = Path(backends.__file__).parent.parent
    loaders = {path.name for path in package.rglob("*.py") if "native.load(" in path.read_text(encoding="utf-8")}
    assert loaders == {"backend.py"}
