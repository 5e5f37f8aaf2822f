"""The matrix of transport costs, against POT and what any such matrix satisfies."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier

from gibbsot import (
    DenseCost,
    GridCost,
    PointCost,
    WassersteinEmbedding,
    WassersteinNeighbors,
    barycentric_coordinates,
    coulomb,
    distances,
    solve,
)
from gibbsot.core import native
from gibbsot.exact import methods as exact
from gibbsot.exact.packed import solve_packed
from gibbsot.io.budget import Budget
from gibbsot.models.geometry import sets as _sets

compiled = pytest.mark.skipif(native.name() == "numpy", reason="takes long, and says nothing of the kernels")
GRIDS = {
    "line": GridCost(40),
    "images": GridCost((9, 7)),
    "volumes": GridCost((4, 5, 3)),
    "power one": GridCost((7, 7), power=1),
    "points": PointCost(np.random.default_rng(1).normal(size=(50, 2))),
    "points in many dimensions": PointCost(np.random.default_rng(1).normal(size=(50, 20)), metric="euclidean"),
    "matrix": DenseCost(cdist(*np.random.default_rng(2).random((2, 30, 3)))),
}


def measures(n: int, m: int, seed: int = 0, empty: float = 0.4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.random((n, m)) * (rng.random((n, m)) > empty)
    X[:, 0] += 1e-3
    return X / X.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("kind", GRIDS)
def test_pairs_of_rows_equal_those_of_pot(kind):
    cost = GRIDS[kind]
    P, Q = measures(10, cost.shape[0]), measures(20, cost.shape[1], seed=1)
    expected = [[ot.emd2(p, q, cost.matrix()) for q in Q] for p in P]
    np.testing.assert_allclose(distances(P, Q, cost=cost, n_jobs=2), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock"])
def test_pairs_of_clouds_equal_those_of_pot(metric):
    rng = np.random.default_rng(0)
    P = [(rng.normal(size=(n, 2)), rng.random(n)) for n in rng.integers(1, 30, 10)]
    Q = [rng.normal(size=(n, 2)) for n in rng.integers(1, 30, 20)]
    expected = [[ot.emd2(w / w.sum(), [], cdist(x, y, metric)) for y in Q] for x, w in P]
    np.testing.assert_allclose(distances(P, Q, cost=metric, n_jobs=2), expected, rtol=1e-9, atol=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_roots_are_a_metric(seed, n):
    X = measures(n, 16, seed)
    D = distances(X, cost=GridCost((4, 4)), root=True)
    np.testing.assert_array_equal(D, D.T)
    np.testing.assert_array_equal(np.diag(D), 0)
    assert (D[:, :, None] + D[None] >= D[:, None] - 1e-9).all()


def test_one_set_is_that_set_twice():
    X, cost = measures(7, 63), GRIDS["images"]
    np.testing.assert_allclose(distances(X, cost=cost), distances(X, X, cost=cost), rtol=1e-12, atol=1e-15)


def test_a_cost_that_is_not_symmetric():
    M = np.random.default_rng(0).random((12, 12))
    X = measures(4, 12)
    D = distances(X, cost=M)
    np.testing.assert_allclose(D, [[ot.emd2(p, q, M) for q in X] for p in X], atol=1e-12)
    assert (D != D.T).any()
    np.testing.assert_array_equal(np.diag(distances(X, cost=M - np.diag(np.diag(M)))), 0)


def test_a_symmetric_cost_with_a_diagonal_or_infinite_costs():
    X = measures(4, 12, empty=0)
    cost = coulomb(np.arange(12.0))
    D = distances(X, cost=cost)
    np.testing.assert_array_equal(D, D.T)
    assert (np.diag(D) > 0).all()
    with pytest.raises(ValueError, match="infinite costs forbid every plan"):
        distances(np.eye(12)[:2], cost=cost)


def test_rectangular_costs():
    cost = PointCost(np.arange(5.0), np.arange(8.0))
    D = distances(measures(3, 5), measures(4, 8), cost=cost)
    assert D.shape == (3, 4)
    with pytest.raises(ValueError, match="cost: is for 5 x 8 points"):
        distances(measures(3, 5), cost=cost)


def test_every_kind_of_rows(tmp_path):
    X, cost = measures(6, 63), GRIDS["images"]
    D = distances(X, cost=cost)
    np.save(tmp_path / "a.npy", X[:2])
    kinds = [
        (1 + np.arange(6))[:, None] * X,  # masses do not matter
        X.tolist(),
        sparse.csr_array(X),
        X.reshape(6, 9, 7),
        list(X.reshape(6, 9, 7)),
        [X[:2], X[2:]],
        [X[:2], sparse.coo_array(X[2:])],
        [tmp_path / "a.npy", X[2:]],
    ]
    for x in kinds:
        np.testing.assert_allclose(distances(x, cost=cost), D, rtol=1e-12, atol=1e-15)


def test_costs_by_name():
    X, vectors = measures(5, 6), np.random.default_rng(0).normal(size=(6, 3))
    D = distances(X, cost="cosine", feature_vectors=vectors)
    np.testing.assert_allclose(D, distances(X, cost=cdist(vectors, vectors, "cosine")), atol=1e-12)
    np.testing.assert_array_equal(distances(X, cost="line"), distances(X, cost=GridCost(6)))
    with pytest.warns(UserWarning, match="taken to lie on a line"):
        distances(X, cost=None)


def test_clouds_of_one_size_are_an_array_of_points():
    X = np.random.default_rng(0).normal(size=(4, 10, 2))
    D = distances(X, cost="sqeuclidean")
    np.testing.assert_array_equal(D, distances(list(X), cost="sqeuclidean"))
    np.testing.assert_allclose(D, [[ot.emd2([], [], cdist(x, y, "sqeuclidean")) for y in X] for x in X], atol=1e-12)


def test_results_do_not_depend_on_threads_and_chunks(monkeypatch):
    X, cost = measures(12, 63), GRIDS["images"]
    D = distances(X, cost=cost)
    monkeypatch.setattr("gibbsot.models.geometry.sets._CHUNK_BYTES", 1.0)
    np.testing.assert_array_equal(distances(X, cost=cost, n_jobs=2), D)


@pytest.mark.skipif(native.name() == "numpy", reason="the gap is that of the coarse levels of the compiled solver")
def test_a_gap_is_kept():
    X, cost = measures(3, 26 * 26, empty=0), GridCost((26, 26))
    D, loose = distances(X, cost=cost, gap=0), distances(X, cost=cost, gap=0.1)
    np.testing.assert_array_equal(D, distances(X, cost=cost))
    off = ~np.eye(3, dtype=bool)
    assert (loose >= D * (1 - 1e-9)).all()
    assert (loose[off] <= 1.1 * D[off]).all()
    assert (loose != D).any()


@compiled
def test_for_a_precomputed_metric(fives):
    X = np.concatenate([fives[:10], fives[:10].reshape(-1, 28, 28)[:, ::-1].reshape(10, -1)])
    y = np.repeat([0, 1], 10)
    D = distances(X, cost=GridCost((28, 28)), root=True, n_jobs=-1)
    model = KNeighborsClassifier(3, metric="precomputed").fit(D, y)
    assert model.score(D, y) > 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"P": np.ones((2, 5)), "cost": GridCost(4)}, "P: expected 4 weights in each measure"),
        ({"P": np.ones((2, 4)), "Q": np.ones((2, 5)), "cost": GridCost(4)}, "Q: expected 4 weights in each measure"),
        ({"P": [[1, 0], [0, 0]], "cost": GridCost(2)}, "P: row 1 has no mass"),
        ({"P": [[1, -1], [0, 1]], "cost": GridCost(2)}, "P: has negative weights"),
        ({"P": sparse.csr_array([[1.0, 0], [0, 0]]), "cost": GridCost(2)}, "P: row 1 has no mass"),
        ({"P": sparse.csr_array(np.ones((2, 3))), "cost": GridCost(2)}, "P: expected 2 weights in each measure"),
        ({"P": np.eye(2), "cost": GridCost(2), "gap": -1}, "gap: expected a number >= 0"),
        ({"P": np.eye(2), "cost": GridCost(2), "max_seconds": 0}, "max_seconds: expected a positive number"),
        ({"P": np.eye(2), "cost": "euclidian"}, "cost: expected one of"),
        ({"P": np.eye(2), "cost": -np.eye(2), "root": True}, "root: the least cost is -1"),
        ({"P": [np.ones((2, 2)), np.ones((2, 3))], "cost": "euclidean"}, r"P\[1\]: has points with 3 coordinates"),
        ({"P": [np.ones((2, 2))], "Q": [np.ones((2, 3))], "cost": "euclidean"}, "Q: has points with 3 coordinates"),
        ({"P": [np.ones((2, 2))], "Q": np.ones((2, 3)), "cost": "euclidean"}, "Q: expected clouds as in P"),
        ({"P": [(np.ones((2, 2)), [1.0])], "cost": "euclidean"}, r"P\[0\] \(weights\): expected 2 weights"),
        ({"P": [np.ones((2, 2))], "cost": "seuclidean"}, "cost: 'seuclidean' depends on all points"),
        ({"P": np.eye(2), "cost": GridCost(2), "feature_vectors": np.eye(2)}, "feature_vectors: a cost is built"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        distances(**arguments)


def test_bad_types():
    with pytest.raises(TypeError, match="root: expected True or False"):
        distances(np.eye(2), cost=GridCost(2), root=1)


def test_progress_is_shown(capfd, monkeypatch):
    monkeypatch.setattr("gibbsot.io.progress._PAUSE", 0.0)
    monkeypatch.setattr("gibbsot.models.geometry.sets._CHUNK_BYTES", 1.0)
    distances(measures(6, 9), cost=GridCost((3, 3)), verbose=True)
    assert "distances: 100% 15 of 15 pairs" in capfd.readouterr().err


LONG = {
    "distances": lambda X, cost: distances(X, cost=cost),
    "neighbours": lambda X, cost: WassersteinNeighbors(5, cost=cost, n_jobs=2).fit(X[:1000]).kneighbors(X),
    "maps": lambda X, cost: WassersteinEmbedding(cost, maps="debiased", epsilon=1e-6, n_jobs=2).fit_transform(X),
    "coordinates": lambda X, cost: barycentric_coordinates(X, X[:40], cost, n_jobs=2),
}


@pytest.mark.slow
@pytest.mark.skipif(native.name() == "numpy", reason="NumPy and HiGHS cannot be interrupted within a solve")
@pytest.mark.parametrize("work", LONG)
def test_ctrl_c_ends_it(fives, work):
    X, sent = np.concatenate([fives] * 20), list[float]()

    def interrupt() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer = threading.Timer(1.0, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            LONG[work](X, GridCost((28, 28)))
        assert time.monotonic() - sent[0] < 5  # all of it would take minutes or an hour
    finally:
        signal.signal(signal.SIGINT, previous)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("zero_diagonal", [False, True])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 5), (3, 7)])
def test_all_pairs_without_a_list(n, k, symmetric, zero_diagonal):
    if symmetric and n != k:
        return
    expected = [(i, j) for i in range(n) for j in range(k) if not ((symmetric and j < i) or (zero_diagonal and i == j))]
    pairs = _sets.AllPairs(n, k, symmetric, zero_diagonal)
    found = [pair for start in range(0, len(pairs), 3) for pair in zip(*pairs[start : start + 3], strict=True)]
    assert found == expected
    assert len(pairs) == len(expected)


def interrupted_after(monkeypatch, calls: int) -> list[int]:
    """Let pairs be solved seven at a time, and interrupt after some such calls; return the sizes of calls."""
    monkeypatch.setattr(_sets, "_CHUNK_PAIRS", 7)
    sizes: list[int] = []

    def counted(solver):
        def solve(problem, *args, **options):
            if len(sizes) == calls:
                raise KeyboardInterrupt
            sizes.append(len(problem))
            return solver(problem, *args, **options)

        return solve

    monkeypatch.setattr(_sets, "optima", counted(exact.optima))
    monkeypatch.setattr(_sets, "solve_packed", counted(solve_packed))
    return sizes


@pytest.mark.parametrize(
    "cost",
    [GridCost((4, 4)), *(DenseCost(np.random.default_rng(3).random((16, 16)), dtype) for dtype in (float, np.float32))],
    ids=["grid", "packed matrix", "matrix"],
)
@pytest.mark.parametrize("as_sparse", [False, True])
def test_a_checkpoint_continues_after_an_interrupt(cost, as_sparse, tmp_path, monkeypatch):
    X, file = measures(9, 16), tmp_path / "partial.npz"
    X = sparse.csr_array(X) if as_sparse else X
    expected = distances(X, cost=cost)
    interrupted_after(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        distances(X, cost=cost, checkpoint=file)
    sizes = interrupted_after(monkeypatch, 1000)
    np.testing.assert_array_equal(distances(X, cost=cost, checkpoint=file), expected)
    assert sum(sizes) == (36 if isinstance(cost, GridCost) else 81) - 3 * 7
    sizes.clear()
    np.testing.assert_array_equal(distances(X, cost=cost, root=True, checkpoint=file), np.sqrt(expected))
    assert not sizes  # the file has all values


def test_rows_with_few_points_are_packed(monkeypatch):
    """Pairs on a stored matrix are solved in one call, with the values that each has alone."""
    M, X = np.random.default_rng(5).random((40, 40)), measures(12, 40, empty=0.7)
    expected = [[solve(p, q, M, normalize=True).value for q in X] for p in X]
    monkeypatch.setattr(_sets, "optima", None)  # nothing is left for it
    np.testing.assert_allclose(distances(sparse.csr_array(X), cost=M), expected, rtol=1e-12, atol=1e-15)
    found, order = WassersteinNeighbors(3, cost=M).fit(X).kneighbors(X[:5])
    np.testing.assert_array_equal(order, np.argsort(expected, axis=1, kind="stable")[:5, :3])
    np.testing.assert_allclose(found, np.sort(expected, axis=1)[:5, :3], rtol=1e-12, atol=1e-15)


def test_no_time_at_all():
    X = measures(4, 16)
    with pytest.warns(
        ConvergenceWarning, match=r"max_seconds: 6 of 6 pairs were not solved in 1e-09 seconds"
    ) as caught:
        D = distances(X, cost=GridCost((4, 4)), root=True, max_seconds=1e-9)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(np.isnan(D), ~np.eye(4, dtype=bool))


@compiled
@pytest.mark.parametrize("kind", ["rows", "clouds"])
def test_what_is_not_solved_in_time_is_nan_and_solved_later(kind, tmp_path, monkeypatch):
    """Pairs with too many arcs to be solved before they stop: four are solved, the next ones are cut."""
    X, file, calls = measures(4, 21 * 21, empty=0), tmp_path / "partial.npz", [0]
    P, cost = (
        (X, GridCost((21, 21))) if kind == "rows" else ([(GridCost((21, 21)).points(), x) for x in X], "sqeuclidean")
    )
    expected = distances(P, cost=cost)
    budgets: list[Budget] = []

    class Kept(Budget):
        def __init__(self, *limits: float) -> None:
            super().__init__(*limits)
            budgets.append(self)

    def optima(problem, *, budget, **options):
        if calls[0] == (1 if kind == "rows" else 4):  # rows are solved together, clouds one by one
            budgets[0].stop()
            budget.stop()
        calls[0] += 1
        return exact.optima(problem, budget=budget, **options)

    monkeypatch.setattr("gibbsot.models.geometry.distances.Budget", Kept)
    monkeypatch.setattr(_sets, "optima", optima)
    with pytest.warns(ConvergenceWarning, match=r"max_seconds: 2 of 6 pairs .* NaN.* continues from the checkpoint"):
        D = distances(P, cost=cost, max_seconds=1000, checkpoint=file)
    assert np.isnan(D).sum() == 4
    np.testing.assert_array_equal(np.isnan(D), np.isnan(D.T))
    np.testing.assert_array_equal(D[~np.isnan(D)], expected[~np.isnan(D)])
    monkeypatch.undo()
    np.testing.assert_array_equal(distances(P, cost=cost, checkpoint=file, max_seconds=1000), expected)


@compiled
def test_chunks_grow_where_time_is_limited(monkeypatch):
    sizes = interrupted_after(monkeypatch, 1000)
    monkeypatch.setattr(_sets, "_CHUNK_SECONDS", np.inf)
    monkeypatch.setattr(_sets, "_CHUNK_PAIRS", 12)
    X = measures(9, 16)
    D = distances(X, cost=GridCost((4, 4)), max_seconds=1000)
    assert sizes == [4, 8, 12, 12]
    np.testing.assert_array_equal(D, distances(X, cost=GridCost((4, 4))))


@pytest.mark.parametrize("change", ["measures", "cost", "gap"])
def test_a_checkpoint_of_another_problem(change, tmp_path):
    X, file = measures(4, 16), tmp_path / "partial.npz"
    distances(X, cost=GridCost((4, 4)), checkpoint=file)
    other = {
        "cost": GridCost((4, 4), spacing=1.0 if change == "cost" else None),
        "gap": 0.1 if change == "gap" else None,
    }
    with pytest.raises(
        ValueError, match=r"checkpoint: .*partial.npz is of other measures, another cost or another gap"
    ):
        distances(X[::-1] if change == "measures" else X, **other, checkpoint=file)
    file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"partial.npz is damaged"):
        distances(X, cost=GridCost((4, 4)), checkpoint=file)


def test_a_checkpoint_of_clouds(tmp_path):
    rng = np.random.default_rng(0)
    clouds, file = [rng.normal(size=(n, 2)) for n in (3, 4, 5)], tmp_path / "partial.npz"
    expected = distances(clouds, cost="sqeuclidean", checkpoint=file)
    np.testing.assert_array_equal(distances(clouds, cost="sqeuclidean", checkpoint=file), expected)
    clouds[1] = clouds[1] + 1
    with pytest.raises(ValueError, match=r"checkpoint: .* is of other measures"):
        distances(clouds, cost="sqeuclidean", checkpoint=file)


def test_a_checkpoint_needs_a_folder(tmp_path):
    with pytest.raises(ValueError, match=r"checkpoint: there is no folder .*missing; expected a file in one"):
        distances(measures(3, 16), cost=GridCost((4, 4)), checkpoint=tmp_path / "missing" / "partial.npz")


@pytest.mark.parametrize(
    "P", [[np.arange(3.0), np.arange(4.0)], [[np.ones((3, 2)), np.ones(3)]] * 2, (np.ones((2, 2)) for _ in range(2))]
)
def test_neither_rows_nor_clouds(P):
    with pytest.raises(ValueError, match=r"P: expected measures as rows of one length, or .* a list of clouds"):
        distances(P, cost="sqeuclidean")


def test_clouds_in_an_array_of_objects():
    clouds = [np.random.default_rng(n).normal(size=(n, 2)) for n in (3, 4, 5)]
    as_objects = np.empty(3, object)
    as_objects[:] = clouds
    expected = distances(clouds, cost="sqeuclidean")
    np.testing.assert_array_equal(distances(as_objects, cost="sqeuclidean"), expected)


def test_clouds_where_rows_are_expected():
    clouds = [np.ones((3, 2)), np.ones((4, 2))]
    with pytest.raises(ValueError, match=r"P\[0\]: expected 12 weights in each measure, got shape \(3, 2\)"):
        distances(clouds, cost=GridCost((3, 4)))
    with pytest.raises(ValueError, match="P: is a path; expected measures, or a list of files"):
        distances("measures.npy", cost=GridCost((3, 4)))
    with pytest.raises(ValueError, match="references: expected clouds as in X"):
        barycentric_coordinates(clouds, np.ones((2, 5)), "sqeuclidean")
