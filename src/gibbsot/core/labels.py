"""The one place that knows labels: the index of a Series, the rows and columns of a DataFrame of pandas.

pandas is not imported here. Where it has not been imported by somebody else, nothing has labels.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

Labels = Any  # a pandas.Index, or None


def of_rows(x: Any) -> Labels:
    """Return the labels of the rows of a table, or of the entries of a Series; None if there are none."""
    if type(x) is np.ndarray:
        return None
    pandas = sys.modules.get("pandas")
    return x.index if pandas is not None and isinstance(x, pandas.DataFrame | pandas.Series) else None


def of_columns(x: Any) -> Labels:
    """Return the labels of the columns of a table; None if there are none."""
    pandas = sys.modules.get("pandas")
    return x.columns if pandas is not None and isinstance(x, pandas.DataFrame) else None


def of_weights(x: Any) -> Labels:
    """Return the labels of the points of measures: the index of one measure, or the columns of a table of measures."""
    if type(x) is np.ndarray or "pandas" not in sys.modules:
        return None
    columns = of_columns(x)
    return of_rows(x) if columns is None else columns


def of_measures(x: Any, count: int) -> Labels:
    """Return the labels of measures that are the rows of a table; None if there are none, or it is one image."""
    found = None if of_columns(x) is None else of_rows(x)
    return None if found is None or len(found) != count else found


def order(labels: Labels, wanted: Labels) -> Any:
    """Return where the wanted labels are, or None where they are others, repeated, or in this order already."""
    if labels is None or wanted is None or len(labels) != len(wanted):
        return None
    wanted = type(labels)(wanted) if isinstance(wanted, np.ndarray) else wanted
    if not (labels.is_unique and wanted.is_unique) or labels.equals(wanted):
        return None
    places = labels.get_indexer(wanted)
    return places if (places >= 0).all() else None


def reordered(x: Any, places: Any) -> Any:
    """Return measures with their points in another order; None for places leaves them as they are."""
    if places is None:
        return x
    return x.iloc[places] if x.ndim == 1 else x.iloc[:, places]


def aligned(
    P: Any, Q: Any, cost: tuple[Labels, Labels] | None, shared: bool, names: tuple[str, str]
) -> tuple[Any, Any]:
    """Return the measures of a problem in the order of the points of its cost.

    Parameters
    ----------
    P, Q : arrays, Series or DataFrames
        The measures, of which some may have labels.
    cost : pair of Index or None, or None
        The labels of the points of the cost.
    shared : bool
        Whether the measures are on the same points, which have an order of their own: a grid or a line. Labels of both
        measures are then brought to one order: that in which they increase, or else that of P.
    names : pair of str
        What the caller calls the measures.

    Returns
    -------
    P, Q : arrays, Series or DataFrames

    Raises
    ------
    ValueError
        If both measures have the same labels in different orders, and nothing says which order is that of the cost.
    """
    first, second = of_weights(P), of_weights(Q)
    if first is None and second is None:
        return P, Q
    cost = cost or (None, None)
    own, other = order(first, cost[0]), order(second, cost[1])
    if own is not None or other is not None:
        return reordered(P, own), reordered(Q, other)
    places = order(second, first)
    known = any(x is not None and y is not None and x.equals(y) for x, y in ((first, cost[0]), (second, cost[1])))
    if places is None or known:
        return P, Q
    if not shared:
        raise ValueError(
            f"{names[1]}: has the labels of {names[0]} in another order, and the cost has no labels that tell which "
            "order is its own; expected one order, a DataFrame with these labels as the cost, or .to_numpy() for "
            "weights by position"
        )
    if second.is_monotonic_increasing:
        return reordered(P, order(first, second)), Q
    return P, reordered(Q, places)


def table(values: Any, rows: Labels, columns: Labels) -> Any:
    """Return a matrix as a DataFrame if its rows or columns have labels, otherwise as it is."""
    if rows is None and columns is None:
        return values
    return sys.modules["pandas"].DataFrame(values, rows, columns)
