"""``gibbsot reproduce``: the figures and tables of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .. import plots
from ..core import native
from . import _common
from ._common import Jobs, Json, Quiet, Seed

if TYPE_CHECKING:
    from ..experiments.outcome import Outcome

EPILOG = (
    "Examples:\n\n"
    "  gibbsot reproduce --quick --out paper   (all experiments, small)\n\n"
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
    """Figures and tables of the paper, in a report that compares its claims with the measurements.

    Writes report.html, summary.json, and the figures and numbers of each experiment.
    """
    from ..experiments import report  # imports all that the experiments need

    native.threads(jobs)
    _common.check_seed(seed)
    wanted = _expand(names or ["all"], report.NAMES)
    plots.new_figure(1, 1)  # raises early if matplotlib is missing
    try:
        with _common.locked_folder(out):
            found = report.reproduce(wanted, out, quick=quick, seed=seed, n_jobs=jobs, verbose=not quiet)
    except KeyboardInterrupt:
        console = _common.stderr_console(quiet)
        if not (out / "report.html").exists():
            console.print("interrupted before the first experiment was finished")
            return 130
        message = f"interrupted; the finished experiments are in {out}"
        return _common.interrupted(console, message, ctx.obj, {"out": str(out)} if as_json else None)
    if as_json:
        rows = [{"name": one.name, "title": one.title, "claims": [c._asdict() for c in one.claims]} for one in found]
        _common.print_json({"out": str(out), "experiments": rows})
    elif not quiet:
        _print_claims(found)
        _common.print_files(out, ["report.html", "summary.json"])
    return 0


def _expand(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the names of experiments without repetition, where "all" stands for all of them."""
    for name in names:
        if name != "all" and name not in known:
            raise ValueError(f"{name}: is not an experiment; expected all, {', '.join(known)}")
    return list(known) if "all" in names else list(dict.fromkeys(names))


def _print_claims(outcomes: Sequence[Outcome]) -> None:
    """Print a table of the claims."""
    table = Table("", "paper says", "we measured", "holds?")
    for outcome in outcomes:
        for k, claim in enumerate(outcome.claims):
            verdict = {True: "yes", False: "no", None: "open"}[claim.holds]
            name = "" if k else outcome.name
            table.add_row(*(escape(word) for word in (name, claim.paper, claim.measured, verdict)))
        table.add_section()
    Console().print(table)
