"""The public oracle: fixed targets and moving pairs, the choice of a method, files, snapshots and errors."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse

from cases import measures
from gibbsot import DenseCost, GridCost, Oracle, PointCost, solve_batch
from gibbsot.core import native
from gibbsot.oracle import pairs
from gibbsot.oracle.pairs import exact_values, favours_chains
from gibbsot.sampling import sampler
from gibbsot.schedules import AdaptiveCooling

GRID = GridCost((4, 5))
METHODS = ["auto", "gibbs", "kept", "exact"]


def both(n: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return measures(rng, n, 20), measures(rng, n, 20)


def same(first, other) -> None:
    for a, b in zip((*first[:3], *first.info[1:4]), (*other[:3], *other.info[1:4]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert first.info.method == other.info.method
    assert first.info.temperature == other.info.temperature


@pytest.mark.parametrize("method", ["auto", "kept", "exact"])
def test_exact_duals_are_those_of_solve(method):
    P, Q = both()
    exact = solve_batch(P, Q, GRID)
    for found in (Oracle(GRID, Q, method=method)(P), Oracle(GRID, method=method)(P, Q)):
        np.testing.assert_allclose(found.values, exact.value, rtol=1e-9)
        np.testing.assert_allclose(found.grad_p.sum(axis=1), 0, atol=1e-12)
        np.testing.assert_allclose(found.grad_q.sum(axis=1), 0, atol=1e-12)
        # potentials with the value that they should have, once the constants are put back
        np.testing.assert_allclose(
            (P * found.grad_p).sum(axis=1) + (Q * found.grad_q).sum(axis=1) + _constant(P, Q, found), exact.value
        )
        assert found.info.method == "exact"
        assert found.info.solved.all()
        assert found.info.mixed is True
        assert found.info.temperature is None


def _constant(P, Q, found) -> np.ndarray:
    """What feasible potentials lost when they were centred: the least reduced cost."""
    return (GRID.matrix() - found.grad_p[:, :, None] - found.grad_q[:, None]).min(axis=(1, 2))


def test_gradients_are_derivatives_in_both_measures():
    rng = np.random.default_rng(3)
    P, Q = rng.dirichlet(np.ones(20), size=(2, 3))
    oracle = Oracle(GRID)
    found = oracle(P, Q)
    for side, gradient in ((0, found.grad_p), (1, found.grad_q)):
        towards, e = rng.dirichlet(np.ones(20), size=3), 1e-7
        moved = [P, Q]
        moved[side] = moved[side] + e * (towards - moved[side])
        slope = (solve_batch(*moved, GRID).value - solve_batch(P, Q, GRID).value) / e
        np.testing.assert_allclose((gradient * (towards - [P, Q][side])).sum(axis=1), slope, atol=1e-5)


@pytest.mark.skipif(native.name() == "numpy", reason="slow without compiled kernels")
def test_chains_estimate_values_of_moving_pairs_without_a_temperature():
    P, Q = both(seed=1)
    oracle, W = Oracle(GRID, method="gibbs", max_sweeps=1000), solve_batch(P, Q, GRID).value
    assert oracle.temperature is None
    for _ in range(60):
        found = oracle(P, Q)
    assert oracle.temperature is not None
    assert found.info.method == "gibbs"
    assert (found.info.sweeps > 0).all()
    assert 1.0 < found.values.mean() / W.mean() < 1.6  # V(z) stays somewhat above W


@pytest.mark.skipif(native.name() == "numpy", reason="slow without compiled kernels")
def test_the_oracle_cools_when_the_cost_has_stalled():
    P, Q = both(seed=2)
    W = solve_batch(P, Q, GRID).value.mean()
    kept, cooled = (
        Oracle(GRID, Q, method="gibbs", max_sweeps=1000, temperature=AdaptiveCooling(cooling=c)) for c in (1.0, 0.5)
    )
    for _ in range(100):
        values = [one(P).values.mean() for one in (kept, cooled)]
    assert cooled.temperature < 0.3 * kept.temperature
    assert abs(values[1] / W - 1) < 0.5 * abs(values[0] / W - 1)


def test_a_temperature_that_is_given_stays():
    P, Q = both()
    oracle = Oracle(GRID, Q, method="gibbs", temperature=0.01)
    for _ in range(15):
        assert oracle(P).info.temperature == oracle.temperature == 0.01
    oracle.temperature = 0.02
    assert oracle(P).info.temperature == 0.02
    with pytest.raises(ValueError, match="temperature: belongs to chains"):
        Oracle(GRID, Q, method="kept").temperature = 0.1


@pytest.mark.parametrize(
    ("cost", "targets", "method"),
    [
        (GridCost((28, 28)), True, "gibbs"),
        (GridCost((28, 28)), False, "exact"),  # both measures move
        (GridCost((8, 8)), True, "exact"),  # small
        (PointCost(np.random.default_rng(0).random((200, 9))), True, "exact"),  # a sweep is not cheap
    ],
)
def test_the_rules_of_auto(cost, targets, method):
    m = cost.shape[0]
    P, Q = np.random.default_rng(0).dirichlet(np.ones(m), size=(2, 3))
    found = Oracle(cost, Q)(P) if targets else Oracle(cost)(P, Q)
    assert found.info.method == method


def test_chains_of_auto_end_when_models_move_little(monkeypatch, tmp_path):
    monkeypatch.setattr(pairs, "_LEAST_PAIRS", 0)
    cost = GridCost((9, 9, 2))
    P, Q = np.random.default_rng(0).dirichlet(np.ones(162), size=(2, 3))
    assert favours_chains(cost, P, Q)
    oracle = Oracle(cost, Q)
    assert oracle(P[:2], indices=[0, 1]).info.method == "gibbs"
    far, near = 0.4 * P + 0.6 * Q, 0.38 * P + 0.62 * Q
    assert oracle(far).info.method == "gibbs"
    oracle.save(tmp_path / "oracle.npz")
    kept = oracle.snapshot()
    found = oracle(near)
    assert found.info.method == "exact"
    np.testing.assert_allclose(found.values, solve_batch(near, Q, cost).value, rtol=1e-6)
    assert oracle(P).info.method == "exact"  # they do not come back
    oracle.restore(kept)
    assert oracle(near).info.method == "exact"  # the models of the last call are kept, too
    assert Oracle.load(tmp_path / "oracle.npz")(near).info.method == "exact"
    oracle.restore(kept)
    assert oracle(P).info.method == "gibbs"
    assert Oracle.load(tmp_path / "oracle.npz")(P).info.method == "gibbs"
    assert Oracle(cost, Q)(near[2:], indices=[2]).info.method == "gibbs"  # nothing is known of it


@pytest.mark.parametrize("method", ["auto", "gibbs"])
def test_files_have_the_constants_of_a_policy(tmp_path, method):
    policy = AdaptiveCooling(spacing=(2, 3), cooling=0.5, stall=10.0, window=1, early=(2, 0.25))
    P, Q = both()
    oracle = Oracle(GRID, Q, method=method, temperature=policy)
    oracle.save(tmp_path / "oracle.npz")
    loaded = Oracle.load(tmp_path / "oracle.npz")
    assert loaded._chains.policy == policy
    if method == "gibbs":
        for _ in range(12):
            same(oracle(P), loaded(P))
        plain = Oracle(GRID, Q, method=method)
        for _ in range(12):
            plain(P)
        assert loaded.temperature == oracle.temperature < plain.temperature


def test_kept_duals_are_lower_bounds_and_solved_again_when_measures_moved():
    P, Q = both()
    oracle = Oracle(GRID, method="kept", drift=0.05)
    oracle(P, Q)
    near, far = 0.97 * P + 0.03 * Q, 0.5 * P + 0.5 * Q
    found = oracle(near, Q)
    assert not found.info.solved.any()
    assert (found.values <= solve_batch(near, Q, GRID).value + 1e-12).all()
    again = oracle(far, Q)
    assert again.info.solved.all()
    np.testing.assert_allclose(again.values, solve_batch(far, Q, GRID).value, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_minibatches_of_targets_and_of_pairs(method):
    """A part of the problems gives what all of them do, in any order."""
    P, Q = both()
    options = {} if method != "gibbs" else {"temperature": 0.01}
    fixed, part = (Oracle(GRID, Q, method=method, **options) for _ in range(2))
    moving, some = (Oracle(GRID, method=method, **options) for _ in range(2))
    rows = np.array([4, 1, 2])
    for _ in range(3):
        whole, own = fixed(P), part(P[rows], indices=rows)
        for a, b in zip(whole[:3], own[:3], strict=True):
            np.testing.assert_array_equal(a[rows], b)
        whole, own = moving(P, Q), some(P[rows], Q[rows], indices=rows)
        for a, b in zip(whole[:3], own[:3], strict=True):
            np.testing.assert_array_equal(a[rows], b)
    mask = np.arange(6) < 2
    fixed, part = (Oracle(GRID, Q, method=method, **options) for _ in range(2))
    same(fixed(P[mask], indices=mask), part(P[:2], indices=slice(2)))


def test_targets_of_every_form_and_one_model_for_all():
    P, Q = both()
    supports = [(np.flatnonzero(q), q[q > 0]) for q in Q]
    wanted = Oracle(GRID, Q)(np.tile(P[0], (6, 1)))
    for form in (Q, sparse.csr_array(Q), supports):
        same(wanted, Oracle(GRID, form)(P[0]))
    same(wanted, Oracle(GRID, Q)(sparse.csr_array(np.tile(P[0], (6, 1)))))
    assert len(Oracle(GRID, Q)) == 6
    assert len(Oracle(GRID)) == 0


def test_masses_that_differ():
    P, Q = both()
    for call in (lambda: Oracle(GRID, 2 * Q)(P), lambda: Oracle(GRID)(P, 2 * Q)):
        with pytest.raises(ValueError, match=r"sums to 2, P to 1; .* normalize=True .*, or penalty= or kl= "):
            call()
    wanted = Oracle(GRID)(P, Q)
    found = Oracle(GRID, 2 * Q, normalize=True)(3 * P)
    np.testing.assert_allclose(found.values, wanted.values)
    np.testing.assert_allclose((3 * P * found.grad_p).sum(axis=1), 0, atol=1e-12)  # along its own mass nothing changes
    left = Oracle(GRID, penalty=0.05)(P, 2 * Q)
    exact = solve_batch(P, 2 * Q, GRID, penalty=0.05)
    np.testing.assert_allclose(left.values, exact.value, rtol=1e-9)
    np.testing.assert_allclose(left.values, (P * left.grad_p + 2 * Q * left.grad_q).sum(axis=1), rtol=1e-9)
    twice = Oracle(GRID)(2 * P, 2 * Q)  # masses other than one, which agree
    np.testing.assert_allclose(twice.values, 2 * wanted.values)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("targets", [True, False])
@pytest.mark.parametrize("penalty", [None, 0.05])
def test_saved_and_loaded_it_goes_on_to_the_bit(tmp_path, method, targets, penalty):
    P, Q = both()
    options = {} if method in ("kept", "exact") else {"max_sweeps": 150, "rng": 2**63 + 1}
    oracle = Oracle(GRID, Q if targets else None, method=method, penalty=penalty, **options)

    def call(one, P):
        return one(P) if targets else one(P, Q)

    for k in range(12):
        call(oracle, (1 - 0.02 * k) * P + 0.02 * k * Q)
    oracle.save(tmp_path / "oracle.npz")
    loaded, kept = Oracle.load(tmp_path / "oracle.npz", n_jobs=2), oracle.snapshot()
    assert loaded.method == method
    found = [call(oracle, (1 - s) * P + s * Q) for s in (0.3, 0.6)]
    for s, wanted in zip((0.3, 0.6), found, strict=True):
        same(call(loaded, (1 - s) * P + s * Q), wanted)
    oracle.restore(kept)
    for s, wanted in zip((0.3, 0.6), found, strict=True):
        same(call(oracle, (1 - s) * P + s * Q), wanted)


def test_files_of_something_else_are_refused(tmp_path):
    oracle = Oracle(GRID, both()[1])
    oracle.save(tmp_path / "oracle.npz")
    with np.load(tmp_path / "oracle.npz") as file:
        arrays = {name: file[name] for name in file.files}
    del arrays["method"]
    np.savez(tmp_path / "incomplete.npz", **arrays)
    with pytest.raises(ValueError, match=r"path: .*incomplete\.npz is incomplete, it lacks 'method'"):
        Oracle.load(tmp_path / "incomplete.npz")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(ValueError, match=r"path: .*other\.npz holds 'no format'; expected 'gibbsot oracle 2'"):
        Oracle.load(tmp_path / "other.npz")


@pytest.mark.parametrize("method", METHODS)
def test_exact_values_are_certified_and_change_nothing(method):
    P, Q = both()
    oracle, twin = (Oracle(GRID, Q, method=method) for _ in range(2))
    oracle(P)
    twin(P)
    exact = solve_batch(P, Q, GRID)
    for what, wanted in (("lower", exact.lower_bound), ("upper", exact.upper_bound), ("estimate", exact.value)):
        with exact_values(what):
            np.testing.assert_allclose(oracle(P).values, wanted, rtol=1e-9)
    optima = oracle.exact(P)
    assert all(one.lower <= w <= one.upper + 1e-15 for one, w in zip(optima, exact.value, strict=True))
    same(oracle(0.5 * P + 0.5 * Q), twin(0.5 * P + 0.5 * Q))


@pytest.mark.skipif(native.name() == "numpy", reason="slow without compiled kernels")
def test_a_sample_corrects_the_bias_of_the_others():
    rng = np.random.default_rng(0)
    P, Q = rng.dirichlet(np.ones(20), size=(2, 100))
    oracle, W = Oracle(GRID, Q, method="gibbs", max_sweeps=300), solve_batch(P, Q, GRID).value
    for _ in range(5):
        biased = oracle(P).values
    with exact_values():
        found = oracle(P)
    assert found.info.solved.sum() == 20
    np.testing.assert_allclose(found.values[found.info.solved], W[found.info.solved], rtol=1e-6)
    assert abs(found.values.mean() - W.mean()) < 0.5 * abs(biased.mean() - W.mean())


def test_threads_do_not_show():
    P, Q = both()
    for method in METHODS:
        one, two = (Oracle(GRID, method=method, n_jobs=n) for n in (1, 2))
        for s in (0.0, 0.2):
            same(one((1 - s) * P + s * Q, Q), two((1 - s) * P + s * Q, Q))


@pytest.mark.parametrize("method", METHODS)
def test_what_fails_or_is_interrupted_changes_nothing(method, monkeypatch):
    P, Q = both()
    oracle, twin = (Oracle(GRID, Q, method=method) for _ in range(2))
    same(oracle(P), twin(P))
    with pytest.raises(ValueError, match="P: "):
        oracle(-P)

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        for module, name in ((pairs, "solved"), (sampler, "run")):
            patch.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            oracle(0.5 * P + 0.5 * Q)
    same(oracle(0.9 * P + 0.1 * Q), twin(0.9 * P + 0.1 * Q))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda P, _: Oracle(GRID)(P), "Q: expected the other measures"),
        (lambda P, Q: Oracle(GRID, Q)(P, Q), "Q: expected None, as this oracle has targets"),
        (lambda P, Q: Oracle(GRID, Q)(P[:2]), "P: expected one model for each|expected as many measures"),
        (lambda P, Q: Oracle(GRID, Q)(P, indices=[0.5]), "indices: expected a list of different targets"),
        (lambda P, Q: Oracle(GRID, Q)(P[:2], indices=[1, 1]), "indices: expected a list of different targets"),
        (lambda P, Q: Oracle(GRID)(P[:2], Q[:2], indices=[1, 1]), "indices: expected a different number"),
        (lambda P, Q: Oracle(GRID)(P[:2], Q[:2], indices=[1]), "indices: expected a number for each of the 2 pairs"),
        (lambda P, Q: Oracle(GRID)(P[:2], Q[:2], indices=[-1, 0]), "indices: expected a different number"),
        (lambda _, __: Oracle(GRID, method="sinkhorn"), "method"),
        (lambda _, __: Oracle(GRID, method="kept", temperature=0.1), "temperature: is an option of the sampler"),
        (lambda _, __: Oracle(GRID, method="exact", drift=0.1), "drift: is an option of kept duals"),
        (lambda _, __: Oracle(GRID, method="gibbs", max_sweeps=0), "max_sweeps: expected at least 1"),
        (lambda _, __: Oracle(GRID, method="gibbs", max_sweeps=10**7), "max_sweeps: expected at most 1,000,000"),
        (lambda _, Q: Oracle(GRID, Q, capacity=5), "capacity: all targets are kept"),
        (lambda _, __: Oracle(GRID, temperature="hot"), "temperature: expected 'auto'"),
        (lambda _, __: Oracle(GRID, penalty=1.0, normalize=True), "normalize: masses matter"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call(*both())


def test_two_threads_at_once_are_an_error(monkeypatch):
    P, Q = both()
    oracle, usual, started, go = Oracle(GRID, Q), pairs.solved, threading.Event(), threading.Event()

    def slow(*args):
        started.set()
        assert go.wait(10)
        return usual(*args)

    monkeypatch.setattr(pairs, "solved", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(oracle, P)
        assert started.wait(10)
        with pytest.raises(RuntimeError, match="at work in another thread"):
            oracle(P)
        go.set()
        assert len(first.result().values) == 6


def test_a_matrix_with_infinite_costs():
    M = np.array([[0.0, np.inf], [1.0, 0.0]])
    for method in METHODS:
        found = Oracle(DenseCost(M), method=method)([[0.5, 0.5]], [[0.75, 0.25]])
        assert np.isfinite(found.values).all()
        assert np.isfinite(found.grad_p).all()
