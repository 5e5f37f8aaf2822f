"""The subcommands of ``gibbsot``."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from scipy import sparse

from .. import __version__, plots
from ..core import native
from ..core.costs import Cost
from ..io import readers, writers
from ..solvers.solve import solve
from . import _common

app = typer.Typer(
    epilog="Each command has examples: gibbsot ot --help",
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SHARED = "Every command has these"
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", rich_help_panel=_SHARED)]
Jobs = Annotated[int, typer.Option(help="Threads; -1 for all cores.", rich_help_panel=_SHARED)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.", rich_help_panel=_SHARED)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=_SHARED)]
Key = Annotated[str | None, typer.Option(metavar="NAME", help="Which array of an .npz file.")]
Size = Annotated[tuple[int, int] | None, typer.Option(metavar="HEIGHT WIDTH", help="Shrink images to this size.")]
Invert = Annotated[bool, typer.Option("--invert", help="Dark pixels have the weight, as of ink on paper.")]
Power = Annotated[float, typer.Option(help="The cost is |x - y|^POWER, summed over the axes.")]
CostFile = Annotated[Path | None, typer.Option("--cost", metavar="FILE", help="A matrix of costs (.npy, .npz, .csv).")]


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Optimal transport by a cooled Gibbs sampler: costs with certified bounds, and Wasserstein NMF."""


