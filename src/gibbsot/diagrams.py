r"""Wasserstein distances of persistence diagrams, exact, with the conventions of GUDHI.

A diagram is a set of points (birth, death) with death at least birth. A point of one diagram is matched with a point of
the other or with the diagonal, which costs its distance to it, and two points on the diagonal cost nothing:

.. math:: W(X, Y) = \Big( \min_{\text{matchings}} \sum_{(x, y)} \lVert x - y \rVert_p^q \Big)^{1/q}

So the diagonal is a penalty of every point, and mass is left over (see `solve`). A pair that costs at least as much as
both of its penalties is never needed, and k-d trees list the others. Shortest augmenting paths match the points on
these (``native/matching.hpp``), and their potentials prove the result. Where they do not, because costs differ by too
many orders of magnitude, and without compiled kernels, `solve` finds the optimum on the same pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from .core import validation
from .core.backend import backend
from .core.warn import warn
from .costs import Cost, DenseCost, SparseCost
from .exact.certificate import OPTIMAL_GAP
from .exact.method import in_threads
from .solvers.solve import solve

Points = NDArray[np.float64]
_Matched = tuple[float, tuple[NDArray[np.intp], NDArray[np.intp]]]  # a cost, and rows and columns of pairs

_SLACK = 1 + 1e-9  # of radii and bounds, so that rounding leaves out no pair that is needed
_MATRIX_SHARE = 0.2  # of all pairs: with more of them a matrix is faster
_MATRIX_PAIRS = 9_000_000  # of the largest matrix


class _Parts(NamedTuple):
    """Indices of the points of a diagram by kind."""

    finite: NDArray[np.intp]
    before: NDArray[np.intp]  # born at -inf
    after: NDArray[np.intp]  # that never die
    always: NDArray[np.intp]  # both
    nowhere: NDArray[np.intp]  # with two equal infinite coordinates, on the diagonal


def wasserstein_distance(
    X: ArrayLike,
    Y: ArrayLike,
    matching: bool = False,
    order: float = 1.0,
    internal_p: float = np.inf,
    enable_autodiff: bool = False,
    keep_essential_parts: bool = True,
) -> Any:
    """Return the Wasserstein distance of two persistence diagrams, as ``gudhi.wasserstein.wasserstein_distance`` does.

    Parameters
    ----------
    X, Y : arrays of shape (n, 2) and (m, 2)
        Points (birth, death). Coordinates may be infinite; points with two equal infinite ones lie on the diagonal.
    matching : bool
        Whether to return an optimal matching, too.
    order : float
        The exponent q, at least 1.
    internal_p : float
        The order p of the norm, at least 1.
    enable_autodiff : bool
        Must be False: GUDHI has gradients.
    keep_essential_parts : bool
        Whether points with infinite coordinates count. They are matched among their kind, by their finite coordinate.

    Returns
    -------
    distance : float
        Infinite, with a warning, if the diagrams have different numbers of a kind of essential points.
    matching : array of int, shape (k, 2)
        Only with ``matching=True``: indices of points of X and Y, -1 for the diagonal. None if the distance is
        infinite.

    Raises
    ------
    ValueError
        If a point dies before it is born, or an argument is out of its range.

    Examples
    --------
    >>> from gibbsot.diagrams import wasserstein_distance
    >>> round(wasserstein_distance([[2.7, 3.7], [9.6, 14.0], [34.2, 34.974]], [[2.8, 4.45], [9.5, 14.1]]), 9)
    1.237
    >>> wasserstein_distance([[0, 6], [1, 2]], [[0, 5]], matching=True)
    (1.5, array([[ 0,  0],
           [ 1, -1]]))
    """
    if enable_autodiff:
        raise ValueError("enable_autodiff: expected False; gudhi.wasserstein has gradients")
    q, p = _at_least_one(order, "order"), _at_least_one(internal_p, "internal_p")
    found = _matched(_diagram(X, "X"), _diagram(Y, "Y"), q, p, keep_essential_parts)
    if found is None:
        warn("the diagrams have different numbers of essential points: their distance is infinite", UserWarning)
        return (np.inf, None) if matching else np.inf
    return found if matching else found[0]


def distances(
    diagrams: Sequence[ArrayLike],
    others: Sequence[ArrayLike] | None = None,
    order: float = 1.0,
    internal_p: float = np.inf,
    keep_essential_parts: bool = True,
    n_jobs: int | None = None,
) -> NDArray[np.float64]:
    """Return the Wasserstein distances of all pairs of persistence diagrams.

    Parameters
    ----------
    diagrams : sequence of arrays of shape (n, 2)
        The diagrams.
    others : sequence of arrays of shape (m, 2), optional
        Those of the columns; by default the same, and each pair is computed once.
    order, internal_p, keep_essential_parts
        As for `wasserstein_distance`.
    n_jobs : int, optional
        Threads, as in scikit-learn: None for one, -1 for all cores.

    Returns
    -------
    array of shape (len(diagrams), len(others))
        Infinite where diagrams have different numbers of a kind of essential points.

    Examples
    --------
    >>> from gibbsot.diagrams import distances
    >>> distances([[[0, 2]], [[0, 4]], []])
    array([[0., 2., 1.],
           [2., 0., 2.],
           [1., 2., 0.]])
    """
    q, p = _at_least_one(order, "order"), _at_least_one(internal_p, "internal_p")
    rows = [_diagram(x, f"diagrams[{k}]") for k, x in enumerate(diagrams)]
    columns = rows if others is None else [_diagram(x, f"others[{k}]") for k, x in enumerate(others)]
    found = np.zeros((len(rows), len(columns)))
    pairs = np.argwhere(np.triu(np.ones(found.shape, bool), 1) if others is None else np.ones(found.shape, bool))

    def one(k: int) -> float:
        matched = _matched(rows[pairs[k, 0]], columns[pairs[k, 1]], q, p, keep_essential_parts)
        return np.inf if matched is None else matched[0]

    found[pairs[:, 0], pairs[:, 1]] = in_threads(one, range(len(pairs)), n_jobs)
    return found + found.T if others is None else found


def _at_least_one(x: Any, name: str) -> float:
    """Return a number from 1 on; only the order of a norm may be infinite."""
    if name == "internal_p" and x == np.inf:
        return np.inf
    if not 1 <= validation.number(x, name) < np.inf:
        raise ValueError(f"{name}: expected a number of at least 1, got {x!r}")
    return float(x)


def _diagram(x: ArrayLike, name: str) -> Points:
    """Return the points of a diagram."""
    try:
        points = np.asarray(x, np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: expected points (birth, death) as rows of numbers: {error}") from None
    if points.size == 0:
        return np.empty((0, 2))
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"{name}: expected points (birth, death) as rows, got shape {points.shape}")
    lives = points[:, 1] >= points[:, 0]  # not so if one is NaN
    if not lives.all():
        bad = int(np.flatnonzero(~lives)[0])
        raise ValueError(
            f"{name}: point {bad} is {points[bad].tolist()}; expected a death that is not before the birth"
        )
    return points


def _parts(points: Points) -> _Parts:
    """Return the points of a diagram by kind."""
    birth, death = points.T
    born, dies = np.isfinite(birth), np.isfinite(death)
    both, neither = born & dies, ~(born | dies)
    if both.all():  # as in most diagrams
        return _Parts(np.arange(len(points)), *(np.empty(0, np.intp),) * 4)
    kinds = both, ~born & dies, born & ~dies, neither & (birth < death), neither & (birth == death)
    return _Parts(*(np.flatnonzero(kind) for kind in kinds))


def _matched(X: Points, Y: Points, order: float, norm: float, essential: bool) -> tuple[float, NDArray[np.intp]] | None:
    """Return the distance and a matching, or None if essential points cannot be matched."""
    rows, columns = _parts(X), _parts(Y)
    distance, pairs = _finite(X, Y, rows.finite, columns.finite, order, norm)
    if essential and len(rows.finite) + len(columns.finite) < len(X) + len(Y):
        for i, j, axis in ((rows.before, columns.before, 1), (rows.after, columns.after, 0)):
            if len(i) != len(j):
                return None
            i, j = i[np.argsort(X[i, axis], kind="stable")], j[np.argsort(Y[j, axis], kind="stable")]
            distance = _total(np.abs(X[i, axis] - Y[j, axis]), order, distance)
            pairs.append(np.column_stack([i, j]))
        if len(rows.always) != len(columns.always):
            return None
        pairs.append(np.column_stack([rows.always, columns.always]))
        pairs += [_to_diagonal(rows.nowhere), _to_diagonal(columns.nowhere)[:, ::-1]]
    if distance == np.inf:
        raise ValueError("X, Y: their distance is beyond the range of float64; scale the diagrams")
    return distance, np.concatenate(pairs)


def _total(distances: Points, order: float, more: float) -> float:
    """Return the root of the sum of powers of distances, with one more, where powers may be out of range."""
    largest = max(float(distances.max(initial=0.0)), more)
    if not 0 < largest < np.inf:
        return largest
    unit = math.ldexp(1.0, math.frexp(largest)[1] - 1)
    return unit * (float(((distances / unit) ** order).sum()) + (more / unit) ** order) ** (1 / order)


def _to_diagonal(points: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return pairs of points and the diagonal."""
    return np.column_stack([points, np.full(len(points), -1)])


