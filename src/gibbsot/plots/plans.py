"""Transport plans: as a matrix with its marginals, or as what moves where in the plane and in space."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .style import DARK_GREY, GREEN, PALE_GREEN, PALE_PINK, PINK, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

_MAX_ARCS = 300  # that are drawn one by one
_MAX_DOTS = 5000  # of a matrix that are drawn one by one
_BINS = 200  # on either axis of a matrix with more dots
_SIDE = 280.0  # of a matrix in points, about
_MAX_LABELS, _MAX_LETTERS = 30, 50  # of an axis, and of an axis whose labels are not turned
_CELLS, _FEW_CELLS = 14, 7  # of the displacement field along the longer side, and where arrows are long

Points = NDArray[np.float64]


def plan(
    ax: Axes,
    Z: Any,
    exact: Any | None = None,
    title: str = "",
    names: tuple[str, str] = ("source", "target"),
    points: tuple[ArrayLike, ArrayLike] | None = None,
    labels: tuple[Sequence[Any] | None, Sequence[Any] | None] = (None, None),
    weights: tuple[ArrayLike, ArrayLike] | None = None,
) -> None:
    """Draw a plan as a matrix, with the measures at its sides.

    A larger square moves more mass. Beyond 5,000 entries, darker pixels have more mass.

    Parameters
    ----------
    ax : matplotlib Axes
        Where to draw.
    Z : array or sparse matrix of shape (m1, m2)
        The plan.
    exact : array or sparse matrix of shape (m1, m2), optional
        An exact plan, drawn below in green, as in the paper.
    title : str
        The title of the axes.
    names : pair of str
        What the axes are called.
    points : pair of arrays of shape (m1,) and (m2,), optional
        The points of both measures on the line, by default their indices.
    labels : pair of sequences or None
        Labels of both axes in the place of indices, which are shown if they are at most 30.
    weights : pair of arrays of shape (m1,) and (m2,), optional
        The measures, where the plan does not have all of their mass; what is left over is pale.

    Examples
    --------
    >>> from gibbsot.plots import new_figure, plan
    >>> figure = new_figure(4, 4)
    >>> plan(figure.subplots(), [[0.5, 0.0], [0.0, 0.5]])
    """
    entries = sparse.coo_array(Z)
    given = [np.arange(m) for m in entries.shape] if points is None else [np.ravel(x) for x in points]
    margin = 0.5 if points is None else 0.0
    limits = [(float(x.min()) - margin, float(x.max()) + margin) for x in given]
    limits = [(low, high) if high > low else (low - 0.5, low + 0.5) for low, high in limits]
    area = 14.0 if points is not None else float(np.clip((_SIDE / max(entries.shape)) ** 2, 14, 900))
    for matrix, colour, size, text in ((exact, PALE_GREEN, 6.4 * area, "exact"), (entries, PINK, area, "Gibbs-OT")):
        if matrix is not None:
            _dots(ax, sparse.coo_array(matrix), given, limits, colour, size, text)
    ax.set(xlabel=label(names[0]), ylabel=label(names[1]), xlim=limits[0], ylim=limits[1], box_aspect=1)
    if points is None:
        _ticks(ax, labels)
    top, right = ax.inset_axes((0, 1.02, 1, 0.15), sharex=ax), ax.inset_axes((1.02, 0, 0.15, 1), sharey=ax)
    for k, (side, colours) in enumerate(((top, (PALE_GREEN, GREEN)), (right, (PALE_PINK, PINK)))):
        bins = min(_BINS, len(given[k])) if points is None else 50
        whole = None if weights is None else np.asarray(weights[k])
        for mass, colour in zip((whole, entries.sum(axis=1 - k)), colours, strict=True):
            if mass is not None:
                heights, edges = np.histogram(given[k], bins, limits[k], weights=mass)
                side.stairs(heights, edges, fill=True, color=colour, orientation="horizontal" if k else "vertical")
        side.axis("off")
    top.set_title(title)
    if exact is not None:
        ax.legend(frameon=False, markerscale=1.5)


def _ticks(ax: Axes, labels: tuple[Sequence[Any] | None, Sequence[Any] | None]) -> None:
    """Put labels at both axes, or indices, which are integers."""
    from matplotlib.ticker import MaxNLocator

    for axis, names in zip((ax.xaxis, ax.yaxis), labels, strict=True):
        axis.set_major_locator(MaxNLocator(integer=True))
        if names is not None and len(names) <= _MAX_LABELS:
            turned = axis is ax.xaxis and max(len(str(name)) for name in names) * len(names) > _MAX_LETTERS
            axis.set_ticks(range(len(names)), [label(str(name)) for name in names])
            if turned:
                ax.tick_params(axis="x", labelrotation=45)


def _dots(ax: Axes, entries: Any, points: Any, limits: Any, colour: str, area: float, text: str) -> None:
    """Draw the entries of a matrix as dots, or many of them as pixels."""
    from matplotlib.colors import LinearSegmentedColormap

    x, y = points[0][entries.row], points[1][entries.col]
    if entries.nnz <= _MAX_DOTS:
        size = area * np.sqrt(entries.data / entries.data.max())
        ax.scatter(x, y, s=size, c=colour, marker="s", linewidths=0, label=text)
        return
    mass, _, _ = np.histogram2d(x, y, _BINS, limits, weights=entries.data)
    shades = LinearSegmentedColormap.from_list(text, ["white", colour]).with_extremes(bad=(1, 1, 1, 0))
    pixels = np.where(mass > 0, 0.3 + 0.7 * np.sqrt(mass / mass.max()), np.nan).T
    extent = (*limits[0], *limits[1])
    ax.imshow(
        pixels, cmap=shades, vmin=0, vmax=1, origin="lower", extent=extent, interpolation="nearest", aspect="auto"
    )
    ax.plot([], [], "s", color=colour, label=text)


def displacements(
    ax: Axes,
    Z: Any,
    X: Points,
    Y: Points,
    names: tuple[str, str],
    *,
    shape: tuple[int, int] | None = None,
    weights: tuple[ArrayLike, ArrayLike] | None = None,
) -> None:
    """Draw a plan in the plane: both measures, and what moves where.

    Up to 300 arcs are lines, darker for more mass. More arcs are drawn as a field: an arrow for each of at most 14 x 14
    cells, or 7 x 7 for long arrows, shows the mean displacement of the mass in it, darker for more mass. Where both
    images have mass, it is grey.

    Parameters
    ----------
    ax : matplotlib Axes
        Where to draw.
    Z : array or sparse matrix of shape (m1, m2)
        The plan.
    X, Y : arrays of shape (m1, 2) and (m2, 2)
        The points of both measures, x and y.
    names : pair of str
        The names of both measures in the legend.
    shape : (height, width), optional
        The points are pixels of images of this shape; y increases downwards.
    weights : pair of arrays of shape (m1,) and (m2,), optional
        The measures, where the plan does not have all of their mass: points of which mass is left over are rings.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.plots import displacements, new_figure
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> displacements(new_figure(4, 4).subplots(), [[0.5, 0.0], [0.0, 0.5]], X, X + 1, ("a", "b"))
    """
    entries = sparse.coo_array(Z)
    moved = [np.asarray(entries.sum(axis=axis)).ravel() for axis in (1, 0)]
    mass = moved if weights is None else [np.asarray(x, np.float64) for x in weights]
    sides = ((X, mass[0], GREEN, names[0]), (Y, mass[1], PINK, names[1]))
    if shape is None:
        for k, (points, weight, colour, name) in enumerate(sides):
            support = weight > 0
            size = np.maximum(30 * weight[support] / weight.max() * min(1, 150 / support.sum()), 0.5)
            x, y = points[support].T
            kept = moved[k][support] > 0.5 * weight[support]
            ax.scatter(x[kept], y[kept], s=size[kept], c=colour, linewidths=0, label=label(name))
            if not kept.all():
                over = ax.scatter(
                    x[~kept], y[~kept], s=size[~kept], facecolors="none", edgecolors=colour, linewidths=0.7
                )
                over.set_label(f"{label(name)}, left over")
    else:
        _overlay(ax, sides, shape)
    _arcs(ax, X[entries.row], Y[entries.col], entries.data)
    ax.set_aspect("equal")
    _same_size(ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4))


def _same_size(legend: Legend) -> None:
    """Draw the dots of a legend in one size, whatever they have in the figure."""
    from matplotlib.collections import PathCollection

    for handle in legend.legend_handles:
        if isinstance(handle, PathCollection):
            handle.set_sizes([40])


def _overlay(ax: Axes, sides: Any, shape: tuple[int, int]) -> None:
    """Draw two images over each other: grey where both have mass, in the colour of the one that has more."""
    from matplotlib.colors import to_rgb

    images = np.zeros((2, *shape))
    for image, (points, weights, colour, name) in zip(images, sides, strict=True):
        np.add.at(image, tuple(points.astype(int).T[::-1]), weights)
        ax.plot([], [], "s", color=colour, label=label(name))
    full = np.quantile(images[images > 0], 0.95)  # a few outlying pixels would make all others pale
    images = np.clip(images / full, 0, 1)
    common = images.min(axis=0)
    pixels = np.repeat(1 - 0.3 * common[..., None], 3, axis=2)
    for image, (_, _, colour, _) in zip(images, sides, strict=True):
        pixels -= 0.6 * (image - common)[..., None] * (1 - np.array(to_rgb(colour)))
    ax.imshow(np.clip(pixels, 0, 1), interpolation="nearest")
    ax.set(xticks=[], yticks=[])


def _arcs(ax: Axes, start: Points, end: Points, mass: NDArray[np.float64]) -> None:
    """Draw arcs one by one, or many of them as the mean displacements of cells."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    if len(mass) <= _MAX_ARCS:
        crowd = min(1.0, np.sqrt(100 / len(mass)))  # many lines cross, so that each is paler
        shades = crowd * (0.15 + 0.85 * mass / mass.max())
        lines = np.stack([start, end], axis=1).tolist()
        ax.add_collection(LineCollection(lines, colors=DARK_GREY, alpha=shades, linewidth=0.8))
        return
    low, wide = start.min(axis=0), np.ptp(start, axis=0).max() or 1.0
    far = np.average(np.linalg.norm(end - start, axis=1), weights=mass) > wide / 4
    cells = _FEW_CELLS if far else _CELLS
    cell = np.minimum((start - low) / wide * cells, cells - 1).astype(int)
    index = cell[:, 0] * cells + cell[:, 1]
    total = np.bincount(index, mass, cells**2)
    used = total > 1e-2 * total.max()
    tail, head = (
        np.stack([np.bincount(index, mass * x, cells**2)[used] / total[used] for x in points.T])
        for points in (start, end)
    )
    colours = [to_rgba(DARK_GREY, 0.4 + 0.6 * share) for share in np.sqrt(total[used] / total.max())]
    ax.quiver(*tail, *(head - tail), color=colours, angles="xy", scale_units="xy", scale=1, width=0.004, zorder=3)
    ax.update_datalim(head.T)
    ax.autoscale_view()


