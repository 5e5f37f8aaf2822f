"""Topics of documents: tables of words, coherence, and the arguments of pyLDAvis, for any model with components."""

from __future__ import annotations

import html
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .core import validation
from .models.geometry.distances import distances
from .models.geometry.neighbors import WassersteinNeighbors

__all__ = ["Topic", "TopicTable", "coherence", "ldavis", "top_words", "topic_table", "wmd", "wmd_neighbors"]

Array = NDArray[np.float64]


class Topic(NamedTuple):
    """A topic of a `TopicTable`.

    Attributes
    ----------
    share : float
        The share of the documents that the topic makes up; NaN if it is not known.
    words : tuple of str
        Its heaviest words.
    weights : tuple of float
        Their weights, of all weights of the topic.
    """

    share: float
    words: tuple[str, ...]
    weights: tuple[float, ...]


class TopicTable(list[Topic]):
    """Topics in the order of the components: a list that prints as a table, in notebooks too.

    Parameters
    ----------
    iterable : iterable of Topic
        The topics.
    """

    def __repr__(self) -> str:
        lines = [f"{k:>3} {_percent(topic.share):>5}  {' '.join(topic.words)}" for k, topic in enumerate(self)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th>{k}</th><td>{_percent(topic.share)}</td><td>{html.escape(' '.join(topic.words))}</td></tr>"
            for k, topic in enumerate(self)
        )
        head = "<tr><th>topic</th><th>share</th><th>heaviest words</th></tr>"
        return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def top_words(model: Any, vocabulary: ArrayLike, n_words: int = 10) -> NDArray[np.str_]:
    """Return the heaviest words of each topic.

    Parameters
    ----------
    model : fitted estimator, or array of shape (K, m)
        A model with ``components_``, such as `WassersteinNMF` or scikit-learn's ``NMF`` and
        ``LatentDirichletAllocation``, or its components.
    vocabulary : sequence of m str
        The words, such as ``CountVectorizer.get_feature_names_out()``.
    n_words : int
        Words of a topic.

    Returns
    -------
    array of shape (K, n_words)
        The heaviest first; of equal weights the first in the vocabulary.

    Examples
    --------
    >>> from gibbsot.topics import top_words
    >>> top_words([[0.1, 0.6, 0.3], [0.9, 0.0, 0.1]], ["apple", "boat", "car"], 2)
    array([['boat', 'car'],
           ['apple', 'car']], dtype='<U5')
    """
    D = _components(model)
    return np.asarray(_words(vocabulary, D)[_heaviest(D, n_words)])


def topic_table(model: Any, vocabulary: ArrayLike, n_words: int = 10, memberships: Any = None) -> TopicTable:
    """Return the topics with their shares of the documents, their heaviest words and the weights of these.

    Parameters
    ----------
    model : fitted estimator, or array of shape (K, m)
        A model with ``components_``, or its components.
    vocabulary : sequence of m str
        The words.
    n_words : int
        Words of a topic.
    memberships : array of shape (n, K), optional
        The memberships of documents, from which shares are computed; by default shares are the ``usage_`` of the model,
        if it has one.

    Returns
    -------
    TopicTable
        A list of `Topic`, one for each component, which prints as a table and from which ``pandas.DataFrame`` makes
        one.

    Examples
    --------
    >>> from gibbsot.topics import topic_table
    >>> topic_table([[0.1, 0.6, 0.3], [0.9, 0.0, 0.1]], ["apple", "boat", "car"], 2, memberships=[[1, 1], [0, 2]])
      0   25%  boat car
      1   75%  apple car
    """
    D = _components(model)
    words, which = _words(vocabulary, D), _heaviest(D, n_words)
    if memberships is not None:
        shares = _memberships(memberships, len(D)).mean(axis=0)
    else:
        shares = np.asarray(getattr(model, "usage_", np.full(len(D), np.nan)), float)
    return TopicTable(
        Topic(float(share), tuple(map(str, words[first])), tuple(map(float, topic[first])))
        for share, topic, first in zip(shares, D, which, strict=True)
    )


