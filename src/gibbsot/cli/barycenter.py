"""``gibbsot barycenter``: the mean of measures in transport cost, with its certified bound and a picture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .. import plots
from ..core import native, validation
from ..io import atomic, strict_json
from . import _common, _inputs
from ._common import (
    CostOption,
    Data,
    Header,
    Interrupt,
    Invert,
    Jobs,
    Json,
    Key,
    Label,
    Labels,
    Limit,
    Power,
    Quiet,
    Seed,
    Shape,
    Size,
    Spacing,
    Vectors,
)

if TYPE_CHECKING:
    from ..models.barycenter.estimator import WassersteinBarycenter

EPILOG = (
    "Examples:\n\n"
    "  gibbsot barycenter fives --limit 20 --out five\n\n"
    "  gibbsot barycenter photos/ --size 32 27 --smooth --gap 0.01 --out face"
)

_SMOOTH_GAP = 0.01


def barycenter(
    data: Data,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.", show_default=False)],
    gap: Annotated[
        float | None, typer.Option(help="The certified relative gap; by default the model's, 0.01 with --smooth.")
    ] = None,
    smooth: Annotated[
        bool, typer.Option("--smooth", help="Of all means within the gap the one of largest entropy, without specks.")
    ] = False,
    max_seconds: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop after this time, with the bound proved by then.")
    ] = None,
    shape: Shape = None,
    size: Size = None,
    label: Label = None,
    labels: Labels = None,
    limit: Limit = None,
    cost_option: CostOption = None,
    vectors: Vectors = None,
    power: Power = 2.0,
    spacing: Spacing = None,
    invert: Invert = False,
    key: Key = None,
    header: Header = None,
    seed: Seed = 0,
    jobs: Jobs = -1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find the measure with the least mean transport cost to all measures of a collection.

    Writes barycenter.npy, report.json and a picture.

    Ctrl-C ends the fit after the current epoch, and writes what it has found.
    """
    from ..models.barycenter.estimator import WassersteinBarycenter  # imports scikit-learn

    _common.check_seed(seed)
    native.threads(jobs)
    if gap is not None:
        (validation.positive if smooth else validation.nonnegative)(gap, "--gap")
    _common.check_outside(data, "--out", out)
    plots.new_figure(1, 1)  # raises early if matplotlib is missing
    reading: dict[str, Any] = {"key": key, "shape": shape, "labels": labels, "label": label, "limit": limit}
    found = _common.read_collection(data, size, invert=invert, header=header, **reading)
    X, sides = found.rows, found.shape
    cost = _common.cost_of_bins(X, X.shape[1], sides, cost_option, vectors, power, spacing)
    options: dict[str, Any] = {} if gap is None and not smooth else {"gap": _SMOOTH_GAP if gap is None else gap}
    begun, console = time.perf_counter(), _common.stderr_console(quiet or as_json)
    with (
        _common.locked_folder(out),
        Interrupt(lambda: console.print("stopping after this epoch; Ctrl-C again stops immediately")) as interrupt,
    ):
        read, measured = _inputs.said(console, data, found, cost, cost_option, power, spacing)
        model = WassersteinBarycenter(
            cost=cost, smooth=smooth, max_seconds=max_seconds, random_state=seed, n_jobs=jobs,
            verbose=not quiet and not as_json, callbacks=[lambda _: interrupt.requested], **options,
        ).fit(X)  # fmt: skip
        report = {
            "data": data,
            "read": read,
            "ground_cost": measured,
            "measures": X.shape[0],
            "mean_cost": float(np.nan_to_num(model.objective_, posinf=1e308)),
            "lower_bound": float(model.lower_bound_),
            "gap": float(np.nan_to_num(model.gap_, posinf=1e308)),
            "status": model.status_,
            "seconds": time.perf_counter() - begun,
        }
        names = _write(model, sides, invert, report, out)
    if as_json:
        _common.print_json(report)
    elif not quiet:
        _common.print_table(
            ("measures", f"{X.shape[0]:,}", f"{report['seconds']:.1f} s"),
            ("mean transport cost", f"{report['mean_cost']:.6g}", model.status_),
            ("at least", f"{report['lower_bound']:.6g}", f"certified, relative gap {report['gap']:.1e}"),
        )
        _common.print_files(out, names)


def _write(
    model: WassersteinBarycenter, sides: tuple[int, int] | None, invert: bool, report: dict[str, Any], out: Path
) -> list[str]:
    """Write all files, and return their names."""
    figure = plots.new_figure(4, 4)
    if sides is None:
        plots.profiles(figure, model.barycenter_[None])
    else:
        plots.components(figure, model.barycenter_[None], sides, cmap="gray_r" if invert else "gray")
    with atomic.FileGroup() as files:
        with files.open(out / "barycenter.npy") as file:
            np.save(file, model.barycenter_)
        with files.open(out / "report.json") as file:
            file.write(strict_json.dumps(report).encode())
        _common.save_png(files, out / "barycenter.png", figure)
    return ["barycenter.npy", "report.json", "barycenter.png"]
