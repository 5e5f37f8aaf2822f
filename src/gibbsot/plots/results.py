"""The result of a transport problem: the picture that suits its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import validation
from ..costs import Cost
from .geometry import plane
from .plans import displacements, plan, projections
from .style import DARK_GREY, GREEN, GREY, PALE_GREY, PINK, checked_axes, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

_MAX_NODES = 2000  # of a graph whose layout is computed
_WIDEST = 4.0  # edge of a graph, in points


def transport(
    ax: Any,
    Z: Any,
    cost: Cost,
    weights: tuple[Array, Array],
    *,
    names: tuple[str, str] = ("p", "q"),
    flow: Any = None,
    positions: ArrayLike | None = None,
) -> Any:
    """Draw a plan in the way that suits its cost, as `OTResult.plot` says.

    Parameters
    ----------
    ax : matplotlib Axes or None
        Where to draw, None for a new figure of pyplot; three of them for points in space.
    Z : sparse matrix of shape (m1, m2)
        The plan.
    cost : Cost
        The cost.
    weights : pair of arrays of shape (m1,) and (m2,)
        The measures, of which the plan may have a part.
    names : pair of str
        What they are called.
    flow : sparse matrix of shape (nodes, nodes), optional
        What moves along the edges of a graph.
    positions : array of shape (nodes, 2), optional
        Where the nodes of a graph are.

    Returns
    -------
    matplotlib Axes, or an array of three

    Raises
    ------
    ValueError
        If nothing is transported, or positions are missing or not those of a graph.

    Examples
    --------
    >>> import gibbsot
    >>> from scipy import sparse
    >>> from gibbsot.plots import new_figure, transport
    >>> Z = sparse.csr_array([[0.5, 0.0], [0.0, 0.5]])
    >>> ax = new_figure(4, 4).subplots()
    >>> transport(ax, Z, gibbsot.DenseCost([[0.0, 1.0], [1.0, 0.0]]), ([0.5, 0.5], [0.5, 0.5])) is ax
    True
    """
    if Z.nnz == 0:
        raise ValueError("plot: nothing is transported; expected a plan with mass")
    on_graph = flow is not None and flow.shape == Z.shape
    if positions is not None and not on_graph:
        raise ValueError(f"positions: {cost!r} is not a graph; expected them with a GraphCost only")
    points, shape = _points(cost)
    left_over = None if np.isclose(Z.sum(), [np.sum(x) for x in weights], rtol=1e-9).all() else weights
    if on_graph:
        ax = checked_axes(ax)
        _draw_flow(ax, flow, cost, weights, names, positions)
    elif points is None or points[0].shape[1] == 1:
        ax = checked_axes(ax)
        line = None if points is None or shape is not None else (points[0].ravel(), points[1].ravel())
        plan(ax, Z, names=names, points=line, labels=cost.labels or (None, None), weights=left_over)
    elif points[0].shape[1] == 3:
        ax = checked_axes(ax, 3)
        projections(ax[0].figure, Z, *points, names, shape=shape, panels=ax, weights=left_over)
    else:
        ax, (X, Y) = checked_axes(ax), points
        if X.shape[1] > 3:
            X, Y = principal_plane(X, Y)
            ax.set(xlabel="first principal axis", ylabel="second principal axis")
        displacements(ax, Z, X, Y, names, shape=shape, weights=left_over)
    return ax


def principal_plane(X: Array, Y: Array) -> tuple[Array, Array]:
    """Return points in the coordinates of the two axes along which both clouds together vary most.

    Parameters
    ----------
    X, Y : arrays of shape (m1, d) and (m2, d)
        The points.

    Returns
    -------
    arrays of shape (m1, 2) and (m2, 2)
    """
    both = np.concatenate([X, Y])
    both = both - both.mean(axis=0)
    axes = np.linalg.eigh(both.T @ both)[1][:, :-3:-1]
    return (both @ axes)[: len(X)], (both @ axes)[len(X) :]


def _points(cost: Cost) -> tuple[tuple[Array, Array] | None, Any]:
    """Return the points of both measures, x first, and the shape of the grid if they are on one."""
    shape = cost.row_shape
    if shape and shape == cost.col_shape:  # pixels, whatever the spacing
        points = np.indices(shape)[::-1].reshape(len(shape), -1).T.astype(np.float64)
        return (points, points), shape
    found = cost.positions()
    return (None if found is None else (found.X, found.Y)), None


def _draw_flow(ax: Axes, flow: Any, cost: Cost, weights: Any, names: tuple[str, str], positions: Any) -> None:
    """Draw a graph with what moves along its edges, and where one measure has more mass than the other."""
    from matplotlib.collections import LineCollection

    nodes = _layout(cost) if positions is None else _checked(positions, flow.shape[0])
    stored = flow.tocoo()
    lines = np.stack([nodes[stored.row], nodes[stored.col]], axis=1)
    ax.add_collection(LineCollection(lines.tolist(), colors=PALE_GREY, linewidth=0.8, zorder=1))
    moving = stored.data > 1e-9 * max(stored.data.max(initial=0.0), 1e-300)
    wide = _WIDEST * np.sqrt(stored.data[moving] / stored.data.max())
    ax.add_collection(LineCollection(lines[moving].tolist(), colors=DARK_GREY, linewidth=wide, zorder=2))
    middle, along = lines[moving].mean(axis=1), lines[moving][:, 1] - lines[moving][:, 0]
    heads = wide > 0.35 * _WIDEST if len(wide) > 60 else wide > 0  # arrows of small flows would hide the others
    ax.quiver(
        *middle[heads].T, *along[heads].T, angles="xy", color=DARK_GREY, pivot="middle", zorder=3,
        scale=1, scale_units="xy", width=0.003, headwidth=11, headlength=11, headaxislength=10, minshaft=0, minlength=0,
    )  # fmt: skip
    more = weights[0] / weights[0].sum() - weights[1] / weights[1].sum()
    least = 1e-9 * np.abs(more).max()
    same = np.abs(more) <= least
    ax.scatter(nodes[same, 0], nodes[same, 1], s=6, c=GREY, linewidths=0, zorder=4)
    for sign, colour, name in ((1, GREEN, names[0]), (-1, PINK, names[1])):
        some = sign * more > least
        size = 20 + 160 * np.abs(more[some]) / max(np.abs(more).max(), 1e-300)
        ax.scatter(
            nodes[some, 0], nodes[some, 1], s=size, c=colour, linewidths=0, zorder=5, label=f"{label(name)} has more"
        )
    ax.set(aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    legend = ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    for handle in legend.legend_handles:
        if handle is not None and hasattr(handle, "set_sizes"):
            handle.set_sizes([40])


def _layout(cost: Cost) -> Array:
    """Return places of the nodes of a graph whose distances are about the shortest paths."""
    n = cost.shape[0]
    if n > _MAX_NODES:
        raise ValueError(f"positions: expected them for a graph of {n:,} nodes, an array of shape ({n}, 2)")
    D = cost.matrix().astype(np.float64)
    D = np.minimum(D, D.T)
    finite = np.isfinite(D)
    return plane(np.where(finite, D, 1.5 * D[finite].max()) ** 2)


def _checked(positions: Any, n: int) -> Array:
    """Return places of nodes after a check."""
    found = validation.points(positions, "positions").astype(np.float64)
    if found.shape != (n, 2):
        raise ValueError(f"positions: expected shape ({n}, 2), got {found.shape}")
    return found
