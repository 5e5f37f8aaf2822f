"""What a method of the exact engine is: which problems it takes, what it needs, and how it solves them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core import native
from ..core.backend import backend
from ..costs import Cost
from ..costs.problems import Problem
from ..io.budget import Budget
from .solution import Solution

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Batch:
    """Problems to be solved, and how.

    Attributes
    ----------
    problem : Problem
        The problems.
    gap : float
        Stop as soon as the certified relative gap is at most this; 0 for the optimum.
    budget : Budget
        Time and memory; its threads are those inside a problem.
    n_jobs : int, optional
        Threads over the problems.
    warm_start : list of Solution, optional
        Solutions of problems with the same points and other weights or costs.
    U : array of shape (n, m1), optional
        Potentials to start from.
    max_rounds : int
        How often arcs may be added; with one round problems are solved only on the arcs that U suggests.
    cost : Cost
        The cost in double precision: one copy for all problems.
    """

    problem: Problem
    gap: float
    budget: Budget
    n_jobs: int | None = None
    warm_start: list[Solution] | None = None
    U: NDArray[np.floating] | None = None
    max_rounds: int = 30

    cost: Cost = field(init=False)

    def __post_init__(self) -> None:
        self.cost = self.problem.cost.astype(np.float64)

    def weights(self, b: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the weights of a problem, as they were given."""
        p, q = self.problem.given
        return p[b], q[b]

    def start(self, b: int) -> NDArray[np.float64] | None:
        """Return potentials of the rows from which a problem may start: of its warm start, or given; None if none."""
        f = None if self.warm_start is None else getattr(self.warm_start[b], "f", None)
        if f is None:
            f = None if self.U is None else self.U[b]
        return None if f is None else np.asarray(f, np.float64)

    def each(self, solve: Callable[[int], Solution], which: list[int]) -> list[Solution]:
        """Solve problems one by one, in threads; an error says which one."""

        def named(b: int) -> Solution:
            try:
                return solve(b)
            except ValueError as error:
                raise ValueError(f"{error} (problem {b})") from None

        return in_threads(named, which, self.n_jobs)


class Method(ABC):
    """A way to solve problems exactly.

    Attributes
    ----------
    name : str
        What reports and the documentation call it.
    about, suits : str
        What it does and what it is for, in a few words: the table of ``docs/which_solver.md``.
    least, most : float
        It is used for more pairs of points with weight than the one, and no more than the other.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    suits: ClassVar[str]
    least: ClassVar[float] = -1
    most: ClassVar[float] = np.inf

    @abstractmethod
    def accepts(self, cost: Cost) -> bool:
        """Tell whether it can solve problems with this cost."""

    @abstractmethod
    def memory(self, cost: Cost) -> float:
        """Return an estimate of the bytes that one problem needs beyond the cost and the measures."""

    @abstractmethod
    def seconds(self, points: float, pairs: float) -> float:
        """Return about how long a problem takes, from the points of its larger side and its pairs, all with weight."""

    @abstractmethod
    def solve(self, batch: Batch, which: list[int]) -> list[Solution]:
        """Solve some problems of a batch."""


def in_threads(
    work: Callable[[int], T], items: Iterable[int], n_jobs: int | None, budget: Budget | None = None
) -> list[T]:
    """Return the results of some work in threads; an error or Ctrl-C ends what is queued and what the kernels do.

    It stops the budget, too, which the work may look at. One thread is the caller's: inside another call's threads the
    kernels then see that one's end.
    """
    if native.threads(n_jobs) == 1:
        return [work(item) for item in items]
    stop = backend().stop_flag()
    with ThreadPoolExecutor(native.threads(n_jobs), initializer=stop.watch) as pool:
        try:
            return list(pool.map(work, items))
        except BaseException:
            stop.set()
            if budget is not None:
                budget.stop()
            pool.shutdown(cancel_futures=True)
            raise
