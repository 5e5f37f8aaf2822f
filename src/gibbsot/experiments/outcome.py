"""What an experiment leaves: pictures, numbers, and what they say of the paper's claims."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..io import atomic, strict_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Claim(NamedTuple):
    """A sentence of the paper beside what was measured.

    Attributes
    ----------
    paper, measured : str
    holds : bool or None
        None where the measurement neither supports it nor speaks against it.
    """

    paper: str
    measured: str
    holds: bool | None


class Outcome(NamedTuple):
    """What one experiment found.

    Attributes
    ----------
    name, title : str
        Such as "figure1", and what it is of.
    sentence : str
        Where to look.
    claims : sequence of Claim
    pictures, data : sequences of Path
        The files that it wrote; of a picture the PNG, beside which lies a PDF.
    complete : bool
        False where a part was not run, for want of data.
    """

    name: str
    title: str
    sentence: str
    claims: Sequence[Claim]
    pictures: Sequence[Path]
    data: Sequence[Path]
    complete: bool = True


def picture(figure: Figure, out: Path, name: str) -> Path:
    """Write a figure as PNG and PDF, and return the former's path."""
    with atomic.FileGroup() as files:
        for kind in ("pdf", "png"):
            with files.open(out / f"{name}.{kind}") as file:
                figure.savefig(file, format=kind, dpi=150)
    return out / f"{name}.png"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], out: Path, name: str) -> Path:
    """Write rows as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    return _written(text.getvalue(), out / f"{name}.csv")


def record(data: Any, out: Path, name: str) -> Path:
    """Write what JSON can hold, with null for numbers that are not finite."""
    return _written(as_json(data), out / f"{name}.json")


def as_json(data: Any) -> str:
    """Return what `record` writes."""
    return strict_json.dumps(data, indent=1) + "\n"


def _written(text: str, path: Path) -> Path:
    with atomic.FileGroup() as files, files.open(path) as file:
        file.write(text.encode())
    return path
