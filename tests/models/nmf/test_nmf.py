"""Wasserstein NMF: planted models come back, runs are bit-identical, and error messages name what is wrong.

Problems are small and chains short (`tau`), so that the NumPy step can do them too.
"""

from __future__ import annotations

import itertools
import os
import pickle
import warnings

import numpy as np
import ot
import pytest
from scipy import sparse
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from fits import same_nmf
from gibbsot import DenseCost, GridCost, Oracle, datasets, solve_batch
from gibbsot.core import native
from gibbsot.distributed import fixed_point
from gibbsot.distributed.shards import LocalShards
from gibbsot.exact.programme import free_measure
from gibbsot.models._loop import Epoch
from gibbsot.models.nmf.estimator import WassersteinNMF
from gibbsot.models.nmf.fit import _deviation
from gibbsot.models.nmf.start import initial_factors
from gibbsot.oracle import chains
from gibbsot.oracle.chains import TargetChains
from gibbsot.oracle.mirror_descent import AcceleratedMirrorDescent
from gibbsot.sampling import sampler, schedules

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

SIZE = 16
M = GridCost(SIZE).matrix()
BUMPS = np.exp(-((np.arange(SIZE) - np.array([[2], [8], [13]])) ** 2) / 2)
BUMPS /= BUMPS.sum(axis=1, keepdims=True)


def mixtures(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mixtures of the three bumps, most of them nearly pure, and their memberships."""
    memberships = np.random.default_rng(seed).dirichlet(np.full(3, 0.3), n)
    return memberships @ BUMPS, memberships


def counts(n: int = 10, seed: int = 0) -> np.ndarray:
    """Samples of such mixtures: whole numbers, a third of them zero."""
    return np.random.default_rng(seed).multinomial(200, mixtures(n, seed)[0]).astype(float)


def costs(P: np.ndarray, X: np.ndarray, matrix: np.ndarray = M) -> np.ndarray:
    """Exact transport costs, by POT, of measures that are normalised."""
    P, X = (np.asarray(rows, np.float64) for rows in (P, X))
    P, X = (rows / rows.sum(axis=1, keepdims=True) for rows in (P, X))
    return np.array([ot.emd2(p, x, matrix) for p, x in zip(P, X, strict=True)])


def estimator(**options) -> WassersteinNMF:
    """A short run from a random start, from which there is much to gain."""
    defaults = {"cost": "line", "max_epochs": 8, "batch_size": 4, "init": "random", "random_state": 0}
    if options.get("algorithm", "adaptive") == "adaptive":
        defaults["tau"] = 3
    return WassersteinNMF(**{"n_components": 3} | defaults | options)


@pytest.fixture(scope="module")
def fitted() -> WassersteinNMF:
    """For tests that do not change it."""
    return estimator().fit(counts())


# the noise of a chain depends on the index of its row: a weight of two is a row given twice only up to noise
ON_AVERAGE = {
    f"check_sample_weight_equivalence_on_{kind}_data": "equal up to noise only, see test_weights_are_repeated_rows"
    for kind in ("dense", "sparse")
}


# the checks bring rows without mass, components without use, and more
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few epochs
@pytest.mark.filterwarnings("ignore:X. [0-9]+ rows have no mass:UserWarning")
@pytest.mark.skipif(native.name() == "numpy", reason="takes minutes, and says nothing of the kernels")
@parametrize_with_checks(
    [
        WassersteinNMF(n_components=2, cost="line", max_epochs=1, tau=3),
        WassersteinNMF(n_components=2, cost="line", max_epochs=1, algorithm="paper"),
        WassersteinNMF(n_components=2, cost="line", max_epochs=1, algorithm="d2suite"),
    ],
    expected_failed_checks=lambda _: ON_AVERAGE,
)
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def planted() -> dict[str, WassersteinNMF]:
    """Models of 24 mixtures, with both kinds of update."""
    X, _ = mixtures(24)
    return {
        update: estimator(max_epochs=300, tau=5, batch_size=8, update=update, random_state=1).fit(X)
        for update in ("online", "full")
    }


def positions(components: np.ndarray) -> list[int]:
    """Return the component that is matched to each bump: the largest distance is as small as possible."""
    distances = np.array([[costs(d[None], b[None])[0] for d in components] for b in BUMPS])
    return list(min(itertools.permutations(range(3)), key=lambda order: distances[range(3), order].max()))


@pytest.mark.slow
@pytest.mark.parametrize("update", ["online", "full"])
def test_a_planted_model_is_recovered(planted, update):
    """From a random start: components a tenth as far from theirs as the two nearest bumps are, and the memberships."""
    X, memberships = mixtures(24)
    model = planted[update]
    order = positions(model.components_)
    assert costs(BUMPS[1:2], BUMPS[2:]) > 0.09
    assert (costs(model.components_[order], BUMPS) < 0.009).all()
    assert np.abs(model.memberships_[:, order] - memberships).mean() < 0.1
    assert np.abs(model.transform(X[:6])[:, order] - memberships[:6]).mean() < 0.1


def test_updates_agree_in_quality(planted):
    """Both gain most of what is possible from their first evaluation on, and neither twice what the other leaves."""
    X, _ = mixtures(24)
    left = {}
    for update, model in planted.items():
        first = next(epoch.upper for epoch in model.history_ if np.isfinite(epoch.upper))
        left[update] = costs(model.inverse_transform(model.memberships_), X).mean()
        assert left[update] < 0.25 * first
    assert 0.5 < left["online"] / left["full"] < 2


def test_updates_differ():
    """With several batches; with one there is no difference."""
    X = counts()
    online, full = (estimator(update=update).fit(X) for update in ("online", "full"))
    assert (online.components_ != full.components_).any()
    same_nmf(*(estimator(update=update, batch_size=10, max_epochs=4).fit(X) for update in ("online", "full")))


def test_blobs_on_a_grid():
    """Three blobs on 6 x 6 from the default start, scikit-learn's NMF."""
    positions = np.indices((6, 6)).reshape(2, -1).T
    blobs = np.exp(-((positions - np.array([[[1, 1]], [[1, 4]], [[4, 2]]])) ** 2).sum(axis=2))
    blobs /= blobs.sum(axis=1, keepdims=True)
    X = np.random.default_rng(0).dirichlet(np.full(3, 0.3), 15) @ blobs
    cost = GridCost((6, 6))
    model = WassersteinNMF(3, cost=cost, max_epochs=4, tau=3, random_state=0).fit(X)
    distances = np.array([[ot.emd2(b, d / d.sum(), cost.matrix()) for d in model.components_] for b in blobs])
    assert sorted(distances.argmin(axis=1)) == [0, 1, 2]
    assert distances.min(axis=1).max() < 0.1 * costs(blobs[:1], blobs[1:2], cost.matrix())[0]


def test_threads_do_not_show(fitted):
    same_nmf(estimator(n_jobs=2).fit(counts()), fitted)
    np.testing.assert_array_equal(fitted.transform(counts(3)), fitted.set_params(n_jobs=2).transform(counts(3)))
    fitted.set_params(n_jobs=None)


def test_the_seed_decides(fitted):
    X = counts()
    same_nmf(estimator().fit(X), fitted)
    same_nmf(estimator(random_state=np.random.RandomState(0)).fit(X), fitted)
    assert (estimator(random_state=1).fit(X).components_ != fitted.components_).any()
    with_chance = [estimator(random_state=None, max_epochs=1).fit(X).components_ for _ in range(2)]
    assert (with_chance[0] != with_chance[1]).any()


def test_what_a_fit_leaves(fitted):
    X = counts()
    assert fitted.components_.shape == (3, SIZE)
    assert fitted.memberships_.shape == (10, 3)
    for weights in (fitted.components_, fitted.memberships_):
        assert (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(fitted.usage_, fitted.memberships_.mean(axis=0), atol=2.0**-30)  # a sum of quanta
    # all ten measures are evaluated exactly: the error is that of the model, to the single precision of the costs
    exact = costs(fitted.memberships_ @ fitted.components_, X).mean()
    assert fitted.reconstruction_err_ == pytest.approx(exact, rel=1e-5)


def test_history():
    """An entry an epoch; bounds where the model was evaluated, last at the end, and the best of them is the model's."""
    fitted = estimator(max_epochs=75, tau=20).fit(counts())  # V(z) of shorter chains may be below zero
    history = fitted.history_
    assert len(history) == fitted.n_iter_ == 75
    assert all(isinstance(epoch, Epoch) for epoch in history)
    lower, upper = (np.array([getattr(epoch, name) for epoch in history]) for name in ("lower", "upper"))
    evaluated = np.isfinite(upper)
    np.testing.assert_array_equal(evaluated, np.isfinite(lower))
    assert evaluated[[9, 19, -1]].all()
    assert (lower[evaluated] <= upper[evaluated]).all()
    assert (lower[evaluated] >= 0.99 * upper[evaluated]).all()
    assert fitted.reconstruction_err_ == pytest.approx(upper[evaluated].min(), rel=1e-5)  # before it is rounded
    assert fitted.reconstruction_err_ < 0.8 * upper[evaluated][0]
    for epoch in history:
        assert epoch.estimate > 0
        assert epoch.temperature > 0
        assert epoch.step > 0
        assert epoch.sweeps > 3
    assert (np.diff([epoch.seconds for epoch in history]) > 0).all()


@pytest.mark.parametrize("init", ["nmf", "random"])
def test_the_first_epochs_have_no_spike(init):
    """On noise, where gradients grow tenfold if chains lose the model; V(z) itself has a noise of some per cent."""
    X = np.random.default_rng(0).random((60, 64)) ** 4
    model = WassersteinNMF(5, cost=GridCost((8, 8)), init=init, max_epochs=25, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X)
    estimates = np.array([epoch.estimate for epoch in model.history_])
    assert (estimates <= 1.1 * np.minimum.accumulate(estimates)).all()
    uppers = [epoch.upper for epoch in model.history_ if np.isfinite(epoch.upper)]
    assert model.reconstruction_err_ == pytest.approx(uppers[-1], rel=1e-5)
    assert uppers[-1] < uppers[0] < estimates[0]


def test_noise_on_a_line_does_not_oscillate():
    """All components shift together there; V(z) rises to W, below which chains start, but the exact cost does not."""
    X = np.random.default_rng(0).random((100, 50))
    exact = []

    def record(model: WassersteinNMF) -> None:
        (shard,) = model._run.shards.shards
        P = np.exp(shard.log_memberships) @ np.exp(model._run.log_components)
        exact.append(solve_batch(P, X, model.cost_, normalize=True).value.mean())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        WassersteinNMF(5, cost="line", max_epochs=12, random_state=0, callbacks=[record]).fit(X)
    assert (exact <= 1.3 * np.minimum.accumulate(exact)).all()


def test_the_best_model_is_kept():
    """Also if later ones are worse: a high temperature and long steps make a perfect start worse."""
    X, memberships = mixtures(8)
    model = estimator(init=(BUMPS, memberships), temperature=1.0, step_size=100.0, max_epochs=3).fit(X)
    last = model.history_[-1].upper
    assert last > 10 * model.reconstruction_err_
    exact = costs(model.memberships_ @ model.components_, X).mean()
    assert model.reconstruction_err_ == pytest.approx(exact, rel=1e-5)


class Kill:
    """Saves the model after a given epoch, and interrupts the fit."""

    def __init__(self, epoch: int, path) -> None:
        self.epoch, self.path = epoch, path

    def __call__(self, model: WassersteinNMF) -> None:
        if model.n_iter_ == self.epoch:
            model.save(self.path)
            raise KeyboardInterrupt


@pytest.mark.parametrize("epoch", [1, 4, 7])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"algorithm": "paper", "cost": DenseCost(M)},
        {"init": "nmf", "temperature": 1e-3, "step_size": 5.0, "cost": GridCost((4, 4), power=1), "n_jobs": 2},
    ],
    ids=["default", "paper", "others"],
)
def test_killed_and_resumed_it_comes_to_the_same(tmp_path, options, epoch):
    X = counts()
    whole = estimator(**options).fit(X)
    killed = estimator(**options, callbacks=[Kill(epoch, tmp_path / "model.npz")])
    with pytest.raises(KeyboardInterrupt):
        killed.fit(X)
    assert killed.n_iter_ == epoch
    loaded = WassersteinNMF.load(tmp_path / "model.npz")
    same_nmf(loaded, killed)
    assert loaded.resume(X) is loaded
    same_nmf(loaded, whole)
    if epoch == 4:  # the model that was interrupted can be resumed as well
        same_nmf(killed.set_params(callbacks=[]).resume(sparse.csr_array(X)), whole)


