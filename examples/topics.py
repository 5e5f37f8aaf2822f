"""Topics of news: Wasserstein NMF over word vectors beside scikit-learn's NMF and LDA, two tables and a picture.

    python examples/topics.py [--out DIR] [--quick]

The documents are the 395 Reuters stories of 1996 and 1997 in the package lda (the extra ``examples``), as word counts.
Stop words, words in more than 30 % of the documents and rare words are left out. A quarter of the documents is held out
as a test set.

The cost between two words is the Euclidean distance between their vectors. The vectors are computed from the training
documents alone: the largest singular vectors of the positive pointwise mutual information of words in a document,
normalised.

Two figures are compared: the mean exact transport cost from the test documents to their mixtures of topics, which is
the loss of Wasserstein NMF, and the coherence of topics, which none of the models minimises: the mean normalised
pointwise mutual information of pairs of their ten heaviest words, in the training and in the test documents.

The metric, the number of dimensions and the initial temperature were chosen on other splits of the same documents.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import NMF, LatentDirichletAllocation, TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from gibbsot import Cost, PointCost, WassersteinNMF, mixture_coordinates, plots, solve_batch
from gibbsot.core import native
from gibbsot.topics import coherence, top_words

Array = NDArray[np.float64]

TOP = 10  # words of a topic that its coherence is computed from
DRAWN = 6  # words of a topic in the figure


class News(NamedTuple):
    """Documents as rows of weights over words."""

    words: NDArray[np.str_]
    counts: Array
    X: Array
    X_test: Array


class Topics(NamedTuple):
    """The result of a model: topics, their shares of the documents, memberships of the test documents, and its time."""

    D: Array
    usage: Array
    W_test: Array
    seconds: float


def news(documents: int, words: int, seed: int) -> News:
    """Return histograms over the most common words without stop words, with a quarter of the documents as test set."""
    try:
        from lda import datasets
    except ImportError:
        raise ImportError("the documents are in the package lda: pip install 'gibbsot[examples]'") from None
    counts, vocabulary = datasets.load_reuters().astype(float), np.array(datasets.load_reuters_vocab())
    counts = counts[np.random.default_rng(seed).permutation(len(counts))[:documents]]
    learned = len(counts) - len(counts) // 4
    common = (counts[:learned] > 0).mean(axis=0)
    telling = [word.isalpha() and len(word) > 2 and word not in ENGLISH_STOP_WORDS for word in vocabulary]
    ranks = np.argsort(-np.where(telling & (common <= 0.3), common, 0), kind="stable")[:words]
    counts = counts[:, ranks]
    mass = counts.sum(axis=1, keepdims=True)
    if not mass.all():
        raise ValueError(f"--words: some documents have none of the {words} words; expected more")
    X = counts / mass
    return News(vocabulary[ranks], counts, X[:learned], X[learned:])


def vectors(X: Array, dimensions: int) -> Array:
    """Return a unit vector for each word; words that occur in the same documents have vectors near each other."""
    seen = (X > 0).astype(float)
    together, alone = seen.T @ seen, seen.sum(axis=0)
    with np.errstate(divide="ignore"):
        information = np.log(together * len(X) / np.outer(alone, alone))
    svd = TruncatedSVD(dimensions, algorithm="arpack", random_state=0)
    found = svd.fit_transform(np.maximum(information, 0))
    return np.asarray(normalize(found / np.sqrt(svd.singular_values_)))


def plain(data: News, K: int, loss: str) -> Topics:
    """Return the topics of scikit-learn's NMF, as weights."""
    start = time.perf_counter()
    solver = "cd" if loss == "frobenius" else "mu"
    model = NMF(K, beta_loss=loss, solver=solver, init="nndsvda", max_iter=1000, random_state=0)
    with warnings.catch_warnings(), threadpool_limits(1):  # its matrix products are too small for several threads
        warnings.simplefilter("ignore", ConvergenceWarning)
        W, W_test = model.fit_transform(data.X), model.transform(data.X_test)
    mass = model.components_.sum(axis=1)
    W, W_test = (x * mass / (x @ mass)[:, None] for x in (W, W_test))
    return Topics(model.components_ / mass[:, None], W.mean(axis=0), W_test, time.perf_counter() - start)


def dirichlet(data: News, K: int, seed: int) -> Topics:
    """Return the topics of latent Dirichlet allocation, which is fitted to the counts."""
    start, n = time.perf_counter(), len(data.X)
    model = LatentDirichletAllocation(K, max_iter=100, random_state=seed)
    with threadpool_limits(1):
        W, W_test = model.fit_transform(data.counts[:n]), model.transform(data.counts[n:])
    return Topics(normalize(model.components_, "l1"), W.mean(axis=0), W_test, time.perf_counter() - start)


def transported(data: News, cost: Cost, args: argparse.Namespace, temperature: float | str) -> Topics:
    """Return the topics of Wasserstein NMF for an initial temperature."""
    start = time.perf_counter()
    model = WassersteinNMF(
        args.topics,
        cost=cost,
        max_epochs=args.epochs,
        temperature=temperature,
        random_state=args.seed,
        n_jobs=args.jobs,
        verbose=True,
    ).fit(data.X)
    D, usage, W_test = (np.asarray(x, float) for x in (model.components_, model.usage_, model.transform(data.X_test)))
    return Topics(D, usage, W_test, time.perf_counter() - start)


def partners(D: Array, E: Array) -> NDArray[np.intp]:
    """Return the topic of E that is matched to each topic of D: the assignment of largest total similarity."""
    return np.asarray(linear_sum_assignment(-normalize(D) @ normalize(E).T)[1])


