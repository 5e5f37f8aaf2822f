"""Writes the page of the command line from the program itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from gibbsot.cli.main import _command

HEAD = """# Command line

```console
$ pip install 'gibbsot[cli]'
$ gibbsot ot a.png b.png --invert --plan-picture moves.png
```

Every command prints its help with `--help`; `gibbsot --install-completion` completes words in the shell. Commands take
`--jobs`, `--quiet` and `--json`, which prints nothing but the result to standard output; those that sample take
`--seed`. Bad input gives one line on standard error and exit code 2. Output files are written atomically, all or none:
after a full disk the old ones are intact. Ctrl-C saves a fit after the current epoch, prints the command that resumes
it, and exits with 130; a checkpoint every 30 seconds covers a kill.

Measures come from images, `.npy`, `.npz`, `.csv`, `.parquet` and MNIST's idx files (`--labels FILE --label 5` selects);
`fives`, `digits` and `faces` are data sets by name. Weights are normalised. The faces are a folder or an npz file that
the environment variable `GIBBSOT_FACES` names, or scikit-learn's Olivetti faces, downloaded once.

This page is generated from the program.
"""

_OPTION = re.compile(r"(?<!\S)(--[a-z][a-z-]*)")  # as code, or typography makes a dash of the two hyphens


def _row(context: Any, parameter: Any) -> str:
    """Return the table row of an argument or an option."""
    if parameter.param_type_name == "argument":
        name, text = f"`{parameter.metavar or parameter.name}`", parameter.help or ""
    else:
        record = parameter.get_help_record(context)
        if record is None:
            return ""
        name, text = "`" + record[0].replace("|", "\\|") + "`", record[1]
    text = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    text = _OPTION.sub(r"`\1`", text)
    return f"| {name} | {text} |\n"


def page() -> str:
    """Return the page as Markdown."""
    parts, command = [HEAD], _command()
    context = typer.Context(command, info_name="gibbsot")
    for name in command.list_commands(context):
        sub = command.get_command(context, name)
        inner = typer.Context(sub, info_name=name, parent=context)
        lines = [
            line.strip() for line in (sub.epilog or "").splitlines() if line.strip() and not line.startswith("Example")
        ]
        parts.append(f"\n## gibbsot {name}\n\n{' '.join((sub.help or '').split())}\n\n")
        if lines:
            parts.append("```console\n" + "".join(f"$ {line}\n" for line in lines) + "```\n\n")
        parts.append("| option | meaning |\n|---|---|\n" + "".join(_row(inner, each) for each in sub.params))
    return "".join(parts)


def write(*_: Any) -> None:
    """Write the page if it has changed."""
    path, text = Path(__file__).parent / "command_line.md", page()
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
