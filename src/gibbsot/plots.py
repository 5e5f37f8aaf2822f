"""Pictures, with matplotlib (the extra ``plots``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .core import validation
from .sampling import theory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .models._history import Epoch
    from .solvers.results import OTResult

_PINK, _GREEN, _GREY = "#d6176f", "#7fd6a3", "#9a9a9a"
_DARK, _LIGHT = "#2a7f4f", "#d9d9d9"
_GAP = 2  # pixels between images


def plan(ax: Axes, Z: Any, exact: Any | None = None, title: str = "") -> None:
    """Draw a plan between measures on [0, 1], in the paper's colours: pink dots over the exact plan in green.

    Parameters
    ----------
    ax : matplotlib Axes
    Z, exact : arrays or sparse matrices of shape (m1, m2)
        Plans; a larger dot moves more mass.
    title : str
    """
    for matrix, colour, area, label in ((exact, _GREEN, 90, "exact"), (Z, _PINK, 14, "Gibbs-OT")):
        if matrix is None:
            continue
        entries = sparse.coo_array(matrix)
        x, y = ((k + 0.5) / side for k, side in zip((entries.row, entries.col), entries.shape, strict=True))
        size = area * np.sqrt(entries.data / entries.data.max())
        ax.scatter(x, y, s=size, c=colour, marker="s", linewidths=0, label=label)
    ax.set(title=title, xlabel="source", ylabel="target", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xticks([0, 0.5, 1])
    ax.set_yticks([0, 0.5, 1])
    ax.legend(frameon=False, markerscale=1.5)


def diagnostics(figure: Figure, result: OTResult, probability: float = 0.05) -> None:
    """Draw a run beside what the paper's appendix says of it: four panels over the half steps.

    V(z); the expected increments O(z, T); the temperature against its bound calT(z), which V(z) needs to fall; and the
    martingale r with the theorem's band, taken for each half step by itself and with the run's own C and D (see
    `theory.concentration_probability`), half of the probability on either side. Infinite costs leave its upper side
    open.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty one.
    result : OTResult
        Of one problem, from ``solve(..., diagnostics=True)``.
    probability : float
    """
    seen = result.diagnostics
    if seen is None or not result.single:
        raise ValueError("result: expected that of one problem, from solve(..., diagnostics=True)")
    steps = np.arange(1, len(seen.T) + 1)
    top, middle, low, bottom = figure.subplots(4, 1, sharex=True)
    top.plot(np.arange(1, len(seen.value) + 1), seen.value, color=_PINK, linewidth=0.8)
    top.axhline(result.lower_bound, color=_GREY, linestyle=":", linewidth=1, label="certified lower bound")
    top.set_ylabel("V(z)")
    middle.plot(steps, seen.increment, ".", color=_PINK, markersize=2)
    middle.axhline(0, color=_GREY, linewidth=0.8)
    middle.set_yscale("symlog", linthresh=max(np.quantile(np.abs(seen.increment), 0.05), np.finfo(float).tiny))
    middle.set_ylabel("expected increment")
    low.semilogy(steps, np.where(seen.bound > 0, seen.bound, np.nan), ".", color=_GREEN, markersize=2, label="calT(z)")
    low.semilogy(steps, seen.T, color=_PINK, label="T")
    low.set_ylabel("temperature")

    marks = np.unique(np.linspace(1, len(steps), 200).astype(int))
    size, half = max(result.problem.cost.shape), probability / 2
    left = [theory.concentration_width(half, (seen.C * seen.T)[:n]) for n in marks]
    right = [
        theory.concentration_width(half, theory.right_steps(seen.D[:n], seen.T[:n], size, half / 2), half / 2)
        for n in marks
    ]
    top_edge = np.where(np.isfinite(right), right, 10 * max(np.ptp(seen.r), max(left)))
    bottom.fill_between(
        marks + 1, np.negative(left), top_edge, color=_GREEN, alpha=0.4, label=f"{1 - probability:.0%} band"
    )
    bottom.plot(np.arange(1, len(seen.r) + 1), seen.r - seen.r[0], color=_PINK, linewidth=0.8)
    bottom.set_yscale("symlog", linthresh=max(np.ptp(seen.r), np.finfo(float).tiny))
    bottom.set(ylabel="martingale", xlabel="half step", xlim=(1, len(seen.value)))
    for axes in (middle, bottom):
        low_end, high_end = axes.get_ylim()
        axes.set_yticks([low_end / 10, 0, high_end / 10], [f"{low_end / 10:.0e}", "0", f"{high_end / 10:.0e}"])
        axes.minorticks_off()
    for axes in (top, low, bottom):
        axes.legend(frameon=False)


def components(
    figure: Figure, images: ArrayLike, shape: tuple[int, int], *, columns: int | None = None, cmap: str = "gray_r"
) -> None:
    """Draw images in a grid, row by row in the order given, each in its own range of shades.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty one.
    images : array of shape (n, height * width)
        Weights, such as the ``components_`` of a model.
    shape : (height, width)
    columns : int, optional
        By default as many as make the grid about half as wide again as it is high.
    cmap : str
        A colour map of matplotlib's; "gray_r" draws ink on paper, "gray" light on black.
    """
    tiles = _tiles(images, shape, "images")
    if columns is None:
        columns = max(1, round(np.sqrt(1.5 * len(tiles) * shape[0] / shape[1])))
    columns = min(validation.count(columns, "columns"), len(tiles))
    rows = [tiles[k : k + columns] for k in range(0, len(tiles), columns)]
    _mosaic(figure.subplots(), rows, [_GAP] * len(rows), cmap)


def reconstruction(
    figure: Figure,
    X: ArrayLike,
    mixtures: ArrayLike,
    shape: tuple[int, int],
    *,
    columns: int = 10,
    cmap: str = "gray_r",
) -> None:
    """Draw images in rows, each above the mixture of components that stands for it.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty one.
    X, mixtures : arrays of shape (n, height * width)
        The data, and what a model makes of them: ``memberships @ components_``.
    shape : (height, width)
    columns : int
    cmap : str
        As for `components`.
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


