"""The public functions: ``solve(p, q, cost)``, and `solve_batch` for many problems at once."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from ..core.costs import Cost
from ..core.problems import problem as make_problem
from ..sampling.schedules import Schedule
from .gibbs import GibbsSolver
from .results import OTResult


def solve(
    p: Any,
    q: Any,
    cost: Cost | ArrayLike,
    *,
    n_sweeps: int | None = None,
    schedule: Schedule | None = None,
    warm_start: OTResult | None = None,
    gap: float | None = None,
    exact: bool = False,
    pinned: bool = False,
    diagnostics: bool = False,
    seed: int | None = None,
    verbose: bool = False,
) -> OTResult:
    r"""Estimate the optimal transport cost of two measures, with potentials and a certified lower bound.

    .. math:: W(p, q) = \min_{Z \ge 0} \langle Z, M \rangle, \quad Z 1 = p, \; Z^T 1 = q

    A Gibbs sampler on the dual is cooled from a temperature at which it moves freely to one at which it hardly moves.
    Multiplying the cost by c multiplies temperatures, value and potentials by c. The smaller W is in relation to the
    mean cost, the slower the chain: for measures that nearly agree the value falls short of W; use ``exact=True``.

    Parameters
    ----------
    p, q : arrays, lists or sparse matrices of m1 and m2 weights
        The measures; their sums agree to 1e-6 and are normalised to one.
    cost : Cost or array of shape (m1, m2)
        The cost; its dtype is the precision of the computation. Infinite costs forbid pairs; whether they leave any
        plan at all is checked only with ``exact=True``. Put the measure with fewer points second: a sweep
        reads only the columns to which q gives weight.
    n_sweeps : int, optional
        The largest number of sweeps, 8,000 by default. Fewer are faster and less precise.
    schedule : Adaptive, number, array or function, optional
        By default the cooling adapts to the problem, `schedules.Adaptive()`. Otherwise the temperature, in units of the
        cost: of all sweeps, of each, or as a function of the sweep's number from 1.
    warm_start : OTResult, optional
        Continue from the state of this result, of measures that have changed a little, with the same cost. Unless a
        schedule is given, the chains then stay at the result's temperature and stop as soon as they have mixed: a warm
        start follows, it does not refine. To refine, give a schedule that cools further.
    gap : float, optional
        Anneal again with ever more sweeps, at last ``n_sweeps``, until the certified relative gap is at most this;
        `status` tells whether it is, and the result's `n_sweeps` counts them all.
    exact : bool
        Solve exactly: the value is then W(p, q), the potentials and the plan (a vertex) are optimal, and `status` is
        "optimal". Problems of moderate size and squared or plain Euclidean distances of points are solved without
        sweeps, unless options of the chains are given; others cross over after annealing, 100 to 4,000 sweeps in
        single precision by default.
    pinned : bool
        Keep g = 0 at the first point with weight, the paper's Omega_0.
    diagnostics : bool
        Evaluate every half step of the run as the paper's appendix does: `diagnostics` of the result is then a
        `theory.Trace`, and `plots.diagnostics` draws it. Every half step costs O(m1 m2 log(m1 m2)): for small problems.
    seed : int, optional
        The seed of the noise, 0 by default. Results are deterministic. A warm start keeps the seed of its result.
    verbose : bool
        Show a progress bar, on a terminal.

    Returns
    -------
    OTResult
        The value with potentials, bounds and plan; bounds and plan are computed when first used.

    Raises
    ------
    ValueError
        If measures, cost and options are inconsistent.

    Examples
    --------
    >>> from gibbsot import GridCost, solve
    >>> result = solve([0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], GridCost(4, power=1, spacing=1.0))
    >>> round(result.value, 2)
    2.0
    >>> result.lower_bound <= 2.0
    True
    """
    problem = make_problem(p, q, cost, ("p", "q"))
    if len(problem) != 1:
        raise ValueError(f"p, q: expected one measure each, got {len(problem)}; solve_batch takes many")
    solver = GibbsSolver(
        n_sweeps=n_sweeps,
        schedule=schedule,
        warm_start=warm_start,
        gap=gap,
        exact=exact,
        pinned=pinned,
        diagnostics=diagnostics,
        seed=seed,
        verbose=verbose,
    )
    return solver(problem)[0]


def solve_batch(
    P: Any,
    Q: Any,
    cost: Cost | ArrayLike,
    *,
    n_sweeps: int | None = None,
    schedule: Schedule | None = None,
    warm_start: OTResult | None = None,
    gap: float | None = None,
    exact: bool = False,
    pinned: bool = False,
    diagnostics: bool = False,
    seed: int | None = None,
    ids: ArrayLike | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> OTResult:
    """Estimate many optimal transport costs that share one cost: row b of P to row b of Q.

    The problems are independent and have their own temperatures and supports. The result is bit-identical for every
    ``n_jobs``, and for a batch that is split or permuted if each problem keeps its entry of ``ids``.

    Parameters
    ----------
    P, Q : arrays, lists or sparse matrices of shape (n, m1) and (n, m2)
        One measure in each row; a single measure is paired with all of the other side.
    cost, n_sweeps, schedule, warm_start, gap, exact, pinned, diagnostics, seed, verbose
        As for `solve`.
    ids : array of int, optional
        Numbers of the problems, which determine their noise together with the seed; by default their indices in the
        batch.
    n_jobs : int, optional
        Threads over the problems, as in scikit-learn: None for one, -1 for all cores.

    Returns
    -------
    OTResult
        The results; every number is an array with one entry for each problem.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost, solve_batch
    >>> P = np.eye(3)
    >>> solve_batch(P, P[0], GridCost(3, spacing=1.0)).value.round(3)
    array([0., 1., 4.])
    """
    problem = make_problem(P, Q, cost)
    solver = GibbsSolver(
        n_sweeps=n_sweeps,
        schedule=schedule,
        warm_start=warm_start,
        gap=gap,
        exact=exact,
        pinned=pinned,
        diagnostics=diagnostics,
        seed=seed,
        ids=ids,
        n_jobs=n_jobs,
        verbose=verbose,
    )
    return solver(problem)
