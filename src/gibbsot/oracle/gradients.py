"""Values and gradients of exact transport costs, as automatic differentiation needs them.

The gradients of W(p, q) with respect to the weights are optimal potentials, and those with respect to points or costs
come from an optimal plan (the envelope theorem). `gibbsot.torch` and `gibbsot.jax` share these functions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import validation
from ..costs import PointCost
from ..costs.problems import Problem
from ..exact.method import in_threads
from ..exact.solution import Solution, warn_of_open_gaps
from ..solvers.kl import marginals_of
from ..solvers.relaxed import Marginals, Measures, Penalty

Array = NDArray[np.float64]


class Weights:
    """Rows of weights, divided by their sums if that is asked for.

    Parameters
    ----------
    x : array of float64, shape (n, m)
        The weights.
    name : str
        What the caller calls them.
    normalize : bool
        Whether they are divided by their sums.

    Attributes
    ----------
    rows : array of shape (n, m)
        The weights to use.
    """

    def __init__(self, x: Array, name: str, normalize: bool) -> None:
        self._sums = validation.check_weights(x, name)[:, None] if normalize else None
        self.rows = x if self._sums is None else x / self._sums

    def gradient(self, of_rows: Array) -> Array:
        """Return the gradient with respect to the weights from that with respect to the rows.

        Parameters
        ----------
        of_rows : array of shape (n, m)

        Returns
        -------
        array of shape (n, m)
        """
        if self._sums is None:
            return of_rows
        return (of_rows - (self.rows * of_rows).sum(axis=1, keepdims=True)) / self._sums


class Gradients(NamedTuple):
    """Values of transport costs and their gradients.

    Attributes
    ----------
    value : array of shape (n,)
    p, q : arrays of shape (n, m1) and (n, m2)
        Gradients with respect to the weights, not centred: the potentials, or what divergences make of them.
    solutions : list of Solution
        What the exact solver found, for problems of mass one.
    mass : array of shape (n,)
        The masses of the problems.
    potentials : pair of arrays of shape (n, m1) and (n, m2)
        Potentials f and g that are feasible for all pairs.
    """

    value: Array
    p: Array
    q: Array
    solutions: list[Solution]
    mass: Array
    potentials: tuple[Array, Array]


def measures(p: Array, q: Array) -> tuple[Measures, Measures]:
    """Return rows of weights with their sums, after a check."""
    return (p, validation.check_weights(p, "p")), (q, validation.check_weights(q, "q"))


def weight_gradients(
    p: Array,
    q: Array,
    of: Marginals,
    tolerance: float = 1e-6,
    n_jobs: int | None = None,
    warm_start: list[Any] | None = None,
) -> Gradients:
    """Return exact transport costs of rows of weights, and their gradients.

    Parameters
    ----------
    p, q : arrays of float64, shape (n, m1) and (n, m2)
        Weights.
    of : Marginals
        The cost of all pairs, and what may be left over.
    tolerance : float
        How far the sums of a pair may differ by rounding, relatively, where they have to agree.
    n_jobs : int, optional
        Threads over the problems.
    warm_start : list of Solution, optional
        Solutions of similar problems, or anything with their ``basis``, which saves time.

    Returns
    -------
    Gradients

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost
    >>> of = marginals_of(GridCost(3, spacing=1.0))
    >>> found = weight_gradients(np.array([[1.0, 0, 0]]), np.array([[0, 0, 1.0]]), of)
    >>> found.value, centred(found.p)
    (array([4.]), array([[ 2.33333333, -0.66666667, -1.66666667]]))
    """
    return solved(of, of.problem(*measures(p, q), tolerance), n_jobs, warm_start)


def solved(of: Marginals, pair: Problem, n_jobs: int | None, warm_start: list[Any] | None = None) -> Gradients:
    """Return the exact transport costs of problems that the marginals made, and their gradients."""
    solutions = of.solve(pair, n_jobs=n_jobs, warm_start=warm_start)
    warn_of_open_gaps(solutions)
    value = pair.mass * np.array([one.value for one in solutions])
    f, g = np.stack([one.f for one in solutions]), np.stack([one.g for one in solutions])
    zero = value == 0
    if zero.any() and of.cost.least() >= 0:
        f, g = (np.where(zero[:, None], 0.0, x) for x in (f, g))  # optimal too: W has its minimum there
    return Gradients(value, *of.gradients(f, g), solutions, pair.mass, (f, g))


def centred(x: NDArray[np.floating]) -> Array:
    """Return potentials minus their means, along which weights keep their sum.

    A point that only infinite costs lead to has a gradient of zero.

    Parameters
    ----------
    x : array of shape (n, m)
        Potentials.

    Returns
    -------
    array of float64, shape (n, m)
    """
    x = x.astype(np.float64)
    finite = np.isfinite(x)
    if finite.all():
        return np.asarray(x - x.mean(axis=1, keepdims=True))
    x[~finite] = np.nan
    return np.nan_to_num(x - np.nanmean(x, axis=1, keepdims=True))


class CloudGradients(NamedTuple):
    """The transport cost between two clouds of points and its gradients.

    Attributes
    ----------
    value : float
    p, q : arrays of shape (m1,) and (m2,)
        Gradients with respect to the weights: potentials, not centred.
    x, y : arrays of shape (m1, d) and (m2, d)
        Gradients with respect to the points, through the exact plan.
    """

    value: float
    p: Array
    q: Array
    x: Array
    y: Array


def cloud_gradients(
    clouds: list[tuple[Array, Array, Array, Array]],
    metric: str = "sqeuclidean",
    penalty: Penalty | None = None,
    tolerance: float = 1e-6,
    n_jobs: int | None = None,
    kl: tuple[float, float] | None = None,
) -> list[CloudGradients]:
    r"""Return exact transport costs between clouds of points, and their gradients.

    .. math:: \nabla_{x_i} W = \sum_j Z_{ij} \nabla_{x_i} M(x_i, y_j)

    Parameters
    ----------
    clouds : list of (x, y, p, q)
        Points of shape (m1, d) and (m2, d) and weights of shape (m1,) and (m2,), all of float64.
    metric : {"sqeuclidean", "euclidean"}
        The distance. Where two points coincide, the gradient of the plain distance is taken to be zero.
    penalty : float or pair, optional
        As in `solve`.
    tolerance : float
        As for `weight_gradients`.
    n_jobs : int, optional
        Threads over the clouds.
    kl : pair of float, optional
        As in `solve`.

    Returns
    -------
    list of CloudGradients

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.array([[0.0], [1.0]]), np.array([[3.0]])
    >>> found = cloud_gradients([(x, y, np.full(2, 0.5), np.ones(1))])[0]
    >>> found.value, found.x.ravel(), found.y.ravel()
    (6.5, array([-3., -2.]), array([5.]))
    """

    def work(b: int) -> CloudGradients:
        x, y, p, q = clouds[b]
        try:
            found = weight_gradients(p[None], q[None], marginals_of(PointCost(x, y, metric), penalty, kl), tolerance)
        except ValueError as error:
            raise ValueError(f"{error} (pair {b})") from None
        arcs = found.solutions[0].plan.tocoo()
        mass = arcs.data * found.mass[0]
        step = mass[:, None] * _direction(x[arcs.row] - y[arcs.col], metric)
        of_x, of_y = (np.zeros_like(points) for points in (x, y))
        np.add.at(of_x, arcs.row, step)
        np.add.at(of_y, arcs.col, -step)
        return CloudGradients(float(found.value[0]), found.p[0], found.q[0], of_x, of_y)

    return in_threads(work, range(len(clouds)), n_jobs)


def _direction(difference: Array, metric: str) -> Array:
    """Return the gradients of distances with respect to the first points."""
    if metric == "sqeuclidean":
        return 2 * difference
    length = np.linalg.norm(difference, axis=1, keepdims=True)
    return np.divide(difference, length, out=np.zeros_like(difference), where=length > 0)
