"""The Wasserstein classifier: its gradients are those of POT's cost, it learns, and what is wrong is named."""

from __future__ import annotations

import pickle

import numpy as np
import ot
import pytest
from scipy import sparse
from scipy.special import rel_entr, softmax
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from fits import same_fit
from gibbsot import DenseCost, GridCost
from gibbsot.core import native
from gibbsot.models.classifier import WassersteinClassifier, _Linear, _softmax_vjp
from gibbsot.oracle.chains import TargetChains

K = 5
M = GridCost(K).matrix()


def estimator(**options) -> WassersteinClassifier:
    """A short run."""
    return WassersteinClassifier(**{"max_epochs": 10, "tau": 3, "random_state": 0} | options)


def along_a_line(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Samples whose label is where they lie, and a feature that says nothing, in other units."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return np.column_stack([y + rng.uniform(-0.3, 0.3, n), 1e3 * (5 + rng.normal(size=n))]), y


def mixtures(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Histograms over labels that a linear softmax model could have made."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, rng.multinomial(40, softmax(X @ rng.normal(size=(3, K)), axis=1)).astype(float)


def exact(P: np.ndarray, Y: np.ndarray, matrix: np.ndarray = M) -> np.ndarray:
    """Transport costs by POT."""
    return np.array([ot.emd2(p / p.sum(), y / y.sum(), matrix) for p, y in zip(P, Y, strict=True)])


@pytest.fixture(scope="module")
def fitted() -> WassersteinClassifier:
    """For tests that do not change it."""
    return estimator(cost=M).fit(*mixtures())


def same(first: WassersteinClassifier, other: WassersteinClassifier) -> None:
    same_fit(first, other, "coef_", "intercept_")


compiled = pytest.mark.skipif(native.name() == "numpy", reason="takes minutes, and says nothing of the kernels")


# batches and noise are random: a weight of two equals a row given twice only on average
ON_AVERAGE = {
    f"check_sample_weight_equivalence_on_{kind}_data": "equal on average only, see test_weights_are_repeated_rows"
    for kind in ("dense", "sparse")
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few epochs
@pytest.mark.filterwarnings("ignore:X. [0-9]+ rows have no mass:UserWarning")
@compiled
@parametrize_with_checks([WassersteinClassifier(max_epochs=5, tau=3)], expected_failed_checks=lambda _: ON_AVERAGE)
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


def test_gradients_are_those_of_the_exact_loss():
    """At a low temperature, against finite differences."""
    X, Y = mixtures(20)
    Y /= Y.sum(axis=1, keepdims=True)
    model, rows = _Linear(X, K), np.arange(20)
    model.parameters = np.random.default_rng(1).normal(size=(K, 4))
    oracle = TargetChains(M, Y, tau=300)
    for T in np.geomspace(1e-2, 1e-4, 10):
        P = model.predict(rows)
        values, U, _ = oracle(P, T, rows)
        gradient = model.gradient(rows, _softmax_vjp(P, U))
    np.testing.assert_allclose(values, exact(model.predict(rows), Y), rtol=0.05)
    other, Z = _Linear(sparse.csr_array(X), K), np.random.default_rng(2).normal(size=(20, K))
    np.testing.assert_allclose(other.gradient(rows, Z), model.gradient(rows, Z), rtol=1e-9)
    start, wanted = model.parameters, np.empty((K, 4))
    for index in np.ndindex(K, 4):
        sides = []
        for shift in (1e-5, -1e-5):
            model.parameters = start.copy()
            model.parameters[index] += shift
            sides.append(exact(model.predict(rows), Y).mean())
        wanted[index] = (sides[0] - sides[1]) / 2e-5
    cosine = (gradient * wanted).sum() / np.linalg.norm(gradient) / np.linalg.norm(wanted)
    assert cosine > 0.99
    assert np.linalg.norm(gradient) == pytest.approx(np.linalg.norm(wanted), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("cost", [None, M])
def test_labels_that_can_be_separated(cost):
    """By name; it stops by itself."""
    X, y = along_a_line()
    names = np.array(["e", "d", "c", "b", "a"])[y]
    given = {} if cost is None else {"cost": cost[::-1, ::-1], "classes": np.unique(names)}
    model = estimator(**given, alpha=1e-5, max_epochs=400).fit(X, names)
    assert list(model.classes_) == ["a", "b", "c", "d", "e"]
    assert model.score(X, names) == 1
    assert model.score(*(along_a_line(seed=1)[0], names)) == 1
    assert model.n_iter_ < 400
    assert model.history_[-1].step < 0.1
    top = model.predict_top([[2.2, 5e3]], 2)
    assert top.shape == (1, 2)
    assert top[0, 0] == "c" == model.predict([[2.2, 5e3]])[0]


@pytest.mark.slow
@compiled
def test_histograms_are_learnt():
    """Nearer to them, in exact cost, than the model that made them; bounds are those of POT."""
    X, Y = mixtures(200)
    rng = np.random.default_rng(0)
    rng.normal(size=(200, 3))
    planted = softmax(X @ rng.normal(size=(3, K)), axis=1)
    model = WassersteinClassifier(M, random_state=0).fit(X, Y)
    reached = exact(model.predict_proba(X), Y).mean()
    assert reached < 1.05 * exact(planted, Y).mean()
    assert reached < 0.2 * exact(np.full((200, K), 1 / K), Y).mean()
    assert model.n_iter_ < 500
    evaluations = [epoch for epoch in model.history_ if np.isfinite(epoch.upper)]
    assert len(evaluations) == 6
    assert all(epoch.lower == pytest.approx(epoch.upper, rel=1e-4) for epoch in evaluations)
    divergence = rel_entr(Y / 40, model.predict_proba(X)).sum(axis=1).mean()
    penalty = ((model.coef_ * X.std(axis=0)) ** 2).sum()
    wanted = reached + M.mean() * (model.divergence * divergence + model.alpha * penalty)
    assert model.objective_ == pytest.approx(wanted, rel=0.1)


def test_scores(fitted):
    """Accuracy for labels, minus the exact cost for histograms."""
    X, Y = mixtures(12, seed=1)
    costs = exact(fitted.predict_proba(X), Y)
    assert fitted.score(X, Y) == pytest.approx(-costs.mean(), rel=1e-9)
    assert fitted.score(X, sparse.csr_array(Y)) == fitted.score(X, Y)
    share = np.arange(12)
    assert fitted.score(X, Y, share) == pytest.approx(-np.average(costs, weights=share), rel=1e-9)
    assert fitted.score(X, Y.argmax(axis=1)) == np.mean(fitted.predict(X) == Y.argmax(axis=1))
    with pytest.raises(ValueError, match="y: expected 12 histograms"):
        fitted.score(X, Y[1:])


def test_a_budget_ends_a_fit_and_the_exact_costs_of_a_score():
    X, Y = mixtures(200)
    with pytest.warns(ConvergenceWarning, match="max_seconds: the time was spent after 1 epochs"):
        model = WassersteinClassifier(M, max_seconds=1e-9, random_state=0).fit(X, Y)
    assert model.n_iter_ == 1
    wanted = model.set_params(max_seconds=None).score(X, Y)
    with pytest.warns(ConvergenceWarning, match=r"exact costs ended with an open gap.*lower bound") as caught:
        early = model.set_params(max_seconds=1e-9).score(X, Y)
    assert len(caught) == 1
    assert -M.max() <= early < wanted
    with pytest.raises(ValueError, match="max_memory: expected a positive number"):
        model.set_params(max_seconds=None, max_memory=0).score(X, Y)


def test_predictions(fitted):
    X, _ = mixtures(seed=1)
    P = fitted.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-12)
    top = fitted.predict_top(X, K)
    np.testing.assert_array_equal(np.sort(top, axis=1), np.tile(np.arange(K), (60, 1)))
    assert (np.diff(np.take_along_axis(P, top, axis=1)) <= 0).all()
    np.testing.assert_array_equal(fitted.predict(X), P.argmax(axis=1))
    np.testing.assert_allclose(fitted.predict_proba(sparse.csr_array(X)), P, rtol=1e-9)
    with pytest.raises(ValueError, match="k: 6 is more than there are labels, 5"):
        fitted.predict_top(X, 6)
    with pytest.raises(NotFittedError):
        estimator().predict_top(X, 1)


def test_runs_repeat_to_the_bit(fitted):
    X, Y = mixtures()
    same(estimator(cost=M).fit(X, Y), fitted)
    same(estimator(cost=DenseCost(M), n_jobs=2).fit(X, 7 * Y), fitted)
    same(estimator(cost=M).fit(X, sparse.csr_array(Y)), fitted)
    same(pickle.loads(pickle.dumps(fitted)), fitted)
    other = estimator(cost=M, random_state=1).fit(X, Y)
    assert (other.coef_ != fitted.coef_).any()


def test_labels_are_histograms_of_one():
    X, y = along_a_line()
    same(estimator(cost=M).fit(X, y), estimator(cost=M).fit(X, np.eye(K)[y]))


def test_units_do_not_matter():
    X, Y = mixtures()
    one, other = estimator(cost=M).fit(X, Y), estimator(cost=1024 * M).fit(64 * X + 3, Y)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(64 * X + 3), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(
        estimator(cost=M).fit(sparse.csr_array(X), Y).predict_proba(X), one.predict_proba(X), rtol=1e-3, atol=1e-5
    )


def test_the_penalty_shrinks():
    X, y = along_a_line()
    sizes = [np.abs(estimator(cost=M, alpha=alpha).fit(X, y).coef_).sum() for alpha in (0.0, 1e-3, 1e-1)]
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.slow
@compiled
@pytest.mark.parametrize("divergence", [0.0, 0.1])
def test_a_perfect_model_is_not_left(divergence):
    """Where the cost is nothing the gradients are only noise."""
    X, _ = mixtures()
    model = estimator(divergence=divergence, max_epochs=500, tau=30).fit(X, np.ones((60, K)))
    assert -model.score(X, np.ones((60, K))) < 0.08


def test_callbacks_see_every_epoch_and_may_stop(capsys):
    seen = []
    estimator(callbacks=[lambda model: seen.append(model.n_iter_)], max_epochs=3, verbose=True).fit(*along_a_line())
    assert seen == [1, 2, 3]
    assert capsys.readouterr() == ("", "")
    assert estimator(callbacks=[lambda model: model.n_iter_ == 2]).fit(*along_a_line()).n_iter_ == 2


def lattice(noise: float, seed: int, n: int = 300, side: int = 3) -> tuple[np.ndarray, ...]:
    """Points about the vertices of a lattice, with labels of which some are a neighbour's; and the distances."""
    rng = np.random.default_rng(seed)
    points = np.stack(np.divmod(np.arange(side**2), side), axis=1)
    distances = np.sqrt(((points[:, None] - points) ** 2).sum(axis=2))
    true = rng.permutation(np.arange(n) % side**2)
    flipped = np.array([rng.choice(np.flatnonzero(np.isclose(distances[label], 1))) for label in true])
    y = np.where(rng.random(n) < noise, flipped, true)
    return points[true] + 0.5 * rng.normal(size=(n, 2)), y, true, distances


@pytest.mark.slow
@compiled
def test_confusion_of_near_labels():
    """Frogner et al.'s experiment: predictions are nearer to the truth in the mean than those of cross-entropy."""
    for seed in range(5):
        X, y, _, distances = lattice(0.5, seed)
        X_new, _, true, _ = lattice(0.5, 100 + seed)
        ours = estimator(cost=distances, max_epochs=30).fit(X, y).predict_proba(X_new)
        theirs = LogisticRegression(max_iter=1000).fit(X, y).predict_proba(X_new)
        errors = [(P * distances[true]).sum(axis=1).mean() for P in (ours, theirs)]
        assert errors[0] < 0.9 * errors[1]


def tags(seed: int, n: int, labels: int = 20) -> tuple[np.ndarray, ...]:
    """Samples with two to four labels near a point, of which half are swapped for a near one; the true ones; distances.

    The task of ``benchmarks/labels.py``, smaller; features are standardised.
    """
    rng = np.random.default_rng(seed)
    positions, points = rng.normal(size=(labels, 3)), rng.normal(size=(n, 3))
    distances = np.sqrt(((positions[:, None] - positions) ** 2).sum(axis=2))
    keys = 2 * ((points[:, None] - positions) ** 2).sum(axis=2) - rng.gumbel(size=(n, labels))
    true, noisy = np.zeros((2, n, labels))
    for row, count in enumerate(rng.integers(2, 5, n)):
        for label in np.argsort(keys[row])[:count]:
            true[row, label] = 1
            noisy[row, np.argsort(distances[label])[rng.integers(1, 5) if rng.random() < 0.5 else 0]] = 1
    X = np.tanh(points @ rng.normal(size=(3, 20))) + 0.5 * rng.normal(size=(n, 20))
    return (X - X.mean(axis=0)) / X.std(axis=0), noisy, true, distances


def cross_entropy(X: np.ndarray, Y: np.ndarray, X_new: np.ndarray, penalty: float) -> np.ndarray:
    """What the model that minimises it predicts: histograms are samples repeated with weights."""
    row, label = np.nonzero(Y)
    share = (Y / Y.sum(axis=1, keepdims=True))[row, label]
    model = LogisticRegression(C=1 / (2 * len(X) * penalty), max_iter=2000).fit(X[row], label, sample_weight=share)
    P = np.zeros((len(X_new), Y.shape[1]))
    P[:, model.classes_] = model.predict_proba(X_new)
    return P


@pytest.mark.slow
@compiled
@pytest.mark.parametrize("seed", range(5))
def test_several_noisy_labels(seed):
    """W alone is minimised: it is lower on the training data than where cross-entropy leads, with less of a penalty.

    With the divergence, predictions are nearer to the true labels of new samples than with the best penalty of three
    for cross-entropy.
    """
    X, Y, true, distances = tags(seed, 700)
    old, new = slice(400), slice(400, 700)
    alone = WassersteinClassifier(distances, divergence=0, random_state=0).fit(X[old], Y[old])
    start = exact(cross_entropy(X[old], Y[old], X[old], 1e-5), Y[old], distances).mean()
    assert exact(alone.predict_proba(X[old]), Y[old], distances).mean() < 0.95 * start
    both = WassersteinClassifier(distances, alpha=1e-3, random_state=0).fit(X[old], Y[old])
    theirs = [
        exact(cross_entropy(X[old], Y[old], X[new], penalty), true[new], distances).mean()
        for penalty in (1e-2, 1e-3, 1e-4)
    ]
    assert -both.score(X[new], true[new]) < 0.96 * min(theirs)


@pytest.mark.slow
@compiled
def test_much_divergence_is_cross_entropy():
    X, Y, _, distances = tags(0, 300)
    model = WassersteinClassifier(distances, divergence=1e3, alpha=1.0, random_state=0).fit(X, Y)
    np.testing.assert_allclose(model.predict_proba(X), cross_entropy(X, Y, X, 1e-3), atol=0.05)


def damaged(value: float) -> np.ndarray:
    Y = mixtures()[1]
    Y[2, 3] = value
    return Y


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (damaged(-1), ValueError, "y: has negative weights, the first at row 2, entry 3"),
        (damaged(np.nan), ValueError, "Input y contains NaN"),
        (damaged(np.inf), ValueError, "Input y contains infinity"),
        (np.vstack([np.zeros(K), np.ones((59, K))]), ValueError, "y: row 0 has no mass"),
        (np.full((60, K), "a"), TypeError, "y: expected real numbers"),
        (np.ones((60, 2, 2)), ValueError, "dim 3"),
        (np.ones((59, K)), ValueError, "inconsistent numbers of samples"),
        (np.ones(60, int), ValueError, "y: has 1 class; expected at least two"),
        (np.arange(60) % 4, ValueError, "cost: is for 5 x 5 labels; expected 4 x 4, as there are in y"),
        (np.linspace(0, 1, 60), ValueError, "Unknown label type"),
        (None, ValueError, "requires y to be passed"),
    ],
)
def test_bad_targets(y, error, message):
    with pytest.raises(error, match=message):
        estimator(cost=M).fit(mixtures()[0], y)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cost": M[1:, 1:]}, ValueError, "cost: is for 4 x 4 labels; expected 5 x 5"),
        ({"cost": M[:, 1:]}, ValueError, "cost: is for 5 x 4 labels; expected 5 x 5"),
        ({"cost": np.where(np.eye(K) > 0, np.inf, 1.0)}, ValueError, "cost: has infinite costs"),
        ({"cost": np.full((K, K), np.nan)}, ValueError, "cost: has NaN"),
        ({"cost": 0 * M}, ValueError, "cost: all costs are equal"),
        ({"cost": 0 * M - 3}, ValueError, "cost: all costs are equal"),
        ({"cost": "nearest"}, ValueError, "cost: expected one of .line., .braycurtis."),
        ({"alpha": -1.0}, ValueError, "alpha: expected a number >= 0"),
        ({"alpha": np.nan}, ValueError, "alpha: expected a number >= 0"),
        ({"divergence": -0.1}, ValueError, "divergence: expected a number >= 0"),
        ({"divergence": np.inf}, ValueError, "divergence: expected a number >= 0"),
        ({"max_epochs": 0}, ValueError, "max_epochs: expected at least 1"),
        ({"batch_size": 0}, ValueError, "batch_size: expected at least 1"),
        ({"tau": 1.5}, TypeError, "tau: expected an integer"),
        ({"step_size": 0.0}, ValueError, "step_size: expected a positive number"),
        ({"temperature": "hot"}, ValueError, "temperature: expected 'auto' or a positive number"),
        ({"tol": -1e-3}, ValueError, "tol: expected a number >= 0"),
        ({"callbacks": print}, ValueError, "callbacks: expected a sequence of functions"),
        ({"n_jobs": 0}, ValueError, "n_jobs: 0 has no meaning"),
        ({"random_state": "seed"}, ValueError, "cannot be used to seed"),
    ],
)
def test_bad_parameters(options, error, message):
    with pytest.raises(error, match=message):
        estimator(**options).fit(*mixtures())