def projections(
    figure: Figure,
    Z: Any,
    X: Points,
    Y: Points,
    names: tuple[str, str],
    *,
    shape: tuple[int, int, int] | None = None,
    panels: Any = None,
    weights: tuple[ArrayLike, ArrayLike] | None = None,
) -> None:
    """Draw a plan in space as three projections, each along one axis, as `displacements` does.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty figure.
    Z : array or sparse matrix of shape (m1, m2)
        The plan.
    X, Y : arrays of shape (m1, 3) and (m2, 3)
        The points of both measures, x, y and z.
    names : pair of str
        The names of both measures in the legend.
    shape : (depth, height, width), optional
        The points are voxels of volumes of this shape.
    panels : three matplotlib Axes, optional
        Where to draw, by default in new ones.
    weights : pair of arrays, optional
        As for `displacements`.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.plots import new_figure, projections
    >>> X = np.eye(3)
    >>> projections(new_figure(9, 3), X / 3, X, X + 1, ("a", "b"))
    """
    panels = figure.subplots(1, 3) if panels is None else panels
    for ax, (first, second) in zip(panels, combinations(range(3), 2), strict=True):
        axes = [first, second]
        side = None if shape is None else (shape[2 - second], shape[2 - first])
        displacements(ax, Z, X[:, axes], Y[:, axes], names, shape=side, weights=weights)
        ax.set(xlabel="xyz"[first], ylabel="xyz"[second])
        ax.get_legend().remove()
    handles, texts = panels[0].get_legend_handles_labels()
    _same_size(figure.legend(handles, texts, frameon=False, loc="outside upper center", ncols=2))