@app.command(
    epilog="Examples:\n\n"
    "  gibbsot ot a.png b.png --invert --plan-picture moves.png\n\n"
    "  gibbsot ot before.csv after.csv --points --exact\n\n"
    "  gibbsot ot p.npy q.npy --cost M.npy --plan plan.csv --json"
)
def ot(
    a: Annotated[Path, typer.Argument(metavar="A", help="A measure: an image, .npy, .npz, .csv or .parquet.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one, on the same grid or of as many coordinates.")],
    points: Annotated[bool, typer.Option("--points", help="Rows are points: x, y, ...")] = False,
    weighted: Annotated[bool, typer.Option("--weighted", help="The last column of the points is a weight.")] = False,
    cost_file: CostFile = None,
    power: Power = 2.0,
    size: Size = None,
    invert: Invert = False,
    key: Key = None,
    exact: Annotated[bool, typer.Option("--exact", help="Go on to the exact optimum.")] = False,
    sweeps: Annotated[int | None, typer.Option(help="Sweeps of the sampler: more are more precise.")] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan: .npz (scipy.sparse), or .csv with i,j,mass.")
    ] = None,
    plan_picture: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the plan.")] = None,
    seed: Seed = 0,
    jobs: Jobs = -1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Transport cost between two measures, with certified bounds.

    Weights are normalised. Neighbours on a grid are one over its longest side apart.
    """
    start = time.perf_counter()
    native.threads(jobs)
    _not_negative(seed)
    if weighted and not points:
        raise ValueError("--weighted: goes with --points, whose last column it is about")
    for target, endings in ((plan, (".npz", ".csv")), (plan_picture, (".png",))):
        if target is not None:
            if target.suffix.lower() not in endings:
                raise ValueError(f"{target}: expected a name that ends in {' or '.join(endings)}")
            writers.check(target)
    first, second = (
        readers.measure(path, key=key, points=points, weighted=weighted, invert=invert, resize=_common.resize(size))
        for path in (a, b)
    )
    cost = _common.cost_between(first, second, (a, b), cost_file, power)
    canvas = writers.figure(6, 6) if plan_picture is not None else None
    result = solve(
        first.weights, second.weights, cost, n_sweeps=sweeps, exact=exact, seed=seed, verbose=not quiet and not as_json
    )
    report = {
        "value": result.value,
        "lower_bound": result.lower_bound,
        "upper_bound": result.upper_bound,
        "gap": result.gap,
        "status": result.status,
        "sweeps": int(result.n_sweeps),
        "points": list(cost.shape),
        "seconds": time.perf_counter() - start,
    }
    with writers.Together() as written:
        if plan is not None:
            with written.open(plan) as file:
                writers.plan(file, plan.suffix.lower(), result.coupling)
        if canvas is not None and plan_picture is not None:
            places = _common.places(first), _common.places(second)
            if places[0] is None or places[1] is None or cost_file is not None:
                plots.plan(canvas.subplots(), sparse.csr_array(result.coupling))
            else:
                names = (a.name, b.name) if a.name != b.name else (str(a), str(b))
                down = first.shape is not None
                writers.moves(canvas, result.coupling, places[0], places[1], names, down=down)
            written.picture(plan_picture, canvas)
    if as_json:
        _print_json(report)
    elif quiet:
        print(repr(result.value))
    else:
        table = Table(show_header=False, box=None)
        table.add_row("transport cost", f"{result.value:.6g}", f"{result.status}, {result.n_sweeps} sweeps")
        table.add_row("at least", f"{result.lower_bound:.6g}", "certified")
        # the potentials of the plan may close the gap where those of the sampler, of the line above, do not
        gap = f"relative gap {result.gap:.1e}" if result.gap else "and optimal up to rounding"
        table.add_row("at most", f"{result.upper_bound:.6g}", f"certified, {gap}")
        Console().print(table)


@app.command(
    epilog="Examples:\n\n"
    "  gibbsot nmf fives --components 40 --out fives\n\n"
    "  gibbsot nmf photos/ --size 32 27 --components 20 --out faces\n\n"
    "  gibbsot nmf train-images-idx3-ubyte.gz --labels train-labels-idx1-ubyte.gz --label 5 "
    "--components 40 --out fives\n\n"
    "  gibbsot nmf fives --out fives --resume   (after Ctrl-C or a kill; --epochs 400 for more of them)\n\n"
    "  gibbsot nmf parts/ --shape 28 28 --components 40 --scheduler tcp://head:8786 --out run"
)
def nmf(
    ctx: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A folder of images; a matrix with a measure a row (.npy, .npz, .csv, .parquet), or a folder of "
            "them; an idx file of MNIST's; or fives, digits, faces.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.", show_default=False)],
    components: Annotated[int | None, typer.Option(metavar="K", help="How many.", show_default=False)] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data at most (default: 200).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the model in DIR, to the bit.")] = False,
    checkpoint: Annotated[float, typer.Option(metavar="SECONDS", help="Save the model this often.")] = 30.0,
    shape: Annotated[
        tuple[int, int] | None, typer.Option(metavar="HEIGHT WIDTH", help="What rows of a matrix are images of.")
    ] = None,
    size: Size = None,
    label: Annotated[int | None, typer.Option(help="Only measures with this label; digits know theirs.")] = None,
    labels: Annotated[Path | None, typer.Option(metavar="FILE", help="The labels, one a measure.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Only the first N measures.")] = None,
    cost_file: CostFile = None,
    power: Power = 2.0,
    invert: Invert = False,
    key: Key = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Compute on the workers of this Dask scheduler.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Compute in so many processes here, a Dask cluster.")
    ] = None,
    seed: Seed = 0,
    jobs: Jobs = -1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    """Measures as mixtures of a few components, nearest in transport cost.

    Writes components.npy, memberships.npy, model.npz, report.json and pictures.

    Ctrl-C saves the model after the epoch that runs, and says how to go on.

    On a cluster, components are updated once an epoch, and files of a folder are read by the workers, which must all
    see them and DIR, where their checkpoints go.
    """
    native.threads(jobs)
    _not_negative(seed)
    if not checkpoint >= 0:
        raise ValueError(f"--checkpoint: expected seconds >= 0, got {checkpoint}")
    if workers is not None and (workers < 1 or scheduler is not None):
        raise ValueError(
            f"--workers: expected at least 1, and no --scheduler beside it, which has its own; got {workers}"
        )
    spread = scheduler is not None or workers is not None
    path = out / ("checkpoints" if spread else "model.npz")
    if (path.exists() or (out / "model.npz").exists()) and not resume:
        raise FileExistsError(
            f"{path}: is there already; --resume goes on with it; or remove it, or choose another --out"
        )
    data_of: Any = readers.matrices(data)
    if data_of:
        for name in ("size", "label", "labels", "limit", "invert", "key"):
            if _given(ctx, name):
                raise ValueError(f"--{name}: is for one file; {data} is a folder of matrices")
        n, (_, m), sides = None, readers.matrix(data_of[0]).shape, shape
        if sides is not None and m != sides[0] * sides[1]:
            raise ValueError(f"--shape: expected sides of rows of {m}, got {sides[0]} x {sides[1]}")
    else:
        measures = _common.named_or_read(
            data, key=key, shape=shape, size=size, label=label, labels=labels, limit=limit, invert=invert
        )
        data_of, sides = measures
        n, m = data_of.shape
    if components is None and not resume:
        raise ValueError("--components: expected how many")
    if components is not None and not 1 <= components <= (n or components):
        raise ValueError(f"--components: expected a number from 1 to {n}, the number of measures, got {components}")
    cost = _common.cost_of_bins(m, sides, cost_file, power)
    writers.figure(1, 1)  # matplotlib may be missing: better now than after the fit
    say = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True, markup=False)

    from ..models.nmf import WassersteinNMF  # loads scikit-learn

    with (
        writers.folder(out),
        _common.computers(scheduler, workers) as client,
        _common.Interrupt(lambda: say.print("stopping after this epoch; Ctrl-C again to stop at once")) as interrupt,
    ):
        saved = time.monotonic()

        def save(model: Any) -> None:
            nonlocal saved
            if not spread and time.monotonic() - saved >= checkpoint:
                model.save(path)
                saved = time.monotonic()

        changed: dict[str, Any] = {
            "n_jobs": jobs,
            "verbose": not quiet,
            "callbacks": (save, lambda _: interrupt.wanted),
        }
        if epochs is not None:
            changed["max_epochs"] = epochs
        if spread:
            changed |= {"client": client, "update": "full", "n_jobs": None, "checkpoint": path}
            changed["checkpoint_seconds"] = max(checkpoint, 1e-3)
        try:
            if resume:
                if not path.exists():
                    raise FileNotFoundError(f"{path}: there is no such file, so nothing to resume")
                model = WassersteinNMF.load(path, client=client)
                _agree(ctx, model, path, components=components, seed=seed, cost=cost)
                if spread and isinstance(data_of, np.ndarray):
                    data_of = _common.in_parts(data_of, client, model)
                model.set_params(**changed).resume(data_of)
            else:
                if spread and isinstance(data_of, np.ndarray):
                    data_of = _common.in_parts(data_of, client)
                model = WassersteinNMF(components or 0, cost=cost, random_state=seed, **changed).fit(data_of)
        except KeyboardInterrupt:
            if path.exists():
                say.print(f"stopped at once; --resume goes on from the last checkpoint in {path}")
            raise
        report = _common.summary(model, sides, data)
        if interrupt.wanted:
            if not spread:
                model.save(path)
            command = _common.again(["gibbsot", *ctx.obj], "--resume")
            if as_json:
                _print_json(report | {"status": "interrupted", "resume": command})
            say.print(f"stopped after {model.n_iter_} epochs, the model is in {path}; to go on:\n{command}")
            return 130
        _common.write(model, sides, report, out)
    if as_json:
        _print_json(report)
    elif not quiet:
        kind = f"images of {sides[0]} x {sides[1]}" if sides else "measures"
        console = Console()
        console.print(f"{report['measures']} {kind} as mixtures of {model.n_components} components", highlight=False)
        table = Table(show_header=False, box=None)
        table.add_row("mean transport cost", f"{report['cost']:.6g}", f"exact, of a sample of {report['sample']}")
        table.add_row("size of a component", f"{report['effective_bins']:.0f} {'pixels' if sides else 'bins'}")
        table.add_row("epochs", f"{model.n_iter_}", f"{report['seconds']:.1f} s, kernels: {native.name()}")
        console.print(table)
        console.print(f"in {out}: {', '.join(report['files'])}", highlight=False, soft_wrap=True, markup=False)
    return 0


@app.command(
    epilog="Examples:\n\n"
    "  gibbsot reproduce --quick --out paper   (everything, small)\n\n"
    "  gibbsot reproduce figure1 table --out paper"
)
def reproduce(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the report.", show_default=False)],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="all, or figure1 to figure5, table, bounds.", show_default="all"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller data and fewer epochs.")] = False,
    seed: Seed = 0,
    jobs: Jobs = -1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    """Figures and tables of the paper, in a report with what they say of its claims.

    Writes report.html, summary.json, and the pictures and numbers of each experiment.
    """
    from ..experiments import report  # loads all that the experiments need

    native.threads(jobs)
    _not_negative(seed)
    wanted = list(dict.fromkeys(names or ["all"]))
    for name in wanted:
        if name != "all" and name not in report.NAMES:
            raise ValueError(f"{name}: is no experiment; expected all, {', '.join(report.NAMES)}")
    if "all" in wanted:
        wanted = list(report.NAMES)
    writers.figure(1, 1)
    try:
        with writers.folder(out):
            found = report.reproduce(wanted, out, quick=quick, seed=seed, n_jobs=jobs, verbose=not quiet)
    except KeyboardInterrupt:
        say = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True, markup=False)
        if not (out / "report.html").exists():
            say.print("interrupted before anything was done")
            return 130
        command = _common.again(["gibbsot", *ctx.obj])
        if as_json:
            _print_json({"out": str(out), "status": "interrupted", "resume": command})
        say.print(f"interrupted, what is done is in {out}; to go on:\n{command}")
        return 130
    if as_json:
        rows = [{"name": one.name, "title": one.title, "claims": [c._asdict() for c in one.claims]} for one in found]
        _print_json({"out": str(out), "experiments": rows})
    elif not quiet:
        table = Table("", "paper says", "we measured", "holds?")
        for one in found:
            for k, claim in enumerate(one.claims):
                verdict = {True: "yes", False: "no", None: "open"}[claim.holds]
                table.add_row(*(escape(word) for word in ("" if k else one.name, claim.paper, claim.measured, verdict)))
            table.add_section()
        console = Console()
        console.print(table)
        console.print(f"in {out}: report.html, summary.json", highlight=False, soft_wrap=True, markup=False)
    return 0


@app.command(epilog="Example:\n\n  gibbsot info --json")
def info(seed: Seed = 0, jobs: Jobs = -1, quiet: Quiet = False, as_json: Json = False) -> None:
    """Version, kernels in use, threads."""
    _not_negative(seed)
    found = {
        "version": __version__,
        "kernel": native.name(),
        "kernels": list(native.available()),
        "threads": native.threads(jobs),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    if as_json:
        _print_json(found)
    elif quiet:
        print(__version__)
    else:
        table = Table(show_header=False, box=None)
        for name, value in found.items():
            table.add_row(name, ", ".join(value) if isinstance(value, list) else str(value))
        Console().print(table)


def _given(ctx: typer.Context, name: str) -> bool:
    """Tell whether an option stands on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _agree(ctx: typer.Context, model: Any, path: Path, *, components: int | None, seed: int, cost: Cost) -> None:
    """Refuse options that were given and are not those of the model to go on with."""
    for name, wanted, found in (("components", components, model.n_components), ("seed", seed, model.random_state)):
        if _given(ctx, name) and wanted != found:
            raise ValueError(f"--{name}: the model in {path} has {found}, not {wanted}")
    for name, option in (("cost_file", "--cost"), ("power", "--power")):
        if _given(ctx, name) and not _common.same_cost(cost, model.cost):
            raise ValueError(f"{option}: the model in {path} has another cost")


def _not_negative(seed: int) -> None:
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed: expected a number from 0 to 2**32 - 1, got {seed}")


def _print_json(report: dict[str, Any]) -> None:
    print(json.dumps(writers.finite(report)))
