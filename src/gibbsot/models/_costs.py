"""The one place that decides what the parameter ``cost`` of a model may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from ..core import labels, validation
from ..core.warn import warn
from ..costs import Cost, DenseCost, GridCost, PointCost, as_cost
from ..distributed import sources

Metric = Callable[[Any, Any], float]

METRICS = (
    *("braycurtis", "canberra", "chebyshev", "cityblock", "correlation", "cosine", "euclidean", "hamming", "jaccard"),
    *("jensenshannon", "l1", "l2", "mahalanobis", "manhattan", "minkowski", "seuclidean", "sqeuclidean"),
)
_LINE = "line"
ALIASES = {"l1": "cityblock", "l2": "euclidean", "manhattan": "cityblock"}
_SPARSE = ("cityblock", "cosine", "euclidean")  # of sparse matrices without a dense copy
_NO_COST = (
    "cost: none was given, so the bins are taken to lie on a line; expected cost='line' if they do, GridCost((h, w)) "
    "for images, or a metric such as 'cosine' with feature_vectors for words"
)


def is_metric(cost: Any) -> bool:
    """Tell whether a cost is to be built from vectors: by the name of a metric or a function of two vectors."""
    return cost != _LINE if isinstance(cost, str) else callable(cost)


def check(cost: Any, vectors: Any, name: str = "feature_vectors") -> None:
    """Refuse an unknown name, and vectors that no metric uses.

    Parameters
    ----------
    cost, vectors
        The parameters of a model.
    name : str
        What the model calls the vectors.
    """
    if isinstance(cost, str):
        validation.choice(cost, "cost", (_LINE, *METRICS))
    if vectors is not None and not is_metric(cost):
        raise ValueError(f"{name}: a cost is built from them by a metric such as cost='cosine'; got cost={cost!r}")


def feature_cost(
    cost: Cost | ArrayLike | str | Metric | None, size: int, vectors: Any = None, data: Any = None, names: Any = None
) -> Cost:
    """Return the cost between bins, which are the features of the data.

    Parameters
    ----------
    cost : Cost, array of shape (m, m), str, callable or None
        A cost, "line", the name of a metric, or a function of two vectors. None is "line", with a warning.
    size : int
        The number m of bins.
    vectors : array or sparse matrix of shape (m, d), optional
        An embedding of each bin, for a metric.
    data : array or sparse matrix of shape (n, m), optional
        The data, whose columns are the vectors if none are given; in shards, they cannot be read whole.
    names : array of shape (m,), optional
        The labels of the columns, by default those of the data if these are a DataFrame.

    Returns
    -------
    Cost
    """
    check(cost, vectors)
    names = labels.of_columns(data) if names is None else names
    if cost is None:
        warn(_NO_COST)
    if cost is None or (isinstance(cost, str) and cost == _LINE):
        return GridCost(size)
    if not is_metric(cost):
        found = as_cost(cost)  # type: ignore[arg-type]
        return by_names(square(found, size), names)
    if vectors is not None:
        found = square(metric_cost(cost, vectors, size, "feature_vectors"), size)
        return by_names(found, names)
    if data is None or sources.split(data) is not None:
        raise ValueError(
            f"feature_vectors: expected an embedding of each feature for cost={cost!r}, as the data come in parts and "
            "their columns are not read whole"
        )
    return square(metric_cost(cost, validation.rows(data, "X").T, size, "X", labels.of_columns(data)), size)


def square(cost: Cost, size: int) -> Cost:
    """Return a cost after a check that it is finite and has the given number of bins."""
    if cost.shape != (size, size):
        images = len(cost.row_shape) > 1 and cost.row_shape[-1] == size
        hint = "; images are to be flattened to rows" if images else ""
        raise ValueError(
            f"cost: is for {cost.shape[0]} x {cost.shape[1]} points; expected {size} x {size} as in X{hint}"
        )
    if not cost.finite:
        raise ValueError("cost: has infinite costs; expected finite ones, as a model may put weight anywhere")
    return cost


def by_names(cost: Cost, names: Any) -> Cost:
    """Return a cost between the columns of data, rows and columns in the order of their names if it has labels."""
    if cost.labels is None:
        return cost
    rows, columns = cost.labels
    if names is None or labels.order(rows, names) is None:
        names = rows  # unknown, other labels, or in this order
    places = [labels.order(own, names) for own in (rows, columns)]
    if all(x is None for x in places):
        return cost
    every = np.arange(cost.shape[0])
    return cost.subset(*(every if x is None else x for x in places))._labelled((names, names))


def metric_cost(metric: Any, vectors: Any, size: int, name: str, names: Any = None) -> Cost:
    """Return the cost by a metric between vectors as rows, of shape (size, d); a matrix if they are those of X."""
    names = labels.of_rows(vectors) if names is None else names
    return _metric_cost(metric, vectors, size, name)._labelled((names, names))


def _metric_cost(metric: Any, vectors: Any, size: int, name: str) -> Cost:
    """Return the cost of `metric_cost` without labels."""
    points: Any = (
        validation.sparse_rows(vectors, name) if sparse.issparse(vectors) else validation.points(vectors, name)
    )
    if points.shape[0] != size:
        raise ValueError(f"{name}: expected {size} rows, one for each bin or label; got shape {points.shape}")
    dense = not sparse.issparse(points)
    metric = ALIASES.get(metric, metric) if isinstance(metric, str) else metric
    if dense and metric in ("euclidean", "sqeuclidean"):
        found = PointCost(points, metric=metric, dtype=np.float64)
        return DenseCost(found.matrix()) if name == "X" else found  # all of the data would be stored with it
    from sklearn.metrics import pairwise_distances  # takes long to import

    points = (points if dense or metric in _SPARSE else points.toarray()).astype(np.float64)
    # a function need not be symmetric: it is evaluated for all pairs only if both arguments are given
    pair = (points, points.copy()) if callable(metric) else (points,)
    try:
        return as_cost(np.asarray(pairwise_distances(*pair, metric=metric), np.float64))
    except (ValueError, np.linalg.LinAlgError) as error:
        raise ValueError(f"cost: {metric!r} cannot be computed from {name} ({error})") from None
