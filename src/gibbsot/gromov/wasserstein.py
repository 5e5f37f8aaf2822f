"""The public function and its result."""

from __future__ import annotations

import html
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..core import native, validation
from ..core.warn import warn
from ..costs import Cost, PointCost
from ..exact.certificate import status
from ..exact.method import in_threads
from ..io.budget import reported_budget
from .clouds import Clouds
from .matrices import Matrices
from .measures import Measures, checked, features_of
from .search import Found, Search

Array = NDArray[np.float64]

THIRD_POINTS = 2000  # of the larger side for which the third lower bound is computed


@dataclass(frozen=True, eq=False, repr=False)
class GromovResult:
    """The result of `gromov_wasserstein`.

    Attributes
    ----------
    value : float
        The objective of the plan. It is an upper bound of the least one.
    plan : scipy.sparse.csr_array of shape (m1, m2)
        A coupling: its marginals are p and q.
    values : array of float
        What was found from every start, in their order; ``value`` is the least.
    lower_bound : float
        No plan has a smaller objective. The first and the second lower bound of [1]_, or the third on request, rounded
        downwards. It often is far below the optimum.
    status : str
        "local optimum": no plan is better to first order, which is what the method can find; there may be better ones
        elsewhere. "optimal": the lower bound proves that there are none, up to 1e-10 of ``scale``. "budget spent":
        time or steps ended before that.
    scale : float
        The sum of the absolute terms of the objective, which rounding and "optimal" are relative to.
    steps : int
        The linear problems that were solved, from all starts; those of coarser clouds are not counted.
    seconds : float
        The time.

    References
    ----------
    .. [1] F. Mémoli, "Gromov-Wasserstein distances and the metric approach to object matching", Foundations of
       Computational Mathematics 11, 2011.

    Examples
    --------
    >>> from gibbsot import gromov_wasserstein
    >>> result = gromov_wasserstein([[0, 0], [3, 0], [0, 1]], [[5, 5], [5, 8], [6, 5]])
    >>> result.status, result.plan.toarray().round(3)
    ('optimal', array([[0.333, 0.   , 0.   ],
           [0.   , 0.333, 0.   ],
           [0.   , 0.   , 0.333]]))
    """

    value: float
    plan: sparse.csr_array
    values: Array
    lower_bound: float
    status: str
    scale: float
    steps: int
    seconds: float

    def _rows(self) -> list[tuple[str, str]]:
        """Return what is shown of a result."""
        m1, m2 = self.plan.shape
        return [
            ("value", f"{self.value:.6g} ({self.status})"),
            ("lower bound", f"{self.lower_bound:.6g}"),
            ("size", f"{m1} x {m2} points"),
            ("starts", f"{len(self.values)}, values {self.values.min():.6g} to {self.values.max():.6g}"),
            ("time", f"{self.seconds:.3g} s"),
        ]

    def __repr__(self) -> str:
        return f"<GromovResult {', '.join(f'{name} {text}' for name, text in self._rows())}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in self._rows())
        return f"<table>{rows}</table>"


