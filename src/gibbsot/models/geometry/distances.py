"""The matrix of transport costs between all pairs of two sets of measures."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from ...core import labels, native, validation
from ...core.warn import warn
from ...costs import Cost
from ...io import progress
from ...io.budget import Budget
from .._costs import Metric, by_names
from . import sets as _sets
from .pairs import Values, identity

Array = NDArray[np.float64]

_FILLED = 1_000_000  # entries of the matrix that are filled together


def distances(
    P: Any,
    Q: Any = None,
    *,
    cost: Cost | ArrayLike | str | Metric | None,
    gap: float | None = None,
    root: bool = False,
    n_jobs: int | None = None,
    feature_vectors: Any = None,
    verbose: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    max_seconds: float | None = None,
) -> Any:
    r"""Return the exact transport costs of all pairs of measures, as for ``metric="precomputed"`` of scikit-learn.

    .. math:: D_{ij} = W(p_i, q_j) = \min_{Z \ge 0} \langle Z, M \rangle, \quad Z 1 = p_i, \; Z^T 1 = q_j

    Measures are normalised. Within one set and with a symmetric cost each pair is solved once, and the diagonal is zero
    where the cost is. Pairs are solved in groups, one group after another; plans are not kept.

    Parameters
    ----------
    P : array, list or sparse matrix of shape (n, m), stack of images, or list of clouds
        Measures as rows, on common points; also in shards, as a list of matrices or files. With a metric as the cost,
        clouds: arrays of points of shape (m_k, d), all points of a cloud with the same weight, or pairs (points,
        weights). The columns of a DataFrame of pandas are labels of the points, which are used as `solve` says.
    Q : the same, optional
        The other set; by default the pairs are those within P.
    cost : Cost, array of shape (m, m), str or callable
        The cost between the points: a cost, "line", or a metric between the rows of ``feature_vectors`` or the columns
        of P, as for `WassersteinNMF`. For clouds the name of a metric, such as "sqeuclidean".
    gap : float, optional
        The certified relative gap of each pair; 0 or None for the optimum.
    root : bool
        Return square roots: with squared distances as the cost, the Wasserstein distance of order two.
    n_jobs : int, optional
        Threads over the pairs: None for one, -1 for all cores. Results do not depend on it.
    feature_vectors : array of shape (m, d), optional
        An embedding of each bin, from which a metric builds the cost.
    verbose : bool
        Show progress.
    checkpoint : path, optional
        A file for the values so far, written every 30 seconds, at an interrupt and at the end. A later call with the
        same measures, cost and gap continues from it, with the same result as without an interrupt.
    max_seconds : float, optional
        The time allowed. Pairs that are not solved by then are NaN, and a `ConvergenceWarning` says how many they are.
        A later call with the same ``checkpoint`` solves them. All other values have the gap that was asked for.

    Returns
    -------
    array of shape (n, k)
        Row i belongs to measure i of P, column j to measure j of Q, or of P. A DataFrame with the labels of the
        measures if P or Q is one.

    Raises
    ------
    ValueError
        If measures, cost and options are inconsistent, a measure has no mass, infinite costs forbid every plan, or the
        checkpoint is of other measures.

    Warns
    -----
    ConvergenceWarning
        If the certified gap of a pair stays larger than asked for, by rounding, or pairs are not solved in the time
        allowed.

    Examples
    --------
    >>> from gibbsot import GridCost, distances
    >>> distances([[1, 0, 0], [0, 1, 1], [0, 0, 2]], cost=GridCost(3, spacing=1.0))
    array([[0. , 2.5, 4. ],
           [2.5, 0. , 0.5],
           [4. , 0.5, 0. ]])
    >>> distances([[[0.0, 0.0]], [[3.0, 4.0], [3.0, 4.0]]], cost="sqeuclidean", root=True)
    array([[0., 5.],
           [5., 0.]])
    """
    validation.flag(root, "root")
    native.threads(n_jobs)
    gap = 0.0 if gap is None else validation.nonnegative(gap, "gap")
    budget = Budget(np.inf if max_seconds is None else validation.positive(max_seconds, "max_seconds"))
    P, Q = validation.from_dlpack(P), validation.from_dlpack(Q)
    first, second, between = _checked(P, Q, cost, feature_vectors)
    least = 0.0 if between is None else between.least()
    if root and least < 0:
        raise ValueError(f"root: the least cost is {least:.3g}; expected costs >= 0 for square roots")
    symmetric = Q is None and (between is None or between.symmetric())
    zero_diagonal = Q is None and (between is None or _is_zero(between))
    pairs = _sets.AllPairs(len(first), len(second), symmetric, zero_diagonal)
    done = Values(len(pairs), checkpoint, "" if checkpoint is None else identity(first, second, between, gap))
    with progress.bar("distances", verbose) as advance:
        options: dict[str, Any] = {"gap": gap, "n_jobs": n_jobs, "advance": advance, "budget": budget, "plans": False}
        solved = _sets.solutions(first, second, pairs, between, **options, start=done.done, gaps=done.gaps)
        try:
            for which, found in solved:
                done.add(which, _sets.values(found))
        finally:
            done.save()
    if rest := len(pairs) - done.done:
        later = "" if checkpoint is None else ", or call again: it continues from the checkpoint"
        warn(
            f"max_seconds: {rest:,} of {len(pairs):,} pairs were not solved in {max_seconds:g} seconds, and are NaN. "
            f"Allow more time{later}",
            ConvergenceWarning,
        )
    D = np.zeros((len(first), len(second)))
    for start in range(0, len(pairs), _FILLED):
        which = slice(start, min(start + _FILLED, len(pairs)))
        i, j = pairs[which]
        D[i, j] = done.values[which]
        if symmetric:
            D[j, i] = D[i, j]
    if least >= 0:
        np.maximum(D, 0, out=D)  # by rounding
    names = labels.of_measures(P, len(D))
    return labels.table(
        np.sqrt(D, out=D) if root else D, names, names if Q is None else labels.of_measures(Q, D.shape[1])
    )


def _checked(P: Any, Q: Any, cost: Any, vectors: Any) -> tuple[_sets.Measures, _sets.Measures, Cost | None]:
    """Return both sets of measures and the cost between their points, None for clouds."""
    if vectors is None and _sets.are_clouds(P, cost):
        first = _sets.clouds(P, "P", cost)
        if Q is None:
            return first, first, None
        if not _sets.are_clouds(Q, cost):
            raise ValueError("Q: expected clouds as in P: arrays of points, or pairs of points and weights")
        second = _sets.clouds(Q, "Q", cost)
        if (d := second.points[0].shape[1]) != (expected := first.points[0].shape[1]):
            raise ValueError(f"Q: has points with {d} coordinates; expected {expected} as in P")
        return first, second, None
    between = _sets.cost_of(cost, P, "P", vectors)
    m1, m2 = between.shape
    if Q is None and m1 != m2:
        raise ValueError(f"cost: is for {m1} x {m2} points; expected as many on both sides for pairs within P")
    if Q is None:
        between = by_names(between, labels.of_weights(P))
    else:
        P, Q = labels.aligned(P, Q, between.labels, between.spacing is not None, ("P", "Q"))
    rows = _sets.rows(P, "P", m1, between.row_shape)
    return rows, rows if Q is None else _sets.rows(Q, "Q", m2, between.col_shape), between


def _is_zero(cost: Cost) -> bool:
    """Tell whether a measure costs nothing to itself: no cost is negative, and those of points to themselves are 0."""
    points = np.arange(cost.shape[0])
    return cost.least() >= 0 and not cost.at(points, points).any()
