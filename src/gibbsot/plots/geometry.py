"""The geometry of a data set: distances in a heat map, measures in the plane, and geodesics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from ..core import labels, validation
from . import style
from .fits import _GAP, _mosaic, _tiles
from .style import DARK_GREY, PALE_GREY, PINK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_THUMBNAIL = 0.055  # of the wider side of the axes
_NAMES = 40  # of measures beside a heat map
_DOTS = 2000  # that are drawn one by one, at most, as vectors

Array = NDArray[np.float64]


def cluster_order(D: ArrayLike) -> NDArray[np.int32]:
    """Return an order of measures in which near ones are neighbours: the leaves of average linkage.

    Parameters
    ----------
    D : array of shape (n, n)
        Distances, symmetric.

    Returns
    -------
    array of int of shape (n,)

    Examples
    --------
    >>> cluster_order([[0, 9, 1], [9, 0, 8], [1, 8, 0]]).tolist()
    [1, 2, 0]
    """
    distances = _distances(D)
    if len(distances) < 3:
        return np.arange(len(distances), dtype=np.int32)
    condensed = squareform((distances + distances.T) / 2, checks=False)
    return leaves_list(linkage(condensed, "average", optimal_ordering=len(distances) <= 500))


def plane(squared: ArrayLike) -> Array:
    r"""Return points of the plane whose distances approximate given ones: classical multidimensional scaling.

    .. math:: B = -\tfrac12 J S J, \quad J = I - \tfrac1n 1 1^T

    with squared distances S; the points are the first two eigenvectors of B times the roots of their eigenvalues.

    Parameters
    ----------
    squared : array of shape (n, n)
        Squared distances, symmetric; transport costs with squared distances are such.

    Returns
    -------
    array of shape (n, 2)

    Examples
    --------
    >>> np.abs(plane([[0, 4, 16], [4, 0, 4], [16, 4, 0]])).round(6)
    array([[2., 0.],
           [0., 0.],
           [2., 0.]])
    """
    S = _distances(squared)
    S = (S + S.T) / 2
    B = -(S - S.mean(axis=0) - S.mean(axis=1, keepdims=True) + S.mean()) / 2
    values, vectors = np.linalg.eigh(B)
    found = np.zeros((len(S), 2))
    for k in range(min(2, len(S))):
        vector = vectors[:, -1 - k]
        sign = 1.0 if vector[np.abs(vector).argmax()] >= 0 else -1.0  # eigenvectors have none of their own
        found[:, k] = sign * vector * np.sqrt(max(values[-1 - k], 0.0))
    return found


def heat_map(
    ax: Axes,
    D: ArrayLike,
    *,
    order: ArrayLike | None = None,
    label: str = "transport cost",
    names: Sequence[str] | None = None,
) -> None:
    """Draw a matrix of distances, sorted so that near measures are neighbours.

    Parameters
    ----------
    ax : matplotlib Axes
        Where to draw.
    D : array of shape (n, n)
        Distances.
    order : array of int of shape (n,), optional
        The order of the measures, by default that of `cluster_order`.
    label : str
        What the colours show.
    names : sequence of str, optional
        The names of the measures, by default the labels of a DataFrame; up to 40 are shown.

    Examples
    --------
    >>> from gibbsot.plots import heat_map, new_figure
    >>> heat_map(new_figure(4, 3).subplots(), [[0, 9, 1], [9, 0, 8], [1, 8, 0]])
    """
    distances = _distances(D)
    chosen = cluster_order(distances) if order is None else np.asarray(order)
    image = ax.imshow(distances[np.ix_(chosen, chosen)], cmap="magma_r", vmin=0, interpolation="nearest")
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.8, label=label)
    bar.outline.set_visible(False)
    bar.ax.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
    ax.set(xticks=[], yticks=[], xlabel=f"{len(distances):,} measures, sorted by average linkage")
    given = labels.of_rows(D) if names is None else names
    if given is not None and len(given) == len(distances) <= _NAMES:
        texts = [style.label(str(given[k])) for k in chosen]
        ax.set_yticks(range(len(texts)), texts, fontsize=float(np.clip(200 / len(texts), 5, 10)))
        ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def thumbnails(
    ax: Axes, points: ArrayLike, images: ArrayLike | None = None, shape: tuple[int, int] | None = None, *,
    cmap: str = "gray_r",
) -> None:  # fmt: skip
    """Draw measures in the plane: images where they do not overlap, dots elsewhere.

    Parameters
    ----------
    ax : matplotlib Axes
        Where to draw.
    points : array of shape (n, 2)
        Where the measures are.
    images : array of shape (n, height * width), optional
        Their weights.
    shape : (height, width), optional
        The shape of an image.
    cmap : str
        A colour map of matplotlib; "gray_r" draws weight in black, "gray" in white.

    Examples
    --------
    >>> from gibbsot.plots import heat_map, new_figure
    >>> thumbnails(new_figure(4, 3).subplots(), np.eye(6)[:, :2], np.eye(6), (2, 3))
    """
    import matplotlib as mpl

    places = validation.points(points, "points").astype(np.float64)
    if places.shape[1] != 2:
        raise ValueError(f"points: expected shape (n, 2), got {places.shape}")
    size = _THUMBNAIL * (np.ptp(places, axis=0).max() or 1.0)
    ax.plot(*places.T, ".", color=PINK, markersize=3, alpha=0.6, rasterized=len(places) > _DOTS)
    if images is not None and shape is not None:
        tiles, colours = _tiles(images, shape, "images"), mpl.colormaps[cmap]
        if len(tiles) != len(places):
            raise ValueError(f"images: expected {len(places)} as there are points, got {len(tiles)}")
        half = size / 2 * np.array([shape[1], shape[0]]) / max(shape)
        drawn = np.empty((0, 2))
        for place, tile in zip(places, tiles, strict=True):
            if (np.abs(drawn - place) < 2.1 * half).all(axis=1).any():
                continue
            drawn = np.vstack([drawn, place])
            extent = (place[0] - half[0], place[0] + half[0], place[1] - half[1], place[1] + half[1])
            ax.imshow(colours(tile), extent=extent, interpolation="antialiased", zorder=2)
    low, high = places.min(axis=0) - size, places.max(axis=0) + size
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_color(PALE_GREY)


def geodesics(
    figure: Figure, paths: ArrayLike, shape: tuple[int, int], *, times: Sequence[float], labels: Sequence[str] = (),
    cmap: str = "gray_r",
) -> None:  # fmt: skip
    """Draw geodesics as rows of images.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty figure.
    paths : array of shape (k, n, height * width)
        The measures along k geodesics.
    shape : (height, width)
        The shape of an image.
    times : sequence of n numbers
        Where on the geodesics the measures are.
    labels : sequence of k str
        The texts beside the rows.
    cmap : str
        A colour map of matplotlib, as for `components`.

    Examples
    --------
    >>> from gibbsot.plots import heat_map, new_figure
    >>> geodesics(new_figure(4, 3), np.eye(6).reshape(2, 3, 6), (2, 3), times=[-1, 0, 1], labels=["first", "second"])
    """
    given = validation.real(paths, "paths")
    if given.ndim != 3 or given.shape[1] != len(times):
        raise ValueError(f"paths: expected shape (k, {len(times)}, height * width), got {given.shape}")
    rows = list(_tiles(given.reshape(-1, given.shape[2]), shape, "paths").reshape(len(given), -1, *shape))
    ax = figure.subplots()
    tops = _mosaic(ax, rows, [_GAP] * len(rows), cmap)
    ax.set_yticks(tops + shape[0] / 2, labels or [""] * len(rows), color=DARK_GREY)
    ax.set_xticks(np.arange(len(times)) * (shape[1] + _GAP) + shape[1] / 2, [f"{t:+g}" if t else "0" for t in times])
    ax.set_xlabel("standard deviations from the mean", color=DARK_GREY)
    ax.tick_params(length=0, colors=DARK_GREY)


def _distances(D: ArrayLike) -> Array:
    """Return a square matrix of finite numbers."""
    matrix = validation.real(D, "D").astype(np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"D: expected shape (n, n), got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("D: has NaN or infinite entries; expected finite ones")
    return matrix
