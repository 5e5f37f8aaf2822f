"""The pictures of README and of the home page: `python examples/pictures.py [--out docs]`.

Arrows show where the light of a photograph goes to become another one, a photograph gets the colours of another one,
and a star becomes a heart along the geodesic: each as a strip for README, and smaller for a card of the home page. Data
come with scikit-learn, or are drawn here. `benchmarks/growth.py` makes the picture of the times.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path as Outline
from numpy.typing import NDArray
from sklearn.datasets import load_sample_image

from gibbsot import GridCost, PointCost, plots, solve

Array = NDArray[np.float64]


def star(side: int) -> Array:
    """Return a filled star of five points, side x side pixels."""
    angle = np.pi / 2 + np.arange(10) * np.pi / 5
    corners = np.where(np.arange(10) % 2, 0.42, 1.05)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return filled(corners, side)


def heart(side: int) -> Array:
    """Return a filled heart, side x side pixels."""
    t = np.linspace(0, 2 * np.pi, 200)
    x, y = 16 * np.sin(t) ** 3, 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return filled(np.stack([x, y + 2], axis=1) / 16, side)


def filled(corners: Array, side: int, finer: int = 6) -> Array:
    """Return how much of each pixel a polygon covers, as weights with sum one."""
    x = np.linspace(-1.2, 1.2, 2 * side * finer + 1)[1::2]
    places = np.stack(np.meshgrid(x, -x), axis=-1).reshape(-1, 2)
    inside = Outline(corners).contains_points(places).reshape(side, finer, side, finer).mean(axis=(1, 3))
    return inside / inside.sum()


def panels(figure: Figure, n: int, rows: int) -> list[Axes]:
    """Return n axes without frames, in rows."""
    axes = list(figure.subplots(rows, n // rows).ravel())
    for ax in axes:
        ax.axis("off")
    return axes


def draw_geodesic(path: Path, rows: int, side: int = 320) -> None:
    """Draw the geodesic from a star to a heart."""
    result = solve(star(side), heart(side), GridCost((side, side)))
    images = [result.interpolate(t, on_grid=True) for t in np.linspace(0, 1, 6)]
    figure = plots.new_figure(10 / rows, (2.1, 3.4)[rows - 1])
    for ax, image, t in zip(panels(figure, 6, rows), images, np.linspace(0, 1, 6), strict=True):
        share = np.array([int(plots.GREEN[k : k + 2], 16) for k in (1, 3, 5)]) * (1 - t) / 255
        share += np.array([int(plots.PINK[k : k + 2], 16) for k in (1, 3, 5)]) * t / 255
        shade = np.minimum(image / np.quantile(image[image > 0], 0.9), 1)
        ax.imshow(1 - shade[..., None] * (1 - share))
    figure.savefig(path, dpi=130)


def square(name: str, side: int) -> Array:
    """Return the middle of a photograph in grey, side x side pixels."""
    grey = load_sample_image(name).mean(axis=2)
    factor = min(grey.shape) // side
    top, left = ((length - factor * side) // 2 for length in grey.shape)
    middle = grey[top : top + factor * side, left : left + factor * side]
    return middle.reshape(side, factor, side, factor).mean(axis=(1, 3))


def draw_arrows(path: Path, rows: int, side: int = 210, step: int = 15) -> None:
    """Draw two photographs, and between them the first with the mean displacements of the light in each square."""
    a, b = square("flower.jpg", side), square("china.jpg", side)
    result = solve(a, b, GridCost((side, side), spacing=1.0), normalize=True)
    places = np.indices((side, side), np.float64)
    ends = np.moveaxis(np.asarray(result.map()).reshape(side, side, 2), 2, 0)

    def means(z: Array) -> Array:
        return z.reshape(side // step, step, side // step, step).mean(axis=(1, 3))

    rise, run = (means((end - place) * a) / means(a) for place, end in zip(places, ends, strict=True))
    y, x = (means(place) for place in places)
    images, shades = ((a, a, b), (1.0, 0.6, 1.0)) if rows == 1 else ((a, b), (0.6, 1.0))
    figure = plots.new_figure(10 * len(images) / 3, 3.35)
    axes = panels(figure, len(images), 1)
    for ax, image, shade in zip(axes, images, shades, strict=True):
        ax.imshow(image, cmap="gray", alpha=shade)
    axes[-2].quiver(x, y, run, rise, angles="xy", scale_units="xy", scale=1, color=plots.PINK, width=0.006)
    figure.savefig(path, dpi=130)


def draw_colours(path: Path, rows: int) -> None:
    """Draw a photograph, another one, and the first with all colours of the second, and with those that are near.

    For the last picture the shares of the colours may change, at a price.
    """
    photo, other = (load_sample_image(name)[::2, ::2] for name in ("china.jpg", "flower.jpg"))
    colours, places, counts = np.unique(photo.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    targets, weights = np.unique(other.reshape(-1, 3), axis=0, return_counts=True)
    p, q, cost = counts / counts.sum(), weights / weights.sum(), PointCost(colours, targets)
    images = [photo, other]
    for kl in (None, (np.inf, 2000.0)):
        result = solve(p, q, cost, kl=kl)
        images.append(np.clip(result.map()[places.ravel()].reshape(photo.shape) / 255, 0, 1))
    figure = plots.new_figure(10 / rows, 1.75 * rows)
    for ax, image in zip(panels(figure, 4, rows), images, strict=True):
        ax.imshow(image)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="the folder for the pictures")
    out = parser.parse_args().out
    for ending, rows in ((".png", 1), ("-card.png", 2)):
        draw_geodesic(out / f"star-heart{ending}", rows)
        draw_arrows(out / f"arrows{ending}", rows)
        draw_colours(out / f"colours{ending}", rows)


if __name__ == "__main__":
    main()