def convergence(ax: Axes, history: Sequence[Epoch]) -> None:
    """Draw how a fit went: the estimate V(z) and the exact looks over the epochs, and the temperature beside them.

    Parameters
    ----------
    ax : matplotlib Axes
    history : sequence of Epoch
        The ``history_`` of a model.
    """
    if not len(history):
        raise ValueError("history: is empty; expected that of a model with at least one epoch")
    epochs = np.arange(1, len(history) + 1)
    estimate, exact, T = np.array([(epoch.estimate, epoch.upper, epoch.temperature) for epoch in history]).T
    looks = np.isfinite(exact)
    right = ax.twinx()
    lines = [
        *ax.plot(epochs, estimate, color=_PINK, linewidth=1.5, label="V(z), the estimate"),
        *ax.plot(epochs[looks], exact[looks], "o-", color=_DARK, markersize=4, linewidth=1, label="exact, of a sample"),
        *right.plot(epochs, T, color=_GREY, linewidth=1, drawstyle="steps-mid", label="temperature"),
    ]
    ax.set(xlabel="epoch", ylabel="mean transport cost", xlim=(0, len(history) + 1), ylim=(0, None))
    ax.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
    right.set_yscale("log")
    right.set_ylabel("temperature", color=_GREY)
    right.tick_params(axis="y", which="both", colors=_GREY)
    for axes in (ax, right):
        axes.tick_params(which="both", length=0)
        axes.spines[["top", "left", "right"]].set_visible(False)
    ax.grid(axis="y", color=_LIGHT, linewidth=0.6)
    ax.legend(handles=lines, frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _tiles(images: ArrayLike, shape: tuple[int, int], name: str) -> NDArray[np.floating]:
    """Return images of shape (n, height, width), each from zero to one."""
    sides = validation.sides(shape)
    if len(sides) != 2:
        raise ValueError(f"shape: expected (height, width), got {shape!r}")
    rows = validation.real(images, name)
    if rows.ndim != 2 or len(rows) == 0 or rows.shape[1] != sides[0] * sides[1]:
        size = f"(n, {sides[0] * sides[1]}) for images of {sides[0]} x {sides[1]}"
        raise ValueError(f"{name}: expected shape {size}, got {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError(f"{name}: expected finite weights, found NaN or infinity")
    # the heaviest tenth of the mass is drawn alike: one pixel that stands out would make all others pale
    ordered = np.sort(rows, axis=1)
    heavy = np.cumsum(ordered, axis=1) >= 0.9 * ordered.sum(axis=1, keepdims=True)
    most = np.take_along_axis(ordered, heavy.argmax(axis=1)[:, None], axis=1)
    tiles = np.divide(rows, most, out=np.zeros_like(rows), where=most > 0)
    return np.clip(tiles, 0, 1).reshape(-1, *sides)


def _mosaic(ax: Axes, rows: list[NDArray[np.floating]], gaps: list[int], cmap: str) -> NDArray[np.int_]:
    """Draw rows of images, each framed, as one image with so many empty pixels below each row; return their tops."""
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
    ax.add_collection(PatchCollection(frames, facecolor="none", edgecolor=_LIGHT, linewidth=0.8))
    ax.set(xticks=[], yticks=[], xlim=(-1.5, pixels.shape[1] + 0.5), ylim=(pixels.shape[0] + 0.5, -1.5))
    ax.spines[:].set_visible(False)
    return tops
