"""Measure what README and site say, and rewrite their tables: `python tools/measurements.py [NAME ...]`.

Each measurement is a command whose output is written to docs/_measurements/NAME.md, with the machine and the date;
pages of the site include these files. The table of README is made from that of `solve`, and the sentences with figures
in README and on the front page, between comments such as `<!-- growth -->` and `<!-- end -->`, from other tables. The
ratios of every version are kept in history.json, from which the table *By release* is made. Without names all are
measured, which takes hours; `--list` prints the names and commands, `--stale` those whose code has changed since.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import date
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "_measurements"


ENGINE = ("native", *(f"src/gibbsot/{name}" for name in ("core", "costs", "exact", "solvers")))
CHAINS = ("native", *(f"src/gibbsot/{name}" for name in ("core", "costs", "sampling", "oracle")))
MODELS = (*ENGINE, *CHAINS[-2:])
NMF, MEANS = (*MODELS, "src/gibbsot/models/nmf"), (*MODELS, "src/gibbsot/models/barycenter")
CLUSTERS = (*MEANS, "src/gibbsot/models/kmeans")


class Measurement(NamedTuple):
    """A command, the pages that have its figures, and the files and folders of the code that it measures."""

    command: str
    pages: tuple[str, ...]
    code: tuple[str, ...] = ENGINE


MEASUREMENTS = {
    "solve": Measurement("benchmarks/solve.py", ("README", "benchmarks")),
    "growth": Measurement("benchmarks/growth.py --seconds 2 --picture docs/growth.png", ("benchmarks",)),
    "exact_engine": Measurement("benchmarks/exact_engine.py", ("benchmarks",)),
    "exact_engine_large": Measurement("benchmarks/exact_engine.py points grids --large", ("benchmarks",)),
    "scales": Measurement("benchmarks/scales.py", ("proved",)),
    "engine": Measurement("benchmarks/engine.py", ("benchmarks",), CHAINS),
    "accuracy": Measurement("benchmarks/accuracy.py", ("accuracy",), CHAINS),
    "nmf": Measurement("benchmarks/nmf.py --peer-seconds 100", ("guides/nmf",), NMF),
    "oracles": Measurement("benchmarks/oracles.py --seconds 8", ("guides/nmf",), NMF),
    "demo": Measurement("examples/nmf.py", ("guides/nmf",), NMF),
    "barycenter": Measurement("benchmarks/barycenter.py", ("guides/barycenters",), MEANS),
    "clusters": Measurement(
        "examples/clusters.py",
        ("guides/clusters",),
        CLUSTERS,
    ),
    "kmeans": Measurement(
        "benchmarks/kmeans.py digits free",
        ("guides/clusters",),
        CLUSTERS,
    ),
    "kmeans_large": Measurement(
        "benchmarks/kmeans.py large",
        ("guides/clusters",),
        CLUSTERS,
    ),
    "graphs": Measurement("benchmarks/graphs.py", ("guides/graphs",)),
    "graphs_large": Measurement("benchmarks/graphs.py large", ("guides/graphs",)),
    "graphs_stops": Measurement("benchmarks/graphs.py stops", ("guides/graphs",)),
    "geometry": Measurement("benchmarks/geometry.py", ("guides/geometry",), (*ENGINE, "src/gibbsot/models/geometry")),
    "unbalanced": Measurement("benchmarks/unbalanced.py --peer-seconds 5", ("guides/unbalanced",)),
    "unbalanced_large": Measurement("benchmarks/unbalanced.py --large", ("guides/unbalanced",)),
    "gromov": Measurement("benchmarks/gromov.py --sizes 1000", ("guides/gromov",), (*ENGINE, "src/gibbsot/gromov")),
    "labels": Measurement("benchmarks/labels.py", ("guides/labels",), (*MODELS, "src/gibbsot/models/classifier.py")),
    "own_losses": Measurement("benchmarks/own_losses.py", ("guides/oracle",), MODELS),
    "mixing": Measurement("benchmarks/own_losses.py mixing", ("guides/oracle",), CHAINS),
    "lags": Measurement("benchmarks/lags.py", ("concepts",), CHAINS),
    "losses": Measurement("benchmarks/losses.py", ("guides/pytorch",), (*MODELS, "src/gibbsot/torch")),
    "couplings": Measurement("benchmarks/couplings.py", ("guides/pytorch",), (*MODELS, "src/gibbsot/torch")),
    "training": Measurement("benchmarks/torch_loss.py", ("guides/pytorch",), (*MODELS, "src/gibbsot/torch")),
    "scaling": Measurement("benchmarks/scaling.py", ("scaling",), (*NMF, "src/gibbsot/distributed")),
    "stream": Measurement("benchmarks/stream.py", ("scaling",), NMF),
    "peers": Measurement("benchmarks/peers.py", ("use_with",), (*ENGINE, "src/gibbsot/compat")),
    "peers_tests": Measurement(
        "tools/peers.py SciPy GUDHI pyemd torchcfm",
        ("use_with",),
        (*ENGINE, "src/gibbsot/compat"),
    ),
    "topics": Measurement("examples/topics.py", ("guides/topics",), NMF),
    "single_cells": Measurement("examples/single_cells.py", ("guides/single_cells",), NMF),
    "regimes": Measurement("benchmarks/regimes.py --quick", ("README", "benchmarks")),
    "regimes_growth": Measurement("benchmarks/regimes.py --growth plane", ("benchmarks",)),
    "regimes_growth_64": Measurement("benchmarks/regimes.py --growth '64 dimensions'", ("benchmarks",)),
    "dotmark": Measurement("benchmarks/dotmark.py Dataset", ("dotmark",)),  # the last one: it needs a folder of images
}
# Columns of ratios whose worst and median are kept for every version: peers beside ours, larger is better.
RATIOS = {
    "solve": "emd2 / solve",
    "exact_engine": "ratio",
    "couplings": "ratio",
    "gromov": "POT / gibbsot",
}
_PROCESSORS = r"AMD EPYC|AMD Ryzen|Intel\(R\) Xeon|Intel\(R\) Core|Apple M\d+|Neoverse"


def machine() -> str:
    """Return a general description of this machine."""
    from gibbsot.core import native

    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else platform.processor()
    found = re.search(_PROCESSORS, text)
    name = found.group().replace("(R)", "") if found else platform.machine()
    return f"{os.cpu_count()} cores of an {name}, kernels {native.name()}"


def to_markdown(printed: str) -> str:
    """Return printed text as Markdown: tables of rich as tables with their titles, other text as blocks."""
    parts: list[str] = []
    plain: list[str] = []
    rows: list[list[str]] = []

    def end_of_text(title: bool = False) -> None:
        last = plain.pop().strip() if title and plain and plain[-1].startswith(" ") else ""  # it is centred
        if any(line.strip() for line in plain):
            parts.append(_block([line.rstrip() for line in plain]))
        if last:
            parts.append(f"**{last}**\n")
        plain.clear()

    for line in [*printed.splitlines(), ""]:
        if line[:1] in "┏┡├└" and line:  # borders
            if line[0] == "┏":
                end_of_text(title=True)
            elif line[0] == "└":
                head, *body = [f"| {' | '.join(row)} |" for row in _readable(_without_targets(rows))]
                parts.append("\n".join([head, "|---" * (head.count("|") - 1) + "|", *body]) + "\n")
                rows.clear()
        elif line[:1] in "┃│" and line:
            cells = [cell.strip() for cell in re.split("[┃│]", line)[1:-1]]
            if line[0] == "│" and cells[0] and not any(cells[1:]):  # the rest of a long name
                rows[-1][0] += f" {cells[0]}"
                continue
            rows.append(cells)
        else:
            plain.append(line)
    end_of_text()
    return "\n".join(parts)


def _block(lines: list[str]) -> str:
    """Return lines as a block of text, or as a table if the first ones are names of columns and the last "remarks"."""
    header = lines[0].split()
    if header[-1:] != ["remarks"]:
        return "```text\n" + _with_sign("\n".join(lines).strip("\n")) + "\n```\n"
    ends = [found.end() for found in re.finditer(r"\S+", lines[0])][1:-1]  # of the numbers, which are aligned right
    rows, notes = [header, ["---"] * len(header)], []
    for line in filter(None, lines[1:]):
        if found := re.fullmatch(r"(.*\S)\s{2,}(\S+ s)", line[: ends[0]]):
            numbers = [found[2], *(line[a:b].strip() for a, b in pairwise(ends))]
            rows.append([found[1], *numbers, line[ends[-1] :].strip()])
        else:
            notes.append(line.partition(":")[0])  # such as data that are left out, without the reason
    table = "\n".join(f"| {' | '.join(row)} |" for row in _readable(rows))
    return "\n\n".join([table, "; ".join(notes)]).strip() + "\n"


_SECONDS = r"(-?[0-9.]+(?:e[-+][0-9]+)?) s"  # a cell that is a time
_TIMES = "\N{MULTIPLICATION SIGN}"


def _readable(rows: list[list[str]]) -> list[list[str]]:
    """Return the rows of a table with numbers as people write them: no exponents, one unit of time, signs of ratios."""
    rows = [[_with_sign(cell) for cell in row] for row in rows]
    times = [abs(float(found[1])) for row in rows for cell in row if (found := re.fullmatch(_SECONDS, cell))]
    smallest = min(filter(None, times), default=1.0)
    scale, unit = next((each for each in ((1, "s"), (1e3, "ms")) if smallest * each[0] >= 0.01), (1e6, "us"))
    head, *body = [[_number_of(cell, scale, unit) for cell in row] for row in rows]
    for k, name in enumerate(head):
        if name == "ratio" or re.fullmatch(r"\S.* / \S.*", name):
            cells = [row[k] for row in body if not set(row[k]) <= {"-"}]
            if all(re.fullmatch(r"[0-9.,]*[1-9][0-9.,]*", cell) for cell in cells):  # not values relative to a scale
                for row in body:
                    row[k] += _TIMES * (not set(row[k]) <= {"-"})
    return [head, *body]


def _with_sign(text: str) -> str:
    """Return text in which a ratio such as 2.1x has the sign of multiplication."""
    return re.sub(r"\b([0-9][0-9.,]*)x(?!\w)", rf"\1{_TIMES}", text)


def _number_of(cell: str, scale: float, unit: str) -> str:
    """Return a number without exponent, and seconds in a unit."""
    if re.fullmatch(r"-?[0-9.]+e\+[0-9]+", cell):
        return f"{float(cell):,.0f}"
    if found := re.fullmatch(_SECONDS, cell):
        x = float(found[1]) * scale
        digits = max(0, 2 - int(f"{x:e}".partition("e")[2])) if x else 0
        return f"{round(x, digits):,.{digits}f}\N{NO-BREAK SPACE}{unit}"
    return cell


def _without_targets(rows: list[list[str]]) -> list[list[str]]:
    """Return the rows of a table without the column of targets and the next, which says whether they are met."""
    if "target" not in rows[0]:
        return rows
    k = rows[0].index("target")
    return [row[:k] + row[k + 2 :] for row in rows]


def measure(name: str, note: str) -> None:
    """Run a command, print what it prints, and write its file."""
    command = MEASUREMENTS[name].command
    arguments = [sys.executable, *shlex.split(command)]
    env = os.environ | {"COLUMNS": "240", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env)
    lines = []
    assert child.stdout is not None
    for line in child.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    if child.wait():
        raise SystemExit(f"{name}: python {command} ended with status {child.returncode}; its file was not changed")
    header = f"*`python {command}`, {machine()}{note and ' ' + note}, {date.today():%d %B %Y}:*\n\n"
    (FOLDER / f"{name}.md").write_text(header + to_markdown("".join(lines)), encoding="utf-8")
    write_sentences()


def write_index() -> None:
    """Write the table of all measurements: command, machine, date and pages, from the heads of their files."""
    lines = ["| command | measured on | pages |", "|---|---|---|"]
    for name, (command, pages, _) in MEASUREMENTS.items():
        head = (FOLDER / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0]
        measured = head.strip("*:").removeprefix(f"`python {command}`, ")
        # README is not a page of the site; the front page has the same links
        links = ", ".join("README" if page == "README" else f"[{page}]({page}.md)" for page in pages)
        lines.append(f"| `python {command}` | {measured} | {links} |")
    (FOLDER / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def table_of(text: str, column: str) -> list[dict[str, str]]:
    """Return the rows of the first Markdown table that has a column."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    start = next(k for k, row in enumerate(rows) if column in row)
    found = []
    for row in rows[start + 1 :]:
        if len(row) != len(rows[start]):
            break
        if not set("".join(row)) <= {"-", ":", " "}:
            found.append(dict(zip(rows[start], row, strict=True)))
    return found


