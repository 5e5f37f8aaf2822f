"""Models: their components, what they approximate, and how the fit converged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import validation
from .style import DARK_GREY, GREEN, GREY, PALE_GREY, PALE_PINK, PINK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GAP = 2  # pixels between images


def components(
    figure: Figure,
    images: ArrayLike,
    shape: tuple[int, int],
    *,
    columns: int | None = None,
    cmap: str = "gray_r",
    numbers: Sequence[int] | None = None,
) -> None:
    """Draw images in a grid, row by row in the order given, each scaled to the full range of shades.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty figure.
    images : array of shape (n, height * width)
        Weights, such as the ``components_`` of a model.
    shape : (height, width)
        The shape of an image.
    columns : int, optional
        Images in a row; by default the grid is about 1.5 times as wide as high.
    cmap : str
        A colour map of matplotlib; "gray_r" draws weight in black, "gray" in white.
    numbers : sequence of int, optional
        A number for each image, drawn in its corner.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.plots import components, new_figure
    >>> components(new_figure(4, 3), np.eye(6), (2, 3))
    """
    tiles = _tiles(images, shape, "images")
    if columns is None:
        columns = max(1, round(np.sqrt(1.5 * len(tiles) * shape[0] / shape[1])))
    columns = min(validation.count(columns, "columns"), len(tiles))
    rows = [tiles[k : k + columns] for k in range(0, len(tiles), columns)]
    ax = figure.subplots()
    _mosaic(ax, rows, [_GAP] * len(rows), cmap)
    size = float(np.clip(7 * figure.bbox.height / figure.dpi / len(rows), 6, 11))  # of the numbers, in points
    for k, number in enumerate([] if numbers is None else numbers):
        left, top = (k % columns) * (shape[1] + _GAP), (k // columns) * (shape[0] + _GAP)
        text = ax.annotate(str(number), (left - 0.5, top - 0.5), (1.5, -1.5), textcoords="offset points", va="top")
        text.set(fontsize=size, color=PINK, bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5})


def profiles(figure: Figure, rows: ArrayLike, *, numbers: Sequence[int] | None = None) -> None:
    """Draw measures on bins, such as the components of a model whose data are not images: one panel for each.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty figure.
    rows : array of shape (n, m)
        The weights.
    numbers : sequence of int, optional
        A number for each measure, by default its index.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.plots import new_figure, profiles
    >>> profiles(new_figure(4, 3), np.eye(6))
    """
    weights = validation.real(rows, "rows")
    if weights.ndim != 2 or weights.size == 0:
        raise ValueError(f"rows: expected shape (n, m), got {weights.shape}")
    columns = max(1, round(np.sqrt(len(weights))))
    panels = figure.subplots(-(-len(weights) // columns), columns, squeeze=False, sharex=True).ravel()
    for ax, row, number in zip(panels, weights, numbers or range(len(weights)), strict=False):
        ax.stairs(row, fill=True, color=PALE_PINK)
        ax.stairs(row, color=PINK, linewidth=0.8)
        ax.set_title(str(number), loc="left", fontsize=7, color=DARK_GREY, pad=2)
        ax.set(yticks=[], ylim=(0, None), xlim=(0, len(row)))
        ax.spines[["top", "left", "right"]].set_visible(False)
        ax.tick_params(labelsize=7, length=2)
    for ax in panels[len(weights) :]:
        ax.set_visible(False)


def reconstruction(
    figure: Figure,
    X: ArrayLike,
    mixtures: ArrayLike,
    shape: tuple[int, int],
    *,
    columns: int = 10,
    cmap: str = "gray_r",
) -> None:
    """Draw images in rows, each above the mixture of components that approximates it.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty figure.
    X : array of shape (n, height * width)
        The data.
    mixtures : array of shape (n, height * width)
        Their approximations, ``memberships @ components_`` of a model.
    shape : (height, width)
        The shape of an image.
    columns : int
        Images in a row.
    cmap : str
        A colour map of matplotlib, as for `components`.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.plots import new_figure, reconstruction
    >>> reconstruction(new_figure(4, 3), np.eye(6), np.full((6, 6), 1 / 6), (2, 3))
    """
    data, mixed = _tiles(X, shape, "X"), _tiles(mixtures, shape, "mixtures")
    if len(mixed) != len(data):
        raise ValueError(f"mixtures: expected {len(data)} images as in X, got {len(mixed)}")
    columns = min(validation.count(columns, "columns"), len(data))
    rows = [tiles[k : k + columns] for k in range(0, len(data), columns) for tiles in (data, mixed)]
    ax, pairs = figure.subplots(), len(rows) // 2
    tops = _mosaic(ax, rows, [_GAP, _GAP + shape[0] // 4] * pairs, cmap)
    ax.set_yticks(tops + shape[0] / 2, ["data", "mixture"] * pairs)
    ax.tick_params(length=0)


def convergence(ax: Axes, history: Sequence[Any]) -> None:
    """Draw the convergence of a fit: the estimate V(z), the exact evaluations and the temperature over the epochs.

    Parameters
    ----------
    ax : matplotlib Axes
        Where to draw. The temperature has a second axis at the right. Outlying values are cut off, and said to be.
    history : sequence of Epoch
        The ``history_`` of a model.

    Raises
    ------
    ValueError
        If the history is empty.
    """
    if not len(history):
        raise ValueError("history: is empty; expected at least one epoch")
    epochs = np.arange(1, len(history) + 1)
    estimate, exact, T = np.array([(epoch.estimate, epoch.upper, epoch.temperature) for epoch in history]).T
    known = np.isfinite(exact)
    right = ax.twinx()
    lines = [
        *ax.plot(epochs, estimate, color=PINK, linewidth=1.5, label="V(z), the estimate"),
        *ax.plot(epochs[known], exact[known], "o-", color=GREEN, markersize=4, linewidth=1, label="exact, of a sample"),
        *right.plot(epochs, T, color=GREY, linewidth=1, drawstyle="steps-mid", label="temperature"),
    ]
    ax.set(xlabel="epoch", ylabel="mean transport cost", xlim=(0, len(history) + 1), ylim=(0, None))
    _cut_off(ax, np.concatenate([estimate, exact]))
    ax.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
    right.set_yscale("log")
    right.set_ylabel("temperature", color=GREY)
    right.tick_params(axis="y", which="both", colors=GREY)
    for axes in (ax, right):
        axes.tick_params(which="both", length=0)
        axes.spines[["top", "left", "right"]].set_visible(False)
    ax.grid(axis="y", color=PALE_GREY, linewidth=0.6)
    ax.legend(handles=lines, frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _cut_off(ax: Axes, values: NDArray[np.float64]) -> None:
    """Cut the axis off above most of the values if the largest are far above, or not finite."""
    found = values[np.isfinite(values)]
    if not len(found):
        return
    usual = float(np.quantile(found, 0.8, method="lower"))
    if 0 < 10 * usual < found.max():
        top = 3 * usual
        above = np.count_nonzero(found > top)
        ax.set_ylim(0, top)
        note = ax.annotate(f"{above} above, up to {found.max():.2g}", (0.99, 0.98), xycoords="axes fraction")
        note.set(ha="right", va="top", fontsize=8, color=DARK_GREY)


def _tiles(images: ArrayLike, shape: tuple[int, int], name: str) -> NDArray[np.floating]:
    """Return images of shape (n, height, width), each scaled to [0, 1]."""
    sides = validation.sides(shape)
    if len(sides) != 2:
        raise ValueError(f"shape: expected (height, width), got {shape!r}")
    rows = validation.real(images, name)
    if rows.ndim != 2 or len(rows) == 0 or rows.shape[1] != sides[0] * sides[1]:
        size = f"(n, {sides[0] * sides[1]}) for images of {sides[0]} x {sides[1]}"
        raise ValueError(f"{name}: expected shape {size}, got {rows.shape}")
    validation.check_weights(rows, name, empty_rows=True)
    # the heaviest tenth of the mass is clipped: one outlying pixel would make all others pale
    ordered = np.sort(rows, axis=1)
    heavy = np.cumsum(ordered, axis=1) >= 0.9 * ordered.sum(axis=1, keepdims=True)
    full = np.take_along_axis(ordered, heavy.argmax(axis=1)[:, None], axis=1)
    tiles = np.divide(rows, full, out=np.zeros_like(rows), where=full > 0)
    return np.clip(tiles, 0, 1).reshape(-1, *sides)


def _mosaic(ax: Axes, rows: list[NDArray[np.floating]], gaps: list[int], cmap: str) -> NDArray[np.int_]:
    """Draw rows of framed images as one image, with gaps below the rows; return the top pixel of each row."""
    import matplotlib as mpl
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    _, height, width = rows[0].shape
    tops = np.cumsum([0, *(height + gap for gap in gaps[:-1])])
    pixels = np.full((tops[-1] + height, len(rows[0]) * (width + _GAP) - _GAP), np.nan)
    frames = []
    for row, top in zip(rows, tops, strict=True):
        for left, image in zip(range(0, pixels.shape[1], width + _GAP), row, strict=False):
            pixels[top : top + height, left : left + width] = image
            frames.append(Rectangle((left - 0.5, top - 0.5), width, height))
    ax.imshow(pixels, cmap=mpl.colormaps[cmap].with_extremes(bad="white"), vmin=0, vmax=1, interpolation="nearest")
    ax.add_collection(PatchCollection(frames, facecolor="none", edgecolor=PALE_GREY, linewidth=0.8))
    ax.set(xticks=[], yticks=[], xlim=(-1.5, pixels.shape[1] + 0.5), ylim=(pixels.shape[0] + 0.5, -1.5))
    ax.spines[:].set_visible(False)
    return tops
