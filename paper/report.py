"""Runs the experiments of the paper and writes one page with their outcomes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from gibbsot import __version__, datasets
from gibbsot.core import native, validation
from gibbsot.io import atomic, progress

from .outcome import Claim, Outcome, Run, as_json
from .page import page

NAMES = ("figure1", "figure2", "figure3", "figure4", "figure5", "table", "bounds", "chains")
_PATHS = ("pictures", "data", "tables")  # the fields of an outcome that are files
_FACES = ("figure5", "table")  # experiments that depend on GIBBSOT_FACES


def reproduce(
    names: Sequence[str] | None,
    out: str | os.PathLike[str],
    *,
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> list[Outcome]:
    """Run experiments and write ``report.html`` and ``summary.json`` to the folder of their figures and data.

    Outcomes of an earlier call with the same folder, ``quick``, ``seed``, version and kernels are reused, and are in
    the report also if they are not in ``names``. After an interrupt the report has the finished experiments, and the
    next call resumes there. An experiment that fails leaves the files of earlier calls unchanged.

    Parameters
    ----------
    names : sequence of str, optional
        Some of `NAMES`; all by default.
    out : path
        The folder, made if it does not exist.
    quick : bool
        Smaller problems and budgets: all experiments in about a minute.
    seed : int
        The seed of all experiments.
    n_jobs : int, optional
        Threads.
    verbose : bool
        Show progress: a bar on terminals and in notebooks, lines on standard error elsewhere.

    Returns
    -------
    list of Outcome
        In the order of ``names``.
    """
    wanted = list(dict.fromkeys(NAMES if names is None else names))
    for name in wanted:
        if name not in NAMES:
            raise ValueError(f"names: expected some of {', '.join(NAMES)}, got {name!r}")
    validation.integer(seed, "seed")
    native.threads(n_jobs)  # raises early for an invalid number
    settings = {"quick": bool(quick), "seed": int(seed), "version": __version__, "kernel": native.name()}
    done: dict[str, Outcome] = {}
    with atomic.output_folder(Path(out)) as folder:
        try:
            with progress.bar("reproducing", verbose) as advance:
                for name in wanted:
                    of_all = _share(advance, name, 1 / len(wanted))
                    found = _stored(name, folder, settings)
                    of_all(0 if found is None else 1)
                    done[name] = found or _run(name, folder, settings, n_jobs, of_all)
        except BaseException:
            if done:
                with suppress(OSError):  # the first error is the one to report
                    _write(done, folder, settings)
            raise
        _write(done, folder, settings)
    return list(done.values())


def _share(advance: progress.Advance, name: str, share: float) -> progress.Advance:
    """Return the function with which an experiment reports its progress."""
    return lambda done, note="": advance(share * done, f"{name} {note}".strip())


def _run(name: str, folder: Path, settings: dict[str, Any], n_jobs: int | None, advance: progress.Advance) -> Outcome:
    """Run an experiment in a temporary folder and move its files to the folder of the report."""
    module = import_module(f".{name}", __package__)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder, ignore_cleanup_errors=True) as temporary:
        run = Run(Path(temporary), settings["quick"], settings["seed"], n_jobs, advance)
        try:
            found: Outcome = module.run(run)
            if found.complete:
                run.record(f"{name}.outcome", {"settings": _settings(name, settings), "outcome": _plain(found)})
            for path in sorted(run.out.iterdir(), key=lambda path: path.name == f"{name}.outcome.json"):  # last
                os.replace(path, folder / path.name)
        except datasets.UnavailableError as error:
            claims = [Claim(f"All of {name}", "not run: data unavailable", None)]
            return Outcome(name, "Not run", str(error), claims, [], [], complete=False)
        except OSError as error:
            if not isinstance(error.filename, str) or run.out not in Path(error.filename).parents:
                raise
            raise OSError(error.errno, error.strerror, str(folder / Path(error.filename).name)) from None
    moved: dict[str, Any] = {field: [folder / path.name for path in getattr(found, field)] for field in _PATHS}
    return found._replace(**moved)


def _settings(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return all settings that the outcome of an experiment depends on."""
    return {**settings, "faces": os.environ.get("GIBBSOT_FACES")} if name in _FACES else settings


def _stored(name: str, folder: Path, settings: dict[str, Any]) -> Outcome | None:
    """Return the outcome of an earlier call, or None if it is incomplete or has other settings."""
    try:
        kept = json.loads((folder / f"{name}.outcome.json").read_text("utf-8"))
        if kept["settings"] != _settings(name, settings):
            return None
        texts: dict[str, Any] = {field: str(kept["outcome"][field]) for field in ("title", "sentence", "differs")}
        claims = [Claim(**claim) for claim in kept["outcome"]["claims"]]
        paths: dict[str, Any] = {field: [folder / path for path in kept["outcome"][field]] for field in _PATHS}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    known = all(path.is_file() for some in paths.values() for path in some)
    return Outcome(name=name, claims=claims, **texts, **paths) if known else None


def _plain(found: Outcome) -> dict[str, Any]:
    """Return an outcome as data for JSON."""
    names = {field: [path.name for path in getattr(found, field)] for field in _PATHS}
    return {**found._asdict(), "claims": [claim._asdict() for claim in found.claims], **names}


def _write(done: dict[str, Outcome], folder: Path, settings: dict[str, Any]) -> None:
    """Write the report of the experiments that this call and earlier ones finished."""
    known = [found for name in NAMES if (found := done.get(name) or _stored(name, folder, settings)) is not None]
    summary = {"settings": settings, "experiments": [_plain(found) for found in known]}
    text = page(known, quick=settings["quick"], seed=settings["seed"], version=settings["version"])
    with atomic.FileGroup() as files:
        for name, content in (("summary.json", as_json(summary)), ("report.html", text)):
            with files.open(folder / name) as file:
                file.write(content.encode())