def interrupt_chains(patch, now):
    """Raise KeyboardInterrupt in a call that advances chains, if ``now()``."""
    for module in (sampler, chains.mixtures):

        def interrupted(*args, run=module.run, **options):
            if now():
                raise KeyboardInterrupt
            return run(*args, **options)

        patch.setattr(module, "run", interrupted)


def test_an_interrupt_within_an_epoch_leaves_the_best_model(monkeypatch):
    """In the second of three batches of the sixteenth."""
    X, calls = counts(), itertools.count()
    model = estimator(max_epochs=100)
    with monkeypatch.context() as patch:
        interrupt_chains(patch, lambda: getattr(model, "n_iter_", 0) == 15 and next(calls) == 1)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X)
    assert model.n_iter_ == 15
    exact = costs(model.memberships_ @ model.components_, X).mean()
    assert model.reconstruction_err_ == pytest.approx(exact, rel=1e-5)
    error = model.reconstruction_err_
    model.set_params(max_epochs=18).resume(X)
    assert model.n_iter_ == 18
    assert model.reconstruction_err_ <= error


def test_a_fit_may_be_prolonged():
    X = counts()
    model = estimator(max_epochs=3).fit(X)
    early = model.reconstruction_err_
    seconds = model.history_[-1].seconds
    model.set_params(max_epochs=60).resume(X)
    assert model.n_iter_ == len(model.history_) == 60
    assert model.reconstruction_err_ < early
    assert model.history_[3].seconds > seconds
    with pytest.raises(ValueError, match="X: differs from the data of the fit"):
        model.resume(counts(seed=1))
    with pytest.raises(ValueError, match="X: differs from the data of the fit"):
        model.resume(X[:-1])
    with pytest.raises(NotFittedError):
        estimator().resume(X)
    with pytest.raises(ValueError, match="resume: this model has no fit to continue"):
        estimator().partial_fit(X).resume(X)


