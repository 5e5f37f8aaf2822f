"""The pictures of README and of the home page: `python examples/pictures.py [--out docs]`.

A star becomes a heart along the geodesic, and a photograph gets the colours of another one. Data come with
scikit-learn, or are drawn here. `benchmarks/growth.py` makes the picture of the times.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.path import Path as Outline
from numpy.typing import NDArray
from sklearn.datasets import load_sample_image

from gibbsot import PointCost, plots, solve

Array = NDArray[np.float64]


def star(n: int) -> Array:
    """Return points that fill a star of five points."""
    angle = np.pi / 2 + np.arange(10) * np.pi / 5
    corners = np.where(np.arange(10) % 2, 0.42, 1.05)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return filled(corners, n)


def heart(n: int) -> Array:
    """Return points that fill a heart."""
    t = np.linspace(0, 2 * np.pi, 200)
    x, y = 16 * np.sin(t) ** 3, 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return filled(np.stack([x, y + 2], axis=1) / 16, n)


def filled(corners: Array, n: int) -> Array:
    """Return n points in a polygon, evenly spread."""
    side = 400
    places = np.stack(np.meshgrid(*[np.linspace(-1.2, 1.2, side)] * 2), axis=-1).reshape(-1, 2)
    inside = places[Outline(corners).contains_points(places)]
    return inside[np.random.default_rng(0).permutation(len(inside))[:n]]


def draw_geodesic(path: Path, n: int = 6000) -> None:
    """Draw the geodesic from a star to a heart."""
    result = solve(None, None, PointCost(star(n), heart(n)))
    figure = plots.new_figure(10, 2.1)
    for ax, t in zip(figure.subplots(1, 6), np.linspace(0, 1, 6), strict=True):
        points = result.interpolate(t).points
        share = np.array([int(plots.GREEN[k : k + 2], 16) for k in (1, 3, 5)]) * (1 - t) / 255
        share += np.array([int(plots.PINK[k : k + 2], 16) for k in (1, 3, 5)]) * t / 255
        ax.scatter(*points.T, s=1.5, color=tuple(share), linewidths=0)
        ax.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
        ax.axis("off")
    figure.savefig(path, dpi=130)


def draw_colours(path: Path) -> None:
    """Draw a photograph, another one, and the first with the colours of the second."""
    photo, other = (load_sample_image(name)[::2, ::2] for name in ("china.jpg", "flower.jpg"))
    colours, places, counts = np.unique(photo.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    targets, weights = np.unique(other.reshape(-1, 3), axis=0, return_counts=True)
    result = solve(counts, weights, PointCost(colours, targets), normalize=True)
    moved = result.map()[places.ravel()].reshape(photo.shape) / 255
    figure = plots.new_figure(10, 2.4)
    for ax, image in zip(figure.subplots(1, 3), (photo, other, moved), strict=True):
        ax.imshow(image)
        ax.axis("off")
    figure.savefig(path, dpi=130)


def main() -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="the folder for the pictures")
    out = parser.parse_args().out
    draw_geodesic(out / "star-heart.png")
    draw_colours(out / "colours.png")


if __name__ == "__main__":
    main()
