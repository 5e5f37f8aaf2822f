"""Clusters with transport costs beside Euclidean ones, honestly: a table and a picture.

    python examples/clusters.py [--out DIR] [--quick]

Digits: 400 of scikit-learn's digits of 8 x 8 pixels in ten clusters, as images with squared distances between pixels,
beside k-means of their pixels. Silhouettes: 120 discs, squares, triangles and crosses of 16 x 16 pixels, of several
sizes and at several places, the same two ways. Documents: docstrings of SciPy in as many clusters as modules, as clouds
of word vectors, with centroids of eight vectors; beside k-means of shares of words, and of tf-idf. Word vectors are
singular vectors of the positive pointwise mutual information of words in a document. Palettes: 160 crops of the two
photographs in scikit-learn, from the upper and the lower half of each, which makes four classes. A crop is a cloud of
40 of its colours, in the cube of red, green and blue, and a centroid a palette of eight colours with weights. Beside
them stands k-means of histograms of 4 x 4 x 4 colours, and of mean colours. The adjusted Rand index and the normalised
mutual information compare clusters with classes, which no method has seen: mean and range over several starts, each
method with one start at a time.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_sample_images
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from gibbsot import GridCost, WassersteinKMeans, plots

Array = NDArray[np.float64]
Labels = NDArray[np.intp]

CROP, COLOURS, PALETTE = 48, 40, 8
SIDE = 16  # of silhouettes
MODULES = (
    "cluster.hierarchy",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "stats",
)
DIMENSIONS, NEAREST = 20, 6  # of word vectors, and words that are shown of a centroid


def silhouettes(count: int, seed: int = 0) -> tuple[Array, Labels]:
    """Return images of discs, squares, triangles and crosses, and which of these they are."""
    rng, found = np.random.default_rng(seed), []
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    for k in range(count):
        size, (dx, dy) = rng.uniform(4.0, 5.5), rng.uniform(-1, 1, 2)
        u, v = (x - dx) / size, (y - dy) / size
        shape = (
            u**2 + v**2 < 1.1,
            np.maximum(abs(u), abs(v)) < 0.9,
            (v < 0.8) & (v > 2 * abs(u) - 1.1),
            (np.minimum(abs(u), abs(v)) < 0.3) & (np.maximum(abs(u), abs(v)) < 1.2),
        )[k % 4]
        found.append(shape.ravel() / shape.sum())
    return np.array(found), np.arange(count) % 4


class Documents(NamedTuple):
    """Counts of words in documents, the words, their vectors, and the modules of the documents."""

    counts: Array
    words: NDArray[Any]
    vectors: Array
    classes: Labels

    def clouds(self) -> list[tuple[Array, Array]]:
        """Return the documents as clouds of word vectors."""
        return [(self.vectors[row > 0], row[row > 0]) for row in self.counts]

    def nearest(self, cloud: tuple[Array, Array]) -> str:
        """Return the words nearest to the heaviest points of a centroid."""
        points, weights = cloud
        order = points[np.argsort(-weights)]
        places = ((order[:, None] - self.vectors) ** 2).sum(axis=2).argmin(axis=1)
        return ", ".join(list(dict.fromkeys(self.words[places].tolist()))[:NEAREST])


def documents(most: int) -> Documents:
    """Return docstrings of SciPy, at most `most` of each module, and word vectors of them."""
    texts, classes = [], []
    for number, name in enumerate(MODULES):
        module = importlib.import_module(f"scipy.{name}")
        every = (inspect.getdoc(getattr(module, member)) or "" for member in module.__all__)
        own = [text for text in every if len(text) > 1500][:most]
        texts += own
        classes += [number] * len(own)
    counter = CountVectorizer(
        token_pattern=r"[a-z]{4,}", stop_words="english", min_df=5, max_df=0.3, max_features=400, dtype=float
    )
    counts = counter.fit_transform(texts).toarray()
    seen = (counts > 0).astype(float)
    together, alone = seen.T @ seen, seen.sum(axis=0)
    with np.errstate(divide="ignore"):
        information = np.maximum(np.log(together * len(counts) / np.outer(alone, alone)), 0)
    svd = TruncatedSVD(DIMENSIONS, algorithm="arpack", random_state=0)
    vectors = normalize(svd.fit_transform(information) / np.sqrt(svd.singular_values_))
    return Documents(counts, counter.get_feature_names_out(), vectors, np.array(classes))


def palettes(count: int, seed: int = 0) -> tuple[list[Array], Labels]:
    """Return crops of photographs as clouds of colours, and which half of which photograph they are from."""
    rng, clouds, classes = np.random.default_rng(seed), [], []
    for number, image in enumerate(load_sample_images().images):
        height, width = image.shape[0] // 2, image.shape[1]
        for half in range(2):
            for _ in range(count // 4):
                top = half * height + rng.integers(height - CROP)
                left = rng.integers(width - CROP)
                pixels = image[top : top + CROP, left : left + CROP].reshape(-1, 3) / 255
                clouds.append(pixels[rng.choice(len(pixels), COLOURS, replace=False)])
                classes.append(2 * number + half)
    return clouds, np.array(classes)


def histograms(clouds: list[Array]) -> Array:
    """Return the shares of 4 x 4 x 4 colours in each cloud."""
    edges = [np.linspace(0, 1, 5)] * 3
    return np.stack([np.histogramdd(cloud, edges)[0].ravel() / len(cloud) for cloud in clouds])


def scores(models: list[Any], classes: Labels) -> list[str]:
    """Return both scores of several fits, as text."""
    text = []
    for score in (adjusted_rand_score, normalized_mutual_info_score):
        values = [score(classes, model.labels_) for model in models]
        text.append(f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})")
    return text


def draw(ours: Array, theirs: Array, colours: list[tuple[Array, Array]], path: Path) -> None:
    """Draw the centroids of silhouettes by both methods, and palettes as bars of colours."""
    figure = plots.new_figure(9, 3.4)
    axes = figure.subplot_mosaic([["ours", "theirs"], ["palettes", "palettes"]], height_ratios=[1, 0.8])
    for name, centroids, how in (("ours", ours, "transport costs"), ("theirs", theirs, "pixels")):
        tiles = [np.pad(image.reshape(SIDE, SIDE) / image.max(), 1) for image in centroids]
        axes[name].imshow(np.concatenate(tiles, axis=1), cmap="Greys")
        axes[name].set_title(f"centroids of silhouettes: {how}", fontsize=10)
    below = axes["palettes"]
    for row, (points, weights) in enumerate(colours):
        order = np.argsort(points.sum(axis=1))
        ends = np.append(0, np.cumsum(weights[order]))
        for start, end, colour in zip(ends[:-1], ends[1:], np.clip(points[order], 0, 1), strict=True):
            below.barh(-row, end - start, left=start, color=colour, height=0.9)
    below.set_title("palettes: centroids of clouds of colours", fontsize=10)
    below.set_xlim(0, 1)
    for ax in axes.values():
        ax.axis("off")
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/clusters"), help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="fewer measures and starts")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    starts, n, shapes, texts, crops = (2, 100, 40, 6, 40) if options.quick else (5, 400, 120, 25, 160)
    table, seeds = Table("data", "method", "adjusted Rand index", "NMI"), range(starts)

    def euclidean(data: Array, count: int, classes: Labels, name: str) -> Any:
        fits = [KMeans(count, n_init=1, random_state=seed).fit(data) for seed in seeds]
        table.add_row("", name, *scores(fits, classes))
        return min(fits, key=lambda model: model.inertia_)

    def transport(X: Any, count: int, classes: Labels, what: str, **how: Any) -> Any:
        fits = [WassersteinKMeans(count, random_state=seed, **how).fit(X) for seed in seeds]
        table.add_row(f"{len(X)} {what}", "transport costs", *scores(fits, classes))
        return min(fits, key=lambda model: model.inertia_)

    pictures = {}
    X, y = load_digits(return_X_y=True)
    for what, side, count, (data, classes) in (
        ("digits", 8, 10, (X[:n] / X[:n].sum(axis=1, keepdims=True), y[:n])),
        ("silhouettes", SIDE, 4, silhouettes(shapes)),
    ):
        ours = transport(data, count, classes, what, cost=GridCost((side, side))).cluster_centers_
        theirs = euclidean(data, count, classes, "pixels").cluster_centers_
        pictures[what] = ours, theirs[linear_sum_assignment(cdist(ours, theirs))[1]]  # the nearest at the same places

    found = documents(texts)
    model = transport(found.clouds(), len(MODULES), found.classes, "documents", support="free", n_support=8)
    euclidean(normalize(found.counts, "l1"), len(MODULES), found.classes, "shares of words")
    euclidean(TfidfTransformer().fit_transform(found.counts).toarray(), len(MODULES), found.classes, "tf-idf")

    clouds, classes = palettes(crops)
    palette = transport(clouds, 4, classes, "palettes", support="free", n_support=PALETTE)
    euclidean(histograms(clouds), 4, classes, "histograms")
    euclidean(np.stack([c.mean(axis=0) for c in clouds]), 4, classes, "mean colours")
    console = Console(width=110)
    console.print(table)
    table = Table("documents", "most are of", "words nearest to the centroid")
    for k, centroid in enumerate(model.cluster_centers_):
        own = np.bincount(found.classes[model.labels_ == k], minlength=len(MODULES))
        table.add_row(str(own.sum()), f"{MODULES[own.argmax()]} ({own.max()})", found.nearest(centroid))
    console.print(table)
    draw(*pictures["silhouettes"], palette.cluster_centers_, options.out / "clusters.png")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
