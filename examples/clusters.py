"""Clusters with transport costs beside Euclidean ones, honestly: a table and a picture.

    python examples/clusters.py [--out DIR] [--quick]

Digits: 400 of scikit-learn's digits of 8 x 8 pixels in ten clusters, as images with squared distances between pixels,
beside k-means of their pixels. Palettes: 160 crops of the two photographs in scikit-learn, from the upper and the lower
half of each, which makes four classes. A crop is a cloud of 40 of its colours, in the cube of red, green and blue, and
a centroid a palette of eight colours with weights. Beside them stands k-means of histograms of 4 x 4 x 4 colours, and
of mean colours. The adjusted Rand index and the normalised mutual information compare clusters with classes, which
no method has seen: mean and range over several starts, each method with one start at a time.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_sample_images
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from threadpoolctl import threadpool_limits

from gibbsot import GridCost, WassersteinKMeans, plots

Array = NDArray[np.float64]
Labels = NDArray[np.intp]

CROP, COLOURS, PALETTE = 48, 40, 8


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


def draw(digits: tuple[Array, Array], colours: list[tuple[Array, Array]], path: Path) -> None:
    """Draw the centroids of digits by both methods, and palettes as bars of colours."""
    figure = plots.new_figure(9, 5)
    axes = figure.subplots(3, 1, height_ratios=[1, 1, 1.4])
    for ax, images, name in zip(axes[:2], digits, ("transport costs", "pixels"), strict=True):
        tiles = [np.pad(image.reshape(8, 8) / image.max(), 1) for image in images]
        ax.imshow(np.concatenate(tiles, axis=1), cmap="gray_r")
        ax.set_title(f"centroids of digits: {name}", fontsize=9)
    for row, (points, weights) in enumerate(colours):
        order = np.argsort(points.sum(axis=1))
        ends = np.append(0, np.cumsum(weights[order]))
        for start, end, colour in zip(ends[:-1], ends[1:], np.clip(points[order], 0, 1), strict=True):
            axes[2].barh(-row, end - start, left=start, color=colour, height=0.9)
    axes[2].set_title("palettes: centroids of clouds of colours", fontsize=9)
    for ax in axes:
        ax.axis("off")
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/clusters"), help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="fewer measures and starts")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    starts, n, crops = (2, 100, 40) if options.quick else (5, 400, 160)
    table = Table("data", "method", "adjusted Rand index", "NMI")

    X, y = load_digits(return_X_y=True)
    X, y, cost = X[:n] / X[:n].sum(axis=1, keepdims=True), y[:n], GridCost((8, 8))
    seeds = range(starts)
    ours = [WassersteinKMeans(10, cost=cost, random_state=seed).fit(X) for seed in seeds]
    theirs = [KMeans(10, n_init=1, random_state=seed).fit(X) for seed in seeds]
    table.add_row(f"{n} digits", "transport costs", *scores(ours, y))
    table.add_row("", "pixels", *scores(theirs, y))

    clouds, classes = palettes(crops)
    found = [WassersteinKMeans(4, support="free", n_support=PALETTE, random_state=seed).fit(clouds) for seed in seeds]
    table.add_row(f"{crops} palettes", "transport costs", *scores(found, classes))
    for name, data in (
        ("histograms", histograms(clouds)),
        ("mean colours", np.stack([c.mean(axis=0) for c in clouds])),
    ):
        fits = [KMeans(4, n_init=1, random_state=seed).fit(data) for seed in seeds]
        table.add_row("", name, *scores(fits, classes))
    Console(width=110).print(table)
    best, other, palette = (min(models, key=lambda model: model.inertia_) for models in (ours, theirs, found))
    draw((best.cluster_centers_, other.cluster_centers_), palette.cluster_centers_, options.out / "clusters.png")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
