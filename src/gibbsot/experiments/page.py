"""The report as one self-contained HTML page: style and figures are embedded, and there is no script."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from .. import plots
from .outcome import Claim, Outcome

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<link rel="icon" href="data:,">
<style>
:root { --ink: #24242a; --soft: #6b6b76; --paper: #fdfcfb; --line: #e6e2e0; --card: #ffffff; --pink: $pink;
  --good: #1f7a4a; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e9e6e4; --soft: #a29da0; --paper: #17161a; --line: #34323a;
  --card: #1f1e23; --pink: #ff6fae; --good: #6fd39c; --bad: #ff8f86; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 17px/1.6 Charter, "Bitstream Charter", "Iowan Old Style", "Palatino Linotype", Georgia, serif; }
main { max-width: 62rem; margin: 0 auto; padding: 3.5rem 1.25rem 5rem; }
h1, h2, th, nav, .label, .verdict, .files, footer { font-family: system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: clamp(1.7rem, 5vw, 2.5rem); line-height: 1.15; letter-spacing: -0.02em; margin: 0 0 0.6rem; }
h1::after { content: ""; display: block; width: 3.5rem; height: 4px; border-radius: 2px; background: var(--pink);
  margin-top: 1.1rem; }
h2 { font-size: 1.35rem; line-height: 1.25; letter-spacing: -0.01em; margin: 0 0 0.5rem; }
.lead, section > p { max-width: 42rem; }
.lead { color: var(--soft); }
.label { color: var(--pink); font-size: 0.78rem; font-weight: 600; letter-spacing: 0.08em; text-transform: uppercase;
  margin: 0 0 0.3rem; }
section { margin-top: 4rem; padding-top: 2rem; border-top: 1px solid var(--line); }
a { color: var(--pink); text-decoration-thickness: 1px; text-underline-offset: 0.18em; }
nav { font-size: 0.92rem; margin: 1.4rem 0 0; display: flex; flex-wrap: wrap; gap: 0.3rem 1.1rem; }
figure { margin: 1.5rem 0; }
img { display: block; max-width: 100%; height: auto; margin: 0 auto; background: #fff; border: 1px solid var(--line);
  border-radius: 8px; padding: 0.6rem; }
table { width: 100%; border-collapse: collapse; margin-top: 2rem; font-size: 0.95rem; line-height: 1.5; }
th { text-align: left; font-size: 0.8rem; font-weight: 600; color: var(--soft); padding: 0 1rem 0.5rem 0;
  border-bottom: 2px solid var(--pink); }
td { vertical-align: top; padding: 0.8rem 1rem 0.8rem 0; border-bottom: 1px solid var(--line); }
td:nth-child(1) { white-space: nowrap; }
td:nth-child(2) { width: 32%; }
td:last-child, th:last-child { padding-right: 0; white-space: nowrap; }
.verdict { font-size: 0.88rem; font-weight: 600; }
.yes { color: var(--good); } .no { color: var(--bad); } .open { color: var(--soft); }
.files { font-size: 0.88rem; color: var(--soft); }
footer { margin-top: 4rem; font-size: 0.85rem; color: var(--soft); }
@media (max-width: 46rem) {
  body { font-size: 16px; }
  main { padding-top: 2rem; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table, tbody, tr, td { display: block; width: 100%; }
  td:nth-child(n) { width: 100%; border: 0; padding: 0.15rem 0; white-space: normal; }
  td[data-label]::before { content: attr(data-label); display: block; font: 600 0.75rem/1.6 system-ui, sans-serif;
    color: var(--soft); }
  tbody tr { display: grid; grid-template-columns: 1fr auto; padding: 1rem 0; border-bottom: 1px solid var(--line); }
  td[data-label] { grid-column: 1 / -1; }
  td:last-child { grid-area: 1 / 2; }
  img { padding: 0.3rem; }
}
@media print { section { break-inside: avoid-page; } }
</style>
</head>
<body>
<main>
<header>
<h1>$title</h1>
<p class="lead">$lead</p>
<nav aria-label="Experiments">$links</nav>
</header>
$table
$sections
<footer>$footer</footer>
</main>
</body>
</html>
""")

_VERDICTS = {True: ("yes", "holds"), False: ("no", "does not hold"), None: ("open", "open")}


def page(outcomes: Sequence[Outcome], out: Path, *, quick: bool, seed: int, version: str) -> str:
    """Return the report of experiments as HTML, with links to their data files in ``out``.

    Parameters
    ----------
    outcomes : sequence of Outcome
        The outcomes, in the order of the report.
    out : Path
        The folder of the report.
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
    return _PAGE.substitute(
        pink=plots.PINK,
        title="The paper&rsquo;s figures, measured again",
        lead=lead,
        links=" ".join(f'<a href="#{escape(found.name)}">{escape(_label(found.name))}</a>' for found in outcomes),
        table=_table(outcomes),
        sections="\n".join(_section(found, out) for found in outcomes),
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


def _section(found: Outcome, out: Path) -> str:
    """Return the section of an experiment."""
    pictures = "\n".join(
        f'<figure><a href="{escape(_relative(path, out))}">'
        f'<img src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}" '
        f'alt="{escape(found.title)}: {escape(found.sentence)}"></a></figure>'
        for path in found.pictures
    )
    named = [path.with_suffix(".pdf") for path in found.pictures] + list(found.data)
    links = ", ".join(f'<a href="{escape(_relative(path, out))}">{escape(path.name)}</a>' for path in named)
    return (
        f'<section id="{escape(found.name)}">\n<p class="label">{escape(_label(found.name))}</p>\n'
        f"<h2>{escape(found.title)}</h2>\n<p>{escape(found.sentence)}</p>\n{pictures}\n"
        f'<p class="files">Figures as PDF, and data: {links}</p>\n</section>'
    )


def _relative(path: Path, out: Path) -> str:
    """Return the link to a file."""
    return path.relative_to(out).as_posix() if path.is_relative_to(out) else path.name
