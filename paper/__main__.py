"""``python -m paper``: the experiments from the command line."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .outcome import Outcome

_PROGRAM = "python -m paper"


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    words : sequence of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        The exit code: 0, 2 for invalid input, 130 after Ctrl-C.
    """
    if words is None:
        words = sys.argv[1:]
        for backend in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):  # POT would import all that are installed: seconds
            os.environ.setdefault(f"POT_BACKEND_DISABLE_{backend}", "1")
    options = _parser().parse_intermixed_args(words)
    with warnings.catch_warnings():
        warnings.showwarning = _warn  # one line, without the source location
        try:
            return _run(options, words)
        except KeyboardInterrupt:  # while modules load
            return 130
        except ImportError as error:
            return _fail(f"{error}; `make paper` installs what the experiments need")
        except OSError as error:
            return _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error)
        except (MemoryError, ValueError) as error:
            return _fail(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Figures and tables of the paper, in a report that compares its claims with the measurements. "
        "Writes report.html, summary.json, and the figures and numbers of each experiment. A second call with the "
        "same folder continues the first.",
        epilog=f"Examples: {_PROGRAM} --quick --out build/paper; {_PROGRAM} figure1 table --out build/paper",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="all (the default), or figure1 to 5, table, bounds, chains"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the report")
    parser.add_argument("--quick", action="store_true", help="smaller data and fewer epochs")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same result; %(default)s")
    parser.add_argument("--jobs", type=int, default=-1, help="threads; %(default)s, the default, for all cores")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no table")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _run(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run the experiments, print what they found and return the exit code."""
    from gibbsot import plots
    from gibbsot.cli._common import check_seed, locked_folder

    from . import report  # imports what the experiments need

    wanted = _expand(options.names or ["all"], report.NAMES)
    check_seed(options.seed)
    out: Path = options.out
    plots.new_figure(1, 1)  # raises early if matplotlib is missing
    try:
        with locked_folder(out):
            found = report.reproduce(
                wanted, out, quick=options.quick, seed=options.seed, n_jobs=options.jobs, verbose=not options.quiet
            )
    except KeyboardInterrupt:
        return _interrupted(options, words)
    if options.json:
        rows = [{"name": one.name, "title": one.title, "claims": [c._asdict() for c in one.claims]} for one in found]
        print(json.dumps({"out": str(out), "experiments": rows}))
    elif not options.quiet:
        _print_claims(found)
        print(f"in {out}: report.html, summary.json")
    return 0


def _expand(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the names of experiments without repetition, where "all" stands for all of them."""
    for name in names:
        if name != "all" and name not in known:
            raise ValueError(f"{name}: is not an experiment; expected all, {', '.join(known)}")
    return list(known) if "all" in names else list(dict.fromkeys(names))


def _interrupted(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Print the command that resumes, and return the exit code."""
    text = "interrupted before the first experiment was finished"
    if (options.out / "report.html").exists():
        command = f"{_PROGRAM} {shlex.join(words)}"
        text = f"interrupted; the finished experiments are in {options.out}; to resume:\n{command}"
        if options.json:
            print(json.dumps({"out": str(options.out), "status": "interrupted", "resume": command}))
    if not options.quiet:
        print(text, file=sys.stderr)
    return 130


def _print_claims(outcomes: Sequence[Outcome]) -> None:
    """Print a table of the claims."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "paper says", "we measured", "holds?")
    for outcome in outcomes:
        for k, claim in enumerate(outcome.claims):
            verdict = {True: "yes", False: "no", None: "open"}[claim.holds]
            name = "" if k else outcome.name
            table.add_row(*(escape(word) for word in (name, claim.paper, claim.measured, verdict)))
        table.add_section()
    Console().print(table)


def _fail(error: Any) -> int:
    """Print an error as one line and return its exit code."""
    print("error:", " ".join(str(error).split()), file=sys.stderr)
    return 2


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line."""
    print("warning:", " ".join(str(message).split()), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
