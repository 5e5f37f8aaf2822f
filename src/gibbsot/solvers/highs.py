"""Transport on a list of arcs by SciPy's HiGHS, for installations without compiled kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_TOLERANCE = 1e-10  # the smallest that HiGHS takes


class HighsProblem:
    """A transport problem on a list of arcs that grows, with the methods of `network_simplex.ArcProblem`.

    It has no basis: every call of `optimise` solves a linear program. Rows and columns have artificial arcs, so that
    the program is feasible on any list of arcs.

    Parameters
    ----------
    p, q : arrays of shape (m1,) and (m2,)
        Positive weights.

    Examples
    --------
    >>> import numpy as np
    >>> problem = HighsProblem(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    >>> problem.add(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([1.0, 0.0, 1.0]))
    >>> problem.start(np.zeros(2), np.zeros(2), artificial=10.0)
    >>> problem.optimise()
    True
    >>> problem.exact_plan()[2]
    array([0.5, 0.5])
    """

    def __init__(self, p: Array, q: Array) -> None:
        self.p, self.q = p / p.sum(), q / q.sum()
        self._i, self._j, self._cost = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)

    def add(self, i: Indices, j: Indices, cost: NDArray[np.floating]) -> None:
        """Add arcs from rows i to columns j."""
        self._i, self._j = np.concatenate([self._i, i]), np.concatenate([self._j, j])
        self._cost = np.concatenate([self._cost, cost])

    def start(self, f: Array, g: Array, artificial: float) -> None:
        """Set the potentials that reduced costs refer to, and the reduced cost of artificial arcs."""
        self._f, self._g, self._artificial = f.copy(), g.copy(), artificial

    def raise_artificial(self, factor: float = 4.0) -> float:
        """Make artificial arcs more expensive; return their reduced cost."""
        self._artificial *= factor
        return self._artificial

    def optimise(self, tolerance: float = 0.0) -> bool:
        """Solve the linear program; return whether the arcs carry all mass. HiGHS has its own tolerance."""
        from scipy.optimize import linprog  # slow to import

        m1, m2, n = len(self.p), len(self.q), len(self._cost)
        reduced = self._cost - self._f[self._i] - self._g[self._j]
        costs = np.concatenate([reduced, np.full(m1 + m2, self._artificial)])
        unit = float(np.abs(costs).max()) or 1.0
        # an artificial arc leads from a row, or to a column; both sides lack the same mass
        nodes = np.concatenate([self._i, np.arange(m1 + m2), m1 + self._j])
        arcs = np.concatenate([np.arange(n + m1 + m2), np.arange(n)])
        balance = sparse.csr_array((np.ones(len(nodes)), (nodes, arcs)), shape=(m1 + m2, n + m1 + m2))
        found = linprog(
            costs / unit,
            A_eq=balance,
            b_eq=np.concatenate([self.p, self.q]),
            method="highs",
            options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
        )
        if found.x is None:
            raise RuntimeError(f"HiGHS did not solve a transport problem: {found.message}")
        duals = unit * found.eqlin.marginals
        self._duals = self._f + duals[:m1], self._g + duals[m1:]
        self._mass, self._misplaced = found.x[:n], float(found.x[n:].sum())
        return self._misplaced <= 1e-9

    def potentials(self) -> tuple[Array, Array]:
        """Return the potentials f and g of the last solution."""
        f, g = self._duals
        return f.copy(), g.copy()

    def exact_plan(self) -> tuple[Indices, Indices, Array, float]:
        """Return rows, columns and masses of the plan, and the mass that it misplaces."""
        kept = np.flatnonzero(self._mass > 0)
        i, j, mass = self._i[kept], self._j[kept], self._mass[kept]
        excess = np.bincount(i, mass, len(self.p)) - self.p, np.bincount(j, mass, len(self.q)) - self.q
        return i, j, mass, float(sum(np.abs(x).sum() for x in excess))
