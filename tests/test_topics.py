"""Tables of topics, coherence against its definition, and the arguments of pyLDAvis."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
from scipy import sparse
from sklearn.decomposition import NMF, LatentDirichletAllocation

from gibbsot import WassersteinNMF, topics

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

WORDS = np.array(["apple", "boat", "car", "door", "engine", "fire"])


@pytest.fixture
def counts():
    rng = np.random.default_rng(0)
    rates = np.where(np.arange(30)[:, None] < 15, [3, 3, 3, 0.2, 0.2, 0.2], [0.2, 0.2, 0.2, 3, 3, 3])
    return rng.poisson(rates) + np.eye(6, dtype=int)[np.arange(30) % 6]  # each document has a word


def wasserstein(counts):
    return WassersteinNMF(2, cost="cosine", max_epochs=10, random_state=0).fit(counts)


@pytest.mark.parametrize("model", [NMF(2, random_state=0), LatentDirichletAllocation(2, random_state=0), wasserstein])
def test_planted_topics_are_found_with_any_model(counts, model):
    fitted = model(counts) if callable(model) else model.fit(counts)
    found = {frozenset(map(str, words)) for words in topics.top_words(fitted, WORDS, 3)}
    assert found == {frozenset(WORDS[:3]), frozenset(WORDS[3:])}


def test_words_are_sorted_and_ties_keep_their_order():
    D = [[1, 3, 2, 3, 0, 0]]
    assert topics.top_words(D, WORDS, 4).tolist() == [["boat", "door", "car", "apple"]]
    table = topics.topic_table(D, list(WORDS), 2)
    assert table[0].words == ("boat", "door")
    np.testing.assert_allclose(table[0].weights, 1 / 3)
    assert math.isnan(table[0].share)
    assert repr(table) == "  0        boat door"


def test_table_has_the_shares_of_the_model_or_of_memberships(counts):
    model = wasserstein(counts)
    np.testing.assert_allclose([topic.share for topic in topics.topic_table(model, WORDS, 3)], model.usage_)
    other = topics.topic_table(model, ["<b>", *WORDS[1:]], 6, memberships=sparse.csr_array([[3, 1], [0, 5]]))
    assert [topic.share for topic in other] == [0.375, 0.625]
    assert "&lt;b&gt;" in other._repr_html_()
    assert other._repr_html_().count("<tr>") == 3


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_matrix])
def test_coherence_is_its_definition(counts, kind):
    D = np.random.default_rng(1).random((3, 6))
    found = topics.coherence(D, kind(counts), 4)
    for topic, value in zip(D, found, strict=True):
        which, pairs = sorted(range(6), key=lambda k: -topic[k])[:4], []
        for a in range(4):
            for b in range(a):
                i, j = which[a], which[b]
                both = sum(row[i] > 0 and row[j] > 0 for row in counts) / 30
                one, other = (sum(row[k] > 0 for row in counts) / 30 for k in (i, j))
                pairs.append(math.log(both / one / other) / -math.log(both) if both else -1)
        assert value == pytest.approx(np.mean(pairs), rel=1e-12)


def test_arguments_of_pyldavis(counts):
    model = wasserstein(counts)
    found = topics.ldavis(model, counts, WORDS)
    np.testing.assert_allclose(found["topic_term_dists"].sum(axis=1), 1)
    np.testing.assert_allclose(found["doc_topic_dists"], model.transform(counts), rtol=1e-5)
    np.testing.assert_array_equal(found["doc_lengths"], counts.sum(axis=1))
    np.testing.assert_array_equal(found["term_frequency"], counts.sum(axis=0))
    assert found["vocab"] == list(WORDS)
    own = topics.ldavis(model, sparse.csr_matrix(counts), WORDS, memberships=model.memberships_)
    np.testing.assert_allclose(own["doc_topic_dists"], model.memberships_, rtol=1e-5)
    np.testing.assert_array_equal(own["term_frequency"], found["term_frequency"])


@pytest.mark.filterwarnings("ignore")  # of the packages that draw
def test_pyldavis_draws_them(counts):
    pyldavis = pytest.importorskip("pyLDAvis")
    model = WassersteinNMF(3, cost="cosine", max_epochs=5, random_state=0).fit(counts)
    prepared = pyldavis.prepare(**topics.ldavis(model, counts, WORDS), n_jobs=1)
    assert sorted(prepared.topic_order) == [1, 2, 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: topics.top_words(NMF(2), WORDS), "model: NMF has no components_; expected a fitted model"),
        (lambda _: topics.top_words([[1, -1]], ["a", "b"], 1), "model: "),
        (lambda _: topics.top_words([[1, 1], [0, 0]], ["a", "b"], 1), "model: topic 1 has no weight"),
        (lambda _: topics.top_words(np.ones((2, 6)), WORDS[:5], 2), "vocabulary: expected 6 words"),
        (lambda _: topics.top_words(np.ones((2, 6)), WORDS), "n_words: expected at most the 6 words"),
        (lambda _: topics.top_words(np.ones((2, 6)), WORDS, 0), "n_words: "),
        (lambda _: topics.topic_table(np.ones((2, 6)), WORDS, 2, np.ones((3, 4))), "memberships: has 4 columns"),
        (lambda _: topics.topic_table(np.ones((2, 6)), WORDS, 2, [[0, 0]]), "memberships: "),
        (lambda X: topics.coherence(np.ones((2, 6)), X[:, :5], 2), "X: has 5 columns; expected 6"),
        (lambda X: topics.coherence(np.ones((2, 6)), X, 1), "n_words: expected at least 2"),
        (lambda X: topics.ldavis(np.ones((2, 6)), 0 * X, WORDS, np.ones((30, 2))), "X: row 0 has no words"),
        (lambda X: topics.ldavis(np.ones((2, 6)), X, WORDS, np.ones((3, 2))), "memberships: has 3 rows; expected 30"),
        (lambda X: topics.ldavis(np.ones((2, 6)), X[:, 1:], WORDS, np.ones((30, 2))), "X: has 5 columns"),
    ],
)
def test_bad_input_names_the_argument(counts, call, message):
    with pytest.raises(ValueError, match=message):
        call(counts)


def test_word_movers_distances():
    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(40)]
    vectors = dict(zip(words, rng.normal(size=(40, 6)), strict=True))
    docs = [[*rng.choice(words, 12), "unknown"] for _ in range(8)]
    V = np.array([vectors[word] for word in words])
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    X = np.array([[doc.count(word) for word in words] for doc in docs], float)
    M = np.linalg.norm(V[:, None] - V, axis=2)
    p = X / X.sum(axis=1, keepdims=True)
    expected = np.array([[ot.emd2(a, b, M) for b in p] for a in p])
    found = topics.wmd(docs, vectors)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(topics.wmd(X, V, norm=False), expected, atol=1e-12)
    np.fill_diagonal(expected, np.inf)
    values, indices = topics.wmd_neighbors(docs, vectors, 3)
    np.testing.assert_array_equal(indices, np.argsort(expected, axis=1, kind="stable")[:, :3])
    np.testing.assert_allclose(values, np.sort(expected, axis=1)[:, :3], atol=1e-12)


def test_documents_without_known_words():
    vectors = {"a": [1.0, 0.0]}
    assert topics.wmd([["a"], ["b"]], vectors).tolist() == [[0, np.inf], [np.inf, np.inf]]
    with pytest.raises(ValueError, match="docs: document 1 has no word"):
        topics.wmd_neighbors([["a"], ["b"]], vectors, 1)
    with pytest.raises(ValueError, match="docs: expected lists of words"):
        topics.wmd(["a b"], vectors)
    with pytest.raises(ValueError, match="vectors: has 1 rows; expected 2"):
        topics.wmd([[1, 1]], [[1.0, 0.0]])