@pytest.fixture(scope="module")
def long() -> WassersteinNMF:
    return estimator(max_epochs=40).fit(counts())


@pytest.mark.parametrize("epochs", range(1, 40, 2))
def test_a_fit_in_two_parts_is_one_longer_fit(epochs, long):
    model = estimator(max_epochs=epochs).fit(counts())
    assert np.isfinite(model.history_[-1].upper)
    assert model.reconstruction_err_ == pytest.approx(
        costs(model.memberships_ @ model.components_, counts()).mean(), rel=1e-5
    )
    same_nmf(model.set_params(max_epochs=40).resume(counts()), long)


@pytest.mark.parametrize("seed", range(20))
def test_an_interrupted_fit_that_is_resumed_is_a_fit_without_an_interrupt(seed, long, monkeypatch):
    """In a call of the sampler, in an epoch or in an exact evaluation; also where the second attempt is interrupted."""
    model, calls = estimator(max_epochs=40), itertools.count()
    first, second = np.sort(np.random.default_rng(seed).integers(25, 150, 2))
    with monkeypatch.context() as patch:
        interrupt_chains(patch, lambda: next(calls) in (first, second))
        with pytest.raises(KeyboardInterrupt):
            model.fit(counts())
        if first != second:
            with pytest.raises(KeyboardInterrupt):
                model.resume(counts())
    assert model.n_iter_ < 40
    same_nmf(model.resume(counts()), long)


def test_an_interrupt_before_an_epoch_is_recorded_or_in_a_roll_back(long, monkeypatch, tmp_path):
    """The state returns to the last recorded epoch, at the latest when the fit is saved or resumed."""
    model = estimator(max_epochs=40)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gibbsot.sampling.annealing.adaptive.AdaptiveCooling.update", interrupted)
        patch.setattr("gibbsot.models.nmf.files.FitState.roll_back", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(counts())
    model.save(tmp_path / "model.npz")
    same_nmf(WassersteinNMF.load(tmp_path / "model.npz").resume(counts()), long)
    same_nmf(model.resume(counts()), long)


def test_a_fit_says_whether_it_has_converged():
    X = counts()
    message = r"still fell at the end of 12 epochs; to go on: model.max_epochs = 60; model.resume\(X\)"
    with pytest.warns(ConvergenceWarning, match=message):
        model = estimator(max_epochs=12, tau=10, random_state=1).fit(X)
    assert not model.converged_
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = estimator(n_components=1, max_epochs=2000, tol=0.05, tau=1).fit(counts(3))
    assert model.converged_
    assert model.n_iter_ < 2000
    model.partial_fit(X)
    assert not hasattr(model, "converged_")


def test_a_model_that_is_the_start_says_so():
    """A start that fits perfectly, but for its smoothing, becomes worse first."""
    X = counts()
    with pytest.warns(ConvergenceWarning, match="max_epochs: no model of 1 epochs was better than the start"):
        model = estimator(n_components=10, init=(X, np.eye(10)), max_epochs=1).fit(X)
    assert np.isfinite(model.reconstruction_err_)
    exact = costs(model.memberships_ @ model.components_, X).mean()
    assert model.reconstruction_err_ == pytest.approx(exact, rel=1e-4)
    assert model.reconstruction_err_ < model.history_[0].upper


@pytest.mark.parametrize("seed", [0, 1])
def test_steps_that_are_too_long_are_damped(seed):
    """Noise in few components, where the default steps overshoot: no evaluation is far off, and the result improves."""
    X = np.random.default_rng(seed).random((60, 64)) ** 4
    model = WassersteinNMF(5, cost=GridCost((8, 8)), max_epochs=30, random_state=seed).fit(X)
    values = np.array([epoch.upper for epoch in model.history_ if np.isfinite(epoch.upper)])
    assert values.max() < 1.3 * values.min()
    assert model.reconstruction_err_ < values[0]


@pytest.mark.parametrize("X", [counts(3), np.tile(counts(1), (3, 1))], ids=["different", "the same"])
def test_it_stops_by_itself(X):
    """When nothing more is gained, also where nothing is left to gain."""
    model = estimator(n_components=1, max_epochs=2000, tol=0.05, tau=1).fit(X)
    assert 3 < model.n_iter_ < 2000
    assert np.isfinite(model.history_[-1].upper)
    best = min(epoch.upper for epoch in model.history_ if np.isfinite(epoch.upper))
    assert model.reconstruction_err_ <= best
    epochs = model.n_iter_
    assert model.resume(X).n_iter_ == epochs
    assert model.set_params(tol=0.0, max_epochs=epochs + 2).resume(X).n_iter_ >= epochs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saved_and_loaded(tmp_path, dtype):
    X = counts().astype(dtype)
    options = {"cost": DenseCost(M), "step_size": 4.0, "tol": 0.01, "verbose": True, "max_epochs": 2}
    model = estimator(**options).fit(X)
    model.save(tmp_path / "model.npz")
    loaded = WassersteinNMF.load(tmp_path / "model.npz")
    same_nmf(loaded, model)
    assert loaded.components_.dtype == loaded.memberships_.dtype == dtype
    np.testing.assert_array_equal(loaded.transform(X[:3]), model.transform(X[:3]))
    kept = {name: value for name, value in model.get_params().items() if name not in ("cost", "step_size")}
    found = loaded.get_params()
    assert {name: found[name] for name in kept} == kept
    assert found["step_size"] == (4.0, 4.0)
    np.testing.assert_array_equal(found["cost"].matrix(), M)
    loaded.save(tmp_path / "again.npz")
    with np.load(tmp_path / "model.npz") as a, np.load(tmp_path / "again.npz") as b:
        assert sorted(a.files) == sorted(b.files)
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize("before", ["nothing", "fit"])
def test_a_stream_saved_and_loaded_goes_on(tmp_path, before):
    """With the components that the stream came to, also where a fit was before it."""
    model = estimator(max_epochs=2)
    if before == "fit":
        model.fit(counts())
    model.partial_fit(counts(6, seed=1))
    model.save(tmp_path / "model.npz")
    loaded = WassersteinNMF.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.components_, model.components_)
    for each in (loaded, model):
        each.partial_fit(counts(6, seed=2))
    np.testing.assert_array_equal(loaded.components_, model.components_)


