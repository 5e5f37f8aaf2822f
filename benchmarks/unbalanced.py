"""Unbalanced transport with divergences beside POT and OTT, in one run.

    python benchmarks/unbalanced.py            # minutes
    python benchmarks/unbalanced.py --large    # problems that have no peer, alone: 100,000 points, photographs

CPU times on one thread. "Within" is how far a value is above the optimum, relatively, which a solve to 1e-9 has
certified. Solvers without entropy, POT's `mm_unbalanced` and `lbfgsb_unbalanced`, get as many iterations as they need
to come within 1e-4 of the optimum, or as many as their time allows, and those with entropy the epsilon whose plan is
best: POT's `sinkhorn_unbalanced`, and OTT's if it is installed (``pip install ott-jax``).
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable, Iterator

import numpy as np
import ot
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_sample_images
from threadpoolctl import threadpool_limits

from gibbsot import Cost, GridCost, PointCost, solve
from timing import seconds

Array = NDArray[np.float64]
Problem = tuple[Array, Array, Cost]

EQUAL = 1e-4  # above the optimum: what counts as the same value
EPSILONS = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)  # of the mean cost

console = Console()


def cloud(n: int) -> Problem:
    """Return uniform weights and the cost between two clouds in the plane, one of them shifted."""
    rng = np.random.default_rng(n)
    p = np.full(n, 1 / n)
    return p, p, PointCost(rng.random((n, 2)), 0.8 * rng.random((n, 2)) + 0.3)


def photographs(n: int) -> Problem:
    """Return the grey values of the two photographs of scikit-learn, reduced to n x n pixels."""
    found = []
    for image in load_sample_images().images:
        k = min(image.shape[:2]) // n
        grey = image.mean(axis=2)[: k * n, : k * n].reshape(n, k, n, k).mean(axis=(1, 3)) + 1.0
        found.append((grey / grey.sum()).ravel())
    return found[0], found[1], GridCost((n, n))


def objective(Z: Array, p: Array, q: Array, M: Array, rho: float) -> float:
    """Return the objective of a plan, without entropy."""
    value = float((Z * M).sum())
    for a, w in ((Z.sum(axis=1), p), (Z.sum(axis=0), q)):
        some = a > 0
        value += rho * float((a[some] * np.log(a[some] / w[some])).sum() - a.sum() + w.sum())
    return value


def unregularised(
    solver: Callable[[int], Array], value: Callable[[Array], float], enough: float, most: float
) -> tuple[float, float]:
    """Return the time and the value of the first of ever longer runs that is good enough, or of the last that fits."""
    iterations = 250
    while True:
        spent, plan = seconds(lambda n=iterations: solver(n))  # type: ignore[misc]
        found = value(plan)
        if found <= enough or 2 * spent > most:
            return spent, found
        iterations *= 2


def entropic(
    solver: Callable[[float], Array], value: Callable[[Array], float], M: Array, most: float
) -> tuple[float, float, float]:
    """Return the time, the value and the epsilon of the best plan."""
    best = np.inf, np.inf, 0.0
    for share in EPSILONS:
        spent, plan = seconds(lambda share=share: solver(share * float(M.mean())))  # type: ignore[misc]
        found = value(plan)
        if np.isfinite(found) and found < best[1]:
            best = spent, found, share * float(M.mean())
        if spent > most / 4:
            break
    return best


def peers(p: Array, q: Array, M: Array, rho: float, enough: float, most: float) -> Iterator[tuple[str, float, float]]:
    """Yield the names of other solvers, their times and values."""

    def value(Z: Array) -> float:
        return objective(np.asarray(Z, np.float64), p, q, M, rho)

    def mm(n: int) -> Array:
        return ot.unbalanced.mm_unbalanced(p, q, M, rho, numItermax=n)

    def lbfgsb(n: int) -> Array:
        return ot.unbalanced.lbfgsb_unbalanced(p, q, M, 0, rho, numItermax=n)

    yield "POT, mm_unbalanced", *unregularised(mm, value, enough, most)
    if len(p) <= 200:  # beyond, one run takes minutes
        yield "POT, lbfgsb_unbalanced", *unregularised(lbfgsb, value, enough, most)

    def sinkhorn(epsilon: float) -> Array:
        options = {"method": "sinkhorn_stabilized", "numItermax": 10_000}
        return ot.unbalanced.sinkhorn_unbalanced(p, q, M, epsilon, rho, **options)

    spent, found, epsilon = entropic(sinkhorn, value, M, most)
    yield f"POT, sinkhorn_unbalanced, epsilon {epsilon:.1g}", spent, found
    try:
        import jax
        from ott.geometry.geometry import Geometry
        from ott.problems.linear.linear_problem import LinearProblem
        from ott.solvers.linear.sinkhorn import Sinkhorn
    except ImportError:
        return
    jax.config.update("jax_enable_x64", True)  # type: ignore[attr-defined]

    def plan(epsilon: float) -> Array:
        tau = rho / (rho + epsilon)
        problem = LinearProblem(Geometry(M, epsilon=epsilon), p, q, tau_a=tau, tau_b=tau)
        return np.asarray(Sinkhorn(max_iterations=10_000)(problem).matrix)

    plan(float(M.mean()))  # compiles
    spent, found, epsilon = entropic(plan, value, M, most)
    yield f"OTT, sinkhorn, epsilon {epsilon:.1g}", spent, found


def compare(table: Table, n: int, rho: float, most: float) -> None:
    """Add the rows of clouds of n points: ours for several gaps, and those of others."""
    p, q, cost = cloud(n)
    solve(p, q, cost, kl=rho)  # loads what is used
    bound = solve(p, q, cost, kl=rho, gap=1e-9).lower_bound
    name, own = f"{n:,} points, rho {rho:g}", 0.0
    for gap in (1e-3, 1e-4, 1e-6):
        spent, found = seconds(lambda gap=gap: solve(p, q, cost, kl=rho, gap=gap))  # type: ignore[misc]
        own = spent if gap == EQUAL else own
        table.add_row(
            name, f"gibbsot, gap {gap:g}", f"{spent:.3f}", f"{found.value:.8f}", _within(found.value, bound), ""
        )
    M = np.asarray(cost.matrix(), np.float64)
    for peer, spent, value in peers(p, q, M, rho, bound * (1 + EQUAL), most):
        table.add_row(name, peer, f"{spent:.3f}", f"{value:.8f}", _within(value, bound), f"{spent / own:.0f}")


def _within(value: float, bound: float) -> str:
    """Return how far a value is above a bound."""
    return f"{max(value / bound - 1, 0.0):.0e}"


def large() -> None:
    """Print problems for which peers have no memory."""
    table = Table(title="Large problems, CPU seconds")
    for column in ("problem", "gap asked for", "seconds", "value", "certified gap", "peak, MB"):
        table.add_column(column, justify="right")
    before = _peak()  # with the modules of peers
    made = [("64 x 64 pixels, rho 0.05", 0.05, photographs(64))]
    made += [(f"{n:,} points, rho 0.1", 0.1, cloud(n)) for n in (10_000, 100_000)]
    for name, rho, (p, q, cost) in made:
        for gap in (1e-3, 1e-6):
            spent, found = seconds(lambda gap=gap: solve(p, q, cost, kl=rho, gap=gap))  # type: ignore[misc]  # noqa: B023
            peak = _peak() - before
            table.add_row(name, f"{gap:g}", f"{spent:.2f}", f"{found.value:.8f}", f"{found.gap:.0e}", f"{peak:.0f}")
    console.print(table)


def _peak() -> float:
    """Return the peak of the memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="problems that have no peer, alone")
    parser.add_argument("--peer-seconds", type=float, default=20.0, help="that a run of another solver may take")
    options = parser.parse_args()
    threadpool_limits(1)
    if options.large:
        large()
        return
    table = Table(title="CPU seconds; the last column is relative to ours at a gap of 1e-4")
    for column in ("problem", "by", "seconds", "value", "within", "ratio"):
        table.add_column(column, justify="left" if column in ("problem", "by") else "right")
    for n, rho in ((200, 0.1), (200, 1.0), (1000, 0.1)):
        compare(table, n, rho, options.peer_seconds)
    console.print(table)


if __name__ == "__main__":
    main()
