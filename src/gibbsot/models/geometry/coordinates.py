"""Barycentric coordinates: the weights whose Wasserstein barycenter of references is nearest to a measure."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import svd
from scipy.optimize import linprog, nnls

from ...core import labels, native, validation
from ...core.warn import warn
from ...costs import Cost
from ...io import progress
from .._costs import Metric
from . import maps as _maps
from . import sets as _sets

Array = NDArray[np.float64]

_RANK = 1e-9  # singular values below this share of the largest are zero


class CoordinateInfo(NamedTuple):
    """What is known of barycentric coordinates.

    Attributes
    ----------
    residual : array of shape (n,)
        The squared norm of the mean field, ``|sum_k w_k (T_k - id)|^2``: zero where the measure is a barycenter.
    dimension : array of int of shape (n,)
        The dimension of the set of all optimal weights up to rounding, zero where they are unique.
    """

    residual: Array
    dimension: NDArray[np.intp]


def barycentric_coordinates(
    X: Any,
    references: Any,
    cost: Cost | ArrayLike | str | Metric | None = None,
    *,
    maps: str = "exact",
    subpixels: int = 2,
    epsilon: float | None = None,
    feature_vectors: Any = None,
    return_info: bool = False,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> Any:
    r"""Return the weights whose Wasserstein barycenter of given references is nearest to each measure.

    .. math:: \min_w \Big\| \sum_k w_k \, (T_k - \mathrm{id}) \Big\|^2_{L^2(x)}, \quad w \ge 0, \; \sum_k w_k = 1

    with the optimal maps ``T_k`` from a measure x to the references: a quadratic programme [1]_. Its value is zero
    exactly where x is the barycenter of the references with these weights, for measures with densities. The cost is a
    squared Euclidean distance.

    `mixture_coordinates` differs: there references are mixed linearly, ``sum_k w_k D_k``, while here mass moves between
    them. For two references the mixtures are the points of the straight line between them, and the barycenters those
    of the geodesic.

    Parameters
    ----------
    X : array, list or sparse matrix of shape (n, m), stack of images, list of matrices or files, or list of clouds
        Measures as rows, which are normalised; shards are read one after the other. With ``cost="sqeuclidean"`` and no
        ``feature_vectors``, clouds: arrays of points, or pairs of points and weights.
    references : the same, K measures
        The references.
    cost : Cost or str, optional
        A `GridCost` with power 2, a `PointCost` with the metric "sqeuclidean", "line", or "sqeuclidean". None is
        "line", with a warning.
    maps : {"exact", "debiased"}
        Barycentric projections of exact plans, or debiased entropic maps, as of `WassersteinEmbedding`: these are more
        precise on grids.
    subpixels : int
        Of exact maps on a grid: each pixel of a reference is split into this number of parts along each axis, all of
        the same weight. With 1 all its weight is at its point; see Notes. Time grows with the number of parts.
    epsilon : float, optional
        The entropic regularisation of debiased maps, as of `WassersteinEmbedding`.
    feature_vectors : array of shape (m, d), optional
        The points, for ``cost="sqeuclidean"``.
    return_info : bool
        Whether to return a `CoordinateInfo`, too.
    n_jobs : int, optional
        Threads over the pairs: None for one, -1 for all cores. Results do not depend on it.
    verbose : bool
        Show progress.

    Returns
    -------
    weights : array of shape (n, K)
        The coordinates; rows have sum one. Where they are not unique, those of least Euclidean norm. A DataFrame with
        the labels of measures and references if X or the references are one.
    info : CoordinateInfo
        Residuals, and where weights are not unique. Only with ``return_info``.

    Raises
    ------
    ValueError
        If the cost is not a squared Euclidean distance, or measures or parameters are not valid.

    Warns
    -----
    UserWarning
        If weights are not unique, without ``return_info``.

    See Also
    --------
    mixture_coordinates : Weights of linear mixtures.
    WassersteinBarycenter : The barycenter of given weights.

    Notes
    -----
    On a grid, plans move mass by whole pixels. Where true maps move it by less, exact plans between the points of the
    grid are far from them: the errors of the maps add to the diagonal of the Gram matrix of the fields, and do not
    average out. With ``subpixels`` references are densities that are constant on every pixel, up to such parts, plans
    are optimal for these, and errors of weights fall with the size of the parts: in twenty problems with known weights
    of Gaussians on 32 x 32, the largest is 0.091 with 1, 0.023 with 2 and 0.0054 with 3 parts.

    `WassersteinBarycenter` on the same grid has its support on the grid: it is rounded, and its coordinates differ from
    the weights by some hundredths. The coordinates are right: the exact barycenter with these coordinates, as points,
    is nearer to the rounded one than that with the weights.

    References
    ----------
    .. [1] M. E. Werenski, R. Jiang, A. Tasissa, S. Aeron and J. M. Murphy, *Measure estimation in the barycentric
       coding model*, ICML 2022.

    Examples
    --------
    >>> from gibbsot import GridCost, barycentric_coordinates
    >>> references = [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]]
    >>> barycentric_coordinates([[0, 1, 1, 0, 0, 0]], references, GridCost(6)).round(9)
    array([[0.75, 0.25]])
    """
    native.threads(n_jobs)
    validation.flag(return_info, "return_info")
    solver, parts = _maps.MapSolver(maps, epsilon, n_jobs), validation.count(subpixels, "subpixels")
    X, references = validation.from_dlpack(X), validation.from_dlpack(references)
    batches, second, between = _checked(X, references, cost, feature_vectors)
    on_grid = between is not None and between.spacing is not None
    grid = between if maps == "exact" and parts > 1 and on_grid else None
    if grid is not None:
        second, between = _pixels(second, grid, parts), None
    n, K = len(batches), len(second)
    weights, residual, dimension = np.empty((n, K)), np.empty(n), np.empty(n, np.intp)
    start, fields = 0, list[Array]()
    with progress.bar("coordinates", verbose) as advance:
        for batch, size, reported in batches.reported(advance):
            first = batch if grid is None else _pixels(batch, grid, 1)
            pairs = np.repeat(np.arange(size), K), np.tile(np.arange(K), size)
            for pair, field in solver.fields(first, second, pairs, between, reported):
                fields.append(np.sqrt(_weights(first, pair // K))[:, None] * field)
                if len(fields) == K:
                    b, V = start + pair // K, np.stack([field.ravel() for field in fields], axis=1)
                    weights[b], dimension[b] = nearest_weights(V)
                    residual[b] = ((V @ weights[b]) ** 2).sum()
                    fields.clear()
            start += size
    found = labels.table(weights, labels.of_measures(X, n), labels.of_measures(references, K))
    if return_info:
        return found, CoordinateInfo(residual, dimension)
    if open_ := np.count_nonzero(dimension):
        warn(
            f"references: the coordinates of {open_} of {n} measures are not unique, the first is row "
            f"{int((dimension > 0).argmax())}; those of least norm are returned"
        )
    return found


def _checked(X: Any, references: Any, cost: Any, vectors: Any) -> tuple[_sets.Batches, _sets.Measures, Cost | None]:
    """Return measures in batches, the references, and the cost between their points, None for clouds."""
    if vectors is None and isinstance(cost, str) and cost == "sqeuclidean" and _sets.are_clouds(X, cost):
        if not _sets.are_clouds(references, cost):
            raise ValueError("references: expected clouds as in X: arrays of points, or pairs of points and weights")
        first, second = _sets.clouds(X, "X", cost), _sets.clouds(references, "references", cost)
        if (d := second.points[0].shape[1]) != (expected := first.points[0].shape[1]):
            raise ValueError(f"references: have points with {d} coordinates; expected {expected} as in X")
        return _sets.Batches([first], [len(first)]), second, None
    between = _sets.cost_of(cost, X, "X", vectors)
    _maps.squared_points(between)
    m, shape = between.shape[0], between.row_shape
    X, references = labels.aligned(X, references, between.labels, between.spacing is not None, ("X", "references"))
    return _sets.batches(X, "X", m, shape), _sets.rows(references, "references", m, shape), between


def _pixels(measures: _sets.Measures, cost: Cost, parts: int) -> _sets.Clouds:
    """Return measures on a grid as clouds, with pixels that are split into a number of parts along each axis."""
    assert isinstance(measures, _sets.Rows)
    assert cost.spacing is not None
    points = _maps.squared_points(cost)
    offsets = part_offsets(cost.row_shape, parts) * cost.spacing
    clouds, weights = [], []
    for k in range(len(measures)):
        row = measures[[k]][0]
        where = np.flatnonzero(row)
        clouds.append((points[where][:, None] + offsets).reshape(-1, points.shape[1]))
        weights.append(np.repeat(row[where] / len(offsets), len(offsets)))
    return _sets.Clouds(clouds, weights, "sqeuclidean")


def part_offsets(shape: tuple[int, ...], parts: int) -> Array:
    """Return where the parts of a pixel are, relative to its centre, in pixels.

    Each is a cell of a grid in the pixel. In the last two axes its point is not in the middle of the cell: that grid is
    turned a little, so that no two of its points have the same coordinate, and displacements take more values than with
    as many points in rows and columns.

    Parameters
    ----------
    shape : tuple of int
        The sides of the grid of pixels; one pixel wide axes are not divided.
    parts : int
        The number of cells along each axis.

    Returns
    -------
    array of shape (n, d)

    Examples
    --------
    >>> 8 * part_offsets((5, 5), 2)
    array([[-3., -1.],
           [-1.,  3.],
           [ 1., -3.],
           [ 3.,  1.]])
    """
    counts = np.array([parts if side > 1 else 1 for side in shape])[:, None]
    cell = np.indices(counts.ravel().tolist()).reshape(len(shape), -1)
    within = np.full(cell.shape, 0.5)
    if len(wide := np.flatnonzero(counts > 1)) > 1:
        a, b = wide[-2:]
        within[a], within[b] = (cell[b] + 0.5) / parts, (parts - 0.5 - cell[a]) / parts
    return ((cell + within) / counts - 0.5).T


def _weights(measures: _sets.Measures, k: int) -> Array:
    """Return the positive weights of a measure, normalised."""
    weights = measures[[k]][0] if isinstance(measures, _sets.Rows) else measures.weights[k]
    return weights[weights > 0] / weights.sum()


def nearest_weights(V: Array) -> tuple[Array, int]:
    r"""Return the weights of the point of least norm in a convex hull.

    .. math:: \min_w |V w|^2, \quad w \ge 0, \; \sum_k w_k = 1

    With ``w = s u``, the minimum over s of ``|V w|^2 + (sum_k w_k - 1)^2`` grows with ``|V u|^2``, so that nonnegative
    least squares solve it. Where weights are not unique, a second problem of this kind finds those of least norm.

    Parameters
    ----------
    V : array of shape (d, K)
        Points as columns.

    Returns
    -------
    weights : array of shape (K,)
    dimension : int
        Of the set of all optimal weights.

    Examples
    --------
    >>> nearest_weights(np.array([[-1.0, 3.0]]))[0].round(9)
    array([0.75, 0.25])
    >>> weights, dimension = nearest_weights(np.array([[-1.0, 1.0, 1.0]]))
    >>> weights.round(9), dimension
    (array([0.5 , 0.25, 0.25]), 1)
    """
    K = V.shape[1]
    R = np.asarray(np.linalg.qr(V, mode="r"))
    scale = np.abs(R).max(initial=0.0)
    R = R / scale if scale > 0 else R
    A = np.vstack([R, np.ones(K)])
    w = nnls(A, np.append(np.zeros(len(R)), 1.0), maxiter=100 * K)[0]
    w = w / w.sum()
    # all optimal weights give the same point, and none but those of a face of the hull can be positive
    value = R.T @ (R @ w)
    face = value <= value @ w + _RANK * max(1.0, float(np.abs(value).max()))
    _, sizes, directions = svd(A[:, face])
    null = directions[np.count_nonzero(sizes > _RANK * sizes[0]) :].T
    if null.shape[1] == 0:
        return w, 0
    least = w[face] - null @ (null.T @ w[face])
    # |least + null z| is least where |z| is, subject to null z >= -least: least distance programming
    E, target = np.vstack([null.T, -least]), np.append(np.zeros(null.shape[1]), 1.0)
    dual = nnls(E, target, maxiter=100 * K)[0]
    rest = E @ dual - target
    z = -rest[:-1] / rest[-1]
    found = np.zeros(K)
    found[face] = np.maximum(least + null @ z, 0)
    found /= found.sum()
    if not ((R @ found) ** 2).sum() <= value @ w + _RANK:  # rounding: a small multiple of the norm as a penalty
        penalised = np.vstack([A, np.sqrt(_RANK) * np.eye(K)])
        found = nnls(penalised, np.append(np.zeros(len(R)), [1.0, *np.zeros(K)]), maxiter=100 * K)[0]
        found /= found.sum()
    return found, _dimension(A[:, face], w[face])


def _dimension(A: Array, w: Array) -> int:
    """Return the dimension of the set of all weights that have the same product with A as w."""
    m, K = A.shape
    # weights t times larger, of which as many as can be positive reach 1
    objective = np.concatenate([np.zeros(K + 1), -np.ones(K)])
    equal = np.hstack([A, -(A @ w)[:, None], np.zeros((m, K))])
    above = np.hstack([-np.eye(K), np.zeros((K, 1)), np.eye(K)])
    bounds = [(0, None)] * K + [(1, None)] + [(0, 1)] * K
    found = linprog(objective, above, np.zeros(K), equal, np.zeros(m), bounds)
    free = found.x[K + 1 :] > 0.5 if found.status == 0 else w > _RANK
    sizes = np.linalg.svd(A[:, free], compute_uv=False) if free.any() else np.zeros(1)
    return int(free.sum() - np.count_nonzero(sizes > _RANK * sizes[0]))