def test_a_fit_forgets_what_was_before(fitted):
    model = estimator().partial_fit(counts(6, seed=1))
    same_nmf(model.fit(counts()), fitted)
    one, two = model.partial_fit(counts(6, seed=2)), pickle.loads(pickle.dumps(fitted)).partial_fit(counts(6, seed=2))
    np.testing.assert_array_equal(one.components_, two.components_)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch, fitted):
    path = tmp_path / "model.npz"
    fitted.save(path)
    content = path.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            estimator(max_epochs=1).fit(counts()).save(path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["model.npz"]
    with pytest.raises(NotFittedError):
        estimator().save(path)
    assert path.read_bytes() == content


def test_damaged_and_foreign_files(tmp_path, fitted):
    path = tmp_path / "model.npz"
    fitted.save(path)
    content = path.read_bytes()
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    for length in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"path: .*model\.npz is damaged or not a gibbsot file"):
            WassersteinNMF.load(path)
    for name in arrays.keys() - {"format"}:
        np.savez(path, **{key: x for key, x in arrays.items() if key != name})
        # parameters have defaults; weights of a fit, the spacing of a cost and the data of shards are optional
        if not name.startswith("parameter_") and not name.endswith(("cost_spacing", "run_weights", "oracle_weights")):
            with pytest.raises(ValueError, match=r"path: .*model\.npz is incomplete"):
                WassersteinNMF.load(path)
    images = WassersteinNMF(2, cost=GridCost((2, 3)), max_epochs=1, random_state=0).fit(np.eye(6))
    images.save(path)
    for axis in ("cost_axis0", "cost_axis1"):
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files if name != axis}
        np.savez(tmp_path / "other.npz", **arrays)
        with pytest.raises(ValueError, match=r"path: .*other\.npz is incomplete"):
            WassersteinNMF.load(tmp_path / "other.npz")
    Oracle(GridCost(3), np.eye(3)).save(path)
    with pytest.raises(ValueError, match="holds 'gibbsot oracle 2'; expected 'gibbsot nmf 1'"):
        WassersteinNMF.load(path)
    with pytest.raises(FileNotFoundError):
        WassersteinNMF.load(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("init", ["random", "nmf"])
def test_sparse_and_dense_data_are_the_same(init):
    """Up to rounding, as the order of sums differs; bit-identical where sums are exact, from a given start."""
    X = counts()
    dense = estimator(init=init).fit(X)
    for form in (sparse.csr_array, sparse.csc_matrix):
        model = estimator(init=init).fit(form(X))
        np.testing.assert_allclose(model.components_, dense.components_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(model.memberships_, dense.memberships_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.transform(sparse.csr_array(X[:3])), dense.transform(X[:3]), rtol=1e-9, atol=1e-12)
    start = (BUMPS[:, ::-1], np.ones((10, 3)))
    same_nmf(estimator(init=start).fit(X), estimator(init=start).fit(sparse.csr_array(X)))


def test_single_precision(fitted):
    """It is kept, and the model is the same to that precision."""
    X = counts().astype(np.float32)
    model = estimator().fit(X)
    assert model.components_.dtype == model.memberships_.dtype == np.float32
    np.testing.assert_allclose(model.components_, fitted.components_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.memberships_, fitted.memberships_, rtol=1e-5, atol=1e-7)
    memberships = model.transform(X[:3])
    assert memberships.dtype == model.inverse_transform(memberships).dtype == np.float32
    np.testing.assert_allclose(memberships, fitted.transform(counts()[:3]), atol=1e-4)
    assert model.score(X[:3]) == pytest.approx(fitted.score(counts()[:3]), rel=1e-3)
    assert estimator(max_epochs=1).partial_fit(X).components_.dtype == np.float32
    assert estimator(max_epochs=1).fit(X.astype(int)).components_.dtype == np.float64


def test_only_shares_matter(fitted):
    """Rows are normalised, in every method."""
    X = counts()
    scaled = X * 2.0 ** np.arange(-5, 5)[:, None]
    same_nmf(estimator(init=(BUMPS, np.ones((10, 3)))).fit(X), estimator(init=(BUMPS, np.ones((10, 3)))).fit(4 * X))
    np.testing.assert_array_equal(fitted.transform(scaled[:3]), fitted.transform(X[:3]))
    assert fitted.score(scaled[:3]) == pytest.approx(fitted.score(X[:3]), rel=1e-12)
    shares = X / X.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(estimator().fit(shares).components_, fitted.components_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_rows_without_mass(form):
    """They are pointed out, belong to every component alike, and do not change the others."""
    X = counts()
    holes = np.insert(X, [0, 4], 0, axis=0)
    start = (BUMPS, np.ones((10, 3)))
    model = estimator(init=start, max_epochs=3).fit(X)
    with pytest.warns(UserWarning, match="X: 2 rows have no mass, the first is row 0"):
        other = estimator(init=start, max_epochs=3).fit(form(holes))
    np.testing.assert_array_equal(other.components_, model.components_)
    np.testing.assert_array_equal(np.delete(other.memberships_, [0, 5], axis=0), model.memberships_)
    np.testing.assert_allclose(other.memberships_[[0, 5]], 1 / 3)
    with pytest.warns(UserWarning, match="X: 1 rows have no mass"):
        memberships = model.transform(form(holes[:3]))
    np.testing.assert_allclose(memberships[0], 1 / 3)
    np.testing.assert_array_equal(memberships[1:], model.transform(X[:2]))
    with pytest.warns(UserWarning, match="X: 1 rows have no mass"):
        assert model.score(form(holes[:3])) == model.score(X[:2])
    with pytest.warns(UserWarning, match="X: 2 rows have no mass"):
        other.set_params(max_epochs=5).resume(form(holes))
    same_components = model.set_params(max_epochs=5).resume(X).components_
    np.testing.assert_array_equal(other.components_, same_components)
    with pytest.raises(ValueError, match="X: has no mass in any row"):
        estimator().fit(form(0 * X))


def test_scores(fitted):
    """Minus the exact mean cost."""
    X = counts(5, seed=3)
    wanted = costs(fitted.inverse_transform(fitted.transform(X)), X).mean()
    assert -fitted.score(X) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("limit", ["max_seconds", "max_memory"])
@pytest.mark.parametrize("as_list", [False, True])
def test_a_budget_of_memberships_ends_with_the_best_so_far(monkeypatch, limit, as_list):
    """One warning for all batches and shards."""
    monkeypatch.setattr(free_measure.FreeMeasure, "small", False)
    rng = np.random.default_rng(7)
    X, cost = rng.dirichlet(np.full(36, 0.3), size=6), GridCost((6, 6))
    model = estimator(cost=cost, batch_size=2).fit(X)
    with pytest.warns(ConvergenceWarning, match=r"[56] of 6 memberships ended with an open gap") as caught:
        W = model.set_params(**{limit: 1e-9}).transform([X[:3], X[3:]] if as_list else X)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    np.testing.assert_allclose(W.sum(axis=1), 1)
    np.testing.assert_array_equal(
        model.set_params(**{limit: 1e12}).transform(X), model.set_params(**{limit: None}).transform(X)
    )
    with pytest.raises(ValueError, match=f"{limit}: expected a positive number"):
        model.set_params(**{limit: 0}).transform(X)


def test_the_score_of_a_budget_is_a_lower_bound():
    X = datasets.mnist_fives(4)
    model = estimator(cost=GridCost((28, 28)), max_epochs=1).fit(X)
    exact = model.score(X)
    with pytest.warns(ConvergenceWarning, match=r"4 of 4 memberships .* time or memory allowed.*lower bound") as caught:
        early = model.set_params(max_seconds=1e-9).score(X)
    assert len(caught) == 1
    assert -1 < early < exact
    with pytest.raises(ValueError, match="max_memory: this takes about"):
        model.set_params(max_seconds=None, max_memory=100.0).score(X)


def test_time_ends_a_fit_with_an_epoch():
    """It continues as if it had not ended."""
    X, whole = counts(), estimator(max_epochs=3).fit(counts())
    with pytest.warns(ConvergenceWarning, match="the time was spent after 1 epochs; resume continues the fit"):
        model = estimator(max_epochs=3, max_seconds=1e-9).fit(X)
    assert model.n_iter_ == 1
    assert not model.converged_
    same_nmf(model.set_params(max_seconds=None).resume(X), whole)


def lonely(components: np.ndarray, **options) -> WassersteinNMF:
    """A model with components that are given."""
    model = estimator(max_epochs=1, init=(components, np.ones((6, len(components)))), **options).fit(counts(6))
    model.components_ = components
    return model


def test_memberships_where_least_squares_sees_nothing():
    """Points beside a component that does not overlap with them; the broad one does, and has all of least squares."""
    broad = np.full(SIZE, 1 / SIZE)
    components = np.array([broad, np.eye(SIZE)[5], np.eye(SIZE)[11]])
    X = np.vstack([np.eye(SIZE)[[6, 10, 4]], broad])
    squares = np.stack([nnls(components.T, x)[0] for x in X])
    np.testing.assert_allclose(squares[:3, 1:], 0, atol=1e-12)
    memberships = lonely(components).transform(X)
    np.testing.assert_allclose(memberships.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(memberships, [[0, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]], atol=0.02)
    np.testing.assert_allclose(costs(memberships[:3] @ components, X[:3]), 1 / SIZE**2, rtol=0.05)


def test_memberships_are_never_worse_than_least_squares():
    """In exact cost, but for the smoothing of that start: W is convex, and 2 % of other components cost so much."""
    X = counts(8, seed=5)
    memberships = lonely(BUMPS, tau=1).transform(X)
    squares = np.stack([nnls(BUMPS.T, x / x.sum())[0] for x in X])
    squares /= squares.sum(axis=1, keepdims=True)
    even = costs(np.tile(BUMPS.mean(axis=0), (8, 1)), X)
    assert (costs(memberships @ BUMPS, X) <= 0.98 * costs(squares @ BUMPS, X) + 0.02 * even).all()
    np.testing.assert_allclose(memberships.sum(axis=1), 1, rtol=1e-12)


def test_inverse_transform(fitted):
    W = np.random.default_rng(0).dirichlet(np.ones(3), 4)
    np.testing.assert_array_equal(fitted.inverse_transform(W), W @ fitted.components_)
    np.testing.assert_array_equal(fitted.inverse_transform(np.eye(3)), fitted.components_)
    for bad in (W[:, 1:], W[0], W[None]):
        with pytest.raises(ValueError, match=r"W: expected shape \(n, 3\), got"):
            fitted.inverse_transform(bad)
    assert list(fitted.get_feature_names_out()) == [f"wassersteinnmf{k}" for k in range(3)]


def test_a_stream_is_learnt_from():
    """Batches that never come again: held-out measures are represented far better than after the first batch."""
    held_out, _ = mixtures(4, seed=100)
    model = estimator(step_size=(3.0, 1.0), tau=10)
    scores = []
    for k in range(5):
        assert model.partial_fit(mixtures(8, seed=k)[0]) is model
        if k in (0, 4):
            scores.append(-model.score(held_out))
    assert scores[1] < 0.25 * scores[0]
    assert model.n_seen_ == 40
    assert model.components_.shape == (3, SIZE)
    np.testing.assert_allclose(model.components_.sum(axis=1), 1, rtol=1e-12)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(np.ones((4, SIZE - 1)))


def test_a_stream_goes_on_from_a_fit(fitted):
    """And does not spoil it."""
    held_out, _ = mixtures(4, seed=100)
    model = pickle.loads(pickle.dumps(fitted)).set_params(step_size=(3.0, 1.0), tau=5)
    before = -model.score(held_out)
    for k in range(2):
        model.partial_fit(mixtures(10, seed=k)[0])
    assert -model.score(held_out) < before


def test_temperatures():
    """A number is that of the first epoch; "auto" is in units of the cost; the paper's decay is fixed."""
    X = counts()
    assert estimator(max_epochs=1, temperature=0.02).fit(X).history_[0].temperature == pytest.approx(0.02)
    paper = estimator(algorithm="paper", temperature=0.02, max_epochs=4).fit(X)
    support = (X > 0).sum() / len(X)
    T = [0.02]
    for _ in range(3):
        T.append(schedules.epoch_decay(T[-1], SIZE, support))
    np.testing.assert_allclose([epoch.temperature for epoch in paper.history_], T, rtol=1e-12)
    assert T[-1] < 0.6 * T[0]
    assert {epoch.step for epoch in paper.history_} == {1.0}
    for algorithm in ("adaptive", "paper"):
        one, eight = (
            estimator(algorithm=algorithm, cost=GridCost(SIZE, spacing=spacing), max_epochs=6).fit(X)
            for spacing in (1.0, 2.0**1.5)
        )
        # to single precision; the sampler itself has no unit
        for a, b in zip(one.history_, eight.history_, strict=True):
            assert b.temperature == pytest.approx(8 * a.temperature, rel=1e-4)
        np.testing.assert_allclose(one.components_, eight.components_, rtol=1e-3, atol=1e-5)


def test_the_papers_cooling_ends_at_the_lowest_temperature():
    X = np.random.default_rng(0).random((4, 3))
    model = WassersteinNMF(2, cost="line", algorithm="paper", random_state=0).fit(X)
    assert model.n_iter_ == 200
    assert model.history_[-1].temperature == model.history_[-2].temperature == model._run.control.T_min


@pytest.mark.parametrize("algorithm", ["paper", "d2suite"])
def test_start_and_steps_of_the_papers_algorithm(algorithm):
    """Steps next to zero leave the start that is given, and each of the two steps has a factor of its own."""
    X, memberships = mixtures(6)
    start = np.roll(BUMPS, 1, axis=1), memberships
    still = estimator(algorithm=algorithm, init=start, step_size=1e-12, max_epochs=2).fit(X)
    np.testing.assert_allclose(still.components_, start[0], atol=0.02)  # the smoothing of the start
    np.testing.assert_allclose(still.memberships_, memberships, atol=0.02)
    moved = estimator(algorithm=algorithm, init=start, step_size=(1e-12, 2.0), max_epochs=2).fit(X)._run
    np.testing.assert_allclose(np.exp(moved.log_components), start[0], atol=0.02)
    assert np.abs(np.exp(moved.shards.shards[0].log_memberships) - memberships).max() > 0.03
    plain, random = (
        WassersteinNMF(3, cost="line", algorithm=algorithm, init=init, max_epochs=1, step_size=1e-12, random_state=0)
        for init in ("nmf", None)
    )
    assert plain.fit(X).reconstruction_err_ < random.fit(X).reconstruction_err_ / 2


@pytest.mark.parametrize("algorithm", ["paper", "d2suite"])
def test_the_papers_algorithm_and_the_other_entrances(algorithm):
    """Its own values may be given; streams and a change of the algorithm are refused."""
    X = counts()
    given = {"init": "random", "step_size": 2, "tau": 5}
    same_nmf(*(estimator(algorithm=algorithm, **options).fit(X) for options in ({}, given)))
    with pytest.raises(AttributeError) as refused:
        estimator(algorithm=algorithm).partial_fit(X)
    assert f"algorithm: '{algorithm}' needs all measures at once" in str(refused.value.__cause__)
    with pytest.raises(ValueError, match=f"algorithm: expected that of the fit, 'adaptive', got '{algorithm}'"):
        estimator(init=None).fit(X).set_params(algorithm=algorithm, tau=None).resume(X)


def test_a_fit_that_became_worse_says_so():
    """The paper's cooling runs on until its chains cannot follow."""
    X = counts()
    with pytest.warns(
        ConvergenceWarning, match="max_epochs: the cost was .* whose model is returned, and rose"
    ) as seen:
        model = estimator(algorithm="paper", max_epochs=60).fit(X)
    costs = [epoch.upper for epoch in model.history_]
    best = 1 + int(np.nanargmin(costs))
    (text,) = [str(one.message) for one in seen if "rose" in str(one.message)]
    assert f"the cost was {np.nanmin(costs):.3g} after {best} epochs" in text
    assert text.endswith(f"and rose to {costs[-1]:.3g} after 60")
    assert costs[-1] > 1.05 * np.nanmin(costs)


@pytest.mark.parametrize("weights", [None, np.array([2.0, 1.0, 3.0, 0.0])], ids=["plain", "weights"])
def test_an_epoch_of_the_paper_is_what_is_printed(weights):
    """An epoch, measure by measure, written down again: chains, components, memberships, temperature.

    With the fixed-point numbers of the library, as chains amplify rounding.
    """
    X, K, T = counts(4), 3, 2e-3
    cost = GridCost(SIZE, dtype=np.float32)
    model = estimator(algorithm="paper", cost=cost, temperature=T, batch_size=1, max_epochs=1)
    model.fit(X, sample_weight=weights)
    share = weights if weights is None else weights / weights.max()
    D, W = initial_factors(sparse.csr_array(X / X.sum(axis=1, keepdims=True)), K, "random", model.seed_, len(X), share)
    chains = TargetChains(cost, X, tau=5, stride=5, rng=model.seed_)
    gamma, quantum = 2 / M.mean(), fixed_point.Precision.of(cost, len(X)).potential
    descents = [AcceleratedMirrorDescent(row[None]) for row in W]
    for i, descent in enumerate(descents):
        beta = descent.x.copy()
        _, U, _ = chains(fixed_point.mixtures(beta, fixed_point.components(D)), T, [i])
        U = fixed_point.Fixed.of(U, quantum).value
        descent.step(U @ D.T, gamma)
        D = D * np.exp(-gamma * (1 if weights is None else weights[i]) * beta.T * U)
        D /= D.sum(axis=1, keepdims=True)
    T *= 1 - np.sqrt(1 / (SIZE + (X > 0).sum() / len(X)))
    run = model._run
    np.testing.assert_allclose(np.exp(run.log_components), D, rtol=1e-3, atol=1e-6)
    memberships = np.exp(run.shards.shards[0].log_memberships)
    np.testing.assert_allclose(memberships, np.concatenate([descent.x for descent in descents]), rtol=1e-3, atol=1e-6)
    assert run.control.T * run.units.unit == pytest.approx(T)


def test_an_epoch_of_the_authors_program():
    """Chains of a batch that stop together, and steps of three times the length, written down again."""
    X, K, T = counts(4), 3, 2e-3
    cost = GridCost(SIZE, dtype=np.float32)
    model = estimator(algorithm="d2suite", cost=cost, temperature=T, batch_size=2, max_epochs=1).fit(X)
    D, W = initial_factors(sparse.csr_array(X / X.sum(axis=1, keepdims=True)), K, "random", model.seed_, len(X))
    chains = TargetChains(cost, X, tau=5, max_sweeps=5, rng=model.seed_)
    gamma, quantum, sweeps = 2 / M.mean(), fixed_point.Precision.of(cost, len(X)).potential, 0
    found = []
    for rows in ([0, 1], [2, 3]):
        beta, V = W[rows] / W[rows].sum(axis=1, keepdims=True), [0.0]
        while len(V) < 2 or V[-1] - V[-2] > 1e-3 * V[-1]:
            values, U, _ = chains(fixed_point.mixtures(beta, fixed_point.components(D)), T, rows)
            V.append(values.sum())
            sweeps += 10
        U = fixed_point.Fixed.of(U, quantum).value
        y, z = (beta * np.exp(-step * gamma * U @ D.T) for step in (3, 1 / 3))
        y, z = (x / x.sum(axis=1, keepdims=True) for x in (y, z))
        found.append(3 / 4 * z + 1 / 4 * y)
        D = D * np.exp(-gamma * beta.T @ U)
        D /= D.sum(axis=1, keepdims=True)
    assert model.history_[0].sweeps == sweeps / len(X) > 5
    np.testing.assert_allclose(np.exp(model._run.log_components), D, rtol=1e-3, atol=1e-6)
    memberships = np.exp(model._run.shards.shards[0].log_memberships)
    np.testing.assert_allclose(memberships, np.concatenate(found), rtol=1e-3, atol=1e-6)


def test_the_authors_program_with_batches_across_shards():
    """Chains of a batch are tested together wherever they are; a fit that is saved continues as one that is not."""
    X, options = counts(), {"algorithm": "d2suite", "tau": 3, "batch_size": 4}
    one = estimator(**options, max_epochs=30).fit(X)
    same_nmf(one, estimator(**options, max_epochs=30, n_jobs=2).fit([X[:3], X[3:5], X[5:]]))
    half = pickle.loads(pickle.dumps(estimator(**options, max_epochs=22).fit(X)))
    same_nmf(one, half.set_params(max_epochs=30).resume(X))
    evaluated = [k for k, epoch in enumerate(one.history_, 1) if np.isfinite(epoch.upper)]
    assert evaluated == [1, 21, 30]


@pytest.mark.parametrize(("T", "step"), [(1e-6, 2.0), (1e-2, 0.1)], ids=["lagging", "following"])
def test_the_temperature_of_the_authors_program_waits_for_the_chains(T, step):
    """It falls after epochs whose V(z) exceeds 0.9 of the last exact cost: here the sample is all of the data."""
    X = counts()
    model = estimator(algorithm="d2suite", max_epochs=40, temperature=T, step_size=step).fit(X)
    factor, objective, cooled = 1 - np.sqrt(1 / (SIZE + (X > 0).sum() / len(X))), 0.0, []
    for before, after in itertools.pairwise(model.history_):
        cooled.append(after.temperature < before.temperature)
        assert after.temperature == pytest.approx(before.temperature * (factor if cooled[-1] else 1))
        assert cooled[-1] == (before.estimate > 0.9 * objective)
        objective = before.upper if np.isfinite(before.upper) else objective
    # chains that lag cool once, before the first evaluation
    assert cooled[0]
    assert sum(cooled) == 1 if T == 1e-6 else 5 < sum(cooled) < 35


def test_deviation():
    assert _deviation(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[1.0, 3.0], [5.0, 9.0]])) == 0.5


@pytest.mark.parametrize("options", [{"n_components": 99}, {"cost": np.eye(2)}, {"init": (np.eye(2), np.eye(2))}])
def test_a_fit_that_cannot_start_closes_its_shards(options, monkeypatch):
    closed = []
    monkeypatch.setattr(LocalShards, "close", lambda shards: closed.append(shards))
    with pytest.raises(ValueError, match=r"n_components|cost|init"):
        estimator(**options).fit(counts())
    assert len(closed) == 1


def test_steps_are_of_components_and_memberships():
    """Next to no step of the one leaves it where it was, while the other moves."""
    X, memberships = mixtures(6)
    start = (np.roll(BUMPS, 1, axis=1), memberships)
    still = estimator(init=start, step_size=(1e-12, 2.0), max_epochs=2)
    moved = estimator(init=start, step_size=(2.0, 1e-12), max_epochs=2)
    for model, name in ((still, "log_components"), (moved, "log_memberships")):
        model.fit(X)
        owners = {"log_components": model._run, "log_memberships": model._run.shards.shards[0]}
        runs = {key: np.exp(getattr(owner, key)) for key, owner in owners.items()}
        near = {
            "log_components": np.abs(runs["log_components"] - start[0]).max(),
            "log_memberships": np.abs(runs["log_memberships"] - start[1]).max(),
        }
        other = ({"log_components", "log_memberships"} - {name}).pop()
        assert near[name] < 0.02  # the smoothing of the start
        assert near[other] > 0.03


def test_starts():
    """Arrays are taken as they are, but for a little smoothing; scikit-learn's NMF is better than chance."""
    X, memberships = mixtures(8)
    given = estimator(init=(5 * BUMPS, 3 * memberships), max_epochs=1).fit(X)
    assert given.reconstruction_err_ < 0.002
    for update in ("online", "full"):
        chance, usual = (estimator(init=init, max_epochs=1, update=update).fit(X) for init in ("random", "nmf"))
        assert usual.reconstruction_err_ < 0.5 * chance.reconstruction_err_


def test_callbacks_see_every_epoch_and_may_stop():
    seen = []

    def watch(model: WassersteinNMF) -> str:
        assert model.components_.shape == (3, SIZE)
        assert len(model.history_) == model.n_iter_
        seen.append(model.n_iter_)
        return "not True"

    estimator(max_epochs=3, callbacks=[watch]).fit(counts())
    assert seen == [1, 2, 3]
    stopped = estimator(callbacks=[watch, lambda model: model.n_iter_ == 2, watch]).fit(counts())
    assert stopped.n_iter_ == 2
    assert seen == [1, 2, 3, 1, 1, 2, 2]


def test_no_bar_without_a_terminal(capsys):
    estimator(verbose=True, max_epochs=2).fit(counts())
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few epochs
@pytest.mark.parametrize("seed", range(5))
def test_weights_are_repeated_rows(seed):
    """A weight of two has the objective of a row that is given twice.

    The noise differs, so with several components fits may end in different minima; with one there is one minimum.
    """
    X, weights = np.concatenate([datasets.digits(0)[:10], datasets.digits(1)[:10]]), np.repeat([1, 2], 10)
    grid = GridCost((8, 8))
    model = WassersteinNMF(1, cost=grid, max_epochs=400, tau=60, tol=0.0, random_state=seed)
    objectives = []
    for given, sample_weight in ((X, weights), (np.repeat(X, weights, axis=0), None)):
        D = model.fit(given, sample_weight=sample_weight).components_
        objectives.append(np.average(costs(np.repeat(D, 20, axis=0), X, grid.matrix()), weights=weights))
    assert objectives[0] == pytest.approx(objectives[1], rel=0.01)
    plain = model.set_params(max_epochs=60).fit(X).components_
    assert np.average(costs(np.repeat(plain, 20, axis=0), X, grid.matrix()), weights=weights) > 1.05 * objectives[1]


def test_weights_of_rows(tmp_path):
    """Only their shares matter; one is the default, also in shards; without a weight a row changes no component."""
    X = counts()
    plain = estimator().fit(X)
    same_nmf(estimator().fit(X, sample_weight=np.full(10, 3.0)), plain)
    weights = np.arange(10.0)
    model = estimator().fit(X, sample_weight=weights)
    same_nmf(estimator().fit([X[:3], X[3:4], X[4:]], sample_weight=weights), model)
    np.testing.assert_allclose(model.usage_, weights @ model.memberships_ / weights.sum(), atol=1e-6)
    other = X.copy()
    other[0] = np.roll(X[0], 5)
    one, two = (estimator(tau=10, max_epochs=10).fit(rows, sample_weight=weights) for rows in (X, other))
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.memberships_[1:], two.memberships_[1:])
    half = estimator(max_epochs=4).fit(X, sample_weight=weights)
    half.save(tmp_path / "model.npz")
    same_nmf(WassersteinNMF.load(tmp_path / "model.npz").set_params(max_epochs=8).resume(X), model)
    X[2] = 0
    with pytest.warns(UserWarning, match="no mass"):
        assert np.isfinite(estimator().fit(X, sample_weight=weights).reconstruction_err_)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (np.ones(9), ValueError, "sample_weight: "),
        (-np.ones(10), ValueError, "sample_weight: has negative"),
        (np.zeros(10), ValueError, "sample_weight: is zero for every measure with mass"),
        (np.full(10, np.nan), ValueError, "sample_weight: has NaN"),
        (["a"] * 10, TypeError, "sample_weight: expected real numbers"),
    ],
)
def test_bad_weights(weights, error, message):
    with pytest.raises(error, match=message):
        estimator().fit(counts(), sample_weight=weights)