def stale() -> dict[str, int]:
    """Return the measurements whose code has changed after them, and in how many commits."""
    found = {}
    for name, (command, _, code) in MEASUREMENTS.items():
        measured = _git("log", "-1", "--format=%H", "--", str(FOLDER / f"{name}.md"))
        later = _git("rev-list", f"{measured}..HEAD", "--", command.split()[0], *code) if measured else ""
        if later:
            found[name] = len(later.splitlines())
    return found


def _git(*arguments: str) -> str:
    """Return what git prints here; nothing where there is no history."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def write_history() -> None:
    """Write the ratios of the present version to history.json, and the table of all versions to by_release.md."""
    from gibbsot import __version__

    kept = FOLDER / "history.json"
    history = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    history[__version__] = {name: ratios_of(name) for name in RATIOS}
    kept.write_text(json.dumps(history, indent=1) + "\n", encoding="utf-8")
    (FOLDER / "by_release.md").write_text(release_table(history), encoding="utf-8")


def ratios_of(name: str) -> dict[str, float]:
    """Return how many ratios the first table of a measurement has, the worst and the median.

    Rows whose remarks name the smaller problem that the peer solved are left out.
    """
    rows = table_of((FOLDER / f"{name}.md").read_text(encoding="utf-8"), RATIOS[name])
    rows = [row for row in rows if not row.get("remarks", "").startswith("emd2:")]
    found = [_number(row[RATIOS[name]]) for row in rows if re.fullmatch(rf"[0-9.,]+{_TIMES}?", row[RATIOS[name]])]
    return {"rows": len(found), "worst": min(found), "median": median(found)}


def release_table(history: dict[str, dict[str, dict[str, float]]]) -> str:
    """Return the table of all versions, the newest first: median and worst of each measurement."""
    versions = sorted(history, key=lambda version: [int(x) for x in re.findall(r"\d+", version)], reverse=True)
    lines = [f"| command | ratio | {' | '.join(versions)} |", "|---|---|" + "---|" * len(versions)]
    for name, column in RATIOS.items():
        found = [history[version].get(name) for version in versions]
        cells = [f"{_two_digits(x['median'])}{_TIMES} ({_two_digits(x['worst'])}{_TIMES})" if x else "" for x in found]
        lines.append(f"| `python {MEASUREMENTS[name].command}` | {column} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_sentences() -> None:
    """Rewrite the table and the figures of README and of the front page, each between its two comments."""
    found = {"solve": readme_table(), **figures()}
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        text = page.read_text(encoding="utf-8")
        for name, new in found.items():
            text = re.sub(rf"(<!-- {name} -->\s*).*?(\s*<!-- end -->)", rf"\g<1>{new}\g<2>", text, flags=re.DOTALL)
        page.write_text(text, encoding="utf-8")


def figures() -> dict[str, str]:
    """Return what README and the front page say with figures of tables; what a table does not have is left out."""

    def table(name: str, column: str) -> list[dict[str, str]]:
        return table_of((FOLDER / f"{name}.md").read_text(encoding="utf-8"), column)

    growth = {row["points"]: row for row in table("growth", "gibbsot, s")}
    middle, largest = growth["4,096"], list(growth)[-1]
    million = table("regimes_growth", "seconds")[-1]
    ratios = [_number(row["emd2 / solve"]) for row in table("solve", "emd2 / solve")]
    faster = sum(x > 1 for x in ratios)
    regimes = {row["problem"]: row["peer / ours"] for row in table("regimes", "peer / ours") if row["peer / ours"]}
    worst = min(regimes, key=lambda name: _number(regimes[name]))
    engine = {row["what"]: row["ours"] for row in table("exact_engine", "ratio")}
    grids = [_seconds(time) for what, time in engine.items() if what.startswith("grid 256^2")]
    found = {
        "growth": f"4,096 points per side take {_short(middle['gibbsot, s'])} s, where POT takes "
        f"{_short(middle['POT, emd2, s'])} s; {largest} take {_short(growth[largest]['gibbsot, s'])} s",
        "largest": f"{largest} per side in {_short(growth[largest]['gibbsot, s'])} s",
        "million": f"{million['points']} points took {_number(million['seconds']) / 60:.1f} minutes",
        "faster": f"{f'all {faster}' if faster == len(ratios) else f'{faster} of {len(ratios)}'} problems of the "
        f"benchmark (the smallest ratio was {_two_digits(min(ratios))}{_TIMES})",
        "worst": f"{_two_digits(_number(regimes[worst]))}{_TIMES}, for {worst}",
        "engine": f"100,000 points in the plane in {_two_digits(_seconds(engine['100,000 points in 2-D']))} s, images "
        f"of 256 x 256 pixels in {_two_digits(min(grids))} to {_two_digits(max(grids))} s",
    }
    if time := engine.get("photographs 512^2, certified gap 1e-2"):
        found["photographs"] = f"512 x 512 pixels to a certified 1 % in {_two_digits(_seconds(time))} s"
    return found


def readme_table() -> str:
    """Return the table of README, from that of `solve`."""
    kinds = {
        "dense": "matrices",
        "words": "word vectors, cosine distance",
        "points": "points in the plane",
        "grid": "image grids, noise",
    }
    rows = table_of((FOLDER / "solve.md").read_text(encoding="utf-8"), "emd2 / solve")
    sizes = (10, 100, 1024, 4096)
    lines = [
        f"| points per side | {' | '.join(f'{n:,}' for n in sizes)} | `solve`, 4,096 | `ot.emd2`, 4,096 |",
        "|---|" + "---|" * (len(sizes) + 2),
    ]
    for kind, label in kinds.items():
        of_kind = [row for row in rows if row["problem"] == kind]
        # of grids, whose sizes are squares, the nearest
        chosen = [min((abs(_number(row["points"]) - n), k) for k, row in enumerate(of_kind))[1] for n in sizes]
        found = [of_kind[k] for k in chosen]
        ratios = " | ".join(f"{_two_digits(_number(row['emd2 / solve']))}{_TIMES}" for row in found)
        times = " | ".join(f"{_two_digits(_number(found[-1][key]) / 1000)} s" for key in ("solve ms", "emd2 ms"))
        lines.append(f"| {label} | {ratios} | {times} |")
    return "\n".join(lines)


def _number(text: str) -> float:
    return float(text.replace(",", "").removesuffix(_TIMES).removesuffix("x"))


def _seconds(text: str) -> float:
    """Return a time such as 2.5 ms in seconds."""
    number, unit = text.split()
    return _number(number) * {"s": 1.0, "ms": 1e-3, "us": 1e-6}[unit]


def _short(text: str) -> str:
    return _two_digits(_number(text))


def _two_digits(x: float) -> str:
    return f"{x:#.2g}" if x < 9.95 else f"{x:.0f}"


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="measurements (default: all)")
    parser.add_argument("--list", action="store_true", help="print names and commands, and measure nothing")
    parser.add_argument("--stale", action="store_true", help="print whose code has changed since, and measure nothing")
    parser.add_argument("--note", default="", help='after the machine, such as "beside other work"')
    args = parser.parse_args()
    if unknown := set(args.names) - set(MEASUREMENTS):
        parser.error(f"NAME: expected some of {', '.join(MEASUREMENTS)}; got {', '.join(sorted(unknown))}")
    if args.stale:
        for name, commits in stale().items():
            print(f"{name}: its code has changed in {commits} commit{'s'[: commits > 1]} since it was measured")
        return
    for name in args.names or MEASUREMENTS:
        if args.list:
            print(f"{name:14} python {MEASUREMENTS[name].command}")
        else:
            measure(name, args.note)
    if not args.list:
        write_index()
        write_history()


if __name__ == "__main__":
    main()
