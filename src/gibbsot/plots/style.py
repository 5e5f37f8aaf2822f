"""What all figures share: colours, empty figures, and names as labels."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Pink is what was computed, green what is exact; the pale shades are for areas and dots.
PINK, PALE_PINK = "#d6176f", "#ee9ac0"
GREEN, PALE_GREEN = "#2a7f4f", "#7fd6a3"
DARK_GREY, GREY, PALE_GREY = "#5c5c5c", "#9a9a9a", "#d9d9d9"


_LETTERS = 11  # of a legend, in an inch


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


def legend_below(figure: Figure) -> None:
    """Put one legend of all axes below them, where it covers nothing.

    Parameters
    ----------
    figure : matplotlib Figure
        A figure with constrained layout, whose axes are drawn.
    """
    found: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, text in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(text, handle)
    longest = max(map(len, found), default=0) + 6  # with its line
    fit = max(1, int(_LETTERS * figure.get_figwidth()) // longest)
    columns = min(5, len(found), fit)
    figure.legend(list(found.values()), list(found), loc="outside lower center", frameon=False, ncols=columns)


def checked_axes(ax: Any, count: int = 1) -> Any:
    """Return the axes given after a check, or new ones of pyplot.

    Parameters
    ----------
    ax : matplotlib Axes, or several of them, or None
        What a caller gave.
    count : {1, 3}
        How many are needed.

    Returns
    -------
    matplotlib Axes, or array of them
    """
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise ImportError("figures need matplotlib: pip install 'gibbsot[plots]'") from None
        figure = plt.figure(figsize=(6, 6) if count == 1 else (12, 4.5), layout="constrained")
        return figure.subplots(1, count)
    given = np.ravel(np.asarray(ax, object))
    if len(given) != count:
        raise ValueError(f"ax: expected {'three Axes' if count == 3 else 'one Axes'} of matplotlib, got {len(given)}")
    return given if count > 1 else given[0]


def label(name: str) -> str:
    r"""Return a name as text for a figure: it is not a formula, and what the font cannot draw becomes a box.

    Parameters
    ----------
    name : str
        Any text, such as the name of a file.

    Returns
    -------
    str

    Examples
    --------
    >>> print(label("$a^b$.png"))
    \$a^b\$.png
    """
    glyphs = _font().get_char_index
    drawn = "".join(c if c.isprintable() and glyphs(ord(c)) else "\N{WHITE SQUARE}" for c in name)
    return f"{' ' * drawn.startswith('_')}{drawn}".replace("$", r"\$")  # legends leave out what starts with "_"


@cache
def _font() -> Any:
    """Return the font that text is drawn with."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties()))