def coherence(model: Any, X: Any, n_words: int = 10) -> Array:
    r"""Return how often the heaviest words of each topic occur in the same documents, from -1 to 1.

    The mean, over pairs of words of a topic, of the normalised pointwise mutual information [1]_

    .. math:: \mathrm{NPMI}(a, b) = \log \frac{P(a, b)}{P(a) P(b)} \Big/ -\log P(a, b),

    where P is the share of documents that contain a word, or both. Pairs that are never together count as -1, pairs
    that are in every document as 1.

    Parameters
    ----------
    model : fitted estimator, or array of shape (K, m)
        A model with ``components_``, or its components.
    X : array or sparse matrix of shape (n, m)
        Documents as counts or weights of words; which words they contain is what matters. Documents that the model was
        not fitted to are a fairer test.
    n_words : int
        Words of a topic, at least two.

    Returns
    -------
    array of shape (K,)
        The coherence of each topic.

    References
    ----------
    .. [1] G. Bouma, "Normalized (pointwise) mutual information in collocation extraction", GSCL 2009.

    Examples
    --------
    >>> from gibbsot.topics import coherence
    >>> coherence([[0.6, 0.4, 0.0], [0.0, 0.5, 0.5]], [[1, 1, 0], [2, 1, 0], [0, 0, 3], [0, 0, 1]], 2)
    array([ 1., -1.])
    """
    D, X = _components(model), validation.rows(X, "X")
    if X.shape[1] != D.shape[1]:
        raise ValueError(f"X: has {X.shape[1]} columns; expected {D.shape[1]}, one for each word")
    if validation.count(n_words, "n_words") < 2:
        raise ValueError("n_words: expected at least 2 for pairs, got 1")
    i, j = np.triu_indices(n_words, 1)
    found = []
    for which in _heaviest(D, n_words):
        seen = (_dense(X[:, which]) > 0).astype(float)
        alone, together = seen.mean(axis=0), (seen.T @ seen / len(seen))[i, j]
        with np.errstate(divide="ignore", invalid="ignore"):
            pairs = np.log(together / (alone[i] * alone[j])) / -np.log(together)
        found.append(np.where(together == 0, -1, np.where(together == 1, 1, pairs)).mean())
    return np.array(found)


def ldavis(model: Any, X: Any, vocabulary: ArrayLike, memberships: Any = None) -> dict[str, Any]:
    """Return the arguments of ``pyLDAvis.prepare``, which draws topics as an interactive page.

    ``pyLDAvis.save_html(pyLDAvis.prepare(**ldavis(model, X, vocabulary)), "topics.html")`` writes the page.

    Parameters
    ----------
    model : fitted estimator
        A model with ``components_`` and, without memberships, ``transform``.
    X : array or sparse matrix of shape (n, m)
        Documents as counts of words, each with at least one.
    vocabulary : sequence of m str
        The words.
    memberships : array of shape (n, K), optional
        The memberships of the documents, by default ``model.transform(X)``; those of the fit,
        ``model.memberships_``, are there at once.

    Returns
    -------
    dict
        ``topic_term_dists``, ``doc_topic_dists``, ``doc_lengths``, ``vocab`` and ``term_frequency``.

    Examples
    --------
    >>> from gibbsot.topics import ldavis
    >>> sorted(ldavis([[0.1, 0.9], [0.8, 0.2]], [[1, 3], [2, 0]], ["a", "b"], memberships=[[1, 0], [0, 1]]))
    ['doc_lengths', 'doc_topic_dists', 'term_frequency', 'topic_term_dists', 'vocab']
    """
    D, X = _components(model), validation.rows(X, "X")
    words = _words(vocabulary, D)
    if X.shape[1] != D.shape[1]:
        raise ValueError(f"X: has {X.shape[1]} columns; expected {D.shape[1]}, one for each word")
    lengths = np.asarray(X.sum(axis=1), float).ravel()
    if not lengths.all():
        raise ValueError(f"X: row {int(np.argmin(lengths))} has no words; expected documents with some")
    W = _memberships(model.transform(X) if memberships is None else memberships, len(D))
    if len(W) != len(lengths):
        raise ValueError(f"memberships: has {len(W)} rows; expected {len(lengths)}, one for each document of X")
    return {
        "topic_term_dists": D,
        "doc_topic_dists": W,
        "doc_lengths": lengths,
        "vocab": list(map(str, words)),
        "term_frequency": np.asarray(X.sum(axis=0), float).ravel(),
    }


def wmd(docs: Any, vectors: Any, *, norm: bool = True, n_jobs: int | None = None) -> Array:
    r"""Return the exact word mover's distances of all pairs of documents [1]_.

    .. math:: D_{ab} = \min_{Z \ge 0} \sum_{ij} Z_{ij} \, \|x_i - x_j\|, \quad Z 1 = p_a, \; Z^T 1 = p_b

    where p_a are the frequencies of the words of document a, and x_i is the vector of word i. They are the values of
    gensim's ``wmdistance``, which normalises vectors in single precision.

    Parameters
    ----------
    docs : sequence of sequences of str, or array or sparse matrix of shape (n, m)
        Documents as lists of words, or as counts of the words of a vocabulary.
    vectors : mapping of str to array, or array of shape (m, d)
        The vectors of words, such as gensim's ``KeyedVectors``; words without one are left out. With counts, the
        vectors of the vocabulary.
    norm : bool
        Divide vectors by their lengths first, as gensim does.
    n_jobs : int, optional
        Threads over the pairs: None for one, -1 for all cores.

    Returns
    -------
    array of shape (n, n)
        The distances; infinite for documents without known words.

    References
    ----------
    .. [1] M. J. Kusner, Y. Sun, N. I. Kolkin and K. Q. Weinberger, *From word embeddings to document distances*, ICML
       2015.

    Examples
    --------
    >>> from gibbsot.topics import wmd
    >>> wmd([["cat", "sat"], ["dog", "sat"]], {"cat": [1.0, 0.0], "dog": [0.0, 1.0], "sat": [0.6, 0.8]}).round(3)
    array([[0.   , 0.707],
           [0.707, 0.   ]])
    """
    full, clouds, n = _clouds(docs, vectors, norm)
    D = np.full((n, n), np.inf)
    D[np.ix_(full, full)] = distances(clouds, cost="euclidean", n_jobs=n_jobs)
    return D


