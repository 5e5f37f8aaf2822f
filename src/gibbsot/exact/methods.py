"""Exact optima of transport problems, with certified bounds: the list of methods, and the choice among them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core import native
from ..costs.problems import Problem
from ..io.budget import Budget
from .all_arcs import AllArcs
from .annealed import Crossover
from .coarse_to_fine import CoarseToFine
from .graph import Graph, GridEdges
from .line import Line
from .method import Batch, Method
from .pyramid import CoarseGrids
from .solution import Solution

# in the order of preference: the first that accepts the cost and whose range has the number of pairs with weight
METHODS: tuple[Method, ...] = (Line(), Graph(), GridEdges(), CoarseToFine(), CoarseGrids(), AllArcs(), Crossover())

KEPT_BYTES = 48  # of a point of each problem: weights as they are given and normalised, potentials, basis, plan


def choose(problem: Problem) -> list[Method]:
    """Return how each problem is solved exactly; only the cost and the number of pairs with weight decide.

    Parameters
    ----------
    problem : Problem
        The problems.

    Returns
    -------
    list of Method

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost, Problem
    >>> ones = np.ones(32 * 32)
    >>> [choose(Problem(ones, ones, GridCost((32, 32), power=power)))[0].name for power in (1, 2)]
    ['grid edges', 'coarse to fine']
    """
    cost, possible = problem.cost, list[Method]()
    every = cost.shape[0] * cost.shape[1]
    for method in METHODS:
        if method.least < every and method.accepts(cost):
            possible.append(method)
            if method.least < 0 and every <= method.most:  # it takes what those before it do not
                break
    if len(possible) == 1:
        return possible * len(problem)
    pairs = np.prod([np.count_nonzero(x, axis=1) for x in problem.given], axis=0).tolist()
    return [next(method for method in possible if method.least < k <= method.most) for k in pairs]


def memory_needed(problem: Problem, n_jobs: int | None = None) -> float:
    """Return an estimate of the bytes that exact solutions need beyond the cost and the measures.

    What the chosen methods take at once, and the measures and solutions of all problems. The numbers were measured: no
    allocation of more than a megabyte is left out.

    Parameters
    ----------
    problem : Problem
        The problems.
    n_jobs : int, optional
        Threads over the problems.

    Returns
    -------
    float

    Examples
    --------
    >>> from gibbsot import GridCost, Problem
    >>> import numpy as np
    >>> ones = np.ones(512 * 512)
    >>> f"{memory_needed(Problem(ones, ones, GridCost((512, 512)))):.1e}"
    '5.5e+08'
    """
    needed = max(method.memory(problem.cost) for method in set(choose(problem)))
    at_once = min(native.threads(n_jobs), len(problem)) * needed
    return at_once + KEPT_BYTES * float(sum(problem.cost.shape)) * len(problem)


def optima(
    problem: Problem,
    U: NDArray[np.floating] | None = None,
    max_rounds: int = 30,
    n_jobs: int | None = None,
    gap: float = 0.0,
    warm_start: list[Solution] | None = None,
    budget: Budget | None = None,
) -> list[Solution]:
    """Solve each problem of a batch exactly, by the method that `choose` names.

    Parameters
    ----------
    problem : Problem
        The problems.
    U : array of shape (n, m1), optional
        Potentials from which problems cross over; by default those of annealed chains.
    max_rounds : int
        As for `crossover`. With one round all problems are solved only on the arcs that U suggests.
    n_jobs : int, optional
        Threads over the problems.
    gap : float
        Stop as soon as the certified relative gap is at most this; 0 for the optimum.
    warm_start : list of Solution, optional
        Solutions of problems with the same points and other weights or costs: problems that are solved on all arcs
        start from their bases.
    budget : Budget, optional
        Its time and memory; solutions then may have the status "budget spent". Its threads are those inside a problem.

    Returns
    -------
    list of Solution

    Raises
    ------
    ValueError
        If infinite costs forbid every plan of a problem.
    """
    budget = budget or Budget(threads=max(1, native.threads(n_jobs) // len(problem)))
    batch = Batch(problem, gap, budget, n_jobs, warm_start, U, max_rounds)
    chosen = [METHODS[-1]] * len(problem) if max_rounds == 1 else choose(problem)
    found: dict[int, Solution] = {}
    for method in dict.fromkeys(chosen):
        which = [b for b, one in enumerate(chosen) if one is method]
        if budget.reports:
            budget.report("%d problems of %d x %d points by %s", len(which), *problem.cost.shape, method.name)
        answers = method.solve(batch, which)
        if len(which) == len(chosen):
            return answers
        found.update(zip(which, answers, strict=True))
    return [found[b] for b in range(len(chosen))]
