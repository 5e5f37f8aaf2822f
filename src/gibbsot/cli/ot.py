"""``gibbsot ot``: the transport cost between two measures."""

from __future__ import annotations

import csv
import io
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
import typer
from numpy.typing import NDArray
from scipy import sparse

from .. import plots
from ..core import validation
from ..costs import Cost, GraphCost
from ..exact.certificate import PROVED, ROUNDING
from ..io import atomic, readers
from ..io.edges import Edges
from ..io.readers import Measure
from ..sampling.gibbs import Gibbs
from ..solvers.options import Options
from ..solvers.result import OTResult
from ..solvers.solve import one_problem, solve_problem
from . import _common, _inputs
from ._common import CostOption, Header, Invert, Jobs, Json, Key, Power, Quiet, Size, Spacing
from ._text import printable

EPILOG = (
    "Examples:\n\n"
    "  gibbsot ot a.png b.png --invert --plan-picture plan.png\n\n"
    "  gibbsot ot before.csv after.csv --points\n\n"
    "  gibbsot ot p.npy q.npy --cost M.npy --plan plan.csv --json\n\n"
    "  gibbsot ot morning.csv evening.csv --graph roads.csv --flow flow.csv"
)


class MethodName(StrEnum):
    """How to solve."""

    exact = "exact"
    gibbs = "gibbs"