def _finite(
    X: Points, Y: Points, rows: NDArray[np.intp], columns: NDArray[np.intp], order: float, norm: float
) -> tuple[float, list[NDArray[np.intp]]]:
    """Return the distance of finite points, and the pairs.

    Coordinates are divided by a power of two, which rounds nothing, so that no power of a penalty is out of range.
    """
    # points on the diagonal may stay there; they may also be beyond the range of what the others are divided by
    near = tuple(np.where(points[:, :1] < points[:, 1:], points, 0.0) for points in (X[rows], Y[columns]))
    largest = max(float((points[:, 1] / 2 - points[:, 0] / 2).max(initial=0.0)) for points in near)
    exponent = math.frexp(largest)[1] + 1
    near = tuple(np.ldexp(points, -exponent) for points in near)
    radii = tuple((points[:, 1] - points[:, 0]) * 2.0 ** (1 / norm - 1) for points in near)
    off = [np.flatnonzero(r > 0) for r in radii]
    own, others = near[0][off[0]], near[1][off[1]]
    found = _by_paths(own, others, (radii[0][off[0]], radii[1][off[1]]), order, norm)
    if found is None:
        found = _by_solve(own, others, (radii[0][off[0]], radii[1][off[1]]), order, norm)
    total, matched = found
    distance = float(np.ldexp(total ** (1 / order), exponent))
    pairs = np.column_stack([rows[off[0]][matched[0]], columns[off[1]][matched[1]]])
    left = [_others(len(points), pair) for points, pair in ((X, pairs[:, 0]), (Y, pairs[:, 1]))]
    alone = [own[left[side][own]] for side, own in enumerate((rows, columns))]
    return distance, [pairs, _to_diagonal(alone[0]), _to_diagonal(alone[1])[:, ::-1]]


