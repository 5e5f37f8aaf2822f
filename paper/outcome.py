"""One run of an experiment and its outcome: figures, numbers, and the claims of the paper compared with them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gibbsot.io import atomic, strict_json
from gibbsot.io.progress import Advance, silent

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
    differs : str
        What differs from the paper, and why; for the captions.
    tables : sequence of Path
        Those of the files whose numbers the report shows.
    """

    name: str
    title: str
    sentence: str
    claims: Sequence[Claim]
    pictures: Sequence[Path]
    data: Sequence[Path]
    complete: bool = True
    differs: str = ""
    tables: Sequence[Path] = ()


@dataclass(frozen=True)
class Run:
    """How to run an experiment, and the folder that it writes to.

    Attributes
    ----------
    out : Path
        The folder.
    quick : bool
        Smaller problems and budgets.
    seed : int
        The seed.
    n_jobs : int, optional
        Threads.
    advance : callable
        Is called with the share of the work that has been done since the last call, and a note.
    """

    out: Path
    quick: bool = False
    seed: int = 0
    n_jobs: int | None = None
    advance: Advance = silent

    def picture(self, name: str, figure: Figure) -> Path:
        """Write a figure as PNG and PDF, and return the path of the PNG."""
        with atomic.FileGroup() as files:
            for kind in ("pdf", "png"):
                with files.open(self.out / f"{name}.{kind}") as file:
                    figure.savefig(file, format=kind, dpi=150)
        return self.out / f"{name}.png"

    def table(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
        """Write rows as CSV, and return the path."""
        text = io.StringIO(newline="")
        csv.writer(text).writerows([header, *rows])
        return write(self.out / f"{name}.csv", text.getvalue())

    def record(self, name: str, data: Any) -> Path:
        """Write data as JSON, with null for numbers that are not finite, and return the path."""
        return write(self.out / f"{name}.json", as_json(data))


def as_json(data: Any) -> str:
    """Return data as indented JSON text."""
    return strict_json.dumps(data, indent=1) + "\n"


def write(path: Path, text: str) -> Path:
    """Write a text file atomically."""
    with atomic.FileGroup() as files, files.open(path) as file:
        file.write(text.encode())
    return path
