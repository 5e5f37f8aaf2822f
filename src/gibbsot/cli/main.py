"""Entry point of the command line: registers the subcommands, and turns errors into one line and an exit code."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from inspect import cleandoc
from typing import Any

from ._text import printable

# Each is a module of this package with a function of the same name and the EPILOG of its help.
_SUBCOMMANDS = (*("ot", "morph", "barycenter", "nmf", "transform", "cluster", "distances", "geodesics", "info"),)

_HELP = ["-h", "--help"]

# The first words of functions of the library and of POT, and the commands that do the same.
_FUNCTIONS = {
    "solve": "ot", "emd": "ot", "emd2": "ot", "sinkhorn": "ot", "fit": "nmf", "pca": "geodesics", "kmeans": "cluster",
}  # fmt: skip


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    args : sequence of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        The exit code: 0, 2 for invalid input, 130 after Ctrl-C.

    Examples
    --------
    >>> main(["info", "--seed", "1"])  # prints an error to stderr
    2
    """
    try:
        return _run(args)
    except KeyboardInterrupt:  # also while modules load
        return 130


def _run(args: Sequence[str] | None) -> int:
    """Run a subcommand; errors that the user can correct become an exit code."""
    words = list(sys.argv[1:] if args is None else args)
    if args is None:
        for backend in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):  # POT would import all that are installed: seconds
            os.environ.setdefault(f"POT_BACKEND_DISABLE_{backend}", "1")
    try:
        command = _command()
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich", "click", "filelock"):
            raise
        return _fail("the command line needs typer, rich and filelock: pip install 'gibbsot[cli]'")
    with warnings.catch_warnings():
        warnings.showwarning = _warn  # one line, without the source location
        try:
            code = command.main(words or ["--help"], "gibbsot", standalone_mode=False, obj=words)
        except OSError as error:
            named = error.filename is not None and error.strerror
            return _fail(f"{error.filename}: {error.strerror}" if named else error)
        except (ImportError, MemoryError, TypeError, ValueError) as error:
            return _fail(
                str(error) or ("not enough memory" if isinstance(error, MemoryError) else type(error).__name__)
            )
        except Exception as error:
            if type(error).__name__ == "Abort":  # raised for Ctrl-C by older versions of typer
                return 130
            if not hasattr(error, "format_message"):  # not an error of typer about the arguments
                raise
            return _fail(_with_commands(error.format_message()))
    return int(code or 0)


def _command() -> Any:
    """Return the command with all subcommands; typer is imported here, so that its absence can be reported."""
    import typer
    from typer.main import get_command

    from .. import __version__

    app = typer.Typer(
        epilog="Each command has examples: gibbsot ot --help",
        rich_markup_mode="rich",
        context_settings={"help_option_names": _HELP},
    )

    def print_version(requested: bool) -> None:
        if requested:
            print(__version__)
            raise typer.Exit

    @app.callback()
    def options(
        version: bool = typer.Option(
            False, "--version", help="Print the version.", callback=print_version, is_eager=True
        ),
    ) -> None:
        """Exact optimal transport with certified bounds, Wasserstein NMF, distances and principal geodesics."""

    for name in _SUBCOMMANDS:
        module = import_module(f".{name}", __package__)
        function = getattr(module, name)
        paragraphs = cleandoc(function.__doc__ or "").split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)  # typer keeps the ends of lines
        app.command(help=text, epilog=module.EPILOG)(function)
    command: Any = get_command(app)
    for one in (command, *command.commands.values()):
        for parameter in (*one.params, one.get_help_option(typer.Context(one, help_option_names=_HELP))):
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""  # typer would print <bool>, as if a value were expected
    return command


def _with_commands(message: str) -> str:
    """Return an error of typer, with the command that was meant, or all, where there is no such command."""
    found = re.match(r"No such command '(\w+)'\.", message)
    if found is None:
        return message
    meant = _FUNCTIONS.get(found[1].partition("_")[0])
    hint = f"the command is gibbsot {meant}" if meant else f"expected one of {', '.join(_SUBCOMMANDS)}"
    return f"No such command '{found[1]}'; {hint}"


def _fail(error: Any) -> int:
    """Print an error as one line and return its exit code."""
    print("error:", printable(" ".join(str(error).split())), file=sys.stderr)
    return 2


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line; code that it has becomes options."""
    text = " ".join(str(message).split())
    text = re.sub(r"model\.max_epochs = (\d+); model\.resume\(X\)", r"--resume --epochs \1", text)
    print("warning:", printable(text), file=sys.stderr)