def test_components_without_use_are_reported():
    """One at the far end, with data that have nothing there."""
    X = np.random.default_rng(0).multinomial(300, BUMPS[0], 6)
    start = (np.array([BUMPS[0], np.eye(SIZE)[SIZE - 1]]), np.tile([1.0, 0.0], (6, 1)))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = estimator(n_components=2, init=start, max_epochs=30).fit(X)
    assert any("components 1 are hardly used; try fewer n_components" in str(one.message) for one in found)
    assert model.usage_[1] < 5e-4


def test_costs_of_every_kind():
    """A matrix, as it is or as a cost, gives what the grid gives, to single precision."""
    X = counts()
    grid = estimator(cost=GridCost(SIZE), max_epochs=4).fit(X)
    same_nmf(estimator(cost="line", max_epochs=4).fit(X), grid)
    dense = estimator(cost=DenseCost(M), max_epochs=4).fit(X)
    same_nmf(estimator(cost=M, max_epochs=4).fit(X), dense)
    same_nmf(estimator(cost=M.tolist(), max_epochs=4).fit(X), dense)
    np.testing.assert_allclose(dense.components_, grid.components_, rtol=1e-3, atol=1e-5)
    huge = estimator(cost=1e45 * M, max_epochs=2).fit(X)  # more than single precision holds
    assert np.isfinite(huge.components_).all()
    assert huge.reconstruction_err_ > 1e38