def gromov_wasserstein(
    X: ArrayLike,
    Y: ArrayLike,
    p: Any = None,
    q: Any = None,
    *,
    metric: str = "sqeuclidean",
    fused: float | None = None,
    cost: Cost | ArrayLike | None = None,
    start: Any = None,
    n_starts: int | None = None,
    third_bound: bool = False,
    max_steps: int = 1000,
    max_seconds: float | None = None,
    rng: int | np.random.Generator | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> GromovResult:
    r"""Match two measures by the distances inside each of them: a local optimum of Gromov-Wasserstein.

    .. math:: \min_{Z \ge 0} \sum_{ijkl} (C_{ik} - D_{jl})^2 Z_{ij} Z_{kl}, \quad Z 1 = p, \; Z^T 1 = q

    C and D are the distances inside X and inside Y. The measures may lie in spaces of different dimensions, and the
    value does not change when one of them is rotated, reflected or moved. Every step solves a linear transport problem
    exactly. For clouds with squared distances no matrix is made.

    Parameters
    ----------
    X, Y : arrays of shape (m1, d1) and (m2, d2), or (m1, m1) and (m2, m2)
        The clouds; a vector stands for points on the line. With ``metric="precomputed"`` the matrices C and D, which
        need not be symmetric.
    p, q : arrays of m1 and m2 weights, optional
        The measures, each of sum one; uniform by default.
    metric : str
        The distances: squared Euclidean ones by default, "precomputed", or another metric of
        :func:`scipy.spatial.distance.cdist`, of which matrices are made.
    fused : float, optional
        The share alpha of this objective beside transport of features:
        ``(1 - alpha) <Z, M> + alpha GW(Z)``, from 0 to 1, with ``cost``.
    cost : Cost or array of shape (m1, m2), optional
        The cost M between features, all of it finite. A `PointCost` with squared distances needs no matrix.
    start : array or sparse matrix of shape (m1, m2), or list of them, optional
        Plans from which to start. By default the product of the measures, then the principal axes on each other with
        all reflections of the first three, and where principal variances coincide eight random rotations.
    n_starts : int, optional
        The number of starts, of those in this order; random rotations follow where there are fewer. 1 is the product
        of the measures, from which POT starts.
    third_bound : bool
        Whether to compute the third lower bound, too, which is larger and takes time: for at most 2,000 points.
    max_steps : int
        The most steps from a start.
    max_seconds : float, optional
        The time after which the search ends with the best plan so far and the status "budget spent".
    rng : int or numpy.random.Generator, optional
        The key of random rotations, 0 by default; a generator draws one.
    n_jobs : int, optional
        Threads over the starts, as in scikit-learn: None for one, -1 for all cores. Results do not depend on it.
    verbose : bool
        Show progress. The first Ctrl-C then ends the search like ``max_seconds``, the second one interrupts it.

    Returns
    -------
    GromovResult

    Raises
    ------
    ValueError, TypeError
        If an argument is not valid.

    Warns
    -----
    ConvergenceWarning
        If time or steps ended before a local optimum was found.

    Examples
    --------
    A cloud and its copy, rotated and with another order of its points:

    >>> import numpy as np
    >>> from gibbsot import PointCost, gromov_wasserstein
    >>> rng = np.random.default_rng(0)
    >>> X, order = rng.random((30, 2)) ** [1, 2], rng.permutation(30)
    >>> result = gromov_wasserstein(X, X[order] @ [[0.6, 0.8], [-0.8, 0.6]] + 5)
    >>> bool(result.value < 1e-12), result.status
    (True, 'optimal')
    >>> bool((order[result.plan.indices] == np.arange(30)).all())
    True

    With plain distances, of which matrices are made, and features:

    >>> colours = PointCost(rng.random(30), rng.random(20))
    >>> gromov_wasserstein(X, rng.random((20, 3)), metric="euclidean", fused=0.5, cost=colours).status
    'local optimum'
    """
    begun = time.perf_counter()
    search = _search(X, Y, p, q, metric, fused, cost)
    plans = None if start is None else search.measures.given_plans(start)
    if n_starts is not None:
        validation.count(n_starts, "n_starts")
        if plans is not None:
            raise ValueError("n_starts: counts the starts that are made; expected it without start")
    validation.count(max_steps, "max_steps")
    validation.flag(verbose, "verbose")
    if validation.flag(third_bound, "third_bound") and max(search.measures.shape) > THIRD_POINTS:
        raise ValueError(f"third_bound: expected at most {THIRD_POINTS:,} points, got {max(search.measures.shape):,}")
    limits: dict[str, Any] = {}
    if max_seconds is not None:
        limits["max_seconds"] = validation.positive(max_seconds, "max_seconds")
    threads, noise = native.threads(n_jobs), np.random.default_rng(validation.noise_key(rng))

    with reported_budget("Gromov-Wasserstein", verbose, True, **limits) as budget:
        starts = search.starts(n_starts, noise, budget) if plans is None else [search.started(one) for one in plans]

        def one(k: int) -> Found | None:
            if k and budget.spent:
                return None
            found = search.descend(starts[k], max_steps, budget)
            budget.report("start %d of %d: value %.6g after %d steps", k + 1, len(starts), found.value, found.steps)
            return found

        tried = in_threads(one, range(len(starts)), None if threads == 1 else threads, budget)
        lower = search.lower_bound(third_bound, budget)
    return _result(search, [found for found in tried if found is not None], len(tried), lower, begun)


def _result(search: Search, found: list[Found], wanted: int, lower: float, begun: float) -> GromovResult:
    """Return the best of what was found from the starts, in the units of the arguments."""
    best, unit = min(found, key=lambda one: one.value), search.unit
    lower = min(lower, best.value)  # which is rounded, too
    ended = len(found) < wanted or not all(one.done for one in found)
    state = status(lower, best.value, search.scale(best.plan), spent=ended)
    if state == "budget spent":
        from sklearn.exceptions import ConvergenceWarning  # loading scikit-learn takes a second

        text = "the search ended before a local optimum was found from every start; allow more max_seconds or max_steps"
        warn(text, ConvergenceWarning)
    return GromovResult(
        value=best.value * unit,
        plan=search.measures.whole(best.plan),
        values=np.array([one.value * unit for one in found]),
        lower_bound=lower * unit,
        status="local optimum" if state == "gap open" else state,
        scale=search.scale(best.plan) * unit,
        steps=sum(one.steps for one in found),
        seconds=time.perf_counter() - begun,
    )


def _search(X: Any, Y: Any, p: Any, q: Any, metric: str, fused: float | None, cost: Cost | ArrayLike | None) -> Search:
    """Return the problem that the arguments state, between the points that have weight."""
    if not isinstance(metric, str):
        raise TypeError(f"metric: expected the name of a metric, or 'precomputed' with matrices, got {metric!r}")
    kind = "matrix" if metric == "precomputed" else "points"
    first, second = (checked(x, name, kind) for x, name in ((X, "X"), (Y, "Y")))
    measures = Measures.of(p, q, (len(first), len(second)))
    alpha, features = features_of(fused, cost, measures)
    rows, columns = measures.rows, measures.columns
    if metric == "sqeuclidean":
        return Clouds.of(first[rows], second[columns], measures, alpha, features)
    if metric != "precomputed":
        first, second = (np.asarray(PointCost(x, metric=metric).matrix(), np.float64) for x in (first, second))
    return Matrices.of(first[np.ix_(rows, rows)], second[np.ix_(columns, columns)], measures, alpha, features)