def _others(n: int, some: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return a mask of n points without some."""
    mask = np.ones(n, bool)
    mask[some] = False
    return mask


def _by_paths(X: Points, Y: Points, radii: tuple[Points, Points], order: float, norm: float) -> _Matched | None:
    """Return a cost and pairs that the potentials of the compiled kernel prove, or None if they do not."""
    if not (len(X) and len(Y)) or not backend().has_kd_trees:
        return None
    mates, f, g = np.empty(len(X), np.int32), np.empty(len(X)), np.empty(len(Y))
    a, b = radii[0] ** order, radii[1] ** order
    if not np.isfinite([a.max(), b.max(), _distances(X[:1], Y[:1], order, norm)[0]]).all():
        return None
    violation = backend().match_points(X, Y, a=a, b=b, p=norm, q=order, mates=mates, f=f, g=g)
    i = np.flatnonzero(mates >= 0)
    j = mates[i].astype(np.intp)
    alone = a[mates < 0], b[_others(len(Y), j)]
    total = math.fsum(np.concatenate([_distances(X[i], Y[j], order, norm), *alone]).tolist())
    lower = math.fsum(np.concatenate([f, g]).tolist()) - min(len(X), len(Y)) * violation
    return (total, (i, j)) if total - lower <= OPTIMAL_GAP * total else None


def _distances(X: Points, Y: Points, order: float, norm: float) -> Points:
    """Return the costs of pairs."""
    apart: Points = np.linalg.norm(X - Y, norm, axis=1) ** order
    return apart


def _by_solve(X: Points, Y: Points, radii: tuple[Points, Points], order: float, norm: float) -> _Matched:
    """Return the cost and the pairs of an optimum that `solve` finds."""
    penalties, none = (radii[0] ** order, radii[1] ** order), np.empty(0, np.intp)
    cost = _allowed(X, Y, radii, order, norm)
    if cost is None:
        return math.fsum(np.concatenate(penalties).tolist()), (none, none)
    result = solve(np.ones(len(X)), np.ones(len(Y)), cost, penalty=penalties)
    plan = result.plan.tocoo()
    whole = plan.data > 0.5  # an optimal vertex has integers, but for rounding
    return result.value, (plan.row[whole].astype(np.intp), plan.col[whole].astype(np.intp))


def _allowed(X: Points, Y: Points, radii: tuple[Points, Points], order: float, norm: float) -> Cost | None:
    """Return the costs of the pairs that may be cheaper than their two penalties, or None if there are none."""
    if not (len(X) and len(Y)):
        return None
    found = []
    trees = [_by_radius(points, r) for points, r in zip((X, Y), radii, strict=True)]
    for own, largest, tree in trees[0]:
        for others, other, second in trees[1]:
            reach = _SLACK * (largest**order + other**order) ** (1 / order)
            pairs = tree.sparse_distance_matrix(second, reach, norm, output_type="ndarray")
            i, j, cost = own[pairs["i"]], others[pairs["j"]], pairs["v"] ** order
            kept = cost < _SLACK * (radii[0][i] ** order + radii[1][j] ** order)
            found.append((i[kept], j[kept], cost[kept]))
    i, j, costs = (np.concatenate(part) for part in zip(*found, strict=True))
    every = len(X) * len(Y)
    if _MATRIX_SHARE * every < len(costs) and every <= _MATRIX_PAIRS:
        return DenseCost(
            cdist(X, Y, "chebyshev") ** order if norm == np.inf else cdist(X, Y, "minkowski", p=norm) ** order
        )
    return SparseCost(sparse.coo_array((costs, (i, j)), (len(X), len(Y)))) if len(costs) else None


def _by_radius(points: Points, radii: Points) -> list[tuple[NDArray[np.intp], float, KDTree]]:
    """Return groups of points of similar radii: their numbers, the largest radius and a k-d tree."""
    level = np.frexp(radii)[1]
    groups = [np.flatnonzero(level == k) for k in np.unique(level)]
    return [(own, float(radii[own].max()), KDTree(points[own])) for own in groups]