@pytest.mark.filterwarnings("ignore:.*memberships ended with an open gap")  # of a value of the size of rounding
@pytest.mark.parametrize(("n", "K"), [(1, 1), (4, 1), (4, 2), (4, 4)])
def test_measures_that_fit_perfectly(n, K):
    """All the same: nothing to gain, nothing to divide by. The smoothing of the start costs a little."""
    X = np.tile(counts(1), (n, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = estimator(n_components=K, init="nmf", max_epochs=4).fit(X)
    assert 0 <= model.reconstruction_err_ < 1e-3
    np.testing.assert_allclose(model.components_.sum(axis=1), 1, rtol=1e-6)
    assert np.isfinite(model.transform(X)).all()
    assert -1e-3 < model.score(X) <= 0


def test_points_of_one_bin():
    """A grid of one point: there is nowhere to go."""
    model = estimator(n_components=1, max_epochs=2).fit(np.ones((3, 1)))
    np.testing.assert_allclose(model.components_, 1)
    assert model.reconstruction_err_ == pytest.approx(0, abs=1e-12)


def damaged(value: float) -> np.ndarray:
    X = counts()
    X[2, 3] = value
    return X


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (damaged(-1), ValueError, "Negative values"),
        (damaged(np.nan), ValueError, "NaN"),
        (damaged(np.inf), ValueError, "infinity"),
        (sparse.csr_array(damaged(-1)), ValueError, "Negative values"),
        (sparse.csr_array(damaged(np.nan)), ValueError, "NaN"),
        (np.zeros((4, SIZE)), ValueError, "X: has no mass in any row"),
        (np.full((4, SIZE), 1e308), ValueError, "overflow"),
        (counts()[0], ValueError, "Expected 2D array"),
        (counts()[:0], ValueError, "0 sample"),
        (counts()[:2], ValueError, "n_components: 3 is more than the data has measures, n_samples=2"),
        (np.full((4, SIZE), "a"), ValueError, "could not convert string"),
    ],
)
def test_bad_data(X, error, message, fitted):
    with pytest.raises(error, match=message):
        estimator().fit(X)
    if "n_components" not in message:
        for method in (fitted.transform, fitted.score, fitted.resume, pickle.loads(pickle.dumps(fitted)).partial_fit):
            with pytest.raises(error, match=message):
                method(X)


