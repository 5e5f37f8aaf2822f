"""The outcome of an experiment: figures, numbers, and the claims of the paper compared with them."""

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
    """A claim of the paper and the measurement.

    Attributes
    ----------
    paper : str
        The claim.
    measured : str
        The measurement.
    holds : bool or None
        None if the measurement neither confirms nor contradicts the claim.
    """

    paper: str
    measured: str
    holds: bool | None


class Outcome(NamedTuple):
    """The claims and files of an experiment.

    Attributes
    ----------
    name : str
        Such as "figure1".
    title : str
        The title in the report.
    sentence : str
        What the figures show.
    claims : sequence of Claim
        The claims of the paper.
    pictures : sequence of Path
        The figures as PNG; each is also there as PDF.
    data : sequence of Path
        The files with the numbers.
    complete : bool
        False if some of the experiment was not run because data were unavailable.
    """

    name: str
    title: str
    sentence: str
    claims: Sequence[Claim]
    pictures: Sequence[Path]
    data: Sequence[Path]
    complete: bool = True


def picture(figure: Figure, out: Path, name: str) -> Path:
    """Write a figure as PNG and PDF, and return the path of the PNG."""
    with atomic.FileGroup() as files:
        for kind in ("pdf", "png"):
            with files.open(out / f"{name}.{kind}") as file:
                figure.savefig(file, format=kind, dpi=150)
    return out / f"{name}.png"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], out: Path, name: str) -> Path:
    """Write rows as CSV, and return the path."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    return _write(text.getvalue(), out / f"{name}.csv")


def record(data: Any, out: Path, name: str) -> Path:
    """Write data as JSON, with null for numbers that are not finite, and return the path."""
    return _write(as_json(data), out / f"{name}.json")


def as_json(data: Any) -> str:
    """Return data as indented JSON text."""
    return strict_json.dumps(data, indent=1) + "\n"


def _write(text: str, path: Path) -> Path:
    """Write a text file atomically."""
    with atomic.FileGroup() as files, files.open(path) as file:
        file.write(text.encode())
    return path