def picture(path: Path, data: News, ours: Topics, theirs: Topics) -> None:
    """Draw the topics in a grid, the words of both models side by side, with bars for their weights."""
    order = np.argsort(-ours.usage)
    columns = min(5, len(order))
    rows = -(-len(order) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.4 * columns, 1.75 * rows + 0.6), squeeze=False)
    figure.subplots_adjust(
        left=0.01, right=0.99, bottom=0.01, top=1 - 0.8 / (1.75 * rows + 0.6), hspace=0.25, wspace=0.1
    )
    for ax in axes.flat:
        ax.set(xlim=(0, 2.06), ylim=(DRAWN - 0.4, -0.6))
        ax.axis("off")
    beside = partners(ours.D, theirs.D)
    for ax, k in zip(axes.flat, order, strict=False):
        for left, model, index, colour in ((0, theirs, beside[k], plots.PALE_GREY), (1.06, ours, k, plots.PALE_PINK)):
            topic = model.D[index]
            weights = np.sort(topic)[::-1][:DRAWN]
            ax.barh(np.arange(DRAWN), weights / weights[0], left=left, height=0.84, color=colour)
            for row, word in enumerate(top_words(topic[None], data.words, DRAWN)[0]):
                ax.text(left + 0.04, row, word, va="center", fontsize=9)
            ax.text(left, -0.7, f"{model.usage[index]:.0%}", va="bottom", fontsize=8, color=plots.DARK_GREY)
    labels = [Patch(color=colour) for colour in (plots.PALE_GREY, plots.PALE_PINK)]
    title = (
        f"Topics of {len(data.X)} Reuters stories: heaviest words, and the share of the stories that a topic makes up"
    )
    figure.suptitle(title, fontsize=11, y=0.985)
    names = ("scikit-learn's NMF", "Wasserstein NMF over word vectors")
    figure.legend(labels, names, loc="upper center", bbox_to_anchor=(0.5, 0.95), ncols=2, frameon=False, fontsize=10)
    figure.savefig(path, dpi=110)


def run(args: argparse.Namespace, console: Console) -> None:
    data = news(args.documents, args.words, args.seed)
    cost: Cost = PointCost(vectors(data.X, args.dimensions), metric="euclidean")
    plainly = {
        "scikit-learn's NMF": plain(data, args.topics, "frobenius"),
        "the same, Kullback-Leibler": plain(data, args.topics, "kullback-leibler"),
        "scikit-learn's LDA": dirichlet(data, args.topics, args.seed),
    }
    found = dict(plainly)
    # With the automatic initial temperature the cost is about that of scikit-learn's topics, with better coherence; a
    # lower initial temperature gives a lower cost.
    found["Wasserstein NMF"] = transported(data, cost, args, 0.003 * cost.matrix().mean())
    found["the same, automatic temperature"] = transported(data, cost, args, "auto")

    def exact(P: Array) -> str:
        return f"{solve_batch(P, data.X_test, cost, normalize=True, n_jobs=args.jobs).value.mean():.4f}"

    ours, theirs = found["Wasserstein NMF"], found["scikit-learn's NMF"]
    table = Table(title="Topics and their shares, side by side", show_lines=True)
    for column in ("scikit-learn's NMF", "Wasserstein NMF"):
        table.add_column(column, ratio=1)
    beside = partners(ours.D, theirs.D)
    for k in np.argsort(-ours.usage):
        pair = (theirs, beside[k]), (ours, k)
        table.add_row(*(f"{t.usage[i]:.0%} " + " ".join(top_words(t.D, data.words, TOP)[i]) for t, i in pair))
    console.print(table)

    n, held = len(data.X), len(data.X_test)
    title = f"{n} documents, {held} held out, {len(data.words)} words, kernels: {native.name()}"
    table = Table(title=title)
    columns = ("", "cost held out", "by transport", "coherence", "held out", "words a topic", "time")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    for name, topics in found.items():
        own = by_transport = exact(topics.W_test @ topics.D)
        if name in plainly:  # memberships of least transport cost for these topics: a convex problem
            by_transport = exact(mixture_coordinates(data.X_test, topics.D, cost, n_jobs=args.jobs) @ topics.D)
        table.add_row(
            name,
            own,
            by_transport,
            f"{coherence(topics.D, data.X, TOP).mean():.3f}",
            f"{coherence(topics.D, data.X_test, TOP).mean():.3f}",
            f"{np.mean(1 / (topics.D**2).sum(axis=1)):.0f}",  # a uniform topic of as many is as concentrated
            f"{topics.seconds:.1f} s",
        )
    console.print(table)
    console.print("cost: with the model's own memberships, and with those of least transport cost", highlight=False)
    args.out.mkdir(parents=True, exist_ok=True)
    picture(args.out / "topics.png", data, ours, theirs)
    console.print(f"picture: {args.out / 'topics.png'}", highlight=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture (default: demo)")
    parser.add_argument("--topics", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--words", type=int, default=600, help="size of the vocabulary (default: 600)")
    parser.add_argument("--dimensions", type=int, default=50, help="of the word vectors (default: 50)")
    parser.add_argument("--epochs", type=int, default=100, help="passes over the data at most (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the split and of the sampler (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, help="threads (default: 1)")
    parser.add_argument("--quick", action="store_true", help="120 documents, 200 words, 4 topics, 40 epochs")
    args = parser.parse_args()
    args.documents = 395
    if args.quick:
        args.documents, args.words, args.topics, args.epochs, args.dimensions = 120, 200, 4, 40, 20
    try:
        run(args, Console())
    except (ImportError, ValueError) as error:
        Console(stderr=True).print(f"error: {error}", markup=False, soft_wrap=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
