"""The report as one self-contained HTML page: style and figures are embedded, and there is no script."""

from __future__ import annotations

import base64
import csv
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from gibbsot import plots

from .outcome import Claim, Outcome
from .slips import SLIPS

_PAGE = Template((files(__package__) / "page.html").read_text("utf-8"))

_SYMBOLS = (
    "W is the optimal transport cost of a problem and z = (g, h) a sample of its dual; U and L are the c-transforms of "
    "the sample (g lies below U, h above L), and V(z) is the dual value that it gives. T is the temperature of the "
    "sampler, calT(z) the paper&rsquo;s bound of it, &tau; the lag of its mixing test, K the number of components of "
    "NMF and, under Bounds, a deviation. A sweep draws all of g and h once. IBP c/N are iterative Bregman projections "
    "(Sinkhorn) with the regularisation c/N for N points, and B-ADMM is the Bregman ADMM with the penalty rho; M is "
    "the matrix of costs. Under Bounds r is V(z) less its expected increments, a martingale with the start r1; in each "
    "half step of N sweeps it falls by C T at most and seldom rises by much more than D, a bounds these steps, m is "
    "the number of points and eps a probability."
)
_SHOWN = 40  # rows of a table in the page

_VERDICTS = {True: ("yes", "holds"), False: ("no", "does not hold"), None: ("open", "open")}


def page(outcomes: Sequence[Outcome], *, quick: bool, seed: int, version: str) -> str:
    """Return the report of experiments as HTML, with links to their data files in the same folder.

    Parameters
    ----------
    outcomes : sequence of Outcome
        The outcomes, in the order of the report.
    quick : bool
        Whether the experiments were quick ones.
    seed : int
        Their seed.
    version : str
        The version of the package.

    Returns
    -------
    str
        The page.
    """
    claims = [claim for found in outcomes for claim in found.claims]
    counts = {holds: sum(claim.holds is holds for claim in claims) for holds in _VERDICTS}
    lead = (
        f"What the paper <q>A Simulated Annealing Based Inexact Oracle for Wasserstein Loss Minimization</q> (ICML "
        f"2017) says, measured again: of {len(claims)} claims {counts[True]} hold, {counts[False]} "
        f"{'does' if counts[False] == 1 else 'do'} not, and {counts[None]} {'is' if counts[None] == 1 else 'are'} open."
    )
    if quick:
        lead += " <strong>This was a quick run</strong>, on smaller problems with smaller budgets than the paper's."
    linked = [*(found.name for found in outcomes), "slips"]
    return _PAGE.substitute(
        pink=plots.PINK,
        title="The paper&rsquo;s figures, measured again",
        lead=lead,
        symbols=_SYMBOLS,
        links=" ".join(f'<a href="#{escape(name)}">{escape(_label(name))}</a>' for name in linked),
        table=_table(outcomes),
        sections="\n".join([*map(_section, outcomes), _slips()]),
        footer=f"gibbsot {escape(version)}, seed {seed}{', quick' if quick else ''}",
    )


def _label(name: str) -> str:
    """Return "Figure 1" for "figure1".

    Examples
    --------
    >>> _label("figure1"), _label("bounds")
    ('Figure 1', 'Bounds')
    """
    return name.rstrip("0123456789").capitalize() + "".join(f" {c}" for c in name if c.isdigit())


def _table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of all claims."""
    rows = "\n".join(_row(found.name, claim) for found in outcomes for claim in found.claims)
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{word}</th>' for word in ("Where", "The paper says", "Measured", "Holds?"))
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"


def _row(name: str, claim: Claim) -> str:
    """Return the row of a claim."""
    kind, words = _VERDICTS[claim.holds]
    return (
        f'<tr><td><a href="#{escape(name)}">{escape(_label(name))}</a></td>'
        f'<td data-label="The paper says">{escape(claim.paper)}</td>'
        f'<td data-label="Measured">{escape(claim.measured)}</td>'
        f'<td><span class="verdict {kind}">{words}</span></td></tr>'
    )


def _section(found: Outcome) -> str:
    """Return the section of an experiment."""
    pictures = "\n".join(
        f'<figure><a href="{escape(path.name)}">'
        f'<img src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}" '
        f'alt="{escape(found.title)}: {escape(found.sentence)}"></a></figure>'
        for path in found.pictures
    )
    if not (pictures or found.tables):
        pictures = '<figure class="none">No figure: the data are not available here.</figure>'
    shown = "\n".join([pictures, *map(_numbers, found.tables)]).strip()
    differs = f'<p class="differs"><strong>Other than in the paper.</strong> {escape(found.differs)}</p>\n'
    named = [path.with_suffix(".pdf") for path in found.pictures] + list(found.data)
    links = ", ".join(f'<a href="{escape(path.name)}">{escape(path.name)}</a>' for path in named)
    kinds = "Figures as PDF, and data" if found.pictures else "Data"
    return (
        f'<section id="{escape(found.name)}">\n<p class="label">{escape(_label(found.name))}</p>\n'
        f"<h2>{escape(found.title)}</h2>\n<p>{escape(found.sentence)}</p>\n"
        + (differs if found.differs else "")
        + f"{shown}\n"
        + (f'<p class="files">{kinds}: {links}</p>\n' if links else "")
        + "</section>"
    )


def _slips() -> str:
    """Return the list of the paper's slips."""
    head = "".join(f'<th scope="col">{word}</th>' for word in ("Where", "Printed", "Right", "Shown by"))
    rows = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in slip) + "</tr>" for slip in SLIPS)
    return (
        '<section id="slips">\n<p class="label">Slips</p>\n<h2>Slips of the paper that are corrected here</h2>\n'
        f'<table class="numbers slips">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n'
        "</section>"
    )


def _numbers(path: Path) -> str:
    """Return a table of numbers from its file: one line for each of its rows, of few wide ones a column each."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[: _SHOWN + 1]
    head, *body = zip(*rows, strict=True) if len(rows) <= len(rows[0]) and len(rows) <= 3 else rows
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body)
    return f'<table class="numbers">\n<thead><tr>{cells}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table>'
