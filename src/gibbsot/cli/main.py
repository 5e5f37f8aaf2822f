"""The command ``gibbsot``: `commands` does the work, here what goes wrong becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for bad input, 130 after Ctrl-C.

    Parameters
    ----------
    args : sequence of str, optional
        By default those of the process.
    """
    try:
        return _run(args)
    except KeyboardInterrupt:  # also while modules load
        return 130


def _run(args: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if args is None else args)
    if args is None:
        for backend in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):  # POT would load them all, for seconds, to no use here
            os.environ.setdefault(f"POT_BACKEND_DISABLE_{backend}", "1")
    try:
        from typer.main import get_command

        from .commands import app
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich", "click"):
            raise
        return _fail("the command line needs typer and rich: pip install 'gibbsot[cli]'")
    with warnings.catch_warnings():
        warnings.showwarning = _warn  # one line, without the place in the code
        try:
            code = get_command(app).main(words or ["--help"], "gibbsot", standalone_mode=False, obj=words)
        except OSError as error:
            named = error.filename is not None and error.strerror
            return _fail(f"{error.filename}: {error.strerror}" if named else error)
        except (ImportError, MemoryError, TypeError, ValueError) as error:
            return _fail(error)
        except Exception as error:
            if type(error).__name__ == "Abort":  # older versions of typer make this of Ctrl-C
                return 130
            if not hasattr(error, "format_message"):  # no complaint of typer's about the arguments
                raise
            return _fail(error.format_message())
    return int(code or 0)


def _fail(error: Any) -> int:
    print("error:", " ".join(str(error).split()), file=sys.stderr)
    return 2


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    print("warning:", " ".join(str(message).split()), file=sys.stderr)
