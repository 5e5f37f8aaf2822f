"""Pictures, with matplotlib (the extra ``plots``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plan(ax: Axes, Z: Any, exact: Any | None = None, title: str = "") -> None:
    """Draw a plan between measures on [0, 1], in the paper's colours: pink dots over the exact plan in green.

    Parameters
    ----------
    ax : matplotlib Axes
    Z, exact : arrays or sparse matrices of shape (m1, m2)
        Plans; a larger dot moves more mass.
    title : str
    """
    for matrix, colour, area, label in ((exact, "#7fd6a3", 90, "exact"), (Z, "#d6176f", 14, "Gibbs-OT")):
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