def ot(
    a: Annotated[Path, typer.Argument(metavar="A", help="A measure: an image, .npy, .npz, .csv or .parquet.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one, on the same grid or in the same dimension.")],
    points: Annotated[
        bool, typer.Option("--points", help="Rows are points, as those of columns x, y, ... are by themselves.")
    ] = False,
    weighted: Annotated[bool, typer.Option("--weighted", help="The last column of the points is a weight.")] = False,
    graph: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Edges from,to,length: A and B are tables node,weight, paths the cost."),
    ] = None,
    directed: Annotated[bool, typer.Option("--directed", help="Edges of --graph lead one way only.")] = False,
    cost_option: CostOption = None,
    power: Power = 2.0,
    spacing: Spacing = None,
    size: Size = None,
    invert: Invert = False,
    key: Key = None,
    header: Header = None,
    columns: Annotated[
        str | None, typer.Option(metavar="X,Y,...", help="Columns of tables to read: names, or numbers from 1.")
    ] = None,
    rows: Annotated[
        tuple[int, int] | None,
        typer.Option(metavar="I J", help="Only image I of the stack A and image J of the stack B, from 0."),
    ] = None,
    method: Annotated[
        MethodName, typer.Option(help="The optimum, or the estimate of the paper's sampler.")
    ] = MethodName.exact,
    gap: Annotated[float | None, typer.Option(help="Stop at this certified relative gap.")] = None,
    kl: Annotated[
        float | None,
        typer.Option(metavar="RHO", help="Unbalanced: the plan may change the masses, which costs RHO times KL."),
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop after this time, with the bounds proved by then.")
    ] = None,
    sweeps: Annotated[int | None, typer.Option(help="Sweeps of --method gibbs: more are more precise.")] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan: .npz (scipy.sparse), or .csv with i,j,mass.")
    ] = None,
    flow: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Write the mass on the edges of --graph: from,to,mass.")
    ] = None,
    plan_picture: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the plan.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of --method gibbs.")] = None,
    jobs: Jobs = -1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Transport cost between two measures, with certified bounds.

    Weights are normalised. Distances on a grid are in units of its longest side.
    """
    begun = time.perf_counter()
    _check_method(method, gap, sweeps, seed)
    if max_seconds is not None:
        validation.positive(max_seconds, "--max-seconds")
    options = Options(
        method="exact" if method is MethodName.exact else Gibbs(n_sweeps=sweeps, rng=seed),
        gap=gap,
        normalize=kl is None,
        kl=None if kl is None else validation.positive(kl, "--kl"),
        max_seconds=max_seconds,
        n_jobs=jobs,
        verbose=not quiet and not as_json,
    )
    if weighted and not points:
        raise ValueError("--weighted: needs --points; the weight is the last column of the points")
    if a == b == Path("-"):
        raise ValueError("-: standard input is one table; expected a file for the other measure")
    _check_target(plan, ".npz", ".csv")
    _check_target(plan_picture, ".png")
    _check_target(flow, ".csv")
    if graph is None and (directed or flow is not None):
        raise ValueError("--directed, --flow: need --graph")
    if plan_picture is not None:
        plots.new_figure(1, 1)  # raises early if matplotlib is missing
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    reading: dict[str, Any] = {"key": key, "points": points, "weighted": weighted, "invert": invert, "header": header}
    cost: Cost
    if graph is not None:
        if points or cost_option is not None or rows is not None:
            raise ValueError("--graph: leave out --points, --cost and --rows; the cost is the shortest path")
        edges = Edges.read(graph)
        first, second = (Measure(edges.weights(path), None, None) for path in (a, b))
        cost = GraphCost(edges.graph, directed)
        about = [_inputs.describe(one, placed=False) for one in (first, second)]
        measured = f"shortest path, {cost!r}"
    else:
        edges = None
        first, second = (
            readers.measure(path, **reading, size=size, columns=chosen, row=row)
            for path, row in zip((a, b), rows or (None, None), strict=True)
        )
        cost = _common.cost_between(first, second, (a, b), cost_option, power, spacing)
        about = [_inputs.describe(one, placed=not cost.has_matrix) for one in (first, second)]
        points = first.points is not None
        measured = _inputs.describe_cost(cost, cost_option, power, points, spacing)
    console = _common.stderr_console(quiet)
    if not as_json:
        for path, text in zip((a, b, "cost"), (*about, measured), strict=True):
            console.print(printable(f"{path}: {text}"))
    started = time.perf_counter()
    problem, copied = one_problem(first.weights, second.weights, cost, options)
    hint = _inputs.advice(problem, first) if method is MethodName.exact else None
    if hint is not None:
        console.print(hint)
    result = solve_problem(problem, options, copied, started)
    report = {"read": about, "cost": measured, **_report(result, begun)}
    with atomic.FileGroup() as files:
        if plan is not None:
            with files.open(plan) as file:
                _write_plan(file, plan.suffix.lower(), result.plan, None if edges is None else edges.names)
        if flow is not None and edges is not None:
            with files.open(flow) as file:
                moved = result.flow
                moved.eliminate_zeros()
                _write_plan(file, ".csv", moved, edges.names, b"from,to,mass\n")
        if plan_picture is not None:
            names = _names(a, b, rows)
            measures = (first, second) if cost_option is None or points else None
            _draw_plan(files, plan_picture, result.plan, measures, names)
    if as_json:
        _common.print_json(report)
    elif quiet:
        print(repr(result.value))
    else:
        _print(result)


def _check_method(method: MethodName, gap: float | None, sweeps: int | None, seed: int | None) -> None:
    """Raise for options that are wrong, or of the other method."""
    if gap is not None:
        validation.nonnegative(gap, "--gap")
    if sweeps is not None:
        validation.count(sweeps, "--sweeps")
    if seed is not None:
        _common.check_seed(seed)
    for name, value, owner in (
        ("gap", gap, MethodName.exact),
        ("sweeps", sweeps, MethodName.gibbs),
        ("seed", seed, MethodName.gibbs),
    ):
        if value is not None and method is not owner:
            raise ValueError(f"--{name}: is an option of --method {owner.value}")


def _check_target(target: Path | None, *suffixes: str) -> None:
    """Raise early if an output file has another suffix or cannot be written."""
    if target is not None:
        if target.suffix.lower() not in suffixes:
            raise ValueError(f"{target}: expected a name that ends in {' or '.join(suffixes)}")
        atomic.check_target(target)


def _write_plan(
    file: BinaryIO, suffix: str, Z: Any, names: list[str] | None = None, header: bytes = b"i,j,mass\n"
) -> None:
    """Write a plan as a sparse npz file of SciPy, or as lines ``i,j,mass``, with names of nodes if there are any."""
    if suffix == ".npz":
        sparse.save_npz(file, sparse.csr_array(Z))
        return
    entries = sparse.coo_array(Z)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for i, j, mass in zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True):
        ends = (i, j) if names is None else (names[i], names[j])
        lines.writerow([*ends, repr(mass)])
    file.write(header + text.getvalue().encode())


def _draw_plan(
    files: atomic.FileGroup, path: Path, Z: Any, measures: tuple[Measure, Measure] | None, names: tuple[str, str]
) -> None:
    """Draw a plan: in the plane or in space where both measures have points there, else as a matrix."""
    X, Y = (None, None) if measures is None else map(_positions, measures)
    if measures is None or X is None or Y is None or X.shape[1] == 1:
        figure = plots.new_figure(6, 6)
        plots.plan(figure.subplots(), Z, names=names, points=None if X is None or Y is None else (X, Y))
    elif X.shape[1] == 3:
        shape: Any = measures[0].shape
        figure = plots.new_figure(13, 5)
        plots.projections(figure, Z, X, Y, names, shape=shape)
    else:
        figure = plots.new_figure(7, 7)
        ax = figure.subplots()
        if X.shape[1] > 3:
            X, Y = plots.principal_plane(X, Y)
            ax.set(xlabel="first principal axis", ylabel="second principal axis")
        shape = measures[0].shape
        plots.displacements(ax, Z, X, Y, names, shape=shape)
    _common.save_png(files, path, figure)


def _names(a: Path, b: Path, rows: tuple[int, int] | None) -> tuple[str, str]:
    """Return what the measures are called in a picture."""
    first, second = (a.name, b.name) if a.name != b.name or a == b else (str(a), str(b))
    return (first, second) if rows is None else (f"{first} [{rows[0]}]", f"{second} [{rows[1]}]")


def _positions(measure: Measure) -> NDArray[np.float64] | None:
    """Return the points of a measure, x first, or None for weights on a line."""
    if measure.points is not None:
        return measure.points
    if measure.shape is None or len(measure.shape) == 1:
        return None
    return np.indices(measure.shape)[::-1].reshape(len(measure.shape), -1).T.astype(np.float64)


def _report(result: OTResult, begun: float) -> dict[str, Any]:
    """Return the result for ``--json``; the time includes its certificates."""
    return {
        "value": result.value,
        "lower_bound": result.lower_bound,
        "upper_bound": result.upper_bound,
        "gap": result.gap,
        "status": result.status,
        "reason": result.reason,
        "sweeps": int(result.n_sweeps) if result.status == "estimate" else 0,
        "points": list(result.problem.cost.shape),
        "seconds": time.perf_counter() - begun,
    }


def _print(result: OTResult) -> None:
    """Print the cost and its bounds."""
    bounds = (
        ("at least", f"{result.lower_bound:.6g}", "certified"),
        ("at most", f"{result.upper_bound:.6g}", f"certified, relative gap {result.gap:.1e}"),
    )
    if result.status == "estimate":
        outside = "" if result.lower_bound <= result.value <= result.upper_bound else ", outside the bounds"
        _common.print_table(*bounds, ("estimate", f"{result.value:.6g}", f"{result.n_sweeps} sweeps{outside}"))
        return
    _common.print_table(("transport cost", f"{result.value:.6g}", result.status), *bounds)
    if result.status not in PROVED:
        typer.echo(f"The gap is open because {result.reason or ROUNDING}.")
