"""Figures with matplotlib (the extra ``plots``), and the colours that all figures of the package use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .core import validation
from .sampling import theory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .models._loop import Epoch
    from .solvers.results import OTResult

# Pink is what was computed, green what is exact; the pale shades are for areas and dots.
PINK, PALE_PINK = "#d6176f", "#ee9ac0"
GREEN, PALE_GREEN = "#2a7f4f", "#7fd6a3"
DARK_GREY, GREY, PALE_GREY = "#5c5c5c", "#9a9a9a", "#d9d9d9"

_GAP = 2  # pixels between images
_MAX_ARCS = 5000  # that `displacements` draws


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure without a window.

    Parameters
    ----------
    width, height : float
        Its size in inches.

    Returns
    -------
    matplotlib Figure
        With constrained layout.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'gibbsot[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def hide_spines(axes: Iterable[Axes]) -> None:
    """Hide the top and right spines.

    Parameters
    ----------
    axes : iterable of matplotlib Axes
        The axes to change.
    """
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)


def plan(ax: Axes, Z: Any, exact: Any | None = None, title: str = "") -> None:
    """Draw a plan between measures on [0, 1] in the colours of the paper: pink dots over the exact plan in green.

    Parameters
    ----------
    ax : matplotlib Axes
        Where to draw.
    Z : array or sparse matrix of shape (m1, m2)
        The plan; a larger dot moves more mass.
    exact : array or sparse matrix of shape (m1, m2), optional
        An exact plan, drawn below.
    title : str
        The title of the axes.

    Examples
    --------
    >>> figure = new_figure(4, 4)
    >>> plan(figure.subplots(), [[0.5, 0.0], [0.0, 0.5]])
    """
    for matrix, colour, area, label in ((exact, PALE_GREEN, 90, "exact"), (Z, PINK, 14, "Gibbs-OT")):
        if matrix is None:
            continue
        entries = sparse.coo_array(matrix)
        x, y = ((k + 0.5) / side for k, side in zip((entries.row, entries.col), entries.shape, strict=True))
        size = area * np.sqrt(entries.data / entries.data.max())
        ax.scatter(x, y, s=size, c=colour, marker="s", linewidths=0, label=label)
    ax.set(title=title, xlabel="source", ylabel="target", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set(xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    ax.legend(frameon=False, markerscale=1.5)


def displacements(
    ax: Axes, Z: Any, X: NDArray[Any], Y: NDArray[Any], names: tuple[str, str], *, y_down: bool = False
) -> None:
    """Draw a plan in the plane: both measures as dots, and a line for each arc, darker for more mass.

    Parameters
    ----------
    ax : matplotlib Axes
        Where to draw.
    Z : array or sparse matrix of shape (m1, m2)
        The plan. The 5,000 arcs with the most mass are drawn.
    X, Y : arrays of shape (m1, 2) and (m2, 2)
        The points of both measures, x and y.
    names : pair of str
        The names of both measures in the legend.
    y_down : bool
        Whether y increases downwards, as in images.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> displacements(new_figure(4, 4).subplots(), [[0.5, 0.0], [0.0, 0.5]], X, X + 1, ("a", "b"))
    """
    from matplotlib.collections import LineCollection

    entries = sparse.coo_array(Z)
    heaviest = np.sort(np.argsort(-entries.data, kind="stable")[:_MAX_ARCS])
    i, j, mass = entries.row[heaviest], entries.col[heaviest], entries.data[heaviest]
    shades = np.clip(0.15 + 0.85 * mass / mass.max(), 0, 1)
    ax.add_collection(LineCollection(np.stack([X[i], Y[j]], axis=1).tolist(), colors=GREY, alpha=shades, linewidth=0.8))
    for points, axis, colour, name in ((X, 1, GREEN, names[0]), (Y, 0, PINK, names[1])):
        weights = entries.sum(axis=axis)
        support = weights > 0
        size = 30 * weights[support] / weights.max()
        ax.scatter(points[support, 0], points[support, 1], s=size, c=colour, linewidths=0, label=name)
    ax.set_aspect("equal")
    if y_down:
        ax.invert_yaxis()
        ax.set(xticks=[], yticks=[])
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, markerscale=1.5)


def diagnostics(figure: Figure, result: OTResult, probability: float = 0.05) -> None:
    """Draw a run of the sampler with the quantities of the paper's appendix, in four panels over the half steps.

    The panels show V(z); the expected increments O(z, T); the temperature T and the bound calT(z) below which V(z)
    decreases in expectation; and the martingale r with the band of the concentration theorem. The band holds for each
    half step by itself, with the C and D of this run (see `theory.concentration_probability`), and half of the
    probability on either side. With infinite costs it has no upper side.

    Parameters
    ----------
    figure : matplotlib Figure
        An empty figure.
    result : OTResult
        Result of one problem, from ``solve(..., method="gibbs", diagnostics=True)``.
    probability : float
        Probability of the martingale to be outside the band.

    Raises
    ------
    ValueError
        If the result has no diagnostics or is that of a batch.

    Examples
    --------
    >>> import gibbsot
    >>> result = gibbsot.solve([0.5, 0.5], [0.2, 0.8], [[0, 1], [1, 0]], method="gibbs", n_sweeps=20, diagnostics=True)
    >>> diagnostics(new_figure(8, 8), result)
    """
    trace = result.diagnostics
    if trace is None or not result.single:
        raise ValueError("result: expected that of one problem, from solve(..., diagnostics=True)")
    steps = np.arange(1, len(trace.T) + 1)
    value, increment, temperature, martingale = figure.subplots(4, 1, sharex=True)
    value.plot(np.arange(1, len(trace.value) + 1), trace.value, color=PINK, linewidth=0.8)
    value.axhline(result.lower_bound, color=GREY, linestyle=":", linewidth=1, label="certified lower bound")
    value.set_ylabel("V(z)")
    increment.plot(steps, trace.increment, ".", color=PINK, markersize=2)
    increment.axhline(0, color=GREY, linewidth=0.8)
    increment.set_yscale("symlog", linthresh=max(np.quantile(np.abs(trace.increment), 0.05), np.finfo(float).tiny))
    increment.set_ylabel("expected increment")
    bound = np.where(trace.bound > 0, trace.bound, np.nan)
    temperature.semilogy(steps, bound, ".", color=PALE_GREEN, markersize=2, label="calT(z)")
    temperature.semilogy(steps, trace.T, color=PINK, label="T")
    temperature.set_ylabel("temperature")
    _martingale(martingale, trace, max(result.problem.cost.shape), probability)
    for ax in (increment, martingale):
        low, high = ax.get_ylim()
        ax.set_yticks([low / 10, 0, high / 10], [f"{low / 10:.0e}", "0", f"{high / 10:.0e}"])
        ax.minorticks_off()
    for ax in (value, temperature, martingale):
        ax.legend(frameon=False)


def _martingale(ax: Axes, trace: theory.Trace, size: int, probability: float) -> None:
    """Draw the martingale of a run and the band of the concentration theorem."""
    marks = np.unique(np.linspace(1, len(trace.T), 200).astype(int))
    half = probability / 2
    below = [theory.concentration_width(half, (trace.C * trace.T)[:n]) for n in marks]
    steps = (theory.right_steps(trace.D[:n], trace.T[:n], size, half / 2) for n in marks)
    above = [theory.concentration_width(half, a, half / 2) for a in steps]
    top = np.where(np.isfinite(above), above, 10 * max(np.ptp(trace.r), max(below)))
    label = f"{1 - probability:.0%} band"
    ax.fill_between(marks + 1, np.negative(below), top, color=PALE_GREEN, alpha=0.4, label=label)
    ax.plot(np.arange(1, len(trace.r) + 1), trace.r - trace.r[0], color=PINK, linewidth=0.8)
    ax.set_yscale("symlog", linthresh=max(np.ptp(trace.r), np.finfo(float).tiny))
    ax.set(ylabel="martingale", xlabel="half step", xlim=(1, len(trace.value)))


def components(
    figure: Figure, images: ArrayLike, shape: tuple[int, int], *, columns: int | None = None, cmap: str = "gray_r"
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

    Examples
    --------
    >>> components(new_figure(4, 3), np.eye(6), (2, 3))
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


def convergence(ax: Axes, history: Sequence[Epoch]) -> None:
    """Draw the convergence of a fit: the estimate V(z), the exact evaluations and the temperature over the epochs.

    Parameters
    ----------
    ax : matplotlib Axes
        Where to draw. The temperature has a second axis at the right.
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
    ax.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
    right.set_yscale("log")
    right.set_ylabel("temperature", color=GREY)
    right.tick_params(axis="y", which="both", colors=GREY)
    for axes in (ax, right):
        axes.tick_params(which="both", length=0)
        axes.spines[["top", "left", "right"]].set_visible(False)
    ax.grid(axis="y", color=PALE_GREY, linewidth=0.6)
    ax.legend(handles=lines, frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))


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