def wmd_neighbors(
    docs: Any, vectors: Any, n_neighbors: int = 5, *, norm: bool = True, n_jobs: int | None = None
) -> tuple[Array, NDArray[np.intp]]:
    """Return the nearest documents of each document in word mover's distance, without the document itself.

    Parameters
    ----------
    docs, vectors, norm, n_jobs
        As for `wmd`; every document has a known word.
    n_neighbors : int
        The number of neighbours.

    Returns
    -------
    distances : array of shape (n, n_neighbors)
        The distances, the nearest first.
    indices : array of int of shape (n, n_neighbors)
        The documents.

    Examples
    --------
    >>> from gibbsot.topics import wmd_neighbors
    >>> vectors = {"cat": [1.0, 0.0], "dog": [0.8, 0.6], "sat": [0.0, 1.0]}
    >>> wmd_neighbors([["cat"], ["dog"], ["sat"]], vectors, 1)[1].ravel()
    array([1, 0, 1])
    """
    full, clouds, n = _clouds(docs, vectors, norm)
    if len(full) < n:
        empty = int(np.setdiff1d(np.arange(n), full)[0])
        raise ValueError(f"docs: document {empty} has no word with a vector; expected one in each")
    model = WassersteinNeighbors(n_neighbors, cost="euclidean", n_jobs=n_jobs).fit(clouds)
    found: Any = model.kneighbors()
    return found


def _clouds(docs: Any, vectors: Any, norm: bool) -> tuple[NDArray[np.intp], list[tuple[Array, Array]], int]:
    """Return which documents have known words, the vectors and counts of these, and the number of documents."""
    found: list[tuple[list[Any], Array]] = []
    if hasattr(vectors, "__contains__") and not isinstance(vectors, np.ndarray | list | tuple):
        if isinstance(docs, str) or any(isinstance(words, str) for words in docs):
            raise ValueError("docs: expected lists of words, got a text; split it first, such as by text.split()")
        known = [[word for word in words if word in vectors] for words in docs]
        for words in known:
            counts = Counter(words)
            found.append(([vectors[word] for word in counts], np.array(list(counts.values()), float)))
    else:
        X, V = sparse.csr_array(validation.rows(docs, "docs")), validation.points(vectors, "vectors")
        if len(V) != X.shape[1]:
            raise ValueError(f"vectors: has {len(V)} rows; expected {X.shape[1]}, one for each word of docs")
        X.eliminate_zeros()
        for k in range(X.shape[0]):
            own = slice(X.indptr[k], X.indptr[k + 1])
            found.append((list(V[X.indices[own]]), X.data[own].astype(float)))
    full = [k for k, (words, _) in enumerate(found) if len(words)]
    if not full:
        raise ValueError("docs: no document has a word with a vector; expected some")
    clouds = []
    for k in full:
        points, weights = np.asarray(found[k][0], np.float64), found[k][1]
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        clouds.append((points / np.where(lengths > 0, lengths, 1) if norm else points, weights))
    return np.array(full), clouds, len(found)


def _components(model: Any) -> Array:
    """Return the topics as rows that sum to one."""
    given = getattr(model, "components_", model)
    if hasattr(model, "fit") and given is model:
        raise ValueError(f"model: {type(model).__name__} has no components_; expected a fitted model")
    D = _dense(validation.rows(given, "model"))
    mass = D.sum(axis=1, keepdims=True)
    if not mass.all():
        raise ValueError(f"model: topic {int(np.argmin(mass))} has no weight; expected topics with some")
    return np.asarray(D / mass)


def _dense(x: Any) -> Array:
    return np.asarray(x.toarray() if sparse.issparse(x) else x, float)


def _words(vocabulary: ArrayLike, D: Array) -> NDArray[Any]:
    words = np.asarray(vocabulary)
    if words.shape != (D.shape[1],):
        raise ValueError(f"vocabulary: expected {D.shape[1]} words, as many as a topic has weights; got {words.shape}")
    return words


def _heaviest(D: Array, n_words: int) -> NDArray[np.intp]:
    if validation.count(n_words, "n_words") > D.shape[1]:
        raise ValueError(f"n_words: expected at most the {D.shape[1]} words of the vocabulary, got {n_words}")
    return np.argsort(-D, axis=1, kind="stable")[:, :n_words]


def _memberships(given: Any, size: int) -> Array:
    """Return memberships as rows that sum to one."""
    W = _dense(validation.rows(given, "memberships"))
    validation.check_weights(W, "memberships")
    if W.shape[1] != size:
        raise ValueError(f"memberships: has {W.shape[1]} columns; expected {size}, one for each topic")
    return np.asarray(W / W.sum(axis=1, keepdims=True))


def _percent(share: float) -> str:
    return "" if np.isnan(share) else f"{share:.0%}"