INFINITE = np.where(np.arange(SIZE)[:, None] == np.arange(SIZE), np.inf, 1.0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cost": GridCost(SIZE - 1)}, ValueError, "cost: is for 15 x 15 points; expected 16 x 16 as in X"),
        ({"cost": M[:, 1:]}, ValueError, "cost: is for 16 x 15 points; expected 16 x 16"),
        ({"cost": INFINITE}, ValueError, "cost: has infinite costs; expected finite ones"),
        ({"cost": np.full((SIZE, SIZE), np.nan)}, ValueError, "cost: has NaN"),
        ({"cost": "nearest"}, ValueError, "cost: expected one of .line., .braycurtis."),
        ({"n_components": 0}, ValueError, "n_components: expected at least 1"),
        ({"n_components": 2.0}, TypeError, "n_components: expected an integer"),
        ({"n_components": 11}, ValueError, "n_components: 11 is more than the data has measures"),
        ({"max_epochs": 0}, ValueError, "max_epochs: expected at least 1"),
        ({"batch_size": -1}, ValueError, "batch_size: expected at least 1"),
        ({"tau": 0}, ValueError, "tau: expected at least 1"),
        ({"algorithm": "slow"}, ValueError, "algorithm: expected one of .*, got 'slow'"),
        ({"update": "batch"}, ValueError, "update: expected one of .*, got 'batch'"),
        ({"temperature": "hot"}, ValueError, "temperature: expected 'auto' or a positive number, got 'hot'"),
        ({"temperature": 0.0}, ValueError, "temperature: expected a positive number"),
        ({"temperature": np.nan}, ValueError, "temperature: expected a positive number"),
        ({"tol": -1e-3}, ValueError, "tol: expected a number >= 0"),
        ({"tol": None}, TypeError, "tol: expected a number"),
        ({"step_size": 0.0}, ValueError, "step_size: expected a positive number"),
        ({"step_size": (1.0, -1.0)}, ValueError, "step_size: expected a positive number"),
        ({"step_size": (1.0, 1.0, 1.0)}, ValueError, "step_size: expected a number or one for components"),
        ({"callbacks": print}, ValueError, "callbacks: expected a sequence of functions"),
        ({"init": np.ones((3, 16))}, ValueError, "init: expected 'nmf', 'random' or a pair of arrays"),
        ({"init": (BUMPS, "a")}, TypeError, r"init\[1\]: expected real numbers"),
        ({"init": "kmeans"}, ValueError, "init: expected 'nmf', 'random' or a pair of arrays, got 'kmeans'"),
        ({"init": (BUMPS[:2], np.ones((10, 3)))}, ValueError, r"init\[0\]: expected 3 rows of 16 weights"),
        ({"init": (BUMPS, np.ones((9, 3)))}, ValueError, r"init\[1\]: expected 10 rows of 3 weights"),
        ({"init": (-BUMPS, np.ones((10, 3)))}, ValueError, r"init\[0\]: has negative weights"),
        ({"init": (0 * BUMPS, np.ones((10, 3)))}, ValueError, r"init\[0\]: row 0 has no mass"),
        ({"init": (BUMPS, np.full((10, 3), np.nan))}, ValueError, r"init\[1\]: has NaN weights"),
        ({"n_jobs": 0}, ValueError, "n_jobs: 0 has no meaning"),
        ({"random_state": "seed"}, ValueError, "cannot be used to seed"),
    ],
)
def test_bad_parameters(options, error, message):
    with pytest.raises(error, match=message):
        estimator(**options).fit(counts())
    if "n_components" not in options or options["n_components"] != 11:
        with pytest.raises(error, match=message):
            estimator(**options).partial_fit(counts())


@pytest.mark.parametrize("method", ["transform", "inverse_transform", "score", "save"])
def test_a_model_that_has_not_been_fitted(method, tmp_path):
    with pytest.raises(NotFittedError):
        getattr(estimator(), method)(tmp_path / "a.npz" if method == "save" else counts())
    assert os.listdir(tmp_path) == []


def test_stacks_of_images_are_to_be_flattened():
    with pytest.raises(ValueError, match=r"X: has shape \(5, 4, 4\); expected measures as rows.*reshape"):
        WassersteinNMF(2, cost=GridCost((4, 4))).fit(np.ones((5, 4, 4)))


def test_the_number_of_components_stays():
    """What continues to learn has its components; another number of them was ignored."""
    model = WassersteinNMF(3, cost="line", max_epochs=2, tau=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(BUMPS)
    model.n_components = 4
    for learn in (model.resume, model.partial_fit):
        with pytest.raises(ValueError, match="n_components: expected 3, as the model has already, got 4"):
            learn(BUMPS)