# weights and labels


def ordinal(n: int = 90, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noisy features of three ordered labels, the last of which is rare."""
    random = np.random.default_rng(seed)
    y = np.minimum(random.integers(0, 12, n) // 5, 2)
    return y[:, None] + 0.7 * random.normal(size=(n, 2)), y


@pytest.mark.slow
@compiled
def test_weights_are_repeated_rows():
    """On average: the predictions of five seeds."""
    X, y = ordinal()
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    P = np.zeros((2, len(X), 3))
    for seed in range(5):
        weighted = estimator(max_epochs=60, random_state=seed).fit(X, y, sample_weight=0.3 * weights)
        repeated = estimator(max_epochs=60, random_state=seed).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
        P += np.stack([model.predict_proba(X) for model in (weighted, repeated)]) / 5
    assert np.abs(P[0] - P[1]).mean() < 0.02
    plain = estimator(max_epochs=60).fit(X, y).predict_proba(X)
    assert np.abs(P[1] - plain).mean() > 0.03
    np.testing.assert_allclose(weighted.objective_, repeated.objective_, rtol=0.05)


def test_equal_weights_and_weights_of_zero():
    X, y = ordinal(30)
    plain = estimator().fit(X, y)
    np.testing.assert_allclose(estimator().fit(X, y, sample_weight=np.full(30, 7.0)).coef_, plain.coef_, rtol=1e-9)
    kept = np.arange(30) % 4 > 0
    some = estimator().fit(X, y, sample_weight=np.where(kept, 1.0, 0.0))
    np.testing.assert_allclose(some.coef_, estimator().fit(X[kept], y[kept]).coef_, rtol=1e-9)
    for weight, message in (
        (0 * kept, "(sample_weight: is |Sample weights must contain at least one non-)zero"),
        (-1.0 * kept, "[Nn]egative"),
        (kept[1:], "sample_weight"),
    ):
        with pytest.raises(ValueError, match=message):
            estimator().fit(X, y, sample_weight=weight)


@compiled
def test_class_weight():
    X, y = ordinal(200)
    plain, balanced = (estimator(max_epochs=60, class_weight=w).fit(X, y) for w in (None, "balanced"))
    rare = y == 2
    assert (balanced.predict(X)[rare] == 2).mean() > (plain.predict(X)[rare] == 2).mean()
    by_hand = estimator(class_weight={0: 1, 1: 1, 2: 5}).fit(X, y)
    np.testing.assert_array_equal(by_hand.coef_, estimator().fit(X, y, sample_weight=np.where(rare, 5.0, 1.0)).coef_)
    with pytest.raises(ValueError, match="class_weight: is for labels, and y has histograms"):
        estimator(class_weight="balanced").fit(X, np.eye(3)[y])


def test_classes_that_a_fold_lacks():
    X, y = ordinal(40)
    line = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    model = estimator(cost=line, classes=[0, 1, 2, 3]).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.predict_proba(X).shape == (40, 4)
    assert model.predict_proba(X)[:, 3].max() < 0.2
    with pytest.raises(ValueError, match=r"classes: \[0, 1, 3\] lack \[2\], which y has"):
        estimator(classes=[0, 1, 3]).fit(X, y)
    names = np.array(["low", "medium", "high"])[y]
    message = (
        r"classes: are in the order \['low', 'medium', 'high'\], but labels are sorted, \['high', 'low', 'medium'\]"
    )
    with pytest.raises(ValueError, match=message):
        estimator(cost=line[:3, :3], classes=["low", "medium", "high"]).fit(X, names)
    with pytest.warns(UserWarning, match=r"in the sorted order of the labels, \['high', 'low', 'medium'\]; classes="):
        estimator(cost=line[:3, :3]).fit(X, names)
    ordered = ["high", "low", "medium"]
    assert estimator(classes=ordered).fit(X, names).classes_.tolist() == ordered
    model = estimator(classes=["low", "medium", "high"]).fit(X, np.eye(3)[y])  # columns have any order
    assert set(model.predict(X)) <= {"low", "medium", "high"}
    with pytest.raises(ValueError, match="classes: expected 3 names, one for each column of y"):
        estimator(classes=["low", "high"]).fit(X, np.eye(3)[y])
    with pytest.raises(ValueError, match=r"classes: \['low', 'low', 'high'\] has a name twice"):
        estimator(classes=["low", "low", "high"]).fit(X, np.eye(3)[y])


def test_masks_and_weights_that_are_not_valid():
    X, y = ordinal(40)
    with pytest.raises(ValueError, match="X: has masked entries"):
        estimator().fit(np.ma.masked_less(X, 0), y)
    with pytest.raises(ValueError, match="y: has masked entries"):
        estimator().fit(X, np.ma.masked_less(y, 1))
    for weight in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"class_weight: expected finite weights >= 0, got \{0: "):
            estimator(class_weight={0: weight}).fit(X, y)
    model, Y = estimator().fit(X, y), np.eye(3)[y]
    with pytest.raises(ValueError, match="X: has masked entries"):
        model.predict(np.ma.masked_less(X, 0))
    for weights, message in (
        (np.ones(3), "expected one for each of the 40"),
        (-np.ones(40), "has negative weights"),
        (np.zeros(40), "is zero for every sample"),
    ):
        with pytest.raises(ValueError, match=f"sample_weight: {message}"):
            model.score(X, Y, sample_weight=weights)
