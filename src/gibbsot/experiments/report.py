"""All experiments of the paper, and one page that says what they found."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import __version__, checks, datasets, files, progress
from .outcome import Claim, Outcome, record
from .page import page

NAMES = ("figure1", "figure2", "figure3", "figure4", "figure5", "table", "bounds")


def reproduce(
    names: Sequence[str] | None,
    out: str | os.PathLike[str],
    *,
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> list[Outcome]:
    """Run experiments and write ``report.html`` and ``summary.json`` beside their pictures and data.

    What an earlier call with the same folder, ``quick``, ``seed`` and version has done is taken from there. After an
    interrupt the report has what was done before it, and the next call goes on from there.

    Parameters
    ----------
    names : sequence of str, optional
        Some of `NAMES`; all by default.
    out : path
        A folder, made if there is none.
    quick : bool
        Smaller problems and budgets: a look at everything in about a minute.
    seed : int
    n_jobs : int, optional
        Threads.
    verbose : bool
        Show a progress bar, on a terminal.

    Returns
    -------
    list of Outcome
        In the order of ``names``.
    """
    wanted = list(dict.fromkeys(NAMES if names is None else names))
    for name in wanted:
        if name not in NAMES:
            raise ValueError(f"names: expected some of {', '.join(NAMES)}, got {name!r}")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"quick": bool(quick), "seed": checks.integer(seed, "seed"), "version": __version__}
    done: list[Outcome] = []
    try:
        with progress.bar("reproducing", verbose) as advance:
            for name in wanted:
                found = _stored(name, folder, settings)
                if found is None:
                    found = _run(name, folder, settings, n_jobs, advance, 1 / len(wanted))
                else:
                    advance(1 / len(wanted), name)
                done.append(found)
    finally:  # also after an interrupt or a failure
        if done:
            _write(done, folder, settings)
    return done


def _run(
    name: str, folder: Path, settings: dict[str, Any], n_jobs: int | None, advance: progress.Advance, share: float
) -> Outcome:
    done = 0.0

    def part(of: float, note: str = "") -> None:
        nonlocal done
        of = min(of, 1 - done)
        done += of
        advance(of * share, f"{name} {note}".strip())

    part(0)
    module = import_module(f".{name}", __package__)
    try:
        found: Outcome = module.run(folder, quick=settings["quick"], seed=settings["seed"], n_jobs=n_jobs, advance=part)
    except datasets.UnavailableError as error:
        return Outcome(
            name, "Not run", str(error), [Claim(f"All of {name}", "not run, for want of data", None)], [], []
        )
    part(1)
    record({"settings": settings, "outcome": _plain(found, folder)}, folder, f"{name}.outcome")
    return found


def _stored(name: str, folder: Path, settings: dict[str, Any]) -> Outcome | None:
    """Return what an earlier call left, or None where that is not all there or has other settings."""
    try:
        kept = json.loads((folder / f"{name}.outcome.json").read_text("utf-8"))
        if kept["settings"] != settings:
            return None
        fields = kept["outcome"]
        found = Outcome(
            name,
            str(fields["title"]),
            str(fields["sentence"]),
            [Claim(**claim) for claim in fields["claims"]],
            [folder / path for path in fields["pictures"]],
            [folder / path for path in fields["data"]],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if all(path.is_file() for path in (*found.pictures, *found.data)) else None


def _plain(found: Outcome, folder: Path) -> dict[str, Any]:
    return {
        **found._asdict(),
        "claims": [claim._asdict() for claim in found.claims],
        "pictures": [path.relative_to(folder).as_posix() for path in found.pictures],
        "data": [path.relative_to(folder).as_posix() for path in found.data],
    }


def _write(done: Sequence[Outcome], folder: Path, settings: dict[str, Any]) -> None:
    record({"settings": settings, "experiments": [_plain(found, folder) for found in done]}, folder, "summary")
    with files.replacing(folder / "report.html") as file:
        file.write(page(done, folder, **settings).encode())
