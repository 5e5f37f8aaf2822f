"""Bit-identical results of fixed seeds: a change of the code that is meant to change no result changes none of these.

``tests/data/pinned.json`` has, for every array of every case, a SHA-256 of its bytes and a summary of a few numbers.
It also says in which environment it was made. There results must be bit-identical, for all instruction sets and numbers
of threads. In another one NumPy and its BLAS may round otherwise in the last digit; so there only shapes, words and the
summaries count, the latter to `TOLERANCE`, and of plans only the shapes.

A change that is meant to change results rewrites the file: ``python tests/test_pinned.py``. Say why in the commit.

Only public names are used here, and of a result only what its documentation lists.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info

from cases import by_sampler
from gibbsot import (
    DenseCost,
    GridCost,
    PointCost,
    WassersteinBarycenter,
    WassersteinClassifier,
    WassersteinNMF,
    datasets,
    mixture_coordinates,
    solve,
    solve_batch,
)
from gibbsot.oracle.chains import TargetChains

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

Found = dict[str, Any]
Array = NDArray[np.float64]

PATH = Path(__file__).parent / "data" / "pinned.json"
TOLERANCE = 1e-3  # of summaries in another environment, relative to the size of an array's entries
EPOCH = ("estimate", "lower", "upper", "temperature", "step", "sweeps")  # a history's columns, but for the time
GRID = GridCost((8, 8))
# A case has the name of an entry in the file and a way to compute it: all ways of one name must be bit-identical.
CASES: list[tuple[str, str, Callable[[], Found]]] = []


def pinned(name: str, way: str = "", *arguments: Any, **options: Any) -> Callable[..., Any]:
    """Make a case of a function with these arguments."""

    def decorate(function: Callable[..., Found]) -> Callable[..., Found]:
        CASES.append((name, way, lambda: function(*arguments, **options)))
        return function

    return decorate


def weights(seed: int, *shape: int) -> Array:
    """Random weights, a third of them zero but for the first."""
    x = np.random.default_rng(seed).random((2, *shape))
    w = np.where(x[1] < 0.3, 0, x[0])
    w[..., 0] += 0.1
    return np.asarray(w / w.sum(axis=-1, keepdims=True))


def in_three(X: Any) -> list[Any]:
    """Shards of different sizes."""
    return [X[:3], X[3:4], X[4:]]


# --- solve and solve_batch, by the sampler: exact answers are compared with those of others elsewhere

estimate, estimate_batch = (by_sampler(f, normalize=True) for f in (solve, solve_batch))


def cost(kind: str, dtype: Any = np.float64) -> Any:
    x = np.random.default_rng(1).random((30, 25))
    return {
        "dense": lambda: DenseCost(np.where(x > 0.95, np.inf, x), dtype),
        "grid": lambda: GridCost((5, 6), dtype=dtype),
        "points": lambda: PointCost(x[:, :3], x[:18, 5:8], dtype=dtype),
    }[kind]()


def transport(result: Any, *more: str) -> Found:
    """What the documentation lists of the chains of a result."""
    names = ("value", "status", "history", "n_sweeps", "temperature", "mixed", "U", "L")
    found = {name: getattr(result, name) for name in (*names, *more)}
    plans = result.recovered_plan
    found["plan"] = np.stack([x.toarray() for x in plans]) if isinstance(plans, list) else plans.toarray()
    return found


@pinned("solve dense, float32", "", "dense", dtype=np.float32)
@pinned("solve grid, float32", "", "grid", dtype=np.float32)
@pinned("solve points, float32", "", "points", dtype=np.float32)
@pinned("solve dense, one temperature", "", "dense", schedule=0.01, n_sweeps=200)
@pinned("solve grid, temperatures", "", "grid", schedule=0.5 / np.arange(1, 300) ** 2)
@pinned("solve points, function", "", "points", schedule=lambda n: 0.05 / n, n_sweeps=150)
@pinned("solve grid, pinned", "", "grid", pinned=True, n_sweeps=500)
@pinned("solve dense", "", "dense")
@pinned("solve grid", "", "grid")
@pinned("solve points", "", "points")
def solved(kind: str, dtype: Any = np.float64, **options: Any) -> Found:
    M = cost(kind, dtype)
    p, q = weights(2, M.shape[0]), weights(3, M.shape[1])
    return transport(estimate(p, q, M, rng=5, **options))


@pinned("solve dense, warm", "", "dense")
@pinned("solve grid, warm", "", "grid")
@pinned("solve points, warm", "", "points")
@pinned("solve points, warm, cooled", "", "points", schedule=np.linspace(1e-3, 1e-4, 100))
def warmed(kind: str, **options: Any) -> Found:
    M = cost(kind)
    p, other, q = weights(2, M.shape[0]), weights(4, M.shape[0]), weights(3, M.shape[1])
    before = estimate(p, q, M, n_sweeps=1000, rng=5)
    return transport(estimate(0.9 * p + 0.1 * other, q, M, warm_start=before, **options))


@pinned("solve, diagnostics")
def diagnosed() -> Found:
    p, q, M = datasets.two_modes(10)
    result = estimate(p, q, M, n_sweeps=60, diagnostics=True, rng=1)
    return {"value": result.value} | {f"trace {name}": x for name, x in result.diagnostics._asdict().items()}


@pinned("solve, coulomb")
def electrons() -> Found:
    return transport(estimate(*datasets.coulomb_uniform(16), n_sweeps=500))


@pinned("solve_batch", "one thread", n_jobs=1)
@pinned("solve_batch", "two threads", n_jobs=2)
@pinned("solve_batch", "sparse", as_rows=sparse.csr_array)
@pinned("solve_batch", "two by two, by their ids", halves=True)
def batch(as_rows: Callable[[Array], Any] = np.asarray, halves: bool = False, **options: Any) -> Found:
    M, ids = GridCost((6, 7)), np.array([7, 3, 2**40, 0])
    P, Q = weights(11, 4, 42), weights(12, 4, 42)
    options = {"n_sweeps": 600, "rng": 9} | options
    if not halves:
        found = transport(estimate_batch(as_rows(P), as_rows(Q), M, ids=ids, **options))
        del found["history"]  # of some of the problems it is shorter
        return found
    pairs = [transport(estimate_batch(P[rows], Q[rows], M, ids=ids[rows], **options)) for rows in ([0, 2], [3, 1])]
    both = {name: np.concatenate([pair[name] for pair in pairs]) for name in pairs[0] if name != "history"}
    return {name: x[[0, 3, 1, 2]] for name, x in both.items()}


@pinned("solve_batch, one to all, warm")
def one_to_all() -> Found:
    M, P = GridCost((6, 7), power=1, dtype=np.float32), weights(13, 5, 42)
    before = estimate_batch(P, P[0], M, n_sweeps=400, n_jobs=2)
    found = transport(before) | {"third": before[3].U}
    return found | {f"then {name}": x for name, x in transport(estimate_batch(P, P[1], M, warm_start=before)).items()}


# --- Oracle


@pinned("Oracle", "one thread")
@pinned("Oracle", "two threads", n_jobs=2)
@pinned("Oracle", "saved and loaded", again=True)
def oracle_on_a_grid(again: bool = False, n_jobs: int | None = None) -> Found:
    X = datasets.digits()
    oracle = TargetChains(GRID, X[:12], tau=5, rng=3, n_jobs=n_jobs)
    found: Found = {}

    def call(name: str, rows: Any, T: Any, share: float, **options: Any) -> None:
        nonlocal oracle
        if again:
            oracle = TargetChains.from_arrays({name: np.asarray(x) for name, x in oracle.arrays().items()})
        P = ((1 - share) * X[20:32] + share * X[40:52])[slice(None) if rows is None else rows]
        found[f"{name} values"], found[f"{name} gradients"], info = oracle(P, T, rows, **options)
        found.update({f"{name} {field}": x for field, x in info._asdict().items() if x is not None})

    call("first", None, 2e-3, 0.0)
    call("moved", None, 1e-3, 0.1)
    call("some", np.array([3, 0, 7]), np.array([1e-3, 5e-4, 2e-4]), 0.2)
    call("bounds", slice(2, 9), 3e-4, 0.3, bounds=True)
    call("mask", np.arange(12) % 3 == 0, 3e-4, 0.4)
    optima = oracle.exact(X[20:32], 1e-4)
    found["exact value"] = np.array([optimum.value for optimum in optima])
    found["exact U"] = np.stack([optimum.f for optimum in optima])
    found["exact L"] = -np.stack([optimum.g for optimum in optima])
    found["exact status"] = np.array([optimum.status for optimum in optima])
    found["exact plan"] = np.stack([optimum.plan.toarray() for optimum in optima])
    oracle.load_potentials(found["exact L"])
    call("last", None, 1e-4, 0.0)
    return found


@pinned("Oracle, pairs")
def oracle_of_pairs() -> Found:
    M = cost("points", np.float32)
    targets = [(np.array([4, 1, 17]), np.array([1.0, 2.0, 3.0])), (np.array([0, 9]), np.array([3.0, 1.0]))]
    oracle = TargetChains(M, targets, tau=4, max_sweeps=9, rng=2, ids=[5, 2**50])
    found: Found = {}
    for k in range(4):
        found[f"{k} values"], found[f"{k} gradients"], info = oracle(weights(20 + k, 30), 0.02, bounds=k == 3)
        found.update({f"{k} {name}": x for name, x in info._asdict().items() if x is not None})
    return found


# --- WassersteinNMF

IMAGES = 26


@cache
def nmf(update: str, algorithm: str) -> WassersteinNMF:
    return fit_nmf(update, algorithm)


def fit_nmf(update: str, algorithm: str, three: bool = False, **options: Any) -> WassersteinNMF:
    X = datasets.digits()[:IMAGES]
    defaults = {"max_epochs": 100, "tau": 5, "batch_size": 10, "init": "random", "random_state": 0}
    model = WassersteinNMF(5, cost=GRID, update=update, algorithm=algorithm, **defaults | options)
    return model.fit(in_three(X) if three else X)


def of_nmf(model: WassersteinNMF) -> Found:
    names = ("components_", "memberships_", "reconstruction_err_", "usage_", "n_iter_")
    return {name: getattr(model, name) for name in names} | of_history(model)


def of_history(model: Any) -> Found:
    return {name: np.array([getattr(epoch, name) for epoch in model.history_]) for name in EPOCH}


@pinned("nmf full adaptive", "one shard", "full", "adaptive")
@pinned("nmf full adaptive", "three shards, two threads", "full", "adaptive", three=True, n_jobs=2)
@pinned("nmf full paper", "one shard", "full", "paper")
@pinned("nmf full paper", "three shards", "full", "paper", three=True)
@pinned("nmf online adaptive", "one shard", "online", "adaptive")
@pinned("nmf online adaptive", "three shards", "online", "adaptive", three=True)
@pinned("nmf online paper", "one shard", "online", "paper")
@pinned("nmf online paper", "three shards", "online", "paper", three=True)
@pinned("nmf from scikit-learn's", "one shard", "online", "adaptive", init="nmf")
@pinned("nmf too long steps", "one shard", "full", "adaptive", step_size=(100.0, 10.0), temperature=1e-4)
@pinned("nmf too short steps", "one shard", "full", "adaptive", step_size=0.5, max_epochs=60)
def fitted_nmf(update: str, algorithm: str, **options: Any) -> Found:
    return of_nmf(fit_nmf(update, algorithm, **options) if options else nmf(update, algorithm))


@pinned("nmf full adaptive", "three shards, interrupted, from a checkpoint", "full", three=True, checkpoint=True)
@pinned("nmf online adaptive", "interrupted, saved and loaded", "online")
def resumed_nmf(update: str, three: bool = False, checkpoint: bool = False) -> Found:
    X: Any = datasets.digits()[:IMAGES]
    X = in_three(X) if three else X
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoints" if checkpoint else "model.npz")
        options = {"callbacks": (lambda model: model.n_iter_ == 37,), "checkpoint": path if checkpoint else None}
        model = fit_nmf(update, "adaptive", three, **options)
        if not checkpoint:
            model.save(path)
        return of_nmf(WassersteinNMF.load(path).resume(X))


@pinned("nmf until it converges")
def converged_nmf() -> Found:
    bumps = 1 / (1 + ((np.arange(12) - np.linspace(2, 9, 12)[:, None]) / 2) ** 2) ** 2
    model = WassersteinNMF(3, cost="line", max_epochs=300, tol=0.05, tau=5, update="full", random_state=2).fit(bumps)
    assert model.n_iter_ < 300
    return of_nmf(model)


@pinned("nmf more epochs", "in one fit", 45)
@pinned("nmf more epochs", "resumed", 23)
def more_epochs(first: int) -> Found:
    X = datasets.digits()[:IMAGES]
    model = WassersteinNMF(5, cost=GRID, max_epochs=first, tau=5, batch_size=15, init="random", random_state=0).fit(X)
    return of_nmf(model.set_params(max_epochs=45).resume(X))


@pinned("nmf of sparse float32, one row empty", "one shard")
@pinned("nmf of sparse float32, one row empty", "three shards", three=True)
def sparse_nmf(three: bool = False) -> Found:
    X = datasets.digits(3)[:20].astype(np.float32)
    X[3] = 0
    rows: Any = sparse.csr_array(X)
    model = WassersteinNMF(3, cost="line", max_epochs=30, tau=4, batch_size=7, random_state=1, step_size=5.0)
    with pytest.warns(UserWarning, match="no mass"):
        model.fit(in_three(rows) if three else rows)
    return of_nmf(model)


@pinned("nmf transform and score", "one shard")
@pinned("nmf transform and score", "saved and loaded", again=True)
def transformed(again: bool = False) -> Found:
    X, model = datasets.digits()[100:112:2], nmf("online", "adaptive")
    if again:
        with tempfile.TemporaryDirectory() as folder:
            model.save(f"{folder}/model.npz")
            model = WassersteinNMF.load(f"{folder}/model.npz")
    W = model.transform(in_three(X) if again else X)
    return {
        "memberships": W,
        "mixtures": model.inverse_transform(W),
        "exact score": model.score(X),
    }


@pinned("nmf of a stream", "in memory")
@pinned("nmf of a stream", "saved and loaded", again=True)
def stream(again: bool = False) -> Found:
    X, found = datasets.digits(), {}
    model = WassersteinNMF(4, cost=GRID, tau=8, batch_size=10, random_state=2)
    for k in range(3):
        model.partial_fit(X[25 * k : 25 * (k + 1)])
        found[f"components after {k + 1}"] = model.components_
        if again:
            with tempfile.TemporaryDirectory() as folder:
                model.save(f"{folder}/model.npz")
                model = WassersteinNMF.load(f"{folder}/model.npz")
    return found | {"memberships": model.transform(X[75:80])}


# --- the other models


@pinned("mixture_coordinates", "one batch")
@pinned("mixture_coordinates", "many batches, two threads", batch_size=4, n_jobs=2)
@pinned("mixture_coordinates of sparse float32", "", as_rows=lambda X: sparse.csr_array(X.astype(np.float32)))
def mixed(as_rows: Callable[[Array], Any] = np.asarray, **options: Any) -> Found:
    D = np.stack([datasets.digits(label)[:10].sum(axis=0) for label in range(5)])
    X = datasets.digits()[200:212]
    X[5] = 0
    return {"memberships": mixture_coordinates(as_rows(X), D, GRID, gap=None, tau=10, rng=2005877882, **options)}


BY_DESCENT: Found = {"gap": 0.0, "max_memory": 1.0}  # linear programmes have several optima


@pinned("barycenter", "one shard")
@pinned("barycenter", "three shards", three=True)
@pinned("barycenter with weights", "one shard", sample_weight=np.linspace(0, 2, 14))
@pinned(
    "barycenter with weights", "three shards, two threads", three=True, sample_weight=np.linspace(0, 2, 14), n_jobs=2
)
def barycenter(three: bool = False, sample_weight: Any = None, **options: Any) -> Found:
    X = datasets.digits(5)[:14]
    model = WassersteinBarycenter(GRID, max_epochs=150, tau=10, tol=2e-3, random_state=6, **BY_DESCENT, **options)
    return of_barycenter(model, in_three(X) if three else X, sample_weight)


def of_barycenter(model: WassersteinBarycenter, X: Any, sample_weight: Any = None) -> Found:
    with pytest.warns(ConvergenceWarning):
        model.fit(X, sample_weight=sample_weight)
    names = ("barycenter_", "objective_", "lower_bound_", "n_iter_")
    return {name: getattr(model, name) for name in names} | of_history(model)


@pinned("classifier of labels")
@pinned("classifier of histograms", "two threads", histograms=True, n_jobs=2)
def classifier(histograms: bool = False, n_jobs: int | None = None) -> Found:
    labels = np.repeat(np.arange(4), 20)
    X, new = (np.concatenate([datasets.digits(k)[rows] for k in range(4)]) for rows in (slice(20), slice(20, 25)))
    y: Any = np.array(["a", "b", "c", "d"])[labels]
    truth: Any = y[::4]
    if histograms:
        y = 0.8 * np.eye(4)[labels] + 0.2 * weights(30, 80, 4)
        truth = y[::4]
    between = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    options: Found = {} if histograms else {"classes": ["a", "b", "c", "d"]}
    options |= {"max_epochs": 80, "tau": 15, "tol": 1e-2, "random_state": 7, "n_jobs": n_jobs}
    model = WassersteinClassifier(between, **options).fit(X, y)
    names = ("coef_", "intercept_", "objective_", "n_iter_", "classes_")
    found = {name: getattr(model, name) for name in names} | of_history(model)
    found |= {"probabilities": model.predict_proba(new), "top": model.predict_top(new, 2)}
    return found | {"predictions": model.predict(new), "score": model.score(new, truth)}


# --- PyTorch


@pinned("WassersteinLoss auto", "at a stretch", temperature="auto")
@pinned("WassersteinLoss auto", "from its state_dict at every step", temperature="auto", again=True)
@pinned("WassersteinLoss auto", "two threads", temperature="auto", n_jobs=2)
@pinned("WassersteinLoss given", "at a stretch", temperature=1e-3)
@pinned("WassersteinLoss given", "from its state_dict at every step", temperature=1e-3, again=True)
@pinned("WassersteinLoss float32", "at a stretch", temperature="auto", dtype="float32")
def torch_loss(again: bool = False, dtype: str = "float64", **options: Any) -> Found:
    torch = pytest.importorskip("torch")
    from gibbsot.torch import WassersteinLoss

    def make() -> Any:
        chains = {"method": "gibbs", "max_sweeps": 24, "rng": 8, "capacity": 10}
        return WassersteinLoss(GRID.astype(dtype), reduction="none", **chains, **options)

    loss, found = make(), {}
    X = torch.tensor(datasets.digits()[:36], dtype=getattr(torch, dtype))
    p = (X[12:24] + 0.02) / (X[12:24] + 0.02).sum(dim=1, keepdim=True)
    for k, rows in enumerate([[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [1, 3, 5, 7, 9, 11]] * 4):
        if again:
            other = make()
            other.load_state_dict(loss.state_dict())
            loss = other
        a, b = p[rows].clone().requires_grad_(), X[rows].clone().requires_grad_()
        # without an id, an example has no chain to continue
        value = loss(a, b, None if k == 5 else torch.tensor(rows))
        value.sum().backward()
        found[f"{k} values"], found[f"{k} temperature"] = value.detach().numpy(), loss.temperature
        found[f"{k} gradients"], found[f"{k} of targets"] = a.grad.numpy(), b.grad.numpy()
        moved = p[rows] * (1 - 2 * a.grad / a.grad.abs().max())
        p[rows] = (moved.abs() + 1e-6) / (moved.abs() + 1e-6).sum(dim=1, keepdim=True)
    with torch.no_grad():
        found["evaluated"], found["last temperature"] = loss(p[:6], X[:6]).numpy(), loss.temperature
    return found


@pinned("WassersteinLoss of logits")
def loss_of_logits() -> Found:
    torch = pytest.importorskip("torch")
    from gibbsot.torch import WassersteinLoss

    options = {"method": "gibbs", "temperature": 0.02, "max_sweeps": 18, "by_position": True}
    loss = WassersteinLoss(cost("points"), from_logits=True, **options)
    logits, q, found = torch.tensor(weights(40, 5, 30)), torch.tensor(weights(41, 5, 18)), {}
    for k in range(4):
        x = logits.clone().requires_grad_()
        value = loss(x, q)
        value.backward()
        found[f"{k} value"], found[f"{k} gradients"] = value.item(), x.grad.numpy()
        logits = logits - 20 * x.grad
    return found


# --- the command line


@pinned("gibbsot nmf")
def command_line() -> Found:
    pytest.importorskip("typer")
    pytest.importorskip("matplotlib")
    with tempfile.TemporaryDirectory() as folder:
        data = "digits", "--label", 5, "--limit", 30
        options = "--components", 4, "--epochs", 40, "--seed", 3, "--jobs", 2
        report = command("nmf", *data, *options, "--out", f"{folder}/out")
        written = json.loads(Path(folder, "out", "report.json").read_text(encoding="utf-8"))
        assert written["cost"] == report["cost"]
        found = {name: np.load(f"{folder}/out/{name}.npy") for name in ("components", "memberships")}
    return found | {name: report[name] for name in ("cost", "measures", "sample")}


def command(*words: Any) -> Any:
    """Run a command with --json and return what it says."""
    from gibbsot.cli import main

    said = io.StringIO()
    with redirect_stdout(said):
        assert main([*map(str, words), "--quiet", "--json"]) == 0
    return json.loads(said.getvalue())


# --- the file


@cache
def kernel() -> str:
    """Return the name of the kernels in use."""
    return str(command("info")["kernel"]) if find_spec("typer") else ""


@cache
def fingerprint() -> dict[str, Any]:
    """Return what the last bit of a result may depend on: neither the kernels nor the number of threads."""
    found: dict[str, Any] = {"machine": [platform.system(), platform.machine(), *platform.libc_ver()]}
    for name in ("numpy", "scipy", "scikit-learn", "POT", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    try:
        found["instructions"] = np.show_config("dicts")["SIMD Extensions"].get("found", [])
    except (TypeError, KeyError):  # an old version of NumPy
        found["instructions"] = None
    # that of torch is loaded later than those of NumPy and SciPy, if it has one
    blas = [x for x in threadpool_info() if x["user_api"] == "blas" and "torch" not in x["filepath"]]
    found["blas"] = sorted([str(library.get(key)) for key in ("prefix", "version", "architecture")] for library in blas)
    return found


def entry(x: Any) -> list[Any]:
    """Return what the file says of an array: type, shape, hash and summary."""
    array = np.asarray(x)
    if array.dtype.kind in "UO":
        text = json.dumps(array.tolist())
        return ["words", list(array.shape), hashlib.sha256(text.encode()).hexdigest(), array.tolist()]
    if array.dtype.kind in "iub":
        array = array.astype(np.int64)
    array = np.where(np.isnan(array), np.nan, array) if array.dtype.kind == "f" else array  # one kind of NaN
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
    digest = hashlib.sha256(f"{array.dtype.name} {array.shape}".encode() + array.tobytes()).hexdigest()
    return [array.dtype.name, list(array.shape), digest, summary(array)]


def summary(array: NDArray[Any]) -> list[Any]:
    """Return the largest size of an entry, root mean square, mean and three entries, of those that are finite.

    The first number is how many are finite, the others have six digits.
    """
    x = array.ravel().astype(np.float64)
    x = x[np.isfinite(x)]
    if not len(x):
        return [0]
    some = x[[0, len(x) // 2, -1]]
    numbers = [np.abs(x).max(), math.sqrt(np.mean(x**2)), x.mean(), *some]
    return [len(x), *(float(f"{number:.6g}") for number in numbers)]


def alike(found: list[Any], wanted: list[Any]) -> bool:
    """Tell whether type, shape and, but for the tolerance, summaries are the same."""
    if found[:2] != wanted[:2] or wanted[0] == "words":
        return found[:2] == wanted[:2] and found[3] == wanted[3]
    (n, *numbers), (m, *others) = found[3], wanted[3]
    return n == m and (not n or np.allclose(numbers, others, rtol=TOLERANCE, atol=TOLERANCE * others[1]))


def compare(found: dict[str, list[Any]], wanted: dict[str, list[Any]], bit_identical: bool) -> list[str]:
    """Return what differs, in words."""
    assert list(found) == list(wanted)

    def same(name: str) -> bool:
        if bit_identical:
            return found[name] == wanted[name]
        if name.endswith("plan"):  # it jumps from one vertex to another
            return found[name][:2] == wanted[name][:2]
        return alike(found[name], wanted[name])

    return [f"{name}: {found[name]}, expected {wanted[name]}" for name in wanted if not same(name)]


def compute(make: Callable[[], Found]) -> dict[str, list[Any]]:
    return {name: entry(x) for name, x in make().items()}


@cache
def pins() -> dict[str, Any]:
    return json.loads(PATH.read_text(encoding="utf-8"))


def names(cases: Sequence[tuple[str, str, Any]]) -> list[str]:
    return [f"{name}: {way}" if way else name for name, way, _ in cases]


compiled = pytest.mark.skipif("kernel() == 'numpy'", reason="these problems are too large for the NumPy step")


@compiled
@pytest.mark.slow
@pytest.mark.parametrize(("name", "make"), [(name, make) for name, _, make in CASES], ids=names(CASES))
def test_results_are_those_of_the_file(name: str, make: Callable[[], Found]) -> None:
    differences = compare(compute(make), pins()["cases"][name], pins()["fingerprint"] == fingerprint())
    assert not differences, "\n".join(differences)


def test_bits_are_compared() -> None:
    wanted, found = pins()["fingerprint"], fingerprint()
    different = [name for name in found if found[name] != wanted.get(name)]
    if different:
        pytest.skip(f"the file was made elsewhere, only summaries are compared; different: {', '.join(different)}")


@compiled
def test_the_control_policy_is_at_work() -> None:
    """The pinned adaptive fits are evaluated, cooled and damped; without that the pins would not test the policy."""
    changes = []
    for update in ("full", "online"):
        history = nmf(update, "adaptive").history_
        assert sum(np.isfinite(epoch.upper) for epoch in history) >= 6
        assert len({epoch.temperature for epoch in history}) >= 5
        changes.append(np.diff([epoch.step for epoch in history]))
        assert (changes[-1] < 0).any()
    assert (np.concatenate(changes) > 0).any()  # where chains follow well, steps grow again: in one of the two


def write() -> None:
    """Rewrite the file."""
    cases: dict[str, dict[str, list[Any]]] = {}
    for (name, _, make), label in zip(CASES, names(CASES), strict=True):
        found = compute(make)
        if found != cases.setdefault(name, found):
            sys.exit(f"{label}: differs from the first way\n" + "\n".join(compare(found, cases[name], True)))
    blocks = [
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f" {json.dumps(array)}: {json.dumps(line)}" for array, line in lines.items())
        + "\n}"
        for name, lines in sorted(cases.items())
    ]
    PATH.parent.mkdir(exist_ok=True)
    text = f'{{"fingerprint": {json.dumps(fingerprint())},\n"cases": {{\n' + ",\n".join(blocks) + "\n}}\n"
    PATH.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
